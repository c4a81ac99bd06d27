//! How values travel as fields of a data file.
//!
//! Everything is in the bytes that the server keeps: the dump's session has `character_set_results = binary`, and `LOAD DATA`
//! reads with `CHARACTER SET binary`. So text of any character set, BIT, BLOB, geometry and vectors go through as they are.
//! A few types cannot: what they need on either side stands here, and nowhere else.

use tailwater_wire::Flavour;

use crate::chunker::table_info::ColumnInfo;
use crate::enum_members;
use crate::sql::quoted;

/// What to select of a column so that its field says all of the value.
///
/// Servers print a FLOAT with six digits, which are not enough to tell two of them apart; as a DOUBLE it is exact, and
/// becomes the same FLOAT again. What is no member of an ENUM or SET travels as its number.
pub fn selected(column: &ColumnInfo) -> String {
    match column.data_type.as_str() {
        "float" => format!("{} * 1.0e0", quoted(&column.name)),
        _ => enum_members::selected(column).unwrap_or_else(|| quoted(&column.name)),
    }
}

/// Whether a server takes longer to print a value than to find it. Rows with such columns are asked for as values, and printed here.
pub fn is_slow_to_print(data_type: &str) -> bool {
    matches!(data_type, "float" | "double")
}

/// What makes a column's value out of its field, here the SQL expression `field`; `None` if the field is the value.
///
/// `data_type` is the type on the server that is loaded. MySQL takes no JSON, and MariaDB no UUID and no address, out of bytes
/// without a character set.
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
    fn only_what_needs_it_is_converted() {
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
