//! Images and sound that the host gives to a run, and the inputs that they feed.

use std::borrow::Cow;
use std::ops::Range;

use crate::component::{ComponentError, ComponentErrorKind, RunControl, TensorView, check_value};
use crate::media::audio::{AudioProgram, Sound};
use crate::media::image::{ImageProgram, ImageSummary, Prepared, RgbImage};
use crate::media::{MediaError, PortLayout, Tensor, Work};
use crate::package::{MediaInput, PipelineSpec};

use super::pictures::Picture;
use super::request::{Settable, same};
use super::saved::wire::{self, Wire};
use super::value::Value;
use super::{PipelineError, RequestError, Run};

/// Tokens, and where those of images are.
type Placed<'t> = (Cow<'t, [i32]>, Vec<Range<usize>>);

/// The images of a run.
#[derive(Clone, Default)]
pub(super) struct Media {
    images: Vec<Prepared>,
    /// Where images are among the run's tokens, those first that were taken back.
    places: Vec<Place>,
}

#[derive(Clone)]
struct Place {
    tokens: Range<usize>,
    /// `None` where the tokens are not one for each place of a grid.
    picture: Option<Picture>,
    /// Whether the image was taken back, though its tokens stay.
    taken_back: bool,
}

impl Media {
    /// Counts, writes or reads where images are, and what they came to. What they were made of is
    /// with the inputs of the run.
    pub fn saved(&mut self, wire: &mut Wire<'_>) -> wire::Result<()> {
        let mut summaries: Vec<ImageSummary> = self.images.iter().map(|image| image.summary).collect();
        wire.list(&mut summaries, 50, |wire, summary| {
            let ImageSummary { tiles, patches } = summary;
            let (rows, columns) = tiles.unwrap_or_default();
            let ([frames, height, width], merge) = patches.unwrap_or_default();
            let mut numbers = [rows, columns, frames, height, width, merge];
            let mut there = [tiles.is_some(), patches.is_some()];
            there.iter_mut().try_for_each(|there| wire.flag(there))?;
            numbers.iter_mut().try_for_each(|number| wire.usize(number))?;
            let [rows, columns, frames, height, width, merge] = numbers;
            // What a grid comes to is counted in tokens.
            let [has_tiles, has_patches] = there;
            let fits = |sides: &[usize]| {
                let pieces = sides.iter().try_fold(1usize, |all, &side| all.checked_mul(side));
                pieces.is_some_and(|pieces| (1..=1 << 24).contains(&pieces))
            };
            if has_tiles && !fits(&[rows, columns]) || has_patches && !fits(&[frames, height, width]) {
                let sides = [rows, columns, frames, height, width];
                return wire::wrong(format!("an image of {sides:?} pieces"));
            }
            *tiles = has_tiles.then_some((rows, columns));
            *patches = has_patches.then_some(([frames, height, width], merge));
            Ok(())
        })?;
        let count = wire.count(self.places.len(), 42)?;
        if wire.reads() {
            self.images = summaries.into_iter().map(Prepared::of_summary).collect();
            self.places.clear();
            let place = || Place {
                tokens: 0..0,
                picture: None,
                taken_back: false,
            };
            self.places.resize_with(count, place);
        }
        for place in &mut self.places {
            wire.usize(&mut place.tokens.start)?;
            wire.usize(&mut place.tokens.end)?;
            wire.flag(&mut place.taken_back)?;
            let mut sides = place.picture.map(Picture::sides).unwrap_or_default();
            let mut there = place.picture.is_some();
            wire.flag(&mut there)?;
            sides.iter_mut().try_for_each(|side| wire.usize(side))?;
            if wire.reads() && there {
                place.picture = Picture::new(&place.tokens, sides);
                if place.picture.is_none() {
                    return wire::wrong(format!(
                        "{sides:?} are not the sides of tokens {:?}",
                        place.tokens
                    ));
                }
            }
        }
        match self.placed() > self.images.len() {
            true => wire::wrong("it has more places of images than images"),
            false => Ok(()),
        }
    }

