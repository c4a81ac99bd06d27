//! What must hold for any bytes whatever: one check per foreign format.
//!
//! The fuzz targets under `fuzz/` call these, and `tests/corpus.rs` replays the kept corpus through them with a plain
//! `cargo test`. A check panics when a parser does, when something read cannot be written and read back as the same,
//! or when a result is larger than its input and the documented limits allow.

mod events;
mod gtid_sets;
mod json;
mod packets;
mod print;
mod redact;
mod rows;
mod stream;
mod transaction_stream;

/// A check: panics if a promise is broken, whatever `data` is.
pub type Check = fn(data: &[u8]);

/// Every check by the name of its fuzz target and of its folder of kept inputs.
pub const TARGETS: &[(&str, Check)] = &[
    ("events", events::check),
    ("gtid_sets", gtid_sets::check),
    ("json", json::check),
    ("packets", packets::check),
    ("print", print::check),
    ("redact", redact::check),
    ("rows", rows::check),
    ("transaction_stream", transaction_stream::check),
];

/// Runs the check of a target.
///
/// # Panics
/// If a promise is broken, or there is no such target.
pub fn check(target: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, check) = found.unwrap_or_else(|| panic!("no fuzz target {target}"));
    check(data);
}

/// The first byte picks what the rest is read as, so that one target covers a family of formats.
fn split_mode(data: &[u8], modes: u8) -> Option<(u8, &[u8])> {
    data.split_first().map(|(mode, rest)| (mode % modes, rest))
}

/// The parts before and after the first zero byte, or all and nothing.
fn split_at_nul(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[]),
    }
}
