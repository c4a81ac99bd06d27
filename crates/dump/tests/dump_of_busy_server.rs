//! Dumps real servers. A dump has one point in time under load, is complete after an interruption, and does
//! not block other sessions.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use tailwater_dump::dump_folder::{DumpCompression, DumpFolder, Manifest, RowFormat, TableEntry};
use tailwater_dump::{DumpOptions, dump};
use tailwater_sandbox::{Link, Server, ServerKind, ServerSpec, require};
use tailwater_session::{ConnectOptions, Connection, SessionError};
use tailwater_tables::chunker::chunk_queries::SESSION_SETTINGS;
use tailwater_tables::schema::{Selection, TableName};
use tailwater_tables::snapshot::{Snapshot, SnapshotOptions};
use tailwater_tables::{BulkError, BulkProgress, schema};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tokio_util::sync::CancellationToken;

on_each_server!(
    files_equal_the_result_of_a_query,
    a_dump_under_load_is_of_one_point_in_time,
    a_replica_without_log_updates_is_dumped_at_one_point_in_time,
    an_interrupted_dump_resumes,
    definitions_change_as_soon_as_tables_are_finished,
    accounts_with_few_privileges_can_dump,
    a_dump_ends_during_definition_changes,
    a_long_statement_does_not_block_other_sessions,
);

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn start(kind: ServerKind) -> Result<Option<Server>> {
    if require(kind).is_none() {
        return Ok(None);
    }
    let mut spec = ServerSpec::new(kind).options(["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"]);
    if kind.flavour() == Flavour::MySql {
        spec = spec.options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]);
    }
    Ok(Some(Server::start(spec).await?))
}

pub(crate) fn options(connect: ConnectOptions, folder: &Path) -> DumpOptions {
    DumpOptions { chunk_rows_max: 500, connections: 3, ..DumpOptions::new(connect, folder) }
}

pub(crate) async fn run(options: DumpOptions) -> Result<Manifest, BulkError> {
    let report = dump(options, Arc::new(BulkProgress::default()), CancellationToken::new()).await?;
    Ok(report.manifest)
}

pub(crate) fn table<'a>(manifest: &'a Manifest, name: &str) -> Result<&'a TableEntry> {
    manifest
        .tables
        .iter()
        .find(|entry| entry.table == name)
        .with_context(|| format!("the manifest has no table {name}"))
}

/// Reads the rows of a table's files. Each row is the text of its fields, as `LOAD DATA` reads them.
pub(crate) fn rows_of(folder: &Path, entry: &TableEntry) -> Result<Vec<Vec<Option<Vec<u8>>>>> {
    let mut rows = Vec::new();
    for chunk in &entry.chunks {
        let written = chunk.written.with_context(|| format!("{} is not finished", chunk.file))?;
        let file = std::fs::read(folder.join(&chunk.file))?;
        ensure!(
            file.len() as u64 == written.file_bytes,
            "the file {} has {} bytes, which differs from the manifest",
            chunk.file,
            file.len()
        );
        let mut text = Vec::new();
        if chunk.file.ends_with(".zst") {
            zstd::Decoder::new(file.as_slice())?.read_to_end(&mut text)?;
        } else if chunk.file.ends_with(".gz") {
            // The reader also verifies the checksum at the end of the file, and that no bytes follow it.
            GzDecoder::new(file.as_slice()).read_to_end(&mut text)?;
        } else {
            text = file;
        }
        ensure!(
            text.len() as u64 == written.bytes && crc32fast::hash(&text) == written.crc32,
            "the size or the checksum of the data file {} is wrong",
            chunk.file
        );
        let before = rows.len();
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\n").context("the last line of the data file is incomplete")?;
            rows.push(line.split(|&byte| byte == b'\t').map(field).collect());
        }
        ensure!(
            (rows.len() - before) as u64 == written.rows,
            "{}: the number of rows differs from the manifest",
            chunk.file
        );
    }
    ensure!(
        rows.len() as u64 == entry.rows,
        "the files of table {} have {} rows, which differs from the manifest",
        entry.table,
        rows.len()
    );
    Ok(rows)
}

