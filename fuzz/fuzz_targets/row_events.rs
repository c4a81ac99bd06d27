#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tailwater_wire::fuzzing::check("row_events", data));
