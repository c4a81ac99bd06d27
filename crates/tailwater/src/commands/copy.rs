//! Runs `tailwater copy`, and prints its progress and report.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tailwater_daemon::api::jobs::JobKind;
use tailwater_daemon::jobs::job_results::JobResult;
use tailwater_daemon::jobs::job_text::counted;
use tailwater_dump::dump::omitted_objects::Omission;
use tailwater_dump::load::LoadOptions;
use tailwater_dump::server_copy::{self, CopyOptions, CopyReport};
use tailwater_session::ConnectOptions;
use tailwater_tables::schema::Selection;
use tailwater_wire::printable;

use super::client_connection_options::connect_options;
use super::command_run_as_job::JobRun;
use super::dump::{left_out_json, print_plan, selection};
use super::job_report_to_daemon::JobSocket;
use super::load::is_refusal;
use super::physical_server_copy::copy_binary;
use super::progress_display::SCHEMA_VERSION;
use super::throttle_options::throttle;
use crate::arguments::{CopyArgs, CopyHowArgs, Output};
use crate::exit_codes::Exit;

/// Copies databases from one server to another, or prints the plan.
///
/// # Errors
/// The error that ended the copy. A refusal before any change is [`Exit::Refused`], not an error.
pub(super) async fn copy(arguments: &CopyArgs, output: Output) -> anyhow::Result<Exit> {
    if arguments.binary.binary {
        return copy_binary(arguments, output).await;
    }
    let source = connect_options(&(&arguments.source).into())?;
    let load = LoadOptions {
        throttle: Arc::new(throttle(&arguments.throttle, &source)?),
        resume: arguments.resume,
        set_gtid: arguments.set_gtid,
        binlog: !arguments.no_binlog,
        inserts: arguments.inserts,
        events_disabled: arguments.disable_events,
        ..LoadOptions::new(connect_options(&(&arguments.target).into())?)
    };
    let selection = selection(&arguments.database, &arguments.table, &arguments.exclude_table)?;
    let options = options(&arguments.how, source, selection, load);
    if arguments.dry_run {
        let plan = server_copy::dry_run(&options).await?;
        print_plan(options.load.workers, &plan.source, output)?;
        if let Some(first) = plan.there.first() {
            eprintln!("the target already has {} of these tables, for example {first}", plan.there.len());
        }
        return Ok(if plan.there.is_empty() { Exit::Done } else { Exit::Refused });
    }
    super::init_messages_as(output);
    let socket = JobSocket::of(&arguments.daemon.daemon, None);
    match run(&options, socket, output).await? {
        Some(report) => {
            print_report(&report, output)?;
            Ok(Exit::Done)
        }
        None => Ok(Exit::Refused),
    }
}

/// Builds the copy options from the command line.
pub(super) fn options(
    how: &CopyHowArgs,
    source: ConnectOptions,
    selection: Selection,
    load: LoadOptions,
) -> CopyOptions {
    let load =
        LoadOptions { workers: usize::from(how.workers), defer_indexes: how.defer_indexes.into(), ..load };
    let mut options = CopyOptions::new(source, selection, load)
        .lock_wait_max(Duration::from_secs(how.lock_wait_max_s))
        .chunk_bytes_max(how.chunk_bytes_max);
    options.restart = how.restart;
    options
}

/// Copies and shows the progress. Returns `None` if the copy was refused; the reason has then been printed.
///
/// # Errors
/// The error that ended the copy.
pub(super) async fn run(
    options: &CopyOptions,
    socket: Option<JobSocket>,
    output: Output,
) -> anyhow::Result<Option<CopyReport>> {
    let subject = format!("{} to {}", options.source_endpoint(), options.load.connect.endpoint);
    let run = JobRun::start(("copying", JobKind::Copy, subject), socket, output)?;
    match run.show(server_copy::copy(options, &run.progress, &run.stop), result).await? {
        Ok(report) => Ok(Some(report)),
        Err(error) if is_refusal(&error) => {
            eprintln!("tailwater: {}: {}", error.code(), printable(&error.to_string()));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn result(report: &CopyReport) -> JobResult {
    let (rows, tables) = (counted(report.load.rows, "row"), counted(report.load.tables as u64, "table"));
    JobResult::without_findings(format!("copied {rows} of {tables}"))
}

/// Prints what was copied.
///
/// # Errors
/// If standard output cannot be written.
pub(super) fn print_report(report: &CopyReport, output: Output) -> io::Result<()> {
    let CopyReport { load, tables_before, point, method, stall, elapsed, not_in_snapshot, left_out } = report;
    let seconds = elapsed.as_secs_f64();
    let mut out = io::stdout().lock();
    if output == Output::Json {
        let line = json!({
            "schema_version": SCHEMA_VERSION,
            "event": "done",
            "tables": load.tables,
            "tables_before": tables_before,
            "rows": load.rows,
            "chunks": load.chunks_loaded,
            "snapshot": point,
            "method": method,
            "stall_ms": stall.as_secs_f64() * 1000.0,
            "gtid_set": load.gtid_set,
            "not_in_snapshot": not_in_snapshot.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "left_out": left_out_json(left_out),
            "seconds": seconds,
        });
        return writeln!(out, "{line}");
    }
    writeln!(
        out,
        "copied {} of {} in {seconds:.1} s ({})",
        counted(load.rows, "row"),
        counted(load.tables as u64, "table"),
        counted(load.chunks_loaded, "chunk")
    )?;
    writeln!(out, "snapshot by {method}; writers waited {:.1} ms", stall.as_secs_f64() * 1000.0)?;
    let gtids = point.gtid_set.as_deref().unwrap_or("none");
    let file = point.binlog_file.as_deref().unwrap_or("no binlog");
    let position = point.binlog_position.map(|position| format!(":{position}")).unwrap_or_default();
    writeln!(out, "the data is as of {file}{position}, GTIDs {gtids}")?;
    if *tables_before > 0 {
        writeln!(
            out,
            "copied before the interruption, from another snapshot than the rest: {}",
            counted(*tables_before, "table")
        )?;
    }
    if let Some(set) = &load.gtid_set {
        writeln!(out, "the target now has the transactions {set}")?;
    }
    for table in not_in_snapshot {
        writeln!(out, "{table} is not part of the snapshot: its storage engine has no snapshots")?;
    }
    for Omission { of, what } in left_out {
        writeln!(out, "left out of {}: {}", printable(of), what.words())?;
    }
    Ok(())
}
