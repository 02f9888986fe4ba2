//! MatMulBnb4: Y = A W^T for weights in the 4-bit formats of bitsandbytes, or with transB 0, Y = A W.
//!
//!   A        [..., K], or with transB 0 [..., N]      Y [..., N], or [..., K]
//!   B        [ceil(N K / 2)] of uint8: W [N, K] in row-major order, two elements a byte, the first
//!            in the high bits
//!   absmax   [ceil(N K / block_size)]: what the elements of a block are scaled by
//!
//! w = absmax[block] table[code]; `quant_type` 0 is FP4, a sign and 3 bits for the magnitudes
//! 0, 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4; 1 is NF4, the means of sixteenths of a normal distribution.
//! com.microsoft 1: float, float16, bfloat16 (and double). Sums are in the wide type; one rounding.

use super::Built;
use super::attend::dot;
use super::dispatch::with_float;
use super::number::{Float, Scalar};
use crate::native::element::ElementType;
use crate::native::ending::{self, counted};
use crate::native::infer::{InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

/// With the digits that bitsandbytes writes.
const FP4: [f32; 16] = [
    0.0,
    0.005_208_333_3,
    0.666_666_7,
    1.0,
    0.333_333_34,
    0.5,
    0.166_666_67,
    0.25,
    -0.0,
    -0.005_208_333_3,
    -0.666_666_7,
    -1.0,
    -0.333_333_34,
    -0.5,
    -0.166_666_67,
    -0.25,
];

const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

#[derive(Debug)]
struct MatMulBnb4 {
    k: usize,
    n: usize,
    block_size: usize,
    table: &'static [f32; 16],
    transpose: bool,
}

pub(in crate::native) fn matmul_bnb4(node: &NodeInfo<'_>) -> Built {
    let size = |name: &str| {
        let value = super::required_attribute(name, node.int(name)?)?;
        usize::try_from(value)
            .map_err(|_| super::wrong_attribute(name, format!("is {value}, which is negative")))
    };
    let block_size = size("block_size")?;
    if block_size < 16 || !block_size.is_power_of_two() {
        let message = format!("is {block_size}, expected a power of two, 16 or more");
        return Err(super::wrong_attribute("block_size", message));
    }
    let table = match super::required_attribute("quant_type", node.int("quant_type")?)? {
        0 => &FP4,
        1 => &NF4,
        other => {
            let message = format!("is {other}, expected 0 (FP4) or 1 (NF4)");
            return Err(super::wrong_attribute("quant_type", message));
        }
    };
    // Says whether the model is being trained, which changes nothing here.
    node.int("training_mode")?;
    Ok(Box::new(MatMulBnb4 {
        k: size("K")?,
        n: size("N")?,
        block_size,
        table,
        transpose: node.flag_or("transB", true)?,
    }))
}

impl Operator for MatMulBnb4 {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let a = cx.required(0)?;
        let mut dims = a.dims.clone();
        if let Some(last) = dims.as_mut().and_then(|dims| dims.last_mut()) {
            *last = SymDim::Fixed(if self.transpose { self.n } else { self.k });
        }
        cx.set_output(0, a.ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let a = cx.required(0)?;
        with_float!(a.element_type(), T => self.run_as::<T>(cx, &a))
    }
}

impl MatMulBnb4 {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, a: &TensorRef<'_>) -> Result<(), OpError> {
        let (k, n) = (self.k, self.n);
        let (from, to) = if self.transpose { (k, n) } else { (n, k) };
        if a.dims().last() != Some(&from) {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: a.dims().into(),
                expected: format!("a last dim of {from}"),
            });
        }
        let count = k.checked_mul(n).ok_or_else(|| OpError::TooLarge {
            dims: Dims::from_slice(&[n, k]),
        })?;
        let (data, absmax) = (cx.required(1)?, cx.required(2)?);
        for (tensor, index, expected) in [
            (&data, 1, count.div_ceil(2)),
            (&absmax, 2, count.div_ceil(self.block_size)),
        ] {
            if tensor.len() != expected {
                return Err(OpError::WrongDims {
                    what: format!("input {index}"),
                    found: tensor.dims().into(),
                    expected: format!("{expected} elements in all"),
                });
            }
        }
        let (data, absmax) = (data.slice::<u8>()?, absmax.slice::<T>()?);
        let mut dims: Dims = a.dims().into();
        if let Some(last) = dims.last_mut() {
            *last = to;
        }
        let rows = a.len() / from.max(1);
        let sums = if self.transpose {
            0
        } else {
            rows.saturating_mul(to)
        };
        let scratch = cx.scratch::<T::Wide>(k.saturating_add(sums))?;
        let (row, sums) = scratch.split_at_mut(k);
        let y = cx.output::<T>(0, &dims)?.into_mut();
        let a = a.slice::<T>()?;
        if y.is_empty() {
            return Ok(());
        }
        sums.fill(T::Wide::ZERO);
        for line in 0..n {
            ending::count(k);
            for (i, w) in row.iter_mut().enumerate() {
                let at = line * k + i;
                let code = data[at / 2] >> (4 * (1 - at % 2)) & 15;
                let value = T::Wide::from_f64(self.table[usize::from(code)].into());
                *w = value.mul(absmax[at / self.block_size].widen());
            }
            if self.transpose {
                for (m, y) in y[line..].iter_mut().step_by(n).enumerate() {
                    ending::count(k);
                    *y = T::narrow(dot(row, &a[m * k..][..k]));
                }
                continue;
            }
            for (m, sums) in sums.chunks_exact_mut(k.max(1)).enumerate() {
                ending::count(k);
                let x = a[m * n + line].widen();
                for (sum, &w) in sums.iter_mut().zip(row.iter()) {
                    *sum = Scalar::multiply_add(x, w, *sum);
                }
            }
        }
        for (y, &sum) in counted(y).zip(sums.iter()) {
            *y = T::narrow(sum);
        }
        Ok(())
    }
}
