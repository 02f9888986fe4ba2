//! What runs when: phases, modalities, states, routes between components.

use std::ops::ControlFlow;

use oxpipe::component::{ComponentTensor, DataType, RunControl};
use oxpipe::generation::FinishReason;
use oxpipe::pipeline::{ErrorKind, Phase, Pipeline, Run, RunSettings};

use super::fake::{
    DECODER_OUTPUTS, Fake, Watch, continuation, decoder_body, float_tensor, floats, io, next_token, open,
};

const PROMPT: [i32; 3] = [5, 2, 3];
const VISION: &str = "
pipeline:
  models:
    vision: {filename: v.onnx, type: vision_encoder}
    decoder:
      filename: d.onnx
      type: decoder
      io:
        token_input: input_ids
        logits_output: logits
        kv_inputs: [past]
        kv_outputs: [present]
        OPTIONAL
  dataflow:
    - {from: vision.features, to: decoder.features}
  phases:
    vision: {run_on: prompt_only, when_present: image}
";

/// The features are the pixels.
fn encoder() -> Fake {
    Fake::new(io(&["pixels:float32[1,n]"], &["features:float32[1,n]"]), |call| {
        let pixels = call.tensor("pixels").view().to_tensor().unwrap();
        Ok(vec![("features", pixels)])
    })
}

/// It adds the sum of the features.
fn decoder_of_features() -> Fake {
    let inputs = [
        "input_ids:int64[1,s]",
        "features:float32[1,n]",
        "past:float32[1,2,p,1]",
    ];
    Fake::new(
        io(&inputs, &DECODER_OUTPUTS),
        decoder_body(|call| call.floats("features").iter().sum::<f32>() as i64),
    )
}

fn vision(optional: &str) -> (Pipeline, Watch, Watch) {
    let (encoder, decoder) = (encoder(), decoder_of_features());
    let (encoder_watch, decoder_watch) = (encoder.watch(), decoder.watch());
    let yaml = VISION.replace("OPTIONAL", optional);
    let pipeline = open(&yaml, vec![("vision", encoder), ("decoder", decoder)]).unwrap();
    (pipeline, encoder_watch, decoder_watch)
}

const ZEROS: &str = "optional_inputs: {features: {presence: image, absent: {kind: zeros, shape: [1, 0]}}}";

fn steps(run: &mut Run, count: usize) -> Vec<i32> {
    let control = RunControl::default();
    (0..count)
        .map(|_| run.step(&control).unwrap().token.unwrap())
        .collect()
}

#[test]
fn the_same_image_is_encoded_once_and_another_one_anew() {
    let (pipeline, encoder, decoder) = vision(ZEROS);
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    let image = float_tensor(&[1, 2], &[1.0, 4.0]);
    run.set_input("vision.pixels", image.view()).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    let first = steps(&mut run, 3);
    assert_eq!(first, continuation(&PROMPT, 3, 5));
    assert_eq!(encoder.runs(), 1);
    // A second question about the same image.
    run.set_input("vision.pixels", image.view()).unwrap();
    run.append_tokens(&[1]).unwrap();
    let whole = [&PROMPT[..], &first, &[1]].concat();
    let second = steps(&mut run, 2);
    assert_eq!(second, continuation(&whole, 2, 5));
    assert_eq!((encoder.runs(), decoder.runs()), (1, 5));
    // Another image: everything that came of the first one goes, the tokens stay.
    let other = float_tensor(&[1, 3], &[2.0, 0.0, 1.0]);
    run.set_input("vision.pixels", other.view()).unwrap();
    let whole = [whole, second].concat();
    assert_eq!(steps(&mut run, 1), continuation(&whole, 1, 3));
    assert_eq!((encoder.runs(), decoder.runs()), (2, 6));
    assert_eq!(
        floats(run.get_tensor("vision.features").unwrap()),
        [2.0, 0.0, 1.0]
    );
    assert_eq!(run.get_tensor("vision.pixels").unwrap().shape(), [1, 3]);
}

