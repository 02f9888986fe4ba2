//! Keys, or values, of a sequence as steps add to it: those of earlier steps, the past, and
//! those of this one behind them.
//!
//! The past is an input of the node, [batch, heads, rows, width], or it lies in a cache of the
//! caller, which has memory for more rows in each head. What the next step needs is an output,
//! the present: in a cache the new rows are written behind those of the past, as many bytes
//! however long that is; elsewhere everything is copied.

use std::ops::Range;

use super::rows::{add_weighted, products};
use super::{Heads, Keys, Layout, Values, Weights};
use crate::component::count_cache_write;
use crate::native::kernels::number::{Number, Scalar};
use crate::native::operator::{OpError, RunContext};
use crate::native::output::OutSlice;
use crate::native::tensor::element_count;

/// Keys or values: those of earlier steps, if any, then those of this one, which may not have
/// been rounded to the type of the earlier ones yet.
pub(in crate::native::kernels) struct Cache<'a, P, N> {
    pub past: Option<Heads<'a, P>>,
    /// Rows of `past` that belong to a batch item.
    pub past_len: &'a (dyn Fn(usize) -> usize + Sync),
    pub new: Heads<'a, N>,
}

/// The sizes of a cache before and after a step.
#[derive(Clone, Copy)]
pub(in crate::native::kernels) struct CacheSizes {
    pub batch: usize,
    pub heads: usize,
    /// Rows of the past, those that no batch item uses included.
    pub past_rows: usize,
    /// Rows of this step.
    pub new: usize,
    /// Rows of the present.
    pub rows: usize,
}

impl<'a, P: Number, N: Number<Wide = P::Wide>> Cache<'a, P, N> {
    /// The keys or values of a step; writes the present, if it is used. `past` and `present` are
    /// the node's input and output.
    pub fn grow<'c: 'a>(
        cx: &mut RunContext<'c>,
        (past, present): (usize, usize),
        sizes: CacheSizes,
        past_len: &'a (dyn Fn(usize) -> usize + Sync),
        new: Heads<'a, N>,
    ) -> Result<Self, OpError> {
        let width = new.layout.width;
        let heads_of = |data, rows| Heads {
            data,
            layout: Layout::heads_first(sizes.heads, rows, width),
        };
        let dims = [sizes.batch, sizes.heads, sizes.rows, width];
        let mut cache = Cache {
            past: None,
            past_len,
            new,
        };
        if let Some(room) = cx.cache::<P>(present)? {
            let all = element_count(&[sizes.batch, sizes.heads, room.rows, width])?;
            let ty = cx.required(past)?.element_type();
            if ty != P::TYPE || room.elements.len() != all || room.rows < sizes.past_rows {
                return Err(OpError::Message(format!(
                    "a cache of {} elements of {ty} is not {}{dims:?} with {} rows",
                    room.elements.len(),
                    P::TYPE,
                    room.rows
                )));
            }
            // Rows that some batch item does not use would have to be overwritten.
            let appends = sizes.past_rows.checked_add(sizes.new) == Some(sizes.rows)
                && sizes.rows <= room.rows
                && (0..sizes.batch).all(|b| past_len(b) == sizes.past_rows);
            if appends {
                cache.append(room.elements, room.rows, sizes);
                cx.output_in_cache(present, P::TYPE, &dims)?;
            }
            cache.past = Some(heads_of(&*room.elements, room.rows));
        } else if let Some(tensor) = cx.input(past) {
            cache.past = Some(heads_of(tensor.slice::<P>()?, sizes.past_rows));
        }
        if cx.output_used(present) {
            let mut output = cx.output::<P>(present, &dims)?;
            cache.write(&mut output, (sizes.batch, sizes.heads, sizes.rows), sizes.new)?;
        }
        Ok(cache)
    }

    /// Writes the new rows behind the past in memory of `capacity` rows.
    fn append(&self, memory: &mut [P], capacity: usize, sizes: CacheSizes) {
        let width = self.new.layout.width;
        if memory.is_empty() {
            return;
        }
        let layout = Layout::heads_first(sizes.heads, capacity, width);
        for b in 0..sizes.batch {
            for h in 0..sizes.heads {
                for i in 0..sizes.new {
                    let row = &mut memory[layout.start(b, h, sizes.past_rows + i)..][..width];
                    for (to, x) in row.iter_mut().zip(self.new.row(b, h, i)) {
                        *to = P::narrow(x.widen());
                    }
                }
            }
        }
        count_cache_write(sizes.batch * sizes.heads * sizes.new * width * size_of::<P>());
    }

