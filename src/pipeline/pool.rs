use std::ops::Range;

use crate::component::{
    ComponentError, ComponentErrorKind, EnteredAccount, MemoryAccount, Port, Shape, TensorError, TensorView,
};
use crate::package::{
    ComponentSpec, Continuation, InputDim, InputSource, InputSpec, LengthOf, OutputRole, PipelineSpec,
};

use super::PipelineError;
use super::cache::Cache;
use super::convert::{read_integers, write_integers, write_number, write_ones};
use super::execute::Scratch;
use super::merge;
use super::nested::Feeds;
use super::pictures::{Picture, position};
use super::request::Settable;
use super::states::States;
use super::value::{Slot, Value};

/// Every value of a run: request inputs, outputs, caches, and what the loop itself feeds.
#[derive(Default)]
pub(super) struct Pool {
    pub(super) components: Vec<ComponentValues>,
    /// For each component one for each output: the caches that it makes longer in place. They
    /// are apart from the other values, which are read while it writes them.
    pub(super) caches: Vec<Vec<Option<Cache>>>,
    /// Chosen tokens, int64 `[1, n]`.
    pub output_ids: Value,
    /// Codes of all frames, int64 `[1, frames, groups]`.
    pub output_codes: Value,
    pub feeds: Feeds,
    pub states: States,
    /// Among the tokens of the run.
    pub pictures: Vec<Picture>,
    pub(super) scratch: Scratch,
    /// What its memory counts for, if it has a limit.
    account: Option<MemoryAccount>,
}

#[derive(Default)]
pub(super) struct ComponentValues {
    /// One for each output.
    pub outputs: Vec<Slot>,
    /// One for each input: the host's value.
    requests: Vec<Value>,
    /// One for each input: what the loop makes for it (ids, a mask, positions, a converted
    /// or an absent value).
    made: Vec<Value>,
    /// One for each output: what one pass of a step made, while another one runs.
    aside: Vec<Value>,
}

impl ComponentValues {
    fn fork(&mut self) -> ComponentValues {
        ComponentValues {
            outputs: self.outputs.iter_mut().map(Slot::fork).collect(),
            requests: self.requests.iter_mut().map(Value::fork).collect(),
            // Made anew for each call.
            made: std::iter::repeat_with(Value::default)
                .take(self.made.len())
                .collect(),
            aside: Vec::new(),
        }
    }

    /// Puts what the step under way has made aside.
    pub fn set_aside(&mut self) {
        self.aside.resize_with(self.outputs.len(), Value::default);
        for (slot, aside) in self.outputs.iter_mut().zip(&mut self.aside) {
            std::mem::swap(&mut slot.back, aside);
        }
    }

    /// Takes back what was put aside of an output, as `join` changes it in the light of what has
    /// been made since.
    pub fn take_back(
        &mut self,
        output: usize,
        join: impl FnOnce(&mut Value, &Value) -> Result<(), TensorError>,
    ) -> Result<(), TensorError> {
        let (Some(slot), Some(aside)) = (self.outputs.get_mut(output), self.aside.get_mut(output)) else {
            return Ok(());
        };
        join(aside, &slot.back)?;
        std::mem::swap(&mut slot.back, aside);
        // What a backend owns is given back, our room is kept.
        aside.clear();
        Ok(())
    }
}

/// What the values of a step are read from.
#[derive(Clone, Copy)]
pub(super) struct Values<'p> {
    pub components: &'p [ComponentValues],
    pub output_ids: &'p Value,
    pub output_codes: &'p Value,
    pub feeds: &'p Feeds,
    pub states: &'p States,
}

/// The tokens that a component runs over.
#[derive(Clone, Copy)]
pub(super) struct Span<'t> {
    /// Empty for components that read embeddings which are no tokens'.
    pub ids: &'t [i32],
    /// Its positions.
    pub len: usize,
    /// Positions before the span, those in the caches included.
    pub past: usize,
    /// An output of the component of which the last row is enough.
    pub last_row: Option<usize>,
    /// All tokens of the run, of which the span is a part.
    pub tokens: &'t [i32],
}

