//! Loads dump folders that other tools wrote.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tailwater_dump::load::{DumpContents, LoadOptions, LoadReport, dump_format_detection, load};
use tailwater_files::file_store::LocalFiles;
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_tables::{BulkError, BulkProgress};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::server_contents::{all, ensure_equal, started};
use crate::stock_client::run_script;

on_each_server!(dumps_of_mydumper_are_loaded);

const SCRIPT: &str = r#"
CREATE DATABASE `sh-op` CHARACTER SET latin1; USE `sh-op`;
CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50), b BLOB, bi BIT(9), g INT AS (id * 2) STORED, p POINT, c TEXT CHARACTER SET utf16, d DATETIME,
    ts TIMESTAMP NULL);
SET time_zone = '+03:00';
INSERT INTO t (id, v, b, bi, p, c, d, ts) VALUES (1, 'a\\b\'c\nd;\n-- x "y" /* z', x'00FF0A0D1A275C223B', b'100000011', POINT(1, 2), 'ж;', '2024-01-02 03:04:05', '2024-01-02 03:04:05'),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (3, '', '', 0, NULL, '', NULL, NULL);
CREATE TABLE many (id INT PRIMARY KEY, v VARCHAR(100));
CREATE TABLE `a.b` (x INT); INSERT INTO `a.b` VALUES (1), (2);
CREATE TABLE nothing (x INT);
CREATE VIEW v AS SELECT id FROM t;
CREATE VIEW a AS SELECT id FROM v;
DELIMITER //
CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW BEGIN
  SET @a = 1; SET @b = 2;
END//
CREATE PROCEDURE p() BEGIN
  SELECT 'x;
';
  SELECT 2;
END//
CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1//
DELIMITER ;
"#;

async fn source(kind: ServerKind) -> Result<Server> {
    let server = started(kind).await?;
    run_script(&server, SCRIPT.as_bytes())?;
    let rows: Vec<_> = (0..3000).map(|row| format!("({row}, REPEAT(CHAR(65 + {row} % 26), 90))")).collect();
    server.sql(&format!("INSERT INTO `sh-op`.many VALUES {}", rows.join(","))).await?;
    Ok(server)
}

fn contents(folder: &Path) -> Result<DumpContents, BulkError> {
    dump_format_detection::read(Arc::new(LocalFiles::new(folder)), false)
}

async fn load_all(contents: &DumpContents, options: &LoadOptions) -> Result<LoadReport, BulkError> {
    load(contents, options, &Arc::default(), &CancellationToken::new()).await
}

/// Runs mydumper. Returns `None` if mydumper is not installed.
fn mydumper(server: &Server, folder: &Path, more: &[&str]) -> Result<Option<()>> {
    let mut command = Command::new("mydumper");
    command.args(["--host=127.0.0.1", "--user=root", "--database=sh-op", "--triggers", "--routines"]);
    command.arg(format!("--port={}", server.port())).args(more).arg("--outputdir").arg(folder);
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        output => output?,
    };
    ensure!(output.status.success(), "mydumper has failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(Some(()))
}

