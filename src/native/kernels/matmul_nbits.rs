//! MatMulNBits: Y = A W^T + bias for weights of few bits.
//!
//!   A            [..., K]                                   Y [..., N]
//!   B            [N, blocks, block_size * bits / 8] of uint8, blocks = ceil(K / block_size)
//!   scales       [N, blocks]
//!   zero_points  [N, ceil(blocks * bits / 8)] of uint8, packed like B, or [N, blocks] of the
//!                type of A; 2^(bits - 1) when left out
//!   g_idx        [K]: the block of each element of a row; in ascending order when left out
//!   bias         [N]
//!   residual     [..., N], added too, see `epilogue`; what passes give, and no model
//!
//! com.microsoft 1: float, float16, bfloat16 (and double), 2 to 8 bits. How weights are stored is in
//! `block_quantized`. Constant ones are packed at load, see `packed_weights`, and with
//! `accuracy_level` 4 A is quantised too, as ONNX Runtime has it; with any other, and where weights
//! are not constant or A is double, sums are of products in the wide type.

use half::{bf16, f16};

use super::Built;
use super::attend::dot;
use super::block_quantized::{BlockQuantized, ZeroPoints, packed_len};
use super::columns::Columns;
use super::dispatch::with_float;
use super::epilogue::Epilogue;
use super::number::Float;
use super::packed_weights::{
    self, Arithmetic, PackedWeights, Records, Rows, Source, SourceCodes, SourcePoints, product,
};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{Fact, InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, PrepareContext, Prepared, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

const A: usize = 0;
const B: usize = 1;
const SCALES: usize = 2;
const ZERO_POINTS: usize = 3;
const GROUPS: usize = 4;
const BIAS: usize = 5;
const RESIDUAL: usize = 6;

#[derive(Debug)]
struct MatMulNBits {
    k: usize,
    n: usize,
    bits: usize,
    block_size: usize,
    arithmetic: Arithmetic,
    has_zero_points: bool,
    has_groups: bool,
    /// The weights, if they are constant.
    packed: Option<PackedWeights>,
}

pub(in crate::native) fn matmul_nbits(node: &NodeInfo<'_>) -> Built {
    let wrong = |name: &str, found: Option<i64>, expected: &str| OpError::Attribute {
        name: name.into(),
        message: match found {
            Some(found) => format!("is {found}, expected {expected}"),
            None => format!("is missing, expected {expected}"),
        },
    };
    let size = |name: &str| {
        let value = node.int(name)?;
        value
            .and_then(|value| usize::try_from(value).ok())
            .ok_or_else(|| wrong(name, value, "0 or more"))
    };
    let (k, n) = (size("K")?, size("N")?);
    let block_size = size("block_size")?;
    if block_size < 16 || !block_size.is_power_of_two() {
        let found = node.int("block_size")?;
        return Err(wrong("block_size", found, "a power of two, 16 or more"));
    }
    let bits = node.int_or("bits", 4)?;
    if !(2..=8).contains(&bits) {
        return Err(wrong("bits", Some(bits), "2 to 8"));
    }
    let level = node.int_or("accuracy_level", 0)?;
    if !(0..=4).contains(&level) {
        return Err(wrong("accuracy_level", Some(level), "0 to 4"));
    }
    match node.int_or("weight_prepacked", 0)? {
        0 => {}
        other => {
            return Err(OpError::Unsupported(format!(
                "weights packed for a GPU (weight_prepacked {other})"
            )));
        }
    }
    Ok(Box::new(MatMulNBits {
        k,
        n,
        bits: bits as usize,
        block_size,
        arithmetic: if level == 4 {
            Arithmetic::Integer
        } else {
            Arithmetic::Float
        },
        has_zero_points: node.has_input(ZERO_POINTS),
        has_groups: node.has_input(GROUPS),
        packed: None,
    }))
}

impl Operator for MatMulNBits {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let a = cx.required(A)?;
        let mut dims = a.dims.clone();
        if let Some(last) = dims.as_mut().and_then(|dims| dims.last_mut()) {
            *last = SymDim::Fixed(self.n);
        }
        cx.set_output(0, a.ty, dims);
        Ok(())
    }

    fn prepare(
        &mut self,
        constants: &[Option<TensorRef<'_>>],
        cx: &mut PrepareContext<'_>,
    ) -> Result<Prepared, OpError> {
        let constant = |index: usize| constants.get(index).copied().flatten();
        let needed = [
            (B, true),
            (SCALES, true),
            (ZERO_POINTS, self.has_zero_points),
            (GROUPS, self.has_groups),
        ];
        if needed
            .iter()
            .any(|&(index, needed)| needed && constant(index).is_none())
        {
            return Ok(Prepared::AsGiven);
        }
        self.packed = match constant(SCALES).map(|scales| scales.element_type()) {
            Some(ElementType::Float32) => self.pack::<f32>(&constant, cx)?,
            Some(ElementType::Float16) => self.pack::<f16>(&constant, cx)?,
            Some(ElementType::Bfloat16) => self.pack::<bf16>(&constant, cx)?,
            _ => None,
        };
        Ok(Prepared::of(&self.packed))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let a = cx.required(A)?;
        if let Some(packed) = &self.packed
            && cx.required(SCALES)?.element_type() == a.element_type()
        {
            match a.element_type() {
                ElementType::Float32 => return self.run_packed::<f32>(cx, &a, packed),
                ElementType::Float16 => return self.run_packed::<f16>(cx, &a, packed),
                ElementType::Bfloat16 => return self.run_packed::<bf16>(cx, &a, packed),
                _ => {}
            }
        }
        with_float!(a.element_type(), T => self.run_as::<T>(cx, &a))
    }

    fn joined_inputs(&self, _others: &[Option<&Fact>]) -> Option<&'static [usize]> {
        Some(&[A, RESIDUAL])
    }

    fn is_row_wise(&self, others: &[Option<&Fact>]) -> bool {
        others.get(RESIDUAL - 1).copied().flatten().is_none()
    }
}

