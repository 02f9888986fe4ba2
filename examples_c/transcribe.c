/* Writes down what is said in a recording.
 *
 *     transcribe PACKAGE SOUND [--prompt TEXT] [--backend [COMPONENT=]native|ort|auto]...
 *
 * SOUND is a WAV, FLAC or MP3 file. The prompt says what to do; the default is Whisper's for
 * English. */
#include "example.h"

int main(int argc, char **argv)
{
    oxp_error *error = NULL;
    oxp_options *options = backends_from(&argc, argv);
    oxp_pipeline *pipeline;
    oxp_run *run = NULL;
    const char *prompt = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>";
    void *sound;
    uint64_t sound_size = 0;

    if (argc == 5 && strcmp(argv[3], "--prompt") == 0)
        prompt = argv[4];
    else if (argc != 3)
        die("usage", "transcribe PACKAGE SOUND [--prompt TEXT] [--backend [COMPONENT=]native|ort|auto]...");
    pipeline = open_package(argv[1], options);
    must(oxp_run_create(pipeline, NULL, &run, &error), &error);

    sound = read_file(argv[2], &sound_size);
    must(oxp_run_set_audio(run, sound, sound_size, NULL, &error), &error);
    free(sound);
    must(oxp_run_append_text(run, prompt, OXP_NUL_TERMINATED, 0, NULL, &error), &error);
    must(oxp_run_generate(run, NULL, print_text, NULL, NULL, &error), &error);
    printf("\n");

    oxp_run_free(run);
    oxp_pipeline_free(pipeline);
    return 0;
}
