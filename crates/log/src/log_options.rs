//! The options of a log.

use std::time::Duration;

use crate::archive::Archive;

/// When a relay may acknowledge a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckMode {
    /// The relay acknowledges a commit after fdatasync. A power cut loses no acknowledged commit.
    #[default]
    Durable,
    /// The relay acknowledges a commit after write(2). A crash of the process loses no acknowledged commit. A
    /// power cut may lose the commits that arrived within the last [`LogOptions::sync_interval`].
    Received,
}

/// How long old segments are kept. If both limits are unset, segments are kept forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// A segment is purged if it was sealed longer ago than this.
    pub time_max: Option<Duration>,
    /// The oldest sealed segments are purged while all segments together have more bytes than this.
    pub bytes_max: Option<u64>,
}

/// The options of a log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// When a commit may be acknowledged. With [`AckMode::Received`],
    /// [`LogWriter::flush`](crate::LogWriter::flush) is enough for an ACK if events have checksums.
    pub ack: AckMode,
    /// The log reserves disk space in steps of this many bytes. So it notices a full disk before it
    /// acknowledges the transactions, and an fdatasync need not write metadata.
    pub preallocate_bytes: u64,
    /// The maximum number of bytes that are buffered in memory before they are written to the file.
    pub buffer_bytes_max: usize,
    /// When this many bytes of whole transactions are not synced, the flusher thread syncs them while the
    /// writer appends more. So the relay catches up as fast as the disk allows.
    pub background_sync_bytes: u64,
    /// The maximum number of unsynced bytes of whole transactions. At this limit, appending waits for an
    /// fdatasync.
    pub unsynced_bytes_max: u64,
    /// With [`AckMode::Received`]: the maximum time that written bytes wait for their fdatasync. The log
    /// syncs them at once while a caller [waits](crate::LogHandle::wait_until_durable) for the fdatasync or
    /// holds a [guard](crate::LogHandle::prompt_sync).
    pub sync_interval: Duration,
    /// Which segments [`LogHandle::purge`](crate::LogHandle::purge) keeps.
    pub retention: Retention,
    /// The archive for sealed segments. If it is set, only archived segments are purged, and readers read
    /// purged segments from the archive.
    pub archive: Option<Archive>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            ack: AckMode::Durable,
            preallocate_bytes: 16 << 20,
            buffer_bytes_max: 1 << 20,
            background_sync_bytes: 4 << 20,
            unsynced_bytes_max: 16 << 20,
            sync_interval: Duration::from_millis(50),
            retention: Retention::default(),
            archive: None,
        }
    }
}
