//! The arithmetic of attention over slices, apart from any operator's inputs and attributes.
//!
//! For each batch item b, query head h and query i, with g = h / (query heads / kv heads):
//!
//!   s[j] = scale * sum over d of q[b, h, i, d] * k[b, g, j, d]
//!   s[j] = softcap * tanh(s[j] / softcap)                        when softcap > 0
//!   s[j] = s[j] + mask[b, h, i, j], and -inf where j is not visible
//!   p    = softmax(s)                                            (zero if nothing is visible)
//!   y[b, h, i, d] = sum over j of p[j] * v[b, g, j, d]
//!
//! Sums run in an order fixed by the shapes alone. Queries and keys are computed in the wide
//! type of the queries; one rounding at the end.

use super::number::{Float, Number, Real, Scalar};

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

/// Keys or values: those of earlier steps, if any, then those of this one.
pub(super) struct Cache<'a, T> {
    pub past: Option<Heads<'a, T>>,
    pub past_len: usize,
    pub new: Heads<'a, T>,
}

impl<'a, T> Cache<'a, T> {
    pub fn row(&self, batch: usize, head: usize, position: usize) -> &'a [T] {
        match &self.past {
            Some(past) if position < self.past_len => past.row(batch, head, position),
            _ => self.new.row(batch, head, position - self.past_len),
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
}

pub(super) struct Inputs<'a, T: Float> {
    pub q: Heads<'a, T>,
    pub k: Cache<'a, T>,
    pub v: &'a dyn Values<T::Wide>,
    /// How many keys of each batch item are not padding, none negative; `None` for all.
    pub valid: Option<&'a [i64]>,
}

/// `(b, h, i, scores)`: adds row i of the mask to the scores of the first keys.
pub(super) type AddMask<'a, W> = dyn Fn(usize, usize, usize, &mut [W]) + 'a;

pub(super) struct Attend {
    pub batch: usize,
    pub query_heads: usize,
    /// Divides `query_heads`.
    pub kv_heads: usize,
    pub queries: usize,
    /// Keys and values, past ones included.
    pub total: usize,
    pub scale: f64,
    /// 0 for none.
    pub softcap: f64,
    /// Query i sees keys up to `past + i`; `None` if it sees all.
    pub causal_past: Option<usize>,
    /// The softmax of f16, bf16 and f32 scores is computed in f64.
    pub double_softmax: bool,
}

impl Attend {
    /// Keys that query `i` of batch item `b` may see at most: a prefix.
    fn visible(&self, i: usize, valid: Option<usize>) -> usize {
        let causal = self.causal_past.map_or(self.total, |past| past + i + 1);
        self.total.min(causal).min(valid.unwrap_or(self.total))
    }

    /// Elements of wide type that [`run`](Self::run) needs as working memory.
    pub fn scratch_len(&self, width: usize, v_width: usize) -> Option<usize> {
        width.checked_add(v_width)?.checked_add(self.total)
    }

