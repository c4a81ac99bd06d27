//! Checks of real servers: equal rows compare equal, and exactly the differing rows are found.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_check::row_repair::{RepairAction, RepairOptions, RepairOutcome, repair};
use tailwater_check::table_check::target_catch_up_wait::SyncMethod;
use tailwater_check::table_check::{
    CheckOptions, CheckReport, DifferenceKind, Digests, RowDifference, TableFinding, check,
};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;
use tailwater_tables::schema::Selection;
use tailwater_tables::{BulkError, BulkProgress, Throttle};
use tokio_util::sync::CancellationToken;

use crate::column_type_limits;
use crate::seeded_random;
use crate::single_bit_drift::{self, InjectedDifferences, Writers};
use crate::source_and_replica::{ReplicaPair, gtids};
use crate::stock_client::run_script;

/// All ways of computing row digests.
const ALL_DIGESTS: [Digests; 3] =
    [Digests::Quick { seed: 5 }, Digests::Client { seed: 5 }, Digests::OnServers];

on_each_server!(single_bit_changes_are_found_and_repaired_during_writes);

impl ReplicaPair {
    pub fn options(&self) -> CheckOptions {
        let selection = Selection { schemas: vec!["drift".into()], ..Selection::default() };
        CheckOptions {
            selection,
            wait_max: Duration::from_secs(60),
            ..CheckOptions::new(self.source.connect_options(), self.target.connect_options())
        }
    }
}

pub async fn run(options: &CheckOptions) -> Result<CheckReport, BulkError> {
    let throttle = Arc::new(Throttle::open());
    check(options, throttle, Arc::new(BulkProgress::default()), CancellationToken::new()).await
}

/// With `TAILWATER_LONG=1` the test changes a thousand values instead of 300.
async fn single_bit_changes_are_found_and_repaired_during_writes(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let is_long = std::env::var_os("TAILWATER_LONG").is_some();
    // This is the longest of these tests, and it differs little between the two MariaDB versions.
    if kind == ServerKind::Mariadb118 && !is_long {
        return Ok(());
    }
    let count = if is_long { 1000 } else { 300 };
    let servers = ReplicaPair::start(kind).await?;
    let seed = seeded_random::seed();
    let plan = single_bit_drift::Plan::new(seed, kind, count);
    run_script(&servers.source, plan.script().as_bytes())?;
    let gtids = servers.source.sql(gtids(kind)).await?.concat().replace("\\n", "");
    ensure!(servers.target.wait_for_gtids(&gtids, Duration::from_secs(60)).await?);
    let writers = Writers::start(&servers.source, plan.rows).await?;
    let options = servers.options();
    let report = run(&options).await?;
    ensure!(
        report.is_equal(),
        "with seed {seed}, the check finds differences before any change: {report:#?}"
    );
    ensure!(
        report.tables == 5 && report.rows >= 4 * plan.rows as u64,
        "the check has compared only {} rows",
        report.rows
    );

    let injected = plan.inject(&servers.target, count).await?;
    for digests in ALL_DIGESTS {
        let committed = writers.committed();
        // Each chunk has one row, so the sum of each chunk must show its difference.
        let chunk_rows_max = if matches!(digests, Digests::Quick { .. }) { 1 } else { 150 };
        let report = run(&CheckOptions { chunk_rows_max, digests, ..options.clone() }).await?;
        let found: InjectedDifferences = report.differences.iter().map(table_key_and_what).collect();
        let missed: Vec<_> = injected.difference(&found).collect();
        let wrong: Vec<_> = found.difference(&injected).collect();
        ensure!(
            missed.is_empty() && wrong.is_empty(),
            "with seed {seed} and digests {digests:?}, the check missed {missed:?} and wrongly found {wrong:?}"
        );
        ensure!(
            report.findings.is_empty() && injected.len() == count,
            "the check has findings about whole tables: {:?}",
            report.findings
        );
        ensure!(writers.committed() > committed + 10, "the writers committed nothing during the check");
    }

    let dry = RepairOptions { dry_run: true, ..RepairOptions::new(options.clone()) };
    let report = run_repair(&dry).await?;
    ensure!(
        report.rows.len() == count && report.is_equal(),
        "the dry run must report {count} repaired rows, but reports {} rows, some of them perhaps not repaired",
        report.rows.len()
    );
    ensure!(!run(&options).await?.is_equal(), "the dry run changed a row");

    let executed = servers.target.sql("SELECT @@GLOBAL.gtid_executed").await.unwrap_or_default();
    let report = run_repair(&RepairOptions::new(options.clone())).await?;
    let remains: Vec<_> =
        report.rows.iter().filter(|(_, outcome)| matches!(outcome, RepairOutcome::Remains(_))).collect();
    ensure!(report.is_equal(), "with seed {seed}, some differences remain after the repair: {remains:#?}");
    for action in [RepairAction::Insert, RepairAction::Update, RepairAction::Delete] {
        ensure!(
            report.rows.iter().any(|(_, outcome)| *outcome == RepairOutcome::Done(action)),
            "the repair did not report the action {action:?}"
        );
    }
    let report = run(&options).await?;
    ensure!(
        report.is_equal(),
        "with seed {seed}, the servers differ after the repair: {:#?}",
        report.differences
    );
    writers.stop().await?;
    let report = run(&options).await?;
    ensure!(
        report.is_equal(),
        "with seed {seed}, the servers differ after the last write: {:#?}",
        report.differences
    );
    let is_clean = has_no_errant_transactions(&servers, kind).await?;
    ensure!(is_clean, "the target has transactions that the source lacks: {executed:?}");
    Ok(())
}

