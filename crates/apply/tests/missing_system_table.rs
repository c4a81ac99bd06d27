//! DDL statements on a target whose system tables are missing or damaged.

use anyhow::{Result, ensure};
use tailwater_sandbox::ServerKind;

use crate::channel_test_servers::Rig;

/// The channel applies statements that do not need the table of routines. Native replication applies them
/// too, because it does not read that table for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_routines_table_does_not_stop_other_statements() -> Result<()> {
    let Some(rig) = Rig::start(ServerKind::Mariadb1011, &[], &[]).await? else { return Ok(()) };
    let channel = rig.channel(rig.options("replica"));
    rig.source.sql("CREATE DATABASE shop; CREATE TABLE shop.before (id INT PRIMARY KEY)").await?;
    rig.source.sql("RENAME TABLE mysql.proc TO mysql.proc_kept").await?;
    rig.source.sql("CREATE TABLE shop.after (id INT PRIMARY KEY); INSERT INTO shop.after VALUES (1)").await?;
    // Now the table `mysql.proc` exists, but has one column fewer than the server expects. The server reports
    // a different error for this. The next statements do not need `mysql.proc` either.
    rig.source
        .sql("RENAME TABLE mysql.proc_kept TO mysql.proc; ALTER TABLE mysql.proc DROP COLUMN comment")
        .await?;
    rig.source
        .sql("CREATE VIEW shop.all_of_them AS SELECT id FROM shop.after; DROP TABLE shop.before")
        .await?;
    rig.wait_applied(&channel).await?;
    let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema='shop' ORDER BY 1";
    let found = rig.target.sql(tables).await?;
    ensure!(found == ["after", "all_of_them"], "wrong tables on the target: {found:?}");
    channel.shut_down().await;
    Ok(())
}
