//! The replication account, and semi-sync of both sides.

use tailwater_session::{ConnectOptions, Endpoint, TlsMode, TlsOptions};
use tailwater_wire::Flavour;

use crate::error::SandboxError;
use crate::server::{Server, ServerSpec};

/// The account that Tailwater and native replicas log in with.
pub const REPLICATION_USER: &str = "tailwater";
/// Its password. The servers listen on loopback only and hold nothing but test data.
pub const REPLICATION_PASSWORD: &str = "sandbox-tailwater";

/// How long a commit waits for an acknowledgement before the server gives up on semi-sync: 23 days, so never
/// in a test (and below 2^31 ms, beyond which deadlines overflow in some releases).
const ACK_TIMEOUT_MS: u32 = 2_000_000_000;

/// One semi-sync variable: its name without the prefix, and its value.
type SemiSyncSetting = (&'static str, String);

fn source_settings(flavour: Flavour) -> (&'static str, Vec<SemiSyncSetting>) {
    let wait_nobody = match flavour {
        Flavour::MySql => "wait_no_replica",
        Flavour::MariaDb => "wait_no_slave",
    };
    // Enabled last: with the huge time-out in place already, no commit can slip through in between.
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

/// In MySQL each side is a plug-in; in MariaDB both are built in.
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

/// Options of a source whose every commit waits for an acknowledgement.
pub(crate) fn semi_sync_source_options(flavour: Flavour) -> Vec<String> {
    as_options(source_settings(flavour))
}

/// Options of a replica that acknowledges.
pub(crate) fn semi_sync_replica_options(flavour: Flavour) -> Vec<String> {
    as_options(replica_settings(flavour))
}

impl ServerSpec {
    /// Lossless semi-sync from the first commit on and over restarts: every commit waits, without limit,
    /// until a replica has acknowledged it, before engines commit it (`AFTER_SYNC`) and before the client
    /// gets its OK.
    ///
    /// Create accounts with `sql_log_bin=0`, as [`Server::create_replication_user`] does; otherwise the
    /// statement waits for an acknowledgement.
    pub fn semi_sync_source(self) -> Self {
        let options = semi_sync_source_options(self.kind.flavour());
        self.options(options)
    }

    /// The replica's side of semi-sync.
    pub fn semi_sync_replica(self) -> Self {
        let options = semi_sync_replica_options(self.kind.flavour());
        self.options(options)
    }
}

impl Server {
    /// How the superuser connects over TCP: `root`, no password, no TLS.
    pub fn connect_options(&self) -> ConnectOptions {
        self.options_for(Endpoint::tcp("127.0.0.1", self.port()), "root", "")
    }

    /// How the superuser connects through the Unix socket.
    pub fn socket_options(&self) -> ConnectOptions {
        self.options_for(Endpoint::unix(self.socket()), "root", "")
    }

    /// How the replication account connects, once [`Self::create_replication_user`] has made it.
    pub fn replication_options(&self) -> ConnectOptions {
        let endpoint = Endpoint::tcp("127.0.0.1", self.port());
        self.options_for(endpoint, REPLICATION_USER, REPLICATION_PASSWORD)
    }

    fn options_for(&self, endpoint: Endpoint, user: &str, password: &str) -> ConnectOptions {
        // Loopback needs no TLS, and measurements must not pay for it.
        let tls = TlsOptions { mode: TlsMode::Off, ..TlsOptions::default() };
        ConnectOptions::new(endpoint, user).password(password).tls(tls)
    }

    /// Creates the account [`REPLICATION_USER`] with only the privileges for capture, and returns its
    /// connection options. It does not write to the binlog, so it works under semi-sync too. Can be repeated.
    ///
    /// # Errors
    /// [`SandboxError::Client`] with the server's message.
    pub async fn create_replication_user(&self) -> Result<ConnectOptions, SandboxError> {
        self.sql(&account_statements()).await?;
        Ok(self.replication_options())
    }

    /// Enables the source's side of lossless semi-sync at run time; a restart resets it (see
    /// [`ServerSpec::semi_sync_source`]).
    ///
    /// # Errors
    /// [`SandboxError::Client`] with the server's message.
    pub async fn enable_semi_sync_source(&self) -> Result<(), SandboxError> {
        self.enable(source_settings(self.kind().flavour())).await
    }

    /// Enables the replica's side of semi-sync at run time.
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

    /// Semi-sync status: whether it is active, the connected replicas, and the number of commits without an
    /// acknowledgement.
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

/// Creates the replication account without writing to the binlog.
pub(crate) fn account_statements() -> String {
    format!(
        "SET SESSION sql_log_bin=0;
         CREATE USER IF NOT EXISTS {REPLICATION_USER}@'%' IDENTIFIED BY '{REPLICATION_PASSWORD}';
         GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {REPLICATION_USER}@'%';"
    )
}

/// Option file lines of a server in a managed cluster: others can follow it, and it can become primary. The
/// source waits for acknowledgements after a restart too. The others are read-only, do not acknowledge
/// (Tailwater does), and have semi-sync loaded but off.
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

/// Creates the account with which Tailwater captures, manages and rejoins, on a server that may be read-only,
/// without writing to the binlog.
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

/// Semi-sync status of a source, for tests. Not `tailwater_session::semi_sync`, whose results tests compare with
/// it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SemiSyncStatus {
    /// Commits wait for acknowledgements now.
    pub on: bool,
    /// Semi-sync replicas connected now.
    pub replicas: u64,
    /// Commits that were acknowledged since the server started.
    pub acknowledged: u64,
    /// Commits that were not, since the server started.
    pub unacknowledged: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semi_sync_is_spelt_in_each_family() {
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
