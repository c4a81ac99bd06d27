//! A parser of GTID text whose errors state the offset of the problem.

use crate::WireError;

/// The maximum length of the quoted text in an error, in characters.
const EXCERPT_CHARACTERS: usize = 48;

/// Reads GTID text of both flavours from start to end.
#[derive(Debug, Clone)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    position: usize,
    what: &'static str,
}

impl<'a> Scanner<'a> {
    pub fn new(what: &'static str, text: &'a str) -> Self {
        Self { text, position: 0, what }
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.position..]
    }

    pub fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    /// Returns whether the byte at distance `ahead` from the next byte is `wanted`.
    pub fn looks_at(&self, ahead: usize, wanted: u8) -> bool {
        self.rest().get(ahead) == Some(&wanted)
    }

    pub fn is_at_end(&self) -> bool {
        self.position == self.text.len()
    }

    /// Skips the characters that C's `isspace` accepts.
    pub fn skip_whitespace(&mut self) {
        self.take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r'));
    }

    /// If the next byte is `wanted`, skips it and the white space after it, and returns true. Otherwise
    /// returns false.
    pub fn accept(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.position += 1;
            self.skip_whitespace();
        }
        found
    }

    /// Skips `wanted`, or returns an error if another byte is next.
    pub fn expect(&mut self, wanted: u8, expected: &str) -> Result<(), WireError> {
        if self.peek() != Some(wanted) {
            return Err(self.error(expected));
        }
        self.position += 1;
        Ok(())
    }

    /// Reads bytes as long as they satisfy `belongs`. All accepted bytes must be ASCII.
    pub fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a str {
        let length = self.rest().iter().take_while(|byte| byte.is_ascii() && belongs(**byte)).count();
        let taken = &self.text[self.position..self.position + length];
        self.position += length;
        taken
    }

    /// Parses a decimal number in `min..=max` without a sign. Leading zeros are allowed.
    pub fn number(&mut self, min: u64, max: u64, expected: &str) -> Result<u64, WireError> {
        let start = self.clone();
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        match digits.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(start.error(expected)),
        }
    }

    /// Parses two hexadecimal digits.
    pub fn hex_byte(&mut self, expected: &str) -> Result<u8, WireError> {
        let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
        match (digit(self.rest().first()), digit(self.rest().get(1))) {
            (Some(high), Some(low)) => {
                self.position += 2;
                Ok((high << 4 | low) as u8)
            }
            _ => Err(self.error(expected)),
        }
    }

    /// Returns the error "expected X at offset N, found ...".
    pub fn error(&self, expected: &str) -> WireError {
        let found = String::from_utf8_lossy(self.rest());
        let mut excerpt: String = found.chars().take(EXCERPT_CHARACTERS).collect();
        if excerpt.len() < found.len() {
            excerpt.push_str("...");
        }
        let found = if excerpt.is_empty() { "the end".to_owned() } else { format!("{excerpt:?}") };
        WireError::malformed(
            self.what,
            format!("expected {expected} at offset {}, found {found}", self.position),
        )
    }
}
