/* Answers that follow a grammar. Arguments: the package of tests/capi/models.rs, in which each
 * token is followed by the next, 1 to 5 are the words "one" to "five", with a space before each in
 * a text that goes on, 6 and 7 are special and 7 ends the text; the backend. */
#include "check.h"

static oxp_pipeline *pipeline;
static float black[8];

/* A run of the prompt [0]. */
static oxp_run *start(const char *stop_on_eos)
{
    static const int32_t prompt[1] = {0};
    static const int64_t dims[2] = {1, 8};
    oxp_tensor_in pixels = tensor_in(OXP_DTYPE_FLOAT32, black, 32, dims, 2);
    oxp_run *run = NULL;
    oxp_options *options = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    MUST(oxp_options_set(options, "max_tokens", NT, "9", NT, ERR));
    MUST(oxp_options_set(options, "stop_on_eos", NT, stop_on_eos, NT, ERR));
    MUST(oxp_run_create(pipeline, options, &run, ERR));
    MUST(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    MUST(oxp_run_append_tokens(run, prompt, 1, ERR));
    oxp_options_free(options);
    return run;
}

static void set(oxp_run *run, const char *regex)
{
    OK(oxp_run_set_constraint(run, OXP_CONSTRAINT_REGEX, regex, NT, ERR));
}

static int32_t step(oxp_run *run, uint32_t finish)
{
    oxp_event event = OXP_EVENT_INIT;
    OK(oxp_run_step(run, &event, NULL, ERR));
    CHECK(event.finish_reason == finish);
    return event.token;
}

/* The model would say one, two, ... */
static void followed(void)
{
    oxp_run *run = start("true");
    set(run, " three( four| one)");
    CHECK(step(run, OXP_FINISH_NONE) == 3);
    CHECK(step(run, OXP_FINISH_NONE) == 4);
    /* Nothing else may follow. */
    CHECK(step(run, OXP_FINISH_END_OF_TEXT) == 7);
    /* A rewind takes the grammar back too, the next turn begins it anew. */
    OK(oxp_run_rewind(run, 2, ERR));
    CHECK(step(run, OXP_FINISH_NONE) == 4);
    OK(oxp_run_rewind(run, 1, ERR));
    CHECK(step(run, OXP_FINISH_NONE) == 3);
    CHECK(step(run, OXP_FINISH_NONE) == 4);
    CHECK(step(run, OXP_FINISH_END_OF_TEXT) == 7);
    OK(oxp_run_append_text(run, "five", NT, 0, NULL, ERR));
    CHECK(step(run, OXP_FINISH_NONE) == 3);
    oxp_run_free(run);

    run = start("false");
    set(run, " three( four| one)");
    CHECK(step(run, OXP_FINISH_NONE) == 3);
    CHECK(step(run, OXP_FINISH_CONSTRAINT) == 4);
    oxp_run_free(run);
}

static void switched(void)
{
    oxp_run *run = start("true");
    CHECK(step(run, OXP_FINISH_NONE) == 1);
    set(run, " five five");
    CHECK(step(run, OXP_FINISH_NONE) == 5);
    OK(oxp_run_set_constraint(run, OXP_CONSTRAINT_NONE, NULL, 0, ERR));
    CHECK(step(run, OXP_FINISH_NONE) == 6);
    set(run, " two");
    CHECK(step(run, OXP_FINISH_NONE) == 2);
    CHECK(step(run, OXP_FINISH_END_OF_TEXT) == 7);
    oxp_run_free(run);
}

/* The host's own choice has to fit too; one that does not changes nothing. */
static void forced(void)
{
    oxp_run *run = start("true");
    oxp_event event = OXP_EVENT_INIT;
    set(run, " (three|four) one");
    OK(oxp_run_forward(run, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "token 1 does not fit", oxp_run_force_token(run, 1, &event, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "token 7 does not fit", oxp_run_force_token(run, 7, &event, ERR));
    OK(oxp_run_force_token(run, 3, &event, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "token 1 does not fit", oxp_run_force_token(run, 1, &event, ERR));
    OK(oxp_run_force_token(run, 4, &event, ERR));
    CHECK(step(run, OXP_FINISH_NONE) == 1);
    CHECK(step(run, OXP_FINISH_END_OF_TEXT) == 7);
    oxp_run_free(run);
}

/* A fork and a run that was saved go on by the grammar from where they are, whenever it was set. */
static void kept(void)
{
    oxp_run *run = start("true"), *fork = NULL, *loaded = NULL;
    oxp_options *options = NULL;
    char *state;
    uint64_t size = 0;
    CHECK(step(run, OXP_FINISH_NONE) == 1);
    set(run, " five( two| four) one");
    CHECK(step(run, OXP_FINISH_NONE) == 5);
    OK(oxp_run_fork(run, &fork, ERR));
    OK(oxp_run_save_copy(run, NULL, 0, &size, ERR));
    state = (char *)malloc((size_t)size);
    OK(oxp_run_save_copy(run, state, size, &size, ERR));
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    MUST(oxp_options_set(options, "max_tokens", NT, "9", NT, ERR));
    OK(oxp_run_load(pipeline, options, state, size, &loaded, ERR));
    CHECK(step(run, OXP_FINISH_NONE) == 2);
    /* Each goes its own way: the fork back to where the grammar begins, the other on. */
    OK(oxp_run_rewind(fork, 2, ERR));
    CHECK(step(fork, OXP_FINISH_NONE) == 5);
    CHECK(step(loaded, OXP_FINISH_NONE) == 2);
    CHECK(step(loaded, OXP_FINISH_NONE) == 1);
    CHECK(step(loaded, OXP_FINISH_END_OF_TEXT) == 7);
    CHECK(step(fork, OXP_FINISH_NONE) == 2);
    CHECK(step(run, OXP_FINISH_NONE) == 1);
    free(state);
    oxp_options_free(options);
    oxp_run_free(loaded);
    oxp_run_free(fork);
    oxp_run_free(run);
}

/* A token that does not fit leaves the answer where it begins. */
static void failed(void)
{
    oxp_run *run = start("true");
    oxp_event event = OXP_EVENT_INIT;
    CHECK(step(run, OXP_FINISH_NONE) == 1);
    CHECK(step(run, OXP_FINISH_NONE) == 2);
    set(run, " five( two| four) one");
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "token 1 does not fit", oxp_run_force_token(run, 1, &event, ERR));
    CHECK(step(run, OXP_FINISH_NONE) == 5);
    CHECK(step(run, OXP_FINISH_NONE) == 2);
    OK(oxp_run_rewind(run, 4, ERR));
    CHECK(step(run, OXP_FINISH_NONE) == 2);
    CHECK(step(run, OXP_FINISH_NONE) == 1);
    oxp_run_free(run);
}

static void refused(void)
{
    oxp_run *run = start("true");
    EXPECT(OXP_ERR_CONSTRAINT, "regular expression", oxp_run_set_constraint(run, OXP_CONSTRAINT_REGEX, "(", NT, ERR));
    EXPECT(OXP_ERR_CONSTRAINT, "line 1 column 1",
           oxp_run_set_constraint(run, OXP_CONSTRAINT_JSON_SCHEMA, "{", NT, ERR));
    EXPECT(OXP_ERR_CONSTRAINT, "Lark grammar", oxp_run_set_constraint(run, OXP_CONSTRAINT_LARK, "start: x", NT, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "kind 5", oxp_run_set_constraint(run, 5, "a", NT, ERR));
    EXPECT(OXP_ERR_NULL_POINTER, "text", oxp_run_set_constraint(run, OXP_CONSTRAINT_LARK, NULL, 0, ERR));
    /* There is no { in the vocabulary. */
    OK(oxp_run_set_constraint(run, OXP_CONSTRAINT_JSON, NULL, 0, ERR));
    {
        oxp_event event = OXP_EVENT_INIT;
        EXPECT(OXP_ERR_CONSTRAINT, "cannot be followed", oxp_run_step(run, &event, NULL, ERR));
    }
    OK(oxp_run_set_constraint(run, OXP_CONSTRAINT_NONE, NULL, 0, ERR));
    CHECK(step(run, OXP_FINISH_NONE) == 1);
    oxp_run_free(run);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    pipeline = open_pipeline(argv[1], argv[2]);
    followed();
    switched();
    forced();
    kept();
    failed();
    refused();
    oxp_pipeline_free(pipeline);
    return check_result();
}
