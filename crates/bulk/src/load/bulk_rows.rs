//! Rows of a data file as values for a statement that the server has prepared.

use tailwater_wire::protocol::bulk::put_value;

use super::inserts::unescape;
use crate::dump::tsv::place_of_special;

/// Makes values out of a file's bytes as they come.
#[derive(Debug)]
pub struct BulkRows {
    /// How many fields a row has.
    fields: usize,
    batch_bytes_max: usize,
    row_bytes_max: usize,
    /// Values that are ready.
    batch: Vec<u8>,
    /// Where in `batch` the row begins whose end has not come, and how many of its fields are there.
    row_begin: usize,
    found: usize,
    /// The front of a field whose end has not come; where the search for its end goes on, which may be behind an escaped byte
    /// that has not come; and whether it has an escape.
    rest: Vec<u8>,
    searched: usize,
    escaped: bool,
    rows: u64,
}

/// Why rows cannot go on so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// They are no rows: what is wrong, and with which.
    Malformed(String),
    /// A row is too long to be in one packet.
    TooLong,
}

impl BulkRows {
    /// For rows of so many fields. No batch is longer than `batch_bytes_max` unless a single row is, and none than
    /// `row_bytes_max`.
    pub fn new(fields: usize, batch_bytes_max: usize, row_bytes_max: usize) -> Self {
        let batch_bytes_max = batch_bytes_max.min(row_bytes_max);
        Self {
            fields,
            batch_bytes_max,
            row_bytes_max,
            batch: Vec::new(),
            row_begin: 0,
            found: 0,
            rest: Vec::new(),
            searched: 0,
            escaped: false,
            rows: 0,
        }
    }

