//! Compares the rows that `log cat` prints with the output of the servers' own tools, for each column type
//! and under the settings that change the form of row events.
//!
//! Each server runs the statements of `log_cat/*.sql` once per combination of settings, each time into a
//! separate binlog file. The rows that Tailwater prints of the file must equal those of `mysqlbinlog -vv` or
//! `mariadb-binlog -vv` line by line. The fixtures in `crates/wire/tests/fixtures/rows` are such files.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{BINLOG_MAGIC, EventHeader};
use tailwater_wire::event_printer::{EventLocation, EventPrinter, json_lines_output, mysqlbinlog_output};

const COMMON: &str = include_str!("log_cat/common.sql");
const MYSQL: &str = include_str!("log_cat/mysql.sql");
const MYSQL_GEOMETRY: &str = include_str!("log_cat/mysql_geometry.sql");
const MARIADB: &str = include_str!("log_cat/mariadb.sql");
const MARIADB_11: &str = include_str!("log_cat/mariadb_11.sql");

/// The combinations of server settings. Together they contain each value that changes the form of row events.
const MYSQL_SETTINGS: [[&str; 4]; 4] = [
    ["FULL", "FULL", "''", "OFF"],
    ["FULL", "FULL", "PARTIAL_JSON", "OFF"],
    ["MINIMAL", "MINIMAL", "PARTIAL_JSON", "ON"],
    ["FULL", "NOBLOB", "PARTIAL_JSON", "ON"],
];
const MARIADB_SETTINGS: [[&str; 3]; 4] = [
    ["NO_LOG", "FULL", "OFF"],
    ["MINIMAL", "MINIMAL", "ON"],
    ["FULL", "NOBLOB", "OFF"],
    ["FULL", "FULL", "ON"],
];

/// Whether the tests use every combination of settings (`TAILWATER_LONG`), not only some of them.
fn long() -> bool {
    std::env::var_os("TAILWATER_LONG").is_some()
}

fn mysql_settings() -> Vec<String> {
    let mut all = MYSQL_SETTINGS.to_vec();
    if long() {
        for metadata in ["FULL", "MINIMAL"] {
            for image in ["FULL", "MINIMAL", "NOBLOB"] {
                for options in ["''", "PARTIAL_JSON"] {
                    all.extend(["OFF", "ON"].map(|compression| [metadata, image, options, compression]));
                }
            }
        }
    }
    let text = |[metadata, image, options, compression]: [&str; 4]| {
        format!(
            "SET GLOBAL binlog_row_metadata = {metadata}; SET SESSION binlog_row_image = {image}; \
             SET SESSION binlog_row_value_options = {options}; \
             SET SESSION binlog_transaction_compression = {compression}; \
             SET SESSION binlog_rows_query_log_events = {compression};"
        )
    };
    all.into_iter().map(text).collect()
}

fn mariadb_settings(kind: ServerKind) -> Vec<String> {
    let mut all = MARIADB_SETTINGS.to_vec();
    let mut images = vec!["FULL", "MINIMAL", "NOBLOB"];
    if kind == ServerKind::Mariadb118 {
        all.push(["FULL", "FULL_NODUP", "OFF"]);
        images.push("FULL_NODUP");
    }
    if long() {
        for metadata in ["NO_LOG", "MINIMAL", "FULL"] {
            for image in &images {
                all.extend(["OFF", "ON"].map(|compression| [metadata, image, compression]));
            }
        }
    }
    let text = |[metadata, image, compression]: [&str; 3]| {
        format!(
            "SET GLOBAL binlog_row_metadata = {metadata}; SET SESSION binlog_row_image = {image}; \
             SET GLOBAL log_bin_compress = {compression}; SET GLOBAL log_bin_compress_min_len = 10; \
             SET SESSION binlog_annotate_row_events = {compression};"
        )
    };
    all.into_iter().map(text).collect()
}

async fn start(kind: ServerKind) -> Result<Server> {
    // The server needs no fsync, because no test here crashes the machine.
    let spec = ServerSpec::new(kind).name(format!("log_cat {kind}")).options(["--sync-binlog=0"]);
    Ok(Server::start(spec).await?)
}

/// Runs statements in a new database, and returns the contents of their binlog file. The file contains
/// nothing else and is closed.
async fn logged(server: &Server, settings: &str, statements: &str) -> Result<Vec<u8>> {
    server.sql("DROP DATABASE IF EXISTS tt; FLUSH BINARY LOGS").await?;
    let logs = server.sql("SHOW BINARY LOGS").await?;
    let name = logs
        .last()
        .and_then(|line| line.split('\t').next())
        .context("SHOW BINARY LOGS lists no file")?
        .to_owned();
    let statements = format!(
        "SET SESSION binlog_format = ROW; SET NAMES utf8mb4; {settings}\nCREATE DATABASE tt; USE tt;\n{statements}"
    );
    server.sql(&statements).await.with_context(|| format!("the statements fail with {settings}"))?;
    server.sql("FLUSH BINARY LOGS").await?;
    let path = server.data().join(name);
    std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns what a printer writes for all events of a binlog file.
fn printed(printer: &mut dyn EventPrinter, file: &[u8]) -> Result<Vec<u8>> {
    let (mut out, mut offset) = (Vec::new(), BINLOG_MAGIC.len());
    while offset < file.len() {
        let length = EventHeader::parse(&file[offset..])?.event_length as usize;
        let event =
            file.get(offset..offset + length).context("the last event of the binlog file is cut short")?;
        let place = EventLocation { file: "log_cat", offset: offset as u64 };
        printer
            .event(place, event, &mut out)
            .with_context(|| format!("cannot print the event at offset {offset}"))?;
        offset += length;
    }
    Ok(out)
}

/// Returns the output of the server's own tool. An installation of the newest MariaDB may lack the tool. Then
/// the tool of the older MariaDB is used, whose output is the same.
fn printed_by_tool(server: &Server, file: &Path) -> Result<Option<Vec<u8>>> {
    let name = match server.kind().flavour() {
        Flavour::MySql => "mysqlbinlog",
        Flavour::MariaDb => "mariadb-binlog",
    };
    let mut command = match server.tool(name) {
        Ok(command) => command,
        Err(_) => match require(ServerKind::Mariadb1011) {
            Some(install) => install.tool(name)?,
            None => return Ok(None),
        },
    };
    let output = command.args(["--no-defaults", "-vv", "--base64-output=decode-rows"]).arg(file).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{name} has failed: {complaint}");
    Ok(Some(output.stdout))
}

fn row_lines(text: &[u8]) -> Vec<&[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"###")).collect()
}

