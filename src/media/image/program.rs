//! The preprocessing program of a package, checked: each transform has inputs of the kind that
//! it takes, and each output a value of the kind that it is for.

use super::resize::Filter;
use crate::component::DataType;
use crate::media::dataflow::{self, Names, ProgramError, Transform, build};

/// See [`ImageOp`] for what it makes.
pub type ImageTransform = Transform<ImageOp>;

/// What a transform does.
#[derive(Clone, Debug, PartialEq)]
pub enum ImageOp {
    /// The image that the host gives, RGB.
    Decode,
    /// Nothing: images are RGB already.
    ConvertRgb,
    Resize {
        fit: Fit,
        filter: Filter,
    },
    /// The middle, `width` x `height`; what lies outside of the image is 0.
    CenterCrop {
        width: usize,
        height: usize,
    },
    /// `x * scale`, in f64, rounded to f32.
    Rescale {
        scale: f64,
    },
    /// `(x - mean) / std` for each channel, in f32.
    Normalize {
        mean: [f32; 3],
        std: [f32; 3],
    },
    Tile(Tiling),
    Patchify(Patchify),
    /// Each patch as one row.
    Flatten,
    /// Rows of `value` after the patches or coordinates, up to `length` of them; `None` takes the
    /// port's, or those of the image that has most.
    Pad {
        length: Option<usize>,
        value: f64,
    },
    EmitOriginalSize,
    EmitTransformedSize,
    EmitValidityMask,
    EmitPatchCoordinates,
    EmitGridCoordinates,
}

impl ImageOp {
    pub fn name(&self) -> &'static str {
        match self {
            ImageOp::Decode => "decode",
            ImageOp::ConvertRgb => "convert_rgb",
            ImageOp::Resize { .. } => "resize",
            ImageOp::CenterCrop { .. } => "center_crop",
            ImageOp::Rescale { .. } => "rescale",
            ImageOp::Normalize { .. } => "normalize",
            ImageOp::Tile(_) => "tile",
            ImageOp::Patchify(_) => "patchify",
            ImageOp::Flatten => "flatten",
            ImageOp::Pad { .. } => "pad",
            ImageOp::EmitOriginalSize => "emit_original_size",
            ImageOp::EmitTransformedSize => "emit_transformed_size",
            ImageOp::EmitValidityMask => "emit_validity_mask",
            ImageOp::EmitPatchCoordinates => "emit_patch_coordinates",
            ImageOp::EmitGridCoordinates => "emit_grid_coordinates",
        }
    }
}

/// What size a resized image has. See sizes.rs for the formulas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fit {
    /// This size, whatever becomes of the proportions.
    Stretch {
        width: usize,
        height: usize,
    },
    /// The shorter side is this long.
    ShortestEdge {
        edge: usize,
    },
    /// Covers this size, of which the middle is kept.
    Crop {
        width: usize,
        height: usize,
    },
    /// Inside of this size, in the middle; around it `value`.
    Pad {
        width: usize,
        height: usize,
        value: u8,
    },
    PixelArea {
        least: u64,
        most: u64,
        multiple: usize,
    },
    PatchBudget {
        patch: usize,
        most: usize,
        pooling: usize,
    },
}

/// Cutting an image into square tiles, row by row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiling {
    pub size: usize,
    /// The most tiles of those modes that choose among grids, thumbnail left out.
    pub most: usize,
    pub mode: TilingMode,
    pub thumbnail: Thumbnail,
    pub thumbnail_filter: Filter,
    /// Of the image on its way to the tiles; a resize before the tiles says it.
    pub filter: Filter,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TilingMode {
    /// The grid among those of at most `most` tiles that keeps most of the image's pixels, and of
    /// these the one with the fewest others (LLaVA-NeXT's `select_best_resolution`); the image
    /// is stretched over it.
    Anyres,
    /// Always this grid; the image is stretched over it.
    Grid { columns: usize, rows: usize },
    /// As few tiles as hold the image, or the grid of at most `most` that is nearest to its
    /// proportions; the image is in its upper left, as large as it can be, and around it
    /// `canvas` (Phi-4-multimodal's dynamic preprocessing). A cell of the validity mask is
    /// `mask_patch` pixels.
    DynamicHd { mask_patch: usize, canvas: u8 },
    /// The image with its longer side at `longest`, stretched to multiples of the tile; an image
    /// that is one tile then is the thumbnail alone (Idefics3). The tiles of all images are those
    /// of one sample, `[1, all tiles, 3, H, W]`, and a cell of the validity mask is a pixel.
    LongestEdge { longest: usize },
}

/// The whole image as one more tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thumbnail {
    #[default]
    None,
    Prepend,
    Append,
}

