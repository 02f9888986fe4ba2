/* The types of oxpipe.hpp that need no model: what may be made of what, spans, 16-bit floats,
 * dtypes, errors, the library's version. */
#include "check.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <vector>
#if __cplusplus >= 202002L
#include <ranges>
#include <span>
#endif

/* A half of somebody else's. */
struct their_half {
    unsigned short bits;
};
template <>
struct oxp::dtype_of<their_half> {
    static constexpr auto value = oxp::dtype::float16;
};

/* Handles are moved and never copied, and no larger than a pointer. */
template <class Handle>
constexpr bool is_handle = !std::is_copy_constructible_v<Handle> && !std::is_copy_assignable_v<Handle> &&
                           std::is_nothrow_move_constructible_v<Handle> && std::is_nothrow_move_assignable_v<Handle> &&
                           std::is_nothrow_default_constructible_v<Handle> && sizeof(Handle) == sizeof(void *);
static_assert(is_handle<oxp::cancel> && is_handle<oxp::runtime_options> && is_handle<oxp::runtime>);
static_assert(is_handle<oxp::session> && is_handle<oxp::outputs> && is_handle<oxp::pipeline> && is_handle<oxp::run>);
static_assert(is_handle<oxp::tokenizer> && is_handle<oxp::decode_stream> && is_handle<oxp::chat_template>);
/* Options of another kind are a compiler's error. */
static_assert(!std::is_convertible_v<const oxp::run_options &, oxp::maybe<oxp::pipeline_options>>);
static_assert(!std::is_convertible_v<oxp_run *, oxp::run>);

/* Spans. */
static_assert(std::is_convertible_v<std::vector<int> &, oxp::span<int>>);
static_assert(std::is_convertible_v<const std::vector<int> &, oxp::span<const int>>);
static_assert(std::is_convertible_v<std::array<int, 3> &, oxp::span<int>>);
static_assert(std::is_convertible_v<int (&)[3], oxp::span<const int>>);
static_assert(std::is_convertible_v<oxp::span<int>, oxp::span<const int>>);
static_assert(!std::is_convertible_v<oxp::span<const int>, oxp::span<int>>);
static_assert(!std::is_convertible_v<const std::vector<int> &, oxp::span<int>>);
static_assert(!std::is_convertible_v<std::vector<int>, oxp::span<int>>);
static_assert(!std::is_convertible_v<std::vector<int> &, oxp::span<long>>);
static_assert(!std::is_convertible_v<std::vector<bool> &, oxp::span<bool>>);
static_assert(!std::is_constructible_v<oxp::span<const int>, int, int>, "{0, 5} are dims, not a null pointer");
#if __cplusplus >= 202002L
static_assert(std::is_convertible_v<std::span<int>, oxp::span<int>>);
static_assert(std::is_convertible_v<oxp::span<int>, std::span<int>>);
static_assert(std::is_convertible_v<oxp::span<int>, std::span<const int>>);
static_assert(std::ranges::contiguous_range<oxp::span<int>> && std::ranges::borrowed_range<oxp::span<int>>);
static_assert(std::ranges::view<oxp::span<int>>);
static_assert(std::ranges::input_range<oxp::generation>);
#endif

/* Dtypes. */
static_assert(oxp::dtype_of<float>::value == oxp::dtype::float32 && oxp::dtype_of<bool>::value == oxp::dtype::boolean);
static_assert(oxp::dtype_of<signed char>::value == oxp::dtype::int8);
static_assert(oxp::dtype_of<unsigned char>::value == oxp::dtype::uint8);
static_assert(oxp::dtype_of<long>::value == oxp::dtype_of<long long>::value && sizeof(long) == 8);
static_assert(oxp::dtype_of<std::uint32_t>::value == oxp::dtype::uint32);
static_assert(oxp::dtype_of<std::int16_t>::value == oxp::dtype::int16);
static_assert(oxp::has_dtype<their_half> && oxp::has_dtype<oxp::bfloat16>);
static_assert(!oxp::has_dtype<double> && !oxp::has_dtype<char> && !oxp::has_dtype<char16_t> && !oxp::has_dtype<void *>);
#if defined(OXPIPE_HAS_FLOAT16)
static_assert(oxp::has_dtype<oxp::detail::compiler_float16>);
#endif
static_assert(std::is_trivially_copyable_v<oxp::float16> && std::is_trivially_copyable_v<oxp::bfloat16>);

