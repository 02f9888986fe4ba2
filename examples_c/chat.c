/* Talks with a language model: text in, text out while it is made, Ctrl-C to stop an answer.
 *
 *     chat PACKAGE [option...] ["What is the capital of France?"]
 *
 *     --backend native|ort|auto           for every component
 *     --backend COMPONENT=native|ort|auto for one
 *     --max-tokens N                      the most tokens of an answer
 *     --ids FILE                          writes the token ids of the last answer there
 *
 * Without a question it reads one from each line of standard input, and the conversation
 * goes on until that ends. */
#include "example.h"

#include <signal.h>

#define USAGE "chat PACKAGE [--backend [COMPONENT=]native|ort|auto]... [--max-tokens N] [--ids FILE] [QUESTION]"

/* A string that grows. */
typedef struct text {
    char *data;
    size_t length, capacity;
} text;

static void append(text *to, const char *data, size_t length)
{
    if (to->length + length + 1 > to->capacity) {
        to->capacity = 2 * (to->length + length + 1);
        to->data = (char *)realloc(to->data, to->capacity);
        if (to->data == NULL)
            die("out of memory", "the conversation is too long");
    }
    memcpy(to->data + to->length, data, length);
    to->length += length;
    to->data[to->length] = '\0';
}

static void append_string(text *to, const char *string)
{
    append(to, string, strlen(string));
}

/* Adds {"role": ..., "content": ...} to a JSON array that lacks its closing bracket. */
static void append_message(text *messages, const char *role, const text *content)
{
    char *json = json_string(content->data);
    append_string(messages, messages->length == 0 ? "[" : ", ");
    append_string(messages, "{\"role\": \"");
    append_string(messages, role);
    append_string(messages, "\", \"content\": ");
    append_string(messages, json);
    append_string(messages, "}");
    free(json);
}

/* Set by Ctrl-C while an answer is made. */
static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

typedef struct chat {
    oxp_tokenizer *tokenizer;
    oxp_chat_template *chat_template;
    oxp_run *run;
    text messages; /* the conversation as JSON, without the closing bracket */
    text answer;
    const char *ids_path;
} chat;

/* The token ids of the whole conversation, with the opening of the next answer. */
static int32_t *render(chat *c, uint64_t *count)
{
    oxp_error *error = NULL;
    uint64_t length = 0;
    char *prompt;
    int32_t *ids;
    text json = {NULL, 0, 0};
    append(&json, c->messages.data, c->messages.length);
    append_string(&json, "]");

    /* Strings and ids come out in two calls: how many, then the values. */
    must(oxp_chat_template_render_copy(c->chat_template, json.data, json.length, NULL, 0, NULL, 0, 1, NULL, 0, &length,
                                       &error),
         &error);
    prompt = (char *)must_allocate(length);
    must(oxp_chat_template_render_copy(c->chat_template, json.data, json.length, NULL, 0, NULL, 0, 1, prompt, length,
                                       &length, &error),
         &error);
    must(oxp_tokenizer_encode_copy(c->tokenizer, prompt, length, 0, NULL, 0, count, &error), &error);
    ids = (int32_t *)must_allocate(*count * sizeof *ids);
    must(oxp_tokenizer_encode_copy(c->tokenizer, prompt, length, 0, ids, *count, count, &error), &error);
    free(prompt);
    free(json.data);
    return ids;
}

/* Makes `ids` the tokens of the run, and keeps the work that was done for their common
 * start: an old conversation is not computed again. */
static void feed(oxp_run *run, const int32_t *ids, uint64_t count)
{
    oxp_error *error = NULL;
    uint64_t have = 0, common = 0;
    int32_t *old;
    must(oxp_run_tokens_copy(run, NULL, 0, &have, &error), &error);
    old = (int32_t *)must_allocate(have * sizeof *old);
    must(oxp_run_tokens_copy(run, old, have, &have, &error), &error);
    while (common < have && common < count && old[common] == ids[common])
        common++;
    free(old);
    if (common < have)
        must(oxp_run_rewind(run, common, &error), &error);
    must(oxp_run_append_tokens(run, ids + common, count - common, &error), &error);
}

/* Called for each token while the answer is made; anything but 0 stops it. */
static int32_t on_event(void *user_data, const oxp_event *event)
{
    chat *c = (chat *)user_data;
    append(&c->answer, event->text, (size_t)event->text_len);
    print_text(NULL, event);
    return interrupted;
}

