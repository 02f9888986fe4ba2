/* The life of a run. Arguments: the package of tests/capi/models.rs, in which each token is
 * followed by the next and 7 ends the text; the backend. */
#include "check.h"

#include <math.h>
#include <pthread.h>

static oxp_pipeline *pipeline;
static const char *package;
static const char *backend;
static float black[8];
static int64_t image_dims[2] = {1, 8};

static oxp_tensor_in image(const float *pixels)
{
    return tensor_in(OXP_DTYPE_FLOAT32, pixels, 32, image_dims, 2);
}

/* A run with an image and the prompt [3]. */
static oxp_run *start(const char *max_tokens)
{
    static const int32_t prompt[1] = {3};
    oxp_tensor_in pixels = image(black);
    oxp_run *run = create_run(pipeline, max_tokens);
    MUST(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    MUST(oxp_run_append_tokens(run, prompt, 1, ERR));
    return run;
}

static oxp_event step(oxp_run *run)
{
    oxp_event event = OXP_EVENT_INIT;
    OK(oxp_run_step(run, &event, NULL, ERR));
    return event;
}

static void tokens_are(oxp_run *run, const int32_t *wanted, uint64_t count)
{
    int32_t found[64];
    uint64_t needed = 0;
    OK(oxp_run_tokens_copy(run, found, 64, &needed, ERR));
    CHECK(needed == count && memcmp(found, wanted, count * sizeof *found) == 0);
}

static void steps(void)
{
    static const int32_t all[5] = {3, 4, 5, 6, 7};
    oxp_run *run = start("10");
    oxp_event event;
    oxp_run_stats stats = OXP_RUN_STATS_INIT;
    int32_t short_buffer[2] = {-9, -9};
    uint64_t needed = 0;

    event = step(run);
    CHECK(event.token == 4 && event.finish_reason == OXP_FINISH_NONE && event.finish_index == -1);
    CHECK_TEXT(event.text, "four");
    CHECK(event.text_len == 4 && event.prompt_tokens == 1 && event.generated_tokens == 1);
    /* Softmax over seven zeros and a one. */
    CHECK(fabs((double)event.logprob - (1 - log(7 + exp(1.0)))) < 1e-5);
    CHECK(event.total_ns > 0 && event.total_ns >= event.decoder_ns && event.prompt_components_ns > 0);
    event = step(run);
    CHECK(event.token == 5 && event.prompt_components_ns == 0);
    event = step(run);
    CHECK(event.token == 6);
    event = step(run);
    CHECK(event.token == 7 && event.finish_reason == OXP_FINISH_END_OF_TEXT && event.finish_index == 0);
    EXPECT(OXP_ERR_INVALID_STATE, "finished", oxp_run_step(run, &event, NULL, ERR));
    tokens_are(run, all, 5);

    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "holds 2", oxp_run_tokens_copy(run, short_buffer, 2, &needed, ERR));
    CHECK(needed == 5 && short_buffer[0] == -9);
    OK(oxp_run_get_stats(run, &stats, ERR));
    CHECK(stats.finish_reason == OXP_FINISH_END_OF_TEXT && stats.prompt_tokens == 1 && stats.generated_tokens == 4);
    /* One image, four steps of two components. */
    CHECK(stats.component_runs == 9 && stats.kv_bytes >= 4 * 32 && stats.decode_ns > 0);

    /* A run that is finished takes the next turn. */
    OK(oxp_run_append_tokens(run, all + 1, 1, ERR));
    event = step(run);
    CHECK(event.token == 5);
    oxp_run_free(run);
}

