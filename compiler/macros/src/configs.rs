//! `#[kernel(configs = [{ T: f32, BM: 128, BN: 64, cfg: Cfg { .. } }, ..])]`: declared configurations, one test each.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, GenericParam, Ident, Result, Token, braced, bracketed};

/// One configuration: a value for every generic parameter, dim and the `#[build]` parameter.
pub struct Config {
    open: proc_macro2::Span,
    values: Vec<(Ident, TokenStream)>,
}

/// What stands in the attribute's parentheses.
pub struct Attribute {
    pub configs: Vec<Config>,
}

impl Parse for Attribute {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut configs = vec![];
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            if key != "configs" {
                return Err(Error::new(key.span(), "expected `configs = [..]`"));
            }
            input.parse::<Token![=]>()?;
            let list;
            bracketed!(list in input);
            configs.extend(Punctuated::<Config, Token![,]>::parse_terminated(&list)?);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(Attribute { configs })
    }
}

impl Parse for Config {
    fn parse(input: ParseStream) -> Result<Self> {
        let body;
        let open = braced!(body in input).span.join();
        let mut values = vec![];
        while !body.is_empty() {
            let name: Ident = body.parse()?;
            body.parse::<Token![:]>()?;
            // Up to the next comma outside brackets of any kind: a type, a number or an expression.
            let mut value = TokenStream::new();
            let mut angles = 0usize;
            while !body.is_empty() && (angles > 0 || !body.peek(Token![,])) {
                let t: proc_macro2::TokenTree = body.parse()?;
                match &t {
                    proc_macro2::TokenTree::Punct(p) if p.as_char() == '<' => angles += 1,
                    proc_macro2::TokenTree::Punct(p) if p.as_char() == '>' => angles = angles.saturating_sub(1),
                    _ => {}
                }
                value.extend([t]);
            }
            if value.is_empty() {
                return Err(Error::new(name.span(), format!("`{name}` has no value")));
            }
            values.push((name, value));
            if !body.is_empty() {
                body.parse::<Token![,]>()?;
            }
        }
        Ok(Config { open, values })
    }
}

impl Config {
    /// A test that builds and verifies the kernel in this configuration.
    pub fn test(
        &self,
        index: usize,
        kernel: &Ident,
        dims: &[Ident],
        generics: &[GenericParam],
        build: Option<&Ident>,
    ) -> TokenStream {
        match self.test_or_error(index, kernel, dims, generics, build) {
            Ok(t) => t,
            Err(e) => e.to_compile_error(),
        }
    }

    fn test_or_error(
        &self,
        index: usize,
        kernel: &Ident,
        dims: &[Ident],
        generics: &[GenericParam],
        build: Option<&Ident>,
    ) -> Result<TokenStream> {
        let own: Vec<&Ident> = generics
            .iter()
            .filter_map(|g| match g {
                GenericParam::Type(t) => Some(&t.ident),
                GenericParam::Const(c) => Some(&c.ident),
                GenericParam::Lifetime(_) => None,
            })
            .collect();
        for (name, _) in &self.values {
            if !dims.contains(name) && !own.contains(&name) && build != Some(name) {
                return Err(Error::new(
                    name.span(),
                    format!("kernel `{kernel}` has no parameter `{name}` to configure"),
                ));
            }
        }
        let value = |name: &Ident| {
            let found = self.values.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
            found.ok_or_else(|| Error::new(self.open, format!("this configuration gives no `{name}`")))
        };
        let dim_values = dims.iter().map(value).collect::<Result<Vec<_>>>()?;
        let own_values = own.iter().map(|n| value(n).map(|v| quote!({ #v }))).zip(generics).map(|(v, g)| match g {
            GenericParam::Type(t) => value(&t.ident),
            _ => v,
        });
        let own_values = own_values.collect::<Result<Vec<_>>>()?;
        let dims_call = (!dims.is_empty()).then(|| quote!(.dims(#(#dim_values),*)));
        let cfg_call = build.map(value).transpose()?.map(|v| quote!(.cfg(#v)));
        let test = format_ident!("{kernel}_config_{index}");
        Ok(quote! {
            #[cfg(test)]
            #[test]
            #[allow(non_snake_case)]
            fn #test() {
                if let ::core::result::Result::Err(e) = #kernel::ir::<#(#own_values),*>()#dims_call #cfg_call.build() {
                    ::core::panic!("{e}");
                }
            }
        })
    }
}
