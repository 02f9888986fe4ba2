/* One graph: what is known about it, the three forms of running it, short buffers, and that
 * no run happens twice. Arguments: the folder of models, the backend.
 *
 * affine.onnx: y = x * 2 + 1 (float32 [n, 4]), total = the sum of x over its last axis
 * ([n]), both of x alone. dynamic.onnx: y = ones in the shape that x (int64 [k]) holds, which
 * only a run can tell, and copy = x. */
#include "check.h"

static char path[4096];
static const char *folder;
static const char *backend;

static uint64_t runs_of(oxp_session *session)
{
    oxp_session_stats stats = OXP_SESSION_STATS_INIT;
    OK(oxp_session_get_stats(session, &stats, ERR));
    return stats.runs;
}

static void ports(oxp_session *session)
{
    oxp_port_info info = OXP_PORT_INFO_INIT;
    uint64_t count = 0;
    uint32_t who = 0;
    const char *key = NULL;
    const char *value = NULL;
    const char *reason = NULL;
    uint64_t key_len = 0;
    uint64_t value_len = 0;
    uint64_t reason_len = 0;
    uint64_t at;
    int seen = 0;

    OK(oxp_session_get_input_count(session, &count, ERR));
    CHECK(count == 1);
    OK(oxp_session_get_input(session, 0, &info, ERR));
    CHECK_TEXT(info.name, "x");
    CHECK(info.name_len == 1 && info.dtype == OXP_DTYPE_FLOAT32 && info.rank == 2 && info.flags == 0);
    CHECK_TEXT(info.type_name, "float32");
    CHECK(info.type_name_len == 7);
    CHECK(info.dims[0] == -1 && info.dims[1] == 4);
    CHECK_TEXT(info.dim_names[0], "n");
    CHECK_TEXT(info.dim_names[1], "");
    EXPECT(OXP_ERR_OUT_OF_RANGE, "index 1", oxp_session_get_input(session, 1, &info, ERR));

    OK(oxp_session_get_output_count(session, &count, ERR));
    CHECK(count == 2);
    OK(oxp_session_get_output(session, 1, &info, ERR));
    CHECK_TEXT(info.name, "total");
    CHECK(info.rank == 1 && info.dims[0] == -1);
    EXPECT(OXP_ERR_OUT_OF_RANGE, "outputs", oxp_session_get_output(session, UINT64_MAX, &info, ERR));

    OK(oxp_session_get_metadata_count(session, &count, ERR));
    CHECK(count >= 1);
    for (at = 0; at < count; at++) {
        OK(oxp_session_get_metadata(session, at, &key, &key_len, &value, &value_len, ERR));
        if (strcmp(key, "made_for") == 0) {
            seen += 1;
            CHECK_TEXT(value, "capi tests");
            CHECK(key_len == 8 && value_len == 10);
        }
    }
    CHECK(seen == 1);
    OK(oxp_session_get_metadata(session, 0, &key, NULL, &value, NULL, ERR));
    EXPECT(OXP_ERR_OUT_OF_RANGE, "metadata",
           oxp_session_get_metadata(session, count, &key, &key_len, &value, &value_len, ERR));

    OK(oxp_session_get_backend(session, &who, &reason, &reason_len, ERR));
    CHECK(who == (strcmp(backend, "native") == 0 ? OXP_BACKEND_NATIVE : OXP_BACKEND_ORT));
    CHECK(reason_len == strlen(reason) && reason_len > 0);
    OK(oxp_session_get_backend(session, &who, &reason, NULL, ERR));
}

