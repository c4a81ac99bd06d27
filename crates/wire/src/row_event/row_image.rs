//! Row images: the columns that an image holds, their NULL bits, and their values.

use super::column_value::BinlogValue;
use super::table_map::TableMap;
use super::table_map_column::{BinlogColumn, ColumnType};
use crate::WireError;
use crate::binlog_event::{RowsEvent, RowsKind};
use crate::byte_cursor::ByteCursor;

const WHAT: &str = "row image";

/// The bit in the value options of an after image which means that JSON columns may hold diffs.
const VALUE_OPTION_PARTIAL_JSON: u64 = 1;

/// One changed row.
#[derive(Debug, Clone, Copy)]
pub struct RowChange<'a> {
    /// The row before the change, in updates and deletes.
    pub before: Option<Image<'a>>,
    /// The row after the change, in inserts and updates.
    pub after: Option<Image<'a>>,
}

/// One image of a row. It holds some or all columns of the row.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    table: &'a TableMap,
    /// One bit for each column of the table: set if the image holds the column.
    present: &'a [u8],
    /// One bit for each JSON column of the table, even for a column that the image does not hold. The bit is
    /// set if the value is a list of diffs.
    partial: Option<&'a [u8]>,
    /// One bit for each column of the image: set if the value is NULL.
    nulls: &'a [u8],
    values: &'a [u8],
    bytes: &'a [u8],
}

/// One column of a row image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageCell<'a> {
    /// Index of the column in the table map, from 0.
    pub index: usize,
    /// The bytes of the value in the event, including the length prefix if there is one. `None` for NULL.
    pub raw: Option<&'a [u8]>,
    /// Whether a JSON column holds diffs instead of a document.
    pub partial: bool,
}

impl<'a> ImageCell<'a> {
    /// Decodes the value. `columns` are the columns of the table map.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a value of the column's type.
    pub fn value(&self, columns: &[BinlogColumn]) -> Result<BinlogValue<'a>, WireError> {
        match (self.raw, columns.get(self.index)) {
            (None, _) => Ok(BinlogValue::Null),
            (Some(raw), Some(column)) => BinlogValue::decode(raw, column, self.partial)
                .map_err(|error| error.in_column(column, self.index)),
            (Some(_), None) => {
                Err(WireError::malformed(WHAT, format!("the table has no column {}", self.index)))
            }
        }
    }
}

