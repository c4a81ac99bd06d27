//! Restores the primary to its state before a test file. The statements are replicated.

use std::collections::HashMap;

use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::sql_quote::quote_identifier;

use super::test_servers::TestServers;

/// Databases that are not dropped.
const KEPT_DATABASES: [&str; 6] =
    ["mysql", "information_schema", "performance_schema", "sys", "mtr", "tailwater"];

/// Drops what the file created on the primary, and restores the global variables.
///
/// # Errors
/// If something cannot be restored. The servers must then be started from scratch.
pub async fn clean_up(servers: &mut TestServers) -> anyhow::Result<()> {
    let flavour = servers.trial.primary.kind().flavour();
    servers.on_primary.close();
    restore_globals(servers).await?;
    servers.on_primary.close();
    let connection = servers.on_primary.connection().await?;
    connection
        .execute("SET SESSION sql_mode='', foreign_key_checks=0, lock_wait_timeout=10, sql_log_bin=1")
        .await?;
    roll_back_prepared(connection).await?;
    for name in names(connection, "SHOW DATABASES").await? {
        if !KEPT_DATABASES.contains(&name.to_ascii_lowercase().as_str()) {
            connection.execute(&format!("DROP DATABASE {}", quote_identifier(&name))).await?;
        }
    }
    drop_accounts(connection, flavour).await?;
    for name in names(connection, "SELECT Server_name FROM mysql.servers").await? {
        connection.execute(&format!("DROP SERVER {}", quote_identifier(&name))).await?;
    }
    if flavour == Flavour::MySql {
        let spaces = "SELECT NAME FROM information_schema.innodb_tablespaces WHERE SPACE_TYPE='General' AND NAME<>'mysql'";
        for name in names(connection, spaces).await? {
            connection.execute(&format!("DROP TABLESPACE {}", quote_identifier(&name))).await?;
        }
    } else {
        // The deletes are logged as statements, because the replicas may have other rows than the primary.
        connection.execute("SET SESSION binlog_format=STATEMENT").await?;
        for table in ["table_stats", "column_stats", "index_stats"] {
            connection.execute(&format!("DELETE FROM mysql.{table}")).await?;
        }
    }
    connection.execute("CREATE DATABASE test").await?;
    servers.on_primary.close();
    Ok(())
}

async fn names(connection: &mut Connection, question: &str) -> Result<Vec<String>, SessionError> {
    let answer = connection.query(question).await?;
    let name = |row: &tailwater_session::TextRow| {
        String::from_utf8_lossy(row.get(0).unwrap_or_default()).into_owned()
    };
    Ok(answer.rows.iter().map(name).collect())
}

/// Rolls back prepared XA transactions. Before that, the target cannot be compared: a channel applies nothing
/// of an XA transaction before its commit or rollback.
///
/// # Errors
/// If the server rejects a rollback.
pub async fn roll_back_prepared(connection: &mut Connection) -> Result<(), SessionError> {
    let prepared = connection.query("XA RECOVER").await?;
    for row in &prepared.rows {
        let number = |column| row.get_u64(column).unwrap_or_default();
        let (format, global) = (number(0), usize::try_from(number(1)).unwrap_or_default());
        let data = row.get(3).unwrap_or_default();
        let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let (global, branch) = data.split_at(global.min(data.len()));
        connection.execute(&format!("XA ROLLBACK x'{}',x'{}',{format}", hex(global), hex(branch))).await?;
    }
    Ok(())
}

async fn drop_accounts(connection: &mut Connection, flavour: Flavour) -> Result<(), SessionError> {
    let question = match flavour {
        Flavour::MySql => {
            "SELECT CONCAT(QUOTE(User),'@',QUOTE(Host)), 'USER' FROM mysql.user WHERE User NOT LIKE 'mysql.%' \
             AND User NOT IN ('root','tailwater')"
        }
        Flavour::MariaDb => {
            "SELECT IF(JSON_VALUE(Priv,'$.is_role'), CONCAT('`',User,'`'), CONCAT(QUOTE(User),'@',QUOTE(Host))), \
             IF(JSON_VALUE(Priv,'$.is_role'),'ROLE','USER') FROM mysql.global_priv \
             WHERE User NOT IN ('root','tailwater','mariadb.sys','PUBLIC')"
        }
    };
    let accounts = connection.query(question).await?;
    for row in &accounts.rows {
        let (account, kind) = (row.get_str(0).unwrap_or_default(), row.get_str(1).unwrap_or_default());
        connection.execute(&format!("DROP {kind} IF EXISTS {account}")).await?;
    }
    Ok(())
}

/// Resets each global variable that the file has changed.
async fn restore_globals(servers: &mut TestServers) -> anyhow::Result<()> {
    let now: HashMap<String, String> = servers.read_globals().await?.into_iter().collect();
    let changed: Vec<_> = servers
        .globals
        .iter()
        .filter(|(name, value)| now.get(name).is_some_and(|is| is != value))
        .cloned()
        .collect();
    let connection = servers.on_primary.connection().await?;
    for (name, value) in changed {
        let is_number = !value.is_empty()
            && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-');
        let literal = if is_number && value.parse::<f64>().is_ok() {
            value.clone()
        } else {
            format!("'{}'", value.replace('\'', "''"))
        };
        // The server rejects the statement for read-only variables, so that error is ignored.
        match connection.execute(&format!("SET GLOBAL {name}={literal}")).await {
            Ok(_) | Err(SessionError::Server { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
