//! Ports of a `genai_config.json` package: names that the file gives, or that onnxruntime-genai
//! has by default, become bindings where the graphs have them.

use std::collections::{BTreeSet, HashSet};

use crate::component::{ComponentIo, Dim, Port, shown};

use super::declaration::{
    Address, ComponentDeclaration, Continuation, Declaration, EdgeDeclaration, LengthInput, LengthOf,
    OptionalInput, Said, StatePair, ZeroDim,
};
use super::genai_names::{DecoderNames, EmbeddingNames, EncoderNames, MaybeName, Name};
use super::processor::{InputNames, ProcessorFiles};
use super::resolve::port_index;
use super::{Location, PackageError, PackageErrorKind};

/// A stage of `decoder.pipeline`.
#[derive(Debug)]
pub(super) struct Stage {
    pub inputs: Vec<Said<String>>,
    pub outputs: Vec<Said<String>>,
    /// Outputs and the names under which later stages read them.
    pub forwarded: Vec<(String, Said<String>)>,
}

/// A component's names.
#[derive(Debug)]
pub(super) enum Part {
    /// An encoder of pictures or sound.
    Features {
        component: &'static str,
        inputs: Vec<Name>,
        features: MaybeName,
    },
    Embedding(Box<EmbeddingNames>),
    Encoder(Box<EncoderNames>),
    Decoder(Box<DecoderNames>, Option<Stage>),
}

/// The names of all components, in their order.
#[derive(Debug)]
pub(super) struct GenaiPorts {
    pub parts: Vec<Part>,
    pub processors: ProcessorFiles,
}

impl GenaiPorts {
    /// What inputs of pixels and of sound's features are called.
    pub fn input_names(&self) -> InputNames {
        // A name that the file does not say is that of its key.
        let of_pixels = |name: &&Name| name.text == "pixel_values" || name.at.key.ends_with(".pixel_values");
        let mut names = InputNames {
            pixels: Vec::new(),
            features: Vec::new(),
        };
        for part in &self.parts {
            match part {
                Part::Features { inputs, .. } => {
                    names
                        .pixels
                        .extend(inputs.iter().find(of_pixels).map(|name| name.text.clone()));
                }
                Part::Encoder(encoder) => {
                    names
                        .features
                        .extend(encoder.audio_features.as_ref().map(|name| name.text.clone()));
                }
                _ => {}
            }
        }
        names
    }

    /// Binds what the graphs have. Gives what a person should know.
    pub fn bind(
        &self,
        declaration: &mut Declaration,
        ios: &[ComponentIo],
    ) -> Result<Vec<String>, PackageError> {
        let mut binder = Binder {
            ports: self,
            ios,
            edges: Vec::new(),
            warnings: Vec::new(),
            from_grid: declaration.coordinates == Some(Continuation::FromGrid),
        };
        for (index, (part, component)) in self.parts.iter().zip(&mut declaration.components).enumerate() {
            let Some(io) = ios.get(index) else { continue };
            match part {
                Part::Features { inputs, features, .. } => {
                    binder.features(component, io, inputs, features)?
                }
                Part::Embedding(names) => binder.embedding(component, io, names)?,
                Part::Encoder(names) => binder.encoder(component, io, names)?,
                Part::Decoder(names, _) => binder.decoder(component, io, names)?,
            }
        }
        let Binder { edges, warnings, .. } = binder;
        declaration.edges.extend(edges);
        self.link_stages(declaration, ios)?;
        self.check_decoder(declaration, ios)?;
        Ok(warnings)
    }

