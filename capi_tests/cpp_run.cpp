/* Pipelines and runs through oxpipe.hpp: tokens as a range and through callbacks, what
 * callbacks throw, cancelling from another thread, values, phases, loggers, and that a step
 * allocates nothing. Arguments: the package of tests/capi/models.rs, in which each token is
 * followed by the next and 7 ends the text; the backend. */
#include <oxpipe.h>

#include <cstdlib>
#include <new>

/* Counts what this program allocates on a thread, but not what happens inside of the C
 * functions that its loops call: ONNX Runtime is C++ too. */
static thread_local int allocations = 0;
static thread_local int inside = 0;

static inline oxp_status step_uncounted(oxp_run *run, oxp_event *event, const oxp_cancel *cancel, oxp_error **err)
{
    inside += 1;
    const oxp_status status = oxp_run_step(run, event, cancel, err);
    inside -= 1;
    return status;
}
#define oxp_run_step step_uncounted

#include "check.hpp"

#include <array>
#include <atomic>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

/* UNCOUNTED is for valgrind, which has operators of its own. */
#ifndef UNCOUNTED
static void *counted(std::size_t size) noexcept
{
    allocations += inside == 0 ? 1 : 0;
    return std::malloc(size > 0 ? size : 1);
}
void *operator new(std::size_t size)
{
    void *const memory = counted(size);
    if (memory == nullptr)
        std::abort();
    return memory;
}
void *operator new(std::size_t size, const std::nothrow_t &) noexcept
{
    return counted(size);
}
/* Not inlined: a compiler that sees one of a pair alone takes it for a mistake. */
[[gnu::noinline]] void operator delete(void *memory) noexcept
{
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void *memory, std::size_t) noexcept
{
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void *memory, const std::nothrow_t &) noexcept
{
    std::free(memory);
}
#endif

static std::string package;
static std::string backend;
static constexpr std::array<float, 8> black{};

using ids = std::vector<std::int32_t>;

static oxp::pipeline open()
{
    auto options = TAKE(oxp::pipeline_options::create());
    TAKE(options.set("backend", backend));
    return TAKE(oxp::pipeline::open(package, options));
}

/* A run with an image and the prompt [3]. */
static oxp::run start(const oxp::pipeline &pipeline, int max_tokens)
{
    auto options = TAKE(oxp::run_options::create());
    TAKE(options.set("max_tokens", max_tokens));
    auto run = TAKE(oxp::run::create(pipeline, options));
    TAKE(run.set_input("vision_encoder.pixel_values", black, {1, 8}));
    TAKE(run.append_tokens({3}));
    return run;
}

static void known(const oxp::pipeline &pipeline)
{
    const oxp::pipeline_info info = TAKE(pipeline.info());
    CHECK(info.has_tokenizer() && info.has_chat_template() && info.format() == "inference_metadata");
    CHECK(info.strategy() == "autoregressive" && info.decoder() == "decoder" && info.component_count() == 5);
    CHECK(info.eos_token_ids().size() == 1 && info.eos_token_ids()[0] == 7 && info.context_length() == 64);
    CHECK(info.kv_bytes_per_token() == 32 && info.metadata_file().find(".yaml") != std::string_view::npos);
    const oxp::component_info probe = TAKE(pipeline.component(4));
    CHECK(probe.name() == "probe" && probe.component_type() == "vocoder" && probe.file() == "probe.onnx");
    CHECK(probe.phase() == oxp::phase::on_demand && probe.input_count() == 1 && probe.output_count() == 1);
    CHECK(probe.backend() == (backend == "native" ? oxp::backend::native : oxp::backend::ort));
    CHECK(!probe.reason().empty() && probe.when_present().empty());
    CHECK(TAKE(pipeline.input("decoder", 1)).name() == "past" && TAKE(pipeline.input("decoder", 1)).dims()[3] == 8);
    CHECK(TAKE(pipeline.output("decoder", 0)).name() == "logits");
    FAILS(OXP_ERR_UNKNOWN_COMPONENT, "nobody", pipeline.input("nobody", 0));
    FAILS(OXP_ERR_OUT_OF_RANGE, "index 5", pipeline.component(5));
    const std::string json = TAKE(pipeline.describe());
    CHECK(json.front() == '{' && json.back() == '}' && json.find("\"prompt_only\"") != std::string::npos);
    const oxp::memory_estimate estimate = TAKE(oxp::pipeline::estimate(package));
    CHECK(estimate.weight_bytes > 512 && estimate.weight_bytes < 10000 && estimate.json.back() == '}');
    FAILS(OXP_ERR_IO, "/no/such", oxp::pipeline::estimate("/no/such/folder"));
}

