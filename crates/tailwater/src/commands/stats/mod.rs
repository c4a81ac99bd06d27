//! `tailwater log stats`

mod chart;
mod live;
mod page;
mod scale;
mod sources;
mod text;

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use tailwater_log::stats::{BinlogReport, Collector, CollectorOptions, StatsFinding};
use tailwater_session::Endpoint;

use super::client_server::connect_options;
use super::log_source::logs_in;
use crate::cli::{Output, StatsArgs};
use crate::exit::Exit;
use tailwater_daemon::local_time::LocalTime;

/// The statistics of one log, file list or server.
struct StatsResult {
    /// A log's folder, files, or a server.
    title: String,
    report: BinlogReport,
    findings: Vec<StatsFinding>,
}

impl StatsResult {
    fn new(title: String, collector: &Collector) -> Self {
        let report = collector.report();
        let days = (LocalTime(report.span.first_commit_us), LocalTime(report.span.last_commit_us));
        let one_day = days.0.same_day(days.1);
        let time = |us| if one_day { LocalTime(us).time() } else { LocalTime(us).date_and_time() };
        let findings = report.findings(&time);
        Self { title, report, findings }
    }
}

/// Runs `tailwater log stats`.
///
/// # Errors
/// If input cannot be read or decoded; the message names the position.
pub fn stats(arguments: &StatsArgs, output: Output) -> anyhow::Result<Exit> {
    let options = options(arguments)?;
    let result = collect(arguments, &options)?;
    if let Some(path) = &arguments.html {
        let [only] = result.as_slice() else {
            bail!("--html makes a page of one log: name one of the {} logs found", result.len());
        };
        let page = page::page(only);
        tailwater_files::write_atomically(path, page.as_bytes(), 0o666)
            .with_context(|| format!("write {}", path.display()))?;
    }
    let mut out = io::stdout().lock();
    for (number, result) in result.iter().enumerate() {
        match output {
            Output::Text => {
                if number > 0 {
                    writeln!(out)?;
                }
                let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
                out.write_all(text::text(result, colour).as_bytes())?;
            }
            Output::Json => {
                let mut line = serde_json::to_value(&result.report)?;
                line["source"] = result.title.as_str().into();
                line["findings"] = serde_json::to_value(&result.findings)?;
                writeln!(out, "{line}")?;
            }
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn options(arguments: &StatsArgs) -> anyhow::Result<CollectorOptions> {
    let table = match &arguments.table {
        None => None,
        Some(text) => {
            let (schema, table) = text.split_once('.').context("--table takes SCHEMA.TABLE")?;
            Some((schema.to_owned(), table.to_owned()))
        }
    };
    let moment = |moment: Option<LocalTime>| moment.map(|LocalTime(us)| us);
    Ok(CollectorOptions {
        top: usize::from(arguments.top),
        table,
        since_us: moment(arguments.time.since),
        until_us: moment(arguments.time.until),
    })
}

fn collect(arguments: &StatsArgs, options: &CollectorOptions) -> anyhow::Result<Vec<StatsResult>> {
    let paths = &arguments.paths;
    let server = &arguments.server;
    let server_named = server.host.is_some()
        || server.port.is_some()
        || server.socket.is_some()
        || server.defaults_file.is_some();
    if paths.is_empty() {
        ensure!(
            server_named,
            "no input: give a log folder or binlog files, or a server with --host, --port, --socket or \
             --defaults-file"
        );
        let connect = connect_options(server)?;
        let title = match &connect.endpoint {
            Endpoint::Unix { path } => path.display().to_string(),
            endpoint => endpoint.to_string(),
        };
        let mut collector = Collector::new(options.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(live::read(&connect, arguments.start.as_deref(), &mut collector))?;
        return Ok(vec![StatsResult::new(title, &collector)]);
    }
    ensure!(!server_named, "give either paths or a server, not both");
    let files: Vec<&Path> = paths.iter().map(|path| path.as_path()).filter(|path| path.is_file()).collect();
    if files.len() == paths.len() {
        let mut collector = Collector::new(options.clone());
        sources::files(&files, &mut collector)?;
        let title = match files.as_slice() {
            [first, .., last] => format!("{} to {}", first.display(), last.display()),
            one => one.iter().map(|path| path.display().to_string()).collect(),
        };
        return Ok(vec![StatsResult::new(title, &collector)]);
    }
    let mut result = Vec::new();
    for path in paths {
        ensure!(!path.is_file(), "{} is a file: name only files, or only log folders", path.display());
        for (folder, log) in logs_in(path)? {
            let mut collector = Collector::new(options.clone());
            sources::log(&log, &folder, options, &mut collector)?;
            result.push(StatsResult::new(folder.display().to_string(), &collector));
        }
    }
    Ok(result)
}

/// Shows how far reading is, on standard error; hidden by itself where that is no terminal.
fn progress(what: &str, bytes_total: u64) -> anyhow::Result<ProgressBar> {
    let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let bar = ProgressBar::new(bytes_total).with_style(ProgressStyle::with_template(style)?);
    bar.set_message(what.to_owned());
    Ok(bar)
}
