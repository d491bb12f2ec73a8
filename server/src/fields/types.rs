//! The types that parameters have.

use serde_json::{Map, Value};

/// A type of parameters.
pub trait Field: Sized {
    /// As in `expected a number`.
    fn expected() -> String;

    /// Of a value that is not `null`.
    ///
    /// # Errors
    /// What was found instead: the value, or what is wrong in it.
    fn of(value: Value) -> Result<Self, Value>;
}

/// A value as it is shown in a message: cut if it is long.
pub fn short(value: &Value) -> String {
    /// Most characters.
    const MOST: usize = 60;
    match value {
        Value::Array(items) if items.is_empty() => "an empty list".to_owned(),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        other => {
            let text = other.to_string();
            match text.char_indices().nth(MOST) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        }
    }
}

impl Field for Value {
    fn expected() -> String {
        "a value".to_owned()
    }

    fn of(value: Value) -> Result<Value, Value> {
        Ok(value)
    }
}

impl Field for bool {
    fn expected() -> String {
        "true or false".to_owned()
    }

    fn of(value: Value) -> Result<bool, Value> {
        value.as_bool().ok_or(value)
    }
}

impl Field for String {
    fn expected() -> String {
        "a string".to_owned()
    }

    fn of(value: Value) -> Result<String, Value> {
        match value {
            Value::String(text) => Ok(text),
            other => Err(other),
        }
    }
}

impl Field for Map<String, Value> {
    fn expected() -> String {
        "an object".to_owned()
    }

    fn of(value: Value) -> Result<Map<String, Value>, Value> {
        match value {
            Value::Object(map) => Ok(map),
            other => Err(other),
        }
    }
}

impl Field for f64 {
    fn expected() -> String {
        "a number".to_owned()
    }

    fn of(value: Value) -> Result<f64, Value> {
        value.as_f64().ok_or(value)
    }
}

impl Field for f32 {
    fn expected() -> String {
        format!("a number from {:e} to {:e}", f32::MIN, f32::MAX)
    }

    fn of(value: Value) -> Result<f32, Value> {
        let narrow = value.as_f64().map(|wide| wide as f32);
        narrow.filter(|number| number.is_finite()).ok_or(value)
    }
}

/// Whole numbers; `5.0` is one.
macro_rules! whole {
    ($($type:ty)*) => {$(
        impl Field for $type {
            fn expected() -> String {
                format!("a whole number from {} to {}", <$type>::MIN, <$type>::MAX)
            }

            fn of(value: Value) -> Result<$type, Value> {
                integer(&value).and_then(|number| <$type>::try_from(number).ok()).ok_or(value)
            }
        }
    )*};
}

whole!(i32 i64 u32 u64 usize);

fn integer(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    if let Some(number) = number.as_i128() {
        return Some(number);
    }
    // Larger ones are not exact, and none of the types above.
    number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9.0e15).map(|number| number as i128)
}

impl<T: Field> Field for Vec<T> {
    fn expected() -> String {
        format!("a list, each of it {}", T::expected())
    }

    fn of(value: Value) -> Result<Vec<T>, Value> {
        match value {
            Value::Array(items) => items.into_iter().map(T::of).collect(),
            other => Err(other),
        }
    }
}

/// One, or a list of them: `stop` may be `"a"` or `["a", "b"]`.
#[derive(Clone, Debug, PartialEq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T: Field> Field for OneOrMany<T> {
    fn expected() -> String {
        format!("{}, or a list of such", T::expected())
    }

    fn of(value: Value) -> Result<OneOrMany<T>, Value> {
        match value {
            Value::Array(items) => items.into_iter().map(T::of).collect::<Result<_, _>>().map(OneOrMany),
            one => T::of(one).map(|one| OneOrMany(vec![one])),
        }
    }
}
