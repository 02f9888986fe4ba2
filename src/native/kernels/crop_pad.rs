//! CenterCropPad (ai.onnx 18): the middle of X along each axis, or X in the middle of zeros (false, "").
//!
//! An odd element is left out at the end, and added at the end. Any element type.

use super::Built;
use super::dims::{axis, axis_flags, dims_from};
use super::infer::{input_dims, input_type};
use super::moves::Sources;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, Tensor};

#[derive(Debug)]
struct CenterCropPad {
    axes: Option<Vec<i64>>,
}

pub(in crate::native) fn center_crop_pad(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(CenterCropPad {
        axes: node.ints("axes")?.map(Into::into),
    }))
}

impl CenterCropPad {
    /// X's dims with those of the named axes replaced.
    fn result<D: Copy>(&self, dims: &[D], shape: &[D]) -> Result<smallvec::SmallVec<[D; 6]>, OpError> {
        let rank = dims.len();
        let mut result: smallvec::SmallVec<[D; 6]> = dims.into();
        let named = self.axes.as_ref().map_or(rank, Vec::len);
        if shape.len() != named {
            return Err(OpError::Message(format!(
                "a shape of {} dims for {named} axes",
                shape.len()
            )));
        }
        if let Some(axes) = &self.axes {
            axis_flags(axes, rank)?;
        }
        for (i, &dim) in shape.iter().enumerate() {
            let at = match &self.axes {
                Some(axes) => axis(axes[i], rank)?,
                None => i,
            };
            result[at] = dim;
        }
        Ok(result)
    }
}

impl Operator for CenterCropPad {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let shape = cx.known_ints(1)?;
        let dims = match (input_dims(cx, 0), shape) {
            (Some(dims), Some(shape)) => {
                let shape: SymDims = dims_from(&shape)?.into_iter().map(SymDim::Fixed).collect();
                Some(self.result(&dims, &shape)?)
            }
            (Some(dims), None) => Some(SymDims::from_elem(SymDim::Unknown, dims.len())),
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let shape = dims_from(&cx.required(1)?.to_ints()?)?;
        let dims: Dims = self.result(x.dims(), &shape)?;
        let sources = Sources::new(x.dims(), &dims, |axis, at| {
            let (from, to) = (x.dims()[axis], dims[axis]);
            let (cropped, padded) = (from.saturating_sub(to) / 2, to.saturating_sub(from) / 2);
            let at = at.checked_sub(padded)? + cropped;
            (at < from).then_some(at)
        })?;
        let zero = match x.element_type().size() {
            Some(size) => Tensor::from_raw(x.element_type(), &[], &vec![0; size])?,
            None => Tensor::from_strings(&[], vec![String::new()])?,
        };
        sources.copy(cx, &x, &dims, &zero)
    }
}
