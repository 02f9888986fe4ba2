/* Tokenizers, decode streams and chat templates. Arguments: the package of
 * tests/capi/models.rs, the backend. */
#include "check.h"

static char path[4096];
static char buffer[256];

static void tokenizer(oxp_tokenizer *tok)
{
    int32_t ids[8];
    int32_t id = 0;
    int32_t special = 9;
    uint64_t needed = 0;
    uint64_t size = 0;
    const char *text = NULL;
    uint64_t text_len = 0;
    static const int32_t sequence[3] = {3, 7, 4};
    static const int32_t outside[1] = {8};

    OK(oxp_tokenizer_get_vocab_size(tok, &size, ERR));
    CHECK(size == 8);
    OK(oxp_tokenizer_encode_copy(tok, "three four</s> five", NT, 1, NULL, 0, &needed, ERR));
    CHECK(needed == 4);
    ids[0] = -5;
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "holds 3",
           oxp_tokenizer_encode_copy(tok, "three four</s> five", NT, 1, ids, 3, &needed, ERR));
    CHECK(ids[0] == -5 && needed == 4);
    OK(oxp_tokenizer_encode_copy(tok, "three four</s> five", NT, 0, ids, 4, &needed, ERR));
    CHECK(ids[0] == 3 && ids[1] == 4 && ids[2] == 7 && ids[3] == 5);
    OK(oxp_tokenizer_encode_copy(tok, "", NT, 0, ids, 8, &needed, ERR));
    CHECK(needed == 0);
    OK(oxp_tokenizer_encode_copy(tok, "unheard-of", 7, 0, ids, 8, &needed, ERR));
    CHECK(needed == 1 && ids[0] == 6);
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "add_special is -1",
           oxp_tokenizer_encode_copy(tok, "x", NT, -1, ids, 8, &needed, ERR));

    OK(oxp_tokenizer_decode_copy(tok, sequence, 3, 1, buffer, sizeof buffer, &needed, ERR));
    CHECK_TEXT(buffer, "three four");
    OK(oxp_tokenizer_decode_copy(tok, sequence, 3, 0, buffer, sizeof buffer, &needed, ERR));
    CHECK_TEXT(buffer, "three </s> four");
    CHECK(needed == 15);
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "takes 15",
           oxp_tokenizer_decode_copy(tok, sequence, 3, 0, buffer, 14, &needed, ERR));
    EXPECT(OXP_ERR_TOKENIZER, "8", oxp_tokenizer_decode_copy(tok, outside, 1, 0, buffer, 64, &needed, ERR));
    OK(oxp_tokenizer_decode_copy(tok, NULL, 0, 0, buffer, sizeof buffer, &needed, ERR));
    CHECK_TEXT(buffer, "");

    OK(oxp_tokenizer_get_special(tok, OXP_TOKEN_EOS, &id, &text, &text_len, ERR));
    CHECK(id == 7 && text_len == 4);
    CHECK_TEXT(text, "</s>");
    OK(oxp_tokenizer_get_special(tok, OXP_TOKEN_UNK, &id, NULL, NULL, ERR));
    CHECK(id == 6);
    OK(oxp_tokenizer_get_special(tok, OXP_TOKEN_BOS, &id, &text, &text_len, ERR));
    CHECK(id == -1 && text_len == 0);
    CHECK_TEXT(text, "");
    OK(oxp_tokenizer_get_special(tok, OXP_TOKEN_PAD, &id, NULL, NULL, ERR));
    OK(oxp_tokenizer_get_special(tok, OXP_TOKEN_SEP, &id, NULL, NULL, ERR));
    CHECK(id == -1);
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "role 6", oxp_tokenizer_get_special(tok, 6, &id, NULL, NULL, ERR));

    OK(oxp_tokenizer_token_copy(tok, 5, buffer, sizeof buffer, &needed, ERR));
    CHECK_TEXT(buffer, "five");
    EXPECT(OXP_ERR_OUT_OF_RANGE, "id 8", oxp_tokenizer_token_copy(tok, 8, buffer, sizeof buffer, &needed, ERR));
    EXPECT(OXP_ERR_OUT_OF_RANGE, "id -1", oxp_tokenizer_token_copy(tok, -1, buffer, sizeof buffer, &needed, ERR));
    OK(oxp_tokenizer_find_token(tok, "five and more", 4, &id, ERR));
    CHECK(id == 5);
    OK(oxp_tokenizer_find_token(tok, "six", NT, &id, ERR));
    CHECK(id == -1);
    OK(oxp_tokenizer_is_special(tok, 7, &special, ERR));
    CHECK(special == 1);
    OK(oxp_tokenizer_is_special(tok, 5, &special, ERR));
    CHECK(special == 0);
    EXPECT(OXP_ERR_OUT_OF_RANGE, "id 8", oxp_tokenizer_is_special(tok, 8, &special, ERR));
}

