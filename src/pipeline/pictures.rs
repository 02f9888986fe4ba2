//! Positions on three axes, frames, rows and columns, where pictures are among the tokens:
//! `get_rope_index` of transformers' Qwen2VLModel (Wang et al., "Qwen2-VL", 2024, multimodal rotary
//! position embedding).
//!
//! Text counts alike on all axes. A picture of T x H x W tokens that begins at position p has token
//! (t, h, w) at (p + t, p + h, p + w), and what comes behind it goes on at p + max(T, H, W), one
//! more than the largest position so far.

use std::ops::Range;

/// Where the tokens of a picture are, and how they lie in it: frames, rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Picture {
    start: usize,
    sides: [usize; 3],
}

impl Picture {
    pub fn sides(self) -> [usize; 3] {
        self.sides
    }

    /// `None` where the tokens are not one for each place of the grid.
    pub fn new(tokens: &Range<usize>, sides: [usize; 3]) -> Option<Self> {
        let count = sides
            .iter()
            .try_fold(1usize, |all, &side| all.checked_mul(side))?;
        (count > 0 && count == tokens.len()).then_some(Picture {
            start: tokens.start,
            sides,
        })
    }
}

/// The position of the token at `place` on one of the axes. Pictures come in the order of their
/// tokens.
pub(super) fn position(pictures: &[Picture], axis: usize, place: usize) -> i64 {
    // By how much positions are behind places.
    let mut saved = 0;
    for Picture { start, sides } in pictures {
        let [frames, rows, columns] = *sides;
        let Some(index) = place.checked_sub(*start) else {
            break;
        };
        let count = frames * rows * columns;
        if index < count {
            let at = match axis {
                0 => index / (rows * columns),
                1 => index / columns % rows,
                _ => index % columns,
            };
            return (start - saved + at) as i64;
        }
        saved += count - frames.max(rows).max(columns);
    }
    (place - saved) as i64
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// pictures.json is transformers' answer; pictures.py made it.
    #[test]
    fn positions_are_those_of_transformers() {
        let cases: Value = serde_json::from_str(include_str!("../../tests/pipeline/pictures.json")).unwrap();
        for case in cases.as_array().unwrap() {
            let number = |value: &Value| value.as_u64().unwrap() as usize;
            let pictures: Vec<Picture> = case["pictures"]
                .as_array()
                .unwrap()
                .iter()
                .map(|picture| {
                    let sides = [0, 1, 2].map(|axis| number(&picture["grid"][axis]));
                    let start = number(&picture["start"]);
                    Picture::new(&(start..start + sides.iter().product::<usize>()), sides).unwrap()
                })
                .collect();
            for (axis, expected) in case["positions"].as_array().unwrap().iter().enumerate() {
                for (place, expected) in expected.as_array().unwrap().iter().enumerate() {
                    let found = position(&pictures, axis, place);
                    assert_eq!(
                        found,
                        expected.as_i64().unwrap(),
                        "{pictures:?}, axis {axis}, place {place}"
                    );
                }
            }
        }
    }

    #[test]
    fn tokens_that_are_no_grid_are_no_picture() {
        assert_eq!(Picture::new(&(0..5), [1, 2, 2]), None);
        assert_eq!(Picture::new(&(0..0), [1, 0, 2]), None);
        assert_eq!(Picture::new(&(0..4), [usize::MAX, 2, 2]), None);
    }
}
