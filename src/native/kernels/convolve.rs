//! The sums of a convolution: for image n, group g, output channel m of it and position p
//!
//!   sum[m, p] = sum over c, taps of w[m, c, tap] x[n, g C/group + c, position(p, tap)]
//!
//! in the wide type, elements outside X being zero. Of each group, a block of positions at a
//! time: the elements under the windows are copied into a matrix [C/group taps, positions],
//! which the weights [M/group, C/group taps] are multiplied with. The block bounds the memory,
//! and each sum is taken in the order of c and the taps whatever the block.

use super::gemm::gemm;
use super::number::{Number, Scalar};
use super::window::{Axes, Axis};
use crate::native::ending;
use crate::native::operator::OpError;
use crate::native::tensor::{Dims, element_count};
use crate::native::workers::Workers;

/// Sizes of a convolution, checked.
#[derive(Debug)]
pub(super) struct Convolution {
    pub batch: usize,
    pub channels: usize,
    pub out_channels: usize,
    pub group: usize,
    pub axes: Axes,
    /// Elements of X of one channel, of the window, of Y of one channel.
    pub input: usize,
    pub taps: usize,
    pub positions: usize,
    /// Positions that are computed together.
    block: usize,
}

/// Elements of the matrix of a block, about: with f32, half of a second-level cache.
const BLOCK: usize = 64 << 10;

/// Positions of a group of channels of an image that are computed together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub image: usize,
    pub group: usize,
    pub first: usize,
    pub width: usize,
}

impl Convolution {
    /// W is [M, C/group, ...]; `axes` are the windows over X.
    pub fn new(x: &[usize], w: &[usize], group: usize, mut axes: Axes) -> Result<Self, OpError> {
        let wrong = || {
            OpError::Message(format!(
                "X {x:?}, W {w:?} and group {group} do not fit each other"
            ))
        };
        let (&[batch, channels, ..], &[out_channels, group_channels, ..]) = (x, w) else {
            return Err(wrong());
        };
        let fits = group > 0
            && x.len() == w.len()
            && group_channels.checked_mul(group) == Some(channels)
            && out_channels % group == 0;
        if !fits {
            return Err(wrong());
        }
        if axes.is_empty() {
            axes.push(Axis::unit());
        }
        let count = |size: fn(&Axis) -> usize| element_count(&axes.iter().map(size).collect::<Dims>());
        let (input, taps, positions) = (
            count(|axis| axis.input)?,
            count(|axis| axis.kernel)?,
            count(|axis| axis.output)?,
        );
        let depth = element_count(&[group_channels, taps])?;
        let block = (BLOCK / depth.max(1)).clamp(16, 1024).min(positions.max(1));
        Ok(Convolution {
            batch,
            channels,
            out_channels,
            group,
            axes,
            input,
            taps,
            positions,
            block,
        })
    }

    fn depth(&self) -> usize {
        self.channels / self.group * self.taps
    }

    /// Elements of scratch memory that [`sums`](Self::sums) needs.
    pub fn scratch(&self) -> Result<usize, OpError> {
        let rows = self.depth().checked_add(self.out_channels / self.group);
        rows.and_then(|rows| rows.checked_mul(self.block))
            .ok_or_else(|| OpError::Message("the windows hold more than can be addressed".into()))
    }

    /// Calls `store` with an output channel, where its elements lie in Y, and their sums, until
    /// all elements of Y were named once.
    pub fn sums<X: Copy + Sync, W: Number<Wide = W> + Scalar>(
        &self,
        workers: &Workers,
        x: &[X],
        load: impl Fn(X) -> W + Sync,
        w: &[W],
        scratch: &mut [W],
        store: impl FnMut(usize, usize, &[W]),
    ) {
        let channels = self.channels / self.group;
        let columns = |block: Block, columns: &mut [W]| {
            let x_at = (block.image * self.channels + block.group * channels) * self.input;
            let x = &x[x_at..][..channels * self.input];
            let rows = workers.chunk(self.depth(), block.width);
            workers.split_mut(columns, rows * block.width, |part, columns| {
                self.columns(x, &load, block, part * rows, columns);
            });
        };
        self.sums_of(workers, columns, w, scratch, store);
    }

