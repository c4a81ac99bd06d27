//! Selection of the new primary. Pure: takes what is known of each server, and returns a ranking with
//! reasons.
//!
//! Servers are ranked by the transactions that they **received**, not by those that they executed, because
//! relay logs are drained and never dropped. Missing transactions are sent from the log or from another
//! server. A server is excluded if it lacks an acknowledged transaction that no log or server can send.
//!
//! A server with an errant transaction, which no other server has, is excluded too. The old primary's own
//! transactions are an exception: they are the unacknowledged end of its binlog. The last known position of
//! the old primary is always stale and proves nothing.
//!
//! - [`ranking_reasons`]: reasons for and against a server, as data and as text.
//! - [`candidate_server`]: what is known of each server.

mod candidate_choice;
pub mod candidate_server;
pub mod ranking_reasons;

use serde::{Deserialize, Serialize};
use tailwater_topology::{Promotion, ServerVersion};
use tailwater_wire::gtid::{GtidDifference, GtidSet};

pub(crate) use candidate_choice::CandidateChoice;
pub use candidate_server::{CandidateServer, GtidOrigin, ReplicationKind};
pub use ranking_reasons::{Advantage, Drawback, ExclusionReason};

use crate::safety_refusals::SafetyRefusal;

/// A relay's log as a source of transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogContents {
    /// Name of the relay whose log it is.
    pub name: String,
    /// All transactions that the log covers, including those before its beginning.
    pub holds: GtidSet,
    /// Transactions before the beginning of the log. The log can no longer send them.
    pub before: GtidSet,
}

/// What the selection of a new primary takes as input.
#[derive(Debug, Clone)]
pub struct SelectionInput<'a> {
    /// Region of the old primary, if configured.
    pub region: Option<&'a str>,
    /// Version of the old primary.
    pub version: ServerVersion,
    /// Identifies the transactions that the old primary wrote itself.
    pub origin: GtidOrigin,
    /// The log that sends missing transactions.
    pub log: &'a LogContents,
    /// All other servers, including unreachable ones.
    pub servers: &'a [CandidateServer],
    /// Whether a server of another region may become primary.
    pub across_regions: bool,
    /// The longest acceptable time for executing what a server received, in milliseconds. A server that needs
    /// longer ranks last.
    pub catch_up_ms_max: u64,
}

/// A relay or server that sends missing transactions to a candidate. GTIDs are text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillSource {
    /// Name of the relay or server.
    pub from: String,
    /// Whether the sender is a relay.
    pub from_log: bool,
    /// The GTIDs that the relay or server sends.
    pub what: String,
}

/// The assessment of one server as a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateAssessment {
    /// Name of the server.
    pub server: String,
    /// Why the server cannot become primary; empty for a candidate.
    pub excluded: Vec<ExclusionReason>,
    /// What counts against the server.
    pub against: Vec<Drawback>,
    /// What counts for the server.
    #[serde(rename = "favour", alias = "advantages")]
    pub advantages: Vec<Advantage>,
    /// Known transactions that the server has not received.
    pub lacks: Option<String>,
    /// Which relays or servers can send the missing transactions.
    #[serde(rename = "supplies", alias = "backfills")]
    pub backfills: Vec<BackfillSource>,
    /// Transactions that the server has received and not executed.
    pub drains: Option<String>,
}

impl CandidateAssessment {
    /// Whether the server can become primary.
    pub fn is_candidate(&self) -> bool {
        self.excluded.is_empty()
    }

    /// Returns the exclusion reasons as text.
    pub fn reasons(&self) -> String {
        self.excluded.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// The ranking: all servers, the best first and the excluded ones last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateRanking {
    /// The assessments of all servers, the best first.
    pub ranked: Vec<CandidateAssessment>,
}

impl CandidateRanking {
    /// Returns the server to promote: `wanted`, or the best candidate.
    ///
    /// # Errors
    /// [`SafetyRefusal::CandidateUnfit`] if `wanted` is excluded or unknown, [`SafetyRefusal::NoCandidate`]
    /// if every server is excluded.
    pub fn best(&self, wanted: Option<&str>) -> Result<&CandidateAssessment, SafetyRefusal> {
        if let Some(name) = wanted {
            let found = self.ranked.iter().find(|assessment| assessment.server == name);
            let reasons = match found {
                Some(assessment) if assessment.is_candidate() => return Ok(assessment),
                Some(assessment) => assessment.reasons(),
                None => "no server of this name is known".to_owned(),
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

/// Ranks all servers. Their order in the input does not affect the result.
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

/// Sort key of the ranking, with the most important field first. Smaller values are better.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CandidateRank {
    excluded: bool,
    slow: bool,
    /// Whether other servers have transactions that this server cannot get. If this server is promoted, these
    /// transactions become errant.
    leaves_behind: bool,
    promotion: Promotion,
    other_region: bool,
    cannot_follow: usize,
    not_durable: bool,
    lacks: u128,
    catch_up_ms: u64,
}

/// Returns all known transactions: those in the log, and unacknowledged ones of the old primary that replicas
/// received.
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

/// Returns what a server received; `None` if it has errant transactions.
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

/// Returns the errant transactions of a server: those that are neither in the log nor written by the old
/// primary.
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

/// Compares the versions of the candidate and the other servers. A server can replicate from an older or
/// equal release series, but not from a newer series.
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

/// The transactions that a server lacks, and which relays or servers can send them.
#[derive(Debug, Default)]
struct MissingTransactions {
    lacks: Option<String>,
    count: u128,
    backfills: Vec<BackfillSource>,
    /// Names of servers that have transactions which cannot be sent to the candidate.
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

    /// Adds the missing transactions that the log can send. If the server lacks transactions from before the
    /// beginning of the log, it is excluded.
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

    /// Adds the missing transactions that only other servers can send. There are two kinds: unacknowledged
    /// transactions of the old primary, which the log lacks, and transactions from before the beginning of
    /// the log.
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

/// Returns the number of transactions in a difference. MariaDB sequence numbers have gaps, so for MariaDB
/// this is the highest possible number.
fn transactions(difference: &GtidDifference) -> u128 {
    match difference {
        GtidDifference::MySql(set) => set.count(),
        GtidDifference::MariaDb(ranges) => {
            ranges.iter().map(|range| u128::from(range.last - range.first) + 1).sum()
        }
    }
}
