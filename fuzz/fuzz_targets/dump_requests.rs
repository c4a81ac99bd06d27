#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tailwater_relay::fuzzing::check("dump_requests", data));
