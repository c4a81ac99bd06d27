//! Finds the tables to compare: the selected tables that both sides have.

use std::collections::BTreeSet;

use tailwater_session::{Connection, SessionError};

use super::chunk_comparer::Comparer;
use super::row_difference::TableFinding;
use super::table_pair::TablePair;
use tailwater_tables::chunker::TableInfo;
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::{self, Selection, TableName, VisibilityScope};
use tailwater_wire::sql_quote::{qualified_name, string_literals};

/// The tables of both sides.
pub(super) struct ComparableTables {
    /// Tables that can be compared.
    pub(super) pairs: Vec<TablePair>,
    /// Tables that exist on one side only, and what prevents a complete comparison of other tables.
    pub(super) findings: Vec<TableFinding>,
}

/// Finds the selected tables. The target's tables are listed when the target has everything that the source
/// had. Tables that seem to exist on one side only are looked up again, because tables may be created and
/// dropped in the meantime.
///
/// # Errors
/// [`BulkError::NotFound`] if a selected object is not on the source; [`BulkError::TargetBehind`];
/// [`BulkError::Session`].
pub(super) async fn find(
    comparing: &mut Comparer,
    selection: &Selection,
) -> Result<ComparableTables, BulkError> {
    let on_source = schema::inventory(&mut comparing.source, selection).await?;
    let is_empty = on_source.is_empty(selection);
    for side in [&mut comparing.source, &mut comparing.target] {
        schema::check_visible(side, &on_source.schemas, selection, VisibilityScope::Rows).await?;
    }
    let names: BTreeSet<_> = on_source.tables.into_iter().collect();
    comparing.catch_up().await?;
    let Comparer { source, target, .. } = comparing;
    let others = tables_of(target, &on_source.schemas, selection).await?;
    let mut findings = Vec::new();
    if names != others {
        let still = tables_of(source, &on_source.schemas, selection).await?;
        let only_source = names.difference(&others).filter(|name| still.contains(name));
        findings.extend(only_source.cloned().map(TableFinding::OnlySource));
        let only_target = others.difference(&names).filter(|name| !still.contains(name));
        findings.extend(only_target.cloned().map(TableFinding::OnlyTarget));
    }
    let mut pairs = Vec::new();
    for name in names.intersection(&others) {
        let found = match pair(&mut comparing.source, &mut comparing.target, name).await {
            Ok(found) => found,
            Err(error) if is_of_one_table(&error) => {
                findings.push(unreadable(&mut comparing.source, &mut comparing.target, name, &error).await);
                continue;
            }
            Err(error) => return Err(error),
        };
        // The table has been dropped on one of the sides since it was listed.
        let Some(mut found) = found else { continue };
        if !found.mismatch.is_empty() {
            // The table may have been altered on the source, and the target may not have the change yet.
            comparing.catch_up().await?;
            found = match pair(&mut comparing.source, &mut comparing.target, name).await? {
                Some(found) => found,
                None => continue,
            };
        }
        let pair = found;
        if !pair.mismatch.is_empty() {
            findings.push(TableFinding::Columns(name.clone(), pair.mismatch.clone()));
        }
        pairs.push(pair);
    }
    if pairs.is_empty() && findings.is_empty() && (is_empty || names.is_empty()) {
        // An empty selection must not count as equal servers.
        let server = comparing.source.endpoint().to_owned();
        return Err(BulkError::NothingSelected { server });
    }
    Ok(ComparableTables { pairs, findings })
}

/// Reads the table on both sides; `None` if one side lacks the table.
pub(crate) async fn pair(
    source: &mut Connection,
    target: &mut Connection,
    name: &TableName,
) -> Result<Option<TablePair>, BulkError> {
    let flavours = [source.server().flavour, target.server().flavour];
    let on_source = TableInfo::read(source, &name.schema, &name.name).await?;
    let on_target = TableInfo::read(target, &name.schema, &name.name).await?;
    let infos = on_source.zip(on_target);
    Ok(infos.map(|(source, target)| TablePair::new(name.clone(), source, target, flavours)))
}

/// Returns the tables of a server in the databases of the selection, which may not exist on this server. If
/// all databases are selected, returns the tables in all databases of this server.
async fn tables_of(
    connection: &mut Connection,
    schemas: &[String],
    selection: &Selection,
) -> Result<BTreeSet<TableName>, BulkError> {
    if selection.schemas.is_empty() && selection.tables.is_empty() {
        return Ok(schema::inventory(connection, selection).await?.tables.into_iter().collect());
    }
    let sql = format!(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN ({}) AND table_type IN \
         ('BASE TABLE', 'SYSTEM VERSIONED')",
        string_literals(schemas.iter().map(String::as_str))
    );
    let text = |bytes: Option<&[u8]>| bytes.map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    let answer = connection.query(&sql).await?;
    let names = answer.rows.iter().map(|row| TableName::new(text(row.get(0)), text(row.get(1))));
    Ok(names.filter(|name| selection.wants_table(&name.schema, &name.name)).collect())
}

