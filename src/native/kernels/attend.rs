//! The arithmetic of attention over slices, apart from any operator's inputs and attributes.
//!
//! For each batch item b, query head h and query i, with g = h / (query heads / kv heads):
//!
//!   s[j] = scale * sum over d of q[b, h, i, d] * k[b, g, j, d]
//!   s[j] = softcap * tanh(s[j] / softcap)                        when softcap > 0
//!   s[j] = s[j] + mask[b, h, i, j], and -inf where j is not visible
//!   p[j] = e^s[j] / (sum over j of e^s[j], and e^sink[h])        (zero if nothing is visible)
//!   y[b, h, i, d] = sum over j of p[j] * v[b, g, j, d]
//!
//! Queries and keys are computed in the wide type of the queries; one rounding at the end.
//!
//! The queries of all heads that share a kv head go over its keys in blocks of [`BLOCK`], and
//! the keys are cut into spans of [`SPAN`]. What a query sees of a span has a softmax of its own,
//! and those of several are merged in their order ([`share`]). Blocks are shared out among the
//! threads, and where there are [`FEW`], as in decoding, each span of a block is a part of its own.
//! What a query gets depends neither on that nor on which others it is blocked with; the loops
//! are in [`rows`] and [`softmax`](mod@softmax).

mod cache;
mod codes;
mod rows;
mod share;
mod softmax;

use std::ops::Range;

pub(super) use self::cache::{Cache, CacheSizes};
pub(super) use self::codes::{Code, CodeRows, DECODED, Scales};
use self::rows::Rows;
pub(super) use self::rows::dot;
use self::share::Share;
use self::softmax::{Exponentials, exponentials, softmax};
use super::number::{Number, Real};
use crate::native::workers::{MIN_PART, Workers};

/// Queries that go over the keys together.
const BLOCK: usize = 8;

/// Keys of a span: 128 KiB of f32 at a width of 64, and as much of values.
const SPAN: usize = 512;

/// Blocks that are too few to be shared out well.
const FEW: usize = 16;

/// Rows of `width` elements, one per (batch item, head, position), at any spacing: a
/// [batch, heads, positions, width] tensor or a [batch, positions, heads * width] one.
#[derive(Clone, Copy)]
pub(super) struct Heads<'a, T> {
    pub data: &'a [T],
    pub layout: Layout,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub batch: usize,
    pub head: usize,
    pub position: usize,
    pub width: usize,
}

impl Layout {
    /// [batch, heads, positions, width]
    pub fn heads_first(heads: usize, positions: usize, width: usize) -> Self {
        Layout {
            // A product that wraps belongs to an empty tensor, whose rows nobody asks for.
            batch: heads.wrapping_mul(positions).wrapping_mul(width),
            head: positions.wrapping_mul(width),
            position: width,
            width,
        }
    }

    /// [batch, positions, heads * width]
    pub fn positions_first(heads: usize, positions: usize, width: usize) -> Self {
        Layout {
            batch: heads.wrapping_mul(positions).wrapping_mul(width),
            head: width,
            position: heads.wrapping_mul(width),
            width,
        }
    }

    pub fn start(&self, batch: usize, head: usize, position: usize) -> usize {
        batch * self.batch + head * self.head + position * self.position
    }
}

impl<'a, T> Heads<'a, T> {
    pub fn row(&self, batch: usize, head: usize, position: usize) -> &'a [T] {
        &self.data[self.layout.start(batch, head, position)..][..self.layout.width]
    }

    fn rows(&self, batch: usize, head: usize, positions: Range<usize>) -> Rows<'a, T> {
        let start = self.layout.start(batch, head, positions.start);
        Rows {
            data: self.data.get(start..).unwrap_or_default(),
            step: self.layout.position,
            width: self.layout.width,
            count: positions.len(),
        }
    }
}

/// Keys, of whatever type they are stored in.
pub(super) trait Keys<W>: Sync {
    /// scores[q * keys.len() + j] = sum over d of queries[q][d] * k[b, head, keys.start + j, d].
    fn products(&self, b: usize, head: usize, keys: Range<usize>, queries: &[W], scores: &mut [W]);
}

/// The weights of a block of queries: those of query q for the keys that it sees.
pub(super) struct Weights<'a, W> {
    pub weights: &'a [W],
    /// The keys of `weights[q * keys.len()..]`.
    pub keys: Range<usize>,
    /// For each query, the keys that it sees.
    pub visible: &'a [Range<usize>],
}

