//! Gaussian noise that depends on a seed and on nothing else: not on the system, the number of
//! threads, or what was drawn before.
//!
//! Bits come from Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
//! as 1, 2, 3", SC 2011), a function from a key of 2 words and a counter of 4 to 4 words. One
//! round, of ten, with (hi, lo) the halves of a 64-bit product and the key raised by
//! (0x9E3779B9, 0xBB67AE85) after each:
//!
//! ```text
//! (hi0, lo0) = 0xD2511F53 · c0,  (hi1, lo1) = 0xCD9E8D57 · c2
//! c ← (hi1 ⊕ c1 ⊕ k0, lo1, hi0 ⊕ c3 ⊕ k1, lo0)
//! ```
//!
//! The key is the seed, low word first. The counter is (low word of ⌊i / 4⌋, high word of it,
//! stream, draw) for element i of a tensor: the stream says which tensor of several, the draw
//! which of a sequence. Words become normals in pairs, by Box and Muller ("A note on the
//! generation of random normal deviates", 1958): elements 4j and 4j + 1 of words a and b,
//! 4j + 2 and 4j + 3 of the other two:
//!
//! ```text
//! u = (a + 1) / 2³²,  v = b / 2³²,  r = √(-2 ln u)
//! z₀ = r cos 2πv,  z₁ = r sin 2πv
//! ```
//!
//! in float64, with functions of the `libm` crate, which are the same code on every system,
//! rounded to float32 at the end.

/// One tensor's worth of noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noise {
    pub seed: u64,
    pub stream: u32,
    pub draw: u32,
}

impl Noise {
    /// The elements in order, without end.
    pub fn values(self) -> impl Iterator<Item = f32> {
        (0u64..).flat_map(move |block| {
            let [a, b, c, d] = philox4x32(
                [low(block), high(block), self.stream, self.draw],
                [low(self.seed), high(self.seed)],
            );
            let [first, second] = box_muller(a, b);
            let [third, fourth] = box_muller(c, d);
            [first, second, third, fourth]
        })
    }
}

impl Noise {
    /// Numbers from 0 to 1, both left out, element `first` and those behind it, without end: (a +
    /// 1/2) / 2³² for the element's word a.
    pub fn uniforms_from(self, first: u64) -> impl Iterator<Item = f64> {
        let skipped = (first % 4) as usize;
        let words = (first / 4..).flat_map(move |block| {
            philox4x32(
                [low(block), high(block), self.stream, self.draw],
                [low(self.seed), high(self.seed)],
            )
        });
        words
            .skip(skipped)
            .map(|word| (f64::from(word) + 0.5) / 4_294_967_296.0)
    }
}

pub(super) fn low(value: u64) -> u32 {
    value as u32
}

pub(super) fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

pub(super) fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const ROUNDS: usize = 10;
    for _ in 0..ROUNDS {
        let [c0, c1, c2, c3] = counter;
        let first = 0xD251_1F53 * u64::from(c0);
        let second = 0xCD9E_8D57 * u64::from(c2);
        counter = [
            high(second) ^ c1 ^ key[0],
            low(second),
            high(first) ^ c3 ^ key[1],
            low(first),
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

fn box_muller(a: u32, b: u32) -> [f32; 2] {
    const WORDS: f64 = 4_294_967_296.0;
    let radius = (-2.0 * libm::log((f64::from(a) + 1.0) / WORDS)).sqrt();
    let (sin, cos) = libm::sincos(std::f64::consts::TAU * (f64::from(b) / WORDS));
    [(radius * cos) as f32, (radius * sin) as f32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the authors' library, Random123.
    #[test]
    fn philox_gives_its_known_answers() {
        assert_eq!(
            philox4x32([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn noise_is_normal_and_depends_on_all_that_names_it() {
        const COUNT: usize = 200_000;
        let noise = Noise {
            seed: 7,
            stream: 0,
            draw: 0,
        };
        let values: Vec<f64> = noise.values().take(COUNT).map(f64::from).collect();
        let moment = |power: i32| values.iter().map(|value| value.powi(power)).sum::<f64>() / COUNT as f64;
        // Five standard errors of each moment of a normal: sqrt(1, 2, 15, 96) / sqrt(COUNT).
        let error = 5.0 / (COUNT as f64).sqrt();
        assert!(moment(1).abs() < error, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 1.5 * error, "{}", moment(2));
        assert!(moment(3).abs() < 4.0 * error, "{}", moment(3));
        assert!((moment(4) - 3.0).abs() < 10.0 * error, "{}", moment(4));
        let first = |noise: Noise| noise.values().take(8).collect::<Vec<_>>();
        let others = [
            Noise {
                seed: 7 << 32,
                ..noise
            },
            Noise { stream: 1, ..noise },
            Noise { draw: 1, ..noise },
        ];
        for other in others {
            assert_ne!(first(noise), first(other));
        }
        assert_eq!(first(noise), first(noise));
    }
}
