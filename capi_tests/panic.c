/* A panic inside: an error code, nothing printed, and only the handle in use is lost. Needs a
 * library that was built with test-hooks. Arguments: the models, the package, the backend. */
#include "check.h"

#include <pthread.h>

static oxp_options *panicking(uint32_t kind, const char *backend)
{
    oxp_options *options = NULL;
    MUST(oxp_options_create(kind, &options, ERR));
    if (kind == OXP_OPTIONS_SESSION)
        MUST(oxp_options_set(options, "backend", NT, backend, NT, ERR));
    MUST(oxp_options_set(options, "test_panic", NT, "true", NT, ERR));
    return options;
}

static void in_a_session(const char *models, const char *backend)
{
    char path[4096];
    float x[4] = {1, 2, 3, 4};
    int64_t dims[2] = {1, 4};
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, dims, 2));
    oxp_options *options = panicking(OXP_OPTIONS_SESSION, backend);
    oxp_runtime *runtime = NULL;
    oxp_session *session = NULL;
    oxp_session *other = open_session(models, "affine.onnx", backend);
    oxp_outputs *outputs = NULL;
    uint64_t count = 0;

    MUST(oxp_runtime_create(NULL, &runtime, NULL, NULL, NULL, ERR));
    OK(oxp_session_open(runtime, join(path, sizeof path, models, "affine.onnx"), NT, options, &session, NULL, ERR));
    oxp_options_free(options);
    OK(oxp_session_get_input_count(session, &count, ERR));
    EXPECT(OXP_ERR_INTERNAL, "a panic that a test asked for",
           oxp_session_run_alloc(session, &in, 1, NULL, NULL, 0, &outputs, NULL, ERR));
    CHECK(outputs == NULL);
    /* It says so from now on, whatever is asked. */
    EXPECT(OXP_ERR_POISONED, "free it", oxp_session_run_alloc(session, &in, 1, NULL, NULL, 0, &outputs, NULL, ERR));
    EXPECT(OXP_ERR_POISONED, "session", oxp_session_run(session, &in, 1, NULL, 0, NULL, ERR));
    EXPECT(OXP_ERR_POISONED, "oxp_session", oxp_session_get_input_count(session, &count, ERR));
    oxp_session_free(session);
    EXPECT(OXP_ERR_INVALID_HANDLE, "has been freed", oxp_session_get_input_count(session, &count, ERR));

    /* Its runtime and its like go on. */
    OK(oxp_session_run_alloc(other, &in, 1, NULL, NULL, 0, &outputs, NULL, ERR));
    oxp_outputs_free(outputs);
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
    oxp_options *options = panicking(OXP_OPTIONS_RUN, backend);
    oxp_run *run = NULL;
    oxp_run *other = create_run(pipeline, "3");
    oxp_event event = OXP_EVENT_INIT;
    pthread_t thread;
    void *status = NULL;

    OK(oxp_run_create(pipeline, options, &run, ERR));
    OK(oxp_run_append_tokens(run, prompt, 1, ERR));
    CHECK(pthread_create(&thread, NULL, on_a_thread, run) == 0);
    pthread_join(thread, &status);
    CHECK(status != NULL && *(oxp_status *)status == OXP_ERR_INTERNAL);
    free(status);
    EXPECT(OXP_ERR_POISONED, "oxp_run", oxp_run_step(run, &event, NULL, ERR));
    EXPECT(OXP_ERR_POISONED, "oxp_run", oxp_run_append_tokens(run, prompt, 1, ERR));
    oxp_run_free(run);

    /* The pipeline and its other runs go on. */
    OK(oxp_run_set_input(other, "vision_encoder.pixel_values", NT, &image, ERR));
    OK(oxp_run_append_tokens(other, prompt, 1, ERR));
    OK(oxp_run_step(other, &event, NULL, ERR));
    CHECK(event.token == 4);
    oxp_run_free(other);
    oxp_options_free(options);
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
