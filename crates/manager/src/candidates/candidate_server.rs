//! What is known about a server that may become primary.

use serde::{Deserialize, Serialize};
use tailwater_topology::cluster_config::Member;
use tailwater_topology::server_state::{Observation, ServerState};
use tailwater_topology::{Promotion, ServerVersion};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{GtidDifference, GtidSet, MysqlGtidSet};

use super::ranking_reasons::ExclusionReason;

/// Identifies the server that first wrote a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GtidOrigin {
    /// MySQL: the `server_uuid` of that server.
    MySql([u8; 16]),
    /// MariaDB: the `server_id` of that server.
    MariaDb(u32),
}

impl GtidOrigin {
    /// Returns the flavour of the server.
    pub fn flavour(&self) -> Flavour {
        match self {
            Self::MySql(_) => Flavour::MySql,
            Self::MariaDb(_) => Flavour::MariaDb,
        }
    }

    /// Returns the transactions in a difference that other servers wrote, as text; `None` if there are none.
    pub fn foreign_transactions(&self, difference: &GtidDifference) -> Option<String> {
        match (self, difference) {
            (Self::MySql(own), GtidDifference::MySql(set)) => {
                let mut strange = MysqlGtidSet::new();
                for (uuid, tag, interval) in set.iter_intervals().filter(|(uuid, ..)| *uuid != own) {
                    // The interval comes from a GTID set, so its insertion into another set cannot fail.
                    let _ = strange.insert_interval(*uuid, tag, interval);
                }
                (!strange.is_empty()).then(|| strange.to_string())
            }
            (Self::MariaDb(own), GtidDifference::MariaDb(ranges)) => {
                let strange: Vec<String> =
                    ranges.iter().filter(|range| range.server_id != *own).map(ToString::to_string).collect();
                (!strange.is_empty()).then(|| strange.join(","))
            }
            _ => Some("GTIDs of the other flavour".to_owned()),
        }
    }
}

/// How transactions reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicationKind {
    /// Native replication from the primary, a relay or another replica, under the primary's GTIDs.
    #[serde(rename = "replication", alias = "native")]
    Native,
    /// A Tailwater channel that applies under the log's GTIDs. The server has what the channel has applied.
    Channel,
    /// A Tailwater channel that applies under the target's own GTIDs (`gtid = "own"`). Replicas could not
    /// continue from such a server.
    #[serde(rename = "own_channel", alias = "channel_own_gtids")]
    ChannelOwnGtids,
    /// A Tailwater channel with filters or skipped transactions. Its target is not a copy of the primary.
    PartialChannel,
}

/// What a channel reports about its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelCopyState {
    /// All transactions that the channel has applied; `None` if unknown.
    pub progress: Option<GtidSet>,
    /// Whether the target records the transactions under the log's GTIDs.
    pub keeps_gtids: bool,
    /// Whether the channel filtered and skipped nothing.
    pub is_whole: bool,
}

/// What is known about a server that may become primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateServer {
    /// Name of the server.
    pub name: String,
    /// Whether the server can be used, or why not.
    pub reached: Result<(), String>,
    /// Flavour of the server.
    pub flavour: Flavour,
    /// Version of the server.
    pub version: ServerVersion,
    /// Region of the server, if configured.
    pub region: Option<String>,
    /// Promotion preference from the configuration.
    pub promotion: Promotion,
    /// How transactions reach the server.
    pub feed: ReplicationKind,
    /// All transactions that are executed or complete in the server's relay logs; `None` if unknown.
    pub received: Option<GtidSet>,
    /// All transactions that the server has executed; `None` if unknown.
    pub executed: Option<GtidSet>,
    /// Transactions that the server has purged from its binlogs; `None` if its binlogs lack replicated
    /// transactions.
    pub purged: Option<GtidSet>,
    /// Whether the server writes a binlog.
    pub log_bin: bool,
    /// Whether the server's binlog contains replicated transactions.
    pub log_replica_updates: bool,
    /// Whether commits survive a power cut: `sync_binlog = 1` and `innodb_flush_log_at_trx_commit = 1`.
    pub durable: bool,
    /// The error that stopped the server's applier, if any.
    pub applier_error: Option<String>,
    /// Why the server certainly cannot become a semi-sync source; `None` if the server may become one.
    pub semi_sync_unavailable: Option<String>,
    /// Why an earlier attempt of this failover or switchover to promote the server failed. The server then
    /// counts as unreachable.
    pub failed: Option<String>,
    /// Expected time until the server has executed everything it received, in milliseconds, including a
    /// configured delay; `None` if unknown.
    pub catch_up_ms: Option<u64>,
}

impl CandidateServer {
    /// Builds the data from an observation of a configured server. If `progress` is given, the server is the
    /// target of a channel, and only `progress` shows which transactions it has. `primary` and `version`
    /// describe the old primary, and replace values that were not observed on this server.
    pub fn seen(
        member: &Member,
        observation: &Observation,
        progress: Option<&GtidSet>,
        primary: Flavour,
        version: ServerVersion,
    ) -> Self {
        let mut server = Self {
            name: member.name.clone(),
            reached: Ok(()),
            flavour: primary,
            version,
            region: member.region.clone(),
            promotion: member.promotion,
            feed: if progress.is_some() { ReplicationKind::Channel } else { ReplicationKind::Native },
            received: None,
            executed: None,
            purged: None,
            log_bin: false,
            log_replica_updates: false,
            durable: false,
            applier_error: None,
            semi_sync_unavailable: None,
            failed: None,
            catch_up_ms: None,
        };
        match &observation.outcome {
            Ok(look) => server.take(look, progress),
            Err(unreached) => server.reached = Err(unreached.message.clone()),
        }
        server
    }

