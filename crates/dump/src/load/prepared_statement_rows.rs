//! Converts the rows of a data file to values of a prepared statement.

use tailwater_wire::protocol::bulk_execute::put_value;

use tailwater_tables::insert_builder::unescape;
use tailwater_tables::tab_separated_rows::place_of_special;

/// Maximum number of ENUM values with index 0 in a batch of several rows. A single row may have more. MariaDB
/// gives a warning for each such value, and shows at most 1,000 warnings.
const ZEROS_MAX: u64 = 500;

/// Values of whole rows that are ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueBatch {
    /// The values in wire format.
    pub bytes: Vec<u8>,
    /// How many of the values are an ENUM with index 0.
    pub zeros: u64,
}

/// Converts the bytes of a data file to values as they arrive.
#[derive(Debug)]
pub struct BulkRows {
    /// Number of fields per row.
    fields: usize,
    /// For each field the text that represents index 0, if the field is an ENUM.
    zero_texts: Vec<Option<String>>,
    batch_bytes_max: usize,
    row_bytes_max: usize,
    /// Values that are ready to be sent, and those of the unfinished row.
    batch: Vec<u8>,
    /// Number of ENUM values with index 0 in the batch, without the unfinished row.
    zeros: u64,
    /// The position in `batch` at which the unfinished row begins.
    row_begin: usize,
    /// Number of ENUM values with index 0 in the unfinished row.
    row_zeros: u64,
    /// Number of complete fields in the unfinished row.
    found: usize,
    /// The bytes of an unfinished field.
    rest: Vec<u8>,
    /// The position in `rest` at which the search for the end of the field continues. It may be after an
    /// escaped byte that has not arrived yet.
    searched: usize,
    /// Whether the unfinished field has an escape.
    escaped: bool,
    rows: u64,
}

/// Why rows cannot be converted to values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BulkRowError {
    /// The data is not valid. The text says what is wrong, and in which row.
    Malformed(String),
    /// A row does not fit into a network packet.
    TooLong,
}

impl BulkRows {
    /// Creates a converter for rows of `fields` fields. A batch has at most `batch_bytes_max` bytes, unless a
    /// single row is longer. A row of more than `row_bytes_max` bytes is refused.
    pub fn new(fields: usize, batch_bytes_max: usize, row_bytes_max: usize) -> Self {
        let batch_bytes_max = batch_bytes_max.min(row_bytes_max);
        Self {
            fields,
            zero_texts: Vec::new(),
            batch_bytes_max,
            row_bytes_max,
            batch: Vec::new(),
            zeros: 0,
            row_begin: 0,
            row_zeros: 0,
            found: 0,
            rest: Vec::new(),
            searched: 0,
            escaped: false,
            rows: 0,
        }
    }

    /// Makes the converter count ENUM values with index 0. `zero_texts` has for each ENUM field the text that
    /// represents index 0.
    pub fn counting_zeros(mut self, zero_texts: Vec<Option<String>>) -> Self {
        self.zero_texts = zero_texts;
        self
    }

