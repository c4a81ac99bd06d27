//! The safety rules of a switchover: those before anything is changed, and those after the ackers have
//! stopped.

use tailwater_wire::gtid::GtidSet;

use super::candidate_catch_up::CatchUpProgress;
use super::switchover_phases::SwitchoverProcedure;
use crate::candidates::{CandidateRanking, LogContents, ReplicationKind, SelectionInput, rank_candidates};
use crate::failover_state_machine::{Decision, NextStep, RunState};
use crate::lossless_rules::{AckRequirement, AckerEvidence, AckerStop, stale_term_text};
use crate::model::failover_action::acks_text;
use crate::model::{RunAction, RunPhase};
use crate::safety_refusals::SafetyRefusal;

impl SwitchoverProcedure {
    /// Returns the rule that refuses a switchover before anything is changed, if any.
    fn not_ready(&self) -> Option<SafetyRefusal> {
        let order = &self.order;
        let mut reasons = Vec::new();
        match &self.primary {
            None => reasons.push("the primary was not observed".to_owned()),
            Some(primary) if !primary.writable => reasons.push("the primary takes no writes".to_owned()),
            Some(primary) => {
                let acks = primary.waiting.as_ref().map(crate::lossless_rules::SemiSyncWait::acks);
                if !matches!(acks, Some(AckRequirement::Required(_))) {
                    let problems = match acks {
                        Some(AckRequirement::NotLossless(problems)) => problems,
                        _ => "semi-sync is not loaded".to_owned(),
                    };
                    return Some(SafetyRefusal::NotLossless { primary: order.primary.clone(), problems });
                }
            }
        }
        for name in &order.ackers {
            match self.ackers.get(name) {
                None => reasons.push(format!("the acker {name} does not answer")),
                Some((AckerEvidence { stop: AckerStop::Refused { term, seen }, .. }, _)) => {
                    reasons.push(format!("{name} {}", stale_term_text(*term, *seen)));
                }
                Some((acker, _)) if !acker.durable => {
                    reasons.push(format!("{name} acknowledges transactions before they are durable"));
                }
                Some((acker, _)) if acker.holds.is_none() => {
                    reasons.push(format!("the log of {name} cannot be read"));
                }
                Some(_) => {}
            }
        }
        let ackers = u32::try_from(order.ackers.len()).unwrap_or(u32::MAX);
        if ackers < order.acks_required {
            let needed = acks_text(order.acks_required);
            let plural = if ackers == 1 { "" } else { "s" };
            reasons.push(format!("{ackers} acker{plural} cannot send the {needed} that a commit needs"));
        }
        let (primary, reasons) = (order.primary.clone(), (!reasons.is_empty()).then(|| reasons.join(", "))?);
        Some(SafetyRefusal::NotReady { primary, reasons })
    }

    /// Chooses the candidate, if no rule refuses the switchover.
    pub(super) fn choose_candidate(&mut self, run: &mut RunState) -> Decision {
        if let Some(refusal) = self.not_ready() {
            return Decision::Refuse(refusal);
        }
        self.choice.mark_rejected();
        let mut servers = std::mem::take(&mut self.choice.servers);
        servers.retain(|server| server.name != self.order.primary);
        for server in &mut servers {
            if server.feed != ReplicationKind::Native && !self.choice.is_rejected(&server.name) {
                // The target of a channel cannot be promoted: the ackers could not continue from the target's
                // own GTIDs.
                server.reached =
                    Err("the server is the target of a channel, and its binlog has the server's own GTIDs"
                        .to_owned());
            }
        }
        self.choice.servers = servers;
        let ranking = self.ranking();
        let chosen = self.choice.choose(&ranking, self.order.wanted.as_deref());
        run.audit.choice = Some(ranking);
        self.catch_up = CatchUpProgress::default();
        chosen.map_or_else(Decision::Refuse, |()| Decision::Go(NextStep::Phase(RunPhase::Prepare)))
    }

    fn ranking(&self) -> CandidateRanking {
        let order = &self.order;
        // Each acker holds every acknowledged transaction, or will receive it soon. The first acker therefore
        // sends missing transactions.
        let empty = GtidSet::empty(order.origin.flavour());
        let first = order.ackers.first().and_then(|name| self.ackers.get_key_value(name));
        let log = match first {
            Some((name, (acker, before))) => LogContents {
                name: name.clone(),
                holds: acker.holds.clone().unwrap_or(empty),
                before: before.clone(),
            },
            None => LogContents { name: "no log".to_owned(), holds: empty.clone(), before: empty },
        };
        rank_candidates(&SelectionInput {
            region: order.region.as_deref(),
            version: order.version,
            origin: order.origin,
            log: &log,
            servers: &self.choice.servers,
            across_regions: order.across_regions,
            catch_up_ms_max: order.catch_up_ms_max,
        })
    }

    /// Verifies that the stopped ackers hold exactly what the primary reported. If an acker holds more, an
    /// account has written to the primary after the writes were paused.
    pub(super) fn position_refusal(&self) -> Option<SafetyRefusal> {
        let position = self.position.as_ref()?;
        for (name, (acker, _)) in &self.ackers {
            let refuse = |reason: String| {
                Some(SafetyRefusal::StepFailed {
                    step: RunAction::StopAcker { acker: name.clone() }.to_string(),
                    reason,
                })
            };
            let Some(holds) = &acker.holds else {
                return refuse("the log of the acker cannot be read".to_owned());
            };
            if let AckerStop::Refused { term, seen } = acker.stop {
                return refuse(stale_term_text(term, seen));
            }
            if acker.stop != AckerStop::Persistent {
                return refuse("the acker did not stop permanently".to_owned());
            }
            let more = |one: &GtidSet, than: &GtidSet| match one.subtract(than) {
                Ok(more) => more.to_string(),
                Err(_) => one.to_string(),
            };
            if !holds.is_subset_of(position) {
                return refuse(format!(
                    "the acker holds {}, which was written after {} took no more writes; find the account that can write despite read_only",
                    more(holds, position),
                    self.order.primary
                ));
            }
            if !position.is_subset_of(holds) {
                return refuse(format!("the acker lacks {}", more(position, holds)));
            }
        }
        None
    }
}
