//! Det: the determinant of each matrix of X [..., M, M], by elimination with the largest pivot of
//! a column, in f64. ai.onnx 11, 22: floats. The determinant of an empty matrix is 1.

use super::Built;
use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::number::{Float, Scalar};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{TensorRef, element_count};

#[derive(Debug)]
struct Det;

pub(in crate::native) fn det(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Det))
}

impl Operator for Det {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = input_dims(cx, 0).map(|dims| {
            let batch = dims.len().saturating_sub(2);
            dims[..batch].into()
        });
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => run_as::<T>(cx, &x))
    }
}

fn run_as<T: Float>(cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
    let (batch, size) = match x.dims() {
        [batch @ .., rows, columns] if rows == columns => (batch, *rows),
        dims => {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: dims.into(),
                expected: "square matrices".into(),
            });
        }
    };
    let area = element_count(&[size, size])?;
    let matrix = cx.scratch::<f64>(area)?;
    let x = x.slice::<T>()?;
    cx.output::<T>(0, batch)?.fill_with(|at| {
        for (to, x) in matrix.iter_mut().zip(&x[at * area..][..area]) {
            *to = x.widen().to_f64();
        }
        T::narrow(Scalar::from_f64(eliminate(matrix, size)))
    });
    Ok(())
}

/// The determinant; the matrix is destroyed.
fn eliminate(matrix: &mut [f64], size: usize) -> f64 {
    let mut det = 1.0;
    for column in 0..size {
        let magnitude = |row: usize| matrix[row * size + column].abs();
        let pivot = (column..size).fold(column, |best, row| {
            if magnitude(row) > magnitude(best) {
                row
            } else {
                best
            }
        });
        let value = matrix[pivot * size + column];
        if value == 0.0 {
            return 0.0;
        }
        if pivot != column {
            for i in 0..size {
                matrix.swap(pivot * size + i, column * size + i);
            }
            det = -det;
        }
        det *= value;
        for row in column + 1..size {
            ending::count(size - column);
            let factor = matrix[row * size + column] / value;
            for i in column..size {
                matrix[row * size + i] -= factor * matrix[column * size + i];
            }
        }
    }
    det
}
