//! The binary interface: include/oxpipe.abi lists every symbol with its signature, every layout and
//! every constant. The list is what C, C++, Rust and C# each work out by themselves, and holds all
//! that the last release had.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Once};

use crate::compiler::{self, C, CPP, Compiler, Language, Standard};
use crate::{header, programs};

const TOP: &str = "\
# Generated from include/oxpipe.h; do not edit. `OXP_UPDATE_HEADER=1 cargo test --test capi -- header::`
# writes it anew with the header, `cargo test --test capi -- abi::` checks it. docs/abi.md says what of
# it may change from one version to the next.
";

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/oxpipe.abi")
}

/// A declaration of the header.
enum Declaration {
    /// A type of which only pointers are known.
    Handle(String),
    Alias(String),
    Callback {
        name: String,
        signature: String,
    },
    Struct {
        name: String,
        /// Type and name of each.
        fields: Vec<(String, String)>,
    },
    Function {
        name: String,
        signature: String,
    },
}
use Declaration::{Alias, Callback, Function, Handle, Struct};

fn declarations() -> Vec<Declaration> {
    let code = header::without_comments(&header::text());
    let mut continued = false;
    let code: Vec<&str> = code
        .lines()
        .filter(|line| {
            let directive = continued || line.trim_start().starts_with('#');
            continued = directive && line.ends_with('\\');
            !directive && !line.starts_with("OXP_LAYOUT_") && !line.contains("extern \"C\"")
        })
        .collect();
    let mut found = Vec::new();
    let mut depth = 0;
    let mut declaration = String::new();
    for c in code.join("\n").chars() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            // Of the `extern "C"`.
            '}' => continue,
            ';' if depth == 0 => {
                found.push(declare(&plain(&declaration)));
                declaration.clear();
                continue;
            }
            _ => {}
        }
        declaration.push(c);
    }
    assert_eq!(plain(&declaration), "", "the header's end");
    found
}

/// With one space where there was white space.
fn plain(code: &str) -> String {
    code.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn declare(code: &str) -> Declaration {
    if let Some(callback) = code.strip_prefix("typedef ").filter(|code| code.contains("(*")) {
        let (result, rest) = callback.split_once("(*").expect("a function's pointer");
        let (name, parameters) = rest.split_once(')').expect("a callback has a name");
        return Callback {
            name: name.to_owned(),
            signature: format!("{result}{parameters}"),
        };
    }
    if let Some(named) = code.strip_prefix("typedef struct ") {
        let Some((name, rest)) = named.split_once(" {") else {
            return Handle(named.split(' ').next().expect("a type has a name").to_owned());
        };
        let (fields, _) = rest.rsplit_once('}').expect("a struct ends");
        let fields = fields.split(';').map(str::trim).filter(|field| !field.is_empty());
        return Struct {
            name: name.to_owned(),
            fields: fields
                .map(|field| {
                    let at = field.rfind([' ', '*']).expect("a field has a type") + 1;
                    (field[..at].trim().to_owned(), field[at..].to_owned())
                })
                .collect(),
        };
    }
    if let Some(alias) = code.strip_prefix("typedef ") {
        let (ty, name) = alias.rsplit_once(' ').expect("a type has a name");
        return Alias(format!("{name} {ty}"));
    }
    let (before, parameters) = code.split_once('(').expect("a function has parameters");
    let at = before.rfind([' ', '*']).expect("a function has a result") + 1;
    Function {
        name: before[at..].to_owned(),
        signature: format!("{} ({parameters}", before[..at].trim()),
    }
}

fn constants() -> Vec<String> {
    let constants = header::text();
    let named = constants.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
        let is_value = value == "UINT64_MAX" || value.parse::<i64>().is_ok();
        (name.starts_with("OXP_") && is_value).then(|| name.to_owned())
    });
    named.collect()
}

/// Names whose comment says that they are to go.
fn deprecated() -> Vec<String> {
    let text = header::text();
    let mut found = Vec::new();
    for (comment, code) in text.split("/**").skip(1).filter_map(|part| part.split_once("*/")) {
        let declared = code
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .find(|word| word.starts_with("oxp_") && *word != "oxp_status" || word.starts_with("OXP_"));
        if let Some(name) = declared.filter(|_| plain(comment).contains("Deprecated since")) {
            found.push(name.to_owned());
        }
    }
    found
}

