//! Ports of a Hugging Face folder: exporters give them names of their own, which become bindings
//! where the graphs have them.

use crate::component::{ComponentIo, Dim, Port};

use super::declaration::{
    Address, ComponentDeclaration, Declaration, EdgeDeclaration, LengthInput, LengthOf, MergeDeclaration,
    OptionalInput, Said, StatePair, StrategyKind, ZeroDim,
};
use super::resolve::port_index;
use super::{Location, PackageError, PackageErrorKind};

/// What a component of the folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// An encoder of pictures or sound, whose rows take the places of tokens.
    Features,
    /// The encoder that a decoder's cross attention reads.
    Encoder,
    Embedding,
    /// The decoder, or in a folder with two that of all passes but the first.
    Decoder,
    /// The decoder of the pass that begins a sequence.
    FirstPass,
    /// A model by itself: a decoder, or one that runs once.
    Model,
}

#[derive(Debug)]
pub(super) struct HuggingFacePorts {
    /// In the order of the components.
    pub parts: Vec<Part>,
    /// Tokens whose embeddings are rows of features.
    pub image_token: Option<i32>,
    pub audio_token: Option<i32>,
    /// Whether the architecture's name is one of those that make text.
    pub generates: bool,
    /// Of caches, for ports that leave them open.
    pub heads: Option<i64>,
    pub head_size: Option<i64>,
}

impl HuggingFacePorts {
    pub fn bind(&self, declaration: &mut Declaration, ios: &[ComponentIo]) -> Result<(), PackageError> {
        let mut edges = Vec::new();
        let mut decoder = None;
        for (index, part) in self.parts.iter().enumerate() {
            let Some(io) = ios.get(index) else { continue };
            let merges = self.merges(declaration, ios, *part)?;
            let others = Others::of(self, declaration, ios);
            let Some(component) = declaration.components.get_mut(index) else {
                continue;
            };
            let chooses = match part {
                Part::Features => false,
                Part::Encoder => {
                    if io.input("attention_mask").is_some() {
                        component
                            .io
                            .ones_inputs
                            .push(said("attention_mask", &component.at));
                    }
                    false
                }
                Part::Embedding => {
                    port_index(&component.name, &io.inputs, "input", "input_ids", &component.at)?;
                    component.io.token_input = Some(said("input_ids", &component.at));
                    false
                }
                Part::Model => {
                    let cached = io.inputs.iter().any(|port| port.name.starts_with(PAST));
                    let has_logits = io.output("logits").is_some();
                    if has_logits && (cached || self.generates) {
                        edges.extend(bind_decoder(component, io, &others)?);
                        true
                    } else {
                        bind_single_pass(component, io);
                        let value = component.name.clone();
                        let at = component.at.clone();
                        declaration.strategy.kind = StrategyKind::SinglePass;
                        declaration.strategy.model = Some(Said { value, at });
                        continue;
                    }
                }
                Part::Decoder | Part::FirstPass => {
                    edges.extend(bind_decoder(component, io, &others)?);
                    true
                }
            };
            let named = || Said {
                value: component.name.clone(),
                at: component.at.clone(),
            };
            match part {
                Part::FirstPass => declaration.strategy.first_pass = Some(named()),
                _ if chooses => {
                    declaration.strategy.decoder = Some(named());
                    decoder = Some(index);
                }
                _ => {}
            }
            if chooses {
                component.io.kv_heads = self.heads;
                component.io.kv_head_size = self.head_size;
                component.component_type = "decoder".to_owned();
                component.io.merges = merges;
            }
        }
        declaration.edges.extend(edges);
        self.join_first_pass(declaration, ios, decoder)
    }

    /// What the first pass makes is what the later ones read, name by name.
    fn join_first_pass(
        &self,
        declaration: &mut Declaration,
        ios: &[ComponentIo],
        decoder: Option<usize>,
    ) -> Result<(), PackageError> {
        let first = self.parts.iter().position(|part| *part == Part::FirstPass);
        let (Some(first), Some(decoder)) = (first, decoder) else {
            return Ok(());
        };
        let outputs = match declaration.components.get(decoder) {
            Some(component) => component.io.kv_outputs.clone(),
            None => return Ok(()),
        };
        if let (Some(component), Some(io)) = (declaration.components.get_mut(first), ios.get(first)) {
            for output in &outputs {
                port_index(&component.name, &io.outputs, "output", &output.value, &output.at)?;
            }
            component.io.kv_outputs = outputs;
        }
        Ok(())
    }