    /// Inputs of stages that nothing else feeds get what an earlier stage puts out.
    fn link_stages(&self, declaration: &mut Declaration, ios: &[ComponentIo]) -> Result<(), PackageError> {
        for (to, part) in self.parts.iter().enumerate() {
            let (Part::Decoder(_, Some(stage)), Some(io)) = (part, ios.get(to)) else {
                continue;
            };
            let Some(component) = declaration.components.get(to) else {
                continue;
            };
            for said in &stage.inputs {
                port_index(&component.name, &io.inputs, "input", &said.value, &said.at)?;
            }
            for said in &stage.outputs {
                port_index(&component.name, &io.outputs, "output", &said.value, &said.at)?;
            }
            let mut made = Vec::new();
            for port in &io.inputs {
                let fed = declaration
                    .edges
                    .iter()
                    .any(|edge| edge.to.value.component == component.name && edge.to.value.port == port.name);
                if fed || bound_input(component, &port.name) {
                    continue;
                }
                match self.earlier(to, &port.name, declaration, ios) {
                    Some(from) => made.push(edge(from, &component.name, &port.name, &component.at)),
                    None if port.optional => {}
                    None => {
                        let kind = PackageErrorKind::Unfed {
                            component: component.name.clone(),
                            port: port.name.clone(),
                            advice: "no stage before it puts that out, and no key of model.decoder.inputs \
                                     names it"
                                .to_owned(),
                        };
                        return Err(PackageError::new(component.at.clone(), kind));
                    }
                }
            }
            declaration.edges.extend(made);
        }
        Ok(())
    }

    /// The output of the nearest stage before `to` that goes by this name.
    fn earlier(
        &self,
        to: usize,
        name: &str,
        declaration: &Declaration,
        ios: &[ComponentIo],
    ) -> Option<Address> {
        let parts = self.parts.iter().enumerate().take(to).rev();
        parts.into_iter().find_map(|(from, part)| {
            let Part::Decoder(_, Some(stage)) = part else {
                return None;
            };
            let component = &declaration.components.get(from)?.name;
            let forwarded = stage.forwarded.iter().find(|(_, input)| input.value == name);
            let output = forwarded.map_or(name, |(output, _)| output.as_str());
            ios.get(from)?.output(output)?;
            Some(Address {
                component: component.clone(),
                port: output.to_owned(),
            })
        })
    }

    /// One component has the logits; a sequence reaches it.
    fn check_decoder(&self, declaration: &mut Declaration, ios: &[ComponentIo]) -> Result<(), PackageError> {
        let decoders = || {
            let parts = self.parts.iter().enumerate();
            parts.filter_map(|(index, part)| match part {
                Part::Decoder(names, _) => Some((index, names)),
                _ => None,
            })
        };
        let chooser = decoders().find(|(index, _)| {
            let component = declaration.components.get(*index);
            component.is_some_and(|component| component.io.logits_output.is_some())
        });
        let Some((last, names)) = decoders().next_back() else {
            return Ok(());
        };
        let (Some(component), Some(io)) = (declaration.components.get(last), ios.get(last)) else {
            return Ok(());
        };
        let Some((chooser, _)) = chooser else {
            return match &names.logits {
                Some(logits) => {
                    port_index(&component.name, &io.outputs, "output", &logits.text, &logits.at).map(|_| ())
                }
                // Found by its shape.
                None => Ok(()),
            };
        };
        let bound = decoders().any(|(index, _)| {
            let component = declaration.components.get(index);
            component.is_some_and(|one| one.io.token_input.is_some() || one.io.inputs_embeds_input.is_some())
        });
        if !bound {
            let first = decoders().next().map_or(last, |(first, _)| first);
            if let (Some(component), Some(io), Some(ids)) = (
                declaration.components.get(first),
                ios.get(first),
                names.input_ids.as_ref(),
            ) {
                port_index(&component.name, &io.inputs, "input", &ids.text, &ids.at)?;
            }
        }
        self.check_caches(declaration, ios)?;
        if let Some(component) = declaration.components.get_mut(chooser) {
            component.component_type = "decoder".to_owned();
            declaration.strategy.decoder = Some(Said {
                value: component.name.clone(),
                at: component.at.clone(),
            });
        }
        Ok(())
    }

