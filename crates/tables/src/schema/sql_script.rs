//! Writes definitions as scripts for the `mysql` and `mariadb` clients, and splits scripts into statements.
//!
//! A statement ends with a line that ends with the delimiter, which is `;` until a `DELIMITER` line sets
//! another one. Definitions are not parsed. If a line of a definition ends with the delimiter, the script
//! sets a delimiter that the definition does not contain.

/// The delimiter of statements until the script sets another one.
const DELIMITER: &str = ";";

/// The text at the start of a line that sets another delimiter.
const COMMAND: &[u8] = b"DELIMITER ";

/// A script that is being built. It consists of bytes, because definitions are in the character sets in which
/// they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script(Vec<u8>);

impl Script {
    /// Appends a statement.
    #[must_use]
    pub fn then(mut self, statement: impl AsRef<[u8]>) -> Self {
        let statement = statement.as_ref();
        let delimiter = free_delimiter(statement);
        if delimiter != DELIMITER {
            self.0.extend_from_slice(format!("DELIMITER {delimiter}\n").as_bytes());
        }
        self.0.extend_from_slice(statement);
        // The delimiter is on its own line. In the last line of a statement, a comment would hide the
        // delimiter.
        if statement.contains(&b'\n') || delimiter != DELIMITER {
            self.0.push(b'\n');
        }
        self.0.extend_from_slice(delimiter.as_bytes());
        self.0.push(b'\n');
        if delimiter != DELIMITER {
            self.0.extend_from_slice(format!("DELIMITER {DELIMITER}\n").as_bytes());
        }
        self
    }

    /// Returns the whole script.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Returns the first delimiter that does not occur in a statement. The clients also find a delimiter in the
/// middle of a line. A statement of one line without `;` keeps the delimiter `;`.
fn free_delimiter(statement: &[u8]) -> String {
    let has =
        |delimiter: &str| statement.windows(delimiter.len()).any(|window| window == delimiter.as_bytes());
    if !has(DELIMITER) {
        return DELIMITER.to_owned();
    }
    let longer = std::iter::successors(Some(";;".to_owned()), |last| Some(format!("{last};")));
    // A statement cannot contain all of these delimiters, because each is longer than the one before.
    longer.into_iter().find(|delimiter| !has(delimiter)).unwrap_or_default()
}

/// Returns the statements of a script, without delimiters and without the comments between them.
pub fn statements(script: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut delimiter = DELIMITER.as_bytes();
    let mut start: Option<usize> = None;
    let mut offset = 0;
    for line in script.split_inclusive(|&byte| byte == b'\n') {
        let trimmed = line.trim_ascii_end();
        let end = offset + trimmed.len();
        if start.is_none() {
            if let Some(rest) = command(trimmed) {
                delimiter = rest;
            } else if !is_filler(trimmed) {
                start = Some(offset);
            }
        }
        if let Some(from) = start.filter(|_| trimmed.ends_with(delimiter)) {
            found.push(script[from..end - delimiter.len()].trim_ascii());
            start = None;
        }
        offset += line.len();
    }
    // The last statement may have no delimiter.
    found.extend(start.map(|from| script[from..].trim_ascii()));
    found.retain(|statement| !statement.is_empty());
    found
}

/// Returns the delimiter that a line sets.
fn command(line: &[u8]) -> Option<&[u8]> {
    let front = line.get(..COMMAND.len())?;
    let rest = line.get(COMMAND.len()..)?.trim_ascii();
    (front.eq_ignore_ascii_case(COMMAND) && !rest.is_empty()).then_some(rest)
}

/// Returns whether a line between two statements is empty or a comment, so that it belongs to no statement.
fn is_filler(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.is_empty() || line.starts_with(b"#") || line == b"--" || line.starts_with(b"-- ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_routine_body_gets_a_delimiter_that_it_does_not_contain() {
        let script = Script::default().then("USE `a`").then("CREATE PROCEDURE p() BEGIN\nDO 1;\nEND -- x");
        let text = String::from_utf8(script.into_bytes()).expect("the script is UTF-8");
        let want = "USE `a`;\nDELIMITER ;;\nCREATE PROCEDURE p() BEGIN\nDO 1;\nEND -- x\n;;\nDELIMITER ;\n";
        assert_eq!(text, want);
        assert_eq!(statements(text.as_bytes()).len(), 2);
    }

    #[test]
    fn scripts_of_other_tools_are_split() {
        let script =
            b"-- a comment\n\n/*!40101 SET NAMES binary*/;\r\n#x\nCREATE TABLE `t` (\n  `a` int -- ;x\n);\n\
            delimiter //\nCREATE TRIGGER x\nBEGIN\n  SET @a = 1;\nEND//\nDELIMITER ;\nDO 1";
        let found: Vec<_> = statements(script).into_iter().map(String::from_utf8_lossy).collect();
        let want = [
            "/*!40101 SET NAMES binary*/",
            "CREATE TABLE `t` (\n  `a` int -- ;x\n)",
            "CREATE TRIGGER x\nBEGIN\n  SET @a = 1;\nEND",
            "DO 1",
        ];
        assert_eq!(found, want);
    }

    proptest! {
        #[test]
        fn written_scripts_are_split_into_their_statements(bodies in prop::collection::vec("[a-z;\n' ]{0,12}", 0..6)) {
            let whole: Vec<_> = bodies.iter().map(|body| format!("CREATE {body}x")).collect();
            let script = whole.iter().fold(Script::default(), |script, statement| script.then(statement));
            let bytes = script.into_bytes();
            let found: Vec<_> = statements(&bytes).into_iter().map(<[u8]>::to_vec).collect();
            let want: Vec<_> = whole.into_iter().map(String::into_bytes).collect();
            prop_assert_eq!(found, want);
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let _ = statements(&bytes);
        }
    }
}