impl<'a> Image<'a> {
    /// Returns the table that the image belongs to.
    pub fn table(&self) -> &'a TableMap {
        self.table
    }

    /// Returns the bytes of the image in the event.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns whether the image holds the column with this `index`.
    pub fn has(&self, index: usize) -> bool {
        bit(self.present, index)
    }

    /// Returns whether the image holds all columns.
    pub fn is_full(&self) -> bool {
        (0..self.table.columns.len()).all(|index| self.has(index))
    }

    /// Returns whether the image holds no column.
    pub fn is_empty(&self) -> bool {
        !(0..self.table.columns.len()).any(|index| self.has(index))
    }

    /// Iterates over the columns of the image in order.
    pub fn cells(&self) -> ImageCells<'a> {
        ImageCells {
            image: *self,
            index: 0,
            json_index: 0,
            null_index: 0,
            cursor: ByteCursor::new(WHAT, self.values),
        }
    }

    /// Returns the cell of the column with this `index`, or `None` if the image does not hold the column.
    ///
    /// # Errors
    /// As [`ImageCells`]. Each call reads the image from its start.
    pub fn cell(&self, index: usize) -> Result<Option<ImageCell<'a>>, WireError> {
        for cell in self.cells() {
            let cell = cell?;
            if cell.index == index {
                return Ok(Some(cell));
            }
        }
        Ok(None)
    }

    /// Parses `bytes` as one image of `table` that holds the columns `present`. `after_of_partial` is true
    /// for the after image of a partial update.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not exactly one such image.
    pub fn parse(
        table: &'a TableMap,
        present: &'a [u8],
        after_of_partial: bool,
        bytes: &'a [u8],
    ) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new(WHAT, bytes);
        let image = Self::read(table, present, after_of_partial, &mut cursor)?;
        if !cursor.is_empty() {
            return Err(WireError::malformed(WHAT, format!("{} bytes follow the image", cursor.remaining())));
        }
        Ok(image)
    }

    /// Reads one image from `cursor`. If `after_of_partial` is true, value options precede the image.
    fn read(
        table: &'a TableMap,
        present: &'a [u8],
        after_of_partial: bool,
        cursor: &mut ByteCursor<'a>,
    ) -> Result<Self, WireError> {
        let whole = cursor.peek_rest();
        let start = cursor.position();
        let mut partial = None;
        if after_of_partial {
            let options = cursor.lenenc_int()?;
            if options & !VALUE_OPTION_PARTIAL_JSON != 0 {
                return Err(WireError::unsupported(
                    WHAT,
                    format!("the value options {options:#x} are unknown"),
                ));
            }
            if options & VALUE_OPTION_PARTIAL_JSON != 0 {
                partial = Some(cursor.bytes(table.json_columns().div_ceil(8))?);
            }
        }
        let held = (0..table.columns.len()).filter(|index| bit(present, *index)).count();
        let nulls = cursor.bytes(held.div_ceil(8))?;
        let mut image = Self { table, present, partial, nulls, values: cursor.peek_rest(), bytes: whole };
        let mut cells = image.cells();
        for cell in &mut cells {
            cell?;
        }
        let length = cells.cursor.position();
        image.values = cursor.bytes(length)?;
        image.bytes = &whole[..cursor.position() - start];
        Ok(image)
    }
}

/// Iterates over the [`ImageCell`]s of an image. Ends after an error.
#[derive(Debug, Clone)]
pub struct ImageCells<'a> {
    image: Image<'a>,
    index: usize,
    json_index: usize,
    null_index: usize,
    cursor: ByteCursor<'a>,
}

impl<'a> Iterator for ImageCells<'a> {
    type Item = Result<ImageCell<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let columns = &self.image.table.columns;
        loop {
            let index = self.index;
            let column = columns.get(index)?;
            self.index += 1;
            let mut partial = false;
            if matches!(column.column_type, ColumnType::Json { .. }) {
                partial = self.image.partial.is_some_and(|partial| bit(partial, self.json_index));
                self.json_index += 1;
            }
            if !self.image.has(index) {
                continue;
            }
            let null = bit(self.image.nulls, self.null_index);
            self.null_index += 1;
            if null {
                return Some(Ok(ImageCell { index, raw: None, partial }));
            }
            let length = column.column_type.encoded_length(self.cursor.peek_rest());
            return Some(match length.and_then(|length| self.cursor.bytes(length)) {
                Ok(raw) => Ok(ImageCell { index, raw: Some(raw), partial }),
                Err(error) => {
                    self.index = columns.len();
                    Err(error.in_column(column, index))
                }
            });
        }
    }
}

/// Iterates over the changed rows of a rows event. Ends after an error.
#[derive(Debug, Clone)]
pub struct RowChangeIter<'a> {
    table: &'a TableMap,
    kind: RowsKind,
    present: &'a [u8],
    present_after: &'a [u8],
    cursor: ByteCursor<'a>,
    done: bool,
}

impl<'a> RowChangeIter<'a> {
    /// Creates an iterator over the rows of `event`. `images` are its decompressed images
    /// ([`RowsEvent::images`]).
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the event has another number of columns than `table`.
    pub fn new(table: &'a TableMap, event: &RowsEvent<'a>, images: &'a [u8]) -> Result<Self, WireError> {
        let columns = table.columns.len();
        if event.column_count != columns {
            return Err(WireError::malformed(
                "rows event",
                format!("the event has {} columns, but its table map has {columns}", event.column_count),
            ));
        }
        Ok(Self {
            table,
            kind: event.kind,
            present: event.columns_present,
            present_after: event.columns_present_after,
            cursor: ByteCursor::new(WHAT, images),
            done: false,
        })
    }

