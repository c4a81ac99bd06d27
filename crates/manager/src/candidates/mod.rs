//! Who becomes primary. Pure: what is known of each server in, an order with reasons out.
//!
//! Servers are ranked by what they **received**, not by what they executed: what lies in a relay log is drained, never
//! thrown away. What a server lacks is brought from the log or from another server; one that lacks an acknowledged
//! transaction which nobody can give is no candidate. A transaction that only a replica has is errant and excludes it,
//! unless the old primary made it: then it is the unacknowledged end of its binlog, and whoever has it is ahead. The last
//! known position of the old primary proves nothing either way: it is stale by nature.
//!
//! - [`reason`]: what speaks for and against a server, as data and in words.
//! - [`server`]: what must be known of each.

pub mod candidate_server;
pub mod reason;

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::{GtidDifference, GtidSet};

pub use candidate_server::{CandidateServer, GtidOrigin, Promotion, ReplicationKind, ServerVersion};
pub use reason::{Advantage, Drawback, ExclusionReason};

use crate::safety_refusal::SafetyRefusal;

/// The log, as one that gives transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogContents {
    /// Of which relay.
    pub name: String,
    /// All that it stands for, what was before its beginning included.
    pub holds: GtidSet,
    /// What was before its beginning, which it cannot give any more.
    pub before: GtidSet,
}

/// What the choice is made from.
#[derive(Debug, Clone)]
pub struct SelectionInput<'a> {
    /// The old primary's region, if it has one.
    pub region: Option<&'a str>,
    /// The old primary's version.
    pub version: ServerVersion,
    /// Which transactions are the old primary's own.
    pub origin: GtidOrigin,
    /// The log that all is brought from.
    pub log: &'a LogContents,
    /// The other servers; those that were not reached, too.
    pub servers: &'a [CandidateServer],
    /// Whether a server of another region may become primary.
    pub across_regions: bool,
    /// One that needs longer to execute what it has ranks behind all others, in milliseconds.
    pub catch_up_ms_max: u64,
}

/// From where a server gets what it lacks. GTIDs as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillSource {
    /// The relay or the server that gives.
    pub from: String,
    /// Whether that is a relay's log.
    pub from_log: bool,
    /// What.
    pub what: String,
}

/// What is known of one server as a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateAssessment {
    /// Its name.
    pub server: String,
    /// Why it cannot become primary; empty for a candidate.
    pub excluded: Vec<ExclusionReason>,
    /// What speaks against it.
    pub against: Vec<Drawback>,
    /// What speaks for it.
    #[serde(rename = "favour", alias = "advantages")]
    pub advantages: Vec<Advantage>,
    /// What it has not received of all that is known.
    pub lacks: Option<String>,
    /// From where it gets that.
    #[serde(rename = "supplies", alias = "backfills")]
    pub backfills: Vec<BackfillSource>,
    /// What it has received and not executed: to be drained.
    pub drains: Option<String>,
}

impl CandidateAssessment {
    /// Whether it can become primary.
    pub fn is_candidate(&self) -> bool {
        self.excluded.is_empty()
    }

    /// Everything against it in words, for messages.
    fn reasons(&self) -> String {
        self.excluded.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// All servers, the best first, those that cannot become primary last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateRanking {
    /// In order.
    pub ranked: Vec<CandidateAssessment>,
}

impl CandidateRanking {
    /// The server to promote.
    ///
    /// # Errors
    /// [`SafetyRefusal::CandidateUnfit`] if one was asked for that cannot become primary, [`SafetyRefusal::NoCandidate`] if none can.
    pub fn best(&self, wanted: Option<&str>) -> Result<&CandidateAssessment, SafetyRefusal> {
        if let Some(name) = wanted {
            let found = self.ranked.iter().find(|assessment| assessment.server == name);
            let reasons = match found {
                Some(assessment) if assessment.is_candidate() => return Ok(assessment),
                Some(assessment) => assessment.reasons(),
                None => "no such server is known".to_owned(),
            };
            return Err(SafetyRefusal::CandidateUnfit { server: name.to_owned(), reasons });
        }
        self.ranked.first().filter(|best| best.is_candidate()).ok_or_else(|| {
            let each = |one: &CandidateAssessment| format!("{}: {}", one.server, one.reasons());
            let reasons = match self.ranked.is_empty() {
                true => "there is no other server".to_owned(),
                false => self.ranked.iter().map(each).collect::<Vec<_>>().join("; "),
            };
            SafetyRefusal::NoCandidate { reasons }
        })
    }
}

/// Ranks all servers. The order in which they are given does not matter.
pub fn rank_candidates(question: &SelectionInput<'_>) -> CandidateRanking {
    let mut servers = question.servers.to_vec();
    servers.sort_by(|one, other| one.name.cmp(&other.name));
    let question = &SelectionInput { servers: &servers, ..question.clone() };
    let known = known_gtids(question);
    let mut ranked: Vec<(CandidateRank, CandidateAssessment)> =
        question.servers.iter().map(|server| assess(question, &known, server)).collect();
    ranked.sort_by(|(rank, one), (other_rank, other)| {
        rank.cmp(other_rank).then_with(|| one.server.cmp(&other.server))
    });
    CandidateRanking { ranked: ranked.into_iter().map(|(_, assessment)| assessment).collect() }
}

/// What candidates are ordered by, the most important first; less is better.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CandidateRank {
    excluded: bool,
    slow: bool,
    /// What it lacks of what others executed stays with them as errant.
    leaves_behind: bool,
    promotion: Promotion,
    other_region: bool,
    cannot_follow: usize,
    not_durable: bool,
    lacks: u128,
    catch_up_ms: u64,
}

