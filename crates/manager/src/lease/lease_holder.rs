//! When a manager holds the lease, by its own clock. Pure: moments and answers in, what to do out.
//!
//! A term counts from the moment at which the request for it was **sent**: the store cannot have begun it earlier. It ends a
//! margin before the store ends it, which covers clocks that do not run alike and an act that was begun just before. An
//! answer to anything but the present term changes nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::LeaseToken;
use crate::ManagerError;

/// A moment of a clock that never goes back and runs on while the machine sleeps, in milliseconds since its boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Some time later.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// How long until `later`; 0 if that is past.
    pub fn ms_until(self, later: Self) -> u64 {
        later.0.saturating_sub(self.0)
    }
}

/// The times of a lease, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTimes {
    /// For how long the store grants it.
    pub ttl_ms: u64,
    /// How long before that the holder stops. It must be more than any act of the manager lasts behind its last look at the
    /// lease, and than clocks differ over a term.
    pub margin_ms: u64,
    /// How long after the last success to renew, and how long after a failure to try again.
    pub renew_ms: u64,
    /// How long one request may take.
    pub request_ms_max: u64,
}

impl LeaseTimes {
    /// The usual parts of a term: a fifth each for the margin, the interval and a request, so that a renewal may fail once.
    ///
    /// # Errors
    /// [`ManagerError::InvalidLeaseTtl`] if it is shorter than 2 s, the least that etcd grants, or longer than a day.
    pub fn of(ttl_ms: u64) -> Result<Self, ManagerError> {
        if !(2_000..=86_400_000).contains(&ttl_ms) {
            return Err(ManagerError::InvalidLeaseTtl { ttl_ms });
        }
        let part = ttl_ms / 5;
        Ok(Self { ttl_ms, margin_ms: part, renew_ms: part, request_ms_max: part })
    }
}

/// What the store answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// The lease is this manager's.
    Granted {
        /// The new term.
        token: LeaseToken,
        /// For so long.
        ttl_ms: u64,
    },
    /// Somebody has it.
    HeldByOther {
        /// Who, in their own words.
        holder: String,
    },
    /// The term goes on.
    Renewed {
        /// For so long.
        ttl_ms: u64,
    },
    /// The term is over; somebody else may have it.
    Expired {
        /// What was seen.
        reason: String,
    },
    /// No answer, or none that tells.
    Failed {
        /// What happened.
        reason: String,
    },
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Ask for the lease.
    Acquire,
    /// Ask for more time.
    Renew(LeaseToken),
    /// Nothing until then.
    Wait(BootTime),
}

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseChange {
    /// This manager is the active one.
    Active(LeaseToken),
    /// It is not any more.
    Lost {
        /// The term that is over.
        token: LeaseToken,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for LeaseChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active(token) => write!(f, "this manager is active, term {token}"),
            Self::Lost { token, reason } => {
                write!(f, "this manager is not active any more, term {token}: {reason}")
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
    /// One that holds nothing and asks at once.
    pub fn new(terms: LeaseTimes) -> Self {
        Self { terms, state: HolderState::Waiting { again: BootTime(0) }, trouble: None }
    }

    /// The term that is held at `now`. To be asked before each act.
    pub fn holds(&self, now: BootTime) -> Option<LeaseToken> {
        match self.state {
            HolderState::Holding { token, until, .. } if now < until => Some(token),
            _ => None,
        }
    }

    /// Until when the term is held.
    pub fn until(&self) -> Option<BootTime> {
        match self.state {
            HolderState::Holding { until, .. } => Some(until),
            HolderState::Waiting { .. } => None,
        }
    }

    /// Gives up a term that has ended. To be called at least whenever [`LeaseRequest::Wait`] is over.
    pub fn tick(&mut self, now: BootTime) -> Option<LeaseChange> {
        let HolderState::Holding { token, until, .. } = self.state else { return None };
        if now < until {
            return None;
        }
        let reason = self.trouble.take().unwrap_or_else(|| "it was not renewed in time".to_owned());
        self.record_lease_loss(now, token, reason)
    }

    /// Gives up a term that has not ended, so that another begins.
    pub fn give_up(&mut self, now: BootTime) -> Option<LeaseChange> {
        let HolderState::Holding { token, .. } = self.state else { return None };
        self.record_lease_loss(now, token, "it was given up, to begin anew".to_owned())
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

    /// Takes the answer to what was asked at `sent`, about the term `of` if it was a renewal.
    pub fn heard(
        &mut self,
        now: BootTime,
        sent: BootTime,
        of: Option<LeaseToken>,
        heard: LeaseAnswer,
    ) -> Option<LeaseChange> {
        let again = now.plus_ms(self.terms.renew_ms);
        match (&mut self.state, heard) {
            (HolderState::Waiting { .. }, LeaseAnswer::Granted { token, ttl_ms }) => {
                let until = self.terms.end(sent, ttl_ms);
                if until <= now {
                    // It took so long that the term is over before it began.
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
    /// Until when to act on a term of `ttl_ms` that was asked for at `sent`.
    fn end(&self, sent: BootTime, ttl_ms: u64) -> BootTime {
        sent.plus_ms(ttl_ms.min(self.ttl_ms).saturating_sub(self.margin_ms))
    }
}
