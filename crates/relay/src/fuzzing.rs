//! What must hold for any bytes whatever that a client of the binlog server sends: one check per kind of question.
//!
//! The fuzz targets under `fuzz/` call these, and `tests/fuzzed.rs` replays the kept inputs, and changed ones, with a
//! plain `cargo test`. A check panics when the server would, when an answer is none that can be sent, or when an answer
//! or the client's session is larger than what the client has sent can account for.

mod dump_requests;
mod examples;
mod statements;

use tailwater_wire::Flavour;
use tailwater_wire::protocol::ErrPacket;

use crate::serve::client_error::{ClientError, MESSAGE_BYTES_MAX};

/// A check: panics if a promise is broken, whatever `data` is.
pub type Check = fn(data: &[u8]);

/// Every check by the name of its fuzz target and of its folder of kept inputs.
pub const TARGETS: &[(&str, Check)] =
    &[("dump_requests", dump_requests::check), ("statements", statements::check)];

/// Runs the check of a target.
///
/// # Panics
/// If a promise is broken, or there is no such target.
pub fn check(target: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, check) = found.unwrap_or_else(|| panic!("no fuzz target {target}"));
    check(data);
}

/// The first byte picks whose log is served; what is left.
fn split_flavour(data: &[u8]) -> Option<(Flavour, &[u8])> {
    let (choice, rest) = data.split_first()?;
    Some((if choice & 1 == 0 { Flavour::MySql } else { Flavour::MariaDb }, rest))
}

/// Statements of an input, one after the other. None of them has the zero byte that stands between them.
fn each_statement(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    data.split(|byte| *byte == 0)
}

/// A refusal has all that clients look at, and what it says arrives whole.
fn check_refusal(refusal: &ClientError) {
    assert_ne!(refusal.code, 0, "{refusal}");
    let state = refusal.sqlstate.as_bytes();
    assert!(state.len() == 5 && state.iter().all(u8::is_ascii_alphanumeric), "{refusal}");
    assert!(!refusal.message.is_empty());
    assert!(refusal.message.len() <= MESSAGE_BYTES_MAX, "{} bytes: {refusal}", refusal.message.len());
    let mut payload = Vec::new();
    refusal.packet().encode(&mut payload);
    assert_eq!(ErrPacket::parse(&payload), Ok(refusal.packet()));
}
