//! CMake and pkg-config users get a library that links and runs: from the source tree, and
//! from an installed tree that was moved to another place. The recipes for package managers
//! say what these files say.
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

use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
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
            "{:?} was not found; scripts/install-tools.sh cc c++ cmake ninja pkg-config mono python installs what this test needs",
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
        "lib/cmake/oxpipe/oxpipeNames.cmake".to_owned(),
        "lib/cmake/oxpipe/oxpipeTargets.cmake".to_owned(),
        "lib/pkgconfig/oxpipe.pc".to_owned(),
        "share/licenses/oxpipe/LICENSE-APACHE".to_owned(),
        "share/licenses/oxpipe/LICENSE-MIT".to_owned(),
    ];
    let csharp: BTreeSet<String> = fs::read_dir(Path::new(SOURCE).join("bindings/csharp/Oxpipe"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".cs"))
        .map(|name| format!("share/oxpipe/csharp/{name}"))
        .collect();
    assert!(csharp.len() > 10, "{csharp:?}");
    assert_eq!(found, &BTreeSet::from(expected) | &csharp);

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

/// What configuring a project that asks for these components says.
fn with_components(prefix: &Path, components: &str) -> Result<String, String> {
    let folder = temporary();
    let source = Path::new(SOURCE).join("tests/cmake/components");
    let output = output(
        configure(&source, folder.path(), "Unix Makefiles")
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
            .arg(format!("-DWANTED_COMPONENTS={components}")),
    );
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

#[test]
fn find_package_gives_the_components_that_are_asked_for() {
    let both = INSTALLED.prefix();
    for (asked, shared, static_) in [
        ("", true, true),
        ("shared", true, false),
        ("static", false, true),
        ("shared;static", true, true),
    ] {
        let said = with_components(&both, asked).unwrap();
        assert_eq!(said.contains("has oxpipe::oxpipe\n"), shared, "{asked}: {said}");
        assert_eq!(
            said.contains("has oxpipe::oxpipe_static\n"),
            static_,
            "{asked}: {said}"
        );
    }
    // An installation of the shared library alone.
    let folder = temporary();
    let one = folder.path().join("one");
    run(Command::new("cp").arg("-a").arg(&both).arg(&one));
    fs::remove_file(one.join("lib/liboxpipe.a")).unwrap();
    let said = with_components(&one, "").unwrap();
    assert!(
        said.contains("has oxpipe::oxpipe\n") && !said.contains("oxpipe_static"),
        "{said}"
    );
    for lacking in ["static", "shared;static", "fast"] {
        let refused = with_components(&one, lacking).unwrap_err();
        let name = lacking.rsplit(';').next().unwrap();
        assert!(refused.contains(&format!("no component \"{name}\"")), "{refused}");
    }
}

/// The folder of the program holds all that it loads: it runs when the rest is gone.
#[test]
fn copy_runtime_makes_a_folder_that_can_be_shipped() {
    let folder = temporary();
    let source = Path::new(SOURCE).join("tests/cmake/copy_runtime");
    let library = folder.path().join("libonnxruntime.so");
    fs::write(&library, "stands for ONNX Runtime").unwrap();
    let build_folder = folder.path().join("build");
    let configured = |onnx_runtime: &Path| {
        output(
            configure(&source, &build_folder, "Unix Makefiles")
                .arg(format!("-DCMAKE_PREFIX_PATH={}", INSTALLED.prefix().display()))
                .arg(format!("-DONNXRUNTIME={}", onnx_runtime.display())),
        )
    };
    let refused = configured(&folder.path().join("absent.so"));
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && message.contains("absent.so"),
        "{message}"
    );
    // By its file, and by its folder.
    for given in [library.as_path(), folder.path()] {
        assert!(configured(given).status.success(), "{}", given.display());
        build(&build_folder);
        let shipped = folder.path().join("shipped");
        fs::rename(build_folder.join("app"), &shipped).unwrap();
        let mut found = BTreeSet::new();
        files_below(&shipped, &shipped, &mut found);
        assert_eq!(
            found,
            BTreeSet::from(["app", "liboxpipe.so.0", "libonnxruntime.so"].map(str::to_owned))
        );
        let loaded = run(Command::new("ldd")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .arg(shipped.join("app")));
        assert!(loaded.contains("liboxpipe.so.0 => "), "{loaded}");
        assert_eq!(
            run(Command::new(shipped.join("app")).env_clear()),
            expected_output()
        );
        fs::remove_dir_all(&shipped).unwrap();
        fs::remove_dir_all(&build_folder).unwrap();
    }
}

/// What pkg-config says of the installed tree.
fn pkg_config(prefix: &Path, arguments: &[&str]) -> String {
    run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(arguments)
        .arg("oxpipe"))
}

