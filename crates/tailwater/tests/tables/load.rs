//! `tailwater dump`, and a `tailwater load` that is killed at a random point and resumed. `TAILWATER_SEED=n`
//! repeats that point.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;

use crate::shell_session::{Shell, earlier_program};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_killed_load_resumes_mysql() -> Result<()> {
    killed_load_resumes(ServerKind::Mysql97).await
}

#[tokio::test]
async fn a_killed_load_resumes_mariadb() -> Result<()> {
    killed_load_resumes(ServerKind::Mariadb1011).await
}

async fn start(kind: ServerKind, id: u32) -> Result<Server> {
    let id = format!("--server-id={id}");
    let mut spec = ServerSpec::new(kind).options(["--local-infile=1", "--sync-binlog=0", &id]);
    if kind.flavour() == Flavour::MySql {
        spec = spec.options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]);
    }
    Ok(Server::start(spec).await?)
}

const SCRIPT: &str = "
    CREATE DATABASE shop; USE shop;
    CREATE TABLE digits (d INT PRIMARY KEY);
    INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
    CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(200), KEY (note));
    INSERT INTO orders SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d, REPEAT(CHAR(65 + a.d), 100)
        FROM digits a, digits b, digits c, digits e, digits f WHERE f.d < 4;
    CREATE TABLE keyless (a INT, t TEXT);
    INSERT INTO keyless SELECT id DIV 7, note FROM orders;
    CREATE VIEW counted AS SELECT COUNT(*) AS n FROM orders;
";

async fn killed_load_resumes(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let source = start(kind, 1).await?;
    source.sql(SCRIPT).await?;
    let at = |server: &Server| format!("--host 127.0.0.1 --port {} --user root", server.port());
    shell.run(&format!("dump dumped {} --chunk-rows-max 100", at(&source)))?.exits(0);

    let target = start(kind, 2).await?;
    let load = format!("load dumped {} --set-gtid --no-binlog", at(&target));
    let words = format!("{load} --workers 2");
    let mut child = Command::new(earlier_program())
        .args(words.split_whitespace())
        .current_dir(shell.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let given = std::env::var("TAILWATER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(rand::random);
    eprintln!("{kind}: TAILWATER_SEED={seed}");
    let enough = StdRng::seed_from_u64(seed).random_range(1..150);
    let started = Instant::now();
    loop {
        ensure!(started.elapsed() < PATIENCE, "the load has loaded no rows");
        ensure!(child.try_wait()?.is_none(), "the load ended before it was killed");
        // The query fails at first, because the tables do not exist yet.
        let chunks = target.sql("SELECT COUNT(*) FROM tailwater.load_chunks").await.unwrap_or_default();
        if chunks.first().and_then(|count| count.parse().ok()).is_some_and(|count: u64| count >= enough) {
            break;
        }
    }
    child.kill()?;
    child.wait()?;

    shell.run(&load)?.exits(4).stderr_has(&["TW-BULK-0023", "--resume"]);
    let ran = shell.run(&format!("{load} --resume --output json"))?.exits(0);
    let lines = ran.json()?;
    let done = lines.last().context("the load printed nothing")?;
    ensure!(
        done["event"] == "done" && done["schema_version"] == 1,
        "the last line does not report the end of the load: {done}"
    );
    ensure!(
        done["rows"] == 80_010 && done["tables"] == 3,
        "the load reports a wrong number of rows or tables: {done}"
    );
    let before = done["chunks_before"].as_u64().context("chunks_before is not a number")?;
    ensure!(
        before >= enough && done["chunks_loaded"].as_u64() > Some(0),
        "the resumed load did not keep the earlier chunks, or loaded none: {done}"
    );

    let sums = "SELECT COUNT(*), SUM(CRC32(CONCAT(id, note))) FROM shop.orders; \
                SELECT COUNT(*), SUM(CRC32(CONCAT(a, t))) FROM shop.keyless; SELECT n FROM shop.counted";
    ensure!(source.sql(sums).await? == target.sql(sums).await?);
    let (has, wanted) = match kind.flavour() {
        Flavour::MySql => ("SELECT @@GLOBAL.gtid_executed", "SELECT @@GLOBAL.gtid_executed"),
        Flavour::MariaDb => ("SELECT @@GLOBAL.gtid_slave_pos", "SELECT @@GLOBAL.gtid_binlog_pos"),
    };
    ensure!(target.sql(has).await? == source.sql(wanted).await?, "GTIDs");
    shell.run(&load)?.exits(4).stderr_has(&["TW-BULK-0022"]);
    shell.run(&format!("load nowhere {}", at(&target)))?.exits(1).stderr_has(&["TW-BULK-0001", "nowhere"]);
    Ok(())
}
