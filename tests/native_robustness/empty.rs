//! Tensors without elements, but with dims of any size: nothing goes over what is not there for as long
//! as there would be much of it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use oxpipe::component::{
    ComponentErrorKind, ComponentSession, ComponentTensor, DataType, Input as Given, Output, RunControl,
};
use oxpipe::native::element::ElementType;
use oxpipe::native::registry::OPERATORS;
use oxpipe_test_support::cpu_time::cpu_time;
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node};

use crate::{INPUTS, Input, OUTPUTS, Random, bytes_of, load, model_of, opset, sound};

/// A dim that loops would notice, of tensors that are accepted.
const LARGE: usize = 1 << 30;

/// What a run may take that is to end after some milliseconds.
const AT_MOST: Duration = Duration::from_secs(1);

/// The seam's type.
fn data_type(ty: ElementType) -> Option<DataType> {
    use DataType as D;
    [D::Float32, D::Int64, D::Int32, D::Uint8, D::Int8, D::Bool]
        .into_iter()
        .find(|&found| ElementType::from(found) == ty)
}

/// Other sizes in place of some, in dims as in lists and attributes.
type Renamed = Vec<(usize, usize)>;

fn renamed(size: usize, names: &Renamed) -> usize {
    let found = names.iter().find(|(from, _)| *from == size);
    found.map_or(size, |&(_, to)| to)
}

fn renamed_attribute(text: &str, names: &Renamed, large: usize) -> String {
    let (name, values) = text.split_once('=').unwrap();
    let value = |value: &str| match value.parse() {
        Ok(size) => match renamed(size, names) {
            LARGE => large.to_string(),
            size => size.to_string(),
        },
        Err(_) => value.to_owned(),
    };
    let values: Vec<String> = values.split(',').map(value).collect();
    format!("{name}={}", values.join(","))
}

/// How long the node takes, with these sizes, in its lists and attributes too with the one that is large
/// there; `None` if it is none of those that cross the seam.
fn spent(
    op_type: &str,
    inputs: &[Option<Input>],
    attributes: &[&str],
    names: &Renamed,
    everywhere: Option<usize>,
) -> Option<Duration> {
    let entry = OPERATORS.iter().find(|entry| entry.op_type == op_type)?;
    let mut random = Random(1);
    let newest = entry.since.len() - 1;
    let mut model = model_of(entry, opset(entry, newest)).graph(|graph| graph.untyped_output("y"));
    let mut node_inputs = Vec::new();
    let mut tensors = Vec::new();
    for (input, name) in inputs.iter().zip(INPUTS) {
        let Some(Input { ty, dims, list }) = input else {
            node_inputs.push("");
            continue;
        };
        node_inputs.push(name);
        let dims: Vec<usize> = match list {
            Some(_) => dims.clone(),
            None => dims.iter().map(|&dim| renamed(dim, names)).collect(),
        };
        let count = match dims.contains(&0) {
            true => 0,
            false => dims
                .iter()
                .try_fold(1usize, |count, &dim| count.checked_mul(dim))?,
        };
        if count > 1 << 16 {
            return None;
        }
        let bytes = match list {
            None => bytes_of(*ty, count, &mut random),
            Some(list) => {
                let value = |&value: &i64| match usize::try_from(value) {
                    Ok(size) if everywhere.is_some() => renamed(size, names) as i64,
                    _ => value,
                };
                let width = ty.size()?;
                let bytes = list.iter().map(value).map(i64::to_le_bytes);
                bytes.flat_map(|bytes| bytes[..width].to_vec()).collect()
            }
        };
        let shape: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
        let tensor = ComponentTensor::from_raw(data_type(*ty)?, &shape, &bytes).ok()?;
        model = model.input(name, ty.code(), "[...]");
        tensors.push((name, tensor));
    }
    let mut node = Node::new(entry.op_type, &node_inputs, &OUTPUTS[..1]).domain(entry.domain);
    for text in attributes {
        let text = match everywhere {
            Some(large) => renamed_attribute(text, names, large),
            None => (*text).to_owned(),
        };
        node = sound::with_attribute(node, &text);
    }
    let start = cpu_time();
    if let Ok(mut session) = load(model.node(node)) {
        let given: Vec<_> = tensors
            .iter()
            .map(|(name, tensor)| Given {
                name,
                value: tensor.view(),
            })
            .collect();
        let control = RunControl {
            deadline: Some(Instant::now() + Duration::from_millis(20)),
            ..RunControl::default()
        };
        // It may be refused, and it may end late.
        let _ = session.execute(&given, &mut [Output::alloc("y")], &control);
    }
    Some(cpu_time() - start)
}

/// Each operator, with each of the sizes in its inputs large and any of the others 0.
#[test]
fn nothing_goes_over_what_is_not_there() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (op_type, inputs, attributes) in sound::nodes() {
        let sizes: BTreeSet<usize> = inputs
            .iter()
            .flatten()
            .filter(|input| input.list.is_none())
            .flat_map(|input| input.dims.iter().copied())
            .collect();
        for &large in &sizes {
            let others: Vec<usize> = sizes.iter().copied().filter(|&size| size != large).collect();
            for set in 1..1usize << others.len() {
                let none = others.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
                let none = none.map(|(_, &size)| (size, 0));
                let names: Renamed = none.chain([(large, LARGE)]).collect();
                for everywhere in [None, Some(LARGE), Some(1 << 62)] {
                    let spent = spent(op_type, &inputs, &attributes, &names, everywhere);
                    count += usize::from(spent.is_some());
                    if let Some(spent) = spent.filter(|&spent| spent > AT_MOST) {
                        wrong.push(format!("{op_type} {names:?} {everywhere:?}: {spent:?}"));
                        eprintln!("{}", wrong.last().unwrap());
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 500, "only {count} were run");
}

/// Dims whose product, but for those of zero, could not be gone over in years.
#[test]
fn absurd_dims_are_refused_beside_zero_too() {
    let model = Model::new()
        .input("x", FLOAT, "[...]")
        .graph(|graph| graph.untyped_output("y"))
        .node(Node::new("Abs", &["x"], &["y"]));
    let mut session = load(model).unwrap();
    let mut run = |shape: &[i64]| {
        let x = ComponentTensor::from_raw(DataType::Float32, shape, &[]).unwrap();
        let given = [Given {
            name: "x",
            value: x.view(),
        }];
        session.execute(&given, &mut [Output::alloc("y")], &RunControl::default())
    };
    for shape in [[1 << 33, 0], [0, 1 << 60]] {
        let error = run(&shape).unwrap_err();
        assert!(error.to_string().contains("have no elements"), "{error}");
        assert!(
            !matches!(error.kind(), ComponentErrorKind::OutOfMemory { .. }),
            "{error}"
        );
    }
    for shape in [&[0, 152_064][..], &[0, 16, 4096, 4096], &[262_144, 0, 4096]] {
        run(shape).unwrap();
    }
}
