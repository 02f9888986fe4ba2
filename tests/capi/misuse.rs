//! Misuse of every function, made from the header: each pointer NULL, each handle freed, of
//! another type and no handle at all, each string not UTF-8, each info struct without its
//! size, each `err` NULL. Every case must give its error, clear what the function would have
//! made, and leave the same handles good for the same call with valid arguments.
//!
//! A function with a parameter that this file has no value for fails the test: nothing is
//! left out silently.

use std::fmt::Write as _;

use crate::compiler::{C, CPP};
use crate::header;
use crate::programs;

struct Function {
    name: String,
    returns: String,
    parameters: Vec<Parameter>,
}

struct Parameter {
    /// As the header writes it, `const char *`.
    ty: String,
    name: String,
}

/// Functions without a status, which this file leaves to the program named.
const WITHOUT_STATUS: [(&str, &str); 11] = [
    ("oxp_abi_version", "basics.c"),
    ("oxp_dtype_name", "basics.c"),
    ("oxp_dtype_size", "basics.c"),
    ("oxp_error_get_code", "basics.c"),
    ("oxp_error_get_component", "basics.c"),
    ("oxp_error_get_file", "basics.c"),
    ("oxp_error_get_message", "basics.c"),
    ("oxp_error_get_node", "basics.c"),
    ("oxp_error_get_port", "basics.c"),
    ("oxp_status_name", "basics.c"),
    ("oxp_struct_size", "basics.c"),
];

/// Pointers that may be NULL, by function (a prefix) and parameter. Out-lengths beside
/// borrowed text are recognised by their type.
const NULLABLE: [(&str, &str); 23] = [
    ("oxp_runtime_create", "options"),
    ("oxp_runtime_create", "user_data"),
    ("oxp_session_open", "runtime"),
    ("oxp_session_open", "options"),
    ("oxp_session_run_alloc", "output_name_lens"),
    ("oxp_pipeline_open", "runtime"),
    ("oxp_pipeline_open", "options"),
    ("oxp_pipeline_open", "user_data"),
    ("oxp_pipeline_estimate_copy", "runtime"),
    ("oxp_pipeline_estimate_copy", "options"),
    ("oxp_pipeline_estimate_copy", "weight_bytes"),
    ("oxp_run_create", "options"),
    ("oxp_run_append_text", "token_count"),
    ("oxp_run_generate", "finish_reason"),
    ("oxp_run_generate", "user_data"),
    ("oxp_run_set_logits_hook", "user_data"),
    ("oxp_run_set_sampler", "user_data"),
    ("oxp_run_get_logprobs", "logprob"),
    ("oxp_run_sequence_copy", "score"),
    ("oxp_tokenizer_open_memory", "config"),
    ("oxp_tokenizer_get_special", "text"),
    ("oxp_chat_template_create", "tokenizer"),
    ("oxp_chat_template_render_copy", "tools"),
];
const MORE_NULLABLE: [(&str, &str); 11] = [
    ("oxp_chat_template_render_copy", "extra"),
    ("oxp_run_set_constraint", "text"),
    ("oxp_tool_calls_parse_copy", "chat_template"),
    ("oxp_tool_calls_parse_copy", "format"),
    ("oxp_tool_calls_parse_with_tools_copy", "chat_template"),
    ("oxp_tool_calls_parse_with_tools_copy", "format"),
    ("oxp_run_load", "options"),
    ("oxp_batch_step", "stepped"),
    ("oxp_batch_step", "user_data"),
    ("oxp_pipeline_embed", "text_lens"),
    ("oxp_pipeline_classify", "text_lens"),
];

impl Function {
    fn nullable(&self, parameter: &Parameter) -> bool {
        let listed = NULLABLE
            .iter()
            .chain(&MORE_NULLABLE)
            .any(|(function, name)| self.name.starts_with(function) && parameter.name == *name);
        let cancel = parameter.name == "cancel" && !self.name.starts_with("oxp_cancel_");
        let callback = parameter.ty.ends_with("_fn");
        let length = parameter.ty == "uint64_t *" && parameter.name.ends_with("_len");
        listed || cancel || callback || length || parameter.name == "err"
    }

