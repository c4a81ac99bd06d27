//! Finds former primaries that answer again, and rejoins them without an operator. The configuration enables
//! this with `rejoin = true`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_manager::SafetyRefusal;
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::actions::{read_only_switch, replication_setup};
use tailwater_manager::audit_history::{Replacement, RunEffect, former_primaries};
use tailwater_manager::failover_driver::AuditFolder;
use tailwater_manager::model::Audit;
use tailwater_rejoin::RejoinError;
use tailwater_session::{ConnectOptions, Connection};
use tailwater_topology::server_probe::ProbeTarget;
use tailwater_topology::server_state::ReplicaChannel;
use tracing::{debug, error, info, warn};

use super::failover_run_id::run_time;
use super::former_primary_rejoin::{FormerPrimary, RejoinReport, RejoinRequest};
use super::managed_cluster::ManagedCluster;
use super::rejoin_jobs::RejoinJobs;
use crate::error_chain::ErrorChain;
use crate::jobs::job_service::JobService;
use crate::options_from_config;
use tailwater_config::{Config, SourceConfig};

/// Interval between two searches for former primaries.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How long the first probes of all servers and relays may take.
const FIRST_PROBES_MAX: Duration = Duration::from_secs(30);

/// The greatest time between the replacement of a primary and the start of this manager, in hours. A primary
/// that was replaced earlier is left to operators, who may have a reason not to rejoin it.
const REPLACED_HOURS_MAX: i64 = 24;

/// Makes former primaries replicas when they answer again. Runs until the future is dropped.
///
/// A server that the rejoin refuses, or that differs from the primary, is left to operators. So is a server
/// that may have acknowledged commits that no other server has.
///
/// Former primaries are: every server that is primary at the start or later, every server that was replaced
/// within [`REPLACED_HOURS_MAX`] before the start, and the source's own server if the log follows another
/// server. A former primary is rejoined only if it answers and does not replicate.
///
/// Nothing is done while it is uncertain which server is the primary, because the server to rejoin may be the
/// primary. This is so while a failover or switchover is incomplete, or while the server that the log follows
/// is not writable.
pub async fn rejoin_former_primaries<H: ActionExecutor + 'static>(
    config: Config,
    source: SourceConfig,
    cluster: Arc<ManagedCluster<H>>,
    jobs: JobService,
) {
    let mut listed = RejoinJobs::new(jobs);
    let mut replacements = Replacements::after(cluster.records());
    let mut former = BTreeSet::new();
    let (started, mut has_read_records) = (Instant::now(), false);
    let configured = options_from_config::cluster_led_by(&config, &source, Some(&source.name));
    let mut primary = configured.map_or_else(|_| source.name.clone(), |wired| wired.primary.name);
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        if !cluster.is_free() {
            continue;
        }
        let Ok(wired) = options_from_config::cluster_led_by(&config, &source, None) else { continue };
        // The records may name a server differently. The first probes show which server it is.
        let is_probed = cluster.cluster_state().has_polled_all() || started.elapsed() > FIRST_PROBES_MAX;
        if !has_read_records && is_probed {
            let load = |id: &str| cluster.load_record(id).ok().flatten();
            former.extend(recently_replaced(cluster.records(), chrono::Utc::now(), load));
            has_read_records = true;
        }
        if wired.primary.name != primary {
            former.insert(std::mem::replace(&mut primary, wired.primary.name.clone()));
        }
        // The primary may change and change back between two polls. The server that was primary in between is
        // also a former primary.
        let load = |id: &str| cluster.load_record(id).ok().flatten();
        former.extend(replacements.take(cluster.records(), chrono::Utc::now(), load));
        former.remove(&primary);
        listed.end(&primary);
        for server in
            wired.followers.iter().filter(|server| former.contains(&server.name)).collect::<Vec<_>>()
        {
            if listed.is_cancelled(&server.name) {
                listed.end_cancelled(&source.name, &server.name);
                former.remove(&server.name);
                continue;
            }
            // A rejoin can take long. It stops when a failover or switchover begins, so that it cannot change
            // the replication of a server that becomes primary.
            let interrupted = cluster.interrupted();
            if !cluster.is_free() || cluster.is_half_way() {
                break;
            }
            let doubt = match cluster.past_of(&server.name, &primary) {
                Replacement::Lossless => None,
                Replacement::Unknown(reason) => Some(reason),
                Replacement::LossAccepted(run) => {
                    let reason =
                        format!("the failover {run} accepted the loss of commits (--allow-data-loss)");
                    report_unsafe(&source.name, &server.name, reason);
                    listed.end(&server.name);
                    former.remove(&server.name);
                    continue;
                }
            };
            let is_handled = tokio::select! {
                is_handled = rejoin(&config, &source, &wired.primary, server, doubt, &mut listed) => is_handled,
                reason = interrupted => {
                    listed.wait(&server.name, &reason);
                    warn!(source = source.name, server = server.name, "the rejoin is interrupted, and resumes later: {reason}");
                    break;
                }
            };
            if is_handled {
                listed.end(&server.name);
                former.remove(&server.name);
            }
        }
    }
}

