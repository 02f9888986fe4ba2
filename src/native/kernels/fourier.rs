//! Fourier transforms of real signals [..., 1] or complex ones [..., 2] (see `fft`), in f64:
//!
//!   DFT    along an axis, of dft_length elements (zeros are added, or elements left out);
//!          inverse with a factor 1 / dft_length; onesided gives the first dft_length / 2 + 1
//!          bins, and with inverse takes them and gives a real signal [..., 1]
//!   STFT   signal [B, L, 1 or 2] -> [B, frames, bins, 2]: the transform of each window of
//!          frame_length elements, frame_step apart, times `window`
//!
//! ai.onnx: DFT 17 (axis is an attribute, 1), 20 (an input, -2); STFT 17. Floats.

use super::Built;
use super::dims::axis;
use super::dispatch::with_float;
use super::fft::Fft;
use super::infer::{input_dims, input_type};
use super::number::{Float, Scalar};
use crate::native::element::{Complex128, ElementType};
use crate::native::ending::{self, counted};
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

#[derive(Debug)]
struct Dft {
    /// `None`: an input.
    axis: Option<i64>,
    inverse: bool,
    onesided: bool,
}

pub(in crate::native) fn dft(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Dft {
        axis: match node.since {
            20.. => None,
            _ => Some(node.int_or("axis", 1)?),
        },
        inverse: node.flag_or("inverse", false)?,
        onesided: node.flag_or("onesided", false)?,
    }))
}

/// The only value of a tensor of ints.
fn scalar(values: &[i64], what: &str) -> Result<i64, OpError> {
    match values {
        [value] => Ok(*value),
        _ => Err(OpError::Message(format!(
            "{what} has {} elements, expected one",
            values.len()
        ))),
    }
}

fn size(value: i64, what: &str) -> Result<usize, OpError> {
    usize::try_from(value)
        .ok()
        .filter(|&size| size > 0)
        .ok_or_else(|| OpError::Message(format!("{what} is {value}, expected a positive value")))
}

impl Dft {
    /// The axis of a tensor of this rank, whose last dim holds the parts of a number.
    fn signal_axis(&self, given: Option<i64>, rank: usize) -> Result<usize, OpError> {
        let given = self.axis.or(given).unwrap_or(-2);
        axis(given, rank)
            .ok()
            .filter(|at| at + 1 < rank)
            .ok_or_else(|| OpError::Message(format!("axis {given} is no signal axis for rank {rank}")))
    }

    fn length(&self, given: Option<i64>, dim: usize) -> Result<usize, OpError> {
        match given {
            Some(given) => size(given, "dft_length"),
            None if self.inverse && self.onesided => Ok(dim.saturating_sub(1).saturating_mul(2)),
            None => Ok(dim),
        }
    }

    /// Elements of the result along the axis, and parts of each.
    fn result(&self, length: usize) -> (usize, usize) {
        match (self.onesided, self.inverse) {
            (true, false) if length > 0 => (length / 2 + 1, 2),
            (true, true) => (length, 1),
            _ => (length, 2),
        }
    }
}