/// The log, and behind it what replicas received of the old primary's unacknowledged end.
fn known_gtids(question: &SelectionInput<'_>) -> GtidSet {
    let mut known = question.log.holds.clone();
    for server in question.servers {
        if let Some(received) = received_without_errant(question, server)
            && let Ok(union) = known.union(received)
        {
            known = union;
        }
    }
    known
}

/// What a server received, if all of it comes from the log or the old primary.
fn received_without_errant<'a>(
    question: &SelectionInput<'_>,
    server: &'a CandidateServer,
) -> Option<&'a GtidSet> {
    let received = server
        .received
        .as_ref()
        .filter(|_| server.reached.is_ok() && server.feed == ReplicationKind::Native)?;
    errant(question, received).is_none().then_some(received)
}

/// What of a set neither the log knows nor the old primary made.
fn errant(question: &SelectionInput<'_>, received: &GtidSet) -> Option<String> {
    let beyond = received.subtract(&question.log.holds).ok()?;
    let strange = question.origin.foreign_transactions(&beyond)?;
    Some(strange)
}

fn assess(
    question: &SelectionInput<'_>,
    known: &GtidSet,
    server: &CandidateServer,
) -> (CandidateRank, CandidateAssessment) {
    let mut excluded = server.own_exclusions();
    let mut against = Vec::new();
    let mut advantages = Vec::new();
    let other_region = question.region.is_some_and(|region| server.region.as_deref() != Some(region));
    if other_region {
        let region = server.region.clone().unwrap_or_else(|| "no region".to_owned());
        if question.across_regions {
            against.push(Drawback::OtherRegion { region });
        } else {
            excluded.push(ExclusionReason::OtherRegion { region });
        }
    }
    if server.flavour != question.origin.flavour() {
        excluded.push(ExclusionReason::OtherFlavour);
    }
    let wants = MissingTransactions::of(question, known, server, &mut excluded);
    compare_versions(question, server, &mut against);
    compare_settings(question, server, &mut against, &mut advantages);
    if !wants.left_behind.is_empty() {
        against.push(Drawback::LeavesBehind { servers: wants.left_behind.clone() });
    }
    let catch_up_ms = server.catch_up_ms.unwrap_or(0);
    let slow = catch_up_ms > question.catch_up_ms_max;
    if wants.lacks.is_none() && server.received.is_some() {
        advantages.push(Advantage::ReceivedAll);
    }
    let rank = CandidateRank {
        excluded: !excluded.is_empty(),
        slow,
        leaves_behind: !wants.left_behind.is_empty(),
        promotion: server.promotion,
        other_region,
        cannot_follow: against.iter().filter(|one| matches!(one, Drawback::CannotFollow { .. })).count(),
        not_durable: !server.durable,
        lacks: wants.count,
        catch_up_ms,
    };
    let assessment = CandidateAssessment {
        server: server.name.clone(),
        excluded,
        against,
        advantages,
        lacks: wants.lacks,
        backfills: wants.backfills,
        drains: server.undrained(),
    };
    (rank, assessment)
}

/// Versions: a server replicates from an older or equal series, not from a newer one.
fn compare_versions(question: &SelectionInput<'_>, server: &CandidateServer, against: &mut Vec<Drawback>) {
    for other in question.servers {
        if other.name != server.name
            && other.reached.is_ok()
            && other.version.series() < server.version.series()
        {
            against.push(Drawback::CannotFollow { server: other.name.clone(), version: other.version });
        }
    }
    if server.version.series() < question.version.series() {
        against.push(Drawback::OlderThanPrimary { version: server.version });
    }
}

