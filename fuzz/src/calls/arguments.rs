//! Arguments of a call, by the types and names of its parameters.

use crate::input::Bytes;
use crate::{bases, models};

use super::world::{self, World};
use super::{Function, callbacks, lent};

pub const NUL_TERMINATED: u64 = u64::MAX;

type Parameters = &'static [(&'static str, &'static str)];

pub struct Arguments {
    pub words: Vec<u64>,
    parameters: Parameters,
    /// What the call borrows. Boxes, so that each is of exactly its size.
    memory: Vec<Box<[u8]>>,
}

impl Arguments {
    pub fn new(function: &Function, world: &mut World, bytes: &mut Bytes<'_>) -> Self {
        let mut arguments = Arguments {
            words: Vec::new(),
            parameters: function.parameters,
            memory: Vec::new(),
        };
        while arguments.words.len() < function.parameters.len() {
            arguments.add(function, world, bytes);
        }
        arguments.bound(function, world);
        arguments
    }

    /// Keeps options from writing files elsewhere, starting hundreds of threads, or running for ever.
    fn bound(&mut self, function: &Function, world: &World) {
        match function.name {
            "oxp_options_set" => {
                let key = self.text_at(1);
                let value = match key.as_str() {
                    "trace" => bases::FOLDER.join("trace.json").display().to_string(),
                    "native.packed_cache" => "off".to_owned(),
                    key if key.ends_with("timeout_ms") => "200".to_owned(),
                    "threads" => (1 + self.words[4] % 3).to_string(),
                    _ => return,
                };
                self.words[4] = value.len() as u64;
                self.words[3] = self.lend(value.into_bytes());
            }
            "oxp_run_create" if self.words[1] == 0 => self.words[1] = world.run_options(),
            "oxp_run_load" if self.words[1] == 0 => self.words[1] = world.run_options(),
            name if name.ends_with("_free") && world.is_kept(self.words[0]) => self.words[0] = 0,
            _ => {}
        }
    }

    fn text_at(&self, word: usize) -> String {
        let (at, len) = (self.words[word], self.words[word + 1]);
        match (at, len) {
            (0, _) => String::new(),
            (at, NUL_TERMINATED) => {
                let memory = self.memory_at(at).unwrap_or_default();
                let len = memory.iter().position(|&byte| byte == 0).unwrap_or_default();
                String::from_utf8_lossy(&memory[..len]).into_owned()
            }
            (at, len) => {
                let memory = self.memory_at(at).unwrap_or_default();
                String::from_utf8_lossy(&memory[..len as usize]).into_owned()
            }
        }
    }

    fn lend(&mut self, memory: Vec<u8>) -> u64 {
        let memory = memory.into_boxed_slice();
        let at = memory.as_ptr() as u64;
        self.memory.push(memory);
        at
    }

    /// What was lent at an address, as it is now.
    fn memory_at(&self, at: u64) -> Option<&[u8]> {
        let mut memory = self.memory.iter();
        memory
            .find(|memory| memory.as_ptr() as u64 == at)
            .map(|memory| &**memory)
    }

