//! Makes the primary of a managed trial fail under load, and records when a replica takes over.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use tailwater_manager::model::{Audit, AuditEvent, RunAction, RunOutcome, RunPhase};
use tailwater_sandbox::{Ledger, Server, Workload};
use tailwater_session::{ConnectOptions, Connection};
use tokio::task::JoinHandle;

use super::Trial;
use super::managed_cluster::PRIMARY_NAME;

/// How a primary fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrimaryFailure {
    /// SIGKILL: the host still answers, and refuses connections.
    Killed,
    /// SIGSTOP: nothing answers, as if the machine had failed.
    Silent,
}

/// How long a client retries its commit.
const PATIENCE: Duration = Duration::from_secs(60);

/// The times of a failover, counted from the failure of the primary.
#[derive(Debug)]
pub struct FailoverTimes {
    /// The name of the new primary.
    pub primary: String,
    /// Time until the manager started to act, in milliseconds.
    pub detected_ms: u64,
    /// Time until all acknowledged commits were proven to be in the log, in milliseconds.
    pub proven_ms: u64,
    /// Time until the new primary accepted writes, in milliseconds.
    pub writable_ms: u64,
    /// Time until the first successful commit of a client that retried continuously, in milliseconds.
    pub first_commit_ms: u64,
    /// The clients' ledger before the first commit on the new primary.
    pub ledger: Ledger,
    /// Number of acknowledged transactions in this ledger.
    pub acknowledged_before: u64,
    /// Whether the failover overrode no safety rule.
    pub is_lossless: bool,
}

/// Makes the primary fail, and waits until clients commit on one of its replicas `servers`.
///
/// # Errors
/// If no replica takes over.
pub async fn replace(
    trial: &mut Trial,
    servers: &[&Server],
    workload: &Workload,
    death: PrimaryFailure,
) -> anyhow::Result<FailoverTimes> {
    let clients: Vec<_> = servers.iter().map(|server| first_commit(server.connect_options())).collect();
    let (killed, killed_at) = (Instant::now(), SystemTime::now());
    match death {
        PrimaryFailure::Killed => trial.primary.kill().await?,
        PrimaryFailure::Silent => trial.primary.pause()?,
    }
    let primary = trial.wait_failed_over(PRIMARY_NAME).await?;
    // At this point the clients have received every acknowledgement of the dead primary, and none of the new
    // primary.
    let ledger = copy_of(workload.ledger());
    let acknowledged_before = workload.counters().snapshot().acknowledged;
    let server = servers
        .iter()
        .find(|server| server.name() == primary)
        .context("the new primary is not among the replicas")?;
    workload.redirect(server.connect_options());
    let (first, _, others) = futures_util::future::select_all(clients).await;
    others.iter().for_each(JoinHandle::abort);
    let first_commit_ms = millis(first??.duration_since(killed));
    let audit = trial.last_failover()?;
    let start_ms = start_ms(&audit, killed_at)?;
    Ok(FailoverTimes {
        detected_ms: start_ms,
        proven_ms: start_ms + at_ms(&audit, |phase, _| phase == RunPhase::ChooseCandidate)?,
        writable_ms: start_ms + writable_ms(&audit)?,
        first_commit_ms,
        ledger,
        acknowledged_before,
        is_lossless: audit.possible_loss.is_none()
            && matches!(audit.outcome, Some(RunOutcome::Promoted { .. })),
        primary,
    })
}

/// Returns the time of the first successful commit of a client that retries continuously on this server.
pub(crate) fn first_commit(options: ConnectOptions) -> JoinHandle<anyhow::Result<Instant>> {
    tokio::spawn(async move {
        let until = Instant::now() + PATIENCE;
        let mut connection = Connection::connect(&options).await?;
        loop {
            ensure!(Instant::now() < until, "{} accepts no writes", options.endpoint);
            // The superuser can write to a read-only server. So the client waits until `read_only` is off and
            // other clients can write, too.
            let asked = connection.query("SELECT @@global.read_only").await?;
            let is_writable = asked.rows.first().and_then(|row| row.get_str(0)) == Some("0");
            if is_writable && connection.execute("CREATE DATABASE IF NOT EXISTS tw_demo").await.is_ok() {
                return Ok(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
}

/// Returns the time from the failure of the primary until the manager started the failover, in milliseconds.
/// The name of the failover's audit record contains its start time.
fn start_ms(audit: &Audit, killed_at: SystemTime) -> anyhow::Result<u64> {
    let started = audit.id.split('-').next().unwrap_or_default();
    let started = chrono::NaiveDateTime::parse_from_str(started, "%Y%m%dT%H%M%S%3fZ")?.and_utc();
    let killed = chrono::DateTime::<chrono::Utc>::from(killed_at);
    Ok(u64::try_from((started - killed).num_milliseconds()).unwrap_or(0))
}

/// Returns the time of the first audit event that satisfies the condition, in milliseconds.
fn at_ms(audit: &Audit, condition: impl Fn(RunPhase, &AuditEvent) -> bool) -> anyhow::Result<u64> {
    let step = audit.steps.iter().find(|step| condition(step.phase, &step.note));
    step.map(|step| step.at_ms).with_context(|| format!("the audit record lacks an expected event: {audit}"))
}

fn writable_ms(audit: &Audit) -> anyhow::Result<u64> {
    let ordered = audit.steps.iter().find_map(|step| match &step.note {
        AuditEvent::ActionOrdered { number, what: RunAction::MakeWritable { .. } } => Some(*number),
        _ => None,
    });
    let ordered = ordered
        .with_context(|| format!("the audit record shows no server that was made writable: {audit}"))?;
    at_ms(audit, |_, note| matches!(note, AuditEvent::ActionAnswered { number, .. } if *number == ordered))
}

fn copy_of(ledger: &Ledger) -> Ledger {
    let copy = Ledger::new();
    ledger.for_each(|id, entry| copy.record(id, entry));
    copy
}

/// Returns whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
