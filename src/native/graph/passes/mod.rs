//! Passes: rewrites of a graph into one that computes the same with less. Each is a file that
//! says what it matches and why that is the same function, and each can be left out by name
//! ([`DisabledPasses`]). Graphs of If, Loop and Scan are rewritten like that of the model.

mod attention;
mod bias;
mod cast;
mod conv_bn;
mod dim;
mod gated;
mod gelu;
mod identity;
mod kv_append;
mod merge_projections;
mod no_op;
mod norm;
mod pattern;
mod repeat_kv;
mod rope;
mod silu;
mod transpose;

use std::str::FromStr;

use thiserror::Error;

use super::draft::{Draft, NodeId};

/// A pass that looks at one node, and at what leads to it. Says whether it rewrote anything.
type Rewrite = fn(&mut Draft, NodeId) -> bool;

struct Pass {
    name: &'static str,
    how: How,
}

enum How {
    /// Done while the graph is built: see `build` and `fold`.
    WhileBuilding,
    Rewrite(Rewrite),
    DropUnread,
    /// Nothing is rewritten: see `caches`.
    OfWholeGraph,
}

/// Nodes whose inputs are all constants are computed at load.
pub(super) const CONSTANT_FOLDING: &str = "constant_folding";
/// An If whose condition is a constant is replaced by the nodes of the branch that it takes.
pub(super) const CONSTANT_IF: &str = "constant_if";
/// Nodes that no output of the graph needs are left out, also when they could not be run.
pub(super) const DEAD_NODES: &str = "dead_nodes";

/// A past that only an attention node reads is made longer where it lies.
pub(super) const KV_IN_PLACE: &str = "kv_in_place";

/// In the order in which they are done.
static PASSES: &[Pass] = &[
    while_building(CONSTANT_FOLDING),
    while_building(CONSTANT_IF),
    rewrite("identity", identity::identity),
    rewrite("cast", cast::cast),
    rewrite("no_op", no_op::no_op),
    rewrite("transpose", transpose::transpose),
    rewrite("transpose_gather", transpose::transpose_gather),
    rewrite("gelu", gelu::gelu),
    rewrite("silu", silu::silu),
    rewrite("swiglu", silu::swiglu),
    rewrite("geglu", gated::geglu),
    rewrite("layer_norm", norm::layer_norm),
    rewrite("rms_norm", norm::rms_norm),
    rewrite("skip_norm", norm::skip_norm),
    rewrite("conv_bn", conv_bn::conv_bn),
    rewrite("rope", rope::rope),
    rewrite("attention", attention::attention),
    rewrite("repeat_kv", repeat_kv::repeat_kv),
    rewrite("kv_append", kv_append::kv_append),
    rewrite("transpose_matmul", transpose::transpose_matmul),
    rewrite("matmul_bias", bias::matmul_bias),
    rewrite("matmul_residual", bias::matmul_residual),
    rewrite("fused_activation", bias::fused_activation),
    rewrite("merge_projections", merge_projections::merge_projections),
    rewrite("gated_halves", gated::gated_halves),
    rewrite("dim", dim::dim),
    Pass {
        name: DEAD_NODES,
        how: How::DropUnread,
    },
    Pass {
        name: KV_IN_PLACE,
        how: How::OfWholeGraph,
    },
];

const fn while_building(name: &'static str) -> Pass {
    Pass {
        name,
        how: How::WhileBuilding,
    }
}

const fn rewrite(name: &'static str, rewrite: Rewrite) -> Pass {
    Pass {
        name,
        how: How::Rewrite(rewrite),
    }
}

/// Passes of the native runtime that are left out when a graph is loaded; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisabledPasses(u64);

impl DisabledPasses {
    /// The names of all passes.
    pub fn known() -> impl Iterator<Item = &'static str> {
        PASSES.iter().map(|pass| pass.name)
    }

    /// Whether every pass is left out.
    pub fn are_all(self) -> bool {
        self.0 == u64::MAX
    }

    /// Whether a pass is left out.
    pub fn contains(self, name: &str) -> bool {
        let index = PASSES.iter().position(|pass| pass.name == name);
        index.is_some_and(|index| self.0 >> index & 1 == 1)
    }
}

/// A name that no pass has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no graph pass is called \"{found}\"; there are all, {}", known_names())]
pub struct UnknownPass {
    pub found: String,
}

fn known_names() -> String {
    DisabledPasses::known().collect::<Vec<_>>().join(", ")
}

impl FromStr for DisabledPasses {
    type Err = UnknownPass;

    /// Names with commas between them; `all` is every pass.
    fn from_str(text: &str) -> Result<Self, UnknownPass> {
        let mut disabled = 0;
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let index = PASSES.iter().position(|pass| pass.name == name);
            disabled |= match (name, index) {
                ("all", _) => u64::MAX,
                (_, Some(index)) => 1 << index,
                _ => {
                    return Err(UnknownPass {
                        found: name.to_owned(),
                    });
                }
            };
        }
        Ok(DisabledPasses(disabled))
    }
}

/// How often passes found what they look for.
#[derive(Clone, Debug, Default)]
pub(in crate::native) struct Fired(Vec<(&'static str, usize)>);

impl Fired {
    pub(super) fn add(&mut self, name: &'static str, times: usize) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            _ if times == 0 => {}
            Some((_, count)) => *count += times,
            None => self.0.push((name, times)),
        }
    }

    /// Those that did, in the order of the passes.
    pub(in crate::native) fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        DisabledPasses::known().filter_map(|name| self.0.iter().find(|(known, _)| *known == name).copied())
    }
}

/// Runs the passes that are not disabled, each once over all nodes.
pub(super) fn run(draft: &mut Draft, disabled: DisabledPasses, fired: &mut Fired) {
    for pass in PASSES.iter().filter(|pass| !disabled.contains(pass.name)) {
        let times = match pass.how {
            How::WhileBuilding | How::OfWholeGraph => 0,
            How::Rewrite(rewrite) => {
                let nodes = draft.ids().into_iter();
                nodes
                    .filter(|&id| draft.node(id).is_some() && rewrite(draft, id))
                    .count()
            }
            How::DropUnread => {
                let nodes = draft.ids().into_iter();
                nodes.map(|id| draft.drop_if_unread(id)).sum()
            }
        };
        fired.add(pass.name, times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_in_the_set_and_are_there_once() {
        assert!(PASSES.len() < 64);
        for name in DisabledPasses::known() {
            assert_eq!(DisabledPasses::known().filter(|other| *other == name).count(), 1);
            let disabled: DisabledPasses = name.parse().unwrap();
            let left_out = DisabledPasses::known().filter(|name| disabled.contains(name));
            assert_eq!(left_out.collect::<Vec<_>>(), [name]);
        }
    }

    #[test]
    fn lists_of_names_are_read() {
        let disabled: DisabledPasses = " cast,identity ,".parse().unwrap();
        assert!(disabled.contains("cast") && disabled.contains("identity") && !disabled.contains("no_op"));
        let all: DisabledPasses = "all".parse().unwrap();
        assert!(DisabledPasses::known().all(|name| all.contains(name)));
        assert_eq!("".parse(), Ok(DisabledPasses::default()));
        let error = "cast,casts".parse::<DisabledPasses>().unwrap_err().to_string();
        assert!(
            error.contains("\"casts\"") && error.contains("transpose_matmul"),
            "{error}"
        );
    }
}
