//! A column of a table map: the column's type with all parameters, and the length of its values.

use std::fmt;

use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// The type bytes of table maps and results (`enum_field_types` of both flavours).
pub mod type_code {
    #![allow(missing_docs)] // the names are the servers' own
    pub const DECIMAL: u8 = 0;
    pub const TINY: u8 = 1;
    pub const SHORT: u8 = 2;
    pub const LONG: u8 = 3;
    pub const FLOAT: u8 = 4;
    pub const DOUBLE: u8 = 5;
    pub const NULL: u8 = 6;
    pub const TIMESTAMP: u8 = 7;
    pub const LONGLONG: u8 = 8;
    pub const INT24: u8 = 9;
    pub const DATE: u8 = 10;
    pub const TIME: u8 = 11;
    pub const DATETIME: u8 = 12;
    pub const YEAR: u8 = 13;
    pub const NEWDATE: u8 = 14;
    pub const VARCHAR: u8 = 15;
    pub const BIT: u8 = 16;
    pub const TIMESTAMP2: u8 = 17;
    pub const DATETIME2: u8 = 18;
    pub const TIME2: u8 = 19;
    pub const TYPED_ARRAY: u8 = 20;
    pub const MARIADB_BLOB_COMPRESSED: u8 = 140;
    pub const MARIADB_VARCHAR_COMPRESSED: u8 = 141;
    pub const VECTOR: u8 = 242;
    pub const JSON: u8 = 245;
    pub const NEWDECIMAL: u8 = 246;
    pub const ENUM: u8 = 247;
    pub const SET: u8 = 248;
    pub const TINY_BLOB: u8 = 249;
    pub const MEDIUM_BLOB: u8 = 250;
    pub const LONG_BLOB: u8 = 251;
    pub const BLOB: u8 = 252;
    pub const VAR_STRING: u8 = 253;
    pub const STRING: u8 = 254;
    pub const GEOMETRY: u8 = 255;
}

/// The collation number of the `binary` pseudo character set, which BINARY, VARBINARY and BLOB columns have.
pub const CHARSET_BINARY: u32 = 63;

/// A column as the table map describes it.
///
/// Fields from the optional metadata are `None` if the source did not log them (by default, MariaDB logs
/// none). A caller that knows the schema may set them before it decodes rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinlogColumn {
    /// The type of the column with its parameters.
    pub column_type: ColumnType,
    /// The type byte of the table map: see [`type_code`]. For ENUM and SET it is STRING.
    pub type_code: u8,
    /// The metadata of the type, as `mysqlbinlog -vv` prints it (`meta=`).
    pub metadata: u16,
    /// Whether the column may be NULL.
    pub nullable: bool,
    /// Whether a numeric column is unsigned. `None` if the source did not log this property, or if the column
    /// is not numeric. With `None`, integers are decoded as signed.
    pub unsigned: Option<bool>,
    /// The collation number of a character, ENUM or SET column; [`CHARSET_BINARY`] for binary columns. `None`
    /// if the source did not log it.
    pub collation: Option<u32>,
    /// The name of the column. `None` if the source did not log it (`binlog_row_metadata=MINIMAL`).
    pub name: Option<String>,
    /// The members of an ENUM or SET, in the character set of the column. `None` if the source did not log
    /// them.
    pub members: Option<Vec<Vec<u8>>>,
    /// The kind of geometry, as a number of `Geometry::wkbType` (0 for any kind). `None` if the source did
    /// not log it.
    pub geometry_type: Option<u32>,
    /// Whether `SELECT *` returns the column. `None` if the source did not log it (MariaDB never does).
    pub visible: Option<bool>,
    /// The maximum number of floats of a MySQL VECTOR column. `None` if the source did not log it.
    pub vector_dimensions: Option<u32>,
}

impl BinlogColumn {
    /// Creates a column with a known type and without optional metadata.
    pub fn new(column_type: ColumnType, type_code: u8, metadata: u16, nullable: bool) -> Self {
        Self {
            column_type,
            type_code,
            metadata,
            nullable,
            unsigned: None,
            collation: None,
            name: None,
            members: None,
            geometry_type: None,
            visible: None,
            vector_dimensions: None,
        }
    }
}

