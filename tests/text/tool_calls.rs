//! Tool calls as public chat templates have models write them.

use oxpipe::text::{TextError, ToolCallFormat, ToolCalls, ToolSchemas};
use serde_json::{Value, json};

fn parse(format: &str, text: &str) -> ToolCalls {
    parse_any(Some(ToolCallFormat::of_name(format).unwrap()), text, true).unwrap()
}

/// Without the schemas of tools.
fn parse_any(format: Option<ToolCallFormat>, text: &str, finished: bool) -> Result<ToolCalls, TextError> {
    ToolCalls::parse(format, &ToolSchemas::default(), text, finished)
}

fn calls(found: &ToolCalls) -> Vec<(String, Value)> {
    let calls = found.calls.iter();
    calls
        .map(|call| (call.name.clone(), Value::Object(call.arguments.clone())))
        .collect()
}

const PARIS: &str = r#"{"city": "Paris", "days": 3}"#;

/// A format's name, an answer with text and two calls of `weather`, and its text.
fn answers() -> Vec<(&'static str, String, &'static str)> {
    let sep = "<\u{ff5c}tool\u{2581}sep\u{ff5c}>";
    let begin = "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>";
    let end = "<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>";
    let all = |inside: String| {
        format!(
            "Let me see.<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>{inside}<\u{ff5c}tool\u{2581}calls\u{2581}end\u{ff5c}>"
        )
    };
    vec![
        (
            "hermes",
            format!(
                "Let me see.\n<tool_call>\n{{\"name\": \"weather\", \"arguments\": {PARIS}}}\n</tool_call>\n<tool_call>\n\
                 {{\"name\": \"weather\", \"arguments\": {PARIS}}}\n</tool_call><|im_end|>"
            ),
            "Let me see.",
        ),
        (
            "hermes",
            "Let me see.\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n\
             </parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n\
             </parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
                .to_owned(),
            "Let me see.",
        ),
        (
            "glm",
            "Let me see.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n\
             <arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>weather<arg_key>city</arg_key>\
             <arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call><|observation|>"
                .to_owned(),
            "Let me see.",
        ),
        (
            "llama3",
            format!(
                "<|python_tag|>{{\"name\": \"weather\", \"parameters\": {PARIS}}}; {{\"name\": \"weather\", \
                 \"parameters\": {PARIS}}}<|eom_id|>"
            ),
            "",
        ),
        (
            "pythonic",
            "[weather(city=\"Paris\", days=3), weather(days=3, city='Paris')]<|eot_id|>".to_owned(),
            "",
        ),
        (
            "mistral",
            format!(
                "Let me see.[TOOL_CALLS] [{{\"name\": \"weather\", \"arguments\": {PARIS}, \"id\": \"a1\"}}, {{\"name\": \
                 \"weather\", \"arguments\": {PARIS}}}]</s>"
            ),
            "Let me see.",
        ),
        (
            "mistral",
            format!("Let me see.[TOOL_CALLS]weather[CALL_ID]a1[ARGS]{PARIS}[TOOL_CALLS]weather{PARIS}</s>"),
            "Let me see.",
        ),
        (
            "deepseek",
            all(format!(
                "{begin}function{sep}weather\n```json\n{PARIS}\n```{end}\n{begin}function{sep}weather\n```json\n{PARIS}\n```{end}"
            )),
            "Let me see.",
        ),
        (
            "deepseek",
            all(format!("{begin}weather{sep}{PARIS}{end}{begin}weather{sep}{PARIS}{end}")),
            "Let me see.",
        ),
        (
            "function_tag",
            format!("Let me see.<function=weather>{PARIS}</function><function=weather>{PARIS}</function><|eot_id|>"),
            "Let me see.",
        ),
        (
            "functionary",
            format!("all\nLet me see.>>>weather\n{PARIS}>>>weather\n{PARIS}<|eot_id|>"),
            "Let me see.",
        ),
    ]
}

