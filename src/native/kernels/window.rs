//! The sliding windows of convolutions and pools: attributes, sizes, and which elements of X
//! a window covers.
//!
//!   output = floor((input + pads - ((kernel - 1) dilation + 1)) / stride) + 1
//!
//! or ceil with `ceil_mode`, without windows that would start in the end padding. `auto_pad`:
//! SAME_UPPER and SAME_LOWER pad so that output = ceil(input / stride), the odd element at the
//! end or at the beginning; VALID pads nothing. No size, no output: where the padded input is
//! smaller than a window, the output has no elements.

use smallvec::SmallVec;

use crate::native::infer::{SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::OpError;
use crate::native::tensor::Dims;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AutoPad {
    NotSet,
    SameUpper,
    SameLower,
    Valid,
}

/// The attributes that say where windows lie.
#[derive(Debug)]
pub(super) struct WindowAttributes {
    pub auto_pad: AutoPad,
    pub kernel_shape: Option<Dims>,
    strides: Option<Dims>,
    dilations: Option<Dims>,
    pads: Option<Vec<i64>>,
}

/// A list of positive ints.
fn positive(node: &NodeInfo<'_>, name: &str) -> Result<Option<Dims>, OpError> {
    let Some(values) = node.ints(name)? else {
        return Ok(None);
    };
    let sizes: Option<Dims> = values
        .iter()
        .map(|&value| usize::try_from(value).ok().filter(|&value| value > 0))
        .collect();
    match sizes {
        Some(sizes) => Ok(Some(sizes)),
        None => Err(OpError::Attribute {
            name: name.into(),
            message: format!("is {values:?}, expected positive values"),
        }),
    }
}

pub(super) fn auto_pad(node: &NodeInfo<'_>) -> Result<AutoPad, OpError> {
    match node.string_or("auto_pad", "NOTSET")? {
        "NOTSET" | "" => Ok(AutoPad::NotSet),
        "SAME_UPPER" => Ok(AutoPad::SameUpper),
        "SAME_LOWER" => Ok(AutoPad::SameLower),
        "VALID" => Ok(AutoPad::Valid),
        other => Err(OpError::Attribute {
            name: "auto_pad".into(),
            message: format!("is \"{other}\", expected NOTSET, SAME_UPPER, SAME_LOWER or VALID"),
        }),
    }
}

impl WindowAttributes {
    /// `dilations` and `auto_pad` are asked for where the definition has them.
    pub fn read(node: &NodeInfo<'_>, has_dilations: bool, has_auto_pad: bool) -> Result<Self, OpError> {
        Ok(WindowAttributes {
            auto_pad: if has_auto_pad {
                auto_pad(node)?
            } else {
                AutoPad::NotSet
            },
            kernel_shape: positive(node, "kernel_shape")?,
            strides: positive(node, "strides")?,
            dilations: if has_dilations {
                positive(node, "dilations")?
            } else {
                None
            },
            pads: node.ints("pads")?.map(Into::into),
        })
    }

    /// As [`read`](Self::read), for an operator whose kernel is known from this attribute only.
    pub fn with_kernel(
        node: &NodeInfo<'_>,
        has_dilations: bool,
        has_auto_pad: bool,
    ) -> Result<Self, OpError> {
        let attributes = Self::read(node, has_dilations, has_auto_pad)?;
        match attributes.kernel_shape {
            Some(_) => Ok(attributes),
            None => Err(OpError::Attribute {
                name: "kernel_shape".into(),
                message: "is missing".into(),
            }),
        }
    }

    fn of_axis(list: Option<&Dims>, axis: usize) -> usize {
        list.and_then(|list| list.get(axis)).copied().unwrap_or(1)
    }

    /// Window size, stride, dilation and pads of each of `rank` axes; output sizes are not
    /// known yet. `kernel` is what the weights say, where there are any.
    pub fn axes(&self, rank: usize, kernel: Option<&[usize]>) -> Result<Axes, OpError> {
        let lists = [
            ("kernel_shape", self.kernel_shape.as_ref()),
            ("strides", self.strides.as_ref()),
            ("dilations", self.dilations.as_ref()),
        ];
        for (name, list) in lists {
            if let Some(list) = list.filter(|list| list.len() != rank) {
                return Err(OpError::Attribute {
                    name: name.into(),
                    message: format!("is {list:?}, expected {rank} values"),
                });
            }
        }
        let pads = self.pads.as_deref().unwrap_or_default();
        if !pads.is_empty() && pads.len() != 2 * rank {
            return Err(OpError::Attribute {
                name: "pads".into(),
                message: format!("is {pads:?}, expected {} values", 2 * rank),
            });
        }
        if let (Some(attribute), Some(weights)) = (&self.kernel_shape, kernel)
            && attribute.as_slice() != weights
        {
            return Err(OpError::Attribute {
                name: "kernel_shape".into(),
                message: format!("is {attribute:?}, but the weights have {weights:?}"),
            });
        }
        let kernel = kernel.or(self.kernel_shape.as_deref()).unwrap_or_default();
        (0..rank)
            .map(|axis| {
                let kernel = kernel.get(axis).copied().unwrap_or(1);
                let dilation = Self::of_axis(self.dilations.as_ref(), axis);
                // What is checked here bounds every position that is computed later.
                let extent = kernel
                    .checked_sub(1)
                    .and_then(|steps| steps.checked_mul(dilation))
                    .and_then(|extent| i64::try_from(extent + 1).ok())
                    .filter(|&extent| extent < LIMIT)
                    .ok_or_else(|| too_large("window", kernel as i128 * dilation as i128))?;
                let stride = Self::of_axis(self.strides.as_ref(), axis);
                let pad = |at: usize| pads.get(at).copied().unwrap_or(0);
                let (begin, end) = (pad(axis), pad(axis + rank));
                for value in [begin, end, stride as i64, dilation as i64] {
                    if value.unsigned_abs() >= LIMIT as u64 {
                        return Err(too_large("pad, stride or dilation", value.into()));
                    }
                }
                Ok(Axis {
                    input: 0,
                    kernel,
                    stride,
                    dilation,
                    extent,
                    begin,
                    end,
                    output: 0,
                })
            })
            .collect()
    }

    /// The windows over X of these spatial dims.
    pub fn over(&self, spatial: &[usize], kernel: Option<&[usize]>, ceil: bool) -> Result<Axes, OpError> {
        let mut axes = self.axes(spatial.len(), kernel)?;
        for (axis, &size) in axes.iter_mut().zip(spatial) {
            axis.slide(size, self.auto_pad, ceil)?;
        }
        Ok(axes)
    }

    /// Output dims during inference: of the axes whose size is known.
    pub fn infer(
        &self,
        spatial: &[SymDim],
        kernel: Option<&[SymDim]>,
        ceil: bool,
    ) -> Result<SymDims, OpError> {
        let kernel: Option<Option<Dims>> = kernel.map(|dims| dims.iter().map(|dim| dim.fixed()).collect());
        let kernel = match &kernel {
            Some(None) if self.kernel_shape.is_none() => {
                return Ok(SymDims::from_elem(SymDim::Unknown, spatial.len()));
            }
            Some(Some(kernel)) => Some(kernel.as_slice()),
            _ => None,
        };
        let mut axes = self.axes(spatial.len(), kernel)?;
        axes.iter_mut()
            .zip(spatial)
            .map(|(axis, dim)| match dim {
                SymDim::Fixed(size) => {
                    axis.slide(*size, self.auto_pad, ceil)?;
                    Ok(SymDim::Fixed(axis.output))
                }
                // A window of one element that steps by one changes nothing.
                same if axis.extent == 1 && axis.stride == 1 && (axis.begin, axis.end) == (0, 0) => Ok(*same),
                _ => Ok(SymDim::Unknown),
            })
            .collect()
    }
}

/// Sizes, pads and strides stay below this, so that sums of a few products of a position and
/// a kernel index fit an `i64`.
const LIMIT: i64 = 1 << 40;

fn too_large(what: &str, value: i128) -> OpError {
    OpError::Message(format!("a {what} of {value} is more than is supported"))
}

pub(super) type Axes = SmallVec<[Axis; 3]>;

/// The windows along one axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub input: usize,
    pub kernel: usize,
    pub stride: usize,
    pub dilation: usize,
    /// (kernel - 1) dilation + 1
    pub extent: i64,
    pub begin: i64,
    pub end: i64,
    pub output: usize,
}

