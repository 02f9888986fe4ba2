//! Loops of a denoiser: what goes from step to step, what runs around them, and what a step
//! that fails leaves behind.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use oxpipe::component::{CancelToken, ComponentErrorKind, ComponentTensor, DataType, RunControl, TensorView};
use oxpipe::generation::FinishReason;
use oxpipe::pipeline::{ErrorKind, Phase, Pipeline, PipelineError, Progress, Run, RunSettings};

use super::fake::{Fake, Watch, continuation, decoder, decoder_body, float_tensor, floats, io, open};

const GOOD: &str = "\
pipeline:
  models:
    encoder: {filename: e.onnx}
    denoiser: {filename: d.onnx, type: denoiser}
    preview: {filename: p.onnx}
    vae: {filename: v.onnx, type: vae}
  dataflow:
    - {from: encoder.hidden, to: denoiser.cond}
    - {from: denoiser.b_next, to: denoiser.b}
    - {from: denoiser.a_next, to: denoiser.a}
    - {from: denoiser.a_next, to: preview.latent}
    - {from: denoiser.a, to: vae.latent}
  strategy:
    kind: iterative
    denoiser: denoiser
    num_steps: 4
    timestep_input: t
    timesteps: [9, 7, 4, 2]
  phases:
    preview: {run_on: every_step}
";

const TIMESTEPS: [f32; 4] = [9.0, 7.0, 4.0, 2.0];

const DENOISER_INPUTS: [&str; 4] = [
    "a:float32[batch,2]",
    "b:int64[]",
    "cond:float32[1,n]",
    "t:int64[batch]",
];
const DENOISER_OUTPUTS: [&str; 2] = ["a_next:float32[batch,2]", "b_next:int64[]"];

/// Adds the timestep and what it is conditioned on to a, and counts in b.
fn denoiser() -> Fake {
    Fake::new(io(&DENOISER_INPUTS, &DENOISER_OUTPUTS), |call| {
        let a = call.tensor("a");
        assert_eq!(call.tensor("t").shape(), [a.shape()[0]]);
        let more = call.ints("t")[0] as f32 + call.floats("cond").iter().sum::<f32>();
        let next: Vec<f32> = call.floats("a").iter().map(|value| value + more).collect();
        Ok(vec![
            ("a_next", float_tensor(a.shape(), &next)),
            ("b_next", int(call.ints("b")[0] + 1)),
        ])
    })
}

fn int(value: i64) -> ComponentTensor {
    ComponentTensor::from_raw(DataType::Int64, &[], &value.to_le_bytes()).unwrap()
}

