//! Counts the rows of an event. The bytes of the event arrive in pieces of any size. The counter neither
//! buffers nor decodes them.

use std::sync::Arc;

use super::table_map::TableMap;
use crate::WireError;
use crate::binlog_event::{RowsEvent, RowsKind};

const WHAT: &str = "row image";

/// The bit in the value options of an after image which means that JSON columns may hold diffs.
const VALUE_OPTION_PARTIAL_JSON: u8 = 1;

/// The widths of a table's values. With them, the counter can skip the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowLayout {
    columns: Arc<[Width]>,
    json_columns: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    /// The value has this many bytes.
    Fixed(u32),
    /// A little-endian length of this many bytes precedes the value.
    Prefixed(u8),
}

impl RowLayout {
    /// Returns the layout of the rows that a table map describes.
    ///
    /// # Errors
    /// There is no error if `table` was parsed from an event.
    pub fn new(table: &TableMap) -> Result<Self, WireError> {
        let width = |column: &super::BinlogColumn| match column.column_type.length_prefix_bytes() {
            0 => column.column_type.encoded_length(&[]).map(|bytes| Width::Fixed(bytes as u32)),
            prefix => Ok(Width::Prefixed(prefix as u8)),
        };
        let columns = table.columns.iter().map(width).collect::<Result<_, _>>()?;
        Ok(Self { columns, json_columns: table.json_columns() })
    }
}

/// Counts the rows of one rows event.
#[derive(Debug)]
pub struct RowCounter {
    shape: RowLayout,
    kind: RowsKind,
    /// The indexes of the columns in the first image of a row, and in the second image if there is one.
    present: [Vec<u16>; 2],
    rows: u64,
    bytes: u64,
    /// The current image of the row: 0 for the first image, 1 for the second.
    image: usize,
    step: CounterState,
    /// The number of bytes of the current value that the counter must still skip.
    skip: u64,
    /// The received part of a small field that the current step needs completely: a bitmap, a length, or
    /// options.
    piece: Vec<u8>,
    nulls: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CounterState {
    /// The counter is at the start of an image.
    Image,
    /// The counter is at the value options that precede the after image of a partial update.
    Options,
    /// The counter is at the bits that show which JSON columns hold diffs.
    PartialBits,
    /// The counter is at the bits that show which columns are NULL.
    Nulls,
    /// The counter is at the column with this index in `present`.
    Column(usize),
}

impl RowCounter {
    /// Creates a counter for `event`. The caller passes the decompressed images to [`RowCounter::update`].
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the event has another number of columns than the table.
    pub fn new(shape: &RowLayout, event: &RowsEvent<'_>) -> Result<Self, WireError> {
        if event.column_count != shape.columns.len() {
            return Err(WireError::malformed(
                "rows event",
                format!(
                    "the event has {} columns, but its table map has {}",
                    event.column_count,
                    shape.columns.len()
                ),
            ));
        }
        let held = |bitmap: &[u8]| -> Vec<u16> {
            let is_set =
                |index: &u16| bitmap.get(usize::from(*index / 8)).is_some_and(|b| b >> (index % 8) & 1 != 0);
            (0..shape.columns.len() as u16).filter(is_set).collect()
        };
        Ok(Self {
            shape: shape.clone(),
            kind: event.kind,
            present: [held(event.columns_present), held(event.columns_present_after)],
            rows: 0,
            bytes: 0,
            image: 0,
            step: CounterState::Image,
            skip: 0,
            piece: Vec::new(),
            nulls: Vec::new(),
        })
    }

    /// Returns the number of complete rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Processes the next bytes of the images.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not images of the table.
    pub fn update(&mut self, mut input: &[u8]) -> Result<(), WireError> {
        self.bytes += input.len() as u64;
        loop {
            let skipped = self.skip.min(input.len() as u64);
            self.skip -= skipped;
            input = &input[skipped as usize..];
            if self.skip > 0 || (input.is_empty() && self.step == CounterState::Image) {
                return Ok(());
            }
            if !self.advance(&mut input)? {
                return Ok(());
            }
        }
    }

    /// Returns the number of rows. Call it after the last bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the last row is incomplete.
    pub fn finish(mut self) -> Result<u64, WireError> {
        // If all remaining columns are NULL, the rest of the row needs no more bytes.
        while self.skip == 0 && !(self.step == CounterState::Image && self.image == 0) {
            if !self.advance(&mut &[][..])? {
                break;
            }
        }
        if self.skip > 0 || self.step != CounterState::Image || self.image != 0 {
            let needed = usize::try_from(self.skip).unwrap_or(usize::MAX).max(1);
            return Err(WireError::Truncated { what: WHAT, offset: self.bytes as usize, needed });
        }
        // An insert event without bytes holds exactly one row, and this row has no columns: see
        // `RowChangeIter`.
        match (self.bytes, self.kind) {
            (0, RowsKind::Write) if self.present[0].is_empty() => Ok(1),
            (0, RowsKind::Write) => Err(WireError::Truncated { what: WHAT, offset: 0, needed: 1 }),
            _ => Ok(self.rows),
        }
    }

