//! Pools: a window slides over each channel of X [N, C, D1, ...] (see `window`).
//!
//!   MaxPool       the largest element; output 1 is where it lies in X, counted in row-major
//!                 order, or in column-major order of the spatial dims with storage_order 1
//!   AveragePool   the mean of the window's elements on X, or with `count_include_pad` on X
//!                 and its padding, which is zero
//!   LpPool        (sum |x|^p)^(1/p)
//!   Global*Pool   the same over all spatial dims, each of which becomes 1
//!
//! ai.onnx: MaxPool 1, 8, 10, 11, 12, 22; AveragePool 7, 10, 11, 19, 22; LpPool 2, 11, 18, 22;
//! GlobalAveragePool, GlobalMaxPool 1, 22; GlobalLpPool 2, 22. Floats; MaxPool also int8 and uint8.
//! float16 and bfloat16 are computed in f32. A NaN makes a result NaN. The mean and the p-norm
//! of no elements are 0, except that a global mean is NaN.

use super::Built;
use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::number::{Float, Number, Scalar};
use super::window::{Axes, WindowAttributes, advance, outputs, split_dims, visit_window};
use crate::native::element::ElementType;
use crate::native::ending::{self, Looks};
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Max,
    Average { include_pad: bool },
    Lp(i64),
}

#[derive(Debug)]
struct Pool {
    function: Function,
    window: WindowAttributes,
    ceil: bool,
    column_major: bool,
}

pub(in crate::native) fn max_pool(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Pool {
        function: Function::Max,
        window: WindowAttributes::with_kernel(node, node.since >= 10, true)?,
        ceil: node.since >= 10 && node.flag_or("ceil_mode", false)?,
        column_major: node.since >= 8 && node.flag_or("storage_order", false)?,
    }))
}

pub(in crate::native) fn average_pool(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Pool {
        function: Function::Average {
            include_pad: node.since >= 7 && node.flag_or("count_include_pad", false)?,
        },
        window: WindowAttributes::with_kernel(node, node.since >= 19, true)?,
        ceil: node.since >= 10 && node.flag_or("ceil_mode", false)?,
        column_major: false,
    }))
}

fn lp(node: &NodeInfo<'_>) -> Result<Function, OpError> {
    match node.int_or("p", 2)? {
        p @ 1.. => Ok(Function::Lp(p)),
        other => Err(OpError::Attribute {
            name: "p".into(),
            message: format!("is {other}, expected a positive value"),
        }),
    }
}

pub(in crate::native) fn lp_pool(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Pool {
        function: lp(node)?,
        window: WindowAttributes::with_kernel(node, node.since >= 18, true)?,
        ceil: node.since >= 18 && node.flag_or("ceil_mode", false)?,
        column_major: false,
    }))
}

impl Operator for Pool {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match input_dims(cx, 0) {
            Some(x) => {
                let (batch, channels, spatial) = split_dims(&x)?;
                let mut dims = SymDims::from_slice(&[batch, channels]);
                dims.extend(self.window.infer(spatial, None, self.ceil)?);
                Some(dims)
            }
            None => None,
        };
        cx.set_output(0, input_type(cx, 0), dims.clone());
        cx.set_output(1, Some(ElementType::Int64), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let (batch, channels, spatial) = split_dims(x.dims())?;
        let axes = self.window.over(spatial, None, self.ceil)?;
        let mut dims = Dims::from_slice(&[batch, channels]);
        dims.extend(outputs(&axes));
        let taps = axes.iter().map(|axis| axis.kernel.min(axis.input));
        let pool = Images {
            most_taps: taps.fold(1, usize::saturating_mul),
            axes,
            image: element_count(spatial)?,
            dims,
        };
        match (self.function, x.element_type()) {
            (Function::Max, ElementType::Int8) => self.max::<i8>(cx, &x, &pool),
            (Function::Max, ElementType::Uint8) => self.max::<u8>(cx, &x, &pool),
            (Function::Max, ty) => with_float!(ty, T => self.max::<T>(cx, &x, &pool)),
            (Function::Average { include_pad }, ty) => {
                with_float!(ty, T => average::<T>(cx, &x, &pool, include_pad))
            }
            (Function::Lp(p), ty) => with_float!(ty, T => lp_norm::<T>(cx, &x, &pool, p)),
        }
    }
}

fn average<T: Float>(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    pool: &Images,
    include_pad: bool,
) -> Result<(), OpError> {
    let y = cx.output::<T>(0, &pool.dims)?.into_mut();
    let x = x.slice::<T>()?;
    pool.for_each(y, |y, base, window| {
        let (mut sum, mut count) = (T::Wide::ZERO, 0);
        pool.visit(window, &mut |at| {
            sum = sum.add(x[base + at].widen());
            count += 1;
        });
        if include_pad {
            count = pool.padded_count(window);
        }
        *y = T::narrow(match count {
            0 => T::Wide::ZERO,
            count => sum.div(T::Wide::from_f64(count as f64)),
        });
    });
    Ok(())
}

fn lp_norm<T: Float>(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    pool: &Images,
    p: i64,
) -> Result<(), OpError> {
    let y = cx.output::<T>(0, &pool.dims)?.into_mut();
    let x = x.slice::<T>()?;
    pool.for_each(y, |y, base, window| {
        let mut sum = 0.0;
        pool.visit(window, &mut |at| sum += power(x[base + at], p));
        *y = root(sum, p);
    });
    Ok(())
}

