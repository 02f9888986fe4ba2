//! include/oxpipe.hpp: it compiles everywhere without a warning, leaks no macro, reaches every
//! function of the C header, and the programs capi_tests/cpp_*.cpp do what they check, with
//! exceptions and without.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::compiler::{self, CPP, Compiler, Standard};
use crate::header;
use crate::programs::{self, Program};

/// Beside the warnings that every program is compiled with.
const WARNINGS: [&str; 5] = [
    "-Wconversion",
    "-Wsign-conversion",
    "-Wshadow",
    "-Wold-style-cast",
    "-Wnon-virtual-dtor",
];

/// The ways in which the header can be compiled: throwing, returning results, and returning
/// results because the compiler cannot throw.
const WAYS: [&[&str]; 3] = [
    &[],
    &["-DOXPIPE_NO_EXCEPTIONS"],
    &["-fno-exceptions", "-fno-rtti"],
];

const STANDARDS: [Standard; 2] = [
    Standard {
        language: CPP,
        name: "c++17",
    },
    Standard {
        language: CPP,
        name: "c++20",
    },
];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("capi_tests/{name}.cpp"))
}

fn build(name: &str, standard: Standard, way: &[&str]) -> Program {
    let flags = [way, &["-Wconversion", "-Wshadow"]].concat();
    programs::build_with(name, &source(name), standard, &flags)
}

/// The program in C++17, every way, on every backend; and once in C++20.
fn check(name: &str, arguments: &[&str]) {
    let ways = WAYS.map(|way| (STANDARDS[0], way));
    for (standard, way) in ways.into_iter().chain([(STANDARDS[1], WAYS[0])]) {
        let program = build(name, standard, way);
        for backend in programs::backends() {
            let arguments: Vec<&str> = arguments
                .iter()
                .map(|&argument| if argument == "BACKEND" { backend } else { argument })
                .collect();
            let said = program.run(&arguments);
            assert!(
                said.ends_with(" 0 failures\n") && said.lines().count() == 1,
                "{}: {said}",
                program.name
            );
        }
    }
}

#[test]
fn types() {
    check("cpp_types", &[]);
}

#[test]
fn session() {
    check(
        "cpp_session",
        &[programs::path(programs::model_folder()), "BACKEND"],
    );
}

#[test]
fn texts() {
    check(
        "cpp_texts",
        &[programs::path(programs::text_packages_folder()), "BACKEND"],
    );
}

#[test]
fn run() {
    check(
        "cpp_run",
        &[programs::path(programs::package_folder()), "BACKEND"],
    );
}

#[test]
fn text() {
    check(
        "cpp_text",
        &[programs::path(programs::package_folder()), "BACKEND"],
    );
}

/// Handles, errors and callbacks that throw: nothing is lost or read after its end.
#[cfg(all(target_os = "linux", feature = "native"))]
#[test]
fn run_under_valgrind() {
    for way in [WAYS[0], WAYS[1]] {
        let program = build("cpp_run", STANDARDS[0], &[way, &["-DUNCOUNTED"]].concat());
        let mut command = program.under_valgrind();
        command.args([programs::path(programs::package_folder()), "native"]);
        let said = compiler::run(&mut command, &format!("{} under valgrind", program.name));
        assert!(said.ends_with(" 0 failures\n"), "{said}");
    }
}

/// g++ or clang++ where they are there, beside the platform's compiler.
fn compilers() -> Vec<&'static str> {
    ["c++", "g++", "clang++"]
        .into_iter()
        .filter(|name| {
            Command::new(name)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        })
        .collect()
}