/// The type of a column, with all parameters that a reader needs to find the end of a value and to decode the
/// value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// TINYINT, BOOL.
    Tiny,
    /// SMALLINT.
    Short,
    /// MEDIUMINT.
    Int24,
    /// INT.
    Long,
    /// BIGINT.
    LongLong,
    /// FLOAT.
    Float,
    /// DOUBLE.
    Double,
    /// DECIMAL: 1..=65 digits in total, of which 0..=`precision` follow the decimal point.
    Decimal {
        /// The total number of digits.
        precision: u8,
        /// The number of digits after the decimal point.
        scale: u8,
    },
    /// BIT of 1..=64 bits.
    Bit {
        /// Width in bits.
        bits: u8,
    },
    /// YEAR.
    Year,
    /// DATE.
    Date,
    /// TIME before MySQL 5.6, and TIME of MariaDB with `mysql56_temporal_format=OFF`.
    ///
    /// Such a MariaDB column may have a fraction of a second, which takes more bytes. The binlog does not
    /// contain this information (`mariadb-binlog` prints wrong values for such rows). Only a caller that
    /// knows the schema can set `fraction`.
    TimeOld {
        /// Digits of the fraction of a second, 0..=6. It is 0 in a column that was parsed from a table map.
        fraction: u8,
    },
    /// DATETIME before MySQL 5.6, and DATETIME of MariaDB with `mysql56_temporal_format=OFF`.
    DateTimeOld {
        /// Digits of the fraction of a second: see [`ColumnType::TimeOld`].
        fraction: u8,
    },
    /// TIMESTAMP before MySQL 5.6, and TIMESTAMP of MariaDB with `mysql56_temporal_format=OFF`.
    TimestampOld {
        /// Digits of the fraction of a second: see [`ColumnType::TimeOld`].
        fraction: u8,
    },
    /// TIME.
    Time {
        /// Digits of the fraction of a second, 0..=6.
        fraction: u8,
    },
    /// DATETIME.
    DateTime {
        /// Digits of the fraction of a second, 0..=6.
        fraction: u8,
    },
    /// TIMESTAMP.
    Timestamp {
        /// Digits of the fraction of a second, 0..=6.
        fraction: u8,
    },
    /// CHAR and BINARY; on MariaDB also INET4, INET6 and UUID.
    Char {
        /// The maximum length of a value in bytes, 0..=1023.
        bytes_max: u16,
    },
    /// VARCHAR and VARBINARY; on MariaDB also VECTOR.
    VarChar {
        /// The maximum length of a value in bytes.
        bytes_max: u16,
    },
    /// VARCHAR or VARBINARY with MariaDB's COMPRESSED attribute.
    VarCharCompressed {
        /// The maximum length of a stored value in bytes.
        bytes_max: u16,
    },
    /// TINYBLOB to LONGBLOB and TINYTEXT to LONGTEXT; on MariaDB also JSON.
    Blob {
        /// Size of the length that precedes a value, 1..=4 bytes.
        length_bytes: u8,
    },
    /// A BLOB or TEXT with MariaDB's COMPRESSED attribute.
    BlobCompressed {
        /// Size of the length that precedes a value, 1..=4 bytes.
        length_bytes: u8,
    },
    /// GEOMETRY, and special kinds of it such as POINT.
    Geometry {
        /// Size of the length that precedes a value, 1..=4 bytes.
        length_bytes: u8,
    },
    /// MySQL's JSON.
    Json {
        /// Size of the length that precedes a value, 1..=4 bytes.
        length_bytes: u8,
    },
    /// MySQL's VECTOR.
    Vector {
        /// Size of the length that precedes a value, 1..=4 bytes.
        length_bytes: u8,
    },
    /// MySQL's hidden column of a multi-valued index: a JSON array. The table map declares only the type of
    /// its elements.
    TypedArray {
        /// The [`type_code`] of the elements.
        element: u8,
    },
    /// ENUM.
    Enum {
        /// Size of the member number, 1 or 2 bytes.
        bytes: u8,
    },
    /// SET.
    Set {
        /// Size of the bit mask, 1..=8 bytes.
        bytes: u8,
    },
}

const WHAT: &str = "column metadata";

