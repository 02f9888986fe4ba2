/* One graph through oxpipe.hpp: what is known about it, the forms of running it, spans of
 * every dtype, lengths that are wrong, no allocation. Arguments: the folder of models of
 * tests/capi/models.rs, the backend. session.c says what the models compute. */
#include "check.hpp"

#include <array>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

static std::string folder;
static std::string backend;

static oxp::session open(const std::string &file)
{
    auto options = TAKE(oxp::session_options::create());
    TAKE(options.set("backend", backend));
    return TAKE(oxp::session::open(folder + "/" + file, options));
}

static void known(const oxp::session &session)
{
    CHECK(TAKE(session.input_count()) == 1 && TAKE(session.output_count()) == 2);
    const oxp::port_info x = TAKE(session.input(0));
    CHECK(x.name() == "x" && x.dtype() == oxp::dtype::float32 && x.type_name() == "float32" && x.rank() == 2);
    CHECK(x.dims()[0] == -1 && x.dims()[1] == 4 && x.dim_name(0) == "n" && x.dim_name(1).empty());
    CHECK(!x.is_optional() && x.has_rank());
    CHECK(TAKE(session.output(1)).name() == "total");
    FAILS(OXP_ERR_OUT_OF_RANGE, "index 1", session.input(1));
    bool seen = false;
    for (std::uint64_t at = 0; at < TAKE(session.metadata_count()); at++) {
        const oxp::metadata_entry entry = TAKE(session.metadata(at));
        seen = seen || (entry.key == "made_for" && entry.value == "capi tests");
    }
    CHECK(seen);
    const oxp::backend_choice choice = TAKE(session.chosen_backend());
    CHECK(choice.which == (backend == "native" ? oxp::backend::native : oxp::backend::ort) && !choice.reason.empty());
}

static void runs(const oxp::session &session)
{
    const std::vector<float> x = {0, 1, 2, 3, 4, 5, 6, 7};
    const std::int64_t shape[] = {2, 4};
    std::array<float, 8> y{};
    std::array<float, 2> total{};
    std::int64_t y_shape[2] = {};
    std::int64_t total_shape[1] = {};
    const oxp::named_view inputs[] = {{"x", oxp::tensor_view(x, shape)}};
    oxp::named_room rooms[] = {{"total", oxp::tensor_room(total, total_shape)}, {"y", oxp::tensor_room(y, y_shape)}};

    const std::uint64_t before = TAKE(session.runs());
    TAKE(session.output_bound(inputs, rooms));
    CHECK(rooms[0].tensor().byte_len() == 8 && rooms[1].tensor().byte_len() == 32 && y_shape[0] == 2);
    CHECK(TAKE(session.runs()) == before);

    TAKE(session.run(inputs, rooms));
    CHECK(y[0] == 1 && y[7] == 15 && total[0] == 6 && total[1] == 22);
    CHECK(rooms[1].name() == "y" && rooms[1].tensor().rank() == 2 && rooms[1].tensor().shape()[1] == 4);
    CHECK(TAKE(rooms[0].tensor().as<float>())[1] == 22);
    FAILS(OXP_ERR_DTYPE_MISMATCH, "not of type T", rooms[0].tensor().as<std::int32_t>());
    y[7] = 0;
    TAKE(session.run({{"x", oxp::tensor_view(x, shape)}}, oxp::span(rooms).last(1)));
    CHECK(y[7] == 15);

    const oxp::outputs all = TAKE(session.run_alloc(inputs));
    CHECK(TAKE(all.count()) == 2 && TAKE(all.at(0)).name() == "y");
    CHECK(TAKE(TAKE(all.at(0)).tensor().as<float>())[7] == 15);
    CHECK(TAKE(TAKE(all.tensor("total")).as<float>())[1] == 22);
    FAILS(OXP_ERR_UNKNOWN_PORT, "nothing", all.tensor("nothing"));
    FAILS(OXP_ERR_OUT_OF_RANGE, "2", all.at(2));
    const char *const names[] = {"total"};
    const oxp::outputs one = TAKE(session.run_alloc(inputs, names));
    CHECK(TAKE(one.count()) == 1 && TAKE(one.at(0)).name() == "total");
    CHECK(TAKE(TAKE(session.run_alloc(inputs, oxp::span<const char *const>())).count()) == 0);
    CHECK(TAKE(TAKE(session.run_alloc({{"x", oxp::tensor_view(x, shape)}})).count()) == 2);
    const char *const unended[] = {"yes"};
    const std::uint64_t lengths[] = {1};
    CHECK(TAKE(TAKE(session.run_alloc(inputs, unended, lengths, 1)).at(0)).name() == "y");
}

