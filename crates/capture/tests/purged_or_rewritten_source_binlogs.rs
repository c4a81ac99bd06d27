//! Tests with sources whose binlog does not match the log any more, because it was purged, rewound or
//! rewritten.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use tailwater_capture::resume_position::StartPolicy;
use tailwater_sandbox::ServerKind;

use crate::capture_test_helpers::contents;
use crate::capture_test_source::{Running, Source, compare, run, wait_until_acknowledged};

/// The source may purge binlog files that the log has, but not files that the log lacks.
async fn purged(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start(kind, &[]).await? else { return Ok(()) };
    source.prepare().await?;
    let mut options = source.options("log", 71);
    options.semi_sync = false;
    let capture = Running::start(options.clone())?;
    source.write(40).await?;
    source.check_complete("log").await?;
    capture.stop().await?;

    // The restart made the source start its next binlog file. Now it purges all binlog files that the log
    // has.
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

    // Purge files again while clients wait for ACKs. The purged files must not make a commit wait forever.
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
    // The capture missed the end of a purged file, but that part contained no transaction.
    compare_but_ends(&source.log("log"), &kept)?;
    source.check_ledger("log")?;

    // The source purges transactions that the log lacks.
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

/// Copies the source's binlog files, so that the test can still compare them after the source has purged
/// them.
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

/// Like [`compare`], but the log may lack the last events of a binlog file.
fn compare_but_ends(directory: &Path, data: &Path) -> Result<()> {
    let segments = tailwater_log::LogDir::open_read_only(directory)?.segments()?;
    for segment in &segments {
        if segment.source_offset == 4 {
            let (ours, mut theirs) =
                (std::fs::read(&segment.path)?, std::fs::read(data.join(&segment.source_file))?);
            theirs[4 + 17] &= !1;
            let ours = &ours[..segment.bytes as usize];
            ensure!(
                theirs.starts_with(ours),
                "{} differs between the log and the source",
                segment.source_file
            );
            ensure!(
                theirs.len() - ours.len() < 200,
                "the log lacks 200 bytes or more at the end of {}",
                segment.source_file
            );
        }
    }
    Ok(())
}

/// Checks that a capture into `log` is refused with this error code, and does not change the log.
async fn refused(source: &Source, code: &str, words: &[&str]) -> Result<()> {
    let before = contents(&source.log("log"))?;
    let mut options = source.options("log", 71);
    options.semi_sync = false;
    let error = Running::start(options)?.refusal().await?;
    ensure!(error.code() == code, "{}: {error}", error.code());
    for word in words {
        ensure!(error.to_string().contains(word), "the error text lacks {word:?}: {error}");
    }
    ensure!(contents(&source.log("log"))? == before, "the log was changed");
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    ensure!(Command::new("cp").arg("-a").arg(from).arg(to).status()?.success(), "the command cp failed");
    Ok(())
}

/// The GTIDs of the transactions that the source has now.
async fn gtids(source: &Source) -> Result<String> {
    let name = match source.server.kind() {
        ServerKind::Mysql97 => "gtid_executed",
        _ => "gtid_binlog_pos",
    };
    Ok(source.server.sql(&format!("SELECT @@global.{name}")).await?.concat())
}

/// The data of a source is replaced by an older copy, and clients then write other transactions.
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

    // Restore the source from the older copy. As long as clients write nothing, the error names the lost
    // transactions.
    source.server.stop().await?;
    copy_tree(&copy, &data)?;
    source.server.start_again().await?;
    let last_number = last.rsplit(['-', ':']).next().unwrap_or_default();
    let lost: &[&str] = if gtids_on { &[last_number, "behind the log"] } else { &["behind the log"] };
    refused(&source, "TW-RELAY-0004", lost).await?;

    // Clients write at least as many transactions as were lost, under the same GTIDs.
    source.write(30).await?;
    let before = contents(&source.log("log"))?;
    for _ in 0..4 {
        source.write(60).await?;
        let error = Running::start(capture_options.clone())?.refusal().await?;
        ensure!(matches!(error.code(), "TW-RELAY-0003" | "TW-RELAY-0004"), "{}: {error}", error.code());
        ensure!(contents(&source.log("log"))? == before, "the log was changed");
    }
    ensure!(
        source.newest().await? > end,
        "the restored source did not write up to the end position of the log"
    );

    // The log ends in a binlog file without transactions, and the restored source has a file of the same name
    // without transactions.
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
    // The first event of a binlog file contains the time at which the file was started, in seconds. Wait so
    // that the new file has another start time than the lost file with the same name.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    source.server.sql("CREATE DATABASE two").await?;
    source.rotate().await?;
    source.server.sql("CREATE DATABASE three").await?;
    refused(&source, "TW-RELAY-0003", &["other bytes"]).await
}

#[test]
fn purged_binlogs_that_the_log_lacks_are_refused_on_mysql_97() -> Result<()> {
    run(purged(ServerKind::Mysql97))
}

#[test]
fn purged_binlogs_that_the_log_lacks_are_refused_on_mariadb_1011() -> Result<()> {
    run(purged(ServerKind::Mariadb1011))
}

#[test]
fn a_rewound_source_is_refused_on_mysql_97() -> Result<()> {
    run(rewound(ServerKind::Mysql97, &[], true))
}

#[test]
fn a_rewound_source_without_gtids_is_refused_on_mysql_97() -> Result<()> {
    run(rewound(ServerKind::Mysql97, &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"], false))
}

#[test]
fn a_rewound_source_is_refused_on_mariadb_1011() -> Result<()> {
    run(rewound(ServerKind::Mariadb1011, &[], true))
}
