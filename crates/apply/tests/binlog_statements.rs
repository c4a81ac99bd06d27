//! Executes batch plans as `BINLOG` statements. A server logs changes of one database, and then executes
//! these changes in another database.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tailwater_apply::batch::{BatchPlan, PlanOptions, plan};
use tailwater_apply::binlog_statement::{BinlogStatementEncoder, BinlogStatementOptions};
use tailwater_apply::target_table::TargetTable;
use tailwater_apply::writeset::IndexId;
use tailwater_sandbox::{Server, ServerKind, require, shared};
use tailwater_session::{ConnectOptions, Connection, TextRow};
use tailwater_wire::Flavour;

use crate::row_changes_from_binlog::{row_changes, targets};

on_each_server!(
    a_database_becomes_another,
    huge_rows_and_cut_statements,
    children_follow_their_parents,
    few_grants_are_enough,
);

/// Many changes of a few rows, in tables of every kind.
const WORKLOAD: &str = "
CREATE TABLE plain (id INT NOT NULL PRIMARY KEY, u INT UNIQUE, s VARCHAR(100), b LONGBLOB, n INT, KEY (s), KEY (n, s));
CREATE TABLE late_key (v INT, b VARCHAR(10), a INT NOT NULL, c INT NOT NULL, PRIMARY KEY (c, a), KEY (v));
CREATE TABLE text_key (t VARCHAR(20) NOT NULL PRIMARY KEY, v INT);
CREATE TABLE keyless (x INT, y VARCHAR(10), KEY (x));
CREATE TABLE computed (id INT NOT NULL PRIMARY KEY, a INT, v INT GENERATED ALWAYS AS (a + 1) VIRTUAL, KEY (v));
CREATE TABLE audited (id INT NOT NULL PRIMARY KEY, v INT);
CREATE TABLE audit (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, what INT);
CREATE TRIGGER audited_i AFTER INSERT ON audited FOR EACH ROW INSERT INTO audit (what) VALUES (NEW.id);
CREATE TRIGGER audited_u AFTER UPDATE ON audited FOR EACH ROW INSERT INTO audit (what) VALUES (-NEW.id);
INSERT INTO plain SELECT a.d * 10 + b.d, a.d * 10 + b.d, CONCAT('s', a.d, b.d), REPEAT('x', a.d * b.d), b.d
  FROM (SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4) a,
       (SELECT 0 d UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8) b;
BEGIN; UPDATE plain SET n = n + 1 WHERE id < 20; DELETE FROM plain WHERE id BETWEEN 5 AND 7; COMMIT;
UPDATE plain SET u = u + 1000, s = CONCAT(s, '!'); UPDATE plain SET u = u - 999 ORDER BY u;
UPDATE plain SET n = 7, b = NULL WHERE id = 10; UPDATE plain SET n = 8 WHERE id = 10; UPDATE plain SET n = NULL WHERE id = 10;
INSERT INTO plain VALUES (500, 500, 'come', 'x', 1); UPDATE plain SET s = 'and' WHERE id = 500; DELETE FROM plain WHERE id = 500;
DELETE FROM plain WHERE id = 15; INSERT INTO plain VALUES (15, NULL, 'back', '', 3); UPDATE plain SET id = 600 WHERE id = 15;
INSERT INTO plain VALUES (15, 7000, 'again', 'y', 4);
INSERT INTO late_key VALUES (1, 'a', 1, 1), (2, 'b', 1, 2), (3, 'c', 2, 1), (4, NULL, 2, 2);
UPDATE late_key SET v = v * 10, b = 'z' WHERE a = 1; UPDATE late_key SET a = 9 WHERE a = 2 AND c = 2; DELETE FROM late_key WHERE c = 1 AND a = 2;
INSERT INTO text_key VALUES ('a', 1), ('é', 2), ('b', 3); UPDATE text_key SET t = 'A', v = 5 WHERE t = 'a'; DELETE FROM text_key WHERE t = 'b';
INSERT INTO text_key VALUES ('B', 6);
INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, NULL), (NULL, NULL); UPDATE keyless SET x = x + 1; UPDATE keyless SET x = x + 1; DELETE FROM keyless WHERE x = 3 LIMIT 1;
INSERT INTO keyless VALUES (3, 'new'); UPDATE keyless SET y = 'b' WHERE x IS NULL;
INSERT INTO computed (id, a) VALUES (1, 1), (2, 2), (3, NULL); UPDATE computed SET a = a + 10; UPDATE computed SET a = 5 WHERE id = 3; DELETE FROM computed WHERE id = 2;
INSERT INTO audited VALUES (1, 1), (2, 2); UPDATE audited SET v = 3 WHERE id = 2;
";

