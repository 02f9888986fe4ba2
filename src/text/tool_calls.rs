//! The calls of tools in an answer's text.

use serde_json::{Map, Value, json};

use super::TextError;
use super::python_call::{self, NoCall, PythonCall};
use super::tool_parameters::{self, ToolSchemas};

/// How a model writes calls, after the family of public chat templates that ask for it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToolCallFormat {
    /// `<tool_call>{"name": "f", "arguments": {...}}</tool_call>`: Hermes, Qwen 2.5 and 3; and
    /// Qwen3-Coder's `<tool_call><function=f><parameter=a>1</parameter></function></tool_call>`.
    Hermes,
    /// `{"name": "f", "parameters": {...}}`, several with `;` between, after `<|python_tag|>` or
    /// alone; `<|python_tag|>f.call(a="1")`; and other text after that tag as Python code: Llama 3.
    Llama3,
    /// `[f(a="1"), g(b=2)]`: Llama 3.2 and 4.
    Pythonic,
    /// `[TOOL_CALLS][{"name": "f", "arguments": {...}, "id": "..."}]`, and the later
    /// `[TOOL_CALLS]f[CALL_ID]...[ARGS]{...}`: Mistral.
    Mistral,
    /// Between `<｜tool▁call▁begin｜>` and `<｜tool▁call▁end｜>`: `function<｜tool▁sep｜>f` and JSON in
    /// a code block (V3, R1), or `f<｜tool▁sep｜>{...}` (V3.1): DeepSeek.
    DeepSeek,
    /// `<function=f>{...}</function>`: Functionary 3.1, Llama 3.1 with custom tools.
    FunctionTag,
    /// `>>>f` and JSON on the next line, with `>>>all` before text: Functionary 3.2.
    Functionary,
    /// `<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>`: GLM 4.5 and later.
    Glm,
}

impl ToolCallFormat {
    const ALL: [(&'static str, ToolCallFormat); 8] = [
        ("hermes", ToolCallFormat::Hermes),
        ("llama3", ToolCallFormat::Llama3),
        ("pythonic", ToolCallFormat::Pythonic),
        ("mistral", ToolCallFormat::Mistral),
        ("deepseek", ToolCallFormat::DeepSeek),
        ("function_tag", ToolCallFormat::FunctionTag),
        ("functionary", ToolCallFormat::Functionary),
        ("glm", ToolCallFormat::Glm),
    ];

    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(_, format)| *format == self)
            .map_or("", |(name, _)| name)
    }

    /// The format of a name; an error that lists the names.
    pub fn of_name(name: &str) -> Result<Self, TextError> {
        let mut all = Self::ALL.iter();
        let found = all.find(|(known, _)| *known == name);
        found.map(|(_, format)| *format).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|(known, _)| *known).collect();
            TextError::BadArgument {
                what: "format",
                message: format!(
                    "there is no format \"{name}\" of tool calls; they are {}",
                    known.join(", ")
                ),
            }
        })
    }

    /// The format that a chat template asks for, as far as its text shows one.
    pub fn of_template(source: &str) -> Option<Self> {
        // Some templates have the tags of several; the ones that tell them apart come first.
        let marks = [
            ("\u{ff5c}tool\u{2581}call", ToolCallFormat::DeepSeek),
            ("[TOOL_CALLS]", ToolCallFormat::Mistral),
            (">>>all", ToolCallFormat::Functionary),
            ("<arg_key>", ToolCallFormat::Glm),
            ("<tool_call>", ToolCallFormat::Hermes),
            ("<function=", ToolCallFormat::FunctionTag),
            ("func_name1(params_name1=params_value1", ToolCallFormat::Pythonic),
            ("<|python_tag|>", ToolCallFormat::Llama3),
            ("Environment: ipython", ToolCallFormat::Llama3),
        ];
        let mut marks = marks.into_iter();
        marks
            .find(|(mark, _)| source.contains(mark))
            .map(|(_, format)| format)
    }

    /// The format that a text is in, as far as it shows one.
    fn of_text(text: &str) -> Option<Self> {
        if let Some(format) = Self::of_template(text) {
            return Some(format);
        }
        let start = text.trim_start();
        if start.starts_with(">>>") {
            return Some(ToolCallFormat::Functionary);
        }
        let inside = start.strip_prefix('{')?.trim_start();
        inside.starts_with("\"name\"").then_some(ToolCallFormat::Llama3)
    }
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// As the model gave it, which few do.
    pub id: Option<String>,
    pub name: String,
    pub arguments: Map<String, Value>,
}

