//! MySQL GTIDs and GTID sets as in `gtid_executed`, with the tags of MySQL 8.3 and later.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::check_size;
use super::gtid_intervals::{Interval, IntervalSet};
use super::gtid_text_parser::Scanner;
use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// The highest transaction number. A server that reaches 2^63-1 accepts no more writes.
pub const MYSQL_NUMBER_MAX: u64 = i64::MAX as u64 - 1;

/// The maximum length of a tag, in characters.
pub const MYSQL_TAG_CHARACTERS_MAX: usize = 32;

/// A MySQL GTID.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MysqlGtid {
    /// The UUID of the server (or group) that first committed the transaction.
    pub uuid: [u8; 16],
    /// The tag: empty, or up to 32 characters `[a-z_][a-z0-9_]*` (MySQL 8.3 and later).
    pub tag: String,
    /// The transaction number, 1..=[`MYSQL_NUMBER_MAX`].
    pub number: u64,
}

impl MysqlGtid {
    /// Parses `uuid:number` or `uuid:tag:number`.
    ///
    /// # Errors
    /// [`WireError::Malformed`] with the offending text and its offset.
    pub fn parse(text: &str) -> Result<Self, WireError> {
        let mut scan = Scanner::new("mysql GTID", text);
        scan.skip_whitespace();
        let uuid = parse_uuid(&mut scan)?;
        scan.skip_whitespace();
        if !scan.accept(b':') {
            return Err(scan.error("':'"));
        }
        let tag = parse_tag(&mut scan)?;
        if !tag.is_empty() && !scan.accept(b':') {
            return Err(scan.error("':'"));
        }
        let number = parse_number(&mut scan)?;
        if !scan.is_at_end() {
            return Err(scan.error("the end of the GTID"));
        }
        Ok(Self { uuid, tag, number })
    }
}

impl FromStr for MysqlGtid {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        Self::parse(text)
    }
}

impl fmt::Display for MysqlGtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(f, &self.uuid)?;
        if !self.tag.is_empty() {
            write!(f, ":{}", self.tag)?;
        }
        write!(f, ":{}", self.number)
    }
}

/// The two binary forms of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// The form without tags. Every MySQL since 5.6 can read it.
    Untagged = 0,
    /// The form with a tag after each UUID. MySQL 8.3 and later can read it.
    Tagged = 1,
}

/// The transaction numbers of one UUID and tag.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OriginNumbers {
    uuid: [u8; 16],
    tag: String,
    numbers: IntervalSet,
}

impl OriginNumbers {
    /// Returns the key by which origins are sorted: UUID and tag.
    fn key(&self) -> (&[u8; 16], &str) {
        (&self.uuid, &self.tag)
    }
}

/// A set of MySQL GTIDs.
///
/// The set is stored as sorted intervals per UUID and tag. Equal sets are equal values, and
/// [`Display`](fmt::Display) prints the server's normal form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct MysqlGtidSet {
    /// The numbers of each UUID and tag, sorted by [`OriginNumbers::key`]. Each key occurs only once and has
    /// at least one number.
    origins: Vec<OriginNumbers>,
}

impl MysqlGtidSet {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the text form. Like MySQL 9, accepts any order, upper or lower case, white space between
    /// tokens, and empty elements. UUIDs may be repeated, in braces or without dashes. Intervals may overlap
    /// or be empty (`5-3`).
    ///
    /// ```
    /// # use tailwater_wire::gtid::MysqlGtidSet;
    /// let set = MysqlGtidSet::parse("3E11FA47-71CA-11E1-9E33-C80AA9429562:7:1-3:4 :blue: 9, ")?;
    /// assert_eq!(set.to_string(), "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-4:7:blue:9");
    /// # Ok::<(), tailwater_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// [`WireError::Malformed`] with the offending text and its offset; [`WireError::TooLarge`] beyond
    /// [`GTID_SET_BYTES_MAX`](super::GTID_SET_BYTES_MAX).
    pub fn parse(text: &str) -> Result<Self, WireError> {
        check_size("mysql GTID set", text.len())?;
        let mut scan = Scanner::new("mysql GTID set", text);
        let mut set = SetBuilder::default();
        scan.skip_whitespace();
        loop {
            while scan.accept(b',') {}
            if scan.is_at_end() {
                return Ok(set.finish());
            }
            parse_uuid_set(&mut scan, &mut set)?;
            if !scan.is_at_end() && scan.peek() != Some(b',') {
                return Err(scan.error("',', ':' or the end of the set"));
            }
        }
    }

