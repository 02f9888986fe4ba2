//! Every type that a definition allows for an input is one that the runtime takes: types.txt
//! lists them, as list_types.py reads them from the onnx package.

use std::collections::BTreeMap;

use oxpipe::native::arity;
use oxpipe::native::element::ElementType;
use oxpipe::native::registry::{OPERATORS, OperatorEntry};
use oxpipe::native::tensor::Tensor;
use oxpipe_test_support::onnx_writer::Node;

use crate::{INPUTS, Input, OUTPUTS, Random, load, model_of, sound};

const TYPES: &str = include_str!("types.txt");

/// What is listed there and not taken, with the reason.
const NOT_TAKEN: &[(&str, &[&str], &str)] = &[
    (
        "Col2Im",
        &["bool", "complex64", "complex128", "string"],
        "it sums what overlaps, which is not said for these",
    ),
    (
        "QLinearMatMul",
        &["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"],
        "floats times floats only, and the node tried has integers on the other side",
    ),
];

#[test]
fn every_type_of_the_definitions_is_taken() {
    let mut refused = BTreeMap::new();
    let mut tried = 0;
    for line in TYPES.lines() {
        let mut words = line.split(' ');
        let (name, version) = (words.next().unwrap(), words.next().unwrap());
        // Models of older versions are not run; their definitions may still be in force.
        let version = version.parse::<i64>().unwrap().max(7);
        let inputs: Vec<(&str, Vec<ElementType>)> = words.map(input_types).collect();
        if inputs.iter().any(|(_, types)| types.is_empty()) {
            continue; // Sequences and optionals.
        }
        let entry = OPERATORS
            .iter()
            .find(|entry| entry.domain.is_empty() && entry.op_type == name)
            .unwrap_or_else(|| panic!("types.txt has {name}, the registry has not"));
        let mut parameters: Vec<&str> = inputs.iter().map(|input| input.0).collect();
        parameters.sort_unstable();
        parameters.dedup();
        for parameter in parameters {
            let (_, types) = inputs.iter().find(|input| input.0 == parameter).unwrap();
            for &ty in types {
                let expected = |(operator, types, _): &&(&str, &[&str], &str)| {
                    *operator == name && types.contains(&ty.name())
                };
                if NOT_TAKEN.iter().find(expected).is_some() {
                    continue;
                }
                tried += 1;
                if let Err(message) = try_type(entry, version, &inputs, parameter, ty) {
                    let types: &mut Vec<String> = refused.entry((name, version, message)).or_default();
                    types.push(format!("{parameter}={ty}"));
                }
            }
        }
    }
    let lines = refused
        .iter()
        .map(|((name, version, message), types)| format!("{name} {version}: {}: {message}", types.join(" ")));
    let lines: Vec<String> = lines.collect();
    assert!(
        lines.is_empty(),
        "of {tried} types refused:\n{}",
        lines.join("\n")
    );
}

/// `T:float,double`
fn input_types(word: &str) -> (&str, Vec<ElementType>) {
    let (parameter, types) = word.split_once(':').unwrap();
    let known = |name: &str| ElementType::ALL.into_iter().find(|ty| ty.name() == name);
    (parameter, types.split(',').filter_map(known).collect())
}

/// Whether a node is refused for the type of its inputs of this parameter. (What else is wrong
/// with a node that was made for other versions is no matter.)
fn try_type(
    entry: &OperatorEntry,
    version: i64,
    inputs: &[(&str, Vec<ElementType>)],
    parameter: &str,
    ty: ElementType,
) -> Result<(), String> {
    let mut outcome = Ok(());
    // A node that fits the version is among these.
    for seed in 0..12 {
        let mut random = Random(seed);
        let (made, attributes) = sound::node_of(entry.op_type, &mut random).unwrap_or_else(|| {
            let input = |_: &_| Some(Input::new(ty, &[2, 3]));
            (inputs.iter().map(input).collect(), Vec::new())
        });
        let mut model = model_of(entry, version);
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for (index, input) in made.iter().enumerate() {
            let Some(input) = input else {
                names.push("");
                continue;
            };
            let name = INPUTS[index];
            names.push(name);
            let (own, allowed) = inputs.get(index.min(inputs.len().max(1) - 1)).unwrap();
            let ty = match *own == parameter {
                true => ty,
                false if allowed.contains(&input.ty) => input.ty,
                false => allowed.first().copied().unwrap_or(input.ty),
            };
            let value = match (&input.list, ty) {
                (Some(list), ElementType::Int64) => Tensor::from_slice(&input.dims, list).unwrap(),
                _ => zeros(ty, &input.dims),
            };
            model = model.input(name, ty.code(), "[...]");
            values.push((name, value));
        }
        let [_, (outputs, _)] = arity::find("", entry.op_type, version).unwrap().counts();
        let mut node = Node::new(entry.op_type, &names, &OUTPUTS[..outputs.max(1)]);
        for attribute in attributes {
            node = sound::with_attribute(node, attribute);
        }
        let model = model.graph(|graph| graph.untyped_output("y")).node(node);
        let inputs: Vec<_> = values.iter().map(|(name, value)| (*name, value.view())).collect();
        match load(model).and_then(|mut session| session.run_tensors(&inputs, &["y"])) {
            Ok(_) => return Ok(()),
            Err(error) => {
                let error = error.to_string();
                if error.contains(&format!("is {ty}, expected")) {
                    outcome = Err(error);
                }
            }
        }
    }
    outcome
}

/// Right as indices, axes and sizes of most operators, too.
fn zeros(ty: ElementType, dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    match ty.size() {
        Some(size) => Tensor::from_raw(ty, dims, &vec![0; count * size]).unwrap(),
        None => Tensor::from_strings(dims, vec![String::new(); count]).unwrap(),
    }
}
