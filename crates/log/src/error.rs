//! What can go wrong with a log, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use tailwater_wire::{Flavour, WireError};

use crate::archive::ArchiveFailure;
use crate::archive::seekable::SeekableDamage;

/// Why the log refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process, or another writer of this process, has the log open for writing.
    #[error(
        "the log in {path} is in use by another writer; stop that process first, or give this source another directory"
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The operating system refused something that changes nothing: opening, listing, reading.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// No space was left. The log is poisoned by it.
    #[error(
        "disk full: cannot {action} {path}: {source}; nothing more is acknowledged, and all that was is safe: make room \
         (purge old segments, or enlarge the disk) and start again"
    )]
    DiskFull {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The error as the system gave it.
        source: io::Error,
    },
    /// A write or an fdatasync failed. The log is poisoned by it.
    #[error(
        "cannot {action} {path}: {source}; nothing more is acknowledged, and all that was is safe: check the disk (kernel \
         log, SMART) before starting again"
    )]
    Write {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The error as the system gave it.
        source: io::Error,
    },
    /// A write or an fdatasync failed before; after that it cannot be known what the disk holds, so nothing is
    /// appended or published any more. Only a restart, which reads back what is there, clears it.
    #[error(
        "the log in {path} takes nothing more after an earlier failure ({reason}); restart once that is mended"
    )]
    Poisoned {
        /// The log's directory.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
    /// Bytes on disk are not what was written there.
    #[error(
        "{path} is damaged at offset {offset}: {reason}; nothing was changed: run `tailwater log verify`, restore the file \
         from a copy, or move the log's directory away and capture anew"
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A file was written by a newer Tailwater.
    #[error("{path} has format version {found}, this program knows {known} and older; use a newer tailwater")]
    FormatVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// The log holds the other family's events.
    #[error(
        "the log in {path} holds {found} events, the source is {expected}; give this source another directory"
    )]
    FlavourMismatch {
        /// The log's directory.
        path: PathBuf,
        /// What the log holds.
        found: Flavour,
        /// What was asked for.
        expected: Flavour,
    },
    /// An event does not fit the format, its checksum or its place. Nothing of it was kept.
    #[error("event at {source_file}:{source_position} is refused: {source}")]
    Event {
        /// The source's binlog file.
        source_file: String,
        /// Offset of the event in it.
        source_position: u64,
        /// What is wrong with it.
        source: WireError,
    },
    /// The caller appended something that cannot stand here (no segment begun, chunks that do not add up, ...).
    #[error(
        "events were appended out of order to the log in {path}: {reason}; this is a defect, please report it"
    )]
    Sequence {
        /// The log's directory.
        path: PathBuf,
        /// What was wrong.
        reason: String,
    },
    /// A segment that a reader wants was dropped by retention.
    #[error(
        "segment {segment} was purged from the log in {path}, which begins with segment {first}; start from a newer \
         position, or from a fresh copy of the source"
    )]
    Purged {
        /// The log's directory.
        path: PathBuf,
        /// The segment wanted.
        segment: u64,
        /// The oldest segment there is.
        first: u64,
    },
    /// A position lies behind the end, or not between two transactions.
    #[error("{segment}:{offset} is no boundary of a transaction in the log in {path}: {reason}")]
    NoSuchPosition {
        /// The log's directory.
        path: PathBuf,
        /// The segment wanted.
        segment: u64,
        /// The offset wanted.
        offset: u64,
        /// What is there instead.
        reason: String,
    },
    /// The archive could not be asked, or refused. The log itself is not touched.
    #[error("the archive does not answer as it should: cannot {action} {path}: {cause}")]
    Archive {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// On which object, or on which source's folder.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// What stands in the archive is not what the log has. Nothing is purged for its sake.
    #[error("{object} in the archive is not what the log holds: {reason}")]
    ArchiveDiffers {
        /// The object.
        object: PathBuf,
        /// How it differs.
        reason: String,
    },
    /// Segments that were to be purged are still needed. Nothing was dropped.
    #[error("segment {segment} of the log in {path} is not purged: {reason}")]
    StillNeeded {
        /// The log's directory.
        path: PathBuf,
        /// The oldest segment that is needed.
        segment: u64,
        /// By whom, and what can be done.
        reason: String,
    },
    /// There is no log here.
    #[error("there is no log in {path}; name a source's directory below the configured log directory")]
    NoLog {
        /// The directory.
        path: PathBuf,
    },
}

impl LogError {
    /// The stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Locked { .. } => "TW-LOG-0001",
            Self::Io { .. } => "TW-LOG-0002",
            Self::Corrupt { .. } => "TW-LOG-0003",
            Self::DiskFull { .. } => "TW-LOG-0004",
            Self::Write { .. } => "TW-LOG-0005",
            Self::Poisoned { .. } => "TW-LOG-0006",
            Self::FormatVersion { .. } => "TW-LOG-0007",
            Self::FlavourMismatch { .. } => "TW-LOG-0008",
            Self::Event { .. } => "TW-LOG-0009",
            Self::Sequence { .. } => "TW-LOG-0010",
            Self::Purged { .. } => "TW-LOG-0011",
            Self::NoSuchPosition { .. } => "TW-LOG-0012",
            Self::NoLog { .. } => "TW-LOG-0013",
            Self::Archive { .. } => "TW-LOG-0014",
            Self::ArchiveDiffers { .. } => "TW-LOG-0015",
            Self::StillNeeded { .. } => "TW-LOG-0016",
        }
    }

    /// An error of an operation that changes nothing. If the archive took part in it, it says so itself.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        let inner = source.get_ref();
        if let Some(damage) = inner.and_then(|inner| inner.downcast_ref::<SeekableDamage>()) {
            return Self::corrupt(path, damage.offset, damage.reason.clone());
        }
        match inner.is_some_and(|inner| inner.is::<ArchiveFailure>()) {
            true => Self::Archive { action, path, cause: source },
            false => Self::Io { action, path, source },
        }
    }

    /// An error of a write, an allocation or a sync: these poison the log.
    pub(crate) fn write(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        // EFBIG is the process's own limit on file sizes (RLIMIT_FSIZE), EDQUOT the user's: to the operator all are full.
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::DiskFull { action, path, source }
            }
            _ => Self::Write { action, path, source },
        }
    }

    pub(crate) fn corrupt(path: impl Into<PathBuf>, offset: u64, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.into(), offset, reason: reason.into() }
    }

    pub(crate) fn sequence(path: &Path, reason: impl Into<String>) -> Self {
        Self::Sequence { path: path.into(), reason: reason.into() }
    }

    /// Whether an archive that failed with it may do better when it is asked again.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Archive { cause, .. } => {
                !matches!(cause.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
            }
            Self::ArchiveDiffers { .. } => true,
            _ => false,
        }
    }

    /// Whether the error, once it happened, must end all writing.
    pub(crate) fn poisons(&self) -> bool {
        matches!(self, Self::DiskFull { .. } | Self::Write { .. })
    }
}