/// One line for each constant, layout and field, as every language must print it.
fn measured(said: &str) -> Vec<String> {
    said.lines().map(str::to_owned).collect()
}

/// A program in C, and in C++, that prints them.
fn c_program() -> String {
    let mut source = String::from(
        "#include \"oxpipe.h\"\n#include <stdio.h>\n\
         #ifdef __cplusplus\n#define ALIGN alignof\n#else\n#define ALIGN _Alignof\n#endif\n\
         #define FIELD(type, field) printf(\"field \" #type \".\" #field \" offset %zu size %zu\\n\", \
         offsetof(type, field), sizeof(((type *)0)->field))\n\
         int main(void) {\n",
    );
    for name in constants() {
        // Only the largest number does not fit, and it is not negative.
        writeln!(
            source,
            "  if ({name} > 0) printf(\"constant {name} %llu\\n\", (unsigned long long){name}); \
             else printf(\"constant {name} %lld\\n\", (long long){name});"
        )
        .expect("a string grows");
    }
    for declaration in declarations() {
        if let Struct { name, fields } = declaration {
            writeln!(
                source,
                "  printf(\"struct {name} size %zu align %zu\\n\", sizeof({name}), (size_t)ALIGN({name}));"
            )
            .expect("a string grows");
            for (_, field) in fields {
                writeln!(source, "  FIELD({name}, {field});").expect("a string grows");
            }
        }
    }
    source + "  return 0;\n}\n"
}

static IN_C: LazyLock<Vec<String>> = LazyLock::new(|| measured_in(C));

fn measured_in(language: Language) -> Vec<String> {
    let (name, standard) = match language {
        C => ("abi_c", "c11"),
        CPP => ("abi_cpp", "c++17"),
    };
    let folder = programs::scratch(name);
    let (source, program) = (folder.join("abi.c"), folder.join("abi"));
    std::fs::write(&source, c_program()).expect("a file in the temporary folder");
    let standard = Standard {
        language,
        name: standard,
    };
    let mut command = Compiler::command(standard, &source);
    compiler::run(command.arg("-o").arg(&program), "compiling the layouts");
    measured(&compiler::run(&mut Command::new(program), "printing the layouts"))
}

/// The list, with what a compiler says of sizes.
fn list() -> String {
    let measured = &*IN_C;
    let mut lines = vec![format!("version {}", env!("CARGO_PKG_VERSION"))];
    lines.extend(
        measured
            .iter()
            .filter(|line| line.starts_with("constant "))
            .cloned(),
    );
    let declarations = declarations();
    let is_function = |declaration: &&Declaration| matches!(declaration, Function { .. });
    for declaration in declarations.iter().filter(|one| !is_function(one)) {
        match declaration {
            Handle(name) => lines.push(format!("handle {name}")),
            Alias(alias) => lines.push(format!("alias {alias}")),
            Callback { name, signature } => lines.push(format!("callback {name} {signature}")),
            Struct { name, fields } => {
                let start = format!("struct {name} ");
                lines.extend(measured.iter().filter(|line| line.starts_with(&start)).cloned());
                for (ty, field) in fields {
                    let start = format!("field {name}.{field} ");
                    let measured = measured.iter().find(|line| line.starts_with(&start));
                    let measured = measured.expect("the program prints every field");
                    lines.push(format!("{measured} {ty}"));
                }
            }
            Function { .. } => {}
        }
    }
    for declaration in declarations.iter().filter(is_function) {
        if let Function { name, signature } = declaration {
            lines.push(format!("function {name} {signature}"));
        }
    }
    lines.extend(deprecated().into_iter().map(|name| format!("deprecated {name}")));
    format!("{TOP}{}\n", lines.join("\n"))
}

/// The committed list, which is written before where that is asked for.
pub fn committed() -> String {
    static UPDATED: Once = Once::new();
    if header::is_to_be_updated() {
        UPDATED.call_once(|| std::fs::write(path(), list()).expect("include/oxpipe.abi can be written"));
    }
    std::fs::read_to_string(path()).expect("include/oxpipe.abi is committed")
}

