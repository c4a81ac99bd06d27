//! The servers of `bench capture`: one primary, and the [`AckVariant`] that acknowledges its commits in the
//! current measurement.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tailwater_log::AckMode;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{Server, ServerKind, ServerSpec};
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use crate::fault_trial::{Trial, TrialDurability, TrialFolder, TrialSpec, primary_options};

/// What acknowledges the primary's commits in a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckVariant {
    /// No semi-sync: a commit exists only on the primary.
    NoSemiSync,
    /// A native replica that writes its relay log without fsync, acknowledges commits, and applies them.
    NativeReplica,
    /// A native replica that does not apply: only its I/O thread runs.
    NativeReceiver,
    /// Tailwater with fdatasync before the ACK.
    Durable,
    /// Tailwater with only a write(2) before the ACK.
    Received,
}

impl AckVariant {
    /// Every variant, in the order in which they take turns.
    pub const ALL: [Self; 5] =
        [Self::NoSemiSync, Self::NativeReplica, Self::NativeReceiver, Self::Durable, Self::Received];

    /// Returns the variant's name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSemiSync => "no semi-sync",
            Self::NativeReplica => "native semi-sync replica",
            Self::NativeReceiver => "native semi-sync, I/O thread only",
            Self::Durable => "tailwater durable",
            Self::Received => "tailwater received",
        }
    }

    fn ack_mode(self) -> Option<AckMode> {
        match self {
            Self::Durable => Some(AckMode::Durable),
            Self::Received => Some(AckMode::Received),
            Self::NoSemiSync | Self::NativeReplica | Self::NativeReceiver => None,
        }
    }
}

/// A primary with a native replica and a relay. At most one of these two is attached to the primary.
#[derive(Debug)]
pub struct Stage {
    /// The primary and the relay.
    pub trial: Trial,
    replica: Server,
    attached: AckVariant,
    _folder: TrialFolder,
}

impl Stage {
    /// Starts the servers, with no replica attached to the primary.
    ///
    /// # Errors
    /// If a server cannot be started.
    pub async fn start(kind: ServerKind, durability: TrialDurability) -> anyhow::Result<Self> {
        let folder = TrialFolder::new(None)?;
        let spec = TrialSpec {
            kind,
            durability,
            options: server_options(kind),
            ack: AckMode::Durable,
            program: std::env::current_exe()?,
            folder: folder.path().to_owned(),
        };
        let trial = Trial::start(spec).await?;
        // The replica has its fastest settings: no binlog, relaxed durability, parallel appliers.
        let mut replica = ServerSpec::new(kind)
            .name("replica")
            .options(["--server-id=2", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0"])
            .options(server_options(kind))
            .semi_sync_replica();
        match kind.flavour() {
            Flavour::MySql => replica = replica.options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]),
            Flavour::MariaDb => replica = replica.options(["--slave-parallel-threads=4"]),
        }
        let replica = Server::start(replica).await?;
        let mut stage = Self { trial, replica, attached: AckVariant::NoSemiSync, _folder: folder };
        stage.set_semi_sync(false).await?;
        prepare(&stage.trial.primary.connect_options()).await?;
        stage.replica.replicate_from(&stage.trial.primary).await?;
        stage.stop_replica().await?;
        Ok(stage)
    }

    /// Attaches `variant` to the primary instead of the current variant. Returns after a commit has
    /// completed.
    ///
    /// # Errors
    /// If the variant cannot be attached.
    pub async fn attach(&mut self, variant: AckVariant) -> anyhow::Result<()> {
        self.detach().await?;
        match variant {
            AckVariant::NoSemiSync => {}
            AckVariant::NativeReplica | AckVariant::NativeReceiver => {
                self.replica_skips_to_now().await?;
                let start = match (self.trial.primary.kind().flavour(), variant) {
                    (Flavour::MySql, AckVariant::NativeReplica) => "START REPLICA",
                    (Flavour::MySql, _) => "START REPLICA IO_THREAD",
                    (Flavour::MariaDb, AckVariant::NativeReplica) => "START SLAVE",
                    (Flavour::MariaDb, _) => "START SLAVE IO_THREAD",
                };
                self.replica.sql(start).await?;
            }
            AckVariant::Durable | AckVariant::Received => {
                self.trial.set_ack(variant.ack_mode().unwrap_or_default())?;
                self.trial.start_relay()?;
            }
        }
        self.attached = variant;
        if variant != AckVariant::NoSemiSync {
            self.set_semi_sync(true).await?;
            self.wait_attached().await?;
        }
        // A completed commit shows that the variant has caught up.
        let mut connection = Connection::connect(&self.trial.primary.connect_options()).await?;
        tokio::time::timeout(
            Duration::from_secs(60),
            connection.execute("CREATE TABLE IF NOT EXISTS tw_load.marker (a INT)"),
        )
        .await
        .with_context(|| format!("{} did not catch up", variant.name()))??;
        connection.close().await;
        Ok(())
    }

