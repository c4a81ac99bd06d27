//! `gtid_slave_pos` is set while a backup holds its lock.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::{Connection, SessionError, set_mariadb_slave_position};
use tailwater_wire::Flavour;

on_each_server!(a_backup_and_the_setting_of_gtid_slave_pos_do_not_deadlock);

/// The backup blocks commits and asks for the replication status, as mariadb-backup does. The status waits
/// for the mutex that `SET GLOBAL gtid_slave_pos` holds while it waits for the backup.
async fn a_backup_and_the_setting_of_gtid_slave_pos_do_not_deadlock(kind: ServerKind) -> Result<()> {
    if kind.flavour() == Flavour::MySql || require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind).options(["--server-id=7"])).await?;
    let mut backup = Connection::connect(&server.connect_options()).await?;
    let mut setter = Connection::connect(&server.connect_options()).await?;
    for stage in ["START", "BLOCK_DDL", "BLOCK_COMMIT"] {
        backup.execute(&format!("BACKUP STAGE {stage}")).await?;
    }
    let set = tokio::spawn(async move {
        let result = set_mariadb_slave_position(&mut setter, "'0-1-5'", Duration::from_secs(60)).await;
        (setter, result)
    });
    let mut observer = Connection::connect(&server.connect_options()).await?;
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist \
                   WHERE info LIKE 'SET GLOBAL gtid_slave_pos%' AND state = 'Waiting for backup lock'";
    let started = Instant::now();
    while observer.query(waiting).await?.scalar() != Some("1") {
        ensure!(
            started.elapsed() < Duration::from_secs(30),
            "SET GLOBAL gtid_slave_pos does not wait for the backup"
        );
    }
    let status = tokio::time::timeout(Duration::from_secs(30), backup.query("SHOW ALL SLAVES STATUS"));
    status.await.context("the backup waits for the session that sets gtid_slave_pos")??;
    backup.execute("BACKUP STAGE END").await?;
    let (mut setter, result) = set.await?;
    result?;
    let now = setter.query("SELECT @@GLOBAL.gtid_slave_pos, @@SESSION.lock_wait_timeout").await?;
    let row = now.first().context("the query returns no row")?;
    ensure!(
        (row.get_str(0), row.get_str(1)) == (Some("0-1-5"), Some("86400")),
        "gtid_slave_pos is {:?} and lock_wait_timeout is {:?}",
        row.get_str(0),
        row.get_str(1)
    );

    // If the call has no time to wait, the lock of a backup is an error. The connection can still be used.
    for stage in ["START", "BLOCK_DDL", "BLOCK_COMMIT"] {
        backup.execute(&format!("BACKUP STAGE {stage}")).await?;
    }
    let refused = set_mariadb_slave_position(&mut setter, "'0-1-6'", Duration::ZERO).await;
    ensure!(
        matches!(&refused, Err(SessionError::Server { error, .. }) if error.number == 1205),
        "the setting of gtid_slave_pos under a backup has the wrong result: {refused:?}"
    );
    backup.execute("BACKUP STAGE END").await?;
    set_mariadb_slave_position(&mut setter, "'0-1-6'", Duration::ZERO).await?;
    Ok(())
}
