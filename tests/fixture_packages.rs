//! The fixture packages, whose answers are known in closed form: every component on every
//! backend of this build, in every mix, gives the same answer.
//!
//! The packages lie beside the repository, in `../shared/fixtures`, or where OXP_FIXTURES says;
//! where they are absent each test says so on stderr and checks nothing.

use std::path::{Path, PathBuf};

use oxpipe::component::{
    Backend, ComponentError, ComponentIo, ComponentSession, ComponentTensor, DataType, Input, ModelSource,
    Output, OutputResult, RunControl, Shape, TensorView, copied_bytes,
};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineOptions, Run, RunSettings};
use oxpipe::runtime::{BackendChoice, ComponentOptions, Environment, Runtime, RuntimeSettings};

fn package(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("OXP_FIXTURES").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures"));
    let path = folder.join(name);
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("NOT CHECKED: the fixture package {} is not there", path.display());
    None
}

fn runtime() -> Runtime {
    runtime_with(Environment::default())
}

/// With the library that scripts/fetch-onnxruntime.sh fetches, unless a variable says another.
fn runtime_with(environment: Environment) -> Runtime {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("third_party/onnxruntime/libonnxruntime.so");
    let named = std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
    let settings = RuntimeSettings {
        ort_library_path: named.or_else(|| fetched.exists().then_some(fetched)),
        threads: Some(1),
        ..RuntimeSettings::default()
    };
    Runtime::with_environment(settings, environment)
}

/// The backends of this build. A build with `ort` needs the library for this test.
fn backends() -> Vec<BackendChoice> {
    let mut backends = Vec::new();
    if cfg!(feature = "native") {
        backends.push(BackendChoice::Native);
    }
    if cfg!(feature = "ort") {
        backends.push(BackendChoice::Ort);
    }
    backends
}

/// Every way of giving each component one of the backends.
fn assignments(components: &[&str]) -> Vec<Vec<(String, BackendChoice)>> {
    let mut all = vec![Vec::new()];
    for component in components {
        let extended = |assignment: &Vec<(String, BackendChoice)>, backend| {
            let mut longer = assignment.clone();
            longer.push(((*component).to_owned(), backend));
            longer
        };
        all = all
            .iter()
            .flat_map(|assignment| {
                backends()
                    .into_iter()
                    .map(|backend| extended(assignment, backend))
            })
            .collect();
    }
    all
}

fn open(path: &Path, component_backends: &[(String, BackendChoice)]) -> Pipeline {
    let options = PipelineOptions {
        component_backends: component_backends.to_vec(),
        ..PipelineOptions::default()
    };
    let source = PackageSource::Directory(path.to_owned());
    let pipeline = Pipeline::open(&runtime(), &source, &options, None, &RunControl::default()).unwrap();
    for (name, choice) in component_backends {
        let info = pipeline.component(name).unwrap();
        assert_eq!(info.backend.name(), choice.name(), "{name}");
        assert_eq!(info.reason, "asked for by the component's option");
    }
    pipeline
}

/// Calls `check` with a pipeline for every assignment of backends to the components.
fn for_each_mix(name: &str, components: &[&str], check: impl Fn(&Pipeline)) {
    let Some(path) = package(name) else { return };
    let mixes = assignments(components);
    assert_eq!(mixes.len(), backends().len().pow(components.len() as u32));
    for mix in mixes {
        eprintln!("{name}: {mix:?}");
        check(&open(&path, &mix));
    }
}

