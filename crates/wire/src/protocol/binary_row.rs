//! Rows of a prepared statement in the binary protocol, and their conversion to text rows.
//!
//! During a dump, servers spend much time on formatting floating-point numbers. This module formats the
//! numbers on the client in less time.

use std::fmt::{self, Write};

use crate::WireError;
use crate::byte_cursor::{ByteCursor, put_lenenc_bytes};
use crate::protocol::ColumnDefinition;
use crate::row_event::table_map_column::type_code;
use crate::row_event::temporal_value::{Date, DateTime, Time};

const WHAT: &str = "row of values";

/// The byte that represents NULL in a text row.
const NULL: u8 = 0xfb;

/// The number of unused bits at the start of the NULL bitmap, before the bit of the first column.
const BITMAP_OFFSET: usize = 2;

/// The unsigned flag in `ColumnDefinition::flags`.
const UNSIGNED: u16 = 32;
const ZEROFILL: u16 = 64;

/// The column types of the rows of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueRows {
    kinds: Vec<BinaryValueKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BinaryValueKind {
    /// An integer of `bytes` bytes, padded with zeros to `digits_min` digits.
    Integer {
        bytes: usize,
        is_signed: bool,
        digits_min: u32,
    },
    Float,
    Double,
    /// A YEAR of two digits, which MariaDB still supports, or of four digits.
    Year {
        digits_min: u32,
    },
    Date,
    /// A date or time with this many digits of the fraction of a second.
    Moment {
        decimals: u8,
    },
    Time {
        decimals: u8,
    },
    /// A value that has the same bytes in a binary row and in a text row.
    Bytes,
}

impl BinaryValueKind {
    fn of(column: &ColumnDefinition) -> Option<Self> {
        let integer = |bytes| Self::Integer {
            bytes,
            is_signed: column.flags & UNSIGNED == 0,
            // Limit the number of digits to 255, the maximum display width in the protocol.
            digits_min: if column.flags & ZEROFILL == 0 { 0 } else { column.length_max.min(255) },
        };
        Some(match column.column_type {
            type_code::TINY => integer(1),
            type_code::SHORT => integer(2),
            // The protocol also sends MEDIUMINT in four bytes.
            type_code::LONG | type_code::INT24 => integer(4),
            type_code::LONGLONG => integer(8),
            type_code::FLOAT => Self::Float,
            type_code::DOUBLE => Self::Double,
            type_code::YEAR => Self::Year { digits_min: if column.length_max == 2 { 2 } else { 4 } },
            type_code::DATE => Self::Date,
            type_code::TIMESTAMP | type_code::DATETIME => Self::Moment { decimals: column.decimals },
            type_code::TIME => Self::Time { decimals: column.decimals },
            type_code::DECIMAL
            | type_code::VARCHAR
            | type_code::BIT
            | type_code::VECTOR
            // These types include NEWDECIMAL, ENUM, SET, text and bytes of any length, and GEOMETRY.
            | type_code::JSON..=type_code::GEOMETRY => Self::Bytes,
            _ => return None,
        })
    }
}

impl ValueRows {
    /// Creates the layout for these columns. Returns `None` if a type is unknown.
    pub fn new(columns: &[ColumnDefinition]) -> Option<Self> {
        columns.iter().map(BinaryValueKind::of).collect::<Option<_>>().map(|kinds| Self { kinds })
    }

