//! Masked diffusion against a straight evaluation of the published algorithm, which
//! masked_diffusion.py has written down, and what a package and a run may say of it.

use oxpipe::component::{CancelToken, ComponentErrorKind, ComponentTensor, DataType, RunControl};
use oxpipe::pipeline::{ErrorKind, Pipeline, Run, RunSettings};
use serde_json::Value;

use super::fake::{Fake, float_tensor, io, open};

const METADATA: &str = "\
pipeline:
  models:
    denoiser: {filename: d.onnx, type: denoiser}
  dataflow:
    - {from: denoiser.logits, to: denoiser.ids}
  strategy:
    kind: iterative
    num_steps: 4
    scheduler_config: {kind: masked_diffusion, mask_token_id: 11}
";

/// The model of masked_diffusion.py, of ids of any integer type.
fn model(dtype: &str) -> Fake {
    let ports = (
        format!("ids:{dtype}[batch,n]"),
        "logits:float32[batch,n,12]".to_owned(),
    );
    Fake::new(io(&[&ports.0], &[&ports.1]), |call| {
        let shape = call.tensor("ids").shape().to_vec();
        let length = usize::try_from(shape[1]).unwrap();
        let logits: Vec<f32> = call.ints("ids").chunks(length).flat_map(logits).collect();
        Ok(vec![("logits", float_tensor(&[shape[0], shape[1], 12], &logits))])
    })
}

fn logits(ids: &[i64]) -> Vec<f32> {
    let total: i64 = ids.iter().zip(1..).map(|(id, place)| place * id).sum();
    let row = |place: usize| {
        let before = ids[(place + ids.len() - 1) % ids.len()];
        (0..12).map(move |token| {
            let value = place as i64 * 7 + token * 13 + total * 5 + token * token * (before + 3);
            (value % 97) as f32 / 8.0
        })
    };
    (0..ids.len()).flat_map(row).collect()
}

fn tensor(dtype: DataType, shape: &[i64], ids: &[i64]) -> ComponentTensor {
    let bytes: Vec<u8> = match dtype {
        DataType::Int32 => ids.iter().flat_map(|&id| (id as i32).to_le_bytes()).collect(),
        _ => ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
    };
    ComponentTensor::from_raw(dtype, shape, &bytes).unwrap()
}

fn current(run: &Run) -> Vec<i64> {
    let view = run.get_tensor("denoiser.ids").unwrap();
    let size = view.dtype().size();
    let one = |bytes: &[u8]| match size {
        4 => i64::from(i32::from_le_bytes(bytes.try_into().unwrap())),
        _ => i64::from_le_bytes(bytes.try_into().unwrap()),
    };
    view.bytes().chunks_exact(size).map(one).collect()
}

fn set(run: &mut Run, ids: &[i64]) {
    let shape = [1, ids.len() as i64];
    run.set_input("denoiser.ids", tensor(DataType::Int64, &shape, ids).view())
        .unwrap();
}

fn start(pipeline: &Pipeline, settings: &RunSettings, ids: &[i64]) -> Run {
    let mut run = Run::new(pipeline, settings).unwrap();
    set(&mut run, ids);
    run
}

fn integers(value: &Value) -> Vec<i64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_i64().unwrap())
        .collect()
}

#[test]
fn tokens_are_those_of_the_published_algorithm() {
    let document: Value = serde_json::from_str(include_str!("masked_diffusion.json")).unwrap();
    for case in document["cases"].as_array().unwrap() {
        let mut config = serde_json::json!({
            "kind": "masked_diffusion",
            "mask_token_id": document["mask"],
            "temperature": case["temperature"],
            "remasking": case["remasking"],
        });
        if !case["block_length"].is_null() {
            config["block_length"] = case["block_length"].clone();
        }
        let yaml = METADATA
            .replace("{kind: masked_diffusion, mask_token_id: 11}", &config.to_string())
            .replace(
                "num_steps: 4",
                &format!(
                    "num_steps: {}\n    guidance_scale: {}",
                    case["steps"], case["guidance_scale"]
                ),
            );
        for (name, dtype) in [("int64", DataType::Int64), ("int32", DataType::Int32)] {
            let pipeline = open(&yaml, vec![("denoiser", model(name))]).unwrap();
            let settings = RunSettings {
                seed: document["seed"].as_u64(),
                ..RunSettings::default()
            };
            let mut run = Run::new(&pipeline, &settings).unwrap();
            let ids = integers(&case["ids"]);
            let input = tensor(dtype, &[1, ids.len() as i64], &ids);
            run.set_input("denoiser.ids", input.view()).unwrap();
            for (step, after) in case["after"].as_array().unwrap().iter().enumerate() {
                let event = run.step(&RunControl::default()).unwrap();
                assert_eq!(event.progress.unwrap().done, step + 1);
                assert_eq!(current(&run), integers(after), "step {step} of {case}");
            }
            assert!(run.finished().is_some());
            // Guidance asks the model twice.
            let passes = if case["guidance_scale"] == 1 { 1 } else { 2 };
            assert_eq!(
                run.stats().component_runs,
                passes * case["steps"].as_u64().unwrap()
            );
        }
    }
}