fn field(field: &[u8]) -> Option<Vec<u8>> {
    if field == b"\\N" {
        return None;
    }
    let mut value = Vec::new();
    let mut bytes = field.iter();
    while let Some(&byte) = bytes.next() {
        let escaped = if byte == b'\\' { bytes.next() } else { None };
        value.push(match escaped {
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'0') => 0,
            Some(&other) => other,
            None => byte,
        });
    }
    Some(value)
}

/// Tables of different kinds, and a few other objects.
const TABLES: &[&str] = &[
    "CREATE DATABASE shop CHARACTER SET utf8mb4",
    "CREATE TABLE shop.plain (id INT AUTO_INCREMENT PRIMARY KEY, t TEXT, b BLOB, g INT AS (LENGTH(t)) VIRTUAL, \
     d DECIMAL(20,5), f DOUBLE, m DATETIME(6), e ENUM('x','y'), bits BIT(11), j JSON, p POINT)",
    "CREATE TABLE shop.`odd.na/me` (k VARCHAR(30) CHARACTER SET utf16 PRIMARY KEY, v LONGTEXT CHARACTER SET latin1)",
    "CREATE TABLE shop.keyless (a INT, b VARCHAR(20))",
    "CREATE TABLE shop.empty (a INT)",
    "CREATE TABLE shop.parts (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3",
    "CREATE VIEW shop.seen AS SELECT id FROM shop.plain",
    "CREATE TABLE shop.digits (n INT PRIMARY KEY)",
    "INSERT INTO shop.digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)",
    "INSERT INTO shop.plain (t, b, d, f, m, e, bits, j, p) SELECT CONCAT('a\\tb\\nc\\\\N', x.n, y.n, 'ä'), \
     UNHEX(CONCAT('00095C0A27', LPAD(HEX(x.n * 16 + y.n), 2, '0'))), x.n / 7, y.n / 3, '2026-01-01 00:00:00.5', \
     IF(x.n = 3, NULL, 'y'), x.n * 100, JSON_OBJECT('k', y.n), POINT(x.n, y.n) \
     FROM shop.digits x, shop.digits y, shop.digits z, shop.digits w",
    "INSERT INTO shop.`odd.na/me` SELECT CONCAT('ж', id), REPEAT('ü', id % 50) FROM shop.plain",
    "INSERT INTO shop.keyless SELECT id, IF(id % 2, NULL, '') FROM shop.plain",
    "INSERT INTO shop.parts SELECT id, id FROM shop.plain",
];

pub(crate) async fn fill(server: &Server) -> Result<Connection> {
    let mut connection = Connection::connect(&server.socket_options()).await?;
    for statement in TABLES {
        connection.execute(statement).await.context(*statement)?;
    }
    Ok(connection)
}

async fn files_equal_the_result_of_a_query(kind: ServerKind) -> Result<()> {
    let Some(server) = start(kind).await? else { return Ok(()) };
    let mut connection = fill(&server).await?;
    let folder = tempfile::tempdir()?;
    for compression in [DumpCompression::Zstd, DumpCompression::Gzip, DumpCompression::None] {
        let folder = folder.path().join(RowFormat::Tsv.ending(compression));
        let manifest = run(DumpOptions { compression, ..options(server.connect_options(), &folder) }).await?;
        ensure!(manifest.finished_at.is_some() && manifest == DumpFolder::read(&folder)?);
        ensure!(manifest.snapshots.len() == 1 && manifest.snapshots_used().len() == 1);
        compare(&mut connection, &folder, &manifest).await?;
        ensure!(
            table(&manifest, "plain")?.chunks.len() > 10 && table(&manifest, "keyless")?.chunks.len() == 1
        );
        let files = manifest.tables.iter().map(|entry| &entry.file);
        let files = files.chain(manifest.objects.iter().map(|entry| &entry.file));
        for file in files.chain(manifest.schemas.iter().map(|entry| &entry.file)) {
            ensure!(std::fs::metadata(folder.join(file))?.len() > 0, "the file {file} is empty");
        }
        ensure!(manifest.objects.len() == 1 && !folder.join("manifest.json.partial").exists());
        // A finished dump must not be overwritten.
        let again = run(options(server.connect_options(), &folder)).await;
        ensure!(
            matches!(again, Err(BulkError::FolderNotEmpty { .. })),
            "a finished dump was overwritten: {again:?}"
        );
    }
    Ok(())
}

