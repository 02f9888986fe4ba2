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
//! Sums run in an order fixed by the shapes alone. Queries and keys are computed in the wide
//! type of the queries; one rounding at the end.

use std::ops::Range;

use super::number::{Number, Real, Scalar};
use crate::native::operator::OpError;
use crate::native::output::OutSlice;
use crate::native::workers::Workers;

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
}

/// Keys or values: those of earlier steps, if any, then those of this one, which may not have
/// been rounded to the type of the earlier ones yet.
pub(super) struct Cache<'a, P, N> {
    pub past: Option<Heads<'a, P>>,
    /// Rows of `past` that belong to a batch item.
    pub past_len: &'a (dyn Fn(usize) -> usize + Sync),
    pub new: Heads<'a, N>,
}

impl<P: Number, N: Number<Wide = P::Wide>> Cache<'_, P, N> {
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
        Ok(())
    }
}

/// Keys, of whatever type they are stored in.
pub(super) trait Keys<W>: Sync {
    /// scores[j] = sum over d of query[d] * k[b, head, first + j, d].
    fn products(&self, b: usize, head: usize, first: usize, query: &[W], scores: &mut [W]);
}

impl<P: Number, N: Number<Wide = P::Wide>> Keys<P::Wide> for Cache<'_, P, N> {
    fn products(&self, b: usize, head: usize, first: usize, query: &[P::Wide], scores: &mut [P::Wide]) {
        let past_len = self.past_len(b);
        for (j, score) in (first..).zip(scores) {
            *score = match &self.past {
                Some(past) if j < past_len => dot(query, past.row(b, head, j)),
                _ => dot(query, self.new.row(b, head, j - past_len)),
            };
        }
    }
}

/// Values, whose type need not be that of the queries.
pub(super) trait Values<W>: Sync {
    /// sums[d] = sum over j of weights[j] * v[b, head, first + j, d].
    fn weighted_sum(&self, b: usize, head: usize, first: usize, weights: &[W], sums: &mut [W]);
}

impl<W: Scalar, P: Number, N: Number<Wide = P::Wide>> Values<W> for Cache<'_, P, N> {
    fn weighted_sum(&self, b: usize, head: usize, first: usize, weights: &[W], sums: &mut [W]) {
        sums.fill(W::ZERO);
        let past_len = self.past_len(b);
        let old = past_len.saturating_sub(first).min(weights.len());
        let (old, new) = weights.split_at(old);
        if let Some(past) = &self.past {
            add_weighted(old, |j| past.row(b, head, first + j), sums);
        }
        let first = first.saturating_sub(past_len);
        add_weighted(new, |j| self.new.row(b, head, first + j), sums);
    }
}

