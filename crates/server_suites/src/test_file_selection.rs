//! Finds the test files, and decides which of them cannot run here and why.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use tailwater_sandbox::ServerKind;
use tailwater_wire::Flavour;

/// Suites of MariaDB that need only one server and do not test replication.
const MARIADB_SUITES: &[&str] = &[
    "main",
    "engines/funcs",
    "engines/iuds",
    "innodb",
    "funcs_1",
    "gcol",
    "vcol",
    "versioning",
    "period",
    "sql_sequence",
    "json",
    "roles",
    "parts",
    "maria",
    "compat/oracle",
    "csv",
    "archive",
    "heap",
    "handler",
    "innodb_fts",
    "innodb_gis",
    "innodb_zip",
    "jp",
    "stress",
    "plugins",
    "optimizer_unfixed_bugs",
    "atomic",
    "federated",
    "client",
];
/// Suites of MySQL that need only one server and do not test replication.
const MYSQL_SUITES: &[&str] = &[
    "main",
    "engines/funcs",
    "engines/iuds",
    "innodb",
    "funcs_1",
    "gcol",
    "json",
    "gis",
    "parts",
    "collations",
    "jp",
    "innodb_fts",
    "innodb_gis",
    "innodb_zip",
    "innodb_undo",
    "information_schema",
    "opt_trace",
    "stress",
    "query_rewrite_plugins",
    "jdv",
    "federated",
    "max_parts",
];

/// The list of excluded files and known refusals.
const EXCLUSIONS: &str = include_str!("exclusions.toml");

/// Why files with `DATA DIRECTORY` are skipped: the servers of a trial run on one machine, and would use the
/// same directory.
const SHARES_MACHINE: &str =
    "writes files to a directory that the other servers of this machine would use too";

/// Texts that exclude a file if they are in it or in a file that it sources. Such a file needs the servers'
/// own test runner, or would end the trial.
const UNUSABLE: &[(&str, &str)] = &[
    ("include/restart_mysqld", "restarts the server"),
    ("include/kill_mysqld", "kills the server"),
    ("include/kill_and_restart", "kills the server"),
    ("include/shutdown_mysqld", "stops the server"),
    ("include/start_mysqld", "restarts the server"),
    ("include/crash_mysqld", "kills the server"),
    ("shutdown_server", "stops the server"),
    ("include/have_debug", "needs a debug build"),
    ("include/master-slave", "needs its own replica"),
    ("include/rpl_init", "needs its own replica"),
    ("include/not_log_bin", "runs without a binlog"),
    ("include/not_binlog", "runs without a binlog"),
    ("include/not_master", "runs without a binlog"),
    ("have_log_bin_off", "runs without a binlog"),
    ("include/have_ndb", "needs NDB"),
    ("include/have_wsrep", "needs Galera"),
    ("include/have_embedded", "is for the embedded server"),
    ("include/is_embedded", "is for the embedded server"),
    ("include/big_test", "takes long"),
    ("include/have_valgrind", "needs valgrind"),
    ("include/windows.inc", "is for Windows"),
    ("include/have_windows", "is for Windows"),
    ("have_plugin_auth", "needs a plugin"),
    ("include/have_example_plugin", "needs a plugin"),
    ("include/have_spider", "needs a plugin"),
    ("MYSQLD_BOOTSTRAP_CMD", "starts its own servers"),
    ("MYSQLD_LAST_CMD", "starts its own servers"),
    ("include/have_symlink", SHARES_MACHINE),
    ("DATA DIRECTORY", SHARES_MACHINE),
    ("data directory", SHARES_MACHINE),
];

/// A test file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestFile {
    /// Name of the file: `SUITE/NAME`.
    pub name: String,
    /// Path of the file.
    pub path: PathBuf,
    /// Why the file is skipped; `None` if it can run.
    pub skipped: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exclusions {
    exclude: Vec<Exclusion>,
    limit: Vec<KnownRefusal>,
}

