//! Products of quantised matrices, shaped as MatMul's:
//!
//!   MatMulInteger(A, B, za, zb)                     Y = (A - za) (B - zb), int8 and uint8 to int32, which
//!                                                   wraps                          ai.onnx 10
//!   QLinearMatMul(A, sa, za, B, sb, zb, sy, zy)     Y = saturate(round((A - za) (B - zb) sa sb / sy) + zy)
//!                                                   int8, uint8, and the 8-bit floats, to any of
//!                                                   them; scales in f32, f16, bf16     ai.onnx 10, 21
//!
//! Zero points and scales of A have one element, one for each row, or one for each row of each
//! matrix of the stack; those of B are the same for columns. Integers are summed in i32, floats
//! in f32; the scales are multiplied in f32 first.

use super::Built;
use super::dims::not_one_element;
use super::dispatch::with_float;
use super::infer::input_type;
use super::matmul::{Product, product_facts};
use super::number::{Number, Scalar};
use super::quantize::quantize;
use super::quantized::{Quantized, with_quantized};
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

/// Which of the parameters that go along with the rows (or columns) of a stack of matrices an
/// element has.
#[derive(Clone, Copy)]
struct PerLine {
    count: usize,
    lines: usize,
}

impl PerLine {
    /// For `lines` rows or columns in each matrix of a stack of `elements / size` ones.
    fn new(parameters: &TensorRef<'_>, input: usize, lines: usize, matrices: usize) -> Result<Self, OpError> {
        let count = parameters.len();
        if count == 1 || count == lines || Some(count) == lines.checked_mul(matrices) {
            return Ok(PerLine { count, lines });
        }
        Err(OpError::WrongDims {
            what: format!("input {input}"),
            found: parameters.dims().into(),
            expected: format!("one element, or one for each of {lines} lines of {matrices} matrices"),
        })
    }

    /// The parameter of a line of a matrix.
    fn of(self, matrix: usize, line: usize) -> usize {
        match self.count {
            1 => 0,
            count if count == self.lines => line,
            _ => matrix * self.lines + line,
        }
    }
}

/// Elements less their zero points, in the type that they are summed in.
fn shifted<Q: Quantized, S: Scalar>(
    x: &TensorRef<'_>,
    (rows, columns): (usize, usize),
    zero: Option<(TensorRef<'_>, usize)>,
    by_row: bool,
    to: &mut [S],
) -> Result<(), OpError> {
    let x = x.slice::<Q>()?;
    let lines = if by_row { rows } else { columns };
    let matrices = x.len() / (rows * columns).max(1);
    let (zeros, per_line) = match zero {
        Some((zero, input)) => (zero.slice::<Q>()?, PerLine::new(&zero, input, lines, matrices)?),
        None => (&[][..], PerLine { count: 1, lines }),
    };
    for (i, (to, x)) in to.iter_mut().zip(x).enumerate() {
        let (row, column) = (i / columns, i % columns);
        let line = if by_row { row % rows } else { column };
        let zero = zeros
            .get(per_line.of(row / rows, line))
            .map_or(0.0, |zero| zero.to_f64());
        // The values are of 8 bits, so that this is exact.
        *to = S::from_f64(x.to_f64() - zero);
    }
    Ok(())
}

#[derive(Debug)]
pub(super) struct MatMulInteger;

pub(in crate::native) fn matmul_integer(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(MatMulInteger))
}

fn infer_product(
    cx: &mut InferContext<'_>,
    [a, b]: [usize; 2],
    ty: Option<ElementType>,
) -> Result<(), OpError> {
    let dims: Option<SymDims> = match (&cx.required(a)?.dims, &cx.required(b)?.dims) {
        (Some(a), Some(b)) => Some(product_facts(a, b)?),
        _ => None,
    };
    cx.set_output(0, ty, dims);
    Ok(())
}

fn byte_integer(ty: ElementType) -> Result<(), OpError> {
    match ty {
        ElementType::Int8 | ElementType::Uint8 => Ok(()),
        other => Err(super::unsupported(other, "int8 or uint8")),
    }
}

