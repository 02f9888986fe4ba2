//! Tokenizers, chat templates, tool calls and constraints, from files of any content: see the names of
//! [`sections`](crate::sections) below. What is not given is what a small package has.

use std::sync::{Arc, LazyLock};

use oxpipe::text::{
    ChatRequest, ChatTemplate, ConstraintKind, Guide, SpecialTokens, Tokenizer, ToolCallFormat, ToolCalls,
    ToolSchemas,
};

use crate::{bases, sections};

static PLAIN: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let file = &bases::of("phases").files["tokenizer.json"];
    Tokenizer::from_bytes("plain", file, None).expect("it is a tokenizer")
});
static GUIDE: LazyLock<Arc<Guide>> = LazyLock::new(|| Guide::new(&PLAIN, &[7]).expect("it is a vocabulary"));

pub fn run(data: &[u8]) {
    let (first, sections) = sections::split(data);
    let text = |name: &str| sections::find(&sections, name).and_then(|bytes| std::str::from_utf8(bytes).ok());
    let said = text("text").unwrap_or("one three é </s>");
    let config = sections::find(&sections, "tokenizer_config.json");
    let tokenizer = sections::find(&sections, "tokenizer.json")
        .and_then(|file| Tokenizer::from_bytes("fuzzed", file, config).ok());
    if let Some(tokenizer) = &tokenizer {
        exercise(tokenizer, said);
    }
    if let Some(source) = text("template") {
        let special = tokenizer
            .as_ref()
            .map(|tokenizer| tokenizer.special_tokens().clone());
        render(source, &special.unwrap_or_default(), &text);
    }
    if let Some(answer) = text("answer") {
        let tools = text("tools").and_then(|tools| ToolSchemas::of_json(tools).ok());
        let tools = tools.unwrap_or_default();
        let format = text("format").and_then(|name| ToolCallFormat::of_name(name.trim()).ok());
        for finished in [false, true] {
            let _ =
                ToolCalls::parse(format, &tools, answer, finished).map(|calls| calls.to_json().to_string());
        }
    }
    for (name, kind) in [
        ("schema", ConstraintKind::JsonSchema),
        ("regex", ConstraintKind::Regex),
        ("lark", ConstraintKind::Lark),
    ] {
        if let Some(grammar) = text(name) {
            follow(kind, grammar, first);
        }
    }
}

fn exercise(tokenizer: &Arc<Tokenizer>, said: &str) {
    for add_special in [false, true] {
        let ids = tokenizer.encode(said, add_special).unwrap_or_default();
        let _ = tokenizer.decode(&ids, add_special);
        let mut stream = tokenizer.decode_stream(add_special);
        for &id in ids.iter().take(64) {
            let _ = stream.push(id);
        }
        let _ = stream.flush();
    }
    let _ = tokenizer.decode(&[0, -1, i32::MAX, 1], false);
    for id in 0..tokenizer.vocab_size().min(32) as i32 {
        let _ = tokenizer.id_to_token(id);
        let _ = tokenizer.is_special(id);
    }
    if tokenizer.vocab_size() < 1000 {
        let _ = Guide::new(tokenizer, &[0, 7]);
    }
}

fn render<'a>(source: &str, special: &SpecialTokens, text: &impl Fn(&str) -> Option<&'a str>) {
    let Ok(template) = ChatTemplate::new("fuzzed", source, special) else {
        return;
    };
    let messages = r#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]}]"#;
    let _ = template.render(&ChatRequest {
        messages: text("messages").unwrap_or(messages),
        tools: text("tools"),
        extra: text("extra"),
        add_generation_prompt: true,
    });
    let _ = ToolCallFormat::of_template(source);
}

fn follow(kind: ConstraintKind, grammar: &str, path: &[u8]) {
    let Ok(mut constraint) = GUIDE.compile(kind, grammar, 2) else {
        return;
    };
    let _ = constraint.mask();
    let _ = constraint.forced();
    for &byte in path.iter().take(16) {
        let id = i32::from(byte % 8);
        if constraint.allows(id).unwrap_or(false) {
            let _ = constraint.take(id);
        }
        let _ = constraint.mask();
    }
    let _ = constraint.is_complete();
    constraint.rewind(path.len() / 2);
    let _ = constraint.mask();
}