    /// Takes the next bytes, and gives the batches that became full.
    ///
    /// # Errors
    /// Why it cannot: nothing more is to be pushed then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Refused> {
        let mut full = Vec::new();
        let mut data = std::mem::take(&mut self.rest);
        data.extend_from_slice(bytes);
        let (mut begin, mut at) = (0, self.searched);
        while let Some(special) = data.get(at..).and_then(place_of_special) {
            at += special;
            match data[at] {
                b'\\' => {
                    self.escaped = true;
                    at += 2;
                }
                end @ (b'\t' | b'\n') => {
                    self.field(&data[begin..at])?;
                    at += 1;
                    begin = at;
                    if end == b'\n' {
                        full.extend(self.end_of_row()?);
                    }
                }
                _ => at += 1,
            }
        }
        self.searched = at.max(data.len()) - begin;
        data.drain(..begin);
        self.rest = data;
        match self.batch.len() - self.row_begin + self.rest.len() > self.row_bytes_max {
            true => Err(Refused::TooLong),
            false => Ok(full),
        }
    }

    /// The last batch, if there is one.
    ///
    /// # Errors
    /// If the last row has no end.
    pub fn finish(&mut self) -> Result<Option<Vec<u8>>, Refused> {
        if !self.rest.is_empty() || self.found > 0 {
            return Err(Refused::Malformed(format!("row {} has no end", self.rows + 1)));
        }
        self.row_begin = 0;
        let batch = std::mem::take(&mut self.batch);
        Ok((!batch.is_empty()).then_some(batch))
    }

    fn field(&mut self, field: &[u8]) -> Result<(), Refused> {
        self.found += 1;
        match std::mem::take(&mut self.escaped) {
            false => put_value(&mut self.batch, Some(field)),
            true if field == b"\\N" => put_value(&mut self.batch, None),
            true => {
                let mut value = Vec::with_capacity(field.len());
                unescape(field, |byte| value.push(byte));
                put_value(&mut self.batch, Some(&value));
            }
        }
        match self.batch.len() - self.row_begin > self.row_bytes_max {
            true => Err(Refused::TooLong),
            false => Ok(()),
        }
    }

    /// Gives the rows before this one if it has no room behind them.
    fn end_of_row(&mut self) -> Result<Option<Vec<u8>>, Refused> {
        self.rows += 1;
        let found = std::mem::take(&mut self.found);
        if found != self.fields {
            let reason = format!("row {} has {found} fields instead of {}", self.rows, self.fields);
            return Err(Refused::Malformed(reason));
        }
        let mut full = None;
        if self.row_begin > 0 && self.batch.len() > self.batch_bytes_max {
            let row = self.batch.split_off(self.row_begin);
            full = Some(std::mem::replace(&mut self.batch, row));
        }
        self.row_begin = self.batch.len();
        Ok(full)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dump::tsv::put_field;

    type Value = Option<Vec<u8>>;

    /// Batches, one after the other, of rows of two fields.
    fn batches(max: (usize, usize), pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, Refused> {
        let mut rows = BulkRows::new(2, max.0, max.1);
        let mut batches = Vec::new();
        for piece in pieces {
            batches.extend(rows.push(piece)?);
        }
        batches.extend(rows.finish()?);
        Ok(batches)
    }

    fn put(values: &[Value]) -> Vec<u8> {
        let mut out = Vec::new();
        values.iter().for_each(|value| put_value(&mut out, value.as_deref()));
        out
    }

    #[test]
    fn what_is_no_row_is_refused() {
        let malformed = |file: &[u8], wanted: &str| {
            let refused = batches((99, 99), &[file]);
            matches!(refused, Err(Refused::Malformed(reason)) if reason.contains(wanted))
        };
        assert!(malformed(b"1\n", "1 fields instead of 2"));
        assert!(malformed(b"1\t2\t3\n", "3 fields instead of 2"));
        assert!(malformed(b"1\t2", "no end"));
        assert!(malformed(b"1\t", "no end"));
        assert!(malformed(b"1\t2\\\n", "no end"));
        assert!(malformed(b"1\t2\n1\t2\\", "row 2 has no end"));
        assert_eq!(batches((99, 99), &[]), Ok(vec![]));
    }

    #[test]
    fn a_row_that_no_packet_holds_is_said_before_its_end() {
        let long = [b"1\t".as_slice(), &[b'x'; 100]].concat();
        assert_eq!(batches((20, 100), &[&long]), Err(Refused::TooLong));
        assert_eq!(batches((20, 100), &[&long, b"\n"]), Err(Refused::TooLong));
        assert_eq!(batches((20, 110), &[&long, b"\n"]).map(|batches| batches.len()), Ok(1));
    }

    proptest! {
        #[test]
        fn every_value_arrives_whatever_the_pieces(
            rows in prop::collection::vec(prop::array::uniform2(prop::option::of(
                prop_oneof![prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(prop::sample::select(b"\\\t\n\0Na".to_vec()), 0..9)]
            )), 1..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
            batch_bytes_max in 1usize..200,
        ) {
            let mut file = Vec::new();
            for [one, other] in &rows {
                put_field(&mut file, one.as_deref());
                file.push(b'\t');
                put_field(&mut file, other.as_deref());
                file.push(b'\n');
            }
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(file.len())).collect();
            cuts.extend([0, file.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &file[pair[0]..pair[1]]).collect();
            let found = batches((batch_bytes_max, 1000), &pieces).expect("rows");
            let wanted: Vec<_> = rows.iter().map(|row| put(row)).collect();
            prop_assert_eq!(found.concat(), wanted.concat());
            // Each is whole rows, and has no room for the next one.
            let mut rest = wanted.iter();
            for (number, batch) in found.iter().enumerate() {
                let mut length = 0;
                let mut count = 0;
                while length < batch.len() {
                    length += rest.next().map_or(usize::MAX / 2, Vec::len);
                    count += 1;
                }
                prop_assert_eq!(length, batch.len());
                prop_assert!(length <= batch_bytes_max || count == 1);
                let next = rest.clone().next().map_or(0, Vec::len);
                prop_assert!(number + 1 == found.len() || length + next > batch_bytes_max);
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(pieces: Vec<Vec<u8>>) {
            let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
            let _ = batches((16, 64), &pieces);
        }
    }
}
