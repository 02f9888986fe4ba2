//! The loops of elementwise operators: y[i] = f(x[i]), and f(a[i], b[i]) with broadcasting.

use super::strided::{Strided, at, broadcast_strides};
use crate::native::element::Element;
use crate::native::operator::OpError;
use crate::native::tensor::TensorRef;

/// y[i] = f(x[i]); both have the same length.
pub(super) fn map<X: Copy, Y>(x: &[X], y: &mut [Y], f: impl Fn(X) -> Y) {
    debug_assert_eq!(x.len(), y.len());
    for (y, &x) in y.iter_mut().zip(x) {
        *y = f(x);
    }
}

/// An operand: elements and the dims they have.
pub(super) struct Operand<'a, T> {
    pub data: &'a [T],
    pub dims: &'a [usize],
}

/// A tensor as an operand.
pub(super) fn operand<'a, T: Element>(tensor: &TensorRef<'a>) -> Result<Operand<'a, T>, OpError> {
    Ok(Operand {
        data: tensor.slice::<T>()?,
        dims: tensor.dims(),
    })
}

/// y[i] = f(a[i], b[i]), each operand repeated along its unit dims to `dims`, the shape of y.
pub(super) fn zip<A: Copy, B: Copy, Y>(
    a: Operand<'_, A>,
    b: Operand<'_, B>,
    dims: &[usize],
    y: &mut [Y],
    f: impl Fn(A, B) -> Y,
) {
    let (a_strides, b_strides) = (broadcast_strides(a.dims, dims), broadcast_strides(b.dims, dims));
    let walk = Strided::new(dims, [&a_strides, &b_strides], [0, 0]);
    let mut rows = y.chunks_mut(walk.run.max(1));
    walk.for_each_run(&mut |[a_start, b_start]| {
        let Some(y) = rows.next() else { return };
        match walk.run_strides {
            [1, 1] => {
                let (a, b) = (&a.data[a_start..][..y.len()], &b.data[b_start..][..y.len()]);
                for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                    *y = f(a, b);
                }
            }
            [1, 0] => {
                let b = b.data[b_start];
                for (y, &a) in y.iter_mut().zip(&a.data[a_start..]) {
                    *y = f(a, b);
                }
            }
            [0, 1] => {
                let a = a.data[a_start];
                for (y, &b) in y.iter_mut().zip(&b.data[b_start..]) {
                    *y = f(a, b);
                }
            }
            [a_stride, b_stride] => {
                for (i, y) in y.iter_mut().enumerate() {
                    *y = f(a.data[at(a_start, a_stride, i)], b.data[at(b_start, b_stride, i)]);
                }
            }
        }
    });
}
