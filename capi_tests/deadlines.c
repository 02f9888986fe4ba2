/* Deadlines and cancelling, while a pipeline loads and while it runs: the call ends, and what
 * it was made on goes on. Arguments: the package of tests/capi/models.rs, its slow package (one
 * component that squares the matrix x again and again), the backend. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include "check.h"

#include <pthread.h>
#include <time.h>

#define SIDE 512

static const char *backend;
static float matrix[SIDE * SIDE];

static void pause_ms(long ms)
{
    struct timespec wait = {0, ms * 1000000};
    nanosleep(&wait, NULL);
}

/* Loading. */

static int32_t linger(void *user_data, const oxp_load_progress *state)
{
    (void)state;
    *(int *)user_data += 1;
    pause_ms(30);
    return 0;
}

static int32_t request(void *user_data, const oxp_load_progress *state)
{
    if (state->done == 1)
        OK(oxp_cancel_request((oxp_cancel *)user_data, ERR));
    return 0;
}

/* The last report, after which nothing is left but to return. */
static int32_t linger_at_the_end(void *user_data, const oxp_load_progress *state)
{
    (void)user_data;
    if (state->done == state->total)
        pause_ms(700);
    return 0;
}

static void loading(const char *package)
{
    oxp_options *options = NULL;
    oxp_pipeline *pipeline = NULL;
    oxp_cancel *cancel = NULL;
    int told = 0;

    MUST(oxp_options_create(OXP_OPTIONS_PIPELINE, &options, ERR));
    MUST(oxp_options_set(options, "backend", NT, backend, NT, ERR));
    MUST(oxp_options_set(options, "load_timeout_ms", NT, "20", NT, ERR));
    EXPECT(OXP_ERR_DEADLINE_EXCEEDED, "the deadline passed; option load_timeout_ms is 20",
           oxp_pipeline_open(NULL, package, NT, options, &pipeline, linger, &told, NULL, ERR));
    /* A busy machine may need the 20 ms before the first report; there is no second. */
    CHECK(pipeline == NULL && told <= 1);

    MUST(oxp_options_set(options, "load_timeout_ms", NT, "600", NT, ERR));
    EXPECT(OXP_ERR_DEADLINE_EXCEEDED, "option load_timeout_ms is 600",
           oxp_pipeline_open(NULL, package, NT, options, &pipeline, linger_at_the_end, NULL, NULL, ERR));
    CHECK(pipeline == NULL);

    MUST(oxp_options_set(options, "load_timeout_ms", NT, "600000", NT, ERR));
    MUST(oxp_cancel_create(&cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled",
           oxp_pipeline_open(NULL, package, NT, options, &pipeline, request, cancel, cancel, ERR));
    CHECK(pipeline == NULL);
    OK(oxp_cancel_reset(cancel, ERR));
    OK(oxp_pipeline_open(NULL, package, NT, options, &pipeline, linger, &told, cancel, ERR));
    oxp_pipeline_free(pipeline);
    oxp_cancel_free(cancel);
    oxp_options_free(options);
}

/* Running. */

static void give(oxp_run *run, const float *x, uint64_t side)
{
    int64_t dims[2];
    oxp_tensor_in tensor;
    dims[0] = dims[1] = (int64_t)side;
    tensor = tensor_in(OXP_DTYPE_FLOAT32, x, side * side * sizeof *x, dims, 2);
    MUST(oxp_run_set_input(run, "slow.x", NT, &tensor, ERR));
}

static void *cancel_soon(void *cancel)
{
    pause_ms(50);
    oxp_cancel_request((oxp_cancel *)cancel, NULL);
    return NULL;
}

/* Of two runs in a batch the one that is late stays, and the other is not touched by it. */

struct told {
    oxp_run *late;
    int late_steps;
    int other_steps;
};

static int32_t tell(void *user_data, oxp_run *run, const oxp_event *event, const oxp_error *error)
{
    struct told *told = (struct told *)user_data;
    if (run == told->late) {
        told->late_steps += 1;
        CHECK(event == NULL && oxp_error_get_code(error) == OXP_ERR_DEADLINE_EXCEEDED);
        CHECK(strstr(oxp_error_get_message(error, NULL), "option timeout_ms is 50") != NULL);
    } else {
        told->other_steps += 1;
        CHECK(error == NULL && event->finish_reason == OXP_FINISH_COMPLETED);
    }
    return 0;
}

static void batched(oxp_pipeline *pipeline, oxp_run *late)
{
    const float one = 1;
    struct told told = {late, 0, 0};
    oxp_batch *batch = NULL;
    oxp_run *other = NULL;
    uint64_t count = 0;
    MUST(oxp_run_create(pipeline, NULL, &other, ERR));
    give(other, &one, 1);
    give(late, matrix, SIDE);
    MUST(oxp_batch_create(pipeline, &batch, ERR));
    OK(oxp_batch_add(batch, late, ERR));
    OK(oxp_batch_add(batch, other, ERR));
    OK(oxp_batch_step(batch, &count, tell, &told, NULL, ERR));
    CHECK(count == 1 && told.late_steps == 1 && told.other_steps == 1);
    OK(oxp_batch_get_count(batch, &count, ERR));
    CHECK(count == 1);
    oxp_batch_free(batch);
    oxp_run_free(other);
}

static void running(const char *package)
{
    const float one = 1;
    oxp_pipeline *pipeline = open_pipeline(package, backend);
    oxp_options *options = NULL;
    oxp_run *run = NULL;
    oxp_cancel *cancel = NULL;
    oxp_tensor_in result;
    oxp_event event = OXP_EVENT_INIT;
    pthread_t thread;
    int tries;

    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    MUST(oxp_options_set(options, "timeout_ms", NT, "50", NT, ERR));
    MUST(oxp_run_create(pipeline, options, &run, ERR));
    give(run, matrix, SIDE);
    EXPECT(OXP_ERR_DEADLINE_EXCEEDED, "option timeout_ms is 50", oxp_run_step(run, &event, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_STATE, "slow", oxp_run_get_tensor(run, "slow.y", NT, &result, ERR));
    batched(pipeline, run);
    /* The same run, with less to do; on a busy machine even that may not be done in 50 ms. */
    for (tries = 1; tries < 100; ++tries) {
        give(run, &one, 1);
        if (oxp_run_step(run, &event, NULL, ERR) != OXP_ERR_DEADLINE_EXCEEDED)
            break;
    }
    CHECK(tries < 100);
    CHECK(event.finish_reason == OXP_FINISH_COMPLETED);
    OK(oxp_run_get_tensor(run, "slow.y", NT, &result, ERR));
    CHECK(result.byte_len == 4 && *(const float *)result.data == 1);
    oxp_run_free(run);

    MUST(oxp_run_create(pipeline, NULL, &run, ERR));
    MUST(oxp_cancel_create(&cancel, ERR));
    give(run, matrix, SIDE);
    CHECK(pthread_create(&thread, NULL, cancel_soon, cancel) == 0);
    EXPECT(OXP_ERR_CANCELLED, "cancelled", oxp_run_step(run, &event, cancel, ERR));
    pthread_join(thread, NULL);
    OK(oxp_cancel_reset(cancel, ERR));
    give(run, &one, 1);
    OK(oxp_run_step(run, &event, cancel, ERR));
    CHECK(event.finish_reason == OXP_FINISH_COMPLETED);
    oxp_run_free(run);
    oxp_cancel_free(cancel);
    oxp_options_free(options);
    oxp_pipeline_free(pipeline);
}

/* Cancelled from the callback of the call itself, by its object and not by what it returns. */

struct stop {
    oxp_cancel *cancel;
    int told;
};

static int32_t stop_at_second(void *user_data, const oxp_event *event)
{
    struct stop *stop = (struct stop *)user_data;
    (void)event;
    stop->told += 1;
    if (stop->told == 2)
        OK(oxp_cancel_request(stop->cancel, ERR));
    return 0;
}

static void from_a_callback(const char *package)
{
    static const int32_t all[5] = {3, 4, 5, 6, 7};
    static const float black[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int64_t dims[2] = {1, 8};
    oxp_tensor_in image = tensor_in(OXP_DTYPE_FLOAT32, black, sizeof black, dims, 2);
    oxp_pipeline *pipeline = open_pipeline(package, backend);
    oxp_run *run = create_run(pipeline, "10");
    struct stop stop = {NULL, 0};
    int32_t found[8];
    uint64_t count = 0;
    uint32_t reason = 99;

    MUST(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &image, ERR));
    MUST(oxp_run_append_tokens(run, all, 1, ERR));
    MUST(oxp_cancel_create(&stop.cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled",
           oxp_run_generate(run, &reason, stop_at_second, &stop, stop.cancel, ERR));
    CHECK(stop.told == 2 && reason == OXP_FINISH_CANCELLED);
    OK(oxp_run_tokens_copy(run, found, 8, &count, ERR));
    CHECK(count == 3 && memcmp(found, all, 3 * sizeof *all) == 0);
    OK(oxp_cancel_reset(stop.cancel, ERR));
    OK(oxp_run_generate(run, &reason, NULL, NULL, stop.cancel, ERR));
    CHECK(reason == OXP_FINISH_END_OF_TEXT);
    OK(oxp_run_tokens_copy(run, found, 8, &count, ERR));
    CHECK(count == 5 && memcmp(found, all, sizeof all) == 0);
    oxp_cancel_free(stop.cancel);
    oxp_run_free(run);
    oxp_pipeline_free(pipeline);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    backend = argv[3];
    loading(argv[1]);
    running(argv[2]);
    from_a_callback(argv[1]);
    return check_result();
}
