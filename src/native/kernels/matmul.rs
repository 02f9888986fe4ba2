//! MatMul: Y = A B over the last two dims, the ones before them broadcast.
//!
//!   A [..., M, K]   B [..., K, N]   Y [..., M, N]
//!
//! An operand of rank 1 is a row on the left and a column on the right, and its dim of 1 is
//! dropped from Y. ai.onnx 1, 9, 13: floats, and integers of 32 and 64 bits (all integers are
//! taken), which wrap.
//!
//! Passes, and no model, give it a bias [N] as input 2 and a residual of the shape of Y as input 3,
//! which are added as `epilogue` says. B is one matrix then.

use super::Built;
use super::dispatch::{with_integer, with_number};
use super::epilogue::Epilogue;
use super::gemm::{Matrix, gemm_rows, stack};
use super::infer::broadcast as broadcast_facts;
use super::number::Number;
use super::strided::{broadcast_strides, offset_of};
use crate::native::element::ElementType;
use crate::native::infer::{Fact, InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, element_count};
use crate::native::workers::Workers;

const BIAS: usize = 2;
const RESIDUAL: usize = 3;

#[derive(Debug)]
struct MatMul;

pub(in crate::native) fn matmul(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(MatMul))
}

/// An operand as a stack of matrices.
struct Stack<'a, D> {
    batch: &'a [D],
    rows: D,
    columns: D,
}

impl<'a, D: Copy> Stack<'a, D> {
    fn left(dims: &'a [D], one: D) -> Option<Self> {
        match dims {
            [] => None,
            &[columns] => Some(Stack {
                batch: &[],
                rows: one,
                columns,
            }),
            [batch @ .., rows, columns] => Some(Stack {
                batch,
                rows: *rows,
                columns: *columns,
            }),
        }
    }

    fn right(dims: &'a [D], one: D) -> Option<Self> {
        match dims {
            &[rows] => Some(Stack {
                batch: &[],
                rows,
                columns: one,
            }),
            dims => Self::left(dims, one),
        }
    }
}

fn scalar(index: usize) -> OpError {
    OpError::WrongDims {
        what: format!("input {index}"),
        found: Dims::new(),
        expected: "rank 1 or more".into(),
    }
}

/// The dims of the product, as far as they are known.
pub(super) fn product_facts(a: &[SymDim], b: &[SymDim]) -> Result<SymDims, OpError> {
    let left = Stack::left(a, SymDim::Fixed(1)).ok_or_else(|| scalar(0))?;
    let right = Stack::right(b, SymDim::Fixed(1)).ok_or_else(|| scalar(1))?;
    if let (SymDim::Fixed(k), SymDim::Fixed(rows)) = (left.columns, right.rows)
        && k != rows
    {
        return Err(OpError::Message(format!(
            "A has {k} columns and B has {rows} rows (shapes {a:?} and {b:?})"
        )));
    }
    let mut dims: SymDims = broadcast_facts(left.batch, right.batch)?;
    dims.extend((a.len() > 1).then_some(left.rows));
    dims.extend((b.len() > 1).then_some(right.columns));
    Ok(dims)
}

impl Operator for MatMul {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (a, b) = (cx.required(0)?, cx.required(1)?);
        let ty = a.ty.or(b.ty);
        let dims = match (&a.dims, &b.dims) {
            (Some(a), Some(b)) => Some(product_facts(a, b)?),
            _ => None,
        };
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b) = (cx.required(0)?, cx.required(1)?);
        super::same_type(&a, &b, 1)?;
        let product = Product::new(a.dims(), b.dims())?;
        with_number!(a.element_type(), T => {
            let n = product.shape().2;
            let epilogue = Epilogue::<T>::new(cx, (&product.dims, n), BIAS, RESIDUAL)?;
            if !epilogue.is_empty() && !product.is_of_one_matrix() {
                return Err(OpError::Unsupported("sums of products with several matrices".into()));
            }
            let y = cx.output::<T>(0, &product.dims)?.into_mut();
            product.multiply(cx.workers(), a.slice::<T>()?, b.slice::<T>()?, y, epilogue);
            Ok(())
        })
    }

    fn joined_inputs(&self, others: &[Option<&Fact>]) -> Option<&'static [usize]> {
        let weight = others.first().copied().flatten()?.value()?;
        let (stack, _) = weight.dims().split_last_chunk::<2>()?;
        // Rows of one run would not be together where there are several matrices.
        stack.iter().all(|&dim| dim == 1).then_some(&[0, RESIDUAL])
    }

    fn is_row_wise(&self, others: &[Option<&Fact>]) -> bool {
        let has_rank = |fact: &Fact, rank| fact.dims.as_ref().is_some_and(|dims| dims.len() == rank);
        let of = |index: usize| others.get(index - 1).copied().flatten();
        of(1).is_some_and(|b| has_rank(b, 2))
            && of(BIAS).is_none_or(|bias| has_rank(bias, 1))
            && of(RESIDUAL).is_none()
    }
}