fn settings(max_tokens: u64) -> RunSettings {
    RunSettings {
        max_tokens: Some(max_tokens),
        stop_on_eos: false,
        ..RunSettings::default()
    }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn set_floats(run: &mut Run, address: &str, shape: &[i64], values: &[f32]) {
    let bytes = floats(values);
    let view = TensorView::new(DataType::Float32, shape, &bytes).unwrap();
    run.set_input(address, view).unwrap();
}

fn read_floats(run: &Run, address: &str) -> Vec<f32> {
    let view = run.get_tensor(address).unwrap();
    assert_eq!(view.dtype(), DataType::Float32);
    let chunks = view.bytes().chunks_exact(4);
    chunks
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

fn steps(run: &mut Run, count: usize) -> Vec<i32> {
    let control = RunControl::default();
    (0..count)
        .map(|_| run.step(&control).unwrap().token.unwrap())
        .collect()
}

fn image(scale: f32) -> Vec<f32> {
    (0..12u8).map(|i| scale * f32::from(i) / 12.0).collect()
}

#[test]
fn tiny_gemma4_vlm() {
    for_each_mix(
        "tiny-gemma4-vlm",
        &["vision_encoder", "embedding", "decoder"],
        |pipeline| {
            let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
            set_floats(
                &mut run,
                "vision_encoder.pixel_values",
                &[1, 3, 2, 2],
                &image(1.0),
            );
            run.append_tokens(&[3, 7]).unwrap();
            assert_eq!(steps(&mut run, 4), [0, 5, 6, 7]);
            // The package says max_tokens: 4.
            assert!(run.finished().is_some());
            for chunk_size in [1, 2] {
                let chunked = RunSettings {
                    chunk_size: Some(chunk_size),
                    ..RunSettings::default()
                };
                let mut run = Run::new(pipeline, &chunked).unwrap();
                set_floats(
                    &mut run,
                    "vision_encoder.pixel_values",
                    &[1, 3, 2, 2],
                    &image(1.0),
                );
                run.append_tokens(&[3, 7]).unwrap();
                assert_eq!(steps(&mut run, 4), [0, 5, 6, 7], "chunks of {chunk_size}");
            }
        },
    );
}

/// The image matters: with another one the first token is another.
#[test]
fn tiny_gemma4_vlm_with_another_image() {
    for_each_mix(
        "tiny-gemma4-vlm",
        &["vision_encoder", "embedding", "decoder"],
        |pipeline| {
            let first = |scale| {
                let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
                set_floats(
                    &mut run,
                    "vision_encoder.pixel_values",
                    &[1, 3, 2, 2],
                    &image(scale),
                );
                run.append_tokens(&[3, 7]).unwrap();
                steps(&mut run, 1)
            };
            assert_eq!(first(1.0), [0]);
            assert_ne!(first(-8.0), [0]);
            let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
            run.append_tokens(&[3, 7]).unwrap();
            let error = run.step(&RunControl::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MissingInput);
            assert_eq!(error.port(), Some("pixel_values"));
        },
    );
}

#[test]
fn tiny_vlm_multibinding() {
    for_each_mix("tiny-vlm-multibinding", &["embedding", "decoder"], |pipeline| {
        let mut run = Run::new(pipeline, &settings(4)).unwrap();
        run.append_tokens(&[1, 4]).unwrap();
        assert_eq!(steps(&mut run, 4), [0, 4, 0, 4]);
    });
}

/// Gives the first value that an output had, cut or repeated to the length of the step:
/// what a loop would feed that does not refresh a routed tensor.
struct Stale {
    inner: Box<dyn ComponentSession>,
    output: &'static str,
    last_row: Option<Vec<u8>>,
}

impl ComponentSession for Stale {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn backend(&self) -> Backend {
        self.inner.backend()
    }

    fn io(&self) -> &ComponentIo {
        self.inner.io()
    }

    fn metadata(&self) -> &[(String, String)] {
        self.inner.metadata()
    }

    fn output_shapes(
        &mut self,
        inputs: &[(&str, &[i64])],
        outputs: &[&str],
    ) -> Result<Vec<Option<Shape>>, ComponentError> {
        self.inner.output_shapes(inputs, outputs)
    }

    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        control: &RunControl,
    ) -> Result<(), ComponentError> {
        for output in outputs.iter_mut() {
            let mut one = [Output::alloc(output.name)];
            self.inner.execute(inputs, &mut one, control)?;
            let [one] = one;
            let OutputResult::Owned(mut tensor) = one.result else {
                panic!("no room was given")
            };
            if output.name == self.output {
                let rows = usize::try_from(tensor.shape()[1]).unwrap();
                let row_bytes = tensor.bytes().len() / rows;
                match &self.last_row {
                    None => self.last_row = Some(tensor.bytes()[(rows - 1) * row_bytes..].to_vec()),
                    Some(row) => {
                        let stale = row.repeat(rows);
                        tensor = ComponentTensor::from_raw(tensor.dtype(), tensor.shape(), &stale).unwrap();
                    }
                }
            }
            output.result = OutputResult::Owned(tensor);
        }
        Ok(())
    }
}

/// The tokens that a stale `aux` gives are known too, and are others.
#[test]
fn tiny_vlm_multibinding_with_a_stale_tensor() {
    let Some(path) = package("tiny-vlm-multibinding") else {
        return;
    };
    for backend in backends() {
        let source = PackageSource::Directory(path.clone());
        let open_one = |name: &str| {
            let model = ModelSource::file(path.join(format!("{name}.onnx")));
            let options = ComponentOptions {
                backend,
                ..ComponentOptions::default()
            };
            runtime().open_component(name, &model, &options).unwrap().session
        };
        let with = |output| {
            let stale: Box<dyn ComponentSession> = Box::new(Stale {
                inner: open_one("embedding"),
                output,
                last_row: None,
            });
            let sessions = vec![
                ("embedding".to_owned(), stale),
                ("decoder".to_owned(), open_one("decoder")),
            ];
            let pipeline = Pipeline::with_sessions(&runtime(), &source, sessions).unwrap();
            let mut run = Run::new(&pipeline, &settings(4)).unwrap();
            run.append_tokens(&[1, 4]).unwrap();
            steps(&mut run, 4)
        };
        assert_eq!(
            with("no such output"),
            [0, 4, 0, 4],
            "the double itself changes nothing"
        );
        assert_eq!(with("aux"), [0, 1, 2, 3]);
    }
}

#[test]
fn tiny_llm() {
    const EXPECTED: [i32; 8] = [22, 22, 20, 3, 13, 29, 11, 15];
    for_each_mix("tiny-llm", &["model"], |pipeline| {
        for chunk_size in [None, Some(1), Some(2), Some(7)] {
            let chunked = RunSettings {
                chunk_size,
                ..settings(8)
            };
            let mut run = Run::new(pipeline, &chunked).unwrap();
            run.append_tokens(&[2, 4, 3]).unwrap();
            assert_eq!(steps(&mut run, 8), EXPECTED, "chunks of {chunk_size:?}");
        }
        // As text: the tokenizer's template adds both ends.
        let mut run = Run::new(pipeline, &settings(3)).unwrap();
        assert_eq!(run.append_text("hello", true).unwrap(), 3);
        assert_eq!(run.tokens(), [2, 4, 3]);
        let mut text = String::new();
        let mut tokens = Vec::new();
        run.generate(&RunControl::default(), &mut |_, event| {
            text.push_str(&event.text);
            tokens.extend(event.token);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(tokens, EXPECTED[..3]);
        assert_eq!(text, pipeline.tokenizer().unwrap().decode(&tokens, true).unwrap());
    });
}

#[test]
fn tiny_llm_rewound() {
    for_each_mix("tiny-llm", &["model"], |pipeline| {
        let mut run = Run::new(pipeline, &settings(8)).unwrap();
        run.append_tokens(&[2, 4, 3]).unwrap();
        let expected = steps(&mut run, 8);
        for len in [9, 5, 3, 1] {
            run.rewind(len).unwrap();
            let whole = [&[2, 4, 3][..], &expected].concat();
            run.append_tokens(&whole[len..6.max(len)]).unwrap();
            let have = run.tokens().len();
            let rest = steps(&mut run, 11 - have);
            assert_eq!(rest, whole[have..], "after a rewind to {len}");
        }
    });
}

#[test]
fn tiny_whisper() {
    for_each_mix("tiny-whisper", &["encoder", "decoder"], |pipeline| {
        let mut run = Run::new(pipeline, &settings(4)).unwrap();
        set_floats(&mut run, "encoder.input_features", &[1, 80, 8], &[0.25; 640]);
        run.append_tokens(&[2]).unwrap();
        assert_eq!(steps(&mut run, 4), [4, 4, 4, 4]);
        assert_eq!(run.stats().component_runs, 1 + 4, "the encoder runs once");
    });
}

#[test]
fn tiny_codec() {
    for_each_mix("tiny-codec", &["encoder", "vocoder"], |pipeline| {
        let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
        let waveform: Vec<f32> = (0..16u8).map(f32::from).collect();
        set_floats(&mut run, "encoder.waveform", &[1, 16], &waveform);
        let event = run.step(&RunControl::default()).unwrap();
        assert_eq!(event.token, None);
        let codes: Vec<f32> = (0..8u8).map(|i| 2.0 * f32::from(i) + 0.5).collect();
        assert_eq!(read_floats(&run, "encoder.codes"), codes);
        // Each code doubled, twice: 1 1 5 5 9 9 ... 29 29.
        let audio: Vec<f32> = codes.iter().flat_map(|code| [2.0 * code; 2]).collect();
        assert_eq!(read_floats(&run, "vocoder.audio"), audio);
        assert_eq!(audio[14..], [29.0, 29.0]);
    });
}

#[test]
fn tiny_diffusion() {
    for_each_mix("tiny-diffusion", &["denoiser", "vae"], |pipeline| {
        let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
        set_floats(&mut run, "denoiser.cond", &[1, 4], &[1.0, 2.0, 3.0, 4.0]);
        set_floats(&mut run, "denoiser.sample", &[1, 4], &[0.0; 4]);
        let control = RunControl::default();
        for done in 1..=3 {
            let event = run.step(&control).unwrap();
            assert_eq!(event.progress.unwrap().done, done);
            assert_eq!(event.finish.is_some(), done == 3);
        }
        run.finish(&control).unwrap();
        assert_eq!(read_floats(&run, "denoiser.denoised"), [0.875, 1.75, 2.625, 3.5]);
        assert_eq!(read_floats(&run, "vae.image"), [2.75, 4.5, 6.25, 8.0]);
    });
}

#[test]
fn tiny_tts_nested() {
    for_each_mix(
        "tiny-tts-nested",
        &["talker", "code_predictor", "vocoder"],
        |pipeline| {
            let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
            run.append_tokens(&[8]).unwrap();
            let control = RunControl::default();
            for frame in 0..3 {
                let event = run.step(&control).unwrap();
                assert_eq!(event.codes, [1, 2, 3, 4].map(|code| code + frame));
                assert_eq!(event.finish.is_some(), frame == 2);
            }
            run.finish(&control).unwrap();
            let codes = run.get_tensor("talker.output_codes").unwrap();
            assert_eq!((codes.dtype(), codes.shape()), (DataType::Int64, &[1, 3, 4][..]));
            let codes: Vec<i64> = codes
                .bytes()
                .chunks_exact(8)
                .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()))
                .collect();
            assert_eq!(codes, [1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6]);
            let audio: Vec<f32> = codes.iter().map(|&code| 2.0 * code as f32).collect();
            assert_eq!(read_floats(&run, "vocoder.audio"), audio);
        },
    );
}

/// What a repeated step feeds and what it gives crosses the seam without a copy.
#[test]
fn a_decode_step_copies_nothing_at_the_seam() {
    if copied_bytes().is_none() {
        eprintln!("NOT CHECKED: this build does not count copies");
        return;
    }
    for_each_mix("tiny-llm", &["model"], |pipeline| {
        let mut run = Run::new(pipeline, &settings(8)).unwrap();
        run.append_tokens(&[2, 4, 3]).unwrap();
        steps(&mut run, 3);
        let before = copied_bytes();
        steps(&mut run, 4);
        assert_eq!(copied_bytes(), before);
    });
}

#[test]
fn an_estimate_agrees_with_what_is_loaded() {
    for (name, kv) in [("tiny-llm", Some(2 * 2 * 8 * 4)), ("tiny-codec", None)] {
        let Some(path) = package(name) else { continue };
        let estimate = Pipeline::estimate(&runtime(), &PackageSource::Directory(path.clone()), None).unwrap();
        assert_eq!(estimate.kv_bytes_per_token, kv);
        let pipeline = open(&path, &[]);
        assert_eq!(pipeline.kv_bytes_per_token(), kv);
        for (component, info) in estimate.components.iter().zip(pipeline.components()) {
            assert_eq!(component.name, info.name);
            let size = std::fs::metadata(path.join(&info.file)).unwrap().len();
            assert_eq!(component.weight_bytes, size);
        }
    }
}

/// The environment variable says who is native; all others are on ONNX Runtime.
#[test]
#[cfg(all(feature = "native", feature = "ort"))]
fn backends_by_environment_variable() {
    let Some(path) = package("tiny-gemma4-vlm") else {
        return;
    };
    let open = |variable: &str, value: &str, backend: Option<BackendChoice>| {
        let environment = Environment::from_lookup(|name| (name == variable).then(|| value.into()));
        let options = PipelineOptions {
            backend,
            ..PipelineOptions::default()
        };
        let source = PackageSource::Directory(path.clone());
        Pipeline::open(
            &runtime_with(environment),
            &source,
            &options,
            None,
            &RunControl::default(),
        )
    };
    use oxpipe::runtime::{NATIVE_COMPONENTS_ALIAS, NATIVE_COMPONENTS_VARIABLE};
    for variable in [NATIVE_COMPONENTS_VARIABLE, NATIVE_COMPONENTS_ALIAS] {
        let pipeline = open(variable, "decoder, vision_encoder", None).unwrap();
        let found: Vec<(Backend, String)> = pipeline
            .components()
            .iter()
            .map(|component| (component.backend, component.reason.clone()))
            .collect();
        let listed = (Backend::Native, format!("listed in {variable}"));
        let others = (Backend::Ort, format!("not listed in {variable}"));
        assert_eq!(found, [listed.clone(), others, listed]);
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        set_floats(
            &mut run,
            "vision_encoder.pixel_values",
            &[1, 3, 2, 2],
            &image(1.0),
        );
        run.append_tokens(&[3, 7]).unwrap();
        assert_eq!(steps(&mut run, 4), [0, 5, 6, 7]);
        let error = open(variable, "decoder,tower", None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownComponent);
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("{variable} names \"tower\"")),
            "{message}"
        );
        // An option is stronger than the variable.
        let pipeline = open(variable, "decoder", Some(BackendChoice::Ort)).unwrap();
        assert!(
            pipeline
                .components()
                .iter()
                .all(|component| component.backend == Backend::Ort)
        );
    }
}

/// A package handed over in memory; its folder is not needed.
#[test]
fn files_in_memory() {
    let Some(path) = package("tiny-gemma4-vlm") else {
        return;
    };
    let files = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let bytes: oxpipe::component::SharedBytes =
                std::sync::Arc::new(std::fs::read(entry.path()).unwrap());
            (entry.file_name().into_string().unwrap(), bytes)
        })
        .collect();
    let source = PackageSource::Files(files);
    for backend in backends() {
        let options = PipelineOptions {
            backend: Some(backend),
            ..PipelineOptions::default()
        };
        let pipeline = Pipeline::open(&runtime(), &source, &options, None, &RunControl::default()).unwrap();
        assert!(pipeline.tokenizer().is_some());
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        set_floats(
            &mut run,
            "vision_encoder.pixel_values",
            &[1, 3, 2, 2],
            &image(1.0),
        );
        run.append_tokens(&[3, 7]).unwrap();
        assert_eq!(steps(&mut run, 4), [0, 5, 6, 7]);
    }
}
