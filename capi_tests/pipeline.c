/* What is known about a package, opening it in every way, and opening it wrong. Arguments:
 * the package of tests/capi/models.rs, the backend. */
#include "check.h"

static const char *package;
static const char *backend;
static uint32_t backend_code;

static void info(oxp_pipeline *pipeline)
{
    oxp_pipeline_info known = OXP_PIPELINE_INFO_INIT;
    OK(oxp_pipeline_get_info(pipeline, &known, ERR));
    CHECK(known.flags == (OXP_PIPELINE_HAS_TOKENIZER | OXP_PIPELINE_HAS_CHAT_TEMPLATE));
    CHECK_TEXT(known.format, "inference_metadata");
    CHECK(known.format_len == strlen(known.format));
    CHECK(strstr(known.metadata_file, "inference_metadata.yaml") != NULL);
    CHECK(known.metadata_file_len == strlen(known.metadata_file));
    CHECK_TEXT(known.strategy, "autoregressive");
    CHECK_TEXT(known.decoder, "decoder");
    CHECK(known.strategy_len == 14 && known.decoder_len == 7);
    CHECK(known.eos_token_id_count == 1 && known.eos_token_ids[0] == 7);
    CHECK(known.context_length == 64);
    /* One head of eight float32. */
    CHECK(known.kv_bytes_per_token == 32);
    CHECK(known.component_count == 5);
}

static void components(oxp_pipeline *pipeline)
{
    static const struct {
        const char *name;
        const char *type;
        uint32_t phase;
        uint64_t inputs;
        uint64_t outputs;
    } wanted[5] = {{"vision_encoder", "vision_encoder", OXP_PHASE_PROMPT_ONLY, 1, 1},
                   {"embedding", "embedding", OXP_PHASE_EVERY_STEP, 2, 1},
                   {"decoder", "decoder", OXP_PHASE_EVERY_STEP, 2, 2},
                   {"summary", "vocoder", OXP_PHASE_FINAL_ONLY, 1, 1},
                   {"probe", "vocoder", OXP_PHASE_ON_DEMAND, 1, 1}};
    oxp_component_info found = OXP_COMPONENT_INFO_INIT;
    oxp_port_info port = OXP_PORT_INFO_INIT;
    uint64_t at;
    for (at = 0; at < 5; at++) {
        char file[64];
        OK(oxp_pipeline_get_component(pipeline, at, &found, ERR));
        CHECK_TEXT(found.name, wanted[at].name);
        CHECK_TEXT(found.component_type, wanted[at].type);
        snprintf(file, sizeof file, "%s.onnx", wanted[at].name);
        CHECK_TEXT(found.file, file);
        CHECK_TEXT(found.when_present, "");
        CHECK(found.name_len == strlen(found.name) && found.file_len == strlen(found.file));
        CHECK(found.phase == wanted[at].phase && found.backend == backend_code);
        CHECK(found.reason_len > 0 && found.reason_len == strlen(found.reason));
        CHECK(found.input_count == wanted[at].inputs && found.output_count == wanted[at].outputs);
    }
    EXPECT(OXP_ERR_OUT_OF_RANGE, "index 5", oxp_pipeline_get_component(pipeline, 5, &found, ERR));

    OK(oxp_pipeline_get_input(pipeline, "decoder", NT, 1, &port, ERR));
    CHECK_TEXT(port.name, "past");
    CHECK(port.rank == 4 && port.dims[0] == 1 && port.dims[2] == -1 && port.dims[3] == 8);
    CHECK_TEXT(port.dim_names[2], "past");
    OK(oxp_pipeline_get_output(pipeline, "decoder_and_more", 7, 0, &port, ERR));
    CHECK_TEXT(port.name, "logits");
    EXPECT(OXP_ERR_UNKNOWN_COMPONENT, "vision_encoder, embedding, decoder, summary, probe",
           oxp_pipeline_get_input(pipeline, "nobody", NT, 0, &port, ERR));
    EXPECT(OXP_ERR_UNKNOWN_COMPONENT, "nobody", oxp_pipeline_get_output(pipeline, "nobody", NT, 0, &port, ERR));
    EXPECT(OXP_ERR_OUT_OF_RANGE, "inputs", oxp_pipeline_get_input(pipeline, "decoder", NT, 2, &port, ERR));
    EXPECT(OXP_ERR_OUT_OF_RANGE, "outputs", oxp_pipeline_get_output(pipeline, "decoder", NT, 2, &port, ERR));
}

