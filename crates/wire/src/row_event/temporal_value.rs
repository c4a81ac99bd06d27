//! DATE, TIME, DATETIME and TIMESTAMP in every binary form that row images and JSON documents use.
//!
//! Servers accept zero dates, invalid days (`ALLOW_INVALID_DATES`) and months of zero. This module does not
//! change such values and does not check the calendar.

use std::fmt;

use super::table_map_column::fraction_bytes;
use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// A calendar date, which may be `0000-00-00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Date {
    /// The year, 0..=9999.
    pub year: u16,
    /// The month, 0..=15. In valid dates it is 1..=12.
    pub month: u8,
    /// The day of the month, 0..=31.
    pub day: u8,
}

/// A duration or a time of day, -838:59:59.000000 to 838:59:59.000000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Time {
    /// Whether the time is negative.
    pub negative: bool,
    /// The hours: 0..=838 from a server. The format has 10 bits, up to 1023.
    pub hours: u16,
    /// The minutes, 0..=63. A server writes 0..=59.
    pub minutes: u8,
    /// The seconds, 0..=63. A server writes 0..=59.
    pub seconds: u8,
    /// The microseconds.
    pub micros: u32,
}

/// A date and time of day without a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DateTime {
    /// The date.
    pub date: Date,
    /// The hour, 0..=31. A server writes 0..=23.
    pub hour: u8,
    /// The minute, 0..=63. A server writes 0..=59.
    pub minute: u8,
    /// The second, 0..=63. A server writes 0..=59.
    pub second: u8,
    /// The microseconds.
    pub micros: u32,
}

/// A time in UTC. If both fields are zero, it is the zero TIMESTAMP `0000-00-00 00:00:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds since 1970: up to 2^31-1 on MySQL, and up to 2^32-1 (year 2106) on MariaDB 11.5 and later.
    pub seconds: u32,
    /// The microseconds.
    pub micros: u32,
}

const WHAT: &str = "temporal value";

/// Reads the fraction of a second that follows a temporal value, a big-endian number with `digits` digits.
/// Returns microseconds.
fn read_fraction(cursor: &mut ByteCursor<'_>, digits: u8) -> Result<u32, WireError> {
    let size = fraction_bytes(digits);
    let raw = cursor.uint_be(size)? as u32;
    micros_of(raw, size)
}

fn micros_of(raw: u32, size: usize) -> Result<u32, WireError> {
    let unit = [1_000_000, 10_000, 100, 1][size];
    match raw.checked_mul(unit) {
        Some(micros) if micros < 1_000_000 => Ok(micros),
        _ => {
            Err(WireError::malformed(WHAT, format!("the fraction {raw} in {size} bytes is a second or more")))
        }
    }
}

/// Returns the length of TIME in MariaDB's old format with `fraction` digits of a second, in bytes.
pub(super) fn old_time_bytes(fraction: u8) -> usize {
    [3, 4, 4, 5, 5, 5, 6][usize::from(fraction.min(6))]
}

/// Returns the length of DATETIME in MariaDB's old format with `fraction` digits of a second, in bytes.
pub(super) fn old_datetime_bytes(fraction: u8) -> usize {
    [8, 6, 6, 7, 7, 7, 8][usize::from(fraction.min(6))]
}

/// Returns the number of smallest units in a second: 10 for one decimal digit of the fraction, 100 for two
/// digits.
fn units_per_second(digits: u8) -> u64 {
    10u64.pow(u32::from(digits.min(6)))
}

impl Date {
    /// Parses the three bytes of a DATE column.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let packed = ByteCursor::new(WHAT, bytes).u24()?;
        Ok(Self { year: (packed >> 9) as u16, month: (packed >> 5 & 15) as u8, day: (packed & 31) as u8 })
    }
}