async fn dumps_of_mydumper_are_loaded(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = source(kind).await?;
    if kind.flavour() == Flavour::MySql {
        // mydumper 0.10 writes the routines of current servers without their character sets. So the routines
        // are dropped before the dump.
        source.sql("DROP FUNCTION `sh-op`.f; DROP PROCEDURE `sh-op`.p").await?;
    }
    let folder = tempfile::tempdir()?;
    for (name, more) in
        [("plain", &["--rows=500"][..]), ("packed", &["--compress", "--statement-size=2000"][..])]
    {
        let folder = folder.path().join(name);
        if mydumper(&source, &folder, more)?.is_none() {
            eprintln!("mydumper is not installed: test skipped");
            return Ok(());
        }
        let contents = contents(&folder)?;
        let target = started(kind).await?;
        let options = LoadOptions { workers: 2, ..LoadOptions::new(target.connect_options()) };
        // The load is interrupted in the middle, and resumed.
        let (progress, stop) = (Arc::new(BulkProgress::default()), CancellationToken::new());
        let stopping = {
            let (progress, stop) = (progress.clone(), stop.clone());
            tokio::spawn(async move {
                while progress.figures().chunks < 2 {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                stop.cancel();
            })
        };
        let stopped = load(&contents, &options, &progress, &stop).await;
        stopping.abort();
        if stopped.is_err() {
            let again = load_all(&contents, &options).await;
            ensure!(
                matches!(again, Err(BulkError::InterruptedLoad { .. })),
                "a second load without `resume` was not refused: {again:?}"
            );
        }
        let report = load_all(&contents, &LoadOptions { resume: true, ..options.clone() }).await?;
        ensure!(report.chunks_before > 0, "the resumed load found no files of the earlier load: {report:?}");
        ensure_equal(&all(&source).await?, &all(&target).await?)?;
        let again = load_all(&contents, &options).await;
        ensure!(
            matches!(again, Err(BulkError::TablesExist { .. })),
            "a load into existing tables was not refused: {again:?}"
        );
        if kind.flavour() == Flavour::MariaDb {
            let point = contents.point.context("the dump records no binlog position")?;
            ensure!(
                point.gtid_set.is_some() && point.binlog_position.is_some(),
                "the dump records no GTIDs or no binlog position: {point:?}"
            );
        }
    }
    // With this option, mydumper does not record the time zone of TIMESTAMP values.
    let zoned = folder.path().join("zoned");
    mydumper(&source, &zoned, &["--skip-tz-utc"])?.context("mydumper is not installed any more")?;
    let refused = contents(&zoned);
    let is_expected = |error: &BulkError| {
        error.code() == "TW-BULK-0082" && error.to_string().contains("column ts of sh-op.t is a TIMESTAMP")
    };
    ensure!(
        refused.as_ref().is_err_and(is_expected),
        "a dump without time zone was not refused: {refused:?}"
    );
    // Incomplete dumps are refused.
    let plain = folder.path().join("plain");
    let rows = plain.join("sh-op.t.sql");
    let rows = if rows.exists() { rows } else { plain.join("sh-op.t.00000.sql") };
    let whole = std::fs::read(&rows)?;
    std::fs::write(&rows, &whole[..whole.len() - 20])?;
    let target = started(kind).await?;
    let torn = load_all(&contents(&plain)?, &LoadOptions::new(target.connect_options())).await;
    ensure!(
        torn.as_ref().is_err_and(|error| ["TW-BULK-0002", "TW-BULK-0028"].contains(&error.code())),
        "a load of a truncated data file was not refused: {torn:?}"
    );
    ensure!(target.sql("SELECT COUNT(*) FROM `sh-op`.t").await? == ["0"]);
    std::fs::rename(plain.join("metadata"), plain.join("metadata.partial"))?;
    let unfinished = contents(&plain);
    ensure!(
        matches!(unfinished, Err(BulkError::IncompleteDump { .. })),
        "an unfinished dump was not refused: {unfinished:?}"
    );
    Ok(())
}

/// Writes a folder like those of MySQL Shell 8.4, according to its sources.
fn shell_folder(folder: &Path) -> Result<()> {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text);
    write(
        "@.json",
        r#"{"dumper": "mysqlsh Ver 8.4.0", "version": "2.0.1", "origin": "dumpInstance", "schemas": ["s h"],
            "basenames": {"s h": "s%20h"}, "users": ["'root'@'localhost'"], "defaultCharacterSet": "utf8mb4", "tzUtc": true,
            "bytesPerChunk": 64000000, "user": "root", "hostname": "h", "server": "h", "serverVersion": "8.4.0",
            "binlogFile": "binlog.000002", "binlogPosition": 158,
            "gtidExecuted": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-23,\n4e11fa47-71ca-11e1-9e33-c80aa9429562:1",
            "gtidExecutedInconsistent": false, "consistent": true, "partialRevokes": false, "capabilities": [],
            "begin": "2026-01-01 00:00:00"}"#,
    )?;
    write("@.sql", "-- MySQLShell dump 2.0.1\n")?;
    write("@.post.sql", "-- MySQLShell dump 2.0.1\n")?;
    write(
        "s%20h.json",
        r#"{"schema": "s h", "includesDdl": true, "includesViewsDdl": true, "includesData": true, "tables": ["t", "chunked", "empty"],
            "views": ["v"], "functions": ["f"], "basenames": {"t": "s%20h@t", "chunked": "s%20h@chunked", "empty": "s%20h@empty", "v": "s%20h@v"}}"#,
    )?;
    write(
        "s%20h.sql",
        "-- MySQLShell dump 2.0.1\n\n--\n-- Dumping database 's h'\n--\n\n-- begin database `s h`\n\
         CREATE DATABASE /*!32312 IF NOT EXISTS*/ `s h` /*!40100 DEFAULT CHARACTER SET utf8mb4 */;\n-- end database `s h`\n\n\
         USE `s h`;\nDELIMITER ;;\nCREATE FUNCTION `f`() RETURNS int DETERMINISTIC\nBEGIN\n  RETURN 1;\nEND ;;\nDELIMITER ;\n",
    )?;
    let table = |definition: &str| {
        format!(
            "-- MySQLShell dump 2.0.1\n\n--\n-- Table structure\n--\n\n\
             /*!40101 SET @saved_cs_client     = @@character_set_client */;\n/*!50503 SET character_set_client = utf8mb4 */;\n\
             CREATE TABLE IF NOT EXISTS {definition};\n/*!40101 SET character_set_client = @saved_cs_client */;\n"
        )
    };
    write(
        "s%20h@t.sql",
        &table(
            "`t` (\n  `id` int NOT NULL,\n  `l` varchar(20) CHARACTER SET latin1,\n  `b` blob,\n  `h` varbinary(9),\n  `j` text,\n  PRIMARY KEY (`id`)\n)",
        ),
    )?;
    write("s%20h@chunked.sql", &table("`chunked` (\n  `id` int NOT NULL,\n  PRIMARY KEY (`id`)\n)"))?;
    write("s%20h@empty.sql", &table("`empty` (\n  `id` int\n)"))?;
    write("s%20h@v.pre.sql", "/*!50001 CREATE VIEW `v` AS SELECT 1 AS `id` */;\n")?;
    write(
        "s%20h@v.sql",
        "/*!50001 DROP VIEW IF EXISTS `v` */;\n/*!50001 CREATE VIEW `v` AS select `t`.`id` AS `id` from `t` */;\n",
    )?;
    let options = |columns: &str, decoded: &str| {
        format!(
            r#""options": {{"schema": "s h", "table": "x", "columns": [{columns}], "decodeColumns": {{{decoded}}}, "primaryIndex": "PRIMARY",
                "defaultCharacterSet": "utf8mb4", "fieldsTerminatedBy": "\t", "fieldsEnclosedBy": "", "fieldsOptionallyEnclosed": false,
                "fieldsEscapedBy": "\\", "linesTerminatedBy": "\n"}}"#
        )
    };
    let metadata = |options: String, triggers: &str, chunking: bool| {
        format!(
            r#"{{{options}, "triggers": [{triggers}], "histograms": [], "includesData": true, "includesDdl": true, "extension": "tsv.zst",
                "chunking": {chunking}, "compression": "zstd", "primaryIndex": ["id"]}}"#
        )
    };
    let columns = r#""id", "l", "b", "h", "j""#;
    let decoded = r#""b": "FROM_BASE64", "h": "UNHEX""#;
    write("s%20h@t.json", &metadata(options(columns, decoded), "\"tr\"", false))?;
    write("s%20h@chunked.json", &metadata(options("\"id\"", ""), "", true))?;
    write("s%20h@empty.json", &metadata(options("\"id\"", ""), "", true))?;
    write(
        "s%20h@t.triggers.sql",
        "-- begin trigger `s h`.`tr`\nDELIMITER ;;\n/*!50003 CREATE TRIGGER `tr` BEFORE INSERT ON `t` FOR EACH ROW BEGIN\n  SET @x = 1;\nEND */;;\nDELIMITER ;\n-- end trigger\n",
    )?;
    let rows = |name: &str, text: &str| -> Result<()> {
        std::fs::write(folder.join(name), zstd::encode_all(text.as_bytes(), 1)?)?;
        // MySQL Shell writes the uncompressed size of the data file to a file `.idx`, as a big-endian number.
        Ok(std::fs::write(folder.join(format!("{name}.idx")), (text.len() as u64).to_be_bytes())?)
    };
    rows("s%20h@t.tsv.zst", "1\tü\\tx\tAP8K\t00FF\t{\"a\": \"\\\\n\"}\n2\t\\N\t\\N\t\\N\t\\N\n")?;
    rows("s%20h@chunked@0.tsv.zst", "1\n2\n")?;
    rows("s%20h@chunked@1.tsv.zst", "3\n")?;
    rows("s%20h@chunked@@2.tsv.zst", "4\n")?;
    rows("s%20h@empty@@0.tsv.zst", "")?;
    write(
        "@.done.json",
        r#"{"end": "2026-01-01 00:00:01", "dataBytes": 40, "tableDataBytes": {"s h": {"t": 32, "chunked": 8}}}"#,
    )?;
    Ok(())
}

