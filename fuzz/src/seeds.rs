//! The inputs that fuzzing begins with, made by code.

use std::path::{Path, PathBuf};

use crate::bases::{self, Base};
use crate::{package, saved_state};

/// Those of a target.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    let packages = |names: &[&str]| names.iter().map(|name| documents(bases::of(name))).collect();
    match target {
        "calls" => vec![vec![0x80; 64], (0..=255).collect(), (128..=255).rev().collect()],
        "graph" => graphs(),
        "saved_state" => saved_state::seeds(),
        "package_own" => packages(package::OWN),
        "package_genai" => packages(package::GENAI),
        "package_hugging_face" => packages(package::HUGGING_FACE),
        "text" => texts(),
        "image" => images(&tests().join("native_images")),
        "audio" => sounds(&tests().join("media/audio.json")),
        other => panic!("there is no target {other}"),
    }
}

fn tests() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let below = here.join("tests");
    // Of the library's manifest, or of the fuzz targets'.
    if below.is_dir() {
        below
    } else {
        here.join("../tests")
    }
}

/// Models as they are, and what others are made of.
fn graphs() -> Vec<Vec<u8>> {
    let mut graphs: Vec<Vec<u8>> = Vec::new();
    for base in bases::BASES.iter() {
        let models = base.files.iter().filter(|(name, _)| name.ends_with(".onnx"));
        graphs.extend(models.map(|(_, model)| [&[0], &model[..]].concat()));
    }
    // Steps of a byte that meet every number.
    graphs.extend((1..=16u8).map(|step| {
        (0..200u8)
            .map(|at| 1 + at.wrapping_mul(2 * step + 1) % 255)
            .collect()
    }));
    graphs
}

/// The files of a package that people write.
fn documents(base: &Base) -> Vec<u8> {
    let mut seed = format!("{}\n", base.name).into_bytes();
    for (name, bytes) in &base.files {
        if !name.ends_with(".onnx") {
            seed.extend(format!("=== {name}\n").bytes());
            seed.extend(bytes);
            if bytes.last() != Some(&b'\n') {
                seed.push(b'\n');
            }
        }
    }
    seed
}

fn texts() -> Vec<Vec<u8>> {
    let phases = bases::of("phases");
    let file = |name: &str| String::from_utf8_lossy(&phases.files[name]).into_owned();
    let tokenizers = ["tokenizer.json", "bytes_tokenizer.json"].map(|name| {
        let config = file("tokenizer_config.json");
        format!(
            "=== tokenizer.json\n{}\n=== tokenizer_config.json\n{config}\n=== text\none é\n",
            file(name)
        )
    });
    let others = [
        "=== template\n{% for m in messages %}{{ m['role'] }}: {{ m.content | trim | upper }}\n{% endfor %}{{ tools | tojson(indent=2) }}{% if add_generation_prompt %}a{% endif %}\n",
        "=== template\n{%- macro f(x, y=2) -%}{{ x ~ y }}{%- endmacro -%}{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ f(loop.index) }}{% break %}{% endfor %}{{ 'a b'.split(' ')[-1:] }}{{ strftime_now('%Y') }}\n=== messages\n[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"x\"}]}]\n=== tools\n[]\n",
        "=== answer\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, null]}}\n</tool_call>\n",
        "=== format\npythonic\n=== answer\n[f(a=1, b='x'), g.h(c={'k': [True]})]\n",
        "=== tools\n[{\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"$ref\": \"#/$defs/A\"}}, \"$defs\": {\"A\": {\"anyOf\": [{\"type\": \"string\"}, {\"$ref\": \"#/$defs/A\"}]}}}}]\n=== answer\n<tool_call>\n<function=f>\n<parameter=a>\n007\n</parameter>\n</function>\n</tool_call>\n",
        "=== format\nglm\n=== answer\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>[1]</arg_value>\n</tool_call>\n",
        "=== answer\n[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]\n",
        "=== answer\n<function=f>{\"a\": 1}</function> text\n",
        "=== answer\n<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}\n",
        "abcd\n=== schema\n{\"type\": \"object\", \"properties\": {\"one\": {\"enum\": [1, \"two\"]}}, \"required\": [\"one\"]}\n",
        "abcd\n=== regex\n(one|two)+ [a-z]{1,3}\n",
        "abcd\n=== lark\nstart: word (\" \" word)*\nword: \"one\" | /[a-z]+/\n",
    ];
    let all = tokenizers.iter().map(String::as_str).chain(others);
    all.map(|text| text.as_bytes().to_vec()).collect()
}

/// The images of the native runtime's tests.
fn images(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder)
        .expect("the folder can be read")
        .flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end != "txt" && end != "py"));
    paths.sort();
    let bytes = paths
        .iter()
        .map(|path| std::fs::read(path).expect("the file can be read"));
    bytes.collect()
}

/// The files of the tests of sound, which are in hexadecimal, the small ones.
fn sounds(document: &Path) -> Vec<Vec<u8>> {
    const MOST: usize = 8 << 10;
    let document = std::fs::read(document).expect("the file can be read");
    let document: serde_json::Value = serde_json::from_slice(&document).expect("it is JSON");
    let files = document["files"].as_array().expect("it has files").iter();
    let files = files.filter_map(|file| file["file"].as_str());
    let digit = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).expect("it is ASCII");
        u8::from_str_radix(digits, 16).expect("it is hexadecimal")
    };
    let files = files.filter(|digits| digits.len() <= 2 * MOST);
    files
        .map(|digits| digits.as_bytes().chunks_exact(2).map(digit).collect())
        .collect()
}
