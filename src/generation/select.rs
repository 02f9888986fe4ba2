//! The largest of many scores, without sorting them.
//!
//! One pass takes the largest of each block of scores. Of k blocks, each has a score that is at
//! least the k-th largest of these, so that the k largest scores are at least that: only blocks that
//! reach it are looked at again.

use super::exponential::BLOCK;

/// The largest score of each block, and memory for selecting.
#[derive(Default)]
pub(super) struct Maxima {
    blocks: Vec<f32>,
    values: Vec<f32>,
}

/// What a pass over scores finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Extent {
    /// -inf if there are none. Not to be relied on if any is NaN.
    pub largest: f32,
    pub any_nan: bool,
}

impl Maxima {
    /// Takes the largest of each block.
    pub fn take(&mut self, scores: &[f32]) -> Extent {
        self.blocks.clear();
        self.blocks.reserve(scores.len().div_ceil(BLOCK));
        each_block(scores, |largest| self.blocks.push(largest))
    }

    /// The largest of the scores that blocks were taken of; -inf without any.
    pub fn largest(&self) -> f32 {
        self.blocks.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }

    /// The k-th largest of the scores that blocks were taken of; -inf if there are not so many above
    /// that.
    pub fn kth_largest(&mut self, scores: &[f32], k: usize) -> f32 {
        let Some(last) = k.checked_sub(1) else {
            return f32::INFINITY;
        };
        let descending = |a: &f32, b: &f32| b.total_cmp(a);
        let mut bound = f32::NEG_INFINITY;
        if last < self.blocks.len() {
            self.values.clear();
            self.values.extend_from_slice(&self.blocks);
            let (_, kth, _) = self.values.select_nth_unstable_by(last, descending);
            bound = *kth;
        }
        self.values.clear();
        for (scores, &largest) in scores.chunks(BLOCK).zip(&self.blocks) {
            if largest >= bound && largest > f32::NEG_INFINITY {
                let reach = |score: &f32| *score >= bound && *score > f32::NEG_INFINITY;
                self.values.extend(scores.iter().copied().filter(reach));
            }
        }
        if last >= self.values.len() {
            return f32::NEG_INFINITY;
        }
        let (_, kth, _) = self.values.select_nth_unstable_by(last, descending);
        *kth
    }

    /// Visits all scores that are at least `least` and not -inf, in their order.
    pub fn each_at_least(&self, scores: &[f32], least: f32, mut visit: impl FnMut(usize, f32)) {
        for (block, (scores, &largest)) in scores.chunks(BLOCK).zip(&self.blocks).enumerate() {
            if largest >= least && largest > f32::NEG_INFINITY {
                for (at, &score) in scores.iter().enumerate() {
                    if score >= least && score > f32::NEG_INFINITY {
                        visit(block * BLOCK + at, score);
                    }
                }
            }
        }
    }

    /// The place of the first score of this value.
    pub fn first(&self, scores: &[f32], value: f32) -> Option<usize> {
        let block = self.blocks.iter().position(|&largest| largest == value)? * BLOCK;
        let place = scores.get(block..)?.iter().position(|&score| score == value)?;
        Some(block + place)
    }
}

/// The largest of scores, and whether any is NaN.
pub(super) fn extent(scores: &[f32]) -> Extent {
    each_block(scores, |_| {})
}

/// Visits the largest of each block.
fn each_block(scores: &[f32], visit: impl FnMut(f32)) -> Extent {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has what the function is compiled for.
        return unsafe { each_block_avx2(scores, visit) };
    }
    each_block_in_lanes(scores, visit)
}

/// The same operations in wider instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn each_block_avx2(scores: &[f32], visit: impl FnMut(f32)) -> Extent {
    each_block_in_lanes(scores, visit)
}

/// Scores that are looked at side by side.
const LANES: usize = 16;

#[inline(always)]
fn each_block_in_lanes(scores: &[f32], mut visit: impl FnMut(f32)) -> Extent {
    let greater = |a: f32, b: f32| if a > b { a } else { b };
    let mut overall = f32::NEG_INFINITY;
    // The bits of a number without its sign are above those of infinity if it is NaN.
    let mut bits = [0u32; LANES];
    let (whole, rest) = scores.as_chunks::<BLOCK>();
    for scores in whole {
        let mut lanes = [f32::NEG_INFINITY; LANES];
        for scores in scores.as_chunks::<LANES>().0 {
            for lane in 0..LANES {
                lanes[lane] = greater(scores[lane], lanes[lane]);
                bits[lane] = bits[lane].max(scores[lane].to_bits() & 0x7FFF_FFFF);
            }
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] = greater(lanes[lane], lanes[lane + width]);
            }
            width /= 2;
        }
        overall = greater(lanes[0], overall);
        visit(lanes[0]);
    }
    if !rest.is_empty() {
        let mut largest = f32::NEG_INFINITY;
        for &score in rest {
            largest = greater(score, largest);
            bits[0] = bits[0].max(score.to_bits() & 0x7FFF_FFFF);
        }
        overall = greater(largest, overall);
        visit(largest);
    }
    Extent {
        largest: overall,
        any_nan: bits.iter().any(|&bits| bits > 0x7F80_0000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kth_largest_is_that_of_a_sort() {
        for (count, modulus) in [(1, 7), (64, 5), (65, 1000), (700, 11), (5000, 4001)] {
            let scores: Vec<f32> = (0..count)
                .map(|at: u64| (at * 7919 % modulus) as f32 - 3.0)
                .collect();
            let mut sorted = scores.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let mut maxima = Maxima::default();
            let extent = maxima.take(&scores);
            assert_eq!(extent.largest, sorted[0]);
            assert!(!extent.any_nan);
            for k in [1, 2, 3, 10, 50, 64, 65, 400, 5000] {
                let expected = sorted.get(k - 1).copied().unwrap_or(f32::NEG_INFINITY);
                assert_eq!(maxima.kth_largest(&scores, k), expected, "{k} of {count}");
                let mut found = Vec::new();
                maxima.each_at_least(&scores, expected, |at, score| found.push((at, score)));
                let all = scores.iter().copied().enumerate();
                assert!(found.into_iter().eq(all.filter(|(_, score)| *score >= expected)));
            }
            assert_eq!(
                maxima.first(&scores, sorted[0]),
                scores.iter().position(|score| *score == sorted[0])
            );
        }
    }

    #[test]
    fn nan_is_seen_anywhere_and_infinities_are_none() {
        let mut scores = vec![f32::INFINITY; 130];
        scores[5] = f32::NEG_INFINITY;
        assert!(!Maxima::default().take(&scores).any_nan);
        for at in 0..130 {
            let mut scores = vec![1.0; 130];
            scores[at] = if at % 2 == 0 { f32::NAN } else { -f32::NAN };
            assert!(Maxima::default().take(&scores).any_nan);
        }
        let none = vec![f32::NEG_INFINITY; 100];
        let mut maxima = Maxima::default();
        assert_eq!(maxima.take(&none).largest, f32::NEG_INFINITY);
        assert_eq!(maxima.kth_largest(&none, 3), f32::NEG_INFINITY);
    }
}