impl ColumnType {
    /// Reads the metadata of a column with the type byte `code` from `metadata`, and determines its type.
    ///
    /// Returns the type and the metadata as one number, as `mysqlbinlog -vv` prints it.
    ///
    /// # Errors
    /// [`WireError::Unsupported`] for an unknown type; [`WireError::Malformed`] for parameters out of range.
    pub fn read(code: u8, metadata: &mut ByteCursor<'_>) -> Result<(Self, u16), WireError> {
        use type_code as code_of;
        let one_byte = |metadata: &mut ByteCursor<'_>| metadata.u8().map(u16::from);
        let (column_type, meta) = match code {
            code_of::TINY => (Self::Tiny, 0),
            code_of::SHORT => (Self::Short, 0),
            code_of::INT24 => (Self::Int24, 0),
            code_of::LONG => (Self::Long, 0),
            code_of::LONGLONG => (Self::LongLong, 0),
            // The metadata is the size of the value. The type already determines this size.
            code_of::FLOAT => (Self::Float, one_byte(metadata)?),
            code_of::DOUBLE => (Self::Double, one_byte(metadata)?),
            code_of::YEAR => (Self::Year, 0),
            code_of::DATE | code_of::NEWDATE => (Self::Date, 0),
            code_of::TIME => (Self::TimeOld { fraction: 0 }, 0),
            code_of::DATETIME => (Self::DateTimeOld { fraction: 0 }, 0),
            code_of::TIMESTAMP => (Self::TimestampOld { fraction: 0 }, 0),
            code_of::TIME2 | code_of::DATETIME2 | code_of::TIMESTAMP2 => {
                let fraction = metadata.u8()?;
                if fraction > 6 {
                    return Err(WireError::malformed(
                        WHAT,
                        format!("the column states a fraction of {fraction} digits"),
                    ));
                }
                let column_type = match code {
                    code_of::TIME2 => Self::Time { fraction },
                    code_of::DATETIME2 => Self::DateTime { fraction },
                    _ => Self::Timestamp { fraction },
                };
                (column_type, u16::from(fraction))
            }
            code_of::NEWDECIMAL => {
                let (precision, scale) = (metadata.u8()?, metadata.u8()?);
                super::decimal_value::check_shape(precision, scale)?;
                (Self::Decimal { precision, scale }, u16::from(precision) << 8 | u16::from(scale))
            }
            code_of::BIT => {
                let meta = metadata.u16()?;
                let bits = (meta >> 8) * 8 + (meta & 0xff);
                match u8::try_from(bits) {
                    Ok(bits @ 1..=64) => (Self::Bit { bits }, meta),
                    _ => {
                        return Err(WireError::malformed(
                            WHAT,
                            format!("the table map states a BIT column of {bits} bits"),
                        ));
                    }
                }
            }
            code_of::VARCHAR | code_of::VAR_STRING => {
                let bytes_max = metadata.u16()?;
                (Self::VarChar { bytes_max }, bytes_max)
            }
            code_of::MARIADB_VARCHAR_COMPRESSED => {
                let bytes_max = metadata.u16()?;
                (Self::VarCharCompressed { bytes_max }, bytes_max)
            }
            code_of::STRING | code_of::ENUM | code_of::SET => {
                let [high, low] = metadata.array()?;
                (Self::from_string_metadata(high, low)?, u16::from_be_bytes([high, low]))
            }
            code_of::BLOB
            | code_of::TINY_BLOB
            | code_of::MEDIUM_BLOB
            | code_of::LONG_BLOB
            | code_of::GEOMETRY
            | code_of::JSON
            | code_of::VECTOR
            | code_of::MARIADB_BLOB_COMPRESSED => {
                let length_bytes = metadata.u8()?;
                if !(1..=4).contains(&length_bytes) {
                    return Err(WireError::malformed(
                        WHAT,
                        format!("the table map states a BLOB length field of {length_bytes} bytes"),
                    ));
                }
                let column_type = match code {
                    code_of::GEOMETRY => Self::Geometry { length_bytes },
                    code_of::JSON => Self::Json { length_bytes },
                    code_of::VECTOR => Self::Vector { length_bytes },
                    code_of::MARIADB_BLOB_COMPRESSED => Self::BlobCompressed { length_bytes },
                    _ => Self::Blob { length_bytes },
                };
                (column_type, u16::from(length_bytes))
            }
            code_of::TYPED_ARRAY => {
                let element = metadata.u8()?;
                let meta = match element {
                    // Only VARCHAR has longer metadata as the element type of an array than as the type of a
                    // column.
                    code_of::VARCHAR => metadata.u24()? as u16,
                    code_of::TYPED_ARRAY => {
                        return Err(WireError::malformed(WHAT, "the table map states an array of arrays"));
                    }
                    _ => Self::read(element, metadata)?.1,
                };
                (Self::TypedArray { element }, meta)
            }
            other => {
                return Err(WireError::unsupported(
                    "column type",
                    format!("the type byte {other} is unknown"),
                ));
            }
        };
        Ok((column_type, meta))
    }

