//! Decides what `tailwater init` does, from the state of the servers and the existing files.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tailwater_session::{AccountPurpose, TlsOptions, grant_statement};
use tailwater_topology::server_state::WaitPoint;
use tailwater_wire::Flavour;
use tailwater_wire::sql_quote::string_literal;

use super::cluster_discovery::{AccountState, DiscoveredCluster, name_of};
use super::config_text::{ChosenSettings, config_text};
use super::generated_password;

/// The first `server_id` that is tried for the capture.
const SERVER_ID_FIRST: u32 = 4201;

/// A semi-sync timeout of 23 days, in milliseconds. In practice it is never reached.
const TIMEOUT_MS: u64 = 2_000_000_000;

/// The user's wishes for the setup.
#[derive(Debug, Clone)]
pub struct SetupWishes {
    /// The name of the source in the configuration.
    pub source_name: String,
    /// The configuration to write.
    pub config: PathBuf,
    /// The folder of the log, in the form in which the configuration has it.
    pub log_directory: PathBuf,
    /// User and host of the account on the servers.
    pub account: (String, String),
    /// Whether commits must wait for the log.
    pub semi_sync: bool,
    /// Whether the configuration has a [manager] section, which lets the daemon watch the cluster and change
    /// its primary.
    pub manager: bool,
    /// The address at which replicas can read the log; `None` if they cannot.
    pub serve: Option<SocketAddr>,
    /// How connections are encrypted.
    pub tls: TlsOptions,
    /// Whether an existing configuration with other contents may be replaced.
    pub overwrite: bool,
    /// Whether an existing account whose password is not known may get a new password.
    pub reset_password: bool,
}

impl SetupWishes {
    /// What the account is used for.
    pub fn purposes(&self) -> Vec<AccountPurpose> {
        let mut purposes = vec![AccountPurpose::Capture, AccountPurpose::Probe];
        purposes.extend(self.manager.then_some(AccountPurpose::Failover));
        purposes
    }

    /// The option file with the account's password.
    pub fn option_file(&self) -> PathBuf {
        self.config.with_file_name(format!("{}.cnf", self.source_name))
    }

    /// The file with the password of the replicas' account.
    pub fn replica_password_file(&self) -> PathBuf {
        self.config.with_file_name(format!("{}.repl.password", self.source_name))
    }
}

/// The files and the account of an earlier setup.
#[derive(Debug, Clone, Default)]
pub struct ExistingSetup {
    /// The text of the configuration; `None` if there is no configuration.
    pub config: Option<String>,
    /// The password in the option file. `None` if there is no such file, `Some(None)` if the file has no
    /// password.
    pub password: Option<Option<String>>,
    /// Whether the file with the password of the replicas' account exists.
    pub has_replica_password: bool,
    /// The account on the primary; `None` before the server is queried for it.
    pub account: Option<AccountState>,
}

/// An SQL statement, and the text that is printed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupStatement {
    /// The text that is printed, without the password.
    pub shown: String,
    /// The statement that is sent to the server.
    pub sql: String,
}

impl SetupStatement {
    fn plain(sql: impl Into<String>) -> Self {
        let sql = sql.into();
        Self { shown: sql.clone(), sql }
    }
}

/// What happens to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange {
    /// The file does not exist and is created.
    Create,
    /// The file exists and stays as it is.
    Keep,
    /// The file is replaced. The old file is kept under its name with the ending `.before-init`.
    Replace,
}

/// A file of the setup.
#[derive(Debug, Clone)]
pub struct PlannedFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The content of the file.
    pub content: String,
    /// Whether the content is a secret. Then the file has mode 0600, and its content is not printed.
    pub is_secret: bool,
    /// What happens to the file.
    pub change: FileChange,
}

/// What `tailwater init` does.
#[derive(Debug, Clone)]
pub struct SetupPlan {
    /// The reasons why the setup cannot be executed. If there is a reason, nothing is changed.
    pub refusals: Vec<String>,
    /// Notes for the user about consequences of the plan.
    pub notes: Vec<String>,
    /// Statements to run on the primary, in this order. They write no rows, and do not make commits wait.
    pub statements: Vec<SetupStatement>,
    /// Files, in the order in which they are written; the last one is the configuration.
    pub files: Vec<PlannedFile>,
    /// Statements to run on the primary after the daemon has started. They make commits wait for the log.
    pub after_start: Vec<SetupStatement>,
    /// Lines to add to the primary's option file by hand. Without them, the server loses the settings at a
    /// restart.
    pub option_file_lines: Vec<String>,
}

impl SetupPlan {
    /// Returns whether the plan changes nothing, because an earlier setup has done everything.
    pub fn is_done(&self) -> bool {
        self.statements.is_empty() && self.files.iter().all(|file| file.change == FileChange::Keep)
    }
}

