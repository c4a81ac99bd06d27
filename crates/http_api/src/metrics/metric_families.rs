//! All metrics: name, type, labels and meaning. A test compares them with the tables in
//! docs/reference/metrics.md.

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that rises and falls.
    Gauge,
    /// A count since the daemon started. The name of its samples ends with `_total`.
    Counter,
    /// Counts of durations by their length. The names of its samples end with `_bucket`, `_sum` and `_count`.
    Histogram,
    /// Always 1; the labels are the information. The name of its sample ends with `_info`.
    Info,
}

/// A metric.
#[derive(Debug)]
pub struct MetricFamily {
    /// The name, with the unit and without the suffix of a type.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// The names of the labels. Their values are names from the configuration, stable codes and states.
    pub labels: &'static [&'static str],
    /// What the value means, in one line without a full stop. The response contains this text too.
    pub help: &'static str,
    /// What else the reference page says, as Markdown.
    pub details: &'static str,
}

/// Metrics with the same subject, as the reference page groups them.
#[derive(Debug)]
pub struct MetricGroup {
    /// The name of the table in the page.
    pub name: &'static str,
    /// The metrics, in the order of the response.
    pub families: &'static [&'static MetricFamily],
}

impl MetricFamily {
    /// The name of the samples: that of the family and the suffix of the type.
    pub fn sample_name(&self) -> String {
        let suffix = match self.kind {
            MetricKind::Gauge | MetricKind::Histogram => "",
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
        };
        format!("{}{suffix}", self.name)
    }

    /// The unit at the end of the name.
    pub fn unit(&self) -> Option<&'static str> {
        ["seconds", "bytes"].into_iter().find(|unit| self.name.ends_with(&format!("_{unit}")))
    }
}

/// Declares the metrics of a group, and the group: `CONSTANT = Kind(name, labels, help, details)`.
macro_rules! metric_group {
    ($group:ident, $title:literal: $( $name:ident = $kind:ident($metric:literal, $labels:expr, $help:literal, $details:literal $(,)?); )+) => {
        $( pub(super) const $name: MetricFamily = MetricFamily {
            name: $metric,
            kind: MetricKind::$kind,
            labels: $labels,
            help: $help,
            details: $details,
        }; )+
        const $group: MetricGroup = MetricGroup { name: $title, families: &[$( &$name ),+] };
    };
}

/// All groups, in the order of the response.
pub const METRIC_GROUPS: &[MetricGroup] =
    &[DAEMON, MANAGER, CAPTURES, LOGS, CHANNELS, PREFETCHES, TOPOLOGY, BACKUPS_AND_CHECKS];

const CLUSTER: &[&str] = &["cluster"];
const SOURCE: &[&str] = &["source"];
const CHANNEL: &[&str] = &["channel", "source"];
const PREFETCH: &[&str] = &["prefetch", "source"];
const SERVER: &[&str] = &["cluster", "server"];
const RELAY: &[&str] = &["cluster", "relay"];
const BACKUP: &[&str] = &["backup"];
const CHECK: &[&str] = &["check"];

metric_group! { DAEMON, "daemon":
    BUILD = Info("tailwater_build", &["version"], "The version of the daemon", "");
}

