//! Packages that tests make, as folders: what tests/check_with_onnxruntime.py reads.

use std::fs;
use std::path::PathBuf;

/// Writes a package, and what is asked of it and expected, into an empty folder `name` in the one
/// that the environment variable OXP_WRITE_FIXTURES names.
pub fn write<'a>(name: &str, files: impl IntoIterator<Item = (&'a str, &'a [u8])>, cases: &str) -> PathBuf {
    let folder = std::env::var_os("OXP_WRITE_FIXTURES").expect("OXP_WRITE_FIXTURES names a folder");
    let folder = PathBuf::from(folder).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("an old fixture can be removed");
    }
    fs::create_dir_all(&folder).expect("a folder can be made");
    for (file, bytes) in files {
        fs::write(folder.join(file), bytes).expect("a file can be written");
    }
    fs::write(folder.join("cases.json"), cases).expect("a file can be written");
    folder
}
