//! Loops with a scheduler and with guidance: what is drawn, what runs twice, and what is refused.
//! That schedulers compute the right thing is in schedulers.rs.

use std::sync::Arc;

use oxpipe::component::{ComponentErrorKind, ComponentTensor, DataType, RunControl};
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineError, Run, RunSettings};
use oxpipe::runtime::LogLevel;

use super::fake::{Fake, Watch, float_tensor, floats, io, metadata, open, runtime};

const GUIDED: &str = "\
pipeline:
  models:
    denoiser: {filename: d.onnx}
  dataflow:
    - {from: denoiser.y, to: denoiser.x}
  strategy:
    kind: iterative
    denoiser: denoiser
    num_steps: 2
    guidance_scale: 3
    cfg_conditioning_input: cond
";

/// y = x + sum of cond + 10 * extra, seen = what it was conditioned on.
fn conditioned() -> Fake {
    let inputs = ["x:float32[1]", "cond:float32[n]", "extra:float32[1]"];
    Fake::new(io(&inputs, &["y:float32[1]", "seen:float32[1]"]), |call| {
        let cond: f32 = call.floats("cond").iter().sum();
        let y = call.floats("x")[0] + cond + 10.0 * call.floats("extra")[0];
        Ok(vec![
            ("y", float_tensor(&[1], &[y])),
            ("seen", float_tensor(&[1], &[cond])),
        ])
    })
}

fn guided(yaml: &str) -> (Pipeline, Watch) {
    let fake = conditioned();
    let watch = fake.watch();
    (open(yaml, vec![("denoiser", fake)]).unwrap(), watch)
}

fn start(pipeline: &Pipeline, settings: &RunSettings) -> Run {
    let mut run = Run::new(pipeline, settings).unwrap();
    set(&mut run, "denoiser.x", &[1.0]);
    set(&mut run, "denoiser.cond", &[2.0, 3.0]);
    set(&mut run, "denoiser.extra", &[0.0]);
    run
}

fn set(run: &mut Run, address: &str, values: &[f32]) {
    run.set_input(address, float_tensor(&[values.len() as i64], values).view())
        .unwrap();
}

fn get(run: &Run, address: &str) -> Vec<f32> {
    floats(run.get_tensor(address).unwrap())
}

fn step(run: &mut Run) -> f32 {
    run.step(&RunControl::default()).unwrap();
    get(run, "denoiser.x")[0]
}

#[test]
fn guidance_goes_past_the_condition() {
    let (pipeline, watch) = guided(GUIDED);
    let iteration = pipeline.package().iteration.clone().unwrap();
    assert_eq!((iteration.guidance_scale, iteration.scheduler), (Some(3.0), None));
    let mut run = start(&pipeline, &RunSettings::default());
    // x + 0 + 3 * 5, twice.
    assert_eq!(step(&mut run), 16.0);
    assert_eq!((watch.runs(), run.stats().component_runs), (2, 2));
    assert_eq!(get(&run, "denoiser.y"), [16.0]);
    assert_eq!(
        get(&run, "denoiser.seen"),
        [5.0],
        "other outputs are those with the condition"
    );
    assert_eq!(step(&mut run), 31.0);
    assert!(run.finished().is_some());

    // Another condition to move away from, and an input that differs between the two passes.
    set(&mut run, "denoiser.cond.uncond", &[1.0]);
    assert_eq!(get(&run, "denoiser.cond.uncond"), [1.0]);
    // x + 1 + 3 * (5 - 1)
    assert_eq!(step(&mut run), 14.0);
    set(&mut run, "denoiser.extra.uncond", &[1.0]);
    // x + 11 + 3 * (5 - 11)
    assert_eq!(step(&mut run), -6.0);
    run.clear_input("denoiser.extra.uncond").unwrap();
    run.clear_input("denoiser.cond.uncond").unwrap();
    assert_eq!(step(&mut run), 16.0);
    let error = run.get_tensor("denoiser.cond.uncond").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    let wide = float_tensor(&[1, 1], &[0.0]);
    let error = run.set_input("denoiser.cond.uncond", wide.view()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadTensor);
    for none in ["denoiser.x.uncond", "denoiser.nope.uncond"] {
        let error = run
            .set_input(none, float_tensor(&[1], &[0.0]).view())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownPort);
    }
}

