//! Checks that must hold for any bytes that a client of the binlog server sends. There is one check per kind
//! of input.
//!
//! The fuzz targets under `fuzz/` call these checks, and `tests/fuzz_corpus_replay.rs` runs them on stored
//! and mutated inputs under `cargo test`. A check panics if the server would panic, or if an answer cannot be
//! sent. It also panics if an answer is too large for the size of the input, or if the server stores too much
//! data for the client.

mod client_statements;
mod dump_requests;
mod example_logs;

use tailwater_wire::Flavour;
use tailwater_wire::protocol::ErrPacket;

use crate::client_error::{ClientError, MESSAGE_BYTES_MAX};

/// A check for one input; it panics if an invariant is violated.
pub type ServerFuzzCheck = fn(data: &[u8]);

/// All checks, by the name of the fuzz target and of its corpus folder.
pub const TARGETS: &[(&str, ServerFuzzCheck)] =
    &[("dump_requests", dump_requests::check), ("client_statements", client_statements::check)];

/// Runs the check of a target.
///
/// # Panics
/// If an invariant is violated, or if there is no target with this name.
pub fn check(target: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, check) = found.unwrap_or_else(|| panic!("there is no fuzz target {target}"));
    check(data);
}

/// The first byte selects the flavour of the served log. Returns the flavour and the remaining bytes.
fn split_flavour(data: &[u8]) -> Option<(Flavour, &[u8])> {
    let (choice, rest) = data.split_first()?;
    Some((if choice & 1 == 0 { Flavour::MySql } else { Flavour::MariaDb }, rest))
}

/// The statements of an input, which are separated by zero bytes.
fn each_statement(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    data.split(|byte| *byte == 0)
}

/// Checks that an error has a number, a valid SQLSTATE and a text within the length limit, and that a client
/// can parse it without loss.
fn check_refusal(refusal: &ClientError) {
    assert_ne!(refusal.code, 0, "the error has no number: {refusal}");
    let state = refusal.sqlstate.as_bytes();
    assert!(state.len() == 5 && state.iter().all(u8::is_ascii_alphanumeric), "invalid SQLSTATE: {refusal}");
    assert!(!refusal.message.is_empty());
    assert!(
        refusal.message.len() <= MESSAGE_BYTES_MAX,
        "the error text has {} bytes: {refusal}",
        refusal.message.len()
    );
    let mut payload = Vec::new();
    refusal.packet().encode(&mut payload);
    assert_eq!(ErrPacket::parse(&payload), Ok(refusal.packet()));
}
