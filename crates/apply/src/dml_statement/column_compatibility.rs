//! Checks which source columns fit into which target columns without loss.

use tailwater_wire::row_event::table_map_column::CHARSET_BINARY;
use tailwater_wire::row_event::{BinlogColumn, ColumnType};
use tailwater_wire::{Flavour, event_printer::charset};

use crate::column_matching::TargetType;
use crate::column_matching::column_type_parser::character_bytes_max;

impl TargetType {
    /// Returns the maximum length in bytes of a type that holds text or binary data; `None` for other types.
    fn bytes_max(&self) -> Option<u64> {
        Some(match self.name.as_str() {
            "char" | "binary" | "varchar" | "varbinary" => {
                u64::from(self.number(0, 1)) * u64::from(self.character_bytes_max())
            }
            "tinytext" | "tinyblob" => 0xff,
            "text" | "blob" => 0xffff,
            "mediumtext" | "mediumblob" => 0xff_ffff,
            "longtext" | "longblob" => 0xffff_ffff,
            _ => return None,
        })
    }

    /// Returns why values of the source's column may not fit into this type; `None` if they always fit.
    /// `unsigned` states whether the source's column is unsigned.
    pub fn refuses(&self, source: &BinlogColumn, unsigned: bool, flavour: Flavour) -> Option<String> {
        let fits = match source.column_type {
            ColumnType::Tiny => self.takes_integer(1, unsigned),
            ColumnType::Short => self.takes_integer(2, unsigned),
            ColumnType::Int24 => self.takes_integer(3, unsigned),
            ColumnType::Long => self.takes_integer(4, unsigned),
            ColumnType::LongLong => self.takes_integer(8, unsigned),
            ColumnType::Float => {
                matches!(self.name.as_str(), "float" | "double") && (!self.unsigned || unsigned)
            }
            ColumnType::Double => self.name == "double" && (!self.unsigned || unsigned),
            ColumnType::Decimal { precision, scale } => {
                let (to_precision, to_scale) = (self.number(0, 10), self.number(1, 0));
                self.name == "decimal"
                    && to_scale >= u32::from(scale)
                    && to_precision.saturating_sub(to_scale) >= u32::from(precision - scale.min(precision))
                    && (!self.unsigned || unsigned)
            }
            ColumnType::Bit { bits } => self.name == "bit" && self.number(0, 1) >= u32::from(bits),
            ColumnType::Year => self.name == "year",
            ColumnType::Date => matches!(self.name.as_str(), "date" | "datetime"),
            ColumnType::Time { fraction } | ColumnType::TimeOld { fraction } => {
                self.takes_time("time", fraction)
            }
            ColumnType::DateTime { fraction } | ColumnType::DateTimeOld { fraction } => {
                self.takes_time("datetime", fraction)
            }
            ColumnType::Timestamp { fraction } | ColumnType::TimestampOld { fraction } => {
                self.takes_time("timestamp", fraction)
            }
            ColumnType::Char { bytes_max } | ColumnType::VarChar { bytes_max } => {
                self.takes_bytes(source, u64::from(bytes_max), flavour)
            }
            // The stored value starts with one more byte, for the compression method.
            ColumnType::VarCharCompressed { bytes_max } => {
                self.takes_bytes(source, u64::from(bytes_max).saturating_sub(1), flavour)
            }
            ColumnType::Blob { length_bytes } => {
                self.takes_bytes(source, blob_bytes_max(length_bytes), flavour)
            }
            ColumnType::BlobCompressed { length_bytes } => {
                self.takes_bytes(source, blob_bytes_max(length_bytes) - 1, flavour)
            }
            ColumnType::Geometry { .. } => self.is_geometry(),
            ColumnType::Json { .. } => {
                self.name == "json" || self.name == "longtext" && flavour == Flavour::MariaDb
            }
            ColumnType::Vector { .. } => self.name == "vector" && flavour == Flavour::MySql,
            ColumnType::TypedArray { .. } => true,
            ColumnType::Enum { .. } => self.name == "enum" && self.takes_members(source),
            ColumnType::Set { .. } => self.name == "set" && self.takes_members(source),
        };
        let sign = if unsigned { " unsigned" } else { "" };
        (!fits).then(|| {
            format!("{}{sign} does not fit into {} without loss", source.column_type, self.description())
        })
    }

