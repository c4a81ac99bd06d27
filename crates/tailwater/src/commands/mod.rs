//! One module for each noun of the command line, such as `log` and `channel`.

mod binlog_file_reader;
mod channel;
mod channel_add;
mod channel_pause_during_snapshot;
mod check;
mod client_connection_options;
mod command_run_as_job;
mod completions;
pub mod config;
mod config_check_text;
mod copy;
#[cfg(feature = "lab")]
mod demo_sandbox_bench_trial;
mod dump;
mod dump_location;
mod failover;
mod grants;
mod init;
mod init_daemon_start;
mod init_text;
mod job_list_show_cancel;
mod job_report_to_daemon;
mod job_text;
mod load;
pub mod log;
mod log_archive;
mod log_cat;
mod log_location;
mod log_purge;
mod log_stats;
mod log_verify;
mod man;
mod manager;
mod physical_server_copy;
mod prefetch;
mod progress_display;
mod progress_text;
mod rejoin;
mod repair;
pub mod run;
mod status;
mod status_text;
mod stderr_and_journal_output;
mod switchover;
mod text_style;
mod throttle_options;
mod top;
pub(crate) mod topology;
mod topology_text;
#[cfg(feature = "otel")]
mod trace_export;

use std::io::{IsTerminal, Write};

use anyhow::Context;
use tailwater_apply::ApplyError;
use tailwater_binlog_server::BinlogServerError;
use tailwater_capture::CaptureError;
use tailwater_log::LogError;
use tailwater_manager::ManagerError;
use tailwater_prefetch::PrefetchError;
use tailwater_rejoin::RejoinError;
#[cfg(feature = "lab")]
use tailwater_sandbox::SandboxError;
use tailwater_session::SessionError;
use tailwater_tables::BulkError;
use tailwater_wire::WireError;
use tailwater_wire::event_printer::PrintError;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::arguments::{Cli, Command, Output};
use crate::exit_codes::Exit;
use tailwater_config::ConfigError;
use tailwater_daemon::control_socket::ControlError;
use tailwater_daemon::error_chain::ErrorChain;

/// Runs the command that was parsed from the command line.
///
/// # Errors
/// The error that ended the command; [`render_error`] formats it for the user.
pub fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    match cli.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Init(arguments) => on_runtime(init::init(&arguments, cli.output)),
        Command::Config(command) => config::config(&command, cli.output),
        Command::Log(command) => log::log(&command, cli.output),
        Command::Channel(command) => channel::channel(command, cli.output, cli.show_values),
        Command::Status(file) => status::status(&file, cli.output),
        Command::Top(arguments) => top::top(&arguments, cli.output),
        Command::Topology(arguments) => on_runtime(topology::topology(&arguments, cli.output)),
        Command::Failover(arguments) => failover::failover(arguments, cli.output),
        Command::Switchover(arguments) => switchover::switchover(arguments, cli.output),
        Command::Rejoin(arguments) => on_runtime(rejoin::rejoin(&arguments, cli.output)),
        Command::Job(command) => job_list_show_cancel::job(command, cli.output),
        Command::Manager(command) => manager::manager(command, cli.output),
        Command::Dump(arguments) => dump::dump(&arguments, cli.output),
        Command::Copy(arguments) => on_runtime(copy::copy(&arguments, cli.output)),
        Command::Load(arguments) => on_runtime(load::load(&arguments, cli.output)),
        Command::Check(arguments) => on_runtime(check::check(&arguments, cli.output, cli.show_values)),
        Command::Repair(arguments) => on_runtime(repair::repair(&arguments, cli.output)),
        Command::Prefetch(arguments) => on_runtime(prefetch::prefetch(&arguments, cli.output)),
        Command::Completions(arguments) => completions::completions(&arguments),
        Command::Man(arguments) => man::man(&arguments, cli.output),
        Command::Grants { server, account } => Ok(grants::grants(server, &account, cli.output)),
        #[cfg(feature = "lab")]
        Command::Sandbox(command) => on_runtime(demo_sandbox_bench_trial::sandbox(&command, cli.output)),
        #[cfg(feature = "lab")]
        Command::Demo(arguments) => on_runtime(demo_sandbox_bench_trial::demo(&arguments, cli.output)),
        #[cfg(feature = "lab")]
        Command::Bench(command) => on_runtime(demo_sandbox_bench_trial::bench(&command, cli.output)),
        #[cfg(feature = "lab")]
        Command::Trial(command) => on_runtime(demo_sandbox_bench_trial::trial(&command, cli.output)),
    }
}

