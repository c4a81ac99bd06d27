//! What an operator asks of a channel, and what it says of itself. Values only: who carries them, and how, is not known
//! here.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::filter::FilterSet;
use crate::scheduler::CommitOrder;

/// What an operator asks of a channel that is configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command", deny_unknown_fields)]
pub enum ChannelCommand {
    /// Says how it is.
    Status,
    /// Goes on where it is, until told otherwise or until `until`.
    Start {
        /// Where to stop by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<StopPoint>,
        /// Applies the transaction that failed so that rows that are there already, or no more, are no error; those
        /// behind it as usual.
        #[serde(default)]
        idempotent_once: bool,
    },
    /// Commits what runs, and stops.
    Stop,
    /// Leaves out the transaction at which it failed, and records that. The GTID is to be named, so that it is the one
    /// that was looked at.
    Skip {
        /// The transaction.
        gtid: String,
    },
    /// Counts all up to a place as applied and nothing behind it. Only while stopped.
    Seek {
        /// From where to go on.
        to: SeekPoint,
    },
    /// Other filters from a transaction on.
    Filter {
        /// The rules.
        filters: FilterSet,
        /// The first transaction for which they count; the next one, if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_gtid: Option<String>,
    },
    /// Other settings, at once. What is absent stays.
    Set(ChannelSettings),
}

/// Where a channel stops by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopPoint {
    /// Behind this transaction.
    AfterGtid(String),
    /// Before this transaction.
    BeforeGtid(String),
    /// Before the first transaction that committed on the source at this time or later, in microseconds since 1970.
    BeforeTimeUs(u64),
}

/// Where a channel is to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeekPoint {
    /// Behind this transaction.
    AfterGtid(String),
    /// Behind all of this GTID set (MySQL), or position (MariaDB).
    AfterGtids(String),
    /// At the first transaction that committed on the source at this time or later, in microseconds since 1970.
    TimeUs(u64),
    /// At the log's first transaction.
    Oldest,
    /// Behind its last.
    Newest,
}

/// Settings of a channel that may change while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChannelSettings {
    /// Connections that write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// See [`CommitOrder`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_order: Option<CommitOrder>,
    /// Transactions of the source in one of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_transactions_max: Option<usize>,
    /// Their bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_bytes_max: Option<usize>,
    /// How far it stays behind the source on purpose, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<u64>,
    /// Whether the target records what is applied in its own binlog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_binlog: Option<bool>,
}

/// Under which GTIDs the target knows what is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GtidMode {
    /// Those of the source, told to the target as a set; its binlog has nothing of it.
    #[default]
    Log,
    /// Those of the source, one transaction for each.
    Preserve,
    /// Its own.
    Own,
}

/// What a channel is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ChannelState {
    /// It applies, or waits for more.
    Running,
    /// It was told to stop, or came to where it was to stop.
    Stopped,
    /// It waits, because it is to stay behind.
    Delayed,
    /// The target cannot be reached, or refuses for now; it tries again.
    Retrying(ChannelFailure),
    /// It stopped by itself, and has kept everything.
    Failed(ChannelFailure),
}

/// Why a channel does not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelFailure {
    /// The error's stable code, see docs/reference/errors.md.
    pub code: String,
    /// What is wrong, where, and what to do.
    pub message: String,
    /// The transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtid: Option<String>,
    /// The table, as `SCHEMA.TABLE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// The row's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// How a channel is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChannelStatus {
    /// Its name.
    pub name: String,
    /// What it is doing.
    #[serde(flatten)]
    pub state: ChannelState,
    /// The last transaction before which none is missing on the target.
    pub low_gtid: Option<String>,
    /// The log's last transaction.
    pub log_end_gtid: Option<String>,
    /// How long ago the oldest transaction that is missing committed on the source, in seconds; 0 if none is missing.
    pub lag_seconds: f64,
    /// Transactions of the source that were applied, per second.
    pub transactions_per_second: f64,
    /// Rows of the source that were applied, per second.
    pub rows_per_second: f64,
    /// Connections that write.
    pub workers: usize,
    /// The order of commits.
    pub commit_order: CommitOrder,
    /// Under which GTIDs.
    pub gtid_mode: GtidMode,
    /// The version of the filters that the next transaction meets.
    pub filter_version: u64,
    /// Errors since the start, those that went away by trying again included.
    pub errors: u64,
    /// Transactions that were left out on an operator's word, ever.
    pub skipped: u64,
}

impl ChannelState {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Delayed => "delayed",
            Self::Retrying(_) => "retrying",
            Self::Failed(_) => "failed",
        }
    }

    /// What is wrong, if something is.
    pub fn failure(&self) -> Option<&ChannelFailure> {
        match self {
            Self::Retrying(failure) | Self::Failed(failure) => Some(failure),
            Self::Running | Self::Stopped | Self::Delayed => None,
        }
    }
}

