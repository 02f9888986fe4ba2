//! What goes with a Fourier transform, n counting from 0 over `size` elements, d being `size` when
//! periodic and size - 1 when not:
//!
//!   HannWindow        sin^2(pi n / d)
//!   HammingWindow     25/46 - 21/46 cos(2 pi n / d)
//!   BlackmanWindow    0.42 - 0.5 cos(2 pi n / d) + 0.08 cos(4 pi n / d)
//!   MelWeightMatrix   [dft_length / 2 + 1, num_mel_bins]: triangles of height 1 over the bins of
//!                     the spectrum, their corners equally spaced on the scale
//!                     mel(f) = 2595 log10(1 + f / 700)
//!
//! ai.onnx 17. Computed in f64; any numeric type comes out. A window of one element is 1.

use super::Built;
use super::dispatch::{with_float, with_integer, with_number};
use super::number::{Number, Scalar};
use crate::native::element::ElementType;
use crate::native::ending::counted;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Clone, Copy, Debug)]
enum Shape {
    Hann,
    Hamming,
    Blackman,
}

#[derive(Debug)]
struct Window {
    shape: Shape,
    periodic: bool,
    ty: ElementType,
}

fn output_type(node: &NodeInfo<'_>) -> Result<ElementType, OpError> {
    let code = node.int_or("output_datatype", 1)?;
    i32::try_from(code)
        .ok()
        .and_then(ElementType::from_code)
        .ok_or_else(|| OpError::Attribute {
            name: "output_datatype".into(),
            message: format!("is {code}, which is no type"),
        })
}

fn window(node: &NodeInfo<'_>, shape: Shape) -> Built {
    Ok(Box::new(Window {
        shape,
        periodic: node.flag_or("periodic", true)?,
        ty: output_type(node)?,
    }))
}

pub(in crate::native) fn hann_window(node: &NodeInfo<'_>) -> Built {
    window(node, Shape::Hann)
}

pub(in crate::native) fn hamming_window(node: &NodeInfo<'_>) -> Built {
    window(node, Shape::Hamming)
}

pub(in crate::native) fn blackman_window(node: &NodeInfo<'_>) -> Built {
    window(node, Shape::Blackman)
}

/// The only value of a tensor of ints, not negative.
fn count(values: &[i64], what: &str) -> Result<usize, OpError> {
    match values {
        [value] => usize::try_from(*value).ok(),
        _ => None,
    }
    .ok_or_else(|| {
        OpError::Message(format!(
            "{what} is {values:?}, expected one value that is not negative"
        ))
    })
}

impl Shape {
    /// At a part of the turn.
    fn at(self, part: f64) -> f64 {
        use std::f64::consts::{PI, TAU};
        match self {
            Shape::Hann => (PI * part).sin().powi(2),
            Shape::Hamming => 25.0 / 46.0 - 21.0 / 46.0 * (TAU * part).cos(),
            Shape::Blackman => 0.42 - 0.5 * (TAU * part).cos() + 0.08 * (2.0 * TAU * part).cos(),
        }
    }
}

impl Operator for Window {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let size = match cx.known_ints(0)? {
            Some(size) => SymDim::Fixed(count(&size, "size")?),
            None => SymDim::Unknown,
        };
        cx.set_output(0, Some(self.ty), Some(SymDims::from_slice(&[size])));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let size = count(&cx.required(0)?.to_ints()?, "size")?;
        let turn = if self.periodic {
            size
        } else {
            size.saturating_sub(1)
        };
        let value = |n: usize| match turn {
            0 => 1.0,
            turn => self.shape.at(n as f64 / turn as f64),
        };
        with_number!(self.ty, T => {
            cx.output::<T>(0, &[size])?.fill_with(|n| T::narrow(Scalar::from_f64(value(n))));
            Ok(())
        })
    }
}

#[derive(Debug)]
struct MelWeights {
    ty: ElementType,
}

pub(in crate::native) fn mel_weight_matrix(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(MelWeights {
        ty: output_type(node)?,
    }))
}

impl Operator for MelWeights {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let known = |index: usize, of: fn(usize) -> usize| -> Result<SymDim, OpError> {
            Ok(match cx.known_ints(index)? {
                Some(values) => SymDim::Fixed(of(count(&values, "a size")?)),
                None => SymDim::Unknown,
            })
        };
        let dims = [known(1, |length| length / 2 + 1)?, known(0, |bins| bins)?];
        cx.set_output(0, Some(self.ty), Some(SymDims::from_slice(&dims)));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let size = |index: usize, what: &str| count(&cx.required(index)?.to_ints()?, what);
        let (bands, length) = (size(0, "num_mel_bins")?, size(1, "dft_length")?);
        let rate = size(2, "sample_rate")?;
        let (low, high) = (hertz(&cx.required(3)?)?, hertz(&cx.required(4)?)?);
        let bins = length / 2 + 1;
        let mel = |hertz: f64| 2595.0 * (hertz / 700.0).ln_1p() / std::f64::consts::LN_10;
        let step = (mel(high) - mel(low)) / (bands as f64 + 2.0);
        // The bin of a corner; bands share corners.
        let corner = |i: usize| {
            let hertz = 700.0 * ((i as f64 * step + mel(low)) / 2595.0 * std::f64::consts::LN_10).exp_m1();
            ((length as f64 + 1.0) * hertz / rate as f64).floor() as i64
        };
        with_number!(self.ty, T => {
            let y = cx.output::<T>(0, &[bins, bands])?.zeroed();
            for band in 0..if bins == 0 { 0 } else { bands } {
                let (left, centre, right) = (corner(band), corner(band + 1), corner(band + 2));
                if !(0..=right).contains(&left) || right > bins as i64 {
                    return Err(OpError::Message(format!(
                        "band {band} spans bins {left} to {right} of {bins}"
                    )));
                }
                let value = |bin: i64| match bin {
                    bin if bin < centre => (bin - left) as f64 / (centre - left) as f64,
                    bin if bin > centre => (right - bin) as f64 / (right - centre) as f64,
                    _ => 1.0,
                };
                let end = Ord::min(Ord::max(right, centre + 1), bins as i64);
                for bin in counted(left..end) {
                    y[bin as usize * bands + band] = T::narrow(Scalar::from_f64(value(bin)));
                }
            }
            Ok(())
        })
    }
}

/// The only value of a tensor of floats.
fn hertz(tensor: &TensorRef<'_>) -> Result<f64, OpError> {
    with_float!(tensor.element_type(), T => match tensor.slice::<T>()? {
        [value] => Ok(value.widen().to_f64()),
        values => Err(OpError::Message(format!("an edge has {} values, expected one", values.len()))),
    })
}
