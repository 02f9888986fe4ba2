//! bindings/csharp/: its sources compile as the oldest C# that they are for, without a warning;
//! its tests pass on .NET Core and on Mono; its examples do what they say.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use crate::compiler;
use crate::programs::{self, path};

/// What scripts/fetch-dotnet.sh makes.
fn dotnet(inside: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("third_party/dotnet")
        .join(inside);
    assert!(
        path.exists(),
        "{} is not there; run scripts/install-tools.sh mono npm python, then scripts/fetch-dotnet.sh",
        path.display()
    );
    path
}

/// The sources in a folder of the binding.
fn sources(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("bindings/csharp")
        .join(folder);
    let mut found: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("a folder of the binding")
        .map(|entry| entry.expect("a file of the binding").path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "cs"))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "{} has no sources", folder.display());
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Host {
    CoreClr,
    Mono,
}
use Host::{CoreClr, Mono};

impl Host {
    fn name(self) -> &'static str {
        match self {
            CoreClr => "dotnet",
            Mono => "mono",
        }
    }

    /// The assemblies of the runtime, which are compiled against.
    fn references(self) -> Vec<PathBuf> {
        let mono = || {
            ["mscorlib", "System", "System.Core"]
                .map(|name| PathBuf::from(format!("/usr/lib/mono/4.5/{name}.dll")))
                .into()
        };
        let core = || {
            let frameworks = dotnet("runtime/shared/Microsoft.NETCore.App");
            let mut versions = fs::read_dir(frameworks).expect("a folder of frameworks");
            let framework = versions.next().expect("a framework").expect("a folder").path();
            fs::read_dir(framework)
                .expect("a folder of assemblies")
                .map(|entry| entry.expect("an assembly").path())
                .filter(|file| {
                    let name = file
                        .file_name()
                        .expect("a file has a name")
                        .to_string_lossy()
                        .into_owned();
                    let managed = ["System.", "Microsoft.", "mscorlib.", "netstandard."];
                    name.ends_with(".dll")
                        && !name.contains("Native")
                        && managed.iter().any(|start| name.starts_with(start))
                })
                .collect()
        };
        match self {
            CoreClr => core(),
            Mono => mono(),
        }
    }

    fn extension(self) -> &'static str {
        match self {
            CoreClr => "dll",
            Mono => "exe",
        }
    }

    /// Compiles to `output`, every warning an error.
    fn compile(self, output: &Path, flags: &[&str], references: &[&Path], sources: &[PathBuf]) {
        let mut command = Command::new(dotnet("runtime/dotnet"));
        command
            .arg(dotnet("compiler/Compile.dll"))
            .env("LD_LIBRARY_PATH", dotnet("openssl"))
            .args(["-nologo", "-nostdlib", "-warn:4", "-warnaserror+"])
            .args(flags)
            .arg(format!("-out:{}", output.display()));
        let own = self.references();
        for reference in own.iter().map(PathBuf::as_path).chain(references.iter().copied()) {
            command.arg(format!("-r:{}", reference.display()));
        }
        command.args(sources);
        compiler::run(
            &mut command,
            &format!("compiling {} for {}", output.display(), self.name()),
        );
        fs::copy(
            dotnet("compiler/Compile.runtimeconfig.json"),
            output.with_extension("runtimeconfig.json"),
        )
        .expect("a file is copied");
    }

    /// The binding, and a program that uses it, in a folder of the program's.
    fn build(self, name: &str, program_sources: &[PathBuf]) -> Program {
        let scratch = programs::scratch(&format!("csharp_{}_{name}", self.name()));
        let library = scratch.join("Oxpipe.dll");
        // The oldest C# that has what the sources need, with the comments looked at.
        let flags = [
            "-langversion:7.3",
            "-unsafe",
            "-target:library",
            "-nowarn:1591",
            "-doc:Oxpipe.xml",
        ];
        self.compile(&library, &flags, &[], &sources("Oxpipe"));
        let program = scratch.join(name).with_extension(self.extension());
        self.compile(&program, &["-langversion:10"], &[&library], program_sources);
        Program { host: self, program }
    }
}

/// What a program says that is compiled with the generated declarations alone, on each runtime.
pub fn said_by_declarations(name: &str, source: &Path) -> Vec<(&'static str, String)> {
    let declarations =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings/csharp/Oxpipe/NativeMethods.g.cs");
    let both = [declarations, source.to_owned()];
    let said = [CoreClr, Mono].map(|host| {
        let program = programs::scratch(&format!("csharp_{}_{name}", host.name()))
            .join(name)
            .with_extension(host.extension());
        // Fields of structs that nobody sets.
        host.compile(
            &program,
            &["-langversion:10", "-unsafe", "-nowarn:0649"],
            &[],
            &both,
        );
        (host.name(), Program { host, program }.run(&[]))
    });
    said.into()
}

