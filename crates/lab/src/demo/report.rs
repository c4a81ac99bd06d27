//! The demo's result, as a table with explanations and as JSON.

use std::fmt::{Display, Write};

use serde::Serialize;

/// The demo's result.
#[derive(Debug, Clone, Serialize)]
pub struct DemoReport {
    /// The server family: `mariadb` or `mysql`.
    pub server: String,
    /// The version string of the server.
    pub server_version: String,
    /// Number of connections of the workload.
    pub clients: u32,
    /// Number of transactions for which a client got the server's OK.
    pub acknowledged: u64,
    /// Number of acknowledged transactions that are in the log.
    pub in_log: u64,
    /// Number of acknowledged transactions that are not in the log: must be 0.
    pub missing_in_log: u64,
    /// Number of transactions in the log whose row changes differ from the changes that the client made.
    pub not_whole_in_log: u64,
    /// Number of transactions that are in the log more than once: must be 0.
    pub twice_in_log: u64,
    /// Number of transactions in the log for which the client got no answer. Such transactions are allowed.
    pub unacknowledged_in_log: u64,
    /// Number of transactions that were acknowledged while Tailwater was down: must be 0.
    pub acknowledged_while_relay_was_away: u64,
    /// Number of acknowledged transactions that are missing in the primary's tables after its restart.
    pub lost_by_primary: u64,
    /// Number of native replicas that read from Tailwater.
    pub replicas: u64,
    /// Number of native replicas that have applied the whole log: must be all.
    pub replicas_at_the_end: u64,
    /// Number of native replicas that have exactly the rows of the ledger: must be all.
    pub replicas_equal_to_ledger: u64,
    /// Number of acknowledged transactions that are missing on a replica: must be 0.
    pub missing_on_replicas: u64,
    /// Number of source transactions applied to the channel's target since the restart of Tailwater.
    pub applied_transactions: u64,
    /// Number of transactions that the channel committed on its target since the restart of Tailwater. Each
    /// may contain several source transactions.
    pub applied_commits: u64,
    /// Whether the channel's target has exactly the rows of the ledger, and the same table checksums as a
    /// native replica: must be true.
    pub applied_equal: bool,
    /// Number of segments of the log.
    pub segments: u64,
    /// Number of segments that equal the primary's own binlog file, byte for byte.
    pub segments_identical: u64,
    /// Size of all segments, in bytes.
    pub log_bytes: u64,
    /// Commits per second before the faults.
    pub commits_per_second: f64,
    /// Median commit latency before the faults, in milliseconds.
    pub commit_p50_ms: f64,
    /// 99th percentile of the commit latency before the faults, in milliseconds.
    pub commit_p99_ms: f64,
    /// The longest time without any commit, in milliseconds. It is the time while the relay was down.
    pub longest_stall_ms: f64,
    /// Number of times that Tailwater was killed and restarted.
    pub relay_restarts: u32,
    /// Tailwater's peak memory, in bytes.
    pub relay_memory_bytes_max: u64,
    /// The name of the replica that was promoted.
    pub new_primary: String,
    /// Time from the kill of the primary until Tailwater started the failover, in milliseconds.
    pub failover_detected_ms: u64,
    /// Time from the kill until every acknowledged commit was proven to be in the log, in milliseconds.
    pub failover_proven_ms: u64,
    /// Time from the kill until the new primary accepted writes, in milliseconds.
    pub failover_writable_ms: u64,
    /// Time from the kill until the first successful commit of a client that retried continuously, in
    /// milliseconds.
    pub failover_first_commit_ms: u64,
    /// Number of transactions that were acknowledged to clients after the failover.
    pub acknowledged_by_new_primary: u64,
    /// Duration of `tailwater rejoin`, which makes the killed primary a replica, in milliseconds.
    pub rejoin_ms: u64,
    /// Number of undone transactions. Only the killed primary had them, and they were never acknowledged.
    pub rejoin_undone: u64,
    /// Number of transactions that were applied to the killed primary again from the log.
    pub rejoin_redone: u64,
    /// Number of rows that were compared with the new primary's.
    pub rejoin_rows_compared: u64,
    /// Whether the killed primary has exactly the rows of the ledger and receives commits of the new primary:
    /// must be true.
    pub rejoined_equal: bool,
    /// Whether every check succeeded.
    pub ok: bool,
}

/// The text of a table with three columns: label, figure, explanation.
struct ReportTable(String);

impl ReportTable {
    fn line(&mut self, label: &str, figure: impl Display, meaning: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "  {label:<44} {:>12}   {meaning}", figure.to_string());
    }

    /// Adds a line with a count that must be 0.
    fn zero(&mut self, label: &str, count: u64) {
        self.line(label, count, if count == 0 { "" } else { "<-- must be 0" });
    }
}

