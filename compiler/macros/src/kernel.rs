//! `#[kernel]`: a function over tiles becomes a type of the same name with `launch`, `ir` and `inline`.

use crate::configs::Config;
use crate::rewrite::Rewrite;
use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use std::collections::HashMap;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::*;

/// A parameter that the host passes.
struct Parameter {
    name: Ident,
    ty: Type,
}

/// What a kernel's signature says.
struct Shape {
    params: Vec<Parameter>,
    /// The `#[build]` parameter: its place among all, name and type.
    build: Option<(usize, Ident, Type)>,
    /// Names of the dim parameters.
    dims: Vec<Ident>,
    /// The other generic parameters.
    generics: Vec<GenericParam>,
}

/// Names that a kernel would take away from the whole module.
const PRIMITIVES: &[&str] = &[
    "bool", "char", "f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "i128", "isize", "str", "u8", "u16", "u32",
    "u64", "u128", "usize",
];

pub fn expand(configs: Vec<Config>, mut f: ItemFn) -> TokenStream {
    let mut rewrite = Rewrite::new(&f.sig);
    check(&f.sig, &mut rewrite);
    let signature = read(&mut f.sig, &mut rewrite);
    let sig = f.sig.clone();
    rewrite.function(&sig, &mut f.block);
    let errors: TokenStream = rewrite.errors.iter().map(|e| e.to_compile_error()).collect();
    let (name, vis) = (&f.sig.ident, &f.vis);
    let (docs, others): (Vec<_>, Vec<_>) = f.attrs.iter().partition(|a| a.path().is_ident("doc"));
    let gates: Vec<_> = others
        .iter()
        .filter(|a| ["cfg", "allow", "expect", "warn", "deny"].iter().any(|n| a.path().is_ident(n)))
        .collect();
    let allow = super::allow();
    let mut body = f.clone();
    body.attrs = others.iter().map(|a| (*a).clone()).collect();
    body.sig.ident = Ident::new("inline", name.span());
    body.attrs.push(parse_quote!(#[doc = "The kernel's body, for other kernels to call."]));
    body.attrs.push(allow);
    if f.sig.receiver().is_some() {
        // Inside an `impl` no type can be made.
        return errors;
    }
    if !errors.is_empty() {
        // The body alone, so that rustc's own errors in it show too.
        return quote! {
            #errors
            #(#docs)* #(#gates)* #[allow(non_camel_case_types, dead_code)] #vis enum #name {}
            #[allow(dead_code)] impl #name { #body }
        };
    }

    let named: HashMap<String, TokenStream> = signature
        .dims
        .iter()
        .enumerate()
        .map(|(i, d)| (d.to_string(), quote!(::tegula::rt::Named<#name, #i>)))
        .collect();
    let with_named = |t: &dyn ToTokens| substitute(t.to_token_stream(), &named);
    let (params, generics) = (&signature.params, &signature.generics);
    let names: Vec<&Ident> = params.iter().map(|p| &p.name).collect();
    let types: Vec<TokenStream> = params.iter().map(|p| with_named(&p.ty)).collect();
    let labels: Vec<String> = names.iter().map(|n| n.unraw().to_string()).collect();
    let (count, dim_count) = (params.len(), signature.dims.len());
    let dim_names: Vec<String> = signature.dims.iter().map(|d| d.to_string()).collect();
    let tags = (0..dim_count).map(|i| quote!(::tegula::rt::TypeId::of::<::tegula::rt::Named<#name, #i>>()));
    let path = name.unraw().to_string();
    let where_clause = f.sig.generics.where_clause.as_ref().map(|w| with_named(w));
    let generics: Vec<TokenStream> = generics.iter().map(|g| with_named(g)).collect();
    // How the body is called: every generic argument in the declared order.
    let all_args = f.sig.generics.params.iter().filter_map(|g| match g {
        GenericParam::Type(t) => {
            Some(named.get(&t.ident.to_string()).cloned().unwrap_or_else(|| t.ident.to_token_stream()))
        }
        GenericParam::Const(c) => Some(c.ident.to_token_stream()),
        GenericParam::Lifetime(_) => None,
    });
    let own_args: Vec<TokenStream> = signature
        .generics
        .iter()
        .filter_map(|g| match g {
            GenericParam::Type(t) => Some(t.ident.to_token_stream()),
            GenericParam::Const(c) => Some(c.ident.to_token_stream()),
            GenericParam::Lifetime(_) => None,
        })
        .collect();
    let (options, options_name, take_options) = match &signature.build {
        Some((_, n, t)) => {
            let (t, by_ref) = match t {
                Type::Reference(r) => (with_named(&r.elem), true),
                t => (with_named(t), false),
            };
            let label = n.unraw().to_string();
            let take = if by_ref { quote!(__options) } else { quote!(::core::clone::Clone::clone(__options)) };
            (t, quote!(::core::option::Option::Some(#label)), take)
        }
        None => (quote!(()), quote!(::core::option::Option::None), quote!()),
    };
    let mut call: Vec<TokenStream> = (0..count).map(|i| format_ident!("__p{i}").to_token_stream()).collect();
    let unwrap = signature.build.as_ref().map(|(at, _, _)| {
        call.insert((*at).min(call.len()), take_options);
        quote!(let ::core::option::Option::Some(__options) = __options else { return };)
    });
    let locals: Vec<Ident> = (0..count).map(|i| format_ident!("__p{i}")).collect();
    let launch_doc = format!("Starts a launch of [`{path}`]: then its dims, options and grid, then `.run(..)`.");
    let ir_doc = format!("The tile IR of [`{path}`] without a launch.");
    let tests = configs
        .iter()
        .enumerate()
        .map(|(i, c)| c.test(i, name, &signature.dims, &signature.generics, signature.build.as_ref().map(|b| &b.1)));

    // Notes about a wrong argument point at the kernel's name.
    let launch = Ident::new("launch", name.span());
    let launch_params = quote_spanned!(name.span()=> #(#names: impl ::tegula::rt::Arg<'__a, #types>),*);
    quote! {
        #(#docs)* #(#gates)*
        #[allow(non_camel_case_types, dead_code)]
        #vis enum #name {}
        #(#gates)*
        #[allow(dead_code, non_camel_case_types, clippy::too_many_arguments, clippy::multiple_bound_locations)]
        impl #name {
            #[doc = #launch_doc]
            #vis fn #launch<'__a, #(#generics),*>(#launch_params)
                -> ::tegula::rt::Launch<'__a, #options, #dim_count, #count> #where_clause
            {
                let __body = Self::__instance::<#(#own_args),*>;
                ::tegula::rt::Launch::new(Self::__info::<#(#own_args),*>(), ::tegula::rt::type_of(&__body), __body, [#(::tegula::rt::Arg::<'__a, #types>::arg(#names)),*])
            }
            #[doc = #ir_doc]
            #vis fn ir<#(#generics),*>() -> ::tegula::rt::Ir<#options, #dim_count> #where_clause {
                ::tegula::rt::Ir::new(Self::__info::<#(#own_args),*>(), Self::__instance::<#(#own_args),*>)
            }
            #[doc(hidden)]
            fn __info<#(#generics),*>() -> &'static ::tegula::rt::KernelInfo #where_clause {
                const {
                    &::tegula::rt::KernelInfo {
                        name: ::core::concat!(::core::module_path!(), "::", #path),
                        params: &[#(::tegula::rt::ParamInfo { name: #labels, kind: <#types as ::tegula::rt::Param>::KIND }),*],
                        dims: &[#(#dim_names),*],
                        tags: &[#(#tags),*],
                        options: #options_name,
                    }
                }
            }
            #[doc(hidden)]
            fn __instance<#(#generics),*>(__params: &mut ::tegula::rt::Params, __options: ::core::option::Option<&#options>) #where_clause {
                #unwrap
                #(let #locals = __params.take::<#types>();)*
                Self::inline::<#(#all_args),*>(#(#call),*)
            }
            #body
        }
        #(#tests)*
    }
}

/// Refuses what a kernel cannot be.
fn check(sig: &Signature, r: &mut Rewrite) {
    if let Some(a) = &sig.asyncness {
        r.error(a, "a kernel cannot be async");
    }
    if let Some(a) = &sig.constness {
        r.error(a, "a kernel cannot be const: it is built when it is first launched");
    }
    if let Some(a) = &sig.unsafety {
        r.error(a, "a kernel cannot be unsafe");
    }
    if let Some(a) = &sig.abi {
        r.error(a, "a kernel has no ABI of its own: it is a plain `fn`");
    }
    if let Some(a) = &sig.variadic {
        r.error(a, "a kernel takes a fixed number of parameters");
    }
    if let ReturnType::Type(..) = &sig.output {
        r.error(&sig.output, "a kernel returns nothing: write its results through a `ViewMut`; a helper that returns a value takes `#[func]`");
    }
    for t in sig.generics.type_params().filter(|t| t.bounds.is_empty()) {
        let bound_below = sig.generics.where_clause.iter().flat_map(|w| &w.predicates).any(
            |p| matches!(p, WherePredicate::Type(p) if matches!(&p.bounded_ty, Type::Path(q) if q.path.is_ident(&t.ident))),
        );
        if !bound_below {
            r.error(
                t,
                "a kernel's type parameter says what it stands for: an element type (`: Elem`, `: Num`, `: Float`, `: Int`), \
                 an extent (`: Dim`) or a packed format (`: Format`)",
            );
        }
    }
    for l in sig.generics.lifetimes() {
        r.error(l, "a kernel has no lifetimes: views are handles, pass them by value");
    }
    if PRIMITIVES.iter().any(|p| sig.ident == p) {
        r.error(
            &sig.ident,
            "a kernel makes a type of its name, and this one would hide a built-in type: choose another name",
        );
    }
}

/// Reads the signature, and takes `#[build]` out of it.
fn read(sig: &mut Signature, r: &mut Rewrite) -> Shape {
    let mut out = Shape { params: vec![], build: None, dims: vec![], generics: vec![] };
    for g in &sig.generics.params {
        match g {
            GenericParam::Type(t) if is_dim(t) => out.dims.push(t.ident.clone()),
            GenericParam::Lifetime(_) => {}
            g => out.generics.push(g.clone()),
        }
    }
    if let Some(w) = &sig.generics.where_clause {
        for p in &w.predicates {
            if let WherePredicate::Type(t) = p
                && t.bounds.iter().any(bound_is_dim)
            {
                r.error(t, "write `Dim` where the parameter is declared: `BM: Dim`");
            }
        }
    }
    for (i, a) in sig.inputs.iter_mut().enumerate() {
        let t = match a {
            FnArg::Receiver(s) => {
                r.error(&*s, "a kernel has no `self`");
                continue;
            }
            FnArg::Typed(t) => t,
        };
        let name = match &*t.pat {
            Pat::Ident(p) => p.ident.clone(),
            _ => Ident::new(&format!("arg{i}"), t.pat.span()),
        };
        let before = t.attrs.len();
        t.attrs.retain(|a| !a.path().is_ident("build"));
        if t.attrs.len() != before {
            if out.build.is_some() {
                r.error(&*t, "a kernel has one `#[build]` parameter: put the options into one struct");
            }
            out.build = Some((i, name, (*t.ty).clone()));
            continue;
        }
        match &*t.ty {
            Type::ImplTrait(_) => r.error(&t.ty, "a kernel's parameters have named types: make it a generic parameter"),
            Type::Reference(_) => r.error(
                &t.ty,
                "a kernel's parameters are passed by value: `View<T, R>`, `ViewMut<T, R>`, `Packed<Q>`, `Scalar<T>`",
            ),
            _ => {}
        }
        out.params.push(Parameter { name, ty: (*t.ty).clone() });
    }
    out
}

fn is_dim(t: &TypeParam) -> bool {
    t.bounds.iter().any(bound_is_dim)
}
fn bound_is_dim(b: &TypeParamBound) -> bool {
    matches!(b, TypeParamBound::Trait(t) if t.path.segments.last().is_some_and(|s| s.ident == "Dim"))
}

/// Replaces identifiers, keeping the spans of what stays. A name after `::` or `.` is another's.
pub fn substitute(tokens: TokenStream, names: &HashMap<String, TokenStream>) -> TokenStream {
    let mut out = TokenStream::new();
    let mut after_path = 0;
    for t in tokens {
        let replaced = match &t {
            TokenTree::Ident(i) if after_path < 2 => names.get(&i.to_string()).cloned(),
            TokenTree::Group(g) => {
                let mut inner = proc_macro2::Group::new(g.delimiter(), substitute(g.stream(), names));
                inner.set_span(g.span());
                Some(TokenTree::Group(inner).into())
            }
            _ => None,
        };
        after_path = match &t {
            TokenTree::Punct(p) if p.as_char() == ':' => after_path + 1,
            _ => 0,
        };
        out.extend(replaced.unwrap_or_else(|| t.into()));
    }
    out
}
