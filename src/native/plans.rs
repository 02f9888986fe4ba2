//! The plans of the last requests, kept so that a repeated one is not planned again.

use super::graph::{Graph, Pattern, Plan, Request, cuts};
use super::infer::Fact;
use super::workspace::Workspace;
use crate::component::{Backend, ComponentErrorKind};

/// The plans of the last requests of one graph, the latest first.
pub(super) struct Plans {
    recent: Vec<Plan>,
    /// See [`cuts`].
    cuts: Vec<Option<usize>>,
    /// Room for making a plan, see [`Plan::new`].
    facts: Vec<Fact>,
}

/// Enough for prefill, decode, and the shapes of a component that is called for several
/// kinds of input.
const MAX_PLANS: usize = 4;

impl Plans {
    pub(super) fn new(graph: &Graph) -> Self {
        Plans {
            recent: Vec::with_capacity(MAX_PLANS),
            cuts: cuts(graph),
            facts: graph.facts.clone(),
        }
    }

    /// A plan that serves a request. Where it is the next of a row, as of decode steps whose past
    /// grows, one is made that serves all of the row; it knows less, so that a few more nodes run,
    /// which is a small part of the time that it takes to make a plan.
    pub(super) fn get(
        &mut self,
        graph: &Graph,
        request: &Request,
        workspace: &mut Workspace,
    ) -> Result<&Plan, ComponentErrorKind> {
        if let Some(found) = self.recent.iter().position(|plan| plan.pattern.serves(request)) {
            return self.kept(found);
        }
        let row = self.recent.iter().find_map(|plan| plan.pattern.grown_to(request));
        let plan = row.and_then(|row| self.make(graph, row, workspace).ok());
        let plan = match plan {
            Some(plan) => plan,
            None => self.make(graph, Pattern::of(request), workspace)?,
        };
        self.keep(plan)
    }

    /// A plan that serves all of these requests, if there is one: those of decode steps whose pasts
    /// are of different lengths have one.
    pub(super) fn common(
        &mut self,
        graph: &Graph,
        requests: &[Request],
        workspace: &mut Workspace,
    ) -> Result<Option<&Plan>, ComponentErrorKind> {
        let serves_all = |plan: &Plan| requests.iter().all(|request| plan.pattern.serves(request));
        // A plan for the shortest grows into one for the longest too.
        let shortest = requests.iter().min_by_key(|request| request.elements());
        let longest = requests.iter().max_by_key(|request| request.elements());
        for request in [shortest, longest].into_iter().flatten() {
            if let Some(found) = self.recent.iter().position(serves_all) {
                return self.kept(found).map(Some);
            }
            self.get(graph, request, workspace)?;
        }
        match self.recent.iter().position(serves_all) {
            Some(found) => self.kept(found).map(Some),
            None => Ok(None),
        }
    }

    /// The plan for a request alone, which knows all dims that follow from its own.
    pub(super) fn exact(
        &mut self,
        graph: &Graph,
        request: &Request,
        workspace: &mut Workspace,
    ) -> Result<&Plan, ComponentErrorKind> {
        let is_it = |plan: &Plan| plan.pattern.is_single() && plan.pattern.serves(request);
        if let Some(found) = self.recent.iter().position(is_it) {
            return self.kept(found);
        }
        let plan = self.make(graph, Pattern::of(request), workspace)?;
        self.keep(plan)
    }

    fn make(
        &mut self,
        graph: &Graph,
        pattern: Pattern,
        workspace: &mut Workspace,
    ) -> Result<Plan, ComponentErrorKind> {
        Plan::new(graph, pattern, &self.cuts, &mut self.facts, workspace)
    }

    fn keep(&mut self, plan: Plan) -> Result<&Plan, ComponentErrorKind> {
        self.recent.truncate(MAX_PLANS - 1);
        self.recent.push(plan);
        self.kept(self.recent.len() - 1)
    }

    /// The plan of this index, which becomes the latest.
    fn kept(&mut self, index: usize) -> Result<&Plan, ComponentErrorKind> {
        if let Some(front) = self.recent.get_mut(..=index) {
            front.rotate_right(1);
        }
        self.recent.first().ok_or_else(|| ComponentErrorKind::Backend {
            backend: Backend::Native.name(),
            message: "there is no plan".into(),
        })
    }
}