impl Pool {
    /// The values of a run, whose memory counts for an account if there is one.
    pub fn new(spec: &PipelineSpec, account: Option<MemoryAccount>) -> Result<Self, PipelineError> {
        let _entered = EnteredAccount::new(account.clone());
        let values = |count: usize| std::iter::repeat_with(Value::default).take(count).collect();
        let mut pool = Pool {
            components: spec
                .components
                .iter()
                .map(|component| ComponentValues {
                    outputs: std::iter::repeat_with(Slot::default)
                        .take(component.outputs.len())
                        .collect(),
                    requests: values(component.inputs.len()),
                    made: values(component.inputs.len()),
                    aside: Vec::new(),
                })
                .collect(),
            caches: spec.components.iter().map(caches_in_place).collect(),
            states: States::new(spec),
            account,
            ..Pool::default()
        };
        pool.reset_caches(spec).map_err(|error| pool.explained(error))?;
        Ok(pool)
    }

    /// A pool of the same values, between steps. Nothing is copied: what either pool writes it
    /// writes into memory of its own, and a cache takes its rows there first. That memory counts for
    /// the new pool, what they share for the one that made it.
    pub fn fork(&mut self, account: Option<MemoryAccount>) -> Pool {
        let fork = |cache: &Option<Cache>| cache.as_ref().map(Cache::fork);
        let caches = self.caches.iter();
        Pool {
            caches: caches.map(|of| of.iter().map(fork).collect()).collect(),
            components: self.components.iter_mut().map(ComponentValues::fork).collect(),
            output_ids: self.output_ids.fork(),
            output_codes: self.output_codes.fork(),
            feeds: self.feeds.fork(),
            states: self.states.fork(),
            pictures: self.pictures.clone(),
            scratch: Scratch::default(),
            account,
        }
    }

    /// The error of memory that the limit did not allow since the account was entered.
    pub(super) fn over_limit(&self, what: &str) -> Option<PipelineError> {
        let kind = self.account.as_ref()?.refusal(what)?;
        Some(ComponentError::new("", kind).into())
    }

    /// What its memory counts for.
    pub fn account(&self) -> Option<MemoryAccount> {
        self.account.clone()
    }

    /// Charges what this thread makes to the run, until the guard is dropped.
    pub(super) fn enter(&self) -> EnteredAccount {
        EnteredAccount::of(self.account.as_ref())
    }

    /// An error for want of memory, with the limit if that was the reason.
    pub(super) fn explained(&self, error: PipelineError) -> PipelineError {
        match error {
            PipelineError::Component(error) => MemoryAccount::explain_of(self.account.as_ref(), error).into(),
            error => error,
        }
    }

    /// Empties every KV cache and zeros every recurrent state.
    pub fn reset_caches(&mut self, spec: &PipelineSpec) -> Result<(), PipelineError> {
        (0..spec.components.len()).try_for_each(|index| self.reset_caches_of(spec, index))
    }

    /// Empties the KV caches of a component and zeros its recurrent states.
    pub fn reset_caches_of(&mut self, spec: &PipelineSpec, index: usize) -> Result<(), PipelineError> {
        let caches = self.caches.get_mut(index).into_iter().flatten().flatten();
        caches.for_each(|cache| cache.truncate(0));
        let (Some(component), Some(values)) = (spec.components.get(index), self.components.get_mut(index))
        else {
            return Ok(());
        };
        for ((output, slot), port) in component
            .outputs
            .iter()
            .zip(&mut values.outputs)
            .zip(&component.io.outputs)
        {
            let shape = match &output.role {
                OutputRole::Held => {
                    slot.front.clear();
                    continue;
                }
                OutputRole::Plain
                | OutputRole::Present {
                    in_place: Some(_), ..
                } => continue,
                OutputRole::Present { empty, .. } => empty,
                OutputRole::State { shape } => shape,
            };
            let Some(dtype) = output.dtype else { continue };
            slot.front
                .write_zeros(dtype, shape)
                .map_err(|error| at_port(component, port, error))?;
        }
        Ok(())
    }

    /// Makes every KV cache `len` positions long, if it is longer.
    pub fn truncate_caches(&mut self, spec: &PipelineSpec, len: usize) -> Result<(), PipelineError> {
        let rows = i64::try_from(len).unwrap_or(i64::MAX);
        // First what can fail, then what cannot.
        for (component, port, slot, _) in self.caches(spec) {
            slot.front
                .own()
                .map_err(|error| at_port(component, port, error))?;
        }
        for (_, _, slot, axis) in self.caches(spec) {
            slot.front.truncate(axis, rows);
        }
        self.caches_in_place().for_each(|cache| cache.truncate(len));
        Ok(())
    }

