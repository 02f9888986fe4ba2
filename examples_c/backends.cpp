/* One component on ONNX Runtime, another on the native runtime: says which runs where and why,
 * and goes on with a text.
 *
 *     backends_cpp PACKAGE TEXT [--backend COMPONENT=native|ort]... [--backend native|ort|auto] */
#include "example.hpp"

static int show(const example::arguments &given)
{
    const auto package = given.open_package();
    for (std::uint64_t at = 0; at < package.info().component_count(); at++) {
        const auto component = package.component(at);
        std::cout << component.name() << " on "
                  << (component.backend() == oxp::backend::ort ? "ONNX Runtime" : "native") << ": "
                  << component.reason() << '\n';
    }
    auto run = oxp::run::create(package);
    run.append_text(given.words[1], true);
    example::print_answer(run);
    return 0;
}

int main(int argc, char **argv)
{
    return example::run_main(
        argc, argv, 2, "backends_cpp PACKAGE TEXT [--backend COMPONENT=native|ort]... [--backend native|ort|auto]", show);
}
