/* Runs a package of several ONNX components, each on a backend of its own, and prints what
 * every step does.
 *
 *     pipeline PACKAGE [option...] [COMPONENT.PORT=FILE[:DIM,DIM,...]]...
 *
 *     --backend native|ort|auto           for every component
 *     --backend COMPONENT=native|ort|auto for one
 *     --tokens ID,ID,...                  the prompt as token ids
 *     --text TEXT                         the prompt as text, if the package has a tokenizer
 *     --image FILE                        a JPEG, PNG, WebP or BMP; may be repeated, in the order of
 *                                         the prompt's placeholders
 *     --audio FILE                        a WAV, FLAC or MP3
 *     --max-tokens N                      the most tokens to choose
 *     --print COMPONENT.PORT              a value to print at the end; may be repeated
 *
 * An input's file holds the elements, dense and little-endian; dims may be left out if the
 * graph fixes all of them but one. */
#include "example.h"

#define MAX_ARGUMENTS 64
#define USAGE                                                                                      \
    "pipeline PACKAGE [--backend [COMPONENT=]native|ort|auto]... [--tokens ID,ID,...] [--text TEXT] " \
    "[--image FILE]... [--audio FILE] [--max-tokens N] [--print COMPONENT.PORT]... [COMPONENT.PORT=FILE[:DIM,DIM,...]]..."

static const char *phase_name(uint32_t phase)
{
    switch (phase) {
    case OXP_PHASE_PROMPT_ONLY: return "once a prompt";
    case OXP_PHASE_EVERY_STEP: return "every step";
    case OXP_PHASE_FINAL_ONLY: return "at the end";
    default: return "on demand";
    }
}

static void print_components(oxp_pipeline *pipeline)
{
    oxp_error *error = NULL;
    oxp_pipeline_info info = OXP_PIPELINE_INFO_INIT;
    uint64_t i;
    must(oxp_pipeline_get_info(pipeline, &info, &error), &error);
    printf("%s package, strategy %s\n", info.format, info.strategy);
    for (i = 0; i < info.component_count; i++) {
        oxp_component_info component = OXP_COMPONENT_INFO_INIT;
        must(oxp_pipeline_get_component(pipeline, i, &component, &error), &error);
        printf("  %s (%s) runs %s on %s: %s\n", component.name, component.component_type,
               phase_name(component.phase), component.backend == OXP_BACKEND_NATIVE ? "native" : "ort",
               component.reason);
    }
}

/* Hands a file to the run, with the dtype that the port declares. */
static void set_input(oxp_pipeline *pipeline, oxp_run *run, file_tensor *file)
{
    oxp_error *error = NULL;
    oxp_pipeline_info info = OXP_PIPELINE_INFO_INIT;
    const char *dot = strchr(file->name, '.');
    uint64_t i, j;
    must(oxp_pipeline_get_info(pipeline, &info, &error), &error);
    for (i = 0; dot != NULL && i < info.component_count; i++) {
        oxp_component_info component = OXP_COMPONENT_INFO_INIT;
        must(oxp_pipeline_get_component(pipeline, i, &component, &error), &error);
        if (component.name_len != (uint64_t)(dot - file->name) ||
            memcmp(component.name, file->name, (size_t)component.name_len) != 0)
            continue;
        for (j = 0; j < component.input_count; j++) {
            oxp_port_info port = OXP_PORT_INFO_INIT;
            must(oxp_pipeline_get_input(pipeline, component.name, component.name_len, j, &port, &error), &error);
            if (strcmp(port.name, dot + 1) == 0)
                describe_as(file, &port);
        }
    }
    if (file->tensor.dtype == 0)
        die("no component has this input", file->name);
    file->tensor.shape = file->dims;
    must(oxp_run_set_input(run, file->name, OXP_NUL_TERMINATED, &file->tensor, &error), &error);
    free((void *)file->tensor.data); /* the run has its copy */
}

static void append_ids(oxp_run *run, const char *list)
{
    oxp_error *error = NULL;
    while (*list != '\0') {
        char *end;
        int32_t id = (int32_t)strtol(list, &end, 10);
        if (end == list)
            die("bad token ids", list);
        must(oxp_run_append_tokens(run, &id, 1, &error), &error);
        list = *end == ',' ? end + 1 : end;
    }
}

