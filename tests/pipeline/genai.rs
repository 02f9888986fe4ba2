//! Packages in onnxruntime-genai's format: what is read from `genai_config.json`, what its ports
//! become, and each way in which it can be wrong.

use std::path::Path;
use std::sync::{Arc, Mutex};

use oxpipe::component::RunControl;
use oxpipe::package::PackageErrorKind;
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineError, PipelineOptions, Run, RunSettings};
use oxpipe::runtime::LogLevel;
use serde_json::{Value, json};

use super::fake::{Fake, continuation, float_tensor, io, open_source};
use super::tiny::{self, Decoder, Files, for_each_mix, open, set_floats, start, steps};

pub const DECODER: &str = r#"{
  "model": {
    "type": "of-our-own",
    "bos_token_id": 1,
    "context_length": 64,
    "decoder": {
      "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
      "filename": "model.onnx",
      "head_size": 1,
      "hidden_size": 1,
      "inputs": {
        "input_ids": "input_ids",
        "attention_mask": "attention_mask",
        "position_ids": "position_ids",
        "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value"
      },
      "outputs": {
        "logits": "logits",
        "present_key_names": "present.%d.key",
        "present_value_names": "present.%d.value"
      },
      "num_attention_heads": 1,
      "num_hidden_layers": 2,
      "num_key_value_heads": 1
    },
    "eos_token_id": [6, 7],
    "pad_token_id": 0,
    "vocab_size": 8
  },
  "search": {
    "do_sample": false,
    "max_length": 12,
    "past_present_share_buffer": true,
    "top_k": 50,
    "temperature": 0.5
  }
}"#;

fn files(config: &str, models: &[(&str, Vec<u8>)]) -> Files {
    let mut files: Files = vec![("genai_config.json".to_owned(), config.as_bytes().to_vec())];
    files.extend(
        models
            .iter()
            .map(|(name, model)| ((*name).to_owned(), model.clone())),
    );
    files
}

pub fn decoder_files(config: &str) -> Files {
    files(config, &[("model.onnx", Decoder::default().encode())])
}

#[test]
#[ignore = "writes what tests/check_with_onnxruntime.py reads"]
fn fixtures_for_onnxruntime() {
    let prompt = [3, 5, 2];
    let tokens = continuation(&prompt, 5, 0);
    let cases = json!([{"prompt": prompt, "tokens": tokens}]);
    tiny::write("append", &decoder_files(DECODER), &cases);
    let case = |(features, prompt, extra): (&[i32], [i32; 2], i64)| {
        json!({
            "prompt": prompt,
            "tokens": continuation(&prompt, 4, extra),
            "inputs": {"encoder.audio_features": {"shape": [1, features.len(), 1], "values": features}},
        })
    };
    let cases = [(&[1, 2, 2][..], [4, 1], 5), (&[3], [4, 1], 3)].map(case);
    tiny::write("encoder-decoder", &whisper_files(WHISPER), &json!(cases));
}

/// The prompt's continuation is the closed form's, at once and in chunks of two.
fn check(pipeline: &Pipeline) {
    for chunk_size in [None, Some(2)] {
        let settings = RunSettings {
            chunk_size,
            stop_on_eos: false,
            ..RunSettings::default()
        };
        let mut run = Run::new(pipeline, &settings).unwrap();
        run.append_tokens(&[3, 5, 2]).unwrap();
        assert_eq!(steps(&mut run, 5), continuation(&[3, 5, 2], 5, 0));
    }
}

#[test]
fn a_decoder() {
    for_each_mix(&decoder_files(DECODER), &["decoder"], |pipeline| {
        check(pipeline);
        let package = pipeline.package();
        assert_eq!(package.format, "genai_config");
        assert_eq!(package.metadata_file, Path::new("genai_config.json"));
        assert_eq!(package.strategy, "autoregressive");
        assert_eq!(package.decoder.as_deref(), Some("decoder"));
        assert_eq!(package.eos_token_ids, [6, 7]);
        assert_eq!(package.context_length, Some(64));
        // Two layers of a key and a value, each of one float32.
        assert_eq!(pipeline.kv_bytes_per_token(), Some(16));
    });
}

#[test]
fn search_gives_the_defaults_of_generation() {
    let pipeline = open(&decoder_files(DECODER)).unwrap();
    let description = pipeline.describe();
    let generation = &description["generation"];
    assert_eq!(generation["do_sample"], false);
    assert_eq!(generation["max_length"], 12);
    assert_eq!(generation["top_k"], 50);
    assert_eq!(generation["temperature"], 0.5);
    assert_eq!(generation["top_p"], Value::Null);
    assert_eq!(description["tokens"]["bos_token_id"], 1);
    assert_eq!(description["tokens"]["pad_token_id"], 0);
    // Prompt and answer together are no longer than max_length.
    let mut run = start(&pipeline);
    run.append_tokens(&[3, 5, 2]).unwrap();
    let mut count = 0;
    while run.finished().is_none() {
        run.step(&RunControl::default()).unwrap();
        count += 1;
    }
    assert_eq!(count, 9);
    // 0 and nothing are the context's.
    for shorter in ["\"max_length\": 0,", ""] {
        let config = DECODER.replace("\"max_length\": 12,", shorter);
        let pipeline = open(&decoder_files(&config)).unwrap();
        assert_eq!(pipeline.describe()["generation"]["max_length"], 64);
    }
}

