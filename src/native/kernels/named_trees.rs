//! TreeEnsembleRegressor and TreeEnsembleClassifier: decision trees whose nodes have names, a tree's
//! number and their own in it.                                                    ai.onnx.ml 1, 3
//!
//!   x [n, features] of float, double, int64 or int32
//!
//!   Regressor    y [n, n_targets]: the sum, average, smallest or largest of the weights that the
//!                leaves have for a target, plus `base_values`, then `post_transform`
//!   Classifier   scores [n, classes]: the sum plus `base_values`, then `post_transform`;
//!                labels [n]: the class of the largest sum among those that have any
//!
//! Nodes are followed as in `tree_ensemble`. The first node of a tree is its root.
//!
//! Of two classes of which all weights are for the first one, the definition says nothing; as in
//! ONNX Runtime it is the score of the second: s is above 0, or 1/2 if no weight is below zero, for
//! the second class, and scores are (-s, s) or (1 - s, s), with LOGISTIC that of (-s, s). If all
//! weights are for the second one, its label needs the same, and its scores are (0, s).

use std::collections::HashMap;

use super::model_input::{Features, Labels, check_type, infer_rows, rows, top_class};
use super::post_transform::{Transform, logistic};
use super::tree_ensemble::{
    Aggregate, Branch, Leaf, Test, TreeNode, Trees, Vote, check_count, floats, position,
};
use super::{Built, required_attribute, wrong_attribute};
use crate::native::element::ElementType;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::working::Working;

#[derive(Debug)]
struct Ensemble {
    trees: Trees,
    targets: usize,
    aggregate: Aggregate,
    /// One for each target, or none.
    base: Vec<f64>,
    transform: Transform,
    classes: Option<Classes>,
}

#[derive(Debug)]
struct Classes {
    labels: Labels,
    /// Two classes with weights for one of them only.
    single: Option<Single>,
}

#[derive(Clone, Copy, Debug)]
struct Single {
    second: bool,
    threshold: f64,
}

pub(in crate::native) fn tree_ensemble_regressor(node: &NodeInfo<'_>) -> Built {
    let given = required_attribute("n_targets", node.int("n_targets")?)?;
    let targets = usize::try_from(given)
        .map_err(|_| wrong_attribute("n_targets", format!("is {given}, expected 0 or more")))?;
    let aggregate = match node.string_or("aggregate_function", "SUM")? {
        "AVERAGE" => Aggregate::Average,
        "SUM" => Aggregate::Sum,
        "MIN" => Aggregate::Min,
        "MAX" => Aggregate::Max,
        other => {
            return Err(wrong_attribute(
                "aggregate_function",
                format!("is \"{other}\", expected AVERAGE, SUM, MIN or MAX"),
            ));
        }
    };
    let names = ["target_treeids", "target_nodeids", "target_ids", "target_weights"];
    let base = numbers(node, "base_values")?;
    if !base.is_empty() {
        check_count("base_values", base.len(), targets)?;
    }
    Ok(Box::new(Ensemble {
        trees: trees(node, votes(node, names, targets)?)?,
        targets,
        aggregate,
        base,
        transform: Transform::named(node)?,
        classes: None,
    }))
}

pub(in crate::native) fn tree_ensemble_classifier(node: &NodeInfo<'_>) -> Built {
    let labels = Labels::new(node, "classlabels_int64s")?;
    let targets = labels.len();
    let names = ["class_treeids", "class_nodeids", "class_ids", "class_weights"];
    let votes = votes(node, names, targets)?;
    let mut base = numbers(node, "base_values")?;
    let transform = Transform::named(node)?;
    let all = || votes.values().flatten();
    let only = |target: usize| targets == 2 && all().all(|vote| vote.target == target);
    let single = match base.len() {
        0 | 1 if only(0) => Some(false),
        0 if only(1) => Some(true),
        _ => None,
    };
    if single == Some(false) && transform == Transform::Probit {
        return Err(OpError::Unsupported("PROBIT of a single score".into()));
    }
    let single = single.map(|second| Single {
        second,
        threshold: if all().all(|vote| vote.weight >= 0.0) {
            0.5
        } else {
            0.0
        },
    });
    if single.is_some() {
        base.resize(base.len().min(1) * 2, 0.0);
    }
    if !base.is_empty() {
        check_count("base_values", base.len(), targets)?;
    }
    Ok(Box::new(Ensemble {
        trees: trees(node, votes)?,
        targets,
        aggregate: Aggregate::Sum,
        base,
        transform,
        classes: Some(Classes { labels, single }),
    }))
}

