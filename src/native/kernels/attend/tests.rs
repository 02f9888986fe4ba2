//! Attention over several spans of keys, against its definition in f64.

use half::f16;

use super::*;
use crate::native::kernels::simd::PORTABLE_ONLY;

/// Once with the loops that this CPU has, once with the portable ones.
pub(super) fn both_variants(check: impl Fn()) {
    for portable in [false, true] {
        PORTABLE_ONLY.set(portable);
        check();
    }
    PORTABLE_ONLY.set(false);
}

/// Numbers between -1 and 1, the same every time.
pub(super) fn floats(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 * 2.0 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const WIDTH: usize = 12;
const V_WIDTH: usize = 9;

struct Case {
    queries: usize,
    total: usize,
    window: usize,
    sink: Option<f32>,
}

impl Case {
    fn visible(&self, i: usize) -> Range<usize> {
        let end = self.total - self.queries + i + 1;
        end.saturating_sub(self.window)..end
    }

    fn attend(&self) -> Attend {
        Attend {
            batch: 1,
            query_heads: HEADS,
            kv_heads: KV_HEADS,
            queries: self.queries,
            total: self.total,
            width: WIDTH,
            scale: 1.5,
            softcap: 0.0,
            double_softmax: false,
        }
    }

    fn run<P: Number<Wide = f32>>(&self, [q, k, v]: [&[f32]; 3], mask: &[f32], threads: usize) -> Vec<f32> {
        let narrow = |x: &[f32]| x.iter().map(|&x| P::narrow(x)).collect::<Vec<P>>();
        let (k, v) = (narrow(k), narrow(v));
        let split = self.total / 2;
        let none = |_: usize| split;
        // Half of the keys are of earlier steps, in memory for more.
        let cache = |data, width| Cache::<'_, P, P> {
            past: Some(Heads {
                data,
                layout: Layout::heads_first(KV_HEADS, self.total, width),
            }),
            past_len: &none,
            new: Heads {
                data: &data[split * width..],
                layout: Layout::heads_first(KV_HEADS, self.total, width),
            },
        };
        let (keys, values) = (cache(&k, WIDTH), cache(&v, V_WIDTH));
        let load = |_: usize, h: usize, i: usize, row: &mut [f32]| {
            row.copy_from_slice(&q[(h * self.queries + i) * WIDTH..][..WIDTH]);
        };
        let add_mask = |_: usize, _: usize, _: usize, first: usize, scores: &mut [f32]| {
            for (score, mask) in scores.iter_mut().zip(&mask[first..]) {
                *score += mask;
            }
        };
        let sink = self.sink.map(|sink| move |_: usize| sink);
        let inputs = Inputs {
            q: &load,
            k: &keys,
            v: &values,
            visible: &|_, i| self.visible(i),
            add_mask: &add_mask,
            sink: sink.as_ref().map(|sink| sink as &(dyn Fn(usize) -> f32 + Sync)),
        };
        let workers = Workers::new(threads);
        let attend = self.attend();
        let mut scratch = vec![f32::NAN; attend.scratch_len(V_WIDTH, &workers).unwrap()];
        let mut y = vec![f32::NAN; HEADS * self.queries * V_WIDTH];
        let layout = Layout::heads_first(HEADS, self.queries, V_WIDTH);
        attend.run::<f32>(&workers, &inputs, &mut scratch, Some(&mut y), layout, None);
        y
    }

    fn expected(&self, [q, k, v]: [&[f32]; 3], mask: &[f32]) -> Vec<f64> {
        let mut y = Vec::new();
        for h in 0..HEADS {
            for i in 0..self.queries {
                let kv = h / (HEADS / KV_HEADS) * self.total;
                let dot = |j: usize| -> f64 {
                    let pairs = (0..WIDTH).map(|d| {
                        let x = q[(h * self.queries + i) * WIDTH + d];
                        f64::from(x) * f64::from(k[(kv + j) * WIDTH + d])
                    });
                    1.5 * pairs.sum::<f64>() + f64::from(mask[j])
                };
                let weights: Vec<_> = self.visible(i).map(|j| (j, dot(j).exp())).collect();
                let sink = self.sink.map_or(0.0, |sink| f64::from(sink).exp());
                let all = sink + weights.iter().map(|(_, weight)| weight).sum::<f64>();
                y.extend((0..V_WIDTH).map(|d| {
                    let of = |&(j, weight): &(usize, f64)| weight * f64::from(v[(kv + j) * V_WIDTH + d]);
                    match all == 0.0 {
                        true => 0.0,
                        false => weights.iter().map(of).sum::<f64>() / all,
                    }
                }));
            }
        }
        y
    }
}

#[test]
fn spans_are_merged_into_the_whole() {
    for (queries, total, window, sink) in [
        (1, 40, 1000, None),
        (1, SPAN, 1000, None),
        (1, SPAN + 1, 10_000, None),
        (2, 3 * SPAN + 70, 10_000, Some(1.5)),
        (3, 2 * SPAN + 70, 100, Some(-0.5)),
        (60, 2 * SPAN + 9, 10_000, None),
        (70, 2 * SPAN + 9, 600, Some(0.5)),
    ] {
        let case = Case {
            queries,
            total,
            window,
            sink,
        };
        let exact = |len, seed| -> Vec<f32> {
            let floats = floats(len, seed).into_iter();
            floats.map(|x| f16::from_f32(x).to_f32()).collect()
        };
        let q = floats(HEADS * queries * WIDTH, 1);
        let (k, v) = (
            exact(KV_HEADS * total * WIDTH, 2),
            exact(KV_HEADS * total * V_WIDTH, 3),
        );
        // The largest scores are in no span in particular, and one span is hidden.
        let mut mask: Vec<f32> = floats(total, 4).into_iter().map(|x| 20.0 * x).collect();
        if total > 2 * SPAN {
            mask[SPAN..2 * SPAN].fill(f32::NEG_INFINITY);
        }
        let expected = case.expected([&q, &k, &v], &mask);
        let found = case.run::<f32>([&q, &k, &v], &mask, 1);
        for (&found, &expected) in found.iter().zip(&expected) {
            assert!((f64::from(found) - expected).abs() < 2e-5, "{found} {expected}");
        }
        for threads in [2, 4] {
            assert_eq!(found, case.run::<f32>([&q, &k, &v], &mask, threads));
        }
        // The numbers have the same value in f16.
        assert_eq!(found, case.run::<f16>([&q, &k, &v], &mask, 2));
    }
}

#[test]
fn what_a_span_hides_counts_for_nothing() {
    let case = Case {
        queries: 1,
        total: 2 * SPAN,
        window: 10_000,
        sink: None,
    };
    let q = floats(HEADS * WIDTH, 1);
    let (k, v) = (
        floats(KV_HEADS * case.total * WIDTH, 2),
        floats(KV_HEADS * case.total * V_WIDTH, 3),
    );
    let hidden = vec![f32::NEG_INFINITY; case.total];
    assert!(
        case.run::<f32>([&q, &k, &v], &hidden, 1)
            .iter()
            .all(|&y| y == 0.0)
    );
    let mut nan = hidden;
    nan[SPAN + 3] = f32::NAN;
    assert!(case.run::<f32>([&q, &k, &v], &nan, 1).iter().all(|y| y.is_nan()));
}
