//! Every allocation of a short run of the C interface fails, one at a time, and many at once: calls end
//! with OXP_ERR_OUT_OF_MEMORY or as if nothing had been, nothing aborts, and nothing is left behind.
//! A test binary of its own, because of its allocator: the one of the shared library, in front of one
//! that refuses what a test says.
#![cfg(feature = "native")]

#[path = "capi/models.rs"]
#[allow(dead_code)]
mod models;
#[path = "pipeline/tiny_decoder.rs"]
mod tiny_decoder;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use oxpipe::reserve::{self, Reserve};
use oxpipe_test_support::counting_allocator::{Counting, live_bytes};
use oxpipe_test_support::wav::wav;

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
        // SAFETY: the caller's promise is handed on.
        unsafe { Counting.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { Counting.dealloc(ptr, layout) }
    }
}

const OK: i32 = 0;
const INTERNAL: i32 = -1;
const OUT_OF_MEMORY: i32 = -2;
const RUNTIME: u32 = 1;
const RUN: u32 = 4;

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
    fn oxp_run_append_text(
        run: *mut c_void,
        text: *const c_char,
        text_len: u64,
        add_special: i32,
        token_count: *mut u64,
        err: *mut *mut c_void,
    ) -> i32;
    fn oxp_run_add_image(
        run: *mut c_void,
        data: *const c_void,
        data_len: u64,
        cancel: *const c_void,
        err: *mut *mut c_void,
    ) -> i32;
    fn oxp_run_set_audio(
        run: *mut c_void,
        data: *const c_void,
        data_len: u64,
        cancel: *const c_void,
        err: *mut *mut c_void,
    ) -> i32;
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
    fn oxp_error_get_message(error: *const c_void, len: *mut u64) -> *const c_char;
    fn oxp_error_free(error: *mut c_void);
}

/// Calls with an error object; that is freed, and the status must be one of the two.
fn call(what: &str, call: impl FnOnce(*mut *mut c_void) -> i32) -> bool {
    let mut error = null_mut();
    let status = call(&raw mut error);
    let planned = PLAN.replace(NONE);
    if ![OK, OUT_OF_MEMORY].contains(&status) {
        // SAFETY: an error that the call has made, or NULL; its message ends with a NUL.
        let message = unsafe { CStr::from_ptr(oxp_error_get_message(error, null_mut())) };
        panic!(
            "{what}: {status} under {planned:?}, {}",
            message.to_string_lossy()
        );
    }
    // SAFETY: as above.
    unsafe { oxp_error_free(error) };
    assert!(status != OK || error.is_null(), "{what}");
    PLAN.set(planned);
    status == OK
}

/// The reserve is one for all threads, and each test looks at all of it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What a run gets before it generates; whether no call failed.
type Feed<'a> = &'a dyn Fn(*mut c_void) -> bool;

/// How many tokens follow.
const ANSWER: usize = 4;

fn append(run: *mut c_void, tokens: &[i32]) -> bool {
    call("append", |err| {
        // SAFETY: the run is live, and there are as many tokens.
        unsafe { oxp_run_append_tokens(run, tokens.as_ptr(), tokens.len() as u64, err) }
    })
}

/// Handles, and numbers of requests, of a story.
#[derive(Default)]
struct Story {
    options: Handle,
    runtime: Handle,
    pipeline: Handle,
    run: Handle,
    /// Requests until the package was open.
    opened: usize,
}

/// A handle or NULL.
struct Handle(*mut c_void);

impl Default for Handle {
    fn default() -> Self {
        Handle(null_mut())
    }
}

impl Story {
    fn options(&mut self, kind: u32, key: &'static str, value: &'static str) -> bool {
        // SAFETY: here and below handles and buffers live until they are freed; what was not made is NULL.
        unsafe {
            oxp_options_free(self.options.0);
            let out = &raw mut self.options.0;
            call("options", |err| oxp_options_create(kind, out, err))
                && call("set", |err| {
                    let (key_len, value_len) = (key.len() as u64, value.len() as u64);
                    let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
                    oxp_options_set(self.options.0, key, key_len, value, value_len, err)
                })
        }
    }

