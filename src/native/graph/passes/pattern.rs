//! What several passes look for: constants, products in any order, means over the last axis.

use smallvec::SmallVec;

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode};
use crate::native::element::ElementType;
use crate::native::infer::SymDim;
use crate::native::tensor::Tensor;

pub(super) fn element_type(draft: &Draft, value: ValueId) -> Option<ElementType> {
    draft.fact(value)?.ty
}

/// The types that fused operators compute: floats of 16 bits and more.
pub(super) fn is_float(draft: &Draft, value: ValueId) -> bool {
    use ElementType as T;
    matches!(
        element_type(draft, value),
        Some(T::Float32 | T::Float64 | T::Float16 | T::Bfloat16)
    )
}

/// The elements of a tensor of floats or integers.
pub(super) fn numbers(tensor: &Tensor) -> Option<Vec<f64>> {
    use ElementType as T;
    let view = tensor.view();
    Some(match view.element_type() {
        T::Float32 => view.slice::<f32>().ok()?.iter().map(|&x| x.into()).collect(),
        T::Float64 => view.slice::<f64>().ok()?.to_vec(),
        T::Float16 => view
            .slice::<half::f16>()
            .ok()?
            .iter()
            .map(|x| x.to_f64())
            .collect(),
        T::Bfloat16 => view
            .slice::<half::bf16>()
            .ok()?
            .iter()
            .map(|x| x.to_f64())
            .collect(),
        T::Int32 | T::Int64 => view.to_ints().ok()?.iter().map(|&x| x as f64).collect(),
        _ => return None,
    })
}

/// The one element of a constant that, combined with `other` elementwise, leaves its dims.
pub(super) fn scalar(draft: &Draft, value: ValueId, other: ValueId) -> Option<f64> {
    let tensor = draft.constant(value)?;
    let rank = tensor.dims().len();
    if rank > 0 && draft.fact(other)?.rank()? < rank {
        return None;
    }
    match numbers(tensor)?.as_slice() {
        &[number] => Some(number),
        _ => None,
    }
}

/// Whether a value is one number, 0 or an infinity, and leaves the dims of `other` as they are.
/// A constant that is cast to the type of the model is one as well: every float has these.
pub(super) fn is_number(draft: &Draft, value: ValueId, other: ValueId, number: f64) -> bool {
    let source = operand(draft, value, "Cast").filter(|&source| is_float(draft, source));
    scalar(draft, source.unwrap_or(value), other) == Some(number)
}

/// Whether a constant is what a model of elements of this type would have for `expected`.
pub(super) fn is_about(ty: ElementType, found: f64, expected: f64) -> bool {
    let tolerance = match ty {
        ElementType::Float64 => 1.0 / (1u64 << 50) as f64,
        ElementType::Float32 => 1.0 / f64::from(1 << 22),
        ElementType::Float16 => 1.0 / f64::from(1 << 10),
        ElementType::Bfloat16 => 1.0 / f64::from(1 << 7),
        _ => 0.0,
    };
    (found - expected).abs() <= expected.abs() * tolerance
}

/// The two operands of this operator of ONNX's own, if that is what makes the value.
pub(super) fn operands(draft: &Draft, value: ValueId, op_type: &str) -> Option<[ValueId; 2]> {
    let node = draft.producer(value).filter(|node| node.is(op_type))?;
    match node.node.inputs.as_slice() {
        &[Some(a), Some(b)] => Some([a, b]),
        _ => None,
    }
}

/// The one operand of this operator of ONNX's own, if that is what makes the value.
pub(super) fn operand(draft: &Draft, value: ValueId, op_type: &str) -> Option<ValueId> {
    let node = draft.producer(value).filter(|node| node.is(op_type))?;
    node.input(0).filter(|_| node.node.inputs.len() == 1)
}

/// An operator that takes its operands in any order, of a constant of one element and
/// something else: that, and the constant.
pub(super) fn with_scalar(draft: &Draft, value: ValueId, op_type: &str) -> Option<(ValueId, f64)> {
    let [a, b] = operands(draft, value, op_type)?;
    match (scalar(draft, a, b), scalar(draft, b, a)) {
        (None, Some(number)) => Some((a, number)),
        (Some(number), None) => Some((b, number)),
        _ => None,
    }
}

/// The factors of a product of one tensor's worth of elements: Mul, and Div by a constant, as
/// far as nothing else reads what is multiplied; and the product of those that are constants
/// of one element, 1 without any. At most eight.
pub(super) struct Factors {
    pub(super) values: SmallVec<[ValueId; 8]>,
    /// How many constants there were.
    pub(super) constants: usize,
    pub(super) constant: f64,
}

pub(super) fn factors(draft: &Draft, product: ValueId) -> Option<Factors> {
    let mut factors = Factors {
        values: SmallVec::new(),
        constants: 0,
        constant: 1.0,
    };
    let mut open: SmallVec<[ValueId; 8]> = SmallVec::from_slice(&[product]);
    while let Some(value) = open.pop() {
        if open.len() + factors.values.len() > 8 {
            return None;
        }
        if value != product && !draft.is_read_once(value) {
            factors.values.push(value);
        } else if let Some((rest, number)) = with_scalar(draft, value, "Mul") {
            factors.constant *= number;
            factors.constants += 1;
            open.push(rest);
        } else if let Some(both) = operands(draft, value, "Mul") {
            open.extend(both);
        } else if let Some([rest, divisor]) = operands(draft, value, "Div")
            && let Some(number) = scalar(draft, divisor, rest)
        {
            factors.constant /= number;
            factors.constants += 1;
            open.push(rest);
        } else {
            factors.values.push(value);
        }
    }
    Some(factors)
}

