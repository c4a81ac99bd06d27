//! Statements of one client, each with what those before it have set.

use super::examples::{self, VIEW_TEXT_BYTES_MAX};
use super::{check_refusal, each_statement, split_flavour};
use crate::serve::statement::{
    COLUMN_NAME_CHARACTERS_MAX, PurgeBefore, ResultColumnType, ResultRows, StatementResult, StatementSession,
    execute,
};

/// The most columns: those that a `SELECT` may have; no `SHOW` has more.
const COLUMNS_MAX: usize = 256;

/// The most rows: no `SHOW` of the made-up server has more.
const ROWS_MAX: usize = 256;

/// How many bytes may come of one that was sent: a byte that is no text is replaced by three, the short form of a UUID
/// is printed in the long one, and lines are broken.
const GROWTH_MAX: usize = 8;

/// Which flavour, and statements with zero bytes between them.
pub(super) fn check(data: &[u8]) {
    let Some((flavour, statements)) = split_flavour(data) else { return };
    let view = examples::view(flavour);
    let mut session = StatementSession::new();
    let mut sent_bytes = 0;
    for sql in each_statement(statements) {
        sent_bytes += sql.len();
        let before = session.clone();
        let answered = execute(&mut session, view, sql);
        check_answer(&answered, sent_bytes * GROWTH_MAX + VIEW_TEXT_BYTES_MAX);
        let variables_bytes = session.assert_bounded();
        assert!(variables_bytes <= (sent_bytes + 16 + VIEW_TEXT_BYTES_MAX) * GROWTH_MAX);
        assert_eq!(execute(&mut before.clone(), view, sql), answered, "asked twice");
    }
}

fn check_answer(answered: &StatementResult, text_bytes_max: usize) {
    match answered {
        StatementResult::Ok | StatementResult::Kill { .. } => {}
        StatementResult::Rows(rows) => check_rows(rows, text_bytes_max),
        StatementResult::Error(refusal) => check_refusal(refusal),
        StatementResult::Purge(PurgeBefore::File(file)) => assert!(file.len() <= text_bytes_max),
        // The year 9999 is the last.
        StatementResult::Purge(PurgeBefore::Time(seconds)) => assert!(*seconds < 253_402_300_800),
        StatementResult::GtidPosition { column, file, position: _ } => {
            assert!(column.chars().count() <= COLUMN_NAME_CHARACTERS_MAX, "{column}");
            assert!(file.len() <= text_bytes_max);
        }
    }
}

fn check_rows(ResultRows { columns, rows }: &ResultRows, text_bytes_max: usize) {
    assert!((1..=COLUMNS_MAX).contains(&columns.len()), "{} columns", columns.len());
    for column in columns {
        assert!(column.name.chars().count() <= COLUMN_NAME_CHARACTERS_MAX, "{}", column.name);
    }
    assert!(rows.len() <= ROWS_MAX, "{} rows", rows.len());
    for row in rows {
        assert_eq!(row.len(), columns.len());
        for (column, cell) in columns.iter().zip(row) {
            let Some(cell) = cell else { continue };
            assert!(cell.len() <= text_bytes_max, "{} bytes of {}", cell.len(), column.name);
            let is_number = column.column_type != ResultColumnType::Integer || cell.parse::<i128>().is_ok();
            assert!(is_number, "{cell:?} in the column of numbers {}", column.name);
        }
    }
}