impl Axis {
    /// A single window of a single element: the axis that a tensor without spatial dims has.
    pub fn unit() -> Self {
        Axis {
            input: 1,
            kernel: 1,
            stride: 1,
            dilation: 1,
            extent: 1,
            begin: 0,
            end: 0,
            output: 1,
        }
    }

    fn slide(&mut self, input: usize, auto_pad: AutoPad, ceil: bool) -> Result<(), OpError> {
        let size = i64::try_from(input)
            .ok()
            .filter(|&size| size < LIMIT)
            .ok_or_else(|| too_large("dim", input as i128))?;
        self.input = input;
        let stride = self.stride as i64;
        let mut ceil = ceil;
        match auto_pad {
            AutoPad::NotSet => {}
            AutoPad::Valid => {
                (self.begin, self.end) = (0, 0);
                ceil = false;
            }
            AutoPad::SameUpper | AutoPad::SameLower => {
                let output = (size + stride - 1) / stride;
                let total = ((output - 1) * stride + self.extent - size).max(0);
                let half = total / 2;
                (self.begin, self.end) = match auto_pad {
                    AutoPad::SameUpper => (half, total - half),
                    _ => (total - half, half),
                };
                ceil = false;
            }
        }
        let room = size + self.begin + self.end - self.extent;
        let steps = match ceil {
            false => room.div_euclid(stride),
            true => (room + stride - 1).div_euclid(stride),
        };
        let mut output = steps + 1;
        // The last window must start on the input or the padding before it.
        if ceil && output > 0 && (output - 1) * stride >= size + self.begin {
            output -= 1;
        }
        self.output = output.max(0) as usize;
        Ok(())
    }

