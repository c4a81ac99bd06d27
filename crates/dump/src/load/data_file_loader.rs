//! Loads the rows of a data file into a table of the target.

use std::sync::Arc;
use std::time::Duration;

use tailwater_session::{BulkStatement, Connection, LoadPiece, OkInfo, QueryResult, SessionError, TextRow};
use tokio::sync::mpsc;
use tracing::warn;

use super::bulk_insert_choice::BulkInsert;
use super::data_file_reader;
use super::dump_contents::{Decoding, LoadChunk, TableFiles, TextFields, file_name};
use super::load_progress_table::LoadRecord;
use super::prepared_statement_rows::BulkRowError;
use tailwater_files::file_store::FileStore;
use tailwater_tables::chunker::table_info::keeps_rows;
use tailwater_tables::data_file_field_conversion::stored;
use tailwater_tables::enum_members;
use tailwater_tables::error::{BulkError, ResumeHint};
use tailwater_tables::insert_builder::InsertBuilder;
use tailwater_tables::schema::TableName;
use tailwater_tables::schema::statement_splitter::{self, StatementSplitter};
use tailwater_wire::sql_quote::{qualified_name, quote_identifier, string_literal};

/// Maximum size in bytes of an INSERT statement that the load builds. The maximum is lower if the target's
/// `max_allowed_packet` is smaller.
const STATEMENT_BYTES_MAX: usize = 4 << 20;

/// Maximum size in bytes of a statement in a data file. No server accepts longer statements.
const FOREIGN_STATEMENT_BYTES_MAX: usize = 1 << 30;

/// Size in bytes of a packet without its statement.
const PACKET_OVERHEAD_BYTES: usize = 1024;

/// Number of the server's warning for a truncated value. Sometimes the level of the warning is only `Note`.
const DATA_TRUNCATED: u64 = 1265;

/// Maximum number of attempts to find a table in the server's `information_schema`, and the pause between two
/// attempts. A table that exists may be missing there for a short time.
const DESCRIBED_TRIES_MAX: u32 = 50;
const DESCRIBED_PAUSE: Duration = Duration::from_millis(100);

/// Character sets in which a digit has several bytes.
const WIDE_CHARSETS: [&str; 4] = ["ucs2", "utf16", "utf16le", "utf32"];

/// Server error for a row whose key exists already.
const DUPLICATE_KEY: u16 = 1062;

/// How the rows of a table are stored on the target.
#[derive(Debug, Clone)]
pub(crate) struct LoadTarget {
    pub(crate) table: TableName,
    /// Names and types of the columns on the target.
    columns: Vec<(String, String)>,
    /// For each column the text that represents index 0, if the column is an ENUM: see [`enum_members`].
    zero_texts: Vec<Option<String>>,
    /// Generated columns, whose values the target computes.
    generated: Vec<String>,
    /// Whether the engine has transactions, so that a rollback removes all rows of a transaction.
    pub(crate) transactional: bool,
    /// The storage engine, if tables of this engine store no rows.
    pub(crate) engine_without_rows: Option<String>,
    method: LoadMethod,
}

/// How rows are loaded into a table.
#[derive(Debug, Clone)]
enum LoadMethod {
    /// The rows are loaded with `LOAD DATA LOCAL`. The value is the encoding of the fields, if they have one.
    LoadData(Option<TextFields>),
    /// The rows are sent as values of a prepared statement, or with `LOAD DATA LOCAL` if that is impossible.
    Bulk(BulkInsert),
    /// The load builds INSERT statements of up to this size in bytes.
    Inserts(usize),
    /// The load runs the statements in the data files.
    Statements,
}

