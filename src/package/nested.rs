//! Frames of codes: an outer decoder of which each step begins the loop of an inner one.
//!
//! The strategy names the parts; the ports between them are edges of pipeline.dataflow: from the
//! outer decoder's hidden state to the inner one's embeddings, and from the pre-embedder, if
//! there is one, to the outer decoder's.

use crate::component::{ComponentIo, Dim, Port, shown};

use super::declaration::{
    ComponentDeclaration, Declaration, NestedDeclaration, Phase, PreEmbedderDeclaration,
    PrefillEmbedderDeclaration, Said,
};
use super::document::{Cursor, Fields};
use super::metadata::said;
use super::resolve::{mismatch, port_index, said_invalid};
use super::roles::{Roles, has_rank, is_float, is_integer};
use super::spec::{InputSource, Nested, NestedFeed, PreEmbedder, Prefill};
use super::structure::Structure;
use super::{Location, PackageError, PackageErrorKind};

/// The port that the loop itself publishes on the outer decoder.
pub(super) const OUTPUT_CODES: &str = "output_codes";

/// The most codes of a frame: far more than any codec has.
const MOST_GROUPS: u64 = 4096;

/// Reads the fields of the strategy beside the outer decoder.
pub(super) fn read_nested(
    fields: &mut Fields<'_>,
    at: &Cursor<'_>,
) -> Result<NestedDeclaration, PackageError> {
    let inner = said(fields.required("inner", "the decoder that makes a frame's codes")?)?;
    let groups = fields
        .required("num_code_groups", "the codes of a frame")?
        .count_up_to(1, MOST_GROUPS)?;
    let embedding_output = said(fields.required(
        "inner_embedding_output",
        "the inner decoder's output that is its next step's input",
    )?)?;
    let pre_embedder = match fields.get("pre_embedder") {
        Some(at) => Some(read_pre_embedder(&at)?),
        None => None,
    };
    let prefill_embedder = match fields.get("prefill_embedder") {
        Some(at) if pre_embedder.is_none() => {
            return Err(at.invalid(
                "there is no pre_embedder, which the frames after the prompt go through; name one too",
            ));
        }
        Some(at) => Some(read_prefill_embedder(&at)?),
        None => None,
    };
    if let (Some(pre), Some(prefill)) = (&pre_embedder, &prefill_embedder)
        && pre.text_embed_input.is_none()
    {
        return Err(PackageError::new(
            prefill.trailing_output.at.clone(),
            PackageErrorKind::Invalid {
                message: "the pre_embedder names no text_embed_input that would take it".to_owned(),
            },
        ));
    }
    Ok(NestedDeclaration {
        inner,
        embedding_output,
        groups: groups as usize,
        pre_embedder,
        prefill_embedder,
        at: at.location(),
    })
}

fn read_pre_embedder(at: &Cursor<'_>) -> Result<PreEmbedderDeclaration, PackageError> {
    let mut fields = at.fields()?;
    let declared = PreEmbedderDeclaration {
        component: said(fields.required("component", "who makes the outer decoder's input")?)?,
        frame_codes_input: said(fields.required("frame_codes_input", "its input for the frame before")?)?,
        text_embed_input: fields.get("text_embed_input").map(said).transpose()?,
    };
    fields.finish();
    Ok(declared)
}

fn read_prefill_embedder(at: &Cursor<'_>) -> Result<PrefillEmbedderDeclaration, PackageError> {
    let mut fields = at.fields()?;
    let declared = PrefillEmbedderDeclaration {
        component: said(fields.required("component", "who makes the outer decoder's first input")?)?,
        prompt_input: said(fields.required("prompt_input", "its input for the prompt's tokens")?)?,
        prefill_output: said(fields.required("prefill_output", "what the outer decoder reads first")?)?,
        trailing_output: said(fields.required("trailing_output", "a row of text for each later frame")?)?,
    };
    fields.finish();
    Ok(declared)
}

/// The components inside of the decoder's steps, by index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NestedParts {
    pub outer: usize,
    pub inner: usize,
    pub pre_embedder: Option<usize>,
    pub prefill_embedder: Option<usize>,
}

