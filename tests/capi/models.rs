//! The models and packages that the programs in capi_tests/ run. The answers that those
//! programs expect follow from the graphs by hand.

use std::fs;
use std::path::Path;

use oxpipe_test_support::fixtures;
use oxpipe_test_support::onnx_writer::{BOOL, FLOAT, Graph, INT64, Model, Node, Tensor};
use serde_json::json;

/// Codes of `TensorProto.DataType` that cross the interface.
pub const DTYPES: [i32; 14] = [1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 13, 16, 17, 19];

/// What session.c, tensors.c, dtypes.c and models.c open.
pub fn write_models(folder: &Path) {
    let write =
        |name: &str, bytes: Vec<u8>| fs::write(folder.join(name), bytes).expect("a model can be written");
    let affine = affine();
    write("truncated.onnx", affine[..affine.len() / 2].to_vec());
    write("affine.onnx", affine);
    write("empty.onnx", Vec::new());
    write("random.onnx", noise(4096));
    fs::create_dir(folder.join("a_directory.onnx")).expect("a folder can be made");
    write("dynamic.onnx", dynamic());
    write("external.onnx", external());
    write(
        "weights.bin",
        [10.0f32, 20.0]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    );
    write("slow.onnx", slow());
    write("string.onnx", unsupported());
    write("wrong_attribute.onnx", wrong_attribute());
    write("missing_operators.onnx", missing_operators());
    for dtype in DTYPES {
        for rank in 0..=5 {
            write(&format!("identity_{dtype}_{rank}.onnx"), identity(dtype, rank));
        }
    }
}

/// y = x * 2 + 1, total = the sum over the last axis.
pub fn affine() -> Vec<u8> {
    Model::new()
        .metadata("made_for", "capi tests")
        .input("x", FLOAT, "[n, 4]")
        .output("y", FLOAT, "[n, 4]")
        .output("total", FLOAT, "[n]")
        .initializer(Tensor::floats("two", &[], &[2.0]))
        .initializer(Tensor::floats("one", &[], &[1.0]))
        .initializer(Tensor::ints("last", &[1], &[1]))
        .node(Node::new("Mul", &["x", "two"], &["double"]))
        .node(Node::new("Add", &["double", "one"], &["y"]))
        .node(Node::new("ReduceSum", &["x", "last"], &["total"]).int("keepdims", 0))
        .encode()
}

/// y = ones of the shape that x holds, copy = x.
fn dynamic() -> Vec<u8> {
    Model::new()
        .input("x", INT64, "[k]")
        .output("y", FLOAT, "[a, b]")
        .output("copy", INT64, "[k]")
        .initializer(Tensor::floats("one", &[], &[1.0]))
        .node(Node::new("Expand", &["one", "x"], &["y"]).name("expand"))
        .node(Node::new("Identity", &["x"], &["copy"]))
        .encode()
}

/// y = x + bias, the bias in another file.
fn external() -> Vec<u8> {
    Model::new()
        .input("x", FLOAT, "[2]")
        .output("y", FLOAT, "[2]")
        .initializer(Tensor::external("bias", FLOAT, &[2], "weights.bin", Some((0, 8))))
        .node(Node::new("Add", &["x", "bias"], &["y"]))
        .encode()
}

fn identity(dtype: i32, rank: usize) -> Vec<u8> {
    let dims = format!("[{}]", ["a", "b", "c", "d", "e"][..rank].join(", "));
    Model::new()
        // The 8-bit floats came with opset 19 and IR version 9.
        .opset("", 21)
        .ir_version(10)
        .input("x", dtype, &dims)
        .output("y", dtype, &dims)
        .node(Node::new("Identity", &["x"], &["y"]))
        .encode()
}

/// Squares a matrix again and again, some seconds' worth of work for a large one.
fn slow() -> Vec<u8> {
    let mut model = Model::new()
        .input("x", FLOAT, "[n, n]")
        .output("y", FLOAT, "[n, n]");
    for step in 0..400 {
        let from = if step == 0 { "x".into() } else { format!("x{step}") };
        let to = if step == 399 {
            "y".into()
        } else {
            format!("x{}", step + 1)
        };
        model = model.node(Node::new("MatMul", &[&from, &from], &[&to]));
    }
    model.encode()
}

