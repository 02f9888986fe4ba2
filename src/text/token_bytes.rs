//! What each token of a vocabulary adds to a text, in bytes.

use serde_json::Value;

use super::{TextError, Tokenizer};

/// How the tokens of a vocabulary are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// A letter for each byte, as GPT-2's tokenizers do it.
    ByteLevel,
    /// SentencePiece: U+2581 for a space; with `bytes`, `<0xE4>` is a byte.
    Pieces { bytes: bool },
    /// Some other way, which only the decoder knows.
    Decoded,
}

/// One token's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenBytes {
    /// It is not in the vocabulary.
    None,
    /// What it adds to a text that goes on.
    Text(Vec<u8>),
    /// SentencePiece's token of a byte, for what no piece has.
    Byte(u8),
    /// An added token, by its name: what it stands for is more than its letters.
    Added(String),
}

/// The bytes of all tokens, by id.
pub(super) fn of_all(tokenizer: &Tokenizer) -> Result<Vec<TokenBytes>, TextError> {
    let inner = tokenizer.inner();
    let added = inner.get_added_tokens_decoder();
    let spelling = spelling(inner);
    let letters = byte_letters();
    let mut all = Vec::new();
    let vocabulary = inner.get_vocab(true);
    let size = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
    // Ids may be anything up to 2^32: a vocabulary is no longer than its tokens are many, times a few.
    if size > vocabulary.len().saturating_mul(16).saturating_add(1 << 16) {
        return Err(TextError::BadConstraint {
            message: format!(
                "the vocabulary of {} tokens has ids up to {}; expected ids without such gaps",
                vocabulary.len(),
                size - 1
            ),
        });
    }
    all.resize(size, TokenBytes::None);
    let before = match spelling {
        Spelling::Decoded => {
            let plain = vocabulary
                .values()
                .copied()
                .filter(|id| !added.contains_key(id))
                .min();
            Some((
                plain,
                plain.map_or(Ok(String::new()), |id| tokenizer.decode_known(&[id], false))?,
            ))
        }
        _ => None,
    };
    for (token, id) in vocabulary {
        let bytes = if let Some(added) = added.get(&id) {
            TokenBytes::Added(added.content.clone())
        } else if let Some(byte) = byte_of(&token).filter(|_| spelling == (Spelling::Pieces { bytes: true }))
        {
            TokenBytes::Byte(byte)
        } else {
            TokenBytes::Text(match spelling {
                Spelling::ByteLevel => letters_to_bytes(&letters, &token),
                Spelling::Pieces { .. } => token.replace('\u{2581}', " ").into_bytes(),
                Spelling::Decoded => match &before {
                    Some((Some(first), alone)) => {
                        let both = tokenizer.decode_known(&[*first, id], false)?;
                        both.strip_prefix(alone.as_str()).unwrap_or_default().into()
                    }
                    _ => Vec::new(),
                },
            })
        };
        if let Some(slot) = all.get_mut(id as usize) {
            *slot = bytes;
        }
    }
    Ok(all)
}

/// As the decoder takes tokens.
fn spelling(inner: &tokenizers::Tokenizer) -> Spelling {
    let decoder = inner.get_decoder().map(serde_json::to_value);
    let Some(Ok(decoder)) = decoder else {
        return Spelling::Decoded;
    };
    if has(&decoder, &|part| {
        part.get("type").is_some_and(|name| name == "ByteLevel")
    }) {
        return Spelling::ByteLevel;
    }
    let bytes = has(&decoder, &|part| {
        part.get("type").is_some_and(|name| name == "ByteFallback")
    });
    let spaces = has(&decoder, &|part| match part.get("type").and_then(Value::as_str) {
        Some("Metaspace") => part.get("replacement").is_some_and(|letter| letter == "\u{2581}"),
        Some("Replace") => {
            let pattern = part.get("pattern").and_then(|pattern| pattern.get("String"));
            pattern.is_some_and(|from| from == "\u{2581}") && part.get("content").is_some_and(|to| to == " ")
        }
        _ => false,
    });
    match spaces {
        true => Spelling::Pieces { bytes },
        false => Spelling::Decoded,
    }
}

/// Whether `value` or what is inside of it is such an object.
fn has(value: &Value, such: &dyn Fn(&serde_json::Map<String, Value>) -> bool) -> bool {
    match value {
        Value::Object(object) => such(object) || object.values().any(|inside| has(inside, such)),
        Value::Array(values) => values.iter().any(|inside| has(inside, such)),
        _ => false,
    }
}

/// The byte that `<0xE4>` stands for.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_byte = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| is_byte)
}

/// The letter of each byte: printable ones of Latin-1 are their own, the others follow from
/// U+0100 on, in their order.
fn byte_letters() -> [char; 256] {
    let mut moved = 0x100;
    let mut letters = ['\0'; 256];
    for (byte, letter) in (0..=255u8).zip(&mut letters) {
        *letter = if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            char::from(byte)
        } else {
            moved += 1;
            char::from_u32(moved - 1).unwrap_or_default()
        };
    }
    letters
}

/// What is no such letter stays as it is.
fn letters_to_bytes(letters: &[char; 256], token: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(token.len());
    for letter in token.chars() {
        // All of them are below U+0144.
        let own = u8::try_from(u32::from(letter)).ok();
        let own = own.filter(|&byte| letters.get(usize::from(byte)) == Some(&letter));
        let byte = own.or_else(|| {
            let moved = (0x100..0x144).contains(&u32::from(letter));
            let place = letters.iter().position(|&of| moved && of == letter);
            place.and_then(|place| u8::try_from(place).ok())
        });
        match byte {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_bytes_are_those_of_gpt_2() {
        let letters = byte_letters();
        // From GPT-2's encoder: space, newline, NUL, 0x7f, 0xa0, 0xad.
        for (byte, letter) in [
            (b' ', '\u{120}'),
            (b'\n', '\u{10a}'),
            (0, '\u{100}'),
            (0x7f, '\u{121}'),
            (0xa0, '\u{142}'),
            (0xad, '\u{143}'),
            (b'a', 'a'),
            (0xe9, '\u{e9}'),
        ] {
            assert_eq!(letters[usize::from(byte)], letter, "{byte:#x}");
        }
        for byte in 0..=255u8 {
            let text = letters[usize::from(byte)].to_string();
            assert_eq!(letters_to_bytes(&letters, &text), [byte]);
        }
        assert_eq!(
            letters_to_bytes(&letters, "\u{144}\u{20ac}"),
            "\u{144}\u{20ac}".as_bytes()
        );
    }

    #[test]
    fn byte_tokens_are_two_digits() {
        assert_eq!(byte_of("<0xE4>"), Some(0xe4));
        for other in ["<0xE>", "<0xE44>", "<0x+4>", "0xE4", "<0xZZ>"] {
            assert_eq!(byte_of(other), None, "{other}");
        }
    }
}
