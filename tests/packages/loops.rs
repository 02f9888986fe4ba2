//! Composites of several iterative stages, of graphs whose sums are known in closed form:
//!
//! ```text
//! small: a = a + t + shift     large: b = b + up + t     up = 2 a     image = 10 b
//! ```

use std::ops::ControlFlow;

use oxpipe::component::{CancelToken, ComponentTensor, DataType, RunControl};
use oxpipe::generation::FinishReason;
use oxpipe::pipeline::{ErrorKind, Phase, Pipeline, PipelineOptions, Run, RunSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
use serde_json::{Value, json};

use super::mixes::{TestPackage, floats, integers, steps};

/// `state`_next = `state` + t + `more`, all [1, 2] but the timestep, [1].
fn denoiser(state: &str, more: &str) -> Vec<u8> {
    let next = format!("{state}_next");
    Model::new()
        .input(state, FLOAT, "[1, 2]")
        .input("t", FLOAT, "[1]")
        .input(more, FLOAT, "[1, 2]")
        .output(&next, FLOAT, "[1, 2]")
        .node(Node::new("Add", &[state, "t"], &["with_time"]))
        .node(Node::new("Add", &["with_time", more], &[&next]))
        .encode()
}

/// y = factor * x.
fn times(factor: f32) -> Vec<u8> {
    Model::new()
        .input("x", FLOAT, "[1, 2]")
        .output("y", FLOAT, "[1, 2]")
        .initializer(Tensor::floats("factor", &[], &[factor]))
        .node(Node::new("Mul", &["x", "factor"], &["y"]))
        .encode()
}

const CASCADE: &str = "
pipeline:
  models:
    small: {filename: small.onnx, type: denoiser}
    up: {filename: up.onnx}
    large: {filename: large.onnx, type: denoiser}
    vae: {filename: vae.onnx, type: vae}
  dataflow:
    - {from: small.a_next, to: small.a}
    - {from: small.a, to: up.x}
    - {from: up.y, to: large.up}
    - {from: large.b_next, to: large.b}
    - {from: large.b, to: vae.x}
  strategy:
    kind: composite
    stages:
      - name: draft
        strategy: {kind: iterative, denoiser: small, num_steps: 2, timestep_input: t, timesteps: [9, 7]}
      - {name: enlarge, strategy: {kind: single_pass, model: up}}
      - name: refine
        strategy: {kind: iterative, denoiser: large, num_steps: 3, timestep_input: t}
      - {name: decode, strategy: {kind: single_pass, model: vae}}
";

fn cascade(metadata: &str) -> TestPackage {
    let models = vec![
        ("small", denoiser("a", "shift")),
        ("up", times(2.0)),
        ("large", denoiser("b", "up")),
        ("vae", times(10.0)),
    ];
    TestPackage::new(metadata, models)
}

fn set(run: &mut Run, address: &str, values: [f32; 2]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let tensor = ComponentTensor::from_raw(DataType::Float32, &[1, 2], &bytes).unwrap();
    run.set_input(address, tensor.view()).unwrap();
}

fn get(run: &Run, address: &str) -> Vec<f32> {
    floats(run.get_tensor(address).unwrap())
}

fn start(pipeline: &Pipeline, settings: &RunSettings) -> Run {
    let mut run = Run::new(pipeline, settings).unwrap();
    set(&mut run, "small.a", [1.0, -2.0]);
    set(&mut run, "small.shift", [0.5, 0.0]);
    set(&mut run, "large.b", [100.0, 200.0]);
    run
}

/// b after so many steps over what the first loop has made, a.
fn refined(a: [f32; 2], done: u8) -> Vec<f32> {
    let times = (0..done).map(f32::from).sum::<f32>();
    [100.0, 200.0]
        .iter()
        .zip(a)
        .map(|(b, a)| b + f32::from(done) * 2.0 * a + times)
        .collect()
}

const DRAFT: [f32; 2] = [1.0 + 16.0 + 1.0, -2.0 + 16.0];

#[test]
fn the_last_loop_steps_with_the_run_and_the_others_come_before() {
    // What a stage says of itself is what it is by default.
    let said = CASCADE.replace(
        "timesteps: [9, 7]}\n",
        "timesteps: [9, 7]}\n        run_on: every_step\n",
    );
    assert_ne!(said, CASCADE);
    for metadata in [CASCADE, &said] {
        cascade(metadata).for_each_mix(|pipeline| {
            let phases: Vec<Phase> = pipeline.components().iter().map(|one| one.phase).collect();
            let expected = [
                Phase::PromptOnly,
                Phase::PromptOnly,
                Phase::EveryStep,
                Phase::FinalOnly,
            ];
            assert_eq!(phases, expected);
            let package = pipeline.package();
            let loops: Vec<_> = package
                .iterations
                .iter()
                .map(|one| (one.denoiser.as_str(), one.num_steps))
                .collect();
            assert_eq!(loops, [("small", 2), ("large", 3)]);
            assert_eq!(package.iteration, package.iterations.last().cloned());

            let control = RunControl::default();
            let mut run = start(pipeline, &RunSettings::default());
            for done in 1..=3u8 {
                let event = run.step(&control).unwrap();
                let progress = event.progress.unwrap();
                assert_eq!((progress.done, progress.count), (usize::from(done), 3));
                assert_eq!(event.finish, (done == 3).then_some(FinishReason::Completed));
                assert_eq!(get(&run, "small.a"), DRAFT);
                assert_eq!(get(&run, "large.b"), refined(DRAFT, done));
                let latents: Vec<_> = run.latents().map(floats).collect();
                assert_eq!(latents, [refined(DRAFT, done)]);
            }
            run.finish(&control).unwrap();
            let image: Vec<f32> = refined(DRAFT, 3).iter().map(|b| 10.0 * b).collect();
            assert_eq!(get(&run, "vae.y"), image);
            assert_eq!(run.stats().component_runs, 2 + 1 + 3 + 1);

            // What the second loop reads begins that one anew, what the first one reads both.
            set(&mut run, "large.b", [100.0, 201.0]);
            set(&mut run, "large.b", [100.0, 200.0]);
            run.step(&control).unwrap();
            assert_eq!(run.stats().component_runs, 7 + 1);
            assert_eq!(get(&run, "large.b"), refined(DRAFT, 1));
            set(&mut run, "small.shift", [1.5, 0.0]);
            run.generate(&control, &mut |_, _| ControlFlow::Continue(()))
                .unwrap();
            assert_eq!(run.stats().component_runs, 8 + 2 + 1 + 3);
            let other = [DRAFT[0] + 2.0, DRAFT[1]];
            assert_eq!(get(&run, "large.b"), refined(other, 3));
        });
    }
}

#[test]
fn settings_are_about_the_last_loop() {
    cascade(CASCADE).for_each_mix(|pipeline| {
        let settings = RunSettings {
            num_steps: Some(5),
            ..RunSettings::default()
        };
        let control = RunControl::default();
        let mut run = start(pipeline, &settings);
        run.generate(&control, &mut |_, _| ControlFlow::Continue(()))
            .unwrap();
        assert_eq!(get(&run, "small.a"), DRAFT);
        assert_eq!(get(&run, "large.b"), refined(DRAFT, 5));
        // A loop that is cut off leaves nothing, and begins anew.
        let cancel = CancelToken::new();
        cancel.request();
        let stopped = RunControl {
            cancel: Some(cancel),
            ..RunControl::default()
        };
        let mut run = start(pipeline, &settings);
        assert_eq!(run.step(&stopped).unwrap_err().kind(), ErrorKind::Cancelled);
        run.step(&control).unwrap();
        assert_eq!(get(&run, "large.b"), refined(DRAFT, 1));
    });
}

#[test]
fn a_loop_must_have_what_it_starts_from() {
    cascade(CASCADE).for_each_mix(|pipeline| {
        for (missing, others) in [
            ("small.a", ["small.shift", "large.b"]),
            ("large.b", ["small.shift", "small.a"]),
        ] {
            let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
            for address in others {
                set(&mut run, address, [0.0; 2]);
            }
            let error = run.step(&RunControl::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MissingInput);
            let (component, port) = missing.split_once('.').unwrap();
            assert_eq!((error.component(), error.port()), (Some(component), Some(port)));
        }
    });
}

#[test]
fn each_stage_has_a_denoiser_of_its_own() {
    let refused = |metadata: &str, message: &str| {
        let error = cascade(metadata).open(&PipelineOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadPackage, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    };
    refused(
        &CASCADE.replace("denoiser: large,", "denoiser: small,"),
        "\"small\" is the denoiser of two stages",
    );
    refused(
        &CASCADE.replace("denoiser: large, ", ""),
        "does not name its denoiser",
    );
    refused(
        &CASCADE.replace("    - {from: large.b_next, to: large.b}\n", ""),
        "no edge of pipeline.dataflow leads from an output of the denoiser \"large\"",
    );
}

/// One loop before the tokens, which reads nothing of them, and one after, which reads them.
fn around_tokens() -> TestPackage {
    let talker = Model::new()
        .input("ids", INT64, "[batch, s]")
        .input("bias", FLOAT, "[1, 2]")
        .output("logits", FLOAT, "[batch, s, 4]")
        .initializer(Tensor::floats("choices", &[1, 1, 4], &[0.0, 1.0, 2.0, 3.0]))
        .initializer(Tensor::floats("four", &[], &[4.0]))
        .initializer(Tensor::floats("nothing", &[], &[0.0]))
        .initializer(Tensor::ints("last", &[1], &[2]))
        .node(Node::new("ReduceSum", &["bias"], &["sum"]).int("keepdims", 0))
        .node(Node::new("Mod", &["sum", "four"], &["next"]).int("fmod", 1))
        .node(Node::new("Cast", &["ids"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("Mul", &["numbers", "nothing"], &["zeros"]))
        .node(Node::new("Unsqueeze", &["zeros", "last"], &["zero_column"]))
        .node(Node::new("Add", &["zero_column", "next"], &["choice"]))
        .node(Node::new("Sub", &["choices", "choice"], &["away"]))
        .node(Node::new("Abs", &["away"], &["distance"]))
        .node(Node::new("Neg", &["distance"], &["logits"]))
        .encode();
    let counted = Model::new()
        .input("ids", INT64, "[1, n]")
        .output("y", FLOAT, "[1, 2]")
        .initializer(Tensor::floats("ones", &[1, 2], &[1.0, 1.0]))
        .node(Node::new("Cast", &["ids"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceSum", &["numbers"], &["sum"]).int("keepdims", 0))
        .node(Node::new("Mul", &["ones", "sum"], &["y"]))
        .encode();
    let metadata = "
pipeline:
  models:
    small: {filename: small.onnx, type: denoiser}
    talker: {filename: talker.onnx, type: decoder, io: {token_input: ids, logits_output: logits}}
    counted: {filename: counted.onnx}
    large: {filename: large.onnx, type: denoiser}
  dataflow:
    - {from: small.a_next, to: small.a}
    - {from: small.a, to: talker.bias}
    - {from: talker.output_ids, to: counted.ids}
    - {from: counted.y, to: large.up}
    - {from: large.b_next, to: large.b}
  strategy:
    kind: composite
    stages:
      - {name: look, strategy: {kind: iterative, denoiser: small, num_steps: 2, timestep_input: t}}
      - {name: tell, strategy: {kind: autoregressive, decoder: talker}}
      - {name: draw, strategy: {kind: iterative, denoiser: large, num_steps: 3, timestep_input: t}}
";
    let models = vec![
        ("small", denoiser("a", "shift")),
        ("talker", talker),
        ("counted", counted),
        ("large", denoiser("b", "up")),
    ];
    TestPackage::new(metadata, models)
}

#[test]
fn loops_around_tokens() {
    around_tokens().for_each_mix(|pipeline| {
        let phases: Vec<Phase> = pipeline.components().iter().map(|one| one.phase).collect();
        let expected = [
            Phase::PromptOnly,
            Phase::EveryStep,
            Phase::FinalOnly,
            Phase::FinalOnly,
        ];
        assert_eq!(phases, expected);
        let mut run = start(pipeline, &RunSettings::default());
        run.append_tokens(&[1]).unwrap();
        // a = [1 + 1 + 1, -2 + 1 + 0] and their sum is 2.
        assert_eq!(steps(&mut run, 3), [2, 2, 2]);
        run.finish(&RunControl::default()).unwrap();
        assert_eq!(get(&run, "small.a"), [3.0, -1.0]);
        assert_eq!(integers(run.get_tensor("talker.output_ids").unwrap()), [2, 2, 2]);
        // Three steps of the tokens' sum, 6, and of the timesteps.
        assert_eq!(get(&run, "large.b"), [100.0 + 18.0 + 3.0, 200.0 + 18.0 + 3.0]);
    });
}

/// Packages whose first loop adds its state to itself, that edge being at each of two places.
fn doubling() -> [TestPackage; 2] {
    let edge = "    - {from: small.a, to: small.shift}\n";
    ["    - {from: small.a_next", "    - {from: small.a, to: up.x}"].map(|place| {
        let metadata = CASCADE.replacen(place, &format!("{edge}{place}"), 1);
        assert_ne!(metadata, CASCADE);
        cascade(&metadata)
    })
}

/// Twice 2 a + t.
const DOUBLED: [f32; 2] = [2.0 * 11.0 + 7.0, 2.0 * 5.0 + 7.0];

#[test]
fn a_loop_may_hand_its_state_to_two_of_its_inputs() {
    for package in doubling() {
        package.for_each_mix(|pipeline| {
            let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
            set(&mut run, "small.a", [1.0, -2.0]);
            set(&mut run, "large.b", [100.0, 200.0]);
            for done in 1..=3u8 {
                run.step(&RunControl::default()).unwrap();
                assert_eq!(get(&run, "small.a"), DOUBLED);
                assert_eq!(get(&run, "large.b"), refined(DOUBLED, done));
            }
        });
    }
}

#[test]
#[ignore = "writes what tests/check_with_onnxruntime.py reads"]
fn fixtures_for_onnxruntime() {
    let of = |values: [f32; 2]| json!({"shape": [1, 2], "values": values});
    let inputs =
        json!({"small.a": of([1.0, -2.0]), "small.shift": of([0.5, 0.0]), "large.b": of([100.0, 200.0])});
    let after = |a: [f32; 2]| -> Value {
        let image: Vec<f32> = refined(a, 3).iter().map(|b| 10.0 * b).collect();
        json!({"small.a": a, "large.b": refined(a, 3), "vae.y": image})
    };
    cascade(CASCADE).write("loops", &json!([{"inputs": inputs, "values": after(DRAFT)}]));

    let around = json!({"small.a": [3.0, -1.0], "large.b": [121.0, 221.0]});
    let case = json!({"prompt": [1], "tokens": [2, 2, 2], "inputs": inputs, "values": around});
    around_tokens().write("loops-around-tokens", &json!([case]));

    let mut inputs = inputs;
    inputs.as_object_mut().unwrap().remove("small.shift");
    for (package, place) in doubling().iter().zip(["first", "last"]) {
        let cases = json!([{"inputs": inputs, "values": after(DOUBLED)}]);
        package.write(&format!("loops-doubling-{place}"), &cases);
    }
}