    /// Writes all of `y` (rows of `y_layout`) and of `shown`, whichever is wanted.
    pub fn run<T: Float>(
        &self,
        inputs: &Inputs<'_, T>,
        add_mask: &AddMask<'_, T::Wide>,
        scratch: &mut [T::Wide],
        mut y: Option<&mut [T]>,
        y_layout: Layout,
        mut shown: Option<ScoreOutput<'_, T>>,
    ) {
        let Inputs { q, k, v, valid } = inputs;
        let (query, rest) = scratch.split_at_mut(q.layout.width);
        let (sums, scores) = rest.split_at_mut(y_layout.width);
        let group = self.query_heads / self.kv_heads.max(1);
        let stage = shown.as_ref().map(|output| output.stage);
        for b in 0..self.batch {
            for h in 0..self.query_heads {
                let kv_head = h / group.max(1);
                for i in 0..self.queries {
                    let row = (b * self.query_heads + h) * self.queries + i;
                    let mut show = |at: ScoreStage, scores: &[T::Wide]| {
                        if let Some(output) = shown.as_mut().filter(|output| output.stage == at) {
                            let row = &mut output.scores[row * self.total..][..self.total];
                            for (to, &score) in row.iter_mut().zip(scores) {
                                *to = T::narrow(score);
                            }
                        }
                    };
                    let visible = self.visible(i, valid.map(|valid| valid[b] as usize));
                    // Scores that nobody sees are not computed, unless a caller asked to see them.
                    let computed = match stage {
                        Some(ScoreStage::Product | ScoreStage::Capped) => self.total,
                        _ => visible,
                    };
                    for (to, &x) in query.iter_mut().zip(q.row(b, h, i)) {
                        *to = x.widen().mul(T::Wide::from_f64(self.scale));
                    }
                    for (j, score) in scores.iter_mut().enumerate().take(computed) {
                        *score = dot(query, k.row(b, kv_head, j));
                    }
                    show(ScoreStage::Product, scores);
                    if self.softcap > 0.0 {
                        let cap = T::Wide::from_f64(self.softcap);
                        for score in scores.iter_mut().take(computed) {
                            *score = score.div(cap).tanh().mul(cap);
                        }
                    }
                    show(ScoreStage::Capped, scores);
                    add_mask(b, h, i, &mut scores[..visible]);
                    scores[visible..].fill(T::Wide::LOWEST);
                    show(ScoreStage::Masked, scores);
                    if self.double_softmax {
                        softmax::<T::Wide, f64>(&mut scores[..visible]);
                    } else {
                        softmax::<T::Wide, T::Wide>(&mut scores[..visible]);
                    }
                    scores[visible..].fill(T::Wide::ZERO);
                    show(ScoreStage::Probability, scores);
                    let Some(y) = &mut y else { continue };
                    v.weighted_sum(b, kv_head, &scores[..visible], sums);
                    let to = &mut y[y_layout.start(b, h, i)..][..y_layout.width];
                    for (to, &sum) in to.iter_mut().zip(sums.iter()) {
                        *to = T::narrow(sum);
                    }
                }
            }
        }
    }
}

/// The sum of x[d] * k[d], in sixteen interleaved partial sums that are added in order.
fn dot<T: Number>(x: &[T::Wide], k: &[T]) -> T::Wide {
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

/// Softmax in place, in precision `P`. All zeros if no score is above -inf.
fn softmax<W: Real, P: Real>(scores: &mut [W]) {
    let max = scores.iter().fold(W::LOWEST, |max, &score| max.max(score));
    if max == W::LOWEST {
        scores.fill(W::ZERO);
        return;
    }
    let max = P::from_f64(max.to_f64());
    let mut sum = P::ZERO;
    for score in scores.iter_mut() {
        let exp = P::from_f64(score.to_f64()).sub(max).exp();
        *score = W::from_f64(exp.to_f64());
        sum = sum.add(exp);
    }
    for score in scores {
        *score = W::from_f64(P::from_f64(score.to_f64()).div(sum).to_f64());
    }
}

/// Values, whose type need not be that of the queries.
pub(super) trait Values<W> {
    /// sums[d] = sum over j of weights[j] * v[b, head, j, d].
    fn weighted_sum(&self, b: usize, head: usize, weights: &[W], sums: &mut [W]);
}

impl<W: Scalar, V: Number> Values<W> for Cache<'_, V> {
    fn weighted_sum(&self, b: usize, head: usize, weights: &[W], sums: &mut [W]) {
        const ROWS: usize = 4;
        sums.fill(W::ZERO);
        let wide = |v: V| W::from_f64(v.widen().to_f64());
        let whole = weights.len() - weights.len() % ROWS;
        let width = sums.len();
        for j in (0..whole).step_by(ROWS) {
            let rows: [&[V]; ROWS] = std::array::from_fn(|r| &self.row(b, head, j + r)[..width]);
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
            for (sum, &v) in sums.iter_mut().zip(self.row(b, head, j)) {
                *sum = Scalar::multiply_add(weight, wide(v), *sum);
            }
        }
    }
}
