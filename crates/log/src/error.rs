//! The errors of the log, with causes and remedies.

use std::io;
use std::path::{Path, PathBuf};

use tailwater_wire::{Flavour, WireError};

use crate::archive::ArchiveFailure;
use crate::archive::seekable_zstd::SeekableDamage;

/// Why a log operation was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process, or another writer in this process, has the log open for writing.
    #[error(
        "the log in {path} is in use by another writer; stop that process first, or give this source another directory"
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A read-only operation failed: open, list or read.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The attempted operation, as a verb phrase.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// No space is left on the device. After this error the log accepts nothing more until a restart.
    #[error(
        "disk full: cannot {action} {path}: {source}; everything acknowledged so far is safe, and the log accepts nothing \
         more: make room (purge old segments, or enlarge the disk) and restart"
    )]
    DiskFull {
        /// The attempted operation, as a verb phrase.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A write or an fdatasync failed. After this error the log accepts nothing more until a restart.
    #[error(
        "cannot {action} {path}: {source}; everything acknowledged so far is safe, and the log accepts nothing more: \
         check the disk (kernel log, SMART), then restart"
    )]
    Write {
        /// The attempted operation, as a verb phrase.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// An earlier write or fdatasync failed. Since then the content of the disk is unknown, so the log
    /// appends and publishes nothing more. This state ends only with a restart, which reads the files again.
    #[error(
        "the log in {path} accepts nothing more after an earlier failure ({reason}); fix the cause and restart"
    )]
    Poisoned {
        /// The log's directory.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
    /// Bytes on disk differ from the bytes that were written.
    #[error(
        "{path} is damaged at offset {offset}: {reason}; nothing was changed: run `tailwater log verify`, restore the file \
         from a copy, or move the log's directory away and capture from scratch"
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// A newer version of Tailwater wrote the file.
    #[error(
        "{path} has format version {found}, but this tailwater reads only version {known} and older; use a newer tailwater"
    )]
    FormatVersion {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        found: u32,
        /// The newest version that this program can read.
        known: u32,
    },
    /// The log holds events of the other flavour.
    #[error(
        "the log in {path} holds {found} events, but the source is {expected}; give this source another directory"
    )]
    FlavourMismatch {
        /// The log's directory.
        path: PathBuf,
        /// The flavour of the log.
        found: Flavour,
        /// The flavour of the source.
        expected: Flavour,
    },
    /// An event violates the format, its checksum, or the order of events. The log has stored no part of it.
    #[error("event at {source_file}:{source_position} was rejected: {source}")]
    Event {
        /// The source's binlog file.
        source_file: String,
        /// Offset of the event in that file.
        source_position: u64,
        /// What is wrong with the event.
        source: WireError,
    },
    /// The caller appended something out of order, such as an event before a segment was started, or chunks
    /// whose lengths do not add up to the length of the event.
    #[error(
        "events were appended out of order to the log in {path}: {reason}; this is a defect, please report it"
    )]
    Sequence {
        /// The log's directory.
        path: PathBuf,
        /// What was out of order.
        reason: String,
    },
    /// A reader requested a segment that was purged.
    #[error(
        "segment {segment} was purged from the log in {path}, which begins with segment {first}; start from a newer \
         position, or from a fresh copy of the source"
    )]
    Purged {
        /// The log's directory.
        path: PathBuf,
        /// The requested segment.
        segment: u64,
        /// The oldest available segment.
        first: u64,
    },
    /// A position is after the end of the log, or is not between two transactions.
    #[error("{segment}:{offset} is not a transaction boundary in the log in {path}: {reason}")]
    NoSuchPosition {
        /// The log's directory.
        path: PathBuf,
        /// The requested segment.
        segment: u64,
        /// The requested offset.
        offset: u64,
        /// Why the position does not exist.
        reason: String,
    },
    /// The archive could not be reached, or it refused the request. The local log still works.
    #[error("the archive failed: cannot {action} {path}: {cause}")]
    Archive {
        /// The attempted operation, as a verb phrase.
        action: &'static str,
        /// The object, or the source's folder in the archive.
        path: PathBuf,
        /// The error of the object store.
        cause: io::Error,
    },
    /// The archived copy of a segment differs from the log. Such a copy does not count as archived, so the
    /// local segment is not purged.
    #[error("{object} in the archive differs from the log: {reason}")]
    ArchiveDiffers {
        /// The archived object.
        object: PathBuf,
        /// What differs.
        reason: String,
    },
    /// The log refused a purge, because a reader or the archive still needs some of the segments. No segment
    /// was purged.
    #[error("segment {segment} of the log in {path} is not purged: {reason}")]
    StillNeeded {
        /// The log's directory.
        path: PathBuf,
        /// The oldest segment that must be kept.
        segment: u64,
        /// Why the segment must be kept, and what to do.
        reason: String,
    },
    /// The directory holds no log.
    #[error("there is no log in {path}; name the directory of a source in the configured log directory")]
    NoLog {
        /// The directory.
        path: PathBuf,
    },
}

impl LogError {
    /// Returns the stable code of this error: see docs/reference/errors.md.
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

    /// Returns the error of a read-only operation. Recognises errors of the archive by their inner type.
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

    /// Returns the error of a failed write, allocation or sync. After such an error the log accepts nothing
    /// more.
    pub(crate) fn write(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        // EFBIG means the file size limit of the process (RLIMIT_FSIZE), and EDQUOT the quota of the user.
        // Report both as a full disk.
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

    /// Returns whether a retry of the failed archive operation may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Archive { cause, .. } => {
                !matches!(cause.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
            }
            Self::ArchiveDiffers { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the log must accept no more events after this error.
    pub(crate) fn poisons(&self) -> bool {
        matches!(self, Self::DiskFull { .. } | Self::Write { .. })
    }
}