/// Returns two query results. The first has the table's engine, and whether the engine has transactions. The
/// second has the columns with their types.
async fn described(
    connection: &mut Connection,
    table: &TableName,
) -> Result<(QueryResult, QueryResult), BulkError> {
    let of_table = format!(
        "table_schema = {} AND table_name = {}",
        string_literal(&table.schema),
        string_literal(&table.name)
    );
    let engine = format!(
        "SELECT transactions, tables.engine FROM information_schema.tables LEFT JOIN information_schema.engines \
         ON engines.engine = tables.engine WHERE {of_table}"
    );
    let columns = format!(
        "SELECT column_name, LOWER(data_type), COALESCE(generation_expression, '') <> '', LOWER(column_type), \
             character_set_name FROM information_schema.columns WHERE {of_table}"
    );
    let mut tries = 0;
    loop {
        let (shown, columns) = (connection.query(&engine).await?, connection.query(&columns).await?);
        // The `information_schema` of MariaDB omits a table that is being altered, for example while the
        // server still creates the indexes of an interrupted load.
        let left_out = shown.first().is_some_and(|row| row.get_str(1).is_none() || columns.rows.is_empty());
        tries += 1;
        if !left_out || tries == DESCRIBED_TRIES_MAX {
            return Ok((shown, columns));
        }
        tokio::time::sleep(DESCRIBED_PAUSE).await;
    }
}

impl LoadTarget {
    /// Reads the description of the table from the target.
    ///
    /// # Errors
    /// [`BulkError::NotFound`] if the table or one of the columns does not exist.
    pub(crate) async fn of(
        connection: &mut Connection,
        table: &TableFiles,
        inserts: bool,
    ) -> Result<Self, BulkError> {
        let missing = |what: String, connection: &Connection| BulkError::NotFound {
            what,
            server: connection.endpoint().into(),
        };
        let (shown, columns_shown) = described(connection, &table.name).await?;
        // A table without an engine is a view, or is still being altered after all attempts.
        let Some(shown) = shown.first().filter(|shown| shown.get_str(1).is_some()) else {
            return Err(missing(format!("table {}", table.name), connection));
        };
        let transactional = shown.get_str(0) == Some("YES");
        let engine_without_rows = shown.get_str(1).filter(|engine| !keeps_rows(engine)).map(str::to_owned);
        let data_type = |name: &str| {
            let row = columns_shown.rows.iter().find(|row| row.get_str(0) == Some(name))?;
            row.get_str(1).map(str::to_owned)
        };
        let mut columns = Vec::new();
        for column in table.columns.iter().flatten() {
            match data_type(column) {
                Some(data_type) => columns.push((column.clone(), data_type)),
                None => return Err(missing(format!("column {column} of {}", table.name), connection)),
            }
        }
        let zero_text = |(name, data_type): &(String, String)| {
            let row = columns_shown.rows.iter().find(|row| row.get_str(0) == Some(name))?;
            // For an ENUM in a character set of `WIDE_CHARSETS`, no text represents index 0. If a row has
            // index 0, the server gives a warning and the load fails.
            let of_bytes = !row.get_str(4).is_some_and(|charset| WIDE_CHARSETS.contains(&charset));
            enum_members::index_zero(data_type, row.get_str(3)?).filter(|_| of_bytes)
        };
        let zero_texts = columns.iter().map(zero_text).collect();
        let computed = columns_shown.rows.iter().filter(|row| row.get_str(2) == Some("1"));
        let generated = computed.filter_map(|row| row.get_str(0)).map(str::to_owned).collect();
        let method = match (&table.columns, &table.text) {
            (None, _) => LoadMethod::Statements,
            (Some(_), Some(_)) if inserts => {
                return Err(BulkError::InsertsUnsupported { table: table.name.to_string() });
            }
            (Some(_), None) if inserts => {
                let sql = "SELECT @@SESSION.max_allowed_packet";
                let packet = connection.query(sql).await?.first().and_then(|row| row.get_u64(0));
                let packet = packet.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(1 << 20);
                LoadMethod::Inserts(STATEMENT_BYTES_MAX.min(packet.saturating_sub(PACKET_OVERHEAD_BYTES)))
            }
            (Some(_), Some(text)) => LoadMethod::LoadData(Some(text.clone())),
            (Some(_), None) => match transactional {
                true => BulkInsert::of(connection, &table.name, &columns)
                    .await?
                    .map_or(LoadMethod::LoadData(None), LoadMethod::Bulk),
                false => LoadMethod::LoadData(None),
            },
        };
        Ok(Self {
            table: table.name.clone(),
            columns,
            zero_texts,
            generated,
            transactional,
            engine_without_rows,
            method,
        })
    }

    /// Returns whether the table stores no rows, and logs that it is skipped. Its rows, if any, are loaded
    /// with the tables that store them.
    pub(crate) fn is_skipped(&self) -> bool {
        if let Some(engine) = &self.engine_without_rows {
            warn!(table = %self.table, engine, "table skipped: its engine stores no rows");
        }
        self.engine_without_rows.is_some()
    }

