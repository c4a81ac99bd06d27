//! The transactions between the applied position and the position up to which the binlog was read.

use std::collections::VecDeque;

use tailwater_wire::gtid::{Gtid, MariadbPosition, MysqlGtidSet};

/// The limits of the window: how far ahead of the applied position transactions are read ahead.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowLimits {
    /// A transaction that is nearer than this to the applied position, in seconds of commit time, and nearer
    /// than [`bytes_min`](Self::bytes_min), is left to the replica: the queries would come too late.
    pub seconds_min: u64,
    /// See [`seconds_min`](Self::seconds_min).
    pub bytes_min: u64,
    /// Nothing is read beyond this distance, in seconds of commit time.
    pub seconds_max: u64,
    /// Nothing is read beyond this distance, in bytes of the binlog.
    pub bytes_max: u64,
}

impl Default for WindowLimits {
    /// From 1 s or 16 KiB to 180 s and 64 MiB.
    fn default() -> Self {
        Self { seconds_min: 1, bytes_min: 16 << 10, seconds_max: 180, bytes_max: 64 << 20 }
    }
}

/// A position in the source's binlog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilePlace {
    /// The binlog file.
    pub file: String,
    /// The offset in the file.
    pub offset: u64,
}

impl FilePlace {
    /// Whether this position is at or after `other`. Files are compared by their number, because
    /// `binlog.1000000` follows `binlog.999999`.
    pub fn has_reached(&self, other: &Self) -> bool {
        let number = |place: &Self| {
            place.file.rsplit_once('.').and_then(|(_, number)| number.parse::<u64>().ok()).unwrap_or(0)
        };
        (number(self), self.offset) >= (number(other), other.offset)
    }
}

/// What a replica has applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppliedPosition {
    /// MySQL's `gtid_executed`.
    Mysql(MysqlGtidSet),
    /// MariaDB's `gtid_slave_pos`.
    Mariadb(MariadbPosition),
    /// A position in the files of the source.
    File(FilePlace),
}

impl AppliedPosition {
    /// Whether the transaction is applied, as far as its GTID shows.
    pub fn has_gtid(&self, gtid: Option<&Gtid>) -> bool {
        !matches!(self, Self::File(_)) && self.has(gtid, &FilePlace::default())
    }

    /// Whether the transaction is applied.
    pub fn has(&self, gtid: Option<&Gtid>, end: &FilePlace) -> bool {
        match (self, gtid) {
            (Self::Mysql(set), Some(Gtid::MySql(gtid))) => set.contains_gtid(gtid),
            (Self::Mariadb(position), Some(Gtid::MariaDb(gtid))) => position.contains(gtid),
            (Self::File(place), _) => place.has_reached(end),
            _ => false,
        }
    }
}

/// A transaction in the window.
#[derive(Debug, Clone)]
pub struct WindowTransaction {
    /// Its GTID.
    pub gtid: Option<Gtid>,
    /// The end of the transaction in the source's files.
    pub end: FilePlace,
    /// The end of the transaction in bytes of the stream.
    pub end_bytes: u64,
    /// When it committed, in seconds since 1970.
    pub commit_seconds: u64,
    /// The number of changed rows.
    pub rows: u64,
}

/// What follows from a new applied position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppliedTransactions {
    /// The number of transactions that left the window.
    pub transactions: u64,
    /// The number of their rows.
    pub rows: u64,
}

/// Whether to read more of the binlog, and what to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowState {
    /// The read position is so near to the applied one that queries come too late.
    TooNear,
    /// Within the window.
    Inside,
    /// So far ahead that reading pauses.
    TooFar,
}

/// The transactions that were read and are not applied yet, in the order of the binlog.
#[derive(Debug)]
pub struct ReadWindow {
    limits: WindowLimits,
    transactions: VecDeque<WindowTransaction>,
    applied_bytes: u64,
    applied_seconds: u64,
    read_bytes: u64,
    read_seconds: u64,
}

impl ReadWindow {
    /// Returns the window at the start of a stream.
    pub fn new(limits: WindowLimits) -> Self {
        Self {
            limits,
            transactions: VecDeque::new(),
            applied_bytes: 0,
            applied_seconds: 0,
            read_bytes: 0,
            read_seconds: 0,
        }
    }

    /// A transaction begins at `bytes` of the stream. The first one gives the applied time: all before it is
    /// applied.
    pub fn begin(&mut self, commit_seconds: u64, bytes: u64) {
        if self.transactions.is_empty() {
            self.applied_seconds = self.applied_seconds.max(commit_seconds);
        }
        self.read_seconds = self.read_seconds.max(commit_seconds);
        self.read_bytes = self.read_bytes.max(bytes);
    }

    /// The stream was read up to `bytes`.
    pub fn read_to(&mut self, bytes: u64) {
        self.read_bytes = self.read_bytes.max(bytes);
    }

    /// Adds a complete transaction. Transactions come in stream order.
    pub fn push(&mut self, transaction: WindowTransaction) {
        self.read_to(transaction.end_bytes);
        self.read_seconds = self.read_seconds.max(transaction.commit_seconds);
        self.transactions.push_back(transaction);
    }

    /// Drops what is applied. With parallel appliers a later transaction may be applied first; it leaves the
    /// window after the earlier ones.
    pub fn applied(&mut self, position: &AppliedPosition) -> AppliedTransactions {
        let mut gone = AppliedTransactions::default();
        while let Some(first) = self.transactions.front() {
            if !position.has(first.gtid.as_ref(), &first.end) {
                break;
            }
            gone.transactions += 1;
            gone.rows += first.rows;
            self.applied_bytes = self.applied_bytes.max(first.end_bytes);
            self.applied_seconds = self.applied_seconds.max(first.commit_seconds);
            self.transactions.pop_front();
        }
        if self.transactions.is_empty() && gone.transactions > 0 {
            self.applied_seconds = self.read_seconds;
        }
        gone
    }

    /// The transaction whose end was not read yet is applied already. So is everything that was read.
    pub fn open_transaction_applied(&mut self) {
        self.transactions.clear();
        self.applied_bytes = self.read_bytes;
        self.applied_seconds = self.read_seconds;
    }

    /// How many bytes of the binlog were read and are not applied.
    pub fn bytes_ahead(&self) -> u64 {
        self.read_bytes.saturating_sub(self.applied_bytes)
    }

    /// The commit time of the newest transaction that was read, relative to the newest that is applied, in
    /// seconds.
    pub fn seconds_ahead(&self) -> u64 {
        self.read_seconds.saturating_sub(self.applied_seconds)
    }

    /// The end of the newest applied transaction, in bytes of the stream.
    pub fn applied_bytes(&self) -> u64 {
        self.applied_bytes
    }

    /// The number of transactions in the window.
    pub fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Whether no transaction is in the window.
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// Where the read position is relative to the limits.
    pub fn state(&self) -> WindowState {
        let (bytes, seconds) = (self.bytes_ahead(), self.seconds_ahead());
        if bytes >= self.limits.bytes_max || seconds >= self.limits.seconds_max.max(1) {
            return WindowState::TooFar;
        }
        match bytes < self.limits.bytes_min && seconds < self.limits.seconds_min {
            true => WindowState::TooNear,
            false => WindowState::Inside,
        }
    }
}
