//! Link arguments of the shared library: its name for the dynamic linker, that it stays
//! loaded, and that only its own functions are exported.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The tests in tests/capi compile C for the same target.
    println!(
        "cargo::rustc-env=OXP_TARGET={}",
        std::env::var("TARGET").unwrap_or_default()
    );
    let target_os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let arguments: &[&str] = match target_os.as_str() {
        "linux" | "android" | "freebsd" => &[
            // Programs ask for the ABI's version, not for a file name that changes.
            "-Wl,-soname,liboxpipe.so.0",
            // dlclose must not unmap code that threads of ONNX Runtime's, or a thread-local's
            // destructor, may still run.
            "-Wl,-z,nodelete",
            // A symbol that nobody defines is an error now, not when the host loads us.
            "-Wl,-z,defs",
            // A dependency's no_mangle functions stay inside.
            "-Wl,--exclude-libs,ALL",
        ],
        "macos" => &["-Wl,-install_name,@rpath/liboxpipe.0.dylib"],
        _ => &[],
    };
    // The runtime of a sanitizer is in the program, so that the library alone lacks its symbols.
    let is_instrumented = ["CARGO_CFG_FUZZING", "CARGO_CFG_SANITIZE"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    for argument in arguments {
        if is_instrumented && *argument == "-Wl,-z,defs" {
            continue;
        }
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
