//! Images: decoding, Pillow's resizing, and the preprocessing program of a package.

mod combine;
mod decode;
mod evaluate;
mod extensions;
mod jpeg;
mod orientation;
mod processor;
mod program;
mod resize;
mod rgb;
mod sizes;
mod tiles;

pub use evaluate::{ImageSummary, Prepared};
pub use processor::ProcessorPorts;
pub use program::{
    Content, FeatureOrder, Fit, ImageOp, ImageOutput, ImageProgram, ImageTransform, PatchOrder, Patchify,
    Thumbnail, Tiling, TilingMode,
};
pub use resize::Filter;
pub use rgb::RgbImage;