/// The committed list's constants and layouts, as programs print them.
fn committed_measures() -> Vec<String> {
    let is_measure = |line: &&str| {
        ["constant ", "struct ", "field "]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let committed = committed();
    let lines = committed.lines().filter(is_measure).map(|line| {
        let words = if line.starts_with("field ") { 6 } else { usize::MAX };
        line.split(' ').take(words).collect::<Vec<_>>().join(" ")
    });
    lines.collect()
}

#[track_caller]
fn assert_measures(language: &str, measured: &[String]) {
    let committed: BTreeSet<String> = committed_measures().into_iter().collect();
    assert!(committed.len() > 150, "{}", committed.len());
    let measured: BTreeSet<String> = measured.iter().cloned().collect();
    let differing: Vec<&String> = measured.symmetric_difference(&committed).collect();
    assert!(
        differing.is_empty(),
        "{language} and include/oxpipe.abi differ in {differing:#?}"
    );
}

#[test]
fn is_what_the_header_says() {
    let (list, committed) = (list(), committed());
    let differing: Vec<&str> = {
        let (new, old): (BTreeSet<&str>, BTreeSet<&str>) =
            (list.lines().collect(), committed.lines().collect());
        new.symmetric_difference(&old).copied().collect()
    };
    assert!(
        list == committed,
        "include/oxpipe.abi is not what include/oxpipe.h says; run OXP_UPDATE_HEADER=1 cargo test --test capi -- \
         header::, and read docs/abi.md if a line is gone or changed: {differing:#?}"
    );
}

#[test]
fn of_c_is_the_list() {
    assert_measures("C", &IN_C);
}

#[test]
fn of_cpp_is_the_list() {
    assert_measures("C++", &measured_in(CPP));
}

/// The structs and constants of src/capi in a program of their own, since the library shows them
/// to nobody but C.
fn rust_program() -> String {
    let mut definitions =
        String::from("#![allow(non_camel_case_types, dead_code)]\nuse std::ffi::{c_char, c_void};\n");
    let mut main = String::new();
    for file in header::sources() {
        let source = std::fs::read_to_string(&file).expect("a source of the interface");
        for line in source.lines().filter(|line| line.starts_with("pub const OXP_")) {
            let name = line["pub const ".len()..]
                .split(':')
                .next()
                .expect("a constant has a type");
            writeln!(definitions, "{line}").expect("a string grows");
            writeln!(main, "    println!(\"constant {name} {{}}\", {name});").expect("a string grows");
        }
        for part in source.split("#[repr(C)]\n").skip(1) {
            let (definition, _) = part.split_once("\n}\n").expect("a struct ends");
            let (_, named) = definition.split_once("pub struct ").expect("a struct has a name");
            let name = named.split_whitespace().next().expect("a struct has a name");
            writeln!(definitions, "#[repr(C)]\n{definition}\n}}").expect("a string grows");
            writeln!(
                main,
                "    println!(\"struct {name} size {{}} align {{}}\", size_of::<{name}>(), align_of::<{name}>());"
            )
            .expect("a string grows");
            for field in definition
                .lines()
                .filter_map(|line| line.strip_prefix("    pub "))
            {
                let (field, ty) = field.split_once(": ").expect("a field has a type");
                let ty = ty.trim_end_matches(',');
                writeln!(
                    main,
                    "    println!(\"field {name}.{field} offset {{}} size {{}}\", \
                     std::mem::offset_of!({name}, {field}), size_of::<{ty}>());"
                )
                .expect("a string grows");
            }
        }
    }
    format!("{definitions}\nfn main() {{\n{main}}}\n")
}

#[test]
fn of_rust_is_the_list() {
    let folder = programs::scratch("abi_rust");
    let (source, program) = (folder.join("abi.rs"), folder.join("abi"));
    std::fs::write(&source, rust_program()).expect("a file in the temporary folder");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .args(["--edition", "2024", "-o"])
        .arg(&program)
        .arg(&source)
        .current_dir(&folder);
    compiler::run(&mut rustc, "compiling the layouts");
    let mut said = measured(&compiler::run(&mut Command::new(program), "printing the layouts"));
    // These are written for C alone, by hand.
    let by_hand = include_str!("header_after_includes.h");
    for line in committed_measures() {
        let name = line.split(' ').nth(1).expect("a line has a name");
        if by_hand.contains(&format!("#define {name} UINT64_MAX")) {
            assert_eq!(line, format!("constant {name} {}", u64::MAX));
            said.push(line);
        }
    }
    assert_measures("Rust", &said);
}

/// A program in C# that prints them, to be compiled with the declarations.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn csharp_program() -> String {
    let mut types = String::new();
    let mut main = String::new();
    for name in constants() {
        writeln!(main, "Line(\"constant {name} \" + NativeMethods.{name});").expect("a string grows");
    }
    for declaration in declarations() {
        let Struct { name, fields } = declaration else {
            continue;
        };
        // What comes behind a byte lies at the alignment.
        writeln!(
            types,
            "[StructLayout(LayoutKind.Sequential)] struct After_{name} {{ public byte First; public {name} Second; }}"
        )
        .expect("a string grows");
        writeln!(
            main,
            "{{ {name} value = default({name}); After_{name} after = default(After_{name});\n\
             Line(\"struct {name} size \" + sizeof({name}) + \" align \" + ((byte*)&after.Second - (byte*)&after));"
        )
        .expect("a string grows");
        for (_, field) in fields {
            writeln!(
                main,
                "Field(\"{name}\", \"{field}\", typeof({name}), (byte*)&value.@{field} - (byte*)&value, \
                 (byte*)(&value.@{field} + 1) - (byte*)&value.@{field});"
            )
            .expect("a string grows");
        }
        main += "}\n";
    }
    format!(
        "using System;\nusing System.Runtime.InteropServices;\nusing Oxpipe;\n{types}\n\
         static unsafe class Abi {{\n\
         static void Line(string line) {{ Console.Write(line + \"\\n\"); }}\n\
         static void Field(string type, string field, Type of, long offset, long size) {{\n\
         long marshalled = (long)Marshal.OffsetOf(of, field);\n\
         if (marshalled != offset) {{ throw new Exception(type + \".\" + field + \" is marshalled at \" + marshalled + \
         \" and lies at \" + offset); }}\n\
         Line(\"field \" + type + \".\" + field + \" offset \" + offset + \" size \" + size);\n}}\n\
         static void Main() {{\n{main}}}\n}}\n"
    )
}