#[test]
fn a_component_of_an_absent_modality_does_not_run() {
    let (pipeline, encoder, _) = vision(ZEROS);
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    assert_eq!(steps(&mut run, 4), continuation(&PROMPT, 4, 0));
    assert_eq!(encoder.runs(), 0);
    assert_eq!(
        run.get_tensor("vision.features").unwrap_err().kind(),
        ErrorKind::InvalidState
    );
    // Bringing the image later, and taking it back.
    let whole = run.tokens().to_vec();
    run.set_input("vision.pixels", float_tensor(&[1, 1], &[2.0]).view())
        .unwrap();
    let with_image = steps(&mut run, 1);
    assert_eq!(with_image, continuation(&whole, 1, 2));
    run.clear_input("vision.pixels").unwrap();
    let whole = [whole, with_image].concat();
    assert_eq!(steps(&mut run, 1), continuation(&whole, 1, 0));
    assert!(run.get_tensor("vision.features").is_err());
}

#[test]
fn a_required_modality_that_is_missing_is_an_error_before_anything_runs() {
    let (pipeline, encoder, decoder) = vision("");
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    let error = run.step(&RunControl::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingInput);
    assert_eq!(
        (error.component(), error.port()),
        (Some("decoder"), Some("features"))
    );
    assert!(
        error
            .to_string()
            .contains("\"vision\", which this request leaves out"),
        "{error}"
    );
    assert_eq!((encoder.runs(), decoder.runs()), (0, 0));
    run.set_input("vision.pixels", float_tensor(&[1, 1], &[2.0]).view())
        .unwrap();
    assert_eq!(steps(&mut run, 1), continuation(&PROMPT, 1, 2));
}

#[test]
fn zeros_for_an_absent_value_take_their_size_from_other_inputs() {
    // Whichever comes first in the graph.
    let ports = ["ids:int64[1,s]", "bias:float16[1,s,2]"];
    for inputs in [ports, [ports[1], ports[0]]] {
        let fake = Fake::new(io(&inputs, &["logits:float32[1,s,8]"]), |call| {
            let ids = call.ints("ids");
            let bias = call.tensor("bias");
            assert_eq!(bias.shape(), [1, ids.len() as i64, 2]);
            assert!(bias.bytes().iter().all(|&byte| byte == 0));
            let logits = vec![0.0; 8 * ids.len()];
            Ok(vec![("logits", float_tensor(&[1, ids.len() as i64, 8], &logits))])
        });
        let yaml = "
model:
  io:
    optional_inputs: {bias: {presence: audio, absent: {kind: zeros, shape: [1, s, 2]}}}
";
        let pipeline = open(yaml, vec![("model", fake)]).unwrap();
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        run.append_tokens(&PROMPT).unwrap();
        assert_eq!(steps(&mut run, 2), [0, 0]);
    }
}

#[test]
fn recurrent_state_goes_from_step_to_step_and_starts_over_after_a_rewind() {
    let fake = || {
        let inputs = ["ids:int64[1,s]", "state:float32[batch,2]"];
        let outputs = ["logits:float32[1,s,8]", "new_state:float32[batch,2]"];
        Fake::new(io(&inputs, &outputs), |call| {
            // state = [sum of place * id, tokens so far]
            let state = call.floats("state");
            let (mut sum, mut count) = (state[0], state[1]);
            for id in call.ints("ids") {
                count += 1.0;
                sum += count * id as f32;
            }
            let next = (sum as i64).rem_euclid(8);
            let row: Vec<f32> = (0..8).map(|id| if id == next { 1.0 } else { 0.0 }).collect();
            Ok(vec![
                ("logits", float_tensor(&[1, 1, 8], &row)),
                ("new_state", float_tensor(&[1, 2], &[sum, count])),
            ])
        })
    };
    let yaml = "
model:
  io:
    token_input: ids
    state_pairs: [{input: state, output: new_state, init: zeros, update: replace}]
";
    let fake = fake();
    let watch = fake.watch();
    let pipeline = open(yaml, vec![("model", fake)]).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    assert_eq!(steps(&mut run, 5), continuation(&PROMPT, 5, 0));
    assert_eq!(watch.runs(), 5);
    run.rewind(4).unwrap();
    let kept = run.tokens().to_vec();
    assert_eq!(steps(&mut run, 3), continuation(&kept, 3, 0));
}