static void wrong(const oxp::session &session)
{
    const std::vector<float> x = {0, 1, 2, 3, 4, 5, 6};
    const std::vector<std::int32_t> integers(8);
    const std::int64_t shape[] = {2, 4};
    const std::int64_t narrow[] = {7, 1};
    std::array<float, 7> y{};
    std::array<float, 8> enough{};
    std::int64_t dims[2] = {};
    oxp::named_room rooms[] = {{"y", oxp::tensor_room(y, dims)}};
    FAILS(OXP_ERR_INVALID_TENSOR, "byte_len 28", session.run({{"x", oxp::tensor_view(x, shape)}}, rooms));
    FAILS(OXP_ERR_SHAPE_MISMATCH, "[7, 1]", session.run({{"x", oxp::tensor_view(x, narrow)}}, rooms));
    FAILS(OXP_ERR_DTYPE_MISMATCH, "int32", session.run({{"x", oxp::tensor_view(integers, shape)}}, rooms));
    FAILS(OXP_ERR_MISSING_INPUT, "\"x\"", session.run({}, rooms));
    FAILS(OXP_ERR_BUFFER_TOO_SMALL, "capacity is 28", session.run({{"x", oxp::tensor_view(enough, shape)}}, rooms));
    CHECK(rooms[0].tensor().byte_len() == 32 && rooms[0].tensor().capacity() == 28 && rooms[0].tensor().rank() == 2);
    FAILS(OXP_ERR_OVERLAP, "overlap",
          [&] {
              oxp::named_room same[] = {{"y", oxp::tensor_room(enough, dims)}};
              return session.run({{"x", oxp::tensor_view(enough, shape)}}, same);
          }());

    /* The port, and the component of that name, are told beside the message. */
    auto options = TAKE(oxp::session_options::create());
    TAKE(options.set("name", "decoder"));
    TAKE(options.set("backend", backend));
    const auto named = TAKE(oxp::session::open(folder + "/affine.onnx", options));
    const told_error told = error_of([&] { return named.run({{"x", oxp::tensor_view(integers, shape)}}, rooms); });
    CHECK(told.code == OXP_ERR_DTYPE_MISMATCH && told.component == "decoder" && told.port == "x");

    const auto stop = TAKE(oxp::cancel::create());
    TAKE(stop.request());
    oxp::named_room room[] = {{"y", oxp::tensor_room(enough, dims)}};
    FAILS(OXP_ERR_CANCELLED, "", session.run({{"x", oxp::tensor_view(integers, shape)}}, room, stop));
}

/* Elements of one type go in and come out as they were. */
template <class T>
static void one_dtype(oxp::dtype type)
{
    const auto session = open("identity_" + std::to_string(static_cast<std::uint32_t>(type)) + "_1.onnx");
    CHECK(oxp::dtype_of<T>::value == type && TAKE(session.input(0)).dtype() == type);
    std::array<T, 5> source{};
    std::array<T, 5> target{};
    auto *bytes = reinterpret_cast<unsigned char *>(source.data());
    for (std::size_t at = 0; at < sizeof source; at++)
        bytes[at] = static_cast<unsigned char>(type == oxp::dtype::boolean ? at % 2 : 37 * at + 11);
    const std::int64_t shape[] = {5};
    std::int64_t dims[1] = {};
    const oxp::tensor_view x(source, shape);
    CHECK(x.dtype() == type && x.byte_len() == sizeof source);
    oxp::named_room rooms[] = {{"y", oxp::tensor_room(target, dims)}};
    TAKE(session.run({{"x", x}}, rooms));
    CHECK(dims[0] == 5 && TAKE(rooms[0].tensor().template as<T>()).data() == target.data());
    CHECK(std::memcmp(source.data(), target.data(), sizeof source) == 0);
    const auto outputs = TAKE(session.run_alloc({{"x", x}}));
    const oxp::span<const T> y = TAKE(TAKE(outputs.tensor("y")).template as<T>());
    CHECK(y.size() == 5 && std::memcmp(source.data(), y.data(), sizeof source) == 0);
}