static void json(oxp_pipeline *pipeline)
{
    static char text[1 << 16];
    uint64_t needed = 0;
    uint64_t bytes = 0;
    OK(oxp_pipeline_describe_copy(pipeline, NULL, 0, &needed, ERR));
    CHECK(needed > 100 && needed < sizeof text);
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "nothing was written",
           oxp_pipeline_describe_copy(pipeline, text, needed - 1, &needed, ERR));
    OK(oxp_pipeline_describe_copy(pipeline, text, sizeof text, &needed, ERR));
    CHECK(strlen(text) == needed && text[0] == '{' && text[needed - 1] == '}');
    CHECK(strstr(text, "\"vision_encoder\"") != NULL && strstr(text, "\"prompt_only\"") != NULL);
    CHECK(strstr(text, backend) != NULL);

    OK(oxp_pipeline_estimate_copy(NULL, package, NT, NULL, &bytes, text, sizeof text, &needed, ERR));
    CHECK(strlen(text) == needed && strstr(text, "\"decoder.onnx\"") != NULL);
    /* The two tables alone are 512 bytes. */
    CHECK(bytes > 512 && bytes < 10000);
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "holds 1",
           oxp_pipeline_estimate_copy(NULL, package, NT, NULL, NULL, text, 1, &needed, ERR));
    CHECK(oxp_pipeline_estimate_copy(NULL, "/no/such/folder", NT, NULL, &bytes, text, sizeof text, &needed, NULL) < 0);
    CHECK(bytes == 0 && needed == 0);
    /* Of the options the variant counts, which this format has none of. */
    oxp_options *options = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_PIPELINE, &options, ERR));
    OK(oxp_pipeline_estimate_copy(NULL, package, NT, options, &bytes, text, sizeof text, &needed, ERR));
    CHECK(bytes > 512);
    MUST(oxp_options_set(options, "variant", NT, "q4", NT, ERR));
    EXPECT(OXP_ERR_INVALID_PACKAGE, "the option \"variant\" is \"q4\"",
           oxp_pipeline_estimate_copy(NULL, package, NT, options, &bytes, text, sizeof text, &needed, ERR));
    oxp_options_free(options);
}

struct progress {
    uint64_t calls;
    uint64_t stop_at;
    uint64_t done;
    uint64_t total;
    char last[64];
};

static int32_t on_progress(void *user_data, const oxp_load_progress *state)
{
    struct progress *progress = (struct progress *)user_data;
    CHECK(state->struct_size == sizeof *state && state->component_len == strlen(state->component));
    CHECK(state->done == progress->calls);
    progress->calls += 1;
    progress->done = state->done;
    progress->total = state->total;
    snprintf(progress->last, sizeof progress->last, "%s", state->component);
    return progress->calls == progress->stop_at ? 42 : 0;
}

static oxp_options *pipeline_options(const char *key, const char *value)
{
    oxp_options *options = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_PIPELINE, &options, ERR));
    MUST(oxp_options_set(options, "backend", NT, backend, NT, ERR));
    if (key)
        MUST(oxp_options_set(options, key, NT, value, NT, ERR));
    return options;
}

static void opening(void)
{
    oxp_options *options = pipeline_options(NULL, NULL);
    oxp_options *wrong = pipeline_options("backend.nobody", "auto");
    oxp_pipeline *pipeline = NULL;
    oxp_cancel *cancel = NULL;
    struct progress progress;
    memset(&progress, 0, sizeof progress);

    OK(oxp_pipeline_open(NULL, package, NT, options, &pipeline, on_progress, &progress, NULL, ERR));
    CHECK(progress.calls == 6 && progress.done == 5 && progress.total == 5 && progress.last[0] == 0);
    oxp_pipeline_free(pipeline);

    memset(&progress, 0, sizeof progress);
    progress.stop_at = 3;
    EXPECT(OXP_ERR_CANCELLED, "",
           oxp_pipeline_open(NULL, package, NT, options, &pipeline, on_progress, &progress, NULL, ERR));
    CHECK(pipeline == NULL && progress.calls == 3);
    CHECK_TEXT(progress.last, "decoder");

    MUST(oxp_cancel_create(&cancel, ERR));
    OK(oxp_cancel_request(cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled",
           oxp_pipeline_open(NULL, package, NT, options, &pipeline, NULL, NULL, cancel, ERR));
    CHECK(pipeline == NULL);
    oxp_cancel_free(cancel);

    EXPECT(OXP_ERR_UNKNOWN_COMPONENT, "nobody",
           oxp_pipeline_open(NULL, package, NT, wrong, &pipeline, NULL, NULL, NULL, ERR));
    CHECK(pipeline == NULL);

    OK(oxp_options_set(options, "backend.decoder", NT, "auto", NT, ERR));
    OK(oxp_pipeline_open(NULL, package, NT, options, &pipeline, NULL, NULL, NULL, ERR));
    oxp_pipeline_free(pipeline);
    oxp_options_free(options);
    oxp_options_free(wrong);
}

int main(int argc, char **argv)
{
    oxp_pipeline *pipeline;
    if (argc != 3)
        return 2;
    package = argv[1];
    backend = argv[2];
    backend_code = strcmp(backend, "native") == 0 ? OXP_BACKEND_NATIVE : OXP_BACKEND_ORT;
    pipeline = open_pipeline(package, backend);
    info(pipeline);
    components(pipeline);
    json(pipeline);
    opening();
    oxp_pipeline_free(pipeline);
    oxp_pipeline_free(pipeline);
    return check_result();
}
