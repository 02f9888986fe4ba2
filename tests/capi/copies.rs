//! That a run through the C functions copies no byte at the seam. Called from here and not
//! from C, because the counter is Rust's.

#![cfg(debug_assertions)] // release builds do not count

use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};

use oxpipe::component::copied_bytes;

use crate::programs::{backends, model_folder, path};

#[repr(C)]
struct NamedIn {
    name: *const c_char,
    name_len: u64,
    struct_size: u32,
    dtype: u32,
    data: *const c_void,
    byte_len: u64,
    shape: *const i64,
    rank: u32,
    flags: u32,
}

#[repr(C)]
struct NamedOut {
    name: *const c_char,
    name_len: u64,
    struct_size: u32,
    dtype: u32,
    data: *mut c_void,
    capacity: u64,
    byte_len: u64,
    shape: *mut i64,
    shape_capacity: u32,
    rank: u32,
}

unsafe extern "C" {
    fn oxp_runtime_create(
        options: *const c_void,
        runtime: *mut *mut c_void,
        log: *const c_void,
        user_data: *mut c_void,
        free_user_data: *const c_void,
        err: *mut *mut c_void,
    ) -> i32;
    fn oxp_options_create(kind: u32, options: *mut *mut c_void, err: *mut *mut c_void) -> i32;
    fn oxp_options_set(
        options: *mut c_void,
        key: *const c_char,
        key_len: u64,
        value: *const c_char,
        value_len: u64,
        err: *mut *mut c_void,
    ) -> i32;
    fn oxp_session_open(
        runtime: *mut c_void,
        path: *const c_char,
        path_len: u64,
        options: *const c_void,
        session: *mut *mut c_void,
        cancel: *const c_void,
        err: *mut *mut c_void,
    ) -> i32;
    fn oxp_session_run(
        session: *mut c_void,
        inputs: *const NamedIn,
        input_count: u64,
        outputs: *mut NamedOut,
        output_count: u64,
        cancel: *const c_void,
        err: *mut *mut c_void,
    ) -> i32;
}

const RUNTIME_OPTIONS: u32 = 1;
const SESSION_OPTIONS: u32 = 2;
const FLOAT: u32 = 1;

fn options(kind: u32, key: &str, value: &str) -> *mut c_void {
    let mut options = null_mut();
    // SAFETY: the arguments are as the header says; both strings have their lengths.
    unsafe {
        assert_eq!(oxp_options_create(kind, &raw mut options, null_mut()), 0);
        let (key_ptr, value_ptr) = (key.as_ptr().cast(), value.as_ptr().cast());
        let (key_len, value_len) = (key.len() as u64, value.len() as u64);
        let set = oxp_options_set(options, key_ptr, key_len, value_ptr, value_len, null_mut());
        assert_eq!(set, 0, "{key}={value}");
    }
    options
}

/// A session of affine.onnx (y = 2 x + 1). It stays open: a test's process ends soon.
fn session(backend: &str) -> *mut c_void {
    let mut runtime = null_mut();
    #[cfg(feature = "ort")]
    let library = crate::programs::onnx_runtime();
    #[cfg(feature = "ort")]
    let settings = options(RUNTIME_OPTIONS, "ort_library", path(&library));
    #[cfg(not(feature = "ort"))]
    let settings = options(RUNTIME_OPTIONS, "threads", "1");
    let model = model_folder().join("affine.onnx");
    let model = CString::new(path(&model)).expect("a plain path");
    let mut session = null_mut();
    // SAFETY: the arguments are as the header says.
    unsafe {
        let created = oxp_runtime_create(settings, &raw mut runtime, null(), null_mut(), null(), null_mut());
        assert_eq!(created, 0);
        let settings = options(SESSION_OPTIONS, "backend", backend);
        let len = model.as_bytes().len() as u64;
        let opened = oxp_session_open(
            runtime,
            model.as_ptr(),
            len,
            settings,
            &raw mut session,
            null(),
            null_mut(),
        );
        assert_eq!(opened, 0, "{backend}");
    }
    session
}

/// Runs it once on 4 floats and gives the bytes that were copied.
fn run(session: *mut c_void, x: *const c_void, y: *mut c_void) -> u64 {
    let (dims, mut y_dims) = ([1i64, 4], [0i64; 2]);
    let input = NamedIn {
        name: c"x".as_ptr(),
        name_len: 1,
        struct_size: 40,
        dtype: FLOAT,
        data: x,
        byte_len: 16,
        shape: dims.as_ptr(),
        rank: 2,
        flags: 0,
    };
    let mut output = NamedOut {
        name: c"y".as_ptr(),
        name_len: 1,
        struct_size: 48,
        dtype: 0,
        data: y,
        capacity: 16,
        byte_len: 0,
        shape: y_dims.as_mut_ptr(),
        shape_capacity: 2,
        rank: 0,
    };
    let before = copied_bytes().expect("debug builds count");
    // SAFETY: the descriptors point to 16 bytes each (the caller of this function sees to it)
    // and to two dims.
    let status = unsafe { oxp_session_run(session, &input, 1, &mut output, 1, null(), null_mut()) };
    assert_eq!(status, 0);
    assert_eq!((output.byte_len, output.rank, y_dims), (16, 2, [1, 4]));
    copied_bytes().expect("debug builds count") - before
}

#[test]
fn a_run_into_buffers_copies_nothing_and_an_unaligned_input_once() {
    for backend in backends() {
        let session = session(backend);
        let x = [1.0f32, 2.0, 3.0, 4.0];
        let mut y = [0.0f32; 4];
        for _ in 0..3 {
            let copied = run(session, x.as_ptr().cast(), y.as_mut_ptr().cast());
            assert_eq!(copied, 0, "{backend}");
            assert_eq!(y, [3.0, 5.0, 7.0, 9.0], "{backend}");
        }

        // The control: the counter sees a copy where the header says that there is one.
        let mut shifted = [0u8; 32];
        let start = 1 + shifted.as_ptr().align_offset(16);
        for (place, byte) in shifted[start..]
            .iter_mut()
            .zip(x.iter().flat_map(|value| value.to_le_bytes()))
        {
            *place = byte;
        }
        y.fill(0.0);
        let copied = run(session, shifted[start..].as_ptr().cast(), y.as_mut_ptr().cast());
        assert_eq!(copied, 16, "{backend}");
        assert_eq!(y, [3.0, 5.0, 7.0, 9.0], "{backend}");
    }
}