    fn read(&mut self) -> Result<RowChange<'a>, WireError> {
        let before =
            |rows: &mut Self| Image::read(rows.table, rows.present, false, &mut rows.cursor).map(Some);
        let after = |rows: &mut Self, partial| {
            Image::read(rows.table, rows.present_after, partial, &mut rows.cursor).map(Some)
        };
        Ok(match self.kind {
            RowsKind::Write => RowChange { before: None, after: before(self)? },
            RowsKind::Delete => RowChange { before: before(self)?, after: None },
            RowsKind::Update => RowChange { before: before(self)?, after: after(self, false)? },
            RowsKind::PartialUpdate => RowChange { before: before(self)?, after: after(self, true)? },
        })
    }
}

impl<'a> Iterator for RowChangeIter<'a> {
    type Item = Result<RowChange<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let start = self.cursor.position();
        // A row without columns takes no bytes. With a minimal row image, the server logs such a row for
        // `INSERT INTO t VALUES ()`. The event then holds only this row.
        if self.cursor.is_empty() && (start > 0 || self.kind != RowsKind::Write) {
            self.done = true;
            return None;
        }
        let row = self.read();
        self.done = row.is_err() || self.cursor.position() == start;
        if self.done && !self.cursor.is_empty() && row.is_ok() {
            return Some(Err(WireError::malformed(
                "rows event",
                "the event has bytes after rows without columns",
            )));
        }
        Some(row)
    }
}

