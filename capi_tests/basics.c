/* Versions, status names, dtypes, struct sizes, error objects, cancel objects, and the rule
 * of strings out. */
#include "check.h"

static void versions(void)
{
    char text[64];
    uint64_t needed = 99;
    CHECK(oxp_abi_version() == OXP_ABI_VERSION);

    OK(oxp_version_copy(NULL, 0, &needed, ERR));
    CHECK(needed == strlen("0.1.0"));

    /* Too small: untouched, and the length is told. */
    memset(text, 'x', sizeof text);
    needed = 0;
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "holds 4", oxp_version_copy(text, 4, &needed, ERR));
    CHECK(needed == 5 && text[0] == 'x');
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "holds 0", oxp_version_copy(text, 0, &needed, ERR));

    /* Exactly: no room for the NUL, so there is none. */
    OK(oxp_version_copy(text, 5, &needed, ERR));
    CHECK(memcmp(text, "0.1.0xx", 7) == 0);
    OK(oxp_version_copy(text, 6, &needed, ERR));
    CHECK_TEXT(text, "0.1.0");
    CHECK(text[6] == 'x');

    EXPECT(OXP_ERR_NULL_POINTER, "buffer", oxp_version_copy(NULL, 8, &needed, ERR));
    EXPECT(OXP_ERR_NULL_POINTER, "needed", oxp_version_copy(text, sizeof text, NULL, ERR));
    CHECK(oxp_version_copy(text, 1, &needed, NULL) == OXP_ERR_BUFFER_TOO_SMALL);
}

static void statuses(void)
{
    static const oxp_status codes[] = {
        OXP_OK, OXP_ERR_INTERNAL, OXP_ERR_OUT_OF_MEMORY, OXP_ERR_CANCELLED, OXP_ERR_DEADLINE_EXCEEDED,
        OXP_ERR_UNSUPPORTED, OXP_ERR_INVALID_ARGUMENT, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8,
        OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_UNKNOWN_OPTION, OXP_ERR_INVALID_OPTION, OXP_ERR_STRUCT_SIZE,
        OXP_ERR_OUT_OF_RANGE, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY, OXP_ERR_INVALID_STATE,
        OXP_ERR_INVALID_TENSOR, OXP_ERR_UNSUPPORTED_DTYPE, OXP_ERR_DTYPE_MISMATCH, OXP_ERR_SHAPE_MISMATCH,
        OXP_ERR_OVERLAP, OXP_ERR_UNKNOWN_COMPONENT, OXP_ERR_UNKNOWN_PORT, OXP_ERR_MISSING_INPUT, OXP_ERR_IO,
        OXP_ERR_INVALID_MODEL, OXP_ERR_INVALID_PACKAGE, OXP_ERR_MISSING_OPERATOR,
        OXP_ERR_BACKEND_UNAVAILABLE, OXP_ERR_RUN_FAILED, OXP_ERR_TOKENIZER, OXP_ERR_CHAT_TEMPLATE,
        OXP_ERR_INVALID_MEDIA};
    size_t at;
    for (at = 0; at < sizeof codes / sizeof codes[0]; at++) {
        const char *name = oxp_status_name(codes[at]);
        CHECK(strncmp(name, at == 0 ? "OXP_OK" : "OXP_ERR_", at == 0 ? 7 : 8) == 0);
        CHECK(at == 0 || codes[at] < codes[at - 1]);
    }
    CHECK_TEXT(oxp_status_name(OXP_ERR_BUSY), "OXP_ERR_BUSY");
    CHECK_TEXT(oxp_status_name(-6), "unknown status");
    CHECK_TEXT(oxp_status_name(1), "unknown status");
}

static void dtypes(void)
{
    /* Code, size and name of each; every other number is none. */
    static const struct {
        uint32_t code;
        uint64_t size;
        const char *name;
    } known[] = {{OXP_DTYPE_FLOAT32, 4, "float32"},
                 {OXP_DTYPE_UINT8, 1, "uint8"},
                 {OXP_DTYPE_INT8, 1, "int8"},
                 {OXP_DTYPE_UINT16, 2, "uint16"},
                 {OXP_DTYPE_INT16, 2, "int16"},
                 {OXP_DTYPE_INT32, 4, "int32"},
                 {OXP_DTYPE_INT64, 8, "int64"},
                 {OXP_DTYPE_BOOL, 1, "bool"},
                 {OXP_DTYPE_FLOAT16, 2, "float16"},
                 {OXP_DTYPE_UINT32, 4, "uint32"},
                 {OXP_DTYPE_UINT64, 8, "uint64"},
                 {OXP_DTYPE_BFLOAT16, 2, "bfloat16"},
                 {OXP_DTYPE_FLOAT8E4M3FN, 1, "float8e4m3fn"},
                 {OXP_DTYPE_FLOAT8E5M2, 1, "float8e5m2"}};
    size_t count = sizeof known / sizeof known[0];
    size_t at;
    uint32_t code;
    size_t found = 0;
    for (at = 0; at < count; at++) {
        CHECK(oxp_dtype_size(known[at].code) == known[at].size);
        CHECK_TEXT(oxp_dtype_name(known[at].code), known[at].name);
    }
    for (code = 0; code < 1000; code++)
        found += oxp_dtype_size(code) != 0;
    CHECK(found == count && count == 14);
    CHECK_TEXT(oxp_dtype_name(8), "");
    CHECK(oxp_dtype_size(11) == 0);
}

