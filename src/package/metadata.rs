//! Reader of `inference_metadata.yaml`, `.yml` and `.json`, schema version `v1`.

use std::collections::HashMap;

use crate::component::{DataType, shown};

use super::declaration::*;
use super::document::{Cursor, Document};
use super::generation_defaults::{read_generation, read_tokens};
use super::io_bindings::read_io;
use super::media::{read_preprocessing, read_vision};
use super::speculator::{self, Speculator};
use super::strategy::read_strategy;
use super::{Location, PackageError, PackageErrorKind};

/// Capabilities that a package may require and that this version has.
const CAPABILITIES: &[&str] = &[
    "audio_preprocessing_program",
    "autoregressive",
    "composite",
    "image_preprocessing_program",
    "iterative",
    "multi_component",
    "nested_autoregressive",
    "packed_image_outputs",
    "phases",
    "shared_buffer",
    "single_pass",
    "state_pairs",
    "static_cache",
    "tokenizer",
];

/// Reads a metadata document. Warnings are left in it.
pub(super) fn read(document: &Document) -> Result<(Declaration, Speculator), PackageError> {
    let root = document.root();
    let mut fields = root.fields()?;
    if let Some(version) = fields.get("schema_version") {
        version.one_of(&[("v1", ())])?;
    }
    if let Some(capabilities) = fields.get("required_capabilities") {
        for capability in capabilities.items()? {
            require_capability(&capability)?;
        }
    }
    // embedding and classifier: see `readout`.
    fields.skip(&[
        "kv_cache",
        "quantization",
        "hardware_requirements",
        "embedding",
        "classifier",
    ]);
    if let Some(section) = fields.get("structured_output") {
        section.warn("not used by this version; constraints are set on runs");
    }
    let speculative = fields.get("speculative");
    let speculative = speculative.or_else(|| fields.get("speculator_config"));
    let mut media = match fields.get("preprocessing") {
        Some(section) => read_preprocessing(&section)?,
        None => MediaDeclaration::default(),
    };

    let model = fields.get("model");
    let pipeline = fields.get("pipeline");
    let mut context_length = None;
    let mut model_io = None;
    if let Some(model) = model {
        let mut model = model.fields()?;
        context_length = model
            .get("max_sequence_length")
            .map(|value| value.count(1))
            .transpose()?;
        model_io = model.get("io");
        model.finish();
    }
    let (mut generation, generation_eos) = read_generation(&mut fields)?;
    let (tokens_eos, token_roles) = read_tokens(&mut fields)?;
    if let (Some(length), Some(limit)) = (generation.max_length, context_length) {
        generation.max_length = Some(length.min(limit));
    }

    let strategy = fields.get("strategy");
    let mut declaration = match &pipeline {
        Some(pipeline) => {
            if let Some(io) = &model_io {
                io.warn("not used, because pipeline.models has bindings of its own");
            }
            read_pipeline(pipeline, strategy)?
        }
        None => single_component(&root, model_io.as_ref(), strategy)?,
    };
    media.vision = declaration.media.vision.take();
    declaration.media = media;
    declaration.context_length = context_length;
    declaration.generation = generation;
    declaration.eos_token_ids = tokens_eos.or(generation_eos).unwrap_or_default();
    declaration.token_roles = token_roles;
    let speculator = match &speculative {
        Some(section) => speculator::of_metadata(section, &mut declaration)?,
        None => Speculator::None,
    };
    fields.finish();
    Ok((declaration, speculator))
}

fn require_capability(capability: &Cursor<'_>) -> Result<(), PackageError> {
    let found = capability.text()?;
    if CAPABILITIES.contains(&found) {
        return Ok(());
    }
    Err(capability.error(PackageErrorKind::UnknownCapability {
        found: found.to_owned(),
        known: CAPABILITIES.iter().map(|&name| name.to_owned()).collect(),
    }))
}

