//! Runs `tailwater check`, and prints the differences.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tailwater_check::table_check::row_difference_confirmation::RowVersion;
use tailwater_check::table_check::table_pair::TableMismatch;
use tailwater_check::table_check::target_catch_up_wait::SyncMethod;
use tailwater_check::table_check::{
    self, CheckOptions, CheckReport, DifferenceKind, Digests, RowDifference, TableFinding,
};
use tailwater_daemon::api::jobs::JobKind;
use tailwater_daemon::jobs::job_results::JobResult;
use tailwater_daemon::jobs::job_text::counted;
use tailwater_tables::BulkError;
use tailwater_wire::printable;

use super::client_connection_options::connect_options;
use super::command_run_as_job::JobRun;
use super::dump::selection;
use super::job_report_to_daemon::JobSocket;
use super::progress_display::SCHEMA_VERSION;
use super::throttle_options::throttle;
use crate::arguments::{CheckArgs, CompareArgs, DigestsArg, Output, WaitArg};
use crate::exit_codes::Exit;
use tailwater_daemon::options_from_config::channel_progress_reader::AppliedProgress;

/// Maximum number of differences in text output. JSON output has all of them.
const ROWS_SHOWN: usize = 100;

/// Runs `tailwater check`: compares two servers.
///
/// # Errors
/// The error that ended the check. If a state file is given, the check can be resumed.
pub(super) async fn check(arguments: &CheckArgs, output: Output, show_values: bool) -> anyhow::Result<Exit> {
    super::init_messages_as(output);
    let options = CheckOptions { show_values, ..options(&arguments.what)? };
    let throttle = Arc::new(throttle(&arguments.what.throttle, &options.source)?);
    let socket = JobSocket::of(&arguments.what.daemon.daemon, None);
    let run = JobRun::start(("checking", JobKind::Check, subject(&options)), socket, output)?;
    let work = table_check::check(&options, throttle, Arc::clone(&run.progress), run.stop.clone());
    let report = match run.show(work, JobResult::of_check).await? {
        Ok(report) => report,
        Err(error) if is_refusal(&error) => {
            eprintln!("tailwater: {}: {}", error.code(), printable(&error.to_string()));
            return Ok(Exit::Refused);
        }
        Err(error) => return Err(error.into()),
    };
    let mut out = io::stdout().lock();
    match output {
        Output::Json => print_lines(&mut out, &report, show_values)?,
        Output::Text => print_table(&mut out, &report, show_values)?,
    }
    Ok(if report.is_equal() { Exit::Done } else { Exit::ProblemsFound })
}

/// Returns the servers that are compared, for the list of jobs.
pub(super) fn subject(options: &CheckOptions) -> String {
    format!("{} with {}", options.target.endpoint, options.source.endpoint)
}

/// Builds the check options from the command line.
///
/// # Errors
/// If an option file cannot be read, or a table name is invalid.
pub(super) fn options(arguments: &CompareArgs) -> anyhow::Result<CheckOptions> {
    let source = connect_options(&(&arguments.source).into())?;
    let target = connect_options(&(&arguments.target).into())?;
    let defaults = CheckOptions::new(source, target);
    Ok(CheckOptions {
        digests: match (arguments.digests, defaults.digests) {
            (DigestsArg::Client, Digests::Quick { seed }) => Digests::Client { seed },
            (DigestsArg::Quick | DigestsArg::Client, drawn) => drawn,
            (DigestsArg::Servers, _) => Digests::OnServers,
        },
        selection: selection(&arguments.database, &arguments.table, &arguments.exclude_table)?,
        workers: usize::from(arguments.workers),
        sync_method: match arguments.wait {
            WaitArg::Auto => None,
            WaitArg::Gtid => Some(SyncMethod::Gtid),
            WaitArg::Mark => Some(SyncMethod::Mark),
            WaitArg::None => Some(SyncMethod::None),
        },
        progress_reader: Some(Arc::new(AppliedProgress)),
        wait_max: Duration::from_secs(arguments.wait_max_s),
        chunk_rows_max: arguments.chunk_rows_max,
        chunk_time_max: Duration::from_millis(arguments.chunk_time_ms),
        differences_max: arguments.differences_max,
        state: arguments.state.clone(),
        resume: arguments.resume,
        ..defaults
    })
}

