//! GridSample: y[n, c, o] is X [N, C, D1, ..., Dr] at the position grid[n, o], of which the last
//! component is along D1 and the first along Dr, and -1 and 1 are the ends of an axis:
//!
//!   x = ((g + 1) D - 1) / 2, or with align_corners (g + 1) / 2 (D - 1)
//!
//! nearest rounds x (ties to even), linear and cubic (a = -0.75) interpolate along every axis.
//! Outside X there is, by `padding_mode`: zeros, the element at the border, or X mirrored at the
//! outer edges of its end elements (with align_corners at their centres).
//!
//!   grid [N, O1, ..., Or, r]   Y [N, C, O1, ..., Or]
//!
//! ai.onnx 16 (r = 2; modes bilinear, nearest, bicubic), 20, 22. nearest takes any element type;
//! the others floats in f32 or f64, and integers in f64, truncated.

use smallvec::SmallVec;

use super::Built;
use super::dispatch::{with_float, with_integer, with_number};
use super::infer::{input_dims, input_type};
use super::moves::gather_or_zero;
use super::number::{Number, Real, Scalar};
use super::window::split_dims;
use crate::native::element::ElementType;
use crate::native::ending::{self, Looks, counted};
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

#[derive(Debug)]
struct GridSample {
    mode: Mode,
    padding: Padding,
    align_corners: bool,
}

pub(in crate::native) fn grid_sample(node: &NodeInfo<'_>) -> Built {
    let (linear, cubic) = match node.since {
        20.. => ("linear", "cubic"),
        _ => ("bilinear", "bicubic"),
    };
    let mode = match node.string_or("mode", linear)? {
        "nearest" => Mode::Nearest,
        mode if mode == linear => Mode::Linear,
        mode if mode == cubic => Mode::Cubic,
        other => {
            return Err(OpError::Attribute {
                name: "mode".into(),
                message: format!("is \"{other}\", expected {linear}, nearest or {cubic}"),
            });
        }
    };
    let padding = match node.string_or("padding_mode", "zeros")? {
        "zeros" => Padding::Zeros,
        "border" => Padding::Border,
        "reflection" => Padding::Reflection,
        other => {
            return Err(OpError::Attribute {
                name: "padding_mode".into(),
                message: format!("is \"{other}\", expected zeros, border or reflection"),
            });
        }
    };
    Ok(Box::new(GridSample {
        mode,
        padding,
        align_corners: node.flag_or("align_corners", false)?,
    }))
}

/// Elements along an axis and their weights; `None` is outside, where there are zeros.
type Taps = SmallVec<[(Option<usize>, f64); 4]>;

/// Positions beyond this are all the same.
const FAR: f64 = 1e15;

/// The most axes that are interpolated along: an element is made of up to 4^axes.
const MOST_AXES: usize = 8;

impl GridSample {
    /// The position along an axis of `size`, brought back onto X as the padding mode says.
    fn position<W: Real>(&self, grid: W, size: usize) -> f64 {
        let dim = W::from_f64(size as f64);
        let (one, two) = (W::ONE, W::from_f64(2.0));
        let x = match self.align_corners {
            true => grid.add(one).div(two).mul(dim.sub(one)),
            false => grid.add(one).mul(dim).sub(one).div(two),
        };
        let x = match self.mode {
            Mode::Nearest => x.round_ties_even().to_f64(),
            _ => x.to_f64(),
        };
        match self.padding {
            Padding::Zeros => x,
            // A cubic goes on beyond the border, over elements that are all the last one.
            Padding::Border if self.mode == Mode::Cubic => x,
            Padding::Border => x.clamp(0.0, (size as f64 - 1.0).max(0.0)),
            Padding::Reflection => self.reflected(x, size),
        }
    }

    fn reflected(&self, x: f64, size: usize) -> f64 {
        let (low, high) = match self.align_corners {
            true => (0.0, size as f64 - 1.0),
            false => (-0.5, size as f64 - 0.5),
        };
        let range = high - low;
        if (low..=high).contains(&x) || range <= 0.0 {
            return x.clamp(low, low.max(high));
        }
        let there = (x - low).rem_euclid(2.0 * range);
        low + there.min(2.0 * range - there)
    }

    /// The element at a whole position.
    fn element(&self, at: f64, size: usize) -> Option<usize> {
        let last = size.checked_sub(1)?;
        let at = match self.padding {
            Padding::Zeros if !(0.0..=last as f64).contains(&at) => return None,
            Padding::Zeros | Padding::Border => at,
            Padding::Reflection => self.reflected(at, size),
        };
        // Negative positions and NaN saturate to 0.
        Some((at as usize).min(last))
    }

    fn taps(&self, x: f64, size: usize) -> Taps {
        let x = x.clamp(-FAR, FAR);
        let floor = x.floor();
        let t = x - floor;
        let cubic = |d: f64| {
            const A: f64 = -0.75;
            match d {
                d if d <= 1.0 => ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0,
                d => ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A,
            }
        };
        let tap = |offset: f64, weight: f64| (self.element(floor + offset, size), weight);
        match self.mode {
            Mode::Nearest => Taps::from_slice(&[(self.element(x, size), 1.0)]),
            Mode::Linear => Taps::from_slice(&[tap(0.0, 1.0 - t), tap(1.0, t)]),
            Mode::Cubic => Taps::from_slice(&[
                tap(-1.0, cubic(1.0 + t)),
                tap(0.0, cubic(t)),
                tap(1.0, cubic(1.0 - t)),
                tap(2.0, cubic(2.0 - t)),
            ]),
        }
    }