    /// Does the same as [`CandidateServer::seen`] for a server that may be the target of a channel.
    pub fn fed(
        member: &Member,
        observation: &Observation,
        feed: Option<&ChannelCopyState>,
        primary: Flavour,
        version: ServerVersion,
    ) -> Self {
        let progress = feed.and_then(|feed| feed.progress.as_ref());
        let mut server = Self::seen(member, observation, progress, primary, version);
        if let Some(feed) = feed {
            server.feed = match (feed.keeps_gtids, feed.is_whole) {
                (false, _) => ReplicationKind::ChannelOwnGtids,
                (true, false) => ReplicationKind::PartialChannel,
                (true, true) => ReplicationKind::Channel,
            };
            if feed.progress.is_none() {
                (server.received, server.executed) = (None, None);
            }
        }
        server
    }

    fn take(&mut self, look: &ServerState, progress: Option<&GtidSet>) {
        self.flavour = look.flavour;
        self.version = ServerVersion::read(&look.version);
        self.log_bin = look.log_bin;
        self.log_replica_updates = look.log_replica_updates;
        self.durable = look.durability.is_crash_safe();
        self.semi_sync_unavailable.clone_from(&look.semi_sync_unavailable);
        if let Some(lack) = &look.missing_privilege {
            self.reached = Err(lack.clone());
        }
        if let Some(progress) = progress {
            self.executed = Some(progress.clone());
            self.received = Some(progress.clone());
            self.catch_up_ms = Some(0);
            return;
        }
        let mut received = look.executed.clone();
        for channel in &look.channels {
            received = received.union(&channel.received).unwrap_or(received);
        }
        let error = look.channels.iter().find_map(|channel| channel.sql_error.as_ref());
        self.applier_error = error.map(|error| format!("{} {}", error.number, error.message));
        let behind = look.channels.iter().map(|channel| channel.lag_seconds).max().flatten();
        self.catch_up_ms = match received.is_subset_of(&look.executed) {
            true => Some(0),
            false => behind.map(|seconds| seconds.saturating_mul(1000)),
        };
        self.purged.clone_from(&look.purged);
        self.executed = Some(look.executed.clone());
        // If the account cannot read the replication status, transactions in the relay logs would be
        // overlooked. The received set therefore counts as unknown.
        self.received = look.is_replication_known().then_some(received);
    }

    /// Marks the server as failed, so that this failover or switchover does not try to promote it again.
    pub(crate) fn fail(&mut self, reason: &str) {
        self.reached = Err(reason.to_owned());
        self.failed = Some(reason.to_owned());
    }

    /// Returns the reasons that exclude this server, independently of the other servers.
    pub(super) fn own_exclusions(&self) -> Vec<ExclusionReason> {
        let mut excluded = Vec::new();
        match (&self.failed, &self.reached) {
            (Some(reason), _) => excluded.push(ExclusionReason::Failed { reason: reason.clone() }),
            (None, Err(reason)) => excluded.push(ExclusionReason::NotReached { reason: reason.clone() }),
            (None, Ok(())) => {}
        }
        if self.promotion == Promotion::MustNot {
            excluded.push(ExclusionReason::MustNot);
        }
        if self.reached.is_ok() {
            if self.received.is_none() || self.executed.is_none() {
                excluded.push(ExclusionReason::Unknown);
            }
            if !self.log_bin {
                excluded.push(ExclusionReason::NoBinlog);
            } else if !self.log_replica_updates && self.feed == ReplicationKind::Native {
                excluded.push(ExclusionReason::NoReplicaUpdates);
            }
            if self.feed == ReplicationKind::ChannelOwnGtids {
                excluded.push(ExclusionReason::OwnGtids);
            }
            if self.feed == ReplicationKind::PartialChannel {
                excluded.push(ExclusionReason::Partial);
            }
            if let Some(reason) = &self.semi_sync_unavailable {
                excluded.push(ExclusionReason::NoSemiSync { reason: reason.clone() });
            }
            if let Some(error) = &self.applier_error {
                excluded.push(ExclusionReason::ApplierStopped { error: error.clone() });
            }
        }
        excluded
    }

    /// Returns the transactions that the server has received and not executed, as text.
    pub(super) fn undrained(&self) -> Option<String> {
        let rest = self.received.as_ref()?.subtract(self.executed.as_ref()?).ok()?;
        (!rest.is_empty()).then(|| rest.to_string())
    }

    /// Whether the server's binlog can send all of `wanted` to another server that has `has`. The function
    /// assumes that the server has executed everything it received.
    pub(super) fn can_provide(&self, wanted: &GtidSet, has: &GtidSet) -> bool {
        let Some(received) = &self.received else { return false };
        self.reached.is_ok()
            && self.feed == ReplicationKind::Native
            && self.log_bin
            && self.log_replica_updates
            && self.applier_error.is_none()
            && wanted.is_subset_of(received)
            && self.purged.as_ref().is_some_and(|purged| purged.is_subset_of(has))
    }
}
