//! Chat templates: a conversation as the text that a model was trained on.

use std::ffi::c_char;
use std::sync::Arc;

use crate::text::{ChatRequest, ChatTemplate, SpecialTokens, ToolCallFormat, ToolCalls, ToolSchemas};

use super::error::oxp_error;
use super::failure::Failure;
use super::guard::{guard, guard_free};
use super::handle::{self, Object, Tag};
use super::pipeline::{PipelineObject, oxp_pipeline};
use super::run::flag;
use super::status::{OXP_ERR_UNSUPPORTED, oxp_status};
use super::strings::{Out, copy_text, optional_text, text};
use super::tokenizer::{TokenizerObject, oxp_tokenizer};

/// A Hugging Face chat template (Jinja). Shared: any thread, any number of calls at once.
pub struct oxp_chat_template {
    _private: [u8; 0],
}

struct TemplateObject(Arc<ChatTemplate>);

impl Object for TemplateObject {
    type Opaque = oxp_chat_template;
    const TAG: Tag = Tag::ChatTemplate;
}

/// Parses a template. `tokenizer`, which may be NULL, gives the special tokens that the
/// template may write (bos_token, eos_token, ...). Free it with oxp_chat_template_free.
///
/// What a template can do is bounded, so that one from anywhere may be used: 128 KiB of
/// source, 4096 operators, names and values in a tag and 1000 elif; when it is rendered,
/// 4,000,000 steps, 200 lists or dicts inside of each other, 200,000 values or 64 MiB of
/// text in one, and 16 MiB of prompt. Beyond that it is an error.
///
/// Errors: OXP_ERR_CHAT_TEMPLATE, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8,
/// OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_chat_template_create(
    source: *const c_char,
    source_len: u64,
    tokenizer: *const oxp_tokenizer,
    chat_template: *mut *mut oxp_chat_template,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_chat_template_create", err, || {
            let out = Out::new(chat_template, std::ptr::null_mut(), "chat_template")?;
            let source = text(source, source_len, "source")?;
            let template = match handle::get_optional::<TokenizerObject>(tokenizer, "tokenizer")? {
                Some(given) => ChatTemplate::new("chat template", source, given.tokenizer.special_tokens())?,
                None => ChatTemplate::new("chat template", source, &SpecialTokens::default())?,
            };
            out.set(handle::create(TemplateObject(Arc::new(template))));
            Ok(())
        })
    }
}

/// The chat template of a pipeline's package, as a handle of its own: free it with
/// oxp_chat_template_free, before or after the pipeline.
///
/// Errors: OXP_ERR_UNSUPPORTED (the package has none), OXP_ERR_INVALID_HANDLE,
/// OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_chat_template_open_pipeline(
    pipeline: *const oxp_pipeline,
    chat_template: *mut *mut oxp_chat_template,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_chat_template_open_pipeline", err, || {
            let out = Out::new(chat_template, std::ptr::null_mut(), "chat_template")?;
            let pipeline = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            let Some(template) = pipeline.pipeline.chat_template() else {
                return Err(Failure::new(
                    OXP_ERR_UNSUPPORTED,
                    "the package has no chat template; make one with oxp_chat_template_create",
                ));
            };
            out.set(handle::create(TemplateObject(template.clone())));
            Ok(())
        })
    }
}

/// Frees a chat template. NULL and what is no live chat template are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_chat_template_free(chat_template: *mut oxp_chat_template) {
    guard_free::<TemplateObject>(chat_template);
}

/// The prompt of a conversation, by the rule of strings out. All arguments are JSON text:
/// `messages` an array of {"role": ..., "content": ...}; `tools`, which may be NULL, an
/// array; `extra`, which may be NULL, an object of further template variables, which win
/// over the others. With `add_generation_prompt` 1 the text ends with the opening of the
/// assistant's answer. Append it with `add_special` 0: the special tokens are in it.
///
/// Errors: OXP_ERR_CHAT_TEMPLATE (the template raised an error or went beyond its bounds),
/// OXP_ERR_INVALID_ARGUMENT (not such JSON), OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER,
/// OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_chat_template_render_copy(
    chat_template: *const oxp_chat_template,
    messages: *const c_char,
    messages_len: u64,
    tools: *const c_char,
    tools_len: u64,
    extra: *const c_char,
    extra_len: u64,
    add_generation_prompt: i32,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_chat_template_render_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let template = handle::get::<TemplateObject>(chat_template, "chat_template")?;
            let request = ChatRequest {
                messages: text(messages, messages_len, "messages")?,
                tools: optional_text(tools, tools_len, "tools")?,
                extra: optional_text(extra, extra_len, "extra")?,
                add_generation_prompt: flag(add_generation_prompt, "add_generation_prompt")?,
            };
            copy_text(&template.0.render(&request)?, buffer, capacity, &needed)
        })
    }
}

