//! Each way of copying preserves data that its own server would not accept any more.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tailwater_check::row_repair::{RepairOptions, repair};
use tailwater_check::table_check::target_catch_up_wait::SyncMethod;
use tailwater_check::table_check::{CheckOptions, DifferenceKind};
use tailwater_dump::dump_folder::DumpCompression;
use tailwater_dump::load::{LoadOptions, load, tailwater_folder};
use tailwater_dump::server_copy::{CopyOptions, copy};
use tailwater_dump::{DumpOptions, dump_stream};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_tables::schema::Selection;
use tailwater_tables::{BulkError, BulkProgress, Throttle};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;

use crate::server_contents::{all, ensure_equal, started};
use crate::stock_client::run_script;
use crate::table_check::run;
use crate::test_dump_folders;

on_each_server!(
    invalid_data_is_copied_unchanged,
    rows_with_document_identifiers_are_copied,
    a_target_with_statement_logging_can_be_loaded,
    tables_of_engines_without_savepoints_are_copied,
    missing_engines_are_refused
);

/// ENUM values with index 0 in three kinds of columns: a member has the same text, a member is a zero, or the
/// character set has several bytes per character. There are also generated columns whose values were
/// truncated.
const UNUSUAL_ENUMS: &str = "
    SET NAMES utf8mb4; SET sql_mode = ''; CREATE DATABASE odd CHARACTER SET utf8mb4; USE odd;
    CREATE TABLE members (id INT PRIMARY KEY, e ENUM('red', 'green', ''), n ENUM('a', 'b'), z ENUM('0', '00', '', '０００'),
        w ENUM('a', '') CHARACTER SET ucs2, v ENUM('x', '') CHARACTER SET utf32, s SET('a', 'b', '1'), l ENUM('ä', '') CHARACTER SET latin1);
    INSERT INTO members VALUES (1, 'red', 'a', '0', 'a', 'x', 'a,1', 'ä'), (2, '', 'b', '', '', '', '', ''),
        (3, 'none', 'none', 'none', 'a', 'x', 'none', 'none'), (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (5, 2, 2, 2, 2, 2, 2, 2);
    CREATE TABLE computed (id INT PRIMARY KEY, a INT, t VARCHAR(9), b TINYINT AS (a * 100) STORED, c INT AS (t + 0) STORED,
        d TINYINT AS (a * 100) VIRTUAL);
    INSERT INTO computed (id, a, t) VALUES (1, 5, 'abc'), (2, 1, '7'), (3, -9, NULL);
";

/// Rows that violate a CHECK of their table, the type JSON, or a period.
const VIOLATING_ROWS: &str = "
    USE odd; SET check_constraint_checks = 0;
    CREATE TABLE violating (id INT PRIMARY KEY, a INT CHECK (a > 0), j JSON, b INT, CONSTRAINT both_of CHECK (a < b));
    INSERT INTO violating VALUES (1, -1, '{', -2), (2, 1, '{}', 2), (3, NULL, NULL, NULL), (4, 5, 'x', 4);
    CREATE TABLE spans (id INT PRIMARY KEY, s DATE, e DATE, PERIOD FOR p (s, e));
    INSERT INTO spans VALUES (1, '2024-01-02', '2024-01-01'), (2, '2024-01-01', '2024-01-02');
";

/// One table for each storage engine of the server that stores rows.
const ENGINES: [(&str, &str); 4] = [
    (
        "ARCHIVE",
        "CREATE TABLE odd.archived (id INT AUTO_INCREMENT, t TEXT, KEY (id)) ENGINE=ARCHIVE; INSERT INTO odd.archived (t) VALUES ('a'), ('b'), (NULL)",
    ),
    (
        "CSV",
        "CREATE TABLE odd.listed (id INT NOT NULL, t VARCHAR(9) NOT NULL) ENGINE=CSV; INSERT INTO odd.listed VALUES (1, 'a,\"b'), (2, '')",
    ),
    (
        "BLACKHOLE",
        "CREATE TABLE odd.swallowing (id INT PRIMARY KEY, t VARCHAR(9)) ENGINE=BLACKHOLE; INSERT INTO odd.swallowing VALUES (1, 'a')",
    ),
    (
        "MEMORY",
        "CREATE TABLE odd.kept (id INT PRIMARY KEY, t VARCHAR(9)) ENGINE=MEMORY; INSERT INTO odd.kept VALUES (1, 'a'), (2, 'b')",
    ),
];

async fn engines(server: &Server) -> Result<Vec<String>> {
    Ok(server
        .sql("SELECT engine FROM information_schema.engines WHERE support IN ('YES', 'DEFAULT')")
        .await?)
}

async fn has_archive(kind: ServerKind) -> Result<Server> {
    let server = started(kind).await?;
    if kind.flavour() == Flavour::MariaDb && !engines(&server).await?.iter().any(|engine| engine == "ARCHIVE")
    {
        // Some builds of MariaDB do not include the engine ARCHIVE, so an error is ignored.
        let _ = server.sql("INSTALL SONAME 'ha_archive'").await;
    }
    Ok(server)
}

async fn invalid_data_is_copied_unchanged(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = has_archive(kind).await?;
    run_script(&source, UNUSUAL_ENUMS.as_bytes())?;
    if kind.flavour() == Flavour::MariaDb {
        run_script(&source, VIOLATING_ROWS.as_bytes())?;
    }
    let found = engines(&source).await?;
    for (engine, script) in ENGINES {
        if found.iter().any(|name| name == engine) {
            source.sql(script).await.with_context(|| engine.to_owned())?;
        }
    }
    let indexes = "SELECT id, e + 0, n + 0, z + 0, w + 0, v + 0, s + 0, l + 0 FROM odd.members ORDER BY id";
    let (before, wanted) = (all(&source).await?, source.sql(indexes).await?);
    ensure!(
        wanted[2] == "3\t0\t0\t0\t1\t1\t0\t0",
        "the ENUM and SET values of the source do not have the expected numbers: {wanted:?}"
    );
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 2).await?;
    for inserts in [false, true] {
        let target = has_archive(kind).await?;
        let contents = tailwater_folder::read(folder.path(), false)?;
        let options = LoadOptions { inserts, ..LoadOptions::new(target.connect_options()) };
        let loaded = load(&contents, &options, &Arc::default(), &CancellationToken::new()).await;
        if inserts && kind.flavour() == Flavour::MariaDb {
            // If a multi-row INSERT causes warnings, the server does not report which value each warning is
            // about. So the load must refuse the table.
            let refused = loaded.err().context("the load succeeded, although it must fail")?;
            ensure!(
                refused.code() == "TW-BULK-0029" && refused.to_string().contains("odd.members"),
                "the load was not refused because of the table odd.members: {refused}"
            );
        } else {
            loaded?;
            ensure_equal(&before, &all(&target).await?)?;
            ensure!(
                target.sql(indexes).await? == wanted,
                "a load with inserts = {inserts} has changed the numbers of ENUM or SET values"
            );
        }
        target.sql("DROP DATABASE odd; DROP DATABASE tailwater").await?;
        if inserts {
            let mut stream = Vec::new();
            let shared = DumpStream::default();
            let options = DumpOptions::new(source.connect_options(), "");
            dump_stream(options, Box::new(shared.clone()), Arc::default(), CancellationToken::new()).await?;
            stream.append(&mut shared.0.lock().unwrap());
            run_script(&target, &stream)?;
        } else {
            let load = LoadOptions::new(target.connect_options());
            let options = CopyOptions::new(source.connect_options(), Selection::default(), load);
            copy(&options, &Arc::default(), &CancellationToken::new()).await?;
        }
        ensure_equal(&before, &all(&target).await?)?;
        ensure!(
            target.sql(indexes).await? == wanted,
            "the dump stream (true) or the copy (false) has changed the numbers of ENUM or SET values: \
             {inserts}"
        );
        if inserts {
            values_without_a_member_are_repaired(&source, &target).await?;
            ensure_equal(&before, &all(&target).await?)?;
        }
    }
    Ok(())
}

