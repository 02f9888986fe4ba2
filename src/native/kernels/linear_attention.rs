//! LinearAttention (ai.onnx 27): a state S [d_k, d_v] per key head, advanced token by token,
//! with k, v, g, beta of the token and q of each query head that shares the key head:
//!
//!   linear         S = S + k v'
//!   gated          S = e^g S + k v'
//!   delta          S = S + k (beta (v - S' k))'
//!   gated_delta    S = e^g S, then as delta            o = scale S' q
//!
//!   query [B, T, Hq d_k]   key [B, T, Hkv d_k]   value [B, T, Hkv d_v]   output [B, T, Hq d_v]
//!   past_state, present_state [B, Hkv, d_k, d_v], zero without past_state
//!   decay (g) [B, T, Hkv d_k] or [B, T, Hkv]   beta [B, T, Hkv] or [B, T, 1]
//!
//! `scale` 0 is 1 / sqrt(d_k). All in f32; each output is rounded once. `chunk_size` is a hint.
//!
//! com.microsoft 1 is the same, and more: where Hkv is a multiple of Hq, each key head has an output
//! [B, T, Hkv d_v], and key heads share query heads. With `state_window` W > 0 the states are
//! [W, B, Hkv, d_k, d_v]: those after each of the last W tokens, the last one last (the one that is
//! read), and zeros where there are not as many tokens.

use super::Built;
use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::number::{Number, Scalar};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

#[derive(Debug)]
struct LinearAttention {
    query_heads: usize,
    heads: usize,
    scale: f32,
    gated: bool,
    delta: bool,
    /// 0 for states without an axis of tokens.
    window: usize,
}

pub(in crate::native) fn linear_attention(node: &NodeInfo<'_>) -> Built {
    build(node, 0, false)
}

pub(in crate::native) fn contrib_linear_attention(node: &NodeInfo<'_>) -> Built {
    build(node, state_window(node)?, true)
}

/// The attribute `state_window`.
pub(super) fn state_window(node: &NodeInfo<'_>) -> Result<usize, OpError> {
    let window = node.int_or("state_window", 0)?;
    usize::try_from(window).map_err(|_| OpError::Attribute {
        name: "state_window".into(),
        message: format!("is {window}, expected 0 or more"),
    })
}

fn build(node: &NodeInfo<'_>, window: usize, inverse: bool) -> Built {
    let (gated, delta) = match node.string_or("update_rule", "gated_delta")? {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => {
            return Err(OpError::Attribute {
                name: "update_rule".into(),
                message: format!("is \"{other}\", expected linear, gated, delta or gated_delta"),
            });
        }
    };
    node.int("chunk_size")?;
    let (query_heads, heads) = (
        super::conv::group(node, "q_num_heads")?,
        super::conv::group(node, "kv_num_heads")?,
    );
    if query_heads % heads != 0 && !(inverse && heads % query_heads == 0) {
        return Err(OpError::Attribute {
            name: "q_num_heads".into(),
            message: format!("is {query_heads}, expected a multiple of {heads}, kv_num_heads"),
        });
    }
    Ok(Box::new(LinearAttention {
        query_heads,
        heads,
        scale: node.float_or("scale", 0.0)?,
        gated,
        delta,
        window,
    }))
}

impl Operator for LinearAttention {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (query, value) = (input_dims(cx, 0), input_dims(cx, 2));
        let (mut output, mut state) = (None, None);
        if let (Some(&[batch, steps, width]), Some(&[_, _, values])) = (query.as_deref(), value.as_deref()) {
            let scaled = |dim: SymDim, by: usize, heads: usize| match dim {
                SymDim::Fixed(size) => (size / heads)
                    .checked_mul(by)
                    .map_or(SymDim::Unknown, SymDim::Fixed),
                _ => SymDim::Unknown,
            };
            output = Some(SymDims::from_slice(&[
                batch,
                steps,
                scaled(values, self.query_heads.max(self.heads), self.heads),
            ]));
            let window = (self.window > 0).then_some(SymDim::Fixed(self.window));
            state = Some(SymDims::from_iter(window.into_iter().chain([
                batch,
                SymDim::Fixed(self.heads),
                scaled(width, 1, self.query_heads),
                scaled(values, 1, self.heads),
            ])));
        }
        cx.set_output(0, input_type(cx, 0), output);
        cx.set_output(1, input_type(cx, 3).or(input_type(cx, 0)), state);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let query = cx.required(0)?;
        // Without a past state, its type is that of the rest.
        let state = cx.input(3).unwrap_or(query).element_type();
        with_float!(query.element_type(), T => {
            with_float!(state, S => self.run_as::<T, S>(cx, &query))
        })
    }
}

