//! When a manager holds the lease, by its own clock. Pure: times and answers in, requests out.
//!
//! A term counts from the time at which its request was **sent**, because the store cannot have granted it
//! earlier. It ends a margin before the store ends it. The margin covers clocks of different speed, and an
//! action started just before. An answer about an earlier term changes nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ManagerError;
use crate::model::LeaseToken;

/// Time since boot in milliseconds, by a monotonic clock that also counts suspended time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(pub u64);

impl BootTime {
    /// This time plus `ms`.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds until `later`; 0 if that is in the past.
    pub fn ms_until(self, later: Self) -> u64 {
        later.0.saturating_sub(self.0)
    }
}

/// Times of a lease, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTimes {
    /// For how long the store grants the lease.
    pub ttl_ms: u64,
    /// How long before its end the holder stops acting. More than an action lasts after its lease check, and
    /// than clocks differ over a term.
    pub margin_ms: u64,
    /// Pause after a success before renewing, and after a failure before trying again.
    pub renew_ms: u64,
    /// Time limit of one request.
    pub request_ms_max: u64,
}

impl LeaseTimes {
    /// The usual division of a term: one fifth each for the margin, the interval and a request, so that one
    /// renewal may fail.
    ///
    /// # Errors
    /// [`ManagerError::InvalidLeaseTtl`] if it is shorter than 2 s, the least that etcd grants, or longer
    /// than a day.
    pub fn of(ttl_ms: u64) -> Result<Self, ManagerError> {
        if !(2_000..=86_400_000).contains(&ttl_ms) {
            return Err(ManagerError::InvalidLeaseTtl { ttl_ms });
        }
        let part = ttl_ms / 5;
        Ok(Self { ttl_ms, margin_ms: part, renew_ms: part, request_ms_max: part })
    }
}

/// Answer of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// This manager holds the lease.
    Granted {
        /// Token of the new term.
        token: LeaseToken,
        /// Time granted, in milliseconds.
        ttl_ms: u64,
    },
    /// Another manager holds the lease.
    HeldByOther {
        /// Name of the holder.
        holder: String,
    },
    /// The term is extended.
    Renewed {
        /// Time granted, in milliseconds.
        ttl_ms: u64,
    },
    /// The term has ended; another manager may hold the lease.
    Expired {
        /// The reason.
        reason: String,
    },
    /// No answer, or an inconclusive one.
    Failed {
        /// The reason.
        reason: String,
    },
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Request the lease.
    Acquire,
    /// Extend the term.
    Renew(LeaseToken),
    /// Wait until then.
    Wait(BootTime),
}

/// A change of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseChange {
    /// This manager now holds the lease.
    Active(LeaseToken),
    /// This manager no longer holds it.
    Lost {
        /// Token of the term.
        token: LeaseToken,
        /// The reason.
        reason: String,
    },
}

impl fmt::Display for LeaseChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active(token) => write!(f, "this manager is active, term {token}"),
            Self::Lost { token, reason } => {
                write!(f, "this manager is no longer active, term {token}: {reason}")
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HolderState {
    Waiting { again: BootTime },
    Holding { token: LeaseToken, until: BootTime, again: BootTime },
}

/// One manager's side of the lease.
#[derive(Debug, Clone)]
pub struct LeaseHolder {
    terms: LeaseTimes,
    state: HolderState,
    /// Why the last renewal failed.
    trouble: Option<String>,
}

impl LeaseHolder {
    /// A holder without the lease that requests it at once.
    pub fn new(terms: LeaseTimes) -> Self {
        Self { terms, state: HolderState::Waiting { again: BootTime(0) }, trouble: None }
    }

    /// Token of the term held at `now`. Ask before each action.
    pub fn holds(&self, now: BootTime) -> Option<LeaseToken> {
        match self.state {
            HolderState::Holding { token, until, .. } if now < until => Some(token),
            _ => None,
        }
    }

    /// End of the term.
    pub fn until(&self) -> Option<BootTime> {
        match self.state {
            HolderState::Holding { until, .. } => Some(until),
            HolderState::Waiting { .. } => None,
        }
    }

    /// Gives up an expired term. Call it at least whenever [`LeaseRequest::Wait`] is over.
    pub fn tick(&mut self, now: BootTime) -> Option<LeaseChange> {
        let HolderState::Holding { token, until, .. } = self.state else { return None };
        if now < until {
            return None;
        }
        let reason = self.trouble.take().unwrap_or_else(|| "it was not renewed in time".to_owned());
        self.record_lease_loss(now, token, reason)
    }

    /// Gives up a term that has not expired, so that a new one begins.
    pub fn give_up(&mut self, now: BootTime) -> Option<LeaseChange> {
        let HolderState::Holding { token, .. } = self.state else { return None };
        self.record_lease_loss(now, token, "it was given up to start a new term".to_owned())
    }

    /// What to do at `now`, after [`LeaseHolder::tick`].
    pub fn next(&self, now: BootTime) -> LeaseRequest {
        match self.state {
            HolderState::Waiting { again } if again <= now => LeaseRequest::Acquire,
            HolderState::Waiting { again } => LeaseRequest::Wait(again),
            HolderState::Holding { token, again, until } if again <= now && now < until => {
                LeaseRequest::Renew(token)
            }
            HolderState::Holding { again, until, .. } => LeaseRequest::Wait(again.min(until)),
        }
    }

    /// Takes the answer to a request sent at `sent`; `of` is the term of a renewal.
    pub fn take_answer(
        &mut self,
        now: BootTime,
        sent: BootTime,
        of: Option<LeaseToken>,
        answer: LeaseAnswer,
    ) -> Option<LeaseChange> {
        let again = now.plus_ms(self.terms.renew_ms);
        match (&mut self.state, answer) {
            (HolderState::Waiting { .. }, LeaseAnswer::Granted { token, ttl_ms }) => {
                let until = self.terms.end(sent, ttl_ms);
                if until <= now {
                    // The request took so long that the term has already ended.
                    self.state = HolderState::Waiting { again };
                    return None;
                }
                self.state = HolderState::Holding { token, until, again };
                self.trouble = None;
                Some(LeaseChange::Active(token))
            }
            (HolderState::Holding { token, until, again: next }, LeaseAnswer::Renewed { ttl_ms })
                if of == Some(*token) =>
            {
                if now < *until {
                    *until = self.terms.end(sent, ttl_ms).max(*until);
                    *next = again;
                    self.trouble = None;
                }
                None
            }
            (HolderState::Holding { token, .. }, LeaseAnswer::Expired { reason }) if of == Some(*token) => {
                let token = *token;
                self.record_lease_loss(now, token, reason)
            }
            (HolderState::Holding { token, again: next, .. }, LeaseAnswer::Failed { reason })
                if of == Some(*token) =>
            {
                self.trouble = Some(reason);
                *next = again;
                None
            }
            (HolderState::Waiting { again: next }, _) => {
                *next = again;
                None
            }
            (HolderState::Holding { .. }, _) => None,
        }
    }

    fn record_lease_loss(&mut self, now: BootTime, token: LeaseToken, reason: String) -> Option<LeaseChange> {
        self.state = HolderState::Waiting { again: now.plus_ms(self.terms.renew_ms) };
        self.trouble = None;
        Some(LeaseChange::Lost { token, reason })
    }
}

impl LeaseTimes {
    /// End of a term of `ttl_ms` that was requested at `sent`.
    fn end(&self, sent: BootTime, ttl_ms: u64) -> BootTime {
        sent.plus_ms(ttl_ms.min(self.ttl_ms).saturating_sub(self.margin_ms))
    }
}