/* A view does not take dims that end before it: braces. */
template <class Data, class = void>
constexpr bool takes_braces = false;
template <class Data>
constexpr bool takes_braces<Data, std::void_t<decltype(oxp::tensor_view(std::declval<Data &>(), {1, 2}))>> = true;
static_assert(!takes_braces<std::vector<float>>);

static void spans()
{
    std::vector<int> three = {1, 2, 3};
    oxp::span<int> all = three;
    CHECK(all.size() == 3 && all.size_bytes() == 12 && all.data() == three.data() && !all.empty());
    CHECK(all.front() == 1 && all.back() == 3 && all[1] == 2);
    CHECK(all.first(2).back() == 2 && all.last(2).front() == 2 && all.subspan(1, 1)[0] == 2);
    int sum = 0;
    for (int each : all)
        sum += each;
    CHECK(sum == 6);
    all[0] = 5;
    CHECK(three[0] == 5 && oxp::span<int>().empty());
    int plain[2] = {7, 8};
    CHECK(oxp::span(plain).size() == 2 && oxp::span(plain, 1).back() == 7 && oxp::span(three).size() == 3);
#if __cplusplus >= 202002L
    std::span<const int> standard = all;
    CHECK(standard.size() == 3 && standard[0] == 5 && oxp::span<const int>(standard).data() == three.data());
#endif
}

static float power(int exponent)
{
    return std::ldexp(1.0f, exponent);
}

static void halves()
{
    /* Every half, by the definition of the format; and back. */
    bool values = true;
    bool back = true;
    for (std::uint32_t bits = 0; bits < 0x10000; bits++) {
        const auto half = oxp::float16::from_bits(static_cast<std::uint16_t>(bits));
        const float value = static_cast<float>(half);
        const int exponent = static_cast<int>(bits >> 10 & 31);
        const float fraction = static_cast<float>(bits & 1023);
        float wanted = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
        if (exponent == 31)
            wanted = fraction == 0 ? std::numeric_limits<float>::infinity() : std::nanf("");
        wanted = (bits & 0x8000) != 0 ? -wanted : wanted;
        if (std::isnan(wanted)) {
            values = values && std::isnan(value);
            back = back && std::isnan(static_cast<float>(oxp::float16(value)));
        } else {
            values = values && value == wanted && std::signbit(value) == std::signbit(wanted);
            back = back && oxp::float16(value).bits() == bits;
        }
    }
    CHECK(values && back);
    /* Between two of them: the nearer, on a tie the even one. */
    CHECK(oxp::float16(1 + power(-11)).bits() == 0x3c00 && oxp::float16(1 + 3 * power(-11)).bits() == 0x3c02);
    CHECK(oxp::float16(1 + power(-11) + power(-20)).bits() == 0x3c01);
    CHECK(oxp::float16(power(-25)).bits() == 0 && oxp::float16(power(-25) * 1.25f).bits() == 1);
    CHECK(oxp::float16(power(-24) * 1.5f).bits() == 2 && oxp::float16(power(-24) * 2.5f).bits() == 2);
    CHECK(oxp::float16(power(-14) - power(-26)).bits() == 0x400 && oxp::float16(-power(-14)).bits() == 0x8400);
    CHECK(oxp::float16(65519.0f).bits() == 0x7bff && oxp::float16(65520.0f).bits() == 0x7c00);
    CHECK(oxp::float16(std::numeric_limits<float>::max()).bits() == 0x7c00 && oxp::float16(-0.0f).bits() == 0x8000);

    CHECK(oxp::bfloat16(1.0f).bits() == 0x3f80 && static_cast<float>(oxp::bfloat16::from_bits(0xc000)) == -2);
    CHECK(oxp::bfloat16(1 + power(-8)).bits() == 0x3f80 && oxp::bfloat16(1 + 3 * power(-8)).bits() == 0x3f82);
    CHECK(oxp::bfloat16(std::numeric_limits<float>::max()).bits() == 0x7f80);
    CHECK(std::isnan(static_cast<float>(oxp::bfloat16(std::nanf("")))));
}

