//! The faults of the nemesis.

use tailwater_lab::trial::TrialDurability;
use tailwater_sandbox::link::{Direction, Link};

use super::cluster::Cluster;

/// The direction in which a link loses bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Both.
    Both,
    /// To the server.
    There,
    /// From the server.
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

/// A fault. The primary is the one at that moment; the daemon is relay and manager in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL of the primary. It starts again after it was replaced, rewound where its own durability is
    /// reduced.
    KillPrimary,
    /// SIGKILL of the primary. It starts again at once, whether it is being replaced or not.
    KillPrimaryForAMoment,
    /// SIGKILL of the primary, and of its successor while the former primary rejoins.
    KillPrimaryAndItsSuccessor,
    /// SIGSTOP of the primary. It wakes up with all its connections, whether it was replaced or not.
    FreezePrimary,
    /// SIGKILL of primary and daemon; of the daemon at a random moment of the failover.
    KillPrimaryAndDaemon,
    /// The primary dies while the daemon is frozen.
    KillPrimaryBehindFrozenDaemon,
    KillReplica,
    FreezeReplica,
    KillDaemon,
    FreezeDaemon,
    /// Cuts the link between daemon and primary: relay and manager lose it at once.
    CutDaemonFromPrimary(Way),
    /// Cuts the links between daemon and all servers.
    CutDaemonFromAll(Way),
    CutReplicasFromLog(Way),
    CutClients(Way),
    /// Fills the disk of the primary's binlog.
    FillDiskOfPrimary,
    /// Fills the disk of the log and of the manager's files.
    FillDiskOfLog,
    /// The command that asked for a switchover is killed; the daemon continues the switchover.
    SwitchOverAndKillCommand,
    /// The daemon is killed during a switchover.
    SwitchOverAndKillDaemon,
    /// The daemon's wall clock is set, and then the primary is killed.
    StepClockAndKillPrimary,
    /// The primary is frozen, and then the daemon's wall clock is set, after the last sign of life.
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

    /// The name without the direction of the cut.
    pub fn name(self) -> String {
        let name = format!("{self:?}");
        name.split('(').next().unwrap_or_default().to_owned()
    }

    /// Whether the fault ends in seconds. A server checks only once a minute whether a full disk has space
    /// again.
    pub fn is_quick(self) -> bool {
        self != Self::FillDiskOfPrimary
    }

    /// Whether the fault is possible in that cluster, and breaks nothing that no manager can repair.
    pub fn is_possible(self, cluster: &Cluster) -> bool {
        match self {
            // With reduced durability, a server that restarts lacks transactions that it acknowledged or
            // reported as executed. Native replication does so, too, and only a comparison shows it.
            Self::KillPrimaryForAMoment | Self::KillPrimaryAndDaemon | Self::KillReplica => {
                cluster.durability == TrialDurability::Full
            }
            Self::FillDiskOfPrimary | Self::FillDiskOfLog => cluster.has_disks(),
            Self::StepClockAndKillPrimary | Self::StepClockAndFreezePrimary => cluster.clock.is_some(),
            _ => true,
        }
    }
}