/// The elements of an input, whose number is known and whose rank is not: exporters differ.
fn flat<'a>(tensor: TensorRef<'a>, index: usize, expected: Option<usize>) -> Result<TensorRef<'a>, OpError> {
    if expected == Some(tensor.len()) {
        return Ok(tensor);
    }
    Err(OpError::WrongDims {
        what: format!("input {index}"),
        found: tensor.dims().into(),
        expected: match expected {
            Some(len) => format!("{len} elements in all"),
            None => "fewer elements".into(),
        },
    })
}

impl MatMulNBits {
    /// The weights as they are stored.
    fn weights<'a, T: Float>(
        &self,
        input: &dyn Fn(usize) -> Option<TensorRef<'a>>,
    ) -> Result<BlockQuantized<'a, T>, OpError> {
        let required = |index: usize| input(index).ok_or(OpError::MissingInput { index });
        let blocks = self.k.div_ceil(self.block_size);
        // A block is a whole number of bytes: its size is a multiple of 16.
        let row_bytes = blocks.checked_mul(self.block_size / 8 * self.bits);
        let rows = |row: Option<usize>| row.and_then(|row| row.checked_mul(self.n));
        let data = flat(required(B)?, B, rows(row_bytes))?;
        let scales = flat(required(SCALES)?, SCALES, rows(Some(blocks)))?;
        let zero_points = match input(ZERO_POINTS) {
            None => ZeroPoints::Middle,
            Some(points) if points.element_type() == ElementType::Uint8 => {
                let points = flat(points, ZERO_POINTS, rows(packed_len(blocks, self.bits)))?;
                ZeroPoints::Packed(points.slice()?)
            }
            Some(points) => {
                let points = flat(points, ZERO_POINTS, rows(Some(blocks)))?;
                ZeroPoints::Float(points.slice()?)
            }
        };
        let groups = match input(GROUPS) {
            None => None,
            Some(groups) => {
                // Some exporters fill g_idx up to a whole block.
                let given = groups.slice::<i32>()?;
                let in_range = |&group: &i32| usize::try_from(group).is_ok_and(|group| group < blocks);
                match given.get(..self.k) {
                    Some(used) if used.iter().all(in_range) => Some(used),
                    _ => {
                        return Err(OpError::Message(format!(
                            "g_idx {:?}: expected {} blocks from 0 to {}",
                            groups.dims(),
                            self.k,
                            blocks.saturating_sub(1)
                        )));
                    }
                }
            }
        };
        Ok(BlockQuantized {
            bits: self.bits,
            block_size: self.block_size,
            blocks,
            row_bytes: row_bytes.unwrap_or(0),
            data: data.slice()?,
            scales: scales.slice()?,
            zero_points,
            groups,
        })
    }

    fn pack<'a, T: Float>(
        &self,
        constant: &dyn Fn(usize) -> Option<TensorRef<'a>>,
        cx: &mut PrepareContext<'_>,
    ) -> Result<Option<PackedWeights>, OpError> {
        // A run says what is wrong with them.
        let Ok(stored) = self.weights::<T>(constant) else {
            return Ok(None);
        };
        let whole = |row: usize, block: usize, to: &mut [u8]| match stored.zero_points {
            ZeroPoints::Packed(points) => stored.packed_points(points, row, block, to),
            _ => to.fill(0),
        };
        let floats = |row: usize, block: usize, to: &mut [f32]| match stored.zero_points {
            ZeroPoints::Float(points) => stored.floats(points, row, block, to),
            _ => to.fill(0.0),
        };
        let give_back = cx.give_back();
        let source = Source {
            bits: self.bits,
            n: self.n,
            k: self.k,
            block_size: self.block_size,
            codes: SourceCodes::Stored(stored.data, stored.row_bytes),
            scales: &|row, block, to| stored.floats(stored.scales, row, block, to),
            points: match stored.zero_points {
                ZeroPoints::Packed(_) => SourcePoints::Whole(&whole),
                ZeroPoints::Float(_) => SourcePoints::Float(&floats),
                ZeroPoints::Middle | ZeroPoints::Zero => SourcePoints::Middle,
            },
            groups: stored.groups,
            done: &|rows| give_back(stored.rows(rows)),
        };
        let constants = [B, SCALES, ZERO_POINTS, GROUPS].map(constant);
        packed_weights::prepare(cx, &source, self.arithmetic, &constants).map(Some)
    }

    /// The dims of Y, and what is added to it.
    fn frame<'a, T: Float>(
        &self,
        cx: &RunContext<'a>,
        a: &TensorRef<'_>,
    ) -> Result<(Dims, Epilogue<'a, T>), OpError> {
        let (k, n) = (self.k, self.n);
        if a.dims().last() != Some(&k) {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: a.dims().into(),
                expected: format!("a last dim of K = {k}"),
            });
        }
        let mut dims: Dims = a.dims().into();
        if let Some(last) = dims.last_mut() {
            *last = n;
        }
        let epilogue = Epilogue::new(cx, (&dims, n), BIAS, RESIDUAL)?;
        Ok((dims, epilogue))
    }

    fn run_packed<T: Float<Wide = f32>>(
        &self,
        cx: &mut RunContext<'_>,
        a: &TensorRef<'_>,
        packed: &PackedWeights,
    ) -> Result<(), OpError> {
        let (k, n) = (self.k, self.n);
        let (dims, epilogue) = self.frame::<T>(cx, a)?;
        let workers = cx.workers();
        let a = a.slice::<T>()?;
        let rows = element_count(&dims[..dims.len() - 1])?;
        let convert = |row: usize, to: &mut [f32]| {
            for (to, x) in to.iter_mut().zip(&a[row * k..]) {
                *to = x.widen();
            }
        };
        let given = match T::as_wide(a) {
            Some(a) => Rows::Floats(a),
            None => Rows::Converted(&convert),
        };
        let records = Records::new(packed, T::as_wide(&[]).is_some());
        let room = cx.scratch::<f32>(element_count(&[records.room(), rows])?)?;
        let y = cx.output::<T>(0, &dims)?.into_mut();
        if y.is_empty() {
            return Ok(());
        }
        let y = Columns::new(y, n);
        let panels = 0..packed.panels();
        product(
            workers,
            &records,
            (given, rows),
            panels,
            room,
            &|row, column, sums| {
                // SAFETY: `product` gives each panel to one thread.
                let y = unsafe { y.piece(row, column, sums.len()) };
                epilogue.finish(row, column, sums, y);
            },
        );
        Ok(())
    }

    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, a: &TensorRef<'_>) -> Result<(), OpError> {
        let (k, n) = (self.k, self.n);
        let weights = self.weights::<T>(&|index| cx.input(index))?;
        let (dims, epilogue) = self.frame::<T>(cx, a)?;
        let row = cx.scratch::<T::Wide>(k)?;
        let y = cx.output::<T>(0, &dims)?.into_mut();
        let a = a.slice::<T>()?;
        if y.is_empty() {
            return Ok(());
        }
        for column in 0..n {
            ending::count(k);
            weights.dequantize_row(column, row);
            for (m, y) in y[column..].iter_mut().step_by(n).enumerate() {
                ending::count(k);
                let sum = dot(row, &a[m * k..][..k]);
                epilogue.finish(m, column, &[sum], std::slice::from_mut(y));
            }
        }
        Ok(())
    }
}
