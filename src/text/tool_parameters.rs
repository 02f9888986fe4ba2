//! Arguments of calls that models write as plain text, between tags: their types are in the tool's
//! schema only.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::TextError;

/// What the tools of a conversation say of their parameters.
#[derive(Clone, Debug, Default)]
pub struct ToolSchemas {
    /// By the tool's name, the JSON Schema of its parameters.
    parameters: HashMap<String, Value>,
}

impl ToolSchemas {
    /// Of the JSON that a chat template is rendered with: an array of
    /// `{"type": "function", "function": {"name": ..., "parameters": {...}}}`, or of what is inside
    /// of "function".
    pub fn of_json(tools: &str) -> Result<Self, TextError> {
        let bad = |message: String| TextError::BadArgument {
            what: "tools",
            message,
        };
        let value = serde_json::from_str(tools).map_err(|error| bad(format!("not JSON: {error}")))?;
        let Value::Array(tools) = value else {
            return Err(bad("expected an array of tools".to_owned()));
        };
        let mut parameters = HashMap::with_capacity(tools.len());
        for (index, tool) in tools.iter().enumerate() {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name").and_then(Value::as_str).ok_or_else(|| {
                bad(format!(
                    "tool {index} has no \"name\" that is a string, neither itself nor in \"function\""
                ))
            })?;
            let schema = function.get("parameters").cloned().unwrap_or_default();
            parameters.insert(name.to_owned(), schema);
        }
        Ok(ToolSchemas { parameters })
    }

    /// The value that `text` stands for as a parameter of a tool: of the types that its schema
    /// allows, one that the text is in JSON (or as Python's True, False and None) before a string.
    /// Where no schema says anything, text that is JSON is taken for that.
    pub(super) fn value(&self, tool: &str, parameter: &str, text: &str) -> Value {
        let written = match text.trim() {
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            "None" => Some(Value::Null),
            text => serde_json::from_str(text).ok(),
        };
        let schema = self.parameters.get(tool);
        let types = schema.and_then(|schema| {
            let parameter = schema.get("properties")?.get(parameter)?;
            Some(types_of(parameter, schema))
        });
        let types = types.unwrap_or_default();
        let allowed = |value: &Value| types.iter().any(|name| is_of_type(value, name));
        match written {
            Some(value) if !value.is_string() && allowed(&value) => value,
            _ if types.contains(&"string") => json!(text),
            // A Python word without a schema is a word.
            Some(value) if !types.is_empty() || serde_json::from_str::<Value>(text).is_ok() => value,
            _ => json!(text),
        }
    }
}

/// The names of the JSON types that a schema allows, as far as it says so: by "type", "enum", "const",
/// in any of "anyOf", "oneOf" and "allOf", and by a "$ref" within `root`.
fn types_of<'a>(schema: &'a Value, root: &'a Value) -> Vec<&'a str> {
    // A schema may refer to itself.
    const MOST: usize = 256;
    let mut found = Vec::new();
    let mut open = vec![schema];
    for _ in 0..MOST {
        let Some(schema) = open.pop() else { break };
        match schema.get("type") {
            Some(Value::String(name)) => found.push(name.as_str()),
            Some(Value::Array(names)) => found.extend(names.iter().filter_map(Value::as_str)),
            _ => {
                let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
                found.extend(values.chain(schema.get("const")).map(|value| type_of(value)));
            }
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            open.extend(schema.get(key).and_then(Value::as_array).into_iter().flatten());
        }
        let target = schema.get("$ref").and_then(Value::as_str);
        let target = target.and_then(|target| root.pointer(target.strip_prefix('#')?));
        open.extend(target);
    }
    found
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        // JSON Schema has 1.0 for an integer, too.
        "integer" => {
            let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
            value.is_i64() || value.is_u64() || whole
        }
        name => type_of(value) == name,
    }
}

/// The place in a text that is wrong, and what is wrong there.
pub(super) type Wrong<'a> = (&'a str, &'static str);

/// The arguments of `<parameter=key>value</parameter>` one after another, as Qwen3-Coder writes them,
/// each value on lines of its own.
pub(super) fn parameters<'a>(
    schemas: &ToolSchemas,
    tool: &str,
    text: &'a str,
) -> Result<Map<String, Value>, Wrong<'a>> {
    let mut arguments = Map::new();
    let mut rest = text;
    while let Some((_, parameter)) = rest.split_once("<parameter=") {
        let Some((key, value)) = parameter.split_once('>') else {
            return Err((parameter, "a parameter's name does not end"));
        };
        let Some((value, after)) = value.split_once("</parameter>") else {
            return Err((value, "a parameter does not end with </parameter>"));
        };
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        let key = key.trim();
        arguments.insert(key.to_owned(), schemas.value(tool, key, value));
        rest = after;
    }
    Ok(arguments)
}

/// A tool's name and the arguments of `name<arg_key>key</arg_key><arg_value>value</arg_value>...`, as
/// GLM writes them, with line breaks or without.
pub(super) fn keys_and_values<'a>(
    schemas: &ToolSchemas,
    text: &'a str,
) -> Result<(&'a str, Map<String, Value>), Wrong<'a>> {
    const KEY: &str = "<arg_key>";
    let (name, mut rest) = text.split_at(text.find(KEY).unwrap_or(text.len()));
    let name = name.trim();
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err((text, "expected a tool's name"));
    }
    let mut arguments = Map::new();
    while let Some(key) = rest.trim_start().strip_prefix(KEY) {
        let Some((key, value)) = key.split_once("</arg_key>") else {
            return Err((key, "a key does not end with </arg_key>"));
        };
        let Some(value) = value.trim_start().strip_prefix("<arg_value>") else {
            return Err((value, "expected <arg_value> behind a key"));
        };
        let Some((value, after)) = value.split_once("</arg_value>") else {
            return Err((value, "a value does not end with </arg_value>"));
        };
        let key = key.trim();
        arguments.insert(key.to_owned(), schemas.value(name, key, value));
        rest = after;
    }
    if !rest.trim().is_empty() {
        return Err((rest, "there is more text than keys and values"));
    }
    Ok((name, arguments))
}