/* Structs that are shorter or longer than the library's. */
static void growth(oxp_session *session)
{
    struct {
        oxp_port_info known;
        uint32_t later[2];
    } longer;
    oxp_port_info info = OXP_PORT_INFO_INIT;
    uint64_t bytes[8];

    memset(bytes, 0xAA, sizeof bytes);
    memcpy(bytes, &info, sizeof info.struct_size);
    ((uint32_t *)(void *)bytes)[0] = 16;
    OK(oxp_session_get_input(session, 0, (oxp_port_info *)(void *)bytes, ERR));
    CHECK(((uint32_t *)(void *)bytes)[0] == 16 && ((uint32_t *)(void *)bytes)[1] == OXP_DTYPE_FLOAT32);
    CHECK(bytes[1] != 0xAAAAAAAAAAAAAAAAu && bytes[2] == 0xAAAAAAAAAAAAAAAAu);

    memset(&longer, 0, sizeof longer);
    longer.known.struct_size = (uint32_t)sizeof longer;
    OK(oxp_session_get_input(session, 0, &longer.known, ERR));
    CHECK_TEXT(longer.known.name, "x");
    longer.later[1] = 1;
    EXPECT(OXP_ERR_STRUCT_SIZE, "is not 0", oxp_session_get_input(session, 0, &longer.known, ERR));
    info.struct_size = 0;
    EXPECT(OXP_ERR_STRUCT_SIZE, "sizeof(oxp_port_info)", oxp_session_get_input(session, 0, &info, ERR));
    info.struct_size = 1 << 30;
    EXPECT(OXP_ERR_STRUCT_SIZE, "struct_size", oxp_session_get_output(session, 0, &info, ERR));
}

static void bound(oxp_session *session)
{
    int64_t dims[2] = {3, 4};
    int64_t shape[2] = {-7, -7};
    int64_t none[1] = {-7};
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, NULL, 0, dims, 2));
    oxp_named_out outs[2];
    uint64_t before = runs_of(session);

    /* Sizes without data, and without a run. */
    outs[0] = named_out("y", NULL, 0, shape, 2);
    outs[1] = named_out("total", NULL, 0, none, 0);
    outs[1].tensor.shape = NULL;
    OK(oxp_session_output_bound(session, &in, 1, outs, 2, ERR));
    CHECK(outs[0].tensor.byte_len == 48 && outs[0].tensor.rank == 2 && outs[0].tensor.dtype == OXP_DTYPE_FLOAT32);
    CHECK(shape[0] == 3 && shape[1] == 4);
    CHECK(outs[1].tensor.byte_len == 12 && outs[1].tensor.rank == 1);
    CHECK(runs_of(session) == before);

    EXPECT(OXP_ERR_UNKNOWN_PORT, "\"z\"",
           (in.name = "z", oxp_session_output_bound(session, &in, 1, outs, 2, ERR)));
    in.name = "x";
    EXPECT(OXP_ERR_MISSING_INPUT, "\"x\"", oxp_session_output_bound(session, NULL, 0, outs, 2, ERR));
    EXPECT(OXP_ERR_UNKNOWN_PORT, "\"z\"",
           (outs[1].name = "z", oxp_session_output_bound(session, &in, 1, outs, 2, ERR)));
    dims[1] = 5;
    outs[1].name = "total";
    EXPECT(OXP_ERR_SHAPE_MISMATCH, "[3, 5]", oxp_session_output_bound(session, &in, 1, outs, 2, ERR));
    dims[1] = 4;
    OK(oxp_session_output_bound(session, &in, 1, outs, 2, ERR));
}

static void run_into(oxp_session *session)
{
    float x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    float y[8];
    float total[2];
    int64_t dims[2] = {2, 4};
    int64_t y_shape[2];
    int64_t total_shape[1];
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, dims, 2));
    oxp_named_out outs[2];
    uint64_t before = runs_of(session);
    int at;

    /* In another order than the graph's, into uninitialised memory. */
    outs[0] = named_out("total", total, sizeof total, total_shape, 1);
    outs[1] = named_out("y", y, sizeof y, y_shape, 2);
    OK(oxp_session_run(session, &in, 1, outs, 2, NULL, ERR));
    for (at = 0; at < 8; at++)
        CHECK(y[at] == (float)at * 2 + 1);
    CHECK(total[0] == 6 && total[1] == 22 && total_shape[0] == 2);
    CHECK(y_shape[0] == 2 && y_shape[1] == 4);
    CHECK(outs[1].tensor.byte_len == 32 && outs[1].tensor.rank == 2 && outs[1].tensor.dtype == OXP_DTYPE_FLOAT32);
    CHECK(runs_of(session) == before + 1);

    /* One of them, and none. */
    y[7] = 0;
    OK(oxp_session_run(session, &in, 1, outs + 1, 1, NULL, ERR));
    CHECK(y[7] == 15);
    OK(oxp_session_run(session, &in, 1, NULL, 0, NULL, ERR));
}