on_each_server!(differences_do_not_cancel_in_sums);

/// Many rows get the same change, values move from one column to another, and NULL is replaced by values that
/// look similar. If the servers compute the sums themselves, the check transfers few rows.
async fn differences_do_not_cancel_in_sums(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let servers = ReplicaPair::start(kind).await?;
    let script = "CREATE DATABASE summed; USE summed; SET @@cte_max_recursion_depth = 10000; \
         CREATE TABLE flags (id INT PRIMARY KEY, flag TINYINT NOT NULL, big BIGINT NOT NULL, pad CHAR(40) NOT NULL); \
         CREATE TABLE numbers (id BIGINT UNSIGNED PRIMARY KEY, a INT, b INT UNSIGNED, c BIGINT UNSIGNED, \
         s SET('a','b','c'), mask INT UNSIGNED NOT NULL, t TIMESTAMP NULL, x BIT(32), y BIT(33)); \
         CREATE TABLE reals (id INT PRIMARY KEY, d DOUBLE, f FLOAT NOT NULL, e DOUBLE(12,3)); \
         CREATE TABLE pairs (a VARCHAR(20), b VARCHAR(20), c VARCHAR(20), id INT PRIMARY KEY); \
         CREATE TABLE keyless (a INT, b VARCHAR(20)); \
         INSERT INTO flags WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4096) \
         SELECT i, 0, i << 40, REPEAT('x', 40) FROM n; \
         INSERT INTO numbers SELECT id, IF(id % 3 = 0, NULL, -id), 4294967295 - id, IF(id % 5 = 0, NULL, 18446744073709551615 - id), \
         id % 8, id, IF(id % 4 = 0, NULL, FROM_UNIXTIME(id * 1000)), 4294967295 - id, 8589934591 - id FROM flags WHERE id <= 1000; \
         INSERT INTO reals SELECT id, IF(id % 7 = 0, NULL, id / 3), id / 7, IF(id % 5 = 0, NULL, id / 9) FROM numbers; \
         INSERT INTO pairs SELECT 'ab', 'c', NULL, id FROM flags WHERE id <= 64; \
         INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, 'b')";
    // The last member of the SET is the sign bit of a 64-bit number. MariaDB warns about such values.
    let members: Vec<_> = (0..64).map(|member| format!("'{member}'")).collect();
    let script = format!(
        "{script}; CREATE TABLE sets (id INT PRIMARY KEY, s SET({})); \
         INSERT INTO sets VALUES (1, 9223372036854775809), (2, 18446744073709551615)",
        members.join(",")
    );
    let script = if kind == ServerKind::Mysql97 {
        script
    } else {
        script.replace("@@cte_max", "@@max").replace("recursion_depth", "recursive_iterations")
    };
    run_script(&servers.source, script.as_bytes())?;
    let selection = Selection { schemas: vec!["summed".into()], ..Selection::default() };
    let options = CheckOptions { selection, ..servers.options() };
    let gtids = servers.source.sql(gtids(kind)).await?.concat().replace("\\n", "");
    ensure!(servers.target.wait_for_gtids(&gtids, Duration::from_secs(60)).await?);
    for digests in ALL_DIGESTS {
        let options = CheckOptions { digests, ..options.clone() };
        let log = StatementLog::start(&servers.target).await?;
        let report = run(&options).await?;
        ensure!(
            report.is_equal() && report.tables == 6,
            "with digests {digests:?}, the servers differ before any change: {report:#?}"
        );
        // The target computes no sum for two of the six tables: the table without a key, and the table for
        // whose sum the source gives a warning.
        let summed = if kind == ServerKind::Mysql97 { 0 } else { 4 };
        let wanted = match digests {
            Digests::Quick { .. } => (summed, 0),
            Digests::Client { .. } => (0, 0),
            // For the table with the warning, one more statement finds out whether a row has no hash.
            Digests::OnServers => (0, if kind == ServerKind::Mysql97 { 6 } else { 7 }),
        };
        // The check reads row hashes only where the sums differ.
        let found = (log.count("BIT_XOR(CRC32(").await?, log.count("SHA2(").await?);
        ensure!(
            found == wanted,
            "with digests {digests:?}, queries for sums and for row hashes: {found:?}, expected {wanted:?}"
        );
    }
    let changes = [
        ("flags", "flag = 1", "TRUE", 4096),
        ("flags", "flag = 1 - flag", "id IN (17, 18)", 2),
        ("flags", "big = big - 9223372036854775807 - 1", "id <= 8", 8),
        ("flags", "pad = CONCAT('y', SUBSTR(pad, 2))", "id % 2 = 0", 2048),
        ("numbers", "a = a ^ 1, b = b ^ 1", "a IS NOT NULL AND id <= 10", 7),
        ("numbers", "a = NULL", "a = -1", 1),
        ("numbers", "a = 0", "a IS NULL AND id < 10", 3),
        ("numbers", "c = c ^ 4294967297", "c IS NOT NULL AND id <= 4", 4),
        ("numbers", "mask = mask ^ (1 << 31)", "TRUE", 1000),
        ("numbers", "b = 0", "id <= 2", 2),
        ("numbers", "t = t + INTERVAL 1 SECOND", "t IS NOT NULL", 750),
        ("numbers", "t = '0000-00-00'", "t IS NULL AND id < 9", 2),
        ("numbers", "t = NULL", "id = 1", 1),
        ("numbers", "x = x ^ (1 << 31)", "TRUE", 1000),
        ("numbers", "y = y ^ (1 << 32)", "TRUE", 1000),
        ("reals", "d = -d", "id IN (1, 2)", 2),
        ("reals", "d = 0", "id = 7", 1),
        ("reals", "f = -f", "TRUE", 1000),
        ("reals", "d = d * (1 + 1e-15)", "d = 1 OR d = 3", 2),
        ("reals", "e = d, d = NULL", "id IN (1, 2)", 2),
        ("reals", "e = NULL", "e = 1", 1),
        ("numbers", "s = s ^ 4", "id <= 2", 2),
        ("pairs", "a = 'a', b = 'bc'", "id IN (3, 4, 5)", 3),
        ("pairs", "b = '', c = b", "id = 9", 1),
        ("pairs", "b = NULL, c = 'c'", "id = 10", 1),
        ("pairs", "c = ''", "TRUE", 64),
        ("sets", "s = s ^ 2", "TRUE", 2),
        ("keyless", "a = 3, b = 'z'", "a = 1", 2),
    ];
    let (mut missed, mut connection) =
        (Vec::new(), Connection::connect(&servers.target.connect_options()).await?);
    connection.execute("SET sql_log_bin = 0, sql_mode = ''").await?;
    for digests in ALL_DIGESTS {
        for (table, change, which, count) in changes {
            connection.execute(&format!("CREATE TABLE summed.kept AS SELECT * FROM summed.{table}")).await?;
            connection.execute(&format!("UPDATE summed.{table} SET {change} WHERE {which}")).await?;
            let report = run(&CheckOptions { digests, ..options.clone() }).await?;
            let found = match table {
                // For the table without a key, the check reports how many rows are surplus or missing.
                "keyless" => report.differences.len(),
                _ => report
                    .differences
                    .iter()
                    .filter(|difference| matches!(difference.what, DifferenceKind::Changed { .. }))
                    .count(),
            };
            if found != count {
                missed.push(format!(
                    "with digests {digests:?}, the check found {found} of {count} differences in table {table} ({change})"
                ));
            }
            connection.execute(&format!("DELETE FROM summed.{table}")).await?;
            connection.execute(&format!("INSERT INTO summed.{table} SELECT * FROM summed.kept")).await?;
            connection.execute("DROP TABLE summed.kept").await?;
        }
    }
    ensure!(missed.is_empty(), "the check has missed differences: {missed:#?}");
    ensure!(
        run(&options).await?.is_equal(),
        "after the source's rows are restored, the check still finds differences"
    );
    Ok(())
}