    /// Converts a binary row and appends the payload of the text row. A floating-point number gets as many
    /// digits as are necessary to identify its value. A FLOAT is written like the DOUBLE with the same value.
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::Malformed`]. Bytes after the last value are malformed too.
    pub fn put_text_row(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut cursor = ByteCursor::new(WHAT, payload);
        match cursor.u8()? {
            0 => {}
            other => return Err(WireError::malformed(WHAT, format!("the row begins with {other:#04x}"))),
        }
        let nulls = cursor.bytes((self.kinds.len() + BITMAP_OFFSET).div_ceil(8))?;
        for (kind, bit) in self.kinds.iter().zip(BITMAP_OFFSET..) {
            if nulls[bit / 8] >> (bit % 8) & 1 == 1 {
                out.push(NULL);
            } else if *kind == BinaryValueKind::Bytes {
                put_lenenc_bytes(out, cursor.lenenc_bytes()?);
            } else {
                put_short(out, |out| put_text(out, *kind, &mut cursor))?;
            }
        }
        if !cursor.is_empty() {
            let reason = format!("{} bytes follow the last value", cursor.remaining());
            return Err(WireError::malformed(WHAT, reason));
        }
        Ok(())
    }
}

/// Appends the length of a value and then the value, which `put` writes. Reserves one byte for the length,
/// because values that are not text rarely exceed 250 bytes.
fn put_short(
    out: &mut Vec<u8>,
    put: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let begin = out.len();
    out.push(0);
    put(out)?;
    let length = out.len() - begin - 1;
    match u8::try_from(length) {
        Ok(length @ ..=250) => out[begin] = length,
        _ => {
            let text = out.split_off(begin + 1);
            out.truncate(begin);
            put_lenenc_bytes(out, &text);
        }
    }
    Ok(())
}

fn put_text(out: &mut Vec<u8>, kind: BinaryValueKind, cursor: &mut ByteCursor<'_>) -> Result<(), WireError> {
    match kind {
        BinaryValueKind::Integer { bytes, is_signed, digits_min } => {
            let value = cursor.uint(bytes)?;
            let unused = 64 - 8 * bytes as u32;
            if is_signed {
                // After the shift to the left, the sign bit is at the highest position. The shift to the
                // right extends the sign.
                let value = (value << unused).cast_signed() >> unused;
                put_padded(out, itoa::Buffer::new().format(value), digits_min);
            } else {
                put_padded(out, itoa::Buffer::new().format(value), digits_min);
            }
        }
        BinaryValueKind::Float => put_double(out, f64::from(f32::from_bits(cursor.u32()?))),
        BinaryValueKind::Double => put_double(out, f64::from_bits(cursor.u64()?)),
        BinaryValueKind::Year { digits_min } => {
            put_padded(out, itoa::Buffer::new().format(cursor.u16()?), digits_min);
        }
        BinaryValueKind::Date => {
            let _ = write!(TextAppender(out), "{}", read_moment(cursor)?.date);
        }
        BinaryValueKind::Moment { decimals } => {
            let moment = read_moment(cursor)?;
            let _ = moment.write(&mut TextAppender(out), digits(decimals, moment.micros));
        }
        BinaryValueKind::Time { decimals } => {
            let time = read_time(cursor)?;
            let _ = time.write(&mut TextAppender(out), digits(decimals, time.micros));
        }
        BinaryValueKind::Bytes => {
            unreachable!("values of the kind Bytes are copied elsewhere, with their length")
        }
    }
    Ok(())
}

fn put_padded(out: &mut Vec<u8>, digits: &str, digits_min: u32) {
    let missing = (digits_min as usize).saturating_sub(digits.len());
    out.resize(out.len() + missing, b'0');
    out.extend_from_slice(digits.as_bytes());
}

fn put_double(out: &mut Vec<u8>, value: f64) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format(value);
    out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
}

/// Reads a date and time. Servers do not send trailing parts that are zero.
fn read_moment(cursor: &mut ByteCursor<'_>) -> Result<DateTime, WireError> {
    let length = cursor.u8()?;
    let mut moment = DateTime::default();
    if !matches!(length, 0 | 4 | 7 | 11) {
        return Err(WireError::malformed(WHAT, format!("a date has {length} bytes")));
    }
    if length >= 4 {
        moment.date = Date { year: cursor.u16()?, month: cursor.u8()?, day: cursor.u8()? };
    }
    if length >= 7 {
        (moment.hour, moment.minute, moment.second) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
    }
    if length == 11 {
        moment.micros = read_micros(cursor)?;
    }
    Ok(moment)
}

fn read_time(cursor: &mut ByteCursor<'_>) -> Result<Time, WireError> {
    let length = cursor.u8()?;
    let mut time = Time::default();
    if !matches!(length, 0 | 8 | 12) {
        return Err(WireError::malformed(WHAT, format!("a time has {length} bytes")));
    }
    if length >= 8 {
        time.negative = cursor.u8()? != 0;
        let hours = u64::from(cursor.u32()?) * 24 + u64::from(cursor.u8()?);
        let too_many = |_| WireError::malformed(WHAT, format!("a time has {hours} hours"));
        time.hours = u16::try_from(hours).map_err(too_many)?;
        (time.minutes, time.seconds) = (cursor.u8()?, cursor.u8()?);
    }
    if length == 12 {
        time.micros = read_micros(cursor)?;
    }
    Ok(time)
}

fn read_micros(cursor: &mut ByteCursor<'_>) -> Result<u32, WireError> {
    match cursor.u32()? {
        micros @ 0..=999_999 => Ok(micros),
        micros => {
            Err(WireError::malformed(WHAT, format!("a fraction of a second has {micros} microseconds")))
        }
    }
}

/// Returns how many digits of the fraction of a second are printed. The column defines this number. If it
/// does not, all six digits are printed, or none if the fraction is zero.
fn digits(decimals: u8, micros: u32) -> u8 {
    match decimals {
        0..=6 => decimals,
        _ if micros == 0 => 0,
        _ => 6,
    }
}

/// Appends text to bytes. Writing cannot fail.
struct TextAppender<'a>(&'a mut Vec<u8>);

impl fmt::Write for TextAppender<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::resultset::TextRowValues;

    fn column(column_type: u8, flags: u16, decimals: u8) -> ColumnDefinition {
        ColumnDefinition { column_type, flags, decimals, length_max: 6, ..ColumnDefinition::default() }
    }

    /// Returns the text of a value of the column's type, whose binary form is `bytes`.
    fn text(column: &ColumnDefinition, bytes: &[u8]) -> Result<String, WireError> {
        let rows = ValueRows::new(std::slice::from_ref(column)).expect("the column has a known type");
        let mut out = Vec::new();
        rows.put_text_row(&[&[0, 0], bytes].concat(), &mut out)?;
        let values: Vec<_> = TextRowValues::new(&out, 1).collect::<Result<_, _>>()?;
        Ok(String::from_utf8_lossy(values[0].expect("the value is not NULL")).into_owned())
    }

    #[test]
    fn numbers_are_printed() {
        let of = |column_type, flags, bytes: &[u8]| text(&column(column_type, flags, 31), bytes).unwrap();
        assert_eq!(of(1, 0, &[0xff]), "-1");
        assert_eq!(of(1, UNSIGNED, &[0xff]), "255");
        assert_eq!(of(2, 0, &(-300i16).to_le_bytes()), "-300");
        assert_eq!(of(9, 0, &(-8_388_608i32).to_le_bytes()), "-8388608");
        assert_eq!(of(3, UNSIGNED | ZEROFILL, &42u32.to_le_bytes()), "000042");
        assert_eq!(of(8, 0, &i64::MIN.to_le_bytes()), "-9223372036854775808");
        assert_eq!(of(8, UNSIGNED, &u64::MAX.to_le_bytes()), "18446744073709551615");
        assert_eq!(of(13, UNSIGNED, &[0, 0]), "0000");
        let short = ColumnDefinition { length_max: 2, ..column(13, UNSIGNED, 0) };
        assert_eq!(text(&short, &[0, 0]).unwrap(), "00");
        let wide = ColumnDefinition { length_max: 255, ..column(3, UNSIGNED | ZEROFILL, 0) };
        assert_eq!(text(&wide, &42u32.to_le_bytes()).unwrap(), format!("{:0255}", 42));
        assert_eq!(of(5, 0, &1.5f64.to_le_bytes()), "1.5");
        assert_eq!(of(5, 0, &(-0.0f64).to_le_bytes()), "-0");
        assert_eq!(of(5, 0, &1e300f64.to_le_bytes()), "1e+300");
        // All digits are printed, because the FLOAT 0.1, as a DOUBLE, differs from 0.1.
        assert_eq!(of(4, 0, &0.1f32.to_le_bytes()), "0.10000000149011612");
        assert_eq!(of(246, 0, b"\x041.50"), "1.50");
    }

    #[test]
    fn dates_and_times_are_printed() {
        let of =
            |column_type, decimals, bytes: &[u8]| text(&column(column_type, 0, decimals), bytes).unwrap();
        assert_eq!(of(10, 0, &[0]), "0000-00-00");
        assert_eq!(of(10, 0, &[4, 0xe8, 7, 2, 29]), "2024-02-29");
        assert_eq!(of(12, 0, &[0]), "0000-00-00 00:00:00");
        assert_eq!(of(12, 3, &[4, 0xe8, 7, 2, 29]), "2024-02-29 00:00:00.000");
        assert_eq!(of(12, 0, &[7, 0xe8, 7, 2, 29, 23, 5, 9]), "2024-02-29 23:05:09");
        assert_eq!(of(7, 6, &[11, 0xe8, 7, 2, 29, 23, 5, 9, 7, 0, 0, 0]), "2024-02-29 23:05:09.000007");
        assert_eq!(of(12, 31, &[11, 0xe8, 7, 2, 29, 23, 5, 9, 7, 0, 0, 0]), "2024-02-29 23:05:09.000007");
        assert_eq!(of(11, 2, &[0]), "00:00:00.00");
        assert_eq!(of(11, 0, &[8, 1, 34, 0, 0, 0, 22, 59, 59]), "-838:59:59");
        assert_eq!(of(11, 4, &[12, 0, 0, 0, 0, 0, 1, 2, 3, 0x10, 0x27, 0, 0]), "01:02:03.0100");
    }

    #[test]
    fn invalid_rows_are_refused() {
        for (column_type, bytes) in [
            (10, &[5, 0, 0, 0, 0, 0][..]),
            (11, &[4, 0, 0, 0, 0]),
            (1, &[1, 2]),
            (3, &[1, 2, 3]),
            (253, &[9]),
        ] {
            assert!(
                text(&column(column_type, 0, 0), bytes).is_err(),
                "a value of type {column_type} was accepted: {bytes:?}"
            );
        }
        let too_many = [11, 0xe8, 7, 2, 29, 23, 5, 9, 0xff, 0xff, 0xff, 0xff];
        assert!(text(&column(12, 0, 6), &too_many).is_err());
        assert!(ValueRows::new(&[column(20, 0, 0)]).is_none());
        let rows = ValueRows::new(&[column(1, 0, 0)]).unwrap();
        assert!(rows.put_text_row(&[1, 0, 0], &mut Vec::new()).is_err());
    }

    #[test]
    fn nulls_take_no_bytes() {
        let columns = vec![column(1, 0, 0); 8];
        let mut out = Vec::new();
        // The second value and the last value are NULL.
        ValueRows::new(&columns)
            .unwrap()
            .put_text_row(&[0, 0b1000, 0b10, 1, 2, 3, 4, 5, 6], &mut out)
            .unwrap();
        let values: Vec<_> =
            TextRowValues::new(&out, 8).map(|value| value.unwrap().map(<[u8]>::to_vec)).collect();
        let digit = |digit: u8| Some(vec![b'0' + digit]);
        assert_eq!(values, [digit(1), None, digit(2), digit(3), digit(4), digit(5), digit(6), None]);
    }

    proptest! {
        #[test]
        fn doubles_and_floats_round_trip(bits: u64, short: u32) {
            let (double, float) = (f64::from_bits(bits), f32::from_bits(short));
            prop_assume!(double.is_finite() && float.is_finite());
            let of = |column_type, bytes: &[u8]| text(&column(column_type, 0, 31), bytes).unwrap().parse::<f64>().unwrap();
            prop_assert_eq!(of(5, &double.to_le_bytes()).to_bits(), bits);
            prop_assert_eq!(of(4, &float.to_le_bytes()).to_bits(), f64::from(float).to_bits());
        }

        #[test]
        fn integers_round_trip(value: i64) {
            let of = |column_type, flags, bytes: &[u8]| text(&column(column_type, flags, 0), bytes).unwrap();
            prop_assert_eq!(of(8, 0, &value.to_le_bytes()), value.to_string());
            prop_assert_eq!(of(8, UNSIGNED, &value.to_le_bytes()), value.cast_unsigned().to_string());
            prop_assert_eq!(of(3, 0, &(value as i32).to_le_bytes()), (value as i32).to_string());
            prop_assert_eq!(of(2, 0, &(value as i16).to_le_bytes()), (value as i16).to_string());
            prop_assert_eq!(of(1, 0, &(value as i8).to_le_bytes()), (value as i8).to_string());
            prop_assert_eq!(of(1, UNSIGNED, &(value as u8).to_le_bytes()), (value as u8).to_string());
        }

        #[test]
        fn any_bytes_parse_without_panic(
            bytes: Vec<u8>, columns in prop::collection::vec((any::<u8>(), any::<u16>(), any::<u8>()), 1..9),
        ) {
            let columns: Vec<_> =
                columns.into_iter().map(|(column_type, flags, decimals)| column(column_type, flags, decimals)).collect();
            if let Some(rows) = ValueRows::new(&columns) {
                let mut out = Vec::new();
                if rows.put_text_row(&bytes, &mut out).is_ok() {
                    let values: Result<Vec<_>, _> = TextRowValues::new(&out, columns.len()).collect();
                    prop_assert_eq!(values.map(|values| values.len()), Ok(columns.len()));
                }
            }
        }
    }
}
