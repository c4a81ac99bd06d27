//! How values are written as fields of a data file.
//!
//! A field has the bytes that the server stores: the session of a dump has `character_set_results = binary`,
//! and `LOAD DATA` reads with `CHARACTER SET binary`. So text of any character set, BIT, BLOB, geometry and
//! vectors stay unchanged. A few types need a conversion, and all these conversions are in this module.

use tailwater_wire::Flavour;

use crate::chunker::table_info::ColumnInfo;
use crate::enum_members;
use tailwater_wire::sql_quote::quote_identifier;

/// Returns the expression that selects a column, so that the field represents the value exactly.
///
/// Servers print a FLOAT with six digits, and different values may have the same six digits. So a FLOAT is
/// selected as a DOUBLE, which is exact and converts back to the same FLOAT. A value of an ENUM or SET that
/// belongs to no member is written as its number.
pub fn selected(column: &ColumnInfo) -> String {
    match column.data_type.as_str() {
        "float" => format!("{} * 1.0e0", quote_identifier(&column.name)),
        _ => enum_members::selected(column).unwrap_or_else(|| quote_identifier(&column.name)),
    }
}

/// Returns whether a server takes longer to print a value of this type as text than to find the row. A dump
/// reads rows with such columns in the binary protocol, and prints the values itself.
pub fn is_slow_to_print(data_type: &str) -> bool {
    matches!(data_type, "float" | "double")
}

/// Returns the expression that converts a field to the value of its column; `None` if no conversion is
/// needed. `field` is an SQL expression.
///
/// `data_type` is the column's type on the server that is loaded. From bytes without a character set, MySQL
/// accepts no JSON, and MariaDB accepts no UUID and no IP address.
pub fn stored(field: &str, flavour: Flavour, data_type: &str) -> Option<String> {
    match (flavour, data_type) {
        (Flavour::MySql, "json") => Some(format!("CONVERT({field} USING utf8mb4)")),
        (Flavour::MariaDb, "uuid" | "inet4" | "inet6" | "xmltype") => {
            Some(format!("CONVERT({field} USING utf8mb4)"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_types_that_need_it_are_converted() {
        let column = |name: &str, data_type: &str| ColumnInfo {
            name: name.into(),
            data_type: data_type.into(),
            column_type: data_type.into(),
            charset: None,
            collation: None,
            nullable: true,
        };
        assert_eq!(selected(&column("a`b", "float")), "`a``b` * 1.0e0");
        assert_eq!(selected(&column("a", "double")), "`a`");
        assert_eq!(stored("@f", Flavour::MySql, "json").as_deref(), Some("CONVERT(@f USING utf8mb4)"));
        assert_eq!(stored("@f", Flavour::MariaDb, "json"), None);
        assert_eq!(stored("@f", Flavour::MySql, "blob"), None);
    }
}
