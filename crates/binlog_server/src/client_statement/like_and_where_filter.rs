//! `LIKE` patterns and the conditions of `SHOW ... WHERE`.

use sqlparser::tokenizer::Token;

use super::statement_tokens::{ParseResult, Tokens};
use crate::client_error::ClientError;

/// Which rows of a `SHOW` statement are returned.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ShowFilter {
    All,
    /// The rows whose first column matches this pattern.
    Like(String),
    Where(WhereCondition),
}

/// A condition on the columns of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum WhereCondition {
    /// A column equals one of these strings, by the rules of `=`.
    In(String, Vec<String>),
    /// A column matches this pattern.
    Like(String, String),
    Not(Box<WhereCondition>),
    And(Box<WhereCondition>, Box<WhereCondition>),
    Or(Box<WhereCondition>, Box<WhereCondition>),
}

impl ShowFilter {
    pub fn parse(tokens: &mut Tokens) -> ParseResult<Self> {
        if tokens.accept_words(&["LIKE"]) {
            return pattern(tokens).map(Self::Like);
        }
        if tokens.accept_words(&["WHERE"]) {
            let condition = either(tokens)?;
            if condition.texts() > TEXTS_MAX {
                let message =
                    format!("A condition on this server compares with no more than {TEXTS_MAX} strings");
                return Err(ClientError::new(ClientError::OUT_OF_RESOURCES, message));
            }
            return Ok(Self::Where(condition));
        }
        Ok(Self::All)
    }

    /// Whether the statement returns the row. `columns` are the names of the row's columns.
    pub fn admits(&self, columns: &[&str], row: &[&str]) -> bool {
        match self {
            Self::All => true,
            Self::Like(pattern) => row.first().is_some_and(|text| like(text, pattern)),
            Self::Where(condition) => condition.holds(columns, row),
        }
    }
}

impl WhereCondition {
    /// The number of strings and patterns with which each row is compared.
    fn texts(&self) -> usize {
        match self {
            Self::In(_, texts) => texts.len(),
            Self::Like(..) => 1,
            Self::Not(inner) => inner.texts(),
            Self::And(a, b) | Self::Or(a, b) => a.texts() + b.texts(),
        }
    }

    fn holds(&self, columns: &[&str], row: &[&str]) -> bool {
        let value = |column: &String| {
            let index = columns.iter().position(|name| name.eq_ignore_ascii_case(column));
            index.and_then(|index| row.get(index)).copied()
        };
        match self {
            Self::In(column, texts) => value(column).is_some_and(|value| {
                let value = value.to_lowercase();
                texts.iter().any(|text| text.to_lowercase() == value)
            }),
            Self::Like(column, pattern) => value(column).is_some_and(|value| like(value, pattern)),
            Self::Not(inner) => !inner.holds(columns, row),
            Self::And(a, b) => a.holds(columns, row) && b.holds(columns, row),
            Self::Or(a, b) => a.holds(columns, row) || b.holds(columns, row),
        }
    }
}

fn either(tokens: &mut Tokens) -> ParseResult<WhereCondition> {
    tokens.deeper(|tokens| {
        let mut condition = both(tokens)?;
        // Each `OR` adds a level of nesting to the result, so it counts like a parenthesis.
        if tokens.accept_words(&["OR"]) || tokens.accept(&Token::StringConcat) {
            condition = WhereCondition::Or(Box::new(condition), Box::new(either(tokens)?));
        }
        Ok(condition)
    })
}

fn both(tokens: &mut Tokens) -> ParseResult<WhereCondition> {
    tokens.deeper(|tokens| {
        let condition = one(tokens)?;
        if tokens.accept_words(&["AND"]) {
            return Ok(WhereCondition::And(Box::new(condition), Box::new(both(tokens)?)));
        }
        Ok(condition)
    })
}

fn one(tokens: &mut Tokens) -> ParseResult<WhereCondition> {
    if tokens.accept(&Token::LParen) {
        let inner = either(tokens)?;
        tokens.expect(&Token::RParen)?;
        return Ok(inner);
    }
    if tokens.accept_words(&["NOT"]) {
        return tokens.deeper(one).map(|inner| WhereCondition::Not(Box::new(inner)));
    }
    let mut column = tokens.name()?;
    if tokens.accept(&Token::Period) {
        column = tokens.name()?;
    }
    let negated = tokens.accept_words(&["NOT"]);
    let condition = if tokens.accept_words(&["LIKE"]) {
        WhereCondition::Like(column, pattern(tokens)?)
    } else if tokens.accept_words(&["IN"]) {
        tokens.expect(&Token::LParen)?;
        let mut texts = vec![literal(tokens)?];
        while tokens.accept(&Token::Comma) {
            texts.push(literal(tokens)?);
        }
        tokens.expect(&Token::RParen)?;
        WhereCondition::In(column, texts)
    } else if !negated && (tokens.accept(&Token::Eq) || tokens.accept(&Token::Spaceship)) {
        WhereCondition::In(column, vec![literal(tokens)?])
    } else if !negated && tokens.accept(&Token::Neq) {
        let equal = WhereCondition::In(column, vec![literal(tokens)?]);
        return Ok(WhereCondition::Not(Box::new(equal)));
    } else {
        return Err(tokens.unexpected());
    };
    Ok(if negated { WhereCondition::Not(Box::new(condition)) } else { condition })
}

