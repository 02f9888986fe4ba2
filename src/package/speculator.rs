//! A package's own head that guesses tokens, of the EAGLE and of the MTP kind.
//!
//! Such a head is a small decoder with a KV cache of its own. Its row i is made of what the target, the
//! package's decoder, has in its hidden layers at position i and of the token at i + 1, and its logits
//! are a guess of the token at i + 2 (Li et al., "EAGLE", 2024, and "EAGLE-3", 2025; DeepSeek-AI,
//! "DeepSeek-V3 Technical Report", 2024, section 2.2). Further tokens are guessed from the head's own
//! hidden state in the place of the target's.
//!
//! The section `speculative` (or `speculator_config`) of package metadata says one, and `model.mtp` of
//! `genai_config.json`. A head of another layout spoils guesses and not the package: it is a warning,
//! and an error for the runs that ask for it.

use std::sync::Arc;

use serde_json::{Map, json};

use crate::component::{ComponentIo, DataType, Dim, Port, shown};

use super::declaration::{
    ComponentDeclaration, Declaration, EdgeDeclaration, GenerationDefaults, MediaDeclaration, Said,
    StrategyDeclaration, StrategyKind,
};
use super::document::{Cursor, Fields};
use super::files::PackageFiles;
use super::io_bindings::read_io;
use super::metadata::said;
use super::open::Package;
use super::resolve::{mismatch, port_index, resolve, said_invalid};
use super::session_options::read_session_options;
use super::spec::{InputSource, OutputRole, PipelineSpec};
use super::structure;
use super::write::HeadSection;
use super::{Location, PackageError, PackageErrorKind};

/// The most layers that a head may have.
const MAX_LAYERS: u64 = 64;
/// The most tokens for a pass that a package may ask for; runs have a bound of their own.
const MAX_TOKENS: u64 = 1000;
/// The component that a head is whose graph is said by its file alone.
const HEAD: &str = "speculator";

/// What the metadata says of a head.
#[derive(Debug, Default)]
pub(super) enum Speculator {
    #[default]
    None,
    /// There is one that this version does not run, and why.
    Unused(String),
    Head(Box<HeadDeclaration>),
}

#[derive(Debug)]
pub(super) struct HeadDeclaration {
    /// The head, and the component that makes the embeddings which it reads, if it reads such.
    declaration: Declaration,
    ports: HeadPorts,
    /// Whether the mask and the positions are bound only where the graph has such inputs.
    is_lenient: bool,
}

/// Ports of a head and of its target, by name.
#[derive(Clone, Debug)]
struct HeadPorts {
    component: String,
    hidden_input: Said<String>,
    recurrent_input: Option<Said<String>>,
    /// The decoder's outputs, whose rows go to the head one behind the other.
    target_outputs: Vec<Said<String>>,
    tokens: Option<usize>,
    at: Location,
}

/// What an opened package has of a head.
#[derive(Debug, Default)]
pub(crate) enum PackageHead {
    #[default]
    None,
    Unused(String),
    Head(Box<HeadPackage>),
}

/// A head as a package of its own, whose files are those of the other.
#[derive(Debug)]
pub(crate) struct HeadPackage {
    pub package: Package,
    ports: HeadPorts,
    is_lenient: bool,
}

/// A head whose every name has become an index.
#[derive(Debug)]
pub(crate) struct HeadSpec {
    pub spec: PipelineSpec,
    /// The head among its components.
    pub component: usize,
    pub logits: usize,
    /// Float, `[1, S, width]`.
    pub hidden_input: usize,
    /// Where the head's own hidden state goes, if not to `hidden_input`; each is zeros where the other
    /// one is given.
    pub recurrent_input: Option<usize>,
    /// The head's own hidden state; without one it guesses one token.
    pub hidden_output: Option<usize>,
    /// The target's outputs.
    pub targets: Vec<usize>,
    /// Of all that is hidden.
    pub dtype: DataType,
    /// Tokens for a pass, as the package says.
    pub tokens: Option<usize>,
}

