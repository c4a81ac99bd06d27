//! The audit record of a failover or switchover: all actions with their outcomes, and the result, as JSON and
//! as text. Its JSON spelling is fixed, because managers of other versions read it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{RunAction, RunPhase};
use crate::candidates::CandidateRanking;
use crate::lossless_rules::PossibleLoss;
use crate::safety_refusals::SafetyRefusal;

/// The kind of a failover or switchover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// A failover: the primary had failed.
    #[default]
    Failover,
    /// A switchover: the primary was alive.
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

/// The outcome of a failover or switchover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum RunOutcome {
    /// A new primary takes writes.
    Promoted {
        /// The new primary.
        server: String,
        /// Actions after the promotion that failed or were not executed.
        left: Vec<RunAction>,
    },
    /// The failover or switchover changed nothing.
    Unchanged {
        /// The safety rule that refused.
        refusal: SafetyRefusal,
    },
    /// Everything reversible was undone. The ackers capture from the old primary again.
    Undone {
        /// The safety rule that refused.
        refusal: SafetyRefusal,
        /// Actions that cannot be undone: hooks, and transactions that were sent to servers.
        #[serde(rename = "stays", alias = "irreversible")]
        irreversible: Vec<RunAction>,
    },
    /// The failover or switchover is incomplete. After a failover, the old primary stays fenced, and no new
    /// primary is known to take writes. After a switchover, at least one action is not undone.
    #[serde(rename = "left", alias = "incomplete")]
    Incomplete {
        /// The safety rule that refused.
        refusal: SafetyRefusal,
        /// Actions that would undo what was done, in order. The holder of the lease may execute them, or
        /// start the failover again.
        to_undo: Vec<RunAction>,
        /// Actions that cannot be undone.
        #[serde(rename = "stays", alias = "irreversible")]
        irreversible: Vec<RunAction>,
    },
    /// The plan of a dry run.
    Planned {
        /// The server that would become primary.
        server: String,
        /// The actions that change something, in order.
        acts: Vec<RunAction>,
        /// Expected duration of all these actions, in milliseconds.
        expected_ms: u64,
    },
}

/// An event in an audit record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum AuditEvent {
    /// The failover or switchover ordered an action.
    #[serde(rename = "ordered", alias = "action_ordered")]
    ActionOrdered {
        /// Number of the ordered action.
        number: u32,
        /// The action that was ordered.
        what: RunAction,
    },
    /// The failover or switchover got the outcome of an action.
    #[serde(rename = "answered", alias = "action_answered")]
    ActionAnswered {
        /// Number of the answered action.
        number: u32,
        /// The result: `done`, `failed` or `unknown`.
        outcome: String,
        /// The outcome as text.
        text: String,
    },
    /// The failover or switchover got an outcome for which it does not wait: it was late or repeated.
    #[serde(rename = "ignored", alias = "late_answer")]
    LateAnswer {
        /// Number of the action that the late answer belongs to.
        number: u32,
    },
    /// A safety rule refused, or an action failed.
    #[serde(rename = "refused", alias = "rule_refused")]
    RuleRefused {
        /// The safety rule that refused.
        refusal: SafetyRefusal,
    },
    /// A safety rule would have refused, but `--allow-data-loss` overrode it.
    #[serde(rename = "overridden", alias = "rule_overridden")]
    RuleOverridden {
        /// The safety rule that was overridden.
        refusal: SafetyRefusal,
    },
}

/// An entry of the audit record: an event with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Time since the start of the failover or switchover, in milliseconds.
    pub at_ms: u64,
    /// Phase of the failover or switchover at that time.
    pub phase: RunPhase,
    /// The event that happened.
    #[serde(flatten)]
    pub note: AuditEvent,
}

/// A server of the cluster, with its name in the configuration of a manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedServer {
    /// The server's name.
    pub name: String,
    /// The address that the manager has: `host:port` or a socket path.
    pub address: String,
    /// The server's `server_id`; absent if the manager has never reached it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<u32>,
}

/// The audit record of a failover or switchover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Id of the failover or switchover.
    pub id: String,
    /// Whether this is the audit record of a failover or of a switchover.
    #[serde(default)]
    pub kind: RunKind,
    /// For a recovery: the interrupted failover or switchover that it undoes or finishes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<String>,
    /// The old primary.
    pub primary: String,
    /// The servers of the cluster, with the names that this record uses. Another manager may have other names
    /// for them. Empty in records of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<NamedServer>,
    /// Whether the failover or switchover was a dry run.
    pub dry_run: bool,
    /// Whether the operator accepted that completeness is not proven.
    pub allow_data_loss: bool,
    /// The lease term of the failover or switchover; `None` before it is known.
    pub token: Option<u64>,
    /// All events of the failover or switchover, in order.
    pub steps: Vec<AuditEntry>,
    /// All transactions that the ackers hold, as text.
    pub holds: Option<String>,
    /// What may be lost, if the operator accepted that.
    #[serde(rename = "may_be_missing", alias = "possible_loss")]
    pub possible_loss: Option<PossibleLoss>,
    /// The ranked candidates, with reasons for and against each.
    pub choice: Option<CandidateRanking>,
    /// For a switchover: how long no server took writes, in milliseconds.
    #[serde(default)]
    pub pause_ms: Option<u64>,
    /// The outcome. It is `None` during the failover or switchover, and for ever if the manager died; see
    /// [`Audit::is_interrupted`].
    pub outcome: Option<RunOutcome>,
}

impl Audit {
    /// Creates an audit record without events.
    pub fn new(id: &str, kind: RunKind, primary: &str) -> Self {
        Self {
            id: id.to_owned(),
            kind,
            resumes: None,
            primary: primary.to_owned(),
            servers: Vec::new(),
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

    /// Whether the failover or switchover was interrupted: its manager died or lost the lease, and the next
    /// holder of the lease must undo or finish it.
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

impl Audit {
    /// Replaces all server names in the audit record: the old primary's, those of the servers, and those in
    /// the actions and in the outcome.
    pub fn rename_servers(&mut self, name_of: impl Fn(&str) -> String) {
        let rename_in = |acts: &mut [RunAction]| {
            acts.iter_mut().flat_map(RunAction::servers_mut).for_each(|name| *name = name_of(name));
        };
        self.primary = name_of(&self.primary);
        self.servers.iter_mut().for_each(|server| server.name = name_of(&server.name));
        for step in &mut self.steps {
            if let AuditEvent::ActionOrdered { what, .. } = &mut step.note {
                rename_in(std::slice::from_mut(what));
            }
        }
        match &mut self.outcome {
            Some(RunOutcome::Promoted { server, left }) => {
                *server = name_of(server);
                rename_in(left);
            }
            Some(RunOutcome::Undone { irreversible, .. }) => rename_in(irreversible),
            Some(RunOutcome::Incomplete { to_undo, irreversible, .. }) => {
                rename_in(to_undo);
                rename_in(irreversible);
            }
            Some(RunOutcome::Planned { server, acts, .. }) => {
                *server = name_of(server);
                rename_in(acts);
            }
            Some(RunOutcome::Unchanged { .. }) | None => {}
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
            // The output of a hook may have several lines.
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
            writeln!(f, "recovery of {run}")?;
        }
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        self.write_end(f)
    }
}

impl Audit {
    /// Returns the outcome as text.
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
            None => writeln!(f, "not finished"),
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
                    RunKind::Switchover => "is not restored",
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
