//! Tests of the log on a simulated disk: random operations, a crash at a random moment, and checks of the
//! invariants after the crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{ChecksumAlgorithm, EventType};
use tailwater_wire::gtid::GtidSet;

use crate::binlog_generator::{Source, Transaction, header};
use crate::log_position::{LogPosition, SourceIdentity};
use crate::storage::Directory;
use crate::storage::simulated_disk::{DiskFailure, DiskFaults, SimulatedDirectory, SplitMix, TestDirectory};
use crate::{
    LogDir, LogError, LogHandle, LogOptions, LogReader, LogState, LogWriter, RecoveryReport, Retention,
    RetentionPin,
};

fn options() -> LogOptions {
    LogOptions {
        preallocate_bytes: 8 << 10,
        buffer_bytes_max: 6 << 10,
        unsynced_bytes_max: 24 << 10,
        // Background syncs would come at different moments each time the test runs, so turn them off.
        background_sync_bytes: u64::MAX,
        ..LogOptions::default()
    }
}

fn identity(flavour: Flavour) -> SourceIdentity {
    SourceIdentity { flavour, server_uuid: None, server_id: 1, server_version: "test".into() }
}

pub(crate) fn open<D: TestDirectory>(disk: &D) -> Result<LogWriter, LogError> {
    LogWriter::open_on(Arc::new(disk.clone()), options())
}

/// A source, the log that captures its binlog, and what the test has recorded about both.
#[derive(Debug, Clone)]
pub(crate) struct World {
    random: SplitMix,
    source: Source,
    checksum: ChecksumAlgorithm,
    /// Whether old segments are purged sometimes.
    purges: bool,
    /// The complete binlog files of the source, by name.
    files: BTreeMap<String, Vec<u8>>,
    /// All whole transactions that were appended, in order.
    transactions: Vec<Transaction>,
    /// The number of transactions that the log has reported as durable.
    durable: usize,
    /// The number of transactions that the log has acknowledged as received. If the process is killed, they
    /// must not be lost.
    received: usize,
}

