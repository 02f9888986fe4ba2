//! A process has one ONNX Runtime: the first that was loaded, by whoever.
#![cfg(feature = "ort")]

use std::fs;
use std::path::Path;

use oxpipe::ort::{OrtLibrary, OrtSearch};
use oxpipe_test_support::onnxruntime::library_path;
use tempfile::TempDir;

fn by_option(path: &Path) -> OrtSearch {
    OrtSearch {
        option: Some(path.to_owned()),
        environment: None,
    }
}

/// One test, because what is loaded stays loaded.
#[test]
fn the_library_that_the_host_loaded_is_used_and_no_other() {
    let host = library_path().canonicalize().unwrap();
    let folder = TempDir::new().unwrap();
    let not_a_library = folder.path().join("text.so");
    fs::write(&not_a_library, "text").unwrap();
    OrtLibrary::load(&by_option(&not_a_library)).unwrap_err();

    // As a plugin host would: nothing global about it.
    let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL;
    // SAFETY: ONNX Runtime's initialisers are meant to run.
    let opened = unsafe { libloading::os::unix::Library::open(Some(&host), flags) }.unwrap();

    // A copy is another library, although it is the same program.
    let copy = folder.path().join("libonnxruntime.so.1");
    fs::copy(&host, &copy).unwrap();
    let before = OrtLibrary::load(&by_option(&copy)).unwrap_err().to_string();

    // The failures have spoiled nothing.
    let library = OrtLibrary::load(&OrtSearch::default()).unwrap();
    assert_eq!(library.path().canonicalize().unwrap(), host);
    assert!(library.version().starts_with("1."), "{}", library.version());

    // The same file, by other names.
    let link = folder.path().join("link.so");
    std::os::unix::fs::symlink(&host, &link).unwrap();
    for same in [&host, &link, host.parent().unwrap()] {
        let again = OrtLibrary::load(&by_option(same)).unwrap();
        assert_eq!(again.path(), library.path());
    }

    let after = OrtLibrary::load(&by_option(&copy)).unwrap_err().to_string();
    for message in [before, after] {
        for part in [
            copy.to_str().unwrap(),
            library.path().to_str().unwrap(),
            "ort_library",
        ] {
            assert!(message.contains(part), "\"{part}\" should be in: {message}");
        }
    }
    let environment = OrtSearch {
        option: None,
        environment: Some(copy),
    };
    let message = OrtLibrary::load(&environment).unwrap_err().to_string();
    assert!(message.contains("ORT_DYLIB_PATH"), "{message}");

    // A given path that is wrong is an error also when there is a library.
    let message = OrtLibrary::load(&by_option(Path::new("/nowhere/ort.so")))
        .unwrap_err()
        .to_string();
    assert!(message.contains("/nowhere/ort.so"), "{message}");
    let message = OrtLibrary::load(&by_option(&not_a_library)).unwrap_err();
    assert!(message.to_string().contains("text.so"), "{message}");

    // The host may let go of it; we do not.
    drop(opened);
    OrtLibrary::load(&OrtSearch::default()).unwrap();
}
