//! The committed header is what the sources say, and compiles everywhere.

use std::path::{Path, PathBuf};
use std::sync::Once;

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

use crate::compiler::{C, CPP, Compiler, Standard};

pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/oxpipe.h")
}

pub fn text() -> String {
    static UPDATED: Once = Once::new();
    if is_to_be_updated() {
        UPDATED.call_once(|| std::fs::write(path(), generate()).expect("include/oxpipe.h can be written"));
    }
    std::fs::read_to_string(path()).expect("include/oxpipe.h is committed")
}

pub fn is_to_be_updated() -> bool {
    std::env::var_os("OXP_UPDATE_HEADER").is_some()
}

/// Names of the functions that the header declares.
pub fn functions() -> Vec<String> {
    let text = text();
    let code = without_comments(&text);
    let mut found: Vec<String> = code
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '('))
        .filter_map(|word| {
            let name = word.split_once('(')?.0;
            (name.starts_with("oxp_")).then(|| name.to_owned())
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

pub fn without_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    code + rest
}

/// The source files, in the order in which their items stand in the header.
const SOURCES: [&str; 23] = [
    "version",
    "status",
    "error",
    "dtype",
    "tensor",
    "files",
    "memory",
    "cancel",
    "options",
    "runtime",
    "ports",
    "session",
    "session_run",
    "outputs",
    "pipeline",
    "run",
    "run_constraint",
    "run_states",
    "batch",
    "run_values",
    "sampling",
    "run_media",
    "tokenizer",
];
const MORE_SOURCES: [&str; 3] = ["decode_stream", "chat", "texts"];

pub fn sources() -> impl Iterator<Item = PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/capi");
    SOURCES
        .into_iter()
        .chain(MORE_SOURCES)
        .map(move |name| folder.join(format!("{name}.rs")))
}

fn generate() -> String {
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        style: Style::Both,
        header: Some(include_str!("header_top.h").trim_end().into()),
        after_includes: Some(include_str!("header_after_includes.h").trim_end().into()),
        trailer: Some(include_str!("header_trailer.h").trim().into()),
        include_guard: Some("OXPIPE_H".into()),
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        documentation_style: DocumentationStyle::Doxy,
        line_length: 100,
        ..Config::default()
    };
    let mut builder = Builder::new().with_config(config);
    for source in sources() {
        builder = builder.with_src(source);
    }
    let mut header = Vec::new();
    builder
        .generate()
        .expect("cbindgen reads src/capi")
        .write(&mut header);
    tidy(&String::from_utf8(header).expect("cbindgen writes UTF-8"))
}

/// Puts a comment of one line on one line, takes the blank lines out of rows of plain
/// constants and the keyword `struct` out of parameters: cbindgen spreads all of it, which
/// doubles the length of a header that is the manual.
fn tidy(header: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in header.lines() {
        let open = lines.len().checked_sub(2).map(|at| lines[at].trim() == "/**");
        if line.trim() == "*/" && open == Some(true) {
            let text = lines.pop().expect("the comment's line");
            let opening = lines.pop().expect("the comment's opening");
            let words = text.trim().trim_start_matches("* ");
            lines.push(format!("{opening} {words} */"));
        } else if line.starts_with("typedef struct") {
            lines.push(line.to_owned());
        } else {
            // Every type has a name without the keyword.
            lines.push(line.replace("struct oxp_", "oxp_"));
        }
    }
    let constant = |line: Option<&String>| line.is_some_and(|line| line.starts_with("#define OXP_"));
    let kept = lines.iter().enumerate().filter(|(at, line)| {
        !(line.is_empty() && constant(lines.get(at.wrapping_sub(1))) && constant(lines.get(at + 1)))
    });
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

#[test]
fn is_what_the_sources_say() {
    let generated = generate();
    // An update is one of include/oxpipe.abi, too.
    crate::abi::committed();
    if generated != text() {
        let line = generated
            .lines()
            .zip(text().lines())
            .position(|(new, old)| new != old);
        panic!(
            "include/oxpipe.h is not what src/capi says (first at line {}); run OXP_UPDATE_HEADER=1 cargo test \
             --test capi",
            line.map_or("?".into(), |line| (line + 1).to_string())
        );
    }
}

/// Alone, twice, and in every language that the header promises.
#[test]
fn compiles_alone_and_twice() {
    let compiler = Compiler::new();
    let source = "#include \"oxpipe.h\"\n#include \"oxpipe.h\"\n\
                  int main(void) { return oxp_abi_version() == OXP_ABI_VERSION ? 0 : 1; }\n";
    for standard in [
        Standard {
            language: C,
            name: "c99",
        },
        Standard {
            language: C,
            name: "c11",
        },
        Standard {
            language: CPP,
            name: "c++17",
        },
    ] {
        compiler.check_syntax(source, standard);
    }
}

/// Every initialiser that the header has, as a C and as a C++ compiler with all warnings
/// takes it.
#[test]
fn initialisers_compile() {
    let compiler = Compiler::new();
    let text = text();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("#define ")?.strip_suffix("_INIT \\"))
        .collect();
    assert!(names.len() >= 11, "{names:?}");
    let mut source = String::from("#include \"oxpipe.h\"\nint main(void) {\n");
    for name in &names {
        let ty = name.to_lowercase();
        source += &format!("  {{ {ty} value = {name}_INIT; (void)value; }}\n");
    }
    source += "  return 0;\n}\n";
    for standard in [
        Standard {
            language: C,
            name: "c99",
        },
        Standard {
            language: CPP,
            name: "c++17",
        },
    ] {
        compiler.check_syntax(&source, standard);
    }
}
