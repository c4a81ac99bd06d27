//! Runs `tailwater load`, and prints its progress and report.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use tailwater_daemon::api::jobs::JobKind;
use tailwater_daemon::jobs::job_results::JobResult;
use tailwater_daemon::jobs::job_text::counted;
use tailwater_dump::load::account_creation::{AccountsReport, LoadAccounts};
use tailwater_dump::load::{self, LoadOptions, LoadReport, dump_format_detection};
use tailwater_tables::BulkError;
use tailwater_wire::printable;

use super::client_connection_options::connect_options;
use super::command_run_as_job::JobRun;
use super::dump_location::{open_dump, shown_place};
use super::job_report_to_daemon::JobSocket;
use super::progress_display::SCHEMA_VERSION;
use super::throttle_options::throttle;
use crate::arguments::{LoadArgs, Output};
use crate::exit_codes::Exit;

/// Runs `tailwater load`: loads a dump into a server.
///
/// # Errors
/// The error that ended the load. A refusal before any change is [`Exit::Refused`], not an error.
pub(super) async fn load(arguments: &LoadArgs, output: Output) -> anyhow::Result<Exit> {
    let options = load_options(arguments)?;
    let files = open_dump(&arguments.place)?;
    super::init_messages_as(output);
    let subject = format!("{} into {}", shown_place(&arguments.place), options.connect.endpoint);
    let socket = JobSocket::of(&arguments.daemon.daemon, None);
    let run = JobRun::start(("loading", JobKind::Load, subject), socket, output)?;
    let started = Instant::now();
    let work = async {
        let contents = dump_format_detection::read(files, arguments.allow_mixed)?;
        load::load(&contents, &options, &run.progress, &run.stop).await
    };
    let report = match run.show(work, result).await? {
        Ok(report) => report,
        Err(error) if is_refusal(&error) => {
            eprintln!("tailwater: {}: {}", error.code(), printable(&error.to_string()));
            return Ok(Exit::Refused);
        }
        Err(error) => return Err(error.into()),
    };
    write_report(&report, started.elapsed().as_secs_f64(), output)?;
    Ok(Exit::Done)
}

fn result(report: &LoadReport) -> JobResult {
    let (rows, tables) = (counted(report.rows, "row"), counted(report.tables as u64, "table"));
    JobResult::without_findings(format!("loaded {rows} of {tables}"))
}

fn load_options(arguments: &LoadArgs) -> anyhow::Result<LoadOptions> {
    let connect = connect_options(&arguments.server)?;
    Ok(LoadOptions {
        throttle: Arc::new(throttle(&arguments.throttle, &connect)?),
        workers: usize::from(arguments.workers),
        resume: arguments.resume,
        merge: arguments.force_merge,
        set_gtid: arguments.set_gtid,
        binlog: !arguments.no_binlog,
        inserts: arguments.inserts,
        accounts: match (arguments.users, arguments.replace_users) {
            (false, _) => LoadAccounts::None,
            (true, false) => LoadAccounts::New,
            (true, true) => LoadAccounts::Replace,
        },
        events_disabled: arguments.disable_events,
        defer_indexes: arguments.defer_indexes.into(),
        ..LoadOptions::new(connect)
    })
}

/// Prints the result of a load. `seconds` is its duration.
fn write_report(report: &LoadReport, seconds: f64, output: Output) -> io::Result<()> {
    let mut out = io::stdout();
    if let Output::Json = output {
        let line = json!({
            "schema_version": SCHEMA_VERSION,
            "event": "done",
            "tables": report.tables,
            "rows": report.rows,
            "chunks_loaded": report.chunks_loaded,
            "chunks_before": report.chunks_before,
            "gtid_set": report.gtid_set,
            "accounts_made": report.accounts.as_ref().map(|accounts| accounts.made),
            "accounts_kept": report.accounts.as_ref().map(|accounts| &accounts.kept),
            "seconds": seconds,
        });
        return writeln!(out, "{line}");
    }
    let before = match report.chunks_before {
        0 => String::new(),
        before => format!(", {before} of them before the interruption"),
    };
    let chunks = report.chunks_loaded + report.chunks_before;
    writeln!(
        out,
        "loaded {} of {} in {seconds:.1} s ({}{before})",
        counted(report.rows, "row"),
        counted(report.tables as u64, "table"),
        counted(chunks, "file")
    )?;
    if let Some(AccountsReport { made, kept }) = &report.accounts {
        writeln!(
            out,
            "{} created; {} already on the server and left unchanged: {}",
            counted(*made as u64, "account"),
            kept.len(),
            kept.join(", ")
        )?;
    }
    if let Some(set) = &report.gtid_set {
        writeln!(out, "the server now has the transactions {set}")?;
    }
    Ok(())
}

/// Whether the error is a refusal: nothing was changed, because a change would be unsafe.
pub(super) fn is_refusal(error: &BulkError) -> bool {
    matches!(
        error,
        BulkError::TablesExist { .. }
            | BulkError::InterruptedLoad { .. }
            | BulkError::LoadInProgress { .. }
            | BulkError::IncompleteDump { .. }
            | BulkError::MixedSnapshots { .. }
            | BulkError::RowFormatUnsupported { .. }
            | BulkError::ForeignDump { .. }
            | BulkError::InsertsUnsupported { .. }
            | BulkError::FlavourMismatch { .. }
            | BulkError::AccountsUnavailable { .. }
            | BulkError::GtidState { .. }
            | BulkError::LocalInfileOff { .. }
            | BulkError::PartialLoad { .. }
            | BulkError::TablesDropped { .. }
            | BulkError::BinaryUnsupported { .. }
    )
}
