//! The random stream of sampling: a pure function of a seed, a place in a sequence and a purpose.
//!
//! Nothing of it depends on what was drawn before, so that a run that is rewound, forked, saved or
//! ahead of itself by speculation draws what it would have drawn alone.
//!
//! ```text
//! (a, b, _, _) = Philox4x32-10(counter, key)        see noise.rs
//! key     = (low word of the seed, high word of the seed)
//! counter = (low word of the place, high word of the place, purpose, 0x53414D50)
//! u       = (⌊a / 2⁵⌋ · 2²⁶ + ⌊b / 2⁶⌋) / 2⁵³        in [0, 1)
//! ```
//!
//! The place is how many tokens there are before the one that is chosen.

use super::noise::{high, low, philox4x32};

/// "SAMP": what tells these counters from those of other streams of the same seed.
const STREAM: u32 = 0x5341_4D50;

/// What a number is drawn for, so that two decisions about one token do not share theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Which token is chosen.
    Token = 0,
    /// Whether XTC acts on it.
    Xtc = 1,
}

/// A number from 0 to 1, 1 left out, of 53 bits.
pub fn uniform(seed: u64, place: u64, purpose: Purpose) -> f64 {
    let counter = [low(place), high(place), purpose as u32, STREAM];
    let [a, b, ..] = philox4x32(counter, [low(seed), high(seed)]);
    (f64::from(a >> 5) * 67_108_864.0 + f64::from(b >> 6)) / 9_007_199_254_740_992.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_all_that_names_them() {
        let one = uniform(7, 3, Purpose::Token);
        assert_eq!(one, uniform(7, 3, Purpose::Token));
        let others = [
            uniform(8, 3, Purpose::Token),
            uniform(7 << 32, 3, Purpose::Token),
            uniform(7, 4, Purpose::Token),
            uniform(7, 3 << 32, Purpose::Token),
            uniform(7, 3, Purpose::Xtc),
        ];
        for other in others {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn numbers_are_uniform() {
        const COUNT: usize = 100_000;
        let mut bins = [0f64; 100];
        for place in 0..COUNT {
            let number = uniform(1, place as u64, Purpose::Token);
            bins[(number * 100.0) as usize] += 1.0;
        }
        let expected = COUNT as f64 / 100.0;
        let chi_square: f64 = bins.iter().map(|bin| (bin - expected).powi(2) / expected).sum();
        // 99 degrees of freedom, p = 0.001.
        assert!(chi_square < 148.2, "{chi_square}");
    }
}
