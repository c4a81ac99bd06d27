//! Parses column types as `information_schema` writes them.

use tailwater_wire::event_printer::text_in;
use tailwater_wire::row_event::BinlogColumn;
use tailwater_wire::row_event::table_map_column::CHARSET_BINARY;

use crate::target_table::TargetColumn;

/// A parsed column type, such as `decimal(10,2) unsigned`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetType {
    /// The type name, such as `decimal`.
    pub name: String,
    /// The numbers in parentheses, such as 10 and 2.
    pub numbers: Vec<u32>,
    /// The members of an ENUM or SET.
    pub members: Vec<String>,
    /// Whether the type has `unsigned` or `zerofill`.
    pub unsigned: bool,
    /// The character set; `None` if the type is not text.
    pub character_set: Option<String>,
    /// Whether the column has MariaDB's attribute `COMPRESSED`.
    pub compressed: bool,
    /// Whether the column has the temporal layout from before MySQL 5.6.
    pub old_layout: bool,
}

impl TargetType {
    /// Parses the type of a column.
    pub fn of(column: &TargetColumn) -> Self {
        let text = column.column_type.as_str();
        let end = text.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let is_list = matches!(name, "enum" | "set");
        // MariaDB marks compressed columns and the old temporal layout in a comment. Do not search for a
        // comment in an ENUM or SET, because a member may look like a comment.
        let (rest, comment) = match rest.split_once("/*") {
            Some((rest, comment)) if !is_list => (rest, comment),
            _ => (rest, ""),
        };
        let inside = rest.trim_start().strip_prefix('(').and_then(|rest| rest.split(')').next());
        let numbers = inside
            .filter(|_| !is_list)
            .map(|inside| inside.split(',').filter_map(|number| number.trim().parse().ok()).collect());
        Self {
            name: name.to_owned(),
            numbers: numbers.unwrap_or_default(),
            members: if is_list { members(rest) } else { Vec::new() },
            unsigned: !is_list && (rest.contains("unsigned") || rest.contains("zerofill")),
            character_set: character_set(column),
            compressed: comment.contains("compressed"),
            old_layout: comment.contains("mariadb-5.3") || comment.contains("5.5 binary format"),
        }
    }

    /// Returns the number of fractional digits; 0 if none is declared.
    pub(crate) fn digits(&self) -> u8 {
        u8::try_from(self.number(0, 0)).unwrap_or(0).min(6)
    }

    /// Returns the number at `index` of those in parentheses. If the type does not declare it, returns `or`.
    pub(crate) fn number(&self, index: usize, or: u32) -> u32 {
        self.numbers.get(index).copied().unwrap_or(or)
    }

    /// Returns whether `same` accepts each member of the source's ENUM or SET as equal to the target's member
    /// at the same position. Members that cannot be compared count as equal.
    pub(crate) fn has_members(
        &self,
        source: &BinlogColumn,
        members: &[Vec<u8>],
        same: impl Fn(&str, &str) -> bool,
    ) -> bool {
        let is_same = |(theirs, own): (&Vec<u8>, &String)| match member_text(theirs, source.collation) {
            Some(theirs) => same(&theirs, own),
            None => true,
        };
        members.iter().zip(&self.members).all(is_same)
    }

    /// Returns whether this is a geometry type.
    pub(crate) fn is_geometry(&self) -> bool {
        matches!(
            self.name.as_str(),
            "geometry"
                | "point"
                | "linestring"
                | "polygon"
                | "multipoint"
                | "multilinestring"
                | "multipolygon"
                | "geometrycollection"
                | "geomcollection"
        )
    }

    /// Returns the maximum length of a character, in bytes; 1 if the column is not text.
    pub(crate) fn character_bytes_max(&self) -> u32 {
        self.character_set.as_deref().map_or(1, character_bytes_max)
    }
}

/// Returns the character set of a column: the part of its collation name before the first underscore.
fn character_set(column: &TargetColumn) -> Option<String> {
    match column.collation.as_deref()?.split('_').next()? {
        "binary" => None,
        "utf8" => Some("utf8mb3".to_owned()),
        set => Some(set.to_owned()),
    }
}

