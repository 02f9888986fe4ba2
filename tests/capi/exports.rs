//! What the library exports: the functions of the header, and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{compiler, header};

/// Names that the library defines for others.
fn exported(library: &Path) -> Vec<String> {
    let said = compiler::run(
        Command::new("nm").args(["-D", "--defined-only"]).arg(library),
        "listing symbols",
    );
    let mut names: Vec<String> = said
        .lines()
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// The library as it ships: built like a user would, beside what this test was built into.
#[cfg(all(feature = "native", feature = "ort"))]
fn release_library() -> PathBuf {
    let folder = compiler::library();
    let target = folder.ancestors().nth(3).expect("the target folder");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--release", "--lib", "--locked", "--features", "reserve"])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target);
    compiler::run(&mut cargo, "building the release library");
    target
        .join("release")
        .join(folder.file_name().expect("the library's name"))
}

#[cfg(target_os = "linux")]
#[test]
fn are_the_functions_of_the_header() {
    let functions = header::functions();
    assert!(
        functions.len() > 60,
        "the header declares {} functions",
        functions.len()
    );
    assert_eq!(exported(&compiler::library()), functions);
}

#[cfg(all(target_os = "linux", feature = "native", feature = "ort"))]
#[test]
fn of_the_release_library_are_the_functions_of_the_header() {
    let library = release_library();
    assert_eq!(exported(&library), header::functions());

    let said = compiler::run(
        Command::new("readelf").arg("-d").arg(&library),
        "reading the dynamic section",
    );
    assert!(said.contains("Library soname: [liboxpipe.so.0]"), "{said}");
    assert!(said.contains("NODELETE"), "{said}");

    // The hooks of these tests are in the library that they run, and not in the other.
    let holds_hook = |library: &Path| {
        let bytes = std::fs::read(library).expect("the library can be read");
        let hook = b"a panic that a test asked for";
        bytes.windows(hook.len()).any(|window| window == hook)
    };
    assert!(holds_hook(&compiler::library()));
    assert!(!holds_hook(&library));
}

/// What it loads, is the C library's: of a system with glibc, any with 2.28 or later, if it is built
/// there. Built on a later system it asks for later versions, of functions that 2.28 has, too.
#[cfg(all(target_os = "linux", target_env = "gnu", feature = "native", feature = "ort"))]
#[test]
fn of_the_release_library_need_no_more_than_the_c_library_of_2018() {
    let library = release_library();
    let dynamic = compiler::run(
        Command::new("readelf").arg("-d").arg(&library),
        "reading the dynamic section",
    );
    let needed: Vec<&str> = dynamic
        .lines()
        .filter_map(|line| {
            line.split_once("(NEEDED)")?
                .1
                .split_once('[')?
                .1
                .strip_suffix(']')
        })
        .collect();
    assert!(!needed.is_empty(), "{dynamic}");
    for name in needed {
        // Before 2.34, the last two are parts of the C library with names of their own.
        let allowed = [
            "libc.so",
            "libm.so",
            "libgcc_s.so",
            "ld-linux",
            "libpthread.so",
            "libdl.so",
        ];
        assert!(
            allowed.iter().any(|start| name.starts_with(start)),
            "it needs {name}"
        );
    }

    let system = ["libc.so.6", "libm.so.6"].map(|name| {
        let said = compiler::run(
            Command::new("cc").arg(format!("-print-file-name={name}")),
            "finding the C library",
        );
        versions(Path::new(said.trim()), "").collect::<Vec<_>>()
    });
    let has = |name: &str| {
        let all = system.iter().flatten();
        all.clone().any(|(other, version)| other == name && *version <= GLIBC)
            // Until 2.33 these were functions of the program's own that called __xstat and its kin.
            || ["stat64", "fstat64", "lstat64", "stat", "fstat", "lstat"].contains(&name)
    };
    let mut count = 0;
    for (name, version) in versions(&library, "*UND*") {
        count += 1;
        assert!(
            version <= GLIBC || has(&name),
            "{name} came with glibc {version:?}"
        );
    }
    assert!(count > 100, "{count}");
}

/// What docs/shipping.md promises.
#[cfg(all(target_os = "linux", target_env = "gnu", feature = "native", feature = "ort"))]
const GLIBC: [u32; 2] = [2, 28];

/// The symbols of glibc in a file and their versions; those that it needs, or that it has. Symbols that
/// may be absent are left out.
#[cfg(all(target_os = "linux", target_env = "gnu", feature = "native", feature = "ort"))]
fn versions(library: &Path, section: &str) -> impl Iterator<Item = (String, [u32; 2])> {
    let said = compiler::run(Command::new("objdump").arg("-T").arg(library), "listing versions");
    let lines: Vec<String> = said
        .lines()
        .filter(|line| line.contains(section) && !line.contains("  w  "))
        .map(str::to_owned)
        .collect();
    lines.into_iter().filter_map(|line| {
        let (_, rest) = line.split_once("GLIBC_")?;
        let (version, name) = rest.split_once(|c: char| c == ')' || c.is_whitespace())?;
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        Some((name.trim().to_owned(), [parts.next()?, parts.next()?]))
    })
}

/// docs/shipping.md says how large the library is at most, and why.
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    feature = "native",
    feature = "ort"
))]
#[test]
fn of_the_release_library_fit_into_the_size_that_is_stated() {
    let stripped = crate::programs::scratch("stripped").join("liboxpipe.so");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&stripped).arg(release_library());
    compiler::run(&mut strip, "stripping the release library");
    let size = std::fs::metadata(&stripped).expect("a stripped library").len();
    let text = include_str!("../../docs/shipping.md");
    let (_, rest) = text.split_once("at most ").expect("the size is stated");
    let (limit, _) = rest.split_once(" MB").expect("the size is stated in MB");
    let limit = limit.parse::<u64>().expect("a number") * 1_000_000;
    assert!(
        size <= limit,
        "liboxpipe.so has {size} bytes stripped, docs/shipping.md says {limit}"
    );
    assert!(
        size > limit / 2,
        "docs/shipping.md says {limit}, liboxpipe.so has {size} bytes"
    );
}

/// Each function is called by a program that was written by hand, beside the generated ones.
#[test]
fn are_all_called_by_the_programs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("capi_tests");
    let mut sources = String::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("capi_tests is there")
        .map(|entry| entry.expect("a file of capi_tests").path())
        .collect();
    files.sort();
    for file in files {
        let is_program = file.extension().is_some_and(|extension| extension == "c");
        if is_program {
            sources +=
                &header::without_comments(&std::fs::read_to_string(file).expect("a program can be read"));
        }
    }
    let uncalled: Vec<String> = header::functions()
        .into_iter()
        .filter(|function| !sources.contains(&format!("{function}(")))
        .collect();
    assert!(uncalled.is_empty(), "no program in capi_tests calls {uncalled:?}");
}
