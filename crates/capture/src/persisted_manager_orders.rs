//! The orders that a manager gave to a capture: whether the capture is stopped, which server it follows, and
//! in which lease term the manager gave the order. They are stored in a file, so they survive restarts.
//!
//! A failover relies on ackers that stay stopped. If an acker forgot its order in a restart, the old primary
//! could commit again. So the capture writes an order to disk before it confirms the order. After a restart
//! it reads the order before it connects to a server. Each order has the number of the lease term in which it
//! was given. If the capture has seen a later lease term, it refuses the order.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tailwater_log::{AtomicJsonFile, LogError};
use tailwater_wire::gtid::GtidSet;

use crate::CaptureError;

const NAME: &str = "acker.json";

/// The newest version of the file format. New files are written in this version.
const FORMAT_VERSION: u32 = 1;

/// The maximum size of the file in bytes. Only the server name in the file has a variable length, so real
/// files are much smaller.
const BYTES_MAX: u64 = 64 << 10;

/// A manager's order to stop the capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopOrder {
    /// The lease term in which the order was given.
    pub token: u64,
    /// When the capture stopped, in milliseconds since 1970.
    pub since_ms: u64,
}

/// The number of an order: which manager gave it, and in which of its failovers or switchovers. A capture
/// refuses an order whose number is lower than that of an order it has executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderNumber {
    /// The lease term of the manager.
    pub token: u64,
    /// Counts the failovers, switchovers and recoveries of that lease term. An order of an earlier one may
    /// arrive late, when a later one has already begun. `None` for an order of an operator, or of a manager
    /// of an earlier version: then only the lease term counts.
    pub run: Option<u64>,
}

impl From<u64> for OrderNumber {
    fn from(token: u64) -> Self {
        Self { token, run: None }
    }
}

/// The manager's orders to a capture that are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersistedOrders {
    /// The highest lease term of all orders so far; 0 before the first order.
    pub token: u64,
    /// If set, the capture is stopped: it reads and acknowledges nothing.
    pub stopped: Option<StopOrder>,
    /// The server of the cluster that the capture reads from; `None` for its own source.
    pub follows: Option<String>,
    /// The lease term of the last order to follow a server. 0 if there was none, or if an older version wrote
    /// the file. Orders to stop or start do not change this lease term.
    pub followed_in: u64,
    /// The highest [`OrderNumber::run`] of the orders of lease term `token`; 0 if none had one.
    pub run: u64,
}

/// A manager's order to a capture, without its lease term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaptureOrder {
    /// Read and acknowledge nothing until a later order.
    Stop,
    /// Continue to read from the same server as before.
    Start,
    /// Read from this server from now on; `None` for the capture's own source.
    Follow(Option<String>),
}

impl PersistedOrders {
    /// Checks that the capture has executed no order of a later lease term, and none of a later failover or
    /// switchover of the same lease term.
    ///
    /// # Errors
    /// [`CaptureError::StaleOrder`], [`CaptureError::SupersededOrder`].
    pub fn check(&self, OrderNumber { token, run }: OrderNumber) -> Result<(), CaptureError> {
        match run {
            _ if token < self.token => Err(CaptureError::StaleOrder { token, seen: self.token }),
            Some(run) if token == self.token && run < self.run => {
                Err(CaptureError::SupersededOrder { token, run, seen: self.run })
            }
            _ => Ok(()),
        }
    }

