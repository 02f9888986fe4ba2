/* Models that are none: each is an error that names the file. Arguments: the folder of
 * models, the backend. */
#include "check.h"

static void refused(const char *folder, const char *backend, const char *name, oxp_status code,
                    const char *fragment)
{
    char path[4096];
    oxp_session *session = NULL;
    oxp_options *options = session_options(backend);
    join(path, sizeof path, folder, name);
    EXPECT(code, name, oxp_session_open(NULL, path, NT, options, &session, NULL, ERR));
    EXPECT(code, fragment, oxp_session_open(NULL, path, NT, options, &session, NULL, ERR));
    CHECK(session == NULL);
    /* The file is told on its own, too. */
    CHECK(oxp_session_open(NULL, path, NT, options, &session, NULL, ERR) == code);
    CHECK_TEXT(oxp_error_get_file(check_error, NULL), path);
    oxp_error_free(check_error);
    check_error = NULL;
    oxp_options_free(options);
}

int main(int argc, char **argv)
{
    oxp_session *session = NULL;
    oxp_options *options;
    const char *folder;
    const char *backend;
    if (argc != 3)
        return 2;
    folder = argv[1];
    backend = argv[2];

    refused(folder, backend, "missing.onnx", OXP_ERR_IO, "");
    refused(folder, backend, "a_directory.onnx", OXP_ERR_IO, "");
    refused(folder, backend, "empty.onnx", OXP_ERR_INVALID_MODEL, "");
    refused(folder, backend, "truncated.onnx", OXP_ERR_INVALID_MODEL, "");
    refused(folder, backend, "random.onnx", OXP_ERR_INVALID_MODEL, "");

    options = session_options(backend);
    EXPECT(OXP_ERR_INVALID_UTF8, "path", oxp_session_open(NULL, "\xff.onnx", NT, options, &session, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "path", oxp_session_open(NULL, "x", UINT64_MAX - 1, options, &session, NULL, ERR));
    CHECK(oxp_session_open(NULL, "", NT, options, &session, NULL, NULL) == OXP_ERR_IO);
    CHECK(session == NULL);

    /* A name given by option is in the message and beside it. */
    OK(oxp_options_set(options, "name", NT, "decoder", NT, ERR));
    CHECK(oxp_session_open(NULL, "/no/such/model.onnx", NT, options, &session, NULL, ERR) == OXP_ERR_IO);
    CHECK_TEXT(oxp_error_get_component(check_error, NULL), "decoder");
    CHECK(strstr(oxp_error_get_message(check_error, NULL), "component \"decoder\"") != NULL);
    oxp_error_free(check_error);
    check_error = NULL;
    oxp_options_free(options);

    session = open_session(folder, "affine.onnx", backend);
    oxp_session_free(session);
    return check_result();
}
