#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tailwater_binlog_server::fuzzing::check("client_statements", data));
