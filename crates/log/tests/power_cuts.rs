//! Power cuts of a real process that writes a log to a lossy disk. The process prints how many transactions
//! are durable. After each cut the log opens, has these transactions bit for bit, and ends after a whole
//! transaction. The next process continues in the same log.
//!
//! `TAILWATER_SEED=n` repeats the random choices; `TAILWATER_LONG=1` cuts hundreds of times.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use tailwater_log::{LogDir, LogWriter};
use tailwater_lossy_disk::{DiskOperation, InjectedError, LossyDisk, NameDurability, PowerCut};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::ChecksumAlgorithm;

use crate::support::binlog_generator::Source;
use crate::support::synthetic_capture::{append, identity, options, read_all};

/// The environment variables that make a child process of the test write the log: its folder, and the
/// flavour of its source.
const LOG: &str = "TAILWATER_TEST_POWER_CUT_LOG";
const MARIADB: &str = "TAILWATER_TEST_POWER_CUT_MARIADB";
/// What the child process prints before the number of durable transactions.
const DURABLE: &str = "durable ";
/// The process ends after this many transactions, if nothing else ends it.
const TRANSACTIONS_MAX: usize = 20_000;
const TRANSACTIONS_PER_FILE: usize = 40;

/// A source that writes the same binlog files each time.
struct RepeatableSource {
    source: Source,
    count: usize,
}

/// An event, and the position after it in its binlog file.
struct SourceEvent {
    file: String,
    end: u64,
    bytes: Vec<u8>,
    begins_file: bool,
}

impl RepeatableSource {
    fn new(flavour: Flavour) -> Self {
        Self { source: Source::new(flavour), count: 0 }
    }

    /// Returns the events up to the end of the next transaction.
    fn next_transaction(&mut self) -> Vec<SourceEvent> {
        let mut found = Vec::new();
        if self.count.is_multiple_of(TRANSACTIONS_PER_FILE) {
            if self.count > 0 {
                let rotate = self.source.rotate();
                self.place(&mut found, vec![rotate], false);
            }
            let head = self.source.begin_file(ChecksumAlgorithm::Crc32);
            self.place(&mut found, head, true);
        }
        self.count += 1;
        let mut random = self.count as u64;
        let sizes = [self.count * 7919 % 3_000, self.count * 104_729 % 900];
        let transaction = self.source.transaction(&sizes, || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            random >> 16
        });
        self.place(&mut found, transaction.events, false);
        found
    }

    /// Adds events that the source has just written to the end of its file.
    fn place(&self, found: &mut Vec<SourceEvent>, events: Vec<Vec<u8>>, begins_file: bool) {
        let length: usize = events.iter().map(Vec::len).sum();
        let mut end = (self.source.file.len() - length) as u64;
        for (index, bytes) in events.into_iter().enumerate() {
            end += bytes.len() as u64;
            let begins_file = begins_file && index == 0;
            found.push(SourceEvent { file: self.source.file_name(), end, bytes, begins_file });
        }
    }
}

/// Writes the log until the disk fails or the process is killed.
fn write_log(directory: &Path, flavour: Flavour) -> Result<()> {
    let mut writer = LogWriter::open(directory, options())?;
    let mut source = RepeatableSource::new(flavour);
    let tail = writer.source_tail();
    let mut output = std::io::stdout();
    while source.count < TRANSACTIONS_MAX {
        for event in source.next_transaction() {
            let is_there =
                tail.as_ref().is_some_and(|tail| (&event.file, event.end) <= (&tail.file, tail.end));
            if is_there {
                continue;
            }
            if event.begins_file {
                writer.start_segment(&event.file, 4, &identity(flavour))?;
            }
            append(&mut writer, &event.bytes)?;
        }
        if source.count.is_multiple_of(1 + source.count % 5) {
            writer.sync()?;
            writeln!(output, "{DURABLE}{}", source.count)?;
        }
    }
    Ok(())
}

/// A process that writes the log.
struct WriterProcess {
    child: Child,
    output: BufReader<ChildStdout>,
    durable: usize,
}

impl WriterProcess {
    fn start(test: &str, directory: &Path, flavour: Flavour) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(LOG, directory);
        if flavour == Flavour::MariaDb {
            command.env(MARIADB, "1");
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("the output is a pipe")?);
        Ok(Self { child, output, durable: 0 })
    }

    /// Reads the output until this many more transactions are durable, or the process has ended. Returns
    /// whether it runs.
    fn read(&mut self, more: usize) -> Result<bool> {
        let mut first = None;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Ok(false);
            }
            // The test harness prints its own lines to the same pipe.
            let Some((_, count)) = line.trim_end().split_once(DURABLE) else { continue };
            self.durable = count.parse()?;
            if self.durable >= *first.get_or_insert(self.durable) + more {
                return Ok(true);
            }
        }
    }

    /// Kills the process, and returns how many transactions it has reported as durable.
    fn end(mut self) -> Result<usize> {
        self.child.kill()?;
        self.read(usize::MAX - TRANSACTIONS_MAX)?;
        self.child.wait()?;
        Ok(self.durable)
    }
}

