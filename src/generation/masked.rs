//! Masked diffusion over tokens: which of them a step unmasks, and what they become.
//!
//! Nie et al., "Large Language Diffusion Models" (LLaDA, arXiv:2502.09992, 2025), appendix A and
//! the code published with it. The tokens to be made are all the mask at first. A model gives
//! logits l for every position; a step chooses a token for each that is masked still, and
//! unmasks those that it is surest of:
//!
//! ```text
//! token(p)      = argmax over v of l[p, v] - temperature · ln(-ln u[p, v])
//! confidence(p) = softmax(l[p])[token(p)]     remasking low_confidence
//!               = u[p]                        remasking random
//! ```
//!
//! with u uniform in (0, 1): the argmax of exp(l) / (-ln u)^temperature, which is a draw from the
//! softmax of l / temperature (Gumbel's trick), in float64, since low precision sharpens the
//! distribution (Zheng et al., arXiv:2409.02908). Among equals the first token and the first
//! position are taken. The mask is no token to be chosen, so that no position stays it.
//!
//! With a block length the masked positions are made block by block, from the first on, and the
//! steps are shared out among the blocks; the positions of a block are shared out among its
//! steps. A share of n in k parts is ⌊n / k⌋, and one more for the first n mod k parts.

use super::Noise;

/// How the masked positions of a sequence become tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MaskedDiffusion {
    pub mask_token_id: i32,
    /// 0: the most probable token.
    pub temperature: f64,
    /// At least 1; `None` is one block.
    pub block_length: Option<usize>,
    pub remasking: Remasking,
}

/// Which positions a step unmasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remasking {
    LowConfidence,
    Random,
}

/// The positions of one sequence that a step may unmask, and how many of them it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn<'m> {
    pub positions: &'m [usize],
    pub count: usize,
}

impl MaskedDiffusion {
    /// The blocks that so many masked positions are made in.
    pub fn blocks(&self, masked: usize) -> usize {
        masked.div_ceil(self.block_length(masked))
    }

    fn block_length(&self, masked: usize) -> usize {
        self.block_length.unwrap_or(masked).max(1)
    }

    /// What step `step` of `steps` has to do, of positions that are all masked before the first.
    pub fn turn<'m>(&self, masked: &'m [usize], step: usize, steps: usize) -> Turn<'m> {
        let blocks = self.blocks(masked.len());
        let mut first = 0;
        for (index, positions) in masked.chunks(self.block_length(masked.len())).enumerate() {
            let own = share(steps, blocks, index);
            if step < first + own {
                let count = share(positions.len(), own, step - first);
                return Turn { positions, count };
            }
            first += own;
        }
        Turn {
            positions: &[],
            count: 0,
        }
    }

    /// The token for a position of which these are the logits, and how sure it is: `gumbel` is
    /// the noise of its first element, `random` what stands for confidence where that is random.
    pub fn choose(&self, logits: &[f32], gumbel: impl Iterator<Item = f64>, random: f64) -> Option<Choice> {
        let mask = usize::try_from(self.mask_token_id).ok();
        let mut best: Option<(usize, f64)> = None;
        let mut noise = gumbel;
        for (token, &logit) in logits.iter().enumerate() {
            let noise = match self.temperature == 0.0 {
                true => 0.0,
                false => self.temperature * gumbel_of(noise.next().unwrap_or(0.5)),
            };
            let score = f64::from(logit) + noise;
            if Some(token) != mask && best.is_none_or(|(_, best)| score > best) {
                best = Some((token, score));
            }
        }
        let (token, _) = best?;
        let confidence = match self.remasking {
            Remasking::LowConfidence => f64::from(super::log_probability(logits, *logits.get(token)?)).exp(),
            Remasking::Random => random,
        };
        Some(Choice { token, confidence })
    }
}

/// A token, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub token: usize,
    pub confidence: f64,
}

/// -ln(-ln u): a Gumbel deviate of a uniform one.
fn gumbel_of(uniform: f64) -> f64 {
    -libm::log(-libm::log(uniform))
}

/// The `index`-th of `parts` whole numbers that make `total`, the larger ones first.
fn share(total: usize, parts: usize, index: usize) -> usize {
    let (each, rest) = (total.checked_div(parts), total.checked_rem(parts));
    each.unwrap_or(0) + usize::from(rest.is_some_and(|rest| index < rest))
}

