//! Constraints over vocabularies of bytes, where every text that a grammar allows can be spelled
//! out: what a mask allows is held against what the grammar says.

use std::sync::Arc;

use oxpipe::text::{Constraint, ConstraintKind, Guide, Tokenizer};
use serde_json::{Value, json};

const END: i32 = 257;

fn guide(tokenizer: &Arc<Tokenizer>) -> Arc<Guide> {
    Guide::new(tokenizer, &[END]).unwrap()
}

fn allowed(constraint: &mut Constraint) -> Vec<i32> {
    let words = constraint.mask().unwrap();
    let bits = words.iter().enumerate();
    bits.flat_map(|(at, word)| {
        (0..32)
            .filter(move |bit| word >> bit & 1 == 1)
            .map(move |bit| (at * 32 + bit) as i32)
    })
    .collect()
}

/// Takes a text token by token; whether each was allowed, and the end behind them.
fn follows(constraint: &mut Constraint, tokenizer: &Tokenizer, text: &str) -> bool {
    for id in tokenizer.encode(text, false).unwrap() {
        let may = constraint.allows(id).unwrap();
        assert_eq!(may, allowed(constraint).contains(&id), "{text}");
        if !may {
            return false;
        }
        constraint.take(id).unwrap();
    }
    let may = constraint.allows(END).unwrap();
    assert_eq!(may, allowed(constraint).contains(&END), "{text}");
    may
}

#[test]
fn texts_fit_or_not_as_the_grammar_says() {
    let tokenizer = super::bytes_tokenizer();
    let guide = guide(&tokenizer);
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 4}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name", "age"],
        "additionalProperties": false
    })
    .to_string();
    let lark = "start: greeting (\", \" NAME)?\ngreeting: \"hello\" | \"good day\"\nNAME: /[A-Z][a-z]+/\n";
    let cases: [(ConstraintKind, &str, &[&str], &[&str]); 4] = [
        (
            ConstraintKind::Regex,
            "[0-9]{2,3}(\u{e9}|/)x?",
            &["12/", "123\u{e9}x"],
            &["1/", "1234/", "12", "12/xx", ""],
        ),
        (
            ConstraintKind::JsonSchema,
            &schema,
            &[
                "{\"name\":\"Ada\",\"age\":36}",
                "{ \"name\" : \"\u{e9}\\n\",\n \"age\" :0 }",
            ],
            &[
                "{}",
                "{\"name\":\"Ada\"}",
                "{\"name\":\"Adams\",\"age\":1}",
                "{\"name\":\"Ada\",\"age\":-1}",
                "[]",
            ],
        ),
        (
            ConstraintKind::Json,
            "",
            &["{}", "{\"a\": [1, 2.5e3, true, null, {\"b\": \"c\"}]}"],
            &["[]", "1", "{\"a\":}", "{'a': 1}", "{\"a\": 01}"],
        ),
        (
            ConstraintKind::Lark,
            lark,
            &["hello", "good day, Ada"],
            &["hello, ", "good", "Hello", "hello, ada"],
        ),
    ];
    for (kind, grammar, good, bad) in cases {
        let mut constraint = guide.compile(kind, grammar, 4).unwrap();
        for text in good {
            constraint.rewind(0);
            assert!(follows(&mut constraint, &tokenizer, text), "{text}");
        }
        for text in bad {
            constraint.rewind(0);
            assert!(!follows(&mut constraint, &tokenizer, text), "{text}");
        }
    }
}

#[test]
fn white_space_between_the_parts_of_json_is_bounded() {
    let tokenizer = super::bytes_tokenizer();
    let guide = guide(&tokenizer);
    for most in [0, 1, 5] {
        let mut constraint = guide.compile(ConstraintKind::Json, "", most).unwrap();
        for spaces in 0..8 {
            constraint.rewind(0);
            let text = format!("{{{}\"a\":{}1}}", " ".repeat(spaces), "\n".repeat(spaces));
            let fits = follows(&mut constraint, &tokenizer, &text);
            assert_eq!(fits, spaces <= most as usize, "{spaces} of {most}");
        }
    }
}

