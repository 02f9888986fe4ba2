use std::collections::{HashMap, HashSet};

use super::caches;
use super::draft::{Definition, Draft};
use super::fold::Budget;
use super::functions::{FlatNode, Functions, MAX_DEPTH, Place};
use super::int8_caches::{self, KvCacheDtype};
use super::missing::MissingList;
use super::passes::{self, DisabledPasses, Fired};
use super::ports::{DimNames, Symbols, port_type};
use super::sizes::SizeTable;
use super::{Action, Graph, GraphInput, Node, ValueId, functions, order, ports, scope, shared};
use crate::component::{ComponentErrorKind, ComponentIo, PortType};
use crate::native::NativeOptions;
use crate::native::infer::{Fact, Kind};
use crate::native::model::Model;
use crate::native::model::onnx::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use crate::native::operator::PrepareContext;
use crate::native::packed_cache::Store;
use crate::native::tensor::Tensor;
use crate::native::workers::Workers;
use crate::native::workspace::Workspace;

/// The first IR version in which an initializer that is also an input is a default that a
/// caller may replace. Before it every initializer had to be an input; they are constants.
const IR_VERSION_WITH_DEFAULTS: i64 = 4;

impl Graph {
    /// Builds the graph of a model.
    ///
    /// Nodes that no output needs are left out before anything else, so that they are no
    /// reason to refuse a model.
    pub(in crate::native) fn load(
        model: &mut Model,
        options: &NativeOptions,
        names: DimNames,
        packed_cache: Option<&mut Store>,
    ) -> Result<Graph, ComponentErrorKind> {
        let mut graph = model.proto.graph.take().unwrap_or_default();
        if options.kv_cache_dtype == KvCacheDtype::Int8 {
            int8_caches::store_as_int8(&mut graph);
        }
        let disabled = options.disabled_passes;
        let mut loader = Loader::new(model, &options.workers, disabled, names, packed_cache)?;
        let mut built = loader.graph(graph, Place::default(), None)?;
        if !disabled.contains(passes::KV_IN_PLACE) {
            built.graph.buffers = caches::overwritten(&built.graph);
            built.graph.caches = caches::in_place(&built.graph);
            loader.fired.add(passes::KV_IN_PLACE, built.graph.caches.len());
        }
        built.graph.passes = loader.finish()?;
        built.graph.metadata = metadata(&model.proto);
        Ok(built.graph)
    }

    /// Lets go of constants that only served to fold others.
    fn forget_unused_constants(&mut self) {
        let mut used = vec![false; self.facts.len()];
        let read = self.nodes.iter().flat_map(|node| node.inputs.iter().flatten());
        for value in read.chain(&self.outputs) {
            used[value.index()] = true;
        }
        for (fact, used) in self.facts.iter_mut().zip(used) {
            if !used {
                fact.value = None;
            }
        }
    }
}

/// What the graphs of a model share while they are built.
pub(super) struct Loader<'m> {
    pub(super) model: &'m mut Model,
    pub(super) functions: Functions,
    pub(super) symbols: Symbols,
    pub(super) budget: Budget,
    /// What the model imports, then what each of its functions does.
    pub(super) opsets: Vec<HashMap<String, i64>>,
    pub(super) workspace: Workspace,
    pub(super) workers: &'m Workers,
    pub(super) packed_cache: Option<&'m mut Store>,
    pub(super) missing: MissingList,
    pub(super) first_error: Option<ComponentErrorKind>,
    pub(super) disabled: DisabledPasses,
    pub(super) fired: Fired,
}

/// The values of one graph while it is built.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) ids: HashMap<String, ValueId>,
    pub(super) facts: Vec<Fact>,
    /// Types that the model declares for inner values, for messages about operators whose
    /// inputs come from a missing one.
    declared: HashMap<String, Fact>,
    pub(super) sizes: SizeTable,
}

impl Scope {
    /// The id of a name, made when it is new.
    fn id(&mut self, name: &str) -> ValueId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = ValueId::new(self.facts.len());
        self.facts.push(Fact::default());
        self.ids.insert(name.to_owned(), id);
        id
    }

    /// The id of an input or output of a node, `None` when it is left out.
    pub(super) fn id_if_named(&mut self, name: &str) -> Option<ValueId> {
        (!name.is_empty()).then(|| self.id(name))
    }

    pub(super) fn fact(&self, value: ValueId) -> Option<&Fact> {
        self.facts.get(value.index())
    }

    pub(super) fn set_fact(&mut self, value: ValueId, fact: Fact) {
        if let Some(slot) = self.facts.get_mut(value.index()) {
            *slot = fact;
        }
    }

    pub(super) fn take_declared(&mut self, proto: &NodeProto, outputs: &[Option<ValueId>]) {
        for (name, &value) in proto.output.iter().zip(outputs) {
            if let (Some(value), Some(fact)) = (value, self.declared.get(name)) {
                let fact = fact.clone();
                self.set_fact(value, fact);
            }
        }
    }
}

