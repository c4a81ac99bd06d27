//! Runs a whole cluster under load, and injects one random fault after another.
//!
//! The cluster has three servers, and each can be the primary. A daemon captures, serves, manages
//! (`automatic`, `rejoin`) and reports the primary over HTTP. Clients keep a ledger and are routed to the
//! primary. The test can cut the links between all of them.
//!
//! Each round injects one fault, ends it, and waits until the cluster has recovered without help: one server
//! accepts writes, the others have applied everything, and the manager reports no problems. Some clients have
//! no proxy: they stay with the server that was the primary at the time of the fault. If that server
//! acknowledged a commit after its replacement, the commit would be missing on the new primary.
//!
//! After each round, the primary has every acknowledged commit. At the end all three servers have the same
//! rows.
//!
//! A run prints its random seed. `TAILWATER_SEED=n` repeats the random choices of that run, but not the
//! timing of the servers. CI injects a few faults. With `TAILWATER_LONG=1` there are `TAILWATER_FAULTS`
//! faults, on both server families. `TAILWATER_ONLY=KillPrimary,CutClients` selects kinds of faults.

mod cluster_health_wait;
mod fault_injection;
mod fault_types;
mod full_disk;
mod test_cluster;
mod writing_clients;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, SeedableRng};
use tailwater_lab::fault_trial::TrialDurability;
use tailwater_sandbox::{ServerKind, require};

use fault_types::Fault;
use test_cluster::Cluster;
use writing_clients::Clients;

/// Number of faults that are injected into one cluster.
const FAULTS_OF_A_CLUSTER: u32 = 25;

/// Counts of the faults and results of all clusters.
#[derive(Debug, Default)]
struct Summary {
    faults: BTreeMap<String, u32>,
    replaced: u32,
    acknowledged: u64,
    unknown: u64,
}

impl Summary {
    fn total(&self) -> u32 {
        self.faults.values().sum()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<_> = self.faults.iter().map(|(fault, count)| format!("{count} {fault}")).collect();
        write!(
            f,
            "{} faults ({}); the primary was replaced {} times; {} commits were acknowledged and none is missing; {} commits have an unknown outcome",
            self.total(),
            each.join(", "),
            self.replaced,
            self.acknowledged,
            self.unknown
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_fault_loses_acknowledged_commits() -> Result<()> {
    let long = std::env::var_os("TAILWATER_LONG").is_some();
    let seed: u64 = match std::env::var("TAILWATER_SEED") {
        Ok(text) => text.parse().context("TAILWATER_SEED is not a number")?,
        Err(_) => rand::random(),
    };
    let wanted: u32 = match std::env::var("TAILWATER_FAULTS") {
        Ok(text) => text.parse().context("TAILWATER_FAULTS")?,
        Err(_) if long => 2 * FAULTS_OF_A_CLUSTER,
        Err(_) => 3,
    };
    say(&format!("TAILWATER_SEED={seed} repeats this run"));
    let mut random = StdRng::seed_from_u64(seed);
    let families = [ServerKind::Mariadb1011, ServerKind::Mysql97];
    let kinds: Vec<_> = families.into_iter().filter(|kind| require(*kind).is_some()).collect();
    let mut summary = Summary::default();
    let (first, mut number) = (random.random_range(0..4_usize), 0);
    while summary.total() < wanted && !kinds.is_empty() {
        let kind = kinds[(first + number) % kinds.len()];
        let durability = match (first + number) / 2 % 2 {
            0 => TrialDurability::Full,
            _ => TrialDurability::Reduced,
        };
        let faults = (wanted - summary.total()).min(FAULTS_OF_A_CLUSTER);
        let mut of_cluster = StdRng::seed_from_u64(random.random());
        let borne = run_cluster(kind, durability, faults, &mut of_cluster, &mut summary).await;
        borne.with_context(|| format!("TAILWATER_SEED={seed}, cluster {number}: {kind}, {durability:?}"))?;
        number += 1;
        say(&format!("so far: {summary}"));
    }
    Ok(())
}

/// Prints to standard error directly. The test harness hides the output of passing tests, but a test that
/// takes minutes should show its progress.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether `TAILWATER_ONLY` selects the fault.
fn is_wanted(fault: Fault) -> bool {
    let only = std::env::var("TAILWATER_ONLY").unwrap_or_default();
    only.is_empty() || only.split(',').any(|name| name == fault.name())
}

/// Selects a random fault. Each kind of fault is equally likely, also if it has several variants.
fn choose(possible: &[Fault], random: &mut StdRng) -> Option<Fault> {
    let mut names: Vec<_> = possible.iter().map(|fault| fault.name()).collect();
    names.dedup();
    let name = names.choose(random)?;
    possible.iter().copied().filter(|fault| fault.name() == *name).choose(random)
}

/// Runs one cluster, from its start to the comparison of all its servers.
async fn run_cluster(
    kind: ServerKind,
    durability: TrialDurability,
    faults: u32,
    random: &mut StdRng,
    summary: &mut Summary,
) -> Result<()> {
    say(&format!("a cluster of {kind}, {durability:?}"));
    let mut cluster = Cluster::start(kind, durability).await?;
    let mut clients = Clients::start(&cluster)?;
    let result = rounds(&mut cluster, &mut clients, faults, random, summary).await;
    // The cause comes first: reports of failed tests are often cut at their end.
    result.map_err(|error| anyhow!("{error:#}\n{}", cluster.last_words()))?;
    let leader = cluster.wait_until_healthy().await.with_context(|| cluster.last_words())?;
    let ledger = clients.finish().await?;
    let compared = cluster.compare_all(&leader, &ledger).await;
    compared.with_context(|| cluster.last_words())?;
    let totals = ledger.totals();
    summary.acknowledged += totals.acknowledged;
    summary.unknown += totals.unknown;
    cluster.stop().await
}

async fn rounds(
    cluster: &mut Cluster,
    clients: &mut Clients,
    faults: u32,
    random: &mut StdRng,
    summary: &mut Summary,
) -> Result<()> {
    let long = std::env::var_os("TAILWATER_LONG").is_some();
    let is_in = |fault: &Fault| is_wanted(*fault) && fault.is_possible(cluster) && (long || fault.is_quick());
    let possible: Vec<Fault> = Fault::ALL.into_iter().filter(is_in).collect();
    ensure!(!possible.is_empty(), "TAILWATER_ONLY selects no fault that this cluster allows");
    for round in 0..faults {
        let leader = cluster.wait_until_healthy().await?;
        clients.more_commits(random.random_range(20..200)).await?;
        let fault = choose(&possible, random).context("this cluster allows no fault")?;
        let what = format!("round {round}: {fault:?}, primary {leader}");
        let started = Instant::now();
        let load_of_leader = clients.load_of_server(cluster.server(&leader)?);
        let effect = cluster.inject(fault, &leader, random).await.with_context(|| what.clone())?;
        let ended = started.elapsed();
        let what = format!("{what} ({effect})");
        let now = cluster.wait_until_healthy().await.with_context(|| what.clone())?;
        clients.more_commits(20).await.with_context(|| what.clone())?;
        load_of_leader.abort().await;
        clients.compare(cluster.server(&now)?).await.with_context(|| what.clone())?;
        *summary.faults.entry(fault.name()).or_default() += 1;
        summary.replaced += u32::from(now != leader);
        let (ended, healthy) = (ended.as_secs_f64(), started.elapsed().as_secs_f64());
        say(&format!(
            "{what}; the fault ended after {ended:.1} s; {now} is primary; healthy after {healthy:.1} s"
        ));
    }
    Ok(())
}