/// A writer that collects a dump stream in memory.
#[derive(Clone, Default)]
struct DumpStream(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for DumpStream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Tables with a full-text index whose rows have document identifiers. The order of these identifiers differs
/// from the order of the primary key.
async fn rows_with_document_identifiers_are_copied(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = started(kind).await?;
    let mut script = String::from("CREATE DATABASE odd; USE odd; SET auto_increment_increment = 65535;");
    for (table, key) in [("keyed", "PRIMARY KEY (id)"), ("unkeyed", "KEY (id)")] {
        script.push_str(&format!(
            "CREATE TABLE {table} (id INT NOT NULL, body VARCHAR(100), FTS_DOC_ID BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, {key},
                 UNIQUE KEY FTS_DOC_ID_INDEX (FTS_DOC_ID), KEY by_body (body), FULLTEXT KEY words (body)) ENGINE=InnoDB;"
        ));
        for row in 0..20 {
            script
                .push_str(&format!("INSERT INTO {table} (id, body) VALUES ({}, 'number {row}');", 100 - row));
        }
    }
    run_script(&source, script.as_bytes())?;
    let before = all(&source).await?;
    let found = "SELECT COUNT(*) FROM odd.keyed WHERE MATCH (body) AGAINST ('number' IN BOOLEAN MODE)";
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 2).await?;
    let target = started(kind).await?;
    for inserts in [false, true] {
        let contents = tailwater_folder::read(folder.path(), false)?;
        let options = LoadOptions { inserts, ..LoadOptions::new(target.connect_options()) };
        load(&contents, &options, &Arc::default(), &CancellationToken::new()).await?;
        ensure_equal(&before, &all(&target).await?)?;
        ensure!(
            target.sql(found).await? == ["20"],
            "the full-text index does not find the rows after a load with inserts = {inserts}"
        );
        target.sql("DROP DATABASE odd; DROP DATABASE tailwater").await?;
    }
    let load = LoadOptions::new(target.connect_options());
    let options = CopyOptions::new(source.connect_options(), Selection::default(), load);
    copy(&options, &Arc::default(), &CancellationToken::new()).await?;
    ensure_equal(&before, &all(&target).await?)?;
    ensure!(target.sql(found).await? == ["20"], "the full-text index does not find the rows after a copy");
    target.sql("DROP DATABASE odd; DROP DATABASE tailwater").await?;
    let out = DumpStream::default();
    let options = DumpOptions { chunk_rows_max: 2, ..DumpOptions::new(source.connect_options(), "") };
    dump_stream(options, Box::new(out.clone()), Arc::default(), CancellationToken::new()).await?;
    let stream = std::mem::take(&mut *out.0.lock().unwrap());
    run_script(&target, &stream)?;
    ensure_equal(&before, &all(&target).await?)?;
    ensure!(
        target.sql(found).await? == ["20"],
        "the full-text index does not find the rows that the stock client has loaded"
    );
    Ok(())
}

