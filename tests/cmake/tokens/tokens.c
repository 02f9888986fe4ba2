/* Prints the tokens that a package makes of token 2. */
#include <oxpipe.h>

#include <inttypes.h>
#include <stdio.h>

static int32_t print(void *user_data, const oxp_event *event)
{
    (void)user_data;
    printf("%" PRId32 "\n", event->token);
    return 0;
}

int main(int argc, char **argv)
{
    const int32_t prompt[] = {2};
    oxp_pipeline *pipeline = NULL;
    oxp_run *run = NULL;
    oxp_error *error = NULL;
    int failed = argc != 2 ||
                 oxp_pipeline_open(NULL, argv[1], OXP_NUL_TERMINATED, NULL, &pipeline, NULL, NULL, NULL, &error) ||
                 oxp_run_create(pipeline, NULL, &run, &error) || oxp_run_append_tokens(run, prompt, 1, &error) ||
                 oxp_run_generate(run, NULL, print, NULL, NULL, &error);
    if (failed)
        fprintf(stderr, "%s\n", oxp_error_get_message(error, NULL));
    oxp_error_free(error);
    oxp_run_free(run);
    oxp_pipeline_free(pipeline);
    return failed;
}
