/* Any order of frees is right; what a callback needs is freed once; a call on another thread
 * can be cancelled, and freed under. Arguments: the models, the package, the backend. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <time.h>

static const char *models;
static const char *package;
static const char *backend;

struct sink {
    int lines;
    int frees;
    int bad;
};

static void on_log(void *user_data, uint32_t level, const char *message, uint64_t len)
{
    struct sink *sink = (struct sink *)user_data;
    sink->lines += 1;
    sink->bad += level < OXP_LOG_DEBUG || level > OXP_LOG_ERROR || len != strlen(message);
}

static void on_free(void *user_data)
{
    ((struct sink *)user_data)->frees += 1;
}

/* An unknown field in the metadata is one warning. */
static void loggers(void)
{
    struct sink sink = {0, 0, 0};
    struct sink failed = {0, 0, 0};
    struct sink silent = {0, 0, 0};
    oxp_runtime *runtime = NULL;
    oxp_options *wrong = NULL;
    oxp_options *options = NULL;
    oxp_pipeline *pipeline = NULL;

    MUST(oxp_options_create(OXP_OPTIONS_PIPELINE, &options, ERR));
    MUST(oxp_options_set(options, "backend", NT, backend, NT, ERR));
    OK(oxp_runtime_create(NULL, &runtime, on_log, &sink, on_free, ERR));
    OK(oxp_pipeline_open(runtime, package, NT, options, &pipeline, NULL, NULL, NULL, ERR));
    oxp_runtime_free(runtime);
    CHECK(sink.frees == 0);
    oxp_pipeline_free(pipeline);
    CHECK(sink.frees == 1 && sink.lines > 0 && sink.bad == 0);

    /* Also when nothing comes of it, and when there is no logger to need it. */
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &wrong, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "OXP_OPTIONS_RUN",
           oxp_runtime_create(wrong, &runtime, on_log, &failed, on_free, ERR));
    CHECK(runtime == NULL && failed.frees == 1);
    EXPECT(OXP_ERR_NULL_POINTER, "runtime", oxp_runtime_create(NULL, NULL, on_log, &failed, on_free, ERR));
    CHECK(failed.frees == 2);
    OK(oxp_runtime_create(NULL, &runtime, NULL, &silent, on_free, ERR));
    oxp_runtime_free(runtime);
    CHECK(silent.frees == 1);
    oxp_options_free(wrong);
    oxp_options_free(options);
}

static void parents_first(void)
{
    static const int32_t prompt[1] = {3};
    float pixels[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int64_t dims[2] = {1, 8};
    oxp_tensor_in image = tensor_in(OXP_DTYPE_FLOAT32, pixels, sizeof pixels, dims, 2);
    oxp_options *options = session_options(backend);
    oxp_runtime *runtime = NULL;
    oxp_session *session = NULL;
    oxp_outputs *outputs = NULL;
    oxp_tensor_in view = OXP_TENSOR_IN_INIT;
    oxp_pipeline *pipeline;
    oxp_run *run;
    oxp_tokenizer *tokenizer = NULL;
    oxp_decode_stream *stream = NULL;
    const char *text = NULL;
    oxp_event event = OXP_EVENT_INIT;
    char path[4096];
    float x[4] = {1, 2, 3, 4};
    int64_t x_dims[2] = {1, 4};
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, x_dims, 2));

    MUST(oxp_runtime_create(NULL, &runtime, NULL, NULL, NULL, ERR));
    MUST(oxp_session_open(runtime, join(path, sizeof path, models, "affine.onnx"), NT, options, &session, NULL, ERR));
    oxp_options_free(options);
    oxp_runtime_free(runtime);
    MUST(oxp_session_run_alloc(session, &in, 1, NULL, NULL, 0, &outputs, NULL, ERR));
    oxp_session_free(session);
    OK(oxp_outputs_get(outputs, "y", NT, &view, ERR));
    CHECK(((const float *)view.data)[3] == 9);
    oxp_outputs_free(outputs);

    pipeline = open_pipeline(package, backend);
    run = create_run(pipeline, "4");
    MUST(oxp_tokenizer_open_pipeline(pipeline, &tokenizer, ERR));
    oxp_pipeline_free(pipeline);
    OK(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &image, ERR));
    OK(oxp_run_append_tokens(run, prompt, 1, ERR));
    OK(oxp_run_step(run, &event, NULL, ERR));
    CHECK(event.token == 4);
    MUST(oxp_decode_stream_create(tokenizer, 0, &stream, ERR));
    oxp_tokenizer_free(tokenizer);
    OK(oxp_decode_stream_push(stream, 4, &text, NULL, ERR));
    CHECK_TEXT(text, "four");
    oxp_decode_stream_free(stream);
    oxp_run_free(run);
}

/* slow.onnx squares a matrix 400 times: about a minute for this size if nothing stops it. */
enum { SLOW = 1024 };
static float matrix[SLOW * SLOW];
static int64_t matrix_dims[2] = {SLOW, SLOW};