    fn caches<'p>(
        &'p mut self,
        spec: &'p PipelineSpec,
    ) -> impl Iterator<Item = (&'p ComponentSpec, &'p Port, &'p mut Slot, usize)> {
        spec.components
            .iter()
            .zip(&mut self.components)
            .flat_map(|(component, values)| {
                component
                    .outputs
                    .iter()
                    .zip(&component.io.outputs)
                    .zip(&mut values.outputs)
                    .filter_map(move |((output, port), slot)| match output.role {
                        OutputRole::Present {
                            axis, in_place: None, ..
                        } => Some((component, port, slot, axis)),
                        _ => None,
                    })
            })
    }

    fn caches_in_place(&mut self) -> impl Iterator<Item = &mut Cache> {
        self.caches.iter_mut().flatten().flatten()
    }

    pub(super) fn cache(&self, component: usize, output: usize) -> Option<&Cache> {
        self.caches.get(component)?.get(output)?.as_ref()
    }

    pub(super) fn cache_mut(&mut self, component: usize, output: usize) -> Option<&mut Cache> {
        self.caches.get_mut(component)?.get_mut(output)?.as_mut()
    }

    /// Rows that no cache can have more than, if any has such a limit.
    pub fn most_rows(&self) -> Option<usize> {
        let caches = self.caches.iter().flatten().flatten();
        caches.filter_map(Cache::most_rows).min()
    }

    /// Rows of an output that is a KV cache; `None` of another, or of one without rows yet.
    pub fn cache_rows(&self, spec: &PipelineSpec, component: usize, output: usize) -> Option<usize> {
        if let Some(cache) = self.cache(component, output) {
            return Some(cache.rows());
        }
        let OutputRole::Present { axis, .. } = &spec.components.get(component)?.outputs.get(output)?.role
        else {
            return None;
        };
        let slot = self.components.get(component)?.outputs.get(output)?;
        let rows = slot.front.view()?.shape().get(*axis).copied()?;
        usize::try_from(rows).ok()
    }

    /// The host's values, in the order of components and inputs.
    pub fn requests(&self) -> impl Iterator<Item = (usize, usize, TensorView<'_>)> {
        let components = self.components.iter().enumerate();
        components.flat_map(|(component, values)| {
            let requests = values.requests.iter().enumerate();
            requests.filter_map(move |(input, value)| Some((component, input, value.view()?)))
        })
    }

    /// The same, to be kept.
    pub fn fork_requests(&mut self) -> Vec<(usize, usize, Value)> {
        let mut kept = Vec::new();
        for (component, values) in self.components.iter_mut().enumerate() {
            for (input, value) in values.requests.iter_mut().enumerate() {
                if value.view().is_some() {
                    kept.push((component, input, value.fork()));
                }
            }
        }
        kept
    }

    /// The place of the host's value for an input.
    pub fn request_mut(&mut self, component: usize, input: usize) -> Option<&mut Value> {
        self.components.get_mut(component)?.requests.get_mut(input)
    }

    /// Bytes that the KV caches hold, in use or reserved.
    pub fn cache_bytes(&self, spec: &PipelineSpec) -> u64 {
        let mut bytes: u64 = self
            .caches
            .iter()
            .flatten()
            .flatten()
            .map(Cache::held_bytes)
            .sum();
        for (component, values) in spec.components.iter().zip(&self.components) {
            for (output, slot) in component.outputs.iter().zip(&values.outputs) {
                if matches!(output.role, OutputRole::Present { .. }) {
                    bytes += slot.front.held_bytes() + slot.back.held_bytes();
                }
            }
        }
        bytes
    }

    /// What steps wrote becomes what there is.
    pub fn commit(&mut self) {
        self.slots().for_each(Slot::commit);
        self.caches_in_place().for_each(Cache::commit);
    }

    /// Forgets what an unfinished step wrote.
    pub fn roll_back(&mut self) {
        self.states.leaving_out = None;
        self.slots().for_each(Slot::roll_back);
        self.caches_in_place().for_each(Cache::roll_back);
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        let outputs = self.components.iter_mut().flat_map(|values| &mut values.outputs);
        outputs.chain(self.states.slots())
    }

    /// An output as a component of the step under way sees it.
    pub fn output(&self, component: usize, output: usize) -> Option<TensorView<'_>> {
        self.values().output(component, output)
    }

    /// An output as a host sees it. A cache with memory for more rows is copied to be shown.
    pub fn shown(&self, component: usize, output: usize) -> Result<Option<TensorView<'_>>, TensorError> {
        match self.cache(component, output) {
            Some(cache) => cache.view().map(Some),
            None => Ok(self.output(component, output)),
        }
    }

    pub fn request(&self, component: usize, input: usize) -> Option<TensorView<'_>> {
        self.values().request(component, input)
    }

    pub(super) fn values(&self) -> Values<'_> {
        Values {
            components: &self.components,
            output_ids: &self.output_ids,
            output_codes: &self.output_codes,
            feeds: &self.feeds,
            states: &self.states,
        }
    }

    /// The shape of the value that stands at an input.
    pub(super) fn input_shape(&self, component: usize, input: usize, spec: &InputSpec) -> Option<&[i64]> {
        if let InputSource::Past { output } = spec.source
            && let Some(cache) = self.cache(component, output)
        {
            return Some(cache.shape());
        }
        let value = self.values().input(component, input, spec)?;
        Some(value.shape())
    }

    /// The host's value at a place.
    pub fn given(&self, at: Settable) -> Option<TensorView<'_>> {
        match at.uncond {
            true => self.states.without(at.component, at.input),
            false => self.request(at.component, at.input),
        }
    }

    pub fn given_mut(&mut self, at: Settable) -> Option<&mut Value> {
        match at.uncond {
            true => self.states.without_mut(at.component, at.input),
            false => self.components.get_mut(at.component)?.requests.get_mut(at.input),
        }
    }

    /// Makes the outputs of a component unknown, as they were before it first ran.
    pub fn forget_outputs(&mut self, component: usize) {
        if let Some(values) = self.components.get_mut(component) {
            for slot in &mut values.outputs {
                slot.front.clear();
                slot.roll_back();
            }
        }
        for cache in self.caches.get_mut(component).into_iter().flatten().flatten() {
            cache.truncate(0);
        }
    }

    /// Makes what the loop itself feeds to a component: ids, mask, positions, conversions,
    /// zeros for what is absent.
    pub(super) fn make_inputs(
        &mut self,
        index: usize,
        component: &ComponentSpec,
        span: Span<'_>,
    ) -> Result<(), PipelineError> {
        for &input in &component.making {
            let Some(spec) = component.inputs.get(input) else {
                continue;
            };
            let taken = self
                .components
                .get_mut(index)
                .and_then(|values| values.made.get_mut(input))
                .map(std::mem::take);
            let Some(mut made) = taken else { continue };
            let outcome = self.make_input(component, index, input, spec, span, &mut made);
            if let Some(slot) = self
                .components
                .get_mut(index)
                .and_then(|values| values.made.get_mut(input))
            {
                *slot = made;
            }
            if let (Err(error), Some(port)) = (outcome, component.io.inputs.get(input)) {
                return Err(at_port(component, port, error));
            }
        }
        Ok(())
    }

    fn make_input(
        &self,
        component: &ComponentSpec,
        index: usize,
        input: usize,
        spec: &InputSpec,
        span: Span<'_>,
        made: &mut Value,
    ) -> Result<(), TensorError> {
        let count = span.len;
        let len = count as i64;
        let past = span.past as i64;
        match spec.source {
            InputSource::Tokens => {
                let bytes = made.write(spec.dtype, &[1, len])?;
                write_integers(spec.dtype, bytes, span.ids.iter().map(|&id| i64::from(id)));
            }
            InputSource::AttentionMask => {
                let ones = past + len;
                let shape = self.made_shape(component, index, &spec.dims);
                let rows = shape.get(1).map_or(ones, |&rows| rows.max(ones));
                let bytes = made.write(spec.dtype, &[1, rows])?;
                let ones = usize::try_from(ones).unwrap_or(0) * spec.dtype.size();
                let (ones, rest) = bytes.split_at_mut(ones.min(bytes.len()));
                write_ones(spec.dtype, ones);
                rest.fill(0);
            }
            InputSource::Positions {
                rank,
                coordinates: Some(continuation),
            } if self.request(index, input).is_some() => {
                let given = self.request(index, input).map(Coordinates::of);
                let given = given.unwrap_or_default();
                let axes: i64 = if rank == 3 { 3 } else { 1 };
                let shape: &[i64] = match rank {
                    1 => &[len],
                    3 => &[3, 1, len],
                    _ => &[1, len],
                };
                let bytes = made.write(spec.dtype, shape)?;
                let values = (0..axes).flat_map(|axis| {
                    let given = &given;
                    (past..past + len).map(move |place| given.at(axis, place, continuation))
                });
                write_integers(spec.dtype, bytes, values);
            }
            InputSource::Positions {
                rank: 3,
                coordinates: Some(Continuation::FromGrid),
            } if !self.pictures.is_empty() => {
                let bytes = made.write(spec.dtype, &[3, 1, len])?;
                let values = (0..3).flat_map(|axis| {
                    let places = span.past..span.past + count;
                    places.map(move |place| position(&self.pictures, axis, place))
                });
                write_integers(spec.dtype, bytes, values);
            }
            InputSource::Positions { rank, .. } => {
                let shape: &[i64] = match rank {
                    1 => &[len],
                    3 => &[3, 1, len],
                    _ => &[1, len],
                };
                let bytes = made.write(spec.dtype, shape)?;
                // On three axes the same positions, one axis after the other.
                write_integers(spec.dtype, bytes, (past..past + len).cycle().take(3 * count));
            }
            InputSource::Length { of, rank } => {
                let value = match of {
                    LengthOf::Past => past,
                    LengthOf::Current => len,
                    LengthOf::Total => past + len,
                    LengthOf::Last => past + len - 1,
                };
                let shape = Shape::from_elem(1, rank);
                let bytes = made.write(spec.dtype, &shape)?;
                write_integers(spec.dtype, bytes, std::iter::once(value));
            }
            InputSource::CacheBranch { rank } => {
                let shape = Shape::from_elem(1, rank);
                made.write(spec.dtype, &shape)?.fill(u8::from(past > 0));
            }
            InputSource::Held { output } => match self.output(index, output) {
                Some(_) => made.clear(),
                None => made.write_zeros(spec.dtype, &self.made_shape(component, index, &spec.dims))?,
            },
            InputSource::Ones => {
                let shape = self.made_shape(component, index, &spec.dims);
                write_ones(spec.dtype, made.write(spec.dtype, &shape)?);
            }
            InputSource::Timestep => {
                let shape = self.made_shape(component, index, &spec.dims);
                let bytes = made.write(spec.dtype, &shape)?;
                write_number(spec.dtype, bytes, self.states.timestep);
            }
            InputSource::Edge(_) | InputSource::LoopResult { .. } => {
                let later =
                    span.past > 0 && spec.absent.as_ref().is_some_and(|absent| absent.first_pass_only);
                match self.values().routed(spec.source).filter(|_| !later) {
                    Some(value) if value.dtype() != spec.dtype || !spec.merges.is_empty() => {
                        made.convert_from(value, spec.dtype)?;
                        merge::merge(&spec.merges, self.values(), span, made);
                    }
                    Some(_) => made.clear(),
                    None => self.make_absent(component, index, spec, made)?,
                }
            }
            InputSource::Request { .. } if self.request(index, input).is_none() => {
                self.make_absent(component, index, spec, made)?;
            }
            _ => made.clear(),
        }
        Ok(())
    }

    fn make_absent(
        &self,
        component: &ComponentSpec,
        index: usize,
        spec: &InputSpec,
        made: &mut Value,
    ) -> Result<(), TensorError> {
        let Some(absent) = &spec.absent else {
            made.clear();
            return Ok(());
        };
        made.write_zeros(spec.dtype, &self.made_shape(component, index, &absent.dims))
    }

    /// The shape of a value that the loop makes for an input of a component.
    fn made_shape(&self, component: &ComponentSpec, index: usize, dims: &[InputDim]) -> Shape {
        let size = |dim: &InputDim| match *dim {
            InputDim::Fixed(size) => Some(size),
            InputDim::SameAs { input, axis } => component
                .inputs
                .get(input)
                .and_then(|spec| self.input_shape(index, input, spec))
                .and_then(|shape| shape.get(axis).copied()),
        };
        // A dim that nobody gives a size is one of an input that is empty too.
        dims.iter().map(|dim| size(dim).unwrap_or(0)).collect()
    }
}