/// Alone and twice, with every warning an error, in every way.
#[test]
fn header_compiles_without_a_warning() {
    let folder = programs::scratch("cpp_header");
    let file = folder.join("twice.cpp");
    let text = "#include <oxpipe.hpp>\n#include <oxpipe.hpp>\nint main() { return 0; }\n";
    std::fs::write(&file, text).expect("a file in the temporary folder");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let compilers = compilers();
    assert!(
        !compilers.is_empty(),
        "no C++ compiler; scripts/install-tools.sh c++"
    );
    for compiler in compilers {
        for standard in STANDARDS {
            for way in WAYS {
                let mut command = Command::new(compiler);
                command
                    .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
                    .args(WARNINGS)
                    .args(way)
                    .arg(format!("-std={}", standard.name))
                    .arg("-I")
                    .arg(&include)
                    .arg(&file);
                compiler::run(&mut command, &format!("{compiler}, {}, {way:?}", standard.name));
            }
        }
    }
}

/// Two files that were compiled in different ways go into one program, whose classes have
/// names of their own for each.
#[test]
fn ways_mix_in_one_program() {
    let folder = programs::scratch("cpp_mixed");
    let part = "#include <oxpipe.hpp>\n\
                bool NAME() { return static_cast<bool>(oxp::cancel::create()); }\n";
    let main = "#include <cstdio>\nbool throwing();\nbool results();\n\
                int main() { std::puts(throwing() && results() ? \"both\" : \"not both\"); }\n";
    let throwing = folder.join("throwing.cpp");
    let results = folder.join("results.cpp");
    let object = folder.join("results.o");
    std::fs::write(&throwing, part.replace("NAME", "throwing") + main)
        .expect("a file in the temporary folder");
    std::fs::write(&results, part.replace("NAME", "results")).expect("a file in the temporary folder");
    let mut command = Compiler::command(STANDARDS[0], &results);
    command
        .args(["-fno-exceptions", "-fno-rtti", "-c", "-o"])
        .arg(&object);
    compiler::run(&mut command, "compiling without exceptions");
    let program = programs::build_with("cpp_mixed", &throwing, STANDARDS[0], &[programs::path(&object)]);
    assert_eq!(program.run(&[]), "both\n");
}

/// Macros that are defined after a source file, by name.
fn macros(source: &Path) -> BTreeSet<String> {
    let mut command = Compiler::command(STANDARDS[0], source);
    compiler::run(command.args(["-dM", "-E"]), "listing macros")
        .lines()
        .filter_map(|line| line.strip_prefix("#define "))
        .filter_map(|line| line.split([' ', '(']).next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn header_leaks_no_macros() {
    let folder = programs::scratch("cpp_macros");
    let header = include_str!("../../include/oxpipe.hpp");
    let includes: String = header
        .lines()
        .filter(|line| {
            line.starts_with("#include <") && !line.contains("<stdfloat>") && !line.contains("<span>")
        })
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(includes.contains("<string_view>"), "{includes}");
    let before = folder.join("before.cpp");
    let after = folder.join("after.cpp");
    std::fs::write(&before, format!("#include <oxpipe.h>\n{includes}"))
        .expect("a file in the temporary folder");
    std::fs::write(&after, "#include <oxpipe.hpp>\n").expect("a file in the temporary folder");
    let leaked: Vec<String> = macros(&after).difference(&macros(&before)).cloned().collect();
    let wanted = ["OXPIPE_COMPILER_THROWS", "OXPIPE_HPP", "OXPIPE_THROWS"];
    assert!(
        wanted.iter().all(|name| leaked.contains(&(*name).to_owned())),
        "{leaked:?}"
    );
    assert!(
        leaked.iter().all(|name| name.starts_with("OXPIPE_")),
        "{leaked:?}"
    );
}

#[test]
fn header_reaches_every_function_of_the_c_header() {
    let code = header::without_comments(include_str!("../../include/oxpipe.hpp"));
    let words: BTreeSet<&str> = code.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let missing: Vec<String> = header::functions()
        .into_iter()
        .filter(|function| !words.contains(function.as_str()))
        .collect();
    assert!(missing.is_empty(), "oxpipe.hpp does not use {missing:?}");
}