on_each_server!(different_declarations_give_equal_sums);

/// The columns of the two servers have the same values but different declarations: width, sign, character
/// set, NULL allowed on one side only, and a thousand columns. A second table has different values with the
/// same bits.
async fn different_declarations_give_equal_sums(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() || kind == ServerKind::Mysql97 {
        return Ok(());
    }
    let (source, target) =
        tokio::try_join!(Server::start(ServerSpec::new(kind)), Server::start(ServerSpec::new(kind)))?;
    let integers: Vec<_> =
        (0..900).map(|number| format!("i{number} INT NOT NULL DEFAULT {number}")).collect();
    let texts: Vec<_> = (0..100).map(|number| format!("t{number} VARCHAR(9) DEFAULT 'x{number}'")).collect();
    let wide = format!(
        "CREATE TABLE wide (id INT PRIMARY KEY, {}, {}); INSERT INTO wide (id) VALUES (1), (2)",
        integers.join(", "),
        texts.join(", ")
    );
    let script = |declared: &str, bits: &str| {
        format!(
            "CREATE DATABASE declared; USE declared; SET NAMES utf8mb4, sql_mode = ''; CREATE TABLE t (id INT PRIMARY KEY, {declared}); \
             INSERT INTO t VALUES (1, 1, -1, 7, 12.50, 'ä', 'b', 3), (2, 100, -100, 0, -1, '', 'a', 0); \
             CREATE TABLE bits (id INT PRIMARY KEY, {bits}); {wide}"
        )
    };
    let on_source = script(
        "a TINYINT UNSIGNED NOT NULL, b INT NOT NULL, c BIGINT UNSIGNED, d DECIMAL(10,2), e VARCHAR(9) CHARACTER SET utf8mb3 NOT NULL, \
         f ENUM('a','b'), g BIT(3)",
        "n INT UNSIGNED, w BIGINT UNSIGNED); INSERT INTO bits VALUES (1, 4294967295, 18446744073709551615), (2, 5, 5",
    );
    let on_target = script(
        "a BIGINT UNSIGNED, b BIGINT, c INT UNSIGNED NOT NULL, d DECIMAL(12,4) NOT NULL, e TEXT CHARACTER SET utf8mb4, \
         f ENUM('a','b') NOT NULL, g BIT(9) NOT NULL",
        "n INT, w BIGINT); INSERT INTO bits VALUES (1, -1, -1), (2, 5, 5",
    );
    run_script(&source, on_source.as_bytes())?;
    run_script(&target, on_target.as_bytes())?;
    let options = CheckOptions {
        selection: Selection { schemas: vec!["declared".into()], ..Selection::default() },
        sync_method: Some(SyncMethod::None),
        ..CheckOptions::new(source.connect_options(), target.connect_options())
    };
    for digests in ALL_DIGESTS {
        let log = StatementLog::start(&target).await?;
        let report = run(&CheckOptions { digests, ..options.clone() }).await?;
        let found: Vec<_> = report.differences.iter().map(table_key_and_what).collect();
        ensure!(
            found == [("bits".into(), "1".into(), "n,w".into())],
            "with digests {digests:?}, the check must find one difference, in the table `bits`: {found:?}"
        );
        let (sums, hashes) = (log.count("BIT_XOR(CRC32(").await?, log.count("SHA2(").await?);
        let are_summed = matches!(digests, Digests::Quick { .. });
        ensure!(
            sums == if are_summed { 3 } else { 0 },
            "with digests {digests:?}, the target computed a wrong number of checksums: {sums}"
        );
        ensure!(!are_summed || hashes == 1, "the check compared {hashes} tables by row hashes, expected 1");
    }
    Ok(())
}

