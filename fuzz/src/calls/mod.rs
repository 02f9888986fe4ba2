//! Sequences of calls of the C interface: any function, with live, freed and wrong handles, buffers of
//! any size, and whatever else its parameters can be without the caller breaking the promise that
//! pointers point to what they say. Memory that a call borrows is of exactly the size that it is told
//! and gone after the call, so that AddressSanitizer sees a read too far or too late.
//!
//! Of every call it is checked: the status is one that there is and not OXP_ERR_INTERNAL, an error
//! object is there if and only if the call failed, has its code and a message, handles are made if and
//! only if it succeeded, and what it lends can be read. At the end of a sequence everything is freed,
//! and each function that frees a host's data was called once.

mod arguments;
mod callbacks;
mod lent;
pub mod table;
mod world;

use crate::input::Bytes;

use arguments::Arguments;
use world::World;

/// A function of the header, called with numbers.
pub struct Function {
    pub name: &'static str,
    pub returns: &'static str,
    /// Type and name.
    pub parameters: &'static [(&'static str, &'static str)],
    pub call: fn(&[u64]) -> u64,
}

include!("functions.rs");

/// Those that bring a sequence further; half of all calls.
const DEEP: &[&str] = &[
    "oxp_run_create",
    "oxp_run_append_tokens",
    "oxp_run_append_text",
    "oxp_run_step",
    "oxp_run_generate",
    "oxp_run_forward",
    "oxp_run_force_token",
    "oxp_run_rewind",
    "oxp_run_finish",
    "oxp_run_execute",
    "oxp_run_set_constraint",
    "oxp_run_fork",
    "oxp_run_set_draft",
    "oxp_run_save_copy",
    "oxp_run_load",
    "oxp_batch_create",
    "oxp_batch_add",
    "oxp_batch_step",
    "oxp_run_set_input",
    "oxp_run_get_tensor",
    "oxp_run_set_logits_hook",
    "oxp_run_set_sampler",
    "oxp_run_add_image",
    "oxp_run_set_audio",
    "oxp_options_create",
    "oxp_options_set",
    "oxp_options_set",
    "oxp_session_run",
    "oxp_session_run_alloc",
    "oxp_run_free",
];

pub fn function(name: &str) -> &'static Function {
    let found = FUNCTIONS.iter().find(|function| function.name == name);
    found.unwrap_or_else(|| panic!("the header has no {name}"))
}

pub fn run(data: &[u8]) {
    const MOST: usize = 48;
    let mut bytes = Bytes(data);
    let mut world = World::new();
    for _ in 0..MOST {
        if bytes.is_empty() {
            break;
        }
        let function = match bytes.byte() {
            n if n < 128 => &FUNCTIONS[usize::from(n) % FUNCTIONS.len()],
            n => function(DEEP[usize::from(n - 128) % DEEP.len()]),
        };
        call(function, &mut world, &mut bytes);
    }
    world.end();
}

fn call(function: &'static Function, world: &mut World, bytes: &mut Bytes<'_>) {
    let mut arguments = Arguments::new(function, world, bytes);
    if trace() {
        eprintln!("{} {:x?}", function.name, arguments.words);
    }
    callbacks::begin(arguments.run(), bytes.take(8));
    let answer = (function.call)(&arguments.words);
    if function.returns == "oxp_status" && function.name != "oxp_error_get_code" {
        let status = answer as i32;
        check_error(function, status, &mut arguments, world);
        arguments.take_handles(status, world);
        if status == 0 {
            arguments.read_what_is_lent();
            world.note(function, &arguments);
        }
    }
    if function.returns == "const char *" && answer != 0 {
        lent::text(answer, None);
    }
    if function.name.ends_with("_free") {
        world.freed(arguments.words[0]);
    }
}

/// Whether each call is printed: what to do with an input that fails.
fn trace() -> bool {
    std::env::var_os("OXP_FUZZ_TRACE").is_some()
}

const INTERNAL: i32 = -1;
/// The codes that there are, by tens.
const STATUSES: std::ops::RangeInclusive<i32> = -89..=0;

fn check_error(function: &Function, status: i32, arguments: &mut Arguments, world: &mut World) {
    let name = function.name;
    assert!(STATUSES.contains(&status), "{name} gave {status}");
    let known = (self::function("oxp_status_name").call)(&[status as u64]);
    assert_ne!(known, 0, "{name} gave {status}, which has no name");
    let error = arguments.error();
    if status == INTERNAL {
        let message = error.filter(|&error| error != 0).map(|error| {
            let message = (self::function("oxp_error_get_message").call)(&[error, 0]);
            lent::text(message, None)
        });
        panic!("{name} gave OXP_ERR_INTERNAL: {message:?}");
    }
    let Some(error) = error else {
        return;
    };
    assert_eq!(
        status == 0,
        error == 0,
        "{name} gave {status} and the error {error:#x}"
    );
    if error == 0 {
        return;
    }
    let code = (self::function("oxp_error_get_code").call)(&[error]) as i32;
    assert_eq!(code, status, "{name}");
    let mut len = 0u64;
    let message = (self::function("oxp_error_get_message").call)(&[error, (&raw mut len) as u64]);
    let message = lent::text(message, Some(len));
    assert!(
        message.contains(name) && message.len() > name.len() + 4,
        "{name}: {message}"
    );
    world.found("oxp_error", error);
}
