//! Sources whose history is not, or no longer, the one that the log needs: purged, rewound, rewritten.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use tailwater_capture::resume::StartPolicy;
use tailwater_sandbox::ServerKind;

use crate::support::{Running, Source, compare, contents, run, wait_until_acknowledged};

/// Binlogs that the log has may be purged; those that it lacks may not.
async fn purged(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start(kind, &[]).await? else { return Ok(()) };
    source.prepare().await?;
    let mut options = source.options("log", 71);
    options.semi_sync = false;
    let capture = Running::start(options.clone())?;
    source.write(40).await?;
    source.check_complete("log").await?;
    capture.stop().await?;

    // All files that the log has are purged; the next file was started by a restart of the source.
    let kept = source.folder.path().join("kept");
    keep_binlogs(&source, &kept)?;
    source.server.restart(None).await?;
    source.purge().await?;
    source.write(40).await?;
    let capture = Running::start(options.clone())?;
    capture.until_more(40).await?;
    capture.stop().await?;
    keep_binlogs(&source, &kept)?;
    compare(&source.log("log"), &kept)?;
    source.check_ledger("log")?;

    // Again, with clients that wait meanwhile: none may wait for the purged files.
    source.server.enable_semi_sync_source().await?;
    options.semi_sync = true;
    let capture = Running::start(options.clone())?;
    capture.until_streaming().await?;
    source.write(10).await?;
    source.until_complete("log").await?;
    source.rotate().await?;
    source.until_complete("log").await?;
    capture.stop().await?;
    source.rotate().await?;
    keep_binlogs(&source, &kept)?;
    source.purge().await?;
    let load = source.load(12, None);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let capture = Running::start(options.clone())?;
    wait_until_acknowledged(&load, 50).await?;
    load.finish().await;
    capture.stop().await?;
    keep_binlogs(&source, &kept)?;
    // The part of a purged file that was not captured held no transaction.
    compare_but_ends(&source.log("log"), &kept)?;
    source.check_ledger("log")?;

    // Transactions that the log lacks are purged.
    let (on, off) = match kind {
        ServerKind::Mysql97 => ("rpl_semi_sync_source_enabled=1", "rpl_semi_sync_source_enabled=0"),
        _ => ("rpl_semi_sync_master_enabled=1", "rpl_semi_sync_master_enabled=0"),
    };
    source.server.sql(&format!("SET GLOBAL {off}")).await?;
    source.write(5).await?;
    source.rotate().await?;
    source.purge().await?;
    source.write(5).await?;
    source.server.sql(&format!("SET GLOBAL {on}")).await?;
    refused(&source, "TW-RELAY-0005", &["start a new log"]).await
}

/// Copies the source's binlog files, so that purged ones can be compared too.
fn keep_binlogs(source: &Source, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for entry in std::fs::read_dir(source.server.data())? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.starts_with("binlog.") && !name.ends_with("index") && !name.ends_with("state") {
            std::fs::copy(&path, folder.join(name))?;
        }
    }
    Ok(())
}

/// Like [`compare`], but the log may lack the events that end a file.
fn compare_but_ends(directory: &Path, data: &Path) -> Result<()> {
    let segments = tailwater_log::LogDir::open_read_only(directory)?.segments()?;
    for segment in &segments {
        if segment.source_offset == 4 {
            let (ours, mut theirs) =
                (std::fs::read(&segment.path)?, std::fs::read(data.join(&segment.source_file))?);
            theirs[4 + 17] &= !1;
            let ours = &ours[..segment.bytes as usize];
            ensure!(theirs.starts_with(ours), "{} differs", segment.source_file);
            ensure!(theirs.len() - ours.len() < 200, "{} ends early", segment.source_file);
        }
    }
    Ok(())
}

