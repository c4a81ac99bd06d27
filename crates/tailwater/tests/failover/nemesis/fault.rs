//! What is done to a cluster.

use tailwater_lab::trial::TrialDurability;
use tailwater_sandbox::link::{Direction, Link};

use super::cluster::Cluster;

/// Which bytes of a link vanish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// All.
    Both,
    /// Those to the server.
    There,
    /// Those from it.
    Back,
}

impl Way {
    pub fn cut(self, link: &Link) {
        match self {
            Self::Both => link.cut_both(),
            Self::There => link.cut(Direction::ToServer),
            Self::Back => link.cut(Direction::ToClient),
        }
    }
}

/// One fault. The primary is who leads when it comes; the daemon is relay and manager in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL; it comes back once it was replaced: rewound, where its own disk promises little.
    KillPrimary,
    /// SIGKILL; it comes back as soon as it can, while it is being replaced or not.
    KillPrimaryForAMoment,
    /// SIGKILL, and then of its successor while it is brought back.
    KillPrimaryAndItsSuccessor,
    /// SIGSTOP; it comes back to life with all its connections, whether it was replaced or not.
    FreezePrimary,
    /// SIGKILL of both, the daemon at some moment of what it does about the primary.
    KillPrimaryAndDaemon,
    /// The primary dies while the daemon stands still.
    KillPrimaryBehindFrozenDaemon,
    KillReplica,
    FreezeReplica,
    KillDaemon,
    FreezeDaemon,
    /// Between the daemon and the primary: relay and manager lose it at once.
    CutDaemonFromPrimary(Way),
    /// Between the daemon and all servers.
    CutDaemonFromAll(Way),
    CutReplicasFromLog(Way),
    CutClients(Way),
    /// No room for its binlog.
    FillDiskOfPrimary,
    /// No room for the log, and for what the manager keeps.
    FillDiskOfLog,
    /// The command that has asked for a switchover is killed; who does it is the daemon.
    SwitchOverAndKillCommand,
    /// The daemon is killed amid a switchover.
    SwitchOverAndKillDaemon,
    /// The daemon's wall clock is set, and then the primary is killed.
    StepClockAndKillPrimary,
    /// The primary freezes, and then the daemon's wall clock is set: what was heard last was heard by the clock as it was.
    StepClockAndFreezePrimary,
}

impl Fault {
    pub const ALL: [Self; 28] = [
        Self::KillPrimary,
        Self::KillPrimaryForAMoment,
        Self::KillPrimaryAndItsSuccessor,
        Self::FreezePrimary,
        Self::KillPrimaryAndDaemon,
        Self::KillPrimaryBehindFrozenDaemon,
        Self::KillReplica,
        Self::FreezeReplica,
        Self::KillDaemon,
        Self::FreezeDaemon,
        Self::CutDaemonFromPrimary(Way::Both),
        Self::CutDaemonFromPrimary(Way::There),
        Self::CutDaemonFromPrimary(Way::Back),
        Self::CutDaemonFromAll(Way::Both),
        Self::CutDaemonFromAll(Way::There),
        Self::CutDaemonFromAll(Way::Back),
        Self::CutReplicasFromLog(Way::Both),
        Self::CutReplicasFromLog(Way::There),
        Self::CutReplicasFromLog(Way::Back),
        Self::CutClients(Way::Both),
        Self::CutClients(Way::There),
        Self::CutClients(Way::Back),
        Self::FillDiskOfPrimary,
        Self::FillDiskOfLog,
        Self::SwitchOverAndKillCommand,
        Self::SwitchOverAndKillDaemon,
        Self::StepClockAndKillPrimary,
        Self::StepClockAndFreezePrimary,
    ];

    /// Without which way is cut.
    pub fn name(self) -> String {
        let name = format!("{self:?}");
        name.split('(').next().unwrap_or_default().to_owned()
    }

    /// Whether its end is not waited for a minute: so often a server looks whether there is room again.
    pub fn is_quick(self) -> bool {
        self != Self::FillDiskOfPrimary
    }

    /// Whether it can be done to that cluster, and nothing is broken by it that no manager can mend.
    pub fn is_possible(self, cluster: &Cluster) -> bool {
        match self {
            // Where its own disk promises little, a server that comes back on it lacks what it told its clients, or what it said
            // that it had executed: natively so, and nobody can tell but by comparing.
            Self::KillPrimaryForAMoment | Self::KillPrimaryAndDaemon | Self::KillReplica => {
                cluster.durability == TrialDurability::Full
            }
            Self::FillDiskOfPrimary | Self::FillDiskOfLog => cluster.has_disks(),
            Self::StepClockAndKillPrimary | Self::StepClockAndFreezePrimary => cluster.clock.is_some(),
            _ => true,
        }
    }
}
