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
/// `data`, which are read during the call and may go behind it. It is decoded to red, green and
/// blue of 8 bits and turned as its Exif or XMP notes say; transparency and colour profiles are
/// left out, and of an animation the first picture is taken.
///
/// What the package makes of all images of the run together (preprocessing.image, or a
/// preprocessor_config.json) is set at the inputs of components that it names, as
/// oxp_run_set_input would; oxp_pipeline_describe_copy says under "images" which these are, to what
/// size images are brought and which tokens they come to, and oxp_run_get_tensor shows the
/// values. As with other inputs, components that depend on them run again.
///
/// Images stay with the run until oxp_run_clear_images. They come in the order of their
/// placeholders in the prompt, and before it: where the package says what stands for an image
/// (pipeline.vision, or image_token_id and the number of tokens in a config.json), each placeholder
/// in text and tokens that are appended behind this call becomes the tokens of the next image. Once
/// the run has an image, a placeholder without one is an error of the call that appends it, and an
/// image without a placeholder is one of the next step; without any image placeholders stay as they
/// are, and are tokens as others.
///
/// An image has at most 2^26 pixels and 65,535 on a side, and what a package makes of the images
/// takes at most 4 GiB; more is refused before it is made. `cancel`, which may be NULL, and
/// "timeout_ms" of the run end the call within some dozen milliseconds. Large JPEG and WebP files
/// are decoded on a thread of their own, which may go on for a second behind such an end. A call
/// that fails or is ended leaves the run and its images as they were. One thread may
/// use a run at a time; `cancel` may be requested from any.
///
/// Errors: OXP_ERR_UNSUPPORTED (the package does not say what becomes of images; set the tensors
/// with oxp_run_set_input), OXP_ERR_INVALID_MEDIA (no such file, damaged, too large, or not to be
/// preprocessed with the images before), OXP_ERR_SHAPE_MISMATCH (an input does not take what the
/// package makes), OXP_ERR_OUT_OF_MEMORY, OXP_ERR_CANCELLED, OXP_ERR_DEADLINE_EXCEEDED,
/// OXP_ERR_NULL_POINTER (`run`, or `data` with a length), OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
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

/// As oxp_run_add_image, of an image that is decoded: `height` rows from the top of `width` pixels
/// each, uint8 [height, width, 3] without gaps, red, green and blue from 0 to 255. `pixels_len` is
/// its bytes, width * height * 3; they are copied during the call and may go behind it.
///
/// Errors: OXP_ERR_INVALID_MEDIA (also `pixels_len` other than width * height * 3, or a side of
/// 0), and as oxp_run_add_image.
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

/// Takes all images of the run back, and the values that they have set. Their tokens stay, and the
/// run may go on with these and without images. For other images, go back before the tokens with
/// oxp_run_rewind and append a prompt with placeholders again: as long as tokens of images that were
/// taken back are there, appending and running with others is OXP_ERR_INVALID_STATE. Without
/// images nothing happens.
///
/// Errors: OXP_ERR_UNSUPPORTED (the package does not say what becomes of images),
/// OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
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

/// Gives the run a sound, in the place of the one that it has: a WAV (PCM of 8 to 32 bits, floats of
/// 32 or 64), FLAC or MP3 file of `data_len` bytes at `data`, which are read during the call and
/// may go behind it. Up to 255 channels are mixed down to one, their mean, and the package
/// resamples to its own rate. Of an MP3 that is cut off it is the sound of the whole frames.
///
/// What the package makes of it (preprocessing.audio, a preprocessor_config.json or an
/// audio_processor_config.json) is set at the inputs of components that it names, as
/// oxp_run_set_input would; oxp_pipeline_describe_copy says under "audio" which these are and what
/// rate in Hz the model takes. It stays until another sound or oxp_run_clear_audio. What is longer
/// than the model takes is cut or refused, as the package says.
///
/// A sound has at most 2^28 samples of each channel and a rate from 1 to 1,000,000 Hz. `cancel`, memory, threads and
/// failures are as with oxp_run_add_image.
///
/// Errors: OXP_ERR_UNSUPPORTED (the package does not say what becomes of sound),
/// OXP_ERR_INVALID_MEDIA (no such file, damaged, too long, or not to be preprocessed), and the
/// others of oxp_run_add_image.
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

/// As oxp_run_set_audio, of a sound that is decoded: `sample_count` floats at `samples`, float32
/// [sample_count / channels, channels], about -1 to 1: the first sample of each channel, the second of
/// each, and so on. `sample_count` counts those of all channels, from 1 to 255 `channels`;
/// `sample_rate` is how many each has in a second, in Hz. They are copied during the call and may
/// go behind it.
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

/// Takes the sound of the run back, and the values that it has set; tokens stay. Without a sound
/// nothing happens.
///
/// Errors: OXP_ERR_UNSUPPORTED (the package does not say what becomes of sound),
/// OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
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
