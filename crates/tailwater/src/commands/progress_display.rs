//! Shows the progress of dump, load, copy, check and repair: a bar on a terminal, text lines otherwise, JSON
//! lines for programs.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_wire::printable;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::progress_text::{ProgressLine, ProgressText};
use crate::arguments::Output;

/// Version of the format of the JSON lines.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// Where the JSON lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonOutput {
    /// JSON lines are written to standard output.
    Stdout,
    /// JSON lines are written to standard error, because the dump is written to standard output.
    Stderr,
}

impl JsonOutput {
    fn line(self, line: &serde_json::Value) -> io::Result<()> {
        match self {
            Self::Stdout => writeln!(io::stdout(), "{line}"),
            Self::Stderr => writeln!(io::stderr(), "{line}"),
        }
    }
}

/// Time between two updates of the bar.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two text lines if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// How progress is displayed.
enum ProgressDisplay {
    /// A progress bar on a terminal.
    Bar(ProgressBar),
    /// Text lines on standard error. The value is the time at which the last line was written.
    Lines(Duration),
    /// JSON lines, for programs.
    Json,
}

impl ProgressDisplay {
    fn new(output: Output) -> Self {
        match output {
            Output::Json => Self::Json,
            Output::Text if io::stderr().is_terminal() => Self::Bar(ProgressBar::new(0)),
            Output::Text => Self::Lines(Duration::ZERO),
        }
    }
}

/// Runs `work` and shows its progress.
///
/// # Errors
/// Errors of the work, or if the output cannot be written.
pub(super) async fn show_progress<T, E>(
    doing: &'static str,
    progress: &Arc<BulkProgress>,
    output: Output,
    json_output: JsonOutput,
    work: impl Future<Output = Result<T, E>>,
) -> anyhow::Result<Result<T, E>> {
    let with_bar = ProgressStyle::with_template("{prefix} {wide_bar} {msg}")?;
    let without_bar = ProgressStyle::with_template("{prefix}: {msg}")?;
    let mut display = ProgressDisplay::new(output);
    let mut text = ProgressText::default();
    let started = Instant::now();
    let mut ticks = tokio::time::interval(UPDATE_INTERVAL);
    let mut work = std::pin::pin!(work);
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            _ = ticks.tick() => {}
        }
        let elapsed = started.elapsed();
        let held = progress.wait_reason().map(|reason| format!("waiting: {}", printable(&reason)));
        let ProgressLine { text: message, bar: amount } = text.next(&progress.figures(), elapsed);
        let message = match held {
            Some(held) => format!("{message}, {held}"),
            None => message,
        };
        match &mut display {
            ProgressDisplay::Json => json_output.line(&line(doing, progress, elapsed))?,
            ProgressDisplay::Bar(bar) => {
                bar.set_style(if amount.is_some() { with_bar.clone() } else { without_bar.clone() });
                let (done, total) = amount.unwrap_or_default();
                bar.set_length(total);
                bar.set_position(done);
                bar.set_prefix(doing);
                bar.set_message(message);
            }
            ProgressDisplay::Lines(last) => {
                if elapsed.saturating_sub(*last) >= LINE_INTERVAL {
                    *last = elapsed;
                    writeln!(io::stderr(), "{doing}: {message}")?;
                }
            }
        }
    };
    if let ProgressDisplay::Bar(bar) = display {
        bar.finish_and_clear();
    }
    Ok(done)
}

/// Returns a token that SIGTERM and SIGINT cancel.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub(super) fn stop_on_signal() -> io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopping.cancel();
    });
    Ok(stop)
}

fn line(doing: &str, progress: &BulkProgress, elapsed: Duration) -> serde_json::Value {
    let figures = progress.figures();
    json!({
        "schema_version": SCHEMA_VERSION,
        "event": "progress",
        "doing": doing,
        "elapsed_ms": u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        "tables": figures.tables,
        "tables_total": figures.tables_total,
        "rows": figures.rows,
        "rows_total": figures.rows_total,
        "bytes": figures.bytes,
        "file_bytes": figures.file_bytes,
        "chunks": figures.chunks,
        "held": progress.wait_reason().as_deref(),
    })
}
