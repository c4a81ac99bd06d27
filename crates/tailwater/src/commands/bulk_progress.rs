//! Shows how far a dump or a load is: a bar on a terminal, lines for programs.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tailwater_bulk::progress::BulkProgress;
use tailwater_wire::printable;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::progress_text::{ProgressText, Shown};
use crate::cli::Output;

/// The version of the lines for programs.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// Where lines for programs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// To standard output.
    Out,
    /// To standard error: the other one is taken.
    Error,
}

impl Told {
    fn line(self, line: &serde_json::Value) -> io::Result<()> {
        match self {
            Self::Out => writeln!(io::stdout(), "{line}"),
            Self::Error => writeln!(io::stderr(), "{line}"),
        }
    }
}

/// How often it is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// How often a line says how far it is where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Where people see how far it is.
enum Shows {
    /// On a terminal: a bar.
    Bar(ProgressBar),
    /// Elsewhere: a line on standard error from time to time, the last one then.
    Lines(Duration),
    /// For programs: lines of JSON.
    Json,
}

impl Shows {
    fn new(output: Output) -> Self {
        match output {
            Output::Json => Self::Json,
            Output::Text if io::stderr().is_terminal() => Self::Bar(ProgressBar::new(0)),
            Output::Text => Self::Lines(Duration::ZERO),
        }
    }
}

/// Runs the work, and shows how far it is until it ends.
///
/// # Errors
/// Those of the work, and if standard output cannot be written to.
pub(super) async fn shown<T, E>(
    doing: &'static str,
    progress: &Arc<BulkProgress>,
    output: Output,
    told: Told,
    work: impl Future<Output = Result<T, E>>,
) -> anyhow::Result<Result<T, E>> {
    let with_bar = ProgressStyle::with_template("{prefix} {wide_bar} {msg}")?;
    let without_bar = ProgressStyle::with_template("{prefix}: {msg}")?;
    let mut shows = Shows::new(output);
    let mut text = ProgressText::default();
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(SHOWN_EVERY);
    let mut work = std::pin::pin!(work);
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            _ = ticks.tick() => {}
        }
        let elapsed = begun.elapsed();
        let held = progress.wait_reason().map(|reason| format!("waiting: {}", printable(&reason)));
        let Shown { text: said, bar: amount } = text.next(&progress.figures(), elapsed);
        let said = match held {
            Some(held) => format!("{said}, {held}"),
            None => said,
        };
        match &mut shows {
            Shows::Json => told.line(&line(doing, progress, elapsed))?,
            Shows::Bar(bar) => {
                bar.set_style(if amount.is_some() { with_bar.clone() } else { without_bar.clone() });
                let (done, total) = amount.unwrap_or_default();
                bar.set_length(total);
                bar.set_position(done);
                bar.set_prefix(doing);
                bar.set_message(said);
            }
            Shows::Lines(last) => {
                if elapsed.saturating_sub(*last) >= LINE_EVERY {
                    *last = elapsed;
                    writeln!(io::stderr(), "{doing}: {said}")?;
                }
            }
        }
    };
    if let Shows::Bar(bar) = shows {
        bar.finish_and_clear();
    }
    Ok(done)
}

/// What is cancelled when the process is told to stop.
///
/// # Errors
/// If the system does not tell of signals.
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