metric_group! { MANAGER, "manager":
    LEADER = Gauge("tailwater_manager_leader", CLUSTER,
        "1 if this manager holds the lease of the cluster and may act, else 0",
        "At most one of the managers that share a lease has 1");
    LEASE = Gauge("tailwater_manager_lease", &["cluster", "state"],
        "1 for the state of the lease as this manager sees it, 0 for the others",
        "`held` by this manager; `held_by_other` manager; `not_held`: this manager does not hold it, and knows of no other that does");
    READINESS_KNOWN = Gauge("tailwater_manager_failover_readiness_known", CLUSTER,
        "0 while it is unknown whether a failover would succeed, else 1",
        "It is unknown until the manager has probed every server and relay, and during a failover or switchover");
    READY = Gauge("tailwater_manager_failover_ready", CLUSTER,
        "1 if a failover would promote a server if the primary died now, 0 if a rule would refuse the failover",
        "No sample while that is unknown");
    REFUSED_BY = Gauge("tailwater_manager_failover_refused_by", &["cluster", "rule"],
        "1 for the safety rule that would refuse a failover now",
        "The label has the code of the [rule](safety-rules.md). No sample while a failover is ready or that is unknown. `tailwater manager status` shows the object, the cause and the remedy");
    FINDINGS = Gauge("tailwater_manager_findings", &["cluster", "code", "server"],
        "1 for each finding of the manager",
        "See [failure codes](failure-codes.md); `FailoverNotReady` is one. No sample once the finding has ended");
    AUTOMATIC = Gauge("tailwater_manager_automatic", CLUSTER,
        "1 if the manager replaces a dead primary without an operator, else 0", "`manager.automatic`");
    PAUSED = Gauge("tailwater_manager_paused", CLUSTER,
        "1 while an operator has paused automatic failover, else 0", "");
    GUARD_KNOWN = Gauge("tailwater_manager_guard_known", CLUSTER,
        "1 if the manager has read pause and downtimes, which managers share, else 0",
        "Before that, the manager starts no automatic failover");
    UNACKNOWLEDGED = Gauge("tailwater_manager_failover_unacknowledged", CLUSTER,
        "1 while the last failover waits for `tailwater manager acknowledge`, else 0",
        "Meanwhile the cool-down holds back the next automatic failover");
    RUN_IN_PROGRESS = Gauge("tailwater_manager_run_in_progress", CLUSTER,
        "1 while this manager runs a failover or switchover, else 0", "");
    RELAYS_REFUSING = Gauge("tailwater_manager_relays_refusing", CLUSTER,
        "Number of relays that refuse the orders of this manager", "They have obeyed a later lease term");
    RECORDS_STORABLE = Gauge("tailwater_manager_audit_records_storable", CLUSTER,
        "1 if a failover could store its audit record in etcd, else 0", "Also 1 without etcd");
}

metric_group! { CAPTURES, "captures":
    CAPTURE_STATE = Gauge("tailwater_capture_state", &["source", "state"],
        "1 for the state of the capture, 0 for the others",
        "`connecting`; `streaming`; `waiting` to connect again after an error; `refused`, until an operator or a new order intervenes; `stopped_by_order` of a manager; `stopped`");
    CAPTURE_FAULT = Gauge("tailwater_capture_fault", &["source", "code"],
        "1 for the error after which the capture waits, or for which it refuses the server",
        "The label has the [code](errors.md): `TW-RELAY-0003` and `TW-RELAY-0004` if the server lacks what the log has. `tailwater status` has the message");
    SILENCE = Gauge("tailwater_capture_silence_seconds", SOURCE,
        "Time since an event or a heartbeat last came from the server that the log follows",
        "No sample before the first one. A healthy server sends one at least every `heartbeat_ms`");
    IN_FORCE = Gauge("tailwater_capture_semi_sync_in_force", SOURCE,
        "1 if the capture streams, and semi-sync on the source was enabled and had not fallen back at its last check, else 0",
        "The check runs every `semi_sync_check_ms`. No sample with `semi_sync = false`");
    ALARMS = Gauge("tailwater_capture_semi_sync_alarms", &["source", "code"],
        "1 for each alarm of the last check of semi-sync on the source",
        "The label has the [code](errors.md), `TW-RELAY-0101` to `0105`: commits may be acknowledged to clients before the log has them");
    ACKERS = Gauge("tailwater_capture_semi_sync_ackers", SOURCE,
        "Number of semi-sync replicas that are connected to the source, this log included, at its last check", "");
    ACKS_NEEDED = Gauge("tailwater_capture_semi_sync_acks_needed", SOURCE,
        "Number of ACKs that a commit on the source needs",
        "If it equals the number of ackers, commits wait as soon as one of them fails");
    WAITING_COMMITS = Gauge("tailwater_capture_semi_sync_waiting_commits", SOURCE,
        "Number of commits on the source that waited for ACKs at its last check", "");
    WITHOUT_ACK = Counter("tailwater_capture_commits_without_ack", SOURCE,
        "Commits that the source acknowledged to clients without an ACK, as the checks have counted them", "");
    TRANSACTIONS = Counter("tailwater_capture_transactions", SOURCE, "Transactions appended to the log", "");
    EVENT_BYTES = Counter("tailwater_capture_event_bytes", SOURCE, "Bytes of events appended to the log", "");
    ACKS = Counter("tailwater_capture_acks", SOURCE, "Semi-sync ACKs sent to the source", "");
    CONNECTIONS = Counter("tailwater_capture_connections", SOURCE,
        "Streams that the capture has opened, one for each connection", "");
}

