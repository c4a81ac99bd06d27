#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tailwater_log::fuzzing::check(data));