#[test]
fn cross_kv_is_fed_once_and_held() {
    let encoder = Fake::new(
        io(
            &["sound:float32[1,n]"],
            &["k:float32[1,1,n,1]", "v:float32[1,1,n,1]"],
        ),
        |call| {
            let sound = call.floats("sound");
            let shape = [1, 1, sound.len() as i64, 1];
            let doubled: Vec<f32> = sound.iter().map(|value| 2.0 * value).collect();
            Ok(vec![
                ("k", float_tensor(&shape, &sound)),
                ("v", float_tensor(&shape, &doubled)),
            ])
        },
    );
    let inputs = [
        "input_ids:int64[1,s]",
        "past:float32[1,2,p,1]",
        "cross_v:float32[1,1,n,1]",
        "cross_k:float32[1,1,n,1]",
    ];
    let decoder = Fake::new(
        io(&inputs, &DECODER_OUTPUTS),
        // Keys and values must not be swapped.
        decoder_body(|call| {
            let sum = |name| call.floats(name).iter().sum::<f32>() as i64;
            sum("cross_k") + 10 * sum("cross_v")
        }),
    );
    let watch = encoder.watch();
    let yaml = "
pipeline:
  models:
    encoder: {filename: e.onnx, type: audio_encoder, io: {cross_kv_outputs: [k, v]}}
    decoder:
      filename: d.onnx
      type: decoder
      io:
        token_input: input_ids
        logits_output: logits
        kv_inputs: [past]
        kv_outputs: [present]
        cross_kv_inputs: [cross_k, cross_v]
";
    let pipeline = open(yaml, vec![("encoder", encoder), ("decoder", decoder)]).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.set_input("encoder.sound", float_tensor(&[1, 2], &[1.0, 2.0]).view())
        .unwrap();
    run.append_tokens(&PROMPT).unwrap();
    assert_eq!(steps(&mut run, 4), continuation(&PROMPT, 4, 3 + 10 * 6));
    assert_eq!(watch.runs(), 1);
}

#[test]
fn final_and_on_demand_components_run_when_they_are_asked_for() {
    let decoder = super::fake::decoder();
    let vocoder = Fake::new(io(&["codes:int64[1,n]"], &["audio:float32[n]"]), |call| {
        let codes = call.ints("codes");
        let audio: Vec<f32> = codes.iter().map(|&code| 2.0 * code as f32).collect();
        Ok(vec![("audio", float_tensor(&[audio.len() as i64], &audio))])
    });
    let probe = Fake::new(io(&["logits:float32[1,s,8]"], &["rows:int64[1]"]), |call| {
        let rows = call.tensor("logits").shape()[1];
        let rows = ComponentTensor::from_raw(DataType::Int64, &[1], &rows.to_le_bytes());
        Ok(vec![("rows", rows.unwrap())])
    });
    let (vocoder_watch, probe_watch) = (vocoder.watch(), probe.watch());
    let yaml = "
pipeline:
  models:
    decoder:
      filename: d.onnx
      type: decoder
      io:
        token_input: input_ids
        attention_mask_input: attention_mask
        position_ids_input: position_ids
        logits_output: logits
        kv_inputs: [past]
        kv_outputs: [present]
    vocoder: {filename: v.onnx, type: vocoder}
    probe: {filename: p.onnx}
  dataflow:
    - {from: decoder.output_ids, to: vocoder.codes, dtype: int64}
    - {from: decoder.logits, to: probe.logits}
  phases:
    vocoder: {run_on: final_only}
    probe: {run_on: on_demand}
";
    let sessions = vec![("decoder", decoder), ("vocoder", vocoder), ("probe", probe)];
    let pipeline = open(yaml, sessions).unwrap();
    let phases: Vec<Phase> = pipeline
        .components()
        .iter()
        .map(|component| component.phase)
        .collect();
    assert_eq!(phases, [Phase::EveryStep, Phase::FinalOnly, Phase::OnDemand]);
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    assert_eq!(run.finish(&control).unwrap_err().kind(), ErrorKind::InvalidState);
    run.append_tokens(&PROMPT).unwrap();
    let chosen = steps(&mut run, 3);
    assert_eq!((vocoder_watch.runs(), probe_watch.runs()), (0, 0));
    let error = run.get_tensor("vocoder.audio").unwrap_err();
    assert_eq!(
        error.to_string(),
        "vocoder.audio has no value yet; finish the run first"
    );
    run.finish(&control).unwrap();
    let expected: Vec<f32> = chosen.iter().map(|&id| 2.0 * id as f32).collect();
    assert_eq!(floats(run.get_tensor("vocoder.audio").unwrap()), expected);
    assert_eq!(run.get_tensor("decoder.output_ids").unwrap().shape(), [1, 3]);
    run.run_component("probe", &control).unwrap();
    assert_eq!(run.get_tensor("probe.rows").unwrap().bytes(), 1i64.to_le_bytes());
    let error = run.run_component("vocoder", &control).unwrap_err();
    assert_eq!(
        error.to_string(),
        "component \"vocoder\" does not run on_demand; its phase is final_only"
    );
    // The run goes on after that.
    let whole = run.tokens().to_vec();
    assert_eq!(steps(&mut run, 1), [next_token(&whole, 0)]);
}

