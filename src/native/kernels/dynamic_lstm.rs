//! DynamicQuantizeLSTM: LSTM with weights of int8 or uint8.
//!
//!   X, W, R, B, sequence_lens, initial_h, initial_c, P as LSTM (see `recurrent`), but W is
//!   [directions, input, 4 hidden] and R [directions, hidden, 4 hidden]
//!   W_scale, W_zero_point, R_scale, R_zero_point   [directions], or [directions, 4 hidden]
//!
//! com.microsoft 1: float. The weights are (w - zero point) scale; X and H stay as they are, where
//! ONNX Runtime quantises both anew in each product, which only adds to the error.

use super::Built;
use super::group_query_attention::wrong_dims;
use super::quantized::{Quantized, with_quantized};
use super::{inner, recurrent};
use crate::native::element::ElementType;
use crate::native::infer::{Fact, InferContext, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::Tensor;

const W: usize = 1;
const R: usize = 2;
const W_SCALE: usize = 8;
const R_SCALE: usize = 10;

#[derive(Debug)]
struct DynamicQuantizeLstm(Box<dyn Operator>);

pub(in crate::native) fn dynamic_quantize_lstm(node: &NodeInfo<'_>) -> Built {
    // Without the attributes of later versions.
    Ok(Box::new(DynamicQuantizeLstm(recurrent::lstm(&node.as_of(7))?)))
}

impl Operator for DynamicQuantizeLstm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let turned = |index: usize| -> Result<Fact, OpError> {
            let fact = cx.required(index)?;
            let dims = match fact.dims.as_deref() {
                Some(&[directions, from, gates]) => Some(SymDims::from_slice(&[directions, gates, from])),
                _ => None,
            };
            Ok(Fact {
                ty: Some(ElementType::Float32),
                dims,
                value: None,
                ..fact.clone()
            })
        };
        let (w, r) = (turned(W)?, turned(R)?);
        let count = cx.output_count();
        let outputs = inner::infer(&*self.0, &[cx.input(0), Some(&w), Some(&r)], count)?;
        for (index, output) in outputs.into_iter().enumerate() {
            cx.set_fact(index, output);
        }
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (w, r) = (weights(cx, W, W_SCALE)?, weights(cx, R, R_SCALE)?);
        let rest = [3, 4, 5, 6, 7].map(|index| cx.input(index));
        let [b, lens, h, c, p] = rest;
        let inputs = [cx.input(0), Some(w.view()), Some(r.view()), b, lens, h, c, p];
        inner::run_last(cx, &*self.0, &inputs, |_| true)?;
        inner::recycle(cx, [w, r]);
        Ok(())
    }
}

/// The weights at an input as LSTM has them, [directions, 4 hidden, from].
fn weights(cx: &mut RunContext<'_>, index: usize, scale_index: usize) -> Result<Tensor, OpError> {
    let tensor = cx.required(index)?;
    let &[directions, from, gates] = tensor.dims() else {
        return Err(wrong_dims(index, &tensor, "rank 3"));
    };
    let (scale, zero) = (cx.required(scale_index)?, cx.required(scale_index + 1)?);
    super::same_type(&tensor, &zero, scale_index + 1)?;
    let of_gates = directions.checked_mul(gates);
    for (index, parameter) in [(scale_index, &scale), (scale_index + 1, &zero)] {
        if parameter.len() != directions && Some(parameter.len()) != of_gates {
            let expected = format!("[{directions}], or [{directions}, {gates}]");
            return Err(wrong_dims(index, parameter, expected));
        }
    }
    let scales = scale.slice::<f32>()?;
    let place = |len: usize, direction: usize, gate: usize| match len == directions {
        true => direction,
        false => direction * gates + gate,
    };
    match tensor.element_type() {
        ty @ (ElementType::Int8 | ElementType::Uint8) => with_quantized!(ty, Q => {
            let (codes, zeros) = (tensor.slice::<Q>()?, zero.slice::<Q>()?);
            let values = (0..codes.len()).map(|i| {
                let (direction, rest) = (i / (from * gates), i % (from * gates));
                let (gate, row) = (rest / from, rest % from);
                let code = codes[(direction * from + row) * gates + gate].to_f64();
                let zero = zeros[place(zeros.len(), direction, gate)].to_f64();
                (code - zero) as f32 * scales[place(scales.len(), direction, gate)]
            });
            inner::floats(cx, &[directions, gates, from], values)
        }),
        other => Err(super::unsupported(other, "int8 or uint8")),
    }
}
