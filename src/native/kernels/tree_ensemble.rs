//! TreeEnsemble: the scores that decision trees give a row of features.            ai.onnx.ml 5
//!
//!   x [n, features]   y [n, n_targets]   of float16, float or double, like the splits
//!
//! From its root, each tree is followed to a leaf: a node goes on with its true branch where
//! x[feature] compares with its split as its mode says (0 to 6: <=, <, >=, >, ==, !=, is among
//! the members), or where the feature is NaN and the node tracks missing values, else with its
//! false branch. A target's score is the average (0, over all trees), sum (1), min (2) or max (3)
//! of the weights of the leaves that say so, 0 where none does. Then, by `post_transform`:
//!
//!   0 none   1 softmax   2 logistic, 1 / (1 + e^-score)   3 softmax over scores that are not 0
//!   4 probit, where the normal distribution reaches the score
//!
//! Scores are computed in f64 and rounded once. (ONNX Runtime 1.31 has softmax and logistic the
//! other way round, which the definition does not.)

use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::number::{Float, Number, Scalar};
use super::post_transform::Transform;
use super::{Built, required_attribute, wrong_attribute};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Tensor, TensorRef};

#[derive(Debug)]
struct TreeEnsemble {
    ty: ElementType,
    trees: Trees,
    targets: usize,
    aggregate: Aggregate,
    transform: Transform,
}

/// Trees to follow, which have no cycles.
#[derive(Debug)]
pub(super) struct Trees {
    nodes: Vec<TreeNode>,
    leaves: Vec<Leaf>,
    roots: Vec<Branch>,
    /// Features that the nodes look at: one more than the last one.
    features: usize,
}

#[derive(Debug)]
pub(super) struct TreeNode {
    pub feature: usize,
    pub test: Test,
    pub missing_is_true: bool,
    pub on_true: Branch,
    pub on_false: Branch,
}