static void steps(const oxp::pipeline &pipeline)
{
    auto run = start(pipeline, 10);
    const oxp::event first = TAKE(run.step());
    CHECK(first.token() == 4 && first.text() == "four" && !first.finished() && first.finish_index() == -1);
    CHECK(first.prompt_tokens() == 1 && first.generated_tokens() == 1 && first.total_ns() >= first.decoder_ns());
    CHECK(std::fabs(static_cast<double>(first.logprob()) - (1 - std::log(7 + std::exp(1.0)))) < 1e-5);
    CHECK(first.prompt_components_ns() > 0 && first.step_components_ns() > 0);
    TAKE(run.step());
    TAKE(run.step());
    const oxp::event last = TAKE(run.step());
    CHECK(last.token() == 7 && last.finish_reason() == oxp::finish_reason::end_of_text && last.finish_index() == 0);
    FAILS(OXP_ERR_INVALID_STATE, "finished", run.step());
    CHECK(TAKE(run.tokens()) == ids({3, 4, 5, 6, 7}));
    std::array<std::int32_t, 5> room{};
    CHECK(TAKE(run.tokens_to({})) == 5 && TAKE(run.tokens_to(room)) == 5 && room[4] == 7);
    FAILS(OXP_ERR_BUFFER_TOO_SMALL, "holds 2", run.tokens_to(oxp::span(room).first(2)));
    const oxp::run_stats stats = TAKE(run.stats());
    CHECK(stats.finish_reason() == oxp::finish_reason::end_of_text && stats.generated_tokens() == 4);
    CHECK(stats.prompt_tokens() == 1 && stats.component_runs() == 9 && stats.kv_bytes() >= 128 && stats.decode_ns() > 0);

    /* A run outlives its pipeline, and goes where it is moved. */
    auto pipe = open();
    auto orphan = start(pipe, 10);
    pipe.reset();
    auto moved = std::move(orphan);
    CHECK(TAKE(moved.step()).token() == 4);
    FAILS(OXP_ERR_INVALID_HANDLE, "", orphan.step()); /* NOLINT: that is the test */
    FAILS(OXP_ERR_INVALID_HANDLE, "", oxp::run::create(pipe));
    FAILS(OXP_ERR_INVALID_HANDLE, "", moved.step(oxp::cancel()));
    CHECK(TAKE(moved.step()).token() == 5);
}

static void ranges(const oxp::pipeline &pipeline)
{
    auto run = start(pipeline, 10);
    ids seen;
    std::string text;
    auto tokens = run.generate();
    for (const auto &event : tokens) {
        seen.push_back(event.token());
        text += event.text();
        CHECK(event.finished() == (event.token() == 7));
    }
    CHECK(seen == ids({4, 5, 6, 7}) && text == "four five");
    CHECK(tokens.finish_reason() == oxp::finish_reason::end_of_text);

    /* Left early, and gone on with. */
    run = start(pipeline, 10);
    for (auto event : run.generate())
        if (event.token() == 5)
            break;
    CHECK(TAKE(run.tokens()) == ids({3, 4, 5}));
    /* Between turns the host may choose. */
    seen.clear();
    for (auto event : run.generate()) {
        if (event.token() == 6)
            event = TAKE(run.force_token(1));
        seen.push_back(event.token());
        if (event.token() == 3)
            break;
    }
    CHECK(seen == ids({1, 2, 3}) && TAKE(run.tokens()) == ids({3, 4, 5, 1, 2, 3}));

    /* A turn that fails. */
    const auto stop = TAKE(oxp::cancel::create());
    run = start(pipeline, 10);
    seen.clear();
#if OXPIPE_THROWS
    try {
        for (const auto &event : run.generate(stop)) {
            seen.push_back(event.token());
            stop.request();
        }
        CHECK(!"the loop ended");
    } catch (const oxp::error &error) {
        CHECK(error.code() == OXP_ERR_CANCELLED && std::string_view(error.what()).find("oxp_run_step") == 0);
    }
#else
    auto cancelled = run.generate(stop);
    for (const auto &event : cancelled) {
        seen.push_back(event.token());
        TAKE(stop.request());
    }
    CHECK(!cancelled.ok() && cancelled.failure().code() == OXP_ERR_CANCELLED);
    CHECK(cancelled.finish_reason() == oxp::finish_reason::none);
#endif
    CHECK(seen == ids({4}));
}

