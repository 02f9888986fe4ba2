// Prints the tokens that a package makes of token 2.
#include <oxpipe.hpp>

#include <array>
#include <iostream>

int main(int argc, char **argv)
try {
    const auto pipeline = oxp::pipeline::open(argc == 2 ? argv[1] : "");
    auto run = oxp::run::create(pipeline);
    const std::array<std::int32_t, 1> prompt{2};
    run.append_tokens(prompt);
    for (const auto &event : run.generate())
        std::cout << event.token() << '\n';
} catch (const oxp::error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
