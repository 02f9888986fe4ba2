/* What the example programs share: checked calls, tensors from files, tensors printed.
 * Valid C99 and C++. */
#ifndef OXPIPE_EXAMPLE_H
#define OXPIPE_EXAMPLE_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <io.h>
#define isatty _isatty
#else
#include <unistd.h>
#endif

#include "oxpipe.h"

#define MAX_DIMS 8

static inline void die(const char *what, const char *about)
{
    fprintf(stderr, "%s: %s\n", what, about);
    exit(1);
}

/* Ends the program with the library's own words unless the call succeeded:
 *     oxp_error *error = NULL;
 *     must(oxp_something(..., &error), &error);
 * An application would free the error and go on: a failed call leaves nothing else behind. */
static inline void must(int32_t status, oxp_error **error)
{
    if (status == OXP_OK)
        return;
    fprintf(stderr, "%s: %s\n", oxp_status_name(status), oxp_error_get_message(*error, NULL));
    oxp_error_free(*error);
    exit(1);
}

static inline void *must_allocate(uint64_t size)
{
    void *memory = malloc(size > 0 ? (size_t)size : 1);
    if (memory == NULL)
        die("out of memory", "the examples need a little more");
    return memory;
}

/* Applies "native" (every component) or "decoder=ort" (one component) to pipeline options. */
static inline void set_backend(oxp_options *options, const char *choice)
{
    oxp_error *error = NULL;
    const char *equals = strchr(choice, '=');
    if (equals == NULL) {
        must(oxp_options_set(options, "backend", OXP_NUL_TERMINATED, choice, OXP_NUL_TERMINATED, &error), &error);
    } else {
        char key[128];
        int length = snprintf(key, sizeof key, "backend.%.*s", (int)(equals - choice), choice);
        if (length < 0 || (size_t)length >= sizeof key)
            die("too long", choice);
        must(oxp_options_set(options, key, (uint64_t)length, equals + 1, OXP_NUL_TERMINATED, &error), &error);
    }
}

/* Options for a pipeline from the arguments `--backend CHOICE`, which are taken out of argv. */
static inline oxp_options *backends_from(int *argc, char **argv)
{
    oxp_error *error = NULL;
    oxp_options *options = NULL;
    int from, to = 1;
    must(oxp_options_create(OXP_OPTIONS_PIPELINE, &options, &error), &error);
    for (from = 1; from < *argc; from++) {
        if (strcmp(argv[from], "--backend") == 0 && from + 1 < *argc)
            set_backend(options, argv[++from]);
        else
            argv[to++] = argv[from];
    }
    *argc = to;
    return options;
}

/* A bar on standard error while something long goes on, if somebody looks at it; gone at the end. */
static inline void show_progress(const char *what, uint64_t done, uint64_t total)
{
    const char *full = "####################";
    int part = total > 0 ? (int)(20 * done / total) : 0;
    if (!isatty(2))
        return;
    fprintf(stderr, "\r\033[K");
    if (done < total)
        fprintf(stderr, "[%-20.*s] %" PRIu64 "/%" PRIu64 " %s", part, full, done, total, what);
    fflush(stderr);
}

/* Told of each component that is loaded; anything but 0 would stop it. */
static inline int32_t show_loading(void *user_data, const oxp_load_progress *progress)
{
    (void)user_data;
    show_progress(progress->component, progress->done, progress->total);
    return 0;
}

/* Opens the package in a folder, and frees the options. */
static inline oxp_pipeline *open_package(const char *folder, oxp_options *options)
{
    oxp_error *error = NULL;
    oxp_pipeline *pipeline = NULL;
    must(oxp_pipeline_open(NULL, folder, OXP_NUL_TERMINATED, options, &pipeline, show_loading, NULL, NULL, &error),
         &error);
    oxp_options_free(options);
    return pipeline;
}

/* Told of each token that oxp_run_generate makes. */
static inline int32_t print_text(void *user_data, const oxp_event *event)
{
    (void)user_data;
    fwrite(event->text, 1, (size_t)event->text_len, stdout);
    fflush(stdout);
    return 0;
}

/* The text between quotation marks, as JSON has it; free it. */
static inline char *json_string(const char *text)
{
    char *json = (char *)must_allocate(6 * strlen(text) + 3), *to = json;
    *to++ = '"';
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            *to++ = '\\';
            *to++ = *text;
        } else if ((unsigned char)*text < 0x20) {
            to += snprintf(to, 7, "\\u%04x", (unsigned)*text);
        } else {
            *to++ = *text;
        }
    }
    *to++ = '"';
    *to = '\0';
    return json;
}

/* The bytes of a file; free them. */
static inline void *read_file(const char *path, uint64_t *size)
{
    FILE *file = fopen(path, "rb");
    long end = -1;
    void *bytes;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0)
        end = ftell(file);
    if (end < 0 || fseek(file, 0, SEEK_SET) != 0)
        die("cannot read", path);
    bytes = must_allocate((uint64_t)end);
    if (fread(bytes, 1, (size_t)end, file) != (size_t)end)
        die("cannot read", path);
    fclose(file);
    *size = (uint64_t)end;
    return bytes;
}