struct thrown_by_test {
    int number;
};

static void callbacks(const oxp::pipeline &pipeline)
{
    auto run = start(pipeline, 10);
    ids seen;
    CHECK(TAKE(run.generate([&](const oxp::event &event) {
              seen.push_back(event.token());
              FAILS(OXP_ERR_BUSY, "one call at a time", run.step());
          })) == oxp::finish_reason::end_of_text);
    CHECK(seen == ids({4, 5, 6, 7}));

    /* One that says when to stop, one that is not copied, one that is const. */
    run = start(pipeline, 10);
    struct counter {
        int calls = 0;
        counter() = default;
        counter(const counter &) = delete;
        bool operator()(const oxp::event &) { return ++calls < 2; }
    } two;
    CHECK(TAKE(run.generate(two)) == oxp::finish_reason::none && two.calls == 2);
    CHECK(TAKE(run.tokens()) == ids({3, 4, 5}));
    const auto yes = [](const oxp::event &event) { return event.token() > 0; };
    CHECK(TAKE(run.generate(yes)) == oxp::finish_reason::end_of_text);
    run = start(pipeline, 2);
    CHECK(TAKE(run.generate_all()) == oxp::finish_reason::max_tokens);
    FAILS(OXP_ERR_INVALID_STATE, "finished", run.generate_all());
    FAILS(OXP_ERR_INVALID_STATE, "finished", run.generate(yes));

    auto options = TAKE(oxp::pipeline_options::create());
    TAKE(options.set("backend", backend));
    std::string names;
    auto progress = [&](const oxp::load_progress &state) {
        names += std::string(state.component()) + (state.done() == state.total() ? "." : ",");
        CHECK(state.total() == 5);
    };
    const auto opened = TAKE(oxp::pipeline::open(package, options, {}, progress));
    CHECK(names == "vision_encoder,embedding,decoder,summary,probe,.");
    FAILS(OXP_ERR_CANCELLED, "", oxp::pipeline::open(package, options, {}, [](const oxp::load_progress &state) {
              return state.component() != "decoder";
          }));

#if OXPIPE_COMPILER_THROWS
    /* What is thrown comes out as it is, and the run is where the callback left it. */
    run = start(pipeline, 10);
    try {
        (void)run.generate([](const oxp::event &event) {
            if (event.token() == 5)
                throw thrown_by_test{17};
        });
        CHECK(!"nothing was thrown");
    } catch (const thrown_by_test &mine) {
        CHECK(mine.number == 17);
    }
    CHECK(TAKE(run.tokens()) == ids({3, 4, 5}) && TAKE(run.step()).token() == 6);
    try {
        (void)oxp::pipeline::open(package, options, {}, [](const oxp::load_progress &) { throw thrown_by_test{18}; });
        CHECK(!"nothing was thrown");
    } catch (const thrown_by_test &mine) {
        CHECK(mine.number == 18);
    }
#endif
}

/* The callback waits until another thread has asked, so that the next step is the one that
 * is cancelled. */