    /// Adds a GTID. Returns whether it was absent before.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the number or the tag is invalid. The text of a set with such a GTID could
    /// not be parsed again.
    pub fn insert(&mut self, gtid: &MysqlGtid) -> Result<bool, WireError> {
        if let Ok(index) = self.position(&gtid.uuid, &gtid.tag)
            && (1..=MYSQL_NUMBER_MAX).contains(&gtid.number)
        {
            return Ok(self.origins[index].numbers.insert(gtid.number));
        }
        let interval = Interval { first: gtid.number, last: gtid.number };
        self.insert_interval(gtid.uuid, &gtid.tag, interval).map(|()| true)
    }

    /// Adds all numbers of an interval.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the interval is empty or not within 1..=[`MYSQL_NUMBER_MAX`], or if `tag`
    /// is not a valid tag.
    pub fn insert_interval(
        &mut self,
        uuid: [u8; 16],
        tag: &str,
        interval: Interval,
    ) -> Result<(), WireError> {
        let Interval { first, last } = interval;
        if first == 0 || first > last || last > MYSQL_NUMBER_MAX {
            return Err(WireError::malformed("mysql GTID set", format!("{first}-{last} is not an interval")));
        }
        if !is_tag(tag) {
            return Err(WireError::malformed("mysql GTID set", format!("{tag:?} is not a tag")));
        }
        match self.position(&uuid, tag) {
            Ok(index) => self.origins[index].numbers.insert_interval(interval),
            Err(index) => {
                let origin = OriginNumbers { uuid, tag: tag.to_owned(), numbers: IntervalSet::one(interval) };
                self.origins.insert(index, origin);
            }
        }
        Ok(())
    }

    /// Returns whether the set holds `gtid`.
    pub fn contains_gtid(&self, gtid: &MysqlGtid) -> bool {
        self.numbers(&gtid.uuid, &gtid.tag).is_some_and(|numbers| numbers.contains(gtid.number))
    }

    /// Returns whether the set holds every GTID of `other`.
    pub fn is_superset_of(&self, other: &Self) -> bool {
        other.origins.iter().all(|origin| {
            let numbers = self.numbers(&origin.uuid, &origin.tag);
            numbers.is_some_and(|numbers| numbers.is_superset_of(&origin.numbers))
        })
    }

    /// Returns whether no GTID is in both sets. Fast if `other` has few intervals.
    pub fn is_disjoint_from(&self, other: &Self) -> bool {
        other.origins.iter().all(|origin| {
            self.numbers(&origin.uuid, &origin.tag).is_none_or(|numbers| {
                !origin.numbers.as_slice().iter().any(|interval| numbers.overlaps(*interval))
            })
        })
    }