#[test]
fn rewinding_and_copies_are_as_if_the_rest_had_not_been() {
    let tokenizer = super::bytes_tokenizer();
    let guide = guide(&tokenizer);
    let text = "{\"a\": [1, {\"b\": \"c\"}], \"d\": null}";
    let ids = tokenizer.encode(text, false).unwrap();
    let mut constraint = guide.compile(ConstraintKind::Json, "", 8).unwrap();
    let mut masks = Vec::new();
    for &id in &ids {
        masks.push(allowed(&mut constraint));
        constraint.take(id).unwrap();
    }
    let last = allowed(&mut constraint);
    assert_eq!(last, [END]);
    assert!(constraint.is_complete());
    for len in (0..ids.len()).rev().chain([7, 0]) {
        let mut copy = constraint.clone();
        copy.rewind(len);
        assert_eq!(copy.len(), len);
        assert_eq!(allowed(&mut copy), masks[len], "{len}");
        let rest = &ids[len..];
        rest.iter().for_each(|&id| copy.take(id).unwrap());
        assert_eq!(allowed(&mut copy), last);
        // What does not fit changes nothing.
        copy.rewind(len);
        assert!(copy.take(0).is_err() || len > 0);
    }
    assert_eq!(allowed(&mut constraint), last);
}

#[test]
fn what_cannot_be_otherwise_is_forced() {
    let tokenizer = super::bytes_tokenizer();
    let guide = guide(&tokenizer);
    let mut constraint = guide
        .compile(ConstraintKind::Regex, "(yes|no), (sir|madam)", 0)
        .unwrap();
    assert!(constraint.forced().unwrap().is_empty());
    constraint.take(tokenizer.encode("y", false).unwrap()[0]).unwrap();
    let expected = tokenizer.encode("es, ", false).unwrap();
    let forced = constraint.forced().unwrap();
    // The last ones may be part of a longer token with what follows.
    assert!(!forced.is_empty() && expected.starts_with(&forced), "{forced:?}");
    for id in expected {
        constraint.take(id).unwrap();
    }
    assert!(constraint.forced().unwrap().is_empty());
}

#[test]
fn added_tokens_are_no_text_of_a_grammar() {
    let tokenizer = super::bytes_tokenizer();
    let guide = guide(&tokenizer);
    let mut any = guide.compile(ConstraintKind::Regex, "(.|\\n)*", 0).unwrap();
    let may = allowed(&mut any);
    assert!(!may.contains(&256) && !may.contains(&258), "added tokens as text");
    assert!(may.contains(&END) && may.contains(&0));
    // A grammar may name one.
    let mut named = guide
        .compile(ConstraintKind::Lark, "start: \"a\" <|im_end|> \"b\"", 0)
        .unwrap();
    let a = tokenizer.encode("a", false).unwrap()[0];
    named.take(a).unwrap();
    assert_eq!(allowed(&mut named), [258]);
    // The text of a token is spelled out.
    let mut text = guide.compile(ConstraintKind::Regex, "<s>x", 0).unwrap();
    assert!(!text.allows(256).unwrap());
    let spelled: Vec<i32> = "<s>x"
        .bytes()
        .map(|byte| tokenizer.encode(&char::from(byte).to_string(), false).unwrap()[0])
        .collect();
    spelled.iter().for_each(|&id| text.take(id).unwrap());
    assert!(text.allows(END).unwrap());
}

#[test]
fn pieces_of_sentencepiece_are_their_spaces_and_bytes() {
    let tokenizer = super::pieces_tokenizer();
    let guide = Guide::new(&tokenizer, &[2]).unwrap();
    let mut constraint = guide
        .compile(ConstraintKind::Regex, " Hello world\u{e9}s?", 0)
        .unwrap();
    let id = |token: &str| tokenizer.token_to_id(token).unwrap();
    let may = allowed(&mut constraint);
    assert!(
        may.contains(&id("\u{2581}Hello")) && may.contains(&id("<0x20>")) && may.contains(&id("\u{2581}"))
    );
    assert!(!may.contains(&id("\u{2581}world")) && !may.contains(&2));
    for token in ["\u{2581}Hello", "\u{2581}world", "<0xC3>", "<0xA9>"] {
        assert!(constraint.allows(id(token)).unwrap(), "{token}");
        constraint.take(id(token)).unwrap();
    }
    let may = allowed(&mut constraint);
    assert!(may.contains(&2) && may.contains(&id("s")) && may.contains(&id("<0x73>")));
    assert_eq!(may.len(), 3);
}

