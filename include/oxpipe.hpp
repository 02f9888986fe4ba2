/*
 * oxpipe for C++17 and later: header-only, over oxpipe.h, whose rules hold here too. What a
 * function does, what it needs and how it fails is written there, at the C function that it
 * names; here stands what C++ adds.
 *
 *     auto model = oxp::pipeline::open("models/smollm2-135m-instruct");
 *     auto run = oxp::run::create(model);
 *     run.append_text("Once upon a time");
 *     for (const auto &event : run.generate())
 *         std::cout << event.text();
 *
 * OWNERSHIP. Each C handle is a class that owns it: moved, never copied, freed at the end of
 * its scope, in any order. A default-constructed or moved-from object is empty: its methods
 * fail with OXP_ERR_INVALID_HANDLE, also where it is given as an argument that may be left
 * out. get() lends the C handle, release() gives it up, the constructor from a C handle takes
 * it over, so that both interfaces may be mixed.
 *
 * LIFETIME. std::string_view, oxp::span and what has `view` or `info` in its name borrow. What
 * is passed in is read during the call and not kept. What comes out lives as long as the C
 * function says, which each function here repeats. Owned copies are std::string and
 * std::vector, and have names of their own (text(), tokens(), render(), ...).
 *
 * THREADS. The methods of *shared* types are const: any thread, any number at once. Those of
 * *serial* types are not: one call at a time, on any thread.
 *
 * ERRORS. Functions throw oxp::error. With OXPIPE_NO_EXCEPTIONS defined, or where the compiler
 * has exceptions switched off, they return oxp::result<T> instead, in the manner of
 * std::expected. `oxp::returns<T>` below stands for T or for oxp::result<T>. Each failed
 * function has done nothing, as in C. Programs may be made of files of both sorts: their
 * names differ.
 *
 * CALLBACKS are any callables, called on the calling thread during the call, and referred to,
 * not copied. They return nothing, or a bool: true to go on, false to stop. What they throw
 * does not cross the library: the call is stopped and the exception thrown on from it. The
 * logger alone is kept: it is moved into memory that the runtime frees, may be called on any
 * thread, at once from several, and what it throws is dropped.
 *
 * MEMORY. Nothing is allocated that a C program would not: not by a step, not by a run into
 * buffers, not by the range over tokens. Owned copies allocate themselves, a logger itself,
 * a thrown error what throwing takes.
 *
 * MACROS. OXPIPE_NO_EXCEPTIONS may be set; OXPIPE_THROWS is 1 or 0 accordingly.
 */
#ifndef OXPIPE_HPP
#define OXPIPE_HPP

#include "oxpipe.h"

#if !(__cplusplus >= 201703L || (defined(_MSVC_LANG) && _MSVC_LANG >= 201703L))
#error "oxpipe.hpp needs C++17"
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>
#if __cplusplus >= 202002L && __has_include(<span>)
#include <span>
#endif
#if defined(__STDCPP_FLOAT16_T__) || defined(__STDCPP_BFLOAT16_T__)
#include <stdfloat>
#endif

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define OXPIPE_COMPILER_THROWS 1
#else
#define OXPIPE_COMPILER_THROWS 0
#endif

/* The version of these classes, raised when one changes; a name of its own for each way in
 * which they can be compiled, so that the linker never takes one for another. */
#if OXPIPE_COMPILER_THROWS && !defined(OXPIPE_NO_EXCEPTIONS)
#define OXPIPE_THROWS 1
#define OXPIPE_INLINE_NAMESPACE v1
#elif OXPIPE_COMPILER_THROWS
#define OXPIPE_THROWS 0
#define OXPIPE_INLINE_NAMESPACE v1_results
#else
#define OXPIPE_THROWS 0
#define OXPIPE_INLINE_NAMESPACE v1_results_nothrow
#endif

/* Errors are caught in other libraries than the one that throws, also with hidden visibility. */
#if defined(__GNUC__)
#define OXPIPE_VISIBLE __attribute__((visibility("default")))
#else
#define OXPIPE_VISIBLE
#endif

