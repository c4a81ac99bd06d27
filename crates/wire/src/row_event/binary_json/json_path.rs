//! The JSON paths in diffs: `$.member`, `$."any member"`, `$[3]`, `$[last-1]`.

use super::WHAT;
use crate::WireError;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathLeg {
    /// A member of an object.
    Member(Vec<u8>),
    /// A cell of an array, counted from the first cell.
    Cell(usize),
    /// A cell of an array, counted backwards from the last cell.
    CellFromLast(usize),
}

impl PathLeg {
    /// Returns the index to which this step refers in an array of `length` cells. Returns `None` for a
    /// member, or if the cell would be before the first cell.
    pub fn index(&self, length: usize) -> Option<usize> {
        match self {
            Self::Member(_) => None,
            Self::Cell(index) => Some(*index),
            Self::CellFromLast(distance) => length.checked_sub(1)?.checked_sub(*distance),
        }
    }
}

/// A path from the root of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath {
    /// The steps of the path, outermost first.
    pub legs: Vec<PathLeg>,
}

impl JsonPath {
    /// Parses the text of a path without wildcards.
    ///
    /// # Errors
    /// [`WireError::Malformed`] with the text of the path.
    pub fn parse(text: &[u8]) -> Result<Self, WireError> {
        match (Parser { rest: text }).path() {
            Some(legs) if legs.len() <= super::DEPTH_MAX => Ok(Self { legs }),
            _ => {
                let text = String::from_utf8_lossy(&text[..text.len().min(200)]);
                Err(WireError::malformed(WHAT, format!("{text:?} is not a valid path")))
            }
        }
    }
}

struct Parser<'a> {
    rest: &'a [u8],
}

impl<'a> Parser<'a> {
    fn path(&mut self) -> Option<Vec<PathLeg>> {
        self.eat(b"$")?;
        let mut legs = Vec::new();
        while !self.rest.is_empty() {
            legs.push(if self.eat(b".").is_some() { self.member()? } else { self.cell()? });
        }
        Some(legs)
    }

    fn eat(&mut self, prefix: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(prefix)?;
        Some(())
    }

    /// Reads bytes up to the first byte for which `ends` returns true.
    fn take_until(&mut self, ends: impl Fn(u8) -> bool) -> &'a [u8] {
        let length = self.rest.iter().position(|byte| ends(*byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn member(&mut self) -> Option<PathLeg> {
        if self.rest.first() != Some(&b'"') {
            let name = self.take_until(|byte| matches!(byte, b'.' | b'[' | b'*' | b' '));
            return (!name.is_empty()).then(|| PathLeg::Member(name.to_vec()));
        }
        // A quoted key is a JSON string. Find the end of the string, skipping escapes, and then parse the
        // string as JSON.
        let mut end = 1;
        while *self.rest.get(end)? != b'"' {
            end += if self.rest[end] == b'\\' { 2 } else { 1 };
        }
        let (quoted, rest) = self.rest.split_at(end + 1);
        self.rest = rest;
        let name: String = serde_json::from_slice(quoted).ok()?;
        Some(PathLeg::Member(name.into_bytes()))
    }

    fn cell(&mut self) -> Option<PathLeg> {
        self.eat(b"[")?;
        let inside: Vec<u8> =
            self.take_until(|byte| byte == b']').iter().copied().filter(|byte| *byte != b' ').collect();
        self.eat(b"]")?;
        let inside = std::str::from_utf8(&inside).ok()?;
        let number = |text: &str| text.parse::<u32>().ok().map(|number| number as usize);
        match inside.strip_prefix("last") {
            Some("") => Some(PathLeg::CellFromLast(0)),
            Some(rest) => Some(PathLeg::CellFromLast(number(rest.strip_prefix('-')?)?)),
            None => Some(PathLeg::Cell(number(inside)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(name: &str) -> PathLeg {
        PathLeg::Member(name.as_bytes().to_vec())
    }

    #[test]
    fn paths_are_parsed_or_refused() {
        let check =
            |text: &str, legs: &[PathLeg]| assert_eq!(JsonPath::parse(text.as_bytes()).unwrap().legs, legs);
        check("$", &[]);
        check("$.a.b[3]", &[member("a"), member("b"), PathLeg::Cell(3)]);
        check(
            r#"$."a b"."c\"]\u00e9"[last]"#,
            &[member("a b"), member("c\"]\u{e9}"), PathLeg::CellFromLast(0)],
        );
        check("$[0][last-2].ключ", &[PathLeg::Cell(0), PathLeg::CellFromLast(2), member("ключ")]);
        check(r#"$."""#, &[member("")]);
        for bad in [
            "", "a", "$.", "$[", "$[]", "$[x]", "$[1", r#"$."a"#, r#"$."a\"#, "$.*", "$[*]", "$**.a", "$[-1]",
        ] {
            assert!(JsonPath::parse(bad.as_bytes()).is_err(), "the invalid path {bad} was accepted");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_paths_never_panic(text in "\\$[.\\[\\]\"\\\\a-c0-9l-t -]{0,20}", bytes: Vec<u8>) {
            let _ = JsonPath::parse(text.as_bytes());
            let _ = JsonPath::parse(&bytes);
        }
    }
}