static void other_threads(const oxp::pipeline &pipeline)
{
    const auto stop = TAKE(oxp::cancel::create());
    auto run = start(pipeline, 10);
    std::atomic<bool> began{false};
    std::thread other([&] {
        while (!began)
            std::this_thread::yield();
        (void)stop.request();
    });
    FAILS(OXP_ERR_CANCELLED, "cancelled", run.generate(
                                              [&](const oxp::event &) {
                                                  began = true;
                                                  while (!TAKE(stop.is_requested()))
                                                      std::this_thread::yield();
                                              },
                                              stop));
    other.join();
    CHECK(TAKE(run.tokens()) == ids({3, 4}));
    FAILS(OXP_ERR_CANCELLED, "cancelled", run.forward(stop));
    TAKE(stop.withdraw());
    CHECK(TAKE(run.generate_all(stop)) == oxp::finish_reason::end_of_text);
}

static void values(const oxp::pipeline &pipeline)
{
    auto run = start(pipeline, 3);
    FAILS(OXP_ERR_INVALID_STATE, "logits", run.logits());
    FAILS(OXP_ERR_INVALID_STATE, "no value", run.tensor("decoder.logits"));
    TAKE(run.append_tokens(ids({3, 0})));
    FAILS(OXP_ERR_INVALID_ARGUMENT, "99", run.append_tokens({99}));
    CHECK(TAKE(run.step()).token() == 1);
    const oxp::tensor_view present = TAKE(run.tensor("decoder.present"));
    CHECK(present.rank() == 4 && present.shape()[2] == 3 && present.byte_len() == 96);
    CHECK(TAKE(present.as<float>())[3] == 1 && TAKE(present.as<float>())[16] == 1);
    FAILS(OXP_ERR_DTYPE_MISMATCH, "not of type T", present.as<oxp::bfloat16>());

    std::array<float, 8> copy{};
    copy.fill(9);
    std::int64_t dims[2] = {};
    oxp::tensor_room none;
    FAILS(OXP_ERR_BUFFER_TOO_SMALL, "rank 2", run.copy_tensor("vision_encoder.features", none));
    CHECK(none.byte_len() == 32 && none.rank() == 2 && none.dtype() == oxp::dtype::float32);
    oxp::tensor_room room(copy, dims);
    TAKE(run.copy_tensor("vision_encoder.features", room));
    CHECK(TAKE(room.as<float>()).size() == 8 && copy[7] == 0 && room.shape()[1] == 8);

    /* Wrong addresses, dtypes and lengths. */
    const std::array<float, 7> seven{};
    const std::array<std::int32_t, 8> integers{};
    const std::int64_t flat[] = {8};
    FAILS(OXP_ERR_UNKNOWN_COMPONENT, "nobody", run.set_input("nobody.x", black, {1, 8}));
    FAILS(OXP_ERR_UNKNOWN_PORT, "pixels", run.set_input("vision_encoder.pixels", black, {1, 8}));
    FAILS(OXP_ERR_INVALID_TENSOR, "byte_len 28", run.set_input("vision_encoder.pixel_values", seven, {1, 8}));
    FAILS(OXP_ERR_DTYPE_MISMATCH, "int32", run.set_input("vision_encoder.pixel_values", integers, {1, 8}));
    FAILS(OXP_ERR_SHAPE_MISMATCH, "rank", run.set_input("vision_encoder.pixel_values", black, flat));
    const told_error told =
        error_of([&] { return run.set_input("vision_encoder.pixel_values", integers, {1, 8}); });
    CHECK(told.component == "vision_encoder" && told.port == "pixel_values");

    /* Another image, another token. */
    std::vector<float> bright(8);
    bright[4] = 10;
    TAKE(run.set_input("vision_encoder.pixel_values", bright, {1, 8}));
    CHECK(TAKE(run.pending_text()).empty());
    TAKE(run.set_seed(7));
    TAKE(run.rewind(1));
    CHECK(TAKE(run.step()).token() == 5);
    TAKE(run.clear_input("vision_encoder.pixel_values"));
    TAKE(run.rewind(1));
    FAILS(OXP_ERR_MISSING_INPUT, "pixel_values", run.step());

    /* The host chooses. */
    run = start(pipeline, 10);
    TAKE(run.forward());
    const oxp::span<const float> logits = TAKE(run.logits());
    CHECK(logits.size() == 8 && logits[4] == 1 && logits[0] == 0);
    CHECK(TAKE(run.force_token(0)).text() == "zero");
    CHECK(TAKE(run.step()).token() == 1);
    FAILS(OXP_ERR_INVALID_ARGUMENT, "99", run.force_token(99));

    /* An answer that follows a grammar: a space before each word of a text that goes on. */
    auto bound = start(pipeline, 10);
    TAKE(bound.set_constraint(oxp::constraint::regex, " one( two)?"));
    CHECK(TAKE(bound.step()).token() == 1);
    const oxp::event follows = TAKE(bound.step());
    CHECK(follows.token() == 2 && follows.text_offset() == 3 && !follows.forced());
    CHECK(TAKE(bound.generate_all()) == oxp::finish_reason::end_of_text);
    FAILS(OXP_ERR_CONSTRAINT, "regular expression", bound.set_constraint(oxp::constraint::regex, "("));
    TAKE(bound.set_constraint(oxp::constraint::none));

    /* Phases. */
    TAKE(run.finish());
    const auto doubled = TAKE(TAKE(run.tensor("summary.doubled")).as<float>());
    CHECK(doubled.back() == 2);
    const float three[] = {1, 2, 3};
    FAILS(OXP_ERR_MISSING_INPUT, "value", run.execute("probe"));
    TAKE(run.set_input("probe.value", three, {3}));
    TAKE(run.execute("probe"));
    CHECK(TAKE(TAKE(run.tensor("probe.doubled")).as<float>())[2] == 6);
    FAILS(OXP_ERR_INVALID_STATE, "every_step", run.execute("decoder"));

    /* Images and sound, as the package's preprocessing takes them. */
    const std::array<unsigned char, 6> two_pixels{};
    TAKE(run.add_image_rgb(two_pixels, 2, 1));
    CHECK(TAKE(TAKE(run.tensor("probe.value")).as<float>())[1] == 2);
    FAILS(OXP_ERR_INVALID_MEDIA, "no known format", run.add_image(two_pixels));
    FAILS(OXP_ERR_INVALID_MEDIA, "no known format", run.set_audio(two_pixels));
    TAKE(run.clear_images());
    const std::array<float, 2> wave{0.5f, 0.25f};
    TAKE(run.set_audio_samples(wave, 1, 8000));
    CHECK(TAKE(TAKE(run.tensor("probe.value")).as<float>())[1] == 0.25f);
    TAKE(run.clear_audio());

    /* Text. */
    auto spoken = TAKE(oxp::run::create(pipeline));
    TAKE(spoken.set_input("vision_encoder.pixel_values", black, {1, 8}));
    CHECK(TAKE(spoken.append_text("one three")) == 2 && TAKE(spoken.step()).text() == "four");
    FAILS(OXP_ERR_INVALID_UTF8, "text", spoken.append_text("\xff"));
}

