//! Control flow: operators that run graphs of their own, any number of times.
//!
//! A body is a [`Graph`](super::graph::Graph) like that of a model. Values that it reads from
//! outside are inputs of its node after the node's own, and inputs of the body after those
//! that it declares; so lifetimes and plans need to know nothing about scopes. Each body
//! keeps its plans and its values' places from run to run, and shares the memory of the
//! graph around it.

mod branch;
mod looping;
mod scan;
mod sequence_map;
mod stack;

use std::fmt::Debug;

use smallvec::SmallVec;

pub(super) use self::branch::IF;
pub(super) use self::looping::LOOP;
pub(super) use self::scan::SCAN;
pub(super) use self::sequence_map::SEQUENCE_MAP;
use super::element::ElementType;
use super::executor::{Executor, Produced, Room, Run};
use super::graph::{Body, Request};
use super::infer::{Fact, InferContext, Kind, SymDim};
use super::node::NodeInfo;
use super::operator::OpError;
use super::plans::Plans;
use super::tensor::Tensor;
use super::value::{Value, ValueRef};
use super::workspace::Workspace;
use crate::component::{ComponentErrorKind, RunControl};

/// What the registry says of a control operator.
pub struct ControlEntry {
    /// The attributes that hold its bodies.
    pub(super) bodies: &'static [&'static str],
    /// What is known of a body's declared inputs, from what is known of the node's inputs.
    pub(super) formals: fn(&NodeInfo<'_>, &[Option<&Fact>]) -> Vec<Fact>,
    pub(super) build: fn(&NodeInfo<'_>, Vec<Body>) -> Built,
}

/// What a constructor returns.
type Built = Result<Box<dyn Control>, OpError>;

/// A control operator of a node: attributes and bodies read, ready to run.
pub(super) trait Control: Debug + Send + Sync {
    fn bodies(&self) -> &[Body];

    /// Like [`Operator::infer`](super::operator::Operator::infer).
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError>;

    /// Computes the outputs that are [used](ControlContext::is_used).
    fn run(&self, cx: &mut ControlContext<'_>) -> Result<(), ControlError>;
}

/// Why a control operator did not run to its end.
#[derive(Debug)]
pub(super) enum ControlError {
    /// Its own inputs are wrong.
    Own(OpError),
    /// A node of a body failed, or the run was told to end.
    Inside(ComponentErrorKind),
}

impl From<OpError> for ControlError {
    fn from(error: OpError) -> Self {
        ControlError::Own(error)
    }
}

impl From<ComponentErrorKind> for ControlError {
    fn from(error: ComponentErrorKind) -> Self {
        ControlError::Inside(error)
    }
}

/// What a body keeps from run to run.
pub(super) struct BodyState {
    plans: Plans,
    request: Request,
    executor: Executor,
}

impl BodyState {
    pub(super) fn new(body: &Body) -> Self {
        BodyState {
            plans: Plans::new(&body.graph),
            request: Request::default(),
            executor: Executor::new(&body.graph),
        }
    }
}

/// The values that a body gives, in the order of its outputs; `None` for those not asked for.
type Results = SmallVec<[Option<Value>; 4]>;

/// What a control operator sees of a run.
pub(super) struct ControlContext<'a> {
    /// The node's own inputs, then what its bodies capture.
    pub(super) inputs: &'a [Option<ValueRef<'a>>],
    /// Which of the node's outputs anything reads.
    pub(super) used: &'a [bool],
    pub(super) outputs: &'a mut [Option<Value>],
    /// One for each of the node's bodies.
    pub(super) bodies: &'a mut [BodyState],
    pub(super) workspace: &'a mut Workspace,
    pub(super) control: &'a RunControl,
}