/// The run's scale wins over the package's, and a pass that fails leaves nothing behind.
#[test]
fn guidance_by_the_run() {
    let yaml = METADATA.replace("num_steps: 4", "num_steps: 4\n    guidance_scale: 3");
    let document: Value = serde_json::from_str(include_str!("masked_diffusion.json")).unwrap();
    let cases = document["cases"].as_array().unwrap();
    let prompt = [3, 1, 4, 11, 11, 11, 11, 11, 11, 11, 11];
    let plain = cases.iter().find(|case| {
        integers(&case["ids"]) == prompt
            && case["steps"] == 4
            && case["temperature"] == 0
            && case["remasking"] == "low_confidence"
            && case["guidance_scale"] == 1
    });
    let expected = integers(plain.unwrap()["after"].as_array().unwrap().last().unwrap());
    let made = |scale: Option<f64>, failing: Option<usize>| {
        let fake = model("int64");
        let watch = fake.watch();
        let pipeline = open(&yaml, vec![("denoiser", fake)]).unwrap();
        assert_eq!(
            pipeline.package().iteration.as_ref().unwrap().guidance_scale,
            Some(3.0)
        );
        let settings = RunSettings {
            guidance_scale: scale,
            ..RunSettings::default()
        };
        let mut run = start(&pipeline, &settings, &prompt);
        watch.with(|watched| {
            watched.fail_at = failing;
            watched.fail_with = Some(ComponentErrorKind::Cancelled);
        });
        while run.finished().is_none() {
            let before = run.get_tensor("denoiser.ids").map(|_| current(&run)).ok();
            if run.step(&RunControl::default()).is_err() {
                assert_eq!(run.get_tensor("denoiser.ids").map(|_| current(&run)).ok(), before);
            }
        }
        current(&run)
    };
    assert_eq!(made(Some(1.0), None), expected);
    let guided = made(None, None);
    assert_ne!(guided, expected);
    for failing in 0..8 {
        assert_eq!(made(None, Some(failing)), guided, "failing at {failing}");
    }
}

/// Choosing among many tokens at many positions takes a while, in which the host may cancel.
#[test]
fn a_step_is_cancelled_while_it_chooses() {
    let fake = model("int64");
    let watch = fake.watch();
    let pipeline = open(METADATA, vec![("denoiser", fake)]).unwrap();
    let prompt = [3, 11, 11, 11];
    let mut run = start(&pipeline, &RunSettings::default(), &prompt);
    let cancel = CancelToken::new();
    let control = RunControl {
        cancel: Some(cancel.clone()),
        ..RunControl::default()
    };
    // After the model has been asked whether to go on.
    watch.with(|watched| watched.on_run = Some(Box::new(move |_| cancel.request())));
    assert_eq!(run.step(&control).unwrap_err().kind(), ErrorKind::Cancelled);
    watch.with(|watched| watched.on_run = None);
    let mut other = start(&pipeline, &RunSettings::default(), &prompt);
    for _ in 0..4 {
        run.step(&RunControl::default()).unwrap();
        other.step(&RunControl::default()).unwrap();
        assert_eq!(current(&run), current(&other));
    }
}

