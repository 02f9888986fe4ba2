//! Tokens that may come next, taken from what has been: a prompt that is quoted, code that repeats.

/// The tokens that followed a place where the sequence had the same few tokens as at its end: at most
/// `count`, none if there is no such place. The longest of up to `longest` tokens that is found
/// decides, and of several places the last that `count` tokens follow, else the one that most do.
///
/// Prompt lookup decoding (Saxena, 2023).
pub fn prompt_lookup(tokens: &[i32], longest: usize, count: usize) -> &[i32] {
    for length in (1..=longest.min(tokens.len())).rev() {
        let end = &tokens[tokens.len() - length..];
        // Those that something follows: all but the end itself.
        let before = &tokens[..tokens.len() - 1];
        let is_it = |window: &[i32]| window == end;
        let enough = &before[..before.len().min((tokens.len() - count.min(tokens.len())).max(1))];
        let last = enough.windows(length).rposition(is_it);
        if let Some(place) = last.or_else(|| before.windows(length).position(is_it)) {
            let following = &tokens[place + length..];
            return &following[..following.len().min(count)];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_the_longest_and_last_match_is_proposed() {
        let tokens = [1, 2, 3, 9, 2, 3, 7, 8, 5, 2, 3];
        assert_eq!(prompt_lookup(&tokens, 3, 3), [7, 8, 5]);
        assert_eq!(prompt_lookup(&tokens, 1, 1), [7]);
        assert_eq!(prompt_lookup(&[1, 2, 3, 4, 2, 3, 4, 1, 2, 3], 3, 2), [4, 2]);
        // Up to the end, the end itself included.
        assert_eq!(prompt_lookup(&[5, 5, 5], 2, 9), [5]);
        assert_eq!(prompt_lookup(&[6, 5, 4, 5], 2, 9), [4, 5]);
        // As many as are wanted, rather than the end itself once more.
        assert_eq!(prompt_lookup(&[7, 0, 0, 0, 0, 0, 0], 2, 3), [0, 0, 0]);
        assert_eq!(prompt_lookup(&[1, 2, 1, 2, 1, 2], 1, 4), [1, 2, 1, 2]);
        assert!(prompt_lookup(&[1, 2, 3], 3, 4).is_empty());
        assert!(prompt_lookup(&[4], 3, 4).is_empty());
        assert!(prompt_lookup(&[], 3, 4).is_empty());
        assert!(prompt_lookup(&tokens, 3, 0).is_empty());
    }
}
