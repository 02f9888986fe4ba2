/* Images and sound. Arguments: the package of tests/capi/models.rs whose next token is the last
 * one, plus the means of the images (a quarter of their bytes), plus eight times the largest
 * sample, modulo 8; a package without preprocessing; the backend. */
#include "check.h"

static oxp_pipeline *pipeline;

static oxp_pipeline *open_package(const char *folder, const char *backend)
{
    oxp_options *options = NULL;
    oxp_pipeline *opened = NULL;
    MUST(oxp_options_create(OXP_OPTIONS_PIPELINE, &options, ERR));
    MUST(oxp_options_set(options, "backend", NT, backend, NT, ERR));
    MUST(oxp_pipeline_open(NULL, folder, NT, options, &opened, NULL, NULL, NULL, ERR));
    oxp_options_free(options);
    return opened;
}

static oxp_run *start(void)
{
    oxp_run *run = NULL;
    MUST(oxp_run_create(pipeline, NULL, &run, ERR));
    return run;
}

static void put(unsigned char *at, uint32_t value, int bytes)
{
    int index;
    for (index = 0; index < bytes; index++)
        at[index] = (unsigned char)(value >> (8 * index));
}

/* A bitmap file of `width` x `height` gray pixels. */
static uint64_t bitmap(unsigned char *file, uint32_t width, uint32_t height, unsigned char gray)
{
    uint32_t row = (width * 3 + 3) / 4 * 4;
    memset(file, 0, 54);
    memset(file + 54, gray, row * height);
    file[0] = 'B';
    file[1] = 'M';
    put(file + 2, 54 + row * height, 4);
    put(file + 10, 54, 4);
    put(file + 14, 40, 4);
    put(file + 18, width, 4);
    put(file + 22, height, 4);
    put(file + 26, 1, 2);
    put(file + 28, 24, 2);
    return 54 + row * height;
}

/* A WAV file of one channel, 16 bits and 8 kHz. */
static uint64_t wav(unsigned char *file, const int16_t *samples, uint32_t count)
{
    uint32_t index;
    memcpy(file, "RIFF    WAVEfmt ", 16);
    put(file + 4, 36 + count * 2, 4);
    put(file + 16, 16, 4);
    put(file + 20, 1, 2);
    put(file + 22, 1, 2);
    put(file + 24, 8000, 4);
    put(file + 28, 16000, 4);
    put(file + 32, 2, 2);
    put(file + 34, 16, 2);
    memcpy(file + 36, "data", 4);
    put(file + 40, count * 2, 4);
    for (index = 0; index < count; index++)
        put(file + 44 + index * 2, (uint16_t)samples[index], 2);
    return 44 + count * 2;
}

static int32_t step(oxp_run *run)
{
    oxp_event event = OXP_EVENT_INIT;
    OK(oxp_run_step(run, &event, NULL, ERR));
    return event.token;
}

static int has_tokens(oxp_run *run, const int32_t *expected, uint64_t count)
{
    int32_t found[64];
    uint64_t needed = 0;
    return OK(oxp_run_tokens_copy(run, found, 64, &needed, ERR)) && needed == count &&
           memcmp(found, expected, count * sizeof *expected) == 0;
}

