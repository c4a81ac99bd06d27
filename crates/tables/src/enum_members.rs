//! Members of ENUM and SET columns, and values of these types that belong to no member.
//!
//! A server stores the number of the member, and prints the member's text. Two kinds of values are not
//! printed as the text of a member. Index 0 of an ENUM, which a server without strict mode stores for an
//! unknown text, is printed as an empty text, like a member `''`. Bits of a SET after its last member are not
//! printed at all.
//!
//! So such values are transferred as numbers. MySQL and MariaDB read digits as an index, if no member has
//! that text (`Field_enum::store` in `sql/field.cc`: "This is for reading numbers with LOAD DATA INFILE").
//! MariaDB gives a warning for index 0, as for an unknown text, so the load counts the values with index 0.

use crate::chunker::table_info::ColumnInfo;
use tailwater_wire::sql_quote::quote_identifier;

/// Maximum number of digits that a server reads as an index.
const INDEX_DIGITS_MAX: usize = 5;

/// Returns the members in the declaration of an ENUM or SET; `None` for other types. Surrounding quotes,
/// doubled quotes and the backslashes of escapes are removed.
fn members(column: &ColumnInfo) -> Option<Vec<String>> {
    declared(&column.column_type)
}

fn declared(column_type: &str) -> Option<Vec<String>> {
    let declared = column_type.trim();
    let inside = declared.strip_prefix("enum(").or_else(|| declared.strip_prefix("set("))?;
    let (mut members, mut member) = (Vec::new(), None::<String>);
    let mut letters = inside.chars().peekable();
    while let Some(letter) = letters.next() {
        match (&mut member, letter) {
            (None, '\'') => member = Some(String::new()),
            (None, ')') => return Some(members),
            (None, _) => {}
            (Some(text), '\\') => text.extend(letters.next()),
            (Some(text), '\'') => match letters.next_if_eq(&'\'') {
                Some(quote) => text.push(quote),
                None => members.extend(member.take()),
            },
            (Some(text), letter) => text.push(letter),
        }
    }
    None
}

/// Returns a text of zeros that is equal to no member in any collation, and that servers read as index 0 of
/// an ENUM. If every such text may be a member, returns a text that servers reject.
fn zeros(members: &[String]) -> String {
    // A collation may treat digits of other scripts as equal to ASCII digits. So members that consist of such
    // digits are compared, too.
    let lengths: Vec<_> = members
        .iter()
        .map(|member| member.trim())
        .filter(|member| member.chars().all(char::is_numeric))
        .map(|member| member.chars().count())
        .collect();
    let free = (1..=INDEX_DIGITS_MAX).find(|length| !lengths.contains(length));
    "0".repeat(free.unwrap_or(INDEX_DIGITS_MAX + 1))
}

/// Returns the expression that selects an ENUM or SET column, so that the selected text identifies the value.
/// `None` for other types, and for columns whose plain text always identifies the value.
pub fn selected(column: &ColumnInfo) -> Option<String> {
    let members = members(column)?;
    let (name, count) = (quote_identifier(&column.name), members.len());
    let number = format!("CAST({name} AS UNSIGNED)");
    match column.data_type.as_str() {
        // If zeros precede an index greater than the last member, the server that loads the value reads it as
        // an index and rejects it as invalid.
        "enum" => {
            let zeros = zeros(&members);
            let front = &zeros[1..];
            Some(format!("IF({number} BETWEEN 1 AND {count}, {name}, CONCAT('{front}', {number}))"))
        }
        "set" if count < 64 => Some(format!("IF({number} >> {count} = 0, {name}, CONCAT('0', {number}))")),
        _ => None,
    }
}

/// Returns the text that represents index 0 of an ENUM, see the documentation of this module. `None` for
/// other types.
pub fn index_zero(data_type: &str, column_type: &str) -> Option<String> {
    let members = declared(column_type).filter(|_| data_type == "enum")?;
    Some(zeros(&members))
}

/// Returns an expression for the text of an ENUM or SET, to compare it with a column that declares other
/// members. `text` is the expression for the plain text. A value that belongs to no member differs from all
/// members.
pub fn compared(column: &ColumnInfo, text: String) -> String {
    let Some(members) = members(column) else { return text };
    let (number, count) = (format!("CAST({} AS UNSIGNED)", quote_identifier(&column.name)), members.len());
    let marked = format!("CONCAT(X'00', {number})");
    match column.data_type.as_str() {
        "enum" => format!("IF({number} BETWEEN 1 AND {count}, {text}, {marked})"),
        "set" if count < 64 => format!("IF({number} >> {count} = 0, {text}, {marked})"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(declared: &str) -> ColumnInfo {
        ColumnInfo {
            name: "c".into(),
            data_type: declared.split('(').next().unwrap_or_default().into(),
            column_type: declared.into(),
            charset: None,
            collation: None,
            nullable: true,
        }
    }

    #[test]
    fn members_of_enum_and_set_are_parsed() {
        let of = |declared| members(&column(declared));
        assert_eq!(of("enum('a','it''s','b,c)','')").unwrap(), ["a", "it's", "b,c)", ""]);
        assert_eq!(of(r"set('a\\','b\n')").unwrap(), [r"a\", "bn"]);
        assert_eq!((of("varchar(9)"), of("enum('a'")), (None, None));
    }

    #[test]
    fn the_text_for_index_zero_is_equal_to_no_member() {
        let zero = |declared| index_zero("enum", declared).unwrap();
        assert_eq!(zero("enum('a','')"), "0");
        assert_eq!(zero("enum('0','a')"), "00");
        assert_eq!(zero("enum('７ ','00','x1')"), "000");
        assert_eq!(zero("enum('1','22','333','4444','55555')"), "000000");
        assert_eq!(index_zero("set", "set('a')"), None);
    }

    #[test]
    fn other_types_are_selected_unchanged() {
        assert_eq!(selected(&column("int(11)")), None);
        let sql = selected(&column("enum('0','')")).unwrap();
        assert_eq!(sql, "IF(CAST(`c` AS UNSIGNED) BETWEEN 1 AND 2, `c`, CONCAT('0', CAST(`c` AS UNSIGNED)))");
    }
}
