//! Splits SQL into lexemes, for both flavours and any `sql_mode` and character set. If the end of a string
//! depends on the `sql_mode` or character set, the lexer stops there.

/// A lexeme of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lexeme<'a> {
    /// A keyword, an unquoted name, or the name of a variable.
    Word(&'a [u8]),
    /// A name with its backticks.
    Identifier(&'a [u8]),
    /// A string with its quotes. A name in double quotes (`ANSI_QUOTES`) looks the same.
    Text(&'a [u8]),
    /// A number, or a word that begins with a digit.
    Number(&'a [u8]),
    /// Any other byte.
    Mark(u8),
    /// The rest of the statement is uncertain: a string does not end, or it would end at another place in
    /// another `sql_mode`.
    Uncertain,
}

/// A lexeme, and whether a blank or a comment precedes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LexedToken<'a> {
    pub(super) lexeme: Lexeme<'a>,
    pub(super) spaced: bool,
}

pub(super) struct Lexer<'a> {
    rest: &'a [u8],
    is_over: bool,
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

impl<'a> Lexer<'a> {
    pub(super) fn new(statement: &'a [u8]) -> Self {
        Self { rest: statement, is_over: false }
    }

    /// Returns the unread text.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn uncertain(&mut self) -> Lexeme<'a> {
        self.is_over = true;
        Lexeme::Uncertain
    }

    /// Skips blanks, comments, and the delimiters of executable comments. Returns `None` if a comment does
    /// not end.
    fn pass_blanks(&mut self) -> Option<bool> {
        let before = self.rest.len();
        loop {
            let rest = self.rest;
            let digits =
                |from: usize| rest.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
            let length = match rest {
                [blank, ..] if blank.is_ascii_whitespace() || *blank == 0x0b => 1,
                [b'*', b'/', ..] => 2,
                [b'/', b'*', b'!', ..] => 3 + digits(3),
                [b'/', b'*', b'M', b'!', ..] => 4 + digits(4),
                [b'/', b'*', ..] => rest.windows(2).skip(2).position(|pair| pair == b"*/")? + 4,
                [b'#', ..] => line_bytes(rest),
                [b'-', b'-', next, ..] if next.is_ascii_whitespace() || next.is_ascii_control() => {
                    line_bytes(rest)
                }
                _ => return Some(self.rest.len() < before),
            };
            self.take(length);
        }
    }

    /// Reads a string or a quoted name.
    fn quoted(&mut self, quote: u8) -> Lexeme<'a> {
        let bytes = self.rest;
        let mut at = 1;
        loop {
            match bytes.get(at..) {
                Some([first, second, ..]) if *first == quote && *second == quote => at += 2,
                Some([first, ..]) if *first == quote => break,
                // It is unknown whether the backslash escapes the quote. This depends on
                // `NO_BACKSLASH_ESCAPES`, and on the character set: the backslash may be the second byte of a
                // character.
                Some([b'\\', second, ..]) if quote != b'`' && matches!(second, b'\'' | b'"') => {
                    return self.uncertain();
                }
                Some([b'\\', _, ..]) if quote != b'`' => at += 2,
                Some([_, ..]) => at += 1,
                Some([]) | None => return self.uncertain(),
            }
        }
        match quote {
            b'`' => Lexeme::Identifier(self.take(at + 1)),
            _ => Lexeme::Text(self.take(at + 1)),
        }
    }
}

/// Returns the length of a comment up to the end of its line, in bytes.
fn line_bytes(rest: &[u8]) -> usize {
    rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1)
}

impl<'a> Iterator for Lexer<'a> {
    type Item = LexedToken<'a>;

    fn next(&mut self) -> Option<LexedToken<'a>> {
        if self.is_over {
            return None;
        }
        let Some(spaced) = self.pass_blanks() else {
            return Some(LexedToken { lexeme: self.uncertain(), spaced: true });
        };
        let lexeme = match *self.rest.first()? {
            quote @ (b'\'' | b'"' | b'`') => self.quoted(quote),
            first if is_part(first) => {
                let length = self.rest.iter().position(|byte| !is_part(*byte)).unwrap_or(self.rest.len());
                let part = self.take(length);
                if first.is_ascii_digit() { Lexeme::Number(part) } else { Lexeme::Word(part) }
            }
            mark => {
                self.take(1);
                Lexeme::Mark(mark)
            }
        };
        Some(LexedToken { lexeme, spaced })
    }
}
