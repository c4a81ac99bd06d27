//! The acts of each phase.

use super::run::Switchover;
use crate::failover::{Act, End, Phase};

impl Switchover {
    pub(super) fn acts(&self, at_ms: u64, phase: Phase) -> Vec<Act> {
        let order = &self.order;
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        let each_acker = |act: &dyn Fn(String) -> Act| order.ackers.iter().cloned().map(act).collect();
        let left_ms = self.deadline_ms().map_or(order.catch_up_ms_max, |end| end.saturating_sub(at_ms));
        match phase {
            // Servers before ackers: what a server was seen to have, the ackers hold when they are asked.
            Phase::Confirm => {
                let ackers: Vec<Act> = each_acker(&|acker| Act::ReadAcker { acker });
                [Act::LookAtServers, Act::LookAtPrimary].into_iter().chain(ackers).collect()
            }
            Phase::Prepare => {
                let mut acts = self.awaits(left_ms);
                if !order.dry_run {
                    acts.push(Act::Prepare { server, acks: order.acks_required });
                }
                acts
            }
            // What the servers have is asked anew: the wait comes behind the answer.
            Phase::CatchUp => vec![Act::Glance { server: order.primary.clone() }],
            Phase::Pause => {
                // The other half is for the candidate and the ackers.
                let (server, within_ms) = (order.primary.clone(), left_ms / 2);
                vec![Act::HoldWrites { server, within_ms, grace_ms: order.grace_ms.min(within_ms) }]
            }
            // Each goes on by itself: see `next_of`.
            Phase::Fence => self.awaits(left_ms),
            // What a promotion needs of the candidate is done while the ackers connect to it.
            Phase::Follow => {
                let mut acts: Vec<Act> = each_acker(&|acker| Act::Follow { acker, server: server.clone() });
                acts.push(Act::SettleSource { server, acks: order.acks_required });
                acts
            }
            Phase::Writable => vec![Act::MakeWritable { server }],
            Phase::Routes => {
                let hooks = order.route_hooks.iter();
                hooks.map(|hook| Act::RouteHook { hook: hook.clone(), server: server.clone() }).collect()
            }
            Phase::Others => {
                let replicas = order.direct_replicas.iter().filter(|replica| **replica != server);
                let repoint = replicas.map(|replica| Act::Repoint { replica: replica.clone() });
                let has = self.position.as_ref().map(ToString::to_string).unwrap_or_default();
                repoint.chain([Act::Demote { server: order.primary.clone(), has }]).collect()
            }
            // A candidate that may be writable comes first, and alone. Of the rest nothing waits for the other: without its
            // ackers the primary waits, and loses nothing; and it does not wait for a candidate that does not answer.
            Phase::Undo => {
                let first = self.undo.iter().position(|act| matches!(act, Act::MakeReadOnly { .. }));
                first.map_or_else(|| self.undo.clone(), |at| vec![self.undo[at].clone()])
            }
            _ => Vec::new(),
        }
    }

    /// Everybody waits for what the primary was last seen to have; the candidate as the last.
    fn awaits(&self, within_ms: u64) -> Vec<Act> {
        let executed = self.primary.as_ref().map(|primary| &primary.executed);
        let Some(what) = self.position.as_ref().or(executed).map(ToString::to_string) else {
            return Vec::new();
        };
        let ackers = self.order.ackers.iter().cloned();
        let mut acts: Vec<Act> =
            ackers.map(|acker| Act::AwaitAcker { acker, what: what.clone(), within_ms }).collect();
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        acts.push(Act::AwaitServer { server, what, within_ms });
        acts
    }

    /// What comes behind an act that went well, while others of the phase are still under way: an acker that has everything
    /// stops, and a candidate that has, becomes a source.
    pub(super) fn next_of(&mut self, at_ms: u64, act: &Act) -> Option<Act> {
        match (self.course.phase, act) {
            (Phase::Fence, Act::AwaitAcker { acker, .. }) => Some(Act::StopAcker { acker: acker.clone() }),
            (Phase::Fence, Act::AwaitServer { server, .. }) => Some(Act::Drain { server: server.clone() }),
            (Phase::Fence, Act::Drain { server }) => {
                Some(Act::MakeSource { server: server.clone(), acks: self.order.acks_required })
            }
            (Phase::CatchUp, Act::Glance { .. }) => {
                self.catching_up.begins(at_ms);
                self.awaits(self.order.catch_up_ms_max).pop()
            }
            (Phase::CatchUp, Act::AwaitServer { .. }) => {
                self.catching_up.ends(at_ms);
                None
            }
            _ => None,
        }
    }

    /// Behind the promotion: what was not answered, and what comes in phases that were not begun.
    pub(super) fn still_to_do(&mut self) -> Vec<Act> {
        let mut acts = std::mem::take(&mut self.left);
        acts.extend(self.course.waiting.values().filter(|act| act.changes()).cloned());
        acts.append(&mut self.course.queue);
        let begun = [Phase::Routes, Phase::Others].into_iter().position(|phase| phase == self.course.phase);
        for phase in [Phase::Routes, Phase::Others].into_iter().skip(begun.map_or(0, |at| at + 1)) {
            acts.extend(self.acts(0, phase));
        }
        acts
    }

    /// What changes something in the phase that fences.
    fn fence(&self) -> Vec<Act> {
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        let ackers = self.order.ackers.iter().cloned();
        let stops = ackers.map(|acker| Act::StopAcker { acker });
        let drain = Act::Drain { server: server.clone() };
        stops.chain([drain, Act::MakeSource { server, acks: self.order.acks_required }]).collect()
    }

    pub(super) fn planned(&self, server: String) -> End {
        let (order, expected) = (&self.order, &self.order.expected);
        let mut acts = vec![Act::Prepare { server, acks: order.acks_required }];
        let mut expected_ms = expected.of(&acts[0]);
        for phase in
            [Phase::Pause, Phase::Fence, Phase::Follow, Phase::Writable, Phase::Routes, Phase::Others]
        {
            let of_phase = match phase {
                Phase::Fence => self.fence(),
                phase => self.acts(0, phase),
            };
            let each = of_phase.iter().map(|act| expected.of(act));
            let took_ms = if phase == Phase::Routes { each.sum() } else { each.max().unwrap_or_default() };
            expected_ms = expected_ms.saturating_add(took_ms);
            acts.extend(of_phase);
        }
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        End::Planned { server, acts, expected_ms }
    }
}
