//! `#[derive(Carry)]`: a struct of tiles that run-time control flow may change. Fields marked `#[carry(skip)]` are
//! build-time values that stay as they are.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::*;

pub fn expand(input: DeriveInput) -> TokenStream {
    let Data::Struct(data) = &input.data else {
        return Error::new_spanned(
            &input.ident,
            "`Carry` is for structs: which variant an enum has is a build-time fact",
        )
        .to_compile_error();
    };
    let mut errors = TokenStream::new();
    let mut places = vec![];
    let mut generics = input.generics.clone();
    for (i, f) in data.fields.iter().enumerate() {
        let mut skip = false;
        for a in f.attrs.iter().filter(|a| a.path().is_ident("carry")) {
            let parsed = a.parse_nested_meta(|m| {
                skip |= m.path.is_ident("skip");
                if m.path.is_ident("skip") { Ok(()) } else { Err(m.error("expected `skip`")) }
            });
            if let Err(e) = parsed {
                errors.extend(e.to_compile_error());
            }
        }
        if skip {
            continue;
        }
        let ty = &f.ty;
        generics.make_where_clause().predicates.push(parse_quote!(#ty: ::tegula::rt::Carry));
        places.push(match &f.ident {
            Some(n) => quote!(#n),
            None => {
                let i = Index::from(i);
                quote!(#i)
            }
        });
    }
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let (out, values) = (format_ident!("__out"), format_ident!("__values"));
    quote! {
        #errors
        impl #impl_generics ::tegula::rt::Carry for #name #type_generics #where_clause {
            fn collect(&self, #out: &mut ::std::vec::Vec<::tegula::rt::Handle>) {
                #(::tegula::rt::Carry::collect(&self.#places, #out);)*
            }
            fn replace(&mut self, #values: &mut dyn ::core::iter::Iterator<Item = ::tegula::rt::Handle>) {
                #(::tegula::rt::Carry::replace(&mut self.#places, #values);)*
            }
        }
    }
}