/// Returns bit `index` of a bitmap, counted from the lowest bit. Bits after the end of the bitmap count as 0.
fn bit(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Flavour;
    use crate::row_event::table_map_column::type_code;

    fn table(columns: &[(ColumnType, u8)]) -> TableMap {
        TableMap {
            flavour: Flavour::MySql,
            table_id: 1,
            flags: 1,
            schema: "s".into(),
            table: "t".into(),
            columns: columns.iter().map(|(kind, code)| BinlogColumn::new(*kind, *code, 0, true)).collect(),
            metadata: Default::default(),
        }
    }

    fn event<'a>(kind: RowsKind, columns: usize, present: &'a [u8], after: &'a [u8]) -> RowsEvent<'a> {
        RowsEvent {
            kind,
            version: 2,
            table_id: 1,
            flags: 1,
            extra_data: &[],
            column_count: columns,
            columns_present: present,
            columns_present_after: after,
            rows: &[],
            compressed: false,
        }
    }

    const INT: (ColumnType, u8) = (ColumnType::Long, type_code::LONG);
    const TEXT: (ColumnType, u8) = (ColumnType::VarChar { bytes_max: 10 }, type_code::VARCHAR);
    const JSON: (ColumnType, u8) = (ColumnType::Json { length_bytes: 4 }, type_code::JSON);

    fn values<'a>(image: Option<Image<'a>>) -> Vec<(usize, BinlogValue<'a>)> {
        let image = image.unwrap();
        image
            .cells()
            .map(|cell| cell.unwrap())
            .map(|cell| (cell.index, cell.value(&image.table().columns).unwrap()))
            .collect()
    }

    #[test]
    fn full_images_of_two_rows_are_parsed() {
        let table = table(&[INT, TEXT]);
        let images = [0u8, 1, 0, 0, 0, 2, b'h', b'i', 0b10, 255, 255, 255, 255];
        let event = event(RowsKind::Write, 2, &[0b11], &[0b11]);
        let rows: Vec<_> = RowChangeIter::new(&table, &event, &images).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(values(rows[0].after), [(0, BinlogValue::Int(1)), (1, BinlogValue::Bytes(b"hi"))]);
        assert_eq!(values(rows[1].after), [(0, BinlogValue::Int(-1)), (1, BinlogValue::Null)]);
        assert_eq!(rows[0].after.unwrap().bytes(), &images[..8]);
        assert!(rows[0].after.unwrap().is_full() && rows[0].before.is_none());
        assert_eq!(rows[0].after.unwrap().cell(1).unwrap().unwrap().raw, Some(&images[5..8]));
    }

    #[test]
    fn minimal_images_of_an_update_are_parsed() {
        let table = table(&[INT, TEXT, INT]);
        // The before image holds the key. The after image holds only the text column, which becomes NULL.
        let images = [0u8, 7, 0, 0, 0, 1];
        let event = event(RowsKind::Update, 3, &[0b001], &[0b010]);
        let rows: Vec<_> = RowChangeIter::new(&table, &event, &images).unwrap().map(Result::unwrap).collect();
        assert_eq!(values(rows[0].before), [(0, BinlogValue::Int(7))]);
        assert_eq!(values(rows[0].after), [(1, BinlogValue::Null)]);
        assert!(!rows[0].before.unwrap().is_full());
    }

    #[test]
    fn partial_bits_count_json_columns_that_are_not_in_the_image() {
        let table = table(&[INT, JSON, JSON]);
        // The after image holds only the second JSON column, with a partial value: a diff of four bytes.
        let images = [0u8, 7, 0, 0, 0, 1, 0b10, 0, 4, 0, 0, 0, 2, 2, b'$', b'x'];
        let event = event(RowsKind::PartialUpdate, 3, &[0b001], &[0b100]);
        let rows: Vec<_> = RowChangeIter::new(&table, &event, &images).unwrap().map(Result::unwrap).collect();
        let after = rows[0].after.unwrap();
        assert!(
            matches!(values(Some(after))[..], [(2, BinlogValue::JsonDiff(diff))] if diff.bytes() == [2, 2, b'$', b'x'])
        );
        assert_eq!(after.bytes(), &images[5..]);
    }

    #[test]
    fn a_row_without_columns_is_one_row() {
        let table = table(&[INT]);
        let write = event(RowsKind::Write, 1, &[0], &[0]);
        let rows: Vec<_> = RowChangeIter::new(&table, &write, &[]).unwrap().map(Result::unwrap).collect();
        assert!(rows.len() == 1 && rows[0].after.unwrap().is_empty());
        let mut hostile = RowChangeIter::new(&table, &write, &[0; 9]).unwrap();
        assert!(hostile.next().unwrap().is_err());
        assert!(hostile.next().is_none());
    }

    #[test]
    fn a_truncated_image_is_an_error_and_ends_the_iteration() {
        let table = table(&[INT, TEXT]);
        let event = event(RowsKind::Delete, 2, &[0b11], &[0b11]);
        let mut rows = RowChangeIter::new(&table, &event, &[0, 1, 0, 0, 0, 9, b'h']).unwrap();
        let error = rows.next().unwrap().unwrap_err();
        assert_eq!(error.code(), "TW-WIRE-0001");
        assert!(
            error.to_string().starts_with("column 2: row image is truncated"),
            "unexpected error: {error}"
        );
        assert!(rows.next().is_none());
        assert!(RowChangeIter::new(&super::tests::table(&[INT]), &event, &[]).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_images_never_panic(
            images: Vec<u8>,
            present in 0u8..8,
            after in 0u8..8,
            kind in prop_oneof![
                Just(RowsKind::Write), Just(RowsKind::Update), Just(RowsKind::PartialUpdate), Just(RowsKind::Delete)
            ],
        ) {
            let table = table(&[INT, TEXT, JSON]);
            let (present, after) = ([present], [after]);
            let event = event(kind, 3, &present, &after);
            for row in RowChangeIter::new(&table, &event, &images).unwrap() {
                let Ok(row) = row else { break };
                for image in [row.before, row.after].into_iter().flatten() {
                    for cell in image.cells() {
                        let _ = cell.unwrap().value(&table.columns);
                    }
                }
            }
        }
    }
}
