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
//!
//! A constant matrix B of integers is packed at load: see `packed_weights`. With b = code + 128 for
//! uint8 (b = code for int8) and zb' = zb - 128 (zb), Y = sum of (a - za) code - zb' * sum of (a - za).

use super::Built;
use super::columns::Columns;
use super::dims::not_one_element;
use super::dispatch::with_float;
use super::epilogue::Epilogue;
use super::infer::input_type;
use super::matmul::{Product, product_facts};
use super::number::{Number, Scalar};
use super::packed_weights::{self, Arithmetic, COLUMNS, Instructions, PackedWeights, Source, multiply_words};
use super::quantize::quantize;
use super::quantized::{Quantized, with_quantized};
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, PrepareContext, Prepared, RunContext};
use crate::native::tensor::{TensorRef, element_count};
use crate::native::workers::Workers;

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

/// A constant B, ready for [`multiply_words`].
#[derive(Debug)]
struct PackedB {
    weights: PackedWeights,
    ty: ElementType,
    /// What codes lack.
    offset: i32,
}

impl PackedB {
    /// `None` where B is not constant, or not one matrix of integers.
    fn of_constant(
        constants: &[Option<TensorRef<'_>>],
        index: usize,
        cx: &mut PrepareContext<'_>,
    ) -> Result<Option<Self>, OpError> {
        let Some(b) = constants.get(index).copied().flatten() else {
            return Ok(None);
        };
        let &[k, n] = b.dims() else {
            return Ok(None);
        };
        let (bits, offset) = match b.element_type() {
            ElementType::Int8 => (128, 0),
            ElementType::Uint8 => (0, 128),
            _ => return Ok(None),
        };
        let source = Source::of_words(b.bytes()?, bits, k, n);
        let weights = packed_weights::prepare(cx, &source, Arithmetic::Words, &[Some(b)])?;
        Ok(Some(PackedB {
            weights,
            ty: b.element_type(),
            offset,
        }))
    }

    /// Words of a row of A: its elements and, in two halves, their sum.
    fn record(&self) -> usize {
        self.weights.depth() + 2
    }

    /// Calls `emit` with a row of Y, a column, and sums from there on: from several threads,
    /// each with columns of its own. `room` has a record for each row, of which each matrix has `m`.
    fn multiply(
        &self,
        workers: &Workers,
        a: (&TensorRef<'_>, Option<Zero<'_>>),
        b_zero: Option<Zero<'_>>,
        m: usize,
        room: &mut [i16],
        emit: &(dyn Fn(usize, usize, &[i32]) + Sync),
    ) -> Result<(), OpError> {
        let weights = &self.weights;
        let (k, n, depth, record) = (weights.k, weights.n, weights.depth(), self.record());
        let rows = room.len() / record;
        let (a, a_zero) = a;
        let signed = a.element_type() == ElementType::Int8;
        let a_zeros = Zeros::new(a_zero, a.element_type(), m, rows / m.max(1))?;
        let b_zeros = Zeros::new(b_zero, self.ty, n, 1)?;
        let bytes = a.bytes()?;
        workers.split_mut(room, record, |row, words| {
            let zero = a_zeros.of(row / m.max(1), row % m.max(1));
            let (words, rest) = words.split_at_mut(k);
            let bytes = &bytes[row * k..][..k];
            match signed {
                true => shift_row(bytes, |byte| i16::from(byte as i8), zero, words),
                false => shift_row(bytes, i16::from, zero, words),
            }
            // Wraps, as Y does.
            let sum = words.iter().fold(0i32, |sum, &x| sum.wrapping_add(x.into()));
            rest.fill(0);
            if let [.., low, high] = rest {
                (*low, *high) = (sum as i16, (sum >> 16) as i16);
            }
        });
        let room = &*room;
        let sum_of = |row: usize| {
            let at = row * record + depth;
            i32::from(room[at + 1]) << 16 | i32::from(room[at] as u16)
        };
        let instructions = Instructions::detect();
        // Some 16 products are worth a simple operation.
        let chunk = workers.chunk(weights.panels(), rows.saturating_mul(depth) * COLUMNS / 16);
        workers.for_each(weights.panels().div_ceil(chunk), |part| {
            let panels = part * chunk..((part + 1) * chunk).min(weights.panels());
            let a = (room, rows, record);
            multiply_words(instructions, weights, a, panels, &mut |row, column, products| {
                let sum = sum_of(row);
                let mut y = [0i32; COLUMNS];
                for (i, (y, product)) in y.iter_mut().zip(products).enumerate() {
                    let rest = i32::from(b_zeros.of(0, column + i)) - self.offset;
                    *y = product.wrapping_sub(rest.wrapping_mul(sum));
                }
                emit(row, column, &y[..products.len()]);
            });
        });
        Ok(())
    }
}

/// An input that is a zero point, and its index.
type Zero<'a> = (TensorRef<'a>, usize);

/// Zero points of lines.
struct Zeros<'a> {
    bytes: &'a [u8],
    signed: bool,
    per_line: PerLine,
}