/// Compares the dumped rows of every table with the result of the same query on one connection.
async fn compare(connection: &mut Connection, folder: &Path, manifest: &Manifest) -> Result<()> {
    schema::prepare(connection).await?;
    connection.execute(SESSION_SETTINGS).await?;
    for entry in &manifest.tables {
        let columns: Vec<_> = entry.columns.iter().map(|column| format!("`{}`", column.name)).collect();
        ensure!(!columns.contains(&"`g`".to_owned()), "a generated column was dumped");
        let sql = format!("SELECT {} FROM `{}`.`{}`", columns.join(", "), entry.schema, entry.table);
        let answer = connection.query(&sql).await?;
        let values = |row: &tailwater_session::TextRow| -> Vec<_> {
            (0..row.len()).map(|column| row.get(column).map(<[u8]>::to_vec)).collect()
        };
        let mut asked: Vec<_> = answer.rows.iter().map(values).collect();
        let mut dumped = rows_of(folder, entry)?;
        asked.sort();
        dumped.sort();
        ensure!(
            asked == dumped,
            "{}: the server has {} rows, the dump has {}",
            entry.table,
            asked.len(),
            dumped.len()
        );
    }
    Ok(())
}

/// Writes transactions. Each transaction inserts a row into each of three tables, in an order that varies.
async fn write_on(mut connection: Connection, stop: CancellationToken) -> Result<u64> {
    let mut written = 0;
    while !stop.is_cancelled() {
        written += 1;
        connection.execute("BEGIN").await?;
        for table in 0..3 {
            let table = (table + written) % 3;
            connection
                .execute(&format!("INSERT INTO load_{table} VALUES ({written}, REPEAT('x', 100))"))
                .await?;
        }
        connection.execute("UPDATE total SET n = n + 1").await?;
        connection.execute("COMMIT").await?;
    }
    Ok(written)
}

async fn a_dump_under_load_is_of_one_point_in_time(kind: ServerKind) -> Result<()> {
    let Some(server) = start(kind).await? else { return Ok(()) };
    let load = Load::begin(&server).await?;
    dump_under_load(&load, &server, true).await?;
    load.end().await
}

/// Dumps replicas with default settings. The binlog position of such a replica does not change when its data
/// changes.
async fn a_replica_without_log_updates_is_dumped_at_one_point_in_time(kind: ServerKind) -> Result<()> {
    let Some(source) = start(kind).await? else { return Ok(()) };
    let options: &[&[&str]] = match kind.flavour() {
        Flavour::MariaDb => {
            &[&["--server-id=2", "--log-slave-updates=0"], &["--server-id=2", "--skip-log-bin"]]
        }
        Flavour::MySql => &[&[
            "--server-id=2",
            "--log-replica-updates=0",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
        ]],
    };
    let mut load = None;
    for &options in options {
        let replica = Server::start(ServerSpec::new(kind).options(options.iter().copied())).await?;
        replica.replicate_from(&source).await?;
        // The replica has its own transactions in its binlog, like a former primary. They are older than the
        // transactions that it has applied since then.
        if options.contains(&"--log-slave-updates=0") {
            replica.sql("CREATE DATABASE own").await?;
        }
        let load = match &load {
            Some(load) => load,
            None => load.insert(Load::begin(&source).await?),
        };
        dump_under_load(load, &replica, !options.contains(&"--skip-log-bin")).await?;
        if kind.flavour() == Flavour::MariaDb {
            // Any account that dumps must be able to find out that the server replicates, whatever privileges
            // the account has.
            let looker = "SET sql_log_bin=0; CREATE USER IF NOT EXISTS looker@'%'";
            replica.sql(looker).await?;
            let looker = ConnectOptions { user: "looker".into(), ..replica.connect_options() };
            let mut looker = Connection::connect(&looker).await?;
            let running = looker.query("SHOW GLOBAL STATUS LIKE 'slaves\\_running'").await?;
            ensure!(
                running.first().and_then(|row| row.get_u64(1)) == Some(1),
                "the server is not a running replica: {running:?}"
            );
        }
    }
    load.context("the source has no write load")?.end().await
}