static void short_buffers(oxp_session *session)
{
    float x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    float y[8];
    float total[2];
    int64_t dims[2] = {2, 4};
    int64_t y_shape[2];
    int64_t total_shape[1];
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, dims, 2));
    oxp_named_out outs[2];
    uint64_t before = runs_of(session);

    /* One byte short: every size is told, and nothing ran. */
    outs[0] = named_out("y", y, sizeof y - 1, y_shape, 2);
    outs[1] = named_out("total", total, sizeof total, total_shape, 1);
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "output \"y\" has 32 bytes, capacity is 31",
           oxp_session_run(session, &in, 1, outs, 2, NULL, ERR));
    CHECK(outs[0].tensor.byte_len == 32 && outs[0].tensor.rank == 2);
    CHECK(outs[1].tensor.byte_len == 8 && outs[1].tensor.rank == 1);
    CHECK(outs[0].tensor.dtype == OXP_DTYPE_FLOAT32 && outs[1].tensor.dtype == OXP_DTYPE_FLOAT32);

    /* No room at all, and too few dims. */
    outs[0] = named_out("y", NULL, 0, NULL, 0);
    outs[1] = named_out("total", total, sizeof total, NULL, 0);
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "rank 1, shape_capacity is 0",
           oxp_session_run(session, &in, 1, outs, 2, NULL, ERR));
    CHECK(outs[0].tensor.byte_len == 32 && outs[0].tensor.rank == 2 && outs[1].tensor.byte_len == 8);
    CHECK(runs_of(session) == before);

    outs[0] = named_out("y", y, sizeof y, y_shape, 2);
    outs[1] = named_out("total", total, sizeof total, total_shape, 1);
    OK(oxp_session_run(session, &in, 1, outs, 2, NULL, ERR));
    CHECK(runs_of(session) == before + 1);
}

/* An output whose size only a run can tell: one run finds out, the next one fits. */
static void unknown_sizes(void)
{
    oxp_session *session = open_session(folder, "dynamic.onnx", backend);
    int64_t x[2] = {2, 3};
    int64_t copy[2];
    float y[6] = {-1, -1, -1, -1, -1, -1};
    int64_t dims[1] = {2};
    int64_t shape[2];
    int64_t copy_shape[1];
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_INT64, x, sizeof x, dims, 1));
    oxp_named_out outs[2];

    outs[0] = named_out("y", y, 8, shape, 2);
    outs[1] = named_out("copy", copy, sizeof copy, copy_shape, 1);
    OK(oxp_session_output_bound(session, &in, 1, outs, 2, ERR));
    CHECK(outs[0].tensor.byte_len == OXP_UNKNOWN_SIZE && outs[0].tensor.rank == 0);
    CHECK(outs[1].tensor.byte_len == OXP_UNKNOWN_SIZE || outs[1].tensor.byte_len == 16);
    CHECK(runs_of(session) == 0);

    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "24 bytes, capacity is 8",
           oxp_session_run(session, &in, 1, outs, 2, NULL, ERR));
    CHECK(outs[0].tensor.byte_len == 24 && outs[0].tensor.rank == 2 && outs[1].tensor.byte_len == 16);
    CHECK(runs_of(session) == 1);
    CHECK(y[2] == -1 && y[5] == -1);

    outs[0].tensor.capacity = sizeof y;
    OK(oxp_session_run(session, &in, 1, outs, 2, NULL, ERR));
    CHECK(y[0] == 1 && y[5] == 1 && shape[0] == 2 && shape[1] == 3);
    CHECK(memcmp(copy, x, sizeof x) == 0 && copy_shape[0] == 2);
    CHECK(runs_of(session) == 2);
    oxp_session_free(session);
}