    fn add(&mut self, function: &Function, world: &mut World, bytes: &mut Bytes<'_>) {
        let at = self.words.len();
        let (ty, name) = self.parameters[at];
        let next = self.parameters.get(at + 1).copied().unwrap_or_default();
        let plain = ty.trim_start_matches("const ").trim_end_matches('*').trim();
        match (ty, next) {
            (_, _) if ty.ends_with("**") || ty == "const char *const *" => self.pointer(ty, name, bytes),
            (_, _) if world::type_of(plain).is_some() => {
                let may_be_kept =
                    !function.name.ends_with("_free") && !function.name.starts_with("oxp_options_set");
                let (choice, second) = (bytes.byte(), bytes.byte());
                let handle = world.handle(plain, choice, may_be_kept, second);
                self.words.push(handle);
            }
            ("const char *", ("uint64_t", _)) => self.string(name, bytes),
            ("const void *", ("uint64_t", _)) => self.blob(name, world, bytes),
            ("const int32_t *", ("uint64_t", _)) => {
                let count = self.count(bytes);
                let tokens = (0..count).flat_map(|_| token(bytes).to_le_bytes()).collect();
                self.push_array(tokens, count, bytes);
            }
            ("const float *", ("uint64_t", _)) => {
                let count = bytes.below(64);
                let samples = (0..count).flat_map(|_| (f32::from(bytes.byte()) / 64.0 - 2.0).to_le_bytes());
                let samples = samples.collect();
                self.push_array(samples, count, bytes);
            }
            ("char *" | "void *" | "int32_t *", ("uint64_t", "capacity")) => {
                let size = if ty == "int32_t *" { 4 } else { 1 };
                let capacity = bytes.pick(&[0, 1, 7, 64, 4096, 65536, 262144]);
                self.push_array(vec![0xEE; capacity * size], capacity, bytes);
            }
            ("const oxp_file *", _) => self.files(bytes),
            ("const oxp_named_in *", _) => {
                let count = bytes.below(4);
                let mut array = Vec::new();
                for _ in 0..count {
                    array.extend(self.name(bytes));
                    array.extend(self.tensor_in(bytes));
                }
                self.push_array(array, count, bytes);
            }
            ("oxp_named_out *", _) => {
                let count = bytes.below(4);
                let mut array = Vec::new();
                for _ in 0..count {
                    array.extend(self.name(bytes));
                    array.extend(self.tensor_out(bytes));
                }
                self.push_array(array, count, bytes);
            }
            ("const oxp_tensor_in *", _) => {
                let tensor = self.tensor_in(bytes);
                self.push_or_null(tensor, bytes);
            }
            ("oxp_tensor_out *", _) => {
                let tensor = self.tensor_out(bytes);
                self.push_or_null(tensor, bytes);
            }
            (_, _) if ty.starts_with("oxp_") && ty.ends_with('*') => self.structure(ty, bytes),
            (_, _) if ty.ends_with("_fn") => self.callback(ty, bytes),
            ("void *", _) => {
                // Data of the host's counts how often it is freed, if there is who frees it.
                let is_freed = next.0 == "oxp_free_fn" && !bytes.one_in(8);
                let data = if is_freed { world.counter() } else { 0 };
                self.words.push(data);
                if next.0 == "oxp_free_fn" {
                    let free = callbacks::free_data as extern "C" fn(u64);
                    self.words.push(if is_freed { free as usize as u64 } else { 0 });
                }
            }
            (_, _) if ty.ends_with('*') => {
                let size = if ty.contains("64") || ty.contains("double") {
                    8
                } else {
                    4
                };
                self.push_or_null(vec![0xEE; size], bytes);
            }
            _ => self.words.push(number(ty, name, bytes)),
        }
    }

    fn push_or_null(&mut self, memory: Vec<u8>, bytes: &mut Bytes<'_>) {
        let word = if bytes.byte() >= 248 { 0 } else { self.lend(memory) };
        self.words.push(word);
    }

    /// An array and how many there are in it; NULL goes with any count.
    fn push_array(&mut self, array: Vec<u8>, count: usize, bytes: &mut Bytes<'_>) {
        let choice = bytes.byte();
        let word = if choice >= 248 { 0 } else { self.lend(array) };
        self.words.push(word);
        self.words.push(match (word, choice) {
            (0, 255) => 0,
            (0, 254) => u64::MAX,
            _ => count as u64,
        });
    }

    fn count(&mut self, bytes: &mut Bytes<'_>) -> usize {
        match bytes.byte() {
            n if n >= 250 => usize::from(n) * 4,
            n => usize::from(n % 6),
        }
    }

    /// A pointer to a pointer that the call sets, or an array of texts.
    fn pointer(&mut self, ty: &str, name: &str, bytes: &mut Bytes<'_>) {
        if ty != "const char *const *" {
            let cell = vec![0x11; 8];
            // An error is wanted nearly always: it is looked at.
            let is_null = bytes.byte() >= if name == "err" { 240 } else { 252 };
            let word = if is_null { 0 } else { self.lend(cell) };
            self.words.push(word);
            return;
        }
        let count = bytes.below(4);
        let (mut pointers, mut lens) = (Vec::new(), Vec::new());
        for _ in 0..count {
            // Without lengths they end with a NUL.
            let text = bytes.pick(texts(name));
            let text = [text.as_bytes(), &[0]].concat();
            lens.extend((text.len() as u64 - 1).to_le_bytes());
            pointers.extend(self.lend(text).to_le_bytes());
        }
        self.push_or_null(pointers, bytes);
        self.push_or_null(lens, bytes);
        self.words.push(count as u64);
    }

