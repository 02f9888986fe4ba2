//! Calls that recurse as deeply as their input says, on a stack of a known size.
//!
//! A host may call on a thread with a small stack. A thread of our own costs some 50
//! microseconds a call; `stacker`, which switches stacks on the same thread, needs an
//! assembler to build and confuses tools that watch the stack.

use crate::panics::contain;

/// Address space; only what is touched takes memory.
const STACK: usize = 256 << 20;

/// What `body` gives. A panic in it and a thread that cannot be had are errors.
pub(super) fn with_own_stack<R: Send>(body: impl FnOnce() -> R + Send) -> Result<R, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("oxpipe-text".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, || contain(body))
            .map_err(|error| {
                format!(
                    "cannot start a thread with a stack of {} MiB of address space for it: {error}",
                    STACK >> 20
                )
            })?;
        match thread.join() {
            Ok(result) => result.map_err(|panic| format!("the template engine failed {panic}")),
            Err(_) => Err("the template engine's thread failed".to_owned()),
        }
    })
}
