//! Formats a report as text for a terminal: first the findings, then the figures in tables.

use std::fmt::Write;

use crate::display_labels::{all_table_bytes, commit_time, compression, table_name, tables_of};
use crate::number_format::{bytes, count, duration, grouped, rows, share};
use crate::terminal_chart::text_chart;
use crate::{BinlogReport, FindingSeverity, LocalTime, StatsResult, TableShare, TransactionSummary};

/// The width in characters at which lines are wrapped.
const WIDTH: usize = 100;

/// The whole report as text. With `colour`, it contains escape sequences for a terminal.
pub fn report_text(result: &StatsResult, colour: bool) -> String {
    let report = &result.report;
    let mut page = ReportText { out: String::new(), colour };
    page.head(result);
    if report.transactions == 0 {
        page.line("  no transactions");
    }
    page.findings(result);
    if report.transactions > 0 {
        page.sums(report);
        page.section("Rate over time", &text_chart(report));
        page.tables(report);
        page.transactions("Biggest transactions", &report.biggest, report);
        page.transactions("Most rows", &report.most_rows, report);
        page.transactions("Longest from first statement to commit", &report.longest, report);
        page.gaps(report);
        page.sizes(report);
        page.others(report);
    }
    page.out
}

struct ReportText {
    out: String,
    colour: bool,
}

/// How a column of a table is aligned.
#[derive(Clone, Copy, PartialEq)]
enum Align {
    Left,
    Right,
}

impl ReportText {
    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn title(&mut self, title: &str) {
        let title = self.paint("1", title);
        self.line("");
        self.line(&title);
    }

    fn section(&mut self, title: &str, text: &str) {
        if !text.is_empty() {
            self.title(title);
            self.out.push_str(text);
        }
    }

    fn head(&mut self, result: &StatsResult) {
        let BinlogReport { span, flavour, server_version, .. } = &result.report;
        let title = self.paint("1", &result.title);
        self.line(&title);
        if span.files == 0 {
            return;
        }
        let files = if span.files == 1 { String::new() } else { format!(", {} files", span.files) };
        self.line(&format!(
            "  {}:{} to {}:{}{files}; {flavour} {server_version}",
            span.first_file, span.first_offset, span.last_file, span.end_offset
        ));
        if span.first_commit_us == 0 {
            return;
        }
        let (first, last) = (LocalTime(span.first_commit_us), LocalTime(span.last_commit_us));
        let seconds = (last.0 - first.0) as f64 / 1e6;
        self.line(&format!(
            "  {} to {} local time ({}): {}",
            first.date_and_time(),
            if first.same_day(last) { last.time() } else { last.date_and_time() },
            last.offset(),
            duration(seconds)
        ));
    }

    fn findings(&mut self, result: &StatsResult) {
        self.line("");
        if result.findings.is_empty() && result.report.transactions > 0 {
            self.line("  nothing noteworthy");
        }
        for finding in &result.findings {
            let mark = match finding.weight {
                FindingSeverity::Alarm => self.paint("1;31", "!"),
                FindingSeverity::Notice => self.paint("1;33", "·"),
            };
            for (number, line) in wrapped(&finding.text, WIDTH - 4).iter().enumerate() {
                self.line(&format!(
                    "{} {line}",
                    if number == 0 { format!("  {mark}") } else { "   ".into() }
                ));
            }
        }
    }

