//! QAttention: Attention of com.microsoft (see `projected_attention`) with a quantised input and
//! quantised weights.
//!
//!   input          [batch, queries, in] of int8 or uint8, input_scale and input_zero_point
//!   weight         [in, 3 hidden] of int8 or uint8, weight_scale and weight_zero_point of one element, or
//!                  [3 hidden]
//!   bias, mask_index, past and the outputs are Attention's
//!
//! com.microsoft 1: bias, past and outputs of float or float16, which is computed in f32 and rounded
//! once.

use half::f16;

use super::group_query_attention::wrong_dims;
use super::quantized::{Quantized, with_quantized};
use super::{Built, inner, projected_attention};
use crate::native::element::ElementType;
use crate::native::infer::{Fact, InferContext};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Tensor, TensorRef};

const INPUT: usize = 0;
const WEIGHTS: usize = 1;
const BIAS: usize = 2;
const INPUT_SCALE: usize = 3;
const WEIGHT_SCALE: usize = 4;
const MASK: usize = 5;
const INPUT_ZERO: usize = 6;
const WEIGHT_ZERO: usize = 7;
const PAST: usize = 8;

#[derive(Debug)]
struct QAttention(Box<dyn Operator>);

pub(in crate::native) fn q_attention(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(QAttention(projected_attention::projected_attention(
        node,
    )?)))
}

impl Operator for QAttention {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = cx.input(BIAS).and_then(|bias| bias.ty);
        let float = |index: usize| -> Result<Fact, OpError> {
            Ok(Fact {
                ty,
                value: None,
                ..cx.required(index)?.clone()
            })
        };
        let (input, weights) = (float(INPUT)?, float(WEIGHTS)?);
        let count = cx.output_count();
        let outputs = inner::infer(&*self.0, &[Some(&input), Some(&weights)], count)?;
        for (index, output) in outputs.into_iter().enumerate() {
            cx.set_fact(index, output);
        }
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let input = floats_of(cx, INPUT, INPUT_SCALE, INPUT_ZERO)?;
        let weights = floats_of(cx, WEIGHTS, WEIGHT_SCALE, WEIGHT_ZERO)?;
        let bias = cx.required(BIAS)?;
        let (mask, past) = (cx.input(MASK), cx.input(PAST));
        if bias.element_type() == ElementType::Float32 {
            let inputs = [Some(input.view()), Some(weights.view()), Some(bias), mask, past];
            return inner::run_last(cx, &*self.0, &inputs, |_| true);
        }
        let wide_bias = widened(cx, &bias)?;
        let wide_past = past.map(|past| widened(cx, &past)).transpose()?;
        let inputs = [
            Some(input.view()),
            Some(weights.view()),
            Some(wide_bias.view()),
            mask,
            wide_past.as_ref().map(Tensor::view),
        ];
        if cx.output_used(1) {
            let [y, present] = inner::run_for(cx, &*self.0, &inputs)?;
            narrow(cx, 1, &present)?;
            return narrow(cx, 0, &y);
        }
        let y = inner::run(cx, &*self.0, &inputs)?;
        narrow(cx, 0, &y)
    }
}

fn widened(cx: &mut RunContext<'_>, tensor: &TensorRef<'_>) -> Result<Tensor, OpError> {
    let values = tensor.slice::<f16>()?.iter().map(|x| x.to_f32());
    inner::floats(cx, tensor.dims(), values)
}

fn narrow(cx: &mut RunContext<'_>, output: usize, tensor: &Tensor) -> Result<(), OpError> {
    if cx.output_used(output) {
        let values = tensor.view().slice::<f32>()?;
        let to = cx.output::<f16>(output, tensor.dims())?;
        to.fill_with(|i| f16::from_f32(values[i]));
    }
    Ok(())
}

/// A quantised input in f32, its parameters one or one a column.
fn floats_of(
    cx: &mut RunContext<'_>,
    index: usize,
    scale_index: usize,
    zero_index: usize,
) -> Result<Tensor, OpError> {
    let (tensor, scale) = (cx.required(index)?, cx.required(scale_index)?);
    let columns = tensor.dims().last().copied().unwrap_or(1);
    let one_or_each = |parameter: &TensorRef<'_>, at: usize| match parameter.len() {
        1 => Ok(()),
        len if len == columns && index == WEIGHTS => Ok(()),
        _ => Err(wrong_dims(
            at,
            parameter,
            format!("one element, or of weights [{columns}]"),
        )),
    };
    one_or_each(&scale, scale_index)?;
    let zero = cx.input(zero_index);
    if let Some(zero) = &zero {
        super::same_type(&tensor, zero, zero_index)?;
        one_or_each(zero, zero_index)?;
    }
    // A scale of float16 goes with a bias of float16.
    let scales = match scale.element_type() {
        ElementType::Float16 => widened(cx, &scale)?,
        _ => scale.to_tensor()?,
    };
    let scales = scales.view().slice::<f32>()?;
    match tensor.element_type() {
        ty @ (ElementType::Int8 | ElementType::Uint8) => with_quantized!(ty, Q => {
            let zeros = match &zero {
                Some(zero) => zero.slice::<Q>()?,
                None => &[],
            };
            let values = tensor.slice::<Q>()?.iter().enumerate().map(|(i, x)| {
                let of = |len: usize| if len == 1 { 0 } else { i % columns };
                let zero = zeros.get(of(zeros.len())).map_or(0.0, |zero| Quantized::to_f64(*zero));
                (Quantized::to_f64(*x) - zero) as f32 * scales[of(scales.len())]
            });
            inner::floats(cx, tensor.dims(), values)
        }),
        other => Err(super::unsupported(other, "int8 or uint8")),
    }
}