/* Two images in one prompt: 4 / 4 and 8 / 4. */
static void images(void)
{
    static const int32_t prompt[4] = {3, 6, 2, 6};
    static const int32_t expanded[6] = {3, 5, 5, 2, 5, 5};
    static const int32_t again[2] = {6, 1};
    static unsigned char file[4096];
    unsigned char pixels[18];
    uint64_t length = bitmap(file, 5, 3, 4);
    oxp_run *run = start();
    oxp_event event = OXP_EVENT_INIT;
    oxp_cancel *cancel = NULL;
    oxp_tensor_in view = OXP_TENSOR_IN_INIT;
    memset(pixels, 8, sizeof pixels);
    OK(oxp_run_add_image(run, file, length, NULL, ERR));
    OK(oxp_run_add_image_rgb(run, pixels, 18, 3, 2, NULL, ERR));
    OK(oxp_run_get_tensor(run, "vision.pixels", NT, &view, ERR));
    CHECK(view.rank == 4 && view.shape[0] == 2 && view.shape[1] == 3 && ((const float *)view.data)[0] == 1.0f &&
          ((const float *)view.data)[12] == 2.0f);
    OK(oxp_run_append_tokens(run, prompt, 4, ERR));
    CHECK(has_tokens(run, expanded, 6));
    CHECK(step(run) == (5 + 3) % 8);
    /* No further image waits for a placeholder. */
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "1 image placeholders", oxp_run_append_tokens(run, again, 2, ERR));
    /* An image's tokens go together, and its place is then free. */
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "inside of an image", oxp_run_rewind(run, 5, ERR));
    OK(oxp_run_rewind(run, 4, ERR));
    EXPECT(OXP_ERR_INVALID_STATE, "placeholder", oxp_run_step(run, &event, NULL, ERR));
    OK(oxp_run_append_tokens(run, again, 2, ERR));
    CHECK(step(run) == (1 + 3) % 8);

    /* What is no image changes nothing. */
    EXPECT(OXP_ERR_INVALID_MEDIA, "JPEG, PNG, WebP and BMP", oxp_run_add_image(run, "GIF89a", 6, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_MEDIA, "no known format", oxp_run_add_image(run, NULL, 0, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_MEDIA, "decoded", oxp_run_add_image(run, file, 60, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_MEDIA, "17 bytes", oxp_run_add_image_rgb(run, pixels, 17, 3, 2, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_MEDIA, "too large", oxp_run_add_image_rgb(run, pixels, 18, 1u << 31, 2, NULL, ERR));
    put(file + 18, 60000, 4);
    put(file + 22, 60000, 4);
    EXPECT(OXP_ERR_INVALID_MEDIA, "60000", oxp_run_add_image(run, file, length, NULL, ERR));
    MUST(oxp_cancel_create(&cancel, ERR));
    MUST(oxp_cancel_request(cancel, ERR));
    EXPECT(OXP_ERR_CANCELLED, "cancelled", oxp_run_add_image_rgb(run, pixels, 18, 3, 2, cancel, ERR));
    oxp_cancel_free(cancel);
    CHECK(step(run) == (4 + 3) % 8);

    OK(oxp_run_clear_images(run, ERR));
    CHECK(step(run) == 7);
    /* Another image has no place at the tokens of the earlier ones. */
    OK(oxp_run_add_image_rgb(run, pixels, 18, 3, 2, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_STATE, "tokens 1 to 3", oxp_run_append_tokens(run, again, 2, ERR));
    EXPECT(OXP_ERR_INVALID_STATE, "rewind to 1", oxp_run_step(run, &event, NULL, ERR));
    OK(oxp_run_rewind(run, 1, ERR));
    OK(oxp_run_append_tokens(run, again, 2, ERR));
    CHECK(step(run) == (1 + 2) % 8);
    oxp_run_free(run);
}

static void sound(void)
{
    static const int16_t samples[4] = {0, 8192, -16384, 100};
    static const int32_t prompt[1] = {1};
    static unsigned char file[256];
    float stereo[8] = {0.25f, 0.75f, 0, 0, 0, 0, -1, -1};
    uint64_t length = wav(file, samples, 4);
    oxp_run *run = start();
    oxp_tensor_in view = OXP_TENSOR_IN_INIT;
    OK(oxp_run_set_audio(run, file, length, NULL, ERR));
    OK(oxp_run_get_tensor(run, "hearing.wave", NT, &view, ERR));
    CHECK(view.rank == 2 && view.shape[1] == 4 && ((const float *)view.data)[2] == -0.5f);
    OK(oxp_run_append_tokens(run, prompt, 1, ERR));
    CHECK(step(run) == 1 + 2);
    OK(oxp_run_set_audio_samples(run, stereo, 8, 2, 8000, NULL, ERR));
    CHECK(step(run) == 3 + 4);
    OK(oxp_run_set_audio_samples(run, stereo, 8, 2, 16000, NULL, ERR));
    OK(oxp_run_get_tensor(run, "hearing.wave", NT, &view, ERR));
    CHECK(view.shape[1] == 2);

    EXPECT(OXP_ERR_INVALID_MEDIA, "WAV, FLAC and MP3", oxp_run_set_audio(run, "OggS", 4, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_MEDIA, "cut off", oxp_run_set_audio(run, file, length - 1, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_MEDIA, "3 channels", oxp_run_set_audio_samples(run, stereo, 8, 3, 8000, NULL, ERR));
    EXPECT(OXP_ERR_INVALID_MEDIA, "0 Hz", oxp_run_set_audio_samples(run, stereo, 8, 2, 0, NULL, ERR));
    OK(oxp_run_clear_audio(run, ERR));
    OK(oxp_run_rewind(run, 2, ERR));
    CHECK(step(run) == 3);
    oxp_run_free(run);
}

/* A package that does not say what becomes of them. */
static void without(const char *folder, const char *backend)
{
    static unsigned char file[4096];
    uint64_t length = bitmap(file, 1, 1, 4);
    float sample = 0;
    oxp_pipeline *plain = open_package(folder, backend);
    oxp_run *run = NULL;
    MUST(oxp_run_create(plain, NULL, &run, ERR));
    EXPECT(OXP_ERR_UNSUPPORTED, "preprocessing.image", oxp_run_add_image(run, file, length, NULL, ERR));
    EXPECT(OXP_ERR_UNSUPPORTED, "preprocessing.image", oxp_run_add_image_rgb(run, "abc", 3, 1, 1, NULL, ERR));
    EXPECT(OXP_ERR_UNSUPPORTED, "preprocessing.image", oxp_run_clear_images(run, ERR));
    EXPECT(OXP_ERR_UNSUPPORTED, "preprocessing.audio", oxp_run_set_audio(run, file, length, NULL, ERR));
    EXPECT(OXP_ERR_UNSUPPORTED, "preprocessing.audio", oxp_run_set_audio_samples(run, &sample, 1, 1, 8000, NULL, ERR));
    EXPECT(OXP_ERR_UNSUPPORTED, "preprocessing.audio", oxp_run_clear_audio(run, ERR));
    oxp_run_free(run);
    oxp_pipeline_free(plain);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    pipeline = open_package(argv[1], argv[3]);
    images();
    sound();
    without(argv[2], argv[3]);
    oxp_pipeline_free(pipeline);
    return check_result();
}
