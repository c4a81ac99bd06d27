//! Finds relays that refuse this manager because they have obeyed a later lease term. There are two possible
//! causes: another manager holds a lease in another place, or etcd was created again and counts lease terms
//! from the start.
//!
//! This manager cannot find out which of these causes it is. If it raised its own lease terms in the first
//! case, both managers would act. So it only reports the relays. In the second case an operator raises the
//! lease terms.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tailwater_manager::action_executor::{AckerError, ActionExecutor};
use tailwater_manager::lease::EtcdValue;
use tailwater_manager::lossless_rules::stale_term_text;
use tailwater_manager::model::LeaseToken;
use tracing::{info, warn};

use super::ManagedCluster;

/// Interval of queries of the lease terms that relays have obeyed.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Time-out of one query.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// How many times a manager tries again to raise the floor, because other managers change it at the same
/// time.
const TRIES_MAX: u32 = 5;

/// The floor of the lease terms in etcd: every new lease term is higher.
#[derive(Debug)]
pub struct TermFloor {
    etcd: tokio::sync::Mutex<EtcdValue>,
    /// The time to live of the lease.
    ttl: Duration,
}

impl TermFloor {
    /// Creates access to the floor in that value of etcd.
    pub fn new(etcd: EtcdValue, ttl: Duration) -> Self {
        Self { etcd: tokio::sync::Mutex::new(etcd), ttl }
    }

    /// Raises the floor. The floor is never lowered.
    async fn raise(&self, to: u64) -> anyhow::Result<()> {
        let mut etcd = self.etcd.lock().await;
        for _ in 0..TRIES_MAX {
            let read = etcd.read().await?;
            let text = String::from_utf8(read.bytes.unwrap_or_else(|| b"0".to_vec()))?;
            let now: u64 = text.trim().parse().with_context(|| {
                format!("the floor of the lease terms in etcd is {text:?}, which is not a number")
            })?;
            if now >= to || etcd.replace(read.revision, to.to_string().as_bytes()).await?.is_some() {
                return Ok(());
            }
        }
        bail!(
            "other managers changed the floor of the lease terms in etcd during each of {TRIES_MAX} attempts"
        )
    }
}

/// The name of a relay, and the lease term that the relay obeyed last, or why the term is unknown.
type ObeyedTerm = (String, Result<LeaseToken, String>);

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    /// Checks for relays that refuse this manager, without end.
    pub async fn check_terms_forever(&self) {
        let mut lease = self.parts.lease.standing();
        loop {
            self.check_terms().await;
            tokio::select! {
                changed = lease.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    /// Returns the relays that refused this manager in the last check, each with the reason.
    pub(super) fn refusing(&self) -> Vec<String> {
        self.refusing.borrow().clone()
    }

    async fn check_terms(&self) {
        let refusing = match self.parts.lease.check() {
            Ok(term) => later_terms(&self.obeyed_terms().await, term),
            Err(_) => Vec::new(),
        };
        let texts = refusing.into_iter().map(|(text, _)| text).collect::<Vec<_>>();
        let is_new = self.refusing.send_if_modified(|now| std::mem::replace(now, texts.clone()) != texts);
        for relay in texts.iter().filter(|_| is_new) {
            warn!(source = self.parts.source, "{relay}");
        }
    }

    async fn obeyed_terms(&self) -> Vec<ObeyedTerm> {
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

    /// Raises the floor in etcd above every lease term that a relay has obeyed. Then this manager starts a
    /// new lease term, which is above the floor.
    ///
    /// # Errors
    /// If this manager does not hold the lease, or a failover or switchover is in progress. Also if a relay
    /// does not report the lease term that it obeyed last, if all relays obey this manager, or if etcd does
    /// not answer.
    pub async fn raise_terms(&self) -> anyhow::Result<()> {
        let Some(floor) = &self.parts.term_floor else {
            bail!(
                "the lease is kept in a file, so the lease terms come from this machine's clock and cannot be raised; check the clock of this machine"
            );
        };
        let term = self.parts.lease.check()?;
        ensure!(!self.is_busy(), "a failover or switchover is in progress; try again after it has ended");
        let obeyed = self.obeyed_terms().await;
        for (_, answer) in &obeyed {
            if let Err(reason) = answer {
                bail!("a relay does not report the lease term that it obeyed last: {reason}");
            }
        }
        let highest = later_terms(&obeyed, term).into_iter().map(|(_, seen)| seen).max();
        let highest =
            highest.context("all relays obey this manager, so the lease terms need not be raised")?;
        // After this time, any manager whose lease was lost with the old etcd has stopped acting.
        tokio::time::sleep(floor.ttl).await;
        ensure!(self.parts.lease.check()? == term, "the lease term has changed in the meantime; try again");
        floor.raise(highest.0).await?;
        ensure!(
            !self.is_busy(),
            "a failover or switchover has begun meanwhile; try again after it has ended"
        );
        let source = &self.parts.source;
        info!(
            source,
            above = highest.0,
            "the next lease term will be above the highest lease term that a relay has obeyed; starting a new lease term"
        );
        let mut lease = self.parts.lease.standing();
        lease.mark_unchanged();
        self.parts.lease.restart_term();
        // The wait for the new lease term has a time limit, because another manager may acquire the lease.
        let started = async {
            while self.parts.lease.check().is_ok_and(|now| now == term) {
                lease.changed().await?;
            }
            while self.parts.lease.check().is_err() {
                lease.changed().await?;
            }
            anyhow::Ok(())
        };
        let _ = tokio::time::timeout(floor.ttl, started).await;
        self.check_terms().await;
        Ok(())
    }
}

/// Returns the relays that have obeyed a later lease term than `term`, each with an explanation.
fn later_terms(obeyed: &[ObeyedTerm], term: LeaseToken) -> Vec<(String, LeaseToken)> {
    let known = obeyed.iter().filter_map(|(name, answer)| Some((name, *answer.as_ref().ok()?)));
    let later = known.filter(|(_, seen)| *seen > term);
    later.map(|(name, seen)| (format!("{name} {}", stale_term_text(term.0, seen.0)), seen)).collect()
}