#[tokio::test]
async fn dumps_of_mysql_shell_are_loaded() -> Result<()> {
    for kind in [ServerKind::Mysql97, ServerKind::Mariadb118] {
        if require(kind).is_none() {
            continue;
        }
        let folder = tempfile::tempdir()?;
        shell_folder(folder.path())?;
        let contents = contents(folder.path())?;
        // MySQL Shell records the progress of its loads in the folder. Tailwater must ignore that file and
        // see the same dump.
        let noted = folder.path().join("load-progress.8a94f357-aab4-11df-86ab-c80aa9429562.json");
        std::fs::write(noted, r#"{"op":"SERVER-UUID","done":true}"#)?;
        let loaded_before = crate::dumps_of_other_tools::contents(folder.path())?;
        ensure!(
            loaded_before.id == contents.id,
            "the file of the load progress changes the dump's identifier: {} {}",
            loaded_before.id,
            contents.id
        );
        let point = contents.point.clone().context("the dump records no binlog position")?;
        ensure!(
            point.gtid_set.as_deref().is_some_and(|set| set.ends_with(":1") && !set.contains('\n')),
            "the GTID set of the dump is not read as expected: {point:?}"
        );
        let target = started(kind).await?;
        let options = LoadOptions::new(target.connect_options());
        let inserts = load_all(&contents, &LoadOptions { inserts: true, ..options.clone() }).await;
        ensure!(
            matches!(inserts, Err(BulkError::InsertsUnsupported { .. })),
            "a load with INSERT statements was not refused: {inserts:?}"
        );
        ensure!(all(&target).await?.is_empty(), "the refused load has created tables or other objects");
        load_all(&contents, &options).await?;
        let seen = target
            .sql(
                "SELECT id, HEX(l), HEX(b), HEX(h), j FROM `s h`.t ORDER BY id; SELECT SUM(id), COUNT(*) FROM `s h`.chunked; \
                 SELECT COUNT(*) FROM `s h`.empty; SELECT MAX(id) FROM `s h`.v; SELECT `s h`.f(); \
                 SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = 's h'",
            )
            .await?;
        let wanted = [
            "1\tFC0978\t00FF0A\t00FF\t{\"a\": \"\\\\n\"}",
            "2\tNULL\tNULL\tNULL\tNULL",
            "10\t4",
            "0",
            "2",
            "1",
            "1",
        ];
        ensure!(seen == wanted, "the loaded objects are not as expected: {seen:#?}");

        // A dump with TIMESTAMP values whose time zone is unknown is refused.
        let (dump, table) = (folder.path().join("@.json"), folder.path().join("s%20h@t.sql"));
        let original = std::fs::read_to_string(&dump)?;
        std::fs::write(&dump, original.replace("\"tzUtc\": true", "\"tzUtc\": false"))?;
        crate::dumps_of_other_tools::contents(folder.path())?;
        let definition = std::fs::read_to_string(&table)?;
        std::fs::write(&table, definition.replace("`j` text", "`j` timestamp"))?;
        let zoned = crate::dumps_of_other_tools::contents(folder.path());
        let is_expected = |error: &BulkError| {
            error.code() == "TW-BULK-0082" && error.to_string().contains("column j of s h.t is a TIMESTAMP")
        };
        ensure!(
            zoned.as_ref().is_err_and(is_expected),
            "a dump without time zone was not refused: {zoned:?}"
        );
        std::fs::write(&dump, original)?;
        crate::dumps_of_other_tools::contents(folder.path())?;

        // A table was removed from the list of tables. The load must report that, and must not omit the table
        // silently.
        let list = folder.path().join("s%20h.json");
        let original = std::fs::read_to_string(&list)?;
        let cut = original.replace(r#"["t", "chunked", "empty"]"#, r#"["t", "empty"]"#);
        ensure!(cut != original, "the list of tables does not contain the expected names: {original}");
        std::fs::write(&list, cut)?;
        let short = crate::dumps_of_other_tools::contents(folder.path());
        let is_expected =
            |error: &BulkError| error.to_string().contains("chunked") && error.code() == "TW-BULK-0082";
        ensure!(
            short.as_ref().is_err_and(is_expected),
            "a dump with an incomplete list of tables was not refused: {short:?}"
        );
        std::fs::write(&list, original)?;

        std::fs::remove_file(folder.path().join("s%20h@chunked@1.tsv.zst"))?;
        let missing = crate::dumps_of_other_tools::contents(folder.path());
        ensure!(
            matches!(missing, Err(BulkError::ForeignDump { .. })),
            "a dump with a missing data file was not refused: {missing:?}"
        );
        std::fs::remove_file(folder.path().join("@.done.json"))?;
        let unfinished = crate::dumps_of_other_tools::contents(folder.path());
        ensure!(
            matches!(unfinished, Err(BulkError::IncompleteDump { .. })),
            "an unfinished dump was not refused: {unfinished:?}"
        );
    }
    Ok(())
}
