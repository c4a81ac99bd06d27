//! Executes the output of `log cat --sql` on a second server with the stock client. All tables must then be
//! equal, by `CHECKSUM TABLE` and by their contents.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;

use crate::shell_session::Shell;

const COMMON: &str = include_str!("log_cat/common.sql");
const MYSQL_GEOMETRY: &str = include_str!("log_cat/mysql_geometry.sql");
const MARIADB: &str = include_str!("log_cat/mariadb.sql");
const MARIADB_11: &str = include_str!("log_cat/mariadb_11.sql");

/// JSON documents of each kind that SQL can express, and partial updates of these documents.
const MYSQL: &str = r#"
SET SESSION sql_mode = '';
CREATE TABLE docs (id INT NOT NULL PRIMARY KEY, a JSON, b JSON);
INSERT INTO docs VALUES
  (1, '{}', '[]'), (2, 'null', 'true'), (3, '0', '18446744073709551615'), (4, '1.0', '-0.0'),
  (5, '"text"', '"quote \\" back \\\\ tab \\t nul \\u0000 é 😀 it''s"'),
  (6, '[1, -32768, 65536, 9223372036854775807]', '{"b": 1, "aa": [], "": {"c": [true, null]}}'),
  (7, JSON_OBJECT('date', DATE '2015-01-15', 'time', TIME '-23:24:25.12', 'at', TIMESTAMP '2015-01-15 23:24:25.123456',
    'decimal', CAST(-123.450 AS DECIMAL(6,3)), 'u', CAST(5 AS UNSIGNED), 'é"', 1e-5, 't', 'it''s', 'n', NULL, 'b', TRUE), NULL),
  (8, JSON_ARRAY(0.1e0, 1e15, 1e16, 123456789012345.6e0, 2e0/3, 5e-324, 1.7976931348623157e308), CAST(1.5 AS JSON)),
  (9, JSON_OBJECT('long', REPEAT('x', 70000)), NULL);
UPDATE docs SET a = JSON_SET(a, '$.x', 2, '$.date', 'text') WHERE id IN (6, 7);
UPDATE docs SET a = JSON_REPLACE(a, '$.long', REPEAT('y', 65000)) WHERE id = 9;
CREATE TABLE vectors (id INT NOT NULL PRIMARY KEY, v VECTOR(3));
INSERT INTO vectors VALUES (1, STRING_TO_VECTOR('[1,2,3.5]')), (2, NULL);
CREATE TABLE multi (id INT NOT NULL PRIMARY KEY, j JSON, KEY m ((CAST(j->'$.a' AS UNSIGNED ARRAY))));
INSERT INTO multi VALUES (1, '{"a": [1, 2, 3]}');
UPDATE multi SET j = '{"a": [4]}';
"#;

/// Statements whose effect depends on settings of the session.
const STATEMENTS: &str = "
SET SESSION binlog_format = STATEMENT; SET SESSION sql_mode = 'ANSI_QUOTES,NO_AUTO_VALUE_ON_ZERO'; SET SESSION time_zone = '+03:00';
CREATE TABLE st (id INT PRIMARY KEY AUTO_INCREMENT, t TIMESTAMP(6) NULL, s VARCHAR(100) CHARACTER SET utf8mb4, n DOUBLE);
SET TIMESTAMP = 1700000000.123456; SET SESSION auto_increment_increment = 3;
INSERT INTO st (t, s, n) VALUES (NOW(6), 'naïve 😀; /* x */', RAND()), (CURRENT_TIMESTAMP, \"s\", RAND(5));
SET @v = 'grün', @i = -5, @d = 1.25, @n = NULL, @f = 1e-300;
INSERT INTO st (t, s, n) VALUES ('2024-01-01 00:00:00', CONCAT(@v, @i, @d), @f), (FROM_UNIXTIME(1), @n, LAST_INSERT_ID());
SET NAMES latin1; INSERT INTO st (s) VALUES ('\u{e9}\u{e8}'); SET NAMES utf8mb4;
SET SESSION sql_mode = '', time_zone = '+00:00', binlog_format = ROW; SET TIMESTAMP = DEFAULT;
";

fn workload(kind: ServerKind) -> String {
    let common = COMMON
        // The binlog does not mark generated columns, and a client cannot write to them. So this test
        // replaces them with ordinary columns.
        .replace(
            "g INT GENERATED ALWAYS AS (`c ``1` + 1) STORED, v INT GENERATED ALWAYS AS (`c ``1` + 2) VIRTUAL",
            "g INT, v INT",
        );
    match kind.flavour() {
        Flavour::MySql => format!("{common}\n{MYSQL}\n{MYSQL_GEOMETRY}\n{STATEMENTS}"),
        Flavour::MariaDb => {
            // These statements are omitted: versioned tables, because no client can write their history; a
            // global setting, because it applies to the whole server; and sequences. With a minimal row
            // image, the server rejects part of a sequence's row.
            let left_out = |line: &str| {
                ["versioned", "mysql56_temporal_format", "numbers"].iter().any(|word| line.contains(word))
            };
            let own: String =
                MARIADB.lines().filter(|line| !left_out(line)).map(|line| format!("{line}\n")).collect();
            let late = if kind == ServerKind::Mariadb118 { MARIADB_11 } else { "" };
            format!("{common}\n{own}\n{late}\n{STATEMENTS}")
        }
    }
}

fn settings(flavour: Flavour) -> &'static [&'static str] {
    match flavour {
        Flavour::MySql => &[
            "SET SESSION binlog_row_value_options = '';",
            "SET SESSION binlog_row_value_options = PARTIAL_JSON; SET SESSION binlog_transaction_compression = ON;",
            "SET SESSION binlog_row_value_options = ''; SET SESSION binlog_row_image = MINIMAL;",
        ],
        Flavour::MariaDb => &[
            "SET GLOBAL log_bin_compress = OFF;",
            "SET GLOBAL log_bin_compress = ON; SET GLOBAL log_bin_compress_min_len = 10; SET SESSION binlog_row_image = MINIMAL;",
        ],
    }
}

