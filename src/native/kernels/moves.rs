//! Operators that only move elements, so that any element type goes through one loop over
//! bytes (and one over strings).

use super::strided::{Strided, at};
use crate::native::operator::{OpError, RunContext};
use crate::native::tensor::TensorRef;

/// Output 0 takes the elements of `x` that `walk` visits, in that order.
pub(super) fn gather_runs(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    dims: &[usize],
    walk: &Strided<1>,
) -> Result<(), OpError> {
    let Some(size) = x.element_type().size() else {
        let x = x.strings()?;
        let mut moved = Vec::new();
        walk.for_each_run(&mut |[start]| {
            moved.extend((0..walk.run).map(|i| x[at(start, walk.run_strides[0], i)].clone()));
        });
        return cx.output_strings(0, dims, moved);
    };
    let bytes = x.bytes()?;
    let output = cx.output_bytes(0, x.element_type(), dims)?;
    let to = output.into_mut();
    match size {
        1 => copy_runs::<1>(bytes, walk, to),
        2 => copy_runs::<2>(bytes, walk, to),
        4 => copy_runs::<4>(bytes, walk, to),
        8 => copy_runs::<8>(bytes, walk, to),
        _ => copy_runs::<16>(bytes, walk, to),
    }
    Ok(())
}

/// The element size is a constant so that one element is one machine move.
fn copy_runs<const SIZE: usize>(x: &[u8], walk: &Strided<1>, y: &mut [u8]) {
    let [stride] = walk.run_strides;
    let mut runs = y.chunks_exact_mut((walk.run * SIZE).max(1));
    walk.for_each_run(&mut |[start]| {
        let Some(y) = runs.next() else { return };
        if stride == 1 {
            y.copy_from_slice(&x[start * SIZE..][..y.len()]);
            return;
        }
        for (i, y) in y.chunks_exact_mut(SIZE).enumerate() {
            y.copy_from_slice(&x[at(start, stride, i) * SIZE..][..SIZE]);
        }
    });
}
