//! Folders of others with a processor's configuration: images and sound by the calls for them.

use oxpipe::component::RunControl;
use oxpipe::media::Work;
use oxpipe::media::audio::Sound;
use oxpipe::media::image::RgbImage;
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineOptions, Run, RunSettings};
use oxpipe::runtime::LogLevel;
use oxpipe_test_support::onnx_writer::{BOOL, FLOAT, INT64, Model, Node, Tensor};

use super::fake::{self, VOCABULARY, continuation, floats};
use super::genai::{WHISPER, whisper_files};
use super::hugging_face::{embed_tokens, encoder_decoder};
use super::tiny::{self, Decoder, Files, for_each_mix, open, start, steps};
use super::written;

fn with(mut files: Files, texts: &[(&str, &str)]) -> Files {
    files.extend(
        texts
            .iter()
            .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())),
    );
    files
}

fn folder(texts: &[(&str, &str)], graphs: &[(&str, Vec<u8>)]) -> Files {
    let graphs = graphs
        .iter()
        .map(|(name, graph)| ((*name).to_owned(), graph.clone()));
    with(graphs.collect(), texts)
}

fn plain(width: u64, height: u64, pixel: [u8; 3]) -> RgbImage {
    let bytes = pixel.repeat((width * height) as usize);
    RgbImage::from_raw(width, height, &bytes).unwrap()
}

const LLAVA: &str = r#"{
  "architectures": ["LlavaForConditionalGeneration"],
  "image_token_index": 7,
  "image_seq_length": 3,
  "text_config": {"max_position_embeddings": 64, "eos_token_id": 5}
}"#;

/// One pixel, its bytes as numbers.
const ONE_PIXEL: &str = r#"{
  "image_processor_type": "ViTImageProcessor",
  "size": {"height": 1, "width": 1},
  "resample": 0,
  "do_rescale": false,
  "do_normalize": false
}"#;

fn llava(processor: &str) -> Files {
    let decoder = Decoder {
        sequence: "inputs_embeds",
        embeds: true,
        ..Decoder::default()
    };
    let graphs = [
        ("onnx/embed_tokens.onnx", embed_tokens()),
        ("onnx/vision_encoder.onnx", tiny::vision()),
        ("onnx/decoder_model_merged.onnx", decoder.encode()),
    ];
    let texts = [("config.json", LLAVA), ("preprocessor_config.json", processor)];
    folder(&texts, &graphs)
}

#[test]
fn an_image_for_a_hugging_face_folder() {
    let files = llava(ONE_PIXEL);
    for_each_mix(&files, &["vision", "embedding", "decoder"], |pipeline| {
        let control = RunControl::default();
        let mut run = start(pipeline);
        run.add_image(&plain(5, 4, [4, 6, 1]), &control).unwrap();
        assert_eq!(
            floats(run.get_tensor("vision.pixel_values").unwrap()),
            [4.0, 6.0, 1.0]
        );
        run.append_tokens(&[2, 7, 1]).unwrap();
        // Its features stand where its tokens are.
        assert_eq!(run.tokens(), [2, 7, 7, 7, 1]);
        assert_eq!(steps(&mut run, 1), continuation(&[2, 4, 6, 1, 1], 1, 0));
        // Without an image the placeholder is a token as others, and no place for a later one.
        let mut run = start(pipeline);
        run.append_tokens(&[2, 7, 1]).unwrap();
        assert_eq!(run.tokens(), [2, 7, 1]);
        run.add_image(&plain(1, 1, [4, 6, 1]), &control).unwrap();
        let error = run.step(&control).unwrap_err();
        assert!(
            error.to_string().contains("1 images have no placeholder"),
            "{error}"
        );
        // Text alone goes as before.
        let mut run = start(pipeline);
        run.append_tokens(&[2, 3]).unwrap();
        assert_eq!(steps(&mut run, 3), continuation(&[2, 3], 3, 0));
    });
    let pipeline = open(&files).unwrap();
    let description = pipeline.describe();
    let images = &description["images"];
    assert_eq!(images["size"], serde_json::json!({"height": 1, "width": 1}));
    assert_eq!(images["placeholders"]["image_placeholder_token_id"], 7);
    assert_eq!(images["placeholders"]["tokens_per_tile"], 3);
    assert_eq!(images["outputs"][0]["name"], "vision.pixel_values");
    assert_eq!(images["transforms"][1]["op"], "resize");
    assert!(description["audio"].is_null());
    written::check(&files);
}

