/* Packages that are wrong: each is an error that says where, and a good one opens after it.
 * Arguments: the folder of wrong packages (see tests/capi/packages.rs), the good package, the
 * backend. */
#include "check.h"

static const char *folder;
static const char *good;
static oxp_options *options;

static void still_works(void)
{
    oxp_pipeline *pipeline = NULL;
    OK(oxp_pipeline_open(NULL, good, NT, options, &pipeline, NULL, NULL, NULL, ERR));
    oxp_pipeline_free(pipeline);
}

static void refused(const char *name, oxp_status code, const char *fragment)
{
    char path[4096];
    oxp_pipeline *pipeline = NULL;
    join(path, sizeof path, folder, name);
    EXPECT(code, fragment, oxp_pipeline_open(NULL, path, NT, options, &pipeline, NULL, NULL, NULL, ERR));
    CHECK(pipeline == NULL);
    if (CHECK(oxp_pipeline_open(NULL, path, NT, options, &pipeline, NULL, NULL, NULL, ERR) == code)) {
        /* What is wrong with a package is wrong in a file. */
        if (code == OXP_ERR_INVALID_PACKAGE || code == OXP_ERR_INVALID_MODEL || code == OXP_ERR_IO)
            CHECK(oxp_error_get_file(check_error, NULL)[0] != 0);
    }
    oxp_error_free(check_error);
    check_error = NULL;
    still_works();
}

static void in_memory(void)
{
    static const char text[] = "pipeline: [";
    oxp_file files[2] = {OXP_FILE_INIT, OXP_FILE_INIT};
    oxp_pipeline *pipeline = NULL;
    EXPECT(OXP_ERR_INVALID_PACKAGE, "no package",
           oxp_pipeline_open_memory(NULL, NULL, 0, options, &pipeline, NULL, NULL, NULL, ERR));
    files[0].name = "inference_metadata.yaml";
    files[0].name_len = NT;
    files[0].data = text;
    files[0].byte_len = sizeof text - 1;
    EXPECT(OXP_ERR_INVALID_PACKAGE, "inference_metadata.yaml",
           oxp_pipeline_open_memory(NULL, files, 1, options, &pipeline, NULL, NULL, NULL, ERR));
    files[1] = files[0];
    EXPECT(OXP_ERR_INVALID_ARGUMENT, "given before",
           oxp_pipeline_open_memory(NULL, files, 2, options, &pipeline, NULL, NULL, NULL, ERR));
    files[1].name = "\xff";
    EXPECT(OXP_ERR_INVALID_UTF8, "files[1].name",
           oxp_pipeline_open_memory(NULL, files, 2, options, &pipeline, NULL, NULL, NULL, ERR));
    files[1].name = NULL;
    EXPECT(OXP_ERR_NULL_POINTER, "files[1].name",
           oxp_pipeline_open_memory(NULL, files, 2, options, &pipeline, NULL, NULL, NULL, ERR));
    files[1].name = "x";
    files[1].data = NULL;
    EXPECT(OXP_ERR_NULL_POINTER, "\"x\"",
           oxp_pipeline_open_memory(NULL, files, 2, options, &pipeline, NULL, NULL, NULL, ERR));
    CHECK(pipeline == NULL);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    folder = argv[1];
    good = argv[2];
    MUST(oxp_options_create(OXP_OPTIONS_PIPELINE, &options, ERR));
    MUST(oxp_options_set(options, "backend", NT, argv[3], NT, ERR));
    still_works();

    refused("not there", OXP_ERR_IO, "not there");
    refused("a file", OXP_ERR_IO, "a file");
    refused("empty", OXP_ERR_INVALID_PACKAGE, "inference_metadata.yaml");
    refused("malformed", OXP_ERR_INVALID_PACKAGE, "inference_metadata.yaml:");
    refused("wrong type", OXP_ERR_INVALID_PACKAGE, "pipeline.models");
    refused("cyclic", OXP_ERR_INVALID_PACKAGE, "circle");
    refused("two edges", OXP_ERR_INVALID_PACKAGE, "already has an edge");
    refused("missing file", OXP_ERR_INVALID_PACKAGE, "nowhere.onnx");
    refused("escaping", OXP_ERR_INVALID_PACKAGE, "../good/decoder.onnx");
    refused("absolute", OXP_ERR_INVALID_PACKAGE, "stay inside");
    refused("link that leaves", OXP_ERR_INVALID_PACKAGE, "decoder.onnx");
    refused("unknown strategy", OXP_ERR_INVALID_PACKAGE, "magic");
    refused("unknown component", OXP_ERR_INVALID_PACKAGE, "nobody");
    refused("unknown port", OXP_ERR_INVALID_PACKAGE, "nothing");
    refused("unknown capability", OXP_ERR_UNSUPPORTED, "telepathy");
    refused("broken model", OXP_ERR_INVALID_MODEL, "decoder");
    refused("directory for a model", OXP_ERR_INVALID_PACKAGE, "decoder.onnx");
    refused("broken tokenizer", OXP_ERR_TOKENIZER, "tokenizer.json");
    in_memory();

    oxp_options_free(options);
    return check_result();
}
