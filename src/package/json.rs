//! JSON as a tree that remembers lines: serde_json reads the scalars, and what is here is
//! the grammar around them (RFC 8259). A name that comes twice in an object is an error, as
//! in YAML.

use std::collections::HashSet;
use std::ops::Range;

use crate::component::shown;

use super::document::{MAX_DEPTH, MAX_NODES, Node, NodeValue};

/// Where the text is no JSON, as a byte offset, and why.
pub(super) struct JsonError {
    pub at: usize,
    pub message: String,
}

/// Reads one value that is all of the text.
pub(super) fn read(text: &str) -> Result<Node, JsonError> {
    let mut reader = Reader {
        text,
        // A byte order mark is allowed to be ignored.
        at: if text.starts_with('\u{feff}') { 3 } else { 0 },
        line: 1,
        counted: 0,
        nodes: 0,
    };
    let node = reader.value(0)?;
    match reader.peek() {
        None => Ok(node),
        Some(found) => Err(reader.error(format!("found '{found}' after the value, expected the end"))),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    /// The line of the byte at `counted`, which is never after `at`.
    line: u64,
    counted: usize,
    nodes: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, message: impl Into<String>) -> JsonError {
        JsonError {
            at: self.at,
            message: message.into(),
        }
    }

    /// The next character that is no space, without taking it.
    fn peek(&mut self) -> Option<char> {
        let rest = self.rest();
        let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.at += rest.len() - trimmed.len();
        trimmed.chars().next()
    }

    fn take(&mut self, wanted: char, expected: &str) -> Result<(), JsonError> {
        match self.peek() {
            Some(found) if found == wanted => {
                self.at += found.len_utf8();
                Ok(())
            }
            found => Err(self.unexpected(found, expected)),
        }
    }

    fn unexpected(&self, found: Option<char>, expected: &str) -> JsonError {
        match found {
            Some(found) => self.error(format!("found '{found}', expected {expected}")),
            None => self.error(format!("the file ends, expected {expected}")),
        }
    }

    fn line(&mut self) -> u64 {
        let passed = self.text.get(self.counted..self.at).unwrap_or_default();
        self.line += passed.bytes().filter(|&byte| byte == b'\n').count() as u64;
        self.counted = self.at;
        self.line
    }

    fn value(&mut self, depth: usize) -> Result<Node, JsonError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self.error(format!("there are more than {MAX_NODES} values")));
        }
        if depth > MAX_DEPTH {
            return Err(self.error(format!("lists and objects are nested more than {MAX_DEPTH} deep")));
        }
        let found = self.peek();
        let line = self.line();
        let start = self.at;
        let value = match found {
            Some('{') => self.object(depth)?,
            Some('[') => self.list(depth)?,
            Some('"') => NodeValue::Text(self.string()?),
            Some('-' | '0'..='9') => self.number()?,
            _ => self.word(found)?,
        };
        Ok(Node {
            line: Some(line),
            span: Some(Range { start, end: self.at }),
            value,
        })
    }

    fn object(&mut self, depth: usize) -> Result<NodeValue, JsonError> {
        self.take('{', "an object")?;
        let mut entries = Vec::new();
        let mut names = HashSet::new();
        if self.peek() != Some('}') {
            loop {
                match self.peek() {
                    Some('"') => {}
                    found => return Err(self.unexpected(found, "a name in quotes")),
                }
                let start = self.at;
                let name = self.string()?;
                if !names.insert(name.clone()) {
                    return Err(JsonError {
                        at: start,
                        message: format!("\"{}\" comes twice in one object; give it once", shown(&name)),
                    });
                }
                self.take(':', "':' after a name")?;
                entries.push((name, self.value(depth + 1)?));
                match self.peek() {
                    Some(',') => self.at += 1,
                    Some('}') => break,
                    found => return Err(self.unexpected(found, "',' or '}'")),
                }
            }
        }
        self.take('}', "'}'")?;
        Ok(NodeValue::Map(entries))
    }

    fn list(&mut self, depth: usize) -> Result<NodeValue, JsonError> {
        self.take('[', "a list")?;
        let mut items = Vec::new();
        if self.peek() != Some(']') {
            loop {
                items.push(self.value(depth + 1)?);
                match self.peek() {
                    Some(',') => self.at += 1,
                    Some(']') => break,
                    found => return Err(self.unexpected(found, "',' or ']'")),
                }
            }
        }
        self.take(']', "']'")?;
        Ok(NodeValue::List(items))
    }

    /// A string, at its opening quote.
    fn string(&mut self) -> Result<String, JsonError> {
        let mut escaped = false;
        let inside = self.rest().get(1..).unwrap_or_default();
        let end = inside.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let Some(end) = end else {
            return Err(self.error("a string has no closing quote"));
        };
        let quoted = self.rest().get(..end + 2).unwrap_or_default();
        let text = serde_json::from_str(quoted).map_err(|error| self.error(plain(&error)))?;
        self.at += quoted.len();
        Ok(text)
    }

    fn number(&mut self) -> Result<NodeValue, JsonError> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !matches!(c, '-' | '+' | '.' | 'e' | 'E' | '0'..='9'))
            .unwrap_or(rest.len());
        let digits = rest.get(..end).unwrap_or_default();
        let number: serde_json::Number =
            serde_json::from_str(digits).map_err(|error| self.error(plain(&error)))?;
        self.at += end;
        Ok(match number.as_i64() {
            Some(value) => NodeValue::Int(value),
            None => NodeValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        })
    }

    fn word(&mut self, found: Option<char>) -> Result<NodeValue, JsonError> {
        let words = [
            ("null", NodeValue::Null),
            ("true", NodeValue::Bool(true)),
            ("false", NodeValue::Bool(false)),
        ];
        for (word, value) in words {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.unexpected(found, "a value"))
    }
}