    fn takes_integer(&self, bytes: u32, unsigned: bool) -> bool {
        let own = match self.name.as_str() {
            "tinyint" => 1,
            "smallint" => 2,
            "mediumint" => 3,
            "int" => 4,
            "bigint" => 8,
            "decimal" => {
                let digits = [0, 3, 5, 8, 10, 0, 0, 0, 20].get(bytes as usize).copied().unwrap_or(20);
                let room = self.number(0, 10).saturating_sub(self.number(1, 0));
                return room >= digits && (!self.unsigned || unsigned);
            }
            _ => return false,
        };
        match (unsigned, self.unsigned) {
            (true, false) => own > bytes,
            (false, true) => false,
            _ => own >= bytes,
        }
    }

    fn takes_time(&self, name: &str, fraction: u8) -> bool {
        self.name == name && self.number(0, 0) >= u32::from(fraction)
    }

    fn takes_bytes(&self, source: &BinlogColumn, source_bytes_max: u64, flavour: Flavour) -> bool {
        let binary = source.collation == Some(CHARSET_BINARY);
        // MariaDB logs its own types, such as UUID, like BINARY or VARBINARY. The log may not show that these
        // columns are binary.
        let own = match self.name.as_str() {
            "uuid" | "inet6" => source_bytes_max == 16,
            "inet4" => source_bytes_max == 4,
            "vector" => source_bytes_max == 4 * u64::from(self.number(0, 1)),
            _ => false,
        };
        let own = own && flavour == Flavour::MariaDb && (binary || source.collation.is_none());
        if binary || own {
            // A BINARY column pads its values with zero bytes.
            let padded = self.name == "binary"
                && source.column_type != ColumnType::Char { bytes_max: self.number(0, 1) as u16 };
            let blob = self.character_set.is_none() && !padded;
            return own || blob && self.bytes_max().is_some_and(|max| max >= source_bytes_max);
        }
        if self.name == "json" {
            return true;
        }
        let Some(own) = &self.character_set else {
            // The source's column holds bytes, or text whose character set the source did not log.
            return source.collation.is_none() && self.bytes_max().is_some_and(|max| max >= source_bytes_max);
        };
        let from = source.collation.and_then(charset::character_set);
        if from.is_none() && source.collation.is_some() {
            return false;
        }
        let from = from.unwrap_or(own);
        match self.name.as_str() {
            // The target's column must hold as many characters as the source's column.
            "char" | "varchar" => {
                u64::from(self.number(0, 1)) >= source_bytes_max / u64::from(character_bytes_max(from))
            }
            // The target's column must hold as many bytes as the source's column. If the character set
            // differs, the server rejects text that is too long.
            "tinytext" | "text" | "mediumtext" | "longtext" => {
                self.bytes_max().is_some_and(|max| max >= source_bytes_max)
            }
            _ => false,
        }
    }

    fn takes_members(&self, source: &BinlogColumn) -> bool {
        let Some(members) = &source.members else { return true };
        members.len() <= self.members.len() && self.has_members(source, members, str::eq_ignore_ascii_case)
    }

    fn description(&self) -> String {
        let numbers = match self.numbers.as_slice() {
            [] => String::new(),
            numbers => {
                format!("({})", numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
            }
        };
        let sign = if self.unsigned { " unsigned" } else { "" };
        let set = self.character_set.as_ref().map_or_else(String::new, |set| format!(" in {set}"));
        format!("{}{numbers}{sign}{set}", self.name)
    }
}

fn blob_bytes_max(length_bytes: u8) -> u64 {
    (1 << (8 * u32::from(length_bytes.min(4)))) - 1
}

#[cfg(test)]
mod tests {
    use tailwater_wire::row_event::table_map_column::type_code;