/// A classifier has no place for an image in a prompt.
#[test]
fn an_image_for_a_model_that_runs_once() {
    let graph = Model::new()
        .input("pixel_values", FLOAT, "[batch, 3, 1, 1]")
        .output("logits", FLOAT, "[batch, 3, 1, 1]")
        .node(Node::new("Neg", &["pixel_values"], &["logits"]))
        .encode();
    let config = r#"{"architectures": ["ViTForImageClassification"]}"#;
    let scaled = ONE_PIXEL.replace("\"do_rescale\": false", "\"rescale_factor\": 0.5");
    let texts = [("config.json", config), ("preprocessor_config.json", &scaled)];
    let files = folder(&texts, &[("model.onnx", graph)]);
    for_each_mix(&files, &["model"], |pipeline| {
        let mut run = start(pipeline);
        run.add_image(&plain(3, 3, [1, 2, 3]), &RunControl::default())
            .unwrap();
        run.step(&RunControl::default()).unwrap();
        assert_eq!(
            floats(run.get_tensor("model.logits").unwrap()),
            [-0.5, -1.0, -1.5]
        );
    });
    written::check(&files);
}

/// The names that image processors had before say what they did.
#[test]
fn older_folders_call_image_processors_feature_extractors() {
    let graph = Model::new()
        .input("pixel_values", FLOAT, "[batch, 3, 1, 1]")
        .output("logits", FLOAT, "[batch, 3, 1, 1]")
        .node(Node::new("Neg", &["pixel_values"], &["logits"]))
        .encode();
    for kind in ["Beit", "CLIP", "ConvNext", "DeiT", "MobileNetV2", "ViT"] {
        let processor = format!(
            r#"{{"feature_extractor_type": "{kind}FeatureExtractor", "size": 1, "resample": 0,
              "do_center_crop": false, "do_rescale": false, "do_normalize": false}}"#
        );
        let texts = [
            (
                "config.json",
                r#"{"architectures": ["ViTForImageClassification"]}"#,
            ),
            ("preprocessor_config.json", &processor),
        ];
        let files = folder(&texts, &[("model.onnx", graph.clone())]);
        for_each_mix(&files, &["model"], |pipeline| {
            let mut run = start(pipeline);
            run.add_image(&plain(1, 1, [1, 2, 3]), &RunControl::default())
                .unwrap();
            let pixels = floats(run.get_tensor("model.pixel_values").unwrap());
            assert_eq!(pixels, [1.0, 2.0, 3.0], "{kind}");
        });
        written::check(&files);
    }
}

