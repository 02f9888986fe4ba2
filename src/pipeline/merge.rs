//! Features of pictures or sound among the embeddings of tokens.

use crate::package::Merge;

use super::pool::{Span, Values};
use super::value::Value;

/// Puts rows of features where their tokens stand: the nth token of a kind, counted from the
/// beginning of the run, is the nth row. Tokens for which there is no row stay what they are.
///
/// `embeds` is `[1, S, H]` of the span; features are rows of H numbers of the same type.
pub(super) fn merge(merges: &[Merge], values: Values<'_>, span: Span<'_>, embeds: &mut Value) {
    let Some(view) = embeds.view() else { return };
    let width = view.shape().last().copied().unwrap_or(0);
    let row = usize::try_from(width)
        .unwrap_or(0)
        .saturating_mul(view.dtype().size());
    if row == 0 {
        return;
    }
    for merge in merges {
        let Some(features) = values.output(merge.features.component, merge.features.output) else {
            continue;
        };
        if features.shape().last() != Some(&width) {
            continue;
        }
        let before = span
            .tokens
            .iter()
            .take(span.past)
            .filter(|&&id| id == merge.token)
            .count();
        let rows = features.bytes().chunks_exact(row).skip(before);
        let Some(bytes) = embeds.bytes_mut() else { return };
        let places = bytes.chunks_exact_mut(row).zip(span.ids);
        let places = places.filter(|(_, id)| **id == merge.token);
        for ((place, _), features) in places.zip(rows) {
            place.copy_from_slice(features);
        }
    }
}
