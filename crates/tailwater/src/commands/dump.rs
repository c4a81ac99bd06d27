//! Runs `tailwater dump`, and prints its progress and report.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::json;
use tailwater_config::Config;
use tailwater_daemon::api::jobs::JobKind;
use tailwater_daemon::jobs::job_results::JobResult;
use tailwater_daemon::jobs::job_text::counted;
use tailwater_dump::dump::omitted_objects::Omission;
use tailwater_dump::dump::{self, DumpOptions, DumpPlan, DumpReport};
use tailwater_dump::dump_folder::{DumpCompression, RowFormat};
use tailwater_tables::schema::{Selection, TableName};
use tailwater_wire::printable;

use super::channel_pause_during_snapshot::PausedChannels;
use super::client_connection_options::connect_options;
use super::command_run_as_job::JobRun;
use super::dump_location::{open_dump, shown_place};
use super::job_report_to_daemon::JobSocket;
use super::progress_display::SCHEMA_VERSION;
use super::throttle_options::throttle;
use crate::arguments::{CompressionArg, DumpArgs, FormatArg, Output};
use crate::exit_codes::Exit;

/// The destination argument that means standard output.
const STREAM: &str = "-";

/// Runs `tailwater dump`: dumps databases into a folder, or prints the plan.
///
/// # Errors
/// The error that ended the dump. The files that were finished before it remain.
pub(super) fn dump(arguments: &DumpArgs, output: Output) -> anyhow::Result<Exit> {
    let mut options = options(arguments)?;
    if arguments.place == STREAM {
        ensure!(!arguments.resume, "a dump to standard output cannot be resumed: omit --resume");
        let sql = matches!(arguments.format, None | Some(FormatArg::Sql));
        ensure!(sql, "a dump to standard output is one SQL stream: omit --format, or dump into a folder");
        let plain = matches!(arguments.compression, None | Some(CompressionArg::None));
        ensure!(plain, "a dump to standard output is not compressed: pipe it through zstd");
    }
    // Each connection needs a thread: it compresses the rows that it reads, and waits for the network or the
    // disk.
    let threads = options.connections + 1;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(async {
        if arguments.dry_run {
            let plan = dump::dry_run(&options).await?;
            return print_plan(options.connections, &plan, output);
        }
        // Shows warnings about the data, for example about tables that are not part of the snapshot.
        super::init_messages_as(output);
        options.throttle = Arc::new(throttle(&arguments.throttle, &options.connect)?);
        let paused = PausedChannels::stop(arguments).await?;
        let subject = format!("{} to {}", options.connect.endpoint, shown_place(&arguments.place));
        let config = arguments.config.as_ref().map(|config| Config::load(config)).transpose()?;
        let socket = JobSocket::of(&arguments.daemon.daemon, config.as_ref());
        let run = JobRun::start(("dumping", JobKind::Dump, subject), socket, output)?;
        if arguments.place == STREAM {
            // The dump is written to standard output, so the progress is written to standard error.
            let run = run.with_json_to_stderr();
            let out = Box::new(io::stdout());
            let work = async {
                let (progress, stop) = (Arc::clone(&run.progress), run.stop.clone());
                let dumping = dump::dump_stream(options.clone(), out, progress, stop);
                paused.until(&options.snapshot_taken, dumping).await
            };
            let report = run.show(work, result).await??;
            print_report(&report, output, &mut io::stderr())?;
        } else {
            let work = async {
                let dumping = dump::dump(options.clone(), Arc::clone(&run.progress), run.stop.clone());
                paused.until(&options.snapshot_taken, dumping).await
            };
            let report = run.show(work, result).await??;
            print_report(&report, output, &mut io::stdout())?;
        }
        Ok(Exit::Done)
    })
}

fn result(report: &DumpReport) -> JobResult {
    let chunks = report.manifest.tables.iter().flat_map(|table| &table.chunks);
    let rows = chunks.filter_map(|chunk| chunk.written).map(|chunk| chunk.rows).sum();
    let (rows, tables) = (counted(rows, "row"), counted(report.manifest.tables.len() as u64, "table"));
    JobResult::without_findings(format!("dumped {rows} of {tables}"))
}

fn options(arguments: &DumpArgs) -> anyhow::Result<DumpOptions> {
    let compression = match arguments.compression {
        Some(CompressionArg::None) => DumpCompression::None,
        Some(CompressionArg::Zstd) | None => DumpCompression::Zstd,
        Some(CompressionArg::Gzip) => DumpCompression::Gzip,
    };
    if let Some(level) = arguments.compression_level.filter(|_| compression != DumpCompression::None) {
        let max = compression.level_max();
        ensure!(level <= max, "--compression-level {level}: this compression has levels from 1 to {max}");
    }
    Ok(DumpOptions {
        selection: selection(&arguments.database, &arguments.table, &arguments.exclude_table)?,
        connections: usize::from(arguments.workers),
        compression,
        rows: match arguments.format {
            Some(FormatArg::Tsv) | None => RowFormat::Tsv,
            Some(FormatArg::Sql) => RowFormat::Sql,
            Some(FormatArg::Csv) => RowFormat::Csv,
            Some(FormatArg::Parquet) => RowFormat::Parquet,
        },
        compression_level: arguments.compression_level,
        chunk_rows_max: arguments.chunk_rows_max,
        chunk_bytes_max: arguments.chunk_bytes_max,
        lock_wait_max: Duration::from_secs(arguments.lock_wait_max_s),
        resume: arguments.resume,
        channels_stopped: arguments.pause_channel.clone(),
        accounts: arguments.users,
        files: match arguments.place.as_str() {
            STREAM => open_dump("")?,
            place => open_dump(place)?,
        },
        ..DumpOptions::new(connect_options(&arguments.server)?, "")
    })
}

