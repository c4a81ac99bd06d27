//! `tailwater copy` and `tailwater channel add --provision` while clients write. The commands are killed and
//! repeated.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::{Link, Server, ServerKind, ServerSpec, require};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::shell_session::{PROGRAM, Shell, earlier_program};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Number of concurrent writers.
const WRITERS: u32 = 3;

const SCRIPT: &str = "
    CREATE DATABASE shop; USE shop;
    CREATE TABLE digits (d INT PRIMARY KEY);
    INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
    CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(200), KEY (note));
    INSERT INTO orders SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d, REPEAT(CHAR(65 + a.d), 100)
        FROM digits a, digits b, digits c, digits e, digits f WHERE f.d < 2;
    ANALYZE TABLE orders;
    CREATE TABLE counters (writer INT PRIMARY KEY, n BIGINT NOT NULL);
    INSERT INTO counters VALUES (0, 0), (1, 0), (2, 0);
    CREATE TABLE steps (writer INT, n BIGINT, PRIMARY KEY (writer, n));
    CREATE VIEW counted AS SELECT COUNT(*) AS n FROM steps;
    CREATE EVENT spoil ON SCHEDULE EVERY 1 SECOND DO DELETE FROM shop.digits LIMIT 0;
";

/// Queries that read all tables that the writers change, and one table that they do not change.
const SUMS: &str = "SELECT * FROM shop.counters ORDER BY writer; SELECT writer, COUNT(*), MIN(n), MAX(n) FROM shop.steps \
                    GROUP BY writer ORDER BY writer; SELECT COUNT(*), SUM(CRC32(CONCAT(id, note))) FROM shop.orders; \
                    SELECT n FROM shop.counted";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_starts_exactly_after_a_copy_mysql() -> Result<()> {
    channel_starts_exactly_after_a_copy(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_starts_exactly_after_a_copy_mariadb() -> Result<()> {
    channel_starts_exactly_after_a_copy(ServerKind::Mariadb1011).await
}

/// In each step, increments a counter and inserts a row in the same transaction. Returns the number of steps.
async fn write(options: ConnectOptions, writer: u32, stop: CancellationToken) -> Result<u64> {
    let mut connection = Connection::connect(&options).await?;
    let mut steps = 0;
    while !stop.is_cancelled() {
        steps += 1;
        connection.execute("START TRANSACTION").await?;
        connection.execute(&format!("UPDATE shop.counters SET n = n + 1 WHERE writer = {writer}")).await?;
        connection
            .execute(&format!(
                "INSERT INTO shop.steps SELECT {writer}, n FROM shop.counters WHERE writer = {writer}"
            ))
            .await?;
        connection
            .execute(&format!("UPDATE shop.orders SET note = CONCAT('{steps}-', LEFT(note, 50)) WHERE id = {steps} * 7 % 20000"))
            .await?;
        connection.execute("COMMIT").await?;
    }
    connection.close().await;
    Ok(steps)
}

async fn start_target(kind: ServerKind) -> Result<Server> {
    let mut spec = ServerSpec::new(kind).name("target").options(["--server-id=2", "--local-infile=1"]);
    if kind.flavour() == Flavour::MySql {
        spec = spec.options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--log-bin=binlog"]);
    }
    Ok(Server::start(spec).await?)
}

async fn channel_starts_exactly_after_a_copy(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let target = start_target(kind).await?;
    let mut trial = Trial::start(TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    })
    .await?;
    shell
        .run("channel add -c tailwater.toml replica --provision")?
        .exits(1)
        .stderr_has(&["[[channel]]", "stopped"]);
    let link = Link::open(target.address()).await?;
    let port = link.port();
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"replica\"\nsource = \"primary\"\nhost = \"127.0.0.1\"\nport = {port}\nuser = \"root\"\ntls = \"off\"\n\
         stopped = true\n"
    ))?;
    shell.write("root.cnf", "[client]\nuser=root\n")?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial.primary.sql(SCRIPT).await?;

    let stop = CancellationToken::new();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(trial.primary.connect_options(), writer, stop.clone())))
        .collect();
    let add = "channel add -c tailwater.toml replica --provision --source-defaults-file root.cnf --chunk-bytes-max 20000";
    start_and_kill(&shell, &target, &link, add).await?;
    // The killed copy has left incomplete tables on the target. The next copy does not accept them as
    // complete, and drops them only with `--restart`.
    shell.run(add)?.exits(4).stderr_has(&["TW-BULK-0023", "--restart"]);
    let ran = shell.run(&format!("{add} --restart"))?.exits(0);
    ran.says(&["copied", "the target now has the transactions", "replica", "running"]);

    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.cancel();
    for writer in writers {
        ensure!(writer.await?? > 0);
    }
    follows(&shell, &trial.primary, &target).await?;
    let event = "SELECT status FROM information_schema.events WHERE event_name = 'spoil'";
    let status = target.sql(event).await?.concat();
    ensure!(
        ["SLAVESIDE_DISABLED", "REPLICA_SIDE_DISABLED"].contains(&status.as_str()),
        "the copied event is not disabled as on a replica: {status}"
    );
    shell.run(add)?.exits(1).stderr_has(&["channel replica is running", "stopped = true"]);

    // The test copies again after the channel has applied transactions. The channel must start at the
    // position of the new copy, not at its former position.
    shell.run("channel stop -c tailwater.toml replica")?.exits(0);
    target.sql("DROP DATABASE shop").await?;
    trial.primary.sql("INSERT INTO shop.steps VALUES (7, 1), (7, 2)").await?;
    shell.run(add)?.exits(0).says(&["copied", "running"]);
    trial.primary.sql("INSERT INTO shop.steps VALUES (7, 3)").await?;
    follows(&shell, &trial.primary, &target).await?;
    trial.stop_relay().await
}