static void states(void)
{
    oxp_run *run = create_run(pipeline, "3");
    oxp_event event = OXP_EVENT_INIT;
    oxp_tensor_in pixels = image(black);
    oxp_tensor_in view = OXP_TENSOR_IN_INIT;
    const float *logits = NULL;
    uint64_t count = 0;
    static const int32_t prompt[2] = {2, 99};
    static const int32_t negative[1] = {-1};

    EXPECT(OXP_ERR_MISSING_INPUT, "pixel_values", oxp_run_step(run, &event, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_STATE, "logits", oxp_run_get_logits(run, &logits, &count, ERR));
    EXPECT(OXP_ERR_INVALID_STATE, "logits", oxp_run_force_token(run, 1, &event, ERR));
    EXPECT(OXP_ERR_INVALID_STATE, "no value", oxp_run_get_tensor(run, "decoder.logits", NT, &view, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "99", oxp_run_append_tokens(run, prompt, 2, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "-1", oxp_run_append_tokens(run, negative, 1, ERR));
    tokens_are(run, prompt, 0);
    OK(oxp_run_append_tokens(run, prompt, 1, ERR));
    EXPECT(OXP_ERR_MISSING_INPUT, "pixel_values", oxp_run_step(run, &event, NULL, ERR));
    tokens_are(run, prompt, 1);

    /* Wrong addresses and values. */
    EXPECT(OXP_ERR_UNKNOWN_COMPONENT, "nobody", oxp_run_set_input(run, "nobody.x", NT, &pixels, ERR));
    EXPECT(OXP_ERR_UNKNOWN_PORT, "pixels", oxp_run_set_input(run, "vision_encoder.pixels", NT, &pixels, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "component.port", oxp_run_set_input(run, "pixel_values", NT, &pixels, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "fed by", oxp_run_set_input(run, "decoder.past", NT, &pixels, ERR));
    EXPECT(OXP_ERR_UNKNOWN_COMPONENT, "nobody", oxp_run_get_tensor(run, "nobody.x", NT, &view, ERR));
    EXPECT(OXP_ERR_UNKNOWN_PORT, "x", oxp_run_get_tensor(run, "decoder.x", NT, &view, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "component.port", oxp_run_get_tensor(run, "logits", NT, &view, ERR));
    pixels.dtype = OXP_DTYPE_INT32;
    EXPECT(OXP_ERR_DTYPE_MISMATCH, "int32",
           oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    pixels.dtype = 8;
    EXPECT(OXP_ERR_UNSUPPORTED_DTYPE, "dtype 8",
           oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    pixels = image(black);
    pixels.byte_len = 31;
    EXPECT(OXP_ERR_INVALID_TENSOR, "byte_len 31",
           oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    pixels = image(black);
    pixels.struct_size = 44;
    EXPECT(OXP_ERR_STRUCT_SIZE, "44", oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    pixels = image(black);
    pixels.rank = 1;
    pixels.shape = image_dims + 1;
    EXPECT(OXP_ERR_SHAPE_MISMATCH, "rank", oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));

    /* After all of that it runs. */
    pixels = image(black);
    OK(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    event = step(run);
    CHECK(event.token == 3);
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "rewind", oxp_run_rewind(run, 9, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "99", oxp_run_force_token(run, 99, &event, ERR));
    event = step(run);
    event = step(run);
    CHECK(event.token == 5 && event.finish_reason == OXP_FINISH_MAX_TOKENS && event.finish_index == -1);
    EXPECT(OXP_ERR_INVALID_STATE, "finished", oxp_run_step(run, &event, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_STATE, "finished", oxp_run_step(run, &event, NULL, ERR));
    oxp_run_free(run);
    EXPECT(OXP_ERR_INVALID_HANDLE, "has been freed", oxp_run_step(run, &event, NULL, ERR));
}

static void inputs(void)
{
    float bright[8] = {0, 0, 0, 0, 10, 0, 0, 0};
    oxp_run *run = start("3");
    oxp_tensor_in pixels = image(bright);
    oxp_event event = OXP_EVENT_INIT;
    unsigned char unaligned[33];

    /* Another image, another token; also when the image comes after a step. */
    CHECK(step(run).token == 4);
    OK(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    OK(oxp_run_rewind(run, 1, ERR));
    CHECK(step(run).token == 5);
    OK(oxp_run_rewind(run, 0, ERR));
    EXPECT(OXP_ERR_INVALID_STATE, "tokens", oxp_run_step(run, &event, NULL, ERR));

    /* The value was copied, and may lie unaligned. */
    memcpy(unaligned + 1, bright, 32);
    pixels.data = unaligned + 1;
    OK(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    memset(unaligned, 0, sizeof unaligned);
    OK(oxp_run_append_text(run, "one three", NT, 0, NULL, ERR));
    CHECK(step(run).token == 5);

    OK(oxp_run_clear_input(run, "vision_encoder.pixel_values", NT, ERR));
    OK(oxp_run_rewind(run, 2, ERR));
    EXPECT(OXP_ERR_MISSING_INPUT, "pixel_values", oxp_run_step(run, &event, NULL, ERR));
    EXPECT(OXP_ERR_UNKNOWN_PORT, "nothing", oxp_run_clear_input(run, "vision_encoder.nothing", NT, ERR));
    oxp_run_free(run);
}

static void values(void)
{
    oxp_run *run = start("3");
    oxp_tensor_in view = OXP_TENSOR_IN_INIT;
    oxp_tensor_out room = OXP_TENSOR_OUT_INIT;
    float data[16];
    int64_t dims[4];
    static const int32_t more[2] = {3, 0};

    OK(oxp_run_append_tokens(run, more, 2, ERR));
    CHECK(step(run).token == 1);
    OK(oxp_run_get_tensor(run, "vision_encoder.features", NT, &view, ERR));
    CHECK(view.byte_len == 32 && view.rank == 2 && view.struct_size == sizeof view);
    OK(oxp_run_get_tensor(run, "decoder.present", NT, &view, ERR));
    CHECK(view.rank == 4 && view.shape[2] == 3 && view.byte_len == 96);
    CHECK(((const float *)view.data)[3] == 1 && ((const float *)view.data)[16] == 1);
    OK(oxp_run_get_tensor(run, "vision_encoder.pixel_values", NT, &view, ERR));
    CHECK(view.byte_len == 32);

    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "rank 2, shape_capacity is 0",
           oxp_run_copy_tensor(run, "vision_encoder.features", NT, &room, ERR));
    CHECK(room.byte_len == 32 && room.rank == 2 && room.dtype == OXP_DTYPE_FLOAT32);
    room.shape = dims;
    room.shape_capacity = 4;
    room.data = data;
    room.capacity = 31;
    data[0] = 77;
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "32 bytes, capacity is 31",
           oxp_run_copy_tensor(run, "vision_encoder.features", NT, &room, ERR));
    CHECK(data[0] == 77);
    room.capacity = sizeof data;
    OK(oxp_run_copy_tensor(run, "vision_encoder.features", NT, &room, ERR));
    CHECK(data[0] == 0 && dims[0] == 1 && dims[1] == 8 && room.byte_len == 32);
    room.shape = (int64_t *)(void *)data;
    EXPECT(OXP_ERR_OVERLAP, "overlap", oxp_run_copy_tensor(run, "vision_encoder.features", NT, &room, ERR));
    room.struct_size = 1;
    EXPECT(OXP_ERR_STRUCT_SIZE, "48", oxp_run_copy_tensor(run, "vision_encoder.features", NT, &room, ERR));
    CHECK(step(run).token == 2);
    oxp_run_free(run);
}

/* The host chooses the tokens. */
static void sampling(void)
{
    static const int32_t all[4] = {3, 0, 1, 2};
    oxp_run *run = start("10");
    oxp_event event = OXP_EVENT_INIT;
    const float *logits = NULL;
    uint64_t count = 0;

    OK(oxp_run_forward(run, NULL, ERR));
    OK(oxp_run_get_logits(run, &logits, &count, ERR));
    CHECK(count == 8 && logits[4] == 1 && logits[0] == 0);
    OK(oxp_run_force_token(run, 0, &event, ERR));
    CHECK(event.token == 0 && event.generated_tokens == 1);
    CHECK_TEXT(event.text, "zero");
    CHECK(step(run).token == 1);
    /* In place of what a step chose. */
    CHECK(step(run).token == 2);
    OK(oxp_run_force_token(run, 5, &event, ERR));
    CHECK(event.token == 5 && event.generated_tokens == 3);
    CHECK(step(run).token == 6);
    OK(oxp_run_rewind(run, 3, ERR));
    CHECK(step(run).token == 2);
    tokens_are(run, all, 4);
    oxp_run_free(run);
}

/* A host's callback that is kept: what it does, and how often it is called and freed. */
struct hook {
    int calls;
    int freed;
    int32_t answer;
    int32_t token;
};

static void free_hook(void *user_data)
{
    ((struct hook *)user_data)->freed += 1;
}

/* Makes token 1 the most probable one. */
static int32_t change_logits(void *user_data, float *logits, uint64_t count, const int32_t *tokens, uint64_t token_count)
{
    struct hook *const hook = (struct hook *)user_data;
    hook->calls += 1;
    CHECK(count == 8 && logits[4] == 1 && token_count == 1 && tokens[0] == 3);
    logits[1] = 9;
    return hook->answer;
}

static oxp_run *hooked;

static int32_t choose(void *user_data, const float *logprobs, uint64_t count, const int32_t *tokens,
                      uint64_t token_count, int32_t *token)
{
    struct hook *const hook = (struct hook *)user_data;
    hook->calls += 1;
    CHECK(count == 8 && token_count >= 1 && tokens[0] == 3 && isinf(logprobs[0]) && logprobs[4] < 0);
    EXPECT(OXP_ERR_BUSY, "another call", oxp_run_rewind(hooked, 0, ERR));
    *token = hook->token;
    return hook->answer;
}

static void host_callbacks(void)
{
    static const int32_t unchanged[1] = {3};
    struct hook first = {0, 0, 0, 0}, second = {0, 0, 0, 6};
    oxp_event event = OXP_EVENT_INIT;
    oxp_options *options = NULL;
    oxp_run *run = start("10");

    OK(oxp_run_set_logits_hook(run, change_logits, &first, free_hook, ERR));
    CHECK(step(run).token == 1 && first.calls == 1 && first.freed == 0);
    OK(oxp_run_rewind(run, 1, ERR));
    first.answer = 5;
    EXPECT(OXP_ERR_CANCELLED, "logits hook", oxp_run_step(run, &event, NULL, ERR));
    tokens_are(run, unchanged, 1);
    OK(oxp_run_set_logits_hook(run, NULL, NULL, NULL, ERR));
    CHECK(first.freed == 1 && step(run).token == 4);
    /* Freed also by a call that fails, and with the run. */
    EXPECT(OXP_ERR_INVALID_HANDLE, "run", oxp_run_set_sampler(NULL, choose, &first, free_hook, ERR));
    CHECK(first.freed == 2);
    oxp_run_free(run);

    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    OK(oxp_options_set(options, "suppress_tokens", NT, "0", NT, ERR));
    OK(oxp_run_create(pipeline, options, &run, ERR));
    {
        oxp_tensor_in pixels = image(black);
        OK(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    }
    OK(oxp_run_append_tokens(run, unchanged, 1, ERR));
    hooked = run;
    OK(oxp_run_set_sampler(run, choose, &second, free_hook, ERR));
    CHECK(step(run).token == 6 && second.calls == 1);
    second.token = 8;
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "the host's sampler has the token 8", oxp_run_step(run, &event, NULL, ERR));
    second.answer = -1;
    EXPECT(OXP_ERR_CANCELLED, "sampler ended", oxp_run_step(run, &event, NULL, ERR));
    oxp_run_free(run);
    CHECK(second.freed == 1);
    oxp_options_free(options);
}

static void logprobs(void)
{
    oxp_options *options = NULL;
    oxp_run *run = NULL;
    const oxp_token_logprob *top = NULL;
    uint64_t count = 0;
    float chosen = 0;
    oxp_tensor_in pixels = image(black);
    static const int32_t prompt[1] = {3};
    const double total = log(7 + exp(1.0));

    run = start("10");
    step(run);
    EXPECT(OXP_ERR_INVALID_STATE, "logprobs", oxp_run_get_logprobs(run, OXP_LOGPROBS_RAW, NULL, &top, &count, ERR));
    oxp_run_free(run);
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    OK(oxp_options_set(options, "logprobs", NT, "3", NT, ERR));
    OK(oxp_options_set(options, "top_k", NT, "1", NT, ERR));
    MUST(oxp_run_create(pipeline, options, &run, ERR));
    OK(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    OK(oxp_run_append_tokens(run, prompt, 1, ERR));
    CHECK(step(run).token == 4);
    OK(oxp_run_get_logprobs(run, OXP_LOGPROBS_RAW, &chosen, &top, &count, ERR));
    CHECK(count == 3 && fabs((double)chosen - (1 - total)) < 1e-5);
    CHECK(top[0].token == 4 && top[0].logprob == chosen && top[1].token == 0 && top[2].token == 1);
    CHECK(fabs((double)top[2].logprob + total) < 1e-5);
    OK(oxp_run_get_logprobs(run, OXP_LOGPROBS_PROCESSED, &chosen, &top, &count, ERR));
    CHECK(count == 1 && top[0].token == 4 && chosen == 0 && top[0].logprob == 0);
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "distribution 2", oxp_run_get_logprobs(run, 2, NULL, &top, &count, ERR));
    oxp_run_free(run);
    oxp_options_free(options);
}

/* The most probable answers of three tokens: each token is followed by the next with e / (e + 7). */
static void beams(void)
{
    static const char *const keys[3] = {"num_beams", "num_return_sequences", "max_tokens"};
    static const char *const values[3] = {"3", "2", "3"};
    static const int32_t prompt[1] = {3}, best[4] = {3, 4, 5, 6};
    oxp_options *options = NULL;
    oxp_run *run = NULL;
    oxp_event event = OXP_EVENT_INIT;
    oxp_tensor_in pixels = image(black);
    uint32_t reason = 0;
    uint64_t count = 9, needed = 0;
    int32_t tokens[3] = {0, 0, 0};
    double score = 0;
    int i;

    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    for (i = 0; i < 3; i++)
        OK(oxp_options_set(options, keys[i], NT, values[i], NT, ERR));
    MUST(oxp_run_create(pipeline, options, &run, ERR));
    OK(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    OK(oxp_run_append_tokens(run, prompt, 1, ERR));
    OK(oxp_run_get_sequence_count(run, &count, ERR));
    CHECK(count == 0);
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "num_beams 1", oxp_run_step(run, &event, NULL, ERR));
    OK(oxp_run_generate(run, &reason, NULL, NULL, NULL, ERR));
    CHECK(reason == OXP_FINISH_MAX_TOKENS);
    tokens_are(run, best, 4);
    OK(oxp_run_get_sequence_count(run, &count, ERR));
    CHECK(count == 2);
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "holds 2", oxp_run_sequence_copy(run, 0, tokens, 2, &needed, NULL, ERR));
    OK(oxp_run_sequence_copy(run, 0, tokens, 3, &needed, &score, ERR));
    CHECK(needed == 3 && memcmp(tokens, best + 1, sizeof tokens) == 0);
    CHECK(fabs(score - (1 - log(7 + exp(1.0)))) < 1e-5);
    OK(oxp_run_sequence_copy(run, 1, NULL, 0, &needed, &score, ERR));
    CHECK(needed >= 1 && score < 1 - log(7 + exp(1.0)));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "no sequence 2", oxp_run_sequence_copy(run, 2, tokens, 3, &needed, NULL, ERR));
    oxp_run_free(run);
    oxp_options_free(options);
}

static void phases(void)
{
    oxp_run *run = start("2");
    oxp_tensor_in view = OXP_TENSOR_IN_INIT;
    float value[3] = {1, 2, 3};
    int64_t dims[1] = {3};
    oxp_tensor_in probe = tensor_in(OXP_DTYPE_FLOAT32, value, sizeof value, dims, 1);

    step(run);
    step(run);
    EXPECT(OXP_ERR_INVALID_STATE, "no value", oxp_run_get_tensor(run, "summary.doubled", NT, &view, ERR));
    OK(oxp_run_finish(run, NULL, ERR));
    OK(oxp_run_get_tensor(run, "summary.doubled", NT, &view, ERR));
    /* Twice the ids that were chosen, or all of them: as the package's output_ids says. */
    CHECK(view.byte_len >= 8 && ((const float *)view.data)[view.byte_len / 4 - 1] == 10);
    CHECK(((const float *)view.data)[view.byte_len / 4 - 2] == 8);

    EXPECT(OXP_ERR_MISSING_INPUT, "value", oxp_run_execute(run, "probe", NT, NULL, ERR));
    OK(oxp_run_set_input(run, "probe.value", NT, &probe, ERR));
    OK(oxp_run_execute(run, "probe", NT, NULL, ERR));
    OK(oxp_run_get_tensor(run, "probe.doubled", NT, &view, ERR));
    CHECK(view.byte_len == 12 && ((const float *)view.data)[2] == 6);
    EXPECT(OXP_ERR_INVALID_STATE, "every_step", oxp_run_execute(run, "decoder", NT, NULL, ERR));
    EXPECT(OXP_ERR_UNKNOWN_COMPONENT, "nobody", oxp_run_execute(run, "nobody", NT, NULL, ERR));
    oxp_run_free(run);
}

struct seen {
    oxp_run *run;
    int32_t tokens[16];
    int count;
    int stop_after;
    int32_t busy;
    char text[64];
};

static int32_t on_event(void *user_data, const oxp_event *event)
{
    struct seen *seen = (struct seen *)user_data;
    oxp_event inner = OXP_EVENT_INIT;
    seen->tokens[seen->count++] = event->token;
    strncat(seen->text, event->text, sizeof seen->text - strlen(seen->text) - 1);
    CHECK(event->struct_size == sizeof *event);
    /* Re-entry is refused, and harms nothing. */
    EXPECT(OXP_ERR_BUSY, "one call at a time", oxp_run_step(seen->run, &inner, NULL, ERR));
    seen->busy += 1;
    return seen->count == seen->stop_after ? 5 : 0;
}

static void generating(void)
{
    static const int32_t all[5] = {3, 4, 5, 6, 7};
    struct seen seen;
    uint32_t reason = 99;
    oxp_cancel *cancel = NULL;
    oxp_run *run = start("10");

    memset(&seen, 0, sizeof seen);
    seen.run = run;
    OK(oxp_run_generate(run, &reason, on_event, &seen, NULL, ERR));
    CHECK(reason == OXP_FINISH_END_OF_TEXT && seen.count == 4 && seen.busy == 4);
    CHECK(memcmp(seen.tokens, all + 1, 4 * sizeof *all) == 0);
    CHECK_TEXT(seen.text, "four five");
    EXPECT(OXP_ERR_INVALID_STATE, "finished", oxp_run_generate(run, &reason, on_event, &seen, NULL, ERR));
    oxp_run_free(run);

    /* Stopped by the callback: what it was told about has happened, and it can go on. */
    run = start("10");
    memset(&seen, 0, sizeof seen);
    seen.run = run;
    seen.stop_after = 2;
    EXPECT(OXP_ERR_CANCELLED, "returned 5", oxp_run_generate(run, &reason, on_event, &seen, NULL, ERR));
    tokens_are(run, all, 3);
    OK(oxp_run_generate(run, NULL, NULL, NULL, NULL, ERR));
    tokens_are(run, all, 5);
    oxp_run_free(run);

    /* Cancelled beforehand: nothing has happened. */
    run = start("10");
    MUST(oxp_cancel_create(&cancel, ERR));
    OK(oxp_cancel_request(cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled", oxp_run_generate(run, &reason, NULL, NULL, cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled", oxp_run_forward(run, cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled", oxp_run_finish(run, cancel, ERR));
    tokens_are(run, all, 1);
    OK(oxp_cancel_reset(cancel, ERR));
    OK(oxp_run_generate(run, &reason, NULL, NULL, cancel, ERR));
    oxp_cancel_free(cancel);
    oxp_run_free(run);
}

static void texts(void)
{
    static const int32_t two[2] = {1, 3};
    oxp_run *run = create_run(pipeline, "2");
    uint64_t count = 0;
    oxp_tensor_in pixels = image(black);
    OK(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    OK(oxp_run_append_text(run, "one three four", 9, 1, &count, ERR));
    CHECK(count == 2);
    tokens_are(run, two, 2);
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "add_special is 2", oxp_run_append_text(run, "one", NT, 2, &count, ERR));
    EXPECT(OXP_ERR_INVALID_UTF8, "text", oxp_run_append_text(run, "\xff", NT, 0, &count, ERR));
    tokens_are(run, two, 2);
    CHECK(step(run).token == 4);
    oxp_run_free(run);
}

/* Two threads in one run: calls that overlap are refused, none is lost or doubled. */
static oxp_run *shared_run;
static int refused[2];
static int done[2];

static void *stepping(void *which)
{
    int at = *(int *)which;
    while (done[at] < 300) {
        oxp_event event = OXP_EVENT_INIT;
        oxp_status status = oxp_run_step(shared_run, &event, NULL, NULL);
        if (status == OXP_OK)
            done[at] += 1;
        else if (status == OXP_ERR_BUSY)
            refused[at] += 1;
        else
            return NULL;
        if (status == OXP_OK && oxp_run_rewind(shared_run, 1, NULL) == OXP_ERR_BUSY)
            refused[at] += 1;
    }
    return NULL;
}

static void two_threads(void)
{
    pthread_t threads[2];
    int which[2] = {0, 1};
    oxp_run_stats stats = OXP_RUN_STATS_INIT;
    oxp_options *options = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    MUST(oxp_options_set(options, "stop_on_eos", NT, "false", NT, ERR));
    MUST(oxp_options_set(options, "chunk_size", NT, "1", NT, ERR));
    MUST(oxp_run_create(pipeline, options, &shared_run, ERR));
    oxp_options_free(options);
    {
        static const int32_t prompt[1] = {3};
        oxp_tensor_in pixels = image(black);
        MUST(oxp_run_set_input(shared_run, "vision_encoder.pixel_values", NT, &pixels, ERR));
        MUST(oxp_run_append_tokens(shared_run, prompt, 1, ERR));
    }
    CHECK(pthread_create(&threads[0], NULL, stepping, &which[0]) == 0);
    CHECK(pthread_create(&threads[1], NULL, stepping, &which[1]) == 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    CHECK(done[0] + done[1] > 0);
    OK(oxp_run_get_stats(shared_run, &stats, ERR));
    /* Still usable. */
    OK(oxp_run_rewind(shared_run, 1, ERR));
    CHECK(step(shared_run).token == 4);
    oxp_run_free(shared_run);
}

/* Each thread takes one step of a run that the one before left to it, and ends: by a return, or in the
 * middle of a function of its own, after a call that failed. What it had of the library goes with it. */
static void *one_step(void *left)
{
    oxp_run *run = (oxp_run *)left;
    oxp_event event = OXP_EVENT_INIT;
    oxp_status status = oxp_run_step(run, &event, NULL, NULL);
    if (status == OXP_OK && event.token % 2 == 0)
        pthread_exit(oxp_run_rewind(NULL, 0, NULL) == OXP_ERR_INVALID_HANDLE ? left : NULL);
    return status == OXP_OK ? left : NULL;
}

static void threads_that_end(void)
{
    static const int32_t whole[5] = {3, 4, 5, 6, 7};
    oxp_run *run = NULL;
    int round;
    for (round = 0; round < 50; round++) {
        int at;
        run = start("10");
        for (at = 0; at < 4; at++) {
            pthread_t thread;
            void *told = NULL;
            CHECK(pthread_create(&thread, NULL, one_step, run) == 0);
            CHECK(pthread_join(thread, &told) == 0 && told == run);
        }
        tokens_are(run, whole, 5);
        oxp_run_free(run);
    }
}

/* A free from inside of a callback waits for the call to end. */
static int32_t free_in_callback(void *user_data, const oxp_event *event)
{
    oxp_run_free((oxp_run *)user_data);
    CHECK(event->token >= 0);
    return 0;
}

static void freed_meanwhile(void)
{
    oxp_run *run = start("3");
    uint32_t reason = 0;
    OK(oxp_run_generate(run, &reason, free_in_callback, run, NULL, ERR));
    CHECK(reason == OXP_FINISH_MAX_TOKENS);
    EXPECT(OXP_ERR_INVALID_HANDLE, "has been freed", oxp_run_rewind(run, 0, ERR));
}

/* A deadline that has passed when the call begins to look. */
static void deadlines(void)
{
    oxp_run *run = NULL;
    oxp_options *options = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    MUST(oxp_options_set(options, "timeout_ms", NT, "60000", NT, ERR));
    MUST(oxp_run_create(pipeline, options, &run, ERR));
    OK(oxp_run_append_text(run, "three", NT, 0, NULL, ERR));
    oxp_run_free(run);
    oxp_options_free(options);
}

/* Another run that goes on from one: at once, and of its bytes. */
static void forks(void)
{
    static const int32_t both[2] = {3, 4};
    static const int32_t whole[5] = {3, 4, 5, 6, 7};
    oxp_run *run = start("10");
    oxp_run *fork = NULL;
    oxp_run *loaded = NULL;
    oxp_options *options = NULL;
    oxp_run *plain = start("10");
    unsigned char *bytes;
    unsigned char small[8] = {1};
    char text[16] = "";
    uint64_t needed = 0;

    step(plain);
    snprintf(text, sizeof text, "%s", step(plain).text);
    CHECK(strlen(text) >= strlen("five"));
    oxp_run_free(plain);
    step(run);
    OK(oxp_run_fork(run, &fork, ERR));
    OK(oxp_run_set_seed(fork, 7, ERR));
    OK(oxp_run_save_copy(run, NULL, 0, &needed, ERR));
    CHECK(needed > 64);
    bytes = (unsigned char *)malloc(needed);
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "holds 8", oxp_run_save_copy(run, small, 8, &needed, ERR));
    CHECK(small[0] == 1);
    OK(oxp_run_save_copy(run, bytes, needed, &needed, ERR));
    OK(oxp_run_rewind(run, 1, ERR));

    tokens_are(fork, both, 2);
    CHECK_TEXT(step(fork).text, text);
    CHECK(step(fork).token == 6);
    CHECK(step(fork).finish_reason == OXP_FINISH_END_OF_TEXT);
    tokens_are(fork, whole, 5);
    CHECK(step(run).token == 4);
    oxp_run_free(run);

    OK(oxp_run_load(pipeline, NULL, bytes, needed, &loaded, ERR));
    tokens_are(loaded, both, 2);
    CHECK_TEXT(step(loaded).text, text);
    CHECK(step(loaded).token == 6);
    CHECK(step(loaded).finish_reason == OXP_FINISH_END_OF_TEXT);
    tokens_are(loaded, whole, 5);
    oxp_run_free(loaded);

    EXPECT(OXP_ERR_INVALID_ARGUMENT, "OXPSTATE", oxp_run_load(pipeline, NULL, small, 8, &loaded, ERR));
    CHECK(loaded == NULL);
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "its header says",
           oxp_run_load(pipeline, NULL, bytes, needed - 1, &loaded, ERR));
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    OK(oxp_options_set(options, "stop_on_eos", NT, "false", NT, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "stop_on_eos = false",
           oxp_run_load(pipeline, options, bytes, needed, &loaded, ERR));
    bytes[needed - 1] ^= 1;
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "check differs", oxp_run_load(pipeline, NULL, bytes, needed, &loaded, ERR));
    oxp_options_free(options);
    oxp_run_free(fork);
    free(bytes);
}

/* A draft changes no token: here the model is its own. */
static void drafts(void)
{
    static const int32_t whole[5] = {3, 4, 5, 6, 7};
    oxp_run *run = start("10");
    oxp_run_stats stats = OXP_RUN_STATS_INIT;
    uint32_t reason = 99;
    EXPECT(OXP_ERR_INVALID_HANDLE, "pipeline is NULL", oxp_run_set_draft(run, NULL, ERR));
    OK(oxp_run_set_draft(run, pipeline, ERR));
    OK(oxp_run_generate(run, &reason, NULL, NULL, NULL, ERR));
    CHECK(reason == OXP_FINISH_END_OF_TEXT);
    tokens_are(run, whole, 5);
    OK(oxp_run_get_stats(run, &stats, ERR));
    CHECK(stats.accepted_tokens <= stats.proposed_tokens);
    oxp_run_free(run);
}

/* What the callbacks of a batch's steps were told. */
struct told {
    oxp_run *runs[8];
    int32_t tokens[8];
    uint32_t reasons[8];
    int32_t errors;
    int32_t count;
    int32_t answer;
    /* Requested by the callback. */
    oxp_cancel *cancel;
};

static int32_t tell(void *user_data, oxp_run *run, const oxp_event *event, const oxp_error *error)
{
    struct told *told = (struct told *)user_data;
    if (error != NULL) {
        told->errors += 1;
        CHECK(event == NULL && oxp_error_get_code(error) == OXP_ERR_MISSING_INPUT);
        return told->answer;
    }
    CHECK(event != NULL);
    if (told->cancel != NULL)
        OK(oxp_cancel_request(told->cancel, ERR));
    told->runs[told->count] = run;
    told->tokens[told->count] = event->token;
    told->reasons[told->count++] = event->finish_reason;
    return told->answer;
}

/* Runs that join, step together, finish and leave. */
static void batches(void)
{
    static const int32_t five[1] = {5};
    static const int32_t long_one[5] = {3, 4, 5, 6, 7};
    oxp_batch *batch = NULL;
    oxp_run *first = start("10");
    oxp_run *second = start("10");
    oxp_run *late = start("10");
    oxp_run *bad = create_run(pipeline, "10");
    oxp_pipeline *other;
    oxp_run *foreign;
    uint64_t count = 9;
    struct told told;

    MUST(oxp_batch_create(pipeline, &batch, ERR));
    OK(oxp_batch_step(batch, &count, tell, &told, NULL, ERR));
    CHECK(count == 0);
    OK(oxp_batch_add(batch, first, ERR));
    EXPECT(OXP_ERR_INVALID_STATE, "already", oxp_batch_add(batch, first, ERR));
    /* Of another length than the first. */
    OK(oxp_run_append_tokens(second, five, 1, ERR));
    OK(oxp_batch_add(batch, second, ERR));
    OK(oxp_batch_get_count(batch, &count, ERR));
    CHECK(count == 2);
    memset(&told, 0, sizeof told);
    OK(oxp_batch_step(batch, &count, tell, &told, NULL, ERR));
    CHECK(count == 2 && told.count == 2 && told.runs[0] == first && told.runs[1] == second);
    CHECK(told.tokens[0] == 4 && told.tokens[1] == 6);
    /* One joins, and one that cannot run fails and leaves without the others noticing. */
    OK(oxp_batch_add(batch, late, ERR));
    OK(oxp_run_append_tokens(bad, five, 1, ERR));
    OK(oxp_batch_add(batch, bad, ERR));
    memset(&told, 0, sizeof told);
    OK(oxp_batch_step(batch, &count, tell, &told, NULL, ERR));
    CHECK(count == 3 && told.count == 3 && told.errors == 1);
    CHECK(told.tokens[0] == 5 && told.tokens[1] == 7 && told.tokens[2] == 4);
    CHECK(told.reasons[1] == OXP_FINISH_END_OF_TEXT);
    OK(oxp_batch_get_count(batch, &count, ERR));
    CHECK(count == 2);
    EXPECT(OXP_ERR_INVALID_STATE, "not in the batch", oxp_batch_remove(batch, second, ERR));
    OK(oxp_batch_remove(batch, late, ERR));
    memset(&told, 0, sizeof told);
    told.answer = 5;
    EXPECT(OXP_ERR_CANCELLED, "returned 5", oxp_batch_step(batch, &count, tell, &told, NULL, ERR));
    CHECK(told.count == 1 && told.tokens[0] == 6 && count == 1);
    /* A request that comes when all runs have taken their step is for the next one. */
    memset(&told, 0, sizeof told);
    MUST(oxp_cancel_create(&told.cancel, ERR));
    OK(oxp_batch_step(batch, &count, tell, &told, told.cancel, ERR));
    CHECK(told.count == 1 && count == 1);
    tokens_are(first, long_one, 5);
    EXPECT(OXP_ERR_CANCELLED, "cancel", oxp_batch_step(batch, &count, tell, &told, told.cancel, ERR));
    tokens_are(first, long_one, 5);
    oxp_cancel_free(told.cancel);
    CHECK(step(late).token == 5);

    other = open_pipeline(package, backend);
    foreign = create_run(other, "3");
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "another pipeline", oxp_batch_add(batch, foreign, ERR));
    oxp_run_free(foreign);
    oxp_pipeline_free(other);
    /* A batch keeps what is in it. */
    OK(oxp_batch_add(batch, late, ERR));
    oxp_run_free(late);
    OK(oxp_batch_step(batch, &count, NULL, NULL, NULL, ERR));
    CHECK(count == 1);
    OK(oxp_batch_remove(batch, late, ERR));
    EXPECT(OXP_ERR_INVALID_HANDLE, "run", oxp_batch_remove(batch, late, ERR));
    oxp_batch_free(batch);
    oxp_run_free(first);
    oxp_run_free(second);
    oxp_run_free(bad);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    pipeline = open_pipeline(argv[1], argv[2]);
    steps();
    states();
    inputs();
    values();
    sampling();
    host_callbacks();
    logprobs();
    beams();
    phases();
    generating();
    texts();
    two_threads();
    threads_that_end();
    freed_meanwhile();
    deadlines();
    forks();
    drafts();
    package = argv[1];
    backend = argv[2];
    batches();
    oxp_pipeline_free(pipeline);
    return check_result();
}
