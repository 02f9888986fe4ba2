//! Every allocation of a short run of the C interface fails, one at a time, and many at once: calls end
//! with OXP_ERR_OUT_OF_MEMORY or as if nothing had been, nothing aborts, and nothing is left behind.
//! A test binary of its own, because of its allocator: the one of the shared library, in front of one
//! that refuses what a test says.
#![cfg(feature = "native")]

#[path = "pipeline/tiny_decoder.rs"]
mod tiny_decoder;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use oxpipe::reserve::{self, Reserve};

#[global_allocator]
static ALLOCATOR: Reserve<Failing> = Reserve::new(Failing);

/// Refuses some requests of the thread that asked for it.
struct Failing;

/// Requests of at least `least` bytes, the first of which has number 0, are refused from number
/// `from` on, as many as `count`.
#[derive(Clone, Copy, Debug)]
struct Plan {
    least: usize,
    from: usize,
    count: usize,
}

const NONE: Plan = Plan {
    least: 0,
    from: usize::MAX,
    count: 0,
};

thread_local! {
    static PLAN: Cell<Plan> = const { Cell::new(NONE) };
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
    /// Bytes that this thread has allocated and not freed.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

fn is_refused(size: usize) -> bool {
    let plan = PLAN.get();
    if size < plan.least {
        return false;
    }
    let number = REQUESTS.get();
    REQUESTS.set(number + 1);
    number >= plan.from && number - plan.from < plan.count
}

// SAFETY: every call that is not refused goes to the system's allocator unchanged; a null pointer is how
// an allocator refuses.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return null_mut();
        }
        LIVE.set(LIVE.get() + layout.size() as isize);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as isize);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

const OK: i32 = 0;
const OUT_OF_MEMORY: i32 = -2;
const RUNTIME: u32 = 1;

unsafe extern "C" {
    fn oxp_options_create(kind: u32, options: *mut *mut c_void, err: *mut *mut c_void) -> i32;
    fn oxp_options_set(
        options: *mut c_void,
        key: *const c_char,
        key_len: u64,
        value: *const c_char,
        value_len: u64,
        err: *mut *mut c_void,
    ) -> i32;
    fn oxp_options_free(options: *mut c_void);
    fn oxp_runtime_create(
        options: *const c_void,
        runtime: *mut *mut c_void,
        log: *const c_void,
        user_data: *mut c_void,
        free_user_data: *const c_void,
        err: *mut *mut c_void,
    ) -> i32;
    fn oxp_runtime_free(runtime: *mut c_void);
    fn oxp_pipeline_open(
        runtime: *const c_void,
        path: *const c_char,
        path_len: u64,
        options: *const c_void,
        pipeline: *mut *mut c_void,
        progress: *const c_void,
        user_data: *mut c_void,
        cancel: *const c_void,
        err: *mut *mut c_void,
    ) -> i32;
    fn oxp_pipeline_free(pipeline: *mut c_void);
    fn oxp_run_create(
        pipeline: *mut c_void,
        options: *const c_void,
        run: *mut *mut c_void,
        err: *mut *mut c_void,
    ) -> i32;
    fn oxp_run_free(run: *mut c_void);
    fn oxp_run_append_tokens(run: *mut c_void, tokens: *const i32, count: u64, err: *mut *mut c_void) -> i32;
    fn oxp_run_generate(
        run: *mut c_void,
        finish_reason: *mut u32,
        on_event: *const c_void,
        user_data: *mut c_void,
        cancel: *const c_void,
        err: *mut *mut c_void,
    ) -> i32;
    fn oxp_run_tokens_copy(
        run: *mut c_void,
        tokens: *mut i32,
        capacity: u64,
        count: *mut u64,
        err: *mut *mut c_void,
    ) -> i32;
    fn oxp_error_free(error: *mut c_void);
}

/// Calls with an error object; that is freed, and the status must be one of the two.
fn call(what: &str, call: impl FnOnce(*mut *mut c_void) -> i32) -> bool {
    let mut error = null_mut();
    let status = call(&raw mut error);
    // SAFETY: an error that the call has made, or NULL.
    unsafe { oxp_error_free(error) };
    let planned = PLAN.replace(NONE);
    assert!([OK, OUT_OF_MEMORY].contains(&status), "{what}: {status}");
    assert!(status != OK || error.is_null(), "{what}");
    PLAN.set(planned);
    status == OK
}

const PROMPT: [i32; 3] = [3, 5, 2];
/// What follows them: see tests/pipeline/tiny_decoder.rs.
const ANSWER: usize = 4;