/* A tensor given on the command line as NAME=FILE or NAME=FILE:DIM,DIM,...; the file holds
 * the elements, dense and little-endian. */
typedef struct file_tensor {
    char *name;
    int64_t dims[MAX_DIMS];
    oxp_tensor_in tensor; /* points into the two above; data is owned */
} file_tensor;

/* Splits the argument and reads the file; the dtype is set by describe_as. The argument is
 * taken apart in place. 0 if it has no '='. */
static inline int load_tensor(char *argument, file_tensor *loaded)
{
    oxp_tensor_in empty = OXP_TENSOR_IN_INIT;
    char *file = strchr(argument, '=');
    char *dims;
    if (file == NULL)
        return 0;
    *file++ = '\0';
    loaded->name = argument;
    loaded->tensor = empty;
    loaded->tensor.shape = loaded->dims;
    dims = strrchr(file, ':');
    if (dims != NULL) {
        *dims++ = '\0';
        while (*dims != '\0') {
            char *end;
            int64_t dim = (int64_t)strtoll(dims, &end, 10);
            if (end == dims || loaded->tensor.rank == MAX_DIMS)
                die("bad dims for input", argument);
            loaded->dims[loaded->tensor.rank++] = dim;
            dims = *end == ',' ? end + 1 : end;
        }
    }
    loaded->tensor.data = read_file(file, &loaded->tensor.byte_len);
    return 1;
}

/* Gives a loaded tensor the dtype of the port that it is for, and its dims if none were
 * given: a single dim that is not fixed is what the file's size leaves for it. */
static inline void describe_as(file_tensor *loaded, const oxp_port_info *port)
{
    uint64_t elements;
    uint32_t i;
    loaded->tensor.dtype = port->dtype;
    if (loaded->tensor.rank > 0 || port->rank == 0 || port->rank > MAX_DIMS)
        return;
    elements = loaded->tensor.byte_len / (oxp_dtype_size(port->dtype) > 0 ? oxp_dtype_size(port->dtype) : 1);
    loaded->tensor.rank = port->rank;
    for (i = 0; i < port->rank; i++)
        if (port->dims[i] > 0)
            elements /= (uint64_t)port->dims[i];
    for (i = 0; i < port->rank; i++) {
        loaded->dims[i] = port->dims[i] < 0 ? (int64_t)elements : port->dims[i];
        if (port->dims[i] < 0)
            elements = 1;
    }
}

/* "float32 [1, sequence, 4]" */
static inline void print_port(const char *direction, const oxp_port_info *port)
{
    uint32_t i;
    printf("%s %s: %s [", direction, port->name, port->type_name);
    for (i = 0; i < port->rank; i++) {
        printf("%s", i > 0 ? ", " : "");
        if (port->dims[i] >= 0)
            printf("%" PRId64, port->dims[i]);
        else
            printf("%s", port->dim_names[i][0] != '\0' ? port->dim_names[i] : "?");
    }
    printf("]\n");
}

static inline void print_element(uint32_t dtype, const void *element)
{
    /* Copied out, because elements in a file need not be aligned. */
    union {
        float f32;
        int8_t i8;
        uint8_t u8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
    } value;
    value.u64 = 0;
    memcpy(&value, element, (size_t)oxp_dtype_size(dtype));
    switch (dtype) {
    case OXP_DTYPE_FLOAT32: printf(" %g", (double)value.f32); break;
    case OXP_DTYPE_INT8: printf(" %d", value.i8); break;
    case OXP_DTYPE_BOOL:
    case OXP_DTYPE_UINT8: printf(" %u", value.u8); break;
    case OXP_DTYPE_INT16: printf(" %d", value.i16); break;
    case OXP_DTYPE_UINT16: printf(" %u", value.u16); break;
    case OXP_DTYPE_INT32: printf(" %" PRId32, value.i32); break;
    case OXP_DTYPE_UINT32: printf(" %" PRIu32, value.u32); break;
    case OXP_DTYPE_INT64: printf(" %" PRId64, value.i64); break;
    case OXP_DTYPE_UINT64: printf(" %" PRIu64, value.u64); break;
    default: printf(" 0x%" PRIx64, value.u64); break; /* 16 and 8 bit floats, as bits */
    }
}

/* Name, dtype, shape and the first elements. */
static inline void print_tensor(const char *name, uint32_t dtype, const int64_t *shape, uint32_t rank, const void *data)
{
    uint64_t count = 1, i;
    printf("%s: %s [", name, oxp_dtype_name(dtype));
    for (i = 0; i < rank; i++) {
        printf("%s%" PRId64, i > 0 ? ", " : "", shape[i]);
        count *= (uint64_t)shape[i];
    }
    printf("]");
    for (i = 0; i < count && i < 16; i++)
        print_element(dtype, (const char *)data + i * oxp_dtype_size(dtype));
    printf("%s\n", count > 16 ? " ..." : "");
}

#endif