/// Plans the setup. `random` is the source of new passwords.
pub fn plan(
    cluster: &DiscoveredCluster,
    wishes: &SetupWishes,
    existing: &ExistingSetup,
    random: &mut impl rand::Rng,
) -> SetupPlan {
    let mut plan = SetupPlan {
        refusals: refusals(cluster, wishes, existing),
        notes: Vec::new(),
        statements: Vec::new(),
        files: Vec::new(),
        after_start: Vec::new(),
        option_file_lines: Vec::new(),
    };
    let password = plan_password(&mut plan, wishes, existing, random);
    plan_account(&mut plan, cluster, wishes, existing, &password);
    if wishes.semi_sync {
        plan_semi_sync(&mut plan, cluster);
    }
    if wishes.serve.is_some() {
        let change = if existing.has_replica_password { FileChange::Keep } else { FileChange::Create };
        plan.files.push(PlannedFile {
            path: wishes.replica_password_file(),
            content: format!("{}\n", generated_password::generate(random)),
            is_secret: true,
            change,
        });
    }
    plan_config(&mut plan, cluster, wishes, existing);
    plan.refusals.extend(waits_for_ack(&plan, cluster));
    plan.notes.extend(cluster.not_asked.iter().map(|unknown| {
        format!(
            "not all replicas could be queried: {unknown}; add a [[server]] section for each by hand, if the account can log in there"
        )
    }));
    plan
}

fn refusals(cluster: &DiscoveredCluster, wishes: &SetupWishes, existing: &ExistingSetup) -> Vec<String> {
    let state = &cluster.primary.state;
    let endpoint = &cluster.primary.endpoint;
    let mut refusals = Vec::new();
    if let Some(channel) = state.channels.first() {
        refusals.push(format!(
            "{endpoint} is a replica of {}:{}: name the primary of the cluster instead",
            channel.source_host, channel.source_port
        ));
    }
    if !state.log_bin {
        refusals
            .push(format!("{endpoint} writes no binlog: restart that server with log_bin, and try again"));
    }
    if existing.account == Some(AccountState::UnknownPassword) && !wishes.reset_password {
        let (user, host) = &wishes.account;
        refusals.push(format!(
            "the account '{user}'@'{host}' exists, and {} does not have its password: write the password into that file, specify \
             another account with --account, or set a new password with --reset-password",
            wishes.option_file().display()
        ));
    }
    if existing.password == Some(None) {
        refusals.push(format!(
            "{} exists, but its section [client] has no password: remove the file",
            wishes.option_file().display()
        ));
    }
    refusals
}

/// Returns why the statements would wait forever: each commit waits for an ACK, but no client that sends ACKs
/// is connected. `None` if they would not wait.
fn waits_for_ack(plan: &SetupPlan, cluster: &DiscoveredCluster) -> Option<String> {
    let source = cluster.primary.state.semi_sync_source.as_ref()?;
    let waits =
        source.enabled && source.active && source.clients < source.acks_needed && source.wait_no_replica;
    (waits && !plan.statements.is_empty()).then(|| {
        format!(
            "semi-sync is enabled on {}, but no replica acknowledges commits, so the statements would wait forever. Disable semi-sync \
             (SET GLOBAL ..._enabled = OFF) until the daemon has started",
            cluster.primary.endpoint
        )
    })
}

/// Plans the option file, and returns the password.
fn plan_password(
    plan: &mut SetupPlan,
    wishes: &SetupWishes,
    existing: &ExistingSetup,
    random: &mut impl rand::Rng,
) -> String {
    let known = existing.password.clone().flatten();
    let change = if known.is_some() { FileChange::Keep } else { FileChange::Create };
    let password = known.unwrap_or_else(|| generated_password::generate(random));
    plan.files.push(PlannedFile {
        path: wishes.option_file(),
        content: format!("[client]\npassword = \"{password}\"\n"),
        is_secret: true,
        change,
    });
    password
}

fn plan_account(
    plan: &mut SetupPlan,
    cluster: &DiscoveredCluster,
    wishes: &SetupWishes,
    existing: &ExistingSetup,
    password: &str,
) {
    let (user, host) = &wishes.account;
    let account = format!("{}@{}", string_literal(user), string_literal(host));
    let with_password = |verb: &str| SetupStatement {
        shown: format!("{verb} {account} IDENTIFIED BY '***'"),
        sql: format!("{verb} {account} IDENTIFIED BY {}", string_literal(password)),
    };
    let lacks = match &existing.account {
        Some(AccountState::Usable { lacks }) => lacks.clone(),
        Some(AccountState::UnknownPassword) => {
            plan.statements.push(with_password("ALTER USER"));
            wishes.purposes()
        }
        Some(AccountState::Absent) | None => {
            plan.statements.push(with_password("CREATE USER"));
            wishes.purposes()
        }
    };
    let flavour = cluster.primary.state.flavour;
    for purpose in &lacks {
        plan.statements.push(SetupStatement::plain(grant_statement(*purpose, flavour, &account)));
    }
    if flavour == Flavour::MySql && lacks.contains(&AccountPurpose::Failover) {
        plan.statements.push(SetupStatement::plain(format!("GRANT INSERT ON mysql.plugin TO {account}")));
    }
}