/// Records the statements that a server receives.
struct StatementLog<'s> {
    server: &'s Server,
}

impl<'s> StatementLog<'s> {
    /// Starts to record the statements.
    async fn start(server: &'s Server) -> Result<Self> {
        server.sql("SET sql_log_bin = 0; SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = 0; TRUNCATE mysql.general_log; \
             SET GLOBAL general_log = 1").await?;
        Ok(Self { server })
    }

    /// Returns the number of recorded statements that contain this text.
    async fn count(&self, part: &str) -> Result<u64> {
        let sql = format!(
            "SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE 'SELECT %' AND LOCATE('{part}', argument) > 0 \
             AND LOCATE('general_log', argument) = 0"
        );
        self.server.sql(&sql).await?.concat().trim().parse().context("the count is not a number")
    }
}

fn table_key_and_what(difference: &RowDifference) -> (String, String, String) {
    let key = difference.key.iter().map(|literal| literal.0.clone()).collect::<Vec<_>>().join(",");
    let what = match &difference.what {
        DifferenceKind::Changed { columns } => columns.join(","),
        other => other.name().to_owned(),
    };
    (difference.table.clone(), key, what)
}

/// Whether the target has only transactions of the source.
async fn has_no_errant_transactions(servers: &ReplicaPair, kind: ServerKind) -> Result<bool> {
    if kind != ServerKind::Mysql97 {
        return Ok(true);
    }
    let of_source = servers.source.sql("SELECT @@GLOBAL.gtid_executed").await?.concat().replace("\\n", "");
    let sql = format!("SELECT GTID_SUBSET(@@GLOBAL.gtid_executed, '{of_source}')");
    Ok(servers.target.sql(&sql).await? == ["1"])
}

