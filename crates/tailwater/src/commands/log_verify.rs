//! Runs `tailwater log verify`, and prints each problem.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use tailwater_daemon::jobs::job_text::counted;
use tailwater_log::{LogDir, LogError, LogProblem, Verification};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventType, FormatDescription, verify_checksum,
};

use super::binlog_file_reader::{BinlogFile, NextEvent};
use crate::arguments::Output;
use crate::exit_codes::Exit;

/// Verifies each log in turn, and prints each problem with its file and offset to standard output.
///
/// # Errors
/// If a log cannot be read, or the output cannot be written. Damage is not an error but
/// [`Exit::ProblemsFound`].
pub fn logs(logs: Vec<(PathBuf, LogDir)>, output: Output) -> anyhow::Result<Exit> {
    let mut exit = Exit::Done;
    for (folder, log) in logs {
        // indicatif hides the bar if standard error is not a terminal.
        let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(
            "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        )?);
        bar.set_message(folder.display().to_string());
        let result = log.verify(|progress| {
            bar.set_length(progress.bytes_total);
            bar.set_position(progress.bytes);
        });
        bar.finish_and_clear();
        let found = match result {
            // Nothing after this damage can be verified. The operator sees it as one more problem with a
            // position.
            Err(LogError::Corrupt { path, offset, reason }) => Verification {
                problems: vec![LogProblem { path, offset, reason }],
                ..Verification::default()
            },
            result => result?,
        };
        if report(&folder, &found, output)? == Exit::ProblemsFound {
            exit = Exit::ProblemsFound;
        }
    }
    Ok(exit)
}

/// Verifies a binlog file outside a log: lengths and checksums of all events.
///
/// # Errors
/// If the file cannot be read.
pub fn file(path: &Path, output: Output) -> anyhow::Result<Exit> {
    let mut found = Verification { segments: 1, ..Verification::default() };
    let mut problem =
        |offset, reason: String| found.problems.push(LogProblem { path: path.into(), offset, reason });
    let mut events = BinlogFile::open(path)?;
    // No checksums are assumed until the format description is read. If it declares checksums, every event
    // has one.
    let mut format = FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off);
    let mut event = Vec::new();
    loop {
        let (offset, header) = match events.next(&mut event)? {
            NextEvent::Event { offset, header } => (offset, header),
            NextEvent::End => break,
            NextEvent::Broken { offset, reason } => {
                problem(offset, reason);
                break;
            }
        };
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            match FormatDescription::parse(event.get(EVENT_HEADER_BYTES..).unwrap_or_default()) {
                Ok(stated) => format = stated,
                Err(error) => problem(offset, error.to_string()),
            }
        }
        if format.trailer_bytes(&header) > 0
            && let Err(error) = verify_checksum(&event)
        {
            problem(offset, error.to_string());
        }
        found.events += 1;
        found.bytes = offset + u64::from(header.event_length);
    }
    report(path, &found, output)
}

/// Prints the result of the verification, and returns the exit code.
fn report(path: &Path, found: &Verification, output: Output) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    for problem in &found.problems {
        let LogProblem { path: file, offset, reason } = problem;
        match output {
            Output::Text => {
                writeln!(out, "{PROBLEM_CODE}: {}: at offset {offset}: {reason}", file.display())?
            }
            Output::Json => {
                let line = serde_json::json!({
                    "log": path, "code": PROBLEM_CODE, "path": file, "offset": offset, "reason": reason,
                });
                writeln!(out, "{line}")?;
            }
        }
    }
    let problems = found.problems.len() as u64 + found.problems_left_out;
    match output {
        Output::Text => {
            let left_out = match found.problems_left_out {
                0 => String::new(),
                count => format!(" ({count} of them not shown)"),
            };
            let verdict = match problems {
                0 => "nothing is wrong".to_owned(),
                count => format!("{}{left_out}", counted(count, "problem")),
            };
            let Verification { segments, transactions, events, bytes, .. } = found;
            writeln!(
                out,
                "{}: {verdict}: {}, {}, {}, {bytes} bytes",
                path.display(),
                counted(*segments, "segment"),
                counted(*transactions, "transaction"),
                counted(*events, "event")
            )?;
        }
        Output::Json => {
            let line = serde_json::json!({
                "log": path,
                "ok": found.is_ok(),
                "segments": found.segments,
                "transactions": found.transactions,
                "events": found.events,
                "bytes": found.bytes,
                "problems": problems,
            });
            writeln!(out, "{line}")?;
        }
    }
    Ok(if found.is_ok() { Exit::Done } else { Exit::ProblemsFound })
}

/// Error code for damaged bytes on disk, as in [`LogError::Corrupt`].
const PROBLEM_CODE: &str = "TW-LOG-0003";
