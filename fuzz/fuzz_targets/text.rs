#![no_main]

libfuzzer_sys::fuzz_target!(init: oxpipe_fuzz::start(), |data: &[u8]| oxpipe_fuzz::text::run(data));