fn f32_of<T: Number>(x: T) -> f32 {
    x.widen().to_f64() as f32
}

fn of_f32<T: Number>(x: f32) -> T {
    T::narrow(Scalar::from_f64(x.into()))
}

impl LinearAttention {
    fn run_as<'a, T: Number, S: Number>(
        &self,
        cx: &mut RunContext<'a>,
        query: &TensorRef<'_>,
    ) -> Result<(), OpError> {
        let (key, value) = (cx.required(1)?, cx.required(2)?);
        let (&[batch, steps, width], &[_, _, values]) = (query.dims(), value.dims()) else {
            return Err(OpError::Message(format!(
                "query is {query:?}, value is {value:?}, expected rank 3"
            )));
        };
        let (d_k, d_v) = (width / self.query_heads, values / self.heads);
        let outputs = self.query_heads.max(self.heads);
        let (key_width, value_width, output_width) = (
            element_count(&[self.heads, d_k])?,
            element_count(&[self.heads, d_v])?,
            element_count(&[outputs, d_v])?,
        );
        let fits = |tensor: &TensorRef<'_>, widths: &[usize]| {
            widths.iter().any(|&width| tensor.dims() == [batch, steps, width])
        };
        let wrong = |what: &str, tensor: &TensorRef<'_>| {
            OpError::Message(format!(
                "{what} is {tensor:?}, which does not fit the query {query:?}"
            ))
        };
        if d_k * self.query_heads != width || !fits(&key, &[key_width]) {
            return Err(wrong("key", &key));
        }
        if !fits(&value, &[value_width]) {
            return Err(wrong("value", &value));
        }
        let optional = |index: usize, used: bool| match cx.input(index) {
            Some(tensor) if used => Ok(Some(tensor)),
            None if used => Err(OpError::MissingInput { index }),
            _ => Ok(None),
        };
        let (decay, beta) = (optional(4, self.gated)?, optional(5, self.delta)?);
        if let Some(decay) = decay.filter(|decay| !fits(decay, &[self.heads, key_width])) {
            return Err(wrong("decay", &decay));
        }
        if let Some(beta) = beta.filter(|beta| !fits(beta, &[self.heads, 1])) {
            return Err(wrong("beta", &beta));
        }
        let window = (self.window > 0).then_some(self.window);
        let one = [batch, self.heads, d_k, d_v];
        let state_dims: Dims = window.into_iter().chain(one).collect();
        let all_states = element_count(&one)?;
        let slots = self.window.max(1);
        let past = match cx.input(3) {
            Some(past) if past.dims() != &state_dims[..] => return Err(wrong("past_state", &past)),
            // The last of them.
            Some(past) => Some(&past.slice::<S>()?[(slots - 1) * all_states..]),
            None => None,
        };
        // The last dim, and the elements.
        let rows = |tensor: Option<TensorRef<'a>>| -> Result<Option<(usize, &'a [T])>, OpError> {
            let Some(tensor) = tensor else { return Ok(None) };
            let last = tensor.dims().last().copied().unwrap_or(1);
            Ok(Some((last, tensor.slice::<T>()?)))
        };
        let (decay, beta) = (rows(decay)?, rows(beta)?);
        let size = element_count(&[d_k, d_v])?;
        let scratch = cx.scratch::<f32>(size.saturating_add(d_k).saturating_add(d_v))?;
        let (state, rest) = scratch.split_at_mut(size);
        let (k, v) = rest.split_at_mut(d_k);
        let scale = match self.scale {
            0.0 => 1.0 / (d_k as f32).sqrt(),
            scale => scale,
        };
        let mut output = match cx.output_used(0) {
            true => Some(cx.output::<T>(0, &[batch, steps, output_width])?.into_mut()),
            false => None,
        };
        let mut present = match cx.output_used(1) {
            true => Some(cx.output::<S>(1, &state_dims)?.zeroed()),
            false => None,
        };
        let (query, key, value) = (query.slice::<T>()?, key.slice::<T>()?, value.slice::<T>()?);
        let shared = outputs / self.heads;
        for pair in 0..batch * self.heads {
            ending::count(state.len().max(1));
            let (b, head) = (pair / self.heads, pair % self.heads);
            match past {
                Some(past) => {
                    let past = past[pair * size..].iter();
                    state
                        .iter_mut()
                        .zip(past)
                        .for_each(|(to, &from)| *to = f32_of(from));
                }
                None => state.fill(0.0),
            }
            for step in 0..steps {
                ending::count(state.len().max(1));
                let token = b * steps + step;
                let at = (token * self.heads + head) * d_k;
                k.iter_mut()
                    .zip(&key[at..])
                    .for_each(|(to, &from)| *to = f32_of(from));
                let at = (token * self.heads + head) * d_v;
                v.iter_mut()
                    .zip(&value[at..])
                    .for_each(|(to, &from)| *to = f32_of(from));
                if let Some((width, decay)) = &decay {
                    let decay = &decay[token * width..][..*width];
                    for (i, row) in state.chunks_exact_mut(d_v.max(1)).enumerate() {
                        let g = match *width == self.heads {
                            true => f32_of(decay[head]),
                            false => f32_of(decay[head * d_k + i]),
                        };
                        let factor = g.exp();
                        row.iter_mut().for_each(|s| *s *= factor);
                    }
                }
                if let Some((width, beta)) = &beta {
                    let beta = f32_of(beta[token * width + if *width == 1 { 0 } else { head }]);
                    for (j, v) in v.iter_mut().enumerate() {
                        let recalled = k
                            .iter()
                            .enumerate()
                            .fold(0.0, |sum, (i, k)| sum + k * state[i * d_v + j]);
                        *v = beta * (*v - recalled);
                    }
                }
                for (k, row) in k.iter().zip(state.chunks_exact_mut(d_v.max(1))) {
                    row.iter_mut().zip(v.iter()).for_each(|(s, v)| *s += k * v);
                }
                // Of the states after the last `slots` tokens, this is the one at `slot`.
                let slot = (step + slots).checked_sub(steps);
                if let (Some(present), Some(slot)) = (&mut present, slot) {
                    let present = present[slot * all_states + pair * size..].iter_mut();
                    let state = state.iter();
                    present.zip(state).for_each(|(to, &from)| *to = of_f32(from));
                }
                let Some(output) = &mut output else { continue };
                for at in head * shared..(head + 1) * shared {
                    ending::count(state.len().max(1));
                    let query_head = at / (outputs / self.query_heads);
                    let query = &query[(token * self.query_heads + query_head) * d_k..][..d_k];
                    let row = token * outputs + at;
                    for (j, o) in output[row * d_v..][..d_v].iter_mut().enumerate() {
                        let sum = query.iter().enumerate();
                        let sum = sum.fold(0.0, |sum, (i, &q)| sum + f32_of(q) * state[i * d_v + j]);
                        *o = of_f32(sum * scale);
                    }
                }
            }
            // Without tokens, the state stays.
            if let (Some(present), 0) = (&mut present, steps) {
                let present = present[(slots - 1) * all_states + pair * size..].iter_mut();
                let state = state.iter();
                present.zip(state).for_each(|(to, &from)| *to = of_f32(from));
            }
        }
        Ok(())
    }
}
