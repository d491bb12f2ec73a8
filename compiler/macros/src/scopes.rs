//! Which local variables are declared where, and how; and which place an expression names.

use std::collections::HashMap;
use syn::visit::{self, Visit};
use syn::{Expr, ExprUnary, FnArg, Ident, Local, Member, Pat, PatIdent, Type, UnOp};

/// How a variable was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Without `mut`: only what it refers to can change.
    Plain,
    /// With `mut`.
    Mut,
    /// Of type `&mut T`: a mention may change what it refers to.
    RefMut,
    /// Part of what an iterator over `&mut T` gives, as in `(i, x)` of `v.iter_mut().enumerate()`: `&mut T` or not.
    MaybeRefMut,
}

/// The declared variables, innermost scope last.
#[derive(Clone, Debug, Default)]
pub struct Scopes(Vec<HashMap<String, Kind>>);

impl Scopes {
    pub fn new() -> Self {
        Scopes(vec![HashMap::new()])
    }
    pub fn open(&mut self) {
        self.0.push(HashMap::new())
    }
    pub fn close(&mut self) {
        self.0.pop().map_or((), drop)
    }
    pub fn get(&self, name: &str) -> Option<Kind> {
        self.0.iter().rev().find_map(|s| s.get(name).copied())
    }

    fn insert(&mut self, name: String, kind: Kind) {
        if self.0.is_empty() {
            self.open();
        }
        if let Some(s) = self.0.last_mut() {
            s.insert(name, kind);
        }
    }

    /// Declares what a pattern binds.
    pub fn declare(&mut self, pattern: &Pat) {
        struct Names<'a>(&'a mut Scopes);
        impl<'p> Visit<'p> for Names<'_> {
            fn visit_pat_ident(&mut self, p: &'p PatIdent) {
                self.0.insert(p.ident.to_string(), if p.mutability.is_some() { Kind::Mut } else { Kind::Plain });
                visit::visit_pat_ident(self, p);
            }
            fn visit_expr(&mut self, _: &'p Expr) {}
        }
        Names(self).visit_pat(pattern);
    }

    /// Declares what a pattern binds to parts of `value`, which may be borrowed mutably: `for x in v.iter_mut()`,
    /// `if let Some(x) = &mut o`.
    pub fn declare_from(&mut self, pattern: &Pat, value: &Expr) {
        self.declare(pattern);
        if !stores_mut(value) {
            return;
        }
        struct Idents(Vec<String>);
        impl<'p> Visit<'p> for Idents {
            fn visit_pat_ident(&mut self, p: &'p PatIdent) {
                self.0.push(p.ident.to_string());
                visit::visit_pat_ident(self, p);
            }
            fn visit_expr(&mut self, _: &'p Expr) {}
        }
        let mut names = Idents(vec![]);
        names.visit_pat(pattern);
        let kind = if matches!(pattern, Pat::Tuple(_)) { Kind::MaybeRefMut } else { Kind::RefMut };
        for n in names.0 {
            self.insert(n, kind);
        }
    }

    /// Declares what a `let` binds.
    pub fn declare_local(&mut self, local: &Local) {
        self.declare_typed(&local.pat)
    }

    fn declare_typed(&mut self, pattern: &Pat) {
        self.declare(pattern);
        if let Pat::Type(t) = pattern {
            self.declare_reference(&t.pat, &t.ty);
        }
    }

    fn declare_reference(&mut self, pattern: &Pat, ty: &Type) {
        if let (Pat::Ident(p), Type::Reference(r)) = (pattern, ty)
            && r.mutability.is_some()
        {
            self.insert(p.ident.to_string(), Kind::RefMut);
        }
    }

    /// Declares a parameter.
    pub fn declare_param(&mut self, arg: &FnArg) {
        match arg {
            FnArg::Typed(t) => {
                self.declare(&t.pat);
                self.declare_reference(&t.pat, &t.ty);
            }
            FnArg::Receiver(r) => {
                let kind = match (&r.reference, &r.mutability) {
                    (Some(_), Some(_)) => Kind::RefMut,
                    (None, Some(_)) => Kind::Mut,
                    _ => Kind::Plain,
                };
                self.insert("self".into(), kind);
            }
        }
    }
}

/// A place that can be assigned: a variable and a path of fields into it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The variable, then the fields.
    pub path: Vec<String>,
    /// The expression. An index ends the path: `v[i].f` is all of `v`.
    pub expr: Expr,
    exact: bool,
}

impl Place {
    /// The place that `e` names, if it is one.
    pub fn of(e: &Expr) -> Option<Place> {
        match e {
            Expr::Path(p) => Some(Place { path: vec![p.path.get_ident()?.to_string()], expr: e.clone(), exact: true }),
            Expr::Field(f) => {
                let mut base = Place::of(&f.base)?;
                if base.exact {
                    base.path.push(match &f.member {
                        Member::Named(i) => i.to_string(),
                        Member::Unnamed(i) => i.index.to_string(),
                    });
                    base.expr = e.clone();
                }
                Some(base)
            }
            Expr::Index(i) => Place::of(&i.expr).map(|p| Place { exact: false, ..p }),
            Expr::Paren(p) => Place::of(&p.expr),
            Expr::Group(g) => Place::of(&g.expr),
            Expr::Unary(ExprUnary { op: UnOp::Deref(_), expr, .. }) => {
                let base = Place::of(expr)?;
                if base.exact { Some(Place { expr: e.clone(), ..base }) } else { Some(base) }
            }
            _ => None,
        }
    }

    /// The variable.
    pub fn base(&self) -> &str {
        self.path.first().map_or("", |s| s)
    }

    /// Whether this holds all of `other`.
    pub fn covers(&self, other: &Place) -> bool {
        other.path.starts_with(&self.path)
    }

    /// Whether it is a variable alone.
    pub fn is_variable(&self) -> bool {
        matches!(self.expr, Expr::Path(_))
    }
}

/// Whether a `let` of this value stores a `&mut` to something that exists: `&mut x`, `v.iter_mut()`, `v.last_mut().unwrap()`.
pub fn stores_mut(e: &Expr) -> bool {
    match e {
        Expr::Reference(r) => r.mutability.is_some() && Place::of(&r.expr).is_some(),
        Expr::MethodCall(m) => {
            (m.method.to_string().ends_with("_mut") && Place::of(&m.receiver).is_some()) || stores_mut(&m.receiver)
        }
        Expr::Paren(p) => stores_mut(&p.expr),
        Expr::Tuple(t) => t.elems.iter().any(stores_mut),
        _ => false,
    }
}

/// All identifiers in opaque tokens.
pub fn idents(tokens: proc_macro2::TokenStream) -> Vec<Ident> {
    tokens
        .into_iter()
        .flat_map(|t| match t {
            proc_macro2::TokenTree::Ident(i) => vec![i],
            proc_macro2::TokenTree::Group(g) => idents(g.stream()),
            _ => vec![],
        })
        .collect()
}
