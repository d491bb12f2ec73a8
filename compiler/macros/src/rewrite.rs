//! The rewrite of a body: control flow, compares, `&&`/`||` and float literals on the left of an operator become calls
//! that rustc dispatches by type. Everything else stays as the user wrote it, with its spans.
//!
//! The calls take the spans of the user's own tokens, hygiene included: so errors, and the locations of ops, point at
//! these tokens.

use crate::changed::{Changed, changed, changed_directly};
use crate::scopes::{Place, Scopes, stores_mut};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::*;

/// A construct around the code being rewritten.
enum Construct {
    /// Run by the protocol: a jump out of it is checked by type. A loop's label is inside.
    Protocol { name: Ident, is_loop: bool, label: Option<Ident> },
    /// Rust's own `loop`, `while let`.
    Loop(Option<Ident>),
    /// A labelled block.
    Block(Ident),
}

/// Rewrites a function's body.
pub struct Rewrite {
    scopes: Scopes,
    names: usize,
    /// Whose hygiene generated names have: the function's name. Its own would make rustc blame the attribute.
    hygiene: Span,
    around: Vec<Construct>,
    in_closure: bool,
    pub errors: Vec<Error>,
}

impl Rewrite {
    pub fn new(sig: &Signature) -> Self {
        Rewrite {
            scopes: Scopes::new(),
            names: 0,
            hygiene: sig.ident.span(),
            around: vec![],
            in_closure: false,
            errors: vec![],
        }
    }

    /// Rewrites `f`'s body, in which its parameters are declared.
    pub fn function(&mut self, sig: &Signature, body: &mut Block) {
        sig.inputs.iter().for_each(|a| self.scopes.declare_param(a));
        self.visit_block_mut(body);
    }

    pub fn error(&mut self, at: impl ToTokens, message: &str) {
        self.errors.push(Error::new_spanned(at, message))
    }

    fn fresh(&mut self, prefix: &str, at: Span) -> Ident {
        self.names += 1;
        Ident::new(&format!("__{prefix}{}", self.names), at.resolved_at(self.hygiene))
    }

    fn scoped(&mut self, f: impl FnOnce(&mut Self)) {
        self.scopes.open();
        f(self);
        self.scopes.close();
    }

    /// What code may change that is declared around it.
    fn changed(&mut self, walk: impl FnOnce(&mut Changed)) -> Vec<Expr> {
        let (places, unclear) = changed(&self.scopes, walk);
        self.errors.extend(unclear);
        places
    }

    /// Rewrites what is inside a construct.
    fn inside(&mut self, c: Construct, f: impl FnOnce(&mut Self)) {
        self.around.push(c);
        f(self);
        self.around.pop();
    }