impl<'a> ControlContext<'a> {
    /// An input, or `None` when it is left out.
    fn value(&self, index: usize) -> Option<ValueRef<'a>> {
        self.inputs.get(index).copied().flatten()
    }

    fn required(&self, index: usize) -> Result<ValueRef<'a>, OpError> {
        self.value(index).ok_or(OpError::MissingInput { index })
    }

    fn is_used(&self, output: usize) -> bool {
        is_used(self.used, output)
    }

    fn set_output(&mut self, index: usize, value: Option<Value>) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = value;
        }
    }

    /// An error if the run was told to end: asked once for each iteration.
    fn check(&self) -> Result<(), ControlError> {
        match self.control.stop_reason() {
            Some(reason) => Err(reason.into()),
            None => Ok(()),
        }
    }

    /// Runs a body on these values for its declared inputs, for the outputs that are `asked`.
    fn run_body(
        &mut self,
        index: usize,
        body: &Body,
        formals: &[ValueRef<'_>],
        asked: impl Fn(usize) -> bool,
    ) -> Result<Results, ControlError> {
        let graph = &body.graph;
        let BodyState {
            plans,
            request,
            executor,
        } = self
            .bodies
            .get_mut(index)
            .ok_or_else(|| OpError::Message("a body was not prepared".into()))?;
        let captured = self.inputs.get(body.captures.clone()).unwrap_or_default();
        let formals = formals.iter().copied().map(Some);
        let mut inputs: SmallVec<[Option<ValueRef<'_>>; 8]> = SmallVec::new();
        inputs.extend(formals.chain(captured.iter().copied()));
        request.start(graph);
        for (index, (input, value)) in graph.inputs.iter().zip(&inputs).enumerate() {
            if let Some(value) = *value {
                expect(&input.fact, value, index)?;
                request.give_value(index, value);
            }
        }
        for index in (0..graph.outputs.len()).filter(|&index| asked(index)) {
            request.ask_output(index);
        }
        let plan = plans.get(graph, request, self.workspace)?;
        let mut rooms: SmallVec<[Room<'_>; 4]> = SmallVec::new();
        rooms.resize_with(graph.outputs.len(), Room::default);
        let mut produced: SmallVec<[Option<Produced>; 4]> = SmallVec::new();
        produced.resize_with(graph.outputs.len(), || None);
        let run = Run {
            graph,
            plan,
            inputs: &inputs,
            rooms: &mut rooms,
            workspace: self.workspace,
            control: self.control,
        };
        executor.run(run, &mut produced)?;
        let values = produced.into_iter().map(|produced| match produced {
            Some(Produced::Owned(value)) => Some(value),
            // There are no rooms.
            Some(Produced::Room { .. } | Produced::InCache { .. }) | None => None,
        });
        Ok(values.collect())
    }
}

/// Checks a value against what its place in a body was prepared for.
fn expect(fact: &Fact, value: ValueRef<'_>, index: usize) -> Result<(), OpError> {
    let wrong_kind = fact.kind.zip(value.kind()).is_some_and(|(a, b)| a != b);
    let wrong_type = fact.ty.zip(value.element_type()).is_some_and(|(a, b)| a != b);
    match wrong_kind || wrong_type {
        false => Ok(()),
        true => Err(OpError::Message(format!(
            "the body's input {index} is {value:?}, it takes {}",
            describe(fact)
        ))),
    }
}

fn is_used(used: &[bool], output: usize) -> bool {
    used.get(output).copied().unwrap_or(false)
}

/// The value that a body has given for an output that was asked for.
fn take(results: &mut Results, index: usize) -> Result<Value, OpError> {
    let value = results.get_mut(index).and_then(Option::take);
    value.ok_or_else(|| OpError::Message(format!("the body gave no output {index}")))
}

fn describe(fact: &Fact) -> String {
    let element = fact.ty.map_or("?", ElementType::name);
    fact.kind.unwrap_or(Kind::Tensor).with_element(element)
}

/// What is known of a body's output, for the graph around it: a symbol of a body may stand
/// for another size in each iteration.
fn output_fact(body: &Body, index: usize) -> Fact {
    let value = body.graph.outputs.get(index);
    let fact = value.and_then(|value| body.graph.facts.get(value.index()));
    let fact = fact.cloned().unwrap_or_default();
    let settled = |dim: SymDim| dim.fixed().map_or(SymDim::Unknown, SymDim::Fixed);
    Fact {
        dims: fact.dims.map(|dims| dims.into_iter().map(settled).collect()),
        value: None,
        ..fact
    }
}

/// A known fact of the same kind and type whose dims are open.
fn without_dims(fact: Option<&Fact>) -> Fact {
    Fact {
        kind: fact.and_then(|fact| fact.kind),
        ty: fact.and_then(|fact| fact.ty),
        dims: None,
        value: None,
    }
}

/// The only element of a tensor.
fn only<T: super::element::Element>(value: ValueRef<'_>, what: &str) -> Result<T, OpError> {
    let tensor = value.tensor();
    let elements = tensor.map(|tensor| tensor.slice::<T>()).transpose()?;
    match elements {
        Some(&[element]) => Ok(element),
        _ => Err(OpError::Message(format!(
            "{what} is {value:?}, expected one element"
        ))),
    }
}

/// A scalar for a body's input, with a dim if that is how the body declares it.
fn scalar<T: super::element::Element>(body: &Body, input: usize, value: T) -> Result<Tensor, OpError> {
    let declared = body.graph.inputs.get(input).and_then(|input| input.fact.rank());
    match declared {
        Some(1) => Tensor::from_slice(&[1], &[value]),
        _ => Tensor::from_slice(&[], &[value]),
    }
}

fn wrong_body(attribute: &str, message: String) -> OpError {
    OpError::Attribute {
        name: attribute.to_owned(),
        message,
    }
}
