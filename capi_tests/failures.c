/* Runs and models that fail for a reason of their own: an operator that is missing, values that
 * do not fit, more memory than there is. Arguments: the folder of models, the backend. */
#include "check.h"

static const char *folder;
static const char *backend;
static int is_native;

/* All that is missing is listed at once, that in a branch of an If too. */
static void missing_operators(void)
{
    char path[4096];
    oxp_options *options = session_options(backend);
    oxp_session *session = NULL;
    oxp_status status;

    join(path, sizeof path, folder, "missing_operators.onnx");
    status = oxp_session_open(NULL, path, NT, options, &session, NULL, ERR);
    CHECK(session == NULL && check_error != NULL);
    CHECK(status == (is_native ? OXP_ERR_MISSING_OPERATOR : OXP_ERR_INVALID_MODEL));
    if (check_error != NULL && is_native) {
        const char *message = oxp_error_get_message(check_error, NULL);
        CHECK(strstr(message, "com.example.Swirl version 1 (float), node \"first\"") != NULL);
        CHECK(strstr(message, "com.example.Twirl version 1 (float), node \"inside\"") != NULL);
    }
    oxp_error_free(check_error);
    check_error = NULL;
    oxp_options_free(options);
}

static oxp_status expand(oxp_session *session, const int64_t *shape, oxp_outputs **outputs)
{
    static const int64_t dims[1] = {2};
    static const char *const names[1] = {"y"};
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_INT64, shape, 16, dims, 1));
    return oxp_session_run_alloc(session, &in, 1, names, NULL, 1, outputs, NULL, ERR);
}

/* Shapes that only the run knows: one that cannot be, one that nothing can hold. The session
 * goes on. */
static void failing_runs(void)
{
    static const int64_t negative[2] = {2, -3};
    static const int64_t huge[2] = {(int64_t)1 << 25, (int64_t)1 << 25};
    static const int64_t good[2] = {2, 3};
    oxp_session *session = open_session(folder, "dynamic.onnx", backend);
    oxp_outputs *outputs = NULL;
    oxp_tensor_in y;

    CHECK(expand(session, negative, &outputs) == OXP_ERR_RUN_FAILED);
    CHECK(outputs == NULL && check_error != NULL);
    if (check_error != NULL) {
        CHECK_TEXT(oxp_error_get_node(check_error, NULL), "expand");
        CHECK(strstr(oxp_error_get_message(check_error, NULL), "Expand") != NULL);
    }
    oxp_error_free(check_error);
    check_error = NULL;
    if (is_native) {
        /* 2^52 bytes are more than an address has bits for. */
        EXPECT(OXP_ERR_OUT_OF_MEMORY, "4503599627370496 bytes", expand(session, huge, &outputs));
        CHECK(outputs == NULL);
    }
    OK(expand(session, good, &outputs));
    OK(oxp_outputs_get(outputs, "y", NT, &y, ERR));
    CHECK(y.byte_len == 24 && ((const float *)y.data)[5] == 1);
    oxp_outputs_free(outputs);
    oxp_session_free(session);
}

/* What a session may take, by "memory_bytes": its file, and what runs make. */
static void limited(const char *bytes, const int64_t *shape, oxp_status status)
{
    oxp_options *options = NULL;
    oxp_session *session = NULL;
    oxp_outputs *outputs = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s/dynamic.onnx", folder);
    MUST(oxp_options_create(OXP_OPTIONS_SESSION, &options, ERR));
    MUST(oxp_options_set(options, "backend", NT, backend, NT, ERR));
    MUST(oxp_options_set(options, "memory_bytes", NT, bytes, NT, ERR));
    if (shape == NULL) {
        EXPECT(status, "the session", oxp_session_open(NULL, path, NT, options, &session, NULL, ERR));
        CHECK(session == NULL);
    } else {
        MUST(oxp_session_open(NULL, path, NT, options, &session, NULL, ERR));
        if (status == OXP_OK)
            OK(expand(session, shape, &outputs));
        else
            EXPECT(status, "memory_bytes", expand(session, shape, &outputs));
        CHECK((outputs != NULL) == (status == OXP_OK));
    }
    oxp_outputs_free(outputs);
    oxp_session_free(session);
    oxp_options_free(options);
}

static void limits(void)
{
    static const int64_t small[2] = {2, 3};
    static const int64_t large[2] = {1000, 1000};
    limited("10", NULL, OXP_ERR_OUT_OF_MEMORY);
    limited("100000", small, OXP_OK);
    if (is_native)
        limited("100000", large, OXP_ERR_OUT_OF_MEMORY);
    limited("100000000", large, OXP_OK);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    folder = argv[1];
    backend = argv[2];
    is_native = strcmp(backend, "native") == 0;
    missing_operators();
    failing_runs();
    limits();
    return check_result();
}