    /// Returns the orders that are in force after `order`. The caller must persist them.
    ///
    /// # Errors
    /// [`CaptureError::StaleOrder`], [`CaptureError::SupersededOrder`]: the order has no effect.
    pub fn after(
        &self,
        order: &CaptureOrder,
        number: OrderNumber,
        now_ms: u64,
    ) -> Result<Self, CaptureError> {
        self.check(number)?;
        let token = number.token;
        let earlier_run = if token == self.token { self.run } else { 0 };
        let mut next = Self { token, run: number.run.unwrap_or(earlier_run), ..self.clone() };
        match order {
            // If the capture is stopped already, keep the time of the first stop.
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

    /// Reads the orders of the capture whose log is in `directory`. Returns the default if there is no file
    /// with orders.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::FormatVersion`], [`LogError::Io`]. After such an error the capture
    /// must not run, because the unreadable file may contain an order to stop.
    pub fn read(directory: &Path) -> Result<Self, LogError> {
        let file = file_in(directory);
        let Some(document) = file.read()? else { return Ok(Self::default()) };
        let unreadable =
            |error: serde_json::Error| file.corrupt(format!("the file of orders cannot be read: {error}"));
        // Check the version first: a file of a newer version may lack the other fields.
        let AckerFileVersion { format_version } = serde_json::from_str(&document).map_err(unreadable)?;
        if format_version > FORMAT_VERSION {
            let (found, known) = (format_version, FORMAT_VERSION);
            return Err(LogError::FormatVersion { path: file.path(), found, known });
        }
        let AckerFile { token, stopped, follows, followed_in, run, .. } =
            serde_json::from_str(&document).map_err(unreadable)?;
        Ok(Self { token, stopped, follows, followed_in, run })
    }

    /// Writes the orders of the manager to the file durably.
    ///
    /// # Errors
    /// [`LogError::DiskFull`], [`LogError::Write`]. After such an error, the file has either the old or the
    /// new orders.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), LogError> {
        let Self { token, stopped, follows, followed_in, run } = self.clone();
        let document =
            AckerFile { format_version: FORMAT_VERSION, token, stopped, follows, followed_in, run };
        // Serializing strings and integers cannot fail.
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

/// The form of [`PersistedOrders`] on disk. Unknown and missing fields are errors, because a misspelt field
/// may be an order to stop.
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
    #[serde(default)]
    run: u64,
}

/// The state of an acker, and the transactions in its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckerState {
    /// The orders of the manager that are in force.
    pub orders: PersistedOrders,
    /// Whether the acker acknowledges only transactions that survive a power failure.
    pub durable: bool,
    /// All durable transactions of the log, and all transactions before the log's beginning. This value was
    /// read after `orders`. `None` while the log is empty.
    pub holds: Option<GtidSet>,
    /// The transactions in `holds` that are older than the first segment of the log, so that the log does not
    /// contain them. If it is unknown which transactions these are, all transactions in `holds`.
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
        /// For any sequence of orders: an order of an earlier lease term changes nothing, and the last valid
        /// order is in force.
        #[test]
        fn orders_of_earlier_lease_terms_are_refused_and_the_last_order_wins(
            orders in proptest::collection::vec((order(), 0_u64..5, proptest::option::of(0_u64..4)), 0..12)
        ) {
            // The highest lease term, and the highest run of it.
            let (mut ordered, mut highest) = (PersistedOrders::default(), (0, 0));
            let (mut follows, mut followed_in) = (None, 0);
            for (now_ms, (order, token, run)) in (1_u64..).zip(orders) {
                let before = ordered.clone();
                let is_superseded = run.is_some_and(|run| (token, run) < highest);
                match ordered.after(&order, OrderNumber { token, run }, now_ms) {
                    Err(error) => {
                        prop_assert!(token < highest.0 || is_superseded);
                        prop_assert_eq!(error.code(), "TW-RELAY-0015");
                        continue;
                    }
                    Ok(after) => ordered = after,
                }
                prop_assert!(token >= highest.0 && !is_superseded);
                highest = highest.max((token, run.unwrap_or_default()));
                let is_stopped = match order {
                    CaptureOrder::Stop => true,
                    CaptureOrder::Start => false,
                    CaptureOrder::Follow(server) => {
                        (follows, followed_in) = (server, token);
                        false
                    }
                };
                prop_assert_eq!((ordered.token, ordered.run), highest);
                prop_assert_eq!(ordered.stopped.is_some(), is_stopped);
                prop_assert_eq!((&ordered.follows, ordered.followed_in), (&follows, followed_in));
                if let (Some(now), Some(was)) = (ordered.stopped, before.stopped) {
                    prop_assert_eq!(now.since_ms, was.since_ms);
                }
            }
        }
    }

    #[test]
    fn orders_survive_a_restart_and_a_damaged_file_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(PersistedOrders::read(folder.path()).unwrap(), PersistedOrders::default());
        let ordered = PersistedOrders {
            token: 7,
            stopped: Some(StopOrder { token: 7, since_ms: 1_700_000_000_000 }),
            follows: Some("db2".into()),
            followed_in: 6,
            run: 3,
        };
        PersistedOrders::default().write(folder.path()).unwrap();
        ordered.write(folder.path()).unwrap();
        assert_eq!(PersistedOrders::read(folder.path()).unwrap(), ordered);

        // A file that was written by a version which did not store the lease term of the order to follow a
        // server.
        let before = r#"{"format_version":1,"token":7,"stopped":null,"follows":"db2"}"#;
        file_in(folder.path()).replace(before).unwrap();
        let read = PersistedOrders::read(folder.path()).unwrap();
        assert_eq!((read.token, read.follows.as_deref(), read.followed_in), (7, Some("db2"), 0));
        assert_eq!(read.run, 0);
        ordered.write(folder.path()).unwrap();

        let path = folder.path().join(NAME);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() - 1 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert!(
                matches!(PersistedOrders::read(folder.path()), Err(LogError::Corrupt { .. })),
                "a change of byte {at} was not detected"
            );
        }
        for wrong in [
            r#"{"format_version":1,"token":7,"stoped":{"token":7,"since_ms":1},"follows":null}"#,
            r#"{"format_version":1,"token":7,"stopped":{"token":7},"follows":null}"#,
            r#"{"format_version":1,"token":7,"stopped":null,"follows":null,"followed_by":6}"#,
        ] {
            file_in(folder.path()).replace(wrong).unwrap();
            assert!(
                matches!(PersistedOrders::read(folder.path()), Err(LogError::Corrupt { .. })),
                "an invalid file was accepted: {wrong}"
            );
        }
        file_in(folder.path()).replace(r#"{"format_version":9,"something":"else"}"#).unwrap();
        assert!(matches!(
            PersistedOrders::read(folder.path()),
            Err(LogError::FormatVersion { found: 9, .. })
        ));
    }
}
