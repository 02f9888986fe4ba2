/* Vectors and classes of texts. Arguments: the folder of the packages of tests/capi/models.rs, the
 * package in which each token is followed by the next, the backend. */
#include "check.h"

#include <math.h>

static const float *numbers(oxp_outputs *outputs, const char *name, int64_t rows, int64_t width)
{
    static const float nothing[16] = {0};
    oxp_tensor_in tensor = OXP_TENSOR_IN_INIT;
    OK(oxp_outputs_get(outputs, name, NT, &tensor, ERR));
    if (!CHECK(tensor.rank == 2 && tensor.shape[0] == rows && tensor.shape[1] == width))
        return nothing;
    return (const float *)tensor.data;
}

static void near(float found, double wanted)
{
    CHECK(fabs((double)found - wanted) < 1e-6);
}

int main(int argc, char **argv)
{
    static const char *const texts[3] = {"three five", "one", "two two four zero zero"};
    static const uint64_t lens[3] = {10, 3, 7};
    static const char *const long_one[1] = {"one one one one one one one"};
    static const char *const none[1] = {""};
    static const double sums[3] = {8, 1, 4};
    char path[4200];
    char label[16];
    oxp_pipeline *embedder;
    oxp_pipeline *classifier;
    oxp_pipeline *speaker;
    oxp_outputs *outputs = NULL;
    oxp_cancel *cancel = NULL;
    const float *found;
    uint64_t count = 0;
    uint64_t needed = 0;
    int at;

    if (argc != 4)
        return 2;
    embedder = open_pipeline(join(path, sizeof path, argv[1], "embedder"), argv[3]);
    classifier = open_pipeline(join(path, sizeof path, argv[1], "classifier"), argv[3]);
    speaker = open_pipeline(argv[2], argv[3]);

    OK(oxp_pipeline_embed(embedder, texts, lens, 3, &outputs, NULL, ERR));
    found = numbers(outputs, "embeddings", 3, 2);
    near(found[0], 4 / sqrt(17));
    near(found[1], 1 / sqrt(17));
    near(found[2], 1 / sqrt(2));
    near(found[4], 2 / sqrt(5));
    oxp_outputs_free(outputs);
    /* Without lengths the last text is all of it: (2 + 2 + 4) / 5. */
    OK(oxp_pipeline_embed(embedder, texts, NULL, 3, &outputs, NULL, ERR));
    found = numbers(outputs, "embeddings", 3, 2);
    near(found[0], 4 / sqrt(17));
    near(found[4], 1.6 / sqrt(1.6 * 1.6 + 1));
    oxp_outputs_free(outputs);
    OK(oxp_pipeline_embed(embedder, NULL, NULL, 0, &outputs, NULL, ERR));
    numbers(outputs, "embeddings", 0, 0);
    oxp_outputs_free(outputs);
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "text 0 has 7 tokens, and the package takes 6",
           oxp_pipeline_embed(embedder, long_one, NULL, 1, &outputs, NULL, ERR));
    CHECK(outputs == NULL);
    EXPECT(OXP_ERR_INVALID_STATE, "no tokens", oxp_pipeline_embed(embedder, none, NULL, 1, &outputs, NULL, ERR));
    MUST(oxp_cancel_create(&cancel, ERR));
    OK(oxp_cancel_request(cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled", oxp_pipeline_embed(embedder, texts, lens, 3, &outputs, cancel, ERR));

    OK(oxp_pipeline_classify(classifier, texts, lens, 3, &outputs, NULL, ERR));
    found = numbers(outputs, "scores", 3, 2);
    for (at = 0; at < 3; at++) {
        near(found[2 * at], 1 / (1 + exp(-sums[at])));
        near(found[2 * at + 1], 1 / (1 + exp(sums[at])));
    }
    oxp_outputs_free(outputs);
    OK(oxp_pipeline_get_label_count(classifier, &count, ERR));
    CHECK(count == 2);
    OK(oxp_pipeline_label_copy(classifier, 1, label, sizeof label, &needed, ERR));
    CHECK(needed == 8 && strcmp(label, "NEGATIVE") == 0);
    EXPECT(OXP_ERR_OUT_OF_RANGE, "labels, 2", oxp_pipeline_label_copy(classifier, 2, label, sizeof label, &needed, ERR));
    OK(oxp_pipeline_get_label_count(embedder, &count, ERR));
    CHECK(count == 0);

    EXPECT(OXP_ERR_INVALID_ARGUMENT, "does not say that its outputs are classes",
           oxp_pipeline_classify(embedder, texts, lens, 3, &outputs, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "does not say how its outputs become a vector",
           oxp_pipeline_embed(speaker, texts, lens, 3, &outputs, NULL, ERR));
    oxp_cancel_free(cancel);
    oxp_pipeline_free(embedder);
    oxp_pipeline_free(classifier);
    oxp_pipeline_free(speaker);
    return check_result();
}
