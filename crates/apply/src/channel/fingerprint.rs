//! What the objects that a statement may change look like: whether a statement that commits by itself has run is told by
//! whether they look as before.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;

use super::text::quote;
use crate::transaction::Statement;

/// The seed must not change: a fingerprint outlives the process.
const SEED: u64 = 0x7461_696c_7761_7465;

/// Names of databases that `statement` may touch: its default one, and each word of it that could be a name.
fn candidates(statement: &Statement) -> BTreeSet<String> {
    const WORDS_MAX: usize = 4096;
    let mut names = BTreeSet::new();
    names.insert(String::from_utf8_lossy(&statement.database).into_owned());
    let text = String::from_utf8_lossy(&statement.text);
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == '-';
    for word in
        text.split(|c: char| !is_part(c)).filter(|word| (1..=64).contains(&word.len())).take(WORDS_MAX)
    {
        names.insert(word.to_owned());
    }
    names
}

/// The definitions that stand in `information_schema`, each with the column that names the database.
fn sources(flavour: Flavour) -> Vec<(&'static str, &'static str)> {
    let mut sources = vec![
        (
            "SELECT schema_name, default_character_set_name, default_collation_name FROM information_schema.schemata",
            "schema_name",
        ),
        (
            "SELECT table_schema, table_name, table_type, engine, row_format, table_collation, create_options, \
             table_comment FROM information_schema.tables",
            "table_schema",
        ),
        (
            "SELECT table_schema, table_name, column_name, ordinal_position, column_default, is_nullable, \
             column_type, collation_name, extra, column_comment, generation_expression FROM \
             information_schema.columns",
            "table_schema",
        ),
        (
            "SELECT table_schema, table_name, index_name, seq_in_index, column_name, sub_part, non_unique, \
             index_type, index_comment FROM information_schema.statistics",
            "table_schema",
        ),
        (
            "SELECT constraint_schema, table_name, constraint_name, constraint_type FROM \
             information_schema.table_constraints",
            "constraint_schema",
        ),
        (
            "SELECT table_schema, table_name, partition_name, subpartition_name, partition_method, \
             partition_expression, partition_description FROM information_schema.partitions",
            "table_schema",
        ),
        ("SELECT table_schema, table_name, view_definition FROM information_schema.views", "table_schema"),
        (
            "SELECT trigger_schema, trigger_name, event_manipulation, event_object_table, action_order, \
             action_statement, action_timing FROM information_schema.triggers",
            "trigger_schema",
        ),
        (
            "SELECT routine_schema, routine_name, routine_type, routine_definition, routine_comment, definer FROM \
             information_schema.routines",
            "routine_schema",
        ),
        (
            "SELECT event_schema, event_name, event_definition, status, interval_value, interval_field, execute_at \
             FROM information_schema.events",
            "event_schema",
        ),
    ];
    // Two tables of the same definition that swap their names: only their numbers tell.
    sources.push(match flavour {
        Flavour::MySql => {
            ("SELECT name, table_id FROM information_schema.innodb_tables", "SUBSTRING_INDEX(name, '/', 1)")
        }
        Flavour::MariaDb => (
            "SELECT name, table_id FROM information_schema.innodb_sys_tables",
            "SUBSTRING_INDEX(name, '/', 1)",
        ),
    });
    sources
}

/// A fingerprint of everything in the databases that `statement` may touch.
///
/// # Errors
/// Anything that breaks the connection. What the user may not see is left out.
pub(super) async fn fingerprint(
    connection: &mut Connection,
    statement: &Statement,
    flavour: Flavour,
) -> Result<String, SessionError> {
    let names: Vec<String> = candidates(statement).iter().map(|name| quote(name)).collect();
    let names = names.join(",");
    let mut hasher = FixedState::with_seed(SEED).build_hasher();
    for (select, column) in sources(flavour) {
        let sql = format!("{select} WHERE {column} IN ({names}) ORDER BY 1,2");
        match sum_of_rows(connection, &sql).await {
            Ok(sum) => hasher.write_u64(sum),
            // Not everybody may look at the engine's own tables; MySQL says so only when rows are read.
            Err(SessionError::Server { error, .. }) if matches!(error.number, 1044 | 1142 | 1227) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// The same in whatever order the server gives the rows.
async fn sum_of_rows(connection: &mut Connection, sql: &str) -> Result<u64, SessionError> {
    let mut rows = connection.query_stream(sql).await?;
    let mut sum = 0u64;
    while let Some(row) = rows.next().await? {
        let mut row_hasher = FixedState::with_seed(SEED).build_hasher();
        for index in 0..row.len() {
            let value = row.get(index);
            row_hasher.write_u64(value.map_or(u64::MAX, |value| value.len() as u64));
            row_hasher.write(value.unwrap_or_default());
        }
        sum = sum.wrapping_add(row_hasher.finish());
    }
    Ok(sum)
}

/// Whether an error says that what a statement was to make or remove is already so: the answer to a second run of one
/// that ran.
pub(super) fn says_done_already(number: u16) -> bool {
    matches!(
        number,
        1007 | 1008
            | 1050
            | 1051
            | 1060
            | 1061
            | 1068
            | 1091
            | 1141
            | 1147
            | 1304
            | 1305
            | 1359
            | 1360
            | 1396
            | 1403
            | 1517
            | 1537
            | 1539
            | 1826
            | 3822
            | 4091
            | 4092
            | 4163
    )
}
