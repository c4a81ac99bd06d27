//! `tailwater job`: lists, shows and cancels the jobs that the daemon knows.

use anyhow::bail;
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::api::jobs::{JobAnswer, JobRequest};
use tailwater_daemon::control_socket::{ask, socket_of};
use tailwater_wire::printable;

use super::job_text::{details_text, table_text};
use crate::arguments::{ConfigFile, JobCommand, JobId, Output};
use crate::exit_codes::Exit;

/// Runs `tailwater job ...`.
///
/// # Errors
/// If no daemon runs with that configuration, or it refuses the request.
pub(super) fn job(command: JobCommand, output: Output) -> anyhow::Result<Exit> {
    let (is_cancel, file, request) = match command {
        JobCommand::List(file) => (false, file, JobRequest::List),
        JobCommand::Show(JobId { file, id }) => (false, file, JobRequest::Show { id }),
        // The daemon knows who sends the request.
        JobCommand::Cancel(JobId { file, id }) => (true, file, JobRequest::Cancel { id, by: String::new() }),
    };
    let text = match (send(&file, request)?, output) {
        (JobAnswer::List(jobs), Output::Json) => {
            let lines = jobs.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
            lines.iter().map(|line| format!("{line}\n")).collect()
        }
        (JobAnswer::List(jobs), Output::Text) => table_text(&jobs),
        (JobAnswer::Details(details), Output::Json) => format!("{}\n", serde_json::to_string(&details)?),
        (JobAnswer::Details(details), Output::Text) if is_cancel => {
            let (id, kind, subject) = (details.job.id, details.job.kind, printable(&details.job.subject));
            format!(
                "job {id}, the {} of {subject}, ends within a few seconds: `tailwater job show {id}`\n{}\n",
                kind.name(),
                kind.after_interruption()
            )
        }
        (JobAnswer::Details(details), Output::Text) => details_text(&details),
        (JobAnswer::Registered(_) | JobAnswer::Reported(_), _) => {
            bail!("unexpected answer of the daemon, which may run another version of Tailwater")
        }
    };
    super::write_stdout(text.as_bytes())?;
    Ok(Exit::Done)
}

fn send(file: &ConfigFile, request: JobRequest) -> anyhow::Result<JobAnswer> {
    let socket = socket_of(&file.load()?.log.directory);
    match ask(&socket, &ControlCommand::Job(request))? {
        ControlAnswer::Job(answer) => Ok(answer),
        ControlAnswer::Failed { code, message } => {
            bail!("{}{message}", code.map(|code| format!("{code}: ")).unwrap_or_default())
        }
        _ => bail!("unexpected answer of the daemon, which may run another version of Tailwater"),
    }
}
