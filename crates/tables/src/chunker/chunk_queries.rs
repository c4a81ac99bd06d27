//! Sends the queries of the chunker to the server.

use tailwater_session::{Connection, RowStream, ServerInfo, SessionError, TextRow};
use tailwater_wire::Flavour;

use super::chunk_key::ChunkKey;
use super::key_range::{ChunkRange, KeyRange};
use super::key_range_condition::condition;
use super::next_chunk::{ChunkQuery, ChunkQueryResult, ChunkStep, Chunker};
use crate::error::BulkError;
use crate::schema::TableName;
use tailwater_wire::server_version::ServerFeature;
use tailwater_wire::sql_quote::{qualified_name, quote_identifier};

/// Session settings for reading chunks. With them, the server compares zero dates and invalid dates without
/// an error, and prints times in UTC on every connection.
pub const SESSION_SETTINGS: &str = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00', \
                           group_concat_max_len = 1048576";

/// Returns the next chunk of a table; `None` after the last one.
///
/// # Errors
/// [`BulkError::Session`]; [`BulkError::UnexpectedAnswer`] if the server's answer cannot be parsed.
pub async fn next_chunk(
    chunker: &mut Chunker,
    connection: &mut Connection,
    schema: &str,
    table: &str,
) -> Result<Option<ChunkRange>, BulkError> {
    loop {
        match chunker.step() {
            ChunkStep::Done => return Ok(None),
            ChunkStep::Chunk(range) => return Ok(Some(range)),
            ChunkStep::Ask(partition, question) => {
                let Some(key) = chunker.plan().key.clone() else { return Ok(None) };
                let from = from_clause(schema, table, partition.as_deref(), None);
                let sql = statement(&from, &key, &question, connection.server().flavour);
                let answer = connection.query(&sql).await?;
                let answer = parse_result(&key, &question, answer.first(), answer.column("rows"));
                let strange = || BulkError::UnexpectedAnswer {
                    table: format!("{schema}.{table}"),
                    reason: format!(
                        "the result of the query {question:?} on key {} cannot be parsed",
                        key.name
                    ),
                };
                chunker.answer(answer.ok_or_else(strange)?);
            }
        }
    }
}

/// A statement that reads the rows of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkStatement {
    /// The text of the statement.
    pub sql: String,
    /// Whether to read the rows in the binary protocol, because the server is slow to print their values as
    /// text.
    pub as_values: bool,
}

impl ChunkStatement {
    /// Runs the statement and starts to read its rows.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn rows<'c>(&self, connection: &'c mut Connection) -> Result<RowStream<'c>, SessionError> {
        if self.as_values {
            connection.query_values(&self.sql).await
        } else {
            connection.query_stream(&self.sql).await
        }
    }
}

/// Compares the number of rows that arrived for the last statement with the number that the server reports as
/// sent.
///
/// # Errors
/// [`BulkError::RowCountMismatch`] if they differ; [`BulkError::Session`].
pub async fn check_row_count(
    connection: &mut Connection,
    of: &TableName,
    counted: u64,
) -> Result<(), BulkError> {
    let answer = connection.query("SELECT FOUND_ROWS()").await?;
    let sent = answer.first().and_then(|row| row.get_u64(0));
    if sent == Some(counted) {
        return Ok(());
    }
    let sent = sent.map_or_else(|| "none".to_owned(), |sent| sent.to_string());
    let reason = format!("{counted} rows of a chunk arrived, but the server reports that it sent {sent}");
    Err(BulkError::RowCountMismatch { table: of.to_string(), reason })
}

/// How the server should read the rows of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeScan {
    /// The index hint.
    pub hint: IndexHint,
    /// The first words of the statement, with an optimizer hint if needed.
    pub select: &'static str,
}

impl RangeScan {
    /// Decides how to read the rows of a range, in a table with about `rows_estimate` rows.
    ///
    /// MySQL's old optimizer compares each row of a range with the ends of the range again. This costs a
    /// tenth of the CPU time of sending the row. The hypergraph optimizer, which all builds have since 9.7,
    /// knows that the index has already selected only rows within the range.
    pub fn new(server: &ServerInfo, range: &KeyRange, rows_estimate: u64) -> Self {
        let is_range = matches!(range, KeyRange::Integers { .. });
        let select = match is_range && server.has(ServerFeature::HypergraphOptimizer) {
            true => SELECT_BY_HYPERGRAPH,
            false => "SELECT",
        };
        Self { hint: IndexHint::new(server.flavour, range, rows_estimate), select }
    }
}

const SELECT_BY_HYPERGRAPH: &str = "SELECT /*+ SET_VAR(optimizer_switch = 'hypergraph_optimizer=on') */";

/// The hint that makes the server use the index of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexHint {
    /// `FORCE INDEX`: use this index, whatever the optimizer estimates.
    Force,
    /// `USE INDEX`: use this index or read the whole table.
    Use,
}

