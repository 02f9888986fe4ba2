//! `str.format`, whose engine allocates whatever width it reads.

use minijinja::{Error, ErrorKind, State, Value};

use super::chat_values;

/// Characters that a field may be filled up to, and digits after its point.
pub(super) const MAX_WIDTH: u64 = 1000;

/// Python's methods, `format` within bounds.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if name == "format"
        && let Some(format) = value.as_str()
    {
        let mut longest = 0;
        for arg in args {
            longest = u64::max(longest, chat_values::text_size(state, arg)?);
        }
        // Paid ahead: 64 bytes of text are one step.
        let bytes = longest.saturating_mul(format.matches('{').count() as u64);
        state.consume_fuel(bytes.saturating_add(widths(format)?) / 64)?;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// The sum of the numbers in the specifications of fields (`{name:>10.3f}`).
fn widths(format: &str) -> Result<u64, Error> {
    let mut sum = 0u64;
    let mut rest = format;
    while let Some((_, field)) = rest.split_once('{') {
        rest = field;
        if let Some(literal) = rest.strip_prefix('{') {
            rest = literal;
            continue;
        }
        // An index may hold any character: {0[}]}.
        while let Some((at, found)) = rest.char_indices().find(|(_, c)| matches!(c, '[' | ':' | '}')) {
            rest = rest.get(at + 1..).unwrap_or_default();
            match found {
                '[' => rest = rest.split_once(']').map_or("", |(_, after)| after),
                ':' => {
                    let (spec, after) = specification(rest);
                    rest = after;
                    for number in spec
                        .split(|c: char| !c.is_ascii_digit())
                        .filter(|run| !run.is_empty())
                    {
                        match number.parse() {
                            Ok(width @ 0..=MAX_WIDTH) => sum = sum.saturating_add(width),
                            _ => {
                                return Err(Error::new(
                                    ErrorKind::InvalidOperation,
                                    format!(
                                        "format: a field is {number} wide or exact, expected at most {MAX_WIDTH}"
                                    ),
                                ));
                            }
                        }
                    }
                    break;
                }
                _ => break,
            }
        }
    }
    Ok(sum)
}

/// A field's specification without the character it is filled up with, and what follows it.
fn specification(text: &str) -> (&str, &str) {
    let mut start = text.chars();
    let filled = start.next().is_some() && matches!(start.next(), Some('<' | '>' | '^' | '='));
    let spec = if filled { start.as_str() } else { text };
    spec.split_once('}').unwrap_or((spec, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_specifications_count() {
        for (format, expected) in [
            ("2024: {} {{:9999}} 9999", Some(0)),
            ("{:10}{name:>20.3f}", Some(33)),
            ("{0[:5000}]:7}", Some(7)),
            ("{:}<1001}", None),
            ("{:.100000}", None),
            ("{:99999999999999999999999}", None),
            ("{:5", Some(5)),
            ("{\u{e9}[", Some(0)),
        ] {
            assert_eq!(widths(format).ok(), expected, "{format}");
        }
    }
}