/// Whether an error concerns only one table, so that other tables can still be compared. Examples: a missing
/// tablespace, a missing engine, a damaged file, a missing base table.
pub(super) fn is_of_one_table(error: &BulkError) -> bool {
    match error {
        BulkError::Session(SessionError::Server { error, .. }) => match error.number {
            GOT_ERROR_OF_ENGINE => engine_error(error.message.expose())
                .is_some_and(|number| OF_ONE_TABLE_IN_ENGINE.contains(&number)),
            number => OF_ONE_TABLE.iter().any(|group| group.contains(&number)),
        },
        BulkError::RowTooLong { .. } => true,
        _ => false,
    }
}

/// Server errors about a single table. All other errors, such as a full disk, no memory, a time limit or a
/// cluster that is not ready, would affect the next table as well.
const OF_ONE_TABLE: [&[u16]; 5] = [
    // The table's files are missing, damaged, of another version, or encrypted with a missing key.
    &[1016, 1017, 1033, 1034, 1035, 1194, 1195, 1459, 1707, 1712, 1808, 1812, 1814, 1815, 1877, 1932, 3185],
    // The table does not exist, its columns or keys have changed, its parts are missing or differ, or its
    // engine is missing.
    &[1054, 1072, 1146, 1168, 1176, 1286, 1356, 1412],
    // The account has no privilege for the table or for a column.
    &[1142, 1143],
    // The table reads from another server or file, and that fails: FEDERATED, CONNECT, SPIDER.
    &[1296, 1429, 1430, 1431, 1432],
    // A value in the table is invalid in its character set, too long for a packet, out of range, or invalid
    // JSON.
    &[1300, 1301, 1690, 3140, 3141, 3144],
];

/// `ER_GET_ERRNO`: the message contains the engine's error number.
const GOT_ERROR_OF_ENGINE: u16 = 1030;

/// Engine errors (`my_base.h`) about a single table. The table has crashed, is of an older version, is
/// missing, or has a damaged or missing index or tablespace. The list also has MariaDB's error for a table
/// that cannot be decrypted with its key.
const OF_ONE_TABLE_IN_ENGINE: [u32; 12] = [126, 127, 130, 132, 134, 144, 145, 155, 164, 180, 192, 194];

/// Returns the first number in messages such as `Got error 194 "Tablespace is missing for a table" from
/// storage engine InnoDB`, in any language.
fn engine_error(message: &str) -> Option<u32> {
    message.split(|letter: char| !letter.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
}

/// Returns the finding for a table that a server cannot read.
pub(super) async fn unreadable(
    source: &mut Connection,
    target: &mut Connection,
    name: &TableName,
    error: &BulkError,
) -> TableFinding {
    let sql = format!("SELECT 1 FROM {} LIMIT 1", qualified_name(&name.schema, &name.name));
    let mut side = "while comparing both sides";
    for (connection, is) in [(source, "on the source"), (target, "on the target")] {
        if connection.query(&sql).await.is_err() {
            side = is;
            break;
        }
    }
    let message = match error {
        BulkError::Session(SessionError::Server { error, .. }) => error.to_string(),
        error => error.to_string(),
    };
    TableFinding::Unreadable(name.clone(), format!("{side}: {message}"))
}

#[cfg(test)]
mod tests {
    use tailwater_session::{ServerError, StatementPrefix};

    use super::*;

    fn is_of_one_table(number: u16, message: &str) -> bool {
        let error = ServerError { number, sql_state: "HY000".into(), message: message.into() };
        let statement = StatementPrefix::default();
        super::is_of_one_table(&SessionError::Server { doing: "", error, statement }.into())
    }

    #[test]
    fn only_errors_about_one_table_skip_a_table() {
        for number in [
            1016, 1017, 1033, 1034, 1035, 1142, 1143, 1146, 1168, 1194, 1195, 1286, 1356, 1812, 1814, 1815,
            1932,
        ] {
            assert!(is_of_one_table(number, ""), "error {number} does not count as an error of one table");
        }
        // These errors are about the whole server: it shuts down, its disk is full, it has no memory, a
        // privilege is missing, its cluster is not ready, it is read-only, or a time limit was exceeded.
        for number in
            [1021, 1028, 1037, 1041, 1044, 1047, 1049, 1053, 1064, 1114, 1135, 1227, 1290, 1836, 1969, 3024]
        {
            assert!(!is_of_one_table(number, ""), "error {number} counts as an error of one table");
        }
        assert!(is_of_one_table(
            1030,
            "Got error 194 \"Tablespace is missing for a table\" from storage engine InnoDB"
        ));
        assert!(is_of_one_table(1030, "Got error 127 - 'Record file is crashed' from storage engine"));
        assert!(!is_of_one_table(1030, "Got error 28 - 'No space left on device' from storage engine"));
        assert!(!is_of_one_table(1030, "Got error -1"));
        assert!(super::is_of_one_table(&BulkError::RowTooLong {
            server: String::new(),
            table: String::new(),
            count: 1
        }));
    }
}
