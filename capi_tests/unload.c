/* The library as a plug-in: opened by path with nothing linked, used, and left in every way
 * with handles still open. Arguments:
 *
 *   unload LIBRARY MODELS BACKEND absent|close|exit|_exit
 *
 * `absent`: there is no ONNX Runtime anywhere; asking for it says where it was looked for, and
 * the native runtime works. */
#include "check.h"

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#define FUNCTION(name) static __typeof__(&oxp_##name) p_##name
FUNCTION(abi_version);
FUNCTION(error_get_message);
FUNCTION(error_get_code);
FUNCTION(error_free);
FUNCTION(options_create);
FUNCTION(options_set);
FUNCTION(session_open);
FUNCTION(session_run);
FUNCTION(session_run_alloc);
FUNCTION(runtime_create);
FUNCTION(cancel_create);

static int missing = 0;

static void load(void *library, void *place, const char *name)
{
    void *symbol = dlsym(library, name);
    missing += symbol == NULL;
    /* A function's address, without a conversion that ISO C does not have. */
    memcpy(place, &symbol, sizeof symbol);
}
#define LOAD(name) load(library, &p_##name, "oxp_" #name)

static oxp_session *open_on(const char *folder, const char *backend, oxp_error **err)
{
    char path[4096];
    oxp_options *options = NULL;
    oxp_session *session = NULL;
    if (p_options_create(OXP_OPTIONS_SESSION, &options, NULL) != OXP_OK)
        return NULL;
    if (p_options_set(options, "backend", NT, backend, NT, NULL) != OXP_OK)
        return NULL;
    /* The options stay open, too. */
    p_session_open(NULL, join(path, sizeof path, folder, "affine.onnx"), NT, options, &session, NULL, err);
    return session;
}

static int runs(oxp_session *session)
{
    float x[4] = {1, 2, 3, 4};
    float y[4] = {0, 0, 0, 0};
    int64_t dims[2] = {1, 4};
    int64_t shape[2];
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, dims, 2));
    oxp_named_out out = named_out("y", y, sizeof y, shape, 2);
    oxp_outputs *kept = NULL;
    return p_session_run(session, &in, 1, &out, 1, NULL, NULL) == OXP_OK && y[3] == 9 &&
           p_session_run_alloc(session, &in, 1, NULL, NULL, 0, &kept, NULL, NULL) == OXP_OK;
}

int main(int argc, char **argv)
{
    void *library;
    oxp_session *session;
    oxp_runtime *runtime = NULL;
    oxp_cancel *cancel = NULL;
    oxp_error *error = NULL;
    int result;
    if (argc != 5)
        return 2;
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    LOAD(abi_version);
    LOAD(error_get_message);
    LOAD(error_get_code);
    LOAD(error_free);
    LOAD(options_create);
    LOAD(options_set);
    LOAD(session_open);
    LOAD(session_run);
    LOAD(session_run_alloc);
    LOAD(runtime_create);
    LOAD(cancel_create);
    if (!CHECK(missing == 0))
        return 1;
    CHECK(p_abi_version() == OXP_ABI_VERSION);
    CHECK(p_runtime_create(NULL, &runtime, NULL, NULL, NULL, NULL) == OXP_OK);
    CHECK(p_cancel_create(&cancel, NULL) == OXP_OK);

    if (strcmp(argv[4], "absent") == 0) {
        clock_t began = clock();
        session = open_on(argv[2], "ort", &error);
        CHECK(session == NULL && error != NULL);
        CHECK(p_error_get_code(error) == OXP_ERR_BACKEND_UNAVAILABLE);
        printf("%s\n", p_error_get_message(error, NULL));
        CHECK((double)(clock() - began) / CLOCKS_PER_SEC < 1);
        p_error_free(error);
        error = NULL;
        session = open_on(argv[2], "auto", &error);
        CHECK(session != NULL && error == NULL && runs(session));
    }
    session = open_on(argv[2], argv[3], &error);
    if (error)
        printf("%s\n", p_error_get_message(error, NULL));
    if (CHECK(session != NULL))
        CHECK(runs(session));
    /* An error object stays open, too. */
    CHECK(open_on("/no/such/folder", argv[3], &error) == NULL && error != NULL);

    if (strcmp(argv[4], "close") == 0) {
        CHECK(dlclose(library) == 0);
        /* It stays loaded: what it left on threads still finds its code. */
        CHECK(runs(session));
    }
    result = check_result();
    fflush(stdout);
    if (strcmp(argv[4], "_exit") == 0)
        _exit(result);
    if (strcmp(argv[4], "exit") == 0)
        exit(result);
    return result;
}
