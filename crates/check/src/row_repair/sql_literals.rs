//! Writes values of the source as SQL literals that the target stores as the same values.

use tailwater_wire::sql_quote::hex_literal;

use crate::table_check::comparable_sql_expressions::LiteralKind;

/// Returns a value as a literal; `None` if columns of this kind cannot have the value.
pub(super) fn value_literal(kind: &LiteralKind, value: Option<&[u8]>) -> Option<String> {
    let Some(value) = value else { return Some("NULL".to_owned()) };
    let text = || str::from_utf8(value).ok().filter(|text| !text.is_empty());
    let only = |allowed: fn(u8) -> bool| text().filter(|text| text.bytes().all(allowed));
    Some(match kind {
        LiteralKind::Number => only(|byte| byte.is_ascii_digit() || b".-".contains(&byte))?.to_owned(),
        // Write index 0 as the text `zero`. The target would also store index 0 for the number 0, but with
        // the same warning as for a truncated value.
        LiteralKind::Member { zero } if value == b"0" => format!("'{zero}'"),
        LiteralKind::Member { .. } => only(|byte| byte.is_ascii_digit())?.to_owned(),
        LiteralKind::Real => {
            let text = only(|byte| byte.is_ascii_digit() || b".-+e".contains(&byte))?;
            if text.contains('e') { text.to_owned() } else { format!("{text}e0") }
        }
        LiteralKind::Moment => {
            format!("'{}'", only(|byte| byte.is_ascii_digit() || b"-:. ".contains(&byte))?)
        }
        LiteralKind::Text(charset) => {
            let is_name = charset.bytes().all(|byte| byte.is_ascii_alphanumeric());
            is_name.then(|| hex_literal(Some(introduced(charset)), value))?
        }
        LiteralKind::Bytes => hex_literal(None, value),
    })
}

/// Returns the character set introducer for the bytes of a text. The same bytes are the same text in all
/// variants of UTF-8, but MySQL warns about the old names, so the new name is used.
fn introduced(charset: &str) -> &str {
    if ["utf8", "utf8mb3", "ascii"].contains(&charset) { "utf8mb4" } else { charset }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_literals() {
        let literal = |kind: &LiteralKind, value: &str| value_literal(kind, Some(value.as_bytes()));
        assert_eq!(value_literal(&LiteralKind::Bytes, None).unwrap(), "NULL");
        assert_eq!(literal(&LiteralKind::Bytes, "").unwrap(), "X''");
        assert_eq!(literal(&LiteralKind::Number, "-1.50").unwrap(), "-1.50");
        assert_eq!(literal(&LiteralKind::Real, "-0").unwrap(), "-0e0");
        assert_eq!(literal(&LiteralKind::Real, "1e-300").unwrap(), "1e-300");
        assert_eq!(literal(&LiteralKind::Moment, "0000-00-00 00:00:00").unwrap(), "'0000-00-00 00:00:00'");
        assert_eq!(literal(&LiteralKind::Text("latin1".into()), "a'").unwrap(), "_latin1 X'6127'");
        for charset in ["utf8", "utf8mb3", "ascii", "utf8mb4"] {
            assert_eq!(
                literal(&LiteralKind::Text(charset.into()), "a").unwrap(),
                "_utf8mb4 X'61'",
                "{charset}"
            );
        }
        let member = LiteralKind::Member { zero: "00".into() };
        assert_eq!(literal(&member, "0").unwrap(), "'00'");
        assert_eq!(literal(&member, "17").unwrap(), "17");
        for (kind, value) in [
            (member, "1 OR 1"),
            (LiteralKind::Number, "1 OR 1"),
            (LiteralKind::Number, ""),
            (LiteralKind::Real, "nan"),
            (LiteralKind::Moment, "'"),
            (LiteralKind::Text("x' ".into()), "a"),
        ] {
            assert_eq!(
                literal(&kind, value),
                None,
                "{value:?} was accepted as a literal of the kind {kind:?}"
            );
        }
    }
}
