//! The binlog server answers every statement that real replicas, binlog readers and clients send to a real
//! source.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tailwater_binlog_server::client_statement::{
    ReceiverView, ServedGtids, ServerView, StatementResult, StatementSession, execute,
};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::ChecksumAlgorithm;
use tailwater_wire::gtid::{MariadbBinlogState, MysqlGtidSet};

use crate::capture_test_source::PATIENCE;

/// The account for replicas that the sandbox creates.
const REPLICATION_USER: &str = "tailwater";
const REPLICATION_PASSWORD: &str = "sandbox-tailwater";

/// The statements whose results the tests compare, as `KIND<TAB>statement`. If a test reports that a
/// statement is missing, add it to this file.
const KEPT: &str = include_str!("data/statements.txt");

/// A statement without the parts that differ between runs: UUIDs, and numbers that are not part of a name.
fn normal(statement: &str) -> String {
    let is_uuid = |text: &str| text.len() == 36 && text.matches('-').count() == 4;
    let parts = statement.split('\'').map(|part| if is_uuid(part) { "UUID" } else { part });
    let text = parts.collect::<Vec<_>>().join("'");
    let mut out = String::new();
    for character in text.chars() {
        let previous = out.chars().next_back().unwrap_or(' ');
        match character.is_ascii_digit() && !previous.is_alphabetic() {
            true if previous == '0' => {}
            true => out.push('0'),
            false => out.push(character),
        }
    }
    out
}

async fn statements_of_replicas(source: &Server) -> Result<BTreeSet<String>> {
    let query = format!(
        "SELECT DISTINCT CONVERT(argument USING utf8mb4) FROM mysql.general_log \
         WHERE command_type='Query' AND user_host LIKE '%{REPLICATION_USER}%'"
    );
    Ok(source.sql(&query).await?.into_iter().collect())
}

