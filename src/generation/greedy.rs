use super::SampleError;
use super::exponential::Weigher;
use super::select::extent;

/// A chosen token and how probable it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Its place among the logits.
    pub index: usize,
    /// `x[index] - ln(sum(exp(x)))`: the logarithm of its probability under softmax.
    pub logprob: f32,
}

/// The largest logit; among equals the one with the lowest index. There is none among no logits, where
/// one is NaN, which orders with nothing, and where all are -inf.
pub fn greedy(logits: &[f32]) -> Result<Choice, SampleError> {
    let largest = largest(logits);
    if largest.is_nan()
        && let Some(index) = logits.iter().position(|logit| logit.is_nan())
    {
        return Err(SampleError::Nan { index });
    }
    let index = first(logits, largest).ok_or(SampleError::Empty)?;
    if largest == f32::NEG_INFINITY {
        return Err(SampleError::NothingLeft);
    }
    Ok(Choice {
        index,
        logprob: log_share(logits, largest, largest),
    })
}

/// The logarithm of the probability of a token with this logit.
pub(crate) fn log_probability(logits: &[f32], logit: f32) -> f32 {
    log_share(logits, largest(logits), logit)
}

/// The largest of all, -inf if there are none, NaN if any is NaN.
fn largest(logits: &[f32]) -> f32 {
    let extent = extent(logits);
    match extent.any_nan {
        true => f32::NAN,
        false => extent.largest,
    }
}

/// The place of the first logit of this value.
fn first(logits: &[f32], value: f32) -> Option<usize> {
    const BLOCK: usize = 64;
    // Whether it is in a block at all is a question for vector instructions.
    let has_it = |block: &[f32]| block.iter().fold(false, |found, &logit| found | (logit == value));
    let block = logits.chunks(BLOCK).position(has_it)? * BLOCK;
    let place = logits.get(block..)?.iter().position(|&logit| logit == value)?;
    Some(block + place)
}

/// ln(exp(logit) / sum(exp(logits))), the largest of which is known.
fn log_share(logits: &[f32], largest: f32, logit: f32) -> f32 {
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
    let sum = Weigher::new(largest, 1.0).total(logits);
    (f64::from(logit - largest) - libm::log(sum)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lowest_index() {
        assert_eq!(greedy(&[1.0, 3.0, 3.0, 2.0]).unwrap().index, 1);
        assert_eq!(greedy(&[-0.0, 0.0]).unwrap().index, 0);
    }

    #[test]
    fn no_logits_no_choice_and_nan_is_found() {
        assert_eq!(greedy(&[]), Err(SampleError::Empty));
        assert_eq!(greedy(&[f32::NEG_INFINITY; 3]), Err(SampleError::NothingLeft));
        assert_eq!(greedy(&[1.0, f32::NAN, 5.0]), Err(SampleError::Nan { index: 1 }));
        for at in 0..20 {
            let mut logits = vec![0.5; 20];
            logits[at] = f32::NAN;
            assert_eq!(greedy(&logits), Err(SampleError::Nan { index: at }));
            logits[at] = f32::INFINITY;
            assert_eq!(greedy(&logits).unwrap().index, at);
        }
    }

    #[test]
    fn log_probabilities_by_hand() {
        // softmax([0, ln 3]) = [1/4, 3/4]
        let logits = [0.0, 3f32.ln()];
        let choice = greedy(&logits).unwrap();
        assert_eq!(choice.index, 1);
        assert!((choice.logprob - 0.75f32.ln()).abs() < 1e-6);
        assert!((log_probability(&logits, 0.0) - 0.25f32.ln()).abs() < 1e-6);
        // Far beyond the range of exp.
        let large = greedy(&[1000.0, 1000.0]).unwrap();
        assert!((large.logprob - 0.5f32.ln()).abs() < 1e-6);
        assert_eq!(greedy(&[0.0, f32::INFINITY]).unwrap().logprob, 0.0);
    }
}
