/* Runs one ONNX graph, from buffers into buffers.
 *
 *     session MODEL.onnx [--backend native|ort|auto] [INPUT=FILE[:DIM,DIM,...]]...
 *
 * Without inputs it says what the graph takes and gives. An input's file holds the elements,
 * dense and little-endian; dims may be left out if the graph fixes all of them but one. */
#include "example.h"

#define MAX_PORTS 64

int main(int argc, char **argv)
{
    oxp_error *error = NULL;
    oxp_options *options = NULL;
    oxp_session *session = NULL;
    file_tensor files[MAX_PORTS];
    oxp_named_in inputs[MAX_PORTS];
    oxp_named_out outputs[MAX_PORTS];
    int64_t shapes[MAX_PORTS][MAX_DIMS];
    uint64_t file_count = 0, input_count = 0, output_count = 0, i, j;
    uint32_t backend = 0;
    const char *reason = NULL;
    int32_t status;
    int arg;

    if (argc < 2 || strcmp(argv[1], "--help") == 0)
        die("usage", "session MODEL.onnx [--backend native|ort|auto] [INPUT=FILE[:DIM,DIM,...]]...");

    must(oxp_options_create(OXP_OPTIONS_SESSION, &options, &error), &error);
    for (arg = 2; arg < argc; arg++) {
        if (strcmp(argv[arg], "--backend") == 0 && arg + 1 < argc) {
            arg++;
            must(oxp_options_set(options, "backend", OXP_NUL_TERMINATED, argv[arg], OXP_NUL_TERMINATED, &error),
                 &error);
        } else if (file_count == MAX_PORTS || !load_tensor(argv[arg], &files[file_count++])) {
            die("not INPUT=FILE", argv[arg]);
        }
    }

    must(oxp_session_open(NULL, argv[1], OXP_NUL_TERMINATED, options, &session, NULL, &error), &error);
    oxp_options_free(options);

    must(oxp_session_get_backend(session, &backend, &reason, NULL, &error), &error);
    printf("runs on %s: %s\n", backend == OXP_BACKEND_NATIVE ? "native" : "ort", reason);

    /* What the graph declares. A file takes its dtype, and dims if it has none, from there. */
    must(oxp_session_get_input_count(session, &input_count, &error), &error);
    for (i = 0; i < input_count; i++) {
        oxp_port_info port = OXP_PORT_INFO_INIT;
        must(oxp_session_get_input(session, i, &port, &error), &error);
        print_port("input", &port);
        for (j = 0; j < file_count; j++)
            if (strcmp(files[j].name, port.name) == 0)
                describe_as(&files[j], &port);
    }
    must(oxp_session_get_output_count(session, &output_count, &error), &error);
    if (output_count > MAX_PORTS)
        output_count = MAX_PORTS; /* any subset of the outputs may be asked for */
    for (i = 0; i < output_count; i++) {
        oxp_port_info port = OXP_PORT_INFO_INIT;
        oxp_tensor_out room = OXP_TENSOR_OUT_INIT;
        must(oxp_session_get_output(session, i, &port, &error), &error);
        print_port("output", &port);
        outputs[i].name = port.name;
        outputs[i].name_len = port.name_len;
        outputs[i].tensor = room;
        outputs[i].tensor.shape = shapes[i];
        outputs[i].tensor.shape_capacity = MAX_DIMS;
    }
    if (file_count == 0 && input_count > 0) {
        oxp_session_free(session);
        return 0;
    }

    for (i = 0; i < file_count; i++) {
        if (files[i].tensor.dtype == 0)
            die("the graph has no such input", files[i].name);
        inputs[i].name = files[i].name;
        inputs[i].name_len = OXP_NUL_TERMINATED;
        inputs[i].tensor = files[i].tensor;
        inputs[i].tensor.shape = files[i].dims;
    }

    /* How large will the outputs be? Often the shapes tell without a run. Where they do not,
     * the room stays empty, and the run below answers with the size. */
    must(oxp_session_output_bound(session, inputs, file_count, outputs, output_count, &error), &error);
    for (i = 0; i < output_count; i++)
        if (outputs[i].tensor.byte_len != OXP_UNKNOWN_SIZE) {
            outputs[i].tensor.capacity = outputs[i].tensor.byte_len;
            outputs[i].tensor.data = must_allocate(outputs[i].tensor.capacity);
        }

    status = oxp_session_run(session, inputs, file_count, outputs, output_count, NULL, &error);
    if (status == OXP_ERR_BUFFER_TOO_SMALL) {
        oxp_error_free(error);
        error = NULL;
        for (i = 0; i < output_count; i++) {
            free(outputs[i].tensor.data);
            outputs[i].tensor.capacity = outputs[i].tensor.byte_len;
            outputs[i].tensor.data = must_allocate(outputs[i].tensor.capacity);
        }
        status = oxp_session_run(session, inputs, file_count, outputs, output_count, NULL, &error);
    }
    must(status, &error);

    for (i = 0; i < output_count; i++) {
        const oxp_tensor_out *out = &outputs[i].tensor;
        print_tensor(outputs[i].name, out->dtype, out->shape, out->rank, out->data);
        free(outputs[i].tensor.data);
    }
    for (i = 0; i < file_count; i++)
        free((void *)files[i].tensor.data);
    oxp_session_free(session);
    return 0;
}
