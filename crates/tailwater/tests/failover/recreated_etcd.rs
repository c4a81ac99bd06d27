//! etcd is created from scratch while the cluster runs. The lease terms then start below the
//! terms that the relays have accepted.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tailwater_lab::fault_trial::managed_cluster::start_candidate;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_manager::lease::{EtcdOptions, EtcdValue};
use tailwater_sandbox::{Etcd, ServerKind, require};

use crate::failover::former_primary_rejoin::until;
use crate::shell_session::{PROGRAM, Shell};

/// Number of keys that the test writes to etcd at its start. Each write increases etcd's revision.
const WRITES: u64 = 100;

#[tokio::test(flavor = "multi_thread")]
async fn raise_terms_makes_relays_obey_after_etcd_was_recreated() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    let (Some(_), Some(program)) = (require(kind), Etcd::require()) else { return Ok(()) };
    let (shell, folder) = (Shell::new()?, tempfile::tempdir()?);
    let spec = TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        // The former primary needs this option to become primary again.
        options: vec!["--log-slave-updates=1".to_owned()],
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    };
    let (etcd, trial, new) =
        tokio::join!(Etcd::start(&program, folder.path()), Trial::start(spec), start_candidate(kind, 2));
    let (etcd, mut trial, new) = (etcd?, trial?, new?);
    let mut other = EtcdValue::new(EtcdOptions {
        endpoints: vec![etcd.endpoint()],
        key: "/other".to_owned(),
        request_ms_max: 5_000,
        ..EtcdOptions::default()
    })?;
    let mut revision = 0;
    for _ in 0..WRITES {
        revision = other.replace(revision, b"written").await?.context("another client has written")?;
    }
    let endpoint = etcd.endpoint();
    trial.manage(
        &[&new],
        &format!("lease = \"etcd\"\nlease_ttl_ms = 2000\netcd_endpoints = [\"{endpoint}\"]"),
    )?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    new.replicate(&trial.replica_of_relay()).await?;
    trial.wait_until_observed().await?;
    shell.run("manager raise-terms primary -c tailwater.toml")?.exits(1).stderr_has(&["need not be raised"]);
    // The relay accepts a lease term of this etcd. After that, this etcd is removed.
    shell.run("switchover primary --to db2 --max-write-pause-ms 30000 -c tailwater.toml")?.exits(0);
    trial.wait_for_primary("db2").await?;
    let etcd = etcd.recreate().await?;

    let status = || shell.run("manager status -c tailwater.toml").map(|ran| ran.text());
    let refuses = "refuses orders of term";
    until("the relay to refuse orders", async || Ok(status()?.contains(refuses))).await?;
    ensure!(
        status()?.contains("tailwater manager raise-terms"),
        "the status does not suggest raise-terms: {}",
        status()?
    );
    until("the manager to observe the primary", async || Ok(status()?.contains("1 of tailwater must")))
        .await?;
    // Even the plan of a failover must be refused.
    let ran = shell.run("failover primary --dry-run -c tailwater.toml")?.exits(4);
    ran.stderr_has(&["TW-MGR-0032", refuses]);
    let ran = shell.run("switchover primary --dry-run -c tailwater.toml")?.exits(4);
    ran.stderr_has(&["TW-MGR-0070", refuses]);

    shell.run("manager raise-terms primary -c tailwater.toml")?.exits(0);
    // The status still shows the audit record of the last failover or switchover. So this closure checks only
    // the lease and the relays that refuse orders.
    let nobody_refuses = || -> Result<bool> {
        let status = shell.run("manager status -c tailwater.toml --output json")?.json()?;
        let cluster = &status.first().context("`manager status` printed nothing")?["clusters"][0];
        let is_held = cluster["lease"].as_str().is_some_and(|lease| lease.starts_with("held"));
        Ok(is_held && cluster["refusing"].as_array().is_some_and(Vec::is_empty))
    };
    until("the relay to obey orders", async || nobody_refuses()).await?;
    shell.run("switchover primary --to db1 --max-write-pause-ms 30000 -c tailwater.toml")?.exits(0);
    trial.wait_for_primary("db1").await?;
    ensure!(nobody_refuses()?, "a relay still refuses orders: {}", status()?);
    // The new etcd has the record of the switchover to db2, which only the manager's machine had kept.
    let mut records = EtcdValue::new(EtcdOptions {
        endpoints: vec![etcd.endpoint()],
        key: "/tailwater/primary/run".to_owned(),
        request_ms_max: 5_000,
        ..EtcdOptions::default()
    })?;
    let stored = String::from_utf8(records.read().await?.bytes.unwrap_or_default())?;
    for server in ["db1", "db2"] {
        let promoted = format!("\"end\":\"promoted\",\"server\":\"{server}\"");
        ensure!(stored.contains(&promoted), "no record of the promotion of {server} in etcd: {stored}");
    }
    drop(etcd);
    trial.stop_relay().await
}
