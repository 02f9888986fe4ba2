//! Where images stand in a prompt.

use std::ops::Range;

use super::image::{ImageSummary, Thumbnail};

/// How the placeholder of an image becomes the tokens that its features are put at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePlaceholders {
    /// What stands for one image in the prompt.
    pub placeholder: i32,
    /// What it is replaced by, as often as the count says.
    pub token: i32,
    pub count: TokenCount,
    /// What is written before these tokens, and behind them.
    pub before: Vec<i32>,
    pub after: Vec<i32>,
    /// After each row of tiles or of patches but the last.
    pub row_separator: Option<i32>,
    /// Between the tiles or patches of a row.
    pub column_separator: Option<i32>,
    /// Where the tokens of the thumbnail stand; one tile's worth.
    pub thumbnail: Thumbnail,
    /// What is written around the tokens of tiles, which have a number each then.
    pub tiles: Option<TileTokens>,
}

/// Tokens around tiles that have names, as transformers' Idefics3Processor writes them:
///
/// ```text
/// around name[0][0] token.. around name[0][1] token.. row_end
/// around name[1][0] token.. around name[1][1] token.. last_row_end
/// around whole token.. around
/// ```
///
/// Of an image that is one tile it is the last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileTokens {
    pub around: i32,
    /// Row by row.
    pub names: Vec<Vec<i32>>,
    pub row_end: Vec<i32>,
    pub last_row_end: Vec<i32>,
    /// The name of the whole image.
    pub whole: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCount {
    /// So many for each tile; an image that is not cut is one.
    PerTile(usize),
    /// So many for each patch.
    PerPatch(usize),
    /// One for each square of patches that the model merges: frames * rows * columns / merge^2.
    FromGrid,
}

/// The most tokens that one image may become.
const MOST: usize = 1 << 24;

impl ImagePlaceholders {
    /// Replaces each placeholder by the tokens of the next of `images`; gives the tokens and where
    /// those of each image are. The error says what is wrong.
    pub fn expand(
        &self,
        tokens: &[i32],
        images: &[ImageSummary],
    ) -> Result<(Vec<i32>, Vec<Range<usize>>), String> {
        let mut expanded = Vec::with_capacity(tokens.len());
        let mut ranges = Vec::new();
        let mut next = images.iter();
        for &token in tokens {
            if token != self.placeholder {
                expanded.push(token);
                continue;
            }
            let Some(image) = next.next() else {
                let found = tokens.iter().filter(|&&token| token == self.placeholder).count();
                return Err(format!(
                    "the prompt has {found} image placeholders (token {}), and {} images wait for one",
                    self.placeholder,
                    images.len()
                ));
            };
            let start = expanded.len();
            expanded.extend(&self.before);
            self.place(image, &mut expanded)
                .map_err(|message| format!("image {} that waits: {message}", ranges.len() + 1))?;
            expanded.extend(&self.after);
            ranges.push(start..expanded.len());
        }
        Ok((expanded, ranges))
    }

    fn place(&self, image: &ImageSummary, tokens: &mut Vec<i32>) -> Result<(), String> {
        let no_patches = || "the package counts tokens by patches, and makes none".to_owned();
        let tiles = image.tiles;
        match self.count {
            TokenCount::PerTile(each) if self.tiles.is_some() => {
                self.named(tiles.unwrap_or((0, 0)), each, tokens)
            }
            TokenCount::PerTile(each) => self.grid(tiles.unwrap_or((1, 1)), each, tiles.is_some(), tokens),
            TokenCount::PerPatch(each) => {
                let ([pieces, rows, columns], _) = image.patches.ok_or_else(no_patches)?;
                let each = each.saturating_mul(rows).saturating_mul(columns);
                match tiles {
                    Some(tiles) => self.grid(tiles, each, true, tokens),
                    None => self.run(each.saturating_mul(pieces), tokens),
                }
            }
            TokenCount::FromGrid => {
                let ([pieces, rows, columns], merge) = image.patches.ok_or_else(no_patches)?;
                let merge = merge.max(1);
                let grid = (rows / merge, columns / merge);
                match tiles {
                    Some(tiles) => self.grid(tiles, grid.0.saturating_mul(grid.1), true, tokens),
                    None => (0..pieces).try_for_each(|_| self.grid(grid, 1, false, tokens)),
                }
            }
        }
    }

