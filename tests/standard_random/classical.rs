//! Trees, linear models and scalings of ai.onnx.ml.

use oxpipe_test_support::onnx_writer::INT64;

use crate::harness::{Case, Numbers, Value};
use crate::{Choices, same_as_ort};

const TRANSFORMS: [&str; 4] = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"];

/// Rows of float, or of small integers.
fn rows(numbers: &mut Numbers, dims: &[usize]) -> Value {
    let count = dims.iter().product();
    match numbers.below(4) {
        0 => Value::i64s(dims, &numbers.ints(count, -3, 3)),
        1 => Value::i32s(
            dims,
            &numbers
                .ints(count, -3, 3)
                .iter()
                .map(|&x| x as i32)
                .collect::<Vec<_>>(),
        ),
        _ => numbers.value(dims, 2.0),
    }
}

/// Trees over three features, and where their leaves are.
#[derive(Default)]
struct Trees {
    trees: Vec<i64>,
    nodes: Vec<i64>,
    features: Vec<i64>,
    splits: Vec<f32>,
    modes: Vec<&'static str>,
    on_true: Vec<i64>,
    on_false: Vec<i64>,
    missing: Vec<i64>,
    leaves: Vec<(i64, i64)>,
}

impl Trees {
    fn grow(numbers: &mut Numbers) -> Trees {
        let mut trees = Trees::default();
        for tree in 0..numbers.between(1, 4) as i64 {
            trees.node(numbers, tree, 0, 3);
        }
        trees
    }

    /// Adds a node and what is below it; gives the first name that is free then.
    fn node(&mut self, numbers: &mut Numbers, tree: i64, name: i64, depth: usize) -> i64 {
        let at = self.nodes.len();
        self.trees.push(tree);
        self.nodes.push(name);
        self.features.push(numbers.below(3) as i64);
        // Some are values that rows of integers have.
        let split = if numbers.flag() {
            numbers.below(3) as f32
        } else {
            numbers.floats(1, 1.0)[0]
        };
        self.splits.push(split);
        self.missing.push(i64::from(numbers.flag()));
        self.on_true.push(0);
        self.on_false.push(0);
        if depth == 0 || numbers.below(4) == 0 {
            self.modes.push("LEAF");
            self.leaves.push((tree, name));
            return name + 1;
        }
        let modes = [
            "BRANCH_LEQ",
            "BRANCH_LT",
            "BRANCH_GTE",
            "BRANCH_GT",
            "BRANCH_EQ",
            "BRANCH_NEQ",
        ];
        self.modes.push(numbers.pick(&modes));
        self.on_true[at] = name + 1;
        let next = self.node(numbers, tree, name + 1, depth - 1);
        self.on_false[at] = next;
        self.node(numbers, tree, next, depth - 1)
    }

    fn attributes(&self, case: Case) -> Case {
        case.ints("nodes_treeids", &self.trees)
            .ints("nodes_nodeids", &self.nodes)
            .ints("nodes_featureids", &self.features)
            .floats("nodes_values", &self.splits)
            .strings("nodes_modes", &self.modes)
            .ints("nodes_truenodeids", &self.on_true)
            .ints("nodes_falsenodeids", &self.on_false)
            .ints("nodes_missing_value_tracks_true", &self.missing)
    }
}

