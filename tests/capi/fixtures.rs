//! The packages of the shared fixtures folder give their known answers through the C
//! interface, whichever backend runs which component.
//!
//! The folder is not part of the repository: it lies beside it, or where OXP_FIXTURES says.
//! A test that does not find it fails, and says so; OXP_FIXTURES=none leaves these tests out
//! for who does not have it.

use std::path::{Path, PathBuf};

use crate::compiler::{C, CPP};
use crate::programs::{self, Program};

fn folder() -> Option<PathBuf> {
    let folder = match std::env::var_os("OXP_FIXTURES") {
        Some(value) if value == "none" => {
            println!("OXP_FIXTURES=none: the shared fixtures were NOT run");
            return None;
        }
        Some(value) => PathBuf::from(value),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures"),
    };
    assert!(
        folder.is_dir(),
        "{} is not there; set OXP_FIXTURES to the folder of fixture packages, or to \"none\" to leave them out",
        folder.display()
    );
    Some(folder)
}

/// Every way to give each component one of the backends of this build.
fn assignments(components: &[&str]) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    for component in components {
        all = all
            .iter()
            .flat_map(|chosen: &Vec<String>| {
                programs::backends().into_iter().map(move |backend| {
                    let mut more = chosen.clone();
                    more.push(format!("{component}={backend}"));
                    more
                })
            })
            .collect();
    }
    all
}

struct Case {
    package: &'static str,
    components: &'static [&'static str],
    request: &'static [&'static str],
    prints: &'static str,
}

const IMAGE: &str = "input=vision_encoder.pixel_values:1,3,2,2:0,0.083333333333,0.166666666667,0.25,0.333333333333,\
                     0.416666666667,0.5,0.583333333333,0.666666666667,0.75,0.833333333333,0.916666666667";

const CASES: [Case; 9] = [
    Case {
        package: "tiny-gemma4-vlm",
        components: &["vision_encoder", "embedding", "decoder"],
        request: &[IMAGE, "tokens=3,7", "steps=4"],
        prints: "0 5 6 7\n",
    },
    Case {
        package: "tiny-vlm-multibinding",
        components: &["embedding", "decoder"],
        request: &["tokens=1,4", "steps=4"],
        prints: "0 4 0 4\n",
    },
    Case {
        package: "tiny-llm",
        components: &["model"],
        request: &["tokens=2,4,3", "steps=8"],
        prints: "22 22 20 3 13 29 11 15\n",
    },
    Case {
        package: "tiny-llm",
        components: &["model"],
        request: &["text=hello", "steps=3"],
        prints: "22 22 20\n",
    },
    Case {
        package: "tiny-whisper",
        components: &["encoder", "decoder"],
        request: &["input=encoder.input_features:1,80,8:0.25", "tokens=2", "steps=4"],
        prints: "4 4 4 4\n",
    },
    Case {
        package: "tiny-codec",
        components: &["encoder", "vocoder"],
        request: &[
            "input=encoder.waveform:1,16:0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "step",
            "get=encoder.codes",
            "get=vocoder.audio",
        ],
        prints: "0.5 2.5 4.5 6.5 8.5 10.5 12.5 14.5\n1 1 5 5 9 9 13 13 17 17 21 21 25 25 29 29\n",
    },
    Case {
        package: "tiny-diffusion",
        components: &["denoiser", "vae"],
        request: &[
            "input=denoiser.cond:1,4:1,2,3,4",
            "input=denoiser.sample:1,4:0",
            "loop=3",
            "finish",
            "get=denoiser.denoised",
            "get=denoiser.sample",
            "get=vae.image",
        ],
        prints: "0.875 1.75 2.625 3.5\n0.875 1.75 2.625 3.5\n2.75 4.5 6.25 8\n",
    },
    Case {
        package: "tiny-tts-nested",
        components: &["talker", "code_predictor", "vocoder"],
        request: &[
            "tokens=8",
            "frames=3",
            "finish",
            "get=talker.output_codes",
            "get=vocoder.audio",
        ],
        prints: "1 2 3 4\n2 3 4 5\n3 4 5 6\n1 2 3 4 2 3 4 5 3 4 5 6\n2 4 6 8 4 6 8 10 6 8 10 12\n",
    },
    // A control: the same package with another image gives another first token.
    Case {
        package: "tiny-gemma4-vlm",
        components: &["vision_encoder", "embedding", "decoder"],
        request: &[
            "input=vision_encoder.pixel_values:1,3,2,2:-3",
            "tokens=3,7",
            "steps=1",
        ],
        prints: "ANOTHER",
    },
];

fn run(program: &Program, folder: &Path, case: &Case, backends: &[String], more: &[&str]) -> String {
    let package = folder.join(case.package);
    let mut arguments = vec![programs::path(&package)];
    arguments.extend(more);
    arguments.extend(backends.iter().map(String::as_str));
    arguments.extend(case.request);
    program.run(&arguments)
}

fn holds(case: &Case, said: &str) -> bool {
    match case.prints {
        // The known first token is 0.
        "ANOTHER" => said.trim() != "0" && !said.trim().is_empty(),
        prints => said == prints,
    }
}

#[test]
fn known_answers_on_every_mix_of_backends() {
    let Some(folder) = folder() else { return };
    let program = programs::build("fixture", C);
    for case in &CASES {
        for backends in assignments(case.components) {
            let said = run(&program, &folder, case, &backends, &[]);
            assert!(
                holds(case, &said),
                "{} {backends:?} {:?} gave {said}",
                case.package,
                case.request
            );
        }
    }
}

#[test]
fn known_answers_from_memory_and_from_cpp() {
    let Some(folder) = folder() else { return };
    let program = programs::build("fixture", CPP);
    for case in &CASES {
        let said = run(&program, &folder, case, &[], &["memory"]);
        assert!(holds(case, &said), "{} from memory gave {said}", case.package);
    }
}
