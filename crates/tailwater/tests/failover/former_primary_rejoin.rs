//! Former primaries rejoin after a failover on real servers. With reduced durability, their tables may lack
//! transactions of their binlog. Their binlog may have transactions that the log lacks, because those commits
//! still waited for an ACK. A rejoin may be interrupted. A table may have a definition that no other server
//! has.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tailwater_daemon::api::daemon_requests::{ControlAnswer, ControlCommand};
use tailwater_daemon::control_socket;
use tailwater_lab::fault_trial::managed_cluster::{PRIMARY_NAME, start_candidate, wait_writable};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{ChildProcess, Ledger, Server, ServerKind, Workload, WorkloadSpec, require};
use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tokio::task::JoinHandle;

use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_former_primary_rejoins_mariadb() -> Result<()> {
    former_primary_rejoins(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_primary_rejoins_mysql() -> Result<()> {
    if is_skipped_in_ci("a_former_primary_rejoins_mysql", "the demo on MySQL") {
        return Ok(());
    }
    former_primary_rejoins(ServerKind::Mysql97).await
}

/// With `rejoin = true`, the manager rejoins the former primary automatically.
#[tokio::test(flavor = "multi_thread")]
async fn a_former_primary_rejoins_automatically() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (mut trial, new) =
        cluster(kind, &shell, "automatic = true\nrejoin = true", TrialDurability::Reduced).await?;
    for id in 3..40 {
        trial.primary.sql(&format!("INSERT INTO shop.t VALUES ({id}, 0)")).await?;
    }
    trial.primary.kill().await?;
    ensure!(trial.wait_failed_over(PRIMARY_NAME).await? == new.name());
    trial.primary.start_again().await?;
    follows(&new, &trial.primary, "first").await?;
    let rows = "SELECT COUNT(*), SUM(id) FROM shop.t";
    ensure!(
        trial.primary.sql(rows).await? == new.sql(rows).await?,
        "the former and the new primary have different rows"
    );
    let mark = shell.path().join("log/rejoin/db1.half-way");
    until("the rejoin to end", async || Ok(!mark.exists())).await?;

    // This file makes the daemon believe that it was stopped before the comparison of the rows. The restarted
    // daemon continues with the comparison.
    trial.stop_relay().await?;
    std::fs::write(&mark, "")?;
    let old = &trial.primary;
    old.sql(
        "SET sql_log_bin=0; SET GLOBAL read_only=0; DELETE FROM shop.t WHERE id = 7; SET GLOBAL read_only=1",
    )
    .await?;
    trial.start_relay()?;
    until("the server not to replicate", async || {
        Ok(!mark.exists() && trial.primary.sql("SHOW ALL SLAVES STATUS").await?.is_empty())
    })
    .await?;
    trial.stop_relay().await
}

/// No record shows whether the transactions that only the former primary has were acknowledged. So an
/// operator has to decide about them.
#[tokio::test(flavor = "multi_thread")]
async fn a_former_primary_without_an_audit_record_keeps_its_extra_transactions() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let manager = "automatic = true\nrejoin = true";
    let (mut trial, new) = cluster(kind, &shell, manager, TrialDurability::Full).await?;
    let alone =
        commit_without_acknowledgement(&trial.primary, &shell, "UPDATE shop.t SET v = v + 40").await?;
    trial.primary.kill().await?;
    ensure!(alone.await?.is_err(), "the client got an OK for a commit without an ACK");
    restart_without_records(&mut trial, &new, &shell).await?;
    until("the automatic rejoin to be refused", async || {
        let log = std::fs::read_to_string(trial.relay_output())?;
        Ok(log.contains("TW-MGR-0074") && log.contains("no audit record shows how db2 became primary"))
    })
    .await?;
    let old = &trial.primary;
    ensure!(
        old.sql("SELECT GROUP_CONCAT(v ORDER BY id) FROM shop.t").await? == ["41,42"],
        "the rejoin has undone the transaction that only this server has"
    );
    ensure!(
        old.sql("SELECT @@GLOBAL.read_only").await? == ["0"],
        "the refused rejoin has made the server read-only"
    );
    shell.run("rejoin -c tailwater.toml primary db1")?.exits(0).says(&["undone: 1 transaction that"]);
    follows(&new, old, "first").await?;
    trial.stop_relay().await
}

