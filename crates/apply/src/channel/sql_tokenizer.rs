//! Splits a statement's text into tokens: words, quoted names and strings, variables, and punctuation. Skips
//! comments.

/// A token of an SQL statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SqlToken<'a> {
    /// A word without quotes: a keyword or a name.
    Word(&'a [u8]),
    /// A quoted name, a string, or a variable.
    Name,
    Mark(u8),
}

/// Reads the tokens of a statement, one after another.
#[derive(Clone)]
pub(super) struct SqlTokenizer<'a> {
    text: &'a [u8],
    at: usize,
    /// Where the last token starts.
    start: usize,
    /// Where the last token ends.
    pub(super) end: usize,
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

impl<'a> SqlTokenizer<'a> {
    /// Returns a tokenizer at the start of `text`.
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, start: 0, end: 0 }
    }

    /// Returns the next token. `None` at the end of the text, and where a string or comment is not closed.
    pub(super) fn next(&mut self) -> Option<SqlToken<'a>> {
        self.skip_blanks()?;
        let rest = self.text.get(self.at..)?;
        let first = *rest.first()?;
        let (token, length) = match first {
            b'`' | b'\'' | b'"' => (SqlToken::Name, quoted_bytes(rest, first)?),
            b'@' => (SqlToken::Name, variable_bytes(rest)?),
            first if is_part(first) => {
                let length = rest.iter().position(|byte| !is_part(*byte)).unwrap_or(rest.len());
                (SqlToken::Word(&rest[..length]), length)
            }
            mark => (SqlToken::Mark(mark), 1),
        };
        self.start = self.at;
        self.at += length;
        self.end = self.at;
        Some(token)
    }

    /// Returns the text of the last token.
    pub(super) fn token_text(&self) -> &'a [u8] {
        self.text.get(self.start..self.end).unwrap_or_default()
    }

    /// Skips spaces, comments, and the delimiters of executable comments.
    fn skip_blanks(&mut self) -> Option<()> {
        loop {
            let rest = self.text.get(self.at..)?;
            let find = |what: &[u8]| rest.windows(what.len()).position(|window| window == what);
            self.at += match rest {
                [blank, ..] if blank.is_ascii_whitespace() => 1,
                [b'*', b'/', ..] => 2,
                [b'/', b'*', b'!', ..] => 3 + digits(&rest[3..]),
                [b'/', b'*', b'M', b'!', ..] => 4 + digits(&rest[4..]),
                [b'/', b'*', ..] => find(b"*/")? + 2,
                [b'#', ..] | [b'-', b'-', b' ' | b'\t', ..] => find(b"\n").map_or(rest.len(), |at| at + 1),
                _ => return Some(()),
            };
        }
    }

    pub(super) fn accept(&mut self, word: &str) -> bool {
        let mut ahead = self.clone();
        let found = matches!(ahead.next(), Some(SqlToken::Word(found)) if found.eq_ignore_ascii_case(word.as_bytes()));
        if found {
            *self = ahead;
        }
        found
    }

    pub(super) fn accept_mark(&mut self, mark: u8) -> bool {
        let mut ahead = self.clone();
        let found = ahead.next() == Some(SqlToken::Mark(mark));
        if found {
            *self = ahead;
        }
        found
    }

    /// Skips an empty pair of parentheses if it comes next. Returns whether it was skipped.
    pub(super) fn accept_call(&mut self) -> bool {
        let mut ahead = self.clone();
        let found = ahead.accept_mark(b'(') && ahead.accept_mark(b')');
        if found {
            *self = ahead;
        }
        found
    }

    /// Reads `name` or `schema.name`. Returns `None` for anything else, such as `*`.
    pub(super) fn object(&mut self) -> Option<ObjectName> {
        let mut part = || match self.next()? {
            SqlToken::Word(_) | SqlToken::Name => Some(unquote(self.token_text())),
            SqlToken::Mark(_) => None,
        };
        let first = part()?;
        if !self.accept_mark(b'.') {
            return Some(ObjectName { schema: None, name: first });
        }
        match self.next()? {
            SqlToken::Word(_) | SqlToken::Name => {
                Some(ObjectName { schema: Some(first), name: unquote(self.token_text()) })
            }
            SqlToken::Mark(_) => None,
        }
    }
}

/// The name of a table, routine or other object in a statement, without quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectName {
    /// The database; `None` for the session's current database.
    pub(super) schema: Option<String>,
    pub(super) name: String,
}

/// Returns a name without its quotes.
pub(super) fn unquote(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    for quote in ['`', '\'', '"'] {
        if let Some(inner) = name.strip_prefix(quote).and_then(|name| name.strip_suffix(quote)) {
            return inner.replace(&format!("{quote}{quote}"), &quote.to_string());
        }
    }
    name.into_owned()
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Returns the length of the quoted text at the start of `text`, including its quotes.
fn quoted_bytes(text: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    loop {
        let byte = *text.get(at)?;
        at += 1;
        if byte == b'\\' && quote != b'`' {
            at += 1;
        } else if byte == quote {
            if text.get(at) != Some(&quote) {
                return Some(at);
            }
            at += 1;
        }
    }
}

/// Returns the length of `@name`, `@@name` or ``@`name` `` at the start of `text`.
fn variable_bytes(text: &[u8]) -> Option<usize> {
    let marks = text.iter().take(2).take_while(|byte| **byte == b'@').count();
    let rest = &text[marks..];
    let name = match rest.first() {
        Some(quote @ (b'`' | b'\'' | b'"')) => quoted_bytes(rest, *quote)?,
        _ => rest.iter().take_while(|byte| is_part(**byte) || **byte == b'.').count(),
    };
    Some(marks + name)
}