fn compare_settings(
    question: &SelectionInput<'_>,
    server: &CandidateServer,
    against: &mut Vec<Drawback>,
    advantages: &mut Vec<Advantage>,
) {
    match server.promotion {
        Promotion::Prefer => advantages.push(Advantage::Preferred),
        Promotion::PreferNot => against.push(Drawback::NotPreferred),
        Promotion::Neutral | Promotion::MustNot => {}
    }
    if server.durable {
        advantages.push(Advantage::Durable);
    } else {
        against.push(Drawback::NotDurable);
    }
    match server.catch_up_ms {
        Some(0) => advantages.push(Advantage::ExecutedAll),
        Some(ms) if ms > question.catch_up_ms_max => against.push(Drawback::Slow { ms }),
        Some(ms) => against.push(Drawback::Behind { ms }),
        None => {}
    }
    if question.region.is_some() && server.region.as_deref() == question.region {
        advantages.push(Advantage::SameRegion);
    }
}

/// What a server lacks, and who gives it.
#[derive(Debug, Default)]
struct MissingTransactions {
    lacks: Option<String>,
    count: u128,
    backfills: Vec<BackfillSource>,
    /// Servers that have what nobody can give to it.
    left_behind: Vec<String>,
}

impl MissingTransactions {
    fn of(
        question: &SelectionInput<'_>,
        known: &GtidSet,
        server: &CandidateServer,
        excluded: &mut Vec<ExclusionReason>,
    ) -> Self {
        let Some(received) = &server.received else { return Self::default() };
        if server.feed == ReplicationKind::Native
            && let Some(gtids) = errant(question, received)
        {
            excluded.push(ExclusionReason::Errant { gtids });
            return Self::default();
        }
        let Ok(lacks) = known.subtract(received) else { return Self::default() };
        let mut wants = Self {
            lacks: (!lacks.is_empty()).then(|| lacks.to_string()),
            count: transactions(&lacks),
            ..Self::default()
        };
        wants.take_from_log(question.log, received, excluded);
        wants.take_from_servers(question, received, server, excluded);
        wants
    }

    /// What the log knows and the server lacks; what was before its beginning the log cannot give.
    fn take_from_log(&mut self, log: &LogContents, received: &GtidSet, excluded: &mut Vec<ExclusionReason>) {
        let Ok(given) = log.holds.subtract(received) else { return };
        if given.is_empty() {
            return;
        }
        if log.before.is_subset_of(received) {
            self.backfills.push(BackfillSource {
                from: log.name.clone(),
                from_log: true,
                what: given.to_string(),
            });
            return;
        }
        excluded.push(ExclusionReason::Gap {
            gtids: log.before.subtract(received).map(|gap| gap.to_string()).unwrap_or_default(),
            log: log.name.clone(),
        });
    }

    /// The unacknowledged end of the old primary's binlog, which replicas may have and the log does not; and, where the log
    /// begins too late, what another server still has.
    fn take_from_servers(
        &mut self,
        question: &SelectionInput<'_>,
        received: &GtidSet,
        server: &CandidateServer,
        excluded: &mut Vec<ExclusionReason>,
    ) {
        let gap = excluded.iter().position(|one| matches!(one, ExclusionReason::Gap { .. }));
        let mut has = received.union(&question.log.holds).unwrap_or_else(|_| received.clone());
        let others: Vec<&CandidateServer> =
            question.servers.iter().filter(|other| other.name != server.name).collect();
        if let Some(gap) = gap
            && let Some(giver) = others.iter().find(|other| other.can_provide(&question.log.holds, received))
            && let Ok(what) = question.log.holds.subtract(received)
        {
            excluded.remove(gap);
            self.backfills.push(BackfillSource {
                from: giver.name.clone(),
                from_log: false,
                what: what.to_string(),
            });
        }
        for other in others {
            let Some(theirs) = received_without_errant(question, other) else { continue };
            let Ok(more) = theirs.subtract(&has) else { continue };
            if more.is_empty() {
                continue;
            }
            if other.can_provide(theirs, received) {
                self.backfills.push(BackfillSource {
                    from: other.name.clone(),
                    from_log: false,
                    what: more.to_string(),
                });
                has = has.union(theirs).unwrap_or(has);
            } else {
                self.left_behind.push(other.name.clone());
            }
        }
    }
}

/// How many transactions a difference names; for MariaDB, whose numbers have gaps, at most so many.
fn transactions(difference: &GtidDifference) -> u128 {
    match difference {
        GtidDifference::MySql(set) => set.count(),
        GtidDifference::MariaDb(ranges) => {
            ranges.iter().map(|range| u128::from(range.last - range.first) + 1).sum()
        }
    }
}
