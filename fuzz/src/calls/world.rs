//! The handles that there are, alive or freed, and what sequences begin with.

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::arguments::Arguments;
use super::{Function, function};
use crate::{bases, models};

/// A handle, and the type that it was made as.
#[derive(Clone, Copy)]
struct Held {
    ty: &'static str,
    handle: u64,
    /// Used by the sequences that come after this one: not freed.
    kept: bool,
    freed: bool,
}

pub struct World {
    held: Vec<Held>,
    states: Vec<Vec<u8>>,
    /// Of functions that free data of the host's.
    counters: Vec<&'static AtomicUsize>,
}

pub const TYPES: &[&str] = &[
    "oxp_error",
    "oxp_options",
    "oxp_cancel",
    "oxp_runtime",
    "oxp_session",
    "oxp_outputs",
    "oxp_pipeline",
    "oxp_run",
    "oxp_tokenizer",
    "oxp_decode_stream",
    "oxp_chat_template",
    "oxp_batch",
];

/// The type, as a name that stays.
pub fn type_of(text: &str) -> Option<&'static str> {
    TYPES.iter().find(|ty| **ty == text).copied()
}

/// What every sequence begins with, and never frees.
static KEPT: LazyLock<Vec<Held>> = LazyLock::new(|| {
    let mut held = Vec::new();
    let mut keep = |ty: &'static str, handle: u64| {
        held.push(Held {
            ty,
            handle,
            kept: true,
            freed: false,
        });
        handle
    };
    let run_options = made("oxp_options_create", &[4]);
    keep("oxp_options", run_options);
    set(run_options, "timeout_ms", "300");
    let runtime_options = made("oxp_options_create", &[1]);
    set(runtime_options, "threads", "1");
    let runtime = keep("oxp_runtime", made("oxp_runtime_create", &[runtime_options]));
    (function("oxp_options_free").call)(&[runtime_options]);
    let folder = bases::FOLDER.join("models");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    models::write_models(&folder);
    for name in ["affine", "dynamic", "external", "identity_1_2", "string"] {
        let path = text(&folder.join(name).with_extension("onnx"));
        keep("oxp_session", made_with_text("oxp_session_open", runtime, &path));
    }
    for base in bases::BASES.iter() {
        let pipeline = keep(
            "oxp_pipeline",
            made_with_text("oxp_pipeline_open", runtime, &text(&base.folder)),
        );
        if base.name == "phases" {
            keep("oxp_tokenizer", made("oxp_tokenizer_open_pipeline", &[pipeline]));
            keep(
                "oxp_chat_template",
                made("oxp_chat_template_open_pipeline", &[pipeline]),
            );
        }
    }
    held
});

fn text(path: &Path) -> String {
    path.to_str().expect("the folder's name is ours").to_owned()
}

/// Calls a function that makes a handle and gives it. NULL and 0 stand for the arguments that are not given.
fn made(name: &str, first: &[u64]) -> u64 {
    let function = function(name);
    let mut handle = 0u64;
    let mut words = vec![0; function.parameters.len()];
    words[..first.len()].copy_from_slice(first);
    let out = function
        .parameters
        .iter()
        .position(|(ty, name)| ty.ends_with("**") && *name != "err");
    words[out.expect("it makes a handle")] = (&raw mut handle) as u64;
    let status = (function.call)(&words) as i32;
    assert_eq!(status, 0, "{name}");
    handle
}

fn made_with_text(name: &str, first: u64, text: &str) -> u64 {
    made(name, &[first, text.as_ptr() as u64, text.len() as u64])
}

fn set(options: u64, key: &str, value: &str) {
    let words = [
        options,
        key.as_ptr() as u64,
        key.len() as u64,
        value.as_ptr() as u64,
        value.len() as u64,
        0,
    ];
    assert_eq!((function("oxp_options_set").call)(&words), 0);
}

impl World {
    pub fn new() -> Self {
        World {
            held: KEPT.clone(),
            states: Vec::new(),
            counters: Vec::new(),
        }
    }

