//! Derives the result lines about this machine from its facts.

use super::check_report::{CheckLine, CheckLines};
use super::host_facts::{HostFacts, LogDiskFacts};

/// If the median time of an fdatasync is longer than this, in microseconds, the check reports it: with
/// semi-sync, every commit waits for one fdatasync.
const SYNC_US_MAX: u64 = 5_000;

/// If the disk has less free space than this, in bytes, the daemon cannot capture for long.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// If less than this fraction of the disk is free, the check gives a warning.
const FREE_PART_MIN: f64 = 0.1;

/// Returns the result lines about this machine.
pub(super) fn judge(facts: &HostFacts) -> Vec<CheckLine> {
    let mut lines = CheckLines::about("this machine");
    match &facts.disk {
        Err(error) => lines.problem(
            "log directory",
            format!("the log cannot be written to {}: {error}", facts.directory.display()),
            "create the folder for the daemon's user, or correct log.directory or the permissions of the folder",
        ),
        Ok(disk) => judge_disk(&mut lines, facts, disk),
    }
    open_files(&mut lines, facts);
    for (object, address, error) in &facts.listeners {
        match error {
            None => lines.ok("listen address", format!("{object}: {address} can be used")),
            Some(_) if facts.is_daemon_running => {
                lines.ok("listen address", format!("{object}: {address} is in use by the running daemon"));
            }
            Some(error) => lines.problem(
                "listen address",
                format!("{object}: {address} cannot be used: {error}"),
                "configure another address or port, or stop the program that uses this one",
            ),
        }
    }
    lines.lines
}

fn judge_disk(lines: &mut CheckLines, facts: &HostFacts, disk: &LogDiskFacts) {
    let measured = disk.measured.display();
    match disk.measured == facts.directory {
        true => lines.ok("log directory", format!("{measured} can be written")),
        false => lines.ok(
            "log directory",
            format!("{} does not exist yet; the disk was measured in {measured}", facts.directory.display()),
        ),
    }
    if disk.is_in_memory {
        lines.problem(
            "log disk",
            "the folder is in memory (tmpfs): a restart of the machine loses the log",
            "set log.directory to a folder on a disk",
        );
    }
    sync_time(lines, disk);
    let (free, total) = (disk.free_bytes, disk.total_bytes.max(1));
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let text = format!("{:.1} of {:.1} GiB are free", gib(free), gib(total));
    let remedy =
        "make space on the disk, or limit the size of the log with log.retention_bytes_max and an archive";
    match free {
        free if free < FREE_BYTES_MIN => lines.problem("free space", text, remedy),
        free if (free as f64) < total as f64 * FREE_PART_MIN => lines.warning("free space", text, remedy),
        _ => lines.ok("free space", text),
    }
}

fn sync_time(lines: &mut CheckLines, disk: &LogDiskFacts) {
    let times = &disk.sync_times_us;
    let (Some(median), Some(longest)) = (times.get(times.len() / 2), times.last()) else { return };
    let ms = |us: &u64| *us as f64 / 1e3;
    let text = format!(
        "fdatasync takes {:.2} ms (median of {}), {:.2} ms at most",
        ms(median),
        times.len(),
        ms(longest)
    );
    if *median > SYNC_US_MAX {
        lines.warning(
            "log disk",
            format!("{text}; with semi-sync each commit of the source waits for one fdatasync"),
            "use a disk with power-loss protection (an SSD for servers), without other load",
        );
    } else {
        lines.ok("log disk", text);
    }
}

fn open_files(lines: &mut CheckLines, facts: &HostFacts) {
    let needed = facts.open_files_needed;
    match facts.open_files_max {
        Some(limit) if limit < needed => lines.warning(
            "open files",
            format!("the limit is {limit} open files (ulimit -n), and the configuration may need {needed}"),
            "raise the limit: LimitNOFILE in the systemd unit, or ulimit -n; or lower connections_max",
        ),
        Some(limit) => lines.ok(
            "open files",
            format!("the limit is {limit} open files, and the configuration may need {needed}"),
        ),
        None => lines.ok("open files", "the number of open files has no limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_report::CheckLevel;
    use super::*;

    fn healthy() -> HostFacts {
        HostFacts {
            directory: "/srv/log".into(),
            disk: Ok(LogDiskFacts {
                measured: "/srv/log".into(),
                total_bytes: 100 << 30,
                free_bytes: 50 << 30,
                is_in_memory: false,
                sync_times_us: vec![800; 30],
            }),
            open_files_max: Some(65_536),
            open_files_needed: 1_200,
            listeners: vec![("http".into(), "127.0.0.1:8080".parse().expect("the address is valid"), None)],
            is_daemon_running: false,
        }
    }

    fn worst(change: impl FnOnce(&mut HostFacts)) -> (CheckLevel, &'static str) {
        let mut facts = healthy();
        change(&mut facts);
        let lines = judge(&facts);
        assert!(lines.iter().all(|line| (line.level == CheckLevel::Ok) == line.remedy.is_none()));
        lines
            .iter()
            .map(|line| (line.level, line.check))
            .max_by_key(|(level, _)| *level)
            .expect("the check returns a line")
    }

    fn disk(facts: &mut HostFacts) -> &mut LogDiskFacts {
        facts.disk.as_mut().expect("the disk was measured")
    }

    #[test]
    fn each_fault_has_its_line() {
        let (problem, warning) = (CheckLevel::Problem, CheckLevel::Warning);
        assert_eq!(worst(|_| ()).0, CheckLevel::Ok);
        assert_eq!(worst(|facts| facts.disk = Err("denied".into())), (problem, "log directory"));
        assert_eq!(worst(|facts| disk(facts).is_in_memory = true), (problem, "log disk"));
        assert_eq!(worst(|facts| disk(facts).sync_times_us = vec![9_000; 30]), (warning, "log disk"));
        assert_eq!(worst(|facts| disk(facts).free_bytes = 5 << 30), (warning, "free space"));
        assert_eq!(worst(|facts| disk(facts).free_bytes = 5 << 20), (problem, "free space"));
        assert_eq!(worst(|facts| facts.open_files_max = Some(1_024)), (warning, "open files"));
        assert_eq!(worst(|facts| facts.listeners[0].2 = Some("in use".into())), (problem, "listen address"));
        let running = |facts: &mut HostFacts| {
            facts.listeners[0].2 = Some("in use".into());
            facts.is_daemon_running = true;
        };
        assert_eq!(worst(running).0, CheckLevel::Ok);
    }
}
