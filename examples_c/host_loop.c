/* The loop over tokens in the host's hands: logits out, token in. It says of each token by
 * how far it is ahead of the next, and never takes one that is to be avoided.
 *
 *     host_loop PACKAGE TEXT [--avoid TOKEN] [--max-tokens N] [--backend [COMPONENT=]native|ort|auto]... */
#include "example.h"

/* The largest logit that is not that of `avoid`. */
static int32_t best_but(const float *logits, uint64_t count, int32_t avoid)
{
    int32_t best = avoid == 0 ? 1 : 0, token;
    for (token = best; token < (int32_t)count; token++)
        if (token != avoid && logits[token] > logits[best])
            best = token;
    return best;
}

int main(int argc, char **argv)
{
    oxp_error *error = NULL;
    oxp_options *options = backends_from(&argc, argv), *run_options = NULL;
    oxp_pipeline *pipeline;
    oxp_run *run = NULL;
    oxp_event event = OXP_EVENT_INIT;
    const char *max_tokens = "100";
    int32_t avoid = -1;
    int i;

    for (i = 3; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--avoid") == 0)
            avoid = (int32_t)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--max-tokens") == 0)
            max_tokens = argv[i + 1];
        else
            break;
    }
    if (argc < 3 || i != argc)
        die("usage", "host_loop PACKAGE TEXT [--avoid TOKEN] [--max-tokens N] "
                     "[--backend [COMPONENT=]native|ort|auto]...");
    must(oxp_options_create(OXP_OPTIONS_RUN, &run_options, &error), &error);
    must(oxp_options_set(run_options, "max_tokens", OXP_NUL_TERMINATED, max_tokens, OXP_NUL_TERMINATED, &error), &error);
    pipeline = open_package(argv[1], options);
    must(oxp_run_create(pipeline, run_options, &run, &error), &error);
    must(oxp_run_append_text(run, argv[2], OXP_NUL_TERMINATED, 1, NULL, &error), &error);

    do {
        const float *logits = NULL;
        uint64_t count = 0;
        int32_t token, second;
        must(oxp_run_forward(run, NULL, &error), &error);
        /* Borrowed until the next call that changes them. */
        must(oxp_run_get_logits(run, &logits, &count, &error), &error);
        token = best_but(logits, count, avoid);
        second = best_but(logits, count, token);
        printf("%" PRId32 " (%.1f ahead of %" PRId32 ")", token, (double)(logits[token] - logits[second]), second);
        must(oxp_run_force_token(run, token, &event, &error), &error);
        printf(" \"%s\"\n", event.text);
    } while (event.finish_reason == OXP_FINISH_NONE);
    printf("%" PRIu64 " tokens, %s\n", event.generated_tokens,
           event.finish_reason == OXP_FINISH_END_OF_TEXT ? "the text has ended" : "as many as were asked for");

    oxp_run_free(run);
    oxp_pipeline_free(pipeline);
    oxp_options_free(run_options);
    return 0;
}
