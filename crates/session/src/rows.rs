//! What queries give: rows of text values.

use std::ops::Range;

use bytes::Bytes;
use tailwater_wire::protocol::ColumnDefinition;
use tailwater_wire::protocol::packet::{PACKET_HEADER_BYTES, PacketHeader};
use tailwater_wire::protocol::resultset::{TextRowValues, parse_text_row};

use crate::connection::{Connection, OkInfo};
use crate::error::SessionError;

/// How much each read of rows takes if it is there, where they are taken many at a time.
const BATCH_BYTES: usize = 256 << 10;

/// What a row costs beyond its bytes, for [`crate::ConnectOptions::rows_bytes_max`].
const ROW_OVERHEAD_BYTES: usize = 64;

/// One row. Values are text in utf8mb4, as the server prints them, or raw bytes for binary columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    payload: Bytes,
    values: Vec<Option<Range<usize>>>,
}

impl Row {
    pub(crate) fn parse(payload: Bytes, columns: usize) -> Result<Self, SessionError> {
        match parse_text_row(&payload, columns) {
            Ok(values) => Ok(Self { payload, values }),
            Err(source) => Err(SessionError::Protocol { doing: crate::connection::READING_ROWS, source }),
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
        let wrong = |source| SessionError::Protocol { doing: crate::connection::READING_ROWS, source };
        TextRowValues::new(self.payload, self.columns).map(move |value| value.map_err(wrong))
    }
}

/// Rows that came together, as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRows {
    /// Those that came in a packet each, behind its header.
    packets: Bytes,
    /// One that came in several packets, put together.
    long: Option<Bytes>,
    columns: usize,
}

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
        packets.chain(self.long.as_deref()).map(move |payload| RawRow::new(payload, columns))
    }
}

/// A whole result.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryResult {
    /// The columns; none for a statement that gives no rows.
    pub columns: Vec<ColumnDefinition>,
    /// The rows.
    pub rows: Vec<Row>,
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
    pub fn first(&self) -> Option<&Row> {
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
        Self { connection, columns, state: ok.map_or(State::Rows, State::Done) }
    }

    /// The columns; none for a statement that gives no rows.
    pub fn columns(&self) -> &[ColumnDefinition] {
        &self.columns
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
        let packets = self.connection.take_rows();
        if !packets.is_empty() {
            return Ok(Some(RawRows { packets, long: None, columns }));
        }
        match self.connection.read_payload().await? {
            Ok(payload) => Ok(Some(RawRows { packets: Bytes::new(), long: Some(payload), columns })),
            Err(ok) => {
                self.state = State::Done(ok);
                Ok(None)
            }
        }
    }

    /// The next row, or `None` at the end. The statement's further results, if it has any, are read and dropped.
    ///
    /// # Errors
    /// [`SessionError::Server`] if the statement fails half-way; anything that breaks the connection.
    pub async fn next(&mut self) -> Result<Option<Row>, SessionError> {
        match self.state {
            State::Done(_) => Ok(None),
            State::Rows => match self.connection.read_row(self.columns.len()).await? {
                Ok(row) => Ok(Some(row)),
                Err(ok) => {
                    self.state = State::Done(ok);
                    Ok(None)
                }
            },
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
