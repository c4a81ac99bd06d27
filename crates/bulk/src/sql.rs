//! Identifiers and literals in SQL statements.

/// An identifier in backquotes.
pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The name of a table or other object, qualified by its database, both in backquotes.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quoted(schema), quoted(name))
}

/// A text literal, for sessions in which the backslash is an escape character, as in all sessions of this crate.
pub fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for letter in text.chars() {
        match letter {
            '\'' => quoted.push_str("''"),
            '\\' => quoted.push_str("\\\\"),
            '\0' => quoted.push_str("\\0"),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

/// Text literals, separated by commas.
pub fn literals<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(literal).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_cannot_be_broken_out_of() {
        assert_eq!(qualified("a`b", "c"), "`a``b`.`c`");
        assert_eq!(literals(["it's", "\\", "\0"]), r"'it''s','\\','\0'");
    }
}
