/* The loop over tokens in the host's hands: logits out, token in. It says of each token by
 * how far it is ahead of the next, and never takes one that is to be avoided.
 *
 *     host_loop_cpp PACKAGE TEXT [--avoid TOKEN] [--max-tokens N] [--backend [COMPONENT=]native|ort|auto]... */
#include "example.hpp"

/* The largest logit that is not that of `avoid`. */
static std::int32_t best_but(oxp::span<const float> logits, std::int32_t avoid)
{
    std::size_t best = avoid == 0 ? 1 : 0;
    for (std::size_t token = best; token < logits.size(); token++)
        if (static_cast<std::int32_t>(token) != avoid && logits[token] > logits[best])
            best = token;
    return static_cast<std::int32_t>(best);
}

static int talk(const example::arguments &given)
{
    const std::int32_t avoid = std::stoi(given.option("--avoid", "-1"));
    auto options = oxp::run_options::create();
    options.set("max_tokens", given.option("--max-tokens", "100"));
    const auto package = given.open_package();
    auto run = oxp::run::create(package, options);
    run.append_text(given.words[1], true);
    for (bool finished = false; !finished;) {
        run.forward();
        /* Borrowed until the next call that changes them. */
        const auto logits = run.logits();
        const auto token = best_but(logits, avoid);
        const auto second = best_but(logits, token);
        const float ahead = logits[static_cast<std::size_t>(token)] - logits[static_cast<std::size_t>(second)];
        std::printf("%d (%.1f ahead of %d)", token, static_cast<double>(ahead), second);
        const auto event = run.force_token(token);
        std::printf(" \"%s\"\n", std::string(event.text()).c_str());
        finished = event.finished();
        if (finished)
            std::printf("%llu tokens, %s\n", static_cast<unsigned long long>(event.generated_tokens()),
                        event.finish_reason() == oxp::finish_reason::end_of_text ? "the text has ended"
                                                                                 : "as many as were asked for");
    }
    return 0;
}

int main(int argc, char **argv)
{
    return example::run_main(argc, argv, 2,
                             "host_loop_cpp PACKAGE TEXT [--avoid TOKEN] [--max-tokens N] "
                             "[--backend [COMPONENT=]native|ort|auto]...",
                             talk);
}
