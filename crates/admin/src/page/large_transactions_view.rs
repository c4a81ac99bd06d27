//! Big transactions of a log, and times without a commit. Pure.

use askama::Template;
use tailwater_binlog_stats::display_labels::{commit_time, tables_of};
use tailwater_binlog_stats::number_format::{bytes, duration, grouped};
use tailwater_binlog_stats::{
    BinlogReport, FindingSeverity, Gap, RecentStats, StatsFinding, TransactionSummary,
};

use super::display_format::UNKNOWN;

/// How many rows each table has at most.
const ROWS_MAX: usize = 5;

/// Shorter times without a commit are not listed.
const GAP_SECONDS_MIN: f64 = 1.0;

/// What the analysis of a log found. It is a part of the view of the log.
#[derive(Debug, Template)]
#[template(path = "page/transactions.html")]
pub(super) struct TransactionsPart {
    pub(super) summary: String,
    /// Each with whether it is an alarm.
    pub(super) findings: Vec<(bool, String)>,
    /// Titles, and their transactions.
    pub(super) tables: Vec<(&'static str, Vec<TransactionRow>)>,
    pub(super) gaps: Vec<GapRow>,
}

/// A transaction, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TransactionRow {
    pub(super) committed: String,
    pub(super) size: String,
    pub(super) rows: String,
    pub(super) took: String,
    pub(super) tables: String,
    /// The GTID, or else the place in the binlog.
    pub(super) name: String,
}

/// A time without a commit, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GapRow {
    pub(super) from: String,
    pub(super) until: String,
    pub(super) lasted: String,
    pub(super) meanwhile: String,
}

impl TransactionsPart {
    pub(super) fn new(stats: &RecentStats, bytes_max: u64) -> Self {
        let report = &stats.result.report;
        let finding =
            |finding: &StatsFinding| (finding.weight == FindingSeverity::Alarm, finding.text.clone());
        let rows = |transactions: &[TransactionSummary]| {
            transactions.iter().take(ROWS_MAX).map(|one| transaction_row(one, report)).collect()
        };
        let gaps = report.gaps.iter().filter(|gap| gap.seconds >= GAP_SECONDS_MIN).take(ROWS_MAX);
        Self {
            summary: summary(report, stats.is_cut, bytes_max),
            findings: stats.result.findings.iter().map(finding).collect(),
            tables: vec![
                ("Biggest transactions", rows(&report.biggest)),
                ("Longest transactions", rows(&report.longest)),
            ],
            gaps: gaps.map(|gap| gap_row(gap, report)).collect(),
        }
    }
}

fn summary(report: &BinlogReport, is_cut: bool, bytes_max: u64) -> String {
    let found = match report.transactions {
        0 => "No transaction was committed.".to_owned(),
        all => format!(
            "{} transactions with {}, committed from {} to {}.",
            grouped(all),
            bytes(report.bytes),
            commit_time(report.span.first_commit_us, report),
            commit_time(report.span.last_commit_us, report)
        ),
    };
    match is_cut {
        true => format!(
            "{found} Older transactions of this period are left out, because all transactions together are larger than {}; `tailwater log stats` reads them.",
            bytes(bytes_max)
        ),
        false => found,
    }
}

fn transaction_row(transaction: &TransactionSummary, report: &BinlogReport) -> TransactionRow {
    TransactionRow {
        committed: commit_time(transaction.commit_us, report),
        size: bytes(transaction.bytes),
        rows: grouped(transaction.rows.total()),
        took: match transaction.begin_us {
            0 => UNKNOWN.to_owned(),
            _ => duration(transaction.seconds),
        },
        tables: tables_of(transaction),
        name: name_of(transaction),
    }
}

fn name_of(transaction: &TransactionSummary) -> String {
    let place = || format!("{}:{}", transaction.file, transaction.offset);
    transaction.gtid.clone().unwrap_or_else(place)
}

fn gap_row(gap: &Gap, report: &BinlogReport) -> GapRow {
    let next = format!("the next commit was {} with {}", name_of(&gap.next), bytes(gap.next.bytes));
    let meanwhile = match (gap.restart, gap.during.bytes) {
        (true, _) => format!("the server was restarted; {next}"),
        (false, 0) => next,
        (false, size) => format!("{} with {} was written", name_of(&gap.during), bytes(size)),
    };
    GapRow {
        from: commit_time(gap.start_us, report),
        until: commit_time(gap.end_us, report),
        lasted: duration(gap.seconds),
        meanwhile,
    }
}

#[cfg(test)]
mod tests {
    use tailwater_binlog_stats::{Collector, CollectorOptions, StatsResult};

    use super::*;

    fn part(report: BinlogReport, is_cut: bool) -> TransactionsPart {
        let collector = Collector::new(CollectorOptions::default());
        let result = StatsResult { report, ..StatsResult::new(String::new(), &collector) };
        TransactionsPart::new(&RecentStats { result, is_cut }, 1 << 30)
    }

    #[test]
    fn a_gap_names_what_was_written_meanwhile() {
        let transaction = |gtid: &str, size| TransactionSummary {
            gtid: Some(gtid.to_owned()),
            bytes: size,
            ..TransactionSummary::default()
        };
        let gap = |seconds, during: TransactionSummary, restart| Gap {
            seconds,
            during,
            next: transaction("0-1-9", 100),
            restart,
            ..Gap::default()
        };
        let gaps = vec![
            gap(12.0, transaction("0-1-8", 3 << 20), false),
            gap(5.0, TransactionSummary::default(), true),
            gap(2.0, TransactionSummary::default(), false),
            gap(0.5, TransactionSummary::default(), false),
        ];
        let part = part(BinlogReport { gaps, ..BinlogReport::default() }, false);
        let texts: Vec<_> = part.gaps.iter().map(|gap| gap.meanwhile.as_str()).collect();
        let next = "the next commit was 0-1-9 with 100 B";
        let restarted = format!("the server was restarted; {next}");
        assert_eq!(texts, ["0-1-8 with 3.0 MiB was written", restarted.as_str(), next]);
    }

    #[test]
    fn what_is_left_out_is_said() {
        assert_eq!(part(BinlogReport::default(), false).summary, "No transaction was committed.");
        assert!(part(BinlogReport::default(), true).summary.contains("larger than 1.0 GiB"));
    }
}
