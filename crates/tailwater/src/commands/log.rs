//! Runs `tailwater log`: lists, prints, verifies, archives and purges logs.

use std::io::{self, Write};
use std::path::Path;

use tailwater_log::{EntryKind, LogDir, LogPosition, SegmentSummary};
use tailwater_wire::binlog_event::BINLOG_MAGIC;
use tailwater_wire::gtid::Gtid;
use tailwater_wire::server_version::without_replication_prefix;

use super::log_location::logs_of;
use super::{log_archive, log_cat, log_purge, log_stats, log_verify};
use crate::arguments::{LogCommand, LogSource, Output};
use crate::exit_codes::Exit;

/// Runs a subcommand of `tailwater log`.
///
/// # Errors
/// If the log cannot be read.
pub fn log(command: &LogCommand, output: Output) -> anyhow::Result<Exit> {
    // Shows warnings, such as a missing control file or a retried read.
    super::init_messages_as(output);
    let result = match command {
        LogCommand::Ls(source) => ls(source, output),
        LogCommand::Cat(arguments) => log_cat::cat(arguments, output),
        LogCommand::Verify(source) => verify(source, output),
        LogCommand::Archive(arguments) => log_archive::archive(arguments, output),
        LogCommand::Purge(arguments) => log_purge::purge(arguments, output),
        LogCommand::Stats(arguments) => log_stats::stats(arguments, output),
    };
    match result {
        // The program that reads the output has closed the pipe, as `head` does. This is not an error.
        Err(error) if is_broken_pipe(&error) => Ok(Exit::Done),
        result => result,
    }
}

fn verify(source: &LogSource, output: Output) -> anyhow::Result<Exit> {
    match binlog_file(source) {
        Some(path) => log_verify::file(path, output),
        None => log_verify::logs(logs_of(source)?, output),
    }
}

/// Returns the path if it names a binlog file, not a log folder.
pub(super) fn binlog_file(source: &LogSource) -> Option<&Path> {
    source.path.as_deref().filter(|path| path.is_file())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// What `ls` prints about a segment after its summary.
#[derive(Default)]
struct SegmentContent {
    transactions: u64,
    first: Option<Gtid>,
    last: Option<Gtid>,
    last_commit_us: u64,
}

fn content(log: &LogDir, segment: &SegmentSummary) -> anyhow::Result<SegmentContent> {
    let mut content = SegmentContent::default();
    let mut reader =
        log.reader(LogPosition { segment: segment.number, offset: BINLOG_MAGIC.len() as u64 })?;
    while let Some(entry) = reader.try_next()? {
        if entry.position.segment != segment.number {
            break;
        }
        if entry.kind == EntryKind::Transaction {
            content.transactions += 1;
            content.last_commit_us = entry.commit_time_us;
            if content.first.is_none() {
                content.first = entry.gtid.clone();
            }
            content.last = entry.gtid;
        }
    }
    Ok(content)
}

fn ls(source: &LogSource, output: Output) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    for (folder, log) in logs_of(source)? {
        if output == Output::Text {
            writeln!(out, "{}", folder.display())?;
            writeln!(
                out,
                "{:>10}  {:<24} {:>14} {:>12}  {:<20}  LAST GTID",
                "SEGMENT", "SOURCE FILE", "BYTES", "TRANSACTIONS", "LAST COMMIT (UTC)"
            )?;
        }
        for segment in log.segments()? {
            let content = content(&log, &segment)?;
            let gtid = |gtid: &Option<Gtid>| gtid.as_ref().map(Gtid::to_string);
            match output {
                Output::Text => {
                    let open = if segment.sealed { "" } else { "  (open)" };
                    writeln!(
                        out,
                        "{:>10}  {:<24} {:>14} {:>12}  {:<20}  {}{open}",
                        segment.number,
                        segment.source_file,
                        segment.bytes,
                        content.transactions,
                        utc(content.last_commit_us),
                        gtid(&content.last).unwrap_or_else(|| "-".into()),
                    )?;
                }
                Output::Json => {
                    let line = serde_json::json!({
                        "log": folder,
                        "segment": segment.number,
                        "path": segment.path,
                        "source_file": segment.source_file,
                        "source_offset": segment.source_offset,
                        "server_id": segment.source.server_id,
                        "server_uuid": segment.source.server_uuid,
                        "server_version": without_replication_prefix(&segment.source.server_version),
                        "bytes": segment.bytes,
                        "sealed": segment.sealed,
                        "gtids_before": segment.gtids_before,
                        "transactions": content.transactions,
                        "first_gtid": gtid(&content.first),
                        "last_gtid": gtid(&content.last),
                        "last_commit_us": content.last_commit_us,
                    });
                    writeln!(out, "{line}")?;
                }
            }
        }
    }
    Ok(Exit::Done)
}

/// Formats microseconds since 1970 as `YYYY-MM-DD hh:mm:ss` in UTC, or `-` for 0.
fn utc(microseconds: u64) -> String {
    if microseconds == 0 {
        return "-".into();
    }
    let seconds = microseconds / 1_000_000;
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Converts days since 1970 to a date with Howard Hinnant's algorithm. Here the number of days is never
    // negative.
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_formatted_as_calendar_dates() {
        assert_eq!(utc(0), "-");
        assert_eq!(utc(1_000_000), "1970-01-01 00:00:01");
        assert_eq!(utc(951_782_400_000_000), "2000-02-29 00:00:00");
        assert_eq!(utc(1_795_305_599_000_000), "2026-11-21 23:59:59");
    }
}
