use std::fmt;

use super::NativeOptions;
use super::element::ElementType;
use super::ending;
use super::executor::{Executor, Produced, Room, Run};
use super::graph::{Asked, Graph, Pattern, Plan, Request};
use super::joined::{self, Lane, Shared};
use super::loaded::LoadedModel;
use super::operator::OpError;
use super::output::CacheMemory;
use super::packed_cache::PackedCacheReport;
use super::report::{self, RunEstimate};
use super::tensor::{Dims, Tensor, TensorRef};
use super::value::{Value, ValueRef};
use crate::component::{
    Backend, CacheRoom, Call, ComponentError, ComponentErrorKind, ComponentIo, ComponentSession,
    ComponentTensor, InPlaceCache, Input, ModelSource, Output, OutputResult, Port, RunControl, Shape,
};

/// A model loaded into the native runtime.
pub struct NativeSession {
    name: String,
    model: LoadedModel,
    /// Vectors whose memory is kept from run to run.
    request: Request,
    inputs: Vec<Option<ValueRef<'static>>>,
    rooms: Vec<Room<'static>>,
    produced: Vec<Option<Produced>>,
}

impl NativeSession {
    /// Reads a model and prepares it. Fails with
    /// [`MissingOperators`](ComponentErrorKind::MissingOperators), naming all of them, when
    /// the runtime lacks some; with [`InvalidModel`](ComponentErrorKind::InvalidModel) or
    /// [`Io`](ComponentErrorKind::Io) when there is no such file or it is not a model.
    pub fn load(name: &str, source: &ModelSource, options: &NativeOptions) -> Result<Self, ComponentError> {
        let model = ending::bounded(&options.control, || LoadedModel::open(source, options));
        let model = model.map_err(|kind| ComponentError::new(name, kind))?;
        Ok(NativeSession {
            name: name.to_owned(),
            model,
            request: Request::default(),
            inputs: Vec::new(),
            rooms: Vec::new(),
            produced: Vec::new(),
        })
    }

