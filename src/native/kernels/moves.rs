//! Operators that only move elements, so that any element type goes through one loop over
//! bytes (and one over strings).

use smallvec::SmallVec;

use super::strided::{Strided, at, dense_strides};
use crate::native::ending::{self, counted};
use crate::native::operator::{OpError, RunContext};
use crate::native::output::OutSlice;
use crate::native::strings::Strings;
use crate::native::tensor::{Tensor, TensorRef, element_count};
use crate::native::workers::Workers;
use crate::native::working::Working;

/// Room for as many strings as `dims` say.
pub(super) fn string_room(dims: &[usize]) -> Result<Strings, OpError> {
    Strings::with_room(element_count(dims)?)
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
            ending::count(run);
            moved.extend(&x[start..][..run])?;
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

/// Output 0 takes runs of `run` elements of `x`: run i begins where `start` says, as many as fill
/// `dims`. On several threads.
pub(super) fn gather_each(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    dims: &[usize],
    run: usize,
    start: &(dyn Fn(usize) -> usize + Sync),
) -> Result<(), OpError> {
    let Some(size) = x.element_type().size() else {
        let runs = element_count(dims)?.checked_div(run).unwrap_or(0);
        return gather_starts(cx, 0, x, dims, run, (0..runs).map(start));
    };
    let bytes = x.bytes()?;
    let room = cx.output_bytes(0, x.element_type(), dims)?;
    let width = run * size;
    if room.is_empty() {
        return Ok(());
    }
    let chunk = room.copy_chunk(cx.workers(), width);
    room.fill(cx.workers(), chunk, |range, y| {
        for i in range.start / width..range.end / width {
            y.extend_from_slice(&bytes[start(i) * size..][..width]);
        }
    });
    Ok(())
}

/// Output 0 takes the elements of `x` that `walk` visits, in that order. On several threads.
pub(super) fn gather_runs(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    dims: &[usize],
    walk: &Strided<1>,
) -> Result<(), OpError> {
    let Some(size) = x.element_type().size() else {
        let x = x.strings()?;
        let mut moved = string_room(dims)?;
        let mut result = Ok(());
        walk.for_each_run(&mut |[start]| {
            if result.is_ok() {
                let texts = counted(0..walk.run).map(|i| &x[at(start, walk.run_strides[0], i)]);
                result = moved.extend(texts);
            }
        });
        result?;
        return cx.output_strings(0, dims, moved);
    };
    let bytes = x.bytes()?;
    let to = cx.output_bytes(0, x.element_type(), dims)?;
    let workers = cx.workers();
    if walk.run_strides == [1] {
        let chunk = to.copy_chunk(workers, size);
        to.fill(workers, chunk, |range, y| {
            walk.for_each_run_in(range.start / size..range.end / size, &mut |[start], len| {
                y.extend_from_slice(&bytes[start * size..][..len * size]);
            });
        });
        return Ok(());
    }
    match size {
        1 => copy_elements::<1>(workers, bytes, walk, to),
        2 => copy_elements::<2>(workers, bytes, walk, to),
        4 => copy_elements::<4>(workers, bytes, walk, to),
        8 => copy_elements::<8>(workers, bytes, walk, to),
        _ => copy_elements::<16>(workers, bytes, walk, to),
    }
    Ok(())
}

/// Runs whose elements do not lie side by side are copied together, this many, and this many
/// elements of each by turns: in a transposition the elements that a run leaves out are those that
/// the next runs want, and so are still in the nearest cache.
const TILE: usize = 16;

/// The element size is a constant so that one element is one machine move.
fn copy_elements<const SIZE: usize>(workers: &Workers, x: &[u8], walk: &Strided<1>, y: OutSlice<'_, u8>) {
    let [stride] = walk.run_strides;
    let run = walk.run * SIZE;
    // Whole tiles, if a part is not much larger for it.
    let tile = run.saturating_mul(TILE);
    let unit = if tile <= 1 << 20 { tile.max(SIZE) } else { SIZE };
    let chunk = y.chunk(workers, 1).next_multiple_of(unit);
    y.split(workers, chunk, |first, y| {
        let positions = first / SIZE..(first + y.len()) / SIZE;
        let mut rest = y;
        let mut starts = [0; TILE];
        let mut count = 0;
        walk.for_each_run_in(positions, &mut |[start], len| {
            if len == walk.run {
                starts[count] = start;
                count += 1;
            }
            if count == TILE || len < walk.run {
                copy_tile::<SIZE>(x, &starts[..count], stride, take(&mut rest, count * run));
                count = 0;
            }
            if len < walk.run {
                copy_tile::<SIZE>(x, &[start], stride, take(&mut rest, len * SIZE));
            }
        });
        copy_tile::<SIZE>(x, &starts[..count], stride, rest);
    });
}

/// Cuts off the first `len` elements.
fn take<'a>(rest: &mut &'a mut [u8], len: usize) -> &'a mut [u8] {
    let (taken, after) = std::mem::take(rest).split_at_mut(len);
    *rest = after;
    taken
}

/// Runs of elements of `x` that begin at `starts`, one after the other.
fn copy_tile<const SIZE: usize>(x: &[u8], starts: &[usize], stride: isize, y: &mut [u8]) {
    let run = y.len().checked_div(starts.len() * SIZE).unwrap_or(0);
    for column in (0..run).step_by(TILE) {
        let width = TILE.min(run - column);
        for (&start, y) in starts.iter().zip(y.chunks_exact_mut(run * SIZE)) {
            let y = &mut y[column * SIZE..][..width * SIZE];
            for (i, y) in y.chunks_exact_mut(SIZE).enumerate() {
                y.copy_from_slice(&x[at(start, stride, column + i) * SIZE..][..SIZE]);
            }
        }
    }
}

/// For each axis of a result, where in X each position comes from: an offset, or nowhere.
pub(super) struct Sources {
    by_axis: Vec<Working<Option<usize>>>,
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
            let mut offsets = Working::with_room(if empty { 0 } else { to })?;
            if !empty {
                offsets.extend(counted(0..to).map(|at| source(axis, at).map(|at| at * stride as usize)));
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
            let mut result = Ok(());
            self.for_each(count, |at| {
                if result.is_ok() {
                    result = strings.push(at.and_then(|at| x.get(at)).unwrap_or(&fill));
                }
            });
            result?;
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
        for _ in counted(0..count) {
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
        for at in counted(sources) {
            moved.push(at.and_then(|at| x.get(at)).map_or("", String::as_str))?;
        }
        return cx.output_strings(0, dims, moved);
    };
    let bytes = x.bytes()?;
    let y = cx.output_bytes(0, x.element_type(), dims)?.zeroed();
    for (y, source) in y.chunks_exact_mut(size).zip(counted(sources)) {
        if let Some(at) = source {
            y.copy_from_slice(&bytes[at * size..][..size]);
        }
    }
    Ok(())
}