/// Cutting an image into square patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patchify {
    pub size: usize,
    /// Copies of the image as frames of a video.
    pub frames: usize,
    /// Patches of a square of this many on a side come one after the other, with
    /// [`PatchOrder::Groups`].
    pub merge: usize,
    pub features: FeatureOrder,
    pub order: PatchOrder,
    /// Coordinates are x, y and not y, x.
    pub xy: bool,
    pub flatten: bool,
}

/// How the numbers of a patch are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureOrder {
    /// `[channel, frame, row, column]`
    ChannelsFirst,
    /// `[frame, channel, row, column]`
    FramesFirst,
    /// `[frame, row, column, channel]`
    ChannelsLast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchOrder {
    Groups,
    Raster,
}

/// A result and the port that it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageOutput {
    /// The name of a value; `None` takes the last one that fits the content.
    pub source: Option<String>,
    /// `component.port`.
    pub name: String,
    pub content: Content,
    pub dtype: DataType,
    /// What the rows that padding adds hold, where that is not what the transform says.
    pub pad_value: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// f32, f16 or bf16, or uint8 of pixels that were not scaled: images `[N, 3, H, W]`, tiles
    /// `[all tiles, 3, H, W]` or `[N, tiles, 3, H, W]`, patches `[all patches, F]` or, padded,
    /// `[N, L, F]`.
    Pixels,
    /// `[.., 2]`, one row for each patch.
    PatchCoordinates,
    /// `[N, 3]`: frames, rows and columns of patches.
    GridDimensions,
    /// `[N, 2]`: height and width as decoded.
    OriginalSize,
    /// `[N, 2]`: height and width as resized.
    TransformedSize,
    /// 1 for what is of the image: `[N, L]` of patches, `[all tiles, h, w]` of tiles.
    ValidityMask,
}

impl Content {
    pub const NAMES: [(&'static str, Content); 6] = [
        ("pixels", Content::Pixels),
        ("patch_coordinates", Content::PatchCoordinates),
        ("grid_dimensions", Content::GridDimensions),
        ("original_size", Content::OriginalSize),
        ("transformed_size", Content::TransformedSize),
        ("validity_mask", Content::ValidityMask),
    ];

    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, content)| *content == self);
        found.map_or("", |(name, _)| name)
    }
}

/// A program that can be run: every name has become an index.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageProgram {
    pub(super) steps: Vec<Step>,
    pub(super) outputs: Vec<(usize, ImageOutput)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub op: ImageOp,
    /// An earlier step; none for `Decode`.
    pub input: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Image,
    Scaled,
    Tiles,
    ScaledTiles,
    Patches,
    Rows,
    PaddedRows,
    Coordinates,
    PaddedCoordinates,
    Grid,
    OriginalSize,
    TransformedSize,
    Mask,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Image => "an image of bytes",
            Kind::Scaled => "a scaled image",
            Kind::Tiles => "tiles of bytes",
            Kind::ScaledTiles => "scaled tiles",
            Kind::Patches => "patches that are not flat",
            Kind::Rows => "patches",
            Kind::PaddedRows => "padded patches",
            Kind::Coordinates => "coordinates",
            Kind::PaddedCoordinates => "padded coordinates",
            Kind::Grid => "a grid",
            Kind::OriginalSize | Kind::TransformedSize => "a size",
            Kind::Mask => "a mask",
        }
    }
}

impl ImageProgram {
    pub fn new(transforms: Vec<ImageTransform>, outputs: Vec<ImageOutput>) -> Result<Self, ProgramError> {
        let (builder, outputs) = build::<Builder>(transforms, outputs)?;
        Ok(ImageProgram {
            steps: builder.steps,
            outputs,
        })
    }

    /// The outputs in the order in which the results come.
    pub fn outputs(&self) -> impl Iterator<Item = &ImageOutput> {
        self.outputs.iter().map(|(_, output)| output)
    }

    /// Leaves the outputs out that have `false`.
    pub fn keep_outputs(&mut self, keep: &[bool]) {
        let mut keep = keep.iter();
        self.outputs.retain(|_| keep.next().copied().unwrap_or(true));
    }

    /// The outputs, each with the step that makes its value.
    pub fn bound(&self) -> impl Iterator<Item = (usize, &ImageOutput)> {
        self.outputs.iter().map(|(source, output)| (*source, output))
    }

    /// What it does, step by step, and the earlier step whose value each works on.
    pub fn steps(&self) -> impl Iterator<Item = (&ImageOp, Option<usize>)> {
        self.steps.iter().map(|step| (&step.op, step.input))
    }

