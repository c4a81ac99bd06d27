//! The record of a failover or a switchover: all that was done and answered, and how it ended. What operators read afterwards, as JSON and
//! as text.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::action::{RunAction, RunPhase};
use crate::candidates::CandidateRanking;
use crate::lossless::PossibleLoss;
use crate::safety_refusal::SafetyRefusal;

/// Which of the two it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// The primary had failed.
    #[default]
    Failover,
    /// It was alive.
    Switchover,
}

impl fmt::Display for RunKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failover => "failover",
            Self::Switchover => "switchover",
        })
    }
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum RunOutcome {
    /// A new primary takes writes.
    Promoted {
        /// Which.
        server: String,
        /// What failed afterwards and is still to be done.
        left: Vec<RunAction>,
    },
    /// Nothing was changed.
    Unchanged {
        /// Why.
        refusal: SafetyRefusal,
    },
    /// What can be undone has been: the old primary has its ackers again.
    Undone {
        /// Why.
        refusal: SafetyRefusal,
        /// What cannot: hooks that ran, transactions that were handed on.
        #[serde(rename = "stays", alias = "irreversible")]
        irreversible: Vec<RunAction>,
    },
    /// The old primary stays fenced, and no new one is known to take writes. After a switchover: something of it is not
    /// undone.
    #[serde(rename = "left", alias = "incomplete")]
    Incomplete {
        /// Why.
        refusal: SafetyRefusal,
        /// What would undo it, in order. Whoever holds the lease may do that, or begin the failover again.
        to_undo: Vec<RunAction>,
        /// What cannot be undone.
        #[serde(rename = "stays", alias = "irreversible")]
        irreversible: Vec<RunAction>,
    },
    /// A dry run: what would be done.
    Planned {
        /// The new primary.
        server: String,
        /// The acts that change something, in order.
        acts: Vec<RunAction>,
        /// How long they take together, as far as is known.
        expected_ms: u64,
    },
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum AuditEvent {
    /// An act was ordered.
    #[serde(rename = "ordered", alias = "action_ordered")]
    ActionOrdered {
        /// Its number.
        number: u32,
        /// What.
        what: RunAction,
    },
    /// It was answered.
    #[serde(rename = "answered", alias = "action_answered")]
    ActionAnswered {
        /// The act's number.
        number: u32,
        /// `done`, `failed` or `unknown`.
        outcome: String,
        /// What was said.
        text: String,
    },
    /// An answer to no act that is waited for: it came late, or twice.
    #[serde(rename = "ignored", alias = "late_answer")]
    LateAnswer {
        /// The act's number.
        number: u32,
    },
    /// A rule refused, or a step failed.
    #[serde(rename = "refused", alias = "rule_refused")]
    RuleRefused {
        /// Which.
        refusal: SafetyRefusal,
    },
    /// A rule did not hold and the operator had allowed that.
    #[serde(rename = "overridden", alias = "rule_overridden")]
    RuleOverridden {
        /// Which.
        refusal: SafetyRefusal,
    },
}

/// A note with when it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Milliseconds since the beginning.
    pub at_ms: u64,
    /// The phase.
    pub phase: RunPhase,
    /// What happened.
    #[serde(flatten)]
    pub note: AuditEvent,
}

/// The whole record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Names the run.
    pub id: String,
    /// Failover or switchover.
    #[serde(default)]
    pub kind: RunKind,
    /// The run that was left half done, and is undone or finished by this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<String>,
    /// The old primary.
    pub primary: String,
    /// Whether it was a dry run.
    pub dry_run: bool,
    /// Whether the operator accepted what cannot be proven.
    pub allow_data_loss: bool,
    /// The term of the lease, once it was asked for.
    pub token: Option<u64>,
    /// All that happened, in order.
    pub steps: Vec<AuditEntry>,
    /// All that the ackers hold that were read.
    pub holds: Option<String>,
    /// What may be missing, if that was accepted.
    #[serde(rename = "may_be_missing", alias = "possible_loss")]
    pub possible_loss: Option<PossibleLoss>,
    /// Who could become primary, with the reasons.
    pub choice: Option<CandidateRanking>,
    /// Of a switchover: how long no server took writes, in milliseconds.
    #[serde(default)]
    pub pause_ms: Option<u64>,
    /// How it ended; `None` while it runs, and for ever if the manager died: see [`Audit::is_interrupted`].
    pub outcome: Option<RunOutcome>,
}