static void run_alloc(oxp_session *session)
{
    float x[4] = {1, 2, 3, 4};
    int64_t dims[2] = {1, 4};
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, dims, 2));
    const char *names[2] = {"totally", "y"};
    uint64_t lens[2] = {5, NT};
    const char *bad_names[1] = {"no such output"};
    const char *name = NULL;
    uint64_t name_len = 0;
    uint64_t count = 0;
    oxp_outputs *outputs = NULL;
    oxp_outputs *again = NULL;
    oxp_tensor_in tensor = OXP_TENSOR_IN_INIT;
    uint64_t before = runs_of(session);

    /* Every output. */
    OK(oxp_session_run_alloc(session, &in, 1, NULL, NULL, 0, &outputs, NULL, ERR));
    OK(oxp_outputs_get_count(outputs, &count, ERR));
    CHECK(count == 2);
    OK(oxp_outputs_get_at(outputs, 0, &name, &name_len, &tensor, ERR));
    CHECK_TEXT(name, "y");
    CHECK(name_len == 1 && tensor.byte_len == 16 && tensor.rank == 2 && tensor.shape[1] == 4);
    CHECK(((const float *)tensor.data)[3] == 9);
    OK(oxp_outputs_get(outputs, "total", NT, &tensor, ERR));
    CHECK(tensor.struct_size == sizeof tensor && tensor.dtype == OXP_DTYPE_FLOAT32 && tensor.flags == 0);
    CHECK(((const float *)tensor.data)[0] == 10);
    EXPECT(OXP_ERR_UNKNOWN_PORT, "\"y\", \"total\"", oxp_outputs_get(outputs, "z", NT, &tensor, ERR));
    EXPECT(OXP_ERR_OUT_OF_RANGE, "index 2", oxp_outputs_get_at(outputs, 2, &name, NULL, &tensor, ERR));

    /* A view may be handed on as an input. */
    OK(oxp_outputs_get(outputs, "y", NT, &in.tensor, ERR));
    OK(oxp_session_run_alloc(session, &in, 1, names, lens, 2, &again, NULL, ERR));
    OK(oxp_outputs_get_at(again, 0, &name, NULL, &tensor, ERR));
    CHECK_TEXT(name, "total");
    CHECK(((const float *)tensor.data)[0] == 3 + 5 + 7 + 9);
    oxp_outputs_free(again);
    oxp_outputs_free(outputs);
    EXPECT(OXP_ERR_INVALID_HANDLE, "has been freed", oxp_outputs_get_count(outputs, &count, ERR));
    CHECK(runs_of(session) == before + 2);

    in.tensor = tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, dims, 2);
    EXPECT(OXP_ERR_UNKNOWN_PORT, "no such output",
           oxp_session_run_alloc(session, &in, 1, bad_names, NULL, 1, &outputs, NULL, ERR));
    CHECK(outputs == NULL);
    names[0] = "y";
    lens[0] = 1;
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "twice",
           oxp_session_run_alloc(session, &in, 1, names, lens, 2, &outputs, NULL, ERR));
    CHECK(outputs == NULL);
}

static void *read_file(const char *name, uint64_t *len)
{
    FILE *file = fopen(join(path, sizeof path, folder, name), "rb");
    char *bytes = (char *)malloc(1 << 16);
    *len = 0;
    if (CHECK(file != NULL && bytes != NULL)) {
        *len = fread(bytes, 1, 1 << 16, file);
        fclose(file);
    }
    return bytes;
}

