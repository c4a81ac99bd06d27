//! Writes the statement for a long row in pieces, directly from the row's event. A copy of the whole row
//! would take too much memory.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{
    BOTH_HALVES, BinlogStatementEncoder, CLOSING, OPENING, half_bytes_max, half_opening, put_table_map,
    set_length, table_id, text_bytes,
};
use crate::batch::{PlannedRow, RowGroup};
use crate::error::ApplyError;

/// Number of event bytes in one piece. A multiple of three, so that each piece is complete base64.
const PIECE_BYTES: usize = 48 << 10;

/// A long row, with the bytes that come before the row in its events.
#[derive(Debug)]
pub struct LongRow<'a> {
    /// The table map, and the rows event up to the row.
    head: Vec<u8>,
    row: PlannedRow<'a>,
}

/// A statement that contains a long row, or half of the row.
#[derive(Debug)]
pub struct LongBinlogStatement<'r> {
    opening: Vec<u8>,
    row: &'r LongRow<'r>,
    /// Range of the event bytes that the statement contains.
    range: Range<usize>,
    closing: &'static [u8],
}

impl BinlogStatementEncoder {
    /// Prepares a row of `group`, whose table has the target's shape. Needs a few hundred bytes of memory in
    /// addition to the row.
    pub fn long_row<'a>(&self, group: &RowGroup<'a>, row: &PlannedRow<'a>) -> LongRow<'a> {
        let mut head = Vec::new();
        put_table_map(&mut head, group, table_id(0));
        let start = self.put_rows_head(&mut head, group, table_id(0), true);
        set_length(&mut head, start, row.bytes());
        LongRow { head, row: *row }
    }

    /// Returns the statements that write a row of `group`.
    ///
    /// # Errors
    /// [`ApplyError::TooLarge`] if the row does not fit into one packet of the target (on MariaDB: into two
    /// packets).
    pub fn long_statements<'r>(
        &self,
        group: &RowGroup<'_>,
        row: &'r LongRow<'r>,
    ) -> Result<Vec<LongBinlogStatement<'r>>, ApplyError> {
        let bytes = row.bytes();
        let whole = LongBinlogStatement { opening: OPENING.to_vec(), row, range: 0..bytes, closing: CLOSING };
        if self.fits_packet(whole.bytes()) {
            return Ok(vec![whole]);
        }
        let half_max = half_bytes_max(self.flavour, self.options.packet_bytes_max, bytes);
        let half_max = half_max.ok_or_else(|| self.too_large(group.table, whole.bytes()))?;
        let half = |index, range| LongBinlogStatement {
            opening: half_opening(index).into_bytes(),
            row,
            range,
            closing: CLOSING,
        };
        let both = LongBinlogStatement { opening: BOTH_HALVES.to_vec(), row, range: 0..0, closing: b"" };
        Ok(vec![half(0, 0..half_max), half(1, half_max..bytes), both])
    }
}

impl LongRow<'_> {
    fn bytes(&self) -> usize {
        self.head.len() + self.row.bytes()
    }

    /// Appends the bytes in `range` of the events.
    fn put(&self, out: &mut Vec<u8>, range: Range<usize>) {
        let mut start = 0;
        let (image, after) = (&self.row.image, &self.row.after);
        for part in [&self.head, image.nulls.as_bytes(), image.values, after.nulls.as_bytes(), after.values] {
            let end = start + part.len();
            let (from, to) = (range.start.clamp(start, end), range.end.clamp(start, end));
            out.extend_from_slice(part.get(from - start..to - start).unwrap_or_default());
            start = end;
        }
    }
}

impl<'r> LongBinlogStatement<'r> {
    /// Returns the length of the statement in bytes.
    pub fn bytes(&self) -> usize {
        self.opening.len() + text_bytes(self.range.len()) + self.closing.len()
    }

    /// Returns the statement in pieces of at most 64 KiB.
    pub fn pieces(&self) -> impl Iterator<Item = Vec<u8>> + Send + use<'_, 'r> {
        let texts = self.range.clone().step_by(PIECE_BYTES).map(|start| {
            let mut bytes = Vec::with_capacity(PIECE_BYTES);
            self.row.put(&mut bytes, start..self.range.end.min(start + PIECE_BYTES));
            BASE64.encode(bytes).into_bytes()
        });
        std::iter::once(self.opening.clone()).chain(texts).chain(std::iter::once(self.closing.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tailwater_wire::Flavour;

    use crate::batch::tests::server_model::{History, wishes};
    use crate::batch::{NullBits, PlanOptions, PlannedRow, RowImage, plan};
    use crate::binlog_statement::{BinlogStatementEncoder, BinlogStatementOptions};

    proptest! {
        #[test]
        fn pieces_join_to_the_whole_statement(
            wishes in wishes(10),
            packet_bytes_max in 100usize..600,
            mariadb: bool,
        ) {
            let flavour = if mariadb { Flavour::MariaDb } else { Flavour::MySql };
            let mut history = History::new(u64::MAX, u8::MAX);
            history.write(&wishes);
            let plan = plan(&history.changes, PlanOptions::default()).unwrap();
            // With this limit, each statement has one row.
            let mut encoder = BinlogStatementEncoder::new(flavour, BinlogStatementOptions { statement_bytes_max: 0, packet_bytes_max });
            for group in &plan.groups {
                for row in &group.rows {
                    let mut alone = group.clone();
                    alone.rows = vec![*row];
                    let mut whole = Vec::new();
                    let wanted = encoder.statements(&[alone], &mut whole).map(|_| whole);
                    let long = encoder.long_row(group, row);
                    let got = encoder.long_statements(group, &long).map(|statements| {
                        statements.iter().map(|it| (it.bytes(), it.pieces().collect::<Vec<_>>().concat())).collect::<Vec<_>>()
                    });
                    match (wanted, got) {
                        (Ok(wanted), Ok(got)) => {
                            prop_assert!(got.iter().all(|(bytes, text)| *bytes == text.len()));
                            prop_assert_eq!(got.into_iter().map(|(_, text)| text).collect::<Vec<_>>(), wanted);
                        }
                        (wanted, got) => prop_assert_eq!(
                            wanted.map_err(|error| error.to_string()).err(),
                            got.map_err(|error| error.to_string()).err()
                        ),
                    }
                }
            }
        }
    }

    #[test]
    fn pieces_of_a_long_row_join_to_its_statement() {
        let nulls = NullBits::gather((0..12).map(|index| index % 3 == 0)).unwrap();
        let image = RowImage::whole(&[2; 100_000]);
        let after = RowImage { nulls, values: &[3; 77_777] };
        let mut row = super::LongRow { head: vec![1; 100], row: PlannedRow { image, after } };
        row.head[99] = 9;
        let statement = super::LongBinlogStatement {
            opening: b"<".to_vec(),
            row: &row,
            range: 3..170_000,
            closing: b">",
        };
        let text = statement.pieces().collect::<Vec<_>>();
        assert!(text.len() > 4 && text.iter().all(|piece| piece.len() <= 64 << 10));
        let text = text.concat();
        assert_eq!(text.len(), statement.bytes());
        let whole = [&row.head[..], &image.to_bytes(), &after.to_bytes()].concat();
        let decoded = base64::Engine::decode(&super::BASE64, &text[1..text.len() - 1]).unwrap();
        assert_eq!(decoded, whole[3..170_000]);
    }
}
