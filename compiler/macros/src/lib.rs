//! `#[kernel]`, `#[func]` and `#[derive(Carry)]`: see the language's documentation. What they make names only items
//! under `::tegula::rt`.

mod carry;
mod changed;
mod configs;
mod kernel;
mod rewrite;
mod scopes;

#[cfg(test)]
mod fuzz;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, DeriveInput, ItemFn, parse_quote, parse2};

/// A kernel: a function over tiles that devices run. It becomes a type of the same name with `launch(..)`, which starts
/// a launch, `ir()`, which gives its tile IR, and `inline(..)`, its body for other kernels to call.
///
/// `#[kernel(configs = [{ T: f32, BM: 64, BN: 64 }, ..])]` also makes one test per configuration that builds it.
#[proc_macro_attribute]
pub fn kernel(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand_kernel(attribute.into(), item.into()).into()
}

/// A helper function with control flow, compares, `&&`, `||` or float literals on the left of tiles.
#[proc_macro_attribute]
pub fn func(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand_func(attribute.into(), item.into()).into()
}

/// A struct of tiles that run-time loops and branches may change.
#[proc_macro_derive(Carry, attributes(carry))]
pub fn carry(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    match parse2::<DeriveInput>(item.into()) {
        Ok(i) => carry::expand(i).into(),
        Err(e) => e.to_compile_error().into(),
    }
}

fn expand_kernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let f: ItemFn = match parse2(item) {
        Ok(f) => f,
        Err(e) => return e.to_compile_error(),
    };
    match parse2::<configs::Attribute>(attribute) {
        Ok(a) => kernel::expand(a.configs, f),
        Err(e) => {
            let (error, rest) = (e.to_compile_error(), kernel::expand(vec![], f));
            quote!(#error #rest)
        }
    }
}

fn expand_func(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut f: ItemFn = match parse2(item) {
        Ok(f) => f,
        Err(e) => return e.to_compile_error(),
    };
    let mut rewrite = rewrite::Rewrite::new(&f.sig);
    if !attribute.is_empty() {
        rewrite.error(attribute, "`#[func]` takes no arguments");
    }
    if let Some(a) = &f.sig.asyncness {
        rewrite.error(a, "a helper of a kernel cannot be async");
    }
    let sig = f.sig.clone();
    rewrite.function(&sig, &mut f.block);
    f.attrs.push(allow());
    let errors: TokenStream = rewrite.errors.iter().map(|e| e.to_compile_error()).collect();
    quote!(#errors #f)
}

/// Lints that the rewritten body would trip over, with proposals that are wrong for what the user wrote.
fn allow() -> Attribute {
    parse_quote!(#[allow(
        unused_assignments,
        unused_mut,
        unreachable_code,
        unused_parens,
        unused_braces,
        clippy::blocks_in_conditions,
        clippy::let_unit_value,
        clippy::unit_arg,
        clippy::unused_unit,
        clippy::needless_return,
        clippy::redundant_pattern_matching,
        clippy::redundant_closure_call,
    )])
}