/// Returns the servers that a failover or switchover replaced as primary within [`REPLACED_HOURS_MAX`] and
/// that no later failover or switchover promoted again, according to the audit records.
fn recently_replaced(
    records: &AuditFolder,
    now: chrono::DateTime<chrono::Utc>,
    load: impl Fn(&str) -> Option<Audit>,
) -> BTreeSet<String> {
    // If the audit records cannot be read, no server is returned, and operators must start the rejoin.
    let ids = records.list_newest_first().unwrap_or_default();
    let recent = ids.iter().filter(|id| is_recent(id, now)).filter_map(|id| load(id));
    let replaced = former_primaries(recent);
    for (server, run) in &replaced {
        info!(run, server, "the server was replaced as primary; it will be rejoined when it answers");
    }
    replaced.into_keys().collect()
}

/// Whether a failover or switchover began within [`REPLACED_HOURS_MAX`] before `now`, or later.
fn is_recent(id: &str, now: chrono::DateTime<chrono::Utc>) -> bool {
    run_time(id).is_some_and(|began| (now - began).num_hours() < REPLACED_HOURS_MAX)
}

/// The primaries that failovers and switchovers replaced. Each failover or switchover is reported once.
#[derive(Debug)]
struct Replacements {
    reported: BTreeSet<String>,
}

impl Replacements {
    /// Reports only failovers and switchovers whose audit records are stored after this call. The ids of
    /// these failovers and switchovers may contain earlier times: the clock may have been stepped back, or
    /// another manager may have stored them.
    fn after(records: &AuditFolder) -> Self {
        Self { reported: records.list().unwrap_or_default().into_iter().collect() }
    }

    /// Returns the primaries that were replaced by failovers and switchovers that have ended since the last
    /// call.
    fn take(
        &mut self,
        records: &AuditFolder,
        now: chrono::DateTime<chrono::Utc>,
        load: impl Fn(&str) -> Option<Audit>,
    ) -> Vec<String> {
        let mut replaced = Vec::new();
        // If the audit records cannot be read now, the next call reads them.
        for id in records.list().unwrap_or_default() {
            if !is_recent(&id, now) || self.reported.contains(&id) {
                continue;
            }
            let Some(audit) = load(&id) else { continue };
            // A failover or switchover in progress may still replace the primary.
            if audit.outcome.is_none() {
                continue;
            }
            if matches!(RunEffect::of(&audit), RunEffect::Promoted { .. }) {
                replaced.push(audit.primary);
            }
            self.reported.insert(id);
        }
        replaced
    }
}

/// Logs that a server is not rejoined because it may have commits that no other server has.
fn report_unsafe(source: &str, server: &str, reason: String) {
    let refusal = SafetyRefusal::RejoinUnsafe { server: server.to_owned(), reason };
    error!(source, server, code = refusal.code(), "{refusal}");
}

/// Rejoins a server that answers and does not replicate, or resumes an interrupted rejoin, if the primary is
/// writable. `doubt` is the reason why commits that only this server has may have been acknowledged. If there
/// is such a reason, a server with errant transactions is not rejoined. Returns false if the rejoin must be
/// tried again.
async fn rejoin(
    config: &Config,
    source: &SourceConfig,
    primary: &ProbeTarget,
    server: &ProbeTarget,
    doubt: Option<String>,
    listed: &mut RejoinJobs,
) -> bool {
    let Some(channel) = channel_of(&server.connect).await else { return false };
    let request = RejoinRequest {
        server: server.name.clone(),
        copy: false,
        check: true,
        window: None,
        may_undo: doubt.is_none(),
    };
    let result = match (FormerPrimary::new(config, source, request), channel) {
        // An operator or another tool has already made the server a replica.
        (Err(_), Some(_)) => return true,
        (Err(error), None) => Err(error),
        (Ok(former), Some(channel)) => match former.resume(&channel).await.transpose() {
            Some(result) => result,
            None => return true,
        },
        (Ok(_), None) if !is_writable(&primary.connect).await => {
            debug!(
                source = source.name,
                server = server.name,
                primary = primary.name,
                "the former primary is not rejoined yet: the primary is not writable"
            );
            return false;
        }
        (Ok(former), None) => match listed.run(&former).await {
            Some(result) => result,
            // An operator has cancelled the rejoin. The caller notices that.
            None => return false,
        },
    };
    match (result, doubt) {
        (Err(error), Some(doubt)) if has_errant_transactions(&error) => {
            listed.record(&server.name, &Err(anyhow::anyhow!("{doubt}, and {}", ErrorChain(&error))));
            report_unsafe(&source.name, &server.name, format!("{doubt}, and {}", ErrorChain(&error)));
            true
        }
        (result, _) => {
            listed.record(&server.name, &result);
            log_result(&source.name, &server.name, result)
        }
    }
}