/// Finds the components that the strategy names; each has one part.
pub(super) fn find_parts(
    declaration: &Declaration,
    decoder: Option<usize>,
) -> Result<Option<NestedParts>, PackageError> {
    let (Some(nested), Some(outer)) = (&declaration.strategy.nested, decoder) else {
        return Ok(None);
    };
    let find = |said: &Said<String>| declaration.index_of(&said.value, said);
    let pre = nested.pre_embedder.as_ref().map(|pre| &pre.component);
    let prefill = nested.prefill_embedder.as_ref().map(|prefill| &prefill.component);
    let mut taken = vec![outer];
    for said in [Some(&nested.inner), pre, prefill].into_iter().flatten() {
        let index = find(said)?;
        if taken.contains(&index) {
            return Err(said_invalid(
                &said.at,
                format!(
                    "component \"{}\" has another part in the strategy",
                    shown(&said.value)
                ),
            ));
        }
        taken.push(index);
    }
    Ok(Some(NestedParts {
        outer,
        inner: find(&nested.inner)?,
        pre_embedder: pre.map(find).transpose()?,
        prefill_embedder: prefill.map(find).transpose()?,
    }))
}

/// What an edge between two parts is fed by, if it is the one that the loop over frames is about.
pub(super) fn edge_feed(structure: &Structure, from: usize, to: usize, port: &str) -> Option<NestedFeed> {
    let parts = structure.nested?;
    let feed = match (from, to) {
        (from, to) if from == parts.outer && to == parts.inner => NestedFeed::InnerEmbeds,
        (from, to) if Some(from) == parts.pre_embedder && to == parts.outer => NestedFeed::OuterEmbeds,
        _ => return None,
    };
    let component = structure.declaration.components.get(to)?;
    let declared = component.io.inputs_embeds_input.as_ref();
    declared.is_none_or(|said| said.value == port).then_some(feed)
}

/// The phase that a component has by its part.
pub(super) fn phase(structure: &Structure, index: usize) -> Option<Phase> {
    let parts = structure.nested?;
    if index == parts.inner || Some(index) == parts.pre_embedder {
        return Some(Phase::EveryStep);
    }
    (Some(index) == parts.prefill_embedder).then_some(Phase::PromptOnly)
}

/// That the package gives a part no phase in which it could not play it. A pre-embedder runs when
/// the loop asks for it, so that on_demand says nothing wrong of it.
pub(super) fn check_phases(structure: &Structure) -> Result<(), PackageError> {
    for (index, component) in structure.declaration.components.iter().enumerate() {
        let (Some(needed), Some(said)) = (phase(structure, index), &component.phase) else {
            continue;
        };
        let pre = structure.nested.and_then(|parts| parts.pre_embedder);
        let by_the_loop = Some(index) == pre && said.value == Phase::OnDemand;
        if said.value != needed && !by_the_loop {
            return Err(said_invalid(
                &said.at,
                format!(
                    "component \"{}\" is {}; in a nested_autoregressive strategy it must be {}",
                    shown(&component.name),
                    said.value.name(),
                    needed.name()
                ),
            ));
        }
    }
    Ok(())
}

/// Binds the inputs that the strategy names.
pub(super) fn bind(
    structure: &Structure,
    index: usize,
    component: &ComponentDeclaration,
    io: &ComponentIo,
    roles: &mut Roles,
) -> Result<(), PackageError> {
    let (Some(parts), Some(nested)) = (structure.nested, &structure.declaration.strategy.nested) else {
        return Ok(());
    };
    let input = |said: &Said<String>| port_index(&component.name, &io.inputs, "input", &said.value, &said.at);
    if let (Some(pre), true) = (&nested.pre_embedder, Some(index) == parts.pre_embedder) {
        let codes = input(&pre.frame_codes_input)?;
        let wanted = format!("int32 or int64 [1, {}], the codes of a frame", nested.groups);
        check_port(component, io, codes, &pre.frame_codes_input, &wanted, |port| {
            let groups = port.dims.as_ref().and_then(|dims| dims.last());
            let fits =
                !matches!(groups, Some(Dim::Fixed(size)) if usize::try_from(*size) != Ok(nested.groups));
            is_integer(port) && has_rank(port, &[2]) && fits
        })?;
        let source = InputSource::Nested(NestedFeed::FrameCodes);
        roles.bind(component, io, codes, source, &pre.frame_codes_input.at)?;
        if let Some(said) = &pre.text_embed_input {
            let text = input(said)?;
            check_port(
                component,
                io,
                text,
                said,
                "a row of floats [1, 1, width]",
                |port| is_float(port) && has_rank(port, &[3]),
            )?;
            let source = InputSource::Nested(NestedFeed::TextEmbed);
            roles.bind(component, io, text, source, &said.at)?;
        }
    }
    if let (Some(prefill), true) = (&nested.prefill_embedder, Some(index) == parts.prefill_embedder) {
        let said = &prefill.prompt_input;
        // The component's own bindings may say the same.
        if component.io.token_input.as_ref().map(|said| &said.value) == Some(&said.value) {
            return Ok(());
        }
        let prompt = input(said)?;
        check_port(
            component,
            io,
            prompt,
            said,
            "token ids: int32 or int64, rank 2",
            |port| is_integer(port) && has_rank(port, &[2]),
        )?;
        roles.bind(component, io, prompt, InputSource::Tokens, &said.at)?;
    }
    Ok(())
}