impl Time {
    /// Parses the bytes of a TIME column with `fraction` digits of a second.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are too few or the fraction is a second or more.
    pub fn parse(bytes: &[u8], fraction: u8) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new(WHAT, bytes);
        // The seconds (high bits) and the fraction (low bits) are one big-endian number, to which an offset
        // was added. For a negative time, the whole number was negated before the offset was added. So the
        // bytes have the same order as the times.
        let size = fraction_bytes(fraction);
        let bits = 8 * size as u32;
        let biased = cursor.uint_be(3 + size)? as i64;
        let value = biased - (0x80_0000 << bits);
        let magnitude = value.unsigned_abs();
        let micros = micros_of((magnitude & ((1 << bits) - 1)) as u32, size)?;
        Ok(Self::from_packed(value < 0, magnitude >> bits, micros))
    }

    /// Parses the 64-bit form that JSON documents use: the packed time in the high bits, and 24 bits of
    /// microseconds.
    pub(super) fn from_packed_i64(packed: i64) -> Result<Self, WireError> {
        let magnitude = packed.unsigned_abs();
        let micros = micros_of((magnitude & 0xff_ffff) as u32, 3)?;
        Ok(Self::from_packed(packed < 0, magnitude >> 24, micros))
    }

    fn from_packed(negative: bool, hms: u64, micros: u32) -> Self {
        Self {
            negative,
            hours: (hms >> 12 & 0x3ff) as u16,
            minutes: (hms >> 6 & 0x3f) as u8,
            seconds: (hms & 0x3f) as u8,
            micros,
        }
    }

    /// Parses the bytes of a TIME column from before MySQL 5.6: `HHMMSS` as a signed decimal number in three
    /// bytes. With a fraction of a second, the bytes are in MariaDB's own form. That form is big-endian and
    /// counts the smallest units since -838:59:59.999999.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are too few or the time is out of range.
    pub fn parse_old(bytes: &[u8], fraction: u8) -> Result<Self, WireError> {
        if fraction > 0 {
            let raw = ByteCursor::new(WHAT, bytes).uint_be(old_time_bytes(fraction))?;
            let units = units_per_second(fraction);
            let value = raw as i64 - (838 * 3600 + 59 * 60 + 59 + 1) * units as i64;
            let magnitude = value.unsigned_abs();
            let seconds = magnitude / units;
            if seconds > 1023 * 3600 {
                return Err(WireError::malformed(WHAT, format!("the TIME has {seconds} seconds")));
            }
            return Ok(Self {
                negative: value < 0,
                hours: (seconds / 3600) as u16,
                minutes: (seconds / 60 % 60) as u8,
                seconds: (seconds % 60) as u8,
                micros: (magnitude % units * (1_000_000 / units)) as u32,
            });
        }
        let raw = ByteCursor::new(WHAT, bytes).u24()?;
        // The two shifts extend the sign of the 24-bit number.
        let value = (raw << 8) as i32 >> 8;
        let magnitude = value.unsigned_abs();
        if magnitude % 100 > 59 || magnitude / 100 % 100 > 59 {
            return Err(WireError::malformed(WHAT, format!("TIME {value}")));
        }
        Ok(Self {
            negative: value < 0,
            hours: (magnitude / 10_000) as u16,
            minutes: (magnitude / 100 % 100) as u8,
            seconds: (magnitude % 100) as u8,
            micros: 0,
        })
    }
}

