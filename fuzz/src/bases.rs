//! The packages that inputs are laid over, made by the code that makes them for the tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use oxpipe::component::SharedBytes;

use crate::{example_packages, models};

pub struct Base {
    pub name: &'static str,
    /// Where it lies on disk.
    pub folder: PathBuf,
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Base {
    /// Its files with others in the place of some or beside them.
    pub fn with(&self, changes: &[(&str, &[u8])]) -> Vec<(String, SharedBytes)> {
        let mut files: BTreeMap<&str, &[u8]> = BTreeMap::new();
        files.extend(
            self.files
                .iter()
                .map(|(name, bytes)| (name.as_str(), bytes.as_slice())),
        );
        files.extend(changes.iter().copied());
        let files = files.into_iter();
        files
            .map(|(name, bytes)| (name.to_owned(), Arc::new(bytes.to_vec()) as SharedBytes))
            .collect()
    }
}

/// A folder of this process's, which the next one of the same number takes over.
pub static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    let folder = place.join(format!("oxpipe-fuzz-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder
});

/// All of them are written again after this.
extern "C" fn clean_up() {
    let _ = std::fs::remove_dir_all(&*FOLDER);
}

pub static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    // SAFETY: it removes files and nothing else.
    unsafe { libc::atexit(clean_up) };
    type Writer = fn(&Path);
    let writers: [(&'static str, Writer); 10] = [
        ("phases", models::write_package),
        ("chat", |folder| models::write_chat_package(folder, 8)),
        ("media", models::write_media_package),
        ("iterative", models::write_iterative_package),
        ("guided", models::write_guided_package),
        ("picture", example_packages::write_picture_package),
        ("words", example_packages::write_words_package),
        ("image", example_packages::write_image_package),
        ("genai", write_genai_package),
        ("hugging_face", write_hugging_face_package),
    ];
    let mut bases = Vec::new();
    for (name, write) in writers {
        let folder = FOLDER.join(name);
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        write(&folder);
        bases.push(base(name, folder));
    }
    let texts = FOLDER.join("texts");
    std::fs::create_dir_all(&texts).expect("a folder can be made");
    models::write_text_packages(&texts);
    bases.push(base("embedder", texts.join("embedder")));
    bases.push(base("classifier", texts.join("classifier")));
    bases
});

/// The base of a name; the first for any other.
pub fn of(name: &str) -> &'static Base {
    BASES.iter().find(|base| base.name == name).unwrap_or(&BASES[0])
}

fn base(name: &'static str, folder: PathBuf) -> Base {
    let mut files = BTreeMap::new();
    collect(&folder, "", &mut files);
    Base { name, folder, files }
}

fn collect(folder: &Path, before: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder)
        .expect("the folder can be read")
        .flatten()
    {
        let name = format!("{before}{}", entry.file_name().display());
        let path = entry.path();
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files);
        } else {
            files.insert(name, std::fs::read(path).expect("the file can be read"));
        }
    }
}

fn write(folder: &Path, files: &[(&str, &[u8])]) {
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder can be made");
        std::fs::write(path, bytes).expect("a file can be written");
    }
}

/// A decoder with a KV cache of two layers, as both other formats have it.
fn decoder(past: &str, present: &str) -> Vec<u8> {
    use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
    let identity: Vec<f32> = (0..64).map(|at| f32::from(at % 9 == 0)).collect();
    let successor: Vec<f32> = (0..64).map(|at| f32::from((at / 8 + 1) % 8 == at % 8)).collect();
    let mut model = Model::new()
        .input("input_ids", INT64, "[batch, s]")
        .input("attention_mask", INT64, "[batch, t]")
        .output("logits", FLOAT, "[batch, s, 8]")
        .initializer(Tensor::floats("table", &[8, 8], &identity))
        .initializer(Tensor::floats("successor", &[8, 8], &successor))
        .initializer(Tensor::ints("head", &[1], &[1]))
        .node(Node::new("Gather", &["table", "input_ids"], &["rows"]))
        .node(Node::new("Unsqueeze", &["rows", "head"], &["new"]))
        .node(Node::new("MatMul", &["rows", "successor"], &["logits"]));
    for layer in ["0", "1"] {
        for part in ["key", "value"] {
            let (past, present) = (name(past, layer, part), name(present, layer, part));
            model = model
                .input(&past, FLOAT, "[batch, 1, p, 8]")
                .output(&present, FLOAT, "[batch, 1, t, 8]")
                .node(Node::new("Concat", &[&past, "new"], &[&present]).int("axis", 2));
        }
    }
    model.encode()
}

fn name(pattern: &str, layer: &str, part: &str) -> String {
    pattern.replace("%d", layer).replace("%s", part)
}

fn write_genai_package(folder: &Path) {
    let config = r#"{
  "model": {
    "bos_token_id": 6, "eos_token_id": [7], "pad_token_id": 7, "context_length": 64, "vocab_size": 8,
    "type": "llama",
    "decoder": {
      "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
      "filename": "model.onnx", "head_size": 8, "hidden_size": 8, "num_attention_heads": 1,
      "num_hidden_layers": 2, "num_key_value_heads": 1,
      "inputs": {
        "input_ids": "input_ids", "attention_mask": "attention_mask",
        "past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"
      },
      "outputs": {
        "logits": "logits",
        "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"
      }
    }
  },
  "search": {
    "do_sample": false, "max_length": 32, "min_length": 0, "num_beams": 1, "num_return_sequences": 1,
    "repetition_penalty": 1.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0,
    "past_present_share_buffer": false, "early_stopping": true, "length_penalty": 1.0
  }
}
"#;
    let model = decoder("past_key_values.%d.%s", "present.%d.%s");
    write(
        folder,
        &[
            ("genai_config.json", config.as_bytes()),
            ("model.onnx", &model),
            ("tokenizer.json", models::TOKENIZER.as_bytes()),
        ],
    );
}

fn write_hugging_face_package(folder: &Path) {
    let config = r#"{
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "bos_token_id": 6, "eos_token_id": 7,
  "hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 2, "num_key_value_heads": 1,
  "max_position_embeddings": 64, "vocab_size": 8
}
"#;
    let generation = r#"{"bos_token_id": 6, "eos_token_id": [7], "do_sample": true, "top_k": 4, "temperature": 0.5}
"#;
    let chat = r#"{"eos_token": "</s>", "chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"}
"#;
    let model = decoder("past_key_values.%d.%s", "present.%d.%s");
    write(
        folder,
        &[
            ("config.json", config.as_bytes()),
            ("generation_config.json", generation.as_bytes()),
            ("onnx/model.onnx", &model),
            ("tokenizer.json", models::TOKENIZER.as_bytes()),
            ("tokenizer_config.json", chat.as_bytes()),
        ],
    );
}