/// Values, whose type need not be that of the queries.
pub(super) trait Values<W>: Sync {
    /// sums[q][d] = sum over the j that query q sees of weights[q, j] * v[b, head, j, d].
    fn weighted_sums(&self, b: usize, head: usize, weights: &Weights<'_, W>, sums: &mut [W]);
}

/// Which value of the scores a caller wants to see (Attention's `qk_matmul_output_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScoreStage {
    Product,
    Capped,
    Masked,
    Probability,
}

/// Scores written out as [batch, query heads, queries, total].
pub(super) struct ScoreOutput<'a, T> {
    pub stage: ScoreStage,
    pub scores: &'a mut [T],
    /// What stands for a key that is not visible, in the stages after `Capped`.
    pub hidden: T,
}

/// `(b, h, i, row)`: writes a query.
pub(super) type LoadQuery<'a, W> = dyn Fn(usize, usize, usize, &mut [W]) + Sync + 'a;

/// `(b, h, i, first, scores)`: adds row i of the mask to the scores of the keys from `first` on.
pub(super) type AddMask<'a, W> = dyn Fn(usize, usize, usize, usize, &mut [W]) + Sync + 'a;

pub(super) struct Inputs<'a, W> {
    pub q: &'a LoadQuery<'a, W>,
    pub k: &'a dyn Keys<W>,
    pub v: &'a dyn Values<W>,
    /// `(b, i)`: the keys that query i of batch item b may see.
    pub visible: &'a (dyn Fn(usize, usize) -> Range<usize> + Sync),
    pub add_mask: &'a AddMask<'a, W>,
    /// A score of each head that takes its share of the softmax and has no value.
    pub sink: Option<&'a (dyn Fn(usize) -> W + Sync)>,
}

pub(super) struct Attend {
    pub batch: usize,
    pub query_heads: usize,
    /// Divides `query_heads`.
    pub kv_heads: usize,
    pub queries: usize,
    /// Keys and values, past ones included.
    pub total: usize,
    /// Elements of a query and a key.
    pub width: usize,
    pub scale: f64,
    /// 0 for none.
    pub softcap: f64,
    /// The softmax of f16, bf16 and f32 scores is computed in f64.
    pub double_softmax: bool,
}

/// A query: of a batch item, its head, its position.
#[derive(Clone, Copy)]
struct Query {
    b: usize,
    h: usize,
    i: usize,
}

/// What is told of the scores of a query at a stage: the stage, the query, the keys, the scores.
type Show<'a, W> = dyn FnMut(ScoreStage, Query, &Range<usize>, &[W]) + 'a;

/// How the work is cut.
struct Cut {
    /// Queries of a block.
    block: usize,
    /// Blocks of a kv head.
    blocks: usize,
    /// Blocks in all.
    all: usize,
    /// Keys of a span.
    span: usize,
    spans: usize,
}

impl Cut {
    /// Parts that the spans of a block are.
    fn apart(&self) -> usize {
        if self.all < FEW { self.spans } else { 1 }
    }

    fn parts(&self) -> usize {
        self.all.saturating_mul(self.apart())
    }
}

/// Queries that go over the keys together.
struct Block<'a, W> {
    index: usize,
    queries: &'a [W],
    /// The keys that each sees.
    seen: &'a [Range<usize>],
}

impl Attend {
    /// Query heads that share a kv head.
    fn group(&self) -> usize {
        (self.query_heads / self.kv_heads.max(1)).max(1)
    }

    /// `whole` does not cut the keys.
    fn cut(&self, whole: bool) -> Cut {
        let rows = self.group().saturating_mul(self.queries);
        let block = rows.clamp(1, BLOCK);
        let blocks = rows.div_ceil(block);
        let span = match whole || self.double_softmax {
            true => self.total.max(1),
            false => SPAN,
        };
        Cut {
            block,
            blocks,
            all: self.batch.saturating_mul(self.kv_heads).saturating_mul(blocks),
            span,
            spans: self.total.div_ceil(span).max(1),
        }
    }

    /// Elements of wide type that [`run`](Self::run) needs as working memory.
    pub fn scratch_len(&self, v_width: usize, workers: &Workers) -> Option<usize> {
        let cut = self.cut(false);
        let share = Share::<f32>::len(cut.block, v_width)?;
        let rooms = self.room(&cut, share)?.checked_mul(workers.threads())?;
        // Scores are shown by one thread.
        let whole = self.cut(true);
        let rooms = rooms.max(self.room(&whole, share)?);
        cut.parts()
            .max(whole.parts())
            .checked_mul(share)?
            .checked_add(rooms)
    }

    /// Elements that a part needs: its queries, a second share, and scores.
    fn room(&self, cut: &Cut, share: usize) -> Option<usize> {
        let scores = cut.span.min(self.total);
        let rows = self.width.checked_add(scores)?.checked_mul(cut.block)?;
        rows.checked_add(share)
    }

