//! What a capture was ordered, kept over restarts: whether it stands still, whom it follows, and in whose name it was told.
//! Pure, but for the file.
//!
//! A failover rests on ackers that stay stopped: one that forgot its order in a restart would let the old primary commit
//! again. So an order is on disk before it is answered, and looked up before the first connection. Each order carries the
//! number of the lease's term in which it was given; one of an earlier term than any seen comes too late, and is refused.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tailwater_log::{AtomicJsonFile, LogError};
use tailwater_wire::gtid::GtidSet;

use crate::RelayError;

const NAME: &str = "acker.json";

/// The newest format version, the one written.
const FORMAT_VERSION: u32 = 1;

/// The file is never longer: nothing in it but a name grows.
const BYTES_MAX: u64 = 64 << 10;

/// The order to stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopOrder {
    /// The term of the lease in which it was given.
    pub token: u64,
    /// Since when it stands still, in milliseconds since 1970.
    pub since_ms: u64,
}

/// What a capture was ordered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersistedOrders {
    /// The highest term of the lease that an order came from; 0 before the first.
    pub token: u64,
    /// It captures and acknowledges nothing.
    pub stopped: Option<StopOrder>,
    /// The server of the cluster that it captures from; its own source if absent.
    pub follows: Option<String>,
    /// The term in which it was told that; 0 if it never was, or by a version that did not note it. Orders that do not say whom to
    /// follow leave it as it is.
    pub followed_in: u64,
}

/// An order, without the term that it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaptureOrder {
    /// Capture and acknowledge nothing until told to.
    Stop,
    /// Go on, with whom it followed.
    Start,
    /// Capture from this server from now on; from its own source if absent.
    Follow(Option<String>),
}

impl PersistedOrders {
    /// Whether an order of that term may count.
    ///
    /// # Errors
    /// [`RelayError::StaleOrder`].
    pub fn check(&self, token: u64) -> Result<(), RelayError> {
        match token < self.token {
            true => Err(RelayError::StaleOrder { token, seen: self.token }),
            false => Ok(()),
        }
    }

    /// What is to be remembered once `order` has come.
    ///
    /// # Errors
    /// [`RelayError::StaleOrder`]: nothing is to change.
    pub fn after(&self, order: &CaptureOrder, token: u64, now_ms: u64) -> Result<Self, RelayError> {
        self.check(token)?;
        let mut next = Self { token, ..self.clone() };
        match order {
            // Told twice, it stands still since the first time.
            CaptureOrder::Stop => {
                let since_ms = self.stopped.map_or(now_ms, |stop| stop.since_ms);
                next.stopped = Some(StopOrder { token, since_ms });
            }
            CaptureOrder::Start => next.stopped = None,
            CaptureOrder::Follow(server) => {
                next.stopped = None;
                next.follows.clone_from(server);
                next.followed_in = token;
            }
        }
        Ok(next)
    }

    /// What the capture whose log is in `directory` was ordered; nothing if it never was.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::FormatVersion`], [`LogError::Io`]: what cannot be read may have said to stand still.
    pub fn read(directory: &Path) -> Result<Self, LogError> {
        let file = file_in(directory);
        let Some(document) = file.read()? else { return Ok(Self::default()) };
        let unreadable = |error: serde_json::Error| file.corrupt(format!("it cannot be read: {error}"));
        // The version first: a newer layout need not have the other fields.
        let AckerFileVersion { format_version } = serde_json::from_str(&document).map_err(unreadable)?;
        if format_version > FORMAT_VERSION {
            let (found, known) = (format_version, FORMAT_VERSION);
            return Err(LogError::FormatVersion { path: file.path(), found, known });
        }
        let AckerFile { token, stopped, follows, followed_in, .. } =
            serde_json::from_str(&document).map_err(unreadable)?;
        Ok(Self { token, stopped, follows, followed_in })
    }

    /// Puts it on disk, to stay.
    ///
    /// # Errors
    /// [`LogError::DiskFull`], [`LogError::Write`]: nobody knows which of the two would be read after a restart.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), LogError> {
        let Self { token, stopped, follows, followed_in } = self.clone();
        let document = AckerFile { format_version: FORMAT_VERSION, token, stopped, follows, followed_in };
        // Strings and integers always serialize.
        file_in(directory).replace(&serde_json::to_string(&document).unwrap_or_default())
    }
}

fn file_in(directory: &Path) -> AtomicJsonFile {
    AtomicJsonFile::new(directory, NAME, BYTES_MAX)
}

#[derive(Deserialize)]
struct AckerFileVersion {
    format_version: u32,
}

