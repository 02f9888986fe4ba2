//! MaxUnpool: the elements of X where MaxPool found them, and zeros elsewhere.
//!
//!   output = (input - 1) stride + kernel - begin - end;  y[I[i]] = x[i], I counting over Y
//!
//! Input 2, if there, is the shape of the result, at whose beginning along each axis that Y lies.
//! ai.onnx 9, 11, 22. Floats.

use super::Built;
use super::dims::dims_from;
use super::infer::{input_dims, input_type};
use super::window::{WindowAttributes, split_dims};
use crate::native::ending::counted;
use crate::native::infer::{InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, element_count};

#[derive(Debug)]
struct MaxUnpool {
    window: WindowAttributes,
}

pub(in crate::native) fn max_unpool(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(MaxUnpool {
        window: WindowAttributes::with_kernel(node, false, false)?,
    }))
}

impl MaxUnpool {
    fn result(&self, dims: &[usize]) -> Result<Dims, OpError> {
        let (batch, channels, spatial) = split_dims(dims)?;
        let mut result = Dims::from_slice(&[batch, channels]);
        for (axis, &size) in self.window.axes(spatial.len(), None)?.iter().zip(spatial) {
            let steps = (size as i128 - 1) * axis.stride as i128;
            let output = steps + axis.kernel as i128 - i128::from(axis.begin) - i128::from(axis.end);
            result.push(
                usize::try_from(output)
                    .map_err(|_| OpError::Message(format!("the pads leave {output} elements of a dim")))?,
            );
        }
        Ok(result)
    }
}

impl Operator for MaxUnpool {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        cx.required(1)?;
        let fixed = cx.required(0)?.fixed_dims();
        let dims = match (cx.input(2), cx.known_ints(2)?, fixed) {
            (Some(_), Some(shape), _) => Some(dims_from(&shape)?),
            (None, _, Some(dims)) => Some(self.result(&dims)?),
            _ => None,
        };
        let unknown = input_dims(cx, 0).map(|dims| dims.iter().map(|_| SymDim::Unknown).collect());
        let dims = dims.map(|dims| dims.into_iter().map(SymDim::Fixed).collect());
        cx.set_output(0, input_type(cx, 0), dims.or(unknown));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, indices) = (cx.required(0)?, cx.required(1)?);
        if x.dims() != indices.dims() {
            return Err(OpError::WrongDims {
                what: "input 1".into(),
                found: indices.dims().into(),
                expected: format!("{:?}, those of input 0", x.dims()),
            });
        }
        let inner = self.result(x.dims())?;
        let dims = match cx.input(2) {
            Some(shape) => dims_from(&shape.to_ints()?)?,
            None => inner.clone(),
        };
        let fits = dims.len() == inner.len() && inner.iter().zip(&dims).all(|(inner, dim)| inner <= dim);
        if !fits {
            return Err(OpError::Message(format!(
                "output_shape is {dims:?}, which does not hold the {inner:?} of the windows"
            )));
        }
        let count = element_count(&inner)?;
        let size = x.element_type().size().unwrap_or(1);
        let bytes = x.bytes()?;
        let y = cx.output_bytes(0, x.element_type(), &dims)?.zeroed();
        for (x, &index) in counted(bytes.chunks_exact(size)).zip(indices.slice::<i64>()?) {
            let mut rest = usize::try_from(index)
                .ok()
                .filter(|&index| index < count)
                .ok_or_else(|| {
                    OpError::Message(format!("index {index} is none of the {count} of {inner:?}"))
                })?;
            let (mut at, mut step) = (0, 1);
            for (&inner, &dim) in inner.iter().zip(&dims).rev() {
                at += rest % inner * step;
                rest /= inner;
                step *= dim;
            }
            y[at * size..][..size].copy_from_slice(x);
        }
        Ok(())
    }
}