/// Compares the printed rows of a binlog file with the output of the server's own tool. Returns the number of
/// equal lines.
pub fn compare_with_tool(server: &Server, file: &[u8], what: &str) -> Result<usize> {
    let ours = printed(&mut mysqlbinlog_output::TextPrinter::new(), file)?;
    let copy = tempfile::NamedTempFile::new()?;
    std::fs::write(copy.path(), file)?;
    let Some(theirs) = printed_by_tool(server, copy.path())? else { return Ok(0) };
    let (ours, theirs) = (row_lines(&ours), row_lines(&theirs));
    for (number, (our, their)) in ours.iter().zip(&theirs).enumerate() {
        ensure!(
            our == their,
            "{what}: line {number} of the rows differs\n    Tailwater: {}\nserver's tool: {}",
            String::from_utf8_lossy(our),
            String::from_utf8_lossy(their)
        );
    }
    ensure!(
        ours.len() == theirs.len(),
        "{what}: Tailwater prints {} lines, the server's tool {}",
        ours.len(),
        theirs.len()
    );
    Ok(ours.len())
}

/// A changed row in the JSON output, without column names.
#[derive(Debug, PartialEq)]
struct JsonRow {
    event: String,
    table: String,
    before: Vec<Value>,
    after: Vec<Value>,
}

/// Returns the changed rows of a binlog file.
fn json_rows(file: &[u8]) -> Result<Vec<JsonRow>> {
    let values = |image: &Value| -> Vec<Value> {
        image.as_object().map(|object| object.values().cloned().collect()).unwrap_or_default()
    };
    let mut rows = Vec::new();
    let lines = printed(&mut json_lines_output::JsonPrinter::new(), file)?;
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: Value =
            serde_json::from_slice(line).with_context(|| String::from_utf8_lossy(line).into_owned())?;
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        if matches!(line["event"].as_str(), Some("insert" | "update" | "delete")) {
            let (before, after) = (values(&line["before"]), values(&line["after"]));
            rows.push(JsonRow { event: text("event"), table: text("table"), before, after });
        }
    }
    Ok(rows)
}

async fn mariadb(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = start(kind).await?;
    let mut statements = format!("{COMMON}\n{MARIADB}");
    if kind == ServerKind::Mariadb118 {
        statements.push_str(MARIADB_11);
    }
    for settings in mariadb_settings(kind) {
        let file = logged(&server, &settings, &statements).await?;
        let lines = compare_with_tool(&server, &file, &settings)?;
        ensure!(lines > 1000, "only {lines} lines of rows were compared with {settings}");
        ensure!(json_rows(&file)?.len() > 100);
    }
    Ok(())
}

#[tokio::test]
async fn log_cat_prints_rows_as_mariadb_1011_does() -> Result<()> {
    mariadb(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn log_cat_prints_rows_as_mariadb_118_does() -> Result<()> {
    if is_skipped_in_ci("capture::log_cat::log_cat_prints_rows_as_mariadb_118_does", "the same test on 10.11")
    {
        return Ok(());
    }
    mariadb(ServerKind::Mariadb118).await
}

#[tokio::test]
async fn log_cat_prints_rows_as_mysql_97_does() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = start(kind).await?;
    let statements = format!("{COMMON}\n{MYSQL}");
    let mut rows = Vec::new();
    let all_settings = mysql_settings();
    for settings in &all_settings {
        let file = logged(&server, settings, &statements).await?;
        let lines = compare_with_tool(&server, &file, settings)?;
        ensure!(lines > 1000, "only {lines} lines of rows were compared with {settings}");
        rows.push(json_rows(&file)?);
    }
    // With the second combination of settings, the server logs only the changed parts of JSON documents. The
    // resulting rows are the same.
    ensure!(
        rows[0].len() > 100 && rows[0].len() == rows[1].len(),
        "the two settings must give the same number of rows above 100, but give {} and {}",
        rows[0].len(),
        rows[1].len()
    );
    for (whole, partial) in rows[0].iter().zip(&rows[1]) {
        ensure!(
            whole == partial,
            "a row differs\nlogged as a whole document: {whole:?}\nlogged as a partial update: {partial:?}"
        );
    }

    // `mysqlbinlog` fails at GEOMETRY columns, so the printed values are compared with the inserted ones.
    let geometry = logged(&server, &all_settings[0], MYSQL_GEOMETRY).await?;
    let rows = json_rows(&geometry)?;
    let point = serde_json::json!({"base64": "AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA=="});
    ensure!(
        rows[0].after[1] == point && rows[0].after.contains(&Value::from("a")),
        "a printed geometry value is wrong: {:?}",
        rows[0]
    );
    ensure!(printed(&mut mysqlbinlog_output::TextPrinter::new(), &geometry)?.len() > 1000);
    Ok(())
}