/// On the target, ENUM values with index 0 have been replaced by the member with the same text, as an earlier
/// version of Tailwater did. Rows that violate their CHECK have been deleted.
async fn values_without_a_member_are_repaired(source: &Server, target: &Server) -> Result<()> {
    let is_mariadb = source.kind().flavour() == Flavour::MariaDb;
    target.sql("UPDATE odd.members SET e = 3, z = 3, l = 2 WHERE id = 3").await?;
    if is_mariadb {
        target.sql("DELETE FROM odd.violating WHERE id IN (1, 4)").await?;
    }
    let options = CheckOptions {
        selection: Selection { schemas: vec!["odd".into()], ..Selection::default() },
        sync_method: Some(SyncMethod::None),
        ..CheckOptions::new(source.connect_options(), target.connect_options())
    };
    let report = run(&options).await?;
    let of = |table: &str| report.differences.iter().filter(|found| found.table == table).collect::<Vec<_>>();
    let [row] = of("members")[..] else {
        anyhow::bail!("the table `members` must have exactly one difference: {report:?}")
    };
    let DifferenceKind::Changed { columns } = &row.what else {
        anyhow::bail!("the row is not reported as changed: {row:?}")
    };
    ensure!(*columns == ["e", "z", "l"], "other columns than e, z and l are reported as changed: {row:?}");
    ensure!(
        of("violating").len() == if is_mariadb { 2 } else { 0 },
        "the deleted rows are not reported: {report:?}"
    );
    let repairing = RepairOptions::new(options.clone());
    let progress = Arc::new(BulkProgress::default());
    let repaired = repair(&repairing, Throttle::open(), progress, CancellationToken::new()).await?;
    ensure!(
        repaired.rows.len() == report.differences.len() && repaired.is_equal(),
        "the repair has not repaired all rows: {repaired:?}"
    );
    ensure!(run(&options).await?.is_equal());
    // The two sides now declare different members, so the check compares the texts. It must still distinguish
    // index 0 from the member with the empty text.
    target.sql("ALTER TABLE odd.members MODIFY e ENUM('red', 'green', '', 'more')").await?;
    ensure!(run(&options).await?.is_equal());
    target.sql("UPDATE odd.members SET e = 3 WHERE id = 3").await?;
    let report = run(&options).await?;
    ensure!(report.differences.len() == 1, "the check must find exactly one difference: {report:?}");
    target.sql("SET sql_mode = ''; UPDATE odd.members SET e = 0 WHERE id = 3").await?;
    target.sql("SET sql_mode = ''; ALTER TABLE odd.members MODIFY e ENUM('red', 'green', '')").await?;
    Ok(())
}