    /// Returns the set of all GTIDs that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut origins = Vec::with_capacity(self.origins.len().max(other.origins.len()));
        let (mut left, mut right) = (self.origins.iter().peekable(), other.origins.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) => a.key().cmp(&b.key()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { origins },
            };
            let (a, b) = (left.next_if(|_| order.is_le()), right.next_if(|_| order.is_ge()));
            match (a, b) {
                (Some(a), Some(b)) => {
                    origins.push(OriginNumbers { numbers: a.numbers.union(&b.numbers), ..a.clone() })
                }
                (one, None) | (None, one) => origins.extend(one.cloned()),
            }
        }
    }

    /// Returns the set of all GTIDs of this set that are not in `other`.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        self.map_numbers(|origin| match other.numbers(&origin.uuid, &origin.tag) {
            Some(removed) => origin.numbers.subtract(removed),
            None => origin.numbers.clone(),
        })
    }

    /// Returns the set of all GTIDs that are in both sets.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        self.map_numbers(|origin| match other.numbers(&origin.uuid, &origin.tag) {
            Some(common) => origin.numbers.intersect(common),
            None => IntervalSet::default(),
        })
    }

    /// Returns whether the set holds no GTID.
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    /// Returns whether any GTID has a tag. Servers before MySQL 8.3 cannot read a set with tags.
    pub fn has_tags(&self) -> bool {
        self.origins.iter().any(|origin| !origin.tag.is_empty())
    }

    /// Returns the number of GTIDs in the set.
    pub fn count(&self) -> u128 {
        self.origins.iter().map(|origin| origin.numbers.count()).sum()
    }

    /// Iterates over the intervals in order of UUID, tag and number.
    pub fn iter_intervals(&self) -> impl Iterator<Item = (&[u8; 16], &str, Interval)> {
        self.origins.iter().flat_map(|origin| {
            let intervals = origin.numbers.as_slice().iter();
            intervals.map(|interval| (&origin.uuid, origin.tag.as_str(), *interval))
        })
    }

    /// Returns the highest number of a UUID and tag. The tag is empty for GTIDs without a tag.
    pub fn last_number(&self, uuid: &[u8; 16], tag: &str) -> Option<u64> {
        self.numbers(uuid, tag).and_then(IntervalSet::last_number)
    }

    /// Parses the binary form of PREVIOUS_GTIDS events and COM_BINLOG_DUMP_GTID, with or without tags.
    /// `bytes` must hold nothing else. The memory used is a small multiple of the length of `bytes`.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] beyond [`GTID_SET_BYTES_MAX`](super::GTID_SET_BYTES_MAX);
    /// [`WireError::Unsupported`] for a format newer than the format with tags; [`WireError::Truncated`] or
    /// [`WireError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "mysql GTID set";
        check_size(WHAT, bytes.len())?;
        let mut cursor = ByteCursor::new(WHAT, bytes);
        let header = cursor.u64()?;
        let (format, origin_count) = match (header >> 56, header & 0xff) {
            (0, _) => (Format::Untagged, header),
            (1, 1) => (Format::Tagged, (header << 8) >> 16),
            (1, low) => {
                return Err(WireError::malformed(
                    WHAT,
                    format!("byte 7 states format 1, but byte 0 states {low}"),
                ));
            }
            (format, _) => {
                return Err(WireError::unsupported(WHAT, format!("the binary format {format} is unknown")));
            }
        };
        let mut set = SetBuilder::default();
        for _ in 0..origin_count {
            let uuid = cursor.array()?;
            let tag = match format {
                Format::Untagged => String::new(),
                Format::Tagged => decode_tag(&mut cursor)?,
            };
            // Allocate no memory for the stated count. Each interval takes 16 bytes of input, so with a wrong
            // count the parser soon reaches the end of the input.
            let interval_count = cursor.u64()?;
            let mut intervals = Vec::new();
            let mut previous_end = 0;
            for _ in 0..interval_count {
                let (first, end) = (cursor.u64()?, cursor.u64()?);
                if first <= previous_end || end <= first || end - 1 > MYSQL_NUMBER_MAX {
                    let reason = format!(
                        "the interval {first}..{end} follows an interval that ends at {previous_end}"
                    );
                    return Err(WireError::malformed(WHAT, reason));
                }
                previous_end = end;
                intervals.push(Interval { first, last: end - 1 });
            }
            set.add(uuid, tag, intervals);
        }
        if !cursor.is_empty() {
            return Err(WireError::malformed(
                WHAT,
                format!("{} bytes follow the end of the set", cursor.remaining()),
            ));
        }
        Ok(set.finish())
    }

    /// Returns the binary form as servers write it. A set without tags has the form that every version can
    /// read.
    pub fn encode(&self) -> Vec<u8> {
        let format = if self.has_tags() { Format::Tagged } else { Format::Untagged };
        let origin_count = self.origins.len() as u64;
        let mut out = Vec::with_capacity(self.encoded_len());
        let header = match format {
            Format::Untagged => origin_count,
            Format::Tagged => (format as u64) << 56 | origin_count << 8 | format as u64,
        };
        out.extend_from_slice(&header.to_le_bytes());
        for OriginNumbers { uuid, tag, numbers } in &self.origins {
            out.extend_from_slice(uuid);
            if format == Format::Tagged {
                // The length of the tag is a variable-length integer of one byte. In this encoding, the
                // lowest bit of a one-byte integer is 0.
                out.push((tag.len() as u8) << 1);
                out.extend_from_slice(tag.as_bytes());
            }
            out.extend_from_slice(&(numbers.as_slice().len() as u64).to_le_bytes());
            for interval in numbers.as_slice() {
                out.extend_from_slice(&interval.first.to_le_bytes());
                out.extend_from_slice(&(interval.last + 1).to_le_bytes());
            }
        }
        out
    }

    /// Returns the length of the binary form in bytes.
    pub fn encoded_len(&self) -> usize {
        let tagged = self.has_tags();
        let origin_len = |origin: &OriginNumbers| {
            let tag_len = if tagged { 1 + origin.tag.len() } else { 0 };
            16 + tag_len + 8 + 16 * origin.numbers.as_slice().len()
        };
        8 + self.origins.iter().map(origin_len).sum::<usize>()
    }

    /// Returns the index of the entry for this UUID and tag, or as an error the index at which to insert it.
    fn position(&self, uuid: &[u8; 16], tag: &str) -> Result<usize, usize> {
        self.origins.binary_search_by(|origin| origin.key().cmp(&(uuid, tag)))
    }

    fn numbers(&self, uuid: &[u8; 16], tag: &str) -> Option<&IntervalSet> {
        self.position(uuid, tag).ok().map(|index| &self.origins[index].numbers)
    }

    /// Returns a copy of the set in which `replace` has replaced the numbers of each UUID and tag.
    fn map_numbers(&self, replace: impl Fn(&OriginNumbers) -> IntervalSet) -> Self {
        let mut origins = Vec::new();
        for origin in &self.origins {
            let numbers = replace(origin);
            if !numbers.is_empty() {
                origins.push(OriginNumbers { uuid: origin.uuid, tag: origin.tag.clone(), numbers });
            }
        }
        Self { origins }
    }
}

