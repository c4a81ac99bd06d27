//! `tailwater failover`: starts a failover in the daemon, and prints its steps. If this command ends early,
//! the daemon continues the failover.

use std::time::Duration;

use anyhow::{Context, bail};
use tailwater_manager::model::{Audit, RunOutcome};

use super::manager::send;
use crate::arguments::{FailoverArgs, Output};
use crate::exit_codes::Exit;
use tailwater_config::Config;
use tailwater_daemon::api::manager_requests::{FailoverOptions, ManagerAnswer, ManagerRequest};

/// Time between two requests for new steps of the failover.
const POLL_INTERVAL: Duration = Duration::from_millis(30);

/// Starts a failover, prints its steps, and returns its outcome.
///
/// # Errors
/// If no daemon runs, the daemon has no manager, or the failover is incomplete.
pub fn failover(arguments: FailoverArgs, output: Output) -> anyhow::Result<Exit> {
    let config = arguments.file.load()?;
    let source = arguments.source;
    let options = FailoverOptions {
        to: arguments.to,
        dry_run: arguments.dry_run,
        allow_data_loss: arguments.allow_data_loss,
        across_regions: arguments.across_regions,
        is_automatic: false,
    };
    let begin = ManagerRequest::FailOver { source: source.clone(), options };
    let ManagerAnswer::Begun { id } = send(&config, begin)? else {
        bail!("unexpected answer of the daemon, which may run another version of Tailwater");
    };
    follow(&config, &source, &id, output)
}

/// Prints the steps of a failover or switchover until it ends, and returns its outcome.
///
/// # Errors
/// If the daemon ends before the failover or switchover does, or if the failover or switchover is
/// incomplete.
pub(super) fn follow(config: &Config, source: &str, id: &str, output: Output) -> anyhow::Result<Exit> {
    let mut printed = 0;
    let audit = loop {
        let question = ManagerRequest::Audit { source: source.to_owned(), id: id.to_owned() };
        let answer = send(config, question).with_context(|| {
            format!("if the daemon still runs, it continues the failover or switchover {id}")
        })?;
        let ManagerAnswer::Audit(audit) = answer else {
            bail!("unexpected answer of the daemon, which may run another version of Tailwater")
        };
        if let Some(audit) = audit {
            if output == Output::Text {
                for step in audit.steps.iter().skip(printed) {
                    println!("{step}");
                }
                printed = audit.steps.len();
            }
            if audit.outcome.is_some() {
                break audit;
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    match output {
        Output::Json => println!("{}", serde_json::to_string(&audit)?),
        Output::Text => print!("{}", audit.end()),
    }
    exit_of(&audit)
}

/// Returns the exit code: 0 if a server was promoted, or would be with --dry-run; 4 if a safety rule refused
/// the failover and the cluster is unchanged.
fn exit_of(audit: &Audit) -> anyhow::Result<Exit> {
    match &audit.outcome {
        Some(RunOutcome::Promoted { .. } | RunOutcome::Planned { .. }) => Ok(Exit::Done),
        Some(RunOutcome::Unchanged { refusal } | RunOutcome::Undone { refusal, .. }) => {
            eprintln!("tailwater: {}: {refusal}", refusal.code());
            Ok(Exit::Refused)
        }
        Some(RunOutcome::Incomplete { refusal, .. }) => {
            Err(tailwater_manager::ManagerError::from(refusal.clone()).into())
        }
        None => bail!("the daemon reports no outcome for {}", audit.id),
    }
}