/// On .NET and on Mono, which lay structs out by code of their own.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn of_csharp_is_the_list() {
    let source = programs::scratch("abi_csharp").join("Abi.cs");
    std::fs::write(&source, csharp_program()).expect("a file in the temporary folder");
    for (host, said) in crate::csharp::said_by_declarations("Abi", &source) {
        assert_measures(&format!("C# on {host}"), &measured(&said));
    }
}

/// Why a list does not hold all that an older one does: a line for each thing that is gone or has
/// changed. Constants, functions and types may come; structs that begin with `struct_size` and do not
/// come in arrays may grow at their end.
fn broken(old: &str, new: &str) -> Vec<String> {
    let version = |list: &str| -> Vec<String> {
        let line = list.lines().find_map(|line| line.strip_prefix("version "));
        line.unwrap_or_default()
            .split('.')
            .take(2)
            .map(str::to_owned)
            .collect()
    };
    // Before 1.0 the next minor version may leave out what the last one has deprecated.
    let may_remove = version(old) != version(new);
    let new_lines: BTreeSet<&str> = new.lines().collect();
    let is_deprecated = |name: &str| {
        let owner = name.split('.').next().unwrap_or(name);
        old.lines().any(|line| line == format!("deprecated {owner}"))
    };
    let mut found = Vec::new();
    for line in old.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, name, ..] = words[..] else { continue };
        if ["#", "version", "deprecated"].contains(&kind)
            || new_lines.contains(line)
            || name == "OXP_ABI_VERSION"
        {
            continue;
        }
        let now = new_lines
            .iter()
            .find(|now| now.starts_with(&format!("{kind} {name} ")));
        match now {
            None if may_remove && is_deprecated(name) => {}
            None => found.push(format!("{line}: it is gone")),
            Some(now) if kind == "struct" && grew(&words, now, new) => {}
            Some(now) => found.push(format!("{line}: it is now {now}")),
        }
    }
    found
}

