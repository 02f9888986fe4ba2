//! Values as Python prints them, and the filters of Jinja that print.

use minijinja::value::{Kwargs, StringInput, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value, filters};

use super::chat_values::{check, python_float};

/// Writes a value into the prompt.
pub(super) fn write(out: &mut Output<'_>, state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    check(state, value)?;
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&text_of(value)?),
    };
    written.map_err(Error::from)
}

/// Bytes of a value that is printed, before what is escaped in it.
const MAX_PRINTED: usize = 16 << 20;

/// `str(value)`. The value is not too deep: see [`check`].
fn text_of(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        // It has a name where it is inside of a list alone.
        None if value.is_undefined() => Ok(String::new()),
        None => {
            let mut text = String::new();
            print(value, &mut text)?;
            Ok(text)
        }
    }
}

/// `repr(value)`.
fn print(value: &Value, to: &mut String) -> Result<(), Error> {
    if to.len() > MAX_PRINTED {
        return Err(too_long());
    }
    if let Some(text) = value.as_str() {
        return quote(text, to);
    }
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {
            let number = f64::try_from(value.clone())?;
            match number.is_finite() {
                true => to.push_str(&python_float(number)),
                false if number.is_nan() => to.push_str("nan"),
                false => to.push_str(if number > 0.0 { "inf" } else { "-inf" }),
            }
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let is_tuple = value.is_tuple();
            to.push(if is_tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()? {
                if count > 0 {
                    to.push_str(", ");
                }
                print(&item, to)?;
                count += 1;
            }
            if is_tuple && count == 1 {
                to.push(',');
            }
            to.push(if is_tuple { ')' } else { ']' });
        }
        // A namespace is what the engine says of it, and so are loops and macros.
        ValueKind::Map if !is_namespace(value) => {
            to.push('{');
            for (at, key) in value.try_iter()?.enumerate() {
                if at > 0 {
                    to.push_str(", ");
                }
                print(&key, to)?;
                to.push_str(": ");
                print(&value.get_item(&key)?, to)?;
            }
            to.push('}');
        }
        ValueKind::Undefined => to.push_str("Undefined"),
        _ => to.push_str(&value.to_string()),
    }
    Ok(())
}

fn too_long() -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("a value takes more than {MAX_PRINTED} bytes when it is printed"),
    )
}

fn is_namespace(value: &Value) -> bool {
    let object = value.as_object();
    object.is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

/// `repr(text)`: in single quotes, unless there are such inside and no double ones.
fn quote(text: &str, to: &mut String) -> Result<(), Error> {
    if text.len().saturating_add(to.len()) > MAX_PRINTED {
        return Err(too_long());
    }
    let quote = match text.contains('\'') && !text.contains('"') {
        true => '"',
        false => '\'',
    };
    to.push(quote);
    for c in text.chars() {
        match c {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            c if c == quote => {
                to.push('\\');
                to.push(c);
            }
            c if is_printable(c) => to.push(c),
            c => {
                let code = u32::from(c);
                to.push_str(&match code {
                    0..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                });
            }
        }
    }
    to.push(quote);
    Ok(())
}

/// `c.isprintable()`, by Unicode's categories Cc, Cf, Co, Zl, Zp and, but for the space, Zs. (Python also
/// escapes what no version of Unicode that it knows has assigned.)
fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(
            u32::from(c),
            // Spaces and separators.
            0xa0 | 0x1680 | 0x2000..=0x200a | 0x2028 | 0x2029 | 0x202f | 0x205f | 0x3000
            // Format.
            | 0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x890 | 0x891 | 0x8e2 | 0x180e
            | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x2064 | 0x2066..=0x206f | 0xfeff
            | 0xfff9..=0xfffb | 0x110bd | 0x110cd | 0x13430..=0x1343f | 0x1bca0..=0x1bca3
            | 0x1d173..=0x1d17a | 0xe0001 | 0xe0020..=0xe007f
            // For private use.
            | 0xe000..=0xf8ff | 0xf_0000..=0xf_fffd | 0x10_0000..=0x10_fffd
        )
}

/// The text, paid for.
fn paid(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    check(state, value)?;
    let text = text_of(value)?;
    state.consume_fuel(text.len() as u64 / 64)?;
    Ok(text)
}

/// The filter `string`.
pub(super) fn string(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(_) => Ok(value.clone()),
        None => Ok(paid(state, value)?.into()),
    }
}

/// The filter `join`.
pub(super) fn join(
    state: &mut State<'_, '_>,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    attribute: Option<&str>,
    options: Kwargs,
) -> Result<Value, Error> {
    let is_list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if !is_list || attribute.is_some() || options.args().next().is_some() {
        return filters::join(state, value, joiner, attribute, options);
    }
    check(state, value)?;
    let mut texts = Vec::new();
    for item in value.try_iter()? {
        texts.push(string(state, &item)?);
    }
    filters::join(state, &Value::from(texts), joiner, attribute, options)
}

/// The filter `int`: a text that is no number gives the default, which is 0.
pub(super) fn int(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    options: Kwargs,
) -> Result<Value, Error> {
    or_default(value, filters::int(state, value, default, base, options), 0)
}

/// The filter `float`, as [`int`].
pub(super) fn float(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    or_default(value, filters::float(state, value, default, options), 0.0)
}

fn or_default(
    value: &Value,
    number: Result<Value, Error>,
    default: impl Into<Value>,
) -> Result<Value, Error> {
    match number {
        Err(error) if error.kind() == ErrorKind::InvalidOperation && value.as_str().is_some() => {
            Ok(default.into())
        }
        other => other,
    }
}

/// The filter `escape`, which leaves what is escaped.
pub(super) fn escape(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    match value.is_safe() {
        true => Ok(value.clone()),
        false => force_escape(state, value),
    }
}

/// The filter `forceescape`.
pub(super) fn force_escape(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let text = paid(state, value)?;
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            c => escaped.push(c),
        }
    }
    Ok(Value::from_safe_string(escaped))
}

/// The filter `wordcount`.
pub(super) fn word_count(state: &State<'_, '_>, value: &Value) -> Result<usize, Error> {
    let text = paid(state, value)?;
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    Ok(words.filter(|word| !word.is_empty()).count())
}

/// The test `sequence`: what has a length and items, which in Python a text and a dict have too.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined
    )
}