/// A package without `pipeline`: one component, `model`, from `model.onnx`.
fn single_component(
    root: &Cursor<'_>,
    io: Option<&Cursor<'_>>,
    strategy: Option<Cursor<'_>>,
) -> Result<Declaration, PackageError> {
    let io = io.map(read_io).transpose()?.unwrap_or_default();
    let chooses_tokens = io.logits_output.is_some();
    let at = root.location();
    let mut components = Components::default();
    let file = Said {
        value: "model.onnx".to_owned(),
        at: at.clone(),
    };
    let component_type = if chooses_tokens { "decoder" } else { "" };
    components.push(ComponentDeclaration {
        io,
        ..ComponentDeclaration::new("model", component_type, at, file)
    });
    let (strategy, stages) = read_strategy(strategy, root)?;
    for stage in stages {
        components.set_phase(stage)?;
    }
    Ok(Declaration {
        components: components.list,
        by_name: components.by_name,
        edges: Vec::new(),
        strategy,
        linear_positions: false,
        coordinates: None,
        positions_input: None,
        context_length: None,
        generation: GenerationDefaults::default(),
        eos_token_ids: Vec::new(),
        token_roles: Vec::new(),
        media: MediaDeclaration::default(),
    })
}

/// `strategy` is the one beside `pipeline`, which may stand for the one in it.
fn read_pipeline(pipeline: &Cursor<'_>, strategy: Option<Cursor<'_>>) -> Result<Declaration, PackageError> {
    let mut fields = pipeline.fields()?;
    let models = fields.required("models", "a map from component name to component")?;
    let mut components = Components::default();
    for (name, component) in models.entries()? {
        components.push(read_component(name, &component)?);
    }
    if components.list.is_empty() {
        return Err(models.invalid("names no component"));
    }
    let mut edges = Vec::new();
    if let Some(dataflow) = fields.get("dataflow") {
        for edge in dataflow.items()? {
            edges.push(read_edge(&edge)?);
        }
    }
    let strategy = match (fields.get("strategy"), strategy) {
        (Some(inner), Some(outer)) => {
            return Err(outer.invalid(format!(
                "the strategy is said at {} too; say it once",
                inner.location()
            )));
        }
        (inner, outer) => inner.or(outer),
    };
    let (strategy, stages) = read_strategy(strategy, pipeline)?;
    for stage in stages {
        components.set_phase(stage)?;
    }
    if let Some(phases) = fields.get("phases") {
        for (name, phase) in phases.entries()? {
            components.read_phase(name, &phase)?;
        }
    }
    let positions = match fields.get("positions") {
        Some(at) => read_positions(&at)?,
        None => Positions::default(),
    };
    let media = MediaDeclaration {
        vision: match fields.get("vision") {
            Some(vision) => read_vision(&vision)?,
            None => None,
        },
        ..MediaDeclaration::default()
    };
    if let Some(audio) = fields.get("audio") {
        read_audio(&audio)?;
    }
    fields.finish();
    Ok(Declaration {
        components: components.list,
        by_name: components.by_name,
        edges,
        strategy,
        linear_positions: positions.linear,
        coordinates: positions.coordinates,
        positions_input: positions.input,
        context_length: None,
        generation: GenerationDefaults::default(),
        eos_token_ids: Vec::new(),
        token_roles: Vec::new(),
        media,
    })
}

fn read_component(name: &str, at: &Cursor<'_>) -> Result<ComponentDeclaration, PackageError> {
    component_name(name, at)?;
    let mut fields = at.fields()?;
    let file = said(fields.required("filename", "the component's .onnx file")?)?;
    if file.value.ends_with(".textproto") {
        return Err(PackageError::new(
            file.at,
            PackageErrorKind::Unsupported {
                what: format!("\"{}\": protobuf text format", shown(&file.value)),
            },
        ));
    }
    let component_type = fields.text("type")?.unwrap_or_default().to_owned();
    if let Some(device) = fields.get("device_preference") {
        let devices = [
            "auto", "cpu", "cuda", "rocm", "directml", "coreml", "webgpu", "npu",
        ];
        let elsewhere = device.one_of(&devices.map(|name| (name, !matches!(name, "auto" | "cpu"))))?;
        if elsewhere {
            device.warn("a preference that this version cannot follow; the component runs on the CPU");
        }
    }
    let tokenizer = fields.get("tokenizer").map(said).transpose()?;
    let io = fields
        .get("io")
        .map(|io| read_io(&io))
        .transpose()?
        .unwrap_or_default();
    fields.finish();
    Ok(ComponentDeclaration {
        tokenizer,
        io,
        ..ComponentDeclaration::new(name, &component_type, at.location(), file)
    })
}

