//! The largest of many scores, without sorting them.
//!
//! One pass takes the largest of each block of scores. Of k blocks, each has a score that is at
//! least the k-th largest of these, so that the k largest scores are at least that: only blocks that
//! reach it are looked at again.

use super::exponential::{BLOCK, LANES, Weigher, across, at_least, padded, sum};

/// The largest score of each block, and memory for selecting.
#[derive(Default)]
pub(super) struct Maxima {
    blocks: Vec<f32>,
    largest: f32,
    values: Vec<f32>,
}

/// A border between scores: what is larger is left, and of what is as large the first ids are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    pub least: f32,
    /// The last token of those with the least score that is left.
    last: usize,
}

impl Cut {
    /// All are left.
    pub const NONE: Cut = Cut::at(f32::NEG_INFINITY);

    /// Above all that are smaller than this.
    pub const fn at(least: f32) -> Self {
        Cut::up_to(least, usize::MAX)
    }

    pub const fn up_to(least: f32, last: usize) -> Self {
        Cut { least, last }
    }

    /// What both leave, the other being one of all that are smaller than this.
    pub fn or_above(self, least: f32) -> Self {
        match least > self.least {
            true => Cut::at(least),
            false => self,
        }
    }

    pub fn keeps(&self, token: usize, score: f32) -> bool {
        score > self.least || (score == self.least && token <= self.last)
    }
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

    /// Copies the scores whose bits are set in these words, the low bit first, -inf in the place of
    /// the others, and takes the largest of each block of the copy. A NaN is one wherever it is.
    pub fn take_allowed(&mut self, scores: &[f32], words: &[u32], to: &mut Vec<f32>) -> Extent {
        self.blocks
            .resize(scores.len().div_ceil(BLOCK), f32::NEG_INFINITY);
        to.resize(scores.len(), 0.0);
        let extent = copy_allowed(scores, words, to, &mut self.blocks);
        self.largest = extent.largest;
        extent
    }

    /// The sum of the weights above a border in each block, of the scores that blocks were taken of.
    pub fn sums_above(&self, scores: &[f32], cut: Cut, weigher: Weigher, sums: &mut Vec<f64>) {
        sums.clear();
        sums.reserve(self.blocks.len());
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has what the function is compiled for.
            unsafe { avx2::sums_above(&self.blocks, scores, cut, weigher, sums) };
            return;
        }
        sums_above(&self.blocks, scores, cut, weigher, sums);
    }

    /// The sum of the weights of scores of at least `least`, and how many these are; `weights` are
    /// those of the scores that blocks were taken of.
    pub fn mass_at_least(&self, scores: &[f32], weights: &[[f32; BLOCK]], least: f32) -> (f64, usize) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has what the function is compiled for.
            return unsafe { avx2::mass_at_least(&self.blocks, scores, weights, least) };
        }
        mass_at_least(&self.blocks, scores, weights, least)
    }

    /// Visits all scores of at least `least` that are smaller than `end`, in their order.
    pub fn each_between(&self, scores: &[f32], least: f32, end: f32, mut visit: impl FnMut(usize, f32)) {
        let is_in = |score: f32| (score >= least) & (score < end);
        for (block, (scores, &largest)) in scores.chunks(BLOCK).zip(&self.blocks).enumerate() {
            // Whether any is in the block is a question for vector instructions.
            if largest >= least && scores.iter().fold(false, |any, &score| any | is_in(score)) {
                for (at, &score) in scores.iter().enumerate().filter(|(_, score)| is_in(**score)) {
                    visit(block * BLOCK + at, score);
                }
            }
        }
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

#[inline(always)]
fn mass_at_least(blocks: &[f32], scores: &[f32], weights: &[[f32; BLOCK]], least: f32) -> (f64, usize) {
    let (mut mass, mut count) = (0.0, 0);
    let (whole, rest) = scores.as_chunks::<BLOCK>();
    let last = padded(rest);
    let all = whole.iter().chain(std::iter::once(&last));
    for ((scores, weights), &largest) in all.zip(weights).zip(blocks) {
        if largest < least {
            continue;
        }
        mass += sum(&at_least(least, scores, weights));
        let reached = scores.iter().map(|&score| u32::from(score >= least));
        count += reached.sum::<u32>() as usize;
    }
    (mass, count)
}

#[inline(always)]
fn sums_above(blocks: &[f32], scores: &[f32], cut: Cut, weigher: Weigher, sums: &mut Vec<f64>) {
    let (whole, rest) = scores.as_chunks::<BLOCK>();
    let last = padded(rest);
    let all = whole.iter().chain(std::iter::once(&last));
    let mut weights = [0.0; BLOCK];
    for (block, (scores, &largest)) in all.zip(blocks).enumerate() {
        if largest < cut.least {
            sums.push(0.0);
            continue;
        }
        let start = block * BLOCK;
        // Behind the last of the least ones these are too small.
        let least = match start > cut.last {
            true => cut.least.next_up(),
            false => cut.least,
        };
        weigher.weigh(scores, &mut weights);
        let mut kept = at_least(least, scores, &weights);
        if let Some(after) = cut.last.saturating_add(1).checked_sub(start) {
            for (weight, &score) in kept.iter_mut().zip(scores).skip(after) {
                *weight = if score > cut.least { *weight } else { 0.0 };
            }
        }
        sums.push(sum(&kept));
    }
}

fn copy_allowed(scores: &[f32], words: &[u32], to: &mut [f32], blocks: &mut [f32]) -> Extent {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has what the function is compiled for.
        return unsafe { avx2::copy_allowed(scores, words, to, blocks) };
    }
    copy_allowed_one_by_one(scores, words, to, blocks)
}