    /// Writes all of `y` (rows of `y_layout`) and of `shown`, whichever is wanted.
    pub fn run<T: Number<Wide: Real>>(
        &self,
        workers: &Workers,
        inputs: &Inputs<'_, T::Wide>,
        scratch: &mut [T::Wide],
        y: Option<&mut [T]>,
        y_layout: Layout,
        mut shown: Option<ScoreOutput<'_, T>>,
    ) {
        let cut = self.cut(shown.is_some());
        // `scratch_len` has checked these.
        let each = Share::<T::Wide>::len(cut.block, y_layout.width).unwrap_or_default();
        let room = self.room(&cut, each).unwrap_or_default();
        let (shares, rooms) = scratch.split_at_mut(cut.parts() * each);
        let stage = shown.as_ref().map(|output| output.stage);
        let keys = self.total.div_ceil(cut.apart());
        let operations = (cut.block * keys).saturating_mul(self.width + y_layout.width) / 8;
        if let Some(output) = &mut shown {
            let mut show = |at: ScoreStage, query: Query, keys: &Range<usize>, scores: &[T::Wide]| {
                if output.stage != at {
                    return;
                }
                let row = (query.b * self.query_heads + query.h) * self.queries + query.i;
                let row = &mut output.scores[row * self.total..][..self.total];
                row.fill(output.hidden);
                for (to, &score) in row[keys.clone()].iter_mut().zip(scores) {
                    *to = T::narrow(score);
                }
            };
            for (part, share) in shares.chunks_exact_mut(each).enumerate() {
                self.part(inputs, &cut, part, stage, &mut rooms[..room], share, &mut show);
            }
        } else if cut.parts().saturating_mul(operations) < 2 * MIN_PART {
            for (part, share) in shares.chunks_exact_mut(each).enumerate() {
                let hide = &mut |_, _, _: &_, _: &_| ();
                self.part(inputs, &cut, part, stage, &mut rooms[..room], share, hide);
            }
        } else {
            workers.split_mut_with(shares, each, rooms, |part, share, room| {
                let hide = &mut |_, _, _: &_, _: &_| ();
                self.part(inputs, &cut, part, stage, room, share, hide);
            });
        }
        let Some(y) = y else { return };
        if y_layout.width == 0 {
            return;
        }
        for (index, shares) in shares.chunks_exact_mut(cut.apart() * each).enumerate() {
            let (first, others) = shares.split_at_mut(each);
            let mut share = Share::new(first, cut.block);
            let queries = self.queries_of(&cut, index);
            for other in others.chunks_exact_mut(each) {
                share.add(&Share::new(other, cut.block), queries.len());
            }
            for (row, query) in queries.enumerate() {
                let to = &mut y[y_layout.start(query.b, query.h, query.i)..][..y_layout.width];
                for (to, result) in to.iter_mut().zip(share.results(row)) {
                    *to = T::narrow(result);
                }
            }
        }
    }

    /// The queries of a block: position by position, the heads of the group at each.
    fn queries_of(&self, cut: &Cut, index: usize) -> impl ExactSizeIterator<Item = Query> {
        let group = self.group();
        let (stack, first) = (index / cut.blocks, index % cut.blocks * cut.block);
        let (b, kv_head) = (stack / self.kv_heads, stack % self.kv_heads);
        let end = (first + cut.block).min(group * self.queries);
        (first..end).map(move |row| Query {
            b,
            h: kv_head * group + row % group,
            i: row / group,
        })
    }

    /// A block of queries over all keys, or over one span of them.
    #[expect(clippy::too_many_arguments, reason = "what is the part's own")]
    fn part<W: Number<Wide = W> + Real>(
        &self,
        inputs: &Inputs<'_, W>,
        cut: &Cut,
        part: usize,
        stage: Option<ScoreStage>,
        room: &mut [W],
        share: &mut [W],
        show: &mut Show<'_, W>,
    ) {
        let (index, spans) = match cut.apart() {
            1 => (part, 0..cut.spans),
            spans => (part / spans, part % spans..part % spans + 1),
        };
        let (queries, room) = room.split_at_mut(cut.block * self.width);
        let (spare, scores) = room.split_at_mut(share.len());
        let (mut share, mut spare) = (Share::new(share, cut.block), Share::new(spare, cut.block));
        share.clear();
        let mut seen: [Range<usize>; BLOCK] = std::array::from_fn(|_| 0..0);
        let count = self.queries_of(cut, index).len();
        for (row, (query, seen)) in self.queries_of(cut, index).zip(&mut seen).enumerate() {
            let x = &mut queries[row * self.width..][..self.width];
            (inputs.q)(query.b, query.h, query.i, x);
            for x in x {
                *x = x.mul(W::from_f64(self.scale));
            }
            let keys = (inputs.visible)(query.b, query.i);
            let end = keys.end.min(self.total);
            *seen = keys.start.min(end)..end;
        }
        let block = Block {
            index,
            queries: &queries[..count * self.width],
            seen: &seen[..count],
        };
        let mut first = true;
        for span in spans {
            let keys = span * cut.span..(span + 1).saturating_mul(cut.span).min(self.total);
            let sees = |seen: &Range<usize>| !clipped(seen, &keys).is_empty();
            if stage.is_none() && !block.seen.iter().any(sees) {
                continue;
            }
            let of = if first { &mut share } else { &mut spare };
            self.span(inputs, cut, &block, keys, stage, scores, of, show);
            if !first {
                share.add(&spare, count);
            }
            first = false;
        }
    }

