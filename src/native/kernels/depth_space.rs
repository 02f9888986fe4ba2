//! Blocks of pixels moved between the channels and the image, with b the block size:
//!
//!   DepthToSpace   X [N, C, H, W] -> Y [N, C / b^2, H b, W b]
//!                  DCR: channel (i b + j) C/b^2 + c, CRD: channel c b^2 + i b + j
//!                  is pixel (i, j) of the blocks of channel c
//!   SpaceToDepth   the inverse
//!
//! ai.onnx: DepthToSpace 1 (DCR), 11, 13, 28; SpaceToDepth 1, 13 (DCR), 28. Any element type.

use super::Built;
use super::infer::{input_dims, input_type};
use super::moves::gather_runs;
use super::strided::{Strided, dense_strides};
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::element_count;

#[derive(Debug)]
struct DepthSpace {
    to_space: bool,
    block: usize,
    /// The channel varies faster than the pixel of the block.
    depth_first: bool,
}

fn build(node: &NodeInfo<'_>, to_space: bool, has_mode: bool) -> Built {
    let mode = if has_mode {
        node.string_or("mode", "DCR")?
    } else {
        "DCR"
    };
    let depth_first = match mode {
        "DCR" => true,
        "CRD" => false,
        other => {
            return Err(OpError::Attribute {
                name: "mode".into(),
                message: format!("is \"{other}\", expected DCR or CRD"),
            });
        }
    };
    Ok(Box::new(DepthSpace {
        to_space,
        block: super::conv::group(node, "blocksize")?,
        depth_first,
    }))
}

pub(in crate::native) fn depth_to_space(node: &NodeInfo<'_>) -> Built {
    build(node, true, node.since >= 11)
}

pub(in crate::native) fn space_to_depth(node: &NodeInfo<'_>) -> Built {
    build(node, false, node.since >= 28)
}

impl DepthSpace {
    /// Dims of Y.
    fn result(&self, dims: [usize; 4]) -> Result<[usize; 4], OpError> {
        let b = self.block;
        let wrong = || OpError::Message(format!("dims {dims:?} do not come in blocks of {b}"));
        let [n, c, h, w] = dims;
        let area = b.checked_mul(b).ok_or_else(wrong)?;
        let times = |dim: usize, by: usize| dim.checked_mul(by).ok_or_else(wrong);
        match self.to_space {
            true if c % area == 0 => Ok([n, c / area, times(h, b)?, times(w, b)?]),
            false if h % b == 0 && w % b == 0 => Ok([n, times(c, area)?, h / b, w / b]),
            _ => Err(wrong()),
        }
    }
}

fn four<D: Copy + std::fmt::Debug>(dims: &[D]) -> Result<[D; 4], OpError> {
    dims.try_into()
        .map_err(|_| OpError::Message(format!("input 0 has dims {dims:?}, expected [N, C, H, W]")))
}

impl Operator for DepthSpace {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match input_dims(cx, 0) {
            Some(dims) => {
                let [n, c, h, w] = four(&dims)?;
                // A dim that is not known is scaled as if it were one that fits.
                let known = |dim: SymDim| dim.fixed().unwrap_or(0);
                let result = self.result([known(n), known(c), known(h), known(w)])?;
                let scaled =
                    |from: SymDim, to: usize| from.fixed().map_or(SymDim::Unknown, |_| SymDim::Fixed(to));
                let mut dims = SymDims::from_slice(&[n]);
                dims.extend([scaled(c, result[1]), scaled(h, result[2]), scaled(w, result[3])]);
                Some(dims)
            }
            None => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let [n, c, h, w] = four(x.dims())?;
        let b = self.block;
        let result = self.result([n, c, h, w])?;
        element_count(&result)?;
        // Y as [n, c, h, i, w, j] of blocks, or [n, i, j, c, h, w]: which dims of X those are.
        let (from, order): ([usize; 6], [usize; 6]) = match (self.to_space, self.depth_first) {
            (true, true) => ([n, b, b, result[1], h, w], [0, 3, 4, 1, 5, 2]),
            (true, false) => ([n, result[1], b, b, h, w], [0, 1, 4, 2, 5, 3]),
            (false, true) => ([n, c, result[2], b, result[3], b], [0, 3, 5, 1, 2, 4]),
            (false, false) => ([n, c, result[2], b, result[3], b], [0, 1, 3, 5, 2, 4]),
        };
        let strides = dense_strides(&from);
        let dims = order.map(|axis| from[axis]);
        let strides = order.map(|axis| strides[axis]);
        gather_runs(cx, &x, &result, &Strided::new(&dims, [&strides], [0]))
    }
}
