//! Which variables a piece of code may change that are declared outside it.
//!
//! This must find them all: one that is missed makes silently wrong code. One too many costs a dead loop argument, or,
//! for a build-time value, an error that names the cure.

use crate::scopes::{Kind, Place, Scopes, idents};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::*;

/// What the code that `walk` visits may change, as places; a place that holds another stands for it.
pub fn changed(outer: &Scopes, walk: impl FnOnce(&mut Changed)) -> (Vec<Expr>, Vec<Error>) {
    let mut c = Changed { outer, inner: Scopes::new(), found: vec![], unclear: vec![] };
    walk(&mut c);
    let mut kept: Vec<&Place> = vec![];
    for (i, p) in c.found.iter().enumerate() {
        let covered =
            c.found.iter().enumerate().any(|(j, q)| i != j && q.covers(p) && (q.path.len() < p.path.len() || j < i));
        if !covered {
            kept.push(p);
        }
    }
    (kept.into_iter().map(|p| p.expr.clone()).collect(), c.unclear)
}

/// What a closure's body assigns or borrows mutably itself, as paths.
pub fn changed_directly(body: &Expr) -> Vec<Vec<String>> {
    struct Direct(Vec<Vec<String>>);
    impl Direct {
        fn add(&mut self, e: &Expr) {
            self.0.extend(Place::of(e).map(|p| p.path))
        }
    }
    impl<'a> Visit<'a> for Direct {
        fn visit_expr_assign(&mut self, a: &'a ExprAssign) {
            targets(&a.left, &mut |e| self.add(e));
            visit::visit_expr_assign(self, a);
        }
        fn visit_expr_binary(&mut self, b: &'a ExprBinary) {
            if is_assign_op(&b.op) {
                self.add(&b.left);
            }
            visit::visit_expr_binary(self, b);
        }
        fn visit_expr_reference(&mut self, r: &'a ExprReference) {
            if r.mutability.is_some() {
                self.add(&r.expr);
            }
            visit::visit_expr_reference(self, r);
        }
    }
    let mut d = Direct(vec![]);
    d.visit_expr(body);
    d.0
}

fn is_assign_op(op: &BinOp) -> bool {
    use BinOp::*;
    matches!(
        op,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | BitXorAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}

/// The places that an assignment's left side names: `(a, b[0], S { f, .. })` names three.
fn targets(e: &Expr, f: &mut impl FnMut(&Expr)) {
    match e {
        Expr::Tuple(t) => t.elems.iter().for_each(|e| targets(e, f)),
        Expr::Array(t) => t.elems.iter().for_each(|e| targets(e, f)),
        Expr::Call(c) => c.args.iter().for_each(|e| targets(e, f)),
        Expr::Struct(s) => s.fields.iter().for_each(|v| targets(&v.expr, f)),
        Expr::Paren(p) => targets(&p.expr, f),
        Expr::Group(g) => targets(&g.expr, f),
        Expr::Infer(_) => {}
        e => f(e),
    }
}

pub struct Changed<'s> {
    outer: &'s Scopes,
    /// Declared inside the code: not of interest.
    inner: Scopes,
    found: Vec<Place>,
    /// Uses that may change something, or not: the author must say.
    unclear: Vec<Error>,
}

impl Changed<'_> {
    /// Declares a variable of the code itself.
    pub fn declare(&mut self, p: &Pat) {
        self.inner.declare(p)
    }

    /// Adds the place that `e` names. If `certain` is false, only when its variable is `mut` or a `&mut` parameter.
    fn add(&mut self, e: &Expr, certain: bool) {
        let Some(mut place) = Place::of(e) else { return };
        if self.inner.get(place.base()).is_some() {
            return;
        }
        match self.outer.get(place.base()) {
            None => return,
            Some(Kind::Plain | Kind::MaybeRefMut) if !certain => return,
            // The variable holds a reference: what it refers to changes.
            Some(Kind::RefMut) if place.is_variable() => {
                let v = &place.expr;
                place.expr = parse_quote!(*#v);
            }
            _ => {}
        }
        self.found.push(place);
    }

    /// A variable that may be a `&mut`, handed on as it is.
    fn hand_on(&mut self, e: &Expr) {
        if let Some(p) = Place::of(e)
            && p.is_variable()
            && self.inner.get(p.base()).is_none()
            && self.outer.get(p.base()) == Some(Kind::MaybeRefMut)
        {
            let name = p.base().to_string();
            self.unclear.push(Error::new_spanned(
                e,
                format!("`{name}` may be a `&mut` that changes here: write `&mut *{name}`, or give it another name before if it is a plain value"),
            ));
        }
    }

    fn scoped(&mut self, f: impl FnOnce(&mut Self)) {
        self.inner.open();
        f(self);
        self.inner.close();
    }
}

