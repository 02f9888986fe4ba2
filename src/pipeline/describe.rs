use serde_json::{Value, json};

use crate::component::{Dim, Port};

use super::{ComponentInfo, IterationInfo, NestedInfo, Pipeline};

/// A pipeline as JSON, for people and tools.
pub(super) fn describe(pipeline: &Pipeline) -> Value {
    let package = pipeline.package();
    json!({
        "format": package.format,
        "metadata_file": package.metadata_file.display().to_string(),
        "strategy": package.strategy,
        "decoder": package.decoder,
        "nested": package.nested.as_ref().map(nested),
        "iteration": package.iteration.as_ref().map(iteration),
        "eos_token_ids": package.eos_token_ids,
        "context_length": package.context_length,
        "kv_bytes_per_token": pipeline.kv_bytes_per_token(),
        "tokenizer": pipeline.tokenizer().map(|tokenizer| json!({ "vocab_size": tokenizer.vocab_size() })),
        "chat_template": pipeline.chat_template().is_some(),
        "components": pipeline.components().iter().map(component).collect::<Vec<_>>(),
    })
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

fn component(info: &ComponentInfo) -> Value {
    json!({
        "name": info.name,
        "type": info.component_type,
        "file": info.file,
        "backend": info.backend.name(),
        "reason": info.reason,
        "phase": info.phase.name(),
        "when_present": info.when_present,
        "inputs": info.io.inputs.iter().map(port).collect::<Vec<_>>(),
        "outputs": info.io.outputs.iter().map(port).collect::<Vec<_>>(),
    })
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
