//! What queries give: rows of text values.

use std::ops::Range;

use bytes::Bytes;
use tailwater_wire::protocol::ColumnDefinition;
use tailwater_wire::protocol::binary_row::ValueRows;
use tailwater_wire::protocol::packet::{PACKET_HEADER_BYTES, PacketHeader};
use tailwater_wire::protocol::resultset::{TextRowValues, parse_text_row};

use crate::connection::{Connection, OkInfo, READING_ROWS};
use crate::error::SessionError;

/// How much each read of rows takes if it is there, where they are taken many at a time.
const BATCH_BYTES: usize = 256 << 10;

/// What a row costs beyond its bytes, for [`crate::ConnectOptions::rows_bytes_max`].
const ROW_OVERHEAD_BYTES: usize = 64;

/// One row. Values are text in utf8mb4, as the server prints them, or raw bytes for binary columns.
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

    /// How many values the row has.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether the row has no values; rows from a server have one at least.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value of column `index`, from 0; `None` if it is NULL or there is no such column.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let range = self.values.get(index)?.clone()?;
        self.payload.get(range)
    }

    /// The value as text; `None` also if it is no UTF-8.
    pub fn get_str(&self, index: usize) -> Option<&str> {
        str::from_utf8(self.get(index)?).ok()
    }

    /// The value as an unsigned number; `None` also if it is none.
    pub fn get_u64(&self, index: usize) -> Option<u64> {
        self.get_str(index)?.parse().ok()
    }

    /// The value as a number; `None` also if it is none.
    pub fn get_i64(&self, index: usize) -> Option<i64> {
        self.get_str(index)?.parse().ok()
    }

    /// About how much memory the row takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.payload.len() + self.values.len() * size_of::<Option<Range<usize>>>() + ROW_OVERHEAD_BYTES
    }
}

/// One row as it came, whose values are only looked at one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRow<'a> {
    payload: &'a [u8],
    columns: usize,
}

impl<'a> RawRow<'a> {
    /// A row of so many values out of the payload that a server sends it in.
    #[inline]
    pub fn new(payload: &'a [u8], columns: usize) -> Self {
        Self { payload, columns }
    }

    /// As it was sent: each value behind its length, or the mark of NULL. Rows of as many columns are the same bytes only if
    /// all their values are.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.payload
    }

    /// How many values it is to have.
    #[inline]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Its values, `None` for NULL; behind the first error there are none.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = Result<Option<&'a [u8]>, SessionError>> + use<'a> {
        let wrong = |source| SessionError::Protocol { doing: READING_ROWS, source };
        TextRowValues::new(self.payload, self.columns).map(move |value| value.map_err(wrong))
    }
}

/// Rows that came together, as they came; or as they would have, if they came as values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRows {
    /// Those that came in a packet each, behind its header.
    packets: Bytes,
    /// One that came in several packets, put together.
    long: Option<Bytes>,
    /// Those that were made of values, each behind its length in bytes (u32, little-endian).
    made: Vec<u8>,
    columns: usize,
}

/// Of a length before a row that was made of values.
const LENGTH_BYTES: usize = size_of::<u32>();

impl RawRows {
    /// The rows in their order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = RawRow<'_>> {
        let columns = self.columns;
        let mut rest = &self.packets[..];
        let packets = std::iter::from_fn(move || {
            let header = PacketHeader::parse(rest)?;
            let (payload, behind) =
                rest.get(PACKET_HEADER_BYTES..)?.split_at_checked(header.payload_bytes)?;
            rest = behind;
            Some(payload)
        });
        let mut made = &self.made[..];
        let made = std::iter::from_fn(move || {
            let (length, behind) = made.split_first_chunk::<LENGTH_BYTES>()?;
            let (payload, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            made = behind;
            Some(payload)
        });
        packets.chain(self.long.as_deref()).chain(made).map(move |payload| RawRow::new(payload, columns))
    }