    /// Why places are none of so many tokens.
    pub fn check(&self, tokens: usize) -> Result<(), String> {
        let outside = |place: &&Place| place.tokens.start > place.tokens.end || place.tokens.end > tokens;
        if let Some(place) = self.places.iter().find(outside) {
            return Err(format!("an image at tokens {:?} of {tokens}", place.tokens));
        }
        let mut pairs = self.places.iter().zip(self.places.iter().skip(1));
        match pairs.find(|(one, next)| one.tokens.end > next.tokens.start) {
            None => Ok(()),
            Some((one, next)) => Err(format!(
                "an image at tokens {:?} behind one at {:?}",
                next.tokens, one.tokens
            )),
        }
    }

    fn placed(&self) -> usize {
        self.places.iter().filter(|place| !place.taken_back).count()
    }

    /// How many images have no place among the tokens yet.
    fn waiting(&self) -> usize {
        self.images.len().saturating_sub(self.placed())
    }

    /// Tokens are appended at `at`, those of the next images in `ranges` of them.
    pub fn place(&mut self, at: usize, ranges: &[Range<usize>]) {
        let next = self.placed();
        for (image, range) in self.images.iter().skip(next).zip(ranges) {
            let tokens = range.start + at..range.end + at;
            let picture = image
                .summary
                .merged()
                .and_then(|sides| Picture::new(&tokens, sides));
            self.places.push(Place {
                tokens,
                picture,
                taken_back: false,
            });
        }
    }

    /// What lies on a grid among the tokens, also of images that were taken back.
    pub fn pictures(&self) -> Vec<Picture> {
        self.places.iter().filter_map(|place| place.picture).collect()
    }

    /// An error where images would be read at the tokens of others.
    fn refuse_taken_back(&self) -> Result<(), RequestError> {
        let earlier = self.places.iter().find(|place| place.taken_back);
        match earlier {
            Some(place) if !self.images.is_empty() => Err(RequestError::EarlierImages {
                start: place.tokens.start,
                end: place.tokens.end,
            }),
            _ => Ok(()),
        }
    }

    /// Tokens from `len` on go; an image goes as a whole.
    pub fn check_rewind(&self, len: usize) -> Result<(), RequestError> {
        let mut ranges = self.places.iter().map(|place| &place.tokens);
        match ranges.find(|range| range.start < len && len < range.end) {
            None => Ok(()),
            Some(range) => Err(RequestError::InvalidSetting {
                what: "rewind",
                message: format!(
                    "{len} tokens end inside of an image, which is tokens {} to {}; rewind to one of its ends",
                    range.start, range.end
                ),
            }),
        }
    }

    pub fn truncate(&mut self, len: usize) {
        self.places.retain(|place| place.tokens.end <= len);
    }
}

impl Run {
    /// Adds an encoded image, JPEG, PNG, WebP or BMP, to the images of the run; see
    /// [`add_image`](Self::add_image).
    pub fn add_image_file(&mut self, encoded: &[u8], control: &RunControl) -> Result<(), PipelineError> {
        image_program(&self.pipeline.shared().spec)?;
        let work = self.media_work(control);
        let image = RgbImage::decode(encoded, &work)?;
        self.prepare_image(&image, &work)
    }

    /// Adds an image to those of the run: what the package's `preprocessing.image` makes of all of
    /// them is set at the inputs that it names. Images come in the order of their placeholders
    /// in the prompt, and before the text that has these: where the package says how
    /// (`pipeline.vision`), each placeholder becomes the tokens of the next image.
    pub fn add_image(&mut self, image: &RgbImage, control: &RunControl) -> Result<(), PipelineError> {
        self.prepare_image(image, &self.media_work(control))
    }

