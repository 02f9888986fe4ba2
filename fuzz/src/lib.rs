//! What the fuzz targets do with their input, one module a target. Each takes any bytes at all, and
//! ends the process when the library does what it must not: a panic that the C interface had to
//! catch, an answer against its own rules, memory or time without bound, or what AddressSanitizer sees.

pub mod bases;
pub mod calls;
pub mod graph;
pub mod input;
pub mod media;
pub mod package;
pub mod saved_state;
pub mod sections;
pub mod seeds;
pub mod text;

/// The packages that the tests of the C interface run.
#[allow(dead_code)]
#[path = "../../tests/capi/example_packages.rs"]
mod example_packages;
#[allow(dead_code)]
#[path = "../../tests/capi/models.rs"]
mod models;

/// Before the first input. libFuzzer's own hook ends the process at every panic, also at those of
/// dependencies that the library catches by design; one that gets out ends it anyway.
pub fn start() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}
