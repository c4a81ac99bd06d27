//! The checks of the fuzz targets: properties that hold for arbitrary bytes, one check per format.
//!
//! The fuzz targets under `fuzz/` call these checks, and `tests/fuzz_corpus_replay.rs` replays the corpus
//! with a plain `cargo test`. A check panics if a parser panics, if parsed data does not survive writing and
//! reading, or if a result exceeds the documented limits.

mod binary_json;
mod binlog_events;
mod event_printer;
mod gtid_sets;
mod input_to_event_stream;
mod protocol_packets;
mod row_events;
mod sql_redaction;
mod transaction_stream;

/// The check of one target. It panics if a property does not hold for `data`.
pub type FuzzCheck = fn(data: &[u8]);

/// Every check, with the name of its fuzz target, which is also the name of its corpus folder.
pub const TARGETS: &[(&str, FuzzCheck)] = &[
    ("binlog_events", binlog_events::check),
    ("gtid_sets", gtid_sets::check),
    ("binary_json", binary_json::check),
    ("protocol_packets", protocol_packets::check),
    ("event_printer", event_printer::check),
    ("sql_redaction", sql_redaction::check),
    ("row_events", row_events::check),
    ("transaction_stream", transaction_stream::check),
];

/// Runs the check of a target.
///
/// # Panics
/// If a property does not hold, or the target does not exist.
pub fn check(target: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, check) = found.unwrap_or_else(|| panic!("there is no fuzz target {target}"));
    check(data);
}

/// Splits off the first byte of the input. This byte selects the format of the rest, so one target covers a
/// family of formats.
fn split_mode(data: &[u8], modes: u8) -> Option<(u8, &[u8])> {
    data.split_first().map(|(mode, rest)| (mode % modes, rest))
}

/// Returns the parts before and after the first zero byte. Without a zero byte the second part is empty.
fn split_at_nul(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[]),
    }
}
