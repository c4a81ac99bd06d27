//! Reads the results of dumps and of checks for drift. Both run in other processes, often on their own
//! schedules.

use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tailwater_check::table_check::CheckResult;
use tailwater_config::{BackupConfig, DriftCheckConfig};
use tailwater_dump::dump_folder::DumpFinder;

use crate::api::disk_backup_and_drift_snapshots::{BackupSnapshot, DriftCheckSnapshot};

/// The state file of a running check changes often, so it is read only once in this interval.
const RUNNING_CHECK_INTERVAL: Duration = Duration::from_secs(30);

const SECONDS_PER_HOUR: u64 = 3_600;

/// Reads the backups and the checks of the configuration.
#[derive(Debug)]
pub(super) struct ResultReader {
    backups: Vec<BackupConfig>,
    finder: DumpFinder,
    checks: Vec<DriftCheck>,
}

impl ResultReader {
    pub fn new(backups: Vec<BackupConfig>, checks: Vec<DriftCheckConfig>) -> Self {
        let checks = checks.into_iter().map(DriftCheck::new).collect();
        Self { backups, finder: DumpFinder::default(), checks }
    }

    /// Reads all backups and checks. `now` decides whether the file of a running check is read again.
    pub fn read(&mut self, now: Instant) -> (Vec<BackupSnapshot>, Vec<DriftCheckSnapshot>) {
        let backups = self.backups.iter().map(|backup| backup_snapshot(&mut self.finder, backup)).collect();
        (backups, self.checks.iter_mut().map(|check| check.read(now)).collect())
    }
}

fn backup_snapshot(finder: &mut DumpFinder, backup: &BackupConfig) -> BackupSnapshot {
    let found = finder.find(&backup.folder);
    let problem = match &found {
        Ok(found) => found.problem.clone(),
        Err(error) => Some(format!("{}: {error}", backup.folder.display())),
    };
    let found = found.unwrap_or_default();
    BackupSnapshot {
        name: backup.name.clone(),
        age_seconds_max: backup.age_hours_max.saturating_mul(SECONDS_PER_HOUR),
        dumps: found.count,
        newest_ms: found.newest.map(since_1970_ms),
        problem,
    }
}

/// A check, and the result that was last read from its state file.
#[derive(Debug)]
struct DriftCheck {
    config: DriftCheckConfig,
    /// The time of the file's last change, and its length, when it was read.
    version: Option<(SystemTime, u64)>,
    read_at: Option<Instant>,
    latest: Option<CheckResult>,
    /// When the last finished check ended, and the differences that it found.
    finished: Option<(SystemTime, u64)>,
    problem: Option<String>,
}

impl DriftCheck {
    fn new(config: DriftCheckConfig) -> Self {
        Self { config, version: None, read_at: None, latest: None, finished: None, problem: None }
    }

    fn read(&mut self, now: Instant) -> DriftCheckSnapshot {
        let path = &self.config.state_file;
        match fs::metadata(path).and_then(|file| Ok((file.modified()?, file.len()))) {
            Ok(version) if self.is_due(version, now) => {
                (self.version, self.read_at) = (Some(version), Some(now));
                match CheckResult::read(path) {
                    Ok(result) => {
                        if result.is_finished {
                            self.finished = Some((version.0, result.differences));
                        }
                        (self.latest, self.problem) = (Some(result), None);
                    }
                    Err(error) => self.problem = Some(error.to_string()),
                }
            }
            Ok(_) => {}
            Err(error) => {
                (self.version, self.problem) = (None, Some(format!("{}: {error}", path.display())));
            }
        }
        // A running check reports the differences that it has found so far. If it has found none, the result
        // of the last finished check counts, because the running check has not compared all rows yet.
        let running = self.latest.as_ref().filter(|result| !result.is_finished && result.differences > 0);
        let differences = running.map(|result| result.differences);
        DriftCheckSnapshot {
            name: self.config.name.clone(),
            age_seconds_max: self.config.age_hours_max.saturating_mul(SECONDS_PER_HOUR),
            finished_ms: self.finished.map(|(at, _)| since_1970_ms(at)),
            differences: differences.or(self.finished.map(|(_, differences)| differences)),
            problem: self.problem.clone(),
        }
    }

    fn is_due(&self, version: (SystemTime, u64), now: Instant) -> bool {
        let is_running = self.latest.as_ref().is_some_and(|result| !result.is_finished);
        let waits = is_running && self.read_at.is_some_and(|read_at| now - read_at < RUNNING_CHECK_INTERVAL);
        self.version != Some(version) && !waits
    }
}

fn since_1970_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A line as a check writes it: a JSON object that ends with its checksum.
    fn line(entry: &serde_json::Value) -> String {
        tailwater_tables::journal_file::encode_line(entry)
    }

    fn check(path: &Path) -> DriftCheck {
        let (name, state_file) = ("db2".to_owned(), path.to_owned());
        DriftCheck::new(DriftCheckConfig { name, state_file, age_hours_max: 1 })
    }

    #[test]
    fn the_last_finished_result_stays_while_the_next_check_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (mut check, started) = (check(&path), Instant::now());
        let absent = check.read(started);
        assert!(absent.problem.is_some() && absent.differences.is_none() && absent.finished_ms.is_none());
        let begun = line(&serde_json::json!({ "begun": { "format": 1, "source": "a", "target": "b" } }));
        let drift = line(&serde_json::json!({ "compared": {
            "schema": "s", "table": "t", "number": 0, "rows": 9,
            "found": [{ "schema": "s", "table": "t", "what": "missing" }],
        } }));
        let finished = line(&serde_json::json!({ "finished": { "findings": [] } }));
        fs::write(&path, format!("{begun}{drift}{finished}")).unwrap();
        let first = check.read(started);
        assert_eq!((first.differences, first.problem), (Some(1), None));
        assert!(first.finished_ms.is_some() && first.age_seconds_max == 3_600);
        // The next check has found nothing so far.
        fs::write(&path, &begun).unwrap();
        let running = check.read(started);
        assert_eq!((running.differences, running.finished_ms), (Some(1), first.finished_ms));
        fs::write(&path, format!("{begun}{finished}")).unwrap();
        assert_eq!(
            check.read(started).differences,
            Some(1),
            "the file of a running check was read again too soon"
        );
        assert_eq!(check.read(started + RUNNING_CHECK_INTERVAL).differences, Some(0));
        fs::write(&path, "not a state\n").unwrap();
        let damaged = check.read(started + RUNNING_CHECK_INTERVAL);
        assert!(
            damaged.problem.is_some() && damaged.differences == Some(0),
            "the damaged file is not reported, or removes the earlier result: {damaged:?}"
        );
    }
}