    /// Names of caches that the file says are those of some graph.
    fn check_caches(&self, declaration: &Declaration, ios: &[ComponentIo]) -> Result<(), PackageError> {
        let decoders = || {
            let parts = self.parts.iter().zip(&declaration.components).zip(ios);
            parts.filter_map(|((part, component), io)| match part {
                Part::Decoder(names, _) => Some((names, component, io)),
                _ => None,
            })
        };
        let Some((names, component, io)) = decoders().next_back() else {
            return Ok(());
        };
        for name in [&names.keys.0, &names.values.0].into_iter().flatten() {
            let found = decoders().any(|(_, component, _)| {
                let mut bound = component.io.kv_inputs.iter();
                bound.any(|said| said.at == name.at)
            });
            if name.said && !found {
                port_index(&component.name, &io.inputs, "input", &name.of_layer(0), &name.at)?;
            }
        }
        Ok(())
    }
}

/// Whether a binding of the component, without an edge, feeds this input.
fn bound_input(component: &ComponentDeclaration, name: &str) -> bool {
    let io = &component.io;
    let single = [&io.token_input, &io.attention_mask_input, &io.position_ids_input];
    let mut names = single
        .into_iter()
        .flatten()
        .chain(&io.kv_inputs)
        .chain(&io.cross_kv_inputs)
        .chain(&io.ones_inputs)
        .chain(io.lengths.iter().map(|length| &length.port))
        .chain(io.state_pairs.iter().map(|pair| &pair.input));
    names.any(|said| said.value == name)
}

fn edge(from: Address, component: &str, port: &str, at: &Location) -> EdgeDeclaration {
    EdgeDeclaration {
        from: Said {
            value: from,
            at: at.clone(),
        },
        to: Said {
            value: Address {
                component: component.to_owned(),
                port: port.to_owned(),
            },
            at: at.clone(),
        },
        dtype: None,
    }
}

fn unsupported(at: &Location, what: String) -> PackageError {
    PackageError::new(at.clone(), PackageErrorKind::Unsupported { what })
}

fn has<'n>(ports: &[Port], name: &'n MaybeName) -> Option<&'n Name> {
    name.as_ref()
        .filter(|name| ports.iter().any(|port| port.name == name.text))
}

struct Binder<'p> {
    ports: &'p GenaiPorts,
    ios: &'p [ComponentIo],
    edges: Vec<EdgeDeclaration>,
    warnings: Vec<String>,
    /// Whether positions are known where there are pictures.
    from_grid: bool,
}

