//! The form of answers: `response_format` as OpenAI has it, `structured_outputs` as vLLM has it, and its older names.

use serde_json::{Map, Value};
use tegula_engine::grammar::Form;

use crate::error::ApiError;
use crate::fields::{Field, Fields, short};

/// OpenAI's parameter.
const FORMAT: &str = "response_format";

/// The form that a request asks for, and the parameter that asks. `prefix` is of the object that the fields are of.
///
/// # Errors
/// 400 if it is malformed, or if there is more than one.
pub fn take(fields: &mut Fields, prefix: &str) -> Result<Option<(Form, String)>, ApiError> {
    let mut found: Option<(Form, String)> = None;
    let mut add = |form: Option<Form>, name: &str| match (form, &found) {
        (None, _) => Ok(()),
        (Some(form), None) => {
            found = Some((form, format!("{prefix}{name}")));
            Ok(())
        }
        (Some(_), Some((_, other))) => {
            let message = format!("{name}: the answer has a form already, by {other}; leave one of them out");
            Err(ApiError::param(format!("{prefix}{name}"), message))
        }
    };
    // Messages say where in the parameter.
    let format = response_format(fields);
    let format = format.map_err(|error| ApiError { param: Some(format!("{prefix}{FORMAT}")), ..error });
    add(format?, FORMAT)?;
    if let Some(object) = fields.take::<Map<String, Value>>("structured_outputs")? {
        let name = format!("{prefix}structured_outputs");
        for (key, value) in object.into_iter().filter(|(_, value)| !value.is_null()) {
            let param = format!("structured_outputs.{key}");
            let form = match key.as_str() {
                "json" => Some(schema(value, &name)?),
                "regex" => Some(Form::Regex(typed(value, &name, "regex")?)),
                "choice" => Some(Form::Choice(typed(value, &name, "choice")?)),
                "grammar" => Some(Form::Grammar(typed(value, &name, "grammar")?)),
                "json_object" if value == true => Some(Form::JsonObject),
                // These choose among ways to the same end, or say what is so anyway.
                "json_object" | "disable_fallback" | "disable_any_whitespace" | "backend" if !truthy(&value) => None,
                "disable_fallback" | "backend" => None,
                _ => {
                    let known = "json, regex, choice, grammar or json_object";
                    let message = format!("{param} is not supported; supported is {known}");
                    return Err(ApiError::param(name, message));
                }
            };
            add(form, "structured_outputs")?;
        }
    }
    if let Some(value) = fields.take::<Value>("guided_json")? {
        add(Some(schema(value, &format!("{prefix}guided_json"))?), "guided_json")?;
    }
    add(fields.take("guided_regex")?.map(Form::Regex), "guided_regex")?;
    add(fields.take("guided_choice")?.map(Form::Choice), "guided_choice")?;
    add(fields.take("guided_grammar")?.map(Form::Grammar), "guided_grammar")?;
    add(fields.take::<bool>("guided_json_object")?.filter(|on| *on).map(|_| Form::JsonObject), "guided_json_object")?;
    Ok(found)
}

fn truthy(value: &Value) -> bool {
    *value != false
}

fn response_format(fields: &mut Fields) -> Result<Option<Form>, ApiError> {
    let Some(mut object) = fields.take_object(FORMAT)? else { return Ok(None) };
    let bad = |message: String| ApiError::bad_request(format!("{FORMAT}{message}"));
    let form = match object.take::<String>("type")?.as_deref() {
        Some("text") => None,
        // With a schema, as some servers have it.
        Some("json_object") => Some(match object.take::<Map<String, Value>>("schema")? {
            Some(mut of) => {
                of.entry("type").or_insert_with(|| "object".into());
                Form::JsonSchema(of.into())
            }
            None => Form::JsonObject,
        }),
        Some("json_schema") => {
            let missing = || bad(".json_schema.schema: missing; it must be a JSON schema".into());
            let mut inner = object.take_object("json_schema")?.ok_or_else(missing)?;
            let form = schema(inner.take::<Value>("schema")?.ok_or_else(missing)?, FORMAT)?;
            // What they say is so anyway, or for the reader.
            ["name", "description", "strict"].into_iter().for_each(|name| inner.accept(name));
            fields.finished(inner);
            Some(form)
        }
        found => {
            let found = found.map_or("nothing".into(), |found| short(&found.into()));
            let expected = "\"text\", \"json_object\" or \"json_schema\"";
            return Err(bad(format!(".type: expected {expected}, found {found}")));
        }
    };
    fields.finished(object);
    Ok(form)
}

/// A schema, as itself or as a text of JSON.
fn schema(value: Value, param: &str) -> Result<Form, ApiError> {
    let bad = |found: &str| {
        ApiError::param(param, format!("{param}: expected a JSON schema, that is an object, found {found}"))
    };
    match value {
        Value::String(text) => match serde_json::from_str::<Value>(&text) {
            Ok(inner @ (Value::Object(_) | Value::Bool(true))) => Ok(Form::JsonSchema(inner)),
            _ => Err(bad("a text that is none")),
        },
        Value::Object(_) | Value::Bool(true) => Ok(Form::JsonSchema(value)),
        other => Err(bad(&short(&other))),
    }
}

fn typed<T: Field>(value: Value, param: &str, key: &str) -> Result<T, ApiError> {
    T::of(value).map_err(|found| {
        ApiError::param(param, format!("{param}.{key}: expected {}, found {}", T::expected(), short(&found)))
    })
}
