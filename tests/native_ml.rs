//! Classical models: n-grams, label encoders and decision trees, in the modes that the cases of
//! the ONNX package leave out, and with attributes that make no sense. Values are those of ONNX
//! Runtime 1.31, but where a test says otherwise.
#![cfg(feature = "native")]

use std::sync::Arc;

use oxpipe::component::{ComponentError, ModelSource};
use oxpipe::native::tensor::Tensor;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{self, Model, Node};

const DOUBLE: i32 = 11;
const UINT8: i32 = 2;

/// The result of a node with the inputs `a`, `b`, ...
fn run(node: Node, ml_version: i64, inputs: &[Tensor]) -> Result<Tensor, ComponentError> {
    let mut model = Model::new()
        .ir_version(10)
        .opset("", 21)
        .opset("ai.onnx.ml", ml_version)
        .graph(|graph| graph.untyped_output("y"))
        .node(node);
    for (name, input) in ["a", "b"].iter().zip(inputs) {
        model = model.input(name, input.element_type().code(), "[...]");
    }
    let source = ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    };
    let mut session = NativeSession::load("", &source, &NativeOptions::default())?;
    let inputs = ["a", "b"].into_iter().zip(inputs.iter().map(Tensor::view));
    let mut outputs = session.run_tensors(&inputs.collect::<Vec<_>>(), &["y"])?;
    Ok(outputs.remove(0))
}

fn ints(values: &[i64]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).unwrap()
}

fn floats(values: &[f32]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).unwrap()
}

fn strings(values: &[&str]) -> Tensor {
    let owned = values.iter().map(|&value| value.to_owned()).collect();
    Tensor::from_strings(&[values.len()], owned).unwrap()
}

fn f32s(tensor: &Tensor) -> Vec<f32> {
    tensor.view().slice::<f32>().unwrap().to_vec()
}

fn i64s(tensor: &Tensor) -> Vec<i64> {
    tensor.view().slice::<i64>().unwrap().to_vec()
}

struct Grams {
    mode: &'static str,
    lengths: [i64; 2],
    skips: i64,
    counts: &'static [i64],
    indexes: &'static [i64],
    weights: &'static [f32],
}

const GRAMS: Grams = Grams {
    mode: "TFIDF",
    lengths: [1, 2],
    skips: 1,
    counts: &[0, 2],
    indexes: &[1, 0, 3],
    weights: &[1.0, 2.0, 3.0],
};

impl Grams {
    fn node(&self) -> Node {
        Node::new("TfIdfVectorizer", &["a"], &["y"])
            .string("mode", self.mode)
            .int("min_gram_length", self.lengths[0])
            .int("max_gram_length", self.lengths[1])
            .int("max_skip_count", self.skips)
            .ints("ngram_counts", self.counts)
            .ints("ngram_indexes", self.indexes)
            .floats("weights", self.weights)
    }

    fn of_ints(&self, pool: &[i64], row: &[i64]) -> Result<Vec<f32>, String> {
        let result = run(self.node().ints("pool_int64s", pool), 3, &[ints(row)]);
        result.map(|y| f32s(&y)).map_err(|error| error.to_string())
    }
}

#[test]
fn ngrams_are_weighted_by_mode() {
    let pool = [2, 3, 2, 3];
    let of = |mode| Grams { mode, ..GRAMS }.of_ints(&pool, &pool).unwrap();
    assert_eq!(of("TF"), [2.0, 2.0, 0.0, 2.0]);
    assert_eq!(of("IDF"), [2.0, 1.0, 0.0, 3.0]);
    assert_eq!(of("TFIDF"), [4.0, 2.0, 0.0, 6.0]);
}