#[test]
fn guidance_by_the_run() {
    let (pipeline, watch) = guided(GUIDED);
    let scaled = |scale: f64| RunSettings {
        guidance_scale: Some(scale),
        ..RunSettings::default()
    };
    let first = |pipeline: &Pipeline, scale: f64| step(&mut start(pipeline, &scaled(scale)));
    assert_eq!(first(&pipeline, 0.5), 3.5);
    assert_eq!(first(&pipeline, 0.0), 1.0);
    assert_eq!(watch.runs(), 4);
    // None: one pass.
    assert_eq!(first(&pipeline, 1.0), 6.0);
    assert_eq!(watch.runs(), 5);
    // The package may leave it to the run.
    let (open_to_it, _) = guided(&GUIDED.replace("    guidance_scale: 3\n", ""));
    assert_eq!(step(&mut start(&open_to_it, &RunSettings::default())), 6.0);
    assert_eq!(first(&open_to_it, 2.0), 11.0);
    let refused =
        |pipeline: &Pipeline, scale: f64| Run::new(pipeline, &scaled(scale)).unwrap_err().to_string();
    for scale in [-0.1, 1000.1, f64::NAN, f64::INFINITY] {
        assert!(refused(&pipeline, scale).contains("give a number from 0 to 1000"));
    }
    let (without, _) =
        guided(&GUIDED.replace("    guidance_scale: 3\n    cfg_conditioning_input: cond\n", ""));
    assert!(refused(&without, 2.0).contains("names no cfg_conditioning_input"));
    let seed = RunSettings {
        seed: Some(1),
        ..RunSettings::default()
    };
    let error = Run::new(&pipeline, &seed).unwrap_err();
    assert!(
        error.to_string().contains("seed: the package has no scheduler"),
        "{error}"
    );
    let (language_model, _) = super::fake::language_model("");
    let steps = RunSettings {
        num_steps: Some(1),
        ..RunSettings::default()
    };
    assert!(
        Run::new(&language_model, &steps)
            .unwrap_err()
            .to_string()
            .contains("num_steps: for packages")
    );
}

#[test]
fn a_pass_that_fails_leaves_nothing_half_done() {
    let (pipeline, watch) = guided(GUIDED);
    let control = RunControl::default();
    for failing in 0..4 {
        let mut run = start(&pipeline, &RunSettings::default());
        let first = watch.runs();
        watch.with(|watched| {
            watched.fail_at = Some(first + failing);
            watched.fail_with = Some(ComponentErrorKind::Cancelled);
        });
        for expected in [16.0, 31.0] {
            let before = (get(&run, "denoiser.x"), run.get_tensor("denoiser.seen").is_ok());
            if run.step(&control).is_err() {
                assert_eq!(
                    (get(&run, "denoiser.x"), run.get_tensor("denoiser.seen").is_ok()),
                    before
                );
                run.step(&control).unwrap();
            }
            assert_eq!(get(&run, "denoiser.x"), [expected], "failing in pass {failing}");
        }
        assert_eq!(watch.runs() - first, 4 + 1 + failing % 2);
    }
}

/// With a panic in the second pass, the next step still begins with the condition.
#[test]
fn a_pass_that_panics_can_be_rolled_back() {
    let (pipeline, watch) = guided(GUIDED);
    let control = RunControl::default();
    let mut run = start(&pipeline, &RunSettings::default());
    watch.with(|watched| watched.fail_at = Some(watched.runs + 1));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step(&control))).unwrap_err();
    run.roll_back();
    assert_eq!(step(&mut run), 16.0);
    assert_eq!(get(&run, "denoiser.seen"), [5.0]);
}

const SCHEDULED: &str = "\
pipeline:
  models:
    denoiser: {filename: d.onnx, type: denoiser}
  dataflow:
    - {from: denoiser.p, to: denoiser.x}
    - {from: denoiser.q, to: denoiser.y}
  strategy:
    kind: iterative
    num_steps: 4
    timestep_input: t
    scheduler_config:
      kind: dpmpp_2m
      beta_schedule: scaled_linear