async fn run_repair(options: &RepairOptions) -> Result<tailwater_check::row_repair::RepairReport, BulkError> {
    repair(options, Throttle::open(), Arc::new(BulkProgress::default()), CancellationToken::new()).await
}

/// Values of every type at its limits must compare equal between MySQL and MariaDB, in tables with and
/// without keys.
#[tokio::test]
async fn all_types_are_the_same_in_both_families() -> Result<()> {
    let kinds = [ServerKind::Mysql97, ServerKind::Mariadb1011];
    if kinds.into_iter().any(|kind| require(kind).is_none()) {
        return Ok(());
    }
    let (mysql, mariadb) =
        tokio::try_join!(Server::start(ServerSpec::new(kinds[0])), Server::start(ServerSpec::new(kinds[1])))?;
    for server in [&mysql, &mariadb] {
        run_script(server, column_type_limits::script(server.kind()).as_bytes())?;
        // The server families read the coordinates of this spatial reference system in different orders.
        server
            .sql("UPDATE every.shapes SET p = ST_GeomFromText('POINT(-1.5 20)') WHERE p IS NOT NULL")
            .await?;
    }
    let own = ["vectors", "addresses", "signs"];
    for (source, target) in [(&mysql, &mariadb), (&mariadb, &mysql)] {
        let selection = Selection {
            schemas: vec!["every".into()],
            except: own.iter().map(|name| tailwater_tables::schema::TableName::new("every", *name)).collect(),
            ..Selection::default()
        };
        let options = CheckOptions {
            selection,
            sync_method: Some(SyncMethod::None),
            ..CheckOptions::new(source.connect_options(), target.connect_options())
        };
        for digests in ALL_DIGESTS {
            let report = run(&CheckOptions { digests, ..options.clone() }).await?;
            ensure!(
                report.tables > 10 && report.is_equal(),
                "with digests {digests:?}, rows differ between the server families: {report:#?}"
            );
        }
    }
    Ok(())
}

