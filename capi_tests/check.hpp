/* What the C++ programs in capi_tests/ share, beside check.h: the same checks of calls that
 * throw, and of calls that return results. */
#ifndef CHECK_HPP
#define CHECK_HPP

#include "check.h"

#include <oxpipe.hpp>

#include <string>
#include <string_view>

/* What is told about a call that failed. */
struct told_error {
    oxp_status code;
    std::string message;
    std::string component;
    std::string port;
    std::string node;
    std::string file;
};

inline told_error tell(const oxp::error &error)
{
    CHECK(error.what() == error.message() && std::string_view(error.code_name()) == oxp_status_name(error.code()));
    return {error.code(),
            std::string(error.message()),
            std::string(error.component()),
            std::string(error.port()),
            std::string(error.node()),
            std::string(error.file())};
}

/* The error of a call. */
template <class Call>
told_error error_of(Call call)
{
#if OXPIPE_THROWS
    try {
        (void)call();
    } catch (const oxp::error &error) {
        return tell(error);
    }
#else
    const auto result = call();
    if (!result)
        return tell(result.error());
#endif
    return {OXP_OK, {}, {}, {}, {}, {}};
}

template <class Call>
void check_error_of(oxp_status wanted, const char *fragment, Call call, const char *file, int line, const char *what)
{
    const told_error told = error_of(call);
    check_count += 1;
    if (told.code == wanted && told.message.find(fragment) != std::string::npos)
        return;
    check_fail(file, line, what, (std::string(oxp_status_name(told.code)) + ": " + told.message).c_str());
}

/* The call must fail with this code and a message that holds the fragment. */
#define FAILS(wanted, fragment, ...) \
    check_error_of((wanted), (fragment), [&] { return __VA_ARGS__; }, __FILE__, __LINE__, #__VA_ARGS__)

/* The value of a call that must succeed. */
#if OXPIPE_THROWS
#define TAKE(...) (__VA_ARGS__)
#else
template <class T>
T take(oxp::result<T> result, const char *file, int line)
{
    if (!result) {
        check_fail(file, line, "failed", result.error().what());
        std::exit(check_result());
    }
    if constexpr (!std::is_void_v<T>)
        return std::move(*result);
}
#define TAKE(...) take((__VA_ARGS__), __FILE__, __LINE__)
#endif

/* A program: its checks, and no error that nobody expected. */
template <class Program>
int check_program(Program program)
{
#if OXPIPE_THROWS
    try {
        program();
    } catch (const oxp::error &error) {
        check_fail(__FILE__, __LINE__, "thrown to main", error.what());
    }
#else
    program();
#endif
    return check_result();
}

#endif