    /// The call, with one argument replaced.
    fn call(&self, replaced: &[(&str, &str)]) -> String {
        let arguments: Vec<String> = self
            .parameters
            .iter()
            .map(|parameter| {
                let replacement = replaced.iter().find(|(name, _)| *name == parameter.name);
                replacement.map_or_else(|| self.valid(parameter), |(_, value)| (*value).to_owned())
            })
            .collect();
        format!("{}({})", self.name, arguments.join(", "))
    }

    /// A valid argument.
    fn valid(&self, parameter: &Parameter) -> String {
        let Parameter { ty, name } = parameter;
        let function = self.name.as_str();
        let value = match (ty.as_str(), name.as_str()) {
            (_, "err") => "ERR",
            ("const oxp_options *", _) if function.starts_with("oxp_runtime") => "f.runtime_options",
            ("const oxp_options *", _) if function.starts_with("oxp_session") => "f.session_options",
            ("const oxp_options *", _) if function.starts_with("oxp_pipeline") => "f.pipeline_options",
            ("const oxp_options *", _) if function.starts_with("oxp_run_") => "f.run_options",
            ("oxp_options *", _) => "f.session_options",
            ("oxp_run *", _) if function == "oxp_run_get_logprobs" => "f.chosen",
            ("oxp_run *", _) if function.starts_with("oxp_run_sequence") => "f.searched",
            ("uint32_t", "distribution") => "OXP_LOGPROBS_RAW",
            ("float *", "logprob") => "&f.logprob",
            ("double *", "score") => "&f.score",
            ("const oxp_token_logprob **", _) => "&f.top",
            ("uint32_t", "kind") if function == "oxp_run_set_constraint" => "OXP_CONSTRAINT_NONE",
            ("uint32_t", "kind") => "OXP_OPTIONS_RUN",
            ("const char *", "format") => "\"hermes\"",
            ("uint32_t", "backend") => "OXP_BACKEND_NATIVE",
            ("uint32_t", "role") => "OXP_TOKEN_EOS",
            ("const char *", "key") => "\"threads\"",
            ("const char *", "value") => "\"2\"",
            ("const char *", "path") if function.starts_with("oxp_session") => "f.model_path",
            ("const char *", "path") if function.starts_with("oxp_pipeline") => "f.package_path",
            ("const char *", "path") => "f.tokenizer_path",
            ("const char *", "component") if function == "oxp_run_execute" => "\"probe\"",
            ("const char *", "component") => "\"decoder\"",
            ("const char *", "address") if function.ends_with("_input") => "\"vision_encoder.pixel_values\"",
            ("const char *", "address") => "\"decoder.logits\"",
            ("const char *", "name") => "\"y\"",
            ("const char *", "text") => "\"three\"",
            ("const char *", "token") => "\"three\"",
            ("const char *", "source") => "\"{{ messages[0]['content'] }}\"",
            ("const char *", "messages") => "\"[{\\\"role\\\": \\\"user\\\", \\\"content\\\": \\\"hi\\\"}]\"",
            ("const char *", "tools") => "\"[]\"",
            ("const char *", "extra") => "\"{}\"",
            ("const void *", "model") => "f.model",
            ("uint64_t", "model_len") => "f.model_len",
            ("const void *", "json") => "f.json",
            ("uint64_t", "json_len") => "f.json_len",
            ("const void *", "config") => "f.config",
            ("uint64_t", "config_len") => "f.config_len",
            ("const oxp_file *", "external") => "f.files",
            ("uint64_t", "external_count") => "1",
            ("const oxp_file *", "files") => "f.package_files",
            ("uint64_t", "file_count") => "f.package_file_count",
            ("const void *", "data") if function == "oxp_run_add_image" => "image_file",
            ("uint64_t", "data_len") if function == "oxp_run_add_image" => "sizeof image_file",
            ("const void *", "data") => "sound_file",
            ("uint64_t", "data_len") => "sizeof sound_file",
            ("const void *", "state") => "f.state",
            ("uint64_t", "state_size") => "f.state_size",
            ("void *", "buffer") => "f.buffer",
            ("const void *", "pixels") => "\"abc\"",
            ("uint64_t", "pixels_len") => "3",
            ("uint64_t", "width" | "height") => "1",
            ("const float *", "samples") => "f.pixels",
            ("oxp_batch *", "batch") if function == "oxp_batch_remove" => "f.full_batch",
            ("oxp_run *", "run") if function == "oxp_batch_remove" => "f.run",
            ("uint64_t *", "stepped") => "&f.number",
            ("const oxp_pipeline *", _) if function == "oxp_pipeline_embed" => "f.embedder",
            ("const oxp_pipeline *", _) if function == "oxp_pipeline_classify" => "f.classifier",
            ("const oxp_pipeline *", _) if function == "oxp_pipeline_label_copy" => "f.classifier",
            ("const char *const *", "texts") => "f.texts",
            ("const uint64_t *", "text_lens") => "NULL",
            ("uint64_t", "sample_count") => "8",
            ("uint32_t", "channels") => "2",
            ("uint32_t", "sample_rate") => "8000",
            ("uint64_t", name) if name.ends_with("_len") => "OXP_NUL_TERMINATED",
            ("const oxp_named_in *", "inputs") => "f.ins",
            ("oxp_named_out *", "outputs") => "f.outs",
            ("const char *const *", "output_names") => "f.names",
            ("const uint64_t *", "output_name_lens") => "f.name_lens",
            ("uint64_t", "input_count" | "output_count" | "count") => "1",
            ("const oxp_tensor_in *", "tensor") => "&f.pixel_tensor",
            ("oxp_tensor_in *", "tensor") => "&f.view",
            ("oxp_tensor_out *", "tensor") => "&f.room",
            ("const int32_t *", "tokens" | "ids") => "f.tokens",
            ("uint64_t", "index" | "length" | "seed") => "0",
            ("int32_t", "add_special" | "skip_special" | "add_generation_prompt" | "finished") => "1",
            ("int32_t", "token" | "id") => "3",
            ("char *", "buffer") => "f.buffer",
            ("int32_t *", "buffer" | "ids") => "f.ids",
            ("uint64_t", "capacity") => "64",
            ("uint64_t *", "needed") => "&f.needed",
            ("uint64_t *", "count" | "size" | "weight_bytes" | "token_count" | "offset" | "first") => {
                "&f.number"
            }
            ("uint64_t *", "value_len") => "&f.text2_len",
            ("uint64_t *", name) if name.ends_with("_len") => "&f.text_len",
            ("const char **", "value") => "&f.text2",
            ("const char **", _) => "&f.text",
            ("const float **", "logits") => "&f.logits",
            ("int32_t *", _) => "&f.answer",
            ("uint32_t *", _) => "&f.code",
            ("oxp_port_info *", _) => "&f.port",
            ("oxp_session_stats *", _) => "&f.session_stats",
            ("oxp_component_info *", _) => "&f.component",
            ("oxp_pipeline_info *", _) => "&f.pipeline_info",
            ("oxp_event *", _) => "&f.event",
            ("oxp_run_stats *", _) => "&f.run_stats",
            ("void *", "user_data") => "NULL",
            (ty, _) if ty.ends_with("_fn") => "NULL",
            (ty, _) if made_type(ty).is_some() => {
                return format!("&out.{}", field(made_type(ty).expect("checked")));
            }
            (ty, _) if handle_type(ty).is_some() => {
                return format!("f.{}", field(handle_type(ty).expect("checked")));
            }
            _ => panic!("{function}: no valid value for \"{ty}{name}\"; add one to this file"),
        };
        // `capacity` that JSON and chat prompts fit as well.
        match (name.as_str(), function) {
            ("capacity", function)
                if !["encode_copy", "tokens_copy", "sequence_copy"]
                    .iter()
                    .any(|ids| function.ends_with(ids)) =>
            {
                "sizeof f.buffer".to_owned()
            }
            _ => value.to_owned(),
        }
    }
}