    use super::*;
    use crate::target_table::TargetColumn;

    fn target(column_type: &str, collation: Option<&str>) -> TargetType {
        TargetType::of(&TargetColumn {
            name: "c".into(),
            column_type: column_type.into(),
            collation: collation.map(str::to_owned),
            nullable: true,
            generated: false,
            stored: false,
            period: None,
            auto_increment: false,
        })
    }

    fn takes(to: &TargetType, column_type: ColumnType, collation: Option<u32>, unsigned: bool) -> bool {
        let mut column = BinlogColumn::new(column_type, type_code::LONG, 0, true);
        column.collation = collation;
        to.refuses(&column, unsigned, Flavour::MariaDb).is_none()
    }

    #[test]
    fn numbers_fit_into_larger_types() {
        let number = |to: &str, from, unsigned| takes(&target(to, None), from, None, unsigned);
        assert!(number("bigint", ColumnType::Long, true) && number("int(11)", ColumnType::Long, false));
        assert!(!number("int", ColumnType::Long, true) && !number("int unsigned", ColumnType::Long, false));
        assert!(number("int(10) unsigned zerofill", ColumnType::Long, true));
        assert!(
            !number("smallint", ColumnType::Long, false) && number("decimal(10,0)", ColumnType::Long, false)
        );
        assert!(
            !number("decimal(10,1)", ColumnType::Long, false) && !number("double", ColumnType::Long, false)
        );
        let decimal = ColumnType::Decimal { precision: 10, scale: 2 };
        assert!(number("decimal(12,4)", decimal, false) && !number("decimal(12,5)", decimal, false));
        assert!(!number("decimal(10,1)", decimal, false) && !number("float", ColumnType::Double, false));
        let time = ColumnType::Time { fraction: 3 };
        assert!(
            number("time(6)", time, false)
                && !number("time", time, false)
                && !number("datetime(3)", time, false)
        );
        assert!(!number("datetime", ColumnType::Timestamp { fraction: 0 }, false));
        assert!(!number("longblob", ColumnType::Vector { length_bytes: 4 }, false));
    }

    #[test]
    fn text_fits_into_longer_types_and_other_character_sets() {
        let text = |to: &str, collation, from: Option<u32>, bytes_max| {
            takes(&target(to, collation), ColumnType::VarChar { bytes_max }, from, false)
        };
        let (latin1, utf8mb4, binary) = (Some(8), Some(45), Some(63));
        assert!(text("varchar(40)", Some("utf8mb4_general_ci"), utf8mb4, 160));
        assert!(!text("varchar(39)", Some("utf8mb4_general_ci"), utf8mb4, 160));
        assert!(text("varchar(40)", Some("utf8mb4_general_ci"), latin1, 40));
        assert!(text("text", Some("latin1_swedish_ci"), utf8mb4, 160));
        assert!(!text("varchar(160)", Some("latin1_swedish_ci"), binary, 160));
        assert!(text("varbinary(160)", None, binary, 160) && !text("varbinary(159)", None, binary, 160));
        assert!(!text("binary(160)", None, binary, 160) && !text("int", None, latin1, 10));
        assert!(!text("varbinary(160)", None, utf8mb4, 160) && text("varbinary(160)", None, None, 160));
    }

    #[test]
    fn enum_members_must_have_the_same_order() {
        let to = target("enum('a','it''s','(,)')", Some("latin1_swedish_ci"));
        assert_eq!(to.members, ["a", "it's", "(,)"]);
        let mut column = BinlogColumn::new(ColumnType::Enum { bytes: 1 }, type_code::STRING, 0, true);
        column.members = Some(vec![b"A".to_vec(), b"it's".to_vec()]);
        assert_eq!(to.refuses(&column, false, Flavour::MySql), None);
        column.members = Some(vec![b"it's".to_vec(), b"a".to_vec()]);
        assert!(to.refuses(&column, false, Flavour::MySql).unwrap().contains("enum"));
    }
}