/* Once set up, nothing that this header does allocates: not a step, not the range, not
 * looking at values, not a callback. */
static void allocates_nothing(const oxp::pipeline &pipeline)
{
    const auto stop = TAKE(oxp::cancel::create());
    auto run = start(pipeline, 40);
    std::int32_t sum = 0;
    std::size_t letters = 0;
    float likely = 0;
    int before = allocations;
    for (int again = 0; again < 5; again++) {
        for (const auto &event : run.generate(stop)) {
            sum += event.token();
            letters += event.text().size();
            likely += TAKE(run.logits())[static_cast<std::size_t>(event.token())];
            sum += static_cast<std::int32_t>(TAKE(TAKE(run.tensor("decoder.logits")).as<float>()).size() % 8);
        }
        TAKE(run.rewind(1));
        sum += TAKE(run.step()).token();
        TAKE(run.set_input("vision_encoder.pixel_values", black, {1, 8}));
        TAKE(run.rewind(0));
        TAKE(run.append_tokens({3}));
    }
    CHECK(allocations == before && sum == 5 * (4 + 5 + 6 + 7 + 4) && letters == 45 && likely == 20);

    /* With a callback the C function is not left out of the count, so only of one that is not C++. */
    if (backend == "native") {
        before = allocations;
        const auto reason = TAKE(run.generate([&](const oxp::event &event) { return (sum += event.token()) > 0; }, stop));
        CHECK(allocations == before && reason == oxp::finish_reason::end_of_text);
    }
#ifndef UNCOUNTED
    /* The control. */
    before = allocations;
    CHECK(TAKE(run.tokens()).size() > 0 && allocations > before);
#endif
}

