//! Text in and out: token ids, decoding token by token, chat templates.

use std::sync::Arc;

use oxpipe::text::{ChatRequest, ChatTemplate, SpecialTokens, TextError, Tokenizer};
use serde_json::{Value, json};

#[path = "text/constraints.rs"]
mod constraints;
#[path = "text/expressions.rs"]
mod expressions;
#[path = "text/hostile_templates.rs"]
mod hostile_templates;
#[path = "text/hostile_tokenizers.rs"]
mod hostile_tokenizers;
#[path = "text/tool_calls.rs"]
mod tool_calls;

/// How GPT-2's byte-level tokenizers write a byte: printable ones as they are, the others
/// from U+0100 on.
fn byte_letters() -> Vec<char> {
    let mut moved = 0;
    (0..=255u8)
        .map(|byte| {
            let printable = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
            if printable {
                return char::from(byte);
            }
            moved += 1;
            char::from_u32(255 + moved).unwrap()
        })
        .collect()
}

/// One token for each byte, and three special ones.
fn bytes_tokenizer() -> Arc<Tokenizer> {
    let vocab: serde_json::Map<String, Value> = byte_letters()
        .into_iter()
        .enumerate()
        .map(|(id, letter)| (letter.to_string(), json!(id)))
        .collect();
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false})
    };
    let tokenizer = json!({
        "version": "1.0",
        "truncation": {"max_length": 4, "stride": 0, "strategy": "LongestFirst", "direction": "Right"},
        "padding": null,
        "added_tokens": [special(256, "<s>"), special(257, "</s>"), special(258, "<|im_end|>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}}
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                  "vocab": vocab, "merges": []}
    });
    let config = json!({
        "bos_token": "<s>",
        "eos_token": {"content": "<|im_end|>", "lstrip": false},
        "pad_token": null,
        "unk_token": "no such token"
    });
    Tokenizer::from_bytes(
        "bytes",
        tokenizer.to_string().as_bytes(),
        Some(config.to_string().as_bytes()),
    )
    .unwrap()
}

/// SentencePiece as Llama writes it: spaces as U+2581, unknown characters as byte tokens,
/// and the first space of a text dropped.
fn pieces_tokenizer() -> Arc<Tokenizer> {
    let mut tokens: Vec<String> = vec!["<unk>".into(), "<s>".into(), "</s>".into()];
    tokens.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(["\u{2581}", "\u{2581}Hello", "\u{2581}world", ",", "s", "\u{e9}"].map(String::from));
    let vocab: serde_json::Map<String, Value> = tokens
        .into_iter()
        .enumerate()
        .map(|(id, token)| (token, json!(id)))
        .collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{"id": 2, "content": "</s>", "special": true, "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false}],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true,
                  "vocab": vocab, "merges": []}
    });
    Tokenizer::from_bytes("pieces", tokenizer.to_string().as_bytes(), None).unwrap()
}

#[test]
fn ids_of_a_text() {
    let tokenizer = bytes_tokenizer();
    // Not cut to the four tokens that the file's truncation says.
    assert_eq!(
        tokenizer.encode("caf\u{e9}!", false).unwrap(),
        [99, 97, 102, 0xc3, 0xa9, 33]
    );
    assert_eq!(tokenizer.encode("a", true).unwrap(), [256, 97]);
    assert_eq!(tokenizer.encode("a<|im_end|>", false).unwrap(), [97, 258]);
    assert_eq!(tokenizer.encode("", false).unwrap(), [] as [i32; 0]);
    assert_eq!(
        tokenizer.decode(&[256, 97, 258], false).unwrap(),
        "<s>a<|im_end|>"
    );
    assert_eq!(tokenizer.decode(&[256, 97, 258], true).unwrap(), "a");
    assert_eq!(tokenizer.vocab_size(), 259);
    assert_eq!(tokenizer.token_to_id("<|im_end|>"), Some(258));
    assert_eq!(tokenizer.id_to_token(97).as_deref(), Some("a"));
    assert_eq!(tokenizer.id_to_token(-1), None);
    assert!(tokenizer.is_special(258) && !tokenizer.is_special(97) && !tokenizer.is_special(9999));
    for id in [-1, 259, i32::MAX] {
        let error = tokenizer.decode(&[97, id], true).unwrap_err();
        assert!(
            matches!(error, TextError::UnknownToken { id: found, size: 259 } if found == id),
            "{error}"
        );
    }
}

