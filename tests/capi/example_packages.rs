//! Small packages for the example programs. Tokens are the words zero to five, `<unk>` (6) and the end
//! of text (7).

use std::fs;
use std::path::Path;

use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};

use crate::models::TOKENIZER;

fn write<const N: usize>(folder: &Path, models: [(&str, Model); N], metadata: &str) {
    for (name, model) in models {
        fs::write(folder.join(format!("{name}.onnx")), model.encode()).expect("a file can be written");
    }
    // An image is where the template writes <unk>.
    let config = r#"{"eos_token": "</s>", "chat_template": "{% for m in messages %}{% for part in m.content %}{% if part.type == 'image' %}<unk> {% else %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}"}"#;
    for (name, text) in [
        ("inference_metadata.yaml", metadata),
        ("tokenizer.json", TOKENIZER),
        ("tokenizer_config.json", config),
    ] {
        fs::write(folder.join(name), text).expect("a file can be written");
    }
}

/// logits = one-hot at (input_ids + the sum of `more`) modulo 8.
fn counting_decoder(more: &str) -> Model {
    Model::new()
        .opset("", 17)
        .input("input_ids", INT64, "[1, s]")
        .input(more, FLOAT, "[1, n]")
        .output("logits", FLOAT, "[1, s, 8]")
        .initializer(Tensor::ints("depth", &[1], &[8]))
        .initializer(Tensor::floats("values", &[2], &[0.0, 1.0]))
        .node(Node::new("ReduceSum", &[more], &["sum"]).int("keepdims", 0))
        .node(Node::new("Cast", &["sum"], &["step"]).int("to", INT64.into()))
        .node(Node::new("Add", &["input_ids", "step"], &["next"]))
        .node(Node::new("Mod", &["next", "depth"], &["id"]))
        .node(Node::new("OneHot", &["id", "depth", "values"], &["logits"]))
}

/// Each token is followed by itself plus a quarter of the grey of the image.
pub fn write_image_package(folder: &Path) {
    let vision = Model::new()
        .opset("", 17)
        .input("pixels", FLOAT, "[n, 3, 2, 2]")
        .output("features", FLOAT, "[1, n]")
        .initializer(Tensor::ints("row", &[2], &[1, -1]))
        .node(Node::new("ReduceMean", &["pixels"], &["mean"]).ints("axes", &[1, 2, 3]))
        .node(Node::new("Reshape", &["mean", "row"], &["features"]));
    let metadata = "\
schema_version: v1
required_capabilities: [image_preprocessing_program]
tokens:
  eos_token_id: [7]
preprocessing:
  image:
    transforms:
      - {op: decode, outputs: [image]}
      - {op: resize, inputs: [image], outputs: [small], size: 2, interpolation: nearest}
      - {op: rescale, inputs: [small], outputs: [scaled], scale: 0.25}
    outputs:
      - {source: scaled, name: vision.pixels, content: pixels, dtype: float32}
pipeline:
  models:
    vision: {filename: vision.onnx, type: vision_encoder}
    decoder:
      filename: decoder.onnx
      type: decoder
      tokenizer: tokenizer.json
      io:
        token_input: input_ids
        logits_output: logits
        optional_inputs:
          features: {presence: image, absent: {kind: zeros, shape: [1, 1]}}
  dataflow:
    - {from: vision.features, to: decoder.features}
  phases:
    vision: {run_on: prompt_only, when_present: image}
  vision: {image_placeholder_token_id: 6, image_token_id: 5, token_count_source: per_tile, tokens_per_tile: 2}
";
    write(
        folder,
        [("vision", vision), ("decoder", counting_decoder("features"))],
        metadata,
    );
}

/// Each token is followed by itself plus eight times the largest sample of the sound.
pub fn write_sound_package(folder: &Path) {
    let hearing = Model::new()
        .opset("", 17)
        .input("wave", FLOAT, "[1, n]")
        .output("loudness", FLOAT, "[1, 1]")
        .initializer(Tensor::floats("eight", &[], &[8.0]))
        .node(Node::new("ReduceMax", &["wave"], &["largest"]).ints("axes", &[1]))
        .node(Node::new("Mul", &["largest", "eight"], &["loudness"]));
    let metadata = "\
schema_version: v1
required_capabilities: [audio_preprocessing_program]
tokens:
  eos_token_id: [7]
preprocessing:
  audio:
    transforms:
      - {op: decode, outputs: [samples]}
      - {op: resample, inputs: [samples], outputs: [resampled], sample_rate: 8000}
    outputs:
      - {source: resampled, name: hearing.wave, content: waveform, dtype: float32}
pipeline:
  models:
    hearing: {filename: hearing.onnx, type: audio_encoder}
    decoder:
      filename: decoder.onnx
      type: decoder
      tokenizer: tokenizer.json
      io: {token_input: input_ids, logits_output: logits}
  dataflow:
    - {from: hearing.loudness, to: decoder.loudness}
  phases:
    hearing: {run_on: prompt_only}
  strategy: {kind: autoregressive, decoder: decoder}
";
    write(
        folder,
        [("hearing", hearing), ("decoder", counting_decoder("loudness"))],
        metadata,
    );
}

/// The pixels that [`write_picture_package`] makes lighter the larger the prompt's token ids are;
/// the others become darker.
pub const PATTERN: [f32; 12] = [1., -1., 1., 1., -1., -1., 1., -1., 1., -1., -1., 1.];