/// Whether a struct's line differs in a larger size alone, and the struct is one that may grow.
fn grew(old: &[&str], now: &str, list: &str) -> bool {
    const FROZEN: [&str; 5] = [
        "oxp_tensor_in",
        "oxp_tensor_out",
        "oxp_named_in",
        "oxp_named_out",
        "oxp_file",
    ];
    let now: Vec<&str> = now.split(' ').collect();
    let ([_, name, _, size, _, align], [_, _, _, new_size, _, new_align]) = (old, &now[..]) else {
        return false;
    };
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    let says_its_size = list.contains(&format!("\nfield {name}.struct_size offset 0 "));
    align == new_align && number(new_size) > number(size) && says_its_size && !FROZEN.contains(name)
}

#[test]
fn may_grow_and_not_shrink() {
    let old = "# made\nversion 0.3.1\nconstant OXP_A 1\nconstant OXP_ABI_VERSION 4\nstruct oxp_event size 8 align 8\n\
               field oxp_event.struct_size offset 0 size 4 uint32_t\nstruct oxp_file size 8 align 8\n\
               function oxp_f void (void)\nfunction oxp_g void (int32_t a)\ndeprecated oxp_g\n";
    assert_eq!(broken(old, old), [""; 0]);
    let more = format!("{old}function oxp_h void (void)\n").replace("OXP_ABI_VERSION 4", "OXP_ABI_VERSION 5");
    assert_eq!(broken(old, &more), [""; 0]);
    let grown = old.replace("oxp_event size 8 align 8", "oxp_event size 16 align 8");
    assert_eq!(broken(old, &grown), [""; 0]);
    for (from, to, said) in [
        (
            "constant OXP_A 1",
            "constant OXP_A 2",
            "constant OXP_A 1: it is now constant OXP_A 2",
        ),
        ("constant OXP_A 1\n", "", "constant OXP_A 1: it is gone"),
        (
            "oxp_file size 8 align 8",
            "oxp_file size 16 align 8",
            "struct oxp_file size 8 align 8: it is now struct oxp_file size 16 align 8",
        ),
        (
            "oxp_event size 8 align 8",
            "oxp_event size 4 align 8",
            "struct oxp_event size 8 align 8: it is now struct oxp_event size 4 align 8",
        ),
        (
            "oxp_f void (void)",
            "oxp_f int32_t (void)",
            "function oxp_f void (void): it is now function oxp_f int32_t (void)",
        ),
        (
            "function oxp_g void (int32_t a)\n",
            "",
            "function oxp_g void (int32_t a): it is gone",
        ),
    ] {
        assert_eq!(broken(old, &old.replace(from, to)), [said]);
    }
    // What was deprecated may go with the next minor version, what was not may not.
    let next = old.replace("0.3.1", "0.4.0");
    let without = |name: &str| {
        next.lines()
            .filter(|line| !line.contains(name))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(broken(old, &without("oxp_g")), [""; 0]);
    assert_eq!(
        broken(old, &without("oxp_f ")),
        ["function oxp_f void (void): it is gone"]
    );
}

/// The list of the last release; nothing where nothing was released.
fn released() -> Option<(String, String)> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .ok()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(said)
    };
    let tag = git(&["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"])?;
    let tag = tag.trim();
    let list = git(&["show", &format!("{tag}:include/oxpipe.abi")])?;
    Some((tag.to_owned(), list))
}

/// Against the last tag. Before there is one the committed list is what must be kept.
#[test]
fn has_all_that_the_last_release_has() {
    let (release, old) = released().unwrap_or_else(|| ("the committed list".into(), committed()));
    let broken = broken(&old, &list());
    assert!(
        broken.is_empty(),
        "programs that were built for {release} would break; docs/abi.md says how to change it: {broken:#?}"
    );
}