#[test]
fn tree_ensemble_regressor() {
    same_as_ort(100, 120, 2e-5, |numbers| {
        let trees = Trees::grow(numbers);
        let targets = numbers.between(1, 3);
        let aggregate = numbers.pick(&["SUM", "AVERAGE", "MIN", "MAX"]);
        let base = numbers.flag();
        // ONNX Runtime gives no base value to a target without votes.
        let least = if base { targets } else { 1 };
        let (mut at_trees, mut at_nodes, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for &(tree, node) in &trees.leaves {
            // ONNX Runtime wants a target of every leaf.
            let first = numbers.below(targets);
            for more in 0..numbers.between(least, targets) {
                at_trees.push(tree);
                at_nodes.push(node);
                ids.push(((first + more) % targets) as i64);
            }
        }
        let dims = [numbers.between(1, 5), 3];
        let case =
            Case::classical("TreeEnsembleRegressor", numbers.pick(&[1, 3])).input(numbers.value(&dims, 2.0));
        let mut case = trees
            .attributes(case)
            .ints("target_treeids", &at_trees)
            .ints("target_nodeids", &at_nodes)
            .ints("target_ids", &ids)
            .floats("target_weights", &numbers.floats(ids.len(), 1.0))
            .int("n_targets", targets as i64)
            .string("aggregate_function", aggregate);
        if base {
            case = case.floats("base_values", &numbers.floats(targets, 1.0));
        }
        if targets > 1 {
            case = case.string("post_transform", numbers.pick(&TRANSFORMS));
        }
        Some(case.output())
    });
}

#[test]
fn tree_ensemble_classifier() {
    same_as_ort(101, 120, 2e-5, |numbers| {
        let trees = Trees::grow(numbers);
        let classes = numbers.between(2, 4);
        let positive = numbers.flag();
        let (mut at_trees, mut at_nodes, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for &(tree, node) in &trees.leaves {
            // Of two classes all weights are for the first one. (Where both have some, ONNX Runtime's
            // label is not that of the larger score.)
            let first = numbers.below(classes);
            for more in 0..if classes == 2 {
                1
            } else {
                numbers.between(1, classes)
            } {
                at_trees.push(tree);
                at_nodes.push(node);
                ids.push(if classes == 2 {
                    0
                } else {
                    ((first + more) % classes) as i64
                });
            }
        }
        let mut weights = numbers.floats(ids.len(), 1.0);
        if positive {
            weights.iter_mut().for_each(|x| *x = x.abs());
        }
        let dims = [numbers.between(1, 5), 3];
        let case =
            Case::classical("TreeEnsembleClassifier", numbers.pick(&[1, 3])).input(rows(numbers, &dims));
        let labels: Vec<i64> = (0..classes as i64).map(|class| 7 * class - 3).collect();
        let mut case = trees
            .attributes(case)
            .ints("class_treeids", &at_trees)
            .ints("class_nodeids", &at_nodes)
            .ints("class_ids", &ids)
            .floats("class_weights", &weights)
            .ints("classlabels_int64s", &labels)
            .string("post_transform", numbers.pick(&TRANSFORMS));
        if numbers.flag() {
            let count = if classes == 2 { 1 } else { classes };
            case = case.floats("base_values", &numbers.floats(count, 0.5));
        }
        Some(case.output_of(INT64).output())
    });
}

#[test]
fn linear_models() {
    same_as_ort(102, 120, 2e-5, |numbers| {
        let (n, features) = (numbers.between(1, 5), numbers.between(1, 4));
        let x = rows(numbers, &[n, features]);
        let transform = numbers.pick(&TRANSFORMS);
        if numbers.flag() {
            let targets = numbers.between(1, 3);
            let mut case = Case::classical("LinearRegressor", 1)
                .input(numbers.value(&[n, features], 2.0))
                .int("targets", targets as i64)
                .floats("coefficients", &numbers.floats(targets * features, 1.0));
            if numbers.flag() {
                case = case.floats("intercepts", &numbers.floats(targets, 1.0));
            }
            return Some(case.output());
        }
        let classes = numbers.between(2, 4);
        let rows = if classes == 2 && numbers.flag() {
            1
        } else {
            classes
        };
        let labels: Vec<i64> = (0..classes as i64).map(|class| 5 - class).collect();
        let case = Case::classical("LinearClassifier", 1)
            .input(x)
            .floats("coefficients", &numbers.floats(rows * features, 1.0))
            .floats("intercepts", &numbers.floats(rows, 1.0))
            .ints("classlabels_ints", &labels)
            .string("post_transform", transform);
        Some(case.output_of(INT64).output())
    });
}

#[test]
fn scalings() {
    same_as_ort(103, 120, 1e-6, |numbers| {
        let (n, features) = (numbers.between(1, 4), numbers.between(1, 4));
        let x = rows(numbers, &[n, features]);
        let count = if numbers.flag() { 1 } else { features };
        Some(match numbers.below(4) {
            0 => Case::classical("Scaler", 1)
                .input(x)
                .floats("offset", &numbers.floats(count, 1.0))
                .floats("scale", &numbers.floats(count, 2.0))
                .output(),
            1 => Case::classical("Normalizer", 1)
                .input(x)
                .string("norm", numbers.pick(&["MAX", "L1", "L2"]))
                .output(),
            2 => {
                let values = numbers.ints(n * features, -1, 1);
                let imputed = numbers.ints(count, 3, 9);
                let case = Case::classical("Imputer", 1);
                match numbers.flag() {
                    true => case
                        .input(Value::i64s(&[n, features], &values))
                        .ints("imputed_value_int64s", &imputed)
                        .int("replaced_value_int64", -1)
                        .output_of(INT64),
                    false => {
                        let values = values
                            .iter()
                            .map(|&x| if x == 0 { f32::NAN } else { x as f32 })
                            .collect();
                        case.input(Value::floats(&[n, features], values))
                            .floats(
                                "imputed_value_floats",
                                &imputed.iter().map(|&x| x as f32).collect::<Vec<_>>(),
                            )
                            .float("replaced_value_float", f32::NAN)
                            .output()
                    }
                }
            }
            _ => {
                let widths = numbers.ints(2, 1, 4);
                let other = numbers.value(&[n, 2], 1.0);
                Case::classical("FeatureVectorizer", 1)
                    .input(numbers.value(&[n, features], 1.0))
                    .input(other)
                    .ints("inputdimensions", &widths)
                    .output()
            }
        })
    });
}

#[test]
fn one_hot_encoder() {
    same_as_ort(104, 30, 0.0, |numbers| {
        let rank = numbers.between(1, 2);
        let dims = numbers.dims(rank, 1, 4);
        let values = numbers.ints(dims.iter().product(), 0, 5);
        let x = match numbers.below(2) {
            0 => Value::i64s(&dims, &values),
            _ => Value::floats(&dims, values.iter().map(|&x| x as f32 + 0.5).collect()),
        };
        Some(
            Case::classical("OneHotEncoder", 1)
                .input(x)
                .ints("cats_int64s", &[4, 1, 3])
                .output(),
        )
    });
}