/// What a configuration may say, a package that is written of it may say too.
#[test]
fn every_configuration_that_is_taken_can_be_written() {
    let config = r#"{"architectures": ["WhisperForConditionalGeneration"], "decoder_start_token_id": 0}"#;
    for said in [
        "\"sampling_rate\": 8000",
        "\"n_fft\": 100",
        "\"n_fft\": 100, \"hop_length\": 400",
        "\"padding_value\": -0.5",
        "\"padding_value\": null",
    ] {
        let processor = format!(
            r#"{{"feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 1, "feature_size": 4, {said}}}"#
        );
        let encoder = tiny::encoder("input_features", "last_hidden_state", ["", ""], 0);
        let texts = [("config.json", config), ("preprocessor_config.json", &processor)];
        let graphs = [
            ("onnx/encoder_model.onnx", encoder),
            ("onnx/decoder_model_merged.onnx", encoder_decoder()),
        ];
        let files = folder(&texts, &graphs);
        assert!(open(&files).unwrap().describe()["audio"].is_object(), "{said}");
        written::check(&files);
    }
    for (said, message) in [
        ("\"padding_value\": 1e300", "padding_value: it is no number"),
        ("\"padding_value\": \"0\"", "padding_value: it is no number"),
        ("\"hop_length\": 0", "hop_length: it is no number"),
    ] {
        let processor = format!(r#"{{"feature_extractor_type": "WhisperFeatureExtractor", {said}}}"#);
        let files = with(
            whisper_files(WHISPER),
            &[("preprocessor_config.json", &processor)],
        );
        let error = open(&files).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    for std in ["-0.5", "0", "1e-60", "1e300", "null"] {
        let list = format!("\"image_std\": [1, {std}, 1]");
        let processor = ONE_PIXEL.replace("\"do_normalize\": false", &list);
        let error = open(&llava(&processor)).unwrap_err().to_string();
        assert!(
            error.contains("preprocessor_config.json:6: image_std: "),
            "{error}"
        );
    }
    for mean in [
        "[null, 0.5, 0.5, 0.5]",
        "[0.5, 1e300, 0.5]",
        "[0.5, 0.5, \"0.5\"]",
        "0.5",
    ] {
        let list = format!("\"image_mean\": {mean}");
        let processor = ONE_PIXEL.replace("\"do_normalize\": false", &list);
        let error = open(&llava(&processor)).unwrap_err().to_string();
        assert!(
            error.contains("preprocessor_config.json:6: image_mean: "),
            "{error}"
        );
    }
}

/// Whisper's features of silence: log10(1e-10) is -10, and (-10 + 4) / 4 is -1.5. One frame.
const WHISPER_PROCESSOR: &str = r#"{
  "feature_extractor_type": "WhisperFeatureExtractor",
  "chunk_length": 1,
  "feature_size": 4,
  "hop_length": 16000,
  "n_fft": 16000,
  "sampling_rate": 16000
}"#;

fn check_silence(pipeline: &Pipeline, address: &str) {
    let control = RunControl::default();
    let silence = Sound::from_raw(8000, 2, &[0.0; 2000], &Work::default()).unwrap();
    let mut run = start(pipeline);
    run.set_audio(&silence, &control).unwrap();
    assert_eq!(floats(run.get_tensor(address).unwrap()), [-1.5; 4]);
    run.append_tokens(&[4, 3]).unwrap();
    assert_eq!(steps(&mut run, 3), continuation(&[4, 3], 3, -6));
    run.clear_audio().unwrap();
    assert_eq!(run.step(&control).unwrap_err().kind(), ErrorKind::MissingInput);
}

#[test]
fn sound_for_a_hugging_face_folder() {
    let config = r#"{"architectures": ["WhisperForConditionalGeneration"], "decoder_start_token_id": 0}"#;
    let encoder = tiny::encoder("input_features", "last_hidden_state", ["", ""], 0);
    let texts = [
        ("config.json", config),
        ("preprocessor_config.json", WHISPER_PROCESSOR),
    ];
    let graphs = [
        ("onnx/encoder_model.onnx", encoder),
        ("onnx/decoder_model_merged.onnx", encoder_decoder()),
    ];
    let files = folder(&texts, &graphs);
    for_each_mix(&files, &["encoder", "decoder"], |pipeline| {
        check_silence(pipeline, "encoder.input_features");
    });
    let description = open(&files).unwrap().describe();
    assert_eq!(description["audio"]["sample_rate"], 16_000);
    assert_eq!(description["audio"]["transforms"][3]["op"], "log_mel");
    assert!(description["images"].is_null());
    written::check(&files);
}

/// Of mean 0 and variance 1: -1 and 1 of any two samples, but for the 1e-7 that is added.
#[test]
fn a_waveform_for_a_model_that_runs_once() {
    let graph = Model::new()
        .input("input_values", FLOAT, "[batch, samples]")
        .output("logits", FLOAT, "[batch, samples]")
        .node(Node::new("Neg", &["input_values"], &["logits"]))
        .encode();
    let config = r#"{"architectures": ["Wav2Vec2ForCTC"]}"#;
    let processor = r#"{"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 8000}"#;
    let texts = [("config.json", config), ("preprocessor_config.json", processor)];
    let files = folder(&texts, &[("model.onnx", graph)]);
    for_each_mix(&files, &["model"], |pipeline| {
        let mut run = start(pipeline);
        let samples = Sound::from_raw(8000, 1, &[0.25, 0.75], &Work::default()).unwrap();
        run.set_audio(&samples, &RunControl::default()).unwrap();
        run.step(&RunControl::default()).unwrap();
        let logits = floats(run.get_tensor("model.logits").unwrap());
        assert!(
            (logits[0] - 1.0).abs() < 1e-5 && (logits[1] + 1.0).abs() < 1e-5,
            "{logits:?}"
        );
    });
    written::check(&files);
}

#[test]
fn sound_for_a_genai_folder() {
    let extensions = r#"{"feature_extraction": {"sequence": [
      {"operation": {"name": "audio_decoder", "type": "AudioDecoder"}},
      {"operation": {"name": "STFT", "type": "STFTNorm",
        "attrs": {"n_fft": 16000, "frame_length": 16000, "hop_length": 16000}}},
      {"operation": {"name": "log_mel_spectrogram", "type": "LogMelSpectrum",
        "attrs": {"chunk_size": 1, "hop_length": 16000, "n_fft": 16000, "n_mel": 4}}}
    ]}}"#;
    let named = WHISPER.replacen(
        "\"model\": {",
        "\"model\": {\"speech\": {\"config_filename\": \"sound/how.json\"},",
        1,
    );
    for (config, file) in [
        (WHISPER, ("audio_processor_config.json", extensions)),
        (WHISPER, ("preprocessor_config.json", WHISPER_PROCESSOR)),
        (&named, ("sound/how.json", extensions)),
    ] {
        let files = with(whisper_files(config), &[file]);
        for_each_mix(&files, &["encoder", "decoder"], |pipeline| {
            check_silence(pipeline, "encoder.audio_features");
        });
        written::check(&files);
    }
}

