//! Options whose values are lists: JSON.

use serde_json::Value;

use super::failure::Result;
use super::options::invalid;

/// Strings that end a text, and sequences of tokens that end a turn.
const MOST_STOPS: usize = 64;
/// Bytes of one string.
const MOST_BYTES: usize = 1024;
/// Tokens of one sequence.
const MOST_TOKENS: usize = 64;

/// A JSON array of strings.
pub(super) fn strings(key: &str, value: &str) -> Result<Vec<String>> {
    let refuse = |found: &str| {
        let expected = format!(
            "a JSON array of at most {MOST_STOPS} strings of 1 to {MOST_BYTES} bytes, for example \
             [\"\\nUser:\", \"###\"]; {found}"
        );
        invalid(key, value, &expected)
    };
    let elements = array(value).map_err(|found| refuse(&found))?;
    let mut strings = Vec::new();
    for (at, element) in elements.iter().enumerate() {
        match element.as_str() {
            Some(string) if (1..=MOST_BYTES).contains(&string.len()) => strings.push(string.to_owned()),
            Some(string) => return Err(refuse(&format!("element {at} has {} bytes", string.len()))),
            None => return Err(refuse(&format!("element {at} is no string"))),
        }
    }
    Ok(strings)
}

/// A JSON array of arrays of token ids.
pub(super) fn sequences(key: &str, value: &str) -> Result<Vec<Vec<i32>>> {
    let refuse = |found: &str| {
        let expected = format!(
            "a JSON array of at most {MOST_STOPS} arrays of 1 to {MOST_TOKENS} token ids, for example \
             [[13, 13], [50256]]; {found}"
        );
        invalid(key, value, &expected)
    };
    let elements = array(value).map_err(|found| refuse(&found))?;
    let mut sequences = Vec::new();
    for (at, element) in elements.iter().enumerate() {
        let Some(ids) = element.as_array() else {
            return Err(refuse(&format!("element {at} is no array")));
        };
        if !(1..=MOST_TOKENS).contains(&ids.len()) {
            return Err(refuse(&format!("element {at} has {} ids", ids.len())));
        }
        let id = |id: &Value| {
            let id = id.as_i64().and_then(|id| i32::try_from(id).ok());
            id.filter(|id| *id >= 0)
        };
        let Some(sequence) = ids.iter().map(id).collect() else {
            return Err(refuse(&format!("element {at} holds what is no token id")));
        };
        sequences.push(sequence);
    }
    Ok(sequences)
}

fn array(value: &str) -> std::result::Result<Vec<Value>, String> {
    match serde_json::from_str(value) {
        Ok(Value::Array(elements)) if elements.len() <= MOST_STOPS => Ok(elements),
        Ok(Value::Array(elements)) => Err(format!("it has {} elements", elements.len())),
        Ok(_) => Err("it is no array".to_owned()),
        Err(error) => Err(format!("it is no JSON: {error}")),
    }
}
