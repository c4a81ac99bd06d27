//! Tests the GTID state that a load sets on its target.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tailwater_dump::dump_folder::DumpCompression;
use tailwater_dump::load::{DumpContents, LoadOptions, LoadReport, load, tailwater_folder};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_tables::BulkError;
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::test_dump_folders;

async fn started(kind: ServerKind, id: u32) -> Result<Server> {
    let id = format!("--server-id={id}");
    let mut spec = ServerSpec::new(kind).options(["--local-infile=1", "--log-bin=binlog", &id]);
    if kind.flavour() == Flavour::MySql {
        spec = spec.options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]);
    }
    Ok(Server::start(spec).await?)
}

async fn dumped(source: &Server) -> Result<(tempfile::TempDir, DumpContents, String)> {
    source
        .sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY); INSERT INTO shop.t VALUES (1)")
        .await?;
    let folder = test_dump_folders::write(source, DumpCompression::None, 10).await?;
    let contents = tailwater_folder::read(folder.path(), false)?;
    let set = contents
        .point
        .as_ref()
        .and_then(|point| point.gtid_set.clone())
        .context("the dump records no GTIDs")?;
    Ok((folder, contents, set))
}

async fn load_all(contents: &DumpContents, options: &LoadOptions) -> Result<LoadReport, BulkError> {
    load(contents, options, &Arc::default(), &CancellationToken::new()).await
}

fn options(target: &Server) -> LoadOptions {
    LoadOptions { set_gtid: true, binlog: false, ..LoadOptions::new(target.connect_options()) }
}

/// The target has executed transactions that are newer than the dump. Replication would start after them, and
/// would skip earlier transactions that are neither in the dump nor on the target.
#[tokio::test]
async fn a_target_with_more_transactions_than_the_dump_is_refused() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = (started(kind, 31).await?, started(kind, 32).await?);
    let (_folder, contents, set) = dumped(&source).await?;
    let uuid = source.sql("SELECT @@server_uuid").await?.concat();
    let executed =
        async || anyhow::Ok(target.sql("SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')").await?.concat());
    let purge = async |sets: &[&str]| {
        let sets = sets.join(",");
        target.sql(&format!("RESET BINARY LOGS AND GTIDS; SET GLOBAL gtid_purged = '{sets}'")).await
    };
    let refused = |done: &Result<LoadReport, BulkError>, more: &str| {
        let is_expected = |text: &str| text.contains(more) && text.contains("RESET BINARY LOGS");
        done.as_ref().is_err_and(|error| error.code() == "TW-BULK-0031" && is_expected(&error.to_string()))
    };

    purge(&[&format!("{uuid}:1-1000")]).await?;
    let done = load_all(&contents, &options(&target)).await;
    ensure!(refused(&done, "-1000"), "the load was not refused because of the GTIDs: {done:?}");
    let there = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name IN ('shop', 'tailwater')";
    ensure!(target.sql(there).await? == ["0"], "a refused load has left objects");

    // A target is accepted if it has some transactions of the dump, and transactions of other servers.
    let other = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9";
    purge(&[&format!("{uuid}:1-2"), other]).await?;
    load_all(&contents, &options(&target)).await?;
    let mut both = [other, set.as_str()];
    both.sort_unstable();
    ensure!(
        executed().await? == both.join(","),
        "the target has the GTIDs {}, expected {both:?}",
        executed().await?
    );

    // After the load has finished, the target replicates further transactions.
    let resumed = LoadOptions { resume: true, binlog: true, ..options(&target) };
    purge(&[&format!("{uuid}:1-1000")]).await?;
    load_all(&contents, &resumed).await?;
    ensure!(executed().await? == format!("{uuid}:1-1000"));
    // Now the target has transactions that are newer than the dump, and lacks the transactions directly after
    // the dump.
    purge(&[&format!("{uuid}:900-1000")]).await?;
    let done = load_all(&contents, &resumed).await;
    ensure!(refused(&done, "900-1000"), "the load was not refused because of the GTIDs: {done:?}");
    ensure!(executed().await? == format!("{uuid}:900-1000"));
    Ok(())
}

/// The GTIDs of other domains come from other sources. A load does not change them.
#[tokio::test]
async fn a_target_keeps_the_positions_of_other_domains() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let (source, target) = (started(kind, 31).await?, started(kind, 32).await?);
    let (_folder, contents, set) = dumped(&source).await?;
    ensure!(set.starts_with("0-31-"), "the dump does not have a GTID of server 31: {set}");
    target.sql("SET GLOBAL gtid_slave_pos = '0-31-1,7-77-8'").await?;
    load_all(&contents, &options(&target)).await?;
    let now = target.sql("SELECT @@GLOBAL.gtid_slave_pos").await?;
    ensure!(
        now == [format!("{set},7-77-8")],
        "gtid_slave_pos of the target is {now:?}, expected {set} and 7-77-8"
    );
    Ok(())
}
