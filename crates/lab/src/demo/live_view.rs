//! The demo's live view on standard error: one line for each step. On a terminal it also has a line with the
//! load's counters, which is updated in place.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tailwater_sandbox::workload::Counters;

use super::channel_target::ChannelTarget;

/// Prints the progress of the demo.
pub struct LiveView {
    began: Instant,
    live: ProgressBar,
    json: bool,
}

impl LiveView {
    /// Creates a view that prints text if `for_people` is true, otherwise JSON lines.
    pub fn new(for_people: bool) -> Self {
        let live = if for_people && std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("          {spinner} {msg}").ok();
            style.map_or_else(ProgressBar::hidden, |style| ProgressBar::new_spinner().with_style(style))
        } else {
            ProgressBar::hidden()
        };
        Self { began: Instant::now(), live, json: !for_people }
    }

    /// Prints the start of a step.
    pub fn print_step(&self, message: &str) {
        let seconds = self.began.elapsed().as_secs_f64();
        let line = match self.json {
            true => serde_json::json!({ "seconds": (seconds * 10.0).round() / 10.0, "message": message })
                .to_string(),
            false => format!("{seconds:>7.1} s  {message}"),
        };
        self.live.suspend(|| eprintln!("{line}"));
    }

    /// Shows the figures of the load and of the channel for the given time.
    pub async fn watch(&self, counters: &Counters, applied: &ChannelTarget, duration: Duration) {
        const STEP: Duration = Duration::from_millis(100);
        let until = Instant::now() + duration;
        let mut before = counters.snapshot();
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            tokio::time::sleep(left.min(STEP)).await;
            let now = counters.snapshot();
            let stalled = match now.since_last_commit {
                long if long > Duration::from_millis(250) => {
                    format!("  clients wait since {:.1} s", long.as_secs_f64())
                }
                _ => String::new(),
            };
            let rate = now.rate_since(&before);
            let replica = match applied.status() {
                Some(status) => format!(
                    "  applied {:>7.0}/s, {} behind",
                    status.transactions_per_second,
                    status.lag_seconds.map_or_else(|| "unknown".to_owned(), |lag| format!("{lag:.1} s"))
                ),
                None => String::new(),
            };
            self.live.set_message(format!(
                "{:>9} acknowledged  {rate:>7.0} commits/s{replica}{stalled}",
                now.acknowledged
            ));
            self.live.tick();
            before = now;
        }
        self.live.set_message("");
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        self.live.finish_and_clear();
    }
}
