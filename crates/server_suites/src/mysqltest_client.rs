//! Runs a test file with the suites' own client, `mysqltest`, in the environment that the servers' test
//! runner would set up.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context;
use serde::Serialize;
use tailwater_sandbox::{Server, TestSuites};
use tailwater_wire::Flavour;

use super::statement_proxy::StatementProxy;

/// How the client's run of a file ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientEnd {
    /// The client reached the end of the file.
    Finished,
    /// The file skipped itself, for this reason.
    Skipped(String),
    /// The client ended before the end of the file. The text is the last lines of its output.
    GaveUp(String),
    /// The run exceeded the time limit of a file.
    TimedOut,
}

/// The folder that test files find in the variable `MYSQLTEST_VARDIR`.
#[derive(Debug)]
pub struct VarFolder {
    path: PathBuf,
}

impl VarFolder {
    /// Creates the folder, with a link to the data files of the suites.
    ///
    /// # Errors
    /// If a folder or link cannot be created.
    pub fn make(path: PathBuf, suites: &TestSuites) -> anyhow::Result<Self> {
        let folder = Self::bare(path)?;
        let data = folder.path.join("std_data");
        std::os::unix::fs::symlink(suites.folder().join("std_data"), data)?;
        Ok(folder)
    }

    /// Creates the folder without the data files of the suites.
    ///
    /// # Errors
    /// If a folder or link cannot be created.
    pub fn bare(path: PathBuf) -> anyhow::Result<Self> {
        for name in ["tmp", "log", "run", "mysqld.1/data"] {
            std::fs::create_dir_all(path.join(name)).with_context(|| path.display().to_string())?;
        }
        Ok(Self { path })
    }

    /// Returns the Unix socket of the statement proxy.
    pub fn socket(&self) -> PathBuf {
        self.path.join("proxy.sock")
    }
}

/// A running client.
#[derive(Debug)]
pub struct RunningClient {
    child: tokio::process::Child,
    output: PathBuf,
}

/// Starts the client with a test file. Its options make it continue after an error.
///
/// # Errors
/// If the client cannot be started.
pub fn start(
    suites: &TestSuites,
    primary: &Server,
    proxy: &StatementProxy,
    folder: &VarFolder,
    file: &Path,
) -> anyhow::Result<RunningClient> {
    let wrapper = folder.path.join("tmp/trial.test");
    // The primary has other settings than the file expects, so the client must not end at the first result
    // that differs.
    std::fs::write(&wrapper, format!("--disable_abort_on_error\n--source {}\n", file.display()))?;
    let output = folder.path.join("log/client.log");
    let log = std::fs::File::create(&output)?;
    let mut command = tokio::process::Command::from(suites.client()?);
    let socket = folder.socket();
    let temporary = folder.path.join("tmp");
    command
        .arg("--no-defaults")
        .args(["--silent", "--user=root", "--host=localhost", "--database=test", "--max-connect-retries=10"])
        .arg(format!("--port={}", proxy.port))
        .arg(format!("--socket={}", socket.display()))
        .arg(format!("--tmpdir={}", temporary.display()))
        .arg(format!("--logdir={}", folder.path.join("log").display()))
        .arg(format!("--character-sets-dir={}", charsets(primary).display()))
        .arg(format!("--test-file={}", wrapper.display()));
    match primary.kind().flavour() {
        Flavour::MySql => command.arg("--ssl-mode=DISABLED"),
        Flavour::MariaDb => command
            .args(["--skip-ssl", "--continue-on-error"])
            .arg(format!("--suite-dir={}", suite_folder(file).display())),
    };
    command.env("MTR_SUITE_DIR", suite_folder(file));
    for (name, value) in environment(suites, primary, proxy, folder)? {
        command.env(name, value);
    }
    command.current_dir(suites.folder()).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // The client runs in its own process group, so that its child processes are killed with it.
    command.process_group(0).kill_on_drop(true);
    let child = command.spawn().context("cannot start the client of the test suites")?;
    Ok(RunningClient { child, output })
}

/// Returns the folder of a file's suite. It may contain files that the test file sources.
fn suite_folder(file: &Path) -> &Path {
    let folder = file.parent().unwrap_or(file);
    match folder.file_name() {
        Some(name) if name == "t" => folder.parent().unwrap_or(folder),
        _ => folder,
    }
}

fn charsets(primary: &Server) -> PathBuf {
    let share = primary.install().root().join("usr/share");
    let candidates = [share.join("mariadb/charsets"), share.join("mysql/charsets")];
    candidates.iter().find(|path| path.is_dir()).unwrap_or(&candidates[1]).clone()
}

/// Returns the shell command of one of the server's client programs, with its connection options.
fn program(primary: &Server, names: &[&str], rest: &str) -> String {
    let command = names.iter().find_map(|name| primary.tool(name).ok());
    let Some(command) = command else { return "false".to_owned() };
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    format!("{} --no-defaults {rest}", words.join(" "))
}

