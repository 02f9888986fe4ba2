/* Talks with a language model, in C++: text in, text out while it is made, Ctrl-C to stop an
 * answer.
 *
 *     chat_cpp PACKAGE [option...] ["What is the capital of France?"]
 *
 *     --backend native|ort|auto           for every component
 *     --backend COMPONENT=native|ort|auto for one
 *     --max-tokens N                      the most tokens of an answer
 *     --ids FILE                          writes the token ids of the last answer there
 *
 * Without a question it reads one from each line of standard input, and the conversation
 * goes on until that ends. */
#include "example.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <pthread.h>

namespace {

constexpr const char *usage =
    "chat_cpp PACKAGE [--backend [COMPONENT=]native|ort|auto]... [--max-tokens N] [--ids FILE] [QUESTION]";

/* Ctrl-C stops the answer that is being made, or else the program. A thread waits for the
 * signal, since oxp::cancel is not for signal handlers. Made before any other thread, which
 * then leave the signal alone, too. */
class interrupt {
public:
    interrupt() : cancel_(oxp::cancel::create())
    {
        sigemptyset(&signals_);
        sigaddset(&signals_, SIGINT);
        pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
        std::thread([this] {
            for (int signal = 0; sigwait(&signals_, &signal) == 0;) {
                if (!answering_)
                    std::_Exit(130);
                cancel_.request();
            }
        }).detach();
    }
    interrupt(const interrupt &) = delete;

    const oxp::cancel &cancel() const { return cancel_; }
    void begin()
    {
        cancel_.withdraw();
        answering_ = true;
    }
    void end() { answering_ = false; }

private:
    oxp::cancel cancel_;
    sigset_t signals_;
    std::atomic<bool> answering_{false};
};

class chat {
public:
    chat(const oxp::pipeline &model, const oxp::run_options &options, interrupt &ctrl_c)
        : tokenizer_(oxp::tokenizer::open(model)),
          template_(oxp::chat_template::open(model)),
          run_(oxp::run::create(model, options)),
          ctrl_c_(ctrl_c)
    {
    }

    void ask(const std::string &question)
    {
        say("user", question);
        feed();
        std::string answer;
        ctrl_c_.begin();
        try {
            for (const auto &event : run_.generate(ctrl_c_.cancel())) {
                std::cout << event.text() << std::flush;
                answer += event.text();
            }
        } catch (const oxp::error &error) {
            if (error.code() != OXP_ERR_CANCELLED)
                throw;
            /* What was made so far stays said. */
            std::cout << " [stopped]";
        }
        ctrl_c_.end();
        std::cout << std::endl;
        say("assistant", answer);
    }

    void write_ids(const std::string &path)
    {
        const auto ids = run_.tokens();
        std::ofstream file(path);
        for (std::size_t at = prompt_; at < ids.size(); at++)
            file << ids[at] << (at + 1 < ids.size() ? ' ' : '\n');
        if (!file)
            throw std::runtime_error("cannot write " + path);
    }

private:
    void say(const char *role, const std::string &content)
    {
        messages_ += messages_.empty() ? "[" : ", ";
        messages_ += "{\"role\": \"" + std::string(role) + "\", \"content\": " + example::json_string(content) + "}";
    }

    /* Makes the conversation the tokens of the run, and keeps the work that was done for their
     * common start: what was said before is not computed again. */
    void feed()
    {
        const auto ids = tokenizer_.encode(template_.render(messages_ + "]"));
        const auto old = run_.tokens();
        const auto end = std::mismatch(old.begin(), old.end(), ids.begin(), ids.end());
        const auto common = static_cast<std::size_t>(end.first - old.begin());
        if (common < old.size())
            run_.rewind(common);
        run_.append_tokens(oxp::span(ids).subspan(common, ids.size() - common));
        prompt_ = ids.size();
    }

    oxp::tokenizer tokenizer_;
    oxp::chat_template template_;
    oxp::run run_;
    interrupt &ctrl_c_;
    std::string messages_; /* the conversation as JSON, without the closing bracket */
    std::size_t prompt_ = 0;
};

int talk(int argc, char **argv)
{
    if (argc < 2 || std::string(argv[1]) == "--help")
        throw std::runtime_error(std::string("usage: ") + usage);
    /* Lives as long as the thread that waits. */
    static interrupt ctrl_c;
    auto pipeline_options = oxp::pipeline_options::create();
    auto run_options = oxp::run_options::create();
    std::string question;
    std::string ids;
    for (int at = 2; at < argc; at++) {
        const std::string option = argv[at];
        if (option.empty() || option[0] != '-') {
            question += option;
            continue;
        }
        if (at + 1 == argc)
            throw std::runtime_error("nothing comes after " + option + "; usage: " + usage);
        const std::string value = argv[++at];
        const std::size_t equals = value.find('=');
        if (option == "--backend" && equals == std::string::npos)
            pipeline_options.set("backend", value);
        else if (option == "--backend")
            pipeline_options.set("backend." + value.substr(0, equals), value.substr(equals + 1));
        else if (option == "--max-tokens")
            run_options.set("max_tokens", value);
        else if (option == "--ids")
            ids = value;
        else
            throw std::runtime_error("no option " + option + "; usage: " + usage);
    }

    const auto model = oxp::pipeline::open(argv[1], pipeline_options, {}, [](const oxp::load_progress &progress) {
        example::show_progress(progress.component(), progress.done(), progress.total());
        return true;
    });
    chat conversation(model, run_options, ctrl_c);
    if (!question.empty()) {
        conversation.ask(question);
    } else {
        std::cerr << "> ";
        while (std::getline(std::cin, question)) {
            if (!question.empty())
                conversation.ask(question);
            std::cerr << "> ";
        }
    }
    if (!ids.empty())
        conversation.write_ids(ids);
    return 0;
}

}  // namespace

int main(int argc, char **argv)
{
    try {
        return talk(argc, argv);
    } catch (const oxp::error &error) {
        std::cerr << error.code_name() << ": " << error.what() << '\n';
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
    }
    return 1;
}