    /// Detaches all replicas from the primary and turns semi-sync off.
    ///
    /// # Errors
    /// If the relay ends with an error.
    pub async fn detach(&mut self) -> anyhow::Result<()> {
        self.set_semi_sync(false).await?;
        match self.attached {
            AckVariant::NoSemiSync => {}
            AckVariant::NativeReplica | AckVariant::NativeReceiver => self.stop_replica().await?,
            AckVariant::Durable | AckVariant::Received => self.trial.stop_relay().await?,
        }
        self.attached = AckVariant::NoSemiSync;
        Ok(())
    }

    /// Stops the servers.
    ///
    /// # Errors
    /// If a server does not stop.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.detach().await?;
        self.replica.stop().await?;
        self.trial.primary.stop().await?;
        Ok(())
    }

    async fn set_semi_sync(&mut self, on: bool) -> anyhow::Result<()> {
        let variable = match self.trial.primary.kind().flavour() {
            Flavour::MySql => "rpl_semi_sync_source_enabled",
            Flavour::MariaDb => "rpl_semi_sync_master_enabled",
        };
        self.trial.primary.sql(&format!("SET GLOBAL {variable} = {}", u8::from(on))).await?;
        Ok(())
    }

    async fn wait_attached(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            let status = self.trial.primary.semi_sync_status().await?;
            if status.replicas > 0 {
                return Ok(());
            }
            if begin.elapsed() > Duration::from_secs(60) {
                bail!(
                    "{} did not attach to the primary: {}",
                    self.attached.name(),
                    self.trial.relay_log_tail()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn stop_replica(&self) -> anyhow::Result<()> {
        let stop = match self.replica.kind().flavour() {
            Flavour::MySql => "STOP REPLICA",
            Flavour::MariaDb => "STOP SLAVE",
        };
        self.replica.sql(stop).await?;
        Ok(())
    }

    /// Makes the replica skip everything that was written while other variants were measured, because
    /// applying it would only take time. The load only inserts rows with new keys, so later transactions do
    /// not depend on skipped ones.
    async fn replica_skips_to_now(&self) -> anyhow::Result<()> {
        let one = |rows: Vec<String>| rows.into_iter().next().unwrap_or_default();
        match self.replica.kind().flavour() {
            Flavour::MySql => {
                let executed = one(self.trial.primary.sql("SELECT @@global.gtid_executed").await?);
                let executed = executed.replace("\\n", "");
                self.replica
                    .sql(&format!(
                        "RESET REPLICA; SET @skipped = GTID_SUBTRACT('{executed}', @@global.gtid_executed);
                         SET @statement = IF(@skipped = '', 'DO 0', CONCAT('SET GLOBAL gtid_purged = \"+', @skipped, '\"'));
                         PREPARE skip FROM @statement; EXECUTE skip"
                    ))
                    .await?;
            }
            Flavour::MariaDb => {
                let position = one(self.trial.primary.sql("SELECT @@global.gtid_binlog_pos").await?);
                self.replica.sql(&format!("SET GLOBAL gtid_slave_pos = '{position}'")).await?;
            }
        }
        Ok(())
    }
}

/// Returns the options of every server in the benchmark: enough memory that no page is read from disk, and no
/// background work.
fn server_options(kind: ServerKind) -> Vec<String> {
    let mut options = vec!["--innodb-buffer-pool-size=512M".to_owned(), "--max-connections=300".into()];
    match kind.flavour() {
        Flavour::MySql => options.push("--innodb-redo-log-capacity=1G".into()),
        Flavour::MariaDb => options.push("--innodb-log-file-size=512M".into()),
    }
    options
}

/// Starts a primary without semi-sync, for measurements of existing binlogs.
///
/// # Errors
/// If the primary cannot be started.
pub async fn plain_primary(kind: ServerKind) -> anyhow::Result<Server> {
    let spec = ServerSpec::new(kind)
        .name("primary")
        .options(primary_options(kind))
        .options(["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--max-binlog-size=1G"])
        .options(server_options(kind));
    let server = Server::start(spec).await?;
    server.create_replication_user().await?;
    Ok(server)
}
