use std::io;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::Value as Json;

use super::chat_source::{self, INTO_NAMESPACE, INTO_VARIABLE};
use super::own_stack::with_own_stack;
use super::strftime::strftime;
use super::{SpecialTokens, TextError, chat_methods, chat_print, chat_values};

const NAME: &str = "chat_template";

/// What one rendering may do, as the engine counts it: a step, or 64 bytes of text made on
/// the way, is 1. A conversation of a thousand messages takes some 100,000.
const FUEL: u64 = 4_000_000;
/// Bytes of a rendered prompt; a million tokens are 4 to 5 MB.
const MAX_PROMPT: usize = 16 << 20;

/// A chat template: Jinja, as Hugging Face's tokenizers use it. Shared.
///
/// What they add to Jinja is here too: blocks trimmed (`trim_blocks`, `lstrip_blocks`),
/// `break` and `continue`, `raise_exception(text)`, `strftime_now(format)` (in UTC),
/// `tojson` that writes as Python's `json.dumps(ensure_ascii=False)`, values printed as Python
/// prints them, Python's methods of strings, lists and dicts, and `{% generation %}` blocks,
/// whose content is kept.
///
/// A template is a file from anywhere, so what it can do is bounded: its length and that of
/// its tags, its steps, how deep and how large its values are, and the prompt's length. It
/// runs on a stack of its own.
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
        let environment = chat_source::prepare(source)
            .and_then(|prepared| with_own_stack(|| environment(prepared).map_err(|error| describe(&error)))?)
            .map_err(|message| TextError::BadTemplate {
                file: label.to_owned(),
                message,
            })?;
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
        with_own_stack(|| self.fill_in(&self.context(request)?))
            .unwrap_or_else(|message| Err(TextError::Render { message }))
    }

    /// The template's variables.
    fn context(&self, request: &ChatRequest<'_>) -> Result<serde_json::Map<String, Json>, TextError> {
        let messages = parse("messages", request.messages)?;
        let Json::Array(elements) = &messages else {
            return Err(not_a("messages", "is", "a JSON array", &messages));
        };
        if let Some((at, other)) = elements
            .iter()
            .enumerate()
            .find(|(_, element)| !element.is_object())
        {
            return Err(not_a(
                "messages",
                &format!("element {at} is"),
                "a JSON object",
                other,
            ));
        }
        let tools = match request.tools {
            Some(tools) => parse("tools", tools)?,
            None => Json::Null,
        };
        if !tools.is_array() && !tools.is_null() {
            return Err(not_a("tools", "is", "a JSON array", &tools));
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
            match parse("extra", extra)? {
                Json::Object(extra) => context.extend(extra),
                other => return Err(not_a("extra", "is", "a JSON object", &other)),
            }
        }
        Ok(context)
    }

    fn fill_in(&self, context: &serde_json::Map<String, Json>) -> Result<String, TextError> {
        let mut prompt = Prompt(Vec::new());
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(Serde(context), &mut prompt).map(drop))
            .map_err(|error| describe(&error))
            .and_then(|()| String::from_utf8(prompt.0).map_err(|error| error.to_string()))
            .map_err(|message| TextError::Render { message })
    }
}

/// An engine that knows the one template.
fn environment(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(chat_methods::method);
    environment.set_formatter(|out, state, value| chat_print::write(out, state, value));
    environment.add_filter("string", chat_print::string);
    environment.add_filter("join", chat_print::join);
    environment.add_filter("int", chat_print::int);
    environment.add_filter("float", chat_print::float);
    environment.add_filter("escape", chat_print::escape);
    environment.add_filter("e", chat_print::escape);
    environment.add_filter("forceescape", chat_print::force_escape);
    environment.add_filter("wordcount", chat_print::word_count);
    environment.add_test("sequence", chat_print::is_sequence);
    environment.add_filter("tojson", chat_values::tojson);
    environment.add_filter(INTO_VARIABLE, chat_values::into_variable);
    environment.add_filter(INTO_NAMESPACE, chat_values::into_namespace);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", |format: &str| strftime(format, SystemTime::now()));
    environment.add_template_owned(NAME, source)?;
    Ok(environment)
}

/// Takes the prompt as it is written, up to its bound.
struct Prompt(Vec<u8>);

impl io::Write for Prompt {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_PROMPT {
            return Err(io::Error::other(format!(
                "the prompt is longer than {MAX_PROMPT} bytes"
            )));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn parse(what: &'static str, text: &str) -> Result<Json, TextError> {
    serde_json::from_str(text).map_err(|error| TextError::BadArgument {
        what,
        message: format!("not JSON: {error}"),
    })
}

fn not_a(what: &'static str, is: &str, expected: &str, found: &Json) -> TextError {
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
        message: format!("{is} {found}, expected {expected}"),
    }
}

/// The error's own detail, where it is in the template, and what led to it.
fn describe(error: &Error) -> String {
    if error.kind() == ErrorKind::OutOfFuel {
        return format!(
            "does more than {FUEL} steps, or makes as many times 64 bytes of text; does a loop not end?"
        );
    }
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
