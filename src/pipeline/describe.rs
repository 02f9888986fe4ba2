use serde_json::{Map, Value, json};

use crate::component::{Dim, Port};
use crate::generation::SAMPLING_OPTIONS;
use crate::package::{
    self, ComponentSpec, GenerationDefaults, InputDim, InputSource, InputSpec, OutputRole, OutputSpec,
    PipelineSpec, Readout,
};

use super::{ComponentInfo, IterationInfo, NestedInfo, Phase, Pipeline};

/// A pipeline as JSON, for people and tools.
pub(super) fn describe(pipeline: &Pipeline) -> Value {
    let package = pipeline.package();
    let spec = &pipeline.shared().spec;
    let components = pipeline.components().iter().zip(&spec.components);
    let components = components.map(|(info, component)| self::component(info, spec, component));
    json!({
        "format": package.format,
        "metadata_file": package.metadata_file.display().to_string(),
        "strategy": package.strategy,
        "decoder": package.decoder,
        "nested": package.nested.as_ref().map(nested),
        "iteration": package.iteration.as_ref().map(iteration),
        "iterations": package.iterations.iter().map(iteration).collect::<Vec<_>>(),
        "eos_token_ids": package.eos_token_ids,
        "context_length": package.context_length,
        "kv_bytes_per_token": pipeline.kv_bytes_per_token(),
        "tokenizer": pipeline.tokenizer().map(|tokenizer| json!({ "vocab_size": tokenizer.vocab_size() })),
        "chat_template": pipeline.chat_template().is_some(),
        "components": components.collect::<Vec<_>>(),
        "first_pass": spec.first_pass.as_ref().map(|first| name(spec, first.component)),
        "order": spec.order.iter().map(|&index| name(spec, index)).collect::<Vec<_>>(),
        "max_tokens": spec.max_tokens,
        "generation": generation(&spec.generation),
        "joins_runs": joins_runs(pipeline),
        "readout": readout(pipeline),
        "head": head(pipeline),
        "images": images(spec),
        "audio": audio(spec),
        "tokens": spec.token_roles.iter().map(|(role, id)| ((*role).to_owned(), json!(id))).collect::<Map<_, _>>(),
    })
}

/// The package's own head that guesses tokens.
fn head(pipeline: &Pipeline) -> Option<Value> {
    let head = pipeline.shared().head.as_ref()?;
    Some(json!({
        "component": head.name,
        "backend": head.backend.to_string(),
        "reason": head.reason,
        "num_speculative_tokens": head.spec.tokens,
    }))
}

/// What becomes of an image that the host gives; nothing where the package does not say it.
fn images(spec: &PipelineSpec) -> Option<Value> {
    let (program, _) = spec.media.image.as_ref()?;
    let mut value = package::image_program(program);
    value["formats"] = json!(["jpeg", "png", "webp", "bmp", "raw RGB"]);
    value["size"] = json!(
        program
            .size()
            .map(|[height, width]| json!({ "height": height, "width": width }))
    );
    value["placeholders"] = json!(spec.media.placeholders.as_ref().map(package::placeholders));
    Some(value)
}

/// What becomes of sound.
fn audio(spec: &PipelineSpec) -> Option<Value> {
    let (program, _) = spec.media.audio.as_ref()?;
    let mut value = package::audio_program(program);
    value["formats"] = json!(["wav", "flac", "mp3", "raw float32"]);
    value["sample_rate"] = json!(program.rate());
    Some(value)
}

/// The components that runs which step together go through as one, weights read once.
fn joins_runs(pipeline: &Pipeline) -> Vec<&str> {
    let shared = pipeline.shared();
    let components = shared.spec.components.iter().zip(&shared.joins_calls);
    let joining = components.filter(|(component, joins)| **joins && component.phase == Phase::EveryStep);
    joining.map(|(component, _)| component.name.as_str()).collect()
}

/// What becomes of the output for a text.
fn readout(pipeline: &Pipeline) -> Value {
    match &pipeline.shared().readout {
        None => Value::Null,
        Some(Readout::Embedding {
            pooling,
            normalize,
            max_tokens,
        }) => {
            let pooling = pooling.name();
            json!({ "embedding": { "pooling": pooling, "normalize": normalize, "max_seq_length": max_tokens } })
        }
        Some(Readout::Classes { labels, activation }) => {
            json!({ "classifier": { "labels": labels, "activation": activation.name() } })
        }
    }
}

fn generation(defaults: &GenerationDefaults) -> Value {
    let mut sampling = defaults.sampling.clone();
    let options = SAMPLING_OPTIONS.iter();
    let mut all: Map<String, Value> = options
        .map(|option| (option.name.to_owned(), json!(option.to_json(&mut sampling))))
        .collect();
    all.insert("seed".to_owned(), json!(defaults.seed));
    all.insert("max_length".to_owned(), json!(defaults.max_length));
    Value::Object(all)
}

fn nested(info: &NestedInfo) -> Value {
    json!({
        "inner": info.inner,
        "num_code_groups": info.num_code_groups,
        "pre_embedder": info.pre_embedder,
        "prefill_embedder": info.prefill_embedder,
    })
}

fn iteration(info: &IterationInfo) -> Value {
    json!({
        "denoiser": info.denoiser,
        "looped_inputs": info.looped_inputs,
        "num_steps": info.num_steps,
        "start_step": info.start_step,
        "scheduler": info.scheduler,
        "guidance_scale": info.guidance_scale,
    })
}

