//! What an operator does about a failure or a problem. docs/reference/failure-codes.md and
//! docs/how-to/topology.md explain each failure and each problem.

use super::FailureCode;
use crate::cluster_tree::ProblemCode;

impl FailureCode {
    /// Returns the failure code with this name; `None` if no code has this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.to_string() == name)
    }

    /// Returns what the operator must do about this failure.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::SplitBrainSuspected => {
                "make one of the servers read-only, then move its own transactions to the other server"
            }
            Self::DeadPrimary => {
                "if the manager does not fail over by itself: `tailwater failover`, first with --dry-run"
            }
            Self::UnreachablePrimary => {
                "check the network between this machine and the primary; if the primary is dead, `tailwater failover`"
            }
            Self::RewoundPrimary => {
                "let no client write to the primary: it lost data; find out why before you use it again"
            }
            Self::PrimaryReadOnlyOrFull => "free disk space on the primary, or make it writable",
            Self::OutOfConnections => {
                "wait until the transaction in the evidence has ended, or end its session with `KILL`; a commit cannot be killed"
            }
            Self::SemiSyncBlocked => {
                "start the missing relay, or restart the connected relay; do not switch semi-sync off"
            }
            Self::SemiSyncDegraded => "set semi-sync up on the primary as in docs/how-to/capture.md",
            Self::FailoverNotReady => "fix what the safety rule names; see docs/reference/safety-rules.md",
            Self::DeadRelay => "start `tailwater run` on the relay's machine, and check the network to it",
            Self::RelayDetached => {
                "fix the error in the evidence: the network, the account, or a purged binlog"
            }
            Self::DeadReplica => "start the server, and check the network to it",
            Self::ReplicaStopped => "fix the replica's error, then start its replication",
            Self::ReplicaLagging => {
                "find what slows the replica down: its load, its disk, or a long transaction; or wait until it has caught up"
            }
        }
    }
}

impl ProblemCode {
    /// Returns what the operator must do about this problem. The text of the problem may say more.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NotReached => "start the server, check its address and account, and the network to it",
            Self::PrimaryReadOnly => "make the primary writable, or switch over to another server",
            Self::ReplicaWritable => "make the replica read-only, so that no client writes to it",
            Self::IoStopped | Self::IoConnecting => {
                "fix the error, then start the replica's receiving thread"
            }
            Self::SqlStopped => "fix the error, then start the replica's applying thread",
            Self::Lagging => "find what slows the replica down, or wait until it has caught up",
            Self::Errant => {
                "move these transactions to the primary or give them up; `tailwater check` finds the rows"
            }
            Self::Ahead => "compare the rows with `tailwater check`; the primary may have lost commits",
            Self::PurgedBeforeRead => {
                "let the server replicate from Tailwater, whose log may have these transactions, or clone the server again"
            }
            Self::NotReplicating => {
                "start replication on the server, or remove its [[server]] from the configuration"
            }
            Self::UnknownSource => "add a [[server]] for the source of this replica, or repoint the replica",
            Self::NotByGtids => "switch the replication of the server to GTIDs",
            Self::NoReplicaUpdates => {
                "set log_replica_updates (MariaDB: log_slave_updates) and restart the server"
            }
            Self::NoBinlog => "set log_bin and restart the server",
            Self::NotDurable => "set innodb_flush_log_at_trx_commit = 1 and sync_binlog = 1",
            Self::NoSemiSync => "load the semi-sync source plugin on the server",
            Self::SemiSyncOff | Self::SemiSyncLossy => {
                "set semi-sync up on the primary as in docs/how-to/capture.md"
            }
            Self::SemiSyncTooFew => "start the missing relays, or lower the number of ACKs",
            Self::SameServerId => "give one of the two servers another server_id",
            Self::OtherFlavour => "feed the server by a channel instead of native replication",
            Self::OlderThanSource => "upgrade the server",
            Self::PrimaryReplicates => {
                "stop the replication of this server, or name the present primary in the configuration"
            }
            Self::RelayNotRunning => {
                "start `tailwater run` on the relay's machine, and check the network to that machine"
            }
            Self::RelayNotStreaming => {
                "remove the cause that the problem names; `tailwater run` logs each attempt"
            }
            Self::ChannelStopped => "`tailwater channel start`",
            Self::NotAsked => "grant the privilege; `tailwater grants` prints the statements",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_by_name() {
        for code in FailureCode::ALL {
            assert_eq!(FailureCode::named(&code.to_string()), Some(code));
            assert!(!code.remedy().ends_with('.'), "the remedy must not end with a full stop: {code}");
        }
        assert_eq!(FailureCode::named("NoSuchCode"), None);
    }
}
