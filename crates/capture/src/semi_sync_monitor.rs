//! The semi-sync monitor. It checks whether the source still waits for an ACK before it acknowledges commits
//! to its clients.
//!
//! Lossless capture depends on four settings and states of the source. A user with SUPER can change any of
//! them, and a restart can reset them. The replication stream does not show such changes. So the monitor
//! queries the settings at intervals.

use std::fmt;
use std::time::Duration;

use tailwater_session::semi_sync::{SemiSyncSource, WaitPoint};

/// One sample of the source's semi-sync settings and counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemiSyncSample {
    /// The settings and counters; `None` if the plugin is not loaded.
    pub source: Option<SemiSyncSource>,
    /// Seconds since the server started. A lower value than before shows that a restart has reset the counter
    /// of commits without an ACK.
    pub uptime_seconds: u64,
}

impl SemiSyncSample {
    fn unacknowledged(&self) -> u64 {
        self.source.as_ref().map_or(0, |source| source.unacknowledged)
    }
}

/// Why a commit may be, or was, acknowledged to a client although it is not in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SemiSyncAlarm {
    /// Semi-sync is not loaded or not enabled on the source.
    Disabled,
    /// Semi-sync is enabled, but the source has fallen back to asynchronous replication.
    FallenBack,
    /// The source waits for the ACK after the engine commit, so other clients can read transactions that may
    /// still be lost.
    WaitsAfterCommit,
    /// The source's semi-sync timeout is so short that it would expire during a restart of the capture.
    /// Clients would then get an OK for commits that have no ACK.
    TimeoutShort(Duration),
    /// Since the last sample, clients got an OK for this many commits that had no ACK.
    CommitsWithoutAck(u64),
}

impl SemiSyncAlarm {
    /// The stable code of this alarm, as in docs/reference/errors.md.
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
                "the source waits only {} ms for an acknowledgement before it continues without one; raise \
                 rpl_semi_sync_source_timeout (MariaDB: rpl_semi_sync_master_timeout)",
                timeout.as_millis()
            ),
            Self::CommitsWithoutAck(count) => {
                write!(f, "{count} commits were acknowledged to clients without being acknowledged by the log")
            }
        }
    }
}

/// The shortest semi-sync timeout that raises no alarm. It is long enough for a restart of this process or
/// its machine, after which the capture sends ACKs again. A failover needs a longer timeout
/// (docs/reference/lossless.md): in a failover the ackers do not return, and the old primary must wait until
/// an operator has acted.
pub const ALARM_TIMEOUT_MIN: Duration = Duration::from_secs(600);

/// Returns the alarms that the sample `now` raises. `before` is the previous sample.
///
/// Without `before` there is no earlier count of commits, so only the settings are checked. If the source's
/// uptime is lower than before, the source has restarted. Then the counter of commits without an ACK is
/// compared with zero.
pub fn assess(before: Option<&SemiSyncSample>, now: &SemiSyncSample) -> Vec<SemiSyncAlarm> {
    let mut alarms = Vec::new();
    match now.source.as_ref().filter(|source| source.enabled) {
        None => alarms.push(SemiSyncAlarm::Disabled),
        Some(source) => {
            if !source.active {
                alarms.push(SemiSyncAlarm::FallenBack);
            }
            if source.wait_point == WaitPoint::AfterCommit {
                alarms.push(SemiSyncAlarm::WaitsAfterCommit);
            }
            let timeout = Duration::from_millis(source.timeout_ms);
            if timeout < ALARM_TIMEOUT_MIN {
                alarms.push(SemiSyncAlarm::TimeoutShort(timeout));
            }
        }
    }
    if let Some(before) = before {
        let restarted = now.uptime_seconds < before.uptime_seconds;
        let base = if restarted { 0 } else { before.unacknowledged() };
        let grown = now.unacknowledged().saturating_sub(base);
        if grown > 0 {
            alarms.push(SemiSyncAlarm::CommitsWithoutAck(grown));
        }
    }
    alarms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> SemiSyncSource {
        SemiSyncSource {
            enabled: true,
            active: true,
            timeout_ms: 86_400_000,
            wait_point: WaitPoint::AfterSync,
            wait_no_replica: true,
            acks_needed: 1,
            clients: 1,
            waiting_sessions: 0,
            acknowledged: 100,
            unacknowledged: 7,
            survives_restart: false,
        }
    }

    fn sample(change: impl FnOnce(&mut SemiSyncSource), uptime_seconds: u64) -> SemiSyncSample {
        let mut source = healthy();
        change(&mut source);
        SemiSyncSample { source: Some(source), uptime_seconds }
    }

    /// The alarms that the sample `now` raises if the previous sample was healthy.
    fn alarms(now: &SemiSyncSample) -> Vec<SemiSyncAlarm> {
        assess(Some(&sample(|_| (), 100)), now)
    }

    #[test]
    fn a_healthy_source_raises_no_alarm() {
        assert_eq!(assess(None, &sample(|_| (), 100)), []);
        assert_eq!(alarms(&sample(|_| (), 100)), []);
    }

    #[test]
    fn each_setting_raises_its_own_alarm() {
        let check = |change: fn(&mut SemiSyncSource), expected: &[SemiSyncAlarm]| {
            assert_eq!(alarms(&sample(change, 100)), expected);
        };
        check(|s| s.enabled = false, &[SemiSyncAlarm::Disabled]);
        check(|s| s.active = false, &[SemiSyncAlarm::FallenBack]);
        check(|s| s.wait_point = WaitPoint::AfterCommit, &[SemiSyncAlarm::WaitsAfterCommit]);
        check(|s| s.timeout_ms = 10_000, &[SemiSyncAlarm::TimeoutShort(Duration::from_secs(10))]);
        check(|s| s.unacknowledged = 9, &[SemiSyncAlarm::CommitsWithoutAck(2)]);
        let unloaded = SemiSyncSample { source: None, uptime_seconds: 100 };
        assert_eq!(alarms(&unloaded), [SemiSyncAlarm::Disabled]);
    }

    #[test]
    fn the_commit_counter_starts_at_zero_after_a_restart_of_the_source() {
        assert_eq!(alarms(&sample(|s| s.unacknowledged = 0, 1)), []);
        assert_eq!(alarms(&sample(|s| s.unacknowledged = 3, 1)), [SemiSyncAlarm::CommitsWithoutAck(3)]);
    }
}
