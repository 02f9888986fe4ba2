/* The loop of an iterative package. Arguments: the packages of tests/capi/models.rs, one whose
 * denoiser makes sample = (sample + cond) / 2 and total = total + t, and one with a scheduler
 * and guidance that ends at sample - 2 cond; the backend. */
#include "check.h"

#include <math.h>

static oxp_pipeline *pipeline;
static const float cond[4] = {1, 2, 3, 4};
static const int64_t dims[2] = {1, 4};
static const int64_t no_dims[1] = {0};

static void give(oxp_run *run, const char *address, const float *values, uint64_t count)
{
    oxp_tensor_in tensor = tensor_in(OXP_DTYPE_FLOAT32, values, count * 4, count == 4 ? dims : no_dims,
                                     count == 4 ? 2 : 0);
    MUST(oxp_run_set_input(run, address, NT, &tensor, ERR));
}

static oxp_run *start(const char *key, const char *value)
{
    static const float zeros[4] = {0, 0, 0, 0};
    oxp_options *options = NULL;
    oxp_run *run = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    if (key)
        MUST(oxp_options_set(options, key, NT, value, NT, ERR));
    MUST(oxp_run_create(pipeline, options, &run, ERR));
    oxp_options_free(options);
    give(run, "denoiser.cond", cond, 4);
    give(run, "denoiser.sample", zeros, 4);
    give(run, "denoiser.total", zeros, 1);
    return run;
}

/* What `steps` steps make of zeros: cond * (1 - 2^-steps). */
static int is_latent(const oxp_tensor_in *tensor, int steps)
{
    const float *found = (const float *)tensor->data;
    float part = 1;
    int good = tensor->struct_size == sizeof *tensor && tensor->dtype == OXP_DTYPE_FLOAT32 && tensor->rank == 2 &&
               tensor->shape[0] == 1 && tensor->shape[1] == 4 && tensor->byte_len == 16;
    int at;
    for (at = 0; at < steps; at++)
        part /= 2;
    for (at = 0; good && at < 4; at++)
        good = found[at] == cond[at] * (1 - part);
    return good;
}

static int has_latent(oxp_run *run, int steps)
{
    oxp_tensor_in tensor = OXP_TENSOR_IN_INIT;
    return OK(oxp_run_get_tensor(run, "denoiser.sample", NT, &tensor, ERR)) && is_latent(&tensor, steps);
}

static void stepping(void)
{
    /* The timesteps of the package, added up. */
    static const float totals[3] = {8, 12, 13};
    oxp_run *run = start(NULL, NULL);
    oxp_tensor_in image = OXP_TENSOR_IN_INIT;
    uint32_t step;
    EXPECT(OXP_ERR_INVALID_STATE, "step first", oxp_run_finish(run, NULL, ERR));
    for (step = 1; step <= 3; step++) {
        oxp_event event = OXP_EVENT_INIT;
        OK(oxp_run_step(run, &event, NULL, ERR));
        CHECK(event.token == -1 && event.text_len == 0 && event.logprob == 0);
        CHECK(event.loop_step == step && event.loop_step_count == 3);
        CHECK(event.finish_reason == (step == 3 ? OXP_FINISH_COMPLETED : OXP_FINISH_NONE));
        CHECK(event.decoder_ns > 0 && event.total_ns >= event.decoder_ns);
        if (CHECK(event.latent_count == 2 && event.latents != NULL)) {
            CHECK(is_latent(&event.latents[0], (int)step));
            CHECK(event.latents[1].rank == 0 && *(const float *)event.latents[1].data == totals[step - 1]);
        }
        CHECK(has_latent(run, (int)step));
    }
    OK(oxp_run_finish(run, NULL, ERR));
    OK(oxp_run_get_tensor(run, "vae.image", NT, &image, ERR));
    CHECK(image.byte_len == 16 && ((const float *)image.data)[3] == 2 * 3.5f + 1);
    oxp_run_free(run);
}

