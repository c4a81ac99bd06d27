//! Splits the bytes of a file into statements as they arrive, for files of INSERT statements that other tools
//! wrote.
//!
//! A statement ends at a semicolon outside of quotes and comments. Otherwise SQL is not parsed here; the
//! server interprets the statements. `--` and `#` comments before a statement are removed; all other comments
//! stay. Servers execute the contents of `/*! */` and `/*M! */`, so quotes in them count as quotes.

/// Splits bytes into SQL statements.
#[derive(Debug)]
pub struct StatementSplitter {
    state: SplitterState,
    statement: Vec<u8>,
    /// Whether the current statement contains anything except whitespace and comments.
    is_something: bool,
    /// Whether the splitter is within a comment that servers execute.
    is_run: bool,
    bytes_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SplitterState {
    Plain,
    /// The splitter is within quotes. `escaped` means that the last byte was an escaping backslash.
    Quoted {
        quote: u8,
        escaped: bool,
    },
    /// The last bytes were this number of dashes. Two dashes and a space start a comment.
    Dashes(u8),
    /// After a slash. A star after it starts a comment.
    Slash,
    /// After `/*`.
    CommentBegin,
    /// After `/*M`.
    CommentM,
    /// After a star in a comment that servers execute.
    Star,
    /// The splitter is within a `/* */` comment that servers do not execute. `star` means that the last byte
    /// was a star.
    Comment {
        star: bool,
    },
    /// Within a comment up to the end of the line.
    LineComment,
}

impl StatementSplitter {
    /// Creates a splitter for statements of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            state: SplitterState::Plain,
            statement: Vec::new(),
            is_something: false,
            is_run: false,
            bytes_max,
        }
    }

    /// Takes the next bytes, and returns the statements that end in them, without their semicolons.
    ///
    /// # Errors
    /// If a statement is too long.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut complete = Vec::new();
        for &byte in bytes {
            if self.take(byte) {
                complete.extend(self.end());
            }
            if self.statement.len() > self.bytes_max {
                return Err(format!("a statement is longer than {} bytes", self.bytes_max));
            }
        }
        Ok(complete)
    }

    /// Returns the last statement, if there is one. The last statement need not end with a semicolon.
    ///
    /// # Errors
    /// If the last statement ends within quotes or within a comment.
    pub fn finish(&mut self) -> Result<Option<Vec<u8>>, String> {
        match self.state {
            SplitterState::Quoted { .. } => return Err("the last statement ends within quotes".into()),
            SplitterState::CommentBegin | SplitterState::CommentM | SplitterState::Comment { .. } => {
                return Err("the last statement ends within a comment".into());
            }
            _ if self.is_run => return Err("the last statement ends within a comment".into()),
            SplitterState::Dashes(1) => self.statement.push(b'-'),
            SplitterState::Slash => self.statement.push(b'/'),
            // Servers accept the end of the statement in place of the space after two dashes, so the dashes
            // start a comment.
            SplitterState::Dashes(_)
            | SplitterState::Plain
            | SplitterState::Star
            | SplitterState::LineComment => {}
        }
        self.is_something |= matches!(self.state, SplitterState::Dashes(1) | SplitterState::Slash);
        self.state = SplitterState::Plain;
        Ok(self.end())
    }

    fn end(&mut self) -> Option<Vec<u8>> {
        let statement = std::mem::take(&mut self.statement);
        std::mem::take(&mut self.is_something).then(|| statement.trim_ascii().to_vec())
    }

    /// Reads the next byte. Returns whether it ends the statement.
    fn take(&mut self, byte: u8) -> bool {
        self.state = match self.state {
            SplitterState::Plain => return self.take_plain(byte),
            SplitterState::Quoted { quote, escaped } => {
                self.statement.push(byte);
                match (byte == quote && !escaped, byte == b'\\' && !escaped && quote != b'`') {
                    (true, _) => SplitterState::Plain,
                    (false, escaped) => SplitterState::Quoted { quote, escaped },
                }
            }
            SplitterState::Dashes(1) if byte == b'-' => SplitterState::Dashes(2),
            SplitterState::Dashes(2) if byte.is_ascii_whitespace() || byte.is_ascii_control() => {
                self.keep(b"--");
                self.statement.push(byte);
                if byte == b'\n' { SplitterState::Plain } else { SplitterState::LineComment }
            }
            // After a third dash, the last two dashes may start a comment.
            SplitterState::Dashes(2) if byte == b'-' => {
                self.statement.push(b'-');
                self.is_something = true;
                SplitterState::Dashes(2)
            }
            SplitterState::Dashes(dashes) => {
                self.statement.extend(std::iter::repeat_n(b'-', dashes.into()));
                self.is_something = true;
                return self.take_plain(byte);
            }
            SplitterState::Slash if byte == b'*' => {
                self.statement.extend_from_slice(b"/*");
                SplitterState::CommentBegin
            }
            SplitterState::Slash => {
                self.statement.push(b'/');
                self.is_something = true;
                return self.take_plain(byte);
            }
            SplitterState::CommentBegin => {
                self.statement.push(byte);
                match byte {
                    b'!' => self.run(),
                    b'M' => SplitterState::CommentM,
                    _ => SplitterState::Comment { star: byte == b'*' },
                }
            }
            SplitterState::CommentM => {
                self.statement.push(byte);
                match byte {
                    b'!' => self.run(),
                    _ => SplitterState::Comment { star: byte == b'*' },
                }
            }
            SplitterState::Star if byte == b'/' => {
                self.statement.push(byte);
                self.is_run = false;
                SplitterState::Plain
            }
            SplitterState::Star => return self.take_plain(byte),
            SplitterState::Comment { star } => {
                self.statement.push(byte);
                match star && byte == b'/' {
                    true => SplitterState::Plain,
                    false => SplitterState::Comment { star: byte == b'*' },
                }
            }
            SplitterState::LineComment if byte == b'\n' => {
                self.statement.push(byte);
                SplitterState::Plain
            }
            SplitterState::LineComment => {
                self.keep(&[byte]);
                SplitterState::LineComment
            }
        };
        false
    }

    /// Adds bytes of a line comment to the statement. The bytes of a comment before the statement are
    /// dropped. A comment within the statement is kept whole, with its `--` or `#`.
    fn keep(&mut self, comment: &[u8]) {
        if self.is_something {
            self.statement.extend_from_slice(comment);
        }
    }

    /// Starts a comment whose contents servers execute.
    fn run(&mut self) -> SplitterState {
        (self.is_run, self.is_something) = (true, true);
        SplitterState::Plain
    }

    fn take_plain(&mut self, byte: u8) -> bool {
        self.state = match byte {
            b';' if !self.is_run => {
                self.state = SplitterState::Plain;
                return true;
            }
            b'-' => SplitterState::Dashes(1),
            b'/' => SplitterState::Slash,
            b'#' => {
                self.keep(b"#");
                SplitterState::LineComment
            }
            _ => {
                self.statement.push(byte);
                self.is_something |= !byte.is_ascii_whitespace();
                match byte {
                    b'\'' | b'"' | b'`' => SplitterState::Quoted { quote: byte, escaped: false },
                    b'*' if self.is_run => SplitterState::Star,
                    _ => SplitterState::Plain,
                }
            }
        };
        false
    }
}

