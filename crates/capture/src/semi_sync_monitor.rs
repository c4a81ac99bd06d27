//! The semi-sync monitor: checks whether the source still waits for an ACK before it acknowledges commits to
//! its clients.
//!
//! Lossless capture depends on four facts about the source. A user with SUPER can change any of them, a
//! restart can lose them, and the replication stream does not show it. They are therefore queried at
//! intervals.

use std::fmt;
use std::time::Duration;

/// One sample of the source's semi-sync settings and counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemiSyncSample {
    /// The plugin is loaded and enabled (`rpl_semi_sync_{source,master}_enabled`).
    pub enabled: bool,
    /// Semi-sync is active now (`Rpl_semi_sync_{source,master}_status`).
    pub active: bool,
    /// The wait comes before the engine commit (`wait_point` is `AFTER_SYNC`), so no other client can see a
    /// transaction that may yet be lost.
    pub waits_after_sync: bool,
    /// After how long without an ACK the source falls back to asynchronous replication.
    pub timeout: Duration,
    /// Commits acknowledged to clients without an ACK since the server started
    /// (`Rpl_semi_sync_{source,master}_no_tx`).
    pub unacknowledged_commits: u64,
    /// Seconds since the server started; distinguishes a restart from a counter that fell.
    pub uptime_seconds: u64,
}

/// Why a commit may be, or was, acknowledged to a client without being in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SemiSyncAlarm {
    /// Semi-sync is not loaded or not enabled.
    Disabled,
    /// Semi-sync is enabled but the source has fallen back to asynchronous.
    FallenBack,
    /// The wait comes after the engine commit: other clients may read transactions that can still be lost.
    WaitsAfterCommit,
    /// The timeout is so short that a restart of the capture would let commits through.
    TimeoutShort(Duration),
    /// This many commits were acknowledged to clients without an ACK since the last sample.
    CommitsWithoutAck(u64),
}

impl SemiSyncAlarm {
    /// The stable code of this alarm; see docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Disabled => "TW-RELAY-0101",
            Self::FallenBack => "TW-RELAY-0102",
            Self::WaitsAfterCommit => "TW-RELAY-0103",
            Self::TimeoutShort(_) => "TW-RELAY-0104",
            Self::CommitsWithoutAck(_) => "TW-RELAY-0105",
        }
    }
}

impl fmt::Display for SemiSyncAlarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str(
                "semi-synchronous replication is off on the source: commits are acknowledged to clients before they \
                 are in the log; enable rpl_semi_sync_source_enabled (MariaDB: rpl_semi_sync_master_enabled)",
            ),
            Self::FallenBack => f.write_str(
                "the source has fallen back to asynchronous replication: commits are acknowledged to clients before \
                 they are in the log",
            ),
            Self::WaitsAfterCommit => f.write_str(
                "the source waits AFTER_COMMIT: other clients can read a transaction that may still be lost; set the \
                 wait point to AFTER_SYNC",
            ),
            Self::TimeoutShort(timeout) => write!(
                f,
                "the source waits only {} ms for an acknowledgement before it continues without; raise \
                 rpl_semi_sync_source_timeout (MariaDB: rpl_semi_sync_master_timeout)",
                timeout.as_millis()
            ),
            Self::CommitsWithoutAck(count) => {
                write!(f, "{count} commits were acknowledged to clients without being acknowledged by the log")
            }
        }
    }
}

/// The shortest timeout without an alarm: long enough for a restart of this process or its machine, after
/// which the log acknowledges commits again. A failover needs a longer one (docs/reference/lossless.md): no
/// acker returns there, and the old primary must wait until an operator has acted.
pub const SEMI_SYNC_TIMEOUT_MIN: Duration = Duration::from_secs(600);

/// The problems in `now`, given the previous sample.
///
/// Without `before` there is no base for the counter, and only settings are checked. After a restart of the
/// source (its uptime fell) the counter's base is zero.
pub fn assess(before: Option<&SemiSyncSample>, now: &SemiSyncSample) -> Vec<SemiSyncAlarm> {
    let mut alarms = Vec::new();
    if !now.enabled {
        alarms.push(SemiSyncAlarm::Disabled);
    } else {
        if !now.active {
            alarms.push(SemiSyncAlarm::FallenBack);
        }
        if !now.waits_after_sync {
            alarms.push(SemiSyncAlarm::WaitsAfterCommit);
        }
        if now.timeout < SEMI_SYNC_TIMEOUT_MIN {
            alarms.push(SemiSyncAlarm::TimeoutShort(now.timeout));
        }
    }
    if let Some(before) = before {
        let restarted = now.uptime_seconds < before.uptime_seconds;
        let base = if restarted { 0 } else { before.unacknowledged_commits };
        let grown = now.unacknowledged_commits.saturating_sub(base);
        if grown > 0 {
            alarms.push(SemiSyncAlarm::CommitsWithoutAck(grown));
        }
    }
    alarms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> SemiSyncSample {
        SemiSyncSample {
            enabled: true,
            active: true,
            waits_after_sync: true,
            timeout: Duration::from_secs(86_400),
            unacknowledged_commits: 7,
            uptime_seconds: 100,
        }
    }

    #[test]
    fn healthy_source_raises_no_alarm() {
        assert_eq!(assess(None, &healthy()), []);
        assert_eq!(assess(Some(&healthy()), &healthy()), []);
    }

    #[test]
    fn each_setting_raises_its_own_alarm() {
        let check = |change: fn(&mut SemiSyncSample), expected: &[SemiSyncAlarm]| {
            let mut sample = healthy();
            change(&mut sample);
            assert_eq!(assess(Some(&healthy()), &sample), expected);
        };
        check(|s| s.enabled = false, &[SemiSyncAlarm::Disabled]);
        check(|s| s.active = false, &[SemiSyncAlarm::FallenBack]);
        check(|s| s.waits_after_sync = false, &[SemiSyncAlarm::WaitsAfterCommit]);
        check(
            |s| s.timeout = Duration::from_secs(10),
            &[SemiSyncAlarm::TimeoutShort(Duration::from_secs(10))],
        );
        check(|s| s.unacknowledged_commits = 9, &[SemiSyncAlarm::CommitsWithoutAck(2)]);
    }

    #[test]
    fn counter_restarts_with_the_source() {
        let mut sample = healthy();
        sample.uptime_seconds = 1;
        sample.unacknowledged_commits = 0;
        assert_eq!(assess(Some(&healthy()), &sample), []);
        sample.unacknowledged_commits = 3;
        assert_eq!(assess(Some(&healthy()), &sample), [SemiSyncAlarm::CommitsWithoutAck(3)]);
    }
}
