//! The most memory that a pipeline, a run and an image may take: refused before it is taken, with what
//! was asked for, what the limit is and which option it is from; the run stays as it was.

use std::ops::ControlFlow;

use oxpipe::component::RunControl;
use oxpipe::media::image::RgbImage;
#[cfg(feature = "native")]
use oxpipe::native::ModelFiles;
#[cfg(feature = "native")]
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineError, PipelineOptions, Run, RunSettings};
#[cfg(feature = "native")]
use oxpipe::runtime::BackendChoice;
#[cfg(feature = "native")]
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node, Tensor};

use super::fake::{Fake, continuation, float_tensor, io, open};
use super::genai::{DECODER, decoder_files};
use super::tiny::{Decoder, backends, open_with};
#[cfg(feature = "native")]
use super::tiny::{runtime, set_floats};

fn assert_refused(error: &PipelineError, words: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "\"{word}\" is not in: {text}");
    }
}

#[test]
fn of_a_pipeline_counts_its_files_before_they_are_loaded() {
    let files = decoder_files(DECODER);
    let bytes = files.last().unwrap().1.len() as u64;
    for backend in backends() {
        let open = |limit| {
            let options = PipelineOptions {
                backend: Some(backend),
                memory_bytes: Some(limit),
                ..PipelineOptions::default()
            };
            open_with(&files, &options)
        };
        let error = open(bytes - 1).unwrap_err();
        let (asked, limit) = (format!("{bytes} bytes"), format!("{}", bytes - 1));
        assert_refused(
            &error,
            &["the pipeline", &asked, &limit, "memory_bytes", "raise it"],
        );
        assert!(error.component().is_some(), "{error}");
        open(1 << 20).unwrap();
    }
}

/// Two components of one data file: it is mapped, and counts, once.
#[cfg(feature = "native")]
#[test]
fn of_a_pipeline_counts_a_file_of_two_components_once() {
    const BYTES: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let model = |shape: &str| {
        Model::new()
            .input("x", FLOAT, shape)
            .output("y", FLOAT, "[n]")
            .initializer(Tensor::external("w", FLOAT, &[BYTES as i64 / 4], "w.bin", None))
            .node(Node::new("Add", &["x", "w"], &["y"]))
            .encode()
    };
    std::fs::write(folder.path().join("w.bin"), vec![0; BYTES]).unwrap();
    std::fs::write(folder.path().join("a.onnx"), model("[1]")).unwrap();
    std::fs::write(folder.path().join("b.onnx"), model("[n]")).unwrap();
    let yaml = "
pipeline:
  models: {a: {filename: a.onnx}, b: {filename: b.onnx}}
  dataflow: [{from: a.y, to: b.x}]
  strategy: {kind: composite, stages: [{name: first, strategy: {kind: single_pass, model: a}}, {name: second, strategy: {kind: single_pass, model: b}}]}
";
    std::fs::write(folder.path().join("inference_metadata.yaml"), yaml).unwrap();
    let source = PackageSource::Directory(folder.path().into());
    let open = |model_files| {
        let options = PipelineOptions {
            backend: Some(BackendChoice::Native),
            memory_bytes: Some(BYTES as u64 * 3 / 2),
            model_files,
            ..PipelineOptions::default()
        };
        Pipeline::open(&runtime(), &source, &options, None, &RunControl::default())
    };
    open(ModelFiles::Map).unwrap();
    assert_refused(
        &open(ModelFiles::Read).unwrap_err(),
        &["the pipeline", "memory_bytes"],
    );
}

/// Inputs whose sizes differ where the model has one name for them need a second graph, with packed
/// weights of its own. The files still count then.
#[cfg(feature = "native")]
#[test]
fn of_a_pipeline_counts_its_files_when_more_is_loaded_later() {
    const SIZE: i64 = 64;
    let weights: Vec<f32> = (0..SIZE * SIZE).map(|index| index as f32).collect();
    let model = Model::new()
        .input("a", FLOAT, "[n, 64]")
        .input("b", FLOAT, "[n, 64]")
        .output("y", FLOAT, "[m, 64]")
        .initializer(Tensor::floats("w", &[SIZE, SIZE], &weights))
        .node(Node::new("MatMul", &["a", "w"], &["p"]))
        .node(Node::new("Add", &["p", "b"], &["y"]));
    let folder = tempfile::tempdir().unwrap();
    let yaml = "
pipeline:
  models: {m: {filename: m.onnx}}
  strategy: {kind: single_pass, model: m}
";
    let file = model.encode();
    std::fs::write(folder.path().join("m.onnx"), &file).unwrap();
    std::fs::write(folder.path().join("inference_metadata.yaml"), yaml).unwrap();
    let source = PackageSource::Directory(folder.path().into());
    let open = |limit| {
        let options = PipelineOptions {
            backend: Some(BackendChoice::Native),
            memory_bytes: Some(limit),
            ..PipelineOptions::default()
        };
        Pipeline::open(&runtime(), &source, &options, None, &RunControl::default())
    };
    // The least that it can be opened with: the file, and its weights packed.
    let files = file.len() as u64;
    let limits: Vec<u64> = (files..4 * files).collect();
    let least = limits[limits.partition_point(|&limit| open(limit).is_err())];
    let packed = least - files;
    assert!((1..=files).contains(&packed), "{packed}");
    let step_with = |limit, rows: i64| {
        let pipeline = open(limit).unwrap();
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        for (address, rows) in [("m.a", 1), ("m.b", rows)] {
            set_floats(
                &mut run,
                address,
                &[rows, SIZE],
                &vec![1.0; (rows * SIZE) as usize],
            );
        }
        run.step(&RunControl::default()).map(drop)
    };
    step_with(least, 1).unwrap();
    for limit in [least, least + packed - 1] {
        let error = step_with(limit, 3).unwrap_err();
        assert_refused(&error, &["the pipeline", &limit.to_string(), "memory_bytes"]);
    }
    step_with(least + packed, 3).unwrap();
}

