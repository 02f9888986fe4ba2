//! Bounds on a template's values, and values as JSON.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Lists and dicts inside of each other. JSON that comes in has at most 127.
const MAX_DEPTH: usize = 200;
/// Values inside of a list or dict, those of inner ones included, each as often as it is there.
const MAX_VALUES: usize = 200_000;
/// Bytes of the texts among them.
const MAX_TEXT: usize = 64 << 20;
/// Spaces that one level of JSON is indented by.
const MAX_INDENT: usize = 1000;
/// Bytes of a value as JSON.
const MAX_JSON: usize = 16 << 20;

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// The filter [`INTO_VARIABLE`](super::chat_source::INTO_VARIABLE).
pub(super) fn into_variable(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    check(state, &value)?;
    Ok(value)
}

/// The filter [`INTO_NAMESPACE`](super::chat_source::INTO_NAMESPACE): a namespace may hold
/// no namespace, or it could hold itself.
pub(super) fn into_namespace(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    walk(state, &value, false)?;
    Ok(value)
}

/// Refuses a value that is too deep or too large to be written or compared.
pub(super) fn check(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    walk(state, value, true).map(drop)
}

/// About how many bytes the value takes when it is written; an error if they are too many.
pub(super) fn text_size(state: &State<'_, '_>, value: &Value) -> Result<u64, Error> {
    let left = walk(state, value, true)?;
    Ok(((MAX_VALUES - left.values) * 32 + (MAX_TEXT - left.text) + 32) as u64)
}

/// What may still come of a value that is walked through.
struct Left {
    values: usize,
    text: usize,
}

fn walk(state: &State<'_, '_>, value: &Value, namespaces: bool) -> Result<Left, Error> {
    let mut left = Left {
        values: MAX_VALUES,
        text: MAX_TEXT,
    };
    let result = walk_inside(value, 0, namespaces, &mut left);
    state.consume_fuel((MAX_VALUES - left.values) as u64 / 4)?;
    result.map(|()| left)
}

fn walk_inside(value: &Value, depth: usize, namespaces: bool, left: &mut Left) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        left.text = left
            .text
            .checked_sub(text.len())
            .ok_or_else(|| invalid(format!("a value holds more than {MAX_TEXT} bytes of text")))?;
    }
    let Some(object) = value.as_object() else {
        return Ok(());
    };
    if depth > MAX_DEPTH {
        return Err(invalid(format!(
            "a value has more than {MAX_DEPTH} lists or dicts inside of each other"
        )));
    }
    // The engine's type is its own; a test sees to it that this is its name.
    if !namespaces && object.type_name().ends_with("::Namespace") {
        return Err(invalid(
            "a namespace cannot be put into a namespace; put in its values",
        ));
    }
    let is_map = value.kind() == ValueKind::Map;
    let Some(items) = object.try_iter() else {
        return Ok(());
    };
    for item in items {
        left.values = left
            .values
            .checked_sub(1)
            .ok_or_else(|| invalid(format!("a value has more than {MAX_VALUES} values inside of it")))?;
        walk_inside(&item, depth + 1, namespaces, left)?;
        if is_map {
            let inside = object.get_value(&item).unwrap_or_default();
            walk_inside(&inside, depth + 1, namespaces, left)?;
        }
    }
    Ok(())
}

/// Python's `json.dumps(value, ensure_ascii=False)`, as Hugging Face's filter of this name,
/// with `indent`, `separators`, `sort_keys` and `ensure_ascii`.
pub(super) fn tojson(state: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let indent = match indent.filter(|indent| !indent.is_none() && !indent.is_undefined()) {
        None => None,
        Some(indent) => Some(one_indent(&indent)?),
    };
    let (between, after_key) = match separators.as_deref() {
        Some([between, after_key]) => (between.clone(), after_key.clone()),
        Some(_) => {
            return Err(invalid(
                "tojson: separators are two strings, for example (', ', ': ')",
            ));
        }
        // What ends a line takes no space after it.
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut json = Json {
        out: String::new(),
        indent,
        between,
        after_key,
        sort_keys: sort_keys.unwrap_or(false),
        ensure_ascii: ensure_ascii.unwrap_or(false),
    };
    let result = json.value(value, 0);
    state.consume_fuel(json.out.len() as u64 / 8)?;
    result?;
    Ok(Value::from(json.out))
}

/// A number of spaces, or the text itself.
fn one_indent(indent: &Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str()
        && text.len() <= MAX_INDENT
    {
        return Ok(text.to_owned());
    }
    match i64::try_from(indent.clone()) {
        Ok(width) if width <= MAX_INDENT as i64 => Ok(" ".repeat(usize::try_from(width).unwrap_or(0))),
        _ => Err(invalid(format!(
            "tojson: indent is {indent}, expected at most {MAX_INDENT}"
        ))),
    }
}

struct Json {
    out: String,
    indent: Option<String>,
    between: String,
    after_key: String,
    sort_keys: bool,
    ensure_ascii: bool,
}

impl Json {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!(
                "tojson: more than {MAX_DEPTH} lists or dicts inside of each other"
            )));
        }
        if self.out.len() > MAX_JSON {
            return Err(invalid(format!(
                "tojson: the text is longer than {MAX_JSON} bytes"
            )));
        }
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool | ValueKind::Number => self.out.push_str(&scalar(value)?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.dict(value, depth)?,
            kind => return Err(not_json(&format!("a value of kind {kind}"))),
        }
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.begin_item(empty, depth);
            empty = false;
            self.value(&item, depth + 1)?;
        }
        self.end(empty, depth, ']');
        Ok(())
    }

    fn dict(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        let mut empty = true;
        for key in keys {
            self.begin_item(empty, depth);
            empty = false;
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                    let text = scalar(&key)?;
                    self.string(&text);
                }
                kind => return Err(not_json(&format!("a dict's key of kind {kind}"))),
            }
            self.out.push_str(&self.after_key);
            self.value(&value.get_item(&key)?, depth + 1)?;
        }
        self.end(empty, depth, '}');
        Ok(())
    }

    fn begin_item(&mut self, first: bool, depth: usize) {
        if !first {
            self.out.push_str(&self.between);
        }
        self.new_line(depth + 1);
    }

    fn end(&mut self, empty: bool, depth: usize, bracket: char) {
        if !empty {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn not_json(what: &str) -> Error {
    Error::new(
        ErrorKind::BadSerialization,
        format!("tojson: {what} cannot be written as JSON"),
    )
}

/// None, a boolean or a number.
fn scalar(value: &Value) -> Result<String, Error> {
    Ok(match value.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if value.is_true() { "true" } else { "false" }.to_owned(),
        _ if value.is_integer() => value.to_string(),
        _ => python_float(f64::try_from(value.clone())?),
    })
}

/// `repr(number)`, which JSON takes over: with an exponent from 1e16 on and below 1e-4.
pub(super) fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent @ -4..16 => {
            let plain = number.to_string();
            if exponent >= 0 && !plain.contains('.') {
                plain + ".0"
            } else {
                plain
            }
        }
        exponent => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Expected: Python's json.dumps.
    #[test]
    fn numbers_as_python_writes_them() {
        for (number, expected) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (123456789012345.6, "123456789012345.6"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.25e300, "-1.25e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(python_float(number), expected);
        }
    }
}
