//! Options of a log.

use std::time::Duration;

use crate::archive::Archive;

/// When a commit may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckMode {
    /// After fdatasync: a power cut loses nothing that was acknowledged.
    #[default]
    Durable,
    /// After write(2): a crash of the process loses nothing that was acknowledged. A power cut may lose what
    /// arrived within the last [`LogOptions::sync_interval`].
    Received,
}

/// How long old segments are kept. With both limits unset, forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// A segment is dropped once it was sealed longer ago than this.
    pub time_max: Option<Duration>,
    /// The oldest sealed segments are dropped while all segments together exceed this many bytes.
    pub bytes_max: Option<u64>,
}

/// Options of a log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// When [`LogWriter::flush`](crate::LogWriter::flush) is enough for an ACK, if events have checksums.
    pub ack: AckMode,
    /// Space is reserved in steps of this many bytes. A full disk then shows before anything is acknowledged,
    /// and an fdatasync writes no metadata.
    pub preallocate_bytes: u64,
    /// Bytes that are buffered in memory before they are written to the file.
    pub buffer_bytes_max: usize,
    /// Once this many bytes of whole transactions are not synced, the flusher thread syncs while appending
    /// continues. Catching up is then as fast as the disk.
    pub background_sync_bytes: u64,
    /// Limit on unsynced bytes of whole transactions; beyond it, appending waits for an fdatasync.
    pub unsynced_bytes_max: u64,
    /// [`AckMode::Received`]: the longest that written bytes wait for their fdatasync. They are synced at
    /// once while someone [waits](crate::LogHandle::wait_until_durable) for it or holds a
    /// [guard](crate::LogHandle::prompt_sync).
    pub sync_interval: Duration,
    /// What [`LogHandle::purge`](crate::LogHandle::purge) keeps.
    pub retention: Retention,
    /// Destination of sealed segments. If set, only archived segments are purged, and readers continue in the
    /// archive where local segments were purged.
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