/// Whole runs with every limit up to what is enough: what a limit allows does not depend on who else
/// has memory, and each answer is as far as it goes.
#[test]
fn of_a_run_leaves_it_as_it_was() {
    let files = decoder_files(DECODER);
    let prompt = [3, 5, 2];
    let expected = continuation(&prompt, 8, 0);
    for backend in backends() {
        let options = PipelineOptions {
            backend: Some(backend),
            ..PipelineOptions::default()
        };
        let pipeline = open_with(&files, &options).unwrap();
        let tokens_within = |limit: u64| {
            let settings = RunSettings {
                stop_on_eos: false,
                memory_bytes: Some(limit),
                ..RunSettings::default()
            };
            let mut run = Run::new(&pipeline, &settings).unwrap();
            run.append_tokens(&prompt).unwrap();
            let mut tokens = Vec::new();
            while tokens.len() < expected.len() {
                match run.step(&RunControl::default()) {
                    Ok(event) => tokens.push(event.token.unwrap()),
                    Err(error) => {
                        assert_refused(&error, &["the run", &limit.to_string(), "memory_bytes"]);
                        assert_eq!(run.tokens().len(), prompt.len() + tokens.len());
                        // It fails again in the same way, and goes on where there is room.
                        assert_refused(&run.step(&RunControl::default()).unwrap_err(), &["the run"]);
                        run.rewind(1).unwrap();
                        break;
                    }
                }
            }
            assert_eq!(tokens, expected[..tokens.len()]);
            tokens.len()
        };
        let counts: Vec<usize> = (1..60).map(|step| tokens_within(step * 16)).collect();
        assert!(counts.is_sorted(), "{backend:?}: {counts:?}");
        assert_eq!(tokens_within(1 << 20), expected.len());
        if backend.name() == "native" {
            assert_eq!(counts[0], 0, "{counts:?}");
        }
        // Once more, with what the session has kept.
        let again: Vec<usize> = (1..60).map(|step| tokens_within(step * 16)).collect();
        assert_eq!(again, counts);
    }
}

/// A run that is loaded counts as one that was fed does, and so does a whole search of beams, and what a
/// head keeps.
#[test]
fn of_a_run_holds_for_loaded_runs_and_beams() {
    let files = decoder_files(DECODER);
    let pipeline = open_with(&files, &PipelineOptions::default()).unwrap();
    let settings = |memory_bytes| RunSettings {
        stop_on_eos: false,
        memory_bytes,
        ..RunSettings::default()
    };
    let mut run = Run::new(&pipeline, &settings(None)).unwrap();
    run.append_tokens(&[3; 40]).unwrap();
    run.step(&RunControl::default()).unwrap();
    let state = run.save().unwrap();
    Run::load(&pipeline, &settings(Some(1 << 20)), &state).unwrap();
    let error = Run::load(&pipeline, &settings(Some(200)), &state).unwrap_err();
    assert_refused(&error, &["a saved run", "the run", "200", "memory_bytes"]);

    let search = |beams: &str, most| {
        let mut settings = settings(Some(most));
        settings.sampling.set("num_beams", beams).unwrap();
        settings.max_tokens = Some(8);
        let mut run = Run::new(&pipeline, &settings).unwrap();
        run.append_tokens(&[3; 40]).unwrap();
        run.generate(&RunControl::default(), &mut |_, _| ControlFlow::Continue(()))
            .map(|_| ())
    };
    let least = |beams| {
        (1..)
            .map(|step| step * 512)
            .find(|&most| search(beams, most).is_ok())
    };
    // Seven of eight beams have a cache of their own.
    let (two, eight) = (least("2").unwrap(), least("8").unwrap());
    assert!(eight > two + two / 2, "{two} and {eight}");
}

