/* Runs a package as its arguments say, and prints what comes out, a line each:
 *
 *   fixture FOLDER [COMPONENT=BACKEND | input=ADDRESS:DIM,DIM,..:VALUE,VALUE,.. | memory |
 *                   tokens=ID,ID,.. | text=WORDS | steps=N | loop=N | frames=N |
 *                   step | finish |
 *                   get=ADDRESS]...
 *
 * Input values are float32; one value stands for all of them. In the order given; backends
 * and `memory` (open from files in memory) come first. `steps` prints the tokens of N steps,
 * `loop` takes the N steps of an iterative package,
 * `frames` prints the codes of N steps' frames, `get` a value of float32 or int64. */
#include "check.h"

#include <dirent.h>

enum { MOST = 4096 };
static float values[MOST];

static uint64_t numbers(const char *text, double *found, uint64_t most)
{
    uint64_t count = 0;
    char *end = NULL;
    while (*text && count < most) {
        found[count++] = strtod(text, &end);
        if (end == text)
            exit(2);
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

static void set_input(oxp_run *run, const char *argument)
{
    static double parsed[MOST];
    char address[256];
    char dims_text[256];
    double dims_found[8];
    int64_t dims[8];
    uint64_t count = 1;
    uint64_t given;
    uint64_t rank;
    uint64_t at;
    oxp_tensor_in tensor;
    const char *first = strchr(argument, ':');
    const char *second = first ? strchr(first + 1, ':') : NULL;
    if (!second)
        exit(2);
    snprintf(address, sizeof address, "%.*s", (int)(first - argument), argument);
    snprintf(dims_text, sizeof dims_text, "%.*s", (int)(second - first - 1), first + 1);
    rank = numbers(dims_text, dims_found, 8);
    for (at = 0; at < rank; at++) {
        dims[at] = (int64_t)dims_found[at];
        count *= (uint64_t)dims[at];
    }
    given = numbers(second + 1, parsed, MOST);
    for (at = 0; at < count; at++)
        values[at] = (float)parsed[given == 1 ? 0 : at];
    tensor = tensor_in(OXP_DTYPE_FLOAT32, values, count * sizeof *values, dims, (uint32_t)rank);
    MUST(oxp_run_set_input(run, address, NT, &tensor, ERR));
}

static void get(oxp_run *run, const char *address)
{
    oxp_tensor_in view = OXP_TENSOR_IN_INIT;
    oxp_tensor_out room = OXP_TENSOR_OUT_INIT;
    int64_t dims[8];
    uint64_t at;
    MUST(oxp_run_get_tensor(run, address, NT, &view, ERR));
    if (view.dtype == OXP_DTYPE_INT64) {
        const int64_t *integers = (const int64_t *)view.data;
        for (at = 0; at < view.byte_len / 8; at++)
            printf("%s%lld", at ? " " : "", (long long)integers[at]);
        printf("\n");
        return;
    }
    CHECK(view.dtype == OXP_DTYPE_FLOAT32);
    room.data = values;
    room.capacity = sizeof values;
    room.shape = dims;
    room.shape_capacity = 8;
    MUST(oxp_run_copy_tensor(run, address, NT, &room, ERR));
    CHECK(room.byte_len == view.byte_len && memcmp(values, view.data, view.byte_len) == 0);
    for (at = 0; at < room.byte_len / 4; at++)
        printf("%s%g", at ? " " : "", (double)values[at]);
    printf("\n");
}

/* Each component on the backend that was asked for. */
static void check_backend(oxp_pipeline *pipeline, const char *name, const char *backend)
{
    oxp_component_info info = OXP_COMPONENT_INFO_INIT;
    uint64_t at;
    for (at = 0; oxp_pipeline_get_component(pipeline, at, &info, NULL) == OXP_OK; at++) {
        if (strcmp(info.name, name) == 0) {
            CHECK(info.backend == (strcmp(backend, "native") == 0 ? OXP_BACKEND_NATIVE : OXP_BACKEND_ORT));
            return;
        }
    }
    CHECK(!"the component is there");
}

static oxp_pipeline *open_from_memory(const char *folder, oxp_options *options)
{
    static oxp_file files[64];
    oxp_pipeline *pipeline = NULL;
    uint64_t count = 0;
    uint64_t at;
    struct dirent *entry;
    DIR *directory = opendir(folder);
    if (!CHECK(directory != NULL))
        exit(1);
    while ((entry = readdir(directory)) != NULL && count < 64) {
        char path[4096];
        FILE *file = fopen(join(path, sizeof path, folder, entry->d_name), "rb");
        char *bytes = (char *)malloc(1 << 20);
        char *name = (char *)malloc(strlen(entry->d_name) + 1);
        if (entry->d_name[0] == '.' || !file || !bytes || !name) {
            if (file)
                fclose(file);
            free(bytes);
            free(name);
            continue;
        }
        strcpy(name, entry->d_name);
        files[count].name = name;
        files[count].name_len = strlen(name);
        files[count].data = bytes;
        files[count].byte_len = fread(bytes, 1, 1 << 20, file);
        fclose(file);
        count += 1;
    }
    closedir(directory);
    MUST(oxp_pipeline_open_memory(NULL, files, count, options, &pipeline, NULL, NULL, NULL, ERR));
    for (at = 0; at < count; at++) {
        free((void *)(uintptr_t)files[at].name);
        free((void *)(uintptr_t)files[at].data);
    }
    return pipeline;
}

int main(int argc, char **argv)
{
    oxp_options *options = NULL;
    oxp_options *run_options = NULL;
    oxp_pipeline *pipeline = NULL;
    oxp_run *run = NULL;
    int from_memory = 0;
    int first;
    int at;
    if (argc < 2)
        return 2;
    MUST(oxp_options_create(OXP_OPTIONS_PIPELINE, &options, ERR));
    for (first = 2; first < argc; first++) {
        const char *equals = strchr(argv[first], '=');
        char key[256];
        if (strcmp(argv[first], "memory") == 0) {
            from_memory = 1;
            continue;
        }
        if (!equals || (strcmp(equals, "=native") != 0 && strcmp(equals, "=ort") != 0))
            break;
        snprintf(key, sizeof key, "backend.%.*s", (int)(equals - argv[first]), argv[first]);
        MUST(oxp_options_set(options, key, NT, equals + 1, NT, ERR));
    }
    if (from_memory)
        pipeline = open_from_memory(argv[1], options);
    else
        MUST(oxp_pipeline_open(NULL, argv[1], NT, options, &pipeline, NULL, NULL, NULL, ERR));
    for (at = 2; at < first; at++) {
        char name[256];
        const char *equals = strchr(argv[at], '=');
        if (equals) {
            snprintf(name, sizeof name, "%.*s", (int)(equals - argv[at]), argv[at]);
            check_backend(pipeline, name, equals + 1);
        }
    }
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &run_options, ERR));
    MUST(oxp_options_set(run_options, "stop_on_eos", NT, "false", NT, ERR));
    MUST(oxp_options_set(run_options, "max_tokens", NT, "100", NT, ERR));
    MUST(oxp_run_create(pipeline, run_options, &run, ERR));
    for (at = first; at < argc; at++) {
        const char *argument = strchr(argv[at], '=');
        argument = argument ? argument + 1 : "";
        if (strncmp(argv[at], "input=", 6) == 0) {
            set_input(run, argument);
        } else if (strncmp(argv[at], "tokens=", 7) == 0) {
            double found[64];
            int32_t ids[64];
            uint64_t count = numbers(argument, found, 64);
            uint64_t id;
            for (id = 0; id < count; id++)
                ids[id] = (int32_t)found[id];
            MUST(oxp_run_append_tokens(run, ids, count, ERR));
        } else if (strncmp(argv[at], "text=", 5) == 0) {
            MUST(oxp_run_append_text(run, argument, NT, 1, NULL, ERR));
        } else if (strncmp(argv[at], "steps=", 6) == 0) {
            int steps = atoi(argument);
            int step;
            for (step = 0; step < steps; step++) {
                oxp_event event = OXP_EVENT_INIT;
                MUST(oxp_run_step(run, &event, NULL, ERR));
                printf("%s%d", step ? " " : "", event.token);
            }
            printf("\n");
        } else if (strncmp(argv[at], "loop=", 5) == 0) {
            uint32_t steps = (uint32_t)atoi(argument);
            uint32_t step;
            for (step = 1; step <= steps; step++) {
                oxp_event event = OXP_EVENT_INIT;
                MUST(oxp_run_step(run, &event, NULL, ERR));
                CHECK(event.token == -1 && event.loop_step == step && event.loop_step_count == steps);
                CHECK(event.finish_reason == (step == steps ? OXP_FINISH_COMPLETED : OXP_FINISH_NONE));
            }
        } else if (strncmp(argv[at], "frames=", 7) == 0) {
            int frames = atoi(argument);
            int frame;
            for (frame = 0; frame < frames; frame++) {
                oxp_event event = OXP_EVENT_INIT;
                uint64_t code;
                MUST(oxp_run_step(run, &event, NULL, ERR));
                CHECK(event.token >= 0 && event.codes != NULL && event.code_count > 0);
                for (code = 0; code < event.code_count; code++)
                    printf("%s%lld", code ? " " : "", (long long)event.codes[code]);
                printf("\n");
            }
        } else if (strcmp(argv[at], "step") == 0) {
            oxp_event event = OXP_EVENT_INIT;
            MUST(oxp_run_step(run, &event, NULL, ERR));
            CHECK(event.token == -1 && event.finish_reason == OXP_FINISH_COMPLETED);
        } else if (strcmp(argv[at], "finish") == 0) {
            MUST(oxp_run_finish(run, NULL, ERR));
        } else if (strncmp(argv[at], "get=", 4) == 0) {
            get(run, argument);
        } else {
            return 2;
        }
    }
    oxp_run_free(run);
    oxp_options_free(run_options);
    oxp_options_free(options);
    oxp_pipeline_free(pipeline);
    return check_failures == 0 ? 0 : 1;
}
