//! Decoders of images and sound.

use oxpipe::media::Work;
use oxpipe::media::audio::Sound;
use oxpipe::media::image::RgbImage;

use crate::input::{control, runtime};

pub fn image(data: &[u8]) {
    let work = Work::new(&control());
    if let Ok(image) = RgbImage::decode(data, &work) {
        assert_eq!(image.bytes().len(), image.width() * image.height() * 3);
    }
    // A thread whose call has ended before it still holds memory; the last runtime waits for it.
    drop(runtime());
}

pub fn audio(data: &[u8]) {
    let work = Work::new(&control());
    if let Ok(sound) = Sound::decode(data, &work) {
        assert!(sound.rate() > 0);
    }
}