fn pattern(tokens: &mut Tokens) -> ParseResult<String> {
    let at = tokens.unexpected();
    let pattern = tokens.expect_string()?;
    if pattern.len() > PATTERN_BYTES_MAX { Err(at) } else { Ok(pattern) }
}

fn literal(tokens: &mut Tokens) -> ParseResult<String> {
    if let Some(number) = tokens.integer() {
        return Ok(number.to_string());
    }
    tokens.expect_string()
}

/// The maximum number of strings and patterns in a condition. It is limited because each row is compared with
/// all of them.
const TEXTS_MAX: usize = 256;

/// The maximum length of a pattern in bytes. Names have at most 64 characters.
const PATTERN_BYTES_MAX: usize = 256;

/// The maximum length in bytes of a string that can match a pattern. The time for a comparison grows with the
/// product of both lengths.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Whether `text` matches `pattern`, ignoring case. `%` matches any text, `_` matches one character, and a
/// backslash makes the next character literal.
pub(super) fn like(text: &str, pattern: &str) -> bool {
    if text.len() > TEXT_BYTES_MAX {
        return false;
    }
    let fold = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (text, pattern) = (fold(text), parse_pattern(&fold(pattern)));
    let (mut at, mut piece) = (0, 0);
    // Where to continue if the current attempt fails: at the last `%` of the pattern, which then matches one
    // more character.
    let mut retry: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(piece) {
            Some(LikePiece::Any) => {
                retry = Some((at, piece + 1));
                piece += 1;
            }
            Some(LikePiece::One) => (at, piece) = (at + 1, piece + 1),
            Some(LikePiece::This(character)) if *character == text[at] => (at, piece) = (at + 1, piece + 1),
            _ => match &mut retry {
                Some((from, next)) => {
                    *from += 1;
                    (at, piece) = (*from, *next);
                }
                None => return false,
            },
        }
    }
    pattern[piece..].iter().all(|piece| matches!(piece, LikePiece::Any))
}

enum LikePiece {
    Any,
    One,
    This(char),
}

fn parse_pattern(pattern: &[char]) -> Vec<LikePiece> {
    let mut pieces = Vec::with_capacity(pattern.len());
    let mut characters = pattern.iter().copied();
    while let Some(character) = characters.next() {
        pieces.push(match character {
            '%' => LikePiece::Any,
            '_' => LikePiece::One,
            '\\' => LikePiece::This(characters.next().unwrap_or('\\')),
            other => LikePiece::This(other),
        });
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn like_matches_as_in_sql() {
        let check = |text, pattern, expected| assert_eq!(like(text, pattern), expected, "{text} {pattern}");
        check("server_id", "SERVER_ID", true);
        check("server_id", "server\\_id", true);
        check("server-id", "server_id", true);
        check("server-id", "server\\_id", false);
        check("rpl_semi_sync_master_enabled", "rpl_semi_sync_%", true);
        check("abc", "%", true);
        check("", "%", true);
        check("", "", true);
        check("", "_", false);
        check("abc", "%b%", true);
        check("abcabd", "%ab_", true);
        check("abc", "a%d", false);
        check("a%c", "a\\%c", true);
        check("abc", "a\\%c", false);
        check("a\\", "a\\", true);
    }

    fn oracle(text: &[char], pattern: &[LikePiece]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (Some(LikePiece::Any), _) => {
                oracle(text, &pattern[1..]) || (!text.is_empty() && oracle(&text[1..], pattern))
            }
            (Some(LikePiece::One), Some(_)) => oracle(&text[1..], &pattern[1..]),
            (Some(LikePiece::This(wanted)), Some(found)) => {
                wanted == found && oracle(&text[1..], &pattern[1..])
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn like_gives_the_same_result_as_its_definition(text in "[ab]{0,8}", pattern in "[ab%_]{0,6}") {
            let characters: Vec<char> = text.chars().collect();
            let pieces = parse_pattern(&pattern.chars().collect::<Vec<_>>());
            prop_assert_eq!(like(&text, &pattern), oracle(&characters, &pieces));
        }
    }
}
