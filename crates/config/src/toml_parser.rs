//! Parses TOML. Error messages do not contain values, because a line may contain a password.

use serde::de::DeserializeOwned;

use super::spelling_suggestion::with_suggestion;

/// Parses TOML.
///
/// # Errors
/// The error, with line, column and key. The TOML parser's own message would also repeat the line; this
/// message does not.
pub fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| explain(text, &error))
}

/// Converts an already parsed TOML document to a value.
///
/// # Errors
/// The error, without a line number.
pub(super) fn from_document<T: DeserializeOwned>(document: toml::Table) -> Result<T, String> {
    document.try_into().map_err(|error: toml::de::Error| reason_of(&error))
}

fn reason_of(error: &toml::de::Error) -> String {
    with_suggestion(&without_value(error.message().trim_end()))
}

fn explain(text: &str, error: &toml::de::Error) -> String {
    let reason = reason_of(error);
    let Some(start) = error.span().map(|span| span.start).filter(|start| *start <= text.len()) else {
        return reason;
    };
    let before = text.get(..start).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.matches('\n').count() + 1;
    let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
    let whole = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    match key_of(whole) {
        Some(key) => format!("line {line}, column {column}, key {key}: {reason}"),
        None => format!("line {line}, column {column}: {reason}"),
    }
}

/// Returns the key before the `=` of a line, if it looks like a key.
fn key_of(line: &str) -> Option<&str> {
    let key = line.split_once('=')?.0.trim();
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (!key.is_empty() && key.len() <= 64 && key.chars().all(is_bare)).then_some(key)
}

/// Removes the value from an error such as `invalid type: string "x", expected u16`.
fn without_value(reason: &str) -> String {
    let masked = || {
        let front = ["invalid type: ", "invalid value: "].iter().find(|front| reason.contains(**front))?;
        let start = reason.find(front)? + front.len();
        let end = reason.rfind(", expected ").filter(|end| *end > start)?;
        let kind = reason.get(start..end)?.split(['"', '`']).next()?.trim_end();
        Some(format!("{}{kind}{}", reason.get(..start)?, reason.get(end..)?))
    };
    masked().unwrap_or_else(|| reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse_toml;
    use crate::Config;

    #[test]
    fn errors_do_not_contain_values() {
        const START: &str =
            "[log]\ndirectory = 'l'\n[[source]]\nname = 's'\nserver_id = 1\n[[serve]]\nsource = 's'\n";
        for (lines, expected) in [
            (
                "listen = '127.0.0.1:1'\n[[serve.user]]\nname = 'u'\npassword = 4711",
                "line 11, column 12, key password",
            ),
            ("listen = '127.0.0.1:1'\n[[serve.user]]\nname = 'u'\npassword = '4711", "line 11"),
            ("listen = '127.0.0.1:1'\n[[serve.user]]\nname = 'u'\npassword = 4711 x", "line 11"),
            ("listen = '127.0.0.1:1'\n[[serve.user]]\nname = 'u'\npasswrod = '4711'", "passwrod"),
            ("listen = '127.0.0.1:1'\n[[serve.user]]\npassword = '4711'\npassword = '4711'", "line 11"),
            ("listen = '4711'", "key listen"),
            ("connections_max = '4711\\\"4711'", "invalid type: string, expected usize"),
        ] {
            let reason = parse_toml::<Config>(&format!("{START}{lines}")).map(|_| ()).expect_err(lines);
            assert!(reason.contains(expected), "{lines}: expected {expected:?} in the error: {reason}");
            assert!(!reason.contains("4711"), "{lines}: the error contains a value: {reason}");
        }
    }
}
