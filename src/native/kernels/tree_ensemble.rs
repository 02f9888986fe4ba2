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
use super::{Built, required_attribute, wrong_attribute};
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Tensor, TensorRef};

#[derive(Debug)]
struct TreeEnsemble {
    ty: ElementType,
    /// They form no cycles.
    nodes: Vec<TreeNode>,
    leaves: Vec<Leaf>,
    roots: Vec<usize>,
    /// Features that the nodes look at: one more than the last one.
    features: usize,
    targets: usize,
    aggregate: Aggregate,
    transform: Transform,
}

#[derive(Debug)]
struct TreeNode {
    feature: usize,
    test: Test,
    missing_is_true: bool,
    on_true: Branch,
    on_false: Branch,
}

#[derive(Debug)]
enum Test {
    AtMost(f64),
    Below(f64),
    AtLeast(f64),
    Above(f64),
    Equal(f64),
    NotEqual(f64),
    Member(Vec<f64>),
}

#[derive(Clone, Copy, Debug)]
enum Branch {
    Node(usize),
    Leaf(usize),
}

#[derive(Debug)]
struct Leaf {
    target: usize,
    weight: f64,
}

#[derive(Clone, Copy, Debug)]
enum Aggregate {
    Average,
    Sum,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug)]
enum Transform {
    None,
    Softmax,
    Logistic,
    SoftmaxZero,
    Probit,
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
    let roots: Vec<usize> = given
        .iter()
        .map(|&root| position("tree_roots", root, nodes.len()))
        .collect::<Result<_, _>>()?;
    check_trees(&nodes, &roots)?;
    Ok(Box::new(TreeEnsemble {
        ty,
        features: nodes.iter().map(|node| node.feature + 1).max().unwrap_or(0),
        nodes,
        leaves,
        roots,
        targets,
        aggregate,
        transform,
    }))
}

/// An element of an attribute that is a position among `count`.
fn position(name: &str, given: i64, count: usize) -> Result<usize, OpError> {
    let fits = usize::try_from(given).ok().filter(|&at| at < count);
    fits.ok_or_else(|| {
        wrong_attribute(
            name,
            format!("has {given}, expected 0 or more and less than {count}"),
        )
    })
}

/// The floats of a tensor of this type.
fn floats(name: &str, tensor: &Tensor, ty: ElementType) -> Result<Vec<f64>, OpError> {
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

fn check_count(name: &str, found: usize, expected: usize) -> Result<(), OpError> {
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
        Ok(Leaf { target, weight })
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
fn check_trees(nodes: &[TreeNode], roots: &[usize]) -> Result<(), OpError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Above,
        Done,
    }
    let mut seen = vec![Seen::No; nodes.len()];
    // Nodes on the way down, and how many of their branches have been looked at.
    let mut way: Vec<(usize, usize)> = Vec::new();
    for &root in roots {
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

impl TreeEnsemble {
    /// The leaf of a tree for a row of enough features.
    fn leaf<T: Float>(&self, root: usize, row: &[T]) -> Option<&Leaf> {
        let mut at = root;
        loop {
            let node = self.nodes.get(at)?;
            let x = row.get(node.feature)?.widen().to_f64();
            let branch = match node.test.holds(x) || node.missing_is_true && x.is_nan() {
                true => node.on_true,
                false => node.on_false,
            };
            match branch {
                Branch::Node(next) => at = next,
                Branch::Leaf(leaf) => return self.leaves.get(leaf),
            }
        }
    }

    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let &[rows, features] = x.dims() else {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: x.dims().into(),
                expected: "[n, features]".into(),
            });
        };
        if features < self.features {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: x.dims().into(),
                expected: format!("{} features or more, which the nodes look at", self.features),
            });
        }
        let y = cx.output::<T>(0, &[rows, self.targets])?.into_mut();
        // A row without targets has no scores, a row without features no nodes.
        let (scores, voted) = cx
            .scratch::<f64>(self.targets.saturating_mul(2))?
            .split_at_mut(self.targets);
        let x = x.slice::<T>()?;
        for (row, y) in y.chunks_exact_mut(self.targets.max(1)).enumerate() {
            scores.fill(0.0);
            voted.fill(0.0);
            let x = x.get(row * features..).and_then(|rest| rest.get(..features));
            for leaf in self.roots.iter().filter_map(|&root| self.leaf(root, x?)) {
                let (Some(score), Some(voted)) = (scores.get_mut(leaf.target), voted.get_mut(leaf.target))
                else {
                    continue;
                };
                *score = match self.aggregate {
                    _ if *voted == 0.0 => leaf.weight,
                    Aggregate::Average | Aggregate::Sum => *score + leaf.weight,
                    Aggregate::Min => Scalar::min(*score, leaf.weight),
                    Aggregate::Max => Scalar::max(*score, leaf.weight),
                };
                *voted = 1.0;
            }
            if let Aggregate::Average = self.aggregate {
                let trees = self.roots.len().max(1) as f64;
                scores.iter_mut().for_each(|score| *score /= trees);
            }
            self.transform.apply(scores);
            for (y, &score) in y.iter_mut().zip(&*scores) {
                *y = T::narrow(T::Wide::from_f64(score));
            }
        }
        Ok(())
    }
}

