//! FusedMatMul (and TransposeMatMul, its older name): Y = alpha A' B' over the last two dims, the
//! ones before them broadcast, as MatMul.
//!
//! With `transBatchA` the first dim of A [rows, batch..., columns] is moved behind its batch dims;
//! `transA` then swaps the last two. B likewise. Operands of rank 1 stay as they are.
//!
//! FusedMatMulActivation is the same with an activation function of `gate_function`.
//!
//! com.microsoft 1: float, float16, bfloat16, double. Sums are in the wide type; one rounding.

use super::Built;
use super::dispatch::with_float;
use super::gate_function::{self, Activation};
use super::gemm::{Matrix, gemm_to, has_transposed, stack};
use super::infer::input_type;
use super::number::{Float, Number, Scalar};
use super::strided::{Strided, Strides, broadcast_strides, dense_strides, offset_of};
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};
use crate::native::workers::Workers;

#[derive(Clone, Copy, Debug)]
struct Order {
    batch: bool,
    last: bool,
}

impl Order {
    fn read(node: &NodeInfo<'_>, last: &str, batch: &str) -> Result<Self, OpError> {
        Ok(Order {
            last: node.flag_or(last, false)?,
            batch: node.flag_or(batch, false)?,
        })
    }

    /// Puts the entries of axes in the order in which they are used.
    fn apply<D: Copy>(self, axes: &mut [D]) {
        let rank = axes.len();
        if self.batch && rank > 2 {
            axes[..rank - 1].rotate_left(1);
        }
        if self.last && rank > 1 {
            axes.swap(rank - 2, rank - 1);
        }
    }

    fn is_identity(self, rank: usize) -> bool {
        !(self.batch && rank > 2 || self.last && rank > 1)
    }
}

#[derive(Debug)]
struct FusedMatMul {
    a: Order,
    b: Order,
    alpha: f32,
    activation: Option<Activation>,
}

pub(in crate::native) fn fused_matmul(node: &NodeInfo<'_>) -> Built {
    build(node, None)
}

pub(in crate::native) fn fused_matmul_activation(node: &NodeInfo<'_>) -> Built {
    let (alpha, beta) = (node.float("activation_alpha")?, node.float("activation_beta")?);
    // Of functions that `gate_function` refuses.
    node.float("activation_gamma")?;
    node.int("activation_axis")?;
    let name = super::required_attribute("activation", node.string("activation")?)?;
    build(node, Some(gate_function::fused(name, alpha, beta)?))
}

fn build(node: &NodeInfo<'_>, activation: Option<Activation>) -> Built {
    Ok(Box::new(FusedMatMul {
        activation,
        a: Order::read(node, "transA", "transBatchA")?,
        b: Order::read(node, "transB", "transBatchB")?,
        alpha: node.float_or("alpha", 1.0)?,
    }))
}

impl Operator for FusedMatMul {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (a, b) = (cx.required(0)?, cx.required(1)?);
        let dims = match (a.dims.clone(), b.dims.clone()) {
            (Some(mut a), Some(mut b)) if a.len() > 1 && b.len() > 1 => {
                self.a.apply(&mut a);
                self.b.apply(&mut b);
                let (a_batch, rows) = (&a[..a.len() - 2], a[a.len() - 2]);
                let (b_batch, columns) = (&b[..b.len() - 2], b[b.len() - 1]);
                let mut dims: SymDims = super::infer::broadcast(a_batch, b_batch)?;
                dims.extend([rows, columns]);
                Some(dims)
            }
            (Some(a), Some(b)) => Some(SymDims::from_elem(
                SymDim::Unknown,
                (a.len() + b.len()).saturating_sub(2),
            )),
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b) = (cx.required(0)?, cx.required(1)?);
        super::same_type(&a, &b, 1)?;
        with_float!(a.element_type(), T => self.run_as::<T>(cx, &a, &b))
    }
}

/// An operand as a stack of matrices, in the order in which it is used.
struct Stack {
    dims: Dims,
    strides: Strides,
    order: Order,
}

impl Stack {
    fn new(tensor: &TensorRef<'_>, order: Order) -> Result<Self, OpError> {
        if tensor.rank() == 0 {
            return Err(OpError::Message("a matrix is expected, found a scalar".into()));
        }
        let mut stack = Stack {
            dims: tensor.dims().into(),
            strides: dense_strides(tensor.dims()),
            order,
        };
        order.apply(&mut stack.dims);
        order.apply(&mut stack.strides);
        Ok(stack)
    }

    /// Whether the matrices are used where they lie, if need be by their columns.
    fn in_place<T: Number>(&self) -> bool {
        let rank = self.dims.len();
        self.order.is_identity(rank) || has_transposed::<T>() && !(self.order.batch && rank > 2)
    }

