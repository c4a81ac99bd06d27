//! What is looked after at intervals while a capture runs: the age of its segments, the source's clock and its semi-sync settings.

use std::time::{Duration, Instant, SystemTime};

use tailwater_log::{LogHandle, SourceIdentity};
use tailwater_session::{ConnectOptions, Connection};
use tracing::{debug, info, warn};

use crate::capture::CaptureOptions;
use crate::semi_sync_monitor::{SemiSyncAlarm, SemiSyncSample};
use crate::status::CaptureStatus;
use crate::{RelayError, semi_sync_monitor, source};

/// How often old segments are looked at.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);

/// Drops segments that are past the configured limits, for as long as the capture runs. Removing a big file takes long
/// enough to be felt by waiting commits, so it happens on another thread.
pub(crate) async fn purge_periodically(log: LogHandle) {
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
pub(crate) struct SemiSyncHistory {
    before: Option<SemiSyncSample>,
    reported: Vec<SemiSyncAlarm>,
}

/// Asks the source what time it is.
pub(crate) async fn update_source_clock(
    control: &mut Connection,
    status: &CaptureStatus,
) -> Result<(), RelayError> {
    let asked = Instant::now();
    let source_us = source::query_clock(control).await?;
    status.observe_clock(source_us, asked);
    Ok(())
}

/// CapturedServer a capture reads from.
#[derive(Clone, Copy)]
pub(crate) struct CapturedServer<'a> {
    pub connect: &'a ConnectOptions,
    pub identity: &'a SourceIdentity,
}

impl CapturedServer<'_> {
    /// Connects once more, however long it takes; whoever answers in its place has another clock.
    async fn connect_again(self, pause: Duration) -> Connection {
        loop {
            tokio::time::sleep(pause).await;
            match self.connect_once().await {
                Ok(Some(control)) => return control,
                Ok(None) => debug!("another server answers in the source's place"),
                Err(error) => debug!(code = error.code(), "the source cannot be asked: {error}"),
            }
        }
    }

    async fn connect_once(self) -> Result<Option<Connection>, RelayError> {
        let mut control = Connection::connect(self.connect).await?;
        let found = source::query_state(&mut control).await?.identity;
        Ok(self.identity.same_server(&found).then_some(control))
    }
}

/// Looks at the source's clock and its semi-sync settings; alarms are logged when they appear. Ends with the connection only where
/// commits wait for what is looked at.
pub(crate) async fn check_source_periodically(
    mut control: Connection,
    server: CapturedServer<'_>,
    options: &CaptureOptions,
    status: &CaptureStatus,
    history: &mut SemiSyncHistory,
) -> Result<(), RelayError> {
    loop {
        tokio::time::sleep(options.source_check_interval).await;
        let asked = update_source_clock(&mut control, status).await;
        if !options.semi_sync {
            if let Err(error) = asked {
                // No commit waits for what this looks at: the stream goes on, and the clock as it was.
                warn!(
                    code = error.code(),
                    "the source is connected to anew, to be asked for its time: {error}"
                );
                control = server.connect_again(options.source_check_interval).await;
                if let Err(error) = update_source_clock(&mut control, status).await {
                    debug!(code = error.code(), "the source does not tell the time: {error}");
                }
            }
            continue;
        }
        asked?;
        let now = source::query_semi_sync(&mut control).await?;
        let alarms = semi_sync_monitor::assess(history.before.as_ref(), &now);
        for alarm in alarms.iter().filter(|alarm| !history.reported.contains(*alarm)) {
            warn!(code = alarm.code(), "{alarm}");
        }
        if alarms.is_empty() && !history.reported.is_empty() {
            info!("semi-sync is sound again");
        }
        history.reported = alarms.clone();
        status.set_alarms(alarms);
        history.before = Some(now);
    }
}