on_each_server!(objects_of_one_side_only_are_reported);

async fn objects_of_one_side_only_are_reported(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let servers = ReplicaPair::start(kind).await?;
    let script = "CREATE DATABASE drift; USE drift; CREATE TABLE both_have (id INT PRIMARY KEY, a INT, b DATE); \
         INSERT INTO both_have VALUES (1, 2, '2020-01-01'), (2, NULL, NULL); CREATE TABLE only_here (id INT); \
         CREATE TABLE keyless (a INT, b VARCHAR(9)); INSERT INTO keyless VALUES (1, 'x'), (1, 'x'), (2, NULL); \
         CREATE TABLE nullable (a INT UNIQUE, b INT); INSERT INTO nullable VALUES (NULL, 1), (NULL, 1), (3, 4)";
    run_script(&servers.source, script.as_bytes())?;
    let gtids = servers.source.sql(gtids(kind)).await?.concat().replace("\\n", "");
    ensure!(servers.target.wait_for_gtids(&gtids, Duration::from_secs(60)).await?);
    let apart = "SET sql_log_bin = 0; USE drift; DROP TABLE only_here; CREATE TABLE only_there (id INT); \
         ALTER TABLE both_have DROP COLUMN a, ADD c INT, MODIFY b VARCHAR(20); INSERT INTO keyless VALUES (1, 'x'); \
         DELETE FROM keyless WHERE a = 2; UPDATE nullable SET b = 2 WHERE a IS NULL LIMIT 1";
    run_script(&servers.target, apart.as_bytes())?;
    let report = run(&servers.options()).await?;
    let findings = format!("{:?}", report.findings);
    for part in [
        "OnlySource(TableName { schema: \"drift\", name: \"only_here\" })",
        "OnlyTarget(TableName { schema: \"drift\", name: \"only_there\" })",
        "only_source: [\"a\"], only_target: [\"c\"], incomparable: [\"b (date on the source, varchar(20) on the target)\"]",
    ] {
        ensure!(findings.contains(part), "{part} is not in the findings: {findings}");
    }
    let mut counts: Vec<_> = report
        .differences
        .iter()
        .map(|difference| match difference.what {
            DifferenceKind::Count { source, target, .. } => (difference.table.clone(), source, target),
            _ => (difference.what.name().to_owned(), 0, 0),
        })
        .collect();
    counts.sort();
    let count = |table: &str, source, target| (table.to_owned(), source, target);
    let wanted =
        [count("keyless", 1, 0), count("keyless", 2, 3), count("nullable", 0, 1), count("nullable", 2, 1)];
    ensure!(counts == wanted, "the numbers of surplus and missing rows are wrong: {counts:?}");
    let report = run_repair(&RepairOptions::new(servers.options())).await?;
    ensure!(
        !report.is_equal() && report.rows.len() == 4,
        "the repair does not report four rows that remain different: {report:?}"
    );

    // A row is so long that one of the servers cannot concatenate its columns. The row must not count as
    // equal.
    let columns: Vec<_> = (0..20).map(|number| format!("c{number} MEDIUMBLOB")).collect();
    let values: Vec<_> = (0..20).map(|_| "REPEAT('x', 60000)").collect();
    let long = format!(
        "CREATE DATABASE long_rows; USE long_rows; CREATE TABLE t (id INT PRIMARY KEY, {}); INSERT INTO t VALUES (1, {})",
        columns.join(", "),
        values.join(", ")
    );
    run_script(&servers.source, long.as_bytes())?;
    servers.source.sql("SET GLOBAL max_allowed_packet = 1048576").await?;
    let selection = Selection { schemas: vec!["long_rows".into()], ..Selection::default() };
    let options = CheckOptions { selection, ..servers.options() };
    let too_long = run(&CheckOptions { digests: Digests::OnServers, ..options.clone() }).await?;
    let findings = format!("{:?}", too_long.findings);
    ensure!(
        findings.starts_with("[Unreadable") && findings.contains("1 rows"),
        "the long row is not reported as unreadable: {findings}"
    );
    ensure!(run(&options).await?.is_equal(), "a long row that both servers have counts as different");
    // If neither server can concatenate the columns of the long row, the row must not count as equal either.
    servers.target.sql("SET GLOBAL max_allowed_packet = 1048576").await?;
    servers.target.sql("SET sql_log_bin = 0; UPDATE long_rows.t SET c7 = CONCAT('y', SUBSTR(c7, 2))").await?;
    for digests in [Digests::Quick { seed: 5 }, Digests::Client { seed: 5 }] {
        let report = run(&CheckOptions { digests, ..options.clone() }).await?;
        let found: Vec<_> = report.differences.iter().map(table_key_and_what).collect();
        ensure!(
            found == [("t".into(), "1".into(), "c7".into())],
            "with digests {digests:?}, the difference in the long row is not found: {found:?}"
        );
    }

    let few = CheckOptions { differences_max: 1, ..servers.options() };
    ensure!(run(&few).await?.findings.iter().any(|finding| matches!(finding, TableFinding::TooMany(_))));
    let same = CheckOptions { target: servers.source.connect_options(), ..servers.options() };
    ensure!(matches!(run(&same).await, Err(BulkError::SameServer { .. })));
    Ok(())
}

