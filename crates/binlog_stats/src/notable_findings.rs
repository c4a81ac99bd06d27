//! Selects the notable facts of a report. Every finding is based on the report's numbers; a healthy binlog
//! has no findings.

use serde::Serialize;

use crate::number_format::{bytes, count, duration, rows, share};
use crate::stats_report::{BinlogReport, Gap, TableShare, TransactionSummary};

/// A transaction of at least this many bytes counts as big. It is written to the binlog in one piece while
/// all other commits wait, and it makes replicas lag.
const BIG_BYTES_MIN: u64 = 16 << 20;

/// The finding about a big transaction mentions the gap after it if the gap is at least this long, in
/// seconds.
const GAP_OF_BIG_SECONDS_MIN: f64 = 0.2;

/// A gap that no big transaction explains is reported only if it is at least this long, in seconds.
const GAP_SECONDS_MIN: f64 = 5.0;
/// A gap is reported only if it is at least this many times longer than the usual time between commits.
const GAP_TIMES_USUAL_MIN: f64 = 50.0;
/// Gaps are reported only if there are at least this many transactions. With fewer transactions, the usual
/// time between commits is unknown.
const GAP_TRANSACTIONS_MIN: u64 = 50;

/// A transaction that is open for at least this many seconds counts as long.
const LONG_SECONDS_MIN: f64 = 60.0;

/// A table is reported as hot if it has at least this share of the bytes of all tables, and there are other
/// tables.
const TABLE_SHARE_MIN: f64 = 0.6;
/// A hot table is reported only if all tables together have at least this many bytes.
const TABLE_BYTES_MIN: u64 = 16 << 20;

/// A bucket of the timeline is a burst if it has at least this many times the usual bytes.
const BURST_TIMES_USUAL_MIN: u64 = 10;
/// A burst is reported only if it has at least this many bytes.
const BURST_BYTES_MIN: u64 = 64 << 20;

/// A table without a primary key is reported if at least this many of its rows were updated or deleted.
const NO_KEY_ROWS_MIN: u64 = 1_000;

/// The maximum number of findings of one kind.
const OF_A_KIND_MAX: usize = 3;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// Commits stalled, or replicas will lag.
    Alarm,
    /// Information that may be useful.
    Notice,
}

/// A notable fact of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StatsFinding {
    /// How serious the finding is.
    pub weight: FindingSeverity,
    /// The kind of finding: `big_transaction`, `gap`, `long_transaction`, `hot_table`, `burst`,
    /// `no_primary_key`, `no_gtid`, `non_transactional`, `statements`, `unfinished`, `rows_not_counted`.
    pub kind: &'static str,
    /// The text of the finding, with numbers.
    pub text: String,
}

impl BinlogReport {
    /// The findings of the report, the most serious first. `time` formats a time, which is given in
    /// microseconds since 1970.
    pub fn findings(&self, time: &dyn Fn(u64) -> String) -> Vec<StatsFinding> {
        let mut findings = FindingCollector { report: self, time, found: Vec::new() };
        findings.big_transactions();
        findings.gaps();
        findings.long_transactions();
        findings.hot_table();
        findings.burst();
        findings.no_primary_key();
        findings.kinds();
        let mut found = findings.found;
        found.sort_by(|(one, a), (other, b)| a.weight.cmp(&b.weight).then(other.total_cmp(one)));
        let sentence = |finding: StatsFinding| StatsFinding { text: capitalized(&finding.text), ..finding };
        found.into_iter().map(|(_, finding)| sentence(finding)).collect()
    }
}

struct FindingCollector<'a> {
    report: &'a BinlogReport,
    time: &'a dyn Fn(u64) -> String,
    /// The findings, each with its rank among findings of the same severity. The rank is roughly the number
    /// of seconds lost.
    found: Vec<(f64, StatsFinding)>,
}