impl FromStr for MysqlGtidSet {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        Self::parse(text)
    }
}

impl fmt::Display for MysqlGtidSet {
    /// Prints the set as `gtid_executed` does, but without the line breaks between UUIDs. `{:#}` prints the
    /// line breaks too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut previous_uuid = None;
        for OriginNumbers { uuid, tag, numbers } in &self.origins {
            if previous_uuid != Some(uuid) {
                if previous_uuid.is_some() {
                    f.write_str(if f.alternate() { ",\n" } else { "," })?;
                }
                write_uuid(f, uuid)?;
                previous_uuid = Some(uuid);
            }
            if !tag.is_empty() {
                write!(f, ":{tag}")?;
            }
            for Interval { first, last } in numbers.as_slice() {
                if first == last {
                    write!(f, ":{first}")?;
                } else {
                    write!(f, ":{first}-{last}")?;
                }
            }
        }
        Ok(())
    }
}

/// Collects intervals in any order and sorts them at the end. So the cost does not depend on the order of the
/// input.
#[derive(Default)]
struct SetBuilder {
    /// The collected origins, unsorted. Keys may be repeated.
    origins: Vec<Collected>,
    /// The number of entries in `origins` after the last [`SetBuilder::compact`].
    compacted: usize,
}

struct Collected {
    uuid: [u8; 16],
    tag: String,
    intervals: Vec<Interval>,
}

impl SetBuilder {
    fn add(&mut self, uuid: [u8; 16], tag: String, intervals: Vec<Interval>) {
        if intervals.is_empty() {
            return;
        }
        // Merge equal keys now and then. Otherwise a text in which keys alternate would cost memory for each
        // repetition.
        if self.origins.len() >= 2 * self.compacted + 1024 {
            self.compact();
        }
        self.origins.push(Collected { uuid, tag, intervals });
    }

    /// Sorts the origins and merges those with equal keys.
    fn compact(&mut self) {
        self.origins.sort_by(|a, b| (&a.uuid, &a.tag).cmp(&(&b.uuid, &b.tag)));
        self.origins.dedup_by(|next, kept| {
            let same = (&next.uuid, &next.tag) == (&kept.uuid, &kept.tag);
            if same {
                kept.intervals.append(&mut next.intervals);
            }
            same
        });
        self.compacted = self.origins.len();
    }

    fn finish(mut self) -> MysqlGtidSet {
        self.compact();
        let sorted = |Collected { uuid, tag, intervals }| OriginNumbers {
            uuid,
            tag,
            numbers: IntervalSet::from_unsorted(intervals),
        };
        MysqlGtidSet { origins: self.origins.into_iter().map(sorted).collect() }
    }
}