/// |x|^p
fn power<T: Number>(x: T, p: i64) -> f64 {
    let x = x.widen().to_f64().abs();
    match p {
        1 => x,
        2 => x * x,
        p => x.powf(p as f64),
    }
}

/// sum^(1/p)
fn root<T: Number>(sum: f64, p: i64) -> T {
    T::narrow(Scalar::from_f64(match p {
        1 => sum,
        2 => sum.sqrt(),
        p => sum.powf(1.0 / p as f64),
    }))
}

/// Channels of images, and the windows over each.
struct Images {
    axes: Axes,
    /// Elements of X of one channel.
    image: usize,
    /// The most elements of X that a window covers.
    most_taps: usize,
    /// The dims of Y.
    dims: Dims,
}

impl Images {
    /// Calls `visit` with the offset in a channel of each element of X that a window covers.
    fn visit(&self, window: &[usize], visit: &mut impl FnMut(usize)) {
        if self.most_taps < ending::PIECE {
            // `for_each` counts it.
            return visit_window(&self.axes, window, visit);
        }
        let mut looks = Looks::default();
        visit_window(&self.axes, window, &mut |at| {
            looks.count(1);
            visit(at);
        });
    }

    /// Calls `pool` for each element of Y with where its channel begins in X and its window.
    fn for_each<Y>(&self, y: &mut [Y], mut pool: impl FnMut(&mut Y, usize, &[usize])) {
        let sizes = &self.dims[2..];
        let windows = sizes.iter().product::<usize>().max(1);
        let mut window: Dims = Dims::from_elem(0, sizes.len());
        for (channel, y) in y.chunks_exact_mut(windows).enumerate() {
            ending::look();
            for y in y {
                ending::count(self.most_taps.min(ending::PIECE));
                pool(y, channel * self.image, &window);
                advance(&mut window, sizes.iter().copied());
            }
        }
    }

    /// The elements of a window on the input and its padding.
    fn padded_count(&self, window: &[usize]) -> usize {
        let on_axis = self.axes.iter().zip(window).map(|(axis, &at)| {
            let room = axis.input as i64 + axis.end - axis.position(at, 0);
            let dilation = axis.dilation as i64;
            let on_padded = (room + dilation - 1).div_euclid(dilation);
            usize::try_from(on_padded).map_or(0, |count| Ord::min(count, axis.kernel))
        });
        on_axis.product()
    }

    /// The position of an element of a channel in column-major order.
    fn column_major(&self, mut at: usize) -> usize {
        let mut coordinates: Dims = Dims::new();
        for axis in self.axes.iter().rev() {
            coordinates.push(at % axis.input);
            at /= axis.input;
        }
        let axes = self.axes.iter().rev().zip(&coordinates);
        axes.fold(0, |index, (axis, coordinate)| index * axis.input + coordinate)
    }
}

impl Pool {
    fn max<T: Number>(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        pool: &Images,
    ) -> Result<(), OpError> {
        let x = x.slice::<T>()?;
        // Where each largest element is; nowhere when the window is all padding.
        let largest = |base: usize, window: &[usize]| {
            let (mut best, mut best_at) = (T::Wide::LOWEST, None);
            pool.visit(window, &mut |at| {
                let value = x[base + at].widen();
                if best_at.is_none() || value > best || (value.is_nan() && !best.is_nan()) {
                    (best, best_at) = (value, Some(at));
                }
            });
            (best, best_at)
        };
        if cx.output_used(0) {
            let y = cx.output::<T>(0, &pool.dims)?.into_mut();
            pool.for_each(y, |y, base, window| *y = T::narrow(largest(base, window).0));
        }
        if cx.output_used(1) {
            let indices = cx.output::<i64>(1, &pool.dims)?.into_mut();
            pool.for_each(indices, |index, base, window| {
                // X may have no elements at all where there is none.
                let at = match largest(base, window).1 {
                    Some(at) if self.column_major => pool.column_major(at),
                    at => at.unwrap_or(0),
                };
                *index = (base + at) as i64;
            });
        }
        Ok(())
    }
}

#[derive(Debug)]
struct GlobalPool(Function);

pub(in crate::native) fn global_max_pool(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GlobalPool(Function::Max)))
}

pub(in crate::native) fn global_average_pool(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GlobalPool(Function::Average { include_pad: false })))
}

pub(in crate::native) fn global_lp_pool(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GlobalPool(lp(node)?)))
}

impl Operator for GlobalPool {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match input_dims(cx, 0) {
            Some(mut dims) => {
                split_dims(&dims)?;
                dims[2..].fill(SymDim::Fixed(1));
                Some(dims)
            }
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

impl GlobalPool {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let (.., spatial) = split_dims(x.dims())?;
        let image = element_count(spatial)?;
        let mut dims: Dims = x.dims().into();
        dims[2..].fill(1);
        let x = x.slice::<T>()?;
        cx.output::<T>(0, &dims)?.fill_with(|channel| {
            let x = ending::elements(&x[channel * image..][..image]);
            match self.0 {
                Function::Max => T::narrow(x.map(|x| x.widen()).fold(T::Wide::LOWEST, Scalar::max)),
                Function::Average { .. } => {
                    let sum = x.map(|x| x.widen()).fold(T::Wide::ZERO, Scalar::add);
                    T::narrow(sum.div(T::Wide::from_f64(image as f64)))
                }
                Function::Lp(p) => root(x.map(|&x| power(x, p)).sum(), p),
            }
        });
        Ok(())
    }
}
