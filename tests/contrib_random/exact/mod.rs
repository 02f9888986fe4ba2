//! The operators in f64, element by element as their definitions say it: slow, and with nothing of
//! the code under test.
//!
//! An element that is NaN is one that no definition determines.

mod attention;
mod dense;
mod experts;
mod gelu;
mod norm;
mod quantized;
mod rotary;
mod state;

use crate::harness::{Case, Float, Found, SUMS, compare, compare_with, no_worse};

/// A tensor of f64.
#[derive(Clone, Debug)]
pub struct Array {
    pub dims: Vec<usize>,
    pub values: Vec<f64>,
}

impl Array {
    /// Of these elements, each from its index.
    fn of(dims: &[usize], mut element: impl FnMut(&[usize]) -> f64) -> Array {
        let mut index = vec![0; dims.len()];
        let count: usize = dims.iter().product();
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(element(&index));
            for axis in (0..dims.len()).rev() {
                index[axis] += 1;
                if index[axis] < dims[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        Array {
            dims: dims.into(),
            values,
        }
    }

    fn at(&self, index: &[usize]) -> f64 {
        assert_eq!(index.len(), self.dims.len());
        let at = index.iter().zip(&self.dims).fold(0, |at, (&i, &dim)| {
            assert!(i < dim, "{index:?} of {:?}", self.dims);
            at * dim + i
        });
        self.values[at]
    }

    /// An element of what this broadcasts to.
    fn broadcast_at(&self, index: &[usize]) -> f64 {
        let own = &index[index.len() - self.dims.len()..];
        let own: Vec<usize> = own
            .iter()
            .zip(&self.dims)
            .map(|(&i, &dim)| if dim == 1 { 0 } else { i })
            .collect();
        self.at(&own)
    }

    fn reshaped(self, dims: &[usize]) -> Array {
        assert_eq!(dims.iter().product::<usize>(), self.values.len());
        Array {
            dims: dims.into(),
            values: self.values,
        }
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Array {
        Array {
            dims: self.dims.clone(),
            values: self.values.iter().map(|&x| f(x)).collect(),
        }
    }

    fn last(&self) -> usize {
        *self.dims.last().unwrap()
    }
}

impl Case {
    /// An input.
    fn array(&self, input: usize) -> Option<Array> {
        let (dims, values) = self.numbers(input)?;
        Some(Array {
            dims: dims.into(),
            values,
        })
    }

    /// In f32 against ONNX Runtime and the evaluation in f64; in `half` against the evaluation, and
    /// no farther from it than ONNX Runtime, which computes float16 in f32 where its CPU has no
    /// kernel, and bfloat16 only where it has one.
    pub fn check(&self, half: Float) -> Result<(), String> {
        compare(self, &self.native(Float::F32)?, &self.ort(Float::F32)?, SUMS)?;
        self.check_exactly(Float::F32)?;
        if half == Float::F32 {
            return Ok(());
        }
        let (case, ours, exact) = self.check_exactly(half)?;
        match (case.ort(half), half) {
            _ if evaluate(&case).is_none() => Ok(()),
            (Ok(theirs), _) => no_worse(&case, &ours, &theirs, &exact),
            (Err(_), Float::Bf16) => Ok(()),
            (Err(error), _) => Err(error),
        }
    }

    /// Against the evaluation in f64, or for want of one ONNX Runtime in f32: one rounding, and the
    /// error of sums in f32.
    pub fn check_exactly(&self, float: Float) -> Result<(Case, Vec<Found>, Vec<Found>), String> {
        let case = self.rounded(float);
        let ours = case.native(float)?;
        let exact = match evaluate(&case) {
            Some(exact) => exact,
            None => case.ort(Float::F32)?,
        };
        let allowed = |x: f64, largest: f64| float.rounding(x) + SUMS * largest;
        compare_with(&case, &ours, &exact, allowed)?;
        Ok((case, ours, exact))
    }
}

/// The outputs in use of a node, of the operators that have an evaluation.
fn evaluate(case: &Case) -> Option<Vec<Found>> {
    let outputs = match case.op_type {
        "Attention" => attention::projected(case),
        "BiasGelu" | "FastGelu" | "Gelu" | "QuickGelu" => gelu::gelu(case),
        "CausalConvWithState" => state::causal_conv(case),
        "DecoderMaskedMultiHeadAttention" | "MultiHeadAttention" => attention::multi_head(case),
        "EmbedLayerNormalization" => norm::embed(case),
        "FusedConv" => dense::conv(case),
        "FusedGemm" => dense::gemm(case),
        "FusedMatMul" => dense::matmul(case),
        "GatherBlockQuantized" => quantized::gather(case),
        "GroupQueryAttention" => attention::group_query(case),
        "LinearAttention" => state::linear_attention(case),
        "MoE" | "QMoE" => experts::experts(case),
        "PackedAttention" | "PackedMultiHeadAttention" => attention::packed(case),
        "RotaryEmbedding" => rotary::embedding(case),
        "SimplifiedLayerNormalization" => norm::simplified(case),
        "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" => norm::skip(case),
        _ => return None,
    };
    let used = case.used.iter().chain(std::iter::repeat(&false));
    let outputs = outputs.into_iter().zip(used).filter(|(_, used)| **used);
    let found = outputs.map(|(array, _)| Found {
        dims: array.dims.iter().map(|&dim| dim as i64).collect(),
        values: array.values,
    });
    Some(found.collect())
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn dot(count: usize, term: impl Fn(usize) -> f64) -> f64 {
    (0..count).map(term).sum()
}
