//! OneHot(I, depth, [off, on]): a new dim of size `depth`, at `axis` of the result (the last one by
//! default), in which y[i..., j] is on where j = I[i...], else off.
//!
//! Negative indices count from the end; one outside [-depth, depth) gives off everywhere. I and
//! depth are any numbers, truncated to integers; the values are of any type. ai.onnx 9, 11, 28.

use super::Built;
use super::dims::{axis, not_one_element, position};
use super::dispatch::{with_integer, with_number};
use super::infer::input_type;
use super::moves::gather_starts;
use super::number::{Number, Scalar};
use crate::native::element::ElementType;
use crate::native::ending::counted;
use crate::native::infer::{InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

#[derive(Debug)]
struct OneHot {
    axis: i64,
}

pub(in crate::native) fn one_hot(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(OneHot {
        axis: node.int_or("axis", -1)?,
    }))
}

/// The size of the new dim.
fn depth_of(depth: &TensorRef<'_>) -> Result<usize, OpError> {
    let value = with_number!(depth.element_type(), T => match depth.slice::<T>()? {
        &[only] => Ok(only.widen().to_f64()),
        _ => Err(not_one_element(depth, 1)),
    })?;
    match value >= 0.0 {
        true => Ok(value as usize),
        false => Err(OpError::Message(format!("depth is {value}, expected 0 or more"))),
    }
}

impl Operator for OneHot {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (indices, depth) = (cx.required(0)?, cx.required(1)?);
        let depth = match depth.value().filter(|depth| depth.len() == 1) {
            Some(depth) => SymDim::Fixed(depth_of(&depth)?),
            None => SymDim::Unknown,
        };
        let dims = match &indices.dims {
            Some(dims) => {
                let mut dims = dims.clone();
                dims.insert(axis(self.axis, dims.len() + 1)?, depth);
                Some(dims)
            }
            None => None,
        };
        cx.set_output(0, input_type(cx, 2), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (indices, depth, values) = (cx.required(0)?, cx.required(1)?, cx.required(2)?);
        let depth = depth_of(&depth)?;
        if values.dims() != [2] {
            return Err(OpError::WrongDims {
                what: "input 2".into(),
                found: values.dims().into(),
                expected: "[2]".into(),
            });
        }
        let axis = axis(self.axis, indices.rank() + 1)?;
        let mut dims: Dims = indices.dims().into();
        dims.insert(axis, depth);
        let hot = cx.scratch::<i64>(indices.len())?;
        with_number!(indices.element_type(), T => {
            for (hot, index) in counted(hot.iter_mut()).zip(indices.slice::<T>()?) {
                let at = position(index.widen().to_f64() as i64, depth);
                *hot = at.map_or(-1, |at| at as i64);
            }
            Ok(())
        })?;
        let inner = match indices.is_empty() {
            true => 1,
            false => indices.dims()[axis..].iter().product(),
        };
        // Element 0 of the values is off, element 1 on.
        let choices = hot.chunks_exact(inner).flat_map(|block| {
            (0..depth).flat_map(move |j| block.iter().map(move |&at| usize::from(at == j as i64)))
        });
        gather_starts(cx, 0, &values, &dims, 1, choices)
    }
}