/// Bits in a word of a mask.
const WORD: usize = u32::BITS as usize;

fn copy_allowed_one_by_one(scores: &[f32], words: &[u32], to: &mut [f32], blocks: &mut [f32]) -> Extent {
    let mut extent = Extent {
        largest: f32::NEG_INFINITY,
        any_nan: false,
    };
    let all = scores.chunks(BLOCK).zip(to.chunks_mut(BLOCK)).zip(blocks);
    for (at, ((scores, to), block)) in all.enumerate() {
        *block = f32::NEG_INFINITY;
        for (place, (&score, to)) in scores.iter().zip(to).enumerate() {
            let word = words.get((at * BLOCK + place) / WORD).copied().unwrap_or(0);
            let is_allowed = word >> (place % WORD) & 1 == 1;
            extent.any_nan |= score.is_nan();
            *to = if is_allowed { score } else { f32::NEG_INFINITY };
            *block = greater(*to, *block);
        }
        extent.largest = greater(*block, extent.largest);
    }
    extent
}

/// The same in vector instructions, which compilers do not find by themselves.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256, _CMP_GE_OQ, _CMP_UNORD_Q, _mm_cvtss_f32, _mm_max_ps, _mm_max_ss, _mm_movehdup_ps,
        _mm_movehl_ps, _mm256_add_ps, _mm256_and_ps, _mm256_and_si256, _mm256_castps_si256,
        _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_extractf128_ps, _mm256_loadu_ps,
        _mm256_max_ps, _mm256_min_ps, _mm256_movemask_ps, _mm256_or_ps, _mm256_or_si256, _mm256_set1_epi32,
        _mm256_set1_ps, _mm256_setr_epi32, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sllv_epi32,
        _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi32,
    };

    use super::{BLOCK, Cut, Extent, LANES, Weigher, across, finish, padded};

    #[target_feature(enable = "avx2")]
    pub fn mass_at_least(
        blocks: &[f32],
        scores: &[f32],
        weights: &[[f32; BLOCK]],
        least: f32,
    ) -> (f64, usize) {
        let border = _mm256_set1_ps(least);
        let (mut mass, mut count) = (0.0, 0);
        let (whole, rest) = scores.as_chunks::<BLOCK>();
        let last = padded(rest);
        let all = whole.iter().chain(std::iter::once(&last));
        for ((scores, weights), &largest) in all.zip(weights).zip(blocks) {
            if largest < least {
                continue;
            }
            let (mut sums, mut counts) = (_mm256_setzero_ps(), _mm256_setzero_si256());
            let weights = weights.as_chunks::<LANES>().0;
            for (scores, weights) in scores.as_chunks::<LANES>().0.iter().zip(weights) {
                // SAFETY: as many lanes as are loaded.
                let (scores, weights) = unsafe {
                    (
                        _mm256_loadu_ps(scores.as_ptr()),
                        _mm256_loadu_ps(weights.as_ptr()),
                    )
                };
                let reaches = _mm256_cmp_ps::<_CMP_GE_OQ>(scores, border);
                sums = _mm256_add_ps(sums, _mm256_and_ps(reaches, weights));
                // A lane that reaches it is -1.
                counts = _mm256_sub_epi32(counts, _mm256_castps_si256(reaches));
            }
            let mut lanes = [0.0; LANES];
            // SAFETY: as many lanes as are stored.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sums) };
            mass += across(lanes);
            let mut lanes = [0u32; LANES];
            // SAFETY: as many lanes as are stored.
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), counts) };
            count += lanes.iter().sum::<u32>() as usize;
        }
        (mass, count)
    }

    #[target_feature(enable = "avx2")]
    pub fn sums_above(blocks: &[f32], scores: &[f32], cut: Cut, weigher: Weigher, sums: &mut Vec<f64>) {
        super::sums_above(blocks, scores, cut, weigher, sums);
    }

    #[target_feature(enable = "avx2")]
    pub fn copy_allowed(scores: &[f32], words: &[u32], to: &mut [f32], blocks: &mut [f32]) -> Extent {
        const ROWS: usize = 4;
        let infinity = _mm256_set1_epi32(0x7F80_0000);
        let sign = _mm256_set1_epi32(i32::MIN);
        let first = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
        let mut nan = _mm256_setzero_ps();
        let mut overall = f32::NEG_INFINITY;
        let (whole, rest) = scores.as_chunks::<BLOCK>();
        let (whole_to, rest_to) = to.as_chunks_mut::<BLOCK>();
        let known = whole.len().min(blocks.len());
        let (whole_blocks, rest_blocks) = blocks.split_at_mut(known);
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        for (at, ((scores, to), block)) in whole.iter().zip(whole_to).zip(whole_blocks).enumerate() {
            let mut greatest = _mm256_set1_ps(f32::NEG_INFINITY);
            let rows = scores
                .as_chunks::<LANES>()
                .0
                .iter()
                .zip(to.as_chunks_mut::<LANES>().0);
            for (row, (scores, to)) in rows.enumerate() {
                let ruled_out = _mm256_set1_epi32(!word(2 * at + row / ROWS) as i32);
                // The bit of each lane becomes the sign of an infinity.
                let shift = _mm256_sub_epi32(first, _mm256_set1_epi32((row % ROWS * LANES) as i32));
                let signs = _mm256_and_si256(_mm256_sllv_epi32(ruled_out, shift), sign);
                let limit = _mm256_castsi256_ps(_mm256_or_si256(signs, infinity));
                // SAFETY: as many lanes as are loaded.
                let scores = unsafe { _mm256_loadu_ps(scores.as_ptr()) };
                nan = _mm256_or_ps(nan, _mm256_cmp_ps::<_CMP_UNORD_Q>(scores, scores));
                let left = _mm256_min_ps(limit, scores);
                // SAFETY: as many lanes as are stored.
                unsafe { _mm256_storeu_ps(to.as_mut_ptr(), left) };
                greatest = _mm256_max_ps(left, greatest);
            }
            *block = largest(greatest);
            overall = super::greater(*block, overall);
        }
        let rest_words = words.get(2 * whole.len()..).unwrap_or_default();
        let rest = super::copy_allowed_one_by_one(rest, rest_words, rest_to, rest_blocks);
        Extent {
            largest: super::greater(rest.largest, overall),
            any_nan: rest.any_nan || _mm256_movemask_ps(nan) != 0,
        }
    }

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

    /// Vector instructions find what the portable loops do, to the last bit.
    #[test]
    fn every_path_finds_the_same() {
        for size in [5usize, 64, 130, 1000] {
            let scores: Vec<f32> = (0..size as u32)
                .map(|at| (at.wrapping_mul(2_654_435_761) >> 20) as f32 / 300.0)
                .collect();
            let words: Vec<u32> = (0..size.div_ceil(WORD) as u32)
                .map(|at| 0x9E37_79B9 << (at % 7))
                .collect();
            let mut maxima = Maxima::default();
            let mut found = Vec::new();
            let extent = maxima.take_allowed(&scores, &words, &mut found);
            let (mut copy, mut blocks) = (vec![0.0; size], vec![0.0; size.div_ceil(BLOCK)]);
            assert_eq!(
                extent,
                copy_allowed_one_by_one(&scores, &words, &mut copy, &mut blocks)
            );
            assert_eq!((&found, &maxima.blocks), (&copy, &blocks));
            let expected =
                scores
                    .iter()
                    .enumerate()
                    .map(|(at, &score)| match words[at / WORD] >> (at % WORD) & 1 {
                        1 => score,
                        _ => f32::NEG_INFINITY,
                    });
            assert!(expected.eq(found));

            let extent = maxima.take(&scores);
            let weigher = Weigher::new(extent.largest, 0.7);
            let (mut sums, mut again, mut weights) = (Vec::new(), Vec::new(), Vec::new());
            weigher.weights(&scores, &mut sums, &mut weights);
            for token in [0, 3, size / 2, size - 1] {
                let least = scores[token];
                let (mass, count) = maxima.mass_at_least(&scores, &weights, least);
                let portable = mass_at_least(&maxima.blocks, &scores, &weights, least);
                assert_eq!((mass, count), portable);
                assert_eq!(count, scores.iter().filter(|score| **score >= least).count());
                for cut in [Cut::at(least), Cut::up_to(least, token), Cut::up_to(least, 0)] {
                    maxima.sums_above(&scores, cut, weigher, &mut sums);
                    again.clear();
                    super::sums_above(&maxima.blocks, &scores, cut, weigher, &mut again);
                    assert_eq!(sums, again);
                    let kept = scores
                        .iter()
                        .enumerate()
                        .filter(|&(at, &score)| cut.keeps(at, score));
                    let expected: f64 = kept.map(|(_, &score)| f64::from(weigher.weight(score))).sum();
                    assert!((sums.iter().sum::<f64>() - expected).abs() <= 1e-6 * expected);
                }
                let mut between = Vec::new();
                maxima.each_between(&scores, least, extent.largest, |at, _| between.push(at));
                let is_in = |at: &usize| scores[*at] >= least && scores[*at] < extent.largest;
                assert!((0..size).filter(is_in).eq(between));
            }
        }
        let mut maxima = Maxima::default();
        for at in 0..130 {
            let mut scores = vec![1.0; 130];
            scores[at] = f32::NAN;
            // Also where it is not allowed.
            assert!(maxima.take_allowed(&scores, &[0; 5], &mut Vec::new()).any_nan);
        }
    }
}
