//! A request's JSON body, parameter by parameter.
//!
//! An endpoint takes the parameters that it knows by name and type; `null` means unset. What is left in the end was asked
//! for and will not happen: it is named in the header `x-ignored-parameters` of the answer, or refused if the server is
//! strict. Parameters that are known, not supported, and would change the answer are refused by name.
//!
//! ```
//! # use tegula_server::fields::Fields;
//! let mut fields = Fields::parse(br#"{"temperature": 0.5, "n": null, "colour": "red"}"#)?;
//! assert_eq!(fields.take::<f32>("temperature")?, Some(0.5));
//! assert_eq!(fields.take::<u32>("n")?, None);
//! assert_eq!(fields.finish(false)?.names(), ["colour"]);
//! # Ok::<(), tegula_server::ApiError>(())
//! ```

mod body;
mod json;
mod types;

use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponseParts, ResponseParts};
use serde_json::{Map, Value};

pub use body::Raw;
pub use types::{Field, OneOrMany, short};

use crate::error::ApiError;

/// Names the parameters of a request that had no effect.
pub const IGNORED: HeaderName = HeaderName::from_static("x-ignored-parameters");

/// Most bytes of that header.
const MOST_HEADER: usize = 1024;

/// The parameters that nobody has taken yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Fields {
    /// Of the object that this is, with a point at the end: `stream_options.`; nothing for the body itself.
    path: String,
    map: Map<String, Value>,
    /// Names, with their paths, of what is left of objects that have been finished.
    left: Vec<String>,
}

impl Fields {
    /// Of a body.
    ///
    /// # Errors
    /// 400 if it is no JSON, no object, or has a key twice at any depth.
    pub fn parse(body: &[u8]) -> Result<Fields, ApiError> {
        match json::parse(body) {
            Ok(Value::Object(map)) => Ok(Fields { path: String::new(), map, left: vec![] }),
            Ok(other) => Err(ApiError::bad_request(format!("the body must be a JSON object, found {}", short(&other)))),
            Err(error) => Err(ApiError::bad_request(format!("the body is not valid JSON: {error}"))),
        }
    }

    /// The value of a parameter, if it is set.
    ///
    /// # Errors
    /// 400 if it has another type.
    pub fn take<T: Field>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        match self.map.shift_remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::of(value).map(Some).map_err(|found| {
                let param = format!("{}{name}", self.path);
                let message = format!("{param}: expected {}, found {}", T::expected(), short(&found));
                ApiError::param(param, message)
            }),
        }
    }

    /// The value of a parameter that must be set.
    ///
    /// # Errors
    /// 400 if it is not, or has another type.
    pub fn require<T: Field>(&mut self, name: &str) -> Result<T, ApiError> {
        self.take(name)?.ok_or_else(|| {
            let param = format!("{}{name}", self.path);
            let message = format!("{param}: missing; it must be {}", T::expected());
            ApiError::param(param, message)
        })
    }

    /// The parameters of an object within. To be given back with [`Fields::finished`], lest what is left of it be lost.
    ///
    /// # Errors
    /// 400 if it is no object.
    pub fn take_object(&mut self, name: &str) -> Result<Option<Fields>, ApiError> {
        let map = self.take::<Map<String, Value>>(name)?;
        Ok(map.map(|map| Fields { path: format!("{}{name}.", self.path), map, left: vec![] }))
    }

    /// Takes note of what nobody took of an object within.
    pub fn finished(&mut self, object: Fields) {
        self.left.extend(object.into_names());
    }

    /// Whether a parameter is there, and not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// Refuses a parameter that would change the answer and is not supported. `why` goes on after its name: `suffix:
    /// {why}`.
    ///
    /// # Errors
    /// 400 if it is set.
    pub fn reject(&mut self, name: &str, why: &str) -> Result<(), ApiError> {
        self.reject_unless(name, why, |_| false)
    }

    /// Refuses a parameter but for values that change nothing.
    ///
    /// # Errors
    /// 400 if it is set to another one.
    pub fn reject_unless(
        &mut self,
        name: &str,
        why: &str,
        neutral: impl FnOnce(&Value) -> bool,
    ) -> Result<(), ApiError> {
        match self.map.shift_remove(name) {
            None | Some(Value::Null) => Ok(()),
            Some(value) if neutral(&value) => Ok(()),
            Some(value) => {
                let param = format!("{}{name}", self.path);
                let message = format!("{param}: {why} (found {})", short(&value));
                Err(ApiError::param(param, message))
            }
        }
    }

    /// Takes a parameter that is known and has no effect here, so that it is not reported.
    pub fn accept(&mut self, name: &str) {
        self.map.shift_remove(name);
    }

    /// All parameters have been taken that this endpoint knows: what is left is ignored.
    ///
    /// # Errors
    /// 400 for the first that is left if `strict`.
    pub fn finish(self, strict: bool) -> Result<Ignored, ApiError> {
        let names = self.into_names();
        match names.first() {
            Some(name) if strict => {
                Err(ApiError::param(name, format!("{name}: this parameter is unknown here; leave it out")))
            }
            _ => Ok(Ignored(names)),
        }
    }

    fn into_names(self) -> Vec<String> {
        let Fields { path, map, mut left } = self;
        left.extend(map.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| format!("{path}{name}")));
        left
    }
}

/// Parameters that had no effect: a part of the answer, as its header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(Vec<String>);

impl Ignored {
    /// Their names, with paths.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Separated by commas. Clients choose names: what could mean something else in a header is written as `%XX`, and a
    /// long list is cut.
    fn header(&self) -> String {
        let mut text = String::new();
        for (index, name) in self.0.iter().enumerate() {
            let mut word = String::new();
            for byte in name.bytes() {
                match byte {
                    b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'$' => word.push(byte as char),
                    _ => word += &format!("%{byte:02X}"),
                }
            }
            if text.len() + word.len() > MOST_HEADER {
                text += &format!("{}...{} more", if index > 0 { "," } else { "" }, self.0.len() - index);
                break;
            }
            if index > 0 {
                text.push(',');
            }
            text += &word;
        }
        text
    }
}

impl IntoResponseParts for Ignored {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Self::Error> {
        if !self.0.is_empty()
            && let Ok(value) = HeaderValue::try_from(self.header())
        {
            response.headers_mut().insert(IGNORED, value);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests;
