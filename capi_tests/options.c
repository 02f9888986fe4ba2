/* Every option: its good values, its bad ones, and what is unknown. */
#include "check.h"

static oxp_options *create(uint32_t kind)
{
    oxp_options *options = NULL;
    MUST(oxp_options_create(kind, &options, ERR));
    return options;
}

static void good(oxp_options *options, const char *key, const char *value)
{
    OK(oxp_options_set(options, key, NT, value, NT, ERR));
}

static void bad(oxp_options *options, const char *key, const char *value, const char *fragment)
{
    EXPECT(OXP_ERR_INVALID_OPTION, fragment, oxp_options_set(options, key, NT, value, NT, ERR));
}

static void unknown(oxp_options *options, const char *key, const char *fragment)
{
    EXPECT(OXP_ERR_UNKNOWN_OPTION, fragment, oxp_options_set(options, key, NT, "1", NT, ERR));
    EXPECT(OXP_ERR_UNKNOWN_OPTION, key, oxp_options_set(options, key, NT, "1", NT, ERR));
}

static void threads(oxp_options *options)
{
    good(options, "threads", "1");
    good(options, "threads", "1024");
    bad(options, "threads", "0", "1 to 1024");
    bad(options, "threads", "1025", "1 to 1024");
    bad(options, "threads", "-1", "1 to 1024");
    bad(options, "threads", "two", "\"two\"");
    bad(options, "threads", "", "1 to 1024");
    bad(options, "threads", "99999999999999999999999", "1 to 1024");
}

static void milliseconds(oxp_options *options, const char *key)
{
    good(options, key, "1");
    good(options, key, "18446744073709551615");
    bad(options, key, "0", key);
    bad(options, key, "1.5", key);
}

static void backends(oxp_options *options, const char *key)
{
    good(options, key, "native");
    good(options, key, "ort");
    good(options, key, "auto");
    bad(options, key, "cuda", "\"auto\", \"native\" or \"ort\"");
    bad(options, key, "Native", "\"auto\", \"native\" or \"ort\"");
    bad(options, key, "", "\"auto\", \"native\" or \"ort\"");
}

static void prefixes(oxp_options *options)
{
    good(options, "prefix_cache_bytes", "0");
    good(options, "prefix_cache_bytes", "18446744073709551615");
    good(options, "long_texts", "truncate");
    good(options, "long_texts", "refuse");
    bad(options, "long_texts", "cut", "\"truncate\" or \"refuse\"");
    bad(options, "prefix_cache_bytes", "-1", "prefix_cache_bytes");
    bad(options, "prefix_cache_bytes", "1MB", "prefix_cache_bytes");
    good(options, "memory_bytes", "1");
    good(options, "memory_bytes", "18446744073709551615");
    bad(options, "memory_bytes", "0", "from 1 to");
}

static void passes(oxp_options *options)
{
    int32_t has_native = 0;
    OK(oxp_backend_is_built_in(OXP_BACKEND_NATIVE, &has_native, ERR));
    if (!has_native) {
        unknown(options, "native.disable_passes", "its options are");
        unknown(options, "native.packed_cache", "its options are");
        unknown(options, "native.kv_cache_dtype", "its options are");
        unknown(options, "native.model_files", "its options are");
        return;
    }
    good(options, "native.disable_passes", "");
    good(options, "native.disable_passes", "all");
    good(options, "native.disable_passes", "identity,cast, constant_folding");
    bad(options, "native.disable_passes", "casts", "constant_folding, constant_if, identity");
    bad(options, "native.disable_passes", "cast;identity", "with commas");
    good(options, "native.packed_cache", "off");
    good(options, "native.packed_cache", "beside");
    good(options, "native.packed_cache", "/var/cache/some folder");
    good(options, "native.packed_cache", "./cache");
    good(options, "native.kv_cache_dtype", "model");
    good(options, "native.kv_cache_dtype", "int8");
    bad(options, "native.kv_cache_dtype", "float16", "\"model\" or \"int8\"");
    good(options, "native.model_files", "map");
    good(options, "native.model_files", "read");
    bad(options, "native.model_files", "mmap", "\"map\" or \"read\"");
    bad(options, "native.packed_cache", "on", "\"off\", \"beside\" or the path of a folder");
    bad(options, "native.packed_cache", "", "with a slash");
}

/* One option of numbers, whose borders are good and what is beyond them is not. */
static void range(oxp_options *options, const char *key, const char *least, const char *most, const char *below,
                  const char *above, const char *expected)
{
    good(options, key, least);
    good(options, key, most);
    bad(options, key, below, expected);
    bad(options, key, above, expected);
    bad(options, key, "", expected);
    bad(options, key, "nan", expected);
}

