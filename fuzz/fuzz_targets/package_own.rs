#![no_main]

use oxpipe_fuzz::package;

libfuzzer_sys::fuzz_target!(init: oxpipe_fuzz::start(), |data: &[u8]| package::run(data, package::OWN));