async fn replayed(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let options = ["--sync-binlog=0", "--binlog-row-metadata=FULL", "--log-bin-trust-function-creators=1"];
    let source = Server::start(ServerSpec::new(kind).name("sql source").options(options)).await?;
    let target = Server::start(ServerSpec::new(kind).name("sql target").options(options)).await?;
    let shell = Shell::new()?;
    let whole = workload(kind);
    // The first workload keeps all rows, because rows that are deleted later would hide a difference.
    let kept: String =
        whole.lines().filter(|line| !line.starts_with("DELETE")).map(|line| format!("{line}\n")).collect();
    for settings in settings(kind.flavour()) {
        for statements in [&kept, &whole] {
            let file = logged(&source, settings, statements).await?;
            replay(&shell, &file, &target).with_context(|| format!("the replay fails with {settings}"))?;
            let (ours, theirs) = (tables(&source).await?, tables(&target).await?);
            ensure!(ours.len() >= 15, "the source has only {} tables", ours.len());
            for (our, their) in ours.iter().zip(&theirs) {
                ensure!(our == their, "a table differs with {settings}\nsource: {our}\ntarget: {their}");
            }
            ensure!(ours.len() == theirs.len());
        }
    }
    Ok(())
}

/// Runs statements in a new database, and returns the path of their binlog file.
async fn logged(server: &Server, settings: &str, statements: &str) -> Result<PathBuf> {
    server.sql("DROP DATABASE IF EXISTS tt; FLUSH BINARY LOGS").await?;
    let logs = server.sql("SHOW BINARY LOGS").await?;
    let name = logs
        .last()
        .and_then(|line| line.split('\t').next())
        .context("SHOW BINARY LOGS lists no file")?
        .to_owned();
    let statements = format!(
        "SET SESSION binlog_format = ROW; SET NAMES utf8mb4; {settings}\n\
         DROP DATABASE IF EXISTS tt; CREATE DATABASE tt; USE tt;\n{statements}"
    );
    server.sql(&statements).await.with_context(|| format!("the statements fail with {settings}"))?;
    server.sql("FLUSH BINARY LOGS").await?;
    Ok(server.data().join(name))
}

/// Executes the printed statements with the stock client.
fn replay(shell: &Shell, file: &Path, target: &Server) -> Result<()> {
    let sql = shell.run(&format!("log cat --sql {}", file.display()))?.exits(0);
    let script = shell.path().join("replay.sql");
    std::fs::write(&script, sql.bytes())?;
    let name = target.kind().client();
    let mut command = target.tool(name)?;
    command.args(["--no-defaults", "--binary-mode", "--host=127.0.0.1", "--user=root"]);
    command.arg(format!("--port={}", target.port())).stdin(Stdio::from(std::fs::File::open(&script)?));
    let output = command.output()?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{name} has failed: {complaint}");
    Ok(())
}

/// Returns the checksum and contents of each table of the database.
async fn tables(server: &Server) -> Result<Vec<String>> {
    let names = server.sql("SELECT table_name FROM information_schema.tables WHERE table_schema = 'tt' AND table_type = 'BASE TABLE' ORDER BY 1").await?;
    let mut all = Vec::new();
    for name in names {
        let quoted = format!("tt.`{}`", name.replace('`', "``"));
        // The checksum of a table with a multi-valued index is not reliable, because the index has a hidden
        // column.
        let checksum = match name.as_str() {
            "multi" => Vec::new(),
            _ => server.sql(&format!("CHECKSUM TABLE {quoted} EXTENDED")).await?,
        };
        let mut rows = server.sql(&format!("SET time_zone = '+00:00'; SELECT * FROM {quoted}")).await?;
        rows.sort();
        all.push(format!("{name}: {} {}", checksum.join(" "), rows.join("\n")));
    }
    Ok(all)
}

