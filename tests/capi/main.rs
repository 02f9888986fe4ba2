//! The C interface, as C and C++ see it: the header, the exported symbols, and programs in
//! capi_tests/ that are compiled and run.
#![cfg(unix)]

mod abi;
mod compiler;
mod copies;
mod cpp;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod csharp;
mod csharp_source;
mod example_packages;
mod examples;
mod exports;
mod fixtures;
mod header;
mod misuse;
mod models;
mod packages;
mod programs;
mod unload;
