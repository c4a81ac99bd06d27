//! Redacts statements and servers' error texts for their readers.
//!
//! There are two forms for two kinds of readers:
//! - **public**: logs, metrics, endpoints without a token, statuses. Names of objects, columns and keys,
//!   error numbers; no values of rows, no secrets. [`public_statement`], [`public_text`].
//! - **private**: an operator who is logged in to the server or owns the control socket, and requests it.
//!   Values of rows too, but no secrets: passwords, their hashes and keys. [`private_statement`],
//!   [`private_text`].
//!
//! Both use a lexer, as the servers do to mask their general log. If the lexer is uncertain, it omits the
//! rest of the statement: the end of a string depends on the session's `sql_mode` and character set.

mod lexer;
mod secrets;
mod server_text;
mod templates;

pub use secrets::{private_statement, public_statement};
pub use server_text::{private_text, public_text};

/// The maximum length of a shown statement, in bytes.
pub const SHOWN_BYTES_MAX: usize = 200;

/// The length of a statement's prefix to keep for display: comments and blanks are removed later.
pub const KEPT_BYTES_MAX: usize = 512;

/// The statement at `index` of several separated by semicolons; empty if a string before it has no certain
/// end.
pub fn nth_statement(statements: &[u8], index: usize) -> &[u8] {
    let mut lexer = lexer::Lexer::new(statements);
    for _ in 0..index {
        if !lexer.any(|piece| piece.lexeme == lexer::Lexeme::Mark(b';')) {
            return &[];
        }
    }
    lexer.rest()
}

/// Truncates `text` to `bytes_max` bytes, with ` ...` for the rest.
fn shorten(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str(" ...");
    }
}

#[cfg(test)]
mod tests;
