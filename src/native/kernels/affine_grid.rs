//! AffineGrid (ai.onnx 20): where GridSample finds each pixel of an image under affine maps.
//!
//!   grid[n, o] = theta[n] (x, y, [z,] 1), with -1 and 1 the ends of an axis of D pixels:
//!   pixel i at (2 i + 1) / D - 1, or with align_corners at 2 i / (D - 1) - 1 (-1 for D = 1)
//!
//!   theta [N, 2, 3] or [N, 3, 4]   size (N, C, [D,] H, W)   grid [N, [D,] H, W, 2 or 3]
//!
//! Floats; float16 and bfloat16 are computed in f32.

use smallvec::SmallVec;

use super::Built;
use super::dims::dims_from;
use super::dispatch::with_float;
use super::infer::input_type;
use super::number::{Float, Scalar};
use crate::native::element::ElementType;
use crate::native::ending::counted;
use crate::native::infer::{InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

#[derive(Debug)]
struct AffineGrid {
    align_corners: bool,
}

pub(in crate::native) fn affine_grid(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(AffineGrid {
        align_corners: node.flag_or("align_corners", false)?,
    }))
}

/// The dims of the grid.
fn grid_dims(size: &[i64]) -> Result<Dims, OpError> {
    let size = dims_from(size)?;
    match size.as_slice() {
        [batch, _, spatial @ ..] if (2..=3).contains(&spatial.len()) => {
            let mut dims = Dims::from_slice(&[*batch]);
            dims.extend_from_slice(spatial);
            dims.push(spatial.len());
            Ok(dims)
        }
        _ => Err(OpError::Message(format!(
            "size is {size:?}, expected (N, C, H, W) or (N, C, D, H, W)"
        ))),
    }
}

impl Operator for AffineGrid {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match cx.known_ints(1)? {
            Some(size) => Some(grid_dims(&size)?.into_iter().map(SymDim::Fixed).collect()),
            None => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let theta = cx.required(0)?;
        with_float!(theta.element_type(), T => self.run_as::<T>(cx, &theta))
    }
}

impl AffineGrid {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, theta: &TensorRef<'_>) -> Result<(), OpError> {
        let dims = grid_dims(&cx.required(1)?.to_ints()?)?;
        let axes = dims.len() - 2;
        if theta.dims() != [dims[0], axes, axes + 1] {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: theta.dims().into(),
                expected: format!("{:?}", [dims[0], axes, axes + 1]),
            });
        }
        let theta = theta.slice::<T>()?;
        let along = |i: usize, size: usize| {
            let (i, size) = (i as f64, size as f64);
            T::Wide::from_f64(match self.align_corners {
                true if size <= 1.0 => -1.0,
                true => 2.0 * i / (size - 1.0) - 1.0,
                false => (2.0 * i + 1.0) / size - 1.0,
            })
        };
        let y = cx.output::<T>(0, &dims)?.into_mut();
        for (pixel, y) in counted(y.chunks_exact_mut(axes)).enumerate() {
            let mut rest = pixel;
            // x is along the last axis.
            let mut position: SmallVec<[T::Wide; 4]> = SmallVec::new();
            for &size in dims[1..=axes].iter().rev() {
                position.push(along(rest % size, size));
                rest /= size;
            }
            position.push(T::Wide::ONE);
            let theta = &theta[rest * axes * (axes + 1)..];
            for (y, row) in y.iter_mut().zip(theta.chunks_exact(axes + 1)) {
                let products = row.iter().zip(&position);
                let sum = products.fold(T::Wide::ZERO, |sum, (a, &b)| {
                    Scalar::multiply_add(a.widen(), b, sum)
                });
                *y = T::narrow(sum);
            }
        }
        Ok(())
    }
}