/// The result of a sequence of operations.
#[allow(clippy::large_enum_variant)]
enum Ended {
    Done(LogWriter),
    Failed(LogError),
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = SplitMix(seed);
        let flavour = if random.one_in(2) { Flavour::MySql } else { Flavour::MariaDb };
        let mut source = Source::new(flavour);
        source.omits_positions = flavour == Flavour::MariaDb && random.one_in(2);
        let checksum = if random.one_in(5) { ChecksumAlgorithm::Off } else { ChecksumAlgorithm::Crc32 };
        if checksum == ChecksumAlgorithm::Off {
            source.omits_positions = false;
        }
        Self {
            random,
            source,
            checksum,
            purges: true,
            files: BTreeMap::new(),
            transactions: Vec::new(),
            durable: 0,
            received: 0,
        }
    }

    pub(crate) fn random_below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// Returns the number of transactions that the log has reported as durable.
    pub(crate) fn durable(&self) -> usize {
        self.durable
    }

    /// Returns the same history at an earlier power cut, when the log had reported `durable` transactions.
    pub(crate) fn after_power_cut(&self, durable: usize) -> Self {
        Self { durable, received: 0, ..self.clone() }
    }

    fn append(&mut self, writer: &mut LogWriter, event: &[u8]) -> Result<(), LogError> {
        let header = header(event);
        // The first chunk holds the bytes that the transaction tracker reads. The other chunks have random
        // sizes.
        let first = (66 << 10).min(event.len());
        let (front, mut rest) = event.split_at(first);
        writer.append(&header, front, true, rest.is_empty())?;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(1 + self.random.below(rest.len() as u64) as usize);
            rest = after;
            writer.append(&header, chunk, false, rest.is_empty())?;
        }
        Ok(())
    }

    fn begin_file(&mut self, writer: &mut LogWriter) -> Result<(), LogError> {
        let events = self.source.begin_file(self.checksum);
        writer.start_segment(&self.source.file_name(), 4, &identity(self.source.flavour))?;
        for event in events {
            self.append(writer, &event)?;
        }
        Ok(())
    }

    /// Executes one operation.
    pub(crate) fn step(&mut self, writer: &mut LogWriter) -> Result<(), LogError> {
        if writer.source_tail().is_none() || self.source.file_number == 0 {
            return self.begin_file(writer);
        }
        match self.random.below(20) {
            0 => {
                let rotate = self.source.rotate();
                self.append(writer, &rotate)?;
                self.files.insert(self.source.file_name(), self.source.file.clone());
                self.begin_file(writer)?;
            }
            1 => {
                // The connection breaks inside a transaction. The source may or may not send that transaction
                // again.
                let (bytes, number) = (self.source.file.len(), self.source.number());
                // Make some of these transactions so big that the log writes a part before the connection
                // breaks.
                let size = if self.random.one_in(2) { 12_000 } else { 500 };
                let mut random = self.random.clone();
                let transaction = self.source.transaction(&[size, size], || random.next());
                let whole = self.random.below(transaction.events.len() as u64) as usize;
                for event in &transaction.events[..whole] {
                    self.append(writer, event)?;
                }
                writer.rollback_partial()?;
                self.source.rewind(bytes, number);
            }
            2..=12 => {
                let transaction = self.make_transaction();
                for event in &transaction.events[..transaction.events.len() - 1] {
                    self.append(writer, event)?;
                }
                // The last append may start a sync. So from here on the transaction may be durable.
                self.transactions.push(transaction.clone());
                self.append(writer, &transaction.events[transaction.events.len() - 1])?;
            }
            13 => {
                let end = writer.flush()?;
                // Check the position with a handle in the mode `ack = received`, as the capture does before
                // it acknowledges transactions.
                let handle =
                    LogHandle::new(writer.handle().shared(), Retention::default(), crate::AckMode::Received);
                if handle.is_acknowledged(end) {
                    self.received = self.transactions.len();
                }
            }
            14 if self.purges => {
                let retention = Retention { bytes_max: Some(self.random.below(200_000)), time_max: None };
                let handle = LogHandle::new(writer.handle().shared(), retention, crate::AckMode::Durable);
                // Ignore an error: a failed purge must do no harm.
                let _ = handle.purge(std::time::SystemTime::UNIX_EPOCH);
            }
            _ => {
                writer.sync()?;
                self.durable = self.transactions.len();
                assert_eq!(writer.unsynced_bytes(), 0);
            }
        }
        Ok(())
    }

    fn make_transaction(&mut self) -> Transaction {
        let count = 1 + self.random.below(3);
        let size = match self.random.below(10) {
            0 => 20_000,
            1..=3 => 2_000,
            _ => 200,
        };
        let sizes: Vec<usize> = (0..count).map(|_| self.random.below(size) as usize).collect();
        let mut random = self.random.clone();
        self.random.next();
        self.source.transaction(&sizes, || random.next())
    }

    fn work(&mut self, mut writer: LogWriter, steps: u64) -> Ended {
        let mut ahead = RunningAhead::start(&writer);
        for _ in 0..steps {
            let done = self.step(&mut writer);
            if self.random.one_in(2) {
                ahead.read(&self.transactions);
                assert!(ahead.reader.position() >= writer.handle().durable().position);
            }
            if let Err(error) = done {
                // After this error the log must accept nothing more.
                if error.poisons() {
                    assert!(matches!(writer.sync(), Err(LogError::Poisoned { .. })));
                }
                return Ended::Failed(error);
            }
        }
        Ended::Done(writer)
    }

    /// Returns the disk after a power cut.
    fn cut_power(&mut self, disk: &SimulatedDirectory) -> SimulatedDirectory {
        self.received = 0;
        disk.after_power_cut(&mut self.random)
    }

    /// Checks the invariants after a crash. Then the source continues from the end of the log.
    pub(crate) fn check_after_crash<D: TestDirectory>(&mut self, disk: &D) -> LogWriter {
        let writer = open(disk)
            .unwrap_or_else(|error| panic!("opening the log failed with {}: {error}", error.code()));
        let first = disk_state(disk);
        let recovery = writer.recovery().clone();
        drop(writer);
        // When the log is opened a second time, there must be nothing to repair.
        let writer = open(disk).unwrap();
        let expected =
            RecoveryReport { segments: recovery.segments, end: recovery.end, ..RecoveryReport::default() };
        assert_eq!(writer.recovery(), &expected);
        assert_eq!(disk_state(disk), first);

        let found = self.check_contents(disk, &writer);
        assert!(
            found >= self.durable,
            "the log holds only {found} transactions, but {} were durable",
            self.durable
        );
        assert!(
            found >= self.received,
            "the log holds only {found} transactions, but {} were acknowledged as received",
            self.received
        );
        self.transactions.truncate(found);
        (self.durable, self.received) = (found, found);
        self.resume_source(writer)
    }

    /// Checks that everything in the log is complete and equal to what the source wrote. Returns the number
    /// of transactions.
    fn check_contents<D: TestDirectory>(&self, disk: &D, writer: &LogWriter) -> usize {
        let log = LogDir::open_on(Arc::new(disk.clone())).unwrap();
        let mut reader = log.reader(LogPosition::ZERO).unwrap();
        // Transactions in purged segments count as found.
        let mut found = match log.segments().unwrap().first() {
            Some(first) => {
                let before = GtidSet::parse(self.source.flavour, &first.gtids_before).unwrap();
                self.transactions.iter().filter(|transaction| before.contains(&transaction.gtid)).count()
            }
            None => 0,
        };
        let mut bytes = Vec::new();
        while let Some(entry) = reader.try_next().unwrap() {
            if !entry.is_transaction() {
                continue;
            }
            bytes.clear();
            let mut event = Vec::new();
            while reader.next_event().unwrap().is_some() {
                reader.read_event(&mut event).unwrap();
                bytes.extend_from_slice(&event);
            }
            let expected = &self.transactions[found];
            assert_eq!(entry.gtid.as_ref(), Some(&expected.gtid));
            assert!(
                bytes == expected.bytes(),
                "the transaction {} in the log differs from the source's",
                expected.gtid
            );
            found += 1;
        }
        assert_eq!(log.verify(|_| ()).unwrap().problems, []);
        assert_eq!(writer.recovery().end.unwrap_or(reader.position()), reader.position());
        for segment in log.segments().unwrap() {
            let name = segment.path.file_name().unwrap().to_str().unwrap().to_owned();
            let contents = disk.contents(&name).unwrap();
            if let Some(file) = self.files.get(&segment.source_file).filter(|_| segment.sealed) {
                assert!(
                    &contents == file,
                    "the segment {name} differs from the source's file {}",
                    segment.source_file
                );
            }
        }
        if let Some(gtids) = writer.gtid_set() {
            let count = self.transactions[..found]
                .iter()
                .filter(|transaction| gtids.contains(&transaction.gtid))
                .count();
            assert_eq!(count, found);
            assert!(self.transactions[found..].iter().all(|transaction| !gtids.contains(&transaction.gtid)));
        }
        found
    }

    /// Requests all events after the end of the log from the source.
    fn resume_source(&mut self, mut writer: LogWriter) -> LogWriter {
        let Some(tail) = writer.source_tail() else {
            assert!(self.transactions.is_empty());
            let omits_positions = self.source.omits_positions;
            self.source = Source::new(self.source.flavour);
            self.source.omits_positions = omits_positions;
            return writer;
        };
        if let Some(file) = self.files.remove(&tail.file) {
            self.source.file = file;
        }
        while self.source.file_name() != tail.file {
            self.source.file_number -= 1;
        }
        assert!(self.source.file.len() as u64 >= tail.end);
        let mut end = tail.end as usize;
        // Send the first events of a file from the source's existing file, because the generator does not
        // make them again.
        while let Some(rest) = self.source.file.get(end..).filter(|rest| !rest.is_empty()) {
            let header = header(rest);
            let heads =
                [EventType::FORMAT_DESCRIPTION, EventType::PREVIOUS_GTIDS, EventType::MARIADB_GTID_LIST];
            if !heads.contains(&header.event_type) {
                break;
            }
            let event = rest[..header.event_length as usize].to_vec();
            self.append(&mut writer, &event).unwrap();
            end += event.len();
        }
        self.source.rewind(end, self.transactions.len() as u64);
        writer
    }
}

