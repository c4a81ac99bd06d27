//! Dumps tables as Parquet, reads the files with the Parquet library, and compares the values with those of
//! the server.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use chrono::{DateTime, Days, NaiveDate};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use tailwater_dump::dump_folder::dump_file_names::JOURNAL;
use tailwater_dump::dump_folder::{
    ColumnEntry, DumpCompression, DumpFolder, JournalEntry, Manifest, RowFormat, TableEntry,
};
use tailwater_dump::load::tailwater_folder;
use tailwater_dump::{DumpOptions, dump};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;
use tailwater_tables::chunker::chunk_queries::SESSION_SETTINGS;
use tailwater_tables::{BulkError, BulkProgress};
use tailwater_wire::sql_quote::{qualified_name, quote_identifier};
use tokio_util::sync::CancellationToken;

use crate::manifest_files::{read_manifest, write_manifest};
use crate::server_contents::started;
use crate::source_of_every_column_type::source;
use crate::stock_client::run_script;

on_each_server!(
    every_value_equals_the_result_of_a_query,
    invalid_dates_are_null_and_reported,
    row_groups_are_limited_by_bytes,
    a_changed_file_is_dumped_again,
);

type Rows = Vec<Vec<Option<String>>>;

async fn dumped(server: &Server, folder: &Path, options: DumpOptions) -> Result<Manifest> {
    let files = DumpOptions::new(server.connect_options(), folder).files;
    let options = DumpOptions { files, rows: RowFormat::Parquet, ..options };
    let report = dump(options, Arc::new(BulkProgress::default()), CancellationToken::new()).await?;
    ensure!(report.manifest.is_complete() && report.manifest == read_manifest(folder)?);
    Ok(report.manifest)
}

fn options(server: &Server) -> DumpOptions {
    DumpOptions::new(server.connect_options(), "")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Converts a value from the Parquet reader to the text that [`select_expression`] selects on the server.
fn field_text(field: &Field) -> Result<Option<String>> {
    Ok(Some(match field {
        Field::Null => return Ok(None),
        Field::Byte(number) => number.to_string(),
        Field::Short(number) => number.to_string(),
        Field::Int(number) => number.to_string(),
        Field::Long(number) => number.to_string(),
        Field::UByte(number) => number.to_string(),
        Field::UShort(number) => number.to_string(),
        Field::UInt(number) => number.to_string(),
        Field::ULong(number) => number.to_string(),
        Field::Float(number) => format!("{:e}", f64::from(*number)),
        Field::Double(number) => format!("{number:e}"),
        Field::Decimal(decimal) => {
            let bytes = decimal.data();
            let filling = if bytes[0] & 0x80 == 0 { 0 } else { 0xff };
            let mut whole = [filling; 16];
            whole[16 - bytes.len()..].copy_from_slice(bytes);
            format!("{} E-{}", i128::from_be_bytes(whole), decimal.scale())
        }
        Field::Str(text) => hex(text.as_bytes()),
        Field::Bytes(bytes) => hex(bytes.data()),
        Field::Date(days) => {
            let days = Days::new(u64::try_from(days + 719_162)?);
            let date = NaiveDate::from_ymd_opt(1, 1, 1).and_then(|first| first.checked_add_days(days));
            date.context("the date is out of range")?.format("%Y-%m-%d").to_string()
        }
        Field::TimestampMicros(micros) => {
            let moment = DateTime::from_timestamp_micros(*micros).context("the time is out of range")?;
            moment.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
        }
        other => bail!("the Parquet reader returned a value of an unexpected type: {other:?}"),
    }))
}

/// Returns the expression that selects a column's value on the server for the comparison.
fn select_expression(ColumnEntry { name, data_type }: &ColumnEntry) -> String {
    let name = quote_identifier(name);
    // A date is not valid if it changes when it is converted to days and back.
    let if_day = |text: &str| format!("IF(DATE({name}) = FROM_DAYS(TO_DAYS({name})), {text}, NULL)");
    match data_type.as_str() {
        "float" => format!("{name} * 1.0e0"),
        "bit" => format!("{name} + 0"),
        "date" => if_day(&format!("DATE_FORMAT({name}, '%Y-%m-%d')")),
        "datetime" | "timestamp" => if_day(&format!("DATE_FORMAT({name}, '%Y-%m-%d %H:%i:%s.%f')")),
        "time" => format!(
            "IF(LEFT(CAST({name} AS CHAR), 1) = '-', -1, 1) * \
             (((HOUR({name}) * 60 + MINUTE({name})) * 60 + SECOND({name})) * 1000000 + MICROSECOND({name}))"
        ),
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" | "decimal" | "double" => name,
        "json" | "uuid" | "inet4" | "inet6" => format!("HEX(CAST({name} AS CHAR CHARACTER SET utf8mb4))"),
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set" => {
            format!("HEX(CONVERT({name} USING utf8mb4))")
        }
        _ => format!("HEX({name})"),
    }
}

