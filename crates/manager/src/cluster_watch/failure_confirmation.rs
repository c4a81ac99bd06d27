//! Confirmation of a failure: all observers are asked once more before a run acts.

use std::time::{Duration, Instant};

use tailwater_topology::observation::PingKind;
use tailwater_topology::probe::ProbeTarget;
use tailwater_topology::probe::ping::Pinger;

use super::cluster_state::ClusterEvent;
use super::watcher::ClusterWatch;
use crate::driver::ConfirmFailure;
use crate::driver::run_driver::ConfirmationFuture;
use tailwater_topology::analysis::FailureCode;

/// What triggered a failover, and therefore what must be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailoverTrigger {
    /// The manager: the primary must be dead.
    Automatic,
    /// An operator: the primary must not be healthy.
    Manual,
    /// An operator with `--dry-run`: nothing must be shown.
    DryRun,
}

/// Asks the observers of a watch once more.
pub struct FailureConfirmation {
    shared: std::sync::Arc<super::watcher::WatchShared>,
    primary: ProbeTarget,
    trigger: FailoverTrigger,
    /// Longest wait for a silence to last, including one ping.
    patience: Duration,
    ping_timeout: Duration,
}

/// How long an unanswered ping is waited for before the reports of the others suffice. A silent server would
/// not answer until the time-out either.
const BRIEF: Duration = Duration::from_millis(100);

/// Interval of checks for answers.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl FailureConfirmation {
    /// For the watched primary. Waits no longer than `patience`.
    pub fn new(
        watch: &ClusterWatch,
        trigger: FailoverTrigger,
        patience: Duration,
        ping_timeout: Duration,
    ) -> Self {
        Self { shared: watch.shared(), primary: watch.primary().clone(), trigger, patience, ping_timeout }
    }

    async fn confirm_now(&self) -> Result<String, String> {
        // A new connection: those of the watch may be what is broken.
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
                let state = if answered { "it answers" } else { "it does not answer" };
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
                        "it answers and is in good health; `tailwater switchover` replaces a primary that is"
                            .to_owned()
                    }
                    (false, true) => "it does not answer, and that has not lasted long enough".to_owned(),
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
