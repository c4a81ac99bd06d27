//! Terms of the lease that relays have obeyed. One that has obeyed a later one than that of the manager refuses it: another manager holds
//! a lease elsewhere, or etcd was made anew and counts from the beginning.
//!
//! Which of the two it is nobody here can tell. Managers that went above each other by themselves would both act in the first case: so
//! it is told, and a person raises the terms in the second.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tailwater_manager::action_executor::{AckerError, ActionExecutor};
use tailwater_manager::lease::{EtcdValue, LeaseToken};
use tailwater_manager::lossless::stale_term_text;
use tracing::{info, warn};

use super::ManagedCluster;

/// How often relays are asked which term they obeyed last.
const LOOK: Duration = Duration::from_secs(5);

/// How long one may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// How often the number is read anew because somebody has changed it meanwhile.
const TRIES_MAX: u32 = 5;

/// What all terms of the lease are above.
#[derive(Debug)]
pub struct TermFloor {
    etcd: tokio::sync::Mutex<EtcdValue>,
    /// For so long etcd grants the lease.
    ttl: Duration,
}

impl TermFloor {
    /// Where it lies.
    pub fn new(etcd: EtcdValue, ttl: Duration) -> Self {
        Self { etcd: tokio::sync::Mutex::new(etcd), ttl }
    }

    /// Raises it; it is never lowered.
    async fn raise(&self, to: u64) -> anyhow::Result<()> {
        let mut etcd = self.etcd.lock().await;
        for _ in 0..TRIES_MAX {
            let read = etcd.read().await?;
            let text = String::from_utf8(read.bytes.unwrap_or_else(|| b"0".to_vec()))?;
            let now: u64 = text.trim().parse().with_context(|| format!("{text:?} in etcd is no term"))?;
            if now >= to || etcd.replace(read.revision, to.to_string().as_bytes()).await?.is_some() {
                return Ok(());
            }
        }
        bail!("others change it all the time; {TRIES_MAX} tries came too late")
    }
}

/// The term that a relay obeyed last, or why it does not say.
type Obeyed = (String, Result<LeaseToken, String>);

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    /// Looks for relays that refuse this manager, for as long as it runs.
    pub async fn follow_terms(&self) {
        let mut standing = self.parts.lease.standing();
        loop {
            self.look_at_terms().await;
            tokio::select! {
                changed = standing.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Relays that refuse this manager, each with why, as of the last look.
    pub(super) fn refusing(&self) -> Vec<String> {
        self.refusing.borrow().clone()
    }

    async fn look_at_terms(&self) {
        let refusing = match self.parts.lease.check() {
            Ok(term) => later(&self.obeyed().await, term),
            Err(_) => Vec::new(),
        };
        let words = refusing.into_iter().map(|(words, _)| words).collect::<Vec<_>>();
        let is_new = self.refusing.send_if_modified(|now| std::mem::replace(now, words.clone()) != words);
        for relay in words.iter().filter(|_| is_new) {
            warn!(source = self.parts.source, "{relay}");
        }
    }

    async fn obeyed(&self) -> Vec<Obeyed> {
        let asked = self.parts.relays.iter().map(|relay| async move {
            let answer = match tokio::time::timeout(ANSWER_PATIENCE, relay.control.read()).await {
                Ok(Ok(report)) => Ok(report.term),
                Ok(Err(AckerError::Refused(reason) | AckerError::Unknown(reason))) => Err(reason),
                Err(_) => {
                    Err(format!("{} did not answer within {} s", relay.name, ANSWER_PATIENCE.as_secs()))
                }
            };
            (relay.name.clone(), answer)
        });
        futures_util::future::join_all(asked).await
    }

    /// Has the next term of the lease be above all that relays have obeyed, and begins it.
    ///
    /// # Errors
    /// If this manager does not hold the lease, or a run is under way, or a relay does not say what it obeyed, or none refuses; if etcd
    /// does not answer.
    pub async fn raise_terms(&self) -> anyhow::Result<()> {
        let Some(above) = &self.parts.above else {
            bail!("terms of a lease in a file come from this machine's clock: is it right?");
        };
        let term = self.parts.lease.check()?;
        ensure!(!self.is_busy(), "a run is under way");
        let obeyed = self.obeyed().await;
        for (_, answer) in &obeyed {
            if let Err(reason) = answer {
                bail!("all relays have to say which term they obeyed last: {reason}");
            }
        }
        let highest = later(&obeyed, term).into_iter().map(|(_, seen)| seen).max();
        let highest = highest.context("no relay refuses this manager: nothing is to be raised")?;
        // A manager whose lease etcd has forgotten has stopped by then.
        tokio::time::sleep(above.ttl).await;
        ensure!(self.parts.lease.check()? == term, "another term of the lease has begun");
        above.raise(highest.0).await?;
        ensure!(!self.is_busy(), "a run has begun meanwhile; ask again when it is over");
        let source = &self.parts.source;
        info!(source, above = highest.0, "terms of the lease are raised, and another begins");
        let mut standing = self.parts.lease.standing();
        standing.mark_unchanged();
        self.parts.lease.restart_term();
        // Another manager may get it.
        let begun = async {
            while self.parts.lease.check().is_ok_and(|now| now == term) {
                standing.changed().await?;
            }
            while self.parts.lease.check().is_err() {
                standing.changed().await?;
            }
            anyhow::Ok(())
        };
        let _ = tokio::time::timeout(above.ttl, begun).await;
        self.look_at_terms().await;
        Ok(())
    }
}

/// Of the relays those that have obeyed a later term than that, each with what it means.
fn later(obeyed: &[Obeyed], term: LeaseToken) -> Vec<(String, LeaseToken)> {
    let known = obeyed.iter().filter_map(|(name, answer)| Some((name, *answer.as_ref().ok()?)));
    let later = known.filter(|(_, seen)| *seen > term);
    later.map(|(name, seen)| (format!("{name} {}", stale_term_text(term.0, seen.0)), seen)).collect()
}