static void loggers()
{
    struct sink {
        std::atomic<int> lines{0};
        std::atomic<int> ends{0};
    } said;
    struct logger {
        sink *to;
        explicit logger(sink *into) : to(into) {}
        logger(logger &&other) noexcept : to(std::exchange(other.to, nullptr)) {}
        ~logger()
        {
            if (to != nullptr)
                to->ends += 1;
        }
        void operator()(oxp::log_level level, std::string_view line) const
        {
            to->lines += level >= oxp::log_level::debug && level <= oxp::log_level::error && !line.empty() ? 1 : -99;
#if OXPIPE_COMPILER_THROWS
            throw thrown_by_test{19};
#endif
        }
    };
    auto options = TAKE(oxp::pipeline_options::create());
    TAKE(options.set("backend", backend));
    auto runtime = TAKE(oxp::runtime::create({}, logger(&said)));
    auto pipeline = TAKE(oxp::pipeline::open(package, options, runtime));
    runtime.reset();
    CHECK(said.ends == 0);
    pipeline.reset();
    CHECK(said.ends == 1 && said.lines > 0);
    FAILS(OXP_ERR_INVALID_HANDLE, "options", oxp::runtime::create(oxp::runtime_options(), logger(&said)));
    CHECK(said.ends == 2);
    auto settings = TAKE(oxp::runtime_options::create());
    TAKE(settings.set("threads", 1));
    CHECK(static_cast<bool>(TAKE(oxp::runtime::create(settings))));
}

static void from_memory()
{
    static const char *const names[] = {"inference_metadata.yaml", "tokenizer.json", "tokenizer_config.json",
                                        "vision_encoder.onnx",     "embedding.onnx", "decoder.onnx",
                                        "summary.onnx",            "probe.onnx"};
    std::vector<std::string> contents;
    std::vector<oxp::file_view> files;
    contents.reserve(std::size(names));
    for (const char *name : names) {
        std::ifstream file(package + "/" + name, std::ios::binary);
        contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
        files.emplace_back(name, contents.back());
    }
    auto options = TAKE(oxp::pipeline_options::create());
    TAKE(options.set("backend", backend));
    const auto pipeline = TAKE(oxp::pipeline::open_memory(files, options));
    auto run = start(pipeline, 10);
    CHECK(TAKE(run.step()).token() == 4);
    std::uint64_t done = 0;
    (void)TAKE(oxp::pipeline::open_memory(files, options, {},
                                          [&](const oxp::load_progress &state) { done = state.done(); }));
    CHECK(done == 5);
    FAILS(OXP_ERR_INVALID_PACKAGE, "", oxp::pipeline::open_memory({}, options));
}