    /// Where the element of kernel index `tap` of window `output` is; it may be outside.
    pub fn position(&self, output: usize, tap: usize) -> i64 {
        (output * self.stride + tap * self.dilation) as i64 - self.begin
    }

    /// The kernel indices of a window that are on the input.
    pub fn taps(&self, output: usize) -> std::ops::Range<usize> {
        let first = self.position(output, 0);
        let dilation = self.dilation as i64;
        // first + tap * dilation >= 0, and < input
        let start = ((-first).max(0) + dilation - 1) / dilation;
        let end = (self.input as i64 - first + dilation - 1)
            .div_euclid(dilation)
            .max(0);
        let end = end.min(self.kernel as i64);
        start.min(end) as usize..end as usize
    }

    /// The outputs whose element of kernel index `tap` is on the input.
    pub fn outputs(&self, tap: usize) -> std::ops::Range<usize> {
        let first = self.position(0, tap);
        let stride = self.stride as i64;
        let start = ((-first).max(0) + stride - 1) / stride;
        let end = (self.input as i64 - first + stride - 1).div_euclid(stride).max(0);
        let end = end.min(self.output as i64);
        start.min(end) as usize..end as usize
    }
}

/// Output sizes.
pub(super) fn outputs(axes: &[Axis]) -> Dims {
    axes.iter().map(|axis| axis.output).collect()
}

/// Calls `visit` with the offset in X's spatial dims of each element of X that a window covers.
/// `window` are its coordinates.
pub(super) fn visit_window(axes: &[Axis], window: &[usize], visit: &mut impl FnMut(usize)) {
    visit_from(axes, window, 0, visit);
}

fn visit_from(axes: &[Axis], window: &[usize], base: usize, visit: &mut impl FnMut(usize)) {
    let (Some((axis, axes)), Some((&at, window))) = (axes.split_first(), window.split_first()) else {
        visit(base);
        return;
    };
    for tap in axis.taps(at) {
        // Not negative: the tap is on the input.
        visit_from(
            axes,
            window,
            base * axis.input + axis.position(at, tap) as usize,
            visit,
        );
    }
}

/// Advances coordinates in row-major order.
pub(super) fn advance(coordinates: &mut [usize], sizes: impl DoubleEndedIterator<Item = usize>) {
    for (at, size) in coordinates.iter_mut().rev().zip(sizes.rev()) {
        *at += 1;
        if *at < size {
            return;
        }
        *at = 0;
    }
}

/// Batch, channels and spatial dims of X.
pub(super) fn split_dims<D: Copy + std::fmt::Debug>(dims: &[D]) -> Result<(D, D, &[D]), OpError> {
    match dims {
        [batch, channels, spatial @ ..] => Ok((*batch, *channels, spatial)),
        _ => Err(OpError::Message(format!(
            "input 0 has dims {dims:?}, expected a batch, channels and spatial dims"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(kernel: usize, stride: usize, dilation: usize, begin: i64, end: i64) -> Axis {
        Axis {
            kernel,
            stride,
            dilation,
            extent: ((kernel - 1) * dilation + 1) as i64,
            begin,
            end,
            ..Axis::unit()
        }
    }

    #[test]
    fn taps_and_outputs_are_those_on_the_input() {
        for input in 0..7 {
            for (kernel, stride, dilation, begin, end) in [
                (3, 1, 1, 1, 1),
                (3, 2, 2, 2, 0),
                (1, 3, 1, 0, 0),
                (2, 1, 5, 4, 6),
                (3, 2, 1, -1, 2),
            ] {
                let mut axis = axis(kernel, stride, dilation, begin, end);
                axis.slide(input, AutoPad::NotSet, false).expect("small");
                let on_input = |output, tap| (0..input as i64).contains(&axis.position(output, tap));
                for output in 0..axis.output {
                    let taps: Vec<usize> = (0..kernel).filter(|&tap| on_input(output, tap)).collect();
                    assert_eq!(axis.taps(output).collect::<Vec<_>>(), taps, "{axis:?} {output}");
                }
                for tap in 0..kernel {
                    let outputs: Vec<usize> = (0..axis.output).filter(|&at| on_input(at, tap)).collect();
                    assert_eq!(axis.outputs(tap).collect::<Vec<_>>(), outputs, "{axis:?} {tap}");
                }
            }
        }
    }

    #[test]
    fn a_window_larger_than_the_input_gives_nothing() {
        let mut axis = axis(5, 2, 1, 0, 0);
        axis.slide(4, AutoPad::NotSet, false).expect("small");
        assert_eq!(axis.output, 0);
        axis.slide(0, AutoPad::SameUpper, false).expect("small");
        assert_eq!(axis.output, 0);
    }
}