    fn prepare_image(&mut self, image: &RgbImage, work: &Work) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let (program, ports) = image_program(&pipeline.shared().spec)?;
        if !self.media.images.iter().all(Prepared::is_whole) {
            return Err(RequestError::InvalidSetting {
                what: "images",
                message: "a loaded run has its images' tensors, but not the images: another one cannot be \
                          put beside them. Clear the images, rewind before them and add all again"
                    .to_owned(),
            }
            .into());
        }
        let prepared = program.prepare(image, work)?;
        let layouts: Vec<PortLayout> = ports.iter().map(|port| port.layout.clone()).collect();
        let all: Vec<&Prepared> = self.media.images.iter().chain([&prepared]).collect();
        let tensors = program.combine(&all, &layouts, work)?;
        self.set_media(ports, &tensors)?;
        self.media.images.push(prepared);
        Ok(())
    }

    /// Takes all images back. Their tokens stay; rewind before them to give other ones: as long as
    /// they are there, other images are refused by whatever appends or runs.
    pub fn clear_images(&mut self) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let (_, ports) = image_program(&pipeline.shared().spec)?;
        for port in ports {
            self.clear_media(port);
        }
        self.media.images.clear();
        for place in &mut self.media.places {
            place.taken_back = true;
        }
        Ok(())
    }

    /// Takes an encoded sound, WAV, FLAC or MP3; see [`set_audio`](Self::set_audio).
    pub fn set_audio_file(&mut self, encoded: &[u8], control: &RunControl) -> Result<(), PipelineError> {
        audio_program(&self.pipeline.shared().spec)?;
        let work = self.media_work(control);
        let sound = Sound::decode(encoded, &work)?;
        self.prepare_sound(&sound, &work)
    }

    /// Sets what the package's `preprocessing.audio` makes of a sound at the inputs that it names,
    /// in the place of what another sound has set there.
    pub fn set_audio(&mut self, sound: &Sound, control: &RunControl) -> Result<(), PipelineError> {
        self.prepare_sound(sound, &self.media_work(control))
    }

    /// The bounds of decoding and preprocessing one image or sound.
    fn media_work(&self, control: &RunControl) -> Work {
        match self.settings.media_bytes {
            Some(most) => Work::within(control, most),
            None => Work::new(control),
        }
    }

    fn prepare_sound(&mut self, sound: &Sound, work: &Work) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let (program, ports) = audio_program(&pipeline.shared().spec)?;
        let layouts: Vec<PortLayout> = ports.iter().map(|port| port.layout.clone()).collect();
        let tensors = program.run(sound, &layouts, work)?;
        self.set_media(ports, &tensors)
    }

    /// Takes the sound back.
    pub fn clear_audio(&mut self) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let (_, ports) = audio_program(&pipeline.shared().spec)?;
        for port in ports {
            self.clear_media(port);
        }
        Ok(())
    }

    /// Sets the inputs of a program, all or none of them.
    fn set_media(&mut self, ports: &[MediaInput], tensors: &[Tensor]) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let _entered = self.pool.enter();
        let mut changes = Vec::new();
        for (at, tensor) in ports.iter().zip(tensors) {
            let Some(component) = pipeline.shared().spec.components.get(at.component) else {
                continue;
            };
            let Some(port) = component.io.inputs.get(at.input) else {
                continue;
            };
            let in_component = |kind| ComponentError::new(component.name.as_str(), kind);
            let bad = |source| {
                in_component(ComponentErrorKind::BadTensor {
                    port: port.name.clone(),
                    source,
                })
            };
            let view = TensorView::new(tensor.dtype, &tensor.shape, &tensor.bytes).map_err(bad)?;
            check_value(port, view.dtype(), view.shape()).map_err(in_component)?;
            let before = self.pool.given(settable(at));
            if before.is_some_and(|before| same(before, view)) {
                continue;
            }
            let mut value = Value::default();
            value
                .copy_from(view)
                .map_err(|error| self.pool.explained(bad(error).into()))?;
            changes.push((at, value));
        }
        for (at, value) in changes {
            if let Some(slot) = self.pool.given_mut(settable(at)) {
                *slot = value;
            }
            self.value_changed(at.component);
        }
        Ok(())
    }

    fn clear_media(&mut self, at: &MediaInput) {
        if self.pool.given(settable(at)).is_some() {
            if let Some(slot) = self.pool.given_mut(settable(at)) {
                slot.clear();
            }
            self.value_changed(at.component);
        }
    }

    /// The tokens with the placeholders of images replaced, and where those of each image are.
    pub(super) fn place_images<'t>(&self, tokens: &'t [i32]) -> Result<Placed<'t>, RequestError> {
        let spec = &self.pipeline.shared().spec;
        match &spec.media.placeholders {
            // Without images of ours the prompt is as its author wants it.
            Some(placeholders) if !self.media.images.is_empty() => {
                self.media.refuse_taken_back()?;
                let waiting: Vec<ImageSummary> = self
                    .media
                    .images
                    .iter()
                    .skip(self.media.placed())
                    .map(|image| image.summary)
                    .collect();
                let placed = placeholders.expand(tokens, &waiting);
                let (tokens, ranges) = placed.map_err(|message| RequestError::InvalidSetting {
                    what: "images",
                    message,
                })?;
                Ok((Cow::Owned(tokens), ranges))
            }
            _ => Ok((Cow::Borrowed(tokens), Vec::new())),
        }
    }

    /// An error when an image has no place in the prompt, or stands at the place of another.
    pub(super) fn refuse_waiting_images(&self) -> Result<(), RequestError> {
        self.media.refuse_taken_back()?;
        let placeholders = self.pipeline.shared().spec.media.placeholders.as_ref();
        match (placeholders, self.media.waiting()) {
            (None, _) | (_, 0) => Ok(()),
            (Some(placeholders), waiting) => Err(RequestError::WaitingImages {
                waiting,
                placeholder: placeholders.placeholder,
            }),
        }
    }
}

