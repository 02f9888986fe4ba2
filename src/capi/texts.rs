//! Vectors and classes of texts.

use std::ffi::c_char;

use crate::component::{ComponentTensor, DataType, TensorError};
use crate::pipeline::{Pipeline, PipelineError, TextRows};

use super::cancel::{self, oxp_cancel};
use super::error::oxp_error;
use super::failure::{Failure, Result};
use super::guard::guard;
use super::handle;
use super::outputs::{OutputsObject, oxp_outputs};
use super::pipeline::{PipelineObject, oxp_pipeline};
use super::status::oxp_status;
use super::strings::{NUL_TERMINATED, Out, array, copy_text, text};

/// The vector of each text, for a package that says how its outputs become one: a
/// sentence-transformers folder, or the section "embedding" of inference_metadata. `texts` are
/// `count` strings, `text_lens` their lengths in bytes; NULL for text_lens means that all end with a
/// NUL. `outputs` gets one output, "embeddings", float32 [count, width]; free it with
/// oxp_outputs_free. Texts are run together, padded, where the graph takes a mask and any number of
/// them, with the results of each alone. Of a text with more tokens than the package says that are
/// read (max_seq_length of a sentence-transformers folder or of the section, else the truncation of
/// tokenizer.json) the first are read, special tokens included; see the option "long_texts" of
/// pipelines. `cancel` may be NULL.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (the package does not say how; it says no such number, and a text
/// has more tokens than the model takes), OXP_ERR_INVALID_STATE (a text without tokens), OXP_ERR_UNSUPPORTED (no tokenizer),
/// OXP_ERR_TOKENIZER, OXP_ERR_RUN_FAILED, OXP_ERR_OUT_OF_MEMORY, OXP_ERR_CANCELLED,
/// OXP_ERR_INVALID_UTF8, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_embed(
    pipeline: *const oxp_pipeline,
    texts: *const *const c_char,
    text_lens: *const u64,
    count: u64,
    outputs: *mut *mut oxp_outputs,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_embed", err, || {
            let out = Out::new(outputs, std::ptr::null_mut(), "outputs")?;
            let pipeline = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            let texts = strings(texts, text_lens, count)?;
            let made = rows(&pipeline.pipeline, &texts, cancel, "embeddings", Pipeline::embed)?;
            out.set(handle::create(made));
            Ok(())
        })
    }
}

/// The score of each class for each text, for a classifier. As oxp_pipeline_embed; the output is
/// "scores", float32 [count, classes], the classes in the order of oxp_pipeline_label_copy. The
/// scores are probabilities by softmax, or one for each class by sigmoid, or plain numbers, as
/// problem_type says.
///
/// Errors: as oxp_pipeline_embed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_classify(
    pipeline: *const oxp_pipeline,
    texts: *const *const c_char,
    text_lens: *const u64,
    count: u64,
    outputs: *mut *mut oxp_outputs,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_classify", err, || {
            let out = Out::new(outputs, std::ptr::null_mut(), "outputs")?;
            let pipeline = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            let texts = strings(texts, text_lens, count)?;
            let made = rows(&pipeline.pipeline, &texts, cancel, "scores", Pipeline::classify)?;
            out.set(handle::create(made));
            Ok(())
        })
    }
}

/// How many classes have names; 0 where the package names none.
///
/// Errors: OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_get_label_count(
    pipeline: *const oxp_pipeline,
    count: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_get_label_count", err, || {
            let count = Out::new(count, 0, "count")?;
            let pipeline = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            count.set(pipeline.pipeline.labels().len() as u64);
            Ok(())
        })
    }
}

/// The name of the class at `index`, by the rule of strings out.
///
/// Errors: OXP_ERR_OUT_OF_RANGE, OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER,
/// OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_label_copy(
    pipeline: *const oxp_pipeline,
    index: u64,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_label_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let pipeline = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            let label = super::ports::element(pipeline.pipeline.labels(), index, "labels")?;
            copy_text(label, buffer, capacity, &needed)
        })
    }
}

/// Strings of a caller's arrays.
///
/// # Safety
/// The caller's promise (see mod.rs); the result lives no longer than the call.
unsafe fn strings<'a>(
    texts: *const *const c_char,
    text_lens: *const u64,
    count: u64,
) -> Result<Vec<&'a str>> {
    // SAFETY: the caller's promise.
    unsafe {
        let pointers = array(texts, count, "texts")?;
        let lens = match text_lens.is_null() {
            true => vec![NUL_TERMINATED; pointers.len()],
            false => array(text_lens, count, "text_lens")?,
        };
        let pairs = pointers.into_iter().zip(lens).enumerate();
        pairs
            .map(|(index, (pointer, len))| text(pointer, len, &format!("text {index}")))
            .collect()
    }
}

type Read =
    fn(&Pipeline, &[&str], &crate::component::RunControl) -> std::result::Result<TextRows, PipelineError>;

fn rows(
    pipeline: &Pipeline,
    texts: &[&str],
    cancel: *const oxp_cancel,
    name: &str,
    read: Read,
) -> Result<OutputsObject> {
    let control = cancel::control(cancel, None)?;
    cancel::check(&control)?;
    let made = read(pipeline, texts, &control)?;
    let shape = [texts.len() as i64, made.width as i64];
    let bytes: Vec<u8> = made.values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let tensor = ComponentTensor::from_raw(DataType::Float32, &shape, &bytes);
    let tensor = tensor.map_err(|error: TensorError| Failure::tensor(name, &error))?;
    Ok(OutputsObject::new(vec![(name.to_owned(), tensor)]))
}