#[derive(Debug)]
pub(super) enum Test {
    AtMost(f64),
    Below(f64),
    AtLeast(f64),
    Above(f64),
    Equal(f64),
    NotEqual(f64),
    Member(Vec<f64>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Branch {
    Node(usize),
    Leaf(usize),
}

/// What a tree says when it is followed to here.
pub(super) type Leaf = Vec<Vote>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Vote {
    pub target: usize,
    pub weight: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Aggregate {
    Average,
    Sum,
    Min,
    Max,
}

pub(in crate::native) fn tree_ensemble(node: &NodeInfo<'_>) -> Built {
    let aggregate = match node.int_or("aggregate_function", 1)? {
        0 => Aggregate::Average,
        1 => Aggregate::Sum,
        2 => Aggregate::Min,
        3 => Aggregate::Max,
        other => {
            return Err(wrong_attribute(
                "aggregate_function",
                format!("is {other}, expected 0 to 3"),
            ));
        }
    };
    let transform = match node.int_or("post_transform", 0)? {
        0 => Transform::None,
        1 => Transform::Softmax,
        2 => Transform::Logistic,
        3 => Transform::SoftmaxZero,
        4 => Transform::Probit,
        other => {
            return Err(wrong_attribute(
                "post_transform",
                format!("is {other}, expected 0 to 4"),
            ));
        }
    };
    // How often a node is visited says nothing about results.
    node.tensor("nodes_hitrates")?;
    let given = required_attribute("n_targets", node.int("n_targets")?)?;
    let targets = usize::try_from(given)
        .map_err(|_| wrong_attribute("n_targets", format!("is {given}, expected 0 or more")))?;
    let ty = required_attribute("nodes_splits", node.tensor("nodes_splits")?)?.element_type();
    let leaves = leaves(node, ty, targets)?;
    let nodes = nodes(node, ty, leaves.len())?;
    let given = required_attribute("tree_roots", node.ints("tree_roots")?)?;
    let roots: Vec<Branch> = given
        .iter()
        .map(|&root| position("tree_roots", root, nodes.len()).map(Branch::Node))
        .collect::<Result<_, _>>()?;
    Ok(Box::new(TreeEnsemble {
        ty,
        trees: Trees::new(nodes, leaves, roots)?,
        targets,
        aggregate,
        transform,
    }))
}

/// An element of an attribute that is a position among `count`.
pub(super) fn position(name: &str, given: i64, count: usize) -> Result<usize, OpError> {
    let fits = usize::try_from(given).ok().filter(|&at| at < count);
    fits.ok_or_else(|| {
        wrong_attribute(
            name,
            format!("has {given}, expected 0 or more and less than {count}"),
        )
    })
}

/// The floats of a tensor of this type.
pub(super) fn floats(name: &str, tensor: &Tensor, ty: ElementType) -> Result<Vec<f64>, OpError> {
    if tensor.element_type() != ty {
        return Err(OpError::WrongType {
            what: format!("attribute \"{name}\""),
            found: tensor.element_type(),
            expected: format!("{ty}, like nodes_splits"),
        });
    }
    let tensor = tensor.view();
    with_float!(ty, T => Ok(tensor.slice::<T>()?.iter().map(|value| value.widen().to_f64()).collect()))
}

pub(super) fn check_count(name: &str, found: usize, expected: usize) -> Result<(), OpError> {
    match found == expected {
        true => Ok(()),
        false => Err(wrong_attribute(
            name,
            format!("has {found} elements, expected {expected}"),
        )),
    }
}

fn leaves(node: &NodeInfo<'_>, ty: ElementType, targets: usize) -> Result<Vec<Leaf>, OpError> {
    let weights = required_attribute("leaf_weights", node.tensor("leaf_weights")?)?;
    let weights = floats("leaf_weights", weights, ty)?;
    let ids = required_attribute("leaf_targetids", node.ints("leaf_targetids")?)?;
    check_count("leaf_targetids", ids.len(), weights.len())?;
    let leaf = |(&id, weight)| {
        let target = position("leaf_targetids", id, targets)?;
        Ok(vec![Vote { target, weight }])
    };
    ids.iter().zip(weights).map(leaf).collect()
}

fn nodes(node: &NodeInfo<'_>, ty: ElementType, leaves: usize) -> Result<Vec<TreeNode>, OpError> {
    let splits = required_attribute("nodes_splits", node.tensor("nodes_splits")?)?;
    let splits = floats("nodes_splits", splits, ty)?;
    let count = splits.len();
    let modes = required_attribute("nodes_modes", node.tensor("nodes_modes")?)?.view();
    let modes = modes.slice::<u8>()?;
    check_count("nodes_modes", modes.len(), count)?;
    let ints = |name| {
        let values = required_attribute(name, node.ints(name)?)?;
        check_count(name, values.len(), count)?;
        Ok::<_, OpError>(values)
    };
    let features = ints("nodes_featureids")?;
    let branches = |ids: &'static str, leaf: &'static str| {
        let of = |(&id, &leaf): (&i64, &i64)| match leaf {
            0 => position(ids, id, count).map(Branch::Node),
            _ => position(ids, id, leaves).map(Branch::Leaf),
        };
        let pairs = ints(ids)?.iter().zip(ints(leaf)?);
        pairs.map(of).collect::<Result<Vec<Branch>, OpError>>()
    };
    let on_true = branches("nodes_truenodeids", "nodes_trueleafs")?;
    let on_false = branches("nodes_falsenodeids", "nodes_falseleafs")?;
    let missing = node.ints("nodes_missing_value_tracks_true")?.unwrap_or_default();
    if !missing.is_empty() {
        check_count("nodes_missing_value_tracks_true", missing.len(), count)?;
    }
    let mut members = members(node, ty)?.into_iter();
    let mut nodes = Vec::with_capacity(count);
    for (at, (on_true, on_false)) in on_true.into_iter().zip(on_false).enumerate() {
        let split = splits.get(at).copied().unwrap_or_default();
        nodes.push(TreeNode {
            // Any dim has an index less than this.
            feature: position(
                "nodes_featureids",
                features.get(at).copied().unwrap_or_default(),
                isize::MAX as usize,
            )?,
            test: match modes.get(at).copied().unwrap_or_default() {
                0 => Test::AtMost(split),
                1 => Test::Below(split),
                2 => Test::AtLeast(split),
                3 => Test::Above(split),
                4 => Test::Equal(split),
                5 => Test::NotEqual(split),
                6 => Test::Member(members.next().ok_or_else(|| {
                    wrong_attribute(
                        "membership_values",
                        "has fewer sets than there are nodes that test for members",
                    )
                })?),
                other => {
                    return Err(wrong_attribute(
                        "nodes_modes",
                        format!("has {other}, expected 0 to 6"),
                    ));
                }
            },
            missing_is_true: missing.get(at).is_some_and(|&tracks| tracks != 0),
            on_true,
            on_false,
        });
    }
    match members.next() {
        None => Ok(nodes),
        Some(_) => Err(wrong_attribute(
            "membership_values",
            "has more sets than there are nodes that test for members",
        )),
    }
}

/// The sets of members, each sorted, in the order of the nodes.
fn members(node: &NodeInfo<'_>, ty: ElementType) -> Result<Vec<Vec<f64>>, OpError> {
    let Some(values) = node.tensor("membership_values")? else {
        return Ok(Vec::new());
    };
    let values = floats("membership_values", values, ty)?;
    let sets = values.split(|value| value.is_nan());
    let mut sets: Vec<Vec<f64>> = sets
        .map(|set| set.iter().map(|&value| unsigned_zero(value)).collect())
        .collect();
    // After the NaN that ends the last one nothing begins.
    sets.pop_if(|last| last.is_empty());
    for set in &mut sets {
        set.sort_unstable_by(f64::total_cmp);
    }
    Ok(sets)
}

/// Zeros of either sign are equal, but not in the total order of floats.
fn unsigned_zero(value: f64) -> f64 {
    value + 0.0
}

/// Checks that no way down from a root comes back to a node that it has been at.
fn check_trees(nodes: &[TreeNode], roots: &[Branch]) -> Result<(), OpError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Above,
        Done,
    }
    let mut seen = vec![Seen::No; nodes.len()];
    // Nodes on the way down, and how many of their branches have been looked at.
    let mut way: Vec<(usize, usize)> = Vec::new();
    for root in roots {
        let Branch::Node(root) = *root else { continue };
        way.push((root, 0));
        while let Some((at, looked_at)) = way.last_mut() {
            let (Some(node), Some(state)) = (nodes.get(*at), seen.get_mut(*at)) else {
                break;
            };
            if *looked_at == 0 {
                match *state {
                    Seen::No => *state = Seen::Above,
                    Seen::Above => return Err(OpError::Message(format!("tree node {at} is below itself"))),
                    Seen::Done => {
                        way.pop();
                        continue;
                    }
                }
            }
            let branch = [node.on_true, node.on_false].get(*looked_at).copied();
            *looked_at += 1;
            match branch {
                Some(Branch::Node(next)) => way.push((next, 0)),
                Some(Branch::Leaf(_)) => {}
                None => {
                    *state = Seen::Done;
                    way.pop();
                }
            }
        }
    }
    Ok(())
}

impl Test {
    fn holds(&self, x: f64) -> bool {
        match self {
            Test::AtMost(split) => x <= *split,
            Test::Below(split) => x < *split,
            Test::AtLeast(split) => x >= *split,
            Test::Above(split) => x > *split,
            Test::Equal(split) => x == *split,
            Test::NotEqual(split) => x != *split,
            Test::Member(members) => {
                let x = unsigned_zero(x);
                members.binary_search_by(|member| member.total_cmp(&x)).is_ok()
            }
        }
    }
}

impl Trees {
    pub fn new(nodes: Vec<TreeNode>, leaves: Vec<Leaf>, roots: Vec<Branch>) -> Result<Self, OpError> {
        check_trees(&nodes, &roots)?;
        Ok(Trees {
            features: nodes.iter().map(|node| node.feature + 1).max().unwrap_or(0),
            nodes,
            leaves,
            roots,
        })
    }

