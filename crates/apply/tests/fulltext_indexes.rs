//! Tests tables whose rows contain the document identifier of the full-text index (`FTS_DOC_ID`).

use anyhow::{Context, Result};
use tailwater_apply::channel::{ChannelOptions, ChannelStart};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::ServerKind;

use crate::channel_test_servers::Rig;

on_each_server!(document_identifiers_are_taken_in_their_order);

/// InnoDB accepts a new `FTS_DOC_ID` only if it is above the largest `FTS_DOC_ID` in the table, by less than
/// 65,535 (otherwise error 182). So rows must be written in the source's order even if they share no key.
async fn document_identifiers_are_taken_in_their_order(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &[], &[]).await? else { return Ok(()) };
    let mut sql = String::from("CREATE DATABASE texts; USE texts;");
    for table in 0..6 {
        sql.push_str(&format!(
            "CREATE TABLE t{table} (id INT NOT NULL PRIMARY KEY, body VARCHAR(100),
                 FTS_DOC_ID BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
                 UNIQUE KEY FTS_DOC_ID_INDEX (FTS_DOC_ID), FULLTEXT KEY (body)) ENGINE=InnoDB;"
        ));
    }
    sql.push_str("SET auto_increment_increment = 65535;");
    for row in 0..20 {
        for table in 0..6 {
            // In every second table, the key ascends with the document identifier. In the other tables it
            // descends.
            let key = if table % 2 == 0 { row } else { 100 - row };
            sql.push_str(&format!("INSERT INTO t{table} (id, body) VALUES ({key}, 'text {row}');"));
        }
    }
    for table in 0..6 {
        let key = if table % 2 == 0 { 3 } else { 100 - 3 };
        sql.push_str(&format!(
            "UPDATE t{table} SET body = 'changed', FTS_DOC_ID = 20 * 65535 WHERE id = {key};"
        ));
    }
    rig.source.sql(&sql).await?;
    // Test two possible faults of the channel. With one row per batch, it could apply rows of one table in
    // parallel. With more rows per batch, it could sort the rows by their keys.
    let cases = [
        ("source", CommitOrder::Source, 1),
        ("independent", CommitOrder::Independent, 1),
        ("batched", CommitOrder::Source, 1_000),
    ];
    for (name, commit_order, batch_transactions_max) in cases {
        rig.target.sql("DROP DATABASE IF EXISTS texts").await?;
        let options = ChannelOptions { workers: 4, start: ChannelStart::Oldest, ..rig.options(name) };
        let channel = rig.channel(ChannelOptions { commit_order, batch_transactions_max, ..options });
        rig.wait_applied(&channel).await.context(name)?;
        channel.shut_down().await;
        rig.ensure_equal(&["texts"]).await.context(name)?;
    }
    Ok(())
}
