//! Which of the tokens that can be drawn are left: each function one sampler, by its published
//! definition, over the tokens that the one before has left.
//!
//! Probabilities are those among the tokens that are left: p = weight / sum of weights. Sums are in
//! float64 and in a fixed order, so that they are the same everywhere: in that of the tokens' ids,
//! or from the most probable on, among equals the lowest id first.

/// A token that can be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub token: u32,
    /// The logarithm of `weight`.
    pub log_weight: f64,
    pub weight: f64,
}

/// Tokens that can be drawn, in the order of their ids.
pub(super) type Candidates = Vec<Candidate>;

/// Memory for the functions here.
#[derive(Default)]
pub(super) struct Scratch {
    order: Candidates,
}

pub(super) fn total(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|candidate| candidate.weight).sum()
}

fn largest(candidates: &[Candidate]) -> f64 {
    let weights = candidates.iter().map(|candidate| candidate.weight);
    weights.fold(0.0, f64::max)
}

/// The most probable first, among equals the lowest id.
pub(super) fn descend(candidates: &mut [Candidate]) {
    candidates.sort_unstable_by(|a, b| {
        let order = b.log_weight.total_cmp(&a.log_weight);
        order.then(a.token.cmp(&b.token))
    });
}

pub(super) fn ascend(candidates: &mut [Candidate]) {
    candidates.sort_unstable_by_key(|candidate| candidate.token);
}

impl Scratch {
    fn descending(&mut self, candidates: &[Candidate]) -> &mut Candidates {
        self.order.clear();
        self.order.extend_from_slice(candidates);
        descend(&mut self.order);
        &mut self.order
    }

    /// The most probable tokens that together have a probability of `mass`: each before which the
    /// others have less than that.
    ///
    /// Holtzman et al., "The Curious Case of Neural Text Degeneration" (arXiv:1904.09751), 3.1;
    /// transformers: `TopPLogitsWarper`. The token that crosses `mass` is kept, and so one always
    /// is. Of equally probable tokens at the border the lowest ids are kept.
    pub fn top_p(&mut self, candidates: &mut Candidates, mass: f64) {
        let needed = mass * total(candidates);
        let order = self.descending(candidates);
        let kept = nucleus(order, needed).unwrap_or(order.len());
        order.truncate(kept);
        std::mem::swap(candidates, order);
        ascend(candidates);
    }

    /// The tokens whose surprise -ln p is closest to what is expected of it, the entropy, that
    /// together have a probability of at least `mass`; all that are as close as the last of them.
    ///
    /// Meister et al., "Locally Typical Sampling" (arXiv:2202.00666); transformers:
    /// `TypicalLogitsWarper`.
    pub fn typical(&mut self, candidates: &mut Candidates, mass: f64) {
        let sum = total(candidates);
        let log_sum = libm::log(sum);
        let surprise = |candidate: &Candidate| log_sum - candidate.log_weight;
        let terms = candidates
            .iter()
            .map(|candidate| candidate.weight / sum * surprise(candidate));
        let entropy: f64 = terms.sum();
        let distance = |candidate: &Candidate| (surprise(candidate) - entropy).abs();
        self.order.clear();
        self.order.extend_from_slice(candidates);
        self.order.sort_unstable_by(|a, b| {
            let order = distance(a).total_cmp(&distance(b));
            order.then(a.token.cmp(&b.token))
        });
        let last = nucleus(&self.order, mass * sum).unwrap_or(self.order.len());
        if let Some(farthest) = last.checked_sub(1).and_then(|last| self.order.get(last)) {
            let farthest = distance(farthest);
            candidates.retain(|candidate| distance(candidate) <= farthest);
        }
    }

    /// The first ⌊k⌋ tokens, at least one, where k = (ε 2^μ / (1 - N^-ε))^(1/s) and ε = s - 1, with
    /// the exponent s of Zipf's law as it is estimated of the 100 most probable tokens.
    ///
    /// Basu et al., "Mirostat" (arXiv:2007.14966), algorithm 1 and equation 30. N is the number of
    /// tokens of the vocabulary.
    pub fn mirostat_1(&mut self, candidates: &mut Candidates, mu: f64, vocabulary: usize) {
        let order = self.descending(candidates);
        let k = mirostat_k(order, mu, vocabulary);
        order.truncate(k);
        std::mem::swap(candidates, order);
        ascend(candidates);
    }
}

