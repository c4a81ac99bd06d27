//! Loads dumps of MySQL into MariaDB, and of MariaDB into MySQL.

use anyhow::{Context, Result, ensure};
use tailwater_dump::dump_folder::DumpCompression;
use tailwater_dump::load::{LoadOptions, load, tailwater_folder};
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_tables::{BulkError, BulkProgress};
use tokio_util::sync::CancellationToken;

use crate::server_contents::started;
use crate::stock_client::run_script;
use crate::test_dump_folders;

/// Objects that both flavours have, in a syntax that both accept.
const COMMON_OBJECTS: &str = "
    SET NAMES utf8mb4; CREATE DATABASE far CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci; USE far;
    CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50) CHARACTER SET latin1, u TEXT COLLATE utf8mb4_unicode_ci, b VARBINARY(20),
        bi BIT(9), d DECIMAL(20,5), f FLOAT, m DATETIME(6), e ENUM('ä', 'b'), j JSON, p POINT, g INT AS (id * 2) STORED);
    INSERT INTO t (id, v, u, b, bi, d, f, m, e, j, p) VALUES
        (1, 'ü', '😀', x'00FF5C0A', 257, -1.5, 0.1, '2024-02-29 01:02:03.000004', 'ä', '{\"k\": [1, \"ж\"]}', POINT(1, 2)),
        (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    CREATE VIEW seen AS SELECT id, j FROM t;
    CREATE PROCEDURE p() SELECT 1; CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET @seen = NEW.v;
";

const SUMS: &str = "SET NAMES utf8mb4; SELECT id, HEX(v), HEX(u), HEX(b), bi + 0, d, f, m, HEX(e), HEX(ST_AsBinary(p)), g, \
    JSON_EXTRACT(j, '$.k[1]'), JSON_LENGTH(j, '$.k') FROM far.t ORDER BY id; SELECT COUNT(*) FROM far.seen";

async fn load_from(source: &Server, target: &Server) -> Result<Result<(), BulkError>> {
    let folder = test_dump_folders::write(source, DumpCompression::Zstd, 10).await?;
    let contents = tailwater_folder::read(folder.path(), false)?;
    let options = LoadOptions::new(target.connect_options());
    let loaded =
        load(&contents, &options, &std::sync::Arc::new(BulkProgress::default()), &CancellationToken::new())
            .await;
    Ok(loaded.map(drop))
}

#[tokio::test]
async fn common_types_and_objects_are_loaded() -> Result<()> {
    for (from, into) in [
        (ServerKind::Mysql97, ServerKind::Mariadb1011),
        (ServerKind::Mysql97, ServerKind::Mariadb118),
        (ServerKind::Mariadb1011, ServerKind::Mysql97),
        (ServerKind::Mariadb118, ServerKind::Mysql97),
    ] {
        if require(from).is_none() || require(into).is_none() {
            continue;
        }
        let (source, target) = (started(from).await?, started(into).await?);
        run_script(&source, COMMON_OBJECTS.as_bytes())?;
        load_from(&source, &target)
            .await?
            .with_context(|| format!("a dump of {from} could not be loaded into {into}"))?;
        let (one, other) = (source.sql(SUMS).await?, target.sql(SUMS).await?);
        ensure!(
            one == other,
            "a dump of {from} was loaded into {into}: the source has {one:#?}, the target has {other:#?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn features_of_one_flavour_are_refused_by_name() -> Result<()> {
    for (from, into, column, wanted) in [
        (
            ServerKind::Mysql97,
            ServerKind::Mariadb1011,
            "VARCHAR(9) COLLATE utf8mb4_0900_as_cs",
            "utf8mb4_0900_as_cs",
        ),
        (
            ServerKind::Mariadb118,
            ServerKind::Mysql97,
            "VARCHAR(9) COLLATE utf8mb4_uca1400_as_cs",
            "utf8mb4_uca1400_as_cs",
        ),
        (ServerKind::Mariadb1011, ServerKind::Mysql97, "UUID", "no type uuid"),
        (ServerKind::Mariadb118, ServerKind::Mysql97, "INET4", "no type inet4"),
    ] {
        if require(from).is_none() || require(into).is_none() {
            continue;
        }
        let (source, target) = (started(from).await?, started(into).await?);
        let script = format!(
            "CREATE DATABASE far CHARACTER SET utf8mb4 COLLATE utf8mb4_bin; CREATE TABLE far.a (id INT PRIMARY KEY);
             CREATE TABLE far.t (id INT PRIMARY KEY, `the column` {column})"
        );
        run_script(&source, script.as_bytes())?;
        let error = load_from(&source, &target).await?.err().context("the load was not refused")?;
        let text = error.to_string();
        ensure!(
            error.code() == "TW-BULK-0085" && text.contains("column the column of table far.t"),
            "the error does not name the column: {text}"
        );
        ensure!(text.contains(wanted), "the error does not contain {wanted:?}: {text}");
        ensure!(target.sql("SHOW DATABASES LIKE 'far'").await?.is_empty());
    }
    Ok(())
}
