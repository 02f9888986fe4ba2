//! Reader of `genai_config.json`, the package format of onnxruntime-genai.
//!
//! Keys and the names that ports have by default are those of its `src/config.h` and
//! `src/config.cpp`, version 0.18. What the file says about components is read here; which of the
//! named ports there are is known when the graphs are, and `genai_ports` binds them then. Unlike
//! the original, no `model.type` is unknown: what runs is told by the sections and the ports.

use std::collections::HashMap;

use crate::runtime::OrtSettings;

use super::declaration::{
    ComponentDeclaration, Declaration, GenerationDefaults, MediaDeclaration, Phase, Said,
    StrategyDeclaration, StrategyKind,
};
use super::document::{Cursor, Document, Fields};
use super::genai_names::{DecoderNames, EmbeddingNames, EncoderNames, Names, Sizes, decoder_names};
use super::genai_ports::{GenaiPorts, Part, Stage};
use super::generation_defaults::{read_defaults, read_roles, token_ids};
use super::metadata::{component_name, said};
use super::processor::ProcessorFiles;
use super::session_options::{inherit, read_session_options};
use super::speculator::{self, Speculator};
use super::{Location, PackageError, PackageErrorKind};

/// The most layers that a model may have.
const MAX_LAYERS: u64 = 10_000;
/// The most stages that a decoder may be cut into.
const MAX_STAGES: usize = 256;

/// Reads a document: what it declares without the ports, and the names of these.
pub(super) fn read(document: &Document) -> Result<(Declaration, GenaiPorts, Speculator), PackageError> {
    let root = document.root();
    let mut fields = root.fields()?;
    let model_at = fields.required("model", "the model's components and token ids")?;
    let search = fields.get("search");
    fields.skip(&["engine"]);
    if let Some(speculative) = fields.get("speculative") {
        speculative.warn("not used; speculation is an option of runs");
    }
    fields.finish();

    let mut model = model_at.fields()?;
    let mut reader = Reader::default();
    let decoder_at = model.required("decoder", "the component that chooses tokens")?;
    reader.tokenizer = tokenizer_of(&mut model)?;
    if let Some(at) = model.get("vision") {
        reader.vision(&at)?;
    }
    if let Some(at) = model.get("speech") {
        reader.speech(&at)?;
    }
    if let Some(at) = model.get("embedding") {
        reader.embedding(&at)?;
    }
    if let Some(at) = model.get("encoder") {
        reader.encoder(&at)?;
    }
    let chooser = reader.decoder(&decoder_at)?;
    for (section, what) in [
        ("joiner", "a transducer (model.joiner)"),
        ("vad", "detection of voices (model.vad)"),
    ] {
        if let Some(at) = model.get(section) {
            return Err(at.unsupported(what));
        }
    }
    let mtp = model.get("mtp");
    for section in ["dflash2", "draft"] {
        if let Some(at) = model.get(section) {
            at.warn("not used by this version, which runs heads of model.mtp; a draft is set on runs");
        }
    }
    let context_length = counted(&mut model, "context_length")?.filter(|&length| length > 0);
    let eos = model.get("eos_token_id").map(|at| token_ids(&at)).transpose()?;
    let token_roles = read_roles(&mut model)?;
    model.skip(&["type", "vocab_size"]);
    model.skip(OTHER_MODEL_KEYS);
    model.finish();

    let declaration = Declaration {
        by_name: reader.by_name()?,
        components: reader.components,
        edges: Vec::new(),
        strategy: StrategyDeclaration {
            kind: StrategyKind::Autoregressive,
            decoder: Some(chooser),
            first_pass: None,
            model: None,
            staged: Vec::new(),
            iterative: Vec::new(),
            max_tokens: None,
            nested: None,
            at: decoder_at.location(),
        },
        linear_positions: true,
        coordinates: None,
        positions_input: None,
        context_length,
        generation: read_search(search, context_length)?,
        eos_token_ids: eos.unwrap_or_default(),
        media: MediaDeclaration::default(),
        token_roles,
    };
    let speculator = match &mtp {
        Some(section) => speculator::of_genai(section, &declaration)?,
        None => Speculator::None,
    };
    Ok((
        declaration,
        GenaiPorts {
            parts: reader.parts,
            processors: reader.processors,
        },
        speculator,
    ))
}

