//! The platform's C and C++ compilers, as the `cc` crate finds them.

use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Language {
    C,
    Cpp,
}
pub use Language::{C, Cpp as CPP};

#[derive(Clone, Copy)]
pub struct Standard {
    pub language: Language,
    pub name: &'static str,
}

pub struct Compiler {
    scratch: tempfile::TempDir,
}

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

impl Compiler {
    pub fn new() -> Self {
        Compiler {
            scratch: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    /// A command that compiles `source` in this language, with every warning an error.
    pub fn command(standard: Standard, source: &Path) -> Command {
        let mut build = cc::Build::new();
        build
            .cpp(standard.language == CPP)
            .opt_level(1)
            .debug(true)
            .target(env!("OXP_TARGET"))
            .host(env!("OXP_TARGET"))
            .cargo_metadata(false)
            .include(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
        let mut command = build.get_compiler().to_command();
        command
            .args(WARNINGS)
            .arg(format!("-std={}", standard.name))
            .args(["-x", if standard.language == CPP { "c++" } else { "c" }])
            .arg(source)
            .args(["-x", "none"]);
        command
    }

    /// Compiles without making anything.
    pub fn check_syntax(&self, source: &str, standard: Standard) {
        let file = self.scratch.path().join("check.c");
        std::fs::write(&file, source).expect("a file in the temporary folder");
        let mut command = Self::command(standard, &file);
        run(
            command.arg("-fsyntax-only"),
            &format!("compiling as {}", standard.name),
        );
    }
}

/// Runs a command that must succeed, and shows all it said if it does not.
pub fn run(command: &mut Command, what: &str) -> String {
    // Without the environment, which may be long and is nobody's business.
    let arguments: Vec<_> = command
        .get_args()
        .map(|argument| argument.to_string_lossy())
        .collect();
    let invocation = format!(
        "{} {}",
        command.get_program().to_string_lossy(),
        arguments.join(" ")
    );
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{what}: {invocation}: {error}"));
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success(),
        "{what}: {}\n{invocation}\n{said}",
        output.status
    );
    said
}

/// The shared library that this test was built with.
pub fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("the test's own path");
    let deps = exe.parent().expect("the test lies in a folder");
    let library = deps.join(format!(
        "{}oxpipe{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ));
    assert!(library.is_file(), "{} was not built", library.display());
    library
}