static void descriptors()
{
    const std::vector<float> data(6);
    const std::int64_t shape[] = {2, 3};
    const oxp::tensor_view view(data, shape);
    CHECK(view.dtype() == oxp::dtype::float32 && view.rank() == 2 && view.shape()[1] == 3);
    CHECK(view.data() == data.data() && view.byte_len() == 24 && view.is<float>() && !view.is<int>());
    CHECK(TAKE(view.as<float>()).size() == 6);
    FAILS(OXP_ERR_DTYPE_MISMATCH, "not of type T", view.as<std::int32_t>());
    const auto one = oxp::span<const float>(data).first(1);
    const oxp::tensor_view scalar(one, {});
    CHECK(scalar.rank() == 0 && scalar.byte_len() == 4);
    const auto *shifted = reinterpret_cast<const unsigned char *>(data.data()) + 1;
    FAILS(OXP_ERR_INVALID_TENSOR, "not aligned",
          oxp::tensor_view(oxp::dtype::float32, shifted, 4, {}).as<float>());

    std::array<their_half, 4> halves{};
    std::int64_t dims[1] = {0};
    const oxp::tensor_room room(halves, dims);
    CHECK(room.capacity() == 8 && room.data() == halves.data());
    FAILS(OXP_ERR_DTYPE_MISMATCH, "not of type T", room.as<their_half>());
    CHECK(oxp::named_view("x", view).name() == "x" && oxp::named_view("x", view).tensor().byte_len() == 24);
}

static void library()
{
    TAKE(oxp::check_abi());
    CHECK(oxp::abi_version() == OXP_ABI_VERSION && oxp::struct_size(OXP_STRUCT_EVENT) == sizeof(oxp_event));
    const std::string version = TAKE(oxp::version());
    CHECK(version.size() >= 5 && version.find('.') != std::string::npos);
    CHECK(std::string_view(oxp::status_name(OXP_ERR_BUSY)) == "OXP_ERR_BUSY");
    CHECK(std::string_view(oxp::dtype_name(oxp::dtype::bfloat16)) == "bfloat16");
    CHECK(oxp::dtype_size(oxp::dtype::int64) == 8 && oxp::dtype_size(oxp::dtype::none) == 0);
    CHECK(TAKE(oxp::backend_is_built_in(oxp::backend::native)) || TAKE(oxp::backend_is_built_in(oxp::backend::ort)));
    FAILS(OXP_ERR_INVALID_ARGUMENT, "backend", oxp::backend_is_built_in(static_cast<oxp::backend>(9)));
}

static void events()
{
    const oxp::event none;
    CHECK(none.loop_step() == 0 && none.loop_step_count() == 0 && none.latent_count() == 0);
    CHECK(none.codes() == nullptr && none.code_count() == 0);
    const float value = 2.5f;
    const oxp::tensor_view scalar(oxp::span<const float>(&value, 1), {});
    oxp_event raw = OXP_EVENT_INIT;
    raw.loop_step = 2;
    raw.loop_step_count = 5;
    raw.latents = &scalar.raw();
    raw.latent_count = 1;
    const oxp::event event(raw);
    CHECK(event.loop_step() == 2 && event.loop_step_count() == 5 && event.latent_count() == 1);
    const auto latent = TAKE(event.latent(0).as<float>());
    CHECK(event.latent(0).rank() == 0 && latent.size() == 1 && latent[0] == value);
}

