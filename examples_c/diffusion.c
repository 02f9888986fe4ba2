/* Makes a picture of words: takes the noise out of a picture of noise, step by step.
 *
 *     diffusion PACKAGE PROMPT OUT.ppm [--set KEY=VALUE]... [--backend [COMPONENT=]native|ort|auto]...
 *
 * The keys are options of a run: num_steps, guidance_scale, seed, ... The prompt's tokens go to
 * the first input of the component "text_encoder"; the picture is the first output of the
 * component that runs at the end, float32 [1, 3, height, width] from -1 to 1. */
#include "example.h"

/* Gives the text encoder the prompt's tokens, padded to as many as it takes. */
static void set_prompt(oxp_run *run, const oxp_pipeline *pipeline, const char *prompt)
{
    oxp_error *error = NULL;
    oxp_tokenizer *tokenizer = NULL;
    oxp_port_info port = OXP_PORT_INFO_INIT;
    oxp_tensor_in tensor = OXP_TENSOR_IN_INIT;
    uint64_t count = 0, room, i;
    int32_t *ids, pad = -1;
    int64_t *wide, shape[2] = {1, 0};
    char address[256];

    must(oxp_tokenizer_open_pipeline(pipeline, &tokenizer, &error), &error);
    must(oxp_pipeline_get_input(pipeline, "text_encoder", OXP_NUL_TERMINATED, 0, &port, &error), &error);
    must(oxp_tokenizer_get_special(tokenizer, OXP_TOKEN_PAD, &pad, NULL, NULL, &error), &error);
    must(oxp_tokenizer_encode_copy(tokenizer, prompt, OXP_NUL_TERMINATED, 1, NULL, 0, &count, &error), &error);
    room = port.rank == 2 && port.dims[1] > 0 ? (uint64_t)port.dims[1] : count;
    if (count > room)
        die("too long", prompt);
    ids = (int32_t *)must_allocate(room * sizeof *ids);
    wide = (int64_t *)must_allocate(room * sizeof *wide);
    must(oxp_tokenizer_encode_copy(tokenizer, prompt, OXP_NUL_TERMINATED, 1, ids, room, &count, &error), &error);
    for (i = count; i < room; i++)
        ids[i] = pad < 0 ? 0 : pad;
    for (i = 0; i < room; i++)
        wide[i] = ids[i];

    shape[1] = (int64_t)room;
    tensor.dtype = port.dtype;
    tensor.data = port.dtype == OXP_DTYPE_INT64 ? (const void *)wide : (const void *)ids;
    tensor.byte_len = room * (port.dtype == OXP_DTYPE_INT64 ? sizeof *wide : sizeof *ids);
    tensor.shape = shape;
    tensor.rank = 2;
    snprintf(address, sizeof address, "text_encoder.%s", port.name);
    must(oxp_run_set_input(run, address, OXP_NUL_TERMINATED, &tensor, &error), &error);
    free(wide);
    free(ids);
    oxp_tokenizer_free(tokenizer);
}

/* "vae_decoder.sample": the first output of the component that runs at the end. */
static void find_picture(const oxp_pipeline *pipeline, char *address, size_t capacity)
{
    oxp_error *error = NULL;
    oxp_pipeline_info info = OXP_PIPELINE_INFO_INIT;
    oxp_component_info component = OXP_COMPONENT_INFO_INIT;
    oxp_port_info port = OXP_PORT_INFO_INIT;
    uint64_t i;
    must(oxp_pipeline_get_info(pipeline, &info, &error), &error);
    for (i = 0; i < info.component_count; i++) {
        must(oxp_pipeline_get_component(pipeline, i, &component, &error), &error);
        if (component.phase == OXP_PHASE_FINAL_ONLY) {
            must(oxp_pipeline_get_output(pipeline, component.name, component.name_len, 0, &port, &error), &error);
            snprintf(address, capacity, "%s.%s", component.name, port.name);
            return;
        }
    }
    die("no component runs at the end", info.metadata_file);
}

/* A PPM file: a line of text, then red, green and blue of each pixel. */
static void write_picture(const char *path, const oxp_tensor_in *picture)
{
    const float *values = (const float *)picture->data;
    int64_t height, width, i, channel;
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        die("cannot write", path);
    if (picture->dtype != OXP_DTYPE_FLOAT32 || picture->rank != 4 || picture->shape[0] != 1 || picture->shape[1] != 3)
        die("not a picture of float32 [1, 3, height, width]", path);
    height = picture->shape[2];
    width = picture->shape[3];
    fprintf(file, "P6\n%" PRId64 " %" PRId64 "\n255\n", width, height);
    for (i = 0; i < height * width; i++)
        for (channel = 0; channel < 3; channel++) {
            float level = (values[channel * height * width + i] + 1) * 127.5f + 0.5f;
            fputc(level < 0 ? 0 : level > 255 ? 255 : (int)level, file);
        }
    if (fclose(file) != 0)
        die("cannot write", path);
}

int main(int argc, char **argv)
{
    oxp_error *error = NULL;
    oxp_options *options = backends_from(&argc, argv), *run_options = NULL;
    oxp_pipeline *pipeline;
    oxp_run *run = NULL;
    oxp_event event = OXP_EVENT_INIT;
    oxp_tensor_in picture = OXP_TENSOR_IN_INIT;
    char address[256];
    int i;

    must(oxp_options_create(OXP_OPTIONS_RUN, &run_options, &error), &error);
    for (i = 4; i + 1 < argc && strcmp(argv[i], "--set") == 0 && strchr(argv[i + 1], '=') != NULL; i += 2) {
        char *value = strchr(argv[i + 1], '=');
        must(oxp_options_set(run_options, argv[i + 1], (uint64_t)(value - argv[i + 1]), value + 1, OXP_NUL_TERMINATED,
                             &error),
             &error);
    }
    if (argc < 4 || i != argc)
        die("usage", "diffusion PACKAGE PROMPT OUT.ppm [--set KEY=VALUE]... [--backend [COMPONENT=]native|ort|auto]...");
    pipeline = open_package(argv[1], options);
    must(oxp_run_create(pipeline, run_options, &run, &error), &error);
    set_prompt(run, pipeline, argv[2]);

    do {
        must(oxp_run_step(run, &event, NULL, &error), &error);
        show_progress("steps", event.loop_step, event.loop_step_count);
    } while (event.finish_reason == OXP_FINISH_NONE);
    must(oxp_run_finish(run, NULL, &error), &error);

    find_picture(pipeline, address, sizeof address);
    must(oxp_run_get_tensor(run, address, OXP_NUL_TERMINATED, &picture, &error), &error);
    write_picture(argv[3], &picture);
    printf("%s after %u steps: %" PRId64 " x %" PRId64 "\n", address, (unsigned)event.loop_step, picture.shape[3],
           picture.shape[2]);

    oxp_run_free(run);
    oxp_options_free(run_options);
    oxp_pipeline_free(pipeline);
    return 0;
}