/* A host's hook and sampler, which are kept, and what they were chosen by. */
static void hosts_choice(const oxp::pipeline &pipeline)
{
    const auto alive = std::make_shared<int>(0);
    auto run = start(pipeline, 10);
    TAKE(run.set_logits_hook([alive](oxp::span<float> logits, oxp::span<const std::int32_t> tokens) {
        CHECK(logits.size() == 8 && tokens.size() >= 1);
        *alive += 1;
        logits[2] = 5;
    }));
    CHECK(alive.use_count() == 2 && TAKE(run.step()).token() == 2 && *alive == 1);
    TAKE(run.set_logits_hook([](oxp::span<float>, oxp::span<const std::int32_t>) { return false; }));
    CHECK(alive.use_count() == 1);
    FAILS(OXP_ERR_CANCELLED, "logits hook", run.step());
    TAKE(run.clear_logits_hook());
    CHECK(TAKE(run.step()).token() == 3);
    TAKE(run.set_sampler([alive](oxp::span<const float> logprobs, oxp::span<const std::int32_t>) {
        CHECK(logprobs.size() == 8);
        return *alive == 1 ? std::optional<std::int32_t>(6) : std::nullopt;
    }));
    CHECK(TAKE(run.step()).token() == 6);
    *alive = 2;
    FAILS(OXP_ERR_CANCELLED, "sampler", run.step());
    FAILS(OXP_ERR_INVALID_STATE, "logprobs", run.get_logprobs());
    TAKE(run.clear_sampler());
    CHECK(alive.use_count() == 1);
#if OXPIPE_COMPILER_THROWS
    TAKE(run.set_sampler([](oxp::span<const float>, oxp::span<const std::int32_t>) -> std::int32_t {
        throw thrown_by_test{17};
    }));
    FAILS(OXP_ERR_CANCELLED, "sampler", run.step());
#endif
    auto searching = TAKE(oxp::run_options::create());
    TAKE(searching.set("num_beams", 3));
    TAKE(searching.set("max_tokens", 3));
    auto searched = TAKE(oxp::run::create(pipeline, searching));
    TAKE(searched.set_input("vision_encoder.pixel_values", black, {1, 8}));
    TAKE(searched.append_tokens({3}));
    CHECK(TAKE(searched.generate_all()) == oxp::finish_reason::max_tokens);
    CHECK(TAKE(searched.sequence_count()) == 1 && TAKE(searched.get_sequence(0)).tokens == ids({4, 5, 6}));
    FAILS(OXP_ERR_INVALID_ARGUMENT, "no sequence 1", searched.get_sequence(1));

    auto options = TAKE(oxp::run_options::create());
    TAKE(options.set("logprobs", 2));
    auto explained = TAKE(oxp::run::create(pipeline, options));
    TAKE(explained.set_input("vision_encoder.pixel_values", black, {1, 8}));
    TAKE(explained.append_tokens({3}));
    const float logprob = TAKE(explained.step()).logprob();
    const auto logprobs = TAKE(explained.get_logprobs(OXP_LOGPROBS_PROCESSED));
    CHECK(logprobs.top.size() == 2 && logprobs.top[0].token == 4 && logprobs.chosen == logprob);
}

/* A fork and a loaded run go on as the run does. */
static void forks(const oxp::pipeline &of)
{
    oxp::run run = start(of, 10);
    TAKE(run.step());
    oxp::run fork = TAKE(run.fork());
    const std::vector<std::uint8_t> bytes = TAKE(run.save());
    oxp::run loaded = TAKE(oxp::run::load(of, bytes));
    TAKE(run.rewind(1));
    CHECK(TAKE(fork.step()).token() == 5);
    CHECK(TAKE(loaded.step()).token() == 5);
    CHECK(TAKE(run.step()).token() == 4);
}

/* Two runs, stepped together until they leave. */
static void batches(const oxp::pipeline &of)
{
    oxp::batch batch = TAKE(oxp::batch::create(of));
    oxp::run one = start(of, 10);
    oxp::run two = start(of, 10);
    TAKE(batch.add(one));
    TAKE(batch.add(two));
    TAKE(batch.remove(two));
    TAKE(batch.add(two));
    ids tokens;
    int ended = 0;
    while (TAKE(batch.count()) > 0) {
        TAKE(batch.step([&](const oxp::batch_step &step) {
            CHECK(step.status == OXP_OK && step.message.empty());
            ended += step.event.finished() ? 1 : 0;
            if (step.run == two.get())
                tokens.push_back(step.event.token());
        }));
    }
    CHECK(ended == 2 && tokens == (ids{4, 5, 6, 7}));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    package = argv[1];
    backend = argv[2];
    return check_program([] {
        const oxp::pipeline pipeline = open();
        known(pipeline);
        steps(pipeline);
        ranges(pipeline);
        callbacks(pipeline);
        other_threads(pipeline);
        values(pipeline);
        hosts_choice(pipeline);
        allocates_nothing(pipeline);
        forks(pipeline);
        batches(pipeline);
        loggers();
        from_memory();
    });
}
