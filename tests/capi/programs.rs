//! Programs in capi_tests/: compiled as C11 and as C++17, linked with the shared library as
//! a user would, and run as processes.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use crate::compiler::{self, C, CPP, Compiler, Language, Standard};
use crate::models;

/// The backends of this build, as options call them.
pub fn backends() -> Vec<&'static str> {
    let mut found = Vec::new();
    if cfg!(feature = "native") {
        found.push("native");
    }
    if cfg!(feature = "ort") {
        found.push("ort");
    }
    found
}

/// ONNX Runtime, as scripts/fetch-onnxruntime.sh leaves it.
pub fn onnx_runtime() -> PathBuf {
    let name = if cfg!(target_os = "macos") {
        "libonnxruntime.dylib"
    } else {
        "libonnxruntime.so"
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("third_party/onnxruntime")
        .join(name);
    assert!(
        path.is_file(),
        "{} is not there; run scripts/fetch-onnxruntime.sh",
        path.display()
    );
    path
}

/// An empty folder of that name, among what the tests are built into.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("an old folder can be removed");
    }
    fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

/// A folder that a program is linked against: the library under the two names that an
/// installation gives it.
pub fn library_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = scratch("library");
        let library = compiler::library();
        let names: &[&str] = match std::env::consts::OS {
            "macos" => &["liboxpipe.dylib", "liboxpipe.0.dylib"],
            _ => &["liboxpipe.so", "liboxpipe.so.0"],
        };
        for name in names {
            std::os::unix::fs::symlink(&library, folder.join(name)).expect("a link to the library");
        }
        folder
    });
    &FOLDER
}

/// The models of [`models::write_models`], made once.
pub fn model_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = scratch("models");
        models::write_models(&folder);
        folder
    });
    &FOLDER
}

/// The package of [`models::write_package`], made once.
pub fn package_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = scratch("package");
        models::write_package(&folder);
        folder
    });
    &FOLDER
}

/// The packages of [`models::write_text_packages`], made once.
pub fn text_packages_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = scratch("text_packages");
        models::write_text_packages(&folder);
        folder
    });
    &FOLDER
}

/// The package of [`models::write_slow_package`], made once.
pub fn slow_package_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = scratch("slow_package");
        models::write_slow_package(&folder);
        folder
    });
    &FOLDER
}

pub fn iterative_package_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = scratch("iterative_package");
        models::write_iterative_package(&folder);
        folder
    });
    &FOLDER
}

pub fn guided_package_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = scratch("guided_package");
        models::write_guided_package(&folder);
        folder
    });
    &FOLDER
}

/// The packages of [`models::write_chat_package`], made once: one that ends, one that does not.
pub fn chat_package_folders() -> &'static [PathBuf; 2] {
    static FOLDERS: LazyLock<[PathBuf; 2]> = LazyLock::new(|| {
        [("chat_package", 8), ("endless_package", 6)].map(|(name, modulus)| {
            let folder = scratch(name);
            models::write_chat_package(&folder, modulus);
            folder
        })
    });
    &FOLDERS
}

/// The package of [`models::write_media_package`], made once.
pub fn media_package_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = scratch("media_package");
        models::write_media_package(&folder);
        folder
    });
    &FOLDER
}

/// A compiled program.
pub struct Program {
    pub name: String,
    exe: PathBuf,
    scratch: PathBuf,
}

/// Compiles capi_tests/`name`.c, once for each language.
pub fn build(name: &str, language: Language) -> Program {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("capi_tests/{name}.c"));
    build_from(name, &source, language)
}

/// As [`build`], without linking the library: the program opens it itself.
pub fn build_unlinked(name: &str, language: Language) -> Program {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("capi_tests/{name}.c"));
    compile(name, &source, standard(language), &[], &[])
}

/// Compiles a source file and links the library, once for each name and language.
pub fn build_from(name: &str, source: &Path, language: Language) -> Program {
    build_with(name, source, standard(language), &[])
}

/// As [`build_from`], in one version of the language and with more compiler flags: once for
/// each name, version and flags.
pub fn build_with(name: &str, source: &Path, standard: Standard, flags: &[&str]) -> Program {
    let libraries = path(library_folder());
    let rpath = format!("-Wl,-rpath,{libraries}");
    compile(
        name,
        source,
        standard,
        flags,
        &["-L", libraries, &rpath, "-loxpipe"],
    )
}

fn standard(language: Language) -> Standard {
    let name = match language {
        C => "c11",
        CPP => "c++17",
    };
    Standard { language, name }
}

fn compile(name: &str, source: &Path, standard: Standard, flags: &[&str], link: &[&str]) -> Program {
    type Once = Arc<OnceLock<()>>;
    static BUILT: LazyLock<(PathBuf, Mutex<HashMap<String, Once>>)> =
        LazyLock::new(|| (scratch("programs"), Mutex::default()));
    let program = format!("{name}-{}{}", standard.name, flags.concat().replace('/', "_"));
    let scratch = BUILT.0.clone();
    let exe = scratch.join(&program);
    let once = BUILT
        .1
        .lock()
        .expect("no test panics in here")
        .entry(program.clone())
        .or_default()
        .clone();
    once.get_or_init(|| {
        let mut command = Compiler::command(standard, source);
        command
            .arg("-I")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("capi_tests"))
            .arg("-o")
            .arg(&exe)
            .args(flags)
            .args(sanitizer_flags())
            .args(link)
            .args(["-lpthread", "-ldl", "-lm"]);
        compiler::run(&mut command, &format!("compiling {program}"));
    });
    Program {
        name: program,
        exe,
        scratch,
    }
}

