//! Logits and histories for the tests, the same as hugging_face.py makes.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use oxpipe::generation::{SampleError, Sampler, SamplingOptions, TokenMask};

/// The token that ends the text.
pub const END: i32 = 2;

pub fn mixed(mut word: u32) -> u32 {
    word ^= word >> 16;
    word = word.wrapping_mul(0x85EB_CA6B);
    word ^= word >> 13;
    word = word.wrapping_mul(0xC2B2_AE35);
    word ^ word >> 16
}

/// Random logits from -12 to 12: whole numbers with `kind` "ties", every seventh -inf with
/// "infinities".
pub fn logits(size: usize, number: u32, kind: &str) -> Vec<f32> {
    let one = |token: usize| {
        let word = mixed((token as u32).wrapping_add(number.wrapping_mul(0x9E37_79B9)));
        let value = (f64::from(word >> 8) * (24.0 / 16_777_216.0) - 12.0) as f32;
        match kind {
            "ties" => value.trunc(),
            "infinities" if token % 7 == 3 => f32::NEG_INFINITY,
            _ => value,
        }
    };
    (0..size).map(one).collect()
}

/// Tokens with repetitions among them.
pub fn history(size: usize, number: u32) -> Vec<i32> {
    let places = match size {
        10 => 3,
        1000 => 40,
        _ => 300,
    };
    let mut tokens: Vec<i32> = Vec::new();
    for place in 0..places {
        let word = mixed(place as u32 + number * 77 + 5);
        tokens.push(match place {
            6.. if !word.is_multiple_of(4) => tokens[place - 6],
            _ => (word % size as u32) as i32,
        });
    }
    tokens
}

pub fn options(given: &[(&str, &str)]) -> SamplingOptions {
    let mut options = SamplingOptions::default();
    for (name, value) in given {
        options.set(name, value).unwrap();
    }
    options.over(&SamplingOptions::default()).unwrap()
}

pub fn sampler(given: &[(&str, &str)], seed: u64) -> Sampler {
    Sampler::new(&options(given), seed, &[END])
}

/// The logarithms of the probabilities that a token is chosen by, as a host's sampler sees them.
pub fn log_probabilities(
    given: &[(&str, &str)],
    logits: &[f32],
    history: &[i32],
    prompt_len: usize,
    mask: Option<&TokenMask>,
) -> Result<Vec<f32>, SampleError> {
    let mut sampler = sampler(given, 1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shown = seen.clone();
    sampler.set_host_sampler(Some(Box::new(move |logprobs, _| {
        *shown.lock().unwrap() = logprobs.to_vec();
        ControlFlow::Continue(0)
    })));
    sampler.pick(logits, history, prompt_len, mask)?;
    let logprobs = std::mem::take(&mut *seen.lock().unwrap());
    Ok(logprobs)
}
