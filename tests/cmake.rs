//! CMake and pkg-config users get a library that links and runs: from the source tree, and
//! from an installed tree that was moved to another place.
//!
//! The library is built by CMake through Cargo, into the folder that these tests are built
//! in, so that nothing is compiled twice.
#![cfg(all(feature = "native", feature = "ort", target_os = "linux"))]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use tempfile::TempDir;

const SOURCE: &str = env!("CARGO_MANIFEST_DIR");

/// What every consumer prints.
fn expected_output() -> String {
    format!("oxpipe {}, ABI 1\n", env!("CARGO_PKG_VERSION"))
}

fn temporary() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn output(command: &mut Command) -> Output {
    match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => panic!(
            "{:?} was not found; scripts/install-tools.sh cc c++ cmake ninja pkg-config installs what this test needs",
            command.get_program()
        ),
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// Runs a command that must succeed; gives its standard output.
fn run(command: &mut Command) -> String {
    let output = output(command);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{stdout}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    stdout
}

fn configure(source: &Path, build: &Path, generator: &str) -> Command {
    let mut command = Command::new("cmake");
    command
        .arg("-S")
        .arg(source)
        .arg("-B")
        .arg(build)
        .args(["-G", generator]);
    command
}

/// Adds what makes the build of oxpipe itself reuse what this test run has compiled.
fn reuse_cargo_build(command: &mut Command) -> &mut Command {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut setting = OsStr::new("-DOXPIPE_CARGO_TARGET_DIR=").to_owned();
    setting.push(target);
    command.arg(setting).arg("-DOXPIPE_OFFLINE=ON")
}

fn build(folder: &Path) {
    run(Command::new("cmake").arg("--build").arg(folder));
}

/// An installed tree, in another place than it was installed to.
struct Installed {
    folder: TempDir,
}

impl Installed {
    fn prefix(&self) -> PathBuf {
        self.folder.path().join("moved")
    }
}

static INSTALLED: LazyLock<Installed> = LazyLock::new(|| {
    let folder = temporary();
    let build_folder = folder.path().join("build");
    let prefix = folder.path().join("prefix");
    run(
        reuse_cargo_build(&mut configure(Path::new(SOURCE), &build_folder, "Unix Makefiles"))
            .arg(format!("-DCMAKE_INSTALL_PREFIX={}", prefix.display()))
            .arg("-DCMAKE_INSTALL_LIBDIR=lib"),
    );
    build(&build_folder);
    run(Command::new("cmake").arg("--install").arg(&build_folder));
    fs::rename(&prefix, folder.path().join("moved")).unwrap();
    fs::remove_dir_all(&build_folder).unwrap();
    Installed { folder }
});

fn files_below(folder: &Path, prefix: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, prefix, found);
        } else {
            found.insert(path.strip_prefix(prefix).unwrap().to_str().unwrap().to_owned());
        }
    }
}

#[test]
fn install_puts_these_files_and_names_no_folder_of_the_build() {
    let prefix = INSTALLED.prefix();
    let mut found = BTreeSet::new();
    files_below(&prefix, &prefix, &mut found);
    let version = env!("CARGO_PKG_VERSION");
    let expected = [
        "include/oxpipe.h".to_owned(),
        "include/oxpipe.hpp".to_owned(),
        "lib/liboxpipe.a".to_owned(),
        "lib/liboxpipe.so".to_owned(),
        "lib/liboxpipe.so.0".to_owned(),
        format!("lib/liboxpipe.so.{version}"),
        "lib/cmake/oxpipe/oxpipeConfig.cmake".to_owned(),
        "lib/cmake/oxpipe/oxpipeConfigVersion.cmake".to_owned(),
        "lib/cmake/oxpipe/oxpipeTargets.cmake".to_owned(),
        "lib/pkgconfig/oxpipe.pc".to_owned(),
        "share/licenses/oxpipe/LICENSE-APACHE".to_owned(),
        "share/licenses/oxpipe/LICENSE-MIT".to_owned(),
    ];
    assert_eq!(found, BTreeSet::from(expected));

    let build_folder = INSTALLED.folder.path().to_str().unwrap();
    for file in found
        .iter()
        .filter(|name| name.ends_with(".cmake") || name.ends_with(".pc"))
    {
        let text = fs::read_to_string(prefix.join(file)).unwrap();
        assert!(
            !text.contains(build_folder) && !text.contains(SOURCE),
            "{file} names a folder of the build:\n{text}"
        );
    }
}

#[test]
fn find_package_gives_shared_and_static_targets() {
    let folder = temporary();
    let source = Path::new(SOURCE).join("tests/cmake/find_package");
    run(configure(&source, folder.path(), "Unix Makefiles")
        .arg(format!("-DCMAKE_PREFIX_PATH={}", INSTALLED.prefix().display()))
        .arg("-DWANTED_VERSION=0.1"));
    build(folder.path());
    for program in ["shared", "static", "cxx", "hpp"] {
        let printed = run(&mut Command::new(folder.path().join(program)));
        assert_eq!(printed, expected_output(), "{program}");
    }
}

#[test]
fn find_package_refuses_another_minor_version() {
    let folder = temporary();
    let source = Path::new(SOURCE).join("tests/cmake/find_package");
    let refused = output(
        configure(&source, folder.path(), "Unix Makefiles")
            .arg(format!("-DCMAKE_PREFIX_PATH={}", INSTALLED.prefix().display()))
            .arg("-DWANTED_VERSION=0.0"),
    );
    assert!(!refused.status.success());
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains(env!("CARGO_PKG_VERSION")), "{message}");
}

#[test]
fn pkg_config_gives_the_flags_of_the_moved_tree() {
    let folder = temporary();
    let prefix = INSTALLED.prefix();
    let flags = run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(["--cflags", "--libs", "oxpipe"]));
    for (compiler, source) in [("cc", "consumer.c"), ("c++", "consumer.cpp")] {
        let program = folder.path().join(source).with_extension(compiler);
        run(Command::new(compiler)
            .arg(Path::new(SOURCE).join("tests/cmake").join(source))
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace()));
        let printed = run(Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")));
        assert_eq!(printed, expected_output(), "{source}");
    }
}

#[test]
fn the_source_tree_works_as_a_subdirectory() {
    for generator in ["Ninja", "Unix Makefiles"] {
        let folder = temporary();
        let source = Path::new(SOURCE).join("tests/cmake/subdirectory");
        run(reuse_cargo_build(&mut configure(
            &source,
            folder.path(),
            generator,
        )));
        build(folder.path());
        for program in ["shared", "static"] {
            let printed = run(&mut Command::new(folder.path().join(program)));
            assert_eq!(printed, expected_output(), "{generator}, {program}");
        }
        // A project that only uses oxpipe does not install it along with itself.
        let prefix = folder.path().join("prefix");
        run(Command::new("cmake")
            .arg("--install")
            .arg(folder.path())
            .arg("--prefix")
            .arg(&prefix));
        assert!(!prefix.join("lib").exists(), "{generator}: oxpipe was installed");
    }
}