    /// A handle for a parameter of the type; `choice` says which, and whether a right one.
    pub fn handle(&self, ty: &str, choice: u8, may_be_kept: bool, second: u8) -> u64 {
        let pick = |ok: &dyn Fn(&Held) -> bool| {
            let fitting: Vec<_> = self.held.iter().filter(|held| ok(held)).collect();
            match fitting.len() {
                0 => 0,
                count => fitting[usize::from(second) % count].handle,
            }
        };
        match choice {
            // Newer ones are where a sequence goes on.
            0..=160 => {
                let right = |held: &&Held| held.ty == ty && !held.freed && (may_be_kept || !held.kept);
                let fitting = self.held.iter().rev().filter(right);
                let fitting: Vec<_> = fitting.take(3).collect();
                match fitting.len() {
                    0 => 0,
                    count => fitting[usize::from(second) % count].handle,
                }
            }
            161..=235 => pick(&|held| held.ty == ty && !held.freed && (may_be_kept || !held.kept)),
            236..=240 => pick(&|held| held.ty == ty && held.freed),
            241..=246 => pick(&|held| held.ty != ty && (may_be_kept || !held.kept)),
            247..=249 => pick(&|held| held.ty == ty && !held.kept) ^ 1 << (second % 64),
            250 => u64::MAX,
            251 => u64::from(second),
            _ => 0,
        }
    }

    pub fn run_options(&self) -> u64 {
        self.held[0].handle
    }

    pub fn found(&mut self, ty: &'static str, handle: u64) {
        self.held.push(Held {
            ty,
            handle,
            kept: false,
            freed: false,
        });
        if ty == "oxp_error" {
            self.free_old_errors();
        }
    }

    fn free_old_errors(&mut self) {
        const KEPT_ERRORS: usize = 4;
        let alive = self
            .held
            .iter_mut()
            .filter(|held| held.ty == "oxp_error" && !held.freed);
        let mut alive: Vec<_> = alive.collect();
        let more = alive.len().saturating_sub(KEPT_ERRORS);
        for held in &mut alive[..more] {
            (function("oxp_error_free").call)(&[held.handle]);
            held.freed = true;
        }
    }

    pub fn freed(&mut self, handle: u64) {
        for held in self
            .held
            .iter_mut()
            .filter(|held| held.handle == handle && !held.kept)
        {
            held.freed = true;
        }
    }

    pub fn is_kept(&self, handle: u64) -> bool {
        self.held.iter().any(|held| held.kept && held.handle == handle)
    }

    /// A counter of how often a host's data is freed, as that data.
    pub fn counter(&mut self) -> u64 {
        let counter: &'static AtomicUsize = Box::leak(Box::default());
        self.counters.push(counter);
        std::ptr::from_ref(counter) as u64
    }

    /// Keeps what can be used later.
    pub fn note(&mut self, function: &Function, arguments: &Arguments) {
        match function.name {
            "oxp_run_save_copy" => {
                if let Some(state) = arguments.filled() {
                    self.states.push(state);
                }
            }
            // No run goes on for ever.
            "oxp_options_create" if arguments.words[0] == 4 => {
                if let Some(held) = self.held.last() {
                    set(held.handle, "timeout_ms", "300");
                }
            }
            _ => {}
        }
    }

    pub fn state(&self, choice: u8) -> Option<&[u8]> {
        match self.states.len() {
            0 => None,
            count => Some(&self.states[usize::from(choice) % count]),
        }
    }

    /// Frees what the sequence has made, in the order in which it was made or the other way round.
    pub fn end(mut self) {
        if self.held.len().is_multiple_of(2) {
            self.held.reverse();
        }
        for held in self.held.iter().filter(|held| !held.kept) {
            let name = format!("{}_free", held.ty);
            (function(&name).call)(&[held.handle]);
        }
        for counter in self.counters {
            assert_eq!(
                counter.load(Ordering::SeqCst),
                1,
                "data of the host's is freed once"
            );
            // SAFETY: made by `Box::leak`, and who had it is freed.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(counter).cast_mut()) });
        }
    }
}