#[test]
fn special_tokens_are_those_that_the_configuration_names() {
    let special = bytes_tokenizer().special_tokens().clone();
    assert_eq!(special.bos, Some((256, "<s>".to_owned())));
    assert_eq!(special.eos, Some((258, "<|im_end|>".to_owned())));
    assert_eq!((special.pad, special.unk), (None, None));
    assert_eq!(pieces_tokenizer().special_tokens(), &SpecialTokens::default());
}

#[test]
fn files_that_are_no_tokenizers() {
    let error = Tokenizer::from_bytes("here", b"{\"version\": 1}", None).unwrap_err();
    assert!(
        error.to_string().starts_with("here: not a usable tokenizer: "),
        "{error}"
    );
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("tokenizer.json");
    assert!(matches!(Tokenizer::from_file(&missing), Err(TextError::Io { path, .. }) if path == missing));
}

/// What a stream gives for each id, and at the end.
fn stream(tokenizer: &Arc<Tokenizer>, ids: &[i32], skip_special: bool) -> (Vec<String>, String) {
    let mut stream = tokenizer.decode_stream(skip_special);
    let pieces = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    (pieces, stream.flush().unwrap())
}

#[test]
fn pieces_are_whole_characters() {
    let tokenizer = bytes_tokenizer();
    let text = "a\u{e9}\u{4e2d}\u{1f642} ";
    let ids = tokenizer.encode(text, false).unwrap();
    let (pieces, rest) = stream(&tokenizer, &ids, true);
    assert_eq!(
        pieces,
        [
            "a",
            "",
            "\u{e9}",
            "",
            "",
            "\u{4e2d}",
            "",
            "",
            "",
            "\u{1f642}",
            " "
        ]
    );
    assert_eq!(rest, "");
    // A text that ends inside a character ends with what decoding makes of it.
    let (pieces, rest) = stream(&tokenizer, &ids[..8], true);
    assert_eq!(pieces.concat(), "a\u{e9}\u{4e2d}");
    assert_eq!(rest, "\u{fffd}");
    let tokenizer = pieces_tokenizer();
    let hello = tokenizer.token_to_id("\u{2581}Hello").unwrap();
    let world = tokenizer.token_to_id("\u{2581}world").unwrap();
    let (pieces, rest) = stream(&tokenizer, &[hello, 2, world, 3 + 0xc3, 3 + 0xa9, 2], true);
    assert_eq!(pieces, ["Hello", "", " world", "", "", ""]);
    assert_eq!(rest, "\u{e9}");
}

/// Each piece is the text of the tokens that its span names, where the span says.
#[test]
fn spans_say_which_tokens_gave_which_bytes() {
    let text = "na\u{ef}ve \u{1f600} \u{65e5}\u{672c} end";
    for tokenizer in [bytes_tokenizer(), pieces_tokenizer()] {
        let mut ids = tokenizer.encode(text, false).unwrap();
        // One that gives no text, on the way and at the end.
        let special = tokenizer.token_to_id("</s>").unwrap();
        ids.insert(1, special);
        ids.push(special);
        let mut stream = tokenizer.decode_stream(true);
        let (mut whole, mut next) = (String::new(), 0);
        for step in 0..=ids.len() {
            let piece = match ids.get(step) {
                Some(&id) => stream.push(id).unwrap(),
                None => stream.flush().unwrap(),
            };
            let span = stream.span();
            assert_eq!(span.offset, whole.len() as u64);
            assert_eq!(span.count == 0, piece.is_empty());
            if span.count > 0 {
                assert!(span.first >= next, "a token gives text once");
                next = span.first + span.count;
                let of = &ids[span.first as usize..next as usize];
                let alone = tokenizer.decode(of, true).unwrap();
                assert_eq!(piece.trim_start(), alone.trim_start());
            }
            whole.push_str(&piece);
        }
        assert_eq!(whole, tokenizer.decode(&ids, true).unwrap());
    }
}

