//! Operators that only move elements, so that any element type goes through one loop over
//! bytes (and one over strings).

use smallvec::SmallVec;

use super::strided::{Strided, at, dense_strides};
use crate::native::operator::{OpError, RunContext};
use crate::native::tensor::{Tensor, TensorRef, element_count};

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

/// For each axis of a result, where in X each position comes from: an offset, or nowhere.
pub(super) struct Sources {
    by_axis: Vec<Vec<Option<usize>>>,
}

impl Sources {
    /// From X of dims `from` to a result of dims `to`: `source` gives the position along an axis
    /// of X for one of the result.
    pub fn new(
        from: &[usize],
        to: &[usize],
        source: impl Fn(usize, usize) -> Option<usize>,
    ) -> Result<Self, OpError> {
        // A result without elements has no positions, however long its other axes are.
        let empty = element_count(to)? == 0;
        let axis = |(axis, (&to, stride)): (usize, (&usize, isize))| {
            let mut offsets = Vec::new();
            if !empty {
                let bytes = to.saturating_mul(size_of::<Option<usize>>());
                offsets
                    .try_reserve_exact(to)
                    .map_err(|_| OpError::OutOfMemory { bytes })?;
                offsets.extend((0..to).map(|at| source(axis, at).map(|at| at * stride as usize)));
            }
            Ok(offsets)
        };
        let axes = to.iter().zip(dense_strides(from)).enumerate().map(axis);
        Ok(Sources {
            by_axis: axes.collect::<Result<_, _>>()?,
        })
    }

    /// Output 0, of these dims, takes the elements of `x` from there, and the one of `fill`
    /// where there is no source along an axis.
    pub fn copy(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        dims: &[usize],
        fill: &Tensor,
    ) -> Result<(), OpError> {
        let (count, fill) = (element_count(dims)?, fill.view());
        let Some(size) = x.element_type().size() else {
            let x = x.strings()?;
            let fill = fill.strings()?.first().cloned().unwrap_or_default();
            let mut strings = string_room(dims)?;
            self.for_each(count, |at| {
                strings.push(at.and_then(|at| x.get(at)).unwrap_or(&fill).clone());
            });
            return cx.output_strings(0, dims, strings);
        };
        let (bytes, fill) = (x.bytes()?, fill.bytes()?);
        let mut y = cx
            .output_bytes(0, x.element_type(), dims)?
            .into_mut()
            .chunks_exact_mut(size);
        self.for_each(count, |at| {
            if let Some(y) = y.next() {
                y.copy_from_slice(match at {
                    Some(at) => &bytes[at * size..][..size],
                    None => fill,
                });
            }
        });
        Ok(())
    }

    /// The source of each of the `count` elements of the result, in order.
    fn for_each(&self, count: usize, mut visit: impl FnMut(Option<usize>)) {
        let mut position: SmallVec<[usize; 6]> = SmallVec::from_elem(0, self.by_axis.len());
        for _ in 0..count {
            let offsets = self.by_axis.iter().zip(&position).map(|(axis, &at)| axis[at]);
            visit(offsets.sum());
            for (at, axis) in position.iter_mut().zip(&self.by_axis).rev() {
                *at += 1;
                if *at < axis.len() {
                    break;
                }
                *at = 0;
            }
        }
    }
}

/// Output 0, of these dims, takes the elements of `x` at `sources`, one for each element, and
/// zeros (empty strings) where there is none.
pub(super) fn gather_or_zero(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    dims: &[usize],
    sources: impl Iterator<Item = Option<usize>>,
) -> Result<(), OpError> {
    let Some(size) = x.element_type().size() else {
        let mut moved = string_room(dims)?;
        let x = x.strings()?;
        moved.extend(sources.map(|at| at.and_then(|at| x.get(at)).cloned().unwrap_or_default()));
        return cx.output_strings(0, dims, moved);
    };
    let bytes = x.bytes()?;
    let y = cx.output_bytes(0, x.element_type(), dims)?.zeroed();
    for (y, source) in y.chunks_exact_mut(size).zip(sources) {
        if let Some(at) = source {
            y.copy_from_slice(&bytes[at * size..][..size]);
        }
    }
    Ok(())
}