/// Reads the section of package metadata, and takes what it is about out of the declaration.
pub(super) fn of_metadata(
    at: &Cursor<'_>,
    declaration: &mut Declaration,
) -> Result<Speculator, PackageError> {
    let mut fields = at.fields()?;
    let kind = fields.get("proposal_type").or_else(|| fields.get("method"));
    let tokens = fields.get("num_speculative_tokens");
    let tokens = tokens.or_else(|| fields.get("tokens_per_step"));
    let tokens = tokens.map(|at| at.count_up_to(1, MAX_TOKENS)).transpose()?;
    let is_mtp = match kind.as_ref().map(Cursor::text).transpose()? {
        Some("eagle" | "eagle3" | "eagle-3") => false,
        Some("mtp") => true,
        Some(other) => {
            let message = format!(
                "proposal_type \"{}\" is not run by this version, which has eagle, eagle3 and mtp",
                shown(other)
            );
            return Ok(unused(at, message));
        }
        None => {
            return Ok(unused(
                at,
                "there is no proposal_type (eagle, eagle3 or mtp)".to_owned(),
            ));
        }
    };
    for (name, what) in [
        ("shared_kv", "reads the target's cache"),
        ("embedding", "takes embeddings from the target's weights"),
        ("embedding_weights", "takes embeddings from the target's weights"),
        ("input_embedding", "takes embeddings from the target's weights"),
        ("lm_head", "leaves its logits to the target's weights"),
        ("lm_head_weights", "leaves its logits to the target's weights"),
        ("hc_mult", "has several lanes of hidden states"),
    ] {
        if fields.get(name).is_some() {
            let message = format!(
                "a head that {what} ({name}) is not run by this version; export it with a cache, token ids and logits of its own"
            );
            return Ok(unused(at, message));
        }
    }
    // Of training, or what the ports say too.
    fields.skip(&[
        "verifier",
        "vocab_size",
        "backbone_hidden_size",
        "target_hidden_size",
    ]);
    let hidden_input = fields.get("hidden_input").map(said).transpose()?;
    let recurrent_input = fields.get("recurrent_input").map(said).transpose()?;
    let target_outputs = match fields.get("target_hidden_output") {
        Some(list) if list.is_list() => list.items()?.map(said).collect::<Result<Vec<_>, _>>()?,
        Some(one) => vec![said(one)?],
        None => Vec::new(),
    };
    let by_default = |name: &str| Said {
        value: name.to_owned(),
        at: at.location(),
    };
    let hidden_input = hidden_input.or_else(|| is_mtp.then(|| by_default("hidden_states")));
    let target_outputs = match target_outputs.is_empty() && is_mtp {
        true => vec![by_default("hidden_states")],
        false => target_outputs,
    };
    let component = fields.get("component").map(said).transpose()?;
    let model = fields.get("model").map(said).transpose()?;
    let io = fields.get("io");
    let (Some(hidden_input), false) = (hidden_input, target_outputs.is_empty()) else {
        let message = "hidden_input and target_hidden_output name no ports; an EAGLE head needs both";
        return Ok(unused(at, message.to_owned()));
    };
    let mut head = match (component, model) {
        (Some(component), None) => {
            if let Some(io) = io {
                return Err(io.invalid("the component has bindings of its own, in pipeline.models"));
            }
            take_component(declaration, &component)?
        }
        (None, Some(model)) => {
            let Some(io) = io else {
                return Ok(unused(
                    at,
                    "it has a model and no io that binds its ports".to_owned(),
                ));
            };
            if declaration.component_index(HEAD).is_some() {
                return Err(at.invalid(format!(
                    "the head is the component \"{HEAD}\", and pipeline.models has one of that name; name it with \
                     component instead of model"
                )));
            }
            ComponentDeclaration {
                io: read_io(&io)?,
                ..ComponentDeclaration::new(HEAD, "draft", at.location(), model)
            }
        }
        (Some(_), Some(model)) => {
            return Err(said_invalid(
                &model.at,
                "the head is a component and a model too; say it once".to_owned(),
            ));
        }
        (None, None) => {
            return Ok(unused(at, "it names neither a component nor a model".to_owned()));
        }
    };
    fields.finish();
    head.io.given_inputs = std::iter::once(&hidden_input)
        .chain(&recurrent_input)
        .cloned()
        .collect();
    let ports = HeadPorts {
        component: head.name.clone(),
        hidden_input,
        recurrent_input,
        target_outputs,
        tokens: tokens.and_then(|tokens| usize::try_from(tokens).ok()),
        at: at.location(),
    };
    let declaration = of_its_own(declaration, head)?;
    Ok(Speculator::Head(Box::new(HeadDeclaration {
        declaration,
        ports,
        is_lenient: false,
    })))
}