const QWEN: &str = r#"{
  "architectures": ["Qwen2VLForConditionalGeneration"],
  "image_token_id": 6,
  "max_position_embeddings": 64
}"#;

/// Patches of one pixel, four of which become a token.
const QWEN_PROCESSOR: &str = r#"{
  "image_processor_type": "Qwen2VLImageProcessor",
  "patch_size": 1,
  "merge_size": 2,
  "temporal_patch_size": 1,
  "min_pixels": 4,
  "max_pixels": 400,
  "do_rescale": false,
  "do_normalize": false
}"#;

/// Features are the mean of four patches.
fn qwen_vision() -> Vec<u8> {
    Model::new()
        .input("pixel_values", FLOAT, "[patches, 3]")
        .input("image_grid_thw", INT64, "[images, 3]")
        .output("image_features", FLOAT, "[image_tokens, 1]")
        .initializer(Tensor::ints("groups", &[2], &[-1, 12]))
        .initializer(Tensor::ints("columns", &[1], &[1]))
        .initializer(Tensor::floats("share", &[], &[1.0 / 12.0]))
        .node(Node::new("Reshape", &["pixel_values", "groups"], &["grouped"]))
        .node(Node::new("ReduceSum", &["grouped", "columns"], &["sums"]).int("keepdims", 1))
        .node(Node::new("Mul", &["sums", "share"], &["image_features"]))
        .encode()
}