/// Returns all statements of a script.
///
/// # Errors
/// The same as for [`StatementSplitter::finish`].
pub fn all(script: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut statements = StatementSplitter::new(usize::MAX);
    let mut found = statements.push(script)?;
    found.extend(statements.finish()?);
    Ok(found)
}

/// Returns the first word of a statement in capitals. The word may be in a comment that servers execute.
pub fn verb(statement: &[u8]) -> String {
    let mut rest = statement.trim_ascii_start();
    if let Some(inside) = rest.strip_prefix(b"/*!").or_else(|| rest.strip_prefix(b"/*M!")) {
        let digits = inside.iter().take_while(|byte| byte.is_ascii_digit()).count();
        rest = inside[digits..].trim_ascii_start();
    }
    let letters = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).take(20);
    letters.map(|&byte| char::from(byte.to_ascii_uppercase())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(script: &str) -> Vec<String> {
        let found = all(script.as_bytes()).expect("the script is complete");
        found.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    #[test]
    fn semicolons_in_quotes_and_comments_do_not_end_a_statement() {
        let script = "-- a; comment\n/*!40101 SET NAMES binary*/;\n#x;\n/* only; this */;\n\
            INSERT INTO `a;``b` VALUES(\"x\\\";\",'it''s;\\\\'), (1--2, 3 - -1, 4/2);;\nDO 1 -- end;";
        let want = [
            "/*!40101 SET NAMES binary*/",
            "INSERT INTO `a;``b` VALUES(\"x\\\";\",'it''s;\\\\'), (1--2, 3 - -1, 4/2)",
            "DO 1 -- end;",
        ];
        assert_eq!(texts(script), want);
        let run = "/*!50003 INSERT INTO `a*/;b` VALUES ('*/;', 2 /* no; */, 3**/;\n/*M!100100 SET x = \"*/\" */;/*M not; this */;\nDO 2;\n--";
        let want = [
            "/*!50003 INSERT INTO `a*/;b` VALUES ('*/;', 2 /* no; */, 3**/",
            "/*M!100100 SET x = \"*/\" */",
            "DO 2",
        ];
        assert_eq!(texts(run), want);
        assert_eq!(texts("SELECT 1--- it's; one\n+2; SELECT 3--"), ["SELECT 1--- it's; one\n+2", "SELECT 3"]);
        assert_eq!(verb(b" /*!40101 set NAMES x*/"), "SET");
        assert_eq!(verb(b"insert into"), "INSERT");
    }

    #[test]
    fn incomplete_statements_are_errors() {
        for script in [
            "INSERT INTO t VALUES ('a",
            "INSERT INTO t /* x",
            "INSERT INTO `t",
            "INSERT ('\\'",
            "/*!40101 SET x",
            "/*M",
        ] {
            assert!(all(script.as_bytes()).is_err(), "an incomplete statement was accepted: {script}");
        }
        let mut statements = StatementSplitter::new(10);
        assert!(statements.push(b"INSERT INTO t").is_err());
    }

    proptest! {
        #[test]
        fn statements_do_not_depend_on_where_the_input_is_split(
            values in prop::collection::vec("['\"`;\\\\\n*/# -]{0,6}", 1..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let escaped = |value: &String| value.replace('\\', "\\\\").replace('\'', "\\'");
            let wanted: Vec<_> = values
                .iter()
                .map(|value| format!("INSERT INTO `t` VALUES ('{}', `{}`)", escaped(value), value.replace('`', "``")))
                .collect();
            let script = wanted.join(";\n-- it's\n");
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(script.len())).collect();
            cuts.extend([0, script.len()]);
            cuts.sort_unstable();
            let mut statements = StatementSplitter::new(1 << 20);
            let mut found = Vec::new();
            for pair in cuts.windows(2) {
                found.extend(statements.push(&script.as_bytes()[pair[0]..pair[1]]).expect("no statement is too long"));
            }
            found.extend(statements.finish().expect("the last statement is complete"));
            let wanted: Vec<_> = wanted.into_iter().map(String::into_bytes).collect();
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn no_bytes_cause_a_panic_or_a_loss_of_quotes(bytes: Vec<u8>) {
            let mut statements = StatementSplitter::new(64);
            let _ = statements.push(&bytes).and_then(|_| statements.finish());
            let _ = verb(&bytes);
        }
    }
}