#[test]
fn calls_of_every_format_are_found() {
    let expected = || ("weather".to_owned(), json!({"city": "Paris", "days": 3}));
    for (format, answer, content) in answers() {
        let found = parse(format, &answer);
        assert_eq!(calls(&found), [expected(), expected()], "{answer}");
        assert_eq!(found.content, content, "{answer}");
        assert!(found.complete, "{answer}");
        // The text shows it.
        if !matches!(format, "functionary" | "pythonic") {
            assert_eq!(parse_any(None, &answer, true).unwrap(), found, "{answer}");
        }
    }
    let found = parse("mistral", &answers()[5].1);
    assert_eq!(found.calls[0].id.as_deref(), Some("a1"));
    assert_eq!(
        found.to_json(),
        json!({"format": "mistral", "content": "Let me see.", "complete": true, "tool_calls": [
            {"id": "a1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris", "days": 3}}},
            {"type": "function", "function": {"name": "weather", "arguments": {"city": "Paris", "days": 3}}}]})
    );
}

#[test]
fn a_text_that_goes_on_gives_nothing_too_early() {
    for (name, answer, content) in answers() {
        let format = ToolCallFormat::of_name(name).unwrap();
        let whole = parse(name, &answer);
        let mut count = 0;
        for (end, _) in answer.char_indices() {
            let text = &answer[..end];
            let found =
                parse_any(Some(format), text, false).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(
                content.starts_with(found.content.trim()),
                "{text}: {}",
                found.content
            );
            assert!(found.calls.len() >= count, "{text}");
            count = found.calls.len();
            assert_eq!(found.calls, whole.calls[..count], "{text}");
        }
    }
}

#[test]
fn texts_without_calls_are_content() {
    for text in [
        "Hello.",
        "",
        "a < b and [1, 2] and {x}",
        "{\"city\": \"Paris\"}",
        "[1, 2]",
        "1 >> 2",
    ] {
        for format in [
            "hermes",
            "glm",
            "llama3",
            "pythonic",
            "mistral",
            "deepseek",
            "function_tag",
        ] {
            let found = parse(format, text);
            assert_eq!(
                (found.content.as_str(), found.calls.len(), found.complete),
                (text, 0, true),
                "{format}"
            );
        }
        let found = parse_any(None, text, true).unwrap();
        assert_eq!((found.content.as_str(), found.format), (text, None));
    }
    let plain = parse("functionary", "all\nHello.");
    assert_eq!((plain.content.as_str(), plain.calls.len()), ("Hello.", 0));
}

#[test]
fn json_with_a_name_is_an_answer_unless_it_has_arguments() {
    for text in [
        "{\"name\": \"Bob\", \"age\": 3}",
        "{\"name\": \"Bob\"}",
        "{\"name\": 1, \"parameters\": {}}",
        "{\"name\": \"f\", \"parameters\": 3}",
        "{\"type\": \"object\"}",
    ] {
        let found = parse("llama3", text);
        assert_eq!(
            (found.content.as_str(), found.calls.len(), found.complete),
            (text, 0, true)
        );
    }
    for text in [
        "{\"name\": \"f\", \"parameters\": {}}",
        "{\"type\": \"function\", \"name\": \"f\", \"arguments\": {}}",
        "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {}}}",
    ] {
        assert_eq!(
            calls(&parse("llama3", text)),
            [("f".to_owned(), json!({}))],
            "{text}"
        );
    }
}

#[test]
fn marks_inside_of_strings_end_no_call() {
    let (open, close) = (
        "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>f<\u{ff5c}tool\u{2581}sep\u{ff5c}>",
        "<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>",
    );
    for (format, before, after, mark) in [
        (
            "hermes",
            "<tool_call>{\"name\": \"f\", \"arguments\": ",
            "}</tool_call>",
            "</tool_call>",
        ),
        ("function_tag", "<function=f>", "</function>", "</function>"),
        ("functionary", ">>>f\n", "", ">>>"),
        ("deepseek", open, close, close),
    ] {
        let arguments = json!({"a": format!("x{mark}y")});
        let call = format!("{before}{arguments}{after}");
        let expected = ("f".to_owned(), arguments);
        let text = format!("{call}{call}");
        assert_eq!(
            calls(&parse(format, &text)),
            [expected.clone(), expected.clone()],
            "{text}"
        );
        let format = ToolCallFormat::of_name(format).unwrap();
        for (end, _) in text.char_indices() {
            let found = parse_any(Some(format), &text[..end], false).unwrap();
            assert!(
                calls(&found).iter().all(|call| *call == expected),
                "{}",
                &text[..end]
            );
            assert_eq!(found.content, "", "{}", &text[..end]);
        }
    }
}