/// What an answer's text says, and what it calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCalls {
    pub format: Option<ToolCallFormat>,
    /// The text outside of calls; without white space at its ends if there are any.
    pub content: String,
    /// Those that are complete.
    pub calls: Vec<ToolCall>,
    /// Whether the text does not end inside of a call.
    pub complete: bool,
}

impl ToolCalls {
    /// Finds the calls in a text, the special tokens of which may be there or not. Without a
    /// `format` it is the one that the text shows. While the text is not `finished`, an end that
    /// may begin a call is no content yet. What begins as a call and cannot become one is an error.
    ///
    /// The types of arguments that are written as plain text are those that the `tools` say, and
    /// without that what they are in JSON.
    pub fn parse(
        format: Option<ToolCallFormat>,
        tools: &ToolSchemas,
        text: &str,
        finished: bool,
    ) -> Result<Self, TextError> {
        let format = format.or_else(|| ToolCallFormat::of_text(text));
        let text = ENDS
            .iter()
            .find_map(|end| text.trim_end().strip_suffix(end))
            .unwrap_or(text);
        let held = match finished {
            true => 0,
            false => ENDS.iter().map(|end| beginning_of(text, end)).max().unwrap_or(0),
        };
        let mut found = Found {
            text: text.get(..text.len() - held).unwrap_or_default(),
            finished,
            tools,
            calls: ToolCalls {
                format,
                complete: held == 0,
                ..ToolCalls::default()
            },
        };
        match format {
            None => found.calls.content.push_str(found.text),
            Some(ToolCallFormat::Hermes) => {
                found.tagged("<tool_call>", "</tool_call>", Found::hermes_call)?
            }
            Some(ToolCallFormat::Glm) => found.tagged("<tool_call>", "</tool_call>", Found::glm_call)?,
            Some(ToolCallFormat::FunctionTag) => {
                found.tagged("<function=", "</function>", Found::function_tag_call)?;
            }
            Some(ToolCallFormat::Mistral) => found.mistral()?,
            Some(ToolCallFormat::DeepSeek) => found.deepseek()?,
            Some(ToolCallFormat::Llama3) => found.llama3()?,
            Some(ToolCallFormat::Pythonic) => found.pythonic()?,
            Some(ToolCallFormat::Functionary) => found.functionary()?,
        }
        let mut calls = found.calls;
        if !calls.calls.is_empty() {
            calls.content = calls.content.trim().to_owned();
        }
        Ok(calls)
    }

    /// As a JSON object: format, content, tool_calls as in a chat's message, complete.
    pub fn to_json(&self) -> Value {
        let calls = self.calls.iter().map(|call| {
            let mut json = Map::new();
            if let Some(id) = &call.id {
                json.insert("id".to_owned(), json!(id));
            }
            json.insert("type".to_owned(), json!("function"));
            json.insert(
                "function".to_owned(),
                json!({"name": call.name, "arguments": call.arguments}),
            );
            Value::Object(json)
        });
        json!({
            "format": self.format.map(ToolCallFormat::name),
            "content": self.content,
            "tool_calls": calls.collect::<Vec<Value>>(),
            "complete": self.complete,
        })
    }
}

/// What models end an answer with.
const ENDS: [&str; 7] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "</s>",
    "<|endoftext|>",
    "<|observation|>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
];

struct Found<'a> {
    text: &'a str,
    finished: bool,
    tools: &'a ToolSchemas,
    calls: ToolCalls,
}

/// A call that begins in the text, and where it ends.
enum Read {
    Call(ToolCall, usize),
    Unfinished,
}

impl<'a> Found<'a> {
    /// Where a part of the text is in it.
    fn place(&self, part: &str) -> usize {
        (part.as_ptr().addr().saturating_sub(self.text.as_ptr().addr())).min(self.text.len())
    }

    fn bad(&self, part: &str, message: impl std::fmt::Display) -> TextError {
        TextError::ToolCall {
            format: self.calls.format.map_or("", ToolCallFormat::name),
            at: self.place(part),
            message: message.to_string(),
        }
    }