#[test]
fn ngrams_skip_tokens() {
    let row = [5, 2, 3, 2, 3, 7, 2, 5, 3];
    let skipping = |skips| Grams { skips, ..GRAMS }.of_ints(&[2, 3, 2, 3], &row).unwrap();
    assert_eq!(skipping(3), [6.0, 3.0, 0.0, 12.0]);
    // In a row of nine nothing is more than eight apart, and every 2 before a 3 is counted once
    // (by hand: 3 + 2 + 1).
    assert_eq!(skipping(i64::MAX), [6.0, 3.0, 0.0, 18.0]);
    let trigrams = Grams {
        lengths: [2, 3],
        skips: 2,
        counts: &[0, 2, 6],
        indexes: &[0, 1, 2, 3, 4, 5],
        weights: &[0.5, 1.0, 0.25, 2.0, 3.0, 8.0],
        ..GRAMS
    };
    let pool = [2, 3, 2, 3, 3, 2, 5, 3, 3, 2, 3, 3];
    assert_eq!(
        trigrams.of_ints(&pool, &row).unwrap(),
        [0.0, 0.0, 1.0, 4.0, 3.0, 0.0]
    );
}

#[test]
fn ngrams_of_strings_and_of_no_tokens() {
    let node = || GRAMS.node().strings("pool_strings", &["a", "b", "b", "c"]);
    let row = strings(&["b", "a", "c", "b", "c"]);
    assert_eq!(f32s(&run(node(), 3, &[row]).unwrap()), [4.0, 1.0, 0.0, 6.0]);
    let empty = Tensor::from_strings(&[2, 0], Vec::new()).unwrap();
    let result = run(node(), 3, &[empty]).unwrap();
    assert_eq!((result.dims(), f32s(&result)), (&[2, 4][..], vec![0.0; 8]));
    let error = run(node(), 3, &[ints(&[1])]).unwrap_err().to_string();
    assert!(error.contains("like the pool"), "{error}");
}

#[test]
fn ngrams_that_make_no_sense_are_refused() {
    let cases = [
        (
            Grams {
                counts: &[2, 0],
                ..GRAMS
            },
            "ngram_counts",
        ),
        (
            Grams {
                counts: &[0, 99],
                ..GRAMS
            },
            "ngram_counts",
        ),
        (
            Grams {
                counts: &[0, 1],
                ..GRAMS
            },
            "ngram_counts",
        ),
        (
            Grams {
                counts: &[-1, 2],
                ..GRAMS
            },
            "ngram_counts",
        ),
        (
            Grams {
                counts: &[0, i64::MIN],
                ..GRAMS
            },
            "ngram_counts",
        ),
        (Grams { counts: &[], ..GRAMS }, "min_gram_length"),
        (
            Grams {
                indexes: &[1, -1, 3],
                ..GRAMS
            },
            "ngram_indexes",
        ),
        (
            Grams {
                indexes: &[1, i64::MAX, 3],
                ..GRAMS
            },
            "ngram_indexes",
        ),
        (
            Grams {
                indexes: &[1, 0],
                weights: &[],
                ..GRAMS
            },
            "ngram_indexes",
        ),
        (
            Grams {
                indexes: &[],
                weights: &[],
                ..GRAMS
            },
            "ngram_indexes",
        ),
        (
            Grams {
                weights: &[1.0],
                ..GRAMS
            },
            "weights",
        ),
        (Grams { mode: "tf", ..GRAMS }, "mode"),
        (
            Grams {
                lengths: [0, 2],
                ..GRAMS
            },
            "min_gram_length",
        ),
        (
            Grams {
                lengths: [2, 1],
                ..GRAMS
            },
            "max_gram_length",
        ),
        (
            Grams {
                lengths: [1, i64::MAX],
                ..GRAMS
            },
            "max_gram_length",
        ),
        (Grams { skips: -1, ..GRAMS }, "max_skip_count"),
        // A result that nobody has the memory for.
        (
            Grams {
                indexes: &[1, 0, 1 << 60],
                ..GRAMS
            },
            "cannot allocate",
        ),
    ];
    for (grams, reason) in cases {
        let error = grams.of_ints(&[2, 3, 2, 3], &[2, 3]).unwrap_err();
        assert!(error.contains(reason), "{reason}: {error}");
    }
    let error = GRAMS.of_ints(&[2, 2, 2, 3], &[2, 3]).unwrap_err();
    assert!(error.contains("twice"), "{error}");
    assert!(run(GRAMS.node(), 3, &[ints(&[1])]).is_err());
}

