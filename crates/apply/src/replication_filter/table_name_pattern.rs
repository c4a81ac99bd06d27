//! Patterns of the form `SCHEMA.TABLE`, with wildcards.

use super::FilterError;

/// A pattern for one part of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatternPart {
    /// An exact name, without wildcards.
    Name(String),
    /// A pattern with wildcards.
    Glob(Vec<PatternPiece>),
}

/// A character of a pattern with wildcards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatternPiece {
    /// A character that is matched literally.
    Char(char),
    /// `?`: exactly one character.
    One,
    /// `*`: any number of characters.
    Many,
}

/// A pattern for tables: a part for the database and a part for the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub schema: PatternPart,
    pub table: PatternPart,
}

/// Maximum length of names on servers, in characters.
const NAME_CHARS_MAX: usize = 64;

impl PatternPart {
    /// Returns whether the part is only `*`.
    pub fn is_all(&self) -> bool {
        matches!(self, Self::Glob(pieces) if pieces.iter().all(|piece| *piece == PatternPiece::Many))
    }

    /// Returns the exact name, if the part has no wildcards.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Glob(_) => None,
        }
    }

    /// Returns whether `name` matches. The time is at most proportional to the length of the pattern times
    /// the length of the name.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Glob(pieces) => glob_matches(pieces, name),
        }
    }
}

/// Returns whether `name` matches. It backtracks only to the last `*`, because matching an earlier `*`
/// differently never helps.
fn glob_matches(pieces: &[PatternPiece], name: &str) -> bool {
    let (mut at, mut rest) = (0, name.chars());
    let mut last_many: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        let mut ahead = rest.clone();
        let next = ahead.next();
        match (pieces.get(at), next) {
            (Some(PatternPiece::Many), _) => {
                at += 1;
                last_many = Some((at, rest.clone()));
                continue;
            }
            (None, None) => return true,
            (Some(PatternPiece::One), Some(_)) => {
                (at, rest) = (at + 1, ahead);
                continue;
            }
            (Some(PatternPiece::Char(own)), Some(next)) if *own == next => {
                (at, rest) = (at + 1, ahead);
                continue;
            }
            _ => {}
        }
        let Some((after, taken)) = &mut last_many else { return false };
        if taken.next().is_none() {
            return false;
        }
        (at, rest) = (*after, taken.clone());
    }
}

impl Pattern {
    /// Parses a pattern. With `ignore_case`, names are converted to lower case.
    pub fn parse(text: &str, ignore_case: bool) -> Result<Self, FilterError> {
        let wrong = |reason| FilterError::Pattern { pattern: text.to_owned(), reason };
        let (schema, rest) = parse_part(text, ignore_case).map_err(wrong)?;
        let rest = rest.strip_prefix('.').ok_or_else(|| wrong("expected SCHEMA.TABLE"))?;
        let (table, rest) = parse_part(rest, ignore_case).map_err(wrong)?;
        if !rest.is_empty() {
            return Err(wrong(
                "the pattern has more than two parts; put names that contain dots in backquotes",
            ));
        }
        Ok(Self { schema, table })
    }

    /// Returns whether a table matches.
    pub fn matches(&self, schema: &str, table: &str) -> bool {
        self.schema.matches(schema) && self.table.matches(table)
    }
}

/// Parses one part of a pattern (database or table) at the start of `text`. Returns the part and the rest of
/// the text.
fn parse_part(text: &str, ignore_case: bool) -> Result<(PatternPart, &str), &'static str> {
    let fold = |text: &str| fold(text, ignore_case).into_owned();
    let (part, rest) = if let Some(quoted) = text.strip_prefix('`') {
        let (name, rest) = parse_quoted(quoted)?;
        (PatternPart::Name(fold(&name)), rest)
    } else {
        let end = text.find('.').unwrap_or(text.len());
        let (plain, rest) = text.split_at(end);
        if plain.contains('`') {
            return Err("the pattern has a backquote in the middle of a name");
        }
        let plain = fold(plain);
        if plain.contains(['*', '?']) {
            let pieces = plain.chars().map(|char| match char {
                '*' => PatternPiece::Many,
                '?' => PatternPiece::One,
                char => PatternPiece::Char(char),
            });
            (PatternPart::Glob(pieces.collect()), rest)
        } else {
            (PatternPart::Name(plain), rest)
        }
    };
    let chars = match &part {
        PatternPart::Name(name) => name.chars().count(),
        PatternPart::Glob(pieces) => pieces.iter().filter(|piece| **piece != PatternPiece::Many).count(),
    };
    match (chars, &part) {
        (0, PatternPart::Name(_)) => Err("one part of the pattern is empty"),
        (NAME_CHARS_MAX.., _) if chars > NAME_CHARS_MAX => Err("names on servers have at most 64 characters"),
        _ => Ok((part, rest)),
    }
}

/// Parses a name after its opening backquote. A doubled backquote is part of the name.
fn parse_quoted(text: &str) -> Result<(String, &str), &'static str> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('`').ok_or("the closing backquote is missing")?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('`') {
            Some(after) => {
                name.push('`');
                rest = after;
            }
            None => return Ok((name, rest)),
        }
    }
}

/// Returns `name` in the letter case in which rules compare it.
pub(super) fn fold(name: &str, ignore_case: bool) -> std::borrow::Cow<'_, str> {
    if ignore_case { name.to_lowercase().into() } else { name.into() }
}