/// Whether the command refused to start because its work would be wrong or unsafe. Nothing was changed.
pub(super) fn is_refusal(error: &BulkError) -> bool {
    matches!(
        error,
        BulkError::StateFileExists { .. }
            | BulkError::StateMismatch { .. }
            | BulkError::SameServer { .. }
            | BulkError::SyncUnknown { .. }
    )
}

/// Returns a difference as a JSON object.
pub(super) fn difference_object(difference: &RowDifference, show_values: bool) -> Map<String, Value> {
    let key: Vec<_> = difference.key.iter().map(|literal| literal.0.as_str()).collect();
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    put("schema", json!(difference.schema));
    put("table", json!(difference.table));
    put("key", json!(key));
    put("what", json!(difference.what.name()));
    match &difference.what {
        DifferenceKind::Changed { columns } => put("columns", json!(columns)),
        DifferenceKind::Count { hash, source, target } => {
            put("hash", json!(format!("{hash:016x}")));
            put("source_rows", json!(source));
            put("target_rows", json!(target));
        }
        DifferenceKind::Missing | DifferenceKind::Extra | DifferenceKind::Undecided => {}
    }
    if let Some(values) = difference.values.as_ref().filter(|_| show_values) {
        let version = |version: &RowVersion| match version {
            None => Value::Null,
            Some(row) => {
                let cells = values.columns.iter().zip(row);
                cells.map(|(name, value)| (name.clone(), json!(value.as_deref().map(value_text)))).collect()
            }
        };
        put("source", version(&values.source));
        put("target", version(&values.target));
    }
    object
}

/// Returns the table name, kind and message of a finding about a table.
pub(super) fn finding(finding: &TableFinding) -> (String, &'static str, String) {
    match finding {
        TableFinding::OnlySource(table) => {
            (table.to_string(), "only_source", "the target does not have it".into())
        }
        TableFinding::OnlyTarget(table) => {
            (table.to_string(), "only_target", "the source does not have it".into())
        }
        TableFinding::TooMany(table) => {
            (table.to_string(), "too_many", "more rows differ than the limit (--differences-max)".into())
        }
        TableFinding::Unreadable(table, message) => {
            (table.to_string(), "unreadable", format!("cannot be read {message}"))
        }
        TableFinding::Columns(table, TableMismatch { only_source, only_target, incomparable }) => {
            let parts = [
                ("only on the source", only_source),
                ("only on the target", only_target),
                ("cannot be compared", incomparable),
            ];
            let parts = parts.iter().filter(|(_, columns)| !columns.is_empty());
            let parts: Vec<_> =
                parts.map(|(what, columns)| format!("{what}: {}", columns.join(", "))).collect();
            (table.to_string(), "columns", format!("columns {}", parts.join("; ")))
        }
    }
}