/* Two bytes of one character come as nothing and as the whole. */
static void streams(const char *package)
{
    oxp_tokenizer *tok = NULL;
    oxp_decode_stream *stream = NULL;
    const char *text = NULL;
    uint64_t len = 99;
    uint64_t offset = 9;
    uint64_t first = 9;
    uint64_t count = 9;
    MUST(oxp_tokenizer_open(join(path, sizeof path, package, "bytes_tokenizer.json"), NT, &tok, ERR));
    MUST(oxp_decode_stream_create(tok, 0, &stream, ERR));
    /* The stream keeps what it needs. */
    oxp_tokenizer_free(tok);
    OK(oxp_decode_stream_push(stream, 2, &text, &len, ERR));
    CHECK_TEXT(text, "a");
    OK(oxp_decode_stream_push(stream, 0, &text, &len, ERR));
    CHECK_TEXT(text, "");
    CHECK(len == 0);
    OK(oxp_decode_stream_push(stream, 1, &text, &len, ERR));
    CHECK_TEXT(text, "\xc3\xa9");
    CHECK(len == 2);
    OK(oxp_decode_stream_get_span(stream, &offset, &first, &count, ERR));
    CHECK(offset == 1 && first == 1 && count == 2);
    OK(oxp_decode_stream_flush(stream, &text, &len, ERR));
    CHECK_TEXT(text, "");
    OK(oxp_decode_stream_push(stream, 0, &text, NULL, ERR));
    EXPECT(OXP_ERR_TOKENIZER, "99", oxp_decode_stream_push(stream, 99, &text, &len, ERR));
    CHECK(text == NULL);
    OK(oxp_decode_stream_flush(stream, &text, &len, ERR));
    CHECK_TEXT(text, "\xef\xbf\xbd");
    OK(oxp_decode_stream_push(stream, 2, &text, &len, ERR));
    CHECK_TEXT(text, "a");
    /* A token that stands for a NUL is given as one. */
    OK(oxp_decode_stream_push(stream, 3, &text, &len, ERR));
    CHECK(len == 1 && text[0] == 0 && text[1] == 0);
    oxp_decode_stream_free(stream);
    EXPECT(OXP_ERR_INVALID_HANDLE, "has been freed", oxp_decode_stream_flush(stream, &text, &len, ERR));
}

