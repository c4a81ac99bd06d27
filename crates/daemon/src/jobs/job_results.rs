//! What finished work has done and found, for the list of jobs. Pure.

use std::collections::BTreeSet;

use tailwater_binlog_stats::number_format::grouped;
use tailwater_check::row_repair::{RepairOutcome, RepairReport};
use tailwater_check::table_check::{CheckReport, TableFinding};

use super::job_text::{counted, findings_text};
use crate::api::jobs::JobFindings;
use crate::manager::former_primary_rejoin::RejoinReport;

/// The result of finished work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobResult {
    /// What was done, in one line.
    pub message: String,
    /// What a comparison has found.
    pub found: Option<JobFindings>,
}

impl JobResult {
    /// The result of work that compares nothing.
    pub fn without_findings(message: impl Into<String>) -> Self {
        Self { message: message.into(), found: None }
    }

    /// The result of a check.
    pub fn of_check(report: &CheckReport) -> Self {
        let tables = report.differences.iter().map(|row| row.table_name().to_string());
        let found = JobFindings {
            tables: differing_tables(tables, &report.findings),
            rows: report.differences.len() as u64,
            repaired: 0,
            remains: !report.is_equal(),
        };
        let (rows, tables) = (counted(report.rows, "row"), counted(report.tables, "table"));
        Self {
            message: format!("compared {rows} of {tables}: {}", findings_text(&found)),
            found: Some(found),
        }
    }

    /// The result of a repair. With `dry_run` nothing was changed.
    pub fn of_repair(report: &RepairReport, dry_run: bool) -> Self {
        let differ = report.rows.iter().filter(|(_, outcome)| *outcome != RepairOutcome::Same);
        let tables = differ.clone().map(|(row, _)| row.table_name().to_string());
        let done =
            report.rows.iter().filter(|(_, outcome)| matches!(outcome, RepairOutcome::Done(_))).count();
        let found = JobFindings {
            tables: differing_tables(tables, &report.findings),
            rows: differ.count() as u64,
            repaired: if dry_run { 0 } else { done as u64 },
            remains: !report.is_equal() || (dry_run && done > 0),
        };
        let mut message = findings_text(&found);
        if dry_run {
            message = format!("dry run, nothing was changed: {message}");
        }
        if report.unfinished {
            message.push_str("; the check did not finish: resume it with `check --resume`");
        }
        Self { message, found: Some(found) }
    }

    /// The result of a rejoin.
    pub fn of_rejoin(report: &RejoinReport) -> Self {
        let RejoinReport { server, repair, rows_copied, reads_from, compared, .. } = report;
        let mut parts = vec![match reads_from {
            Some(address) => format!("{server} is a replica, and reads from {address}"),
            None => format!("{server} was not joined"),
        }];
        if let Some(repair) = repair {
            let undone = counted(repair.undone.len() as u64, "transaction");
            parts.push(format!("{undone} undone, {} applied again", grouped(repair.transactions_again)));
        }
        parts.extend(rows_copied.map(|rows| format!("{} copied", counted(rows, "row"))));
        let found = compared.as_ref().map(|compared| JobFindings {
            tables: compared.in_tables.len() as u64,
            rows: compared.differing_rows,
            repaired: 0,
            remains: compared.differences > 0,
        });
        parts.extend(
            found.as_ref().map(|found| format!("comparison with the primary: {}", findings_text(found))),
        );
        Self { message: parts.join("; "), found }
    }
}

fn differing_tables(of_rows: impl Iterator<Item = String>, findings: &[TableFinding]) -> u64 {
    let whole = findings.iter().map(|finding| finding.table_name().to_string());
    of_rows.chain(whole).collect::<BTreeSet<_>>().len() as u64
}

#[cfg(test)]
mod tests {
    use tailwater_check::row_repair::RepairAction;
    use tailwater_check::table_check::{DifferenceKind, RowDifference};
    use tailwater_tables::schema::TableName;

    use super::*;

    fn row(table: &str) -> RowDifference {
        let (schema, table) = ("shop".to_owned(), table.to_owned());
        RowDifference { schema, table, key: Vec::new(), what: DifferenceKind::Missing, values: None }
    }

    #[test]
    fn a_check_counts_rows_and_tables_once() {
        let report = CheckReport { tables: 4, rows: 12_000, ..CheckReport::default() };
        let equal = JobResult::of_check(&report);
        assert_eq!(equal.message, "compared 12,000 rows of 4 tables: no differences");
        assert_eq!(equal.found, Some(JobFindings::default()));
        let report = CheckReport {
            differences: vec![row("a"), row("a"), row("b")],
            findings: vec![
                TableFinding::TooMany(TableName::new("shop", "a")),
                TableFinding::OnlySource(TableName::new("shop", "c")),
            ],
            ..report
        };
        let JobResult { message, found } = JobResult::of_check(&report);
        assert_eq!(found, Some(JobFindings { tables: 3, rows: 3, repaired: 0, remains: true }));
        assert_eq!(message, "compared 12,000 rows of 4 tables: 3 rows in 3 tables differ");
    }

    #[test]
    fn a_repair_tells_what_remains() {
        let done = (row("a"), RepairOutcome::Done(RepairAction::Insert));
        let report = RepairReport {
            rows: vec![done.clone(), done, (row("a"), RepairOutcome::Same)],
            ..RepairReport::default()
        };
        let repaired = JobResult::of_repair(&report, false);
        assert_eq!(repaired.found, Some(JobFindings { tables: 1, rows: 2, repaired: 2, remains: false }));
        assert_eq!(repaired.message, "2 rows repaired");
        let dry = JobResult::of_repair(&report, true);
        assert_eq!(dry.found, Some(JobFindings { tables: 1, rows: 2, repaired: 0, remains: true }));
        assert!(dry.message.starts_with("dry run, nothing was changed: 2 rows in 1 table differ"), "{dry:?}");
        let remains = (row("b"), RepairOutcome::Remains("a trigger".to_owned()));
        let report = RepairReport { rows: [report.rows, vec![remains]].concat(), ..RepairReport::default() };
        assert_eq!(JobResult::of_repair(&report, false).message, "2 rows repaired, 1 row differs still");
    }
}