impl DemoReport {
    /// Returns the report as a table with a heading and a verdict.
    pub fn to_text(&self) -> String {
        let mut table = ReportTable(String::new());
        self.put_log(&mut table);
        self.put_replicas(&mut table);
        self.put_primary(&mut table);
        self.put_failover(&mut table);
        let mib = format!("{:.1}", self.relay_memory_bytes_max as f64 / (1 << 20) as f64);
        table.line("tailwater's peak memory (MiB)", mib, "");
        let verdict = match self.ok {
            true => "nothing that was acknowledged is missing",
            false => "FAILED: see the lines that must be 0",
        };
        let (rule, text) = ("-".repeat(96), table.0);
        format!("\n{} {}\n{rule}\n{text}{rule}\n  {verdict}\n", self.server, self.server_version)
    }

    fn put_log(&self, table: &mut ReportTable) {
        table.line("", "transactions", "");
        table.line("acknowledged to clients", self.acknowledged, "");
        table.line(
            "  of these in tailwater's log",
            self.in_log,
            "complete, with the rows that the clients wrote",
        );
        table.zero("  of these missing in the log", self.missing_in_log);
        table.zero("  in the log, but incomplete or altered", self.not_whole_in_log);
        table.zero("  twice in the log", self.twice_in_log);
        table.zero("acknowledged while tailwater was down", self.acknowledged_while_relay_was_away);
    }

    fn put_replicas(&self, table: &mut ReportTable) {
        let of_replicas = |count: u64| format!("{count} of {}", self.replicas);
        table.line(
            "native replicas at the end of the log",
            of_replicas(self.replicas_at_the_end),
            "they read from tailwater; one is the new primary",
        );
        table.line("  with tables equal to the ledger", of_replicas(self.replicas_equal_to_ledger), "");
        table.zero("  acknowledged, and missing on a replica", self.missing_on_replicas);
        table.line(
            "target of tailwater's channel",
            equal_or_not(self.applied_equal),
            "compared with the ledger and, by checksum, with a native replica",
        );
        table.line(
            "  transactions applied since the restart",
            self.applied_transactions,
            &format!("in {} commits", self.applied_commits),
        );
    }

    fn put_primary(&self, table: &mut ReportTable) {
        let lost = match self.lost_by_primary {
            0 => "its disk kept everything this time",
            _ => "the log has all of these transactions",
        };
        table.line("lost by the primary's own disk", self.lost_by_primary, lost);
        table.line(
            "in flight at the kill, kept by the log",
            self.unacknowledged_in_log,
            "the clients got no OK for these transactions; none is lost",
        );
        let mib = self.log_bytes as f64 / (1 << 20) as f64;
        table.line(
            "log segments identical to its binlog files",
            format!("{} of {}", self.segments_identical, self.segments),
            &format!("{mib:.1} MiB, byte for byte the primary's binlog"),
        );
        table.line(
            "commits per second before the faults",
            format!("{:.0}", self.commits_per_second),
            &format!("commit p50 {:.2} ms, p99 {:.2} ms", self.commit_p50_ms, self.commit_p99_ms),
        );
        table.line(
            "longest stall of all clients (ms)",
            format!("{:.0}", self.longest_stall_ms),
            "while tailwater was killed, down and restarted",
        );
    }

    fn put_failover(&self, table: &mut ReportTable) {
        table.line(
            "primary killed, detected after (ms)",
            self.failover_detected_ms,
            "its host refuses connections, and tailwater has lost its stream",
        );
        table.line(
            "  proven complete after (ms)",
            self.failover_proven_ms,
            "tailwater sends no more ACKs: the old primary is fenced, the log has every acknowledged commit",
        );
        table.line(
            "  new primary after (ms)",
            self.failover_writable_ms,
            &format!(
                "{} has applied the log, waits for tailwater's ACKs and accepts writes",
                self.new_primary
            ),
        );
        table.line(
            "  first commit of a client after (ms)",
            self.failover_first_commit_ms,
            &format!("and {} more in this run", self.acknowledged_by_new_primary.saturating_sub(1)),
        );
        table.line(
            "killed primary, a replica again",
            equal_or_not(self.rejoined_equal),
            &format!(
                "in {} ms: {} undone, {} applied again from the log, {} rows compared",
                self.rejoin_ms, self.rejoin_undone, self.rejoin_redone, self.rejoin_rows_compared
            ),
        );
    }
}

fn equal_or_not(is_equal: bool) -> &'static str {
    if is_equal { "equal" } else { "DIFFERS" }
}