struct slow_call {
    oxp_session *session;
    oxp_cancel *cancel;
    oxp_status status;
};

static void *run_slowly(void *argument)
{
    struct slow_call *call = (struct slow_call *)argument;
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, matrix, sizeof matrix, matrix_dims, 2));
    oxp_outputs *outputs = NULL;
    call->status =
        oxp_session_run_alloc(call->session, &in, 1, NULL, NULL, 0, &outputs, call->cancel, NULL);
    oxp_outputs_free(outputs);
    return NULL;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void pause_ms(long ms)
{
    struct timespec wait = {0, ms * 1000000};
    nanosleep(&wait, NULL);
}

static void cancelled_from_outside(void)
{
    struct slow_call calls[2];
    pthread_t threads[2];
    oxp_options *options = session_options(backend);
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, matrix, sizeof matrix, matrix_dims, 2));
    oxp_outputs *outputs = NULL;
    char path[4096];
    float one = 0.5f;
    int64_t one_dims[2] = {1, 1};
    double began;
    int at;

    memset(calls, 0, sizeof calls);
    MUST(oxp_options_set(options, "run_timeout_ms", NT, "100", NT, ERR));
    MUST(oxp_session_open(NULL, join(path, sizeof path, models, "slow.onnx"), NT, options, &calls[0].session, NULL,
                          ERR));
    began = seconds();
    EXPECT(OXP_ERR_DEADLINE_EXCEEDED, "",
           oxp_session_run_alloc(calls[0].session, &in, 1, NULL, NULL, 0, &outputs, NULL, ERR));
    CHECK(outputs == NULL && seconds() - began < 30);
    oxp_session_free(calls[0].session);
    oxp_options_free(options);

    /* One runs, the other waits for its turn; both end when they are asked to, and the
     * session goes on. It is freed while they are in it. */
    calls[0].session = open_session(models, "slow.onnx", backend);
    calls[1].session = calls[0].session;
    MUST(oxp_cancel_create(&calls[0].cancel, ERR));
    calls[1].cancel = calls[0].cancel;
    began = seconds();
    for (at = 0; at < 2; at++)
        CHECK(pthread_create(&threads[at], NULL, run_slowly, &calls[at]) == 0);
    pause_ms(100);
    OK(oxp_cancel_request(calls[0].cancel, ERR));
    for (at = 0; at < 2; at++) {
        pthread_join(threads[at], NULL);
        CHECK(calls[at].status == OXP_ERR_CANCELLED);
    }
    CHECK(seconds() - began < 30);
    OK(oxp_cancel_reset(calls[0].cancel, ERR));
    in.tensor = tensor_in(OXP_DTYPE_FLOAT32, &one, sizeof one, one_dims, 2);
    OK(oxp_session_run_alloc(calls[0].session, &in, 1, NULL, NULL, 0, &outputs, NULL, ERR));
    oxp_outputs_free(outputs);

    CHECK(pthread_create(&threads[0], NULL, run_slowly, &calls[0]) == 0);
    pause_ms(50);
    oxp_session_free(calls[0].session);
    OK(oxp_cancel_request(calls[0].cancel, ERR));
    pthread_join(threads[0], NULL);
    CHECK(calls[0].status == OXP_ERR_CANCELLED);
    oxp_cancel_free(calls[0].cancel);
}

/* Four threads share a session; each gets its own answers. */
static oxp_session *shared;

static void *hammer(void *argument)
{
    long offset = *(long *)argument;
    long wrong = 0;
    int at;
    for (at = 0; at < 200; at++) {
        float x[4];
        float y[4];
        int64_t dims[2] = {1, 4};
        int64_t shape[2];
        oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, dims, 2));
        oxp_named_out out = named_out("y", y, sizeof y, shape, 2);
        x[0] = x[1] = x[2] = x[3] = (float)(offset + at);
        wrong += oxp_session_run(shared, &in, 1, &out, 1, NULL, NULL) != OXP_OK;
        wrong += y[3] != x[3] * 2 + 1;
    }
    *(long *)argument = wrong;
    return NULL;
}

static void shared_session(void)
{
    pthread_t threads[4];
    long offsets[4] = {0, 1000, 2000, 3000};
    oxp_session_stats stats = OXP_SESSION_STATS_INIT;
    int at;
    shared = open_session(models, "affine.onnx", backend);
    for (at = 0; at < 4; at++)
        CHECK(pthread_create(&threads[at], NULL, hammer, &offsets[at]) == 0);
    for (at = 0; at < 4; at++) {
        pthread_join(threads[at], NULL);
        CHECK(offsets[at] == 0);
    }
    OK(oxp_session_get_stats(shared, &stats, ERR));
    CHECK(stats.runs == 800);
    oxp_session_free(shared);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    models = argv[1];
    package = argv[2];
    backend = argv[3];
    loggers();
    parents_first();
    shared_session();
    cancelled_from_outside();
    return check_result();
}