/// Keys of `model` that change nothing here: token ids that a host may look for, and numbers of
/// streaming speech models.
const OTHER_MODEL_KEYS: &[&str] = &[
    "audio_token_id",
    "boa_token_id",
    "bor_token_id",
    "bot_token_id",
    "eor_token_id",
    "eot_token_id",
    "sample_rate",
    "num_mels",
    "fft_size",
    "hop_length",
    "win_length",
];

/// The folder that the tokenizer's files lie in, where it is not that of the package.
fn tokenizer_of(model: &mut Fields<'_>) -> Result<Option<Said<String>>, PackageError> {
    let Some(at) = model.get("tokenizer_dir") else {
        return Ok(None);
    };
    let mut folder = said(at)?;
    let trimmed = folder.value.trim_end_matches('/');
    if matches!(trimmed, "" | ".") {
        return Ok(None);
    }
    folder.value = format!("{trimmed}/tokenizer.json");
    Ok(Some(folder))
}

/// The defaults of `search`. A length that is 0 or left out is that of the context.
fn read_search(
    search: Option<Cursor<'_>>,
    context_length: Option<u64>,
) -> Result<GenerationDefaults, PackageError> {
    let mut generation = GenerationDefaults::default();
    if let Some(search) = search {
        let mut fields = search.fields()?;
        generation = read_defaults(&mut fields, 0)?;
        if let Some(batch) = fields.get("batch_size") {
            let size = batch.count(0)?;
            if size > 1 {
                batch.warn("a run of this library is one sequence");
            }
        }
        if let Some(share) = fields.get("past_present_share_buffer") {
            // Caches lie in place wherever that is possible, whatever this says.
            share.bool()?;
        }
        if let Some(seed) = fields.get("random_seed") {
            // A negative one is another one each time, which is for the host to give.
            generation.seed = u64::try_from(seed.integer()?).ok();
        }
        if let Some(penalty) = fields.get("blank_penalty")
            && penalty.number()? != 0.0
        {
            penalty.warn("not done by this version; tokens are chosen without it");
        }
        fields.skip(&["chunk_size"]);
        fields.finish();
    }
    let length = generation.max_length.filter(|&length| length > 0);
    generation.max_length = match (length, context_length) {
        (Some(length), Some(limit)) => Some(length.min(limit)),
        (length, limit) => length.or(limit),
    };
    Ok(generation)
}