impl FindingCollector<'_> {
    fn add(&mut self, weight: FindingSeverity, kind: &'static str, grave: f64, text: String) {
        self.found.push((grave, StatsFinding { weight, kind, text }));
    }

    fn between(&self, gap: &Gap) -> String {
        format!("{} to {}", (self.time)(gap.start_us), (self.time)(gap.end_us))
    }

    fn took(&self, transaction: &TransactionSummary) -> String {
        let at_least = if self.report.span.exact_clock { "" } else { "at least " };
        format!("{at_least}{}", duration(transaction.seconds))
    }

    fn big_transactions(&mut self) {
        let report = self.report;
        for big in named_as_big(report) {
            let gap = report
                .gaps
                .iter()
                .find(|gap| same(&gap.during, big) && !gap.restart && gap.seconds >= GAP_OF_BIG_SECONDS_MIN);
            let mut text = format!(
                "{} wrote {} in one piece ({}; {}:{})",
                name(big),
                bytes(big.bytes),
                work(big),
                big.file,
                big.offset
            );
            match gap {
                Some(gap) => {
                    let about = if report.span.exact_clock { "" } else { "about " };
                    text.push_str(&format!(
                        "; after the server began to write it to the binlog, no other transaction committed for {about}{} ({})",
                        duration(gap.seconds),
                        self.between(gap)
                    ));
                }
                None => text.push_str(&format!(", committed {}", (self.time)(big.commit_us))),
            }
            if big.seconds >= LONG_SECONDS_MIN {
                text.push_str(&format!("; before its commit it was open for {}", self.took(big)));
            }
            text.push_str(
                ". Split such jobs into batches: all later commits wait for a big one, and so do replicas.",
            );
            let grave = gap.map_or(0.0, |gap| gap.seconds) + big.bytes as f64 / 1e9;
            self.add(FindingSeverity::Alarm, "big_transaction", grave, text);
        }
    }

    fn gaps(&mut self) {
        let report = self.report;
        let seconds = (report.span.last_commit_us.saturating_sub(report.span.first_commit_us)) as f64 / 1e6;
        if report.transactions < GAP_TRANSACTIONS_MIN {
            return;
        }
        // Leave out the reported gaps when computing the usual time between commits.
        let idle: f64 = report.gaps.iter().map(|gap| gap.seconds).sum();
        let usual = (seconds - idle).max(0.0) / report.transactions as f64;
        let long = |gap: &&Gap| {
            gap.seconds >= GAP_SECONDS_MIN.max(GAP_TIMES_USUAL_MIN * usual)
                && gap.during.bytes < BIG_BYTES_MIN
        };
        for gap in report.gaps.iter().filter(long).take(OF_A_KIND_MAX) {
            let mut text = format!(
                "nothing was committed for {} ({}), where a commit every {} is usual",
                duration(gap.seconds),
                self.between(gap),
                duration(usual)
            );
            if gap.restart {
                text.push_str("; the server was started in that time");
            } else if gap.next.seconds >= 0.8 * gap.seconds {
                text.push_str(&format!(
                    "; {} committed at its end and had been open for {} ({}): other transactions may have waited for its locks",
                    name(&gap.next),
                    duration(gap.next.seconds),
                    work(&gap.next)
                ));
            } else {
                text.push_str(
                    "; the binlog does not show why: there were no writes, or all writers were blocked",
                );
            }
            self.add(FindingSeverity::Alarm, "gap", gap.seconds, text + ".");
        }
    }

    fn long_transactions(&mut self) {
        let report = self.report;
        let long = |one: &&TransactionSummary| {
            one.seconds >= LONG_SECONDS_MIN && !named_as_big(report).any(|big| same(big, one))
        };
        for one in report.longest.iter().filter(long).take(OF_A_KIND_MAX) {
            let text = format!(
                "{} was open for {}, from {} to its commit at {} ({}; {}:{}). It held its locks that long.",
                name(one),
                self.took(one),
                (self.time)(one.begin_us),
                (self.time)(one.commit_us),
                work(one),
                one.file,
                one.offset
            );
            self.add(FindingSeverity::Alarm, "long_transaction", one.seconds / 10.0, text);
        }
    }

    fn hot_table(&mut self) {
        let tables = &self.report.tables;
        let all: u64 = tables.by_bytes.iter().map(|table| table.bytes).sum::<u64>() + tables.others_bytes;
        let Some(hottest) = tables.by_bytes.first() else { return };
        if tables.count > 1 && all >= TABLE_BYTES_MIN && hottest.bytes as f64 >= TABLE_SHARE_MIN * all as f64
        {
            let text = format!(
                "{} makes up {} of the bytes of all row events ({} of {}; {}).",
                table_name(hottest),
                share(hottest.bytes, all),
                bytes(hottest.bytes),
                bytes(all),
                rows(&hottest.rows)
            );
            self.add(FindingSeverity::Notice, "hot_table", 3.0, text);
        }
    }

    fn burst(&mut self) {
        let timeline = &self.report.timeline;
        let mut usual: Vec<u64> = timeline.buckets.iter().map(|bucket| bucket.bytes).collect();
        usual.sort_unstable();
        let (Some(median), Some(peak)) =
            (usual.get(usual.len() / 2), timeline.buckets.iter().max_by_key(|bucket| bucket.bytes))
        else {
            return;
        };
        // If the burst is only one big transaction, another finding reports it.
        let biggest = self.report.biggest.first().map_or(0, |biggest| biggest.bytes);
        if peak.bytes >= BURST_BYTES_MIN.max(median.saturating_mul(BURST_TIMES_USUAL_MIN))
            && biggest < peak.bytes / 2
        {
            let text = format!(
                "a burst of {} in {} transactions within {} from {} on, where {} are usual.",
                bytes(peak.bytes),
                count(peak.transactions),
                duration(timeline.bucket_seconds as f64),
                (self.time)(peak.start_us),
                bytes(*median)
            );
            self.add(FindingSeverity::Notice, "burst", 2.0, text);
        }
    }

    fn no_primary_key(&mut self) {
        let keyless = |table: &&TableShare| {
            table.primary_key == Some(false) && table.rows.updated + table.rows.deleted >= NO_KEY_ROWS_MIN
        };
        for table in self.report.tables.by_rows.iter().filter(keyless).take(OF_A_KIND_MAX) {
            let text = format!(
                "{} has no primary key ({}): a replica scans the whole table for each of these rows, unless another \
                 index helps.",
                table_name(table),
                rows(&table.rows)
            );
            self.add(FindingSeverity::Alarm, "no_primary_key", table.rows.total() as f64 / 1e6, text);
        }
    }

    fn kinds(&mut self) {
        let BinlogReport { kinds, transactions, flavour, statements, .. } = self.report;
        let of_all = |part: u64| format!("{} of {} transactions", count(part), count(*transactions));
        if kinds.anonymous > 0 && flavour == "mysql" {
            let text = format!(
                "{} have no GTID: a replica can find its position by file and offset only.",
                of_all(kinds.anonymous)
            );
            self.add(FindingSeverity::Notice, "no_gtid", 1.0, text);
        }
        if kinds.non_transactional > 0 {
            let text = format!(
                "{} changed tables whose engine cannot roll back: a crash may leave a part of them.",
                of_all(kinds.non_transactional)
            );
            self.add(FindingSeverity::Notice, "non_transactional", 0.9, text);
        }
        if kinds.with_statements > 0 {
            let text = format!(
                "{} contain statements instead of rows ({} statements): their rows are not counted here, and a replica may \
                 get other rows.",
                of_all(kinds.with_statements),
                count(*statements)
            );
            self.add(FindingSeverity::Notice, "statements", 0.8, text);
        }
        if kinds.rows_not_counted > 0 {
            let text =
                format!("{} contain events whose rows could not be counted.", of_all(kinds.rows_not_counted));
            self.add(FindingSeverity::Notice, "rows_not_counted", 0.7, text);
        }
        if kinds.unfinished > 0 {
            let text = format!(
                "{} started and did not end in the input; not counted.",
                if kinds.unfinished == 1 {
                    "1 transaction".to_owned()
                } else {
                    format!("{} transactions", kinds.unfinished)
                }
            );
            self.add(FindingSeverity::Notice, "unfinished", 0.6, text);
        }
    }
}