/// A product of two stacks of matrices, whose shapes fit.
pub(super) struct Product<'a> {
    left: Stack<'a, usize>,
    right: Stack<'a, usize>,
    batch: Dims,
    /// The dims of the result.
    pub dims: Dims,
    /// Elements of one matrix of A and of B.
    sizes: [usize; 2],
}

impl<'a> Product<'a> {
    pub fn new(a: &'a [usize], b: &'a [usize]) -> Result<Self, OpError> {
        let left = Stack::left(a, 1).ok_or_else(|| scalar(0))?;
        let right = Stack::right(b, 1).ok_or_else(|| scalar(1))?;
        let (m, k, n) = (left.rows, left.columns, right.columns);
        if k != right.rows {
            return Err(OpError::Message(format!(
                "A has {k} columns and B has {} rows (shapes {a:?} and {b:?})",
                right.rows
            )));
        }
        let batch = super::broadcast(left.batch, right.batch)?;
        let mut dims = batch.clone();
        if a.len() > 1 {
            dims.push(m);
        }
        if b.len() > 1 {
            dims.push(n);
        }
        Ok(Product {
            sizes: [element_count(&[m, k])?, element_count(&[k, n])?],
            left,
            right,
            batch,
            dims,
        })
    }

    /// (rows of A, columns of A, columns of B)
    pub fn shape(&self) -> (usize, usize, usize) {
        (self.left.rows, self.left.columns, self.right.columns)
    }

    /// Whether one matrix is on the right for the whole batch, which is just more rows then.
    pub fn is_of_one_matrix(&self) -> bool {
        self.right.batch.iter().all(|&dim| dim == 1) && self.left.batch.len() >= self.right.batch.len()
    }

    /// Writes every element of `y`; the slices are as long as the shapes say. Something can be added
    /// only if the product [is of one matrix](Self::is_of_one_matrix).
    pub fn multiply<T: Number>(
        &self,
        workers: &Workers,
        a: &[T],
        b: &[T],
        y: &mut [T],
        epilogue: Epilogue<'_, T>,
    ) {
        let (m, k, n) = self.shape();
        let [a_size, b_size] = self.sizes;
        if y.is_empty() {
            return;
        }
        if self.is_of_one_matrix() {
            let sizes = (y.len() / n, k, n);
            let (a, b) = (Matrix::rows(a), Matrix::rows(b));
            gemm_rows(workers, sizes, a, b, y, |row, column, sums, y| {
                epilogue.finish(row, column, sums, y);
            });
            return;
        }
        let (a_strides, b_strides) = (
            broadcast_strides(self.left.batch, &self.batch),
            broadcast_strides(self.right.batch, &self.batch),
        );
        let operands = |index: usize| {
            let a_at = offset_of(index, &self.batch, &a_strides) * a_size;
            let b_at = offset_of(index, &self.batch, &b_strides) * b_size;
            (
                Matrix::rows(&a[a_at..][..a_size]),
                Matrix::rows(&b[b_at..][..b_size]),
            )
        };
        stack(workers, (m, k, n), operands, y, |_, _, sum| T::narrow(sum));
    }
}
