//! Reads the contents of a server (definitions, accounts, rows) as lines of text for each object, so that two
//! servers can be compared.

use std::collections::BTreeMap;

use tailwater_session::{Connection, QueryResult, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::sql_quote::quote_identifier;

/// Databases that belong to the server itself or to the channel. They are not compared.
const SYSTEM_DATABASES: [&str; 5] = ["mysql", "information_schema", "performance_schema", "sys", "tailwater"];
/// Maximum number of rows of a table that are kept as text. A larger table is represented by its row count
/// and a checksum.
const ROWS_KEPT_MAX: usize = 2000;

/// The contents of a server: lines of text by object name.
pub type ServerContents = BTreeMap<String, Vec<String>>;

/// Reads all contents of a server.
///
/// # Errors
/// If the connection breaks. If the server rejects a query, its error number is stored in place of the
/// result.
pub async fn capture(connection: &mut Connection) -> Result<ServerContents, SessionError> {
    let flavour = connection.server().flavour;
    for statement in session_settings(flavour) {
        ignore_refusal(connection.execute(statement).await)?;
    }
    let mut state = ServerContents::new();
    for (name, question) in metadata_queries(flavour) {
        put(&mut state, name, connection.query(question).await)?;
    }
    let databases = connection.query("SHOW DATABASES").await?;
    for row in &databases.rows {
        let name = text(row.get(0));
        if !SYSTEM_DATABASES.contains(&name.to_ascii_lowercase().as_str()) {
            database(connection, &name, &mut state).await?;
        }
    }
    Ok(state)
}

/// Returns the session settings for reading: no conversion of character sets, and short time limits.
fn session_settings(flavour: Flavour) -> &'static [&'static str] {
    match flavour {
        Flavour::MySql => &[
            "SET SESSION sql_mode='', time_zone='+00:00', character_set_results=NULL, lock_wait_timeout=5, \
             sql_quote_show_create=1, autocommit=1, information_schema_stats_expiry=0, max_execution_time=20000, \
             show_create_table_skip_secondary_engine=0, show_gipk_in_create_table_and_information_schema=1",
        ],
        Flavour::MariaDb => &[
            "SET SESSION sql_mode='', time_zone='+00:00', character_set_results=NULL, lock_wait_timeout=5, \
             sql_quote_show_create=1, autocommit=1, max_statement_time=20",
        ],
    }
}

/// Returns the queries for accounts, routines and other objects that do not belong to a table.
fn metadata_queries(flavour: Flavour) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let own = match flavour {
        Flavour::MySql => MYSQL_QUERIES,
        Flavour::MariaDb => MARIADB_QUERIES,
    };
    COMMON_QUERIES.iter().chain(own)
}

/// Queries that are the same in both families. `ORIGINATOR` of events is omitted: only a server's own
/// replication threads set it to the source's `server_id` (docs/how-to/apply.md).
const COMMON_QUERIES: &[(&str, &str)] = &[
    ("grants on databases", "SELECT * FROM mysql.db"),
    (
        "grants on tables",
        "SELECT Host, Db, User, Table_name, Grantor, Table_priv, Column_priv FROM mysql.tables_priv",
    ),
    (
        "grants on columns",
        "SELECT Host, Db, User, Table_name, Column_name, Column_priv FROM mysql.columns_priv",
    ),
    (
        "grants on routines",
        "SELECT Host, Db, User, Routine_name, Routine_type, Grantor, Proc_priv FROM mysql.procs_priv",
    ),
    ("proxies", "SELECT Host, User, Proxied_host, Proxied_user, With_grant, Grantor FROM mysql.proxies_priv"),
    ("servers", "SELECT * FROM mysql.servers"),
    ("loadable functions", "SELECT * FROM mysql.func"),
    (
        "events",
        "SELECT EVENT_SCHEMA, EVENT_NAME, DEFINER, TIME_ZONE, EVENT_DEFINITION, EVENT_TYPE, EXECUTE_AT, INTERVAL_VALUE, INTERVAL_FIELD, \
         SQL_MODE, STARTS, ENDS, STATUS, ON_COMPLETION, EVENT_COMMENT, CHARACTER_SET_CLIENT, COLLATION_CONNECTION, \
         DATABASE_COLLATION FROM information_schema.events",
    ),
    (
        "triggers",
        "SELECT TRIGGER_SCHEMA, TRIGGER_NAME, EVENT_MANIPULATION, EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, ACTION_ORDER, ACTION_STATEMENT, \
         ACTION_TIMING, SQL_MODE, DEFINER, CHARACTER_SET_CLIENT, COLLATION_CONNECTION, DATABASE_COLLATION \
         FROM information_schema.triggers WHERE TRIGGER_SCHEMA<>'sys'",
    ),
];