/// Reads `model.mtp` of `genai_config.json`, as its builder writes it.
pub(super) fn of_genai(at: &Cursor<'_>, declaration: &Declaration) -> Result<Speculator, PackageError> {
    let mut fields = at.fields()?;
    if fields.get("shared_initializers").is_some() {
        let message = "weights that lie in the decoder's file (shared_initializers) are not read";
        return Ok(unused(at, message.to_owned()));
    }
    let Some(file) = fields.get("filename").map(said).transpose()? else {
        return Ok(unused(at, "it names no filename".to_owned()));
    };
    let layers = fields.get("num_hidden_layers");
    let layers = layers.map(|at| at.count_up_to(1, MAX_LAYERS)).transpose()?;
    let layers = layers.unwrap_or(1);
    let ort = read_session_options(&mut fields)?;
    fields.skip(&[
        "head_size",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
    ]);
    let target = fields.get("main_hidden_states").map(said).transpose()?;
    let (inputs, outputs) = (fields.get("inputs"), fields.get("outputs"));
    let mut inputs = inputs.map(|section| section.fields()).transpose()?;
    let mut outputs = outputs.map(|section| section.fields()).transpose()?;
    fields.finish();
    let port = |section: &mut Option<Fields<'_>>, key: &'static str, default: &str| {
        let given = section.as_mut().and_then(|section| section.get(key));
        match given {
            Some(given) => said(given),
            None => Ok(Said {
                value: default.to_owned(),
                at: at.location(),
            }),
        }
    };
    let mut head = ComponentDeclaration {
        ort,
        ..ComponentDeclaration::new("mtp", "draft", at.location(), file)
    };
    let io = &mut head.io;
    io.token_input = Some(port(&mut inputs, "input_ids", "input_ids")?);
    io.attention_mask_input = Some(port(&mut inputs, "attention_mask", "attention_mask")?);
    io.position_ids_input = Some(port(&mut inputs, "position_ids", "position_ids")?);
    let hidden_input = port(&mut inputs, "hidden_states", "hidden_states")?;
    io.given_inputs = vec![hidden_input.clone()];
    io.logits_output = Some(port(&mut outputs, "logits", "logits")?);
    io.hidden_output = match outputs.as_mut().and_then(|outputs| outputs.get("hidden_states")) {
        Some(given) => Some(said(given)?),
        None => None,
    };
    let kv = [
        port(&mut inputs, "past_key_names", "past_key_values.%d.key")?,
        port(&mut outputs, "present_key_names", "present.%d.key")?,
        port(&mut inputs, "past_value_names", "past_key_values.%d.value")?,
        port(&mut outputs, "present_value_names", "present.%d.value")?,
    ];
    for layer in 0..layers {
        let [past_key, present_key, past_value, present_value] = kv.each_ref().map(|pattern| Said {
            value: pattern.value.replacen("%d", &layer.to_string(), 1),
            at: pattern.at.clone(),
        });
        io.kv_inputs.extend([past_key, past_value]);
        io.kv_outputs.extend([present_key, present_value]);
    }
    for section in [inputs, outputs].into_iter().flatten() {
        section.finish();
    }
    if declaration.component_index(&head.name).is_some() {
        return Err(at.invalid("another component is called \"mtp\" too"));
    }
    let ports = HeadPorts {
        component: head.name.clone(),
        hidden_input,
        recurrent_input: None,
        target_outputs: vec![target.unwrap_or_else(|| Said {
            value: "hidden_states".to_owned(),
            at: at.location(),
        })],
        tokens: None,
        at: at.location(),
    };
    let declaration = alone(declaration, vec![head], Vec::new(), &ports.at);
    Ok(Speculator::Head(Box::new(HeadDeclaration {
        declaration,
        ports,
        is_lenient: true,
    })))
}

fn unused(at: &Cursor<'_>, message: String) -> Speculator {
    at.warn(format!("the head that guesses is not used: {message}"));
    Speculator::Unused(message)
}

/// Takes a component out of a package.
fn take_component(
    declaration: &mut Declaration,
    name: &Said<String>,
) -> Result<ComponentDeclaration, PackageError> {
    let index = declaration.index_of(&name.value, name)?;
    let strategy = &declaration.strategy;
    let named = strategy.decoder.iter().chain(&strategy.first_pass);
    let mut named = named.chain(&strategy.model).chain(&strategy.staged);
    if declaration.components.len() < 2 || named.any(|other| other.value == name.value) {
        return Err(said_invalid(
            &name.at,
            format!(
                "component \"{}\" is the one that tokens are guessed for",
                shown(&name.value)
            ),
        ));
    }
    let mut component = declaration.components.remove(index);
    component.phase = None;
    component.when_present = None;
    declaration.by_name = by_name(&declaration.components);
    Ok(component)
}