    fn load_data_statement(
        &self,
        connection: &Connection,
        chunk: &LoadChunk,
        text: Option<&TextFields>,
    ) -> String {
        let flavour = connection.server().flavour;
        let mut fields = Vec::new();
        let mut sets = Vec::new();
        for (index, (name, data_type)) in self.columns.iter().enumerate() {
            let field = format!("@tailwater_{index}");
            let decoded = text.and_then(|text| text.decoded.get(name)).map(|method| match method {
                Decoding::Base64 => format!("FROM_BASE64({field})"),
                Decoding::Hex => format!("UNHEX({field})"),
            });
            let converted = || stored(&field, flavour, data_type).filter(|_| text.is_none());
            match decoded.or_else(converted) {
                Some(value) => {
                    sets.push(format!("{} = {value}", quote_identifier(name)));
                    fields.push(field);
                }
                None => fields.push(quote_identifier(name)),
            }
        }
        let file = file_name(&chunk.path);
        let set = if sets.is_empty() { String::new() } else { format!(" SET {}", sets.join(", ")) };
        format!(
            "LOAD DATA LOCAL INFILE {} INTO TABLE {} CHARACTER SET {} FIELDS TERMINATED BY '\\t' \
             ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' ({}){set}",
            string_literal(&file),
            qualified_name(&self.table.schema, &self.table.name),
            text.map_or("binary", |text| text.character_set.as_str()),
            fields.join(", ")
        )
    }

    fn failed(&self, chunk: &LoadChunk, error: SessionError) -> BulkError {
        let (table, path) = (self.table.to_string(), chunk.path.clone());
        BulkError::RowsRejected { table, path, error: Box::new(error), hint: ResumeHint::Resume }
    }

    /// Loads a file, in one transaction with the record that the file is loaded. Returns the number of rows;
    /// `None` if the file was already loaded.
    ///
    /// # Errors
    /// - [`BulkError::RowsRejected`] with the error of the server or the connection.
    /// - [`BulkError::RowsAltered`] and [`BulkError::RowsMissing`] if rows on the target would differ from
    ///   those in the file.
    /// - The errors of [`data_file_reader::send`](super::data_file_reader::send).
    ///
    /// After an error the transaction is not committed, and the connection must not be used any more.
    pub(crate) async fn load(
        &self,
        connection: &mut Connection,
        files: &Arc<dyn FileStore>,
        record: &LoadRecord,
        chunk: &Arc<LoadChunk>,
    ) -> Result<Option<u64>, BulkError> {
        let feed = |sender| {
            let (files, chunk) = (files.clone(), chunk.clone());
            async move {
                let rows = chunk.rows;
                let sent = tokio::task::spawn_blocking(move || {
                    data_file_reader::send(files.as_ref(), &chunk, &sender)
                });
                match sent.await {
                    Ok(sent) => sent.map(|()| rows),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                }
            }
        };
        self.load_from(connection, record, chunk, feed).await
    }

    /// Loads rows as [`Self::load`] does. `feed` sends the rows, and returns their number if it is known.
    /// Errors of `feed` take precedence over those of the target.
    ///
    /// # Errors
    /// The errors of [`Self::load`], and the errors of `feed`.
    pub(crate) async fn load_from<Feed, Fed>(
        &self,
        connection: &mut Connection,
        record: &LoadRecord,
        chunk: &LoadChunk,
        feed: Feed,
    ) -> Result<Option<u64>, BulkError>
    where
        Feed: FnOnce(mpsc::Sender<LoadPiece>) -> Fed,
        Fed: Future<Output = Result<Option<u64>, BulkError>>,
    {
        let failed = |error| self.failed(chunk, error);
        if !self.transactional {
            // With GTIDs, servers refuse a transaction that changes a table without transactions and also
            // another table. So the record that the file is loaded has its own transaction. The record is
            // written after the rows: a resumed load empties a table whose record is missing.
            let rows = self.send(connection, chunk, feed).await?;
            let recorded =
                record.record_chunk(connection, &self.table, chunk.number).await.map_err(failed)?;
            return Ok(recorded.then_some(rows));
        }
        connection.execute("START TRANSACTION").await.map_err(failed)?;
        if !record.record_chunk(connection, &self.table, chunk.number).await.map_err(failed)? {
            connection.execute("ROLLBACK").await.map_err(failed)?;
            return Ok(None);
        }
        let rows = self.send(connection, chunk, feed).await?;
        connection.execute("COMMIT").await.map_err(failed)?;
        Ok(Some(rows))
    }