    /// The tokens of each cell of a grid, row by row, and those of the thumbnail.
    fn grid(
        &self,
        (rows, columns): (usize, usize),
        each: usize,
        tiled: bool,
        tokens: &mut Vec<i32>,
    ) -> Result<(), String> {
        let thumbnail = match tiled {
            true => self.thumbnail,
            false => Thumbnail::None,
        };
        if thumbnail == Thumbnail::Prepend {
            self.run(each, tokens)?;
        }
        for row in 0..rows {
            for column in 0..columns {
                if column > 0 {
                    tokens.extend(self.column_separator);
                }
                self.run(each, tokens)?;
            }
            if row + 1 < rows {
                tokens.extend(self.row_separator);
            }
        }
        if thumbnail == Thumbnail::Append {
            self.run(each, tokens)?;
        }
        Ok(())
    }

    /// The tokens of tiles with names, and of the whole image behind them.
    fn named(
        &self,
        (rows, columns): (usize, usize),
        each: usize,
        tokens: &mut Vec<i32>,
    ) -> Result<(), String> {
        let Some(tiles) = &self.tiles else { return Ok(()) };
        for row in 0..rows {
            for column in 0..columns {
                let name = tiles.names.get(row).and_then(|names| names.get(column));
                let name = name.ok_or_else(|| {
                    format!(
                        "it is cut into {rows} rows of {columns} tiles, and the package has no token for tile \
                         {column} of row {row}; give it with more even sides"
                    )
                })?;
                tokens.extend([tiles.around, *name]);
                self.run(each, tokens)?;
            }
            tokens.extend(match row + 1 == rows {
                true => &tiles.last_row_end,
                false => &tiles.row_end,
            });
        }
        tokens.extend([tiles.around, tiles.whole]);
        self.run(each, tokens)?;
        tokens.push(tiles.around);
        Ok(())
    }