/// Where no pass was made for the answer yet, behind a search, finish makes the one that a step would have.
#[test]
fn an_answer_of_a_search_can_be_finished() {
    let yaml = "
pipeline:
  models:
    decoder:
      filename: d.onnx
      type: decoder
      io:
        token_input: input_ids
        attention_mask_input: attention_mask
        position_ids_input: position_ids
        logits_output: logits
        kv_inputs: [past]
        kv_outputs: [present]
    vocoder: {filename: v.onnx, type: vocoder}
  dataflow:
    - {from: decoder.output_ids, to: vocoder.codes, dtype: int64}
  phases:
    vocoder: {run_on: final_only}
";
    let vocoder = Fake::new(io(&["codes:int64[1,n]"], &["audio:float32[n]"]), |call| {
        let codes = call.ints("codes");
        let audio: Vec<f32> = codes.iter().map(|&code| 2.0 * code as f32).collect();
        Ok(vec![("audio", float_tensor(&[audio.len() as i64], &audio))])
    });
    let pipeline = open(
        yaml,
        vec![("decoder", super::fake::decoder()), ("vocoder", vocoder)],
    )
    .unwrap();
    let control = RunControl::default();
    for max_tokens in [1, 6] {
        let mut settings = RunSettings {
            max_tokens: Some(max_tokens),
            ..RunSettings::default()
        };
        settings.sampling.set("num_beams", "3").unwrap();
        let mut run = Run::new(&pipeline, &settings).unwrap();
        run.append_tokens(&PROMPT).unwrap();
        assert_eq!(run.finish(&control).unwrap_err().kind(), ErrorKind::InvalidState);
        run.generate(&control, &mut |_, _| ControlFlow::Continue(()))
            .unwrap();
        let answer = run.tokens()[PROMPT.len()..].to_vec();
        assert_eq!(answer.len() as u64, max_tokens);
        run.finish(&control).unwrap();
        let expected: Vec<f32> = answer.iter().map(|&id| 2.0 * id as f32).collect();
        assert_eq!(floats(run.get_tensor("vocoder.audio").unwrap()), expected);
        // The logits that the last token could have been chosen from.
        if max_tokens > 1 {
            let before = &run.tokens()[..run.tokens().len() - 1];
            let largest = run.logits().unwrap().iter().copied().fold(f32::MIN, f32::max);
            assert_eq!(run.logits().unwrap()[next_token(before, 0) as usize], largest);
        }
        // Another turn goes on from there.
        run.append_tokens(&[1]).unwrap();
        let saved = run.save().unwrap();
        let mut loaded = Run::load(&pipeline, &settings, &saved).unwrap();
        loaded.forward(&control).unwrap();
        run.forward(&control).unwrap();
        assert_eq!(run.logits().unwrap(), loaded.logits().unwrap());
    }
}

