//! `[[backup]]` and `[[check]]`: results of commands, for monitoring. The daemon does not run these commands.
//! It reads the files that they have written.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// `[[backup]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupConfig {
    /// The name of the backup in metrics and messages.
    pub name: String,
    /// A folder that `tailwater dump` writes, or a folder that has such folders; relative to the
    /// configuration file. The newest finished dump counts.
    pub folder: PathBuf,
    /// The backup is too old if the data of the newest dump are older than this, in hours.
    #[serde(default = "default_backup_age_hours_max")]
    pub age_hours_max: u64,
}

/// `[[check]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriftCheckConfig {
    /// The name of the check in metrics and messages.
    pub name: String,
    /// The file that `tailwater check --state` writes; relative to the configuration file.
    pub state_file: PathBuf,
    /// The result is too old if the last check ended longer ago than this, in hours.
    #[serde(default = "default_check_age_hours_max")]
    pub age_hours_max: u64,
}

fn default_backup_age_hours_max() -> u64 {
    26
}

fn default_check_age_hours_max() -> u64 {
    192
}

impl BackupConfig {
    /// Makes the path relative to `base`.
    pub(crate) fn rebase(&mut self, base: &Path) {
        self.folder = base.join(&self.folder);
    }
}

impl DriftCheckConfig {
    /// Makes the path relative to `base`.
    pub(crate) fn rebase(&mut self, base: &Path) {
        self.state_file = base.join(&self.state_file);
    }
}

/// Checks both kinds of sections.
pub(crate) fn check(backups: &[BackupConfig], checks: &[DriftCheckConfig]) -> Result<(), String> {
    let all = backups.iter().map(|one| ("backup", &one.name, one.age_hours_max));
    let all = all.chain(checks.iter().map(|one| ("check", &one.name, one.age_hours_max)));
    let mut names = HashSet::new();
    for (section, name, age_hours_max) in all {
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(format!("{section}.name = {name:?}: give a name without control characters"));
        }
        if !names.insert((section, name)) {
            return Err(format!("{section}.name = {name:?} is given twice"));
        }
        if age_hours_max == 0 {
            return Err(format!("{section} {name:?}: age_hours_max must be at least 1"));
        }
    }
    if let Some(backup) = backups.iter().find(|backup| backup.folder.to_string_lossy().contains("://")) {
        return Err(format!(
            "backup {:?}: folder must be a local folder; for dumps in a bucket, mount it, or let the command that dumps report to your monitoring",
            backup.name
        ));
    }
    Ok(())
}