impl IndexHint {
    /// Chooses the hint for the rows of a range, in a table with about `rows_estimate` rows.
    ///
    /// With a forced index, MySQL does not estimate the number of rows and assumes one. It then fetches rows
    /// one by one, which takes a quarter more CPU time than fetching many rows at a time. So the index is
    /// forced only where the server might otherwise read the whole table.
    pub fn new(flavour: Flavour, range: &KeyRange, rows_estimate: u64) -> Self {
        let rows_max = match range {
            KeyRange::Integers { from: Some(from), to: Some(to) } => {
                to.saturating_sub(*from).saturating_add(1)
            }
            _ => i128::MAX,
        };
        let is_small = rows_max.saturating_mul(4) <= i128::from(rows_estimate);
        if flavour == Flavour::MySql && is_small { Self::Use } else { Self::Force }
    }

    /// Returns the text of the hint, which follows the table's name.
    pub fn text(self, key: &ChunkKey) -> String {
        let hint = match self {
            Self::Force => "FORCE",
            Self::Use => "USE",
        };
        format!(" {hint} INDEX ({})", quote_identifier(&key.name))
    }
}

/// Returns the `FROM` clause with the partition and the index hint. Estimates and the order of rows depend on
/// them.
pub fn from_clause(
    schema: &str,
    table: &str,
    partition: Option<&str>,
    index: Option<(&ChunkKey, IndexHint)>,
) -> String {
    let partition = partition.map(|partition| format!(" PARTITION ({})", quote_identifier(partition)));
    let index = index.map(|(key, hint)| hint.text(key));
    let (partition, index) = (partition.unwrap_or_default(), index.unwrap_or_default());
    format!("FROM {}{partition}{index}", qualified_name(schema, table))
}

fn statement(table: &str, key: &ChunkKey, question: &ChunkQuery, flavour: Flavour) -> String {
    let from = format!("{table}{}", IndexHint::Force.text(key));
    let names: Vec<_> = key.columns.iter().map(|column| quote_identifier(&column.name)).collect();
    let names = names.join(", ");
    let holds = |range: &KeyRange| {
        condition(Some(key), range).map(|condition| format!(" WHERE {condition}")).unwrap_or_default()
    };
    match question {
        ChunkQuery::Extent => format!("SELECT MIN({names}), MAX({names}) {from}"),
        ChunkQuery::Estimate { from: low, to } => {
            let explain = match flavour {
                // The hint disables the hypergraph optimizer, because that optimizer has no `EXPLAIN
                // FORMAT=TRADITIONAL`. Servers without the switch `hypergraph_optimizer` ignore the hint.
                Flavour::MySql => {
                    "EXPLAIN FORMAT=TRADITIONAL SELECT /*+ SET_VAR(optimizer_switch='hypergraph_optimizer=off') */"
                }
                Flavour::MariaDb => "EXPLAIN SELECT",
            };
            let range = KeyRange::Integers { from: Some(*low), to: Some(*to) };
            // This is USE INDEX, not FORCE INDEX: with a forced index, MySQL does not estimate the number of
            // rows.
            format!("{explain} {names} {table} USE INDEX ({}){}", quote_identifier(&key.name), holds(&range))
        }
        ChunkQuery::Boundary { after, rows } => {
            let expressions: Vec<_> = key.columns.iter().map(|column| column.expression()).collect();
            let range = KeyRange::Keys { after: after.clone(), to: None };
            let skipped = rows.saturating_sub(1);
            format!(
                "SELECT {} {from}{} ORDER BY {} LIMIT 1 OFFSET {skipped}",
                expressions.join(", "),
                holds(&range),
                key.order()
            )
        }
    }
}

fn parse_result(
    key: &ChunkKey,
    question: &ChunkQuery,
    row: Option<&TextRow>,
    rows_column: Option<usize>,
) -> Option<ChunkQueryResult> {
    match question {
        ChunkQuery::Extent => {
            let end = |index| row?.get_str(index)?.parse::<i128>().ok();
            Some(ChunkQueryResult::Extent(end(0).zip(end(1))))
        }
        // The row "Impossible WHERE" has no number of rows.
        ChunkQuery::Estimate { .. } => {
            Some(ChunkQueryResult::Estimate(row?.get_u64(rows_column?).unwrap_or(0)))
        }
        ChunkQuery::Boundary { .. } => {
            let Some(row) = row else { return Some(ChunkQueryResult::Boundary(None)) };
            let values = key.columns.iter().enumerate();
            let literals = values.map(|(index, column)| column.literal(row.get(index)?));
            Some(ChunkQueryResult::Boundary(Some(literals.collect::<Option<_>>()?)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_forced_if_the_server_might_read_the_whole_table() {
        let range = |from, to| KeyRange::Integers { from, to };
        let hint = |range: &KeyRange, rows| IndexHint::new(Flavour::MySql, range, rows);
        let hundred = range(Some(-49), Some(50));
        assert_eq!(hint(&hundred, 400), IndexHint::Use);
        // The index is forced: the range may be most of the table, or the estimate may be stale.
        assert_eq!(hint(&hundred, 399), IndexHint::Force);
        assert_eq!(hint(&range(None, Some(50)), u64::MAX), IndexHint::Force);
        assert_eq!(hint(&range(Some(i128::MIN), Some(i128::MAX)), u64::MAX), IndexHint::Force);
        assert_eq!(hint(&KeyRange::Keys { after: None, to: None }, u64::MAX), IndexHint::Force);
        assert_eq!(IndexHint::new(Flavour::MariaDb, &hundred, 400), IndexHint::Force);
    }
}
