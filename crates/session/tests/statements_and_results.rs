//! Statements and their results, on real servers.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{ServerKind, require, shared};
use tailwater_session::{
    AccountPurpose, ConnectOptions, Connection, SessionError, SessionRetry, check_privileges,
};
use tailwater_wire::Flavour;

on_each_server!(
    values_and_errors_are_returned,
    many_statements_run_in_one_packet,
    long_rows_and_statements_arrive_complete,
    rows_are_read_as_a_stream,
    rows_are_read_in_batches,
    binary_rows_equal_text_rows,
    the_error_of_a_killed_connection_can_be_retried,
    missing_grants_are_reported,
);

async fn values_and_errors_are_returned(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection.execute("CREATE DATABASE vals").await?;
    connection.execute("CREATE TABLE vals.t (a INT AUTO_INCREMENT PRIMARY KEY, b TEXT, c BLOB)").await?;
    let ok = connection
        .execute("INSERT INTO vals.t (b, c) VALUES ('ünï', x'00ff'), (NULL, ''), ('', NULL)")
        .await?;
    ensure!(
        (ok.affected_rows, ok.last_insert_id) == (3, 1),
        "the OK packet of the server has the wrong numbers: {ok:?}"
    );
    let result = connection.query("SELECT a, b, c AS last FROM vals.t ORDER BY a").await?;
    ensure!(result.column("LAST") == Some(2) && result.columns[1].table == "t" && result.rows.len() == 3);
    ensure!(result.rows[0].get_str(1) == Some("ünï") && result.rows[0].get(2) == Some(&[0, 0xff]));
    ensure!(result.rows[0].get_str(2).is_none(), "bytes that are not text");
    ensure!(result.rows[1].get(1).is_none() && result.rows[1].get(2) == Some(b""));
    ensure!(result.rows[2].get(1) == Some(b"") && result.rows[2].get(2).is_none());
    ensure!(result.rows[2].get_u64(0) == Some(3) && result.rows[2].get(3).is_none());
    ensure!(connection.query("SELECT 1 FROM vals.t WHERE a > 9").await?.rows.is_empty());

    let error = connection
        .execute("INSERT INTO vals.t (a, b) VALUES (1, 'geheim')")
        .await
        .err()
        .context("a duplicate key was accepted")?;
    for part in [
        "running a statement",
        "Duplicate entry '?' for key",
        "PRIMARY",
        "INSERT INTO vals.t (a, b) VALUES (?, ?)",
    ] {
        ensure!(error.to_string().contains(part), "the error lacks {part:?}: {error}");
    }
    ensure!(error.private_detail().is_some_and(|all| all.contains("entry '1'") && all.contains("'geheim'")));
    // Some statements are rejected for their syntax, and the server's message then repeats a part of the
    // statement. The other statements are rejected for their meaning.
    for sql in [
        "CREATE USER secret_user@'%' IDENTIFIED BY 'geheim' FROBNICATE",
        "CREATE USER secret_user@'%' 'geheim' IDENTIFIED",
        "CREATE USER root@localhost IDENTIFIED BY 'geheim'",
        "SET PASSWORD FOR nobody@nowhere = 'geheim'",
        "SELECT CAST('geheim' AS FROB)",
        "INSERT INTO vals.t (a) VALUES ('geheim')",
    ] {
        let error = connection.execute(sql).await.err().context(sql)?;
        ensure!(
            !error.to_string().contains("geheim"),
            "the statement failed with an unexpected error: {error}"
        );
        let private = error.private_detail().unwrap_or_default();
        ensure!(
            sql.starts_with("INSERT") || sql.starts_with("SELECT") || !private.contains("geheim"),
            "the private form of the error must contain the values: {private}"
        );
        ensure!(
            !format!("{error:?}").contains("geheim"),
            "the statement failed with an unexpected error: {error:?}"
        );
    }

    for (sql, number) in [
        ("SELECT", 1064),
        ("SELECT * FROM vals.nothing", 1146),
        ("INSERT INTO vals.t (a) VALUES (1)", 1062),
        ("SELECT 1; SELECT 2", 1064),
    ] {
        let error = connection.query(sql).await.err().context(sql)?;
        ensure!(
            error.server_error().map(|error| error.number) == Some(number),
            "the statement {sql} failed with an unexpected error: {error}"
        );
        ensure!(error.code() == "TW-SES-0009" && error.retry() == SessionRetry::AfterChange);
    }
    // The client does not announce that it supports LOAD DATA LOCAL, so the server does not request a file.
    let error = connection.execute("LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE vals.t").await.err();
    ensure!(
        matches!(error, Some(SessionError::Server { .. })),
        "the statement failed with an unexpected error: {error:?}"
    );

    connection
        .execute("CREATE PROCEDURE vals.p() BEGIN SELECT 1, 2; SELECT b FROM vals.t; DO 1; END")
        .await?;
    let result = connection.query("CALL vals.p()").await?;
    ensure!(result.columns.len() == 2 && result.rows.len() == 1);
    connection.execute("CALL vals.p()").await?;
    ensure!(connection.query("SELECT 42").await?.scalar() == Some("42"));
    Ok(())
}

