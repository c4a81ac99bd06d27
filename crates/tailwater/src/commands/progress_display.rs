//! Shows the progress of dump, load, copy, check and repair: a bar on a terminal, text lines otherwise, JSON
//! lines for programs.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_wire::printable;

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

/// Time between two text lines if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the progress of one dump, load, copy, check or repair.
pub(super) struct ProgressDisplay {
    doing: &'static str,
    text: ProgressText,
    form: DisplayForm,
    json_output: JsonOutput,
    with_bar: ProgressStyle,
    without_bar: ProgressStyle,
}

/// How progress is displayed.
enum DisplayForm {
    /// A progress bar on a terminal.
    Bar(ProgressBar),
    /// Text lines on standard error. The value is the time at which the last line was written.
    Lines(Duration),
    /// JSON lines, for programs.
    Json,
}

impl ProgressDisplay {
    /// Starts to show the progress. `doing` names the activity of the command, such as `dumping`.
    ///
    /// # Errors
    /// None in practice: the templates of the bar are valid.
    pub(super) fn new(doing: &'static str, output: Output, json_output: JsonOutput) -> anyhow::Result<Self> {
        let form = match output {
            Output::Json => DisplayForm::Json,
            Output::Text if io::stderr().is_terminal() => DisplayForm::Bar(ProgressBar::new(0)),
            Output::Text => DisplayForm::Lines(Duration::ZERO),
        };
        Ok(Self {
            doing,
            text: ProgressText::default(),
            form,
            json_output,
            with_bar: ProgressStyle::with_template("{prefix} {wide_bar} {msg}")?,
            without_bar: ProgressStyle::with_template("{prefix}: {msg}")?,
        })
    }

    /// Shows the progress at `elapsed` since the start of the work, and returns the line.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub(super) fn update(
        &mut self,
        progress: &BulkProgress,
        elapsed: Duration,
    ) -> anyhow::Result<ProgressLine> {
        let held = progress.wait_reason().map(|reason| format!("waiting: {}", printable(&reason)));
        let shown = self.text.next(&progress.figures(), elapsed);
        let message = match held {
            Some(held) => format!("{}, {held}", shown.text),
            None => shown.text.clone(),
        };
        let doing = self.doing;
        match &mut self.form {
            DisplayForm::Json => self.json_output.line(&line(doing, progress, elapsed))?,
            DisplayForm::Bar(bar) => {
                let style = if shown.bar.is_some() { &self.with_bar } else { &self.without_bar };
                bar.set_style(style.clone());
                let (done, total) = shown.bar.unwrap_or_default();
                bar.set_length(total);
                bar.set_position(done);
                bar.set_prefix(doing);
                bar.set_message(message);
            }
            DisplayForm::Lines(last) => {
                if elapsed.saturating_sub(*last) >= LINE_INTERVAL {
                    *last = elapsed;
                    writeln!(io::stderr(), "{doing}: {message}")?;
                }
            }
        }
        Ok(shown)
    }

    /// Removes the bar.
    pub(super) fn finish(self) {
        if let DisplayForm::Bar(bar) = self.form {
            bar.finish_and_clear();
        }
    }
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
