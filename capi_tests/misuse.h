/* What the generated misuse program (see tests/capi/misuse.rs) calls functions with: live
 * handles of every type, freed ones, and valid values for every parameter. */
#ifndef MISUSE_H
#define MISUSE_H

#include "check.h"

/* One pixel, and one sample of 0.25 at 8 kHz. */
static const unsigned char image_file[58] = {'B', 'M', 58, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0, 1, 0,
                                             0,   0,   1,  0, 0, 0, 1, 0, 24, 0, 0, 0, 0, 0, 4, 0, 0, 0};
static const unsigned char sound_file[46] = {'R', 'I', 'F', 'F', 38,   0,    0, 0, 'W',  'A',  'V', 'E', 'f', 'm', 't', ' ',
                                             16,  0,   0,   0,   1,    0,    1, 0, 0x40, 0x1F, 0,   0,   0x80, 0x3E, 0,  0,
                                             2,   0,   16,  0,   'd',  'a',  't', 'a', 2, 0,   0,   0,   0,   0x20};

/* One live handle of each type, and values. */
static struct {
    char model_path[4096];
    char package_path[4096];
    char tokenizer_path[4096];
    const char *backend;
    oxp_error *error;
    oxp_options *runtime_options;
    oxp_options *session_options;
    oxp_options *pipeline_options;
    oxp_options *run_options;
    oxp_cancel *cancel;
    oxp_runtime *runtime;
    oxp_session *session;
    oxp_outputs *outputs;
    oxp_pipeline *pipeline;
    oxp_run *run;
    /* One that chose a token with the option "logprobs", and one that searched beams. */
    oxp_run *chosen;
    oxp_run *searched;
    oxp_tokenizer *tokenizer;
    oxp_decode_stream *stream;
    oxp_chat_template *chat_template;
    oxp_batch *batch;
    oxp_batch *full_batch;
    oxp_pipeline *embedder;
    oxp_pipeline *classifier;
    const char *texts[1];

    char model[1 << 14];
    uint64_t model_len;
    char json[1 << 14];
    uint64_t json_len;
    char config[1 << 14];
    uint64_t config_len;
    char package[8][1 << 13];
    oxp_file package_files[8];
    uint64_t package_file_count;
    oxp_file files[1];

    float x[4];
    int64_t x_dims[2];
    float y[4];
    int64_t y_dims[2];
    oxp_named_in ins[1];
    oxp_named_out outs[1];
    const char *names[1];
    uint64_t name_lens[1];
    float pixels[8];
    int64_t pixel_dims[2];
    oxp_tensor_in pixel_tensor;
    float room_data[64];
    int64_t room_dims[4];
    oxp_tensor_out room;
    oxp_tensor_in view;
    oxp_tensor_in probe_tensor;
    int32_t tokens[1];
    int32_t ids[64];

    char buffer[1 << 16];
    char state[1 << 16];
    uint64_t state_size;
    uint64_t needed;
    uint64_t number;
    uint32_t code;
    int32_t answer;
    const char *text;
    uint64_t text_len;
    const char *text2;
    uint64_t text2_len;
    const float *logits;
    float logprob;
    double score;
    const oxp_token_logprob *top;
    oxp_port_info port;
    oxp_session_stats session_stats;
    oxp_component_info component;
    oxp_pipeline_info pipeline_info;
    oxp_event event;
    oxp_run_stats run_stats;
} f;

/* Handles that were freed, of each type. */
static struct {
    oxp_error *error;
    oxp_options *options;
    oxp_cancel *cancel;
    oxp_runtime *runtime;
    oxp_session *session;
    oxp_outputs *outputs;
    oxp_pipeline *pipeline;
    oxp_run *run;
    oxp_tokenizer *tokenizer;
    oxp_decode_stream *stream;
    oxp_chat_template *chat_template;
    oxp_batch *batch;
} freed;

