//! Tests on real servers that the chunks of a table cover every row once, for every kind of key and
//! collation.

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind, require, shared};
use tailwater_session::Connection;
use tailwater_tables::chunker::chunk_queries::{RangeScan, SESSION_SETTINGS, from_clause, next_chunk};
use tailwater_tables::chunker::key_range::KeyRange;
use tailwater_tables::chunker::key_range_condition::condition;
use tailwater_tables::chunker::{ChunkKey, ChunkPlan, ChunkRange, ChunkSizeLimits, Chunker, TableInfo};
use tailwater_wire::Flavour;
use tailwater_wire::sql_quote::qualified_name;

use crate::seeded_random::{self, Random};

on_each_server!(every_row_is_in_one_chunk, random_tables_are_covered);

/// A table: its columns and keys, the number of its rows, and the expressions for each row. The expressions
/// use the row's number `n`, which starts at 0.
struct Case {
    name: &'static str,
    definition: &'static str,
    columns: &'static str,
    values: &'static str,
    rows: u32,
    /// Whether the chunker must cut the table into more than one chunk.
    many: bool,
}

const fn case(
    name: &'static str,
    definition: &'static str,
    columns: &'static str,
    values: &'static str,
) -> Case {
    Case { name, definition, columns, values, rows: 200, many: true }
}

/// SQL expression for texts with trailing blanks, upper and lower case, accents, and characters that have no
/// weight in a collation.
const TEXTS: &str =
    "CONCAT(ELT(1 + n % 7, 'a', 'B', 'ä', 'ß', 'z ', CONVERT(UNHEX('F09F9880') USING utf8mb4), 'ﬁ'), '-', n)";