/// Also one that has the text twice. Expected: ids that the tokenizers package 0.22.2 gives for the same
/// files, truncated to so many.
#[test]
fn a_template_is_filled_in_once_where_a_text_is_cut_off() {
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let [first, last] = ["<s>", "</s>"].map(|id| json!({"SpecialToken": {"id": id, "type_id": 0}}));
    let cases: [(Value, [&[i32]; 5]); 3] = [
        (
            json!([text, text]),
            [
                &[0, 1, 2, 3, 0, 1, 2, 3],
                &[0, 1, 0, 1],
                &[0, 1, 2, 0, 1, 2],
                &[0, 1, 2, 3, 0, 1, 2, 3],
                &[0, 1, 2, 3, 0, 1, 2, 3],
            ],
        ),
        (
            json!([first, text, last, text]),
            [
                &[4, 0, 1, 2, 3, 5, 0, 1, 2, 3],
                &[4, 5],
                &[4, 0, 5, 0],
                &[4, 0, 1, 5, 0, 1],
                &[4, 0, 1, 2, 5, 0, 1, 2],
            ],
        ),
        (
            json!([first, text, last]),
            [
                &[4, 0, 1, 2, 3, 5],
                &[4, 5],
                &[4, 0, 5],
                &[4, 0, 1, 5],
                &[4, 0, 1, 2, 5],
            ],
        ),
    ];
    for (single, [whole, cut_off @ ..]) in cases {
        let file = json!({
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {
                "type": "TemplateProcessing", "single": single, "pair": [],
                "special_tokens": {
                    "<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]},
                    "</s>": {"id": "</s>", "ids": [5], "tokens": ["</s>"]},
                },
            },
            "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3}, "unk_token": "a"},
        });
        let tokenizer = Tokenizer::from_bytes("tokenizer.json", file.to_string().as_bytes(), None).unwrap();
        assert_eq!(tokenizer.encode("a b c d", true).unwrap(), whole);
        for (most, expected) in (2..).zip(cut_off) {
            let ids = tokenizer.encode_up_to("a b c d", most).unwrap();
            assert_eq!(ids, expected, "{single} up to {most}");
        }
        let plain = tokenizer.encode("a b c d", false).unwrap();
        assert_eq!(plain, [0, 1, 2, 3].repeat(plain.len() / 4));
    }
}

#[test]
fn a_stream_starts_anew_after_a_flush() {
    let tokenizer = pieces_tokenizer();
    let hello = tokenizer.token_to_id("\u{2581}Hello").unwrap();
    let mut stream = tokenizer.decode_stream(true);
    assert_eq!(stream.push(hello).unwrap(), "Hello");
    assert_eq!(stream.push(hello).unwrap(), " Hello");
    stream.flush().unwrap();
    assert_eq!(stream.push(hello).unwrap(), "Hello");
    assert!(stream.push(-5).is_err());
    assert_eq!(
        stream.push(hello).unwrap(),
        " Hello",
        "a refused id changes nothing"
    );
}

/// Sequences of any tokens, valid text or not: the pieces are the whole.
#[test]
fn a_stream_is_decoding_at_once() {
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for tokenizer in [bytes_tokenizer(), pieces_tokenizer()] {
        // Whole characters, their parts, spaces and special tokens, often beside each other.
        let mut menu: Vec<Vec<i32>> = vec![
            vec![2],
            vec![0xe4],
            vec![0xb8],
            vec![0x80],
            vec![0xf0],
            vec![0x20],
        ];
        let last = i32::try_from(tokenizer.vocab_size()).unwrap() - 1;
        menu.extend((last - 7..=last).map(|id| vec![id]));
        for text in ["\u{1f642}", "\u{e9}", " x", "\u{4e2d}\u{6587}"] {
            let text_bytes: Vec<i32> = text.bytes().map(i32::from).collect();
            let offset = if tokenizer.vocab_size() == 259 { 0 } else { 3 };
            menu.push(text_bytes.iter().map(|byte| byte + offset).collect());
        }
        for round in 0..2000 {
            let ids: Vec<i32> = (0..random(12))
                .flat_map(|_| menu[random(menu.len())].clone())
                .collect();
            for skip_special in [true, false] {
                let (pieces, rest) = stream(&tokenizer, &ids, skip_special);
                let whole = tokenizer.decode(&ids, skip_special).unwrap();
                assert_eq!(
                    pieces.concat() + &rest,
                    whole,
                    "round {round}: {ids:?}, pieces {pieces:?}"
                );
            }
        }
    }
}

