//! Files that the `tokenizers` crate takes and then fails on, and streams that never end a
//! character.

use std::sync::Arc;

use oxpipe::text::{TextError, Tokenizer};
use oxpipe_test_support::cpu_time::cpu_time;
use serde_json::{Value, json};

use super::{bytes_tokenizer, pieces_tokenizer};

/// A tokenizer of one token, "a", with one part more.
fn with(part: &str, value: Value) -> Result<Arc<Tokenizer>, TextError> {
    let mut file = json!({"version": "1.0", "added_tokens": [],
                          "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}});
    file[part] = value;
    Tokenizer::from_bytes("here", file.to_string().as_bytes(), None)
}

#[test]
fn parts_that_cannot_work_are_refused_when_the_file_is_opened() {
    let charsmap = |map: &str| json!({"type": "Precompiled", "precompiled_charsmap": map});
    let template = |single: Value| json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}});
    let cases = [
        // 0xffffffff bytes of trie, of which 3 are there.
        (
            "normalizer",
            charsmap("//////////8="),
            "normalizer.precompiled_charsmap says that its trie takes 4294967295",
        ),
        (
            "normalizer",
            charsmap("AAAA"),
            "normalizer.precompiled_charsmap is too short",
        ),
        (
            "normalizer",
            charsmap(""),
            "normalizer.precompiled_charsmap is too short",
        ),
        (
            "normalizer",
            charsmap("AAAAAA=="),
            "normalizer.precompiled_charsmap has an empty trie",
        ),
        (
            "normalizer",
            charsmap("?AAAAA=="),
            "normalizer.precompiled_charsmap is not base64",
        ),
        (
            "normalizer",
            json!({"type": "Sequence", "normalizers": [charsmap("/wAAAAA=")]}),
            "normalizer.normalizers[0].precompiled_charsmap says that its trie takes 255 bytes, but is 5",
        ),
        (
            "pre_tokenizer",
            json!({"type": "FixedLength", "length": 0}),
            "pre_tokenizer.length is 0, expected 1 or more",
        ),
        (
            "post_processor",
            template(json!([{"SpecialToken": {"id": "nope", "type_id": 0}}])),
            "post_processor.single[0] is the special token \"nope\"",
        ),
        (
            "post_processor",
            template(json!([{"Sequence": {"id": "B", "type_id": 0}}])),
            "post_processor.single[0] is sequence B",
        ),
    ];
    for (part, value, expected) in cases {
        let error = with(part, value).unwrap_err();
        assert!(matches!(error, TextError::BadTokenizer { .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.contains(&format!("here: not a usable tokenizer: {expected}")),
            "{message}"
        );
    }
    let length_one = with("pre_tokenizer", json!({"type": "FixedLength", "length": 1})).unwrap();
    assert_eq!(length_one.encode("aa", false).unwrap(), [0, 0]);
}

#[test]
fn panics_of_the_library_are_errors() {
    // More letters off the end than the token has.
    let strip = with(
        "decoder",
        json!({"type": "Strip", "content": "a", "start": 0, "stop": 2}),
    )
    .unwrap();
    let error = strip.decode(&[0], false).unwrap_err();
    assert!(matches!(error, TextError::Decode { .. }));
    assert!(error.to_string().contains("decoder"), "{error}");
    let mut stream = strip.decode_stream(false);
    assert!(matches!(stream.push(0), Err(TextError::Decode { .. })));
    assert_eq!(
        stream.flush().unwrap(),
        "",
        "a token that failed is not in the stream"
    );
    // A trie of one unit that leads to unit 2^21.
    let astray = json!({"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAIA="});
    let error = with("normalizer", astray)
        .unwrap()
        .encode("a", false)
        .unwrap_err();
    assert!(matches!(error, TextError::Encode { .. }));
    assert!(error.to_string().contains("normalizer"), "{error}");
}

#[test]
fn a_configuration_is_an_object() {
    let file = json!({"version": "1.0", "added_tokens": [],
                      "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}});
    for config in ["[]", "3", "null", ""] {
        let error =
            Tokenizer::from_bytes("here", file.to_string().as_bytes(), Some(config.as_bytes())).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("tokenizer_config.json beside here: "),
            "{error}"
        );
    }
}

/// 16 times the tokens may take about 16 times as long; squared it would be 256 times.
#[test]
fn streams_without_text_take_time_in_proportion_to_their_length() {
    // A special token that is skipped, and a byte that starts a character.
    for id in [256, 0xc3] {
        let seconds = |count: usize| {
            let mut stream = bytes_tokenizer().decode_stream(true);
            let start = cpu_time();
            for _ in 0..count {
                stream.push(id).unwrap();
            }
            stream.flush().unwrap();
            (cpu_time() - start).as_secs_f64()
        };
        let (short, long) = (seconds(2_000), seconds(32_000));
        assert!(
            long < 80.0 * short,
            "token {id}: {short} s for 2,000, {long} s for 32,000"
        );
    }
}

#[test]
fn long_runs_without_a_character_are_not_lost() {
    for (tokenizer, first) in [(bytes_tokenizer(), 0xc3), (pieces_tokenizer(), 3 + 0xc3)] {
        let mut ids = vec![first; 1000];
        ids.extend([first - 0x1a; 500]);
        ids.push(first - 0xc3 + i32::from(b'x'));
        ids.extend([first; 300]);
        let mut stream = tokenizer.decode_stream(true);
        let mut text: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        text += &stream.flush().unwrap();
        assert_eq!(text, tokenizer.decode(&ids, true).unwrap());
    }
}

/// What is behind the cut is not put into the template, for each part of it with every other.
#[test]
fn what_a_text_is_cut_off_by_takes_no_memory() {
    let template = json!({"type": "TemplateProcessing", "pair": [], "special_tokens": {},
                          "single": [{"Sequence": {"id": "A", "type_id": 0}}]});
    let mut twice = template.clone();
    twice["single"] =
        json!([{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]);
    for (template, copies) in [(template, 1), (twice, 2)] {
        let tokenizer = with("post_processor", template).unwrap();
        let ids = tokenizer.encode_up_to(&"a".repeat(4_000), 2).unwrap();
        assert!(
            ids.len() <= 2 * copies && ids.iter().all(|&id| id == 0),
            "{ids:?}"
        );
    }
}

#[test]
fn files_that_are_not_utf_8_are_refused_wherever_that_is() {
    let text = json!({"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
                      "decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 0}});
    let file = text.to_string().into_bytes();
    Tokenizer::from_bytes("here", &file, None).unwrap();
    for at in (0..file.len()).filter(|at| file[*at].is_ascii_alphabetic()) {
        let mut file = file.clone();
        file[at] = 0x97;
        let error = Tokenizer::from_bytes("here", &file, None)
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("not UTF-8 from byte {at} on")), "{error}");
    }
}