const HANDLES: [&str; 12] = [
    "error",
    "options",
    "cancel",
    "runtime",
    "session",
    "outputs",
    "pipeline",
    "run",
    "tokenizer",
    "decode_stream",
    "chat_template",
    "batch",
];

/// `session` of `const oxp_session *`.
fn handle_type(ty: &str) -> Option<&'static str> {
    let name = ty
        .trim_start_matches("const ")
        .strip_prefix("oxp_")?
        .strip_suffix(" *")?;
    HANDLES.into_iter().find(|handle| *handle == name)
}

/// `session` of `oxp_session **`.
fn made_type(ty: &str) -> Option<&'static str> {
    let name = ty.strip_prefix("oxp_")?.strip_suffix(" **")?;
    HANDLES.into_iter().find(|handle| *handle == name)
}

/// The name of a handle's field in misuse.h.
fn field(handle: &'static str) -> &'static str {
    match handle {
        "decode_stream" => "stream",
        other => other,
    }
}

fn functions() -> Vec<Function> {
    let text = header::without_comments(&header::text());
    let code: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect();
    let text = code.join("\n");
    let mut found = Vec::new();
    for statement in text.split(';') {
        let statement = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some((head, rest)) = statement.split_once('(') else {
            continue;
        };
        let Some(at) = head.find("oxp_").filter(|_| !head.contains("typedef")) else {
            continue;
        };
        // The last word is the function, whatever stands before it the type.
        let at = head.rfind("oxp_").unwrap_or(at);
        let parameters = rest.trim_end().trim_end_matches(')');
        let parameters = parameters
            .split(',')
            .map(str::trim)
            .filter(|part| *part != "void" && !part.is_empty());
        found.push(Function {
            name: head[at..].trim().to_owned(),
            returns: head[..at]
                .rsplit(['{', '}'])
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned(),
            parameters: parameters
                .map(|parameter| {
                    let at = parameter.rfind([' ', '*']).expect("a type and a name") + 1;
                    Parameter {
                        ty: parameter[..at].trim_end_matches(' ').to_owned(),
                        name: parameter[at..].to_owned(),
                    }
                })
                .collect(),
        });
    }
    found
}

/// One case: `wrong` fails with `code`, then the valid call works on the same handles.
fn case(source: &mut String, function: &Function, code: &str, fragment: &str, wrong: &str) {
    let made: Vec<_> = function
        .parameters
        .iter()
        .filter_map(|parameter| made_type(&parameter.ty))
        .collect();
    let made: Vec<_> = made.into_iter().filter(|handle| *handle != "error").collect();
    writeln!(source, "    fresh();").unwrap();
    if !made.is_empty() {
        writeln!(source, "    spoil_outs();").unwrap();
    }
    writeln!(source, "    EXPECT({code}, \"{fragment}\", {wrong});").unwrap();
    for handle in &made {
        let place = format!("out.{}", field(handle));
        // A NULL place for the result itself cannot be cleared.
        if wrong.contains(&format!("&{place}")) {
            writeln!(source, "    CHECK({place} == NULL);").unwrap();
        }
    }
    if !made.is_empty() {
        writeln!(source, "    memset(&out, 0, sizeof out);").unwrap();
    }
    writeln!(source, "    fresh_values();").unwrap();
    writeln!(source, "    OK({});", function.call(&[])).unwrap();
    writeln!(source, "    free_outs();").unwrap();
}

fn cases_of(source: &mut String, function: &Function) {
    for parameter in &function.parameters {
        let Parameter { ty, name } = parameter;
        let is_pointer = ty.ends_with('*') || ty.ends_with("_fn");
        if name == "err" {
            writeln!(
                source,
                "    fresh();\n    CHECK({} == OXP_OK);\n    free_outs();",
                function.call(&[("err", "NULL")])
            )
            .unwrap();
            continue;
        }
        if !is_pointer {
            continue;
        }
        let null = function.call(&[(name, "NULL")]);
        if function.nullable(parameter) {
            writeln!(source, "    fresh();\n    OK({null});\n    free_outs();").unwrap();
        } else if handle_type(ty).is_some() {
            case(source, function, "OXP_ERR_INVALID_HANDLE", "is NULL", &null);
        } else {
            case(source, function, "OXP_ERR_NULL_POINTER", "is NULL", &null);
        }
        if let Some(handle) = handle_type(ty) {
            let other = if handle == "cancel" { "runtime" } else { "cancel" };
            let wild = |value: &str| format!("({ty})(void *){value}");
            let freed = function.call(&[(name, &format!("freed.{}", field(handle)))]);
            case(
                source,
                function,
                "OXP_ERR_INVALID_HANDLE",
                "has been freed",
                &freed,
            );
            let foreign = function.call(&[(name, &wild(&format!("f.{other}")))]);
            case(
                source,
                function,
                "OXP_ERR_INVALID_HANDLE",
                &format!("is an oxp_{other}"),
                &foreign,
            );
            let nothing = function.call(&[(name, &wild("&f"))]);
            case(source, function, "OXP_ERR_INVALID_HANDLE", "no handle", &nothing);
            let nothing = function.call(&[(name, &wild("(f.model + 1)"))]);
            case(source, function, "OXP_ERR_INVALID_HANDLE", "no handle", &nothing);
        }
        if ty == "const char *" {
            let bad = function.call(&[(name, "\"ab\\xff\\xfe\""), (&format!("{name}_len"), "4")]);
            case(source, function, "OXP_ERR_INVALID_UTF8", "from byte 2", &bad);
        }
        if [
            "port_info",
            "session_stats",
            "component_info",
            "pipeline_info",
            "event",
            "run_stats",
        ]
        .iter()
        .any(|info| *ty == format!("oxp_{info} *"))
        {
            let place = function.valid(parameter);
            let sizeless = format!("({}.struct_size = 0, {})", &place[1..], function.call(&[]));
            case(
                source,
                function,
                "OXP_ERR_STRUCT_SIZE",
                "struct_size is 0",
                &sizeless,
            );
        }
    }
}

fn frees_of(source: &mut String, function: &Function) {
    let handle = handle_type(&function.parameters[0].ty)
        .unwrap_or_else(|| panic!("{} takes {}", function.name, function.parameters[0].ty));
    let other = if handle == "cancel" { "runtime" } else { "cancel" };
    let (name, ty) = (&function.name, &function.parameters[0].ty);
    for value in [
        "NULL",
        &format!("freed.{}", field(handle)),
        &format!("({ty})(void *)f.{other}"),
        &format!("({ty})(void *)&f"),
    ] {
        writeln!(source, "    {name}({value});").unwrap();
    }
}

fn program() -> String {
    let mut source = String::from("#include \"misuse.h\"\n\n");
    let mut calls = String::new();
    let mut without_status = Vec::new();
    for function in functions() {
        let name = &function.name;
        if function.returns == "oxp_status"
            && function.parameters.last().is_some_and(|last| last.name == "err")
        {
            writeln!(source, "static void misuse_{name}(void)\n{{").unwrap();
            cases_of(&mut source, &function);
        } else if name.ends_with("_free") {
            writeln!(source, "static void misuse_{name}(void)\n{{").unwrap();
            frees_of(&mut source, &function);
        } else {
            without_status.push(name.clone());
            continue;
        }
        writeln!(source, "}}\n").unwrap();
        writeln!(calls, "    misuse_{name}();").unwrap();
    }
    without_status.sort();
    let listed: Vec<&str> = WITHOUT_STATUS.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        without_status, listed,
        "functions without a status that are tested elsewhere"
    );
    writeln!(
        source,
        "int main(int argc, char **argv)\n{{\n    if (argc != 5)\n        return 2;\n    set_up(argv[1], argv[2], argv[3], argv[4]);\n{calls}    tear_down();\n    return check_result();\n}}"
    )
    .unwrap();
    source
}

#[test]
fn every_pointer_of_every_function() {
    let folder = programs::scratch("misuse");
    let file = folder.join("misuse.c");
    std::fs::write(&file, program()).expect("the program can be written");
    for language in [C, CPP] {
        let program = programs::build_from("misuse", &file, language);
        for backend in programs::backends() {
            let said = program.run(&[
                programs::path(programs::model_folder()),
                programs::path(programs::package_folder()),
                programs::path(programs::text_packages_folder()),
                backend,
            ]);
            assert!(said.ends_with(" 0 failures\n"), "{said}");
        }
    }
}