    /// Executes one step. Returns false if the step needs more bytes.
    fn advance(&mut self, input: &mut &[u8]) -> Result<bool, WireError> {
        match self.step {
            CounterState::Image => {
                let partial = self.image == 1 && self.kind == RowsKind::PartialUpdate;
                self.step = if partial { CounterState::Options } else { CounterState::Nulls };
            }
            CounterState::Options => {
                if !take_piece(&mut self.piece, input, 1) {
                    return Ok(false);
                }
                let options = self.piece[0];
                if options & !VALUE_OPTION_PARTIAL_JSON != 0 {
                    return Err(WireError::unsupported(
                        WHAT,
                        format!("the value options {options:#x} are unknown"),
                    ));
                }
                self.step = if options == 0 { CounterState::Nulls } else { CounterState::PartialBits };
                self.piece.clear();
            }
            CounterState::PartialBits => {
                if !take_piece(&mut self.piece, input, self.shape.json_columns.div_ceil(8)) {
                    return Ok(false);
                }
                self.piece.clear();
                self.step = CounterState::Nulls;
            }
            CounterState::Nulls => {
                if !take_piece(&mut self.piece, input, self.present[self.image].len().div_ceil(8)) {
                    return Ok(false);
                }
                std::mem::swap(&mut self.nulls, &mut self.piece);
                self.piece.clear();
                self.step = CounterState::Column(0);
            }
            CounterState::Column(index) => return self.columns(index, input),
        }
        Ok(true)
    }

    /// Skips columns until the input ends.
    fn columns(&mut self, mut index: usize, input: &mut &[u8]) -> Result<bool, WireError> {
        let present = &self.present[self.image];
        while let Some(column) = present.get(index) {
            if self.nulls.get(index / 8).is_some_and(|bits| bits >> (index % 8) & 1 != 0) {
                index += 1;
                continue;
            }
            let bytes = match self.shape.columns[usize::from(*column)] {
                Width::Fixed(bytes) => u64::from(bytes),
                Width::Prefixed(prefix) => {
                    if !take_piece(&mut self.piece, input, usize::from(prefix)) {
                        self.step = CounterState::Column(index);
                        return Ok(false);
                    }
                    let length =
                        self.piece.iter().rev().fold(0, |length, byte| length << 8 | u64::from(*byte));
                    self.piece.clear();
                    length
                }
            };
            index += 1;
            if bytes > input.len() as u64 {
                self.skip = bytes - input.len() as u64;
                *input = &[];
                self.step = CounterState::Column(index);
                return Ok(true);
            }
            *input = &input[bytes as usize..];
        }
        self.end_image()?;
        Ok(true)
    }