impl fmt::Display for ChannelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Counts what was applied, and says how fast: over about the last ten seconds. The clock is the caller's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rate {
    last: Option<Duration>,
    counted: u64,
    per_second: f64,
}

impl Rate {
    const MEMORY_SECONDS: f64 = 10.0;

    /// Notes that `more` were applied.
    pub fn count(&mut self, more: u64) {
        self.counted = self.counted.saturating_add(more);
    }

    /// How many per second, `now` being any clock's time that does not go back. To be asked about once a second.
    pub fn per_second(&mut self, now: Duration) -> f64 {
        let Some(last) = self.last else {
            self.last = Some(now);
            return self.per_second;
        };
        let seconds = now.saturating_sub(last).as_secs_f64();
        if seconds > 0.0 {
            let forget = (-seconds / Self::MEMORY_SECONDS).exp();
            self.per_second = self.per_second * forget + (self.counted as f64 / seconds) * (1.0 - forget);
            (self.last, self.counted) = (Some(now), 0);
        }
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Serialize + for<'de> Deserialize<'de> + PartialEq + fmt::Debug>(value: &T, json: &str) {
        assert_eq!(serde_json::to_string(value).expect("JSON"), json);
        assert_eq!(serde_json::from_str::<T>(json).expect(json), *value);
    }

    #[test]
    fn commands_have_a_stable_form() {
        round_trip(&ChannelCommand::Status, r#"{"command":"status"}"#);
        let until = Some(StopPoint::AfterGtid("0-1-7".into()));
        round_trip(
            &ChannelCommand::Start { until, idempotent_once: true },
            r#"{"command":"start","until":{"after_gtid":"0-1-7"},"idempotent_once":true}"#,
        );
        round_trip(&ChannelCommand::Skip { gtid: "0-1-7".into() }, r#"{"command":"skip","gtid":"0-1-7"}"#);
        round_trip(&ChannelCommand::Seek { to: SeekPoint::Oldest }, r#"{"command":"seek","to":"oldest"}"#);
        let settings = ChannelSettings {
            workers: Some(8),
            commit_order: Some(CommitOrder::Independent),
            ..ChannelSettings::default()
        };
        round_trip(
            &ChannelCommand::Set(settings),
            r#"{"command":"set","workers":8,"commit_order":"independent"}"#,
        );
        let filters = FilterSet { exclude: vec!["a.*".into()], ..FilterSet::default() };
        round_trip(
            &ChannelCommand::Filter { filters, from_gtid: None },
            r#"{"command":"filter","filters":{"exclude":["a.*"]}}"#,
        );
        for wrong in [r#"{"command":"set","worker":8}"#, r#"{"command":"skip"}"#, r#"{"command":"go"}"#] {
            assert!(serde_json::from_str::<ChannelCommand>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_status_says_what_failed() {
        let failure = ChannelFailure {
            code: "TW-APP-0002".into(),
            message: "refused".into(),
            gtid: Some("0-1-7".into()),
            table: Some("a.b".into()),
            key: None,
        };
        let status = ChannelStatus {
            name: "copy".into(),
            state: ChannelState::Failed(failure.clone()),
            low_gtid: Some("0-1-6".into()),
            log_end_gtid: None,
            lag_seconds: 1.5,
            transactions_per_second: 0.0,
            rows_per_second: 0.0,
            workers: 4,
            commit_order: CommitOrder::Source,
            gtid_mode: GtidMode::Log,
            filter_version: 1,
            errors: 1,
            skipped: 0,
        };
        let json = serde_json::to_string(&status).expect("JSON");
        assert!(json.starts_with(r#"{"name":"copy","state":"failed","code":"TW-APP-0002","#), "{json}");
        assert_eq!(serde_json::from_str::<ChannelStatus>(&json).expect("a status"), status);
        assert_eq!((status.state.to_string().as_str(), status.state.failure()), ("failed", Some(&failure)));
    }

    #[test]
    fn a_rate_follows_what_is_counted() {
        let mut rate = Rate::default();
        let mut now = Duration::from_secs(100);
        assert_eq!(rate.per_second(now), 0.0);
        for _ in 0..100 {
            now += Duration::from_secs(1);
            rate.count(500);
            rate.per_second(now);
        }
        assert!((rate.per_second(now) - 500.0).abs() < 1.0);
        // The clock stands still, or went back: nothing is lost.
        rate.count(500);
        rate.per_second(now);
        rate.per_second(now - Duration::from_secs(5));
        assert!(rate.per_second(now + Duration::from_secs(1)) > 499.0);
        assert!(rate.per_second(now + Duration::from_secs(100)) < 1.0);
    }
}
