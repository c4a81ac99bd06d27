//! Members of ENUM and SET columns, and the values of these types that are none of them.
//!
//! Servers keep numbers, and print the member of each. Index 0 of an ENUM, which a server without strict mode stores for a text
//! that it does not know, is printed as an empty text, as a member `''` is; bits of a SET after its last member are not
//! printed. So such values travel as numbers: both families take the digits of an index for it, if no member has that
//! text (`Field_enum::store` in `sql/field.cc`: "This is for reading numbers with LOAD DATA INFILE"). MariaDB warns of
//! index 0 all the same, as it does of a text that it does not know: who stores it counts.

use crate::chunker::table_info::ColumnInfo;
use crate::sql::quoted;

/// So many bytes of digits are taken for an index.
const INDEX_DIGITS_MAX: usize = 5;

/// The members of a type as it is declared, quotes undone as far as it matters here; `None` for other types.
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

/// Zeros that are no member's text in any collation, and that servers take for index 0 of an ENUM. If there are none, a text that they
/// take for nothing.
fn zeros(members: &[String]) -> String {
    // Digits of other scripts may be equal to ours.
    let lengths: Vec<_> = members
        .iter()
        .map(|member| member.trim())
        .filter(|member| member.chars().all(char::is_numeric))
        .map(|member| member.chars().count())
        .collect();
    let free = (1..=INDEX_DIGITS_MAX).find(|length| !lengths.contains(length));
    "0".repeat(free.unwrap_or(INDEX_DIGITS_MAX + 1))
}

/// What to select of an ENUM or SET so that its text says all of the value; `None` for other types, and where the text always does.
pub(crate) fn selected(column: &ColumnInfo) -> Option<String> {
    let members = members(column)?;
    let (name, count) = (quoted(&column.name), members.len());
    let number = format!("CAST({name} AS UNSIGNED)");
    match column.data_type.as_str() {
        // After zeros an index past the last member is none, and the server that loads it refuses it.
        "enum" => {
            let zeros = zeros(&members);
            let front = &zeros[1..];
            Some(format!("IF({number} BETWEEN 1 AND {count}, {name}, CONCAT('{front}', {number}))"))
        }
        "set" if count < 64 => Some(format!("IF({number} >> {count} = 0, {name}, CONCAT('0', {number}))")),
        _ => None,
    }
}

/// The index 0 of an ENUM as a text: see the module. `None` for other types.
pub(crate) fn index_zero(data_type: &str, column_type: &str) -> Option<String> {
    let members = declared(column_type).filter(|_| data_type == "enum")?;
    Some(zeros(&members))
}

/// The text of an ENUM or SET for comparing it with that of a column that declares other members, `text` being its expression:
/// what is no member differs from all that are.
pub(crate) fn compared(column: &ColumnInfo, text: String) -> String {
    let Some(members) = members(column) else { return text };
    let (number, count) = (format!("CAST({} AS UNSIGNED)", quoted(&column.name)), members.len());
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
    fn members_are_told_apart() {
        let of = |declared| members(&column(declared));
        assert_eq!(of("enum('a','it''s','b,c)','')").unwrap(), ["a", "it's", "b,c)", ""]);
        assert_eq!(of(r"set('a\\','b\n')").unwrap(), [r"a\", "bn"]);
        assert_eq!((of("varchar(9)"), of("enum('a'")), (None, None));
    }

    #[test]
    fn index_zero_has_a_text_that_no_member_has() {
        let zero = |declared| index_zero("enum", declared).unwrap();
        assert_eq!(zero("enum('a','')"), "0");
        assert_eq!(zero("enum('0','a')"), "00");
        assert_eq!(zero("enum('７ ','00','x1')"), "000");
        assert_eq!(zero("enum('1','22','333','4444','55555')"), "000000");
        assert_eq!(index_zero("set", "set('a')"), None);
    }

    #[test]
    fn other_types_are_selected_as_they_are() {
        assert_eq!(selected(&column("int(11)")), None);
        let sql = selected(&column("enum('0','')")).unwrap();
        assert_eq!(sql, "IF(CAST(`c` AS UNSIGNED) BETWEEN 1 AND 2, `c`, CONCAT('0', CAST(`c` AS UNSIGNED)))");
    }
}