/// The next token is the sum of the last position's axes.
fn qwen_decoder() -> Vec<u8> {
    let choices: Vec<f32> = (0..VOCABULARY).map(|id| id as f32).collect();
    let mut model = Model::new()
        .input("inputs_embeds", FLOAT, "[batch, sequence, 1]")
        .initializer(Tensor::ints("rows", &[4], &[1, 1, -1, 1]))
        .node(Node::new("Reshape", &["inputs_embeds", "rows"], &["new"]));
    for name in ["key", "value"] {
        let (past, present) = (format!("past_key_values.0.{name}"), format!("present.0.{name}"));
        model = model
            .input(&past, FLOAT, "[batch, 1, past_sequence, 1]")
            .output(&present, FLOAT, "[batch, 1, total_sequence, 1]")
            .node(Node::new("Concat", &[&past, "new"], &[&present]).int("axis", 2));
    }
    model
        .input("position_ids", INT64, "[3, batch, sequence]")
        .output("logits", FLOAT, &format!("[batch, sequence, {VOCABULARY}]"))
        .initializer(Tensor::ints("first", &[1], &[0]))
        .initializer(Tensor::ints("last", &[1], &[2]))
        .initializer(Tensor::floats("size", &[], &[VOCABULARY as f32]))
        .initializer(Tensor::floats("choices", &[VOCABULARY], &choices))
        .node(Node::new("Cast", &["position_ids"], &["positions"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceSum", &["positions", "first"], &["sums"]).int("keepdims", 0))
        .node(Node::new("Mod", &["sums", "size"], &["next"]).int("fmod", 1))
        .node(Node::new("Unsqueeze", &["next", "last"], &["next_column"]))
        .node(Node::new("Sub", &["next_column", "choices"], &["away"]))
        .node(Node::new("Abs", &["away"], &["distance"]))
        .node(Node::new("Neg", &["distance"], &["logits"]))
        .encode()
}

fn qwen() -> Files {
    let texts = [
        ("config.json", QWEN),
        ("preprocessor_config.json", QWEN_PROCESSOR),
    ];
    let graphs = [
        ("onnx/embed_tokens.onnx", embed_tokens()),
        ("onnx/vision_encoder.onnx", qwen_vision()),
        ("onnx/decoder_model_merged.onnx", qwen_decoder()),
    ];
    folder(&texts, &graphs)
}

/// Positions go on behind the largest side of a picture, whatever is fed at once.
#[test]
fn positions_of_pictures_on_three_axes() {
    let files = qwen();
    for_each_mix(&files, &["vision", "embedding", "decoder"], |pipeline| {
        let control = RunControl::default();
        for chunk_size in [None, Some(2)] {
            let settings = RunSettings {
                chunk_size,
                stop_on_eos: false,
                ..RunSettings::default()
            };
            let mut run = Run::new(pipeline, &settings).unwrap();
            // 2 rows of 3 tokens, and 1 row of 4.
            run.add_image(&plain(6, 4, [3, 3, 3]), &control).unwrap();
            run.add_image(&plain(8, 2, [5, 5, 5]), &control).unwrap();
            run.append_tokens(&[2, 3, 6, 1]).unwrap();
            assert_eq!(run.tokens(), [&[2, 3][..], &[6; 6], &[1]].concat());
            // Places 0 and 1, a picture from 2 to 4, and 5: 3 * 5 mod 8.
            let error = run.step(&control).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
            run.append_tokens(&[6, 0]).unwrap();
            // The second from 6 to 9, and 10: 30 mod 8; then 33 and 36.
            assert_eq!(steps(&mut run, 3), [6, 1, 4]);
            // Back before the second picture, 5 is last.
            run.rewind(9).unwrap();
            run.clear_images().unwrap();
            run.add_image(&plain(6, 4, [3, 3, 3]), &control).unwrap();
            let error = run.step(&control).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidState);
            assert!(error.to_string().contains("tokens 2 to 8"), "{error}");
            run.rewind(2).unwrap();
            run.append_tokens(&[6, 1]).unwrap();
            assert_eq!(steps(&mut run, 2), [7, 2]);
            // Text alone counts as ever.
            let mut run = Run::new(pipeline, &settings).unwrap();
            run.append_tokens(&[2, 3, 5]).unwrap();
            assert_eq!(steps(&mut run, 2), [6, 1]);
        }
    });
    let description = open(&files).unwrap().describe();
    assert_eq!(
        description["images"]["placeholders"]["token_count_source"],
        "from_grid"
    );
    assert_eq!(
        description["images"]["outputs"][1]["name"],
        "vision.image_grid_thw"
    );
    written::check(&files);
}

/// The same as onnxruntime-genai has it: images of the one size that its pipeline says.
#[test]
fn positions_of_pictures_in_a_genai_folder() {
    let config = r#"{
      "model": {
        "context_length": 64,
        "decoder": {"filename": "decoder.onnx", "inputs": {"inputs_embeds": "inputs_embeds"}, "num_hidden_layers": 1},
        "embedding": {"filename": "embedding.onnx"},
        "vision": {
          "filename": "vision.onnx",
          "inputs": {"pixel_values": "pixel_values", "image_grid_thw": "image_grid_thw"}
        },
        "image_token_id": 6
      }
    }"#;
    let processor = r#"{"processor": {"name": "qwen2_5_image_processor", "transforms": [
      {"operation": {"type": "DecodeImage", "attrs": {"color_space": "BGR"}}},
      {"operation": {"type": "ConvertRGB"}},
      {"operation": {"type": "Resize", "attrs": {"width": 7, "height": 4, "smart_resize": 1, "min_pixels": 4,
        "max_pixels": 30, "patch_size": 1, "merge_size": 2, "interpolation": "LINEAR"}}},
      {"operation": {"type": "PatchImage", "attrs": {"patch_size": 1, "temporal_patch_size": 1, "merge_size": 2}}}
    ]}}"#;
    let graphs = [
        ("decoder.onnx", qwen_decoder()),
        ("embedding.onnx", tiny::embedding(6)),
        ("vision.onnx", qwen_vision()),
    ];
    let bare = folder(&[("genai_config.json", config)], &graphs);
    let error = open(&bare).unwrap_err().to_string();
    assert!(error.contains("positions on three axes"), "{error}");
    let files = with(bare, &[("processor_config.json", processor)]);
    for_each_mix(&files, &["vision", "embedding", "decoder"], |pipeline| {
        let mut run = start(pipeline);
        run.add_image(&plain(20, 20, [3, 3, 3]), &RunControl::default())
            .unwrap();
        // 7 x 4 become 8 x 4, which are too many, and then 6 x 4: two rows of three tokens.
        run.append_tokens(&[2, 3, 6, 1]).unwrap();
        assert_eq!(run.tokens(), [2, 3, 6, 6, 6, 6, 6, 6, 1]);
        let pixels = floats(run.get_tensor("vision.pixel_values").unwrap());
        assert_eq!(pixels, [3.0; 72]);
        // The picture from 2 to 4, and 5; then 6.
        assert_eq!(steps(&mut run, 2), [7, 2]);
    });
    written::check(&files);
}

