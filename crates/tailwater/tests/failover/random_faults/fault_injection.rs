//! Injects a fault into a cluster, and ends the fault.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tailwater_sandbox::ChildProcess;

use super::fault_types::Fault;
use super::test_cluster::Cluster;
use crate::shell_session::PROGRAM;

/// Time limit for a manager to replace a primary, if the replacement is possible.
const REPLACED: Duration = Duration::from_secs(60);

/// How long the test waits for a replacement of the primary if that replacement may be impossible or refused.
const PERHAPS_REPLACED: Duration = Duration::from_secs(8);

async fn pause(random: &mut StdRng, milliseconds: Range<u64>) -> u64 {
    let chosen = random.random_range(milliseconds);
    tokio::time::sleep(Duration::from_millis(chosen)).await;
    chosen
}

impl Cluster {
    /// Injects the fault into the cluster whose primary is `leader`, and ends the fault. Returns a
    /// description of what happened.
    pub async fn inject(&mut self, fault: Fault, leader: &str, random: &mut StdRng) -> Result<String> {
        match fault {
            Fault::KillPrimary => {
                self.server_mut(leader)?.kill().await?;
                self.replaced_and_restarted(leader, random).await
            }
            Fault::KillPrimaryForAMoment => {
                self.server_mut(leader)?.kill().await?;
                let after = pause(random, 0..700).await;
                self.start_again(leader, true).await?;
                Ok(format!("started again after {after} ms"))
            }
            Fault::KillPrimaryAndItsSuccessor => {
                self.server_mut(leader)?.kill().await?;
                self.replaced_and_restarted(leader, random).await?;
                let successor = self.report().await.context("the manager does not answer")?.primary;
                let after = pause(random, 0..4_000).await;
                self.server_mut(&successor)?.kill().await?;
                let effect = self.replaced_and_restarted(&successor, random).await?;
                Ok(format!("{successor} after {after} ms, {effect}"))
            }
            Fault::FreezePrimary => self.freeze_primary(leader, random).await,
            Fault::KillPrimaryAndDaemon => {
                self.server_mut(leader)?.kill().await?;
                let after = pause(random, 0..1_500).await;
                self.trial.kill_relay().await?;
                pause(random, 0..500).await;
                self.trial.start_relay()?;
                pause(random, 0..3_000).await;
                self.start_again(leader, true).await?;
                Ok(format!("the daemon after {after} ms"))
            }
            Fault::KillPrimaryBehindFrozenDaemon => {
                self.trial.relay().context("the daemon is not running")?.pause()?;
                let after = pause(random, 0..500).await;
                self.server_mut(leader)?.kill().await?;
                pause(random, 0..5_000).await;
                self.trial.relay().context("the daemon is not running")?.resume()?;
                let effect = self.replaced_and_restarted(leader, random).await?;
                Ok(format!("{after} ms after the daemon, {effect}"))
            }
            Fault::KillReplica => {
                let name = self.any_replica(leader, random)?;
                self.server_mut(&name)?.kill().await?;
                pause(random, 0..3_000).await;
                self.start_again(&name, false).await?;
                Ok(name)
            }
            Fault::FreezeReplica => {
                let name = self.any_replica(leader, random)?;
                self.server_mut(&name)?.pause()?;
                pause(random, 0..4_000).await;
                self.server_mut(&name)?.resume()?;
                Ok(name)
            }
            Fault::KillDaemon => {
                self.trial.kill_relay().await?;
                let after = pause(random, 0..1_500).await;
                self.trial.start_relay()?;
                Ok(format!("started again after {after} ms"))
            }
            Fault::FreezeDaemon => {
                self.trial.relay().context("the daemon is not running")?.pause()?;
                let after = pause(random, 0..6_000).await;
                self.trial.relay().context("the daemon is not running")?.resume()?;
                Ok(format!("for {after} ms"))
            }
            Fault::CutDaemonFromPrimary(way) => {
                way.cut(&self.ways[leader]);
                let after = pause(random, 0..6_000).await;
                self.ways[leader].restore();
                Ok(format!("for {after} ms"))
            }
            Fault::CutDaemonFromAll(way) => {
                self.ways.values().for_each(|link| way.cut(link));
                let after = pause(random, 0..6_000).await;
                self.ways.values().for_each(|link| link.restore());
                Ok(format!("for {after} ms"))
            }
            Fault::CutReplicasFromLog(way) => {
                way.cut(&self.log_way);
                let after = pause(random, 0..6_000).await;
                self.log_way.restore();
                Ok(format!("for {after} ms"))
            }
            Fault::CutClients(way) => {
                way.cut(&self.front);
                let after = pause(random, 0..3_000).await;
                self.front.restore();
                Ok(format!("for {after} ms"))
            }
            Fault::FillDiskOfPrimary => {
                self.disk(leader)?.fill()?;
                let after = pause(random, 0..6_000).await;
                self.disk(leader)?.make_room()?;
                if self.server_mut(leader)?.is_running() {
                    return Ok(format!("for {after} ms"));
                }
                self.start_again(leader, true).await?;
                Ok(format!("for {after} ms, and it ended itself"))
            }
            Fault::FillDiskOfLog => self.fill_disk_of_log(random).await,
            Fault::SwitchOverAndKillCommand => {
                let command = self.switch_over()?;
                let after = pause(random, 0..1_500).await;
                command.kill().await?;
                Ok(format!("after {after} ms"))
            }
            Fault::SwitchOverAndKillDaemon => {
                let command = self.switch_over()?;
                let after = pause(random, 0..1_500).await;
                self.trial.kill_relay().await?;
                command.kill().await?;
                pause(random, 0..500).await;
                self.trial.start_relay()?;
                Ok(format!("after {after} ms"))
            }
            Fault::StepClockAndKillPrimary => {
                let effect = self.step_clock(random)?;
                pause(random, 0..1_000).await;
                self.server_mut(leader)?.kill().await?;
                Ok(format!("{effect}, {}", self.replaced_and_restarted(leader, random).await?))
            }
            Fault::StepClockAndFreezePrimary => {
                self.server_mut(leader)?.pause()?;
                let effect = self.step_clock(random)?;
                Ok(format!("{effect}, {}", self.frozen_until_replaced(leader, random).await?))
            }
        }
    }

