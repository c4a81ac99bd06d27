//! The results of queries. Their values are text.

use std::ops::Range;

use bytes::Bytes;
use tailwater_wire::protocol::ColumnDefinition;
use tailwater_wire::protocol::binary_row::ValueRows;
use tailwater_wire::protocol::packet::{PACKET_HEADER_BYTES, PacketHeader};
use tailwater_wire::protocol::resultset::{TextRowValues, parse_text_row};

use crate::connection::{Connection, OkInfo, READING_ROWS};
use crate::error::SessionError;

/// The size of one read in bytes when rows are read in batches.
const BATCH_BYTES: usize = 256 << 10;

/// The memory in bytes that a row takes in addition to its values. It counts towards
/// [`crate::ConnectOptions::rows_bytes_max`].
const ROW_OVERHEAD_BYTES: usize = 64;

/// One row. The values are text in utf8mb4, formatted by the server. Values of binary columns are raw bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRow {
    payload: Bytes,
    values: Vec<Option<Range<usize>>>,
}

impl TextRow {
    pub(crate) fn parse(payload: Bytes, columns: usize) -> Result<Self, SessionError> {
        match parse_text_row(&payload, columns) {
            Ok(values) => Ok(Self { payload, values }),
            Err(source) => Err(SessionError::Protocol { doing: READING_ROWS, source }),
        }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether the row has no values. A row from a server has at least one value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value of column `index`, from 0; `None` for NULL and for an index out of range.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let range = self.values.get(index)?.clone()?;
        self.payload.get(range)
    }

    /// The value of column `index` as text. `None` also for invalid UTF-8.
    pub fn get_str(&self, index: usize) -> Option<&str> {
        str::from_utf8(self.get(index)?).ok()
    }

    /// The value of column `index` as an unsigned number. `None` also if the value is not a number.
    pub fn get_u64(&self, index: usize) -> Option<u64> {
        self.get_str(index)?.parse().ok()
    }

    /// The value of column `index` as a number. `None` also if the value is not a number.
    pub fn get_i64(&self, index: usize) -> Option<i64> {
        self.get_str(index)?.parse().ok()
    }

    /// The approximate memory of the row in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.payload.len() + self.values.len() * size_of::<Option<Range<usize>>>() + ROW_OVERHEAD_BYTES
    }
}

/// One row in its wire format. Its values are parsed in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRow<'a> {
    payload: &'a [u8],
    columns: usize,
}

impl<'a> RawRow<'a> {
    /// Creates a row of `columns` values from its payload.
    #[inline]
    pub fn new(payload: &'a [u8], columns: usize) -> Self {
        Self { payload, columns }
    }

    /// The payload of the row: each value after its length, or the byte that means NULL. Two rows with the
    /// same number of columns are equal if and only if their bytes are equal.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.payload
    }

    /// The number of values that the row should have.
    #[inline]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The values in order, `None` for NULL. The iterator ends after an error.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = Result<Option<&'a [u8]>, SessionError>> + use<'a> {
        let wrong = |source| SessionError::Protocol { doing: READING_ROWS, source };
        TextRowValues::new(self.payload, self.columns).map(move |value| value.map_err(wrong))
    }
}

/// A batch of rows in the text protocol's format. Rows of the binary protocol are converted to this format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRows {
    /// Rows that consist of one packet each. Each row follows its packet header.
    packets: Bytes,
    /// One row that came in several packets. The packets are joined.
    long: Option<Bytes>,
    /// Rows converted from the binary protocol, each after its length in bytes (u32, little-endian).
    made: Vec<u8>,
    columns: usize,
}

/// The size of the length before a converted row, in bytes.
const LENGTH_BYTES: usize = size_of::<u32>();

impl RawRows {
    /// The rows in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = RawRow<'_>> {
        let columns = self.columns;
        let mut rest = &self.packets[..];
        let packets = std::iter::from_fn(move || {
            let header = PacketHeader::parse(rest)?;
            let (payload, rows_after) =
                rest.get(PACKET_HEADER_BYTES..)?.split_at_checked(header.payload_bytes)?;
            rest = rows_after;
            Some(payload)
        });
        let mut made = &self.made[..];
        let made = std::iter::from_fn(move || {
            let (length, rows_after) = made.split_first_chunk::<LENGTH_BYTES>()?;
            let (payload, rows_after) = rows_after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            made = rows_after;
            Some(payload)
        });
        packets.chain(self.long.as_deref()).chain(made).map(move |payload| RawRow::new(payload, columns))
    }

    /// Converts rows of the binary protocol to the text format.
    fn converted(self, rows: &ValueRows) -> Result<Self, SessionError> {
        let wrong = |source| SessionError::Protocol { doing: READING_ROWS, source };
        // Numbers take more bytes as text than in binary form. But a row that is longer than a packet is long
        // because of its text values, so reserve only a little more memory for such a row.
        let long = self.long.as_ref().map_or(0, |row| row.len() + row.len() / 64);
        let mut made = Vec::with_capacity(self.packets.len() + self.packets.len() / 4 + long);
        for row in self.iter() {
            let begin = made.len();
            made.extend_from_slice(&[0; LENGTH_BYTES]);
            rows.put_text_row(row.bytes(), &mut made).map_err(wrong)?;
            let length = made.len() - begin - LENGTH_BYTES;
            let too_large = |_| SessionError::ResultTooLarge { bytes_max: u32::MAX as usize };
            let length = u32::try_from(length).map_err(too_large)?;
            made[begin..begin + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        }
        Ok(Self { packets: Bytes::new(), long: None, made, columns: self.columns })
    }
}

