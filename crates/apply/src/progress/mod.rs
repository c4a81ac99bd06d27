//! Which transactions of the log a target has: all up to a place, and some behind it.
//!
//! Transactions are named by their [`LogSpan`]s, which follow each other without gaps: one begins where the one before it
//! ends, whatever lies between them in the log. So a set of them is a set of intervals, and it shrinks to a single
//! place once nothing is missing.
//!
//! Each worker keeps a row of its own on the target and writes to it, in the transaction of the data, all that it knows
//! to have committed and what it is about to commit. A crash loses some of the last commits, in the order of the
//! target's redo log; the union of the rows that are left is exactly what the target has ([`AppliedSet::merge`]).

use std::collections::BTreeMap;

use tailwater_log::LogPosition;

use crate::transaction::LogSpan;

/// First byte of an encoded set.
const VERSION: u8 = 1;
/// What an interval takes at least: two differences of segments and offsets.
const INTERVAL_BYTES_MIN: usize = 4;

/// A set of transactions of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedSet {
    low: LogPosition,
    /// Intervals behind `low`, start to end: not empty, not touching each other or `low`.
    above: BTreeMap<LogPosition, LogPosition>,
}

/// Bytes that are no encoded [`AppliedSet`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "progress cannot be read at byte {offset}: {reason}; if no other program wrote to the table, a newer Tailwater wrote it"
)]
pub struct ProgressError {
    /// Where in the bytes.
    pub offset: usize,
    /// What is wrong there.
    pub reason: &'static str,
}

impl AppliedSet {
    /// All transactions up to `low`.
    pub fn new(low: LogPosition) -> Self {
        Self { low, above: BTreeMap::new() }
    }

    /// The low watermark: all up to here is applied.
    pub fn low(&self) -> LogPosition {
        self.low
    }

    /// Whether all transactions in `span` are applied.
    pub fn contains(&self, span: &LogSpan) -> bool {
        span.end <= self.low
            || self
                .above
                .range(..=span.start)
                .next_back()
                .is_some_and(|(start, end)| *start <= span.start && span.end <= *end)
    }

    /// Adds all transactions in `span`. What is there already stays.
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

    /// Adds all that `other` has.
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

    /// What is missing between the low watermark and the last transaction that is applied, in order.
    pub fn gaps(&self) -> impl Iterator<Item = LogSpan> + '_ {
        let starts = self.above.keys();
        let ends = std::iter::once(&self.low).chain(self.above.values());
        ends.zip(starts).map(|(start, end)| LogSpan { start: *start, end: *end })
    }

    /// Where the last transaction that is applied ends.
    pub fn high(&self) -> LogPosition {
        self.above.last_key_value().map_or(self.low, |(_, end)| *end)
    }

    /// As a worker's row holds it: a version, then numbers in LEB128. First the low watermark, as segment and offset;
    /// then how many intervals there are; then of each its start and its end, as the difference in segments to the
    /// number before, and the offset, or the difference in offsets if the segment is the same.
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

    /// The set that [`AppliedSet::encode`] made these bytes of.
    ///
    /// # Errors
    /// Any other bytes, whoever wrote them; nothing is allocated on their word.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProgressError> {
        let mut cursor = ProgressCursor { bytes, offset: 0 };
        if cursor.byte()? != VERSION {
            return Err(ProgressError { offset: 0, reason: "unknown version" });
        }
        let low = LogPosition { segment: cursor.number()?, offset: cursor.number()? };
        let count = cursor.number()?;
        if count > (cursor.rest() / INTERVAL_BYTES_MIN) as u64 {
            return Err(cursor.error("more intervals than bytes"));
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
            return Err(cursor.error("bytes after the end"));
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
        let byte = *self.bytes.get(self.offset).ok_or_else(|| self.error("it ends too early"))?;
        self.offset += 1;
        Ok(byte)
    }

    /// LEB128, in as few bytes as can be.
    fn number(&mut self) -> Result<u64, ProgressError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.error("a number above 64 bits"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.error("a number with needless bytes"));
                }
                return Ok(number);
            }
        }
        Err(self.error("a number above 64 bits"))
    }

    fn position_after(&mut self, last: LogPosition) -> Result<LogPosition, ProgressError> {
        let (segments, offset) = (self.number()?, self.number()?);
        let segment = last.segment.checked_add(segments);
        let offset = if segments == 0 { last.offset.checked_add(offset) } else { Some(offset) };
        let position = segment.zip(offset).map(|(segment, offset)| LogPosition { segment, offset });
        position.filter(|position| *position > last).ok_or_else(|| self.error("intervals out of order"))
    }
}

#[cfg(test)]
mod tests;