static void write_ids(const chat *c, uint64_t prompt)
{
    oxp_error *error = NULL;
    uint64_t count = 0, i;
    int32_t *ids;
    FILE *file = fopen(c->ids_path, "w");
    if (file == NULL)
        die("cannot write", c->ids_path);
    must(oxp_run_tokens_copy(c->run, NULL, 0, &count, &error), &error);
    ids = (int32_t *)must_allocate(count * sizeof *ids);
    must(oxp_run_tokens_copy(c->run, ids, count, &count, &error), &error);
    for (i = prompt; i < count; i++)
        fprintf(file, "%" PRId32 "%s", ids[i], i + 1 < count ? " " : "\n");
    fclose(file);
    free(ids);
}

static void ask(chat *c, const text *question)
{
    oxp_error *error = NULL;
    oxp_status status;
    uint64_t count = 0;
    int32_t *ids;
    append_message(&c->messages, "user", question);
    ids = render(c, &count);
    feed(c->run, ids, count);
    free(ids);

    c->answer.length = 0;
    append_string(&c->answer, "");
    interrupted = 0;
    signal(SIGINT, interrupt);
    status = oxp_run_generate(c->run, NULL, on_event, c, NULL, &error);
    signal(SIGINT, SIG_DFL);
    if (status == OXP_ERR_CANCELLED) {
        /* What was made so far stays said. */
        oxp_error_free(error);
        printf(" [stopped]");
    } else {
        must(status, &error);
    }
    printf("\n");
    fflush(stdout);
    append_message(&c->messages, "assistant", &c->answer);
    if (c->ids_path != NULL)
        write_ids(c, count);
}

/* One line, without its end. 0 when there is no more. */
static int read_line(text *line)
{
    char piece[256];
    line->length = 0;
    while (fgets(piece, sizeof piece, stdin) != NULL) {
        append_string(line, piece);
        if (line->data[line->length - 1] == '\n') {
            line->data[--line->length] = '\0';
            return 1;
        }
    }
    return line->length > 0;
}

int main(int argc, char **argv)
{
    oxp_error *error = NULL;
    oxp_options *pipeline_options = NULL, *run_options = NULL;
    oxp_pipeline *pipeline = NULL;
    chat c;
    text question = {NULL, 0, 0};
    int i;

    memset(&c, 0, sizeof c);
    if (argc < 2 || strcmp(argv[1], "--help") == 0)
        die("usage", USAGE);

    must(oxp_options_create(OXP_OPTIONS_PIPELINE, &pipeline_options, &error), &error);
    must(oxp_options_create(OXP_OPTIONS_RUN, &run_options, &error), &error);
    for (i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (argv[i][0] != '-') {
            if (argv[i][0] == '\0')
                die("an empty question; usage", USAGE);
            append_string(&question, argv[i]);
            continue;
        }
        if (value == NULL)
            die("nothing comes after the last option, or it is none; usage", USAGE);
        if (strcmp(argv[i], "--backend") == 0)
            set_backend(pipeline_options, value);
        else if (strcmp(argv[i], "--max-tokens") == 0)
            must(oxp_options_set(run_options, "max_tokens", OXP_NUL_TERMINATED, value, OXP_NUL_TERMINATED, &error),
                 &error);
        else if (strcmp(argv[i], "--ids") == 0)
            c.ids_path = value;
        else
            die("not an option; usage", USAGE);
        i++;
    }

    pipeline = open_package(argv[1], pipeline_options);
    must(oxp_tokenizer_open_pipeline(pipeline, &c.tokenizer, &error), &error);
    must(oxp_chat_template_open_pipeline(pipeline, &c.chat_template, &error), &error);
    must(oxp_run_create(pipeline, run_options, &c.run, &error), &error);

    if (question.length > 0) {
        ask(&c, &question);
    } else {
        fprintf(stderr, "> ");
        while (read_line(&question)) {
            if (question.length > 0)
                ask(&c, &question);
            fprintf(stderr, "> ");
        }
    }

    free(question.data);
    free(c.messages.data);
    free(c.answer.data);
    oxp_run_free(c.run);
    oxp_chat_template_free(c.chat_template);
    oxp_tokenizer_free(c.tokenizer);
    oxp_pipeline_free(pipeline);
    oxp_options_free(run_options);
    return 0;
}