    /// Text before the next `mark`, which goes to the content, and the text after it; `None` where
    /// there is no more.
    fn before(&mut self, text: &'a str, mark: &str) -> Option<&'a str> {
        if let Some((before, after)) = text.split_once(mark) {
            self.calls.content.push_str(before);
            return Some(after);
        }
        let held = if self.finished {
            0
        } else {
            beginning_of(text, mark)
        };
        self.calls.complete &= held == 0;
        let content = text.get(..text.len() - held).unwrap_or_default();
        self.calls.content.push_str(content);
        None
    }

    /// Calls between two tags.
    fn tagged(
        &mut self,
        open: &str,
        close: &str,
        read: fn(&Found<'a>, &'a str) -> Result<Option<ToolCall>, TextError>,
    ) -> Result<(), TextError> {
        let mut rest = self.text;
        while let Some(after) = self.before(rest, open) {
            let Some((inside, after)) = self.split_call(after, close) else {
                // Models leave the last tag out, too, once the call itself is there, which shows in all
                // formats but one.
                let shows = self.finished && self.calls.format != Some(ToolCallFormat::Glm);
                let call = read(self, after).ok().flatten().filter(|_| shows);
                match call {
                    Some(call) => self.calls.calls.push(call),
                    None => self.calls.complete = false,
                }
                return Ok(());
            };
            match read(self, inside)? {
                Some(call) => self.calls.calls.push(call),
                None => return Err(self.bad(inside, "the call ends before its JSON does")),
            }
            rest = after;
        }
        Ok(())
    }

    /// A call and the text behind its `mark`, which inside of the call's JSON or of a value is none.
    fn split_call(&self, text: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
        let plain = text.split_once(mark);
        let marks = [
            ("{", None),
            ("<parameter=", Some("</parameter>")),
            ("<arg_value>", Some("</arg_value>")),
            (mark, None),
        ];
        let marks = marks.into_iter();
        let first = marks.filter_map(|(open, close)| Some((text.find(open)?, open, close)));
        let brace = match first.min() {
            Some((_, open, Some(close))) => return self.split_behind_values(text, mark, open, close),
            Some((at, "{", None)) => at,
            _ => return plain,
        };
        match self.json(text.get(brace..).unwrap_or_default()) {
            Ok(Some((_, rest))) => {
                let (_, after) = rest.split_once(mark)?;
                split_before(text, mark, after)
            }
            // The mark may be in a string that is yet to end.
            Ok(None) if !self.finished => None,
            _ => plain,
        }
    }

    fn split_behind_values(
        &self,
        text: &'a str,
        mark: &str,
        open: &str,
        close: &str,
    ) -> Option<(&'a str, &'a str)> {
        let mut rest = text;
        loop {
            let (before, after) = rest.split_once(mark)?;
            let Some(at) = before.find(open) else {
                return split_before(text, mark, after);
            };
            match rest.get(at..).and_then(|value| value.split_once(close)) {
                Some((_, behind)) => rest = behind,
                None if self.finished => return split_before(text, mark, after),
                None => return None,
            }
        }
    }

    fn hermes_call(&self, inside: &'a str) -> Result<Option<ToolCall>, TextError> {
        let start = inside.trim_start();
        let Some(function) = start.strip_prefix("<function=") else {
            let Some((value, rest)) = self.json(inside)? else {
                return Ok(None);
            };
            if !rest.trim().is_empty() {
                return Err(self.bad(rest, "there is more text than one JSON object"));
            }
            return self.call_of(value, inside).map(Some);
        };
        let (Some((name, body)), true) = (function.split_once('>'), function.contains("</function>")) else {
            return Ok(None);
        };
        let name = name.trim();
        let arguments = tool_parameters::parameters(self.tools, name, body);
        Ok(Some(ToolCall {
            id: None,
            name: name.to_owned(),
            arguments: arguments.map_err(|(part, message)| self.bad(part, message))?,
        }))
    }

    fn glm_call(&self, inside: &'a str) -> Result<Option<ToolCall>, TextError> {
        let read = tool_parameters::keys_and_values(self.tools, inside);
        let (name, arguments) = read.map_err(|(part, message)| self.bad(part, message))?;
        Ok(Some(ToolCall {
            id: None,
            name: name.to_owned(),
            arguments,
        }))
    }

    /// `f>{...}`
    fn function_tag_call(&self, inside: &'a str) -> Result<Option<ToolCall>, TextError> {
        let Some((name, json)) = inside.split_once('>') else {
            return Ok(None);
        };
        let Some((arguments, rest)) = self.json(json)? else {
            return Ok(None);
        };
        if !rest.trim().is_empty() {
            return Err(self.bad(rest, "there is more text than one JSON object"));
        }
        Ok(Some(ToolCall {
            id: None,
            name: name.trim().to_owned(),
            arguments: self.arguments(Some(arguments), json)?,
        }))
    }

    fn mistral(&mut self) -> Result<(), TextError> {
        const MARK: &str = "[TOOL_CALLS]";
        let start = self.text.trim_start();
        // Without its special token.
        let bare = start.starts_with("[{") && !self.text.contains(MARK);
        let mut rest = match bare {
            true => Some(start),
            false => self.before(self.text, MARK),
        };
        while let Some(inside) = rest {
            let start = inside.trim_start();
            let after = match start.starts_with('[') {
                true => {
                    let Some((list, after)) = self.json(start)? else {
                        self.calls.complete = false;
                        return Ok(());
                    };
                    let Value::Array(list) = list else {
                        return Err(self.bad(start, "expected an array of calls"));
                    };
                    for value in list {
                        let call = self.call_of(value, start)?;
                        self.calls.calls.push(call);
                    }
                    after
                }
                false => match self.mistral_call(start)? {
                    Read::Call(call, length) => {
                        self.calls.calls.push(call);
                        start.get(length..).unwrap_or_default()
                    }
                    Read::Unfinished => {
                        self.calls.complete = false;
                        return Ok(());
                    }
                },
            };
            rest = self.before(after, MARK);
        }
        Ok(())
    }

    /// `f[CALL_ID]id[ARGS]{...}`, or `f{...}`
    fn mistral_call(&self, text: &'a str) -> Result<Read, TextError> {
        let Some(brace) = text.find('{') else {
            return Ok(Read::Unfinished);
        };
        let (head, json) = text.split_at(brace);
        let head = head.trim_end();
        let head = head.strip_suffix("[ARGS]").unwrap_or(head);
        let (name, id) = match head.split_once("[CALL_ID]") {
            Some((name, id)) => (name, Some(id.trim().to_owned())),
            None => (head, None),
        };
        let name = name.trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(self.bad(text, "expected a tool's name, or an array of calls"));
        }
        let Some((arguments, rest)) = self.json(json)? else {
            return Ok(Read::Unfinished);
        };
        let call = ToolCall {
            id,
            name: name.to_owned(),
            arguments: self.arguments(Some(arguments), json)?,
        };
        Ok(Read::Call(call, text.len() - rest.len()))
    }

