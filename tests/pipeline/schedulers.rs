//! Schedulers against diffusers: the same model outputs and the same noise give the same
//! samples. schedulers.py made the values, and says of what.

use std::sync::{Arc, Mutex};

use oxpipe::component::RunControl;
use oxpipe::pipeline::{Run, RunSettings};
use serde_json::Value;

use super::fake::{Fake, float_tensor, floats, io, open};

fn document() -> Value {
    serde_json::from_str(include_str!("schedulers.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f32> {
    let list = value.as_array().unwrap();
    list.iter()
        .map(|number| number.as_f64().unwrap() as f32)
        .collect()
}

/// What the model was given in each step: x and the timestep.
type Calls = Arc<Mutex<Vec<(Vec<f32>, f32)>>>;

/// A model that has its outputs written down.
fn model(outputs: Vec<Vec<f32>>, start: usize) -> (Fake, Calls) {
    let calls = Calls::default();
    let seen = calls.clone();
    let fake = Fake::new(
        io(&["x:float32[4]", "t:float32[]"], &["m:float32[4]"]),
        move |call| {
            let mut seen = seen.lock().unwrap();
            let output = &outputs[start + seen.len()];
            seen.push((call.floats("x"), call.floats("t")[0]));
            Ok(vec![("m", float_tensor(&[4], output))])
        },
    );
    (fake, calls)
}

fn metadata(case: &Value) -> String {
    let mut config = serde_json::Map::new();
    for key in [
        "kind",
        "prediction_type",
        "beta_schedule",
        "shift",
        "use_karras_sigmas",
        "use_exponential_sigmas",
    ] {
        if let Some(value) = case.get(key) {
            config.insert(key.to_owned(), value.clone());
        }
    }
    // Betas are not of flow.
    if case["prediction_type"] == "flow" {
        config.remove("beta_schedule");
    }
    let mut strategy = serde_json::json!({
        "kind": "iterative", "denoiser": "denoiser", "num_steps": 20, "timestep_input": "t",
        "scheduler_config": config,
    });
    if case.get("shift").is_none() && case.get("start_step").is_none() && case["timesteps"][0] == 990.0 {
        strategy["timesteps"] = case["timesteps"].clone();
    }
    if let Some(start) = case.get("start_step") {
        strategy["start_step"] = start.clone();
    }
    let package = serde_json::json!({ "pipeline": {
        "models": { "denoiser": { "filename": "d.onnx" } },
        "dataflow": [{ "from": "denoiser.m", "to": "denoiser.x" }],
        "strategy": strategy,
    }});
    // JSON is YAML.
    package.to_string()
}

#[track_caller]
fn close(found: &[f32], expected: &[f32], of: &str) {
    assert_eq!(found.len(), expected.len(), "{of}");
    for (found, expected) in found.iter().zip(expected) {
        let limit = 1e-5 * expected.abs().max(1.0);
        assert!(
            (found - expected).abs() <= limit,
            "{of}: {found}, expected {expected}"
        );
    }
}

#[test]
fn samples_are_those_of_diffusers() {
    let document = document();
    let outputs: Vec<Vec<f32>> = document["outputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(numbers)
        .collect();
    let shown: Vec<usize> = numbers(&document["shown"])
        .iter()
        .map(|step| *step as usize)
        .collect();
    let cases = document["cases"].as_array().unwrap();
    // The noise that loops start from, as the first sample of a scheduler that does not scale it.
    let seed = numbers(&cases[0]["inputs"][0]);
    let control = RunControl::default();
    let settings = RunSettings {
        seed: document["seed"].as_u64(),
        ..RunSettings::default()
    };
    for case in cases {
        let start = case
            .get("start_step")
            .map_or(0, |start| start.as_u64().unwrap() as usize);
        let (fake, calls) = model(outputs.clone(), start);
        let pipeline = open(&metadata(case), vec![("denoiser", fake)]).unwrap();
        let mut run = Run::new(&pipeline, &settings).unwrap();
        if start > 0 {
            let scale = case["initial_scale"].as_f64().unwrap() as f32;
            let first: Vec<f32> = seed.iter().map(|value| value * scale).collect();
            run.set_input("denoiser.x", float_tensor(&[4], &first).view())
                .unwrap();
        }
        let mut compared = 0;
        let mut expected = case["inputs"]
            .as_array()
            .unwrap()
            .iter()
            .zip(case["samples"].as_array().unwrap());
        for step in start + 1..=20 {
            run.step(&control).unwrap();
            if !shown.contains(&step) {
                continue;
            }
            let of = format!("{} in step {step}", metadata(case));
            let (input, sample) = expected.next().unwrap();
            close(&calls.lock().unwrap().last().unwrap().0, &numbers(input), &of);
            close(
                &floats(run.get_tensor("denoiser.x").unwrap()),
                &numbers(sample),
                &of,
            );
            compared += 1;
        }
        assert!(compared >= 3 && expected.next().is_none() && run.finished().is_some());
        let timesteps: Vec<f32> = calls
            .lock()
            .unwrap()
            .iter()
            .map(|(_, timestep)| *timestep)
            .collect();
        close(&timesteps, &numbers(&case["timesteps"])[start..], &metadata(case));
    }
}
