/* Writes down what is said in a recording.
 *
 *     transcribe_cpp PACKAGE SOUND [--prompt TEXT] [--backend [COMPONENT=]native|ort|auto]...
 *
 * SOUND is a WAV, FLAC or MP3 file. The prompt says what to do; the default is Whisper's for
 * English. */
#include "example.hpp"

static int transcribe(const example::arguments &given)
{
    const auto package = given.open_package();
    auto run = oxp::run::create(package);
    run.set_audio(example::read_file(given.words[1]));
    run.append_text(given.option("--prompt", "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"));
    example::print_answer(run);
    return 0;
}

int main(int argc, char **argv)
{
    return example::run_main(argc, argv, 2,
                             "transcribe_cpp PACKAGE SOUND [--prompt TEXT] [--backend [COMPONENT=]native|ort|auto]...",
                             transcribe);
}