#[test]
fn wrong_grammars_are_errors_that_say_where() {
    let guide = guide(&super::bytes_tokenizer());
    let deep =
        |open: &str, close: &str, count: usize| format!("{}a{}", open.repeat(count), close.repeat(count));
    let large = "a".repeat((1 << 20) + 1);
    for (kind, grammar, message) in [
        (
            ConstraintKind::JsonSchema,
            "{",
            "JSON Schema: not JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            ConstraintKind::JsonSchema,
            "7",
            "JSON Schema: a schema is an object or a boolean, found 7",
        ),
        (
            ConstraintKind::JsonSchema,
            "false",
            "the schema false allows nothing",
        ),
        (ConstraintKind::JsonSchema, "{\"type\": \"thing\"}", "thing"),
        (
            ConstraintKind::JsonSchema,
            "{\"$ref\": \"https://example.com/a.json\"}",
            "example.com",
        ),
        (
            ConstraintKind::JsonSchema,
            "{\"x-guidance\": 1}",
            "\"x-guidance\" is no object",
        ),
        (ConstraintKind::Regex, "(a", "regular expression: "),
        (ConstraintKind::Lark, "start: \"a", "Lark grammar: "),
        (ConstraintKind::Lark, "start: missing", "missing"),
        (ConstraintKind::Lark, "", "Lark grammar: "),
        (
            ConstraintKind::Regex,
            &large,
            "1048577 bytes are more than the 1048576 that are allowed",
        ),
        // As deep as they are long.
        (
            ConstraintKind::Regex,
            &deep("(", ")", 100_000),
            "regular expression: ",
        ),
        (
            ConstraintKind::JsonSchema,
            &deep("[", "]", 100_000),
            "JSON Schema: ",
        ),
    ] {
        let made = guide.compile(kind, grammar, 8);
        assert!(made.is_err(), "{}", &grammar[..grammar.len().min(80)]);
        let error = made.unwrap_err().to_string();
        assert!(
            error.starts_with("constraint: ") && error.contains(message),
            "{error}"
        );
        assert!(
            error.len() < 2000 && !error.contains("<state>") && !error.contains("backtrace"),
            "{error}"
        );
    }
}

#[test]
fn masks_stay_within_bounds_of_work() {
    let tokenizer = super::bytes_tokenizer();
    let guide = guide(&tokenizer);
    // Whatever comes of them, it is an answer.
    let any: Value = json!({"anyOf": (0..200).map(|at| json!({"type": "string", "pattern": format!("(a|b)*a(a|b){{{at}}}")}))
        .collect::<Vec<Value>>()});
    let nested = format!("start: {}\"a\"{}", "(".repeat(3000), ")".repeat(3000));
    for (kind, grammar) in [
        (ConstraintKind::Regex, "(a|b)*a(a|b){60}c".to_owned()),
        (ConstraintKind::Regex, "(a?){500}a{500}".to_owned()),
        (ConstraintKind::Regex, "(a{1000}){1000}{1000}".to_owned()),
        (ConstraintKind::Lark, "start: start start | \"a\" | ".to_owned()),
        (ConstraintKind::Lark, nested),
        (ConstraintKind::JsonSchema, any.to_string()),
        (
            ConstraintKind::JsonSchema,
            json!({"type": "string", "minLength": 100_000}).to_string(),
        ),
    ] {
        let Ok(mut constraint) = guide.compile(kind, &grammar, 8) else {
            continue;
        };
        for _ in 0..20 {
            let Ok(words) = constraint.mask() else { break };
            let first = words.iter().position(|word| *word != 0).unwrap();
            let id = (first * 32) as i32 + words[first].trailing_zeros() as i32;
            if id == END || constraint.take(id).is_err() {
                break;
            }
        }
    }
}
