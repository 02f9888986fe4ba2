//! Gemm: Y = alpha A' B' + beta C, A' [M, K] being A or its transpose, B' [K, N] likewise.
//!
//! C broadcasts to [M, N] and may be left out (from 11 on). ai.onnx 6, 7, 9, 11, 13: floats, and
//! integers of 32 and 64 bits, for which alpha and beta are truncated to integers, as ONNX
//! Runtime does. float16 and bfloat16 are computed in f32 and rounded once.
//!
//! FusedGemm (com.microsoft 1) is the same with an activation function of `gate_function`.

use super::Built;
use super::dispatch::{with_integer, with_number};
use super::gate_function::{self, Activation};
use super::gemm::{Matrix, gemm_to, has_transposed};
use super::infer::{input_dims, input_type};
use super::number::{Number, Scalar};
use super::strided::{broadcast_dims, broadcast_strides};
use crate::native::element::ElementType;
use crate::native::infer::{Fact, InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{TensorRef, element_count};

#[derive(Debug)]
struct Gemm {
    alpha: f32,
    beta: f32,
    transpose: [bool; 2],
    activation: Option<Activation>,
}

pub(in crate::native) fn general_matmul(node: &NodeInfo<'_>) -> Built {
    if node.since < 7 {
        // What does not broadcast without it is an error less.
        node.int("broadcast")?;
    }
    build(node, None)
}

pub(in crate::native) fn fused_gemm(node: &NodeInfo<'_>) -> Built {
    let (alpha, beta) = (node.float("activation_alpha")?, node.float("activation_beta")?);
    node.float("activation_gamma")?;
    let activation = match node.string_or("activation", "")? {
        "" => None,
        name => Some(gate_function::fused(name, alpha, beta)?),
    };
    build(node, activation)
}

fn build(node: &NodeInfo<'_>, activation: Option<Activation>) -> Built {
    Ok(Box::new(Gemm {
        alpha: node.float_or("alpha", 1.0)?,
        beta: node.float_or("beta", 1.0)?,
        transpose: [node.flag_or("transA", false)?, node.flag_or("transB", false)?],
        activation,
    }))
}

/// Rows and columns of an operand.
fn sizes<D: Copy + std::fmt::Debug>(dims: &[D], transpose: bool, index: usize) -> Result<(D, D), OpError> {
    match *dims {
        [rows, columns] if !transpose => Ok((rows, columns)),
        [columns, rows] => Ok((rows, columns)),
        _ => Err(OpError::Message(format!(
            "input {index} has dims {dims:?}, expected rank 2"
        ))),
    }
}

impl Operator for Gemm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let size = |index: usize| match input_dims(cx, index) {
            Some(dims) => sizes(&dims, self.transpose[index], index),
            None => Ok((SymDim::Unknown, SymDim::Unknown)),
        };
        let ((m, a_depth), (b_depth, n)) = (size(0)?, size(1)?);
        if let (SymDim::Fixed(a), SymDim::Fixed(b)) = (a_depth, b_depth)
            && a != b
        {
            return Err(OpError::Message(format!("A has {a} columns and B has {b} rows")));
        }
        cx.set_output(0, input_type(cx, 0), Some(SymDims::from_slice(&[m, n])));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b) = (cx.required(0)?, cx.required(1)?);
        super::same_type(&a, &b, 1)?;
        with_number!(a.element_type(), T => self.run_as::<T>(cx, &a, &b))
    }

    fn is_row_wise(&self, others: &[Option<&Fact>]) -> bool {
        let rows = |fact: &Fact| {
            let dims = fact.dims.as_ref()?;
            Some(dims.len().checked_sub(2).and_then(|at| dims.get(at).copied()))
        };
        let same_for_all = |c: &&Fact| matches!(rows(c), Some(None | Some(SymDim::Fixed(1))));
        let [transpose, _] = self.transpose;
        !transpose && others.get(1).copied().flatten().as_ref().is_none_or(same_for_all)
    }
}

/// The elements of a matrix, or of its transpose, in wide type.
fn read<T: Number>(x: &[T], transpose: bool, (rows, columns): (usize, usize), to: &mut [T::Wide]) {
    if !transpose {
        to.iter_mut().zip(x).for_each(|(to, x)| *to = x.widen());
        return;
    }
    // X is [columns, rows]. Square blocks, so that both sides stay in the cache.
    const BLOCK: usize = 32;
    for first_row in (0..rows).step_by(BLOCK) {
        for first_column in (0..columns).step_by(BLOCK) {
            for row in first_row..rows.min(first_row + BLOCK) {
                for column in first_column..columns.min(first_column + BLOCK) {
                    to[row * columns + column] = x[column * rows + row].widen();
                }
            }
        }
    }
}

impl Gemm {
    fn run_as<T: Number>(
        &self,
        cx: &mut RunContext<'_>,
        a: &TensorRef<'_>,
        b: &TensorRef<'_>,
    ) -> Result<(), OpError> {
        let (m, k) = sizes(a.dims(), self.transpose[0], 0)?;
        let (b_rows, n) = sizes(b.dims(), self.transpose[1], 1)?;
        if k != b_rows {
            return Err(OpError::Message(format!(
                "A has {k} columns and B has {b_rows} rows"
            )));
        }
        let dims = [m, n];
        let c = cx.input(2);
        if let Some(c) = &c {
            super::same_type(a, c, 2)?;
            if broadcast_dims(c.dims(), &dims).as_deref() != Some(&dims[..]) {
                return Err(OpError::WrongDims {
                    what: "input 2".into(),
                    found: c.dims().into(),
                    expected: format!("dims that broadcast to {dims:?}"),
                });
            }
        }
        let (a, b) = (a.slice::<T>()?, b.slice::<T>()?);
        element_count(&dims)?;
        let alpha = T::Wide::from_f64(self.alpha.into());
        let beta = T::Wide::from_f64(self.beta.into());
        let c_strides = c.map(|c| broadcast_strides(c.dims(), &dims));
        let c = c.map(|c| c.slice::<T>()).transpose()?.zip(c_strides.as_deref());
        let finish = |row: usize, column: usize, sum: T::Wide| {
            let mut x = sum.mul(alpha);
            if let Some((c, &[row_step, column_step])) = c {
                let at = row * row_step.unsigned_abs() + column * column_step.unsigned_abs();
                x = x.add(c[at].widen().mul(beta));
            }
            match self.activation {
                Some(activation) => T::narrow(T::Wide::from_f64(activation.apply(x.to_f64()))),
                None => T::narrow(x),
            }
        };
        let sizes = (m, k, n);
        if has_transposed::<T>() {
            let y = cx.output::<T>(0, &dims)?.into_mut();
            let [a, b] = [(a, 0), (b, 1)].map(|(elements, index)| Matrix {
                elements,
                transposed: self.transpose[index],
            });
            gemm_to(cx.workers(), sizes, a, b, y, finish);
            return Ok(());
        }
        let scratch = cx.scratch::<T::Wide>(a.len().saturating_add(b.len()))?;
        let (a_wide, b_wide) = scratch.split_at_mut(a.len());
        read(a, self.transpose[0], (m, k), a_wide);
        read(b, self.transpose[1], (k, n), b_wide);
        let y = cx.output::<T>(0, &dims)?.into_mut();
        gemm_to(
            cx.workers(),
            sizes,
            Matrix::rows(&*a_wide),
            Matrix::rows(&*b_wide),
            y,
            finish,
        );
        Ok(())
    }
}
