/* Vectors and classes of texts through oxpipe.hpp. Arguments: the folder of the packages of
 * tests/capi/models.rs, the backend. */
#include <oxpipe.h>

#include "check.hpp"

#include <array>
#include <cmath>
#include <string>

static oxp::pipeline open(const std::string &package, const char *backend)
{
    auto options = TAKE(oxp::pipeline_options::create());
    TAKE(options.set("backend", backend));
    return TAKE(oxp::pipeline::open(package, options));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const std::string folder = argv[1];
    return check_program([&] {
        const std::array<std::string_view, 2> texts{"three five", "one"};
        const oxp::pipeline embedder = open(folder + "/embedder", argv[2]);
        const oxp::outputs vectors = TAKE(embedder.embed(texts));
        const auto embeddings = TAKE(vectors.tensor("embeddings"));
        const auto *const values = static_cast<const float *>(embeddings.raw().data);
        CHECK(embeddings.raw().shape[0] == 2 && embeddings.raw().shape[1] == 2);
        CHECK(std::abs(values[0] - 4 / std::sqrt(17.0F)) < 1e-6F);
        CHECK(std::abs(values[2] - 1 / std::sqrt(2.0F)) < 1e-6F);
        CHECK(TAKE(embedder.label_count()) == 0);

        const oxp::pipeline classifier = open(folder + "/classifier", argv[2]);
        const oxp::outputs classes = TAKE(classifier.classify(texts));
        const auto *const scores = static_cast<const float *>(TAKE(classes.tensor("scores")).raw().data);
        CHECK(std::abs(scores[2] - 1 / (1 + std::exp(-1.0F))) < 1e-6F);
        CHECK(TAKE(classifier.label_count()) == 2 && TAKE(classifier.label(0)) == "POSITIVE");
    });
}
