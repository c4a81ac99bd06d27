//! Copies whole servers as data files, while clients write to them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tailwater_dump::binary_copy::clone_plugin::{self, CloneOptions};
use tailwater_dump::binary_copy::mariadb_backup::{self, BackupOptions};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_tables::{BulkError, BulkProgress};
use tokio_util::sync::CancellationToken;

const CLONER_PASSWORD: &str = "p'w\\d \"x\"";
const PATIENCE: Duration = Duration::from_secs(90);

/// Rows that channels with `gtid = log` would write on their target.
const CHANNEL_ROWS: &str = "CREATE DATABASE tailwater; CREATE TABLE tailwater.apply_unlogged (channel VARCHAR(64) PRIMARY KEY); \
                   INSERT INTO tailwater.apply_unlogged VALUES ('one'), ('two')";

async fn server(kind: ServerKind, name: &str) -> Result<Option<Server>> {
    if require(kind).is_none() {
        return Ok(None);
    }
    Ok(Some(Server::start(ServerSpec::new(kind).name(name)).await?))
}

/// Creates two counters and a table. Every later transaction increments both counters and inserts a row into
/// the table.
async fn fill(source: &Server) -> Result<()> {
    let script = "CREATE DATABASE shop; CREATE TABLE shop.counter (id INT PRIMARY KEY, n BIGINT NOT NULL); \
                  INSERT INTO shop.counter VALUES (1,0),(2,0); \
                  CREATE TABLE shop.orders (id INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(200), KEY (t)); \
                  INSERT INTO shop.orders (t) VALUES ('first');";
    source.sql(script).await?;
    for _ in 0..12 {
        source.sql("INSERT INTO shop.orders (t) SELECT CONCAT(t, '.', id % 7) FROM shop.orders").await?;
    }
    Ok(())
}