/// Waits until the source has received `count` requests for a binlog stream from replicas.
async fn wait_for_dumps(source: &Server, count: usize) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let query = "SELECT event_time FROM mysql.general_log WHERE command_type LIKE 'Binlog Dump%'";
    while source.sql(query).await?.len() < count {
        ensure!(Instant::now() < deadline, "the source received no request for a binlog stream");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn replicate(source: &Server, flavour: Flavour) -> Result<()> {
    let semi_sync = ServerSpec::new(source.kind()).name("replica").semi_sync_replica();
    let replica = Server::start(semi_sync.options(["--server-id=77"])).await?;
    replica.replicate_from(source).await?;
    wait_for_dumps(source, 1).await?;
    source.sql("CREATE DATABASE IF NOT EXISTS seen").await?;
    // If a replica is stopped before it knows a binlog file, it cannot request a stream by position. So wait
    // until it has received a transaction.
    let deadline = Instant::now() + PATIENCE;
    while replica.sql("SHOW DATABASES LIKE 'seen'").await?.is_empty() {
        ensure!(Instant::now() < deadline, "the replica receives nothing");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let by_position = match flavour {
        Flavour::MySql => "STOP REPLICA; CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION=0; START REPLICA",
        Flavour::MariaDb => {
            "STOP SLAVE; CHANGE MASTER TO MASTER_USE_GTID=no; SET GLOBAL gtid_ignore_duplicates=1; START SLAVE"
        }
    };
    replica.sql(by_position).await?;
    wait_for_dumps(source, 2).await?;
    if flavour == Flavour::MariaDb {
        let until = "STOP SLAVE; CHANGE MASTER TO MASTER_USE_GTID=slave_pos; SET GLOBAL gtid_strict_mode=1; \
                     SET GLOBAL replicate_events_marked_for_skip=FILTER_ON_MASTER; \
                     START SLAVE UNTIL MASTER_GTID_POS='0-1-9999'";
        replica.sql(until).await?;
        wait_for_dumps(source, 3).await?;
    }
    Ok(())
}

async fn read_with_tools(source: &Server, flavour: Flavour) -> Result<()> {
    let (reader, shell, admin, tls) = match flavour {
        Flavour::MySql => ("mysqlbinlog", "mysql", "mysqladmin", "--get-server-public-key"),
        Flavour::MariaDb => ("mariadb-binlog", "mariadb", "mariadb-admin", "--skip-ssl"),
    };
    let first = source.sql("SHOW BINARY LOGS").await?;
    let first = first
        .first()
        .and_then(|line| line.split('\t').next())
        .context("the source has no binlog file")?
        .to_owned();
    let gtids = match flavour {
        Flavour::MySql => vec![reader, "--read-from-remote-source=BINLOG-DUMP-GTIDS", &first],
        Flavour::MariaDb => vec![reader, "--read-from-remote-server", "--start-position=0-1-1", &first],
    };
    let runs = [
        vec![reader, "--read-from-remote-server", "--to-last-log", &first],
        gtids,
        vec![shell, "--table", "--execute", "status; SHOW WARNINGS"],
        vec![shell, "--table", "seen", "--execute", "use seen; SELECT 1"],
        vec![admin, "ping"],
        vec![admin, "extended-status"],
        vec![admin, "variables"],
        vec![admin, "processlist"],
        vec![admin, "status"],
    ];
    for run in runs {
        let mut command = tokio::process::Command::from(source.tool(run[0])?);
        command.args(["--no-defaults", "--host=127.0.0.1", tls]);
        command.arg(format!("--port={}", source.port())).arg(format!("--user={REPLICATION_USER}"));
        command.arg(format!("--password={REPLICATION_PASSWORD}")).args(&run[1..]);
        // Ignore the result: some of these programs fail after they have sent their statements.
        command.stdin(std::process::Stdio::null()).kill_on_drop(true).output().await?;
    }
    Ok(())
}

async fn collect(kind: ServerKind) -> Result<Option<(Server, BTreeSet<String>)>> {
    if require(kind).is_none() {
        return Ok(None);
    }
    let options = ["--general-log=1", "--log-output=TABLE", "--server-id=1"];
    let source = Server::start(ServerSpec::new(kind).options(options)).await?;
    source.enable_semi_sync_source().await?;
    let wait = match kind.flavour() {
        Flavour::MySql => "SET GLOBAL rpl_semi_sync_source_timeout=1",
        Flavour::MariaDb => "SET GLOBAL rpl_semi_sync_master_timeout=1",
    };
    source.sql(wait).await?;
    replicate(&source, kind.flavour()).await?;
    read_with_tools(&source, kind.flavour()).await?;
    let statements = statements_of_replicas(&source).await?;
    Ok(Some((source, statements)))
}

/// The column names of a statement's result on a real server.
async fn columns(server: &Server, sql: &str) -> Result<Vec<String>> {
    let mut connection = Connection::connect(&server.connect_options()).await?;
    let stream = connection.query_stream(sql).await?;
    Ok(stream.columns().iter().map(|column| column.name.clone()).collect())
}

fn ours(flavour: Flavour, sql: &str) -> Result<Vec<String>> {
    match execute(&mut StatementSession::new(), &view(flavour), sql.as_bytes()) {
        StatementResult::Rows(rows) => Ok(rows.columns.into_iter().map(|column| column.name).collect()),
        other => bail!("the statement {sql} must return rows, but returned {other:?}"),
    }
}

fn view(flavour: Flavour) -> ServerView {
    let gtids = match flavour {
        Flavour::MySql => ServedGtids::Mysql {
            executed: MysqlGtidSet::new(),
            purged: MysqlGtidSet::new(),
            mode: "ON".to_owned(),
        },
        Flavour::MariaDb => ServedGtids::Mariadb { state: MariadbBinlogState::new(), domain: 0 },
    };
    ServerView {
        server_version: String::new(),
        server_id: 1,
        server_uuid: String::new(),
        hostname: String::new(),
        port: 0,
        gtids,
        checksum: ChecksumAlgorithm::Crc32,
        files: Vec::new(),
        replicas: Vec::new(),
        processes: Vec::new(),
        capture: ReceiverView::default(),
        source_variables: BTreeMap::new(),
        semi_sync: true,
        now_us: 0,
        uptime_seconds: 0,
        user: String::new(),
        connection_id: 1,
    }
}

async fn check(kind: ServerKind) -> Result<()> {
    let Some((source, statements)) = collect(kind).await? else { return Ok(()) };
    let flavour = kind.flavour();
    let kept: BTreeSet<_> = KEPT.lines().map(normal).collect();
    let view = view(flavour);
    for statement in &statements {
        let answer = execute(&mut StatementSession::new(), &view, statement.as_bytes());
        ensure!(
            !matches!(answer, StatementResult::Error(_)),
            "the statement {statement} was refused: {answer:?}"
        );
        let line = format!("{}\t{statement}", kind.name());
        ensure!(kept.contains(&normal(&line)), "the file tests/data/statements.txt lacks the line {line}");
    }
    let mut questions = vec![
        "SHOW BINARY LOGS",
        "SHOW PROCESSLIST",
        "SHOW WARNINGS",
        "SHOW VARIABLES LIKE 'server_id'",
        "SHOW GLOBAL STATUS LIKE 'uptime'",
        "SELECT @@version_comment LIMIT 1",
        "SELECT UNIX_TIMESTAMP(), 'text', USER() AS `who`, @a, -1",
    ];
    questions.extend(match flavour {
        Flavour::MySql => ["SHOW BINARY LOG STATUS", "SHOW REPLICAS", "SHOW REPLICA STATUS"],
        Flavour::MariaDb => ["SHOW MASTER STATUS", "SHOW SLAVE HOSTS", "SHOW BINLOG STATUS"],
    });
    questions.extend((flavour == Flavour::MariaDb).then_some("SHOW SLAVE STATUS"));
    // In MariaDB 11.8 the result of this statement has further columns at the end, with event times.
    questions.extend((kind == ServerKind::Mariadb1011).then_some("SHOW ALL SLAVES STATUS"));
    for question in questions {
        let (ours, theirs) = (ours(flavour, question)?, columns(&source, question).await?);
        ensure!(
            ours == theirs,
            "the result of {question} has the columns {ours:?}, but a real server returns {theirs:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_statements_of_clients_of_mysql_97_are_answered() -> Result<()> {
    check(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_statements_of_clients_of_mariadb_1011_are_answered() -> Result<()> {
    check(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_statements_of_clients_of_mariadb_118_are_answered() -> Result<()> {
    check(ServerKind::Mariadb118).await
}