const MYSQL: &str = "
CREATE TABLE docs (id INT NOT NULL PRIMARY KEY, j JSON, k JSON);
INSERT INTO docs VALUES (1, JSON_OBJECT('a', REPEAT('x', 100), 'b', 1), '[]'), (2, '{\"a\": 1}', NULL);
SET SESSION binlog_row_value_options = PARTIAL_JSON;
UPDATE docs SET j = JSON_SET(j, '$.b', 2); UPDATE docs SET j = JSON_REMOVE(j, '$.a') WHERE id = 1; UPDATE docs SET k = '{}', j = JSON_SET(j, '$.b', 3);
SET SESSION binlog_row_value_options = '';
";

/// Connects a session that can execute the encoder's statements.
pub async fn applier(options: &ConnectOptions, encoder: &BinlogStatementEncoder) -> Result<Connection> {
    let mut connection = Connection::connect(options).await?;
    connection.execute_bytes(&encoder.format_description_statement()?).await?;
    if connection.server().flavour == Flavour::MySql {
        connection.execute("SET SESSION gtid_next = 'AUTOMATIC'").await?;
    }
    Ok(connection)
}

/// Runs a workload in a new database. Returns the name of the binlog file that starts with the workload.
pub async fn start(server: &Server, schema: &str, settings: &str, workload: &str) -> Result<String> {
    server.sql("SET GLOBAL binlog_row_metadata = FULL; FLUSH BINARY LOGS").await?;
    let logs = server.sql("SHOW BINARY LOGS").await?;
    let log = logs
        .last()
        .and_then(|line| line.split('\t').next())
        .context("the server has no binlog file")?
        .to_owned();
    let fresh = format!("DROP DATABASE IF EXISTS {schema}; CREATE DATABASE {schema}; USE {schema};");
    server.sql(&format!("SET SESSION binlog_format = ROW; {settings} {fresh}\n{workload}")).await?;
    Ok(log)
}

/// Does the same as [`start`], and also creates the same tables, without rows, in the database `target`.
pub async fn prepare(
    server: &Server,
    source: &str,
    target: &str,
    settings: &str,
    workload: &str,
) -> Result<String> {
    let log = start(server, source, settings, workload).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection.execute(&format!("DROP DATABASE IF EXISTS {target}")).await?;
    connection.execute(&format!("CREATE DATABASE {target}")).await?;
    copy_tables(&mut connection, source, target).await?;
    Ok(log)
}

async fn copy_tables(connection: &mut Connection, from: &str, to: &str) -> Result<()> {
    for table in names(connection, from).await? {
        let quoted = table.replace('`', "``");
        connection.execute(&format!("CREATE TABLE {to}.`{quoted}` LIKE {from}.`{quoted}`")).await?;
    }
    Ok(())
}

/// Returns for each table of a database its checksum, the result of checking its indexes, and its rows.
async fn contents(server: &Server, schema: &str) -> Result<Vec<String>> {
    shown(server, schema, &["CHECKSUM TABLE {} EXTENDED", "CHECK TABLE {} EXTENDED", "SELECT * FROM {}"])
        .await
}

/// Returns each table of a database with its rows.
pub async fn rows_of(server: &Server, schema: &str) -> Result<Vec<String>> {
    shown(server, schema, &["SELECT * FROM {}"]).await
}

