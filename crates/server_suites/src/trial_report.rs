//! Reports the result of each file as text and as JSON.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use super::mysqltest_client::ClientEnd;
use super::random_settings::{FileSettings, ServerRotation};
use super::replica_catch_up_wait::ApplyStop;
use super::target_comparison::ContentDifference;

/// The result of one file.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FileReport {
    /// Name of the file: SUITE/NAME.
    pub file: String,
    /// Server version.
    pub server: &'static str,
    /// Random seed of the settings.
    pub seed: u64,
    /// Why the file was skipped; `None` if it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Settings of the servers on which the file ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation: Option<ServerRotation>,
    /// Settings that were chosen for the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<FileSettings>,
    /// How the client ended; `None` if the statements ran without the client.
    #[serde(rename = "ended", skip_serializing_if = "Option::is_none")]
    pub end: Option<ClientEnd>,
    /// Number of statements that reached the primary.
    pub statements: usize,
    /// Number of comparisons during the file and at its end.
    pub checkpoints: usize,
    /// Duration of the run in seconds.
    pub seconds: f64,
    /// How long the trial waited for the native replica, in seconds.
    pub native_seconds: f64,
    /// How long the trial waited for the channel, in seconds.
    pub channel_seconds: f64,
    /// Transactions at which both native replica and channel stopped.
    pub stopped_both: Vec<ApplyStop>,
    /// Transactions at which only the native replica stopped. The contents are compared anyway.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stopped_native: Vec<ApplyStop>,
    /// Objects that are equal on primary and target, but differ on the native replica.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub native_differs: BTreeSet<String>,
    /// Transactions that the channel refused by design, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// Differences between native replica and target.
    pub differences: Vec<ContentDifference>,
    /// Why the trial could not continue with the same servers; `None` if it could continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl FileReport {
    /// Whether native replica and target differ. A difference after a skipped transaction does not count,
    /// because it may be a consequence of the skip.
    pub fn is_different(&self) -> bool {
        self.differences.iter().any(|difference| !difference.secondary)
    }

    /// Returns the result as one line of text.
    pub fn line(&self) -> String {
        let Self { file, statements, checkpoints, seconds, .. } = self;
        if let Some(reason) = &self.skipped {
            return format!("{file}: skipped: {reason}");
        }
        let first = self.differences.first().map(|difference| difference.what.as_str()).unwrap_or_default();
        let result = match (self.is_different(), self.differences.len()) {
            (true, count) => format!("DIFFERENT in {count}: {first}"),
            (false, 0) => "same".to_owned(),
            (false, count) if self.limits.is_empty() => {
                format!("the same until both stopped at a transaction, then different in {count}")
            }
            (false, count) => format!(
                "the same until the channel refused a transaction by design, then different in {count}"
            ),
        };
        let trouble = self.trouble.as_ref().map(|trouble| format!("; {trouble}")).unwrap_or_default();
        format!(
            "{file}: {result} ({statements} statements, {checkpoints} comparisons, {seconds:.1} s){trouble}"
        )
    }
}

/// All reports of a run, and the report file.
#[derive(Debug)]
pub struct Reports {
    path: Option<PathBuf>,
    /// All reports so far.
    pub files: Vec<FileReport>,
}

impl Reports {
    /// Creates an empty list of reports. If `path` is given, each added report is also appended to that file.
    pub fn new(path: Option<&Path>) -> Self {
        Self { path: path.map(Path::to_owned), files: Vec::new() }
    }

