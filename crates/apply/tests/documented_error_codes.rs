//! Checks that the error reference page explains every error code.

use tailwater_apply::ApplyError;
use tailwater_apply::applied_transactions::AppliedSet;
use tailwater_apply::replication_filter::{FilterError, FilterSet};
use tailwater_log::{LogError, LogPosition};
use tailwater_session::{ServerError, SessionError};
use tailwater_wire::WireError;
use tailwater_wire::event_printer::PrintError;

#[test]
fn every_code_is_documented() {
    let page = include_str!("../../../docs/reference/errors.md");
    let text = || "a text".to_owned();
    let (gtid, table, channel, reason) = (text, text, text, text);
    let malformed = || WireError::malformed("event", "a reason");
    let refusal = ServerError { number: 1062, sql_state: text(), message: text().into() };
    let wrong_filter = FilterSet { include: vec!["".into()], ..FilterSet::default() }.compile();
    let errors = [
        ApplyError::Event { gtid: gtid(), position: LogPosition::ZERO, error: malformed() },
        ApplyError::Rows {
            gtid: gtid(),
            table: table(),
            position: LogPosition::ZERO,
            error: Box::new(malformed()),
            remedy: "",
        },
        ApplyError::Rejected {
            gtid: gtid(),
            subject: table(),
            values: text().into(),
            error: Box::new(refusal.clone()),
        },
        ApplyError::MissingTable { gtid: gtid(), table: table() },
        ApplyError::IncompatibleColumn { gtid: gtid(), table: table(), column: text(), reason: reason() },
        ApplyError::UnknownDigits { gtid: gtid(), table: table(), column: text(), reason: reason() },
        ApplyError::SourceCatalogue { gtid: gtid(), table: table(), reason: reason() },
        ApplyError::Unsupported { gtid: gtid(), what: text(), reason: reason() },
        ApplyError::SessionAccount { gtid: gtid(), statement: text(), reason: "a reason" },
        ApplyError::InterruptedStatement { gtid: gtid(), statement: text(), number: 1317 },
        ApplyError::OutcomeDiffers { gtid: gtid(), statement: text(), number: 1062 },
        ApplyError::ProgressRecord { channel: channel(), reason: reason() },
        ApplyError::NewerSchema { channel: channel(), found: 2, known: 1 },
        ApplyError::TakenOver { channel: channel() },
        ApplyError::Start { reason: reason() },
        ApplyError::ChannelClosed { channel: channel() },
        ApplyError::InternalFault { channel: channel(), what: text() },
        ApplyError::ReadInterrupted { gtid: gtid() },
        ApplyError::RowsMissing { found: 1, wanted: 2, statement: text() },
        ApplyError::Progress(AppliedSet::decode(&[]).expect_err("empty bytes are not valid progress")),
        ApplyError::Filter(wrong_filter.expect_err("an empty string is not a valid pattern")),
        ApplyError::NameCollision {
            gtid: gtid(),
            error: FilterError::Clash { first: table(), second: table(), target: table() },
        },
        ApplyError::OptionOutOfRange { channel: "c".into(), option: "workers", range: "1 to 64".into() },
        ApplyError::NotTransactional { gtid: gtid(), table: table(), reason: reason() },
        ApplyError::RowCountMismatch { gtid: gtid(), counted: 1, wanted: 2, is_committed: true },
        ApplyError::PartlyWritten {
            gtid: gtid(),
            table: table(),
            error: Box::new(ApplyError::Unsupported { gtid: gtid(), what: text(), reason: reason() }),
        },
        ApplyError::TooLarge { gtid: gtid(), table: table(), bytes: 2, bytes_max: 1 },
        ApplyError::TargetAhead { channel: table(), has: reason(), end: reason() },
        ApplyError::NotExact {
            gtid: gtid(),
            table: table(),
            error: Box::new(PrintError::Event(malformed())),
        },
    ];
    for error in &errors {
        // If you add a variant to this match, also add an example of the variant to `errors`.
        match error {
            ApplyError::Event { .. }
            | ApplyError::Rows { .. }
            | ApplyError::Rejected { .. }
            | ApplyError::MissingTable { .. }
            | ApplyError::IncompatibleColumn { .. }
            | ApplyError::UnknownDigits { .. }
            | ApplyError::SourceCatalogue { .. }
            | ApplyError::Unsupported { .. }
            | ApplyError::SessionAccount { .. }
            | ApplyError::InterruptedStatement { .. }
            | ApplyError::OutcomeDiffers { .. }
            | ApplyError::ProgressRecord { .. }
            | ApplyError::NewerSchema { .. }
            | ApplyError::TakenOver { .. }
            | ApplyError::Start { .. }
            | ApplyError::ChannelClosed { .. }
            | ApplyError::InternalFault { .. }
            | ApplyError::ReadInterrupted { .. }
            | ApplyError::RowsMissing { .. }
            | ApplyError::Progress(_)
            | ApplyError::Filter(_)
            | ApplyError::NameCollision { .. }
            | ApplyError::OptionOutOfRange { .. }
            | ApplyError::NotTransactional { .. }
            | ApplyError::RowCountMismatch { .. }
            | ApplyError::PartlyWritten { .. }
            | ApplyError::TooLarge { .. }
            | ApplyError::NotExact { .. }
            | ApplyError::TargetAhead { .. }
            | ApplyError::Session(_)
            | ApplyError::Log(_) => {}
        }
        let row = format!("| {} | ", error.code());
        assert_eq!(
            page.matches(&row).count(),
            1,
            "docs/reference/errors.md must have exactly one row that starts with {row}"
        );
    }
    // A rejoin has three codes, TW-APP-0040 to TW-APP-0042. These codes are older than the crate of the
    // rejoin, so they have the prefix of the applier.
    let codes = errors.len() + 3;
    assert_eq!(
        page.matches("| TW-APP-").count(),
        codes,
        "docs/reference/errors.md explains codes that no error has"
    );
    // Errors of other crates keep the codes of those crates.
    assert!(ApplyError::from(SessionError::OutOfStep).code().starts_with("TW-SES-"));
    assert!(ApplyError::from(LogError::NoLog { path: "log".into() }).code().starts_with("TW-LOG-"));
}