static void options_and_cancel()
{
    auto options = TAKE(oxp::run_options::create());
    TAKE(options.set("max_tokens", 12));
    TAKE(options.set("max_tokens", std::uint64_t{18446744073709551615u}));
    TAKE(options.set("stop_on_eos", false));
    TAKE(options.set("logits", "all"));
    FAILS(OXP_ERR_INVALID_OPTION, "-9223372036854775808",
          options.set("max_tokens", std::numeric_limits<std::int64_t>::min()));
    FAILS(OXP_ERR_INVALID_OPTION, "\"-7\"", options.set("chunk_size", -7));
    FAILS(OXP_ERR_UNKNOWN_OPTION, "max_tokens", options.set("tokens", 1));

    /* Moved from, and moved to. */
    oxp::run_options other = std::move(options);
    CHECK(!options && other); /* NOLINT: an object that was moved from is empty */
    FAILS(OXP_ERR_INVALID_HANDLE, "", options.set("max_tokens", 1));
    options = std::move(other);
    TAKE(options.set("max_tokens", 1));
    auto &same = options;
    options = std::move(same);
    CHECK(options && !other);
    oxp_options *raw = options.release();
    CHECK(raw != nullptr && !options);
    oxp::run_options(raw).reset();

    const auto cancel = TAKE(oxp::cancel::create());
    CHECK(!TAKE(cancel.is_requested()));
    TAKE(cancel.request());
    CHECK(TAKE(cancel.is_requested()));
    TAKE(cancel.withdraw());
    CHECK(!TAKE(cancel.is_requested()));
    FAILS(OXP_ERR_INVALID_HANDLE, "", oxp::cancel().request());
}

static void errors()
{
    const told_error io = error_of([] { return oxp::session::open("/no/such/model.onnx"); });
    CHECK(io.code == OXP_ERR_IO && io.file == "/no/such/model.onnx" && io.component.empty() && io.port.empty());
    /* Taken over from C. */
    oxp_error *raw = nullptr;
    CHECK(oxp_cancel_request(nullptr, &raw) == OXP_ERR_INVALID_HANDLE && raw != nullptr);
    const oxp::error taken(raw);
    CHECK(taken.code() == OXP_ERR_INVALID_HANDLE && taken.get() == raw && !taken.message().empty());
#if OXPIPE_THROWS
    /* Copies share the C error, and outlive the first. */
    std::exception_ptr kept;
    try {
        (void)oxp::tokenizer::open_memory(std::string_view("{}"));
    } catch (const std::exception &) {
        kept = std::current_exception();
    }
    try {
        std::rethrow_exception(kept);
    } catch (oxp::error &error) {
        const oxp::error copy = error;
        CHECK(copy.code() == OXP_ERR_TOKENIZER && copy.get() == error.get() && copy.message() == error.message());
    }
#else
    auto result = oxp::tokenizer::open_memory(std::string_view("{}"));
    CHECK(!result && result.error().code() == OXP_ERR_TOKENIZER && result.error().get() != nullptr);
    const oxp::error moved = std::move(result).error();
    CHECK(moved.message().size() > 10);
    oxp::result<int> number = 3;
    CHECK(number && *number == 3 && number.value() == 3 && std::move(number).value_or(4) == 3);
    CHECK(oxp::result<int>(oxp::error(OXP_ERR_BUSY, "own text")).value_or(4) == 4);
    CHECK(oxp::result<void>().has_value());
    oxp::result<std::string> text = std::string("four");
    CHECK(text->size() == 4);
#endif
}

int main()
{
    return check_program([] {
        spans();
        halves();
        descriptors();
        library();
        events();
        options_and_cancel();
        errors();
    });
}