static void sampling(oxp_options *options)
{
    range(options, "temperature", "0", "100", "-0.1", "100.5", "a number from 0 to 100");
    range(options, "top_k", "0", "4294967295", "-1", "4294967296", "a whole number from 0 to 4294967295");
    range(options, "top_p", "0", "1", "-0.1", "1.01", "a number from 0 to 1");
    range(options, "min_p", "0", "1", "-0.1", "1.01", "a number from 0 to 1");
    range(options, "typical_p", "0", "1", "-0.1", "1.01", "a number from 0 to 1");
    range(options, "top_a", "0", "1", "-0.1", "1.01", "a number from 0 to 1");
    range(options, "xtc_threshold", "0", "1", "-0.1", "1.01", "a number from 0 to 1");
    range(options, "xtc_probability", "0", "1", "-0.1", "1.01", "a number from 0 to 1");
    range(options, "mirostat", "0", "2", "-1", "3", "a whole number from 0 to 2");
    range(options, "mirostat_tau", "0", "100", "-1", "101", "a number from 0 to 100");
    range(options, "mirostat_eta", "0", "1", "-1", "1.1", "a number from 0 to 1");
    range(options, "repetition_penalty", "0.01", "100", "0", "101", "a number from 0.01 to 100");
    range(options, "frequency_penalty", "-100", "100", "-101", "101", "a number from -100 to 100");
    range(options, "presence_penalty", "-100", "100", "-101", "101", "a number from -100 to 100");
    range(options, "dry_multiplier", "0", "100", "-1", "101", "a number from 0 to 100");
    range(options, "dry_base", "1", "10", "0.9", "11", "a number from 1 to 10");
    range(options, "dry_allowed_length", "1", "50", "0", "51", "a whole number from 1 to 50");
    range(options, "dry_range", "0", "4294967295", "-1", "4294967296", "a whole number from 0 to 4294967295");
    range(options, "no_repeat_ngram_size", "0", "1000", "-1", "1001", "a whole number from 0 to 1000");
    range(options, "min_length", "0", "4294967295", "-1", "4294967296", "a whole number from 0 to 4294967295");
    range(options, "min_new_tokens", "0", "4294967295", "-1", "4294967296", "a whole number from 0 to 4294967295");
    range(options, "logprobs", "0", "1000", "-1", "1001", "a whole number from 0 to 1000");
    range(options, "num_beams", "1", "64", "0", "65", "a whole number from 1 to 64");
    range(options, "num_return_sequences", "1", "64", "0", "65", "a whole number from 1 to 64");
    range(options, "num_beam_groups", "1", "64", "0", "65", "a whole number from 1 to 64");
    range(options, "length_penalty", "-100", "100", "-101", "101", "a number from -100 to 100");
    range(options, "diversity_penalty", "0", "100", "-1", "101", "a number from 0 to 100");
    good(options, "early_stopping", "never");
    bad(options, "early_stopping", "0", "\"true\", \"false\" or \"never\"");
    good(options, "do_sample", "true");
    bad(options, "do_sample", "yes", "\"true\" or \"false\"");
    good(options, "logit_bias", "");
    good(options, "logit_bias", "5:-2.5, 7:-inf");
    bad(options, "logit_bias", "5:1,6", "\"6\", number 2 of them, is none");
    bad(options, "logit_bias", "5:10001", "\"5:10001\", number 1 of them, is none");
    good(options, "bad_words", "5 6,7");
    bad(options, "bad_words", "5 x,7", "\"5 x\", number 1 of them, is none");
    good(options, "suppress_tokens", "1,2");
    good(options, "begin_suppress_tokens", "1");
    bad(options, "suppress_tokens", "1,-2", "\"-2\", number 2 of them, is none");
    good(options, "dry_breakers", "1,2");
}