/// Where a graph has both, past_sequence_length and current_sequence_length are the last token's
/// position and the number of all tokens, as onnxruntime-genai feeds them: so in its input_ids.cpp,
/// which begins the first at -1 and the other at 0 and adds each step's tokens to both. Where it has
/// one of them, it is what its name says.
#[test]
fn lengths_of_a_sequence() {
    let config = r#"{"model": {"decoder": {"filename": "model.onnx"}}, "search": {"max_length": 30}}"#;
    let both = [
        "past_sequence_length:int32[1,1]",
        "current_sequence_length:int32[1]",
    ];
    let cases: [(&[&str], [&[i64]; 4]); 3] = [
        (&both, [&[2, 3], &[3, 4], &[6, 7], &[7, 8]]),
        (&both[..1], [&[0], &[3], &[4], &[7]]),
        (&both[1..], [&[3], &[1], &[3], &[1]]),
    ];
    for (lengths, expected) in cases {
        let mut inputs = vec!["input_ids:int64[1,s]", "past_key_values.0.key:float32[1,1,p,1]"];
        inputs.extend(lengths);
        let outputs = ["logits:float32[1,s,8]", "present.0.key:float32[1,1,t,1]"];
        let seen = Arc::new(Mutex::new(Vec::new()));
        let given = Arc::clone(&seen);
        let names: Vec<String> = lengths
            .iter()
            .map(|port| port.split(':').next().unwrap().to_owned())
            .collect();
        let decoder = Fake::new(io(&inputs, &outputs), move |call| {
            let numbers = names.iter().map(|name| call.ints(name)[0]).collect::<Vec<_>>();
            given.lock().unwrap().push(numbers);
            let fed = call.ints("input_ids").len() as i64;
            let total = call.tensor("past_key_values.0.key").shape()[2] + fed;
            Ok(vec![
                ("logits", float_tensor(&[1, fed, 8], &vec![0.0; 8 * fed as usize])),
                (
                    "present.0.key",
                    float_tensor(&[1, 1, total, 1], &vec![0.0; total as usize]),
                ),
            ])
        });
        let source = tiny::source(&files(config, &[("model.onnx", Vec::new())]));
        let pipeline = open_source(&source, vec![("decoder", decoder)]).unwrap();
        let mut run = start(&pipeline);
        run.append_tokens(&[3, 5, 2]).unwrap();
        steps(&mut run, 2);
        // The last chosen token goes with the next two.
        run.append_tokens(&[1, 1]).unwrap();
        steps(&mut run, 2);
        assert_eq!(
            *seen.lock().unwrap(),
            expected.map(<[i64]>::to_vec),
            "{lengths:?}"
        );
    }
}

/// Layers are found by the names that the graph has; a config's numbers are only limits.
#[test]
fn layers_that_do_not_follow_each_other() {
    let config = r#"{"model": {"decoder": {"filename": "model.onnx", "num_hidden_layers": 10000}}}"#;
    let inputs = [
        "input_ids:int64[1,s]",
        "past_key_values.7.key:float32[1,1,p,1]",
        "past_key_values.2.key:float32[1,1,p,1]",
    ];
    let outputs = [
        "logits:float32[1,s,8]",
        "present.2.key:float32[1,1,t,1]",
        "present.7.key:float32[1,1,t,1]",
    ];
    let source = tiny::source(&files(config, &[("model.onnx", Vec::new())]));
    let pipeline = open_source(&source, vec![("decoder", Fake::ports(&inputs, &outputs))]).unwrap();
    assert_eq!(pipeline.kv_bytes_per_token(), Some(8));
    // Below the config's number there is none.
    let fewer = config.replace("10000", "2");
    let source = tiny::source(&files(&fewer, &[("model.onnx", Vec::new())]));
    let error = open_source(&source, vec![("decoder", Fake::ports(&inputs, &outputs))]).unwrap_err();
    assert!(
        error.to_string().contains("past_key_values.7.key")
            || error.to_string().contains("past_key_values.2.key"),
        "{error}"
    );
}

#[test]
fn more_stages_than_anybody_has() {
    let stages: Vec<String> = (0..3000)
        .map(|stage| format!("{{\"s{stage}\": {{\"filename\": \"model.onnx\"}}}}"))
        .collect();
    let config = format!(
        "{{\"model\": {{\"decoder\": {{\"num_hidden_layers\": 10000, \"pipeline\": [{}]}}}}}}",
        stages.join(", ")
    );
    let error = open(&decoder_files(&config)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadPackage);
    assert!(error.to_string().contains("more components than 256"), "{error}");
}

