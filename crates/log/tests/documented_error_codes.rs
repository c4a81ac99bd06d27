//! Checks that the reference page describes every error code.

use std::io;
use std::path::PathBuf;

use tailwater_log::LogError;
use tailwater_wire::{Flavour, WireError};

#[test]
fn every_error_code_is_documented() {
    let page = include_str!("../../../docs/reference/errors.md");
    let path = || PathBuf::from("log");
    let source = || io::Error::other("broken");
    let (action, reason) = ("read", || "a reason".to_owned());
    let errors = [
        LogError::Locked { path: path() },
        LogError::Io { action, path: path(), source: source() },
        LogError::Corrupt { path: path(), offset: 4, reason: reason() },
        LogError::DiskFull { action, path: path(), source: source() },
        LogError::Write { action, path: path(), source: source() },
        LogError::Poisoned { path: path(), reason: reason() },
        LogError::FormatVersion { path: path(), found: 2, known: 1 },
        LogError::FlavourMismatch { path: path(), found: Flavour::MySql, expected: Flavour::MariaDb },
        LogError::Event {
            source_file: "binlog.000001".into(),
            source_position: 4,
            source: WireError::malformed("event", "a reason"),
        },
        LogError::Sequence { path: path(), reason: reason() },
        LogError::Purged { path: path(), segment: 1, first: 2 },
        LogError::NoSuchPosition { path: path(), segment: 1, offset: 5, reason: reason() },
        LogError::NoLog { path: path() },
        LogError::Archive { action, path: path(), cause: source() },
        LogError::ArchiveDiffers { object: path(), reason: reason() },
        LogError::StillNeeded { path: path(), segment: 1, reason: reason() },
    ];
    for error in &errors {
        // This match makes the compiler report a new variant. A new variant must also be added to the list of
        // errors in this test.
        match error {
            LogError::Locked { .. }
            | LogError::Io { .. }
            | LogError::Corrupt { .. }
            | LogError::DiskFull { .. }
            | LogError::Write { .. }
            | LogError::Poisoned { .. }
            | LogError::FormatVersion { .. }
            | LogError::FlavourMismatch { .. }
            | LogError::Event { .. }
            | LogError::Sequence { .. }
            | LogError::Purged { .. }
            | LogError::NoSuchPosition { .. }
            | LogError::NoLog { .. }
            | LogError::Archive { .. }
            | LogError::ArchiveDiffers { .. }
            | LogError::StillNeeded { .. } => {}
        }
        let row = format!("| {} | ", error.code());
        assert_eq!(page.matches(&row).count(), 1, "docs/reference/errors.md has no row {row}");
    }
    assert_eq!(
        page.matches("| TW-LOG-").count(),
        errors.len(),
        "errors.md describes codes that no error has"
    );
}