    fn deepseek(&mut self) -> Result<(), TextError> {
        const ALL: [&str; 2] = [
            "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>",
            "<\u{ff5c}tool\u{2581}calls\u{2581}end\u{ff5c}>",
        ];
        self.tagged(
            "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>",
            "<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>",
            Found::deepseek_call,
        )?;
        for mark in ALL {
            self.calls.content = self.calls.content.replace(mark, "");
        }
        if !self.finished {
            let held = ALL
                .iter()
                .map(|mark| beginning_of(&self.calls.content, mark))
                .max()
                .unwrap_or(0);
            self.calls.complete &= held == 0;
            self.calls.content.truncate(self.calls.content.len() - held);
        }
        Ok(())
    }

    fn deepseek_call(&self, inside: &'a str) -> Result<Option<ToolCall>, TextError> {
        let Some((kind, rest)) = inside.split_once("<\u{ff5c}tool\u{2581}sep\u{ff5c}>") else {
            return Ok(None);
        };
        let (name, json) = match rest.split_once("```json") {
            Some((name, json)) => (name.trim(), json),
            None if kind.trim() == "function" => match rest.split_once('\n') {
                Some((name, json)) => (name.trim(), json),
                None => return Ok(None),
            },
            None => (kind.trim(), rest),
        };
        let Some((arguments, _)) = self.json(json)? else {
            return Ok(None);
        };
        Ok(Some(ToolCall {
            id: None,
            name: name.to_owned(),
            arguments: self.arguments(Some(arguments), json)?,
        }))
    }