#[test]
fn code_and_built_in_tools_of_llama() {
    let found = parse(
        "llama3",
        "<|python_tag|>brave_search.call(query=\"weather\")<|eom_id|>",
    );
    assert_eq!(
        calls(&found),
        [("brave_search".to_owned(), json!({"query": "weather"}))]
    );
    let found = parse("llama3", "<|python_tag|>import os\nprint(1)");
    assert_eq!(
        calls(&found),
        [("python".to_owned(), json!({"code": "import os\nprint(1)"}))]
    );
}

#[test]
fn what_only_begins_as_a_call_is_an_error_that_says_where() {
    for (format, text, message) in [
        (
            "hermes",
            "Yes.<tool_call>{\"name\": 5}</tool_call>",
            "hermes tool call at byte 15 of the text: the call has no \"name\" that is a string",
        ),
        (
            "hermes",
            "<tool_call>{oops}</tool_call>",
            "hermes tool call at byte 11 of the text: not JSON: key must be a string at line 1 column 2",
        ),
        (
            "mistral",
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": 7}]",
            "mistral tool call at byte 12 of the text: the arguments are 7, expected a JSON object",
        ),
    ] {
        let error = parse_any(Some(ToolCallFormat::of_name(format).unwrap()), text, true).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let cut = parse_any(None, "<tool_call>{\"name\": \"f\", \"argum", true).unwrap();
    assert_eq!((cut.calls.len(), cut.complete), (0, false));
    // A last tag that is missing is forgiven.
    let cut = parse_any(None, "<tool_call>{\"name\": \"f\"}", true).unwrap();
    assert_eq!((cut.calls.len(), cut.complete), (1, true));
    let error = ToolCallFormat::of_name("openai").unwrap_err();
    assert!(
        error.to_string().contains("hermes, llama3, pythonic, mistral"),
        "{error}"
    );
}

#[test]
fn templates_show_the_format() {
    for (source, expected) in [
        ("{{ '<tool_call>' }} <function=x>", Some("hermes")),
        ("'<tool_call>' + name + '<arg_key>'", Some("glm")),
        ("{{ \"[TOOL_CALLS]\" }}", Some("mistral")),
        (
            "'<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>'",
            Some("deepseek"),
        ),
        ("<|python_tag|> <function=example>", Some("function_tag")),
        ("<|python_tag|>", Some("llama3")),
        (">>>all\n", Some("functionary")),
        ("{{ messages }}", None),
    ] {
        let found = ToolCallFormat::of_template(source).map(ToolCallFormat::name);
        assert_eq!(found, expected, "{source}");
    }
}

const TOOLS: &str = r##"[
    {"type": "function", "function": {"name": "f", "parameters": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "count": {"type": "integer"},
            "share": {"type": ["number", "null"]},
            "on": {"type": "boolean"},
            "list": {"type": "array"},
            "map": {"$ref": "#/$defs/Map"},
            "kind": {"enum": ["1", "2"]},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "loop": {"$ref": "#/$defs/Loop"},
            "silent": {}
        },
        "$defs": {
            "Map": {"type": "object"},
            "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Loop"}, {"type": "string"}]}
        }}}},
    {"name": "g"}
]"##;

