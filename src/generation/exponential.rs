//! e^x by arithmetic alone, so that it is the same on every system and in vector instructions.

/// e^x for x <= 0, to 2^-50 of it, and no less than e^-700, in steps that a compiler can put into
/// vector instructions.
///
/// x = n ln 2 + r with a whole n and |r| <= ln(2) / 2, so that e^x = 2^n e^r, and e^r is its
/// Taylor polynomial.
#[inline(always)]
fn exp(x: f64) -> f64 {
    /// 1.5 * 2^52: what is added to it is rounded to a whole number, which is then in the low bits.
    const WHOLE: f64 = 6_755_399_441_055_744.0;
    /// ln 2 in two parts, the first of so few bits that n times it is exact.
    const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
    /// 1 / 0!, 1 / 1!, ..., 1 / 12!
    const TERMS: [f64; 13] = {
        let mut terms = [1.0; 13];
        let mut at = 1;
        while at < 13 {
            terms[at] = terms[at - 1] / at as f64;
            at += 1;
        }
        terms
    };
    let x = if x > LEAST { x } else { LEAST };
    let shifted = x * std::f64::consts::LOG2_E + WHOLE;
    let n = shifted - WHOLE;
    let r = x - n * LN_2[0] - n * LN_2[1];
    // In pairs of pairs: one after the other, each term would wait for the one before.
    let (r2, r4) = (r * r, r * r * (r * r));
    let two = |at: usize| TERMS[at] + TERMS[at + 1] * r;
    let four = |at: usize| two(at) + two(at + 2) * r2;
    let polynomial = four(0) + four(4) * r4 + (four(8) + TERMS[12] * r4) * (r4 * r4);
    // n + 1023 in the bits of the exponent.
    let power = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52));
    polynomial * power
}

const LEAST: f64 = -700.0;

/// e^x for x <= 0, and 0 where that is less than e^-700: a probability that is none.
#[inline(always)]
pub(super) fn exp_or_zero(x: f64) -> f64 {
    let power = exp(x);
    if x > LEAST { power } else { 0.0 }
}

/// How many scores a sum is over before it is kept.
pub(super) const BLOCK: usize = 64;

/// Independent steps within a block, for the processor to take side by side.
pub(super) const LANES: usize = 8;

/// What scores weigh beside the largest of them, exp((score - largest) / T), in f32.
///
/// Logits have no more precision than that, and a whole vocabulary takes a quarter of the time that it
/// does in f64. A weight is right to 2^-20 of it where it is above 2^-16; below 2^-126 it is 0. Sums
/// of them are of f32 within a block of scores and of f64 over blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weigher {
    largest: f32,
    /// log2(e) / T.
    scale: f32,
}

impl Weigher {
    /// For scores no larger than this one, which is finite; `scale` is 1 / T.
    pub fn new(largest: f32, scale: f64) -> Self {
        // Neither infinite nor 0: times a difference of 0, or an infinite one, it would be NaN.
        let scale = (scale * std::f64::consts::LOG2_E) as f32;
        let scale = scale.clamp(f32::MIN_POSITIVE, f32::MAX);
        Weigher { largest, scale }
    }

    #[inline(always)]
    pub fn weight(self, score: f32) -> f32 {
        power_of_two((score - self.largest) * self.scale)
    }

    /// How far below the largest score one of this weight is: a number of at most 0.
    pub fn log(self, weight: f64) -> f64 {
        libm::log2(weight) / f64::from(self.scale)
    }

    #[inline(always)]
    pub fn weigh(self, scores: &[f32; BLOCK], weights: &mut [f32; BLOCK]) {
        for (weight, &score) in weights.iter_mut().zip(scores) {
            *weight = self.weight(score);
        }
    }

    /// The sum of all weights.
    pub fn total(self, scores: &[f32]) -> f64 {
        let mut total = 0.0;
        self.each_block(scores, |_, sum| total += sum);
        total
    }

    /// The sum of each block of weights.
    pub fn block_sums(self, scores: &[f32], sums: &mut Vec<f64>) {
        sums.clear();
        sums.reserve(scores.len().div_ceil(BLOCK));
        self.each_block(scores, |_, sum| sums.push(sum));
    }

    /// The same, and each of what is summed up, in whole blocks.
    pub fn weights(self, scores: &[f32], sums: &mut Vec<f64>, weights: &mut Vec<[f32; BLOCK]>) {
        let blocks = scores.len().div_ceil(BLOCK);
        sums.clear();
        sums.reserve(blocks);
        weights.clear();
        weights.reserve(blocks);
        self.each_block(scores, |block, sum| {
            sums.push(sum);
            weights.push(*block);
        });
    }

    fn each_block(self, scores: &[f32], visit: impl FnMut(&[f32; BLOCK], f64)) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has what the function is compiled for.
            unsafe { self.each_block_avx2(scores, visit) };
            return;
        }
        self.each_block_in_lanes(scores, visit);
    }

    /// The same operations, and so the same sums, in instructions that take all lanes at once.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn each_block_avx2(self, scores: &[f32], visit: impl FnMut(&[f32; BLOCK], f64)) {
        self.each_block_in_lanes(scores, visit);
    }

    #[inline(always)]
    fn each_block_in_lanes(self, scores: &[f32], mut visit: impl FnMut(&[f32; BLOCK], f64)) {
        let (whole, rest) = scores.as_chunks::<BLOCK>();
        let last = padded(rest);
        let last = (!rest.is_empty()).then_some(&last);
        let mut weights = [0.0; BLOCK];
        for scores in whole.iter().chain(last) {
            // A loop of its own, which is all that is worth wide instructions.
            self.weigh(scores, &mut weights);
            visit(&weights, sum(&weights));
        }
    }
}