/// Checks the log after a power cut. Returns the number of its transactions.
fn check_log(directory: &Path, flavour: Flavour, durable: usize) -> Result<usize> {
    if durable == 0 && !directory.exists() {
        return Ok(0);
    }
    let writer = LogWriter::open(directory, options()).context("the log does not open")?;
    let end = writer.recovery().end;
    drop(writer);
    let again = LogWriter::open(directory, options())?;
    ensure!(again.recovery().end == end, "the log is repaired twice: {:?}", again.recovery());
    drop(again);
    let problems = LogDir::open_read_only(directory)?.verify(|_| ())?.problems;
    ensure!(problems.is_empty(), "{problems:?}");
    let found = read_all(directory);
    ensure!(found.len() >= durable, "{} transactions, but {durable} were durable", found.len());
    let mut source = RepeatableSource::new(flavour);
    for (number, bytes) in found.iter().enumerate() {
        let mut expected = Vec::new();
        let events = source.next_transaction();
        // Rotations and the heads of files are not part of a transaction.
        let start = events.iter().rposition(|event| event.begins_file).map_or(0, |first| first + 2);
        events[start..].iter().for_each(|event| expected.extend_from_slice(&event.bytes));
        ensure!(*bytes == expected, "transaction {} differs from the source's", number + 1);
    }
    Ok(found.len())
}

#[test]
fn a_process_that_loses_power_has_every_durable_transaction_mysql() -> Result<()> {
    power_cuts("power_cuts::a_process_that_loses_power_has_every_durable_transaction_mysql", Flavour::MySql)
}

#[test]
fn a_process_that_loses_power_has_every_durable_transaction_mariadb() -> Result<()> {
    power_cuts(
        "power_cuts::a_process_that_loses_power_has_every_durable_transaction_mariadb",
        Flavour::MariaDb,
    )
}

fn power_cuts(test: &str, flavour: Flavour) -> Result<()> {
    if let Some(directory) = std::env::var_os(LOG) {
        let flavour = if std::env::var_os(MARIADB).is_some() { Flavour::MariaDb } else { Flavour::MySql };
        return write_log(Path::new(&directory), flavour);
    }
    let Some(mut disk) = LossyDisk::for_test(NameDurability::FolderSync) else { return Ok(()) };
    let seed = std::env::var("TAILWATER_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20);
    let cuts = if std::env::var_os("TAILWATER_LONG").is_some() { 400 } else { 15 };
    let directory = disk.path().join("logs/source");
    let mut transactions = 0;
    for cut in 0..cuts {
        let round = seed + cut;
        let context =
            || format!("TAILWATER_SEED={seed}, cut {cut} of {cuts}, {:?}", PowerCut::from_seed(round));
        // Sometimes a log starts from scratch, so that its first steps are cut too.
        if round.is_multiple_of(10) && directory.exists() {
            std::fs::remove_dir_all(&directory)?;
            disk.sync_everything();
            transactions = 0;
        }
        let start = || WriterProcess::start(test, &directory, flavour);
        let durable = cut_once(&mut disk, start, round).with_context(context)?;
        transactions = check_log(&directory, flavour, durable.max(transactions)).with_context(context)?;
    }
    eprintln!("{cuts} power cuts of a process");
    Ok(())
}

/// Cuts the power while the process writes: at a given call to the disk, or at a random moment.
fn cut_once(
    disk: &mut LossyDisk,
    start: impl FnOnce() -> Result<WriterProcess>,
    round: u64,
) -> Result<usize> {
    let at_call = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let mut process;
    if round.is_multiple_of(2) {
        let operation = if round.is_multiple_of(4) { DiskOperation::Write } else { DiskOperation::Sync };
        let call = 1 + at_call % 60;
        disk.set_errors(&[InjectedError { operation, call, repeats: true, error: Errno::IO }]);
        process = start()?;
        ensure!(!process.read(usize::MAX - TRANSACTIONS_MAX)?, "the disk failed, but the process runs");
    } else {
        process = start()?;
        process.read((at_call % 200) as usize)?;
    }
    disk.cut_power(PowerCut::from_seed(round));
    let durable = process.end()?;
    disk.set_errors(&[]);
    disk.restore_power()?;
    Ok(durable)
}
