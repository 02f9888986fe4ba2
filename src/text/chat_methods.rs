//! Methods of Python's strings, lists and dicts that the engine's own set lacks.

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::chat_format::{self, MAX_WIDTH};

/// Bytes of a text whose tabs are spaces.
const MAX_EXPANDED: usize = 1 << 20;

/// A method of a value, as Python has it.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        let length = text.len() as u64;
        let cost = match name {
            // A value for every few characters.
            "split" | "rsplit" | "splitlines" => length / 4,
            // What is made of a text is about as long.
            _ => length / 64,
        };
        state.consume_fuel(cost)?;
        if let Some(made) = of_text(text, name, args)? {
            return Ok(made);
        }
    }
    match (value.kind(), name) {
        (ValueKind::Map | ValueKind::Seq, "copy") => {
            let () = from_args(args)?;
            // Values never change.
            Ok(value.clone())
        }
        (ValueKind::Seq, "index") => {
            let (wanted,): (Value,) = from_args(args)?;
            let place = value.try_iter()?.position(|item| item == wanted);
            place
                .map(Value::from)
                .ok_or_else(|| invalid(format!("{wanted} is not in the list")))
        }
        _ => chat_format::method(state, value, name, args),
    }
}

/// `None` for a method that is not here.
fn of_text(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let made = match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let first = name == "partition";
            let halves = match first {
                _ if separator.is_empty() => return Err(invalid("the separator is empty")),
                true => text.split_once(separator),
                false => text.rsplit_once(separator),
            };
            let parts = match (halves, first) {
                (Some((before, after)), _) => [before, separator, after],
                (None, true) => [text, "", ""],
                (None, false) => ["", "", text],
            };
            Value::from(Tuple::from(parts.map(Value::from).to_vec()))
        }
        "split" | "rsplit" => {
            let (separator, most, options): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = match separator {
                Some(separator) => Some(separator),
                None => options.get("sep")?,
            };
            let most = match most {
                Some(most) => Some(most),
                None => options.get::<Option<i64>>("maxsplit")?,
            };
            // A negative number is as many as there are.
            let most = most.and_then(|most| usize::try_from(most).ok());
            let most = most.unwrap_or(usize::MAX);
            options.assert_all_used()?;
            let separator = separator.filter(|separator| !separator.is_none());
            let separator = match &separator {
                None => None,
                Some(separator) => match separator.as_str() {
                    Some(separator) => Some(separator),
                    None => return Err(invalid("split: the separator is no text")),
                },
            };
            Value::from(match name {
                "split" => split(text, separator, most)?,
                _ => rsplit(text, separator, most)?,
            })
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let found = match name {
                "index" => text.find(wanted),
                _ => text.rfind(wanted),
            };
            let at = found.ok_or_else(|| invalid("index: the text is not in it"))?;
            Value::from(text.get(..at).unwrap_or_default().chars().count())
        }
        "casefold" => {
            let () = from_args(args)?;
            Value::from(text.to_lowercase().replace('ß', "ss"))
        }
        "title" => {
            let () = from_args(args)?;
            let mut inside = false;
            let mut title = String::with_capacity(text.len());
            for c in text.chars() {
                match inside {
                    true => title.extend(c.to_lowercase()),
                    false => title.extend(c.to_uppercase()),
                }
                inside = is_cased(c);
            }
            Value::from(title)
        }
        "istitle" => {
            let () = from_args(args)?;
            let (mut inside, mut any) = (false, false);
            let mut good = true;
            for c in text.chars() {
                good &= if inside {
                    !c.is_uppercase()
                } else {
                    !c.is_lowercase()
                };
                inside = is_cased(c);
                any |= inside;
            }
            Value::from(good && any)
        }
        "isidentifier" => {
            let () = from_args(args)?;
            let mut chars = text.chars();
            let begins = chars.next().is_some_and(|c| c.is_alphabetic() || c == '_');
            Value::from(begins && chars.all(|c| c.is_alphanumeric() || c == '_'))
        }
        "expandtabs" => {
            let (size, options): (Option<usize>, Kwargs) = from_args(args)?;
            let size = size.or(options.get("tabsize")?).unwrap_or(8);
            options.assert_all_used()?;
            Value::from(expand_tabs(text, size)?)
        }
        "swapcase" => {
            let () = from_args(args)?;
            let swapped: String = text
                .chars()
                .flat_map(|c| match c.is_lowercase() {
                    true => c.to_uppercase().collect::<Vec<char>>(),
                    false => c.to_lowercase().collect(),
                })
                .collect();
            Value::from(swapped)
        }
        "zfill" => {
            let (width,): (i64,) = from_args(args)?;
            let missing = missing(text, width)?;
            let (sign, digits) = match text.strip_prefix(['+', '-']) {
                Some(digits) => text.split_at(text.len() - digits.len()),
                None => ("", text),
            };
            Value::from(format!("{sign}{}{digits}", "0".repeat(missing)))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (i64, Option<char>) = from_args(args)?;
            let missing = missing(text, width)?;
            let fill = |count: usize| String::from(fill.unwrap_or(' ')).repeat(count);
            let before = match name {
                "ljust" => 0,
                "rjust" => missing,
                // Python puts the odd one before a text of even width, behind one of odd width.
                _ => missing / 2 + (missing & 1 & usize::try_from(width).unwrap_or(0)),
            };
            Value::from(format!("{}{text}{}", fill(before), fill(missing - before)))
        }
        _ => return Ok(None),
    };
    Ok(Some(made))
}

