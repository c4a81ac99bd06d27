#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tailwater_session::server::login_fuzzing::check(data));