impl Operator for Dft {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let axis_known = self.axis.is_some() || cx.input(2).is_none();
        let given_axis = cx
            .known_ints(2)?
            .map(|values| scalar(&values, "axis"))
            .transpose()?;
        let given = cx
            .known_ints(1)?
            .map(|values| scalar(&values, "dft_length"))
            .transpose()?;
        let dims = match input_dims(cx, 0) {
            Some(mut dims) if axis_known || given_axis.is_some() => {
                let at = self.signal_axis(given_axis, dims.len())?;
                let length = match (cx.input(1), given, dims[at]) {
                    (Some(_), Some(_), _) => Some(self.length(given, 0)?),
                    (None, _, SymDim::Fixed(dim)) => Some(self.length(None, dim)?),
                    _ => None,
                };
                dims[at] = match length {
                    Some(length) => SymDim::Fixed(self.result(length).0),
                    None if cx.input(1).is_none() && !self.onesided => dims[at],
                    None => SymDim::Unknown,
                };
                if let Some(last) = dims.last_mut() {
                    *last = SymDim::Fixed(self.result(1).1);
                }
                Some(dims)
            }
            Some(dims) => Some(SymDims::from_elem(SymDim::Unknown, dims.len())),
            None => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

/// A number of one or two parts.
fn number<T: Float>(parts: &[T]) -> Complex128 {
    let part = |i: usize| parts.get(i).map_or(0.0, |part| part.widen().to_f64());
    Complex128 {
        re: part(0),
        im: part(1),
    }
}

fn narrow<T: Float>(value: f64) -> T {
    T::narrow(Scalar::from_f64(value))
}

fn parts_of(dims: &[usize]) -> Result<usize, OpError> {
    match dims.last() {
        Some(&parts @ (1 | 2)) => Ok(parts),
        _ => Err(OpError::WrongDims {
            what: "input 0".into(),
            found: dims.into(),
            expected: "a last dim of 1 or 2, the parts of a number".into(),
        }),
    }
}

impl Dft {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let read = |index: usize, what: &str| match cx.input(index) {
            Some(tensor) => scalar(&tensor.to_ints()?, what).map(Some),
            None => Ok(None),
        };
        let given_axis = if self.axis.is_some() {
            None
        } else {
            read(2, "axis")?
        };
        let at = self.signal_axis(given_axis, x.rank())?;
        let in_parts = parts_of(x.dims())?;
        let signal = x.dims()[at];
        let length = self.length(read(1, "dft_length")?, signal)?;
        let (out_len, out_parts) = self.result(length);
        let mut dims: Dims = x.dims().into();
        let last = dims.len() - 1;
        (dims[at], dims[last]) = (out_len, out_parts);
        let outer = element_count(&dims[..at])?;
        let inner = element_count(&dims[at + 1..last])?;
        let mut fft = Fft::new(length, self.inverse)?;
        let room = cx.scratch::<Complex128>(length.saturating_mul(2))?;
        let (from, to) = room.split_at_mut(length);
        let x = x.slice::<T>()?;
        let y = cx.output::<T>(0, &dims)?.into_mut();
        if y.is_empty() {
            return Ok(());
        }
        let factor = if self.inverse { 1.0 / length as f64 } else { 1.0 };
        for line in 0..outer * inner {
            ending::count(length);
            let (outer, inner_at) = (line / inner, line % inner);
            from.fill(Complex128::default());
            let element = |i: usize| &x[((outer * signal + i) * inner + inner_at) * in_parts..][..in_parts];
            if self.inverse && self.onesided {
                // The other half is the conjugate of this one, so the two ends are real.
                for i in counted(0..signal.min(length / 2 + 1)) {
                    let bin = number(element(i));
                    let mirrored = (length - i) % length;
                    from[mirrored] = Complex128 {
                        re: bin.re,
                        im: -bin.im,
                    };
                    from[i] = if i == mirrored {
                        Complex128 { im: 0.0, ..bin }
                    } else {
                        bin
                    };
                }
            } else {
                for (i, to) in counted(from.iter_mut()).enumerate().take(signal) {
                    *to = number(element(i));
                }
            }
            fft.run(from, to);
            for (i, value) in counted(to.iter()).enumerate().take(out_len) {
                let y = &mut y[((outer * out_len + i) * inner + inner_at) * out_parts..][..out_parts];
                for (y, part) in y.iter_mut().zip([value.re, value.im]) {
                    *y = narrow(part * factor);
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Stft {
    onesided: bool,
}

pub(in crate::native) fn stft(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Stft {
        onesided: node.flag_or("onesided", true)?,
    }))
}

impl Stft {
    /// Length of a frame, frames and bins.
    fn sizes(
        &self,
        signal: usize,
        step: i64,
        window: Option<usize>,
        length: Option<i64>,
    ) -> Result<(usize, usize, usize), OpError> {
        let step = size(step, "frame_step")?;
        let length = match (length, window) {
            (Some(length), _) => size(length, "frame_length")?,
            (None, Some(window)) => window,
            (None, None) => signal,
        };
        if window.is_some_and(|window| window != length) {
            return Err(OpError::Message(format!(
                "the window has {window:?} elements, expected {length}, the frame length"
            )));
        }
        let frames = match signal.checked_sub(length) {
            Some(rest) if length > 0 => rest / step + 1,
            _ => 0,
        };
        let bins = if self.onesided { length / 2 + 1 } else { length };
        Ok((length, frames, bins))
    }
}

impl Operator for Stft {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let known = |index: usize, what: &str| -> Result<Option<i64>, OpError> {
            cx.known_ints(index)?
                .map(|values| scalar(&values, what))
                .transpose()
        };
        let (step, length) = (known(1, "frame_step")?, known(3, "frame_length")?);
        let window = match cx.input(2) {
            Some(fact) => match fact.fixed_dims() {
                Some(dims) => Some(Some(element_count(&dims)?)),
                None => None,
            },
            None => Some(None),
        };
        let signal = input_dims(cx, 0);
        let batch = signal
            .as_ref()
            .and_then(|dims| dims.first())
            .copied()
            .unwrap_or(SymDim::Unknown);
        let len = signal
            .as_ref()
            .and_then(|dims| dims.get(1))
            .and_then(|dim| dim.fixed());
        let length_known = length.is_some() || cx.input(3).is_none();
        let (frames, bins) = match (len, step, window) {
            (Some(len), Some(step), Some(window)) if length_known => {
                let (_, frames, bins) = self.sizes(len, step, window, length)?;
                (SymDim::Fixed(frames), SymDim::Fixed(bins))
            }
            _ => (SymDim::Unknown, SymDim::Unknown),
        };
        let dims = SymDims::from_slice(&[batch, frames, bins, SymDim::Fixed(2)]);
        cx.set_output(0, input_type(cx, 0), Some(dims));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl Stft {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        // A signal without a last dim of its own is real.
        let (batch, signal, parts) = match *x.dims() {
            [batch, signal] => (batch, signal, 1),
            [batch, signal, _] => (batch, signal, parts_of(x.dims())?),
            _ => return Err(OpError::Message(format!("the signal is {x:?}, expected rank 3"))),
        };
        if self.onesided && parts == 2 {
            return Err(OpError::Message(
                "a complex signal has no one-sided transform".into(),
            ));
        }
        let step = scalar(&cx.required(1)?.to_ints()?, "frame_step")?;
        let length = match cx.input(3) {
            Some(length) => Some(scalar(&length.to_ints()?, "frame_length")?),
            None => None,
        };
        let window = cx.input(2);
        let (length, frames, bins) = self.sizes(signal, step, window.map(|window| window.len()), length)?;
        let window = window.map(|window| window.slice::<T>()).transpose()?;
        let mut fft = Fft::new(length, false)?;
        let room = cx.scratch::<Complex128>(length.saturating_mul(2))?;
        let (from, to) = room.split_at_mut(length);
        let x = x.slice::<T>()?;
        let y = cx.output::<T>(0, &[batch, frames, bins, 2])?.into_mut();
        for (frame, y) in y.chunks_exact_mut((bins * 2).max(1)).enumerate() {
            let start = frame / frames * signal + frame % frames * step as usize;
            for (i, to) in from.iter_mut().enumerate() {
                let x = number(&x[(start + i) * parts..][..parts]);
                let factor = window.map_or(1.0, |window| window[i].widen().to_f64());
                *to = Complex128 {
                    re: x.re * factor,
                    im: x.im * factor,
                };
            }
            fft.run(from, to);
            for (y, value) in y.chunks_exact_mut(2).zip(to.iter()) {
                y[0] = narrow(value.re);
                y[1] = narrow(value.im);
            }
        }
        Ok(())
    }
}