/// What the schema above makes of texts, by JSON Schema's rules for types.
#[test]
fn arguments_in_plain_text_have_the_types_of_the_schema() {
    let tools = ToolSchemas::of_json(TOOLS).unwrap();
    let cases = [
        ("f", "text", "007", json!("007")),
        ("f", "text", "{\"a\": 1}", json!("{\"a\": 1}")),
        ("f", "text", "true", json!("true")),
        ("f", "text", "\"quoted\"", json!("\"quoted\"")),
        ("f", "text", "None", json!("None")),
        ("f", "text", "two\nlines", json!("two\nlines")),
        ("f", "maybe", "null", Value::Null),
        ("f", "maybe", "5", json!("5")),
        ("f", "count", "7", json!(7)),
        ("f", "count", "seven", json!("seven")),
        ("f", "share", "0.5", json!(0.5)),
        ("f", "share", "2", json!(2)),
        ("f", "share", "None", Value::Null),
        ("f", "on", "True", json!(true)),
        ("f", "on", "false", json!(false)),
        ("f", "list", "[1, \"x\"]", json!([1, "x"])),
        ("f", "map", "{\"a\": {}}", json!({"a": {}})),
        ("f", "kind", "1", json!("1")),
        ("f", "either", "12", json!(12)),
        ("f", "either", "twelve", json!("twelve")),
        ("f", "loop", "3", json!("3")),
        ("f", "silent", "3", json!(3)),
        ("f", "unknown", "x", json!("x")),
        ("g", "a", "3", json!(3)),
        ("h", "a", "True", json!("True")),
    ];
    for (tool, parameter, text, expected) in cases {
        let qwen = format!(
            "<tool_call>\n<function={tool}>\n<parameter={parameter}>\n{text}\n</parameter>\n</function>\n</tool_call>"
        );
        let glm = format!(
            "<tool_call>{tool}\n<arg_key>{parameter}</arg_key>\n<arg_value>{text}</arg_value>\n</tool_call>"
        );
        for answer in [qwen, glm] {
            let found = ToolCalls::parse(None, &tools, &answer, true).unwrap();
            let arguments = json!({parameter: expected});
            assert_eq!(calls(&found), [(tool.to_owned(), arguments)], "{answer}");
        }
    }
    // JSON says its types itself.
    let json = r#"<tool_call>{"name": "f", "arguments": {"text": 7}}</tool_call>"#;
    let found = ToolCalls::parse(None, &tools, json, true).unwrap();
    assert_eq!(calls(&found), [("f".to_owned(), json!({"text": 7}))]);
}

#[test]
fn tools_that_are_none_are_refused() {
    for (tools, message) in [
        ("[", "tools: not JSON"),
        ("{}", "expected an array of tools"),
        (
            "[{\"name\": \"f\"}, {\"function\": {}}]",
            "tool 1 has no \"name\"",
        ),
    ] {
        let error = ToolSchemas::of_json(tools).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn tags_inside_of_plain_text_end_no_call() {
    let value = "</tool_call> {\"a\" <tool_call> </function>";
    for (format, text, closed) in [
        (
            "hermes",
            format!("<tool_call><function=f><parameter=a>{value}</parameter></function></tool_call>"),
            true,
        ),
        (
            "glm",
            format!("<tool_call>f<arg_key>a</arg_key><arg_value>{value}</arg_value></tool_call>"),
            true,
        ),
        // Cut off: there may have been more arguments.
        (
            "glm",
            format!("<tool_call>f<arg_key>a</arg_key><arg_value>{value}</arg_value>"),
            false,
        ),
        ("glm", "<tool_call>f".to_owned(), false),
    ] {
        let expected = [("f".to_owned(), json!({"a": value}))];
        let found = parse(format, &text);
        assert_eq!(calls(&found), &expected[..usize::from(closed)], "{text}");
        assert_eq!((found.content.as_str(), found.complete), ("", closed), "{text}");
        let format = ToolCallFormat::of_name(format).unwrap();
        for (end, _) in text.char_indices() {
            let found = parse_any(Some(format), &text[..end], false).unwrap();
            assert_eq!(
                (found.calls.len(), found.content.as_str()),
                (0, ""),
                "{}",
                &text[..end]
            );
        }
    }
    // No arguments at all.
    assert_eq!(
        calls(&parse("glm", "<tool_call>f\n</tool_call>")),
        [("f".to_owned(), json!({}))]
    );
}
