//! top_p of a whole vocabulary, which is not sorted.
//!
//! A border is looked for above which there is less than the mass, and above a lower one at least that,
//! with few tokens between the two: only these are sorted. Each look at a border is one pass over what
//! reaches it.

use super::exponential::{BLOCK, Weigher};
use super::select::{Cut, Maxima};

/// Kept from token to token, so that none is allocated.
#[derive(Default)]
pub(super) struct Nucleus {
    weights: Vec<[f32; BLOCK]>,
    sums: Vec<f64>,
    between: Vec<(usize, f32)>,
}

/// A score, and the tokens that reach it.
#[derive(Clone, Copy)]
struct Border {
    score: f32,
    mass: f64,
    count: usize,
}

/// As many tokens as are sorted.
const FEW: usize = 512;

/// What [`Scratch::top_p`](super::truncation::Scratch::top_p) leaves of all scores.
pub(super) fn nucleus_of_all(
    scores: &[f32],
    mass: f64,
    weigher: Weigher,
    maxima: &Maxima,
    memory: &mut Nucleus,
) -> Cut {
    weigher.weights(scores, &mut memory.sums, &mut memory.weights);
    let total: f64 = memory.sums.iter().sum();
    // At least one token is in it.
    let needed = (mass * total).max(f64::MIN_POSITIVE);
    let mut low = Border {
        score: f32::NEG_INFINITY,
        mass: total,
        count: scores.len(),
    };
    let mut high = Border {
        score: maxima.largest().next_up(),
        mass: 0.0,
        count: 0,
    };
    // Tokens of less than half of the rest's even share are less than the rest together.
    let share = (1.0 - mass) / 2.0 * total / scores.len() as f64;
    let start = f64::from(maxima.largest()) + weigher.log(share);
    let mut passes = 0;
    while low.count - high.count > FEW
        && let Some(score) = between(low, high, needed, start, passes)
    {
        let (mass, count) = maxima.mass_at_least(scores, &memory.weights, score);
        let border = Border { score, mass, count };
        match mass >= needed {
            true => low = border,
            false => high = border,
        }
        passes += 1;
    }
    let tokens = &mut memory.between;
    tokens.clear();
    tokens.reserve(FEW);
    maxima.each_between(scores, low.score, high.score, |token, score| {
        tokens.push((token, score))
    });
    // Of the two zeros neither is larger.
    tokens.sort_unstable_by(|a, b| (b.1 + 0.0).total_cmp(&(a.1 + 0.0)).then(a.0.cmp(&b.0)));
    let weights = memory.weights.as_flattened();
    let mut sum = high.mass;
    let reached = tokens.iter().find(|(token, _)| {
        sum += f64::from(weights.get(*token).copied().unwrap_or(0.0));
        sum >= needed
    });
    match reached.or(tokens.last()) {
        Some(&(token, score)) => Cut::up_to(score, token),
        None => Cut::at(low.score),
    }
}

/// A score above the low border and below the high one, if there is one.
fn between(low: Border, high: Border, needed: f64, start: f64, passes: usize) -> Option<f32> {
    /// From then on by bits, which at most 32 passes do whatever the scores are.
    const BY_VALUE: usize = 16;
    let first = low.score.next_up();
    if first >= high.score {
        return None;
    }
    let last = high.score.next_down();
    if passes >= BY_VALUE {
        let bits = |score: f32| order_of(score) as u64;
        let middle = bits(first).midpoint(bits(last)) as u32;
        return Some(of_order(middle).clamp(first, last));
    }
    // Where the mass would be if it were even; every other time in the middle, so that it is not
    // the same border that comes nearer each time.
    let even = ((low.mass - needed) / (low.mass - high.mass)).clamp(0.02, 0.98);
    let (from, part) = match passes {
        0 => (start, 0.0),
        passes if passes % 2 == 0 => (f64::from(low.score), even),
        _ => (f64::from(low.score), 0.5),
    };
    let from = from.max(f64::from(f32::MIN));
    // Nothing above the largest number is among the scores.
    let to = f64::from(high.score.min(f32::MAX));
    let value = from + (to - from) * part;
    Some((value as f32).clamp(first, last))
}

/// The place of a score among all scores.
fn order_of(score: f32) -> u32 {
    let bits = score.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

fn of_order(place: u32) -> f32 {
    f32::from_bits(if place >> 31 == 1 {
        place & !(1 << 31)
    } else {
        !place
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(scores: &[f32], mass: f64, scale: f64) -> Cut {
        let mut maxima = Maxima::default();
        let weigher = Weigher::new(maxima.take(scores).largest, scale);
        nucleus_of_all(scores, mass, weigher, &maxima, &mut Nucleus::default())
    }

    /// What is kept is, of a sort, the shortest beginning that has the mass.
    #[test]
    fn the_border_is_that_of_a_sort() {
        let mixed = |at: u32| (at.wrapping_mul(2_654_435_761) ^ at.wrapping_mul(40_503) >> 3) >> 8;
        let even = |at: u32| mixed(at) as f32 / 16_777_216.0;
        let kinds: [(&str, Vec<f32>); 7] = [
            ("nearly flat", (0..20_000).map(even).collect()),
            ("steep", (0..20_000).map(|at| 30.0 * even(at)).collect()),
            (
                "peaked",
                (0..20_000)
                    .map(|at| if at == 77 { 90.0 } else { even(at) })
                    .collect(),
            ),
            (
                "far apart",
                (0..20_000).map(|at| (even(at) - 0.5) * 3e38).collect(),
            ),
            ("close", (0..20_000).map(|at| 1e-38 * even(at)).collect()),
            ("ties", (0..20_000).map(|at| (at % 13) as f32 / 4.0).collect()),
            (
                "the largest number",
                (0..20_000)
                    .map(|at| if at == 77 { f32::MAX } else { even(at) })
                    .collect(),
            ),
        ];
        for (kind, scores) in kinds {
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
            let weight = |token: usize| (f64::from(scores[token]) - f64::from(largest)).exp();
            let total: f64 = order.iter().map(|&token| weight(token)).sum();
            for mass in [0.0, 1e-9, 0.3, 0.9, 0.999] {
                let cut = find(&scores, mass, 1.0);
                let kept = order.iter().take_while(|&&token| cut.keeps(token, scores[token]));
                let kept = kept.count();
                let all = (0..scores.len()).filter(|&token| cut.keeps(token, scores[token]));
                assert_eq!(all.count(), kept, "{kind} {mass}: no gaps");
                let before: f64 = order[..kept - 1].iter().map(|&token| weight(token)).sum();
                let with = before + weight(order[kept - 1]);
                // As near as sums of f32 say.
                assert!(before <= mass * total * (1.0 + 1e-6), "{kind} {mass}");
                assert!(with >= mass * total * (1.0 - 1e-6), "{kind} {mass}");
            }
        }
    }

    #[test]
    fn places_of_scores_are_in_their_order() {
        let scores = [
            f32::NEG_INFINITY,
            f32::MIN,
            -1.0,
            -0.0,
            0.0,
            1e-45,
            1.0,
            f32::INFINITY,
        ];
        assert!(scores.map(order_of).is_sorted());
        assert_eq!(
            scores.map(order_of).map(of_order).map(f32::to_bits),
            scores.map(f32::to_bits)
        );
    }
}