    /// Features that take the places of tokens among the embeddings that a decoder reads.
    fn merges(
        &self,
        declaration: &Declaration,
        ios: &[ComponentIo],
        part: Part,
    ) -> Result<Vec<MergeDeclaration>, PackageError> {
        let mut merges = Vec::new();
        if !matches!(part, Part::Decoder | Part::FirstPass) {
            return Ok(merges);
        }
        for ((part, component), io) in self.parts.iter().zip(&declaration.components).zip(ios) {
            if *part != Part::Features {
                continue;
            }
            let (role, token, names) = match component.name.as_str() {
                "vision" => ("image", self.image_token, ["image_features", "image_embeds"]),
                _ => ("audio", self.audio_token, ["audio_features", "audio_embeds"]),
            };
            let Some(token) = token else {
                let location = Location {
                    key: format!("{role}_token_id"),
                    ..component.at.clone()
                };
                let expected = format!("the token whose embeddings are what \"{}\" makes", component.name);
                return Err(PackageError::new(
                    location,
                    PackageErrorKind::MissingField { expected },
                ));
            };
            let named = names.into_iter().find(|name| io.output(name).is_some());
            let features = match (named, io.outputs.as_slice()) {
                (Some(name), _) => name,
                (None, [only]) => only.name.as_str(),
                (None, _) => {
                    port_index(&component.name, &io.outputs, "output", names[0], &component.at)?;
                    continue;
                }
            };
            merges.push(MergeDeclaration {
                token: Said {
                    value: token,
                    at: component.at.clone(),
                },
                features: Address {
                    component: component.name.clone(),
                    port: features.to_owned(),
                },
            });
        }
        Ok(merges)
    }
}

const PAST: &str = "past_key_values.";

fn said(name: &str, at: &Location) -> Said<String> {
    Said {
        value: name.to_owned(),
        at: at.clone(),
    }
}

/// Where values that other components make are.
struct Others {
    hidden_states: Option<Address>,
    /// The component with embeddings, and its outputs.
    embedding: Option<(String, Vec<String>)>,
    first_pass: Option<(String, Vec<String>)>,
}

impl Others {
    fn of(ports: &HuggingFacePorts, declaration: &Declaration, ios: &[ComponentIo]) -> Self {
        let find = |wanted: Part| {
            let index = ports.parts.iter().position(|part| *part == wanted)?;
            Some((declaration.components.get(index)?, ios.get(index)?))
        };
        let outputs = |part| {
            let (component, io) = find(part)?;
            let names = io.outputs.iter().map(|port| port.name.clone()).collect();
            Some((component.name.clone(), names))
        };
        Others {
            hidden_states: find(Part::Encoder).map(|(component, io)| Address {
                component: component.name.clone(),
                port: match io.outputs.as_slice() {
                    [only] => only.name.clone(),
                    _ => "last_hidden_state".to_owned(),
                },
            }),
            embedding: outputs(Part::Embedding),
            first_pass: outputs(Part::FirstPass),
        }
    }
}

