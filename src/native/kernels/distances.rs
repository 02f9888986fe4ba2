//! CDist: the distances of each row of A [M, N] from each row of B [K, N], C [M, K].
//!
//!   sqeuclidean   sum (a - b)^2, the default
//!   euclidean     its root
//!
//! com.microsoft 1: float, double (and float16, bfloat16). The definition names other metrics,
//! which ONNX Runtime refuses too.

use super::Built;
use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::number::{Float, Real, Scalar};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
struct CDist {
    root: bool,
}

pub(in crate::native) fn c_dist(node: &NodeInfo<'_>) -> Built {
    match node.string_or("metric", "sqeuclidean")? {
        "sqeuclidean" => Ok(Box::new(CDist { root: false })),
        "euclidean" => Ok(Box::new(CDist { root: true })),
        other => Err(OpError::Unsupported(format!("the metric \"{other}\""))),
    }
}

impl Operator for CDist {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let rows = |index: usize| match input_dims(cx, index).as_deref() {
            Some(&[rows, _]) => rows,
            _ => SymDim::Unknown,
        };
        let dims = SymDims::from_slice(&[rows(0), rows(1)]);
        cx.set_output(0, input_type(cx, 0), Some(dims));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b) = (cx.required(0)?, cx.required(1)?);
        super::same_type(&a, &b, 1)?;
        with_float!(a.element_type(), T => self.run_as::<T>(cx, &a, &b))
    }
}

impl CDist {
    fn run_as<T: Float>(
        &self,
        cx: &mut RunContext<'_>,
        a: &TensorRef<'_>,
        b: &TensorRef<'_>,
    ) -> Result<(), OpError> {
        let (m, k, n) = match (a.dims(), b.dims()) {
            (&[m, n], &[k, width]) if n == width => (m, k, n),
            (a, b) => {
                return Err(OpError::Message(format!(
                    "A has dims {a:?} and B {b:?}, expected rows of one length"
                )));
            }
        };
        let (a, b) = (a.slice::<T>()?, b.slice::<T>()?);
        cx.output::<T>(0, &[m, k])?.fill_with(|i| {
            ending::count(n);
            let (a, b) = (&a[i / k * n..][..n], &b[i % k * n..][..n]);
            let squares = a.iter().zip(b).map(|(a, b)| {
                let apart = a.widen().sub(b.widen());
                apart.mul(apart)
            });
            let sum = squares.fold(T::Wide::ZERO, Scalar::add);
            T::narrow(if self.root { sum.sqrt() } else { sum })
        });
        Ok(())
    }
}
