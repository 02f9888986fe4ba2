/* How alike texts are: the cosine between the first and each of the others.
 *
 *     embeddings_cpp PACKAGE TEXT TEXT... [--backend native|ort|auto]
 *
 * The package is one encoder (strategy single_pass): input_ids and, if it has them,
 * attention_mask and token_type_ids go in, int64 [1, tokens]; its first output, float32
 * [1, tokens, size], is one vector for each token. Their mean is the text's. */
#include "example.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

/* The text's vector, of length 1. */
static std::vector<double> embed(const oxp::pipeline &package, const oxp::tokenizer &tokenizer, const std::string &text)
{
    const auto ids = tokenizer.encode(text, true);
    const auto encoder = package.component(0);
    const std::string name(encoder.name());
    auto run = oxp::run::create(package);
    for (std::uint64_t at = 0; at < encoder.input_count(); at++) {
        const auto port = package.input(name, at);
        std::vector<std::int64_t> row(ids.begin(), ids.end());
        if (port.name() != "input_ids")
            std::fill(row.begin(), row.end(), port.name() == "attention_mask" ? 1 : 0);
        run.set_input(name + "." + std::string(port.name()), row, {1, static_cast<std::int64_t>(row.size())});
    }
    run.step();

    const auto output = run.tensor(name + "." + std::string(package.output(name, 0).name()));
    if (output.rank() != 3)
        throw std::runtime_error("not float32 [1, tokens, size]");
    const auto vectors = output.as<float>();
    std::vector<double> mean(static_cast<std::size_t>(output.shape()[2]));
    for (std::size_t at = 0; at < vectors.size(); at++)
        mean[at % mean.size()] += static_cast<double>(vectors[at]);
    const double length = std::sqrt(std::inner_product(mean.begin(), mean.end(), mean.begin(), 0.0));
    for (double &value : mean)
        value /= length;
    return mean;
}

static int compare(const example::arguments &given)
{
    const auto package = given.open_package();
    const auto tokenizer = oxp::tokenizer::open(package);
    const auto first = embed(package, tokenizer, given.words[1]);
    for (std::size_t at = 2; at < given.words.size(); at++) {
        const auto other = embed(package, tokenizer, given.words[at]);
        std::printf("%.4f %s\n", std::inner_product(first.begin(), first.end(), other.begin(), 0.0),
                    given.words[at].c_str());
    }
    return 0;
}

int main(int argc, char **argv)
{
    return example::run_main(argc, argv, 3, "embeddings_cpp PACKAGE TEXT TEXT... [--backend native|ort|auto]", compare);
}