#[tokio::test]
async fn log_cat_sql_reproduces_the_tables_on_mysql_97() -> Result<()> {
    replayed(ServerKind::Mysql97).await
}

#[tokio::test]
async fn log_cat_sql_reproduces_the_tables_on_mariadb_1011() -> Result<()> {
    replayed(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn log_cat_sql_reproduces_the_tables_on_mariadb_118() -> Result<()> {
    if is_skipped_in_ci(
        "capture::log_cat_sql_replay::log_cat_sql_reproduces_the_tables_on_mariadb_118",
        "the same test on 10.11",
    ) {
        return Ok(());
    }
    replayed(ServerKind::Mariadb118).await
}

/// A transaction that SQL cannot express exactly is reported with its position. The SQL that was printed
/// before it is complete.
#[tokio::test]
async fn transactions_that_sql_cannot_express_are_refused() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind).name("sql refused").option("--sync-binlog=0")).await?;
    let shell = Shell::new()?;
    let opaque = "CREATE TABLE d (id INT PRIMARY KEY, j JSON); INSERT INTO d VALUES (1, '1'); \
                  INSERT INTO d VALUES (2, JSON_ARRAY(CAST(X'00' AS BINARY)));";
    for (metadata, statements, complaint) in [
        ("MINIMAL", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)", "names of the table's columns"),
        ("FULL", opaque, "a value of SQL type"),
        (
            "FULL",
            "CREATE TABLE x (a INT PRIMARY KEY); XA START 'a'; INSERT INTO x VALUES (1); XA END 'a'; XA PREPARE 'a'; XA COMMIT 'a'",
            "an XA transaction",
        ),
    ] {
        let all = format!("{statements}; CREATE TABLE later (a INT PRIMARY KEY)");
        let file = logged(&server, &format!("SET GLOBAL binlog_row_metadata = {metadata};"), &all).await?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        omits_only_this_transaction(&shell, &file, complaint)?;
        let ran = shell.run(&format!("log cat --sql --strict {}", file.display()))?.exits(1);
        let ran = ran.stdout_lacks(&["TABLE later"]);
        let ran = ran.says(&["CREATE TABLE"]).stderr_has(&["TW-WIRE-0007", complaint, &name]);
        ensure!(
            ran.text().ends_with("/*!*/;\n")
                || ran.text().lines().last().is_some_and(|line| line.starts_with("-- GTID"))
        );
        if statements == opaque {
            ran.says(&["VALUES (1, CAST(_utf8mb4 X'31' AS JSON))"]).stdout_lacks(&["VALUES (2"]);
        }
    }
    Ok(())
}

/// Without `--strict`, a comment in the output names each omitted transaction and the reason. No statement of
/// that transaction is executed, and the rest of the output is correct.
fn omits_only_this_transaction(shell: &Shell, file: &Path, reason: &str) -> Result<()> {
    let ran = shell.run(&format!("log cat --sql {}", file.display()))?.exits(3);
    let ran = ran.says(&["is left out: ", reason, "TW-WIRE-0007", "TABLE later"]);
    let ran = ran.stderr_has(&["could not be printed; the output names"]);
    let text = ran.text();
    ensure!(text.ends_with("DELIMITER ;\n"), "the output does not end with `DELIMITER ;`: {text}");
    // The output ends each transaction that it begins; an omitted transaction ends with ROLLBACK.
    let mut open = false;
    for line in text.lines() {
        match line {
            "BEGIN" | "START TRANSACTION" => ensure!(
                !std::mem::replace(&mut open, true),
                "a transaction begins inside another one: {text}"
            ),
            "COMMIT" | "ROLLBACK" => {
                ensure!(
                    std::mem::take(&mut open),
                    "the output ends a transaction that it did not begin: {text}"
                )
            }
            _ => {}
        }
    }
    ensure!(
        !open && !text.contains("VALUES (2") && !text.contains("INTO `tt`.`x`"),
        "the output has an open transaction, or rows of an omitted one: {text}"
    );
    let rows = shell.run(&format!("log cat --rows {}", file.display()))?.exits(0);
    ensure!(
        rows.text().contains("INSERT INTO `tt`"),
        "log cat --rows must print the rows, even if SQL cannot express the transaction"
    );
    Ok(())
}