/// Waits until the target has the same data as the primary. No client writes meanwhile.
async fn follows(shell: &Shell, primary: &Server, target: &Server) -> Result<()> {
    let wanted = primary.sql(SUMS).await?;
    let started = Instant::now();
    loop {
        let found = target.sql(SUMS).await?;
        if found == wanted {
            return Ok(());
        }
        let status =
            || shell.run("channel list -c tailwater.toml --output json").and_then(|ran| ran.exits(0).json());
        ensure!(
            started.elapsed() < PATIENCE,
            "the target has the rows {found:?}, expected {wanted:?}: {:?}",
            status()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A clone has the accounts and the GTIDs of the source. The channel starts exactly after the last
/// transaction of the clone.
#[tokio::test]
async fn a_channel_starts_exactly_after_a_clone() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let mut target = start_target(kind).await?;
    let mut trial = Trial::start(TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    })
    .await?;
    let socket = target.socket().display();
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"replica\"\nsource = \"primary\"\nsocket = \"{socket}\"\nuser = \"root\"\ntls = \"off\"\n\
         stopped = true\n"
    ))?;
    shell.write("root.cnf", "[client]\nuser=root\n")?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial.primary.sql(SCRIPT).await?;
    for server in [&trial.primary, &target] {
        server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'").await?;
    }
    let stop = CancellationToken::new();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(trial.primary.connect_options(), writer, stop.clone())))
        .collect();
    let add = "channel add -c tailwater.toml replica --provision --binary --source-defaults-file root.cnf";
    shell.run(add)?.exits(1).stderr_has(&["shop.spoil", "event_scheduler = OFF"]);
    target.sql("SET PERSIST event_scheduler = OFF").await?;
    let mut child = Command::new(PROGRAM)
        .args(add.split_whitespace())
        .current_dir(shell.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        // After the clone the target shuts down, and no service manager restarts it in this test.
        if !target.is_running() {
            target.set_options([target.options(), &["--event-scheduler=OFF".to_owned()]].concat());
            target.start_again().await?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    ensure!(status.success(), "the physical copy ended with {status}");
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.cancel();
    for writer in writers {
        ensure!(writer.await?? > 0);
    }
    let wanted = trial.primary.sql(SUMS).await?;
    let started = Instant::now();
    while target.sql(SUMS).await? != wanted {
        ensure!(started.elapsed() < PATIENCE, "the target does not get the data of the source");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    trial.stop_relay().await
}

/// A channel that does not write to the target's binlog applies transactions whose GTIDs the target does not
/// report. A dump of the target therefore records no GTIDs, unless it pauses the channel for the snapshot.
/// With the recorded GTIDs, native replication continues exactly after the dump.
async fn a_dump_of_a_target_names_the_gtids_of_its_data(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (target, third) = (start_target(kind).await?, start_target(kind).await?);
    let mut trial = Trial::start(TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    })
    .await?;
    let socket = target.socket().display();
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"replica\"\nsource = \"primary\"\nsocket = \"{socket}\"\nuser = \"root\"\ntls = \"off\"\n"
    ))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial.primary.sql(SCRIPT).await?;
    let started = Instant::now();
    while target.sql("SELECT COUNT(*) FROM shop.counters").await.unwrap_or_default() != [WRITERS.to_string()]
    {
        ensure!(started.elapsed() < PATIENCE, "the channel does not apply the rows");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let stop = CancellationToken::new();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(trial.primary.connect_options(), writer, stop.clone())))
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let dump = format!("--socket {socket} --user root --database shop --workers 3");
    shell.run(&format!("dump running {dump}"))?.exits(0).stderr_has(&["lag its data", "--pause-channel"]);
    shell
        .run(&format!("dump paused {dump} --pause-channel none -c tailwater.toml"))?
        .exits(1)
        .stderr_has(&["no channel"]);
    // Two channels that apply the same source publish no GTIDs to the target. So the GTIDs that the target
    // reports do not match its data.
    let other = "INSERT INTO tailwater.apply_channel SELECT 'other', 1, source, '', '', '[]' FROM tailwater.apply_channel";
    target.sql(other).await?;
    shell
        .run(&format!("dump paused {dump} --pause-channel replica -c tailwater.toml"))?
        .exits(1)
        .stderr_has(&["GTIDs are not published", "channel other applies the same source"]);
    target.sql("DELETE FROM tailwater.apply_channel WHERE channel = 'other'").await?;
    // From now on the channel publishes applied GTIDs to the target again, with one of its next transactions.
    let paused = format!("dump paused {dump} --pause-channel replica -c tailwater.toml");
    let (started, mut ran) = (Instant::now(), shell.run(&paused)?);
    while ran.errors().contains("GTIDs are not published") {
        ensure!(started.elapsed() < PATIENCE, "the channel does not publish the GTIDs: {}", ran.errors());
        tokio::time::sleep(Duration::from_millis(50)).await;
        ran = shell.run(&paused)?;
    }
    ran.exits(0);
    let gtids = |folder: &str| -> Result<serde_json::Value> {
        let manifest = std::fs::read(shell.path().join(folder).join("manifest.json"))?;
        Ok(serde_json::from_slice::<serde_json::Value>(&manifest)?["snapshots"][0]["gtid_set"].clone())
    };
    ensure!(
        gtids("running")?.is_null() && gtids("paused")?.is_string(),
        "the dump of the running channel has GTIDs, or that of the paused channel has none: {} {}",
        gtids("running")?,
        gtids("paused")?
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.cancel();
    for writer in writers {
        ensure!(writer.await?? > 0);
    }
    let at = format!("--socket {} --user root", third.socket().display());
    shell.run(&format!("load paused {at} --set-gtid --no-binlog"))?.exits(0);
    third.replicate_from(&trial.primary).await?;
    let wanted = trial.primary.sql(SUMS).await?;
    for server in [&target, &third] {
        let started = Instant::now();
        while server.sql(SUMS).await? != wanted {
            let status = server.replica_status().await?.unwrap_or_default();
            ensure!(
                status.sql_error.0 == 0 && started.elapsed() < PATIENCE,
                "{} does not replicate after the load: {status:?}",
                server.name()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    trial.stop_relay().await
}

#[tokio::test]
async fn a_dump_of_a_mysql_target_names_the_gtids_of_its_data() -> Result<()> {
    a_dump_of_a_target_names_the_gtids_of_its_data(ServerKind::Mysql97).await
}

#[tokio::test]
async fn a_dump_of_a_mariadb_target_names_the_gtids_of_its_data() -> Result<()> {
    a_dump_of_a_target_names_the_gtids_of_its_data(ServerKind::Mariadb1011).await
}

/// Starts a copy, and kills it when the target has some rows.
async fn start_and_kill(shell: &Shell, target: &Server, link: &Link, words: &str) -> Result<()> {
    // The link is slow, so that the copy does not end before it is killed.
    link.set_bandwidth(Some(512 << 10));
    let mut child = Command::new(earlier_program())
        .args(words.split_whitespace())
        .current_dir(shell.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let started = Instant::now();
    loop {
        ensure!(started.elapsed() < PATIENCE, "the copy has copied no rows");
        if child.try_wait()?.is_some() {
            let output = child.wait_with_output()?;
            bail!("the copy has ended before it was killed: {}", String::from_utf8_lossy(&output.stderr));
        }
        // The query fails at first, because the table does not exist yet.
        let chunks = target.sql("SELECT COUNT(*) FROM tailwater.load_chunks").await.unwrap_or_default();
        if chunks.first().and_then(|count| count.parse().ok()).is_some_and(|count: u64| count >= 10) {
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    link.set_bandwidth(None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_copy_resumes() -> Result<()> {
    let kind = ServerKind::Mariadb118;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let source = Server::start(ServerSpec::new(kind).options(["--log-bin=binlog", "--server-id=1"])).await?;
    source.sql(SCRIPT).await?;
    let target = start_target(kind).await?;
    let link = Link::open(target.address()).await?;
    let source_at = format!("--source-socket {} --source-user root", source.socket().display());
    let target_at = format!("--target-host 127.0.0.1 --target-port {} --target-user root", link.port());
    let copy = format!("copy {source_at} {target_at} --chunk-bytes-max 20000");
    shell
        .run(&format!("{copy} --dry-run"))?
        .exits(0)
        .says(&["START TRANSACTION WITH CONSISTENT SNAPSHOT", "shop.orders"]);
    start_and_kill(&shell, &target, &link, &copy).await?;
    shell.run(&copy)?.exits(4).stderr_has(&["TW-BULK-0023", "--resume"]);
    let ran = shell.run(&format!("{copy} --resume --output json"))?.exits(0);
    let lines = ran.json()?;
    let done = lines.last().context("the copy printed nothing")?;
    ensure!(
        done["event"] == "done" && done["schema_version"] == 1 && done["tables"] == 4,
        "the last line of the resumed copy is unexpected: {done}"
    );
    ensure!(source.sql(SUMS).await? == target.sql(SUMS).await?);
    shell.run(&copy)?.exits(4).stderr_has(&["TW-BULK-0022"]);
    shell.run(&format!("{copy} --dry-run"))?.exits(4).stderr_has(&["the target already has"]);
    Ok(())
}