on_each_server!(a_lagging_target_causes_no_differences);

async fn a_lagging_target_causes_no_differences(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let servers = ReplicaPair::start(kind).await?;
    let script = "CREATE DATABASE drift; CREATE TABLE drift.t (id INT PRIMARY KEY, a INT); \
         INSERT INTO drift.t VALUES (1, 2), (2, 3); CREATE TABLE drift.old (id INT PRIMARY KEY)";
    run_script(&servers.source, script.as_bytes())?;
    ensure!(run(&servers.options()).await?.is_equal());
    servers.target.sql(tailwater_sandbox::native_replica::stop_statement(kind.flavour())).await?;
    servers.source.sql("UPDATE drift.t SET a = 9").await?;
    let hasty = CheckOptions { wait_max: Duration::ZERO, ..servers.options() };
    ensure!(matches!(run(&hasty).await, Err(BulkError::TargetBehind { .. })));
    for sync_method in [None, Some(SyncMethod::Mark)] {
        let options = CheckOptions { sync_method, ..servers.options() };
        let waits = tokio::spawn(async move { run(&options).await });
        // The check is still waiting, because no transaction arrives on the target.
        tokio::time::sleep(Duration::from_millis(300)).await;
        ensure!(!waits.is_finished(), "the check ended although the target lacks transactions");
        servers.target.sql(tailwater_sandbox::native_replica::start_statement(kind.flavour())).await?;
        let report = waits.await??;
        ensure!(report.is_equal(), "the servers differ after the target has caught up: {report:?}");
        servers.target.sql(tailwater_sandbox::native_replica::stop_statement(kind.flavour())).await?;
        servers.source.sql("UPDATE drift.t SET a = a + 1").await?;
    }
    // The check must not report a table that the target does not have yet, or still has with other columns.
    servers
        .source
        .sql("CREATE TABLE drift.new (id INT PRIMARY KEY); ALTER TABLE drift.t ADD COLUMN b INT; DROP TABLE drift.old")
        .await?;
    let options = CheckOptions { sync_method: None, ..servers.options() };
    let waits = tokio::spawn(async move { run(&options).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure!(!waits.is_finished(), "the check ended although the target lacks transactions");
    servers.target.sql(tailwater_sandbox::native_replica::start_statement(kind.flavour())).await?;
    let report = waits.await??;
    ensure!(
        report.is_equal() && report.tables == 2,
        "a table that the target did not have yet is reported: {report:?}"
    );
    let mut connection = Connection::connect(&servers.source.connect_options()).await?;
    let marks = connection.query("SELECT COUNT(*) FROM tailwater.check_marks").await?;
    ensure!(
        marks.scalar().context("the query returned no count")? == "0",
        "the source still has marks after the checks"
    );
    Ok(())
}