/// A config that names no port, no layers and no length: ports that the graph has go by the names
/// that onnxruntime-genai has for them.
#[test]
fn names_by_default() {
    let config = r#"{"model": {"decoder": {"filename": "model.onnx"}}}"#;
    let without = |mask, positions, lengths| Decoder {
        mask,
        positions,
        lengths,
        ..Decoder::default()
    };
    let mask = Some("attention_mask");
    let lengths = Some(["past_sequence_length", "total_sequence_length"]);
    for decoder in [
        Decoder::default(),
        without(mask, None, None),
        without(None, Some("position_ids"), None),
        without(None, None, lengths),
        without(mask, None, lengths),
    ] {
        for_each_mix(
            &files(config, &[("model.onnx", decoder.encode())]),
            &["decoder"],
            check,
        );
    }
    let pipeline = open(&decoder_files(config)).unwrap();
    let inputs = pipeline.describe()["components"][0]["inputs"].clone();
    let source = |name: &str| {
        let mut ports = inputs.as_array().unwrap().iter();
        ports.find(|port| port["name"] == name).unwrap()["source"].clone()
    };
    assert_eq!(source("input_ids"), "tokens");
    assert_eq!(source("attention_mask"), "attention_mask");
    assert_eq!(source("position_ids"), "positions");
    assert_eq!(source("past_key_values.1.value")["cache"], "present.1.value");
    assert!(pipeline.package().eos_token_ids.is_empty());
}

/// onnxruntime-genai's builder leaves sizes of caches open that the file says.
#[test]
fn sizes_of_caches_from_the_file() {
    let open_sizes = |heads, size| {
        let decoder = Decoder {
            sizes: [heads, size],
            ..Decoder::default()
        };
        files(DECODER, &[("model.onnx", decoder.encode())])
    };
    for_each_mix(&open_sizes("1", "kv_cache_dim"), &["decoder"], check);
    for_each_mix(&open_sizes("heads", "kv_cache_dim"), &["decoder"], |pipeline| {
        check(pipeline);
        assert_eq!(pipeline.kv_bytes_per_token(), Some(16));
    });
    super::written::check(&open_sizes("1", "kv_cache_dim"));
    let mut unsaid = open_sizes("1", "kv_cache_dim");
    unsaid[0].1 = DECODER.replace("\"head_size\": 1,", "").into_bytes();
    let error = open(&unsaid).unwrap_err();
    found_at(
        &error,
        "model.decoder",
        "expected fixed heads and head size, or io.kv_heads",
    );
}

#[test]
fn names_of_the_packages_own() {
    let decoder = Decoder {
        sequence: "ids",
        mask: Some("mask"),
        positions: Some("where"),
        caches: ["k_in_%d", "v%d.in", "k_out_%d", "v%d.out"],
        logits: "scores",
        ..Decoder::default()
    };
    let config = DECODER
        .replace("\"input_ids\": \"input_ids\"", "\"input_ids\": \"ids\"")
        .replace("\": \"attention_mask\"", "\": \"mask\"")
        .replace("\": \"position_ids\"", "\": \"where\"")
        .replace("past_key_values.%d.key", "k_in_%d")
        .replace("past_key_values.%d.value", "v%d.in")
        .replace("present.%d.key", "k_out_%d")
        .replace("present.%d.value", "v%d.out")
        .replace("\"logits\": \"logits\"", "\"logits\": \"scores\"");
    for_each_mix(
        &files(&config, &[("model.onnx", decoder.encode())]),
        &["decoder"],
        check,
    );
}

pub const WHISPER: &str = r#"{
  "model": {
    "type": "whisper",
    "context_length": 64,
    "decoder": {
      "filename": "decoder.onnx",
      "inputs": {
        "input_ids": "input_ids",
        "past_key_names": "past_key_self_%d",
        "past_value_names": "past_value_self_%d",
        "cross_past_key_names": "past_key_cross_%d",
        "cross_past_value_names": "past_value_cross_%d"
      },
      "outputs": {
        "logits": "logits",
        "present_key_names": "present_key_self_%d",
        "present_value_names": "present_value_self_%d"
      },
      "num_hidden_layers": 2
    },
    "encoder": {
      "filename": "encoder.onnx",
      "inputs": {"audio_features": "audio_features"},
      "outputs": {
        "encoder_hidden_states": "hidden_states",
        "cross_present_key_names": "present_key_cross_%d",
        "cross_present_value_names": "present_value_cross_%d"
      },
      "num_hidden_layers": 1
    },
    "eos_token_id": 7
  },
  "search": {"max_length": 64}
}"#;