    fn past_len(&self, b: usize) -> usize {
        if self.past.is_some() {
            (self.past_len)(b)
        } else {
            0
        }
    }

    /// The cache of the next step, [batch, heads, rows, width]: for each batch item and head
    /// the past rows, the `new` rows of this step, and zeros.
    pub fn write(
        &self,
        output: &mut OutSlice<'_, P>,
        (batch, heads, rows): (usize, usize, usize),
        new: usize,
    ) -> Result<(), OpError> {
        let width = self.new.layout.width;
        if output.is_empty() {
            return Ok(());
        }
        for b in 0..batch {
            let past_len = self.past_len(b).min(rows);
            let new = new.min(rows - past_len);
            for h in 0..heads {
                if let Some(past) = &self.past {
                    for j in 0..past_len {
                        output.extend_from_slice(past.row(b, h, j))?;
                    }
                }
                for i in 0..new {
                    output.extend(self.new.row(b, h, i).iter().map(|x| P::narrow(x.widen())))?;
                }
                let zeros = (rows - past_len - new) * width;
                output.extend(std::iter::repeat_n(P::narrow(P::Wide::ZERO), zeros))?;
            }
        }
        count_cache_write(batch * heads * rows * width * size_of::<P>());
        Ok(())
    }

    /// Of a range of rows, those of earlier steps and those of this one.
    fn parts(&self, b: usize, range: &Range<usize>) -> (Range<usize>, Range<usize>) {
        let past_len = self.past_len(b);
        let split = past_len.clamp(range.start, range.end.max(range.start));
        (
            range.start..split,
            split.saturating_sub(past_len)..range.end.saturating_sub(past_len),
        )
    }
}

impl<P: Number, N: Number<Wide = P::Wide>> Keys<P::Wide> for Cache<'_, P, N> {
    fn products(
        &self,
        b: usize,
        head: usize,
        keys: Range<usize>,
        queries: &[P::Wide],
        scores: &mut [P::Wide],
    ) {
        let (old, new) = self.parts(b, &keys);
        let stride = keys.len();
        let first_new = old.len();
        if let Some(past) = &self.past {
            products(queries, past.rows(b, head, old), scores, stride);
        }
        let scores = scores.get_mut(first_new..).unwrap_or_default();
        products(queries, self.new.rows(b, head, new), scores, stride);
    }
}

impl<W: Scalar + Number<Wide = W>, P: Number, N: Number<Wide = P::Wide>> Values<W> for Cache<'_, P, N> {
    fn weighted_sums(&self, b: usize, head: usize, weights: &Weights<'_, W>, sums: &mut [W]) {
        let stride = weights.keys.len();
        for_visible(weights, self.new.layout.width, sums, |first, range, sums| {
            let (old, new) = self.parts(b, &range);
            let at = first * stride + range.start - weights.keys.start;
            let first_new = at + old.len();
            if let Some(past) = &self.past {
                let weights = weights.weights.get(at..).unwrap_or_default();
                add_weighted(weights, stride, past.rows(b, head, old), sums);
            }
            let weights = weights.weights.get(first_new..).unwrap_or_default();
            add_weighted(weights, stride, self.new.rows(b, head, new), sums);
        });
    }
}

/// Clears the sums and adds to them what each query sees. `add` adds the keys of a range for the
/// queries from one on, as many as it is given sums for.
pub(super) fn for_visible<W: Scalar>(
    weights: &Weights<'_, W>,
    width: usize,
    sums: &mut [W],
    add: impl Fn(usize, Range<usize>, &mut [W]),
) {
    sums.fill(W::ZERO);
    // What all see is added for all at once; what only some see would be 0 * v for the
    // others, which is no zero if v is not finite.
    let start = weights.visible.iter().map(|visible| visible.start).max();
    let end = weights.visible.iter().map(|visible| visible.end).min();
    let common = start.unwrap_or(0)..end.unwrap_or(0);
    let each = |part: &dyn Fn(&Range<usize>) -> Range<usize>, sums: &mut [W]| {
        let rows = sums.chunks_exact_mut(width.max(1));
        for (q, (visible, sums)) in weights.visible.iter().zip(rows).enumerate() {
            let range = part(visible);
            if !range.is_empty() {
                add(q, range, sums);
            }
        }
    };
    if common.is_empty() {
        return each(&Range::clone, sums);
    }
    each(&|visible| visible.start..common.start, sums);
    add(0, common.clone(), sums);
    each(&|visible| common.end..visible.end, sums);
}