fn counted(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<u64>, PackageError> {
    fields.get(name).map(|at| at.count(0)).transpose()
}

/// Components as they are read, and the names of their ports.
#[derive(Default)]
struct Reader {
    components: Vec<ComponentDeclaration>,
    parts: Vec<Part>,
    tokenizer: Option<Said<String>>,
    processors: ProcessorFiles,
}

impl Reader {
    fn by_name(&self) -> Result<HashMap<String, usize>, PackageError> {
        let mut by_name = HashMap::new();
        for (index, component) in self.components.iter().enumerate() {
            if let Some(first) = by_name.insert(component.name.clone(), index)
                && let Some(first) = self.components.get(first)
            {
                let message = format!("there is a component of that name already, at {}", first.at);
                let kind = PackageErrorKind::Invalid { message };
                return Err(PackageError::new(component.at.clone(), kind));
            }
        }
        Ok(by_name)
    }

    fn push(&mut self, name: &str, component_type: &str, at: Location, file: Said<String>, part: Part) {
        self.components
            .push(ComponentDeclaration::new(name, component_type, at, file));
        self.parts.push(part);
    }

    /// Sets what the component that was pushed last has beside its ports.
    fn last(&mut self, ort: OrtSettings, modality: Option<(&str, &Location)>) {
        if let Some(component) = self.components.last_mut() {
            component.ort = ort;
            component.when_present = modality.map(|(name, at)| Said {
                value: name.to_owned(),
                at: at.clone(),
            });
        }
    }

    /// Encoder of a picture or of sound, which runs if the request brings such.
    fn vision(&mut self, at: &Cursor<'_>) -> Result<(), PackageError> {
        let mut fields = at.fields()?;
        if let Some(pipeline) = fields.get("pipeline") {
            return Err(pipeline.unsupported("a vision encoder in stages (model.vision.pipeline)"));
        }
        self.processors.image = fields.get("config_filename").map(said).transpose()?;
        // A section without a file has numbers alone.
        let Some(file) = file_of(&mut fields)? else {
            return Ok(());
        };
        let mut outputs = Names::of(&mut fields, "outputs", at)?;
        let features = outputs.name("image_features", "image_features")?;
        outputs.finish();
        let mut inputs = Names::of(&mut fields, "inputs", at)?;
        let wanted = inputs.all(&[
            "pixel_values",
            "pixel_position_ids",
            "image_sizes",
            "image_grid_thw",
            "attention_mask",
        ])?;
        inputs.finish();
        let ort = read_session_options(&mut fields)?;
        refuse_adapter(&mut fields)?;
        fields.skip(&[
            "spatial_merge_size",
            "tokens_per_second",
            "num_visual_tokens",
            "patch_size",
            "window_size",
        ]);
        fields.finish();
        let part = Part::Features {
            component: "vision",
            inputs: wanted,
            features,
        };
        self.push("vision", "vision_encoder", at.location(), file, part);
        self.last(ort, Some(("image", &at.location())));
        Ok(())
    }

    fn speech(&mut self, at: &Cursor<'_>) -> Result<(), PackageError> {
        let mut fields = at.fields()?;
        self.processors.audio = fields.get("config_filename").map(said).transpose()?;
        let Some(file) = file_of(&mut fields)? else {
            return Ok(());
        };
        let mut outputs = Names::of(&mut fields, "outputs", at)?;
        let features = outputs.name("audio_features", "audio_features")?;
        outputs.finish();
        let mut inputs = Names::of(&mut fields, "inputs", at)?;
        let wanted = inputs.all(&[
            "audio_embeds",
            "attention_mask",
            "audio_sizes",
            "audio_projection_mode",
        ])?;
        inputs.finish();
        let ort = read_session_options(&mut fields)?;
        refuse_adapter(&mut fields)?;
        fields.finish();
        let part = Part::Features {
            component: "speech",
            inputs: wanted,
            features,
        };
        self.push("speech", "audio_encoder", at.location(), file, part);
        self.last(ort, Some(("audio", &at.location())));
        Ok(())
    }

    fn embedding(&mut self, at: &Cursor<'_>) -> Result<(), PackageError> {
        let mut fields = at.fields()?;
        let Some(file) = file_of(&mut fields)? else {
            return Ok(());
        };
        let mut inputs = Names::of(&mut fields, "inputs", at)?;
        let input_ids = inputs.name("input_ids", "input_ids")?;
        let image_features = inputs.name("image_features", "image_features")?;
        let audio_features = inputs.name("audio_features", "audio_features")?;
        inputs.finish();
        let mut outputs = Names::of(&mut fields, "outputs", at)?;
        let embeddings = outputs.name("inputs_embeds", "inputs_embeds")?;
        let per_layer_inputs = outputs.name("per_layer_inputs", "")?;
        outputs.finish();
        let ort = read_session_options(&mut fields)?;
        fields.finish();
        let part = Part::Embedding(Box::new(EmbeddingNames {
            input_ids,
            image_features,
            audio_features,
            embeddings,
            per_layer_inputs,
        }));
        self.push("embedding", "embedding", at.location(), file, part);
        self.last(ort, None);
        Ok(())
    }

    fn encoder(&mut self, at: &Cursor<'_>) -> Result<(), PackageError> {
        let mut fields = at.fields()?;
        let Some(file) = file_of(&mut fields)? else {
            return Ok(());
        };
        let mut inputs = Names::of(&mut fields, "inputs", at)?;
        let audio_features = inputs.name("audio_features", "audio_features")?;
        let attention_mask = inputs.name("attention_mask", "attention_mask")?;
        let others = inputs.all(&["input_ids", "inputs_embeds", "position_ids"])?;
        inputs.finish();
        let mut outputs = Names::of(&mut fields, "outputs", at)?;
        let names = EncoderNames {
            layers: layers_of(&mut fields)?,
            others,
            audio_features,
            attention_mask,
            hidden_states: outputs.name("encoder_hidden_states", "encoder_hidden_states")?,
            encoder_outputs: outputs.name("encoder_outputs", "encoder_outputs")?,
            cross_keys: outputs.name("cross_present_key_names", "present_key_cross_%d")?,
            cross_values: outputs.name("cross_present_value_names", "present_value_cross_%d")?,
        };
        outputs.finish();
        let ort = read_session_options(&mut fields)?;
        fields.skip(SIZES);
        fields.finish();
        self.push(
            "encoder",
            "encoder",
            at.location(),
            file,
            Part::Encoder(Box::new(names)),
        );
        self.last(ort, None);
        Ok(())
    }

    /// The decoder, in one component or in stages. Gives the name of the one whose logits choose.
    fn decoder(&mut self, at: &Cursor<'_>) -> Result<Said<String>, PackageError> {
        let mut fields = at.fields()?;
        let layers = layers_of(&mut fields)?;
        let sizes = Sizes::read(&mut fields)?;
        let inputs = Names::of(&mut fields, "inputs", at)?;
        let outputs = Names::of(&mut fields, "outputs", at)?;
        let names = decoder_names(layers, sizes, inputs, outputs)?;
        if let Some(window) = fields.get("sliding_window") {
            refuse_sliding(&window)?;
        }
        let ort = read_session_options(&mut fields)?;
        fields.skip(SIZES);
        fields.skip(&[
            "layer_types",
            "conv_cache_size",
            "state_update_capacity",
            "ple_token_pad_id",
        ]);
        if let Some(shared) = fields.get("shared_initializers")
            && shared.items()?.next().is_some()
        {
            return Err(
                shared.unsupported("initializers that lie outside of the model (shared_initializers)")
            );
        }
        fields.skip(&["state_groups"]);
        let pipeline = fields.get("pipeline");
        let chooser = match pipeline {
            Some(pipeline) => {
                fields.skip(&["filename"]);
                self.stages(&pipeline, names, &ort)?
            }
            None => {
                let file = said(fields.required("filename", "the decoder's .onnx file")?)?;
                let part = Part::Decoder(Box::new(names), None);
                self.push("decoder", "decoder", at.location(), file, part);
                self.last(ort, None);
                Said {
                    value: "decoder".to_owned(),
                    at: at.location(),
                }
            }
        };
        fields.finish();
        if let Some(component) = self.components.iter_mut().find(|one| one.name == chooser.value) {
            component.tokenizer.clone_from(&self.tokenizer);
        }
        Ok(chooser)
    }

    /// `decoder.pipeline`: a list of objects with one stage or more each, or one object.
    fn stages(
        &mut self,
        at: &Cursor<'_>,
        names: DecoderNames,
        ort: &OrtSettings,
    ) -> Result<Said<String>, PackageError> {
        let objects: Vec<Cursor<'_>> = match at.is_list() {
            true => at.items()?.collect(),
            false => vec![at.clone()],
        };
        let mut chooser = None;
        for object in objects {
            for (name, stage) in object.entries()? {
                component_name(name, &stage)?;
                if self.components.len() >= MAX_STAGES {
                    return Err(at.invalid(format!("names more components than {MAX_STAGES}")));
                }
                let read = read_stage(&stage, ort)?;
                let phase = read.phase.clone();
                let chooses = names
                    .logits
                    .as_ref()
                    .is_some_and(|logits| read.stage.outputs.iter().any(|said| said.value == logits.text));
                if chooses || chooser.is_none() {
                    chooser = Some(Said {
                        value: name.to_owned(),
                        at: stage.location(),
                    });
                }
                let part = Part::Decoder(Box::new(names.clone()), Some(read.stage));
                self.push(name, "", stage.location(), read.file, part);
                self.last(read.ort, None);
                if let Some(component) = self.components.last_mut() {
                    component.phase = Some(phase);
                }
            }
        }
        let chooser = chooser.ok_or_else(|| at.invalid("names no stage"))?;
        if let Some(component) = self.components.iter_mut().find(|one| one.name == chooser.value) {
            component.component_type = "decoder".to_owned();
        }
        Ok(chooser)
    }
}

