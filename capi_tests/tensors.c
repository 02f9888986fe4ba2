/* Wrong tensors: each is an error that names the tensor and both numbers, and the session is
 * as good as before. Arguments: the folder of models, the backend. */
#include "check.h"

static oxp_session *session;
static float x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static float y[8];
static int64_t dims[2] = {2, 4};
static int64_t shape[2];

static oxp_named_in good_in(void)
{
    return named_in("x", tensor_in(OXP_DTYPE_FLOAT32, x, sizeof x, dims, 2));
}

static oxp_named_out good_out(void)
{
    return named_out("y", y, sizeof y, shape, 2);
}

static void still_usable(void)
{
    oxp_named_in in = good_in();
    oxp_named_out out = good_out();
    y[7] = 0;
    OK(oxp_session_run(session, &in, 1, &out, 1, NULL, ERR));
    CHECK(y[7] == 15);
}

/* The same wrong input through all three forms. */
static void refused(oxp_named_in in, oxp_status code, const char *fragment, int bound_too)
{
    oxp_named_out out = good_out();
    oxp_outputs *outputs = NULL;
    EXPECT(code, fragment, oxp_session_run(session, &in, 1, &out, 1, NULL, ERR));
    CHECK(oxp_session_run(session, &in, 1, &out, 1, NULL, ERR) == code);
    CHECK(check_error != NULL && strstr(oxp_error_get_message(check_error, NULL), "\"x\"") != NULL);
    CHECK_TEXT(oxp_error_get_port(check_error, NULL), "x");
    oxp_error_free(check_error);
    check_error = NULL;
    EXPECT(code, fragment, oxp_session_run_alloc(session, &in, 1, NULL, NULL, 0, &outputs, NULL, ERR));
    CHECK(outputs == NULL);
    if (bound_too)
        EXPECT(code, fragment, oxp_session_output_bound(session, &in, 1, &out, 1, ERR));
    still_usable();
}

static void inputs(void)
{
    static const uint32_t no_dtypes[] = {0, 8, 11, 14, 15, 18, 20, 21, 22, 23, 99, UINT32_MAX};
    int64_t many[65];
    int64_t other[2];
    oxp_named_in in;
    size_t at;

    for (at = 0; at < sizeof no_dtypes / sizeof no_dtypes[0]; at++) {
        char fragment[32];
        snprintf(fragment, sizeof fragment, "dtype %u", no_dtypes[at]);
        in = good_in();
        in.tensor.dtype = no_dtypes[at];
        refused(in, OXP_ERR_UNSUPPORTED_DTYPE, fragment, 1);
    }

    in = good_in();
    in.tensor.struct_size = 0;
    refused(in, OXP_ERR_STRUCT_SIZE, "struct_size is 0", 1);
    in.tensor.struct_size = 48;
    refused(in, OXP_ERR_STRUCT_SIZE, "40", 1);

    in = good_in();
    in.tensor.flags = 1;
    refused(in, OXP_ERR_INVALID_TENSOR, "flags", 1);

    for (at = 0; at < 65; at++)
        many[at] = 1;
    in = good_in();
    in.tensor.shape = many;
    in.tensor.rank = 65;
    refused(in, OXP_ERR_INVALID_TENSOR, "65", 1);
    in.tensor.rank = UINT32_MAX;
    refused(in, OXP_ERR_INVALID_TENSOR, "64", 1);
    in.tensor.rank = 64;
    in.tensor.byte_len = 4;
    refused(in, OXP_ERR_SHAPE_MISMATCH, "rank 64", 1);

    in = good_in();
    in.tensor.shape = NULL;
    refused(in, OXP_ERR_INVALID_TENSOR, "shape is NULL", 1);

    in = good_in();
    in.tensor.shape = other;
    other[0] = -1;
    other[1] = 4;
    refused(in, OXP_ERR_INVALID_TENSOR, "dim 0 of shape [-1, 4] is negative", 1);
    other[0] = INT64_MIN;
    refused(in, OXP_ERR_INVALID_TENSOR, "negative", 1);
    other[0] = INT64_MAX;
    refused(in, OXP_ERR_INVALID_TENSOR, "2^63", 1);
    other[1] = INT64_MAX;
    refused(in, OXP_ERR_INVALID_TENSOR, "2^63", 1);
    /* A zero dim does not excuse the others. */
    other[1] = 0;
    in.tensor.byte_len = 0;
    refused(in, OXP_ERR_INVALID_TENSOR, "2^63", 1);
    /* Huge, but it fits 63 bits: the length does not. */
    other[0] = (int64_t)1 << 58;
    other[1] = 4;
    in.tensor.byte_len = sizeof x;
    refused(in, OXP_ERR_INVALID_TENSOR, "byte_len 32", 0);

    in = good_in();
    in.tensor.byte_len = sizeof x - 1;
    refused(in, OXP_ERR_INVALID_TENSOR, "byte_len 31 does not match shape [2, 4] of float32 (32 bytes)", 0);
    in.tensor.byte_len = sizeof x + 1;
    refused(in, OXP_ERR_INVALID_TENSOR, "byte_len 33", 0);
    in.tensor.byte_len = UINT64_MAX;
    refused(in, OXP_ERR_INVALID_TENSOR, "byte_len", 0);

    in = good_in();
    in.tensor.data = NULL;
    refused(in, OXP_ERR_INVALID_TENSOR, "data is NULL", 0);

    /* Right in itself, wrong for the graph. */
    in = good_in();
    in.tensor.dtype = OXP_DTYPE_INT32;
    refused(in, OXP_ERR_DTYPE_MISMATCH, "int32, expected float32", 1);
    other[0] = 4;
    other[1] = 2;
    in = good_in();
    in.tensor.shape = other;
    refused(in, OXP_ERR_SHAPE_MISMATCH, "[4, 2]", 1);
    other[0] = 8;
    in.tensor.rank = 1;
    refused(in, OXP_ERR_SHAPE_MISMATCH, "rank 1", 1);
}