    /// CHAR, ENUM and SET share the type byte STRING. The high byte of the metadata distinguishes them. For a
    /// CHAR longer than 255 bytes, bits 4 and 5 of the high byte are the two highest bits of the CHAR's
    /// length, inverted.
    fn from_string_metadata(high: u8, low: u8) -> Result<Self, WireError> {
        if high == 0 {
            return Ok(Self::Char { bytes_max: u16::from(low) });
        }
        if high & 0x30 != 0x30 {
            let bytes_max = u16::from(low) | u16::from((high & 0x30) ^ 0x30) << 4;
            return match high | 0x30 {
                type_code::STRING => Ok(Self::Char { bytes_max }),
                other => Err(WireError::malformed(
                    WHAT,
                    format!("type {other} has the length bits of a long CHAR"),
                )),
            };
        }
        match (high, low) {
            (type_code::ENUM, 1 | 2) => Ok(Self::Enum { bytes: low }),
            (type_code::SET, 1..=8) => Ok(Self::Set { bytes: low }),
            (type_code::STRING | type_code::VAR_STRING, _) => Ok(Self::Char { bytes_max: u16::from(low) }),
            _ => Err(WireError::malformed(
                WHAT,
                format!("the type byte is STRING, but the metadata states type {high} with {low} bytes"),
            )),
        }
    }

    /// Returns the length in bytes of the value at the start of `bytes`, including its length prefix.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the length prefix is incomplete. The value itself may be incomplete.
    pub fn encoded_length(self, bytes: &[u8]) -> Result<usize, WireError> {
        Ok(match self {
            Self::Tiny | Self::Year => 1,
            Self::Short => 2,
            Self::Int24 | Self::Date => 3,
            Self::Long | Self::Float => 4,
            Self::LongLong | Self::Double => 8,
            Self::Decimal { precision, scale } => super::decimal_value::encoded_length(precision, scale),
            Self::Bit { bits } => usize::from(bits).div_ceil(8),
            Self::TimeOld { fraction } => super::temporal_value::old_time_bytes(fraction),
            Self::DateTimeOld { fraction } => super::temporal_value::old_datetime_bytes(fraction),
            Self::TimestampOld { fraction } => 4 + fraction_bytes(fraction),
            Self::Time { fraction } => 3 + fraction_bytes(fraction),
            Self::DateTime { fraction } => 5 + fraction_bytes(fraction),
            Self::Timestamp { fraction } => 4 + fraction_bytes(fraction),
            Self::Enum { bytes } | Self::Set { bytes } => usize::from(bytes),
            _ => {
                let prefix = self.length_prefix_bytes();
                let length = ByteCursor::new("row value", bytes).uint(prefix)?;
                // The length prefix has at most four bytes, so the sum fits into a 64-bit `usize`. On other
                // platforms the sum is limited to the maximum of `usize`.
                usize::try_from(length).unwrap_or(usize::MAX).saturating_add(prefix)
            }
        })
    }

    /// Returns the size in bytes of the length that precedes a value; 0 for types of fixed size.
    pub fn length_prefix_bytes(self) -> usize {
        match self {
            Self::Char { bytes_max }
            | Self::VarChar { bytes_max }
            | Self::VarCharCompressed { bytes_max } => {
                if bytes_max < 256 {
                    1
                } else {
                    2
                }
            }
            Self::Blob { length_bytes }
            | Self::BlobCompressed { length_bytes }
            | Self::Geometry { length_bytes }
            | Self::Json { length_bytes }
            | Self::Vector { length_bytes } => usize::from(length_bytes),
            Self::TypedArray { .. } => 4,
            _ => 0,
        }
    }