/// Returns the databases and tables that the command line selects.
///
/// # Errors
/// If a table name has no database.
pub(super) fn selection(
    databases: &[String],
    tables: &[String],
    except: &[String],
) -> anyhow::Result<Selection> {
    let named = |names: &[String]| names.iter().map(|name| table_name(name)).collect::<anyhow::Result<_>>();
    Ok(Selection { schemas: databases.to_vec(), tables: named(tables)?, except: named(except)? })
}

fn table_name(name: &str) -> anyhow::Result<TableName> {
    let (schema, table) = name.split_once('.').with_context(|| format!("{name}: expected SCHEMA.TABLE"))?;
    Ok(TableName::new(schema, table))
}

pub(super) fn print_plan(workers: usize, plan: &DumpPlan, output: Output) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    match output {
        Output::Json => {
            let tables = plan.tables.iter().map(|table| {
                json!({
                    "schema": table.name.schema,
                    "table": table.name.name,
                    "key": table.key,
                    "rows_estimate": table.rows_estimate,
                    "bytes_estimate": table.bytes_estimate,
                    "in_snapshot": table.in_snapshot,
                })
            });
            let ways =
                plan.ways.iter().map(|way| json!({"method": way.method.name(), "steps": way.to_string()}));
            let line = json!({
                "schema_version": SCHEMA_VERSION,
                "event": "plan",
                "workers": workers,
                "ways": ways.collect::<Vec<_>>(),
                "tables": tables.collect::<Vec<_>>(),
            });
            writeln!(out, "{line}")?;
        }
        Output::Text => {
            writeln!(
                out,
                "{} connections with one consistent snapshot; the first method that the server allows:",
                workers
            )?;
            for way in &plan.ways {
                write!(out, "\n{way}")?;
            }
            writeln!(out, "\n{}, in this order:", counted(plan.tables.len() as u64, "table"))?;
            for table in &plan.tables {
                let key = table.key.as_ref().map_or("as a single chunk (no key)".to_owned(), |key| {
                    format!("in chunks along key {key}")
                });
                let outside = if table.in_snapshot {
                    ""
                } else {
                    ", not part of the snapshot: its storage engine has no snapshots"
                };
                let (rows, bytes) = (counted(table.rows_estimate, "row"), table.bytes_estimate);
                writeln!(out, "  {}: about {rows}, {bytes} bytes, {key}{outside}", table.name)?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Returns what a dump or copy left out, as JSON.
pub(super) fn left_out_json(left_out: &[Omission]) -> Vec<serde_json::Value> {
    left_out.iter().map(|Omission { of, what }| json!({"of": of, "what": what.name()})).collect()
}

fn print_report(report: &DumpReport, output: Output, out: &mut dyn Write) -> io::Result<()> {
    let DumpReport { manifest, method, stall, elapsed, not_in_snapshot, left_out } = report;
    let written = || manifest.tables.iter().flat_map(|table| &table.chunks).filter_map(|chunk| chunk.written);
    let (chunks, rows) = (written().count(), written().map(|chunk| chunk.rows).sum::<u64>());
    let bytes: u64 = written().map(|chunk| chunk.bytes).sum();
    let file_bytes: u64 = written().map(|chunk| chunk.file_bytes).sum();
    let points: Vec<_> =
        manifest.snapshots_used().iter().filter_map(|&number| manifest.snapshots.get(number)).collect();
    let seconds = elapsed.as_secs_f64();
    if output == Output::Json {
        let nulled = manifest.nulled().into_iter().map(|((schema, table, column), values)| {
            json!({"schema": schema, "table": table, "column": column, "values": values})
        });
        let line = json!({
            "schema_version": SCHEMA_VERSION,
            "event": "done",
            "tables": manifest.tables.len(),
            "rows": rows,
            "bytes": bytes,
            "file_bytes": file_bytes,
            "chunks": chunks,
            "snapshots": points,
            "method": method,
            "stall_ms": stall.as_secs_f64() * 1000.0,
            "not_in_snapshot": not_in_snapshot.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "left_out": left_out_json(left_out),
            "nulled": nulled.collect::<Vec<_>>(),
            "seconds": seconds,
        });
        return writeln!(out, "{line}");
    }
    writeln!(
        out,
        "dumped {} of {} in {seconds:.1} s: {bytes} bytes, {file_bytes} in {}",
        counted(rows, "row"),
        counted(manifest.tables.len() as u64, "table"),
        counted(chunks as u64, "file")
    )?;
    writeln!(out, "snapshot by {method}; writers waited {:.1} ms", stall.as_secs_f64() * 1000.0)?;
    for point in &points {
        let gtids = point.gtid_set.as_deref().unwrap_or("none");
        let file = point.binlog_file.as_deref().unwrap_or("no binlog");
        let position = point.binlog_position.map(|position| format!(":{position}")).unwrap_or_default();
        writeln!(out, "the data is as of {file}{position}, GTIDs {gtids}")?;
    }
    if points.len() > 1 {
        writeln!(out, "the dump was interrupted and resumed: its tables are from several snapshots")?;
    }
    for table in not_in_snapshot {
        writeln!(out, "{table} is not part of the snapshot: its storage engine has no snapshots")?;
    }
    for Omission { of, what } in left_out {
        writeln!(out, "left out of {}: {}", printable(of), what.words())?;
    }
    for ((schema, table, column), values) in manifest.nulled() {
        let [schema, table, column] = [schema, table, column].map(|name| printable(name));
        writeln!(out, "invalid dates were written as NULL: {values} values in {schema}.{table}.{column}")?;
    }
    Ok(())
}