const CASES: &[Case] = &[
    case("dense", "id INT PRIMARY KEY", "id", "n + 1"),
    case(
        "gaps",
        "id BIGINT UNSIGNED PRIMARY KEY",
        "id",
        "IF(n < 100, n, IF(n < 199, 18446744073709551000 + n, 1 << 40))",
    ),
    case("negative", "id BIGINT PRIMARY KEY", "id", "(-9223372036854775807 - 1) + n * 46116860184273879"),
    case("small", "id TINYINT UNSIGNED PRIMARY KEY", "id", "n"),
    case(
        "composite",
        "a INT, b VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, c SMALLINT, PRIMARY KEY (a, b, c)",
        "a, b, c",
        "n % 3, ELT(1 + n % 5, 'x', 'Y', 'é', '', ' z'), n",
    ),
    case("descending", "a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (a DESC, b)", "a, b", "n % 13, n"),
    case(
        "turned",
        "a INT NOT NULL, b INT NOT NULL, c INT NOT NULL, PRIMARY KEY (a, b DESC, c)",
        "a, b, c",
        "n % 3, n % 7, n",
    ),
    case("backwards", "a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (a DESC, b DESC)", "a, b", "n % 13, n"),
    case("text_ci", "t VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci PRIMARY KEY", "t", TEXTS),
    case("text_bin", "t VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY", "t", TEXTS),
    case(
        "latin",
        "t CHAR(12) CHARACTER SET latin1 COLLATE latin1_german2_ci PRIMARY KEY",
        "t",
        "CONCAT(ELT(1 + n % 4, 'o', 'ö', 'OE', 'ß'), 'x', n)",
    ),
    case(
        "wide",
        "t VARCHAR(20) CHARACTER SET utf16 PRIMARY KEY",
        "t",
        "CONCAT(ELT(1 + n % 3, 'a', 'Ж', '語'), n)",
    ),
    case(
        "uuid_text",
        "u CHAR(36) PRIMARY KEY",
        "u",
        "CONCAT(LPAD(HEX(n * 7919), 8, '0'), '-1234-4abc-8888-1234567890ab')",
    ),
    case("bytes", "b VARBINARY(20) PRIMARY KEY", "b", "UNHEX(CONCAT(LPAD(HEX(n % 256), 2, '0'), '0027FF'))"),
    case("fixed_bytes", "b BINARY(4) PRIMARY KEY", "b", "UNHEX(LPAD(HEX(n * 7919), 8, '0'))"),
    case("decimals", "d DECIMAL(30,10) PRIMARY KEY", "d", "(n - 100) * 12345678901234567.0123456789"),
    case("floats", "f FLOAT PRIMARY KEY", "f", "(n - 100) / 7"),
    case("doubles", "f DOUBLE PRIMARY KEY", "f", "(n - 100e0) / 7 * POW(10, n - 100)"),
    case("dates", "d DATE PRIMARY KEY", "d", "IF(n = 0, '0000-00-00', DATE '1999-12-01' + INTERVAL n DAY)"),
    case("times", "t TIME(3) PRIMARY KEY", "t", "SEC_TO_TIME(n * 10000.125 - 1000000)"),
    case(
        "moments",
        "t TIMESTAMP(6) PRIMARY KEY",
        "t",
        "TIMESTAMP '2026-03-29 00:30:00.000001' + INTERVAL n MINUTE",
    ),
    case("years", "y YEAR, n INT, PRIMARY KEY (y, n)", "y, n", "1901 + n, n"),
    case(
        "enums",
        "e ENUM('z','a','m') NOT NULL, b BIT(10) NOT NULL, s SET('q','b') NOT NULL, PRIMARY KEY (e, b, s)",
        "e, b, s",
        "1 + n % 3, n, n % 4",
    ),
    case(
        "nullable",
        "a INT NULL, b VARCHAR(9) NULL, UNIQUE (a, b)",
        "a, b",
        "IF(n % 5 = 0, NULL, n % 30), IF(n % 7 = 0, NULL, n)",
    ),
    case("nullable_one", "a INT NULL UNIQUE", "a", "IF(n % 5 = 0, NULL, n * 1000)"),
    case(
        "second_best",
        "t TEXT, a INT NULL UNIQUE, b INT NOT NULL UNIQUE, PRIMARY KEY (t(5))",
        "t, a, b",
        "LPAD(n, 5, '0'), NULL, n",
    ),
    Case { many: false, ..case("prefix", "t TEXT, PRIMARY KEY (t(5))", "t", "LPAD(n, 5, '0')") },
    Case { many: false, ..case("keyless", "a INT, KEY (a)", "a", "n % 10") },
    Case { rows: 0, many: false, ..case("empty", "id INT PRIMARY KEY", "id", "n") },
    Case { rows: 0, many: false, ..case("empty_text", "t VARCHAR(9) PRIMARY KEY", "t", "n") },
    Case { rows: 1, many: false, ..case("single", "id INT PRIMARY KEY", "id", "-5") },
    case("odd`na'me", "`i``d` INT PRIMARY KEY", "`i``d`", "n * 5"),
    case("parts", "id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3 COMMENT=('", "id", "n"),
    case(
        "subparts",
        "id INT, d INT, PRIMARY KEY (id, d)) PARTITION BY RANGE (d) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 \
        (PARTITION `p 0` VALUES LESS THAN (50), PARTITION p1 VALUES LESS THAN (100), PARTITION p2 VALUES LESS THAN MAXVALUE",
        "id, d",
        "n, n",
    ),
    case("myisam", "id INT PRIMARY KEY) ENGINE=MyISAM COMMENT=('", "id", "n * n * n"),
];

const MYSQL_CASES: &[Case] = &[
    case("default", "t VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci PRIMARY KEY", "t", TEXTS),
    case(
        "sensitive",
        "t VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_as_cs PRIMARY KEY",
        "t",
        TEXTS,
    ),
];

const MARIADB_CASES: &[Case] = &[
    case(
        "unpadded",
        "t VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_nopad_ci PRIMARY KEY",
        "t",
        TEXTS,
    ),
    case(
        "uuids",
        "u UUID PRIMARY KEY",
        "u",
        "CONCAT(LPAD(HEX(n * 7919), 8, '0'), '-1234-1', LPAD(HEX(n % 11), 3, '0'), '-8888-1234567890ab')",
    ),
    case("addresses", "i INET6 PRIMARY KEY", "i", "CONCAT('2001:db8::', HEX(n * 257))"),
    case("hashed", "t TEXT, i INT NOT NULL UNIQUE, UNIQUE (t)", "t, i", "n, n"),
];

