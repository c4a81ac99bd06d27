//! The figures of the last hour and day, for charts.
//!
//! - [`ChartHistory`]: the figures, and the task that records them. The crate `chart_history` implements the
//!   file that stores the figures.
//! - `snapshot_samples`: which figures of a snapshot are recorded. Does no I/O.

mod snapshot_samples;

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tailwater_chart_history::{HistoryPeriod, HistoryPoint, RingFile};
use tokio::time::MissedTickBehavior;
use tracing::warn;

use crate::control_api::Control;

/// The name of the file in the folder of the logs.
pub const HISTORY_FILE: &str = "history.ring";

/// The figures of the last hour and day, in a file that survives restarts.
#[derive(Debug)]
pub struct ChartHistory {
    file: Mutex<RingFile>,
}

impl ChartHistory {
    /// Opens the file, and creates it if it does not exist.
    ///
    /// # Errors
    /// The error of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: Mutex::new(RingFile::open(path)?) })
    }

    /// The points of a series in the period that ends now, the oldest first. Reads the file, so it must be
    /// called on a thread for blocking work.
    ///
    /// # Errors
    /// The error of the system.
    pub fn points(&self, series: &str, period: HistoryPeriod) -> io::Result<Vec<HistoryPoint>> {
        self.file.lock().points(series, period, now_seconds())
    }

    /// The names of all series: see [`tailwater_chart_history::HistoryKind`].
    pub fn series(&self) -> Vec<String> {
        self.file.lock().series().map(str::to_owned).collect()
    }

    fn record(&self, now_seconds: u64, samples: Vec<(String, [f32; 6])>) -> io::Result<()> {
        let mut file = self.file.lock();
        for (series, values) in samples {
            let point = HistoryPoint { at_seconds: now_seconds, values };
            file.record(&series, point, |points| snapshot_samples::aggregate(&series, points))?;
        }
        Ok(())
    }
}

/// Records the figures of the daemon until `control` is dropped.
pub(crate) async fn record_forever(control: Weak<Control>, history: Arc<ChartHistory>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(HistoryPeriod::Hour.step_seconds()));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut earlier: Option<(snapshot_samples::SampledTotals, Instant)> = None;
    let mut has_failed = false;
    loop {
        ticks.tick().await;
        let Some(snapshot) = control.upgrade().map(|control| control.snapshot()) else { return };
        let taken = Instant::now();
        let before = earlier.as_ref().map(|(counters, at)| (counters, (taken - *at).as_secs_f64()));
        let (samples, counters) = snapshot_samples::samples(&snapshot, before);
        earlier = Some((counters, taken));
        let (history, now) = (Arc::clone(&history), now_seconds());
        // The points are written on a thread for blocking work, because the disk may be slow.
        let recorded = tokio::task::spawn_blocking(move || history.record(now, samples)).await;
        match recorded {
            Ok(Ok(())) => has_failed = false,
            Ok(Err(error)) if !has_failed => {
                warn!("the charts of the web page have a gap: {HISTORY_FILE} cannot be written: {error}");
                has_failed = true;
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

fn now_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map(|since| since.as_secs()).unwrap_or_default()
}