    /// Sends rows to the target, and checks how the server stored them.
    async fn send<Feed, Fed>(
        &self,
        connection: &mut Connection,
        chunk: &LoadChunk,
        feed: Feed,
    ) -> Result<u64, BulkError>
    where
        Feed: FnOnce(mpsc::Sender<LoadPiece>) -> Fed,
        Fed: Future<Output = Result<Option<u64>, BulkError>>,
    {
        let (sender, mut pieces) = mpsc::channel(data_file_reader::PIECES_MAX);
        let loading = async {
            let loaded = match &self.method {
                LoadMethod::LoadData(text) => {
                    self.load_data(connection, chunk, text.as_ref(), &mut pieces).await
                }
                LoadMethod::Bulk(bulk) => match bulk.prepare(connection).await {
                    Ok(Some(statement)) => {
                        self.insert_bulk(connection, bulk, statement, chunk, &mut pieces).await
                    }
                    Ok(None) => self.load_data(connection, chunk, None, &mut pieces).await,
                    Err(error) => Err(self.failed(chunk, error)),
                },
                LoadMethod::Inserts(bytes_max) => {
                    self.insert(connection, *bytes_max, chunk, &mut pieces).await
                }
                LoadMethod::Statements => self.run_statements(connection, chunk, &mut pieces).await,
            };
            // The channel with the pieces is closed and emptied, because the sender must not wait for a
            // receiver that has stopped receiving.
            pieces.close();
            while pieces.try_recv().is_ok() {}
            loaded
        };
        let (fed, loaded) = tokio::join!(feed(sender), loading);
        // If the source of the rows fails, the load fails, too. The error of the source is the cause, so it
        // is returned.
        let rows = fed?;
        let loaded = loaded?;
        self.check_warnings(connection, chunk, loaded.warnings, 0).await?;
        self.check_rows(chunk, rows, loaded.affected_rows)?;
        Ok(loaded.affected_rows)
    }

    async fn load_data(
        &self,
        connection: &mut Connection,
        chunk: &LoadChunk,
        text: Option<&TextFields>,
        pieces: &mut mpsc::Receiver<LoadPiece>,
    ) -> Result<OkInfo, BulkError> {
        let statement = self.load_data_statement(connection, chunk, text);
        let loaded = connection.load_data(statement.as_bytes(), pieces).await;
        loaded.map_err(|error| self.failed(chunk, error))
    }

    async fn insert_bulk(
        &self,
        connection: &mut Connection,
        bulk: &BulkInsert,
        statement: BulkStatement,
        chunk: &LoadChunk,
        pieces: &mut mpsc::Receiver<LoadPiece>,
    ) -> Result<OkInfo, BulkError> {
        let refused = |refused| match refused {
            BulkRowError::Malformed(reason) => BulkError::Damaged { path: chunk.path.clone(), reason },
            BulkRowError::TooLong => {
                bulk.give_up();
                let (table, bytes_max) = (self.table.to_string(), bulk.row_bytes_max);
                BulkError::RowExceedsPacket { table, path: chunk.path.clone(), bytes_max }
            }
        };
        let mut rows = bulk.rows(&statement, self.zero_texts.clone());
        let mut sum = OkInfo::default();
        let mut complete = false;
        while !complete {
            let batches = match pieces.recv().await {
                Some(LoadPiece::Bytes(bytes)) => rows.push(&bytes).map_err(refused)?,
                Some(LoadPiece::End) => {
                    complete = true;
                    rows.finish().map_err(refused)?.into_iter().collect()
                }
                None => return Err(self.failed(chunk, SessionError::LoadBody)),
            };
            for batch in batches {
                let ok = connection.execute_bulk(&statement, &batch.bytes).await;
                let ok = ok.map_err(|error| match error {
                    // LOAD DATA LOCAL gives a warning for a duplicate key, so this method returns the same
                    // error as for a warning.
                    SessionError::Server { error, .. } if error.number == DUPLICATE_KEY => {
                        let (table, path) = (self.table.to_string(), chunk.path.clone());
                        BulkError::RowsAltered { table, path, warnings: 1, first: error.message }
                    }
                    error => self.failed(chunk, error),
                })?;
                // The warnings are read now, because the next statement clears them.
                self.check_warnings(connection, chunk, ok.warnings, batch.zeros).await?;
                sum.affected_rows += ok.affected_rows;
            }
        }
        connection.close_bulk(statement).await.map_err(|error| self.failed(chunk, error))?;
        Ok(sum)
    }