pub fn whisper_files(config: &str) -> Files {
    let decoder = Decoder {
        positions: None,
        caches: [
            "past_key_self_%d",
            "past_value_self_%d",
            "present_key_self_%d",
            "present_value_self_%d",
        ],
        cross: Some(["past_key_cross_%d", "past_value_cross_%d"]),
        ..Decoder::default()
    };
    let cross = ["present_key_cross_%d", "present_value_cross_%d"];
    let encoder = tiny::encoder("audio_features", "hidden_states", cross, 2);
    files(
        config,
        &[("decoder.onnx", decoder.encode()), ("encoder.onnx", encoder)],
    )
}

/// Keys and values of the encoder are made once and held.
#[test]
fn an_encoder_and_a_decoder() {
    for_each_mix(&whisper_files(WHISPER), &["encoder", "decoder"], |pipeline| {
        let mut run = start(pipeline);
        set_floats(&mut run, "encoder.audio_features", &[1, 3, 1], &[1.0, 2.0, 2.0]);
        run.append_tokens(&[4, 1]).unwrap();
        assert_eq!(steps(&mut run, 4), continuation(&[4, 1], 4, 5));
        // The encoder once, the decoder four times.
        assert_eq!(run.stats().component_runs, 5);
        // Other sound, all tokens anew.
        set_floats(&mut run, "encoder.audio_features", &[1, 1, 1], &[3.0]);
        let tokens = run.tokens().to_vec();
        assert_eq!(steps(&mut run, 2), continuation(&tokens, 2, 3));
        let mut silent = start(pipeline);
        silent.append_tokens(&[1]).unwrap();
        let error = silent.step(&RunControl::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingInput);
    });
}

const PICTURES: &str = r#"{
  "model": {
    "context_length": 64,
    "decoder": {
      "filename": "decoder.onnx",
      "hidden_size": 1,
      "inputs": {"inputs_embeds": "inputs_embeds"},
      "num_hidden_layers": 2
    },
    "embedding": {
      "filename": "embedding.onnx",
      "inputs": {"input_ids": "input_ids", "image_features": "image_features"},
      "outputs": {"inputs_embeds": "inputs_embeds"}
    },
    "vision": {
      "filename": "vision.onnx",
      "inputs": {"pixel_values": "pixel_values"},
      "outputs": {"image_features": "image_features"}
    },
    "image_token_id": 7
  }
}"#;

fn picture_files(config: &str) -> Files {
    let decoder = Decoder {
        sequence: "inputs_embeds",
        embeds: true,
        ..Decoder::default()
    };
    let models = [
        ("decoder.onnx", decoder.encode()),
        ("embedding.onnx", tiny::embedding(7)),
        ("vision.onnx", tiny::vision()),
    ];
    files(config, &models)
}

/// Features take the place of the image tokens in the first pass; later passes, and requests
/// without a picture, get none.
#[test]
fn pictures_an_embedding_and_a_decoder() {
    let components = ["decoder", "embedding", "vision"];
    for_each_mix(&picture_files(PICTURES), &components, |pipeline| {
        let phases = pipeline.components().iter();
        let phases: Vec<_> = phases.map(|one| (one.name.as_str(), one.phase.name())).collect();
        let expected = [
            ("vision", "prompt_only"),
            ("embedding", "every_step"),
            ("decoder", "every_step"),
        ];
        assert_eq!(phases, expected);
        for chunk_size in [None, Some(1)] {
            let settings = RunSettings {
                chunk_size,
                stop_on_eos: false,
                ..RunSettings::default()
            };
            let mut run = Run::new(pipeline, &settings).unwrap();
            run.append_tokens(&[2, 3]).unwrap();
            assert_eq!(steps(&mut run, 3), continuation(&[2, 3], 3, 0));

            let mut run = Run::new(pipeline, &settings).unwrap();
            set_floats(&mut run, "vision.pixel_values", &[1, 1, 1, 2], &[4.0, 6.0]);
            run.append_tokens(&[2, 7, 7, 1]).unwrap();
            // The picture's numbers stand where its tokens are.
            let seen = [2, 4, 6, 1];
            assert_eq!(steps(&mut run, 1), continuation(&seen, 1, 0));
            let next = continuation(&seen, 4, 0);
            // No image token was chosen, so that the rest goes on alike.
            if !next.contains(&7) {
                assert_eq!(steps(&mut run, 3), next[1..]);
            }
        }
    });
}

