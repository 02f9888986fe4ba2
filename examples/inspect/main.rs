//! Says what an ONNX model is made of, what of it runs natively, and what a run would take.
//!
//!     cargo run --release --example inspect -- model.onnx [INPUT=DIM,DIM,...]...
//!     cargo run --release --example inspect -- --to-metadata FOLDER [VARIANT]
//!     cargo run --release --example inspect -- --svg FOLDER [BACKEND] [COMPONENT=BACKEND]...
//!
//! Dims that the model leaves open and the command does not give are taken as 1. The second form
//! writes a package of onnxruntime-genai or Hugging Face as `inference_metadata.yaml`, the third draws
//! any package as it is loaded, both to standard output.

mod svg;

use std::process::ExitCode;

use oxpipe::component::RunControl;
use oxpipe::component::{ComponentError, ComponentIo, ComponentSession, Dim, ModelSource, Port};
use oxpipe::native::{NativeOptions, NativeSession, OperatorUse, RunEstimate, report};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, PipelineError, PipelineOptions};
use oxpipe::runtime::{BackendChoice, Runtime};

const USAGE: &str = "usage: inspect MODEL.onnx [INPUT=DIM,DIM,...]...
       inspect --to-metadata FOLDER [VARIANT]
       inspect --svg FOLDER [BACKEND] [COMPONENT=BACKEND]...";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next().filter(|first| first != "--help") else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if path == "--to-metadata" {
        let (Some(folder), variant, None) = (arguments.next(), arguments.next(), arguments.next()) else {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        };
        let source = PackageSource::Directory(folder.into());
        return match Pipeline::to_metadata(&source, variant.as_deref()) {
            Ok(metadata) => {
                print!("{metadata}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("inspect: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if path == "--svg" {
        let folder = arguments.next();
        let options = arguments.try_fold(PipelineOptions::default(), with_backend);
        let (Some(folder), Some(options)) = (folder, options) else {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        };
        return match picture(&PackageSource::Directory(folder.into()), &options) {
            Ok(svg) => {
                print!("{svg}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("inspect: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let given: Option<Vec<(String, Vec<usize>)>> = arguments.map(|argument| shape(&argument)).collect();
    let Some(given) = given else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match inspect(&path, &given) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inspect: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `native`, for every component, or `decoder=ort`, for one.
fn with_backend(mut options: PipelineOptions, argument: String) -> Option<PipelineOptions> {
    let (component, backend) = match argument.rsplit_once('=') {
        Some((component, backend)) => (Some(component.to_owned()), backend),
        None => (None, argument.as_str()),
    };
    let choice = match backend {
        "native" => BackendChoice::Native,
        "ort" => BackendChoice::Ort,
        "auto" => BackendChoice::Auto,
        _ => return None,
    };
    match component {
        Some(component) => options.component_backends.push((component, choice)),
        None => options.backend = Some(choice),
    }
    Some(options)
}

fn picture(source: &PackageSource, options: &PipelineOptions) -> Result<String, PipelineError> {
    let runtime = Runtime::default();
    let estimate = Pipeline::estimate(&runtime, source, options.variant.as_deref())?;
    let bytes: Vec<(String, u64)> = estimate
        .components
        .into_iter()
        .map(|component| (component.name, component.weight_bytes))
        .collect();
    let pipeline = Pipeline::open(&runtime, source, options, None, &RunControl::default())?;
    Ok(svg::draw(&pipeline.describe(), &bytes))
}

/// `name=1,2,3`; a scalar is `name=`.
fn shape(argument: &str) -> Option<(String, Vec<usize>)> {
    let (name, dims) = argument.rsplit_once('=')?;
    let dims = dims.split(',').filter(|dim| !dim.is_empty());
    let dims: Option<Vec<usize>> = dims.map(|dim| dim.parse().ok()).collect();
    Some((name.to_owned(), dims?))
}

fn inspect(path: &str, given: &[(String, Vec<usize>)]) -> Result<(), ComponentError> {
    let source = ModelSource::file(path);
    let model = report(&source)?;
    let producer = match model.producer.as_str() {
        "" => "an unnamed producer",
        producer => producer,
    };
    println!("{path}: IR version {}, made by {producer}", model.ir_version);
    match NativeSession::load("", &source, &NativeOptions::default()) {
        Ok(mut session) => {
            let io = session.io().clone();
            ports(&io);
            operators(&model.operators);
            println!("\nRuns natively.");
            passes(&session.passes());
            let shapes: Vec<(&str, Vec<usize>)> = io
                .inputs
                .iter()
                .map(|port| (port.name.as_str(), dims_of(port, given)))
                .collect();
            let inputs: Vec<(&str, &[usize])> = shapes
                .iter()
                .map(|(name, dims)| (*name, dims.as_slice()))
                .collect();
            cost(&inputs, &session.estimate(&inputs)?);
        }
        Err(error) => {
            ports(&model.io);
            operators(&model.operators);
            println!("\nDoes not run natively: {error}");
        }
    }
    Ok(())
}

fn ports(io: &ComponentIo) {
    for (what, ports) in [("inputs", &io.inputs), ("outputs", &io.outputs)] {
        println!("\n{what}:");
        for port in ports {
            let optional = if port.optional { ", may be left out" } else { "" };
            println!("  {}: {} {}{optional}", port.name, port.ty, port.display_dims());
        }
    }
}

fn operators(operators: &[OperatorUse]) {
    println!("\noperators (nodes, name, version of the model, native definition):");
    for operator in operators {
        let domain = match operator.domain.as_str() {
            "" => "ai.onnx",
            domain => domain,
        };
        let native = match &operator.native {
            Ok(since) => format!("since {since}"),
            Err(reason) => format!("NONE: {reason}"),
        };
        println!(
            "  {:>6}  {domain}.{} {} ({native})",
            operator.count, operator.op_type, operator.version
        );
    }
}

fn passes(passes: &[(&str, usize)]) {
    let passes: Vec<String> = passes
        .iter()
        .map(|(name, times)| format!("{name} {times}"))
        .collect();
    if !passes.is_empty() {
        println!(
            "Graph passes that changed it, and how often: {}.",
            passes.join(", ")
        );
    }
}

fn dims_of(port: &Port, given: &[(String, Vec<usize>)]) -> Vec<usize> {
    if let Some((_, dims)) = given.iter().find(|(name, _)| *name == port.name) {
        return dims.clone();
    }
    let dims = port.dims.iter().flatten();
    dims.map(|dim| match dim {
        Dim::Fixed(size) => usize::try_from(*size).unwrap_or(1),
        Dim::Symbol(_) => 1,
    })
    .collect()
}

fn cost(inputs: &[(&str, &[usize])], estimate: &RunEstimate) {
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let shapes: Vec<String> = inputs
        .iter()
        .map(|(name, dims)| format!("{name} {dims:?}"))
        .collect();
    println!("A run with {}:", shapes.join(", "));
    println!("  {} nodes", estimate.nodes);
    println!("  reads {:.2} MiB of weights", mebibytes(estimate.weight_bytes));
    println!(
        "  holds up to {:.2} MiB of results at a time",
        mebibytes(estimate.peak_bytes)
    );
    println!(
        "  multiplies {:.3} million times in matrix products and convolutions",
        estimate.multiply_adds as f64 / 1e6
    );
    if estimate.with_graphs > 0 {
        println!(
            "  and what is in the graphs of {} nodes (If, Loop, ...), which is not counted",
            estimate.with_graphs
        );
    }
    if estimate.unknown > 0 {
        println!(
            "  and makes {} results whose size only the run tells",
            estimate.unknown
        );
    }
}