/// The uniform numbers of a step: for the tokens of all positions one after the other, and one
/// for each position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draws {
    pub seed: u64,
    pub stream: u32,
    pub draw: u32,
}

impl Draws {
    const OF_POSITIONS: u32 = 1 << 31;

    pub fn of_tokens(self, position: usize, tokens: usize) -> impl Iterator<Item = f64> {
        let Draws { seed, stream, draw } = self;
        let first = (position as u64).saturating_mul(tokens as u64);
        Noise { seed, stream, draw }.uniforms_from(first)
    }

    pub fn of_position(self, position: usize) -> f64 {
        let Draws { seed, stream, draw } = self;
        let stream = stream | Self::OF_POSITIONS;
        let mut values = Noise { seed, stream, draw }.uniforms_from(position as u64);
        values.next().unwrap_or(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: MaskedDiffusion = MaskedDiffusion {
        mask_token_id: 0,
        temperature: 0.0,
        block_length: Some(4),
        remasking: Remasking::LowConfidence,
    };

    #[test]
    fn every_masked_position_has_its_turn() {
        let masked: Vec<usize> = (10..20).collect();
        // Blocks of 4, 4 and 2 positions, in 3, 2 and 2 steps.
        let turns: Vec<_> = (0..8)
            .map(|step| {
                let turn = GREEDY.turn(&masked, step, 7);
                (turn.positions.first().copied(), turn.count)
            })
            .collect();
        let expected = [
            (Some(10), 2),
            (Some(10), 1),
            (Some(10), 1),
            (Some(14), 2),
            (Some(14), 2),
            (Some(18), 1),
            (Some(18), 1),
            (None, 0),
        ];
        assert_eq!(turns, expected);
        for (count, block_length, steps) in [(7, None, 3), (7, Some(3), 5), (1, Some(9), 4), (0, None, 2)] {
            let plan = MaskedDiffusion {
                block_length,
                ..GREEDY
            };
            let masked: Vec<usize> = (0..count).collect();
            let total: usize = (0..steps).map(|step| plan.turn(&masked, step, steps).count).sum();
            assert_eq!(total, count);
        }
    }

    #[test]
    fn the_mask_is_never_chosen_and_ties_go_to_the_first() {
        let none = || std::iter::empty();
        let choice = GREEDY.choose(&[9.0, 1.0, 3.0, 3.0], none(), 0.5).unwrap();
        assert_eq!(choice.token, 2);
        let shares = [9f64, 1.0, 3.0, 3.0].map(f64::exp);
        let expected = shares[2] / shares.iter().sum::<f64>();
        assert!((choice.confidence - expected).abs() < 1e-7);
        let random = MaskedDiffusion {
            remasking: Remasking::Random,
            ..GREEDY
        };
        assert_eq!(random.choose(&[9.0, 1.0], none(), 0.25).unwrap().confidence, 0.25);
        assert_eq!(GREEDY.choose(&[9.0], none(), 0.5), None);
    }

    /// Tokens come as often as the softmax says.
    #[test]
    fn gumbel_noise_draws_from_the_softmax() {
        const COUNT: usize = 20_000;
        let warm = MaskedDiffusion {
            temperature: 1.0,
            ..GREEDY
        };
        let draws = Draws {
            seed: 3,
            stream: 0,
            draw: 1,
        };
        // Of three tokens beside the mask: 1/7, 2/7, 4/7.
        let logits = [5.0, 0.0, 2f32.ln(), 4f32.ln()];
        let mut counts = [0usize; 4];
        for position in 0..COUNT {
            let choice = warm.choose(&logits, draws.of_tokens(position, 4), 0.0).unwrap();
            counts[choice.token] += 1;
        }
        for (count, expected) in counts.into_iter().zip([0.0, 1.0, 2.0, 4.0]) {
            let (found, expected) = (count as f64 / COUNT as f64, expected / 7.0);
            // Five standard errors.
            assert!(
                (found - expected).abs() < 5.0 * 0.5 / (COUNT as f64).sqrt(),
                "{found} {expected}"
            );
        }
    }
}