    /// Runs the graph on tensors of any element type, also those that do not cross the
    /// seam (strings, `float64`, 4-bit, ...), and gives the asked outputs in their order.
    ///
    /// For tests and tools; [`ComponentSession`] is how components run. Names, types and
    /// static dims are checked as at the seam.
    pub fn run_tensors(
        &mut self,
        inputs: &[(&str, TensorRef<'_>)],
        outputs: &[&str],
    ) -> Result<Vec<Tensor>, ComponentError> {
        let inputs: Vec<_> = inputs
            .iter()
            .map(|&(name, tensor)| (name, ValueRef::Tensor(tensor)))
            .collect();
        let values = self.run_values(&inputs, outputs)?;
        let tensors = values.into_iter().zip(outputs).map(|(value, name)| match value {
            Value::Tensor(tensor) => Ok(tensor),
            other => {
                let kind = ComponentErrorKind::UnsupportedPortType {
                    port: (*name).to_owned(),
                    found: format!("{other:?}"),
                };
                Err(ComponentError::new(self.name.as_str(), kind))
            }
        });
        tensors.collect()
    }

    /// Like [`run_tensors`](Self::run_tensors), with sequences and optionals too.
    pub fn run_values(
        &mut self,
        inputs: &[(&str, ValueRef<'_>)],
        outputs: &[&str],
    ) -> Result<Vec<Value>, ComponentError> {
        self.run_any(inputs, outputs)
            .map_err(|kind| ComponentError::new(self.name.as_str(), kind))
    }

    /// What a run on inputs of these shapes would take: memory, weights read, products. All
    /// outputs are asked for.
    ///
    /// For tools. Errors are those that a run would meet.
    pub fn estimate(&mut self, inputs: &[(&str, &[usize])]) -> Result<RunEstimate, ComponentError> {
        self.estimate_any(inputs)
            .map_err(|kind| ComponentError::new(self.name.as_str(), kind))
    }

    /// The graph passes that found what they look for, and how often, bodies included; for
    /// tools.
    pub fn passes(&self) -> Vec<(&'static str, usize)> {
        self.model.graph().passes.counts().collect()
    }

    /// What came of the option to keep packed weights.
    pub fn packed_cache(&self) -> &PackedCacheReport {
        self.model.packed_cache()
    }

    fn estimate_any(&mut self, inputs: &[(&str, &[usize])]) -> Result<RunEstimate, ComponentErrorKind> {
        let graph = self.model.graph();
        let io = &graph.io;
        let mut request = Request::default();
        request.start(graph);
        for &(name, dims) in inputs {
            let index = position(&io.inputs, name, 0).ok_or_else(|| ComponentErrorKind::UnknownInput {
                port: name.to_owned(),
                known: names(&io.inputs),
            })?;
            request.give_tensor(index, dims.iter().copied());
        }
        for index in 0..io.outputs.len() {
            request.ask_output(index);
        }
        let loaded = self.model.for_request(&request)?;
        let mut facts = loaded.graph.facts.clone();
        let plan = Plan::new(
            &loaded.graph,
            Pattern::of(&request),
            &[],
            &mut facts,
            &mut loaded.workspace,
        )?;
        Ok(report::estimate(&loaded.graph, &plan, &facts))
    }

    fn run_any(
        &mut self,
        inputs: &[(&str, ValueRef<'_>)],
        outputs: &[&str],
    ) -> Result<Vec<Value>, ComponentErrorKind> {
        let graph = self.model.graph();
        let io = &graph.io;
        let mut bound = vec![None; io.inputs.len()];
        self.request.start(graph);
        for &(name, value) in inputs {
            let index = position(&io.inputs, name, 0).ok_or_else(|| ComponentErrorKind::UnknownInput {
                port: name.to_owned(),
                known: names(&io.inputs),
            })?;
            self.request.give_value(index, value);
            if let Some(bound) = bound.get_mut(index) {
                *bound = Some(value);
            }
        }
        check_values(graph, &bound)?;
        let mut asked = Vec::with_capacity(outputs.len());
        for &name in outputs {
            let index = position(&io.outputs, name, 0).ok_or_else(|| ComponentErrorKind::UnknownOutput {
                port: name.to_owned(),
                known: names(&io.outputs),
            })?;
            self.request.ask_output(index);
            asked.push(index);
        }
        let loaded = self.model.for_request(&self.request)?;
        let plan = loaded
            .plans
            .get(&loaded.graph, &self.request, &mut loaded.workspace)?;
        let mut rooms = Vec::new();
        rooms.resize_with(loaded.graph.outputs.len(), Room::default);
        let mut produced = Vec::new();
        produced.resize_with(loaded.graph.outputs.len(), || None);
        let run = Run {
            graph: &loaded.graph,
            plan,
            inputs: &bound,
            rooms: &mut rooms,
            workspace: &mut loaded.workspace,
            control: &RunControl::default(),
        };
        loaded.executor.run(run, &mut produced)?;
        let results = asked.iter().zip(outputs).map(|(&index, &name)| {
            match produced.get_mut(index).and_then(Option::take) {
                Some(Produced::Owned(value)) => Ok(value),
                _ => Err(ComponentErrorKind::DuplicateOutput {
                    port: name.to_owned(),
                }),
            }
        });
        results.collect()
    }

    /// Runs requests of the seam that one plan serves; `None` if there is no such plan.
    fn run_requests(
        &mut self,
        calls: &mut [Call<'_, '_>],
        control: &RunControl,
    ) -> Result<Option<()>, ComponentErrorKind> {
        let mut requests = Vec::with_capacity(calls.len());
        let graph = self.model.graph();
        for call in calls.iter() {
            let mut request = Request::default();
            request.start(graph);
            for (index, input) in located(&graph.io.inputs, call.inputs, |input| input.name) {
                request.give_tensor(index, sizes(input.value.shape()));
            }
            for (index, cache) in located(&graph.io.inputs, caches(call.outputs), |cache| cache.past()) {
                request.give_tensor(index, sizes(cache.shape()));
            }
            for (index, output) in located(&graph.io.outputs, &*call.outputs, |output| output.name) {
                if output.last_row {
                    return Ok(None);
                }
                request.ask(index, Asked::All);
            }
            requests.push(request);
        }
        if !requests.iter().all(|request| self.model.is_usual(request)) {
            return Ok(None);
        }
        let Some(first) = requests.first() else {
            return Ok(None);
        };
        let loaded = self.model.for_request(first)?;
        let io = &loaded.graph.io;
        let Some(plan) = loaded
            .plans
            .common(&loaded.graph, &requests, &mut loaded.workspace)?
        else {
            return Ok(None);
        };
        let mut lanes = Vec::with_capacity(calls.len());
        for (call, request) in calls.iter_mut().zip(&requests) {
            let given = &request.inputs;
            let dims_of = |index: usize| given.get(index)?.as_ref()?.dims();
            let mut bound = vec![None; io.inputs.len()];
            for (index, input) in located(&io.inputs, call.inputs, |input| input.name) {
                if let (Some(bound), Some(dims)) = (bound.get_mut(index), dims_of(index)) {
                    let ty = ElementType::from(input.value.dtype());
                    let value = TensorRef::new(ty, dims, input.value.bytes());
                    let value = value.map_err(|error| input_error(input.name, error))?;
                    *bound = Some(ValueRef::Tensor(value));
                }
            }
            for (index, cache) in located(&io.inputs, caches(call.outputs), |cache| cache.past()) {
                if let (Some(bound), Some(dims)) = (bound.get_mut(index), dims_of(index)) {
                    let value = TensorRef::in_cache(ElementType::from(cache.dtype()), dims);
                    let value = value.map_err(|error| input_error(cache.past(), error))?;
                    *bound = Some(ValueRef::Tensor(value));
                }
            }
            let mut rooms = Vec::new();
            rooms.resize_with(io.outputs.len(), Room::default);
            for (index, output) in located(&io.outputs, call.outputs.iter_mut(), |output| output.name) {
                if let Some(place) = rooms.get_mut(index) {
                    *place = match (&mut output.cache, output.room.as_deref_mut()) {
                        (Some(cache), _) => Room::Cache(CacheMemory {
                            rows: cache.capacity(),
                            bytes: cache.memory(),
                        }),
                        (None, Some(memory)) => Room::Free(memory),
                        (None, None) => Room::None,
                    };
                }
            }
            let mut produced = Vec::new();
            produced.resize_with(io.outputs.len(), || None);
            lanes.push(Lane {
                inputs: bound,
                rooms,
                produced,
            });
        }
        let executors = &mut loaded.others;
        while executors.len() < lanes.len() {
            executors.push(Executor::new(&loaded.graph));
        }
        let executors = executors.get_mut(..lanes.len()).unwrap_or_default();
        let mut shared = Shared {
            graph: &loaded.graph,
            plan,
            workspace: &mut loaded.workspace,
            control,
        };
        joined::run(executors, &mut lanes, &mut shared)?;
        let produced: Vec<_> = lanes.into_iter().map(|lane| lane.produced).collect();
        for (call, mut produced) in calls.iter_mut().zip(produced) {
            for (index, output) in located(&io.outputs, call.outputs.iter_mut(), |output| output.name) {
                let produced = produced.get_mut(index).and_then(Option::take);
                if let (Some(port), Some(produced)) = (io.outputs.get(index), produced) {
                    output.result = match (result_of(port, produced)?, &output.cache) {
                        (OutputResult::InRoom { dtype, shape }, Some(_)) => {
                            OutputResult::InCache { dtype, shape }
                        }
                        (result, _) => result,
                    };
                }
            }
        }
        Ok(Some(()))
    }

    /// Runs a request of the seam.
    fn run_request(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        control: &RunControl,
    ) -> Result<(), ComponentErrorKind> {
        let graph = self.model.graph();
        let io = &graph.io;
        self.request.start(graph);
        for (index, input) in located(&io.inputs, inputs, |input| input.name) {
            self.request.give_tensor(index, sizes(input.value.shape()));
        }
        for (index, cache) in located(&io.inputs, caches(outputs), |cache| cache.past()) {
            self.request.give_tensor(index, sizes(cache.shape()));
        }
        for (index, output) in located(&io.outputs, &*outputs, |output| output.name) {
            let asked = if output.last_row {
                Asked::LastRow
            } else {
                Asked::All
            };
            self.request.ask(index, asked);
        }
        let loaded = self.model.for_request(&self.request)?;
        let io = &loaded.graph.io;
        let is_copied = |past: usize| loaded.copied.iter().any(|cache| cache.past == past);
        let is_given_anew = |present: usize| loaded.copied.iter().any(|cache| cache.present == present);
        let mut copies = Vec::new();
        for &InPlaceCache { past, .. } in &loaded.copied {
            let is_it =
                |cache: &&CacheRoom<'_>| io.inputs.get(past).is_some_and(|port| port.name == cache.past());
            if let Some(cache) = caches(outputs).find(is_it) {
                let copy = cache.copy_past();
                let copy = copy.map_err(|source| ComponentErrorKind::BadTensor {
                    port: cache.past().to_owned(),
                    source,
                })?;
                copies.push((past, copy));
            }
        }
        let plan = loaded
            .plans
            .get(&loaded.graph, &self.request, &mut loaded.workspace)?;

        let mut bound = emptied(std::mem::take(&mut self.inputs));
        bound.resize(io.inputs.len(), None);
        let given = &self.request.inputs;
        let dims_of = |index: usize| given.get(index)?.as_ref()?.dims();
        for (index, input) in located(&io.inputs, inputs, |input| input.name) {
            if let (Some(bound), Some(dims)) = (bound.get_mut(index), dims_of(index)) {
                let ty = ElementType::from(input.value.dtype());
                let value = TensorRef::new(ty, dims, input.value.bytes());
                let value = value.map_err(|error| input_error(input.name, error))?;
                *bound = Some(ValueRef::Tensor(value));
            }
        }
        for (index, copy) in &copies {
            if let (Some(bound), Some(dims)) = (bound.get_mut(*index), dims_of(*index)) {
                let value = TensorRef::new(ElementType::from(copy.dtype()), dims, copy.bytes());
                *bound = Some(ValueRef::Tensor(value.map_err(|error| {
                    input_error(io.inputs.get(*index).map_or("", |port| &port.name), error)
                })?));
            }
        }
        for (index, cache) in located(&io.inputs, caches(outputs), |cache| cache.past()) {
            if is_copied(index) {
                continue;
            }
            if let (Some(bound), Some(dims)) = (bound.get_mut(index), dims_of(index)) {
                let value = TensorRef::in_cache(ElementType::from(cache.dtype()), dims);
                let value = value.map_err(|error| input_error(cache.past(), error))?;
                *bound = Some(ValueRef::Tensor(value));
            }
        }
        let mut rooms = emptied(std::mem::take(&mut self.rooms));
        rooms.resize_with(io.outputs.len(), Room::default);
        for (index, output) in located(&io.outputs, outputs.iter_mut(), |output| output.name) {
            let Some(place) = rooms.get_mut(index) else {
                continue;
            };
            *place = match (&mut output.cache, output.room.as_deref_mut()) {
                (Some(cache), _) if !is_given_anew(index) => Room::Cache(CacheMemory {
                    rows: cache.capacity(),
                    bytes: cache.memory(),
                }),
                (None, Some(memory)) => Room::Free(memory),
                (Some(_), _) | (None, None) => Room::None,
            };
        }
        self.produced.clear();
        self.produced.resize_with(io.outputs.len(), || None);
        let run = Run {
            graph: &loaded.graph,
            plan,
            inputs: &bound,
            rooms: &mut rooms,
            workspace: &mut loaded.workspace,
            control,
        };
        let result = loaded.executor.run(run, &mut self.produced);
        self.inputs = emptied(bound);
        self.rooms = emptied(rooms);
        result?;

        for (index, output) in located(&io.outputs, outputs.iter_mut(), |output| output.name) {
            let produced = self.produced.get_mut(index).and_then(Option::take);
            if let (Some(port), Some(produced)) = (io.outputs.get(index), produced) {
                output.result = match (result_of(port, produced)?, &output.cache) {
                    (OutputResult::InRoom { dtype, shape }, Some(_)) => {
                        OutputResult::InCache { dtype, shape }
                    }
                    (result, _) => result,
                };
            }
        }
        Ok(())
    }
}

impl ComponentSession for NativeSession {
    fn name(&self) -> &str {
        &self.name
    }

    fn backend(&self) -> Backend {
        Backend::Native
    }

    fn io(&self) -> &ComponentIo {
        &self.model.graph().io
    }

    fn metadata(&self) -> &[(String, String)] {
        &self.model.graph().metadata
    }

    fn in_place_caches(&self) -> &[InPlaceCache] {
        &self.model.graph().caches
    }

    fn overwrites(&self, past: usize, present: usize) -> bool {
        let mut buffers = self.model.graph().buffers.iter();
        buffers.any(|buffer| (buffer.past, buffer.present) == (past, present))
    }

    fn output_shapes(
        &mut self,
        inputs: &[(&str, &[i64])],
        outputs: &[&str],
    ) -> Result<Vec<Option<Shape>>, ComponentError> {
        let graph = self.model.graph();
        let io = &graph.io;
        self.request.start(graph);
        for (index, &(_, shape)) in located(&io.inputs, inputs, |input| input.0) {
            self.request.give_tensor(index, sizes(shape));
        }
        for (index, _) in located(&io.outputs, outputs, |output| output) {
            self.request.ask_output(index);
        }
        let loaded = self.model.for_request(&self.request);
        let plan = loaded.and_then(|loaded| {
            let io = &loaded.graph.io;
            let plan = loaded
                .plans
                .exact(&loaded.graph, &self.request, &mut loaded.workspace)?;
            Ok((io, plan))
        });
        let (io, plan) = plan.map_err(|kind| ComponentError::new(self.name.as_str(), kind))?;
        let shapes = outputs.iter().map(|name| {
            let index = position(&io.outputs, name, 0)?;
            let dims = plan.output_dims.get(index)?.as_deref()?;
            shape_of(dims)
        });
        Ok(shapes.collect())
    }

    fn joins_calls(&self) -> bool {
        true
    }

    fn execute_together(
        &mut self,
        calls: &mut [Call<'_, '_>],
        control: &RunControl,
    ) -> Option<Result<(), ComponentError>> {
        self.run_requests(calls, control)
            .map_err(|kind| ComponentError::new(self.name.as_str(), kind))
            .transpose()
    }

    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        control: &RunControl,
    ) -> Result<(), ComponentError> {
        self.run_request(inputs, outputs, control)
            .map_err(|kind| ComponentError::new(self.name.as_str(), kind))
    }
}

impl fmt::Debug for NativeSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NativeSession({:?})", self.name)
    }
}

/// The index of the port of this name; `hint` is looked at first, since callers mostly name
/// ports in the graph's order.
fn position(ports: &[Port], name: &str, hint: usize) -> Option<usize> {
    let is_it = |port: &Port| port.name == name;
    match ports.get(hint).is_some_and(is_it) {
        true => Some(hint),
        false => ports.iter().position(is_it),
    }
}

/// Items that name ports, each with its port's index; unknown names are passed over (the
/// seam has refused them).
fn located<T>(
    ports: &[Port],
    items: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> &str,
) -> impl Iterator<Item = (usize, T)> {
    let mut hint = 0;
    items.into_iter().filter_map(move |item| {
        let index = position(ports, name(&item), hint)?;
        hint = index + 1;
        Some((index, item))
    })
}

fn caches<'o>(outputs: &'o [Output<'_>]) -> impl Iterator<Item = &'o CacheRoom<'o>> {
    outputs.iter().filter_map(|output| output.cache.as_ref())
}

/// The dims of a shape that has no negative one: the seam has checked.
fn sizes(shape: &[i64]) -> impl Iterator<Item = usize> + '_ {
    shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(0))
}

fn shape_of(dims: &[usize]) -> Option<Shape> {
    dims.iter().map(|&dim| i64::try_from(dim).ok()).collect()
}

fn names(ports: &[Port]) -> Vec<String> {
    ports.iter().map(|port| port.name.clone()).collect()
}

/// An empty vector with the memory of `vec`: the standard library collects in place when
/// source and result have the same layout, as types that differ in a lifetime do.
fn emptied<A, B>(mut vec: Vec<A>) -> Vec<B> {
    vec.clear();
    vec.into_iter().filter_map(|_| None).collect()
}

fn input_error(port: &str, error: OpError) -> ComponentErrorKind {
    ComponentErrorKind::Backend {
        backend: Backend::Native.name(),
        message: format!("input \"{port}\": {error}"),
    }
}

/// The checks of the seam, for values of any type.
fn check_values(graph: &Graph, inputs: &[Option<ValueRef<'_>>]) -> Result<(), ComponentErrorKind> {
    for ((input, port), value) in graph.inputs.iter().zip(&graph.io.inputs).zip(inputs) {
        let expected = || format!("{} {}", port.ty, port.display_dims());
        let Some(value) = value else {
            if input.default.is_some() {
                continue;
            }
            return Err(ComponentErrorKind::MissingInput {
                port: port.name.clone(),
                expected: expected(),
            });
        };
        let wrong_kind = input.fact.kind.zip(value.kind()).is_some_and(|(a, b)| a != b);
        let wrong_type = input
            .fact
            .ty
            .zip(value.element_type())
            .is_some_and(|(a, b)| a != b);
        let wrong_dims = value
            .tensor()
            .is_some_and(|tensor| shape_of(tensor.dims()).is_none_or(|shape| !port.accepts_shape(&shape)));
        if wrong_kind || wrong_type || wrong_dims {
            let message = format!("is {value:?}, expected {}", expected());
            return Err(input_error(&port.name, OpError::Message(message)));
        }
    }
    Ok(())
}

/// What the seam gets for an output.
fn result_of(port: &Port, produced: Produced) -> Result<OutputResult, ComponentErrorKind> {
    let failed = |message: String| ComponentErrorKind::Backend {
        backend: Backend::Native.name(),
        message: format!("output \"{}\": {message}", port.name),
    };
    let (ty, dims): (_, Dims) = match &produced {
        Produced::Room { ty, dims } | Produced::InCache { ty, dims } => (*ty, dims.clone()),
        Produced::Owned(Value::Tensor(tensor)) => (tensor.element_type(), tensor.dims().into()),
        Produced::Owned(other) => {
            return Err(failed(format!("the run gave {other:?}, declared is {}", port.ty)));
        }
    };
    let dtype = ty
        .seam()
        .filter(|&dtype| port.dtype() == Some(dtype))
        .ok_or_else(|| failed(format!("the run gave {ty}, declared is {}", port.ty)))?;
    let shape = shape_of(&dims).ok_or_else(|| failed(format!("dims {dims:?} are too large")))?;
    match produced {
        Produced::Room { .. } => Ok(OutputResult::InRoom { dtype, shape }),
        Produced::InCache { .. } => Ok(OutputResult::InCache { dtype, shape }),
        Produced::Owned(Value::Tensor(tensor)) => {
            let bytes = tensor.into_bytes().map_err(|error| failed(error.to_string()))?;
            let tensor = ComponentTensor::from_bytes(dtype, &shape, bytes);
            Ok(OutputResult::Owned(
                tensor.map_err(|error| failed(error.to_string()))?,
            ))
        }
        // Refused above.
        Produced::Owned(other) => Err(failed(format!("the run gave {other:?}"))),
    }
}
