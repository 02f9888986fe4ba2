//! Frames of codes over sessions written here: a frame that fails leaves no trace, and what a
//! package says wrongly of one is an error before anything runs. That frames are right is in
//! tests/packages/nested.rs.

use oxpipe::component::{CancelToken, ComponentErrorKind, DataType, RunControl};
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineError, Run, RunSettings};

use super::fake::{Fake, VOCABULARY, Watch, decoder_body, float_tensor, floats, io, open};

const METADATA: &str = "\
pipeline:
  models:
    talker: {filename: t.onnx, type: decoder, io: {token_input: input_ids, logits_output: logits, kv_inputs: [past], kv_outputs: [present]}}
    predictor: {filename: p.onnx, type: decoder, io: {inputs_embeds_input: embeds, logits_output: logits, state_pairs: [{input: state, output: next}]}}
  dataflow:
    - {from: talker.hidden, to: predictor.embeds}
  strategy:
    kind: nested_autoregressive
    outer: talker
    inner: predictor
    inner_embedding_output: embedding
    num_code_groups: 2
";

/// As the fake language model; its hidden state is the sum of its logits' places of 2.
fn talker() -> Fake {
    let inputs = ["input_ids:int64[1,s]", "past:float32[1,2,p,1]"];
    let outputs = [
        "logits:float32[1,s,8]",
        "hidden:float32[1,s,1]",
        "present:float32[1,2,t,1]",
    ];
    let mut decode = decoder_body(|_| 0);
    Fake::new(io(&inputs, &outputs), move |call| {
        let mut made = decode(call)?;
        let logits = floats(made[0].1.view());
        let states: Vec<f32> = logits
            .chunks(VOCABULARY as usize)
            .map(|row| row.iter().position(|&logit| logit > 0.0).unwrap() as f32)
            .collect();
        made.push(("hidden", float_tensor(&[1, states.len() as i64, 1], &states)));
        Ok(made)
    })
}

/// code = what it reads + how often it ran in this frame, from 0.
fn predictor() -> Fake {
    let inputs = ["embeds:float16[1,s,1]", "state:float32[1]"];
    let outputs = [
        "logits:float32[1,s,16]",
        "embedding:float32[1,s,1]",
        "next:float32[1]",
    ];
    Fake::new(io(&inputs, &outputs), |call| {
        let embeds = call.tensor("embeds");
        assert_eq!(
            (embeds.dtype(), embeds.shape()),
            (DataType::Float16, &[1, 1, 1][..])
        );
        let read = half::f16::from_le_bytes(embeds.bytes().try_into().unwrap()).to_f32();
        let ran = call.floats("state")[0];
        let code = (read + ran) as usize;
        let logits: Vec<f32> = (0..16).map(|id| f32::from(u8::from(id == code))).collect();
        Ok(vec![
            ("logits", float_tensor(&[1, 1, 16], &logits)),
            ("embedding", float_tensor(&[1, 1, 1], &[read])),
            ("next", float_tensor(&[1], &[ran + 1.0])),
        ])
    })
}

fn nested(yaml: &str) -> Result<(Pipeline, Watch, Watch), PipelineError> {
    let (talker, predictor) = (talker(), predictor());
    let watches = (talker.watch(), predictor.watch());
    let pipeline = open(yaml, vec![("talker", talker), ("predictor", predictor)])?;
    Ok((pipeline, watches.0, watches.1))
}

/// The tokens of the fake language model, and each frame's codes: the token and one more.
fn expected() -> Vec<(i32, Vec<i64>)> {
    super::fake::continuation(&[5, 2], 4, 0)
        .into_iter()
        .map(|token| (token, vec![i64::from(token), i64::from(token) + 1]))
        .collect()
}

#[test]
fn a_frame_that_fails_anywhere_is_made_again() {
    let expected = expected();
    for failing in 0..8 {
        let (pipeline, _, predictor) = nested(METADATA).unwrap();
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        run.append_tokens(&[5, 2]).unwrap();
        predictor.with(|watched| {
            watched.fail_at = Some(failing);
            watched.fail_with = Some(ComponentErrorKind::Cancelled);
        });
        let control = RunControl::default();
        let mut failed = 0;
        for (token, codes) in &expected {
            let event = run.step(&control).or_else(|error| {
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                failed += 1;
                run.step(&control)
            });
            let event = event.unwrap();
            assert_eq!(
                (event.token, &event.codes),
                (Some(*token), codes),
                "failing at {failing}"
            );
        }
        assert_eq!(failed, 1);
    }
}

#[test]
fn a_cancelled_frame_stops_between_its_codes() {
    let (pipeline, talker, predictor) = nested(METADATA).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&[5, 2]).unwrap();
    let cancel = CancelToken::new();
    let control = RunControl {
        cancel: Some(cancel.clone()),
        ..RunControl::default()
    };
    predictor.with(|watched| watched.on_run = Some(Box::new(move |_| cancel.request())));
    assert_eq!(run.step(&control).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!((talker.runs(), predictor.runs()), (1, 1));
    predictor.with(|watched| watched.on_run = None);
    let event = run.step(&RunControl::default()).unwrap();
    assert_eq!(event.codes, expected()[0].1);
    // What the outer decoder has run stays run.
    assert_eq!((talker.runs(), predictor.runs()), (1, 3));
}

