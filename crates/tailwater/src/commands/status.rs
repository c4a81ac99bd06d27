//! `tailwater status`: whether all is well with a running daemon.

use anyhow::bail;
use tailwater_config::Config;
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::api::daemon_status::DaemonStatus;
use tailwater_daemon::control_socket::{ask, socket_of};

use super::status_text::status_text;
use super::text_style::TextStyle;
use crate::arguments::{ConfigFile, Output};
use crate::exit_codes::Exit;

/// Asks the daemon, and prints its status. Returns [`Exit::ProblemsFound`] if something is wrong.
///
/// # Errors
/// If no daemon runs with that configuration, or the daemon is of an earlier version.
pub fn status(file: &ConfigFile, output: Output) -> anyhow::Result<Exit> {
    let config = file.load()?;
    let status = read(&config)?;
    let text = match output {
        Output::Json => format!("{}\n", serde_json::to_string(&status)?),
        Output::Text => status_text(&status, TextStyle::of_stdout()),
    };
    super::write_stdout(text.as_bytes())?;
    Ok(if status.ok { Exit::Done } else { Exit::ProblemsFound })
}

fn read(config: &Config) -> anyhow::Result<DaemonStatus> {
    match ask(&socket_of(&config.log.directory), &ControlCommand::Status)? {
        ControlAnswer::Status(status) => Ok(*status),
        ControlAnswer::Failed { code, message } => {
            bail!("{}{message}", code.map(|code| format!("{code}: ")).unwrap_or_default())
        }
        _ => bail!("unexpected answer of the daemon, which may run another version of Tailwater"),
    }
}
