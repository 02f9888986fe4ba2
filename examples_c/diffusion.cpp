/* Makes a picture of words: takes the noise out of a picture of noise, step by step.
 *
 *     diffusion_cpp PACKAGE PROMPT OUT.ppm [--set KEY=VALUE]... [--backend [COMPONENT=]native|ort|auto]...
 *
 * The keys are options of a run: num_steps, guidance_scale, seed, ... The prompt's tokens go to
 * the first input of the component "text_encoder"; the picture is the first output of the
 * component that runs at the end, float32 [1, 3, height, width] from -1 to 1. */
#include "example.hpp"

#include <algorithm>

/* Gives the text encoder the prompt's tokens, padded to as many as it takes. */
static void set_prompt(oxp::run &run, const oxp::pipeline &package, const std::string &prompt)
{
    const auto tokenizer = oxp::tokenizer::open(package);
    const auto port = package.input("text_encoder", 0);
    auto ids = tokenizer.encode(prompt, true);
    if (port.dims().size() == 2 && port.dims()[1] > 0) {
        const auto room = static_cast<std::size_t>(port.dims()[1]);
        if (ids.size() > room)
            throw std::runtime_error("too long: " + prompt);
        ids.resize(room, std::max(tokenizer.special(oxp::token_role::pad).id, 0));
    }
    const auto address = "text_encoder." + std::string(port.name());
    const std::int64_t count = static_cast<std::int64_t>(ids.size());
    if (port.dtype() == oxp::dtype::int64)
        run.set_input(address, std::vector<std::int64_t>(ids.begin(), ids.end()), {1, count});
    else
        run.set_input(address, ids, {1, count});
}

/* "vae_decoder.sample": the first output of the component that runs at the end. */
static std::string find_picture(const oxp::pipeline &package)
{
    for (std::uint64_t at = 0; at < package.info().component_count(); at++) {
        const auto component = package.component(at);
        if (component.phase() == oxp::phase::final_only)
            return std::string(component.name()) + "." + std::string(package.output(component.name(), 0).name());
    }
    throw std::runtime_error("no component runs at the end");
}

/* A PPM file: a line of text, then red, green and blue of each pixel. */
static void write_picture(const std::string &path, const oxp::tensor_view &picture)
{
    const auto values = picture.as<float>();
    const auto shape = picture.shape();
    if (shape.size() != 4 || shape[0] != 1 || shape[1] != 3)
        throw std::runtime_error("not a picture of float32 [1, 3, height, width]");
    std::ofstream file(path, std::ios::binary);
    file << "P6\n" << shape[3] << ' ' << shape[2] << "\n255\n";
    const std::size_t pixels = values.size() / 3;
    for (std::size_t pixel = 0; pixel < pixels; pixel++)
        for (std::size_t channel = 0; channel < 3; channel++) {
            const float level = (values[channel * pixels + pixel] + 1) * 127.5f + 0.5f;
            file.put(static_cast<char>(static_cast<unsigned char>(std::clamp(level, 0.0f, 255.0f))));
        }
    if (!file)
        throw std::runtime_error("cannot write " + path);
}

static int draw(const example::arguments &given)
{
    auto options = oxp::run_options::create();
    for (const auto &[name, value] : given.options) {
        const auto equals = value.find('=');
        if (name != "--set" || equals == std::string::npos)
            throw std::runtime_error("not --set KEY=VALUE: " + name + " " + value);
        options.set(value.substr(0, equals), value.substr(equals + 1));
    }
    const auto package = given.open_package();
    auto run = oxp::run::create(package, options);
    set_prompt(run, package, given.words[1]);

    std::uint32_t steps = 0;
    for (const auto &event : run.generate()) {
        example::show_progress("steps", event.loop_step(), event.loop_step_count());
        steps = event.loop_step();
    }
    run.finish();

    const auto address = find_picture(package);
    const auto picture = run.tensor(address);
    write_picture(given.words[2], picture);
    std::cout << address << " after " << steps << " steps: " << picture.shape()[3] << " x " << picture.shape()[2] << '\n';
    return 0;
}

int main(int argc, char **argv)
{
    return example::run_main(
        argc, argv, 3,
        "diffusion_cpp PACKAGE PROMPT OUT.ppm [--set KEY=VALUE]... [--backend [COMPONENT=]native|ort|auto]...", draw);
}
