//! The committed declarations of the C# binding are what the sources say, and its managed
//! layer reaches every function.

use std::fs;
use std::path::{Path, PathBuf};

use crate::header;

const NAMESPACE: &str = "Oxpipe";
const CLASS: &str = "NativeMethods";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings/csharp/Oxpipe")
}

fn path() -> PathBuf {
    folder().join("NativeMethods.g.cs")
}

/// Name and value of each constant of the header.
fn constants(header: &str) -> impl Iterator<Item = (&str, &str)> {
    let defined = header.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("#define OXP_")?.split_once(' ')?;
        Some((
            &line["#define ".len()..][..name.len() + "OXP_".len()],
            value.trim(),
        ))
    });
    defined.filter(|(_, value)| *value == "UINT64_MAX" || value.parse::<i64>().is_ok())
}

/// csbindgen reads the plain literals among the constants; the header has the others, negative
/// numbers and the largest one.
fn constants_beyond(source: &str, header: &str) -> String {
    let mut lines = String::new();
    for (name, value) in constants(header) {
        if source.contains(&format!(" {name} = ")) {
            continue;
        }
        let (ty, value) = match value {
            "UINT64_MAX" => ("ulong", "ulong.MaxValue"),
            negative => ("int", negative),
        };
        lines += &format!("        internal const {ty} {name} = {value};\n");
    }
    lines
}

fn generate() -> String {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let file = scratch.path().join("NativeMethods.g.cs");
    let mut builder = csbindgen::Builder::default();
    for source in header::sources() {
        builder = builder.input_extern_file(source);
    }
    builder
        .csharp_namespace(NAMESPACE)
        .csharp_class_name(CLASS)
        .csharp_dll_name("oxpipe")
        // Function pointers and native integers came with C# 9.
        .csharp_use_function_pointer(false)
        .csharp_use_nint_types(false)
        .csharp_generate_const_filter(|name| name.starts_with("OXP_"))
        .csharp_file_header(
            "// Generated from src/capi/ by csbindgen; do not edit. `OXP_UPDATE_CSHARP=1 cargo test --test\n\
             // capi -- csharp_source::` writes it anew, the same without the variable checks it.",
        )
        .generate_csharp_file(&file)
        .expect("csbindgen reads src/capi");
    let source = fs::read_to_string(&file).expect("csbindgen has written UTF-8");
    let more = constants_beyond(&source, &header::text());
    let end = format!(
        "namespace {NAMESPACE}\n{{\n    internal static unsafe partial class {CLASS}\n    {{\n{more}    }}\n}}\n"
    );
    let mut tidy = String::new();
    let mut blank = false;
    for line in source.lines().map(str::trim_end) {
        // The header is the manual: no second copy of every word. And one blank line at a time.
        if line.trim_start().starts_with("///") {
            continue;
        }
        if !(line.is_empty() && blank) {
            tidy += line;
            tidy += "\n";
        }
        blank = line.is_empty();
    }
    format!("{}\n\n{end}", tidy.trim_end())
}

#[test]
fn is_what_the_sources_say() {
    let generated = generate();
    if std::env::var_os("OXP_UPDATE_CSHARP").is_some() {
        fs::write(path(), &generated).expect("NativeMethods.g.cs can be written");
    }
    let committed = fs::read_to_string(path()).expect("NativeMethods.g.cs is committed");
    if generated != committed {
        let line = generated
            .lines()
            .zip(committed.lines())
            .position(|(new, old)| new != old);
        panic!(
            "bindings/csharp/Oxpipe/NativeMethods.g.cs is not what src/capi says (first at line {}); run \
             OXP_UPDATE_CSHARP=1 cargo test --test capi -- csharp_source::",
            line.map_or("?".into(), |line| (line + 1).to_string())
        );
    }
}

/// What the header has, another generator made: the two must agree.
#[test]
fn has_all_that_the_header_has() {
    let source = fs::read_to_string(path()).expect("NativeMethods.g.cs is committed");
    let header = header::text();
    for function in header::functions() {
        let declared = source.matches(&format!(" {function}(")).count();
        assert_eq!(declared, 1, "declarations of {function}");
    }
    let mut count = 0;
    for (name, value) in constants(&header) {
        let value = value.replace("UINT64_MAX", "ulong.MaxValue");
        assert!(
            source.contains(&format!(" {name} = {value};")),
            "{name} is not {value}"
        );
        count += 1;
    }
    assert!(count > 80, "{count}");
    for line in header.lines().filter(|line| line.starts_with("typedef struct ")) {
        let name = line.split(' ').nth(2).expect("a struct has a name");
        assert!(source.contains(&format!(" struct {name}\n")), "{name}");
    }
}

/// CancellationToken takes their place.
const NOT_CALLED: [&str; 2] = ["oxp_cancel_is_requested", "oxp_cancel_reset"];

/// Nothing of the library is out of reach from C#.
#[test]
fn is_called_by_the_managed_layer() {
    let mut layer = String::new();
    for entry in fs::read_dir(folder()).expect("the binding is there") {
        let file = entry.expect("a file of the binding").path();
        let is_source = file.extension().is_some_and(|extension| extension == "cs");
        if is_source && file != path() {
            layer += &fs::read_to_string(file).expect("a source can be read");
        }
    }
    let unreached: Vec<String> = header::functions()
        .into_iter()
        .filter(|function| !NOT_CALLED.contains(&function.as_str()))
        .filter(|function| {
            // Called, or handed to what calls it.
            !layer.contains(&format!("{CLASS}.{function}("))
                && !layer.contains(&format!("{CLASS}.{function})"))
        })
        .collect();
    assert!(
        unreached.is_empty(),
        "the managed layer does not call {unreached:?}"
    );
}

/// The package has the library's version.
#[test]
fn has_the_version_of_the_library() {
    let project = fs::read_to_string(folder().join("Oxpipe.csproj")).expect("the project is committed");
    let version = concat!("<Version>", env!("CARGO_PKG_VERSION"), "</Version>");
    assert!(project.contains(version), "Oxpipe.csproj lacks {version}");
}
