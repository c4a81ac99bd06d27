//! A statement may update a row twice, through two aliases of its table. MySQL logs both updates in one
//! event. If the table has no primary key, MySQL loses the second update when it applies such an event
//! itself.

use anyhow::Result;
use tailwater_apply::channel::{ChannelOptions, ChannelStart};
use tailwater_apply::scheduler::CommitOrder;
use tailwater_sandbox::ServerKind;

use crate::channel_test_servers::Rig;

on_each_server!(both_updates_are_applied);

/// Tables without a primary key: with no index, with a unique index that allows NULL, and with other indexes.
const TABLES: &[&str] = &["", ", UNIQUE (u)", ", KEY (u), KEY (v)"];

async fn both_updates_are_applied(kind: ServerKind) -> Result<()> {
    let Some(rig) = Rig::start(kind, &["--binlog-format=ROW"], &[]).await? else { return Ok(()) };
    rig.source.sql("CREATE DATABASE twice").await?;
    for image in ["FULL", "NOBLOB", "MINIMAL"] {
        for (number, indexes) in TABLES.iter().enumerate() {
            let table = format!("{image}_{number}");
            rig.source
                .sql(&format!(
                    "USE twice; SET SESSION binlog_row_image = {image};
                     CREATE TABLE {table} (id INT NOT NULL, u INT, v INT, t TEXT{indexes});
                     INSERT INTO {table} VALUES (1, 0, 3, 'a'), (2, 1, 3, 'b'), (3, NULL, 3, 'c'), (4, NULL, 3, 'c');
                     UPDATE {table} a JOIN {table} b ON a.id = b.id SET a.v = a.v + 1, b.id = b.id + 8 WHERE a.id < 5;
                     UPDATE {table} a JOIN {table} b ON a.id = b.id SET a.t = 'd', b.u = b.u + 10;
                     UPDATE {table} a JOIN {table} b ON a.id = b.id SET a.t = CONCAT(a.t, a.id), b.t = CONCAT(b.t, 'e') WHERE a.u = 10"
                ))
                .await?;
        }
    }
    for order in [CommitOrder::Source, CommitOrder::Independent] {
        rig.target.sql("SET sql_log_bin = 0; DROP DATABASE IF EXISTS twice").await?;
        let name = format!("twice-{order:?}").to_lowercase();
        let mut options = ChannelOptions { start: ChannelStart::Oldest, ..rig.options(&name) };
        options.commit_order = order;
        let channel = rig.channel(options);
        rig.wait_applied(&channel).await?;
        channel.shut_down().await;
        rig.ensure_equal(&["twice"]).await?;
    }
    Ok(())
}