/// What a body gets from around it.
pub(super) struct Surroundings<'a> {
    /// What is known of the inputs that it declares.
    pub(super) formals: &'a [Fact],
    pub(super) outer: &'a Scope,
}

/// A graph, and the names of the values that it captures.
pub(super) struct BuiltGraph {
    pub(super) graph: Graph,
    pub(super) captured: Vec<String>,
}

/// A graph before the passes.
pub(super) struct RawGraph {
    io: ComponentIo,
    pub(super) inputs: Vec<GraphInput>,
    pub(super) outputs: Vec<ValueId>,
    pub(super) nodes: Vec<(Node, Definition)>,
    pub(super) facts: Vec<Fact>,
    /// Names of the values that it captures; the last of its inputs, in this order.
    pub(super) captured: Vec<String>,
}

impl<'m> Loader<'m> {
    fn new(
        model: &'m mut Model,
        workers: &'m Workers,
        disabled: DisabledPasses,
        names: DimNames,
        packed_cache: Option<&'m mut Store>,
    ) -> Result<Self, ComponentErrorKind> {
        let functions = std::mem::take(&mut model.proto.functions);
        let opsets = std::iter::once(&model.proto.opset_import)
            .chain(functions.iter().map(|function| &function.opset_import))
            .map(|imports| functions::opsets(imports))
            .collect();
        let functions = Functions::new(functions).map_err(|message| model.invalid(message))?;
        Ok(Loader {
            model,
            functions,
            symbols: Symbols::new(names),
            budget: Budget::of_load(),
            opsets,
            workspace: Workspace::new(workers.clone(), None),
            workers,
            packed_cache,
            missing: MissingList::default(),
            first_error: None,
            disabled,
            fired: Fired::default(),
        })
    }

    /// What the passes did. Fails with all that was found missing, or else with the first
    /// other error.
    fn finish(self) -> Result<Fired, ComponentErrorKind> {
        // A wrong type may only follow from what an operator that is missing left open, so
        // the missing ones are reported first.
        match self.missing.finish().or(self.first_error) {
            Some(error) => Err(error),
            None => Ok(self.fired),
        }
    }

    pub(super) fn graph(
        &mut self,
        proto: GraphProto,
        place: Place,
        surroundings: Option<Surroundings<'_>>,
    ) -> Result<BuiltGraph, ComponentErrorKind> {
        let raw = self.raw_graph(proto, place, surroundings)?;
        let mut draft = Draft::new(raw.nodes, raw.facts, &raw.outputs);
        passes::run(&mut draft, self.disabled, &mut self.fired);
        let (mut nodes, mut facts) = draft.finish();
        self.fold_kept(&mut nodes, &mut facts)?;
        let mut bodies = 0;
        for node in &mut nodes {
            let count = node.action.bodies().len();
            if let Action::Control { first_body, .. } = &mut node.action {
                *first_body = bodies;
                bodies += count;
            }
            let model = &*self.model;
            let mut cx = PrepareContext {
                workers: self.workers,
                packed_cache: self.packed_cache.as_deref_mut(),
                give_back: &|weight| model.give_back(weight),
            };
            if let Err(error) = node.prepare(&facts, &mut cx) {
                return Err(node.error(error));
            }
        }
        let mut graph = Graph {
            io: raw.io,
            inputs: raw.inputs,
            outputs: raw.outputs,
            nodes,
            facts,
            caches: Vec::new(),
            buffers: Vec::new(),
            metadata: Vec::new(),
            passes: Fired::default(),
        };
        graph.forget_unused_constants();
        Ok(BuiltGraph {
            graph,
            captured: raw.captured,
        })
    }

