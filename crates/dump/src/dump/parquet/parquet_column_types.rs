//! Chooses the Parquet types of table columns.

use ::parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::errors::ParquetError;
use ::parquet::schema::types::Type;

/// Maximum number of digits of a DECIMAL that is written as a Parquet decimal. With more digits, some
/// programs convert it to a DOUBLE, and some cannot read it.
const DECIMAL_DIGITS_MAX: u8 = 38;

/// Size in bytes of a DECIMAL with more digits than a 64-bit integer holds. 38 digits fit into 16 bytes.
pub const DECIMAL_BYTES: usize = 16;

/// The type of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParquetKind {
    /// An integer of 8, 16, 32 or 64 bits.
    Integer {
        /// Number of bits.
        bits: i8,
        /// Whether the integer may be negative.
        signed: bool,
    },
    /// An exact decimal number.
    Decimal {
        /// Number of digits, at most 38.
        precision: u8,
        /// Number of digits after the decimal point.
        scale: u8,
    },
    /// A floating-point number of single precision.
    Float,
    /// A floating-point number of double precision.
    Double,
    /// A date.
    Date,
    /// A date and time of day, in microseconds.
    Moment {
        /// Whether the time is in UTC; otherwise it has no time zone.
        utc: bool,
    },
    /// A TIME value as a duration in microseconds. It may be negative or longer than a day, so it is not a
    /// time of day.
    Span,
    /// A BIT value, as a number.
    Bits,
    /// Text in UTF-8.
    Text,
    /// JSON.
    Json,
    /// Binary values.
    Bytes,
}

impl ParquetKind {
    /// Chooses the type of a column from its data type and its declaration, both in lower case, as in
    /// `data_type` and `column_type` of `information_schema.columns`.
    pub fn of(data_type: &str, column_type: &str) -> Self {
        let integer = |bits| Self::Integer { bits, signed: !column_type.contains("unsigned") };
        match data_type {
            "tinyint" => integer(8),
            "smallint" => integer(16),
            "mediumint" | "int" => integer(32),
            "bigint" => integer(64),
            "year" => Self::Integer { bits: 32, signed: true },
            "decimal" => match digits(column_type) {
                Some((precision, scale)) if (1..=DECIMAL_DIGITS_MAX).contains(&precision) => {
                    Self::Decimal { precision, scale }
                }
                _ => Self::Text,
            },
            "float" => Self::Float,
            "double" => Self::Double,
            "date" => Self::Date,
            "datetime" => Self::Moment { utc: false },
            "timestamp" => Self::Moment { utc: true },
            "time" => Self::Span,
            "bit" => Self::Bits,
            "json" => Self::Json,
            "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set"
            | "xmltype" | "uuid" | "inet4" | "inet6" => Self::Text,
            _ => Self::Bytes,
        }
    }

    /// Returns the Parquet physical type of the values.
    pub fn physical(self) -> Physical {
        match self {
            Self::Integer { bits, .. } if bits <= 32 => Physical::INT32,
            Self::Decimal { precision, .. } if precision <= 9 => Physical::INT32,
            Self::Decimal { precision, .. } if precision > 18 => Physical::FIXED_LEN_BYTE_ARRAY,
            Self::Integer { .. } | Self::Decimal { .. } | Self::Moment { .. } | Self::Span | Self::Bits => {
                Physical::INT64
            }
            Self::Float => Physical::FLOAT,
            Self::Double => Physical::DOUBLE,
            Self::Date => Physical::INT32,
            Self::Text | Self::Json | Self::Bytes => Physical::BYTE_ARRAY,
        }
    }

    /// Returns whether servers may store invalid dates, such as `0000-00-00`, in columns of this type.
    /// Invalid dates become NULL in the file, even in a NOT NULL column.
    pub fn may_be_impossible(self) -> bool {
        matches!(self, Self::Date | Self::Moment { .. })
    }

    fn logical(self) -> Option<LogicalType> {
        Some(match self {
            Self::Integer { bits, signed } => LogicalType::integer(bits, signed),
            Self::Decimal { precision, scale } => LogicalType::decimal(scale.into(), precision.into()),
            Self::Date => LogicalType::Date,
            Self::Moment { utc } => LogicalType::timestamp(utc, TimeUnit::MICROS),
            Self::Bits => LogicalType::integer(64, false),
            Self::Text => LogicalType::String,
            Self::Json => LogicalType::Json,
            Self::Float | Self::Double | Self::Span | Self::Bytes => return None,
        })
    }