fn settable(at: &MediaInput) -> Settable {
    Settable {
        component: at.component,
        input: at.input,
        uncond: false,
    }
}

type ImageInputs<'s> = (&'s ImageProgram, &'s [MediaInput]);

fn image_program(spec: &PipelineSpec) -> Result<ImageInputs<'_>, RequestError> {
    match &spec.media.image {
        Some((program, ports)) => Ok((program, ports)),
        None => Err(RequestError::NoPreprocessing {
            kind: "images",
            section: "preprocessing.image",
        }),
    }
}

type AudioInputs<'s> = (&'s AudioProgram, &'s [MediaInput]);

fn audio_program(spec: &PipelineSpec) -> Result<AudioInputs<'_>, RequestError> {
    match &spec.media.audio {
        Some((program, ports)) => Ok((program, ports)),
        None => Err(RequestError::NoPreprocessing {
            kind: "sounds",
            section: "preprocessing.audio",
        }),
    }
}

impl From<MediaError> for RequestError {
    fn from(error: MediaError) -> Self {
        RequestError::Media(error)
    }
}

impl From<MediaError> for PipelineError {
    fn from(error: MediaError) -> Self {
        match error {
            MediaError::OutOfMemory { bytes } => ComponentErrorKind::OutOfMemory {
                bytes,
                what: "an image or a sound".to_owned(),
            }
            .into(),
            MediaError::OverMemoryLimit { bytes, used, limit } => ComponentErrorKind::OverMemoryLimit {
                bytes,
                what: "an image or a sound".to_owned(),
                of: "decoding and preprocessing it",
                used,
                limit,
                option: "media_bytes",
            }
            .into(),
            MediaError::Cancelled => ComponentErrorKind::Cancelled.into(),
            MediaError::DeadlineExceeded => ComponentErrorKind::DeadlineExceeded.into(),
            error => PipelineError::Request(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(places: &[Range<usize>]) -> Media {
        let places = places.iter().map(|tokens| Place {
            tokens: tokens.clone(),
            picture: None,
            taken_back: false,
        });
        Media {
            images: Vec::new(),
            places: places.collect(),
        }
    }

    #[test]
    fn places_are_in_order_and_apart() {
        assert_eq!(placed(&[1..3, 3..5]).check(5), Ok(()));
        for places in [&[1..3, 2..5][..], &[3..5, 1..3], &[1..3, 4..6]] {
            assert!(placed(places).check(5).is_err(), "{places:?}");
        }
    }
}