/// A transaction that a channel refuses by design.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownRefusal {
    /// Code of the channel's error.
    pub code: String,
    /// Text that the error's message must contain. Needed if the channel uses the same error code for
    /// refusals that are faults.
    pub message: Option<String>,
    /// Why the refusal is not a fault.
    pub reason: String,
}

impl KnownRefusal {
    /// Whether `error`, in the form `CODE: MESSAGE`, is this refusal.
    pub fn matches(&self, error: &str) -> bool {
        error
            .strip_prefix(&self.code)
            .and_then(|rest| rest.strip_prefix(": "))
            .is_some_and(|text| self.message.as_ref().is_none_or(|message| text.contains(message)))
    }
}

/// Returns the list of what a channel refuses by design.
///
/// # Errors
/// If the list cannot be read.
pub fn limits() -> anyhow::Result<Vec<KnownRefusal>> {
    let exclusions: Exclusions = toml::from_str(EXCLUSIONS).context("cannot parse exclusions.toml")?;
    Ok(exclusions.limit)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exclusion {
    /// `mariadb`, `mysql`, or the name of one server version, such as `mariadb-11.8`.
    server: String,
    /// Names of files: `SUITE/NAME`, or the beginning of names followed by `*`.
    files: Vec<String>,
    reason: String,
}

impl Exclusion {
    fn matches(&self, kind: ServerKind, name: &str) -> bool {
        let family = match kind.flavour() {
            Flavour::MySql => "mysql",
            Flavour::MariaDb => "mariadb",
        };
        let is_named = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        };
        (self.server == family || self.server == kind.name()) && self.files.iter().any(is_named)
    }
}

/// Returns all test files of a server's suites. The order mixes the suites, and is the same in each run.
///
/// # Errors
/// If the folder cannot be read.
pub fn files(kind: ServerKind, folder: &Path) -> anyhow::Result<Vec<TestFile>> {
    let exclusions: Exclusions = toml::from_str(EXCLUSIONS).context("cannot parse exclusions.toml")?;
    let suites = match kind.flavour() {
        Flavour::MySql => MYSQL_SUITES,
        Flavour::MariaDb => MARIADB_SUITES,
    };
    let mut files = Vec::new();
    for suite in suites {
        for (name, path) in suite_files(folder, suite)? {
            let listed = exclusions.exclude.iter().find(|exclusion| exclusion.matches(kind, &name));
            let skipped = match listed {
                Some(exclusion) => Some(exclusion.reason.clone()),
                None => unusable(folder, &path)?,
            };
            files.push(TestFile { name, path, skipped });
        }
    }
    files.sort_by_key(|file| {
        let name = file.name.bytes();
        name.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    });
    Ok(files)
}

fn suite_files(folder: &Path, suite: &str) -> anyhow::Result<Vec<(String, PathBuf)>> {
    // The main suite is in `main` or `t`. Other suites have their files in `t` or directly in their folder.
    let candidates = match suite {
        "main" => vec![folder.join("main"), folder.join("t")],
        suite => vec![folder.join("suite").join(suite).join("t"), folder.join("suite").join(suite)],
    };
    let Some(found) = candidates.into_iter().find(|folder| folder.is_dir()) else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in fs::read_dir(&found).with_context(|| found.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "test") {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            files.push((format!("{suite}/{stem}"), path));
        }
    }
    Ok(files)
}

/// Returns why a file cannot run without the servers' own test runner; `None` if it can.
fn unusable(folder: &Path, path: &Path) -> anyhow::Result<Option<String>> {
    for extension in ["opt", "cnf"] {
        let sibling = path.with_extension(extension);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let master = path.with_file_name(format!("{stem}-master.{extension}"));
        if sibling.is_file() || master.is_file() {
            return Ok(Some("needs options of the server".to_owned()));
        }
    }
    let mut seen = HashSet::new();
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        if !seen.insert(path.clone()) || seen.len() > 50 {
            continue;
        }
        // If the name of a sourced file contains a variable, the file cannot be found and is ignored.
        let Ok(bytes) = fs::read(&path) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            if let Some((_, reason)) = UNUSABLE.iter().find(|(word, _)| line.contains(word)) {
                return Ok(Some((*reason).to_owned()));
            }
            let command = line.trim_start_matches('-').trim_start();
            if let Some(sourced) = command.strip_prefix("source ") {
                let sourced = sourced.trim().trim_end_matches(';').trim();
                let sibling = path.parent().map(|parent| parent.join(sourced));
                pending.extend(
                    [Some(folder.join(sourced)), sibling].into_iter().flatten().filter(|path| path.is_file()),
                );
            }
        }
    }
    Ok(None)
}

