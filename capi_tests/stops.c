/* What ends a turn, and the text that its events give. Arguments: the package of
 * tests/capi/models.rs, in which each token is followed by the next, 1 to 5 are the words "one"
 * to "five", 6 and 7 are special and 7 ends the text; the backend. */
#include "check.h"

static oxp_pipeline *pipeline;
static float black[8];

static oxp_run *create(const char *const *options)
{
    oxp_run *run = NULL;
    oxp_options *made = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &made, ERR));
    for (; *options; options += 2)
        MUST(oxp_options_set(made, options[0], NT, options[1], NT, ERR));
    MUST(oxp_run_create(pipeline, made, &run, ERR));
    oxp_options_free(made);
    return run;
}

/* A run of the prompt [0]. */
static oxp_run *start(const char *const *options)
{
    static const int32_t prompt[1] = {0};
    static const int64_t dims[2] = {1, 8};
    oxp_tensor_in pixels = tensor_in(OXP_DTYPE_FLOAT32, black, 32, dims, 2);
    oxp_run *run = create(options);
    MUST(oxp_run_set_input(run, "vision_encoder.pixel_values", NT, &pixels, ERR));
    MUST(oxp_run_append_tokens(run, prompt, 1, ERR));
    return run;
}

/* Steps to the end; the texts in one, each where its event says. */
static oxp_event finish(oxp_run *run, char *text)
{
    oxp_event event = OXP_EVENT_INIT;
    uint64_t given = 0;
    do {
        event.struct_size = sizeof event;
        MUST(oxp_run_step(run, &event, NULL, ERR));
        CHECK(event.text_offset == given);
        memcpy(text + given, event.text, event.text_len);
        given += event.text_len;
    } while (event.finish_reason == OXP_FINISH_NONE);
    text[given] = 0;
    return event;
}

static void ends(const char *const *options, uint32_t reason, int32_t index, int32_t last, const char *wanted)
{
    char text[256];
    oxp_run *run = start(options);
    oxp_event event = finish(run, text);
    CHECK(event.finish_reason == reason && event.finish_index == index && event.token == last);
    CHECK_TEXT(text, wanted);
    oxp_run_free(run);
}

static void reasons(void)
{
    static const char *const none[] = {NULL};
    static const char *const strings[] = {"stop_strings", "[\"six\", \"ee f\", \"e fo\"]", NULL};
    static const char *const kept[] = {"stop_strings", "[\"six\", \"ee f\"]", "keep_stop_string", "true", NULL};
    static const char *const never[] = {"stop_strings", "[\"five six\"]", NULL};
    static const char *const tokens[] = {"stop_tokens", "[[2, 4], [3, 4], [4]]", NULL};
    static const char *const length[] = {"max_length", "3", NULL};
    static const char *const count[] = {"max_tokens", "3", "max_length", "9", NULL};
    static const char *const on[] = {"stop_on_eos", "false", "max_tokens", "8", NULL};
    static const char *const special[] = {"skip_special_tokens", "false", NULL};
    ends(none, OXP_FINISH_END_OF_TEXT, 0, 7, "one two three four five");
    ends(strings, OXP_FINISH_STOP_STRING, 1, 4, "one two thr");
    ends(kept, OXP_FINISH_STOP_STRING, 1, 4, "one two three f");
    /* What was held back comes with the last event. */
    ends(never, OXP_FINISH_END_OF_TEXT, 0, 7, "one two three four five");
    ends(tokens, OXP_FINISH_STOP_TOKENS, 1, 4, "one two three four");
    ends(length, OXP_FINISH_MAX_LENGTH, -1, 2, "one two");
    ends(count, OXP_FINISH_MAX_TOKENS, -1, 3, "one two three");
    ends(on, OXP_FINISH_MAX_TOKENS, -1, 0, "one two three four five zero");
    ends(special, OXP_FINISH_END_OF_TEXT, 0, 7, "one two three four five <unk> </s>");
}

/* A turn's text goes on after a rewind as if what was taken back had not been, and begins anew
 * with the next turn. */
static void turns(void)
{
    static const char *const strings[] = {"stop_strings", "[\"three\"]", NULL};
    static const int32_t more[1] = {0};
    char text[256];
    oxp_run *run = start(strings);
    oxp_event event = OXP_EVENT_INIT;
    event = finish(run, text);
    CHECK_TEXT(text, "one two ");
    OK(oxp_run_rewind(run, 2, ERR));
    OK(oxp_run_step(run, &event, NULL, ERR));
    CHECK(event.token == 2 && event.text_offset == 3);
    CHECK_TEXT(event.text, " two");
    OK(oxp_run_step(run, &event, NULL, ERR));
    CHECK(event.finish_reason == OXP_FINISH_STOP_STRING && event.text_offset == 7);
    CHECK_TEXT(event.text, " ");
    OK(oxp_run_append_tokens(run, more, 1, ERR));
    event = finish(run, text);
    CHECK(event.token == 3 && event.finish_index == 0);
    CHECK_TEXT(text, "one two ");
    oxp_run_free(run);
}

