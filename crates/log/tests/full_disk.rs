//! Tests with a full disk: a file size limit, which needs no privileges, and a small file system, if the test
//! may mount file systems.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use tailwater_log::{LogError, LogOptions, LogState, LogWriter};
use tailwater_wire::Flavour;

use crate::support::binlog_generator::Source;
use crate::support::synthetic_capture::{begin_file, open, options, read_all, transact};

/// The environment variable that passes the directory to a child process. The child runs this test under a
/// file size limit.
const LIMITED: &str = "TAILWATER_TEST_FULL_DISK_DIRECTORY";

/// Appends to the log in `directory` until an operation fails. Writes the number of durable transactions to
/// the file `durable`.
fn fill(directory: &Path) {
    let mut source = Source::new(Flavour::MySql);
    let options = LogOptions { preallocate_bytes: 128 << 10, ..options() };
    let mut writer = LogWriter::open(&directory.join("log"), options).unwrap();
    let handle = writer.handle();
    begin_file(&mut writer, &mut source).unwrap();
    let mut durable = 0;
    let error = loop {
        let result = transact(&mut writer, &mut source, &[10_000]).and_then(|_| writer.sync());
        match result {
            Ok(_) => durable += 1,
            Err(error) => break error,
        }
        assert!(durable < 10_000, "no operation failed although the disk space is limited");
    };
    assert!(
        matches!(error, LogError::DiskFull { .. }),
        "the log returned an unexpected error, {}: {error}",
        error.code()
    );
    assert!(
        error.to_string().contains("disk full") && error.to_string().contains("make room"),
        "unexpected error: {error}"
    );
    assert_eq!(handle.durable().state, LogState::Poisoned);
    // The log must refuse everything after the failure.
    for result in [
        writer.sync().map(drop),
        writer.flush().map(drop),
        writer.sync_in_background().map(drop),
        writer.rollback_partial(),
        transact(&mut writer, &mut source, &[1]).map(drop),
        begin_file(&mut writer, &mut source),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.code(), "TW-LOG-0006", "unexpected error: {error}");
        assert!(error.to_string().contains("TW-LOG-0004"), "unexpected error: {error}");
    }
    std::fs::write(directory.join("durable"), durable.to_string()).unwrap();
}

/// Checks the log without the file size limit: it has every durable transaction and accepts new ones.
fn check(directory: &Path) {
    let durable: usize = std::fs::read_to_string(directory.join("durable")).unwrap().parse().unwrap();
    assert!(durable > 10, "only {durable} transactions were durable before the disk was full");
    let log = directory.join("log");
    let mut writer = open(&log);
    let mut source = Source::new(Flavour::MySql);
    source.begin_file(tailwater_wire::binlog_event::ChecksumAlgorithm::Crc32);
    let found = read_all(&log);
    assert!(found.len() >= durable, "the log holds {} transactions, but {durable} were durable", found.len());
    // A source with the same seed generates the same bytes, which must be in the log.
    for bytes in &found {
        let mut random = source.number();
        let transaction = source.transaction(&[10_000], || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            random >> 16
        });
        assert!(&transaction.bytes() == bytes);
    }
    transact(&mut writer, &mut source, &[10_000]).unwrap();
    writer.close().unwrap();
    assert_eq!(read_all(&log).len(), found.len() + 1);
}

#[test]
fn a_file_size_limit_stops_the_log_and_loses_nothing() {
    if let Some(directory) = std::env::var_os(LIMITED) {
        return fill(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    // The shell ignores the signal of the limit, so that the write fails instead. The unit of the limit is
    // 512 bytes, or a kilobyte in some shells.
    let script = "trap '' XFSZ; ulimit -f 1500; exec \"$@\"";
    let test = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(test)
        .args(["--exact", "full_disk::a_file_size_limit_stops_the_log_and_loses_nothing", "--nocapture"])
        .env(LIMITED, directory.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "the child process ended with exit code {:?}, signal {:?}: {}",
        output.status.code(),
        output.status.signal(),
        String::from_utf8_lossy(&output.stderr)
    );
    check(directory.path());
}

#[test]
fn a_full_file_system_stops_the_log_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(directory.path()).output();
    match mount {
        Ok(output) if output.status.success() => {}
        other => {
            eprintln!(
                "SKIPPED full_disk::a_full_file_system_stops_the_log_and_loses_nothing: cannot mount a tmpfs: {other:?}"
            );
            return;
        }
    }
    let outcome = std::panic::catch_unwind(|| {
        fill(directory.path());
        let mount = ["-o", "remount,size=8m"];
        assert!(Command::new("mount").args(mount).arg(directory.path()).status().unwrap().success());
        check(directory.path());
    });
    assert!(Command::new("umount").arg(directory.path()).status().unwrap().success());
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}