    fn open(&mut self, folder: &Path) -> bool {
        let path = folder.as_os_str().as_encoded_bytes();
        // SAFETY: as above.
        let good = self.options(RUNTIME, "threads", "1")
            && unsafe {
                call("runtime", |err| {
                    let out = &raw mut self.runtime.0;
                    oxp_runtime_create(self.options.0, out, null(), null_mut(), null(), err)
                }) && call("open", |err| {
                    let (runtime, out) = (self.runtime.0, &raw mut self.pipeline.0);
                    let (path, len) = (path.as_ptr().cast(), path.len() as u64);
                    oxp_pipeline_open(runtime, path, len, null(), out, null(), null_mut(), null(), err)
                })
            };
        self.opened = REQUESTS.get();
        good
    }

    fn start(&mut self) -> bool {
        // SAFETY: as above.
        self.options(RUN, "max_tokens", "4")
            && call("run", |err| unsafe {
                oxp_run_create(self.pipeline.0, self.options.0, &raw mut self.run.0, err)
            })
    }

    fn generate(&mut self, tokens: &mut Vec<i32>) -> bool {
        let run = self.run.0;
        // SAFETY: as above.
        let generate = |err| unsafe { oxp_run_generate(run, null_mut(), null(), null_mut(), null(), err) };
        let mut count = 0;
        // What failed for want of memory goes on where it was.
        let good = (call("generate", generate) || call("generate again", generate))
            && call("tokens", |err| unsafe {
                let room = tokens.len() as u64;
                oxp_run_tokens_copy(run, tokens.as_mut_ptr(), room, &raw mut count, err)
            });
        tokens.truncate(count as usize);
        good
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        // SAFETY: NULL is ignored, and nobody has these handles any more.
        unsafe {
            oxp_run_free(self.run.0);
            oxp_pipeline_free(self.pipeline.0);
            oxp_runtime_free(self.runtime.0);
            oxp_options_free(self.options.0);
        }
    }
}

/// Opens a package, feeds a run, generates, and frees all: the tokens, if no call failed, and how many
/// requests it took to open.
fn short_run(folder: &Path, feed: Feed<'_>) -> (Option<Vec<i32>>, usize) {
    let mut tokens = vec![0i32; 64];
    let mut story = Story::default();
    let good = story.open(folder) && story.start() && feed(story.run.0) && story.generate(&mut tokens);
    (good.then_some(tokens), story.opened)
}

/// A short run under a plan: whether all went well.
fn try_plan(folder: &Path, feed: Feed<'_>, plan: Plan, expected: &[i32]) -> bool {
    // What is made once for all that come after, such as a longer table of handles, is made in the
    // first of three runs at the latest.
    let mut grown = Vec::new();
    for _ in 0..3 {
        let live = live_bytes();
        REQUESTS.set(0);
        PLAN.set(plan);
        let (tokens, _) = short_run(folder, feed);
        PLAN.set(NONE);
        if let Some(tokens) = &tokens {
            assert_eq!(tokens, expected, "{plan:?}");
        }
        let went_well = tokens.is_some();
        drop(tokens);
        assert_eq!(reserve::used(), 0, "{plan:?}");
        grown.push(live_bytes() - live);
        if live_bytes() == live {
            return went_well;
        }
    }
    panic!("{plan:?} leaves bytes behind: {grown:?}");
}

/// Requests of a run fail: each behind the opening of the package, and every `step`-th of the opening;
/// several at once, large ones, and all.
fn check(folder: &Path, step: usize, feed: Feed<'_>, expected: &[i32]) {
    // What is made once and kept.
    let (tokens, _) = short_run(folder, feed);
    assert_eq!(tokens.as_deref(), Some(expected));
    REQUESTS.set(0);
    let (_, opened) = short_run(folder, feed);
    let requests = REQUESTS.get();
    assert!(opened > 50 && requests > opened + 50, "{opened} and {requests}");

    let mut failed = 0;
    for from in (0..opened).step_by(step).chain(opened..requests) {
        let one = Plan {
            least: 0,
            from,
            count: 1,
        };
        failed += usize::from(!try_plan(folder, feed, one, expected));
    }
    assert!(failed > 0, "no failure of {requests} had an effect");
    // Large ones, from each on.
    for from in 0..20 {
        let large = Plan {
            least: 64 << 10,
            from,
            count: usize::MAX,
        };
        try_plan(folder, feed, large, expected);
    }
    // All, for a while and for ever.
    for count in [2, 10, 100, 1000, usize::MAX] {
        for from in (0..requests).step_by(13 * step) {
            let all = Plan {
                least: 0,
                from,
                count,
            };
            try_plan(folder, feed, all, expected);
        }
    }
    assert_eq!(short_run(folder, feed).0.as_deref(), Some(expected));
}

