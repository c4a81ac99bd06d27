//! Problems of the log's disk, of the archive, of the daemon's files, of backups, and of checks for drift.

use tailwater_binlog_stats::LocalTime;
use tailwater_binlog_stats::number_format::bytes;

use super::status_problems::problem;
use crate::api::captures::LogArchiveSnapshot;
use crate::api::daemon_status::{DiskSpace, LogDiskStatus, StatusProblem};
use crate::api::disk_backup_and_drift_snapshots::{BackupSnapshot, DriftCheckSnapshot};
use crate::jobs::job_text::counted;
use crate::unwritable_files::FileFault;

/// The disk of the log is reported as a problem if it has less free space than this, in bytes. On a small
/// disk the limit is a twentieth of its size.
const FREE_BYTES_MIN: u64 = 5 << 30;

pub(super) fn disk_problem(disk: &LogDiskStatus) -> Option<StatusProblem> {
    if let Some(reason) = &disk.problem {
        let text = format!("the space of {} cannot be read: {reason}", disk.directory);
        return Some(problem("log disk", "LogDiskUnknown", text, "check the disk and its mount point"));
    }
    let DiskSpace { total_bytes, free_bytes, log_bytes } = disk.space?;
    (free_bytes < FREE_BYTES_MIN.min(total_bytes / 20)).then(|| {
        let text = format!(
            "{} of {} are free at {}; the logs occupy {}. Commits wait when the disk is full",
            gibibytes(free_bytes),
            gibibytes(total_bytes),
            disk.directory,
            gibibytes(log_bytes)
        );
        let remedy = "free space, or remove segments: `tailwater log purge`, log.retention_bytes_max";
        problem("log disk", "LogDiskLow", text, remedy)
    })
}

/// Returns why the segments of the log `object` are not archived.
pub(super) fn archive_problem(object: String, archive: &LogArchiveSnapshot) -> Option<StatusProblem> {
    let failure = archive.problem.as_ref()?;
    let since = LocalTime(failure.since_ms.saturating_mul(1000)).date_and_time();
    let waiting = archive
        .waiting
        .filter(|waiting| waiting.segments > 0)
        .map(|waiting| format!("; {} ({}) wait", counted(waiting.segments, "segment"), bytes(waiting.bytes)));
    let text = format!("archiving fails since {since}: {}{}", failure.text, waiting.unwrap_or_default());
    let remedy = "fix the cause; the archiver tries again by itself, and meanwhile the log keeps every segment that is not archived";
    Some(problem(object, &failure.code, text, remedy))
}

pub(super) fn file_problem(fault: &FileFault) -> StatusProblem {
    let remedy = "free space on the log's disk, or correct the permissions; the daemon tries again by itself";
    problem(format!("file {}", fault.file.name()), fault.code(), fault.to_string(), remedy)
}

pub(super) fn backup_problem(backup: &BackupSnapshot, now_ms: u64) -> Option<StatusProblem> {
    let object = format!("backup {}", backup.name);
    let age = backup.newest_ms.map(|taken_ms| now_ms.saturating_sub(taken_ms) / 1_000);
    let limit = duration(backup.age_seconds_max);
    let text = match (age, &backup.problem) {
        (Some(age), _) if age > backup.age_seconds_max => {
            format!("the newest finished dump is {} old; the limit is {limit}", duration(age))
        }
        (None, None) => format!("there is no finished dump; the limit of its age is {limit}"),
        (_, Some(reason)) => {
            let remedy = "let the daemon's user read the folder, or repair or remove the dump";
            return Some(problem(object, "BackupUnknown", reason, remedy));
        }
        (Some(_), None) => return None,
    };
    Some(problem(object, "BackupTooOld", text, "find out why the job that runs `tailwater dump` failed"))
}