    /// Checks that a row has what the nodes look at.
    pub fn check_features(&self, features: usize) -> Result<(), OpError> {
        match features >= self.features {
            true => Ok(()),
            false => Err(OpError::Message(format!(
                "a row has {features} features, expected {} features or more, which the nodes look at",
                self.features
            ))),
        }
    }

    /// The leaf of a tree for a row of enough features.
    fn leaf(&self, root: Branch, feature: &impl Fn(usize) -> f64) -> Option<&Leaf> {
        let (mut at, mut depth) = (root, 1);
        loop {
            match at {
                Branch::Leaf(leaf) => {
                    let votes = self.leaves.get(leaf)?;
                    ending::count(depth + votes.len());
                    return Some(votes);
                }
                Branch::Node(node) => {
                    depth += 1;
                    let node = self.nodes.get(node)?;
                    let x = feature(node.feature);
                    at = match node.test.holds(x) || node.missing_is_true && x.is_nan() {
                        true => node.on_true,
                        false => node.on_false,
                    };
                }
            }
        }
    }

    /// The scores of a row, and in `voted` whether anything voted for a target.
    pub fn score(
        &self,
        aggregate: Aggregate,
        feature: &impl Fn(usize) -> f64,
        scores: &mut [f64],
        voted: &mut [f64],
    ) {
        ending::count(scores.len());
        scores.fill(0.0);
        voted.fill(0.0);
        let leaves = self.roots.iter().filter_map(|&root| self.leaf(root, feature));
        for vote in leaves.flatten() {
            let (Some(score), Some(voted)) = (scores.get_mut(vote.target), voted.get_mut(vote.target)) else {
                continue;
            };
            *score = match aggregate {
                _ if *voted == 0.0 => vote.weight,
                Aggregate::Average | Aggregate::Sum => *score + vote.weight,
                Aggregate::Min => Scalar::min(*score, vote.weight),
                Aggregate::Max => Scalar::max(*score, vote.weight),
            };
            *voted = 1.0;
        }
        if let Aggregate::Average = aggregate {
            let trees = self.roots.len().max(1) as f64;
            scores.iter_mut().for_each(|score| *score /= trees);
        }
    }
}

impl TreeEnsemble {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let &[rows, features] = x.dims() else {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: x.dims().into(),
                expected: "[n, features]".into(),
            });
        };
        self.trees.check_features(features)?;
        let y = cx.output::<T>(0, &[rows, self.targets])?.into_mut();
        // A row without targets has no scores, a row without features no nodes.
        let (scores, voted) = cx
            .scratch::<f64>(self.targets.saturating_mul(2))?
            .split_at_mut(self.targets);
        let x = x.slice::<T>()?;
        for (row, y) in y.chunks_exact_mut(self.targets.max(1)).enumerate() {
            let x = x.get(row * features..).and_then(|rest| rest.get(..features));
            // Never missing: the nodes look at no more than there is.
            let feature = |at: usize| x.and_then(|x| x.get(at)).map_or(0.0, |x| x.widen().to_f64());
            self.trees.score(self.aggregate, &feature, scores, voted);
            self.transform.apply(scores);
            for (y, &score) in y.iter_mut().zip(&*scores) {
                *y = T::narrow(T::Wide::from_f64(score));
            }
        }
        Ok(())
    }
}

impl Operator for TreeEnsemble {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        if let Some(ty) = input_type(cx, 0) {
            self.check(ty)?;
        }
        let rows = input_dims(cx, 0).and_then(|dims| dims.first().copied());
        let dims = [rows.unwrap_or(SymDim::Unknown), SymDim::Fixed(self.targets)];
        cx.set_output(0, Some(self.ty), Some(SymDims::from_iter(dims)));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        self.check(x.element_type())?;
        with_float!(self.ty, T => self.run_as::<T>(cx, &x))
    }
}

impl TreeEnsemble {
    fn check(&self, ty: ElementType) -> Result<(), OpError> {
        match ty == self.ty {
            true => Ok(()),
            false => Err(OpError::WrongType {
                what: "input".into(),
                found: ty,
                expected: format!("{}, like nodes_splits", self.ty),
            }),
        }
    }
}