/// Connects to a server, and creates the database `chunks` with a table of the numbers 0 to 199.
async fn connect_with_numbers(server: &Server, table: &str) -> Result<Connection> {
    let mut connection = Connection::connect(&server.socket_options()).await?;
    connection.execute(SESSION_SETTINGS).await?;
    connection.execute("CREATE DATABASE IF NOT EXISTS chunks CHARACTER SET utf8mb4").await?;
    connection.execute(&format!("CREATE TABLE chunks.{table} (n INT PRIMARY KEY)")).await?;
    let numbers: Vec<_> = (0..200).map(|n| format!("({n})")).collect();
    connection.execute(&format!("INSERT INTO chunks.{table} VALUES {}", numbers.join(","))).await?;
    Ok(connection)
}

async fn every_row_is_in_one_chunk(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = connect_with_numbers(&server, "numbers").await?;
    let more = if kind.flavour() == Flavour::MariaDb { MARIADB_CASES } else { MYSQL_CASES };
    let mut wrong = Vec::new();
    for case in CASES.iter().chain(more) {
        if let Err(error) = check_case(&mut connection, case).await {
            wrong.push(format!("table {} on {kind}: {error:#}", case.name));
        }
    }
    ensure!(wrong.is_empty(), "some tables are not cut correctly: {wrong:#?}");
    Ok(())
}

async fn check_case(connection: &mut Connection, case: &Case) -> Result<()> {
    let name = format!("`chunks`.`{}`", case.name.replace('`', "``"));
    // The column `row_n` stores the number of the row. No key contains this column.
    let sql = match case.definition.strip_suffix(" COMMENT=('") {
        Some(definition) => format!("CREATE TABLE {name} (row_n INT, {definition}"),
        None => format!("CREATE TABLE {name} (row_n INT, {})", case.definition),
    };
    connection.execute(&sql).await.context(sql)?;
    let Case { columns, values, rows, .. } = case;
    let sql = format!(
        "INSERT INTO {name} (row_n, {columns}) SELECT n, {values} FROM chunks.numbers WHERE n < {rows}"
    );
    connection.execute(&sql).await.context(sql)?;
    let (seen, chunks) = read_chunks(connection, case.name).await?;
    ensure!(
        seen == (0..u64::from(*rows)).collect::<Vec<_>>(),
        "the {chunks} chunks do not have each row exactly once: {seen:?}"
    );
    ensure!(
        (chunks > 2) == case.many || case.rows == 0,
        "the table was cut into {chunks} chunks, but must have more than 2: {}",
        case.many
    );
    Ok(())
}

/// Returns the numbers of the rows in all chunks of a table, in order, and the number of chunks.
async fn read_chunks(connection: &mut Connection, table: &str) -> Result<(Vec<u64>, u32)> {
    connection.query(&format!("ANALYZE TABLE {}", qualified_name("chunks", table))).await?;
    let info = TableInfo::read(connection, "chunks", table).await?.context("the table does not exist")?;
    let limits = ChunkSizeLimits { rows_first: 17, rows_max: 30, cost_max: u64::MAX };
    let plan = ChunkPlan {
        key: ChunkKey::choose(&info.keys).cloned(),
        partitions: info.partitions,
        rows_estimate: info.rows_estimate,
        limits,
    };
    let mut chunker = Chunker::new(plan.clone());
    let (mut seen, mut chunks) = (Vec::new(), 0);
    while let Some(range) = next_chunk(&mut chunker, connection, "chunks", table).await? {
        let statement = statement(connection, &plan, table, &range, "row_n");
        let answer = connection.query(&statement).await?;
        let rows: Vec<_> = answer.rows.iter().filter_map(|row| row.get_u64(0)).collect();
        chunker.record_chunk(rows.len() as u64, 1);
        seen.extend(rows);
        chunks += 1;
        ensure!(chunks < 1000, "the chunker does not end");
        if chunks % 3 == 0 {
            chunker = Chunker::resume(plan.clone(), Some(&range)).map_err(anyhow::Error::msg)?;
        }
    }
    seen.sort_unstable();
    Ok((seen, chunks))
}