pub(super) fn drift_problem(check: &DriftCheckSnapshot, now_ms: u64) -> Option<StatusProblem> {
    let object = format!("check {}", check.name);
    if let Some(count) = check.differences.filter(|count| *count > 0) {
        let text = format!("the last check found {count} rows or tables that differ");
        let remedy = "see `tailwater repair --dry-run --from-state`, find the cause, and repair";
        return Some(problem(object, "DriftFound", text, remedy));
    }
    let age = check.finished_ms.map(|at_ms| now_ms.saturating_sub(at_ms) / 1_000);
    match (age, &check.problem) {
        (_, Some(reason)) => {
            let remedy = "run `tailwater check --state`, and let the daemon's user read the file";
            Some(problem(object, "CheckUnknown", reason, remedy))
        }
        (Some(age), None) if age > check.age_seconds_max => {
            let (age, limit) = (duration(age), duration(check.age_seconds_max));
            let text = format!("the last check ended {age} ago; the limit is {limit}");
            let remedy = "find out why the job that runs `tailwater check` failed";
            Some(problem(object, "CheckTooOld", text, remedy))
        }
        _ => None,
    }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::captures::{ArchiveProblem, WaitingSegments};

    #[test]
    fn a_disk_that_is_nearly_full_is_reported() {
        let low = |total_bytes: u64, free_bytes: u64| {
            let space = DiskSpace { total_bytes, free_bytes, log_bytes: 0 };
            disk_problem(&LogDiskStatus { space: Some(space), ..LogDiskStatus::default() }).is_some()
        };
        assert!(!low(1 << 40, 5 << 30) && low(1 << 40, (5 << 30) - 1));
        assert!(
            !low(20 << 30, 1 << 30) && low(20 << 30, (1 << 30) - 1),
            "the limit of a small disk is not a twentieth of its size"
        );
        let unreadable =
            LogDiskStatus { directory: "/log".into(), space: None, problem: Some("I/O error".into()) };
        let problem = disk_problem(&unreadable).expect("a problem");
        assert!(
            problem.code == "LogDiskUnknown" && problem.text.contains("/log"),
            "the problem lacks the folder of the log: {problem:?}"
        );
    }

    #[test]
    fn a_failing_archive_is_reported_with_what_waits() {
        let failure =
            ArchiveProblem { code: "TW-LOG-0014".into(), text: "s3://b/orders: 403".into(), since_ms: 1 };
        let waiting = Some(WaitingSegments { segments: 3, bytes: 3 << 30 });
        let archive = LogArchiveSnapshot { waiting, ..LogArchiveSnapshot::default() };
        assert_eq!(archive_problem("source orders".into(), &archive), None, "segments may wait for a while");
        let failing = LogArchiveSnapshot { problem: Some(failure), ..archive };
        let problem = archive_problem("source orders".into(), &failing).expect("a problem");
        assert!(problem.object == "source orders" && problem.code == "TW-LOG-0014", "{problem:?}");
        for part in ["s3://b/orders: 403", "3 segments (3.0 GiB) wait"] {
            assert!(problem.text.contains(part), "{part}: {problem:?}");
        }
    }

    #[test]
    fn old_and_unknown_backups_are_reported() {
        let backup = |newest_ms: Option<u64>, problem: Option<&str>| {
            let (name, problem) = ("nightly".to_owned(), problem.map(str::to_owned));
            let backup = BackupSnapshot { name, age_seconds_max: 3_600, dumps: 1, newest_ms, problem };
            backup_problem(&backup, 10_000_000).map(|problem| format!("{} {}", problem.object, problem.code))
        };
        assert_eq!(backup(Some(6_400_000), None), None);
        let is_old = Some("backup nightly BackupTooOld".to_owned());
        assert_eq!(backup(Some(6_398_000), None), is_old);
        assert_eq!(backup(None, None), is_old);
        assert_eq!(backup(Some(0), Some("unreadable")), is_old);
        let unknown = Some("backup nightly BackupUnknown".to_owned());
        assert_eq!(backup(Some(6_400_000), Some("unreadable")), unknown);
    }

    #[test]
    fn drift_and_old_checks_are_reported() {
        let check = |finished_ms: Option<u64>, differences: Option<u64>, problem: Option<&str>| {
            let (name, problem) = ("db2".to_owned(), problem.map(str::to_owned));
            let check =
                DriftCheckSnapshot { name, age_seconds_max: 3_600, finished_ms, differences, problem };
            drift_problem(&check, 10_000_000).map(|problem| problem.code)
        };
        assert_eq!(check(Some(6_400_000), Some(0), None), None);
        assert_eq!(
            check(None, Some(0), None),
            None,
            "the first check is still running, but a problem is reported"
        );
        assert_eq!(check(Some(6_398_000), Some(0), None).as_deref(), Some("CheckTooOld"));
        assert_eq!(check(Some(0), Some(3), Some("unreadable")).as_deref(), Some("DriftFound"));
        assert_eq!(check(None, None, Some("unreadable")).as_deref(), Some("CheckUnknown"));
    }
}