impl DateTime {
    /// Parses the bytes of a DATETIME column with `fraction` digits of a second.
    ///
    /// # Errors
    /// [`WireError`] if there are too few bytes, if the sign bit means "before year 0", or if the fraction is
    /// a second or more.
    pub fn parse(bytes: &[u8], fraction: u8) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new(WHAT, bytes);
        let biased = cursor.uint_be(5)?;
        let Some(packed) = biased.checked_sub(0x80_0000_0000) else {
            return Err(WireError::malformed(WHAT, "the DATETIME is negative"));
        };
        Ok(Self::from_packed(packed, read_fraction(&mut cursor, fraction)?))
    }

    /// Parses the 64-bit form that JSON documents use.
    pub(super) fn from_packed_i64(packed: i64) -> Result<Self, WireError> {
        let magnitude = packed.unsigned_abs();
        Ok(Self::from_packed(magnitude >> 24, micros_of((magnitude & 0xff_ffff) as u32, 3)?))
    }

    fn from_packed(packed: u64, micros: u32) -> Self {
        let (ymd, hms) = (packed >> 17, packed & 0x1_ffff);
        let year_month = ymd >> 5;
        Self {
            date: Date {
                year: (year_month / 13) as u16,
                month: (year_month % 13) as u8,
                day: (ymd & 31) as u8,
            },
            hour: (hms >> 12) as u8,
            minute: (hms >> 6 & 0x3f) as u8,
            second: (hms & 0x3f) as u8,
            micros,
        }
    }

    /// Parses the bytes of a DATETIME column from before MySQL 5.6: `YYYYMMDDhhmmss` as a decimal number in
    /// eight bytes. With a fraction of a second, the bytes are in MariaDB's own form: a big-endian
    /// mixed-radix count of the smallest units.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are too few or the number has more than 14 digits.
    pub fn parse_old(bytes: &[u8], fraction: u8) -> Result<Self, WireError> {
        if fraction > 0 {
            let raw = ByteCursor::new(WHAT, bytes).uint_be(old_datetime_bytes(fraction))?;
            let units = units_per_second(fraction);
            let mut rest = raw / units;
            let mut digit = |radix: u64| {
                let value = rest % radix;
                rest /= radix;
                value as u8
            };
            let (second, minute, hour) = (digit(60), digit(60), digit(24));
            let (day, month) = (digit(32), digit(13));
            let Ok(year @ 0..=9999) = u16::try_from(rest) else {
                return Err(WireError::malformed(WHAT, format!("the DATETIME is in the year {rest}")));
            };
            let micros = (raw % units * (1_000_000 / units)) as u32;
            return Ok(Self { date: Date { year, month, day }, hour, minute, second, micros });
        }
        let value = ByteCursor::new(WHAT, bytes).u64()?;
        let pair = |divisor: u64| (value / divisor % 100) as u8;
        let is_clock = pair(10_000) < 24 && pair(100) < 60 && pair(1) < 60;
        if value > 99_999_999_999_999 || pair(100_000_000) > 12 || pair(1_000_000) > 31 || !is_clock {
            return Err(WireError::malformed(WHAT, format!("DATETIME {value}")));
        }
        Ok(Self {
            date: Date {
                year: (value / 10_000_000_000) as u16,
                month: pair(100_000_000),
                day: pair(1_000_000),
            },
            hour: pair(10_000),
            minute: pair(100),
            second: pair(1),
            micros: 0,
        })
    }
}

impl Timestamp {
    /// Parses the bytes of a TIMESTAMP column with `fraction` digits of a second.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are too few or the fraction is a second or more.
    pub fn parse(bytes: &[u8], fraction: u8) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new(WHAT, bytes);
        let seconds = cursor.uint_be(4)? as u32;
        Ok(Self { seconds, micros: read_fraction(&mut cursor, fraction)? })
    }

    /// Parses the bytes of a TIMESTAMP column from before MySQL 5.6: four bytes, little-endian. With a
    /// fraction of a second, the bytes are in MariaDB's own form: seconds, then a count of the smallest
    /// units, both big-endian.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are too few or the fraction is a second or more.
    pub fn parse_old(bytes: &[u8], fraction: u8) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new(WHAT, bytes);
        if fraction == 0 {
            return Ok(Self { seconds: cursor.u32()?, micros: 0 });
        }
        let seconds = cursor.uint_be(4)? as u32;
        let raw = cursor.uint_be(fraction_bytes(fraction))?;
        let units = units_per_second(fraction);
        if raw >= units {
            return Err(WireError::malformed(
                WHAT,
                format!("the fraction {raw} of {fraction} digits is a second or more"),
            ));
        }
        Ok(Self { seconds, micros: (raw * (1_000_000 / units)) as u32 })
    }

    /// Returns whether this is the zero TIMESTAMP, `0000-00-00 00:00:00`.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// Returns date and time in UTC. The zero TIMESTAMP gives the zero DATETIME.
    pub fn to_utc(self) -> DateTime {
        if self.is_zero() {
            return DateTime::default();
        }
        // Howard Hinnant's days-to-civil algorithm. Its years begin in March, so that a leap day is the last
        // day of a year.
        let days = i64::from(self.seconds / 86_400) + 719_468;
        let era = days / 146_097;
        let day_of_era = days % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let second_of_day = self.seconds % 86_400;
        DateTime {
            date: Date {
                year: year as u16,
                month: month as u8,
                day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
            },
            hour: (second_of_day / 3_600) as u8,
            minute: (second_of_day / 60 % 60) as u8,
            second: (second_of_day % 60) as u8,
            micros: self.micros,
        }
    }
}