    fn string(&mut self, name: &str, bytes: &mut Bytes<'_>) {
        let (at, len) = self.text(name, bytes);
        self.words.extend([at, len]);
    }

    /// A text and its length, in memory of its own.
    fn text(&mut self, name: &str, bytes: &mut Bytes<'_>) -> (u64, u64) {
        let known = texts(name);
        let choice = bytes.byte();
        let mut text = match choice {
            0..=220 => known[usize::from(bytes.byte()) % known.len()].as_bytes().to_vec(),
            221..=245 => {
                let len = bytes.below(48);
                bytes.take(len).to_vec()
            }
            246..=249 => return (0, u64::from(bytes.byte() % 2)),
            250 => vec![b'a'; 70_000],
            _ => vec![0xFF, 0xC0, 0x80],
        };
        if name == "path" && choice <= 220 {
            text = [bases::FOLDER.display().to_string().as_bytes(), &text].concat();
        }
        let len = text.len() as u64;
        if bytes.one_in(6) && !text.contains(&0) {
            text.push(0);
            return (self.lend(text), NUL_TERMINATED);
        }
        (self.lend(text), len)
    }

    /// Name and length, as they stand in a struct.
    fn name(&mut self, bytes: &mut Bytes<'_>) -> Vec<u8> {
        const NAMES: &[&str] = &["x", "y", "total", "copy", "mask", "text", "same", "bias", "", "z"];
        let name = bytes.pick(NAMES).as_bytes().to_vec();
        let len = name.len() as u64;
        let at = if bytes.one_in(32) { 0 } else { self.lend(name) };
        [at.to_le_bytes(), len.to_le_bytes()].concat()
    }

    fn blob(&mut self, name: &str, world: &World, bytes: &mut Bytes<'_>) {
        let choice = bytes.byte();
        let mut blob = match name {
            "model" => models::affine(),
            "json" => bases::of("phases").files["tokenizer.json"].clone(),
            "config" => bases::of("phases").files["tokenizer_config.json"].clone(),
            "state" => world.state(bytes.byte()).unwrap_or_default().to_vec(),
            "data" if choice.is_multiple_of(2) => IMAGE.to_vec(),
            "data" => SOUND.to_vec(),
            _ => vec![0x7F; bytes.below(64)],
        };
        match choice {
            0..=200 => {}
            201..=230 => {
                for _ in 0..1 + choice % 4 {
                    let at = bytes.below(blob.len());
                    if let Some(byte) = blob.get_mut(at) {
                        *byte = bytes.byte();
                    }
                }
            }
            231..=240 => blob.truncate(bytes.below(blob.len() + 1)),
            _ => {
                let len = bytes.below(64);
                blob = bytes.take(len).to_vec();
            }
        }
        let count = blob.len();
        self.push_array(blob, count, bytes);
    }

    fn files(&mut self, bytes: &mut Bytes<'_>) {
        let base = &bases::BASES[bytes.below(bases::BASES.len())];
        let change = bytes.byte();
        let mut array = Vec::new();
        let mut count = 0;
        for (index, (name, content)) in base.files.iter().enumerate() {
            let mut content = content.clone();
            let mut repeat = 1;
            if usize::from(change % 16) == index {
                match change / 16 {
                    0..=4 => {}
                    5 => repeat = 0,
                    6 => repeat = 2,
                    7 => content.truncate(bytes.below(content.len())),
                    _ => {
                        let at = bytes.below(content.len());
                        if let Some(byte) = content.get_mut(at) {
                            *byte = bytes.byte();
                        }
                    }
                }
            }
            for _ in 0..repeat {
                let len = content.len() as u64;
                let words = [
                    self.lend(name.clone().into_bytes()),
                    name.len() as u64,
                    self.lend(content.clone()),
                    len,
                ];
                array.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                count += 1;
            }
        }
        self.push_array(array, count, bytes);
    }

