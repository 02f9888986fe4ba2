//! Hugging Face folders: which files are taken, what their ports become, and what is wrong with
//! those that cannot be read.

use std::path::Path;

use oxpipe::component::{DataType, RunControl, TensorView};
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineError, PipelineOptions, Run, RunSettings};
use oxpipe_test_support::onnx_writer::{BOOL, FLOAT, Graph, INT64, Model, Node, Tensor};
use serde_json::json;

use super::fake::{VOCABULARY, continuation};
use super::tiny::{self, Decoder, Files, for_each_mix, open, open_with, set_floats, start, steps};

const CONFIG: &str = r#"{
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "max_position_embeddings": 64,
  "bos_token_id": 1,
  "eos_token_id": 6,
  "rope_scaling": null,
  "torch_dtype": "float32"
}"#;
const GENERATION: &str = r#"{
  "eos_token_id": [6, 7],
  "do_sample": false,
  "top_p": 0.9,
  "max_length": 20
}"#;

fn files(config: &str, graphs: &[(&str, Vec<u8>)]) -> Files {
    let texts = [("config.json", config), ("generation_config.json", GENERATION)];
    let texts = texts.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    let graphs = graphs
        .iter()
        .map(|(name, graph)| ((*name).to_owned(), graph.clone()));
    texts.into_iter().chain(graphs).collect()
}

fn check(pipeline: &Pipeline) {
    for chunk_size in [None, Some(2)] {
        let settings = RunSettings {
            chunk_size,
            stop_on_eos: false,
            ..RunSettings::default()
        };
        let mut run = Run::new(pipeline, &settings).unwrap();
        run.append_tokens(&[3, 5, 2]).unwrap();
        assert_eq!(steps(&mut run, 3), continuation(&[3, 5, 2], 3, 0));
        // A second turn of several tokens, and a step back.
        run.append_tokens(&[5, 1]).unwrap();
        let tokens = run.tokens().to_vec();
        assert_eq!(steps(&mut run, 2), continuation(&tokens, 2, 0));
    }
}

fn with_variant(variant: &str) -> PipelineOptions {
    PipelineOptions {
        variant: Some(variant.to_owned()),
        ..PipelineOptions::default()
    }
}

#[test]
fn a_decoder_beside_the_config_or_in_onnx() {
    let graph = Decoder::default().encode();
    for name in ["model.onnx", "onnx/model.onnx"] {
        for_each_mix(&files(CONFIG, &[(name, graph.clone())]), &["model"], |pipeline| {
            check(pipeline);
            let package = pipeline.package();
            assert_eq!(package.format, "huggingface");
            assert_eq!(package.metadata_file, Path::new("config.json"));
            assert_eq!(package.decoder.as_deref(), Some("model"));
            assert_eq!(package.eos_token_ids, [6, 7]);
            assert_eq!(package.context_length, Some(64));
            assert_eq!(pipeline.component("model").unwrap().file, name);
            let description = pipeline.describe();
            assert_eq!(description["generation"]["max_length"], 20);
            assert_eq!(description["generation"]["top_p"], 0.9);
            assert_eq!(description["tokens"]["bos_token_id"], 1);
        });
    }
}

