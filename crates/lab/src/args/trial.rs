//! `trial`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use tailwater_apply::channel::GtidMode;
use tailwater_sandbox::ServerKind;

/// The modes by the names that the configuration uses.
fn gtid_modes() -> impl TypedValueParser<Value = GtidMode> {
    PossibleValuesParser::new(["log", "preserve", "own"]).map(|name| match name.as_str() {
        "preserve" => GtidMode::Preserve,
        "own" => GtidMode::Own,
        _ => GtidMode::Log,
    })
}

#[derive(Debug, Subcommand)]
pub enum TrialCommand {
    /// Runs the servers' own test suites against a captured primary, and compares a channel's target with a native replica
    /// after each file. Exits with 3 if they differ.
    Suites(SuitesArgs),
}

#[derive(Debug, Args)]
pub struct SuitesArgs {
    /// The server: mariadb, mariadb-11.8 or mysql.
    #[arg(long, default_value = "mariadb")]
    pub server: ServerKind,
    /// Run at most so many files.
    #[arg(long, value_name = "N")]
    pub files: Option<usize>,
    /// Run only files whose name (SUITE/NAME) contains this text; may be repeated.
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// Run these test files, statement by statement with errors ignored, in place of the suites.
    #[arg(long, value_name = "FILE", conflicts_with = "only")]
    pub script: Vec<PathBuf>,
    /// Begin no more files after so many minutes.
    #[arg(long, value_name = "MINUTES", overrides_with = "minutes")]
    pub minutes: Option<f64>,
    /// Chooses settings, orders and random statements. With 0 each file runs with the settings that it expects.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Take every N-th file, beginning with the K-th: K/N.
    #[arg(long, value_name = "K/N")]
    pub slice: Option<String>,
    /// Run so many mixes of random statements in place of files.
    #[arg(long, value_name = "N", conflicts_with_all = ["only", "script", "slice"])]
    pub mixes: Option<usize>,
    /// Under which identity transactions appear on the target; it changes from file to file if absent.
    #[arg(long, value_parser = gtid_modes())]
    pub gtid: Option<GtidMode>,
    /// How long one file may take, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub file_seconds: u64,
    /// Append a line of JSON for each file to this file, and put the statements of files that differ beside it.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Delete a row on the target during each file. A trial that does not report it is broken.
    #[arg(long)]
    pub plant: bool,
}
