//! What stands between the layers of recurrent and hybrid models, each in one node:
//!
//!   GatedAdd(X, Y, gate)            X + Y gate, gate [..., 1] for rows [..., C]; the product is rounded
//!   GatedRMSNorm(X, scale, gate)    X / sqrt(mean X^2 + epsilon) scale f(gate), over each C elements,
//!                                   scale [C]; f is z sigmoid(z) (silu, swish) or sigmoid
//!   ScaledSiLU(X, scale)            z sigmoid(z), z = scale X; z, its sigmoid and the product are each
//!                                   rounded; the attribute alpha where scale is left out
//!   BranchwiseRMSNorm(X, scale)     X / sqrt(mean X^2 + epsilon) scale over the last dim H of [..., C, H],
//!                                   or over each H of [..., C H] with `num_branches` C; scale [C H],
//!                                   [C, H] or [H], or left out
//!   LinearAttentionGate(a, dt_bias, decay_scale, b)
//!                                   decay = decay_scale ln(1 + e^(a + dt_bias)), the two f32 [H] for
//!                                   rows [..., H]; beta = sigmoid(b)
//!
//! com.microsoft 1: float, float16, bfloat16 (and double). In the wide type, but for the roundings
//! above.

use super::Built;
use super::dispatch::with_float;
use super::group_query_attention::wrong_dims;
use super::infer::{input_dims, input_type, like_first_input};
use super::number::{Float, Number, Real, Scalar};
use super::unary::{sigmoid_of, softplus_of};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
struct GatedAdd;

pub(in crate::native) fn gated_add(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GatedAdd))
}

impl Operator for GatedAdd {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => add_gated::<T>(cx, &x))
    }
}

fn same_dims(tensor: &TensorRef<'_>, index: usize, x: &TensorRef<'_>) -> Result<(), OpError> {
    match tensor.dims() == x.dims() {
        true => Ok(()),
        false => Err(wrong_dims(index, tensor, format!("{:?}, as input 0", x.dims()))),
    }
}

fn add_gated<T: Float>(cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
    let (y, gate) = (cx.required(1)?, cx.required(2)?);
    same_dims(&y, 1, x)?;
    let rows_and_one = match (x.dims(), gate.dims()) {
        ([rows @ .., _], [gates @ .., 1]) => rows == gates,
        _ => false,
    };
    if !rows_and_one {
        return Err(wrong_dims(2, &gate, "those of input 0, but 1 at the end"));
    }
    let width = x.dims().last().copied().unwrap_or(1);
    let output = cx.output::<T>(0, x.dims())?;
    let (x, y, gate) = (x.slice::<T>()?, y.slice::<T>()?, gate.slice::<T>()?);
    output.fill_with(|i| {
        let product: T = rounded(y[i].widen().mul(gate[i / width].widen()));
        T::narrow(x[i].widen().add(product.widen()))
    });
    Ok(())
}

fn rounded<T: Number>(x: T::Wide) -> T {
    T::narrow(x)
}

#[derive(Debug)]
struct GatedRmsNorm {
    epsilon: f32,
    /// Else the gate is its sigmoid alone.
    silu: bool,
}

pub(in crate::native) fn gated_rms_norm(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GatedRmsNorm {
        epsilon: node.float_or("epsilon", 1e-5)?,
        silu: match node.string_or("activation", "silu")? {
            "silu" | "swish" => true,
            "sigmoid" => false,
            other => {
                let message = format!("is \"{other}\", expected \"silu\", \"swish\" or \"sigmoid\"");
                return Err(super::wrong_attribute("activation", message));
            }
        },
    }))
}

impl Operator for GatedRmsNorm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

/// 1 / sqrt(mean x^2 + epsilon)
pub(super) fn inverse_root<T: Float>(x: &[T], epsilon: f32) -> T::Wide {
    let squares = x.iter().map(|x| x.widen().mul(x.widen()));
    let mean = squares
        .fold(T::Wide::ZERO, Scalar::add)
        .div(T::Wide::from_f64(x.len() as f64));
    T::Wide::ONE.div(mean.add(T::Wide::from_f64(epsilon.into())).sqrt())
}

impl GatedRmsNorm {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let (scale, gate) = (cx.required(1)?, cx.required(2)?);
        same_dims(&gate, 2, x)?;
        let last = x.dims().last().copied().unwrap_or(1);
        let width = match *scale.dims() {
            [width] if width > 0 && last.is_multiple_of(width) => width,
            _ => {
                return Err(wrong_dims(
                    1,
                    &scale,
                    format!("[C], of which {last} is a multiple"),
                ));
            }
        };
        let y = cx.output::<T>(0, x.dims())?.into_mut();
        let (x, scale, gate) = (x.slice::<T>()?, scale.slice::<T>()?, gate.slice::<T>()?);
        let rows = x.chunks_exact(width).zip(gate.chunks_exact(width));
        for ((x, gate), y) in rows.zip(y.chunks_exact_mut(width)) {
            ending::count(width);
            let root = inverse_root(x, self.epsilon);
            for (i, y) in y.iter_mut().enumerate() {
                let z = gate[i].widen();
                let open = match self.silu {
                    true => z.mul(sigmoid_of(z)),
                    false => sigmoid_of(z),
                };
                *y = T::narrow(x[i].widen().mul(root).mul(scale[i].widen()).mul(open));
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct ScaledSilu {
    alpha: f32,
}

pub(in crate::native) fn scaled_silu(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(ScaledSilu {
        alpha: node.float_or("alpha", 1.0)?,
    }))
}

impl Operator for ScaledSilu {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let scale = match cx.input(1) {
            None => self.alpha.into(),
            Some(scale) => with_float!(scale.element_type(), M => match scale.slice::<M>()? {
                &[scale] => Ok(scale.widen().to_f64()),
                _ => Err(wrong_dims(1, &scale, "one element")),
            })?,
        };
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => {
            let y = cx.output::<T>(0, x.dims())?;
            let x = x.slice::<T>()?;
            y.fill_with(|i| silu_of_scaled(x[i], scale));
            Ok(())
        })
    }
}

