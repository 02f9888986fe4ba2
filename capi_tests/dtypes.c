/* All 14 dtypes, ranks 0 to 5, zero-size dims, aligned and not: every bit comes back, in the
 * three forms of running. Arguments: the folder of models (identity_CODE_RANK.onnx), the
 * backend. */
#include "check.h"

static const uint32_t codes[14] = {1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 13, 16, 17, 19};

/* Room for the largest tensor, 2*1*3*2*2 elements of 8 bytes, and for moving it off. */
static unsigned char source[256];
static unsigned char target[256];

static void fill(unsigned char *bytes, uint64_t len, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;
    uint64_t at;
    for (at = 0; at < len; at++) {
        state = state * 1664525u + 1013904223u;
        bytes[at] = (unsigned char)(state >> 24);
    }
}

static void one(oxp_session *session, uint32_t code, const int64_t *dims, uint32_t rank, size_t offset_in,
                size_t offset_out)
{
    int64_t shape[5] = {-1, -1, -1, -1, -1};
    uint64_t len = oxp_dtype_size(code);
    uint32_t at;
    oxp_named_in in;
    oxp_named_out out;
    oxp_outputs *outputs = NULL;
    oxp_tensor_in view = OXP_TENSOR_IN_INIT;

    for (at = 0; at < rank; at++)
        len *= (uint64_t)dims[at];
    memset(target, 0x5A, sizeof target);
    fill(source + offset_in, len, code * 31 + rank);
    in = named_in("x", tensor_in(code, len ? source + offset_in : NULL, len, rank ? dims : NULL, rank));
    out = named_out("y", len ? target + offset_out : NULL, len, rank ? shape : NULL, rank);

    OK(oxp_session_output_bound(session, &in, 1, &out, 1, ERR));
    CHECK(out.tensor.byte_len == len && out.tensor.rank == rank && out.tensor.dtype == code);

    OK(oxp_session_run(session, &in, 1, &out, 1, NULL, ERR));
    CHECK(out.tensor.byte_len == len && out.tensor.rank == rank && out.tensor.dtype == code);
    CHECK(memcmp(source + offset_in, target + offset_out, len) == 0);
    /* Not a byte beside it. */
    CHECK(offset_out == 0 || target[offset_out - 1] == 0x5A);
    CHECK(target[offset_out + len] == 0x5A);
    for (at = 0; at < rank; at++)
        CHECK(shape[at] == dims[at]);

    OK(oxp_session_run_alloc(session, &in, 1, NULL, NULL, 0, &outputs, NULL, ERR));
    OK(oxp_outputs_get(outputs, "y", NT, &view, ERR));
    CHECK(view.byte_len == len && view.rank == rank && view.dtype == code);
    CHECK(len == 0 || memcmp(source + offset_in, view.data, len) == 0);
    for (at = 0; at < rank; at++)
        CHECK(view.shape[at] == dims[at]);
    oxp_outputs_free(outputs);
}

int main(int argc, char **argv)
{
    static const int64_t full[5] = {2, 1, 3, 2, 2};
    size_t code;
    uint32_t rank;
    uint32_t axis;
    if (argc != 3)
        return 2;
    for (code = 0; code < 14; code++) {
        for (rank = 0; rank <= 5; rank++) {
            char name[64];
            oxp_session *session;
            snprintf(name, sizeof name, "identity_%u_%u.onnx", codes[code], rank);
            session = open_session(argv[1], name, argv[2]);
            one(session, codes[code], full, rank, 0, 0);
            one(session, codes[code], full, rank, 1, 0);
            one(session, codes[code], full, rank, 0, 3);
            one(session, codes[code], full, rank, 5, 7);
            for (axis = 0; axis < rank; axis++) {
                int64_t empty[5];
                memcpy(empty, full, sizeof empty);
                empty[axis] = 0;
                one(session, codes[code], empty, rank, 0, 0);
            }
            oxp_session_free(session);
        }
    }
    return check_result();
}