/// Positions that the host gives, axis by axis.
#[derive(Default)]
struct Coordinates {
    values: Vec<i64>,
    /// Of each axis.
    count: usize,
    largest: i64,
}

impl Coordinates {
    /// Of `[n]`, `[1, n]` or `[3, 1, n]`.
    fn of(tensor: TensorView<'_>) -> Self {
        let mut values = Vec::new();
        read_integers(tensor, &mut values);
        let count = tensor.shape().last().copied().unwrap_or(0);
        Coordinates {
            count: usize::try_from(count).unwrap_or(0),
            largest: values.iter().copied().max().unwrap_or(-1),
            values,
        }
    }

    fn at(&self, axis: i64, place: i64, continuation: Continuation) -> i64 {
        let axis = usize::try_from(axis).unwrap_or(0) * self.count;
        let place = usize::try_from(place).unwrap_or(0);
        let value = |place: usize| self.values.get(axis + place).copied().unwrap_or(-1);
        if place < self.count {
            return value(place);
        }
        let last = match continuation {
            Continuation::CarryMax | Continuation::FromGrid => self.largest,
            Continuation::LinearIncrement if self.count == 0 => -1,
            Continuation::LinearIncrement => value(self.count - 1),
        };
        last.saturating_add(1).saturating_add((place - self.count) as i64)
    }
}