/// A reader that also gets entries that are written but not durable.
struct RunningAhead {
    reader: LogReader,
    watermark: RetentionPin,
    /// The index of the next transaction among all transactions. `None` until a transaction was read.
    next: Option<usize>,
}

impl RunningAhead {
    fn start(writer: &LogWriter) -> Self {
        let handle = writer.handle();
        let reader = handle.reader_up_to_written(LogPosition::ZERO).unwrap();
        let watermark = handle.register_reader("ahead", reader.position());
        Self { reader, watermark, next: None }
    }

    /// Reads to the end of the written entries. It checks that each transaction is read once, in order, and
    /// equals what the source wrote.
    fn read(&mut self, transactions: &[Transaction]) {
        while let Some(entry) = self.reader.try_next().unwrap() {
            self.watermark.advance(entry.position);
            if !entry.is_transaction() {
                continue;
            }
            let is_this = |transaction: &Transaction| entry.gtid.as_ref() == Some(&transaction.gtid);
            let at = self.next.or_else(|| transactions.iter().position(is_this)).unwrap();
            assert!(
                is_this(&transactions[at]),
                "the reader returned {:?} where the transaction {} was expected",
                entry.gtid,
                transactions[at].gtid
            );
            let (mut bytes, mut event) = (Vec::new(), Vec::new());
            while self.reader.next_event().unwrap().is_some() {
                self.reader.read_event(&mut event).unwrap();
                bytes.extend_from_slice(&event);
            }
            assert!(
                bytes == transactions[at].bytes(),
                "the reader returned wrong bytes for the transaction {}",
                transactions[at].gtid
            );
            self.next = Some(at + 1);
        }
    }
}