";

const INPUTS: [&str; 3] = ["x:float32[batch,3]", "y:float32[5]", "t:int64[1]"];
const OUTPUTS: [&str; 2] = ["p:float32[batch,3]", "q:float32[5]"];

/// Puts out what it read, times its timestep over 1000.
fn damped() -> Fake {
    Fake::new(io(&INPUTS, &OUTPUTS), |call| {
        let factor = call.ints("t")[0] as f32 / 1000.0;
        let make = |name| {
            let values: Vec<f32> = call.floats(name).iter().map(|value| value * factor).collect();
            float_tensor(call.tensor(name).shape(), &values)
        };
        Ok(vec![("p", make("x")), ("q", make("y"))])
    })
}

fn all_steps(run: &mut Run) -> Vec<f32> {
    let control = RunControl::default();
    while run.finished().is_none() {
        run.step(&control).unwrap();
    }
    run.latents().flat_map(floats).collect()
}

fn seeded(seed: u64) -> RunSettings {
    RunSettings {
        seed: Some(seed),
        ..RunSettings::default()
    }
}

#[test]
fn noise_comes_of_the_seed_alone() {
    let pipeline = open(SCHEDULED, vec![("denoiser", damped())]).unwrap();
    let run = |settings: &RunSettings| all_steps(&mut Run::new(&pipeline, settings).unwrap());
    let default = run(&RunSettings::default());
    assert_eq!(default.len(), 3 + 5, "a batch that is left open is 1");
    assert_eq!(run(&seeded(0)), default);
    assert_ne!(run(&seeded(1)), default);
    assert_ne!(run(&seeded(1 << 32)), default);
    assert_ne!(default[..3], default[3..6], "each state has noise of its own");
    // What the host sets is taken as it is.
    let mut half = Run::new(&pipeline, &seeded(0)).unwrap();
    half.set_input("denoiser.x", float_tensor(&[2, 3], &[0.0; 6]).view())
        .unwrap();
    let found = all_steps(&mut half);
    assert_eq!(found[..6], [0.0; 6]);
    assert_eq!(found[6..], default[3..]);
    // With an ancestral scheduler every step draws more.
    let ancestral = SCHEDULED
        .replace("dpmpp_2m", "euler_ancestral")
        .replace("num_steps: 4", "num_steps: 2");
    let floats_only = ["x:float32[batch,3]", "y:float32[5]", "t:float32[1]"];
    let silent = Fake::new(io(&floats_only, &OUTPUTS), |call| {
        let zeros = |name| {
            let tensor = call.tensor(name);
            float_tensor(tensor.shape(), &vec![0.0; tensor.bytes().len() / 4])
        };
        Ok(vec![("p", zeros("x")), ("q", zeros("y"))])
    });
    let pipeline = open(&ancestral, vec![("denoiser", silent)]).unwrap();
    let still = |seed: u64| {
        let mut run = Run::new(&pipeline, &seeded(seed)).unwrap();
        run.set_input("denoiser.x", float_tensor(&[1, 3], &[0.0; 3]).view())
            .unwrap();
        run.step(&RunControl::default()).unwrap();
        get(&run, "denoiser.x")
    };
    assert!(still(5).iter().all(|value| *value != 0.0));
    assert_eq!(still(5), still(5));
    assert_ne!(still(5), still(6));
}

/// A multistep scheduler's memory of the step before is part of what a failed step gives back.
#[test]
fn a_step_that_fails_is_as_if_it_had_not_been() {
    let fake = damped();
    let watch = fake.watch();
    let pipeline = open(SCHEDULED, vec![("denoiser", fake)]).unwrap();
    let control = RunControl::default();
    let expected = all_steps(&mut Run::new(&pipeline, &seeded(3)).unwrap());
    let mut run = Run::new(&pipeline, &seeded(3)).unwrap();
    while run.finished().is_none() {
        watch.fail_next(ComponentErrorKind::Cancelled);
        let before: Vec<f32> = run.latents().flat_map(floats).collect();
        run.step(&control).unwrap_err();
        assert_eq!(run.latents().flat_map(floats).collect::<Vec<_>>(), before);
        run.step(&control).unwrap();
    }
    assert_eq!(run.latents().flat_map(floats).collect::<Vec<_>>(), expected);
    // Begun anew, it does not look back at the loop before.
    run.set_input("denoiser.y", float_tensor(&[5], &[0.5; 5]).view())
        .unwrap();
    run.clear_input("denoiser.y").unwrap();
    assert_eq!(all_steps(&mut run), expected);
}