impl<'a> Visit<'a> for Changed<'_> {
    fn visit_block(&mut self, b: &'a Block) {
        self.scoped(|s| visit::visit_block(s, b))
    }
    fn visit_local(&mut self, l: &'a Local) {
        if let Some(init) = &l.init {
            self.visit_expr(&init.expr);
            if let Some((_, diverge)) = &init.diverge {
                self.visit_expr(diverge);
            }
        }
        self.inner.declare_local(l);
    }
    fn visit_arm(&mut self, a: &'a Arm) {
        self.scoped(|s| {
            s.inner.declare(&a.pat);
            if let Some((_, guard)) = &a.guard {
                s.visit_expr(guard);
            }
            s.visit_expr(&a.body);
        })
    }
    fn visit_expr_if(&mut self, i: &'a ExprIf) {
        self.scoped(|s| {
            s.visit_expr(&i.cond);
            s.visit_block(&i.then_branch);
        });
        if let Some((_, e)) = &i.else_branch {
            self.visit_expr(e);
        }
    }
    fn visit_expr_while(&mut self, w: &'a ExprWhile) {
        self.scoped(|s| {
            s.visit_expr(&w.cond);
            s.visit_block(&w.body);
        })
    }
    fn visit_expr_for_loop(&mut self, f: &'a ExprForLoop) {
        self.visit_expr(&f.expr);
        self.scoped(|s| {
            s.inner.declare(&f.pat);
            s.visit_block(&f.body);
        })
    }
    fn visit_expr_closure(&mut self, c: &'a ExprClosure) {
        self.scoped(|s| {
            c.inputs.iter().for_each(|p| s.inner.declare(p));
            s.visit_expr(&c.body);
        })
    }
    fn visit_expr_let(&mut self, l: &'a ExprLet) {
        self.visit_expr(&l.expr);
        self.inner.declare(&l.pat);
    }
    fn visit_expr_assign(&mut self, a: &'a ExprAssign) {
        targets(&a.left, &mut |e| self.add(e, true));
        visit::visit_expr_assign(self, a);
    }
    fn visit_expr_binary(&mut self, b: &'a ExprBinary) {
        if is_assign_op(&b.op) {
            self.add(&b.left, true);
        }
        visit::visit_expr_binary(self, b);
    }
    fn visit_expr_reference(&mut self, r: &'a ExprReference) {
        if r.mutability.is_some() {
            self.add(&r.expr, true);
        }
        visit::visit_expr_reference(self, r);
    }
    fn visit_expr_call(&mut self, c: &'a ExprCall) {
        c.args.iter().for_each(|a| self.hand_on(a));
        visit::visit_expr_call(self, c);
    }
    /// `rng.next()`: the borrow does not show.
    fn visit_expr_method_call(&mut self, m: &'a ExprMethodCall) {
        self.add(&m.receiver, false);
        self.hand_on(&m.receiver);
        m.args.iter().for_each(|a| self.hand_on(a));
        visit::visit_expr_method_call(self, m);
    }
    /// `step(state)` where `state: &mut State`.
    fn visit_expr_path(&mut self, p: &'a ExprPath) {
        if let Some(i) = p.path.get_ident()
            && self.outer.get(&i.to_string()) == Some(Kind::RefMut)
        {
            self.add(&Expr::Path(p.clone()), true);
        }
    }
    /// `self.f` read through a `&mut self` changes nothing.
    fn visit_expr_field(&mut self, f: &'a ExprField) {
        if Place::of(&f.base).is_none() || matches!(&*f.base, Expr::Index(_)) {
            visit::visit_expr_field(self, f);
        }
    }
    fn visit_expr_unary(&mut self, u: &'a ExprUnary) {
        if !(matches!(u.op, UnOp::Deref(_)) && matches!(&*u.expr, Expr::Path(_))) {
            visit::visit_expr_unary(self, u);
        }
    }
    /// A macro whose tokens are expressions is read as these; of any other every `mut` variable that it names may change.
    fn visit_macro(&mut self, m: &'a Macro) {
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        if let Ok(args) = parser.parse2(m.tokens.clone()) {
            // Detached from the tree that is walked, so walked by itself.
            for e in &args {
                let mut part = Changed { outer: self.outer, inner: self.inner.clone(), found: vec![], unclear: vec![] };
                part.visit_expr(e);
                self.found.extend(part.found);
                self.unclear.extend(part.unclear);
            }
            return;
        }
        for i in idents(m.tokens.clone()) {
            if matches!(self.outer.get(&i.to_string()), Some(Kind::Mut | Kind::RefMut)) {
                self.add(&parse_quote!(#i), false);
            }
        }
    }
    fn visit_item(&mut self, _: &'a Item) {}
}