/// Returns an ENUM or SET member as text. In the binlog, the member is in the column's character set. In
/// `information_schema`, it is in the character set of the session. `None` if the character set is not
/// supported here, or if the member has characters that `information_schema` cannot show.
fn member_text(bytes: &[u8], collation: Option<u32>) -> Option<String> {
    let text = match collation {
        Some(CHARSET_BINARY) | None => str::from_utf8(bytes).ok().filter(|text| text.is_ascii())?.to_owned(),
        Some(collation) => text_in(bytes, collation)?,
    };
    // `information_schema` cannot show characters of four bytes in UTF-8. A zero byte shows that the bytes,
    // whose collation is unknown, are in a multi-byte character set.
    let has_all = |letter: char| letter < '\u{10000}' && letter != '\0';
    text.chars().all(has_all).then_some(text)
}

/// Parses the members in a text such as `('one','it''s')`.
fn members(text: &str) -> Vec<String> {
    let mut members = Vec::new();
    let mut rest = text.chars().peekable();
    while rest.find(|letter| *letter == '\'').is_some() {
        let mut member = String::new();
        while let Some(letter) = rest.next() {
            match letter {
                '\'' if rest.next_if_eq(&'\'').is_none() => break,
                // A backslash starts an escape. Servers write a backslash as `\\`, and a line end as `\n`.
                '\\' => member.extend(rest.next().map(|letter| match letter {
                    'n' => '\n',
                    'r' => '\r',
                    '0' => '\0',
                    other => other,
                })),
                _ => member.push(letter),
            }
        }
        members.push(member);
    }
    members
}

/// Returns the maximum length of a character in the character set, in bytes.
pub(crate) fn character_bytes_max(set: &str) -> u32 {
    match set {
        "filename" => 5,
        "utf8mb4" | "utf16" | "utf16le" | "utf32" | "gb18030" => 4,
        "utf8mb3" | "utf8" | "ujis" | "eucjpms" => 3,
        "ucs2" | "big5" | "gbk" | "gb2312" | "euckr" | "sjis" | "cp932" => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(column_type: &str, collation: Option<&str>) -> TargetType {
        TargetType::of(&TargetColumn {
            name: "c".to_owned(),
            column_type: column_type.to_owned(),
            collation: collation.map(str::to_owned),
            nullable: true,
            generated: false,
            stored: false,
            period: None,
            auto_increment: false,
        })
    }

    #[test]
    fn numbers_signs_and_comments_are_parsed() {
        let decimal = parsed("decimal(10,2) unsigned", None);
        assert_eq!(
            (decimal.name.as_str(), &decimal.numbers[..], decimal.unsigned),
            ("decimal", &[10, 2][..], true)
        );
        assert!(parsed("int(10) zerofill", None).unsigned && !parsed("bigint", None).unsigned);
        let compressed = parsed("varchar(10) /*m!100301 compressed*/", Some("utf8mb3_bin"));
        assert!(compressed.compressed && compressed.numbers == [10] && compressed.character_bytes_max() == 3);
        assert!(parsed("datetime(3) /* mariadb-5.3 */", None).old_layout);
        assert!(parsed("time /* 5.5 binary format */", None).old_layout && !parsed("time", None).old_layout);
        assert_eq!(parsed("char(3)", Some("filename")).character_bytes_max(), 5);
        assert_eq!(parsed("varbinary(7)", Some("binary")).character_set, None);
        assert_eq!(parsed("text", Some("utf8_general_ci")).character_set.as_deref(), Some("utf8mb3"));
    }

    #[test]
    fn enum_members_may_contain_any_text() {
        let text = "enum('a','it''s','(,)','/* unsigned','compressed */')";
        let list = parsed(text, Some("latin1_swedish_ci"));
        assert_eq!(list.members, ["a", "it's", "(,)", "/* unsigned", "compressed */"]);
        assert_eq!(parsed(r"set('a\\b','c\nd')", None).members, ["a\\b", "c\nd"]);
        assert!(list.numbers.is_empty() && !list.unsigned && !list.compressed);
    }
}