static void dtypes()
{
    one_dtype<float>(oxp::dtype::float32);
    one_dtype<std::uint8_t>(oxp::dtype::uint8);
    one_dtype<std::int8_t>(oxp::dtype::int8);
    one_dtype<std::uint16_t>(oxp::dtype::uint16);
    one_dtype<std::int16_t>(oxp::dtype::int16);
    one_dtype<std::int32_t>(oxp::dtype::int32);
    one_dtype<std::int64_t>(oxp::dtype::int64);
    one_dtype<long long>(oxp::dtype::int64);
    one_dtype<bool>(oxp::dtype::boolean);
    one_dtype<oxp::float16>(oxp::dtype::float16);
    one_dtype<std::uint32_t>(oxp::dtype::uint32);
    one_dtype<std::uint64_t>(oxp::dtype::uint64);
    one_dtype<oxp::bfloat16>(oxp::dtype::bfloat16);
    one_dtype<oxp::float8e4m3fn>(oxp::dtype::float8e4m3fn);
    one_dtype<oxp::float8e5m2>(oxp::dtype::float8e5m2);
#if defined(OXPIPE_HAS_FLOAT16)
    one_dtype<oxp::detail::compiler_float16>(oxp::dtype::float16);
#endif
}

static std::string contents(const std::string &name)
{
    std::ifstream file(folder + "/" + name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

static void memory()
{
    const std::string model = contents("external.onnx");
    const std::string weights = contents("weights.bin");
    auto options = TAKE(oxp::session_options::create());
    TAKE(options.set("backend", backend));
    const oxp::file_view files[] = {{"weights.bin", weights}};
    const auto session = TAKE(oxp::session::open_memory(model, files, options));
    const float x[] = {1, 2};
    const std::int64_t shape[] = {2};
    const auto outputs = TAKE(session.run_alloc({{"x", oxp::tensor_view(x, shape)}}));
    const auto y = TAKE(TAKE(outputs.tensor("y")).as<float>());
    CHECK(y.size() == 2 && y[0] == 11 && y[1] == 22);
    FAILS(OXP_ERR_INVALID_MODEL, "", oxp::session::open_memory(contents("random.onnx"), {}, options));
}

/* Any thread, any number at once; and none of an object that has been moved from. */
static void threads_and_moves()
{
    oxp::session session = open("affine.onnx");
    std::vector<std::thread> threads;
    std::array<float, 4> sums{};
    for (std::size_t at = 0; at < sums.size(); at++)
        threads.emplace_back([&session, &sums, at] {
            const float value = static_cast<float>(at);
            const float x[] = {value, value, value, value};
            const std::int64_t shape[] = {1, 4};
            float total[1] = {};
            std::int64_t dims[1] = {};
            oxp::named_room rooms[] = {{"total", oxp::tensor_room(total, dims)}};
            for (int again = 0; again < 50; again++)
                (void)session.run({{"x", oxp::tensor_view(x, shape)}}, rooms);
            sums[at] = total[0];
        });
    for (auto &each : threads)
        each.join();
    CHECK(sums[0] == 0 && sums[1] == 4 && sums[3] == 12 && TAKE(session.runs()) == 200);

    const oxp::session other = std::move(session);
    FAILS(OXP_ERR_INVALID_HANDLE, "", session.input_count()); /* NOLINT: that is the test */
    FAILS(OXP_ERR_INVALID_HANDLE, "", session.run_alloc({}));
    CHECK(TAKE(other.input_count()) == 1);
    /* An empty object is not a default. */
    const oxp::session_options none;
    FAILS(OXP_ERR_INVALID_HANDLE, "options", oxp::session::open(folder + "/affine.onnx", none));
    FAILS(OXP_ERR_INVALID_HANDLE, "runtime", oxp::session::open(folder + "/affine.onnx", {}, oxp::runtime()));
    FAILS(OXP_ERR_INVALID_HANDLE, "cancel", oxp::session::open(folder + "/affine.onnx", {}, {}, oxp::cancel()));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    folder = argv[1];
    backend = argv[2];
    return check_program([] {
        const oxp::session session = open("affine.onnx");
        known(session);
        runs(session);
        wrong(session);
        dtypes();
        memory();
        threads_and_moves();
    });
}