/* Where calls put handles that they make. */
static struct {
    oxp_options *options;
    oxp_cancel *cancel;
    oxp_runtime *runtime;
    oxp_session *session;
    oxp_outputs *outputs;
    oxp_pipeline *pipeline;
    oxp_run *run;
    oxp_tokenizer *tokenizer;
    oxp_decode_stream *stream;
    oxp_chat_template *chat_template;
    oxp_batch *batch;
} out;

static void free_outs(void)
{
    oxp_options_free(out.options);
    oxp_cancel_free(out.cancel);
    oxp_runtime_free(out.runtime);
    oxp_session_free(out.session);
    oxp_outputs_free(out.outputs);
    oxp_pipeline_free(out.pipeline);
    oxp_run_free(out.run);
    oxp_tokenizer_free(out.tokenizer);
    oxp_decode_stream_free(out.stream);
    oxp_chat_template_free(out.chat_template);
    oxp_batch_free(out.batch);
    memset(&out, 0, sizeof out);
}

/* Something that is not NULL in every place, so that a failing call is seen to clear it. */
static void spoil_outs(void)
{
    memset(&out, 0x11, sizeof out);
}

static uint64_t read_into(char *bytes, uint64_t size, const char *path)
{
    uint64_t len = 0;
    FILE *file = fopen(path, "rb");
    if (CHECK(file != NULL)) {
        len = fread(bytes, 1, size, file);
        CHECK(len > 0 && len < size);
        fclose(file);
    }
    return len;
}

static void add_package_file(const char *name)
{
    char path[4200];
    size_t at = (size_t)f.package_file_count++;
    f.package_files[at].name = name;
    f.package_files[at].name_len = NT;
    f.package_files[at].data = f.package[at];
    f.package_files[at].byte_len =
        read_into(f.package[at], sizeof f.package[at], join(path, sizeof path, f.package_path, name));
}

static oxp_options *make_options(uint32_t kind)
{
    oxp_options *options = NULL;
    MUST(oxp_options_create(kind, &options, ERR));
    return options;
}

/* Values that calls may have changed, as they were. */
static void fresh_values(void)
{
    oxp_port_info port = OXP_PORT_INFO_INIT;
    oxp_session_stats session_stats = OXP_SESSION_STATS_INIT;
    oxp_component_info component = OXP_COMPONENT_INFO_INIT;
    oxp_pipeline_info pipeline_info = OXP_PIPELINE_INFO_INIT;
    oxp_event event = OXP_EVENT_INIT;
    oxp_run_stats run_stats = OXP_RUN_STATS_INIT;
    oxp_named_out room = named_out("", f.room_data, sizeof f.room_data, f.room_dims, 4);
    f.port = port;
    f.session_stats = session_stats;
    f.component = component;
    f.pipeline_info = pipeline_info;
    f.event = event;
    f.run_stats = run_stats;
    f.room = room.tensor;
    f.ins[0] = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, f.x, sizeof f.x, f.x_dims, 2));
    f.outs[0] = named_out("y", f.y, sizeof f.y, f.y_dims, 2);
}

/* A run, a stream and a cancel object as a call expects them: logits are there, an answer
 * can be forced, finished, rewound. */
static void fresh(void)
{
    oxp_run_free(f.run);
    oxp_decode_stream_free(f.stream);
    oxp_cancel_free(f.cancel);
    oxp_batch_free(f.batch);
    oxp_batch_free(f.full_batch);
    f.batch = NULL;
    f.full_batch = NULL;
    f.run = NULL;
    f.stream = NULL;
    f.cancel = NULL;
    fresh_values();
    MUST(oxp_cancel_create(&f.cancel, ERR));
    MUST(oxp_decode_stream_create(f.tokenizer, 1, &f.stream, ERR));
    MUST(oxp_run_create(f.pipeline, f.run_options, &f.run, ERR));
    MUST(oxp_run_set_input(f.run, "vision_encoder.pixel_values", NT, &f.pixel_tensor, ERR));
    MUST(oxp_run_set_input(f.run, "probe.value", NT, &f.probe_tensor, ERR));
    MUST(oxp_run_append_tokens(f.run, f.tokens, 1, ERR));
    MUST(oxp_run_forward(f.run, NULL, ERR));
    MUST(oxp_batch_create(f.pipeline, &f.batch, ERR));
    MUST(oxp_batch_create(f.pipeline, &f.full_batch, ERR));
    MUST(oxp_batch_add(f.full_batch, f.run, ERR));
}

