//! Finds problems of one server that a single observation shows.

use tailwater_wire::gtid::GtidSet;

use super::cluster_tree::{ProblemCode, TopologyNode};
use crate::server_state::{
    IoState, ObservedGtids, ReplicaChannel, SEMI_SYNC_TIMEOUT_MS_MIN, SemiSyncSource, ServerState,
    ThreadError, WaitPoint,
};
use crate::server_version::ServerVersion;

/// The largest lag of a replica, in seconds, that is not reported as a problem.
pub(super) const LAG_SECONDS_MAX: u64 = 10;

/// Adds the problems of the primary.
pub(super) fn judge_primary(node: &mut TopologyNode, look: &ServerState, ackers_wanted: bool) {
    if !look.is_writable() {
        let which = if look.super_read_only { "super_read_only" } else { "read_only" };
        node.problem(
            ProblemCode::PrimaryReadOnly,
            format!(
                "{which} is on: no client can write; SET GLOBAL {which} = OFF, if this server must be the primary"
            ),
        );
    }
    if !look.log_bin {
        node.problem(ProblemCode::NoBinlog, "log_bin is off: no server can replicate from the primary");
    }
    if !look.durability.is_crash_safe() {
        node.problem(ProblemCode::NotDurable, durability_text(look));
    }
    if let Some(channel) = look.channels.first() {
        node.problem(
            ProblemCode::PrimaryReplicates,
            format!(
                "the server is configured as the primary, but replicates from {}:{}; is another server the primary now?",
                channel.source_host, channel.source_port
            ),
        );
    }
    if ackers_wanted {
        judge_semi_sync(node, look.semi_sync_source.as_ref());
    }
}

fn judge_semi_sync(node: &mut TopologyNode, semi_sync: Option<&SemiSyncSource>) {
    let Some(semi_sync) = semi_sync.filter(|semi_sync| semi_sync.enabled) else {
        node.problem(
            ProblemCode::SemiSyncOff,
            "semi-sync is off: commits are reported to clients before another server has them; see docs/how-to/capture.md",
        );
        return;
    };
    if !semi_sync.active {
        node.problem(
            ProblemCode::SemiSyncOff,
            format!(
                "semi-sync has fallen back: {} commits were not acknowledged since the server started",
                semi_sync.unacknowledged
            ),
        );
    }
    if semi_sync.clients < semi_sync.acks_needed {
        let waiting = match semi_sync.waiting_sessions {
            0 => String::new(),
            1 => "; one session waits".to_owned(),
            sessions => format!("; {sessions} sessions wait"),
        };
        node.problem(
            ProblemCode::SemiSyncTooFew,
            format!(
                "{} of the {} ackers that a commit needs are connected{waiting}",
                semi_sync.clients, semi_sync.acks_needed
            ),
        );
    }
    let mut lossy = Vec::new();
    if semi_sync.wait_point == WaitPoint::AfterCommit {
        lossy.push(
            "wait_point is AFTER_COMMIT: other sessions see a commit before it is acknowledged".to_owned(),
        );
    }
    if semi_sync.timeout_ms < SEMI_SYNC_TIMEOUT_MS_MIN {
        lossy.push(format!(
            "timeout is {} ms: a commit that waits longer is reported to the client without an ACK",
            semi_sync.timeout_ms
        ));
    }
    if !semi_sync.wait_no_replica {
        lossy.push("commits do not wait while too few ackers are connected".to_owned());
    }
    if !lossy.is_empty() {
        node.problem(ProblemCode::SemiSyncLossy, lossy.join("; "));
    }
}

/// Adds the problems of a replica.
pub(super) fn judge_follower(node: &mut TopologyNode, look: &ServerState) {
    if look.is_writable() {
        node.problem(
            ProblemCode::ReplicaWritable,
            "ordinary accounts can write here: SET GLOBAL read_only = ON (MySQL: super_read_only)",
        );
    }
    if !look.log_bin {
        node.problem(ProblemCode::NoBinlog, "log_bin is off: the server cannot become the primary");
    } else if !look.log_replica_updates {
        node.problem(
            ProblemCode::NoReplicaUpdates,
            "the binlog of the server lacks replicated transactions: no server could replicate from this server",
        );
    }
    let acknowledges = look.semi_sync_replica.is_some_and(|semi_sync| semi_sync.active);
    if acknowledges && look.durability.sync_binlog != 1 && look.durability.flush_log_at_commit != 1 {
        node.problem(
            ProblemCode::NotDurable,
            format!("the replica acknowledges commits, and {}", durability_text(look)),
        );
    }
}