    pub(super) fn raw_graph(
        &mut self,
        mut proto: GraphProto,
        place: Place,
        surroundings: Option<Surroundings<'_>>,
    ) -> Result<RawGraph, ComponentErrorKind> {
        if place.depth > MAX_DEPTH {
            return Err(self
                .model
                .invalid(format!("its graphs are nested more than {MAX_DEPTH} deep")));
        }
        let captures = match &surroundings {
            Some(_) => scope::captures_of(&proto),
            None => Vec::new(),
        };
        let nodes = std::mem::take(&mut proto.node);
        let mut nodes = self
            .functions
            .expand(nodes, place)
            .map_err(|message| self.model.invalid(message))?;
        let mut scope = Scope::default();
        let (mut io, mut inputs) = self.inputs(&mut scope, &proto, surroundings.as_ref())?;
        let captured = match &surroundings {
            Some(Surroundings { outer, .. }) => capture(&mut scope, captures, outer, &mut inputs),
            None => Vec::new(),
        };
        let order = order::sort(&nodes, |name| scope.ids.contains_key(name))
            .map_err(|message| self.model.invalid(message))?;
        let order = self.live(&proto, &nodes, order);
        for info in proto.value_info.iter().chain(&proto.output) {
            let fact = ports::fact(info, &mut self.symbols);
            scope.declared.insert(info.name.clone(), fact);
        }
        for sparse in &proto.sparse_initializer {
            let name = sparse.values.as_ref().map_or("", |values| values.name.as_str());
            self.missing.add(format!("sparse initializer \"{name}\""));
        }
        let kept = shared::transposes(&nodes, &proto.output);
        let is_body = surroundings.is_some();
        let nodes = self.nodes(&mut scope, &mut nodes, (&order, is_body), &kept)?;
        let outputs = self.outputs(&scope, &proto, &mut io, is_body)?;
        Ok(RawGraph {
            io,
            inputs,
            outputs,
            nodes,
            facts: scope.facts,
            captured,
        })
    }

    /// The nodes of `order` that an output of the graph needs.
    fn live(&mut self, graph: &GraphProto, nodes: &[FlatNode], order: Vec<usize>) -> Vec<usize> {
        if self.disabled.contains(passes::DEAD_NODES) {
            return order;
        }
        let all = order.len();
        let live = live(graph, nodes, order);
        self.fired.add(passes::DEAD_NODES, all - live.len());
        live
    }

    /// Initializers and inputs.
    fn inputs(
        &mut self,
        scope: &mut Scope,
        graph: &GraphProto,
        surroundings: Option<&Surroundings<'_>>,
    ) -> Result<(ComponentIo, Vec<GraphInput>), ComponentErrorKind> {
        let mut initializers: HashMap<&str, Tensor> = HashMap::new();
        for proto in &graph.initializer {
            let what = format!("initializer \"{}\"", proto.name);
            let tensor = self.model.tensor(proto, &what)?;
            if initializers.insert(&proto.name, tensor).is_some() {
                return Err(self.model.invalid(format!("{what} is there twice")));
            }
        }
        let replaceable = self.model.proto.ir_version.unwrap_or(0) >= IR_VERSION_WITH_DEFAULTS;
        let mut io = ComponentIo::default();
        let mut inputs = Vec::new();
        for (index, info) in graph.input.iter().enumerate() {
            if info.name.is_empty() {
                return Err(self.model.invalid("an input has no name"));
            }
            if scope.ids.contains_key(&info.name) {
                return Err(self
                    .model
                    .invalid(format!("input \"{}\" is there twice", info.name)));
            }
            let mut fact = ports::fact(info, &mut self.symbols);
            let default = match surroundings {
                None => {
                    let is_given = initializers.contains_key(info.name.as_str());
                    if is_given && !replaceable {
                        continue;
                    }
                    let port = ports::port(info, is_given).map_err(|message| self.model.invalid(message))?;
                    io.inputs.push(port);
                    initializers.remove(info.name.as_str())
                }
                // The node gives every input of a body. Dims that the body declares are not
                // relied on: exporters write those of the first iteration.
                Some(Surroundings { formals, .. }) => {
                    initializers.remove(info.name.as_str());
                    if let Some(formal) = formals.get(index) {
                        // A body may take as optional what is there.
                        let is_wrapped = formal.kind.and_then(Kind::optional) == fact.kind;
                        if !is_wrapped || formal.kind.is_none() {
                            fact.kind = formal.kind.or(fact.kind);
                        }
                        fact.ty = formal.ty.or(fact.ty);
                    }
                    None
                }
            };
            let value = scope.id(&info.name);
            let mut known = fact.clone();
            if surroundings.is_some() {
                known.dims = None;
            }
            scope.set_fact(value, known);
            inputs.push(GraphInput { value, fact, default });
        }
        for proto in &graph.initializer {
            if let Some(tensor) = initializers.get(proto.name.as_str()) {
                let value = scope.id(&proto.name);
                scope.set_fact(value, Fact::of_tensor(tensor));
            }
        }
        Ok((io, inputs))
    }