#[test]
fn of_an_image_counts_all_that_is_made_of_it() {
    let fake = Fake::new(io(&["x:float32[1,3,h,w]"], &["y:float32[1]"]), |_| {
        Ok(vec![("y", float_tensor(&[1], &[0.0]))])
    });
    let yaml = "
pipeline: {models: {m: {filename: m.onnx}}, strategy: {kind: single_pass, model: m}}
preprocessing:
  image:
    transforms:
      - {op: decode}
      - {op: resize, size: 50, interpolation: bilinear}
      - {op: rescale, scale: 0.5}
    outputs:
      - {name: m.x, content: pixels, dtype: float32}
";
    let pipeline: Pipeline = open(yaml, vec![("m", fake)]).unwrap();
    let image = RgbImage::from_raw(100, 100, &[7; 30_000]).unwrap();
    let add = |limit| {
        let settings = RunSettings {
            media_bytes: Some(limit),
            ..RunSettings::default()
        };
        let mut run = Run::new(&pipeline, &settings).unwrap();
        let added = run.add_image(&image, &RunControl::default());
        assert_eq!(run.get_tensor("m.x").is_ok(), added.is_ok());
        added
    };
    add(10 << 20).unwrap();
    for limit in [1, 1000, 100_000] {
        let error = add(limit).unwrap_err();
        assert_refused(&error, &["an image", &limit.to_string(), "media_bytes"]);
    }
}

/// A model whose graph has a node that has a graph, and so on.
fn nested(levels: usize) -> Vec<u8> {
    // From the innermost out, each field the last of its message: ModelProto.graph is 7,
    // GraphProto.node 1, NodeProto.attribute 5, AttributeProto.g 6.
    let mut headers: Vec<Vec<u8>> = Vec::new();
    let mut len = 0usize;
    let mut wrap = |field: u8| {
        let mut header = vec![field << 3 | 2];
        let mut rest = len;
        while rest > 0x7F {
            header.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        header.push(rest as u8);
        len += header.len();
        headers.push(header);
    };
    for _ in 0..levels {
        [6, 5, 1].into_iter().for_each(&mut wrap);
    }
    wrap(7);
    // IR version 8.
    let mut model = vec![0x08, 8];
    model.extend(headers.iter().rev().flatten());
    model
}

#[test]
fn graphs_nested_beyond_reason_are_refused_by_every_reader() {
    let mut files = decoder_files(DECODER);
    let small = std::thread::Builder::new().stack_size(2 << 20);
    let test = move || {
        for levels in [100, 100_000] {
            files.last_mut().unwrap().1 = nested(levels);
            for backend in backends() {
                let options = PipelineOptions {
                    backend: Some(backend),
                    ..PipelineOptions::default()
                };
                let error = open_with(&files, &options).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::BadModel, "{backend}: {error}");
            }
            let source = super::tiny::source(&files);
            // It reads no more than the ports, of which there are none.
            assert!(Pipeline::estimate(&super::tiny::runtime(), &source, None).is_err());
        }
    };
    small.spawn(test).unwrap().join().unwrap();
}

#[test]
fn caches_of_absurd_sizes_are_refused() {
    let large = "1152921504606846976";
    for sizes in [[large, "1"], ["1", large], [large, large]] {
        let decoder = Decoder {
            sizes,
            ..Decoder::default()
        };
        let mut files = decoder_files(DECODER);
        files.last_mut().unwrap().1 = decoder.encode();
        for backend in backends() {
            let options = PipelineOptions {
                backend: Some(backend),
                ..PipelineOptions::default()
            };
            let generated = open_with(&files, &options).and_then(|pipeline| {
                let mut run = Run::new(&pipeline, &RunSettings::default())?;
                run.append_tokens(&[3, 5, 2])?;
                run.step(&RunControl::default())
            });
            assert!(generated.is_err(), "{backend} {sizes:?}");
        }
    }
}

/// Of two runs of the same tokens the one with a draft needs room for that, too.
#[test]
fn of_a_run_holds_for_its_draft() {
    let files = decoder_files(DECODER);
    let pipeline = open_with(&files, &PipelineOptions::default()).unwrap();
    let draft = open_with(&files, &PipelineOptions::default()).unwrap();
    let is_enough = |with_draft: bool, limit: u64| {
        let settings = RunSettings {
            stop_on_eos: false,
            max_tokens: Some(8),
            memory_bytes: Some(limit),
            ..RunSettings::default()
        };
        let mut run = Run::new(&pipeline, &settings).unwrap();
        if with_draft {
            run.set_draft(&draft).unwrap();
        }
        run.append_tokens(&[3; 40]).unwrap();
        let control = RunControl::default();
        let goes = (0..8).all(|_| run.step(&control).is_ok());
        goes && (!with_draft || run.stats().proposed_tokens > 0)
    };
    let least = |with_draft| (1..10_000).find(|step| is_enough(with_draft, step * 64)).unwrap();
    let (alone, both) = (least(false), least(true));
    assert!(both > alone + alone / 4, "{both} and {alone}");
}