#[test]
fn a_package_without_a_token_loop_runs_once() {
    let doubling = || {
        Fake::new(io(&["x:float32[n]"], &["y:float32[n]"]), |call| {
            let y: Vec<f32> = call.floats("x").iter().map(|x| 2.0 * x).collect();
            Ok(vec![("y", float_tensor(&[y.len() as i64], &y))])
        })
    };
    let (first, second) = (doubling(), doubling());
    let watch = first.watch();
    // The stages stand in the file in the wrong order: the dataflow says what comes first.
    let yaml = "
pipeline:
  models:
    second: {filename: b.onnx}
    first: {filename: a.onnx}
  dataflow:
    - {from: first.y, to: second.x}
  strategy:
    kind: composite
    stages:
      - {name: b, strategy: {kind: single_pass, model: second}}
      - {name: a, strategy: {kind: single_pass, model: first}, run_on: prompt_only}
";
    let pipeline = open(yaml, vec![("second", second), ("first", first)]).unwrap();
    assert_eq!(pipeline.package().strategy, "composite");
    assert_eq!(pipeline.package().decoder, None);
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    let error = run.step(&control).unwrap_err();
    assert_eq!((error.component(), error.port()), (Some("first"), Some("x")));
    run.set_input("first.x", float_tensor(&[2], &[1.0, 3.0]).view())
        .unwrap();
    let event = run.step(&control).unwrap();
    assert_eq!((event.token, event.finish), (None, Some(FinishReason::Completed)));
    assert_eq!(floats(run.get_tensor("second.y").unwrap()), [4.0, 12.0]);
    assert_eq!(run.step(&control).unwrap_err().kind(), ErrorKind::InvalidState);
    run.set_input("first.x", float_tensor(&[2], &[1.0, 3.0]).view())
        .unwrap();
    assert!(run.finished().is_some(), "the same value changes nothing");
    run.set_input("first.x", float_tensor(&[1], &[5.0]).view())
        .unwrap();
    run.step(&control).unwrap();
    assert_eq!(floats(run.get_tensor("second.y").unwrap()), [20.0]);
    assert_eq!(watch.runs(), 2);
    for error in [
        run.forward(&control).unwrap_err(),
        run.force_token(1).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidState);
    }
}

/// One component, and what it needs; the others only when asked for.
#[test]
fn a_single_pass_runs_its_model_and_what_feeds_it() {
    let doubling = || {
        Fake::new(io(&["x:float32[n]"], &["y:float32[n]"]), |call| {
            let y: Vec<f32> = call.floats("x").iter().map(|x| 2.0 * x).collect();
            Ok(vec![("y", float_tensor(&[y.len() as i64], &y))])
        })
    };
    let yaml = "
pipeline:
  models:
    source: {filename: a.onnx}
    model: {filename: b.onnx}
    after: {filename: c.onnx}
    beside: {filename: d.onnx}
    last: {filename: e.onnx}
  dataflow:
    - {from: source.y, to: model.x}
    - {from: model.y, to: after.x}
    - {from: source.y, to: last.x}
  strategy: {kind: single_pass, model: model}
  phases: {last: {run_on: final_only}}
";
    let names = ["source", "model", "after", "beside", "last"];
    let pipeline = open(yaml, names.map(|name| (name, doubling())).into()).unwrap();
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.set_input("source.x", float_tensor(&[1], &[1.5]).view())
        .unwrap();
    // Nothing is missing for "beside", which does not run.
    run.step(&control).unwrap();
    assert_eq!(run.stats().component_runs, 2);
    assert_eq!(floats(run.get_tensor("model.y").unwrap()), [6.0]);
    assert_eq!(
        run.get_tensor("after.y").unwrap_err().kind(),
        ErrorKind::InvalidState
    );
    run.finish(&control).unwrap();
    assert_eq!(floats(run.get_tensor("last.y").unwrap()), [6.0]);
    run.run_component("after", &control).unwrap();
    assert_eq!(floats(run.get_tensor("after.y").unwrap()), [12.0]);
}