/* external.onnx: y = x + bias, the bias in weights.bin. */
static void from_memory(void)
{
    uint64_t model_len = 0;
    uint64_t weights_len = 0;
    void *model = read_file("external.onnx", &model_len);
    void *weights = read_file("weights.bin", &weights_len);
    oxp_options *options = session_options(backend);
    oxp_session *session = NULL;
    oxp_session *from_disk = open_session(folder, "external.onnx", backend);
    oxp_file files[2] = {OXP_FILE_INIT, OXP_FILE_INIT};
    int32_t has_native = 0;
    float x[2] = {1, 2};
    float y[2] = {0, 0};
    int64_t dims[1] = {2};
    int64_t shape[1];
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, dims, 1));
    oxp_named_out out = named_out("y", y, sizeof y, shape, 1);

    files[0].name = "weights.bin";
    files[0].name_len = NT;
    files[0].data = weights;
    files[0].byte_len = weights_len;
    files[1] = files[0];
    OK(oxp_backend_is_built_in(OXP_BACKEND_NATIVE, &has_native, ERR));
    if (has_native) {
        OK(oxp_options_set(options, "native.packed_cache", NT, "beside", NT, ERR));
        EXPECT(OXP_ERR_INVALID_OPTION, "in memory",
               oxp_session_open_memory(NULL, model, model_len, files, 1, options, &session, NULL, ERR));
        OK(oxp_options_set(options, "native.packed_cache", NT, "off", NT, ERR));
    }
    OK(oxp_session_open_memory(NULL, model, model_len, files, 1, options, &session, NULL, ERR));
    /* The bytes were copied. */
    memset(model, 0, model_len);
    memset(weights, 0, weights_len);
    OK(oxp_session_run(session, &in, 1, &out, 1, NULL, ERR));
    CHECK(y[0] == 11 && y[1] == 22);
    OK(oxp_session_run(from_disk, &in, 1, &out, 1, NULL, ERR));
    CHECK(y[0] == 11 && y[1] == 22);
    oxp_session_free(session);
    oxp_session_free(from_disk);

    model = (free(model), read_file("external.onnx", &model_len));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "given before",
           oxp_session_open_memory(NULL, model, model_len, files, 2, options, &session, NULL, ERR));
    CHECK(oxp_session_open_memory(NULL, model, model_len, NULL, 0, options, &session, NULL, ERR) < 0);
    CHECK(session == NULL && strstr(oxp_error_get_message(check_error, NULL), "weights.bin") != NULL);
    oxp_error_free(check_error);
    check_error = NULL;
    CHECK(oxp_session_open_memory(NULL, "not a model", 11, NULL, 0, options, &session, NULL, ERR) ==
          OXP_ERR_INVALID_MODEL);
    oxp_error_free(check_error);
    check_error = NULL;
    oxp_options_free(options);
    free(model);
    free(weights);
}

/* Ends before it begins: cancelled, and a deadline that has passed. */
static void cancelled(oxp_session *session)
{
    float x[4] = {1, 2, 3, 4};
    int64_t dims[2] = {1, 4};
    oxp_named_in in = named_in("x", tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, dims, 2));
    oxp_outputs *outputs = NULL;
    oxp_session *none = NULL;
    oxp_cancel *cancel = NULL;
    MUST(oxp_cancel_create(&cancel, ERR));
    OK(oxp_cancel_request(cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled",
           oxp_session_run_alloc(session, &in, 1, NULL, NULL, 0, &outputs, cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled", oxp_session_run(session, &in, 1, NULL, 0, cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled",
           oxp_session_open(NULL, join(path, sizeof path, folder, "affine.onnx"), NT, NULL, &none, cancel, ERR));
    CHECK(outputs == NULL && none == NULL);
    OK(oxp_cancel_reset(cancel, ERR));
    OK(oxp_session_run_alloc(session, &in, 1, NULL, NULL, 0, &outputs, cancel, ERR));
    oxp_outputs_free(outputs);
    oxp_cancel_free(cancel);
}

int main(int argc, char **argv)
{
    oxp_session *session;
    if (argc != 3)
        return 2;
    folder = argv[1];
    backend = argv[2];
    session = open_session(folder, "affine.onnx", backend);
    ports(session);
    growth(session);
    bound(session);
    run_into(session);
    short_buffers(session);
    unknown_sizes();
    run_alloc(session);
    from_memory();
    cancelled(session);
    oxp_session_free(session);
    oxp_session_free(session);
    return check_result();
}
