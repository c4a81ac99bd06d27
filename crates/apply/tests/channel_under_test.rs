//! Starts channels between the test servers, waits for them, and compares the tables of both servers.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{ChannelFault, ChannelOptions, ChannelState, ChannelStatus, SourceTime};
use tailwater_wire::gtid::{Gtid, GtidSet};

use crate::channel_test_servers::{PATIENCE, Rig};

impl Rig {
    /// Returns the options of a channel with small batches, so that there are many batches.
    pub fn options(&self, name: &str) -> ChannelOptions {
        ChannelOptions { workers: 3, ..ChannelOptions::new(name, self.target.socket_options()) }
    }

    pub fn channel(&self, options: ChannelOptions) -> Channel {
        Channel::start(options, self.log(), self.source_time(), false)
    }

    /// Returns the source's clock, as the relay measures it.
    pub fn source_time(&self) -> SourceTime {
        let status = self.capture.as_ref().expect("the capture must be running").status();
        SourceTime::new(move || status.source_now_us())
    }

    /// Waits until the channel has applied all transactions that the source has now.
    pub async fn wait_applied(&self, channel: &Channel) -> Result<()> {
        let wanted = self.source_gtids().await?;
        let flavour = self.source.kind().flavour();
        let has = |status: &ChannelStatus| {
            GtidSet::parse(flavour, &status.gtids).is_ok_and(|gtids| wanted.is_subset_of(&gtids))
        };
        wait_for(channel, "apply everything", has).await.map(drop)
    }

    /// Returns the GTID of the newest transaction on the source.
    pub async fn newest_gtid(&self) -> Result<Gtid> {
        let flavour = self.source.kind().flavour();
        let text = match self.source_gtids().await? {
            GtidSet::MySql(set) => {
                let own = self.source.sql("SELECT @@GLOBAL.server_uuid").await?.concat();
                let last = set.to_string();
                let last = last.rsplit(['-', ':']).next().unwrap_or_default();
                format!("{own}:{last}")
            }
            GtidSet::MariaDb(state) => state.position().to_string(),
        };
        Ok(Gtid::parse(flavour, &text)?)
    }

    /// Waits until the channel has failed. Returns its fault.
    pub async fn wait_failed(&self, channel: &Channel) -> Result<ChannelFault> {
        let started = Instant::now();
        let mut status = channel.status();
        loop {
            let now = status.borrow_and_update().clone();
            if let (ChannelState::Failed, Some(fault)) = (now.state, now.fault.clone()) {
                return Ok(fault);
            }
            let left = PATIENCE
                .checked_sub(started.elapsed())
                .with_context(|| format!("the channel did not fail in time: {now:#?}"))?;
            if let Ok(changed) = tokio::time::timeout(left, status.changed()).await {
                changed.context("the channel has ended")?;
            }
        }
    }

    /// Checks that the tables of these databases are equal on both servers.
    pub async fn ensure_equal(&self, schemas: &[&str]) -> Result<()> {
        for schema in schemas {
            let list = format!(
                "SELECT table_name FROM information_schema.tables WHERE table_schema='{schema}' AND \
                 table_type='BASE TABLE' ORDER BY 1"
            );
            let tables = self.source.sql(&list).await?;
            ensure!(
                tables == self.target.sql(&list).await?,
                "the target has other tables in {schema} than the source, which has {tables:?}"
            );
            ensure!(!tables.is_empty(), "the source has no tables in {schema}");
            for table in tables {
                let checksum = format!("CHECKSUM TABLE `{schema}`.`{table}` EXTENDED");
                let (ours, theirs) = (self.source.sql(&checksum).await?, self.target.sql(&checksum).await?);
                if ours == theirs {
                    continue;
                }
                // MariaDB's checksums sometimes differ although the rows are equal, so compare the rows.
                let rows = format!("SELECT * FROM `{schema}`.`{table}`");
                let (mut on_source, mut on_target) =
                    (self.source.sql(&rows).await?, self.target.sql(&rows).await?);
                on_source.sort();
                on_target.sort();
                if on_source != on_target {
                    let differs = |one: &[String], other: &[String]| -> Vec<String> {
                        one.iter().filter(|row| other.binary_search(row).is_err()).take(10).cloned().collect()
                    };
                    let (lacking, extra) = (differs(&on_source, &on_target), differs(&on_target, &on_source));
                    bail!(
                        "{schema}.{table} differs: checksums {ours:?} and {theirs:?}\nrows only on the source: {lacking:#?}\nrows only on the target: {extra:#?}"
                    );
                }
            }
        }
        Ok(())
    }
}

/// Waits until the status of a channel satisfies `is_so`. Fails if the channel fails.
pub async fn wait_for(
    channel: &Channel,
    what: &str,
    is_so: impl Fn(&ChannelStatus) -> bool,
) -> Result<ChannelStatus> {
    let mut started = Instant::now();
    let mut status = channel.status();
    let mut applied = 0;
    loop {
        let now = status.borrow_and_update().clone();
        if is_so(&now) {
            return Ok(now);
        }
        if now.transactions_total != applied {
            (applied, started) = (now.transactions_total, Instant::now());
        }
        ensure!(
            now.state != ChannelState::Failed,
            "the channel failed while the test waited for it to {what}: {:?}",
            now.fault
        );
        let left = PATIENCE
            .checked_sub(started.elapsed())
            .with_context(|| format!("timed out while waiting for the channel to {what}: {now:#?}"))?;
        if let Ok(changed) = tokio::time::timeout(left, status.changed()).await {
            changed.context("the channel has ended")?;
        }
    }
}
