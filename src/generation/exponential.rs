//! e^x by arithmetic alone, so that it is the same on every system and in vector instructions.

/// e^x for x <= 0, to 2^-50 of it, and no less than e^-700, in steps that a compiler can put into
/// vector instructions.
///
/// x = n ln 2 + r with a whole n and |r| <= ln(2) / 2, so that e^x = 2^n e^r, and e^r is its
/// Taylor polynomial.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
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

/// Independent sums within a block, for the processor to take side by side.
const LANES: usize = 4;

/// exp((score - largest) / T) summed over each block of scores, in f64; `scale` is 1 / T.
pub(super) fn block_sums(scores: &[f32], largest: f32, scale: f64, sums: &mut Vec<f64>) {
    sums.clear();
    sums.reserve(scores.len().div_ceil(BLOCK));
    each_block(scores, largest, scale, |_, sum| sums.push(sum));
}

/// The same, and each of what is summed up.
pub(super) fn weights(scores: &[f32], largest: f32, scale: f64, sums: &mut Vec<f64>, weights: &mut Vec<f64>) {
    sums.clear();
    sums.reserve(scores.len().div_ceil(BLOCK));
    weights.clear();
    weights.reserve(scores.len());
    each_block(scores, largest, scale, |block, sum| {
        sums.push(sum);
        weights.extend_from_slice(block);
    });
}

fn each_block(scores: &[f32], largest: f32, scale: f64, visit: impl FnMut(&[f64], f64)) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has what the function is compiled for.
        unsafe { each_block_avx2(scores, largest, scale, visit) };
        return;
    }
    each_block_in_lanes(scores, largest, scale, visit);
}

/// The same operations, and so the same sums, in instructions that take all lanes at once.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn each_block_avx2(scores: &[f32], largest: f32, scale: f64, visit: impl FnMut(&[f64], f64)) {
    each_block_in_lanes(scores, largest, scale, visit);
}

#[inline(always)]
fn each_block_in_lanes(scores: &[f32], largest: f32, scale: f64, mut visit: impl FnMut(&[f64], f64)) {
    let largest = f64::from(largest);
    let mut weights = [0.0; BLOCK];
    for scores in scores.chunks(BLOCK) {
        let weights = &mut weights[..scores.len()];
        // A loop of its own, which is all that is worth wide instructions.
        for (weight, &score) in weights.iter_mut().zip(scores) {
            *weight = exp_or_zero((f64::from(score) - largest) * scale);
        }
        let mut lanes = [0.0; LANES];
        let (whole, rest) = weights.as_chunks::<LANES>();
        for weights in whole {
            for (sum, weight) in lanes.iter_mut().zip(weights) {
                *sum += weight;
            }
        }
        for (sum, weight) in lanes.iter_mut().zip(rest) {
            *sum += weight;
        }
        visit(weights, lanes[0] + lanes[1] + (lanes[2] + lanes[3]));
    }
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
    fn sums_of_blocks_are_those_of_their_scores() {
        let scores: Vec<f32> = (0..200).map(|at| (at * 37 % 101) as f32 / 10.0).collect();
        let mut sums = Vec::new();
        block_sums(&scores, 10.0, 0.5, &mut sums);
        assert_eq!(sums.len(), 4);
        for (found, scores) in sums.iter().zip(scores.chunks(BLOCK)) {
            let expected: f64 = scores.iter().map(|&x| ((f64::from(x) - 10.0) / 2.0).exp()).sum();
            assert!((found - expected).abs() < 1e-12 * expected);
        }
    }
}
