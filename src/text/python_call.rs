//! Calls as Python writes them, with literals for arguments: `get_weather(city="Paris", days=3)`.

use serde_json::{Map, Number, Value};

/// Lists and dicts inside of each other.
const MOST_DEPTH: usize = 64;

/// Why a text is no such call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoCall {
    /// It may become one with more text.
    Unfinished,
    /// At this byte of the text.
    At(usize),
}

/// A call's name, which may have dots in it, and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PythonCall {
    pub name: String,
    pub arguments: Map<String, Value>,
}

/// A call at the beginning of a text, and the bytes that it takes.
pub(super) fn call(text: &str) -> Result<(PythonCall, usize), NoCall> {
    let mut reader = Reader { text, at: 0 };
    let call = reader.call()?;
    Ok((call, reader.at))
}

/// `[f(a=1), g()]`, with white space around; and the bytes that it takes.
pub(super) fn list(text: &str) -> Result<(Vec<PythonCall>, usize), NoCall> {
    let mut reader = Reader { text, at: 0 };
    reader.expect('[')?;
    let mut calls = Vec::new();
    while reader.peek()? != ']' {
        calls.push(reader.call()?);
        if reader.peek()? == ',' {
            reader.expect(',')?;
        } else if reader.peek()? != ']' {
            return Err(NoCall::At(reader.at));
        }
    }
    reader.expect(']')?;
    Ok((calls, reader.at))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The next character that is no white space.
    fn peek(&mut self) -> Result<char, NoCall> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.rest().chars().next().ok_or(NoCall::Unfinished)
    }

    fn expect(&mut self, wanted: char) -> Result<(), NoCall> {
        if self.peek()? != wanted {
            return Err(NoCall::At(self.at));
        }
        self.at += wanted.len_utf8();
        Ok(())
    }

    /// A name, with dots if they are `dotted`.
    fn name(&mut self, dotted: bool) -> Result<&'a str, NoCall> {
        let first = self.peek()?;
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || (dotted && (c == '.' || c == '-'));
        if !(first.is_alphabetic() || first == '_') {
            return Err(NoCall::At(self.at));
        }
        let rest = self.rest();
        let length = rest.find(|c| !is_name(c)).ok_or(NoCall::Unfinished)?;
        self.at += length;
        Ok(rest.get(..length).unwrap_or_default())
    }

    fn call(&mut self) -> Result<PythonCall, NoCall> {
        let name = self.name(true)?.to_owned();
        self.expect('(')?;
        let mut arguments = Map::new();
        while self.peek()? != ')' {
            let key = self.name(false)?.to_owned();
            self.expect('=')?;
            let value = self.value(0)?;
            arguments.insert(key, value);
            self.next_or(')')?;
        }
        self.expect(')')?;
        Ok(PythonCall { name, arguments })
    }

    /// Goes past a comma, if that is what follows and not the end.
    fn next_or(&mut self, end: char) -> Result<(), NoCall> {
        match self.peek()? {
            ',' => self.expect(','),
            found if found == end => Ok(()),
            _ => Err(NoCall::At(self.at)),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, NoCall> {
        if depth > MOST_DEPTH {
            return Err(NoCall::At(self.at));
        }
        match self.peek()? {
            quote @ ('"' | '\'') => self.string(quote).map(Value::String),
            '[' => self.items('[', ']', depth),
            '(' => self.items('(', ')', depth),
            '{' => {
                self.expect('{')?;
                let mut object = Map::new();
                while self.peek()? != '}' {
                    let quote = self.peek()?;
                    if !matches!(quote, '"' | '\'') {
                        return Err(NoCall::At(self.at));
                    }
                    let key = self.string(quote)?;
                    self.expect(':')?;
                    let value = self.value(depth + 1)?;
                    object.insert(key, value);
                    self.next_or('}')?;
                }
                self.expect('}')?;
                Ok(Value::Object(object))
            }
            _ => self.word(),
        }
    }

    fn items(&mut self, open: char, close: char, depth: usize) -> Result<Value, NoCall> {
        self.expect(open)?;
        let mut items = Vec::new();
        while self.peek()? != close {
            items.push(self.value(depth + 1)?);
            self.next_or(close)?;
        }
        self.expect(close)?;
        Ok(Value::Array(items))
    }

    /// A number or a name that Python knows.
    fn word(&mut self) -> Result<Value, NoCall> {
        let rest = self.rest();
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-');
        let length = rest.find(|c| !is_word(c)).ok_or(NoCall::Unfinished)?;
        let word = rest.get(..length).unwrap_or_default();
        let number = || {
            let digits = word.replace('_', "");
            let whole = digits.parse::<i64>().ok().map(Number::from);
            whole.or_else(|| {
                let is_number =
                    digits.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
                is_number
                    .then(|| digits.parse().ok().and_then(Number::from_f64))
                    .flatten()
            })
        };
        let value = match word {
            "True" | "true" => Value::Bool(true),
            "False" | "false" => Value::Bool(false),
            "None" | "null" => Value::Null,
            _ => Value::Number(number().ok_or(NoCall::At(self.at))?),
        };
        self.at += length;
        Ok(value)
    }

    fn string(&mut self, quote: char) -> Result<String, NoCall> {
        self.expect(quote)?;
        let mut string = String::new();
        loop {
            let c = self.next_char()?;
            match c {
                _ if c == quote => return Ok(string),
                '\\' => {
                    let start = self.at;
                    match self.next_char()? {
                        'n' => string.push('\n'),
                        't' => string.push('\t'),
                        'r' => string.push('\r'),
                        '\n' => {}
                        'x' => string.push(self.code(2, start)?),
                        'u' => string.push(self.code(4, start)?),
                        'U' => string.push(self.code(8, start)?),
                        c @ ('\\' | '\'' | '"') => string.push(c),
                        // Python keeps a backslash that escapes nothing.
                        c => string.extend(['\\', c]),
                    }
                }
                c => string.push(c),
            }
        }
    }

    fn next_char(&mut self) -> Result<char, NoCall> {
        let c = self.rest().chars().next().ok_or(NoCall::Unfinished)?;
        self.at += c.len_utf8();
        Ok(c)
    }

    /// The character whose code so many digits are.
    fn code(&mut self, digits: usize, start: usize) -> Result<char, NoCall> {
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.next_char()?.to_digit(16).ok_or(NoCall::At(start))?;
            code = code * 16 + digit;
        }
        char::from_u32(code).ok_or(NoCall::At(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // Expected: Python's ast.literal_eval of the arguments.
    #[test]
    fn literals_are_those_of_python() {
        let text = r#"a.b(s="it's\n\x41\u00e9", t='q"', n=-3, f=1.5e3, b=True, z=None, l=[1, (2,),], d={'k': False,}) rest"#;
        let (found, length) = call(text).unwrap();
        assert_eq!(found.name, "a.b");
        assert_eq!(
            Value::Object(found.arguments),
            json!({"s": "it's\nA\u{e9}", "t": "q\"", "n": -3, "f": 1500.0, "b": true, "z": null,
                   "l": [1, [2]], "d": {"k": false}})
        );
        assert_eq!(&text[length..], " rest");
        let (calls, _) = list("[f(), g(x=1)]").unwrap();
        assert_eq!(calls.len(), 2);
    }

    #[test]
    fn every_beginning_of_a_call_is_unfinished() {
        let text = "[f(a=\"x\\\"y\", b=[1, {'k': None}]), g.h(c=-2.5)]";
        for end in 0..text.len() {
            assert_eq!(list(&text[..end]), Err(NoCall::Unfinished), "{}", &text[..end]);
        }
        for (text, at) in [
            ("f(1)", 2),
            ("f(a:1)", 3),
            ("(a=1)", 0),
            ("f(a=b)", 4),
            ("f(a=1 b=2)", 6),
        ] {
            assert_eq!(call(text), Err(NoCall::At(at)), "{text}");
        }
        let deep = format!("f(a={}", "[".repeat(100_000));
        assert!(matches!(call(&deep), Err(NoCall::At(_))));
    }
}
