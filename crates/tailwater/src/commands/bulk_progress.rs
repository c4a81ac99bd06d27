//! Shows how far a dump or a load is: a bar on a terminal, lines for programs.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tailwater_bulk::progress::Progress;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

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

const BYTES_STYLE: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";

/// Runs the work, and shows how far it is until it ends.
///
/// # Errors
/// Those of the work, and if standard output cannot be written to.
pub(super) async fn shown<T, E>(
    doing: &'static str,
    progress: &Arc<Progress>,
    output: Output,
    told: Told,
    work: impl Future<Output = Result<T, E>>,
) -> anyhow::Result<Result<T, E>> {
    let bar = match output {
        // It draws nothing where there is no terminal.
        Output::Text => {
            let style = "{msg} {wide_bar} {pos}/{len} rows {per_sec} {eta}";
            Some(ProgressBar::new(0).with_style(ProgressStyle::with_template(style)?).with_message(doing))
        }
        Output::Json => None,
    };
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(SHOWN_EVERY);
    let mut work = std::pin::pin!(work);
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            _ = ticks.tick() => {
                let figures = progress.figures();
                match &bar {
                    Some(bar) => {
                        let (done, total) = match figures.bytes_total {
                            0 => (figures.rows, figures.rows_total),
                            // Nobody counts rows.
                            total => {
                                bar.set_style(ProgressStyle::with_template(BYTES_STYLE)?);
                                (figures.bytes, total)
                            }
                        };
                        bar.set_length(total.max(done));
                        bar.set_position(done);
                        match progress.held() {
                            Some(reason) => bar.set_message(format!("{doing}, held back: {reason}")),
                            None => bar.set_message(doing),
                        }
                    }
                    None => told.line(&line(doing, progress, begun.elapsed()))?,
                }
            }
        }
    };
    if let Some(bar) = bar {
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

fn line(doing: &str, progress: &Progress, elapsed: Duration) -> serde_json::Value {
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
        "held": progress.held().as_deref(),
    })
}