/// The calls of tools in an answer, as JSON, by the rule of strings out:
/// {"format": "hermes", "content": text outside of calls, "tool_calls": [{"type": "function",
/// "function": {"name": "f", "arguments": {...}}}], "complete": true}. A call has an "id" if the
/// model gave one. An object of "role" "assistant" with the content and the calls is a message for
/// oxp_chat_template_render_copy.
///
/// `format`, which may be NULL, is how the model writes calls: "hermes" (Hermes, Qwen), "llama3",
/// "pythonic" (Llama 3.2 and 4), "mistral", "deepseek", "function_tag" (Functionary 3.1),
/// "functionary" (3.2), "glm" (4.5 and later). Without it `chat_template`, which may be NULL, shows it, and without that
/// the text does, or there are no calls: "format" is then null. Some models write calls with
/// special tokens: make runs with "skip_special_tokens" "false" for them.
///
/// Qwen3-Coder and GLM write arguments as plain text. What is JSON is taken for that, so that a string
/// "007" is the number 7: oxp_tool_calls_parse_with_tools_copy knows the types.
///
/// With `finished` 0 the text may go on: while it ends inside of a call, "complete" is false and
/// that call is not there yet, nor is an end that may begin one in the content.
///
/// Errors: OXP_ERR_TOOL_CALL (what begins as a call is none), OXP_ERR_INVALID_ARGUMENT (`format`,
/// `finished`), OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8,
/// OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tool_calls_parse_copy(
    chat_template: *const oxp_chat_template,
    format: *const c_char,
    format_len: u64,
    text: *const c_char,
    text_len: u64,
    finished: i32,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tool_calls_parse_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let format = format_of(chat_template, format, format_len)?;
            let tools = ToolSchemas::default();
            let text = self::text(text, text_len, "text")?;
            let calls = ToolCalls::parse(format, &tools, text, flag(finished, "finished")?)?;
            copy_text(&calls.to_json().to_string(), buffer, capacity, &needed)
        })
    }
}

/// As oxp_tool_calls_parse_copy, of a conversation with `tools`: the JSON array that
/// oxp_chat_template_render_copy took. Arguments that the model wrote as plain text have the types of
/// their tools' schemas (type, enum, const, anyOf, oneOf, allOf, $ref); where a schema allows a string
/// and another type that the text is in JSON, it is the other one. Other arguments are as written.
///
/// Errors: as oxp_tool_calls_parse_copy, and OXP_ERR_INVALID_ARGUMENT for `tools` that are no array of
/// tools with names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tool_calls_parse_with_tools_copy(
    chat_template: *const oxp_chat_template,
    format: *const c_char,
    format_len: u64,
    tools: *const c_char,
    tools_len: u64,
    text: *const c_char,
    text_len: u64,
    finished: i32,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tool_calls_parse_with_tools_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let format = format_of(chat_template, format, format_len)?;
            let tools = ToolSchemas::of_json(self::text(tools, tools_len, "tools")?)?;
            let text = self::text(text, text_len, "text")?;
            let calls = ToolCalls::parse(format, &tools, text, flag(finished, "finished")?)?;
            copy_text(&calls.to_json().to_string(), buffer, capacity, &needed)
        })
    }
}

/// The format of that name, or that the template shows.
///
/// # Safety
///
/// As of the functions that call it.
unsafe fn format_of(
    chat_template: *const oxp_chat_template,
    format: *const c_char,
    format_len: u64,
) -> Result<Option<ToolCallFormat>, Failure> {
    // SAFETY: the caller of the export promises it.
    let (template, name) = unsafe {
        (
            handle::get_optional::<TemplateObject>(chat_template, "chat_template")?,
            optional_text(format, format_len, "format")?,
        )
    };
    Ok(match name {
        Some(name) => Some(ToolCallFormat::of_name(name)?),
        None => template.and_then(|template| ToolCallFormat::of_template(template.0.source())),
    })
}