fn disk_state<D: TestDirectory>(disk: &D) -> BTreeMap<String, Vec<u8>> {
    let names = disk.list().unwrap();
    names.into_iter().map(|name| (name.clone(), disk.contents(&name).unwrap())).collect()
}

/// Runs `check` for many seeds. Reports the seed with which it fails.
pub(crate) fn for_seeds(count: u64, check: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let count = std::env::var("TAILWATER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(count);
    let first = std::env::var("TAILWATER_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match first {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    };
    for seed in seeds {
        if let Err(panic) = std::panic::catch_unwind(|| check(seed)) {
            eprintln!("the check failed with seed {seed}; replay with TAILWATER_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn power_cuts_and_kills_lose_no_durable_transaction() {
    for_seeds(500, |seed| {
        let mut world = World::new(seed);
        let mut disk = SimulatedDirectory::default();
        let mut writer = open(&disk).unwrap();
        for _ in 0..1 + world.random.below(4) {
            let steps = world.random.below(40);
            let writer_left = match world.work(writer, steps) {
                Ended::Done(writer) => writer,
                Ended::Failed(error) => panic!("an operation failed although no fault was injected: {error}"),
            };
            disk = if world.random.one_in(4) { disk.after_kill() } else { world.cut_power(&disk) };
            drop(writer_left);
            writer = world.check_after_crash(&disk);
        }
    });
}

#[test]
fn failed_writes_and_syncs_poison_and_lose_no_durable_transaction() {
    for_seeds(500, |seed| {
        let mut world = World::new(seed);
        let disk = SimulatedDirectory::default();
        let writer = open(&disk).unwrap();
        let failure = if world.random.one_in(2) { DiskFailure::Io } else { DiskFailure::Full };
        disk.set_faults(DiskFaults {
            fail_after: Some(world.random.below(120)),
            failure,
            ..DiskFaults::default()
        });
        if let Ended::Failed(error) = world.work(writer, 60) {
            let expected = match failure {
                DiskFailure::Io => "TW-LOG-0005",
                DiskFailure::Full => "TW-LOG-0004",
            };
            assert_eq!(error.code(), expected, "unexpected error: {error}");
        }
        let power_cut = world.random.one_in(2);
        let disk = if power_cut { world.cut_power(&disk) } else { disk.after_kill() };
        let writer = world.check_after_crash(&disk);
        // All transactions that recovery found are durable now, even if an earlier sync failed.
        drop(writer);
        let disk = world.cut_power(&disk);
        let writer = world.check_after_crash(&disk);
        // The log must accept new transactions after the recovered ones.
        match world.work(writer, 20) {
            Ended::Done(writer) => writer.close().unwrap(),
            Ended::Failed(error) => panic!("an operation failed although no fault was injected: {error}"),
        }
    });
}

#[test]
fn a_full_disk_is_reported_and_more_space_fixes_it() {
    for_seeds(150, |seed| {
        let mut world = World::new(seed);
        world.purges = false;
        let disk = SimulatedDirectory::default();
        disk.set_faults(DiskFaults {
            capacity_bytes: Some(20_000 + world.random.below(100_000)),
            ..DiskFaults::default()
        });
        let writer = open(&disk).unwrap();
        let Ended::Failed(error) = world.work(writer, 1_000) else { panic!("the disk never became full") };
        assert!(matches!(error, LogError::DiskFull { .. }), "unexpected error: {error}");
        let disk = disk.after_kill();
        let writer = world.check_after_crash(&disk);
        assert!(matches!(world.work(writer, 50), Ended::Done(_)));
    });
}

#[test]
fn bit_rot_is_reported_or_harmless_and_never_removes_durable_transactions() {
    for_seeds(500, |seed| {
        let mut world = World::new(seed);
        // Without positions in events, a wrong length in the last event of a log cannot be detected.
        world.source.omits_positions = false;
        world.checksum = ChecksumAlgorithm::Crc32;
        let disk = SimulatedDirectory::default();
        let writer = open(&disk).unwrap();
        let steps = 10 + world.random.below(40);
        let Ended::Done(mut writer) = world.work(writer, steps) else {
            panic!("an operation failed although no fault was injected")
        };
        writer.sync().unwrap();
        world.durable = world.transactions.len();
        drop(writer);
        let disk = disk.after_kill();

        let names: Vec<String> =
            disk.list().unwrap().into_iter().filter(|name| name.ends_with(".binlog")).collect();
        let newest = names.last().unwrap().clone();
        let end = LogDir::open_on(Arc::new(disk.clone())).unwrap().segments().unwrap().last().unwrap().bytes;
        let mut contents = disk.contents(&newest).unwrap();
        let at = world.random.below(end) as usize;
        contents[at] ^= 1 << world.random.below(8);
        disk.replace(&newest, contents.clone());
        // The index may be complete, or its end may be missing as after a power cut.
        if world.random.one_in(2) {
            let index = newest.replace(".binlog", ".index");
            let bytes = disk.contents(&index).unwrap();
            let kept = world.random.below(bytes.len() as u64 + 1) as usize;
            disk.replace(&index, bytes[..kept].to_vec());
        }
        match open(&disk) {
            Err(LogError::Corrupt { path, .. }) => {
                assert!(path.ends_with(&newest), "a file without damage was reported as damaged: {path:?}");
                assert!(
                    disk.contents(&newest).unwrap() == contents,
                    "opening the log has changed a damaged segment"
                );
            }
            Err(error) => panic!("the log returned an unexpected error, {}: {error}", error.code()),
            // Only one bit is not covered by checksums: the "in use" flag in the format description event.
            Ok(writer) => {
                let recovery = writer.recovery();
                assert_eq!(at, 4 + 17, "the changed bit at byte {at} of {end} was not found: {recovery:?}");
            }
        }
    });
}

#[test]
fn rolled_back_bytes_never_mix_with_later_ones() {
    for_seeds(500, |seed| {
        let mut world = World::new(seed);
        world.checksum = ChecksumAlgorithm::Crc32;
        let disk = SimulatedDirectory::default();
        let mut writer = open(&disk).unwrap();
        world.begin_file(&mut writer).unwrap();
        writer.sync().unwrap();
        let (bytes, number) = (world.source.file.len(), world.source.number());
        let mut random = world.random.clone();
        // The transaction is bigger than the buffer, so the writer writes its first part to the file.
        let big = world.source.transaction(&[12_000, 12_000], || random.next() | 0x700);
        let (_, front) = big.events.split_last().unwrap();
        front.iter().for_each(|event| world.append(&mut writer, event).unwrap());
        writer.rollback_partial().unwrap();
        world.source.rewind(bytes, number);
        let size = world.random.below(4_000) as usize;
        let transaction = world.source.transaction(&[size], || random.next() | 0x700);
        transaction.events.iter().for_each(|event| world.append(&mut writer, event).unwrap());
        world.transactions.push(transaction);
        writer.flush().unwrap();
        let disk = world.cut_power(&disk);
        drop(writer);
        world.check_after_crash(&disk).close().unwrap();
    });
}

#[tokio::test]
async fn a_failed_background_sync_stops_writer_and_readers() {
    let mut world = World::new(1);
    let disk = SimulatedDirectory::default();
    let mut writer = open(&disk).unwrap();
    world.begin_file(&mut writer).unwrap();
    let transaction = world.make_transaction();
    transaction.events.iter().for_each(|event| world.append(&mut writer, event).unwrap());
    writer.sync().unwrap();
    let handle = writer.handle();
    let mut reader = handle.reader(LogPosition::ZERO).unwrap();
    let durable = handle.durable().position;

    let transaction = world.make_transaction();
    transaction.events.iter().for_each(|event| world.append(&mut writer, event).unwrap());
    writer.flush().unwrap();
    disk.set_faults(DiskFaults { fail_after: Some(0), ..DiskFaults::default() });
    writer.sync_in_background().unwrap();
    handle.subscribe().wait_for(|durable| durable.state == LogState::Poisoned).await.unwrap();
    disk.set_faults(DiskFaults::default());
    // The log must refuse to continue even if the disk works again.
    assert!(matches!(writer.sync(), Err(LogError::Poisoned { .. })));
    assert_eq!(handle.durable().position, durable);
    let error = loop {
        match reader.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the reader reported a normal end of the log after the failure"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LogError::Poisoned { .. }), "unexpected error: {error}");
    assert_eq!(reader.position(), durable);
}
