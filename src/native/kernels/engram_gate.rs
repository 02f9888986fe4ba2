//! EngramGate: how much of a value that was looked up each hyper-connection takes.
//!
//!   dot  = sum over h of norm(key)[m, h] norm(query)[m, h] / sqrt(H), norms by RMSNormalization with
//!          scales key_norm_scale and query_norm_scale [M, H]
//!   gate = sigmoid(sign(dot) sqrt(max(|dot|, 1e-6)))
//!   Y[m, h] = gate[m] value[h], and output 1 the RMSNormalization of Y with conv_norm_scale [M, H]
//!
//!   key, query, Y  [batch, positions, M, H]   value  [batch, positions, H]
//!
//! com.microsoft 1: float, float16, bfloat16 (and double). In the wide type; one rounding of each
//! output.

use super::Built;
use super::dispatch::with_float;
use super::gated::inverse_root;
use super::group_query_attention::wrong_dims;
use super::infer::{input_dims, input_type};
use super::number::{Float, Real, Scalar};
use super::unary::sigmoid_of;
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{TensorRef, element_count};

#[derive(Debug)]
struct EngramGate {
    epsilon: f32,
}

pub(in crate::native) fn engram_gate(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(EngramGate {
        epsilon: node.float_or("epsilon", 1e-5)?,
    }))
}

impl Operator for EngramGate {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (ty, dims) = (input_type(cx, 0), input_dims(cx, 0));
        cx.set_output(0, ty, dims.clone());
        cx.set_output(1, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let key = cx.required(0)?;
        with_float!(key.element_type(), T => self.run_as::<T>(cx, &key))
    }
}

impl EngramGate {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, key: &TensorRef<'_>) -> Result<(), OpError> {
        let &[batch, positions, streams, width] = key.dims() else {
            return Err(wrong_dims(0, key, "rank 4"));
        };
        let input = |index: usize, expected: &[usize]| -> Result<_, OpError> {
            let tensor = cx.required(index)?;
            match tensor.dims() == expected {
                true => tensor.slice::<T>(),
                false => Err(wrong_dims(index, &tensor, format!("{expected:?}"))),
            }
        };
        let query = input(1, key.dims())?;
        let value = input(2, &[batch, positions, width])?;
        let scale = |index: usize| input(index, &[streams, width]);
        let (key_scale, query_scale) = (scale(3)?, scale(4)?);
        let normed = match cx.output_used(1) {
            true => Some(scale(5)?),
            false => None,
        };
        let rows = element_count(&[batch, positions, streams])?;
        let gates = cx.scratch::<T::Wide>(rows)?;
        let (dims, key) = (key.dims(), key.slice::<T>()?);
        let root = T::Wide::from_f64((width as f64).sqrt());
        for (row, gate) in gates.iter_mut().enumerate() {
            ending::count(width);
            let own = row * width..(row + 1) * width;
            let (key, query) = (&key[own.clone()], &query[own]);
            let (key_root, query_root) = (inverse_root(key, self.epsilon), inverse_root(query, self.epsilon));
            let of_stream = row % streams * width;
            let dot = (0..width).fold(T::Wide::ZERO, |sum, h| {
                let k = key[h].widen().mul(key_root).mul(key_scale[of_stream + h].widen());
                let q = query[h]
                    .widen()
                    .mul(query_root)
                    .mul(query_scale[of_stream + h].widen());
                sum.add(k.mul(q))
            });
            let dot = dot.div(root);
            let size = Scalar::max(Scalar::abs(dot), T::Wide::from_f64(1e-6)).sqrt();
            let signed = match dot.partial_cmp(&T::Wide::ZERO) {
                Some(std::cmp::Ordering::Less) => size.neg(),
                Some(std::cmp::Ordering::Equal) => T::Wide::ZERO,
                _ => size,
            };
            *gate = sigmoid_of(signed);
        }
        let gated = |i: usize| {
            let (row, h) = (i / width, i % width);
            gates[row].mul(value[row / streams * width + h].widen())
        };
        if cx.output_used(0) {
            cx.output::<T>(0, dims)?.fill_with(|i| T::narrow(gated(i)));
        }
        if let Some(scale) = normed {
            let y = cx.output::<T>(1, dims)?.into_mut();
            for (row, y) in y.chunks_exact_mut(width.max(1)).enumerate() {
                ending::count(width);
                let squares = (0..width).map(|h| {
                    let x = gated(row * width + h);
                    x.mul(x)
                });
                let mean = squares
                    .fold(T::Wide::ZERO, Scalar::add)
                    .div(T::Wide::from_f64(width as f64));
                let root = mean.add(T::Wide::from_f64(self.epsilon.into())).sqrt();
                for (h, y) in y.iter_mut().enumerate() {
                    let scale = scale[row % streams * width + h].widen();
                    *y = T::narrow(gated(row * width + h).div(root).mul(scale));
                }
            }
        }
        Ok(())
    }
}
