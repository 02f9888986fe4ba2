use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::Value as Json;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use super::strftime::strftime;
use super::{SpecialTokens, TextError};

const NAME: &str = "chat_template";

/// A chat template: Jinja, as Hugging Face's tokenizers use it. Shared.
///
/// What they add to Jinja is here too: blocks trimmed (`trim_blocks`, `lstrip_blocks`),
/// `break` and `continue`, `raise_exception(text)`, `strftime_now(format)` (in UTC),
/// `tojson` that writes as Python's `json.dumps(ensure_ascii=False)`, Python's methods of
/// strings, lists and dicts, and `{% generation %}` blocks, whose content is kept.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    special: SpecialTokens,
}

/// What a chat template is filled in with.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatRequest<'a> {
    /// JSON array of `{"role": ..., "content": ...}`, with whatever else the template reads.
    pub messages: &'a str,
    /// JSON array of tools, or `None`.
    pub tools: Option<&'a str>,
    /// JSON object of further template variables, or `None`. They win over the others
    /// (`{"bos_token": ""}`).
    pub extra: Option<&'a str>,
    /// Whether to end with the opening of the assistant's answer.
    pub add_generation_prompt: bool,
}

impl ChatTemplate {
    /// Parses a template; `label` is the file it is from, for messages.
    pub fn new(label: &str, source: &str, special: &SpecialTokens) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        let bad_template = |error: Error| TextError::BadTemplate {
            file: label.to_owned(),
            message: describe(&error),
        };
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(bad_template)?;
        environment.set_syntax(syntax);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", |format: &str| strftime(format, SystemTime::now()));
        environment
            .add_template_owned(NAME, open_generation_blocks(source))
            .map_err(bad_template)?;
        Ok(ChatTemplate {
            environment,
            source: source.to_owned(),
            special: special.clone(),
        })
    }

    /// The template as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt's text. Encode it with `add_special = false`: the template wrote the
    /// special tokens.
    pub fn render(&self, request: &ChatRequest<'_>) -> Result<String, TextError> {
        let messages = parse("messages", request.messages)?;
        if !messages.is_array() {
            return Err(not_a("messages", "a JSON array", &messages));
        }
        let tools = match request.tools {
            Some(tools) => parse("tools", tools)?,
            None => Json::Null,
        };
        if !tools.is_array() && !tools.is_null() {
            return Err(not_a("tools", "a JSON array", &tools));
        }
        let mut context = serde_json::Map::new();
        for (role, (_, text)) in self.special.named() {
            context.insert(role.to_owned(), Json::String(text.clone()));
        }
        context.insert("messages".to_owned(), messages);
        context.insert("tools".to_owned(), tools);
        context.insert("documents".to_owned(), Json::Null);
        context.insert(
            "add_generation_prompt".to_owned(),
            Json::Bool(request.add_generation_prompt),
        );
        if let Some(extra) = request.extra {
            match parse("extra arguments", extra)? {
                Json::Object(extra) => context.extend(extra),
                other => return Err(not_a("extra arguments", "a JSON object", &other)),
            }
        }
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render(Serde(&context)))
            .map_err(|error| TextError::Render {
                message: describe(&error),
            })
    }
}

fn parse(what: &'static str, text: &str) -> Result<Json, TextError> {
    serde_json::from_str(text).map_err(|error| TextError::BadArgument {
        what,
        message: format!("not JSON: {error}"),
    })
}

fn not_a(what: &'static str, expected: &str, found: &Json) -> TextError {
    let found = match found {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    };
    TextError::BadArgument {
        what,
        message: format!("is {found}, expected {expected}"),
    }
}

/// The error's own detail, where it is in the template, and what led to it.
fn describe(error: &Error) -> String {
    let mut text = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    if let Some(line) = error.line() {
        text.push_str(&format!(" (line {line} of the template)"));
    }
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}

fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

/// `{% generation %}` marks the assistant's own words for training masks; Jinja has no
/// such tag. As a block that always holds it keeps its whitespace marks.
fn open_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else {
            break;
        };
        let (before, tag) = (&rest[..start], &rest[start..start + length + 2]);
        out.push_str(before);
        let inner = tag.trim_start_matches("{%").trim_end_matches("%}");
        match inner.trim_matches(['-', '+', ' ', '\t', '\r', '\n']) {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = &rest[start + length + 2..];
    }
    out.push_str(rest);
    out
}

/// `json.dumps(value, ensure_ascii=False)`, with `indent`, `sort_keys` and `ensure_ascii`.
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let fail = |error: serde_json::Error| {
        Error::new(ErrorKind::BadSerialization, "a value cannot be written as JSON").with_source(error)
    };
    let mut json = serde_json::to_value(value).map_err(fail)?;
    if sort_keys == Some(true) {
        json.sort_all_objects();
    }
    let mut bytes = Vec::new();
    match indent {
        None => json.serialize(&mut Serializer::with_formatter(&mut bytes, PythonCompact)),
        Some(width) => {
            let indent = " ".repeat(width);
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            json.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))
        }
    }
    .map_err(fail)?;
    let mut text = String::from_utf8(bytes)
        .map_err(|_| Error::new(ErrorKind::BadSerialization, "JSON that is not UTF-8"))?;
    if ensure_ascii == Some(true) {
        text = escape_non_ascii(&text);
    }
    Ok(Value::from(text))
}

fn escape_non_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

/// Python's separators: `", "` and `": "`.
struct PythonCompact;

impl Formatter for PythonCompact {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}
