//! Dumps for the `mysql` and `mariadb` clients and for other programs: one stream of statements, files of
//! statements, and CSV files.

use std::io::{self, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use tailwater_dump::dump::sql_stream_dump::END;
use tailwater_dump::dump_folder::{DumpCompression, RowFormat};
use tailwater_dump::load::tailwater_folder;
use tailwater_dump::{DumpOptions, dump, dump_stream};
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_tables::{BulkError, BulkProgress};
use tokio_util::sync::CancellationToken;

use crate::manifest_files::read_manifest;
use crate::server_contents::{all, ensure_equal, started};
use crate::source_of_every_column_type::source;
use crate::stock_client::{client, run_script};

on_each_server!(
    a_stream_loads_in_one_pass,
    files_of_statements_load_one_by_one,
    csv_is_readable_by_other_programs,
    a_dump_waits_for_a_slow_reader,
);

/// A writer that collects a dump stream in memory. It accepts a limited number of bytes until the limit is
/// removed.
#[derive(Clone)]
struct Reader {
    taken: Arc<Mutex<Vec<u8>>>,
    limit: Arc<AtomicUsize>,
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while self.bytes().len() >= self.limit.load(SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.taken.lock().map_err(|_| io::Error::other("poisoned"))?.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Reader {
    fn new(limit: usize) -> Self {
        Self { taken: Arc::default(), limit: Arc::new(AtomicUsize::new(limit)) }
    }

    fn bytes(&self) -> Vec<u8> {
        self.taken.lock().map(|taken| taken.clone()).unwrap_or_default()
    }
}

/// Runs a script with the stock client in its default mode. The files must be loadable without
/// `--binary-mode`.
fn pipe_into(server: &Server, script: Vec<u8>) -> Result<()> {
    let mut command = client(server)?;
    command.arg("--skip-binary-mode");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("the client has no standard input")?;
    let writing = std::thread::spawn(move || stdin.write_all(&script));
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the client has failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(writing.join().map_err(|_| anyhow::anyhow!("the thread that writes to the client failed"))??)
}

async fn a_stream_loads_in_one_pass(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = source(kind).await?;
    let reader = Reader::new(usize::MAX);
    let options = DumpOptions { chunk_rows_max: 2, ..DumpOptions::new(source.connect_options(), "") };
    let out = Box::new(reader.clone());
    let report = dump_stream(options, out, Arc::default(), CancellationToken::new()).await?;
    let script = reader.bytes();
    let last = script.trim_ascii_end().rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
    let rows: u64 = report.manifest.tables.iter().map(|table| table.rows).sum();
    let wanted = format!("{END}{rows} rows of {} tables", report.manifest.tables.len());
    ensure!(
        last == wanted.as_bytes(),
        "the last line of the stream is wrong: {}",
        String::from_utf8_lossy(last)
    );
    let target = started(kind).await?;
    pipe_into(&target, script)?;
    ensure_equal(&all(&source).await?, &all(&target).await?)
}

async fn dumped(server: &Server, rows: RowFormat, compression: DumpCompression) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let options = DumpOptions::new(server.connect_options(), folder.path());
    let options = DumpOptions { rows, compression, chunk_rows_max: 3, ..options };
    dump(options, Arc::new(BulkProgress::default()), CancellationToken::new()).await?;
    Ok(folder)
}

async fn files_of_statements_load_one_by_one(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = source(kind).await?;
    let folder = dumped(&source, RowFormat::Sql, DumpCompression::Zstd).await?;
    let refused = tailwater_folder::read(folder.path(), false);
    ensure!(
        matches!(refused, Err(BulkError::RowFormatUnsupported { format: "sql", .. })),
        "a load of an SQL dump was not refused: {refused:?}"
    );
    let manifest = read_manifest(folder.path())?;
    let target = started(kind).await?;
    let read = |file: &str| std::fs::read(folder.path().join(file));
    for schema in &manifest.schemas {
        run_script(&target, &read(&schema.file)?)?;
    }
    let (sequences, objects): (Vec<_>, Vec<_>) =
        manifest.objects.iter().partition(|object| object.kind.name() == "sequence");
    for object in sequences {
        run_script(&target, &read(&object.file)?)?;
    }
    for table in &manifest.tables {
        run_script(&target, &read(&table.file)?)?;
        for chunk in &table.chunks {
            ensure!(
                chunk.file.ends_with(".sql.zst"),
                "the data file does not end in .sql.zst: {}",
                chunk.file
            );
            let script = zstd::decode_all(&read(&chunk.file)?[..])?;
            let written = chunk.written.context("the manifest has a chunk that is not written")?;
            ensure!((script.len() as u64, crc32fast::hash(&script)) == (written.bytes, written.crc32));
            pipe_into(&target, script)?;
        }
    }
    for object in objects {
        run_script(&target, &read(&object.file)?)?;
    }
    ensure_equal(&all(&source).await?, &all(&target).await?)
}

async fn csv_is_readable_by_other_programs(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = started(kind).await?;
    run_script(
        &source,
        b"CREATE DATABASE csv; CREATE TABLE csv.t (id INT PRIMARY KEY, l VARCHAR(20) CHARACTER SET latin1, b VARBINARY(9),
            d DATETIME, e ENUM('\xc3\xa4') CHARACTER SET utf16, `odd \"n` DOUBLE);
          SET NAMES utf8mb4; SET sql_mode = '';
          INSERT INTO csv.t VALUES (1, 'a\"b,\xc3\xbc', x'00FF', '2026-01-02 03:04:05', 1, 0.5), (2, NULL, '', NULL, NULL, NULL), (3, '', NULL, 0, '', -1)",
    )?;
    let folder = dumped(&source, RowFormat::Csv, DumpCompression::None).await?;
    let text = std::fs::read_to_string(folder.path().join("csv.t.000000.csv"))?;
    let wanted = "\"id\",\"l\",\"b\",\"d\",\"e\",\"odd \"\"n\"\r\n\
        1,\"a\"\"b,\u{fc}\",\"00FF\",\"2026-01-02 03:04:05\",\"\u{e4}\",0.5\r\n\
        2,,\"\",,,\r\n\
        3,\"\",,\"0000-00-00 00:00:00\",\"\",-1\r\n";
    ensure!(text == wanted, "the CSV file does not have the expected contents: {text}");
    Ok(())
}

async fn a_dump_waits_for_a_slow_reader(kind: ServerKind) -> Result<()> {
    const LIMIT: usize = 1 << 20;
    if require(kind).is_none() {
        return Ok(());
    }
    let source = started(kind).await?;
    run_script(
        &source,
        b"CREATE DATABASE slow; CREATE TABLE slow.digits (d INT PRIMARY KEY);
          INSERT INTO slow.digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
          CREATE TABLE slow.t (id INT PRIMARY KEY, v VARCHAR(1000));
          INSERT INTO slow.t SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d, REPEAT('x', 1000)
            FROM slow.digits a, slow.digits b, slow.digits c, slow.digits e",
    )?;
    let reader = Reader::new(LIMIT);
    let (progress, cancel) = (Arc::new(BulkProgress::default()), CancellationToken::new());
    let options = DumpOptions { connections: 2, ..DumpOptions::new(source.connect_options(), "") };
    let dumping = {
        let (out, progress, cancel) = (Box::new(reader.clone()), progress.clone(), cancel.clone());
        // A write to a reader that has stopped reading blocks its thread. So the dump needs several threads.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
        std::thread::spawn(move || runtime.block_on(dump_stream(options, out, progress, cancel)))
    };
    while reader.bytes().len() < LIMIT && !dumping.is_finished() {
        tokio::task::yield_now().await;
    }
    // The table has ten megabytes of rows. The dump must not read more of them than fit into the buffers of
    // the connections.
    let mut seen = (progress.figures().rows, reader.bytes().len());
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let now = (progress.figures().rows, reader.bytes().len());
        if now == seen {
            break;
        }
        seen = now;
    }
    ensure!(
        seen.0 < 10_000 && !dumping.is_finished(),
        "the dump has read too many rows, or has ended: {seen:?}"
    );
    ensure!(seen.0 * 1000 < seen.1 as u64 + 2 * (1 << 20), "the dump has buffered too many rows: {seen:?}");
    cancel.cancel();
    reader.limit.store(usize::MAX, SeqCst);
    let outcome = dumping.join().map_err(|_| anyhow::anyhow!("the thread of the dump has panicked"))?;
    ensure!(
        matches!(outcome, Err(BulkError::StreamInterrupted)),
        "the dump was not interrupted: {outcome:?}"
    );
    let text = reader.bytes();
    ensure!(
        !text.windows(END.len()).any(|window| window == END.as_bytes()),
        "the interrupted stream ends with the line of a complete stream"
    );
    Ok(())
}