/// A continuous write load.
struct Load {
    before: u64,
    stop: CancellationToken,
    writer: tokio::task::JoinHandle<Result<u64>>,
}

impl Load {
    async fn begin(server: &Server) -> Result<Self> {
        let mut control = Connection::connect(&server.socket_options()).await?;
        control.execute("CREATE DATABASE live").await?;
        control.execute("USE live").await?;
        for number in 0..3 {
            let key = ["INT PRIMARY KEY", "INT NOT NULL UNIQUE", "VARCHAR(20) PRIMARY KEY"][number];
            control.execute(&format!("CREATE TABLE load_{number} (id {key}, t TEXT)")).await?;
        }
        control.execute("CREATE TABLE total (n INT)").await?;
        control.execute("INSERT INTO total VALUES (0)").await?;
        let before = transactions(server.kind(), &gtids(&mut control).await?)?;
        let stop = CancellationToken::new();
        let connection = Connection::connect(&server.socket_options().database("live")).await?;
        let writer = tokio::spawn(write_on(connection, stop.clone()));
        Ok(Self { before, stop, writer })
    }

    async fn end(self) -> Result<()> {
        self.stop.cancel();
        ensure!(self.writer.await?? > 0, "the write load committed nothing");
        Ok(())
    }
}

/// Dumps a server several times while the write load runs on it or is replicated to it. Checks that each dump
/// has the point in time that its manifest records.
async fn dump_under_load(load: &Load, server: &Server, has_binlog: bool) -> Result<()> {
    let Load { before, writer, .. } = load;
    let kind = server.kind();
    let mut control = Connection::connect(&server.socket_options()).await?;
    let start = std::time::Instant::now();
    while count(&mut control).await.is_err() {
        ensure!(start.elapsed() < PATIENCE, "the table live.total did not arrive on the server in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let folder = tempfile::tempdir()?;
    for round in 0..4 {
        // The dumps use one to four connections. Each dump starts at least 50 transactions after the dump
        // before it.
        let at = folder.path().join(round.to_string());
        let seen = count(&mut control).await?;
        while count(&mut control).await? < seen + 50 {
            ensure!(!writer.is_finished(), "the write load ended before the test stopped it");
        }
        let options = DumpOptions {
            chunk_rows_max: 40,
            connections: 1 + round,
            ..options(server.connect_options(), &at)
        };
        let report = dump(options, Arc::new(BulkProgress::default()), CancellationToken::new()).await?;
        let (manifest, method) = (report.manifest, report.method);
        let total = rows_of(&at, table(&manifest, "total")?)?;
        let [total] = total.as_slice() else {
            bail!("the dump of the table `total` does not have exactly one row: {total:?}")
        };
        let total: u64 =
            String::from_utf8(total[0].clone().context("the row of the table `total` is NULL")?)?.parse()?;
        ensure!(
            total >= seen + 50,
            "the dump has {total} transactions, fewer than the {seen} before it plus 50"
        );
        for number in 0..3 {
            let rows = rows_of(&at, table(&manifest, &format!("load_{number}"))?)?;
            let ids = rows.into_iter().map(|row| {
                Ok(String::from_utf8(row[0].clone().context("the number of a row is NULL")?)?.parse()?)
            });
            let mut ids = ids.collect::<Result<Vec<u64>>>()?;
            ids.sort_unstable();
            let (rows, last) = (ids.len(), ids.last().copied());
            ensure!(
                ids == (1..=total).collect::<Vec<_>>(),
                "{method}: load_{number} has {rows} rows up to {last:?}, expected {total}"
            );
        }
        // The dumped rows must be those at the position that the manifest records.
        let point = manifest.snapshots.first().context("the manifest has no snapshot")?;
        let named = point.gtid_set.as_deref().context("the snapshot has no GTIDs")?;
        ensure!(
            transactions(kind, named)? - before == total,
            "{method}: the dump has {total} transactions, but its GTIDs are {named}, of which {before} are older than the test"
        );
        ensure!(point.binlog_file.is_some() == has_binlog && point.binlog_position.is_some() == has_binlog);
    }
    Ok(())
}

async fn count(connection: &mut Connection) -> Result<u64> {
    let n = connection.query("SELECT n FROM live.total").await?;
    n.first().and_then(|row| row.get_u64(0)).context("the sum is NULL")
}

async fn gtids(connection: &mut Connection) -> Result<String> {
    let sql = match connection.server().flavour {
        Flavour::MySql => "SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')",
        Flavour::MariaDb => "SELECT @@GLOBAL.gtid_binlog_pos",
    };
    Ok(connection.query(sql).await?.scalar().unwrap_or_default().to_owned())
}

/// Returns the number of transactions in the GTIDs of a server with a single history.
fn transactions(kind: ServerKind, gtids: &str) -> Result<u64> {
    GtidSet::parse(kind.flavour(), gtids)?;
    let last = gtids.rsplit([':', '-']).next().unwrap_or_default();
    last.parse().with_context(|| gtids.to_owned())
}

async fn an_interrupted_dump_resumes(kind: ServerKind) -> Result<()> {
    let Some(server) = start(kind).await? else { return Ok(()) };
    let mut connection = fill(&server).await?;
    let folder = tempfile::tempdir()?;
    let folder = folder.path().join("dump");
    // The checks of finished files are tested with both compressions, one for each server family.
    let compression = match kind.flavour() {
        Flavour::MySql => DumpCompression::Gzip,
        Flavour::MariaDb => DumpCompression::Zstd,
    };
    let options = |connect, folder: &Path| DumpOptions { compression, ..options(connect, folder) };
    let (mut interruptions, mut finished) = (0, BTreeMap::new());
    // Each attempt dumps a few more chunks and is then interrupted.
    let manifest = loop {
        let options = DumpOptions { resume: true, ..options(server.connect_options(), &folder) };
        let (progress, cancel) = (Arc::new(BulkProgress::default()), CancellationToken::new());
        let running = tokio::spawn(dump(options, Arc::clone(&progress), cancel.clone()));
        while progress.figures().chunks < 6 && !running.is_finished() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
        let outcome = running.await?;
        // Finished chunks must not change in later attempts.
        let manifest = DumpFolder::read(&folder)?;
        for chunk in manifest.tables.iter().flat_map(|entry| &entry.chunks) {
            let Some(written) = chunk.written else { continue };
            let first = finished.entry(chunk.file.clone()).or_insert(written);
            ensure!(*first == written, "the file {} was dumped again", chunk.file);
        }
        match outcome {
            Ok(report) => break report.manifest,
            Err(BulkError::Interrupted) => interruptions += 1,
            Err(error) => return Err(error.into()),
        }
        ensure!(interruptions < 100, "after 100 interruptions the dump is still incomplete");
    };
    ensure!(
        interruptions > 1 && manifest.is_complete(),
        "the dump is incomplete, or was interrupted only {interruptions} times"
    );
    ensure!(
        manifest.snapshots_used().len() > 1,
        "all chunks are from one snapshot, although the dump was resumed: {:?}",
        manifest.snapshots
    );
    compare(&mut connection, &folder, &manifest).await?;
    let left: Vec<_> =
        std::fs::read_dir(&folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    ensure!(
        !left.iter().any(|name| name.ends_with(".partial")),
        "incomplete files remain in the folder: {left:?}"
    );
    // A missing file is dumped again. A changed definition is refused.
    let lost = &table(&manifest, "plain")?.chunks[3].file;
    std::fs::remove_file(folder.join(lost))?;
    let resumed = DumpOptions { resume: true, ..options(server.connect_options(), &folder) };
    let repaired = run(resumed.clone()).await?;
    compare(&mut connection, &folder, &repaired).await?;
    // A complete dump does not take another snapshot when it is resumed.
    ensure!(run(resumed.clone()).await?.snapshots == repaired.snapshots);
    std::fs::write(folder.join(lost), b"shorter")?;
    connection.execute("ALTER TABLE shop.plain ADD COLUMN more INT").await?;
    let refused = run(resumed).await;
    ensure!(
        matches!(refused, Err(BulkError::ResumeImpossible { .. })),
        "the resumed dump accepted a changed definition: {refused:?}"
    );
    Ok(())
}

async fn definitions_change_as_soon_as_tables_are_finished(kind: ServerKind) -> Result<()> {
    let Some(server) = start(kind).await? else { return Ok(()) };
    let mut connection = fill(&server).await?;
    connection.execute("ANALYZE TABLE shop.plain, shop.keyless").await?;
    let link = Link::open(server.address()).await?;
    let mut connect = server.connect_options();
    connect.endpoint = tailwater_session::Endpoint::tcp("127.0.0.1", link.port());
    let folder = tempfile::tempdir()?;
    let mut options = DumpOptions { connections: 1, ..options(connect, &folder.path().join("dump")) };
    options.selection.tables = vec![TableName::new("shop", "plain"), TableName::new("shop", "keyless")];
    let progress = Arc::new(BulkProgress::default());
    let running = tokio::spawn(dump(options, Arc::clone(&progress), CancellationToken::new()));
    while progress.figures().tables == 0 && !running.is_finished() {
        tokio::task::yield_now().await;
    }
    // From here on, the network link is too slow for the dump to finish a chunk.
    link.set_bandwidth(Some(1));
    connection.execute("SET SESSION lock_wait_timeout = 60").await?;
    connection
        .execute("ALTER TABLE shop.plain ADD COLUMN more INT")
        .await
        .context("the table was not altered: the dump has not finished it, or still locks it")?;
    connection.execute("SET SESSION lock_wait_timeout = 1").await?;
    let refused = connection.execute("ALTER TABLE shop.keyless ADD COLUMN more INT").await;
    ensure!(is_lock_timeout(&refused), "a table that is being dumped could be altered: {refused:?}");
    link.set_bandwidth(None);
    let report = tokio::time::timeout(PATIENCE, running).await???;
    ensure!(report.manifest.is_complete());
    Ok(())
}

fn is_lock_timeout<T>(outcome: &Result<T, SessionError>) -> bool {
    matches!(outcome, Err(SessionError::Server { error, .. }) if error.number == 1205)
}

async fn accounts_with_few_privileges_can_dump(kind: ServerKind) -> Result<()> {
    let Some(server) = start(kind).await? else { return Ok(()) };
    let mut connection = fill(&server).await?;
    for statement in [
        "CREATE USER dumper IDENTIFIED BY 'x'",
        "GRANT SELECT, SHOW VIEW, LOCK TABLES, TRIGGER, EVENT, EXECUTE ON shop.* TO dumper",
    ] {
        connection.execute(statement).await?;
    }
    let connect = ConnectOptions { user: "dumper".into(), ..server.connect_options() }.password("x");
    let folder = tempfile::tempdir()?;
    let folder = folder.path().join("dump");
    let progress = Arc::new(BulkProgress::default());
    let selection = Selection { schemas: vec!["shop".into()], ..Selection::default() };
    let options = DumpOptions { selection, ..options(connect, &folder) };
    let report = dump(options, progress, CancellationToken::new()).await?;
    let expected = if kind.flavour() == Flavour::MySql { "table locks" } else { "lock-free comparison" };
    ensure!(report.method == expected, "the snapshot method is {}, expected {expected}", report.method);
    compare(&mut connection, &folder, &report.manifest).await
}

/// During a dump, a session that alters a table waits until the dump of that table is finished, and does not
/// block other sessions. A dump finishes during any number of such changes. Each table of the dump is
/// complete and has one definition.
async fn a_dump_ends_during_definition_changes(kind: ServerKind) -> Result<()> {
    const TABLES: u32 = 5;
    let Some(server) = start(kind).await? else { return Ok(()) };
    let mut writer = fill(&server).await?;
    for table in 0..TABLES {
        let sql = format!("CREATE TABLE shop.changing{table} AS SELECT * FROM shop.plain");
        writer.execute(&sql).await?;
        writer
            .execute(&format!("ALTER TABLE shop.changing{table} ADD COLUMN own INT AUTO_INCREMENT UNIQUE"))
            .await?;
    }
    let rows = writer.query("SELECT COUNT(*) FROM shop.plain").await?.scalar().map(str::to_owned);
    let stop = CancellationToken::new();
    let changing: Vec<_> = (0..TABLES)
        .map(|table| (server.socket_options(), stop.clone(), table))
        .map(|(connect, stop, table)| {
            tokio::spawn(async move {
                let mut connection = Connection::connect(&connect).await?;
                let mut changes = 0;
                while !stop.is_cancelled() {
                    for sql in [
                        format!("ALTER TABLE shop.changing{table} ADD COLUMN extra INT DEFAULT {changes}"),
                        format!("CREATE TABLE shop.passing{table} (id INT PRIMARY KEY)"),
                        format!("CREATE VIEW shop.passing_view{table} AS SELECT 1 AS one"),
                        format!("ALTER TABLE shop.changing{table} DROP COLUMN extra"),
                        format!("DROP VIEW shop.passing_view{table}"),
                        format!("DROP TABLE shop.passing{table}"),
                    ] {
                        match connection.execute(&sql).await {
                            Ok(_) => changes += 1,
                            // Two definition changes may conflict, or a change may remove an object that does
                            // not exist yet.
                            Err(SessionError::Server { error, .. })
                                if [1213, 1205, 1060, 1050, 1091, 1051].contains(&error.number) => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
                Ok::<_, SessionError>(changes)
            })
        })
        .collect();
    for number in 0..2 {
        let temporary = tempfile::tempdir()?;
        let folder = temporary.path().join("dump");
        let lock_wait_max = Duration::from_secs(1);
        let options = DumpOptions {
            chunk_bytes_max: 20_000,
            lock_wait_max,
            ..options(server.connect_options(), &folder)
        };
        let dumping = dump(options, Arc::new(BulkProgress::default()), CancellationToken::new());
        let report =
            tokio::time::timeout(PATIENCE, dumping).await.context("the dump did not finish in time")??;
        let tables = report.manifest.tables.iter().filter(|table| table.table.starts_with("changing"));
        for table in tables.clone() {
            let found: u64 =
                table.chunks.iter().filter_map(|chunk| chunk.written.as_ref()).map(|it| it.rows).sum();
            ensure!(
                Some(found.to_string()) == rows,
                "table number {number}: {} has {found} rows",
                table.table
            );
            let definition = std::fs::read_to_string(folder.join(&table.file))?;
            ensure!(
                definition.contains("`extra`") == table.columns.iter().any(|column| column.name == "extra"),
                "the definition and the columns of a table do not match: {definition}"
            );
        }
        ensure!(tables.count() == TABLES as usize);
    }
    stop.cancel();
    for changes in changing {
        ensure!(changes.await?? > 0, "no definition was changed during the dump");
    }
    Ok(())
}

/// A long statement runs during a dump. If the dump waited for that statement with a lock request, all other
/// sessions would wait too.
async fn a_long_statement_does_not_block_other_sessions(kind: ServerKind) -> Result<()> {
    let Some(server) = start(kind).await? else { return Ok(()) };
    let mut writer = fill(&server).await?;
    let mut long = Connection::connect(&server.socket_options()).await?;
    let running = long.server().connection_id;
    let reading =
        tokio::spawn(async move { long.query("SELECT SLEEP(3600) FROM shop.digits LIMIT 1").await });
    let list =
        format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {running} AND time > 0");
    while writer.query(&list).await?.scalar() != Some("1") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let options = SnapshotOptions {
        connect: server.connect_options(),
        connections: 2,
        lock_wait_max: Duration::from_secs(1),
        selection: Selection { schemas: vec!["shop".into()], ..Selection::default() },
        finished: [TableName::new("shop", "parts")].into(),
        channels_stopped: Vec::new(),
    };
    let snapshot = Snapshot::take(&options).await?;
    let expected = if kind.flavour() == Flavour::MySql { "table locks" } else { "lock-free comparison" };
    let method = snapshot.method.name();
    ensure!(method == expected, "the snapshot method is {method}, expected {expected}");
    writer.execute("INSERT INTO shop.digits VALUES (10)").await?;
    writer.execute(&format!("KILL {running}")).await?;
    ensure!(reading.await?.is_err());
    Ok(())
}