/// A prompt and what follows it: see tests/pipeline/tiny_decoder.rs.
fn answered(prompt: &[i32]) -> Vec<i32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..ANSWER {
        tokens.push(tokens.iter().sum::<i32>() % 8);
    }
    tokens
}

#[test]
fn of_a_run_of_tokens_it_is_an_error_or_nothing() {
    let _alone = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().unwrap();
    tiny_decoder::write(folder.path());
    let prompt = [3, 5, 2];
    check(folder.path(), 1, &|run| append(run, &prompt), &answered(&prompt));
}

#[test]
fn of_encoding_a_text_it_is_an_error_or_nothing() {
    let _alone = ONE_AT_A_TIME.lock();
    const TOKENIZER: &str = r#"{
      "version": "1.0",
      "added_tokens": [
        {"id": 4, "content": "<s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false,
         "normalized": false}],
      "normalizer": {"type": "NFC"},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
      "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
      "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "abc": 5, "Ġab": 6, "Ġccba": 3}}
    }"#;
    let folder = tempfile::tempdir().unwrap();
    tiny_decoder::write(folder.path());
    std::fs::write(folder.path().join("tokenizer.json"), TOKENIZER).unwrap();
    let text = "<s>abc ab ccba";
    let feed = |run| {
        call("text", |err| {
            let (text, len) = (text.as_ptr().cast(), text.len() as u64);
            // SAFETY: the run is live, and the text has as many bytes.
            unsafe { oxp_run_append_text(run, text, len, 0, null_mut(), err) }
        })
    };
    check(folder.path(), 23, &feed, &answered(&[4, 5, 6, 3]));
}

#[test]
fn of_decoding_images_and_sound_it_is_an_error_or_nothing() {
    let _alone = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().unwrap();
    models::write_media_package(folder.path());
    // Its largest sample, a half, adds four to each token.
    let sound = wav(8000, &[0, 1 << 14, -(1 << 14), 100]);
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native_images");
    for name in ["gray.png", "420.jpg", "palette.bmp"] {
        let image = std::fs::read(images.join(name)).unwrap();
        let feed = |run| {
            // SAFETY: the run is live, and the files have as many bytes.
            call("image", |err| unsafe {
                oxp_run_add_image(run, image.as_ptr().cast(), image.len() as u64, null(), err)
            }) && call("sound", |err| unsafe {
                oxp_run_set_audio(run, sound.as_ptr().cast(), sound.len() as u64, null(), err)
            }) && append(run, &[6, 2])
        };
        // What the image adds is for other tests: capi_tests/media.c.
        let (tokens, _) = short_run(folder.path(), &feed);
        let tokens = tokens.expect("there is memory");
        assert_eq!(
            (&tokens[..3], tokens.len()),
            (&[5, 5, 2][..], 3 + ANSWER),
            "{name}"
        );
        check(folder.path(), 101, &feed, &tokens);
    }
}

/// A panic that is caught at the boundary leaves nothing behind, not even its text.
#[test]
fn a_panic_leaves_nothing_behind() {
    let _alone = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().unwrap();
    tiny_decoder::write(folder.path());
    let mut story = Story::default();
    assert!(story.open(folder.path()));
    // What is made once is made in the first round, and other threads of the test program end some time.
    let mut grown = Vec::new();
    for _ in 0..10 {
        let before = live_bytes();
        assert!(story.options(RUN, "test_panic", "1"));
        let (mut error, mut run) = (null_mut(), null_mut());
        // SAFETY: the pipeline and the run are live, and all is freed once.
        let status = unsafe {
            assert_eq!(
                oxp_run_create(story.pipeline.0, story.options.0, &raw mut run, null_mut()),
                OK
            );
            assert!(append(run, &[3, 5, 2]));
            let status = oxp_run_generate(run, null_mut(), null(), null_mut(), null(), &raw mut error);
            oxp_error_free(error);
            oxp_run_free(run);
            oxp_options_free(story.options.0);
            story.options = Handle::default();
            status
        };
        assert_eq!(status, INTERNAL);
        grown.push(live_bytes() - before);
    }
    assert!(grown.contains(&0), "{grown:?}");
}