struct seen {
    oxp_run *run;
    oxp_cancel *cancel;
    int count;
    int32_t answer;
};

static int32_t on_event(void *user_data, const oxp_event *event)
{
    struct seen *seen = (struct seen *)user_data;
    oxp_tensor_in tensor = OXP_TENSOR_IN_INIT;
    seen->count += 1;
    CHECK(event->struct_size == sizeof *event && event->loop_step == (uint32_t)seen->count);
    CHECK(event->latent_count == 2 && is_latent(event->latents, seen->count));
    EXPECT(OXP_ERR_BUSY, "one call at a time", oxp_run_get_tensor(seen->run, "denoiser.sample", NT, &tensor, ERR));
    if (seen->cancel && seen->count == 2)
        OK(oxp_cancel_request(seen->cancel, ERR));
    return seen->count == 1 ? seen->answer : 0;
}

static void generating(void)
{
    struct seen seen;
    uint32_t reason = 99;
    memset(&seen, 0, sizeof seen);
    seen.run = start(NULL, NULL);
    OK(oxp_run_generate(seen.run, &reason, on_event, &seen, NULL, ERR));
    CHECK(reason == OXP_FINISH_COMPLETED && seen.count == 3 && has_latent(seen.run, 3));
    EXPECT(OXP_ERR_INVALID_STATE, "finished", oxp_run_generate(seen.run, &reason, on_event, &seen, NULL, ERR));
    oxp_run_free(seen.run);

    /* Stopped by what the callback returns, then by a cancel object; what was told has happened. */
    memset(&seen, 0, sizeof seen);
    seen.run = start(NULL, NULL);
    seen.answer = 7;
    EXPECT(OXP_ERR_CANCELLED, "returned 7", oxp_run_generate(seen.run, &reason, on_event, &seen, NULL, ERR));
    CHECK(has_latent(seen.run, 1));
    MUST(oxp_cancel_create(&seen.cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled",
           oxp_run_generate(seen.run, &reason, on_event, &seen, seen.cancel, ERR));
    CHECK(seen.count == 2 && has_latent(seen.run, 2));
    OK(oxp_cancel_reset(seen.cancel, ERR));
    OK(oxp_run_generate(seen.run, &reason, on_event, &seen, seen.cancel, ERR));
    CHECK(reason == OXP_FINISH_COMPLETED && seen.count == 3 && has_latent(seen.run, 3));
    oxp_cancel_free(seen.cancel);
    oxp_run_free(seen.run);
}

static void options(void)
{
    oxp_options *options = NULL;
    oxp_event event = OXP_EVENT_INIT;
    oxp_run *run = start("start_step", "1");
    OK(oxp_run_step(run, &event, NULL, ERR));
    CHECK(event.loop_step == 2 && event.loop_step_count == 3 && is_latent(event.latents, 1));
    CHECK(*(const float *)event.latents[1].data == 4);
    oxp_run_free(run);

    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    EXPECT(OXP_ERR_INVALID_OPTION, "from 1 to 100000", oxp_options_set(options, "num_steps", NT, "0", NT, ERR));
    EXPECT(OXP_ERR_INVALID_OPTION, "from 0 to 99999", oxp_options_set(options, "start_step", NT, "-1", NT, ERR));
    OK(oxp_options_set(options, "start_step", NT, "3", NT, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "from 0 to 2", oxp_run_create(pipeline, options, &run, ERR));
    OK(oxp_options_set(options, "num_steps", NT, "4", NT, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "the timesteps of 3 steps", oxp_run_create(pipeline, options, &run, ERR));
    oxp_options_free(options);
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    OK(oxp_options_set(options, "guidance_scale", NT, "2", NT, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "cfg_conditioning_input", oxp_run_create(pipeline, options, &run, ERR));
    OK(oxp_options_set(options, "guidance_scale", NT, "1", NT, ERR));
    OK(oxp_options_set(options, "seed", NT, "3", NT, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "no scheduler", oxp_run_create(pipeline, options, &run, ERR));
    oxp_options_free(options);
}

/* What all steps make of the second package, with these options. */
static void finished(oxp_run *run, float *found)
{
    oxp_tensor_in tensor = OXP_TENSOR_IN_INIT;
    uint32_t reason = 99;
    OK(oxp_run_generate(run, &reason, NULL, NULL, NULL, ERR));
    CHECK(reason == OXP_FINISH_COMPLETED);
    MUST(oxp_run_get_tensor(run, "denoiser.sample", NT, &tensor, ERR));
    CHECK(tensor.byte_len == 16);
    memcpy(found, tensor.data, 16);
}

static oxp_run *scheduled(const char *key, const char *value)
{
    oxp_options *options = NULL;
    oxp_run *run = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    if (key)
        MUST(oxp_options_set(options, key, NT, value, NT, ERR));
    MUST(oxp_run_create(pipeline, options, &run, ERR));
    oxp_options_free(options);
    give(run, "denoiser.cond", cond, 4);
    return run;
}

static void guided(void)
{
    static const float sample[4] = {3, -1, 0.5f, 8};
    static const float other[4] = {1, 1, 1, 1};
    static const char *scales[3] = {NULL, "1", "0.25"};
    static const float factors[3] = {2, 1, 0.25f};
    float found[4];
    float again[4];
    float drawn[4];
    oxp_run *run;
    oxp_options *options = NULL;
    int at;
    int by;

    for (by = 0; by < 3; by++) {
        run = scheduled(scales[by] ? "guidance_scale" : NULL, scales[by]);
        give(run, "denoiser.sample", sample, 4);
        finished(run, found);
        for (at = 0; at < 4; at++)
            CHECK(fabsf(found[at] - (sample[at] - factors[by] * cond[at])) < 1e-5f);
        oxp_run_free(run);
    }
    /* Away from something else than zeros: other + 2 (cond - other). */
    run = scheduled(NULL, NULL);
    give(run, "denoiser.sample", sample, 4);
    give(run, "denoiser.cond.uncond", other, 4);
    finished(run, found);
    for (at = 0; at < 4; at++)
        CHECK(fabsf(found[at] - (sample[at] - 2 * cond[at] + 1)) < 1e-5f);
    oxp_run_free(run);

    /* Noise to start from comes of the seed. */
    run = scheduled("seed", "7");
    finished(run, drawn);
    oxp_run_free(run);
    run = scheduled("seed", "7");
    finished(run, again);
    oxp_run_free(run);
    CHECK(memcmp(drawn, again, sizeof drawn) == 0);
    run = scheduled("seed", "18446744073709551615");
    finished(run, again);
    oxp_run_free(run);
    CHECK(memcmp(drawn, again, sizeof drawn) != 0);

    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    for (at = 0; at < 4; at++) {
        static const char *wrong[4] = {"-1", "1001", "nan", "much"};
        EXPECT(OXP_ERR_INVALID_OPTION, "a number from 0 to 1000",
               oxp_options_set(options, "guidance_scale", NT, wrong[at], NT, ERR));
    }
    EXPECT(OXP_ERR_INVALID_OPTION, "from 0 to 18446744073709551615",
           oxp_options_set(options, "seed", NT, "-1", NT, ERR));
    OK(oxp_options_set(options, "num_steps", NT, "50", NT, ERR));
    OK(oxp_run_create(pipeline, options, &run, ERR));
    give(run, "denoiser.cond", cond, 4);
    give(run, "denoiser.sample", sample, 4);
    finished(run, found);
    CHECK(fabsf(found[3]) < 1e-5f);
    oxp_run_free(run);
    oxp_options_free(options);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    pipeline = open_pipeline(argv[1], argv[3]);
    stepping();
    generating();
    options();
    oxp_pipeline_free(pipeline);
    pipeline = open_pipeline(argv[2], argv[3]);
    guided();
    oxp_pipeline_free(pipeline);
    return check_result();
}