async fn many_statements_run_in_one_packet(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let options = server.connect_options();
    let mut connection = Connection::connect(&ConnectOptions { multi_statements: true, ..options }).await?;
    connection.execute("CREATE DATABASE many").await?;
    connection.execute("CREATE TABLE many.t (a INT PRIMARY KEY)").await?;
    let insert = "BEGIN;INSERT INTO many.t VALUES (1), (2);INSERT INTO many.t VALUES (3);COMMIT";
    connection.execute_all(insert.as_bytes(), 4).await?;
    let last = connection.execute_all(b"DO 1;UPDATE many.t SET a = a + 10", 2).await?;
    ensure!(last.affected_rows == 3, "the answer must be that of the last statement: {last:?}");
    // Statements after a statement that failed do not run.
    let error = connection.execute_all(b"INSERT INTO many.t VALUES (11);DELETE FROM many.t", 2).await.err();
    let error = error.context("a duplicate key was accepted")?;
    ensure!(
        error.server_error().map(|error| error.number) == Some(1062),
        "the statement failed with an unexpected error: {error}"
    );
    // If there are more results than expected, the client reads and discards the further results.
    connection.execute_all(b"DO 1;DO 2;DO 3", 2).await?;
    ensure!(connection.query("SELECT COUNT(*) FROM many.t").await?.scalar() == Some("3"));
    let rows = connection
        .execute_all(b"DO 1;SELECT 1", 2)
        .await
        .err()
        .context("a SELECT was accepted among statements without rows")?;
    ensure!(
        matches!(rows, SessionError::Protocol { .. }),
        "the statement failed with an unexpected error: {rows}"
    );
    Ok(())
}

async fn long_rows_and_statements_arrive_complete(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    server.sql("SET GLOBAL max_allowed_packet = 128 << 20").await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    let full = 0xff_ffff;
    // Lengths of values around the maximum packet size. The packet of the statement or result has a few more
    // bytes than the value.
    for length in [full - 20, full - 4, full - 3, full, full + 1, 2 * full - 4, 2 * full - 3, 2 * full + 77] {
        let result = connection.query(&format!("SELECT REPEAT('x', {length})")).await?;
        let value = result.first().and_then(|row| row.get(0)).context("the result has no value")?;
        ensure!(
            value.len() == length && value.iter().all(|byte| *byte == b'x'),
            "the client received a wrong value of length {length}"
        );
    }
    for length in [full - 1, full, full + 1, 2 * full - 1, 2 * full] {
        // The command byte is a part of the packet too.
        let around = "SELECT LENGTH('')".len() + 1;
        let sql = format!("SELECT LENGTH('{}')", "y".repeat(length - around));
        let result = connection.query(&sql).await?;
        ensure!(
            result.first().and_then(|row| row.get_u64(0)) == Some((length - around) as u64),
            "the server received a wrong statement of length {length}"
        );
    }
    let small = ConnectOptions { rows_bytes_max: 1 << 20, ..server.connect_options() };
    let mut connection = Connection::connect(&small).await?;
    let error = connection
        .query("SELECT REPEAT('x', 2 << 20)")
        .await
        .err()
        .context("a result above the limit was accepted")?;
    ensure!(error.to_string().contains("1048576"), "the statement failed with an unexpected error: {error}");
    Ok(())
}