#[test]
fn what_a_loop_cannot_start_from() {
    let control = RunControl::default();
    let missing = |pipeline: &Pipeline, settings: &RunSettings| {
        let error = Run::new(pipeline, settings).unwrap().step(&control).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingInput);
        assert_eq!(error.port(), Some("x"));
    };
    // Noise of a size that nobody says.
    let inputs = ["x:float32[1,width]", "y:float32[5]", "t:int64[1]"];
    let open_width = Fake::ports(&inputs, &["p:float32[1,width]", "q:float32[5]"]);
    missing(
        &open(SCHEDULED, vec![("denoiser", open_width)]).unwrap(),
        &RunSettings::default(),
    );
    // What the steps before would have made of noise.
    let pipeline = open(SCHEDULED, vec![("denoiser", damped())]).unwrap();
    let later = RunSettings {
        start_step: Some(1),
        ..RunSettings::default()
    };
    missing(&pipeline, &later);
    // More steps than training had.
    for num_steps in [1000, 5000] {
        let many = RunSettings {
            num_steps: Some(num_steps),
            ..RunSettings::default()
        };
        let error = Run::new(&pipeline, &many).unwrap_err().to_string();
        assert!(
            error.contains("num_steps: dpmpp_2m takes from 1 to 999 steps"),
            "{error}"
        );
    }
    // An output of another size than its state.
    let inputs = ["x:float32[1,3]", "y:float32[n]", "t:int64[1]"];
    let grows = Fake::new(io(&inputs, &["p:float32[1,3]", "q:float32[m]"]), |_| {
        Ok(vec![
            ("p", float_tensor(&[1, 3], &[0.0; 3])),
            ("q", float_tensor(&[2], &[0.0; 2])),
        ])
    });
    let pipeline = open(SCHEDULED, vec![("denoiser", grows)]).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.set_input("denoiser.y", float_tensor(&[3], &[0.0; 3]).view())
        .unwrap();
    let error = run.step(&control).unwrap_err();
    assert_eq!((error.kind(), error.port()), (ErrorKind::RunFailed, Some("q")));
    assert!(
        error.to_string().contains("has shape [2], expected [3]"),
        "{error}"
    );
}

/// States of 16 bits are rounded once in a step.
#[test]
fn states_of_another_float_type() {
    let yaml = "
pipeline:
  models:
    denoiser: {filename: d.onnx}
  dataflow:
    - {from: denoiser.m, to: denoiser.x}
  strategy:
    kind: iterative
    denoiser: denoiser
    num_steps: 1
    scheduler_config: {kind: flow_matching}
";
    let inputs = ["x:float16[2]"];
    let fake = Fake::new(io(&inputs, &["m:float32[2]"]), |_| {
        Ok(vec![("m", float_tensor(&[2], &[0.5, -2.0]))])
    });
    let pipeline = open(yaml, vec![("denoiser", fake)]).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    // 1 and 2; one step goes from a level of 1 to 0: x - m.
    let x = ComponentTensor::from_raw(DataType::Float16, &[2], &[0x00, 0x3c, 0x00, 0x40]).unwrap();
    run.set_input("denoiser.x", x.view()).unwrap();
    run.step(&RunControl::default()).unwrap();
    let found = run.get_tensor("denoiser.x").unwrap();
    assert_eq!(
        (found.dtype(), found.bytes()),
        (DataType::Float16, &[0x00, 0x38, 0x00, 0x44][..])
    );
}