impl Binder<'_> {
    /// Notes inputs that the file names and the graph lacks.
    fn note_absent<'n>(&mut self, io: &ComponentIo, names: impl IntoIterator<Item = &'n Name>) {
        for name in names {
            if name.said && io.input(&name.text).is_none() {
                self.warnings.push(format!(
                    "{}: the graph has no input \"{}\"; it is not fed",
                    name.at,
                    shown(&name.text)
                ));
            }
        }
    }

    fn features(
        &mut self,
        component: &ComponentDeclaration,
        io: &ComponentIo,
        inputs: &[Name],
        features: &MaybeName,
    ) -> Result<(), PackageError> {
        self.note_absent(io, inputs);
        if let Some(name) = features {
            port_index(&component.name, &io.outputs, "output", &name.text, &name.at)?;
        }
        Ok(())
    }

    /// The output with the features of an encoder of pictures or sound.
    fn features_of(&self, encoder: &str) -> Option<Address> {
        self.ports.parts.iter().find_map(|part| match part {
            Part::Features {
                component,
                features: Some(features),
                ..
            } if *component == encoder => Some(Address {
                component: encoder.to_owned(),
                port: features.text.clone(),
            }),
            _ => None,
        })
    }

    fn embedding(
        &mut self,
        component: &mut ComponentDeclaration,
        io: &ComponentIo,
        names: &EmbeddingNames,
    ) -> Result<(), PackageError> {
        let EmbeddingNames {
            input_ids,
            image_features,
            audio_features,
            embeddings,
            per_layer_inputs,
        } = names;
        if let Some(name) = input_ids {
            port_index(&component.name, &io.inputs, "input", &name.text, &name.at)?;
            component.io.token_input = Some(name.as_said());
        }
        for name in [embeddings, per_layer_inputs].into_iter().flatten() {
            port_index(&component.name, &io.outputs, "output", &name.text, &name.at)?;
        }
        for (features, modality, source) in [
            (image_features, "image", "vision"),
            (audio_features, "audio", "speech"),
        ] {
            let Some(name) = has(&io.inputs, features) else {
                self.note_absent(io, features);
                continue;
            };
            if let Some(from) = self.features_of(source) {
                self.edges.push(edge(from, &component.name, &name.text, &name.at));
            }
            let shape = self.no_features(component, io, name)?;
            component.io.optional_inputs.push(OptionalInput {
                port: name.as_said(),
                modality: modality.to_owned(),
                shape,
                first_pass_only: true,
            });
        }
        Ok(())
    }

    /// Features of nothing: no rows, as wide as the port or the decoder says.
    fn no_features(
        &self,
        component: &ComponentDeclaration,
        io: &ComponentIo,
        name: &Name,
    ) -> Result<Vec<ZeroDim>, PackageError> {
        let port = io.input(&name.text);
        let dims = port.and_then(|port| port.dims.as_deref()).unwrap_or_default();
        let hidden = self.ports.parts.iter().find_map(|part| match part {
            Part::Decoder(names, _) => names.hidden_size.and_then(|size| i64::try_from(size).ok()),
            _ => None,
        });
        let width = match dims.last() {
            Some(Dim::Fixed(size)) => Some(*size),
            _ => hidden,
        };
        let (Some(width), 2..) = (width, dims.len()) else {
            let expected =
                "features [tokens, size] of a size that the port or model.decoder.hidden_size says";
            return Err(match port {
                Some(port) => super::resolve::mismatch(&component.name, port, &name.at, expected),
                None => unsupported(&name.at, expected.to_owned()),
            });
        };
        let leading = dims.len() - 1;
        let rows = dims
            .iter()
            .take(leading)
            .enumerate()
            .map(|(position, dim)| match dim {
                Dim::Fixed(size) if position + 1 < leading => ZeroDim::Fixed(*size),
                _ => ZeroDim::Fixed(0),
            });
        Ok(rows.chain([ZeroDim::Fixed(width)]).collect())
    }

    fn encoder(
        &mut self,
        component: &mut ComponentDeclaration,
        io: &ComponentIo,
        names: &EncoderNames,
    ) -> Result<(), PackageError> {
        self.note_absent(io, &names.others);
        if let Some(name) = has(&io.inputs, &names.audio_features) {
            component.io.audio_features_input = Some(name.as_said());
        } else {
            self.note_absent(io, &names.audio_features);
        }
        if let Some(name) = has(&io.inputs, &names.attention_mask) {
            component.io.ones_inputs.push(name.as_said());
        } else {
            self.note_absent(io, &names.attention_mask);
        }
        // There are as many as the decoder has layers.
        let decoder = self.ports.parts.iter().find_map(|part| match part {
            Part::Decoder(names, _) => names.layers,
            _ => None,
        });
        let outputs = port_names(&io.outputs);
        let patterns = [&names.cross_keys, &names.cross_values];
        component.io.cross_kv_outputs = expand(patterns, names.layers.max(decoder), &outputs);
        Ok(())
    }

    fn decoder(
        &mut self,
        component: &mut ComponentDeclaration,
        io: &ComponentIo,
        names: &DecoderNames,
    ) -> Result<(), PackageError> {
        let inputs = port_names(&io.inputs);
        for name in &names.not_fed {
            let port = io.input(&name.text);
            if port.is_some_and(|port| !port.optional) {
                let what = format!("input \"{}\" of the decoder", shown(&name.text));
                return Err(unsupported(&name.at, what));
            }
        }
        if let Some(name) = &names.combined
            && inputs.contains(name.of_layer(0).as_str())
        {
            let what = "a cache of keys and values in one tensor (past_names)".to_owned();
            return Err(unsupported(&name.at, what));
        }
        let whole = !self.has_stages();
        let bound = &mut component.io;
        let size = |said: Option<u64>| said.and_then(|size| i64::try_from(size).ok());
        bound.kv_heads = size(names.heads);
        bound.kv_head_size = size(names.head_size);
        bound.token_input = has(&io.inputs, &names.input_ids).map(Name::as_said);
        bound.inputs_embeds_input = has(&io.inputs, &names.inputs_embeds).map(Name::as_said);
        bound.attention_mask_input = has(&io.inputs, &names.attention_mask).map(Name::as_said);
        bound.position_ids_input = has(&io.inputs, &names.position_ids).map(Name::as_said);
        bound.logits_output = has(&io.outputs, &names.logits).map(Name::as_said);
        if whole {
            let optional = [&names.attention_mask, &names.position_ids];
            self.note_absent(io, optional.into_iter().flatten());
            let lengths = [&names.past_sequence_length, &names.current_sequence_length];
            let lengths = lengths
                .into_iter()
                .chain(names.lengths.iter().map(|(_, name)| name));
            self.note_absent(io, lengths.flatten());
        }
        self.positions(io, names)?;
        // Where there are both, onnxruntime-genai (DefaultInputIDs in its input_ids.cpp) counts both on
        // from step to step, the one from 0 and the other from -1: they are what GroupQueryAttention
        // calls total_sequence_length and seqlens_k.
        let both = [&names.past_sequence_length, &names.current_sequence_length];
        let (past, current) = match both.iter().all(|name| self.some_decoder_reads(name)) {
            true => (LengthOf::Last, LengthOf::Total),
            false => (LengthOf::Past, LengthOf::Current),
        };
        let lengths = names.lengths.iter().map(|(of, name)| (*of, name));
        for (of, name) in lengths.chain([
            (past, &names.past_sequence_length),
            (current, &names.current_sequence_length),
        ]) {
            if let Some(name) = has(&io.inputs, name) {
                bound.lengths.push(LengthInput {
                    port: name.as_said(),
                    of,
                });
            }
        }
        for layer in layers(names.layers, [&names.keys.0, &names.values.0], &inputs) {
            for (past, present) in [&names.keys, &names.values] {
                if let Some((past, present)) = pair(past, present, layer, &inputs) {
                    bound.kv_inputs.push(past);
                    bound.kv_outputs.push(present);
                }
            }
        }
        for (before, after) in &names.states {
            for layer in layers(names.layers, [before, &None], &inputs) {
                if let Some((input, output)) = pair(before, after, layer, &inputs) {
                    bound.state_pairs.push(StatePair { input, output });
                }
            }
        }
        bound.cross_kv_inputs = expand([&names.cross_keys, &names.cross_values], names.layers, &inputs);
        if let Some(name) = has(&io.inputs, &names.encoder_attention_mask) {
            bound.ones_inputs.push(name.as_said());
        }
        self.sources(component, io, names)
    }

    /// Edges from the components beside the decoder.
    fn sources(
        &mut self,
        component: &ComponentDeclaration,
        io: &ComponentIo,
        names: &DecoderNames,
    ) -> Result<(), PackageError> {
        let mut lead = |from: Option<Address>, name: &Name| {
            if let Some(from) = from {
                self.edges.push(edge(from, &component.name, &name.text, &name.at));
            }
        };
        let parts = || self.ports.parts.iter().zip(self.ios);
        if let Some(name) = has(&io.inputs, &names.encoder_hidden_states) {
            let from = parts().find_map(|(part, io)| match part {
                Part::Encoder(names) => {
                    let hidden = has(&io.outputs, &names.hidden_states)
                        .or_else(|| has(&io.outputs, &names.encoder_outputs));
                    Some(hidden.or(names.hidden_states.as_ref()).map(|hidden| Address {
                        component: "encoder".to_owned(),
                        port: hidden.text.clone(),
                    }))
                }
                _ => None,
            });
            lead(from.flatten(), name);
        }
        let from_embedding = |choose: fn(&Part) -> Option<&Name>| {
            let port = parts().find_map(|(part, _)| choose(part))?;
            Some(Address {
                component: "embedding".to_owned(),
                port: port.text.clone(),
            })
        };
        if let Some(name) = has(&io.inputs, &names.inputs_embeds) {
            let from = from_embedding(|part| match part {
                Part::Embedding(names) => names.embeddings.as_ref(),
                _ => None,
            });
            lead(from, name);
        }
        if let Some(name) = &names.per_layer_inputs {
            let from = from_embedding(|part| match part {
                Part::Embedding(names) => names.per_layer_inputs.as_ref(),
                _ => None,
            });
            if has(&io.inputs, &names.per_layer_inputs).is_some() {
                lead(from, name);
            } else if !self.has_stages() {
                port_index(&component.name, &io.inputs, "input", &name.text, &name.at)?;
            }
        }
        Ok(())
    }

    /// Three axes count alike as long as there are no pictures, or it is known how these lie.
    fn positions(&self, io: &ComponentIo, names: &DecoderNames) -> Result<(), PackageError> {
        let Some(name) = has(&io.inputs, &names.position_ids) else {
            return Ok(());
        };
        let dims = io.input(&name.text).and_then(|port| port.dims.as_ref());
        let pictures = self
            .ports
            .parts
            .iter()
            .any(|part| matches!(part, Part::Features { .. }));
        if pictures && !self.from_grid && dims.is_some_and(|dims| dims.len() == 3) {
            let what = "positions on three axes (position_ids) in a package with pictures".to_owned();
            return Err(unsupported(&name.at, what));
        }
        Ok(())
    }

    /// Whether the decoder, or one of its stages, has an input of this name.
    fn some_decoder_reads(&self, name: &MaybeName) -> bool {
        let mut parts = self.ports.parts.iter().zip(self.ios);
        parts.any(|(part, io)| matches!(part, Part::Decoder(..)) && has(&io.inputs, name).is_some())
    }

    fn has_stages(&self) -> bool {
        let mut parts = self.ports.parts.iter();
        parts.any(|part| matches!(part, Part::Decoder(_, Some(_))))
    }
}

