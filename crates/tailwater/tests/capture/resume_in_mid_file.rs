//! Capture resumes in the middle of a binlog file. Some settings of the source change what it sends there.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialFolder, TrialSpec, compare_with_source};
use tailwater_log::{AckMode, LogDir};
use tailwater_sandbox::{ServerKind, require};

use crate::shell_session::PROGRAM;

/// If binlog checksums are off, the source repeats the format description with a wrong checksum.
#[tokio::test]
async fn capture_resumes_from_a_source_without_checksums() -> Result<()> {
    for kind in ServerKind::ALL {
        if require(kind).is_some() {
            resume(kind, &["--binlog-checksum=NONE"]).await.with_context(|| kind.to_string())?;
        }
    }
    Ok(())
}

async fn resume(kind: ServerKind, options: &[&str]) -> Result<()> {
    let folder = TrialFolder::new(None)?;
    let spec = TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: folder.path().to_owned(),
    };
    let mut trial = Trial::start(spec).await?;
    for name in ["one", "two"] {
        trial.start_relay()?;
        trial.wait_captured().await?;
        // With semi-sync, the statement returns only after the log has its transaction.
        let statement = format!("CREATE DATABASE {name}");
        let created = tokio::time::timeout(Duration::from_secs(60), trial.primary.sql(&statement)).await;
        created.with_context(|| {
            format!("{name}: the relay did not acknowledge the commit: {}", trial.relay_log_tail())
        })??;
        trial.kill_relay().await?;
    }
    let segments = LogDir::open_read_only(&trial.log_directory())?.segments()?;
    let [segment] = segments.as_slice() else {
        anyhow::bail!("the log does not have exactly one segment: {segments:?}")
    };
    let differs_at = compare_with_source(segment, trial.primary.data())?;
    ensure!(differs_at.is_none(), "the segment differs from the binlog file at offset {differs_at:?}");
    let bytes = std::fs::read(&segment.path)?;
    let logged = |name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    ensure!(logged(b"CREATE DATABASE one") && logged(b"CREATE DATABASE two"));
    Ok(())
}