#[test]
fn fractions_that_an_integer_input_loses_are_a_warning() {
    let warnings = |yaml: &str| {
        let (runtime, log) = runtime();
        let sessions = vec![("denoiser".to_owned(), Box::new(damped()) as _)];
        Pipeline::with_sessions(&runtime, &metadata(yaml), sessions).unwrap();
        let lines = Arc::clone(&log);
        let lines = lines.lock().unwrap();
        let warnings = lines.iter().filter(|(level, _)| *level == LogLevel::Warning);
        warnings.map(|(_, line)| line.clone()).collect::<Vec<_>>()
    };
    assert!(warnings(SCHEDULED).is_empty());
    let found = warnings(
        &SCHEDULED
            .replace("dpmpp_2m", "euler")
            .replace("num_steps: 4", "num_steps: 8"),
    );
    assert_eq!(found.len(), 1);
    assert!(
        found[0].contains("pipeline.strategy.scheduler_config: timesteps such as"),
        "{}",
        found[0]
    );
    let flow = SCHEDULED
        .replace("dpmpp_2m", "flow_matching")
        .replace("num_steps: 4", "num_steps: 1");
    let found = warnings(&flow);
    assert!(
        found[0].contains("beta_schedule: not used, because a flow has no betas"),
        "{}",
        found[0]
    );
}

#[track_caller]
fn refused_as(yaml: &str, fake: Fake, line: u64, key: &str, message: &str) -> PipelineError {
    let error = open(yaml, vec![("denoiser", fake)]).unwrap_err();
    let PipelineError::Package(package) = &error else {
        panic!("another kind of error: {error}");
    };
    let location = package.location();
    assert_eq!(
        (location.line, location.key.as_str()),
        (Some(line), key),
        "{error}"
    );
    assert!(package.kind().to_string().contains(message), "{error}");
    error
}

/// Numbers that are right one by one and leave nothing to compute with together.
#[test]
fn schedules_that_are_not_finite() {
    let config = "beta_start: 0.9\n      beta_end: 0.9999\n      num_train_timesteps: 1000";
    let mut refused = 0;
    for kind in ["ddpm", "ddim", "euler", "euler_ancestral", "dpmpp_2m"] {
        for prediction in ["epsilon", "v_prediction", "sample"] {
            let yaml = SCHEDULED.replace("dpmpp_2m", kind);
            let more = format!("{config}\n      prediction_type: {prediction}");
            let yaml = yaml.replace("beta_schedule: scaled_linear", &more);
            match open(&yaml, vec![("denoiser", damped())]) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::BadPackage, "{error}");
                    assert!(error.to_string().contains("not finite"), "{error}");
                    refused += 1;
                }
                // What can be computed is.
                Ok(pipeline) => {
                    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
                    let x = float_tensor(&[1, 3], &[0.5; 3]);
                    run.set_input("denoiser.x", x.view()).unwrap();
                    let made = all_steps(&mut run);
                    assert!(
                        made.iter().all(|value| value.is_finite()),
                        "{kind} {prediction}: {made:?}"
                    );
                }
            }
        }
    }
    assert!(refused >= 5, "{refused}");
}

