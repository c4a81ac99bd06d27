//! Checks the statements of one client, which are executed one after the other.

use super::example_logs::{self, VIEW_TEXT_BYTES_MAX};
use super::{check_refusal, each_statement, split_flavour};
use crate::client_statement::{
    COLUMN_NAME_CHARACTERS_MAX, PurgeBefore, ResultColumnType, ResultRows, StatementResult, StatementSession,
    execute,
};

/// The maximum number of columns of a result. This is the limit for a `SELECT`, and no `SHOW` statement has
/// more columns.
const COLUMNS_MAX: usize = 256;

/// The maximum number of rows of a result. No `SHOW` statement of the example server returns more.
const ROWS_MAX: usize = 256;

/// The maximum number of output bytes per input byte. A byte that is not UTF-8 is replaced by three bytes,
/// the short form of a UUID is printed in the long form, and line breaks are added.
const GROWTH_MAX: usize = 8;

/// Checks one input. It consists of the flavour, and statements separated by zero bytes.
pub(super) fn check(data: &[u8]) {
    let Some((flavour, statements)) = split_flavour(data) else { return };
    let view = example_logs::view(flavour);
    let mut session = StatementSession::new();
    let mut sent_bytes = 0;
    for sql in each_statement(statements) {
        sent_bytes += sql.len();
        let before = session.clone();
        let answered = execute(&mut session, view, sql);
        check_answer(&answered, sent_bytes * GROWTH_MAX + VIEW_TEXT_BYTES_MAX);
        let variables_bytes = session.assert_bounded();
        assert!(variables_bytes <= (sent_bytes + 16 + VIEW_TEXT_BYTES_MAX) * GROWTH_MAX);
        assert_eq!(
            execute(&mut before.clone(), view, sql),
            answered,
            "the statement must have the same result when it runs again"
        );
    }
}

fn check_answer(answered: &StatementResult, text_bytes_max: usize) {
    match answered {
        StatementResult::Ok | StatementResult::Kill { .. } => {}
        StatementResult::Rows(rows) => check_rows(rows, text_bytes_max),
        StatementResult::Error(refusal) => check_refusal(refusal),
        StatementResult::Purge(PurgeBefore::File(file)) => assert!(file.len() <= text_bytes_max),
        // The last year of a date is 9999.
        StatementResult::Purge(PurgeBefore::Time(seconds)) => assert!(*seconds < 253_402_300_800),
        StatementResult::GtidPosition { column, file, position: _ } => {
            assert!(
                column.chars().count() <= COLUMN_NAME_CHARACTERS_MAX,
                "the column name is too long: {column}"
            );
            assert!(file.len() <= text_bytes_max);
        }
    }
}

fn check_rows(ResultRows { columns, rows }: &ResultRows, text_bytes_max: usize) {
    assert!((1..=COLUMNS_MAX).contains(&columns.len()), "the result has {} columns", columns.len());
    for column in columns {
        assert!(
            column.name.chars().count() <= COLUMN_NAME_CHARACTERS_MAX,
            "the column name is too long: {}",
            column.name
        );
    }
    assert!(rows.len() <= ROWS_MAX, "the result has {} rows", rows.len());
    for row in rows {
        assert_eq!(row.len(), columns.len());
        for (column, cell) in columns.iter().zip(row) {
            let Some(cell) = cell else { continue };
            assert!(
                cell.len() <= text_bytes_max,
                "the value has {} bytes, in the column {}",
                cell.len(),
                column.name
            );
            let is_number = column.column_type != ResultColumnType::Integer || cell.parse::<i128>().is_ok();
            assert!(is_number, "{cell:?} is not a number, but it is in the numeric column {}", column.name);
        }
    }
}
