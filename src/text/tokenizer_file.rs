//! What a tokenizer.json may say that the `tokenizers` crate takes without a look and fails
//! on later: by a panic, or by an allocation of gigabytes, which nobody can catch.

use serde::Deserialize;
use serde_json::Value;

type Object = serde_json::Map<String, Value>;

/// The parts that are looked at; the vocabulary, which may be long, is passed over.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
}

/// Says what is wrong with the file and where.
pub(super) fn check(file: &[u8]) -> Result<(), String> {
    // The parser looks at what it keeps alone, and the crate panics on the rest.
    if let Err(error) = std::str::from_utf8(file) {
        return Err(format!("not UTF-8 from byte {} on", error.valid_up_to()));
    }
    let parts: Parts =
        serde_json::from_slice(file).map_err(|error| format!("not a JSON object as expected: {error}"))?;
    each_object(
        "normalizer",
        &parts.normalizer,
        &|place, object| match object.get("precompiled_charsmap") {
            Some(Value::String(map)) => {
                check_charsmap(map).map_err(|why| format!("{place}.precompiled_charsmap {why}"))
            }
            _ => Ok(()),
        },
    )?;
    each_object("pre_tokenizer", &parts.pre_tokenizer, &|place, object| {
        let fixed = object.get("type").and_then(Value::as_str) == Some("FixedLength");
        match object.get("length").and_then(Value::as_u64) {
            Some(0) if fixed => Err(format!("{place}.length is 0, expected 1 or more")),
            _ => Ok(()),
        }
    })?;
    each_object(
        "post_processor",
        &parts.post_processor,
        &|place, object| match object.get("special_tokens") {
            Some(tokens) => check_template(place, object, tokens),
            None => Ok(()),
        },
    )
}

/// Calls `look` for every object inside of `value`, `value` included, with its place.
fn each_object(
    place: &str,
    value: &Value,
    look: &dyn Fn(&str, &Object) -> Result<(), String>,
) -> Result<(), String> {
    match value {
        Value::Object(object) => {
            look(place, object)?;
            for (key, value) in object {
                each_object(&format!("{place}.{key}"), value, look)?;
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                each_object(&format!("{place}[{at}]"), value, look)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// SentencePiece's map, in base64: the bytes of a trie of 32-bit units as a little-endian
/// u32, the trie, then texts. The crate allocates what the first number says.
fn check_charsmap(base64: &str) -> Result<(), String> {
    let sextet = |letter: u8| match letter {
        b'A'..=b'Z' => Some(u32::from(letter - b'A')),
        b'a'..=b'z' => Some(u32::from(letter - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(letter - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let letters = base64.trim_end_matches('=').as_bytes();
    let size = letters.len() * 3 / 4;
    // 36 bits: the number, and 4 bits of what follows.
    let mut bits = 0u64;
    for &letter in letters.get(..6).ok_or("is too short: it has no trie")? {
        let value = sextet(letter).ok_or("is not base64")?;
        bits = bits << 6 | u64::from(value);
    }
    let [.., a, b, c, d] = (bits >> 4).to_be_bytes();
    let declared = u32::from_le_bytes([a, b, c, d]);
    let trie = declared as usize / 4 * 4;
    if trie == 0 {
        return Err("has an empty trie".into());
    }
    match size.checked_sub(4) {
        Some(rest) if rest >= trie => Ok(()),
        _ => Err(format!(
            "says that its trie takes {declared} bytes, but is {size} bytes long"
        )),
    }
}

/// A template of one sequence may use that sequence and the special tokens that it lists.
fn check_template(place: &str, object: &Object, tokens: &Value) -> Result<(), String> {
    for template in ["single", "pair"] {
        let pieces = object.get(template).and_then(Value::as_array);
        for (at, piece) in pieces.into_iter().flatten().enumerate() {
            let id = |kind: &str| piece.get(kind)?.get("id")?.as_str();
            if let Some(token) = id("SpecialToken")
                && tokens.get(token).is_none()
            {
                return Err(format!(
                    "{place}.{template}[{at}] is the special token \"{token}\", which special_tokens does not have"
                ));
            }
            if template == "single" && id("Sequence").is_some_and(|sequence| sequence != "A") {
                return Err(format!(
                    "{place}.single[{at}] is sequence B, but one sequence is A only"
                ));
            }
        }
    }
    Ok(())
}
