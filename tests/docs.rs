//! What docs/ shows is true: its programs and fragments compile, the first program runs on the packages
//! that the guide to packages describes, links lead somewhere, and what is named is there.
#![cfg(all(unix, feature = "native"))]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
use tempfile::TempDir;

const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

fn temporary() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; scripts/install-tools.sh cc c++ installs it"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{stdout}{stderr}");
    stdout
}

/// The pages, by name.
fn pages() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = fs::read_dir(Path::new(SOURCE).join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "md"))
        .map(|file| {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(file).unwrap())
        })
        .collect();
    found.sort();
    assert!(found.len() > 10);
    found
}

fn page(name: &str) -> String {
    let found = pages().into_iter().find(|(page, _)| page == name);
    found.unwrap_or_else(|| panic!("docs/{name} is not there")).1
}

/// The blocks of code of a page in this language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut parts = text.split("\n```");
    let mut found = Vec::new();
    parts.next();
    while let (Some(block), _) = (parts.next(), parts.next()) {
        let (of, code) = block.split_once('\n').unwrap_or((block, ""));
        if of == language {
            found.push(format!("{code}\n"));
        }
    }
    found
}

/// What a fragment may rely on: handles of each type.
const AROUND_C: &str = "\
#include <oxpipe.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void fragment(oxp_runtime *runtime, oxp_pipeline *pipeline, oxp_session *session, oxp_run *run, oxp_error *err);
void fragment(oxp_runtime *runtime, oxp_pipeline *pipeline, oxp_session *session, oxp_run *run, oxp_error *err)
{
(void)runtime, (void)pipeline, (void)session, (void)run, (void)err;
";

#[test]
fn fragments_and_programs_in_c_and_cpp_compile() {
    let folder = temporary();
    let mut count = 0;
    for (name, text) in pages() {
        for (language, compiler, standard) in [("c", "cc", "-std=c99"), ("cpp", "c++", "-std=c++17")] {
            for code in blocks(&text, language) {
                let program = match code.contains("int main(") {
                    true => code,
                    false => format!("{AROUND_C}{code}}}\n"),
                };
                let file = folder.path().join(format!("{name}.{language}"));
                fs::write(&file, program).unwrap();
                run(Command::new(compiler)
                    .args([
                        standard,
                        "-fsyntax-only",
                        "-Wall",
                        "-Wextra",
                        "-pedantic",
                        "-Werror",
                    ])
                    .arg("-I")
                    .arg(Path::new(SOURCE).join("include"))
                    .arg(&file));
                count += 1;
            }
        }
    }
    assert!(count > 10, "{count}");
}

const TOKENIZER: &str = r#"{
  "version": "1.0",
  "added_tokens": [{"id": 7, "content": "</s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
  "pre_tokenizer": {"type": "Whitespace"},
  "model": {
    "type": "WordLevel",
    "vocab": {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "</s>": 7},
    "unk_token": "zero"
  }
}"#;

/// The whole packages of packages.md, with graphs that follow each token with the next.
fn packages() -> (TempDir, Vec<PathBuf>) {
    let one_hot = |shift: usize| -> Vec<f32> {
        (0..64)
            .map(|at| f32::from((at / 8 + shift) % 8 == at % 8))
            .collect()
    };
    let lookup = |input: &str, output: &str, shift: usize| {
        Model::new()
            .input(input, INT64, "[1, sequence]")
            .output(output, FLOAT, "[1, sequence, 8]")
            .initializer(Tensor::floats("table", &[8, 8], &one_hot(shift)))
            .node(Node::new("Gather", &["table", input], &[output]))
    };
    let product = Model::new()
        .input("inputs_embeds", FLOAT, "[1, sequence, 8]")
        .output("logits", FLOAT, "[1, sequence, 8]")
        .initializer(Tensor::floats("table", &[8, 8], &one_hot(1)))
        .node(Node::new("MatMul", &["inputs_embeds", "table"], &["logits"]));
    let whole: Vec<String> = blocks(&page("packages.md"), "yaml")
        .into_iter()
        .filter(|block| block.starts_with("schema_version"))
        .collect();
    let [small, large] = &whole[..] else {
        panic!("packages.md has {} packages", whole.len());
    };
    let folder = temporary();
    let mut found = Vec::new();
    for (name, metadata, models) in [
        (
            "small",
            small,
            vec![("decoder", lookup("input_ids", "logits", 1))],
        ),
        (
            "large",
            large,
            vec![
                ("embedding", lookup("input_ids", "inputs_embeds", 0)),
                ("decoder", product),
            ],
        ),
    ] {
        let package = folder.path().join(name);
        fs::create_dir(&package).unwrap();
        for (name, model) in models {
            fs::write(package.join(format!("{name}.onnx")), model.encode()).unwrap();
        }
        fs::write(package.join("inference_metadata.yaml"), metadata).unwrap();
        fs::write(package.join("tokenizer.json"), TOKENIZER).unwrap();
        found.push(package);
    }
    (folder, found)
}

/// In C and C++, on the packages of the guide.
#[test]
fn the_first_program_runs_on_the_packages_of_the_guide() {
    let (folder, packages) = packages();
    let text = page("first-program.md");
    // Cargo puts the library beside the tests, under a name without the version.
    let built = std::env::current_exe().unwrap().with_file_name("liboxpipe.so");
    for name in ["liboxpipe.so", "liboxpipe.so.0"] {
        std::os::unix::fs::symlink(&built, folder.path().join(name)).unwrap();
    }
    for (language, compiler, standard) in [("c", "cc", "-std=c99"), ("cpp", "c++", "-std=c++17")] {
        let source = folder.path().join(format!("first.{language}"));
        fs::write(&source, &blocks(&text, language)[0]).unwrap();
        let program = folder.path().join(format!("first_{language}"));
        run(Command::new(compiler)
            .arg(standard)
            .arg("-I")
            .arg(Path::new(SOURCE).join("include"))
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .arg(format!("-L{}", folder.path().display()))
            .args(["-loxpipe", "-lpthread", "-Wl,-rpath,$ORIGIN"]));
        for package in &packages {
            let said = run(Command::new(&program).env_clear().arg(package).arg("two three"));
            assert_eq!(said, "four five six\n", "{language}, {}", package.display());
        }
    }
}

/// Links between pages lead to one, and the index has all.
#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let names: BTreeSet<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    for (name, text) in &pages {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let is_page = names.contains(link.split('#').next().unwrap_or(link));
            assert!(is_page || link.starts_with("https://"), "{name}: {link}");
        }
        let index = page("README.md");
        assert!(
            name == "README.md" || index.contains(&format!("]({name})")),
            "README.md lacks {name}"
        );
    }
}