/// Prints findings about tables as JSON lines.
///
/// # Errors
/// If the output cannot be written.
pub(super) fn print_findings(out: &mut impl Write, findings: &[TableFinding]) -> io::Result<()> {
    for (table, what, message) in findings.iter().map(finding) {
        let line = json!({
            "schema_version": SCHEMA_VERSION, "event": "table", "table": table, "what": what, "message": message,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn print_lines(out: &mut impl Write, report: &CheckReport, show_values: bool) -> io::Result<()> {
    for difference in &report.differences {
        let mut object = difference_object(difference, show_values);
        object.insert("schema_version".into(), json!(SCHEMA_VERSION));
        object.insert("event".into(), json!("difference"));
        writeln!(out, "{}", Value::Object(object))?;
    }
    print_findings(out, &report.findings)?;
    let line = json!({
        "schema_version": SCHEMA_VERSION,
        "event": "done",
        "equal": report.is_equal(),
        "tables": report.tables,
        "rows": report.rows,
        "differences": report.differences.len(),
        "seconds": report.elapsed.as_secs_f64(),
    });
    writeln!(out, "{line}")
}

fn print_table(out: &mut impl Write, report: &CheckReport, show_values: bool) -> io::Result<()> {
    for (table, _, message) in report.findings.iter().map(finding) {
        writeln!(out, "{table}: {}", printable(&message))?;
    }
    let shown = &report.differences[..report.differences.len().min(ROWS_SHOWN)];
    let names: Vec<_> = shown.iter().map(|difference| difference.table_name().to_string()).collect();
    let keys: Vec<_> = shown.iter().map(key_text).collect();
    let width = |texts: &[String], least: usize| {
        texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(least)
    };
    let (table_width, key_width) = (width(&names, 5), width(&keys, 3).min(60));
    if !shown.is_empty() {
        writeln!(out, "{:table_width$}  {:key_width$}  {:9}  DETAILS", "TABLE", "KEY", "WHAT")?;
    }
    for ((difference, name), key) in shown.iter().zip(&names).zip(&keys) {
        let details = match &difference.what {
            DifferenceKind::Changed { columns } => columns.join(", "),
            DifferenceKind::Missing => "not on the target".into(),
            DifferenceKind::Extra => "not on the source".into(),
            DifferenceKind::Undecided => "changes too often to be compared".into(),
            DifferenceKind::Count { hash, source, target } => {
                format!("rows with hash {hash:016x}: {source} on the source, {target} on the target")
            }
        };
        let (what, details) = (difference.what.name(), printable(&details));
        writeln!(out, "{name:table_width$}  {key:key_width$}  {what:9}  {details}")?;
        if show_values {
            print_values(out, difference)?;
        }
    }
    if report.differences.len() > shown.len() {
        let more = report.differences.len() - shown.len();
        writeln!(out, "and {more} more; --output json prints all")?;
    }
    let CheckReport { tables, rows, differences, elapsed, .. } = report;
    let verdict = match (differences.len(), report.is_equal()) {
        (_, true) => "all the same".to_owned(),
        (0, false) => "rows that could be compared are the same".to_owned(),
        (count, _) => counted(count as u64, "difference"),
    };
    let (rows, tables) = (counted(*rows, "row"), counted(*tables, "table"));
    writeln!(out, "compared {rows} of {tables} in {:.1} s: {verdict}", elapsed.as_secs_f64())
}

fn key_text(difference: &RowDifference) -> String {
    let parts: Vec<_> = difference.key.iter().map(|literal| literal.0.as_str()).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn print_values(out: &mut impl Write, difference: &RowDifference) -> io::Result<()> {
    let Some(values) = &difference.values else { return Ok(()) };
    for (index, column) in values.columns.iter().enumerate() {
        let of = |version: &RowVersion| {
            let row = version.as_ref()?;
            Some(row.get(index)?.as_deref().map_or_else(|| "NULL".to_owned(), value_text))
        };
        let (source, target) = (of(&values.source), of(&values.target));
        if source != target {
            let text = |value: Option<String>| value.unwrap_or_else(|| "no row".to_owned());
            let [source, target] = [source, target].map(text);
            writeln!(
                out,
                "    {}: {} on the source, {} on the target",
                printable(column),
                printable(&source),
                printable(&target)
            )?;
        }
    }
    Ok(())
}

/// Returns a value as it is if it is valid text, else in hexadecimal.
fn value_text(value: &[u8]) -> String {
    match str::from_utf8(value) {
        Ok(text) if !text.chars().any(|letter| letter.is_control() && !letter.is_whitespace()) => {
            text.to_owned()
        }
        _ => value.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02X}")),
    }
}
