//! Compares the error codes with docs/reference/errors.md, which documents them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tailwater_session::{ServerError, SessionError};
use tailwater_tables::{BulkError, ResumeHint};

#[test]
fn every_code_is_documented() {
    let page = include_str!("../../../docs/reference/errors.md");
    let text = || "a text".to_owned();
    let path = || PathBuf::from("dump/manifest.json");
    let refusal = ServerError { number: 1064, sql_state: text(), message: text().into() };
    let denied = refusal.clone();
    let errors = [
        BulkError::File { action: "write", path: path(), source: io::Error::other("a reason") },
        BulkError::Damaged { path: path(), reason: text() },
        BulkError::NewerFormat { path: path(), found: 2, known: 1 },
        BulkError::Busy { path: path() },
        BulkError::UnexpectedAnswer { table: text(), reason: text() },
        BulkError::RowCountMismatch { table: text(), reason: text() },
        BulkError::NoSnapshot { reasons: text() },
        BulkError::WritersBlocked { waited: Duration::from_millis(1) },
        BulkError::SnapshotMismatch { tries: 3 },
        BulkError::SchemaChanged { reason: text() },
        BulkError::SnapshotLost { server: text() },
        BulkError::LongRunningStatement { id: 1, seconds: 2 },
        BulkError::FolderNotEmpty { path: path() },
        BulkError::Interrupted,
        BulkError::ResumeImpossible { what: text(), reason: text() },
        BulkError::NotFound { what: text(), server: text() },
        BulkError::DefinitionHidden { object: text() },
        BulkError::TablesExist { server: text(), count: 1, first: text() },
        BulkError::InterruptedLoad { server: text(), hint: ResumeHint::Resume },
        BulkError::LoadInProgress { server: text() },
        BulkError::IncompleteDump { path: path(), tables: 1 },
        BulkError::MixedSnapshots { path: path(), points: 2 },
        BulkError::DefinitionRejected {
            what: text(),
            path: path(),
            statement: text(),
            error: Box::new(refusal.clone()),
            hint: ResumeHint::Resume,
        },
        BulkError::RowsRejected {
            table: text(),
            path: path(),
            error: Box::new(SessionError::LoadBody),
            hint: ResumeHint::Resume,
        },
        BulkError::RowExceedsPacket { table: text(), path: path(), bytes_max: 1 },
        BulkError::PartialLoad { table: text(), path: path(), forget: text() },
        BulkError::TablesDropped { server: text(), count: 1, first: text() },
        BulkError::RowsAltered { table: text(), path: path(), warnings: 1, first: text().into() },
        BulkError::RowsMissing { table: text(), path: path(), found: 1, wanted: 2 },
        BulkError::RowFormatUnsupported { path: path(), format: "csv" },
        BulkError::ForeignDump { path: path(), tool: "mydumper", reason: text() },
        BulkError::InsertsUnsupported { table: text() },
        BulkError::AccountsUnavailable { reason: text() },
        BulkError::FlavourMismatch { what: text(), reason: text() },
        BulkError::StreamInterrupted,
        BulkError::CopyInterrupted,
        BulkError::GtidState { reason: text() },
        BulkError::LocalInfileOff { server: text() },
        BulkError::TargetBehind { target: text(), seconds: 1, position: text() },
        BulkError::SyncUnknown { target: text(), reason: text() },
        BulkError::RowTooLong { table: text(), server: text(), count: 1 },
        BulkError::StateFileExists { path: path() },
        BulkError::StateMismatch { path: path(), reason: text() },
        BulkError::SameServer { server: text() },
        BulkError::InterruptedWithoutState,
        BulkError::RepairDenied { server: text(), error: Box::new(refusal.clone()), advice: "grant it" },
        BulkError::IndexesRejected { table: text(), error: Box::new(refusal), hint: ResumeHint::Resume },
        BulkError::BinaryUnsupported { reason: text() },
        BulkError::BinaryFailed { what: text(), reason: text(), left: text() },
        BulkError::RecipientDown { server: text(), seconds: 1, reason: text() },
        BulkError::BinaryInterrupted { left: text() },
        BulkError::NothingSelected { server: text() },
        BulkError::MissingPrivilege { what: text(), server: text(), lacking: text(), instead: "" },
        BulkError::BinlogFormat { server: text(), privilege: "X", error: Box::new(denied) },
        BulkError::EngineMissing { server: text(), engine: text(), table: text(), path: path() },
    ];
    for error in &errors {
        // If a new variant is missing here, this match fails to compile. Add the variant to the list of
        // errors in this test, too.
        match error {
            BulkError::File { .. }
            | BulkError::PartialLoad { .. }
            | BulkError::TablesDropped { .. }
            | BulkError::BinaryUnsupported { .. }
            | BulkError::BinaryFailed { .. }
            | BulkError::RecipientDown { .. }
            | BulkError::BinaryInterrupted { .. }
            | BulkError::NothingSelected { .. }
            | BulkError::MissingPrivilege { .. }
            | BulkError::BinlogFormat { .. }
            | BulkError::EngineMissing { .. }
            | BulkError::Damaged { .. }
            | BulkError::NewerFormat { .. }
            | BulkError::Busy { .. }
            | BulkError::UnexpectedAnswer { .. }
            | BulkError::RowCountMismatch { .. }
            | BulkError::NoSnapshot { .. }
            | BulkError::WritersBlocked { .. }
            | BulkError::SnapshotMismatch { .. }
            | BulkError::SchemaChanged { .. }
            | BulkError::SnapshotLost { .. }
            | BulkError::LongRunningStatement { .. }
            | BulkError::FolderNotEmpty { .. }
            | BulkError::Interrupted
            | BulkError::ResumeImpossible { .. }
            | BulkError::NotFound { .. }
            | BulkError::DefinitionHidden { .. }
            | BulkError::TablesExist { .. }
            | BulkError::InterruptedLoad { .. }
            | BulkError::LoadInProgress { .. }
            | BulkError::IncompleteDump { .. }
            | BulkError::MixedSnapshots { .. }
            | BulkError::DefinitionRejected { .. }
            | BulkError::RowsRejected { .. }
            | BulkError::RowExceedsPacket { .. }
            | BulkError::RowsAltered { .. }
            | BulkError::RowsMissing { .. }
            | BulkError::RowFormatUnsupported { .. }
            | BulkError::ForeignDump { .. }
            | BulkError::InsertsUnsupported { .. }
            | BulkError::AccountsUnavailable { .. }
            | BulkError::FlavourMismatch { .. }
            | BulkError::StreamInterrupted
            | BulkError::CopyInterrupted
            | BulkError::GtidState { .. }
            | BulkError::LocalInfileOff { .. }
            | BulkError::TargetBehind { .. }
            | BulkError::SyncUnknown { .. }
            | BulkError::RowTooLong { .. }
            | BulkError::StateFileExists { .. }
            | BulkError::StateMismatch { .. }
            | BulkError::SameServer { .. }
            | BulkError::InterruptedWithoutState
            | BulkError::RepairDenied { .. }
            | BulkError::IndexesRejected { .. }
            | BulkError::Session(_) => {}
        }
        let row = format!("| {} | ", error.code());
        assert_eq!(page.matches(&row).count(), 1, "{row} is missing in docs/reference/errors.md");
    }
    assert_eq!(
        page.matches("| TW-BULK-").count(),
        errors.len(),
        "errors.md documents codes that no error has"
    );
    assert!(BulkError::from(SessionError::OutOfStep).code().starts_with("TW-SES-"));
}