/// 2^y for y <= 0: 2^n 2^r with a whole n and |r| <= 1/2, of which 2^r is a Taylor polynomial, to
/// 2^-22 of it.
#[inline(always)]
fn power_of_two(y: f32) -> f32 {
    /// 1.5 * 2^23: what is added to it is rounded to a whole number, which is then in the low bits.
    const WHOLE: f32 = 12_582_912.0;
    const LEAST: f32 = -126.0;
    /// ln(2)^k / k!
    const TERMS: [f32; 7] = {
        let mut terms = [1.0; 7];
        let (mut term, mut at) = (1.0, 1);
        while at < 7 {
            term = term * std::f64::consts::LN_2 / at as f64;
            terms[at] = term as f32;
            at += 1;
        }
        terms
    };
    let bounded = if y > LEAST { y } else { LEAST };
    let shifted = bounded + WHOLE;
    let r = bounded - (shifted - WHOLE);
    let r2 = r * r;
    let two = |at: usize| TERMS[at] + TERMS[at + 1] * r;
    let polynomial = two(0) + two(2) * r2 + (two(4) + TERMS[6] * r2) * (r2 * r2);
    // n + 127 in the bits of the exponent.
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    let product = polynomial * power;
    if y > LEAST { product } else { 0.0 }
}

/// A last block of scores, with those that are missing of no weight.
pub(super) fn padded(scores: &[f32]) -> [f32; BLOCK] {
    let mut block = [f32::NEG_INFINITY; BLOCK];
    for (to, &score) in block.iter_mut().zip(scores) {
        *to = score;
    }
    block
}

/// The weights of scores of at least `least`, and 0 for the others.
#[inline(always)]
pub(super) fn at_least(least: f32, scores: &[f32; BLOCK], weights: &[f32; BLOCK]) -> [f32; BLOCK] {
    let mut kept = *weights;
    for (weight, &score) in kept.iter_mut().zip(scores) {
        *weight = if score >= least { *weight } else { 0.0 };
    }
    kept
}

/// The sum of a block of weights.
#[inline(always)]
pub(super) fn sum(weights: &[f32; BLOCK]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (whole, _) = weights.as_chunks::<LANES>();
    for weights in whole {
        for (sum, weight) in lanes.iter_mut().zip(weights) {
            *sum += weight;
        }
    }
    across(lanes)
}

/// The sum of lanes, in halves: one after the other, each would wait for the one before.
#[inline(always)]
pub(super) fn across([a, b, c, d, e, f, g, h]: [f32; LANES]) -> f64 {
    f64::from(((a + e) + (c + g)) + ((b + f) + (d + h)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_those_of_the_standard_library() {
        for step in 0..70_000 {
            let x = -f64::from(step) / 100.0;
            let (found, expected) = (exp(x), x.exp());
            assert!((found - expected).abs() <= expected * 2f64.powi(-50), "{x}");
        }
        assert!(exp(f64::NEG_INFINITY) < 1e-300);
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp_or_zero(f64::NEG_INFINITY), 0.0);
    }

    #[test]
    fn weights_are_those_of_the_standard_library() {
        for scale in [0.25, 1.0, 2.0] {
            let weigher = Weigher::new(3.0, scale);
            for step in 0..40_000u16 {
                let score = 3.0 - f32::from(step) / 1000.0;
                let x = (f64::from(score) - 3.0) * scale;
                let found = f64::from(weigher.weight(score));
                // Of the product, and of the polynomial.
                let error = 2f64.powi(-23) * -x + 2f64.powi(-22);
                assert!((found - x.exp()).abs() <= error * x.exp(), "{score} {scale}");
            }
            assert_eq!(weigher.weight(3.0), 1.0);
            assert_eq!(weigher.weight(f32::NEG_INFINITY), 0.0);
            assert_eq!(weigher.weight(3.0 - 400.0), 0.0);
        }
        for scale in [0.0, f64::INFINITY] {
            let weigher = Weigher::new(3.0, scale);
            assert_eq!(weigher.weight(3.0), 1.0);
            assert_eq!(weigher.weight(f32::NEG_INFINITY), 0.0);
        }
    }

    #[test]
    fn sums_of_blocks_are_those_of_their_scores_on_every_path() {
        let scores: Vec<f32> = (0..200).map(|at| (at * 37 % 101) as f32 / 10.0).collect();
        let weigher = Weigher::new(10.0, 0.5);
        let (mut sums, mut again, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        weigher.block_sums(&scores, &mut sums);
        assert_eq!(sums.len(), 4);
        for (found, scores) in sums.iter().zip(scores.chunks(BLOCK)) {
            let expected: f64 = scores.iter().map(|&x| ((f64::from(x) - 10.0) / 2.0).exp()).sum();
            assert!((found - expected).abs() < 1e-6 * expected);
        }
        weigher.weights(&scores, &mut again, &mut weights);
        assert_eq!(sums, again);
        let each: Vec<u32> = scores
            .iter()
            .map(|&score| weigher.weight(score).to_bits())
            .collect();
        let all = weights.as_flattened().iter().map(|weight| weight.to_bits());
        assert!(all.take(200).eq(each));
        again.clear();
        weigher.each_block_in_lanes(&scores, |_, sum| again.push(sum));
        assert_eq!(sums, again);
        assert_eq!(weigher.total(&scores), sums.iter().sum::<f64>());
    }
}