/// How scripts/sanitizers.sh has the programs checked: compiled with sanitizers, or run under valgrind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checker {
    Sanitizers,
    Valgrind,
}

fn checker() -> Option<Checker> {
    match std::env::var("OXP_CHECK_PROGRAMS").ok()?.as_str() {
        "sanitizers" => Some(Checker::Sanitizers),
        "valgrind" => Some(Checker::Valgrind),
        other => panic!("OXP_CHECK_PROGRAMS is \"sanitizers\" or \"valgrind\", not \"{other}\""),
    }
}

fn sanitizer_flags() -> &'static [&'static str] {
    match checker() {
        Some(Checker::Sanitizers) => &[
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
            "-fno-omit-frame-pointer",
        ],
        _ => &[],
    }
}

impl Program {
    /// A command that runs the program in an environment of its own: only what it is given.
    pub fn command(&self) -> Command {
        if checker() == Some(Checker::Valgrind) {
            return self.under_valgrind();
        }
        let mut command = Command::new(&self.exe);
        command.env_clear().current_dir(&self.scratch);
        if checker() == Some(Checker::Sanitizers) {
            // As by an allocator without a sanitizer.
            command.env("ASAN_OPTIONS", "allocator_may_return_null=1");
        }
        command
    }

    /// The same under valgrind, which must find nothing.
    pub fn under_valgrind(&self) -> Command {
        let mut command = Command::new("valgrind");
        command
            .args(["-q", "--error-exitcode=99", "--leak-check=full"])
            .args([
                "--errors-for-leak-kinds=definite,indirect",
                "--show-leak-kinds=definite,indirect",
            ])
            .arg(concat!(
                "--suppressions=",
                env!("CARGO_MANIFEST_DIR"),
                "/capi_tests/valgrind.supp"
            ))
            .arg(&self.exe)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(&self.scratch);
        command
    }

    /// Runs to success and gives what it printed.
    pub fn run(&self, arguments: &[&str]) -> String {
        let mut command = self.command();
        command.args(arguments);
        if cfg!(feature = "ort") {
            command.env("ORT_DYLIB_PATH", onnx_runtime());
        }
        let said = compiler::run(&mut command, &format!("running {} {arguments:?}", self.name));
        let lines = said.split_inclusive('\n');
        lines.filter(|line| !is_refusal_by_sanitizer(line)).collect()
    }
}

/// Whether a line is what AddressSanitizer prints where it answers as an allocator without memory does, or the
/// empty line behind that. (What it reports otherwise ends the program.)
fn is_refusal_by_sanitizer(line: &str) -> bool {
    let refusal = line.starts_with("==") && line.contains("WARNING: AddressSanitizer failed to allocate");
    checker() == Some(Checker::Sanitizers) && (refusal || line.trim().is_empty())
}

/// Runs a program in both languages; once for each backend if `arguments` has a "BACKEND".
fn check(name: &str, arguments: &[&str]) {
    for language in [C, CPP] {
        let program = build(name, language);
        for backend in backends() {
            let arguments: Vec<&str> = arguments
                .iter()
                .map(|&argument| if argument == "BACKEND" { backend } else { argument })
                .collect();
            let said = program.run(&arguments);
            // The library itself prints nothing; the program ends with its own line.
            assert!(said.ends_with(" 0 failures\n"), "{name}: {said}");
            assert_eq!(said.lines().count(), 1, "{name}: {said}");
        }
    }
}

pub fn path(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

#[test]
fn basics() {
    let flag = |built_in: bool| if built_in { "1" } else { "0" };
    check(
        "basics",
        &[flag(cfg!(feature = "native")), flag(cfg!(feature = "ort"))],
    );
}

#[test]
fn options() {
    check("options", &[]);
}

#[test]
fn session() {
    check("session", &[path(model_folder()), "BACKEND"]);
}

#[test]
fn tensors() {
    check("tensors", &[path(model_folder()), "BACKEND"]);
}

#[test]
fn dtypes() {
    check("dtypes", &[path(model_folder()), "BACKEND"]);
}

#[test]
fn models_that_are_none() {
    check("models", &[path(model_folder()), "BACKEND"]);
}

#[test]
fn failures() {
    check("failures", &[path(model_folder()), "BACKEND"]);
}

#[test]
fn pipeline() {
    check("pipeline", &[path(package_folder()), "BACKEND"]);
}

#[test]
fn run() {
    check("run", &[path(package_folder()), "BACKEND"]);
}

#[test]
fn stops() {
    check("stops", &[path(package_folder()), "BACKEND"]);
}

#[test]
fn constraints() {
    check("constraints", &[path(package_folder()), "BACKEND"]);
}

#[test]
fn iterative() {
    check(
        "iterative",
        &[
            path(iterative_package_folder()),
            path(guided_package_folder()),
            "BACKEND",
        ],
    );
}

#[test]
fn media() {
    check(
        "media",
        &[
            path(media_package_folder()),
            path(iterative_package_folder()),
            "BACKEND",
        ],
    );
}

#[test]
fn texts() {
    check(
        "texts",
        &[path(text_packages_folder()), path(package_folder()), "BACKEND"],
    );
}

#[test]
fn text() {
    check("text", &[path(package_folder()), "BACKEND"]);
}

#[test]
fn panic() {
    check(
        "panic",
        &[path(model_folder()), path(package_folder()), "BACKEND"],
    );
}

#[test]
fn deadlines() {
    check(
        "deadlines",
        &[path(package_folder()), path(slow_package_folder()), "BACKEND"],
    );
}

#[test]
fn lifetimes() {
    check(
        "lifetimes",
        &[path(model_folder()), path(package_folder()), "BACKEND"],
    );
}