/// sums[d] += sum over j of weights[j] * row(j)[d], in the order of j.
fn add_weighted<'a, W: Scalar, V: Number>(weights: &[W], row: impl Fn(usize) -> &'a [V], sums: &mut [W]) {
    const ROWS: usize = 4;
    let wide = |v: V| W::from_f64(v.widen().to_f64());
    let width = sums.len();
    let whole = weights.len() - weights.len() % ROWS;
    for j in (0..whole).step_by(ROWS) {
        let rows: [&[V]; ROWS] = std::array::from_fn(|r| &row(j + r)[..width]);
        let weights = &weights[j..j + ROWS];
        for d in 0..width {
            let mut sum = sums[d];
            for r in 0..ROWS {
                sum = Scalar::multiply_add(weights[r], wide(rows[r][d]), sum);
            }
            sums[d] = sum;
        }
    }
    for (j, &weight) in weights.iter().enumerate().skip(whole) {
        for (sum, &v) in sums.iter_mut().zip(row(j)) {
            *sum = Scalar::multiply_add(weight, wide(v), *sum);
        }
    }
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

impl Attend {
    /// Elements of wide type that [`run`](Self::run) needs as working memory.
    pub fn scratch_len(&self, v_width: usize, workers: &Workers) -> Option<usize> {
        self.room(v_width)?.checked_mul(workers.threads())
    }

    /// What a thread needs.
    fn room(&self, v_width: usize) -> Option<usize> {
        self.width.checked_add(v_width)?.checked_add(self.total)
    }

    /// Writes all of `y` (rows of `y_layout`, [`Layout::heads_first`] or
    /// [`Layout::positions_first`]) and of `shown`, whichever is wanted.
    pub fn run<T: Number<Wide: Real>>(
        &self,
        workers: &Workers,
        inputs: &Inputs<'_, T::Wide>,
        scratch: &mut [T::Wide],
        y: Option<&mut [T]>,
        y_layout: Layout,
        shown: Option<ScoreOutput<'_, T>>,
    ) {
        match (y, shown) {
            (Some(y), None) => self.share(workers, inputs, scratch, y, y_layout),
            (mut y, mut shown) => {
                let each = || (0..self.query_heads).flat_map(|h| (0..self.queries).map(move |i| (h, i)));
                for (b, (h, i)) in (0..self.batch).flat_map(|b| each().map(move |at| (b, at))) {
                    let y = y.as_deref_mut();
                    let to = y.map(|y| &mut y[y_layout.start(b, h, i)..][..y_layout.width]);
                    self.row((b, h, i), inputs, scratch, y_layout.width, to, shown.as_mut());
                }
            }
        }
    }

    /// Writes `y`, of which each thread gets rows that follow one another: those of some heads,
    /// or, where a position has the rows of all heads, of some positions.
    fn share<T: Number<Wide: Real>>(
        &self,
        workers: &Workers,
        inputs: &Inputs<'_, T::Wide>,
        scratch: &mut [T::Wide],
        y: &mut [T],
        y_layout: Layout,
    ) {
        let width = y_layout.width;
        let by_head = y_layout.position == width || self.queries == 1;
        let (rows, items) = match by_head {
            true => (self.queries, self.batch.saturating_mul(self.query_heads)),
            false => (self.query_heads, self.batch.saturating_mul(self.queries)),
        };
        if y.is_empty() {
            return;
        }
        let work = (self.width / 8 + width / 8)
            .saturating_mul(self.total)
            .saturating_mul(rows);
        let several = workers.chunk(items, work);
        let each = rows * width;
        workers.split_mut_with(y, several.saturating_mul(each), scratch, |part, y, room| {
            for (item, y) in (part * several..).zip(y.chunks_exact_mut(each)) {
                for (row, y) in y.chunks_exact_mut(width).enumerate() {
                    let at = match by_head {
                        true => (item / self.query_heads, item % self.query_heads, row),
                        false => (item / self.queries, row, item % self.queries),
                    };
                    self.row(at, inputs, room, width, Some(y), None);
                }
            }
        });
    }

    /// One query: writes its row of `y` and of `shown`, whichever is wanted.
    fn row<T: Number<Wide: Real>>(
        &self,
        (b, h, i): (usize, usize, usize),
        inputs: &Inputs<'_, T::Wide>,
        room: &mut [T::Wide],
        v_width: usize,
        y: Option<&mut [T]>,
        mut shown: Option<&mut ScoreOutput<'_, T>>,
    ) {
        let (query, rest) = room.split_at_mut(self.width);
        let (sums, scores) = rest.split_at_mut(v_width);
        let kv_head = h / (self.query_heads / self.kv_heads.max(1)).max(1);
        let stage = shown.as_ref().map(|output| output.stage);
        // Scores that nobody sees are not computed, unless a caller asked to see them.
        let all = matches!(stage, Some(ScoreStage::Product | ScoreStage::Capped));
        let row = (b * self.query_heads + h) * self.queries + i;
        let mut show = |at: ScoreStage, keys: &Range<usize>, scores: &[T::Wide]| {
            let Some(output) = shown.as_deref_mut().filter(|output| output.stage == at) else {
                return;
            };
            let row = &mut output.scores[row * self.total..][..self.total];
            row.fill(output.hidden);
            for (to, &score) in row[keys.clone()].iter_mut().zip(scores) {
                *to = T::narrow(score);
            }
        };
        let visible = (inputs.visible)(b, i);
        let end = visible.end.min(self.total);
        let visible = visible.start.min(end)..end;
        let computed = if all { 0..self.total } else { visible.clone() };
        (inputs.q)(b, h, i, query);
        for x in query.iter_mut() {
            *x = x.mul(T::Wide::from_f64(self.scale));
        }
        let scores = &mut scores[computed.clone()];
        inputs.k.products(b, kv_head, computed.start, query, scores);
        show(ScoreStage::Product, &computed, scores);
        if self.softcap > 0.0 {
            let cap = T::Wide::from_f64(self.softcap);
            for score in scores.iter_mut() {
                *score = score.div(cap).tanh().mul(cap);
            }
        }
        show(ScoreStage::Capped, &computed, scores);
        let scores = &mut scores[visible.start - computed.start..][..visible.len()];
        (inputs.add_mask)(b, h, i, visible.start, scores);
        show(ScoreStage::Masked, &visible, scores);
        let sink = inputs.sink.map(|sink| sink(h));
        if self.double_softmax {
            softmax::<T::Wide, f64>(scores, sink);
        } else {
            softmax::<T::Wide, T::Wide>(scores, sink);
        }
        show(ScoreStage::Probability, &visible, scores);
        let Some(y) = y else { return };
        inputs.v.weighted_sum(b, kv_head, visible.start, scores, sums);
        for (to, &sum) in y.iter_mut().zip(sums.iter()) {
            *to = T::narrow(sum);
        }
    }
}

/// The sum of x[d] * k[d], in sixteen interleaved partial sums that are added in order.
pub(super) fn dot<T: Number>(x: &[T::Wide], k: &[T]) -> T::Wide {
    const LANES: usize = 16;
    let mut lanes = [T::Wide::ZERO; LANES];
    let (x_chunks, k_chunks) = (x.chunks_exact(LANES), k.chunks_exact(LANES));
    let (x_rest, k_rest) = (x_chunks.remainder(), k_chunks.remainder());
    for (x, k) in x_chunks.zip(k_chunks) {
        for ((lane, &x), &k) in lanes.iter_mut().zip(x).zip(k) {
            *lane = Scalar::multiply_add(x, k.widen(), *lane);
        }
    }
    let sum = lanes.into_iter().fold(T::Wide::ZERO, Scalar::add);
    x_rest
        .iter()
        .zip(k_rest)
        .fold(sum, |sum, (&x, &k)| Scalar::multiply_add(x, k.widen(), sum))
}

/// Softmax in place, in precision `P`, with the sink's share left out. All zeros if no score is
/// above -inf.
fn softmax<W: Real, P: Real>(scores: &mut [W], sink: Option<W>) {
    let lowest = sink.unwrap_or(W::LOWEST);
    let max = scores.iter().fold(lowest, |max, &score| max.max(score));
    if max == W::LOWEST {
        scores.fill(W::ZERO);
        return;
    }
    let max = P::from_f64(max.to_f64());
    let exp_of = |score: W| P::from_f64(score.to_f64()).sub(max).exp();
    let mut sum = sink.map_or(P::ZERO, exp_of);
    for score in scores.iter_mut() {
        let exp = exp_of(*score);
        *score = W::from_f64(exp.to_f64());
        sum = sum.add(exp);
    }
    for score in scores {
        *score = W::from_f64(P::from_f64(score.to_f64()).div(sum).to_f64());
    }
}