/// How many of these it takes for their weights to sum up to `needed`, at least one; `None` if all
/// do not.
pub(super) fn nucleus(order: &[Candidate], needed: f64) -> Option<usize> {
    let mut sum = 0.0;
    let reached = order.iter().position(|candidate| {
        sum += candidate.weight;
        sum >= needed
    });
    reached.map(|last| last + 1)
}

/// Tokens of a probability of at least `share` of the largest one.
///
/// Nguyen et al., "Turning Up the Heat: Min-p Sampling" (arXiv:2407.01082); transformers:
/// `MinPLogitsWarper`.
pub(super) fn min_p(candidates: &mut Candidates, share: f64) {
    let least = share * largest(candidates);
    candidates.retain(|candidate| candidate.weight >= least);
}

/// Tokens of a probability of at least `share` of the square of the largest one.
///
/// BlinkDL's top-a, as KoboldAI and text-generation-webui (`TopALogitsWarper`) have it.
pub(super) fn top_a(candidates: &mut Candidates, share: f64) {
    let sum = total(candidates);
    let most = largest(candidates) / sum;
    let least = share * most * most;
    candidates.retain(|candidate| candidate.weight / sum >= least);
}

/// "Exclude top choices": of the tokens of a probability of at least `threshold` the least probable
/// one is left, of equals that with the highest id. Whether this is done at all is drawn before.
///
/// p-e-w, text-generation-webui pull request 6335. That does nothing where it would rule out an
/// end token or a new line; as in llama.cpp, no token is special here.
pub(super) fn xtc(candidates: &mut Candidates, threshold: f64) {
    // A token that cannot be drawn is no choice.
    let least = (threshold * total(candidates)).max(f64::MIN_POSITIVE);
    let top = |candidate: &Candidate| candidate.weight >= least;
    let tops = candidates.iter().filter(|candidate| top(candidate));
    let kept = tops.min_by(|a, b| {
        let order = a.log_weight.total_cmp(&b.log_weight);
        order.then(b.token.cmp(&a.token))
    });
    if let Some(kept) = kept.map(|kept| kept.token) {
        candidates.retain(|candidate| !top(candidate) || candidate.token == kept);
    }
}

/// Tokens whose surprise -log₂ p is at most μ; the most probable one if none is.
///
/// Basu et al., "Mirostat" (arXiv:2007.14966), algorithm 2.
pub(super) fn mirostat_2(candidates: &mut Candidates, mu: f64) {
    let sum = total(candidates);
    let least = sum * libm::exp2(-mu);
    let most = candidates.iter().min_by(|a, b| {
        let order = b.log_weight.total_cmp(&a.log_weight);
        order.then(a.token.cmp(&b.token))
    });
    let most = most.map(|candidate| candidate.token);
    candidates.retain(|candidate| candidate.weight >= least || Some(candidate.token) == most);
}

fn mirostat_k(order: &[Candidate], mu: f64, vocabulary: usize) -> usize {
    /// Tokens that the exponent is estimated of.
    const ESTIMATED: usize = 100;
    let (mut products, mut squares) = (0.0, 0.0);
    for (at, pair) in order.windows(2).take(ESTIMATED - 1).enumerate() {
        if let [a, b] = pair {
            let t = libm::log((at as f64 + 2.0) / (at as f64 + 1.0));
            products += t * (a.log_weight - b.log_weight);
            squares += t * t;
        }
    }
    let s = products / squares;
    let epsilon = s - 1.0;
    let denominator = 1.0 - libm::pow(vocabulary as f64, -epsilon);
    let base = match epsilon == 0.0 {
        // The limit for a small ε.
        true => libm::exp2(mu) / libm::log(vocabulary as f64),
        false => epsilon * libm::exp2(mu) / denominator,
    };
    let k = libm::pow(base, 1.0 / s);
    // Of equally probable tokens s is 0 and k, the limit, as good as 0 or as infinite. A single token has no
    // exponent at all. `as` takes what is out of range to its border, and NaN to 0.
    (k as usize).clamp(1, order.len().max(1))
}
