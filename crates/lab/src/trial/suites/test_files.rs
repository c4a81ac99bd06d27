//! Which test files there are, and which of them cannot be run here, with the reason.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use tailwater_sandbox::ServerKind;
use tailwater_wire::Flavour;

/// Suites that are not about replication, of one server.
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

/// Known exclusions.
const EXCLUSIONS: &str = include_str!("exclusions.toml");

/// The servers of a trial run on one machine; a table with a directory of its own would be in the way of its copies.
const OF_ONE_MACHINE: &str = "puts files where the other servers of this machine would put theirs";

/// What a file, or a file that it sources, must not contain: without the servers' own test runner it means nothing, or it ends
/// the trial.
const UNUSABLE: &[(&str, &str)] = &[
    ("include/restart_mysqld", "restarts the server"),
    ("include/kill_mysqld", "kills the server"),
    ("include/kill_and_restart", "kills the server"),
    ("include/shutdown_mysqld", "stops the server"),
    ("include/start_mysqld", "restarts the server"),
    ("include/crash_mysqld", "kills the server"),
    ("shutdown_server", "stops the server"),
    ("include/have_debug", "needs a debug build"),
    ("include/master-slave", "needs a replica of its own"),
    ("include/rpl_init", "needs a replica of its own"),
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
    ("have_plugin_auth", "needs a plug-in"),
    ("include/have_example_plugin", "needs a plug-in"),
    ("include/have_spider", "needs a plug-in"),
    ("MYSQLD_BOOTSTRAP_CMD", "starts servers of its own"),
    ("MYSQLD_LAST_CMD", "starts servers of its own"),
    ("include/have_symlink", OF_ONE_MACHINE),
    ("DATA DIRECTORY", OF_ONE_MACHINE),
    ("data directory", OF_ONE_MACHINE),
];

/// A test file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestFile {
    /// `SUITE/NAME`.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Why it is not run.
    pub skipped: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exclusions {
    exclude: Vec<Exclusion>,
    limit: Vec<KnownRefusal>,
}

/// Something that a channel refuses by design, and says so.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownRefusal {
    /// What is in its message.
    pub message: String,
    /// Why it is no fault.
    pub reason: String,
}

/// What a channel refuses by design.
///
/// # Errors
/// If the list cannot be read.
pub fn limits() -> anyhow::Result<Vec<KnownRefusal>> {
    let exclusions: Exclusions = toml::from_str(EXCLUSIONS).context("exclusions.toml")?;
    Ok(exclusions.limit)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exclusion {
    /// `mariadb`, `mysql`, or the name of one kind of server.
    server: String,
    /// `SUITE/NAME`, or its beginning followed by a `*`.
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

/// All test files of a server's suites, in an order that mixes the suites, the same each time.
///
/// # Errors
/// If the folder cannot be read.
pub fn files(kind: ServerKind, folder: &Path) -> anyhow::Result<Vec<TestFile>> {
    let exclusions: Exclusions = toml::from_str(EXCLUSIONS).context("exclusions.toml")?;
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
    // Main lies in `main` or in `t`; others have their files in `t`, or beside everything else.
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

/// Why a file cannot be run without the servers' own test runner.
fn unusable(folder: &Path, path: &Path) -> anyhow::Result<Option<String>> {
    for extension in ["opt", "cnf"] {
        let beside = path.with_extension(extension);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let master = path.with_file_name(format!("{stem}-master.{extension}"));
        if beside.is_file() || master.is_file() {
            return Ok(Some("needs options of the server".to_owned()));
        }
    }
    let mut seen = HashSet::new();
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        if !seen.insert(path.clone()) || seen.len() > 50 {
            continue;
        }
        // What it sources under a name that it makes up is not found, nor is it needed.
        let Ok(bytes) = fs::read(&path) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            if let Some((_, reason)) = UNUSABLE.iter().find(|(word, _)| line.contains(word)) {
                return Ok(Some((*reason).to_owned()));
            }
            let command = line.trim_start_matches('-').trim_start();
            if let Some(sourced) = command.strip_prefix("source ") {
                let sourced = sourced.trim().trim_end_matches(';').trim();
                let beside = path.parent().map(|parent| parent.join(sourced));
                pending.extend(
                    [Some(folder.join(sourced)), beside].into_iter().flatten().filter(|path| path.is_file()),
                );
            }
        }
    }
    Ok(None)
}

/// Every N-th file, beginning with the K-th.
///
/// # Errors
/// If it is not `K/N` with 1 <= K <= N.
pub fn slice(files: Vec<TestFile>, slice: &str) -> anyhow::Result<Vec<TestFile>> {
    let wrong = || format!("--slice {slice}: want K/N, with K from 1 to N");
    let (k, n) = slice.split_once('/').with_context(wrong)?;
    let (k, n): (usize, usize) = (k.parse().with_context(wrong)?, n.parse().with_context(wrong)?);
    anyhow::ensure!((1..=n).contains(&k), wrong());
    Ok(files.into_iter().skip(k - 1).step_by(n).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_and_excluded_for_a_reason() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let write = |path: &str, text: &str| -> anyhow::Result<()> {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().context("a parent")?)?;
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
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(reason("main/good"), Some(None));
        assert_eq!(reason("json/j"), Some(None));
        assert_eq!(reason("main/options"), Some(Some("needs options of the server")));
        assert_eq!(reason("main/indirect"), Some(Some("restarts the server")));
        assert_eq!(slice(found.clone(), "2/3")?, [found[1].clone()]);
        assert!(slice(found.clone(), "0/3").is_err() && slice(found, "x").is_err());
        Ok(())
    }

    #[test]
    fn the_list_of_exclusions_is_read() {
        let exclusions: Exclusions = toml::from_str(EXCLUSIONS).expect("it parses");
        for exclusion in &exclusions.exclude {
            let servers = ["mariadb", "mysql", "mariadb-10.11", "mariadb-11.8", "mysql-9.7"];
            assert!(servers.contains(&exclusion.server.as_str()), "{exclusion:?}");
            assert!(!exclusion.files.is_empty() && exclusion.reason.len() > 5, "{exclusion:?}");
        }
        assert!(exclusions.limit.iter().all(|limit| limit.message.len() > 10 && limit.reason.len() > 10));
    }
}
