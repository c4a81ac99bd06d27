//! Splits a statement into tokens.
//!
//! Uses only the tokenizer of the library `sqlparser`. The tokenizer knows MySQL's comments, quotes and
//! escapes. The library's parser lacks most of the supported statements (`SHOW BINARY LOG STATUS`, `SHOW
//! SLAVE HOSTS`, `PURGE BINARY LOGS`), and it panics on `SELECT 1 DIV`.

use sqlparser::dialect::MySqlDialect;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace, Word};

use crate::client_error::{ClientError, beginning};

/// The maximum length of a statement in bytes. It is large enough for GTID positions with thousands of
/// domains. If every byte is a token, the tokens take about 25 MiB of memory.
pub(super) const STATEMENT_BYTES_MAX: usize = 128 << 10;

/// The maximum nesting depth of expressions.
const DEPTH_MAX: usize = 32;

/// The tokens of a statement, without white space and comments.
#[derive(Debug)]
pub(super) struct Tokens {
    tokens: Vec<PlacedToken>,
    next: usize,
    depth: usize,
    calls: usize,
    text: String,
}

/// The maximum number of function calls in a statement.
const CALLS_MAX: usize = 64;

#[derive(Debug)]
struct PlacedToken {
    token: Token,
    /// The offset of the token in the text. For a token in an executable comment, it is the comment's offset.
    start: usize,
    end: usize,
}

pub(super) type ParseResult<T> = Result<T, ClientError>;

impl Tokens {
    pub fn new(sql: &[u8]) -> ParseResult<Self> {
        if sql.len() > STATEMENT_BYTES_MAX {
            let message = format!(
                "This is Tailwater's binlog server; it reads statements of up to {STATEMENT_BYTES_MAX} bytes, not {}",
                sql.len()
            );
            return Err(ClientError::new(ClientError::PARSE_ERROR, message));
        }
        let text = String::from_utf8_lossy(sql).into_owned();
        let mut tokens = Vec::new();
        let mut offsets = Offsets::new(&text);
        for TokenWithSpan { token, span } in tokenize(&text)? {
            let (start, end) = (offsets.of(span.start), offsets.of(span.end));
            match token {
                Token::Whitespace(Whitespace::MultiLineComment(comment)) => {
                    let Some(inner) = executable(&comment) else { continue };
                    let inner = tokenize(inner)?.into_iter().map(|inner| inner.token);
                    let inner = inner.filter(|token| !matches!(token, Token::Whitespace(_)));
                    tokens.extend(inner.map(|token| PlacedToken { token, start, end }));
                }
                Token::Whitespace(_) => {}
                token => tokens.push(PlacedToken { token, start, end }),
            }
        }
        // Ignore trailing semicolons. A second statement after a semicolon becomes an error later.
        while tokens.last().is_some_and(|placed| matches!(placed.token, Token::SemiColon | Token::EOF)) {
            tokens.pop();
        }
        Ok(Self { tokens, next: 0, depth: 0, calls: 0, text })
    }