static void templates(oxp_chat_template *chat, oxp_tokenizer *tok)
{
    static const char hello[] = "[{\"role\": \"user\", \"content\": \"hello\"}]";
    oxp_chat_template *own = NULL;
    uint64_t needed = 0;
    OK(oxp_chat_template_render_copy(chat, hello, NT, NULL, 0, NULL, 0, 1, buffer, sizeof buffer, &needed, ERR));
    CHECK_TEXT(buffer, "user:hello;assistant:");
    CHECK(needed == strlen(buffer));
    OK(oxp_chat_template_render_copy(chat, hello, sizeof hello - 1, "[{}, {}]", NT, "{\"suffix\": \"!\"}", NT, 0,
                                     buffer, sizeof buffer, &needed, ERR));
    CHECK_TEXT(buffer, "user:hello;[2]!");
    EXPECT(OXP_ERR_BUFFER_TOO_SMALL, "takes 11",
           oxp_chat_template_render_copy(chat, hello, NT, NULL, 0, NULL, 0, 0, buffer, 3, &needed, ERR));
    EXPECT(OXP_ERR_CHAT_TEMPLATE, "no bad words",
           oxp_chat_template_render_copy(chat, "[{\"role\": \"user\", \"content\": \"bad\"}]", NT, NULL, 0, NULL, 0, 0,
                                         buffer, sizeof buffer, &needed, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "messages",
           oxp_chat_template_render_copy(chat, "not json", NT, NULL, 0, NULL, 0, 0, buffer, sizeof buffer, &needed, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "tools",
           oxp_chat_template_render_copy(chat, hello, NT, "3", NT, NULL, 0, 0, buffer, sizeof buffer, &needed, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "extra",
           oxp_chat_template_render_copy(chat, hello, NT, NULL, 0, "[]", NT, 0, buffer, sizeof buffer, &needed, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "add_generation_prompt is 3",
           oxp_chat_template_render_copy(chat, hello, NT, NULL, 0, NULL, 0, 3, buffer, sizeof buffer, &needed, ERR));

    OK(oxp_chat_template_create("{{ eos_token }}{{ messages | length }}", NT, tok, &own, ERR));
    OK(oxp_chat_template_render_copy(own, hello, NT, NULL, 0, NULL, 0, 0, buffer, sizeof buffer, &needed, ERR));
    CHECK_TEXT(buffer, "</s>1");
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "element 1 is a number",
           oxp_chat_template_render_copy(own, "[{}, 3]", NT, NULL, 0, NULL, 0, 0, buffer, sizeof buffer, &needed, ERR));
    oxp_chat_template_free(own);
    OK(oxp_chat_template_create("{% set n = namespace() %}{% set n.x = n %}{{ n }}", NT, NULL, &own, ERR));
    EXPECT(OXP_ERR_CHAT_TEMPLATE, "namespace",
           oxp_chat_template_render_copy(own, hello, NT, NULL, 0, NULL, 0, 0, buffer, sizeof buffer, &needed, ERR));
    oxp_chat_template_free(own);
    EXPECT(OXP_ERR_CHAT_TEMPLATE, "", oxp_chat_template_create("{% for %}", NT, NULL, &own, ERR));
    CHECK(own == NULL);
}

static void opening(void)
{
    /* 4 GB of trie, if one believed it. */
    static const char hostile[] =
        "{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"//////////8=\"}, "
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}";
    oxp_tokenizer *tok = NULL;
    EXPECT(OXP_ERR_IO, "/no/such/file.json", oxp_tokenizer_open("/no/such/file.json", NT, &tok, ERR));
    EXPECT(OXP_ERR_TOKENIZER, "", oxp_tokenizer_open_memory("{}", 2, NULL, 0, &tok, ERR));
    EXPECT(OXP_ERR_TOKENIZER, "", oxp_tokenizer_open_memory("", 0, NULL, 0, &tok, ERR));
    EXPECT(OXP_ERR_TOKENIZER, "normalizer.precompiled_charsmap",
           oxp_tokenizer_open_memory(hostile, sizeof hostile - 1, NULL, 0, &tok, ERR));
    CHECK(tok == NULL);
}

static void tool_calls(void)
{
    static const char answer[] = "Yes.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";
    oxp_chat_template *chat = NULL;
    uint64_t needed = 0;
    MUST(oxp_chat_template_create("{{ '[TOOL_CALLS]' }}", NT, NULL, &chat, ERR));
    OK(oxp_tool_calls_parse_copy(NULL, NULL, 0, answer, NT, 1, buffer, sizeof buffer, &needed, ERR));
    CHECK_TEXT(buffer, "{\"format\":\"hermes\",\"content\":\"Yes.\",\"tool_calls\":[{\"type\":\"function\",\"function\":"
                       "{\"name\":\"f\",\"arguments\":{\"a\":1}}}],\"complete\":true}");
    CHECK(needed == strlen(buffer));
    /* The template says that it is no call, the caller that it is. */
    OK(oxp_tool_calls_parse_copy(chat, NULL, 0, "<tool_call>", NT, 1, buffer, sizeof buffer, &needed, ERR));
    CHECK_TEXT(buffer, "{\"format\":\"mistral\",\"content\":\"<tool_call>\",\"tool_calls\":[],\"complete\":true}");
    OK(oxp_tool_calls_parse_copy(chat, "hermes", NT, "Yes.<tool_", NT, 0, buffer, sizeof buffer, &needed, ERR));
    CHECK_TEXT(buffer, "{\"format\":\"hermes\",\"content\":\"Yes.\",\"tool_calls\":[],\"complete\":false}");
    EXPECT(OXP_ERR_TOOL_CALL, "at byte 11",
           oxp_tool_calls_parse_copy(NULL, NULL, 0, "<tool_call>7</tool_call>", NT, 1, buffer, sizeof buffer, &needed, ERR));
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "hermes, llama3",
           oxp_tool_calls_parse_copy(NULL, "gpt", NT, answer, NT, 1, buffer, sizeof buffer, &needed, ERR));
    static const char tools[] = "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"string\"}}}}]";
    static const char plain[] = "<tool_call>f<arg_key>a</arg_key><arg_value>007</arg_value></tool_call>";
    OK(oxp_tool_calls_parse_with_tools_copy(NULL, NULL, 0, tools, NT, plain, NT, 1, buffer, sizeof buffer, &needed, ERR));
    CHECK_TEXT(buffer, "{\"format\":\"glm\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"function\":"
                       "{\"name\":\"f\",\"arguments\":{\"a\":\"007\"}}}],\"complete\":true}");
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "expected an array of tools",
           oxp_tool_calls_parse_with_tools_copy(NULL, NULL, 0, "{}", NT, plain, NT, 1, buffer, sizeof buffer, &needed, ERR));
    oxp_chat_template_free(chat);
}

int main(int argc, char **argv)
{
    oxp_pipeline *pipeline;
    oxp_tokenizer *tok = NULL;
    oxp_chat_template *chat = NULL;
    if (argc != 3)
        return 2;
    pipeline = open_pipeline(argv[1], argv[2]);
    MUST(oxp_tokenizer_open_pipeline(pipeline, &tok, ERR));
    MUST(oxp_chat_template_open_pipeline(pipeline, &chat, ERR));
    /* Handles of their own. */
    oxp_pipeline_free(pipeline);
    tokenizer(tok);
    templates(chat, tok);
    oxp_chat_template_free(chat);
    oxp_tokenizer_free(tok);

    MUST(oxp_tokenizer_open(join(path, sizeof path, argv[1], "tokenizer.json"), NT, &tok, ERR));
    tokenizer(tok);
    oxp_tokenizer_free(tok);
    streams(argv[1]);
    opening();
    tool_calls();
    return check_result();
}
