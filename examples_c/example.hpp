/* What the example programs in C++ share: a bar while something goes on, files, backends that are
 * asked for, and failures that are told. */
#ifndef OXPIPE_EXAMPLE_HPP
#define OXPIPE_EXAMPLE_HPP

#include <oxpipe.hpp>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#ifdef _WIN32
#include <io.h>
#else
#include <unistd.h>
#endif

namespace example {

/* A bar on standard error, if somebody looks at it; gone at the end. */
inline void show_progress(std::string_view what, std::uint64_t done, std::uint64_t total)
{
#ifdef _WIN32
    const bool seen = _isatty(2) != 0;
#else
    const bool seen = isatty(2) != 0;
#endif
    if (!seen)
        return;
    std::cerr << "\r\033[K";
    if (done < total) {
        std::string bar(20, ' ');
        bar.replace(0, 20 * done / total, 20 * done / total, '#');
        std::cerr << '[' << bar << "] " << done << '/' << total << ' ' << what;
    }
    std::cerr << std::flush;
}

/* The command line: what stands alone, and what follows an option. */
struct arguments {
    std::vector<std::string> words;
    std::vector<std::pair<std::string, std::string>> options; /* --backend and its like left out */
    oxp::pipeline_options backends = oxp::pipeline_options::create();

    arguments(int argc, char **argv)
    {
        for (int at = 1; at < argc; at++) {
            const std::string word = argv[at];
            if (word.rfind("--", 0) != 0) {
                words.push_back(word);
                continue;
            }
            if (at + 1 == argc)
                throw std::runtime_error("nothing comes after " + word);
            const std::string value = argv[++at];
            const auto equals = value.find('=');
            if (word != "--backend")
                options.emplace_back(word, value);
            else if (equals == std::string::npos)
                backends.set("backend", value);
            else
                backends.set("backend." + value.substr(0, equals), value.substr(equals + 1));
        }
    }

    /* The last value of an option. */
    std::string option(std::string_view name, std::string otherwise) const
    {
        for (const auto &given : options)
            if (given.first == name)
                otherwise = given.second;
        return otherwise;
    }

    oxp::pipeline open_package() const
    {
        return oxp::pipeline::open(words.at(0), backends, {}, [](const oxp::load_progress &progress) {
            show_progress(progress.component(), progress.done(), progress.total());
            return true;
        });
    }
};

inline std::vector<char> read_file(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file)
        throw std::runtime_error("cannot read " + path);
    return bytes;
}

/* The text between quotation marks, as JSON has it. */
inline std::string json_string(const std::string &text)
{
    std::string json = "\"";
    for (const char c : text) {
        char escaped[8];
        if (c == '"' || c == '\\')
            json += '\\', json += c;
        else if (static_cast<unsigned char>(c) < 0x20)
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c)), json += escaped;
        else
            json += c;
    }
    return json + '"';
}

/* Prints the text of the run's answer while it is made. */
inline void print_answer(oxp::run &run)
{
    for (const auto &event : run.generate())
        std::cout << event.text() << std::flush;
    std::cout << '\n';
}

/* Calls the program with its arguments, at least `words` without options, and says why it fails. */
inline int run_main(int argc, char **argv, std::size_t words, const char *usage, int (*program)(const arguments &))
{
    try {
        const arguments given(argc, argv);
        if (given.words.size() < words)
            throw std::runtime_error(std::string("usage: ") + usage);
        return program(given);
    } catch (const oxp::error &error) {
        std::cerr << error.code_name() << ": " << error.what() << '\n';
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
    }
    return 1;
}

}  // namespace example

#endif