fn check_port(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    input: usize,
    said: &Said<String>,
    expected: &str,
    good: impl Fn(&Port) -> bool,
) -> Result<(), PackageError> {
    match io.inputs.get(input) {
        Some(port) if !good(port) => Err(mismatch(&component.name, port, &said.at, expected)),
        _ => Ok(()),
    }
}

/// Puts the parts together, given each component's ports; `logits` is the inner decoder's output.
pub(super) fn resolve(
    structure: &Structure,
    ios: &[ComponentIo],
    logits: Option<usize>,
    sources: impl Fn(usize, usize) -> Option<InputSource>,
) -> Result<Option<Nested>, PackageError> {
    let declaration = &structure.declaration;
    let (Some(parts), Some(nested), Some(logits)) = (structure.nested, &declaration.strategy.nested, logits)
    else {
        return Ok(None);
    };
    let find = Find { declaration, ios };
    let (seed, inner_embeds) = find.feed(structure, nested, parts.outer, parts.inner)?;
    let embedding = find.output(parts.inner, &nested.embedding_output)?;
    find.check_floats(parts.inner, embedding, &nested.embedding_output)?;
    let inner_input = (parts.inner, inner_embeds);
    find.check_width((parts.inner, embedding), inner_input, &nested.embedding_output.at)?;
    let carries = |component: usize, wanted: InputSource| {
        let inputs = ios.get(component).map_or(0, |io| io.inputs.len());
        (0..inputs).find(|&input| sources(component, input) == Some(wanted))
    };
    if let Some(input) = carries(parts.inner, InputSource::Tokens) {
        return Err(find.refuse(
            parts.inner,
            input,
            "an input of the embeddings that its steps go on with; the inner decoder reads no tokens",
        ));
    }
    let pre_embedder = match (&nested.pre_embedder, parts.pre_embedder) {
        (Some(declared), Some(component)) => {
            if let Some(input) = carries(parts.outer, InputSource::Tokens) {
                return Err(find.refuse(
                    parts.outer,
                    input,
                    "an input of the embeddings that the pre_embedder makes; the outer decoder then reads no tokens",
                ));
            }
            let (output, outer_embeds) = find.feed(structure, nested, component, parts.outer)?;
            let prefill = match (&nested.prefill_embedder, parts.prefill_embedder) {
                (Some(declared), Some(component)) => {
                    let prefill = find.output(component, &declared.prefill_output)?;
                    find.check_floats(component, prefill, &declared.prefill_output)?;
                    let outer_input = (parts.outer, outer_embeds);
                    find.check_width((component, prefill), outer_input, &declared.prefill_output.at)?;
                    let trailing = find.output(component, &declared.trailing_output)?;
                    find.check_floats(component, trailing, &declared.trailing_output)?;
                    Some(Prefill {
                        component,
                        prefill,
                        trailing,
                    })
                }
                _ => None,
            };
            let text_width = match &declared.text_embed_input {
                None => None,
                Some(said) => {
                    let own = find.input(component, &said.value);
                    let width = own.and_then(last_size).or_else(|| {
                        let io = ios.get(parts.outer)?;
                        last_size(io.inputs.get(outer_embeds)?)
                    });
                    Some(width.ok_or_else(|| {
                        said_invalid(
                            &said.at,
                            "neither it nor the outer decoder's embeddings have a fixed last dim, which zeros \
                             that stand for no text need"
                                .to_owned(),
                        )
                    })?)
                }
            };
            Some(PreEmbedder {
                component,
                output,
                text_width,
                prefill,
            })
        }
        _ => None,
    };
    Ok(Some(Nested {
        inner: parts.inner,
        seed,
        logits,
        embedding,
        groups: nested.groups,
        pre_embedder,
    }))
}

fn last_size(port: &Port) -> Option<i64> {
    match port.dims.as_ref()?.last()? {
        Dim::Fixed(size) => Some(*size),
        Dim::Symbol(_) => None,
    }
}