    /// Whether the matrices are stored by their columns, where they are used in place.
    fn transposed(&self) -> bool {
        self.order.last && self.dims.len() > 1
    }

    /// The elements in order and in wide type.
    fn read<'a, T: Number>(&self, elements: &[T], room: &'a mut [T::Wide]) -> &'a [T::Wide] {
        let mut to = room.iter_mut();
        Strided::new(&self.dims, [&self.strides], [0]).for_each(&mut |[at]| {
            if let Some(to) = to.next() {
                *to = elements[at].widen();
            }
        });
        room
    }

    /// Batch dims, rows and columns; `column` for a vector on the right.
    fn split(&self, column: bool) -> (&[usize], usize, usize) {
        match self.dims[..] {
            [size] if column => (&[], size, 1),
            [size] => (&[], 1, size),
            [ref batch @ .., rows, columns] => (batch, rows, columns),
            [] => (&[], 1, 1),
        }
    }
}

impl FusedMatMul {
    fn run_as<T: Float>(
        &self,
        cx: &mut RunContext<'_>,
        a: &TensorRef<'_>,
        b: &TensorRef<'_>,
    ) -> Result<(), OpError> {
        let (left, right) = (Stack::new(a, self.a)?, Stack::new(b, self.b)?);
        let ((a_batch, m, k), (b_batch, b_rows, n)) = (left.split(false), right.split(true));
        if k != b_rows {
            return Err(OpError::Message(format!(
                "A has {k} columns and B has {b_rows} rows (shapes {:?} and {:?})",
                a.dims(),
                b.dims()
            )));
        }
        let batch = super::broadcast(a_batch, b_batch)?;
        let mut dims = batch.clone();
        dims.extend((a.rank() > 1).then_some(m));
        dims.extend((b.rank() > 1).then_some(n));
        let (a, b) = (a.slice::<T>()?, b.slice::<T>()?);
        element_count(&[m, n])?;
        let alpha = T::Wide::from_f64(self.alpha.into());
        let activation = self.activation;
        let finish = |_, _, sum: T::Wide| {
            let product = sum.mul(alpha);
            T::narrow(activation.map_or(product, |activation| activation.apply(product)))
        };
        let product = Product {
            sizes: (m, k, n),
            batch: &batch,
            strides: [
                broadcast_strides(a_batch, &batch),
                broadcast_strides(b_batch, &batch),
            ],
            // One matrix for the whole batch on the right: the batch is just more rows.
            single: b_batch.iter().all(|&dim| dim == 1) && a_batch.len() >= b_batch.len(),
        };
        if left.in_place::<T>() && right.in_place::<T>() {
            let y = cx.output::<T>(0, &dims)?.into_mut();
            let operands = [(a, left.transposed()), (b, right.transposed())];
            product.multiply(cx.workers(), operands, y, finish);
            return Ok(());
        }
        let scratch = cx.scratch::<T::Wide>(a.len().saturating_add(b.len()))?;
        let (a_wide, b_wide) = scratch.split_at_mut(a.len());
        let y = cx.output::<T>(0, &dims)?.into_mut();
        let operands = [(left.read(a, a_wide), false), (right.read(b, b_wide), false)];
        product.multiply(cx.workers(), operands, y, finish);
        Ok(())
    }
}

/// A product of two stacks of matrices.
struct Product<'a> {
    sizes: (usize, usize, usize),
    batch: &'a [usize],
    /// Of the matrices of A and of B, along the batch dims.
    strides: [Strides; 2],
    /// B is one matrix.
    single: bool,
}

impl Product<'_> {
    /// Writes every element of `y`. An operand is its elements, and whether its matrices are
    /// stored by their columns.
    fn multiply<T: Number, Y: Send>(
        &self,
        workers: &Workers,
        [(a, a_transposed), (b, b_transposed)]: [(&[T], bool); 2],
        y: &mut [Y],
        finish: impl Fn(usize, usize, T::Wide) -> Y + Sync,
    ) {
        let (m, k, n) = self.sizes;
        if y.is_empty() {
            return;
        }
        let matrix = |elements, transposed| Matrix { elements, transposed };
        let rows = y.len() / n;
        if self.single && (!a_transposed || rows == m) {
            let (a, b) = (matrix(a, a_transposed), matrix(b, b_transposed));
            gemm_to(workers, (rows, k, n), a, b, y, finish);
            return;
        }
        let [a_strides, b_strides] = &self.strides;
        let operands = |index: usize| {
            let a_at = offset_of(index, self.batch, a_strides) * m * k;
            let b_at = offset_of(index, self.batch, b_strides) * k * n;
            (
                matrix(&a[a_at..][..m * k], a_transposed),
                matrix(&b[b_at..][..k * n], b_transposed),
            )
        };
        stack(workers, self.sizes, operands, y, finish);
    }
}
