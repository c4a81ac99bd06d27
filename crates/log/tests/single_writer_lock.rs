//! Tests that a log has one writer at a time and one flavour.

use tailwater_log::{LogDir, LogError, LogWriter};
use tailwater_wire::Flavour;

use crate::support::binlog_generator::Source;
use crate::support::synthetic_capture::{begin_file, open, options};

#[test]
fn a_second_writer_is_refused_until_the_first_closes() {
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path());
    let error = LogWriter::open(directory.path(), options()).unwrap_err();
    assert_eq!(error.code(), "TW-LOG-0001");
    assert!(error.to_string().contains("in use by another writer"), "unexpected error: {error}");
    drop(writer);
    open(directory.path()).close().unwrap();
}

#[test]
fn events_of_the_other_flavour_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = open(directory.path());
    begin_file(&mut writer, &mut Source::new(Flavour::MySql)).unwrap();
    let error = begin_file(&mut writer, &mut Source::new(Flavour::MariaDb)).unwrap_err();
    assert!(
        matches!(error, LogError::FlavourMismatch { found: Flavour::MySql, expected: Flavour::MariaDb, .. }),
        "unexpected error: {error}"
    );
}

#[test]
fn a_directory_without_a_log_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let error = LogDir::open_read_only(directory.path()).unwrap_err();
    assert_eq!(error.code(), "TW-LOG-0013");
}

#[test]
fn a_newer_format_is_refused_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path()).close().unwrap();
    let document = r#"{"format_version":99,"shape":"unknown"}"#;
    let text = format!("{document}\ncrc32 {:08x}\n", crc32fast::hash(document.as_bytes()));
    let path = directory.path().join("control.json");
    std::fs::write(&path, &text).unwrap();
    let error = LogWriter::open(directory.path(), options()).unwrap_err();
    assert!(
        matches!(error, LogError::FormatVersion { found: 99, known: 1, .. }),
        "unexpected error: {error}"
    );
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}