    fn llama3(&mut self) -> Result<(), TextError> {
        const TAG: &str = "<|python_tag|>";
        if let Some((before, after)) = self.text.split_once(TAG) {
            self.calls.content.push_str(before);
            let start = after.trim_start();
            if start.starts_with('{') {
                return self.llama3_objects(start);
            }
            match python_call::call(start) {
                Ok((call, length)) if start.get(length..).is_some_and(|rest| rest.trim().is_empty()) => {
                    let call = python_tool(call);
                    let name = call.name.strip_suffix(".call").unwrap_or(&call.name).to_owned();
                    self.calls.calls.push(ToolCall { name, ..call });
                }
                _ if !self.finished || start.is_empty() => self.calls.complete = false,
                _ => self.calls.calls.push(ToolCall {
                    id: None,
                    name: "python".to_owned(),
                    arguments: Map::from_iter([("code".to_owned(), json!(after))]),
                }),
            }
            return Ok(());
        }
        let start = self.text.trim_start();
        let inside = start.strip_prefix('{').map(str::trim_start);
        let is_call = inside.is_some_and(|inside| {
            let open = !self.finished && ["\"name\"", "\"type\""].iter().any(|key| key.starts_with(inside));
            open || inside.starts_with("\"name\"") || inside.starts_with("\"type\"")
        });
        if is_call {
            // JSON of another kind is an answer.
            let is_answer = match self.json(start)? {
                Some((value, _)) => !is_call_alone(&value) || self.call_of(value, start).is_err(),
                None => false,
            };
            if is_answer {
                self.calls.content.push_str(self.text);
                return Ok(());
            }
            return self.llama3_objects(start);
        }
        if self.before(self.text, TAG).is_some() {
            self.calls.complete = false;
        }
        Ok(())
    }

    /// `{...}; {...}`
    fn llama3_objects(&mut self, text: &'a str) -> Result<(), TextError> {
        let mut rest = text;
        while !rest.is_empty() {
            let Some((value, after)) = self.json(rest)? else {
                self.calls.complete = false;
                return Ok(());
            };
            if !self.calls.calls.is_empty() && !is_call_alone(&value) {
                self.calls.content.push_str(rest);
                return Ok(());
            }
            let call = self.call_of(value, rest)?;
            self.calls.calls.push(call);
            let after = after.trim_start();
            rest = after.strip_prefix(';').unwrap_or(after).trim_start();
            if !rest.is_empty() && !rest.starts_with('{') {
                self.calls.content.push_str(rest);
                return Ok(());
            }
        }
        Ok(())
    }

    fn pythonic(&mut self) -> Result<(), TextError> {
        let start = self.text.trim_start();
        let start = start
            .strip_prefix("<|python_start|>")
            .unwrap_or(start)
            .trim_start();
        if !start.starts_with('[') {
            self.calls.content.push_str(self.text);
            return Ok(());
        }
        match python_call::list(start) {
            Ok((calls, length)) => {
                self.calls.calls.extend(calls.into_iter().map(python_tool));
                let rest = start.get(length..).unwrap_or_default().trim();
                self.calls
                    .content
                    .push_str(rest.strip_prefix("<|python_end|>").unwrap_or(rest));
            }
            Err(NoCall::Unfinished) => self.calls.complete = false,
            // A list of something else.
            Err(NoCall::At(_)) => self.calls.content.push_str(self.text),
        }
        Ok(())
    }

    /// What is before the next mark, and the text behind that.
    fn functionary_part(&self, text: &'a str) -> (&'a str, Option<&'a str>) {
        const MARK: &str = ">>>";
        let named = text.split_once('\n');
        let json = named.filter(|(recipient, body)| {
            !recipient.contains(MARK) && recipient.trim() != "all" && body.trim_start().starts_with('{')
        });
        let split = match json.map(|(_, body)| self.json(body)) {
            Some(Ok(Some((_, behind)))) => behind.split_once(MARK).map(|(_, after)| after),
            // The mark may be in a string that is yet to end.
            Some(Ok(None)) if !self.finished => None,
            _ => text.split_once(MARK).map(|(_, after)| after),
        };
        let length = split.map_or(text.len(), |after| text.len() - after.len() - MARK.len());
        (text.get(..length).unwrap_or_default(), split)
    }

