use std::sync::Arc;

/// Strings that end a text as soon as one of them is complete, wherever the pieces that the text
/// comes in begin and end.
///
/// The one that is complete first ends the text; of several that are complete with the same byte
/// the longest, of equal ones the first in the list. So where a text ends, and at which string,
/// depends on its bytes alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopStrings {
    strings: Arc<[String]>,
    /// Whether the string that ends a text is part of it.
    keep: bool,
    /// Text that was not given out yet: a string may have begun in it.
    held: String,
}

/// What of a text can be given out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    pub text: String,
    /// The string that ended it: its place in the list.
    pub stop: Option<usize>,
}

impl StopStrings {
    /// Empty strings, which every text would end with, are left out.
    pub fn new(strings: &[String], keep: bool) -> Self {
        StopStrings {
            strings: strings.into(),
            keep,
            held: String::new(),
        }
    }

    /// Adds a piece of the text and gives what cannot be part of a string that is still to come.
    /// With `last` all of it, unless a string ends it before.
    pub fn push(&mut self, piece: &str, last: bool) -> Given {
        // No string was complete before: one that is ends in the new piece.
        let new_from = self.held.len();
        self.held.push_str(piece);
        if let Some((at, stop)) = self.first_complete(new_from) {
            let length = self.strings.get(stop).map_or(0, String::len);
            let mut text = std::mem::take(&mut self.held);
            text.truncate(if self.keep { at + length } else { at });
            return Given {
                text,
                stop: Some(stop),
            };
        }
        let keep_back = if last { 0 } else { self.longest_beginning() };
        let rest = self.held.split_off(self.held.len() - keep_back);
        Given {
            text: std::mem::replace(&mut self.held, rest),
            stop: None,
        }
    }

    /// Where the string begins that is complete first, after so many bytes or later.
    fn first_complete(&self, new_from: usize) -> Option<(usize, usize)> {
        let mut found: Option<(usize, usize, usize)> = None;
        for (index, string) in self.strings.iter().enumerate() {
            let search_from = (new_from + 1).saturating_sub(string.len());
            // Not inside of a character, in which no string begins.
            let search_from = (search_from..=self.held.len()).find(|&at| self.held.is_char_boundary(at));
            let (Some(from), false) = (search_from, string.is_empty()) else {
                continue;
            };
            let Some(at) = self.held.get(from..).and_then(|text| text.find(string.as_str())) else {
                continue;
            };
            let (start, end) = (from + at, from + at + string.len());
            if found.is_none_or(|(best, best_start, _)| (end, start) < (best, best_start)) {
                found = Some((end, start, index));
            }
        }
        found.map(|(_, start, index)| (start, index))
    }

    /// Bytes at the end that a string may have begun with.
    fn longest_beginning(&self) -> usize {
        let held = self.held.as_bytes();
        let beginning = |string: &String| {
            let most = held.len().min(string.len().saturating_sub(1));
            let mut lengths = (1..=most).rev();
            lengths.find(|&length| held.ends_with(string.as_bytes().get(..length).unwrap_or_default()))
        };
        // Whole characters: a string begins with one, and the text does not end inside of one.
        let longest = self.strings.iter().filter_map(beginning).max();
        longest.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(strings: &[&str], keep: bool) -> StopStrings {
        let strings: Vec<String> = strings.iter().map(|&string| string.to_owned()).collect();
        StopStrings::new(&strings, keep)
    }

    /// What the definition says, byte by byte.
    fn by_definition(strings: &[&str], keep: bool, text: &str) -> Given {
        for end in 0..=text.len() {
            let done = |string: &&str| text.as_bytes()[..end].ends_with(string.as_bytes());
            let longest = strings
                .iter()
                .filter(|string| done(string))
                .map(|string| string.len())
                .max();
            if let Some(length) = longest {
                let index = strings
                    .iter()
                    .position(|string| string.len() == length && done(string));
                let to = if keep { end } else { end - length };
                return Given {
                    text: text[..to].to_owned(),
                    stop: index,
                };
            }
        }
        Given {
            text: text.to_owned(),
            stop: None,
        }
    }

    #[test]
    fn texts_end_where_the_definition_says_however_they_are_cut() {
        for (strings, text) in [
            (&["stop"] as &[&str], "do not stop here"),
            (&["\n\n", "\n"], "a\n\nb"),
            (&["aab", "abb"], "aaabab aabb"),
            (&["abcd", "bc", "c"], "zabcd"),
            (&["bc", "abc"], "abc"),
            (&["\u{e9}\u{e8}"], "\u{e9}\u{e9}\u{e8}\u{e9}"),
            (&["\u{1f600}"], "a\u{1f601}\u{1f600}"),
            (&["never"], "nevnevnever"),
            (&["ab"], "aaaaa"),
            (&[], "nothing ends this"),
        ] {
            let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            for keep in [false, true] {
                let expected = by_definition(strings, keep, text);
                for first in &cuts {
                    for second in cuts.iter().filter(|second| *second >= first) {
                        let mut stop = stop(strings, keep);
                        let mut given = Given::default();
                        let pieces = [&text[..*first], &text[*first..*second], &text[*second..]];
                        for (at, piece) in pieces.into_iter().enumerate() {
                            let new = stop.push(piece, at == 2);
                            given.text.push_str(&new.text);
                            // No part of the string was given out before it was complete.
                            assert!(expected.text.starts_with(&given.text), "{strings:?} {text:?}");
                            given.stop = new.stop;
                            if given.stop.is_some() {
                                break;
                            }
                        }
                        assert_eq!(given, expected, "{strings:?} {text:?} {first} {second} {keep}");
                    }
                }
            }
        }
    }

    #[test]
    fn text_is_held_back_only_while_it_may_be_a_string() {
        let mut stop = stop(&["</end>"], false);
        assert_eq!(stop.push("one </e", false).text, "one ");
        assert_eq!(stop.push("lse> two <", false).text, "</else> two ");
        assert_eq!(stop.push("", true).text, "<");
    }
}
