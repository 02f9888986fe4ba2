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
//! the blocks are shared out among the threads. What a query gets depends neither on that nor
//! on which others it is blocked with; the loops are in [`rows`].

mod cache;
mod rows;

use std::ops::Range;

pub(super) use self::cache::{Cache, CacheSizes};
pub(super) use self::rows::dot;
use self::rows::{Rows, softmax};
use super::number::{Number, Real};
use crate::native::workers::{MIN_PART, Workers};

/// Queries that go over the keys together.
const BLOCK: usize = 8;

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

impl Attend {
    /// Query heads that share a kv head.
    fn group(&self) -> usize {
        (self.query_heads / self.kv_heads.max(1)).max(1)
    }

    /// Queries of a block, and blocks of a kv head.
    fn blocks(&self) -> (usize, usize) {
        let rows = self.group().saturating_mul(self.queries);
        let block = rows.clamp(1, BLOCK);
        (block, rows.div_ceil(block))
    }

    /// Elements of wide type that [`run`](Self::run) needs as working memory.
    pub fn scratch_len(&self, v_width: usize, workers: &Workers) -> Option<usize> {
        let (block, blocks) = self.blocks();
        let parts = self.batch.checked_mul(self.kv_heads)?.checked_mul(blocks)?;
        let results = parts.checked_mul(block)?.checked_mul(v_width)?;
        results.checked_add(self.room()?.checked_mul(workers.threads())?)
    }

    /// Elements that a block needs: its queries and their scores.
    fn room(&self) -> Option<usize> {
        self.width.checked_add(self.total)?.checked_mul(self.blocks().0)
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
        let (block, blocks) = self.blocks();
        let parts = self.batch * self.kv_heads * blocks;
        let each = block * y_layout.width;
        let (sums, rooms) = scratch.split_at_mut(parts * each);
        let stage = shown.as_ref().map(|output| output.stage);
        let operations = block * self.total * (self.width + y_layout.width) / 8;
        if let Some(output) = &mut shown {
            let room = &mut rooms[..self.room().unwrap_or_default()];
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
            for part in 0..parts {
                let sums = &mut sums[part * each..][..each];
                self.block(inputs, part, stage, room, sums, &mut show);
            }
        } else if parts.saturating_mul(operations) < 2 * MIN_PART || each == 0 {
            let room = &mut rooms[..self.room().unwrap_or_default()];
            for part in 0..parts {
                let sums = &mut sums[part * each..][..each];
                self.block(inputs, part, stage, room, sums, &mut |_, _, _, _| ());
            }
        } else {
            workers.split_mut_with(sums, each, rooms, |part, sums, room| {
                self.block(inputs, part, stage, room, sums, &mut |_, _, _, _| ());
            });
        }
        let Some(y) = y else { return };
        if y_layout.width == 0 {
            return;
        }
        for (part, sums) in sums.chunks_exact(each).enumerate() {
            for (query, sums) in self.queries_of(part).zip(sums.chunks_exact(y_layout.width)) {
                let to = &mut y[y_layout.start(query.b, query.h, query.i)..][..y_layout.width];
                for (to, &sum) in to.iter_mut().zip(sums) {
                    *to = T::narrow(sum);
                }
            }
        }
    }

    /// The queries of a block: position by position, the heads of the group at each.
    fn queries_of(&self, part: usize) -> impl ExactSizeIterator<Item = Query> {
        let (block, blocks) = self.blocks();
        let group = self.group();
        let (stack, first) = (part / blocks, part % blocks * block);
        let (b, kv_head) = (stack / self.kv_heads, stack % self.kv_heads);
        let end = (first + block).min(group * self.queries);
        (first..end).map(move |row| Query {
            b,
            h: kv_head * group + row % group,
            i: row / group,
        })
    }

    /// The sums of a block of queries, as many rows as it has.
    fn block<W: Number<Wide = W> + Real>(
        &self,
        inputs: &Inputs<'_, W>,
        part: usize,
        stage: Option<ScoreStage>,
        room: &mut [W],
        sums: &mut [W],
        show: &mut Show<'_, W>,
    ) {
        let count = self.queries_of(part).len();
        let Some(Query { b, h, .. }) = self.queries_of(part).next() else {
            return;
        };
        let kv_head = h / self.group();
        let (queries, scores) = room.split_at_mut(count * self.width);
        let mut visible: [Range<usize>; BLOCK] = std::array::from_fn(|_| 0..0);
        let visible = &mut visible[..count];
        for (index, (query, visible)) in self.queries_of(part).zip(&mut *visible).enumerate() {
            let row = &mut queries[index * self.width..][..self.width];
            (inputs.q)(b, query.h, query.i, row);
            for x in row {
                *x = x.mul(W::from_f64(self.scale));
            }
            let keys = (inputs.visible)(b, query.i);
            let end = keys.end.min(self.total);
            *visible = keys.start.min(end)..end;
        }
        // Scores that nobody sees are not computed, unless a caller asked to see them.
        let computed = match stage {
            Some(ScoreStage::Product | ScoreStage::Capped) => 0..self.total,
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
        inputs.k.products(b, kv_head, computed.clone(), queries, scores);
        for (index, (query, visible)) in self.queries_of(part).zip(&*visible).enumerate() {
            let scores = &mut scores[index * computed.len()..][..computed.len()];
            // Where all are computed for one query, they are shown for each.
            let (before, offset) = match stage {
                Some(ScoreStage::Product | ScoreStage::Capped) => (computed.clone(), 0),
                _ => (visible.clone(), visible.start - computed.start),
            };
            let seen = &mut scores[offset..][..before.len()];
            show(ScoreStage::Product, query, &before, seen);
            if self.softcap > 0.0 {
                let cap = W::from_f64(self.softcap);
                for score in seen.iter_mut() {
                    *score = score.div(cap).tanh().mul(cap);
                }
            }
            show(ScoreStage::Capped, query, &before, seen);
            let seen = &mut scores[visible.start - computed.start..][..visible.len()];
            (inputs.add_mask)(b, query.h, query.i, visible.start, seen);
            show(ScoreStage::Masked, query, visible, seen);
            softmax(seen, inputs.sink.map(|sink| sink(query.h)), self.double_softmax);
            show(ScoreStage::Probability, query, visible, seen);
        }
        let weights = Weights {
            weights: scores,
            keys: computed,
            visible,
        };
        let width = sums.len() / self.blocks().0;
        inputs
            .v
            .weighted_sums(b, kv_head, &weights, &mut sums[..count * width]);
    }
}
