/// Which tokens may come next: a bit for each token id, in words of 32, the low bit first.
///
/// What a constraint, such as a grammar, hands to [`Sampler::choose`](super::Sampler::choose).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u32>,
    len: usize,
}

const BITS: usize = u32::BITS as usize;

impl TokenMask {
    /// None of `len` tokens.
    pub fn none(len: usize) -> Self {
        TokenMask {
            words: vec![0; len.div_ceil(BITS)],
            len,
        }
    }

    /// All of `len` tokens.
    pub fn all(len: usize) -> Self {
        let mut mask = TokenMask {
            words: vec![u32::MAX; len.div_ceil(BITS)],
            len,
        };
        mask.trim();
        mask
    }

    /// These words for `len` tokens: words that are missing allow none, and what is behind the last
    /// token does not count.
    pub fn from_words(words: &[u32], len: usize) -> Self {
        let mut mask = TokenMask::none(len);
        mask.set_words(words);
        mask
    }

    /// Takes other words for as many tokens, without new memory.
    pub fn set_words(&mut self, words: &[u32]) {
        for (at, word) in self.words.iter_mut().enumerate() {
            *word = words.get(at).copied().unwrap_or(0);
        }
        self.trim();
    }

    fn trim(&mut self) {
        let rest = self.len % BITS;
        if rest != 0
            && let Some(last) = self.words.last_mut()
        {
            *last &= (1 << rest) - 1;
        }
    }

    /// How many tokens it is for. Tokens beyond are not allowed.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Allows a token; one that the mask is not for is left alone.
    pub fn allow(&mut self, token: usize) {
        if token < self.len
            && let Some(word) = self.words.get_mut(token / BITS)
        {
            *word |= 1 << (token % BITS);
        }
    }

    pub fn forbid(&mut self, token: usize) {
        if let Some(word) = self.words.get_mut(token / BITS) {
            *word &= !(1 << (token % BITS));
        }
    }

    pub fn allows(&self, token: usize) -> bool {
        let word = self.words.get(token / BITS).copied().unwrap_or(0);
        word >> (token % BITS) & 1 == 1
    }

    /// How many tokens are allowed.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Makes the scores of all tokens that are not allowed -inf.
    pub(super) fn apply(&self, scores: &mut [f32]) {
        let (known, beyond) = scores.split_at_mut(scores.len().min(self.len));
        beyond.fill(f32::NEG_INFINITY);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has what the function is compiled for.
            unsafe { apply_avx2(&self.words, known) };
            return;
        }
        apply(&self.words, known);
    }
}

/// The same in wider instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn apply_avx2(words: &[u32], scores: &mut [f32]) {
    apply(words, scores);
}

#[inline(always)]
fn apply(words: &[u32], scores: &mut [f32]) {
    // The smaller of a score and an infinity, of which the bit is the sign. A choice between two
    // values becomes a store that leaves places out, which takes many times as long.
    let limit = |word: u32, bit: u32| f32::from_bits(0x7F80_0000 | ((!word >> bit) << 31));
    let smaller = |a: f32, b: f32| if b < a { b } else { a };
    let (whole, rest) = scores.as_chunks_mut::<BITS>();
    for (scores, &word) in whole.iter_mut().zip(words) {
        for (score, bit) in scores.iter_mut().zip(0..) {
            *score = smaller(*score, limit(word, bit));
        }
    }
    let last = words.get(whole.len()).copied().unwrap_or(0);
    for (score, bit) in rest.iter_mut().zip(0..) {
        *score = smaller(*score, limit(last, bit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_tokens_and_what_is_beyond_is_not_allowed() {
        let mut mask = TokenMask::none(70);
        for token in [0, 31, 32, 69, 70, 400] {
            mask.allow(token);
        }
        assert_eq!(mask.words(), [1 << 31 | 1, 1, 1 << 5]);
        assert_eq!(mask.count(), 4);
        assert!(mask.allows(69) && !mask.allows(70) && !mask.allows(1) && !mask.allows(4000));
        mask.forbid(0);
        assert!(!mask.allows(0));
        let mut scores = vec![1.0; 100];
        mask.apply(&mut scores);
        let left: Vec<usize> = (0..100).filter(|&token| scores[token] == 1.0).collect();
        assert_eq!(left, [31, 32, 69]);
        assert!(scores.iter().filter(|score| **score == f32::NEG_INFINITY).count() == 97);
        assert_eq!(TokenMask::all(70).count(), 70);
        assert_eq!(TokenMask::from_words(&[5, u32::MAX], 33), {
            let mut mask = TokenMask::none(33);
            for token in [0, 2, 32] {
                mask.allow(token);
            }
            mask
        });
    }
}