/// Floats, or the same as a tensor of doubles.
fn numbers(node: &NodeInfo<'_>, name: &'static str) -> Result<Vec<f64>, OpError> {
    let as_tensor = format!("{name}_as_tensor");
    match (node.floats(name)?, node.tensor(&as_tensor)?) {
        (_, Some(tensor)) => floats(&as_tensor, tensor, tensor.element_type()),
        (Some(values), None) => Ok(values.iter().map(|&value| value.into()).collect()),
        (None, None) => Ok(Vec::new()),
    }
}

/// The tree of a node and its name there.
type Name = (i64, i64);

/// The votes of each leaf.
fn votes(
    node: &NodeInfo<'_>,
    [trees, nodes, ids, weights]: [&'static str; 4],
    targets: usize,
) -> Result<HashMap<Name, Leaf>, OpError> {
    let ints = |name: &'static str| Ok::<_, OpError>(node.ints(name)?.unwrap_or_default());
    let weights_of = numbers(node, weights)?;
    let (trees_of, nodes_of, ids_of) = (ints(trees)?, ints(nodes)?, ints(ids)?);
    for (name, found) in [(trees, trees_of), (nodes, nodes_of), (ids, ids_of)] {
        check_count(name, found.len(), weights_of.len())?;
    }
    let mut votes: HashMap<Name, Leaf> = HashMap::new();
    for (((&tree, &node), &id), weight) in trees_of.iter().zip(nodes_of).zip(ids_of).zip(weights_of) {
        let target = position(ids, id, targets)?;
        votes
            .entry((tree, node))
            .or_default()
            .push(Vote { target, weight });
    }
    Ok(votes)
}

fn trees(node: &NodeInfo<'_>, mut votes: HashMap<Name, Leaf>) -> Result<Trees, OpError> {
    // How often a node is visited says nothing about results.
    node.floats("nodes_hitrates")?;
    node.tensor("nodes_hitrates_as_tensor")?;
    let modes = node.strings("nodes_modes")?.unwrap_or_default();
    let ints = |name: &'static str| {
        let values = node.ints(name)?.unwrap_or_default();
        check_count(name, values.len(), modes.len())?;
        Ok::<_, OpError>(values)
    };
    let (tree_ids, node_ids) = (ints("nodes_treeids")?, ints("nodes_nodeids")?);
    let features = ints("nodes_featureids")?;
    let (on_true, on_false) = (ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?);
    let missing = node.ints("nodes_missing_value_tracks_true")?.unwrap_or_default();
    if !missing.is_empty() {
        check_count("nodes_missing_value_tracks_true", missing.len(), modes.len())?;
    }
    let splits = numbers(node, "nodes_values")?;
    check_count("nodes_values", splits.len(), modes.len())?;

    let names = || tree_ids.iter().copied().zip(node_ids.iter().copied());
    let (mut branches, mut leaves, mut roots) = (HashMap::new(), Vec::new(), Vec::new());
    let mut tests = 0;
    let mut seen_trees = std::collections::HashSet::new();
    for (name, mode) in names().zip(&modes) {
        let branch = match *mode {
            "LEAF" => {
                leaves.push(votes.remove(&name).unwrap_or_default());
                Branch::Leaf(leaves.len() - 1)
            }
            _ => {
                tests += 1;
                Branch::Node(tests - 1)
            }
        };
        if branches.insert(name, branch).is_some() {
            return Err(wrong_attribute(
                "nodes_nodeids",
                format!("has node {} of tree {} twice", name.1, name.0),
            ));
        }
        if seen_trees.insert(name.0) {
            roots.push(branch);
        }
    }
    if let Some(name) = votes.keys().next() {
        return Err(OpError::Message(format!(
            "weights of node {} of tree {}, which is no leaf",
            name.1, name.0
        )));
    }
    let mut nodes = Vec::with_capacity(tests);
    for (at, (name, mode)) in names().zip(&modes).enumerate() {
        let split = splits.get(at).copied().unwrap_or_default();
        let test = match *mode {
            "LEAF" => continue,
            "BRANCH_LEQ" => Test::AtMost(split),
            "BRANCH_LT" => Test::Below(split),
            "BRANCH_GTE" => Test::AtLeast(split),
            "BRANCH_GT" => Test::Above(split),
            "BRANCH_EQ" => Test::Equal(split),
            "BRANCH_NEQ" => Test::NotEqual(split),
            other => return Err(wrong_attribute("nodes_modes", format!("has \"{other}\""))),
        };
        let branch = |attribute: &str, ids: &[i64]| {
            let id = ids.get(at).copied().unwrap_or_default();
            branches.get(&(name.0, id)).copied().ok_or_else(|| {
                wrong_attribute(
                    attribute,
                    format!("has {id}, which is no node of tree {}", name.0),
                )
            })
        };
        nodes.push(TreeNode {
            feature: position(
                "nodes_featureids",
                features.get(at).copied().unwrap_or_default(),
                isize::MAX as usize,
            )?,
            test,
            missing_is_true: missing.get(at).is_some_and(|&tracks| tracks != 0),
            on_true: branch("nodes_truenodeids", on_true)?,
            on_false: branch("nodes_falsenodeids", on_false)?,
        });
    }
    Trees::new(nodes, leaves, roots)
}