int main(int argc, char **argv)
{
    oxp_error *error = NULL;
    oxp_options *pipeline_options = NULL, *run_options = NULL;
    oxp_pipeline *pipeline = NULL;
    oxp_run *run = NULL;
    oxp_event event = OXP_EVENT_INIT;
    file_tensor files[MAX_ARGUMENTS];
    const char *to_print[MAX_ARGUMENTS], *images[MAX_ARGUMENTS], *audio = NULL;
    const char *ids = NULL, *text = NULL;
    int file_count = 0, print_count = 0, image_count = 0, step = 0, i;

    if (argc < 2 || argc > MAX_ARGUMENTS || strcmp(argv[1], "--help") == 0)
        die("usage", USAGE);

    must(oxp_options_create(OXP_OPTIONS_PIPELINE, &pipeline_options, &error), &error);
    must(oxp_options_create(OXP_OPTIONS_RUN, &run_options, &error), &error);
    for (i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (argv[i][0] != '-') {
            if (!load_tensor(argv[i], &files[file_count++]))
                die("not COMPONENT.PORT=FILE", argv[i]);
            continue;
        }
        if (value == NULL)
            die("nothing comes after the last option, or it is none; usage", USAGE);
        if (strcmp(argv[i], "--backend") == 0)
            set_backend(pipeline_options, value);
        else if (strcmp(argv[i], "--tokens") == 0)
            ids = value;
        else if (strcmp(argv[i], "--text") == 0)
            text = value;
        else if (strcmp(argv[i], "--image") == 0)
            images[image_count++] = value;
        else if (strcmp(argv[i], "--audio") == 0)
            audio = value;
        else if (strcmp(argv[i], "--max-tokens") == 0)
            must(oxp_options_set(run_options, "max_tokens", OXP_NUL_TERMINATED, value, OXP_NUL_TERMINATED, &error),
                 &error);
        else if (strcmp(argv[i], "--print") == 0)
            to_print[print_count++] = value;
        else
            die("not an option; usage", USAGE);
        i++;
    }

    must(oxp_pipeline_open(NULL, argv[1], OXP_NUL_TERMINATED, pipeline_options, &pipeline, NULL, NULL, NULL, &error),
         &error);
    print_components(pipeline);

    must(oxp_run_create(pipeline, run_options, &run, &error), &error);
    for (i = 0; i < file_count; i++)
        set_input(pipeline, run, &files[i]);
    /* Before the text that has their placeholders. */
    for (i = 0; i < image_count; i++) {
        uint64_t size = 0;
        void *image = read_file(images[i], &size);
        must(oxp_run_add_image(run, image, size, NULL, &error), &error);
        free(image);
    }
    if (audio != NULL) {
        uint64_t size = 0;
        void *sound = read_file(audio, &size);
        must(oxp_run_set_audio(run, sound, size, NULL, &error), &error);
        free(sound);
    }
    if (ids != NULL)
        append_ids(run, ids);
    if (text != NULL)
        must(oxp_run_append_text(run, text, OXP_NUL_TERMINATED, 1, NULL, &error), &error);

    /* A step runs whatever is due and chooses a token; a package without a token loop is done
     * after one. */
    do {
        must(oxp_run_step(run, &event, NULL, &error), &error);
        printf("step %d:", ++step);
        if (event.token >= 0)
            printf(" token %" PRId32 " \"%s\" logprob %.3f,", event.token, event.text, (double)event.logprob);
        printf(" %.2f ms, decoder %.2f ms\n", (double)event.total_ns / 1e6, (double)event.decoder_ns / 1e6);
    } while (event.finish_reason == OXP_FINISH_NONE);

    /* Components that only run at the end, if there are any. */
    must(oxp_run_finish(run, NULL, &error), &error);
    for (i = 0; i < print_count; i++) {
        oxp_tensor_in tensor = OXP_TENSOR_IN_INIT;
        must(oxp_run_get_tensor(run, to_print[i], OXP_NUL_TERMINATED, &tensor, &error), &error);
        print_tensor(to_print[i], tensor.dtype, tensor.shape, tensor.rank, tensor.data);
    }

    /* In any order: each keeps what it needs of the others. */
    oxp_options_free(pipeline_options);
    oxp_options_free(run_options);
    oxp_pipeline_free(pipeline);
    oxp_run_free(run);
    return 0;
}
