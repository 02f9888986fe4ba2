/* Chooses tokens by a rule of its own: of the K likeliest, one at random. The library gives the
 * logits and takes the token.
 *
 *     sampler_cpp PACKAGE TEXT [--temperature T] [--top-k K] [--seed N] [--max-tokens N]
 *                 [--backend [COMPONENT=]native|ort|auto]... */
#include "example.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

class sampler {
public:
    sampler(double temperature, std::size_t most, std::uint64_t seed)
        : temperature_(temperature), most_(most), random_(seed)
    {
    }

    std::int32_t choose(oxp::span<const float> logits)
    {
        /* The likeliest tokens, likeliest first; of equals the first. */
        std::vector<std::int32_t> tokens(logits.size());
        std::iota(tokens.begin(), tokens.end(), 0);
        const auto logit = [&](std::int32_t token) { return logits[static_cast<std::size_t>(token)]; };
        std::stable_sort(tokens.begin(), tokens.end(), [&](auto left, auto right) { return logit(left) > logit(right); });
        tokens.resize(std::min(most_, tokens.size()));

        const auto weight = [&](std::int32_t token) {
            return std::exp(static_cast<double>(logit(token) - logit(tokens[0])) / temperature_);
        };
        double total = 0;
        for (const auto token : tokens)
            total += weight(token);
        double left = draw() * total;
        for (const auto token : tokens)
            if ((left -= weight(token)) < 0)
                return token;
        return tokens[0];
    }

private:
    /* The next of a row of random numbers from 0 to 1, without 1 (Steele, Lea and Flood's
     * SplitMix64). */
    double draw()
    {
        std::uint64_t z = random_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return static_cast<double>((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
    }

    double temperature_;
    std::size_t most_;
    std::uint64_t random_;
};

static int talk(const example::arguments &given)
{
    sampler sample(std::stod(given.option("--temperature", "1")), std::stoul(given.option("--top-k", "40")),
                   std::stoull(given.option("--seed", "0")));
    auto options = oxp::run_options::create();
    options.set("max_tokens", given.option("--max-tokens", "100"));
    const auto package = given.open_package();
    auto run = oxp::run::create(package, options);
    run.append_text(given.words[1], true);
    for (bool finished = false; !finished;) {
        run.forward();
        const auto event = run.force_token(sample.choose(run.logits()));
        std::cout << event.text() << std::flush;
        finished = event.finished();
    }
    std::cout << '\n';
    return 0;
}

int main(int argc, char **argv)
{
    return example::run_main(argc, argv, 2,
                             "sampler_cpp PACKAGE TEXT [--temperature T] [--top-k K] [--seed N] [--max-tokens N] "
                             "[--backend [COMPONENT=]native|ort|auto]...",
                             talk);
}
