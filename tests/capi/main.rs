//! The C interface, as C and C++ see it: the header, the exported symbols, and programs in
//! capi_tests/ that are compiled and run.

mod compiler;
mod header;