    /// The elements of a channel that a position is made of.
    fn corners(&self, position: &[f64], spatial: &[usize], corners: &mut Vec<(Option<usize>, f64)>) {
        corners.clear();
        corners.push((Some(0), 1.0));
        for (&x, &size) in position.iter().zip(spatial) {
            let taps = self.taps(x, size);
            let before = std::mem::take(corners);
            for (base, weight) in before {
                corners.extend(taps.iter().map(|&(at, of_tap)| {
                    let at = base.zip(at).map(|(base, at)| base * size + at);
                    (at, weight * of_tap)
                }));
            }
        }
    }
}

impl Operator for GridSample {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        cx.required(1)?;
        let dims = match (input_dims(cx, 0), input_dims(cx, 1)) {
            (Some(x), Some(grid)) => {
                let (batch, channels, _) = split_dims(&x)?;
                let outputs = grid.get(1..grid.len().saturating_sub(1)).unwrap_or_default();
                Some(
                    [batch, channels]
                        .into_iter()
                        .chain(outputs.iter().copied())
                        .collect(),
                )
            }
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, grid) = (cx.required(0)?, cx.required(1)?);
        let (batch, channels, spatial) = split_dims(x.dims())?;
        let fits = match grid.dims() {
            [n, outputs @ .., axes] => {
                *n == batch && outputs.len() == spatial.len() && *axes == spatial.len()
            }
            _ => false,
        };
        if !fits {
            return Err(OpError::Message(format!(
                "the grid {grid:?} does not fit X, {x:?}"
            )));
        }
        let outputs = &grid.dims()[1..=spatial.len()];
        let mut dims = Dims::from_slice(&[batch, channels]);
        dims.extend_from_slice(outputs);
        if dims.contains(&0) || x.is_empty() {
            // No element of X: zeros, if anything.
            return gather_or_zero(cx, &x, &dims, std::iter::repeat_n(None, element_count(&dims)?));
        }
        if self.mode != Mode::Nearest && spatial.len() > MOST_AXES {
            return Err(OpError::Unsupported(format!(
                "interpolation along {} axes, more than {MOST_AXES}",
                spatial.len()
            )));
        }
        let positions = cx.scratch::<f64>(grid.len())?;
        with_float!(grid.element_type(), G => {
            for (i, (to, g)) in counted(positions.iter_mut()).zip(grid.slice::<G>()?).enumerate() {
                *to = self.position(g.widen(), spatial[spatial.len() - 1 - i % spatial.len()]);
            }
            Ok(())
        })?;
        let shape = Shape {
            channels,
            image: element_count(spatial)?,
            outputs: element_count(outputs)?,
            spatial,
            positions,
        };
        if self.mode != Mode::Nearest {
            return with_number!(x.element_type(), T => self.interpolate::<T>(cx, &x, &shape, &dims));
        }
        let sources = (0..element_count(&dims)?).map(|at| {
            let (channel, output) = (at / shape.outputs, at % shape.outputs);
            let position = shape.position(channel / channels, output);
            let mut axes = position.iter().zip(spatial);
            let inside = axes.try_fold(0, |base, (&x, &size)| Some(base * size + self.element(x, size)?));
            inside.map(|inside| channel * shape.image + inside)
        });
        gather_or_zero(cx, &x, &dims, sources)
    }
}

struct Shape<'a> {
    channels: usize,
    /// Elements of a channel of X and of Y.
    image: usize,
    outputs: usize,
    spatial: &'a [usize],
    /// For each image and element of a channel of Y, its position in X, last axis first.
    positions: &'a [f64],
}

impl Shape<'_> {
    /// First axis first.
    fn position(&self, image: usize, output: usize) -> SmallVec<[f64; 4]> {
        let axes = self.spatial.len();
        let at = (image * self.outputs + output) * axes;
        self.positions[at..at + axes].iter().rev().copied().collect()
    }
}

impl GridSample {
    fn interpolate<T: Number>(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        shape: &Shape<'_>,
        dims: &[usize],
    ) -> Result<(), OpError> {
        let x = x.slice::<T>()?;
        let y = cx.output::<T>(0, dims)?.into_mut();
        let mut corners = Vec::new();
        let mut looks = Looks::default();
        let images = x.chunks_exact(shape.channels * shape.image);
        for (image, (x, y)) in images
            .zip(y.chunks_exact_mut(shape.channels * shape.outputs))
            .enumerate()
        {
            for output in 0..shape.outputs {
                self.corners(&shape.position(image, output), shape.spatial, &mut corners);
                let work = corners.len().saturating_mul(shape.channels);
                looks.count(work.clamp(1, ending::PIECE));
                for (channel, x) in x.chunks_exact(shape.image).enumerate() {
                    if work > ending::PIECE {
                        ending::count(corners.len());
                    }
                    let mut sum = T::Real::ZERO;
                    for &(at, weight) in &corners {
                        if let Some(x) = at.and_then(|at| x.get(at)) {
                            let x = T::Real::from_f64(x.widen().to_f64());
                            sum = Scalar::multiply_add(x, T::Real::from_f64(weight), sum);
                        }
                    }
                    y[channel * shape.outputs + output] = T::narrow(Scalar::from_f64(sum.to_f64()));
                }
            }
        }
        Ok(())
    }
}
