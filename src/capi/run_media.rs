//! Images and sound that go into a run, for packages that say what becomes of them.

use std::ffi::c_void;

use crate::media::Work;
use crate::media::audio::Sound;
use crate::media::image::RgbImage;
use crate::pipeline::PipelineError;

use super::cancel::oxp_cancel;
use super::error::oxp_error;
use super::guard::guard;
use super::handle;
use super::run::{RunObject, oxp_run};
use super::status::oxp_status;
use super::strings::{array, bytes};

/// Adds an image to those of the run: a JPEG, PNG, WebP or BMP file of `data_len` bytes at
/// `data`. What the package's preprocessing.image makes of all images is set at the inputs
/// that it names, where oxp_run_get_tensor shows it. Images come in the order of their
/// placeholders in the prompt, and before it: where the package has pipeline.vision, text and
/// tokens that are appended afterwards may have a placeholder for each image, which becomes the
/// image's tokens. `cancel` may be NULL; `data` may go after the call.
///
/// Errors: OXP_ERR_UNSUPPORTED (the package has no preprocessing.image; set the tensors with
/// oxp_run_set_input), OXP_ERR_INVALID_MEDIA (no such file, damaged, too large, or not to be
/// preprocessed with the images before), OXP_ERR_SHAPE_MISMATCH, OXP_ERR_OUT_OF_MEMORY,
/// OXP_ERR_CANCELLED, OXP_ERR_DEADLINE_EXCEEDED, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE,
/// OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_add_image(
    run: *mut oxp_run,
    data: *const c_void,
    data_len: u64,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_add_image", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let data = bytes(data, data_len, "data")?;
            let control = state.control(cancel)?;
            let outcome = state.run.add_image_file(data, &control);
            outcome.map_err(|error| state.late(error))
        })
    }
}

/// As oxp_run_add_image, of an image that is decoded: `width * height` pixels at `pixels`, of a
/// byte each for red, green and blue, row by row from the top, without gaps.
///
/// Errors: OXP_ERR_INVALID_MEDIA (also `pixels_len` other than width * height * 3), and as
/// oxp_run_add_image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_add_image_rgb(
    run: *mut oxp_run,
    pixels: *const c_void,
    pixels_len: u64,
    width: u64,
    height: u64,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_add_image_rgb", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let pixels = bytes(pixels, pixels_len, "pixels")?;
            let control = state.control(cancel)?;
            let image = RgbImage::from_raw(width, height, pixels).map_err(PipelineError::from)?;
            let outcome = state.run.add_image(&image, &control);
            outcome.map_err(|error| state.late(error))
        })
    }
}

/// Takes all images of the run back. Their tokens stay; oxp_run_rewind goes back before them.
///
/// Errors: OXP_ERR_UNSUPPORTED (the package has no preprocessing.image),
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_clear_images(run: *mut oxp_run, err: *mut *mut oxp_error) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_clear_images", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            Ok(state.run.clear_images()?)
        })
    }
}

/// Gives the run a sound, in the place of the one that it has: a WAV, FLAC or MP3 file of
/// `data_len` bytes at `data`, of any rate and number of channels. What the package's
/// preprocessing.audio makes of it is set at the inputs that it names. `cancel` may be NULL;
/// `data` may go after the call.
///
/// Errors: OXP_ERR_UNSUPPORTED (the package has no preprocessing.audio), and as
/// oxp_run_add_image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_set_audio(
    run: *mut oxp_run,
    data: *const c_void,
    data_len: u64,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_set_audio", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let data = bytes(data, data_len, "data")?;
            let control = state.control(cancel)?;
            let outcome = state.run.set_audio_file(data, &control);
            outcome.map_err(|error| state.late(error))
        })
    }
}

/// As oxp_run_set_audio, of a sound that is decoded: `sample_count` floats at `samples`, about -1
/// to 1, the first of each of `channels`, the second of each, and so on; `sample_rate` is how
/// many of each there are in a second.
///
/// Errors: OXP_ERR_INVALID_MEDIA (also 0 channels, a rate of 0, or a `sample_count` that is no
/// multiple of the channels), and as oxp_run_set_audio.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_set_audio_samples(
    run: *mut oxp_run,
    samples: *const f32,
    sample_count: u64,
    channels: u32,
    sample_rate: u32,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_set_audio_samples", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let samples = array(samples, sample_count, "samples")?;
            let control = state.control(cancel)?;
            let sound = Sound::from_raw(sample_rate, channels, &samples, &Work::new(&control));
            let sound = sound.map_err(PipelineError::from);
            let outcome = sound.and_then(|sound| state.run.set_audio(&sound, &control));
            outcome.map_err(|error| state.late(error))
        })
    }
}

/// Takes the sound of the run back.
///
/// Errors: OXP_ERR_UNSUPPORTED (the package has no preprocessing.audio),
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_clear_audio(run: *mut oxp_run, err: *mut *mut oxp_error) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_clear_audio", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            Ok(state.run.clear_audio()?)
        })
    }
}