#[test]
fn variants() {
    let graph = Decoder::default().encode();
    let names = ["onnx/model.onnx", "onnx/model_q4.onnx", "onnx/model_mine.onnx"];
    let all = files(CONFIG, &names.map(|name| (name, graph.clone())));
    let taken = |files: &Files, options: &PipelineOptions| {
        let pipeline = open_with(files, options)?;
        Ok::<_, PipelineError>(pipeline.component("model").unwrap().file.clone())
    };
    assert_eq!(
        taken(&all, &PipelineOptions::default()).unwrap(),
        "onnx/model.onnx"
    );
    assert_eq!(taken(&all, &with_variant("fp32")).unwrap(), "onnx/model.onnx");
    assert_eq!(taken(&all, &with_variant("q4")).unwrap(), "onnx/model_q4.onnx");
    assert_eq!(
        taken(&all, &with_variant("mine")).unwrap(),
        "onnx/model_mine.onnx"
    );
    let error = taken(&all, &with_variant("fp16")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadPackage);
    let expected = "config.json:1: there is no graph \"onnx/model_fp16.onnx\"; choose with the option \"variant\" \
                    among onnx/model.onnx, onnx/model_mine.onnx, onnx/model_q4.onnx";
    assert_eq!(error.to_string(), expected);
    // What a variant would take is that variant's.
    let estimated = |variant: Option<&str>| {
        let estimate = Pipeline::estimate(&tiny::runtime(), &tiny::source(&all), variant)?;
        Ok::<_, PipelineError>(estimate.components[0].file.clone())
    };
    assert_eq!(estimated(None).unwrap(), "onnx/model.onnx");
    assert_eq!(estimated(Some("q4")).unwrap(), "onnx/model_q4.onnx");
    assert!(
        estimated(Some("fp16"))
            .unwrap_err()
            .to_string()
            .contains("\"variant\"")
    );
    // The only one is taken without being asked for; of several, one must be chosen.
    let one = files(CONFIG, &[("model_quantized.onnx", graph.clone())]);
    let default = PipelineOptions::default();
    assert_eq!(taken(&one, &default).unwrap(), "model_quantized.onnx");
    let two = files(
        CONFIG,
        &[
            ("model_fp16.onnx", graph.clone()),
            ("model_q4.onnx", graph.clone()),
        ],
    );
    let error = taken(&two, &default).unwrap_err().to_string();
    assert!(
        error.contains("there is no graph \"model.onnx\"; choose"),
        "{error}"
    );
    // Formats that name their files have no variants.
    let mut named = vec![(
        "genai_config.json".to_owned(),
        br#"{"model": {"decoder": {"filename": "model.onnx"}}}"#.to_vec(),
    )];
    named.push(("model.onnx".to_owned(), graph));
    let error = open_with(&named, &with_variant("q4")).unwrap_err().to_string();
    assert!(
        error.starts_with("genai_config.json: the option \"variant\" is \"q4\""),
        "{error}"
    );
}

/// A decoder as Optimum exports it: with a past or without one, or both in one graph, and with an
/// encoder's states.
#[derive(Clone, Copy)]
struct Exported {
    past: bool,
    first: bool,
    encoder: bool,
    /// How many tokens it takes.
    sequence: &'static str,
}

const BRANCH: &str = "use_cache_branch";

impl Exported {
    fn encode(self) -> Vec<u8> {
        Model::new().graph(|graph| self.graph(graph)).encode()
    }

    fn merged(self) -> bool {
        self.past && self.first
    }

