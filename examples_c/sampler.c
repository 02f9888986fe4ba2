/* Chooses tokens by a rule of its own: of the K likeliest, one at random. The library gives the
 * logits and takes the token.
 *
 *     sampler PACKAGE TEXT [--temperature T] [--top-k K] [--seed N] [--max-tokens N]
 *             [--backend [COMPONENT=]native|ort|auto]... */
#include "example.h"

#include <math.h>

#define MOST 64

/* The next of a row of random numbers from 0 to 1, without 1 (Steele, Lea and Flood's
 * SplitMix64). */
static double draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

/* The `most` likeliest tokens, likeliest first; of equals the first. */
static uint64_t likeliest(const float *logits, uint64_t count, uint64_t most, int32_t *tokens)
{
    uint64_t found = 0, token, at;
    for (token = 0; token < count; token++) {
        if (found == most && logits[token] <= logits[tokens[found - 1]])
            continue;
        if (found < most)
            found++;
        for (at = found - 1; at > 0 && logits[token] > logits[tokens[at - 1]]; at--)
            tokens[at] = tokens[at - 1];
        tokens[at] = (int32_t)token;
    }
    return found;
}

static int32_t choose(const float *logits, uint64_t count, double temperature, uint64_t most, uint64_t *random)
{
    int32_t tokens[MOST] = {0};
    uint64_t found = likeliest(logits, count, most, tokens), i;
    double total = 0, left;
    for (i = 0; i < found; i++)
        total += exp((logits[tokens[i]] - logits[tokens[0]]) / temperature);
    left = draw(random) * total;
    for (i = 0; i < found; i++) {
        left -= exp((logits[tokens[i]] - logits[tokens[0]]) / temperature);
        if (left < 0)
            return tokens[i];
    }
    return tokens[0];
}

int main(int argc, char **argv)
{
    oxp_error *error = NULL;
    oxp_options *options = backends_from(&argc, argv), *run_options = NULL;
    oxp_pipeline *pipeline;
    oxp_run *run = NULL;
    oxp_event event = OXP_EVENT_INIT;
    double temperature = 1;
    uint64_t most = 40, random = 0, count = 0;
    const char *max_tokens = "100";
    int i;

    for (i = 3; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--temperature") == 0)
            temperature = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--top-k") == 0)
            most = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            random = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--max-tokens") == 0)
            max_tokens = argv[i + 1];
        else
            break;
    }
    if (argc < 3 || i != argc || temperature <= 0 || most < 1 || most > MOST)
        die("usage", "sampler PACKAGE TEXT [--temperature T] [--top-k 1..64] [--seed N] [--max-tokens N] "
                     "[--backend [COMPONENT=]native|ort|auto]...");
    must(oxp_options_create(OXP_OPTIONS_RUN, &run_options, &error), &error);
    must(oxp_options_set(run_options, "max_tokens", OXP_NUL_TERMINATED, max_tokens, OXP_NUL_TERMINATED, &error), &error);
    pipeline = open_package(argv[1], options);
    must(oxp_run_create(pipeline, run_options, &run, &error), &error);
    must(oxp_run_append_text(run, argv[2], OXP_NUL_TERMINATED, 1, NULL, &error), &error);

    do {
        const float *logits = NULL;
        int32_t token;
        must(oxp_run_forward(run, NULL, &error), &error);
        must(oxp_run_get_logits(run, &logits, &count, &error), &error);
        token = choose(logits, count, temperature, most, &random);
        must(oxp_run_force_token(run, token, &event, &error), &error);
        print_text(NULL, &event);
    } while (event.finish_reason == OXP_FINISH_NONE);
    printf("\n");

    oxp_run_free(run);
    oxp_pipeline_free(pipeline);
    oxp_options_free(run_options);
    return 0;
}