    fn run(&self, count: usize, tokens: &mut Vec<i32>) -> Result<(), String> {
        if count > MOST || tokens.len() > MOST {
            return Err(format!(
                "it comes to more than {MOST} tokens; give a smaller one, or a package that makes fewer of it"
            ));
        }
        tokens.extend(std::iter::repeat_n(self.token, count));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placeholders(count: TokenCount) -> ImagePlaceholders {
        ImagePlaceholders {
            placeholder: 9,
            token: 5,
            count,
            before: Vec::new(),
            after: Vec::new(),
            row_separator: None,
            column_separator: None,
            thumbnail: Thumbnail::None,
            tiles: None,
        }
    }

    fn tiled(rows: usize, columns: usize) -> ImageSummary {
        ImageSummary {
            tiles: Some((rows, columns)),
            patches: None,
        }
    }

    #[test]
    fn each_placeholder_takes_the_next_image() {
        let one = placeholders(TokenCount::PerTile(2));
        let images = [ImageSummary::default(), tiled(1, 2)];
        let (tokens, ranges) = one.expand(&[1, 9, 2, 9, 3], &images).unwrap();
        assert_eq!(tokens, [1, 5, 5, 2, 5, 5, 5, 5, 3]);
        assert_eq!(ranges, [1..3, 4..8]);
        // An image may wait for a later prompt, a placeholder may not.
        assert_eq!(one.expand(&[9], &images).unwrap().0, [5, 5]);
        assert_eq!(one.expand(&[4, 4], &[]).unwrap().0, [4, 4]);
        let error = one.expand(&[9, 9, 9], &images).unwrap_err();
        assert!(
            error.contains("3 image placeholders") && error.contains("2 images"),
            "{error}"
        );
    }

    #[test]
    fn tokens_stand_around_each_image() {
        let one = ImagePlaceholders {
            before: vec![7, 9],
            after: vec![8],
            ..placeholders(TokenCount::PerTile(2))
        };
        let images = [ImageSummary::default(); 2];
        let (tokens, ranges) = one.expand(&[1, 9, 9, 3], &images).unwrap();
        assert_eq!(tokens, [1, 7, 9, 5, 5, 8, 7, 9, 5, 5, 8, 3]);
        assert_eq!(ranges, [1..6, 6..11]);
    }

    #[test]
    fn tiles_have_separators_and_a_thumbnail() {
        let tiles = ImagePlaceholders {
            row_separator: Some(7),
            column_separator: Some(8),
            ..placeholders(TokenCount::PerTile(1))
        };
        let expand = |thumbnail| {
            let tiles = ImagePlaceholders {
                thumbnail,
                ..tiles.clone()
            };
            tiles.expand(&[9], &[tiled(2, 3)]).unwrap().0
        };
        assert_eq!(expand(Thumbnail::None), [5, 8, 5, 8, 5, 7, 5, 8, 5, 8, 5]);
        assert_eq!(expand(Thumbnail::Prepend), [5, 5, 8, 5, 8, 5, 7, 5, 8, 5, 8, 5]);
        assert_eq!(expand(Thumbnail::Append), [5, 8, 5, 8, 5, 7, 5, 8, 5, 8, 5, 5]);
    }

    /// transformers' `get_image_prompt_string(2, 2, 1, "F", "I", "W")`, with its names and line ends as
    /// tokens: `FaI FbI n FcI FdI nn FWI F`.
    #[test]
    fn tiles_with_names_are_written_as_transformers_writes_them() {
        let tiles = ImagePlaceholders {
            thumbnail: Thumbnail::Append,
            tiles: Some(TileTokens {
                around: 1,
                names: vec![vec![10, 11], vec![20, 21]],
                row_end: vec![2],
                last_row_end: vec![2, 2],
                whole: 3,
            }),
            ..placeholders(TokenCount::PerTile(1))
        };
        let expand = |rows, columns| tiles.expand(&[9], &[tiled(rows, columns)]);
        assert_eq!(
            expand(2, 2).unwrap().0,
            [1, 10, 5, 1, 11, 5, 2, 1, 20, 5, 1, 21, 5, 2, 2, 1, 3, 5, 1]
        );
        assert_eq!(expand(0, 0).unwrap().0, [1, 3, 5, 1]);
        let error = expand(1, 3).unwrap_err();
        assert!(
            error.contains("image 1 that waits: ") && error.contains("tile 2 of row 0"),
            "{error}"
        );
    }

    #[test]
    fn patches_are_counted_and_merged() {
        let patches = ImageSummary {
            tiles: None,
            patches: Some(([1, 4, 6], 2)),
        };
        let count = |count| placeholders(count).expand(&[9], &[patches]).unwrap().0.len();
        assert_eq!(count(TokenCount::PerPatch(1)), 24);
        assert_eq!(count(TokenCount::PerPatch(3)), 72);
        assert_eq!(count(TokenCount::FromGrid), 6);
        let rows = ImagePlaceholders {
            row_separator: Some(7),
            ..placeholders(TokenCount::FromGrid)
        };
        assert_eq!(rows.expand(&[9], &[patches]).unwrap().0, [5, 5, 5, 7, 5, 5, 5]);
        let error = rows.expand(&[9], &[ImageSummary::default()]).unwrap_err();
        assert!(error.contains("patches"), "{error}");
        let huge = placeholders(TokenCount::PerPatch(usize::MAX));
        assert!(huge.expand(&[9], &[patches]).is_err());
    }
}