    /// Returns the column as a field of a Parquet schema.
    ///
    /// # Errors
    /// If Parquet does not support such a column.
    pub fn field(self, name: &str, optional: bool) -> Result<Type, ParquetError> {
        let repetition = if optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let mut field = Type::primitive_type_builder(name, self.physical())
            .with_repetition(repetition)
            .with_logical_type(self.logical());
        if let Self::Decimal { precision, scale } = self {
            field = field.with_precision(precision.into()).with_scale(scale.into());
        }
        if self.physical() == Physical::FIXED_LEN_BYTE_ARRAY {
            field = field.with_length(DECIMAL_BYTES as i32);
        }
        field.build()
    }
}

/// Returns the digits and the decimals of a declaration such as `decimal(10,2)`.
fn digits(column_type: &str) -> Option<(u8, u8)> {
    let (inside, _) = column_type.split_once('(')?.1.split_once(')')?;
    let (precision, scale) = inside.split_once(',').unwrap_or((inside, "0"));
    let (precision, scale) = (precision.parse().ok()?, scale.parse().ok()?);
    (scale <= precision).then_some((precision, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_gets_the_most_precise_parquet_type() {
        let integer = |bits, signed| ParquetKind::Integer { bits, signed };
        for (column_type, kind, physical) in [
            ("tinyint(1)", integer(8, true), Physical::INT32),
            ("smallint unsigned", integer(16, false), Physical::INT32),
            ("mediumint(8) unsigned", integer(32, false), Physical::INT32),
            ("int(10) unsigned zerofill", integer(32, false), Physical::INT32),
            ("bigint", integer(64, true), Physical::INT64),
            ("bigint(20) unsigned", integer(64, false), Physical::INT64),
            ("year(4)", integer(32, true), Physical::INT32),
            ("decimal(9,2)", ParquetKind::Decimal { precision: 9, scale: 2 }, Physical::INT32),
            ("decimal(18,0) unsigned", ParquetKind::Decimal { precision: 18, scale: 0 }, Physical::INT64),
            (
                "decimal(38,38)",
                ParquetKind::Decimal { precision: 38, scale: 38 },
                Physical::FIXED_LEN_BYTE_ARRAY,
            ),
            ("decimal(39,0)", ParquetKind::Text, Physical::BYTE_ARRAY),
            ("decimal(65,30)", ParquetKind::Text, Physical::BYTE_ARRAY),
            ("decimal", ParquetKind::Text, Physical::BYTE_ARRAY),
            ("float(7,3)", ParquetKind::Float, Physical::FLOAT),
            ("double", ParquetKind::Double, Physical::DOUBLE),
            ("date", ParquetKind::Date, Physical::INT32),
            ("datetime(6)", ParquetKind::Moment { utc: false }, Physical::INT64),
            ("timestamp", ParquetKind::Moment { utc: true }, Physical::INT64),
            ("time(3)", ParquetKind::Span, Physical::INT64),
            ("bit(64)", ParquetKind::Bits, Physical::INT64),
            ("enum('int unsigned')", ParquetKind::Text, Physical::BYTE_ARRAY),
            ("uuid", ParquetKind::Text, Physical::BYTE_ARRAY),
            ("json", ParquetKind::Json, Physical::BYTE_ARRAY),
            ("varbinary(9)", ParquetKind::Bytes, Physical::BYTE_ARRAY),
            ("geometry", ParquetKind::Bytes, Physical::BYTE_ARRAY),
            ("vector(3)", ParquetKind::Bytes, Physical::BYTE_ARRAY),
        ] {
            let data_type = column_type.split(['(', ' ']).next().unwrap();
            assert_eq!(ParquetKind::of(data_type, column_type), kind, "{column_type}");
            assert_eq!(kind.physical(), physical, "{column_type}");
            for optional in [true, false] {
                let field = kind.field("a.b `c", optional).unwrap();
                assert_eq!((field.name(), field.is_optional()), ("a.b `c", optional));
            }
        }
    }

    #[test]
    fn a_decimal_of_any_length_has_a_parquet_type() {
        for precision in 0..=65u8 {
            for scale in 0..=precision.min(38) {
                let kind = ParquetKind::of("decimal", &format!("decimal({precision},{scale})"));
                assert!(kind.field("d", false).is_ok(), "DECIMAL({precision}, {scale}) has no Parquet type");
                assert_eq!(kind == ParquetKind::Text, precision == 0 || precision > 38);
            }
        }
    }
}
