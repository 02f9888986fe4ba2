//! Whether memory that a call writes is touched by it elsewhere.

use super::failure::{Failure, Result};
use super::status::OXP_ERR_OVERLAP;

/// A range of the caller's memory that a call reads or writes.
pub(super) struct Span<'a> {
    start: usize,
    end: usize,
    written: bool,
    part: Part,
    what: &'a str,
}

/// What of a tensor lies in a range.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Data,
    Shape,
    /// An array of descriptors.
    Array,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Data => "the data of",
            Part::Shape => "the shape of",
            Part::Array => "the array of",
        }
    }
}

impl<'a> Span<'a> {
    /// The range must not wrap, which whoever read the pointer has checked.
    pub fn read(start: usize, len: usize, part: Part, what: &'a str) -> Self {
        Span {
            start,
            end: start.saturating_add(len),
            written: false,
            part,
            what,
        }
    }

    pub fn write(start: usize, len: usize, part: Part, what: &'a str) -> Self {
        Span {
            written: true,
            ..Span::read(start, len, part, what)
        }
    }
}

/// An error if a written range meets any other. Ranges that are only read may overlap.
pub(super) fn check(mut spans: Vec<Span<'_>>) -> Result<()> {
    spans.retain(|span| span.start < span.end);
    spans.sort_by_key(|span| span.start);
    // The ranges before this one that reach farthest: of all, and of the written ones. If
    // any earlier range meets this one, so does the farthest.
    let mut farthest: Option<&Span<'_>> = None;
    let mut farthest_written: Option<&Span<'_>> = None;
    for span in &spans {
        let rival = if span.written { farthest } else { farthest_written };
        if let Some(rival) = rival.filter(|rival| rival.end > span.start) {
            return Err(Failure::new(
                OXP_ERR_OVERLAP,
                format!(
                    "{} {} ({} bytes) and {} {} ({} bytes) overlap in memory; give each output memory of its \
                     own",
                    rival.part.name(),
                    rival.what,
                    rival.end - rival.start,
                    span.part.name(),
                    span.what,
                    span.end - span.start
                ),
            ));
        }
        let longer = |best: Option<&Span<'_>>| best.is_none_or(|best| span.end > best.end);
        if longer(farthest) {
            farthest = Some(span);
        }
        if span.written && longer(farthest_written) {
            farthest_written = Some(span);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clash(spans: &[(usize, usize, bool)]) -> bool {
        let spans = spans.iter().map(|&(start, len, written)| match written {
            true => Span::write(start, len, Part::Data, "w"),
            false => Span::read(start, len, Part::Data, "r"),
        });
        check(spans.collect()).is_err()
    }

    #[test]
    fn agrees_with_comparing_every_pair() {
        // Every set of three ranges on a short line.
        let ranges: Vec<(usize, usize, bool)> = (0..4)
            .flat_map(|start| (0..4).flat_map(move |len| [(start, len, false), (start, len, true)]))
            .collect();
        let meet = |a: &(usize, usize, bool), b: &(usize, usize, bool)| {
            a.1 > 0 && b.1 > 0 && (a.2 || b.2) && a.0 < b.0 + b.1 && b.0 < a.0 + a.1
        };
        for a in &ranges {
            for b in &ranges {
                for c in &ranges {
                    let expected = meet(a, b) || meet(a, c) || meet(b, c);
                    assert_eq!(clash(&[*a, *b, *c]), expected, "{a:?} {b:?} {c:?}");
                }
            }
        }
    }
}
