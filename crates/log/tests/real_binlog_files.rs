//! Captures binlog files of real servers, which are fixtures of the `wire` crate. Also cuts the log at many
//! offsets and captures the rest again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tailwater_log::{LogDir, LogPosition, LogWriter, SourceIdentity};
use tailwater_wire::binlog_event::{EventHeader, FormatDescription};

use crate::support::synthetic_capture::{append, open};

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/fixtures");
    let mut files = Vec::new();
    for kind in ["binlog", "rows"] {
        for entry in fs::read_dir(folder.join(kind)).unwrap() {
            files.push(entry.unwrap().path());
        }
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "binlog"));
    files.sort();
    assert!(files.len() >= 6, "too few fixture files were found: {files:?}");
    files
}

/// Returns the events of a file with their offsets.
fn events(file: &[u8]) -> Vec<(u64, &[u8])> {
    let mut events = Vec::new();
    let mut offset = 4;
    while offset < file.len() {
        let length = EventHeader::parse(&file[offset..]).unwrap().event_length as usize;
        events.push((offset as u64, &file[offset..offset + length]));
        offset += length;
    }
    events
}

fn start(writer: &mut LogWriter, file: &[u8]) {
    let flavour = FormatDescription::parse(&events(file)[0].1[19..]).unwrap().flavour();
    let source = SourceIdentity { flavour, server_uuid: None, server_id: 1, server_version: "real".into() };
    writer.start_segment("binlog.000001", 4, &source).unwrap();
}

/// Sends all events after the end of the log.
fn capture(writer: &mut LogWriter, file: &[u8]) {
    let end = writer.source_tail().unwrap().end;
    for (offset, event) in events(file) {
        if offset >= end {
            append(writer, event)
                .unwrap_or_else(|error| panic!("cannot append the event at {offset}: {error}"));
        }
    }
}

/// Other users of the machine must not be able to read the rows of a primary.
#[test]
fn log_files_are_not_readable_by_others() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("logs/main");
    let file = fs::read(&fixtures()[0]).unwrap();
    let mut writer = open(&folder);
    start(&mut writer, &file);
    capture(&mut writer, &file);
    drop(writer);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7;
    assert_eq!((mode(&folder), mode(folder.parent().unwrap())), (0, 0));
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(
        files.len() > 1 && files.iter().all(|path| mode(path) == 0),
        "a file of the log is readable by other users: {files:?}"
    );
}

#[test]
fn every_file_is_captured_completely_and_verifies() {
    for path in fixtures() {
        let directory = tempfile::tempdir().unwrap();
        let file = fs::read(&path).unwrap();
        let mut writer = open(directory.path());
        start(&mut writer, &file);
        capture(&mut writer, &file);
        writer.close().unwrap();
        assert!(
            fs::read(directory.path().join("0000000001.binlog")).unwrap() == file,
            "the segment differs from the source's file {}",
            path.display()
        );
        let log = LogDir::open_read_only(directory.path()).unwrap();
        let found = log.verify(|_| ()).unwrap();
        assert_eq!(found.problems, [], "{}", path.display());
        assert_eq!(found.events as usize, events(&file).len());
        assert!(found.transactions > 1, "too few transactions were found in {}", path.display());
        let gtids = log.gtid_set().unwrap().unwrap();
        let mut reader = log.reader(LogPosition::ZERO).unwrap();
        while let Some(entry) = reader.try_next().unwrap() {
            assert_eq!(entry.source_end, entry.end().offset);
            if let Some(gtid) = &entry.gtid {
                assert!(gtids.contains(gtid));
                assert_eq!(log.find(gtid).unwrap(), Some(entry));
            }
        }
    }
}

#[test]
fn a_log_cut_at_any_byte_is_captured_to_the_same_bytes() {
    for path in fixtures() {
        let file = fs::read(&path).unwrap();
        for step in 0..15 {
            let directory = tempfile::tempdir().unwrap();
            let mut writer = open(directory.path());
            start(&mut writer, &file);
            capture(&mut writer, &file);
            writer.close().unwrap();
            // A writer that is killed during a write leaves this state: the segment has reserved space after
            // some byte, and the index has no entries for the written bytes.
            let segment = directory.path().join("0000000001.binlog");
            let kept = 4 + (file.len() - 4) * step / 15;
            let mut torn = file[..kept].to_vec();
            torn.resize(file.len() + 10_000, 0);
            fs::write(&segment, torn).unwrap();
            let index = directory.path().join("0000000001.index");
            let mut header = fs::read(&index).unwrap();
            let document = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
            header.truncate(20 + document as usize);
            fs::write(&index, header).unwrap();

            let mut writer = open(directory.path());
            let end = writer.source_tail().unwrap().end;
            assert!(
                end <= kept as u64,
                "the log of {} was cut at {kept}, but recovery found its end at {end}",
                path.display()
            );
            capture(&mut writer, &file);
            writer.close().unwrap();
            assert!(
                fs::read(&segment).unwrap() == file,
                "the segment of {}, cut at {kept} and captured again, differs from the file",
                path.display()
            );
            let found = LogDir::open_read_only(directory.path()).unwrap().verify(|_| ()).unwrap();
            assert_eq!(
                found.problems,
                [],
                "`verify` reports problems in the log of {}, cut at {kept} and captured again",
                path.display()
            );
        }
    }
}