    fn tensor_in(&mut self, bytes: &mut Bytes<'_>) -> Vec<u8> {
        let dtype = bytes.pick(&[1, 1, 1, 1, 7, 9, 10, 0, 99, 6]);
        let shape: &[i64] = bytes.pick::<&[i64]>(&[
            &[1, 4],
            &[1, 8],
            &[2],
            &[1],
            &[],
            &[3, 4],
            &[8],
            &[0, 4],
            &[-1, 4],
            &[1 << 62, 4],
            &[1; 70],
            &[1, 3, 2, 2],
        ]);
        let size = match dtype {
            9 => 1,
            10 => 2,
            7 => 8,
            _ => 4,
        };
        let product = shape.iter().try_fold(size, |all: i64, &dim| all.checked_mul(dim));
        let mut length = product
            .filter(|length| (0..4096).contains(length))
            .unwrap_or_default() as usize;
        if bytes.one_in(16) {
            length = bytes.below(40);
        }
        let given = bytes.take(length.min(16));
        let data: Vec<u8> = given.iter().copied().chain([0; 4096]).take(length).collect();
        let rank = shape.len() as u32;
        let shape = shape.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        let mut tensor = Vec::new();
        tensor.extend(if bytes.one_in(64) { 0u32 } else { 40 }.to_le_bytes());
        tensor.extend((dtype as u32).to_le_bytes());
        let data = if bytes.one_in(64) { 0 } else { self.lend(data) };
        tensor.extend(data.to_le_bytes());
        tensor.extend((length as u64).to_le_bytes());
        let shape = if bytes.one_in(64) { 0 } else { self.lend(shape) };
        tensor.extend(shape.to_le_bytes());
        tensor.extend(rank.to_le_bytes());
        tensor.extend(u32::from(bytes.one_in(64)).to_le_bytes());
        tensor
    }

    fn tensor_out(&mut self, bytes: &mut Bytes<'_>) -> Vec<u8> {
        let capacity = bytes.pick(&[64usize, 16, 0, 4096, 15]);
        let rank = bytes.pick(&[4usize, 2, 0, 8]);
        let data = if capacity == 0 {
            0
        } else {
            self.lend(vec![0xEE; capacity])
        };
        let shape = if rank == 0 {
            0
        } else {
            self.lend(vec![0xEE; rank * 8])
        };
        let mut tensor = Vec::new();
        tensor.extend(if bytes.one_in(64) { 47u32 } else { 48 }.to_le_bytes());
        tensor.extend(0u32.to_le_bytes());
        tensor.extend(data.to_le_bytes());
        tensor.extend((capacity as u64).to_le_bytes());
        tensor.extend(0u64.to_le_bytes());
        tensor.extend(shape.to_le_bytes());
        tensor.extend((rank as u32).to_le_bytes());
        tensor.extend(0u32.to_le_bytes());
        tensor
    }

    /// A struct that the call fills, as long as its size says.
    fn structure(&mut self, ty: &str, bytes: &mut Bytes<'_>) {
        let size = size_of(ty);
        let told = match bytes.byte() {
            0..=230 => size,
            231..=236 => size + 64,
            237..=240 => bytes.below(size + 1),
            241 => 0,
            _ => 8 * bytes.below(size / 8 + 1),
        };
        // There are at least the four bytes that say how many there are; a tensor never changes, so that
        // all of it is there whatever they say.
        let least = if ty == "oxp_tensor_in *" { size } else { 4 };
        let mut memory = vec![0; told.max(least)];
        memory[..4].copy_from_slice(&(told as u32).to_le_bytes());
        if bytes.one_in(32) {
            *memory.last_mut().expect("it is not empty") = 1;
            memory[..4].copy_from_slice(&(told as u32).to_le_bytes());
        }
        self.push_or_null(memory, bytes);
    }

    fn callback(&mut self, ty: &str, bytes: &mut Bytes<'_>) {
        let address = match ty {
            "oxp_log_fn" => callbacks::log as *const () as u64,
            "oxp_progress_fn" => callbacks::progress as *const () as u64,
            "oxp_event_fn" => callbacks::event as *const () as u64,
            "oxp_batch_fn" => callbacks::batch as *const () as u64,
            "oxp_logits_fn" => callbacks::logits as *const () as u64,
            "oxp_sampler_fn" => callbacks::sampler as *const () as u64,
            other => panic!("there is no callback of type {other}"),
        };
        let word = if bytes.one_in(8) { 0 } else { address };
        self.words.push(word);
    }

    /// The run that the call is on; 0 if it is on none.
    pub fn run(&self) -> u64 {
        match self.parameters.first() {
            Some(("oxp_run *", _)) => self.words[0],
            _ => 0,
        }
    }