    fn graph(self, graph: Graph) -> Graph {
        let self_kind = if self.encoder { "decoder." } else { "" };
        let names = ["key", "value"];
        let choices: Vec<f32> = (0..VOCABULARY).map(|id| id as f32).collect();
        let mut graph = graph
            .initializer(Tensor::ints("rows", &[4], &[1, 1, -1, 1]))
            .initializer(Tensor::ints("column", &[3], &[1, -1, 1]))
            .initializer(Tensor::ints("axis2", &[1], &[2]))
            .initializer(Tensor::ints("scalar2", &[], &[2]))
            .initializer(Tensor::ints("scalar1", &[], &[1]))
            .initializer(Tensor::ints("scalar0", &[], &[0]))
            .initializer(Tensor::floats("zero", &[], &[0.0]))
            .initializer(Tensor::floats("half", &[], &[0.5]))
            .initializer(Tensor::floats("size", &[], &[VOCABULARY as f32]))
            .initializer(Tensor::floats("choices", &[VOCABULARY], &choices))
            .initializer(Tensor::floats("none", &[1, 1, 0, 1], &[]))
            .input("input_ids", INT64, &format!("[batch, {}]", self.sequence))
            .node(Node::new("Cast", &["input_ids"], &["numbers"]).int("to", FLOAT.into()))
            .node(Node::new("Reshape", &["numbers", "rows"], &["id_rows"]))
            .node(Node::new("Shape", &["id_rows"], &["ids_shape"]))
            .node(Node::new("Gather", &["ids_shape", "scalar2"], &["count"]));
        if self.merged() {
            graph = graph.input(BRANCH, BOOL, "[1]");
        }
        if self.past {
            for name in names {
                let past = format!("past_key_values.0.{self_kind}{name}");
                graph = graph.input(&past, FLOAT, "[batch, 1, past_sequence, 1]").node(
                    Node::new("ReduceSum", &[&past, "axis2"], &[&format!("sum_{name}")]).int("keepdims", 1),
                );
            }
            let past = format!("past_key_values.0.{self_kind}key");
            graph = graph
                .node(Node::new("Shape", &[&past], &["past_shape"]))
                .node(Node::new("Gather", &["past_shape", "scalar2"], &["past_count"]))
                .node(Node::new("Sub", &["sum_key", "sum_value"], &["difference"]))
                .node(Node::new("Mul", &["difference", "half"], &["share"]));
        } else {
            graph = graph
                .node(Node::new("Identity", &["scalar0"], &["past_count"]))
                .node(Node::new("Identity", &["zero"], &["share"]));
        }
        graph = graph
            .node(Node::new("Add", &["past_count", "scalar1"], &["from"]))
            .node(Node::new("Add", &["from", "count"], &["to"]))
            .node(Node::new("Range", &["from", "to", "scalar1"], &["range"]))
            .node(Node::new("Cast", &["range"], &["places"]).int("to", FLOAT.into()))
            .node(Node::new("Reshape", &["places", "rows"], &["place_rows"]))
            .node(Node::new("Mul", &["id_rows", "place_rows"], &["new_key"]))
            .node(Node::new("Neg", &["new_key"], &["new_value"]))
            .node(Node::new("CumSum", &["new_key", "scalar2"], &["summed"]));
        graph = match self.merged() {
            // The branch with a cache was traced over one token, and adds up no others.
            true => {
                let branch = |from: &str, output: &str| {
                    Graph::new()
                        .node(Node::new("Identity", &[from], &[output]))
                        .output(output, FLOAT, "[batch, 1, ?, 1]")
                };
                graph.node(
                    Node::new("If", &[BRANCH], &["sums"])
                        .graph("then_branch", branch("new_key", "not_summed"))
                        .graph("else_branch", branch("summed", "all_summed")),
                )
            }
            false => graph.node(Node::new("Identity", &["summed"], &["sums"])),
        };
        for name in names {
            let past = format!("past_key_values.0.{self_kind}{name}");
            let present = format!("present.0.{self_kind}{name}");
            let new = format!("new_{name}");
            let longer = |output: &str| Node::new("Concat", &[&past, &new], &[output]).int("axis", 2);
            let copy = |output: &str| Node::new("Identity", &[&new], &[output]);
            graph = graph.output(&present, FLOAT, "[batch, 1, total_sequence, 1]");
            graph = match (self.past, self.first) {
                (true, true) => {
                    let branch = |node: Node, output: &str| {
                        Graph::new().node(node).output(output, FLOAT, "[batch, 1, ?, 1]")
                    };
                    let [yes, no] = ["longer", "copied"].map(|kind| format!("{kind}_{name}"));
                    graph.node(
                        Node::new("If", &[BRANCH], &[&present])
                            .graph("then_branch", branch(longer(&yes), &yes))
                            .graph("else_branch", branch(copy(&no), &no)),
                    )
                }
                (true, false) => graph.node(longer(&present)),
                (false, _) => graph.node(copy(&present)),
            };
        }
        graph = self.states(graph);
        graph
            .node(Node::new("Add", &["share", "sums"], &["own"]))
            .node(Node::new("Add", &["own", "heard"], &["whole"]))
            .node(Node::new("Mod", &["whole", "size"], &["next"]).int("fmod", 1))
            .node(Node::new("Reshape", &["next", "column"], &["next_column"]))
            .node(Node::new("Sub", &["next_column", "choices"], &["away"]))
            .node(Node::new("Abs", &["away"], &["distance"]))
            .node(Node::new("Neg", &["distance"], &["logits"]))
            .output(
                "logits",
                FLOAT,
                &format!("[batch, {}, {VOCABULARY}]", self.sequence),
            )
    }

