//! The typed value of a column in a row image.

use super::binary_json::{JsonBinary, JsonDiffs};
use super::compressed_column::CompressedBytes;
use super::decimal_value::Decimal;
use super::table_map_column::{BinlogColumn, CHARSET_BINARY, ColumnType};
use super::temporal_value::{Date, DateTime, Time, Timestamp};
use crate::WireError;
use crate::byte_cursor::ByteCursor;

const WHAT: &str = "row value";

/// A value with the type of its column. The value borrows from the event. Compressed values are decompressed
/// only on request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BinlogValue<'a> {
    /// NULL.
    Null,
    /// A signed integer, or an integer whose signedness the source did not log.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// FLOAT.
    Float(f32),
    /// DOUBLE.
    Double(f64),
    /// DECIMAL, as an exact number.
    Decimal(Decimal<'a>),
    /// BIT: the bits of the column are the lowest bits of `value`.
    Bit {
        /// The width of the column in bits.
        bits: u8,
        /// The bits.
        value: u64,
    },
    /// YEAR: 0, or a year from 1901 to 2155.
    Year(u16),
    /// DATE.
    Date(Date),
    /// TIME.
    Time(Time),
    /// DATETIME.
    DateTime(DateTime),
    /// TIMESTAMP, in UTC.
    Timestamp(Timestamp),
    /// CHAR, VARCHAR and TEXT in the column's character set; VARBINARY and BLOB; MariaDB's JSON and VECTOR.
    Bytes(&'a [u8]),
    /// BINARY(n); MariaDB's INET4, INET6 and UUID. The binlog omits zero bytes at the end of the value.
    FixedBytes {
        /// The bytes in the event, without the zero bytes at the end.
        stored: &'a [u8],
        /// The full length of the value in bytes. Zero bytes fill the rest.
        length: u16,
    },
    /// A value of a MariaDB column with the COMPRESSED attribute.
    Compressed(CompressedBytes<'a>),
    /// ENUM: the number of the member, counted from 1. 0 is the empty string of an invalid value.
    Enum(u16),
    /// SET: one bit per member. Bit 0 is the first member.
    Set(u64),
    /// MySQL's JSON.
    Json(JsonBinary<'a>),
    /// The diffs of a JSON document, relative to the before image (partial updates).
    JsonDiff(JsonDiffs<'a>),
    /// GEOMETRY: four bytes with the SRID, then WKB.
    Geometry(&'a [u8]),
    /// MySQL's VECTOR: 32-bit floats. See [`vector_elements`].
    Vector(&'a [u8]),
}

/// Iterates over the floats of a MySQL VECTOR.
pub fn vector_elements(bytes: &[u8]) -> impl ExactSizeIterator<Item = f32> + '_ {
    bytes.chunks_exact(4).map(|chunk| f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]))
}

impl<'a> BinlogValue<'a> {
    /// Decodes `raw`. It must be exactly one value of `column`, including its length prefix if the type has
    /// one. `partial` is true for a JSON column that holds diffs instead of a document.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a value of that type.
    pub fn decode(raw: &'a [u8], column: &BinlogColumn, partial: bool) -> Result<Self, WireError> {
        let column_type = column.column_type;
        if column_type.encoded_length(raw)? != raw.len() {
            return Err(WireError::malformed(
                WHAT,
                format!("a value of {column_type} has {} bytes", raw.len()),
            ));
        }
        let body = &raw[column_type.length_prefix_bytes()..];
        let unsigned = column.unsigned == Some(true);
        Ok(match column_type {
            ColumnType::Tiny
            | ColumnType::Short
            | ColumnType::Int24
            | ColumnType::Long
            | ColumnType::LongLong => integer(raw, unsigned)?,
            ColumnType::Float => Self::Float(f32::from_le_bytes(ByteCursor::new(WHAT, raw).array()?)),
            ColumnType::Double => Self::Double(f64::from_le_bytes(ByteCursor::new(WHAT, raw).array()?)),
            ColumnType::Decimal { precision, scale } => Self::Decimal(Decimal::parse(raw, precision, scale)?),
            ColumnType::Bit { bits } => {
                let value = ByteCursor::new(WHAT, raw).uint_be(raw.len())?;
                // Bits above the width of the column are not part of the value.
                Self::Bit { bits, value: value & (u64::MAX >> (64 - u32::from(bits.clamp(1, 64)))) }
            }
            ColumnType::Year => match ByteCursor::new(WHAT, raw).u8()? {
                0 => Self::Year(0),
                offset => Self::Year(1900 + u16::from(offset)),
            },
            ColumnType::Date => Self::Date(Date::parse(raw)?),
            ColumnType::TimeOld { fraction } => Self::Time(Time::parse_old(raw, fraction)?),
            ColumnType::DateTimeOld { fraction } => Self::DateTime(DateTime::parse_old(raw, fraction)?),
            ColumnType::TimestampOld { fraction } => Self::Timestamp(Timestamp::parse_old(raw, fraction)?),
            ColumnType::Time { fraction } => Self::Time(Time::parse(raw, fraction)?),
            ColumnType::DateTime { fraction } => Self::DateTime(DateTime::parse(raw, fraction)?),
            ColumnType::Timestamp { fraction } => Self::Timestamp(Timestamp::parse(raw, fraction)?),
            ColumnType::Char { bytes_max } if column.collation == Some(CHARSET_BINARY) => {
                if body.len() > usize::from(bytes_max) {
                    return Err(WireError::malformed(
                        WHAT,
                        format!("a value of BINARY({bytes_max}) has {} bytes", body.len()),
                    ));
                }
                Self::FixedBytes { stored: body, length: bytes_max }
            }
            ColumnType::Char { .. } | ColumnType::VarChar { .. } | ColumnType::Blob { .. } => {
                Self::Bytes(body)
            }
            ColumnType::VarCharCompressed { .. } | ColumnType::BlobCompressed { .. } => {
                Self::Compressed(CompressedBytes::new(body))
            }
            ColumnType::Enum { .. } => Self::Enum(ByteCursor::new(WHAT, raw).uint(raw.len())? as u16),
            ColumnType::Set { .. } => Self::Set(ByteCursor::new(WHAT, raw).uint(raw.len())?),
            ColumnType::Json { .. } if partial => Self::JsonDiff(JsonDiffs::new(body)),
            ColumnType::Json { .. } | ColumnType::TypedArray { .. } => Self::Json(JsonBinary::parse(body)?),
            ColumnType::Geometry { .. } => Self::Geometry(body),
            ColumnType::Vector { .. } => {
                if !body.len().is_multiple_of(4) {
                    return Err(WireError::malformed(WHAT, format!("a VECTOR has {} bytes", body.len())));
                }
                Self::Vector(body)
            }
        })
    }

    /// Returns the bytes of a [`BinlogValue::FixedBytes`], padded with zeros to the full length. Returns
    /// `None` for other values.
    pub fn padded(&self) -> Option<Vec<u8>> {
        match self {
            Self::FixedBytes { stored, length } => {
                let mut padded = stored.to_vec();
                padded.resize(usize::from(*length), 0);
                Some(padded)
            }
            _ => None,
        }
    }

    /// Returns whether the value is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

/// Decodes a little-endian integer of 1..=8 bytes.
fn integer<'a>(raw: &[u8], unsigned: bool) -> Result<BinlogValue<'a>, WireError> {
    let value = ByteCursor::new(WHAT, raw).uint(raw.len())?;
    if unsigned {
        return Ok(BinlogValue::UInt(value));
    }
    let shift = 64 - 8 * raw.len() as u32;
    Ok(BinlogValue::Int((value << shift) as i64 >> shift))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::row_event::{decimal_value, temporal_value};

    fn column(column_type: ColumnType) -> BinlogColumn {
        BinlogColumn::new(column_type, 0, 0, true)
    }

    fn decode(column_type: ColumnType, raw: &[u8]) -> BinlogValue<'_> {
        BinlogValue::decode(raw, &column(column_type), false).unwrap()
    }

    #[test]
    fn integers_are_decoded_by_their_signedness() {
        let unsigned = |column_type| BinlogColumn { unsigned: Some(true), ..column(column_type) };
        assert_eq!(decode(ColumnType::Tiny, &[0xff]), BinlogValue::Int(-1));
        assert_eq!(
            BinlogValue::decode(&[0xff], &unsigned(ColumnType::Tiny), false).unwrap(),
            BinlogValue::UInt(255)
        );
        assert_eq!(decode(ColumnType::Int24, &[0, 0, 0x80]), BinlogValue::Int(-8_388_608));
        let raw = [0xff, 0xff, 0xff];
        assert_eq!(
            BinlogValue::decode(&raw, &unsigned(ColumnType::Int24), false).unwrap(),
            BinlogValue::UInt(16_777_215)
        );
        assert_eq!(decode(ColumnType::LongLong, &[0xff; 8]), BinlogValue::Int(-1));
        assert_eq!(
            BinlogValue::decode(&[0xff; 8], &unsigned(ColumnType::LongLong), false).unwrap(),
            BinlogValue::UInt(u64::MAX)
        );
    }

    #[test]
    fn binary_columns_keep_their_full_length() {
        let binary =
            BinlogColumn { collation: Some(CHARSET_BINARY), ..column(ColumnType::Char { bytes_max: 4 }) };
        let value = BinlogValue::decode(b"\x02ab", &binary, false).unwrap();
        assert_eq!(value, BinlogValue::FixedBytes { stored: b"ab", length: 4 });
        assert_eq!(value.padded().as_deref(), Some(&b"ab\0\0"[..]));
        assert!(BinlogValue::decode(b"\x05abcde", &binary, false).is_err());
        // Without the collation, the binlog does not show that the column is binary. So the same bytes are
        // not padded.
        assert_eq!(decode(ColumnType::Char { bytes_max: 4 }, b"\x02ab"), BinlogValue::Bytes(b"ab"));
        assert_eq!(decode(ColumnType::Char { bytes_max: 256 }, b"\x02\x00ab"), BinlogValue::Bytes(b"ab"));
    }

    #[test]
    fn year_zero_is_decoded_as_zero_and_not_1900() {
        assert_eq!(decode(ColumnType::Year, &[0]), BinlogValue::Year(0));
        assert_eq!(decode(ColumnType::Year, &[255]), BinlogValue::Year(2155));
    }

    #[test]
    fn bits_enums_and_sets_are_decoded() {
        assert_eq!(
            decode(ColumnType::Bit { bits: 9 }, &[0xff, 0x02]),
            BinlogValue::Bit { bits: 9, value: 0x102 }
        );
        assert_eq!(
            decode(ColumnType::Bit { bits: 64 }, &[0xff; 8]),
            BinlogValue::Bit { bits: 64, value: u64::MAX }
        );
        assert_eq!(decode(ColumnType::Enum { bytes: 2 }, &[0x02, 0x01]), BinlogValue::Enum(258));
        assert_eq!(decode(ColumnType::Set { bytes: 3 }, &[1, 0, 0x80]), BinlogValue::Set(0x80_0001));
    }

    #[test]
    fn a_value_with_a_wrong_length_is_refused() {
        assert!(BinlogValue::decode(&[1, 2, 3], &column(ColumnType::Long), false).is_err());
        assert!(BinlogValue::decode(&[1, 2, 3, 4, 5], &column(ColumnType::Long), false).is_err());
        assert!(BinlogValue::decode(&[], &column(ColumnType::Year), false).is_err());
        assert!(
            BinlogValue::decode(&[3, 0, 0, 0], &column(ColumnType::Vector { length_bytes: 4 }), false)
                .is_err()
        );
    }

    /// Generates a type and the bytes of a value of that type, as a server would log them.
    fn any_encoded() -> impl Strategy<Value = (ColumnType, Vec<u8>)> {
        let fixed = prop_oneof![
            Just((ColumnType::Tiny, 1)),
            Just((ColumnType::Short, 2)),
            Just((ColumnType::Int24, 3)),
            Just((ColumnType::Long, 4)),
            Just((ColumnType::LongLong, 8)),
            Just((ColumnType::Year, 1)),
            Just((ColumnType::Date, 3)),
            Just((ColumnType::Float, 4)),
            Just((ColumnType::Double, 8)),
            (1u8..=2).prop_map(|bytes| (ColumnType::Enum { bytes }, usize::from(bytes))),
            (1u8..=8).prop_map(|bytes| (ColumnType::Set { bytes }, usize::from(bytes))),
            (1u8..=64).prop_map(|bits| (ColumnType::Bit { bits }, usize::from(bits).div_ceil(8))),
        ]
        .prop_flat_map(|(kind, size)| (Just(kind), proptest::collection::vec(any::<u8>(), size)));
        let text = (any::<Vec<u8>>(), any::<u16>()).prop_map(|(bytes, bytes_max)| {
            let mut raw = (bytes.len() as u16).to_le_bytes()[..if bytes_max < 256 { 1 } else { 2 }].to_vec();
            raw.extend_from_slice(&bytes[..bytes.len().min(255)]);
            raw[0] = bytes.len().min(255) as u8;
            if bytes_max >= 256 {
                raw[1] = 0;
            }
            (ColumnType::VarChar { bytes_max }, raw)
        });
        let blob = (any::<Vec<u8>>(), 1u8..=4).prop_map(|(bytes, length_bytes)| {
            let bytes = &bytes[..bytes.len().min(255)];
            let mut raw = (bytes.len() as u32).to_le_bytes()[..usize::from(length_bytes)].to_vec();
            raw.extend_from_slice(bytes);
            (ColumnType::Blob { length_bytes }, raw)
        });
        prop_oneof![fixed, text, blob]
    }

    proptest! {
        #[test]
        fn the_length_of_a_value_does_not_depend_on_following_bytes((kind, raw) in any_encoded(), tail: Vec<u8>) {
            let mut bytes = raw.clone();
            bytes.extend(tail);
            prop_assert_eq!(kind.encoded_length(&bytes).unwrap(), raw.len());
            let value = BinlogValue::decode(&raw, &column(kind), false).unwrap();
            match (kind, value) {
                (ColumnType::VarChar { .. } | ColumnType::Blob { .. }, BinlogValue::Bytes(body)) => {
                    prop_assert_eq!(body, &raw[kind.length_prefix_bytes()..]);
                }
                (ColumnType::Float, BinlogValue::Float(float)) => prop_assert_eq!(float.to_le_bytes().to_vec(), raw),
                (ColumnType::Double, BinlogValue::Double(double)) => prop_assert_eq!(double.to_le_bytes().to_vec(), raw),
                (ColumnType::Set { .. }, BinlogValue::Set(set)) => {
                    prop_assert_eq!(&set.to_le_bytes()[..raw.len()], &raw[..]);
                }
                (_, BinlogValue::Int(int)) => prop_assert_eq!(&int.to_le_bytes()[..raw.len()], &raw[..]),
                _ => {}
            }
        }

        #[test]
        fn decimals_and_times_are_decoded(digits in 0u8..=6, hours in 1u16..839, micros in 0u32..1_000_000) {
            let raw = decimal_value::encode("-12345.678", 8, 3);
            let value = decode(ColumnType::Decimal { precision: 8, scale: 3 }, &raw);
            prop_assert!(matches!(value, BinlogValue::Decimal(decimal) if decimal.to_string() == "-12345.678"));
            let time = temporal_value::Time { negative: true, hours, minutes: 1, seconds: 2, micros };
            let raw = temporal_value::encode::time(time, digits);
            let parsed = decode(ColumnType::Time { fraction: digits }, &raw);
            prop_assert!(matches!(parsed, BinlogValue::Time(parsed) if parsed.hours == hours && parsed.negative));
        }

        #[test]
        fn arbitrary_bytes_never_panic(raw: Vec<u8>, kind in any_type(), partial: bool, binary: bool) {
            let mut column = column(kind);
            column.collation = binary.then_some(CHARSET_BINARY);
            let _ = kind.encoded_length(&raw);
            if let Ok(value) = BinlogValue::decode(&raw, &column, partial) {
                let _ = format!("{value:?}");
            }
        }
    }

    fn any_type() -> impl Strategy<Value = ColumnType> {
        prop_oneof![
            Just(ColumnType::Tiny),
            Just(ColumnType::LongLong),
            (1u8..=65, 0u8..=65).prop_map(|(precision, scale)| ColumnType::Decimal {
                precision,
                scale: scale.min(precision)
            }),
            (0u8..=6).prop_map(|fraction| ColumnType::TimeOld { fraction }),
            (0u8..=6).prop_map(|fraction| ColumnType::DateTimeOld { fraction }),
            (0u8..=6).prop_map(|fraction| ColumnType::TimestampOld { fraction }),
            (0u8..=6).prop_map(|fraction| ColumnType::Time { fraction }),
            (0u8..=6).prop_map(|fraction| ColumnType::DateTime { fraction }),
            (0u8..=6).prop_map(|fraction| ColumnType::Timestamp { fraction }),
            any::<u16>().prop_map(|bytes_max| ColumnType::Char { bytes_max }),
            any::<u16>().prop_map(|bytes_max| ColumnType::VarCharCompressed { bytes_max }),
            (1u8..=4).prop_map(|length_bytes| ColumnType::BlobCompressed { length_bytes }),
            (1u8..=4).prop_map(|length_bytes| ColumnType::Geometry { length_bytes }),
            (1u8..=4).prop_map(|length_bytes| ColumnType::Json { length_bytes }),
            (1u8..=4).prop_map(|length_bytes| ColumnType::Vector { length_bytes }),
            Just(ColumnType::TypedArray { element: 8 }),
        ]
    }
}