fn encoder() -> Node {
    Node::new("LabelEncoder", &["a"], &["y"]).domain("ai.onnx.ml")
}

#[test]
fn labels_of_version_1_go_both_ways() {
    let node = || encoder().strings("classes_strings", &["a", "b", "a"]);
    let result = run(node().int("default_int64", 7), 1, &[strings(&["a", "b", "c"])]);
    assert_eq!(i64s(&result.unwrap()), [2, 1, 7]);
    let result = run(node(), 1, &[ints(&[0, 1, 2, -1])]).unwrap();
    assert_eq!(result.view().strings().unwrap(), ["a", "b", "a", "_Unused"]);
}

#[test]
fn the_last_of_equal_labels_counts_from_version_4_on() {
    let node = || {
        encoder()
            .ints("keys_int64s", &[1, 2, 1])
            .ints("values_int64s", &[5, 6, 7])
    };
    let x = [ints(&[1, 2, 3])];
    assert_eq!(i64s(&run(node(), 2, &x).unwrap()), [5, 6, -1]);
    // The definition's words; ONNX Runtime takes the first.
    assert_eq!(i64s(&run(node(), 4, &x).unwrap()), [7, 6, -1]);
}

#[test]
fn floats_as_labels() {
    let node = || {
        encoder()
            .floats("keys_floats", &[0.0, f32::NAN])
            .ints("values_int64s", &[5, 6])
    };
    let x = [floats(&[0.0, -0.0, f32::NAN, -f32::NAN, 1.0])];
    assert_eq!(i64s(&run(node(), 4, &x).unwrap()), [5, 5, 6, 6, -1]);
    // Bits are compared, says the definition; ONNX Runtime compares values.
    assert_eq!(i64s(&run(node(), 2, &x).unwrap()), [5, -1, 6, -1, -1]);
}

#[test]
fn labels_of_every_type_and_their_defaults() {
    let (strings_of, ints_of) = (["a", "b"], [1_i64, 2]);
    let tensor = |ty, bytes: &[u8]| onnx_writer::Tensor::raw("", ty, &[2], bytes);
    let i16s = |tensor: Tensor| tensor.view().slice::<i16>().unwrap().to_vec();
    let (int16, int32) = (5, 6);
    let node = encoder()
        .strings("keys_strings", &strings_of)
        .tensor("values_tensor", tensor(int16, &[5, 0, 6, 0]));
    assert_eq!(i16s(run(node, 4, &[strings(&["q", "a"])]).unwrap()), [-1, 5]);
    let node = encoder()
        .tensor("keys_tensor", tensor(int16, &[5, 0, 6, 0]))
        .tensor("values_tensor", tensor(int32, &[1, 0, 0, 0, 2, 0, 0, 0]));
    let x = Tensor::from_slice(&[2], &[6_i16, 7]).unwrap();
    let result = run(node, 4, &[x]).unwrap();
    assert_eq!(result.view().slice::<i32>().unwrap(), [2, -1]);
    let doubles: Vec<u8> = [1.0_f64, 2.0]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let node = encoder()
        .tensor("keys_tensor", tensor(DOUBLE, &doubles))
        .tensor("values_tensor", tensor(DOUBLE, &doubles));
    let x = Tensor::from_slice(&[1, 2], &[2.0_f64, 3.0]).unwrap();
    let result = run(node, 4, &[x]).unwrap();
    let result = (result.dims(), result.view().slice::<f64>().unwrap());
    assert_eq!(result.0, [1, 2]);
    assert_eq!(
        result.1.iter().map(|y| y.to_bits()).collect::<Vec<_>>(),
        [2.0_f64.to_bits(), (-0.0_f64).to_bits()]
    );
    let node = encoder()
        .ints("keys_int64s", &ints_of)
        .floats("values_floats", &[5.0, 6.0])
        .tensor("default_tensor", onnx_writer::Tensor::floats("", &[1], &[9.0]));
    assert_eq!(f32s(&run(node, 4, &[ints(&[1, 3])]).unwrap()), [5.0, 9.0]);
}

