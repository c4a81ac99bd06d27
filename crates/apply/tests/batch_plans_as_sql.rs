//! Executes batch plans as SQL statements. The changes that a server logged for one database are executed in
//! another database, on the same server and on a server of the other flavour.

use anyhow::{Context, Result, ensure};
use tailwater_apply::batch::{BatchPlan, PlanOptions, plan};
use tailwater_apply::binlog_statement::{BinlogStatementEncoder, BinlogStatementOptions};
use tailwater_apply::column_matching::ColumnMismatch;
use tailwater_apply::dml_statement::{SqlWriter, session_statement};
use tailwater_sandbox::{ServerKind, require, shared};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;

use crate::binlog_statements::{applier, compare, execute, prepare, rows_of, start};
use crate::row_changes_from_binlog::{row_changes, targets};

on_each_server!(every_type_is_applied_by_sql_and_by_binlog);

const COMMON: &str = include_str!("../../tailwater/tests/capture/log_cat/common.sql");
const MYSQL_GEOMETRY: &str = include_str!("../../tailwater/tests/capture/log_cat/mysql_geometry.sql");
const MARIADB: &str = include_str!("../../tailwater/tests/capture/log_cat/mariadb.sql");
const MARIADB_11: &str = include_str!("../../tailwater/tests/capture/log_cat/mariadb_11.sql");

/// JSON documents that SQL can express exactly, and partial updates of them.
const DOCUMENTS: &str = r#"
CREATE TABLE docs (id INT NOT NULL PRIMARY KEY, a JSON, b JSON);
INSERT INTO docs VALUES (1, '{}', '[]'), (2, 'null', 'true'), (4, '1.0', '-0.0'),
  (5, '"text"', '"quote \\" back \\\\ tab \\t nul \\u0000 é 😀 it''s"'),
  (6, '[1, -32768, 65536, 9223372036854775807]', '{"b": 1, "aa": [], "": {"c": [true, null]}}'),
  (7, JSON_OBJECT('decimal', CAST(-123.450 AS DECIMAL(6,3)), 'u', CAST(5 AS UNSIGNED), 'd', DATE '2015-01-15'), NULL);
SET SESSION binlog_row_value_options = PARTIAL_JSON;
UPDATE docs SET a = JSON_SET(a, '$.x', 2) WHERE id IN (1, 7); UPDATE docs SET b = JSON_SET(b, '$.b', 'new') WHERE id = 6;
UPDATE docs SET a = JSON_SET(a, '$[1]', JSON_OBJECT('é', CAST(1.50 AS DECIMAL(3,2)))) WHERE id = 6;
UPDATE docs SET a = JSON_REPLACE(JSON_REMOVE(a, '$[0]'), '$[0]."é"', 'it''s'), b = JSON_REMOVE(b, '$."".c[0]') WHERE id = 6;
UPDATE docs SET a = JSON_ARRAY_INSERT(JSON_ARRAY_INSERT(a, '$[0]', 'first'), '$[last]', TRUE), b = JSON_INSERT(b, '$.new', JSON_ARRAY()) WHERE id = 6;
SET SESSION binlog_row_value_options = '';
"#;

const VECTORS: &str = "CREATE TABLE vectors (id INT NOT NULL PRIMARY KEY, v VECTOR(3));
INSERT INTO vectors VALUES (1, STRING_TO_VECTOR('[1,2,3.5]')), (2, NULL);
";

fn workload(kind: ServerKind) -> String {
    let own: String = match kind.flavour() {
        Flavour::MySql => format!("{DOCUMENTS}\n{VECTORS}\n{MYSQL_GEOMETRY}"),
        Flavour::MariaDb => {
            // Leave out system-versioned tables, which have their own test file `system_versioned_tables`,
            // and sequences.
            let left_out = |line: &&str| {
                !["versioned", "mysql56_temporal_format", "numbers"].iter().any(|word| line.contains(word))
            };
            MARIADB.lines().filter(left_out).map(|line| format!("{line}\n")).collect()
        }
    };
    let late = if kind == ServerKind::Mariadb118 { MARIADB_11 } else { "" };
    format!("{COMMON}\n{own}\n{late}")
}

/// Returns the workload without partial updates of JSON documents if the images are minimal. To apply a
/// partial update to MariaDB, the applier needs the earlier document, which a minimal image does not contain.
/// MariaDB's own copy of the document has a different text.
fn without_partial(image: &str, workload: &str) -> String {
    match image {
        "MINIMAL" => workload.replace("PARTIAL_JSON", "''"),
        _ => workload.to_owned(),
    }
}

/// Returns the workload without its final deletes, after which no difference would be visible.
fn kept(workload: &str) -> String {
    workload.lines().filter(|line| !line.starts_with("DELETE")).map(|line| format!("{line}\n")).collect()
}

fn options() -> BinlogStatementOptions {
    BinlogStatementOptions { statement_bytes_max: 100_000, packet_bytes_max: 16 << 20 }
}

