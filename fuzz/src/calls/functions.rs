// Generated from include/oxpipe.h; do not edit. `OXP_UPDATE_HEADER=1 cargo test --test fuzz_corpus` writes
// it anew.

unsafe extern "C" {
fn oxp_abi_version() -> u32;
fn oxp_version_copy(p0: usize, p1: u64, p2: usize, p3: usize) -> i32;
fn oxp_struct_size(p0: u32) -> u32;
fn oxp_status_name(p0: i32) -> usize;
fn oxp_error_get_code(p0: usize) -> i32;
fn oxp_error_get_message(p0: usize, p1: usize) -> usize;
fn oxp_error_get_component(p0: usize, p1: usize) -> usize;
fn oxp_error_get_port(p0: usize, p1: usize) -> usize;
fn oxp_error_get_node(p0: usize, p1: usize) -> usize;
fn oxp_error_get_file(p0: usize, p1: usize) -> usize;
fn oxp_error_free(p0: usize);
fn oxp_dtype_size(p0: u32) -> u64;
fn oxp_dtype_name(p0: u32) -> usize;
fn oxp_cancel_create(p0: usize, p1: usize) -> i32;
fn oxp_cancel_request(p0: usize, p1: usize) -> i32;
fn oxp_cancel_reset(p0: usize, p1: usize) -> i32;
fn oxp_cancel_is_requested(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_cancel_free(p0: usize);
fn oxp_options_create(p0: u32, p1: usize, p2: usize) -> i32;
fn oxp_options_set(p0: usize, p1: usize, p2: u64, p3: usize, p4: u64, p5: usize) -> i32;
fn oxp_options_free(p0: usize);
fn oxp_runtime_create(p0: usize, p1: usize, p2: usize, p3: usize, p4: usize, p5: usize) -> i32;
fn oxp_backend_is_built_in(p0: u32, p1: usize, p2: usize) -> i32;
fn oxp_runtime_free(p0: usize);
fn oxp_session_open(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize, p5: usize, p6: usize) -> i32;
fn oxp_session_open_memory(p0: usize, p1: usize, p2: u64, p3: usize, p4: u64, p5: usize, p6: usize, p7: usize, p8: usize) -> i32;
fn oxp_session_free(p0: usize);
fn oxp_session_get_input_count(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_session_get_output_count(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_session_get_input(p0: usize, p1: u64, p2: usize, p3: usize) -> i32;
fn oxp_session_get_output(p0: usize, p1: u64, p2: usize, p3: usize) -> i32;
fn oxp_session_get_metadata_count(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_session_get_metadata(p0: usize, p1: u64, p2: usize, p3: usize, p4: usize, p5: usize, p6: usize) -> i32;
fn oxp_session_get_backend(p0: usize, p1: usize, p2: usize, p3: usize, p4: usize) -> i32;
fn oxp_session_get_stats(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_session_output_bound(p0: usize, p1: usize, p2: u64, p3: usize, p4: u64, p5: usize) -> i32;
fn oxp_session_run(p0: usize, p1: usize, p2: u64, p3: usize, p4: u64, p5: usize, p6: usize) -> i32;
fn oxp_session_run_alloc(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize, p5: u64, p6: usize, p7: usize, p8: usize) -> i32;
fn oxp_outputs_get_count(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_outputs_get_at(p0: usize, p1: u64, p2: usize, p3: usize, p4: usize, p5: usize) -> i32;
fn oxp_outputs_get(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_outputs_free(p0: usize);
fn oxp_pipeline_open(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize, p5: usize, p6: usize, p7: usize, p8: usize) -> i32;
fn oxp_pipeline_open_memory(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize, p5: usize, p6: usize, p7: usize, p8: usize) -> i32;
fn oxp_pipeline_estimate_copy(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize, p5: usize, p6: u64, p7: usize, p8: usize) -> i32;
fn oxp_pipeline_free(p0: usize);
fn oxp_pipeline_get_info(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_pipeline_get_component(p0: usize, p1: u64, p2: usize, p3: usize) -> i32;
fn oxp_pipeline_get_input(p0: usize, p1: usize, p2: u64, p3: u64, p4: usize, p5: usize) -> i32;
fn oxp_pipeline_get_output(p0: usize, p1: usize, p2: u64, p3: u64, p4: usize, p5: usize) -> i32;
fn oxp_pipeline_describe_copy(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_run_create(p0: usize, p1: usize, p2: usize, p3: usize) -> i32;
fn oxp_run_free(p0: usize);
fn oxp_run_append_tokens(p0: usize, p1: usize, p2: u64, p3: usize) -> i32;
fn oxp_run_append_text(p0: usize, p1: usize, p2: u64, p3: i32, p4: usize, p5: usize) -> i32;
fn oxp_run_step(p0: usize, p1: usize, p2: usize, p3: usize) -> i32;
fn oxp_run_generate(p0: usize, p1: usize, p2: usize, p3: usize, p4: usize, p5: usize) -> i32;
fn oxp_run_forward(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_run_force_token(p0: usize, p1: i32, p2: usize, p3: usize) -> i32;
fn oxp_run_rewind(p0: usize, p1: u64, p2: usize) -> i32;
fn oxp_run_pending_text_copy(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_run_finish(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_run_execute(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_run_set_constraint(p0: usize, p1: u32, p2: usize, p3: u64, p4: usize) -> i32;
fn oxp_run_fork(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_run_set_seed(p0: usize, p1: u64, p2: usize) -> i32;
fn oxp_run_set_draft(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_run_save_copy(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_run_load(p0: usize, p1: usize, p2: usize, p3: u64, p4: usize, p5: usize) -> i32;
fn oxp_batch_create(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_batch_free(p0: usize);
fn oxp_batch_add(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_batch_remove(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_batch_get_count(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_batch_step(p0: usize, p1: usize, p2: usize, p3: usize, p4: usize, p5: usize) -> i32;
fn oxp_run_set_input(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_run_clear_input(p0: usize, p1: usize, p2: u64, p3: usize) -> i32;
fn oxp_run_get_tensor(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_run_copy_tensor(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_run_get_logits(p0: usize, p1: usize, p2: usize, p3: usize) -> i32;
fn oxp_run_tokens_copy(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_run_get_stats(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_run_set_logits_hook(p0: usize, p1: usize, p2: usize, p3: usize, p4: usize) -> i32;
fn oxp_run_set_sampler(p0: usize, p1: usize, p2: usize, p3: usize, p4: usize) -> i32;
fn oxp_run_get_logprobs(p0: usize, p1: u32, p2: usize, p3: usize, p4: usize, p5: usize) -> i32;
fn oxp_run_get_sequence_count(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_run_sequence_copy(p0: usize, p1: u64, p2: usize, p3: u64, p4: usize, p5: usize, p6: usize) -> i32;
fn oxp_run_add_image(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_run_add_image_rgb(p0: usize, p1: usize, p2: u64, p3: u64, p4: u64, p5: usize, p6: usize) -> i32;
fn oxp_run_clear_images(p0: usize, p1: usize) -> i32;
fn oxp_run_set_audio(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_run_set_audio_samples(p0: usize, p1: usize, p2: u64, p3: u32, p4: u32, p5: usize, p6: usize) -> i32;
fn oxp_run_clear_audio(p0: usize, p1: usize) -> i32;
fn oxp_tokenizer_open(p0: usize, p1: u64, p2: usize, p3: usize) -> i32;
fn oxp_tokenizer_open_memory(p0: usize, p1: u64, p2: usize, p3: u64, p4: usize, p5: usize) -> i32;
fn oxp_tokenizer_open_pipeline(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_tokenizer_free(p0: usize);
fn oxp_tokenizer_encode_copy(p0: usize, p1: usize, p2: u64, p3: i32, p4: usize, p5: u64, p6: usize, p7: usize) -> i32;
fn oxp_tokenizer_decode_copy(p0: usize, p1: usize, p2: u64, p3: i32, p4: usize, p5: u64, p6: usize, p7: usize) -> i32;
fn oxp_tokenizer_get_vocab_size(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_tokenizer_get_special(p0: usize, p1: u32, p2: usize, p3: usize, p4: usize, p5: usize) -> i32;
fn oxp_tokenizer_token_copy(p0: usize, p1: i32, p2: usize, p3: u64, p4: usize, p5: usize) -> i32;
fn oxp_tokenizer_find_token(p0: usize, p1: usize, p2: u64, p3: usize, p4: usize) -> i32;
fn oxp_tokenizer_is_special(p0: usize, p1: i32, p2: usize, p3: usize) -> i32;
fn oxp_decode_stream_create(p0: usize, p1: i32, p2: usize, p3: usize) -> i32;
fn oxp_decode_stream_push(p0: usize, p1: i32, p2: usize, p3: usize, p4: usize) -> i32;
fn oxp_decode_stream_flush(p0: usize, p1: usize, p2: usize, p3: usize) -> i32;
fn oxp_decode_stream_get_span(p0: usize, p1: usize, p2: usize, p3: usize, p4: usize) -> i32;
fn oxp_decode_stream_free(p0: usize);
fn oxp_chat_template_create(p0: usize, p1: u64, p2: usize, p3: usize, p4: usize) -> i32;
fn oxp_chat_template_open_pipeline(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_chat_template_free(p0: usize);
fn oxp_chat_template_render_copy(p0: usize, p1: usize, p2: u64, p3: usize, p4: u64, p5: usize, p6: u64, p7: i32, p8: usize, p9: u64, p10: usize, p11: usize) -> i32;
fn oxp_tool_calls_parse_copy(p0: usize, p1: usize, p2: u64, p3: usize, p4: u64, p5: i32, p6: usize, p7: u64, p8: usize, p9: usize) -> i32;
fn oxp_tool_calls_parse_with_tools_copy(p0: usize, p1: usize, p2: u64, p3: usize, p4: u64, p5: usize, p6: u64, p7: i32, p8: usize, p9: u64, p10: usize, p11: usize) -> i32;
fn oxp_pipeline_embed(p0: usize, p1: usize, p2: usize, p3: u64, p4: usize, p5: usize, p6: usize) -> i32;
fn oxp_pipeline_classify(p0: usize, p1: usize, p2: usize, p3: u64, p4: usize, p5: usize, p6: usize) -> i32;
fn oxp_pipeline_get_label_count(p0: usize, p1: usize, p2: usize) -> i32;
fn oxp_pipeline_label_copy(p0: usize, p1: u64, p2: usize, p3: u64, p4: usize, p5: usize) -> i32;
}

pub static FUNCTIONS: &[Function] = &[
Function { name: "oxp_abi_version", returns: "uint32_t", parameters: &[],
    call: |a| { let _ = a; unsafe { oxp_abi_version() as u64 } } },
Function { name: "oxp_version_copy", returns: "oxp_status", parameters: &[("char *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_version_copy(a[0] as usize, a[1], a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_struct_size", returns: "uint32_t", parameters: &[("uint32_t", "id")],
    call: |a| { let _ = a; unsafe { oxp_struct_size(a[0] as u32) as u64 } } },
Function { name: "oxp_status_name", returns: "const char *", parameters: &[("int32_t", "status")],
    call: |a| { let _ = a; unsafe { oxp_status_name(a[0] as i32) as u64 } } },
Function { name: "oxp_error_get_code", returns: "oxp_status", parameters: &[("const oxp_error *", "error")],
    call: |a| { let _ = a; unsafe { oxp_error_get_code(a[0] as usize) as u64 } } },
Function { name: "oxp_error_get_message", returns: "const char *", parameters: &[("const oxp_error *", "error"), ("uint64_t *", "len")],
    call: |a| { let _ = a; unsafe { oxp_error_get_message(a[0] as usize, a[1] as usize) as u64 } } },
Function { name: "oxp_error_get_component", returns: "const char *", parameters: &[("const oxp_error *", "error"), ("uint64_t *", "len")],
    call: |a| { let _ = a; unsafe { oxp_error_get_component(a[0] as usize, a[1] as usize) as u64 } } },
Function { name: "oxp_error_get_port", returns: "const char *", parameters: &[("const oxp_error *", "error"), ("uint64_t *", "len")],
    call: |a| { let _ = a; unsafe { oxp_error_get_port(a[0] as usize, a[1] as usize) as u64 } } },
Function { name: "oxp_error_get_node", returns: "const char *", parameters: &[("const oxp_error *", "error"), ("uint64_t *", "len")],
    call: |a| { let _ = a; unsafe { oxp_error_get_node(a[0] as usize, a[1] as usize) as u64 } } },
Function { name: "oxp_error_get_file", returns: "const char *", parameters: &[("const oxp_error *", "error"), ("uint64_t *", "len")],
    call: |a| { let _ = a; unsafe { oxp_error_get_file(a[0] as usize, a[1] as usize) as u64 } } },
Function { name: "oxp_error_free", returns: "void", parameters: &[("oxp_error *", "error")],
    call: |a| { let _ = a; unsafe { { oxp_error_free(a[0] as usize); 0 } } } },
Function { name: "oxp_dtype_size", returns: "uint64_t", parameters: &[("uint32_t", "dtype")],
    call: |a| { let _ = a; unsafe { oxp_dtype_size(a[0] as u32) } } },
Function { name: "oxp_dtype_name", returns: "const char *", parameters: &[("uint32_t", "dtype")],
    call: |a| { let _ = a; unsafe { oxp_dtype_name(a[0] as u32) as u64 } } },
Function { name: "oxp_cancel_create", returns: "oxp_status", parameters: &[("oxp_cancel **", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_cancel_create(a[0] as usize, a[1] as usize) as u64 } } },
Function { name: "oxp_cancel_request", returns: "oxp_status", parameters: &[("oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_cancel_request(a[0] as usize, a[1] as usize) as u64 } } },
Function { name: "oxp_cancel_reset", returns: "oxp_status", parameters: &[("oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_cancel_reset(a[0] as usize, a[1] as usize) as u64 } } },
Function { name: "oxp_cancel_is_requested", returns: "oxp_status", parameters: &[("const oxp_cancel *", "cancel"), ("int32_t *", "requested"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_cancel_is_requested(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_cancel_free", returns: "void", parameters: &[("oxp_cancel *", "cancel")],
    call: |a| { let _ = a; unsafe { { oxp_cancel_free(a[0] as usize); 0 } } } },
Function { name: "oxp_options_create", returns: "oxp_status", parameters: &[("uint32_t", "kind"), ("oxp_options **", "options"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_options_create(a[0] as u32, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_options_set", returns: "oxp_status", parameters: &[("oxp_options *", "options"), ("const char *", "key"), ("uint64_t", "key_len"), ("const char *", "value"), ("uint64_t", "value_len"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_options_set(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4], a[5] as usize) as u64 } } },
Function { name: "oxp_options_free", returns: "void", parameters: &[("oxp_options *", "options")],
    call: |a| { let _ = a; unsafe { { oxp_options_free(a[0] as usize); 0 } } } },
Function { name: "oxp_runtime_create", returns: "oxp_status", parameters: &[("const oxp_options *", "options"), ("oxp_runtime **", "runtime"), ("oxp_log_fn", "log"), ("void *", "user_data"), ("oxp_free_fn", "free_user_data"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_runtime_create(a[0] as usize, a[1] as usize, a[2] as usize, a[3] as usize, a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_backend_is_built_in", returns: "oxp_status", parameters: &[("uint32_t", "backend"), ("int32_t *", "built_in"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_backend_is_built_in(a[0] as u32, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_runtime_free", returns: "void", parameters: &[("oxp_runtime *", "runtime")],
    call: |a| { let _ = a; unsafe { { oxp_runtime_free(a[0] as usize); 0 } } } },
Function { name: "oxp_session_open", returns: "oxp_status", parameters: &[("const oxp_runtime *", "runtime"), ("const char *", "path"), ("uint64_t", "path_len"), ("const oxp_options *", "options"), ("oxp_session **", "session"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_open(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize, a[5] as usize, a[6] as usize) as u64 } } },
Function { name: "oxp_session_open_memory", returns: "oxp_status", parameters: &[("const oxp_runtime *", "runtime"), ("const void *", "model"), ("uint64_t", "model_len"), ("const oxp_file *", "external"), ("uint64_t", "external_count"), ("const oxp_options *", "options"), ("oxp_session **", "session"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_open_memory(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4], a[5] as usize, a[6] as usize, a[7] as usize, a[8] as usize) as u64 } } },
Function { name: "oxp_session_free", returns: "void", parameters: &[("oxp_session *", "session")],
    call: |a| { let _ = a; unsafe { { oxp_session_free(a[0] as usize); 0 } } } },
Function { name: "oxp_session_get_input_count", returns: "oxp_status", parameters: &[("const oxp_session *", "session"), ("uint64_t *", "count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_get_input_count(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_session_get_output_count", returns: "oxp_status", parameters: &[("const oxp_session *", "session"), ("uint64_t *", "count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_get_output_count(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_session_get_input", returns: "oxp_status", parameters: &[("const oxp_session *", "session"), ("uint64_t", "index"), ("oxp_port_info *", "info"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_get_input(a[0] as usize, a[1], a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_session_get_output", returns: "oxp_status", parameters: &[("const oxp_session *", "session"), ("uint64_t", "index"), ("oxp_port_info *", "info"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_get_output(a[0] as usize, a[1], a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_session_get_metadata_count", returns: "oxp_status", parameters: &[("const oxp_session *", "session"), ("uint64_t *", "count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_get_metadata_count(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_session_get_metadata", returns: "oxp_status", parameters: &[("const oxp_session *", "session"), ("uint64_t", "index"), ("const char **", "key"), ("uint64_t *", "key_len"), ("const char **", "value"), ("uint64_t *", "value_len"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_get_metadata(a[0] as usize, a[1], a[2] as usize, a[3] as usize, a[4] as usize, a[5] as usize, a[6] as usize) as u64 } } },
Function { name: "oxp_session_get_backend", returns: "oxp_status", parameters: &[("const oxp_session *", "session"), ("uint32_t *", "backend"), ("const char **", "reason"), ("uint64_t *", "reason_len"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_get_backend(a[0] as usize, a[1] as usize, a[2] as usize, a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_session_get_stats", returns: "oxp_status", parameters: &[("const oxp_session *", "session"), ("oxp_session_stats *", "stats"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_get_stats(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_session_output_bound", returns: "oxp_status", parameters: &[("oxp_session *", "session"), ("const oxp_named_in *", "inputs"), ("uint64_t", "input_count"), ("oxp_named_out *", "outputs"), ("uint64_t", "output_count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_output_bound(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4], a[5] as usize) as u64 } } },
Function { name: "oxp_session_run", returns: "oxp_status", parameters: &[("oxp_session *", "session"), ("const oxp_named_in *", "inputs"), ("uint64_t", "input_count"), ("oxp_named_out *", "outputs"), ("uint64_t", "output_count"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_run(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4], a[5] as usize, a[6] as usize) as u64 } } },
Function { name: "oxp_session_run_alloc", returns: "oxp_status", parameters: &[("oxp_session *", "session"), ("const oxp_named_in *", "inputs"), ("uint64_t", "input_count"), ("const char *const *", "output_names"), ("const uint64_t *", "output_name_lens"), ("uint64_t", "output_count"), ("oxp_outputs **", "result"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_session_run_alloc(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize, a[5], a[6] as usize, a[7] as usize, a[8] as usize) as u64 } } },
Function { name: "oxp_outputs_get_count", returns: "oxp_status", parameters: &[("const oxp_outputs *", "outputs"), ("uint64_t *", "count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_outputs_get_count(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_outputs_get_at", returns: "oxp_status", parameters: &[("const oxp_outputs *", "outputs"), ("uint64_t", "index"), ("const char **", "name"), ("uint64_t *", "name_len"), ("oxp_tensor_in *", "tensor"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_outputs_get_at(a[0] as usize, a[1], a[2] as usize, a[3] as usize, a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_outputs_get", returns: "oxp_status", parameters: &[("const oxp_outputs *", "outputs"), ("const char *", "name"), ("uint64_t", "name_len"), ("oxp_tensor_in *", "tensor"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_outputs_get(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_outputs_free", returns: "void", parameters: &[("oxp_outputs *", "outputs")],
    call: |a| { let _ = a; unsafe { { oxp_outputs_free(a[0] as usize); 0 } } } },
Function { name: "oxp_pipeline_open", returns: "oxp_status", parameters: &[("const oxp_runtime *", "runtime"), ("const char *", "path"), ("uint64_t", "path_len"), ("const oxp_options *", "options"), ("oxp_pipeline **", "pipeline"), ("oxp_progress_fn", "progress"), ("void *", "user_data"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_open(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize, a[5] as usize, a[6] as usize, a[7] as usize, a[8] as usize) as u64 } } },
Function { name: "oxp_pipeline_open_memory", returns: "oxp_status", parameters: &[("const oxp_runtime *", "runtime"), ("const oxp_file *", "files"), ("uint64_t", "file_count"), ("const oxp_options *", "options"), ("oxp_pipeline **", "pipeline"), ("oxp_progress_fn", "progress"), ("void *", "user_data"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_open_memory(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize, a[5] as usize, a[6] as usize, a[7] as usize, a[8] as usize) as u64 } } },
Function { name: "oxp_pipeline_estimate_copy", returns: "oxp_status", parameters: &[("const oxp_runtime *", "runtime"), ("const char *", "path"), ("uint64_t", "path_len"), ("const oxp_options *", "options"), ("uint64_t *", "weight_bytes"), ("char *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_estimate_copy(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize, a[5] as usize, a[6], a[7] as usize, a[8] as usize) as u64 } } },
Function { name: "oxp_pipeline_free", returns: "void", parameters: &[("oxp_pipeline *", "pipeline")],
    call: |a| { let _ = a; unsafe { { oxp_pipeline_free(a[0] as usize); 0 } } } },
Function { name: "oxp_pipeline_get_info", returns: "oxp_status", parameters: &[("const oxp_pipeline *", "pipeline"), ("oxp_pipeline_info *", "info"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_get_info(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_pipeline_get_component", returns: "oxp_status", parameters: &[("const oxp_pipeline *", "pipeline"), ("uint64_t", "index"), ("oxp_component_info *", "info"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_get_component(a[0] as usize, a[1], a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_pipeline_get_input", returns: "oxp_status", parameters: &[("const oxp_pipeline *", "pipeline"), ("const char *", "component"), ("uint64_t", "component_len"), ("uint64_t", "index"), ("oxp_port_info *", "info"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_get_input(a[0] as usize, a[1] as usize, a[2], a[3], a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_pipeline_get_output", returns: "oxp_status", parameters: &[("const oxp_pipeline *", "pipeline"), ("const char *", "component"), ("uint64_t", "component_len"), ("uint64_t", "index"), ("oxp_port_info *", "info"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_get_output(a[0] as usize, a[1] as usize, a[2], a[3], a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_pipeline_describe_copy", returns: "oxp_status", parameters: &[("const oxp_pipeline *", "pipeline"), ("char *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_describe_copy(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_create", returns: "oxp_status", parameters: &[("oxp_pipeline *", "pipeline"), ("const oxp_options *", "options"), ("oxp_run **", "run"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_create(a[0] as usize, a[1] as usize, a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_run_free", returns: "void", parameters: &[("oxp_run *", "run")],
    call: |a| { let _ = a; unsafe { { oxp_run_free(a[0] as usize); 0 } } } },
Function { name: "oxp_run_append_tokens", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const int32_t *", "tokens"), ("uint64_t", "count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_append_tokens(a[0] as usize, a[1] as usize, a[2], a[3] as usize) as u64 } } },
Function { name: "oxp_run_append_text", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const char *", "text"), ("uint64_t", "text_len"), ("int32_t", "add_special"), ("uint64_t *", "token_count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_append_text(a[0] as usize, a[1] as usize, a[2], a[3] as i32, a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_run_step", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("oxp_event *", "event"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_step(a[0] as usize, a[1] as usize, a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_run_generate", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("uint32_t *", "finish_reason"), ("oxp_event_fn", "on_event"), ("void *", "user_data"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_generate(a[0] as usize, a[1] as usize, a[2] as usize, a[3] as usize, a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_run_forward", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_forward(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_run_force_token", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("int32_t", "token"), ("oxp_event *", "event"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_force_token(a[0] as usize, a[1] as i32, a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_run_rewind", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("uint64_t", "length"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_rewind(a[0] as usize, a[1], a[2] as usize) as u64 } } },
Function { name: "oxp_run_pending_text_copy", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("char *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_pending_text_copy(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_finish", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_finish(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_run_execute", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const char *", "component"), ("uint64_t", "component_len"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_execute(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_set_constraint", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("uint32_t", "kind"), ("const char *", "text"), ("uint64_t", "text_len"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_set_constraint(a[0] as usize, a[1] as u32, a[2] as usize, a[3], a[4] as usize) as u64 } } },
Function { name: "oxp_run_fork", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("oxp_run **", "fork"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_fork(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_run_set_seed", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("uint64_t", "seed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_set_seed(a[0] as usize, a[1], a[2] as usize) as u64 } } },
Function { name: "oxp_run_set_draft", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("oxp_pipeline *", "pipeline"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_set_draft(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_run_save_copy", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("void *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_save_copy(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_load", returns: "oxp_status", parameters: &[("oxp_pipeline *", "pipeline"), ("const oxp_options *", "options"), ("const void *", "state"), ("uint64_t", "state_size"), ("oxp_run **", "run"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_load(a[0] as usize, a[1] as usize, a[2] as usize, a[3], a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_batch_create", returns: "oxp_status", parameters: &[("oxp_pipeline *", "pipeline"), ("oxp_batch **", "batch"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_batch_create(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_batch_free", returns: "void", parameters: &[("oxp_batch *", "batch")],
    call: |a| { let _ = a; unsafe { { oxp_batch_free(a[0] as usize); 0 } } } },
Function { name: "oxp_batch_add", returns: "oxp_status", parameters: &[("oxp_batch *", "batch"), ("oxp_run *", "run"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_batch_add(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_batch_remove", returns: "oxp_status", parameters: &[("oxp_batch *", "batch"), ("oxp_run *", "run"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_batch_remove(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_batch_get_count", returns: "oxp_status", parameters: &[("oxp_batch *", "batch"), ("uint64_t *", "count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_batch_get_count(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_batch_step", returns: "oxp_status", parameters: &[("oxp_batch *", "batch"), ("uint64_t *", "stepped"), ("oxp_batch_fn", "on_step"), ("void *", "user_data"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_batch_step(a[0] as usize, a[1] as usize, a[2] as usize, a[3] as usize, a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_run_set_input", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const char *", "address"), ("uint64_t", "address_len"), ("const oxp_tensor_in *", "tensor"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_set_input(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_clear_input", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const char *", "address"), ("uint64_t", "address_len"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_clear_input(a[0] as usize, a[1] as usize, a[2], a[3] as usize) as u64 } } },
Function { name: "oxp_run_get_tensor", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const char *", "address"), ("uint64_t", "address_len"), ("oxp_tensor_in *", "tensor"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_get_tensor(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_copy_tensor", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const char *", "address"), ("uint64_t", "address_len"), ("oxp_tensor_out *", "tensor"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_copy_tensor(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_get_logits", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const float **", "logits"), ("uint64_t *", "count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_get_logits(a[0] as usize, a[1] as usize, a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_run_tokens_copy", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("int32_t *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_tokens_copy(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_get_stats", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("oxp_run_stats *", "stats"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_get_stats(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_run_set_logits_hook", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("oxp_logits_fn", "hook"), ("void *", "user_data"), ("oxp_free_fn", "free_user_data"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_set_logits_hook(a[0] as usize, a[1] as usize, a[2] as usize, a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_set_sampler", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("oxp_sampler_fn", "sampler"), ("void *", "user_data"), ("oxp_free_fn", "free_user_data"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_set_sampler(a[0] as usize, a[1] as usize, a[2] as usize, a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_get_logprobs", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("uint32_t", "distribution"), ("float *", "logprob"), ("const oxp_token_logprob **", "top"), ("uint64_t *", "count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_get_logprobs(a[0] as usize, a[1] as u32, a[2] as usize, a[3] as usize, a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_run_get_sequence_count", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("uint64_t *", "count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_get_sequence_count(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_run_sequence_copy", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("uint64_t", "index"), ("int32_t *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("double *", "score"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_sequence_copy(a[0] as usize, a[1], a[2] as usize, a[3], a[4] as usize, a[5] as usize, a[6] as usize) as u64 } } },
Function { name: "oxp_run_add_image", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const void *", "data"), ("uint64_t", "data_len"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_add_image(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_add_image_rgb", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const void *", "pixels"), ("uint64_t", "pixels_len"), ("uint64_t", "width"), ("uint64_t", "height"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_add_image_rgb(a[0] as usize, a[1] as usize, a[2], a[3], a[4], a[5] as usize, a[6] as usize) as u64 } } },
Function { name: "oxp_run_clear_images", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_clear_images(a[0] as usize, a[1] as usize) as u64 } } },
Function { name: "oxp_run_set_audio", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const void *", "data"), ("uint64_t", "data_len"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_set_audio(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_run_set_audio_samples", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("const float *", "samples"), ("uint64_t", "sample_count"), ("uint32_t", "channels"), ("uint32_t", "sample_rate"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_set_audio_samples(a[0] as usize, a[1] as usize, a[2], a[3] as u32, a[4] as u32, a[5] as usize, a[6] as usize) as u64 } } },
Function { name: "oxp_run_clear_audio", returns: "oxp_status", parameters: &[("oxp_run *", "run"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_run_clear_audio(a[0] as usize, a[1] as usize) as u64 } } },
Function { name: "oxp_tokenizer_open", returns: "oxp_status", parameters: &[("const char *", "path"), ("uint64_t", "path_len"), ("oxp_tokenizer **", "tokenizer"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tokenizer_open(a[0] as usize, a[1], a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_tokenizer_open_memory", returns: "oxp_status", parameters: &[("const void *", "json"), ("uint64_t", "json_len"), ("const void *", "config"), ("uint64_t", "config_len"), ("oxp_tokenizer **", "tokenizer"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tokenizer_open_memory(a[0] as usize, a[1], a[2] as usize, a[3], a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_tokenizer_open_pipeline", returns: "oxp_status", parameters: &[("const oxp_pipeline *", "pipeline"), ("oxp_tokenizer **", "tokenizer"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tokenizer_open_pipeline(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_tokenizer_free", returns: "void", parameters: &[("oxp_tokenizer *", "tokenizer")],
    call: |a| { let _ = a; unsafe { { oxp_tokenizer_free(a[0] as usize); 0 } } } },
Function { name: "oxp_tokenizer_encode_copy", returns: "oxp_status", parameters: &[("const oxp_tokenizer *", "tokenizer"), ("const char *", "text"), ("uint64_t", "text_len"), ("int32_t", "add_special"), ("int32_t *", "ids"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tokenizer_encode_copy(a[0] as usize, a[1] as usize, a[2], a[3] as i32, a[4] as usize, a[5], a[6] as usize, a[7] as usize) as u64 } } },
Function { name: "oxp_tokenizer_decode_copy", returns: "oxp_status", parameters: &[("const oxp_tokenizer *", "tokenizer"), ("const int32_t *", "ids"), ("uint64_t", "count"), ("int32_t", "skip_special"), ("char *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tokenizer_decode_copy(a[0] as usize, a[1] as usize, a[2], a[3] as i32, a[4] as usize, a[5], a[6] as usize, a[7] as usize) as u64 } } },
Function { name: "oxp_tokenizer_get_vocab_size", returns: "oxp_status", parameters: &[("const oxp_tokenizer *", "tokenizer"), ("uint64_t *", "size"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tokenizer_get_vocab_size(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_tokenizer_get_special", returns: "oxp_status", parameters: &[("const oxp_tokenizer *", "tokenizer"), ("uint32_t", "role"), ("int32_t *", "id"), ("const char **", "text"), ("uint64_t *", "text_len"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tokenizer_get_special(a[0] as usize, a[1] as u32, a[2] as usize, a[3] as usize, a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_tokenizer_token_copy", returns: "oxp_status", parameters: &[("const oxp_tokenizer *", "tokenizer"), ("int32_t", "id"), ("char *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tokenizer_token_copy(a[0] as usize, a[1] as i32, a[2] as usize, a[3], a[4] as usize, a[5] as usize) as u64 } } },
Function { name: "oxp_tokenizer_find_token", returns: "oxp_status", parameters: &[("const oxp_tokenizer *", "tokenizer"), ("const char *", "token"), ("uint64_t", "token_len"), ("int32_t *", "id"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tokenizer_find_token(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_tokenizer_is_special", returns: "oxp_status", parameters: &[("const oxp_tokenizer *", "tokenizer"), ("int32_t", "id"), ("int32_t *", "special"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tokenizer_is_special(a[0] as usize, a[1] as i32, a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_decode_stream_create", returns: "oxp_status", parameters: &[("const oxp_tokenizer *", "tokenizer"), ("int32_t", "skip_special"), ("oxp_decode_stream **", "stream"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_decode_stream_create(a[0] as usize, a[1] as i32, a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_decode_stream_push", returns: "oxp_status", parameters: &[("oxp_decode_stream *", "stream"), ("int32_t", "id"), ("const char **", "text"), ("uint64_t *", "text_len"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_decode_stream_push(a[0] as usize, a[1] as i32, a[2] as usize, a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_decode_stream_flush", returns: "oxp_status", parameters: &[("oxp_decode_stream *", "stream"), ("const char **", "text"), ("uint64_t *", "text_len"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_decode_stream_flush(a[0] as usize, a[1] as usize, a[2] as usize, a[3] as usize) as u64 } } },
Function { name: "oxp_decode_stream_get_span", returns: "oxp_status", parameters: &[("oxp_decode_stream *", "stream"), ("uint64_t *", "offset"), ("uint64_t *", "first"), ("uint64_t *", "count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_decode_stream_get_span(a[0] as usize, a[1] as usize, a[2] as usize, a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_decode_stream_free", returns: "void", parameters: &[("oxp_decode_stream *", "stream")],
    call: |a| { let _ = a; unsafe { { oxp_decode_stream_free(a[0] as usize); 0 } } } },
Function { name: "oxp_chat_template_create", returns: "oxp_status", parameters: &[("const char *", "source"), ("uint64_t", "source_len"), ("const oxp_tokenizer *", "tokenizer"), ("oxp_chat_template **", "chat_template"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_chat_template_create(a[0] as usize, a[1], a[2] as usize, a[3] as usize, a[4] as usize) as u64 } } },
Function { name: "oxp_chat_template_open_pipeline", returns: "oxp_status", parameters: &[("const oxp_pipeline *", "pipeline"), ("oxp_chat_template **", "chat_template"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_chat_template_open_pipeline(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_chat_template_free", returns: "void", parameters: &[("oxp_chat_template *", "chat_template")],
    call: |a| { let _ = a; unsafe { { oxp_chat_template_free(a[0] as usize); 0 } } } },
Function { name: "oxp_chat_template_render_copy", returns: "oxp_status", parameters: &[("const oxp_chat_template *", "chat_template"), ("const char *", "messages"), ("uint64_t", "messages_len"), ("const char *", "tools"), ("uint64_t", "tools_len"), ("const char *", "extra"), ("uint64_t", "extra_len"), ("int32_t", "add_generation_prompt"), ("char *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_chat_template_render_copy(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4], a[5] as usize, a[6], a[7] as i32, a[8] as usize, a[9], a[10] as usize, a[11] as usize) as u64 } } },
Function { name: "oxp_tool_calls_parse_copy", returns: "oxp_status", parameters: &[("const oxp_chat_template *", "chat_template"), ("const char *", "format"), ("uint64_t", "format_len"), ("const char *", "text"), ("uint64_t", "text_len"), ("int32_t", "finished"), ("char *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tool_calls_parse_copy(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4], a[5] as i32, a[6] as usize, a[7], a[8] as usize, a[9] as usize) as u64 } } },
Function { name: "oxp_tool_calls_parse_with_tools_copy", returns: "oxp_status", parameters: &[("const oxp_chat_template *", "chat_template"), ("const char *", "format"), ("uint64_t", "format_len"), ("const char *", "tools"), ("uint64_t", "tools_len"), ("const char *", "text"), ("uint64_t", "text_len"), ("int32_t", "finished"), ("char *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_tool_calls_parse_with_tools_copy(a[0] as usize, a[1] as usize, a[2], a[3] as usize, a[4], a[5] as usize, a[6], a[7] as i32, a[8] as usize, a[9], a[10] as usize, a[11] as usize) as u64 } } },
Function { name: "oxp_pipeline_embed", returns: "oxp_status", parameters: &[("const oxp_pipeline *", "pipeline"), ("const char *const *", "texts"), ("const uint64_t *", "text_lens"), ("uint64_t", "count"), ("oxp_outputs **", "outputs"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_embed(a[0] as usize, a[1] as usize, a[2] as usize, a[3], a[4] as usize, a[5] as usize, a[6] as usize) as u64 } } },
Function { name: "oxp_pipeline_classify", returns: "oxp_status", parameters: &[("const oxp_pipeline *", "pipeline"), ("const char *const *", "texts"), ("const uint64_t *", "text_lens"), ("uint64_t", "count"), ("oxp_outputs **", "outputs"), ("const oxp_cancel *", "cancel"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_classify(a[0] as usize, a[1] as usize, a[2] as usize, a[3], a[4] as usize, a[5] as usize, a[6] as usize) as u64 } } },
Function { name: "oxp_pipeline_get_label_count", returns: "oxp_status", parameters: &[("const oxp_pipeline *", "pipeline"), ("uint64_t *", "count"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_get_label_count(a[0] as usize, a[1] as usize, a[2] as usize) as u64 } } },
Function { name: "oxp_pipeline_label_copy", returns: "oxp_status", parameters: &[("const oxp_pipeline *", "pipeline"), ("uint64_t", "index"), ("char *", "buffer"), ("uint64_t", "capacity"), ("uint64_t *", "needed"), ("oxp_error **", "err")],
    call: |a| { let _ = a; unsafe { oxp_pipeline_label_copy(a[0] as usize, a[1], a[2] as usize, a[3], a[4] as usize, a[5] as usize) as u64 } } },
];
