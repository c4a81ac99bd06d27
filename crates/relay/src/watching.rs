//! What is looked after at intervals while a capture runs: the age of its segments, the source's clock and its semi-sync settings.

use std::time::{Duration, Instant, SystemTime};

use tailwater_log::LogHandle;
use tailwater_session::Connection;
use tracing::{info, warn};

use crate::capture::CaptureOptions;
use crate::status::CaptureStatus;
use crate::watch::{SemiSyncAlarm, SemiSyncSample};
use crate::{RelayError, source, watch};

/// How often old segments are looked at.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);

/// Drops segments that are past the configured limits, for as long as the capture runs. Removing a big file takes long
/// enough to be felt by waiting commits, so it happens on another thread.
pub(crate) async fn keep_retention(log: LogHandle) {
    loop {
        tokio::time::sleep(RETENTION_INTERVAL).await;
        let log = log.clone();
        match tokio::task::spawn_blocking(move || log.purge(SystemTime::now())).await {
            Ok(Ok(purge)) if !purge.segments.is_empty() => {
                info!(segments = purge.segments.len(), bytes = purge.bytes, "dropped old segments");
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(code = error.code(), "old segments could not be dropped: {error}"),
            Err(error) => warn!("dropping old segments failed: {error}"),
        }
    }
}

/// What the semi-sync watch remembers from one connection to the next: commits that went out without us while we were
/// away count too.
#[derive(Default)]
pub(crate) struct Watch {
    before: Option<SemiSyncSample>,
    told: Vec<SemiSyncAlarm>,
}

/// Asks the source what time it is.
pub(crate) async fn ask_clock(control: &mut Connection, status: &CaptureStatus) -> Result<(), RelayError> {
    let asked = Instant::now();
    let source_us = source::ask_clock(control).await?;
    status.hear_clock(source_us, asked);
    Ok(())
}

/// Looks at the source's clock and its semi-sync settings until the connection breaks; alarms are logged when they appear.
pub(crate) async fn watch_source(
    mut control: Connection,
    options: &CaptureOptions,
    status: &CaptureStatus,
    watch: &mut Watch,
) -> Result<(), RelayError> {
    loop {
        tokio::time::sleep(options.watch_interval).await;
        let asked = ask_clock(&mut control, status).await;
        if !options.semi_sync {
            if let Err(error) = asked {
                // No commit waits for what this looks at: the stream goes on, and the clock as it was.
                warn!(
                    code = error.code(),
                    "the source is not asked for its time until it is connected to anew: {error}"
                );
                return std::future::pending().await;
            }
            continue;
        }
        asked?;
        let now = source::ask_semi_sync(&mut control).await?;
        let alarms = watch::assess(watch.before.as_ref(), &now);
        for alarm in alarms.iter().filter(|alarm| !watch.told.contains(*alarm)) {
            warn!(code = alarm.code(), "{alarm}");
        }
        if alarms.is_empty() && !watch.told.is_empty() {
            info!("semi-sync is sound again");
        }
        watch.told = alarms.clone();
        status.set_alarms(alarms);
        watch.before = Some(now);
    }
}