fn environment(
    suites: &TestSuites,
    primary: &Server,
    proxy: &StatementProxy,
    folder: &VarFolder,
) -> anyhow::Result<Vec<(&'static str, String)>> {
    let var = folder.path.display().to_string();
    let tests = suites.folder().display().to_string();
    let socket = folder.socket().display().to_string();
    let no_tls = match primary.kind().flavour() {
        Flavour::MySql => "--ssl-mode=DISABLED",
        Flavour::MariaDb => "--skip-ssl",
    };
    let account = format!("--user=root --host=localhost --port={} --socket={socket} {no_tls}", proxy.port);
    let usr = primary.install().root().join("usr");
    let charsets = charsets(primary);
    let share = charsets.parent().unwrap_or(&usr).display().to_string();
    Ok(vec![
        ("MYSQLTEST_VARDIR", var.clone()),
        ("MYSQLTEST_REAL_VARDIR", var.clone()),
        ("MYSQLTEST_VARDIR_ABS", var.clone()),
        ("MYSQL_TMP_DIR", format!("{var}/tmp")),
        ("TMPDIR", format!("{var}/tmp")),
        ("HOME", var.clone()),
        ("MYSQL_TEST_DIR", tests.clone()),
        ("MYSQL_TEST_DIR_ABS", tests.clone()),
        ("SECURE_LOAD_PATH", format!("{tests}/std_data")),
        ("MASTER_MYPORT", proxy.port.to_string()),
        ("MASTER_MYPORT1", proxy.port.to_string()),
        ("DEFAULT_MASTER_PORT", proxy.port.to_string()),
        ("MASTER_MYSOCK", socket.clone()),
        // Test files of storage engines that connect to another server use this port. Here it is the port of
        // the same server.
        ("SLAVE_MYPORT", proxy.port.to_string()),
        ("SLAVE_MYSOCK", socket.clone()),
        ("MASTER_X_MYPORT", "1".to_owned()),
        ("MTR_BUILD_THREAD", "1".to_owned()),
        ("USE_RUNNING_SERVER", "1".to_owned()),
        ("BIG_TEST", String::new()),
        ("VALGRIND_TEST", "0".to_owned()),
        ("LC_ALL", "C".to_owned()),
        ("UMASK", "0660".to_owned()),
        ("UMASK_DIR", "0770".to_owned()),
        ("TZ", "MET".to_owned()),
        ("CHARSETSDIR", charsets.display().to_string()),
        ("MYSQL_CHARSETSDIR", charsets.display().to_string()),
        ("MYSQL_SHAREDIR", share.clone()),
        ("MYSQL_BASEDIR", usr.display().to_string()),
        ("MYSQL_BINDIR", usr.join("bin").display().to_string()),
        ("PLUGIN_DIR", primary.install().plugins().display().to_string()),
        ("MYSQLD_DATADIR", primary.data().display().to_string()),
        ("MYSQL", program(primary, &["mariadb", "mysql"], &account)),
        ("MYSQL_DUMP", program(primary, &["mariadb-dump", "mysqldump"], &account)),
        ("MYSQL_BINLOG", program(primary, &["mariadb-binlog", "mysqlbinlog"], "")),
        ("MYSQL_CHECK", program(primary, &["mariadb-check", "mysqlcheck"], &account)),
        ("MYSQL_IMPORT", program(primary, &["mariadb-import", "mysqlimport"], &account)),
        ("MYSQL_SHOW", program(primary, &["mariadb-show", "mysqlshow"], &account)),
        ("MYSQLADMIN", program(primary, &["mariadb-admin", "mysqladmin"], "")),
        ("MYSQL_SLAP", program(primary, &["mariadb-slap", "mysqlslap"], &account)),
    ])
}

impl RunningClient {
    /// Waits until the client has ended.
    ///
    /// # Errors
    /// If the client cannot be waited for.
    pub async fn wait(&mut self) -> anyhow::Result<ClientEnd> {
        let status = self.child.wait().await?;
        let text = std::fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = || {
            let lines: Vec<&str> =
                text.lines().filter(|line| !line.trim().is_empty()).rev().take(3).collect();
            let words = lines.into_iter().rev().collect::<Vec<_>>().join(" | ");
            words.chars().take(400).collect::<String>()
        };
        Ok(match status.code() {
            Some(0) => ClientEnd::Finished,
            // `mysqltest` ends with exit code 62 if a file skips itself.
            Some(62) => ClientEnd::Skipped(last()),
            _ => ClientEnd::GaveUp(last()),
        })
    }

    /// Kills the client and all its child processes.
    pub fn kill(&mut self) {
        let group = self.child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = group {
            // An error is ignored: it means that the process group has already ended.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for RunningClient {
    fn drop(&mut self) {
        self.kill();
    }
}
