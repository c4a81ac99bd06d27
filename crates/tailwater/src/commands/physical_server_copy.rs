//! Runs `tailwater copy --binary`: a physical copy of a whole server.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;
use tailwater_binlog_stats::number_format;
use tailwater_daemon::api::jobs::JobKind;
use tailwater_daemon::jobs::job_results::JobResult;
use tailwater_dump::binary_copy::BinaryCopyPosition;
use tailwater_dump::binary_copy::clone_plugin::{self, CloneOptions};
use tailwater_dump::binary_copy::mariadb_backup::{self, BackupOptions};
use tailwater_session::ConnectOptions;
use tailwater_tables::BulkError;
use tailwater_wire::printable;

use super::client_connection_options::connect_options;
use super::command_run_as_job::JobRun;
use super::job_report_to_daemon::JobSocket;
use super::load::is_refusal;
use super::progress_display::SCHEMA_VERSION;
use crate::arguments::{CloneArgs, CopyArgs, Output};
use crate::exit_codes::Exit;

/// Makes a physical copy of a whole server, or prints the plan.
///
/// # Errors
/// The error that ended the copy. A refusal before any change is [`Exit::Refused`], not an error.
pub(super) async fn copy_binary(arguments: &CopyArgs, output: Output) -> anyhow::Result<Exit> {
    if let Some(directory) = &arguments.binary.to_directory {
        return refused_or_done(into_folder(arguments, directory.clone(), output).await?);
    }
    let (donor, recipient) = (&arguments.source, &arguments.target);
    let options = clone_options(
        connect_options(&donor.into())?,
        connect_options(&recipient.into())?,
        &arguments.binary.clone,
    );
    if arguments.dry_run {
        return refused_or_done(match clone_plugin::plan(&options).await {
            Ok(plan) => {
                let (host, port) = &plan.donor_address;
                let how =
                    format!("{} clones {host}:{port}, MySQL {}", options.recipient.endpoint, plan.version);
                print_plan(&how, plan.bytes_estimate, output)?;
                Ok(())
            }
            Err(error) => Err(error),
        });
    }
    let socket = JobSocket::of(&arguments.daemon.daemon, None);
    clone_server(&options, socket, output).await
}

/// Builds the clone options from the command line.
pub(super) fn clone_options(
    donor: ConnectOptions,
    recipient: ConnectOptions,
    arguments: &CloneArgs,
) -> CloneOptions {
    CloneOptions {
        donor,
        recipient,
        donor_address: arguments.source_address.clone(),
        restart_wait_max: Duration::from_secs(arguments.restart_wait_max_s),
    }
}

/// Clones the source into the target, and shows the progress.
///
/// # Errors
/// The error that ended the clone.
pub(super) async fn clone_server(
    options: &CloneOptions,
    socket: Option<JobSocket>,
    output: Output,
) -> anyhow::Result<Exit> {
    super::init_messages_as(output);
    let subject = format!("{} to {}", options.donor.endpoint, options.recipient.endpoint);
    let run = JobRun::start(("cloning", JobKind::Copy, subject), socket, output)?;
    let work = clone_plugin::clone(options, &run.progress, &run.stop);
    refused_or_done(match run.show(work, |done| result("cloned", done.bytes)).await? {
        Ok(done) => {
            let to = options.recipient.endpoint.to_string();
            print_report(&to, &done.point, done.bytes, done.elapsed, output)?;
            Ok(())
        }
        Err(error) => Err(error),
    })
}

fn result(done: &str, copied_bytes: u64) -> JobResult {
    JobResult::without_findings(format!("{done} {}", number_format::bytes(copied_bytes)))
}

fn refused_or_done(done: Result<(), BulkError>) -> anyhow::Result<Exit> {
    match done {
        Ok(()) => Ok(Exit::Done),
        Err(error) if is_refusal(&error) => {
            eprintln!("tailwater: {}: {}", error.code(), printable(&error.to_string()));
            Ok(Exit::Refused)
        }
        Err(error) => Err(error.into()),
    }
}

async fn into_folder(
    arguments: &CopyArgs,
    directory: std::path::PathBuf,
    output: Output,
) -> anyhow::Result<Result<(), BulkError>> {
    let options = BackupOptions {
        source: connect_options(&(&arguments.source).into())?,
        directory,
        program: arguments.binary.backup_program.clone(),
        parallel: arguments.how.workers,
        memory_bytes: arguments.binary.prepare_memory_bytes,
    };
    if arguments.dry_run {
        return match mariadb_backup::plan(&options).await {
            Ok(plan) => {
                let (program, directory) = (options.program.display(), options.directory.display());
                let how = format!("{program} copies MariaDB {} into {directory}", plan.version);
                Ok(Ok(print_plan(&how, plan.bytes_estimate, output)?))
            }
            Err(error) => Ok(Err(error)),
        };
    }
    super::init_messages_as(output);
    let subject = format!("{} to {}", options.source.endpoint, options.directory.display());
    let socket = JobSocket::of(&arguments.daemon.daemon, None);
    let run = JobRun::start(("copying", JobKind::Copy, subject), socket, output)?;
    let work = mariadb_backup::back_up(&options, &run.progress, &run.stop);
    match run.show(work, |done| result("copied and prepared", done.bytes)).await? {
        Ok(done) => {
            let to = options.directory.display().to_string();
            print_report(&to, &done.point, done.bytes, done.elapsed, output)?;
            if output == Output::Text {
                let start =
                    "start a server on it (its files must belong to the operating system user of the server)";
                match &done.point.gtid_set {
                    Some(gtids) => {
                        println!("{start}, and set its replication position:");
                        println!("  SET GLOBAL gtid_slave_pos = '{gtids}'");
                    }
                    // With an empty GTID position, a replica would request the source's binlog from its
                    // beginning.
                    None => println!("{start}; it cannot replicate with GTIDs, because the source had none"),
                }
            }
            Ok(Ok(()))
        }
        Err(error) => Ok(Err(error)),
    }
}

fn print_plan(how: &str, bytes: u64, output: Output) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if output == Output::Json {
        let line = json!({ "schema_version": SCHEMA_VERSION, "event": "plan", "plan": how, "bytes_estimate": bytes });
        return writeln!(out, "{line}");
    }
    writeln!(out, "{how}: about {:.1} MiB", mebibytes(bytes))
}

fn print_report(
    to: &str,
    point: &BinaryCopyPosition,
    bytes: u64,
    elapsed: Duration,
    output: Output,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if output == Output::Json {
        let line = json!({
            "schema_version": SCHEMA_VERSION,
            "event": "done",
            "to": to,
            "bytes": bytes,
            "snapshot": {
                "gtid_set": point.gtid_set,
                "binlog_file": point.binlog_file,
                "binlog_position": point.binlog_position,
            },
            "seconds": elapsed.as_secs_f64(),
        });
        return writeln!(out, "{line}");
    }
    writeln!(out, "copied {:.1} MiB to {to} in {:.1} s", mebibytes(bytes), elapsed.as_secs_f64())?;
    let gtids = point.gtid_set.as_deref().unwrap_or("none");
    let file = point.binlog_file.as_deref().unwrap_or("no binlog");
    let position = point.binlog_position.map(|position| format!(":{position}")).unwrap_or_default();
    writeln!(out, "the data is as of {file}{position}, GTIDs {gtids}")
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