async fn rows_are_read_as_a_stream(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    // A stream holds one row at a time, so `rows_bytes_max` limits each row and not all rows together.
    let options = ConnectOptions { rows_bytes_max: 64 << 10, ..server.connect_options() };
    let mut connection = Connection::connect(&options).await?;
    let digits = "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 \
                  UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)";
    let sql = format!(
        "SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS number, REPEAT('x', 100) FROM {digits} a, {digits} b, \
         {digits} c, {digits} e"
    );
    let mut rows = connection.query_stream(&sql).await?;
    ensure!(rows.columns()[0].name == "number");
    let (mut count, mut sum) = (0u64, 0);
    while let Some(row) = rows.next().await? {
        count += 1;
        sum += row.get_u64(0).context("the value is not a number")?;
    }
    ensure!((count, sum) == (10_000, 49_995_000) && rows.end().is_some());
    ensure!(rows.next().await?.is_none());
    let error = connection.query(&sql).await.err();
    ensure!(
        matches!(error, Some(SessionError::ResultTooLarge { bytes_max: 65_536 })),
        "the statement failed with an unexpected error: {error:?}"
    );
    Ok(())
}

async fn rows_are_read_in_batches(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    server.sql("SET GLOBAL max_allowed_packet = 128 << 20").await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    let numbers =
        "WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 900)";
    // Some rows are longer than one read. One row is longer than a packet and starts with the byte that marks
    // an end packet.
    let sql = format!(
        "{numbers} SELECT CASE WHEN n = 500 THEN REPEAT('x', (16 << 20) + 9) WHEN n % 100 = 0 THEN REPEAT('y', 300000) \
         WHEN n % 3 = 0 THEN NULL ELSE REPEAT('z', n) END, n FROM numbers ORDER BY n"
    );
    let expected = connection.query(&sql).await?.rows;
    ensure!(expected.len() == 900 && expected[499].get(0).is_some_and(|value| value.len() > 16 << 20));
    let mut rows = connection.query_stream(&sql).await?;
    let mut count = 0;
    while let Some(batch) = rows.next_batch().await? {
        ensure!(batch.iter().next().is_some(), "the stream returned a batch without rows");
        for row in batch.iter() {
            let values = row.values().collect::<Result<Vec<_>, _>>()?;
            let one = expected.get(count).context("the stream returned too many rows")?;
            ensure!(values == [one.get(0), one.get(1)], "row {count} differs");
            count += 1;
        }
    }
    ensure!(count == 900 && rows.end().is_some() && rows.next_batch().await?.is_none());
    // The server returns an error after the first rows.
    let sql =
        format!("{numbers} SELECT IF(n < 800, REPEAT('x', 999), (SELECT 1 UNION SELECT n)) FROM numbers");
    let mut rows = connection.query_stream(&sql).await?;
    let mut count = 0;
    let error = loop {
        match rows.next_batch().await {
            Ok(batch) => count += batch.context("the rows ended without an error")?.iter().count(),
            Err(error) => break error,
        }
    };
    ensure!(count == 799, "{count} rows came before the error");
    ensure!(
        error.server_error().map(|error| error.number) == Some(1242),
        "the statement failed with an unexpected error: {error}"
    );
    ensure!(connection.query("SELECT 42").await?.scalar() == Some("42"));
    Ok(())
}

async fn the_error_of_a_killed_connection_can_be_retried(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    server.sql(&format!("KILL {}", connection.server().connection_id)).await?;
    // The server may send an error, or only close the connection.
    let error = loop {
        if let Err(error) = connection.query("SELECT 1").await {
            break error;
        }
    };
    ensure!(error.retry() == SessionRetry::Later, "the statement failed with an unexpected error: {error}");
    Ok(())
}