fn by_name(components: &[ComponentDeclaration]) -> std::collections::HashMap<String, usize> {
    let names = components.iter().enumerate();
    names
        .map(|(index, component)| (component.name.clone(), index))
        .collect()
}

/// The head with the components that feed it. Edges to it go from the package to its own.
fn of_its_own(
    declaration: &mut Declaration,
    head: ComponentDeclaration,
) -> Result<Declaration, PackageError> {
    let name = head.name.clone();
    let at = head.at.clone();
    let of_head = |edge: &EdgeDeclaration| edge.to.value.component == name;
    let (edges, others): (Vec<_>, Vec<_>) = declaration.edges.drain(..).partition(of_head);
    declaration.edges = others;
    if let Some(edge) = declaration
        .edges
        .iter()
        .find(|edge| edge.from.value.component == name)
    {
        return Err(said_invalid(
            &edge.from.at,
            format!(
                "component \"{}\" only guesses tokens; nothing reads it",
                shown(&name)
            ),
        ));
    }
    let mut components: Vec<ComponentDeclaration> = Vec::new();
    for edge in &edges {
        let from = &edge.from.value.component;
        let index = declaration.index_of(from, &edge.from)?;
        if declaration
            .edges
            .iter()
            .any(|edge| edge.to.value.component == *from)
        {
            return Err(said_invalid(
                &edge.from.at,
                format!(
                    "component \"{}\" is fed by others; a head is fed by one that makes embeddings of token ids \
                     alone, and by the decoder's outputs that target_hidden_output names",
                    shown(from)
                ),
            ));
        }
        if let Some(component) = declaration.components.get(index)
            && !components.iter().any(|other| other.name == *from)
        {
            components.push(ComponentDeclaration {
                // It runs over the head's tokens, whenever it does over the decoder's.
                phase: None,
                when_present: None,
                ..component.clone()
            });
        }
    }
    components.push(head);
    Ok(alone(declaration, components, edges, &at))
}

/// Components that are a package of their own; the last is the one that chooses.
fn alone(
    declaration: &Declaration,
    components: Vec<ComponentDeclaration>,
    edges: Vec<EdgeDeclaration>,
    at: &Location,
) -> Declaration {
    let decoder = components.last().map(|head| Said {
        value: head.name.clone(),
        at: at.clone(),
    });
    Declaration {
        by_name: by_name(&components),
        components,
        edges,
        strategy: StrategyDeclaration {
            kind: StrategyKind::Autoregressive,
            decoder,
            first_pass: None,
            model: None,
            staged: Vec::new(),
            iterative: Vec::new(),
            nested: None,
            max_tokens: None,
            at: at.clone(),
        },
        linear_positions: true,
        coordinates: None,
        positions_input: None,
        context_length: declaration.context_length,
        generation: GenerationDefaults::default(),
        eos_token_ids: Vec::new(),
        token_roles: Vec::new(),
        media: MediaDeclaration::default(),
    }
}

impl Speculator {
    /// The head as a package of these files.
    pub fn open(
        self,
        format: &'static str,
        metadata_file: &std::path::Path,
        files: &Arc<PackageFiles>,
    ) -> Result<PackageHead, PackageError> {
        let head = match self {
            Speculator::None => return Ok(PackageHead::None),
            Speculator::Unused(why) => return Ok(PackageHead::Unused(why)),
            Speculator::Head(head) => *head,
        };
        let structure = structure::check(head.declaration)?;
        Ok(PackageHead::Head(Box::new(HeadPackage {
            package: Package::part(format, metadata_file, structure, files),
            ports: head.ports,
            is_lenient: head.is_lenient,
        })))
    }
}

impl HeadPackage {
    /// The component that is the head.
    pub fn name(&self) -> &str {
        &self.ports.component
    }

    /// Its place among the components of its package, the last one.
    pub fn index(&self) -> usize {
        self.package.declaration().components.len().saturating_sub(1)
    }