fn plan_semi_sync(plan: &mut SetupPlan, cluster: &DiscoveredCluster) {
    let state = &cluster.primary.state;
    let is_mysql = state.flavour == Flavour::MySql;
    let (set, prefix, no_replica) = match is_mysql {
        true => ("SET PERSIST", "rpl_semi_sync_source", "wait_no_replica"),
        false => ("SET GLOBAL", "rpl_semi_sync_master", "wait_no_slave"),
    };
    let statement =
        |name: &str, value: &str| SetupStatement::plain(format!("{set} {prefix}_{name} = {value}"));
    let source = state.semi_sync_source.as_ref();
    if source.is_none() && is_mysql {
        let install = "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'";
        plan.statements.push(SetupStatement::plain(install));
    }
    if source.is_none_or(|source| source.timeout_ms < TIMEOUT_MS) {
        plan.statements.push(statement("timeout", &TIMEOUT_MS.to_string()));
    }
    // The default is AFTER_COMMIT on MariaDB and AFTER_SYNC on MySQL. If the plugin is not loaded yet, the
    // value is not known.
    if source.is_none_or(|source| source.wait_point == WaitPoint::AfterCommit) {
        plan.statements.push(statement("wait_point", "'AFTER_SYNC'"));
    }
    if source.is_none_or(|source| !source.wait_no_replica) {
        plan.after_start.push(statement(no_replica, "ON"));
    }
    if source.is_none_or(|source| !source.enabled) {
        plan.after_start.push(statement("enabled", "ON"));
        plan.notes.push(format!(
            "semi-sync is enabled after the daemon has started. From then on, commits on {} wait for the log, even while the daemon is down.",
            cluster.primary.endpoint
        ));
    }
    if !is_mysql && source.is_none_or(|source| !source.survives_restart) {
        plan.option_file_lines = vec![
            "[mariadb]".to_owned(),
            format!("{prefix}_enabled = ON"),
            format!("{prefix}_timeout = {TIMEOUT_MS}"),
            format!("{prefix}_wait_point = AFTER_SYNC"),
            format!("{prefix}_{no_replica} = ON"),
        ];
    }
}

fn plan_config(
    plan: &mut SetupPlan,
    cluster: &DiscoveredCluster,
    wishes: &SetupWishes,
    existing: &ExistingSetup,
) {
    let name =
        |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let content = config_text(
        cluster,
        wishes,
        &ChosenSettings {
            server_id: server_id(cluster, wishes, existing),
            option_file: &name(&wishes.option_file()),
            replica_password_file: &name(&wishes.replica_password_file()),
        },
    );
    let change = match &existing.config {
        None => FileChange::Create,
        Some(present) if *present == content => FileChange::Keep,
        Some(_) => FileChange::Replace,
    };
    let is_empty = existing.config.as_deref().is_none_or(has_no_setting);
    if change == FileChange::Replace && !is_empty && !wishes.overwrite {
        plan.refusals.push(format!(
            "{} exists with other contents: edit the file, specify another file with -c, or replace it with --overwrite (the old file gets the ending .before-init)",
            wishes.config.display()
        ));
    }
    plan.files.push(PlannedFile { path: wishes.config.clone(), content, is_secret: false, change });
}

/// Returns whether a configuration contains no setting, for example only comments, as in the installed
/// package.
fn has_no_setting(text: &str) -> bool {
    text.parse::<toml::Table>().is_ok_and(|table| table.is_empty())
}

impl ExistingSetup {
    /// Returns the `server_id` of the capture in the existing configuration.
    pub fn server_id(&self, source_name: &str) -> Option<u32> {
        let table: toml::Table = self.config.as_deref()?.parse().ok()?;
        let sources = table.get("source")?.as_array()?;
        let is_named =
            |source: &&toml::Value| source.get("name").and_then(toml::Value::as_str) == Some(source_name);
        let id = sources.iter().find(is_named)?.get("server_id")?.as_integer()?;
        u32::try_from(id).ok().filter(|id| *id > 0)
    }
}

/// Returns the `server_id` for the capture: the one in the existing configuration, or the first that no
/// server uses.
fn server_id(cluster: &DiscoveredCluster, wishes: &SetupWishes, existing: &ExistingSetup) -> u32 {
    if let Some(present) = existing.server_id(&wishes.source_name) {
        return present;
    }
    let servers = std::iter::once(&cluster.primary).chain(&cluster.replicas);
    let taken: Vec<u32> = servers
        .flat_map(|server| {
            let registered = server.state.replicas.iter().map(|replica| replica.server_id);
            registered.chain([server.state.server_id])
        })
        .collect();
    (SERVER_ID_FIRST..).find(|id| !taken.contains(id)).unwrap_or(SERVER_ID_FIRST)
}

/// Returns one line of text for each server of the cluster.
pub fn describe(cluster: &DiscoveredCluster) -> Vec<String> {
    let line = |role: &str, server: &super::cluster_discovery::DiscoveredServer| {
        let state = &server.state;
        format!(
            "{role} {}: {} {}, server_id {}",
            server.endpoint,
            name_of(state.flavour),
            state.version,
            state.server_id
        )
    };
    let replicas = cluster.replicas.iter().map(|replica| line("replica", replica));
    std::iter::once(line("primary", &cluster.primary)).chain(replicas).collect()
}