    /// Adds a report. If the file differs, its statements are written next to the report file.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn add(&mut self, report: FileReport, transcript: &[(u32, String)]) -> anyhow::Result<()> {
        if let Some(path) = &self.path {
            let mut file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.as_mut().map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
            writeln!(file, "{}", serde_json::to_string(&report)?)?;
            if !report.differences.is_empty() {
                write_transcript(path, &report, transcript)?;
            }
        }
        self.files.push(report);
        Ok(())
    }

    /// Returns the numbers of files that ran, that differ, and that were skipped. A file that ran again with
    /// another GTID mode counts once.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |condition: fn(&FileReport) -> bool| self.names(condition).len();
        (
            count(|file| file.skipped.is_none()),
            count(FileReport::is_different),
            count(|file| file.skipped.is_some()),
        )
    }

    fn names(&self, condition: impl Fn(&FileReport) -> bool) -> BTreeSet<&str> {
        self.files.iter().filter(|file| condition(file)).map(|file| file.file.as_str()).collect()
    }

    /// Returns the number of files that ran to the end and had at least one comparison.
    pub fn compared(&self) -> usize {
        self.names(|file| file.skipped.is_none() && file.checkpoints > 0).len()
    }

    /// Returns a summary of the run as text.
    pub fn summary(&self) -> String {
        use std::fmt::Write as _;
        let (ran, different, skipped) = self.counts();
        let comparisons: usize = self.files.iter().map(|file| file.checkpoints).sum();
        let statements: usize = self.files.iter().map(|file| file.statements).sum();
        let mut text = format!(
            "{ran} files ran ({statements} statements, {comparisons} comparisons), {different} differ, {} had no comparison, {skipped} skipped\n",
            ran - self.compared(),
        );
        let mut reasons = std::collections::BTreeMap::<&str, usize>::new();
        for reason in self.files.iter().filter_map(|file| file.skipped.as_deref()) {
            *reasons.entry(reason.split(" | ").next().unwrap_or(reason)).or_default() += 1;
        }
        for file in self.files.iter().filter(|file| file.skipped.is_none()) {
            if let Some(stop) = file.stopped_native.first() {
                let _ = writeln!(text, "  {}: only the native replica stopped: {}", file.file, stop.native);
            }
            if let Some(what) = file.native_differs.first() {
                let _ = writeln!(
                    text,
                    "  {}: only the native replica differs from the primary: {what}",
                    file.file
                );
            }
        }
        for (reason, count) in reasons {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {count} skipped: {reason}");
        }
        for file in self.files.iter().filter(|file| file.is_different()) {
            for difference in &file.differences {
                let after = if difference.secondary { " (after an earlier stop or difference)" } else { "" };
                let _ = writeln!(text, "{}: {}{after}", file.file, difference.what);
                let _ = writeln!(text, "  native: {}", difference.native.join("\n          "));
                let _ = writeln!(text, "  target: {}", difference.target.join("\n          "));
            }
        }
        text
    }
}

fn write_transcript(path: &Path, report: &FileReport, transcript: &[(u32, String)]) -> anyhow::Result<()> {
    let folder = path.with_extension("statements");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let mut text = String::new();
    for (name, value) in report.settings.iter().flat_map(|settings| &settings.globals) {
        text += &format!("SET GLOBAL {name}={value};\n");
    }
    for (connection, statement) in transcript {
        text += &format!("/* connection {connection} */ {statement};\n");
    }
    let name = format!("{}-{}.sql", report.file.replace('/', "."), report.seed);
    std::fs::write(folder.join(name), text)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_counted_once() {
        let mut reports = Reports::new(None);
        let named = |file: &str| FileReport { file: file.to_owned(), ..FileReport::default() };
        for report in [
            // This file skipped itself during its run.
            FileReport { skipped: Some("stops the server".to_owned()), checkpoints: 1, ..named("a") },
            // This file ran again with another GTID mode.
            FileReport { checkpoints: 2, ..named("b") },
            FileReport { checkpoints: 1, ..named("b") },
            named("c"),
        ] {
            reports.add(report, &[]).unwrap();
        }
        assert_eq!((reports.counts(), reports.compared()), ((2, 0, 1), 1));
        let summary = reports.summary();
        assert!(
            summary.contains("2 files ran") && summary.contains("1 had no comparison, 1 skipped"),
            "the summary has wrong numbers: {summary}"
        );
    }
}