int main(void)
{
    oxp_options *runtime = create(OXP_OPTIONS_RUNTIME);
    oxp_options *session = create(OXP_OPTIONS_SESSION);
    oxp_options *pipeline = create(OXP_OPTIONS_PIPELINE);
    oxp_options *run = create(OXP_OPTIONS_RUN);
    oxp_options *none = run;
    oxp_runtime *out_runtime = NULL;
    oxp_session *out_session = NULL;
    oxp_pipeline *out_pipeline = NULL;

    threads(runtime);
    good(runtime, "ort_library", "/some/libonnxruntime.so");
    bad(runtime, "ort_library", "", "path of a file");
    good(runtime, "trace", "/some/folder/trace.json");
    bad(runtime, "trace", "", "path of a file");
    unknown(runtime, "backend", "threads, ort_library, trace");

    good(session, "memory_bytes", "1");
    bad(session, "memory_bytes", "0", "from 1 to");
    threads(session);
    backends(session, "backend");
    good(session, "name", "decoder");
    milliseconds(session, "load_timeout_ms");
    milliseconds(session, "run_timeout_ms");
    passes(session);
    unknown(session, "max_tokens", "backend, threads, name, load_timeout_ms, run_timeout_ms");
    unknown(session, "", "backend");

    threads(pipeline);
    backends(pipeline, "backend");
    backends(pipeline, "backend.decoder");
    milliseconds(pipeline, "load_timeout_ms");
    passes(pipeline);
    prefixes(pipeline);
    unknown(pipeline, "backend.", "backend.NAME");
    unknown(pipeline, "backends",
            "backend, backend.NAME, threads, variant, load_timeout_ms, prefix_cache_bytes, memory_bytes, long_texts");

    good(run, "speculation", "off");
    good(run, "speculation", "prompt_lookup");
    good(run, "speculation", "head");
    bad(run, "speculation", "draft", "\"off\", \"prompt_lookup\" or \"head\"");
    good(run, "speculation_tokens", "1");
    good(run, "speculation_tokens", "7");
    bad(run, "speculation_tokens", "8", "from 1 to 7");
    good(run, "memory_bytes", "18446744073709551615");
    bad(run, "memory_bytes", "0", "from 1 to");
    good(run, "media_bytes", "4294967296");
    bad(run, "media_bytes", "4294967297", "from 1 to 4294967296");
    good(run, "max_tokens", "1");
    bad(run, "max_tokens", "0", "from 1");
    good(run, "stop_on_eos", "true");
    good(run, "stop_on_eos", "false");
    bad(run, "stop_on_eos", "1", "\"true\" or \"false\"");
    good(run, "chunk_size", "16");
    bad(run, "chunk_size", "0", "from 1");
    good(run, "logits", "all");
    good(run, "logits", "last");
    bad(run, "logits", "first", "\"last\" or \"all\"");
    bad(run, "chunk_size", "4294967296", "4294967295");
    milliseconds(run, "timeout_ms");
    good(run, "max_length", "1");
    bad(run, "max_length", "0", "from 1");
    good(run, "stop_strings", "[]");
    good(run, "stop_strings", "[\"\\n\\n\", \"###\"]");
    bad(run, "stop_strings", "###", "it is no JSON");
    bad(run, "stop_strings", "\"###\"", "it is no array");
    bad(run, "stop_strings", "[\"a\", \"\"]", "element 1 has 0 bytes");
    bad(run, "stop_strings", "[7]", "element 0 is no string");
    good(run, "keep_stop_string", "true");
    bad(run, "keep_stop_string", "yes", "\"true\" or \"false\"");
    good(run, "stop_tokens", "[[1, 2], [3]]");
    bad(run, "stop_tokens", "[1, 2]", "element 0 is no array");
    bad(run, "stop_tokens", "[[1], []]", "element 1 has 0 ids");
    bad(run, "stop_tokens", "[[-1]]", "element 0 holds what is no token id");
    good(run, "skip_special_tokens", "false");
    good(run, "json_whitespace", "0");
    bad(run, "json_whitespace", "1001", "from 0 to 1000");
    bad(run, "skip_special_tokens", "0", "\"true\" or \"false\"");
    unknown(run, "threads", "max_tokens, stop_on_eos, chunk_size, logits, num_steps, start_step, add_noise, guidance_scale, seed, timeout_ms, max_length, stop_strings, keep_stop_string, stop_tokens, skip_special_tokens, json_whitespace, speculation, speculation_tokens, memory_bytes, media_bytes, do_sample, min_length, min_new_tokens, repetition_penalty");
    sampling(run);

    /* Keys and values by length: what is behind them does not count. */
    OK(oxp_options_set(run, "max_tokens_and_more", 10, "123 and more", 3, ERR));
    bad(run, "max_tokens", "123 and more", "from 1");

    EXPECT(OXP_ERR_INVALID_ARGUMENT, "kind 0", oxp_options_create(0, &none, ERR));
    CHECK(none == NULL);
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "kind 5", oxp_options_create(5, &none, ERR));

    /* Options of another kind are refused, not ignored. */
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "OXP_OPTIONS_RUN", oxp_runtime_create(run, &out_runtime, NULL, NULL, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "OXP_OPTIONS_PIPELINE",
           oxp_session_open(NULL, "model.onnx", NT, pipeline, &out_session, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "OXP_OPTIONS_SESSION",
           oxp_pipeline_open(NULL, "package", NT, session, &out_pipeline, NULL, NULL, NULL, ERR));
    CHECK(out_runtime == NULL && out_session == NULL && out_pipeline == NULL);
    EXPECT(OXP_ERR_IO, "/some/folder/trace.json", oxp_runtime_create(runtime, &out_runtime, NULL, NULL, NULL, ERR));
    CHECK(out_runtime == NULL);
    good(runtime, "trace", "/dev/null");
    OK(oxp_runtime_create(runtime, &out_runtime, NULL, NULL, NULL, ERR));
    oxp_runtime_free(out_runtime);

    oxp_options_free(runtime);
    oxp_options_free(session);
    oxp_options_free(pipeline);
    oxp_options_free(run);
    EXPECT(OXP_ERR_INVALID_HANDLE, "has been freed", oxp_options_set(run, "max_tokens", NT, "1", NT, ERR));
    return check_result();
}