/// Writes transactions until `stop` is set.
fn write(source: &Server, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<Result<u64>> {
    let (options, stop) =
        (ConnectOptions { multi_statements: true, ..source.connect_options() }, Arc::clone(stop));
    tokio::spawn(async move {
        let mut connection = Connection::connect(&options).await?;
        let mut written = 0;
        while !stop.load(Ordering::Relaxed) {
            let sql = "BEGIN; UPDATE shop.counter SET n = n + 1 WHERE id = 1; INSERT INTO shop.orders (t) VALUES ('new'); \
                       UPDATE shop.counter SET n = n + 1 WHERE id = 2; COMMIT";
            connection.execute(sql).await?;
            written += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(written)
    })
}

/// Checks that the copy has one point in time: each transaction is copied completely or not at all. Then
/// starts native replication from that position, and waits until the copy is equal to the source.
async fn ensure_copy(source: &Server, copy: &Server) -> Result<()> {
    let counters = copy.sql("SELECT n FROM shop.counter ORDER BY id").await?;
    ensure!(
        counters.len() == 2 && counters[0] == counters[1],
        "the copy has only part of a transaction: {counters:?}"
    );
    copy.replicate_from(source).await?;
    let sums = "CHECKSUM TABLE shop.counter, shop.orders";
    let (want, start) = (source.sql(sums).await?, std::time::Instant::now());
    loop {
        let there = copy.sql(sums).await?;
        if there == want {
            return Ok(());
        }
        let status = copy.replica_status().await?.context("the copy is not a replica")?;
        ensure!(
            status.sql_error.0 == 0 && status.io_error.0 == 0,
            "replication from the copy's position has failed: {status:?}"
        );
        ensure!(
            start.elapsed() < PATIENCE,
            "the copy has the checksums {there:?}, but the source has {want:?}: {status:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn donor() -> Result<Option<(Server, CloneOptions, Server)>> {
    let Some(donor) = server(ServerKind::Mysql97, "donor").await? else { return Ok(None) };
    let Some(recipient) = server(ServerKind::Mysql97, "recipient").await? else { return Ok(None) };
    let account = format!(
        "CREATE USER cloner@'%' IDENTIFIED BY '{}'; GRANT BACKUP_ADMIN, SELECT ON *.* TO cloner@'%'",
        CLONER_PASSWORD.replace('\\', "\\\\").replace('\'', "''")
    );
    donor.sql(&account).await?;
    fill(&donor).await?;
    let mut from = donor.connect_options();
    (from.user, from.password) = ("cloner".into(), CLONER_PASSWORD.into());
    let options = CloneOptions {
        donor: from,
        recipient: recipient.connect_options(),
        donor_address: None,
        restart_wait_max: PATIENCE,
    };
    Ok(Some((donor, options, recipient)))
}

fn ensure_unsupported(result: Result<impl std::fmt::Debug, BulkError>, why: &str) -> Result<()> {
    match result {
        Err(error @ BulkError::BinaryUnsupported { .. }) if error.to_string().contains(why) => Ok(()),
        Err(BulkError::Session(error)) if error.to_string().contains(why) => Ok(()),
        other => bail!("the binary copy must be refused because of {why:?}, but the result is {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_server_is_cloned_while_it_is_written_to() -> Result<()> {
    let Some((donor, options, mut recipient)) = donor().await? else { return Ok(()) };
    // Servers that cannot be cloned are refused with the reason.
    ensure_unsupported(clone_plugin::plan(&options).await, "mysql_clone.so")?;
    for server in [&donor, &recipient] {
        server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'").await?;
    }
    donor.sql("CREATE TABLE shop.old (id INT) ENGINE=MyISAM").await?;
    ensure_unsupported(clone_plugin::plan(&options).await, "shop.old (MyISAM)")?;
    donor.sql("DROP TABLE shop.old").await?;
    recipient.sql("CREATE DATABASE mine").await?;
    ensure_unsupported(clone_plugin::plan(&options).await, "it has the databases mine")?;
    recipient.sql("DROP DATABASE mine").await?;
    let itself = CloneOptions { recipient: donor.connect_options(), ..options.clone() };
    ensure_unsupported(clone_plugin::plan(&itself).await, "the same server")?;
    donor.sql("REVOKE BACKUP_ADMIN ON *.* FROM cloner@'%'").await?;
    ensure_unsupported(clone_plugin::plan(&options).await, "GRANT BACKUP_ADMIN")?;
    donor.sql("GRANT BACKUP_ADMIN ON *.* TO cloner@'%'").await?;

    donor.sql(CHANNEL_ROWS).await?;
    ensure_unsupported(clone_plugin::plan(&options).await, "the channel one, two of Tailwater applies")?;
    donor.sql("DROP DATABASE tailwater").await?;

    let plan = clone_plugin::plan(&options).await?;
    ensure!(
        plan.bytes_estimate > 1 << 20 && plan.donor_address.1 == donor.port(),
        "the plan has a wrong size or address: {plan:?}"
    );
    // The bandwidth limit makes the clone so slow that it cannot finish before it is cancelled.
    recipient.sql("SET GLOBAL clone_max_data_bandwidth = 1").await?;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let stopped = clone_plugin::clone(&options, &Arc::default(), &cancel).await;
    let is_expected = |error: &BulkError| {
        error.code() == "TW-BULK-0103" && error.to_string().contains("run the same command again")
    };
    ensure!(
        stopped.as_ref().is_err_and(is_expected),
        "the cancelled clone did not end with the expected error: {stopped:?}"
    );
    recipient.sql("SET GLOBAL clone_max_data_bandwidth = 0").await?;

    let stop = Arc::new(AtomicBool::new(false));
    let writer = write(&donor, &stop);
    let progress = Arc::new(BulkProgress::default());
    let (of_task, cancel) = (Arc::clone(&progress), CancellationToken::new());
    let cloning = tokio::spawn(async move { clone_plugin::clone(&options, &of_task, &cancel).await });
    // No supervisor restarts the recipient, so the test starts it again when it has shut down.
    while !cloning.is_finished() {
        if !recipient.is_running() {
            recipient.start_again().await?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let cloned = cloning.await??;
    stop.store(true, Ordering::Relaxed);
    let written = writer.await??;
    ensure!(written > 0, "no transaction was committed during the clone");
    ensure!(
        cloned.bytes > 1 << 20 && progress.figures().bytes_total > 1 << 20,
        "the clone reports too few bytes: {cloned:?}"
    );
    let executed = recipient.sql("SELECT @@global.gtid_executed").await?.concat().replace("\\n", "");
    ensure!(
        cloned.point.gtid_set.as_deref() == Some(executed.as_str()),
        "the clone reports other GTIDs than the donor has executed: {cloned:?} {executed}"
    );
    ensure!(
        recipient.sql("SELECT COUNT(*) FROM mysql.user WHERE user='cloner'").await? == ["1"],
        "the recipient does not have the donor's account"
    );
    ensure_copy(&donor, &recipient).await
}

/// A clone whose recipient cannot log in to the donor reports an error and changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clone_that_cannot_log_in_changes_nothing() -> Result<()> {
    let Some((donor, mut options, recipient)) = donor().await? else { return Ok(()) };
    for server in [&donor, &recipient] {
        server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'").await?;
    }
    // This is the recipient's own address, so the clone cannot reach the donor there.
    options.donor_address = Some(("127.0.0.1".into(), recipient.port()));
    let progress = Arc::new(BulkProgress::default());
    match clone_plugin::clone(&options, &progress, &CancellationToken::new()).await {
        Err(error @ BulkError::BinaryFailed { .. }) => {
            let text = error.to_string();
            ensure!(
                text.contains("CLONE INSTANCE") && !text.contains(CLONER_PASSWORD),
                "the error does not name CLONE INSTANCE, or shows the password: {text}"
            );
        }
        other => bail!("the clone did not fail on the unreachable donor: {other:?}"),
    }
    ensure!(donor.sql("SELECT n FROM shop.counter WHERE id = 1").await? == ["0"]);
    Ok(())
}

/// Writes one executable file that runs the server's own backup program with its libraries.
fn program(server: &Server, folder: &Path) -> Result<PathBuf> {
    let tool = server.tool("mariadb-backup")?;
    let quoted = |part: &std::ffi::OsStr| format!("'{}'", part.to_string_lossy());
    let mut script = String::from("#!/bin/sh\n");
    for (name, value) in tool.get_envs() {
        if let Some(value) = value {
            script += &format!("export {}={}\n", name.to_string_lossy(), quoted(value));
        }
    }
    let arguments: Vec<_> = std::iter::once(tool.get_program()).chain(tool.get_args()).map(quoted).collect();
    script += &format!("exec {} \"$@\"\n", arguments.join(" "));
    let path = folder.join(format!("backup-{}", server.kind().name()));
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

async fn back_up(kind: ServerKind, other: ServerKind) -> Result<()> {
    let Some(source) = server(kind, "source").await? else { return Ok(()) };
    fill(&source).await?;
    let folder = tempfile::tempdir()?;
    let mut options = BackupOptions {
        source: source.socket_options(),
        directory: folder.path().join("data"),
        program: folder.path().join("none"),
        parallel: 2,
        memory_bytes: 64 << 20,
    };
    ensure_unsupported(mariadb_backup::plan(&options).await, "does not run")?;
    if let Some(other) = server(other, "other").await? {
        options.program = program(&other, folder.path())?;
        ensure_unsupported(
            mariadb_backup::plan(&options).await,
            "use the program of the server's release series",
        )?;
    }
    options.program = program(&source, folder.path())?;
    source.sql(CHANNEL_ROWS).await?;
    ensure_unsupported(mariadb_backup::plan(&options).await, "the channel one, two of Tailwater applies")?;
    source.sql("DROP DATABASE tailwater").await?;
    std::fs::create_dir(&options.directory)?;
    std::fs::write(options.directory.join("something"), "mine")?;
    ensure_unsupported(mariadb_backup::plan(&options).await, "is not empty")?;
    std::fs::remove_file(options.directory.join("something"))?;

    let stop = Arc::new(AtomicBool::new(false));
    let writer = write(&source, &stop);
    let progress = Arc::new(BulkProgress::default());
    let cancel = CancellationToken::new();
    let done = mariadb_backup::back_up(&options, &progress, &cancel).await;
    stop.store(true, Ordering::Relaxed);
    let (done, written) = (done?, writer.await??);
    ensure!(
        written > 0 && done.bytes > 1 << 20,
        "no transaction was written during the backup, or it has too few bytes: {written} {done:?}"
    );
    let gtids = done.point.gtid_set.context("the copy has no GTID set")?;
    let copy = Server::start(ServerSpec::new(kind).name("copy").data(&options.directory)).await?;
    copy.sql(&format!("SET GLOBAL gtid_slave_pos = '{gtids}'")).await?;
    ensure_copy(&source, &copy).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_server_starts_on_the_folder_of_a_backup() -> Result<()> {
    back_up(ServerKind::Mariadb1011, ServerKind::Mariadb118).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_backup_reports_why_and_a_cancelled_one_stops() -> Result<()> {
    let Some(source) = server(ServerKind::Mariadb118, "source").await? else { return Ok(()) };
    fill(&source).await?;
    let folder = tempfile::tempdir()?;
    let good = BackupOptions {
        source: source.socket_options(),
        directory: folder.path().join("data"),
        program: program(&source, folder.path())?,
        parallel: 1,
        memory_bytes: 64 << 20,
    };
    let progress = Arc::new(BulkProgress::default());
    let cancel = CancellationToken::new();
    cancel.cancel();
    let stopped = mariadb_backup::back_up(&good, &progress, &cancel).await;
    let is_expected = |error: &BulkError| {
        error.code() == "TW-BULK-0103" && error.to_string().contains("data has an incomplete copy; remove it")
    };
    ensure!(
        stopped.as_ref().is_err_and(is_expected),
        "the cancelled backup did not end with the expected error: {stopped:?}"
    );
    // Create an account that may connect to the server, but may not lock tables.
    source
        .sql("CREATE USER weak@localhost IDENTIFIED BY 'a\"b\\\\c'; GRANT SELECT ON *.* TO weak@localhost")
        .await?;
    let mut weak = good.clone();
    (weak.source.user, weak.source.password) = ("weak".into(), "a\"b\\c".into());
    weak.directory = folder.path().join("weak");
    match mariadb_backup::back_up(&weak, &progress, &CancellationToken::new()).await {
        Err(BulkError::BinaryFailed { what, reason, left }) => {
            ensure!(
                what.contains("copying") && reason.contains("RELOAD") && left.contains("weak"),
                "unexpected error of the failed backup: {what} failed: {reason}; {left}"
            );
        }
        other => bail!("an account without RELOAD could back up the server: {other:?}"),
    }
    Ok(())
}

/// Backs up a replica with `log_slave_updates = OFF`. The transactions that it has applied are not in its
/// binlog, but they are in the backup, with their GTIDs.
async fn back_up_a_replica(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let spec = |name: &str, id: &str| {
        ServerSpec::new(kind).name(name).options(["--log-bin=binlog", "--log-slave-updates=OFF", id])
    };
    let primary = Server::start(spec("primary", "--server-id=1")).await?;
    let replica = Server::start(spec("replica", "--server-id=2")).await?;
    replica.replicate_from(&primary).await?;
    fill(&primary).await?;
    let gtids = primary.sql("SELECT @@gtid_binlog_pos").await?.concat();
    ensure!(replica.sql(&format!("SELECT MASTER_GTID_WAIT('{gtids}', 60)")).await? == ["0"]);
    // The replica has also written a transaction that its primary does not have.
    replica.sql("SET SESSION gtid_domain_id = 7; CREATE DATABASE own").await?;
    let folder = tempfile::tempdir()?;
    let options = BackupOptions {
        source: replica.socket_options(),
        directory: folder.path().join("data"),
        program: program(&replica, folder.path())?,
        parallel: 1,
        memory_bytes: 64 << 20,
    };
    let done = mariadb_backup::back_up(&options, &Arc::default(), &CancellationToken::new()).await?;
    ensure!(
        done.point.gtid_set.as_deref() == Some(&*format!("{gtids},7-2-1")),
        "the backup does not have the GTIDs {gtids} and 7-2-1: {done:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_backup_of_a_mariadb_1011_replica_includes_applied_gtids() -> Result<()> {
    back_up_a_replica(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn a_backup_of_a_mariadb_118_replica_includes_applied_gtids() -> Result<()> {
    back_up_a_replica(ServerKind::Mariadb118).await
}
