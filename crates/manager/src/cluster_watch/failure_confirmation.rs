//! Everybody is asked once more before anything is done.

use std::time::{Duration, Instant};

use super::cluster_state::ClusterEvent;
use super::watcher::ClusterWatch;
use crate::analysis::FailureCode;
use crate::driver::ConfirmFailure;
use crate::driver::run_driver::ConfirmationFuture;
use crate::probe::ProbeTarget;
use crate::probe::ping::{PingKind, Pinger};

/// Who wishes that the primary be replaced, and so what has to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailoverTrigger {
    /// The manager itself: it must be dead.
    Automatic,
    /// Somebody: it must not be in good health.
    Manual,
    /// Somebody who wants to see what would be done: nothing has to be shown.
    DryRun,
}

/// Asks the observers of a watch once more.
pub struct FailureConfirmation {
    shared: std::sync::Arc<super::watcher::WatchShared>,
    primary: ProbeTarget,
    trigger: FailoverTrigger,
    /// How long silence may have to last, and a ping, together.
    patience: Duration,
    ping_timeout: Duration,
}

/// Of one that is to be dead what everybody says suffices though the last ping has not been answered for so long: it is not waited for until its time-out,
/// since a server that is silent does not answer that either.
const BRIEF: Duration = Duration::from_millis(100);

/// How often it is looked whether they have answered.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl FailureConfirmation {
    /// Of the primary that is watched. Silence is waited for no longer than `patience`.
    pub fn new(
        watch: &ClusterWatch,
        trigger: FailoverTrigger,
        patience: Duration,
        ping_timeout: Duration,
    ) -> Self {
        Self { shared: watch.shared(), primary: watch.primary().clone(), trigger, patience, ping_timeout }
    }

    async fn confirm_now(&self) -> Result<String, String> {
        // A connection of its own: those that were tried may be what is broken.
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
