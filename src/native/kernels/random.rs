//! Random numbers.
//!
//!   RandomNormal, RandomNormalLike      mean + scale z                          ai.onnx 1, 22
//!   RandomUniform, RandomUniformLike    low + (high - low) u                    ai.onnx 1, 22
//!   Bernoulli(P)                        u < p                                   ai.onnx 15, 22
//!   Multinomial(X)                      for each row of log-weights x, `sample_size` positions, drawn
//!                                       with weights e^x, as int32 or int64     ai.onnx 7, 22
//!
//! u is uniform in [0, 1), z normal. The specification leaves the generator open; this is
//! Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3, 2011),
//! which computes the i-th number of a stream from i alone. A key and a stream are chosen so:
//! - with the attribute `seed`, the key is its bits (as f32; Dropout's is an integer) and the stream
//!   is 0: every run gives the same numbers;
//! - without, the key is a hash of the node's name and the n-th run of the node in a session
//!   takes stream n: runs differ, and a new session repeats them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Built;
use super::dims::dims_from;
use super::dispatch::{with_float, with_integer, with_number};
use super::infer::{input_dims, input_type};
use super::number::{Float, Number, Scalar};
use crate::native::element::{Bool, Element, ElementType};
use crate::native::ending::{self, counted};
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

/// One stream of Philox-4x32-10.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    key: [u32; 2],
    stream: u64,
}

impl Stream {
    /// Four words that depend on nothing but key, stream and index.
    fn block(self, index: u64) -> [u32; 4] {
        let mut words = [
            index as u32,
            (index >> 32) as u32,
            self.stream as u32,
            (self.stream >> 32) as u32,
        ];
        let mut key = self.key;
        for _ in 0..10 {
            let [low, high] = [(words[0], 0xd251_1f53_u32), (words[2], 0xcd9e_8d57_u32)]
                .map(|(word, factor)| u64::from(word) * u64::from(factor));
            words = [
                (high >> 32) as u32 ^ words[1] ^ key[0],
                high as u32,
                (low >> 32) as u32 ^ words[3] ^ key[1],
                low as u32,
            ];
            key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
        }
        words
    }

    /// The i-th number of [0, 1): a multiple of 2^-53.
    pub fn uniform(self, i: usize) -> f64 {
        let words = self.block(i as u64 / 2);
        let [high, low] = if i.is_multiple_of(2) {
            [words[0], words[1]]
        } else {
            [words[2], words[3]]
        };
        let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }

    /// The i-th number of a normal distribution of mean 0 and variance 1 (Box and Muller). The
    /// functions are libm's, which are the same everywhere.
    fn normal(self, i: usize) -> f64 {
        let pair = i / 2 * 2;
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.uniform(pair)));
        let angle = std::f64::consts::TAU * self.uniform(pair + 1);
        radius
            * if i.is_multiple_of(2) {
                libm::cos(angle)
            } else {
                libm::sin(angle)
            }
    }
}

/// Where a node's numbers come from.
#[derive(Debug)]
pub(super) struct Source {
    key: u64,
    /// Runs so far, where there is no seed.
    runs: Option<AtomicU64>,
}

impl Source {
    /// The source of a node with the attribute `seed`, if it has it, a float.
    fn of(node: &NodeInfo<'_>) -> Result<Self, OpError> {
        let seed = node.float("seed")?.map(|seed| seed.to_bits().into());
        Ok(Self::new(node, seed))
    }

    pub fn new(node: &NodeInfo<'_>, seed: Option<u64>) -> Self {
        match seed {
            Some(key) => Source { key, runs: None },
            None => Source {
                // FNV-1a.
                key: node.name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
                }),
                runs: Some(AtomicU64::new(0)),
            },
        }
    }

    /// The stream of this run.
    pub fn stream(&self) -> Stream {
        let runs = self.runs.as_ref();
        Stream {
            key: [self.key as u32, (self.key >> 32) as u32],
            stream: runs.map_or(0, |runs| runs.fetch_add(1, Ordering::Relaxed)),
        }
    }

    pub fn is_seeded(&self) -> bool {
        self.runs.is_none()
    }
}

#[derive(Clone, Copy, Debug)]
enum Distribution {
    Normal { mean: f64, scale: f64 },
    Uniform { low: f64, high: f64 },
}

