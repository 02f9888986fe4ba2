/* How alike texts are: the cosine between the first and each of the others.
 *
 *     embeddings PACKAGE TEXT TEXT... [--backend native|ort|auto]
 *
 * The package is one encoder (strategy single_pass): input_ids and, if it has them,
 * attention_mask and token_type_ids go in, int64 [1, tokens]; its first output, float32
 * [1, tokens, size], is one vector for each token. Their mean is the text's. */
#include "example.h"

#include <math.h>

static void set_row(oxp_run *run, const char *component, const char *port, const int64_t *values, uint64_t count)
{
    oxp_error *error = NULL;
    oxp_tensor_in tensor = OXP_TENSOR_IN_INIT;
    int64_t shape[2] = {1, 0};
    char address[256];
    shape[1] = (int64_t)count;
    tensor.dtype = OXP_DTYPE_INT64;
    tensor.data = values;
    tensor.byte_len = count * sizeof *values;
    tensor.shape = shape;
    tensor.rank = 2;
    snprintf(address, sizeof address, "%s.%s", component, port);
    must(oxp_run_set_input(run, address, OXP_NUL_TERMINATED, &tensor, &error), &error);
}

/* The text's vector, of length 1; free it. */
static double *embed(oxp_pipeline *pipeline, const oxp_tokenizer *tokenizer, const char *text, uint64_t *size)
{
    oxp_error *error = NULL;
    oxp_component_info encoder = OXP_COMPONENT_INFO_INIT;
    oxp_port_info port = OXP_PORT_INFO_INIT;
    oxp_tensor_in output = OXP_TENSOR_IN_INIT;
    oxp_event event = OXP_EVENT_INIT;
    oxp_run *run = NULL;
    uint64_t count = 0, i, k;
    int32_t *ids;
    int64_t *row;
    double *mean, length = 0;
    char address[256];

    must(oxp_tokenizer_encode_copy(tokenizer, text, OXP_NUL_TERMINATED, 1, NULL, 0, &count, &error), &error);
    ids = (int32_t *)must_allocate(count * sizeof *ids);
    row = (int64_t *)must_allocate(count * sizeof *row);
    must(oxp_tokenizer_encode_copy(tokenizer, text, OXP_NUL_TERMINATED, 1, ids, count, &count, &error), &error);

    must(oxp_run_create(pipeline, NULL, &run, &error), &error);
    must(oxp_pipeline_get_component(pipeline, 0, &encoder, &error), &error);
    for (i = 0; i < encoder.input_count; i++) {
        must(oxp_pipeline_get_input(pipeline, encoder.name, encoder.name_len, i, &port, &error), &error);
        for (k = 0; k < count; k++)
            row[k] = strcmp(port.name, "input_ids") == 0 ? ids[k] : strcmp(port.name, "attention_mask") == 0;
        set_row(run, encoder.name, port.name, row, count);
    }
    must(oxp_run_step(run, &event, NULL, &error), &error);

    must(oxp_pipeline_get_output(pipeline, encoder.name, encoder.name_len, 0, &port, &error), &error);
    snprintf(address, sizeof address, "%s.%s", encoder.name, port.name);
    must(oxp_run_get_tensor(run, address, OXP_NUL_TERMINATED, &output, &error), &error);
    if (output.dtype != OXP_DTYPE_FLOAT32 || output.rank != 3)
        die("not float32 [1, tokens, size]", address);
    *size = (uint64_t)output.shape[2];
    mean = (double *)must_allocate(*size * sizeof *mean);
    for (k = 0; k < *size; k++) {
        mean[k] = 0;
        for (i = 0; i < count; i++)
            mean[k] += ((const float *)output.data)[i * *size + k];
        length += mean[k] * mean[k];
    }
    for (k = 0; k < *size; k++)
        mean[k] /= sqrt(length);
    oxp_run_free(run);
    free(row);
    free(ids);
    return mean;
}

int main(int argc, char **argv)
{
    oxp_error *error = NULL;
    oxp_options *options = backends_from(&argc, argv);
    oxp_pipeline *pipeline;
    oxp_tokenizer *tokenizer = NULL;
    double *first, *other;
    uint64_t size = 0, k;
    int i;

    if (argc < 4)
        die("usage", "embeddings PACKAGE TEXT TEXT... [--backend native|ort|auto]");
    pipeline = open_package(argv[1], options);
    must(oxp_tokenizer_open_pipeline(pipeline, &tokenizer, &error), &error);
    first = embed(pipeline, tokenizer, argv[2], &size);
    for (i = 3; i < argc; i++) {
        double cosine = 0;
        other = embed(pipeline, tokenizer, argv[i], &size);
        for (k = 0; k < size; k++)
            cosine += first[k] * other[k];
        printf("%.4f %s\n", cosine, argv[i]);
        free(other);
    }
    free(first);
    oxp_tokenizer_free(tokenizer);
    oxp_pipeline_free(pipeline);
    return 0;
}