    fn functionary(&mut self) -> Result<(), TextError> {
        if !self.finished && !self.text.is_empty() && ">>>".starts_with(self.text) {
            self.calls.complete = false;
            return Ok(());
        }
        let mut rest = Some(self.text.strip_prefix(">>>").unwrap_or(self.text));
        while let Some(text) = rest {
            let (part, after) = self.functionary_part(text);
            rest = after;
            let Some((recipient, body)) = part.split_once('\n') else {
                // A recipient that is still being written, or plain text.
                let is_name =
                    !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || "_.-".contains(c));
                match is_name && !self.finished {
                    true => self.calls.complete = false,
                    false => self.calls.content.push_str(part),
                }
                continue;
            };
            let recipient = recipient.trim();
            let held = if self.finished {
                0
            } else {
                beginning_of(body, ">>>")
            };
            if recipient == "all" {
                self.calls.complete &= held == 0;
                self.calls
                    .content
                    .push_str(body.get(..body.len() - held).unwrap_or_default());
            } else if body.trim_start().starts_with('{') {
                match self.json(body)? {
                    Some((arguments, _)) => {
                        let call = ToolCall {
                            id: None,
                            name: recipient.to_owned(),
                            arguments: self.arguments(Some(arguments), body)?,
                        };
                        self.calls.calls.push(call);
                    }
                    None => self.calls.complete = false,
                }
            } else if body.trim().is_empty() && !self.finished {
                self.calls.complete = false;
            } else if recipient == "python" {
                let arguments = Map::from_iter([("code".to_owned(), json!(body))]);
                match self.finished {
                    true => self.calls.calls.push(ToolCall {
                        id: None,
                        name: recipient.to_owned(),
                        arguments,
                    }),
                    false => self.calls.complete = false,
                }
            } else {
                self.calls.content.push_str(part);
            }
        }
        Ok(())
    }

    /// The JSON value at the beginning of a text, and what follows it; `None` if it goes on behind
    /// the end.
    fn json(&self, text: &'a str) -> Result<Option<(Value, &'a str)>, TextError> {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        match values.next() {
            None => Ok(None),
            Some(Ok(value)) => {
                let rest = text.get(values.byte_offset()..).unwrap_or_default();
                Ok(Some((value, rest)))
            }
            Some(Err(error)) if error.is_eof() => Ok(None),
            Some(Err(error)) => Err(self.bad(text, format!("not JSON: {error}"))),
        }
    }

    /// `{"name": ..., "arguments" or "parameters": ..., "id": ...}`, or that inside of "function".
    fn call_of(&self, value: Value, text: &str) -> Result<ToolCall, TextError> {
        let Value::Object(mut object) = value else {
            return Err(self.bad(
                text,
                format!("expected a JSON object with \"name\", found {value}"),
            ));
        };
        let id = object.get("id").and_then(Value::as_str).map(str::to_owned);
        if let Some(Value::Object(function)) = object.remove("function") {
            object = function;
        }
        let Some(name) = object.get("name").and_then(Value::as_str).map(str::to_owned) else {
            return Err(self.bad(text, "the call has no \"name\" that is a string"));
        };
        let arguments = object.remove("arguments").or_else(|| object.remove("parameters"));
        Ok(ToolCall {
            id,
            name,
            arguments: self.arguments(arguments, text)?,
        })
    }

    /// An object, or one as a string; none at all are no arguments.
    fn arguments(&self, value: Option<Value>, text: &str) -> Result<Map<String, Value>, TextError> {
        match value {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(arguments)) => Ok(arguments),
            Some(Value::String(json)) => match serde_json::from_str(&json) {
                Ok(Value::Object(arguments)) => Ok(arguments),
                _ => Err(self.bad(text, "the arguments are a string that is no JSON object")),
            },
            Some(other) => Err(self.bad(text, format!("the arguments are {other}, expected a JSON object"))),
        }
    }
}

/// A text up to the `mark` that `after` is behind, and `after`.
fn split_before<'a>(text: &'a str, mark: &str, after: &'a str) -> Option<(&'a str, &'a str)> {
    let inside = text.get(..text.len() - after.len() - mark.len())?;
    Some((inside, after))
}

/// Whether JSON that nothing says is a call is one: others have a name, too.
fn is_call_alone(value: &Value) -> bool {
    let call = value.get("function").filter(|function| function.is_object());
    let call = call.unwrap_or(value);
    let has = |key| call.get(key).is_some();
    call.get("name").is_some_and(Value::is_string) && (has("parameters") || has("arguments"))
}

fn python_tool(call: PythonCall) -> ToolCall {
    ToolCall {
        id: None,
        name: call.name,
        arguments: call.arguments,
    }
}

/// Bytes at the end of a text that `mark` may begin with.
fn beginning_of(text: &str, mark: &str) -> usize {
    let most = text.len().min(mark.len().saturating_sub(1));
    let mut lengths = (1..=most).rev();
    let is_beginning = |length: &usize| {
        let beginning = mark.as_bytes().get(..*length).unwrap_or_default();
        text.as_bytes().ends_with(beginning)
    };
    lengths.find(is_beginning).unwrap_or(0)
}
