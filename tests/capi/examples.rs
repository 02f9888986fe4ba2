//! The examples that are there in C, C++ and C#: in each language, on each backend, they say the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compiler::{self, C, CPP};
use crate::example_packages::{self, logits_after};
use crate::programs::{self, path};

/// A package in a folder of its own.
fn package(name: &str, write: fn(&Path)) -> PathBuf {
    let folder = programs::scratch(&format!("example_{name}"));
    write(&folder);
    folder
}

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples_c")
        .join(file)
}

/// What the example says in each language, with the same arguments.
fn said_by(name: &str, arguments: &[&str]) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    for (language, which, extension) in [("C", C, "c"), ("C++", CPP, "cpp")] {
        let program = programs::build_from(
            &format!("example_{name}_{extension}"),
            &source(&format!("{name}.{extension}")),
            which,
        );
        said.push((language, program.run(arguments)));
    }
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    said.push(("C#", crate::csharp::said_by_example(name, arguments)));
    said
}

#[track_caller]
fn assert_says(name: &str, arguments: &[&str], expected: &str) {
    for (language, said) in said_by(name, arguments) {
        assert_eq!(said, expected, "{name} in {language}, {arguments:?}");
    }
}

/// A BMP of 2 by 2 pixels of one grey.
fn grey_picture(file: &Path, grey: u8) {
    let mut bytes = Vec::from(*b"BM");
    // The file's size, two numbers that say nothing, where the pixels begin; the size of what follows,
    // width, height; planes and bits; no compression, the pixels' bytes, and four more.
    for number in [70u32, 0, 54, 40, 2, 2, 1 | 24 << 16, 0, 16, 0, 0, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    // A row is filled up to four bytes.
    bytes.extend([[grey; 6].as_slice(), &[0; 2], &[grey; 6], &[0; 2]].concat());
    fs::write(file, bytes).expect("a file can be written");
}

/// A WAV of 16-bit samples at 8 kHz.
fn sound(file: &Path, samples: &[i16]) {
    let size = 2 * samples.len() as u32;
    let mut bytes = Vec::from(*b"RIFF");
    bytes.extend((36 + size).to_le_bytes());
    bytes.extend(*b"WAVEfmt ");
    // Its size, one channel of plain samples, the rate, bytes a second, bytes and bits a sample.
    for number in [16u32, 1 | 1 << 16, 8000, 16000, 2 | 16 << 16] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(*b"data");
    bytes.extend(size.to_le_bytes());
    bytes.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    fs::write(file, bytes).expect("a file can be written");
}

#[test]
fn image_question() {
    let package = package("image", example_packages::write_image_package);
    let picture = package.join("picture.bmp");
    // 8 / 4 = 2: every other word, up to the end.
    grey_picture(&picture, 8);
    for backend in programs::backends() {
        let arguments = [path(&package), path(&picture), "one", "--backend", backend];
        assert_says("image_question", &arguments, "three five\n");
    }
}

#[test]
fn transcribe() {
    let package = package("sound", example_packages::write_sound_package);
    let wave = package.join("sound.wav");
    // 8 * 3/8 = 3.
    sound(&wave, &[0, -20000, 3 << 12, 100]);
    for backend in programs::backends() {
        let arguments = [
            path(&package),
            path(&wave),
            "--prompt",
            "one",
            "--backend",
            backend,
        ];
        assert_says("transcribe", &arguments, "four\n");
    }
}

#[test]
fn diffusion() {
    let package = package("picture", example_packages::write_picture_package);
    let out = package.join("picture.ppm");
    let mut expected = b"P6\n2 2\n255\n".to_vec();
    for pixel in 0..4 {
        expected.extend((0..3).map(
            |channel| match example_packages::PATTERN[channel * 4 + pixel] > 0.0 {
                true => 255,
                false => 0u8,
            },
        ));
    }
    for backend in programs::backends() {
        for (set, steps) in [("seed=7", 5), ("num_steps=3", 3)] {
            let arguments = [
                path(&package),
                "one two",
                path(&out),
                "--set",
                set,
                "--backend",
                backend,
            ];
            for (language, said) in said_by("diffusion", &arguments) {
                assert_eq!(
                    said,
                    format!("vae.image after {steps} steps: 2 x 2\n"),
                    "{language}"
                );
                assert_eq!(fs::read(&out).expect("a picture"), expected, "{language}");
            }
        }
    }
}

#[test]
fn embeddings() {
    let package = package("embedding", example_packages::write_embedding_package);
    for backend in programs::backends() {
        let arguments = [
            path(&package),
            "one two",
            "two one",
            "two three",
            "four",
            "--backend",
            backend,
        ];
        assert_says(
            "embeddings",
            &arguments,
            "1.0000 two one\n0.5000 two three\n0.0000 four\n",
        );
    }
}

const WORDS: [&str; 6] = ["zero", "one", "two", "three", "four", "five"];

#[test]
fn host_loop() {
    let package = package("host_loop", example_packages::write_words_package);
    let all = "5 (0.5 ahead of 6) \"five\"\n6 (0.5 ahead of 7) \"\"\n7 (0.5 ahead of 0) \"\"\n\
               3 tokens, the text has ended\n";
    let some =
        "2 (0.5 ahead of 3) \"two\"\n4 (-0.5 ahead of 3) \" four\"\n2 tokens, as many as were asked for\n";
    for backend in programs::backends() {
        assert_says("host_loop", &[path(&package), "four", "--backend", backend], all);
        let arguments = ["one", "--avoid", "3", "--max-tokens", "2", "--backend", backend];
        assert_says("host_loop", &[&[path(&package)], &arguments[..]].concat(), some);
    }
}

/// What the rule of the examples chooses after `token`, by itself: one of the `most` likeliest, by
/// SplitMix64.
fn sampled(mut token: usize, seed: u64, temperature: f64, most: usize, count: usize) -> String {
    let mut state = seed;
    let mut text: Vec<&str> = Vec::new();
    for _ in 0..count {
        let logits = logits_after(token);
        let mut tokens: Vec<usize> = (0..8).collect();
        tokens.sort_by(|&left, &right| logits[right].total_cmp(&logits[left]));
        tokens.truncate(most);
        let weights: Vec<f64> = tokens
            .iter()
            .map(|&token| (f64::from(logits[token]) / temperature).exp())
            .collect();
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 * weights.iter().sum::<f64>();
        let mut below = 0.0;
        let place = weights.iter().position(|weight| {
            below += weight;
            drawn < below
        });
        token = tokens[place.expect("less than all weights is drawn")];
        text.extend(WORDS.get(token));
        if token == 7 {
            break;
        }
    }
    format!("{}\n", text.join(" "))
}

#[test]
fn sampler() {
    let package = package("sampler", example_packages::write_words_package);
    let mut all = Vec::new();
    for (seed, temperature, most) in [(1, "1", 3), (2, "1", 3), (1, "5", 8), (99, "0.5", 2)] {
        let expected = sampled(0, seed, temperature.parse().expect("a number"), most, 9);
        let (seed, most) = (seed.to_string(), most.to_string());
        for backend in programs::backends() {
            let arguments = [
                path(&package),
                "zero",
                "--seed",
                &seed,
                "--temperature",
                temperature,
                "--top-k",
                &most,
                "--max-tokens",
                "9",
                "--backend",
                backend,
            ];
            assert_says("sampler", &arguments, &expected);
        }
        all.push(expected);
    }
    assert_ne!(all[0], all[1], "the seed says which");
}

#[cfg(all(feature = "native", feature = "ort"))]
#[test]
fn backends() {
    let package = package("backends", example_packages::write_words_package);
    for (embedding, decoder) in [("native", "ort"), ("ort", "native")] {
        let on = |backend| match backend {
            "ort" => "ONNX Runtime",
            native => native,
        };
        let choices = [format!("embedding={embedding}"), format!("decoder={decoder}")];
        let arguments = [
            path(&package),
            "three",
            "--backend",
            &choices[0],
            "--backend",
            &choices[1],
        ];
        for (language, said) in said_by("backends", &arguments) {
            let lines: Vec<&str> = said.lines().collect();
            assert_eq!(lines.len(), 3, "{language}: {said}");
            for (component, backend) in [("embedding", embedding), ("decoder", decoder)] {
                let start = format!("{component} on {}: ", on(backend));
                assert!(
                    lines.iter().any(|line| line.starts_with(&start)),
                    "{language}: {said}"
                );
            }
            assert_eq!(lines[2], "four five", "{language}");
        }
    }
}

/// A bar while components are loaded, for who sees it; who does not gets none of it.
#[test]
fn loading_is_shown_on_a_terminal() {
    let package = package("bar", example_packages::write_words_package);
    let program = programs::build_from("example_host_loop_c", &source("host_loop.c"), C);
    let mut plain = program.command();
    plain.args([path(&package), "four", "--backend", programs::backends()[0]]);
    if cfg!(feature = "ort") {
        plain.env("ORT_DYLIB_PATH", programs::onnx_runtime());
    }
    let quiet = compiler::run(&mut plain, "running host_loop");
    assert!(!quiet.contains('\u{1b}'), "{quiet}");

    let words: Vec<&str> = [plain.get_program()]
        .into_iter()
        .chain(plain.get_args())
        .map(|word| word.to_str().expect("plain names"))
        .collect();
    // `script` runs a command with a terminal.
    let mut seen = Command::new("script");
    seen.args(["-qec", &words.join(" "), "/dev/null"]);
    for (name, value) in plain.get_envs() {
        seen.env(name, value.expect("a variable that is set"));
    }
    let said = compiler::run(&mut seen, "running host_loop on a terminal");
    assert!(
        said.contains("[          ") && said.contains("] 0/2 "),
        "{said:?}"
    );
    assert!(said.contains("[##########          ] 1/2 "), "{said:?}");
}

/// Failures are told, and the program ends with 1.
#[test]
fn failures_are_told() {
    for name in [
        "image_question",
        "transcribe",
        "diffusion",
        "embeddings",
        "host_loop",
        "sampler",
        "backends",
    ] {
        let in_c = programs::build_from(&format!("example_{name}_c"), &source(&format!("{name}.c")), C);
        let in_cpp = programs::build_from(
            &format!("example_{name}_cpp"),
            &source(&format!("{name}.cpp")),
            CPP,
        );
        let words = match name {
            "transcribe" | "host_loop" | "sampler" | "backends" => 2,
            _ => 3,
        };
        for program in [in_c, in_cpp] {
            let usage = program.command().output().expect("the program starts");
            assert_eq!(usage.status.code(), Some(1), "{}", program.name);
            let said = String::from_utf8_lossy(&usage.stderr).into_owned();
            assert!(said.starts_with("usage: "), "{}: {said}", program.name);
            let absent = program
                .command()
                .args(&["no-such-package"; 3][..words])
                .output()
                .expect("the program starts");
            let said = String::from_utf8_lossy(&absent.stderr).into_owned();
            assert_eq!(absent.status.code(), Some(1), "{}: {said}", program.name);
            assert!(
                said.starts_with("OXP_ERR_IO: ") && said.contains("no-such-package"),
                "{}: {said}",
                program.name
            );
        }
    }
}
