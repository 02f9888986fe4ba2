/* Asks about an image, and prints the answer while it is made.
 *
 *     image_question PACKAGE IMAGE "What is this?" [--backend [COMPONENT=]native|ort|auto]...
 *
 * IMAGE is a JPEG, PNG, WebP or BMP file. The package says how it is preprocessed. */
#include "example.h"

int main(int argc, char **argv)
{
    oxp_error *error = NULL;
    oxp_options *options = backends_from(&argc, argv);
    oxp_pipeline *pipeline;
    oxp_chat_template *chat_template = NULL;
    oxp_run *run = NULL;
    char *question, *messages, *prompt;
    void *image;
    uint64_t image_size = 0, length = 0;

    if (argc != 4)
        die("usage", "image_question PACKAGE IMAGE QUESTION [--backend [COMPONENT=]native|ort|auto]...");
    pipeline = open_package(argv[1], options);
    must(oxp_chat_template_open_pipeline(pipeline, &chat_template, &error), &error);
    must(oxp_run_create(pipeline, NULL, &run, &error), &error);

    /* The image comes before the text: a placeholder in it becomes the image's tokens. */
    image = read_file(argv[2], &image_size);
    must(oxp_run_add_image(run, image, image_size, NULL, &error), &error);
    free(image);

    /* The template writes the placeholder where the message has the image. */
    question = json_string(argv[3]);
    messages = (char *)must_allocate(strlen(question) + 128);
    sprintf(messages, "[{\"role\": \"user\", \"content\": [{\"type\": \"image\"}, {\"type\": \"text\", \"text\": %s}]}]",
            question);
    must(oxp_chat_template_render_copy(chat_template, messages, OXP_NUL_TERMINATED, NULL, 0, NULL, 0, 1, NULL, 0,
                                       &length, &error),
         &error);
    prompt = (char *)must_allocate(length + 1);
    must(oxp_chat_template_render_copy(chat_template, messages, OXP_NUL_TERMINATED, NULL, 0, NULL, 0, 1, prompt,
                                       length + 1, &length, &error),
         &error);
    must(oxp_run_append_text(run, prompt, length, 0, NULL, &error), &error);
    must(oxp_run_generate(run, NULL, print_text, NULL, NULL, &error), &error);
    printf("\n");

    free(prompt);
    free(messages);
    free(question);
    oxp_run_free(run);
    oxp_chat_template_free(chat_template);
    oxp_pipeline_free(pipeline);
    return 0;
}
