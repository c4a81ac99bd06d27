//! `tailwater switchover`: starts a switchover in the daemon, and prints its steps.

use anyhow::bail;

use super::failover::follow;
use super::manager::send;
use crate::arguments::{Output, SwitchoverArgs};
use crate::exit_codes::Exit;
use tailwater_daemon::api::manager_requests::{ManagerAnswer, ManagerRequest, SwitchoverOptions};

/// Starts a switchover, prints its steps, and returns its outcome.
///
/// # Errors
/// If no daemon runs, the daemon has no manager, or the switchover is incomplete.
pub fn switchover(arguments: SwitchoverArgs, output: Output) -> anyhow::Result<Exit> {
    let config = arguments.file.load()?;
    let source = arguments.source;
    let options = SwitchoverOptions {
        to: arguments.to,
        dry_run: arguments.dry_run,
        across_regions: arguments.across_regions,
        write_pause_ms_max: arguments.max_write_pause_ms,
    };
    let begin = ManagerRequest::SwitchOver { source: source.clone(), options };
    let ManagerAnswer::Begun { id } = send(&config, begin)? else {
        bail!("unexpected answer of the daemon, which may run another version of Tailwater");
    };
    follow(&config, &source, &id, output)
}