    fn any_replica(&self, leader: &str, random: &mut StdRng) -> Result<String> {
        self.names_but(leader).choose(random).cloned().context("the cluster has no replica")
    }

    /// Waits until a killed primary is replaced, and then starts it again.
    async fn replaced_and_restarted(&mut self, leader: &str, random: &mut StdRng) -> Result<String> {
        ensure!(self.is_replaced(leader, REPLACED).await, "no server has replaced the primary {leader}");
        let after = pause(random, 0..1_000).await;
        self.start_again(leader, true).await?;
        Ok(format!("replaced, and started again {after} ms later"))
    }

    async fn freeze_primary(&mut self, leader: &str, random: &mut StdRng) -> Result<String> {
        self.server_mut(leader)?.pause()?;
        self.frozen_until_replaced(leader, random).await
    }

    /// Waits until a frozen primary is replaced, then lets it continue. The manager does not replace a
    /// MariaDB server that might accept commits without ACKs after a restart. While the server is frozen, the
    /// manager cannot check whether the server would do so.
    async fn frozen_until_replaced(&mut self, leader: &str, random: &mut StdRng) -> Result<String> {
        let waits = self.report().await.and_then(|report| report.waits_after_restart).unwrap_or(false);
        let patience = if waits { REPLACED } else { PERHAPS_REPLACED };
        let replaced = self.is_replaced(leader, patience).await;
        ensure!(replaced || !waits, "no server replaces the frozen primary");
        pause(random, 0..1_000).await;
        self.server_mut(leader)?.resume()?;
        Ok(if replaced { "replaced" } else { "not replaced" }.to_owned())
    }

    async fn fill_disk_of_log(&mut self, random: &mut StdRng) -> Result<String> {
        self.disk("log")?.fill()?;
        let after = pause(random, 500..4_000).await;
        let ended = !self.trial.relay().context("the daemon is not running")?.is_running();
        if ended {
            // A service manager would start the daemon again and again. This test makes one attempt, which
            // fails.
            self.trial.start_relay()?;
            pause(random, 0..1_000).await;
        }
        self.disk("log")?.make_room()?;
        // A daemon that fails at a write to the full disk may end a moment later.
        for _ in 0..30 {
            if !self.trial.relay().context("the daemon is not running")?.is_running() {
                self.trial.start_relay()?;
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(format!(
            "for {after} ms, {}",
            if ended { "the daemon ended itself" } else { "the daemon continues" }
        ))
    }

    /// Starts the command for a switchover to another server.
    fn switch_over(&self) -> Result<ChildProcess> {
        let config = self.shell.path().join("tailwater.toml").display().to_string();
        let words = ["switchover", "-c", &config, "--max-write-pause-ms", "5000", "primary"];
        Ok(ChildProcess::start(PROGRAM, words, &self.shell.path().join("switchover.log"))?)
    }

    fn step_clock(&self, random: &mut StdRng) -> Result<String> {
        let farthest =
            *[2_000, 60_000, 3_600_000].choose(random).context("the list of clock steps is empty")?;
        let beside_ms = random.random_range(-farthest..=farthest);
        self.clock
            .as_ref()
            .context("this machine does not let the test set the daemon's clock")?
            .set_offset_ms(beside_ms)?;
        Ok(format!("the clock was set wrong by {beside_ms} ms"))
    }
}