/// Characters that a text lacks to be as wide.
fn missing(text: &str, width: i64) -> Result<usize, Error> {
    if width > MAX_WIDTH as i64 {
        return Err(invalid(format!(
            "a width is {width}, expected at most {MAX_WIDTH}"
        )));
    }
    Ok(usize::try_from(width)
        .unwrap_or(0)
        .saturating_sub(text.chars().count()))
}

/// Whether a letter has an upper and a lower case.
fn is_cased(c: char) -> bool {
    c.is_lowercase() || c.is_uppercase()
}

/// Spaces for tabs, up to the next multiple of `size` in each line.
fn expand_tabs(text: &str, size: usize) -> Result<String, Error> {
    if size as u64 > MAX_WIDTH {
        return Err(invalid(format!(
            "a tab is {size} wide, expected at most {MAX_WIDTH}"
        )));
    }
    let (mut expanded, mut column) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '\t' => {
                let spaces = match size {
                    0 => 0,
                    size => size - column % size,
                };
                if expanded.len() > MAX_EXPANDED {
                    return Err(invalid(format!(
                        "expandtabs: the text is longer than {MAX_EXPANDED} bytes"
                    )));
                }
                expanded.push_str(&" ".repeat(spaces));
                column += spaces;
            }
            '\n' | '\r' => {
                expanded.push(c);
                column = 0;
            }
            c => {
                expanded.push(c);
                column += 1;
            }
        }
    }
    Ok(expanded)
}

/// At most `most` splits, from the left; without a separator at white space.
fn split(text: &str, separator: Option<&str>, most: usize) -> Result<Vec<String>, Error> {
    let mut parts = Vec::new();
    match separator {
        Some("") => return Err(invalid("the separator is empty")),
        Some(separator) => {
            let pieces = text.splitn(most.saturating_add(1), separator);
            parts.extend(pieces.map(str::to_owned));
        }
        None => {
            let mut rest = text.trim_start();
            while parts.len() < most
                && let Some((part, after)) = rest.split_once(char::is_whitespace)
            {
                parts.push(part.to_owned());
                rest = after.trim_start();
            }
            if !rest.is_empty() {
                parts.push(rest.to_owned());
            }
        }
    }
    Ok(parts)
}

/// At most `most` splits, from the right; without a separator at white space.
fn rsplit(text: &str, separator: Option<&str>, most: usize) -> Result<Vec<String>, Error> {
    let mut parts = Vec::new();
    let mut rest = text;
    match separator {
        Some("") => return Err(invalid("the separator is empty")),
        Some(separator) => {
            while parts.len() < most
                && let Some((before, part)) = rest.rsplit_once(separator)
            {
                parts.push(part.to_owned());
                rest = before;
            }
            parts.push(rest.to_owned());
        }
        None => {
            rest = rest.trim_end();
            while parts.len() < most
                && let Some((before, part)) = rest.rsplit_once(char::is_whitespace)
            {
                parts.push(part.to_owned());
                rest = before.trim_end();
            }
            if !rest.is_empty() {
                parts.push(rest.to_owned());
            }
        }
    }
    parts.reverse();
    Ok(parts)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::Environment;

    // Expected: Python's own methods.
    #[test]
    fn methods_are_those_of_python() {
        let mut environment = Environment::new();
        environment.set_unknown_method_callback(method);
        for (expression, expected) in [
            ("'unhappy'.removeprefix('un')", "'happy'"),
            ("'unhappy'.removesuffix('un')", "'unhappy'"),
            ("'a=b=c'.partition('=')", "('a', '=', 'b=c')"),
            ("'a=b=c'.rpartition('=')", "('a=b', '=', 'c')"),
            ("'abc'.partition('=')", "('abc', '', '')"),
            ("'abc'.rpartition('=')", "('', '', 'abc')"),
            ("'a,b,c'.rsplit(',', 1)", "['a,b', 'c']"),
            ("'a,b,c'.rsplit(',')", "['a', 'b', 'c']"),
            ("'  a  b c '.rsplit(none, 1)", "['  a  b', 'c']"),
            ("'  a  b c '.rsplit()", "['a', 'b', 'c']"),
            ("'\u{e9}ab'.index('b')", "2"),
            ("'abab'.rindex('ab')", "2"),
            ("'aBc'.swapcase()", "'AbC'"),
            ("'ABC'.casefold()", "'abc'"),
            ("'-42'.zfill(5)", "'-0042'"),
            ("'42'.zfill(1)", "'42'"),
            ("'ab'.ljust(4, '.')", "'ab..'"),
            ("'ab'.rjust(4)", "'  ab'"),
            ("'ab'.center(5)", "'  ab '"),
            ("'abc'.center(6, '*')", "'*abc**'"),
            ("['a', 'b'].index('b')", "1"),
            ("{'a': 1}.copy()", "{'a': 1}"),
        ] {
            let template = format!("{{{{ ({expression}) == ({expected}) }}}}");
            assert_eq!(
                environment.render_str(&template, ()).unwrap(),
                "True",
                "{expression}"
            );
        }
        for expression in [
            "'a'.partition('')",
            "'a'.index('b')",
            "'a'.zfill(2000)",
            "[1].index(2)",
            "'a'.nothing()",
        ] {
            let template = format!("{{{{ {expression} }}}}");
            assert!(environment.render_str(&template, ()).is_err(), "{expression}");
        }
    }
}