struct Program {
    host: Host,
    program: PathBuf,
}

impl Program {
    /// A command that runs the program in an environment of its own.
    fn command(&self) -> Command {
        let mut command = match self.host {
            CoreClr => Command::new(dotnet("runtime/dotnet")),
            Mono => Command::new("mono"),
        };
        command
            .arg(&self.program)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder())
            .env("LD_LIBRARY_PATH", programs::library_folder())
            .current_dir(self.folder());
        if cfg!(feature = "ort") {
            command.env("ORT_DYLIB_PATH", programs::onnx_runtime());
        }
        command
    }

    fn folder(&self) -> &Path {
        self.program.parent().expect("a program lies in a folder")
    }

    fn run(&self, arguments: &[&str]) -> String {
        let mut command = self.command();
        command
            .args(arguments)
            // What stays resident then tells what was not freed, not how many heaps it is spread over.
            .env("MALLOC_ARENA_MAX", "1");
        compiler::run(
            &mut command,
            &format!("running {} {arguments:?}", self.program.display()),
        )
    }
}

static CORE_TESTS: LazyLock<Program> = LazyLock::new(|| CoreClr.build("Tests", &sources("tests")));
static MONO_TESTS: LazyLock<Program> = LazyLock::new(|| Mono.build("Tests", &sources("tests")));

/// Runs tests of bindings/csharp/tests/ on both runtimes and every backend.
fn check(name: &str, arguments: &[&str]) {
    for program in [&CORE_TESTS, &MONO_TESTS] {
        for backend in programs::backends() {
            check_on(program, backend, name, arguments);
        }
    }
}

fn check_on(program: &Program, backend: &str, name: &str, arguments: &[&str]) {
    let said = program.run(&[&[name, backend], arguments].concat());
    assert_eq!(
        said,
        format!("{name}: 0 failures\n"),
        "on {}, {backend}",
        program.host.name()
    );
}

#[test]
fn session() {
    check("session", &[path(programs::model_folder())]);
}

#[test]
fn pipeline() {
    check("pipeline", &[path(programs::package_folder())]);
}

#[test]
fn run() {
    check("run", &[path(programs::package_folder())]);
}

#[test]
fn media() {
    check(
        "media",
        &[
            path(programs::media_package_folder()),
            path(programs::iterative_package_folder()),
        ],
    );
}

#[test]
fn streams() {
    check(
        "streams",
        &[
            path(programs::package_folder()),
            path(programs::slow_package_folder()),
        ],
    );
}

#[test]
fn embeddings() {
    check("embeddings", &[path(programs::text_packages_folder())]);
}

#[test]
fn text() {
    check("text", &[path(programs::package_folder())]);
}

/// Sixteen threads make runs and drop them, with a collection in every callback: 10,000 runs,
/// and 4,000 on each other runtime and backend.
#[test]
fn lifetimes() {
    for program in [&CORE_TESTS, &MONO_TESTS] {
        for (at, backend) in programs::backends().into_iter().enumerate() {
            let most = at == 0 && program.host == CoreClr;
            check_on(
                program,
                backend,
                "lifetimes",
                &[
                    path(programs::model_folder()),
                    path(programs::package_folder()),
                    if most { "10000" } else { "4000" },
                ],
            );
        }
    }
}

/// Mono's own compiler takes the sources, too.
#[test]
fn sources_compile_with_mcs() {
    let scratch = programs::scratch("csharp_mcs");
    let mut command = Command::new("mcs");
    command
        .args([
            "-langversion:latest",
            "-unsafe",
            "-target:library",
            // Fields that native code sets.
            "-nowarn:0649",
            "-warnaserror+",
        ])
        .arg(format!("-out:{}", scratch.join("Oxpipe.dll").display()))
        .args(sources("Oxpipe"));
    compiler::run(&mut command, "compiling with mcs");
}

/// The sources of an example, with what the examples share.
fn example_sources(name: &str) -> Vec<PathBuf> {
    [sources(&format!("examples/{name}")), sources("examples/Shared")].concat()
}

/// What the example says whose name in C is `name`; compiled once.
pub fn said_by_example(name: &str, arguments: &[&str]) -> String {
    type Once = Arc<OnceLock<Program>>;
    static BUILT: LazyLock<Mutex<HashMap<String, Once>>> = LazyLock::new(Mutex::default);
    // image_question is ImageQuestion.
    let name: String = name
        .split('_')
        .flat_map(|word| {
            word[..1]
                .to_uppercase()
                .chars()
                .chain(word[1..].chars())
                .collect::<Vec<_>>()
        })
        .collect();
    let once = BUILT
        .lock()
        .expect("no test panics in here")
        .entry(name.clone())
        .or_default()
        .clone();
    once.get_or_init(|| CoreClr.build(&name, &example_sources(&name)))
        .run(arguments)
}

