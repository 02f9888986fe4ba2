use oxpipe::component::{ComponentTensor, DataType, RunControl, copied_bytes};
use oxpipe::generation::FinishReason;
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineError, RequestError, Run, RunSettings};

use super::fake::{
    DECODER_METADATA, DECODER_OUTPUTS, Fake, continuation, decoder_body, float_tensor, io, language_model,
    next_token, open,
};

const PROMPT: [i32; 5] = [3, 1, 4, 1, 5];

fn settings(max_tokens: u64) -> RunSettings {
    RunSettings {
        max_tokens: Some(max_tokens),
        ..RunSettings::default()
    }
}

fn generate(run: &mut Run) -> Vec<i32> {
    let mut tokens = Vec::new();
    run.generate(&RunControl::default(), &mut |_, event| {
        tokens.extend(event.token);
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    tokens
}

fn answer(pipeline: &Pipeline, prompt: &[i32], settings: &RunSettings) -> Vec<i32> {
    let mut run = Run::new(pipeline, settings).unwrap();
    run.append_tokens(prompt).unwrap();
    generate(&mut run)
}

#[test]
fn every_chunk_size_gives_the_same_tokens() {
    let (pipeline, _) = language_model("");
    let expected = continuation(&PROMPT, 80, 0);
    for chunk_size in [None, Some(1), Some(2), Some(3), Some(5), Some(100)] {
        let settings = RunSettings {
            chunk_size,
            ..settings(80)
        };
        assert_eq!(
            answer(&pipeline, &PROMPT, &settings),
            expected,
            "chunk size {chunk_size:?}"
        );
    }
}

#[test]
fn a_prompt_is_one_pass_and_a_token_is_one_pass() {
    let (pipeline, watch) = language_model("");
    answer(&pipeline, &PROMPT, &settings(4));
    assert_eq!(watch.runs(), 4);
    let chunked = RunSettings {
        chunk_size: Some(2),
        ..settings(4)
    };
    answer(&pipeline, &PROMPT, &chunked);
    assert_eq!(watch.runs(), 4 + 3 + 3);
}

#[test]
fn a_repeated_step_writes_into_kept_memory() {
    let (pipeline, watch) = language_model("");
    let before = copied_bytes();
    answer(&pipeline, &PROMPT, &settings(6));
    assert_eq!(copied_bytes(), before, "bytes copied at the seam");
    let in_room = watch.with(|watched| std::mem::take(&mut watched.in_room));
    // The cache always has room; logits once there have been those of one position.
    assert_eq!(in_room[0], ["present"]);
    for pass in &in_room[1..] {
        assert_eq!(pass, &["logits", "present"]);
    }
}

#[test]
fn cache_memory_grows_by_doubling() {
    let (pipeline, _) = language_model("");
    let mut run = Run::new(&pipeline, &settings(300)).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    let mut sizes = Vec::new();
    for _ in 0..300 {
        run.step(&RunControl::default()).unwrap();
        sizes.push(run.stats().kv_bytes);
    }
    sizes.dedup();
    assert!(sizes.len() <= 8, "{sizes:?}");
    // 304 positions of two heads in 4 bytes each, twice, and no more than twice of that.
    let needed = 304 * 2 * 4 * 2;
    let last = *sizes.last().unwrap();
    assert!((needed..=2 * needed).contains(&last), "{last} for {needed}");
}

#[test]
fn a_second_turn_goes_on_where_the_first_ended() {
    let (pipeline, watch) = language_model("");
    let mut run = Run::new(&pipeline, &settings(3)).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    let first = generate(&mut run);
    run.append_tokens(&[2, 7]).unwrap();
    let runs = watch.runs();
    let second = generate(&mut run);
    assert_eq!(watch.runs() - runs, 3);
    let whole: Vec<i32> = [&PROMPT[..], &first, &[2, 7]].concat();
    assert_eq!(second, continuation(&whole, 3, 0));
    let usage = run.stats();
    assert_eq!((usage.prompt_tokens, usage.generated_tokens), (7, 6));
    assert_eq!(run.tokens(), [whole, second].concat());
}

#[test]
fn rewinding_anywhere_is_as_if_the_rest_had_not_been() {
    let (pipeline, _) = language_model("");
    for len in 0..10 {
        let mut run = Run::new(&pipeline, &settings(5)).unwrap();
        run.append_tokens(&PROMPT).unwrap();
        generate(&mut run);
        let kept = run.tokens()[..len].to_vec();
        run.rewind(len).unwrap();
        assert_eq!(run.tokens(), kept);
        if len == 0 {
            let error = run.step(&RunControl::default()).unwrap_err();
            assert!(matches!(error, PipelineError::Request(RequestError::NoTokens)));
        } else {
            assert_eq!(
                run.step(&RunControl::default()).unwrap().token,
                Some(next_token(&kept, 0))
            );
            run.rewind(len).unwrap();
        }
        run.append_tokens(&[6]).unwrap();
        let whole = [kept, vec![6]].concat();
        assert_eq!(
            generate(&mut run),
            continuation(&whole, 5, 0),
            "after a rewind to {len}"
        );
    }
    let mut run = Run::new(&pipeline, &settings(5)).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    let error = run.rewind(6).unwrap_err();
    assert_eq!(error.to_string(), "cannot rewind to 6 tokens; the run has 5");
}

#[test]
fn a_host_that_samples_forces_its_tokens() {
    let (pipeline, watch) = language_model("");
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &settings(10)).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    assert!(matches!(
        run.logits(),
        Err(PipelineError::Request(RequestError::NoLogits))
    ));
    run.forward(&control).unwrap();
    run.forward(&control).unwrap();
    assert_eq!(watch.runs(), 1, "logits that are there are not computed again");
    let expected = usize::try_from(next_token(&PROMPT, 0)).unwrap();
    let logits = run.logits().unwrap().to_vec();
    assert_eq!(logits.len(), 8);
    assert_eq!(logits.iter().position(|&logit| logit == 2.0), Some(expected));
    let event = run.force_token(6).unwrap();
    assert_eq!(event.token, Some(6));
    // softmax of seven zeros and a 2.
    let one = if expected == 6 { 2.0f32 } else { 0.0 };
    assert!((event.logprob - (one - (7.0 + 2f32.exp()).ln())).abs() < 1e-6);
    // The host may think again.
    run.force_token(5).unwrap();
    assert_eq!(run.tokens(), [&PROMPT[..], &[5]].concat());
    let next = run.step(&control).unwrap().token.unwrap();
    assert_eq!(next, next_token(&[&PROMPT[..], &[5]].concat(), 0));
    // After a step, forcing replaces what the step chose.
    run.force_token(1).unwrap();
    let tokens = [&PROMPT[..], &[5, 1]].concat();
    assert_eq!(run.tokens(), tokens);
    assert_eq!(run.step(&control).unwrap().token, Some(next_token(&tokens, 0)));
    let error = run.force_token(8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    run.append_tokens(&[2]).unwrap();
    assert!(matches!(
        run.force_token(1),
        Err(PipelineError::Request(RequestError::NoLogits))
    ));
}

#[test]
fn a_run_ends_on_an_end_token_a_limit_or_a_full_context() {
    let control = RunControl::default();
    let first = next_token(&PROMPT, 0);
    let (pipeline, _) = language_model(&format!("tokens: {{eos_token_id: [99, {first}]}}\n"));
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    let event = run.step(&control).unwrap();
    assert_eq!(event.finish, Some(FinishReason::EndOfText { index: 1 }));
    let error = run.step(&control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    assert_eq!(
        error.to_string(),
        "the run is finished (end of text); append tokens or rewind to go on"
    );
    let going_on = RunSettings {
        stop_on_eos: false,
        ..settings(2)
    };
    assert_eq!(answer(&pipeline, &PROMPT, &going_on).len(), 2);

    let (pipeline, _) = language_model("generation: {max_length: 7}\n");
    assert_eq!(answer(&pipeline, &PROMPT, &RunSettings::default()).len(), 2);
    assert_eq!(
        answer(&pipeline, &PROMPT, &settings(4)).len(),
        4,
        "the caller wins"
    );

    let limited = DECODER_METADATA.replace("model:", "model:\n  max_sequence_length: 7");
    let pipeline = open(&limited, vec![("model", super::fake::decoder())]).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    assert_eq!(generate(&mut run).len(), 2);
    assert_eq!(run.finished(), Some(FinishReason::ContextFull));
    let error = run.append_tokens(&[1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "7 tokens and 1 more are above the 7 that the model takes; append fewer, or rewind first"
    );
}

#[test]
fn a_sequence_never_gets_longer_than_the_context() {
    let control = RunControl::default();
    let limited = DECODER_METADATA.replace("model:", "model:\n  max_sequence_length: 5");
    let pipeline = open(&limited, vec![("model", super::fake::decoder())]).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    let error = run.step(&control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    assert_eq!(
        error.to_string(),
        "the run has 5 tokens, as many as the model takes; rewind to make room for another"
    );
    // The logits of the last position are to be had all the same.
    run.forward(&control).unwrap();
    assert_eq!(run.force_token(1).unwrap_err().kind(), ErrorKind::InvalidState);
    assert_eq!(run.tokens(), PROMPT);
    run.rewind(4).unwrap();
    let event = run.step(&control).unwrap();
    assert_eq!(event.token, Some(next_token(&PROMPT[..4], 0)));
    assert_eq!(event.finish, Some(FinishReason::ContextFull));
}

#[test]
fn a_rewind_that_removes_nothing_does_not_go_on_with_a_finished_answer() {
    let (pipeline, _) = language_model("");
    let mut run = Run::new(&pipeline, &settings(2)).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    let answer = generate(&mut run);
    assert_eq!(answer.len(), 2);
    run.rewind(PROMPT.len() + 2).unwrap();
    assert_eq!(run.finished(), Some(FinishReason::MaxTokens));
    run.rewind(PROMPT.len() + 1).unwrap();
    assert_eq!(generate(&mut run), answer[1..]);
}

#[test]
fn runs_of_one_pipeline_on_many_threads_do_not_mix() {
    let (pipeline, _) = language_model("");
    std::thread::scope(|scope| {
        for first in 0..6 {
            let pipeline = &pipeline;
            scope.spawn(move || {
                let prompt = [first, 2, first];
                assert_eq!(
                    answer(pipeline, &prompt, &settings(40)),
                    continuation(&prompt, 40, 0)
                );
            });
        }
    });
}

#[test]
fn a_decoder_without_a_cache_sees_all_tokens_each_time() {
    let fake = Fake::new(
        io(&["ids:int32[1,sequence]"], &["logits:float16[1,sequence,8]"]),
        |call| {
            let ids = call.ints("ids");
            let tokens: Vec<i32> = ids.iter().map(|&id| i32::try_from(id).unwrap()).collect();
            let next = next_token(&tokens, 0);
            // One row is all that it gives: the last position's. 0x3c00 is 1 in float16.
            let row: Vec<u8> = (0..8)
                .flat_map(|id| if id == next { [0x00, 0x3c] } else { [0x00, 0x00] })
                .collect();
            let logits = ComponentTensor::from_raw(DataType::Float16, &[1, 1, 8], &row);
            Ok(vec![("logits", logits.unwrap())])
        },
    );
    let watch = fake.watch();
    // Nothing is bound: one integer input of rank 2, one float output.
    let pipeline = open("schema_version: v1\n", vec![("model", fake)]).unwrap();
    assert_eq!(
        answer(&pipeline, &PROMPT, &settings(9)),
        continuation(&PROMPT, 9, 0)
    );
    assert_eq!(watch.runs(), 9);
    let error = Run::new(
        &pipeline,
        &RunSettings {
            chunk_size: Some(2),
            ..RunSettings::default()
        },
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn several_routed_tensors_are_fresh_in_every_step() {
    // The decoder adds what both routes bring for each token of the span: the id, and ten
    // times the id. A stale one is seen in the first token after the prompt.
    let embedding = || {
        Fake::new(
            io(
                &["input_ids:int64[1,s]"],
                &["one:float32[1,s]", "ten:float16[1,s]"],
            ),
            |call| {
                let ids = call.ints("input_ids");
                let shape = [1, ids.len() as i64];
                let one: Vec<f32> = ids.iter().map(|&id| id as f32).collect();
                let ten: Vec<u8> = ids
                    .iter()
                    .flat_map(|&id| half::f16::from_f32(10.0 * id as f32).to_le_bytes())
                    .collect();
                let ten = ComponentTensor::from_raw(DataType::Float16, &shape, &ten);
                Ok(vec![("one", float_tensor(&shape, &one)), ("ten", ten.unwrap())])
            },
        )
    };
    let decoder = || {
        let inputs = [
            "input_ids:int64[1,s]",
            "one:float32[1,s]",
            "ten:float32[1,s]",
            "past:float32[1,2,p,1]",
        ];
        Fake::new(
            io(&inputs, &DECODER_OUTPUTS),
            decoder_body(|call| {
                let last = |name| *call.floats(name).last().unwrap() as i64;
                last("one") + last("ten")
            }),
        )
    };
    let yaml = "
pipeline:
  models:
    embedding: {filename: e.onnx, io: {token_input: input_ids}}
    decoder:
      filename: d.onnx
      type: decoder
      io: {token_input: input_ids, logits_output: logits, kv_inputs: [past], kv_outputs: [present]}
  dataflow:
    - {from: embedding.one, to: decoder.one, dtype: fp32}
    - {from: embedding.ten, to: decoder.ten}
  phases:
    embedding: {run_on: every_step}
";
    let expected = {
        let mut tokens = PROMPT.to_vec();
        for _ in 0..10 {
            let last = i64::from(*tokens.last().unwrap());
            tokens.push(next_token(&tokens, 11 * last));
        }
        tokens.split_off(PROMPT.len())
    };
    let pipeline = open(yaml, vec![("embedding", embedding()), ("decoder", decoder())]).unwrap();
    assert_eq!(answer(&pipeline, &PROMPT, &settings(10)), expected);

    // The negative control: an embedding that goes on giving the first "ten" it made.
    let mut inner = embedding();
    let mut first: Option<ComponentTensor> = None;
    let stale = Fake::new(
        io(
            &["input_ids:int64[1,s]"],
            &["one:float32[1,s]", "ten:float16[1,s]"],
        ),
        move |call| {
            let mut made = inner.call(call)?;
            let (_, ten) = made.iter_mut().find(|(name, _)| *name == "ten").unwrap();
            let copy = |tensor: &ComponentTensor| tensor.view().to_tensor().unwrap();
            *ten = copy(first.get_or_insert_with(|| copy(ten)));
            Ok(made)
        },
    );
    let pipeline = open(yaml, vec![("embedding", stale), ("decoder", decoder())]).unwrap();
    assert_ne!(answer(&pipeline, &PROMPT, &settings(10)), expected);
}

#[test]
fn logits_that_are_no_numbers_are_an_error() {
    let fake = Fake::new(io(&["ids:int64[1,s]"], &["logits:float32[1,s,2]"]), |call| {
        let rows = call.ints("ids").len();
        let row = [1.0, f32::NAN].repeat(rows);
        Ok(vec![("logits", float_tensor(&[1, rows as i64, 2], &row))])
    });
    let pipeline = open("schema_version: v1\n", vec![("model", fake)]).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&[1]).unwrap();
    let error = run.step(&RunControl::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RunFailed);
    assert_eq!(
        error.to_string(),
        "component \"model\": logits hold NaN at index 1; no token can be chosen from them"
    );
    assert_eq!(run.tokens(), [1]);
}

#[test]
fn a_cache_that_does_not_grow_as_declared_is_an_error() {
    let fake = Fake::new(
        io(
            &["input_ids:int64[1,s]", "past:float32[1,2,p,1]"],
            &DECODER_OUTPUTS,
        ),
        |_| {
            Ok(vec![
                ("logits", float_tensor(&[1, 1, 8], &[0.0; 8])),
                ("present", float_tensor(&[1, 2, 1, 1], &[0.0; 2])),
            ])
        },
    )
    .breaking_promises();
    let pipeline = open("schema_version: v1\n", vec![("model", fake)]).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&[1]).unwrap();
    run.step(&RunControl::default()).unwrap();
    let error = run.step(&RunControl::default()).unwrap_err();
    assert_eq!(error.port(), Some("present"));
    assert!(matches!(
        error,
        PipelineError::Request(RequestError::CarriedShape { .. })
    ));
    assert_eq!(run.tokens().len(), 2);
}