/// [`PersistedOrders`] on disk. No field is passed over, nor taken for one that says nothing: what is misspelt may have been the order to stand
/// still.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AckerFile {
    format_version: u32,
    token: u64,
    #[serde(deserialize_with = "Option::deserialize")]
    stopped: Option<StopOrder>,
    #[serde(deserialize_with = "Option::deserialize")]
    follows: Option<String>,
    #[serde(default)]
    followed_in: u64,
}

/// How an acker stands, and what its log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckerState {
    /// What it was ordered.
    pub orders: PersistedOrders,
    /// Whether it acknowledges only what a power cut would leave.
    pub durable: bool,
    /// All that the log holds durably, what was before its beginning included; read after `ordered`. `None` while it is empty.
    pub holds: Option<GtidSet>,
    /// Of that, what the log's folder cannot give any more. All of it where nothing says what was before the log.
    pub before: Option<GtidSet>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order() -> impl Strategy<Value = CaptureOrder> {
        let server = proptest::option::of("[a-c]").prop_map(CaptureOrder::Follow);
        prop_oneof![Just(CaptureOrder::Stop), Just(CaptureOrder::Start), server]
    }

    proptest! {
        /// Whatever comes in whatever order: an earlier term changes nothing, and what counts is the last order of all others.
        #[test]
        fn earlier_terms_are_refused_and_the_last_order_counts(
            orders in proptest::collection::vec((order(), 0_u64..5), 0..12)
        ) {
            let (mut ordered, mut highest) = (PersistedOrders::default(), 0);
            let (mut follows, mut followed_in) = (None, 0);
            for (now_ms, (order, token)) in (1_u64..).zip(orders) {
                let before = ordered.clone();
                match ordered.after(&order, token, now_ms) {
                    Err(error) => {
                        prop_assert!(token < highest);
                        prop_assert_eq!(error.code(), "TW-RELAY-0015");
                        continue;
                    }
                    Ok(after) => ordered = after,
                }
                prop_assert!(token >= highest);
                highest = token;
                let is_stopped = match order {
                    CaptureOrder::Stop => true,
                    CaptureOrder::Start => false,
                    CaptureOrder::Follow(server) => {
                        (follows, followed_in) = (server, token);
                        false
                    }
                };
                prop_assert_eq!(ordered.token, highest);
                prop_assert_eq!(ordered.stopped.is_some(), is_stopped);
                prop_assert_eq!((&ordered.follows, ordered.followed_in), (&follows, followed_in));
                if let (Some(now), Some(was)) = (ordered.stopped, before.stopped) {
                    prop_assert_eq!(now.since_ms, was.since_ms);
                }
            }
        }
    }

    #[test]
    fn it_outlives_the_process_and_damage_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(PersistedOrders::read(folder.path()).unwrap(), PersistedOrders::default());
        let ordered = PersistedOrders {
            token: 7,
            stopped: Some(StopOrder { token: 7, since_ms: 1_700_000_000_000 }),
            follows: Some("db2".into()),
            followed_in: 6,
        };
        PersistedOrders::default().write(folder.path()).unwrap();
        ordered.write(folder.path()).unwrap();
        assert_eq!(PersistedOrders::read(folder.path()).unwrap(), ordered);

        // As a version wrote it that did not note in which term it was told.
        let before = r#"{"format_version":1,"token":7,"stopped":null,"follows":"db2"}"#;
        file_in(folder.path()).replace(before).unwrap();
        let read = PersistedOrders::read(folder.path()).unwrap();
        assert_eq!((read.token, read.follows.as_deref(), read.followed_in), (7, Some("db2"), 0));
        ordered.write(folder.path()).unwrap();

        let path = folder.path().join(NAME);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() - 1 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert!(
                matches!(PersistedOrders::read(folder.path()), Err(LogError::Corrupt { .. })),
                "byte {at}"
            );
        }
        for wrong in [
            r#"{"format_version":1,"token":7,"stoped":{"token":7,"since_ms":1},"follows":null}"#,
            r#"{"format_version":1,"token":7,"stopped":{"token":7},"follows":null}"#,
            r#"{"format_version":1,"token":7,"stopped":null,"follows":null,"followed_by":6}"#,
        ] {
            file_in(folder.path()).replace(wrong).unwrap();
            assert!(matches!(PersistedOrders::read(folder.path()), Err(LogError::Corrupt { .. })), "{wrong}");
        }
        file_in(folder.path()).replace(r#"{"format_version":9,"something":"else"}"#).unwrap();
        assert!(matches!(
            PersistedOrders::read(folder.path()),
            Err(LogError::FormatVersion { found: 9, .. })
        ));
    }
}
