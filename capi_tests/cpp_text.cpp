/* Tokenizers, decode streams and chat templates through oxpipe.hpp. Arguments: the package of
 * tests/capi/models.rs, the backend. */
#include "check.hpp"

#include <array>
#include <fstream>
#include <iterator>
#include <vector>

using ids = std::vector<std::int32_t>;

static void tokens(const oxp::tokenizer &tokenizer)
{
    CHECK(TAKE(tokenizer.vocab_size()) == 8);
    CHECK(TAKE(tokenizer.encode("three four</s> five")) == ids({3, 4, 7, 5}));
    CHECK(TAKE(tokenizer.encode("", true)).empty());
    std::string many;
    for (int again = 0; again < 100; again++)
        many += "</s>";
    CHECK(TAKE(tokenizer.encode(many)) == ids(100, 7));
    std::array<std::int32_t, 4> room{};
    CHECK(TAKE(tokenizer.encode_to({}, "three four")) == 2);
    CHECK(TAKE(tokenizer.encode_to(room, "three four")) == 2 && room[1] == 4);
    FAILS(OXP_ERR_BUFFER_TOO_SMALL, "holds 1", tokenizer.encode_to(oxp::span(room).first(1), "three four"));
    FAILS(OXP_ERR_INVALID_UTF8, "text", tokenizer.encode("\xff"));

    CHECK(TAKE(tokenizer.decode(ids({3, 7, 4}))) == "three four");
    CHECK(TAKE(tokenizer.decode(ids({3, 7, 4}), false)) == "three </s> four");
    CHECK(TAKE(tokenizer.decode({})).empty());
    std::array<char, 16> text{};
    CHECK(TAKE(tokenizer.decode_to(text, ids({3, 4}))) == 10 && std::string_view(text.data()) == "three four");
    FAILS(OXP_ERR_TOKENIZER, "8", tokenizer.decode(ids({8})));

    CHECK(TAKE(tokenizer.special(oxp::token_role::eos)).id == 7);
    CHECK(TAKE(tokenizer.special(oxp::token_role::eos)).text == "</s>");
    CHECK(TAKE(tokenizer.special(oxp::token_role::bos)).id == -1);
    CHECK(TAKE(tokenizer.special(oxp::token_role::pad)).text.empty());
    CHECK(TAKE(tokenizer.special(oxp::token_role::unk)).id == 6 && TAKE(tokenizer.special(oxp::token_role::sep)).id == -1);
    CHECK(TAKE(tokenizer.token(5)) == "five" && TAKE(tokenizer.find_token("five")) == 5);
    CHECK(TAKE(tokenizer.find_token("six")) == -1 && TAKE(tokenizer.is_special(7)) && !TAKE(tokenizer.is_special(5)));
    FAILS(OXP_ERR_OUT_OF_RANGE, "id 8", tokenizer.token(8));
    FAILS(OXP_ERR_OUT_OF_RANGE, "id -1", tokenizer.is_special(-1));
}

static void streams(const std::string &package)
{
    auto tokenizer = TAKE(oxp::tokenizer::open(package + "/bytes_tokenizer.json"));
    auto stream = TAKE(oxp::decode_stream::create(tokenizer, false));
    tokenizer.reset();
    CHECK(TAKE(stream.push(2)) == "a" && TAKE(stream.push(0)).empty() && TAKE(stream.push(1)) == "\xc3\xa9");
    const oxp::text_span span = TAKE(stream.last_span());
    CHECK(span.offset == 1 && span.first == 1 && span.count == 2);
    CHECK(TAKE(stream.flush()).empty() && TAKE(stream.push(0)).empty() && TAKE(stream.flush()) == "\xef\xbf\xbd");
    /* A token that stands for a NUL. */
    CHECK(TAKE(stream.push(3)) == std::string_view("\0", 1));
    FAILS(OXP_ERR_TOKENIZER, "99", stream.push(99));
    const auto moved = std::move(stream);
    FAILS(OXP_ERR_INVALID_HANDLE, "", stream.flush()); /* NOLINT: that is the test */
    FAILS(OXP_ERR_INVALID_HANDLE, "", oxp::decode_stream::create(tokenizer));
}