/// Converts a number of the server to the format of [`field_text`].
fn number(data_type: &str, text: &str, is_text: bool) -> Result<String> {
    Ok(match data_type {
        "float" | "double" => format!("{:e}", text.parse::<f64>()?),
        "decimal" if is_text => hex(text.as_bytes()),
        "decimal" => {
            let scale = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
            format!("{} E-{scale}", text.replace('.', "").parse::<i128>()?)
        }
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" | "bit" | "time" => {
            text.parse::<i128>()?.to_string()
        }
        _ => text.to_owned(),
    })
}

/// Returns the rows of a table's files, sorted.
fn rows_of(folder: &Path, entry: &TableEntry) -> Result<Rows> {
    let mut rows = Vec::new();
    for chunk in &entry.chunks {
        let path = folder.join(&chunk.file);
        let written = chunk.written.context("the manifest has a chunk that is not written")?;
        let bytes = std::fs::read(&path)?;
        ensure!((bytes.len() as u64, crc32fast::hash(&bytes)) == (written.file_bytes, written.crc32));
        let reader = SerializedFileReader::new(File::open(&path)?)?;
        let groups: i64 = reader.metadata().row_groups().iter().map(|group| group.num_rows()).sum();
        ensure!(
            u64::try_from(groups)? == written.rows,
            "the row groups of {} have {groups} rows in total, which differs from the manifest",
            chunk.file
        );
        let names = reader.metadata().file_metadata().schema_descr().columns().to_vec();
        let names: Vec<_> = names.iter().map(|column| column.name()).collect();
        let wanted: Vec<_> = entry.columns.iter().map(|column| &*column.name).collect();
        ensure!(names == wanted, "the file does not have the columns of the manifest, but {names:?}");
        for row in reader {
            let row = row?;
            rows.push(row.get_column_iter().map(|(_, field)| field_text(field)).collect::<Result<Vec<_>>>()?);
        }
    }
    rows.sort();
    Ok(rows)
}

async fn rows_on(connection: &mut Connection, entry: &TableEntry, long_decimals: bool) -> Result<Rows> {
    let list: Vec<_> = entry.columns.iter().map(select_expression).collect();
    let sql = format!("SELECT {} FROM {}", list.join(", "), qualified_name(&entry.schema, &entry.table));
    let mut rows = Vec::new();
    for row in &connection.query(&sql).await?.rows {
        let value = |(index, column): (usize, &ColumnEntry)| {
            let text = row.get_str(index);
            text.map(|text| number(&column.data_type, text, long_decimals)).transpose()
        };
        rows.push(entry.columns.iter().enumerate().map(value).collect::<Result<Vec<_>>>()?);
    }
    rows.sort();
    Ok(rows)
}

async fn compare(server: &Server, folder: &Path, manifest: &Manifest) -> Result<()> {
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection.execute(SESSION_SETTINGS).await?;
    for entry in &manifest.tables {
        // This table has a DECIMAL of 65 digits.
        let found = rows_of(folder, entry)?;
        let wanted = rows_on(&mut connection, entry, entry.table == "numbers").await?;
        ensure!(
            found.len() == wanted.len(),
            "the files of table {} have {} rows, which differs from the server",
            entry.table,
            found.len()
        );
        for (found, wanted) in found.iter().zip(&wanted) {
            let differ = found.iter().zip(wanted).find(|(found, wanted)| found != wanted);
            ensure!(differ.is_none(), "rows of {} differ: {differ:?}", entry.table);
        }
    }
    Ok(())
}

/// Rows with special values that the other tables of this test do not contain.
const SPECIAL_VALUES: &str = "
CREATE DATABASE edges CHARACTER SET utf8mb4; USE edges; SET NAMES utf8mb4; SET time_zone = '+00:00';
CREATE TABLE decimals (a DECIMAL(9,9) NOT NULL, b DECIMAL(10,0), c DECIMAL(18,4), d DECIMAL(19,2) UNSIGNED, e DECIMAL(38,10),
    f DECIMAL(1,0) UNSIGNED ZEROFILL);