    /// What the call has put where an error goes; `None` if it was not to.
    pub fn error(&self) -> Option<u64> {
        let at = self.parameters.iter().position(|(_, name)| *name == "err")?;
        let cell = self.memory_at(self.words[at])?;
        Some(lent::word(cell, 0))
    }

    /// Handles that the call has made, which are there if and only if it succeeded.
    pub fn take_handles(&self, status: i32, world: &mut World) {
        for (at, (ty, name)) in self.parameters.iter().enumerate() {
            let Some(ty) = ty.strip_suffix(" **").and_then(world::type_of) else {
                continue;
            };
            let Some(cell) = self.memory_at(self.words[at]).filter(|_| *name != "err") else {
                continue;
            };
            let handle = lent::word(cell, 0);
            assert_eq!(status == 0, handle != 0, "status {status} and {ty} {handle:#x}");
            if handle != 0 {
                world.found(ty, handle);
            }
        }
    }

    /// Reads what a call that succeeded lends.
    pub fn read_what_is_lent(&self) {
        for (at, (ty, name)) in self.parameters.iter().enumerate() {
            let Some(memory) = self.memory_at(self.words[at]) else {
                continue;
            };
            let next = self.words.get(at + 1).and_then(|&at| self.memory_at(at));
            match *ty {
                "const char **" => {
                    lent::text(lent::word(memory, 0), next.map(|len| lent::word(len, 0)));
                }
                "const float **" | "const oxp_token_logprob **" => {
                    let size = if *ty == "const float **" { 4 } else { 8 };
                    let count = next.map_or(0, |count| lent::word(count, 0));
                    lent::bytes(lent::word(memory, 0), count * size);
                }
                ty if memory.len() >= size_of(ty) && *name != "tensor" => lent::structure(ty, memory),
                "oxp_tensor_in *" => lent::tensor(memory),
                _ => {}
            }
        }
    }

    /// The bytes that a `_copy` function has filled.
    pub fn filled(&self) -> Option<Vec<u8>> {
        let at = self.parameters.iter().position(|(_, name)| *name == "buffer")?;
        let needed = self.parameters.iter().position(|(_, name)| *name == "needed")?;
        let needed = lent::word(self.memory_at(self.words[needed])?, 0) as usize;
        self.memory_at(self.words[at])?.get(..needed).map(<[u8]>::to_vec)
    }
}

/// Bytes of a struct that calls fill; of what is none, more than there can be.
fn size_of(ty: &str) -> usize {
    match ty {
        "oxp_port_info *" => 64,
        "oxp_session_stats *" => 16,
        "oxp_component_info *" | "oxp_pipeline_info *" => 112,
        "oxp_event *" => 136,
        "oxp_run_stats *" => 88,
        "oxp_tensor_in *" => 40,
        _ => usize::MAX,
    }
}

fn token(bytes: &mut Bytes<'_>) -> i32 {
    match bytes.byte() {
        255 => i32::MAX,
        254 => -1,
        253 => i32::MIN,
        n => i32::from(n % 9),
    }
}

fn number(ty: &str, name: &str, bytes: &mut Bytes<'_>) -> u64 {
    let number = match (name, bytes.byte()) {
        (_, 255) => u64::MAX,
        (_, 254) => 1 << 63,
        (_, 253) => 1 << 31,
        ("token" | "id", n) => u64::from(n % 9),
        ("sample_rate", n) => u64::from(n) * 400,
        ("width" | "height", n) => u64::from(n % 5),
        ("length", n) => u64::from(n % 12),
        (_, n) => u64::from(n % 6),
    };
    if ty == "uint64_t" {
        number
    } else {
        number & 0xFFFF_FFFF
    }
}

