//! A rejected transaction stops only its own channel. The error names the transaction, no transaction is
//! lost, and the channel resumes once the cause is removed.

use anyhow::{Context, Result, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::ChannelOptions;
use tailwater_apply::replication_filter::{FilterSet, Operation, Rewrite, Rule};
use tailwater_sandbox::ServerKind;
use tailwater_session::ConnectOptions;
use tailwater_wire::Flavour;

use crate::channel_test_servers::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_rejections_stop_the_channel() -> Result<()> {
    refusals(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_rejections_stop_the_channel() -> Result<()> {
    refusals(ServerKind::Mariadb1011).await
}

async fn refusals(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &["--binlog-row-metadata=FULL"], &[]).await? else { return Ok(()) };
    let channel = rig.channel(rig.options("replica"));
    let mut options = rig.options("other");
    options.filters = FilterSet { include: vec!["elsewhere.*".into()], ..FilterSet::default() };
    let other = rig.channel(options);
    rig.source
        .sql(
            "CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY, n INT); \
             CREATE TABLE shop.u (id INT PRIMARY KEY); CREATE TABLE shop.v (id INT PRIMARY KEY, note INT DEFAULT 7); \
             INSERT INTO shop.t VALUES (1, 1), (2, 2); INSERT INTO shop.v (id) VALUES (1)",
        )
        .await?;
    rig.wait_applied(&channel).await?;

    a_duplicate_row(&rig, &channel, &other).await?;
    missing_rows(&rig, &channel).await?;
    a_missing_table(&rig, &channel).await?;
    a_missing_column(&rig, &channel).await?;
    a_row_that_exceeds_the_packet_limit(&rig, &channel).await?;
    a_skipped_transaction(&rig, &channel).await?;
    a_transaction_that_tolerates_differences(&rig, &channel).await?;
    schema_of_another_version(&rig, &channel).await?;
    two_tables_renamed_to_one(&rig).await?;
    an_account_without_privileges(&rig).await?;
    channel.shut_down().await;
    other.shut_down().await;
    Ok(())
}

/// The tables of a newer Tailwater stay unchanged. The tables of an older Tailwater are migrated.
async fn schema_of_another_version(rig: &Rig, channel: &Channel) -> Result<()> {
    channel.pause().await?;
    let version = "SELECT version FROM tailwater.apply_version";
    ensure!(rig.target.sql(version).await? == ["2"]);
    rig.target.sql("SET sql_log_bin=0; UPDATE tailwater.apply_version SET version=3").await?;
    rig.source.sql("INSERT INTO shop.v VALUES (70, 0)").await?;
    channel.resume(None).await?;
    let fault = rig.wait_failed(channel).await?;
    ensure!(
        fault.code == "TW-APP-0012" && fault.message.contains("version 3"),
        "wrong fault of the channel: {fault:?}"
    );
    ensure!(rig.target.sql("SELECT COUNT(*) FROM shop.v WHERE id=70").await? == ["0"]);
    ensure!(rig.target.sql(version).await? == ["3"]);
    rig.target.sql("SET sql_log_bin=0; DROP TABLE tailwater.apply_version").await?;
    channel.resume(None).await?;
    rig.wait_applied(channel).await?;
    ensure!(rig.target.sql(version).await? == ["2"]);
    channel.pause().await?;
    rig.target
        .sql(
            "SET sql_log_bin=0; UPDATE tailwater.apply_progress SET worker=worker+1000 WHERE incarnation=0; \
             ALTER TABLE tailwater.apply_progress DROP PRIMARY KEY, DROP COLUMN incarnation, \
             ADD PRIMARY KEY (channel, worker); UPDATE tailwater.apply_version SET version=1",
        )
        .await?;
    rig.source.sql("INSERT INTO shop.v VALUES (71, 0)").await?;
    channel.resume(None).await?;
    rig.wait_applied(channel).await?;
    ensure!(rig.target.sql("SELECT COUNT(*) FROM shop.v WHERE id=71").await? == ["1"]);
    ensure!(rig.target.sql(version).await? == ["2"]);
    Ok(())
}

/// Filters that would write two source tables to one target table are rejected, even if the rows have
/// different keys.
async fn two_tables_renamed_to_one(rig: &Rig) -> Result<()> {
    let definitions = Rule { tables: "*.*".into(), operations: vec![Operation::Ddl] };
    let filters = FilterSet {
        include: vec!["shop.n".into(), "merged.*".into()],
        exclude: vec![definitions],
        rewrite: vec![Rewrite { from: "shop.*".into(), to: "merged.*".into() }],
        ..FilterSet::default()
    };
    let channel = rig.channel(ChannelOptions { filters: filters.clone(), ..rig.options("merging") });
    rig.target.sql("CREATE DATABASE merged; CREATE TABLE merged.n (id INT PRIMARY KEY)").await?;
    let own = "SET sql_log_bin=0; CREATE DATABASE merged; CREATE TABLE merged.n (id INT PRIMARY KEY); \
               CREATE TABLE shop.n (id INT PRIMARY KEY); SET sql_log_bin=1; ";
    rig.source.sql(&format!("{own} INSERT INTO shop.n VALUES (1); INSERT INTO merged.n VALUES (2)")).await?;
    let gtid = rig.newest_gtid().await?;
    let fault = rig.wait_failed(&channel).await?;
    let expected = format!(
        "transaction {gtid}: filter: shop.n and merged.n of the source would both be written to merged.n"
    );
    ensure!(
        fault.code == "TW-APP-0022" && fault.message.contains(&expected),
        "wrong fault of the channel: {fault:?}"
    );
    ensure!(rig.target.sql("SELECT id FROM merged.n").await? == ["1"]);

    let mut filters = filters;
    filters.exclude.push("merged.n".into());
    channel.set_filters(filters, Some(gtid)).await?;
    channel.resume(None).await?;
    rig.source.sql("INSERT INTO merged.n VALUES (3); INSERT INTO shop.n VALUES (4)").await?;
    rig.wait_applied(&channel).await?;
    ensure!(rig.target.sql("SELECT id FROM merged.n ORDER BY id").await? == ["1", "4"]);
    channel.shut_down().await;
    Ok(())
}

/// If the channel's account lacks a privilege, the error contains the GRANT statement for it.
async fn an_account_without_privileges(rig: &Rig) -> Result<()> {
    rig.target.sql("CREATE USER few@'%' IDENTIFIED BY 'few'; GRANT ALL ON tailwater.* TO few@'%'").await?;
    let root = rig.target.connect_options();
    let target = ConnectOptions::new(root.endpoint.clone(), "few").password("few").tls(root.tls.clone());
    let channel = rig.channel(ChannelOptions { target, ..rig.options("few") });
    let fault = rig.wait_failed(&channel).await?;
    let missing = match rig.target.kind().flavour() {
        Flavour::MySql => "GRANT REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN ON *.* TO 'few'@'%'",
        Flavour::MariaDb => "GRANT BINLOG REPLAY, BINLOG ADMIN ON *.* TO 'few'@'%'",
    };
    ensure!(
        fault.code == "TW-SES-0019" && fault.message.contains(missing),
        "wrong fault of the channel: {fault:?}"
    );
    rig.target.sql(missing).await?;
    channel.resume(None).await?;
    // Now the account may connect, but may not change the table.
    let fault = rig.wait_failed(&channel).await?;
    ensure!(
        fault.code == "TW-APP-0002" && fault.message.contains("denied"),
        "wrong fault of the channel: {fault:?}"
    );
    channel.shut_down().await;
    Ok(())
}

/// One of many transactions that were sent together is rejected. The earlier transactions are committed.
async fn a_duplicate_row(rig: &Rig, channel: &Channel, other: &Channel) -> Result<()> {
    rig.target.sql("INSERT INTO shop.t VALUES (100, 0)").await?;
    channel.pause().await?;
    rig.source.sql("INSERT INTO shop.t VALUES (98, 1); INSERT INTO shop.t VALUES (99, 1)").await?;
    rig.source
        .sql("START TRANSACTION; INSERT INTO shop.u VALUES (1); INSERT INTO shop.t VALUES (100, 1); COMMIT")
        .await?;
    let gtid = rig.newest_gtid().await?.to_string();
    rig.source.sql("INSERT INTO shop.t VALUES (101, 1)").await?;
    channel.resume(None).await?;
    let fault = rig.wait_failed(channel).await?;
    ensure!(fault.code == "TW-APP-0002", "wrong fault of the channel: {fault:?}");
    for named in [gtid.as_str(), "insert into shop.t", "Duplicate entry '?' for key"] {
        ensure!(fault.message.contains(named), "the fault does not contain {named:?}: {fault:?}");
    }
    // The message shows row values only on request.
    ensure!(
        !fault.message.contains("'100'") && !fault.message.contains("id=100"),
        "wrong fault of the channel: {fault:?}"
    );
    let detail = fault.detail.unwrap_or_default();
    ensure!(
        detail.contains("(id=100)") && detail.contains("Duplicate entry '100' for key"),
        "wrong detail of the fault: {detail}"
    );
    ensure!(rig.target.sql("SELECT id FROM shop.t WHERE id > 90 ORDER BY 1").await? == ["98", "99", "100"]);
    ensure!(
        rig.target.sql("SELECT COUNT(*) FROM shop.u").await? == ["0"],
        "a part of the rejected transaction was committed"
    );
    rig.wait_applied(other).await?;
    // After a restart of the channel, the error occurs again until its cause is removed.
    channel.resume(None).await?;
    ensure!(rig.wait_failed(channel).await?.message.contains(&gtid));
    rig.target.sql("DELETE FROM shop.t WHERE id = 100").await?;
    go_on(rig, channel).await
}

async fn missing_rows(rig: &Rig, channel: &Channel) -> Result<()> {
    for (change, doing) in [
        ("UPDATE shop.t SET n = 9 WHERE id = 1", "update of"),
        ("DELETE FROM shop.t WHERE id = 1", "delete from"),
    ] {
        let row = rig.target.sql("SELECT n FROM shop.t WHERE id = 1").await?;
        rig.target.sql("DELETE FROM shop.t WHERE id = 1").await?;
        rig.source.sql(change).await?;
        let gtid = rig.newest_gtid().await?.to_string();
        let fault = rig.wait_failed(channel).await?;
        ensure!(
            fault.code == "TW-APP-0002" && fault.message.contains(&gtid),
            "wrong fault of the channel: {fault:?}"
        );
        ensure!(
            fault.message.contains(&format!("{doing} shop.t: ")),
            "wrong fault of the channel: {fault:?}"
        );
        ensure!(
            fault.detail.as_ref().is_some_and(|detail| detail.starts_with("(id=1)")),
            "wrong fault of the channel: {fault:?}"
        );
        rig.target.sql(&format!("INSERT INTO shop.t VALUES (1, {})", row.concat())).await?;
        go_on(rig, channel).await?;
    }
    Ok(())
}

async fn a_missing_table(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.target.sql("RENAME TABLE shop.u TO shop.hidden").await?;
    rig.source.sql("INSERT INTO shop.u VALUES (50)").await?;
    let gtid = rig.newest_gtid().await?.to_string();
    let fault = rig.wait_failed(channel).await?;
    ensure!(fault.code == "TW-APP-0003", "wrong fault of the channel: {fault:?}");
    ensure!(
        fault.message.contains(&gtid) && fault.message.contains("shop.u"),
        "wrong fault of the channel: {fault:?}"
    );
    rig.target.sql("RENAME TABLE shop.hidden TO shop.u").await?;
    go_on(rig, channel).await
}

async fn a_missing_column(rig: &Rig, channel: &Channel) -> Result<()> {
    channel.pause().await?;
    rig.target.sql("ALTER TABLE shop.v DROP COLUMN note").await?;
    rig.source.sql("INSERT INTO shop.v VALUES (2, 8)").await?;
    channel.resume(None).await?;
    let fault = rig.wait_failed(channel).await?;
    ensure!(
        fault.code == "TW-APP-0004" && fault.message.contains("shop.v, column note"),
        "wrong fault of the channel: {fault:?}"
    );
    rig.target.sql("ALTER TABLE shop.v ADD COLUMN note INT DEFAULT 7").await?;
    go_on(rig, channel).await
}

async fn a_row_that_exceeds_the_packet_limit(rig: &Rig, channel: &Channel) -> Result<()> {
    channel.pause().await?;
    let usual =
        rig.target.sql("SELECT @@GLOBAL.max_allowed_packet; SET GLOBAL max_allowed_packet=1048576").await?;
    rig.source.sql("CREATE TABLE shop.w (id INT PRIMARY KEY, body LONGTEXT)").await?;
    rig.source.sql("INSERT INTO shop.w VALUES (1, REPEAT('w', 3000000))").await?;
    let gtid = rig.newest_gtid().await?.to_string();
    channel.resume(None).await?;
    let fault = rig.wait_failed(channel).await?;
    ensure!(
        fault.code == "TW-APP-0030" && fault.message.contains(&gtid),
        "wrong fault of the channel: {fault:?}"
    );
    ensure!(
        fault.message.contains("max_allowed_packet on the target"),
        "wrong fault of the channel: {fault:?}"
    );
    rig.target.sql(&format!("SET GLOBAL max_allowed_packet={}", usual.concat())).await?;
    go_on(rig, channel).await
}

async fn a_skipped_transaction(rig: &Rig, channel: &Channel) -> Result<()> {
    // Simulate an operator who has already made the change manually.
    rig.target.sql("INSERT INTO shop.t VALUES (200, 1)").await?;
    rig.source.sql("INSERT INTO shop.t VALUES (200, 1)").await?;
    let gtid = rig.newest_gtid().await?;
    rig.source.sql("UPDATE shop.t SET n = 3 WHERE id = 200").await?;
    rig.wait_failed(channel).await?;
    channel.skip(gtid.clone()).await?;
    rig.wait_applied(channel).await?;
    let recorded =
        rig.target.sql("SELECT channel, gtid, skipped_at > 0 FROM tailwater.apply_skipped").await?;
    ensure!(
        recorded == [format!("replica\t{gtid}\t1")],
        "wrong records of the skipped transactions: {recorded:?}"
    );
    rig.ensure_equal(&["shop"]).await
}

/// The channel tolerates differences only in the transaction that failed.
async fn a_transaction_that_tolerates_differences(rig: &Rig, channel: &Channel) -> Result<()> {
    rig.source.sql("INSERT INTO shop.t VALUES (300, 1), (301, 1), (302, 1), (305, 1), (306, 1)").await?;
    rig.wait_applied(channel).await?;
    let nothing = channel.tolerate(None).await;
    ensure!(
        nothing.is_err_and(|error| error.code() == "TW-APP-0008"),
        "the tolerate command must return an error before the channel has failed"
    );
    rig.target
        .sql(
            "INSERT INTO shop.t VALUES (303, 7), (304, 7), (307, 7); DELETE FROM shop.t WHERE id IN (300, 301, 306); \
             UPDATE shop.t SET n = 9 WHERE id = 305",
        )
        .await?;
    rig.source
        .sql(
            "START TRANSACTION; INSERT INTO shop.t VALUES (303, 1); UPDATE shop.t SET n = 2 WHERE id = 300; \
             UPDATE shop.t SET n = 2 WHERE id = 302; DELETE FROM shop.t WHERE id = 301; DELETE FROM shop.t WHERE id IN (305, 306); \
             INSERT INTO shop.t VALUES (305, 1), (306, 1), (307, 1); DELETE FROM shop.t WHERE id = 307; COMMIT",
        )
        .await?;
    let gtid = rig.newest_gtid().await?;
    let fault = rig.wait_failed(channel).await?;
    ensure!(fault.message.contains(&gtid.to_string()), "wrong fault of the channel: {fault:?}");
    // Insert this row only now. Otherwise another worker could report this row before the earlier error.
    rig.source.sql("INSERT INTO shop.t VALUES (304, 1)").await?;
    let last = rig.newest_gtid().await?;
    channel.tolerate(None).await?;
    let fault = rig.wait_failed(channel).await?;
    ensure!(fault.message.contains(&last.to_string()), "wrong fault of the channel: {fault:?}");
    ensure!(
        fault.detail.as_ref().is_some_and(|detail| detail.starts_with("(id=304)")),
        "wrong fault of the channel: {fault:?}"
    );
    let rows = rig.target.sql("SELECT id, n FROM shop.t WHERE id >= 300 ORDER BY id").await?;
    ensure!(rows == ["302\t2", "303\t1", "304\t7", "305\t1", "306\t1"], "wrong rows on the target: {rows:?}");
    channel.tolerate(Some(last.clone())).await?;
    rig.wait_applied(channel).await?;
    let recorded = "SELECT gtid FROM tailwater.apply_skipped WHERE tolerated=1";
    let recorded = rig.target.sql(recorded).await?;
    ensure!(
        recorded.contains(&gtid.to_string()) && recorded.contains(&last.to_string()),
        "wrong records of the tolerated transactions: {recorded:?}"
    );
    // A tolerated update of a missing row does not insert the row.
    rig.target.sql("INSERT INTO shop.t VALUES (300, 2)").await?;
    rig.ensure_equal(&["shop"]).await
}

async fn go_on(rig: &Rig, channel: &Channel) -> Result<()> {
    channel.resume(None).await?;
    rig.wait_applied(channel)
        .await
        .context("the channel must apply the transaction after the cause was removed")?;
    rig.ensure_equal(&["shop"]).await
}