/// What only a later component reads may change when all steps are taken: it runs again, and the
/// loop does not.
#[test]
fn an_input_beside_the_loop_takes_no_step() {
    let vae = || {
        Fake::new(
            io(
                &["latent:float32[m,n]", "factor:float32[]"],
                &["image:float32[m,n]"],
            ),
            |call| {
                let factor = call.floats("factor")[0];
                let values: Vec<f32> = call.floats("latent").iter().map(|value| factor * value).collect();
                Ok(vec![(
                    "image",
                    float_tensor(call.tensor("latent").shape(), &values),
                )])
            },
        )
    };
    let sessions = vec![
        ("encoder", times(2.0, "x", "hidden")),
        ("denoiser", denoiser()),
        ("preview", times(-1.0, "latent", "image")),
        ("vae", vae()),
    ];
    let runs = sessions[1].1.watch();
    let pipeline = open(GOOD, sessions).unwrap();
    let control = RunControl::default();
    let mut run = start(&pipeline, &RunSettings::default());
    let set = |run: &mut Run, factor: f32| {
        run.set_input("vae.factor", float_tensor(&[], &[factor]).view())
            .unwrap();
    };
    set(&mut run, 1.0);
    run.generate(&control, &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    run.finish(&control).unwrap();
    assert_eq!(runs.runs(), 4);
    set(&mut run, 3.0);
    let event = run.step(&control).unwrap();
    assert_eq!(event.progress, Some(Progress { done: 4, count: 4 }));
    assert_eq!(event.finish, Some(FinishReason::Completed));
    assert_eq!((runs.runs(), latent(&run)), (4, after(&TIMESTEPS)));
    run.finish(&control).unwrap();
    let image = floats(run.get_tensor("vae.image").unwrap());
    let expected: Vec<f32> = after(&TIMESTEPS).iter().map(|value| 3.0 * value).collect();
    assert_eq!(image, expected);
    // What the loop itself reads begins it anew.
    run.set_input("encoder.x", float_tensor(&[1, 1], &[2.0]).view())
        .unwrap();
    let event = run.step(&control).unwrap();
    assert_eq!(event.progress, Some(Progress { done: 1, count: 4 }));
}

/// What the components at the end read of the prompt's is what the host has set by then.
#[test]
fn the_end_reads_what_the_prompt_has_become() {
    let yaml = GOOD.replace(
        "  dataflow:\n",
        "    tint: {filename: t.onnx}\n  dataflow:\n    - {from: tint.color, to: vae.color}\n",
    );
    let vae = Fake::new(
        io(
            &["latent:float32[m,n]", "color:float32[m,n]"],
            &["image:float32[m,n]"],
        ),
        |call| {
            let (latent, color) = (call.floats("latent"), call.floats("color"));
            let sum: Vec<f32> = latent.iter().zip(color).map(|(a, b)| a + b).collect();
            Ok(vec![("image", float_tensor(call.tensor("latent").shape(), &sum))])
        },
    );
    let tint = times(1000.0, "x", "color");
    let runs = tint.watch();
    let sessions = vec![
        ("encoder", times(2.0, "x", "hidden")),
        ("denoiser", denoiser()),
        ("preview", times(-1.0, "latent", "image")),
        ("vae", vae),
        ("tint", tint),
    ];
    let pipeline = open(&yaml, sessions).unwrap();
    let control = RunControl::default();
    let mut run = start(&pipeline, &RunSettings::default());
    let set = |run: &mut Run, color: f32| {
        run.set_input("tint.x", float_tensor(&[1, 2], &[color; 2]).view())
            .unwrap();
    };
    set(&mut run, 1.0);
    run.generate(&control, &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    for (color, count) in [(1.0, 1), (3.0, 2), (3.0, 2)] {
        set(&mut run, color);
        run.finish(&control).unwrap();
        let expected: Vec<f32> = after(&TIMESTEPS)
            .iter()
            .map(|value| value + 1000.0 * color)
            .collect();
        assert_eq!(floats(run.get_tensor("vae.image").unwrap()), expected);
        assert_eq!(runs.runs(), count);
    }
    // What fails leaves what there was.
    set(&mut run, 4.0);
    runs.fail_next(failure());
    assert_eq!(run.finish(&control).unwrap_err().kind(), ErrorKind::RunFailed);
    run.clear_input("tint.x").unwrap();
    assert_eq!(run.finish(&control).unwrap_err().kind(), ErrorKind::MissingInput);
    set(&mut run, 5.0);
    run.finish(&control).unwrap();
    let expected: Vec<f32> = after(&TIMESTEPS).iter().map(|value| value + 5000.0).collect();
    assert_eq!(floats(run.get_tensor("vae.image").unwrap()), expected);
}

/// y = factor * x, of any shape.
fn times(factor: f32, from: &'static str, to: &'static str) -> Fake {
    let (input, output) = (format!("{from}:float32[m,n]"), format!("{to}:float32[m,n]"));
    Fake::new(io(&[&input], &[&output]), move |call| {
        let values: Vec<f32> = call.floats(from).iter().map(|value| factor * value).collect();
        Ok(vec![(to, float_tensor(call.tensor(from).shape(), &values))])
    })
}

struct Watches {
    encoder: Watch,
    denoiser: Watch,
    preview: Watch,
    vae: Watch,
}

fn open_good(yaml: &str) -> (Pipeline, Watches) {
    let encoder = times(2.0, "x", "hidden");
    let (denoiser, preview, vae) = (
        denoiser(),
        times(-1.0, "latent", "image"),
        times(10.0, "latent", "image"),
    );
    let watches = Watches {
        encoder: encoder.watch(),
        denoiser: denoiser.watch(),
        preview: preview.watch(),
        vae: vae.watch(),
    };
    let sessions = vec![
        ("encoder", encoder),
        ("denoiser", denoiser),
        ("preview", preview),
        ("vae", vae),
    ];
    (open(yaml, sessions).unwrap(), watches)
}

const SEED: [f32; 2] = [0.5, -1.0];

fn start(pipeline: &Pipeline, settings: &RunSettings) -> Run {
    let mut run = Run::new(pipeline, settings).unwrap();
    run.set_input("encoder.x", float_tensor(&[1, 1], &[3.0]).view())
        .unwrap();
    run.set_input("denoiser.a", float_tensor(&[1, 2], &SEED).view())
        .unwrap();
    run.set_input("denoiser.b", int(100).view()).unwrap();
    run
}

/// a after steps with these timesteps, conditioned on 2 * 3.
fn after(timesteps: &[f32]) -> Vec<f32> {
    let more: f32 = timesteps.iter().map(|timestep| timestep + 6.0).sum();
    SEED.iter().map(|value| value + more).collect()
}

fn latent(run: &Run) -> Vec<f32> {
    floats(run.get_tensor("denoiser.a").unwrap())
}

fn as_int(view: TensorView<'_>) -> i64 {
    i64::from_le_bytes(view.bytes().try_into().unwrap())
}

#[test]
fn states_go_from_step_to_step() {
    let (pipeline, watches) = open_good(GOOD);
    let phases: Vec<Phase> = pipeline
        .components()
        .iter()
        .map(|component| component.phase)
        .collect();
    assert_eq!(
        phases,
        [
            Phase::PromptOnly,
            Phase::EveryStep,
            Phase::EveryStep,
            Phase::FinalOnly
        ]
    );
    let iteration = pipeline.package().iteration.clone().unwrap();
    assert_eq!(iteration.denoiser, "denoiser");
    assert_eq!(iteration.looped_inputs, ["b", "a"]);
    assert_eq!(pipeline.describe()["iteration"]["num_steps"], 4);
    let control = RunControl::default();
    let mut run = start(&pipeline, &RunSettings::default());
    assert_eq!(latent(&run), SEED, "before the first step it is what was set");
    assert_eq!(run.latents().count(), 0);
    let error = run.finish(&control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    assert_eq!(error.to_string(), "the loop has taken no step yet; step first");
    for done in 1..=4 {
        let event = run.step(&control).unwrap();
        assert_eq!(event.token, None);
        assert_eq!(event.progress, Some(Progress { done, count: 4 }));
        assert_eq!(event.finish, (done == 4).then_some(FinishReason::Completed));
        let expected = after(&TIMESTEPS[..done]);
        assert_eq!(latent(&run), expected);
        assert_eq!(floats(run.get_tensor("denoiser.a_next").unwrap()), expected);
        let latents: Vec<TensorView<'_>> = run.latents().collect();
        assert_eq!(as_int(latents[0]), 100 + done as i64);
        assert_eq!(floats(latents[1]), expected);
        let negated: Vec<f32> = expected.iter().map(|value| -value).collect();
        assert_eq!(floats(run.get_tensor("preview.image").unwrap()), negated);
        assert!(run.get_tensor("vae.image").is_err());
    }
    let runs = |watches: &Watches| {
        let Watches {
            encoder,
            denoiser,
            preview,
            vae,
        } = watches;
        (encoder.runs(), denoiser.runs(), preview.runs(), vae.runs())
    };
    assert_eq!(runs(&watches), (1, 4, 4, 0));
    assert_eq!(run.stats().component_runs, 9);
    assert_eq!(run.step(&control).unwrap_err().kind(), ErrorKind::InvalidState);
    run.finish(&control).unwrap();
    let image: Vec<f32> = after(&TIMESTEPS).iter().map(|value| 10.0 * value).collect();
    assert_eq!(floats(run.get_tensor("vae.image").unwrap()), image);

    // The same seed again changes nothing; another one begins the loop anew.
    run.set_input("denoiser.a", float_tensor(&[1, 2], &SEED).view())
        .unwrap();
    assert!(run.finished().is_some());
    run.set_input("denoiser.a", float_tensor(&[2, 2], &[0.0; 4]).view())
        .unwrap();
    assert_eq!(latent(&run), [0.0; 4]);
    assert_eq!(run.finish(&control).unwrap_err().kind(), ErrorKind::InvalidState);
    let event = run.step(&control).unwrap();
    assert_eq!(event.progress, Some(Progress { done: 1, count: 4 }));
    // The batch of the timestep is that of the state.
    assert_eq!(latent(&run), [15.0; 4]);
    assert_eq!(as_int(run.get_tensor("denoiser.b").unwrap()), 101);
    assert_eq!(runs(&watches), (1, 5, 5, 1));
    // So does another condition, in the middle of it.
    run.set_input("encoder.x", float_tensor(&[1, 1], &[0.0]).view())
        .unwrap();
    run.step(&control).unwrap();
    assert_eq!(latent(&run), [9.0; 4]);
}

#[test]
fn a_composite_contains_the_loop() {
    let stages = "  strategy:
    kind: composite
    stages:
      - {name: encode, strategy: {kind: single_pass, model: encoder}}
      - name: denoise
        strategy: {kind: diffusion_steps, denoiser: denoiser, num_steps: 4, timestep_input: t, timesteps: [9, 7, 4, 2]}
        run_on: every_step
      - {name: decode, strategy: {kind: single_pass, model: vae}, run_on: final_only}
";
    let (before, rest) = GOOD.split_once("  strategy:\n").unwrap();
    let (_, phases) = rest.split_once("  phases:\n").unwrap();
    let (pipeline, _) = open_good(&format!("{before}{stages}  phases:\n{phases}"));
    assert_eq!(pipeline.package().strategy, "composite");
    let control = RunControl::default();
    let mut run = start(&pipeline, &RunSettings::default());
    let mut seen = Vec::new();
    let finish = run
        .generate(&control, &mut |run, event| {
            seen.push((
                event.progress.unwrap().done,
                floats(run.latents().nth(1).unwrap()),
            ));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(finish, Some(FinishReason::Completed));
    let expected: Vec<(usize, Vec<f32>)> = (1..=4).map(|done| (done, after(&TIMESTEPS[..done]))).collect();
    assert_eq!(seen, expected);
    run.finish(&control).unwrap();
    assert_eq!(
        floats(run.get_tensor("vae.image").unwrap())[0],
        10.0 * after(&TIMESTEPS)[0]
    );
}

#[test]
fn a_callback_ends_the_loop_and_it_goes_on() {
    let (pipeline, watches) = open_good(GOOD);
    let control = RunControl::default();
    let mut run = start(&pipeline, &RunSettings::default());
    let stopped = run.generate(&control, &mut |_, event| match event.progress.unwrap().done {
        2 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert_eq!(stopped.unwrap(), None);
    assert_eq!(latent(&run), after(&TIMESTEPS[..2]));
    // What there is can be decoded on the way.
    run.finish(&control).unwrap();
    assert_eq!(
        floats(run.get_tensor("vae.image").unwrap())[0],
        10.0 * after(&TIMESTEPS[..2])[0]
    );
    run.generate(&control, &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(latent(&run), after(&TIMESTEPS));
    assert_eq!(watches.denoiser.runs(), 4);
}

#[test]
fn settings_of_the_loop() {
    let started = |settings: &RunSettings, yaml: &str| {
        let (pipeline, _) = open_good(yaml);
        let mut run = start(&pipeline, settings);
        let mut done = Vec::new();
        run.generate(&RunControl::default(), &mut |_, event| {
            done.push(event.progress.unwrap().done);
            ControlFlow::Continue(())
        })
        .unwrap();
        (done, latent(&run))
    };
    let later = RunSettings {
        start_step: Some(2),
        ..RunSettings::default()
    };
    assert_eq!(started(&later, GOOD), (vec![3, 4], after(&[4.0, 2.0])));
    let by_package = GOOD.replace("num_steps: 4", "num_steps: 4\n    start_step: 3");
    assert_eq!(
        started(&RunSettings::default(), &by_package),
        (vec![4], after(&[2.0]))
    );
    let whole = RunSettings {
        start_step: Some(0),
        ..RunSettings::default()
    };
    assert_eq!(
        started(&whole, &by_package),
        (vec![1, 2, 3, 4], after(&TIMESTEPS))
    );
    // Without a list the timestep is the step, and there may be more of them.
    let counted = GOOD.replace("    timesteps: [9, 7, 4, 2]\n", "");
    let six = RunSettings {
        num_steps: Some(6),
        start_step: Some(1),
        ..RunSettings::default()
    };
    assert_eq!(
        started(&six, &counted),
        (vec![2, 3, 4, 5, 6], after(&[1.0, 2.0, 3.0, 4.0, 5.0]))
    );
    // The number of steps may be that of the list alone.
    let listed = GOOD.replace("    num_steps: 4\n", "");
    assert_eq!(started(&RunSettings::default(), &listed).1, after(&TIMESTEPS));

    let (pipeline, _) = open_good(GOOD);
    let (counted, _) = open_good(&counted.replace("num_steps: 4", "num_steps: 4\n    start_step: 3"));
    let refused = |pipeline: &Pipeline, num_steps: Option<u64>, start_step: Option<u64>, message: &str| {
        let settings = RunSettings {
            num_steps,
            start_step,
            ..RunSettings::default()
        };
        let error = Run::new(pipeline, &settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(message), "{error}");
    };
    refused(
        &pipeline,
        Some(5),
        None,
        "num_steps: 5 does not fit the package, which lists the timesteps of 4 steps",
    );
    refused(
        &pipeline,
        None,
        Some(4),
        "start_step: 4 is no step of the loop; give one from 0 to 3",
    );
    refused(&counted, Some(0), None, "from 1 to 100000");
    refused(&counted, Some(100_001), None, "from 1 to 100000");
    refused(&counted, Some(3), None, "give a start_step from 0 to 2 too");
    refused(&counted, Some(3), Some(3), "from 0 to 2");
    let (language_model, _) = super::fake::language_model("");
    refused(
        &language_model,
        Some(3),
        None,
        "num_steps: for packages with an iterative strategy",
    );
    refused(&language_model, None, Some(3), "this one is autoregressive");
}

fn failure() -> ComponentErrorKind {
    ComponentErrorKind::Node {
        node: "mid/attn".into(),
        op: "MatMul".into(),
        message: "made to fail".into(),
    }
}

/// All that a host can see of a run.
fn seen(run: &Run) -> Vec<Option<Vec<u8>>> {
    let addresses = [
        "denoiser.a",
        "denoiser.b",
        "denoiser.a_next",
        "preview.image",
        "vae.image",
    ];
    addresses
        .iter()
        .map(|address| run.get_tensor(address).ok().map(|view| view.bytes().to_vec()))
        .collect()
}

#[test]
fn a_step_that_fails_leaves_nothing_half_done() {
    for failing in 0..4 {
        for (component, panics) in [
            ("denoiser", false),
            ("denoiser", true),
            ("preview", false),
            ("preview", true),
        ] {
            let (pipeline, watches) = open_good(GOOD);
            let control = RunControl::default();
            let mut run = start(&pipeline, &RunSettings::default());
            for done in 1..=4 {
                if done == failing + 1 {
                    let before = seen(&run);
                    let watch = match component {
                        "denoiser" => &watches.denoiser,
                        _ => &watches.preview,
                    };
                    if panics {
                        watch.panic_next();
                        catch_unwind(AssertUnwindSafe(|| run.step(&control))).unwrap_err();
                        run.roll_back();
                    } else {
                        watch.fail_next(failure());
                        let error = run.step(&control).unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::RunFailed);
                        assert_eq!(error.component(), Some(component));
                    }
                    assert_eq!(seen(&run), before);
                    assert!(run.finished().is_none());
                }
                let event = run.step(&control).unwrap();
                assert_eq!(event.progress, Some(Progress { done, count: 4 }));
                assert_eq!(
                    latent(&run),
                    after(&TIMESTEPS[..done]),
                    "{component} failing at {failing}"
                );
            }
            assert_eq!(watches.encoder.runs(), 1);
        }
    }
}

#[test]
fn a_cancelled_or_late_step_can_be_taken_again() {
    let (pipeline, watches) = open_good(GOOD);
    let cancel = CancelToken::new();
    let control = RunControl {
        cancel: Some(cancel.clone()),
        ..RunControl::default()
    };
    let mut run = start(&pipeline, &RunSettings::default());
    // Asked for between two steps of one call.
    let outcome = run.generate(&control, &mut |_, event| {
        if event.progress.unwrap().done == 2 {
            cancel.request();
        }
        ControlFlow::Continue(())
    });
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(latent(&run), after(&TIMESTEPS[..2]));
    let late = RunControl {
        deadline: Some(Instant::now() - Duration::from_millis(1)),
        ..RunControl::default()
    };
    assert_eq!(run.step(&late).unwrap_err().kind(), ErrorKind::DeadlineExceeded);
    // Told by the component itself, from inside of a step.
    watches.denoiser.fail_next(ComponentErrorKind::Cancelled);
    assert_eq!(
        run.step(&RunControl::default()).unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    assert_eq!(latent(&run), after(&TIMESTEPS[..2]));
    cancel.reset();
    run.generate(&control, &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(latent(&run), after(&TIMESTEPS));
}

#[test]
fn what_the_loop_starts_from_must_be_there() {
    let (pipeline, watches) = open_good(GOOD);
    let mut run = start(&pipeline, &RunSettings::default());
    run.clear_input("denoiser.a").unwrap();
    let error = run.step(&RunControl::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingInput);
    assert_eq!((error.component(), error.port()), (Some("denoiser"), Some("a")));
    assert!(
        error.to_string().contains("for the loop to start from"),
        "{error}"
    );
    assert_eq!((watches.encoder.runs(), watches.denoiser.runs()), (0, 0));
    let error = run.set_input("denoiser.t", int(1).view()).unwrap_err();
    assert!(error.to_string().contains("fed by the step loop"), "{error}");
    let error = run
        .set_input("vae.latent", float_tensor(&[1, 2], &SEED).view())
        .unwrap_err();
    assert!(error.to_string().contains("it is fed by denoiser.a"), "{error}");
    let error = run
        .set_input("denoiser.b", float_tensor(&[], &[1.0]).view())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadTensor);
}

/// Floats of another type are converted on the way round, and on the way out.
#[test]
fn states_of_another_float_type() {
    let inputs = ["x:float16[n]", "t:bfloat16[]"];
    let denoiser = Fake::new(io(&inputs, &["y:float32[n]"]), |call| {
        // 0.5 in bfloat16.
        assert_eq!(call.tensor("t").bytes(), [0x00, 0x3f]);
        // 1 + 2^-10, the next to 1 in float16; halfway rounds to even.
        let first = call.tensor("x").bytes()[..2] == [0x00, 0x3c];
        let next = if first { 1.0 + 2f32.powi(-10) } else { 2.0 };
        Ok(vec![("y", float_tensor(&[1], &[next]))])
    });
    let vae = Fake::new(io(&["z:float32[n]"], &["image:float32[n]"]), |call| {
        Ok(vec![("image", call.tensor("z").view().to_tensor().unwrap())])
    });
    let yaml = "
pipeline:
  models:
    denoiser: {filename: d.onnx}
    vae: {filename: v.onnx}
  dataflow:
    - {from: denoiser.y, to: denoiser.x}
    - {from: denoiser.x, to: vae.z}
  strategy: {kind: iterative, denoiser: denoiser, num_steps: 2, timestep_input: t, timesteps: [0.5, 0.5]}
";
    let pipeline = open(yaml, vec![("denoiser", denoiser), ("vae", vae)]).unwrap();
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    let one = ComponentTensor::from_raw(DataType::Float16, &[1], &[0x00, 0x3c]).unwrap();
    run.set_input("denoiser.x", one.view()).unwrap();
    run.step(&control).unwrap();
    let state = run.get_tensor("denoiser.x").unwrap();
    assert_eq!(
        (state.dtype(), state.bytes()),
        (DataType::Float16, &[0x01, 0x3c][..])
    );
    run.finish(&control).unwrap();
    assert_eq!(
        floats(run.get_tensor("vae.image").unwrap()),
        [1.0 + 2f32.powi(-10)]
    );
    run.step(&control).unwrap();
    run.finish(&control).unwrap();
    assert_eq!(floats(run.get_tensor("vae.image").unwrap()), [2.0]);
}

const WITH_TOKENS: &str = "
pipeline:
  models:
    decoder:
      filename: d.onnx
      type: decoder
      io: {token_input: input_ids, logits_output: logits, kv_inputs: [past], kv_outputs: [present], MORE}
    denoiser: {filename: n.onnx, type: denoiser}
    vae: {filename: v.onnx}
  dataflow:
    - {from: denoiser.y, to: denoiser.x}
    EDGES
  strategy:
    kind: composite
    stages:
";
const TOKENS: &str = "      - {name: tell, strategy: {kind: autoregressive, decoder: decoder}}\n";
const LOOP: &str = "      - {name: draw, strategy: {kind: iterative, num_steps: 3}}\n";

/// x + 1, three times.
fn counter() -> Fake {
    Fake::new(io(&["x:float32[1,n]"], &["y:float32[1,n]"]), |call| {
        let next: Vec<f32> = call.floats("x").iter().map(|value| value + 1.0).collect();
        Ok(vec![("y", float_tensor(call.tensor("x").shape(), &next))])
    })
}

#[test]
fn a_loop_after_the_tokens_runs_at_the_end() {
    let yaml = WITH_TOKENS
        .replace(
            "MORE",
            "attention_mask_input: attention_mask, position_ids_input: position_ids",
        )
        .replace("EDGES", "- {from: denoiser.x, to: vae.latent}");
    let counter = counter();
    let watch = counter.watch();
    let sessions = vec![
        ("decoder", decoder()),
        ("denoiser", counter),
        ("vae", times(10.0, "latent", "image")),
    ];
    let pipeline = open(&format!("{yaml}{TOKENS}{LOOP}"), sessions).unwrap();
    let phases: Vec<Phase> = pipeline
        .components()
        .iter()
        .map(|component| component.phase)
        .collect();
    assert_eq!(phases, [Phase::EveryStep, Phase::FinalOnly, Phase::FinalOnly]);
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&[5, 2]).unwrap();
    let event = run.step(&control).unwrap();
    assert_eq!(
        (event.token, event.progress),
        (Some(continuation(&[5, 2], 1, 0)[0]), None)
    );
    assert_eq!(run.finish(&control).unwrap_err().kind(), ErrorKind::MissingInput);
    run.set_input("denoiser.x", float_tensor(&[1, 1], &[4.0]).view())
        .unwrap();
    run.finish(&control).unwrap();
    assert_eq!(floats(run.get_tensor("denoiser.x").unwrap()), [7.0]);
    assert_eq!(floats(run.get_tensor("vae.image").unwrap()), [70.0]);
    // All of its steps count as one: a later attempt begins with the first, and what there was
    // stays until it is done.
    watch.with(|watched| {
        watched.fail_at = Some(watched.runs + 1);
        watched.fail_with = Some(failure());
    });
    assert_eq!(run.finish(&control).unwrap_err().kind(), ErrorKind::RunFailed);
    assert_eq!(floats(run.get_tensor("denoiser.x").unwrap()), [7.0]);
    assert_eq!(floats(run.get_tensor("denoiser.y").unwrap()), [7.0]);
    run.finish(&control).unwrap();
    assert_eq!(watch.runs(), 3 + 2 + 3);
    assert_eq!(floats(run.get_tensor("vae.image").unwrap()), [70.0]);
    assert_eq!(run.step(&control).unwrap().finish, None);
}

#[test]
fn a_loop_before_the_tokens_is_part_of_the_prompt() {
    let yaml = WITH_TOKENS.replace(", MORE", "").replace(
        "EDGES",
        "- {from: denoiser.x, to: vae.latent}\n    - {from: vae.image, to: decoder.features}",
    );
    let inputs = [
        "input_ids:int64[1,s]",
        "features:float32[1,n]",
        "past:float32[1,2,p,1]",
    ];
    let decoder = Fake::new(
        io(&inputs, &super::fake::DECODER_OUTPUTS),
        decoder_body(|call| call.floats("features").iter().sum::<f32>() as i64),
    );
    let counter = counter();
    let watch = counter.watch();
    let sessions = vec![
        ("decoder", decoder),
        ("denoiser", counter),
        ("vae", times(10.0, "latent", "image")),
    ];
    let pipeline = open(&format!("{yaml}{LOOP}{TOKENS}"), sessions).unwrap();
    let control = RunControl::default();
    let settings = RunSettings {
        num_steps: Some(2),
        ..RunSettings::default()
    };
    let mut run = Run::new(&pipeline, &settings).unwrap();
    run.append_tokens(&[5, 2]).unwrap();
    run.set_input("denoiser.x", float_tensor(&[1, 1], &[-1.0]).view())
        .unwrap();
    let step = |run: &mut Run| run.step(&control).unwrap().token.unwrap();
    let first = step(&mut run);
    assert_eq!(first, continuation(&[5, 2], 1, 10)[0]);
    assert_eq!(step(&mut run), continuation(&[5, 2, first], 1, 10)[0]);
    assert_eq!(watch.runs(), 2);
    // Another seed: all that came of the first one goes.
    run.set_input("denoiser.x", float_tensor(&[1, 1], &[-2.0]).view())
        .unwrap();
    let tokens = run.tokens().to_vec();
    assert_eq!(step(&mut run), continuation(&tokens, 1, 0)[0]);
    assert_eq!(watch.runs(), 4);
}

/// A prompt that a component reads: other tokens begin the loop anew.
#[test]
fn tokens_condition_the_loop() {
    let encoder = Fake::new(io(&["ids:int64[1,s]"], &["hidden:float32[1,1]"]), |call| {
        let sum: i64 = call.ints("ids").iter().sum();
        Ok(vec![("hidden", float_tensor(&[1, 1], &[sum as f32]))])
    });
    let denoiser = Fake::new(
        io(&["x:float32[1,1]", "cond:float32[1,1]"], &["y:float32[1,1]"]),
        |call| {
            let next = call.floats("x")[0] + call.floats("cond")[0];
            Ok(vec![("y", float_tensor(&[1, 1], &[next]))])
        },
    );
    let yaml = "
pipeline:
  models:
    encoder: {filename: e.onnx, io: {token_input: ids}}
    denoiser: {filename: d.onnx}
  dataflow:
    - {from: encoder.hidden, to: denoiser.cond}
    - {from: denoiser.y, to: denoiser.x}
  strategy: {kind: iterative, denoiser: denoiser, num_steps: 2}
";
    let pipeline = open(yaml, vec![("encoder", encoder), ("denoiser", denoiser)]).unwrap();
    let control = RunControl::default();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.set_input("denoiser.x", float_tensor(&[1, 1], &[0.0]).view())
        .unwrap();
    run.append_tokens(&[3, 4]).unwrap();
    let value = |run: &mut Run| {
        run.step(&control).unwrap();
        floats(run.get_tensor("denoiser.x").unwrap())[0]
    };
    assert_eq!(value(&mut run), 7.0);
    run.append_tokens(&[1]).unwrap();
    assert_eq!((value(&mut run), value(&mut run)), (8.0, 16.0));
    run.rewind(1).unwrap();
    assert_eq!((value(&mut run), value(&mut run)), (3.0, 6.0));
}

/// The error of `GOOD` with one replacement: its line, its key, what it says.
#[track_caller]
fn refused(from: &str, to: &str, line: u64, key: &str, message: &str) {
    assert!(GOOD.contains(from), "{from}");
    refused_as(&GOOD.replacen(from, to, 1), denoiser(), line, key, message);
}

#[track_caller]
fn refused_as(yaml: &str, denoiser: Fake, line: u64, key: &str, message: &str) {
    let sessions = vec![
        ("encoder", times(2.0, "x", "hidden")),
        ("denoiser", denoiser),
        ("preview", times(1.0, "latent", "image")),
        ("vae", times(1.0, "latent", "image")),
    ];
    let error = open(yaml, sessions).unwrap_err();
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
    assert!(
        error.to_string().starts_with("inference_metadata.yaml:"),
        "{error}"
    );
}

#[test]
fn loops_that_are_malformed() {
    let strategy = "pipeline.strategy";
    let key = |name: &str| format!("{strategy}.{name}");
    refused(
        "denoiser: denoiser\n",
        "denoiser: nobody\n",
        15,
        &key("denoiser"),
        "there is no component \"nobody\"",
    );
    refused(
        "num_steps: 4",
        "num_steps: 0",
        16,
        &key("num_steps"),
        "an integer from 1 to 100000",
    );
    refused(
        "num_steps: 4",
        "num_steps: 100001",
        16,
        &key("num_steps"),
        "an integer from 1 to 100000",
    );
    refused(
        "num_steps: 4",
        "num_steps: many",
        16,
        &key("num_steps"),
        "the text \"many\"",
    );
    refused(
        "num_steps: 4",
        "num_steps: 3",
        16,
        &key("num_steps"),
        "3 steps and 4 timesteps",
    );
    refused(
        "num_steps: 4",
        "num_steps: 4\n    start_step: 4",
        17,
        &key("start_step"),
        "an integer from 0 to 3",
    );
    refused(
        "[9, 7, 4, 2]",
        "[9, x, 4, 2]",
        18,
        &key("timesteps[1]"),
        "expected a finite number",
    );
    refused(
        "[9, 7, 4, 2]",
        "[9, 7.5, 4, 2]",
        18,
        &key("timesteps"),
        "7.5 is no int64",
    );
    refused(
        "[9, 7, 4, 2]",
        "[9, 1e30, 4, 2]",
        18,
        &key("timesteps"),
        "is no int64",
    );
    refused(
        "timestep_input: t",
        "timestep_input: nope",
        17,
        &key("timestep_input"),
        "has no input \"nope\"",
    );
    refused(
        "    timestep_input: t\n",
        "",
        17,
        &key("timesteps"),
        "names no timestep_input",
    );
    let floats = "timestep_input: cond\n    timesteps: [1, 2, 3, 4]\n    x:";
    refused(
        "timestep_input: t\n    timesteps:",
        floats,
        8,
        "pipeline.dataflow[0].to",
        "has a source already",
    );
    let (count, rest) = (
        "    num_steps: 4\n    timestep_input: t\n    timesteps: [9, 7, 4, 2]\n",
        "    x: 1\n",
    );
    refused(
        count,
        rest,
        14,
        &key("num_steps"),
        "is missing; how often the denoiser runs",
    );
    refused(
        "    - {from: denoiser.b_next, to: denoiser.b}\n    - {from: denoiser.a_next, to: denoiser.a}\n",
        "",
        4,
        "pipeline.models.denoiser",
        "no edge of pipeline.dataflow leads from an output of the denoiser",
    );
    refused(
        "to: denoiser.b}",
        "to: denoiser.a}",
        10,
        "pipeline.dataflow[2].to",
        "already has an edge",
    );
    refused(
        "from: denoiser.a,",
        "from: denoiser.cond,",
        12,
        "pipeline.dataflow[4].from",
        "no output \"cond\"",
    );
    refused(
        "from: encoder.hidden, to: denoiser.cond",
        "from: encoder.hidden, to: encoder.x",
        8,
        "pipeline.dataflow[0].to",
        "in a circle: encoder -> encoder",
    );
    refused(
        "preview: {run_on: every_step}",
        "denoiser: {run_on: final_only}",
        20,
        "pipeline.phases.denoiser.run_on",
        "the denoiser is final_only; it must be every_step",
    );
    refused(
        "preview: {run_on: every_step}",
        "denoiser: {when_present: image}",
        20,
        "pipeline.phases.denoiser.when_present",
        "is the denoiser, which runs in every step",
    );
    refused(
        "preview: {run_on: every_step}",
        "vae: {run_on: prompt_only}",
        12,
        "pipeline.dataflow[4].to",
        "\"denoiser\" is every_step and feeds \"vae\", which is prompt_only",
    );
    let state =
        "type: denoiser, io: {state_pairs: [{input: b, output: b_next, init: zeros, update: replace}]}}";
    refused(
        "type: denoiser}",
        state,
        4,
        "pipeline.models.denoiser.io.state_pairs[0].input",
        "comes through an edge",
    );
    let unnamed = GOOD
        .replace("    denoiser: denoiser\n", "")
        .replace("type: vae", "type: denoiser");
    refused_as(
        &unnamed,
        denoiser(),
        14,
        strategy,
        "not exactly one component is of type denoiser",
    );
    let other = Fake::ports(&DENOISER_INPUTS, &["a_next:float32[batch,2]", "b_next:float32[]"]);
    let to = "pipeline.dataflow[1].to";
    refused_as(GOOD, other, 9, to, "gives float32 and the input takes int64");
    let wider = Fake::ports(&DENOISER_INPUTS, &["a_next:float32[batch,3]", "b_next:int64[]"]);
    refused_as(
        GOOD,
        wider,
        10,
        "pipeline.dataflow[2].to",
        "expected [batch, 2], as its input \"a\"",
    );
    let inputs = [
        DENOISER_INPUTS[0],
        DENOISER_INPUTS[1],
        DENOISER_INPUTS[2],
        "t:int64[1,1,1]",
    ];
    refused_as(
        GOOD,
        Fake::ports(&inputs, &DENOISER_OUTPUTS),
        17,
        &key("timestep_input"),
        "a timestep: int32, int64",
    );
    let two = "  strategy:
    kind: composite
    stages:
      - {name: one, strategy: {kind: iterative, denoiser: denoiser, num_steps: 1}}
      - {name: two, strategy: {kind: iterative, denoiser: denoiser, num_steps: 1}}
";
    let (before, _) = GOOD.split_once("  strategy:\n").unwrap();
    refused_as(
        &format!("{before}{two}"),
        denoiser(),
        17,
        "pipeline.strategy.stages[1].strategy",
        "\"denoiser\" is the denoiser of two stages",
    );
    let with_phase = |phase: &str| {
        let inputs = "attention_mask_input: attention_mask, position_ids_input: position_ids";
        let yaml = WITH_TOKENS.replace("MORE", inputs).replace("EDGES", "");
        format!(
            "{yaml}{TOKENS}{}",
            LOOP.replace("}}\n", &format!("}}, run_on: {phase}}}\n"))
        )
    };
    let sessions = || {
        vec![
            ("decoder", decoder()),
            ("denoiser", counter()),
            ("vae", times(1.0, "latent", "image")),
        ]
    };
    let error = open(&with_phase("every_step"), sessions()).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("stages[1].run_on: the stage's strategy does not name the denoiser"),
        "{message}"
    );
    let named = with_phase("every_step").replace("num_steps: 3", "num_steps: 3, denoiser: denoiser");
    let error = open(&named, sessions()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("since the steps of the run are tokens"),
        "{error}"
    );
}
