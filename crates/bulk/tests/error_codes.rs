//! Holds the codes of errors to the page that explains them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tailwater_bulk::{BulkError, GoOn};
use tailwater_session::{ServerError, SessionError};

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
        BulkError::Answer { table: text(), reason: text() },
        BulkError::RowsMiscounted { table: text(), reason: text() },
        BulkError::NoSnapshot { reasons: text() },
        BulkError::WritersWaited { waited: Duration::from_millis(1) },
        BulkError::NotAlike { tries: 3 },
        BulkError::DefinitionsMoved { reason: text() },
        BulkError::SnapshotLost { server: text() },
        BulkError::LongStatement { id: 1, seconds: 2 },
        BulkError::FolderInUse { path: path() },
        BulkError::Interrupted,
        BulkError::Changed { what: text(), reason: text() },
        BulkError::Missing { what: text(), server: text() },
        BulkError::NoDefinition { object: text() },
        BulkError::NotEmpty { server: text(), count: 1, first: text() },
        BulkError::EarlierLoad { server: text(), go_on: GoOn::Resume },
        BulkError::Loading { server: text() },
        BulkError::Unfinished { path: path(), tables: 1 },
        BulkError::Mixed { path: path(), points: 2 },
        BulkError::Definition {
            what: text(),
            path: path(),
            statement: text(),
            error: Box::new(refusal.clone()),
            go_on: GoOn::Resume,
        },
        BulkError::Rows {
            table: text(),
            path: path(),
            error: Box::new(SessionError::LoadBody),
            go_on: GoOn::Resume,
        },
        BulkError::RowOverPacket { table: text(), path: path(), bytes_max: 1 },
        BulkError::HalfLoaded { table: text(), path: path(), forget: text() },
        BulkError::TablesGone { server: text(), count: 1, first: text() },
        BulkError::RowsChanged { table: text(), path: path(), warnings: 1, first: text().into() },
        BulkError::RowsMissing { table: text(), path: path(), found: 1, wanted: 2 },
        BulkError::RowsFormat { path: path(), format: "csv" },
        BulkError::ForeignFolder { path: path(), tool: "mydumper", reason: text() },
        BulkError::NoInserts { table: text() },
        BulkError::NoAccounts { reason: text() },
        BulkError::OtherFamily { what: text(), reason: text() },
        BulkError::StreamCut,
        BulkError::CopyCut,
        BulkError::GtidState { reason: text() },
        BulkError::LocalInfileOff { server: text() },
        BulkError::TargetBehind { target: text(), seconds: 1, position: text() },
        BulkError::NotInStep { target: text(), reason: text() },
        BulkError::RowTooLong { table: text(), server: text(), count: 1 },
        BulkError::StateInUse { path: path() },
        BulkError::StateOther { path: path(), reason: text() },
        BulkError::SameServer { server: text() },
        BulkError::NotKept,
        BulkError::NotRepairable { server: text(), error: Box::new(refusal.clone()), advice: "grant it" },
        BulkError::Indexes { table: text(), error: Box::new(refusal), go_on: GoOn::Resume },
        BulkError::BinaryUnfit { reason: text() },
        BulkError::BinaryFailed { what: text(), reason: text(), left: text() },
        BulkError::NotBack { server: text(), seconds: 1, reason: text() },
        BulkError::BinaryCut { left: text() },
        BulkError::NothingSelected { server: text() },
        BulkError::Unseen { what: text(), server: text(), lacking: text(), instead: "" },
        BulkError::BinlogFormat { server: text(), privilege: "X", error: Box::new(denied) },
        BulkError::NoEngine { server: text(), engine: text(), table: text(), path: path() },
    ];
    for error in &errors {
        // A variant that is added must be listed above, too.
        match error {
            BulkError::File { .. }
            | BulkError::HalfLoaded { .. }
            | BulkError::TablesGone { .. }
            | BulkError::BinaryUnfit { .. }
            | BulkError::BinaryFailed { .. }
            | BulkError::NotBack { .. }
            | BulkError::BinaryCut { .. }
            | BulkError::NothingSelected { .. }
            | BulkError::Unseen { .. }
            | BulkError::BinlogFormat { .. }
            | BulkError::NoEngine { .. }
            | BulkError::Damaged { .. }
            | BulkError::NewerFormat { .. }
            | BulkError::Busy { .. }
            | BulkError::Answer { .. }
            | BulkError::RowsMiscounted { .. }
            | BulkError::NoSnapshot { .. }
            | BulkError::WritersWaited { .. }
            | BulkError::NotAlike { .. }
            | BulkError::DefinitionsMoved { .. }
            | BulkError::SnapshotLost { .. }
            | BulkError::LongStatement { .. }
            | BulkError::FolderInUse { .. }
            | BulkError::Interrupted
            | BulkError::Changed { .. }
            | BulkError::Missing { .. }
            | BulkError::NoDefinition { .. }
            | BulkError::NotEmpty { .. }
            | BulkError::EarlierLoad { .. }
            | BulkError::Loading { .. }
            | BulkError::Unfinished { .. }
            | BulkError::Mixed { .. }
            | BulkError::Definition { .. }
            | BulkError::Rows { .. }
            | BulkError::RowOverPacket { .. }
            | BulkError::RowsChanged { .. }
            | BulkError::RowsMissing { .. }
            | BulkError::RowsFormat { .. }
            | BulkError::ForeignFolder { .. }
            | BulkError::NoInserts { .. }
            | BulkError::NoAccounts { .. }
            | BulkError::OtherFamily { .. }
            | BulkError::StreamCut
            | BulkError::CopyCut
            | BulkError::GtidState { .. }
            | BulkError::LocalInfileOff { .. }
            | BulkError::TargetBehind { .. }
            | BulkError::NotInStep { .. }
            | BulkError::RowTooLong { .. }
            | BulkError::StateInUse { .. }
            | BulkError::StateOther { .. }
            | BulkError::SameServer { .. }
            | BulkError::NotKept
            | BulkError::NotRepairable { .. }
            | BulkError::Indexes { .. }
            | BulkError::Session(_) => {}
        }
        let row = format!("| {} | ", error.code());
        assert_eq!(page.matches(&row).count(), 1, "{row} in docs/reference/errors.md");
    }
    assert_eq!(
        page.matches("| TW-BULK-").count(),
        errors.len(),
        "errors.md explains codes that no error has"
    );
    assert!(BulkError::from(SessionError::OutOfStep).code().starts_with("TW-SES-"));
}
