//! Time that a test may bound: on a machine that does something else as well, a clock on the wall
//! says little about the code.

use std::time::Duration;

/// What the calling thread has spent on a CPU so far.
#[cfg(unix)]
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one timespec, which outlives it.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "a thread can read its own clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The time since the first call, where a thread's own cannot be had.
#[cfg(not(unix))]
pub fn cpu_time() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