impl Transform {
    fn apply(self, scores: &mut [f64]) {
        match self {
            Transform::None => {}
            Transform::Softmax => softmax(scores, |_| true),
            Transform::SoftmaxZero => softmax(scores, |score| score != 0.0),
            Transform::Logistic => scores
                .iter_mut()
                .for_each(|score| *score = 1.0 / (1.0 + (-*score).exp())),
            Transform::Probit => scores.iter_mut().for_each(|score| *score = probit(*score)),
        }
    }
}

/// Over the scores that count; the others stay.
fn softmax(scores: &mut [f64], counts: impl Fn(f64) -> bool) {
    let counted = || scores.iter().copied().filter(|&score| counts(score));
    let largest = counted().fold(f64::NEG_INFINITY, Scalar::max);
    let total: f64 = counted().map(|score| (score - largest).exp()).sum();
    for score in scores.iter_mut().filter(|score| counts(**score)) {
        *score = (*score - largest).exp() / total;
    }
}

/// The z that a normal variable is at most with probability p: NaN outside [0, 1].
///
/// Solves erfc(-z / sqrt 2) / 2 = p for the lower half by Halley's method, from a start
/// (Winitzki's formula for the inverse of erf) that is right to two or three digits; each step
/// triples them.
fn probit(p: f64) -> f64 {
    let lower = p.min(1.0 - p);
    let z = match lower {
        p if p > 0.0 => {
            const A: f64 = 0.147;
            let log = (4.0 * p * (1.0 - p)).ln();
            let half = 2.0 / (std::f64::consts::PI * A) + log / 2.0;
            let mut z = -(2.0 * ((half * half - log / A).sqrt() - half)).max(0.0).sqrt();
            for _ in 0..4 {
                let error = 0.5 * libm::erfc(-z * std::f64::consts::FRAC_1_SQRT_2) - p;
                // e^(z^2 / 2) in two factors: it alone may be more than an f64 holds.
                let root = (z * z / 4.0).exp();
                let step = error * root * (2.0 * std::f64::consts::PI).sqrt() * root;
                z -= step / (1.0 + z * step / 2.0);
            }
            z
        }
        0.0 => f64::NEG_INFINITY,
        _ => f64::NAN,
    };
    if p > 0.5 { -z } else { z }
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

#[cfg(test)]
mod tests {
    use super::probit;

    #[test]
    fn probit_inverts_the_normal_distribution() {
        // Tabulated quantiles.
        for (p, z) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.841_344_746_068_542_9, 1.0),
            (0.001, -3.090_232_306_167_813_5),
            (1e-10, -6.361_340_902_404_056),
        ] {
            assert!((probit(p) - z).abs() < 1e-12, "{p}: {}", probit(p));
        }
        assert_eq!(probit(0.0), f64::NEG_INFINITY);
        assert_eq!(probit(1.0), f64::INFINITY);
        assert!(probit(1.5).is_nan() && probit(-0.5).is_nan() && probit(f64::NAN).is_nan());
    }
}
