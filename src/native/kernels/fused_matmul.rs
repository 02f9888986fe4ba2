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
use super::gemm::gemm_to;
use super::infer::input_type;
use super::number::{Float, Number, Scalar};
use super::strided::{Strided, Strides, broadcast_strides, dense_strides};
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

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
    in_order: bool,
}

impl Stack {
    fn new(tensor: &TensorRef<'_>, order: Order) -> Result<Self, OpError> {
        if tensor.rank() == 0 {
            return Err(OpError::Message("a matrix is expected, found a scalar".into()));
        }
        let mut stack = Stack {
            dims: tensor.dims().into(),
            strides: dense_strides(tensor.dims()),
            in_order: order.is_identity(tensor.rank()),
        };
        order.apply(&mut stack.dims);
        order.apply(&mut stack.strides);
        Ok(stack)
    }

    fn room<T: Number>(&self, elements: &[T]) -> usize {
        if self.in_order && T::as_wide(elements).is_some() {
            0
        } else {
            elements.len()
        }
    }

    /// The elements in order and in wide type.
    fn read<'a, T: Number>(&self, elements: &'a [T], room: &'a mut [T::Wide]) -> &'a [T::Wide] {
        if let (true, Some(wide)) = (room.is_empty(), T::as_wide(elements)) {
            return wide;
        }
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
        let (a_room, b_room) = (left.room(a), right.room(b));
        let scratch = cx.scratch::<T::Wide>(a_room.saturating_add(b_room))?;
        let (a_wide, b_wide) = scratch.split_at_mut(a_room);
        let y = cx.output::<T>(0, &dims)?.into_mut();
        let y_size = element_count(&[m, n])?;
        if y.is_empty() {
            return Ok(());
        }
        let (a, b) = (left.read(a, a_wide), right.read(b, b_wide));
        let alpha = T::Wide::from_f64(self.alpha.into());
        let activation = self.activation;
        let finish = |sum: T::Wide| {
            let product = sum.mul(alpha);
            T::narrow(activation.map_or(product, |activation| activation.apply(product)))
        };
        // One matrix for the whole batch on the right: the batch is just more rows.
        if b_batch.iter().all(|&dim| dim == 1) && a_batch.len() >= b_batch.len() {
            gemm_to((y.len() / n, k, n), a, b, y, finish);
            return Ok(());
        }
        let (a_strides, b_strides) = (
            broadcast_strides(a_batch, &batch),
            broadcast_strides(b_batch, &batch),
        );
        let mut results = y.chunks_exact_mut(y_size);
        Strided::new(&batch, [&a_strides, &b_strides], [0, 0]).for_each(&mut |[a_at, b_at]| {
            let Some(y) = results.next() else { return };
            let (a, b) = (&a[a_at * m * k..][..m * k], &b[b_at * k * n..][..k * n]);
            gemm_to((m, k, n), a, b, y, finish);
        });
        Ok(())
    }
}
