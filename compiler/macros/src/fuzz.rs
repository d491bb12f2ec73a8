//! The macros never panic: whatever a function's tokens are, they give code or errors with spans.

use crate::{expand_func, expand_kernel};
use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use proptest::prelude::*;

/// Functions that use everything that the rewrite knows.
const SEEDS: &[&str] = &[
    "pub fn k<T: Float, BM: Dim, const C: bool>(a: View<T, 2>, mut n: Scalar<i32>, #[build] cfg: &Cfg) where T: Num {
        let mut acc = zeros::<f32, (BM, One)>();
        'o: for k in a.tiles_along::<1, BM>() { if C && k > 3 { continue 'o; } acc += 2.0 * a.load((0, k)); }
        let x = if n < 3 { 1 } else if n == 4 || !C { 2 } else { return };
        while n != 0 { n = n / 2; let (p, q) = (n, x); (n, acc) = (p, acc); }
        if let Some(z) = cfg.opt && z > 2 { v[z].f.g = z; } else { vec![1, n]; }
    }",
    "fn helper(&mut self, r: &mut Scalar<i32>, (a, b): (T, U)) -> i32 {
        let mut s = self.s; for x in self.v.iter_mut().enumerate() { *r += x; s.m.l = s.m.k; bump(&mut s.m, r); }
        match r { 0 if a < b => { loop { break 'a 3; } } ref y => *y, _ => unsafe { return a.b()? } }
        let f = |q| { s = q; q + 1.0 }; let g = move |z: i32| -> i32 { z }; let Some(t) = o else { panic!(\"{}\", s) };
        assert!(s < 3 && x.next() == 2, \"{s}\"); macro_rules! m { () => {} } m! { a => b }
        for i in 0..=n { for j in (a..b).rev() { async { x.await; } } } const { 1 < 2 }; [0; 3 < 4]; s as u8
    }",
];

fn tokens(depth: u32) -> BoxedStrategy<TokenTree> {
    let words = prop::sample::select(vec![
        "a",
        "n",
        "self",
        "mut",
        "let",
        "if",
        "else",
        "for",
        "in",
        "while",
        "loop",
        "match",
        "return",
        "break",
        "continue",
        "fn",
        "move",
        "async",
        "await",
        "unsafe",
        "const",
        "ref",
        "as",
        "impl",
        "dyn",
        "where",
        "Dim",
        "BM",
        "true",
        "static",
        "yield",
        "try",
        "Self",
        "crate",
        "_",
        "struct",
        "macro_rules",
    ]);
    let word = words.prop_map(|w| TokenTree::Ident(Ident::new(w, Span::call_site())));
    let punct = (prop::sample::select("=<>+-*/%&|!.,;:#'?@^$~".chars().collect::<Vec<_>>()), any::<bool>()).prop_map(
        |(c, joint)| {
            // A `'` is a token only before an identifier.
            let c = if c == '\'' { '&' } else { c };
            TokenTree::Punct(Punct::new(c, if joint { Spacing::Joint } else { Spacing::Alone }))
        },
    );
    let literal = prop_oneof![
        any::<u8>().prop_map(|n| TokenTree::Literal(Literal::u8_unsuffixed(n))),
        Just(TokenTree::Literal(Literal::f64_unsuffixed(2.5))),
        Just(TokenTree::Literal(Literal::string("text"))),
    ];
    let leaf = prop_oneof![4 => word, 4 => punct, 1 => literal].boxed();
    if depth == 0 {
        return leaf;
    }
    let delimiter =
        prop::sample::select(vec![Delimiter::Brace, Delimiter::Parenthesis, Delimiter::Bracket, Delimiter::None]);
    let group = (delimiter, prop::collection::vec(tokens(depth - 1), 0..8))
        .prop_map(|(d, t)| TokenTree::Group(Group::new(d, t.into_iter().collect())));
    prop_oneof![5 => leaf, 2 => group].boxed()
}

/// What to do with the token at some place.
#[derive(Clone, Debug)]
enum Edit {
    Delete,
    Twice,
    Put(TokenTree),
}

fn edit(stream: TokenStream, edits: &mut Vec<(usize, Edit)>, at: &mut usize) -> TokenStream {
    let mut out = vec![];
    for t in stream {
        *at += 1;
        let here = edits.iter().position(|(i, _)| i == at).map(|i| edits.swap_remove(i).1);
        let t = match t {
            TokenTree::Group(g) => TokenTree::Group(Group::new(g.delimiter(), edit(g.stream(), edits, at))),
            t => t,
        };
        match here {
            None => out.push(t),
            Some(Edit::Delete) => {}
            Some(Edit::Twice) => out.extend([t.clone(), t]),
            Some(Edit::Put(new)) => out.extend([new, t]),
        }
    }
    out.into_iter().collect()
}

/// Runs both macros. What they give without an error is a file of Rust.
fn check(item: TokenStream, attribute: TokenStream) {
    for out in [expand_kernel(attribute, item.clone()), expand_func(TokenStream::new(), item.clone())] {
        if !out.to_string().contains("compile_error") {
            syn::parse2::<syn::File>(out.clone()).unwrap_or_else(|e| panic!("{e}: {out}\nof {item}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edited_functions(seed in 0..SEEDS.len(), edits in prop::collection::vec((1usize..260, prop_oneof![
        Just(Edit::Delete), Just(Edit::Twice), tokens(1).prop_map(Edit::Put)]), 0..4)) {
        let stream: TokenStream = SEEDS[seed].parse().unwrap();
        check(edit(stream, &mut edits.clone(), &mut 0), TokenStream::new());
    }

    #[test]
    fn arbitrary_bodies(body in prop::collection::vec(tokens(3), 0..24), params in prop::collection::vec(tokens(1), 0..6)) {
        let body = Group::new(Delimiter::Brace, body.into_iter().collect());
        let params = Group::new(Delimiter::Parenthesis, params.into_iter().collect());
        let name: TokenStream = "fn k<T: Float, BM: Dim>".parse().unwrap();
        check(name.into_iter().chain([TokenTree::Group(params), TokenTree::Group(body)]).collect(), TokenStream::new());
    }

    #[test]
    fn arbitrary_attributes(attribute in prop::collection::vec(tokens(3), 0..16)) {
        let f: TokenStream = SEEDS[0].parse().unwrap();
        check(f.clone(), attribute.iter().cloned().collect());
        let list = Group::new(Delimiter::Bracket, attribute.into_iter().collect());
        let configs: TokenStream = "configs =".parse().unwrap();
        check(f, configs.into_iter().chain([TokenTree::Group(list)]).collect());
    }

    #[test]
    fn arbitrary_structs(fields in prop::collection::vec(tokens(2), 0..16)) {
        let head: TokenStream = "struct S<T>".parse().unwrap();
        let body = TokenTree::Group(Group::new(Delimiter::Brace, fields.into_iter().collect()));
        if let Ok(input) = syn::parse2(head.into_iter().chain([body]).collect()) {
            crate::carry::expand(input);
        }
    }
}

#[test]
fn the_seeds_themselves_are_rewritten() {
    for s in SEEDS {
        let out = expand_func(TokenStream::new(), s.parse().unwrap()).to_string();
        assert!(out.contains("rt :: IntoLoop :: into_loop") && out.contains("rt :: Less :: compare"), "{out}");
    }
}
