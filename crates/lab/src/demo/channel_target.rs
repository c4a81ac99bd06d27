//! The demo's third server, to which a channel applies the log.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tailwater_apply::ChannelStatus;
use tailwater_log::LogDir;
use tailwater_sandbox::workload::WorkloadTable;
use tailwater_sandbox::{Ledger, Server, ServerKind, ServerSpec};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use crate::fault_trial::SOURCE_NAME;
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::control_socket::{ask, socket_of};

/// The name of the channel.
const CHANNEL: &str = "applied";

/// How long the channel may take to apply the rest of the log after the load has ended.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server without native replication, and the channel that applies to it.
#[derive(Debug)]
pub struct ChannelTarget {
    server: Server,
    socket: PathBuf,
}

/// The result of comparing the channel's target with the ledger and with a native replica at the end of the
/// demo.
#[derive(Debug, Default)]
pub struct ChannelTargetOutcome {
    /// Number of source transactions applied since Tailwater's last start.
    pub transactions: u64,
    /// Number of transactions that the channel committed on the target since Tailwater's last start. Each may
    /// contain several source transactions.
    pub commits: u64,
    /// Whether the target has exactly the rows of the ledger, and the same table checksums as a native
    /// replica.
    pub equal: bool,
    /// Problems that were found, as text.
    pub complaints: Vec<String>,
}

impl ChannelTarget {
    /// Starts the server. The relay's files are in `folder`.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub async fn start(kind: ServerKind, folder: &Path) -> anyhow::Result<Self> {
        let mut spec = ServerSpec::new(kind).name("applied").options([
            "--server-id=20".to_owned(),
            "--innodb-flush-log-at-trx-commit=0".into(),
            "--sync-binlog=0".into(),
        ]);
        if kind.flavour() == Flavour::MySql {
            spec = spec.options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]);
        }
        Ok(Self { server: Server::start(spec).await?, socket: socket_of(&folder.join("log")) })
    }

    /// Returns the `[[channel]]` section for the relay's configuration.
    pub fn channel_config(&self) -> String {
        format!(
            "\n[[channel]]\nname = \"{CHANNEL}\"\nsource = \"{SOURCE_NAME}\"\nsocket = {:?}\nuser = \"root\"\n",
            self.server.socket()
        )
    }

    /// Returns the status of the channel; `None` while the relay does not answer.
    pub fn status(&self) -> Option<ChannelStatus> {
        match ask(&self.socket, &ControlCommand::List).ok()? {
            ControlAnswer::Channels(channels) => channels.into_iter().find(|channel| channel.name == CHANNEL),
            _ => None,
        }
    }

    /// Waits until the channel has applied everything in `log`. Then compares the target's tables with the
    /// ledger and with those of `replica`.
    ///
    /// # Errors
    /// If the log cannot be read, or a server or the relay does not answer. Missing rows are not an error;
    /// they are in the [`ChannelTargetOutcome`].
    pub async fn compare_at_end(
        &self,
        log: &Path,
        ledger: &Ledger,
        replica: &Server,
    ) -> anyhow::Result<ChannelTargetOutcome> {
        let wanted = LogDir::open_read_only(log)?.gtid_set()?.context("Tailwater's log is empty")?;
        let started = Instant::now();
        let mut outcome = ChannelTargetOutcome::default();
        loop {
            if let Some(status) = self.status() {
                (outcome.transactions, outcome.commits) = (status.transactions_total, status.commits_total);
                let has = GtidSet::parse(wanted.flavour(), &status.gtids);
                if has.is_ok_and(|has| wanted.is_subset_of(&has)) {
                    break;
                }
                if started.elapsed() > PATIENCE {
                    outcome.complaints.push(format!(
                        "the channel's target did not reach the end of the log: it has {}",
                        status.gtids
                    ));
                    return Ok(outcome);
                }
            }
            ensure!(
                started.elapsed() < 2 * PATIENCE,
                "the relay does not answer at {}",
                self.socket.display()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let report = ledger.compare_with_server(&self.server.connect_options()).await?;
        let wrong =
            report.missing.count + report.altered.count + report.failed_but_present.count + report.unlisted;
        if wrong > 0 {
            outcome.complaints.push(format!("the channel's target differs from the ledger: {report}"));
        }
        for table in WorkloadTable::ALL {
            let checksum = format!("CHECKSUM TABLE tw_load.{} EXTENDED", table.name());
            let (ours, theirs) = (self.server.sql(&checksum).await?, replica.sql(&checksum).await?);
            if ours != theirs {
                outcome.complaints.push(format!(
                    "checksum {} on the channel's target, {} on a native replica",
                    ours.join(" "),
                    theirs.join(" ")
                ));
            }
        }
        outcome.equal = outcome.complaints.is_empty();
        Ok(outcome)
    }

    /// Stops the server.
    ///
    /// # Errors
    /// If the server does not stop.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        Ok(self.server.stop().await?)
    }
}
