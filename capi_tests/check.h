/* What the programs in capi_tests/ share: checks that report and count. Valid C11 and
 * C++17. A program ends with `return check_result();`. */
#ifndef CHECK_H
#define CHECK_H

#include <oxpipe.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_failures = 0;
static int check_count = 0;

/* Where EXPECT's calls put their errors: pass ERR as the last argument. */
static oxp_error *check_error = NULL;
#define ERR (&check_error)

static inline void check_fail(const char *file, int line, const char *what, const char *detail)
{
    check_failures += 1;
    printf("%s:%d: %s%s%s\n", file, line, what, detail[0] ? ": " : "", detail);
    fflush(stdout);
}

static inline int check_that(int condition, const char *file, int line, const char *what)
{
    check_count += 1;
    if (!condition)
        check_fail(file, line, what, "");
    return condition;
}

/* The call must give `wanted`, and an error object exactly when that is a failure, with the
 * same code and a message that begins with the function's name and holds `fragment`. */
static inline int check_status(oxp_status found, oxp_status wanted, const char *fragment, const char *file,
                               int line, const char *what)
{
    char detail[2048] = "";
    int good = found == wanted;
    const char *message = check_error ? oxp_error_get_message(check_error, NULL) : "no error object";
    check_count += 1;
    if (wanted == OXP_OK)
        good = good && check_error == NULL;
    else
        good = good && check_error != NULL && oxp_error_get_code(check_error) == wanted &&
               strlen(message) > 10 && strstr(message, fragment) != NULL;
    /* `what` is the call, or one of a program's own functions that makes it. */
    if (wanted != OXP_OK && strncmp(what, "oxp_", 4) == 0) {
        size_t name = strcspn(what, "(");
        good = good && strncmp(message, what, name) == 0 && strncmp(message + name, ": ", 2) == 0;
    }
    if (!good) {
        snprintf(detail, sizeof detail, "gave %s (%s), expected %s with \"%s\"", oxp_status_name(found), message,
                 oxp_status_name(wanted), fragment);
        check_fail(file, line, what, detail);
    }
    oxp_error_free(check_error);
    check_error = NULL;
    return good;
}

#define CHECK(condition) check_that((condition) ? 1 : 0, __FILE__, __LINE__, #condition)
#define EXPECT(wanted, fragment, call) check_status((call), (wanted), (fragment), __FILE__, __LINE__, #call)
#define OK(call) EXPECT(OXP_OK, "", call)
/* For what a program cannot go on without. */
#define MUST(call)                    \
    do {                              \
        if (!OK(call))                \
            exit(check_result());     \
    } while (0)

static inline int check_text(const char *found, const char *wanted, const char *file, int line)
{
    check_count += 1;
    if (found != NULL && strcmp(found, wanted) == 0)
        return 1;
    check_fail(file, line, "text is not as expected", found ? found : "(NULL)");
    return 0;
}
#define CHECK_TEXT(found, wanted) check_text((found), (wanted), __FILE__, __LINE__)

static inline int check_result(void)
{
    if (check_count == 0)
        check_fail(__FILE__, __LINE__, "nothing was checked", "");
    printf("%d checks, %d failures\n", check_count, check_failures);
    return check_failures == 0 ? 0 : 1;
}

/* Strings. */
#define NT OXP_NUL_TERMINATED

static inline const char *join(char *buffer, size_t size, const char *folder, const char *name)
{
    snprintf(buffer, size, "%s/%s", folder, name);
    return buffer;
}

/* Tensors. */
static inline oxp_tensor_in tensor_in(uint32_t dtype, const void *data, uint64_t byte_len, const int64_t *shape,
                                      uint32_t rank)
{
    oxp_tensor_in tensor = OXP_TENSOR_IN_INIT;
    tensor.dtype = dtype;
    tensor.data = data;
    tensor.byte_len = byte_len;
    tensor.shape = shape;
    tensor.rank = rank;
    return tensor;
}

static inline oxp_named_in named_in(const char *name, oxp_tensor_in tensor)
{
    oxp_named_in named = OXP_NAMED_IN_INIT;
    named.name = name;
    named.name_len = NT;
    named.tensor = tensor;
    return named;
}

static inline oxp_named_out named_out(const char *name, void *data, uint64_t capacity, int64_t *shape,
                                      uint32_t shape_capacity)
{
    oxp_named_out named = OXP_NAMED_OUT_INIT;
    named.name = name;
    named.name_len = NT;
    named.tensor.data = data;
    named.tensor.capacity = capacity;
    named.tensor.shape = shape;
    named.tensor.shape_capacity = shape_capacity;
    return named;
}

/* Session options with a backend: "native", "ort" or "auto". */
static inline oxp_options *session_options(const char *backend)
{
    oxp_options *options = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_SESSION, &options, ERR));
    MUST(oxp_options_set(options, "backend", NT, backend, NT, ERR));
    return options;
}

static inline oxp_session *open_session(const char *folder, const char *file, const char *backend)
{
    char path[4096];
    oxp_session *session = NULL;
    oxp_options *options = session_options(backend);
    MUST(oxp_session_open(NULL, join(path, sizeof path, folder, file), NT, options, &session, NULL, ERR));
    oxp_options_free(options);
    return session;
}

/* A pipeline with one backend for every component. */
static inline oxp_pipeline *open_pipeline(const char *folder, const char *backend)
{
    oxp_pipeline *pipeline = NULL;
    oxp_options *options = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_PIPELINE, &options, ERR));
    MUST(oxp_options_set(options, "backend", NT, backend, NT, ERR));
    MUST(oxp_pipeline_open(NULL, folder, NT, options, &pipeline, NULL, NULL, NULL, ERR));
    oxp_options_free(options);
    return pipeline;
}

static inline oxp_run *create_run(oxp_pipeline *pipeline, const char *max_tokens)
{
    oxp_run *run = NULL;
    oxp_options *options = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    MUST(oxp_options_set(options, "max_tokens", NT, max_tokens, NT, ERR));
    MUST(oxp_run_create(pipeline, options, &run, ERR));
    oxp_options_free(options);
    return run;
}

#endif