static void names(void)
{
    oxp_named_in in[2];
    oxp_named_out out[2];
    in[0] = good_in();
    in[1] = good_in();
    out[0] = good_out();
    out[1] = good_out();
    EXPECT(OXP_ERR_MISSING_INPUT, "\"x\"", oxp_session_run(session, NULL, 0, out, 1, NULL, ERR));
    EXPECT(OXP_ERR_NULL_POINTER, "inputs", oxp_session_run(session, NULL, 1, out, 1, NULL, ERR));
    EXPECT(OXP_ERR_NULL_POINTER, "outputs", oxp_session_run(session, in, 1, NULL, 1, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "twice", oxp_session_run(session, in, 2, out, 1, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "inputs", oxp_session_run(session, in, UINT64_MAX / 2, out, 1, NULL, ERR));
    in[1].name = "\xff\xfe";
    EXPECT(OXP_ERR_INVALID_UTF8, "inputs[1].name", oxp_session_run(session, in, 2, out, 1, NULL, ERR));
    in[1].name = NULL;
    EXPECT(OXP_ERR_NULL_POINTER, "inputs[1].name", oxp_session_run(session, in, 2, out, 1, NULL, ERR));
    in[1].name = "bias";
    EXPECT(OXP_ERR_UNKNOWN_PORT, "\"bias\"", oxp_session_run(session, in, 2, out, 1, NULL, ERR));
    EXPECT(OXP_ERR_UNKNOWN_PORT, "\"x\"", oxp_session_run(session, in, 2, out, 1, NULL, ERR));
    out[0].name = "\xc3";
    EXPECT(OXP_ERR_INVALID_UTF8, "outputs[0].name", oxp_session_run(session, in, 1, out, 1, NULL, ERR));
    out[0].name = NULL;
    EXPECT(OXP_ERR_NULL_POINTER, "outputs[0].name", oxp_session_run(session, in, 1, out, 1, NULL, ERR));
    out[0].name = "logits";
    EXPECT(OXP_ERR_UNKNOWN_PORT, "\"logits\"", oxp_session_run(session, in, 1, out, 1, NULL, ERR));
    out[0] = good_out();
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "twice",
           (out[1].tensor.data = NULL, out[1].tensor.capacity = 0, out[1].tensor.shape = NULL,
            out[1].tensor.shape_capacity = 0, oxp_session_run(session, in, 1, out, 2, NULL, ERR)));
    still_usable();
}

static void outputs(void)
{
    oxp_named_in in = good_in();
    oxp_named_out out = good_out();
    out.tensor.struct_size = 40;
    EXPECT(OXP_ERR_STRUCT_SIZE, "48", oxp_session_run(session, &in, 1, &out, 1, NULL, ERR));
    EXPECT(OXP_ERR_STRUCT_SIZE, "48", oxp_session_output_bound(session, &in, 1, &out, 1, ERR));
    out = good_out();
    out.tensor.data = NULL;
    EXPECT(OXP_ERR_INVALID_TENSOR, "data is NULL", oxp_session_run(session, &in, 1, &out, 1, NULL, ERR));
    out = good_out();
    out.tensor.shape = NULL;
    EXPECT(OXP_ERR_INVALID_TENSOR, "shape is NULL", oxp_session_run(session, &in, 1, &out, 1, NULL, ERR));
    out = good_out();
    out.tensor.capacity = UINT64_MAX;
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "address space", oxp_session_run(session, &in, 1, &out, 1, NULL, ERR));
    still_usable();
}

