//! Arguments of `tailwater trial`. The doc comments are the help texts.

#![allow(
    missing_docs,
    reason = "doc comments are help texts; a doc comment on an argument group would replace the help text of its command"
)]

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use tailwater_apply::channel::GtidMode;
use tailwater_sandbox::ServerKind;

/// Returns the parser for the GTID modes, by their names in the configuration.
fn gtid_modes() -> impl TypedValueParser<Value = GtidMode> {
    PossibleValuesParser::new(["log", "preserve", "own"]).map(|name| match name.as_str() {
        "preserve" => GtidMode::Preserve,
        "own" => GtidMode::Own,
        _ => GtidMode::Log,
    })
}

#[derive(Debug, Subcommand)]
pub enum TrialCommand {
    /// Run the servers' own test suites on a captured primary. After each file, compare the target of a
    /// channel with a native replica. Exit code 3: they differ.
    Suites(SuitesArgs),
}

#[derive(Debug, Args)]
pub struct SuitesArgs {
    /// Server version: mariadb, mariadb-11.8 or mysql.
    #[arg(long, default_value = "mariadb")]
    pub server: ServerKind,
    /// Maximum number of files to run.
    #[arg(long, value_name = "N")]
    pub files: Option<usize>,
    /// Run only files whose name (SUITE/NAME) contains this text (repeatable).
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// Run the statements of this test file instead of the suites, and ignore errors (repeatable).
    #[arg(long, value_name = "FILE", conflicts_with = "only")]
    pub script: Vec<PathBuf>,
    /// Start no new file after this many minutes.
    #[arg(long, value_name = "MINUTES", overrides_with = "minutes")]
    pub minutes: Option<f64>,
    /// Seed for settings, the order of files, and random statements. With 0, each file runs with the settings
    /// that it expects.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Run every N-th file, starting with the K-th: K/N.
    #[arg(long, value_name = "K/N")]
    pub slice: Option<String>,
    /// Run this many mixes of random statements from several files, instead of the files themselves.
    #[arg(long, value_name = "N", conflicts_with_all = ["only", "script", "slice"])]
    pub mixes: Option<usize>,
    /// GTID mode of the channel. Default: it varies from file to file.
    #[arg(long, value_parser = gtid_modes())]
    pub gtid: Option<GtidMode>,
    /// Time limit of one file, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub file_seconds: u64,
    /// Append a JSON line for each file to this file. The statements of files that differ are stored next to
    /// it.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Delete a row on the target during each file. This tests the trial itself, which must report the
    /// missing row.
    #[arg(long, alias = "plant")]
    pub inject_difference: bool,
}
