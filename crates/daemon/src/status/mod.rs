//! The status of the daemon, as `tailwater status` shows it.
//!
//! - `status_report`: collects it from the snapshot of [`Control`].
//! - `status_problems`: what is wrong, and what to do. Pure.
//! - `log_disk`: the space of the log's disk.

mod log_disk;
mod status_problems;
mod status_report;

use std::time::Duration;

use crate::api::daemon_status::DaemonStatus;
use crate::control_api::Control;

/// How long a status waits for probes of the servers, beyond the time-out of a probe: a server that answers
/// late is reported as one that does not answer.
const PROBE_MAX: Duration = Duration::from_millis(3_500);

/// The present status. Servers that were not probed recently are probed first.
pub(crate) async fn of(control: &Control) -> DaemonStatus {
    let (disk, ()) =
        tokio::join!(log_disk::measure(control.log_directory()), control.keep_probed(None, None, PROBE_MAX));
    status_report::collect(control, disk)
}
