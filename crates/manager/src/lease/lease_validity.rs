//! Determines when a manager holds the lease, by its own clock. Pure: takes times and answers, and returns
//! requests.
//!
//! A lease term counts from the time at which its request was **sent**, because the store cannot have granted
//! it earlier. The lease term of this manager ends a margin before the lease term in the store. The margin
//! covers clocks of different speed, and actions that started just before the end. An answer that belongs to
//! an earlier lease term changes nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ManagerError;
use crate::model::LeaseToken;

/// Time since boot in milliseconds, from a monotonic clock that also counts the time while the machine is
/// suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Returns this time plus `ms` milliseconds.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds until `later`; 0 if that is in the past.
    pub fn ms_until(self, later: Self) -> u64 {
        later.0.saturating_sub(self.0)
    }
}

/// Durations of a lease, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTimes {
    /// How long the store grants the lease.
    pub ttl_ms: u64,
    /// How long before the end of the lease term the holder stops acting. The margin must be longer than an
    /// action lasts after its lease check, and longer than two clocks can differ over a lease term.
    pub margin_ms: u64,
    /// Pause after a successful renewal before the next one, and after a failure before the next attempt.
    pub renew_ms: u64,
    /// Time limit of one request.
    pub request_ms_max: u64,
}

impl LeaseTimes {
    /// Returns the usual durations for a lease of `ttl_ms`: one fifth each for the margin, the renewal
    /// interval and a request. So one renewal may fail.
    ///
    /// # Errors
    /// [`ManagerError::InvalidLeaseTtl`] if `ttl_ms` is below 2 s, the shortest lease that etcd grants, or
    /// above one day.
    pub fn of(ttl_ms: u64) -> Result<Self, ManagerError> {
        if !(2_000..=86_400_000).contains(&ttl_ms) {
            return Err(ManagerError::InvalidLeaseTtl { ttl_ms });
        }
        let part = ttl_ms / 5;
        Ok(Self { ttl_ms, margin_ms: part, renew_ms: part, request_ms_max: part })
    }
}

/// Answer of the store to a lease request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// This manager holds the lease.
    Granted {
        /// Token of the new lease term.
        token: LeaseToken,
        /// How long the lease is granted, in milliseconds.
        ttl_ms: u64,
    },
    /// Another manager holds the lease.
    HeldByOther {
        /// Name of the holder.
        holder: String,
    },
    /// The lease term of this manager is extended.
    Renewed {
        /// How long the lease is granted, in milliseconds.
        ttl_ms: u64,
    },
    /// The lease term has ended. Another manager may hold the lease.
    Expired {
        /// Why the lease term has ended.
        reason: String,
    },
    /// There is no answer, or it is unclear whether the lease is held.
    Failed {
        /// Why there is no clear answer.
        reason: String,
    },
}

/// What the manager must do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Request the lease.
    Acquire,
    /// Extend the present lease term.
    Renew(LeaseToken),
    /// Wait until this time.
    Wait(BootTime),
}

/// A change of the lease holder's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseChange {
    /// This manager now holds the lease.
    Active(LeaseToken),
    /// This manager no longer holds the lease.
    Lost {
        /// Token of the lease term that was lost.
        token: LeaseToken,
        /// Why the lease term was lost.
        reason: String,
    },
}

impl fmt::Display for LeaseChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active(token) => write!(f, "this manager is active, lease term {token}"),
            Self::Lost { token, reason } => {
                write!(f, "this manager is no longer active, lease term {token}: {reason}")
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HolderState {
    Waiting { again: BootTime },
    Holding { token: LeaseToken, until: BootTime, again: BootTime },
}

/// This manager's knowledge of the lease.
#[derive(Debug, Clone)]
pub struct LeaseHolder {
    terms: LeaseTimes,
    state: HolderState,
    /// Why the last renewal failed, if it did.
    trouble: Option<String>,
}

impl LeaseHolder {
    /// Creates a holder that does not have the lease and requests it at once.
    pub fn new(terms: LeaseTimes) -> Self {
        Self { terms, state: HolderState::Waiting { again: BootTime(0) }, trouble: None }
    }

    /// Returns the token of the lease term if this manager holds the lease at `now`. Must be called before
    /// each action.
    pub fn holds(&self, now: BootTime) -> Option<LeaseToken> {
        match self.state {
            HolderState::Holding { token, until, .. } if now < until => Some(token),
            _ => None,
        }
    }

    /// Returns when the lease term ends; `None` if this manager does not hold the lease.
    pub fn until(&self) -> Option<BootTime> {
        match self.state {
            HolderState::Holding { until, .. } => Some(until),
            HolderState::Waiting { .. } => None,
        }
    }

    /// Gives up the lease term if it has expired. Must be called at least whenever the time of
    /// [`LeaseRequest::Wait`] is reached.
    pub fn tick(&mut self, now: BootTime) -> Option<LeaseChange> {
        let HolderState::Holding { token, until, .. } = self.state else { return None };
        if now < until {
            return None;
        }
        let reason = self.trouble.take().unwrap_or_else(|| "the lease was not renewed in time".to_owned());
        self.record_lease_loss(now, token, reason)
    }

    /// Gives up a lease term that has not expired, so that a new one can begin.
    pub fn give_up(&mut self, now: BootTime) -> Option<LeaseChange> {
        let HolderState::Holding { token, .. } = self.state else { return None };
        self.record_lease_loss(now, token, "the lease was given up to start a new lease term".to_owned())
    }

    /// Returns what to do at `now`. Must be called after [`LeaseHolder::tick`].
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

    /// Takes the answer to a request that was sent at `sent`. For a renewal, `of` is the token of the renewed
    /// term.
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
                    // The request took so long that the granted lease term has already ended.
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
    /// Returns the end of a lease term of `ttl_ms` that was requested at `sent`.
    fn end(&self, sent: BootTime, ttl_ms: u64) -> BootTime {
        sent.plus_ms(ttl_ms.min(self.ttl_ms).saturating_sub(self.margin_ms))
    }
}