static void structs(void)
{
    CHECK(oxp_struct_size(OXP_STRUCT_TENSOR_IN) == sizeof(oxp_tensor_in));
    CHECK(oxp_struct_size(OXP_STRUCT_TENSOR_OUT) == sizeof(oxp_tensor_out));
    CHECK(oxp_struct_size(OXP_STRUCT_NAMED_IN) == sizeof(oxp_named_in));
    CHECK(oxp_struct_size(OXP_STRUCT_NAMED_OUT) == sizeof(oxp_named_out));
    CHECK(oxp_struct_size(OXP_STRUCT_FILE) == sizeof(oxp_file));
    CHECK(oxp_struct_size(OXP_STRUCT_PORT_INFO) == sizeof(oxp_port_info));
    CHECK(oxp_struct_size(OXP_STRUCT_SESSION_STATS) == sizeof(oxp_session_stats));
    CHECK(oxp_struct_size(OXP_STRUCT_COMPONENT_INFO) == sizeof(oxp_component_info));
    CHECK(oxp_struct_size(OXP_STRUCT_PIPELINE_INFO) == sizeof(oxp_pipeline_info));
    CHECK(oxp_struct_size(OXP_STRUCT_LOAD_PROGRESS) == sizeof(oxp_load_progress));
    CHECK(oxp_struct_size(OXP_STRUCT_EVENT) == sizeof(oxp_event));
    CHECK(oxp_struct_size(OXP_STRUCT_RUN_STATS) == sizeof(oxp_run_stats));
    CHECK(oxp_struct_size(0) == 0 && oxp_struct_size(13) == 0);
    CHECK(offsetof(oxp_tensor_in, byte_len) == 16 && offsetof(oxp_tensor_in, shape) == 24);
    CHECK(offsetof(oxp_tensor_out, byte_len) == 24 && offsetof(oxp_tensor_out, rank) == 44);
}

static void errors(void)
{
    oxp_error *error = NULL;
    oxp_options *options = NULL;
    uint64_t len = 0;

    CHECK(oxp_session_open(NULL, "/no/such/model.onnx", NT, NULL, NULL, NULL, &error) == OXP_ERR_NULL_POINTER);
    CHECK(error != NULL && oxp_error_get_code(error) == OXP_ERR_NULL_POINTER);
    CHECK(strstr(oxp_error_get_message(error, &len), "session is NULL") != NULL);
    CHECK(len == strlen(oxp_error_get_message(error, NULL)));
    CHECK_TEXT(oxp_error_get_component(error, &len), "");
    CHECK(len == 0);
    CHECK_TEXT(oxp_error_get_port(error, NULL), "");
    CHECK_TEXT(oxp_error_get_node(error, NULL), "");
    CHECK_TEXT(oxp_error_get_file(error, NULL), "");
    oxp_error_free(error);

    /* A freed error, NULL and a handle of another type are no errors, and never crash. */
    CHECK(oxp_error_get_code(error) == OXP_ERR_INVALID_HANDLE);
    CHECK_TEXT(oxp_error_get_message(error, &len), "");
    CHECK(len == 0);
    CHECK_TEXT(oxp_error_get_message(NULL, NULL), "");
    CHECK_TEXT(oxp_error_get_component(error, NULL), "");
    CHECK_TEXT(oxp_error_get_port(error, NULL), "");
    CHECK_TEXT(oxp_error_get_node(error, NULL), "");
    CHECK_TEXT(oxp_error_get_file(error, NULL), "");
    MUST(oxp_options_create(OXP_OPTIONS_RUN, &options, ERR));
    CHECK(oxp_error_get_code((oxp_error *)(void *)options) == OXP_ERR_INVALID_HANDLE);
    oxp_error_free((oxp_error *)(void *)options);
    OK(oxp_options_set(options, "max_tokens", NT, "3", NT, ERR));
    oxp_options_free(options);
    oxp_error_free(error);
    oxp_error_free(NULL);

    /* The file is told apart from the message. */
    CHECK(oxp_tokenizer_open("/no/such/tokenizer.json", NT, (oxp_tokenizer **)&options, &error) == OXP_ERR_IO);
    CHECK(options == NULL);
    CHECK_TEXT(oxp_error_get_file(error, NULL), "/no/such/tokenizer.json");
    CHECK(strstr(oxp_error_get_message(error, NULL), "/no/such/tokenizer.json") != NULL);
    oxp_error_free(error);
}

static void cancels(void)
{
    oxp_cancel *cancel = NULL;
    int32_t requested = 7;
    MUST(oxp_cancel_create(&cancel, ERR));
    OK(oxp_cancel_is_requested(cancel, &requested, ERR));
    CHECK(requested == 0);
    OK(oxp_cancel_request(cancel, ERR));
    OK(oxp_cancel_request(cancel, ERR));
    OK(oxp_cancel_is_requested(cancel, &requested, ERR));
    CHECK(requested == 1);
    OK(oxp_cancel_reset(cancel, ERR));
    OK(oxp_cancel_is_requested(cancel, &requested, ERR));
    CHECK(requested == 0);
    oxp_cancel_free(cancel);
    EXPECT(OXP_ERR_INVALID_HANDLE, "has been freed", oxp_cancel_request(cancel, ERR));
    oxp_cancel_free(cancel);
}

static void built_in(int native, int ort)
{
    int32_t answer = 7;
    OK(oxp_backend_is_built_in(OXP_BACKEND_NATIVE, &answer, ERR));
    CHECK(answer == native);
    OK(oxp_backend_is_built_in(OXP_BACKEND_ORT, &answer, ERR));
    CHECK(answer == ort);
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "no backend 3", oxp_backend_is_built_in(3, &answer, ERR));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    versions();
    statuses();
    dtypes();
    structs();
    errors();
    cancels();
    built_in(atoi(argv[1]), atoi(argv[2]));
    return check_result();
}