/// Queries of tables that only MySQL has, or that differ in MariaDB.
const MYSQL_QUERIES: &[(&str, &str)] = &[
    ("accounts", "SELECT u.* FROM mysql.user u"),
    ("roles", "SELECT * FROM mysql.role_edges"),
    ("default roles", "SELECT * FROM mysql.default_roles"),
    ("dynamic grants", "SELECT * FROM mysql.global_grants"),
    ("password history", "SELECT Host, User, Password FROM mysql.password_history"),
    (
        "routines",
        "SELECT ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_TYPE, DTD_IDENTIFIER, ROUTINE_DEFINITION, IS_DETERMINISTIC, SQL_DATA_ACCESS, \
         SECURITY_TYPE, SQL_MODE, ROUTINE_COMMENT, DEFINER, CHARACTER_SET_CLIENT, COLLATION_CONNECTION, DATABASE_COLLATION \
         FROM information_schema.routines WHERE ROUTINE_SCHEMA NOT IN ('sys','tailwater')",
    ),
    (
        "parameters of routines",
        "SELECT SPECIFIC_SCHEMA, SPECIFIC_NAME, ORDINAL_POSITION, PARAMETER_MODE, PARAMETER_NAME, DTD_IDENTIFIER, CHARACTER_SET_NAME, \
         COLLATION_NAME, ROUTINE_TYPE FROM information_schema.parameters WHERE SPECIFIC_SCHEMA NOT IN ('sys','tailwater')",
    ),
    (
        "tablespaces",
        "SELECT NAME, FLAG, ROW_FORMAT, SPACE_TYPE FROM information_schema.innodb_tablespaces WHERE SPACE_TYPE='General' AND NAME<>'mysql'",
    ),
    (
        "spatial reference systems",
        "SELECT COUNT(*), MD5(GROUP_CONCAT(SRS_ID)) FROM information_schema.st_spatial_reference_systems",
    ),
    ("histograms", "SELECT SCHEMA_NAME, TABLE_NAME, COLUMN_NAME FROM information_schema.column_statistics"),
];

/// Queries of tables that only MariaDB has, or that differ in MySQL.
const MARIADB_QUERIES: &[(&str, &str)] = &[
    ("accounts", "SELECT * FROM mysql.global_priv"),
    ("roles", "SELECT * FROM mysql.roles_mapping"),
    (
        "routines",
        "SELECT db, name, type, specific_name, language, sql_data_access, is_deterministic, security_type, param_list, returns, body, \
         definer, sql_mode, comment, character_set_client, collation_connection, db_collation, body_utf8, aggregate \
         FROM mysql.proc WHERE db NOT IN ('sys','tailwater','mysql')",
    ),
    ("statistics of tables", "SELECT * FROM mysql.table_stats WHERE db_name<>'tailwater'"),
    ("statistics of columns", "SELECT * FROM mysql.column_stats WHERE db_name<>'tailwater'"),
    ("statistics of indexes", "SELECT * FROM mysql.index_stats WHERE db_name<>'tailwater'"),
];

async fn database(
    connection: &mut Connection,
    name: &str,
    state: &mut ServerContents,
) -> Result<(), SessionError> {
    let quoted = quote_identifier(name);
    put(
        state,
        &format!("database {quoted}"),
        connection.query(&format!("SHOW CREATE DATABASE {quoted}")).await,
    )?;
    let tables = match connection.query(&format!("SHOW FULL TABLES FROM {quoted}")).await {
        Ok(tables) => tables,
        Err(error) => return put(state, &format!("tables of {quoted}"), Err(error)),
    };
    for row in &tables.rows {
        let table = format!("{quoted}.{}", quote_identifier(&text(row.get(0))));
        let kind = text(row.get(1));
        let create = connection.query(&format!("SHOW CREATE TABLE {table}")).await;
        put(state, &format!("{} {table}", kind.to_ascii_lowercase()), create)?;
        if kind != "VIEW" {
            rows(connection, &table, &kind, state).await?;
        }
    }
    Ok(())
}