/// A port of a type that does not cross the interface beside one that does.
fn unsupported() -> Vec<u8> {
    Model::new()
        .input("text", oxpipe_test_support::onnx_writer::STRING, "[n]")
        .input("mask", BOOL, "[n]")
        .output("copy", BOOL, "[n]")
        .output("same", oxpipe_test_support::onnx_writer::STRING, "[n]")
        .node(Node::new("Identity", &["mask"], &["copy"]))
        .node(Node::new("Identity", &["text"], &["same"]))
        .encode()
}

/// A node that no runtime can run: Cast to an element type that there is not.
fn wrong_attribute() -> Vec<u8> {
    Model::new()
        .input("x", FLOAT, "[n]")
        .output("y", FLOAT, "[n]")
        .node(Node::new("Cast", &["x"], &["y"]).name("to_nothing").int("to", 99))
        .encode()
}

/// Operators that nobody has, one of them in a branch.
fn missing_operators() -> Vec<u8> {
    let branch = |node: Node| Graph::new().output("b", FLOAT, "[n]").node(node);
    Model::new()
        .opset("", 17)
        .opset("com.example", 1)
        .input("x", FLOAT, "[n]")
        .input("yes", BOOL, "[]")
        .output("y", FLOAT, "[n]")
        .node(
            Node::new("Swirl", &["x"], &["a"])
                .name("first")
                .domain("com.example"),
        )
        .node(
            Node::new("If", &["yes"], &["y"])
                .graph(
                    "then_branch",
                    branch(
                        Node::new("Twirl", &["x"], &["b"])
                            .name("inside")
                            .domain("com.example"),
                    ),
                )
                .graph("else_branch", branch(Node::new("Neg", &["a"], &["b"]))),
        )
        .encode()
}

/// Bytes that are the same in every run and mean nothing.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A package in which every phase occurs. Tokens are 0 to 7; each is followed by the next,
/// 7 ends the text. `pixel_values` adds twice itself to the embeddings, so that a large
/// value at place k makes k + 1 the next token. `summary` (final_only) gives all ids times
/// two as float32, `probe` (on_demand) twice its input.
pub fn write_package(folder: &Path) {
    let write =
        |name: &str, bytes: Vec<u8>| fs::write(folder.join(name), bytes).expect("a file can be written");
    for (name, model) in package_models() {
        write(name, model);
    }
    write("inference_metadata.yaml", METADATA.into());
    write("tokenizer.json", TOKENIZER.into());
    write("tokenizer_config.json", TOKENIZER_CONFIG.into());
    write("bytes_tokenizer.json", BYTES_TOKENIZER.into());
}