impl<'a> Zeros<'a> {
    fn new(zero: Option<Zero<'a>>, ty: ElementType, lines: usize, matrices: usize) -> Result<Self, OpError> {
        let signed = ty == ElementType::Int8;
        let Some((zero, input)) = zero else {
            let per_line = PerLine { count: 1, lines };
            return Ok(Zeros {
                bytes: &[],
                signed,
                per_line,
            });
        };
        if zero.element_type() != ty {
            return Err(OpError::WrongType {
                what: format!("input {input}"),
                found: zero.element_type(),
                expected: format!("{ty}, like what it is the zero point of"),
            });
        }
        Ok(Zeros {
            bytes: zero.bytes()?,
            signed,
            per_line: PerLine::new(&zero, input, lines, matrices)?,
        })
    }

    #[inline]
    fn of(&self, matrix: usize, line: usize) -> i16 {
        let byte = self.bytes.get(self.per_line.of(matrix, line)).copied();
        let byte = byte.unwrap_or(0);
        match self.signed {
            true => i16::from(byte as i8),
            false => i16::from(byte),
        }
    }
}

fn shift_row(bytes: &[u8], widen: impl Fn(u8) -> i16, zero: i16, to: &mut [i16]) {
    for (to, &byte) in to.iter_mut().zip(bytes) {
        *to = widen(byte) - zero;
    }
}

#[derive(Debug, Default)]
pub(super) struct MatMulInteger {
    packed: Option<PackedB>,
}

pub(in crate::native) fn matmul_integer(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(MatMulInteger::default()))
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

    fn prepare(
        &mut self,
        constants: &[Option<TensorRef<'_>>],
        cx: &mut PrepareContext<'_>,
    ) -> Result<Prepared, OpError> {
        self.packed = PackedB::of_constant(constants, 1, cx)?;
        Ok(Prepared::of(&self.packed))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b) = (cx.required(0)?, cx.required(1)?);
        byte_integer(a.element_type())?;
        byte_integer(b.element_type())?;
        let product = Product::new(a.dims(), b.dims())?;
        let (m, k, n) = product.shape();
        let zero = |input: usize| cx.input(input).map(|zero| (zero, input));
        let zeros = (zero(2), zero(3));
        if let Some(packed) = &self.packed {
            let rows = a.len().checked_div(k).unwrap_or(0);
            let room = cx.scratch::<i16>(element_count(&[packed.record(), rows])?)?;
            let workers = cx.workers();
            let y = cx.output::<i32>(0, &product.dims)?.into_mut();
            if rows == 0 {
                // There may be rows, of nothing.
                y.fill(0);
                return Ok(());
            }
            let y = Columns::new(y, n);
            return packed.multiply(workers, (&a, zeros.0), zeros.1, m, room, &|row, column, sums| {
                // SAFETY: `multiply` gives each column to one thread.
                unsafe { y.write(row, column, sums, |_, sum| sum) };
            });
        }
        let (to_a, to_b) = cx
            .scratch::<i32>(a.len().saturating_add(b.len()))?
            .split_at_mut(a.len());
        with_quantized!(a.element_type(), Q => shifted::<Q, i32>(&a, (m, k), zeros.0, true, to_a))?;
        with_quantized!(b.element_type(), Q => shifted::<Q, i32>(&b, (k, n), zeros.1, false, to_b))?;
        let y = cx.output::<i32>(0, &product.dims)?.into_mut();
        product.multiply(cx.workers(), to_a, to_b, y, Epilogue::none());
        Ok(())
    }
}

#[derive(Debug)]
struct QLinearMatMul {
    packed: Option<PackedB>,
}