impl Audit {
    /// The record of a run that has not begun.
    pub fn new(id: &str, kind: RunKind, primary: &str) -> Self {
        Self {
            id: id.to_owned(),
            kind,
            resumes: None,
            primary: primary.to_owned(),
            dry_run: false,
            allow_data_loss: false,
            token: None,
            steps: Vec::new(),
            holds: None,
            possible_loss: None,
            choice: None,
            pause_ms: None,
            outcome: None,
        }
    }

    /// Whether it was cut off: its manager died or lost the lease in the midst of it, and whoever holds that next has to go on.
    pub fn is_interrupted(&self) -> bool {
        let is_loss = |step: &AuditEntry| {
            matches!(&step.note, AuditEvent::RuleRefused { refusal: SafetyRefusal::NoLease { .. } })
        };
        match &self.outcome {
            None => true,
            Some(RunOutcome::Incomplete { .. }) => self.steps.iter().any(is_loss),
            Some(_) => false,
        }
    }
}

impl fmt::Display for AuditEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_ms, phase, note } = self;
        write!(f, "{at_ms:>8} ms  {phase}: ")?;
        match note {
            AuditEvent::ActionOrdered { number, what } => write!(f, "#{number} {what}"),
            AuditEvent::ActionAnswered { number, outcome, text } if text.is_empty() => {
                write!(f, "#{number} {outcome}")
            }
            // What hooks print may have several lines.
            AuditEvent::ActionAnswered { number, outcome, text } => {
                write!(f, "#{number} {outcome}: {}", text.trim_end().replace('\n', "; "))
            }
            AuditEvent::LateAnswer { number } => write!(f, "#{number} answered late"),
            AuditEvent::RuleRefused { refusal } => write!(f, "{} {refusal}", refusal.code()),
            AuditEvent::RuleOverridden { refusal } => write!(f, "allowed: {} {refusal}", refusal.code()),
        }
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dry_run = if self.dry_run { "dry run of a " } else { "" };
        writeln!(f, "{dry_run}{} of {} ({})", self.kind, self.primary, self.id)?;
        if let Some(run) = &self.resumes {
            writeln!(f, "what was left of {run}")?;
        }
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        self.write_end(f)
    }
}

impl Audit {
    /// How it ended, as text.
    pub fn end(&self) -> String {
        struct OutcomeText<'a>(&'a Audit);
        impl fmt::Display for OutcomeText<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write_end(f)
            }
        }
        OutcomeText(self).to_string()
    }

    fn write_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(missing) = &self.possible_loss {
            writeln!(f, "{missing}")?;
        }
        if let Some(pause_ms) = self.pause_ms {
            writeln!(f, "no writes were taken for {pause_ms} ms")?;
        }
        match &self.outcome {
            None => writeln!(f, "it has not ended"),
            Some(RunOutcome::Promoted { server, left }) if left.is_empty() => {
                writeln!(f, "{server} is primary")
            }
            Some(RunOutcome::Promoted { server, left }) => {
                writeln!(f, "{server} is primary; still to do: {}", list(left))
            }
            Some(RunOutcome::Unchanged { refusal }) => {
                writeln!(f, "nothing was changed: {} {refusal}", refusal.code())
            }
            Some(RunOutcome::Undone { refusal, irreversible }) => {
                writeln!(f, "undone: {} {refusal}", refusal.code())?;
                list_if_any(f, "not undone", irreversible)
            }
            Some(RunOutcome::Incomplete { refusal, to_undo, irreversible }) => {
                let state = match self.kind {
                    RunKind::Failover => "stays fenced",
                    RunKind::Switchover => "is not as it was",
                };
                writeln!(f, "{} {state}: {} {refusal}", self.primary, refusal.code())?;
                list_if_any(f, "to undo it", to_undo)?;
                list_if_any(f, "cannot be undone", irreversible)
            }
            Some(RunOutcome::Planned { server, acts, expected_ms }) => {
                writeln!(f, "{server} would be primary in about {expected_ms} ms: {}", list(acts))
            }
        }
    }
}

fn list_if_any(f: &mut fmt::Formatter<'_>, what: &str, acts: &[RunAction]) -> fmt::Result {
    if acts.is_empty() { Ok(()) } else { writeln!(f, "{what}: {}", list(acts)) }
}

fn list(acts: &[RunAction]) -> String {
    acts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