/// Executes a plan as SQL in one transaction.
async fn execute_sql(options: &ConnectOptions, plan: &BatchPlan<'_>) -> Result<()> {
    let options = ConnectOptions { found_rows: true, ..options.clone() };
    let mut connection = Connection::connect(&options).await?;
    let flavour = connection.server().flavour;
    connection.execute(&session_statement(flavour)).await?;
    let mut writer = SqlWriter::new(flavour, self::options());
    let mut statements = Vec::new();
    for group in &plan.groups {
        let mapping = group.table.sql_mapping().cloned().map_err(|mismatch| mismatch.clone());
        let mapping =
            mapping.with_context(|| format!("{}.{}", group.table.map.schema, group.table.map.table))?;
        writer.statements(group, &mapping, &mut statements)?;
    }
    connection.execute("BEGIN").await?;
    for statement in &statements {
        let shown = || statement.text.escape_ascii().to_string().chars().take(1000).collect::<String>();
        let done = connection.execute_bytes(&statement.text).await.with_context(shown)?;
        if let Some(rows) = statement.rows {
            ensure!(
                done.affected_rows == rows,
                "the statement changed {} rows instead of {rows}: {}",
                done.affected_rows,
                shown()
            );
        }
    }
    connection.execute("COMMIT").await?;
    Ok(())
}

async fn every_type_is_applied_by_sql_and_by_binlog(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let whole = workload(kind);
    for (image, statements, by_sql) in [
        ("FULL", kept(&whole), true),
        ("MINIMAL", whole.clone(), true),
        ("FULL", kept(&whole), false),
        ("MINIMAL", whole.clone(), false),
    ] {
        let what = format!("{image} images, written as {}", if by_sql { "SQL" } else { "BINLOG" });
        let settings = format!("SET SESSION binlog_row_image = {image};");
        let file = prepare(&server, "types_source", "types_target", &settings, &statements).await?;
        let options = server.connect_options();
        let mut connection = Connection::connect(&options).await?;
        let tables = targets(&mut connection, "types_target", 0).await?;
        let changes = row_changes(&server, &file, "types_source", &tables, !by_sql).await?;
        ensure!(changes.len() > 20, "{what}: the source logged only {} rows events", changes.len());
        // The plan contains partial updates: the source logs half of the changes of JSON documents in this
        // form.
        let plan = plan(&changes, PlanOptions { cut_images: !by_sql, ..PlanOptions::default() })?;
        if by_sql {
            execute_sql(&options, &plan).await.with_context(|| what.clone())?;
        } else {
            let encoder = BinlogStatementEncoder::new(kind.flavour(), self::options());
            let mut connection = applier(&options, &encoder).await?;
            execute(&mut connection, encoder, &plan).await.with_context(|| what.clone())?;
        }
        compare(&server, "types_source", &server, "types_target", &what).await?;
    }
    Ok(())
}

/// Returns the statements of a workload that create tables, and the settings between these statements.
fn definitions(workload: &str) -> String {
    let statement = |text: &&str| {
        let text = text.lines().find(|line| !line.is_empty() && !line.starts_with("--")).unwrap_or_default();
        text.starts_with("CREATE TABLE") || text.starts_with("SET SESSION sql_mode")
    };
    workload.split(";\n").filter(statement).map(|text| format!("{text};\n")).collect()
}

