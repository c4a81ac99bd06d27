//! The demo's result, as a table with explanations and as JSON.

use std::fmt::Write;

use serde::Serialize;

/// The demo's result.
#[derive(Debug, Clone, Serialize)]
pub struct DemoReport {
    /// `mariadb` or `mysql`.
    pub server: String,
    /// What the server says of itself.
    pub server_version: String,
    /// Connections of the workload.
    pub clients: u32,
    /// Transactions for which a client got the server's OK.
    pub acknowledged: u64,
    /// Of these, how many are in the log.
    pub in_log: u64,
    /// Acknowledged, and not in the log: must be 0.
    pub missing_in_log: u64,
    /// In the log, but with fewer, more or other row changes than the client made.
    pub not_whole_in_log: u64,
    /// In the log more than once: must be 0.
    pub twice_in_log: u64,
    /// In the log although the client got no answer: correct.
    pub unacknowledged_in_log: u64,
    /// Acknowledged while Tailwater was down: must be 0.
    pub acknowledged_while_relay_was_away: u64,
    /// Acknowledged, and gone from the primary's tables after its restart.
    pub lost_by_primary: u64,
    /// Native replicas that read from Tailwater.
    pub replicas: u64,
    /// Of these, how many applied everything that is in the log, though the primary is dead: must be all.
    pub replicas_at_the_end: u64,
    /// Of these, how many have the rows of the ledger and no others: must be all.
    pub replicas_equal_to_ledger: u64,
    /// Acknowledged, and missing on a replica: must be 0.
    pub missing_on_replicas: u64,
    /// Source transactions that the applier applied to the third replica since it was last started.
    pub applied_transactions: u64,
    /// Target transactions they were committed in.
    pub applied_commits: u64,
    /// The third replica has the rows of the ledger and no others, and the checksums of a native replica: must be so.
    pub applied_equal: bool,
    /// Segments of the log.
    pub segments: u64,
    /// Segments that are the primary's own binlog file, byte for byte.
    pub segments_identical: u64,
    /// Bytes of all segments.
    pub log_bytes: u64,
    /// Before the faults.
    pub commits_per_second: f64,
    /// Before the faults.
    pub commit_p50_ms: f64,
    /// Before the faults.
    pub commit_p99_ms: f64,
    /// The longest time without any commit: the relay's absence.
    pub longest_stall_ms: f64,
    /// How often Tailwater was killed and started again.
    pub relay_restarts: u32,
    /// Tailwater's peak memory.
    pub relay_memory_bytes_max: u64,
    /// The replica that took the killed primary's place.
    pub new_primary: String,
    /// From the kill until Tailwater began to act, in milliseconds.
    pub failover_detected_ms: u64,
    /// From the kill until it was proven that the log has every acknowledged commit.
    pub failover_proven_ms: u64,
    /// From the kill until the new primary took writes.
    pub failover_writable_ms: u64,
    /// From the kill until a client that tried all the time was told "committed".
    pub failover_first_commit_ms: u64,
    /// Acknowledged to clients after the failover.
    pub acknowledged_by_new_primary: u64,
    /// How long it took until the killed primary was a replica, from its being there again.
    pub rejoin_ms: u64,
    /// Transactions that only it had, and that no client was told of: undone.
    pub rejoin_undone: u64,
    /// Transactions that were done again on it, from the log.
    pub rejoin_redone: u64,
    /// Its rows that were compared with the new primary's.
    pub rejoin_rows_compared: u64,
    /// It has the rows of the ledger and no others, and follows the new primary: must be so.
    pub rejoined_equal: bool,
    /// Everything that must be 0 is, and every segment is identical.
    pub ok: bool,
}