    /// What a block of queries has of the keys of a span.
    #[expect(clippy::too_many_arguments, reason = "what is the span's own")]
    fn span<W: Number<Wide = W> + Real>(
        &self,
        inputs: &Inputs<'_, W>,
        cut: &Cut,
        block: &Block<'_, W>,
        keys: Range<usize>,
        stage: Option<ScoreStage>,
        scores: &mut [W],
        share: &mut Share<'_, W>,
        show: &mut Show<'_, W>,
    ) {
        let count = block.seen.len();
        let Some(Query { b, h, .. }) = self.queries_of(cut, block.index).next() else {
            return;
        };
        let kv_head = h / self.group();
        let mut visible: [Range<usize>; BLOCK] = std::array::from_fn(|_| 0..0);
        let visible = &mut visible[..count];
        for (visible, seen) in visible.iter_mut().zip(block.seen) {
            *visible = clipped(seen, &keys);
        }
        // Scores that nobody sees are not computed, unless a caller asked to see them.
        let computed = match stage {
            Some(ScoreStage::Product | ScoreStage::Capped) => keys.clone(),
            _ => {
                let seen = || visible.iter().filter(|visible| !visible.is_empty());
                let start = seen().map(|visible| visible.start).min().unwrap_or(0);
                start..seen().map(|visible| visible.end).max().unwrap_or(start)
            }
        };
        for visible in visible.iter_mut().filter(|visible| Range::is_empty(visible)) {
            *visible = computed.start..computed.start;
        }
        let scores = &mut scores[..count * computed.len()];
        inputs
            .k
            .products(b, kv_head, computed.clone(), block.queries, scores);
        for (index, (query, visible)) in self.queries_of(cut, block.index).zip(&*visible).enumerate() {
            let scores = &mut scores[index * computed.len()..][..computed.len()];
            // Where all are computed for one query, they are shown for each.
            let (before, offset) = match stage {
                Some(ScoreStage::Product | ScoreStage::Capped) => (computed.clone(), 0),
                _ => (visible.clone(), visible.start - computed.start),
            };
            let shown = &mut scores[offset..][..before.len()];
            show(ScoreStage::Product, query, &before, shown);
            if self.softcap > 0.0 {
                let cap = W::from_f64(self.softcap);
                for score in shown.iter_mut() {
                    *score = score.div(cap).tanh().mul(cap);
                }
            }
            show(ScoreStage::Capped, query, &before, shown);
            let shown = &mut scores[visible.start - computed.start..][..visible.len()];
            (inputs.add_mask)(b, query.h, query.i, visible.start, shown);
            show(ScoreStage::Masked, query, visible, shown);
            let seen = &block.seen[index];
            let sink = inputs.sink.map(|sink| sink(query.h));
            let of = if keys.start <= seen.start && seen.end <= keys.end {
                softmax(shown, sink, self.double_softmax);
                Exponentials::DIVIDED
            } else {
                // The sink is counted once.
                exponentials(shown, sink.filter(|_| keys.contains(&seen.start)))
            };
            share.set(index, of);
            show(ScoreStage::Probability, query, visible, shown);
        }
        let weights = Weights {
            weights: scores,
            keys: computed,
            visible,
        };
        let width = share.sums.len() / cut.block;
        let sums = &mut share.sums[..count * width];
        inputs.v.weighted_sums(b, kv_head, &weights, sums);
    }
}

/// Those of a range that are in `keys`.
fn clipped(range: &Range<usize>, keys: &Range<usize>) -> Range<usize> {
    range.start.max(keys.start)..range.end.min(keys.end)
}

#[cfg(test)]
mod tests;
