//! The candidate of a failover or switchover, and the servers that failed as candidates in it.

use std::collections::BTreeMap;

use super::{CandidateAssessment, CandidateRanking, CandidateServer};
use crate::safety_refusals::SafetyRefusal;

/// The candidate of a failover or switchover, and the servers from which it was chosen.
#[derive(Debug, Clone, Default)]
pub(crate) struct CandidateChoice {
    /// All servers that were probed.
    pub servers: Vec<CandidateServer>,
    /// Servers that failed as candidates in this failover or switchover, with the reason.
    rejected: BTreeMap<String, String>,
    chosen: Option<CandidateAssessment>,
}

impl CandidateChoice {
    /// Marks the rejected servers as failed, so that the next ranking excludes them.
    pub fn mark_rejected(&mut self) {
        for server in &mut self.servers {
            if let Some(reason) = self.rejected.get(&server.name) {
                server.fail(reason);
            }
        }
    }

    /// Chooses a server from a ranking: `wanted`, or the best one.
    ///
    /// # Errors
    /// The safety rule that refuses the promotion, if the chosen server cannot be promoted.
    pub fn choose(&mut self, ranking: &CandidateRanking, wanted: Option<&str>) -> Result<(), SafetyRefusal> {
        self.chosen = Some(ranking.best(wanted)?.clone());
        Ok(())
    }

    /// Rejects the candidate for this failover or switchover, and returns its name.
    pub fn reject(&mut self, reason: String) -> Option<String> {
        let server = self.chosen.take()?.server;
        self.rejected.insert(server.clone(), reason);
        Some(server)
    }

    /// Whether the server was rejected as a candidate in this failover or switchover.
    pub fn is_rejected(&self, server: &str) -> bool {
        self.rejected.contains_key(server)
    }

    /// Returns the assessment of the candidate.
    pub fn chosen(&self) -> Option<&CandidateAssessment> {
        self.chosen.as_ref()
    }

    /// Returns the name of the candidate; empty if there is none.
    pub fn name(&self) -> String {
        self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default()
    }
}