/// A server that has no extra transactions loses nothing when it rejoins.
#[tokio::test(flavor = "multi_thread")]
async fn a_former_primary_without_an_audit_record_rejoins_if_it_has_no_extra_transactions() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (mut trial, new) =
        cluster(kind, &shell, "automatic = true\nrejoin = true", TrialDurability::Reduced).await?;
    trial.primary.kill().await?;
    restart_without_records(&mut trial, &new, &shell).await?;
    follows(&new, &trial.primary, "first").await?;
    trial.stop_relay().await
}

/// Waits until the dead primary is replaced, deletes the audit records of the failover, and starts the dead
/// primary again.
async fn restart_without_records(trial: &mut Trial, new: &Server, shell: &Shell) -> Result<()> {
    ensure!(trial.wait_failed_over(PRIMARY_NAME).await? == new.name());
    wait_writable(new).await?;
    trial.stop_relay().await?;
    std::fs::remove_dir_all(shell.path().join("log/manager/primary"))?;
    trial.primary.start_again().await?;
    trial.start_relay()
}

pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !condition().await? {
        ensure!(started.elapsed() < PATIENCE, "timed out while waiting for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Stops the relay's acknowledgements and starts a commit. The transaction of that commit is then only in the
/// binlog of this server.
pub async fn commit_without_acknowledgement(
    primary: &Server,
    shell: &Shell,
    statement: &'static str,
) -> Result<JoinHandle<Result<()>>> {
    let stop = ControlCommand::AckerStop { source: "primary".to_owned(), token: 0, run: None };
    let answer = control_socket::ask(&shell.path().join("log/control.sock"), &stop)?;
    ensure!(
        matches!(answer, ControlAnswer::Acker(_)),
        "the daemon does not answer with the acker's state: {answer:?}"
    );
    let waiting = primary.connect_options();
    let writer = tokio::spawn(async move {
        let mut connection = Connection::connect(&waiting).await?;
        connection.execute(statement).await?;
        anyhow::Ok(())
    });
    until("a commit that waits", async || {
        let list = primary.sql("SHOW PROCESSLIST").await?;
        Ok(list.iter().any(|line| line.contains("semi-sync ACK"))
            && list.iter().any(|line| line.contains(statement)))
    })
    .await?;
    Ok(writer)
}

/// Checks that a row written on `primary` arrives on `replica`, and that `replica` is read-only.
async fn follows(primary: &Server, replica: &Server, table: &str) -> Result<()> {
    primary.sql(&format!("CREATE DATABASE {table}; CREATE TABLE {table}.t (id INT PRIMARY KEY)")).await?;
    primary.sql(&format!("INSERT INTO {table}.t VALUES (1)")).await?;
    until("the row of the new primary", async || {
        Ok(replica.sql(&format!("SELECT COUNT(*) FROM {table}.t")).await.is_ok_and(|count| count == ["1"]))
    })
    .await?;
    ensure!(replica.sql("SELECT @@GLOBAL.read_only").await? == ["1"], "the replica accepts writes");
    Ok(())
}

/// Starts a primary, a replica that can be promoted, and a relay with a manager.
async fn cluster(
    kind: ServerKind,
    shell: &Shell,
    manager: &str,
    durability: TrialDurability,
) -> Result<(Trial, Server)> {
    let spec = TrialSpec {
        kind,
        durability,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    };
    let (trial, new) = tokio::join!(Trial::start(spec), start_candidate(kind, 2));
    let (mut trial, new) = (trial?, new?);
    trial.manage(&[&new], manager)?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    new.replicate(&trial.replica_of_relay()).await?;
    prepare(&trial.primary.connect_options()).await?;
    trial.primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, v INT); INSERT INTO shop.t VALUES (1, 1), (2, 2)").await?;
    trial.wait_until_observed().await?;
    Ok((trial, new))
}

async fn former_primary_rejoins(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (mut trial, new) = cluster(kind, &shell, "automatic = true", TrialDurability::Reduced).await?;
    let ledger: Arc<Ledger> = Arc::default();
    let load = Workload::start(trial.primary.connect_options(), &WorkloadSpec::new(4), Arc::clone(&ledger));
    until("commits", async || Ok(load.counters().snapshot().acknowledged > 300)).await?;

    // The test workload must end first. While its commits wait for an ACK, a server writes only one more
    // group of commits to the binlog. So the server might not write the transaction that this test commits
    // next.
    load.abort().await;
    until("no commit to wait for an ACK", async || {
        let list = trial.primary.sql("SHOW PROCESSLIST").await?;
        Ok(!list.iter().any(|line| line.contains("semi-sync ACK") || line.contains("COMMIT")))
    })
    .await?;

    let writer =
        commit_without_acknowledgement(&trial.primary, &shell, "UPDATE shop.t SET v = v + 40").await?;
    trial.primary.kill().await?;
    ensure!(writer.await?.is_err(), "the client got an OK for a commit without an ACK");
    let leader = trial.wait_failed_over(PRIMARY_NAME).await?;
    ensure!(leader == new.name(), "a wrong server is the new primary: {leader}");
    wait_writable(&new).await?;
    new.sql("INSERT INTO shop.t VALUES (3, 3)").await?;

    trial.primary.start_again().await?;
    let old = &trial.primary;
    let refused = shell.run("rejoin -c tailwater.toml primary db2")?.exits(1);
    refused.stderr_has(&["db2 is the current primary"]);
    let found = shell.run("rejoin -c tailwater.toml primary db1 --dry-run --output json")?.exits(0).json()?;
    let undone = found[0]["to_undo"].as_array().map_or(0, Vec::len);
    ensure!(
        undone >= 1 && found[0]["tables_as_logged"] == false,
        "the plan undoes no transaction, or does not find the lost ones: {found:#?}"
    );
    ensure!(old.sql("SELECT @@GLOBAL.read_only").await? == ["0"], "the dry run has changed the server");

    let count = "SELECT COUNT(*) FROM tw_load.tw_ledger";
    let kept = old.sql(count).await?.concat();

    // The rejoin is killed at a random moment, and started again.
    let config = shell.path().join("tailwater.toml").display().to_string();
    let words = ["rejoin", "-c", &config, "primary", "db1"];
    let rejoin = ChildProcess::start(PROGRAM, words, &shell.path().join("rejoin.log"))?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    rejoin.kill().await?;
    let rejoined = shell.run("rejoin -c tailwater.toml primary db1")?.exits(0);
    let rejoined = rejoined.says(&["all the same", "db1 is a replica, and reads from 127.0.0.1:"]);
    let (has, lost) = (old.sql(count).await?.concat(), found[0]["lost"].clone());
    println!(
        "{kind:?}: {undone} transactions to undo, {lost} lost; the server had {kept} transactions before the rejoin, {has} after it: {}",
        rejoined.text()
    );
    ensure!(old.sql("SELECT GROUP_CONCAT(v ORDER BY id) FROM shop.t").await? == ["1,2,3"]);
    let report = ledger.compare_with_server(&old.connect_options()).await?;
    ensure!(
        report.missing.count + report.altered.count + report.failed_but_present.count == 0,
        "acknowledged commits are missing or altered, or failed commits are present: {report:?}"
    );
    follows(&new, old, "first").await?;
    shell.run("rejoin -c tailwater.toml primary db1 --no-check")?.exits(0).stdout_lacks(&["undone"]);
    let kept = std::fs::read_dir(shell.path().join("log/rejoin"))?.filter_map(|entry| entry.ok());
    let kept = kept.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "binlog"));
    ensure!(kept.count() >= 1, "the undone transactions are not saved");

    // A row differs, so the server is not made a replica.
    old.sql("SET sql_log_bin=0; SET GLOBAL read_only=0; UPDATE shop.t SET v = 9 WHERE id = 1").await?;
    let ran = shell.run("rejoin -c tailwater.toml primary db1")?.exits(3);
    ran.says(&["1 difference, in shop.t", "db1 was not joined", "--copy"]);
    let status = match kind.flavour() {
        Flavour::MySql => "SHOW REPLICA STATUS",
        Flavour::MariaDb => "SHOW ALL SLAVES STATUS",
    };
    ensure!(old.sql(status).await?.is_empty(), "the former primary replicates although it was not rejoined");

    // Create a table that no other server has.
    old.sql("SET GLOBAL read_only=0; CREATE TABLE shop.errant (id INT)").await?;
    let ran = shell.run("rejoin -c tailwater.toml primary db1")?.exits(4);
    ran.stderr_has(&["TW-APP-0040", "CREATE TABLE shop.errant", "--copy"]);
    shell.run("rejoin -c tailwater.toml primary db1 --copy")?.exits(4).stderr_has(&["--yes"]);
    shell
        .run("rejoin -c tailwater.toml primary db1 --copy --yes")?
        .exits(0)
        .says(&["copied", "all the same"]);
    follows(&new, old, "second").await?;
    trial.stop_relay().await
}