#[test]
fn pkg_config_gives_the_flags_of_a_static_link() {
    let folder = temporary();
    let prefix = INSTALLED.prefix();
    let flags = pkg_config(&prefix, &["--static", "--cflags", "--libs"]);
    assert!(flags.contains("-lpthread"), "{flags}");
    let program = folder.path().join("static");
    run(Command::new("cc")
        .arg(Path::new(SOURCE).join("tests/cmake/consumer.c"))
        .arg("-o")
        .arg(&program)
        // The linker takes a shared library of that name, if it is told nothing else.
        .args(flags.replace("-loxpipe", "-l:liboxpipe.a").split_whitespace()));
    assert_eq!(run(Command::new(&program).env_clear()), expected_output());
}

#[test]
fn pkg_config_gives_the_flags_of_the_moved_tree() {
    let folder = temporary();
    let prefix = INSTALLED.prefix();
    let flags = pkg_config(&prefix, &["--cflags", "--libs"]);
    assert!(!flags.contains("-lpthread"), "{flags}");
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

#[test]
fn fetch_content_takes_a_folder() {
    let folder = temporary();
    let source = Path::new(SOURCE).join("tests/cmake/fetch_content");
    run(
        reuse_cargo_build(&mut configure(&source, folder.path(), "Unix Makefiles"))
            .arg(format!("-DOXPIPE_FROM={SOURCE}"))
            .arg("-DFETCHCONTENT_FULLY_DISCONNECTED=ON"),
    );
    build(folder.path());
    for program in ["shared", "static"] {
        let printed = run(&mut Command::new(folder.path().join(program)));
        assert_eq!(printed, expected_output(), "{program}");
    }
}

/// An archive of what a package of the crate holds is enough to configure from; building it
/// would compile the library once more.
#[test]
fn fetch_content_takes_an_archive() {
    let folder = temporary();
    let archive = folder.path().join("oxpipe.tar.gz");
    run(Command::new("tar")
        .arg("-C")
        .arg(SOURCE)
        .arg("-czf")
        .arg(&archive)
        .args([
            "--exclude=bindings/csharp/*/obj",
            "--exclude=bindings/csharp/*/bin",
        ])
        .args([
            "CMakeLists.txt",
            "Cargo.toml",
            "Cargo.lock",
            "build.rs",
            "cmake",
            "include",
            "src",
        ])
        .args(["bindings", "LICENSE-MIT", "LICENSE-APACHE"]));
    let source = Path::new(SOURCE).join("tests/cmake/fetch_content");
    let build_folder = folder.path().join("build");
    run(reuse_cargo_build(&mut configure(&source, &build_folder, "Ninja"))
        .arg(format!("-DOXPIPE_ARCHIVE=file://{}", archive.display())));
}

#[test]
fn presets_configure() {
    let listed = run(Command::new("cmake").current_dir(SOURCE).arg("--list-presets"));
    for name in ["default", "offline", "native", "ort", "static"] {
        assert!(listed.contains(&format!("\"{name}\"")), "{listed}");
        let folder = temporary();
        let mut command = Command::new("cmake");
        command.current_dir(SOURCE).args(["--preset", name]);
        run(reuse_cargo_build(&mut command).arg("-B").arg(folder.path()));
        let cache = fs::read_to_string(folder.path().join("CMakeCache.txt")).unwrap();
        assert_eq!(
            cache.contains("OXPIPE_ORT:BOOL=OFF") || cache.contains("OXPIPE_ORT:UNINITIALIZED=OFF"),
            name == "native",
            "{name}"
        );
    }
}

/// A package whose decoder counts: each token is followed by the next, four times.
fn write_counting_package(folder: &Path) {
    let next: Vec<f32> = (0..64).map(|i| f32::from((i / 8 + 1) % 8 == i % 8)).collect();
    let decoder = Model::new()
        .input("input_ids", INT64, "[1, sequence]")
        .output("logits", FLOAT, "[1, sequence, 8]")
        .initializer(Tensor::floats("next", &[8, 8], &next))
        .node(Node::new("Gather", &["next", "input_ids"], &["logits"]));
    let metadata = "\
pipeline:
  models:
    decoder: {filename: decoder.onnx, type: decoder, io: {token_input: input_ids, logits_output: logits}}
  phases: {decoder: {run_on: every_step}}
  strategy: {kind: autoregressive, decoder: decoder, max_tokens: 4}
";
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("decoder.onnx"), decoder.encode()).unwrap();
    fs::write(folder.join("inference_metadata.yaml"), metadata).unwrap();
}

/// A command in an environment that knows nothing but where the system's tools are.
fn bare(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", folder)
        .current_dir(folder);
    command
}

