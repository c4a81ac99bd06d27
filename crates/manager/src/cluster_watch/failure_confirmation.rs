//! Confirmation of a failure: before a failover or switchover acts, all observers are queried once more.

use std::time::{Duration, Instant};

use tailwater_topology::server_probe::ProbeTarget;
use tailwater_topology::server_probe::server_ping::Pinger;
use tailwater_topology::server_state::PingKind;

use super::cluster_state::ClusterEvent;
use super::probe_tasks::ClusterWatch;
use crate::failover_driver::ConfirmFailure;
use crate::failover_driver::action_loop::ConfirmationFuture;
use tailwater_topology::failure_analysis::FailureCode;

/// What triggered a failover. The trigger determines what the confirmation requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailoverTrigger {
    /// The manager started the failover: the primary must be dead.
    Automatic,
    /// An operator started the failover: the primary must not be healthy.
    Manual,
    /// An operator started the failover with `--dry-run`: nothing is required.
    DryRun,
}

/// Queries all observers of a watch once more before a failover.
pub struct FailureConfirmation {
    shared: std::sync::Arc<super::probe_tasks::WatchShared>,
    primary: ProbeTarget,
    trigger: FailoverTrigger,
    /// The longest time to wait until the primary has been silent for long enough, including one ping.
    patience: Duration,
    ping_timeout: Duration,
}

/// How long to wait for the answer to a ping before the reports of the other observers suffice. A server that
/// does not answer would otherwise delay the confirmation until the time-out of the ping.
const BRIEF: Duration = Duration::from_millis(100);

/// Interval at which the findings are checked again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl FailureConfirmation {
    /// Creates the confirmation for the watched primary. The confirmation waits at most `patience`.
    pub fn new(
        watch: &ClusterWatch,
        trigger: FailoverTrigger,
        patience: Duration,
        ping_timeout: Duration,
    ) -> Self {
        Self { shared: watch.shared(), primary: watch.primary().clone(), trigger, patience, ping_timeout }
    }

    async fn confirm_now(&self) -> Result<String, String> {
        // Open a new connection to the primary, because the existing connections may be broken.
        let mut pinger = Pinger::new(&self.primary.connect, "", self.ping_timeout);
        let mut asked = std::pin::pin!(pinger.ping(PingKind::Connect));
        let began = Instant::now();
        let (mut pinged, mut answered) = (false, false);
        loop {
            let patience = if self.trigger == FailoverTrigger::Automatic { BRIEF } else { self.ping_timeout };
            if !pinged && let Ok(ping) = tokio::time::timeout(patience, &mut asked).await {
                (pinged, answered) = (true, ping.outcome.is_ok());
                self.shared.apply(ClusterEvent::Pinged(self.primary.name.clone(), ping));
            }
            if self.trigger == FailoverTrigger::DryRun {
                let state = if answered { "the primary answers" } else { "the primary does not answer" };
                return Ok(format!("a dry run: {state}"));
            }
            let findings = self.shared.analyse_now();
            let of_primary = findings
                .iter()
                .find(|finding| finding.server == self.primary.name && self.suffices(finding.code));
            if let Some(finding) = of_primary {
                return Ok(format!("{}: {}", finding.code, finding.evidence.join("; ")));
            }
            if answered || began.elapsed() >= self.patience {
                let seen = findings.iter().filter(|finding| finding.server == self.primary.name);
                let seen: Vec<_> =
                    seen.map(|one| format!("{}: {}", one.code, one.evidence.join("; "))).collect();
                return Err(match (answered, seen.is_empty()) {
                    (true, true) => {
                        "the primary answers and is healthy; to replace a healthy primary, run `tailwater switchover`"
                            .to_owned()
                    }
                    (false, true) => "the primary does not answer, but has not been silent for long enough".to_owned(),
                    (_, false) => seen.join("; "),
                });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn suffices(&self, code: FailureCode) -> bool {
        match self.trigger {
            FailoverTrigger::Automatic => code == FailureCode::DeadPrimary,
            FailoverTrigger::Manual => matches!(
                code,
                FailureCode::DeadPrimary
                    | FailureCode::UnreachablePrimary
                    | FailureCode::RewoundPrimary
                    | FailureCode::PrimaryReadOnlyOrFull
                    | FailureCode::SemiSyncBlocked
            ),
            FailoverTrigger::DryRun => true,
        }
    }
}

impl ConfirmFailure for FailureConfirmation {
    fn confirm(&self) -> ConfirmationFuture<'_> {
        Box::pin(self.confirm_now())
    }
}