/// An operator cancels the rejoin while it compares the rows: the server stays read-only and counts as not
/// rejoined, and the same command continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_rejoin_is_continued_by_the_same_command() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (mut trial, new) = cluster(kind, &shell, "automatic = true", TrialDurability::Reduced).await?;
    trial.primary.kill().await?;
    ensure!(trial.wait_failed_over(PRIMARY_NAME).await? == new.name());
    wait_writable(&new).await?;
    trial.primary.start_again().await?;

    // The comparison waits for this lock.
    let mut lock = Connection::connect(&new.connect_options()).await?;
    lock.execute("LOCK TABLES shop.t WRITE").await?;
    let config = shell.path().join("tailwater.toml").display().to_string();
    let words = ["rejoin", "-c", &config, "primary", "db1"];
    let mut rejoin = ChildProcess::start(PROGRAM, words, &shell.path().join("rejoin.log"))?;
    let jobs = || shell.run("job list -c tailwater.toml --output json")?.exits(0).json();
    until("the rejoin to compare the rows", async || {
        let jobs = jobs()?;
        Ok(jobs.iter().any(|job| job["kind"] == "rejoin" && job["progress"]["phase"] == "comparing"))
    })
    .await?;
    let said = shell.run("job cancel 1 -c tailwater.toml")?.exits(0);
    said.says(&["not rejoined before `tailwater rejoin` continues"]);
    until("the job to end", async || Ok(jobs()?.iter().all(|job| job["state"] != "running"))).await?;
    let ended = shell.run("job show 1 -c tailwater.toml")?.exits(0);
    ended.says(&["cancelled", "by user 0", "the same command continues the rejoin of db1"]);
    ensure!(
        rejoin.wait(PATIENCE).await?.code() == Some(1),
        "the cancelled rejoin did not end with exit code 1"
    );
    let old = &trial.primary;
    ensure!(old.sql("SELECT @@GLOBAL.read_only").await? == ["1"], "the server accepts writes");
    ensure!(shell.path().join("log/rejoin/db1.half-way").exists(), "the server counts as rejoined");
    lock.close().await;
    shell.run("rejoin -c tailwater.toml primary db1")?.exits(0).says(&["all the same", "db1 is a replica"]);
    follows(&new, old, "first").await?;
    let listed = jobs()?;
    ensure!(
        listed[0]["state"] == "finished"
            && listed[0]["found"]["rows"] == 0
            && listed[0]["message"].as_str().is_some_and(|text| text.starts_with("db1 is a replica")),
        "{listed:#?}"
    );
    trial.stop_relay().await
}