/// A capture into `log` is refused with this code, and does not change the log.
async fn refused(source: &Source, code: &str, words: &[&str]) -> Result<()> {
    let before = contents(&source.log("log"))?;
    let mut options = source.options("log", 71);
    options.semi_sync = false;
    let error = Running::start(options)?.refusal().await?;
    ensure!(error.code() == code, "{}: {error}", error.code());
    for word in words {
        ensure!(error.to_string().contains(word), "{word} is not in: {error}");
    }
    ensure!(contents(&source.log("log"))? == before, "the log was changed");
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    ensure!(Command::new("cp").arg("-a").arg(from).arg(to).status()?.success(), "cp");
    Ok(())
}

/// The GTIDs that the source has now.
async fn gtids(source: &Source) -> Result<String> {
    let name = match source.server.kind() {
        ServerKind::Mysql97 => "gtid_executed",
        _ => "gtid_binlog_pos",
    };
    Ok(source.server.sql(&format!("SELECT @@global.{name}")).await?.concat())
}

/// A source returns to an older copy of itself, and then gets other writes.
async fn rewound(kind: ServerKind, options: &[&str], gtids_on: bool) -> Result<()> {
    let Some(mut source) = Source::start(kind, options).await? else { return Ok(()) };
    source.prepare().await?;
    let mut capture_options = source.options("log", 71);
    capture_options.semi_sync = false;
    capture_options.start = StartPolicy::Oldest;
    let capture = Running::start(capture_options.clone())?;
    source.write(20).await?;
    source.check_complete("log").await?;
    source.server.stop().await?;
    let data = source.server.data().to_owned();
    let copy = source.folder.path().join("copy");
    copy_tree(&data, &copy)?;
    source.server.start_again().await?;
    source.write(30).await?;
    source.check_complete("log").await?;
    let last = gtids(&source).await?;
    let end = source.newest().await?;
    capture.stop().await?;

    // Unchanged: the lost transactions are reported.
    source.server.stop().await?;
    copy_tree(&copy, &data)?;
    source.server.start_again().await?;
    let last_number = last.rsplit(['-', ':']).next().unwrap_or_default();
    let lost: &[&str] = if gtids_on { &[last_number, "behind the log"] } else { &["behind the log"] };
    refused(&source, "TW-RELAY-0004", lost).await?;

    // Other clients write as many transactions under the same GTIDs, and more.
    source.write(30).await?;
    let before = contents(&source.log("log"))?;
    for _ in 0..4 {
        source.write(60).await?;
        let error = Running::start(capture_options.clone())?.refusal().await?;
        ensure!(matches!(error.code(), "TW-RELAY-0003" | "TW-RELAY-0004"), "{}: {error}", error.code());
        ensure!(contents(&source.log("log"))? == before, "the log was changed");
    }
    ensure!(source.newest().await? > end, "the restored source never got as far as the log");

    // The log ends in a file without transactions; the restored source has such a file too.
    source.server.stop().await?;
    copy_tree(&copy, &data)?;
    source.server.start_again().await?;
    std::fs::remove_dir_all(source.log("log"))?;
    let capture = Running::start(capture_options.clone())?;
    let first = "CREATE DATABASE one";
    source.server.sql(first).await?;
    source.rotate().await?;
    source.check_complete("log").await?;
    capture.stop().await?;
    source.server.stop().await?;
    copy_tree(&copy, &data)?;
    source.server.start_again().await?;
    // The head of the file has its start time, in seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    source.server.sql("CREATE DATABASE two").await?;
    source.rotate().await?;
    source.server.sql("CREATE DATABASE three").await?;
    refused(&source, "TW-RELAY-0003", &["other bytes"]).await
}

#[test]
fn purged_binlogs_of_mysql_97() -> Result<()> {
    run(purged(ServerKind::Mysql97))
}

#[test]
fn purged_binlogs_of_mariadb_1011() -> Result<()> {
    run(purged(ServerKind::Mariadb1011))
}

#[test]
fn rewound_mysql_97() -> Result<()> {
    run(rewound(ServerKind::Mysql97, &[], true))
}

#[test]
fn rewound_mysql_97_without_gtids() -> Result<()> {
    run(rewound(ServerKind::Mysql97, &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"], false))
}

#[test]
fn rewound_mariadb_1011() -> Result<()> {
    run(rewound(ServerKind::Mariadb1011, &[], true))
}