    pub fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|placed| &placed.token)
    }

    /// Skips the next token.
    pub fn skip(&mut self) {
        self.next += 1;
    }

    pub fn is_at_end(&self) -> bool {
        self.next >= self.tokens.len()
    }

    /// Consumes the next token if it equals `token`. Returns whether it did.
    pub fn accept(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.next += usize::from(found);
        found
    }

    pub fn expect(&mut self, token: &Token) -> ParseResult<()> {
        if self.accept(token) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Whether the next tokens are the given words, ignoring case. Quoted names do not count as words.
    pub fn peek_words(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(ahead, wanted)| {
            match self.tokens.get(self.next + ahead).map(|placed| &placed.token) {
                Some(Token::Word(Word { value, quote_style: None, .. })) => {
                    value.eq_ignore_ascii_case(wanted)
                }
                _ => false,
            }
        })
    }

    /// Consumes the given words if they are the next tokens. Returns whether they were.
    pub fn accept_words(&mut self, words: &[&str]) -> bool {
        let found = self.peek_words(words);
        if found {
            self.next += words.len();
        }
        found
    }

    /// Consumes the next token if it is one of the given words. Returns whether it was.
    pub fn accept_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.accept_words(&[word]))
    }

    /// Reads a name, which may be quoted.
    pub fn name(&mut self) -> ParseResult<String> {
        match self.peek() {
            Some(Token::Word(Word { value, .. })) => {
                let name = value.clone();
                self.skip();
                Ok(name)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Reads a string in single or double quotes. Adjacent strings are joined.
    pub fn string(&mut self) -> Option<String> {
        let mut whole: Option<String> = None;
        while let Some(
            Token::SingleQuotedString(text)
            | Token::DoubleQuotedString(text)
            | Token::NationalStringLiteral(text),
        ) = self.peek()
        {
            whole.get_or_insert_default().push_str(text);
            self.next += 1;
        }
        whole
    }

    pub fn expect_string(&mut self) -> ParseResult<String> {
        self.string().ok_or_else(|| self.unexpected())
    }

    /// Reads an unsigned whole number.
    pub fn integer(&mut self) -> Option<u64> {
        let number = match self.peek() {
            Some(Token::Number(digits, _)) => digits.parse().ok()?,
            _ => return None,
        };
        self.skip();
        Some(number)
    }

    pub fn expect_end(&self) -> ParseResult<()> {
        if self.is_at_end() { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Parses a part of an expression that is nested one level deeper.
    pub fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth == DEPTH_MAX {
            return Err(ClientError::new(
                ClientError::PARSE_ERROR,
                format!("This is Tailwater's binlog server; expressions may nest up to {DEPTH_MAX} levels"),
            ));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Counts a function call of a statement. The number of calls is limited because an argument may be a
    /// long GTID set. Without the limit, a statement could take seconds.
    pub fn count_call(&mut self) -> ParseResult<()> {
        self.calls += 1;
        match self.calls > CALLS_MAX {
            true => Err(ClientError::new(
                ClientError::OUT_OF_RESOURCES,
                format!(
                    "This is Tailwater's binlog server; a statement may call functions up to {CALLS_MAX} times"
                ),
            )),
            false => Ok(()),
        }
    }

    /// The index of the next token, to be passed to [`Tokens::text_since`].
    pub fn mark(&self) -> usize {
        self.next
    }

    /// The client's text from `mark`, an index that [`Tokens::mark`] returned, up to the last token that was
    /// read.
    pub fn text_since(&self, mark: usize) -> String {
        let first = self.tokens.get(mark).map_or(0, |placed| placed.start);
        let last = self.next.checked_sub(1).and_then(|last| self.tokens.get(last));
        let last = last.map_or(first, |placed| placed.end);
        self.text.get(first..last).unwrap_or_default().to_owned()
    }

    /// Returns the syntax error of MySQL and MariaDB, followed by a note that this is Tailwater's binlog
    /// server.
    pub fn unexpected(&self) -> ClientError {
        let near = self.tokens.get(self.next).and_then(|placed| self.text.get(placed.start..));
        // MySQL and MariaDB also quote at most 80 bytes of the statement.
        let near = beginning(near.unwrap_or_default(), 80);
        ClientError::new(
            ClientError::PARSE_ERROR,
            format!("You have an error in your SQL syntax near '{near}'. {WHAT_THIS_IS}"),
        )
    }
}

/// The note that errors for unsupported statements contain. It says what this server is.
pub(super) const WHAT_THIS_IS: &str = "This is Tailwater's binlog server: it answers binlog dumps, SHOW \
                                       BINARY LOGS, SHOW BINARY LOG STATUS, SHOW REPLICAS, SHOW REPLICA \
                                       STATUS, SHOW VARIABLES, SHOW STATUS, SHOW PROCESSLIST, SELECT of \
                                       variables and a few functions, SET of variables, PURGE BINARY LOGS \
                                       and KILL";

fn tokenize(text: &str) -> ParseResult<Vec<TokenWithSpan>> {
    Tokenizer::new(&MySqlDialect {}, text).tokenize_with_location().map_err(|error| {
        let message = format!("You have an error in your SQL syntax: {error}. {WHAT_THIS_IS}");
        ClientError::new(ClientError::PARSE_ERROR, message)
    })
}

/// Returns the part of an executable comment, such as `/*!50002 GLOBAL */` or `/*M! ... */`, that servers
/// execute.
fn executable(comment: &str) -> Option<&str> {
    let inner = comment.strip_prefix('!').or_else(|| comment.strip_prefix("M!"))?;
    let digits = inner.bytes().take_while(u8::is_ascii_digit).count();
    Some(if digits >= 5 { &inner[digits..] } else { inner })
}

/// Converts the tokenizer's lines and columns, which count characters from 1, to byte offsets. The locations
/// must be passed in ascending order, so that all of them together need only one pass over the text.
struct Offsets<'a> {
    rest: std::str::Chars<'a>,
    length: usize,
    line: u64,
    column: u64,
}

impl<'a> Offsets<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.chars(), length: text.len(), line: 1, column: 1 }
    }

    fn of(&mut self, location: Location) -> usize {
        while (self.line, self.column) < (location.line, location.column) {
            match self.rest.next() {
                Some('\n') => (self.line, self.column) = (self.line + 1, 1),
                Some(_) => self.column += 1,
                None => break,
            }
        }
        self.length - self.rest.as_str().len()
    }
}
