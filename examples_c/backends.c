/* One component on ONNX Runtime, another on the native runtime: says which runs where and why,
 * and goes on with a text.
 *
 *     backends PACKAGE TEXT [--backend COMPONENT=native|ort]... [--backend native|ort|auto] */
#include "example.h"

int main(int argc, char **argv)
{
    oxp_error *error = NULL;
    oxp_options *options = backends_from(&argc, argv);
    oxp_pipeline *pipeline;
    oxp_pipeline_info info = OXP_PIPELINE_INFO_INIT;
    oxp_component_info component = OXP_COMPONENT_INFO_INIT;
    oxp_run *run = NULL;
    uint64_t i;

    if (argc != 3)
        die("usage", "backends PACKAGE TEXT [--backend COMPONENT=native|ort]... [--backend native|ort|auto]");
    pipeline = open_package(argv[1], options);
    must(oxp_pipeline_get_info(pipeline, &info, &error), &error);
    for (i = 0; i < info.component_count; i++) {
        must(oxp_pipeline_get_component(pipeline, i, &component, &error), &error);
        printf("%s on %s: %s\n", component.name, component.backend == OXP_BACKEND_ORT ? "ONNX Runtime" : "native",
               component.reason);
    }
    must(oxp_run_create(pipeline, NULL, &run, &error), &error);
    must(oxp_run_append_text(run, argv[2], OXP_NUL_TERMINATED, 1, NULL, &error), &error);
    must(oxp_run_generate(run, NULL, print_text, NULL, NULL, &error), &error);
    printf("\n");

    oxp_run_free(run);
    oxp_pipeline_free(pipeline);
    return 0;
}