/// The host's token goes with the codes of the frame that it is chosen beside, or with none.
#[test]
fn no_token_is_forced_beside_a_frame_that_failed() {
    let expected = expected();
    for failing in [0, 1] {
        let (pipeline, _, predictor) = nested(METADATA).unwrap();
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        run.append_tokens(&[5, 2]).unwrap();
        let control = RunControl::default();
        run.step(&control).unwrap();
        predictor.with(|watched| {
            watched.fail_at = Some(2 + failing);
            watched.fail_with = Some(ComponentErrorKind::Cancelled);
        });
        assert_eq!(run.forward(&control).unwrap_err().kind(), ErrorKind::Cancelled);
        let error = run.force_token(expected[1].0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
        predictor.with(|watched| watched.fail_at = None);
        run.forward(&control).unwrap();
        assert_eq!(run.force_token(expected[1].0).unwrap().codes, expected[1].1);
        assert_eq!(run.step(&control).unwrap().codes, expected[2].1);
    }
}

/// An inner decoder without a cache reads all rows of the frame so far, which must be as wide.
#[test]
fn rows_of_another_width_are_an_error() {
    let metadata = METADATA.replace(", state_pairs: [{input: state, output: next}]", "");
    let made = [
        (vec![1, 1, 2], 2usize),
        (vec![1, 0, 1], 0),
        (vec![1, 2, 3], 6),
        (vec![0, 1], 0),
    ];
    for (shape, count) in made {
        let expected = oxpipe::component::Shape::from_slice(&shape);
        let predictor = Fake::new(
            io(
                &["embeds:float32[1,s,w]"],
                &[
                    "logits:float32[1,s,16]",
                    if shape.len() == 2 {
                        "embedding:float32[s,w]"
                    } else {
                        "embedding:float32[1,s,w]"
                    },
                ],
            ),
            move |call| {
                let rows = call.tensor("embeds").shape()[1];
                let logits = vec![0.0; 16 * rows as usize];
                Ok(vec![
                    ("logits", float_tensor(&[1, rows, 16], &logits)),
                    ("embedding", float_tensor(&shape, &vec![0.0; count])),
                ])
            },
        );
        let pipeline = open(&metadata, vec![("talker", talker()), ("predictor", predictor)]).unwrap();
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        run.append_tokens(&[5, 2]).unwrap();
        for _ in 0..2 {
            let error = run.step(&RunControl::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::RunFailed, "{error}");
            assert_eq!(
                (error.component(), error.port()),
                (Some("predictor"), Some("embedding"))
            );
            assert_eq!(run.tokens(), [5, 2], "{expected:?}");
        }
    }
}

#[test]
fn what_a_nested_package_must_say() {
    let refused = |from: &str, to: &str, message: &str| {
        assert!(METADATA.contains(from), "{from}");
        let error = nested(&METADATA.replace(from, to)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::BadPackage, "{error}");
        assert!(error.to_string().contains(message), "{message}: {error}");
    };
    for field in [
        "outer: talker",
        "inner: predictor",
        "inner_embedding_output: embedding",
        "num_code_groups: 2",
    ] {
        let key = field.split(':').next().unwrap();
        refused(field, "", &format!("pipeline.strategy.{key}: is missing"));
    }
    refused("groups: 2", "groups: 0", "an integer from 1 to 4096");
    refused(
        "inner: predictor",
        "inner: talker",
        "\"talker\" has another part in the strategy",
    );
    refused(
        "inner: predictor",
        "inner: nobody",
        "there is no component \"nobody\"",
    );
    refused(
        "output: embedding",
        "output: nothing",
        "has no output \"nothing\"",
    );
    refused("from: talker.hidden", "from: talker.present", "rank 2 or 3");
    refused(
        "inputs_embeds_input: embeds, ",
        "inputs_embeds_input: state, ",
        "fed by nothing",
    );
    refused(
        "  strategy:",
        "  phases: {predictor: {run_on: prompt_only}}\n  strategy:",
        "\"predictor\" is prompt_only; in a nested_autoregressive strategy it must be every_step",
    );
    let prefill = "prefill_embedder: {component: x, prompt_input: a, prefill_output: b, trailing_output: c}";
    refused(
        "    num_code_groups: 2",
        &format!("    num_code_groups: 2\n    {prefill}"),
        "there is no pre_embedder",
    );
    let pre = "pre_embedder: {component: x, frame_codes_input: a}";
    refused(
        "    num_code_groups: 2",
        &format!("    num_code_groups: 2\n    {pre}\n    {prefill}"),
        "names no text_embed_input that would take it",
    );
    refused(
        "    num_code_groups: 2",
        &format!("    num_code_groups: 2\n    {pre}"),
        "there is no component \"x\"",
    );
    let without = METADATA.replace("    - {from: talker.hidden, to: predictor.embeds}\n", "");
    assert!(
        nested(&without)
            .err()
            .unwrap()
            .to_string()
            .contains("is fed by nothing")
    );
    let edge = "    - {from: talker.hidden, to: predictor.state}\n  strategy";
    refused("  strategy", edge, "has a source already");
}