/// Returns every N-th file, starting with the K-th.
///
/// # Errors
/// If `slice` is not `K/N` with 1 <= K <= N.
pub fn slice(files: Vec<TestFile>, slice: &str) -> anyhow::Result<Vec<TestFile>> {
    let wrong = || format!("--slice {slice}: expected K/N, with K from 1 to N");
    let (k, n) = slice.split_once('/').with_context(wrong)?;
    let (k, n): (usize, usize) = (k.parse().with_context(wrong)?, n.parse().with_context(wrong)?);
    anyhow::ensure!((1..=n).contains(&k), wrong());
    Ok(files.into_iter().skip(k - 1).step_by(n).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_and_skipped_with_a_reason() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let write = |path: &str, text: &str| -> anyhow::Result<()> {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().context("the path has no folder")?)?;
            Ok(fs::write(path, text)?)
        };
        write("main/good.test", "select 1;\n# include/master-slave.inc\n")?;
        write("main/options.test", "select 1;\n")?;
        write("main/options-master.opt", "--x\n")?;
        write("main/indirect.test", "--source include/a.inc\n")?;
        write("include/a.inc", "source include/restart_mysqld.inc;\n")?;
        write("suite/json/t/j.test", "select 1;\n")?;
        let found = files(ServerKind::Mariadb1011, folder.path())?;
        let reason =
            |name: &str| found.iter().find(|file| file.name == name).map(|file| file.skipped.as_deref());
        assert_eq!(found.len(), 4, "wrong number of test files: {found:?}");
        assert_eq!(reason("main/good"), Some(None));
        assert_eq!(reason("json/j"), Some(None));
        assert_eq!(reason("main/options"), Some(Some("needs options of the server")));
        assert_eq!(reason("main/indirect"), Some(Some("restarts the server")));
        assert_eq!(slice(found.clone(), "2/3")?, [found[1].clone()]);
        assert!(slice(found.clone(), "0/3").is_err() && slice(found, "x").is_err());
        Ok(())
    }

    #[test]
    fn the_list_of_excluded_files_is_valid() {
        let exclusions: Exclusions = toml::from_str(EXCLUSIONS).expect("exclusions.toml can be parsed");
        for exclusion in &exclusions.exclude {
            let servers = ["mariadb", "mysql", "mariadb-10.11", "mariadb-11.8", "mysql-9.7"];
            assert!(
                servers.contains(&exclusion.server.as_str()),
                "an exclusion names an unknown server: {exclusion:?}"
            );
            assert!(
                !exclusion.files.is_empty() && exclusion.reason.len() > 5,
                "an exclusion names no files, or has no reason: {exclusion:?}"
            );
        }
        assert!(
            exclusions.limit.iter().all(|limit| limit.code.starts_with("TW-APP-") && limit.reason.len() > 10)
        );
    }

    #[test]
    fn known_refusals_are_recognised_by_code_and_message() {
        let limits = limits().expect("exclusions.toml can be parsed");
        let is_known = |error: &str| limits.iter().any(|limit| limit.matches(error));
        let create = "CREATE TABLE ... SELECT cannot be applied: with gtid = preserve";
        assert!(is_known(&format!("TW-APP-0005: transaction 0-1-6: {create}")));
        assert!(is_known("TW-APP-0050: any words"));
        assert!(!is_known(
            "TW-APP-0005: transaction 0-1-6: LOAD DATA cannot be applied: its file is missing"
        ));
        assert!(!is_known(&format!("TW-APP-0002: transaction 0-1-6: {create}")));
        assert!(!is_known("TW-APP-00501: any words"));
    }
}
