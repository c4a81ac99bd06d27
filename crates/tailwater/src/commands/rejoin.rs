//! `tailwater rejoin`: a former primary becomes a replica again.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::json;
use tailwater_binlog_stats::number_format::grouped;
use tailwater_daemon::api::jobs::JobKind;
use tailwater_daemon::jobs::job_results::JobResult;
use tailwater_daemon::jobs::job_text::counted;
use tailwater_rejoin::{EngineState, RejoinError, RejoinPlan};

use super::command_run_as_job::JobRun;
use super::job_report_to_daemon::JobSocket;
use crate::arguments::{Output, RejoinArgs};
use crate::exit_codes::Exit;
use tailwater_daemon::manager::former_primary_rejoin::{FormerPrimary, RejoinReport, RejoinRequest};

/// Maximum number of GTIDs in text output. JSON output has all of them.
const GTIDS_SHOWN: usize = 20;

/// Rejoins a former primary, or prints the plan.
///
/// # Errors
/// The error that ended the rejoin. A refusal is [`Exit::Refused`], not an error.
pub async fn rejoin(arguments: &RejoinArgs, output: Output) -> anyhow::Result<Exit> {
    super::init_messages_as(output);
    let config = arguments.file.load()?;
    let source = config.sources.iter().find(|source| source.name == arguments.source);
    let known = || config.sources.iter().map(|source| source.name.clone()).collect::<Vec<_>>().join(", ");
    let source = source
        .with_context(|| format!("there is no source {:?}; there are: {}", arguments.source, known()))?;
    let request = RejoinRequest {
        server: arguments.server.clone(),
        copy: arguments.copy,
        check: !arguments.no_check,
        window: arguments.window.map(Duration::from_secs),
        // The operator permits the undo of transactions by running this command.
        may_undo: true,
    };
    let former = FormerPrimary::new(&config, source, request)?;
    if arguments.dry_run {
        return match former.inspect().await {
            Ok(plan) => {
                print_plan(&arguments.server, &plan, output)?;
                Ok(Exit::Done)
            }
            Err(error) => refused(error.into()),
        };
    }
    if arguments.copy && !arguments.yes {
        eprintln!(
            "tailwater: all databases of {} would be dropped and replaced with a copy of the primary's; confirm with --yes",
            arguments.server
        );
        return Ok(Exit::Refused);
    }
    let socket = JobSocket::of(&arguments.daemon.daemon, Some(&config));
    let run = JobRun::start(("rejoining", JobKind::Rejoin, former.subject()), socket, output)?;
    let work = async {
        tokio::select! {
            result = former.run() => result,
            () = run.stop.cancelled() => {
                Err(anyhow!("interrupted; the same command continues the rejoin of {}", arguments.server))
            }
        }
    };
    match run.watch(work, |_| Ok(former.progress()), JobResult::of_rejoin).await? {
        Ok(report) => {
            print_report(&report, output)?;
            Ok(if report.reads_from.is_some() { Exit::Done } else { Exit::ProblemsFound })
        }
        Err(error) => refused(error),
    }
}

/// Prints a refusal. Returns any other error.
fn refused(error: anyhow::Error) -> anyhow::Result<Exit> {
    match error.downcast_ref::<RejoinError>() {
        Some(refusal) if refusal.is_refusal() => {
            eprintln!("tailwater: {}: {refusal}", refusal.code());
            Ok(Exit::Refused)
        }
        _ => Err(error),
    }
}

fn print_plan(server: &str, plan: &RejoinPlan, output: Output) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let RejoinPlan { has, common, engine, tail, redo, .. } = plan;
    let own = tail.gtids();
    let again = redo.from < redo.until;
    if output == Output::Json {
        let line = json!({
            "schema_version": 1,
            "server": server,
            "has": has.to_string(),
            "in_log": common.to_string(),
            "to_undo": own,
            "again_from": again.then(|| redo.from.to_string()),
            "again_until": again.then(|| redo.until.to_string()),
            "lost": redo.lost,
            "tables_as_logged": *engine == EngineState::MatchesBinlog,
            "resumed": plan.is_resumed(),
        });
        return writeln!(out, "{line}");
    }
    writeln!(out, "{server} has {has}")?;
    if plan.is_resumed() {
        writeln!(out, "an earlier rejoin was interrupted, and would be resumed")?;
    }
    match own.len() {
        0 => writeln!(out, "all transactions of this server are in the log, so there is nothing to undo")?,
        count => {
            writeln!(
                out,
                "{} that only this server has would be undone: {}",
                counted(count as u64, "transaction"),
                gtid_list(&own)
            )?;
        }
    }
    match again {
        true => writeln!(
            out,
            "the log from {} to {} would be applied again; the server has lost {} of its transactions",
            redo.from, redo.until, redo.lost
        ),
        false => writeln!(out, "no transactions to apply again"),
    }
}

fn print_report(report: &RejoinReport, output: Output) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if output == Output::Json {
        let mut value = serde_json::to_value(report).unwrap_or_default();
        if let Some(object) = value.as_object_mut() {
            object.insert("schema_version".to_owned(), json!(1));
        }
        return writeln!(out, "{value}");
    }
    if let Some(repair) = &report.repair {
        if repair.resumed {
            writeln!(out, "an earlier rejoin was interrupted, and was resumed")?;
        }
        if let (count @ 1.., Some(file)) = (repair.undone.len(), &repair.tail_file) {
            writeln!(
                out,
                "undone: {} that only this server had, {}: {}; they are saved in {}",
                counted(count as u64, "transaction"),
                counted(repair.rows_undone, "row"),
                gtid_list(&repair.undone),
                file.display()
            )?;
        }
        if repair.transactions_again > 0 {
            writeln!(
                out,
                "applied again: {} of the log; the server had lost at least {} of them",
                counted(repair.transactions_again, "transaction"),
                grouped(repair.transactions_lost)
            )?;
        }
    }
    if let Some(rows) = report.rows_copied {
        writeln!(out, "copied {} of {}", counted(rows, "row"), report.primary)?;
    }
    if let Some(compared) = &report.compared {
        let verdict = match compared.differences {
            0 => "all the same".to_owned(),
            count => format!("{}, in {}", counted(count, "difference"), gtid_list(&compared.in_tables)),
        };
        writeln!(
            out,
            "compared {} of {} with {}: {verdict}",
            counted(compared.rows, "row"),
            counted(compared.tables, "table"),
            report.primary
        )?;
    }
    match &report.reads_from {
        Some(address) => writeln!(out, "{} is a replica, and reads from {address}", report.server),
        None => writeln!(
            out,
            "{} was not joined; copy it from scratch (--copy --yes), or try a longer --window",
            report.server
        ),
    }
}

fn gtid_list(all: &[String]) -> String {
    let more = all.len().saturating_sub(GTIDS_SHOWN);
    let first = all[..all.len() - more].join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}