impl DemoReport {
    /// The table.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let rule = "-".repeat(96);
        let mut line = |what: &str, figure: String, meaning: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {what:<44} {figure:>12}   {meaning}");
        };
        line("", "transactions".into(), "");
        line("acknowledged to clients", self.acknowledged.to_string(), "");
        line(
            "  of these in tailwater's log",
            self.in_log.to_string(),
            "whole, with the rows that the clients wrote",
        );
        line(
            "  of these missing in the log",
            self.missing_in_log.to_string(),
            must_be_zero(self.missing_in_log),
        );
        line(
            "  in the log, but not whole or altered",
            self.not_whole_in_log.to_string(),
            must_be_zero(self.not_whole_in_log),
        );
        line("  twice in the log", self.twice_in_log.to_string(), must_be_zero(self.twice_in_log));
        line(
            "acknowledged while tailwater was away",
            self.acknowledged_while_relay_was_away.to_string(),
            must_be_zero(self.acknowledged_while_relay_was_away),
        );
        let of_replicas = |count: u64| format!("{count} of {}", self.replicas);
        line(
            "native replicas at the end of the log",
            of_replicas(self.replicas_at_the_end),
            "they read from tailwater; one is the new primary",
        );
        line("  with tables equal to the ledger", of_replicas(self.replicas_equal_to_ledger), "");
        line(
            "  acknowledged, and missing on a replica",
            self.missing_on_replicas.to_string(),
            must_be_zero(self.missing_on_replicas),
        );
        line(
            "replica fed by tailwater's applier",
            if self.applied_equal { "equal" } else { "DIFFERS" }.into(),
            "its tables to the ledger and, by checksum, to a native replica's",
        );
        line(
            "  transactions applied since the restart",
            self.applied_transactions.to_string(),
            &format!("in {} commits", self.applied_commits),
        );
        let lost = if self.lost_by_primary > 0 {
            "the log has every one of them"
        } else {
            "its disk was lucky this time"
        };
        line("lost by the primary's own disk", self.lost_by_primary.to_string(), lost);
        line(
            "in flight at the kill, kept by the log",
            self.unacknowledged_in_log.to_string(),
            "never acknowledged; none is lost",
        );
        let identical = format!("{} of {}", self.segments_identical, self.segments);
        let mib = format!(
            "{:.1} MiB, byte for byte the primary's binlog",
            self.log_bytes as f64 / (1 << 20) as f64
        );
        line("log segments identical to its binlog files", identical, &mib);
        let latency = format!("commit p50 {:.2} ms, p99 {:.2} ms", self.commit_p50_ms, self.commit_p99_ms);
        line("commits per second before the faults", format!("{:.0}", self.commits_per_second), &latency);
        line(
            "longest stall of all clients (ms)",
            format!("{:.0}", self.longest_stall_ms),
            "tailwater killed, away, and back",
        );
        line(
            "primary killed, detected after (ms)",
            self.failover_detected_ms.to_string(),
            "its host refuses connections, and tailwater has lost its stream",
        );
        line(
            "  proven complete after (ms)",
            self.failover_proven_ms.to_string(),
            "tailwater stopped acknowledging: the old primary is fenced, the log has everything",
        );
        line(
            "  new primary after (ms)",
            self.failover_writable_ms.to_string(),
            &format!("{} has applied the log, waits for tailwater, takes writes", self.new_primary),
        );
        line(
            "  first commit of a client after (ms)",
            self.failover_first_commit_ms.to_string(),
            &format!("and {} more in this run", self.acknowledged_by_new_primary.saturating_sub(1)),
        );
        line(
            "killed primary, a replica again",
            if self.rejoined_equal { "equal" } else { "DIFFERS" }.into(),
            &format!(
                "in {} ms: {} undone, {} done again from the log, {} rows compared",
                self.rejoin_ms, self.rejoin_undone, self.rejoin_redone, self.rejoin_rows_compared
            ),
        );
        line(
            "tailwater's peak memory (MiB)",
            format!("{:.1}", self.relay_memory_bytes_max as f64 / (1 << 20) as f64),
            "",
        );
        let verdict = match self.ok {
            true => "nothing that was acknowledged is missing",
            false => "FAILED: see the lines that must be 0",
        };
        format!("\n{} {}\n{rule}\n{text}{rule}\n  {verdict}\n", self.server, self.server_version)
    }
}

fn must_be_zero(count: u64) -> &'static str {
    if count == 0 { "" } else { "<-- must be 0" }
}