    /// Whether the package can be run without the head: its own decoder does not read what the head
    /// does, as it would if the metadata took the one for the other.
    pub fn is_beside(&self, target: &PipelineSpec) -> bool {
        let decoder = target.token_loop.map(|of_target| of_target.decoder);
        let decoder = decoder.and_then(|index| target.components.get(index));
        decoder.is_some_and(|decoder| decoder.io.input(&self.ports.hidden_input.value).is_none())
    }

    /// What our own format says of the head, which has these ports. Heads of the formats that are
    /// written so are of the MTP kind, and alone.
    pub(super) fn section(
        &self,
        target: &PipelineSpec,
        io: &ComponentIo,
    ) -> Result<HeadSection, PackageError> {
        // What cannot be run is not written.
        self.resolve(target, io)?;
        let declaration = self.declaration(&self.ios(target, io));
        let Some(component) = declaration.components.into_iter().next_back() else {
            return Err(said_invalid(
                &self.ports.at,
                "there is no such component".to_owned(),
            ));
        };
        let targets = self.ports.target_outputs.iter().map(|said| json!(said.value));
        let mut fields = Map::new();
        fields.insert("proposal_type".into(), json!("mtp"));
        fields.insert("component".into(), json!(component.name));
        fields.insert("hidden_input".into(), json!(self.ports.hidden_input.value));
        fields.insert("target_hidden_output".into(), targets.collect());
        if let Some(tokens) = self.ports.tokens {
            fields.insert("num_speculative_tokens".into(), json!(tokens));
        }
        Ok(HeadSection { component, fields })
    }

    /// The head's file, relative to the package.
    pub fn file(&self) -> &str {
        let declared = self.package.declaration().components.last();
        declared.map_or("", |head| &head.file.value)
    }

    /// The ports of its components: those that the target has too, and the head, which has these.
    fn ios(&self, target: &PipelineSpec, io: &ComponentIo) -> Vec<ComponentIo> {
        let names = self.package.declaration().component_names();
        let others = names.iter().filter(|name| *name != self.name());
        let of_target = |name: &String| target.components.iter().find(|component| component.name == *name);
        let others = others.filter_map(of_target).map(|component| component.io.clone());
        others.chain([io.clone()]).collect()
    }

