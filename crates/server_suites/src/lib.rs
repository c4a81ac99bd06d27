//! `tailwater trial suites`, a differential trial: it runs the servers' own test suites on a captured
//! primary, and compares the target of a channel with a native replica. A difference between the two means
//! that the channel has a fault.
//!
//! Modules:
//! - [`arguments`]: the arguments of the command. [`test_file_runner`]: the loop over the files.
//! - [`test_file_selection`]: the files of the suites, and which of them are skipped.
//!   [`mysqltest_statements`] and [`random_statement_mix`]: statements taken from files.
//! - [`random_settings`]: the settings of a file. [`test_servers`]: the servers and the daemon.
//! - [`mysqltest_client`]: runs a file with the suites' own client, through the [`statement_proxy`].
//! - [`replica_catch_up_wait`]: waits for the native replica and the channel. [`server_contents`] reads a
//!   server, [`target_comparison`] finds differences.
//! - [`primary_reset_between_files`]: restores the primary after a file. [`trial_report`]: the results.

pub mod arguments;
mod mysqltest_client;
mod mysqltest_statements;
mod primary_reset_between_files;
mod random_settings;
mod random_statement_mix;
mod replica_catch_up_wait;
mod server_contents;
mod statement_proxy;
mod target_comparison;
mod test_file_runner;
mod test_file_selection;
mod test_servers;
mod trial_report;

use std::time::{Duration, Instant};

use anyhow::Context;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tailwater_apply::channel::GtidMode;
use tailwater_sandbox::{Cache, TestSuites};

use crate::arguments::SuitesArgs;
use test_file_runner::{Runner, WorkItem};
use trial_report::{FileReport, Reports};

/// Runs `tailwater trial suites`, and prints a report of each file as JSON or as text. Returns false if a
/// file differs.
///
/// # Errors
/// If suites or servers are unavailable, or servers do not start. A difference is not an error.
pub async fn suites(args: &SuitesArgs, as_json: bool) -> anyhow::Result<bool> {
    let started = Instant::now();
    tailwater_lab::fault_trial::ensure_installed(args.server)?;
    let suites = match args.script.is_empty() {
        true => {
            let cache = Cache::locate()?;
            let mut tell = |progress| {
                if !matches!(progress, tailwater_sandbox::install::InstallProgress::Downloaded { .. }) {
                    eprintln!("{progress}");
                }
            };
            Some(TestSuites::ensure(args.server, &cache, &mut tell)?)
        }
        false => None,
    };
    let work = plan(args, suites.as_ref())?;
    let mut runner = Runner::new(args, suites);
    let mut reports = Reports::new(args.report.as_deref());
    let minutes = args.minutes.map(|minutes| Duration::try_from_secs_f64(minutes * 60.0)).transpose();
    let minutes = minutes.context("--minutes is out of range")?;
    let mut ran = 0;
    for piece in work {
        if args.files.is_some_and(|most| ran >= most) || minutes.is_some_and(|most| started.elapsed() > most)
        {
            break;
        }
        let mut gtid = args.gtid;
        let (mut report, mut transcript) = runner.run(&piece, gtid).await?;
        ran += usize::from(report.skipped.is_none());
        // If the channel refuses a transaction by design, later results of the file say nothing about the
        // channel. Most such transactions are refused only with gtid = preserve. So the file runs again with
        // another GTID mode.
        let is_preserved =
            report.settings.as_ref().is_some_and(|settings| settings.gtid == GtidMode::Preserve);
        if !report.limits.is_empty() && is_preserved && gtid.is_none() {
            print_report(&report, as_json)?;
            reports.add(report, &transcript)?;
            gtid = Some(GtidMode::Log);
            (report, transcript) = runner.run(&piece, gtid).await?;
        }
        print_report(&report, as_json)?;
        reports.add(report, &transcript)?;
    }
    if !as_json {
        print!("{}", reports.summary());
    }
    // If the client or a server failed in every file, nothing was compared. Such a run must not count as a
    // success.
    anyhow::ensure!(ran > 0, "no file was run: all selected files are skipped");
    let trouble = reports.files.iter().find_map(|file| file.trouble.as_deref()).unwrap_or_default();
    anyhow::ensure!(reports.compared() > 0, "nothing was compared in any file: {trouble}");
    Ok(reports.counts().1 == 0)
}

/// Returns the items to run, in order.
fn plan(args: &SuitesArgs, suites: Option<&TestSuites>) -> anyhow::Result<Vec<WorkItem>> {
    let Some(suites) = suites else {
        return Ok(args.script.iter().cloned().map(WorkItem::Script).collect());
    };
    let mut files = test_file_selection::files(args.server, &suites.folder())?;
    anyhow::ensure!(!files.is_empty(), "no test files in {}", suites.folder().display());
    if let Some(mixes) = args.mixes {
        files.retain(|file| file.skipped.is_none());
        let mut random = StdRng::seed_from_u64(args.seed);
        let mut choose = |_| {
            files
                .choose_multiple(&mut random, random_statement_mix::FILES)
                .map(|file| file.path.clone())
                .collect()
        };
        return Ok((0..mixes)
            .map(|number| WorkItem::Mix(args.seed + number as u64, choose(number)))
            .collect());
    }
    if !args.only.is_empty() {
        files.retain(|file| args.only.iter().any(|text| file.name.contains(text.as_str())));
    }
    anyhow::ensure!(
        !files.is_empty(),
        "no test file has a name that contains any of {:?} (--only)",
        args.only
    );
    if let Some(slice) = &args.slice {
        files = test_file_selection::slice(files, slice)?;
        anyhow::ensure!(!files.is_empty(), "--slice {slice} contains no test file");
    }
    Ok(files.into_iter().map(WorkItem::File).collect())
}

fn print_report(report: &FileReport, as_json: bool) -> anyhow::Result<()> {
    match as_json {
        true => println!("{}", serde_json::to_string(report)?),
        false if report.skipped.is_none() => println!("{}", report.line()),
        false => {}
    }
    Ok(())
}