#[test]
fn tokens_for_a_package_that_reads_none() {
    let yaml = "
pipeline:
  models:
    model: {filename: a.onnx}
  strategy: {kind: single_pass, model: model}
";
    let fake = Fake::ports(&["x:float32[n]"], &["y:float32[n]"]);
    let pipeline = open(yaml, vec![("model", fake)]).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    for error in [run.append_tokens(&[1]).unwrap_err(), run.rewind(0).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
    }
}

/// Positions of three axes: those that the host's processor gives, then those that go on from
/// them. The model chooses the sum of all positions that it has read.
#[test]
fn positions_by_a_processor_and_behind_them() {
    let yaml = |continuation: &str, rank: &str| {
        format!(
            "pipeline:\n  models: {{decoder: {{filename: d.onnx, type: decoder, io: {{token_input: ids, state_pairs: \
             [{{input: s, output: t}}]}}}}}}\n  positions: {{input: where, rank: {rank}, generation: \
             processor_coordinates, continuation: {continuation}, processor_summaries: [grid]}}\n"
        )
    };
    let model = |shape: &str| {
        let ports = [
            "ids:int64[1,n]".to_owned(),
            format!("where:int32{shape}"),
            "s:float32[1]".to_owned(),
        ];
        let inputs: Vec<&str> = ports.iter().map(String::as_str).collect();
        Fake::new(
            io(&inputs, &["logits:float32[1,1,300]", "t:float32[1]"]),
            |call| {
                let all: i64 = call.ints("where").iter().sum();
                let sum = call.floats("s")[0] + all as f32;
                let logits: Vec<f32> = (0..300u16)
                    .map(|id| f32::from(u8::from(f32::from(id) == sum)))
                    .collect();
                Ok(vec![
                    ("logits", float_tensor(&[1, 1, 300], &logits)),
                    ("t", float_tensor(&[1], &[sum])),
                ])
            },
        )
    };
    let coordinates = |values: &[i32], shape: &[i64]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        ComponentTensor::from_raw(DataType::Int32, shape, &bytes).unwrap()
    };
    // A token, a grid of 1 x 2 x 3 and a token behind it.
    let grid = [
        [0, 1, 1, 1, 1, 1, 1, 4],
        [0, 1, 1, 1, 2, 2, 2, 4],
        [0, 1, 2, 3, 1, 2, 3, 4],
    ];
    let sum: i32 = grid.as_flattened().iter().sum();
    for (continuation, count, then) in [
        ("carry_max", 8, [15, 18]),
        ("from_grid", 8, [15, 18]),
        ("linear_increment", 8, [15, 18]),
        // Without the last token: one more than 3, or one more on each axis.
        ("carry_max", 7, [15, 18]),
        ("linear_increment", 7, [12, 15]),
    ] {
        let pipeline = open(&yaml(continuation, "3"), vec![("decoder", model("[3,1,n]"))]).unwrap();
        for chunk_size in [None, Some(3)] {
            let settings = RunSettings {
                chunk_size,
                ..RunSettings::default()
            };
            let mut run = Run::new(&pipeline, &settings).unwrap();
            let given: Vec<i32> = grid.iter().flat_map(|axis| &axis[..count]).copied().collect();
            let given = coordinates(&given, &[3, 1, count as i64]);
            run.set_input("decoder.where", given.view()).unwrap();
            run.append_tokens(&[0; 8]).unwrap();
            let lost = if count == 8 { 0 } else { 12 - (then[0] - 3) };
            let first = sum - lost;
            assert_eq!(
                steps(&mut run, 3),
                [first, first + then[0], first + then[0] + then[1]]
            );
        }
    }
    // One axis, and none given: as they are counted.
    for shape in ["[n]", "[1,n]"] {
        let pipeline = open(&yaml("carry_max", "1"), vec![("decoder", model(shape))]).unwrap();
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        run.append_tokens(&[0; 3]).unwrap();
        assert_eq!(steps(&mut run, 2), [3, 6]);
        let given = coordinates(&[5, 1], if shape == "[n]" { &[2] } else { &[1, 2] });
        run.set_input("decoder.where", given.view()).unwrap();
        run.rewind(0).unwrap();
        run.append_tokens(&[0; 3]).unwrap();
        assert_eq!(steps(&mut run, 2), [12, 19]);
    }
}

