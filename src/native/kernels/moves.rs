//! Operators that only move elements, so that any element type goes through one loop over
//! bytes (and one over strings).

use super::strided::{Strided, at};
use crate::native::operator::{OpError, RunContext};
use crate::native::tensor::{TensorRef, element_count};

/// Room for as many strings as `dims` say. An allocation that is refused is an error here;
/// a vector that grows would end the process.
pub(super) fn string_room(dims: &[usize]) -> Result<Vec<String>, OpError> {
    let count = element_count(dims)?;
    let mut room = Vec::new();
    match room.try_reserve_exact(count) {
        Ok(()) => Ok(room),
        Err(_) => Err(OpError::OutOfMemory {
            bytes: count.saturating_mul(size_of::<String>()),
        }),
    }
}

/// An output takes runs of `run` elements of `x`, one after the other, which begin where
/// `starts` says: as many as fill `dims`.
pub(super) fn gather_starts(
    cx: &mut RunContext<'_>,
    output: usize,
    x: &TensorRef<'_>,
    dims: &[usize],
    run: usize,
    starts: impl Iterator<Item = usize>,
) -> Result<(), OpError> {
    let Some(size) = x.element_type().size() else {
        let x = x.strings()?;
        let mut moved = string_room(dims)?;
        for start in starts {
            moved.extend_from_slice(&x[start..][..run]);
        }
        return cx.output_strings(output, dims, moved);
    };
    let bytes = x.bytes()?;
    let mut room = cx.output_bytes(output, x.element_type(), dims)?;
    for start in starts {
        room.extend_from_slice(&bytes[start * size..][..run * size])?;
    }
    Ok(())
}

/// Output 0 takes the elements of `x` that `walk` visits, in that order.
pub(super) fn gather_runs(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    dims: &[usize],
    walk: &Strided<1>,
) -> Result<(), OpError> {
    let Some(size) = x.element_type().size() else {
        let x = x.strings()?;
        let mut moved = string_room(dims)?;
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