/// A complete result of a statement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryResult {
    /// The columns; empty for a statement without rows.
    pub columns: Vec<ColumnDefinition>,
    /// The rows.
    pub rows: Vec<TextRow>,
    /// The number of changed rows.
    pub affected_rows: u64,
    /// The first AUTO_INCREMENT value generated; 0 for none.
    pub last_insert_id: u64,
    /// The number of warnings that `SHOW WARNINGS` lists.
    pub warnings: u16,
}

impl QueryResult {
    /// The index of the column with this name. Upper and lower case are equal.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
    }

    /// The first row.
    pub fn first(&self) -> Option<&TextRow> {
        self.rows.first()
    }

    /// The first value of the first row, as text.
    pub fn scalar(&self) -> Option<&str> {
        self.first()?.get_str(0)
    }
}

/// A stream of rows. Read the stream to its end. If it is dropped before its end, the connection is unusable.
#[derive(Debug)]
pub struct RowStream<'a> {
    connection: &'a mut Connection,
    columns: Vec<ColumnDefinition>,
    state: RowStreamState,
    /// The prepared statement. `None` after all its binary rows are read.
    values: Option<BinaryRows>,
}

/// A prepared statement whose rows come in the binary protocol.
#[derive(Debug)]
pub(crate) struct BinaryRows {
    pub(crate) statement: u32,
    pub(crate) rows: ValueRows,
}

#[derive(Debug)]
enum RowStreamState {
    Rows,
    Done(OkInfo),
}

impl<'a> RowStream<'a> {
    pub(crate) fn new(
        connection: &'a mut Connection,
        columns: Vec<ColumnDefinition>,
        ok: Option<OkInfo>,
    ) -> Self {
        Self {
            connection,
            columns,
            state: ok.map_or(RowStreamState::Rows, RowStreamState::Done),
            values: None,
        }
    }

    pub(crate) fn with_binary_rows(
        connection: &'a mut Connection,
        columns: Vec<ColumnDefinition>,
        values: BinaryRows,
    ) -> Self {
        Self { connection, columns, state: RowStreamState::Rows, values: Some(values) }
    }

    /// The columns; empty for a statement without rows.
    pub fn columns(&self) -> &[ColumnDefinition] {
        &self.columns
    }

    /// Whether the rows come in the binary protocol, as for [`Connection::query_values`]. False after the
    /// last row.
    pub fn is_binary(&self) -> bool {
        self.values.is_some()
    }

    /// Returns all rows that are buffered, at least one. Returns `None` after the last row. For many rows
    /// this is faster than [`RowStream::next`], because that method parses the values of each row.
    ///
    /// # Errors
    /// The same as for [`RowStream::next`].
    pub async fn next_batch(&mut self) -> Result<Option<RawRows>, SessionError> {
        if matches!(self.state, RowStreamState::Done(_)) {
            return Ok(None);
        }
        self.connection.stream.read_ahead_bytes = BATCH_BYTES;
        let columns = self.columns.len();
        let raw = |packets, long| RawRows { packets, long, made: Vec::new(), columns };
        let packets = self.connection.take_rows();
        let rows = if packets.is_empty() {
            let Some(payload) = self.payload().await? else { return Ok(None) };
            raw(Bytes::new(), Some(payload))
        } else {
            raw(packets, None)
        };
        match &self.values {
            Some(values) => rows.converted(&values.rows).map(Some),
            None => Ok(Some(rows)),
        }
    }

    /// Returns the next row, or `None` at the end. Further results of the statement are read and discarded.
    ///
    /// # Errors
    /// [`SessionError::Server`] if the statement fails after some rows; any error that breaks the connection.
    pub async fn next(&mut self) -> Result<Option<TextRow>, SessionError> {
        if matches!(self.state, RowStreamState::Done(_)) {
            return Ok(None);
        }
        let Some(mut payload) = self.payload().await? else { return Ok(None) };
        if let Some(values) = &self.values {
            let mut text = Vec::new();
            let put = values.rows.put_text_row(&payload, &mut text);
            put.map_err(|source| SessionError::Protocol { doing: READING_ROWS, source })?;
            payload = text.into();
        }
        TextRow::parse(payload, self.columns.len()).map(Some)
    }

    /// The payload of the next row; `None` after the last row.
    async fn payload(&mut self) -> Result<Option<Bytes>, SessionError> {
        let read = self.connection.read_payload().await;
        // After the last row or a server error the connection is in a known state. So the prepared statement
        // can be closed.
        if matches!(read, Ok(Err(_)) | Err(SessionError::Server { .. }))
            && let Some(values) = self.values.take()
        {
            self.connection.close_statement(values.statement).await?;
        }
        match read? {
            Ok(payload) => Ok(Some(payload)),
            Err(ok) => {
                self.state = RowStreamState::Done(ok);
                Ok(None)
            }
        }
    }

    /// The OK packet that the server sends after the last row; `None` before that.
    pub fn end(&self) -> Option<OkInfo> {
        match self.state {
            RowStreamState::Done(ok) => Some(ok),
            RowStreamState::Rows => None,
        }
    }

    pub(crate) fn into_columns(self) -> Vec<ColumnDefinition> {
        self.columns
    }
}
