//! Checks that run periodically during a capture: the age of the log's segments, the source's clock, and the
//! source's semi-sync settings.

use std::time::{Duration, Instant, SystemTime};

use tailwater_log::{LogHandle, SourceIdentity};
use tailwater_session::{ConnectOptions, Connection};
use tracing::{debug, info, warn};

use crate::capture_start_and_stop::CaptureOptions;
use crate::capture_status::CaptureStatus;
use crate::semi_sync_monitor::{SemiSyncAlarm, SemiSyncSample};
use crate::{CaptureError, semi_sync_monitor, source_queries};

/// How often old segments are purged.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);

/// Periodically purges the segments that exceed the configured limits, until the capture ends. Another thread
/// deletes the files, because deleting a big file would delay commits that wait for an ACK.
pub(crate) async fn purge_periodically(log: LogHandle) {
    loop {
        tokio::time::sleep(RETENTION_INTERVAL).await;
        let log = log.clone();
        match tokio::task::spawn_blocking(move || log.purge(SystemTime::now())).await {
            Ok(Ok(purge)) if !purge.segments.is_empty() => {
                info!(segments = purge.segments.len(), bytes = purge.bytes, "purged old segments");
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(code = error.code(), "cannot purge old segments: {error}"),
            Err(error) => warn!("the task that purges old segments failed: {error}"),
        }
    }
}

/// The data that the semi-sync monitor keeps when the capture reconnects. With it, the monitor also counts
/// the commits that the source made without an ACK while the capture was disconnected.
#[derive(Default)]
pub(crate) struct SemiSyncHistory {
    before: Option<SemiSyncSample>,
    reported: Vec<SemiSyncAlarm>,
}

/// Queries the source's time and stores it in the status.
pub(crate) async fn update_source_clock(
    control: &mut Connection,
    status: &CaptureStatus,
) -> Result<(), CaptureError> {
    let queried_at = Instant::now();
    let source_us = source_queries::query_clock(control).await?;
    status.observe_clock(source_us, queried_at);
    Ok(())
}

/// The server that a capture reads from.
#[derive(Clone, Copy)]
pub(crate) struct CapturedServer<'a> {
    pub connect: &'a ConnectOptions,
    pub identity: &'a SourceIdentity,
}

impl CapturedServer<'_> {
    /// Tries to reconnect until it succeeds. Rejects a different server at the same address, because that
    /// server has another clock.
    async fn connect_again(self, pause: Duration) -> Connection {
        loop {
            tokio::time::sleep(pause).await;
            match self.connect_once().await {
                Ok(Some(control)) => return control,
                Ok(None) => debug!("another server answers at the source's address"),
                Err(error) => debug!(
                    code = error.code(),
                    "cannot reconnect to the source for the periodic checks: {error}"
                ),
            }
        }
    }

    async fn connect_once(self) -> Result<Option<Connection>, CaptureError> {
        let mut control = Connection::connect(self.connect).await?;
        let found = source_queries::query_state(&mut control).await?.identity;
        Ok(self.identity.same_server(&found).then_some(control))
    }
}

/// Checks the source's clock and its semi-sync settings periodically, and logs new alarms. If this function
/// loses the connection for the checks, it reconnects. But if commits on the source wait for an ACK, it
/// returns, and the stream ends too.
pub(crate) async fn check_source_periodically(
    mut control: Connection,
    server: CapturedServer<'_>,
    options: &CaptureOptions,
    status: &CaptureStatus,
    history: &mut SemiSyncHistory,
) -> Result<(), CaptureError> {
    loop {
        tokio::time::sleep(options.source_check_interval).await;
        let clock_result = update_source_clock(&mut control, status).await;
        if !options.semi_sync {
            if let Err(error) = clock_result {
                // No commit waits for an ACK of this capture, so the stream continues. Until the source
                // answers again, the estimate of its clock is not corrected.
                warn!(code = error.code(), "cannot query the source's time; reconnecting: {error}");
                control = server.connect_again(options.source_check_interval).await;
                if let Err(error) = update_source_clock(&mut control, status).await {
                    debug!(code = error.code(), "cannot query the source's time: {error}");
                }
            }
            continue;
        }
        clock_result?;
        let now = source_queries::query_semi_sync(&mut control).await?;
        let alarms = semi_sync_monitor::assess(history.before.as_ref(), &now);
        for alarm in alarms.iter().filter(|alarm| !history.reported.contains(*alarm)) {
            warn!(code = alarm.code(), "{alarm}");
        }
        if alarms.is_empty() && !history.reported.is_empty() {
            info!("semi-sync works as required again");
        }
        history.reported = alarms.clone();
        status.set_semi_sync(now.source.clone(), alarms);
        history.before = Some(now);
    }
}
