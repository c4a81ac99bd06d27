//! Checks that must hold for any bytes that are read as files of a dump. The fuzz target under `fuzz/` calls
//! this module. With a plain `cargo test`, `tests/fuzz_corpus_replay.rs` runs it on the stored inputs and on
//! mutations of them.

use tailwater_wire::Flavour;

use crate::dump_folder::JournalEntry;
use crate::load::mydumper_folder;
use tailwater_tables::insert_builder::InsertBuilder;
use tailwater_tables::journal_file;
use tailwater_tables::schema::TableName;
use tailwater_tables::schema::statement_splitter::{self, StatementSplitter};

/// Maximum size of a statement in bytes; the splitter refuses longer statements.
const STATEMENT_BYTES_MAX: usize = 4096;

/// What a parser returns for input that arrives in pieces.
type FuzzPieces = Result<Vec<Vec<u8>>, String>;

/// Tests one fuzz input. The first byte of `data` selects the format. The second byte is the position at
/// which the rest is split into two pieces.
///
/// # Panics
/// If the output depends on the split, is longer than the input, or changes when it is read back.
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
    assert_eq!(whole, split(&[front, rest]), "the result depends on where the input is split");
    let Ok(found) = whole else { return };
    assert!(found.iter().map(Vec::len).sum::<usize>() <= data.len(), "the output is longer than the input");
    for statement in found {
        assert!(!statement.is_empty() && statement.len() <= STATEMENT_BYTES_MAX);
        assert!(statement_splitter::verb(&statement).len() <= 20);
        // A statement that ends in dashes is not checked, because servers take the dashes as the start of a
        // comment.
        if statement.ends_with(b"-") {
            continue;
        }
        // The server receives this statement alone. Splitting it again must return the whole statement.
        let reparsed = split(&[statement.as_slice(), b"\n;"]);
        assert_eq!(
            reparsed.as_deref(),
            Ok([statement.clone()].as_slice()),
            "the statement is split into several statements"
        );
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
    assert_eq!(whole, made(&[front, rest]), "the result depends on where the input is split");
    for statement in whole.into_iter().flatten() {
        // No value may end the statement, or the quotes around the value.
        let reparsed = statement_splitter::all(&statement);
        assert_eq!(
            reparsed.as_deref(),
            Ok([statement.clone()].as_slice()),
            "a value ends before its closing quote"
        );
    }
}

fn check_programs(data: &[u8]) {
    let found = mydumper_folder::programs(data);
    assert!(found.iter().map(Vec::len).sum::<usize>() <= data.len(), "the output is longer than the input");
    assert!(found.iter().all(|statement| !statement.is_empty()));
}

/// Checks three properties of a journal: the parser stops at the first damaged line, parsing the part before
/// that line again returns the same entries, and an entry is unchanged after it is written as a line and read
/// back.
fn check_journal(data: &[u8]) {
    if let Ok((entries, length)) = journal_file::parse::<JournalEntry>(data) {
        assert_eq!(journal_file::parse::<JournalEntry>(&data[..length]), Ok((entries, length)));
    }
    if let Ok(entry) = serde_json::from_slice::<JournalEntry>(data) {
        let line = entry.to_line();
        assert_eq!(JournalEntry::from_line(line.trim_end_matches('\n')).as_ref(), Some(&entry), "{line}");
    }
}
