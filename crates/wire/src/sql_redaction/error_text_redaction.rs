//! Redacts the error texts of servers.
//!
//! If a text matches a known template ([`super::error_text_templates`]), its public form is the text with `?`
//! for the values. Otherwise the public form does not contain the text: an unknown text, such as the text of
//! a `SIGNAL` statement, may hold a row value anywhere.

use super::error_text_templates::{self, TemplatePart};
use super::{SHOWN_BYTES_MAX, private_statement, public_statement};
use crate::display_escape::printable;

/// The text that replaces an unknown error text.
const HIDDEN: &str = "the text may hold values of rows and is not shown here";

/// The start of an error text of a native replica's applier.
const COULD_NOT_EXECUTE: &str = "Could not execute ";

/// Returns the public form of an error text. It has neither row values nor secrets.
pub fn public_text(text: &str) -> String {
    let shown = public_front(text).unwrap_or_else(|| HIDDEN.to_owned());
    printable(&shown).into_owned()
}

/// Returns the private form of an error text. It is complete except for possible secrets.
pub fn private_text(text: &str) -> String {
    let shown = match syntax_error(text).or_else(|| of_statement(text, private_statement, str::to_owned)) {
        Some(masked) => masked,
        // No secret follows the server's own words in an error text. But the text may repeat a statement, in
        // which a secret may follow a word such as PASSWORD.
        None if looks_like_statement(text) => private_statement(text.as_bytes(), text.len()),
        None => text.to_owned(),
    };
    printable(&shown).into_owned()
}

fn looks_like_statement(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    ["IDENTIFIED", "PASSWORD"].iter().any(|word| upper.contains(word)) && text.contains(['\'', '"'])
}

fn public_front(text: &str) -> Option<String> {
    let known = |inner: &str| public_front(inner).unwrap_or_else(|| HIDDEN.to_owned());
    syntax_error(text)
        .or_else(|| of_statement(text, public_statement, known))
        .or_else(|| of_rows(text))
        .or_else(|| of_worker(text))
        .or_else(|| of_templates(text))
}

/// Redacts `... near '<the rest of the statement>' at line 1`. The rest of the statement begins at the start
/// of a lexeme.
fn syntax_error(text: &str) -> Option<String> {
    let start = text.find(" near '")? + " near '".len();
    let end = text.rfind("' at line ").filter(|end| *end >= start)?;
    let (front, near, tail) = (text.get(..start)?, text.get(start..end)?, text.get(end..)?);
    if !front.starts_with("You have an error in your SQL syntax") && !front.starts_with("syntax error") {
        return None;
    }
    Some(format!("{front}{}{tail}", public_statement(near.as_bytes(), SHOWN_BYTES_MAX)))
}

/// Redacts `Error '<text>' on query. Default database: '<name>'. Query: '<statement>'`, an error of an
/// applier.
fn of_statement(
    text: &str,
    statement: fn(&[u8], usize) -> String,
    inner: impl Fn(&str) -> String,
) -> Option<String> {
    let rest = text.strip_prefix("Error '")?;
    let (error, rest) = rest.split_once("' on query. Default database: '")?;
    let (database, query) = rest.split_once("'. Query: '")?;
    let query = query.strip_suffix('\'').unwrap_or(query);
    let query = statement(query.as_bytes(), SHOWN_BYTES_MAX);
    Some(format!("Error '{}' on query. Default database: '{database}'. Query: '{query}'", inner(error)))
}

/// Redacts `Could not execute <event> on table <table>; <text>, Error_code: <number>; ...`, an error of an
/// applier.
fn of_rows(text: &str) -> Option<String> {
    let rest = text.strip_prefix(COULD_NOT_EXECUTE)?;
    let (what, rest) = rest.split_once("; ")?;
    let end = rest.rfind(", Error_code: ")?;
    let (error, tail) = rest.split_at_checked(end)?;
    let is_tail_plain = tail.len() < 300 && !tail.contains(['\'', '"']) || tail.contains("end_log_pos");
    if !what.contains(" event on table ") || !is_tail_plain {
        return None;
    }
    let error = public_front(error).unwrap_or_else(|| HIDDEN.to_owned());
    Some(format!("{COULD_NOT_EXECUTE}{what}; {error}{tail}"))
}

/// Redacts `Worker <number> failed executing transaction '<GTID>' at source log <file>, end_log_pos <number>;
/// <text>`.
fn of_worker(text: &str) -> Option<String> {
    let (front, rest) = text.split_once("; ")?;
    if !front.starts_with("Worker ") || !front.contains(" failed executing transaction ") {
        return None;
    }
    Some(format!("{front}; {}", public_front(rest).unwrap_or_else(|| HIDDEN.to_owned())))
}

fn of_templates(text: &str) -> Option<String> {
    error_text_templates::ALL.iter().find_map(|template| fill(template, text))
}

/// Returns the text with `?` for its values, if it matches this template.
///
/// The template's text before a value is matched from the start, and its text after the value from the end.
/// So a value may contain any characters.
fn fill(template: &'static str, text: &str) -> Option<String> {
    let parts = error_text_templates::parts(template);
    let value = parts.iter().position(|part| *part == TemplatePart::Value);
    let (before, after) = parts.split_at(value.unwrap_or(parts.len()));
    let mut rest = text;
    let mut front = String::new();
    let mut open = false;
    for part in before {
        match part {
            TemplatePart::Words(words) => {
                let at = if open { rest.find(words)? } else { rest.starts_with(words).then_some(0)? };
                let end = at + words.len();
                front.push_str(rest.get(..end)?);
                rest = rest.get(end..)?;
                open = false;
            }
            TemplatePart::Name | TemplatePart::Value => open = true,
        }
    }
    let Some((_, after)) = after.split_first() else {
        front.push_str(rest);
        return (open || rest.is_empty()).then_some(front);
    };
    if open {
        return None;
    }
    let mut back = String::new();
    for part in after.iter().rev() {
        match part {
            TemplatePart::Words(words) => {
                let at = if open { rest.rfind(words)? } else { rest.len().checked_sub(words.len())? };
                let tail = rest.get(at..).filter(|tail| tail.starts_with(words))?;
                back.insert_str(0, tail);
                rest = rest.get(..at)?;
                open = false;
            }
            TemplatePart::Name | TemplatePart::Value => open = true,
        }
    }
    Some(format!("{front}?{back}"))
}