/// In a folder far from the sources, with nothing but the installed tree and the program: CMake,
/// pkg-config and C# build programs that print the same tokens.
#[test]
fn the_installed_tree_is_all_that_programs_need() {
    let home = TempDir::new().unwrap();
    let home = home.path();
    let prefix = home.join("oxpipe");
    run(Command::new("cp").arg("-a").arg(INSTALLED.prefix()).arg(&prefix));
    write_counting_package(&home.join("package"));
    let project = home.join("project");
    run(Command::new("cp")
        .arg("-r")
        .arg(Path::new(SOURCE).join("tests/cmake/tokens"))
        .arg(&project));

    let mut programs = Vec::new();
    let built = home.join("build");
    run(bare("cmake", home)
        .args(["-S", "project", "-B", "build", "-G", "Unix Makefiles"])
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
    run(bare("cmake", home).args(["--build", "build"]));
    for name in ["tokens_c", "tokens_cpp"] {
        programs.push(bare(built.join(name), home));
    }

    let flags = run(bare("pkg-config", home)
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(["--cflags", "--libs", "oxpipe"]));
    run(bare("cc", home)
        .args(["project/tokens.c", "-o", "tokens"])
        .args(flags.split_whitespace())
        .arg("-Wl,-rpath,$ORIGIN/oxpipe/lib"));
    programs.push(bare(home.join("tokens"), home));

    let sources = fs::read_dir(prefix.join("share/oxpipe/csharp")).unwrap();
    run(bare("mcs", home)
        .args([
            "-langversion:latest",
            "-unsafe",
            "-nowarn:0649",
            "-out:Tokens.exe",
            "project/Tokens.cs",
        ])
        .args(sources.map(|entry| entry.unwrap().path())));
    let mut csharp = bare("mono", home);
    csharp
        .arg("Tokens.exe")
        .env("LD_LIBRARY_PATH", prefix.join("lib"));
    programs.push(csharp);

    for mut program in programs {
        assert_eq!(run(program.arg("package")), "3\n4\n5\n6\n", "{program:?}");
    }
    // Nothing of them looks into the source tree for the library.
    for name in ["build/tokens_c", "build/tokens_cpp", "tokens"] {
        let dynamic = run(bare("readelf", home).arg("-d").arg(home.join(name)));
        assert!(!dynamic.contains(SOURCE), "{name}: {dynamic}");
    }
}

/// vcpkg's port and Conan's recipe have the version, and know the options, of the CMake files.
#[test]
fn recipes_of_package_managers_are_what_the_cmake_files_say() {
    let packaging = Path::new(SOURCE).join("packaging");
    let read = |path: &str| fs::read_to_string(packaging.join(path)).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let manifest: serde_json::Value = serde_json::from_str(&read("vcpkg/ports/oxpipe/vcpkg.json")).unwrap();
    assert_eq!(manifest["version"], version);
    for file in ["config.yml", "all/conandata.yml"] {
        let text = read(&format!("conan/recipes/oxpipe/{file}"));
        assert!(text.contains(&format!("\"{version}\":")), "{text}");
    }
    let lists = fs::read_to_string(Path::new(SOURCE).join("CMakeLists.txt")).unwrap();
    let targets = fs::read_to_string(Path::new(SOURCE).join("cmake/oxpipeTargets.cmake")).unwrap();
    for file in [
        "vcpkg/ports/oxpipe/portfile.cmake",
        "conan/recipes/oxpipe/all/conanfile.py",
    ] {
        let text = read(file);
        let words = text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
        let options: BTreeSet<&str> = words
            .filter(|word| word.starts_with("OXPIPE_") && *word != "OXPIPE_SOURCE")
            .collect();
        assert!(options.len() >= 4, "{options:?}");
        for option in options {
            assert!(lists.contains(&format!("option({option} ")), "{file}: {option}");
        }
    }
    // The libraries of a static link, as CMake's target has them.
    for (system, file) in [
        (
            "set(system kernel32 ntdll userenv ws2_32 dbghelp bcrypt advapi32)",
            "\"kernel32\", \"ntdll\", \"userenv\", \"ws2_32\", \"dbghelp\", \"bcrypt\", \"advapi32\"",
        ),
        (
            "set(system gcc_s util rt Threads::Threads m ${CMAKE_DL_LIBS})",
            "\"gcc_s\", \"util\", \"rt\", \"pthread\", \"m\", \"dl\"",
        ),
    ] {
        assert!(targets.contains(system), "{system}");
        assert!(
            read("conan/recipes/oxpipe/all/conanfile.py").contains(file),
            "{file}"
        );
    }
    for file in ["all/conanfile.py", "all/test_package/conanfile.py"] {
        let path = packaging.join("conan/recipes/oxpipe").join(file);
        run(Command::new("python3")
            .arg("-c")
            .arg("import ast, sys; ast.parse(open(sys.argv[1]).read())")
            .arg(path));
    }
}