metric_group! { LOGS, "logs":
    DURABLE_SEGMENT = Gauge("tailwater_log_durable_segment", SOURCE,
        "Number of the segment in which the durable position of the log is, 0 for an empty log", "");
    DURABLE_OFFSET = Gauge("tailwater_log_durable_offset_bytes", SOURCE,
        "Offset of the durable position of the log in its segment", "");
    SEGMENTS = Gauge("tailwater_log_segments", SOURCE, "Number of segments on the disk", "Without those that are only in the archive");
    SIZE = Gauge("tailwater_log_size_bytes", SOURCE, "Durable bytes of the segments on the disk", "");
    SYNCS = Histogram("tailwater_log_sync_seconds", SOURCE,
        "Duration of the calls of fdatasync that made the log durable",
        "With `ack = \"durable\"` every commit on the source waits for one. The samples are `_bucket`, `_sum` and `_count`");
    READER_BEHIND = Gauge("tailwater_log_reader_behind_bytes", &["source", "reader"],
        "Durable bytes on the disk that a reader of the log has not read, or may need again",
        "`reader` is `channel NAME`, or the name of a `[[server]]` that replicates from the log. A reader that is not connected keeps its position, and keeps the log from being purged");
    ARCHIVE_WAITING = Gauge("tailwater_log_archive_waiting_bytes", SOURCE,
        "Bytes of complete segments that the archive did not have at the last look",
        "No sample without an archive, and before the first look");
    ARCHIVE_FAULT = Gauge("tailwater_log_archive_fault", &["source", "code"],
        "1 for the error with which the last attempt to archive segments failed",
        "The label has the [code](errors.md). `tailwater status` has the message. No sample after a success");
    STREAMS = Gauge("tailwater_log_streams", SOURCE,
        "Number of clients that read the log from its binlog servers", "Also those without a name in the configuration");
    DISK_FREE = Gauge("tailwater_log_disk_free_bytes", &[],
        "Space that is free on the disk of the logs", "Commits on the sources wait once it is 0. No sample if it cannot be read");
    DISK_SIZE = Gauge("tailwater_log_disk_size_bytes", &[], "Size of the disk of the logs", "");
    DISK_FULL_IN = Gauge("tailwater_log_disk_full_in_seconds", &[],
        "Time until the disk of the logs is full, if it fills at the average rate of the last hour",
        "No sample if it does not fill, or in the first minute");
}

metric_group! { CHANNELS, "channels":
    APPLY_STATE = Gauge("tailwater_apply_state", &["channel", "source", "state"],
        "1 for the state of the channel, 0 for the others",
        "`connecting`, also while it waits to connect again; `running`; `stopped` on purpose; `failed`, until an operator intervenes. `tailwater channel list` has the reason");
    APPLY_LAG = Gauge("tailwater_apply_lag_seconds", CHANNEL,
        "Age of the oldest transaction in the log that is not applied, by the source's clock, 0 if all are applied",
        "No sample unless the channel runs. While the capture does not stream, the lag counts only what is in the log");
    APPLY_DELAY = Gauge("tailwater_apply_delay_seconds", CHANNEL,
        "The delay with which the channel applies on purpose", "`delay_seconds`; the lag includes it");
    APPLY_FAULT = Gauge("tailwater_apply_fault", &["channel", "source", "code"],
        "1 for the error that stopped the channel, or after which the channel tries again",
        "The label has the [code](errors.md). `tailwater channel list` has the message");
    APPLY_TRANSACTIONS = Counter("tailwater_apply_transactions", CHANNEL,
        "Transactions of the source applied to the target", "");
    APPLY_ROWS = Counter("tailwater_apply_rows", CHANNEL, "Rows applied to the target",
        "A transaction that has statements, or is part of an XA transaction, counts as one");
    APPLY_COMMITS = Counter("tailwater_apply_commits", CHANNEL,
        "Commits on the target, each of one or more transactions of the source", "");
}

