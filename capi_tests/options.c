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

static void passes(oxp_options *options)
{
    int32_t has_native = 0;
    OK(oxp_backend_is_built_in(OXP_BACKEND_NATIVE, &has_native, ERR));
    if (!has_native) {
        unknown(options, "native.disable_passes", "its options are");
        unknown(options, "native.packed_cache", "its options are");
        unknown(options, "native.kv_cache_dtype", "its options are");
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
    bad(options, "native.packed_cache", "on", "\"off\", \"beside\" or the path of a folder");
    bad(options, "native.packed_cache", "", "with a slash");
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
    unknown(runtime, "backend", "threads, ort_library");

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
    unknown(pipeline, "backend.", "backend.NAME");
    unknown(pipeline, "backends", "backend, backend.NAME, threads, variant, load_timeout_ms");

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
    unknown(run, "threads", "max_tokens, stop_on_eos, chunk_size, logits, num_steps, start_step, add_noise, guidance_scale, seed, timeout_ms");

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
    OK(oxp_runtime_create(runtime, &out_runtime, NULL, NULL, NULL, ERR));
    oxp_runtime_free(out_runtime);

    oxp_options_free(runtime);
    oxp_options_free(session);
    oxp_options_free(pipeline);
    oxp_options_free(run);
    EXPECT(OXP_ERR_INVALID_HANDLE, "has been freed", oxp_options_set(run, "max_tokens", NT, "1", NT, ERR));
    return check_result();
}
