/// A chosen token and how probable it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Its place among the logits.
    pub index: usize,
    /// `x[index] - ln(sum(exp(x)))`: the logarithm of its probability under softmax.
    pub logprob: f32,
}

/// Logits that hold a NaN, which orders with nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NanLogit {
    pub index: usize,
}

/// The largest logit; among equals the one with the lowest index. `None` without logits.
pub fn greedy(logits: &[f32]) -> Result<Option<Choice>, NanLogit> {
    let mut best: Option<(usize, f32)> = None;
    for (index, &logit) in logits.iter().enumerate() {
        if logit.is_nan() {
            return Err(NanLogit { index });
        }
        if best.is_none_or(|(_, largest)| logit > largest) {
            best = Some((index, logit));
        }
    }
    Ok(best.map(|(index, largest)| Choice {
        index,
        logprob: log_probability(logits, largest),
    }))
}

/// The logarithm of the probability of a token with this logit.
pub(crate) fn log_probability(logits: &[f32], logit: f32) -> f32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if largest.is_infinite() {
        // All of the probability is on the infinite ones, or, if all are -inf, it is the
        // same for each.
        let share = logits.iter().filter(|&&other| other == largest).count();
        return if logit == largest {
            -(share as f32).ln()
        } else {
            f32::NEG_INFINITY
        };
    }
    // Relative to the largest, so that no exponential overflows; summed in f64, since a
    // vocabulary has some 100,000 terms.
    let sum: f64 = logits.iter().map(|&other| f64::from(other - largest).exp()).sum();
    (f64::from(logit - largest) - sum.ln()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lowest_index() {
        assert_eq!(greedy(&[1.0, 3.0, 3.0, 2.0]).unwrap().unwrap().index, 1);
        assert_eq!(greedy(&[-0.0, 0.0]).unwrap().unwrap().index, 0);
        assert_eq!(greedy(&[f32::NEG_INFINITY; 3]).unwrap().unwrap().index, 0);
    }

    #[test]
    fn no_logits_no_choice_and_nan_is_found() {
        assert_eq!(greedy(&[]), Ok(None));
        assert_eq!(greedy(&[1.0, f32::NAN, 5.0]), Err(NanLogit { index: 1 }));
    }

    #[test]
    fn log_probabilities_by_hand() {
        // softmax([0, ln 3]) = [1/4, 3/4]
        let logits = [0.0, 3f32.ln()];
        let choice = greedy(&logits).unwrap().unwrap();
        assert_eq!(choice.index, 1);
        assert!((choice.logprob - 0.75f32.ln()).abs() < 1e-6);
        assert!((log_probability(&logits, 0.0) - 0.25f32.ln()).abs() < 1e-6);
        // Far beyond the range of exp.
        let large = greedy(&[1000.0, 1000.0]).unwrap().unwrap();
        assert!((large.logprob - 0.5f32.ln()).abs() < 1e-6);
        assert_eq!(greedy(&[0.0, f32::INFINITY]).unwrap().unwrap().logprob, 0.0);
    }
}