impl Operator for MatMulInteger {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        infer_product(cx, [0, 1], Some(ElementType::Int32))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b) = (cx.required(0)?, cx.required(1)?);
        byte_integer(a.element_type())?;
        byte_integer(b.element_type())?;
        let product = Product::new(a.dims(), b.dims())?;
        let (m, k, n) = product.shape();
        let zero = |input: usize| cx.input(input).map(|zero| (zero, input));
        let zeros = (zero(2), zero(3));
        let (to_a, to_b) = cx
            .scratch::<i32>(a.len().saturating_add(b.len()))?
            .split_at_mut(a.len());
        with_quantized!(a.element_type(), Q => shifted::<Q, i32>(&a, (m, k), zeros.0, true, to_a))?;
        with_quantized!(b.element_type(), Q => shifted::<Q, i32>(&b, (k, n), zeros.1, false, to_b))?;
        let y = cx.output::<i32>(0, &product.dims)?.into_mut();
        product.multiply(to_a, to_b, y);
        Ok(())
    }
}

#[derive(Debug)]
struct QLinearMatMul;

pub(in crate::native) fn qlinear_matmul(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(QLinearMatMul))
}

/// A scale, as f32.
fn scale_at(scale: &TensorRef<'_>, at: usize) -> Result<f32, OpError> {
    with_float!(scale.element_type(), T => {
        let value = scale.slice::<T>()?.get(at).map(|scale| scale.widen().to_f64() as f32);
        value.ok_or_else(|| OpError::Message("a scale is empty".into()))
    })
}

impl Operator for QLinearMatMul {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        infer_product(cx, [0, 3], input_type(cx, 7))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b) = (cx.required(0)?, cx.required(3)?);
        let is_integer = |x: &TensorRef<'_>| byte_integer(x.element_type()).is_ok();
        let product = Product::new(a.dims(), b.dims())?;
        match (is_integer(&a), is_integer(&b)) {
            (true, true) => run_in::<i32>(cx, &a, &b, &product),
            (false, false) => run_in::<f32>(cx, &a, &b, &product),
            _ => Err(OpError::WrongType {
                what: "input 3".into(),
                found: b.element_type(),
                expected: format!(
                    "an integer or a float of 8 bits, as input 0 ({}) is",
                    a.element_type()
                ),
            }),
        }
    }
}

/// Sums in `S`.
fn run_in<S: Number<Wide: Scalar> + Scalar>(
    cx: &mut RunContext<'_>,
    a: &TensorRef<'_>,
    b: &TensorRef<'_>,
    product: &Product<'_>,
) -> Result<(), OpError> {
    let (a_zero, b_zero) = (cx.required(2)?, cx.required(5)?);
    let (a_scale, b_scale) = (cx.required(1)?, cx.required(4)?);
    let (y_scale, y_zero) = (cx.required(6)?, cx.required(7)?);
    for (parameter, input) in [(&y_scale, 6), (&y_zero, 7)] {
        if parameter.len() != 1 {
            return Err(not_one_element(parameter, input));
        }
    }
    let (m, k, n) = product.shape();
    let y_count = crate::native::tensor::element_count(&product.dims)?;
    let matrices = y_count / (m * n).max(1);
    let (by_row, by_column) = (
        PerLine::new(&a_scale, 1, m, matrices)?,
        PerLine::new(&b_scale, 4, n, matrices)?,
    );
    let room = a.len().saturating_add(b.len()).saturating_add(y_count);
    let (to_a, rest) = cx.scratch::<S>(room)?.split_at_mut(a.len());
    let (to_b, sums) = rest.split_at_mut(b.len());
    with_quantized!(a.element_type(), Q => shifted::<Q, S>(a, (m, k), Some((a_zero, 2)), true, to_a))?;
    with_quantized!(b.element_type(), Q => shifted::<Q, S>(b, (k, n), Some((b_zero, 5)), false, to_b))?;
    product.multiply(to_a, to_b, sums);
    let y_scale = scale_at(&y_scale, 0)?;
    with_quantized!(y_zero.element_type(), Q => {
        let zero = y_zero.slice::<Q>()?.first().map_or(0.0, |zero| Quantized::to_f64(*zero));
        let y = cx.output::<Q>(0, &product.dims)?.into_mut();
        for (row, (y, sums)) in y.chunks_mut(n.max(1)).zip(sums.chunks(n.max(1))).enumerate() {
            let (matrix, line) = (row / m, row % m);
            let row_scale = scale_at(&a_scale, by_row.of(matrix, line))?;
            for (column, (y, sum)) in y.iter_mut().zip(sums).enumerate() {
                let scale = row_scale * scale_at(&b_scale, by_column.of(matrix, column))? / y_scale;
                *y = quantize((sum.to_f64() as f32 * scale).into(), zero, true);
            }
        }
        Ok(())
    })
}