/// Whatever begins with oxp_ or OXP_ is in the header; scripts, examples and options are there.
#[test]
fn what_is_named_is_there() {
    let header = fs::read_to_string(Path::new(SOURCE).join("include/oxpipe.h")).unwrap();
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words.map(str::to_owned).collect()
    };
    let known = words(&header);
    for (name, text) in pages() {
        for word in words(&text) {
            // "oxp_tokenizer_..." and "OXP_DTYPE_" stand for several.
            let is_one = word.starts_with("oxp_") || word.starts_with("OXP_");
            let stands_for_several = word.ends_with('_') && header.contains(&word);
            let deprecation = word == "OXP_ERR_" || word == "oxp_";
            // A variable of the environment, and a function of the CMake package.
            let other = ["OXP_NATIVE_STEP_COMPONENTS", "OXP_UPDATE_HEADER"].contains(&word.as_str());
            assert!(
                !is_one || known.contains(&word) || stands_for_several || deprecation || other,
                "docs/{name} names {word}, which the header does not have"
            );
        }
        for part in text.split('`').skip(1).step_by(2) {
            let path = part.split(' ').next().unwrap_or(part);
            let in_tree = ["examples_c/", "scripts/", "bindings/", "include/"];
            if in_tree.iter().any(|start| path.starts_with(start)) {
                assert!(Path::new(SOURCE).join(path).exists(), "docs/{name} names {path}");
            }
        }
    }
}