fn has_errant_transactions(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(RejoinError::ErrantTransactions { .. }))
}

/// Whether a server answers, and clients can write to it.
async fn is_writable(server: &ConnectOptions) -> bool {
    let Ok(mut connection) = Connection::connect(server).await else { return false };
    let is_writable = read_only_switch::is_writable(&mut connection).await.unwrap_or(false);
    connection.close().await;
    is_writable
}

/// Returns the replication channel of a server: `Some(None)` if it does not replicate, `None` if it does not
/// answer.
async fn channel_of(server: &ConnectOptions) -> Option<Option<ReplicaChannel>> {
    let mut connection = Connection::connect(server).await.ok()?;
    let channel = replication_setup::status(&mut connection).await.ok()?;
    connection.close().await;
    Some(channel)
}

/// Logs the result of a rejoin. Returns false if the rejoin must be tried again.
fn log_result(source: &str, server: &str, result: anyhow::Result<RejoinReport>) -> bool {
    match result {
        Ok(report) if report.reads_from.is_some() => {
            info!(source, server, "the former primary is a replica now");
            true
        }
        Ok(_) => {
            error!(
                source,
                server,
                "the former primary differs from the primary: `tailwater rejoin` shows where, and how to copy it"
            );
            true
        }
        Err(error) if error.downcast_ref::<RejoinError>().is_some_and(RejoinError::is_refusal) => {
            error!(source, server, "the former primary cannot be rejoined: {}", ErrorChain(&error));
            true
        }
        Err(error) => {
            warn!(
                source,
                server,
                "the former primary could not be rejoined; trying again: {}",
                ErrorChain(&error)
            );
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tailwater_manager::failover_driver::AuditStore;

    use super::super::failover_run_id::new_run_id;
    use super::*;

    #[test]
    fn a_recently_replaced_primary_is_rejoined_after_a_restart() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let records = AuditFolder::new(folder.path());
        let now = chrono::Utc::now();
        let replace = |hours_ago: i64, primary: &str, server: Option<&str>| {
            let start = (now - chrono::TimeDelta::hours(hours_ago)).format("%Y%m%dT%H%M%S%3fZ");
            let outcome = server.map(|server| json!({ "end": "promoted", "server": server, "left": [] }));
            let audit: Audit = serde_json::from_value(json!({
                "id": format!("{start}-orders-failover"), "primary": primary, "dry_run": false, "allow_data_loss": false,
                "steps": [], "outcome": outcome,
            }))?;
            anyhow::Ok(records.save(&audit)?)
        };
        replace(30, "db4", Some("db1"))?;
        replace(9, "db1", Some("db2"))?;
        replace(8, "db2", Some("db3"))?;
        replace(7, "db3", Some("db1"))?;
        replace(6, "db1", None)?;
        let expected = ["db2", "db3"].map(str::to_owned);
        assert_eq!(
            recently_replaced(&records, now, |id| records.load(id).ok().flatten()),
            BTreeSet::from(expected)
        );
        Ok(())
    }

    #[test]
    fn a_server_that_was_primary_between_two_polls_is_a_former_primary() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let records = AuditFolder::new(folder.path());
        let now = chrono::Utc::now();
        let save = |seconds: i64, primary: &str, outcome: Option<serde_json::Value>| {
            let id = new_run_id(now + chrono::TimeDelta::seconds(seconds), &[], "orders", "failover");
            let audit: Audit = serde_json::from_value(json!({
                "id": id, "primary": primary, "dry_run": false, "allow_data_loss": false,
                "steps": [], "outcome": outcome,
            }))?;
            anyhow::Ok(records.save(&audit)?)
        };
        let promoted = |server: &str| Some(json!({ "end": "promoted", "server": server, "left": [] }));
        save(-1, "db3", promoted("db1"))?;
        let mut replacements = Replacements::after(&records);
        let load = |id: &str| records.load(id).ok().flatten();
        assert!(
            replacements.take(&records, now, load).is_empty(),
            "a failover that began before the start was reported"
        );
        // Another manager stored this one, and its clock lags.
        save(-60, "db3", promoted("db1"))?;
        assert_eq!(replacements.take(&records, now, load), ["db3"]);
        save(-3600 * (REPLACED_HOURS_MAX + 1), "db3", promoted("db1"))?;
        assert!(replacements.take(&records, now, load).is_empty(), "an old failover was reported");
        save(1, "db1", promoted("db2"))?;
        save(2, "db2", promoted("db1"))?;
        save(3, "db1", None)?;
        assert_eq!(replacements.take(&records, now, load), ["db1", "db2"]);
        assert!(replacements.take(&records, now, load).is_empty(), "a failover was reported twice");
        save(3, "db1", promoted("db3"))?;
        assert_eq!(replacements.take(&records, now, load), ["db1"]);
        Ok(())
    }
}