/// Numbers of the model that its graphs say too.
const SIZES: &[&str] = &[
    "hidden_size",
    "head_size",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
];

fn file_of(fields: &mut Fields<'_>) -> Result<Option<Said<String>>, PackageError> {
    let file = fields.get("filename").map(said).transpose()?;
    Ok(file.filter(|file| !file.value.is_empty()))
}

fn layers_of(fields: &mut Fields<'_>) -> Result<Option<u64>, PackageError> {
    let at = fields.get("num_hidden_layers");
    at.map(|at| at.count_up_to(1, MAX_LAYERS)).transpose()
}

fn refuse_adapter(fields: &mut Fields<'_>) -> Result<(), PackageError> {
    match fields.get("adapter_filename") {
        Some(at) => Err(at.unsupported("an adapter that changes the decoder's weights (adapter_filename)")),
        None => Ok(()),
    }
}

/// A window that the graph itself looks at is nothing to do; inputs of a fixed length are.
fn refuse_sliding(at: &Cursor<'_>) -> Result<(), PackageError> {
    let mut fields = at.fields()?;
    for flag in ["slide_key_value_cache", "slide_inputs"] {
        let said = fields.get(flag);
        if said.as_ref().is_none_or(|said| said.bool().unwrap_or(true)) {
            if let Some(said) = &said {
                said.bool()?;
            }
            let at = said.unwrap_or_else(|| at.clone());
            return Err(at.unsupported(format!(
                "a window that slides outside of the graph (sliding_window without {flag}: false)"
            )));
        }
    }
    Ok(())
}