async fn shown(server: &Server, schema: &str, questions: &[&str]) -> Result<Vec<String>> {
    let mut connection = Connection::connect(&server.connect_options()).await?;
    // Without character set conversion, the result contains every column in its own character set.
    connection.execute("SET time_zone = '+00:00', character_set_results = NULL").await?;
    let mut all = Vec::new();
    for table in names(&mut connection, schema).await? {
        let quoted = format!("{schema}.`{}`", table.replace('`', "``"));
        // Invisible columns are read too.
        let columns = connection
            .query(&format!(
                "SELECT column_name, extra FROM information_schema.columns WHERE table_schema = '{schema}'
                 AND table_name = '{table}' ORDER BY ordinal_position"
            ))
            .await?;
        // Equal tables with generated columns may have different checksums, because servers include random
        // memory or order rows differently. On MySQL this concerns the hidden columns of multi-valued
        // indexes.
        let unsummed = match server.kind().flavour() {
            Flavour::MariaDb => {
                columns.rows.iter().any(|row| row.get_str(1).is_some_and(|it| it.contains("GENERATED")))
            }
            Flavour::MySql => {
                let arrays = format!(
                    "SELECT 1 FROM information_schema.statistics WHERE table_schema = '{schema}'
                     AND table_name = '{table}' AND expression LIKE '% array)%'"
                );
                !connection.query(&arrays).await?.rows.is_empty()
            }
        };
        let columns = columns.rows.iter().filter_map(|row| row.get_str(0));
        let columns: Vec<_> = columns.map(|name| format!("`{}`", name.replace('`', "``"))).collect();
        let columns = columns.join(", ");
        let mut text = table;
        for question in questions.iter().filter(|it| !(unsummed && it.starts_with("CHECKSUM"))) {
            let question = question.replace('*', &columns).replace("{}", &quoted);
            let answer = connection.query(&question).await?;
            // Each row of the results of CHECKSUM TABLE and CHECK TABLE starts with the name of the table.
            let from = usize::from(question.starts_with("CHECK"));
            let line = |row: &TextRow| {
                let cell = |index| match row.get(index) {
                    Some(bytes) => bytes.escape_ascii().to_string(),
                    None => "NULL".to_owned(),
                };
                (from..row.len()).map(cell).collect::<Vec<_>>().join(" ")
            };
            let mut lines: Vec<_> = answer.rows.iter().map(line).collect();
            lines.sort();
            text = format!("{text}\n{}", lines.join("\n"));
        }
        all.push(text);
    }
    Ok(all)
}

async fn names(connection: &mut Connection, schema: &str) -> Result<Vec<String>> {
    let tables = connection
        .query(&format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'
             AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY 1"
        ))
        .await?;
    Ok(tables.rows.iter().filter_map(|row| row.get_str(0)).map(str::to_owned).collect())
}

pub async fn compare(server: &Server, source: &str, target: &Server, into: &str, what: &str) -> Result<()> {
    let (ours, theirs) = (contents(server, source).await?, contents(target, into).await?);
    ensure!(!ours.is_empty() && ours.len() == theirs.len());
    for (our, their) in ours.iter().zip(&theirs) {
        let table = our.lines().next().unwrap_or_default();
        let (only_ours, only_theirs) = (lines_beyond(our, their), lines_beyond(their, our));
        ensure!(
            our == their,
            "{what}: {table} differs\nonly on the source: {only_ours}\nonly on the target: {only_theirs}"
        );
    }
    Ok(())
}

/// Returns the lines of `text` that `other` does not contain.
fn lines_beyond(text: &str, other: &str) -> String {
    let other: HashSet<_> = other.lines().collect();
    text.lines().filter(|line| !other.contains(line)).collect::<Vec<_>>().join("\n")
}

async fn a_database_becomes_another(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let workload = match kind.flavour() {
        Flavour::MySql => format!("{WORKLOAD}{MYSQL}"),
        Flavour::MariaDb => WORKLOAD.to_owned(),
    };
    for (image, log, statement_bytes_max, net_change, cut_images) in [
        ("FULL", 0, 1 << 20, true, true),
        ("FULL", 1, 3000, true, true),
        ("MINIMAL", 1, 1 << 20, true, true),
        ("NOBLOB", 0, 700, false, false),
        ("FULL", 1, 1 << 20, false, true),
    ] {
        let what = format!(
            "images {image}, sql_log_bin {log}, statements of {statement_bytes_max} bytes, merged changes {net_change}, cut images {cut_images}"
        );
        let settings = format!("SET SESSION binlog_row_image = {image};");
        let file = prepare(&server, "binlog_source", "binlog_target", &settings, &workload).await?;
        // Triggers must not run. If this trigger ran, it would insert every row twice.
        let trigger = "CREATE TRIGGER binlog_target.t AFTER INSERT ON binlog_target.plain FOR EACH ROW INSERT INTO binlog_target.audit VALUES (NEW.id + 1000, 0)";
        server.sql(trigger).await?;
        let options = BinlogStatementOptions { statement_bytes_max, packet_bytes_max: 16 << 20 };
        let encoder = BinlogStatementEncoder::new(kind.flavour(), options);
        let mut connection = applier(&server.connect_options(), &encoder).await?;
        let tables = targets(&mut connection, "binlog_target", 0).await?;
        let changes = row_changes(&server, &file, "binlog_source", &tables, true).await?;
        let plan = plan(&changes, PlanOptions { net_change, cut_images })?;
        connection.execute(&format!("SET SESSION sql_log_bin = {log}")).await?;
        let statements = execute(&mut connection, encoder, &plan).await.context(what.clone())?;
        ensure!(
            statements > 1 || statement_bytes_max > 3000,
            "{what}: no row image was cut to the changed columns"
        );
        compare(&server, "binlog_source", &server, "binlog_target", &what).await?;
        if log == 1 {
            replicate(&server, &file, "binlog_target", options).await?;
            compare(&server, "binlog_source", &server, "binlog_third", &what).await?;
        }
    }
    Ok(())
}