/// A flow away from the pattern, as strong as the sum of the prompt's four tokens: whatever the noise
/// is, each pixel of the picture ends at its limit.
pub fn write_picture_package(folder: &Path) {
    let text = Model::new()
        .opset("", 17)
        .input("input_ids", INT64, "[1, 4]")
        .output("cond", FLOAT, "[1, 3, 2, 2]")
        .initializer(Tensor::floats(
            "pattern",
            &[1, 3, 2, 2],
            &PATTERN.map(|sign| -100.0 * sign),
        ))
        .node(Node::new("Cast", &["input_ids"], &["floats"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceSum", &["floats"], &["sum"]).int("keepdims", 0))
        .node(Node::new("Mul", &["pattern", "sum"], &["cond"]));
    let denoiser = Model::new()
        .input("sample", FLOAT, "[1, 3, 2, 2]")
        .input("cond", FLOAT, "[1, 3, 2, 2]")
        .input("t", FLOAT, "[1]")
        .output("direction", FLOAT, "[1, 3, 2, 2]")
        .initializer(Tensor::floats("none", &[], &[0.0]))
        .node(Node::new("Add", &["sample", "t"], &["both"]))
        .node(Node::new("Mul", &["both", "none"], &["zero"]))
        .node(Node::new("Add", &["cond", "zero"], &["direction"]));
    let vae = Model::new()
        .opset("", 17)
        .input("latent", FLOAT, "[1, 3, 2, 2]")
        .output("image", FLOAT, "[1, 3, 2, 2]")
        .initializer(Tensor::floats("least", &[], &[-1.0]))
        .initializer(Tensor::floats("most", &[], &[1.0]))
        .node(Node::new("Clip", &["latent", "least", "most"], &["image"]));
    let metadata = "\
schema_version: v1
pipeline:
  models:
    text_encoder: {filename: text_encoder.onnx, type: text_encoder, tokenizer: tokenizer.json}
    denoiser: {filename: denoiser.onnx, type: denoiser}
    vae: {filename: vae.onnx, type: vae}
  dataflow:
    - {from: text_encoder.cond, to: denoiser.cond}
    - {from: denoiser.direction, to: denoiser.sample}
    - {from: denoiser.sample, to: vae.latent}
  phases:
    text_encoder: {run_on: prompt_only}
    denoiser: {run_on: every_step}
    vae: {run_on: final_only}
  strategy:
    kind: iterative
    denoiser: denoiser
    num_steps: 5
    timestep_input: t
    scheduler_config: {kind: flow_matching, shift: 3.0}
";
    write(
        folder,
        [("text_encoder", text), ("denoiser", denoiser), ("vae", vae)],
        metadata,
    );
}

/// The vector of a token is 1 at the place of its id.
pub fn write_embedding_package(folder: &Path) {
    let identity: Vec<f32> = (0..64).map(|at| f32::from(at % 9 == 0)).collect();
    let encoder = Model::new()
        .opset("", 17)
        .input("input_ids", INT64, "[1, n]")
        .input("attention_mask", INT64, "[1, n]")
        .output("last_hidden_state", FLOAT, "[1, n, 8]")
        .initializer(Tensor::floats("table", &[8, 8], &identity))
        .initializer(Tensor::ints("last", &[1], &[-1]))
        .node(Node::new("Gather", &["table", "input_ids"], &["rows"]))
        .node(Node::new("Cast", &["attention_mask"], &["floats"]).int("to", FLOAT.into()))
        .node(Node::new("Unsqueeze", &["floats", "last"], &["mask"]))
        .node(Node::new("Mul", &["rows", "mask"], &["last_hidden_state"]));
    let metadata = "\
schema_version: v1
pipeline:
  models:
    encoder: {filename: encoder.onnx, type: encoder, tokenizer: tokenizer.json}
  strategy: {kind: single_pass, model: encoder}
";
    write(folder, [("encoder", encoder)], metadata);
}

/// The logits after each token, in [`write_words_package`]: 3 for the next one, 2.5 for the one after
/// that, and less the farther a token is.
pub fn logits_after(token: usize) -> [f32; 8] {
    std::array::from_fn(|next| match (next + 8 - token) % 8 {
        1 => 3.0,
        2 => 2.5,
        0 => 0.0,
        far => 0.25 * (8 - far) as f32,
    })
}

/// An embedding, one-hot, and a decoder, which looks the logits up.
pub fn write_words_package(folder: &Path) {
    let identity: Vec<f32> = (0..64).map(|at| f32::from(at % 9 == 0)).collect();
    let table: Vec<f32> = (0..8).flat_map(logits_after).collect();
    let embedding = Model::new()
        .input("input_ids", INT64, "[1, s]")
        .output("inputs_embeds", FLOAT, "[1, s, 8]")
        .initializer(Tensor::floats("table", &[8, 8], &identity))
        .node(Node::new("Gather", &["table", "input_ids"], &["inputs_embeds"]));
    let decoder = Model::new()
        .input("inputs_embeds", FLOAT, "[1, s, 8]")
        .output("logits", FLOAT, "[1, s, 8]")
        .initializer(Tensor::floats("table", &[8, 8], &table))
        .node(Node::new("MatMul", &["inputs_embeds", "table"], &["logits"]));
    let metadata = "\
schema_version: v1
tokens:
  eos_token_id: [7]
pipeline:
  models:
    embedding: {filename: embedding.onnx, type: embedding, io: {token_input: input_ids}}
    decoder:
      filename: decoder.onnx
      type: decoder
      tokenizer: tokenizer.json
      io: {sequence_source: inputs_embeds, inputs_embeds_input: inputs_embeds, logits_output: logits}
  dataflow:
    - {from: embedding.inputs_embeds, to: decoder.inputs_embeds}
  phases:
    embedding: {run_on: every_step}
    decoder: {run_on: every_step}
  strategy: {kind: autoregressive, decoder: decoder}
";
    write(folder, [("embedding", embedding), ("decoder", decoder)], metadata);
}