/* A run of at most two tokens with one option, and an image and a prompt. */
static oxp_run *run_with(const char *key, const char *value)
{
    oxp_options *options = make_options(OXP_OPTIONS_RUN);
    oxp_run *run = NULL;
    MUST(oxp_options_set(options, key, NT, value, NT, ERR));
    MUST(oxp_options_set(options, "max_tokens", NT, "2", NT, ERR));
    MUST(oxp_run_create(f.pipeline, options, &run, ERR));
    oxp_options_free(options);
    MUST(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &f.pixel_tensor, ERR));
    MUST(oxp_run_append_tokens(run, f.tokens, 1, ERR));
    MUST(oxp_run_generate(run, NULL, NULL, NULL, NULL, ERR));
    return run;
}

static void set_up(const char *models, const char *package, const char *texts, const char *backend)
{
    static const int64_t eight[1] = {8};
    char path[4200];
    f.backend = backend;
    join(f.model_path, sizeof f.model_path, models, "affine.onnx");
    snprintf(f.package_path, sizeof f.package_path, "%s", package);
    join(f.tokenizer_path, sizeof f.tokenizer_path, package, "tokenizer.json");
    f.model_len = read_into(f.model, sizeof f.model, f.model_path);
    f.json_len = read_into(f.json, sizeof f.json, f.tokenizer_path);
    f.config_len =
        read_into(f.config, sizeof f.config, join(path, sizeof path, package, "tokenizer_config.json"));
    add_package_file("inference_metadata.yaml");
    add_package_file("vision_encoder.onnx");
    add_package_file("embedding.onnx");
    add_package_file("decoder.onnx");
    add_package_file("summary.onnx");
    add_package_file("probe.onnx");
    add_package_file("tokenizer.json");
    f.files[0].name = "weights.bin";
    f.files[0].name_len = NT;
    f.files[0].data = f.model;
    f.files[0].byte_len = f.model_len;
    f.x_dims[0] = 1;
    f.x_dims[1] = 4;
    f.names[0] = "y";
    f.name_lens[0] = 1;
    f.pixel_dims[0] = 1;
    f.pixel_dims[1] = 8;
    f.pixel_tensor = tensor_in(OXP_DTYPE_FLOAT32, f.pixels, sizeof f.pixels, f.pixel_dims, 2);
    f.probe_tensor = tensor_in(OXP_DTYPE_FLOAT32, f.pixels, sizeof f.pixels, eight, 1);
    f.tokens[0] = 3;

    CHECK(oxp_abi_version() == OXP_ABI_VERSION);
    CHECK(oxp_options_create(0, &out.options, &f.error) == OXP_ERR_INVALID_ARGUMENT && f.error != NULL);
    f.runtime_options = make_options(OXP_OPTIONS_RUNTIME);
    f.session_options = make_options(OXP_OPTIONS_SESSION);
    f.pipeline_options = make_options(OXP_OPTIONS_PIPELINE);
    f.run_options = make_options(OXP_OPTIONS_RUN);
    MUST(oxp_options_set(f.session_options, "backend", NT, backend, NT, ERR));
    MUST(oxp_options_set(f.pipeline_options, "backend", NT, backend, NT, ERR));
    MUST(oxp_options_set(f.run_options, "max_tokens", NT, "2", NT, ERR));
    MUST(oxp_runtime_create(f.runtime_options, &f.runtime, NULL, NULL, NULL, ERR));
    fresh_values();
    MUST(oxp_session_open(f.runtime, f.model_path, NT, f.session_options, &f.session, NULL, ERR));
    MUST(oxp_session_run_alloc(f.session, f.ins, 1, NULL, NULL, 0, &f.outputs, NULL, ERR));
    MUST(oxp_pipeline_open(f.runtime, f.package_path, NT, f.pipeline_options, &f.pipeline, NULL, NULL, NULL, ERR));
    MUST(oxp_tokenizer_open_pipeline(f.pipeline, &f.tokenizer, ERR));
    f.texts[0] = "three";
    f.embedder = open_pipeline(join(path, sizeof path, texts, "embedder"), backend);
    f.classifier = open_pipeline(join(path, sizeof path, texts, "classifier"), backend);
    MUST(oxp_chat_template_open_pipeline(f.pipeline, &f.chat_template, ERR));
    f.chosen = run_with("logprobs", "2");
    f.searched = run_with("num_beams", "2");

    /* The freed ones. */
    CHECK(oxp_options_create(0, &freed.options, &freed.error) == OXP_ERR_INVALID_ARGUMENT);
    freed.options = make_options(OXP_OPTIONS_RUN);
    MUST(oxp_cancel_create(&freed.cancel, ERR));
    MUST(oxp_runtime_create(NULL, &freed.runtime, NULL, NULL, NULL, ERR));
    MUST(oxp_session_open(NULL, f.model_path, NT, f.session_options, &freed.session, NULL, ERR));
    MUST(oxp_session_run_alloc(f.session, f.ins, 1, NULL, NULL, 0, &freed.outputs, NULL, ERR));
    MUST(oxp_pipeline_open(NULL, f.package_path, NT, f.pipeline_options, &freed.pipeline, NULL, NULL, NULL, ERR));
    MUST(oxp_run_create(freed.pipeline, NULL, &freed.run, ERR));
    MUST(oxp_tokenizer_open_pipeline(freed.pipeline, &freed.tokenizer, ERR));
    MUST(oxp_decode_stream_create(freed.tokenizer, 0, &freed.stream, ERR));
    MUST(oxp_chat_template_open_pipeline(freed.pipeline, &freed.chat_template, ERR));
    MUST(oxp_batch_create(freed.pipeline, &freed.batch, ERR));
    oxp_error_free(freed.error);
    oxp_options_free(freed.options);
    oxp_cancel_free(freed.cancel);
    oxp_runtime_free(freed.runtime);
    oxp_session_free(freed.session);
    oxp_outputs_free(freed.outputs);
    oxp_pipeline_free(freed.pipeline);
    oxp_run_free(freed.run);
    oxp_tokenizer_free(freed.tokenizer);
    oxp_decode_stream_free(freed.stream);
    oxp_chat_template_free(freed.chat_template);
    oxp_batch_free(freed.batch);
    fresh();
    MUST(oxp_run_save_copy(f.run, f.state, sizeof f.state, &f.state_size, ERR));
}

static void tear_down(void)
{
    free_outs();
    oxp_error_free(f.error);
    oxp_options_free(f.runtime_options);
    oxp_options_free(f.session_options);
    oxp_options_free(f.pipeline_options);
    oxp_options_free(f.run_options);
    oxp_cancel_free(f.cancel);
    oxp_runtime_free(f.runtime);
    oxp_session_free(f.session);
    oxp_outputs_free(f.outputs);
    oxp_pipeline_free(f.pipeline);
    oxp_run_free(f.run);
    oxp_run_free(f.chosen);
    oxp_run_free(f.searched);
    oxp_tokenizer_free(f.tokenizer);
    oxp_decode_stream_free(f.stream);
    oxp_chat_template_free(f.chat_template);
    oxp_batch_free(f.batch);
    oxp_batch_free(f.full_batch);
    oxp_pipeline_free(f.embedder);
    oxp_pipeline_free(f.classifier);
}

#endif