INSERT INTO decimals VALUES
    (-0.999999999, -9999999999, -99999999999999.9999, 0, -9999999999999999999999999999.9999999999, 7),
    (0.999999999, 9999999999, 99999999999999.9999, 99999999999999999.99, 9999999999999999999999999999.9999999999, 0),
    (0, NULL, -0.0001, 0.01, -0.0000000001, NULL);
CREATE TABLE integers (a SMALLINT NOT NULL, b SMALLINT UNSIGNED, c MEDIUMINT UNSIGNED, d INT NOT NULL, e INT UNSIGNED NOT NULL);
INSERT INTO integers VALUES (-32768, 65535, 16777215, -2147483648, 4294967295), (32767, 0, NULL, 2147483647, 0);
CREATE TABLE moments (d DATE, dt DATETIME(6) NOT NULL, ts TIMESTAMP(6) NULL, t TIME(6) NOT NULL);
INSERT INTO moments VALUES ('0001-01-01', '0001-01-01 00:00:00.000001', '1970-01-01 00:00:01', '-838:59:59'),
    ('9999-12-31', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.999999', '838:59:58.999999'),
    ('1582-10-10', '1582-10-04 12:00:00', NULL, '-00:00:00.000001'), ('1969-12-31', '1969-12-31 23:59:59.999999', '2024-02-29 00:00:00', '23:59:59');
CREATE TABLE only_computed (a INT AS (1) VIRTUAL, b INT AS (2) VIRTUAL);
INSERT INTO only_computed VALUES (), (), ();
";

async fn every_value_equals_the_result_of_a_query(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = source(kind).await?;
    run_script(&source, SPECIAL_VALUES.as_bytes())?;
    let folder = tempfile::tempdir()?;
    for compression in [DumpCompression::Zstd, DumpCompression::Gzip, DumpCompression::None] {
        let folder = folder.path().join(RowFormat::Tsv.ending(compression));
        let options = DumpOptions { compression, chunk_rows_max: 3, ..options(&source) };
        let mut manifest = dumped(&source, &folder, options).await?;
        // A table that has only generated columns still has its rows in the file.
        let computed = manifest.tables.iter().position(|entry| entry.table == "only_computed");
        let entry = manifest.tables.remove(computed.context("the manifest has no table `only_computed`")?);
        let column = ColumnEntry { name: "1".into(), data_type: "int".into() };
        let entry = TableEntry { columns: vec![column], ..entry };
        ensure!(rows_of(&folder, &entry)? == vec![vec![Some("1".to_owned())]; 3]);
        compare(&source, &folder, &manifest).await?;
        let refused = tailwater_folder::read(&folder, false);
        ensure!(
            matches!(refused, Err(BulkError::RowFormatUnsupported { format: "parquet", .. })),
            "a load of a Parquet dump was not refused: {refused:?}"
        );
    }
    Ok(())
}

async fn invalid_dates_are_null_and_reported(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = started(kind).await?;
    run_script(
        &source,
        b"CREATE DATABASE dates; USE dates; SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00';
          CREATE TABLE t (id INT PRIMARY KEY, d DATE NOT NULL, dt DATETIME NOT NULL, ts TIMESTAMP NOT NULL DEFAULT 0, good DATE NOT NULL);
          INSERT INTO t VALUES (1, '0000-00-00', '2020-02-31 01:02:03', 0, '2020-02-29'), (2, '2020-00-00', '2020-01-01 01:02:03', 0, '2020-02-29'),
            (3, '2020-02-31', '0000-00-00', '2020-01-01 00:00:00', '2020-02-29'), (4, '2020-01-01', '2020-01-01', 0, '2020-02-29')",
    )?;
    let folder = tempfile::tempdir()?;
    let options = DumpOptions { chunk_rows_max: 2, ..options(&source) };
    let manifest = dumped(&source, folder.path(), options).await?;
    let nulled: Vec<_> = manifest.nulled().into_iter().collect();
    ensure!(
        nulled == [(("dates", "t", "d"), 3), (("dates", "t", "dt"), 2), (("dates", "t", "ts"), 3)],
        "the numbers of values that became NULL are wrong: {nulled:?}"
    );
    compare(&source, folder.path(), &manifest).await
}

async fn row_groups_are_limited_by_bytes(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = Server::start(ServerSpec::new(kind).option("--max-allowed-packet=64M")).await?;
    run_script(
        &source,
        b"CREATE DATABASE big; CREATE TABLE big.t (id INT PRIMARY KEY, v LONGTEXT CHARACTER SET latin1);
          INSERT INTO big.t VALUES (1, 'a'), (2, REPEAT('b', 20000000)), (3, REPEAT('c', 17000000)), (4, 'd'), (5, NULL);
          CREATE TABLE big.none (id INT PRIMARY KEY, v LONGTEXT)",
    )?;
    let folder = tempfile::tempdir()?;
    let manifest = dumped(&source, folder.path(), options(&source)).await?;
    for (table, rows) in [("t", vec![2, 1, 2]), ("none", vec![])] {
        let entry = manifest.tables.iter().find(|entry| entry.table == table).context(table)?;
        let (mut groups, mut values) = (Vec::new(), Vec::new());
        for chunk in &entry.chunks {
            let reader = SerializedFileReader::new(File::open(folder.path().join(&chunk.file))?)?;
            groups.extend(reader.metadata().row_groups().iter().map(|group| group.num_rows()));
            for row in reader {
                let row = row?;
                let value =
                    row.get_column_iter().last().context("a row of the Parquet file has no columns")?.1;
                values.push(match value {
                    Field::Str(text) => Some((text.len(), text.trim_start_matches(&text[..1]).is_empty())),
                    _ => None,
                });
            }
        }
        ensure!(
            entry.chunks.len() == 1 && groups == rows,
            "the row groups of {table} have the wrong numbers of rows: {groups:?}"
        );
        let same = |length| Some((length, true));
        let wanted = [same(1), same(20_000_000), same(17_000_000), same(1), None];
        ensure!(
            values == wanted[..values.len()] && values.len() as u64 == entry.rows,
            "the values in the file differ from the expected values: {values:?}"
        );
    }
    Ok(())
}

async fn a_changed_file_is_dumped_again(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = started(kind).await?;
    run_script(
        &source,
        b"CREATE DATABASE again; USE again; SET sql_mode = ''; CREATE TABLE t (id INT PRIMARY KEY, d DATE);
          INSERT INTO t VALUES (1, '0000-00-00'), (2, '2020-01-01'), (3, NULL), (4, '0000-00-00')",
    )?;
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let options = DumpOptions { chunk_rows_max: 2, ..options(&source) };
    let whole = dumped(&source, folder, options.clone()).await?;
    // Changes the folder as if the dump had been killed right after the last chunk: the journal records the
    // chunk, but the manifest does not contain it.
    let interrupt = |manifest: &Manifest| -> Result<String> {
        let mut manifest = manifest.clone();
        manifest.finished_at = None;
        let entry = &mut manifest.tables[0];
        let number = entry.chunks.len() - 1;
        let chunk = &mut entry.chunks[number];
        let line = JournalEntry::Finished {
            schema: entry.schema.clone(),
            table: entry.table.clone(),
            number: u32::try_from(number)?,
            chunk: chunk.written.take().context("the manifest has a chunk that is not written")?,
            nulled: std::mem::take(&mut chunk.nulled),
        };
        let file = chunk.file.clone();
        entry.rows = entry.chunks.iter().filter_map(|chunk| chunk.written).map(|written| written.rows).sum();
        entry.finished = false;
        write_manifest(folder, &manifest)?;
        std::fs::write(folder.join(JOURNAL), line.to_line())?;
        Ok(file)
    };
    let resumed = DumpOptions { resume: true, ..options };
    let file = folder.join(interrupt(&whole)?);
    let kept = dumped(&source, folder, resumed.clone()).await?;
    ensure!(
        kept.tables == whole.tables && kept.snapshots_used().len() == 1,
        "the finished chunk was dumped again"
    );
    interrupt(&kept)?;
    let mut bytes = std::fs::read(&file)?;
    bytes[10] ^= 1;
    std::fs::write(&file, bytes)?;
    let mended = dumped(&source, folder, resumed).await?;
    ensure!(
        mended.snapshots_used().len() == 2 && mended.nulled() == whole.nulled(),
        "the chunk with the damaged file was not dumped again as before: {mended:?}"
    );
    ensure!(DumpFolder::read(folder)? == mended);
    compare(&source, folder, &mended).await
}