#[derive(Debug)]
struct Random {
    distribution: Distribution,
    source: Source,
    /// `None` is the shape of the input.
    shape: Option<Dims>,
    /// `None` is the type of the input.
    ty: Option<ElementType>,
}

fn build(node: &NodeInfo<'_>, distribution: Distribution, like: bool) -> Built {
    let (mut shape, mut ty) = (None, node.element_type("dtype")?);
    if !like {
        let given = node.ints("shape")?.ok_or_else(|| OpError::Attribute {
            name: "shape".into(),
            message: "is missing".into(),
        })?;
        shape = Some(dims_from(given)?);
        ty = ty.or(Some(ElementType::Float32));
    }
    Ok(Box::new(Random {
        distribution,
        source: Source::of(node)?,
        shape,
        ty,
    }))
}

fn normal(node: &NodeInfo<'_>) -> Result<Distribution, OpError> {
    Ok(Distribution::Normal {
        mean: node.float_or("mean", 0.0)?.into(),
        scale: node.float_or("scale", 1.0)?.into(),
    })
}

fn uniform(node: &NodeInfo<'_>) -> Result<Distribution, OpError> {
    Ok(Distribution::Uniform {
        low: node.float_or("low", 0.0)?.into(),
        high: node.float_or("high", 1.0)?.into(),
    })
}

pub(in crate::native) fn random_normal(node: &NodeInfo<'_>) -> Built {
    build(node, normal(node)?, false)
}

pub(in crate::native) fn random_normal_like(node: &NodeInfo<'_>) -> Built {
    build(node, normal(node)?, true)
}

pub(in crate::native) fn random_uniform(node: &NodeInfo<'_>) -> Built {
    build(node, uniform(node)?, false)
}

pub(in crate::native) fn random_uniform_like(node: &NodeInfo<'_>) -> Built {
    build(node, uniform(node)?, true)
}

impl Operator for Random {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match &self.shape {
            Some(shape) => Some(shape.iter().map(|&dim| SymDim::Fixed(dim)).collect()),
            None => input_dims(cx, 0),
        };
        let ty = self.ty.or(input_type(cx, 0));
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let dims: Dims = match &self.shape {
            Some(shape) => shape.clone(),
            None => cx.required(0)?.dims().into(),
        };
        let ty = match self.ty {
            Some(ty) => ty,
            None => cx.required(0)?.element_type(),
        };
        with_float!(ty, T => self.fill::<T>(cx, &dims))
    }

    fn is_deterministic(&self) -> bool {
        self.source.is_seeded()
    }
}