async fn missing_grants_are_reported(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    server
        .sql("CREATE USER `o'neil`@'%' IDENTIFIED BY 'pw'; GRANT REPLICATION SLAVE ON *.* TO `o'neil`@'%'")
        .await?;
    let options = ConnectOptions { user: "o'neil".to_owned(), ..server.connect_options() }.password("pw");
    let mut connection = Connection::connect(&options).await?;
    let error = check_privileges(&mut connection, AccountPurpose::Capture)
        .await
        .err()
        .context("the error names no missing privilege")?;
    let monitor = match kind.flavour() {
        Flavour::MySql => "REPLICATION CLIENT",
        Flavour::MariaDb => "BINLOG MONITOR",
    };
    let SessionError::MissingGrant { missing, statement, .. } = &error else {
        anyhow::bail!("the statement failed with an unexpected error: {error}")
    };
    ensure!(missing == monitor, "the statement failed with an unexpected error: {error}");
    ensure!(
        *statement == format!("GRANT {monitor} ON *.* TO 'o''neil'@'%'"),
        "the statement failed with an unexpected error: {error}"
    );
    ensure!(error.to_string().contains(statement));
    // Check that the GRANT statement in the error message works.
    server.sql(statement).await?;
    let mut connection = Connection::connect(&options).await?;
    check_privileges(&mut connection, AccountPurpose::Capture).await?;
    check_privileges(&mut Connection::connect(&server.connect_options()).await?, AccountPurpose::Capture)
        .await?;
    Ok(())
}