fn component(info: &ComponentInfo, spec: &PipelineSpec, component: &ComponentSpec) -> Value {
    let inputs = info.io.inputs.iter().zip(&component.inputs);
    let outputs = info.io.outputs.iter().zip(&component.outputs);
    json!({
        "name": info.name,
        "type": info.component_type,
        "file": info.file,
        "backend": info.backend.name(),
        "reason": info.reason,
        "phase": info.phase.name(),
        "when_present": info.when_present,
        "inputs": inputs.map(|(port, input)| self::input(port, input, spec, component)).collect::<Vec<_>>(),
        "outputs": outputs.map(|(port, output)| self::output(port, output)).collect::<Vec<_>>(),
    })
}

/// A port and where its value comes from.
fn input(port: &Port, input: &InputSpec, spec: &PipelineSpec, component: &ComponentSpec) -> Value {
    let mut value = self::port(port);
    let output = |index: usize| {
        component
            .io
            .outputs
            .get(index)
            .map_or("", |port| port.name.as_str())
    };
    let source = match input.source {
        InputSource::Tokens => json!("tokens"),
        InputSource::AttentionMask => json!("attention_mask"),
        InputSource::Positions {
            coordinates: Some(continuation),
            ..
        } => json!(format!("positions: {}", continuation.name())),
        InputSource::Positions { .. } => json!("positions"),
        InputSource::OutputIds => json!("output_ids"),
        InputSource::OutputCodes => json!("output_codes"),
        InputSource::Nested(_) => json!("frames"),
        InputSource::Length { of, .. } => json!(format!("length: {}", of.name())),
        InputSource::Ones => json!("ones"),
        InputSource::CacheBranch { .. } => json!("whether there is a cache"),
        InputSource::Held { output: index } => json!({ "held": output(index) }),
        InputSource::Timestep => json!("timestep"),
        InputSource::Request { required: true } => json!("request"),
        InputSource::Request { required: false } => json!("request, or the graph's default"),
        InputSource::Past { output: index } => json!({ "cache": output(index) }),
        InputSource::State { output: index } => json!({ "state": output(index) }),
        InputSource::Loop { .. } => json!("loop"),
        InputSource::LoopResult { state } => {
            let made_by = spec.loop_state(state).map(|(iteration, _)| iteration.denoiser);
            let denoiser = made_by.and_then(|index| spec.components.get(index));
            json!({ "loop_result": denoiser.map(|denoiser| &denoiser.name) })
        }
        InputSource::Edge(from) => {
            let source = spec.components.get(from.component);
            let port = source.and_then(|source| source.io.outputs.get(from.output));
            json!({ "edge": format!("{}.{}", name(spec, from.component), port.map_or("", |port| &port.name)) })
        }
    };
    let absent = input.absent.as_ref().map(|absent| {
        let dims = absent.dims.iter().map(|dim| match *dim {
            InputDim::Fixed(size) => json!(size),
            InputDim::SameAs { input, axis } => {
                let port = component
                    .io
                    .inputs
                    .get(input)
                    .map_or("", |port| port.name.as_str());
                json!(format!("{port}[{axis}]"))
            }
        });
        json!({
            "modality": absent.modality,
            "zeros": dims.collect::<Vec<_>>(),
            "first_pass_only": absent.first_pass_only,
        })
    });
    if let Some(fields) = value.as_object_mut() {
        fields.insert("source".to_owned(), source);
        fields.insert("absent".to_owned(), absent.unwrap_or_default());
        let merges = input.merges.iter().map(|merge| {
            let source = spec.components.get(merge.features.component);
            let port = source.and_then(|source| source.io.outputs.get(merge.features.output));
            let features = format!(
                "{}.{}",
                name(spec, merge.features.component),
                port.map_or("", |port| &port.name)
            );
            json!({ "token_id": merge.token, "features": features })
        });
        fields.insert("merges".to_owned(), merges.collect());
    }
    value
}

/// A port and what becomes of its value.
fn output(port: &Port, output: &OutputSpec) -> Value {
    let mut value = self::port(port);
    let role = match &output.role {
        OutputRole::Plain => Value::Null,
        OutputRole::Present { axis, in_place, .. } => {
            json!({ "cache": { "sequence_axis": axis, "in_place": in_place.is_some() } })
        }
        OutputRole::State { .. } => json!("state"),
        OutputRole::Held => json!("held"),
    };
    if let Some(fields) = value.as_object_mut() {
        fields.insert("role".to_owned(), role);
    }
    value
}

fn name(spec: &PipelineSpec, component: usize) -> &str {
    let component = spec.components.get(component);
    component.map_or("", |component| component.name.as_str())
}

fn port(port: &Port) -> Value {
    let dims = port.dims.as_ref().map(|dims| {
        dims.iter()
            .map(|dim| match dim {
                Dim::Fixed(size) => json!(size),
                Dim::Symbol(Some(name)) => json!(name),
                Dim::Symbol(None) => Value::Null,
            })
            .collect::<Vec<_>>()
    });
    json!({
        "name": port.name,
        "dtype": port.ty.to_string(),
        "dims": dims,
        "optional": port.optional,
    })
}