/// Each sequence of a batch on its own; what starts without any input is all masks.
#[test]
fn a_batch_and_a_start_from_masks() {
    let pipeline = open(METADATA, vec![("denoiser", model("int64"))]).unwrap();
    let info = pipeline.package().iteration.clone().unwrap();
    assert_eq!(info.scheduler, Some("masked_diffusion"));
    let control = RunControl::default();
    let prompts = [[3, 11, 11, 11], [11, 11, 5, 11]];
    let mut each = Vec::new();
    for prompt in &prompts {
        let mut run = start(&pipeline, &RunSettings::default(), prompt);
        run.generate(&control, &mut |_, _| std::ops::ControlFlow::Continue(()))
            .unwrap();
        each.extend(current(&run));
    }
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    let both = tensor(DataType::Int64, &[2, 4], prompts.as_flattened());
    run.set_input("denoiser.ids", both.view()).unwrap();
    run.generate(&control, &mut |_, _| std::ops::ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(current(&run), each);
    assert!(!each.contains(&11));

    let of_four = Fake::new(
        io(&["ids:int64[batch,4]"], &["logits:float32[batch,4,12]"]),
        |call| {
            Ok(vec![(
                "logits",
                float_tensor(&[1, 4, 12], &logits(&call.ints("ids"))),
            )])
        },
    );
    let fixed = open(METADATA, vec![("denoiser", of_four)]).unwrap();
    let mut run = Run::new(&fixed, &RunSettings::default()).unwrap();
    run.step(&control).unwrap();
    let mut masks = start(&pipeline, &RunSettings::default(), &[11; 4]);
    masks.step(&control).unwrap();
    assert_eq!(current(&run), current(&masks));
    assert_eq!(current(&run).iter().filter(|&&id| id == 11).count(), 3);
}

#[test]
fn a_step_that_fails_is_taken_again() {
    let fake = model("int64");
    let watch = fake.watch();
    let pipeline = open(METADATA, vec![("denoiser", fake)]).unwrap();
    let control = RunControl::default();
    let ids = [1, 11, 11, 11, 11];
    let mut good = start(&pipeline, &RunSettings::default(), &ids);
    let mut run = start(&pipeline, &RunSettings::default(), &ids);
    for _ in 0..4 {
        good.step(&control).unwrap();
        watch.fail_next(oxpipe::component::ComponentErrorKind::Cancelled);
        run.step(&control).unwrap_err();
        run.step(&control).unwrap();
        assert_eq!(current(&run), current(&good));
    }
    // The loop begins anew with other tokens.
    set(&mut run, &[11, 11, 2]);
    let settings = RunSettings {
        start_step: Some(2),
        ..RunSettings::default()
    };
    let mut later = start(&pipeline, &settings, &[11, 11, 2]);
    run.step(&control).unwrap();
    assert_eq!(current(&run).iter().filter(|&&id| id == 11).count(), 1);
    // Of steps that are left out the others do the work.
    later.step(&control).unwrap();
    later.step(&control).unwrap();
    assert!(later.finished().is_some() && !current(&later).contains(&11));
}

#[test]
fn what_a_masked_diffusion_must_say() {
    let refused = |yaml: &str, fake: Fake, message: &str| {
        let error = open(yaml, vec![("denoiser", fake)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadPackage, "{error}");
        assert!(error.to_string().contains(message), "{message}: {error}");
    };
    let with = |config: &str| METADATA.replace("mask_token_id: 11", config);
    refused(&with("x: 1"), model("int64"), "mask_token_id: is missing");
    for (config, message) in [
        ("mask_token_id: -1", "a token id"),
        (
            "mask_token_id: 12",
            "mask_token_id 12 is outside of the 12 tokens",
        ),
        ("mask_token_id: 11, temperature: -1", "a number from 0 to 1000"),
        ("mask_token_id: 11, block_length: 0", "an integer from 1"),
        (
            "mask_token_id: 11, remasking: high",
            "\"low_confidence\", \"random\"",
        ),
    ] {
        refused(&with(config), model("int64"), message);
    }
    let flat = Fake::ports(&["ids:int64[1,n]"], &["logits:float32[1,n]"]);
    refused(METADATA, flat, "float32, float16 or bfloat16, one dim more");
    let floats = Fake::ports(&["ids:float32[1,n]"], &["logits:float32[1,n]"]);
    refused(METADATA, floats, "to tokens of it, int32 or int64");
    // More blocks than steps is seen when there are masks.
    let yaml = with("mask_token_id: 11, block_length: 2");
    let pipeline = open(&yaml, vec![("denoiser", model("int64"))]).unwrap();
    let mut run = start(&pipeline, &RunSettings::default(), &[11; 9]);
    let error = run.step(&RunControl::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error.to_string().contains("4 steps are fewer than the 5 blocks"),
        "{error}"
    );
    set(&mut run, &[11; 8]);
    run.step(&RunControl::default()).unwrap();
}
