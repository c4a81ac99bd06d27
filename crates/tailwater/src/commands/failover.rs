//! `tailwater failover`: tells the daemon, and prints what it does as it does it. The daemon goes on whatever becomes of this
//! command.

use std::time::Duration;

use anyhow::{Context, bail};
use tailwater_manager::failover::{Audit, RunOutcome};

use super::manager::tell;
use crate::cli::{FailoverArgs, Output};
use crate::exit::Exit;
use tailwater_daemon::config::Config;
use tailwater_daemon::manager::ordering::FailoverWish;
use tailwater_daemon::manager::requests::{ManagerAnswer, ManagerRequest};

/// How often it is asked what has been done.
const ASK_AGAIN: Duration = Duration::from_millis(30);

/// Has the manager fail over, and says how that ended.
///
/// # Errors
/// If there is no daemon, it has no manager, or the failover was left half way.
pub fn failover(arguments: FailoverArgs, output: Output) -> anyhow::Result<Exit> {
    let config = Config::load(&arguments.file.config)?;
    let source = arguments.source;
    let wish = FailoverWish {
        to: arguments.to,
        dry_run: arguments.dry_run,
        allow_data_loss: arguments.allow_data_loss,
        across_regions: arguments.across_regions,
        is_automatic: false,
    };
    let begin = ManagerRequest::FailOver { source: source.clone(), wish };
    let ManagerAnswer::Begun { id } = tell(&config, begin)? else {
        bail!("the daemon's answer is not understood");
    };
    follow(&config, &source, &id, output)
}

/// Prints what a run does until it is over, and says how it ended.
///
/// # Errors
/// If the daemon ends meanwhile, or the run was left half way.
pub(super) fn follow(config: &Config, source: &str, id: &str, output: Output) -> anyhow::Result<Exit> {
    let mut told = 0;
    let audit = loop {
        let question = ManagerRequest::Audit { source: source.to_owned(), id: id.to_owned() };
        let answer = tell(config, question)
            .with_context(|| format!("{id} goes on without this command, if the daemon does"))?;
        let ManagerAnswer::Audit(audit) = answer else { bail!("the daemon's answer is not understood") };
        if let Some(audit) = audit {
            if output == Output::Text {
                for step in audit.steps.iter().skip(told) {
                    println!("{step}");
                }
                told = audit.steps.len();
            }
            if audit.outcome.is_some() {
                break audit;
            }
        }
        std::thread::sleep(ASK_AGAIN);
    };
    match output {
        Output::Json => println!("{}", serde_json::to_string(&audit)?),
        Output::Text => print!("{}", audit.end()),
    }
    exit_of(&audit)
}

/// 0 if a server was promoted, or would be; 4 if a rule refused and everything is as it was.
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
        None => bail!("{} has not ended", audit.id),
    }
}
