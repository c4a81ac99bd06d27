//! The actions of each phase of a switchover.

use super::switchover_phases::SwitchoverProcedure;
use crate::model::{RunAction, RunOutcome, RunPhase};

impl SwitchoverProcedure {
    pub(super) fn phase_actions(&self, at_ms: u64, phase: RunPhase) -> Vec<RunAction> {
        let order = &self.order;
        let server = self.choice.name();
        let each_acker = |act: &dyn Fn(String) -> RunAction| order.ackers.iter().cloned().map(act).collect();
        let left_ms = self.pause_end_ms().map_or(order.catch_up_ms_max, |end| end.saturating_sub(at_ms));
        match phase {
            // The servers are probed before the ackers are read. So the ackers hold every transaction that
            // was seen on a server.
            RunPhase::Confirm => {
                let ackers: Vec<RunAction> = each_acker(&|acker| RunAction::ReadAcker { acker });
                [RunAction::ProbeCandidates, RunAction::ProbePrimary].into_iter().chain(ackers).collect()
            }
            RunPhase::Prepare => {
                let mut acts = self.wait_actions(left_ms);
                if !order.dry_run {
                    acts.push(RunAction::PrepareSemiSyncSource { server, acks: order.acks_required });
                }
                acts
            }
            // Each round first reads the state of the primary. The next action then waits until the candidate
            // has reached that state.
            RunPhase::CatchUp => vec![RunAction::ProbeServer { server: order.primary.clone() }],
            RunPhase::Pause => {
                // Pausing writes may take half of the remaining time. The other half is for the candidate and
                // the ackers.
                let (server, within_ms) = (order.primary.clone(), left_ms / 2);
                vec![RunAction::PauseWrites { server, within_ms, grace_ms: order.grace_ms.min(within_ms) }]
            }
            // The ackers and the candidate proceed independently; see `next_action`.
            RunPhase::Fence => self.wait_actions(left_ms),
            // The remaining preparation of the candidate runs while the ackers connect to it.
            RunPhase::RepointAckers => {
                let mut acts: Vec<RunAction> =
                    each_acker(&|acker| RunAction::RepointAcker { acker, server: server.clone() });
                acts.push(RunAction::PersistSemiSyncSource { server, acks: order.acks_required });
                acts
            }
            RunPhase::MakeWritable => vec![RunAction::MakeWritable { server }],
            RunPhase::RouteClients => {
                let hooks = order.route_hooks.iter();
                hooks
                    .map(|hook| RunAction::RunRouteHook { hook: hook.clone(), server: server.clone() })
                    .collect()
            }
            RunPhase::RepointReplicas => {
                let replicas = order.direct_replicas.iter().filter(|replica| **replica != server);
                let repoint = replicas.map(|replica| RunAction::RepointReplica { replica: replica.clone() });
                let has = self.position.as_ref().map(ToString::to_string).unwrap_or_default();
                repoint.chain([RunAction::Demote { server: order.primary.clone(), has }]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the actions that wait until each acker and, as the last action, the candidate have reached the
    /// last known position of the primary.
    fn wait_actions(&self, within_ms: u64) -> Vec<RunAction> {
        let executed = self.primary.as_ref().map(|primary| &primary.executed);
        let Some(what) = self.position.as_ref().or(executed).map(ToString::to_string) else {
            return Vec::new();
        };
        let ackers = self.order.ackers.iter().cloned();
        let mut acts: Vec<RunAction> =
            ackers.map(|acker| RunAction::WaitForAcker { acker, what: what.clone(), within_ms }).collect();
        let server = self.choice.name();
        acts.push(RunAction::WaitForServer { server, what, within_ms });
        acts
    }

    /// Returns the action that follows a successful action, while other actions of the phase are still in
    /// flight. An acker that holds everything is stopped. A candidate that has executed everything becomes a
    /// semi-sync source.
    pub(super) fn next_action(&mut self, phase: RunPhase, at_ms: u64, act: &RunAction) -> Option<RunAction> {
        match (phase, act) {
            (RunPhase::Fence, RunAction::WaitForAcker { acker, .. }) => {
                Some(RunAction::StopAcker { acker: acker.clone() })
            }
            (RunPhase::Fence, RunAction::WaitForServer { server, .. }) => {
                Some(RunAction::DrainRelayLog { server: server.clone() })
            }
            (RunPhase::Fence, RunAction::DrainRelayLog { server }) => Some(RunAction::EnableSemiSyncSource {
                server: server.clone(),
                acks: self.order.acks_required,
            }),
            (RunPhase::CatchUp, RunAction::ProbeServer { .. }) => {
                self.catch_up.begins(at_ms);
                self.wait_actions(self.order.catch_up_ms_max).pop()
            }
            (RunPhase::CatchUp, RunAction::WaitForServer { .. }) => {
                self.catch_up.ends(at_ms);
                None
            }
            _ => None,
        }
    }

    /// Returns the actions of the fence phase that change something.
    fn fence(&self) -> Vec<RunAction> {
        let server = self.choice.name();
        let ackers = self.order.ackers.iter().cloned();
        let stops = ackers.map(|acker| RunAction::StopAcker { acker });
        let drain = RunAction::DrainRelayLog { server: server.clone() };
        stops
            .chain([drain, RunAction::EnableSemiSyncSource { server, acks: self.order.acks_required }])
            .collect()
    }

    pub(super) fn plan(&self) -> RunOutcome {
        let server = self.choice.name();
        let (order, expected) = (&self.order, &self.order.expected);
        let mut acts = vec![RunAction::PrepareSemiSyncSource { server, acks: order.acks_required }];
        let mut expected_ms = expected.of(&acts[0]);
        for phase in [
            RunPhase::Pause,
            RunPhase::Fence,
            RunPhase::RepointAckers,
            RunPhase::MakeWritable,
            RunPhase::RouteClients,
            RunPhase::RepointReplicas,
        ] {
            let of_phase = match phase {
                RunPhase::Fence => self.fence(),
                phase => self.phase_actions(0, phase),
            };
            let each = of_phase.iter().map(|act| expected.of(act));
            let took_ms =
                if phase == RunPhase::RouteClients { each.sum() } else { each.max().unwrap_or_default() };
            expected_ms = expected_ms.saturating_add(took_ms);
            acts.extend(of_phase);
        }
        let server = self.choice.name();
        RunOutcome::Planned { server, acts, expected_ms }
    }
}
