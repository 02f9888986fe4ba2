/* Asks about an image, and prints the answer while it is made.
 *
 *     image_question_cpp PACKAGE IMAGE "What is this?" [--backend [COMPONENT=]native|ort|auto]...
 *
 * IMAGE is a JPEG, PNG, WebP or BMP file. The package says how it is preprocessed. */
#include "example.hpp"

static int ask(const example::arguments &given)
{
    const auto package = given.open_package();
    const auto chat_template = oxp::chat_template::open(package);
    auto run = oxp::run::create(package);
    /* The image comes before the text: a placeholder in it becomes the image's tokens. */
    run.add_image(example::read_file(given.words[1]));
    /* The template writes the placeholder where the message has the image. */
    run.append_text(chat_template.render(R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": )" +
                                         example::json_string(given.words[2]) + "}]}]"));
    example::print_answer(run);
    return 0;
}

int main(int argc, char **argv)
{
    return example::run_main(
        argc, argv, 3, "image_question_cpp PACKAGE IMAGE QUESTION [--backend [COMPONENT=]native|ort|auto]...", ask);
}