#[test]
fn schedulers_that_are_malformed() {
    let section = "pipeline.strategy.scheduler_config";
    let refused = |kind: &str, more: &str, key: &str, message: &str| {
        let yaml = SCHEDULED.replace("dpmpp_2m", kind);
        let yaml = yaml.replace("beta_schedule: scaled_linear", more);
        let line = if key == "kind" { 12 } else { 13 };
        refused_as(&yaml, damped(), line, &format!("{section}.{key}"), message)
    };
    refused("heun", "x: 1", "kind", "\"ddpm\", \"ddim\", \"euler\"");
    refused(
        "ddim",
        "num_train_timesteps: 1",
        "num_train_timesteps",
        "an integer from 2 to 100000",
    );
    refused(
        "ddim",
        "num_train_timesteps: 1e3",
        "num_train_timesteps",
        "an integer from 2 to 100000",
    );
    refused("ddim", "beta_start: 0", "beta_start", "above 0 and below 1");
    refused("ddim", "beta_end: 1", "beta_end", "above 0 and below 1");
    refused("ddim", "beta_end: small", "beta_end", "the text \"small\"");
    refused(
        "ddim",
        "beta_schedule: cosine",
        "beta_schedule",
        "\"linear\", \"scaled_linear\"",
    );
    refused(
        "ddim",
        "prediction_type: x",
        "prediction_type",
        "\"epsilon\", \"v_prediction\", \"sample\", \"flow\"",
    );
    refused(
        "ddim",
        "prediction_type: flow",
        "prediction_type",
        "flow is for flow_matching and dpmpp_2m",
    );
    refused(
        "flow_matching",
        "prediction_type: sample",
        "prediction_type",
        "takes the prediction_type flow alone",
    );
    refused("ddim", "shift: 3", "shift", "of prediction_type flow are shifted");
    refused("flow_matching", "shift: 0", "shift", "above 0");
    refused(
        "ddim",
        "use_karras_sigmas: true",
        "use_karras_sigmas",
        "ddim has timesteps of its own spacing",
    );
    refused(
        "ddpm",
        "use_exponential_sigmas: true",
        "use_exponential_sigmas",
        "leave it out",
    );
    refused(
        "euler",
        "use_karras_sigmas: 1",
        "use_karras_sigmas",
        "expected true or false",
    );
    let yaml = SCHEDULED.replace(
        "beta_schedule: scaled_linear",
        "use_karras_sigmas: true\n      use_exponential_sigmas: true",
    );
    refused_as(
        &yaml,
        damped(),
        14,
        &format!("{section}.use_exponential_sigmas"),
        "set one of the two",
    );
    let yaml = SCHEDULED.replace(
        "beta_schedule: scaled_linear",
        "prediction_type: flow\n      use_karras_sigmas: true",
    );
    refused_as(
        &yaml,
        damped(),
        14,
        &format!("{section}.use_karras_sigmas"),
        "dpmpp_2m of prediction_type flow",
    );
    let yaml = SCHEDULED.replace("      kind: dpmpp_2m\n", "");
    refused_as(
        &yaml,
        damped(),
        12,
        &format!("{section}.kind"),
        "is missing; the algorithm",
    );

    // Steps and timesteps that no schedule has.
    let yaml = SCHEDULED.replace("beta_schedule: scaled_linear", "num_train_timesteps: 4");
    refused_as(
        &yaml,
        damped(),
        12,
        section,
        "dpmpp_2m takes from 1 to 3 steps with 4 num_train_timesteps, not 4",
    );
    let listed = |kind: &str, timesteps: &str| {
        let steps = format!("num_steps: 4\n    timesteps: [{timesteps}]");
        SCHEDULED
            .replace("dpmpp_2m", kind)
            .replace("num_steps: 4", &steps)
    };
    let at = "pipeline.strategy.timesteps";
    refused_as(
        &listed("ddim", "1000, 3, 2, 1"),
        damped(),
        10,
        at,
        "ddim takes timesteps from 0 to 999",
    );
    refused_as(
        &listed("ddim", "900, 300, 300, 1"),
        damped(),
        10,
        at,
        "timestep 300 does not fall below 300",
    );
    let inputs = [INPUTS[0], INPUTS[1], "t:float32[1]"];
    refused_as(
        &listed("ddim", "900, 300.5, 2, 1"),
        Fake::ports(&inputs, &OUTPUTS),
        10,
        at,
        "300.5 is no integer",
    );
    assert!(
        open(
            &listed("euler", "900, 300.5, 2, 1"),
            vec![("denoiser", Fake::ports(&inputs, &OUTPUTS))]
        )
        .is_ok()
    );
    // Only floats are scheduled.
    let ports = (
        ["x:float32[1,3]", "y:int64[5]", "t:int64[1]"],
        ["p:float32[1,3]", "q:int64[5]"],
    );
    let edge = "pipeline.dataflow[1].to";
    refused_as(
        SCHEDULED,
        Fake::ports(&ports.0, &ports.1),
        6,
        edge,
        "for the scheduler dpmpp_2m",
    );
}

