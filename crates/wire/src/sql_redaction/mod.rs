//! Removes secrets and row values from statements and server error texts before people see them.
//!
//! There are two forms:
//! - **public**, for logs, metrics, endpoints without a token, and status output. It holds the names of
//!   objects, columns and keys, and error numbers. It holds no row values and no secrets.
//!   [`public_statement`], [`public_text`].
//! - **private**, for an operator who requests it, and who is logged in to the server or owns the control
//!   socket. It also holds row values, but no secrets: no passwords, password hashes or keys.
//!   [`private_statement`], [`private_text`].
//!
//! Both forms use a lexer, as the servers do when they mask passwords in their general log. The end of a
//! string depends on the `sql_mode` and character set of the session. If the lexer is uncertain about the
//! end, it omits the rest of the statement.

mod error_text_redaction;
mod error_text_templates;
mod sql_lexer;
mod statement_redaction;

pub use error_text_redaction::{private_text, public_text};
pub use statement_redaction::{private_statement, public_statement};

/// The maximum length of a displayed statement, in bytes.
pub const SHOWN_BYTES_MAX: usize = 200;

/// How many bytes of a statement to keep for a later display. This is more than the displayed text has,
/// because comments and blanks are removed later.
pub const KEPT_BYTES_MAX: usize = 512;

/// Returns one of several statements that are separated by semicolons: the statement with the number `index`,
/// from 0. Returns an empty slice if a string before this statement has no certain end.
pub fn nth_statement(statements: &[u8], index: usize) -> &[u8] {
    let mut lexer = sql_lexer::Lexer::new(statements);
    for _ in 0..index {
        if !lexer.any(|piece| piece.lexeme == sql_lexer::Lexeme::Mark(b';')) {
            return &[];
        }
    }
    lexer.rest()
}

/// Truncates `text` to `bytes_max` bytes. Puts ` ...` in the place of the rest.
fn shorten(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str(" ...");
    }
}

#[cfg(test)]
mod tests;
