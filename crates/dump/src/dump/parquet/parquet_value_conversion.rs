//! Converts values from the server's text to Parquet values.
//!
//! A conversion returns `None` if the text is not a value of the type. It returns `Some(None)` for a value
//! that the server stores and Parquet cannot represent, such as an invalid date.

use chrono::{Datelike, NaiveDate};

use super::parquet_column_types::ParquetKind;

/// Number of days from 0001-01-01 to 1970-01-01, where Parquet starts to count.
const DAYS_BEFORE_1970: i32 = 719_163;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Converts a value whose type is stored as an integer. The bits of an unsigned 64-bit value are kept.
pub fn whole(kind: ParquetKind, value: &[u8]) -> Option<Option<i64>> {
    match kind {
        ParquetKind::Integer { signed: true, .. } => text(value)?.parse().ok().map(Some),
        ParquetKind::Integer { signed: false, .. } => {
            text(value)?.parse().ok().map(|number: u64| Some(number.cast_signed()))
        }
        ParquetKind::Decimal { scale, .. } => i64::try_from(unscaled(value, scale)?).ok().map(Some),
        ParquetKind::Date => Some(days(value)?.map(i64::from)),
        ParquetKind::Moment { .. } => moment(value),
        ParquetKind::Span => span(value).map(Some),
        ParquetKind::Bits => bits(value).map(|number| Some(number.cast_signed())),
        ParquetKind::Float
        | ParquetKind::Double
        | ParquetKind::Text
        | ParquetKind::Json
        | ParquetKind::Bytes => None,
    }
}

/// Converts a number to 32 bits, if it fits. The bits of an unsigned value are kept.
pub fn narrow(kind: ParquetKind, number: i64) -> Option<i32> {
    match kind {
        ParquetKind::Integer { signed: false, .. } => u32::try_from(number).ok().map(u32::cast_signed),
        _ => i32::try_from(number).ok(),
    }
}

/// Converts a decimal number to an integer by multiplying it by ten to the power of `scale`. Returns `None`
/// if the text is not a number or has more decimals than `scale`.
pub fn unscaled(value: &[u8], scale: u8) -> Option<i128> {
    let text = text(value)?;
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let missing = usize::from(scale).checked_sub(fraction.len())?;
    let digits = whole.bytes().chain(fraction.bytes()).chain(std::iter::repeat_n(b'0', missing));
    let mut number: i128 = 0;
    for digit in digits {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!whole.is_empty() || !fraction.is_empty()).then_some(if negative { -number } else { number })
}

/// Parses a number of double precision.
pub fn double(value: &[u8]) -> Option<f64> {
    text(value)?.parse().ok()
}

/// Returns the text if it is valid UTF-8.
pub fn text(value: &[u8]) -> Option<&str> {
    str::from_utf8(value).ok()
}

/// Converts `YYYY-MM-DD` to days since 1970-01-01. Servers use the Gregorian calendar also for dates before
/// its introduction, and have no year 0.
fn days(value: &[u8]) -> Option<Option<i32>> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *value else { return None };
    let (year, month) = (number(&[y1, y2, y3, y4])?, number(&[m1, m2])?);
    let day = number(&[d1, d2])?;
    let date = NaiveDate::from_ymd_opt(year.cast_signed(), month, day).filter(|_| year > 0);
    Some(date.map(|date| date.num_days_from_ce() - DAYS_BEFORE_1970))
}

/// Converts `YYYY-MM-DD HH:MM:SS`, optionally with fractional seconds, to microseconds since 1970-01-01
/// 00:00:00.
fn moment(value: &[u8]) -> Option<Option<i64>> {
    let (date, time) = value.split_at_checked(10)?;
    let time = time_of(time.strip_prefix(b" ")?)?;
    Some(days(date)?.map(|days| i64::from(days) * SECONDS_PER_DAY * MICROS_PER_SECOND + time))
}

/// Converts a TIME value such as `-838:59:59.999999` to microseconds.
fn span(value: &[u8]) -> Option<i64> {
    match value.strip_prefix(b"-") {
        Some(value) => Some(-time_of(value)?),
        None => time_of(value),
    }
}