/// Formats a value digit by digit. Dumps have many such values, and `format!` takes much longer.
struct TemporalText {
    bytes: [u8; Self::BYTES_MAX],
    length: usize,
}

impl TemporalText {
    /// The size of the buffer in bytes. It is enough for the longest text, even if each part of the value has
    /// the largest number of its type.
    const BYTES_MAX: usize = 48;

    fn new() -> Self {
        Self { bytes: [0; Self::BYTES_MAX], length: 0 }
    }

    fn byte(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    /// Appends a number, padded with zeros to `digits` digits.
    fn number(&mut self, value: u32, digits: usize) {
        let longer = value.checked_ilog10().map_or(1, |log| log as usize + 1);
        let end = self.length + digits.max(longer);
        let mut rest = value;
        for place in self.bytes[self.length..end].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.length = end;
    }

    fn date(&mut self, date: &Date) {
        self.number(date.year.into(), 4);
        for part in [date.month, date.day] {
            self.byte(b'-');
            self.number(part.into(), 2);
        }
    }

    fn clock(&mut self, hours: u32, minutes: u8, seconds: u8) {
        self.number(hours, 2);
        for part in [minutes, seconds] {
            self.byte(b':');
            self.number(part.into(), 2);
        }
    }

    /// Appends `.` and the first `digits` digits of `micros`. Appends nothing if `digits` is 0.
    fn fraction(&mut self, micros: u32, digits: u8) {
        let digits = digits.min(6);
        if digits > 0 {
            self.byte(b'.');
            self.number(micros / 10u32.pow(6 - u32::from(digits)), digits.into());
        }
    }

    fn write(&self, out: &mut impl fmt::Write) -> fmt::Result {
        out.write_str(str::from_utf8(&self.bytes[..self.length]).map_err(|_| fmt::Error)?)
    }
}

/// Writes `.` and the first `digits` digits of `micros`. Writes nothing if `digits` is 0.
pub(crate) fn write_fraction(out: &mut impl fmt::Write, micros: u32, digits: u8) -> fmt::Result {
    let mut text = TemporalText::new();
    text.fraction(micros, digits);
    text.write(out)
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = TemporalText::new();
        text.date(self);
        text.write(f)
    }
}

impl Time {
    /// Writes `[-]HH:MM:SS` and `digits` digits of the fraction of a second.
    pub fn write(&self, out: &mut impl fmt::Write, digits: u8) -> fmt::Result {
        let mut text = TemporalText::new();
        if self.negative {
            text.byte(b'-');
        }
        text.clock(self.hours.into(), self.minutes, self.seconds);
        text.fraction(self.micros, digits);
        text.write(out)
    }
}

impl DateTime {
    /// Writes `YYYY-MM-DD hh:mm:ss` and `digits` digits of the fraction of a second.
    pub fn write(&self, out: &mut impl fmt::Write, digits: u8) -> fmt::Result {
        let mut text = TemporalText::new();
        text.date(&self.date);
        text.byte(b' ');
        text.clock(self.hour.into(), self.minute, self.second);
        text.fraction(self.micros, digits);
        text.write(out)
    }
}

impl fmt::Display for Time {
    /// Prints all six digits of the fraction of a second.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 6)
    }
}

impl fmt::Display for DateTime {
    /// Prints all six digits of the fraction of a second.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 6)
    }
}

#[cfg(test)]
pub(crate) mod encode {
    //! Encodes temporal values, for tests.

    use super::*;

    fn fraction(out: &mut Vec<u8>, micros: u32, digits: u8) {
        let size = fraction_bytes(digits);
        let raw = micros / [1_000_000, 10_000, 100, 1][size];
        out.extend_from_slice(&raw.to_be_bytes()[4 - size..]);
    }

    pub(crate) fn date(date: Date) -> Vec<u8> {
        let packed = u32::from(date.year) << 9 | u32::from(date.month) << 5 | u32::from(date.day);
        packed.to_le_bytes()[..3].to_vec()
    }

