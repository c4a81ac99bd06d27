//! The report of a benchmark.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

/// A benchmark's result, as `--output json` prints it.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    /// The benchmark's name.
    pub name: &'static str,
    /// The unit of `ours` and of `value` of the peers.
    pub unit: &'static str,
    /// Tailwater's headline figure: the one figure that represents the whole benchmark.
    pub ours: f64,
    /// The figures of the other tools in the same measurement.
    pub peers: Vec<Peer>,
    /// The ratio of Tailwater's figure to the best figure of another tool. Above 1 means that Tailwater is
    /// better. NaN if one of these two figures is missing.
    pub ratio: f64,
    /// All measurements.
    pub rows: Vec<Measurement>,
    /// The machine that the benchmark ran on.
    pub machine: MachineInfo,
    /// Explanations of the figures, and limits of what they show.
    pub notes: Vec<String>,
}

/// The figure of another tool in the headline measurement.
#[derive(Debug, Serialize)]
pub struct Peer {
    /// The tool's name, with its settings.
    pub name: String,
    /// The tool's version.
    pub version: String,
    /// The tool's figure.
    pub value: f64,
}

/// The measurements of one variant in one setting, over all repeats.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// The name of the measurement within the benchmark.
    pub measurement: &'static str,
    /// The setting, such as the server, the durability and the number of clients.
    pub setting: BTreeMap<&'static str, String>,
    /// The measured tool, or the measured variant of it.
    pub variant: String,
    /// The unit of the values.
    pub unit: &'static str,
    /// The median of the repeats.
    pub median: f64,
    /// The lowest value of the repeats.
    pub min: f64,
    /// The highest value of the repeats.
    pub max: f64,
    /// The value of each repeat.
    pub values: Vec<f64>,
    /// Further figures of the same runs, such as peak memory.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<&'static str, f64>,
}

/// Returns a setting with these names and values.
pub fn setting(pairs: &[(&'static str, &str)]) -> BTreeMap<&'static str, String> {
    pairs.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()
}

/// Facts about the machine that a benchmark ran on.
#[derive(Debug, Serialize)]
pub struct MachineInfo {
    /// CPU model.
    pub cpu: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// The median time of fdatasync after 4 KiB are overwritten in place, in microseconds.
    pub fdatasync_us: f64,
}

impl MachineInfo {
    /// Collects facts about this machine. The time of fdatasync is measured in `folder`.
    ///
    /// # Errors
    /// If `folder` cannot be written to.
    pub fn look(folder: &std::path::Path) -> anyhow::Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        Ok(Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            fdatasync_us: fdatasync_us(folder)?,
        })
    }
}

fn fdatasync_us(folder: &std::path::Path) -> anyhow::Result<f64> {
    use std::os::unix::fs::FileExt;
    let path = folder.join("fdatasync.probe");
    let file = std::fs::File::create(&path)?;
    let block = [7u8; 4096];
    file.write_all_at(&block, 0)?;
    file.sync_all()?;
    let mut times = Vec::new();
    for _ in 0..500 {
        let begin = std::time::Instant::now();
        file.write_all_at(&block, 0)?;
        file.sync_data()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(&path)?;
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

impl Measurement {
    /// Creates a measurement from the values of a variant's repeats.
    pub fn new(
        measurement: &'static str,
        setting: BTreeMap<&'static str, String>,
        variant: impl Into<String>,
        unit: &'static str,
        values: Vec<f64>,
    ) -> Self {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        Self {
            measurement,
            setting,
            variant: variant.into(),
            unit,
            median: at(sorted.len() / 2),
            min: at(0),
            max: at(sorted.len().saturating_sub(1)),
            values,
            also: BTreeMap::new(),
        }
    }
}

impl BenchReport {
    /// Returns the report as text: one table for each measurement, then the notes.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let machine = &self.machine;
        let headline = match self.ratio.is_nan() {
            true if self.peers.is_empty() && self.ours.is_finite() => {
                format!("{:.0} {}, no other tool was measured", self.ours, self.unit)
            }
            true => "no ratio, because Tailwater or the other tools were not measured".to_owned(),
            false => {
                format!("{:.0} {}, ratio {:.2} to the best other tool", self.ours, self.unit, self.ratio)
            }
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}: {headline}\n{} x {}, {} MiB, kernel {}, fdatasync {:.0} µs",
            self.name, machine.cpus, machine.cpu, machine.memory_mib, machine.kernel, machine.fdatasync_us
        );
        let variants = self.rows.iter().map(|row| row.variant.chars().count());
        let width = variants.max().unwrap_or(0).max(34);
        let mut measurement = "";
        let mut setting = None;
        for row in &self.rows {
            if row.measurement != measurement {
                measurement = row.measurement;
                setting = None;
                let _ = writeln!(text, "\n{measurement} ({})", row.unit);
            }
            if setting != Some(&row.setting) {
                setting = Some(&row.setting);
                let words: Vec<_> = row.setting.iter().map(|(key, value)| format!("{key} {value}")).collect();
                let _ = writeln!(text, "  {}", words.join(", "));
            }
            let also: Vec<_> = row.also.iter().map(|(key, value)| format!("{key} {value:.1}")).collect();
            let spread = format!("{:.0} .. {:.0}", row.min, row.max);
            let _ = writeln!(
                text,
                "    {:<width$} {:>10.0}   {spread:<20} {}",
                row.variant,
                row.median,
                also.join(", ")
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "\n- {note}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_and_range_of_its_repeats() {
        let row = Measurement::new("m", BTreeMap::new(), "v", "tps", vec![3.0, 1.0, 2.0]);
        assert_eq!((row.median, row.min, row.max), (2.0, 1.0, 3.0));
    }
}
