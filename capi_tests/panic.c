/* A panic inside: an error code, nothing printed, and every handle as it was before. Needs a
 * library that was built with test-hooks. Arguments: the models, the package, the backend. */
#include "check.h"

#include <pthread.h>

/* Options whose handles panic in this call, the first being 1, and in no other. */
static oxp_options *panicking(uint32_t kind, const char *call, const char *backend)
{
    oxp_options *options = NULL;
    MUST(oxp_options_create(kind, &options, ERR));
    if (kind == OXP_OPTIONS_SESSION)
        MUST(oxp_options_set(options, "backend", NT, backend, NT, ERR));
    MUST(oxp_options_set(options, "test_panic", NT, call, NT, ERR));
    return options;
}

static void same_outputs(oxp_outputs *found, oxp_outputs *expected)
{
    oxp_tensor_in a = OXP_TENSOR_IN_INIT, b = OXP_TENSOR_IN_INIT;
    OK(oxp_outputs_get(found, "y", NT, &a, ERR));
    OK(oxp_outputs_get(expected, "y", NT, &b, ERR));
    CHECK(a.byte_len > 0 && a.byte_len == b.byte_len && memcmp(a.data, b.data, (size_t)a.byte_len) == 0);
}

static void in_a_session(const char *models, const char *backend)
{
    char path[4096];
    float x[4] = {1, 2, 3, 4};
    int64_t dims[2] = {1, 4};
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, dims, 2));
    oxp_options *options = panicking(OXP_OPTIONS_SESSION, "1", backend);
    oxp_runtime *runtime = NULL;
    oxp_session *session = NULL;
    oxp_outputs *expected = NULL;
    oxp_outputs *outputs = NULL;
    oxp_session *other = open_session(models, "affine.onnx", backend);
    uint64_t count = 0;

    MUST(oxp_runtime_create(NULL, &runtime, NULL, NULL, NULL, ERR));
    OK(oxp_session_open(runtime, join(path, sizeof path, models, "affine.onnx"), NT, options, &session, NULL, ERR));
    oxp_options_free(options);
    OK(oxp_session_get_input_count(session, &count, ERR));
    EXPECT(OXP_ERR_INTERNAL, "a panic that a test asked for",
           oxp_session_run_alloc(session, &in, 1, NULL, NULL, 0, &outputs, NULL, ERR));
    CHECK(outputs == NULL);
    /* It goes on as if nothing had happened, as do its like and its runtime. */
    OK(oxp_session_run_alloc(session, &in, 1, NULL, NULL, 0, &outputs, NULL, ERR));
    OK(oxp_session_run_alloc(other, &in, 1, NULL, NULL, 0, &expected, NULL, ERR));
    same_outputs(outputs, expected);
    oxp_outputs_free(outputs);
    oxp_outputs_free(expected);
    OK(oxp_session_get_input_count(session, &count, ERR));
    CHECK(count == 1);
    oxp_session_free(session);
    EXPECT(OXP_ERR_INVALID_HANDLE, "has been freed", oxp_session_get_input_count(session, &count, ERR));
    oxp_session_free(other);
    other = NULL;
    OK(oxp_session_open(runtime, join(path, sizeof path, models, "affine.onnx"), NT, NULL, &other, NULL, ERR));
    oxp_session_free(other);
    oxp_runtime_free(runtime);
}

/* Without an error object, on another thread. */
static void *on_a_thread(void *run)
{
    oxp_event event = OXP_EVENT_INIT;
    oxp_status *status = (oxp_status *)malloc(sizeof *status);
    if (status)
        *status = oxp_run_step((oxp_run *)run, &event, NULL, NULL);
    return status;
}

static void in_a_run(const char *package, const char *backend)
{
    static const int32_t prompt[1] = {3};
    float pixels[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int64_t dims[2] = {1, 8};
    oxp_tensor_in image = tensor_in(OXP_DTYPE_FLOAT32, pixels, sizeof pixels, dims, 2);
    oxp_pipeline *pipeline = open_pipeline(package, backend);
    oxp_options *first = panicking(OXP_OPTIONS_RUN, "1", backend);
    oxp_options *third = panicking(OXP_OPTIONS_RUN, "3", backend);
    oxp_run *runs[3] = {NULL, NULL, NULL};
    int32_t tokens[3] = {0, 0, 0};
    oxp_event event = OXP_EVENT_INIT;
    pthread_t thread;
    void *status = NULL;
    int run, step;

    OK(oxp_run_create(pipeline, NULL, &runs[0], ERR));
    OK(oxp_run_create(pipeline, first, &runs[1], ERR));
    OK(oxp_run_create(pipeline, third, &runs[2], ERR));
    for (run = 0; run < 3; run++) {
        OK(oxp_run_set_input(runs[run], "vision_encoder.pixel_values", NT, &image, ERR));
        OK(oxp_run_append_tokens(runs[run], prompt, 1, ERR));
    }
    for (step = 0; step < 3; step++) {
        OK(oxp_run_step(runs[0], &event, NULL, ERR));
        tokens[step] = event.token;
    }
    CHECK(tokens[0] == 4);

    CHECK(pthread_create(&thread, NULL, on_a_thread, runs[1]) == 0);
    pthread_join(thread, &status);
    CHECK(status != NULL && *(oxp_status *)status == OXP_ERR_INTERNAL);
    free(status);
    for (step = 0; step < 3; step++) {
        if (step == 2)
            EXPECT(OXP_ERR_INTERNAL, "a panic that a test asked for", oxp_run_step(runs[2], &event, NULL, ERR));
        for (run = 1; run < 3; run++) {
            OK(oxp_run_step(runs[run], &event, NULL, ERR));
            CHECK(event.token == tokens[step]);
        }
    }
    for (run = 0; run < 3; run++)
        oxp_run_free(runs[run]);
    oxp_options_free(first);
    oxp_options_free(third);
    oxp_pipeline_free(pipeline);
}

int main(int argc, char **argv)
{
    int again;
    if (argc != 4)
        return 2;
    for (again = 0; again < 3; again++) {
        in_a_session(argv[1], argv[3]);
        in_a_run(argv[2], argv[3]);
    }
    return check_result();
}
