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
    largest: f32,
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
        self.blocks
            .resize(scores.len().div_ceil(BLOCK), f32::NEG_INFINITY);
        let mut blocks = self.blocks.iter_mut();
        let extent = each_block(scores, |_, largest| {
            if let Some(block) = blocks.next() {
                *block = largest;
            }
        });
        self.largest = extent.largest;
        extent
    }

    /// The largest of the scores that blocks were taken of.
    pub fn largest(&self) -> f32 {
        self.largest
    }

    /// The k-th largest of the scores that blocks were taken of; -inf if there are not so many above
    /// that.
    pub fn kth_largest(&mut self, scores: &[f32], k: usize) -> f32 {
        let Some(last) = k.checked_sub(1) else {
            return f32::INFINITY;
        };
        let bound = self.bound(last);
        self.values.clear();
        for (scores, &largest) in scores.chunks(BLOCK).zip(&self.blocks) {
            if largest >= bound && largest > f32::NEG_INFINITY {
                let reach = |score: &f32| *score >= bound && *score > f32::NEG_INFINITY;
                self.values.extend(scores.iter().copied().filter(reach));
            }
        }
        nth(&mut self.values, last).unwrap_or(f32::NEG_INFINITY)
    }

    /// What more than `last` scores reach.
    fn bound(&mut self, last: usize) -> f32 {
        /// Blocks of blocks, of which the same holds: fewer to look at.
        const GROUP: usize = 16;
        self.values.clear();
        for blocks in self.blocks.chunks(GROUP) {
            self.values
                .push(blocks.iter().copied().fold(f32::NEG_INFINITY, greater));
        }
        let coarse = nth(&mut self.values, last).unwrap_or(f32::NEG_INFINITY);
        self.values.clear();
        let reach = self.blocks.iter().filter(|largest| **largest >= coarse);
        self.values.extend(reach);
        nth(&mut self.values, last).unwrap_or(f32::NEG_INFINITY)
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

/// The value at a place of the values in descending order.
fn nth(values: &mut [f32], place: usize) -> Option<f32> {
    if place >= values.len() {
        return None;
    }
    let (_, value, _) = values.select_nth_unstable_by(place, |a, b| b.total_cmp(a));
    Some(*value)
}

/// Copies scores, and says whether any is NaN.
pub(super) fn copy(scores: &[f32], to: &mut Vec<f32>) -> bool {
    to.resize(scores.len(), 0.0);
    let mut blocks = to.chunks_mut(BLOCK);
    let extent = each_block(scores, |scores, _| {
        if let Some(block) = blocks.next()
            && block.len() == scores.len()
        {
            block.copy_from_slice(scores);
        }
    });
    extent.any_nan
}

/// The largest of scores, and whether any is NaN.
pub(super) fn extent(scores: &[f32]) -> Extent {
    each_block(scores, |_, _| {})
}

/// Visits the largest of each block.
fn each_block(scores: &[f32], visit: impl FnMut(&[f32], f32)) -> Extent {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has what the function is compiled for.
        return unsafe { avx2::each_block(scores, visit) };
    }
    let (whole, rest) = scores.as_chunks::<BLOCK>();
    let mut any_nan = false;
    finish(whole, rest, visit, |block| {
        any_nan |= block.iter().fold(false, |any, score| any | score.is_nan());
        block.iter().copied().fold(f32::NEG_INFINITY, greater)
    })
    .or_nan(any_nan)
}

fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Visits the largest of whole blocks, which `largest` finds, and of what is behind them.
#[inline(always)]
fn finish(
    whole: &[[f32; BLOCK]],
    rest: &[f32],
    mut visit: impl FnMut(&[f32], f32),
    mut largest: impl FnMut(&[f32; BLOCK]) -> f32,
) -> Extent {
    let mut overall = f32::NEG_INFINITY;
    for block in whole {
        let largest = largest(block);
        overall = greater(largest, overall);
        visit(block, largest);
    }
    if !rest.is_empty() {
        let largest = rest.iter().copied().fold(f32::NEG_INFINITY, greater);
        overall = greater(largest, overall);
        visit(rest, largest);
    }
    Extent {
        largest: overall,
        any_nan: rest.iter().any(|score| score.is_nan()),
    }
}

impl Extent {
    fn or_nan(self, any_nan: bool) -> Self {
        Extent {
            any_nan: self.any_nan || any_nan,
            ..self
        }
    }
}

/// The same in vector instructions, which compilers do not find by themselves.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256, _CMP_UNORD_Q, _mm_cvtss_f32, _mm_max_ps, _mm_max_ss, _mm_movehdup_ps, _mm_movehl_ps,
        _mm256_castps256_ps128, _mm256_cmp_ps, _mm256_extractf128_ps, _mm256_loadu_ps, _mm256_max_ps,
        _mm256_movemask_ps, _mm256_or_ps, _mm256_setzero_ps,
    };

    use super::{BLOCK, Extent, finish};

    const LANES: usize = 8;

    #[target_feature(enable = "avx2")]
    pub fn each_block(scores: &[f32], visit: impl FnMut(&[f32], f32)) -> Extent {
        let (whole, rest) = scores.as_chunks::<BLOCK>();
        let mut nan = _mm256_setzero_ps();
        let extent = finish(whole, rest, visit, |block| {
            let lanes = |at: usize| load(block, at);
            // One comparison tells of two whether either is NaN.
            let two = |at: usize| {
                let (a, b) = (lanes(at), lanes(at + LANES));
                (_mm256_max_ps(a, b), _mm256_cmp_ps::<_CMP_UNORD_Q>(a, b))
            };
            let four = |at: usize| {
                let ((a, no_a), (b, no_b)) = (two(at), two(at + 2 * LANES));
                (_mm256_max_ps(a, b), _mm256_or_ps(no_a, no_b))
            };
            let ((a, no_a), (b, no_b)) = (four(0), four(4 * LANES));
            nan = _mm256_or_ps(nan, _mm256_or_ps(no_a, no_b));
            largest(_mm256_max_ps(a, b))
        });
        extent.or_nan(_mm256_movemask_ps(nan) != 0)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load(block: &[f32; BLOCK], at: usize) -> __m256 {
        let lanes: &[f32; LANES] = block[at..].first_chunk().unwrap_or(&[0.0; LANES]);
        // SAFETY: as many lanes as are loaded.
        unsafe { _mm256_loadu_ps(lanes.as_ptr()) }
    }

    /// The largest of the lanes.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn largest(lanes: __m256) -> f32 {
        let four = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
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
