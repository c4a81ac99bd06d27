//! `tailwater dump`: dumps that are killed at random points and resumed, dumps that are interrupted by a
//! signal, dry runs, and the load of a resumed dump. `TAILWATER_SEED=n` repeats the random points.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tailwater_dump::dump_folder::DumpFolder;
use tailwater_sandbox::{Link, Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;

use crate::shell_session::{PROGRAM, Shell, earlier_program};

/// Number of rows in each table.
const ROWS: usize = 40_000;

async fn start(kind: ServerKind) -> Result<Option<Server>> {
    if require(kind).is_none() {
        return Ok(None);
    }
    let options = ["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--local-infile=1"];
    Ok(Some(Server::start(ServerSpec::new(kind).options(options)).await?))
}

async fn fill(server: &Server) -> Result<()> {
    let mut connection = Connection::connect(&server.socket_options()).await?;
    connection.execute("CREATE DATABASE shop CHARACTER SET utf8mb4").await?;
    for (table, key) in [("numbered", "id INT PRIMARY KEY"), ("named", "id VARCHAR(20) PRIMARY KEY")] {
        connection.execute(&format!("CREATE TABLE shop.{table} ({key}, t TEXT)")).await?;
        for first in (0..ROWS).step_by(1000) {
            let rows: Vec<_> = (first..first + 1000)
                .map(|row| format!("({row}, REPEAT(LPAD(HEX({row} * 7919), 32, '-'), 10))"))
                .collect();
            let sql = format!("INSERT INTO shop.{table} VALUES {}", rows.join(","));
            connection.execute(&sql).await?;
        }
    }
    Ok(())
}

fn command(port: u16, folder: &Path, more: &[&str]) -> Command {
    command_of(Path::new(PROGRAM), port, folder, more)
}

fn command_of(program: &Path, port: u16, folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args([
        "dump",
        "--host",
        "127.0.0.1",
        "--user",
        "root",
        "--workers",
        "2",
        "--chunk-rows-max",
        "1000",
    ]);
    command.arg("--port").arg(port.to_string()).args(more).arg(folder);
    command.env_remove("TAILWATER_PASSWORD").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a dump over a slow link, and waits until it has finished `chunks` chunks.
async fn start_slow(link: &Link, folder: &Path, more: &[&str], chunks: usize) -> Result<Child> {
    link.set_bandwidth(Some(4 << 20));
    let first = more.is_empty();
    let program = if first { earlier_program() } else { PROGRAM.into() };
    let mut child = command_of(&program, link.port(), folder, more).spawn()?;
    while finished(folder).len() < chunks {
        if child.try_wait()?.is_some() {
            let output = child.wait_with_output()?;
            anyhow::bail!("the dump ended before it was killed: {}", String::from_utf8_lossy(&output.stderr));
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(child)
}

/// Returns the path, modification time and size of the file of each finished chunk.
fn finished(folder: &Path) -> Vec<(PathBuf, std::time::SystemTime, u64)> {
    let Ok(manifest) = DumpFolder::read(folder) else { return Vec::new() };
    let chunks = manifest.tables.into_iter().flat_map(|table| table.chunks);
    let files = chunks.filter(|chunk| chunk.written.is_some()).map(|chunk| folder.join(chunk.file));
    files
        .filter_map(|file| {
            let metadata = std::fs::metadata(&file).ok()?;
            Some((file, metadata.modified().ok()?, metadata.len()))
        })
        .collect()
}

async fn checksums(server: &Server) -> Result<Vec<String>> {
    Ok(server.sql("CHECKSUM TABLE shop.numbered, shop.named EXTENDED").await?)
}

#[tokio::test]
async fn a_killed_dump_resumes_and_its_dump_loads() -> Result<()> {
    for kind in [ServerKind::Mysql97, ServerKind::Mariadb118] {
        let Some(server) = start(kind).await? else { continue };
        fill(&server).await?;
        killed(&server).await.with_context(|| kind.to_string())?;
    }
    Ok(())
}

async fn killed(server: &Server) -> Result<()> {
    let link = Link::open(server.address()).await?;
    let shell = Shell::new()?;
    let folder = shell.path().join("dump");
    let given = std::env::var("TAILWATER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(rand::random);
    eprintln!("TAILWATER_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for (round, chunks) in
        [1..15, 20..35, 40..55].map(|range| random.random_range(range)).into_iter().enumerate()
    {
        let more: &[&str] = if round == 0 { &[] } else { &["--resume"] };
        let mut child = start_slow(&link, &folder, more, chunks).await?;
        // A second process is not allowed to write to the same folder.
        let second = command(server.port(), &folder, &["--resume"]).output()?;
        let message = String::from_utf8_lossy(&second.stderr).into_owned();
        ensure!(
            second.status.code() == Some(1) && message.contains("TW-BULK-0004"),
            "the second dump was not refused with TW-BULK-0004: {message}"
        );
        child.kill()?;
        child.wait()?;
        let before = finished(&folder);
        ensure!(
            before.len() >= chunks && before.len() < 80,
            "the killed dump has finished {} chunks",
            before.len()
        );
        // The resumed dump does not change the files that are finished.
        let mut child = start_slow(&link, &folder, &["--resume"], chunks + 5).await?;
        child.kill()?;
        child.wait()?;
        let after = finished(&folder);
        ensure!(
            before.iter().all(|chunk| after.contains(chunk)),
            "the resumed dump has changed finished files\nbefore: {before:?}\nafter: {after:?}"
        );
    }
    // Without `--resume`, a new dump into the folder is refused.
    let refused = command(server.port(), &folder, &[]).output()?;
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        refused.status.code() == Some(1) && message.contains("TW-BULK-0010"),
        "the dump was not refused with TW-BULK-0010: {message}"
    );
    let output = command(server.port(), &folder, &["--resume", "--output", "json"]).output()?;
    ensure!(
        output.status.success(),
        "the resumed dump has failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout)?;
    let done: serde_json::Value =
        serde_json::from_str(lines.lines().last().context("the dump printed nothing")?)?;
    ensure!(
        done["schema_version"] == 1 && done["event"] == "done",
        "the last line does not report the end of the dump: {done}"
    );
    ensure!(
        done["rows"] == 2 * ROWS && done["snapshots"].as_array().is_some_and(|of| of.len() > 1),
        "the resumed dump has a wrong number of rows, or only one snapshot: {done}"
    );
    let left = std::fs::read_dir(&folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    ensure!(left.into_iter().all(|name| !name.ends_with(".partial")));

    // No client wrote meanwhile, so all snapshots have the same data.
    let Some(target) = start(server.kind()).await? else { return Ok(()) };
    let port = target.port();
    let load = format!("load dump --host 127.0.0.1 --user root --port {port}");
    shell.run(&load)?.exits(4).stderr_has(&["TW-BULK-", "--allow-mixed"]);
    shell.run(&format!("{load} --allow-mixed"))?.exits(0);
    ensure!(checksums(server).await? == checksums(&target).await?);
    Ok(())
}

#[tokio::test]
async fn the_error_of_an_interrupted_dump_names_the_resume_option() -> Result<()> {
    let Some(server) = start(ServerKind::Mariadb118).await? else { return Ok(()) };
    fill(&server).await?;
    let link = Link::open(server.address()).await?;
    let shell = Shell::new()?;
    let folder = shell.path().join("dump");
    let child = start_slow(&link, &folder, &[], 3).await?;
    let reported = Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    ensure!(reported.success());
    let output = child.wait_with_output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && message.contains("TW-BULK-0011") && message.contains("--resume"),
        "the interrupted dump does not suggest --resume: {message}"
    );
    ensure!(
        std::fs::read(folder.join("journal.jsonl"))?.is_empty(),
        "the journal was not merged into the manifest"
    );
    Ok(())
}

#[tokio::test]
async fn a_dry_run_prints_the_plan_and_writes_nothing() -> Result<()> {
    for (kind, expected) in [
        (ServerKind::Mysql97, "FLUSH TABLES WITH READ LOCK  [writers wait from here]"),
        (ServerKind::Mariadb118, "lock-free comparison:\n  BACKUP STAGE START"),
    ] {
        let Some(server) = start(kind).await? else { continue };
        server.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY) ENGINE=MyISAM").await?;
        let shell = Shell::new()?;
        let folder = shell.path().join("dump");
        let output = command(server.port(), &folder, &["--dry-run"]).output()?;
        let message = String::from_utf8(output.stdout)?;
        ensure!(
            output.status.success() && message.contains(expected),
            "the plan is not printed as expected: {message}"
        );
        ensure!(
            message.contains("shop.t: about 0 rows")
                && message.contains("in chunks along key PRIMARY, not part of the snapshot"),
            "the plan does not report the MyISAM table as not part of the snapshot: {message}"
        );
        ensure!(!folder.exists());
    }
    Ok(())
}