/// That a name can be a component's.
pub(super) fn component_name(name: &str, at: &Cursor<'_>) -> Result<(), PackageError> {
    if !name.is_empty() && !name.contains('.') {
        return Ok(());
    }
    Err(at.invalid(format!(
        "\"{}\" is no component name: it must not be empty or hold a dot, since component.port is an address",
        shown(name)
    )))
}

pub(super) fn said(at: Cursor<'_>) -> Result<Said<String>, PackageError> {
    Ok(Said {
        value: at.text()?.to_owned(),
        at: at.location(),
    })
}

fn read_edge(edge: &Cursor<'_>) -> Result<EdgeDeclaration, PackageError> {
    let mut fields = edge.fields()?;
    let from = address(&fields.required("from", "the source, component.output")?)?;
    let to = address(&fields.required("to", "the destination, component.input")?)?;
    let dtype = match fields.get("dtype") {
        Some(at) => Some(Said {
            value: read_dtype(&at)?,
            at: at.location(),
        }),
        None => None,
    };
    if let Some(transfer) = fields.get("device_transfer") {
        transfer.bool()?;
    }
    fields.finish();
    Ok(EdgeDeclaration { from, to, dtype })
}

pub(super) fn address(at: &Cursor<'_>) -> Result<Said<Address>, PackageError> {
    let text = at.text()?;
    match text.split_once('.') {
        Some((component, port)) if !component.is_empty() && !port.is_empty() => Ok(Said {
            value: Address {
                component: component.to_owned(),
                port: port.to_owned(),
            },
            at: at.location(),
        }),
        _ => Err(at.invalid(format!("\"{}\" is no address; write component.port", shown(text)))),
    }
}

pub(super) fn read_dtype(at: &Cursor<'_>) -> Result<DataType, PackageError> {
    const SHORT: [(&str, DataType); 10] = [
        ("fp32", DataType::Float32),
        ("fp16", DataType::Float16),
        ("bf16", DataType::Bfloat16),
        ("f32", DataType::Float32),
        ("f16", DataType::Float16),
        ("float", DataType::Float32),
        ("fp8_e4m3", DataType::Float8E4M3FN),
        ("fp8_e5m2", DataType::Float8E5M2),
        ("i64", DataType::Int64),
        ("i32", DataType::Int32),
    ];
    let known: Vec<(&str, DataType)> = DataType::ALL
        .into_iter()
        .map(|dtype| (dtype.name(), dtype))
        .chain(SHORT)
        .collect();
    at.one_of(&known)
}

pub(super) const PHASES: &[(&str, Phase)] = &[
    ("prompt_only", Phase::PromptOnly),
    ("every_step", Phase::EveryStep),
    ("always", Phase::EveryStep),
    ("final_only", Phase::FinalOnly),
    ("on_demand", Phase::OnDemand),
];

/// A phase that a stage or the phases section gives a component.
pub(super) struct StagePhase {
    pub component: String,
    pub phase: Said<Phase>,
}

/// Components as they are read.
#[derive(Default)]
struct Components {
    list: Vec<ComponentDeclaration>,
    by_name: HashMap<String, usize>,
}

impl Components {
    fn push(&mut self, component: ComponentDeclaration) {
        self.by_name.insert(component.name.clone(), self.list.len());
        self.list.push(component);
    }