static void templates(const oxp::chat_template &chat, const oxp::tokenizer &tokenizer)
{
    const std::string_view hello = R"([{"role": "user", "content": "hello"}])";
    CHECK(TAKE(chat.render(hello)) == "user:hello;assistant:");
    CHECK(TAKE(chat.render(hello, false, "[{}, {}]", R"({"suffix": "!"})")) == "user:hello;[2]!");
    std::array<char, 64> room{};
    CHECK(TAKE(chat.render_to({}, hello)) == 21 && TAKE(chat.render_to(room, hello)) == 21 && room[20] == ':');
    FAILS(OXP_ERR_BUFFER_TOO_SMALL, "takes 11", chat.render_to(oxp::span(room).first(3), hello, false));
    const std::string long_suffix(3000, 'x');
    CHECK(TAKE(chat.render(hello, false, {}, "{\"suffix\": \"" + long_suffix + "\"}")) == "user:hello;" + long_suffix);
    const char *const call = R"(Yes.<tool_call>{"name": "f"}</tool_call>)";
    CHECK(TAKE(chat.parse_tool_calls(call)) ==
          R"({"format":"hermes","content":"Yes.","tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}],"complete":true})");
    CHECK(TAKE(chat.parse_tool_calls("Yes.<tool", false, "hermes")) ==
          R"({"format":"hermes","content":"Yes.","tool_calls":[],"complete":false})");
    CHECK(TAKE(chat.parse_tool_calls("<tool_call>f<arg_key>a</arg_key><arg_value>7</arg_value></tool_call>", true, "glm",
                                     R"([{"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}])")) ==
          R"({"format":"glm","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":"7"}}}],"complete":true})");
    FAILS(OXP_ERR_INVALID_ARGUMENT, "hermes, llama3", chat.parse_tool_calls(call, true, "gpt"));
    FAILS(OXP_ERR_CHAT_TEMPLATE, "no bad words", chat.render(R"([{"role": "user", "content": "bad"}])"));
    FAILS(OXP_ERR_INVALID_ARGUMENT, "messages", chat.render("not json"));

    const auto own = TAKE(oxp::chat_template::create("{{ eos_token }}{{ messages | length }}", tokenizer));
    CHECK(TAKE(own.render(hello)) == "</s>1");
    CHECK(TAKE(TAKE(oxp::chat_template::create("{{ messages | length }}")).render(hello)) == "1");
    FAILS(OXP_ERR_CHAT_TEMPLATE, "", oxp::chat_template::create("{% for %}"));
    FAILS(OXP_ERR_INVALID_HANDLE, "tokenizer", oxp::chat_template::create("x", oxp::tokenizer()));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const std::string package = argv[1];
    const std::string backend = argv[2];
    return check_program([&] {
        auto options = TAKE(oxp::pipeline_options::create());
        TAKE(options.set("backend", backend));
        auto pipeline = TAKE(oxp::pipeline::open(package, options));
        const auto tokenizer = TAKE(oxp::tokenizer::open(pipeline));
        const auto chat = TAKE(oxp::chat_template::open(pipeline));
        /* Objects of their own. */
        pipeline.reset();
        tokens(tokenizer);
        templates(chat, tokenizer);
        std::ifstream file(package + "/tokenizer.json", std::ios::binary);
        const std::string json(std::istreambuf_iterator<char>(file), {});
        CHECK(TAKE(TAKE(oxp::tokenizer::open_memory(json)).encode("five")) == ids({5}));
        FAILS(OXP_ERR_IO, "/no/such", oxp::tokenizer::open("/no/such/file.json"));
        streams(package);
    });
}
