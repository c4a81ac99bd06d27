//! Whether the process of a job still runs.

use crate::api::jobs::JobProcess;

/// Returns a running process of this machine with its start time.
pub(super) fn identify(pid: u32) -> JobProcess {
    JobProcess { pid, start_ticks: start_ticks(pid) }
}

/// Whether a process still runs. A process whose start time was not known counts as running.
pub(super) fn is_running(process: JobProcess) -> bool {
    process.start_ticks.is_none() || start_ticks(process.pid) == process.start_ticks
}

/// Returns when a process started, in clock ticks; `None` if there is no such process, or it has ended and
/// only its parent has not noticed yet.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may contain anything: proc_pid_stat(5).
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, start) = (fields.first()?, fields.get(19)?);
    if *state == "Z" || *state == "X" { None } else { start.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_does_not_run() -> std::io::Result<()> {
        let own = identify(std::process::id());
        assert!(
            own.start_ticks.is_some() && is_running(own),
            "the running process has no start time, or counts as ended: {own:?}"
        );
        assert!(
            !is_running(JobProcess { start_ticks: Some(1), ..own }),
            "a process with another start time counts as running"
        );
        let mut child = std::process::Command::new("sleep").arg("600").spawn()?;
        let process = identify(child.id());
        assert!(is_running(process), "the running process counts as ended: {process:?}");
        child.kill()?;
        child.wait()?;
        assert!(!is_running(process), "the killed process counts as running: {process:?}");
        Ok(())
    }
}