/// The target logs statements. InnoDB then refuses writes in a READ COMMITTED transaction.
async fn a_target_with_statement_logging_can_be_loaded(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = started(kind).await?;
    source.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT PRIMARY KEY); INSERT INTO shop.t VALUES (1), (2)").await?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 10).await?;
    let spec = ServerSpec::new(kind).options(["--local-infile=1", "--binlog-format=STATEMENT"]);
    let target = Server::start(spec).await?;
    target.sql("CREATE USER loader; GRANT CREATE, DROP, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE ON *.* TO loader").await?;
    let contents = tailwater_folder::read(folder.path(), false)?;
    if kind.flavour() == Flavour::MySql {
        // Without this privilege, no account can load a dump into this server.
        target.sql("GRANT SESSION_VARIABLES_ADMIN ON *.* TO loader").await?;
    }
    let load_as = async |user: Option<&str>| {
        let mut connect = target.connect_options();
        if let Some(user) = user {
            connect.user = user.into();
        }
        load(&contents, &LoadOptions::new(connect), &Arc::default(), &CancellationToken::new()).await
    };
    if kind.flavour() == Flavour::MariaDb {
        let refused =
            load_as(Some("loader")).await.err().context("the load succeeded, although it must fail")?;
        ensure!(
            matches!(refused, BulkError::BinlogFormat { .. }),
            "the load was not refused because of the binlog format: {refused}"
        );
        ensure!(
            refused.to_string().contains("Grant it BINLOG ADMIN"),
            "the error does not name the missing privilege: {refused}"
        );
        ensure!(target.sql("SHOW DATABASES LIKE 'shop'").await?.is_empty());
        target.sql("GRANT BINLOG ADMIN ON *.* TO loader").await?;
    }
    load_as(Some("loader")).await?;
    ensure!(target.sql("SELECT COUNT(*) FROM shop.t").await? == ["2"]);
    ensure!(load_as(None).await.is_err_and(|error| error.code() == "TW-BULK-0022"));
    target.sql("DROP DATABASE shop; DROP DATABASE tailwater").await?;
    let load = LoadOptions::new(target.connect_options());
    let options = CopyOptions::new(source.connect_options(), Selection::default(), load);
    copy(&options, &Arc::default(), &CancellationToken::new()).await?;
    ensure!(target.sql("SELECT COUNT(*) FROM shop.t").await? == ["2"]);
    Ok(())
}