    /// The same of elements that `columns` writes: a row per channel of the group and tap.
    pub fn sums_of<W: Number<Wide = W> + Scalar>(
        &self,
        workers: &Workers,
        mut columns: impl FnMut(Block, &mut [W]),
        w: &[W],
        scratch: &mut [W],
        mut store: impl FnMut(usize, usize, &[W]),
    ) {
        if self.out_channels == 0 || self.positions == 0 {
            // However many images or groups there are of nothing.
            return;
        }
        let depth = self.depth();
        let out_channels = self.out_channels / self.group;
        for image in 0..self.batch {
            for group in 0..self.group {
                let w = &w[group * out_channels * depth..][..out_channels * depth];
                let mut first = 0;
                while first < self.positions {
                    ending::look();
                    let width = self.block.min(self.positions - first);
                    let (matrix, rest) = scratch.split_at_mut(depth * width);
                    let sums = &mut rest[..out_channels * width];
                    let block = Block {
                        image,
                        group,
                        first,
                        width,
                    };
                    columns(block, matrix);
                    gemm(workers, (out_channels, depth, width), w, matrix, sums);
                    for (m, sums) in sums.chunks_exact(width).enumerate() {
                        let channel = group * out_channels + m;
                        let y_at = (image * self.out_channels + channel) * self.positions + first;
                        store(channel, y_at, sums);
                    }
                    first += width;
                }
            }
        }
    }

    /// The elements under the windows of a block: rows [c, tap] from `first_row` on, a column per
    /// position.
    fn columns<X: Copy, W: Number<Wide = W> + Scalar>(
        &self,
        x: &[X],
        load: &impl Fn(X) -> W,
        Block { first, width, .. }: Block,
        first_row: usize,
        columns: &mut [W],
    ) {
        let Some((last, outer)) = self.axes.split_last() else {
            return;
        };
        if x.is_empty() {
            columns.fill(W::ZERO);
            return;
        }
        for (i, row) in columns.chunks_exact_mut(width).enumerate() {
            let (c, tap) = ((first_row + i) / self.taps, (first_row + i) % self.taps);
            let x = &x[c * self.input..][..self.input];
            let on_input = last.outputs(tap % last.kernel);
            let mut filled = 0;
            // A run of positions that differ along the last axis only.
            while filled < width {
                let (line, start) = ((first + filled) / last.output, (first + filled) % last.output);
                let run = (last.output - start).min(width - filled);
                let run_of_row = &mut row[filled..][..run];
                filled += run;
                let Some(line_at) = line_start(outer, line, tap / last.kernel) else {
                    run_of_row.fill(W::ZERO);
                    continue;
                };
                let begin = on_input.start.clamp(start, start + run);
                let end = on_input.end.clamp(begin, start + run);
                run_of_row[..begin - start].fill(W::ZERO);
                run_of_row[end - start..].fill(W::ZERO);
                if begin == end {
                    continue;
                }
                let x = &x[line_at * last.input + last.position(begin, tap % last.kernel) as usize..];
                let to = &mut run_of_row[begin - start..end - start];
                match last.stride {
                    1 => to.iter_mut().zip(x).for_each(|(to, &x)| *to = load(x)),
                    stride => {
                        let x = x.iter().step_by(stride);
                        to.iter_mut().zip(x).for_each(|(to, &x)| *to = load(x));
                    }
                }
            }
        }
    }
}

/// Which line (along the last axis) of X the tap of a line of windows is on, if any. `line` and
/// `tap` count over the other axes.
fn line_start(outer: &[Axis], mut line: usize, mut tap: usize) -> Option<usize> {
    let (mut at, mut step) = (0, 1);
    for axis in outer.iter().rev() {
        let position = axis.position(line % axis.output, tap % axis.kernel);
        let position = usize::try_from(position).ok().filter(|&at| at < axis.input)?;
        at += position * step;
        step *= axis.input;
        line /= axis.output;
        tap /= axis.kernel;
    }
    Some(at)
}
