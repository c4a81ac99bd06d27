//! Power cuts under real servers, on a disk that loses what was not synced.
//!
//! `TAILWATER_SEED=n` repeats the random choices. CI tests a few settings with one power cut each;
//! `TAILWATER_LONG=1` tests all settings with many cuts, and prints the tables of docs/benchmarks.md.

mod primary;
mod relay;
mod replicas;

use std::fmt;
use std::io::Write;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tailwater_lossy_disk::{LossyDisk, PowerCut};
use tailwater_sandbox::Server;

/// Durability settings of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Durability {
    sync_binlog: u8,
    trx_commit: u8,
}

impl Durability {
    fn all() -> Vec<Self> {
        let pairs = [0, 1].into_iter().flat_map(|binlog| [0, 1, 2].map(|commit| (binlog, commit)));
        pairs.map(|(sync_binlog, trx_commit)| Self { sync_binlog, trx_commit }).collect()
    }

    fn options(self) -> Vec<String> {
        vec![
            format!("--sync-binlog={}", self.sync_binlog),
            format!("--innodb-flush-log-at-trx-commit={}", self.trx_commit),
        ]
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sync_binlog={} trx_commit={}", self.sync_binlog, self.trx_commit)
    }
}

/// The random choices of a test, and what it tests.
struct Plan {
    seed: u64,
    random: StdRng,
    settings: Vec<Durability>,
    cuts: u32,
}

impl Plan {
    /// With `TAILWATER_LONG=1`, plans `cuts_long` power cuts for each of all settings. Otherwise, plans one
    /// power cut for each of `settings` random settings.
    fn new(settings: usize, cuts_long: u32) -> Self {
        let seed = std::env::var("TAILWATER_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(rand::random);
        let mut random = StdRng::seed_from_u64(seed);
        let mut chosen = Durability::all();
        let is_long = std::env::var_os("TAILWATER_LONG").is_some();
        if !is_long {
            chosen.shuffle(&mut random);
            chosen.truncate(settings);
        }
        say(&format!("TAILWATER_SEED={seed} repeats the random choices"));
        Self { seed, random, settings: chosen, cuts: if is_long { cuts_long } else { 1 } }
    }

    fn next_cut(&mut self) -> PowerCut {
        PowerCut::from_seed(self.random.random())
    }
}

/// Cuts the power of the machine with these servers, and restores it. All servers stop at one moment. They do
/// not run afterwards.
async fn cut_power(disk: &mut LossyDisk, servers: &mut [&mut Server], cut: PowerCut) -> Result<()> {
    for server in servers.iter_mut() {
        if server.is_running() {
            server.pause()?;
        }
    }
    disk.cut_power(cut);
    for server in servers.iter_mut() {
        server.kill_if_running().await?;
    }
    disk.restore_power()?;
    Ok(())
}

/// Prints to standard error directly, because the test harness hides the output of passing tests.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
