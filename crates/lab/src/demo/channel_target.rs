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

use crate::trial::SOURCE_NAME;
use tailwater_daemon::api::commands::{ControlAnswer, ControlCommand};
use tailwater_daemon::socket::{ask, socket_of};

/// The channel's name.
const CHANNEL: &str = "applied";

/// How long it may take to apply the rest of the log after the load has ended.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server without native replication, and the channel that applies to it.
#[derive(Debug)]
pub struct ChannelTarget {
    server: Server,
    socket: PathBuf,
}

/// Its final state.
#[derive(Debug, Default)]
pub struct ChannelTargetOutcome {
    /// Source transactions applied since Tailwater's last start.
    pub transactions: u64,
    /// Target transactions they were committed in.
    pub commits: u64,
    /// Whether it has exactly the rows of the ledger, and the table checksums of a native replica.
    pub equal: bool,
    /// Problems, as text.
    pub complaints: Vec<String>,
}

impl ChannelTarget {
    /// Starts the server; the relay's files are in `folder`.
    ///
    /// # Errors
    /// If it cannot be started.
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

    /// The channel in the relay's configuration.
    pub fn channel_config(&self) -> String {
        format!(
            "\n[[channel]]\nname = \"{CHANNEL}\"\nsource = \"{SOURCE_NAME}\"\nsocket = {:?}\nuser = \"root\"\n",
            self.server.socket()
        )
    }

    /// Status of the channel; `None` while the relay does not answer.
    pub fn status(&self) -> Option<ChannelStatus> {
        match ask(&self.socket, &ControlCommand::List).ok()? {
            ControlAnswer::Channels(channels) => channels.into_iter().find(|channel| channel.name == CHANNEL),
            _ => None,
        }
    }

    /// Waits until it has applied everything in `log`, and compares its tables with the ledger and with
    /// `replica`'s.
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
        let wanted = LogDir::open_read_only(log)?.gtid_set()?.context("the log is empty")?;
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
                    outcome
                        .complaints
                        .push(format!("the applied replica does not reach the end: it has {}", status.gtids));
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
            outcome.complaints.push(format!("the applied replica differs from the ledger: {report}"));
        }
        for table in WorkloadTable::ALL {
            let checksum = format!("CHECKSUM TABLE tw_load.{} EXTENDED", table.name());
            let (ours, theirs) = (self.server.sql(&checksum).await?, replica.sql(&checksum).await?);
            if ours != theirs {
                outcome.complaints.push(format!(
                    "checksum {} on the applied replica, {} on a native one",
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
    /// If it does not stop.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        Ok(self.server.stop().await?)
    }
}