/// y = the features, and 7.
fn projector() -> Fake {
    Fake::new(io(&["features:float32[1,n]"], &["y:float32[1,m]"]), |call| {
        let y = [call.floats("features"), vec![7.0]].concat();
        Ok(vec![("y", float_tensor(&[1, y.len() as i64], &y))])
    })
}

#[test]
fn what_came_of_an_image_goes_with_it_at_the_end_too() {
    let yaml = VISION
        .replace("OPTIONAL", "")
        .replace(
            "to: decoder.features}",
            "to: projector.features}\n    - {from: projector.y, to: decoder.features}\n    - {from: projector.y, to: last.x}",
        )
        .replace(
            "    decoder:\n",
            "    last: {filename: l.onnx}\n    projector: {filename: p.onnx, io: {IO}}\n    decoder:\n",
        )
        .replace("IO", ZEROS)
        + "    last: {run_on: final_only}\n";
    let last = Fake::new(io(&["x:float32[1,n]"], &["sum:float32[1]"]), |call| {
        Ok(vec![(
            "sum",
            float_tensor(&[1], &[call.floats("x").iter().sum()]),
        )])
    });
    let sessions = vec![
        ("vision", encoder()),
        ("last", last),
        ("projector", projector()),
        ("decoder", decoder_of_features()),
    ];
    let pipeline = open(&yaml, sessions).unwrap();
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.set_input("vision.pixels", float_tensor(&[1, 2], &[1.0, 4.0]).view())
        .unwrap();
    run.append_tokens(&PROMPT).unwrap();
    assert_eq!(steps(&mut run, 1), continuation(&PROMPT, 1, 12));
    run.finish(&control).unwrap();
    assert_eq!(floats(run.get_tensor("last.sum").unwrap()), [12.0]);
    run.clear_input("vision.pixels").unwrap();
    run.finish(&control).unwrap();
    assert_eq!(floats(run.get_tensor("last.sum").unwrap()), [7.0]);
    let whole = run.tokens().to_vec();
    assert_eq!(steps(&mut run, 1), continuation(&whole, 1, 7));
}

/// The decoder has made its tokens already.
#[test]
fn the_end_does_not_ask_for_what_only_the_decoder_reads() {
    let yaml = VISION
        .replace("OPTIONAL", "")
        .replace(", when_present: image", "")
        .replace(
            "  dataflow:\n",
            "    vocoder: {filename: o.onnx}\n  dataflow:\n    - {from: decoder.output_ids, to: vocoder.codes}\n",
        )
        + "    vocoder: {run_on: final_only}\n";
    let encoder = encoder();
    let runs = encoder.watch();
    let vocoder = Fake::new(io(&["codes:int64[1,n]"], &["length:float32[1]"]), |call| {
        Ok(vec![(
            "length",
            float_tensor(&[1], &[call.tensor("codes").shape()[1] as f32]),
        )])
    });
    let sessions = vec![
        ("vision", encoder),
        ("decoder", decoder_of_features()),
        ("vocoder", vocoder),
    ];
    let pipeline = open(&yaml, sessions).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.set_input("vision.pixels", float_tensor(&[1, 1], &[2.0]).view())
        .unwrap();
    run.append_tokens(&PROMPT).unwrap();
    steps(&mut run, 3);
    run.clear_input("vision.pixels").unwrap();
    run.finish(&RunControl::default()).unwrap();
    assert_eq!(floats(run.get_tensor("vocoder.length").unwrap()), [3.0]);
    assert_eq!(runs.runs(), 1);
}
