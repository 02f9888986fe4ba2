//! The programs of examples_c/ and those in README.md compile without a warning, those in C as
//! C99 and as C++, and do what they say on every backend that is built in.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use oxpipe_test_support::onnx_writer::{Model, Node, Tensor};
use tempfile::TempDir;

const SOURCE: &str = env!("CARGO_MANIFEST_DIR");
const MODEL: &str = "models/smollm2-135m-instruct";
const FLOAT: i32 = 1;
const INT64: i32 = 7;

fn backends() -> Vec<&'static str> {
    [
        ("native", cfg!(feature = "native")),
        ("ort", cfg!(feature = "ort")),
    ]
    .into_iter()
    .filter_map(|(name, built_in)| built_in.then_some(name))
    .collect()
}

fn fetched(path: &str, script: &str) -> PathBuf {
    let full = Path::new(SOURCE).join(path);
    assert!(
        full.exists(),
        "{} is missing; run {script} to make it",
        full.display()
    );
    full
}

fn temporary() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs a command that must succeed, with `input` on its standard input; gives its standard
/// output.
fn run_with_input(command: &mut Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("{command:?}: {error}; scripts/install-tools.sh cc c++ installs what this test needs")
        });
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{stdout}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    stdout
}

fn run(command: &mut Command) -> String {
    run_with_input(command, "")
}

/// Compiles a program against the library of this build, as strictly as compilers can.
fn compile(source: &Path, program: &Path) {
    let include = Path::new(SOURCE).join("include");
    let warnings = ["-pedantic", "-Wall", "-Wextra", "-Werror"];
    run(Command::new("c++")
        .args(["-x", "c++", "-std=c++17", "-fsyntax-only"])
        .args(warnings)
        .arg("-I")
        .arg(&include)
        .arg(source));

    run(Command::new("cc")
        .args(["-std=c99", "-O1"])
        .args(warnings)
        .arg("-I")
        .arg(&include)
        .arg(source)
        .arg("-o")
        .arg(program)
        .args(link_flags(program.parent().unwrap())));
}

/// The same for a program in C++.
fn compile_cpp(source: &Path, program: &Path) {
    run(Command::new("c++")
        .args([
            "-std=c++17",
            "-O1",
            "-pedantic",
            "-Wall",
            "-Wextra",
            "-Wconversion",
            "-Wshadow",
        ])
        .arg("-Werror")
        .arg("-I")
        .arg(Path::new(SOURCE).join("include"))
        .arg(source)
        .arg("-o")
        .arg(program)
        .args(link_flags(program.parent().unwrap()))
        .arg("-lpthread"));
}

/// What links a program in this folder with the library of this build, which is put there.
fn link_flags(library_folder: &Path) -> [String; 3] {
    // Cargo puts the library beside the tests, under a name without the version.
    let built = std::env::current_exe().unwrap().with_file_name("liboxpipe.so");
    for name in ["liboxpipe.so", "liboxpipe.so.0"] {
        let link = library_folder.join(name);
        if !link.exists() {
            symlink(&built, link).unwrap();
        }
    }
    [
        format!("-L{}", library_folder.display()),
        "-loxpipe".into(),
        "-Wl,-rpath,$ORIGIN".into(),
    ]
}

/// The example programs, compiled once.
static PROGRAMS: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = temporary();
    for name in ["session", "pipeline", "chat"] {
        let source = Path::new(SOURCE).join(format!("examples_c/{name}.c"));
        compile(&source, &folder.path().join(name));
    }
    let source = Path::new(SOURCE).join("examples_c/chat.cpp");
    compile_cpp(&source, &folder.path().join("chat_cpp"));
    folder
});

/// An example program, ready to find ONNX Runtime and nothing else in the environment.
fn example(name: &str) -> Command {
    prepared(&PROGRAMS.path().join(name))
}

fn prepared(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_remove("OXP_NATIVE_STEP_COMPONENTS")
        .current_dir(SOURCE);
    if cfg!(feature = "ort") {
        let library = fetched(
            "third_party/onnxruntime/libonnxruntime.so",
            "scripts/fetch-onnxruntime.sh",
        );
        command.env("ORT_DYLIB_PATH", library);
    }
    command
}