fn statement(
    connection: &Connection,
    plan: &ChunkPlan,
    table: &str,
    range: &ChunkRange,
    column: &str,
) -> String {
    let scan = RangeScan::new(connection.server(), &range.keys, plan.rows_estimate);
    let index = plan.key.as_ref().map(|key| (key, scan.hint));
    let from = from_clause("chunks", table, range.partition.as_deref(), index);
    let holds = condition(plan.key.as_ref(), &range.keys).unwrap_or_else(|| "TRUE".into());
    format!("{} {column} {from} WHERE {holds}", scan.select)
}

/// For a range of an integer key, the index alone must select the rows. MySQL must not compare each row with
/// the ends of the range a second time.
#[tokio::test]
async fn mysql_reads_rows_of_integer_ranges_once() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = connect_with_numbers(&server, "for_plans").await?;
    for (table, definition) in [
        ("plan_primary", "(id INT PRIMARY KEY, a INT, x DOUBLE)"),
        ("plan_unique", "(a INT, id BIGINT UNSIGNED NOT NULL UNIQUE, x DOUBLE)"),
        ("plan_parts", "(id INT PRIMARY KEY, a INT, x DOUBLE) PARTITION BY HASH (id) PARTITIONS 3"),
    ] {
        connection.execute(&format!("CREATE TABLE chunks.{table} {definition}")).await?;
        let numbers = "chunks.for_plans one, chunks.for_plans other";
        let insert = format!(
            "INSERT INTO chunks.{table} (id, a) SELECT one.n * 200 + other.n + 1, one.n FROM {numbers}"
        );
        connection.execute(&insert).await?;
        connection.query(&format!("ANALYZE TABLE chunks.{table}")).await?;
        let info =
            TableInfo::read(&mut connection, "chunks", table).await?.context("the table does not exist")?;
        let plan = ChunkPlan {
            key: ChunkKey::choose(&info.keys).cloned(),
            partitions: info.partitions.clone(),
            rows_estimate: info.rows_estimate,
            limits: ChunkSizeLimits { rows_first: 1000, rows_max: 1000, cost_max: u64::MAX },
        };
        let partition = info.partitions.first().cloned();
        for (from, to) in [(Some(2001), Some(3000)), (None, Some(1000)), (Some(39_001), None)] {
            let range = ChunkRange { partition: partition.clone(), keys: KeyRange::Integers { from, to } };
            let sql = statement(&connection, &plan, table, &range, "*");
            let explained = connection.query(&format!("EXPLAIN FORMAT=TREE {sql}")).await?;
            let explained = explained.scalar().context("EXPLAIN returned no plan")?.to_owned();
            ensure!(
                explained.contains("Index range scan"),
                "the server does not use an index range scan: {sql}: {explained}"
            );
            ensure!(
                !explained.contains("Filter"),
                "the server compares the rows with the range again: {sql}: {explained}"
            );
            let rows = connection.query(&sql).await?;
            ensure!(rows.warnings == 0, "the query caused {} warnings: {sql}", rows.warnings);
            let mut stream = connection.query_values(&sql).await?;
            let mut values = 0;
            while let Some(batch) = stream.next_batch().await? {
                values += batch.iter().count();
            }
            ensure!(
                values > 0 && rows.rows.len() == values,
                "the binary protocol returned {values} rows, but the text protocol {}: {sql}",
                rows.rows.len()
            );
        }
    }
    Ok(())
}