// Expected renderings: jinja2 3.1.6, set up as transformers sets it up.

const CHATML: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + \
message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}\
{{ '<|im_start|>assistant\n' }}{% endif %}";

const TOOLS: &str = r#"{{- bos_token }}
{%- if tools is not none %}
    {{- "Tools:\n" }}
    {%- for tool in tools %}
        {{- tool | tojson }}
        {{- "\n" }}
        {{- tool | tojson(indent=2) }}
        {{- "\n" }}
    {%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "tool" %}
        {%- continue %}
    {%- endif %}
    {{- "[" ~ message.role.upper() ~ "] " }}
    {%- if message.content is string %}
        {{- message.content.strip() }}
    {%- else %}
        {%- for part in message['content'] %}
            {%- if part.type == 'image' %}<image>{% else %}{{ part.text | trim }}{% endif %}
        {%- endfor %}
    {%- endif %}
    {%- if message.tool_calls %}
        {%- for call in message.tool_calls %}
            {{- ' ' + call.function.name + '(' + call.function.arguments | tojson + ')' }}
        {%- endfor %}
    {%- endif %}
    {{- eos_token + "\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "[ASSISTANT]" }}
    {%- if enable_thinking is defined and not enable_thinking %} nothink{% endif %}
{%- endif %}
"#;

const BLOCKS: &str = r#"{% set ns = namespace(count=0) %}
{% for message in messages %}
  {% if message.role == 'assistant' %}
    {% generation %}
{{ message.content.split('</think>')[-1].lstrip('\n') }}
    {% endgeneration %}
  {% else %}
{{ loop.index0 }}:{{ message.content[:5] }}|{{ message.get('name', 'nobody') }}
  {% endif %}
  {% set ns.count = ns.count + 1 %}
{% endfor %}
{{ ns.count }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages[::-1][0].role }}
"#;

fn system() -> Value {
    json!({"role": "system", "content": "  You are \u{e9}t\u{e9} "})
}

fn assistant() -> Value {
    json!({"role": "assistant", "content": "<think>\nhm</think>\n\nParis",
           "tool_calls": [{"function": {"name": "where",
                           "arguments": {"z": 1, "a": ["\u{4e2d}", null, true, 1.5]}}}]})
}

fn last_user() -> Value {
    json!({"role": "user", "content": "And now, then?", "name": "Ann"})
}

fn template(source: &str) -> ChatTemplate {
    let special = SpecialTokens {
        bos: Some((1, "<s>".to_owned())),
        eos: Some((2, "</s>".to_owned())),
        ..SpecialTokens::default()
    };
    ChatTemplate::new("chat_template.jinja", source, &special).unwrap()
}

fn render(
    source: &str,
    messages: &Value,
    tools: Option<&Value>,
    extra: Option<&str>,
    prompt: bool,
) -> String {
    let tools = tools.map(Value::to_string);
    template(source)
        .render(&ChatRequest {
            messages: &messages.to_string(),
            tools: tools.as_deref(),
            extra,
            add_generation_prompt: prompt,
        })
        .unwrap()
}

#[test]
fn a_chatml_template() {
    let messages =
        json!([{"role": "user", "content": "Hi {{ x }}"}, {"role": "assistant", "content": "Hello"}]);
    assert_eq!(
        render(CHATML, &messages, None, None, true),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi {{ x }}<|im_end|>\n\
         <|im_start|>assistant\nHello<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn tools_parts_calls_and_extra_arguments() {
    let user = json!({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What? "}]});
    let tool = json!({"role": "tool", "content": "x"});
    let messages = json!([system(), user, assistant(), tool, last_user()]);
    let tools =
        json!([{"type": "function", "function": {"name": "where", "parameters": {"zeta": {}, "alpha": []}}}]);
    assert_eq!(
        render(
            TOOLS,
            &messages,
            Some(&tools),
            Some("{\"enable_thinking\": false}"),
            true
        ),
        "<s>Tools:\n{\"type\": \"function\", \"function\": {\"name\": \"where\", \"parameters\": {\"zeta\": {}, \
         \"alpha\": []}}}\n{\n  \"type\": \"function\",\n  \"function\": {\n    \"name\": \"where\",\n    \
         \"parameters\": {\n      \"zeta\": {},\n      \"alpha\": []\n    }\n  }\n}\n[SYSTEM] You are \u{e9}t\u{e9}</s>\n\
         [USER] <image>What?</s>\n[ASSISTANT] <think>\nhm</think>\n\nParis where({\"z\": 1, \"a\": [\"\u{4e2d}\", null, \
         true, 1.5]})</s>\n[USER] And now, then?</s>\n[ASSISTANT] nothink"
    );
    assert_eq!(
        render(TOOLS, &json!([system()]), None, None, false),
        "<s>[SYSTEM] You are \u{e9}t\u{e9}</s>\n"
    );
    assert_eq!(
        render(TOOLS, &json!([]), None, Some("{\"bos_token\": \"\"}"), false),
        "",
        "extra arguments win"
    );
}

#[test]
fn blocks_are_trimmed_and_generation_blocks_kept() {
    let messages = json!([system(), assistant(), last_user()]);
    assert_eq!(
        render(BLOCKS, &messages, None, None, false),
        "0:  You|nobody\nParis\n2:And n|Ann\n3 1 user"
    );
}

#[test]
fn todays_date() {
    let text = render(
        "{{ strftime_now('%Y-%m-%d|%d %b %Y') }}",
        &json!([]),
        None,
        None,
        false,
    );
    let (iso, long) = text.split_once('|').unwrap();
    assert_eq!(iso.len(), 10, "{text}");
    assert!(iso.starts_with("20") && long.ends_with(&iso[..4]), "{text}");
}

#[test]
fn what_a_template_or_a_caller_can_get_wrong() {
    let none = SpecialTokens::default();
    let error = ChatTemplate::new("chat_template.jinja", "a\n{% if %}", &none).unwrap_err();
    assert!(matches!(error, TextError::BadTemplate { .. }));
    let message = error.to_string();
    assert!(
        message.starts_with("chat_template.jinja: chat template: "),
        "{message}"
    );
    assert!(message.contains("line 2"), "{message}");
    let alternate = template("{{ raise_exception('roles must alternate') }}");
    let request = ChatRequest {
        messages: "[]",
        ..ChatRequest::default()
    };
    let error = alternate.render(&request).unwrap_err();
    assert!(matches!(error, TextError::Render { .. }));
    assert!(error.to_string().contains("roles must alternate"), "{error}");
    for (messages, tools, extra, expected) in [
        ("{", None, None, "messages: not JSON: "),
        ("{}", None, None, "messages: is an object, expected a JSON array"),
        (
            "[{}, 3]",
            None,
            None,
            "messages: element 1 is a number, expected a JSON object",
        ),
        (
            "[null]",
            None,
            None,
            "messages: element 0 is null, expected a JSON object",
        ),
        ("[]", Some("1"), None, "tools: is a number, expected a JSON array"),
        (
            "[]",
            None,
            Some("[]"),
            "extra: is an array, expected a JSON object",
        ),
    ] {
        let request = ChatRequest {
            messages,
            tools,
            extra,
            add_generation_prompt: false,
        };
        let error = alternate.render(&request).unwrap_err();
        assert!(matches!(error, TextError::BadArgument { .. }));
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
