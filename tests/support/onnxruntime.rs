//! Finds the ONNX Runtime that tests run on.

use std::path::{Path, PathBuf};

/// `ORT_DYLIB_PATH`, or what scripts/fetch-onnxruntime.sh put into third_party/.
///
/// # Panics
/// When there is none: a test that needs the library must not pass without it.
pub fn library_path() -> PathBuf {
    if let Some(path) = std::env::var_os("ORT_DYLIB_PATH").filter(|path| !path.is_empty()) {
        return path.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let name = if cfg!(target_vendor = "apple") {
        "libonnxruntime.dylib"
    } else {
        "libonnxruntime.so"
    };
    let path = root.join("third_party/onnxruntime").join(name);
    assert!(
        path.exists(),
        "this test needs ONNX Runtime: run scripts/fetch-onnxruntime.sh, or set ORT_DYLIB_PATH"
    );
    path.canonicalize().unwrap()
}