/// Writes to standard output. It is not an error if the program that reads the output ends early, as `head`
/// does.
///
/// # Errors
/// Any other failure, such as a full disk.
fn write_stdout(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

fn on_runtime<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(future)
}

/// Formats an error as one line: the code of the innermost Tailwater error, then the context.
pub fn render_error(error: &anyhow::Error) -> String {
    let text = match code_of_error(error) {
        Some(code) => format!("{code}: {}", ErrorChain(error)),
        None => ErrorChain(error).to_string(),
    };
    // The text of a cause may have several lines. A server or table name in the text must not add lines, so
    // control characters are escaped.
    text.split('\n').map(tailwater_wire::printable).collect::<Vec<_>>().join("\n")
}

/// Returns the part of an error that [`render_error`] hides because it may contain row values.
pub fn private_detail(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|error| {
        None.or_else(|| error.downcast_ref::<ApplyError>().and_then(ApplyError::private_detail))
            .or_else(|| error.downcast_ref::<RejoinError>().and_then(RejoinError::private_detail))
            .or_else(|| error.downcast_ref::<BulkError>().and_then(BulkError::private_detail))
            .or_else(|| error.downcast_ref::<SessionError>().and_then(SessionError::private_detail))
            .or_else(|| match error.downcast_ref::<ManagerError>()? {
                ManagerError::Session(error) => error.private_detail(),
                _ => None,
            })
            .or_else(|| match error.downcast_ref::<CaptureError>()? {
                CaptureError::Session(error) => error.private_detail(),
                _ => None,
            })
            .or_else(|| match error.downcast_ref::<BinlogServerError>()? {
                BinlogServerError::Session(error) => error.private_detail(),
                BinlogServerError::Listen { .. } => None,
            })
    })
}

/// Returns the code of the outermost Tailwater error among an error and its causes.
fn code_of_error(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(code_of)
}

fn code_of(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    None.or_else(|| error.downcast_ref::<ApplyError>().map(ApplyError::code))
        .or_else(|| error.downcast_ref::<RejoinError>().map(RejoinError::code))
        .or_else(|| error.downcast_ref::<BulkError>().map(BulkError::code))
        .or_else(|| error.downcast_ref::<ManagerError>().map(ManagerError::code))
        .or_else(|| error.downcast_ref::<CaptureError>().map(CaptureError::code))
        .or_else(|| error.downcast_ref::<BinlogServerError>().map(BinlogServerError::code))
        .or_else(|| error.downcast_ref::<PrefetchError>().map(PrefetchError::code))
        .or_else(|| error.downcast_ref::<LogError>().map(LogError::code))
        .or_else(|| error.downcast_ref::<SessionError>().map(SessionError::code))
        .or_else(|| lab_code_of(error))
        .or_else(|| error.downcast_ref::<ConfigError>().map(ConfigError::code))
        .or_else(|| error.downcast_ref::<ControlError>().map(ControlError::code))
        .or_else(|| error.downcast_ref::<WireError>().map(WireError::code))
        .or_else(|| error.downcast_ref::<PrintError>().map(PrintError::code))
}

/// The environment variable with the level of messages.
const LEVEL_VARIABLE: &str = "TAILWATER_LOG";

/// Sends the log of a command to standard error: as JSON lines if the results are JSON and standard error is
/// not a terminal. The daemon that lists the command as a job gets it too.
fn init_messages_as(output: Output) {
    let filter = tracing_subscriber::EnvFilter::try_from_env(LEVEL_VARIABLE)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let layer = || tracing_subscriber::fmt::layer().with_target(false);
    let shown = layer().with_writer(std::io::stderr);
    let shown = match (std::io::stderr().is_terminal(), output) {
        (true, _) => shown.boxed(),
        (false, Output::Text) => shown.with_ansi(false).boxed(),
        (false, Output::Json) => shown.json().flatten_event(true).boxed(),
    };
    let listed = layer().with_ansi(false).without_time().with_writer(|| job_report_to_daemon::JobLogWriter);
    tracing_subscriber::registry().with(filter).with(shown.and_then(listed)).init();
}

#[cfg(feature = "lab")]
fn lab_code_of(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    error.downcast_ref::<SandboxError>().map(SandboxError::code)
}

#[cfg(not(feature = "lab"))]
fn lab_code_of(_error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    None
}