/// A tile's feature is the mean of its numbers, one for each.
fn smol(tokenizer: &str) -> Files {
    let vision = Model::new()
        .input(
            "pixel_values",
            FLOAT,
            "[batch_size, num_images, 3, height, width]",
        )
        .input(
            "pixel_attention_mask",
            BOOL,
            "[batch_size, num_images, height, width]",
        )
        .output("image_features", FLOAT, "[num_tiles, 1, 1]")
        .initializer(Tensor::ints("numbers", &[3], &[-1, 1, 12]))
        .initializer(Tensor::ints("pixels", &[3], &[-1, 1, 4]))
        .initializer(Tensor::ints("last", &[1], &[2]))
        .initializer(Tensor::floats("share", &[], &[1.0 / 48.0]))
        .node(Node::new("Reshape", &["pixel_values", "numbers"], &["tiles"]))
        .node(Node::new("ReduceSum", &["tiles", "last"], &["sums"]).int("keepdims", 1))
        .node(Node::new("Cast", &["pixel_attention_mask"], &["ones"]).int("to", FLOAT.into()))
        .node(Node::new("Reshape", &["ones", "pixels"], &["tile_ones"]))
        .node(Node::new("ReduceSum", &["tile_ones", "last"], &["seen"]).int("keepdims", 1))
        .node(Node::new("Mul", &["sums", "seen"], &["all"]))
        .node(Node::new("Mul", &["all", "share"], &["image_features"]))
        .encode();
    let decoder = Decoder {
        sequence: "inputs_embeds",
        embeds: true,
        ..Decoder::default()
    };
    let graphs = [
        ("onnx/embed_tokens.onnx", embed_tokens()),
        ("onnx/vision_encoder.onnx", vision),
        ("onnx/decoder_model_merged.onnx", decoder.encode()),
    ];
    // Patches of one pixel, four of which become a token.
    let config = r#"{
      "architectures": ["Idefics3ForConditionalGeneration"],
      "image_token_id": 7,
      "scale_factor": 2,
      "vision_config": {"image_size": 2, "patch_size": 1},
      "max_position_embeddings": 64
    }"#;
    let processor = r#"{
      "image_processor_type": "Idefics3ImageProcessor",
      "size": {"longest_edge": 4},
      "max_image_size": {"longest_edge": 2},
      "do_rescale": false,
      "do_normalize": false
    }"#;
    let texts = [
        ("config.json", config),
        ("preprocessor_config.json", processor),
        ("tokenizer.json", tokenizer),
    ];
    folder(&texts, &graphs)
}

/// Tiles of two by two pixels, with the tokens around them that transformers writes.
#[test]
fn tiles_with_names_in_a_prompt() {
    let names = [
        "<row_1_col_1>",
        "<row_1_col_2>",
        "<row_2_col_1>",
        "<fake_token_around_image>",
        "<global-img>",
        "<row_2_col_2>",
        "\u{10a}",
        "<image>",
    ];
    let added = names.iter().enumerate().filter(|(_, name)| name.starts_with('<'));
    let added: Vec<serde_json::Value> = added
        .map(|(id, name)| {
            serde_json::json!({
                "id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            })
        })
        .collect();
    let vocabulary: serde_json::Map<_, _> = names
        .iter()
        .enumerate()
        .map(|(id, name)| ((*name).to_owned(), id.into()))
        .collect();
    let byte_level = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
    });
    let tokenizer = serde_json::json!({
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    });
    let files = smol(&tokenizer.to_string());
    for_each_mix(&files, &["vision", "embedding", "decoder"], |pipeline| {
        let mut run = start(pipeline);
        // Two rows of two tiles, and the whole.
        run.add_image(&plain(4, 4, [2, 2, 2]), &RunControl::default())
            .unwrap();
        run.append_tokens(&[1, 7, 2]).unwrap();
        let tiles = [3, 0, 7, 3, 1, 7, 6, 3, 2, 7, 3, 5, 7, 6, 6, 3, 4, 7, 3];
        assert_eq!(run.tokens(), [&[1][..], &tiles, &[2]].concat());
        let shape = run.get_tensor("vision.pixel_values").unwrap().shape().to_vec();
        assert_eq!(shape, [1, 5, 3, 2, 2]);
        assert_eq!(
            run.get_tensor("vision.pixel_attention_mask").unwrap().bytes(),
            [1; 20]
        );
        // The mean of twelve numbers stands for each image token.
        let tokens = run.tokens().iter();
        let seen: Vec<i32> = tokens.map(|&id| if id == 7 { 2 } else { id }).collect();
        assert_eq!(steps(&mut run, 1), continuation(&seen, 1, 0));
        // The placeholder may be in a text.
        let mut run = start(pipeline);
        run.add_image(&plain(4, 4, [2, 2, 2]), &RunControl::default())
            .unwrap();
        run.append_text("<image>", false).unwrap();
        assert_eq!(run.tokens(), tiles);
    });
    written::check(&files);
    // Without them the host writes the tokens.
    let unnamed = tokenizer.to_string().replace("<global-img>", "<global>");
    let pipeline = open(&smol(&unnamed)).unwrap();
    assert!(pipeline.describe()["images"]["placeholders"].is_null());
}

