//! What must hold for any bytes whatever that are read as files of a dump: the fuzz target under `fuzz/` calls this, and
//! `tests/fuzzed.rs` replays kept inputs, and changed ones, with a plain `cargo test`.

use tailwater_wire::Flavour;

use crate::folder::{JournalEntry, journal};
use crate::load::insert_builder::InsertBuilder;
use crate::load::mydumper;
use crate::load::statement_splitter::{self, StatementSplitter};
use crate::schema::TableName;

/// Statements of files beyond this are refused.
const STATEMENT_BYTES_MAX: usize = 4096;

/// What one side makes of bytes that come in pieces.
type FuzzPieces = Result<Vec<Vec<u8>>, String>;

/// Reads `data`: its first byte says as what, its second where the rest is cut in two.
///
/// # Panics
/// If pieces matter, bytes come out that did not go in, or what was read is read as something else again.
pub fn check(data: &[u8]) {
    let [what, cut, data @ ..] = data else { return };
    let pieces = data.split_at(usize::from(*cut).min(data.len()));
    match what % 4 {
        0 => check_statements(data, pieces),
        1 => check_rows(data, pieces),
        2 => check_programs(data),
        _ => check_journal(data),
    }
}

fn split(pieces: &[&[u8]]) -> FuzzPieces {
    let mut statements = StatementSplitter::new(STATEMENT_BYTES_MAX);
    let mut found = Vec::new();
    for piece in pieces {
        found.extend(statements.push(piece)?);
    }
    found.extend(statements.finish()?);
    Ok(found)
}

fn check_statements(data: &[u8], (front, rest): (&[u8], &[u8])) {
    let whole = split(&[data]);
    assert_eq!(whole, split(&[front, rest]), "pieces matter");
    let Ok(found) = whole else { return };
    assert!(found.iter().map(Vec::len).sum::<usize>() <= data.len(), "more than there was");
    for statement in found {
        assert!(!statement.is_empty() && statement.len() <= STATEMENT_BYTES_MAX);
        assert!(statement_splitter::verb(&statement).len() <= 20);
        // What ends in dashes ends in a comment, to a server.
        if statement.ends_with(b"-") {
            continue;
        }
        // A server is sent this alone, and must see all of it.
        let again = split(&[statement.as_slice(), b"\n;"]);
        assert_eq!(again.as_deref(), Ok([statement.clone()].as_slice()), "it is not one statement");
    }
}

fn check_rows(data: &[u8], (front, rest): (&[u8], &[u8])) {
    let columns = [("a".to_owned(), "int".to_owned()), ("j".to_owned(), "json".to_owned())];
    let made = |pieces: &[&[u8]]| -> FuzzPieces {
        let mut inserts = InsertBuilder::new(&TableName::new("s", "t"), &columns, Flavour::MySql, 256);
        let mut made = Vec::new();
        for piece in pieces {
            made.extend(inserts.push(piece)?);
        }
        made.extend(inserts.finish()?);
        Ok(made)
    };
    let whole = made(&[data]);
    assert_eq!(whole, made(&[front, rest]), "pieces matter");
    for statement in whole.into_iter().flatten() {
        // Whatever a value holds, it does not end the statement or its quotes.
        let again = statement_splitter::all(&statement);
        assert_eq!(again.as_deref(), Ok([statement.clone()].as_slice()), "a value got out of its quotes");
    }
}

fn check_programs(data: &[u8]) {
    let found = mydumper::programs(data);
    assert!(found.iter().map(Vec::len).sum::<usize>() <= data.len(), "more than there was");
    assert!(found.iter().all(|statement| !statement.is_empty()));
}

/// A journal is read up to where it breaks off, and what was read of it is all there is when it ends there. What an entry says
/// is kept as it is.
fn check_journal(data: &[u8]) {
    if let Ok((entries, length)) = journal::parse::<JournalEntry>(data) {
        assert_eq!(journal::parse::<JournalEntry>(&data[..length]), Ok((entries, length)));
    }
    if let Ok(entry) = serde_json::from_slice::<JournalEntry>(data) {
        let line = entry.to_line();
        assert_eq!(JournalEntry::from_line(line.trim_end_matches('\n')).as_ref(), Some(&entry), "{line}");
    }
}
