//! What may be shown of statements and of servers' error texts, and to whom.
//!
//! Two readers, two forms:
//! - **public**: logs, metrics, endpoints without a token, statuses. Names of objects, columns and keys, error numbers; no
//!   value of a row and no secret. [`public_statement`], [`public_text`].
//! - **private**: an operator who has logged in to the server or owns the control socket, and asks for it. Values of rows too,
//!   and still no secret: passwords, their hashes and keys are never shown. [`private_statement`], [`private_text`].
//!
//! Both work on a lexer, as the servers themselves mask their general log. What the lexer cannot tell for certain (where a
//! string ends depends on the session's `sql_mode` and character set) is left out up to the end of the statement.

mod lexer;
mod secrets;
mod server_text;
mod templates;

pub use secrets::{private_statement, public_statement};
pub use server_text::{private_text, public_text};

/// How much of a statement is shown, in bytes.
pub const SHOWN_BYTES_MAX: usize = 200;

/// How much of a statement is worth keeping to show its beginning: comments and blanks are left out of what is shown.
pub const KEPT_BYTES_MAX: usize = 512;

/// The statement at `index` of several with semicolons between them; empty where a string before it does not end for certain.
pub fn nth_statement(statements: &[u8], index: usize) -> &[u8] {
    let mut lexer = lexer::Lexer::new(statements);
    for _ in 0..index {
        if !lexer.any(|piece| piece.lexeme == lexer::Lexeme::Mark(b';')) {
            return &[];
        }
    }
    lexer.rest()
}

/// Cuts `text` to `bytes_max` bytes, with ` ...` in place of the rest.
fn shorten(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str(" ...");
    }
}

#[cfg(test)]
mod tests;