    fn find(&mut self, name: &str, at: &Location) -> Result<&mut ComponentDeclaration, PackageError> {
        let index = self.by_name.get(name).copied();
        // Looked up by value first: a mutable borrow that is returned lasts too long.
        let known = match index {
            Some(_) => Vec::new(),
            None => self.list.iter().map(|component| component.name.clone()).collect(),
        };
        match index.and_then(|index| self.list.get_mut(index)) {
            Some(component) => Ok(component),
            None => Err(PackageError::new(
                at.clone(),
                PackageErrorKind::UnknownComponent {
                    found: name.to_owned(),
                    known,
                },
            )),
        }
    }

    fn read_phase(&mut self, name: &str, at: &Cursor<'_>) -> Result<(), PackageError> {
        let mut fields = at.fields()?;
        let run_on = fields.get("run_on");
        let when_present = fields.get("when_present").map(said).transpose()?;
        fields.finish();
        self.find(name, &at.location())?.when_present = when_present;
        match run_on {
            Some(run_on) => self.set_phase(StagePhase {
                component: name.to_owned(),
                phase: Said {
                    value: run_on.one_of(PHASES)?,
                    at: run_on.location(),
                },
            }),
            None => Ok(()),
        }
    }

    fn set_phase(&mut self, stage: StagePhase) -> Result<(), PackageError> {
        let component = self.find(&stage.component, &stage.phase.at)?;
        match &component.phase {
            Some(earlier) if earlier.value != stage.phase.value => Err(PackageError::new(
                stage.phase.at,
                PackageErrorKind::Invalid {
                    message: format!(
                        "component \"{}\" is {} here and {} at {}; say it once",
                        shown(&stage.component),
                        stage.phase.value.name(),
                        earlier.value.name(),
                        earlier.at,
                    ),
                },
            )),
            _ => {
                component.phase = Some(stage.phase);
                Ok(())
            }
        }
    }
}

#[derive(Default)]
struct Positions {
    /// Whether three-axis positions are plain counting on each axis.
    linear: bool,
    coordinates: Option<Continuation>,
    input: Option<Said<String>>,
}

fn read_positions(at: &Cursor<'_>) -> Result<Positions, PackageError> {
    let mut fields = at.fields()?;
    let input = fields.get("input").map(said).transpose()?;
    for count in ["rank", "tensor_rank"] {
        fields.get(count).map(|count| count.count(1)).transpose()?;
    }
    for list in ["axes", "sections"] {
        if let Some(list) = fields.get(list) {
            drop(list.items()?);
        }
    }
    if let Some(dtype) = fields.get("dtype") {
        dtype.one_of(&[("int64", ()), ("int32", ())])?;
    }
    let linear = match fields.get("generation") {
        Some(generation) => generation.one_of(&[("linear", true), ("processor_coordinates", false)])?,
        None => false,
    };
    let by_processor = fields.get("generation").is_some() && !linear;
    let mut continuation = Continuation::LinearIncrement;
    if let Some(at) = fields.get("continuation") {
        let found = at.one_of(&Continuation::NAMES)?;
        // With linear positions the largest one on any axis is the last one, so that
        // carry_max is linear_increment.
        if found == Continuation::FromGrid && !by_processor {
            return Err(
                at.invalid("there is no grid to go on from; it goes with generation: processor_coordinates")
            );
        }
        continuation = found;
    }
    fields.skip(&["processor_summaries"]);
    fields.finish();
    Ok(Positions {
        linear: linear || by_processor,
        coordinates: by_processor.then_some(continuation),
        input,
    })
}

/// Where the sound is and at what rate: for whoever plays it.
fn read_audio(at: &Cursor<'_>) -> Result<(), PackageError> {
    let mut fields = at.fields()?;
    for count in ["sample_rate", "channels"] {
        fields.get(count).map(|count| count.count(1)).transpose()?;
    }
    fields.text("output")?;
    fields.finish();
    Ok(())
}