#[test]
fn labels_that_make_no_sense_are_refused() {
    let keys = || encoder().ints("keys_int64s", &[1, 2]);
    let float = || onnx_writer::Tensor::floats("", &[1], &[9.0]);
    let bytes = || onnx_writer::Tensor::raw("", UINT8, &[2], &[1, 2]);
    for (node, reason) in [
        (keys(), "values_strings"),
        (keys().ints("values_int64s", &[1]), "2 keys and 1 values"),
        (
            keys()
                .ints("values_int64s", &[1, 2])
                .floats("values_floats", &[1.0, 2.0]),
            "only one",
        ),
        (
            keys()
                .ints("values_int64s", &[1, 2])
                .tensor("default_tensor", float()),
            "default_tensor",
        ),
        (keys().tensor("values_tensor", bytes()), "values_tensor"),
        (
            encoder()
                .tensor("keys_tensor", bytes())
                .ints("values_int64s", &[1, 2]),
            "key",
        ),
        (
            encoder()
                .strings("keys_strings", &["a"])
                .ints("values_int64s", &[1]),
            "like the keys",
        ),
    ] {
        let error = run(node, 4, &[ints(&[1])]).unwrap_err().to_string();
        assert!(error.contains(reason), "{reason}: {error}");
    }
}

#[test]
fn features_are_extracted_and_binarized() {
    let extract = |x: Tensor, indices: &[i64]| {
        let node = Node::new("ArrayFeatureExtractor", &["a", "b"], &["y"]).domain("ai.onnx.ml");
        run(node, 1, &[x, ints(indices)])
    };
    let matrix = || Tensor::from_slice(&[2, 3], &[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    let result = extract(matrix(), &[1, 2]).unwrap();
    assert_eq!(
        (result.dims(), f32s(&result)),
        (&[2, 2][..], vec![1.0, 2.0, 4.0, 5.0])
    );
    let result = extract(strings(&["a", "b", "c"]), &[1, 1]).unwrap();
    assert_eq!(
        (result.dims(), result.view().strings().unwrap()),
        (&[1, 2][..], &["b".into(), "b".into()][..])
    );
    assert!(extract(matrix(), &[3]).is_err() && extract(matrix(), &[-1]).is_err());
    let binarize = |threshold, x| {
        let node = Node::new("Binarizer", &["a"], &["y"]).domain("ai.onnx.ml");
        run(node.float("threshold", threshold), 1, &[x]).unwrap()
    };
    // By the definition; ONNX Runtime refuses NaN and integers.
    assert_eq!(
        f32s(&binarize(0.5, floats(&[f32::NAN, 1.0, -1.0, 0.5]))),
        [0.0, 1.0, 0.0, 0.0]
    );
    assert_eq!(
        i64s(&binarize(-0.5, ints(&[-1, 0, i64::MAX, i64::MIN]))),
        [0, 1, 1, 0]
    );
    let large = 1 << 53;
    assert_eq!(i64s(&binarize(large as f32, ints(&[large, large + 1]))), [0, 1]);
    assert_eq!(i64s(&binarize(f32::NAN, ints(&[i64::MAX]))), [0]);
}

/// Two nodes and three leaves; the second node is the true branch of the first.
#[derive(Clone)]
struct Trees {
    splits: Vec<f32>,
    modes: Vec<u8>,
    features: Vec<i64>,
    on_true: [Vec<i64>; 2],
    on_false: [Vec<i64>; 2],
    weights: Vec<f32>,
    leaf_targets: Vec<i64>,
    roots: Vec<i64>,
    targets: i64,
    missing: Vec<i64>,
    members: Option<Vec<f32>>,
    aggregate: i64,
    transform: i64,
}

impl Trees {
    fn new() -> Self {
        Trees {
            splits: vec![0.5, 0.3],
            modes: vec![0, 2],
            features: vec![0, 1],
            on_true: [vec![1, 0], vec![0, 1]],
            on_false: [vec![2, 1], vec![1, 1]],
            weights: vec![1.0, 2.0, 4.0],
            leaf_targets: vec![0, 1, 0],
            roots: vec![0],
            targets: 2,
            missing: Vec::new(),
            members: None,
            aggregate: 1,
            transform: 0,
        }
    }

    fn with(change: impl FnOnce(&mut Trees)) -> Self {
        let mut trees = Trees::new();
        change(&mut trees);
        trees
    }

    fn run(&self) -> Result<Vec<f32>, String> {
        let tensor = |values: &[f32]| onnx_writer::Tensor::floats("", &[values.len() as i64], values);
        let modes = onnx_writer::Tensor::raw("", UINT8, &[self.modes.len() as i64], &self.modes);
        let mut node = Node::new("TreeEnsemble", &["a"], &["y"])
            .domain("ai.onnx.ml")
            .tensor("nodes_splits", tensor(&self.splits))
            .tensor("nodes_modes", modes)
            .ints("nodes_featureids", &self.features)
            .ints("nodes_truenodeids", &self.on_true[0])
            .ints("nodes_trueleafs", &self.on_true[1])
            .ints("nodes_falsenodeids", &self.on_false[0])
            .ints("nodes_falseleafs", &self.on_false[1])
            .tensor("leaf_weights", tensor(&self.weights))
            .ints("leaf_targetids", &self.leaf_targets)
            .ints("tree_roots", &self.roots)
            .int("n_targets", self.targets)
            .ints("nodes_missing_value_tracks_true", &self.missing)
            .int("aggregate_function", self.aggregate)
            .int("post_transform", self.transform);
        if let Some(members) = &self.members {
            node = node.tensor("membership_values", tensor(members));
        }
        let nan = f32::NAN;
        let x = Tensor::from_slice(&[4, 2], &[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, nan, nan]).unwrap();
        let result = run(node, 5, &[x]);
        result.map(|y| f32s(&y)).map_err(|error| error.to_string())
    }
}

#[test]
fn trees_are_followed_and_their_leaves_aggregated() {
    let one = [0.0, 2.0, 1.0, 0.0, 4.0, 0.0, 4.0, 0.0];
    let aggregated = |aggregate, roots: &[i64]| {
        let trees = Trees::with(|trees| {
            (trees.aggregate, trees.roots) = (aggregate, roots.to_vec());
        });
        trees.run().unwrap()
    };
    for aggregate in 0..4 {
        assert_eq!(aggregated(aggregate, &[0]), one);
    }
    assert_eq!(aggregated(0, &[0, 1]), [0.0, 2.0, 1.0, 0.0, 2.0, 1.0, 2.0, 1.0]);
    assert_eq!(aggregated(1, &[0, 1]), [0.0, 4.0, 2.0, 0.0, 4.0, 2.0, 4.0, 2.0]);
    assert_eq!(aggregated(2, &[0, 1]), [0.0, 2.0, 1.0, 0.0, 4.0, 2.0, 4.0, 2.0]);
    let missing = Trees::with(|trees| trees.missing = vec![1, 1]);
    assert_eq!(missing.run().unwrap(), [0.0, 2.0, 1.0, 0.0, 4.0, 0.0, 1.0, 0.0]);
    let members = Trees::with(|trees| {
        (trees.modes, trees.members) = (vec![6, 6], Some(vec![0.0, 1.0, f32::NAN, 0.0, f32::NAN]));
    });
    assert_eq!(members.run().unwrap(), [1.0, 0.0, 0.0, 2.0, 1.0, 0.0, 4.0, 0.0]);
}

#[test]
fn scores_of_trees_are_transformed() {
    let transformed = |transform, targets| {
        let trees = Trees::with(|trees| (trees.transform, trees.targets) = (transform, targets));
        trees.run().unwrap()[..targets as usize].to_vec()
    };
    let close = |found: Vec<f32>, expected: &[f32]| {
        let pairs = found.iter().zip(expected);
        assert!(
            pairs.clone().all(|(a, b)| (a - b).abs() < 1e-6),
            "{found:?}, expected {expected:?}"
        );
    };
    // ONNX Runtime has these two under each other's number.
    close(transformed(1, 3), &[0.106_506_97, 0.786_986, 0.106_506_97]);
    close(transformed(2, 3), &[0.5, 0.880_797, 0.5]);
    close(transformed(3, 3), &[0.0, 1.0, 0.0]);
    assert!(transformed(4, 2)[0] == f32::NEG_INFINITY && transformed(4, 2)[1].is_nan());
}

#[test]
fn trees_that_are_none_are_refused() {
    type Change = fn(&mut Trees);
    let cases: &[(Change, &str)] = &[
        (|trees| trees.on_true = [vec![1, 0], vec![0, 0]], "below itself"),
        (|trees| trees.on_true = [vec![0, 0], vec![0, 1]], "below itself"),
        (|trees| trees.on_true[0][0] = 2, "nodes_truenodeids"),
        (|trees| trees.on_true[0][0] = -1, "nodes_truenodeids"),
        (|trees| trees.on_false[0][0] = 3, "nodes_falsenodeids"),
        (|trees| trees.on_false[0][0] = i64::MIN, "nodes_falsenodeids"),
        (|trees| trees.roots = vec![2], "tree_roots"),
        (|trees| trees.roots = vec![-1], "tree_roots"),
        (|trees| trees.leaf_targets[1] = 2, "leaf_targetids"),
        (|trees| trees.leaf_targets = vec![0], "leaf_targetids"),
        (|trees| trees.targets = -1, "n_targets"),
        (|trees| trees.targets = i64::MAX, "more than can be addressed"),
        (|trees| trees.features[0] = -1, "nodes_featureids"),
        (|trees| trees.features[0] = 2, "3 features or more"),
        (|trees| trees.features = vec![0], "nodes_featureids"),
        (|trees| trees.modes = vec![0, 7], "nodes_modes"),
        (|trees| trees.modes = vec![0], "nodes_modes"),
        (|trees| trees.modes = vec![0, 6], "membership_values"),
        (|trees| trees.members = Some(vec![1.0]), "membership_values"),
        (|trees| trees.missing = vec![1], "nodes_missing_value_tracks_true"),
        (|trees| trees.aggregate = 4, "aggregate_function"),
        (|trees| trees.transform = -1, "post_transform"),
    ];
    for (change, reason) in cases {
        let error = Trees::with(change).run().unwrap_err();
        assert!(error.contains(reason), "{reason}: {error}");
    }
    // A node that two ways lead to is no cycle.
    let shared = Trees::with(|trees| (trees.on_false[0][0], trees.on_false[1][0]) = (1, 0));
    assert!(shared.run().is_ok());
    // Neither are nodes that no root leads to.
    let unreached = Trees::with(|trees| {
        trees.on_true = [vec![0, 0], vec![0, 1]];
        trees.roots = vec![1];
    });
    assert!(unreached.run().is_ok());
}

#[test]
fn categories_are_mapped_both_ways_and_encoded() {
    let mapper = Node::new("CategoryMapper", &["a"], &["y"])
        .domain("ai.onnx.ml")
        .strings("cats_strings", &["a", "b", "c"])
        .ints("cats_int64s", &[4, 5, 4]);
    let y = run(mapper.clone(), 1, &[strings(&["a", "b", "z"])]).unwrap();
    assert_eq!(i64s(&y), [4, 5, -1]);
    let y = run(mapper, 1, &[ints(&[4, 5, 6])]).unwrap();
    assert_eq!(y.view().strings().unwrap(), ["c", "b", "_Unused"]);

    let encoder = Node::new("OneHotEncoder", &["a"], &["y"])
        .domain("ai.onnx.ml")
        .strings("cats_strings", &["b", "a"]);
    let y = run(encoder.clone(), 1, &[strings(&["a", "b", "c"])]).unwrap();
    assert_eq!(y.view().dims(), [3, 2]);
    assert_eq!(f32s(&y), [0.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    let error = run(encoder.int("zeros", 0), 1, &[strings(&["c"])]).unwrap_err();
    assert!(error.to_string().contains("none of the categories"), "{error}");
}

/// One tree: feature 0 at most 0.5, then a leaf each.
fn classifier(classes: &[&str], ids: &[i64]) -> Node {
    Node::new("TreeEnsembleClassifier", &["a"], &["y", "z"])
        .domain("ai.onnx.ml")
        .ints("nodes_treeids", &[0, 0, 0])
        .ints("nodes_nodeids", &[0, 1, 2])
        .ints("nodes_featureids", &[0, 0, 0])
        .floats("nodes_values", &[0.5, 0.0, 0.0])
        .strings("nodes_modes", &["BRANCH_LEQ", "LEAF", "LEAF"])
        .ints("nodes_truenodeids", &[1, 0, 0])
        .ints("nodes_falsenodeids", &[2, 0, 0])
        .ints("class_treeids", &[0, 0])
        .ints("class_nodeids", &[1, 2])
        .ints("class_ids", ids)
        .floats("class_weights", &[0.25, 0.75])
        .strings("classlabels_strings", classes)
}

#[test]
fn classes_of_trees_have_labels() {
    let x = Tensor::from_slice(&[2, 1], &[0.0f32, 1.0]).unwrap();
    let y = run(
        classifier(&["no", "yes"], &[0, 0]),
        3,
        &[Tensor::from_slice(&[2, 1], &[0.0f32, 1.0]).unwrap()],
    )
    .unwrap();
    assert_eq!(y.view().strings().unwrap(), ["no", "yes"]);
    let y = run(classifier(&["a", "b", "c"], &[2, 1]), 3, &[x]).unwrap();
    assert_eq!(y.view().strings().unwrap(), ["c", "b"]);
}

#[test]
fn named_trees_that_are_none_are_refused() {
    let x = || Tensor::from_slice(&[1, 1], &[0.0f32]).unwrap();
    let error = |node: Node| run(node, 3, &[x()]).unwrap_err().to_string();
    let found = error(classifier(&["a", "b"], &[0, 5]));
    assert!(found.contains("class_ids") && found.contains("has 5"), "{found}");
    let found = error(classifier(&[], &[0, 0]));
    assert!(found.contains("classlabels"), "{found}");
    let round = Node::new("TreeEnsembleRegressor", &["a"], &["y"])
        .domain("ai.onnx.ml")
        .ints("nodes_treeids", &[0, 0])
        .ints("nodes_nodeids", &[0, 1])
        .ints("nodes_featureids", &[0, 0])
        .floats("nodes_values", &[0.5, 0.0])
        .strings("nodes_modes", &["BRANCH_LEQ", "BRANCH_LT"])
        .ints("nodes_truenodeids", &[1, 0])
        .ints("nodes_falsenodeids", &[1, 0])
        .int("n_targets", 1);
    let found = error(round.clone());
    assert!(found.contains("is below itself"), "{found}");
    let found = error(round.ints("target_nodeids", &[1]));
    assert!(found.contains("target_nodeids"), "{found}");
}