/// Pow(x, 2) or Mul(x, x): what is squared.
pub(super) fn squared(draft: &Draft, value: ValueId) -> Option<ValueId> {
    power(draft, value, 2.0).or_else(|| {
        let [a, b] = operands(draft, value, "Mul")?;
        (a == b).then_some(a)
    })
}

/// Pow(x, exponent): x.
pub(super) fn power(draft: &Draft, value: ValueId, exponent: f64) -> Option<ValueId> {
    let [x, power] = operands(draft, value, "Pow")?;
    (scalar(draft, power, x)? == exponent).then_some(x)
}

/// ReduceMean over the last axis alone, which stays as a dim of 1: of what.
pub(super) fn mean_of_last(draft: &Draft, value: ValueId) -> Option<ValueId> {
    over_last(draft, value, "ReduceMean")
}

/// ReduceMax over the last axis alone, which stays as a dim of 1: of what.
pub(super) fn max_of_last(draft: &Draft, value: ValueId) -> Option<ValueId> {
    over_last(draft, value, "ReduceMax")
}

/// Both take the axes as an input from version 18 on.
fn over_last(draft: &Draft, value: ValueId, op_type: &str) -> Option<ValueId> {
    let node = draft.producer(value).filter(|node| node.is(op_type))?;
    let x = node.input(0)?;
    if node.definition.int_or("keepdims", 1) != 1 {
        return None;
    }
    let axis = match node.definition.since {
        18.. => {
            let axes = draft.constant(node.input(1)?)?.view().to_ints().ok()?;
            only(&axes)?
        }
        _ => only(node.definition.ints("axes")?)?,
    };
    let is_last = axis == -1
        || draft
            .fact(x)
            .and_then(|fact| fact.rank())
            .is_some_and(|rank| axis + 1 == rank as i64);
    is_last.then_some(x)
}

fn only(axes: &[i64]) -> Option<i64> {
    match axes {
        &[axis] => Some(axis),
        _ => None,
    }
}

/// The size of the last dim of a value, if it is known.
pub(super) fn last_dim(draft: &Draft, value: ValueId) -> Option<usize> {
    draft.fact(value)?.dims.as_ref()?.last()?.fixed()
}

/// Whether a value has just the dim [n].
pub(super) fn is_vector_of(draft: &Draft, value: ValueId, n: usize) -> bool {
    let dims = draft.fact(value).and_then(|fact| fact.fixed_dims());
    dims.is_some_and(|dims| dims.as_slice() == [n])
}

/// Whether two dims are equal in every run: equal numbers or symbols.
pub(super) fn is_same(a: SymDim, b: SymDim) -> bool {
    a == b && a != SymDim::Unknown
}

/// Whether two values have the same dims in every run: the same numbers and symbols, or they
/// are products of one matrix with weights of as many columns.
pub(super) fn same_dims(draft: &Draft, a: ValueId, b: ValueId) -> bool {
    let dims = |value| draft.fact(value).and_then(|fact| fact.dims.as_ref());
    if let (Some(a), Some(b)) = (dims(a), dims(b))
        && a == b
        && !a.contains(&SymDim::Unknown)
    {
        return true;
    }
    match (projection(draft, a), projection(draft, b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// What a value is a projection of and to how many columns, if it is that: MatMul and
/// MatMulNBits with constant weights, with a bias or without.
fn projection(draft: &Draft, value: ValueId) -> Option<(ValueId, usize)> {
    let node = draft.producer(value)?;
    if let Some([a, b]) = operands(draft, value, "Add") {
        let (product, bias) = if draft.constant(a).is_some() {
            (b, a)
        } else {
            (a, b)
        };
        let product = product_of(draft, draft.producer(product)?)?;
        return is_vector_of(draft, bias, product.1).then_some(product);
    }
    product_of(draft, node)
}

fn product_of(draft: &Draft, node: &DraftNode) -> Option<(ValueId, usize)> {
    let columns = if node.is("MatMul") {
        match draft.constant(node.input(1)?)?.dims() {
            &[_, columns] => columns,
            _ => return None,
        }
    } else if node.is_of("com.microsoft", "MatMulNBits") {
        usize::try_from(node.definition.int("N")?).ok()?
    } else {
        return None;
    };
    Some((node.input(0)?, columns))
}

/// A tensor of floats of this type, each rounded once.
pub(super) fn tensor_of(ty: ElementType, dims: &[usize], numbers: &[f64]) -> Option<Tensor> {
    use ElementType as T;
    let numbers = numbers.iter();
    let tensor = match ty {
        T::Float32 => Tensor::from_slice(dims, &numbers.map(|&x| x as f32).collect::<Vec<_>>()),
        T::Float64 => Tensor::from_slice(dims, &numbers.copied().collect::<Vec<_>>()),
        T::Float16 => Tensor::from_slice(
            dims,
            &numbers.map(|&x| half::f16::from_f64(x)).collect::<Vec<_>>(),
        ),
        T::Bfloat16 => Tensor::from_slice(
            dims,
            &numbers.map(|&x| half::bf16::from_f64(x)).collect::<Vec<_>>(),
        ),
        _ => return None,
    };
    tensor.ok()
}
