//! Tests with a source that was killed while it wrote to its binlog. The binlog file ends in the middle of an
//! event.

use std::fs::{self, OpenOptions};
use std::io::Write;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::ServerKind;
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;

use crate::capture_test_source::{Running, Source, run, wait_until_acknowledged};

/// Appends a copy of a transaction to the binlog file. The copy is cut in the middle of the transaction's
/// last event but one.
fn tear(path: &std::path::Path) -> Result<()> {
    let bytes = fs::read(path)?;
    let (mut at, mut starts) = (4, Vec::new());
    while at + 19 <= bytes.len() {
        starts.push((at, bytes[at + 4]));
        at += u32::from_le_bytes(bytes[at + 9..at + 13].try_into()?) as usize;
    }
    ensure!(at == bytes.len(), "the file already ends in the middle of an event");
    // The types of GTID events: 33 on MySQL, 162 on MariaDB.
    let begin = starts
        .iter()
        .rposition(|&(_, kind)| kind == 33 || kind == 162)
        .context("the file has no transaction")?;
    let (from, until) = (starts[begin].0, starts[starts.len() - 2].0 + 10);
    ensure!(until > from, "the transaction has only one event");
    let mut part = bytes[from..until].to_vec();
    // Each event contains its end position, so correct this position in the copy.
    let shift = bytes.len() - from;
    for window in starts[begin..].windows(2) {
        let (event, next) = (window[0].0 - from, window[1].0 - from);
        if next > part.len() {
            break;
        }
        let end = u32::from_le_bytes(part[event + 13..event + 17].try_into()?);
        if end != 0 {
            part[event + 13..event + 17].copy_from_slice(&(end + shift as u32).to_le_bytes());
            let sum = crc32(&part[event..next - 4]);
            part[next - 4..next].copy_from_slice(&sum.to_le_bytes());
        }
    }
    OpenOptions::new().append(true).open(path)?.write_all(&part)?;
    Ok(())
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
        }
    }
    !sum
}

/// The capture stores nothing of the torn transaction, and continues in the file that the source starts next.
async fn torn(kind: ServerKind, clients_wait: bool) -> Result<()> {
    let Some(mut source) = Source::start_waiting(kind, &[]).await? else { return Ok(()) };
    let options = source.options("log", 81);
    let capture = Running::start(options.clone())?;
    capture.until_streaming().await?;
    source.prepare().await?;
    source.write(30).await?;
    source.check_complete("log").await?;
    let (file, _) = source.newest().await?;
    source.server.kill().await?;
    let path = source.server.data().join(&file);
    let whole = fs::metadata(&path)?.len();
    tear(&path)?;
    // If clients wait for ACKs, the capture runs from the beginning. Otherwise it starts after the source was
    // killed.
    let capture = if clients_wait {
        capture.stop().await?;
        None
    } else {
        Some(capture)
    };
    source.server.start_again().await?;
    let load = source.load(8, None);
    if clients_wait {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    let capture = match capture {
        Some(capture) => capture,
        None => Running::start(options)?,
    };
    wait_until_acknowledged(&load, 100).await.with_context(|| {
        format!(
            "the commits were not acknowledged; the capture has the status {:?}",
            capture.status.snapshot()
        )
    })?;
    load.finish().await;
    source.rotate().await?;
    // The comparison expects that the log has every file of the source up to its end. So remove the torn
    // transaction from the source's file.
    if fs::metadata(&path)?.len() > whole {
        OpenOptions::new().write(true).open(&path)?.set_len(whole)?;
    }
    source.check_complete("log").await?;
    source.check_ledger("log")?;
    capture.stop().await
}

#[test]
fn a_torn_binlog_of_mariadb_1011_is_skipped() -> Result<()> {
    run(torn(ServerKind::Mariadb1011, false))
}

#[test]
fn a_torn_binlog_of_mariadb_1011_with_waiting_clients_is_skipped() -> Result<()> {
    run(torn(ServerKind::Mariadb1011, true))
}

#[test]
fn a_torn_binlog_of_mariadb_118_is_skipped() -> Result<()> {
    if is_skipped_in_ci(
        "torn_source_binlog::a_torn_binlog_of_mariadb_118_is_skipped",
        "the same test on MariaDB 10.11",
    ) {
        return Ok(());
    }
    run(torn(ServerKind::Mariadb118, false))
}

/// MySQL truncates the torn file when it starts.
#[test]
fn mysql_97_truncates_a_torn_binlog() -> Result<()> {
    run(torn(ServerKind::Mysql97, true))
}