/// Executes a batch plan in one transaction. Returns the number of statements.
pub async fn execute(
    connection: &mut Connection,
    mut encoder: BinlogStatementEncoder,
    plan: &BatchPlan<'_>,
) -> Result<usize> {
    let mut statements = Vec::new();
    encoder.statements(&plan.groups, &mut statements)?;
    connection.execute("BEGIN").await?;
    for statement in &statements {
        connection.execute_bytes(statement).await?;
    }
    connection.execute("COMMIT").await?;
    Ok(statements.len())
}

/// Acts as a replica of the target: executes in another database the changes that the target has logged for a
/// database.
async fn replicate(server: &Server, file: &str, schema: &str, options: BinlogStatementOptions) -> Result<()> {
    let encoder = BinlogStatementEncoder::new(server.kind().flavour(), options);
    let mut connection = applier(&server.connect_options(), &encoder).await?;
    connection.execute("SET SESSION sql_log_bin = 0").await?;
    connection.execute("DROP DATABASE IF EXISTS binlog_third").await?;
    connection.execute("CREATE DATABASE binlog_third").await?;
    copy_tables(&mut connection, schema, "binlog_third").await?;
    let tables = targets(&mut connection, "binlog_third", 0).await?;
    let changes = row_changes(server, file, schema, &tables, true).await?;
    ensure!(!changes.is_empty());
    let plan = plan(&changes, PlanOptions { net_change: false, cut_images: false })?;
    execute(&mut connection, encoder, &plan).await?;
    Ok(())
}

async fn huge_rows_and_cut_statements(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    // In base64, the largest row is longer than MariaDB's packets of 16 MiB.
    let workload = "CREATE TABLE blobs (id INT NOT NULL PRIMARY KEY AUTO_INCREMENT, b LONGBLOB);
        INSERT INTO blobs (b) SELECT REPEAT('r', 1000) FROM information_schema.columns LIMIT 700;
        INSERT INTO blobs (b) VALUES (REPEAT('x', 300000)), (REPEAT('y', 14000000));
        INSERT INTO blobs (b) SELECT REPEAT('r', 1000) FROM information_schema.columns LIMIT 100;";
    let file = prepare(&server, "huge_source", "huge_target", "", workload).await?;
    let packet = server.sql("SELECT @@max_allowed_packet").await?.join("").parse()?;
    let options = BinlogStatementOptions { statement_bytes_max: 64 << 10, packet_bytes_max: packet };
    let mut encoder = BinlogStatementEncoder::new(kind.flavour(), options);
    let mut connection = applier(&server.connect_options(), &encoder).await?;
    let tables = targets(&mut connection, "huge_target", 0).await?;
    let changes = row_changes(&server, &file, "huge_source", &tables, true).await?;
    let plan = plan(&changes, PlanOptions::default())?;
    let mut statements = Vec::new();
    encoder.statements(&plan.groups, &mut statements)?;
    let large = statements.iter().filter(|statement| statement.len() > 64 << 10).count();
    // On MariaDB the largest row needs two statements that each set a user variable. A third statement
    // executes the content of both variables.
    ensure!(statements.len() > 15 && large == if kind.flavour() == Flavour::MariaDb { 3 } else { 2 });
    connection.execute("BEGIN").await?;
    for statement in &statements {
        connection.execute_bytes(statement).await?;
    }
    connection.execute("COMMIT").await?;
    compare(&server, "huge_source", &server, "huge_target", "huge rows").await?;

    let options = BinlogStatementOptions { statement_bytes_max: 64 << 10, packet_bytes_max: 4 << 20 };
    let error =
        BinlogStatementEncoder::new(kind.flavour(), options).statements(&plan.groups, &mut statements).err();
    ensure!(
        error.as_ref().is_some_and(|error| error.code() == "TW-APP-0030"
            && ["huge_target.blobs", "max_allowed_packet"]
                .iter()
                .all(|part| error.to_string().contains(part))),
        "wrong error for the large row: {error:?}"
    );
    Ok(())
}