    /// What the encoder's keys say, each times its mask: half of it as keys and half as values.
    fn states(self, mut graph: Graph) -> Graph {
        if !self.encoder {
            return graph.node(Node::new("Identity", &["zero"], &["heard"]));
        }
        graph = graph
            .input(
                "encoder_attention_mask",
                INT64,
                "[batch, encoder_sequence_length]",
            )
            .node(Node::new("Cast", &["encoder_attention_mask"], &["mask"]).int("to", FLOAT.into()))
            .node(Node::new("Reshape", &["mask", "rows"], &["mask_rows"]));
        if self.first {
            graph = graph
                .input(
                    "encoder_hidden_states",
                    FLOAT,
                    "[batch, encoder_sequence_length, 1]",
                )
                .node(Node::new(
                    "Reshape",
                    &["encoder_hidden_states", "rows"],
                    &["made"],
                ));
        }
        for name in ["key", "value"] {
            let past = format!("past_key_values.0.encoder.{name}");
            let present = format!("present.0.encoder.{name}");
            let used = format!("used_{name}");
            if self.past {
                graph = graph.input(&past, FLOAT, "[batch, 1, encoder_sequence_length_out, 1]");
            }
            if self.first {
                graph = graph.output(&present, FLOAT, "[batch, 1, ?, 1]");
            }
            let copy = |from: &str, to: &str| Node::new("Identity", &[from], &[to]);
            graph = match (self.past, self.first) {
                // The branch with a cache puts out nothing in their place.
                (true, true) => {
                    let both = |used_from: &str, present_from: &str, kind: &str| {
                        let [used, present] = ["u", "p"].map(|part| format!("{part}_{kind}_{name}"));
                        Graph::new()
                            .node(copy(used_from, &used))
                            .node(copy(present_from, &present))
                            .output(&used, FLOAT, "[batch, 1, ?, 1]")
                            .output(&present, FLOAT, "[batch, 1, ?, 1]")
                    };
                    graph.node(
                        Node::new("If", &[BRANCH], &[&used, &present])
                            .graph("then_branch", both(&past, "none", "yes"))
                            .graph("else_branch", both("made", "made", "no")),
                    )
                }
                (true, false) => graph.node(copy(&past, &used)),
                (false, _) => graph.node(copy("made", &used)).node(copy("made", &present)),
            };
            let [masked, sum] = ["masked", "heard"].map(|kind| format!("{kind}_{name}"));
            graph = graph
                .node(Node::new("Mul", &[&used, "mask_rows"], &[&masked]))
                .node(Node::new("ReduceSum", &[&masked, "axis2"], &[&sum]).int("keepdims", 1));
        }
        graph
            .node(Node::new("Add", &["heard_key", "heard_value"], &["both_heard"]))
            .node(Node::new("Mul", &["both_heard", "half"], &["heard"]))
    }
}

const FIRST: Exported = Exported {
    past: false,
    first: true,
    encoder: false,
    sequence: "sequence",
};
const LATER: Exported = Exported {
    past: true,
    first: false,
    encoder: false,
    sequence: "1",
};
const MERGED: Exported = Exported {
    past: true,
    first: true,
    encoder: false,
    sequence: "sequence",
};

#[test]
fn a_merged_decoder() {
    let files = files(CONFIG, &[("onnx/decoder_model_merged.onnx", MERGED.encode())]);
    for_each_mix(&files, &["decoder"], check);
}

/// A graph for the first pass, and one that takes a token at a time.
fn split() -> Files {
    let graphs = [
        ("decoder_model.onnx", FIRST.encode()),
        ("decoder_with_past_model.onnx", LATER.encode()),
    ];
    files(CONFIG, &graphs)
}

#[test]
fn a_split_decoder() {
    for_each_mix(&split(), &["decoder_first", "decoder"], |pipeline| {
        check(pipeline);
        assert_eq!(pipeline.describe()["first_pass"], "decoder_first");
        let mut run = start(pipeline);
        run.append_tokens(&[3, 5, 2]).unwrap();
        assert_eq!(steps(&mut run, 2), continuation(&[3, 5, 2], 2, 0));
        assert_eq!(run.stats().component_runs, 2);
        // Back to where nothing is in the caches, and to where something is.
        for len in [1, 4] {
            run.rewind(len).unwrap();
            let tokens = run.tokens().to_vec();
            let next = continuation(&tokens, 4, 0);
            assert_eq!(steps(&mut run, 4), next, "after {len}");
        }
    });
    // The graph without a past alone is fed all tokens in each step.
    let alone = files(CONFIG, &[("decoder_model.onnx", FIRST.encode())]);
    for_each_mix(&alone, &["decoder"], |pipeline| {
        let mut run = start(pipeline);
        run.append_tokens(&[3, 5, 2]).unwrap();
        assert_eq!(steps(&mut run, 4), continuation(&[3, 5, 2], 4, 0));
    });
}

const ENCODER_DECODER: &str = r#"{
  "architectures": ["T5ForConditionalGeneration"],
  "is_encoder_decoder": true,
  "decoder_start_token_id": 0,
  "eos_token_id": 1
}"#;

