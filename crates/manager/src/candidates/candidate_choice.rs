//! The candidate of a run, and the servers that failed as candidates.

use std::collections::BTreeMap;

use super::{CandidateAssessment, CandidateRanking, CandidateServer};
use crate::safety_refusal::SafetyRefusal;

/// The candidate of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct CandidateChoice {
    /// The probed servers.
    pub servers: Vec<CandidateServer>,
    /// Servers that failed as candidates in this run, with the reason.
    rejected: BTreeMap<String, String>,
    chosen: Option<CandidateAssessment>,
}

impl CandidateChoice {
    /// Excludes the rejected servers from the next ranking.
    pub fn mark_rejected(&mut self) {
        for server in &mut self.servers {
            if let Some(reason) = self.rejected.get(&server.name) {
                server.fail(reason);
            }
        }
    }

    /// Chooses the best server of a ranking, or the wanted one.
    ///
    /// # Errors
    /// Why none can be promoted.
    pub fn choose(&mut self, ranking: &CandidateRanking, wanted: Option<&str>) -> Result<(), SafetyRefusal> {
        self.chosen = Some(ranking.best(wanted)?.clone());
        Ok(())
    }

    /// Rejects the candidate, and returns its name.
    pub fn reject(&mut self, reason: String) -> Option<String> {
        let server = self.chosen.take()?.server;
        self.rejected.insert(server.clone(), reason);
        Some(server)
    }

    /// Whether a server failed as a candidate.
    pub fn is_rejected(&self, server: &str) -> bool {
        self.rejected.contains_key(server)
    }

    /// The candidate.
    pub fn chosen(&self) -> Option<&CandidateAssessment> {
        self.chosen.as_ref()
    }

    /// The name of the candidate; empty if there is none.
    pub fn name(&self) -> String {
        self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default()
    }
}