    async fn insert(
        &self,
        connection: &mut Connection,
        bytes_max: usize,
        chunk: &LoadChunk,
        pieces: &mut mpsc::Receiver<LoadPiece>,
    ) -> Result<OkInfo, BulkError> {
        let malformed = |reason| BulkError::Damaged { path: chunk.path.clone(), reason };
        let flavour = connection.server().flavour;
        let mut inserts = InsertBuilder::new(&self.table, &self.columns, flavour, bytes_max);
        let mut sum = OkInfo::default();
        let mut complete = false;
        while !complete {
            let statements = match pieces.recv().await {
                Some(LoadPiece::Bytes(bytes)) => inserts.push(&bytes).map_err(malformed)?,
                Some(LoadPiece::End) => {
                    complete = true;
                    inserts.finish().map_err(malformed)?.into_iter().collect()
                }
                None => return Err(self.failed(chunk, SessionError::LoadBody)),
            };
            for statement in statements {
                let ok = connection.execute_bytes(&statement).await;
                let ok = ok.map_err(|error| self.failed(chunk, error))?;
                // The warnings are read now, because the next statement clears them.
                self.check_warnings(connection, chunk, ok.warnings, 0).await?;
                sum.affected_rows += ok.affected_rows;
            }
        }
        Ok(sum)
    }

    /// Runs the statements of a data file. Only statements that insert rows into this table, or set up the
    /// session for them, are accepted.
    async fn run_statements(
        &self,
        connection: &mut Connection,
        chunk: &LoadChunk,
        pieces: &mut mpsc::Receiver<LoadPiece>,
    ) -> Result<OkInfo, BulkError> {
        let malformed = |reason| BulkError::Damaged { path: chunk.path.clone(), reason };
        let failed = |error| self.failed(chunk, error);
        // Table names in the file are not qualified by a database.
        connection.execute(&format!("USE {}", quote_identifier(&self.table.schema))).await.map_err(failed)?;
        let mut splitter = StatementSplitter::new(FOREIGN_STATEMENT_BYTES_MAX);
        let mut sum = OkInfo::default();
        let mut complete = false;
        while !complete {
            let statements = match pieces.recv().await {
                Some(LoadPiece::Bytes(bytes)) => splitter.push(&bytes).map_err(malformed)?,
                Some(LoadPiece::End) => {
                    complete = true;
                    splitter.finish().map_err(malformed)?.into_iter().collect()
                }
                None => return Err(self.failed(chunk, SessionError::LoadBody)),
            };
            for statement in statements {
                match statement_splitter::verb(&statement).as_str() {
                    "INSERT" | "REPLACE" => {
                        let ok = connection.execute_bytes(&statement).await.map_err(failed)?;
                        self.check_warnings(connection, chunk, ok.warnings, 0).await?;
                        sum.affected_rows += ok.affected_rows;
                    }
                    "SET" => drop(connection.execute_bytes(&statement).await.map_err(failed)?),
                    other => {
                        return Err(malformed(format!("a data file has the unexpected statement {other}")));
                    }
                }
            }
        }
        // The settings of the file must not affect the statements that the load itself sends.
        connection.execute("SET NAMES utf8mb4").await.map_err(failed)?;
        Ok(sum)
    }