    /// Output ports and their values.
    fn outputs(
        &mut self,
        scope: &Scope,
        graph: &GraphProto,
        io: &mut ComponentIo,
        is_body: bool,
    ) -> Result<Vec<ValueId>, ComponentErrorKind> {
        let mut outputs = Vec::with_capacity(graph.output.len());
        for info in &graph.output {
            let Some(&value) = scope.ids.get(&info.name) else {
                return Err(self
                    .model
                    .invalid(format!("output \"{}\" is defined nowhere", info.name)));
            };
            // A body may well give the same value for two of the node's outputs.
            if outputs.contains(&value) && !is_body {
                return Err(self
                    .model
                    .invalid(format!("output \"{}\" is there twice", info.name)));
            }
            let ty = self.output_type(scope, info, value)?;
            let mut port = ports::port(info, false).map_err(|message| self.model.invalid(message))?;
            port.ty = ty.unwrap_or(port.ty);
            io.outputs.push(port);
            outputs.push(value);
        }
        Ok(outputs)
    }

    /// The type of an output by inference, which must be the declared one, if there is one.
    fn output_type(
        &mut self,
        scope: &Scope,
        info: &ValueInfoProto,
        value: ValueId,
    ) -> Result<Option<PortType>, ComponentErrorKind> {
        let declared = ports::fact(info, &mut self.symbols);
        let declared = declared.kind.zip(declared.ty);
        let found = scope.fact(value).and_then(|fact| fact.kind.zip(fact.ty));
        let Some((kind, ty)) = found else {
            return Ok(declared.map(|(kind, ty)| port_type(kind, ty)));
        };
        match declared.filter(|&declared| declared != (kind, ty)) {
            None => Ok(Some(port_type(kind, ty))),
            Some((declared, element)) => {
                let error = self.model.invalid(format!(
                    "output \"{}\" is declared as {}, but its node gives {}",
                    info.name,
                    declared.with_element(element),
                    kind.with_element(ty)
                ));
                self.first_error.get_or_insert(error);
                Ok(Some(port_type(kind, ty)))
            }
        }
    }
}

/// Makes values of an outer graph known inside a body: constants with their value, the others
/// as inputs after its own. Gives the names of those.
fn capture(
    scope: &mut Scope,
    names: Vec<String>,
    outer: &Scope,
    inputs: &mut Vec<GraphInput>,
) -> Vec<String> {
    let mut captured = Vec::new();
    for name in names {
        // A name that nothing outside defines is reported by whoever reads it.
        let Some(fact) = outer.ids.get(&name).and_then(|&value| outer.fact(value)).cloned() else {
            continue;
        };
        let value = scope.id(&name);
        scope.set_fact(value, fact.clone());
        if fact.value.is_none() {
            inputs.push(GraphInput {
                value,
                fact,
                default: None,
            });
            captured.push(name);
        }
    }
    captured
}

/// The nodes of `order` that an output of the graph needs.
fn live(graph: &GraphProto, nodes: &[FlatNode], order: Vec<usize>) -> Vec<usize> {
    let mut needed: HashSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
    let mut live: Vec<usize> = order
        .into_iter()
        .rev()
        .filter(|&index| {
            let Some(node) = nodes.get(index) else {
                return false;
            };
            let mut outputs = node.proto.output.iter();
            let is_needed = outputs.any(|output| needed.contains(output.as_str()));
            if is_needed {
                needed.extend(node.reads());
            }
            is_needed
        })
        .collect();
    live.reverse();
    live
}

/// `metadata_props`, then what is set of the model's own description.
fn metadata(proto: &ModelProto) -> Vec<(String, String)> {
    let version = proto.model_version.filter(|&version| version != 0);
    let about = [
        ("producer_name", proto.producer_name.clone()),
        ("producer_version", proto.producer_version.clone()),
        ("domain", proto.domain.clone()),
        (
            "model_version",
            version.map(|version| version.to_string()).unwrap_or_default(),
        ),
        ("doc_string", proto.doc_string.clone()),
    ];
    let props = proto
        .metadata_props
        .iter()
        .map(|entry| (entry.key.clone(), entry.value.clone()));
    let about = about
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), value));
    props.chain(about).collect()
}
