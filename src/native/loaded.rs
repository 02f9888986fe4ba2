//! A model that is ready to run, once or twice: a graph that takes dims of one name for one size,
//! as ONNX has it, and, from the first request on that does not keep to that, one that does not.
//!
//! Sizes that the model calls by one name are what lets passes see that an Expand does nothing or
//! that a cache grows by what was fed. Hosts do give such inputs different sizes, a batch of 1 that
//! broadcasts say, and exporters do call different sizes by one name. Which graph a request runs on
//! depends on that request alone, so that results do not depend on the ones before it.
//!
//! The second graph may keep fewer caches in place. What a session says of its caches is what the
//! first one keeps; where the second does not, a run copies the past and gives the present anew.

use super::NativeOptions;
use super::executor::Executor;
use super::graph::{Differing, DimNames, Graph, Request, SameDims};
use super::model::{Model, Sources};
use super::packed_cache::{PackedCacheReport, Store};
use super::plans::Plans;
use super::workspace::Workspace;
use crate::component::{
    Backend, ComponentErrorKind, EnteredAccount, InPlaceCache, MemoryAccount, ModelSource, RunControl,
};

/// A graph with all that running it takes.
pub(super) struct Loaded {
    pub(super) graph: Graph,
    pub(super) executor: Executor,
    /// For runs that are made together, beside the one above.
    pub(super) others: Vec<Executor>,
    pub(super) workspace: Workspace,
    pub(super) plans: Plans,
    /// Caches that the session says it makes longer or overwrites where they lie, but that this
    /// graph does not.
    pub(super) copied: Vec<InPlaceCache>,
}

impl Loaded {
    fn new(
        model: &mut Model,
        options: &NativeOptions,
        names: DimNames,
        packed_cache: Option<&mut Store>,
    ) -> Result<Self, ComponentErrorKind> {
        let graph =
            Graph::load(model, options, names, packed_cache).map_err(|kind| model.invalid_node(kind))?;
        Ok(Loaded {
            executor: Executor::new(&graph),
            others: Vec::new(),
            workspace: Workspace::new(options.workers.clone(), options.trace.clone()),
            plans: Plans::new(&graph),
            copied: Vec::new(),
            graph,
        })
    }
}

/// A model for any request.
pub(super) struct LoadedModel {
    /// The graph in which dims of one name are one size.
    usual: Loaded,
    same_dims: SameDims,
    /// The graph for requests in which they are not. It has the same ports.
    apart: Option<Box<Loaded>>,
    sources: Option<Sources>,
    packed_cache: PackedCacheReport,
    options: NativeOptions,
    /// What its weights count for, those of the second graph too.
    account: Option<MemoryAccount>,
}

impl LoadedModel {
    pub(super) fn open(source: &ModelSource, options: &NativeOptions) -> Result<Self, ComponentErrorKind> {
        let mut model = Model::open(source, options.model_files)?;
        let mut store = Store::open(&options.packed_cache, source, &options.workers);
        let usual = Loaded::new(&mut model, options, DimNames::OneSize, store.as_mut())?;
        // Without passes nothing relies on names.
        let same_dims = match options.disabled_passes.are_all() {
            true => SameDims::default(),
            false => SameDims::of(&usual.graph.io),
        };
        Ok(LoadedModel {
            usual,
            same_dims,
            apart: None,
            sources: model.sources(),
            packed_cache: store.map(Store::finish).unwrap_or_default(),
            options: NativeOptions {
                control: RunControl::default(),
                ..options.clone()
            },
            account: MemoryAccount::entered(),
        })
    }

    /// The graph that most requests run on; the other has the same ports.
    pub(super) fn graph(&self) -> &Graph {
        &self.usual.graph
    }

    /// What came of the option to keep packed weights.
    pub(super) fn packed_cache(&self) -> &PackedCacheReport {
        &self.packed_cache
    }

    /// Whether a request runs on the usual graph.
    pub(super) fn is_usual(&self, request: &Request) -> bool {
        self.same_dims.broken_by(request).is_none()
    }

    /// The graph for a request.
    pub(super) fn for_request(&mut self, request: &Request) -> Result<&mut Loaded, ComponentErrorKind> {
        if let Some(sources) = &self.sources {
            sources.check_unchanged()?;
        }
        let Some(differing) = self.same_dims.broken_by(request) else {
            return Ok(&mut self.usual);
        };
        let loaded = match self.apart.take() {
            Some(loaded) => loaded,
            None => Box::new(self.load_apart(&differing).map_err(|error| {
                let limit = self.account.as_ref();
                limit
                    .and_then(|account| account.explanation(&error))
                    .unwrap_or(error)
            })?),
        };
        Ok(self.apart.insert(loaded))
    }

    fn load_apart(&self, differing: &Differing) -> Result<Loaded, ComponentErrorKind> {
        let sources = self.sources.clone().ok_or_else(|| ComponentErrorKind::Backend {
            backend: Backend::Native.name(),
            message: format!(
                "{}; the model was opened from memory and runs such inputs only when opened with \
                     native.disable_passes = all",
                differing.display(&self.usual.graph.io)
            ),
        })?;
        let _entered = EnteredAccount::of(self.account.as_ref());
        // Only read: the file is for the usual graph, whose weights are mostly the same.
        let file = self.packed_cache.file.clone();
        let mut store = file.map(|file| Store::at(file, &self.options.workers));
        let mut model = Model::read(sources)?;
        let mut loaded = Loaded::new(&mut model, &self.options, DimNames::Apart, store.as_mut())?;
        let kept = &loaded.graph.caches;
        let caches = self.usual.graph.caches.iter();
        loaded.copied = caches.filter(|cache| !kept.contains(cache)).copied().collect();
        let kept = &loaded.graph.buffers;
        let buffers = self.usual.graph.buffers.iter();
        let copied = buffers.filter(|buffer| !kept.contains(buffer));
        loaded.copied.extend(copied.map(|buffer| InPlaceCache {
            past: buffer.past,
            present: buffer.present,
            axis: 0,
        }));
        Ok(loaded)
    }
}