/// Binds a decoder. Gives the edges that lead to it.
fn bind_decoder(
    component: &mut ComponentDeclaration,
    io: &ComponentIo,
    others: &Others,
) -> Result<Vec<EdgeDeclaration>, PackageError> {
    let at = component.at.clone();
    let mut edges = Vec::new();
    let mut lead = |from: Address, port: &str| {
        edges.push(EdgeDeclaration {
            from: Said {
                value: from,
                at: at.clone(),
            },
            to: Said {
                value: Address {
                    component: component.name.clone(),
                    port: port.to_owned(),
                },
                at: at.clone(),
            },
            dtype: None,
        });
    };
    let bound = &mut component.io;
    for port in &io.inputs {
        let name = port.name.as_str();
        let this = said(name, &at);
        match name {
            "input_ids" | "decoder_input_ids" => bound.token_input = Some(this),
            "attention_mask" | "decoder_attention_mask" => bound.attention_mask_input = Some(this),
            "position_ids" => bound.position_ids_input = Some(this),
            "use_cache_branch" => bound.cache_branch_input = Some(this),
            "encoder_attention_mask" => bound.ones_inputs.push(this),
            // Of all of them, so that what is not asked for is what the loop leaves out.
            "num_logits_to_keep" | "logits_to_keep" => bound.lengths.push(LengthInput {
                port: this,
                of: LengthOf::Current,
            }),
            "token_type_ids" => bound.optional_inputs.extend(zeros_along(io, port, this)),
            "encoder_hidden_states" => {
                if let Some(from) = &others.hidden_states {
                    lead(from.clone(), name);
                }
            }
            "inputs_embeds" | "per_layer_inputs" => {
                if name == "inputs_embeds" {
                    bound.inputs_embeds_input = Some(this);
                }
                if let Some((from, outputs)) = &others.embedding {
                    let port = match outputs.as_slice() {
                        [only] if name == "inputs_embeds" => only,
                        _ => name,
                    };
                    lead(
                        Address {
                            component: from.clone(),
                            port: port.to_owned(),
                        },
                        name,
                    );
                }
            }
            _ => {
                if let Some(rest) = name.strip_prefix(PAST) {
                    let own = ["present.", "present_key_values."]
                        .map(|prefix| format!("{prefix}{rest}"))
                        .into_iter()
                        .find(|output| io.output(output).is_some());
                    let output = own.clone().unwrap_or_else(|| format!("present.{rest}"));
                    let crosses = rest.contains(".encoder.");
                    match &others.first_pass {
                        Some((first, outputs)) if crosses && own.is_none() && outputs.contains(&output) => {
                            lead(
                                Address {
                                    component: first.clone(),
                                    port: output,
                                },
                                name,
                            );
                        }
                        _ if crosses => {
                            bound.cross_kv_inputs.push(this);
                            bound.cross_kv_outputs.push(said(&output, &at));
                        }
                        _ => {
                            bound.kv_inputs.push(this);
                            bound.kv_outputs.push(said(&output, &at));
                        }
                    }
                } else if let Some(rest) = name.strip_prefix("past_") {
                    let output = format!("present_{rest}");
                    if io.output(&output).is_some() {
                        bound.state_pairs.push(StatePair {
                            input: this,
                            output: said(&output, &at),
                        });
                    }
                }
            }
        }
    }
    if bound.inputs_embeds_input.is_some() && bound.token_input.is_some() && others.embedding.is_none() {
        // One of the two is the sequence, and there is nobody to make embeddings.
        bound.inputs_embeds_input = None;
    }
    if io.output("logits").is_some() {
        bound.logits_output = Some(said("logits", &at));
    }
    Ok(edges)
}

/// A model that runs once over the run's tokens.
fn bind_single_pass(component: &mut ComponentDeclaration, io: &ComponentIo) {
    let at = component.at.clone();
    for port in &io.inputs {
        let this = said(&port.name, &at);
        match port.name.as_str() {
            "input_ids" => component.io.token_input = Some(this),
            "attention_mask" => component.io.attention_mask_input = Some(this),
            "position_ids" => component.io.position_ids_input = Some(this),
            "token_type_ids" => component.io.optional_inputs.extend(zeros_along(io, port, this)),
            _ => {}
        }
    }
}

/// Zeros for token types that the host does not set, as long as the tokens.
fn zeros_along(io: &ComponentIo, port: &Port, this: Said<String>) -> Option<OptionalInput> {
    let dims = port.dims.as_ref()?.iter().enumerate();
    let shape = dims.map(|(position, dim)| match dim {
        Dim::Fixed(size) => Some(ZeroDim::Fixed(*size)),
        Dim::Symbol(_) if position == 0 => Some(ZeroDim::Fixed(1)),
        Dim::Symbol(Some(name)) => {
            let mut others = io.inputs.iter().filter(|other| other.name != port.name);
            let same = |dim: &Dim| matches!(dim, Dim::Symbol(Some(other)) if other == name);
            let known = others.any(|other| other.dims.as_ref().is_some_and(|dims| dims.iter().any(same)));
            known.then(|| ZeroDim::Symbol(name.clone()))
        }
        Dim::Symbol(None) => None,
    });
    Some(OptionalInput {
        shape: shape.collect::<Option<Vec<_>>>()?,
        port: this,
        modality: "token_types".to_owned(),
        first_pass_only: false,
    })
}
