//! Normalisation over chosen axes:
//!
//!   MeanVarianceNormalization    y = (x - mean) / (sqrt(E x^2 - mean^2) + 1e-9) over `axes`
//!   LpNormalization              y = x / norm, the norm of order p (1 or 2) along `axis`; 0 where it is 0
//!
//! ai.onnx: MeanVarianceNormalization 9, 13; LpNormalization 1, 22. Floats; float16 and bfloat16 in
//! f32, each y rounded once.

use super::Built;
use super::dims::{axis, axis_flags};
use super::dispatch::with_float;
use super::infer::like_first_input;
use super::number::{Float, Real, Scalar};
use super::strided::{Strided, Strides, dense_strides};
use crate::native::element::ElementType;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    MeanVariance,
    L1,
    L2,
}

#[derive(Debug)]
struct AxisNorm {
    kind: Kind,
    axes: Vec<i64>,
}

pub(in crate::native) fn mean_variance_normalization(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(AxisNorm {
        kind: Kind::MeanVariance,
        axes: node.ints("axes")?.unwrap_or(&[0, 2, 3]).to_vec(),
    }))
}

pub(in crate::native) fn lp_normalization(node: &NodeInfo<'_>) -> Built {
    let kind = match node.int_or("p", 2)? {
        1 => Kind::L1,
        2 => Kind::L2,
        other => {
            return Err(OpError::Attribute {
                name: "p".into(),
                message: format!("is {other}, expected 1 or 2"),
            });
        }
    };
    Ok(Box::new(AxisNorm {
        kind,
        axes: vec![node.int_or("axis", -1)?],
    }))
}

impl Operator for AxisNorm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        if let Some(rank) = cx.required(0)?.rank() {
            self.axes.iter().try_for_each(|&at| axis(at, rank).map(drop))?;
        }
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl AxisNorm {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let dims = x.dims();
        let reduced = axis_flags(&self.axes, dims.len())?;
        let strides = dense_strides(dims);
        let walk = |which: bool| {
            let picked = dims
                .iter()
                .zip(&strides)
                .zip(&reduced)
                .filter(|(_, r)| **r == which);
            let (dims, strides): (Dims, Strides) = picked.map(|((&dim, &stride), _)| (dim, stride)).unzip();
            Strided::new(&dims, [&strides], [0])
        };
        let (groups, group) = (walk(false), walk(true));
        let x = x.slice::<T>()?;
        let y = cx.output::<T>(0, dims)?.into_mut();
        // Groups of nothing, of which there may be any number.
        if x.is_empty() {
            return Ok(());
        }
        groups.for_each(&mut |[base]| {
            let fold = |step: &dyn Fn(T::Wide, T::Wide) -> T::Wide| {
                let mut sum = T::Wide::ZERO;
                group.for_each(&mut |[at]| sum = step(sum, x[base + at].widen()));
                sum
            };
            let (mean, divisor) = match self.kind {
                Kind::L1 => (T::Wide::ZERO, fold(&|sum, x| sum.add(Scalar::abs(x)))),
                Kind::L2 => (T::Wide::ZERO, Real::sqrt(fold(&|sum, x| sum.add(x.mul(x))))),
                Kind::MeanVariance => {
                    let count = fold(&|sum, _| sum.add(T::Wide::ONE));
                    let mean = fold(&Scalar::add).div(count);
                    let variance = fold(&|sum, x| sum.add(x.sub(mean).mul(x.sub(mean)))).div(count);
                    (mean, Real::sqrt(variance).add(T::Wide::from_f64(1e-9)))
                }
            };
            group.for_each(&mut |[at]| {
                let x = x[base + at].widen();
                y[base + at] = T::narrow(match divisor == T::Wide::ZERO {
                    true => T::Wide::ZERO,
                    false => x.sub(mean).div(divisor),
                });
            });
        });
        Ok(())
    }
}
