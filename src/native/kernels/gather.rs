//! Gather: y[..., i..., ...] = x[..., indices[i...], ...] along `axis`, any element type.
//!
//!   x [p..., size, q...]   indices [i...] of int32 or int64   y [p..., i..., q...]
//!
//! Negative indices count from the end; one outside [-size, size) is an error.
//! ai.onnx 1, 11, 13.

use super::Built;
use super::dims::{Integers, axis, position};
use super::infer::input_type;
use super::moves::gather_each;
use crate::native::ending::counted;
use crate::native::infer::{InferContext, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::Dims;

#[derive(Debug)]
struct Gather {
    axis: i64,
}

pub(in crate::native) fn gather(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Gather {
        axis: node.int_or("axis", 0)?,
    }))
}

impl Operator for Gather {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (x, indices) = (cx.required(0)?, cx.required(1)?);
        let dims = match (&x.dims, &indices.dims) {
            (Some(from), Some(indices)) => {
                let axis = axis(self.axis, from.len())?;
                let dims: SymDims = from[..axis]
                    .iter()
                    .chain(indices)
                    .chain(&from[axis + 1..])
                    .copied()
                    .collect();
                Some(dims)
            }
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, indices) = (cx.required(0)?, cx.required(1)?);
        let axis = axis(self.axis, x.rank())?;
        let (before, size, after) = (&x.dims()[..axis], x.dims()[axis], &x.dims()[axis + 1..]);
        let dims: Dims = before
            .iter()
            .chain(indices.dims())
            .chain(after)
            .copied()
            .collect();
        let given = indices.to_ints()?;
        let mut positions = Integers::new();
        let bytes = given.len().saturating_mul(size_of::<i64>());
        positions
            .try_reserve_exact(given.len())
            .map_err(|_| OpError::OutOfMemory { bytes })?;
        for (i, &index) in counted(&given).enumerate() {
            match position(index, size) {
                Some(at) => positions.push(at as i64),
                None => {
                    return Err(OpError::Message(format!(
                        "index {index} (element {i} of input 1) is out of range for axis {axis} of shape {:?}",
                        x.dims()
                    )));
                }
            }
        }
        let inner: usize = after.iter().product();
        let count = positions.len();
        gather_each(cx, &x, &dims, inner, &|i| {
            (i / count * size + positions[i % count] as usize) * inner
        })
    }
}
