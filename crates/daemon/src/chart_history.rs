//! The figures of the last hour and day, for charts.
//!
//! - [`ChartHistory`]: the figures, and the task that records them. The crate `chart_history` implements the
//!   file that stores the figures.
//! - `snapshot_samples`: which figures of a snapshot are recorded. Does no I/O.

mod snapshot_samples;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tailwater_chart_history::{HistoryPeriod, HistoryPoint, RingFile};
use tokio::time::MissedTickBehavior;

use crate::control_api::Control;
use crate::unwritable_files::DaemonFile;

/// The figures of the last hour and day, in a file that survives restarts.
#[derive(Debug)]
pub struct ChartHistory {
    path: PathBuf,
    /// Absent until the file can be opened. The daemon works without charts.
    file: Mutex<Option<RingFile>>,
}

impl ChartHistory {
    /// The figures in the file at `path`. The file is opened, or created, when the first figures are
    /// recorded.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: Mutex::new(None) }
    }

    /// The points of a series in the period that ends now, the oldest first. Reads the file, so it must be
    /// called on a thread for blocking work.
    ///
    /// # Errors
    /// The error of the system.
    pub fn points(&self, series: &str, period: HistoryPeriod) -> io::Result<Vec<HistoryPoint>> {
        self.file.lock().as_ref().map_or(Ok(Vec::new()), |file| file.points(series, period, now_seconds()))
    }

    /// The names of all series: see [`tailwater_chart_history::HistoryKind`].
    pub fn series(&self) -> Vec<String> {
        self.file.lock().iter().flat_map(RingFile::series).map(str::to_owned).collect()
    }

    fn record(&self, now_seconds: u64, samples: Vec<(String, [f32; 6])>) -> io::Result<()> {
        let mut opened = self.file.lock();
        let file = match opened.take() {
            Some(file) => file,
            None => RingFile::open(&self.path)?,
        };
        let file = opened.insert(file);
        let mut recorded = Ok(());
        for (series, values) in samples {
            let point = HistoryPoint { at_seconds: now_seconds, values };
            let result = file.record(&series, point, |points| snapshot_samples::aggregate(&series, points));
            // On a full disk there is no room for a new series, but still for the known ones.
            recorded = recorded.and(result);
        }
        recorded
    }
}

/// Records the figures of the daemon until `control` is dropped.
pub(crate) async fn record_forever(control: Weak<Control>, history: Arc<ChartHistory>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(HistoryPeriod::Hour.step_seconds()));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut earlier: Option<(snapshot_samples::SampledTotals, Instant)> = None;
    loop {
        ticks.tick().await;
        let Some(control) = control.upgrade() else { return };
        let (snapshot, faults) = (control.snapshot(), control.state().file_faults.clone());
        drop(control);
        let taken = Instant::now();
        let before = earlier.as_ref().map(|(counters, at)| (counters, (taken - *at).as_secs_f64()));
        let (samples, counters) = snapshot_samples::samples(&snapshot, before);
        earlier = Some((counters, taken));
        let (history, now) = (Arc::clone(&history), now_seconds());
        // The points are written on a thread for blocking work, because the disk may be slow.
        let recorded = tokio::task::spawn_blocking(move || history.record(now, samples)).await;
        if let Ok(result) = recorded {
            faults.record(DaemonFile::ChartHistory, &result);
        }
    }
}

fn now_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map(|since| since.as_secs()).unwrap_or_default()
}
