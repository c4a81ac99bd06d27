//! How a log is kept.

use std::time::Duration;

use crate::archive::Archive;

/// When a commit may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckMode {
    /// After fdatasync: a power cut loses nothing acknowledged.
    #[default]
    Durable,
    /// After write(2): a crash of the process loses nothing acknowledged, a power cut may lose what came in the last
    /// [`LogOptions::sync_interval`].
    Received,
}

/// What is kept of old segments. With both limits unset, everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// A sealed segment is dropped once it was sealed this long ago.
    pub time_max: Option<Duration>,
    /// The oldest sealed segments are dropped while all segments together are bigger than this.
    pub bytes_max: Option<u64>,
}

/// How a log is kept.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// When [`LogWriter::flush`](crate::LogWriter::flush) is enough for an ACK, if events have checksums.
    pub ack: AckMode,
    /// Space is reserved in steps of this many bytes, so that a full disk shows before anything is acknowledged, and an
    /// fdatasync moves no metadata.
    pub preallocate_bytes: u64,
    /// Bytes that are held in memory before they go to the file.
    pub buffer_bytes_max: usize,
    /// Once this many bytes of whole transactions wait for their fdatasync, another thread does one, so that appending
    /// goes on meanwhile: catching up is then as fast as the disk.
    pub background_sync_bytes: u64,
    /// At most this many bytes of whole transactions wait for their fdatasync; beyond that, appending waits for it.
    pub unsynced_bytes_max: u64,
    /// [`AckMode::Received`]: the longest that written bytes wait for their fdatasync. They do not wait while somebody
    /// [waits](crate::LogHandle::wait_until_durable) for it, or [hurries](crate::LogHandle::prompt_sync).
    pub sync_interval: Duration,
    /// What [`LogHandle::purge`](crate::LogHandle::purge) keeps.
    pub retention: Retention,
    /// Where sealed segments go too. With one, no segment is purged that is not there, and readers go on in it behind
    /// what was purged.
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