/// Texts that mean something for a parameter.
fn texts(name: &str) -> &'static [&'static str] {
    match name {
        "key" => &[
            "threads",
            "backend",
            "name",
            "max_tokens",
            "stop_on_eos",
            "chunk_size",
            "logits",
            "num_steps",
            "start_step",
            "add_noise",
            "guidance_scale",
            "seed",
            "timeout_ms",
            "max_length",
            "stop_strings",
            "keep_stop_string",
            "stop_tokens",
            "skip_special_tokens",
            "json_whitespace",
            "speculation",
            "speculation_tokens",
            "min_length",
            "min_new_tokens",
            "repetition_penalty",
            "frequency_penalty",
            "presence_penalty",
            "dry_multiplier",
            "dry_breakers",
            "no_repeat_ngram_size",
            "logit_bias",
            "bad_words",
            "suppress_tokens",
            "begin_suppress_tokens",
            "do_sample",
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "typical_p",
            "top_a",
            "xtc_probability",
            "mirostat",
            "num_beams",
            "num_return_sequences",
            "length_penalty",
            "early_stopping",
            "num_beam_groups",
            "logprobs",
            "prefix_cache_bytes",
            "variant",
            "load_timeout_ms",
            "run_timeout_ms",
            "native.disable_passes",
            "native.kv_cache_dtype",
            "native.packed_cache",
            "trace",
            "backend.decoder",
            "",
        ],
        "value" => &[
            "1",
            "0",
            "2",
            "3",
            "0.5",
            "true",
            "false",
            "native",
            "int8",
            "all",
            "prompt_lookup",
            "-1",
            "1e30",
            "nan",
            "5 6,7",
            "3:1.5,4:-inf",
            "[\"five\", \"o\"]",
            "[[4, 5], [6]]",
            "1000000",
            "auto",
            "fp32",
            "never",
            "0.01",
            "",
        ],
        "path" => &[
            "/phases",
            "/media",
            "/chat",
            "/models/affine.onnx",
            "/models/external.onnx",
            "/models/truncated.onnx",
            "/models/a_directory.onnx",
            "/models/missing_operators.onnx",
            "/phases/tokenizer.json",
            "/texts/embedder",
            "/iterative",
            "/genai",
            "/hugging_face",
            "/nothing",
            "",
            "/models/wrong_attribute.onnx",
        ],
        "address" => &[
            "vision_encoder.pixel_values",
            "decoder.logits",
            "decoder.present",
            "decoder.past",
            "embedding.input_ids",
            "probe.value",
            "summary.doubled",
            "decoder.output_ids",
            "denoiser.sample",
            "denoiser.cond",
            "vae.image",
            "decoder.features",
            "vision.pixels",
            "hearing.wave",
            "decoder",
            ".",
            "",
            "probe.doubled",
        ],
        "component" => &[
            "decoder",
            "vision_encoder",
            "embedding",
            "summary",
            "probe",
            "vae",
            "hearing",
            "",
            "nobody",
        ],
        "messages" => &[
            "[{\"role\": \"user\", \"content\": \"three\"}]",
            "[]",
            "{}",
            "[",
            "[{\"role\": \"user\", \"content\": \"bad\"}]",
            "[{}]",
        ],
        "tools" => &[
            "[]",
            "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]",
            "",
            "{}",
            "null",
        ],
        "extra" => &["{}", "{\"suffix\": \"!\"}", "", "[]"],
        "source" => &[
            "{{ messages[0].content }}",
            "{% for m in messages %}",
            "{{ x }}",
            "{% for i in range(99) %}a{% endfor %}",
        ],
        "format" => &[
            "hermes",
            "llama3",
            "mistral",
            "pythonic",
            "",
            "deepseek",
            "functionary",
            "function_tag",
        ],
        "name" | "output_names" => &["y", "x", "total", "embeddings", "scores", "", "copy"],
        _ => &[
            "three",
            "one two",
            "",
            "zero </s>",
            "<unk>",
            "a+",
            "[a-z]{3}",
            "{\"type\": \"object\"}",
            "start: \"one\"",
            "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
            "five five five",
            "é",
        ],
    }
}

/// One pixel; see capi_tests/misuse.h.
pub const IMAGE: [u8; 58] = [
    b'B', b'M', 58, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 24, 0, 0, 0,
    0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// A sample of 0.25 at 8 kHz.
pub const SOUND: [u8; 46] = [
    b'R', b'I', b'F', b'F', 38, 0, 0, 0, b'W', b'A', b'V', b'E', b'f', b'm', b't', b' ', 16, 0, 0, 0, 1, 0,
    1, 0, 0x40, 0x1F, 0, 0, 0x80, 0x3E, 0, 0, 2, 0, 16, 0, b'd', b'a', b't', b'a', 2, 0, 0, 0, 0, 0x20,
];