/// The text with a capital first letter, unless the text starts with the name of a table.
fn capitalized(text: &str) -> String {
    let first_word = text.split(' ').next().unwrap_or_default();
    match text.chars().next() {
        Some(first) if !first_word.contains('.') => {
            first.to_uppercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

fn named_as_big(report: &BinlogReport) -> impl Iterator<Item = &TransactionSummary> {
    report.biggest.iter().filter(|big| big.bytes >= BIG_BYTES_MIN).take(OF_A_KIND_MAX)
}

fn same(one: &TransactionSummary, other: &TransactionSummary) -> bool {
    (&one.file, one.offset) == (&other.file, other.offset)
}

fn name(transaction: &TransactionSummary) -> String {
    match &transaction.gtid {
        Some(gtid) => format!("transaction {gtid}"),
        None => format!("the transaction at {}:{}", transaction.file, transaction.offset),
    }
}

fn table_name(table: &TableShare) -> String {
    match table.table.as_str() {
        "" => "tables beyond those counted separately".to_owned(),
        name => tailwater_wire::printable(&format!("{}.{name}", table.schema)).into_owned(),
    }
}

/// What a transaction changed, such as `9.8 million rows deleted in shop.orders`.
fn work(transaction: &TransactionSummary) -> String {
    let mut text = match (transaction.rows.total(), transaction.statements) {
        (0, 1) => "1 statement".to_owned(),
        (0, statements @ 1..) => format!("{} statements", count(statements)),
        _ => rows(&transaction.rows),
    };
    if let Some(table) = transaction.tables.first() {
        text.push_str(" in ");
        text.push_str(&table_name(table));
        match transaction.tables_count {
            0 | 1 => {}
            2 => text.push_str(" and another table"),
            others => text.push_str(&format!(" and {} other tables", others - 1)),
        }
    }
    text
}
