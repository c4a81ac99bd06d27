//! Executes a setup plan: runs its statements and writes its files.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tailwater_session::option_file::OptionSources;
use tailwater_session::{ConnectOptions, Connection};

use super::cluster_discovery::DiscoveredCluster;
use super::setup_plan::{ExistingSetup, FileChange, PlannedFile, SetupPlan, SetupStatement, SetupWishes};

/// Reads the files of an earlier setup, if any. Does not read the account on the server.
///
/// # Errors
/// If a file exists and cannot be read.
pub fn read_existing(wishes: &SetupWishes) -> anyhow::Result<ExistingSetup> {
    let config = match fs::read_to_string(&wishes.config) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", wishes.config.display())),
    };
    let option_file = wishes.option_file();
    let password = if option_file.exists() {
        let sources = OptionSources { defaults_file: Some(option_file), groups: Vec::new() };
        // Environment variables are not read: they have the administrator's password, not the account's.
        let options = sources.load_from(|_| None)?;
        Some(options.password.map(|password| password.expose().to_owned()))
    } else {
        None
    };
    let has_replica_password = wishes.replica_password_file().exists();
    Ok(ExistingSetup { config, password, has_replica_password, account: None })
}

/// The user and group that own the written files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOwner {
    /// The user's number.
    pub user: u32,
    /// The number of the user's group.
    pub group: u32,
}

impl FileOwner {
    /// Finds a user in /etc/passwd.
    pub fn named(name: &str) -> Option<Self> {
        let accounts = fs::read_to_string("/etc/passwd").ok()?;
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next()? != name {
                return None;
            }
            let mut numbers = fields.skip(1).map(str::parse);
            Some(Self { user: numbers.next()?.ok()?, group: numbers.next()?.ok()? })
        })
    }
}

/// Executes the plan: first writes the files with passwords, then runs the statements, and finally writes the
/// configuration. Calls `done` with a text for each finished step. After a failure, another call executes the
/// remaining steps.
///
/// # Errors
/// The error of the first step that fails, with the path or the statement.
pub async fn execute(
    plan: &SetupPlan,
    admin: &ConnectOptions,
    owner: Option<FileOwner>,
    mut done: impl FnMut(String),
) -> anyhow::Result<()> {
    if let [refusal, ..] = plan.refusals.as_slice() {
        bail!("{refusal}");
    }
    let Some((config, secrets)) = plan.files.split_last() else { bail!("the plan has no configuration") };
    for file in secrets {
        write(file, owner)?.into_iter().for_each(&mut done);
    }
    run_statements(&plan.statements, admin, &mut done).await?;
    write(config, owner)?.into_iter().for_each(&mut done);
    Ok(())
}

/// Time limit for a replica to get the new account by replication.
const REPLICA_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two attempts to log in to a replica.
const POLL: Duration = Duration::from_millis(100);

/// Waits until each replica has the account, which it gets by replication. Returns the replicas that do not
/// have the account within the time limit.
pub async fn wait_for_replicas(
    cluster: &DiscoveredCluster,
    wishes: &SetupWishes,
    admin: &ConnectOptions,
) -> anyhow::Result<Vec<String>> {
    let password = read_existing(wishes)?.password.flatten().unwrap_or_default();
    let login = ConnectOptions { user: wishes.account.0.clone(), ..admin.clone() }.password(password);
    let deadline = Instant::now() + REPLICA_TIMEOUT;
    let mut without = Vec::new();
    for replica in &cluster.replicas {
        let login = ConnectOptions { endpoint: replica.endpoint.clone(), ..login.clone() };
        loop {
            match Connection::connect(&login).await {
                Ok(connection) => break connection.close().await,
                Err(error) if Instant::now() > deadline => {
                    without.push(format!("{}: {error}", replica.endpoint));
                    break;
                }
                Err(_) => tokio::time::sleep(POLL).await,
            }
        }
    }
    Ok(without)
}

/// Executes statements on a server.
///
/// # Errors
/// The first statement that fails, without its password, and the error.
pub async fn run_statements(
    statements: &[SetupStatement],
    admin: &ConnectOptions,
    done: &mut impl FnMut(String),
) -> anyhow::Result<()> {
    if statements.is_empty() {
        return Ok(());
    }
    let mut connection = Connection::connect(admin).await?;
    for statement in statements {
        connection.execute(&statement.sql).await.map_err(|error| {
            // The server's message may repeat the statement, and so the password.
            let server = match &error {
                tailwater_session::SessionError::Server { error, .. } => format!("error {}", error.number),
                _ => "the connection to the server failed".to_owned(),
            };
            let text = if statement.shown == statement.sql { error.to_string() } else { server };
            anyhow::anyhow!("{}: {text}", statement.shown)
        })?;
        done(format!("{};", statement.shown));
    }
    connection.close().await;
    Ok(())
}

/// Writes a file under a temporary name and renames it. Returns a text for each finished step.
fn write(file: &PlannedFile, owner: Option<FileOwner>) -> anyhow::Result<Vec<String>> {
    let mut done = Vec::new();
    let path = &file.path;
    if file.change == FileChange::Keep {
        return Ok(done);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    if file.change == FileChange::Replace {
        let kept = with_ending(path, ".before-init");
        fs::copy(path, &kept)
            .with_context(|| format!("cannot copy {} to {}", path.display(), kept.display()))?;
        done.push(format!("kept the present {} as {}", path.display(), kept.display()));
    }
    let mode = if file.is_secret { 0o600 } else { 0o640 };
    let new = with_ending(path, ".new");
    write_new(&new, file, mode, owner).with_context(|| format!("cannot write {}", new.display()))?;
    let renamed = match file.change {
        // Unlike a rename, a link does not replace a file that another process has created in the meantime.
        FileChange::Create => fs::hard_link(&new, path).and_then(|()| fs::remove_file(&new)),
        _ => fs::rename(&new, path),
    };
    renamed.with_context(|| format!("cannot write {}", path.display()))?;
    fs::File::open(folder).and_then(|folder| folder.sync_all())?;
    done.push(format!("wrote {} (mode {mode:04o})", path.display()));
    Ok(done)
}

fn write_new(new: &Path, file: &PlannedFile, mode: u32, owner: Option<FileOwner>) -> std::io::Result<()> {
    match fs::remove_file(new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut handle = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(new)?;
    handle.set_permissions(fs::Permissions::from_mode(mode))?;
    if let Some(owner) = owner {
        chown(new, Some(owner.user), Some(owner.group))?;
    }
    handle.write_all(file.content.as_bytes())?;
    handle.sync_all()
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