    /// Height and width that images, or tiles, are brought to, where these are the same for all.
    pub fn size(&self) -> Option<[usize; 2]> {
        let mut sizes = self.steps.iter().filter_map(|step| match step.op {
            ImageOp::Resize { fit, .. } => Some(match fit {
                Fit::Stretch { width, height }
                | Fit::Crop { width, height }
                | Fit::Pad { width, height, .. } => Some([height, width]),
                Fit::ShortestEdge { .. } | Fit::PixelArea { .. } | Fit::PatchBudget { .. } => None,
            }),
            ImageOp::CenterCrop { width, height } => Some(Some([height, width])),
            ImageOp::Tile(tiling) => Some(Some([tiling.size; 2])),
            _ => None,
        });
        sizes.next_back().flatten()
    }

    /// Whether it cuts images into patches.
    pub fn makes_patches(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step.op, ImageOp::Patchify(_)))
    }

    /// Where the whole image is among the tiles.
    pub fn thumbnail(&self) -> Thumbnail {
        let mut tilings = self.steps.iter().filter_map(|step| match &step.op {
            ImageOp::Tile(tiling) => Some(tiling.thumbnail),
            _ => None,
        });
        tilings.next_back().unwrap_or_default()
    }
}

#[derive(Default)]
struct Builder {
    steps: Vec<Step>,
    kinds: Vec<Kind>,
    names: Names,
}

impl dataflow::Builder for Builder {
    type Op = ImageOp;
    type Output = ImageOutput;

    fn add(&mut self, transform: ImageTransform) -> Result<(), String> {
        let ImageTransform {
            op, inputs, outputs, ..
        } = transform;
        let inputs = self.names.inputs(inputs, op == ImageOp::Decode)?;
        let made = match &op {
            ImageOp::Decode => match inputs.is_empty() {
                true => vec![self.push(op, None, Kind::Image)],
                false => return Err("decode reads the image that the host gives, and no value".to_owned()),
            },
            ImageOp::Pad { .. } => {
                if inputs.is_empty() {
                    return Err("pad needs at least one value; decode comes first".to_owned());
                }
                let mut made = Vec::with_capacity(inputs.len());
                for input in inputs {
                    made.push(self.add_one(op.clone(), input)?);
                }
                made
            }
            _ => match inputs.as_slice() {
                [input] => vec![self.add_one(op, *input)?],
                [] => return Err(format!("{} needs a value; decode comes first", op.name())),
                several => {
                    return Err(format!("{} takes one value, not {}", op.name(), several.len()));
                }
            },
        };
        self.names.name(outputs, made)
    }

    fn bind(&mut self, output: &ImageOutput) -> Result<usize, String> {
        let source = match &output.source {
            Some(name) => self.names.find(name)?,
            None => self.implied(output.content)?,
        };
        let kind = self.kinds.get(source).copied().unwrap_or(Kind::Image);
        let fits = match output.content {
            Content::Pixels => matches!(
                kind,
                Kind::Image | Kind::Scaled | Kind::Tiles | Kind::ScaledTiles | Kind::Rows | Kind::PaddedRows
            ),
            Content::PatchCoordinates => matches!(kind, Kind::Coordinates | Kind::PaddedCoordinates),
            Content::GridDimensions => kind == Kind::Grid,
            Content::OriginalSize => kind == Kind::OriginalSize,
            Content::TransformedSize => kind == Kind::TransformedSize,
            Content::ValidityMask => kind == Kind::Mask,
        };
        if !fits {
            return Err(format!("{} cannot be {}", output.content.name(), kind.name()));
        }
        let float = output.dtype.is_float32_or_smaller();
        let integer = output.dtype.is_index();
        let ok = match output.content {
            Content::Pixels => {
                float || (output.dtype == DataType::Uint8 && matches!(kind, Kind::Image | Kind::Tiles))
            }
            Content::ValidityMask => {
                float || integer || matches!(output.dtype, DataType::Bool | DataType::Uint8)
            }
            _ => float || integer,
        };
        match ok {
            true => Ok(source),
            false => Err(format!(
                "{} that are {} cannot be {}",
                output.content.name(),
                kind.name(),
                output.dtype
            )),
        }
    }
}

impl Builder {
    fn push(&mut self, op: ImageOp, input: Option<usize>, kind: Kind) -> usize {
        self.steps.push(Step { op, input });
        self.kinds.push(kind);
        self.steps.len() - 1
    }