fn port_names(ports: &[Port]) -> HashSet<&str> {
    ports.iter().map(|port| port.name.as_str()).collect()
}

/// The layers that the ports have names of, below as many as the file says; without its word those
/// that follow each other from 0. A name that is no pattern is the first layer's.
fn layers(said: Option<u64>, patterns: [&MaybeName; 2], names: &HashSet<&str>) -> Vec<u64> {
    let patterns = || patterns.into_iter().filter_map(|name| name.as_ref());
    let mut found: BTreeSet<u64> = names
        .iter()
        .flat_map(|port| patterns().filter_map(|name| name.layer_of(port)))
        .collect();
    if patterns().any(|name| !name.is_pattern() && names.contains(name.text.as_str())) {
        found.insert(0);
    }
    match said {
        Some(said) => found.range(..said).copied().collect(),
        None => (0..)
            .zip(found)
            .take_while(|(place, layer)| place == layer)
            .map(|(_, layer)| layer)
            .collect(),
    }
}

/// A layer's input and the output that takes its place, if the graph has the input.
fn pair(
    before: &MaybeName,
    after: &MaybeName,
    layer: u64,
    inputs: &HashSet<&str>,
) -> Option<(Said<String>, Said<String>)> {
    let (before, after) = (before.as_ref()?, after.as_ref()?);
    let input = before.of_layer(layer);
    inputs.contains(input.as_str()).then(|| {
        let output = after.with(after.of_layer(layer));
        (before.with(input), output)
    })
}

/// The ports of all layers that there are, layer by layer.
fn expand(patterns: [&MaybeName; 2], said: Option<u64>, names: &HashSet<&str>) -> Vec<Said<String>> {
    let of_layer = |layer| {
        let patterns = patterns.into_iter().filter_map(|name| name.as_ref());
        let said = patterns.map(move |name| name.with(name.of_layer(layer)));
        said.filter(|said| names.contains(said.value.as_str()))
            .collect::<Vec<_>>()
    };
    layers(said, patterns, names)
        .into_iter()
        .flat_map(of_layer)
        .collect()
}