/// The target enforces foreign keys. It also executes cascades itself, because the log does not contain their
/// changes.
async fn children_follow_their_parents(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let tables = "
        CREATE TABLE parent (id INT NOT NULL PRIMARY KEY, v INT);
        CREATE TABLE child (id INT NOT NULL PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE);
        CREATE TABLE strict (id INT NOT NULL PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id));";
    let changes = "
        INSERT INTO parent VALUES (1, 0), (2, 0), (3, 0); INSERT INTO child VALUES (10, 1), (20, 2), (30, 3); INSERT INTO strict VALUES (1, 3);
        DELETE FROM parent WHERE id = 1; UPDATE parent SET id = 5 WHERE id = 2; INSERT INTO child VALUES (50, 5);
        SET foreign_key_checks = 0; INSERT INTO strict VALUES (9, 99); SET foreign_key_checks = 1;
        DELETE FROM strict WHERE p = 3; DELETE FROM parent WHERE id = 3;";
    let file = start(&server, "family_source", "", &format!("{tables}{changes}")).await?;
    start(&server, "family_target", "", tables).await?;
    let options = BinlogStatementOptions { statement_bytes_max: 1 << 20, packet_bytes_max: 16 << 20 };
    let encoder = BinlogStatementEncoder::new(kind.flavour(), options);
    let mut connection = applier(&server.connect_options(), &encoder).await?;
    let mut targets = targets(&mut connection, "family_target", 0).await?;
    // Make all rows of the three tables conflict, so that they are written in the order of the log.
    for target in targets.values_mut() {
        let table = TargetTable { rows: IndexId(0), has_primary_key: false, ..TargetTable::clone(target) };
        *target = Arc::new(table);
    }
    let changes = row_changes(&server, &file, "family_source", &targets, true).await?;
    let plan = plan(&changes, PlanOptions::default())?;
    execute(&mut connection, encoder, &plan).await?;
    compare(&server, "family_source", &server, "family_target", "tables with foreign keys").await?;
    Ok(())
}

/// The account of a channel does not need the SUPER privilege.
async fn few_grants_are_enough(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let workload = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3);
        UPDATE t SET id = 4 WHERE id = 3; DELETE FROM t WHERE id = 2;";
    let file = prepare(&server, "grants_source", "grants_target", "", workload).await?;
    let grants = match kind.flavour() {
        Flavour::MySql => {
            "GRANT REPLICATION_APPLIER ON *.* TO few@'%';
             GRANT INSERT, UPDATE, DELETE ON grants_target.* TO few@'%';"
        }
        Flavour::MariaDb => "GRANT BINLOG REPLAY ON *.* TO few@'%';",
    };
    server.sql(&format!("CREATE USER IF NOT EXISTS few@'%' IDENTIFIED BY 'few'; {grants}")).await?;
    let mut root = Connection::connect(&server.connect_options()).await?;
    let tables = targets(&mut root, "grants_target", 0).await?;
    let changes = row_changes(&server, &file, "grants_source", &tables, true).await?;
    let plan = plan(&changes, PlanOptions { net_change: false, ..PlanOptions::default() })?;
    ensure!(plan.groups.len() == 3);
    let options = BinlogStatementOptions { statement_bytes_max: 1 << 20, packet_bytes_max: 16 << 20 };
    let account = ConnectOptions { user: "few".to_owned(), ..server.connect_options() }.password("few");
    let encoder = BinlogStatementEncoder::new(kind.flavour(), options);
    let mut connection = applier(&account, &encoder).await?;
    execute(&mut connection, encoder, &plan).await?;
    compare(&server, "grants_source", &server, "grants_target", "rows applied by an account with few grants")
        .await?;
    Ok(())
}
