//! Creates tables with columns of every type, and changes their rows.

use anyhow::{Context, Result};
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use crate::column_type_boundary_values::Family;

/// The database whose tables are the same as on the source, so that rows are written with `BINLOG`.
pub const BY_BINLOG: &str = "types_binlog";
/// The database whose tables have an additional column on the target, so that rows are written as SQL.
pub const BY_SQL: &str = "types_sql";

/// Creates the tables of all families in both databases.
pub async fn define(connection: &mut Connection, families: &[Family], on_target: bool) -> Result<()> {
    let flavour = connection.server().flavour;
    for statement in ["SET sql_log_bin = 0", "SET sql_mode = 'ALLOW_INVALID_DATES'"] {
        connection.execute(statement).await?;
    }
    for schema in [BY_BINLOG, BY_SQL] {
        connection.execute(&format!("CREATE DATABASE {schema} CHARACTER SET utf8mb4")).await?;
        let extra = if on_target && schema == BY_SQL { ", extra INT DEFAULT 7" } else { "" };
        for family in families {
            let columns = family.definitions();
            let mut tables = vec![
                ("key", format!("id INT NOT NULL PRIMARY KEY, {columns}{extra}")),
                ("keyless", format!("id INT, {columns}{extra}")),
                ("late_key", format!("{columns}, id INT NOT NULL, UNIQUE KEY (id){extra}")),
            ];
            if flavour == Flavour::MySql {
                tables.push(("invisible_key", format!("id INT, {columns}{extra}")));
            }
            for (variant, columns) in tables {
                if flavour == Flavour::MySql {
                    let generate = u8::from(variant == "invisible_key");
                    let set = format!("SET sql_generate_invisible_primary_key = {generate}");
                    connection.execute(&set).await?;
                }
                let sql = format!("CREATE TABLE {schema}.{}_{variant} ({columns})", family.name);
                connection.execute(&sql).await.with_context(|| sql.clone())?;
            }
        }
    }
    Ok(())
}

pub fn variants(flavour: Flavour) -> &'static [&'static str] {
    match flavour {
        Flavour::MySql => &["key", "keyless", "late_key", "invisible_key"],
        Flavour::MariaDb => &["key", "keyless", "late_key"],
    }
}

/// Inserts rows with every value, changes some rows to the next value, and deletes some rows.
pub async fn change(connection: &mut Connection, table: &str, family: &Family, round: usize) -> Result<()> {
    let rows = family.rows();
    let id = |row: usize| round * 1000 + row;
    let mut statements = Vec::new();
    let tuples: Vec<_> =
        (0..rows).map(|row| format!("({}, {})", id(row), family.values(row).join(", "))).collect();
    let names = family.written().join(", ");
    statements.push(format!("INSERT INTO {table} (id, {names}) VALUES {}", tuples.join(", ")));
    for row in (0..rows).filter(|row| row % 2 == 0) {
        let (names, values) = (family.written(), family.values(row + 1));
        let set = |at: usize| format!("{} = {}", names[at], values[at]);
        let sets: Vec<_> = match row % 4 {
            0 => (0..names.len()).map(set).collect(),
            _ => vec![set(row % names.len())],
        };
        statements.push(format!("UPDATE {table} SET {} WHERE id = {}", sets.join(", "), id(row)));
    }
    for update in family.updates {
        statements.push(format!("UPDATE {table} SET {update} WHERE id BETWEEN {} AND {}", id(0), id(999)));
    }
    statements.push(format!("DELETE FROM {table} WHERE id BETWEEN {} AND {} AND id % 5 = 3", id(0), id(999)));
    for statement in statements {
        connection
            .execute(&statement)
            .await
            .with_context(|| statement.chars().take(2000).collect::<String>())?;
    }
    Ok(())
}