    /// The same rows, if these are values.
    fn made(self, rows: &ValueRows) -> Result<Self, SessionError> {
        let wrong = |source| SessionError::Protocol { doing: READING_ROWS, source };
        // Numbers take more as text. A long row is long for its texts.
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

/// A whole result.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryResult {
    /// The columns; none for a statement that gives no rows.
    pub columns: Vec<ColumnDefinition>,
    /// The rows.
    pub rows: Vec<TextRow>,
    /// Rows changed.
    pub affected_rows: u64,
    /// The first AUTO_INCREMENT value generated; 0 for none.
    pub last_insert_id: u64,
    /// How many warnings `SHOW WARNINGS` would list.
    pub warnings: u16,
}

impl QueryResult {
    /// The number of the column of that name, without regard to case.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
    }

    /// The only or first row.
    pub fn first(&self) -> Option<&TextRow> {
        self.rows.first()
    }

    /// The first value of the first row, as text.
    pub fn scalar(&self) -> Option<&str> {
        self.first()?.get_str(0)
    }
}

/// Rows as they come. Read it to the end: dropped before, it leaves the connection unusable.
#[derive(Debug)]
pub struct RowStream<'a> {
    connection: &'a mut Connection,
    columns: Vec<ColumnDefinition>,
    state: State,
    /// If they come as values, and are not all read.
    values: Option<Values>,
}

/// A prepared statement whose rows come as values.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) statement: u32,
    pub(crate) rows: ValueRows,
}

#[derive(Debug)]
enum State {
    Rows,
    Done(OkInfo),
}

impl<'a> RowStream<'a> {
    pub(crate) fn new(
        connection: &'a mut Connection,
        columns: Vec<ColumnDefinition>,
        ok: Option<OkInfo>,
    ) -> Self {
        Self { connection, columns, state: ok.map_or(State::Rows, State::Done), values: None }
    }

    pub(crate) fn of_values(
        connection: &'a mut Connection,
        columns: Vec<ColumnDefinition>,
        values: Values,
    ) -> Self {
        Self { connection, columns, state: State::Rows, values: Some(values) }
    }

    /// The columns; none for a statement that gives no rows.
    pub fn columns(&self) -> &[ColumnDefinition] {
        &self.columns
    }

    /// Whether rows come as values, as [`Connection::query_values`] asks for them; false at the end.
    pub fn comes_as_values(&self) -> bool {
        self.values.is_some()
    }

    /// The rows that have come and were not given yet, one at least, or `None` at the end: for many rows in less time than
    /// [`RowStream::next`] takes, which looks for each row's values.
    ///
    /// # Errors
    /// As [`RowStream::next`].
    pub async fn next_batch(&mut self) -> Result<Option<RawRows>, SessionError> {
        if matches!(self.state, State::Done(_)) {
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
            Some(values) => rows.made(&values.rows).map(Some),
            None => Ok(Some(rows)),
        }
    }

    /// The next row, or `None` at the end. The statement's further results, if it has any, are read and dropped.
    ///
    /// # Errors
    /// [`SessionError::Server`] if the statement fails half-way; anything that breaks the connection.
    pub async fn next(&mut self) -> Result<Option<TextRow>, SessionError> {
        if matches!(self.state, State::Done(_)) {
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

    /// The next row's payload; `None` at the end.
    async fn payload(&mut self) -> Result<Option<Bytes>, SessionError> {
        let read = self.connection.read_payload().await;
        // Either leaves the connection in order.
        if matches!(read, Ok(Err(_)) | Err(SessionError::Server { .. }))
            && let Some(values) = self.values.take()
        {
            self.connection.close_statement(values.statement).await?;
        }
        match read? {
            Ok(payload) => Ok(Some(payload)),
            Err(ok) => {
                self.state = State::Done(ok);
                Ok(None)
            }
        }
    }

    /// What the server said at the end; `None` before.
    pub fn end(&self) -> Option<OkInfo> {
        match self.state {
            State::Done(ok) => Some(ok),
            State::Rows => None,
        }
    }

    pub(crate) fn into_columns(self) -> Vec<ColumnDefinition> {
        self.columns
    }
}