/// A load creates no object before it has checked that it can create all of them. If an interrupted load left
/// rows in a table that cannot be emptied, the next load does not load these rows twice.
async fn missing_engines_are_refused(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let source = has_archive(kind).await?;
    source
        .sql("CREATE DATABASE shop; CREATE TABLE shop.a (id INT PRIMARY KEY); INSERT INTO shop.a VALUES (1)")
        .await?;
    let with_archive = engines(&source).await?.iter().any(|engine| engine == "ARCHIVE");
    if with_archive {
        source.sql("CREATE TABLE shop.b (id INT, t TEXT) ENGINE=ARCHIVE; INSERT INTO shop.b VALUES (1, 'x'), (2, 'y')").await?;
    }
    let folder = test_dump_folders::write(&source, DumpCompression::None, 10).await?;
    let target = has_archive(kind).await?;
    let file = folder.path().join("shop.a.table.sql");
    let definition = std::fs::read_to_string(&file)?;
    std::fs::write(&file, definition.replace("ENGINE=InnoDB", "ENGINE=Falcon"))?;
    let options = LoadOptions { workers: 1, ..LoadOptions::new(target.connect_options()) };
    let load_now = async |options: &LoadOptions| {
        let contents = tailwater_folder::read(folder.path(), false)?;
        load(&contents, options, &Arc::default(), &CancellationToken::new()).await
    };
    let refused = load_now(&options).await.err().context("the load succeeded, although it must fail")?;
    ensure!(
        matches!(&refused, BulkError::EngineMissing { engine, table, .. } if engine == "Falcon" && table == "shop.a"),
        "the load was not refused because of the missing engine: {refused}"
    );
    ensure!(target.sql("SHOW DATABASES LIKE 'shop'").await?.is_empty());
    // If a table already exists, rows are loaded into it, whatever its engine on the source was.
    target.sql("CREATE DATABASE shop; CREATE TABLE shop.a (id INT PRIMARY KEY)").await?;
    load_now(&LoadOptions { merge: true, ..options.clone() }).await?;
    ensure!(target.sql("SELECT id FROM shop.a").await? == ["1"]);
    target.sql("DROP DATABASE shop; DROP DATABASE tailwater").await?;
    std::fs::write(&file, &definition)?;
    if !with_archive {
        return Ok(());
    }
    let rows = folder.path().join("shop.b.000000.tsv");
    let good = std::fs::read(&rows)?;
    std::fs::write(&rows, b"1\tx\n2\tz\n")?;
    let refused = load_now(&options).await.err().context("the load succeeded, although it must fail")?;
    ensure!(refused.code() == "TW-BULK-0002", "the load was not refused with TW-BULK-0002: {refused}");
    std::fs::write(&rows, good)?;
    target.sql("INSERT INTO shop.b VALUES (1, 'left')").await?;
    load_now(&LoadOptions { resume: true, ..options }).await?;
    ensure!(target.sql("SELECT id, t FROM shop.b ORDER BY id").await? == ["1\tx", "2\ty"]);
    Ok(())
}

/// If a transaction reads from an Aria table, Aria joins the transaction. From then on the transaction
/// accepts no savepoint.
async fn tables_of_engines_without_savepoints_are_copied(kind: ServerKind) -> Result<()> {
    if kind.flavour() != Flavour::MariaDb || require(kind).is_none() {
        return Ok(());
    }
    let source = started(kind).await?;
    source
        .sql(
            "CREATE DATABASE shop; USE shop; CREATE TABLE ar (id INT) ENGINE=Aria TRANSACTIONAL=1; \
             CREATE TABLE br (id INT PRIMARY KEY, t TEXT) ENGINE=Aria TRANSACTIONAL=1; CREATE TABLE ii (id INT PRIMARY KEY); \
             CREATE TABLE jj (id INT PRIMARY KEY, t LONGTEXT); CREATE TABLE mm (id INT) ENGINE=MyISAM; \
             INSERT INTO ar VALUES (1), (2); INSERT INTO br VALUES (1, 'a'); INSERT INTO ii VALUES (1), (2), (3); \
             INSERT INTO jj VALUES (1, REPEAT('x', 100000)); INSERT INTO mm VALUES (1)",
        )
        .await?;
    let before = all(&source).await?;
    let folder = test_dump_folders::write(&source, DumpCompression::Zstd, 2).await?;
    let target = started(kind).await?;
    let contents = tailwater_folder::read(folder.path(), false)?;
    let options = LoadOptions::new(target.connect_options());
    load(&contents, &options, &Arc::default(), &CancellationToken::new()).await?;
    ensure_equal(&before, &all(&target).await?)?;
    target.sql("DROP DATABASE shop; DROP DATABASE tailwater").await?;
    let options = CopyOptions::new(source.connect_options(), Selection::default(), options);
    copy(&options, &Arc::default(), &CancellationToken::new()).await?;
    ensure_equal(&before, &all(&target).await?)
}