pub(in crate::native) fn qlinear_matmul(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(QLinearMatMul { packed: None }))
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

    fn prepare(
        &mut self,
        constants: &[Option<TensorRef<'_>>],
        cx: &mut PrepareContext<'_>,
    ) -> Result<Prepared, OpError> {
        self.packed = PackedB::of_constant(constants, 3, cx)?;
        Ok(Prepared::of(&self.packed))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b) = (cx.required(0)?, cx.required(3)?);
        let is_integer = |x: &TensorRef<'_>| byte_integer(x.element_type()).is_ok();
        let product = Product::new(a.dims(), b.dims())?;
        match (is_integer(&a), is_integer(&b)) {
            (true, true) => match &self.packed {
                Some(packed) => run_packed(cx, &a, packed, &product),
                None => run_in::<i32>(cx, &a, &b, &product),
            },
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

/// What sums become elements of Y by.
struct Requantize<'a> {
    a_scale: TensorRef<'a>,
    by_row: PerLine,
    b_scale: TensorRef<'a>,
    by_column: PerLine,
    y_scale: f32,
    y_zero: TensorRef<'a>,
    /// Rows of a matrix of Y.
    m: usize,
}

impl<'a> Requantize<'a> {
    fn new(cx: &RunContext<'a>, product: &Product<'_>) -> Result<Self, OpError> {
        let (a_scale, b_scale) = (cx.required(1)?, cx.required(4)?);
        let (y_scale, y_zero) = (cx.required(6)?, cx.required(7)?);
        for (parameter, input) in [(&y_scale, 6), (&y_zero, 7)] {
            if parameter.len() != 1 {
                return Err(not_one_element(parameter, input));
            }
        }
        let (m, _, n) = product.shape();
        let matrices = element_count(&product.dims)? / (m * n).max(1);
        // Both types are floats, as their first elements say.
        for (scale, count) in [(&a_scale, m * n), (&b_scale, m * n)] {
            if count > 0 {
                scale_at(scale, 0)?;
            }
        }
        Ok(Requantize {
            by_row: PerLine::new(&a_scale, 1, m, matrices)?,
            by_column: PerLine::new(&b_scale, 4, n, matrices)?,
            a_scale,
            b_scale,
            y_scale: scale_at(&y_scale, 0)?,
            y_zero,
            m,
        })
    }

    fn zero<Q: Quantized>(&self) -> Result<f64, OpError> {
        let zero = self.y_zero.slice::<Q>()?.first();
        Ok(zero.map_or(0.0, |zero| Quantized::to_f64(*zero)))
    }

    /// The scale of a row's elements of a column.
    fn row(&self, row: usize) -> impl Fn(usize) -> f32 {
        let (matrix, line) = (row / self.m.max(1), row % self.m.max(1));
        let one_column = self.by_column.count == 1;
        let of_row = scale_at(&self.a_scale, self.by_row.of(matrix, line)).unwrap_or_default();
        let of_column =
            move |column| scale_at(&self.b_scale, self.by_column.of(matrix, column)).unwrap_or_default();
        let all = of_row * of_column(0) / self.y_scale;
        move |column| match one_column {
            true => all,
            false => of_row * of_column(column) / self.y_scale,
        }
    }
}

fn run_packed(
    cx: &mut RunContext<'_>,
    a: &TensorRef<'_>,
    packed: &PackedB,
    product: &Product<'_>,
) -> Result<(), OpError> {
    let (a_zero, b_zero) = ((cx.required(2)?, 2), (cx.required(5)?, 5));
    let requantize = Requantize::new(cx, product)?;
    let (m, k, n) = product.shape();
    let rows = element_count(&product.dims)?.checked_div(n).unwrap_or(0);
    let room = cx.scratch::<i16>(element_count(&[packed.record(), if k > 0 { rows } else { 0 }])?)?;
    let workers = cx.workers();
    with_quantized!(requantize.y_zero.element_type(), Q => {
        let zero = requantize.zero::<Q>()?;
        let y = cx.output::<Q>(0, &product.dims)?.into_mut();
        if room.is_empty() {
            y.fill(quantize(0.0, zero, true));
            return Ok(());
        }
        let y = Columns::new(y, n);
        packed.multiply(workers, (a, Some(a_zero)), Some(b_zero), m, room, &|row, column, sums| {
            let scale = requantize.row(row);
            let value = |column, sum: i32| quantize((sum as f32 * scale(column)).into(), zero, true);
            // SAFETY: `multiply` gives each column to one thread.
            unsafe { y.write(row, column, sums, value) };
        })
    })
}

/// Sums in `S`.
fn run_in<S: Number<Wide: Scalar> + Scalar>(
    cx: &mut RunContext<'_>,
    a: &TensorRef<'_>,
    b: &TensorRef<'_>,
    product: &Product<'_>,
) -> Result<(), OpError> {
    let (a_zero, b_zero) = (cx.required(2)?, cx.required(5)?);
    let requantize = Requantize::new(cx, product)?;
    let (m, k, n) = product.shape();
    let y_count = element_count(&product.dims)?;
    let room = a.len().saturating_add(b.len()).saturating_add(y_count);
    let (to_a, rest) = cx.scratch::<S>(room)?.split_at_mut(a.len());
    let (to_b, sums) = rest.split_at_mut(b.len());
    with_quantized!(a.element_type(), Q => shifted::<Q, S>(a, (m, k), Some((a_zero, 2)), true, to_a))?;
    with_quantized!(b.element_type(), Q => shifted::<Q, S>(b, (k, n), Some((b_zero, 5)), false, to_b))?;
    product.multiply(cx.workers(), to_a, to_b, sums, Epilogue::none());
    with_quantized!(requantize.y_zero.element_type(), Q => {
        let zero = requantize.zero::<Q>()?;
        let y = cx.output::<Q>(0, &product.dims)?.into_mut();
        for (row, (y, sums)) in y.chunks_mut(n.max(1)).zip(sums.chunks(n.max(1))).enumerate() {
            let scale = requantize.row(row);
            for (column, (y, sum)) in y.iter_mut().zip(sums).enumerate() {
                *y = quantize((sum.to_f64() as f32 * scale(column)).into(), zero, true);
            }
        }
        Ok(())
    })
}
