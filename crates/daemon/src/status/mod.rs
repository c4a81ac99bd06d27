//! The status of the daemon, as `tailwater status` shows it.
//!
//! - `status_report`: collects the status from the snapshot of [`Control`].
//! - `status_problems`: finds what is wrong, and what to do. Does no I/O.
//! - `disk_backup_and_drift_problems`: the same for the log's disk, backups, and checks for drift.
//! - `log_disk`: the space of the log's disk.

mod disk_backup_and_drift_problems;
mod log_disk;
mod status_problems;
pub(crate) mod status_report;

use std::time::Duration;

use crate::api::daemon_status::DaemonStatus;
use crate::control_api::Control;

pub(crate) use status_report::{is_own_relay, nodes};

/// How long a status waits for probes of the servers. This is longer than the time-out of a probe. A server
/// whose probe takes longer is reported as one that does not answer.
const PROBE_MAX: Duration = Duration::from_millis(3_500);

/// Returns the present status. Servers that were not probed recently are probed first.
pub(crate) async fn of(control: &Control) -> DaemonStatus {
    let (disk, ()) =
        tokio::join!(log_disk::measure(control.log_directory()), control.keep_probed(None, None, PROBE_MAX));
    status_report::collect(control, disk)
}