    /// Takes the next bytes of the file, and returns the batches that became full.
    ///
    /// # Errors
    /// The reason why the rows cannot be converted. The converter takes no more bytes after an error.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<ValueBatch>, BulkRowError> {
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
            true => Err(BulkRowError::TooLong),
            false => Ok(full),
        }
    }

    /// Returns the last batch, if there is one.
    ///
    /// # Errors
    /// If the last row is incomplete.
    pub fn finish(&mut self) -> Result<Option<ValueBatch>, BulkRowError> {
        if !self.rest.is_empty() || self.found > 0 {
            return Err(BulkRowError::Malformed(format!("row {} has no end", self.rows + 1)));
        }
        self.row_begin = 0;
        let batch =
            ValueBatch { bytes: std::mem::take(&mut self.batch), zeros: std::mem::take(&mut self.zeros) };
        Ok((!batch.bytes.is_empty()).then_some(batch))
    }

    fn field(&mut self, field: &[u8]) -> Result<(), BulkRowError> {
        if let Some(Some(zero)) = self.zero_texts.get(self.found) {
            self.row_zeros += u64::from(field == zero.as_bytes());
        }
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
            true => Err(BulkRowError::TooLong),
            false => Ok(()),
        }
    }

    /// Ends a row. If the row does not fit into the batch, returns the rows before it as a full batch.
    fn end_of_row(&mut self) -> Result<Option<ValueBatch>, BulkRowError> {
        self.rows += 1;
        let found = std::mem::take(&mut self.found);
        if found != self.fields {
            let reason = format!("row {} has {found} fields instead of {}", self.rows, self.fields);
            return Err(BulkRowError::Malformed(reason));
        }
        let mut full = None;
        let row_zeros = std::mem::take(&mut self.row_zeros);
        let has_no_room = self.batch.len() > self.batch_bytes_max || self.zeros + row_zeros > ZEROS_MAX;
        if self.row_begin > 0 && has_no_room {
            let row = self.batch.split_off(self.row_begin);
            let bytes = std::mem::replace(&mut self.batch, row);
            full = Some(ValueBatch { bytes, zeros: std::mem::take(&mut self.zeros) });
        }
        self.zeros += row_zeros;
        self.row_begin = self.batch.len();
        Ok(full)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use tailwater_tables::tab_separated_rows::put_field;

    type Value = Option<Vec<u8>>;

    /// Converts rows of two fields, and returns the batches.
    fn batches(max: (usize, usize), pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, BulkRowError> {
        let mut rows = BulkRows::new(2, max.0, max.1);
        let mut batches = Vec::new();
        for piece in pieces {
            batches.extend(rows.push(piece)?);
        }
        batches.extend(rows.finish()?);
        Ok(batches.into_iter().map(|batch| batch.bytes).collect())
    }

    fn put(values: &[Value]) -> Vec<u8> {
        let mut out = Vec::new();
        values.iter().for_each(|value| put_value(&mut out, value.as_deref()));
        out
    }

    #[test]
    fn invalid_rows_are_refused() {
        let malformed = |file: &[u8], wanted: &str| {
            let refused = batches((99, 99), &[file]);
            matches!(refused, Err(BulkRowError::Malformed(reason)) if reason.contains(wanted))
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
    fn a_row_longer_than_a_packet_is_refused_before_all_of_it_has_arrived() {
        let long = [b"1\t".as_slice(), &[b'x'; 100]].concat();
        assert_eq!(batches((20, 100), &[&long]), Err(BulkRowError::TooLong));
        assert_eq!(batches((20, 100), &[&long, b"\n"]), Err(BulkRowError::TooLong));
        assert_eq!(batches((20, 110), &[&long, b"\n"]).map(|batches| batches.len()), Ok(1));
    }

    #[test]
    fn enum_values_with_index_zero_are_counted_per_batch() {
        let mut rows = BulkRows::new(2, 1 << 20, 1 << 20).counting_zeros(vec![None, Some("00".into())]);
        let few = rows.push(b"00\t0\n00\t00\n1\t\\N\n2\t00\n").expect("the rows are valid");
        assert_eq!(few, []);
        let many = b"3\t00\n".repeat(2 * ZEROS_MAX as usize);
        let mut batches = rows.push(&many).expect("the rows are valid");
        batches.extend(rows.finish().expect("the rows are valid"));
        let zeros: Vec<_> = batches.iter().map(|batch| batch.zeros).collect();
        assert_eq!(zeros, [ZEROS_MAX, ZEROS_MAX, 2]);
    }

    proptest! {
        #[test]
        fn every_value_arrives_however_the_input_is_split(
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
            let found = batches((batch_bytes_max, 1000), &pieces).expect("the rows are valid");
            let wanted: Vec<_> = rows.iter().map(|row| put(row)).collect();
            prop_assert_eq!(found.concat(), wanted.concat());
            // Each batch must have whole rows and no room for the next row.
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
        fn no_bytes_cause_a_panic(pieces: Vec<Vec<u8>>) {
            let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
            let _ = batches((16, 64), &pieces);
        }
    }
}
