//! The replication account, and semi-sync of sources and replicas.

use tailwater_session::{ConnectOptions, Endpoint, TlsMode, TlsOptions};
use tailwater_wire::Flavour;

use crate::error::SandboxError;
use crate::sandbox_server::{Server, ServerSpec};

/// User name of the account with which Tailwater and native replicas connect.
pub const REPLICATION_USER: &str = "tailwater";
/// Password of [`REPLICATION_USER`]. The servers listen only on the loopback address and contain only test
/// data.
pub const REPLICATION_PASSWORD: &str = "sandbox-tailwater";

/// How long a commit waits for an ACK before the server disables semi-sync, in milliseconds: 23 days, so it
/// never happens in a test. Values above 2^31 ms overflow in some releases.
const ACK_TIMEOUT_MS: u32 = 2_000_000_000;

/// One semi-sync variable: its name without the prefix, and its value.
type SemiSyncSetting = (&'static str, String);

fn source_settings(flavour: Flavour) -> (&'static str, Vec<SemiSyncSetting>) {
    let wait_nobody = match flavour {
        Flavour::MySql => "wait_no_replica",
        Flavour::MariaDb => "wait_no_slave",
    };
    // Semi-sync is enabled last, after the long timeout is set, so that no commit returns without an ACK.
    let settings = vec![
        ("timeout", ACK_TIMEOUT_MS.to_string()),
        ("wait_point", "AFTER_SYNC".to_owned()),
        (wait_nobody, "1".to_owned()),
        ("enabled", "1".to_owned()),
    ];
    match flavour {
        Flavour::MySql => ("rpl_semi_sync_source", settings),
        Flavour::MariaDb => ("rpl_semi_sync_master", settings),
    }
}

fn replica_settings(flavour: Flavour) -> (&'static str, Vec<SemiSyncSetting>) {
    match flavour {
        Flavour::MySql => ("rpl_semi_sync_replica", vec![("enabled", "1".to_owned())]),
        Flavour::MariaDb => ("rpl_semi_sync_slave", vec![("enabled", "1".to_owned())]),
    }
}

/// Returns the file name of a semi-sync plugin. MySQL has one plugin for the source and one for the replica;
/// in MariaDB both are built in.
fn plugin_file(prefix: &str) -> Option<&'static str> {
    match prefix {
        "rpl_semi_sync_source" => Some("semisync_source.so"),
        "rpl_semi_sync_replica" => Some("semisync_replica.so"),
        _ => None,
    }
}

