//! The plans of the last requests, kept so that a repeated one is not planned again.

use super::graph::{Graph, Plan, Request, cuts};
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
/// kinds of input. A decode step whose past grows in an input asks for a new plan each time,
/// and drops the oldest.
const MAX_PLANS: usize = 4;

impl Plans {
    pub(super) fn new(graph: &Graph) -> Self {
        Plans {
            recent: Vec::with_capacity(MAX_PLANS),
            cuts: cuts(graph),
            facts: graph.facts.clone(),
        }
    }

    /// The plan for a request, made if it is not among the last.
    pub(super) fn get(
        &mut self,
        graph: &Graph,
        request: &Request,
        workspace: &mut Workspace,
    ) -> Result<&Plan, ComponentErrorKind> {
        match self.recent.iter().position(|plan| plan.request == *request) {
            Some(found) => {
                if let Some(front) = self.recent.get_mut(..=found) {
                    front.rotate_right(1);
                }
            }
            None => {
                let plan = Plan::new(graph, request.clone(), &self.cuts, &mut self.facts, workspace)?;
                self.recent.truncate(MAX_PLANS - 1);
                self.recent.insert(0, plan);
            }
        }
        self.recent.first().ok_or_else(|| ComponentErrorKind::Backend {
            backend: Backend::Native.name(),
            message: "there is no plan".into(),
        })
    }
}