static CHAT: LazyLock<Program> = LazyLock::new(|| CoreClr.build("Chat", &example_sources("Chat")));

fn chat_with_input(arguments: &[&str], input: &str) -> String {
    let mut command = CHAT.command();
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("Chat starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("Chat reads");
    drop(stdin);
    let output = child.wait_with_output().expect("Chat ends");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}\n{complained}");
    said.into_owned()
}

/// The program in C, too, gives these answers and tokens.
#[test]
fn example_chat_says_what_the_one_in_c_says() {
    let package = path(&programs::chat_package_folders()[0]);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples_c/chat.c");
    let in_c = programs::build_from("chat", &source, compiler::C);
    let ids = programs::scratch("csharp_ids").join("ids");
    for backend in programs::backends() {
        let arguments = [
            package,
            "--backend",
            backend,
            "--max-tokens",
            "4",
            "--ids",
            path(&ids),
            "two one",
        ];
        let said = CHAT.run(&arguments);
        let tokens = fs::read_to_string(&ids).expect("Chat has written the ids");
        assert_eq!(tokens, "2 3 4 5\n");
        assert_eq!(said, in_c.run(&arguments));
        assert_eq!(
            tokens,
            fs::read_to_string(&ids).expect("chat has written the ids")
        );
    }
    // A conversation: the second prompt holds the first and its answer.
    let said = chat_with_input(&[package], "three\n\ntwo\n");
    assert_eq!(said, "four five\nthree four five\n");
    let mut command = CHAT.command();
    let failed = command.arg("no-such-package").output().expect("Chat starts");
    assert!(!failed.status.success());
    let complained = String::from_utf8_lossy(&failed.stderr);
    assert!(
        complained.starts_with("Io: ") && complained.contains("no-such-package"),
        "{complained}"
    );
}

/// An answer without an end ends with Ctrl-C, and the conversation goes on.
#[test]
fn example_chat_is_interrupted() {
    let package = path(&programs::chat_package_folders()[1]);
    let mut command = CHAT.command();
    // A shell lets what it starts in the background ignore the signal, and .NET leaves it so.
    let heed = || {
        // SAFETY: no handler is passed, and `signal` may be called between fork and exec.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the function allocates nothing and takes no lock.
    unsafe { command.pre_exec(heed) };
    let mut child = command
        .args([package, "--max-tokens", "1000000000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("Chat starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    for _ in 0..2 {
        stdin.write_all(b"zero\n").expect("Chat reads");
        let mut first = [0; 4];
        stdout.read_exact(&mut first).expect("an answer");
        let interrupt = format!("-INT {}", child.id());
        compiler::run(
            Command::new("kill").args(interrupt.split(' ')),
            "interrupting Chat",
        );
        let mut rest = String::new();
        stdout.read_line(&mut rest).expect("the answer's end");
        assert!(rest.ends_with(" [stopped]\n"), "{rest}");
    }
    drop(stdin);
    assert!(child.wait().expect("Chat ends").success());
}

/// SmolLM2, on the fastest backend that there is.
#[test]
fn example_chat_asks_a_real_model() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/smollm2-135m-instruct");
    assert!(
        model.is_dir(),
        "{} is not there; run scripts/fetch-model.sh",
        model.display()
    );
    let backend = *programs::backends().last().expect("a backend is built in");
    let said = CHAT.run(&[
        path(&model),
        "--backend",
        backend,
        "What is the capital of France?",
    ]);
    assert_eq!(said, "The capital of France is Paris.\n");
}

/// The first program of the manual.
#[test]
fn program_of_the_manual() {
    let manual = include_str!("../../docs/first-program.md");
    let (_, rest) = manual.split_once("```csharp\n").expect("the page has a program");
    let (source, _) = rest.split_once("```").expect("the program ends");
    let file = programs::scratch("csharp_manual").join("First.cs");
    fs::write(&file, source).expect("a file can be written");
    let program = CoreClr.build("First", &[file]);
    let said = program.run(&[path(&programs::chat_package_folders()[0]), "two"]);
    assert_eq!(said, "three four five\n");
}

/// The program of the binding's README.md, on the model that it names.
#[test]
fn readme_program_chat_with_a_real_model() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("bindings/csharp/README.md")).expect("README.md is there");
    let (_, rest) = readme.split_once("```csharp\n").expect("README.md has a program");
    let (source, _) = rest.split_once("```").expect("the program ends");
    let file = programs::scratch("csharp_readme").join("FirstProgram.cs");
    fs::write(&file, source).expect("a file can be written");
    let program = CoreClr.build("FirstProgram", &[file]);
    let said = compiler::run(program.command().current_dir(root), "running README.md's program");
    assert_eq!(said, "The capital of France is Paris.\n");
}