    /// A transform of one value.
    fn add_one(&mut self, op: ImageOp, input: usize) -> Result<usize, String> {
        use Kind as K;
        let kind = self.kinds.get(input).copied().unwrap_or(K::Image);
        let made = match (&op, kind) {
            (ImageOp::ConvertRgb, K::Image) => return Ok(input),
            (ImageOp::Resize { .. } | ImageOp::CenterCrop { .. }, K::Image) => K::Image,
            (ImageOp::Rescale { .. } | ImageOp::Normalize { .. }, K::Image | K::Scaled) => K::Scaled,
            (ImageOp::Rescale { .. } | ImageOp::Normalize { .. }, K::Tiles | K::ScaledTiles) => {
                K::ScaledTiles
            }
            (ImageOp::Tile(tiling), K::Image) => return Ok(self.add_tiles(*tiling, input)),
            (ImageOp::Patchify(patchify), K::Image | K::Scaled | K::Tiles | K::ScaledTiles) => {
                match patchify.flatten {
                    true => K::Rows,
                    false => K::Patches,
                }
            }
            (ImageOp::Flatten, K::Patches) => {
                if let Some(kind) = self.kinds.get_mut(input) {
                    // The rows are those of the patches.
                    *kind = K::Rows;
                }
                return Ok(input);
            }
            (ImageOp::Pad { .. }, K::Rows) => K::PaddedRows,
            (ImageOp::Pad { .. }, K::Coordinates) => K::PaddedCoordinates,
            (ImageOp::EmitOriginalSize, _) => K::OriginalSize,
            (ImageOp::EmitTransformedSize, K::Image | K::Scaled | K::Tiles | K::ScaledTiles) => {
                K::TransformedSize
            }
            (ImageOp::EmitValidityMask, K::Tiles | K::ScaledTiles | K::Patches | K::Rows | K::PaddedRows) => {
                K::Mask
            }
            (ImageOp::EmitPatchCoordinates, K::Patches | K::Rows) => K::Coordinates,
            (ImageOp::EmitPatchCoordinates, K::PaddedRows) => K::PaddedCoordinates,
            (ImageOp::EmitGridCoordinates, K::Patches | K::Rows | K::PaddedRows) => K::Grid,
            _ => return Err(format!("{} cannot be done with {}", op.name(), kind.name())),
        };
        if matches!(op, ImageOp::EmitPatchCoordinates) && self.is_tiled(input) {
            return Err("coordinates of patches of tiles are not defined".to_owned());
        }
        Ok(self.push(op, Some(input), made))
    }

    fn is_tiled(&self, mut value: usize) -> bool {
        loop {
            match self.steps.get(value) {
                Some(Step {
                    op: ImageOp::Tile(_), ..
                }) => return true,
                Some(Step {
                    input: Some(input), ..
                }) => value = *input,
                _ => return false,
            }
        }
    }

    /// Tiles have a size of their own: of a resize before them only the filter counts.
    fn add_tiles(&mut self, mut tiling: Tiling, input: usize) -> usize {
        let mut source = input;
        if let Some(Step {
            op: ImageOp::Resize { filter, .. },
            input: Some(before),
        }) = self.steps.get(input)
        {
            tiling.filter = *filter;
            source = *before;
        }
        self.push(ImageOp::Tile(tiling), Some(source), Kind::Tiles)
    }

    /// The value that an output without a source is made of.
    fn implied(&mut self, content: Content) -> Result<usize, String> {
        let last = |kinds: &[Kind]| self.kinds.iter().rposition(|kind| kinds.contains(kind));
        let pixels = [
            Kind::Image,
            Kind::Scaled,
            Kind::Tiles,
            Kind::ScaledTiles,
            Kind::Patches,
            Kind::Rows,
            Kind::PaddedRows,
        ];
        let patches = [Kind::Patches, Kind::Rows, Kind::PaddedRows];
        let (op, of) = match content {
            Content::Pixels => {
                return last(&pixels).ok_or_else(|| "nothing makes pixels".to_owned());
            }
            Content::PatchCoordinates => (ImageOp::EmitPatchCoordinates, last(&patches)),
            Content::GridDimensions => (ImageOp::EmitGridCoordinates, last(&patches)),
            Content::OriginalSize => (ImageOp::EmitOriginalSize, Some(0)),
            Content::TransformedSize => {
                let images = [Kind::Image, Kind::Scaled, Kind::Tiles, Kind::ScaledTiles];
                (ImageOp::EmitTransformedSize, last(&images))
            }
            Content::ValidityMask => {
                let tiles = [Kind::Tiles, Kind::ScaledTiles];
                (ImageOp::EmitValidityMask, last(&patches).or_else(|| last(&tiles)))
            }
        };
        let of = of.ok_or_else(|| format!("{} needs patches, and nothing makes any", content.name()))?;
        self.add_one(op, of)
    }
}