struct ReadStage {
    stage: Stage,
    file: Said<String>,
    phase: Said<Phase>,
    ort: OrtSettings,
}

fn read_stage(at: &Cursor<'_>, decoders: &OrtSettings) -> Result<ReadStage, PackageError> {
    let mut fields = at.fields()?;
    let file = said(fields.required("filename", "the stage's .onnx file")?)?;
    for flag in ["run_on_prompt", "run_on_token_gen"] {
        if let Some(flag) = fields.get(flag)
            && !flag.bool()?
        {
            return Err(flag.unsupported("a stage for the prompt or for the other tokens alone"));
        }
    }
    let list = |fields: &mut Fields<'_>, name| match fields.get(name) {
        Some(list) => list.items()?.map(said).collect::<Result<Vec<_>, PackageError>>(),
        None => Ok(Vec::new()),
    };
    let mut stage = Stage {
        inputs: list(&mut fields, "inputs")?,
        outputs: list(&mut fields, "outputs")?,
        forwarded: Vec::new(),
    };
    if let Some(forwarder) = fields.get("output_names_forwarder") {
        for (output, input) in forwarder.entries()? {
            stage.forwarded.push((output.to_owned(), said(input)?));
        }
    }
    let mut ort = read_session_options(&mut fields)?;
    let inherits = fields
        .get("inherit_session_options")
        .map(|flag| flag.bool())
        .transpose()?;
    if inherits == Some(true) {
        inherit(&mut ort, decoders);
    } else if ort == OrtSettings::default() {
        ort = decoders.clone();
    }
    fields.skip(&["is_lm_head", "reset_session_idx"]);
    fields.finish();
    Ok(ReadStage {
        stage,
        file,
        phase: Said {
            value: Phase::EveryStep,
            at: at.location(),
        },
        ort,
    })
}