    /// Returns whether the SIGNEDNESS metadata has a bit for the column. On both flavours YEAR has such a
    /// bit, although `mariadb-binlog --print-table-metadata` ignores it.
    pub fn has_signedness(self) -> bool {
        matches!(
            self,
            Self::Tiny
                | Self::Short
                | Self::Int24
                | Self::Long
                | Self::LongLong
                | Self::Float
                | Self::Double
                | Self::Decimal { .. }
                | Self::Year
        )
    }
}

impl fmt::Display for ColumnType {
    /// Prints the SQL type as far as the binlog defines it. Lengths of CHAR and VARCHAR are in bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blob = |f: &mut fmt::Formatter<'_>, length_bytes: u8| {
            f.write_str(match length_bytes {
                1 => "tinyblob",
                2 => "blob",
                3 => "mediumblob",
                _ => "longblob",
            })
        };
        match *self {
            Self::Tiny => f.write_str("tinyint"),
            Self::Short => f.write_str("smallint"),
            Self::Int24 => f.write_str("mediumint"),
            Self::Long => f.write_str("int"),
            Self::LongLong => f.write_str("bigint"),
            Self::Float => f.write_str("float"),
            Self::Double => f.write_str("double"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::Bit { bits } => write!(f, "bit({bits})"),
            Self::Year => f.write_str("year"),
            Self::Date => f.write_str("date"),
            Self::Time { fraction } | Self::TimeOld { fraction } => write!(f, "time({fraction})"),
            Self::DateTime { fraction } | Self::DateTimeOld { fraction } => write!(f, "datetime({fraction})"),
            Self::Timestamp { fraction } | Self::TimestampOld { fraction } => {
                write!(f, "timestamp({fraction})")
            }
            Self::Char { bytes_max } => write!(f, "char({bytes_max})"),
            Self::VarChar { bytes_max } => write!(f, "varchar({bytes_max})"),
            Self::VarCharCompressed { bytes_max } => write!(f, "varchar({bytes_max}) compressed"),
            Self::Blob { length_bytes } => blob(f, length_bytes),
            Self::BlobCompressed { length_bytes } => {
                blob(f, length_bytes)?;
                f.write_str(" compressed")
            }
            Self::Geometry { .. } => f.write_str("geometry"),
            Self::Json { .. } => f.write_str("json"),
            Self::Vector { .. } => f.write_str("vector"),
            Self::TypedArray { .. } => f.write_str("array"),
            Self::Enum { .. } => f.write_str("enum"),
            Self::Set { .. } => f.write_str("set"),
        }
    }
}

/// Returns the number of bytes that hold a fraction of a second with `digits` digits.
pub(super) fn fraction_bytes(digits: u8) -> usize {
    usize::from(digits).div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: u8, metadata: &[u8]) -> Result<(ColumnType, u16), WireError> {
        ColumnType::read(code, &mut ByteCursor::new("test", metadata))
    }

    #[test]
    fn string_metadata_distinguishes_char_enum_and_set() {
        assert_eq!(read(254, &[0xfe, 3]).unwrap(), (ColumnType::Char { bytes_max: 3 }, 65027));
        assert_eq!(read(254, &[0xf7, 1]).unwrap(), (ColumnType::Enum { bytes: 1 }, 63233));
        assert_eq!(read(254, &[0xf8, 8]).unwrap().0, ColumnType::Set { bytes: 8 });
        // A CHAR(255) in utf8mb4 has 1020 bytes: 0x3fc. The two highest bits are 11, and are stored inverted
        // as 00.
        assert_eq!(read(254, &[0xce, 0xfc]).unwrap().0, ColumnType::Char { bytes_max: 1020 });
        assert_eq!(read(254, &[0xee, 0x01]).unwrap().0, ColumnType::Char { bytes_max: 257 });
        assert!(read(254, &[0xf7, 3]).is_err());
        assert!(read(254, &[0xf8, 9]).is_err());
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        assert!(read(type_code::NEWDECIMAL, &[66, 0]).is_err());
        assert!(read(type_code::NEWDECIMAL, &[5, 6]).is_err());
        assert!(read(type_code::BIT, &[1, 8]).is_err());
        assert!(read(type_code::BIT, &[0, 0]).is_err());
        assert!(read(type_code::TIME2, &[7]).is_err());
        assert!(read(type_code::BLOB, &[0]).is_err());
        assert!(read(type_code::BLOB, &[5]).is_err());
        assert!(matches!(read(99, &[]), Err(WireError::Unsupported { .. })));
    }
}
