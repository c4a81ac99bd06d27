//! The set of the log's transactions that a target has applied: all transactions up to one position, and some
//! after that position.
//!
//! Transactions are identified by their [`LogSpan`]s. Spans have no gaps: each span starts at the end of the
//! previous one. So a set of transactions is a set of intervals of the log. If no transaction before the last
//! applied one is missing, the set is a single position.
//!
//! Each worker has its own row on the target. The worker writes to its row all transactions that it knows to
//! be committed, and the transactions that it is about to commit. It writes the row in the same transaction
//! as the data. A crash of the target may lose its last commits: those at the end of its redo log. The union
//! of the remaining rows is exactly the set of the transactions that the target has ([`AppliedSet::merge`]).

use std::collections::BTreeMap;

use tailwater_log::LogPosition;

use crate::log_position_range::LogSpan;

/// The first byte of an encoded set.
const VERSION: u8 = 1;
/// Minimum length of an encoded interval, in bytes: for start and end, one byte for the segment and one for
/// the offset.
const INTERVAL_BYTES_MIN: usize = 4;

/// A set of transactions of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedSet {
    low: LogPosition,
    /// The intervals after `low`: maps the start of each interval to its end. No interval is empty or
    /// adjacent to another interval or to `low`.
    above: BTreeMap<LogPosition, LogPosition>,
}

/// The bytes are not an encoded [`AppliedSet`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stored progress cannot be decoded at byte {offset}: {reason}; if no other program wrote to the progress table, a newer Tailwater wrote this progress"
)]
pub struct ProgressError {
    /// Byte offset of the error.
    pub offset: usize,
    /// What is wrong at that offset.
    pub reason: &'static str,
}

impl AppliedSet {
    /// Returns the set of all transactions up to `low`.
    pub fn new(low: LogPosition) -> Self {
        Self { low, above: BTreeMap::new() }
    }

    /// Returns the low watermark: all transactions up to this position are applied.
    pub fn low(&self) -> LogPosition {
        self.low
    }

    /// Returns whether all transactions in `span` are applied.
    pub fn contains(&self, span: &LogSpan) -> bool {
        span.end <= self.low
            || self
                .above
                .range(..=span.start)
                .next_back()
                .is_some_and(|(start, end)| *start <= span.start && span.end <= *end)
    }

    /// Adds all transactions in `span`. Some of them may already be in the set.
    pub fn add(&mut self, span: LogSpan) {
        let LogSpan { mut start, mut end } = span;
        if start >= end || end <= self.low {
            return;
        }
        if let Some((before, before_end)) = self.above.range(..start).next_back()
            && *before_end >= start
        {
            start = *before;
        }
        while let Some((next, next_end)) = self.above.range(start..=end).next() {
            let (next, next_end) = (*next, *next_end);
            end = end.max(next_end);
            self.above.remove(&next);
        }
        if start <= self.low {
            self.low = end;
        } else {
            self.above.insert(start, end);
        }
    }

    /// Adds all transactions of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.raise(other.low);
        for (start, end) in &other.above {
            self.add(LogSpan { start: *start, end: *end });
        }
    }

    /// Adds all transactions up to `low`.
    fn raise(&mut self, low: LogPosition) {
        if low <= self.low {
            return;
        }
        self.low = low;
        while let Some(first) = self.above.first_entry()
            && *first.key() <= self.low
        {
            self.low = self.low.max(first.remove());
        }
    }

    /// Returns the missing spans between the low watermark and the last applied transaction, in order.
    pub fn gaps(&self) -> impl Iterator<Item = LogSpan> + '_ {
        let starts = self.above.keys();
        let ends = std::iter::once(&self.low).chain(self.above.values());
        ends.zip(starts).map(|(start, end)| LogSpan { start: *start, end: *end })
    }

    /// Returns the end of the last applied transaction.
    pub fn high(&self) -> LogPosition {
        self.above.last_key_value().map_or(self.low, |(_, end)| *end)
    }

    /// Returns the encoding for a worker's row: a version byte, then numbers in LEB128. The first numbers are
    /// the low watermark, as segment and offset. Then come the number of intervals, and the start and end of
    /// each. A position is encoded as the difference between its segment and the segment of the previous
    /// position, followed by its offset. If the segment is the same, the difference between the offsets
    /// follows instead.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + 8 * self.above.len());
        bytes.push(VERSION);
        put_number(&mut bytes, self.low.segment);
        put_number(&mut bytes, self.low.offset);
        put_number(&mut bytes, self.above.len() as u64);
        let mut last = self.low;
        for position in self.above.iter().flat_map(|(start, end)| [start, end]) {
            put_number(&mut bytes, position.segment - last.segment);
            let same = position.segment == last.segment;
            put_number(&mut bytes, if same { position.offset - last.offset } else { position.offset });
            last = *position;
        }
        bytes
    }

    /// Decodes the result of [`AppliedSet::encode`].
    ///
    /// # Errors
    /// [`ProgressError`] if the bytes are not an encoded set. The input is not trusted: lengths are checked
    /// before any allocation.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProgressError> {
        let mut cursor = ProgressCursor { bytes, offset: 0 };
        if cursor.byte()? != VERSION {
            return Err(ProgressError { offset: 0, reason: "unknown format version" });
        }
        let low = LogPosition { segment: cursor.number()?, offset: cursor.number()? };
        let count = cursor.number()?;
        if count > (cursor.rest() / INTERVAL_BYTES_MIN) as u64 {
            return Err(
                cursor.error("the declared number of intervals is too large for the bytes that follow")
            );
        }
        let mut applied = Self::new(low);
        let mut last = low;
        for _ in 0..count {
            let start = cursor.position_after(last)?;
            let end = cursor.position_after(start)?;
            applied.above.insert(start, end);
            last = end;
        }
        if cursor.rest() != 0 {
            return Err(cursor.error("more bytes follow the last interval"));
        }
        Ok(applied)
    }
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

struct ProgressCursor<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl ProgressCursor<'_> {
    fn error(&self, reason: &'static str) -> ProgressError {
        ProgressError { offset: self.offset, reason }
    }

    fn rest(&self) -> usize {
        self.bytes.len() - self.offset
    }

    fn byte(&mut self) -> Result<u8, ProgressError> {
        let byte = *self.bytes.get(self.offset).ok_or_else(|| self.error("the bytes end too early"))?;
        self.offset += 1;
        Ok(byte)
    }

    /// Reads a LEB128 number, which must be in its shortest form.
    fn number(&mut self) -> Result<u64, ProgressError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.error("a number has more than 64 bits"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.error("a number is longer than necessary"));
                }
                return Ok(number);
            }
        }
        Err(self.error("a number has more than 64 bits"))
    }

    fn position_after(&mut self, last: LogPosition) -> Result<LogPosition, ProgressError> {
        let (segments, offset) = (self.number()?, self.number()?);
        let segment = last.segment.checked_add(segments);
        let offset = if segments == 0 { last.offset.checked_add(offset) } else { Some(offset) };
        let position = segment.zip(offset).map(|(segment, offset)| LogPosition { segment, offset });
        position
            .filter(|position| *position > last)
            .ok_or_else(|| self.error("the intervals are out of order"))
    }
}

#[cfg(test)]
mod tests;
