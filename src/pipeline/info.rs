//! What an open pipeline tells of its package and of its components.

use std::path::PathBuf;

use crate::component::{Backend, ComponentIo};
use crate::package::{Iteration, Package, Phase, PipelineSpec};

/// A component of an open pipeline.
#[derive(Clone, Debug)]
pub struct ComponentInfo {
    pub name: String,
    /// The package's word for what it is: `decoder`, `vision_encoder`, ...; may be empty.
    pub component_type: String,
    /// Relative to the package.
    pub file: String,
    pub backend: Backend,
    /// Why that backend.
    pub reason: String,
    pub phase: Phase,
    /// Set when it only runs if the request brings that modality.
    pub when_present: Option<String>,
    pub io: ComponentIo,
}

/// What the package is.
#[derive(Clone, Debug)]
pub struct PackageInfo {
    /// `inference_metadata`, later `genai_config` and `huggingface`.
    pub format: &'static str,
    /// The metadata file that was taken.
    pub metadata_file: PathBuf,
    /// `autoregressive`, `nested_autoregressive`, `single_pass`, `iterative` or `composite`.
    pub strategy: &'static str,
    /// The component that chooses tokens, if there is a token loop.
    pub decoder: Option<String>,
    /// The loop inside of each of the decoder's steps, if they are frames of codes.
    pub nested: Option<NestedInfo>,
    /// The loop of an iterative strategy, alone or as a stage; of several the one that
    /// [`RunSettings`](super::RunSettings) are about.
    pub iteration: Option<IterationInfo>,
    /// All loops, in the order of the stages.
    pub iterations: Vec<IterationInfo>,
    /// Any of these ends the text.
    pub eos_token_ids: Vec<i32>,
    /// The most tokens that a sequence may have, if the package says so.
    pub context_length: Option<u64>,
}

/// A decoder that makes the codes of a frame for each step of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedInfo {
    /// The inner decoder.
    pub inner: String,
    /// Codes of a frame.
    pub num_code_groups: usize,
    /// Who makes the outer decoder's input of the frame before, if it does not read tokens.
    pub pre_embedder: Option<String>,
    /// Who makes its first input of the prompt.
    pub prefill_embedder: Option<String>,
}

/// A component that runs again and again over what it made.
#[derive(Clone, Debug, PartialEq)]
pub struct IterationInfo {
    pub denoiser: String,
    /// The inputs that take what the step before has made, in the order of the package's edges.
    pub looped_inputs: Vec<String>,
    pub num_steps: usize,
    pub start_step: usize,
    /// `ddim`, `euler`, ...
    pub scheduler: Option<&'static str>,
    /// Set where guidance is possible; 1 is none.
    pub guidance_scale: Option<f64>,
}

pub(super) fn package_info(package: &Package, spec: &PipelineSpec) -> PackageInfo {
    let decoder = spec
        .token_loop
        .and_then(|token_loop| spec.components.get(token_loop.decoder));
    let iterations: Vec<IterationInfo> = spec
        .iterations
        .iter()
        .filter_map(|iteration| iteration_info(spec, iteration))
        .collect();
    PackageInfo {
        format: package.format,
        metadata_file: package.metadata_file.clone(),
        strategy: spec.strategy,
        decoder: decoder.map(|component| component.name.clone()),
        nested: spec.nested.map(|nested| {
            let name = |index: usize| {
                let component = spec.components.get(index);
                component.map_or(String::new(), |component| component.name.clone())
            };
            let pre = nested.pre_embedder;
            NestedInfo {
                inner: name(nested.inner),
                num_code_groups: nested.groups,
                pre_embedder: pre.map(|pre| name(pre.component)),
                prefill_embedder: pre
                    .and_then(|pre| pre.prefill)
                    .map(|prefill| name(prefill.component)),
            }
        }),
        iteration: spec.settings_loop().and_then(|of| iterations.get(of).cloned()),
        iterations,
        eos_token_ids: spec.eos_token_ids.clone(),
        context_length: spec.context_length,
    }
}

fn iteration_info(spec: &PipelineSpec, iteration: &Iteration) -> Option<IterationInfo> {
    let component = spec.components.get(iteration.denoiser)?;
    let looped = iteration
        .states
        .iter()
        .filter_map(|state| component.io.inputs.get(state.input));
    Some(IterationInfo {
        denoiser: component.name.clone(),
        looped_inputs: looped.map(|port| port.name.clone()).collect(),
        num_steps: iteration.num_steps,
        start_step: iteration.start_step,
        scheduler: iteration.scheduler.as_ref().map(|said| said.value.name()),
        guidance_scale: iteration.guidance.map(|guidance| guidance.scale),
    })
}
