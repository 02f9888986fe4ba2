//! What a file or a caller gave, in messages: its beginning only, so that no message is as
//! long as they like.

use std::fmt::{self, Display};

/// The most bytes of a value, and names of a list, that a message repeats.
const SHOWN_BYTES: usize = 200;
const SHOWN_NAMES: usize = 30;

/// A value that a file or a caller gave, as far as a message repeats it.
pub(crate) fn shown(text: &str) -> impl Display + '_ {
    fmt::from_fn(move |f| {
        if text.len() <= SHOWN_BYTES {
            return f.write_str(text);
        }
        let end = text.floor_char_boundary(SHOWN_BYTES);
        let start = text.get(..end).unwrap_or_default();
        write!(f, "{start}... ({} bytes)", text.len())
    })
}

/// `"a", "b"`, or `(none)`.
pub(crate) fn quoted(names: &[String]) -> impl Display + '_ {
    joined(names, "\"", ", ")
}

/// `a, b`
pub(crate) fn listed(names: &[String]) -> impl Display + '_ {
    joined(names, "", ", ")
}

/// Names, each in `quote`s, as far as a message repeats them.
pub(crate) fn joined<'n>(names: &'n [String], quote: &'n str, separator: &'n str) -> impl Display + 'n {
    fmt::from_fn(move |f| {
        if names.is_empty() {
            return f.write_str("(none)");
        }
        for (index, name) in names.iter().take(SHOWN_NAMES).enumerate() {
            let separator = if index > 0 { separator } else { "" };
            write!(f, "{separator}{quote}{}{quote}", shown(name))?;
        }
        match names.len().saturating_sub(SHOWN_NAMES) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ones_whole_and_long_ones_cut_between_characters() {
        assert_eq!(shown("a b").to_string(), "a b");
        let long = "\u{e9}".repeat(150);
        assert_eq!(
            shown(&long).to_string(),
            format!("{}... (300 bytes)", "\u{e9}".repeat(100))
        );
        let odd = format!("a{long}");
        assert!(shown(&odd).to_string().ends_with("\u{e9}... (301 bytes)"));
        let names: Vec<String> = (0..40).map(|index| index.to_string()).collect();
        assert!(listed(&names).to_string().ends_with("28, 29 and 10 more"));
        assert_eq!(quoted(&names[..2]).to_string(), "\"0\", \"1\"");
        assert_eq!(quoted(&[]).to_string(), "(none)");
    }
}