    fn sums(&mut self, report: &BinlogReport) {
        let seconds = (report.span.last_commit_us - report.span.first_commit_us) as f64 / 1e6;
        let per_second = |number: u64| match seconds {
            s if s >= 1.0 => number as f64 / s,
            _ => 0.0,
        };
        self.title("Totals");
        let kinds = &report.kinds;
        let parts = [
            (kinds.with_rows, "with rows"),
            (kinds.with_statements, "with statements"),
            (kinds.with_ddl, "with DDL"),
            (kinds.empty, "empty"),
            (kinds.xa_prepared, "prepared by XA"),
            (kinds.non_transactional, "of tables without transactions"),
            (kinds.unfinished, "unfinished, not counted"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{} {what}", count(*number)))
            .collect();
        let mut lines = vec![
            [
                "transactions".to_owned(),
                grouped(report.transactions),
                format!("{:.1}/s", per_second(report.transactions)),
                parts.join(", "),
            ],
            [
                "bytes".to_owned(),
                bytes(report.bytes),
                format!("{}/s", bytes(per_second(report.bytes) as u64)),
                format!("{} more between transactions", bytes(report.other_bytes)),
            ],
            [
                "rows".to_owned(),
                grouped(report.rows.total()),
                format!("{:.1}/s", per_second(report.rows.total())),
                rows(&report.rows),
            ],
            [
                "events".to_owned(),
                grouped(report.events),
                format!("{:.1}/s", per_second(report.events)),
                format!(
                    "{} of rows; {} statements, {} DDL",
                    count(report.row_events),
                    count(report.statements),
                    count(report.ddl_statements)
                ),
            ],
        ];
        if let Some(compressed) = compression(report) {
            lines.push(["compressed".to_owned(), compressed.0, String::new(), compressed.1]);
        }
        if seconds < 1.0 {
            lines.iter_mut().for_each(|line| line[2].clear());
        }
        self.table(["", "", "", ""], [Align::Left, Align::Right, Align::Right, Align::Left], &lines);
    }

    fn tables(&mut self, report: &BinlogReport) {
        if report.tables.by_bytes.is_empty() {
            return;
        }
        let all = all_table_bytes(report);
        self.title(&format!("Hottest of {} tables", grouped(report.tables.count)));
        let line = |name: String, table: &TableShare| {
            [
                name,
                bytes(table.bytes),
                share(table.bytes, all),
                grouped(table.rows.inserted),
                grouped(table.rows.updated),
                grouped(table.rows.deleted),
                if table.transactions > 0 { grouped(table.transactions) } else { String::new() },
            ]
        };
        let mut lines: Vec<_> = report
            .tables
            .by_bytes
            .iter()
            .map(|table| {
                let keyless = if table.primary_key == Some(false) { "  (no primary key)" } else { "" };
                line(format!("{}{keyless}", table_name(&table.schema, &table.table)), table)
            })
            .collect();
        if report.tables.others_bytes > 0 {
            let others = TableShare {
                rows: report.tables.others_rows,
                bytes: report.tables.others_bytes,
                ..TableShare::default()
            };
            lines.push(line("others".to_owned(), &others));
        }
        let mut align = [Align::Right; 7];
        align[0] = Align::Left;
        self.table(
            ["TABLE", "BYTES", "SHARE", "INSERTED", "UPDATED", "DELETED", "TRANSACTIONS"],
            align,
            &lines,
        );
    }

    fn transactions(&mut self, title: &str, transactions: &[TransactionSummary], report: &BinlogReport) {
        if transactions.is_empty() {
            return;
        }
        self.title(title);
        let lines: Vec<_> = transactions
            .iter()
            .map(|one| {
                [
                    bytes(one.bytes),
                    grouped(one.rows.total()),
                    duration(one.seconds),
                    commit_time(one.commit_us, report),
                    format!("{}:{}", one.file, one.offset),
                    one.gtid.clone().unwrap_or_else(|| "-".into()),
                    tables_of(one),
                ]
            })
            .collect();
        let mut align = [Align::Left; 7];
        align[..3].fill(Align::Right);
        self.table(["BYTES", "ROWS", "TOOK", "COMMITTED", "AT", "GTID", "TABLES"], align, &lines);
    }

    fn gaps(&mut self, report: &BinlogReport) {
        if report.gaps.is_empty() {
            return;
        }
        self.title("Longest without a commit");
        let lines: Vec<_> = report
            .gaps
            .iter()
            .map(|gap| {
                [
                    duration(gap.seconds),
                    commit_time(gap.start_us, report),
                    commit_time(gap.end_us, report),
                    bytes(gap.during.bytes),
                    gap.during
                        .gtid
                        .clone()
                        .unwrap_or_else(|| format!("{}:{}", gap.during.file, gap.during.offset)),
                    if gap.restart { "the server was started".to_owned() } else { tables_of(&gap.during) },
                ]
            })
            .collect();
        let mut align = [Align::Left; 6];
        (align[0], align[3]) = (Align::Right, Align::Right);
        self.table(["LASTED", "FROM", "TO", "WRITTEN THEN", "BY", "TABLES"], align, &lines);
    }

    fn sizes(&mut self, report: &BinlogReport) {
        self.title("Transactions by size");
        let most = report.sizes.iter().map(|size| size.transactions).max().unwrap_or(0);
        let lines: Vec<_> = report
            .sizes
            .iter()
            .map(|size| {
                let bar = (size.transactions * 40).div_ceil(most.max(1)) as usize;
                [
                    format!("from {}", bytes(size.bytes_from)),
                    grouped(size.transactions),
                    bytes(size.bytes),
                    "█".repeat(bar),
                ]
            })
            .collect();
        self.table(
            ["", "TRANSACTIONS", "BYTES", ""],
            [Align::Right, Align::Right, Align::Right, Align::Left],
            &lines,
        );
    }

    fn others(&mut self, report: &BinlogReport) {
        if !report.ddl.is_empty() {
            self.title(&format!("Latest of {} DDL statements", grouped(report.ddl_statements)));
            for ddl in &report.ddl {
                let text = format!("{}  {}", commit_time(ddl.commit_us, report), ddl.statement);
                self.line(&format!("  {}", text.chars().take(WIDTH + 20).collect::<String>()));
            }
        }
        if report.servers.len() > 1 {
            self.title("Transactions by the server that first executed them");
            let lines: Vec<_> = report
                .servers
                .iter()
                .map(|server| {
                    [
                        format!("server_id {}", server.server_id),
                        grouped(server.transactions),
                        bytes(server.bytes),
                    ]
                })
                .collect();
            self.table(["", "TRANSACTIONS", "BYTES"], [Align::Left, Align::Right, Align::Right], &lines);
        }
    }

    /// Prints a table whose columns are aligned and two spaces apart.
    fn table<const N: usize>(&mut self, heads: [&str; N], align: [Align; N], lines: &[[String; N]]) {
        let width = |column: usize| {
            let cells = lines.iter().map(|line| line[column].chars().count());
            cells.chain([heads[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..N).map(width).collect();
        let row = |cells: &[&str]| {
            let mut text = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let _ = match align[column] {
                    Align::Left => write!(text, "  {cell:<width$}", width = widths[column]),
                    Align::Right => write!(text, "  {cell:>width$}", width = widths[column]),
                };
            }
            text.trim_end().to_owned()
        };
        if heads.iter().any(|head| !head.is_empty()) {
            let head = self.paint("2", &row(&heads));
            self.line(&head);
        }
        for line in lines {
            let cells: Vec<&str> = line.iter().map(String::as_str).collect();
            let line = row(&cells);
            self.line(&line);
        }
    }
}

/// Wraps a text into lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