#[test]
fn stages_of_a_decoder() {
    let config = r#"{
  "model": {
    "decoder": {
      "num_hidden_layers": 2,
      "hidden_size": 1,
      "pipeline": [
        {"embed": {"filename": "embed.onnx", "inputs": ["input_ids"], "outputs": ["embeds"],
                   "output_names_forwarder": {"embeds": "inputs_embeds"}}},
        {"middle": {"filename": "middle.onnx", "outputs": ["scores", "present.0.key"]},
         "head": {"filename": "head.onnx", "inputs": ["scores"], "outputs": ["logits"], "is_lm_head": true}}
      ]
    }
  }
}"#;
    use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
    let embed = Model::new()
        .input("input_ids", INT64, "[batch, sequence]")
        .output("embeds", FLOAT, "[batch, sequence, 1]")
        .initializer(Tensor::ints("shape", &[3], &[1, -1, 1]))
        .node(Node::new("Cast", &["input_ids"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("Reshape", &["numbers", "shape"], &["embeds"]))
        .encode();
    let middle = Decoder {
        sequence: "inputs_embeds",
        embeds: true,
        logits: "scores",
        ..Decoder::default()
    };
    let head = Model::new()
        .input("scores", FLOAT, "[batch, sequence, 8]")
        .output("logits", FLOAT, "[batch, sequence, 8]")
        .node(Node::new("Identity", &["scores"], &["logits"]))
        .encode();
    let models = [
        ("embed.onnx", embed),
        ("middle.onnx", middle.encode()),
        ("head.onnx", head),
    ];
    for_each_mix(
        &files(config, &models),
        &["embed", "middle", "head"],
        |pipeline| {
            check(pipeline);
            assert_eq!(pipeline.package().decoder.as_deref(), Some("head"));
            // One object in place of the list is the same.
            let mut run = start(pipeline);
            run.append_tokens(&[3, 5, 2]).unwrap();
            steps(&mut run, 2);
            // Caches hold what has run: four tokens of 16 bytes, or room for more.
            assert!(run.stats().kv_bytes >= 64);
        },
    );
    let object = config
        .replace("\"pipeline\": [\n        {\"embed\"", "\"pipeline\": {\"embed\"")
        .replace(
            "\"inputs_embeds\"}}},\n        {\"middle\"",
            "\"inputs_embeds\"}},\n        \"middle\"",
        )
        .replace("\"is_lm_head\": true}}\n      ]", "\"is_lm_head\": true}}");
    check(&open(&files(&object, &models)).unwrap());

    let refused = |from: &str, to: &str, key: &str, message: &str| {
        assert!(config.contains(from), "{from}");
        let error = open(&files(&config.replacen(from, to, 1), &models)).unwrap_err();
        found_at(&error, key, message);
    };
    let stage = "model.decoder.pipeline[1].middle";
    refused(
        "\"inputs_embeds\"}}},",
        "\"nowhere\"}}},",
        stage,
        "input \"inputs_embeds\" of component \"middle\" is fed by nothing",
    );
    refused(
        "\"inputs\": [\"scores\"]",
        "\"inputs\": [\"score\"]",
        "model.decoder.pipeline[1].head.inputs[0]",
        "has no input \"score\"; it has \"scores\"",
    );
    refused(
        "\"is_lm_head\": true",
        "\"run_on_prompt\": false",
        "model.decoder.pipeline[1].head.run_on_prompt",
        "a stage for the prompt or for the other tokens alone is not supported yet",
    );
    refused(
        "{\"embed\": {",
        "{\"em.bed\": {",
        "model.decoder.pipeline[0].em.bed",
        "is no component name",
    );
}

#[track_caller]
fn found_at(error: &PipelineError, key: &str, message: &str) {
    let PipelineError::Package(package) = error else {
        panic!("another kind of error: {error}");
    };
    let location = package.location();
    assert_eq!(location.file, Path::new("genai_config.json"), "{error}");
    assert_eq!(location.key, key, "{error}");
    assert!(location.line.is_some(), "{error}");
    assert!(package.kind().to_string().contains(message), "{error}");
}

/// `DECODER` with one replacement does not open.
#[track_caller]
fn refused(from: &str, to: &str, line: u64, key: &str, message: &str) {
    assert!(DECODER.contains(from), "{from}");
    let error = open(&decoder_files(&DECODER.replacen(from, to, 1))).unwrap_err();
    found_at(&error, key, message);
    let PipelineError::Package(package) = &error else {
        return;
    };
    assert_eq!(package.location().line, Some(line), "{error}");
}

#[test]
fn values_of_the_wrong_kind() {
    refused(
        "\"model\": {",
        "\"models\": {",
        1,
        "model",
        "is missing; the model's components",
    );
    refused(
        "\"decoder\": {",
        "\"decode\": {",
        2,
        "model.decoder",
        "is missing; the component that chooses",
    );
    refused(
        "\"filename\": \"model.onnx\",",
        "",
        6,
        "model.decoder.filename",
        "is missing; the decoder's .onnx file",
    );
    refused(
        "\"model.onnx\"",
        "5",
        8,
        "model.decoder.filename",
        "is the number 5, expected a text",
    );
    refused(
        "\"num_hidden_layers\": 2",
        "\"num_hidden_layers\": 0",
        24,
        "model.decoder.num_hidden_layers",
        "is the number 0, expected an integer from 1 to 10000",
    );
    refused(
        "\"num_hidden_layers\": 2",
        "\"num_hidden_layers\": \"two\"",
        24,
        "model.decoder.num_hidden_layers",
        "is the text \"two\"",
    );
    refused(
        "\"input_ids\": \"input_ids\"",
        "\"input_ids\": [\"input_ids\"]",
        12,
        "model.decoder.inputs.input_ids",
        "is a list, expected a text",
    );
    refused(
        "[6, 7]",
        "[6, -7]",
        27,
        "model.eos_token_id[1]",
        "is the number -7, expected a token id",
    );
    refused("[6, 7]", "true", 27, "model.eos_token_id", "is true, expected");
    refused(
        "\"context_length\": 64",
        "\"context_length\": -1",
        5,
        "model.context_length",
        "expected an integer of at least 0",
    );
    refused(
        "\"do_sample\": false",
        "\"do_sample\": 0",
        32,
        "search.do_sample",
        "expected true or false",
    );
    refused(
        "0.5",
        "\"hot\"",
        36,
        "search.temperature",
        "expected a number from 0 to 100",
    );
    refused(
        "\"max_length\": 12",
        "\"max_length\": 1.5",
        33,
        "search.max_length",
        "is the number 1.5",
    );
    refused(
        "\"past_present_share_buffer\": true",
        "\"past_present_share_buffer\": 1",
        34,
        "search.past_present_share_buffer",
        "expected true or false",
    );
    refused("\"search\": {", "\"search\": [", 32, "", "expected ',' or ']'");
}

#[test]
fn session_options_of_the_wrong_kind() {
    let options = |text: &str| format!("\"provider_options\": [], {text}");
    let key = |name: &str| format!("model.decoder.session_options.{name}");
    for (text, name, message) in [
        (
            "\"intra_op_num_threads\": -1",
            "intra_op_num_threads",
            "expected an integer from 0 to 1024",
        ),
        (
            "\"enable_mem_pattern\": \"1\"",
            "enable_mem_pattern",
            "expected true or false",
        ),
        (
            "\"graph_optimization_level\": \"ALL\"",
            "graph_optimization_level",
            "unknown value \"ALL\"; it is one of \"ORT_DISABLE_ALL\"",
        ),
        (
            "\"session.intra_op.allow_spinning\": 1",
            "session.intra_op.allow_spinning",
            "expected a text",
        ),
    ] {
        refused("\"provider_options\": []", &options(text), 7, &key(name), message);
    }
    refused(
        "\"provider_options\": []",
        "\"provider_options\": {}",
        7,
        &key("provider_options"),
        "is a mapping, expected a list",
    );
    refused(
        "\"provider_options\": []",
        "\"provider_options\": [{\"webgpu\": {\"preferredLayout\": 1}}]",
        7,
        &key("provider_options[0].webgpu.preferredLayout"),
        "expected a text",
    );
}

/// What a package may not set of ONNX Runtime: what loads code, names files, or is unknown. Each is
/// left out by name, and no file appears.
#[test]
fn session_options_that_reach_beyond_the_session() {
    let folder = std::env::temp_dir().join(format!("oxpipe-session-options-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("written");
    let path = path.to_str().unwrap().replace('\\', "/");
    let refused = [
        "custom_ops_library",
        "enable_profiling",
        "profile_file_prefix",
        "optimized_model_filepath",
        "use_env_allocators",
        "ep.context_enable",
        "ep.context_file_path",
        "ep.context_model_external_initializers_file_name",
        "ep.share_ep_contexts",
        "session.load_model_format",
        "session.save_model_format",
        "session.use_ort_model_bytes_directly",
        "session.use_ort_model_bytes_for_initializers",
        "session.collect_node_memory_stats_to_file",
        "session.debug_layout_transformation",
        "session.model_external_initializers_file_folder_path",
        "session.node_partition_config_file",
        "session.optimized_model_external_initializers_file_name",
        "session.resource_cuda_partitioning_settings",
        "session.set_denormal_as_zero",
        "session.of_a_later_version",
    ];
    let providers = [
        ("QNN", "backend_path"),
        ("QNN", "profiling_file_path"),
        ("OpenVINO", "cache_dir"),
        ("OpenVINO", "load_config"),
        ("VitisAI", "config_file"),
        ("CoreML", "ModelCacheDirectory"),
        ("NvTensorRtRtx", "user_compute_stream"),
        ("WebGPU", "dawnProcTable"),
    ];
    let allowed = ["session.intra_op.allow_spinning", "session.disable_prepacking"];
    let mut options: Vec<String> = Vec::new();
    options.extend(refused.iter().map(|name| format!("\"{name}\": \"{path}\"")));
    options.extend(allowed.iter().map(|name| format!("\"{name}\": \"1\"")));
    let provider = |(name, option): &(&str, &str)| format!("{{\"{name}\": {{\"{option}\": \"{path}\"}}}}");
    let list: Vec<String> = providers.iter().map(provider).collect();
    options.push(format!("\"provider_options\": [{}]", list.join(", ")));
    let config = DECODER.replace("\"provider_options\": []", &options.join(", "));
    let files = files(&config, &[("model.onnx", Decoder::default().encode())]);
    for backend in tiny::backends() {
        let (runtime, log) = super::fake::runtime();
        let options = PipelineOptions {
            backend: Some(backend),
            ..PipelineOptions::default()
        };
        let pipeline = Pipeline::open(
            &runtime,
            &tiny::source(&files),
            &options,
            None,
            &RunControl::default(),
        );
        check(&pipeline.unwrap());
        let lines = log.lock().unwrap();
        let about = |key: &str| {
            let key = format!("model.decoder.session_options.{key}: ");
            let about = lines
                .iter()
                .filter(|(level, line)| *level == LogLevel::Warning && line.contains(&key));
            about.count()
        };
        for name in refused {
            assert_eq!(about(name), 1, "{name} in {lines:?}");
        }
        for name in allowed {
            assert_eq!(about(name), 0, "{name} in {lines:?}");
        }
        for (index, (provider, option)) in providers.iter().enumerate() {
            let key = format!("provider_options[{index}].{provider}.{option}");
            assert_eq!(about(&key), 1, "{key} in {lines:?}");
        }
    }
    let written: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert!(written.is_empty(), "{written:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn ports_that_the_graph_lacks() {
    let in_inputs = |name: &str| format!("model.decoder.inputs.{name}");
    refused(
        "\"input_ids\": \"input_ids\"",
        "\"input_ids\": \"tokens\"",
        12,
        &in_inputs("input_ids"),
        "component \"decoder\" has no input \"tokens\"; it has \"input_ids\"",
    );
    refused(
        "past_key_values.%d.key",
        "past.%d.key",
        15,
        &in_inputs("past_key_names"),
        "has no input \"past.0.key\"",
    );
    refused(
        "present.%d.value",
        "presents.%d.value",
        21,
        "model.decoder.outputs.present_value_names",
        "has no output \"presents.0.value\"",
    );
    refused(
        "\"logits\": \"logits\"",
        "\"logits\": \"scores\"",
        19,
        "model.decoder.outputs.logits",
        "has no output \"scores\"",
    );
    // A layer too few leaves inputs over that nothing feeds.
    refused(
        "\"num_hidden_layers\": 2",
        "\"num_hidden_layers\": 1",
        6,
        "model.decoder",
        "does not say which port is its kv_inputs",
    );
    refused(
        "\"attention_mask\": \"attention_mask\"",
        "\"attention_mask\": \"mask\"",
        6,
        "model.decoder",
        "input \"attention_mask\" of component \"decoder\" is fed by nothing",
    );
}

#[test]
fn what_is_not_supported() {
    refused(
        "\"head_size\": 1,",
        "\"sliding_window\": {\"window_size\": 4, \"slide_inputs\": false},",
        9,
        "model.decoder.sliding_window",
        "sliding_window without slide_key_value_cache: false",
    );
    refused(
        "\"pad_token_id\": 0",
        "\"joiner\": {}",
        28,
        "model.joiner",
        "a transducer",
    );
    refused(
        "\"head_size\": 1,",
        "\"shared_initializers\": [{}],",
        9,
        "model.decoder.shared_initializers",
        "initializers that lie outside of the model",
    );
}

#[test]
fn files_that_are_not_there_or_out_of_the_package() {
    refused(
        "\"model.onnx\"",
        "\"other.onnx\"",
        8,
        "model.decoder.filename",
        "there is no file \"other.onnx\" in the package",
    );
    refused(
        "\"model.onnx\"",
        "\"../model.onnx\"",
        8,
        "model.decoder.filename",
        "path \"../model.onnx\" goes up with \"..\"",
    );
    refused(
        "\"pad_token_id\": 0",
        "\"tokenizer_dir\": \"texts\"",
        28,
        "model.tokenizer_dir",
        "there is no file \"texts/tokenizer.json\"",
    );
}

#[test]
fn encoders_that_do_not_fit() {
    let refused = |from: &str, to: &str, key: &str, message: &str| {
        assert!(WHISPER.contains(from), "{from}");
        let error = open(&whisper_files(&WHISPER.replacen(from, to, 1))).unwrap_err();
        found_at(&error, key, message);
    };
    refused(
        "present_value_cross_%d",
        "present_values_cross_%d",
        "model.decoder.inputs.cross_past_key_names",
        "not exactly one other component declares 4 cross_kv_outputs",
    );
    let refused = |from: &str, to: &str, key: &str, message: &str| {
        assert!(PICTURES.contains(from), "{from}");
        let error = open(&picture_files(&PICTURES.replacen(from, to, 1))).unwrap_err();
        found_at(&error, key, message);
    };
    refused(
        "\"outputs\": {\"image_features\": \"image_features\"}",
        "\"outputs\": {\"image_features\": \"features\"}",
        "model.vision.outputs.image_features",
        "component \"vision\" has no output \"features\"",
    );
    refused(
        "\"outputs\": {\"inputs_embeds\": \"inputs_embeds\"}",
        "\"outputs\": {\"inputs_embeds\": \"embeds\"}",
        "model.embedding.outputs.inputs_embeds",
        "component \"embedding\" has no output \"embeds\"",
    );
    refused(
        "\"filename\": \"vision.onnx\"",
        "\"adapter_filename\": \"a\", \"filename\": \"vision.onnx\"",
        "model.vision.adapter_filename",
        "an adapter that changes the decoder's weights",
    );
}

/// What is no error is a warning, and says where.
#[test]
fn warnings() {
    let config = DECODER
        .replace(
            "\"position_ids\": \"position_ids\"",
            "\"position_ids\": \"where\"",
        )
        .replace("\"vocab_size\": 8", "\"vocabulary\": 8, \"mtp\": {}")
        .replace(
            "\"do_sample\": false",
            "\"do_sample\": false, \"blank_penalty\": 0.5",
        )
        .replace(
            "\"provider_options\": []",
            "\"provider_options\": [{\"cuda\": {\"x\": \"1\"}}], \"custom_ops_library\": \"x.so\"",
        );
    let decoder = Decoder {
        positions: None,
        ..Decoder::default()
    };
    let (runtime, log) = super::fake::runtime();
    let source = tiny::source(&files(&config, &[("model.onnx", decoder.encode())]));
    let options = PipelineOptions {
        backend: Some(tiny::backends()[0]),
        ..PipelineOptions::default()
    };
    let opened = Pipeline::open(&runtime, &source, &options, None, &RunControl::default());
    if cfg!(feature = "native") {
        opened.unwrap();
    }
    let lines = log.lock().unwrap();
    let warned = |key: &str, message: &str| {
        let found = lines
            .iter()
            .any(|(level, line)| *level == LogLevel::Warning && line.contains(&format!("{key}: {message}")));
        assert!(found, "{key}: {message} in {lines:?}");
    };
    warned("model.vocabulary", "unknown field, ignored");
    warned("model.mtp", "the head that guesses is not used");
    warned("search.blank_penalty", "not done by this version");
    warned("model.decoder.session_options.custom_ops_library", "not done");
    if cfg!(feature = "native") {
        warned(
            "model.decoder.inputs.position_ids",
            "the graph has no input \"where\"; it is not fed",
        );
    }
}

/// The order of search: package metadata of our own comes first.
#[test]
fn which_format_is_taken() {
    let mut both = decoder_files(DECODER);
    let metadata = "
model:
  io:
    token_input: input_ids
    attention_mask_input: attention_mask
    position_ids_input: position_ids
    kv_inputs: [past_key_values.0.key, past_key_values.0.value, past_key_values.1.key, past_key_values.1.value]
    kv_outputs: [present.0.key, present.0.value, present.1.key, present.1.value]
    logits_output: logits
";
    both.push(("inference_metadata.yml".to_owned(), metadata.as_bytes().to_vec()));
    let pipeline = open(&both).unwrap();
    assert_eq!(pipeline.package().format, "inference_metadata");
    check(&pipeline);
    // A broken one does not count as absent.
    let mut broken = decoder_files(DECODER);
    broken.push(("inference_metadata.yaml".to_owned(), b"model: [".to_vec()));
    let PipelineError::Package(error) = open(&broken).unwrap_err() else {
        panic!("another kind of error");
    };
    assert_eq!(error.location().file, Path::new("inference_metadata.yaml"));
    let empty = open(&vec![("readme.txt".to_owned(), Vec::new())]).unwrap_err();
    let PipelineError::Package(empty) = empty else {
        panic!("another kind of error");
    };
    assert!(matches!(empty.kind(), PackageErrorKind::NoMetadata { looked_for } if looked_for.len() == 5));
}

#[test]
fn written_as_metadata() {
    for files in [
        decoder_files(DECODER),
        whisper_files(WHISPER),
        picture_files(PICTURES),
    ] {
        super::written::check(&files);
    }
    // What has no place there is said.
    let config = DECODER.replace("\"provider_options\": []", "\"intra_op_num_threads\": 2");
    let metadata = Pipeline::to_metadata(&tiny::source(&decoder_files(&config)), None).unwrap();
    let left_out = "# Left out: session_options of \"decoder\"";
    assert!(metadata.contains(left_out), "{metadata}");
    let metadata = Pipeline::to_metadata(&tiny::source(&decoder_files(DECODER)), None).unwrap();
    assert!(!metadata.contains(left_out), "{metadata}");
    let bare = r#"{"model": {"decoder": {"filename": "model.onnx"}}}"#;
    let lengths = Some(["past_sequence_length", "total_sequence_length"]);
    let decoder = Decoder {
        lengths,
        ..Decoder::default()
    };
    super::written::check(&files(bare, &[("model.onnx", decoder.encode())]));
}