#[test]
fn guidance_that_is_malformed() {
    let key = |name: &str| format!("pipeline.strategy.{name}");
    let refused = |from: &str, to: &str, line: u64, name: &str, message: &str| {
        assert!(GUIDED.contains(from));
        refused_as(
            &GUIDED.replace(from, to),
            conditioned(),
            line,
            &key(name),
            message,
        );
    };
    refused(
        "scale: 3",
        "scale: -1",
        10,
        "guidance_scale",
        "a number from 0 to 1000",
    );
    refused(
        "scale: 3",
        "scale: 1001",
        10,
        "guidance_scale",
        "a number from 0 to 1000",
    );
    refused("scale: 3", "scale: x", 10, "guidance_scale", "the text \"x\"");
    refused(
        "    cfg_conditioning_input: cond\n",
        "",
        10,
        "guidance_scale",
        "names no cfg_conditioning_input",
    );
    refused(
        "_input: cond",
        "_input: nope",
        11,
        "cfg_conditioning_input",
        "has no input \"nope\"",
    );
    refused(
        "_input: cond",
        "_input: x",
        11,
        "cfg_conditioning_input",
        "the loop itself feeds \"x\"",
    );
    let inputs = ["x:float32[1]", "cond:int64[n]", "extra:float32[1]"];
    let of_ids = Fake::ports(&inputs, &["y:float32[1]", "seen:float32[1]"]);
    refused_as(
        GUIDED,
        of_ids,
        11,
        &key("cfg_conditioning_input"),
        "of which guidance makes zeros",
    );
}

/// A model that knows the noise takes any clean sample back to itself, from whatever step on, if
/// the noise that it starts with is what the steps before would have left.
#[test]
fn a_clean_sample_gets_the_noise_of_the_step_that_it_starts_at() {
    const CLEAN: [f32; 4] = [0.5, -1.0, 2.0, 0.0];
    let yaml = |kind: &str| {
        format!(
            "pipeline:\n  models:\n    denoiser: {{filename: d.onnx}}\n  dataflow:\n    - {{from: denoiser.y, to: \
             denoiser.x}}\n  strategy: {{kind: iterative, num_steps: 8, scheduler_config: {{kind: {kind}}}}}\n"
        )
    };
    let noise = Arc::new(std::sync::Mutex::new(Vec::<f32>::new()));
    let model = |flow: bool| {
        let noise = noise.clone();
        Fake::new(io(&["x:float32[4]"], &["y:float32[4]"]), move |call| {
            let mut noise = noise.lock().unwrap();
            if noise.is_empty() {
                // The first sample of ddim is the noise itself.
                *noise = call.floats("x");
            }
            let of_flow = noise.iter().zip(CLEAN).map(|(noise, clean)| noise - clean);
            let made: Vec<f32> = if flow { of_flow.collect() } else { noise.clone() };
            Ok(vec![("y", float_tensor(&[4], &made))])
        })
    };
    let seeded = RunSettings {
        seed: Some(9),
        ..RunSettings::default()
    };
    let pipeline = open(&yaml("ddim"), vec![("denoiser", model(false))]).unwrap();
    Run::new(&pipeline, &seeded)
        .unwrap()
        .step(&RunControl::default())
        .unwrap();
    for kind in ["ddim", "euler", "dpmpp_2m", "flow_matching"] {
        let pipeline = open(&yaml(kind), vec![("denoiser", model(kind == "flow_matching"))]).unwrap();
        for start_step in [0, 3, 7] {
            let settings = RunSettings {
                start_step: Some(start_step),
                add_noise: true,
                ..seeded.clone()
            };
            let mut run = Run::new(&pipeline, &settings).unwrap();
            set(&mut run, "denoiser.x", &CLEAN);
            run.generate(&RunControl::default(), &mut |_, _| {
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
            for (found, expected) in get(&run, "denoiser.x").iter().zip(CLEAN) {
                assert!(
                    (found - expected).abs() < 2e-5,
                    "{kind} from {start_step}: {found} {expected}"
                );
            }
        }
    }
    let (unscheduled, _) = guided(GUIDED);
    let settings = RunSettings {
        add_noise: true,
        ..RunSettings::default()
    };
    let error = Run::new(&unscheduled, &settings).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("add_noise: the package has no scheduler"),
        "{error}"
    );
}