/// Converts `HH:MM:SS` to microseconds. The text may have more than 24 hours, and fractional seconds.
fn time_of(value: &[u8]) -> Option<i64> {
    let mut parts = value.splitn(3, |&byte| byte == b':');
    let (hours, minutes) = (number(parts.next()?)?, number(parts.next()?)?);
    let rest = parts.next()?;
    let (seconds, fraction) = match rest.iter().position(|&byte| byte == b'.') {
        Some(point) => (&rest[..point], &rest[point + 1..]),
        None => (rest, &rest[..0]),
    };
    let mut micros = if fraction.is_empty() { 0 } else { number(fraction)? };
    for _ in fraction.len()..6 {
        micros *= 10;
    }
    let seconds = i64::from(hours) * 3600 + i64::from(minutes) * 60 + i64::from(number(seconds)?);
    (fraction.len() <= 6).then_some(seconds * MICROS_PER_SECOND + i64::from(micros))
}

/// Converts the bytes of a BIT, most significant byte first, to a number.
fn bits(value: &[u8]) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes.get_mut(8usize.checked_sub(value.len())?..)?.copy_from_slice(value);
    Some(u64::from_be_bytes(bytes))
}

/// Parses digits as a number, if it fits.
fn number(digits: &[u8]) -> Option<u32> {
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DATETIME: ParquetKind = ParquetKind::Moment { utc: false };

    fn integer(bits: i8, signed: bool) -> ParquetKind {
        ParquetKind::Integer { bits, signed }
    }

    /// Converts a value to the 32-bit integer that the file stores.
    fn stored(kind: ParquetKind, value: &str) -> Option<i32> {
        narrow(kind, whole(kind, value.as_bytes())??)
    }

    #[test]
    fn integers_of_all_lengths_are_converted() {
        for (kind, value, number) in [
            (integer(8, true), "-128", Some(-128)),
            (integer(8, false), "255", Some(255)),
            (integer(32, true), "-2147483648", Some(i32::MIN)),
            (integer(32, true), "2147483647", Some(i32::MAX)),
            (integer(32, true), "2147483648", None),
            (integer(32, false), "4294967295", Some(-1)),
            (integer(32, false), "0000000042", Some(42)),
            (integer(32, false), "4294967296", None),
            (integer(32, false), "-1", None),
            (integer(32, false), "", None),
            (integer(32, true), "1.0", None),
            (integer(32, true), "0000", Some(0)),
        ] {
            assert_eq!(stored(kind, value), number, "{value}");
        }
        for (kind, value, number) in [
            (integer(64, true), "-9223372036854775808", Some(i64::MIN)),
            (integer(64, true), "9223372036854775807", Some(i64::MAX)),
            (integer(64, true), "9223372036854775808", None),
            (integer(64, false), "18446744073709551615", Some(-1)),
            (integer(64, false), "18446744073709551616", None),
        ] {
            assert_eq!(whole(kind, value.as_bytes()), number.map(Some), "{value}");
        }
        for (value, number) in [
            (&b""[..], Some(0)),
            (b"\x01", Some(1)),
            (b"\x01\xff", Some(0x1ff)),
            (&[0xff; 8], Some(-1)),
            (&[0; 9], None),
        ] {
            assert_eq!(whole(ParquetKind::Bits, value), number.map(Some), "{value:?}");
        }
    }

    #[test]
    fn decimals_keep_every_digit() {
        let nines = "9".repeat(38);
        let most = format!("-{}.{}", &nines[..8], &nines[..30]);
        for (value, scale, number) in [
            ("0", 0, Some(0)),
            ("-0.00", 2, Some(0)),
            ("12.30", 2, Some(1230)),
            ("-12.3", 2, Some(-1230)),
            ("-0.01", 2, Some(-1)),
            ("00012.30", 2, Some(1230)),
            (".5", 1, Some(5)),
            (&nines, 0, nines.parse().ok()),
            (&most, 30, format!("-{nines}").parse().ok()),
            ("1.234", 2, None),
            ("1e3", 2, None),
            ("--1", 0, None),
            ("", 0, None),
            ("-", 0, None),
            (".", 0, None),
        ] {
            assert_eq!(unscaled(value.as_bytes(), scale), number, "{value}");
        }
        let kind = ParquetKind::Decimal { precision: 18, scale: 18 };
        assert_eq!(whole(kind, b"-0.999999999999999999"), Some(Some(-999_999_999_999_999_999)));
    }

    #[test]
    fn dates_follow_the_gregorian_calendar() {
        for (value, days) in [
            ("1970-01-01", Some(0)),
            ("1969-12-31", Some(-1)),
            ("2000-02-29", Some(11016)),
            ("0001-01-01", Some(-719_162)),
            ("9999-12-31", Some(2_932_896)),
            ("1582-10-10", Some(-141_432)),
            ("0000-00-00", None),
            ("0000-01-01", None),
            ("2020-00-00", None),
            ("2020-01-00", None),
            ("2020-02-31", None),
            ("1900-02-29", None),
        ] {
            assert_eq!(whole(ParquetKind::Date, value.as_bytes()), Some(days), "{value}");
        }
        for value in ["", "2020-1-1", "2020-01-01 ", "2020/01/01", "20x0-01-01", "-020-01-01"] {
            assert_eq!(whole(ParquetKind::Date, value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn times_and_durations_are_exact_to_the_microsecond() {
        for (value, micros) in [
            ("1970-01-01 00:00:01.5", Some(1_500_000)),
            ("1969-12-31 23:59:59.999999", Some(-1)),
            ("9999-12-31 23:59:59.999999", Some(253_402_300_799_999_999)),
            ("0001-01-01 00:00:00", Some(-62_135_596_800_000_000)),
            ("2038-01-19 03:14:07", Some(2_147_483_647_000_000)),
            ("0000-00-00 00:00:00", None),
            ("2024-02-31 01:02:03.004", None),
        ] {
            assert_eq!(whole(DATETIME, value.as_bytes()), Some(micros), "{value}");
        }
        for value in ["2024-01-01", "2024-01-01T00:00:00", "2024-01-01 00:00", "2024-01-01 00:00:00.1234567"]
        {
            assert_eq!(whole(DATETIME, value.as_bytes()), None, "{value}");
        }
        for (value, micros) in [
            ("838:59:59.000000", Some(3_020_399_000_000)),
            ("-838:59:59", Some(-3_020_399_000_000)),
            ("-00:00:00.500000", Some(-500_000)),
            ("00:00:00.000001", Some(1)),
            ("24:00:00", Some(86_400_000_000)),
            ("00:00", None),
            ("00:00:00.", Some(0)),
            ("1:2:x", None),
        ] {
            assert_eq!(whole(ParquetKind::Span, value.as_bytes()), micros.map(Some), "{value}");
        }
    }

    #[test]
    fn floating_point_numbers_keep_every_digit() {
        for value in ["0.1", "-1.7976931348623157e308", "4.9e-324", "1e-45", "123456789012345680"] {
            assert_eq!(double(value.as_bytes()), value.parse().ok(), "{value}");
        }
        assert_eq!(double(b"1,5"), None);
    }

    proptest! {
        #[test]
        fn decimals_round_trip(number in -(10i128.pow(38) - 1)..10i128.pow(38), scale in 0u8..=38) {
            let digits = format!("{:0width$}", number.unsigned_abs(), width = usize::from(scale) + 1);
            let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
            let sign = if number < 0 { "-" } else { "" };
            let point = if scale > 0 { "." } else { "" };
            let value = format!("{sign}{whole}{point}{fraction}");
            prop_assert_eq!(unscaled(value.as_bytes(), scale), Some(number));
        }

        #[test]
        fn no_bytes_cause_a_panic(value: Vec<u8>, digits in "[-0-9:. ]{0,40}") {
            for value in [&value[..], digits.as_bytes()] {
                for kind in [integer(8, true), integer(64, false), ParquetKind::Decimal { precision: 18, scale: 6 },
                    ParquetKind::Date, DATETIME, ParquetKind::Span, ParquetKind::Bits] {
                    if let Some(Some(number)) = whole(kind, value) {
                        let _ = narrow(kind, number);
                    }
                }
                let _ = (unscaled(value, 38), double(value));
            }
        }
    }
}
