//! Runs `tailwater repair`, and prints the repaired rows.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tailwater_check::row_repair::{self, RepairOptions, RepairOutcome, RepairReport};
use tailwater_daemon::api::jobs::JobKind;
use tailwater_daemon::jobs::job_results::JobResult;
use tailwater_daemon::jobs::job_text::counted;
use tailwater_wire::printable;

use super::check;
use super::command_run_as_job::JobRun;
use super::job_report_to_daemon::JobSocket;
use super::progress_display::SCHEMA_VERSION;
use super::throttle_options::throttle;
use crate::arguments::{Output, RepairArgs};
use crate::exit_codes::Exit;

/// Runs `tailwater repair`: changes the target's rows that differ from the source's.
///
/// # Errors
/// The error that ended the repair. Rows that were repaired before it stay repaired.
pub(super) async fn repair(arguments: &RepairArgs, output: Output) -> anyhow::Result<Exit> {
    super::init_messages_as(output);
    let options = RepairOptions {
        from_state: arguments.from_state,
        dry_run: arguments.dry_run,
        log_to_binlog: arguments.log_to_binlog,
        fire_triggers: arguments.fire_triggers,
        lock_wait_max: Duration::from_secs(arguments.lock_wait_max_s),
        ..RepairOptions::new(check::options(&arguments.what)?)
    };
    let throttle = throttle(&arguments.what.throttle, &options.check.source)?;
    let socket = JobSocket::of(&arguments.what.daemon.daemon, None);
    let subject = check::subject(&options.check);
    let run = JobRun::start(("repairing", JobKind::Repair, subject), socket, output)?;
    let work = row_repair::repair(&options, throttle, Arc::clone(&run.progress), run.stop.clone());
    let report = match run.show(work, |report| JobResult::of_repair(report, options.dry_run)).await? {
        Ok(report) => report,
        Err(error) if check::is_refusal(&error) => {
            eprintln!("tailwater: {}: {}", error.code(), printable(&error.to_string()));
            return Ok(Exit::Refused);
        }
        Err(error) => return Err(error.into()),
    };
    print(&report, options.dry_run, output)?;
    let is_left =
        options.dry_run && report.rows.iter().any(|(_, outcome)| matches!(outcome, RepairOutcome::Done(_)));
    Ok(if report.is_equal() && !is_left { Exit::Done } else { Exit::ProblemsFound })
}

fn print(report: &RepairReport, dry_run: bool, output: Output) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let of = |wanted: fn(&RepairOutcome) -> bool| {
        report.rows.iter().filter(|(_, outcome)| wanted(outcome)).count()
    };
    let done = of(|outcome| matches!(outcome, RepairOutcome::Done(_)));
    let (same, remain) = (
        of(|outcome| *outcome == RepairOutcome::Same),
        of(|outcome| matches!(outcome, RepairOutcome::Remains(_))),
    );
    let seconds = report.elapsed.as_secs_f64();
    if output == Output::Json {
        for (difference, outcome) in &report.rows {
            let mut object = check::difference_object(difference, false);
            let (outcome, message) = match outcome {
                RepairOutcome::Done(action) => (if dry_run { "would" } else { "done" }, action.name()),
                RepairOutcome::Same => ("same", ""),
                RepairOutcome::Remains(reason) => ("remains", reason.as_str()),
            };
            object.insert("schema_version".into(), json!(SCHEMA_VERSION));
            object.insert("event".into(), json!("row"));
            object.insert("outcome".into(), json!(outcome));
            object.insert(if outcome == "remains" { "reason" } else { "action" }.into(), json!(message));
            writeln!(out, "{}", Value::Object(object))?;
        }
        check::print_findings(&mut out, &report.findings)?;
        let line = json!({
            "schema_version": SCHEMA_VERSION,
            "event": "done",
            "dry_run": dry_run,
            "check_finished": !report.unfinished,
            "equal": report.is_equal() && !(dry_run && done > 0),
            "done": done,
            "same": same,
            "remain": remain,
            "seconds": seconds,
        });
        return writeln!(out, "{line}");
    }
    for (table, _, message) in report.findings.iter().map(check::finding) {
        writeln!(out, "{table}: {}; repair does not change this table", printable(&message))?;
    }
    for (difference, outcome) in &report.rows {
        let key: Vec<_> = difference.key.iter().map(|literal| literal.0.as_str()).collect();
        let (table, key) = (difference.table_name(), key.join(", "));
        match outcome {
            RepairOutcome::Done(action) if dry_run => {
                writeln!(out, "would {} {table} ({key})", action.name())?
            }
            RepairOutcome::Done(_) | RepairOutcome::Same => {}
            RepairOutcome::Remains(reason) => {
                writeln!(out, "{table} ({key}) remains: {}", printable(reason))?
            }
        }
    }
    if report.unfinished {
        writeln!(
            out,
            "the check did not finish, so there may be more differences; resume it with `check --resume`"
        )?;
    }
    let what = if dry_run { "to be repaired" } else { "repaired" };
    let rows = counted(done as u64, "row");
    writeln!(out, "{rows} {what}, {same} already the same, {remain} remaining, in {seconds:.1} s")
}