    pub(crate) fn time(time: Time, digits: u8) -> Vec<u8> {
        let size = fraction_bytes(digits);
        let hms = i64::from(time.hours) << 12 | i64::from(time.minutes) << 6 | i64::from(time.seconds);
        let magnitude = hms << (8 * size) | i64::from(time.micros / [1_000_000, 10_000, 100, 1][size]);
        let biased = if time.negative { -magnitude } else { magnitude } + (0x80_0000 << (8 * size));
        biased.to_be_bytes()[5 - size..].to_vec()
    }

    pub(crate) fn datetime_packed(value: DateTime) -> u64 {
        let ymd =
            (u64::from(value.date.year) * 13 + u64::from(value.date.month)) << 5 | u64::from(value.date.day);
        ymd << 17 | u64::from(value.hour) << 12 | u64::from(value.minute) << 6 | u64::from(value.second)
    }

    pub(crate) fn datetime(value: DateTime, digits: u8) -> Vec<u8> {
        let biased = datetime_packed(value) + 0x80_0000_0000;
        let mut out = biased.to_be_bytes()[3..].to_vec();
        fraction(&mut out, value.micros, digits);
        out
    }

    pub(crate) fn timestamp(value: Timestamp, digits: u8) -> Vec<u8> {
        let mut out = value.seconds.to_be_bytes().to_vec();
        fraction(&mut out, value.micros, digits);
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Truncates `micros` to the precision of `digits` digits. The format stores digits in pairs.
    fn cut(micros: u32, digits: u8) -> u32 {
        let unit = [1_000_000, 10_000, 100, 1][fraction_bytes(digits)];
        micros / unit * unit
    }

    #[test]
    fn negative_times_with_a_fraction_are_parsed() {
        // -00:00:00.01 as TIME(2) is 0x7fffffff, according to the comment on the format in the server's
        // source.
        let time = Time::parse(&[0x7f, 0xff, 0xff, 0xff], 2).unwrap();
        assert_eq!(time, Time { negative: true, micros: 10_000, ..Time::default() });
        assert_eq!(time.to_string(), "-00:00:00.010000");
        // -00:00:01.00
        let time = Time::parse(&[0x7f, 0xff, 0xff, 0x00], 2).unwrap();
        assert_eq!(time.to_string(), "-00:00:01.000000");
        // -00:00:01.10
        let time = Time::parse(&[0x7f, 0xff, 0xfe, 0xf6], 2).unwrap();
        assert_eq!(time.to_string(), "-00:00:01.100000");
        assert_eq!(Time::parse(&[0x80, 0, 0], 0).unwrap(), Time::default());
    }

    #[test]
    fn timestamps_are_converted_to_utc() {
        let utc = |seconds| Timestamp { seconds, micros: 0 }.to_utc().to_string();
        assert_eq!(utc(0), "0000-00-00 00:00:00.000000");
        assert_eq!(utc(1), "1970-01-01 00:00:01.000000");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00.000000");
        assert_eq!(utc(2_147_483_647), "2038-01-19 03:14:07.000000");
        assert_eq!(utc(u32::MAX), "2106-02-07 06:28:15.000000");
    }

    #[test]
    fn old_formats_are_parsed() {
        assert_eq!(
            Time::parse_old(&(-8_385_959i32).to_le_bytes(), 0).unwrap().to_string(),
            "-838:59:59.000000"
        );
        assert_eq!(
            DateTime::parse_old(&99_991_231_235_959u64.to_le_bytes(), 0).unwrap().to_string(),
            "9999-12-31 23:59:59.000000"
        );
        assert!(DateTime::parse_old(&u64::MAX.to_le_bytes(), 0).is_err());
    }

    #[test]
    fn old_mariadb_formats_with_a_fraction_are_parsed() {
        // The bytes that MariaDB 10.11 logs with mysql56_temporal_format=OFF.
        let time = |bytes: &[u8], digits| Time::parse_old(bytes, digits).unwrap().to_string();
        assert_eq!(time(&[0x00, 0xb1, 0x54, 0x78, 0xeb], 3), "-12:34:56.789000");
        assert_eq!(time(&[0x02, 0xb4, 0xb1, 0xf8, 0x55, 0x7d], 6), "-12:34:56.789123");
        let datetime = |bytes: &[u8], digits| DateTime::parse_old(bytes, digits).unwrap().to_string();
        assert_eq!(datetime(&[0x00, 0x42, 0x12, 0x12, 0xe5, 0xfc, 0x65], 3), "2021-02-03 04:05:06.789000");
        assert_eq!(
            datetime(&[0x01, 0x02, 0x16, 0x99, 0xd2, 0x61, 0xeb, 0x03], 6),
            "2021-02-03 04:05:06.789123"
        );
        let timestamp =
            |bytes: &[u8], digits| Timestamp::parse_old(bytes, digits).unwrap().to_utc().to_string();
        assert_eq!(timestamp(&[0x60, 0x1a, 0x20, 0xf2, 0x03, 0x15], 3), "2021-02-03 04:05:06.789000");
        assert_eq!(timestamp(&[0x60, 0x1a, 0x20, 0xf2, 0x0c, 0x0a, 0x83], 6), "2021-02-03 04:05:06.789123");
    }

    #[test]
    fn a_fraction_of_one_second_or_more_is_refused() {
        assert!(Timestamp::parse(&[0, 0, 0, 0, 100], 2).is_err());
        assert!(Time::parse(&[0x80, 0, 0, 0xff, 0xff, 0xff], 6).is_err());
    }

    fn any_time() -> impl Strategy<Value = Time> {
        (any::<bool>(), 0u16..=838, 0u8..60, 0u8..60, 0u32..1_000_000).prop_map(
            |(negative, hours, minutes, seconds, micros)| Time { negative, hours, minutes, seconds, micros },
        )
    }

    pub(super) fn any_datetime() -> impl Strategy<Value = DateTime> {
        (0u16..=9999, 0u8..=12, 0u8..=31, 0u8..24, 0u8..60, 0u8..60, 0u32..1_000_000).prop_map(
            |(year, month, day, hour, minute, second, micros)| DateTime {
                date: Date { year, month, day },
                hour,
                minute,
                second,
                micros,
            },
        )
    }

    proptest! {
        #[test]
        fn times_round_trip(time in any_time(), digits in 0u8..=6) {
            let mut expected = Time { micros: cut(time.micros, digits), ..time };
            let parsed = Time::parse(&encode::time(time, digits), digits).unwrap();
            let zero = Time { negative: expected.negative, ..Time::default() };
            if expected == zero {
                expected.negative = false; // there is no negative zero
            }
            prop_assert_eq!(parsed, expected);
        }

        #[test]
        fn datetimes_round_trip(value in any_datetime(), digits in 0u8..=6) {
            let expected = DateTime { micros: cut(value.micros, digits), ..value };
            prop_assert_eq!(DateTime::parse(&encode::datetime(value, digits), digits).unwrap(), expected);
        }

        #[test]
        fn timestamps_round_trip(seconds: u32, micros in 0u32..1_000_000, digits in 0u8..=6) {
            let value = Timestamp { seconds, micros: cut(micros, digits) };
            prop_assert_eq!(Timestamp::parse(&encode::timestamp(value, digits), digits).unwrap(), value);
            prop_assert!(value.to_utc().date.month <= 12);
        }

        #[test]
        fn dates_round_trip(year in 0u16..=9999, month in 0u8..=12, day in 0u8..=31) {
            let date = Date { year, month, day };
            prop_assert_eq!(Date::parse(&encode::date(date)).unwrap(), date);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, digits in 0u8..=6, packed: i64) {
            let _ = Date::parse(&bytes);
            let _ = Time::parse(&bytes, digits).map(|time| time.to_string());
            let _ = Time::parse_old(&bytes, digits).map(|time| time.to_string());
            let _ = DateTime::parse(&bytes, digits).map(|value| value.to_string());
            let _ = DateTime::parse_old(&bytes, digits).map(|value| value.to_string());
            let _ = Timestamp::parse_old(&bytes, digits);
            let _ = Timestamp::parse(&bytes, digits).map(|value| value.to_utc().to_string());
            let _ = Time::from_packed_i64(packed);
            let _ = DateTime::from_packed_i64(packed);
        }
    }
}