/// Writes the packages that texts.c runs, `embedder` and `classifier`, into folders of the folder. The
/// vector of a token is (id, 1), and that of the text their mean, made one long: of "three five"
/// (4, 1) / sqrt(17). The logits of classes are (ids that are no padding, 0).
pub fn write_text_packages(folder: &Path) {
    let model = |pooled: bool| {
        let model = Model::new()
            .input("input_ids", INT64, "[batch, s]")
            .input("attention_mask", INT64, "[batch, s]")
            .initializer(Tensor::ints("axis", &[1], &[-1]))
            .initializer(Tensor::floats("zero", &[], &[0.0]))
            .initializer(Tensor::floats("one", &[], &[1.0]))
            .node(Node::new("Mul", &["input_ids", "attention_mask"], &["seen"]))
            .node(Node::new("Cast", &["seen"], &["ids"]).int("to", FLOAT.into()));
        match pooled {
            false => model
                .output("last_hidden_state", FLOAT, "[batch, s, 2]")
                .node(Node::new("Mul", &["ids", "zero"], &["zeros"]))
                .node(Node::new("Add", &["zeros", "one"], &["ones"]))
                .node(Node::new("Unsqueeze", &["ids", "axis"], &["first"]))
                .node(Node::new("Unsqueeze", &["ones", "axis"], &["second"]))
                .node(Node::new("Concat", &["first", "second"], &["last_hidden_state"]).int("axis", -1)),
            true => model
                .output("logits", FLOAT, "[batch, 2]")
                .node(Node::new("ReduceSum", &["ids", "axis"], &["sum"]).int("keepdims", 1))
                .node(Node::new("Mul", &["sum", "zero"], &["none"]))
                .node(Node::new("Concat", &["sum", "none"], &["logits"]).int("axis", -1)),
        }
        .encode()
    };
    let modules = r#"[
      {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
      {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
      {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#;
    let classes = r#"{"architectures": ["BertForSequenceClassification"],
      "id2label": {"0": "POSITIVE", "1": "NEGATIVE"}, "max_position_embeddings": 6}"#;
    let pooling = r#"{"word_embedding_dimension": 2, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}"#;
    let bert = r#"{"architectures": ["BertModel"], "max_position_embeddings": 6}"#;
    let files: [(&str, Vec<u8>); 8] = [
        ("embedder/config.json", bert.into()),
        ("embedder/modules.json", modules.into()),
        ("embedder/1_Pooling/config.json", pooling.into()),
        ("embedder/tokenizer.json", TOKENIZER.into()),
        ("embedder/model.onnx", model(false)),
        ("classifier/config.json", classes.into()),
        ("classifier/tokenizer.json", TOKENIZER.into()),
        ("classifier/model.onnx", model(true)),
    ];
    for (name, bytes) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder can be made");
        fs::write(path, bytes).expect("a file can be written");
    }
}

/// Writes the package that iterative.c runs: sample = (sample + cond) / 2, total = total + t,
/// three times.
pub fn write_iterative_package(folder: &Path) {
    let denoiser = Model::new()
        .input("sample", FLOAT, "[1, 4]")
        .input("cond", FLOAT, "[1, 4]")
        .input("total", FLOAT, "[]")
        .input("t", FLOAT, "[]")
        .output("denoised", FLOAT, "[1, 4]")
        .output("next_total", FLOAT, "[]")
        .initializer(Tensor::floats("half", &[], &[0.5]))
        .node(Node::new("Add", &["sample", "cond"], &["sum"]))
        .node(Node::new("Mul", &["sum", "half"], &["denoised"]))
        .node(Node::new("Add", &["total", "t"], &["next_total"]));
    let vae = Model::new()
        .input("latent", FLOAT, "[1, 4]")
        .output("image", FLOAT, "[1, 4]")
        .initializer(Tensor::floats("two", &[], &[2.0]))
        .initializer(Tensor::floats("one", &[], &[1.0]))
        .node(Node::new("Mul", &["latent", "two"], &["double"]))
        .node(Node::new("Add", &["double", "one"], &["image"]));
    let metadata = "\
schema_version: v1
required_capabilities: [iterative]
pipeline:
  models:
    denoiser: {filename: denoiser.onnx, type: denoiser}
    vae: {filename: vae.onnx, type: vae}
  dataflow:
    - {from: denoiser.denoised, to: denoiser.sample}
    - {from: denoiser.next_total, to: denoiser.total}
    - {from: denoiser.sample, to: vae.latent}
  strategy: {kind: iterative, denoiser: denoiser, num_steps: 3, timestep_input: t, timesteps: [8, 4, 1]}
";
    for (name, bytes) in [
        ("denoiser.onnx", denoiser.encode()),
        ("vae.onnx", vae.encode()),
        ("inference_metadata.yaml", metadata.into()),
    ] {
        fs::write(folder.join(name), bytes).expect("a file can be written");
    }
}

#[test]
#[ignore = "writes what tests/check_with_onnxruntime.py reads"]
fn fixtures_for_onnxruntime() {
    // What iterative.c expects of both.
    let cond = [1.0, 2.0, 3.0, 4.0];
    let of = |values: &[f64]| json!({"shape": [1, 4], "values": values});
    let inputs = json!({
        "denoiser.cond": of(&cond),
        "denoiser.sample": of(&[0.0; 4]),
        "denoiser.total": {"shape": [], "values": [0]},
    });
    let latent = cond.map(|value| value * 0.875);
    let image = latent.map(|value| 2.0 * value + 1.0);
    let values = json!({"denoiser.sample": latent, "denoiser.total": [13], "vae.image": image});
    let cases = json!([{"inputs": inputs, "values": values}]);
    write_iterative_package(&fixtures::write("iterative", [], &cases.to_string()));

    let sample = [3.0, -1.0, 0.5, 8.0];
    let inputs = json!({"denoiser.cond": of(&cond), "denoiser.sample": of(&sample)});
    let latent = [0, 1, 2, 3].map(|at| sample[at] - 2.0 * cond[at]);
    let values = json!({"denoiser.sample": latent});
    let cases = json!([{"inputs": inputs, "values": values}]);
    write_guided_package(&fixtures::write("iterative-guided", [], &cases.to_string()));
}

/// Writes the other package that iterative.c runs: a flow whose direction is cond everywhere, so
/// that sample ends at sample - cond, or at sample - 2 cond with the package's guidance.
pub fn write_guided_package(folder: &Path) {
    let denoiser = Model::new()
        .input("sample", FLOAT, "[1, 4]")
        .input("cond", FLOAT, "[1, 4]")
        .input("t", FLOAT, "[1]")
        .output("direction", FLOAT, "[1, 4]")
        .initializer(Tensor::floats("none", &[], &[0.0]))
        .node(Node::new("Add", &["sample", "t"], &["both"]))
        .node(Node::new("Mul", &["both", "none"], &["zero"]))
        .node(Node::new("Add", &["cond", "zero"], &["direction"]));
    let metadata = "\
schema_version: v1
pipeline:
  models:
    denoiser: {filename: denoiser.onnx, type: denoiser}
  dataflow:
    - {from: denoiser.direction, to: denoiser.sample}
  strategy:
    kind: iterative
    denoiser: denoiser
    num_steps: 5
    timestep_input: t
    guidance_scale: 2
    cfg_conditioning_input: cond
    scheduler_config: {kind: flow_matching, shift: 3.0}
";
    fs::write(folder.join("denoiser.onnx"), denoiser.encode()).expect("a file can be written");
    fs::write(folder.join("inference_metadata.yaml"), metadata).expect("a file can be written");
}

/// Writes the package that media.c runs. Tokens are 0 to 7; each is followed by itself plus the
/// means of all images, each a quarter of its bytes, plus eight times the largest sample of the
/// sound, modulo 8. Token 6 stands for an image, which is token 5 twice.
pub fn write_media_package(folder: &Path) {
    let vision = Model::new()
        .opset("", 17)
        .input("pixels", FLOAT, "[n, 3, 2, 2]")
        .output("features", FLOAT, "[1, n]")
        .initializer(Tensor::ints("row", &[2], &[1, -1]))
        .node(Node::new("ReduceMean", &["pixels"], &["mean"]).ints("axes", &[1, 2, 3]))
        .node(Node::new("Reshape", &["mean", "row"], &["features"]));
    let hearing = Model::new()
        .opset("", 17)
        .input("wave", FLOAT, "[1, n]")
        .output("loudness", FLOAT, "[1, 1]")
        .initializer(Tensor::floats("eight", &[], &[8.0]))
        .node(Node::new("ReduceMax", &["wave"], &["largest"]).ints("axes", &[1]))
        .node(Node::new("Mul", &["largest", "eight"], &["loudness"]));
    let decoder = Model::new()
        .input("input_ids", INT64, "[1, s]")
        .input("features", FLOAT, "[1, n]")
        .input("loudness", FLOAT, "[1, m]")
        .output("logits", FLOAT, "[1, s, 8]")
        .initializer(Tensor::ints("depth", &[1], &[8]))
        .initializer(Tensor::floats("values", &[2], &[0.0, 1.0]))
        .node(Node::new("Concat", &["features", "loudness"], &["seen"]).int("axis", 1))
        .node(Node::new("ReduceSum", &["seen"], &["sum"]).int("keepdims", 0))
        .node(Node::new("Cast", &["sum"], &["more"]).int("to", INT64.into()))
        .node(Node::new("Add", &["input_ids", "more"], &["next"]))
        .node(Node::new("Mod", &["next", "depth"], &["id"]))
        .node(Node::new("OneHot", &["id", "depth", "values"], &["logits"]));
    let metadata = "\
schema_version: v1
required_capabilities: [image_preprocessing_program, audio_preprocessing_program]
preprocessing:
  image:
    transforms:
      - {op: decode, outputs: [image]}
      - {op: resize, inputs: [image], outputs: [small], size: 2, interpolation: nearest}
      - {op: rescale, inputs: [small], outputs: [scaled], scale: 0.25}
    outputs:
      - {source: scaled, name: vision.pixels, content: pixels, dtype: float32}
  audio:
    transforms:
      - {op: decode, outputs: [samples]}
      - {op: resample, inputs: [samples], outputs: [resampled], sample_rate: 8000}
    outputs:
      - {source: resampled, name: hearing.wave, content: waveform, dtype: float32}
pipeline:
  models:
    vision: {filename: vision.onnx, type: vision_encoder}
    hearing: {filename: hearing.onnx, type: audio_encoder}
    decoder:
      filename: decoder.onnx
      type: decoder
      io:
        token_input: input_ids
        logits_output: logits
        optional_inputs:
          features: {presence: image, absent: {kind: zeros, shape: [1, 1]}}
          loudness: {presence: audio, absent: {kind: zeros, shape: [1, 1]}}
  dataflow:
    - {from: vision.features, to: decoder.features}
    - {from: hearing.loudness, to: decoder.loudness}
  phases:
    vision: {run_on: prompt_only, when_present: image}
    hearing: {run_on: prompt_only, when_present: audio}
  vision: {image_placeholder_token_id: 6, image_token_id: 5, token_count_source: per_tile, tokens_per_tile: 2}
";
    for (name, bytes) in [
        ("vision.onnx", vision.encode()),
        ("hearing.onnx", hearing.encode()),
        ("decoder.onnx", decoder.encode()),
        ("inference_metadata.yaml", metadata.into()),
    ] {
        fs::write(folder.join(name), bytes).expect("a file can be written");
    }
}

/// Writes a package that the chat examples talk with. Token k is followed by k + 1 modulo
/// `modulus`: 8 ends after 7, the end of text, 6 never. The prompt is the words of all messages.
pub fn write_chat_package(folder: &Path, modulus: i64) {
    let decoder = Model::new()
        .opset("", 17)
        .input("input_ids", INT64, "[1, s]")
        .output("logits", FLOAT, "[1, s, 8]")
        .initializer(Tensor::ints("one", &[], &[1]))
        .initializer(Tensor::ints("modulus", &[], &[modulus]))
        .initializer(Tensor::ints("depth", &[1], &[8]))
        .initializer(Tensor::floats("values", &[2], &[0.0, 1.0]))
        .node(Node::new("Add", &["input_ids", "one"], &["next"]))
        .node(Node::new("Mod", &["next", "modulus"], &["id"]))
        .node(Node::new("OneHot", &["id", "depth", "values"], &["logits"]));
    let metadata = "\
schema_version: v1
tokens:
  eos_token_id: [7]
pipeline:
  models:
    decoder:
      filename: decoder.onnx
      type: decoder
      tokenizer: tokenizer.json
      io: {token_input: input_ids, logits_output: logits}
  strategy: {kind: autoregressive, decoder: decoder}
";
    let config =
        r#"{"eos_token": "</s>", "chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"}"#;
    for (name, bytes) in [
        ("decoder.onnx", decoder.encode()),
        ("inference_metadata.yaml", metadata.into()),
        ("tokenizer.json", TOKENIZER.into()),
        ("tokenizer_config.json", config.into()),
    ] {
        fs::write(folder.join(name), bytes).expect("a file can be written");
    }
}

/// Writes a package of one slow component, which runs once.
pub fn write_slow_package(folder: &Path) {
    let metadata = "\
schema_version: v1
pipeline:
  models:
    slow: {filename: slow.onnx}
  strategy: {kind: single_pass, model: slow}
";
    fs::write(folder.join("slow.onnx"), slow()).expect("a file can be written");
    fs::write(folder.join("inference_metadata.yaml"), metadata).expect("a file can be written");
}

pub fn package_models() -> Vec<(&'static str, Vec<u8>)> {
    let identity: Vec<f32> = (0..64).map(|at| f32::from(at % 9 == 0)).collect();
    let successor: Vec<f32> = (0..64).map(|at| f32::from((at / 8 + 1) % 8 == at % 8)).collect();
    let vision = Model::new()
        .opset("", 17)
        .input("pixel_values", FLOAT, "[1, 8]")
        .output("features", FLOAT, "[1, 8]")
        .initializer(Tensor::floats("two", &[], &[2.0]))
        .node(Node::new("Mul", &["pixel_values", "two"], &["features"]));
    let embedding = Model::new()
        .input("input_ids", INT64, "[1, sequence]")
        .input("features", FLOAT, "[1, 8]")
        .output("inputs_embeds", FLOAT, "[1, sequence, 8]")
        .initializer(Tensor::floats("table", &[8, 8], &identity))
        .node(Node::new("Gather", &["table", "input_ids"], &["rows"]))
        .node(Node::new("Add", &["rows", "features"], &["inputs_embeds"]));
    let decoder = Model::new()
        .input("inputs_embeds", FLOAT, "[1, sequence, 8]")
        .input("past", FLOAT, "[1, 1, past, 8]")
        .output("logits", FLOAT, "[1, sequence, 8]")
        .output("present", FLOAT, "[1, 1, total, 8]")
        .initializer(Tensor::floats("successor", &[8, 8], &successor))
        .initializer(Tensor::ints("head", &[1], &[1]))
        .node(Node::new("MatMul", &["inputs_embeds", "successor"], &["logits"]))
        .node(Node::new("Unsqueeze", &["inputs_embeds", "head"], &["new"]))
        .node(Node::new("Concat", &["past", "new"], &["present"]).int("axis", 2));
    let summary = Model::new()
        .input("ids", INT64, "[1, n]")
        .output("doubled", FLOAT, "[1, n]")
        .initializer(Tensor::floats("two", &[], &[2.0]))
        .node(Node::new("Cast", &["ids"], &["as_float"]).int("to", 1))
        .node(Node::new("Mul", &["as_float", "two"], &["doubled"]));
    let probe = Model::new()
        .input("value", FLOAT, "[n]")
        .output("doubled", FLOAT, "[n]")
        .node(Node::new("Add", &["value", "value"], &["doubled"]));
    [
        ("vision_encoder.onnx", vision),
        ("embedding.onnx", embedding),
        ("decoder.onnx", decoder),
        ("summary.onnx", summary),
        ("probe.onnx", probe),
    ]
    .map(|(name, model)| (name, model.encode()))
    .into()
}

pub const METADATA: &str = "\
schema_version: v1
model:
  max_sequence_length: 64
author_notes: no reader knows this field
tokens:
  eos_token_id: [7]
pipeline:
  models:
    vision_encoder:
      filename: vision_encoder.onnx
      type: vision_encoder
    embedding:
      filename: embedding.onnx
      type: embedding
      io:
        token_input: input_ids
    decoder:
      filename: decoder.onnx
      type: decoder
      tokenizer: tokenizer.json
      io:
        sequence_source: inputs_embeds
        inputs_embeds_input: inputs_embeds
        logits_output: logits
        kv_inputs: [past]
        kv_outputs: [present]
    summary:
      filename: summary.onnx
      type: vocoder
    probe:
      filename: probe.onnx
      type: vocoder
  dataflow:
    - from: vision_encoder.features
      to: embedding.features
    - from: embedding.inputs_embeds
      to: decoder.inputs_embeds
    - from: decoder.output_ids
      to: summary.ids
  phases:
    vision_encoder: { run_on: prompt_only }
    embedding: { run_on: every_step }
    decoder: { run_on: every_step }
    summary: { run_on: final_only }
    probe: { run_on: on_demand }
  strategy:
    kind: autoregressive
    decoder: decoder
preprocessing:
  image:
    transforms: [{ op: decode }]
    outputs: [{ name: probe.value, content: original_size, dtype: float32 }]
  audio:
    transforms: [{ op: decode }]
    outputs: [{ name: probe.value, content: waveform, dtype: float32 }]
";

pub const TOKENIZER: &str = r#"{
  "version": "1.0",
  "added_tokens": [
    {"id": 6, "content": "<unk>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
    {"id": 7, "content": "</s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}
  ],
  "pre_tokenizer": {"type": "Whitespace"},
  "model": {
    "type": "WordLevel",
    "vocab": {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "<unk>": 6, "</s>": 7},
    "unk_token": "<unk>"
  }
}"#;

const TOKENIZER_CONFIG: &str = r#"{
  "eos_token": "</s>",
  "unk_token": {"content": "<unk>"},
  "chat_template": "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }};{% endfor %}{% if tools %}[{{ tools | length }}]{% endif %}{{ suffix | default('') }}{% if messages[0]['content'] == 'bad' %}{{ raise_exception('no bad words') }}{% endif %}{% if add_generation_prompt %}assistant:{% endif %}"
}"#;

/// A tokenizer of single bytes, in GPT-2's alphabet: 0 and 1 are the two bytes of U+00E9.
const BYTES_TOKENIZER: &str = r#"{
  "version": "1.0",
  "added_tokens": [],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "vocab": {"Ã": 0, "©": 1, "a": 2, "Ā": 3}, "merges": []}
}"#;