metric_group! { PREFETCHES, "prefetches":
    PREFETCH_STATE = Gauge("tailwater_prefetch_state", &["prefetch", "source", "state"],
        "1 for the state of the prefetch, 0 for the others",
        "See [prefetch](../how-to/prefetch.md#figures). `prefetch` is the name of the `[[prefetch]]`, or of the channel whose target is read ahead");
    PREFETCH_EVENTS = Counter("tailwater_prefetch_events", PREFETCH, "Events of the binlog that the prefetch has read", "");
    PREFETCH_QUERIES = Counter("tailwater_prefetch_queries", PREFETCH, "SELECT statements that the prefetch has sent", "");
    PREFETCH_KEYS = Counter("tailwater_prefetch_keys", PREFETCH, "Index entries that these statements read", "");
    PREFETCH_SKIPPED = Counter("tailwater_prefetch_skipped", &["prefetch", "source", "reason"],
        "Keys, rows and statements that were not read ahead", "");
    PREFETCH_SLOW = Counter("tailwater_prefetch_slow_queries", PREFETCH, "Queries of the prefetch that were slow", "");
    PREFETCH_FAILED = Counter("tailwater_prefetch_failed_queries", PREFETCH, "Queries of the prefetch that failed", "");
    PREFETCH_LATE = Counter("tailwater_prefetch_late_queries", PREFETCH,
        "Queries whose transaction was applied before they ended", "");
    PREFETCH_AHEAD = Gauge("tailwater_prefetch_ahead_seconds", PREFETCH,
        "Commit time that the prefetch is ahead of the applied transaction", "");
    PREFETCH_AHEAD_BYTES = Gauge("tailwater_prefetch_ahead_bytes", PREFETCH,
        "Bytes of the binlog that the prefetch is ahead of the applied transaction", "");
    PREFETCH_HITS = Gauge("tailwater_prefetch_hit_ratio", PREFETCH,
        "Share of the queries that ended before their transaction was applied", "No sample without queries");
    PREFETCH_GAIN = Gauge("tailwater_prefetch_gain", PREFETCH,
        "Applied rows in a second with prefetch, divided by those without", "No sample if it was not measured");
}

metric_group! { TOPOLOGY, "topology":
    SERVER_UP = Gauge("tailwater_topology_server_up", SERVER, "1 if the server answered its last probe, else 0", "");
    SERVER_PRIMARY = Gauge("tailwater_topology_server_primary", SERVER,
        "1 if the log follows the server, so that it is the primary, else 0", "");
    SERVER_WRITABLE = Gauge("tailwater_topology_server_writable", SERVER,
        "1 if ordinary accounts can write to the server, else 0", "");
    SERVER_LAG = Gauge("tailwater_topology_server_lag_seconds", SERVER, "Lag that the server reports", "");
    SERVER_PROBLEMS = Gauge("tailwater_topology_server_problems", &["cluster", "server", "code"],
        "1 for each problem that the last probe of the server shows",
        "See [topology](../how-to/topology.md#what-the-tree-shows)");
    RELAY_UP = Gauge("tailwater_topology_relay_up", RELAY, "1 if the other relay answers, else 0", "");
    RELAY_SILENCE = Gauge("tailwater_topology_relay_silence_seconds", RELAY,
        "Time since the relay last received something from the primary, as it reports",
        "The daemon's own relay is called `tailwater`. No sample if it never did");
}

metric_group! { BACKUPS_AND_CHECKS, "backups-and-checks":
    BACKUP_READABLE = Gauge("tailwater_backup_readable", BACKUP,
        "1 if the folder and all dumps in it can be read, else 0", "`tailwater status` has the reason");
    BACKUP_DUMPS = Gauge("tailwater_backup_dumps", BACKUP, "Number of finished dumps in the folder", "");
    BACKUP_NEWEST = Gauge("tailwater_backup_newest_timestamp_seconds", BACKUP,
        "The point in time of the data of the newest finished dump, in seconds since 1970", "No sample if there is none");
    BACKUP_AGE_MAX = Gauge("tailwater_backup_age_max_seconds", BACKUP, "The greatest age that the data of the newest dump may have", "`age_hours_max`");
    CHECK_READABLE = Gauge("tailwater_check_readable", CHECK, "1 if the state file can be read, else 0", "`tailwater status` has the reason");
    CHECK_DIFFERENCES = Gauge("tailwater_check_differences", CHECK,
        "Number of rows and tables that differ",
        "A running check counts as soon as it has found a difference; until then, the last finished check counts. No sample while neither has a result");
    CHECK_FINISHED = Gauge("tailwater_check_finished_timestamp_seconds", CHECK,
        "When the last finished check ended, in seconds since 1970", "No sample if that is not known");
    CHECK_AGE_MAX = Gauge("tailwater_check_age_max_seconds", CHECK, "The greatest age that the result of the last finished check may have", "`age_hours_max`");
}