/// What serde_json says, without a place that is only right within the scalar.
fn plain(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.split_once(" at line ") {
        Some((message, _)) => message.to_owned(),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree as serde_json would have it.
    fn value(node: &Node) -> serde_json::Value {
        match &node.value {
            NodeValue::Null => serde_json::Value::Null,
            NodeValue::Bool(value) => (*value).into(),
            NodeValue::Int(value) => (*value).into(),
            NodeValue::Float(value) => (*value).into(),
            NodeValue::Text(text) => text.as_str().into(),
            NodeValue::List(items) => items.iter().map(value).collect(),
            NodeValue::Map(entries) => entries
                .iter()
                .map(|(name, node)| (name.clone(), value(node)))
                .collect(),
        }
    }

    #[test]
    fn takes_what_serde_json_takes() {
        for text in [
            "{}",
            "[]",
            " [ 1 , -2.5e3 , \"a\\\"\\\\\\u00e9\" , null, true,false ] ",
            "{\"a\": {\"b\": [[], {}]}, \"\": 0}",
            "",
            " ",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\" 1}",
            "{a: 1}",
            "[1 2]",
            "01",
            "1.",
            "+1",
            "-",
            "1e999",
            "nul",
            "nullx",
            "truefalse",
            "\"open",
            "\"\\x\"",
            "\"\n\"",
            "[",
            "{",
            "]",
            "1 1",
            "'a'",
            "\u{a0}1",
            "[\"\\ud800\"]",
            "9223372036854775808",
            "NaN",
        ] {
            let expected: Result<serde_json::Value, _> = serde_json::from_str(text);
            match (read(text), expected) {
                (Ok(node), Ok(expected)) => {
                    let same = value(&node) == expected || expected.as_f64() == value(&node).as_f64();
                    assert!(same, "{text}: {} instead of {expected}", value(&node));
                }
                (Err(_), Err(_)) => {}
                (found, expected) => panic!("{text}: {} but {expected:?}", found.is_ok()),
            }
        }
    }

    #[test]
    fn lines_and_limits() {
        let node = read("\u{feff}{\n\"a\": [1,\n2]}").ok().unwrap();
        let NodeValue::Map(entries) = &node.value else {
            panic!("an object");
        };
        let NodeValue::List(items) = &entries[0].1.value else {
            panic!("a list");
        };
        assert_eq!(items[1].line, Some(3));
        let message = |text: &str| read(text).err().map(|error| (error.at, error.message));
        assert_eq!(
            message("{\"a\": 1, \"a\": 2}"),
            Some((9, "\"a\" comes twice in one object; give it once".to_owned()))
        );
        let deep = "[".repeat(100_000);
        assert!(message(&deep).unwrap().1.contains("nested more than"));
        let many = format!("[{}1]", "1,".repeat(MAX_NODES));
        assert!(message(&many).unwrap().1.contains("more than 250000 values"));
    }
}
