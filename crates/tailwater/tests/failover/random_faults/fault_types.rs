//! The faults that the random-fault test injects.

use tailwater_lab::fault_trial::TrialDurability;
use tailwater_sandbox::network_link::{Direction, Link};

use super::test_cluster::Cluster;

/// The direction in which a network link between the daemon and a server loses bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutDirection {
    /// Both directions.
    Both,
    /// From the daemon to the server.
    There,
    /// From the server to the daemon.
    Back,
}

impl CutDirection {
    pub fn cut(self, link: &Link) {
        match self {
            Self::Both => link.cut_both(),
            Self::There => link.cut(Direction::ToServer),
            Self::Back => link.cut(Direction::ToClient),
        }
    }
}

/// A fault. "The primary" is the server that is the primary when the fault begins. The daemon is relay and
/// manager in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL of the primary. The server starts again after another server has replaced it. With reduced
    /// durability, it has then lost its newest commits.
    KillPrimary,
    /// SIGKILL of the primary. The server starts again after a short time, whether or not another server
    /// replaces it.
    KillPrimaryForAMoment,
    /// SIGKILL of the primary. While the former primary rejoins, SIGKILL of its successor.
    KillPrimaryAndItsSuccessor,
    /// SIGSTOP of the primary. The server resumes later with all its connections, whether or not another
    /// server has replaced it.
    FreezePrimary,
    /// SIGKILL of the primary, and SIGKILL of the daemon at a random moment of the failover.
    KillPrimaryAndDaemon,
    /// The daemon is frozen, and the primary is killed meanwhile.
    KillPrimaryBehindFrozenDaemon,
    KillReplica,
    FreezeReplica,
    KillDaemon,
    FreezeDaemon,
    /// Cuts the link between daemon and primary. Relay and manager lose the primary at the same moment.
    CutDaemonFromPrimary(CutDirection),
    /// Cuts the links between the daemon and all servers.
    CutDaemonFromAll(CutDirection),
    CutReplicasFromLog(CutDirection),
    CutClients(CutDirection),
    /// The disk of the primary's binlog is filled.
    FillDiskOfPrimary,
    /// The disk of the daemon's log and of the manager's files is filled.
    FillDiskOfLog,
    /// The command `tailwater switchover` is killed. The daemon continues the switchover.
    SwitchOverAndKillCommand,
    /// The daemon is killed during a switchover.
    SwitchOverAndKillDaemon,
    /// The test sets the daemon's wall clock, then kills the primary.
    StepClockAndKillPrimary,
    /// The test freezes the primary. Then it sets the daemon's wall clock, after the last answer of the
    /// primary.
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
        Self::CutDaemonFromPrimary(CutDirection::Both),
        Self::CutDaemonFromPrimary(CutDirection::There),
        Self::CutDaemonFromPrimary(CutDirection::Back),
        Self::CutDaemonFromAll(CutDirection::Both),
        Self::CutDaemonFromAll(CutDirection::There),
        Self::CutDaemonFromAll(CutDirection::Back),
        Self::CutReplicasFromLog(CutDirection::Both),
        Self::CutReplicasFromLog(CutDirection::There),
        Self::CutReplicasFromLog(CutDirection::Back),
        Self::CutClients(CutDirection::Both),
        Self::CutClients(CutDirection::There),
        Self::CutClients(CutDirection::Back),
        Self::FillDiskOfPrimary,
        Self::FillDiskOfLog,
        Self::SwitchOverAndKillCommand,
        Self::SwitchOverAndKillDaemon,
        Self::StepClockAndKillPrimary,
        Self::StepClockAndFreezePrimary,
    ];

    /// Returns the name of the fault without the direction of the cut.
    pub fn name(self) -> String {
        let name = format!("{self:?}");
        name.split('(').next().unwrap_or_default().to_owned()
    }

    /// Whether the fault ends within seconds. A full disk does not: a server checks only once a minute
    /// whether the disk has space again.
    pub fn is_quick(self) -> bool {
        self != Self::FillDiskOfPrimary
    }

    /// Whether this cluster allows the fault, and a manager can repair the damage.
    pub fn is_possible(self, cluster: &Cluster) -> bool {
        match self {
            // With reduced durability, a server that restarts lacks transactions that it had acknowledged or
            // reported as executed. Native replication has the same problem. Only a comparison of the rows
            // shows the difference.
            Self::KillPrimaryForAMoment | Self::KillPrimaryAndDaemon | Self::KillReplica => {
                cluster.durability == TrialDurability::Full
            }
            Self::FillDiskOfPrimary | Self::FillDiskOfLog => cluster.has_disks(),
            Self::StepClockAndKillPrimary | Self::StepClockAndFreezePrimary => cluster.clock.is_some(),
            _ => true,
        }
    }
}