async fn across(from: ServerKind, to: ServerKind, workload: &str) -> Result<()> {
    if require(from).is_none() || require(to).is_none() {
        return Ok(());
    }
    let (source, target) = (shared(from).await?, shared(to).await?);
    for image in ["FULL", "MINIMAL"] {
        let settings = format!("SET SESSION binlog_row_image = {image};");
        let schema = format!("across_{}", to.name().replace(['-', '.'], "_"));
        let file = start(&source, &schema, &settings, &without_partial(image, workload)).await?;
        start(&target, "across_target", "", &definitions(workload)).await?;
        let mut connection = Connection::connect(&target.connect_options()).await?;
        let tables = targets(&mut connection, "across_target", 0).await?;
        let changes = row_changes(&source, &file, &schema, &tables, false).await?;
        let plan = plan(&changes, PlanOptions::default())?;
        execute_sql(&target.connect_options(), &plan).await.with_context(|| {
            format!(
                "cannot apply the row changes of a {from} source to a {to} target, with {image} row images"
            )
        })?;
        let (ours, theirs) = (rows_of(&source, &schema).await?, rows_of(&target, "across_target").await?);
        ensure!(
            ours.len() > 8 && ours.len() == theirs.len(),
            "the source has {} tables and the target has {}; the numbers must be equal",
            ours.len(),
            theirs.len()
        );
        for (our, their) in ours.iter().zip(&theirs) {
            // MariaDB cannot store a negative zero, whatever expression produces it.
            let our = our.replace(" -0 ", " 0 ");
            ensure!(
                our == *their,
                "from {from} to {to} with {image} images, a table differs\nsource: {our}\ntarget: {their}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn mysql_changes_are_applied_on_mariadb() -> Result<()> {
    // Leave out negative zeros, which the applier rejects because MariaDB has no expression for them.
    let common = COMMON.replace("-0e0", "0");
    across(ServerKind::Mysql97, ServerKind::Mariadb1011, &kept(&format!("{common}\n{DOCUMENTS}"))).await
}

#[tokio::test]
async fn mariadb_changes_are_applied_on_mysql() -> Result<()> {
    across(ServerKind::Mariadb118, ServerKind::Mysql97, &kept(COMMON)).await
}

/// A table of the target may have more columns, another order of columns, and wider columns.
#[tokio::test]
async fn rows_are_written_to_tables_of_another_shape() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let workload = "
        CREATE TABLE t (id INT UNSIGNED NOT NULL PRIMARY KEY, l VARCHAR(20) CHARACTER SET latin1, d DECIMAL(5,2), e ENUM('a','b'));
        CREATE TABLE k (a INT NOT NULL, b VARCHAR(10) CHARACTER SET latin1 NOT NULL, v INT, PRIMARY KEY (a, b));
        CREATE TABLE n (x INT, y VARCHAR(10) CHARACTER SET latin1);
        INSERT INTO t VALUES (4000000000, '\u{e4}\u{f6}', 1.25, 'a'), (1, 'x', NULL, 'b'), (2, '', -999.99, NULL);
        INSERT INTO k VALUES (1, '\u{df}', 1), (1, 'b', 2), (2, 'c', 3), (3, 'd', 4);
        INSERT INTO n VALUES (1, '\u{e9}'), (1, '\u{e9}'), (NULL, NULL), (2, 'x');
        SELECT SLEEP(0);
        UPDATE t SET l = 'changed' WHERE id = 1; UPDATE k SET v = 9 WHERE b = '\u{df}'; DELETE FROM k WHERE a > 1;
        UPDATE n SET x = 7 WHERE y = '\u{e9}' LIMIT 1; DELETE FROM n WHERE x IS NULL; DELETE FROM t WHERE id = 2;";
    let file = start(&server, "shape_source", "SET NAMES utf8mb4;", workload).await?;
    let wider = "
        CREATE TABLE t (extra INT DEFAULT 5, e ENUM('a','b','c'), d DECIMAL(9,4), l TEXT CHARACTER SET utf8mb4, id BIGINT NOT NULL PRIMARY KEY);
        CREATE TABLE k (b VARCHAR(10) CHARACTER SET utf8mb4 NOT NULL, a BIGINT NOT NULL, v INT, PRIMARY KEY (a, b));
        CREATE TABLE n (y VARCHAR(20) CHARACTER SET utf8mb4, x INT);";
    start(&server, "shape_target", "", wider).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    let tables = targets(&mut connection, "shape_target", 0).await?;
    let changes = row_changes(&server, &file, "shape_source", &tables, false).await?;
    let plan = plan(&changes, PlanOptions::default())?;
    execute_sql(&server.connect_options(), &plan).await?;
    let rows = rows_of(&server, "shape_target").await?;
    let utf8 = |text: &str| text.as_bytes().escape_ascii().to_string();
    let wanted = [
        format!("k\n{} 1 9\nb 1 2", utf8("ß")),
        format!("n\n{0} 1\n{0} 7\nx 2", utf8("é")),
        format!("t\n5 a 1.2500 {} 4000000000\n5 b NULL changed 1", utf8("äö")),
    ];
    for (row, wanted) in rows.iter().zip(&wanted) {
        let mut lines: Vec<_> = row.lines().collect();
        let mut wanted: Vec<_> = wanted.lines().collect();
        lines.sort();
        wanted.sort();
        ensure!(lines == wanted, "wrong rows in the target's tables: {lines:?}\nexpected: {wanted:?}");
    }

    // A column that does not fit is reported before anything is written.
    for (narrow, column) in [
        (
            "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, l VARCHAR(20), d DECIMAL(5,2), e ENUM('a','b'))",
            "id",
        ),
        (
            "CREATE TABLE t (id INT UNSIGNED NOT NULL PRIMARY KEY, l VARCHAR(19), d DECIMAL(5,2), e ENUM('a','b'))",
            "l",
        ),
        ("CREATE TABLE t (id INT UNSIGNED NOT NULL PRIMARY KEY, l VARCHAR(20), e ENUM('a','b'))", "d"),
        (
            "CREATE TABLE t (id INT UNSIGNED NOT NULL PRIMARY KEY, l VARCHAR(20), d DECIMAL(5,2), e ENUM('b','a'))",
            "e",
        ),
    ] {
        start(&server, "shape_target", "", narrow).await?;
        let tables = targets(&mut connection, "shape_target", 0).await?;
        let mismatch = match row_changes(&server, &file, "shape_source", &tables, false).await {
            Ok(changes) => {
                let table = &changes.first().context("the source logged no row changes")?.table;
                table
                    .sql_mapping()
                    .err()
                    .context("the mapping must report a column that does not fit")?
                    .clone()
            }
            // This error means that the target's table lacks the column.
            Err(error) => error.downcast::<ColumnMismatch>()?,
        };
        ensure!(mismatch.column == column, "wrong column in the mismatch: {mismatch}");
    }
    Ok(())
}
