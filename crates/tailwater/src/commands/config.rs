//! Runs `tailwater config`: reports the errors of a configuration file, or prints one to start from.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use tailwater_capture::CaptureOptions;
use tailwater_session::{ConnectOptions, Connection, SessionError};

use tailwater_log::AckMode;

use crate::arguments::{ConfigCommand, ConfigFile, Output};
use crate::exit_codes::Exit;
use tailwater_config::{ConfigError, DEFAULT_CONFIG, SectionInForce, settings_in_force};
use tailwater_daemon::api::configuration_reloads::ReloadReport;
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::control_socket::{ask, socket_of};
use tailwater_daemon::options_from_config::ResolvedConfig;
use tailwater_wire::printable;

use super::config_check_text::config_check_text;
use super::text_style::TextStyle;

/// Time limit for a source to answer. An unreachable source is not an error: a configuration can be checked
/// on a machine from which its servers cannot be reached.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs `tailwater config`.
///
/// # Errors
/// The errors with which `tailwater run` would refuse to start.
pub fn config(command: &ConfigCommand, output: Output) -> anyhow::Result<Exit> {
    match command {
        ConfigCommand::Check(arguments) if arguments.connect => check_connections(&arguments.file, output),
        ConfigCommand::Check(arguments) => check(&arguments.file, output),
        ConfigCommand::Show(file) => show(file, output),
        ConfigCommand::Reload(file) => reload(file, output),
        ConfigCommand::Default => {
            match output {
                Output::Text => super::write_stdout(DEFAULT_CONFIG.as_bytes())?,
                Output::Json => println!("{}", serde_json::json!({ "toml": DEFAULT_CONFIG })),
            }
            Ok(Exit::Done)
        }
    }
}

/// Checks the servers of the configuration and this machine. Returns [`Exit::ProblemsFound`] if there are
/// problems.
fn check_connections(file: &ConfigFile, output: Output) -> anyhow::Result<Exit> {
    let report = super::on_runtime(tailwater_preflight::connection_check::check(&file.load()?))?;
    let text = match output {
        Output::Text => config_check_text(&report, TextStyle::of_stdout()),
        Output::Json => format!("{}\n", serde_json::to_string(&report)?),
    };
    super::write_stdout(text.as_bytes())?;
    Ok(if report.ok { Exit::Done } else { Exit::ProblemsFound })
}

/// Asks the daemon to read its configuration again, and prints what it did.
fn reload(file: &ConfigFile, output: Output) -> anyhow::Result<Exit> {
    let report = match ask(&socket_of(&file.load()?.log.directory), &ControlCommand::Reload)? {
        ControlAnswer::Reloaded(report) => report,
        ControlAnswer::Failed { code, message } => {
            bail!("{}{message}", code.map(|code| format!("{code}: ")).unwrap_or_default())
        }
        _ => bail!("unexpected answer of the daemon, which may run another version of Tailwater"),
    };
    let text = match output {
        Output::Json => format!("{}\n", serde_json::to_string(&report)?),
        Output::Text => reload_text(&report),
    };
    super::write_stdout(text.as_bytes())?;
    Ok(if report.failed.is_empty() { Exit::Done } else { Exit::ProblemsFound })
}

fn reload_text(report: &ReloadReport) -> String {
    let mut text = String::new();
    for name in &report.applied {
        text.push_str(&format!("applied        {name}\n"));
    }
    for name in &report.needs_restart {
        text.push_str(&format!("needs restart  {name}\n"));
    }
    for failure in &report.failed {
        text.push_str(&format!(
            "not applied    {}: {}\n",
            failure.settings.join(", "),
            printable(&failure.message)
        ));
    }
    if text.is_empty() { "no setting has changed\n".to_owned() } else { text }
}

/// Prints the settings in force with their sources: as TOML, or one JSON object for each section.
fn show(file: &ConfigFile, output: Output) -> anyhow::Result<Exit> {
    let sections = settings_in_force(&file.config, &file.overrides())?;
    let text: Vec<String> = match output {
        Output::Text => sections.iter().map(SectionInForce::to_toml).collect(),
        Output::Json => sections.iter().map(serde_json::to_string).collect::<Result<_, _>>()?,
    };
    super::write_stdout(format!("{}\n", text.join("\n").trim_end()).as_bytes())?;
    Ok(Exit::Done)
}

/// Checks the configuration, and prints the sources or the error.
fn check(file: &ConfigFile, output: Output) -> anyhow::Result<Exit> {
    let config = file.load()?;
    super::stderr_and_journal_output::check(&config)?;
    let wired = ResolvedConfig::of(&config)?;
    let not_asked = super::on_runtime(ask_sources(&wired.captures))?;
    match output {
        Output::Text => {
            println!("{}: good", file.config.display());
            println!("log: {}", config.log.directory.display());
            for capture in &wired.captures {
                let connect = &capture.connect;
                println!(
                    "source {}: {} as user {}, server_id {}, ack = {}",
                    capture.name,
                    connect.endpoint,
                    connect.user,
                    capture.server_id,
                    match capture.log.ack {
                        AckMode::Durable => "durable",
                        AckMode::Received => "received",
                    }
                );
                if let Some(reason) = not_asked.get(&capture.name) {
                    println!("  its server_id is not compared, because the source cannot be read: {reason}");
                }
            }
        }
        Output::Json => {
            let sources: Vec<_> = config.sources.iter().map(|source| &source.name).collect();
            let acks: BTreeMap<_, _> =
                config.sources.iter().map(|source| (&source.name, config.log.ack_of(source))).collect();
            println!(
                "{}",
                serde_json::json!({ "ok": true, "sources": sources, "ack": acks, "not_asked": not_asked })
            );
        }
    }
    Ok(Exit::Done)
}

/// Reads the `server_id` of all sources in parallel. Returns the names of the sources that could not be read,
/// each with the reason.
async fn ask_sources(captures: &[CaptureOptions]) -> anyhow::Result<BTreeMap<String, String>> {
    let asking = captures.iter().map(|capture| async move { (capture, server_id(&capture.connect).await) });
    let mut not_asked = BTreeMap::new();
    for (capture, answer) in futures_util::future::join_all(asking).await {
        match answer {
            Ok(Some(id)) if id == u64::from(capture.server_id) => {
                return Err(ConfigError::server_id_of_source(&capture.name, capture.server_id).into());
            }
            Ok(_) => {}
            Err(error) => {
                not_asked.insert(capture.name.clone(), format!("{}: {error}", error.code()));
            }
        }
    }
    Ok(not_asked)
}

async fn server_id(connect: &ConnectOptions) -> Result<Option<u64>, SessionError> {
    let mut options = connect.clone();
    options.connect_timeout = options.connect_timeout.min(SERVER_TIMEOUT);
    options.read_timeout = Some(SERVER_TIMEOUT);
    let mut connection = Connection::connect(&options).await?;
    let answer = connection.query("SELECT @@server_id").await?;
    Ok(answer.first().and_then(|row| row.get_u64(0)))
}
