//! `tailwater bench failover`: how long clients are without a primary when theirs fails.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use tailwater_log::AckMode;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{Ledger, Server, ServerKind, Workload, WorkloadSpec};

use super::report::{Machine, Report, Row, setting};
use crate::cli::FailoverBench;
use crate::cli::ServerFamily;
use crate::demo::choose_server;
use crate::trial::led::start_follower;
use crate::trial::replacing::{Death, Replaced, replace};
use crate::trial::{Durability, Trial, TrialFolder, TrialSpec, provide};

const MEASUREMENT: &str = "from the failure of the primary";

/// Clients that commit all the time.
const CLIENTS: u32 = 8;

/// How long they do before the primary fails.
const WARM_UP: Duration = Duration::from_secs(1);

/// Runs the benchmark for one family, or for both.
///
/// # Errors
/// If a failover does not happen, or loses something.
pub async fn failover(options: &FailoverBench) -> anyhow::Result<Report> {
    let families = match options.server {
        Some(family) => vec![family],
        None => vec![ServerFamily::Mariadb, ServerFamily::Mysql],
    };
    let death = if options.silent { Death::Silent } else { Death::Killed };
    let mut rows = Vec::new();
    for family in families {
        let kind = choose_server(family, None)?;
        provide(kind)?;
        let mut runs = Vec::new();
        for number in 1..=options.rounds {
            let run = round(kind, death).await?;
            eprintln!("{kind} {number}: first commit after {} ms", run.first_commit_ms);
            runs.push(run);
        }
        rows.extend(summary(kind, death, &runs));
    }
    let folder = TrialFolder::new(None)?;
    let ours = rows.iter().filter(|row| row.variant == FIRST_COMMIT).map(|row| row.median);
    Ok(Report {
        name: "failover",
        unit: "ms",
        ours: ours.fold(0.0, f64::max),
        peers: Vec::new(),
        ratio: f64::NAN,
        machine: Machine::look(folder.path())?,
        rows,
        notes: vec![
            format!("{CLIENTS} clients commit until the primary fails; each run on servers of its own"),
            "no acknowledged commit was lost in any run: the new primary's tables were compared with the clients' ledger".to_owned(),
        ],
    })
}

const FIRST_COMMIT: &str = "first commit of a client";

fn summary(kind: ServerKind, death: Death, runs: &[Replaced]) -> Vec<Row> {
    let failure = match death {
        Death::Killed => "SIGKILL",
        Death::Silent => "SIGSTOP",
    };
    let row = |variant: &str, of: fn(&Replaced) -> u64| {
        let values = runs.iter().map(|run| of(run) as f64).collect();
        Row::new(
            MEASUREMENT,
            setting(&[("server", kind.name()), ("failure", failure)]),
            variant,
            "ms",
            values,
        )
    };
    vec![
        row("noticed", |run| run.detected_ms),
        row("proven complete", |run| run.proven_ms),
        row("new primary writable", |run| run.writable_ms),
        row(FIRST_COMMIT, |run| run.first_commit_ms),
    ]
}

/// One failover on servers of its own.
async fn round(kind: ServerKind, death: Death) -> anyhow::Result<Replaced> {
    let folder = TrialFolder::new(None)?;
    let spec = TrialSpec {
        kind,
        durability: Durability::Full,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: std::env::current_exe()?,
        folder: folder.path().to_owned(),
    };
    let mut trial = Trial::start(spec).await?;
    let followers = [start_follower(kind, 2).await?, start_follower(kind, 3).await?];
    let followers: Vec<&Server> = followers.iter().collect();
    trial.lead(&followers, "automatic = true")?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    for follower in &followers {
        follower.replicate(&trial.replica_of_relay()).await?;
    }
    prepare(&trial.primary.connect_options()).await?;
    let ledger = Arc::new(Ledger::new());
    let workload = Workload::start(
        trial.primary.connect_options(),
        &WorkloadSpec { seed: rand::random(), ..WorkloadSpec::new(CLIENTS) },
        Arc::clone(&ledger),
    );
    tokio::time::sleep(WARM_UP).await;
    trial.wait_watched().await?;
    let replaced = replace(&mut trial, &followers, &workload, death).await?;
    ensure!(replaced.is_lossless, "something was overridden");
    if death == Death::Silent {
        // Its clients hang until it is gone.
        trial.primary.kill().await?;
    }
    let report = workload.finish().await;
    ensure!(report.errors.is_empty(), "clients did not get to the new primary: {:?}", report.errors);
    let new = followers.iter().find(|server| server.name() == replaced.primary);
    if let Some(new) = new {
        let found = ledger.compare_with_server(&new.connect_options()).await?;
        ensure!(
            found.missing.count == 0 && found.altered.count == 0,
            "the new primary lacks commits: {found:?}"
        );
    }
    trial.stop_relay().await?;
    Ok(replaced)
}