impl<'p> Values<'p> {
    pub(super) fn output(&self, component: usize, output: usize) -> Option<TensorView<'p>> {
        self.components.get(component)?.outputs.get(output)?.current()
    }

    fn request(&self, component: usize, input: usize) -> Option<TensorView<'p>> {
        self.components.get(component)?.requests.get(input)?.view()
    }

    /// The value that another component has for an input.
    fn routed(&self, source: InputSource) -> Option<TensorView<'p>> {
        match source {
            InputSource::Edge(from) => self.output(from.component, from.output),
            InputSource::LoopResult { state } => self.states.current(state),
            _ => None,
        }
    }

    /// The value that stands at an input. `None`: nothing, the graph has a default, or it is a
    /// cache that is made longer in place.
    pub fn input(&self, component: usize, input: usize, spec: &InputSpec) -> Option<TensorView<'p>> {
        if let Some(value) = self.states.instead(component, input) {
            return Some(value);
        }
        let values = self.components.get(component)?;
        let made = || values.made.get(input)?.view();
        match spec.source {
            InputSource::Tokens
            | InputSource::AttentionMask
            | InputSource::Positions { .. }
            | InputSource::Length { .. }
            | InputSource::Ones
            | InputSource::CacheBranch { .. }
            | InputSource::Timestep => made(),
            InputSource::Held { output } => values.outputs.get(output)?.front.view().or_else(made),
            InputSource::OutputIds => self.output_ids.view(),
            InputSource::OutputCodes => self.output_codes.view(),
            InputSource::Nested(feed) => self.feeds.view(feed),
            InputSource::Edge(_) | InputSource::LoopResult { .. } => {
                // What the loop has made of it, converted or absent, comes first.
                made().or_else(|| self.routed(spec.source))
            }
            InputSource::Loop { state } => self.states.fed(state),
            InputSource::Past { output } | InputSource::State { output } => {
                values.outputs.get(output)?.front.view()
            }
            InputSource::Request { .. } => values.requests.get(input)?.view().or_else(made),
        }
    }
}

fn caches_in_place(component: &ComponentSpec) -> Vec<Option<Cache>> {
    let outputs = component.outputs.iter();
    outputs
        .map(|output| match &output.role {
            OutputRole::Present {
                axis,
                empty,
                in_place: Some(_),
                buffer,
            } => Some(Cache::new(output.dtype?, empty, *axis, *buffer)),
            _ => None,
        })
        .collect()
}

pub(super) fn at_port(component: &ComponentSpec, port: &Port, error: TensorError) -> PipelineError {
    let kind = match error {
        TensorError::OutOfMemory { bytes } => ComponentErrorKind::OutOfMemory {
            bytes,
            what: format!("\"{}\"", port.name),
        },
        source => ComponentErrorKind::BadTensor {
            port: port.name.clone(),
            source,
        },
    };
    ComponentError::new(component.name.as_str(), kind).into()
}

/// The ids of `tokens` in `range`, none if that is out of bounds.
pub(super) fn ids(tokens: &[i32], range: Range<usize>) -> &[i32] {
    tokens.get(range).unwrap_or_default()
}