    /// Checks that the server changed no value and skipped no row, because `LOAD DATA LOCAL` turns errors
    /// into warnings. MariaDB gives the same warning for index 0 of an ENUM as for a text that is not a
    /// member of the ENUM. If there are as many such warnings as values with index 0, all these warnings are
    /// about index 0 and are ignored.
    async fn check_warnings(
        &self,
        connection: &mut Connection,
        chunk: &LoadChunk,
        warnings: u16,
        zeros: u64,
    ) -> Result<(), BulkError> {
        if warnings == 0 {
            return Ok(());
        }
        let shown = connection.query("SHOW WARNINGS").await.map_err(|error| self.failed(chunk, error))?;
        let message =
            |row: &TextRow| row.get(2).map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        let is_of_member = |row: &TextRow| {
            let members = self.columns.iter().zip(&self.zero_texts).filter(|(_, zero)| zero.is_some());
            let mut members = members.map(|((name, _), _)| name);
            row.get_u64(1) == Some(DATA_TRUNCATED) && members.any(|name| is_of_column(&message(row), name))
        };
        let of_members = shown.rows.iter().filter(|row| is_of_member(row)).count() as u64;
        let passes_members = zeros > 0 && of_members == zeros;
        let matters = |row: &&TextRow| {
            let message = message(row);
            if passes_members && is_of_member(row) {
                return false;
            }
            (row.get_str(0) != Some("Note") || row.get_u64(1) == Some(DATA_TRUNCATED))
                && !is_of_computing(row.get_u64(1), &message, &self.generated)
        };
        let first = match shown.rows.iter().find(matters) {
            Some(row) => message(row).into(),
            None if shown.rows.len() < usize::from(warnings) => {
                "the server reports more warnings than it shows".into()
            }
            None => return Ok(()),
        };
        let (table, path) = (self.table.to_string(), chunk.path.clone());
        Err(BulkError::RowsAltered { table, path, warnings, first })
    }

    fn check_rows(&self, chunk: &LoadChunk, wanted: Option<u64>, found: u64) -> Result<(), BulkError> {
        match wanted {
            Some(wanted) if wanted != found => {
                let (table, path) = (self.table.to_string(), chunk.path.clone());
                Err(BulkError::RowsMissing { table, path, found, wanted })
            }
            _ => Ok(()),
        }
    }
}

/// Returns whether a warning is about a generated column, and not about a loaded value. The source computed
/// the same value from the same columns, and gave the same warning. Only English warnings are recognised.
fn is_of_computing(number: Option<u64>, message: &str, generated: &[String]) -> bool {
    /// Number of the warning for an expression that reads a text as a number. Warnings about a column name
    /// the column.
    const TRUNCATED_VALUE: u64 = 1292;
    if generated.is_empty() {
        return false;
    }
    if number == Some(TRUNCATED_VALUE) && message.starts_with("Truncated incorrect ") {
        return true;
    }
    generated.iter().any(|name| is_of_column(message, name))
}

/// Returns whether a warning ends like a warning about a column's value. Only the end is compared, because
/// the value before it may contain any text.
fn is_of_column(message: &str, column: &str) -> bool {
    let Some((front, row)) = message.rsplit_once(" at row ") else { return false };
    let ends = [
        format!("column '{column}'"),
        format!("column {}", quote_identifier(column)),
        format!(".{}", quote_identifier(column)),
    ];
    !row.is_empty()
        && row.bytes().all(|byte| byte.is_ascii_digit())
        && ends.iter().any(|end| front.ends_with(end.as_str()))
}

#[cfg(test)]
mod tests {
    use super::is_of_computing;

    #[test]
    fn only_warnings_about_generated_columns_are_ignored() {
        let generated = ["b".to_owned()];
        let is = |number, message| is_of_computing(Some(number), message, &generated);
        assert!(is(1264, "Out of range value for column 'b' at row 12"));
        assert!(is(1366, "Incorrect integer value: 'x' for column `s`.`t`.`b` at row 1"));
        assert!(is(1292, "Truncated incorrect DOUBLE value: 'abc'"));
        for message in [
            "Out of range value for column 'a' at row 12",
            "Incorrect string value: 'column 'b' at row 1' for column 'a' at row 1",
            "Incorrect datetime value: '2024-13-01' for column 'ab' at row 1",
            "Duplicate entry 'column 'b'' for key 'b'",
        ] {
            assert!(!is(1292, message), "the warning was ignored: {message}");
        }
        assert!(!is_of_computing(Some(1292), "Truncated incorrect DOUBLE value: 'abc'", &[]));
    }
}