fn as_options((prefix, settings): (&'static str, Vec<SemiSyncSetting>)) -> Vec<String> {
    let plugin = plugin_file(prefix).map(|file| format!("--plugin-load-add={file}"));
    let settings = settings
        .into_iter()
        .map(|(name, value)| format!("--{}={value}", format!("{prefix}_{name}").replace('_', "-")));
    plugin.into_iter().chain(settings).collect()
}

fn as_statements((prefix, settings): (&'static str, Vec<SemiSyncSetting>)) -> String {
    settings.into_iter().fold(String::new(), |sql, (name, value)| {
        let value =
            if value.bytes().all(|byte| byte.is_ascii_digit()) { value } else { format!("'{value}'") };
        sql + &format!("SET GLOBAL {prefix}_{name} = {value};")
    })
}

/// Returns the options of a source whose commits all wait for an ACK.
pub(crate) fn semi_sync_source_options(flavour: Flavour) -> Vec<String> {
    as_options(source_settings(flavour))
}

/// Returns the options of a replica that acknowledges.
pub(crate) fn semi_sync_replica_options(flavour: Flavour) -> Vec<String> {
    as_options(replica_settings(flavour))
}

impl ServerSpec {
    /// Enables lossless semi-sync from the first commit on, also after restarts. Each commit waits without a
    /// time limit until a replica has acknowledged it. The storage engines commit the transaction
    /// (`AFTER_SYNC`), and the client gets its OK, only after that.
    ///
    /// Create accounts with `sql_log_bin=0`, as [`Server::create_replication_user`] does. Otherwise the
    /// statement waits for an ACK.
    pub fn semi_sync_source(self) -> Self {
        let options = semi_sync_source_options(self.kind.flavour());
        self.options(options)
    }

    /// Enables the replica's side of semi-sync.
    pub fn semi_sync_replica(self) -> Self {
        let options = semi_sync_replica_options(self.kind.flavour());
        self.options(options)
    }
}

impl Server {
    /// Returns the connection options of the superuser over TCP: `root`, no password, no TLS.
    pub fn connect_options(&self) -> ConnectOptions {
        self.options_for(Endpoint::tcp("127.0.0.1", self.port()), "root", "")
    }

    /// Returns the connection options of the superuser over the Unix socket.
    pub fn socket_options(&self) -> ConnectOptions {
        self.options_for(Endpoint::unix(self.socket()), "root", "")
    }

    /// Returns the connection options of the replication account. [`Self::create_replication_user`] creates
    /// the account.
    pub fn replication_options(&self) -> ConnectOptions {
        let endpoint = Endpoint::tcp("127.0.0.1", self.port());
        self.options_for(endpoint, REPLICATION_USER, REPLICATION_PASSWORD)
    }

    fn options_for(&self, endpoint: Endpoint, user: &str, password: &str) -> ConnectOptions {
        // The loopback address needs no TLS, and TLS would distort measurements.
        let tls = TlsOptions { mode: TlsMode::Off, ..TlsOptions::default() };
        ConnectOptions::new(endpoint, user).password(password).tls(tls)
    }

    /// Creates the account [`REPLICATION_USER`] with only the privileges for capture, and returns its
    /// connection options. Writes nothing to the binlog, so it also works under semi-sync. It can be called
    /// again.
    ///
    /// # Errors
    /// [`SandboxError::Client`] with the server's message.
    pub async fn create_replication_user(&self) -> Result<ConnectOptions, SandboxError> {
        self.sql(&account_statements()).await?;
        Ok(self.replication_options())
    }

    /// Enables the source's side of lossless semi-sync while the server runs. A restart resets it (see
    /// [`ServerSpec::semi_sync_source`]).
    ///
    /// # Errors
    /// [`SandboxError::Client`] with the server's message.
    pub async fn enable_semi_sync_source(&self) -> Result<(), SandboxError> {
        self.enable(source_settings(self.kind().flavour())).await
    }

    /// Enables the replica's side of semi-sync while the server runs.
    ///
    /// # Errors
    /// [`SandboxError::Client`] with the server's message.
    pub async fn enable_semi_sync_replica(&self) -> Result<(), SandboxError> {
        self.enable(replica_settings(self.kind().flavour())).await
    }

    async fn enable(
        &self,
        (prefix, settings): (&'static str, Vec<SemiSyncSetting>),
    ) -> Result<(), SandboxError> {
        if let Some(file) = plugin_file(prefix) {
            let question = format!(
                "SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name='{prefix}' AND plugin_status='ACTIVE'"
            );
            if self.sql(&question).await? == ["0"] {
                self.sql(&format!("INSTALL PLUGIN {prefix} SONAME '{file}'")).await?;
            }
        }
        self.sql(&as_statements((prefix, settings))).await?;
        Ok(())
    }

    /// Returns the semi-sync status: whether it is active, the number of connected replicas, and the numbers
    /// of commits with and without an ACK.
    ///
    /// # Errors
    /// [`SandboxError::Client`] with the server's message.
    pub async fn semi_sync_status(&self) -> Result<SemiSyncStatus, SandboxError> {
        let (prefix, clients) = match self.kind().flavour() {
            Flavour::MySql => ("Rpl_semi_sync_source_", "clients"),
            Flavour::MariaDb => ("Rpl_semi_sync_master_", "clients"),
        };
        let mut status = SemiSyncStatus::default();
        for line in self.sql(&format!("SHOW GLOBAL STATUS LIKE '{prefix}%'")).await? {
            let Some((name, value)) = line.split_once('\t') else { continue };
            match name.strip_prefix(prefix) {
                Some("status") => status.on = value == "ON",
                Some("no_tx") => status.unacknowledged = value.parse().unwrap_or_default(),
                Some("yes_tx") => status.acknowledged = value.parse().unwrap_or_default(),
                Some(name) if name == clients => status.replicas = value.parse().unwrap_or_default(),
                _ => {}
            }
        }
        Ok(status)
    }
}

/// Returns the statements that create the replication account without writing to the binlog.
pub(crate) fn account_statements() -> String {
    format!(
        "SET SESSION sql_log_bin=0;
         CREATE USER IF NOT EXISTS {REPLICATION_USER}@'%' IDENTIFIED BY '{REPLICATION_PASSWORD}';
         GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {REPLICATION_USER}@'%';"
    )
}

/// Returns the option file lines of a server in a managed cluster. Each server can become primary and can
/// have replicas. The source also waits for ACKs after a restart. The replicas are read-only and do not
/// acknowledge, because Tailwater does. Their semi-sync plugin is loaded but disabled.
pub(crate) fn cluster_options(flavour: Flavour, is_source: bool) -> Vec<String> {
    let mut options: Vec<String> = semi_sync_source_options(flavour);
    let log_updates = match flavour {
        Flavour::MySql => "--log-replica-updates=1",
        Flavour::MariaDb => "--log-slave-updates=1",
    };
    options.extend([log_updates.to_owned(), "--binlog-format=ROW".to_owned()]);
    options.push("--report-host=127.0.0.1".to_owned());
    if !is_source {
        options.retain(|option| !option.ends_with("-enabled=1"));
        options.push("--read-only=1".to_owned());
        if flavour == Flavour::MySql {
            options.push("--super-read-only=1".to_owned());
        }
    }
    options.iter().map(|option| option.trim_start_matches("--").to_owned()).collect()
}

/// Returns the statements that create the account with which Tailwater captures, manages and rejoins. They
/// work on a read-only server, and write nothing to the binlog.
pub(crate) fn manager_account_statements(flavour: Flavour, is_read_only: bool) -> String {
    let account = account_statements();
    let all = format!("GRANT ALL PRIVILEGES ON *.* TO {REPLICATION_USER}@'%';");
    match (flavour, is_read_only) {
        (Flavour::MySql, true) => {
            format!("SET GLOBAL super_read_only = 0; {account} {all} SET GLOBAL super_read_only = 1;")
        }
        _ => format!("{account} {all}"),
    }
}

/// Semi-sync status of a source, for tests. It does not use `tailwater_session::semi_sync`, because tests
/// compare the results of that module with this status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SemiSyncStatus {
    /// Whether commits wait for ACKs now.
    pub on: bool,
    /// Number of semi-sync replicas that are connected now.
    pub replicas: u64,
    /// Number of acknowledged commits since the server started.
    pub acknowledged: u64,
    /// Number of commits without an ACK since the server started.
    pub unacknowledged: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semi_sync_options_have_the_names_of_each_family() {
        assert_eq!(
            as_options(source_settings(Flavour::MySql)),
            [
                "--plugin-load-add=semisync_source.so",
                "--rpl-semi-sync-source-timeout=2000000000",
                "--rpl-semi-sync-source-wait-point=AFTER_SYNC",
                "--rpl-semi-sync-source-wait-no-replica=1",
                "--rpl-semi-sync-source-enabled=1",
            ]
        );
        assert_eq!(
            as_statements(source_settings(Flavour::MariaDb)),
            "SET GLOBAL rpl_semi_sync_master_timeout = 2000000000;\
             SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC';\
             SET GLOBAL rpl_semi_sync_master_wait_no_slave = 1;\
             SET GLOBAL rpl_semi_sync_master_enabled = 1;"
        );
        assert_eq!(as_options(replica_settings(Flavour::MariaDb)), ["--rpl-semi-sync-slave-enabled=1"]);
    }
}