/// Opens a package, generates, and frees all: the tokens, if no call failed.
fn short_run(folder: &Path) -> Option<Vec<i32>> {
    let path = folder.as_os_str().as_encoded_bytes();
    let (mut options, mut runtime, mut pipeline, mut run) = (null_mut(), null_mut(), null_mut(), null_mut());
    let mut tokens = vec![0i32; 64];
    let mut count = 0;
    let text = |text: &'static str| (text.as_ptr().cast::<c_char>(), text.len() as u64);
    let (key, value) = (text("threads"), text("1"));
    let (steps, four) = (text("max_tokens"), text("4"));
    // SAFETY: handles and buffers live until they are freed below; what was not made is NULL.
    let good = unsafe {
        call("options", |err| {
            oxp_options_create(RUNTIME, &raw mut options, err)
        }) && call("set", |err| {
            oxp_options_set(options, key.0, key.1, value.0, value.1, err)
        }) && call("runtime", |err| {
            oxp_runtime_create(options, &raw mut runtime, null(), null_mut(), null(), err)
        }) && call("open", |err| {
            let out = &raw mut pipeline;
            let (path, len) = (path.as_ptr().cast(), path.len() as u64);
            oxp_pipeline_open(runtime, path, len, null(), out, null(), null_mut(), null(), err)
        }) && {
            oxp_options_free(options);
            options = null_mut();
            call("options", |err| oxp_options_create(4, &raw mut options, err))
        } && call("set", |err| {
            oxp_options_set(options, steps.0, steps.1, four.0, four.1, err)
        }) && call("run", |err| oxp_run_create(pipeline, options, &raw mut run, err))
            && call("append", |err| {
                oxp_run_append_tokens(run, PROMPT.as_ptr(), 3, err)
            })
            && {
                let generate = |err| oxp_run_generate(run, null_mut(), null(), null_mut(), null(), err);
                // What failed for want of memory goes on where it was.
                call("generate", generate) || call("generate again", generate)
            }
            && call("tokens", |err| {
                oxp_run_tokens_copy(run, tokens.as_mut_ptr(), 64, &raw mut count, err)
            })
    };
    // SAFETY: as above; NULL is ignored.
    unsafe {
        oxp_run_free(run);
        oxp_pipeline_free(pipeline);
        oxp_runtime_free(runtime);
        oxp_options_free(options);
    }
    tokens.truncate(count as usize);
    good.then_some(tokens)
}

/// A short run under a plan: whether all went well.
fn try_plan(folder: &Path, plan: Plan, expected: &[i32]) -> bool {
    // What is made once for all that come after, such as a longer table of handles, is made in the
    // first of three runs at the latest.
    let mut grown = Vec::new();
    for _ in 0..3 {
        let live = LIVE.get();
        REQUESTS.set(0);
        PLAN.set(plan);
        let tokens = short_run(folder);
        PLAN.set(NONE);
        if let Some(tokens) = &tokens {
            assert_eq!(tokens, expected, "{plan:?}");
        }
        let went_well = tokens.is_some();
        drop(tokens);
        assert_eq!(reserve::used(), 0, "{plan:?}");
        grown.push(LIVE.get() - live);
        if LIVE.get() == live {
            return went_well;
        }
    }
    panic!("{plan:?} leaves bytes behind: {grown:?}");
}

#[test]
fn every_failed_allocation_is_an_error_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    tiny_decoder::write(folder.path());
    let folder = folder.path();
    // What is made once and kept.
    let expected = short_run(folder).expect("there is memory");
    assert_eq!(expected.len(), PROMPT.len() + ANSWER);
    REQUESTS.set(0);
    short_run(folder).expect("there is memory");
    let requests = REQUESTS.get();
    assert!(requests > 100, "{requests}");

    let mut failed = 0;
    for from in 0..requests {
        let one = Plan {
            least: 0,
            from,
            count: 1,
        };
        failed += usize::from(!try_plan(folder, one, &expected));
    }
    assert!(failed > 0, "no failure of {requests} had an effect");
    // Large ones, from each on.
    for from in 0..20 {
        let large = Plan {
            least: 64 << 10,
            from,
            count: usize::MAX,
        };
        try_plan(folder, large, &expected);
    }
    // All, for a while and for ever.
    for count in [2, 10, 100, 1000, usize::MAX] {
        for from in (0..requests).step_by(13) {
            let all = Plan {
                least: 0,
                from,
                count,
            };
            try_plan(folder, all, &expected);
        }
    }
    assert_eq!(short_run(folder).as_deref(), Some(&expected[..]));
}