/// Reads all rows of a table. They are sorted as text, because a table may have no key.
async fn rows(
    connection: &mut Connection,
    table: &str,
    kind: &str,
    state: &mut ServerContents,
) -> Result<(), SessionError> {
    let history = if kind == "SYSTEM VERSIONED" { " FOR SYSTEM_TIME ALL" } else { "" };
    let key = format!("rows of {table}");
    let mut stream = match connection.query_stream(&format!("SELECT * FROM {table}{history}")).await {
        Ok(stream) => stream,
        Err(error) => return put(state, &key, Err(error)),
    };
    let (mut kept, mut count, mut sum) = (Vec::new(), 0_usize, 0_u64);
    let refused = loop {
        match stream.next().await {
            Ok(Some(row)) => {
                let shown = printable(row.len(), |column| row.get(column));
                sum = sum.wrapping_add(hash(&shown));
                count += 1;
                if count <= ROWS_KEPT_MAX {
                    kept.push(shown);
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    if let Some(error) = refused {
        return put(state, &key, Err(error));
    }
    if count > ROWS_KEPT_MAX {
        kept = vec![format!("{count} rows, sum {sum:016x}")];
    }
    kept.sort_unstable();
    state.insert(key, kept);
    Ok(())
}

fn put(
    state: &mut ServerContents,
    name: &str,
    answer: Result<QueryResult, SessionError>,
) -> Result<(), SessionError> {
    let lines = match answer {
        Ok(answer) => {
            let columns: Vec<bool> = answer.columns.iter().map(|column| is_volatile(&column.name)).collect();
            let value = |row: &tailwater_session::TextRow| {
                printable(row.len(), |column| {
                    row.get(column).filter(|_| !columns.get(column).is_some_and(|out| *out))
                })
            };
            let mut lines: Vec<String> = answer.rows.iter().map(value).collect();
            lines.sort_unstable();
            lines
        }
        // Only the error number is stored, because the message may contain file names.
        Err(SessionError::Server { error, .. }) => vec![format!("error {}", error.number)],
        Err(error) => return Err(error),
    };
    state.insert(name.to_owned(), lines);
    Ok(())
}

/// Whether a column contains the time of a change.
fn is_volatile(column: &str) -> bool {
    ["password_last_changed", "last_update"].iter().any(|name| column.eq_ignore_ascii_case(name))
}

/// Ignores an error that the server reports. Any other error is returned, because it means that the
/// connection is broken.
pub fn ignore_refusal<T>(answer: Result<T, SessionError>) -> Result<(), SessionError> {
    match answer {
        Ok(_) | Err(SessionError::Server { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Formats a row as text. Two rows give the same text only if they are equal.
fn printable<'a>(columns: usize, value: impl Fn(usize) -> Option<&'a [u8]>) -> String {
    let values = (0..columns).map(|column| match value(column) {
        None => "NULL".to_owned(),
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => format!("{text:?}"),
            Err(_) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        },
    });
    values.collect::<Vec<_>>().join(", ")
}

fn hash(text: &str) -> u64 {
    // This is the hash FNV-1a. A sum of the hashes of all rows is enough to compare tables in a trial.
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn text(value: Option<&[u8]>) -> String {
    String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_rows_have_different_text() {
        let row = |values: &[Option<&'static [u8]>]| {
            let values = values.to_vec();
            printable(values.len(), move |column| values[column])
        };
        let rows = [
            row(&[None]),
            row(&[Some(b"NULL")]),
            row(&[Some(b"")]),
            row(&[Some(b"a"), Some(b"b")]),
            row(&[Some(b"a\", \"b")]),
            row(&[Some(b"\xff")]),
            row(&[Some(b"ff")]),
        ];
        let different: std::collections::BTreeSet<_> = rows.iter().collect();
        assert_eq!(different.len(), rows.len(), "different rows have the same text: {rows:?}");
        assert_ne!(hash("a"), hash("b"));
    }
}