/// Columns of every type, and values at the limits of each type.
fn kinds(flavour: Flavour) -> Vec<(&'static str, &'static [&'static str])> {
    let mut kinds: Vec<(&str, &[&str])> = vec![
        ("TINYINT", &["-128", "127", "0"]),
        ("TINYINT UNSIGNED", &["255"]),
        ("SMALLINT", &["-32768", "32767"]),
        ("SMALLINT UNSIGNED", &["65535"]),
        ("MEDIUMINT", &["-8388608", "8388607"]),
        ("MEDIUMINT UNSIGNED", &["16777215"]),
        ("INT", &["-2147483648", "2147483647"]),
        ("INT(8) UNSIGNED ZEROFILL", &["42", "4294967295"]),
        ("BIGINT", &["-9223372036854775808", "9223372036854775807"]),
        ("BIGINT UNSIGNED", &["18446744073709551615"]),
        ("DECIMAL(65,30)", &["-99999999999999999999999999999999999.5", "0", "1e-30"]),
        ("BIT(9)", &["b'111111111'", "b'0'"]),
        ("BIT(64)", &["~0"]),
        ("YEAR", &["1901", "2155", "0"]),
        ("DATE", &["'0000-00-00'", "'9999-12-31'", "'2024-02-29'", "'2024-00-00'"]),
        ("DATETIME", &["'0000-00-00'", "'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'"]),
        ("DATETIME(3)", &["'2024-02-29 00:00:00.001'", "'2024-02-29 12:00:00'", "'2024-02-29'"]),
        ("TIMESTAMP(6) NULL", &["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999999'", "0"]),
        ("TIME", &["'-838:59:59'", "'838:59:59'", "0", "'-00:00:01'"]),
        (
            "TIME(6)",
            &["'-838:59:58.999999'", "'00:00:00.000001'", "'23:00:00'", "'24:00:00'", "'100:00:00.5'"],
        ),
        ("CHAR(3)", &["''", "'abc'", "'äöü'"]),
        ("VARCHAR(300) CHARACTER SET latin1", &["REPEAT('ä', 251)"]),
        ("BINARY(4)", &["0x00FF", "''"]),
        ("VARBINARY(70)", &["0x00FE0A09", "REPEAT('x', 70)"]),
        ("TINYBLOB", &["''", "REPEAT(0xFB, 250)"]),
        ("LONGBLOB", &["REPEAT('x', 70000)"]),
        ("LONGTEXT", &["REPEAT('ü', 200)"]),
        ("ENUM('a','ü')", &["'ü'", "0"]),
        ("SET('a','ü')", &["'a,ü'", "''"]),
        ("JSON", &["'{\"a\": [1, 2.5]}'"]),
        ("POINT", &["ST_GeomFromText('POINT(1 2)')"]),
        (
            "DOUBLE",
            &["0.1", "-1.7976931348623157e308", "2.2250738585072014e-308", "1e15", "123456.789", "-0e0"],
        ),
        ("DOUBLE(10,3)", &["1.5", "-1234567.125"]),
        ("FLOAT", &["0.1", "3.4028234e38", "1e-38", "16777216"]),
        ("FLOAT(7,3)", &["0.001", "-9999.5"]),
        ("DECIMAL(8,2) UNSIGNED ZEROFILL", &["1.5"]),
        ("INT(255) UNSIGNED ZEROFILL", &["7"]),
    ];
    if flavour == Flavour::MariaDb {
        kinds.push(("YEAR(2)", &["0", "99", "2024"]));
        kinds.push(("UUID", &["'123e4567-e89b-12d3-a456-426655440000'"]));
        kinds.push(("INET6", &["'::1'", "'2001:db8::ff00:42:8329'"]));
    } else {
        kinds.push(("VECTOR(3)", &["TO_VECTOR('[1,2,3]')"]));
    }
    kinds
}

/// Rows in the binary protocol have the same values as rows in the text protocol.
async fn binary_rows_equal_text_rows(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let kinds = kinds(kind.flavour());
    let server = shared(kind).await?;
    server.sql("SET GLOBAL max_allowed_packet = 128 << 20").await?;
    let schema = "tw_values";
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection
        .execute("SET SESSION sql_mode = '', time_zone = '+00:00', character_set_results = binary")
        .await?;
    connection.execute(&format!("CREATE DATABASE {schema}")).await?;
    let columns: Vec<_> = kinds.iter().enumerate().map(|(at, (kind, _))| format!("c{at} {kind}")).collect();
    connection
        .execute(&format!(
            "CREATE TABLE {schema}.t (id INT PRIMARY KEY, {}) CHARACTER SET utf8mb4",
            columns.join(", ")
        ))
        .await?;
    // Insert one row with only NULLs, and rows that together contain every value.
    let rows = kinds.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    connection.execute(&format!("INSERT INTO {schema}.t (id) VALUES (0)")).await?;
    for row in 0..rows {
        let values: Vec<_> = kinds.iter().map(|(_, values)| *values.get(row).unwrap_or(&"NULL")).collect();
        connection
            .execute(&format!("INSERT INTO {schema}.t VALUES ({}, {})", row + 1, values.join(", ")))
            .await?;
    }
    let sql = format!("SELECT * FROM {schema}.t ORDER BY id");
    let text = connection.query(&sql).await?.rows;
    ensure!(text.len() == rows + 1);
    let mut raw = Vec::new();
    let mut stream = connection.query_values(&sql).await?;
    while let Some(batch) = stream.next_batch().await? {
        for row in batch.iter() {
            let values = row.values().map(|value| Ok(value?.map(<[u8]>::to_vec)));
            raw.push(values.collect::<Result<Vec<_>>>()?);
        }
    }
    ensure!(stream.end().is_some() && raw.len() == text.len(), "the stream returned {} rows", raw.len());
    let mut stream = connection.query_values(&sql).await?;
    for (raw, text) in raw.iter().zip(&text) {
        let one = stream.next().await?.context("the result ended before the last row")?;
        for (at, value) in raw.iter().enumerate() {
            ensure!(
                one.get(at) == value.as_deref(),
                "column {at} differs when the stream is read row by row"
            );
            let kind = at.checked_sub(1).map_or("id", |at| kinds[at].0);
            let is_double = kind.starts_with("DOUBLE") || kind.starts_with("FLOAT");
            let same = match (value, text.get(at)) {
                (Some(value), Some(text)) if is_double => {
                    let number = |text: &[u8]| Ok::<_, anyhow::Error>(str::from_utf8(text)?.parse::<f64>()?);
                    // As text, the server prints a FLOAT with only six digits.
                    let (value, text) = (number(value)?, number(text)?);
                    if kind.starts_with("FLOAT") {
                        (value - text).abs() <= text.abs() * 1e-5
                    } else {
                        value.to_bits() == text.to_bits()
                    }
                }
                (value, text) => value.as_deref() == text,
            };
            let shown = |value: Option<&[u8]>| value.map(|value| String::from_utf8_lossy(value).into_owned());
            ensure!(
                same,
                "a value of type {kind}: the binary protocol returns {:?}, the text protocol {:?}",
                shown(value.as_deref()),
                shown(text.get(at))
            );
        }
    }
    ensure!(stream.next().await?.is_none());
    // Columns of each type can be read in the binary protocol, also in a row of more than one packet.
    for (at, (kind, _)) in kinds.iter().enumerate() {
        let mut stream =
            connection.query_values(&format!("SELECT c{at} FROM {schema}.t WHERE id = 1")).await?;
        ensure!(stream.is_binary(), "a column of type {kind} is not sent in the binary protocol");
        ensure!(
            stream.next().await?.is_some() && stream.next().await?.is_none(),
            "the query must return exactly one row for a column of type {kind}"
        );
    }
    let sql = format!("SELECT 7, 0.1e0, REPEAT('x', (16 << 20) + 9), 1.5e0 FROM {schema}.t WHERE id = 1");
    let mut stream = connection.query_values(&sql).await?;
    ensure!(stream.is_binary());
    let batch = stream.next_batch().await?.context("the stream ended before the long row")?;
    let row = batch.iter().next().context("the batch has no row")?;
    let values = row.values().collect::<Result<Vec<_>, _>>()?;
    let long = values[2].map(<[u8]>::len);
    ensure!(long == Some((16 << 20) + 9), "the long value has the wrong length: {long:?}");
    ensure!([values[0], values[1], values[3]] == [Some(&b"7"[..]), Some(b"0.1"), Some(b"1.5")]);
    ensure!(stream.next_batch().await?.is_none());
    // Values without a column type arrive as text.
    let mut stream = connection.query_values(&format!("SELECT NULL, id FROM {schema}.t ORDER BY id")).await?;
    ensure!(!stream.is_binary());
    for id in 0..=rows {
        ensure!(
            stream.next().await?.is_some_and(|row| row.get_u64(1) == Some(id as u64)),
            "the stream returned a wrong row for the id {id}"
        );
    }
    ensure!(stream.next().await?.is_none());
    // Statements that MySQL cannot prepare run in the text protocol.
    connection.execute(&format!("HANDLER {schema}.t OPEN AS opened")).await?;
    let mut stream = connection.query_values("HANDLER opened READ FIRST").await?;
    ensure!(stream.is_binary() == (kind.flavour() == Flavour::MariaDb));
    ensure!(
        stream.next().await?.is_some_and(|row| row.get_u64(0) == Some(0)) && stream.next().await?.is_none()
    );
    connection.execute("HANDLER opened CLOSE").await?;
    let error =
        connection.query_values(&format!("SELECT 1e0, (SELECT id FROM {schema}.t) FROM {schema}.t")).await;
    let error = match error {
        Ok(mut stream) => stream.next().await.err(),
        Err(error) => Some(error),
    };
    ensure!(
        matches!(&error, Some(SessionError::Server { error, .. }) if error.number == 1242),
        "the statement failed with an unexpected error: {error:?}"
    );
    let error = connection.query_values("SELECT 1e0 FROM nowhere.t").await.err();
    ensure!(
        matches!(&error, Some(SessionError::Server { .. })),
        "a SELECT from a missing table did not fail on the server: {error:?}"
    );
    // The client closes every prepared statement on the server, after success and after failure.
    let mut counts = HashMap::new();
    for row in &connection.query("SHOW SESSION STATUS LIKE 'Com_stmt%'").await?.rows {
        counts.insert(
            row.get_str(0).context("the counter has no name")?.to_owned(),
            row.get_u64(1).context("the counter has no value")?,
        );
    }
    // The client does not close statements that the server could not prepare: the SELECT from a missing
    // table, and on MySQL also the HANDLER statement.
    let unprepared = if kind.flavour() == Flavour::MySql { 2 } else { 1 };
    ensure!(
        counts["Com_stmt_close"] + unprepared == counts["Com_stmt_prepare"],
        "the server counted the wrong numbers of prepared statements: {counts:?}"
    );
    ensure!(
        counts["Com_stmt_execute"] as usize >= kinds.len() + 3,
        "the server counted the wrong numbers of prepared statements: {counts:?}"
    );
    connection.execute(&format!("DROP DATABASE {schema}")).await?;
    Ok(())
}