struct Find<'s> {
    declaration: &'s Declaration,
    ios: &'s [ComponentIo],
}

impl Find<'_> {
    fn name(&self, component: usize) -> &str {
        let component = self.declaration.components.get(component);
        component.map_or("", |component| &component.name)
    }

    fn input(&self, component: usize, port: &str) -> Option<&Port> {
        self.ios.get(component)?.input(port)
    }

    fn output(&self, component: usize, said: &Said<String>) -> Result<usize, PackageError> {
        let outputs = self.ios.get(component).map_or(&[][..], |io| &io.outputs);
        port_index(self.name(component), outputs, "output", &said.value, &said.at)
    }

    fn check_floats(&self, component: usize, output: usize, said: &Said<String>) -> Result<(), PackageError> {
        let port = self.ios.get(component).and_then(|io| io.outputs.get(output));
        match port {
            Some(port) if !(is_float(port) && has_rank(port, &[2, 3])) => {
                let expected = "rows of float32, float16 or bfloat16, rank 2 or 3";
                Err(mismatch(self.name(component), port, &said.at, expected))
            }
            _ => Ok(()),
        }
    }

    /// That rows are as wide as their reader's, where the ports say how wide they are.
    fn check_width(
        &self,
        (from, output): (usize, usize),
        (to, input): (usize, usize),
        at: &Location,
    ) -> Result<(), PackageError> {
        let output = self.ios.get(from).and_then(|io| io.outputs.get(output));
        let input = self.ios.get(to).and_then(|io| io.inputs.get(input));
        let (Some(output), Some(input)) = (output, input) else {
            return Ok(());
        };
        match (last_size(output), last_size(input)) {
            (Some(given), Some(wanted)) if given != wanted => {
                let expected = format!(
                    "rows of {wanted}, as its reader \"{}.{}\" has them",
                    shown(self.name(to)),
                    shown(&input.name)
                );
                Err(mismatch(self.name(from), output, at, expected))
            }
            _ => Ok(()),
        }
    }

    /// The output and the input of the one edge that carries embeddings between two parts.
    fn feed(
        &self,
        structure: &Structure,
        nested: &NestedDeclaration,
        from: usize,
        to: usize,
    ) -> Result<(usize, usize), PackageError> {
        let mut found = self.declaration.edges.iter().filter(|edge| {
            self.declaration.ends(edge) == Some((from, to))
                && edge_feed(structure, from, to, &edge.to.value.port).is_some()
        });
        let (Some(edge), None) = (found.next(), found.next()) else {
            let embeds = self.declaration.components.get(to);
            let embeds = embeds.and_then(|component| component.io.inputs_embeds_input.as_ref());
            return Err(said_invalid(
                &nested.at,
                format!(
                    "not exactly one edge of pipeline.dataflow leads from \"{}\" to the embeddings of \"{}\"{}; each \
                     frame goes that way",
                    shown(self.name(from)),
                    shown(self.name(to)),
                    embeds.map_or(String::new(), |said| format!(
                        ", its input \"{}\"",
                        shown(&said.value)
                    ))
                ),
            ));
        };
        let output = self.output(
            from,
            &Said {
                value: edge.from.value.port.clone(),
                at: edge.from.at.clone(),
            },
        )?;
        self.check_floats(
            from,
            output,
            &Said {
                value: edge.from.value.port.clone(),
                at: edge.from.at.clone(),
            },
        )?;
        let inputs = self.ios.get(to).map_or(&[][..], |io| &io.inputs);
        let input = port_index(self.name(to), inputs, "input", &edge.to.value.port, &edge.to.at)?;
        self.check_width((from, output), (to, input), &edge.to.at)?;
        match inputs.get(input) {
            Some(port) if !(is_float(port) && has_rank(port, &[3])) => {
                let expected = "embeddings: float32, float16 or bfloat16, rank 3";
                Err(mismatch(self.name(to), port, &edge.to.at, expected))
            }
            _ => Ok((output, input)),
        }
    }

    fn refuse(&self, component: usize, input: usize, expected: &str) -> PackageError {
        let declared = self.declaration.components.get(component);
        let port = self.ios.get(component).and_then(|io| io.inputs.get(input));
        let at = declared.map_or_else(Default::default, |component| component.at.clone());
        match port {
            Some(port) => mismatch(self.name(component), port, &at, expected),
            None => said_invalid(&at, expected.to_owned()),
        }
    }
}