fn write_floats(path: &Path, values: &[f32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    fs::write(path, bytes).unwrap();
}

#[test]
fn session_runs_a_graph_from_files() {
    let folder = temporary();
    let model = folder.path().join("affine.onnx");
    let graph = Model::new()
        .input("x", FLOAT, "[rows, 3]")
        .output("y", FLOAT, "[rows, 2]")
        .initializer(Tensor::floats("w", &[3, 2], &[1., 0., 0., 1., 10., 100.]))
        .initializer(Tensor::floats("b", &[2], &[0.5, -0.5]))
        .node(Node::new("MatMul", &["x", "w"], &["product"]))
        .node(Node::new("Add", &["product", "b"], &["y"]));
    fs::write(&model, graph.encode()).unwrap();
    let x = folder.path().join("x.bin");
    write_floats(&x, &[1., 2., 3., 4., 5., 6.]);

    for backend in backends() {
        let ports = run(example("session").arg(&model).args(["--backend", backend]));
        assert!(ports.contains("input x: float32 [rows, 3]"), "{ports}");
        assert!(ports.contains("output y: float32 [rows, 2]"), "{ports}");
        assert!(
            ports.contains(&format!("runs on {backend}: asked for")),
            "{ports}"
        );

        for dims in ["", ":2,3"] {
            let printed = run(example("session")
                .arg(&model)
                .args(["--backend", backend])
                .arg(format!("x={}{dims}", x.display())));
            assert!(
                printed.ends_with("y: float32 [2, 2] 31.5 301.5 64.5 604.5\n"),
                "{printed}"
            );
        }
    }
}

/// The size of NonZero's result depends on the values: the program learns it from a run.
#[cfg(feature = "ort")]
#[test]
fn session_finds_room_for_an_output_whose_size_only_a_run_can_tell() {
    let folder = temporary();
    let model = folder.path().join("nonzero.onnx");
    let graph = Model::new()
        .input("x", FLOAT, "[n]")
        .output("places", INT64, "[1, found]")
        .node(Node::new("NonZero", &["x"], &["places"]));
    fs::write(&model, graph.encode()).unwrap();
    let x = folder.path().join("x.bin");
    write_floats(&x, &[0., 7., 0., 0., -1.]);
    let printed = run(example("session")
        .arg(&model)
        .args(["--backend", "ort"])
        .arg(format!("x={}", x.display())));
    assert!(printed.ends_with("places: int64 [1, 2] 1 4\n"), "{printed}");
}

/// A package whose decoder counts: its logits are one-hot at the fed token + 1 (modulo 8),
/// plus what the encoder makes of the request's input, twice its value.
fn write_counting_package(folder: &Path) {
    let one_hot =
        |shift: usize| -> Vec<f32> { (0..64).map(|i| f32::from((i / 8 + shift) % 8 == i % 8)).collect() };
    let encoder = Model::new()
        .input("pixels", FLOAT, "[1, 1, 8]")
        .output("bias", FLOAT, "[1, 1, 8]")
        .node(Node::new("Add", &["pixels", "pixels"], &["bias"]));
    let embedding = Model::new()
        .input("input_ids", INT64, "[1, sequence]")
        .output("inputs_embeds", FLOAT, "[1, sequence, 8]")
        .initializer(Tensor::floats("table", &[8, 8], &one_hot(0)))
        .node(Node::new("Gather", &["table", "input_ids"], &["inputs_embeds"]));
    let decoder = Model::new()
        .input("inputs_embeds", FLOAT, "[1, sequence, 8]")
        .input("bias", FLOAT, "[1, 1, 8]")
        .input("past_key_values.0.key", FLOAT, "[1, 1, past, 8]")
        .output("logits", FLOAT, "[1, sequence, 8]")
        .output("present.0.key", FLOAT, "[1, 1, total, 8]")
        .initializer(Tensor::floats("next", &[8, 8], &one_hot(1)))
        .initializer(Tensor::ints("axis", &[1], &[1]))
        .node(Node::new("MatMul", &["inputs_embeds", "next"], &["counted"]))
        .node(Node::new("Add", &["counted", "bias"], &["logits"]))
        .node(Node::new("Unsqueeze", &["inputs_embeds", "axis"], &["new"]))
        .node(Node::new("Concat", &["past_key_values.0.key", "new"], &["present.0.key"]).int("axis", 2));
    for (name, model) in [
        ("encoder", encoder),
        ("embedding", embedding),
        ("decoder", decoder),
    ] {
        fs::write(folder.join(format!("{name}.onnx")), model.encode()).unwrap();
    }
    let metadata = "\
pipeline:
  models:
    encoder: {filename: encoder.onnx, type: vision_encoder}
    embedding:
      filename: embedding.onnx
      type: embedding
      io: {token_input: input_ids}
    decoder:
      filename: decoder.onnx
      type: decoder
      io:
        sequence_source: inputs_embeds
        inputs_embeds_input: inputs_embeds
        logits_output: logits
        kv_inputs: [past_key_values.0.key]
        kv_outputs: [present.0.key]
  dataflow:
    - {from: encoder.bias, to: decoder.bias}
    - {from: embedding.inputs_embeds, to: decoder.inputs_embeds}
  phases:
    encoder: {run_on: prompt_only}
    embedding: {run_on: every_step}
    decoder: {run_on: every_step}
  strategy: {kind: autoregressive, decoder: decoder, max_tokens: 4}
";
    fs::write(folder.join("inference_metadata.yaml"), metadata).unwrap();
}

/// The ids in lines such as `step 1: token 5 "" logprob -0.1, ...`.
fn printed_tokens(output: &str) -> Vec<i32> {
    output
        .lines()
        .filter_map(|line| line.split_once(": token ")?.1.split(' ').next()?.parse().ok())
        .collect()
}

#[test]
fn pipeline_mixes_backends_and_feeds_files() {
    let package = temporary();
    write_counting_package(package.path());
    let pixels = package.path().join("pixels.bin");
    for encoder in backends() {
        for decoder in backends() {
            let mut tokens = Vec::new();
            for bright in [None, Some(3)] {
                let mut values = [0.; 8];
                if let Some(index) = bright {
                    values[index] = 1.;
                }
                write_floats(&pixels, &values);
                let printed = run(example("pipeline")
                    .arg(package.path())
                    .args(["--backend", encoder, "--backend", &format!("decoder={decoder}")])
                    .args(["--tokens", "2,5", "--print", "encoder.bias", "--max-tokens", "3"])
                    .arg(format!("encoder.pixels={}", pixels.display())));
                assert!(printed.contains(&format!("decoder (decoder) runs every step on {decoder}: ")));
                assert!(printed.contains(&format!(
                    "encoder (vision_encoder) runs once a prompt on {encoder}: "
                )));
                if bright.is_some() {
                    let bias = "encoder.bias: float32 [1, 1, 8] 0 0 0 2 0 0 0 0\n";
                    assert!(printed.ends_with(bias), "{printed}");
                }
                tokens.push(printed_tokens(&printed));
            }
            assert_eq!(
                tokens,
                [[6, 7, 0], [3, 3, 3]],
                "encoder on {encoder}, decoder on {decoder}"
            );
        }
    }
}

#[test]
fn chat_answers_alike_on_every_mix_of_backends() {
    fetched(MODEL, "scripts/fetch-model.sh");
    let folder = temporary();
    let ids = folder.path().join("ids");
    for embedding in backends() {
        for decoder in backends() {
            for program in ["chat", "chat_cpp"] {
                let answer = run(example(program)
                    .arg(MODEL)
                    .args(["--backend", &format!("embedding={embedding}")])
                    .args(["--backend", &format!("decoder={decoder}")])
                    .arg("--ids")
                    .arg(&ids)
                    .arg("What is the capital of France?"));
                let mix = format!("{program}: embedding on {embedding}, decoder on {decoder}");
                assert_eq!(answer, "The capital of France is Paris.\n", "{mix}");
                assert_eq!(
                    fs::read_to_string(&ids).unwrap(),
                    "504 3575 282 4649 314 7042 30 2\n",
                    "{mix}"
                );
                fs::remove_file(&ids).unwrap();
            }
        }
    }
}

/// The second question only makes sense to who remembers the first.
#[test]
fn chat_goes_on_over_several_lines_of_input() {
    fetched(MODEL, "scripts/fetch-model.sh");
    let backend = backends().pop().unwrap();
    for program in ["chat", "chat_cpp"] {
        let answers = run_with_input(
            example(program).arg(MODEL).args(["--backend", backend]),
            "What is the capital of France?\nAnd of Italy?\n",
        );
        assert_eq!(
            answers, "The capital of France is Paris.\nThe capital of Italy is Rome.\n",
            "{program}"
        );
    }
}

/// A shell lets what it starts in the background ignore the signal; this does not.
fn heeding(mut command: Command) -> Command {
    let heed = || {
        // SAFETY: no handler is passed, and `signal` may be called between fork and exec.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the function allocates nothing and takes no lock.
    unsafe { command.pre_exec(heed) };
    command
}

/// Ctrl-C ends an answer and not the conversation; while there is no answer it ends the program.
#[test]
fn chat_is_stopped_by_ctrl_c() {
    for (program, when_idle) in [("chat", None), ("chat_cpp", Some(130))] {
        is_stopped_by_ctrl_c(program, when_idle);
    }
}

/// `when_idle` is the program's exit code if it is not answering, none if the signal ends it.
fn is_stopped_by_ctrl_c(program: &str, when_idle: Option<i32>) {
    fetched(MODEL, "scripts/fetch-model.sh");
    let backend = backends().pop().unwrap();
    let mut child = heeding(example(program))
        .arg(MODEL)
        .args(["--backend", backend, "--max-tokens", "2000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let interrupt = |child: &std::process::Child| {
        run(Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]));
    };
    let mut stdin = child.stdin.take().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    stdin
        .write_all(b"Count from one to one thousand, in words.\n")
        .unwrap();
    // The first word of the answer is there: it is being made.
    let mut answer = vec![0];
    said.read_exact(&mut answer).unwrap();
    interrupt(&child);
    said.read_until(b'\n', &mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.ends_with(" [stopped]\n"), "{answer}");

    stdin.write_all(b"What is the capital of France?\n").unwrap();
    let mut second = String::new();
    said.read_line(&mut second).unwrap();
    assert!(
        !second.trim().is_empty() && !second.contains("[stopped]"),
        "{second}"
    );
    drop(stdin);
    assert!(child.wait().unwrap().success());

    let mut idle = heeding(example(program))
        .arg(MODEL)
        .args(["--backend", backend])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It asks: nothing is being made.
    let mut prompt = [0; 2];
    idle.stderr.as_mut().unwrap().read_exact(&mut prompt).unwrap();
    interrupt(&idle);
    assert_eq!(idle.wait().unwrap().code(), when_idle, "{program}");
}

#[test]
fn examples_say_what_went_wrong() {
    for name in ["session", "pipeline", "chat", "chat_cpp"] {
        let output = example(name).arg("no/such/place").output().unwrap();
        assert!(!output.status.success(), "{name}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            message.starts_with("OXP_ERR_IO: ") && message.contains("no/such/place"),
            "{name}: {message}"
        );
    }
}

/// The first block of this language in README.md.
fn readme_block(language: &str) -> String {
    let readme = fs::read_to_string(Path::new(SOURCE).join("README.md")).unwrap();
    let (_, rest) = readme
        .split_once(&format!("```{language}\n"))
        .unwrap_or_else(|| panic!("README.md has no ```{language} block"));
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_program_in_the_readme_works_as_printed() {
    fetched(MODEL, "scripts/fetch-model.sh");
    let program = readme_block("c");
    assert!(
        program.lines().count() <= 24,
        "the README promises a short program"
    );
    let folder = temporary();
    let source = folder.path().join("capital.c");
    fs::write(&source, program).unwrap();
    let binary = folder.path().join("capital");
    compile(&source, &binary);
    let printed = run(&mut prepared(&binary));
    assert_eq!(printed.trim_end(), "The capital of France is Paris.");
}

#[test]
fn the_cpp_program_in_the_readme_works_as_printed() {
    fetched(MODEL, "scripts/fetch-model.sh");
    let folder = temporary();
    let source = folder.path().join("capital.cpp");
    fs::write(&source, readme_block("cpp")).unwrap();
    let binary = folder.path().join("capital");
    compile_cpp(&source, &binary);
    let printed = run(&mut prepared(&binary));
    assert_eq!(printed, "The capital of France is Paris.\n");
}