/// Columns of random keys. Each has a definition, in which `{collation}` represents any collation of the
/// server, and an expression of `n`. The divisor `{by}` in the expression makes several rows equal.
const RANDOM_COLUMNS: &[(&str, &str)] = &[
    ("INT", "n DIV {by} - 40"),
    ("BIGINT UNSIGNED", "CRC32(n DIV {by}) * 4294967296 + n DIV {by}"),
    ("DECIMAL(20,3)", "(n DIV {by} - 50) * 1e9 / 7"),
    ("DATETIME(6)", "TIMESTAMP '1999-12-31 23:59:59.5' + INTERVAL (n DIV {by}) * (n DIV {by}) SECOND"),
    ("ENUM('z','a','m')", "1 + (n DIV {by}) % 3"),
    ("BINARY(16)", "UNHEX(LEFT(SHA2(n DIV {by}, 224), 32))"),
    ("CHAR(36) CHARACTER SET ascii", "LEFT(SHA2(n DIV {by}, 224), 36)"),
    ("VARCHAR(20) {collation}", "CONCAT(ELT(1 + n % 6, 'a', 'B', 'e', 'E', 'z ', '-_'), n DIV {by})"),
    (
        "VARCHAR(20) {collation}",
        "CONCAT(ELT(1 + n % 4, 'oe', 'o', 'SS', 's'), REPEAT(' ', n % 3), n DIV {by})",
    ),
];

/// `TAILWATER_SEED=n` repeats the random choices of a failed test. `TAILWATER_LONG=1` tests more tables.
async fn random_tables_are_covered(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = connect_with_numbers(&server, "random_numbers").await?;
    let collations = "SELECT collation_name, character_set_name FROM \
                      information_schema.collation_character_set_applicability WHERE character_set_name <> 'binary'";
    let collations = connection.query(collations).await?;
    let seed = seeded_random::seed();
    let mut random = Random::new(seed);
    let tables = if std::env::var_os("TAILWATER_LONG").is_some() { 300 } else { 15 };
    for number in 0..tables {
        let (mut definitions, mut values, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let mut directions = Vec::new();
        let is_nullable = random.below(4) == 0;
        for column in 0..1 + random.below(3) {
            let (definition, value) = RANDOM_COLUMNS[random.below(RANDOM_COLUMNS.len() as u64) as usize];
            let row = &collations.rows[random.below(collations.rows.len() as u64) as usize];
            let text = |column| row.get_str(column).context("a collation has no name or no character set");
            let collation = format!("CHARACTER SET {} COLLATE {}", text(1)?, text(0)?);
            let null = if is_nullable { "NULL" } else { "NOT NULL" };
            definitions.push(format!("c{column} {} {null}", definition.replace("{collation}", &collation)));
            let value = value.replace("{by}", &(1 + random.below(20) * random.below(2)).to_string());
            values.push(if is_nullable {
                format!("IF((n + {column}) % 6 = 0, NULL, {value})")
            } else {
                value
            });
            directions.push(format!("c{column}{}", if random.below(3) == 0 { " DESC" } else { "" }));
            names.push(format!("c{column}"));
        }
        let (definitions, values, names) = (definitions.join(", "), values.join(", "), names.join(", "));
        let directions = directions.join(", ");
        let key = if is_nullable { "UNIQUE" } else { "PRIMARY KEY" };
        let is_parted = !is_nullable && random.below(3) == 0;
        let parted =
            if is_parted { format!(" PARTITION BY KEY ({names}) PARTITIONS 3") } else { String::new() };
        let table = format!("random_{number}");
        let create =
            format!("CREATE TABLE chunks.{table} (row_n INT, {definitions}, {key} ({directions})){parted}");
        let context = || format!("seed {seed}: {create} with {values}");
        connection.execute(&create).await.with_context(context)?;
        // Rows that are duplicates in the collation of the key are not inserted.
        let insert = format!(
            "INSERT IGNORE INTO chunks.{table} (row_n, {names}) SELECT n, {values} FROM chunks.random_numbers \
             WHERE n < {}",
            random.below(200)
        );
        connection.execute(&insert).await.with_context(context)?;
        let there = connection.query(&format!("SELECT row_n FROM chunks.{table} ORDER BY row_n")).await?;
        let there: Vec<_> = there.rows.iter().filter_map(|row| row.get_u64(0)).collect();
        let (seen, chunks) = read_chunks(&mut connection, &table).await.with_context(context)?;
        ensure!(
            seen == there,
            "{}: the {chunks} chunks together have the rows {seen:?}, but the table has {there:?}",
            context()
        );
        connection.execute(&format!("DROP TABLE chunks.{table}")).await?;
    }
    Ok(())
}