/// Parses `UUID [: (TAG | INTERVAL)]...`. Each tag applies until the next tag.
fn parse_uuid_set(scan: &mut Scanner<'_>, set: &mut SetBuilder) -> Result<(), WireError> {
    let uuid = parse_uuid(scan)?;
    scan.skip_whitespace();
    let (mut tag, mut intervals) = (String::new(), Vec::new());
    while scan.accept(b':') {
        let next_tag = parse_tag(scan)?;
        if !next_tag.is_empty() {
            set.add(uuid, tag, std::mem::take(&mut intervals));
            tag = next_tag;
            continue;
        }
        let first = parse_number(scan)?;
        let last = if scan.accept(b'-') {
            let last = scan.number(0, MYSQL_NUMBER_MAX, "the last number of an interval")?;
            scan.skip_whitespace();
            last
        } else {
            first
        };
        if first <= last {
            intervals.push(Interval { first, last });
        }
    }
    set.add(uuid, tag, intervals);
    Ok(())
}

/// Parses a transaction number and the white space after it.
fn parse_number(scan: &mut Scanner<'_>) -> Result<u64, WireError> {
    let number = scan.number(1, MYSQL_NUMBER_MAX, "a number in 1..2^63-1")?;
    scan.skip_whitespace();
    Ok(number)
}

/// Parses a UUID with dashes, with dashes and braces, or without both.
fn parse_uuid(scan: &mut Scanner<'_>) -> Result<[u8; 16], WireError> {
    const EXPECTED: &str = "a UUID";
    let start = scan.clone();
    let braces = scan.peek() == Some(b'{');
    if braces {
        scan.expect(b'{', EXPECTED)?;
    }
    let dashes = braces || scan.looks_at(8, b'-');
    let mut uuid = [0; 16];
    for (index, byte) in uuid.iter_mut().enumerate() {
        if dashes && matches!(index, 4 | 6 | 8 | 10) {
            scan.expect(b'-', EXPECTED).map_err(|_| start.error(EXPECTED))?;
        }
        *byte = scan.hex_byte(EXPECTED).map_err(|_| start.error(EXPECTED))?;
    }
    if braces {
        scan.expect(b'}', "'}' after a UUID")?;
    }
    Ok(uuid)
}

/// Parses a tag and the white space after it, and returns the tag in lower case. If no tag follows, but for
/// example a number, returns an empty tag and reads nothing.
fn parse_tag(scan: &mut Scanner<'_>) -> Result<String, WireError> {
    let start = scan.clone();
    if !scan.peek().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_') {
        return Ok(String::new());
    }
    let tag = scan.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if tag.len() > MYSQL_TAG_CHARACTERS_MAX {
        return Err(start.error("a tag of at most 32 characters"));
    }
    scan.skip_whitespace();
    Ok(tag.to_ascii_lowercase())
}

fn decode_tag(cursor: &mut ByteCursor<'_>) -> Result<String, WireError> {
    let length = cursor.u8()?;
    if length & 1 != 0 || usize::from(length >> 1) > MYSQL_TAG_CHARACTERS_MAX {
        return Err(WireError::malformed(
            "mysql GTID set",
            format!("{length:#04x} is not the length of a tag"),
        ));
    }
    let bytes = cursor.bytes(usize::from(length >> 1))?;
    // The server also converts tags to lower case when it reads the binary form.
    match std::str::from_utf8(bytes).map(str::to_ascii_lowercase) {
        Ok(tag) if is_tag(&tag) => Ok(tag),
        _ => Err(WireError::malformed(
            "mysql GTID set",
            format!("{:?} is not a tag", bytes.escape_ascii().to_string()),
        )),
    }
}

/// Returns whether `tag` is empty or is a tag in its normal form.
fn is_tag(tag: &str) -> bool {
    tag.len() <= MYSQL_TAG_CHARACTERS_MAX
        && !tag.starts_with(|first: char| first.is_ascii_digit())
        && tag.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

fn write_uuid(f: &mut fmt::Formatter<'_>, uuid: &[u8; 16]) -> fmt::Result {
    for (index, byte) in uuid.iter().enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(f, "{dash}{byte:02x}")?;
    }
    Ok(())
}