impl Operator for Ensemble {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        if let Some(ty) = cx.input(0).and_then(|fact| fact.ty) {
            check_type(ty)?;
        }
        match &self.classes {
            None => infer_rows(cx, 0, ElementType::Float32, Some(self.targets)),
            Some(classes) => {
                infer_rows(cx, 0, classes.labels.element_type(), None);
                infer_rows(cx, 1, ElementType::Float32, Some(self.targets));
            }
        }
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let (rows, features) = rows(&x)?;
        self.trees.check_features(features)?;
        let x = Features::new(&x)?;
        let (scores, voted) = cx
            .scratch::<f64>(self.targets.saturating_mul(2))?
            .split_at_mut(self.targets);
        let at = if self.classes.is_some() { 1 } else { 0 };
        let mut y = match cx.output_used(at) {
            true => Some(cx.output::<f32>(at, &[rows, self.targets])?),
            false => None,
        };
        let mut chosen = Working::with_room(rows)?;
        for row in 0..rows {
            let feature = |at: usize| x.at(row * features + at);
            self.trees.score(self.aggregate, &feature, scores, voted);
            for (score, base) in scores.iter_mut().zip(&self.base) {
                *score += base;
            }
            chosen.push(self.finish(scores, voted));
            if let Some(y) = &mut y {
                y.extend(scores.iter().map(|&score| score as f32))?;
            }
        }
        match &self.classes {
            Some(classes) => classes.labels.write(cx, &chosen),
            None => Ok(()),
        }
    }
}

impl Ensemble {
    /// The class of these sums, which become scores.
    fn finish(&self, scores: &mut [f64], voted: &[f64]) -> usize {
        let single = self.classes.as_ref().and_then(|classes| classes.single);
        let (Some(single), [first, second]) = (single, &mut *scores) else {
            let class = match self.base.is_empty() {
                false => top_class(scores),
                // A class that nothing votes for is none to choose, unless there is no other.
                true => {
                    let none = f64::NEG_INFINITY;
                    let votes = scores.iter().zip(voted);
                    let best = votes.enumerate().fold((none, 0), |best, (at, (&score, &voted))| {
                        match score > best.0 && voted > 0.0 {
                            true => (score, at),
                            false => best,
                        }
                    });
                    best.1
                }
            };
            self.transform.apply(scores);
            return class;
        };
        let score = if single.second { *second } else { *first };
        if single.second {
            self.transform.apply(scores);
        } else if self.transform == Transform::Logistic {
            (*first, *second) = (logistic(-score), logistic(score));
        } else {
            let other = if single.threshold > 0.0 {
                1.0 - score
            } else {
                -score
            };
            (*first, *second) = (other, score);
        }
        usize::from(score > single.threshold)
    }
}