impl Random {
    fn fill<T: Float>(&self, cx: &mut RunContext<'_>, dims: &[usize]) -> Result<(), OpError> {
        let y = cx.output::<T>(0, dims)?;
        let stream = self.source.stream();
        let narrow = |value: f64| T::narrow(T::Wide::from_f64(value));
        match self.distribution {
            Distribution::Normal { mean, scale } => {
                y.fill_with(|i| narrow(mean + scale * stream.normal(i)));
            }
            Distribution::Uniform { low, high } => {
                y.fill_with(|i| narrow(low + (high - low) * stream.uniform(i)));
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Bernoulli {
    source: Source,
    ty: Option<ElementType>,
}

pub(in crate::native) fn bernoulli(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Bernoulli {
        source: Source::of(node)?,
        ty: node.element_type("dtype")?,
    }))
}

impl Operator for Bernoulli {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (ty, dims) = (self.ty.or(input_type(cx, 0)), input_dims(cx, 0));
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let p = cx.required(0)?;
        let stream = self.source.stream();
        let ty = self.ty.unwrap_or(p.element_type());
        with_float!(p.element_type(), P => {
            let chances = p.slice::<P>()?;
            let hit = |i: usize| stream.uniform(i) < chances[i].widen().to_f64();
            match ty {
                ElementType::Bool => fill(cx, &p, |i| Bool::from(hit(i))),
                ty => with_number!(ty, T => fill(cx, &p, |i| number::<T>(hit(i)))),
            }
        })
    }

    fn is_deterministic(&self) -> bool {
        self.source.is_seeded()
    }
}

fn fill<T: Element>(
    cx: &mut RunContext<'_>,
    like: &TensorRef<'_>,
    value: impl FnMut(usize) -> T,
) -> Result<(), OpError> {
    cx.output::<T>(0, like.dims())?.fill_with(value);
    Ok(())
}

fn number<T: Number>(hit: bool) -> T {
    T::narrow(if hit { T::Wide::ONE } else { T::Wide::ZERO })
}

#[derive(Debug)]
struct Multinomial {
    source: Source,
    ty: ElementType,
    sample_size: usize,
}

pub(in crate::native) fn multinomial(node: &NodeInfo<'_>) -> Built {
    let sample_size = node.int_or("sample_size", 1)?;
    Ok(Box::new(Multinomial {
        source: Source::of(node)?,
        ty: node.element_type("dtype")?.unwrap_or(ElementType::Int32),
        sample_size: usize::try_from(sample_size).map_err(|_| OpError::Attribute {
            name: "sample_size".into(),
            message: format!("is {sample_size}, which is negative"),
        })?,
    }))
}

impl Operator for Multinomial {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let rows = input_dims(cx, 0).and_then(|dims| dims.first().copied());
        let dims: [SymDim; 2] = [rows.unwrap_or(SymDim::Unknown), SymDim::Fixed(self.sample_size)];
        cx.set_output(0, Some(self.ty), Some(SymDims::from_slice(&dims)));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let &[rows, classes] = x.dims() else {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: x.dims().into(),
                expected: "rank 2".into(),
            });
        };
        if classes == 0 && rows > 0 && self.sample_size > 0 {
            return Err(OpError::Message("there is nothing to draw from".into()));
        }
        let sums = cx.scratch::<f64>(classes)?;
        with_float!(x.element_type(), T => {
            let x = x.slice::<T>()?;
            match self.ty {
                ElementType::Int32 => self.draw::<T, i32>(cx, x, rows, sums, |at| at as i32),
                ElementType::Int64 => self.draw::<T, i64>(cx, x, rows, sums, |at| at as i64),
                other => Err(super::unsupported(other, "int32 or int64")),
            }
        })
    }

    fn is_deterministic(&self) -> bool {
        self.source.is_seeded()
    }
}

impl Multinomial {
    fn draw<T: Float, Y: Element>(
        &self,
        cx: &mut RunContext<'_>,
        x: &[T],
        rows: usize,
        sums: &mut [f64],
        position: impl Fn(usize) -> Y,
    ) -> Result<(), OpError> {
        let y = cx.output::<Y>(0, &[rows, self.sample_size])?.into_mut();
        let stream = self.source.stream();
        let samples = y.chunks_mut(self.sample_size.max(1));
        for (row, (x, y)) in x.chunks(sums.len().max(1)).zip(samples).enumerate() {
            // sums[i] is the weight of all positions up to i. The largest weight is 1.
            ending::count(x.len());
            let max = x
                .iter()
                .map(|x| x.widen().to_f64())
                .fold(f64::NEG_INFINITY, f64::max);
            let mut total = 0.0;
            for (sum, x) in counted(sums.iter_mut()).zip(x) {
                total += libm::exp(x.widen().to_f64() - max);
                *sum = total;
            }
            for (i, y) in counted(y).enumerate() {
                let target = stream.uniform(row * self.sample_size + i) * total;
                let at = sums.partition_point(|&sum| sum <= target);
                *y = position(at.min(sums.len() - 1));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_the_published_words() {
        // Known answers that the authors' Random123 library ships (philox4x32, 10 rounds).
        let block = |key, stream, index| Stream { key, stream }.block(index);
        assert_eq!(
            block([0, 0], 0, 0),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            block([u32::MAX; 2], u64::MAX, u64::MAX),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            block(
                [0xa409_3822, 0x299f_31d0],
                0x0370_7344_1319_8a2e,
                0x85a3_08d3_243f_6a88
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let stream = Stream {
            key: [7, 0],
            stream: 3,
        };
        let n = 20_000;
        let moments = |value: &dyn Fn(usize) -> f64| {
            let mean = (0..n).map(value).sum::<f64>() / n as f64;
            let square = (0..n).map(|i| value(i).powi(2)).sum::<f64>() / n as f64;
            (mean, square - mean * mean)
        };
        let (mean, variance) = moments(&|i| stream.uniform(i));
        assert!((mean - 0.5).abs() < 0.01 && (variance - 1.0 / 12.0).abs() < 0.005);
        let (mean, variance) = moments(&|i| stream.normal(i));
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05);
    }
}