    /// Calls of a protocol function, one per variable. They take the construct's span, so that hovering a variable shows
    /// the variable; the argument takes the variable's, so that rustc points at it.
    fn cross(&self, function: &str, construct: &Ident, at: Span, places: &[Expr]) -> TokenStream {
        let function = Ident::new(function, at);
        places
            .iter()
            .map(|p| {
                let borrowed = quote_spanned!(p.span()=> &mut #p);
                quote_spanned!(at=> ::tegula::rt::ChangesUnder::#function(#borrowed, &mut #construct);)
            })
            .collect()
    }

    /// Checks, by type, of every construct between a jump and where it goes.
    fn jump(&self, label: Option<&Lifetime>, leaves_function: bool, at: Span) -> TokenStream {
        let mut left = vec![];
        for c in self.around.iter().rev() {
            let (is_loop, own) = match c {
                Construct::Protocol { name, is_loop, label } => {
                    left.push(Ident::new(&name.to_string(), at.resolved_at(self.hygiene)));
                    (*is_loop, label.as_ref())
                }
                Construct::Loop(l) => (true, l.as_ref()),
                Construct::Block(l) => (false, Some(l)),
            };
            let arrived = match label {
                Some(l) => own.is_some_and(|o| *o == l.ident),
                None => is_loop,
            };
            if arrived && !leaves_function {
                break;
            }
        }
        left.iter().map(|c| quote_spanned!(at=> ::tegula::rt::MayBeLeft::jump(&#c);)).collect()
    }

    fn if_else(&mut self, i: &mut ExprIf) -> TokenStream {
        let places = self.changed(|c| {
            use syn::visit::Visit;
            c.visit_block(&i.then_branch);
            if let Some((_, e)) = &i.else_branch {
                c.visit_expr(e);
            }
        });
        let at = i.if_token.span;
        let cond_at = i.cond.span();
        let name = self.fresh("if", i.if_token.span);
        self.visit_expr_mut(&mut i.cond);
        self.inside(Construct::Protocol { name: name.clone(), is_loop: false, label: None }, |s| {
            s.visit_block_mut(&mut i.then_branch);
            if let Some((_, e)) = &mut i.else_branch {
                s.visit_expr_mut(e);
            }
        });
        let [enter, mid, latch, exit] = ["enter", "mid", "latch", "exit"].map(|f| self.cross(f, &name, at, &places));
        let (cond, first) = (&i.cond, &i.then_branch);
        let begin = quote_spanned!(cond_at=> ::tegula::rt::Condition::begin(#cond));
        match &i.else_branch {
            Some((_, second)) => {
                let (a, b, v) = (self.fresh("a", at), self.fresh("b", at), self.fresh("v", at));
                quote_spanned! {at=> {
                    let mut #name = #begin;
                    #enter
                    let mut #a = ::core::option::Option::None;
                    let mut #b = ::core::option::Option::None;
                    if ::tegula::rt::Branch::then(&mut #name) { let #v = #first; #mid #a = ::tegula::rt::ValueOf::first(#v, &mut #name); }
                    if ::tegula::rt::Branch::otherwise(&mut #name) { let #v = ::tegula::rt::as_first(&#a, #second); #latch #b = ::tegula::rt::ValueOf::second(#v, &mut #name); }
                    ::tegula::rt::Branch::done(&mut #name);
                    #exit
                    ::tegula::rt::ValueOf::value(#a, #b, &mut #name)
                }}
            }
            None => quote_spanned! {at=> {
                let mut #name = #begin;
                #enter
                if ::tegula::rt::Branch::then(&mut #name) { #first #mid }
                if ::tegula::rt::Branch::otherwise(&mut #name) { #latch }
                ::tegula::rt::Branch::done(&mut #name);
                #exit
            }},
        }
    }

    fn for_loop(&mut self, f: &mut ExprForLoop) -> TokenStream {
        // Before the rewrite, which hides what it goes over.
        let over = (*f.expr).clone();
        let places = self.changed(|c| {
            use syn::visit::Visit;
            c.declare(&f.pat);
            c.visit_block(&f.body);
        });
        let range = match &mut *f.expr {
            // The end decides the stage. With two literals Rust's own inference of integers is kept.
            Expr::Range(ExprRange { start: Some(a), end: Some(b), limits: RangeLimits::HalfOpen(dots), .. })
                if !(is_literal(a) && is_literal(b)) =>
            {
                self.visit_expr_mut(a);
                self.visit_expr_mut(b);
                let at = dots.span();
                quote_spanned!(at=> ::tegula::rt::CountsTo::to(#a, #b))
            }
            Expr::Range(ExprRange { start: Some(a), end: Some(b), limits: RangeLimits::Closed(dots), .. })
                if !(is_literal(a) && is_literal(b)) =>
            {
                self.visit_expr_mut(a);
                self.visit_expr_mut(b);
                let at = dots.span();
                quote_spanned!(at=> ::tegula::rt::CountsTo::to_inclusive(#a, #b))
            }
            e => {
                self.visit_expr_mut(e);
                e.to_token_stream()
            }
        };
        let at = f.for_token.span;
        let head = f.expr.span();
        let name = self.fresh("for", f.for_token.span);
        let label = f.label.as_ref().map(|l| l.name.ident.clone());
        self.inside(Construct::Protocol { name: name.clone(), is_loop: true, label }, |s| {
            s.scoped(|s| {
                s.scopes.declare_from(&f.pat, &over);
                s.visit_block_mut(&mut f.body);
            })
        });
        let [enter, latch, exit] = ["enter", "latch", "exit"].map(|f| self.cross(f, &name, at, &places));
        let (label, pat, body) = (&f.label, &f.pat, &f.body);
        let into = quote_spanned!(head=> ::tegula::rt::IntoLoop::into_loop(#range));
        quote_spanned! {at=> {
            let mut #name = #into;
            #enter
            #label while let ::core::option::Option::Some(#pat) = ::tegula::rt::Loop::next(&mut #name) { #body #latch }
            #exit
        }}
    }

    fn while_loop(&mut self, w: &mut ExprWhile) -> TokenStream {
        let places = self.changed(|c| {
            use syn::visit::Visit;
            c.visit_expr(&w.cond);
            c.visit_block(&w.body);
        });
        let at = w.while_token.span;
        let cond_at = w.cond.span();
        let name = self.fresh("while", w.while_token.span);
        let label = w.label.as_ref().map(|l| l.name.ident.clone());
        self.inside(Construct::Protocol { name: name.clone(), is_loop: true, label }, |s| {
            s.visit_expr_mut(&mut w.cond);
            s.visit_block_mut(&mut w.body);
        });
        let [enter, turn, latch, exit] = ["enter", "turn", "latch", "exit"].map(|f| self.cross(f, &name, at, &places));
        let (label, cond, body) = (&w.label, &w.cond, &w.body);
        let test = quote_spanned!(cond_at=> ::tegula::rt::Condition::test(#cond, &mut #name));
        quote_spanned! {at=> {
            let mut #name = ::tegula::rt::new_while();
            #enter
            #label while ::tegula::rt::WhileLoop::again(&mut #name) { if !#test { break; } #turn #body #latch }
            #exit
        }}
    }

    /// Rewrites the parts of a condition that has `let` in it; its `&&` stays Rust's.
    fn let_condition(&mut self, e: &mut Expr) {
        match e {
            Expr::Binary(b) if matches!(b.op, BinOp::And(_)) => {
                self.let_condition(&mut b.left);
                self.let_condition(&mut b.right);
            }
            Expr::Let(l) => {
                let value = (*l.expr).clone();
                self.visit_expr_mut(&mut l.expr);
                self.scopes.declare_from(&l.pat, &value);
            }
            e => self.visit_expr_mut(e),
        }
    }

    fn binary(&mut self, b: &mut ExprBinary) -> Option<TokenStream> {
        let literal_left = is_float_literal(&b.left) && !is_literal(&b.right);
        self.visit_expr_mut(&mut b.left);
        self.visit_expr_mut(&mut b.right);
        use BinOp::*;
        let (x, y) = (&b.left, &b.right);
        let at = b.op.span();
        let call = |t: &str, f: &str| {
            let (t, f) = (Ident::new(t, at), Ident::new(f, at));
            quote_spanned!(at=> ::tegula::rt::#t::#f)
        };
        let compare = |t| {
            let f = call(t, "compare");
            quote_spanned!(at=> #f(#x, #y))
        };
        let logic = |f| {
            let f = call("Logic", f);
            quote_spanned!(at=> #f(#x, || #y))
        };
        let left = |f| {
            let f = call("AfterLiteral", f);
            quote_spanned!(at=> #f(#y, #x))
        };
        Some(match b.op {
            Lt(_) => compare("Less"),
            Le(_) => compare("LessEq"),
            Gt(_) => compare("Greater"),
            Ge(_) => compare("GreaterEq"),
            Eq(_) => compare("Equal"),
            Ne(_) => compare("NotEqual"),
            And(_) => logic("and"),
            Or(_) => logic("or"),
            Add(_) if literal_left => left("left_add"),
            Sub(_) if literal_left => left("left_sub"),
            Mul(_) if literal_left => left("left_mul"),
            Div(_) if literal_left => left("left_div"),
            Rem(_) if literal_left => left("left_rem"),
            _ => return None,
        })
    }

    fn closure(&mut self, c: &mut ExprClosure) {
        let places = self.changed(|s| {
            use syn::visit::Visit;
            c.inputs.iter().for_each(|p| s.declare(p));
            s.visit_expr(&c.body);
        });
        let direct = changed_directly(&c.body);
        for p in places {
            if Place::of(&p).is_some_and(|p| direct.contains(&p.path)) {
                self.error(&p, "a closure in a kernel cannot change a variable from outside: a loop around its call would not see it");
            }
        }
        let around = std::mem::take(&mut self.around);
        let in_closure = std::mem::replace(&mut self.in_closure, true);
        self.scoped(|s| {
            c.inputs.iter().for_each(|p| s.scopes.declare(p));
            s.visit_expr_mut(&mut c.body);
        });
        self.around = around;
        self.in_closure = in_closure;
    }

    /// Refuses, on one token: the rest is replaced by the error, so that rustc adds none of its own.
    fn refuse(&mut self, at: impl ToTokens, message: &str) -> Expr {
        Expr::Verbatim(Error::new_spanned(at, message).to_compile_error())
    }
}

fn is_literal(e: &Expr) -> bool {
    match e {
        Expr::Lit(ExprLit { lit: Lit::Float(f), .. }) => f.suffix().is_empty(),
        Expr::Lit(ExprLit { lit: Lit::Int(i), .. }) => i.suffix().is_empty(),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => is_literal(expr),
        Expr::Paren(p) => is_literal(&p.expr),
        Expr::Group(g) => is_literal(&g.expr),
        _ => false,
    }
}

fn is_float_literal(e: &Expr) -> bool {
    match e {
        Expr::Lit(ExprLit { lit: Lit::Float(f), .. }) => f.suffix().is_empty(),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => is_float_literal(expr),
        Expr::Paren(p) => is_float_literal(&p.expr),
        Expr::Group(g) => is_float_literal(&g.expr),
        _ => false,
    }
}

fn has_let(e: &Expr) -> bool {
    match e {
        Expr::Let(_) => true,
        Expr::Binary(b) if matches!(b.op, BinOp::And(_)) => has_let(&b.left) || has_let(&b.right),
        _ => false,
    }
}

impl VisitMut for Rewrite {
    fn visit_block_mut(&mut self, b: &mut Block) {
        self.scoped(|s| visit_mut::visit_block_mut(s, b))
    }

    fn visit_local_mut(&mut self, l: &mut Local) {
        if let Some(init) = &mut l.init {
            if stores_mut(&init.expr) {
                self.error(
                    &init.expr,
                    "a stored `&mut` hides what a loop changes: in a kernel `&mut` of a variable can only be an argument of a call or the head of a `for`",
                );
            }
            self.visit_expr_mut(&mut init.expr);
            if let Some((_, diverge)) = &mut init.diverge {
                self.visit_expr_mut(diverge);
            }
        }
        self.visit_pat_mut(&mut l.pat);
        self.scopes.declare_local(l);
    }

    fn visit_expr_match_mut(&mut self, m: &mut ExprMatch) {
        let value = (*m.expr).clone();
        self.visit_expr_mut(&mut m.expr);
        for a in &mut m.arms {
            self.scoped(|s| {
                s.visit_pat_mut(&mut a.pat);
                s.scopes.declare_from(&a.pat, &value);
                if let Some((_, guard)) = &mut a.guard {
                    s.let_condition(guard);
                }
                s.visit_expr_mut(&mut a.body);
            })
        }
    }

    // Patterns, types, constants and items hold no code of the kernel.
    fn visit_pat_mut(&mut self, p: &mut Pat) {
        struct RefMut(Vec<Error>);
        impl<'a> syn::visit::Visit<'a> for RefMut {
            fn visit_pat_ident(&mut self, p: &'a PatIdent) {
                if p.by_ref.is_some() && p.mutability.is_some() {
                    self.0.push(Error::new_spanned(
                        p,
                        "a stored `&mut` hides what a loop changes: bind by value, or match on `&mut x`",
                    ));
                }
            }
        }
        let mut found = RefMut(vec![]);
        syn::visit::Visit::visit_pat(&mut found, p);
        self.errors.extend(found.0);
    }
    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_item_mut(&mut self, _: &mut Item) {}
    fn visit_generic_argument_mut(&mut self, _: &mut GenericArgument) {}
    fn visit_attribute_mut(&mut self, _: &mut Attribute) {}
    fn visit_expr_const_mut(&mut self, _: &mut ExprConst) {}
    fn visit_expr_repeat_mut(&mut self, r: &mut ExprRepeat) {
        self.visit_expr_mut(&mut r.expr)
    }

    fn visit_expr_mut(&mut self, e: &mut Expr) {
        let replacement = match e {
            Expr::If(i) if !has_let(&i.cond) => self.if_else(i),
            Expr::If(i) => {
                self.scoped(|s| {
                    s.let_condition(&mut i.cond);
                    s.visit_block_mut(&mut i.then_branch);
                });
                if let Some((_, e)) = &mut i.else_branch {
                    self.visit_expr_mut(e);
                }
                return;
            }
            Expr::ForLoop(f) => self.for_loop(f),
            Expr::While(w) if !has_let(&w.cond) => self.while_loop(w),
            Expr::While(w) => {
                let label = w.label.as_ref().map(|l| l.name.ident.clone());
                return self.inside(Construct::Loop(label), |s| {
                    s.scoped(|s| {
                        s.let_condition(&mut w.cond);
                        s.visit_block_mut(&mut w.body);
                    })
                });
            }
            Expr::Loop(l) => {
                let label = l.label.as_ref().map(|l| l.name.ident.clone());
                return self.inside(Construct::Loop(label), |s| s.visit_block_mut(&mut l.body));
            }
            Expr::Block(b) => {
                return match &b.label {
                    Some(l) => self.inside(Construct::Block(l.name.ident.clone()), |s| s.visit_block_mut(&mut b.block)),
                    None => self.visit_block_mut(&mut b.block),
                };
            }
            Expr::Break(b) => {
                let jump = self.jump(b.label.as_ref(), false, b.break_token.span);
                if let Some(x) = &mut b.expr {
                    self.visit_expr_mut(x);
                }
                quote_spanned!(b.break_token.span=> { #jump #b })
            }
            Expr::Continue(c) => {
                let jump = self.jump(c.label.as_ref(), false, c.continue_token.span);
                quote_spanned!(c.continue_token.span=> { #jump #c })
            }
            Expr::Return(r) => {
                if self.in_closure {
                    *e = self.refuse(&*r, "`return` inside a closure is not supported in a kernel");
                    return;
                }
                let jump = self.jump(None, true, r.return_token.span);
                if let Some(x) = &mut r.expr {
                    self.visit_expr_mut(x);
                }
                quote_spanned!(r.return_token.span=> { #jump #r })
            }
            Expr::Try(t) => {
                *e = self.refuse(t.question_token, "`?` is not supported in a kernel: a kernel has no error to return; check on the host side, or use `device_assert`");
                return;
            }
            Expr::Await(a) => {
                *e = self.refuse(a.await_token, "`.await` is not supported in a kernel");
                return;
            }
            Expr::Async(a) => {
                *e = self.refuse(a.async_token, "`async` is not supported in a kernel");
                return;
            }
            Expr::Yield(y) => {
                *e = self.refuse(y.yield_token, "`yield` is not supported in a kernel");
                return;
            }
            Expr::TryBlock(t) => {
                *e = self.refuse(t.try_token, "`try` is not supported in a kernel");
                return;
            }
            Expr::Closure(c) => return self.closure(c),
            Expr::Binary(b) => match self.binary(b) {
                Some(tokens) => tokens,
                None => return,
            },
            Expr::Let(_) => {
                let message = "`let` stands here inside a condition that is not a chain of `&&`";
                *e = self.refuse(&*e, message);
                return;
            }
            e => return visit_mut::visit_expr_mut(self, e),
        };
        *e = Expr::Verbatim(replacement);
    }
}
