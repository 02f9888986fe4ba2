//! Hyper-connections: C streams of features in place of one.
//!
//!   HyperConnectionPreMix(X, pre_mix)
//!     y[h] = reduction_scale sum over c of x[c, h] pre_mix[c], or of pre_mix[c, h]
//!   HyperConnectionPostMix(X, block_output, post_mix, stream_mix)
//!     y[k, h] = sum over c of stream_mix[c, k] x[c, h] + post_mix[k] block_output[h], or post_mix[k, h];
//!     without stream_mix x[k, h] in place of the sum
//!
//! for each row of X [..., C, H], or with `num_branches` [..., C H]; the mixes are [..., C], [..., C, 1],
//! [..., C, H] or [..., C H], stream_mix [..., C, C], block_output [..., H].
//!
//! com.microsoft 1: float, float16, bfloat16 (and double), the mixes perhaps of another of them. In
//! the wide type, one rounding.

use super::Built;
use super::dispatch::with_float;
use super::gated::{branched, branches};
use super::group_query_attention::wrong_dims;
use super::infer::{input_dims, input_type, like_first_input};
use super::number::{Float, Number, Scalar};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

/// Rows, branches and features of X.
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    branches: usize,
    features: usize,
}

impl Sizes {
    fn new(x: &TensorRef<'_>, branches: usize) -> Result<Self, OpError> {
        let (branches, features) = branched(x.dims(), branches)?;
        let row = branches.saturating_mul(features);
        Ok(Sizes {
            rows: x.len().checked_div(row).unwrap_or(0),
            branches,
            features,
        })
    }

    /// The elements of a mix, and how many of them go with each branch of a row.
    fn mix<'a, M: Number>(&self, mix: &TensorRef<'a>, index: usize) -> Result<(&'a [M], usize), OpError> {
        let gates = self.rows.saturating_mul(self.branches);
        match mix.len() {
            len if len == gates => Ok((mix.slice()?, 1)),
            len if len == gates.saturating_mul(self.features) => Ok((mix.slice()?, self.features)),
            _ => Err(wrong_dims(
                index,
                mix,
                format!(
                    "1 or {} elements for each of {} branches of {} rows",
                    self.features, self.branches, self.rows
                ),
            )),
        }
    }
}

#[derive(Debug)]
struct PreMix {
    branches: usize,
    scale: f32,
}

pub(in crate::native) fn pre_mix(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(PreMix {
        branches: branches(node)?,
        scale: node.float_or("reduction_scale", 1.0)?,
    }))
}

impl Operator for PreMix {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match (input_dims(cx, 0), self.branches) {
            (Some(mut dims), 0) if dims.len() >= 2 => {
                let at = dims.len() - 2;
                dims.remove(at);
                Some(dims)
            }
            (Some(mut dims), branches @ 1..) => {
                if let Some(last) = dims.last_mut() {
                    *last = match *last {
                        SymDim::Fixed(size) => SymDim::Fixed(size / branches),
                        _ => SymDim::Unknown,
                    };
                }
                Some(dims)
            }
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, mix) = (cx.required(0)?, cx.required(1)?);
        with_float!(mix.element_type(), M => {
            with_float!(x.element_type(), T => self.run_as::<T, M>(cx, &x, &mix))
        })
    }
}

impl PreMix {
    fn run_as<T: Float, M: Float>(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        mix: &TensorRef<'_>,
    ) -> Result<(), OpError> {
        let sizes = Sizes::new(x, self.branches)?;
        let Sizes {
            branches, features, ..
        } = sizes;
        let (mix, per_branch) = sizes.mix::<M>(mix, 1)?;
        let mut dims: Dims = x.dims().into();
        if self.branches == 0 {
            dims.remove(dims.len() - 2);
        } else if let Some(last) = dims.last_mut() {
            *last = features;
        }
        let x = x.slice::<T>()?;
        let scale = T::Wide::from_f64(self.scale.into());
        cx.output::<T>(0, &dims)?.fill_with(|i| {
            let (row, h) = (i / features, i % features);
            ending::count(branches);
            let terms = (0..branches).map(|c| {
                let branch = row * branches + c;
                let gate = mix[branch * per_branch + h % per_branch].widen().to_f64();
                x[branch * features + h].widen().mul(T::Wide::from_f64(gate))
            });
            T::narrow(terms.fold(T::Wide::ZERO, Scalar::add).mul(scale))
        });
        Ok(())
    }
}

#[derive(Debug)]
struct PostMix {
    branches: usize,
}

pub(in crate::native) fn post_mix(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(PostMix {
        branches: branches(node)?,
    }))
}

impl Operator for PostMix {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, mix) = (cx.required(0)?, cx.required(2)?);
        with_float!(mix.element_type(), M => {
            with_float!(x.element_type(), T => self.run_as::<T, M>(cx, &x, &mix))
        })
    }
}

impl PostMix {
    fn run_as<T: Float, M: Float>(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        mix: &TensorRef<'_>,
    ) -> Result<(), OpError> {
        let sizes = Sizes::new(x, self.branches)?;
        let Sizes {
            rows,
            branches,
            features,
        } = sizes;
        let (mix, per_branch) = sizes.mix::<M>(mix, 2)?;
        let block = cx.required(1)?;
        if block.len() != rows.saturating_mul(features) {
            return Err(wrong_dims(
                1,
                &block,
                format!("{features} elements for each of {rows} rows"),
            ));
        }
        let streams = match cx.input(3) {
            Some(streams) if streams.len() == rows.saturating_mul(branches).saturating_mul(branches) => {
                Some(streams.slice::<M>()?)
            }
            Some(streams) => {
                let expected = format!("{branches} x {branches} elements for each of {rows} rows");
                return Err(wrong_dims(3, &streams, expected));
            }
            None => None,
        };
        let output = cx.output::<T>(0, x.dims())?;
        let (x, block) = (x.slice::<T>()?, block.slice::<T>()?);
        let wide = |x: M| T::Wide::from_f64(x.widen().to_f64());
        output.fill_with(|i| {
            let (row, k, h) = (i / (branches * features), i / features % branches, i % features);
            let old = match streams {
                None => x[i].widen(),
                Some(streams) => (0..branches)
                    .map(|c| {
                        let weight = wide(streams[(row * branches + c) * branches + k]);
                        weight.mul(x[(row * branches + c) * features + h].widen())
                    })
                    .fold(T::Wide::ZERO, Scalar::add),
            };
            let gate = wide(mix[(row * branches + k) * per_branch + h % per_branch]);
            T::narrow(old.add(gate.mul(block[row * features + h].widen())))
        });
        Ok(())
    }
}