/// transformers' Gemma3Processor writes `"\n\n" boi image.. eoi "\n\n"` for each boi of the text, and its
/// Gemma4Processor `boi image.. eoi` for each image token.
#[test]
fn tokens_around_the_images_of_gemma() {
    let gemma3 = r#"{
      "architectures": ["Gemma3ForConditionalGeneration"],
      "image_token_index": 7,
      "boi_token_index": 4,
      "eoi_token_index": 6,
      "mm_tokens_per_image": 3,
      "text_config": {"max_position_embeddings": 64, "eos_token_id": 5}
    }"#;
    let tokenizer = r#"{
      "version": "1.0",
      "added_tokens": [],
      "model": {"type": "BPE", "vocab": {"a": 0, "\n": 1, "\n\n": 3}, "merges": []}
    }"#;
    let processor = ONE_PIXEL.replace("ViT", "Gemma3");
    let mut files = with(llava(&processor), &[("tokenizer.json", tokenizer)]);
    files.retain(|(name, _)| name != "config.json");
    let gemma3 = with(files, &[("config.json", gemma3)]);
    for_each_mix(&gemma3, &["vision", "embedding", "decoder"], |pipeline| {
        let mut run = start(pipeline);
        run.add_image(&plain(1, 1, [4, 6, 1]), &RunControl::default())
            .unwrap();
        run.append_tokens(&[2, 4, 1]).unwrap();
        assert_eq!(run.tokens(), [2, 3, 4, 7, 7, 7, 6, 3, 1]);
        assert_eq!(
            steps(&mut run, 1),
            continuation(&[2, 3, 4, 4, 6, 1, 6, 3, 1], 1, 0)
        );
    });
    written::check(&gemma3);

    let config = r#"{
      "architectures": ["Gemma4ForConditionalGeneration"],
      "image_token_id": 7,
      "boi_token_id": 4,
      "eoi_token_index": 6,
      "text_config": {"max_position_embeddings": 64, "eos_token_id": 5}
    }"#;
    let processor = r#"{
      "image_processor_type": "Gemma4ImageProcessor",
      "patch_size": 1,
      "pooling_kernel_size": 2,
      "max_soft_tokens": 2,
      "do_rescale": false
    }"#;
    let decoder = Decoder {
        sequence: "inputs_embeds",
        embeds: true,
        ..Decoder::default()
    };
    let vision = Model::new()
        .input("pixel_values", FLOAT, "[images, patches, 3]")
        .output("image_features", FLOAT, "[image_tokens, 1]")
        .initializer(Tensor::ints("groups", &[2], &[-1, 12]))
        .initializer(Tensor::ints("columns", &[1], &[1]))
        .node(Node::new("Reshape", &["pixel_values", "groups"], &["grouped"]))
        .node(Node::new("ReduceSum", &["grouped", "columns"], &["image_features"]).int("keepdims", 1))
        .encode();
    let graphs = [
        ("onnx/embed_tokens.onnx", embed_tokens()),
        ("onnx/vision_encoder.onnx", vision),
        ("onnx/decoder_model_merged.onnx", decoder.encode()),
    ];
    let gemma4 = |config: &str| {
        let texts = [("config.json", config), ("preprocessor_config.json", processor)];
        folder(&texts, &graphs)
    };
    let files = gemma4(config);
    let mut run = start(&open(&files).unwrap());
    run.add_image(&plain(4, 2, [1, 1, 1]), &RunControl::default())
        .unwrap();
    run.append_tokens(&[2, 7, 1]).unwrap();
    assert_eq!(run.tokens(), [2, 4, 7, 7, 6, 1]);
    written::check(&files);
    // Without them nothing is guessed.
    if let Some((pipeline, lines)) = warnings(&gemma4(&config.replace("eoi_token_index", "eoi"))) {
        assert!(pipeline.describe()["images"]["placeholders"].is_null());
        let warned =
            |line: &String| line.contains("the tokens that are written around an image are not known");
        assert!(lines.iter().any(warned), "{lines:?}");
    }
}

