//! A model as a graph of operators that are ready to run.
//!
//! [`Graph::load`] builds it from a decoded model: values get ids, nodes get operators,
//! constants are folded, types and shapes are inferred with symbolic dims, passes rewrite it.
//! [`Plan::new`] does the rest for one set of concrete input shapes.

mod attributes;
mod branch;
mod build;
mod caches;
mod draft;
mod fold;
mod functions;
mod int8_caches;
mod last_row;
mod missing;
mod nodes;
mod order;
mod passes;
mod plan;
mod ports;
mod request;
mod same_dims;
mod scope;
mod shared;
mod sizes;

use smallvec::SmallVec;

pub(super) use self::functions::{MAX_DEPTH, domain_key};
pub use self::int8_caches::{KvCacheDtype, UnknownKvCacheDtype};
pub(super) use self::last_row::cuts;
pub(super) use self::passes::Fired;
pub use self::passes::{DisabledPasses, UnknownPass};
pub(super) use self::plan::{Plan, Step};
pub(super) use self::ports::{DimNames, declared_io};
pub(super) use self::request::{Asked, Pattern, Request};
pub(super) use self::same_dims::{Differing, SameDims};
use super::control::Control;
use super::element::ElementType;
use super::infer::{Fact, InferContext, Kind};
use super::operator::{OpError, Operator, PrepareContext, Prepared};
use super::tensor::{Tensor, TensorRef, check_rank};
use crate::component::{ComponentErrorKind, ComponentIo, InPlaceCache};

/// A value of the graph: an index into everything that is kept per value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ValueId(u32);

impl ValueId {
    pub(super) fn new(index: usize) -> Self {
        ValueId(index as u32)
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node, with its attributes read.
#[derive(Debug)]
pub(super) struct Node {
    /// The node's own name, or one made up from its first output.
    pub(super) name: String,
    /// Type and domain, for messages.
    pub(super) op: String,
    pub(super) action: Action,
    /// `None` where an input or output is left out. Values that the graphs of a control
    /// operator read from outside come after the node's own inputs.
    pub(super) inputs: SmallVec<[Option<ValueId>; 4]>,
    pub(super) outputs: SmallVec<[Option<ValueId>; 2]>,
}

/// What a node does.
#[derive(Debug)]
pub(super) enum Action {
    Kernel(Box<dyn Operator>),
    Control {
        operator: Box<dyn Control>,
        /// The index of its first body among all bodies of the graph.
        first_body: usize,
    },
}

impl Action {
    /// The graphs that it runs.
    pub(super) fn bodies(&self) -> &[Body] {
        match self {
            Action::Kernel(_) => &[],
            Action::Control { operator, .. } => operator.bodies(),
        }
    }
}

/// A graph that a control operator runs.
#[derive(Debug)]
pub(super) struct Body {
    /// Its inputs are those that it declares, then the values that it captures.
    pub(super) graph: Graph,
    /// How many inputs it declares.
    pub(super) formals: usize,
    /// Where the captured values are among the inputs of the node.
    pub(super) captures: std::ops::Range<usize>,
}

impl Node {
    /// The error of this node.
    pub(super) fn error(&self, error: OpError) -> ComponentErrorKind {
        match error {
            OpError::OutOfMemory { bytes } => ComponentErrorKind::OutOfMemory {
                bytes: bytes as u64,
                what: format!("a result of node \"{}\" ({})", self.name, self.op),
            },
            error => ComponentErrorKind::Node {
                node: self.name.clone(),
                op: self.op.clone(),
                message: error.to_string(),
            },
        }
    }

    /// Lets the operator pack its constants, and gives those back that no run will read where they
    /// lie.
    fn prepare(&mut self, facts: &[Fact], cx: &mut PrepareContext<'_>) -> Result<(), OpError> {
        let Action::Kernel(operator) = &mut self.action else {
            return Ok(());
        };
        let constant = |value: ValueId| facts.get(value.index())?.value.as_ref().map(Tensor::view);
        let inputs: SmallVec<[Option<TensorRef<'_>>; 8]> =
            self.inputs.iter().map(|input| input.and_then(constant)).collect();
        if operator.prepare(&inputs, cx)? == Prepared::Packed {
            let bytes = inputs
                .iter()
                .flatten()
                .filter_map(|constant| constant.bytes().ok());
            bytes.for_each(cx.give_back());
        }
        Ok(())
    }

    /// Infers the node's outputs from what is known of its inputs.
    fn infer(&self, facts: &[Fact]) -> Result<SmallVec<[Fact; 2]>, OpError> {
        let inputs: SmallVec<[Option<&Fact>; 8]> = self
            .inputs
            .iter()
            .map(|input| input.and_then(|value| facts.get(value.index())))
            .collect();
        let used: SmallVec<[bool; 8]> = self.outputs.iter().map(Option::is_some).collect();
        let mut outputs: SmallVec<[Fact; 2]> = SmallVec::new();
        outputs.resize_with(self.outputs.len(), Fact::default);
        let mut context = InferContext {
            inputs: &inputs,
            outputs: &mut outputs,
            used: &used,
        };
        match &self.action {
            Action::Kernel(operator) => {
                if !operator.takes_values() {
                    expect_tensors(&inputs)?;
                }
                operator.infer(&mut context)?;
            }
            Action::Control { operator, .. } => operator.infer(&mut context)?,
        }
        for dims in outputs.iter().filter_map(|output| output.dims.as_ref()) {
            check_rank(dims.len())?;
        }
        Ok(outputs)
    }
}

fn expect_tensors(inputs: &[Option<&Fact>]) -> Result<(), OpError> {
    for (index, fact) in inputs.iter().enumerate() {
        if let Some(kind) = fact
            .and_then(|fact| fact.kind)
            .filter(|&kind| kind != Kind::Tensor)
        {
            let element = fact.and_then(|fact| fact.ty).map_or("?", ElementType::name);
            return Err(OpError::Message(format!(
                "input {index} is {}, expected a tensor",
                kind.with_element(element)
            )));
        }
    }
    Ok(())
}

/// An input of the graph that a caller may give.
#[derive(Debug)]
pub(super) struct GraphInput {
    pub(super) value: ValueId,
    /// What is declared of it.
    pub(super) fact: Fact,
    /// Its value when it is not given.
    pub(super) default: Option<Tensor>,
}

/// A loaded graph: of a model, or of a node of another. Nothing in it changes after loading.
#[derive(Debug)]
pub(super) struct Graph {
    /// The ports of a model's graph; for a body, the outputs alone.
    pub(super) io: ComponentIo,
    /// In the order of `io.inputs`; for a body, what it declares and then what it captures.
    pub(super) inputs: Vec<GraphInput>,
    /// In the order of `io.outputs`.
    pub(super) outputs: Vec<ValueId>,
    /// In an order in which each can run after those before it.
    pub(super) nodes: Vec<Node>,
    /// What is known of each value without knowing the inputs; constants with their value.
    pub(super) facts: Vec<Fact>,
    /// The caches that a run can make longer where they lie; none for a body.
    pub(super) caches: Vec<InPlaceCache>,
    /// The inputs that a run can overwrite where they lie; none for a body.
    pub(super) buffers: Vec<caches::Buffer>,
    /// The model's metadata, for [`ComponentSession::metadata`](crate::component::ComponentSession::metadata).
    pub(super) metadata: Vec<(String, String)>,
    /// What the passes did, in its bodies too; nothing for a body.
    pub(super) passes: Fired,
}