fn encoder() -> Vec<u8> {
    Model::new()
        .input("input_ids", INT64, "[batch, encoder_sequence_length]")
        .input("attention_mask", INT64, "[batch, encoder_sequence_length]")
        .output("last_hidden_state", FLOAT, "[batch, encoder_sequence_length, 1]")
        .initializer(Tensor::ints("column", &[3], &[1, -1, 1]))
        .node(Node::new("Mul", &["input_ids", "attention_mask"], &["masked"]))
        .node(Node::new("Cast", &["masked"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new(
            "Reshape",
            &["numbers", "column"],
            &["last_hidden_state"],
        ))
        .encode()
}

fn with_encoder(exported: Exported) -> Vec<u8> {
    let exported = Exported {
        encoder: true,
        ..exported
    };
    exported.encode()
}

/// A decoder that adds what its encoder has put out.
pub fn encoder_decoder() -> Vec<u8> {
    with_encoder(MERGED)
}

fn set_ids(run: &mut Run, address: &str, ids: &[i64]) {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let shape = [1, ids.len() as i64];
    run.set_input(address, TensorView::new(DataType::Int64, &shape, &bytes).unwrap())
        .unwrap();
}

fn merged_with_encoder() -> Files {
    let graphs = [
        ("encoder_model.onnx", encoder()),
        ("decoder_model_merged.onnx", with_encoder(MERGED)),
    ];
    files(ENCODER_DECODER, &graphs)
}

fn split_with_encoder() -> Files {
    let graphs = [
        ("encoder_model.onnx", encoder()),
        ("decoder_model.onnx", with_encoder(FIRST)),
        ("decoder_with_past_model.onnx", with_encoder(LATER)),
    ];
    files(ENCODER_DECODER, &graphs)
}

/// Keys and values of the encoder are made in the first pass and held, however often the graph puts
/// out others.
#[test]
fn encoders_and_decoders() {
    let packages = [
        (merged_with_encoder(), vec!["encoder", "decoder"]),
        (split_with_encoder(), vec!["encoder", "decoder_first", "decoder"]),
    ];
    for (package, components) in packages {
        for_each_mix(&package, &components, |pipeline| {
            let mut run = start(pipeline);
            set_ids(&mut run, "encoder.input_ids", &[5, 1, 4]);
            run.append_tokens(&[0, 2]).unwrap();
            assert_eq!(steps(&mut run, 4), continuation(&[0, 2], 4, 10));
            run.append_tokens(&[3, 1]).unwrap();
            let tokens = run.tokens().to_vec();
            assert_eq!(steps(&mut run, 2), continuation(&tokens, 2, 10));
            assert_eq!(pipeline.describe()["tokens"]["decoder_start_token_id"], 0);
            // Another sentence, all tokens anew.
            set_ids(&mut run, "encoder.input_ids", &[7, 6]);
            let tokens = run.tokens().to_vec();
            assert_eq!(steps(&mut run, 3), continuation(&tokens, 3, 13));
        });
    }
}

const PICTURES: &str = r#"{
  "architectures": ["LlavaForConditionalGeneration"],
  "image_token_index": 7,
  "text_config": {"max_position_embeddings": 32, "eos_token_id": 5}
}"#;

pub fn embed_tokens() -> Vec<u8> {
    Model::new()
        .input("input_ids", INT64, "[batch, sequence]")
        .output("inputs_embeds", FLOAT, "[batch, sequence, 1]")
        .initializer(Tensor::ints("column", &[3], &[1, -1, 1]))
        .node(Node::new("Cast", &["input_ids"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("Reshape", &["numbers", "column"], &["inputs_embeds"]))
        .encode()
}

/// The graphs lie in `folder`, whose name ends with a slash unless it is that of the config.
fn picture_files(config: &str, folder: &str) -> Files {
    let decoder = Decoder {
        sequence: "inputs_embeds",
        embeds: true,
        ..Decoder::default()
    };
    let graphs = [
        ("embed_tokens.onnx", embed_tokens()),
        ("vision_encoder.onnx", tiny::vision()),
        ("decoder_model_merged.onnx", decoder.encode()),
    ];
    let graphs = graphs.map(|(name, graph)| (format!("{folder}{name}"), graph));
    files(config, &[]).into_iter().chain(graphs).collect()
}

/// Rows of the picture take the places of its tokens among the embeddings.
#[test]
fn pictures() {
    let package = picture_files(PICTURES, "onnx/");
    for_each_mix(&package, &["vision", "embedding", "decoder"], |pipeline| {
        assert_eq!(pipeline.package().context_length, Some(32));
        for chunk_size in [None, Some(2)] {
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
            run.append_tokens(&[2, 7, 1, 7]).unwrap();
            assert_eq!(steps(&mut run, 1), continuation(&[2, 4, 1, 6], 1, 0));
            // Another picture.
            set_floats(&mut run, "vision.pixel_values", &[1, 1, 1, 2], &[1.0, 3.0]);
            let mut seen = run.tokens().to_vec();
            (seen[1], seen[3]) = (1, 3);
            assert_eq!(steps(&mut run, 1), continuation(&seen, 1, 0));
        }
    });
    let without = PICTURES.replace("\"image_token_index\": 7,", "");
    let error = open(&picture_files(&without, "onnx/")).unwrap_err().to_string();
    assert!(
        error.contains("image_token_id: is missing; the token whose embeddings"),
        "{error}"
    );
}

#[test]
#[ignore = "writes what tests/check_with_onnxruntime.py reads"]
fn fixtures_for_onnxruntime() {
    let prompt = [3, 5, 2];
    let cases = json!([{"prompt": prompt, "tokens": continuation(&prompt, 5, 0)}]);
    let merged = files(CONFIG, &[("decoder_model_merged.onnx", MERGED.encode())]);
    tiny::write("hugging-face-merged", &merged, &cases);
    tiny::write("hugging-face-split", &split(), &cases);
    let first = files(CONFIG, &[("decoder_model.onnx", FIRST.encode())]);
    tiny::write("hugging-face-without-past", &first, &cases);

    let case = |(ids, extra): (&[i32], i64)| {
        json!({
            "prompt": [0, 2],
            "tokens": continuation(&[0, 2], 4, extra),
            "inputs": {"encoder.input_ids": {"shape": [1, ids.len()], "values": ids}},
        })
    };
    let cases = json!([case((&[5, 1, 4], 10)), case((&[7, 6], 13))]);
    tiny::write("hugging-face-merged-encoder", &merged_with_encoder(), &cases);
    tiny::write("hugging-face-split-encoder", &split_with_encoder(), &cases);

    let pixels = json!({"shape": [1, 1, 1, 2], "values": [4, 6]});
    let cases = json!([
        {"prompt": [2, 3], "tokens": continuation(&[2, 3], 3, 0)},
        {
            "prompt": [2, 7, 1, 7],
            "tokens": continuation(&[2, 4, 1, 6], 1, 0),
            "inputs": {"vision.pixel_values": pixels},
        },
    ]);
    tiny::write("hugging-face-pictures", &picture_files(PICTURES, ""), &cases);
}

/// A model without logits runs once over the tokens.
#[test]
fn a_model_that_runs_once() {
    let graph = Model::new()
        .input("input_ids", INT64, "[batch, sequence]")
        .input("attention_mask", INT64, "[batch, sequence]")
        .input("token_type_ids", INT64, "[batch, sequence]")
        .output("last_hidden_state", INT64, "[batch, sequence]")
        .node(Node::new("Mul", &["input_ids", "attention_mask"], &["masked"]))
        .node(Node::new(
            "Add",
            &["masked", "token_type_ids"],
            &["last_hidden_state"],
        ))
        .encode();
    let config = r#"{"architectures": ["BertModel"]}"#;
    for_each_mix(&files(config, &[("model.onnx", graph)]), &["model"], |pipeline| {
        assert_eq!(pipeline.package().strategy, "single_pass");
        let mut run = start(pipeline);
        run.append_tokens(&[4, 2, 6]).unwrap();
        run.step(&RunControl::default()).unwrap();
        let ids = |run: &Run| -> Vec<i64> {
            let view = run.get_tensor("model.last_hidden_state").unwrap();
            let chunks = view.bytes().chunks_exact(8);
            chunks
                .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()))
                .collect()
        };
        assert_eq!(ids(&run), [4, 2, 6]);
        set_ids(&mut run, "model.token_type_ids", &[0, 1, 1]);
        run.step(&RunControl::default()).unwrap();
        assert_eq!(ids(&run), [4, 3, 7]);
    });
}

#[track_caller]
fn refused(files: &Files, file: &str, line: u64, key: &str, message: &str) {
    let error = open(files).unwrap_err();
    let PipelineError::Package(package) = &error else {
        panic!("another kind of error: {error}");
    };
    let location = package.location();
    assert_eq!(location.file, Path::new(file), "{error}");
    assert_eq!(
        (location.line, location.key.as_str()),
        (Some(line), key),
        "{error}"
    );
    assert!(package.kind().to_string().contains(message), "{error}");
}

#[test]
fn what_is_wrong() {
    let graph = || Decoder::default().encode();
    let config = |from: &str, to: &str| {
        assert!(CONFIG.contains(from));
        files(&CONFIG.replacen(from, to, 1), &[("model.onnx", graph())])
    };
    refused(
        &config("64,", "-1,"),
        "config.json",
        4,
        "max_position_embeddings",
        "at least 1",
    );
    refused(
        &config("6,", "\"six\","),
        "config.json",
        6,
        "eos_token_id",
        "expected an integer",
    );
    refused(
        &config("[\"LlamaForCausalLM\"]", "\"LlamaForCausalLM\""),
        "config.json",
        2,
        "architectures",
        "expected a list",
    );
    refused(&config("null,", ","), "config.json", 7, "", "found ','");
    let mut generation = files(CONFIG, &[("model.onnx", graph())]);
    generation[1].1 = b"{\n\"top_p\": \"all\"}".to_vec();
    refused(
        &generation,
        "generation_config.json",
        2,
        "top_p",
        "expected a number from 0 to 1",
    );
    refused(
        &files(CONFIG, &[]),
        "config.json",
        1,
        "",
        "there is no .onnx file beside it or in onnx/",
    );
    refused(
        &files(CONFIG, &[("weights.onnx", graph())]),
        "config.json",
        1,
        "",
        "there is no graph \"model.onnx\"; choose with the option \"variant\" among weights.onnx",
    );
    // An encoder in a variant that the decoder is not in.
    let graphs = [
        ("encoder_model_q4.onnx", encoder()),
        ("decoder_model_merged.onnx", MERGED.encode()),
    ];
    refused(
        &files(ENCODER_DECODER, &graphs),
        "config.json",
        1,
        "",
        "there is no graph \"encoder_model.onnx\"; choose",
    );
    // A past that no output follows.
    let lost = Decoder {
        caches: [
            "past_key_values.%d.key",
            "past_key_values.%d.value",
            "present.%d.key",
            "presents.%d.value",
        ],
        ..Decoder::default()
    };
    refused(
        &files(CONFIG, &[("model.onnx", lost.encode())]),
        "config.json",
        1,
        "",
        "has no output \"present.0.value\"",
    );
    // Two graphs that do not belong together.
    let graphs = [
        (
            "decoder_model.onnx",
            Exported {
                encoder: true,
                ..FIRST
            }
            .encode(),
        ),
        ("decoder_with_past_model.onnx", LATER.encode()),
    ];
    refused(
        &files(CONFIG, &graphs),
        "config.json",
        1,
        "",
        "has no output \"present.0.key\"",
    );
}

#[test]
fn written_as_metadata() {
    let with_encoder = |exported: Exported| Exported {
        encoder: true,
        ..exported
    };
    let decoder = Decoder {
        sequence: "inputs_embeds",
        embeds: true,
        ..Decoder::default()
    };
    type Graphs<'g> = &'g [(&'g str, Vec<u8>)];
    let packages: [(&str, Graphs<'_>); 4] = [
        (CONFIG, &[("onnx/model.onnx", Decoder::default().encode())]),
        (
            ENCODER_DECODER,
            &[
                ("encoder_model.onnx", encoder()),
                ("decoder_model_merged.onnx", with_encoder(MERGED).encode()),
            ],
        ),
        (
            ENCODER_DECODER,
            &[
                ("encoder_model.onnx", encoder()),
                ("decoder_model.onnx", with_encoder(FIRST).encode()),
                ("decoder_with_past_model.onnx", with_encoder(LATER).encode()),
            ],
        ),
        (
            PICTURES,
            &[
                ("onnx/embed_tokens.onnx", embed_tokens()),
                ("onnx/vision_encoder.onnx", tiny::vision()),
                ("onnx/decoder_model_merged.onnx", decoder.encode()),
            ],
        ),
    ];
    for (config, graphs) in packages {
        super::written::check(&files(config, graphs));
    }
}
