//! The primary and the acting manager run on the same machine, and that machine dies. The manager on another
//! machine does the failover.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, ensure};
use tailwater_lab::fault_trial::managed_cluster::{PRIMARY_NAME, start_candidate};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{
    ChildProcess, Etcd, Ledger, ReservedPort, ServerKind, Workload, WorkloadSpec, require,
};

use crate::failover::automatic_failover::more_commits;
use crate::failover::two_relays_and_managers::{has_lease, until};
use crate::shell_session::{PROGRAM, Shell};

/// Starts the daemon on the primary's machine. It captures the binlog and manages the cluster. It does not
/// acknowledge commits, because its log would be lost with that machine.
fn start_beside_primary(first: &Shell, shell: &Shell, serve: u16) -> Result<ChildProcess> {
    for name in ["client.cnf", "root.cnf"] {
        std::fs::copy(first.path().join(name), shell.path().join(name))?;
    }
    let text = std::fs::read_to_string(first.path().join("tailwater.toml"))?;
    let port = ReservedPort::pick()?;
    let text = text
        .replace("server_id = 4201", "server_id = 4202\nsemi_sync = false")
        .replace("name = \"elsewhere\"", "name = \"beside the primary\"")
        .replace(
            &format!("listen = \"127.0.0.1:{serve}\""),
            &format!("listen = \"127.0.0.1:{}\"", port.number()),
        );
    shell.write("tailwater.toml", &text)?;
    let config = shell.path().join("tailwater.toml");
    let arguments = ["run".into(), "-c".into(), config.into_os_string()];
    Ok(ChildProcess::start(PROGRAM, arguments, &shell.path().join("relay.log"))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_on_another_machine_replaces_a_primary_that_died_with_its_manager() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    let (Some(_), Some(program)) = (require(kind), Etcd::require()) else { return Ok(()) };
    let (shell, beside, folder) = (Shell::new()?, Shell::new()?, tempfile::tempdir()?);
    let spec = TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    };
    let (etcd, trial, follower) =
        tokio::join!(Etcd::start(&program, folder.path()), Trial::start(spec), start_candidate(kind, 2));
    let (etcd, mut trial, follower) = (etcd?, trial?, follower?);
    trial.manage(
        &[&follower],
        &format!(
            "name = \"elsewhere\"\nautomatic = true\nlease = \"etcd\"\nlease_ttl_ms = 2000\netcd_endpoints = [\"{}\"]",
            etcd.endpoint()
        ),
    )?;
    let dies = start_beside_primary(&shell, &beside, trial.serve_port())?;
    until(&beside, "the manager on the primary's machine to act", has_lease).await?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    follower.replicate(&trial.replica_of_relay()).await?;
    prepare(&trial.primary.connect_options()).await?;
    let watched = |status: &serde_json::Value| status["lossless"] == "1 of tailwater must acknowledge";
    let status = until(&shell, "the other manager to observe the cluster", watched).await?;
    ensure!(!has_lease(&status), "the second manager holds the lease too: {status:#}");
    let ledger = Arc::<Ledger>::default();
    let load = Workload::start(trial.primary.connect_options(), &WorkloadSpec::new(2), Arc::clone(&ledger));
    more_commits(&load, 50).await?;

    tokio::try_join!(dies.kill(), trial.primary.kill())?;
    let status = until(&shell, "a new primary", |status| status["primary"] != PRIMARY_NAME).await?;
    ensure!(
        status["primary"] == "db2" && has_lease(&status),
        "the second manager has not replaced the primary with db2: {status:#}"
    );
    load.redirect(follower.connect_options());
    more_commits(&load, 50).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    let found = ledger.compare_with_server(&follower.connect_options()).await?;
    ensure!(
        found.missing.is_empty() && found.altered.is_empty() && found.unlisted == 0,
        "acknowledged commits are missing or altered, or there are rows that no client wrote: {found:?}"
    );
    trial.stop_relay().await
}