    fn end_image(&mut self) -> Result<(), WireError> {
        self.step = CounterState::Image;
        let images = match self.kind {
            RowsKind::Write | RowsKind::Delete => 1,
            RowsKind::Update | RowsKind::PartialUpdate => 2,
        };
        self.image += 1;
        if self.image == images {
            if self.present[..images].iter().all(Vec::is_empty) && self.kind != RowsKind::PartialUpdate {
                return Err(WireError::malformed(
                    "rows event",
                    "the event has bytes after rows without columns",
                ));
            }
            self.image = 0;
            self.rows += 1;
        }
        Ok(())
    }
}

/// Completes a field of `bytes` bytes with the start of `input`. Returns false if the field needs more bytes.
fn take_piece(piece: &mut Vec<u8>, input: &mut &[u8], bytes: usize) -> bool {
    let count = bytes.saturating_sub(piece.len()).min(input.len());
    piece.extend_from_slice(&input[..count]);
    *input = &input[count..];
    piece.len() >= bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Flavour;
    use crate::row_event::row_image::RowChangeIter;
    use crate::row_event::table_map_column::{BinlogColumn, ColumnType, type_code};

    fn any_column() -> impl Strategy<Value = ColumnType> {
        prop_oneof![
            Just(ColumnType::Tiny),
            Just(ColumnType::Long),
            Just(ColumnType::LongLong),
            Just(ColumnType::Decimal { precision: 11, scale: 2 }),
            Just(ColumnType::DateTime { fraction: 3 }),
            Just(ColumnType::Bit { bits: 9 }),
            Just(ColumnType::VarChar { bytes_max: 20 }),
            Just(ColumnType::VarChar { bytes_max: 300 }),
            Just(ColumnType::Blob { length_bytes: 3 }),
            Just(ColumnType::Json { length_bytes: 4 }),
        ]
    }

    fn any_kind() -> impl Strategy<Value = RowsKind> {
        prop_oneof![
            Just(RowsKind::Write),
            Just(RowsKind::Update),
            Just(RowsKind::PartialUpdate),
            Just(RowsKind::Delete)
        ]
    }

    fn bitmap(bits: &[bool]) -> Vec<u8> {
        let mut bytes = vec![0; bits.len().div_ceil(8)];
        for (index, _) in bits.iter().enumerate().filter(|(_, bit)| **bit) {
            bytes[index / 8] |= 1 << (index % 8);
        }
        bytes
    }

    /// Builds row images of the columns. `random` decides whether a value is NULL and how long it is.
    fn images(
        columns: &[ColumnType],
        present: [&[bool]; 2],
        kind: RowsKind,
        random: &[u8],
        rows: usize,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut random = random.iter().copied().cycle();
        let mut next = || random.next().unwrap_or(0);
        for _ in 0..rows {
            let count = if matches!(kind, RowsKind::Write | RowsKind::Delete) { 1 } else { 2 };
            for (image, present) in present[..count].iter().enumerate() {
                if image == 1 && kind == RowsKind::PartialUpdate {
                    let json =
                        columns.iter().filter(|column| matches!(column, ColumnType::Json { .. })).count();
                    let partial = next() & 1;
                    bytes.push(partial);
                    bytes.resize(bytes.len() + if partial == 1 { json.div_ceil(8) } else { 0 }, 0);
                }
                let held: Vec<_> =
                    columns.iter().zip(*present).filter(|(_, held)| **held).map(|(c, _)| *c).collect();
                let nulls: Vec<_> = held.iter().map(|_| next() % 3 == 0).collect();
                bytes.extend(bitmap(&nulls));
                for (column, _) in held.iter().zip(&nulls).filter(|(_, null)| !**null) {
                    let length = match column.length_prefix_bytes() {
                        0 => column.encoded_length(&[]).unwrap(),
                        prefix => {
                            let length = usize::from(next() % 20);
                            bytes.push(length as u8);
                            bytes.resize(bytes.len() + prefix - 1, 0);
                            length
                        }
                    };
                    bytes.resize(bytes.len() + length, 7);
                }
            }
        }
        bytes
    }

    proptest! {
        /// For chunks of any size, the count equals the number of rows that an iteration returns. For
        /// truncated images, counting and iterating return the same errors.
        #[test]
        fn counting_equals_iterating(
            columns in proptest::collection::vec((any_column(), any::<bool>(), any::<bool>()), 1..12),
            kind in any_kind(),
            random in proptest::collection::vec(any::<u8>(), 1..60),
            rows in 0usize..20,
            piece in 1usize..40,
            cut in 0usize..3,
        ) {
            let types: Vec<_> = columns.iter().map(|column| column.0).collect();
            // Each image holds at least one column.
            let mut first: Vec<_> = columns.iter().map(|column| column.1).collect();
            let mut second: Vec<_> = columns.iter().map(|column| column.2).collect();
            (first[0], second[0]) = (true, true);
            let table = TableMap {
                flavour: Flavour::MySql,
                table_id: 1,
                flags: 1,
                schema: "s".into(),
                table: "t".into(),
                columns: types.iter().map(|kind| BinlogColumn::new(*kind, type_code::LONG, 0, true)).collect(),
                metadata: Default::default(),
            };
            let mut bytes = images(&types, [&first, &second], kind, &random, rows);
            bytes.truncate(bytes.len().saturating_sub(cut));
            let (first, second) = (bitmap(&first), bitmap(&second));
            let event = RowsEvent {
                kind,
                version: 2,
                table_id: 1,
                flags: 1,
                extra_data: &[],
                column_count: types.len(),
                columns_present: &first,
                columns_present_after: if matches!(kind, RowsKind::Write | RowsKind::Delete) { &first } else { &second },
                rows: &bytes,
                compressed: false,
            };
            let walked: Result<Vec<_>, _> = RowChangeIter::new(&table, &event, &bytes).unwrap().collect();
            let mut counter = RowCounter::new(&RowLayout::new(&table).unwrap(), &event).unwrap();
            let counted = bytes.chunks(piece).try_for_each(|chunk| counter.update(chunk)).and_then(|()| counter.finish());
            match walked {
                Ok(rows) => prop_assert_eq!(counted, Ok(rows.len() as u64)),
                Err(_) => prop_assert!(counted.is_err()),
            }
        }

        #[test]
        fn any_bytes_are_counted_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in any_kind()) {
            let shape = RowLayout {
                columns: [Width::Fixed(4), Width::Prefixed(2), Width::Prefixed(4)].into(),
                json_columns: 1,
            };
            let event = RowsEvent {
                kind,
                version: 2,
                table_id: 1,
                flags: 1,
                extra_data: &[],
                column_count: 3,
                columns_present: &[0b111],
                columns_present_after: &[0],
                rows: &bytes,
                compressed: false,
            };
            let mut counter = RowCounter::new(&shape, &event).unwrap();
            let _ = counter.update(&bytes).and_then(|()| counter.finish());
        }
    }
}