/* Another token in the place of the last takes its text back too. */
static void forced(void)
{
    static const char *const strings[] = {"stop_strings", "[\"two three\"]", NULL};
    oxp_run *run = start(strings);
    oxp_event event = OXP_EVENT_INIT;
    OK(oxp_run_step(run, &event, NULL, ERR));
    OK(oxp_run_step(run, &event, NULL, ERR));
    CHECK_TEXT(event.text, " ");
    OK(oxp_run_step(run, &event, NULL, ERR));
    CHECK(event.finish_reason == OXP_FINISH_STOP_STRING);
    OK(oxp_run_force_token(run, 5, &event, ERR));
    CHECK(event.finish_reason == OXP_FINISH_NONE && event.text_offset == 4);
    CHECK_TEXT(event.text, "two five");
    oxp_run_free(run);
}

static int32_t stop_at_two(void *user_data, const oxp_event *event)
{
    (void)user_data;
    return event->token == 2;
}

static void ended_from_outside(void)
{
    static const char *const none[] = {NULL};
    oxp_run *run = start(none);
    oxp_cancel *cancel = NULL;
    uint32_t reason = 99;
    MUST(oxp_cancel_create(&cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "callback", oxp_run_generate(run, &reason, stop_at_two, NULL, NULL, ERR));
    CHECK(reason == OXP_FINISH_CANCELLED);
    OK(oxp_cancel_request(cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "", oxp_run_generate(run, &reason, NULL, NULL, cancel, ERR));
    CHECK(reason == OXP_FINISH_CANCELLED);
    OK(oxp_run_generate(run, &reason, NULL, NULL, NULL, ERR));
    CHECK(reason == OXP_FINISH_END_OF_TEXT);
    oxp_cancel_free(cancel);
    oxp_run_free(run);
}

static void pending(oxp_run *run, const char *wanted)
{
    char text[64];
    uint64_t needed = 0;
    OK(oxp_run_pending_text_copy(run, text, sizeof text, &needed, ERR));
    CHECK_TEXT(text, wanted);
    CHECK(needed == strlen(wanted));
}

/* What is held back is there for who ends here, and comes with a later event for who goes on. */
static void held_back(void)
{
    static const char *const strings[] = {"stop_strings", "[\"one two three six\"]", NULL};
    oxp_run *run = start(strings);
    oxp_event event = OXP_EVENT_INIT;
    oxp_cancel *cancel = NULL;
    uint32_t reason = 0;
    pending(run, "");
    OK(oxp_run_step(run, &event, NULL, ERR));
    OK(oxp_run_step(run, &event, NULL, ERR));
    CHECK_TEXT(event.text, "");
    pending(run, "one two");
    MUST(oxp_cancel_create(&cancel, ERR));
    OK(oxp_cancel_request(cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "", oxp_run_generate(run, &reason, NULL, NULL, cancel, ERR));
    CHECK(reason == OXP_FINISH_CANCELLED);
    pending(run, "one two");
    OK(oxp_run_step(run, &event, NULL, ERR));
    CHECK_TEXT(event.text, "");
    OK(oxp_run_step(run, &event, NULL, ERR));
    CHECK(event.text_offset == 0);
    CHECK_TEXT(event.text, "one two three four");
    pending(run, "");
    oxp_cancel_free(cancel);
    oxp_run_free(run);
}

static void refused(void)
{
    oxp_options *options = NULL;
    oxp_run *run = NULL;
    oxp_event event = OXP_EVENT_INIT;
    static const char *const length[] = {"max_length", "1", NULL};
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    OK(oxp_options_set(options, "stop_tokens", NT, "[[8]]", NT, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "token id 8 is outside of the vocabulary of 8",
           oxp_run_create(pipeline, options, &run, ERR));
    oxp_options_free(options);
    run = start(length);
    EXPECT(OXP_ERR_INVALID_STATE, "max_length is 1", oxp_run_step(run, &event, NULL, ERR));
    oxp_run_free(run);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    pipeline = open_pipeline(argv[1], argv[2]);
    reasons();
    turns();
    forced();
    ended_from_outside();
    held_back();
    refused();
    oxp_pipeline_free(pipeline);
    return check_result();
}