/// Adds the problems of a replication channel.
pub(super) fn judge_channel(node: &mut TopologyNode, channel: &ReplicaChannel) {
    let error = |error: &Option<ThreadError>| {
        error
            .as_ref()
            .map(|error| format!(": error {}: {}", error.number, first_line(&error.message)))
            .unwrap_or_default()
    };
    let source = format!("{}:{}", channel.source_host, channel.source_port);
    match channel.io {
        IoState::Running => {}
        IoState::Connecting => {
            node.problem(
                ProblemCode::IoConnecting,
                format!("the replica cannot reach its source {source}{}", error(&channel.io_error)),
            );
        }
        IoState::Stopped => {
            node.problem(
                ProblemCode::IoStopped,
                match &channel.io_error {
                    Some(_) => format!("the replica does not receive from {source}{}", error(&channel.io_error)),
                    None => format!(
                        "the replica does not receive from {source}: its receiving thread is stopped, without an error"
                    ),
                },
            );
        }
    }
    if !channel.sql_running {
        let why = match &channel.sql_error {
            Some(_) => error(&channel.sql_error),
            None => ": its applying thread is stopped, without an error".to_owned(),
        };
        node.problem(ProblemCode::SqlStopped, format!("the replica does not apply{why}"));
    }
    if !channel.uses_gtids {
        node.problem(
            ProblemCode::NotByGtids,
            "the replica replicates by file and position: it cannot be moved to another source safely",
        );
    }
    if let Some(lag) =
        channel.lag_seconds.filter(|lag| *lag > LAG_SECONDS_MAX.saturating_add(channel.delay_seconds))
    {
        node.problem(ProblemCode::Lagging, format!("the replica is {lag} s behind"));
    }
}

/// Adds the problems that a comparison with the primary shows.
/// `before` are the transactions that the server had before the probe of the primary began.
pub(super) fn judge_against_primary(
    node: &mut TopologyNode,
    look: &ServerState,
    before: Option<&ObservedGtids>,
    primary: &ServerState,
) {
    if look.flavour != primary.flavour {
        node.problem(
            ProblemCode::OtherFlavour,
            format!("this server is {}, and the primary is {}", look.flavour, primary.flavour),
        );
        return;
    }
    let state = super::gtid_comparison::compare(look, before, primary);
    if let Some(errant) = state.as_ref().and_then(|state| state.errant.as_deref()) {
        node.problem(
            ProblemCode::Errant,
            format!(
                "the server has transactions that the primary never had: {}; the server must not become the primary",
                cut(errant)
            ),
        );
    }
    let waits = primary.semi_sync_source.as_ref().is_some_and(|semi_sync| semi_sync.waiting_sessions > 0);
    if let Some(ahead) = state.as_ref().and_then(|state| state.ahead.as_deref()).filter(|_| !waits) {
        node.problem(
            ProblemCode::Ahead,
            format!(
                "the server has transactions of the primary that the primary lacks: {}; did the primary lose them?",
                cut(ahead)
            ),
        );
    }
    if let Some(lost) = purged_before_read(look, primary) {
        node.problem(
            ProblemCode::PurgedBeforeRead,
            format!("the server lacks {}, which the primary no longer has in its binlogs", cut(&lost)),
        );
    }
    node.gtid_state = state;
}

/// Returns the transactions that the primary has purged and that the server has neither executed nor
/// received.
fn purged_before_read(look: &ServerState, primary: &ServerState) -> Option<String> {
    let purged = primary.purged.as_ref()?;
    let mut has = look.executed.clone();
    for channel in &look.channels {
        has = has.union(&channel.received).ok()?;
    }
    let lost = purged.subtract(&has).ok()?;
    (!lost.is_empty()).then(|| lost.to_string())
}

/// Whether the release series of `version` is older than that of `than`. A replica that is older than its
/// source may not understand the source's events.
pub(super) fn is_older(version: &str, than: &str) -> bool {
    let series = |text: &str| ServerVersion::read(text).series();
    series(version) < series(than)
}

/// The longest text of a GTID set in a problem, in characters.
const GTIDS_CHARACTERS_MAX: usize = 200;

pub(super) fn cut(text: &str) -> String {
    let text = text.replace('\n', "");
    if text.chars().count() <= GTIDS_CHARACTERS_MAX {
        return text;
    }
    format!("{}...", text.chars().take(GTIDS_CHARACTERS_MAX).collect::<String>())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn durability_text(look: &ServerState) -> String {
    format!(
        "innodb_flush_log_at_trx_commit = {}, sync_binlog = {}: a crash of its machine may lose commits",
        look.durability.flush_log_at_commit, look.durability.sync_binlog
    )
}

/// Returns a GTID set as text on one line.
pub(super) fn gtid_text(set: &GtidSet) -> String {
    set.to_string().replace('\n', "")
}

#[cfg(test)]
mod tests {
    use super::{cut, is_older};

    #[test]
    fn versions_are_compared_by_their_series() {
        assert!(is_older("10.11.18", "11.8.3"));
        assert!(is_older("8.0.45", "8.4.0"));
        assert!(
            !is_older("9.7.0", "9.7.1"),
            "two versions of one release series must not count as older than each other"
        );
        assert!(!is_older("11.8.3", "10.11.18"));
        assert!(
            is_older("9.7.1", "26.7.0") && !is_older("26.7.0", "9.7.1"),
            "a calendar version is newer than any other version"
        );
    }

    #[test]
    fn long_sets_are_cut() {
        assert_eq!(cut("a\nb"), "ab");
        let long = "é".repeat(300);
        assert_eq!(cut(&long).chars().count(), 203);
    }
}