fn silu_of_scaled<T: Float>(x: T, scale: f64) -> T {
    let z: T = rounded(x.widen().mul(T::Wide::from_f64(scale)));
    let sigmoid: T = rounded(sigmoid_of(z.widen()));
    T::narrow(z.widen().mul(sigmoid.widen()))
}

#[derive(Debug)]
struct BranchwiseRmsNorm {
    /// 0 where the branches are a dim of their own.
    branches: usize,
    epsilon: f32,
}

/// The attribute `num_branches`.
pub(super) fn branches(node: &NodeInfo<'_>) -> Result<usize, OpError> {
    let branches = node.int_or("num_branches", 0)?;
    usize::try_from(branches)
        .map_err(|_| super::wrong_attribute("num_branches", format!("is {branches}, which is negative")))
}

/// Branches and features of each row, [..., C, H], or with `branches` [..., C H].
pub(super) fn branched(dims: &[usize], branches: usize) -> Result<(usize, usize), OpError> {
    match (dims, branches) {
        (&[.., branches, features], 0) => Ok((branches, features)),
        (&[.., last], 1..) if last.is_multiple_of(branches) => Ok((branches, last / branches)),
        _ => Err(OpError::WrongDims {
            what: "input 0".into(),
            found: dims.into(),
            expected: match branches {
                0 => "[..., C, H]".into(),
                branches => format!("a last dim that {branches} branches divide"),
            },
        }),
    }
}

pub(in crate::native) fn branchwise_rms_norm(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(BranchwiseRmsNorm {
        branches: branches(node)?,
        epsilon: node.float_or("epsilon", 1e-5)?,
    }))
}

impl Operator for BranchwiseRmsNorm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        match cx.input(1) {
            None => with_float!(x.element_type(), T => self.run_as::<T, T>(cx, &x, None)),
            Some(scale) => with_float!(scale.element_type(), M => {
                with_float!(x.element_type(), T => self.run_as::<T, M>(cx, &x, Some(scale)))
            }),
        }
    }
}

impl BranchwiseRmsNorm {
    fn run_as<T: Float, M: Float>(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        scale: Option<TensorRef<'_>>,
    ) -> Result<(), OpError> {
        let (branches, width) = branched(x.dims(), self.branches)?;
        let scale = match scale {
            Some(scale) if scale.dims() == [width] || scale.dims() == [branches, width] => {
                Some(scale.slice::<M>()?)
            }
            Some(scale) if Some(scale.len()) == branches.checked_mul(width) && scale.rank() == 1 => {
                Some(scale.slice::<M>()?)
            }
            Some(scale) => {
                let expected = format!("[{width}], [{branches}, {width}] or all of these in a row");
                return Err(wrong_dims(1, &scale, expected));
            }
            None => None,
        };
        let y = cx.output::<T>(0, x.dims())?.into_mut();
        let width = width.max(1);
        let rows = x.slice::<T>()?.chunks_exact(width).zip(y.chunks_exact_mut(width));
        for (row, (x, y)) in rows.enumerate() {
            ending::count(width);
            let root = inverse_root(x, self.epsilon);
            for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
                let normal = x.widen().mul(root);
                *y = T::narrow(match scale {
                    Some(scale) => {
                        let scale = scale[(row * width + i) % scale.len()].widen().to_f64();
                        normal.mul(T::Wide::from_f64(scale))
                    }
                    None => normal,
                });
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct LinearAttentionGate;

pub(in crate::native) fn linear_attention_gate(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(LinearAttentionGate))
}

impl Operator for LinearAttentionGate {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)?;
        let (ty, dims) = (input_type(cx, 3), input_dims(cx, 3));
        cx.set_output(1, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let a = cx.required(0)?;
        with_float!(a.element_type(), T => gate_of::<T>(cx, &a))
    }
}

fn gate_of<T: Float>(cx: &mut RunContext<'_>, a: &TensorRef<'_>) -> Result<(), OpError> {
    let heads = a.dims().last().copied().unwrap_or(1);
    let of_heads = |index: usize| {
        let tensor = cx.required(index)?;
        match tensor.dims() == [heads] {
            true => tensor.slice::<f32>(),
            false => Err(wrong_dims(index, &tensor, format!("[{heads}]"))),
        }
    };
    let (bias, scale) = (of_heads(1)?, of_heads(2)?);
    if cx.output_used(0) {
        let decay = cx.output::<T>(0, a.dims())?;
        let a = a.slice::<T>()?;
        decay.fill_with(|i| {
            let wide = |x: f32| T::Wide::from_f64(x.into());
            let sum = a[i].widen().add(wide(bias[i % heads]));
            T::narrow(wide(scale[i % heads]).mul(softplus_of(sum)))
        });
    }
    if cx.output_used(1) {
        let b = cx.required(3)?;
        super::same_type(a, &b, 3)?;
        let beta = cx.output::<T>(1, b.dims())?;
        let b = b.slice::<T>()?;
        beta.fill_with(|i| T::narrow(sigmoid_of(b[i].widen())));
    }
    Ok(())
}