    /// Turns names into indices, given the resolved target and the ports of the head.
    pub fn resolve(&self, target: &PipelineSpec, io: &ComponentIo) -> Result<HeadSpec, PackageError> {
        let ports = &self.ports;
        let ios = self.ios(target, io);
        let spec = resolve(&structure::check(self.declaration(&ios))?, &ios)?;
        let invalid = |message: &str| said_invalid(&ports.at, message.to_owned());
        let (Some(of_target), Some(of_head)) = (target.token_loop, spec.token_loop) else {
            return Err(invalid(
                "the package has no token loop that a head could guess for",
            ));
        };
        let (Some(decoder), Some(head)) = (
            target.components.get(of_target.decoder),
            spec.components.get(of_head.decoder),
        ) else {
            return Err(invalid("there is no such component"));
        };
        let kept = head.outputs.iter().map(|output| &output.role);
        let mut kept = kept.filter(|role| **role != OutputRole::Plain).peekable();
        if kept.peek().is_none() || !kept.all(|role| matches!(role, OutputRole::Present { .. })) {
            return Err(invalid(
                "the head must keep a KV cache (kv_inputs, kv_outputs), and nothing else",
            ));
        }
        if of_head.one_at_a_time {
            return Err(invalid("the head must take several rows at once behind others"));
        }
        let output = |said: &Said<String>| {
            port_index(
                &decoder.name,
                &decoder.io.outputs,
                "output",
                &said.value,
                &said.at,
            )
        };
        let targets = ports
            .target_outputs
            .iter()
            .map(output)
            .collect::<Result<Vec<_>, _>>()?;
        let input =
            |said: &Said<String>| port_index(&head.name, &head.io.inputs, "input", &said.value, &said.at);
        let hidden_input = input(&ports.hidden_input)?;
        let recurrent_input = ports.recurrent_input.as_ref().map(input).transpose()?;
        let own = |index: usize| Some(index) == recurrent_input || index == hidden_input;
        for (index, (input, port)) in head.inputs.iter().zip(&head.io.inputs).enumerate() {
            if matches!(input.source, InputSource::Request { required: true }) && !own(index) {
                return Err(PackageError::new(
                    ports.at.clone(),
                    PackageErrorKind::Unfed {
                        component: head.name.clone(),
                        port: port.name.clone(),
                        advice: "a head is fed tokens or embeddings of them, hidden states, a mask, positions and \
                                 its cache"
                            .to_owned(),
                    },
                ));
            }
        }
        // What goes where: the port that gives, the one that takes, and where the latter is said.
        let hidden = |component: &str, port: &Port, at: &Location, dtype: Option<DataType>, width| {
            let good = port.dtype().is_some_and(DataType::is_float32_or_smaller)
                && dtype.is_none_or(|dtype| port.dtype() == Some(dtype))
                && port.dims.as_ref().is_some_and(|dims| dims.len() == 3)
                && fixed_width(port)
                    .zip(width)
                    .is_none_or(|(own, width)| own == width);
            let dtype = dtype.map_or("float32, float16 or bfloat16", DataType::name);
            let width = width.map_or("width".to_owned(), |width: i64| width.to_string());
            match good {
                true => Ok(()),
                false => Err(mismatch(
                    component,
                    port,
                    at,
                    format!("hidden states: {dtype} [1, sequence, {width}]"),
                )),
            }
        };
        let Some(port) = head.io.inputs.get(hidden_input) else {
            return Err(invalid("there is no such input"));
        };
        let mut width = Some(0i64);
        for (&target, said) in targets.iter().zip(&ports.target_outputs) {
            let Some(from) = decoder.io.outputs.get(target) else {
                continue;
            };
            hidden(&decoder.name, from, &said.at, port.dtype(), None)?;
            width = width
                .zip(fixed_width(from))
                .and_then(|(all, one)| all.checked_add(one));
        }
        hidden(&head.name, port, &ports.hidden_input.at, None, width)?;
        let Some(dtype) = port.dtype() else {
            return Err(invalid("the head takes no hidden states"));
        };
        let mut back = port;
        if let (Some(index), Some(said)) = (recurrent_input, &ports.recurrent_input)
            && let Some(port) = head.io.inputs.get(index)
        {
            hidden(&head.name, port, &said.at, Some(dtype), None)?;
            if fixed_width(port).is_none() {
                let expected = "a fixed last dim, for the zeros that stand there beside the target's rows";
                return Err(mismatch(&head.name, port, &said.at, expected));
            }
            back = port;
        }
        let declared = self.package.declaration().components.last();
        let hidden_output = declared.and_then(|declared| declared.io.hidden_output.as_ref());
        let hidden_output = match hidden_output {
            None => None,
            Some(said) => {
                let index = port_index(&head.name, &head.io.outputs, "output", &said.value, &said.at)?;
                if let Some(port) = head.io.outputs.get(index) {
                    hidden(&head.name, port, &said.at, Some(dtype), fixed_width(back))?;
                }
                Some(index)
            }
        };
        let vocabulary = |component: &super::ComponentSpec, output: usize| {
            component.io.outputs.get(output).and_then(fixed_width)
        };
        if let (Some(own), Some(target)) = (
            vocabulary(head, of_head.logits),
            vocabulary(decoder, of_target.logits),
        ) && own != target
        {
            return Err(said_invalid(
                &ports.at,
                format!(
                    "the head gives logits of {own} tokens and the decoder of {target}; the graph must map a smaller \
                     vocabulary of its own to the target's"
                ),
            ));
        }
        Ok(HeadSpec {
            component: of_head.decoder,
            logits: of_head.logits,
            spec,
            hidden_input,
            recurrent_input,
            hidden_output,
            targets,
            dtype,
            tokens: ports.tokens,
        })
    }

    /// The head's declaration, with bindings of ports that it has.
    fn declaration(&self, ios: &[ComponentIo]) -> Declaration {
        let mut declaration = self.package.declaration().clone();
        if self.is_lenient {
            for (component, io) in declaration.components.iter_mut().zip(ios) {
                let has = |said: &Said<String>| io.input(&said.value).is_some();
                let bindings = &mut component.io;
                bindings.attention_mask_input = bindings.attention_mask_input.take().filter(has);
                bindings.position_ids_input = bindings.position_ids_input.take().filter(has);
            }
        }
        declaration
    }
}

/// The last dim of a port, where it is fixed.
fn fixed_width(port: &Port) -> Option<i64> {
    match port.dims.as_ref()?.last()? {
        Dim::Fixed(size) => Some(*size),
        Dim::Symbol(_) => None,
    }
}