namespace oxp {
inline namespace OXPIPE_INLINE_NAMESPACE {

/* ---- Spans ------------------------------------------------------------------------- */

template <class T>
class span;

namespace detail {

/** Whether std::data and std::size work on a T, and its elements lie as an array of E does. */
template <class T, class E, class = void>
inline constexpr bool is_range_of = false;
template <class T, class E>
inline constexpr bool is_range_of<
    T, E, std::void_t<decltype(std::data(std::declval<T &>())), decltype(std::size(std::declval<T &>()))>> =
    std::is_convertible_v<std::remove_pointer_t<decltype(std::data(std::declval<T &>()))> (*)[], E (*)[]>;

/** The type of the elements that a contiguous container, an array or a span holds. */
template <class T>
using element_of = std::remove_cv_t<std::remove_pointer_t<decltype(std::data(std::declval<T &>()))>>;

/** Substitution fails where T is not contiguous. */
template <class T>
using if_contiguous = std::void_t<decltype(std::data(std::declval<T &>())), decltype(std::size(std::declval<T &>()))>;

/** Whether elements outlive the T through which they are seen: std::span and other views. */
#if defined(__cpp_lib_span)
template <class T>
inline constexpr bool is_borrowed = std::ranges::enable_borrowed_range<T>;
#else
template <class T>
inline constexpr bool is_borrowed = false;
#endif

template <class T>
inline constexpr bool is_span = false;
template <class T>
inline constexpr bool is_span<span<T>> = true;

}  // namespace detail

/**
 * A pointer and a count: std::span for C++17, as far as this header needs it. Made from
 * anything that has contiguous elements: std::vector, std::array, an array, std::span, to
 * which it also converts. Borrows them.
 */
template <class T>
class span {
public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using pointer = T *;
    using reference = T &;
    using iterator = T *;

    /** Empty. */
    constexpr span() noexcept = default;
    /** `size` elements at `data`. */
    template <class U, std::enable_if_t<std::is_convertible_v<U (*)[], T (*)[]>, int> = 0>
    constexpr span(U *data, size_type size) noexcept : data_(data), size_(size) {}
    /** The elements of a container; one that is about to end only if they are not written. */
    template <class C,
              std::enable_if_t<!detail::is_span<std::remove_cv_t<std::remove_reference_t<C>>> &&
                                   (std::is_lvalue_reference_v<C> || std::is_const_v<T> ||
                                    detail::is_borrowed<std::remove_cv_t<C>>) &&
                                   detail::is_range_of<std::remove_reference_t<C>, T>,
                               int> = 0>
    constexpr span(C &&container) noexcept : data_(std::data(container)), size_(std::size(container)) {}
    /** Elements that may be written, as ones that may not. */
    template <class U, std::enable_if_t<!std::is_same_v<U, T> && std::is_convertible_v<U (*)[], T (*)[]>, int> = 0>
    constexpr span(span<U> other) noexcept : data_(other.data()), size_(other.size()) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr size_type size() const noexcept { return size_; }
    constexpr size_type size_bytes() const noexcept { return size_ * sizeof(T); }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    /** Not checked. */
    constexpr T &operator[](size_type at) const noexcept { return data_[at]; }
    constexpr T &front() const noexcept { return data_[0]; }
    constexpr T &back() const noexcept { return data_[size_ - 1]; }
    /** The first `count` elements, of which there must be as many. */
    constexpr span first(size_type count) const noexcept { return span(data_, count); }
    /** The last `count` elements, of which there must be as many. */
    constexpr span last(size_type count) const noexcept { return span(data_ + (size_ - count), count); }
    /** `count` elements from `offset` on, of which there must be as many. */
    constexpr span subspan(size_type offset, size_type count) const noexcept { return span(data_ + offset, count); }

private:
    T *data_ = nullptr;
    size_type size_ = 0;
};

template <class T, std::size_t N>
span(T (&)[N]) -> span<T>;
template <class C>
span(C &) -> span<std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>>;
template <class T>
span(T *, std::size_t) -> span<T>;

/** Borrows the bytes of a file or a model: made from any container of one-byte elements. */
class byte_view {
public:
    constexpr byte_view() noexcept = default;
    constexpr byte_view(const void *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <class C, class = detail::if_contiguous<const C>,
              std::enable_if_t<sizeof(detail::element_of<const C>) == 1, int> = 0>
    constexpr byte_view(const C &container) noexcept : data_(std::data(container)), size_(std::size(container)) {}

    constexpr const void *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }

private:
    const void *data_ = nullptr;
    std::size_t size_ = 0;
};

/* ---- Constants --------------------------------------------------------------------- */

/** OXP_DTYPE_: the type of a tensor's elements. A library newer than this header may give others. */
enum class dtype : std::uint32_t {
    /** A port's type that does not cross the interface. */
    none = 0,
    float32 = OXP_DTYPE_FLOAT32,
    uint8 = OXP_DTYPE_UINT8,
    int8 = OXP_DTYPE_INT8,
    uint16 = OXP_DTYPE_UINT16,
    int16 = OXP_DTYPE_INT16,
    int32 = OXP_DTYPE_INT32,
    int64 = OXP_DTYPE_INT64,
    boolean = OXP_DTYPE_BOOL,
    float16 = OXP_DTYPE_FLOAT16,
    uint32 = OXP_DTYPE_UINT32,
    uint64 = OXP_DTYPE_UINT64,
    bfloat16 = OXP_DTYPE_BFLOAT16,
    float8e4m3fn = OXP_DTYPE_FLOAT8E4M3FN,
    float8e5m2 = OXP_DTYPE_FLOAT8E5M2,
};

/** OXP_BACKEND_: who runs a graph. */
enum class backend : std::uint32_t {
    native = OXP_BACKEND_NATIVE,
    ort = OXP_BACKEND_ORT,
};

/** OXP_PHASE_: when a component runs. */
enum class phase : std::uint32_t {
    prompt_only = OXP_PHASE_PROMPT_ONLY,
    every_step = OXP_PHASE_EVERY_STEP,
    final_only = OXP_PHASE_FINAL_ONLY,
    on_demand = OXP_PHASE_ON_DEMAND,
};

/** OXP_FINISH_: why a run is finished; none while it is not. */
enum class finish_reason : std::uint32_t {
    none = OXP_FINISH_NONE,
    end_of_text = OXP_FINISH_END_OF_TEXT,
    max_tokens = OXP_FINISH_MAX_TOKENS,
    context_full = OXP_FINISH_CONTEXT_FULL,
    completed = OXP_FINISH_COMPLETED,
    stop_string = OXP_FINISH_STOP_STRING,
    stop_tokens = OXP_FINISH_STOP_TOKENS,
    max_length = OXP_FINISH_MAX_LENGTH,
    constraint = OXP_FINISH_CONSTRAINT,
    cancelled = OXP_FINISH_CANCELLED,
    deadline = OXP_FINISH_DEADLINE,
};

/** OXP_CONSTRAINT_: what an answer is made to follow. */
enum class constraint : std::uint32_t {
    none = OXP_CONSTRAINT_NONE,
    json = OXP_CONSTRAINT_JSON,
    json_schema = OXP_CONSTRAINT_JSON_SCHEMA,
    regex = OXP_CONSTRAINT_REGEX,
    lark = OXP_CONSTRAINT_LARK,
};

/** OXP_LOG_: how much a log line matters. */
enum class log_level : std::uint32_t {
    debug = OXP_LOG_DEBUG,
    info = OXP_LOG_INFO,
    warning = OXP_LOG_WARNING,
    error = OXP_LOG_ERROR,
};

/** OXP_TOKEN_: the role of a special token. */
enum class token_role : std::uint32_t {
    bos = OXP_TOKEN_BOS,
    eos = OXP_TOKEN_EOS,
    pad = OXP_TOKEN_PAD,
    unk = OXP_TOKEN_UNK,
    sep = OXP_TOKEN_SEP,
};

/** oxp_dtype_size: bytes of one element, 0 for a number that is no dtype. Any thread. */
inline std::uint64_t dtype_size(dtype type) noexcept
{
    return oxp_dtype_size(static_cast<std::uint32_t>(type));
}

/** oxp_dtype_name: "float32"; "" for a number that is no dtype. Static text. Any thread. */
inline const char *dtype_name(dtype type) noexcept
{
    return oxp_dtype_name(static_cast<std::uint32_t>(type));
}

/** oxp_status_name: "OXP_ERR_BUSY". Static text. Any thread. */
inline const char *status_name(oxp_status code) noexcept
{
    return oxp_status_name(code);
}

/* ---- Errors ------------------------------------------------------------------------ */

/**
 * Why a call failed. Thrown, or held by a result. Shared: any thread, any number at once. Text
 * is borrowed until the error ends (with exceptions: until its last copy does); "" where the
 * error is about none of that.
 */
class OXPIPE_VISIBLE error
#if OXPIPE_THROWS
    : public std::exception
#endif
{
public:
    /** Takes over the C error of a call that returned `code`; NULL is fine. */
    error(oxp_status code, oxp_error *owned)
        : code_(code),
#if OXPIPE_THROWS
          owned_(owned, oxp_error_free)
#else
          owned_(owned)
#endif
    {
    }
    /** Takes over a C error, whose code is oxp_error_get_code. */
    explicit error(oxp_error *owned) : error(oxp_error_get_code(owned), owned) {}
    /** An error of this header's own; `message` is static text. */
    error(oxp_status code, const char *message) noexcept : code_(code), own_(message) {}

    /** An OXP_ERR_ code: what the C function returned. */
    oxp_status code() const noexcept { return code_; }
    /** "OXP_ERR_BUSY". Static text. */
    const char *code_name() const noexcept { return oxp_status_name(code_); }
    /** message(), ending with a NUL. */
#if OXPIPE_THROWS
    const char *what() const noexcept override
#else
    const char *what() const noexcept
#endif
    {
        return own_ != nullptr ? own_ : owned_ ? oxp_error_get_message(owned_.get(), nullptr) : code_name();
    }
    /** oxp_error_get_message: what went wrong, for a person. */
    std::string_view message() const noexcept { return owned_ ? text(oxp_error_get_message) : what(); }
    /** oxp_error_get_component: the component that it is about. */
    std::string_view component() const noexcept { return text(oxp_error_get_component); }
    /** oxp_error_get_port: the input or output that it is about. */
    std::string_view port() const noexcept { return text(oxp_error_get_port); }
    /** oxp_error_get_node: the node of the graph that it is about. */
    std::string_view node() const noexcept { return text(oxp_error_get_node); }
    /** oxp_error_get_file: the file that it is about. */
    std::string_view file() const noexcept { return text(oxp_error_get_file); }
    /** The C error, lent; NULL if the error is of this header's own. */
    const oxp_error *get() const noexcept { return owned_.get(); }

private:
    std::string_view text(const char *(*part)(const oxp_error *, std::uint64_t *)) const noexcept
    {
        if (!owned_)
            return {};
        std::uint64_t length = 0;
        const char *found = part(owned_.get(), &length);
        return std::string_view(found, length);
    }

    oxp_status code_;
    const char *own_ = nullptr;
#if OXPIPE_THROWS
    /* Exceptions must be copyable. */
    std::shared_ptr<oxp_error> owned_;
#else
    struct free_error {
        void operator()(oxp_error *owned) const noexcept { oxp_error_free(owned); }
    };
    std::unique_ptr<oxp_error, free_error> owned_;
#endif
};

#if OXPIPE_THROWS

/** What a function returns that can fail: here, the value itself. Failing is throwing. */
template <class T>
using returns = T;

#else

/**
 * A value, or the error that there is instead: std::expected, as far as this header needs it.
 * Asking for the one that is not there ends the program (std::abort).
 */
template <class T>
class [[nodiscard]] result {
public:
    using value_type = T;
    using error_type = oxp::error;

    result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
    result(oxp::error failure) : held_(std::in_place_index<1>, std::move(failure)) {}

    bool has_value() const noexcept { return held_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }

    T &value() & noexcept { return *must(std::get_if<0>(&held_)); }
    const T &value() const & noexcept { return *must(std::get_if<0>(&held_)); }
    T &&value() && noexcept { return std::move(value()); }
    T &operator*() & noexcept { return value(); }
    const T &operator*() const & noexcept { return value(); }
    T &&operator*() && noexcept { return std::move(value()); }
    T *operator->() noexcept { return &value(); }
    const T *operator->() const noexcept { return &value(); }
    /** The value, or `other` if there is an error. */
    template <class U>
    T value_or(U &&other) &&
    {
        return has_value() ? std::move(value()) : static_cast<T>(std::forward<U>(other));
    }

    oxp::error &error() & noexcept { return *must(std::get_if<1>(&held_)); }
    const oxp::error &error() const & noexcept { return *must(std::get_if<1>(&held_)); }
    oxp::error &&error() && noexcept { return std::move(error()); }

private:
    template <class P>
    static P *must(P *held) noexcept
    {
        if (held == nullptr)
            std::abort();
        return held;
    }

    std::variant<T, oxp::error> held_;
};

/** Success, or an error. */
template <>
class [[nodiscard]] result<void> {
public:
    using value_type = void;
    using error_type = oxp::error;

    result() noexcept = default;
    result(oxp::error failure) : failure_(std::move(failure)) {}

    bool has_value() const noexcept { return !failure_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }
    void value() const noexcept
    {
        if (failure_)
            std::abort();
    }

    oxp::error &error() & noexcept { return *must(failure_ ? &*failure_ : nullptr); }
    const oxp::error &error() const & noexcept { return *must(failure_ ? &*failure_ : nullptr); }
    oxp::error &&error() && noexcept { return std::move(error()); }

private:
    template <class P>
    static P *must(P *held) noexcept
    {
        if (held == nullptr)
            std::abort();
        return held;
    }

    std::optional<oxp::error> failure_;
};

/** What a function returns that can fail: here, the value or an error. */
template <class T>
using returns = result<T>;

#endif

namespace detail {

#if OXPIPE_THROWS
template <class T>
[[noreturn]] returns<T> fail(error failure)
{
    throw failure;
}
#else
template <class T>
returns<T> fail(error failure)
{
    return returns<T>(std::move(failure));
}
#endif

/** The end of each function: an error unless the C function succeeded, else `value`. */
template <class T>
returns<T> give(oxp_status status, oxp_error *owned, T value)
{
    if (status != OXP_OK)
        return fail<T>(error(status, owned));
    return returns<T>(std::move(value));
}

inline returns<void> done(oxp_status status, oxp_error *owned)
{
    if (status != OXP_OK)
        return fail<void>(error(status, owned));
    return returns<void>();
}

/** A string for C, which does not take NULL for an empty one. */
inline const char *chars(std::string_view text) noexcept
{
    return text.data() != nullptr ? text.data() : "";
}

/** Memory for C: NULL where there is no room, which is the question for the length. */
template <class T>
T *room(span<T> buffer) noexcept
{
    return buffer.empty() ? nullptr : buffer.data();
}

/**
 * An owned copy of what a C function copies out: `copy(buffer, capacity, &needed, &err)`.
 * `guess` is room that will often do, so that the work behind is done once.
 */
template <class Container, class Copy>
returns<Container> owned_copy(std::size_t guess, Copy copy)
{
    Container made(guess, typename Container::value_type());
    for (;;) {
        oxp_error *owned = nullptr;
        std::uint64_t needed = 0;
        const bool asks = made.empty();
        const oxp_status status = copy(asks ? nullptr : made.data(), made.size(), &needed, &owned);
        const bool again = status == OXP_ERR_BUFFER_TOO_SMALL || (status == OXP_OK && asks && needed > 0);
        if (!again) {
            made.resize(status == OXP_OK ? needed : 0);
            return give(status, owned, std::move(made));
        }
        oxp_error_free(owned);
        made.resize(needed);
    }
}

/** A handle that is none: where NULL would mean a default, an empty object must not. */
template <class Raw>
Raw *no_handle() noexcept
{
    return reinterpret_cast<Raw *>(std::uintptr_t{1});
}

/** Owns a C handle: the base of all classes that do. */
template <class Raw, void (*Free)(Raw *)>
class handle {
public:
    using raw_type = Raw;

    handle(handle &&other) noexcept : raw_(other.release()) {}
    handle &operator=(handle &&other) noexcept
    {
        if (this != &other)
            reset(other.release());
        return *this;
    }
    ~handle() { reset(); }

    /** The C handle, lent; NULL if the object is empty. */
    Raw *get() const noexcept { return raw_; }
    /** Gives the C handle up: the caller frees it. */
    [[nodiscard]] Raw *release() noexcept { return std::exchange(raw_, nullptr); }
    /** Frees the object and takes another over. */
    void reset(Raw *owned = nullptr) noexcept
    {
        if (raw_ != nullptr)
            Free(raw_);
        raw_ = owned;
    }
    /** Whether there is an object. */
    explicit operator bool() const noexcept { return raw_ != nullptr; }

protected:
    handle() noexcept = default;
    explicit handle(Raw *owned) noexcept : raw_(owned) {}

private:
    Raw *raw_ = nullptr;
};

/** Remembers what a callback throws while C functions are on the stack. */
class thrown {
public:
    /** Calls `f`; what a C callback returns: 0 to go on, 1 to stop. */
    template <class F, class Argument>
    std::int32_t call(F &f, const Argument &argument) noexcept
    {
#if OXPIPE_COMPILER_THROWS
        try {
            return go_on(f, argument) ? 0 : stop();
        } catch (...) {
            caught_ = std::current_exception();
            return 1;
        }
#else
        return go_on(f, argument) ? 0 : stop();
#endif
    }
    /** Whether the callback asked to stop. */
    bool stopped() const noexcept { return stopped_; }
    /** Throws on what was thrown; frees the C error that came of it. */
    void rethrow(oxp_error *&owned)
    {
#if OXPIPE_COMPILER_THROWS
        if (caught_) {
            oxp_error_free(std::exchange(owned, nullptr));
            std::rethrow_exception(std::exchange(caught_, nullptr));
        }
#else
        (void)owned;
#endif
    }

private:
    template <class F, class Argument>
    static bool go_on(F &f, const Argument &argument)
    {
        using answer = std::invoke_result_t<F &, const Argument &>;
        static_assert(std::is_void_v<answer> || std::is_same_v<answer, bool>,
                      "a callback returns nothing, or a bool: true to go on, false to stop");
        if constexpr (std::is_void_v<answer>) {
            f(argument);
            return true;
        } else {
            return f(argument);
        }
    }
    std::int32_t stop() noexcept
    {
        stopped_ = true;
        return 1;
    }

    bool stopped_ = false;
#if OXPIPE_COMPILER_THROWS
    std::exception_ptr caught_;
#endif
};

/** A struct that begins with its size, otherwise 0. */
template <class T>
T sized() noexcept
{
    T made{};
    made.struct_size = static_cast<std::uint32_t>(sizeof(T));
    return made;
}

/** A struct of the library's, which may be of another version, as far as this header knows it. */
template <class T>
T known_part(const T &given) noexcept
{
    T known{};
    const std::size_t size = given.struct_size < sizeof(T) ? given.struct_size : sizeof(T);
    std::memcpy(&known, &given, size);
    known.struct_size = static_cast<std::uint32_t>(sizeof(T));
    return known;
}

}  // namespace detail

/**
 * An argument that may be left out, or given as nullptr: borrows the object for the call. An
 * empty (moved-from) object is not taken for one that was left out, but is an error.
 */
template <class Handle>
class maybe {
public:
    using raw_type = typename Handle::raw_type;
    constexpr maybe() noexcept = default;
    constexpr maybe(std::nullptr_t) noexcept {}
    maybe(const Handle &given) noexcept : raw_(given ? given.get() : detail::no_handle<raw_type>()) {}
    raw_type *get() const noexcept { return raw_; }

private:
    raw_type *raw_ = nullptr;
};

/* ---- The library ------------------------------------------------------------------- */

/** oxp_abi_version: the OXP_ABI_VERSION that the library was built with. Any thread. */
inline std::uint32_t abi_version() noexcept
{
    return oxp_abi_version();
}

/** oxp_struct_size: the library's size of the struct with this OXP_STRUCT_ id. Any thread. */
inline std::uint32_t struct_size(std::uint32_t id) noexcept
{
    return oxp_struct_size(id);
}

/** oxp_version_copy: the library's version, "0.1.0", as an owned copy. Any thread. */
[[nodiscard]] inline returns<std::string> version()
{
    return detail::owned_copy<std::string>(0, oxp_version_copy);
}

/**
 * Whether the library that was loaded fits this header; worth a call at start-up.
 *
 * Errors: OXP_ERR_UNSUPPORTED (it is older, or lays structs out otherwise).
 */
inline returns<void> check_abi()
{
    if (oxp_abi_version() < OXP_ABI_VERSION)
        return detail::fail<void>(
            error(OXP_ERR_UNSUPPORTED, "oxp::check_abi: the library is older than the header; install a newer one"));
    const struct {
        std::uint32_t id;
        std::size_t size;
    } frozen[] = {
        {OXP_STRUCT_TENSOR_IN, sizeof(oxp_tensor_in)}, {OXP_STRUCT_TENSOR_OUT, sizeof(oxp_tensor_out)},
        {OXP_STRUCT_NAMED_IN, sizeof(oxp_named_in)},   {OXP_STRUCT_NAMED_OUT, sizeof(oxp_named_out)},
        {OXP_STRUCT_FILE, sizeof(oxp_file)},
    };
    for (const auto &each : frozen)
        if (oxp_struct_size(each.id) != each.size)
            return detail::fail<void>(
                error(OXP_ERR_UNSUPPORTED, "oxp::check_abi: the library has another layout of a frozen struct"));
    return returns<void>();
}

/** oxp_backend_is_built_in: whether this build of the library holds a backend. Any thread. */
[[nodiscard]] inline returns<bool> backend_is_built_in(backend which)
{
    oxp_error *owned = nullptr;
    std::int32_t built_in = 0;
    const oxp_status status = oxp_backend_is_built_in(static_cast<std::uint32_t>(which), &built_in, &owned);
    return detail::give(status, owned, built_in != 0);
}

/* ---- Elements ---------------------------------------------------------------------- */

/** IEEE 754 half precision, as bits. Converts to float exactly, from it to the nearest (ties to even). */
class float16 {
public:
    float16() noexcept = default;
    explicit float16(float value) noexcept
    {
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        const std::uint32_t sign = (bits >> 16) & 0x8000u;
        bits &= 0x7fffffffu;
        std::uint32_t half;
        if (bits > 0x7f800000u) { /* NaN stays one, quiet */
            half = 0x7e00u | ((bits >> 13) & 0x3ffu);
        } else if (bits >= 0x477ff000u) { /* 65520 and more, infinity */
            half = 0x7c00u;
        } else if (bits >= 0x38800000u) { /* 2^-14 and more: normal */
            half = (bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13;
        } else if (bits > 0x33000000u) { /* more than 2^-25: subnormal */
            const std::uint32_t shift = 126u - (bits >> 23);
            const std::uint32_t fraction = (bits & 0x7fffffu) | 0x800000u;
            const std::uint32_t rest = fraction & ((1u << shift) - 1u);
            const std::uint32_t middle = 1u << (shift - 1u);
            half = fraction >> shift;
            half += rest > middle || (rest == middle && (half & 1u) != 0) ? 1u : 0u;
        } else {
            half = 0;
        }
        bits_ = static_cast<std::uint16_t>(sign | half);
    }
    static float16 from_bits(std::uint16_t bits) noexcept
    {
        float16 made;
        made.bits_ = bits;
        return made;
    }
    std::uint16_t bits() const noexcept { return bits_; }
    explicit operator float() const noexcept
    {
        const std::uint32_t sign = (bits_ & 0x8000u) << 16;
        const std::uint32_t exponent = (bits_ >> 10) & 0x1fu;
        const std::uint32_t fraction = bits_ & 0x3ffu;
        float value;
        std::uint32_t bits;
        if (exponent == 0) { /* fraction * 2^-24 */
            value = static_cast<float>(fraction) * 5.9604644775390625e-8f;
            std::memcpy(&bits, &value, sizeof bits);
            bits |= sign;
        } else {
            bits = sign | ((exponent == 31 ? 255u : exponent + 112u) << 23) | (fraction << 13);
        }
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }

private:
    std::uint16_t bits_;
};

/** The upper half of a float, as bits. Converts to float exactly, from it to the nearest (ties to even). */
class bfloat16 {
public:
    bfloat16() noexcept = default;
    explicit bfloat16(float value) noexcept
    {
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
        bits_ = static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40u
                                                  : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
    static bfloat16 from_bits(std::uint16_t bits) noexcept
    {
        bfloat16 made;
        made.bits_ = bits;
        return made;
    }
    std::uint16_t bits() const noexcept { return bits_; }
    explicit operator float() const noexcept
    {
        const std::uint32_t bits = static_cast<std::uint32_t>(bits_) << 16;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }

private:
    std::uint16_t bits_;
};

/** One byte of float8e4m3fn, as bits. */
struct float8e4m3fn {
    std::uint8_t bits;
};

/** One byte of float8e5m2, as bits. */
struct float8e5m2 {
    std::uint8_t bits;
};

/**
 * The dtype of an element type. Of your own types, which must be trivially copyable and lie
 * in memory as ONNX's do, say it so:
 *
 *     template <> struct oxp::dtype_of<Eigen::half> { static constexpr auto value = oxp::dtype::float16; };
 *
 * double has none: float64 does not cross this interface. Nor has char, which is text.
 */
template <class T, class = void>
struct dtype_of;

namespace detail {
template <dtype Type>
struct is_dtype {
    static constexpr dtype value = Type;
};

template <class T>
inline constexpr bool is_number = std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> &&
                                  !std::is_same_v<T, wchar_t> && !std::is_same_v<T, char16_t> &&
                                  !std::is_same_v<T, char32_t>
#if defined(__cpp_char8_t)
                                  && !std::is_same_v<T, char8_t>
#endif
                                  && sizeof(T) <= 8;

constexpr dtype integer(std::size_t size, bool is_signed) noexcept
{
    return size == 1   ? (is_signed ? dtype::int8 : dtype::uint8)
           : size == 2 ? (is_signed ? dtype::int16 : dtype::uint16)
           : size == 4 ? (is_signed ? dtype::int32 : dtype::uint32)
                       : (is_signed ? dtype::int64 : dtype::uint64);
}

/* _Float16 where the compiler has it in C++, under that name or another. */
#if defined(__STDCPP_FLOAT16_T__)
#define OXPIPE_HAS_FLOAT16 1
using compiler_float16 = std::float16_t;
#elif defined(__FLT16_MANT_DIG__) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 13))
#define OXPIPE_HAS_FLOAT16 1
__extension__ typedef _Float16 compiler_float16;
#endif
}  // namespace detail

template <class T>
struct dtype_of<T, std::enable_if_t<detail::is_number<T>>> {
    static constexpr dtype value = detail::integer(sizeof(T), std::is_signed_v<T>);
};
template <>
struct dtype_of<float> : detail::is_dtype<dtype::float32> {};
template <>
struct dtype_of<bool> : detail::is_dtype<dtype::boolean> {};
template <>
struct dtype_of<float16> : detail::is_dtype<dtype::float16> {};
template <>
struct dtype_of<bfloat16> : detail::is_dtype<dtype::bfloat16> {};
template <>
struct dtype_of<float8e4m3fn> : detail::is_dtype<dtype::float8e4m3fn> {};
template <>
struct dtype_of<float8e5m2> : detail::is_dtype<dtype::float8e5m2> {};
#if defined(OXPIPE_HAS_FLOAT16)
template <>
struct dtype_of<detail::compiler_float16> : detail::is_dtype<dtype::float16> {};
#endif
#if defined(__STDCPP_BFLOAT16_T__)
template <>
struct dtype_of<std::bfloat16_t> : detail::is_dtype<dtype::bfloat16> {};
#endif

namespace detail {
template <class T, class = void>
inline constexpr bool has_dtype = false;
template <class T>
inline constexpr bool has_dtype<T, std::void_t<decltype(dtype_of<T>::value)>> = true;

constexpr std::size_t element_size(dtype type) noexcept
{
    switch (type) {
    case dtype::uint8:
    case dtype::int8:
    case dtype::boolean:
    case dtype::float8e4m3fn:
    case dtype::float8e5m2:
        return 1;
    case dtype::uint16:
    case dtype::int16:
    case dtype::float16:
    case dtype::bfloat16:
        return 2;
    case dtype::float32:
    case dtype::int32:
    case dtype::uint32:
        return 4;
    case dtype::int64:
    case dtype::uint64:
        return 8;
    case dtype::none:
        break;
    }
    return 0;
}

template <class T>
constexpr dtype checked_dtype() noexcept
{
    static_assert(std::is_trivially_copyable_v<T>, "elements of tensors are trivially copyable");
    static_assert(has_dtype<T>, "this type has no dtype; specialise oxp::dtype_of if its elements lie as ONNX's do");
    if constexpr (has_dtype<T>) {
        static_assert(sizeof(T) == element_size(dtype_of<T>::value), "an element of this type has another size");
        return dtype_of<T>::value;
    }
    return dtype::none;
}
}  // namespace detail

/** Whether T is the type of a tensor's elements. */
template <class T>
inline constexpr bool has_dtype = detail::has_dtype<T>;

/* ---- Tensors ----------------------------------------------------------------------- */

namespace detail {
/** The elements of a tensor as a span, if they are Ts. */
template <class T, class Bytes>
returns<span<T>> elements(std::uint32_t type, Bytes *data, std::uint64_t byte_len)
{
    constexpr dtype wanted = checked_dtype<std::remove_cv_t<T>>();
    if (type != static_cast<std::uint32_t>(wanted))
        return fail<span<T>>(error(OXP_ERR_DTYPE_MISMATCH, "oxp: as<T>: the tensor's elements are not of type T"));
    if (reinterpret_cast<std::uintptr_t>(data) % alignof(T) != 0)
        return fail<span<T>>(error(OXP_ERR_INVALID_TENSOR, "oxp: as<T>: the tensor's data is not aligned for T"));
    return returns<span<T>>(span<T>(static_cast<T *>(data), byte_len / sizeof(T)));
}
}  // namespace detail

/**
 * oxp_tensor_in: a tensor to read, dense and row-major. Borrows its elements and its dims: as
 * an argument for the call; as an answer for as long as its function says.
 */
class tensor_view {
public:
    /** No tensor. */
    tensor_view() noexcept : raw_(detail::sized<oxp_tensor_in>()) {}
    /** The elements of a container, which give the dtype. A shape of {} is a scalar. */
    template <class Data, class = detail::if_contiguous<const Data>>
    tensor_view(const Data &data, span<const std::int64_t> shape) noexcept
        : tensor_view(detail::checked_dtype<detail::element_of<const Data>>(), std::data(data),
                      std::size(data) * sizeof(detail::element_of<const Data>), shape)
    {
    }
    /** Dims in braces would end before the view does: name them. */
    template <class Data, std::size_t N>
    tensor_view(const Data &data, const std::int64_t (&&shape)[N]) = delete;
    /** Bytes whose dtype is known only while the program runs. */
    tensor_view(oxp::dtype type, const void *data, std::uint64_t byte_len, span<const std::int64_t> shape) noexcept
        : tensor_view()
    {
        raw_.dtype = static_cast<std::uint32_t>(type);
        raw_.data = data;
        raw_.byte_len = byte_len;
        raw_.shape = shape.data();
        raw_.rank = static_cast<std::uint32_t>(shape.size());
    }
    explicit tensor_view(const oxp_tensor_in &raw) noexcept : raw_(raw) {}

    oxp::dtype dtype() const noexcept { return static_cast<oxp::dtype>(raw_.dtype); }
    std::uint32_t rank() const noexcept { return raw_.rank; }
    span<const std::int64_t> shape() const noexcept { return {raw_.shape, raw_.rank}; }
    const void *data() const noexcept { return raw_.data; }
    std::uint64_t byte_len() const noexcept { return raw_.byte_len; }
    /** Whether the elements are of type T. */
    template <class T>
    bool is() const noexcept
    {
        return dtype() == detail::checked_dtype<T>();
    }
    /**
     * The elements.
     *
     * Errors: OXP_ERR_DTYPE_MISMATCH (they are not of type T), OXP_ERR_INVALID_TENSOR (they
     * are not aligned as a T is).
     */
    template <class T>
    [[nodiscard]] returns<span<const T>> as() const
    {
        return detail::elements<const T>(raw_.dtype, raw_.data, raw_.byte_len);
    }
    const oxp_tensor_in &raw() const noexcept { return raw_; }
    oxp_tensor_in &raw() noexcept { return raw_; }

private:
    oxp_tensor_in raw_;
};

/**
 * oxp_tensor_out: room of the caller's for a tensor, which calls fill. Borrows the memory for
 * the elements and that for the dims, which must outlive it.
 */
class tensor_room {
public:
    /** No room: a call then tells how much is needed. */
    tensor_room() noexcept : raw_(detail::sized<oxp_tensor_out>()) {}
    /** Room for dims alone, for session::output_bound. */
    explicit tensor_room(span<std::int64_t> shape) noexcept : tensor_room(nullptr, 0, shape) {}
    /** The elements of a container, to be written. Its dtype is looked at by as(). */
    template <class Data, class = detail::if_contiguous<Data>>
    tensor_room(Data &&data, span<std::int64_t> shape) noexcept
        : tensor_room(std::data(data), std::size(data) * sizeof(*std::data(data)), shape)
    {
        static_assert(detail::has_dtype<detail::element_of<std::remove_reference_t<Data>>>,
                      "this type has no dtype; specialise oxp::dtype_of if its elements lie as ONNX's do");
    }
    /** `capacity` bytes at `data`. */
    tensor_room(void *data, std::uint64_t capacity, span<std::int64_t> shape) noexcept : tensor_room()
    {
        raw_.data = data;
        raw_.capacity = capacity;
        raw_.shape = shape.data();
        raw_.shape_capacity = static_cast<std::uint32_t>(shape.size());
    }

    /** What the call found: the dtype of the elements. */
    oxp::dtype dtype() const noexcept { return static_cast<oxp::dtype>(raw_.dtype); }
    std::uint32_t rank() const noexcept { return raw_.rank; }
    /** The dims; those that there was room for. */
    span<const std::int64_t> shape() const noexcept
    {
        return {raw_.shape, raw_.rank < raw_.shape_capacity ? raw_.rank : raw_.shape_capacity};
    }
    /** Bytes written, or needed; OXP_UNKNOWN_SIZE if only a run can tell. */
    std::uint64_t byte_len() const noexcept { return raw_.byte_len; }
    void *data() const noexcept { return raw_.data; }
    std::uint64_t capacity() const noexcept { return raw_.capacity; }
    /** The elements that were written. Errors: as tensor_view::as. */
    template <class T>
    [[nodiscard]] returns<span<T>> as() const
    {
        return detail::elements<T>(raw_.dtype, raw_.data,
                                   raw_.byte_len < raw_.capacity ? raw_.byte_len : raw_.capacity);
    }
    const oxp_tensor_out &raw() const noexcept { return raw_; }
    oxp_tensor_out &raw() noexcept { return raw_; }

private:
    oxp_tensor_out raw_;
};

/** oxp_named_in: a tensor to read and the name of its port; borrows both. */
class named_view {
public:
    named_view(std::string_view name, const tensor_view &tensor) noexcept
        : raw_{detail::chars(name), name.size(), tensor.raw()}
    {
    }
    std::string_view name() const noexcept { return {raw_.name, raw_.name_len}; }
    tensor_view tensor() const noexcept { return tensor_view(raw_.tensor); }
    const oxp_named_in &raw() const noexcept { return raw_; }

private:
    oxp_named_in raw_;
};

/** oxp_named_out: room for the tensor of a port, and its name; borrows both. */
class named_room {
public:
    named_room(std::string_view name, const tensor_room &room) noexcept
        : raw_{detail::chars(name), name.size(), room.raw()}
    {
    }
    std::string_view name() const noexcept { return {raw_.name, raw_.name_len}; }
    /** What the call has filled in. */
    tensor_room tensor() const noexcept
    {
        tensor_room copy;
        copy.raw() = raw_.tensor;
        return copy;
    }
    oxp_named_out &raw() noexcept { return raw_; }

private:
    oxp_named_out raw_;
};

/** oxp_file: a file in memory, and its name in the package or beside the model; borrows both. */
class file_view {
public:
    file_view(std::string_view name, byte_view bytes) noexcept
        : raw_{detail::chars(name), name.size(), bytes.data(), bytes.size()}
    {
    }
    const oxp_file &raw() const noexcept { return raw_; }

private:
    oxp_file raw_;
};

/* Arrays of them are given to C as they lie. */
static_assert(sizeof(tensor_view) == sizeof(oxp_tensor_in) && std::is_standard_layout_v<tensor_view>);
static_assert(sizeof(named_view) == sizeof(oxp_named_in) && std::is_standard_layout_v<named_view>);
static_assert(sizeof(named_room) == sizeof(oxp_named_out) && std::is_standard_layout_v<named_room>);
static_assert(sizeof(file_view) == sizeof(oxp_file) && std::is_standard_layout_v<file_view>);

namespace detail {
inline const oxp_named_in *raw(span<const named_view> all) noexcept
{
    return reinterpret_cast<const oxp_named_in *>(all.data());
}
inline oxp_named_out *raw(span<named_room> all) noexcept
{
    return reinterpret_cast<oxp_named_out *>(all.data());
}
inline const oxp_file *raw(span<const file_view> all) noexcept
{
    return reinterpret_cast<const oxp_file *>(all.data());
}
}  // namespace detail

/* ---- What is known about things ---------------------------------------------------- */

/** oxp_port_info: an input or output. Borrowed until the session or pipeline ends. */
class port_info {
public:
    port_info() noexcept : raw_(detail::sized<oxp_port_info>()) {}
    std::string_view name() const noexcept { return {raw_.name, raw_.name_len}; }
    /** dtype::none if the type does not cross this interface; type_name() says which it is. */
    oxp::dtype dtype() const noexcept { return static_cast<oxp::dtype>(raw_.dtype); }
    std::string_view type_name() const noexcept { return {raw_.type_name, raw_.type_name_len}; }
    std::uint32_t rank() const noexcept { return raw_.rank; }
    /** -1 where the size is not fixed. */
    span<const std::int64_t> dims() const noexcept { return {raw_.dims, raw_.rank}; }
    /** The name of the dim at `at`, which is below rank(); "" if it has none. */
    std::string_view dim_name(std::size_t at) const noexcept { return raw_.dim_names[at]; }
    /** It has a default and may be left out. */
    bool is_optional() const noexcept { return (raw_.flags & OXP_PORT_OPTIONAL) != 0; }
    /** The graph declares a rank. */
    bool has_rank() const noexcept { return (raw_.flags & OXP_PORT_RANK_UNKNOWN) == 0; }
    const oxp_port_info &raw() const noexcept { return raw_; }
    oxp_port_info &raw() noexcept { return raw_; }

private:
    oxp_port_info raw_;
};

/** oxp_component_info: a component. Borrowed until the pipeline ends. */
class component_info {
public:
    component_info() noexcept : raw_(detail::sized<oxp_component_info>()) {}
    std::string_view name() const noexcept { return {raw_.name, raw_.name_len}; }
    std::string_view component_type() const noexcept { return {raw_.component_type, raw_.component_type_len}; }
    std::string_view file() const noexcept { return {raw_.file, raw_.file_len}; }
    oxp::backend backend() const noexcept { return static_cast<oxp::backend>(raw_.backend); }
    /** Why that backend runs it. */
    std::string_view reason() const noexcept { return {raw_.reason, raw_.reason_len}; }
    std::string_view when_present() const noexcept { return {raw_.when_present, raw_.when_present_len}; }
    std::uint64_t input_count() const noexcept { return raw_.input_count; }
    std::uint64_t output_count() const noexcept { return raw_.output_count; }
    oxp::phase phase() const noexcept { return static_cast<oxp::phase>(raw_.phase); }
    const oxp_component_info &raw() const noexcept { return raw_; }
    oxp_component_info &raw() noexcept { return raw_; }

private:
    oxp_component_info raw_;
};

/** oxp_pipeline_info: what a package is. Borrowed until the pipeline ends. */
class pipeline_info {
public:
    pipeline_info() noexcept : raw_(detail::sized<oxp_pipeline_info>()) {}
    std::string_view format() const noexcept { return {raw_.format, raw_.format_len}; }
    std::string_view metadata_file() const noexcept { return {raw_.metadata_file, raw_.metadata_file_len}; }
    std::string_view strategy() const noexcept { return {raw_.strategy, raw_.strategy_len}; }
    /** The component that chooses tokens; "" if there is no token loop. */
    std::string_view decoder() const noexcept { return {raw_.decoder, raw_.decoder_len}; }
    span<const std::int32_t> eos_token_ids() const noexcept { return {raw_.eos_token_ids, raw_.eos_token_id_count}; }
    /** 0 if the package does not say. */
    std::uint64_t context_length() const noexcept { return raw_.context_length; }
    /** 0 if the graphs do not tell. */
    std::uint64_t kv_bytes_per_token() const noexcept { return raw_.kv_bytes_per_token; }
    std::uint64_t component_count() const noexcept { return raw_.component_count; }
    bool has_tokenizer() const noexcept { return (raw_.flags & OXP_PIPELINE_HAS_TOKENIZER) != 0; }
    bool has_chat_template() const noexcept { return (raw_.flags & OXP_PIPELINE_HAS_CHAT_TEMPLATE) != 0; }
    const oxp_pipeline_info &raw() const noexcept { return raw_; }
    oxp_pipeline_info &raw() noexcept { return raw_; }

private:
    oxp_pipeline_info raw_;
};

/** oxp_load_progress: how far loading is. Borrowed until the callback returns. */
class load_progress {
public:
    explicit load_progress(const oxp_load_progress &raw) noexcept : raw_(detail::known_part(raw)) {}
    /** Components that are loaded. */
    std::uint64_t done() const noexcept { return raw_.done; }
    std::uint64_t total() const noexcept { return raw_.total; }
    /** The component that comes next; "" at the end. */
    std::string_view component() const noexcept { return {raw_.component, raw_.component_len}; }
    const oxp_load_progress &raw() const noexcept { return raw_; }

private:
    oxp_load_progress raw_;
};

/**
 * oxp_event: what a step did. A copy has no memory of its own: text(), latent() and codes() are
 * borrowed until the next call on the run, in a callback until that returns.
 */
class event {
public:
    event() noexcept : raw_(detail::sized<oxp_event>()) {}
    explicit event(const oxp_event &raw) noexcept : raw_(detail::known_part(raw)) {}
    /** The chosen token id; -1 if the package has no token loop. */
    std::int32_t token() const noexcept { return raw_.token; }
    /** Text that has become certain with this token, often ""; may hold a NUL. */
    std::string_view text() const noexcept
    {
        return raw_.text != nullptr ? std::string_view(raw_.text, raw_.text_len) : std::string_view();
    }
    /** finish_reason::none while there is more to come. */
    oxp::finish_reason finish_reason() const noexcept { return static_cast<oxp::finish_reason>(raw_.finish_reason); }
    bool finished() const noexcept { return raw_.finish_reason != OXP_FINISH_NONE; }
    /** Where the text begins in that of the turn, in bytes. */
    std::uint64_t text_offset() const noexcept { return raw_.text_offset; }
    /** Whether a constraint left no choice, so that the model was not asked. */
    bool forced() const noexcept { return (raw_.flags & OXP_EVENT_FORCED) != 0; }
    /**
     * With end_of_text, the token's place among the package's end tokens; with stop_string and
     * stop_tokens, the place in the option's list; else -1.
     */
    std::int32_t finish_index() const noexcept { return raw_.finish_index; }
    float logprob() const noexcept { return raw_.logprob; }
    std::uint64_t prompt_tokens() const noexcept { return raw_.prompt_tokens; }
    std::uint64_t generated_tokens() const noexcept { return raw_.generated_tokens; }
    std::uint64_t prompt_components_ns() const noexcept { return raw_.prompt_components_ns; }
    std::uint64_t step_components_ns() const noexcept { return raw_.step_components_ns; }
    std::uint64_t decoder_ns() const noexcept { return raw_.decoder_ns; }
    std::uint64_t total_ns() const noexcept { return raw_.total_ns; }
    /** In an iterative package, the steps of its loop up to and with this one; else 0. */
    std::uint32_t loop_step() const noexcept { return raw_.loop_step; }
    /** The steps of the loop in all; else 0. */
    std::uint32_t loop_step_count() const noexcept { return raw_.loop_step_count; }
    /** How many tensors go from step to step of an iterative package; else 0. */
    std::uint64_t latent_count() const noexcept { return raw_.latent_count; }
    /** One of them, as this step has made it; `index` is below latent_count(). */
    tensor_view latent(std::uint64_t index) const noexcept { return tensor_view(raw_.latents[index]); }
    /** The codes of this frame, where steps are frames of codes; else NULL. Borrowed as text() is. */
    const std::int64_t *codes() const noexcept { return raw_.codes; }
    std::uint64_t code_count() const noexcept { return raw_.code_count; }
    const oxp_event &raw() const noexcept { return raw_; }
    oxp_event &raw() noexcept { return raw_; }

private:
    oxp_event raw_;
};

/** oxp_run_stats: what a run has done. */
class run_stats {
public:
    run_stats() noexcept : raw_(detail::sized<oxp_run_stats>()) {}
    /** Why the run is finished, if it is. */
    oxp::finish_reason finish_reason() const noexcept { return static_cast<oxp::finish_reason>(raw_.finish_reason); }
    std::uint64_t prompt_tokens() const noexcept { return raw_.prompt_tokens; }
    std::uint64_t generated_tokens() const noexcept { return raw_.generated_tokens; }
    std::uint64_t component_runs() const noexcept { return raw_.component_runs; }
    std::uint64_t prefill_ns() const noexcept { return raw_.prefill_ns; }
    std::uint64_t decode_ns() const noexcept { return raw_.decode_ns; }
    std::uint64_t kv_bytes() const noexcept { return raw_.kv_bytes; }
    std::uint64_t reused_tokens() const noexcept { return raw_.reused_tokens; }
    std::uint64_t proposed_tokens() const noexcept { return raw_.proposed_tokens; }
    std::uint64_t accepted_tokens() const noexcept { return raw_.accepted_tokens; }
    std::uint64_t passes() const noexcept { return raw_.passes; }
    const oxp_run_stats &raw() const noexcept { return raw_; }
    oxp_run_stats &raw() noexcept { return raw_; }

private:
    oxp_run_stats raw_;
};

/** An entry of a model's metadata. Borrowed until the session ends. */
struct metadata_entry {
    std::string_view key;
    std::string_view value;
};

/** Who runs a graph, and why, in words, borrowed until the session ends. */
struct backend_choice {
    oxp::backend which;
    std::string_view reason;
};

/** A token with a role: its id, or -1 if there is none; its text, borrowed until the tokenizer ends. */
struct special_token {
    std::int32_t id;
    std::string_view text;
};

/** Bytes of text before a piece, tokens before those whose text it is, and how many these are. */
struct text_span {
    std::uint64_t offset;
    std::uint64_t first;
    std::uint64_t count;
};

/* ---- Cancel, options, runtime ------------------------------------------------------- */

/** oxp_cancel: asks long calls, on whatever thread, to end early. Shared. */
class cancel : public detail::handle<oxp_cancel, oxp_cancel_free> {
public:
    cancel() noexcept = default;
    explicit cancel(oxp_cancel *owned) noexcept : handle(owned) {}

    /** oxp_cancel_create: one that is not requested. */
    [[nodiscard]] static returns<cancel> create()
    {
        oxp_error *owned = nullptr;
        oxp_cancel *made = nullptr;
        const oxp_status status = oxp_cancel_create(&made, &owned);
        return detail::give(status, owned, cancel(made));
    }
    /** oxp_cancel_request: ends the calls that were given it. It stays requested until reset(). Not for signal handlers. */
    returns<void> request() const
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_cancel_request(get(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_cancel_reset: makes it as new. (Freeing it early is what handle::reset does.) */
    returns<void> withdraw() const
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_cancel_reset(get(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_cancel_is_requested. */
    [[nodiscard]] returns<bool> is_requested() const
    {
        oxp_error *owned = nullptr;
        std::int32_t requested = 0;
        const oxp_status status = oxp_cancel_is_requested(get(), &requested, &owned);
        return detail::give(status, owned, requested != 0);
    }
};

/**
 * oxp_options of one kind, an OXP_OPTIONS_ code; oxpipe.h lists the keys of each. May end as
 * soon as something was made with it. Serial.
 */
template <std::uint32_t Kind>
class options : public detail::handle<oxp_options, oxp_options_free> {
public:
    options() noexcept = default;
    explicit options(oxp_options *owned) noexcept : handle(owned) {}

    /** oxp_options_create: all at their defaults. */
    [[nodiscard]] static returns<options> create()
    {
        oxp_error *owned = nullptr;
        oxp_options *made = nullptr;
        const oxp_status status = oxp_options_create(Kind, &made, &owned);
        return detail::give(status, owned, options(made));
    }
    /** oxp_options_set: sets one option; the last value of a key counts. */
    returns<void> set(std::string_view key, std::string_view value)
    {
        oxp_error *owned = nullptr;
        const oxp_status status =
            oxp_options_set(get(), detail::chars(key), key.size(), detail::chars(value), value.size(), &owned);
        return detail::done(status, owned);
    }
    /** The same with a number, or with "true" or "false". */
    template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, char>, int> = 0>
    returns<void> set(std::string_view key, T value)
    {
        if constexpr (std::is_same_v<T, bool>) {
            return set(key, value ? std::string_view("true") : std::string_view("false"));
        } else {
            char digits[24];
            char *begin = digits + sizeof digits;
            auto rest = static_cast<std::uint64_t>(value);
            const bool negative = std::is_signed_v<T> && value < T{0};
            if (negative)
                rest = 0 - rest;
            do
                *--begin = static_cast<char>('0' + rest % 10);
            while ((rest /= 10) != 0);
            if (negative)
                *--begin = '-';
            return set(key, std::string_view(begin, static_cast<std::size_t>(digits + sizeof digits - begin)));
        }
    }
};

/** For runtime::create. */
using runtime_options = options<OXP_OPTIONS_RUNTIME>;
/** For session::open and session::open_memory. */
using session_options = options<OXP_OPTIONS_SESSION>;
/** For pipeline::open and pipeline::open_memory. */
using pipeline_options = options<OXP_OPTIONS_PIPELINE>;
/** For run::create. */
using run_options = options<OXP_OPTIONS_RUN>;

/** oxp_runtime: threads, ONNX Runtime and the logger that sessions and pipelines share. Shared. */
class runtime : public detail::handle<oxp_runtime, oxp_runtime_free> {
public:
    runtime() noexcept = default;
    explicit runtime(oxp_runtime *owned) noexcept : handle(owned) {}

    /** oxp_runtime_create, without a logger. */
    [[nodiscard]] static returns<runtime> create(maybe<runtime_options> settings = {})
    {
        oxp_error *owned = nullptr;
        oxp_runtime *made = nullptr;
        const oxp_status status = oxp_runtime_create(settings.get(), &made, nullptr, nullptr, nullptr, &owned);
        return detail::give(status, owned, runtime(made));
    }
    /**
     * oxp_runtime_create, with a logger: `log(oxp::log_level, std::string_view)`, the text
     * borrowed until it returns. It is moved into memory of its own, called on any thread, at
     * once from several, and destroyed when nothing can log any more, also when this call
     * fails. What it throws is dropped.
     */
    template <class Log, std::enable_if_t<std::is_invocable_v<std::decay_t<Log> &, log_level, std::string_view>, int> = 0>
    [[nodiscard]] static returns<runtime> create(maybe<runtime_options> settings, Log &&log)
    {
        using logger = std::decay_t<Log>;
        auto *const kept = new (std::nothrow) logger(std::forward<Log>(log));
        if (kept == nullptr)
            return detail::fail<runtime>(error(OXP_ERR_OUT_OF_MEMORY, "oxp::runtime::create: no memory for the logger"));
        oxp_error *owned = nullptr;
        oxp_runtime *made = nullptr;
        const oxp_status status =
            oxp_runtime_create(settings.get(), &made, call_log<logger>, kept, free_log<logger>, &owned);
        return detail::give(status, owned, runtime(made));
    }

private:
    template <class Log>
    static void call_log(void *kept, std::uint32_t level, const char *message, std::uint64_t length) noexcept
    {
        const std::string_view line(message, length);
#if OXPIPE_COMPILER_THROWS
        try {
            (*static_cast<Log *>(kept))(static_cast<log_level>(level), line);
        } catch (...) {
        }
#else
        (*static_cast<Log *>(kept))(static_cast<log_level>(level), line);
#endif
    }
    template <class Log>
    static void free_log(void *kept) noexcept
    {
        delete static_cast<Log *>(kept);
    }
};

/* ---- One graph ----------------------------------------------------------------------- */

/** oxp_outputs: the outputs of one run of a session. Shared. */
class outputs : public detail::handle<oxp_outputs, oxp_outputs_free> {
public:
    outputs() noexcept = default;
    explicit outputs(oxp_outputs *owned) noexcept : handle(owned) {}

    /** oxp_outputs_get_count. */
    [[nodiscard]] returns<std::uint64_t> count() const
    {
        oxp_error *owned = nullptr;
        std::uint64_t found = 0;
        const oxp_status status = oxp_outputs_get_count(get(), &found, &owned);
        return detail::give(status, owned, found);
    }
    /** oxp_outputs_get_at: name and tensor, borrowed until the outputs end. */
    [[nodiscard]] returns<named_view> at(std::uint64_t index) const
    {
        oxp_error *owned = nullptr;
        const char *name = nullptr;
        std::uint64_t length = 0;
        tensor_view found;
        const oxp_status status = oxp_outputs_get_at(get(), index, &name, &length, &found.raw(), &owned);
        return detail::give(status, owned, named_view(std::string_view(name, length), found));
    }
    /** oxp_outputs_get: the tensor of that name, borrowed until the outputs end. */
    [[nodiscard]] returns<tensor_view> tensor(std::string_view name) const
    {
        oxp_error *owned = nullptr;
        tensor_view found;
        const oxp_status status =
            oxp_outputs_get(get(), detail::chars(name), name.size(), &found.raw(), &owned);
        return detail::give(status, owned, found);
    }
};

/** oxp_session: one ONNX graph, loaded and ready to run. Shared. */
class session : public detail::handle<oxp_session, oxp_session_free> {
public:
    session() noexcept = default;
    explicit session(oxp_session *owned) noexcept : handle(owned) {}

    /** oxp_session_open: the model in the file at `path` (UTF-8). */
    [[nodiscard]] static returns<session> open(std::string_view path, maybe<session_options> settings = {},
                                               maybe<runtime> with = {}, maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        oxp_session *made = nullptr;
        const oxp_status status = oxp_session_open(with.get(), detail::chars(path), path.size(), settings.get(), &made,
                                                   stop.get(), &owned);
        return detail::give(status, owned, session(made));
    }
    /** oxp_session_open_memory: a model in memory, and the files of its external data. All bytes are copied. */
    [[nodiscard]] static returns<session> open_memory(byte_view model, span<const file_view> external = {},
                                                      maybe<session_options> settings = {}, maybe<runtime> with = {},
                                                      maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        oxp_session *made = nullptr;
        const oxp_status status =
            oxp_session_open_memory(with.get(), model.data(), model.size(), detail::raw(external), external.size(),
                                    settings.get(), &made, stop.get(), &owned);
        return detail::give(status, owned, session(made));
    }

    /** oxp_session_get_input_count. */
    [[nodiscard]] returns<std::uint64_t> input_count() const { return count(oxp_session_get_input_count); }
    /** oxp_session_get_output_count. */
    [[nodiscard]] returns<std::uint64_t> output_count() const { return count(oxp_session_get_output_count); }
    /** oxp_session_get_input: borrowed until the session ends. */
    [[nodiscard]] returns<port_info> input(std::uint64_t index) const
    {
        oxp_error *owned = nullptr;
        port_info info;
        const oxp_status status = oxp_session_get_input(get(), index, &info.raw(), &owned);
        return detail::give(status, owned, info);
    }
    /** oxp_session_get_output: borrowed until the session ends. */
    [[nodiscard]] returns<port_info> output(std::uint64_t index) const
    {
        oxp_error *owned = nullptr;
        port_info info;
        const oxp_status status = oxp_session_get_output(get(), index, &info.raw(), &owned);
        return detail::give(status, owned, info);
    }
    /** oxp_session_get_metadata_count. */
    [[nodiscard]] returns<std::uint64_t> metadata_count() const { return count(oxp_session_get_metadata_count); }
    /** oxp_session_get_metadata: borrowed until the session ends. */
    [[nodiscard]] returns<metadata_entry> metadata(std::uint64_t index) const
    {
        oxp_error *owned = nullptr;
        const char *key = nullptr;
        const char *value = nullptr;
        std::uint64_t key_len = 0;
        std::uint64_t value_len = 0;
        const oxp_status status = oxp_session_get_metadata(get(), index, &key, &key_len, &value, &value_len, &owned);
        return detail::give(status, owned, metadata_entry{{key, key_len}, {value, value_len}});
    }
    /** oxp_session_get_backend: who runs the graph and why, borrowed until the session ends. */
    [[nodiscard]] returns<backend_choice> chosen_backend() const
    {
        oxp_error *owned = nullptr;
        std::uint32_t which = 0;
        const char *reason = nullptr;
        std::uint64_t length = 0;
        const oxp_status status = oxp_session_get_backend(get(), &which, &reason, &length, &owned);
        return detail::give(status, owned, backend_choice{static_cast<backend>(which), {reason, length}});
    }
    /** oxp_session_get_stats: times that the graph was run. */
    [[nodiscard]] returns<std::uint64_t> runs() const
    {
        oxp_error *owned = nullptr;
        oxp_session_stats stats = detail::sized<oxp_session_stats>();
        const oxp_status status = oxp_session_get_stats(get(), &stats, &owned);
        return detail::give(status, owned, stats.runs);
    }

    /**
     * oxp_session_output_bound: how large the outputs will be, without running. The data of
     * the inputs is not read; of each output dtype, byte_len, rank and dims are set.
     */
    returns<void> output_bound(span<const named_view> inputs, span<named_room> rooms) const
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_session_output_bound(get(), detail::raw(inputs), inputs.size(),
                                                           detail::raw(rooms), rooms.size(), &owned);
        return detail::done(status, owned);
    }
    /**
     * oxp_session_run: runs the graph on named inputs, for any subset of its outputs, into the
     * caller's memory. If any room is too small (OXP_ERR_BUFFER_TOO_SMALL), all of them say
     * what they need.
     */
    returns<void> run(span<const named_view> inputs, span<named_room> rooms, maybe<cancel> stop = {}) const
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_session_run(get(), detail::raw(inputs), inputs.size(), detail::raw(rooms),
                                                  rooms.size(), stop.get(), &owned);
        return detail::done(status, owned);
    }
    /** The same with inputs in braces. */
    returns<void> run(std::initializer_list<named_view> inputs, span<named_room> rooms, maybe<cancel> stop = {}) const
    {
        return run(span<const named_view>(inputs.begin(), inputs.size()), rooms, stop);
    }
    /** oxp_session_run_alloc: the same into memory of the library, for all outputs. */
    [[nodiscard]] returns<outputs> run_alloc(span<const named_view> inputs, maybe<cancel> stop = {}) const
    {
        return run_alloc(inputs, nullptr, nullptr, 0, stop);
    }
    /** The same with inputs in braces. */
    [[nodiscard]] returns<outputs> run_alloc(std::initializer_list<named_view> inputs, maybe<cancel> stop = {}) const
    {
        return run_alloc(span<const named_view>(inputs.begin(), inputs.size()), nullptr, nullptr, 0, stop);
    }
    /** oxp_session_run_alloc for the outputs of these names, which end with a NUL, in this order. */
    [[nodiscard]] returns<outputs> run_alloc(span<const named_view> inputs, span<const char *const> names,
                                             maybe<cancel> stop = {}) const
    {
        /* No names is no output here; in C a NULL would mean all of them. */
        static const char *const none[1] = {""};
        return run_alloc(inputs, names.empty() ? none : names.data(), nullptr, names.size(), stop);
    }
    /** oxp_session_run_alloc as C has it, with the lengths of names that do not end with a NUL. */
    [[nodiscard]] returns<outputs> run_alloc(span<const named_view> inputs, const char *const *names,
                                             const std::uint64_t *name_lens, std::uint64_t name_count,
                                             maybe<cancel> stop = {}) const
    {
        oxp_error *owned = nullptr;
        oxp_outputs *made = nullptr;
        const oxp_status status = oxp_session_run_alloc(get(), detail::raw(inputs), inputs.size(), names, name_lens,
                                                        name_count, &made, stop.get(), &owned);
        return detail::give(status, owned, outputs(made));
    }

private:
    returns<std::uint64_t> count(oxp_status (*ask)(const oxp_session *, std::uint64_t *, oxp_error **)) const
    {
        oxp_error *owned = nullptr;
        std::uint64_t found = 0;
        const oxp_status status = ask(get(), &found, &owned);
        return detail::give(status, owned, found);
    }
};

/* ---- Pipelines ------------------------------------------------------------------------ */

/** What opening a package would take. */
struct memory_estimate {
    /** Bytes of all weights. */
    std::uint64_t weight_bytes;
    /** {"weight_bytes": N, "components": [...]}. */
    std::string json;
};

/** oxp_pipeline: a package of ONNX graphs, loaded, each on a backend. Shared. */
class pipeline : public detail::handle<oxp_pipeline, oxp_pipeline_free> {
public:
    pipeline() noexcept = default;
    explicit pipeline(oxp_pipeline *owned) noexcept : handle(owned) {}

    /** oxp_pipeline_open: the package in the folder at `path` (UTF-8). */
    [[nodiscard]] static returns<pipeline> open(std::string_view path, maybe<pipeline_options> settings = {},
                                                maybe<runtime> with = {}, maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        oxp_pipeline *made = nullptr;
        const oxp_status status = oxp_pipeline_open(with.get(), detail::chars(path), path.size(), settings.get(), &made,
                                                    nullptr, nullptr, stop.get(), &owned);
        return detail::give(status, owned, pipeline(made));
    }
    /**
     * oxp_pipeline_open, which tells `progress(const oxp::load_progress &)` before each
     * component, and at the end. If that returns false, opening fails with OXP_ERR_CANCELLED.
     */
    template <class Progress, std::enable_if_t<std::is_invocable_v<Progress &, const load_progress &>, int> = 0>
    [[nodiscard]] static returns<pipeline> open(std::string_view path, maybe<pipeline_options> settings,
                                                maybe<runtime> with, Progress &&progress, maybe<cancel> stop = {})
    {
        told<Progress> state{&progress, {}};
        oxp_error *owned = nullptr;
        oxp_pipeline *made = nullptr;
        const oxp_status status = oxp_pipeline_open(with.get(), detail::chars(path), path.size(), settings.get(), &made,
                                                    told<Progress>::call, &state, stop.get(), &owned);
        pipeline opened(made);
        state.caught.rethrow(owned);
        return detail::give(status, owned, std::move(opened));
    }
    /** oxp_pipeline_open_memory: a package of files in memory, whose bytes are copied. */
    [[nodiscard]] static returns<pipeline> open_memory(span<const file_view> files,
                                                       maybe<pipeline_options> settings = {}, maybe<runtime> with = {},
                                                       maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        oxp_pipeline *made = nullptr;
        const oxp_status status = oxp_pipeline_open_memory(with.get(), detail::raw(files), files.size(), settings.get(),
                                                           &made, nullptr, nullptr, stop.get(), &owned);
        return detail::give(status, owned, pipeline(made));
    }
    /** oxp_pipeline_open_memory with a progress callback, as open() has it. */
    template <class Progress, std::enable_if_t<std::is_invocable_v<Progress &, const load_progress &>, int> = 0>
    [[nodiscard]] static returns<pipeline> open_memory(span<const file_view> files, maybe<pipeline_options> settings,
                                                       maybe<runtime> with, Progress &&progress,
                                                       maybe<cancel> stop = {})
    {
        told<Progress> state{&progress, {}};
        oxp_error *owned = nullptr;
        oxp_pipeline *made = nullptr;
        const oxp_status status = oxp_pipeline_open_memory(with.get(), detail::raw(files), files.size(), settings.get(),
                                                           &made, told<Progress>::call, &state, stop.get(), &owned);
        pipeline opened(made);
        state.caught.rethrow(owned);
        return detail::give(status, owned, std::move(opened));
    }
    /** oxp_pipeline_estimate_copy: what opening would take, without loading it. */
    [[nodiscard]] static returns<memory_estimate> estimate(std::string_view path, maybe<pipeline_options> settings = {},
                                                           maybe<runtime> with = {})
    {
        memory_estimate found{0, std::string(512, '\0')};
        for (;;) {
            oxp_error *owned = nullptr;
            std::uint64_t needed = 0;
            const oxp_status status =
                oxp_pipeline_estimate_copy(with.get(), detail::chars(path), path.size(), settings.get(),
                                           &found.weight_bytes, found.json.data(), found.json.size(), &needed, &owned);
            found.json.resize(needed);
            if (status != OXP_ERR_BUFFER_TOO_SMALL)
                return detail::give(status, owned, std::move(found));
            oxp_error_free(owned);
        }
    }

    /** oxp_pipeline_get_info: what the package is, borrowed until the pipeline ends. */
    [[nodiscard]] returns<pipeline_info> info() const
    {
        oxp_error *owned = nullptr;
        pipeline_info found;
        const oxp_status status = oxp_pipeline_get_info(get(), &found.raw(), &owned);
        return detail::give(status, owned, found);
    }
    /** oxp_pipeline_get_component: the component at `index`, borrowed until the pipeline ends. */
    [[nodiscard]] returns<component_info> component(std::uint64_t index) const
    {
        oxp_error *owned = nullptr;
        component_info found;
        const oxp_status status = oxp_pipeline_get_component(get(), index, &found.raw(), &owned);
        return detail::give(status, owned, found);
    }
    /** oxp_pipeline_get_input: of the component with that name, borrowed until the pipeline ends. */
    [[nodiscard]] returns<port_info> input(std::string_view component_name, std::uint64_t index) const
    {
        oxp_error *owned = nullptr;
        port_info found;
        const oxp_status status = oxp_pipeline_get_input(get(), detail::chars(component_name), component_name.size(),
                                                         index, &found.raw(), &owned);
        return detail::give(status, owned, found);
    }
    /** oxp_pipeline_get_output: of the component with that name, borrowed until the pipeline ends. */
    [[nodiscard]] returns<port_info> output(std::string_view component_name, std::uint64_t index) const
    {
        oxp_error *owned = nullptr;
        port_info found;
        const oxp_status status = oxp_pipeline_get_output(get(), detail::chars(component_name), component_name.size(),
                                                          index, &found.raw(), &owned);
        return detail::give(status, owned, found);
    }
    /** oxp_pipeline_describe_copy: all that is known, as JSON, as an owned copy. */
    [[nodiscard]] returns<std::string> describe() const
    {
        return detail::owned_copy<std::string>(
            0, [this](char *buffer, std::uint64_t capacity, std::uint64_t *needed, oxp_error **owned) {
                return oxp_pipeline_describe_copy(get(), buffer, capacity, needed, owned);
            });
    }
    /** oxp_pipeline_embed: "embeddings", the vector of each text. */
    [[nodiscard]] returns<outputs> embed(span<const std::string_view> texts, maybe<cancel> stop = {}) const
    {
        return read(oxp_pipeline_embed, texts, stop.get());
    }
    /** oxp_pipeline_classify: "scores", those of each class for each text. */
    [[nodiscard]] returns<outputs> classify(span<const std::string_view> texts, maybe<cancel> stop = {}) const
    {
        return read(oxp_pipeline_classify, texts, stop.get());
    }
    /** oxp_pipeline_get_label_count: how many classes have names. */
    [[nodiscard]] returns<std::uint64_t> label_count() const
    {
        oxp_error *owned = nullptr;
        std::uint64_t found = 0;
        const oxp_status status = oxp_pipeline_get_label_count(get(), &found, &owned);
        return detail::give(status, owned, found);
    }
    /** oxp_pipeline_label_copy: the name of a class, as an owned copy. */
    [[nodiscard]] returns<std::string> label(std::uint64_t index) const
    {
        return detail::owned_copy<std::string>(
            0, [this, index](char *buffer, std::uint64_t capacity, std::uint64_t *needed, oxp_error **owned) {
                return oxp_pipeline_label_copy(get(), index, buffer, capacity, needed, owned);
            });
    }

private:
    using reader = oxp_status (*)(const oxp_pipeline *, const char *const *, const std::uint64_t *, std::uint64_t,
                                  oxp_outputs **, const oxp_cancel *, oxp_error **);
    returns<outputs> read(reader from, span<const std::string_view> texts, const oxp_cancel *stop) const
    {
        std::vector<const char *> starts;
        std::vector<std::uint64_t> lengths;
        for (const std::string_view text : texts) {
            starts.push_back(detail::chars(text));
            lengths.push_back(text.size());
        }
        oxp_error *owned = nullptr;
        oxp_outputs *made = nullptr;
        const oxp_status status = from(get(), starts.data(), lengths.data(), starts.size(), &made, stop, &owned);
        return detail::give(status, owned, outputs(made));
    }
    template <class Progress>
    struct told {
        std::remove_reference_t<Progress> *progress;
        detail::thrown caught;
        static std::int32_t call(void *user_data, const oxp_load_progress *state) noexcept
        {
            auto *const self = static_cast<told *>(user_data);
            return self->caught.call(*self->progress, load_progress(*state));
        }
    };
};

/* ---- Text ------------------------------------------------------------------------------ */

/** oxp_tokenizer: a Hugging Face tokenizer. Shared. */
class tokenizer : public detail::handle<oxp_tokenizer, oxp_tokenizer_free> {
public:
    tokenizer() noexcept = default;
    explicit tokenizer(oxp_tokenizer *owned) noexcept : handle(owned) {}

    /** oxp_tokenizer_open: a `tokenizer.json` at `path` (UTF-8), and tokenizer_config.json beside it. */
    [[nodiscard]] static returns<tokenizer> open(std::string_view path)
    {
        oxp_error *owned = nullptr;
        oxp_tokenizer *made = nullptr;
        const oxp_status status = oxp_tokenizer_open(detail::chars(path), path.size(), &made, &owned);
        return detail::give(status, owned, tokenizer(made));
    }
    /** oxp_tokenizer_open_memory: from the bytes of both files, which are not kept; none is no config. */
    [[nodiscard]] static returns<tokenizer> open_memory(byte_view json, byte_view config = {})
    {
        oxp_error *owned = nullptr;
        oxp_tokenizer *made = nullptr;
        const oxp_status status =
            oxp_tokenizer_open_memory(json.data(), json.size(), config.data(), config.size(), &made, &owned);
        return detail::give(status, owned, tokenizer(made));
    }
    /** oxp_tokenizer_open_pipeline: that of a package; may outlive the pipeline. */
    [[nodiscard]] static returns<tokenizer> open(const pipeline &package)
    {
        oxp_error *owned = nullptr;
        oxp_tokenizer *made = nullptr;
        const oxp_status status = oxp_tokenizer_open_pipeline(package.get(), &made, &owned);
        return detail::give(status, owned, tokenizer(made));
    }

    /**
     * oxp_tokenizer_encode_copy: the ids of text, into `ids`; gives their number. An empty
     * span asks for it. Too small a span is OXP_ERR_BUFFER_TOO_SMALL, and left untouched.
     */
    [[nodiscard]] returns<std::uint64_t> encode_to(span<std::int32_t> ids, std::string_view text,
                                                   bool add_special = false) const
    {
        oxp_error *owned = nullptr;
        std::uint64_t needed = 0;
        const oxp_status status =
            oxp_tokenizer_encode_copy(get(), detail::chars(text), text.size(), add_special ? 1 : 0, detail::room(ids),
                                      ids.size(), &needed, &owned);
        return detail::give(status, owned, needed);
    }
    /** The same as an owned vector. */
    [[nodiscard]] returns<std::vector<std::int32_t>> encode(std::string_view text, bool add_special = false) const
    {
        return detail::owned_copy<std::vector<std::int32_t>>(
            text.size() / 2 + 8,
            [&](std::int32_t *ids, std::uint64_t capacity, std::uint64_t *needed, oxp_error **owned) {
                return oxp_tokenizer_encode_copy(get(), detail::chars(text), text.size(), add_special ? 1 : 0, ids,
                                                 capacity, needed, owned);
            });
    }
    /** oxp_tokenizer_decode_copy: the text of ids, into `buffer`; gives its length. An empty span asks. */
    [[nodiscard]] returns<std::uint64_t> decode_to(span<char> buffer, span<const std::int32_t> ids,
                                                   bool skip_special = true) const
    {
        oxp_error *owned = nullptr;
        std::uint64_t needed = 0;
        const oxp_status status = oxp_tokenizer_decode_copy(get(), ids.data(), ids.size(), skip_special ? 1 : 0,
                                                            detail::room(buffer), buffer.size(), &needed, &owned);
        return detail::give(status, owned, needed);
    }
    /** The same as an owned string. */
    [[nodiscard]] returns<std::string> decode(span<const std::int32_t> ids, bool skip_special = true) const
    {
        return detail::owned_copy<std::string>(
            ids.size() * 8 + 8, [&](char *buffer, std::uint64_t capacity, std::uint64_t *needed, oxp_error **owned) {
                return oxp_tokenizer_decode_copy(get(), ids.data(), ids.size(), skip_special ? 1 : 0, buffer, capacity,
                                                 needed, owned);
            });
    }
    /** oxp_tokenizer_get_vocab_size: how many tokens have an id. */
    [[nodiscard]] returns<std::uint64_t> vocab_size() const
    {
        oxp_error *owned = nullptr;
        std::uint64_t size = 0;
        const oxp_status status = oxp_tokenizer_get_vocab_size(get(), &size, &owned);
        return detail::give(status, owned, size);
    }
    /** oxp_tokenizer_get_special: the token with a role, borrowed until the tokenizer ends. */
    [[nodiscard]] returns<special_token> special(token_role role) const
    {
        oxp_error *owned = nullptr;
        std::int32_t id = -1;
        const char *text = nullptr;
        std::uint64_t length = 0;
        const oxp_status status =
            oxp_tokenizer_get_special(get(), static_cast<std::uint32_t>(role), &id, &text, &length, &owned);
        return detail::give(status, owned, special_token{id, {text, length}});
    }
    /** oxp_tokenizer_token_copy: one token as the vocabulary writes it, as an owned string. */
    [[nodiscard]] returns<std::string> token(std::int32_t id) const
    {
        return detail::owned_copy<std::string>(
            15, [&](char *buffer, std::uint64_t capacity, std::uint64_t *needed, oxp_error **owned) {
                return oxp_tokenizer_token_copy(get(), id, buffer, capacity, needed, owned);
            });
    }
    /** oxp_tokenizer_find_token: the id of a token as the vocabulary writes it, or -1. */
    [[nodiscard]] returns<std::int32_t> find_token(std::string_view text) const
    {
        oxp_error *owned = nullptr;
        std::int32_t id = -1;
        const oxp_status status = oxp_tokenizer_find_token(get(), detail::chars(text), text.size(), &id, &owned);
        return detail::give(status, owned, id);
    }
    /** oxp_tokenizer_is_special: whether decoding with skip_special leaves the token out. */
    [[nodiscard]] returns<bool> is_special(std::int32_t id) const
    {
        oxp_error *owned = nullptr;
        std::int32_t special = 0;
        const oxp_status status = oxp_tokenizer_is_special(get(), id, &special, &owned);
        return detail::give(status, owned, special != 0);
    }
};

/** oxp_decode_stream: decodes one token at a time into whole UTF-8 pieces. Serial. */
class decode_stream : public detail::handle<oxp_decode_stream, oxp_decode_stream_free> {
public:
    decode_stream() noexcept = default;
    explicit decode_stream(oxp_decode_stream *owned) noexcept : handle(owned) {}

    /** oxp_decode_stream_create: may outlive the tokenizer. */
    [[nodiscard]] static returns<decode_stream> create(const tokenizer &of, bool skip_special = true)
    {
        oxp_error *owned = nullptr;
        oxp_decode_stream *made = nullptr;
        const oxp_status status = oxp_decode_stream_create(of.get(), skip_special ? 1 : 0, &made, &owned);
        return detail::give(status, owned, decode_stream(made));
    }
    /** oxp_decode_stream_push: the text that has become certain, borrowed until the next call on the stream. */
    [[nodiscard]] returns<std::string_view> push(std::int32_t id)
    {
        oxp_error *owned = nullptr;
        const char *text = nullptr;
        std::uint64_t length = 0;
        const oxp_status status = oxp_decode_stream_push(get(), id, &text, &length, &owned);
        return detail::give(status, owned, std::string_view(text, length));
    }
    /** oxp_decode_stream_flush: what was held back, borrowed until the next call on the stream, which is then as new. */
    [[nodiscard]] returns<std::string_view> flush()
    {
        oxp_error *owned = nullptr;
        const char *text = nullptr;
        std::uint64_t length = 0;
        const oxp_status status = oxp_decode_stream_flush(get(), &text, &length, &owned);
        return detail::give(status, owned, std::string_view(text, length));
    }
    /** oxp_decode_stream_get_span: which part of the whole text the last call gave, and of which tokens. */
    [[nodiscard]] returns<text_span> last_span() const
    {
        oxp_error *owned = nullptr;
        text_span of{0, 0, 0};
        const oxp_status status = oxp_decode_stream_get_span(get(), &of.offset, &of.first, &of.count, &owned);
        return detail::give(status, owned, of);
    }
};

/** oxp_chat_template: a Hugging Face chat template (Jinja). Shared. */
class chat_template : public detail::handle<oxp_chat_template, oxp_chat_template_free> {
public:
    chat_template() noexcept = default;
    explicit chat_template(oxp_chat_template *owned) noexcept : handle(owned) {}

    /** oxp_chat_template_create: parses a template; the tokenizer gives the special tokens that it may write. */
    [[nodiscard]] static returns<chat_template> create(std::string_view source, maybe<tokenizer> specials = {})
    {
        oxp_error *owned = nullptr;
        oxp_chat_template *made = nullptr;
        const oxp_status status =
            oxp_chat_template_create(detail::chars(source), source.size(), specials.get(), &made, &owned);
        return detail::give(status, owned, chat_template(made));
    }
    /** oxp_chat_template_open_pipeline: that of a package; may outlive the pipeline. */
    [[nodiscard]] static returns<chat_template> open(const pipeline &package)
    {
        oxp_error *owned = nullptr;
        oxp_chat_template *made = nullptr;
        const oxp_status status = oxp_chat_template_open_pipeline(package.get(), &made, &owned);
        return detail::give(status, owned, chat_template(made));
    }
    /**
     * oxp_chat_template_render_copy: the prompt of a conversation, into `buffer`; gives its
     * length. An empty span asks for it. All arguments are JSON; "" is no tools, no extra.
     */
    [[nodiscard]] returns<std::uint64_t> render_to(span<char> buffer, std::string_view messages,
                                                   bool add_generation_prompt = true, std::string_view tools = {},
                                                   std::string_view extra = {}) const
    {
        oxp_error *owned = nullptr;
        std::uint64_t needed = 0;
        const oxp_status status = copy(messages, add_generation_prompt, tools, extra, detail::room(buffer),
                                       buffer.size(), &needed, &owned);
        return detail::give(status, owned, needed);
    }
    /** The same as an owned string. */
    [[nodiscard]] returns<std::string> render(std::string_view messages, bool add_generation_prompt = true,
                                              std::string_view tools = {}, std::string_view extra = {}) const
    {
        return detail::owned_copy<std::string>(
            messages.size() + 256,
            [&](char *buffer, std::uint64_t capacity, std::uint64_t *needed, oxp_error **owned) {
                return copy(messages, add_generation_prompt, tools, extra, buffer, capacity, needed, owned);
            });
    }

    /**
     * oxp_tool_calls_parse_copy: the calls of tools in an answer, as JSON. The format is the
     * template's, unless one is named. While the text is not `finished`, its end may be part of a call.
     * With `tools`, which the prompt was rendered with, oxp_tool_calls_parse_with_tools_copy: arguments
     * in plain text have the types of their schemas.
     */
    [[nodiscard]] returns<std::string> parse_tool_calls(std::string_view text, bool finished = true,
                                                        std::string_view format = {},
                                                        std::string_view tools = {}) const
    {
        return detail::owned_copy<std::string>(
            text.size() + 256,
            [&](char *buffer, std::uint64_t capacity, std::uint64_t *needed, oxp_error **owned) {
                const char *const named = format.empty() ? nullptr : format.data();
                const std::int32_t whole = finished ? 1 : 0;
                if (tools.empty()) {
                    return oxp_tool_calls_parse_copy(get(), named, format.size(), detail::chars(text), text.size(),
                                                     whole, buffer, capacity, needed, owned);
                }
                return oxp_tool_calls_parse_with_tools_copy(get(), named, format.size(), tools.data(), tools.size(),
                                                            detail::chars(text), text.size(), whole, buffer,
                                                            capacity, needed, owned);
            });
    }

private:
    oxp_status copy(std::string_view messages, bool add_generation_prompt, std::string_view tools,
                    std::string_view extra, char *buffer, std::uint64_t capacity, std::uint64_t *needed,
                    oxp_error **owned) const noexcept
    {
        return oxp_chat_template_render_copy(get(), detail::chars(messages), messages.size(),
                                             tools.empty() ? nullptr : tools.data(), tools.size(),
                                             extra.empty() ? nullptr : extra.data(), extra.size(),
                                             add_generation_prompt ? 1 : 0, buffer, capacity, needed, owned);
    }
};

/* ---- Runs ------------------------------------------------------------------------------ */

/**
 * The tokens of a run while they are made, a range for one loop: each turn is an oxp_run_step.
 * The last event is the one that finished the run; the loop may be left at any turn, and
 * another one goes on from there. Cancel and "timeout_ms" hold for each step. The run must
 * outlive the range and is not to be used inside of the loop, except between its turns:
 * looking at logits, forcing a token, rewinding is fine. Serial, with its run.
 *
 * With exceptions a step that fails throws from the loop. Without, the loop ends, and ok()
 * and failure() tell.
 */
class generation {
public:
    generation(oxp_run *run, const oxp_cancel *stop) noexcept : run_(run), stop_(stop) {}
    generation(generation &&) = default;
    generation &operator=(generation &&) = default;

    /** The end of the range. */
    struct sentinel {};

    /** An input iterator over events. */
    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = event;
        using difference_type = std::ptrdiff_t;
        using pointer = const event *;
        using reference = const event &;

        iterator() noexcept = default;
        explicit iterator(generation *of) noexcept : of_(of) {}
        const event &operator*() const noexcept { return of_->event_; }
        const event *operator->() const noexcept { return &of_->event_; }
        iterator &operator++()
        {
            of_->advance();
            return *this;
        }
        void operator++(int) { of_->advance(); }
        friend bool operator==(const iterator &at, sentinel) noexcept { return at.done(); }
        friend bool operator!=(const iterator &at, sentinel) noexcept { return !at.done(); }
        friend bool operator==(sentinel, const iterator &at) noexcept { return at.done(); }
        friend bool operator!=(sentinel, const iterator &at) noexcept { return !at.done(); }

    private:
        bool done() const noexcept { return of_->done_; }

        generation *of_ = nullptr;
    };

    /** Makes the first step. */
    iterator begin()
    {
        advance();
        return iterator(this);
    }
    sentinel end() const noexcept { return {}; }

    /** Why the run is finished; none if the loop was left before, or failed. */
    oxp::finish_reason finish_reason() const noexcept { return event_.finish_reason(); }

#if !OXPIPE_THROWS
    /** Whether no step has failed. */
    [[nodiscard]] bool ok() const noexcept { return !failure_.has_value(); }
    /** The error of the step that failed; only if there is one. */
    const error &failure() const noexcept
    {
        if (!failure_)
            std::abort();
        return *failure_;
    }
#endif

private:
    void advance()
    {
        done_ = event_.finished();
        if (done_)
            return;
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_step(run_, &event_.raw(), stop_, &owned);
        if (status == OXP_OK)
            return;
        done_ = true;
#if OXPIPE_THROWS
        throw error(status, owned);
#else
        failure_.emplace(status, owned);
#endif
    }

    oxp_run *run_;
    const oxp_cancel *stop_;
    event event_;
    bool done_ = false;
#if !OXPIPE_THROWS
    std::optional<error> failure_;
#endif
};

/**
 * oxp_run: one request to a pipeline: its tokens, inputs, values and KV cache. Serial: a call
 * that overlaps another, or that comes from a callback of one, fails with OXP_ERR_BUSY. May
 * outlive the pipeline. A call that fails leaves the run as it was, and usable.
 */
class run : public detail::handle<oxp_run, oxp_run_free> {
public:
    run() noexcept = default;
    explicit run(oxp_run *owned) noexcept : handle(owned) {}

    /** oxp_run_create: a run without tokens or inputs. */
    [[nodiscard]] static returns<run> create(const pipeline &of, maybe<run_options> settings = {})
    {
        oxp_error *owned = nullptr;
        oxp_run *made = nullptr;
        const oxp_status status = oxp_run_create(of.get(), settings.get(), &made, &owned);
        return detail::give(status, owned, run(made));
    }

    /** oxp_run_append_tokens: appends prompt tokens. After a finished answer this starts the next turn. */
    returns<void> append_tokens(span<const std::int32_t> tokens)
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_append_tokens(get(), tokens.data(), tokens.size(), &owned);
        return detail::done(status, owned);
    }
    /** The same with ids in braces. */
    returns<void> append_tokens(std::initializer_list<std::int32_t> tokens)
    {
        return append_tokens(span<const std::int32_t>(tokens.begin(), tokens.size()));
    }
    /** oxp_run_append_text: encodes and appends text; gives how many tokens it became. */
    returns<std::uint64_t> append_text(std::string_view text, bool add_special = false)
    {
        oxp_error *owned = nullptr;
        std::uint64_t count = 0;
        const oxp_status status =
            oxp_run_append_text(get(), detail::chars(text), text.size(), add_special ? 1 : 0, &count, &owned);
        return detail::give(status, owned, count);
    }

    /** oxp_run_step: feeds what has not run yet, chooses a token and appends it. */
    returns<event> step(maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        event made;
        const oxp_status status = oxp_run_step(get(), &made.raw(), stop.get(), &owned);
        return detail::give(status, owned, made);
    }
    /** Steps in a loop: `for (const auto &event : run.generate())`. See generation. */
    [[nodiscard]] generation generate(maybe<cancel> stop = {}) { return generation(get(), stop.get()); }
    /**
     * oxp_run_generate: steps until the run is finished; `on_event(const oxp::event &)` is
     * told each step, which has then happened. Gives why it is finished; finish_reason::none
     * if the callback returned false, after which another call goes on.
     */
    template <class OnEvent, std::enable_if_t<std::is_invocable_v<OnEvent &, const event &>, int> = 0>
    returns<finish_reason> generate(OnEvent &&on_event, maybe<cancel> stop = {})
    {
        told<OnEvent> state{&on_event, {}};
        oxp_error *owned = nullptr;
        std::uint32_t reason = OXP_FINISH_NONE;
        oxp_status status = oxp_run_generate(get(), &reason, told<OnEvent>::call, &state, stop.get(), &owned);
        state.caught.rethrow(owned);
        if (status == OXP_ERR_CANCELLED && state.caught.stopped()) {
            oxp_error_free(std::exchange(owned, nullptr));
            status = OXP_OK;
            reason = OXP_FINISH_NONE;
        }
        return detail::give(status, owned, static_cast<finish_reason>(reason));
    }
    /** oxp_run_generate without a callback: steps until the run is finished. */
    returns<finish_reason> generate_all(maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        std::uint32_t reason = OXP_FINISH_NONE;
        const oxp_status status = oxp_run_generate(get(), &reason, nullptr, nullptr, stop.get(), &owned);
        return detail::give(status, owned, static_cast<finish_reason>(reason));
    }
    /** oxp_run_forward: feeds what has not run yet and stops before a token is chosen. */
    returns<void> forward(maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_forward(get(), stop.get(), &owned);
        return detail::done(status, owned);
    }
    /**
     * oxp_run_set_logits_hook: the host's own processor of logits, before all others:
     * `hook(oxp::span<float> logits, oxp::span<const std::int32_t> tokens)`, which returns nothing, or a
     * bool, false to end the call that chooses with OXP_ERR_CANCELLED. It is moved into memory of its
     * own, and destroyed when another is set or the run is freed, also when this call fails. What it
     * throws ends the call so too.
     */
    template <class Hook, std::enable_if_t<
                              std::is_invocable_v<std::decay_t<Hook> &, span<float>, span<const std::int32_t>>, int> = 0>
    returns<void> set_logits_hook(Hook &&hook)
    {
        using kept_hook = std::decay_t<Hook>;
        auto *const kept = new (std::nothrow) kept_hook(std::forward<Hook>(hook));
        if (kept == nullptr)
            return detail::fail<void>(error(OXP_ERR_OUT_OF_MEMORY, "oxp::run::set_logits_hook: no memory for the hook"));
        oxp_error *owned = nullptr;
        const oxp_status status =
            oxp_run_set_logits_hook(get(), call_hook<kept_hook>, kept, free_kept<kept_hook>, &owned);
        return detail::done(status, owned);
    }
    /** oxp_run_set_logits_hook: takes the hook away. */
    returns<void> clear_logits_hook()
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_set_logits_hook(get(), nullptr, nullptr, nullptr, &owned);
        return detail::done(status, owned);
    }
    /**
     * oxp_run_set_sampler: the host's own choice: `sampler(oxp::span<const float> logprobs,
     * oxp::span<const std::int32_t> tokens)` gives the token's id as a std::int32_t, or a
     * std::optional of it, without one to end the call that chooses. Otherwise as set_logits_hook.
     */
    template <class Sampler, std::enable_if_t<std::is_invocable_v<std::decay_t<Sampler> &, span<const float>,
                                                                  span<const std::int32_t>>, int> = 0>
    returns<void> set_sampler(Sampler &&sampler)
    {
        using kept_sampler = std::decay_t<Sampler>;
        auto *const kept = new (std::nothrow) kept_sampler(std::forward<Sampler>(sampler));
        if (kept == nullptr)
            return detail::fail<void>(error(OXP_ERR_OUT_OF_MEMORY, "oxp::run::set_sampler: no memory for the sampler"));
        oxp_error *owned = nullptr;
        const oxp_status status =
            oxp_run_set_sampler(get(), call_sampler<kept_sampler>, kept, free_kept<kept_sampler>, &owned);
        return detail::done(status, owned);
    }
    /** oxp_run_set_sampler: takes the sampler away. */
    returns<void> clear_sampler()
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_set_sampler(get(), nullptr, nullptr, nullptr, &owned);
        return detail::done(status, owned);
    }
    /** What a token was chosen by: its own probability, and the most probable tokens. */
    struct logprobs {
        float chosen;
        span<const oxp_token_logprob> top;
    };
    /**
     * oxp_run_get_logprobs: of the last chosen token, OXP_LOGPROBS_RAW or OXP_LOGPROBS_PROCESSED.
     * Borrowed until the next call on the run that changes it.
     */
    [[nodiscard]] returns<logprobs> get_logprobs(std::uint32_t distribution = OXP_LOGPROBS_RAW)
    {
        oxp_error *owned = nullptr;
        float chosen = 0;
        const oxp_token_logprob *top = nullptr;
        std::uint64_t count = 0;
        const oxp_status status = oxp_run_get_logprobs(get(), distribution, &chosen, &top, &count, &owned);
        return detail::give(status, owned,
                            logprobs{chosen, span<const oxp_token_logprob>(top, static_cast<std::size_t>(count))});
    }
    /** An answer that a beam search found, and its score. */
    struct sequence {
        std::vector<std::int32_t> tokens;
        double score = 0;
    };
    /** oxp_run_get_sequence_count: how many the last beam search found. */
    [[nodiscard]] returns<std::uint64_t> sequence_count()
    {
        oxp_error *owned = nullptr;
        std::uint64_t count = 0;
        const oxp_status status = oxp_run_get_sequence_count(get(), &count, &owned);
        return detail::give(status, owned, count);
    }
    /** oxp_run_sequence_copy: one of them, 0 being the best, which is the run's answer. */
    [[nodiscard]] returns<sequence> get_sequence(std::uint64_t index)
    {
        oxp_error *owned = nullptr;
        sequence found;
        std::uint64_t needed = 0;
        oxp_status status = oxp_run_sequence_copy(get(), index, nullptr, 0, &needed, &found.score, &owned);
        if (status == OXP_ERR_BUFFER_TOO_SMALL || (status == OXP_OK && needed > 0)) {
            oxp_error_free(std::exchange(owned, nullptr));
            found.tokens.resize(static_cast<std::size_t>(needed));
            status = oxp_run_sequence_copy(get(), index, found.tokens.data(), needed, &needed, &found.score, &owned);
        }
        return detail::give(status, owned, std::move(found));
    }
    /** oxp_run_force_token: makes `token` the choice from the current logits. */
    returns<event> force_token(std::int32_t token)
    {
        oxp_error *owned = nullptr;
        event made;
        const oxp_status status = oxp_run_force_token(get(), token, &made.raw(), &owned);
        return detail::give(status, owned, made);
    }
    /**
     * oxp_run_set_constraint: makes what is chosen from now on follow a grammar; constraint::none
     * lets the model go its own way again. `text` does not count for none and json.
     */
    returns<void> set_constraint(constraint kind, std::string_view text = {})
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_set_constraint(get(), static_cast<std::uint32_t>(kind),
                                                         detail::chars(text), text.size(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_run_rewind: keeps the first `length` tokens and forgets the others. */
    returns<void> rewind(std::uint64_t length)
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_rewind(get(), length, &owned);
        return detail::done(status, owned);
    }
    /**
     * oxp_run_pending_text_copy: text of the answer that no event has given yet, for an answer that ends
     * here by a deadline, a cancel or a callback.
     */
    [[nodiscard]] returns<std::string> pending_text() const
    {
        return detail::owned_copy<std::string>(
            64, [&](char *buffer, std::uint64_t capacity, std::uint64_t *needed, oxp_error **owned) {
                return oxp_run_pending_text_copy(get(), buffer, capacity, needed, owned);
            });
    }
    /** oxp_run_fork: a run that goes on from where this one is. */
    [[nodiscard]] returns<run> fork()
    {
        oxp_error *owned = nullptr;
        oxp_run *made = nullptr;
        const oxp_status status = oxp_run_fork(get(), &made, &owned);
        return detail::give(status, owned, run(made));
    }
    /** oxp_run_set_seed: draws tokens from the numbers of another seed from now on. */
    returns<void> set_seed(std::uint64_t seed)
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_set_seed(get(), seed, &owned);
        return detail::done(status, owned);
    }
    /** oxp_run_set_draft: has a smaller model of the same vocabulary guess what this run chooses. */
    returns<void> set_draft(const pipeline &draft)
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_set_draft(get(), draft.get(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_run_save_copy: all that the run is, for load(). */
    [[nodiscard]] returns<std::vector<std::uint8_t>> save()
    {
        oxp_error *owned = nullptr;
        std::uint64_t needed = 0;
        oxp_status status = oxp_run_save_copy(get(), nullptr, 0, &needed, &owned);
        std::vector<std::uint8_t> bytes;
        if (status == OXP_OK) {
            bytes.resize(static_cast<std::size_t>(needed));
            status = oxp_run_save_copy(get(), bytes.data(), bytes.size(), &needed, &owned);
        }
        return detail::give(status, owned, std::move(bytes));
    }
    /** oxp_run_load: a run of what save() gave. */
    [[nodiscard]] static returns<run> load(const pipeline &of, span<const std::uint8_t> bytes, maybe<run_options> settings = {})
    {
        oxp_error *owned = nullptr;
        oxp_run *made = nullptr;
        const oxp_status status = oxp_run_load(of.get(), settings.get(), bytes.data(), bytes.size(), &made, &owned);
        return detail::give(status, owned, run(made));
    }
    /** oxp_run_finish: runs the final_only components. */
    returns<void> finish(maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_finish(get(), stop.get(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_run_execute: runs one on_demand component. */
    returns<void> execute(std::string_view component, maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        const oxp_status status =
            oxp_run_execute(get(), detail::chars(component), component.size(), stop.get(), &owned);
        return detail::done(status, owned);
    }

    /** oxp_run_set_input: sets "component.port"; the value is checked and copied at once. */
    returns<void> set_input(std::string_view address, const tensor_view &tensor)
    {
        oxp_error *owned = nullptr;
        const oxp_status status =
            oxp_run_set_input(get(), detail::chars(address), address.size(), &tensor.raw(), &owned);
        return detail::done(status, owned);
    }
    /** The same with the elements of a container, and dims, which may be in braces. */
    template <class Data, std::size_t N, class = detail::if_contiguous<const Data>>
    returns<void> set_input(std::string_view address, const Data &data, const std::int64_t (&shape)[N])
    {
        return set_input(address, tensor_view(data, span<const std::int64_t>(shape)));
    }
    template <class Data, class = detail::if_contiguous<const Data>>
    returns<void> set_input(std::string_view address, const Data &data, span<const std::int64_t> shape)
    {
        return set_input(address, tensor_view(data, shape));
    }
    /** oxp_run_clear_input: takes an input back. */
    returns<void> clear_input(std::string_view address)
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_clear_input(get(), detail::chars(address), address.size(), &owned);
        return detail::done(status, owned);
    }
    /**
     * oxp_run_add_image: a JPEG, PNG, WebP or BMP file, preprocessed as the package says. Before the
     * text that has its placeholder.
     */
    returns<void> add_image(byte_view file, maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_add_image(get(), file.data(), file.size(), stop.get(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_run_add_image_rgb: the same with pixels of three bytes, row by row. */
    returns<void> add_image_rgb(byte_view pixels, std::uint64_t width, std::uint64_t height, maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        const oxp_status status =
            oxp_run_add_image_rgb(get(), pixels.data(), pixels.size(), width, height, stop.get(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_run_clear_images: takes all images back. */
    returns<void> clear_images()
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_clear_images(get(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_run_set_audio: a WAV, FLAC or MP3 file, preprocessed as the package says. */
    returns<void> set_audio(byte_view file, maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_set_audio(get(), file.data(), file.size(), stop.get(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_run_set_audio_samples: the same with samples, interleaved if there are several channels. */
    returns<void> set_audio_samples(span<const float> samples, std::uint32_t channels, std::uint32_t sample_rate,
                                    maybe<cancel> stop = {})
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_set_audio_samples(get(), samples.data(), samples.size(), channels,
                                                            sample_rate, stop.get(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_run_clear_audio: takes the sound back. */
    returns<void> clear_audio()
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_run_clear_audio(get(), &owned);
        return detail::done(status, owned);
    }
    /**
     * oxp_run_get_tensor: a value of the run, "component.port", without a copy; borrowed until
     * the next call on the run that changes it, or until the run ends.
     */
    [[nodiscard]] returns<tensor_view> tensor(std::string_view address)
    {
        oxp_error *owned = nullptr;
        tensor_view found;
        const oxp_status status =
            oxp_run_get_tensor(get(), detail::chars(address), address.size(), &found.raw(), &owned);
        return detail::give(status, owned, found);
    }
    /** oxp_run_copy_tensor: copies a value into the caller's memory; `room` says what it needs if that is too small. */
    returns<void> copy_tensor(std::string_view address, tensor_room &room)
    {
        oxp_error *owned = nullptr;
        const oxp_status status =
            oxp_run_copy_tensor(get(), detail::chars(address), address.size(), &room.raw(), &owned);
        return detail::done(status, owned);
    }
    /**
     * oxp_run_get_logits: the logits of the last position that ran, one for each token of the
     * vocabulary; borrowed until the next call on the run that changes them, or until it ends.
     */
    [[nodiscard]] returns<span<const float>> logits()
    {
        oxp_error *owned = nullptr;
        const float *found = nullptr;
        std::uint64_t count = 0;
        const oxp_status status = oxp_run_get_logits(get(), &found, &count, &owned);
        return detail::give(status, owned, span<const float>(found, count));
    }
    /** oxp_run_tokens_copy: all token ids, appended and chosen, into `ids`; gives their number. An empty span asks. */
    [[nodiscard]] returns<std::uint64_t> tokens_to(span<std::int32_t> ids)
    {
        oxp_error *owned = nullptr;
        std::uint64_t needed = 0;
        const oxp_status status = oxp_run_tokens_copy(get(), detail::room(ids), ids.size(), &needed, &owned);
        return detail::give(status, owned, needed);
    }
    /** The same as an owned vector. */
    [[nodiscard]] returns<std::vector<std::int32_t>> tokens()
    {
        return detail::owned_copy<std::vector<std::int32_t>>(
            0, [this](std::int32_t *ids, std::uint64_t capacity, std::uint64_t *needed, oxp_error **owned) {
                return oxp_run_tokens_copy(get(), ids, capacity, needed, owned);
            });
    }
    /** oxp_run_get_stats: what the run has done so far, and whether it is finished. */
    [[nodiscard]] returns<run_stats> stats()
    {
        oxp_error *owned = nullptr;
        run_stats found;
        const oxp_status status = oxp_run_get_stats(get(), &found.raw(), &owned);
        return detail::give(status, owned, found);
    }

private:
    template <class Kept>
    static void free_kept(void *kept) noexcept
    {
        delete static_cast<Kept *>(kept);
    }
    template <class Hook>
    static std::int32_t call_hook(void *kept, float *logits, std::uint64_t count, const std::int32_t *tokens,
                                  std::uint64_t token_count) noexcept
    {
        const span<float> row(logits, static_cast<std::size_t>(count));
        const span<const std::int32_t> before(tokens, static_cast<std::size_t>(token_count));
        const auto call = [&]() -> bool {
            if constexpr (std::is_void_v<std::invoke_result_t<Hook &, span<float>, span<const std::int32_t>>>) {
                (*static_cast<Hook *>(kept))(row, before);
                return true;
            } else {
                return (*static_cast<Hook *>(kept))(row, before);
            }
        };
#if OXPIPE_COMPILER_THROWS
        try {
            return call() ? 0 : 1;
        } catch (...) {
            return 1;
        }
#else
        return call() ? 0 : 1;
#endif
    }
    template <class Sampler>
    static std::int32_t call_sampler(void *kept, const float *logprobs, std::uint64_t count,
                                     const std::int32_t *tokens, std::uint64_t token_count,
                                     std::int32_t *token) noexcept
    {
        const span<const float> row(logprobs, static_cast<std::size_t>(count));
        const span<const std::int32_t> before(tokens, static_cast<std::size_t>(token_count));
        const auto call = [&]() -> bool {
            const std::optional<std::int32_t> chosen = (*static_cast<Sampler *>(kept))(row, before);
            *token = chosen.value_or(-1);
            return chosen.has_value();
        };
#if OXPIPE_COMPILER_THROWS
        try {
            return call() ? 0 : 1;
        } catch (...) {
            return 1;
        }
#else
        return call() ? 0 : 1;
#endif
    }
    template <class OnEvent>
    struct told {
        std::remove_reference_t<OnEvent> *on_event;
        detail::thrown caught;
        static std::int32_t call(void *user_data, const oxp_event *made) noexcept
        {
            auto *const self = static_cast<told *>(user_data);
            return self->caught.call(*self->on_event, event(*made));
        }
    };
};

/** What a step of a batch did with one of its runs, borrowed until the callback returns. */
struct batch_step {
    /** The handle of the run that was added: compare it with run::get(). */
    oxp_run *run;
    /** What the step did; a default one where it failed. */
    oxp::event event;
    /** OXP_OK, or why it failed. */
    oxp_status status;
    std::string_view message;
};

/** oxp_batch: runs of one pipeline that are stepped together. Shared, but one step at a time. */
class batch : public detail::handle<oxp_batch, oxp_batch_free> {
public:
    batch() noexcept = default;
    explicit batch(oxp_batch *owned) noexcept : handle(owned) {}

    /** oxp_batch_create: without runs. */
    [[nodiscard]] static returns<batch> create(const pipeline &of)
    {
        oxp_error *owned = nullptr;
        oxp_batch *made = nullptr;
        const oxp_status status = oxp_batch_create(of.get(), &made, &owned);
        return detail::give(status, owned, batch(made));
    }
    /** oxp_batch_add: the next step takes the run along, which stays the caller's. */
    returns<void> add(run &member) const
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_batch_add(get(), member.get(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_batch_remove: takes the run out. */
    returns<void> remove(run &member) const
    {
        oxp_error *owned = nullptr;
        const oxp_status status = oxp_batch_remove(get(), member.get(), &owned);
        return detail::done(status, owned);
    }
    /** oxp_batch_get_count: how many runs are in it. */
    returns<std::uint64_t> count() const
    {
        oxp_error *owned = nullptr;
        std::uint64_t found = 0;
        const oxp_status status = oxp_batch_get_count(get(), &found, &owned);
        return detail::give(status, owned, found);
    }
    /**
     * oxp_batch_step: a step of every run; `on_step(const oxp::batch_step &)` is told of each. Gives how
     * many took one.
     */
    template <class OnStep, std::enable_if_t<std::is_invocable_v<OnStep &, const batch_step &>, int> = 0>
    returns<std::uint64_t> step(OnStep &&on_step, maybe<cancel> stop = {}) const
    {
        told<OnStep> state{&on_step, {}};
        oxp_error *owned = nullptr;
        std::uint64_t stepped = 0;
        oxp_status status = oxp_batch_step(get(), &stepped, told<OnStep>::call, &state, stop.get(), &owned);
        state.caught.rethrow(owned);
        if (status == OXP_ERR_CANCELLED && state.caught.stopped()) {
            oxp_error_free(std::exchange(owned, nullptr));
            status = OXP_OK;
        }
        return detail::give(status, owned, stepped);
    }

private:
    template <class OnStep>
    struct told {
        std::remove_reference_t<OnStep> *on_step;
        detail::thrown caught;
        static std::int32_t call(void *user_data, oxp_run *member, const oxp_event *made, const oxp_error *failed) noexcept
        {
            auto *const self = static_cast<told *>(user_data);
            std::uint64_t length = 0;
            const char *const message = failed != nullptr ? oxp_error_get_message(failed, &length) : nullptr;
            const batch_step step{member, made != nullptr ? event(*made) : event(),
                                  failed != nullptr ? oxp_error_get_code(failed) : OXP_OK,
                                  message != nullptr ? std::string_view(message, length) : std::string_view()};
            return self->caught.call(*self->on_step, step);
        }
    };
};

}  // namespace OXPIPE_INLINE_NAMESPACE
}  // namespace oxp

#if defined(__cpp_lib_span)
/* A span does not own its elements: they outlive it. */
template <class T>
inline constexpr bool std::ranges::enable_borrowed_range<oxp::span<T>> = true;
template <class T>
inline constexpr bool std::ranges::enable_view<oxp::span<T>> = true;
#endif

#undef OXPIPE_INLINE_NAMESPACE
#undef OXPIPE_VISIBLE

#endif
