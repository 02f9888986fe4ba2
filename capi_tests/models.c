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

/* A port whose type does not cross the interface is listed as such; a graph that needs one
 * cannot be run, and the error says which. */
static void string_ports(const char *folder, const char *backend)
{
    static const unsigned char mask[3] = {1, 0, 1};
    static const char *const copy_only[1] = {"copy"};
    int64_t dims[1] = {3};
    oxp_session *session = open_session(folder, "string.onnx", backend);
    oxp_port_info port = OXP_PORT_INFO_INIT;
    oxp_named_in in[2];
    oxp_outputs *outputs = NULL;

    OK(oxp_session_get_input(session, 0, &port, ERR));
    CHECK_TEXT(port.name, "text");
    CHECK(port.dtype == 0);
    CHECK_TEXT(port.type_name, "tensor(string)");
    OK(oxp_session_get_input(session, 1, &port, ERR));
    CHECK(port.dtype == OXP_DTYPE_BOOL);

    in[0] = named_in("mask", tensor_in(OXP_DTYPE_BOOL, mask, 3, dims, 1));
    in[1] = named_in("text", tensor_in(OXP_DTYPE_UINT8, mask, 3, dims, 1));
    EXPECT(OXP_ERR_UNSUPPORTED_DTYPE, "\"text\"",
           oxp_session_run_alloc(session, in, 2, NULL, NULL, 0, &outputs, NULL, ERR));
    EXPECT(OXP_ERR_MISSING_INPUT, "input \"text\" is missing; it expects tensor(string) [n]",
           oxp_session_run_alloc(session, in, 1, copy_only, NULL, 1, &outputs, NULL, ERR));
    in[1].tensor.dtype = 8;
    EXPECT(OXP_ERR_UNSUPPORTED_DTYPE, "dtype 8",
           oxp_session_run_alloc(session, in, 2, copy_only, NULL, 1, &outputs, NULL, ERR));
    CHECK(outputs == NULL);
    oxp_session_free(session);
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

    refused(folder, backend, "wrong_attribute.onnx", OXP_ERR_INVALID_MODEL, "to_nothing");
    string_ports(folder, backend);

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