static void overlaps(void)
{
    static float arena[16];
    static float total[2];
    int64_t one[1];
    oxp_named_in in = good_in();
    oxp_named_out out[2];

    /* Output over the input, by all and by one byte. */
    in.tensor.data = arena;
    memcpy(arena, x, sizeof x);
    out[0] = named_out("y", arena, sizeof y, shape, 2);
    EXPECT(OXP_ERR_OVERLAP, "input \"x\"", oxp_session_run(session, &in, 1, out, 1, NULL, ERR));
    out[0].tensor.data = (char *)arena + 31;
    EXPECT(OXP_ERR_OVERLAP, "output \"y\"", oxp_session_run(session, &in, 1, out, 1, NULL, ERR));
    CHECK(memcmp(arena, x, sizeof x) == 0);
    out[0].tensor.data = (char *)arena + 32;
    OK(oxp_session_run(session, &in, 1, out, 1, NULL, ERR));
    CHECK(arena[15] == 15);

    /* The output's dims over the input's. */
    in = good_in();
    out[0] = good_out();
    in.tensor.shape = out[0].tensor.shape;
    memcpy(out[0].tensor.shape, good_in().tensor.shape, 2 * sizeof *shape);
    CHECK(oxp_session_run(session, &in, 1, out, 1, NULL, ERR) == OXP_ERR_OVERLAP);
    CHECK_TEXT(oxp_error_get_message(check_error, NULL),
               "oxp_session_run: the shape of input \"x\" (16 bytes) and the shape of output \"y\" (16 bytes) overlap in memory; "
               "give each output memory of its own");
    oxp_error_free(check_error);
    check_error = NULL;

    /* Outputs over one another, over their dims, over the descriptors. */
    in = good_in();
    out[0] = good_out();
    out[1] = named_out("total", y + 7, 8, one, 1);
    EXPECT(OXP_ERR_OVERLAP, "output \"total\"", oxp_session_run(session, &in, 1, out, 2, NULL, ERR));
    out[1] = named_out("total", total, sizeof total, shape, 1);
    EXPECT(OXP_ERR_OVERLAP, "overlap", oxp_session_run(session, &in, 1, out, 2, NULL, ERR));
    out[1] = named_out("total", out, sizeof out, one, 1);
    EXPECT(OXP_ERR_OVERLAP, "the array of outputs", oxp_session_run(session, &in, 1, out, 2, NULL, ERR));
    out[1] = named_out("total", total, sizeof total, one, 1);
    OK(oxp_session_run(session, &in, 1, out, 2, NULL, ERR));
    CHECK(total[1] == 22);
    still_usable();
}

/* An output may lie over its own name: the library keeps names of its own. */
static void over_the_name(void)
{
    oxp_named_in in = good_in();
    oxp_named_out out;
    static float room[8];
    memcpy(room, "y", 2);
    out = named_out((const char *)room, room, sizeof room, shape, 2);
    OK(oxp_session_run(session, &in, 1, &out, 1, NULL, ERR));
    CHECK(room[7] == 15);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    session = open_session(argv[1], "affine.onnx", argv[2]);
    still_usable();
    inputs();
    names();
    outputs();
    overlaps();
    over_the_name();
    oxp_session_free(session);
    return check_result();
}