#[test]
fn a_number_of_image_tokens_that_nothing_says_is_a_warning() {
    let mut files = llava(ONE_PIXEL);
    for (name, bytes) in &mut files {
        if name == "config.json" {
            *bytes = LLAVA.replace("image_seq_length", "other").into_bytes();
        }
    }
    if let Some((pipeline, lines)) = warnings(&files) {
        assert!(pipeline.describe()["images"]["placeholders"].is_null());
        let warned = |line: &String| line.contains("nothing says how many tokens an image is");
        assert!(lines.iter().any(warned), "{lines:?}");
    }
}

#[test]
fn what_is_wrong_with_a_processor() {
    for (from, to, message) in [
        (
            "\"width\": 1",
            "\"width\": 0",
            "preprocessor_config.json:3: size: it is no number",
        ),
        (
            "\"resample\": 0",
            "\"resample\": 9",
            "preprocessor_config.json:4: resample: it is none",
        ),
        (
            "\"do_rescale\": false",
            "\"do_rescale\": 1",
            "preprocessor_config.json:5: do_rescale: it is not true or false",
        ),
        (
            "\"resample\": 0,",
            "\"resample\" 0,",
            "preprocessor_config.json:4: ",
        ),
    ] {
        let processor = ONE_PIXEL.replace(from, to);
        assert_ne!(processor, ONE_PIXEL);
        let error = open(&llava(&processor)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadPackage);
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn a_processors_file_lies_in_the_package() {
    let named = |name: &str| {
        let speech = format!("\"model\": {{\"speech\": {{\"config_filename\": \"{name}\"}},");
        open(&whisper_files(&WHISPER.replacen("\"model\": {", &speech, 1)))
    };
    let error = named("../how.json").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadPackage);
    assert!(
        error.to_string().contains("model.speech.config_filename")
            && error.to_string().contains("../how.json"),
        "{error}"
    );
    // Without it the host makes the features.
    assert!(named("how.json").unwrap().describe()["audio"].is_null());
}

/// The host can still set the tensors.
#[test]
fn a_processor_that_is_not_done_here_is_a_warning() {
    for (key, kind) in [
        ("image_processor_type", "MllamaImageProcessor"),
        ("feature_extractor_type", "DetrFeatureExtractor"),
    ] {
        let named = ONE_PIXEL.replace("ViTImageProcessor", kind);
        let files = llava(&named.replace("image_processor_type", key));
        let Some((pipeline, lines)) = warnings(&files) else {
            return;
        };
        assert!(pipeline.describe()["images"].is_null());
        let warned = format!("preprocessor_config.json:2: {key}: \"{kind}\"");
        assert!(lines.iter().any(|line| line.contains(&warned)), "{lines:?}");
        let mut run = start(&pipeline);
        let error = run.add_image(&plain(1, 1, [0; 3]), &RunControl::default());
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

/// A pipeline, and what the log has of warnings. Nothing where there is no runtime for it.
fn warnings(files: &Files) -> Option<(Pipeline, Vec<String>)> {
    let (runtime, log) = fake::runtime();
    let options = PipelineOptions {
        backend: Some(tiny::backends()[0]),
        ..PipelineOptions::default()
    };
    let source = tiny::source(files);
    let opened = Pipeline::open(&runtime, &source, &options, None, &RunControl::default());
    cfg!(feature = "native").then_some(())?;
    let lines = log.lock().unwrap();
    let warnings = lines.iter().filter(|(level, _)| *level == LogLevel::Warning);
    let warnings = warnings.map(|(_, line)| line.clone()).collect();
    Some((opened.unwrap(), warnings))
}
