//! Runs `tailwater log stats`: analyses logs, binlog files or a server's binlog.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use tailwater_binlog_stats::{
    Collector, CollectorOptions, LocalTime, ReadProgress, StatsResult, read_files, read_log, read_server,
    report_text,
};
use tailwater_session::Endpoint;

use super::client_connection_options::connect_options;
use super::log_location::logs_in;
use crate::arguments::{Output, StatsArgs};
use crate::exit_codes::Exit;

/// Runs `tailwater log stats`.
///
/// # Errors
/// If the input cannot be read or decoded. The message names the position.
pub fn stats(arguments: &StatsArgs, output: Output) -> anyhow::Result<Exit> {
    let options = options(arguments)?;
    let result = collect(arguments, &options)?;
    if let Some(path) = &arguments.html {
        let [only] = result.as_slice() else {
            bail!(
                "--html writes a page about one log: name one of the {} logs that were found",
                result.len()
            );
        };
        let page = tailwater_admin::stats_page(only);
        tailwater_files::write_atomically(path, page.as_bytes(), 0o666)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = io::stdout().lock();
    for (number, result) in result.iter().enumerate() {
        match output {
            Output::Text => {
                if number > 0 {
                    writeln!(out)?;
                }
                let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
                out.write_all(report_text(result, colour).as_bytes())?;
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
        let start = arguments.start.as_deref().map(start_position).transpose()?;
        let mut collector = Collector::new(options.clone());
        let mut bar = ReadProgressBar::new()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(read_server(&connect, start, &mut collector, &mut bar))?;
        return Ok(vec![StatsResult::new(title, &collector)]);
    }
    ensure!(!server_named, "give either paths or a server, not both");
    let files: Vec<&Path> = paths.iter().map(|path| path.as_path()).filter(|path| path.is_file()).collect();
    if files.len() == paths.len() {
        let mut collector = Collector::new(options.clone());
        read_files(&files, &mut collector, &mut ReadProgressBar::new()?)?;
        let title = match files.as_slice() {
            [first, .., last] => format!("{} to {}", first.display(), last.display()),
            one => one.iter().map(|path| path.display().to_string()).collect(),
        };
        return Ok(vec![StatsResult::new(title, &collector)]);
    }
    let mut result = Vec::new();
    for path in paths {
        ensure!(!path.is_file(), "{} is a file: give only binlog files, or only log folders", path.display());
        for (folder, log) in logs_in(path)? {
            let mut collector = Collector::new(options.clone());
            read_log(&log, &folder, options, &mut collector, &mut ReadProgressBar::new()?)?;
            result.push(StatsResult::new(folder.display().to_string(), &collector));
        }
    }
    Ok(result)
}

/// Parses a start position `FILE:POS`.
fn start_position(text: &str) -> anyhow::Result<(String, u64)> {
    let parsed = text.rsplit_once(':').and_then(|(file, at)| Some((file.to_owned(), at.parse().ok()?)));
    parsed.with_context(|| format!("--start {text}: expected FILE:POS, such as binlog.000042:4"))
}

/// Shows on standard error how much has been read. The library indicatif hides the bar if standard error is
/// not a terminal.
struct ReadProgressBar(ProgressBar);

impl ReadProgressBar {
    fn new() -> anyhow::Result<Self> {
        let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        Ok(Self(ProgressBar::new(0).with_style(ProgressStyle::with_template(style)?)))
    }
}

impl ReadProgress for ReadProgressBar {
    fn start(&mut self, name: &str, bytes_total: u64) {
        self.0.set_length(bytes_total);
        self.0.set_message(name.to_owned());
    }

    fn file(&mut self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    fn advance(&mut self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for ReadProgressBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
