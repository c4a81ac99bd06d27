//! The tokens that authorize requests over HTTP.

use std::fmt;
use std::path::Path;

use anyhow::Context;
use subtle::ConstantTimeEq;
use tailwater_config::{Config, ConfigError, HttpRole};

/// The smallest length of a token. A shorter token could be guessed.
const CHARACTERS_MIN: usize = 16;

/// A token of the configuration, with the name and the role of the clients that have it.
#[derive(Debug, Clone)]
pub struct NamedToken {
    /// The name for the audit log.
    pub name: String,
    /// What the token allows.
    pub role: HttpRole,
    /// The token.
    pub token: BearerToken,
}

/// The name of the token of `http.token_file`.
const MANAGER_TOKEN: &str = "http.token_file";

/// Reads the tokens of `[http]`. Must be called once, because a file may be a pipe.
///
/// # Errors
/// If a file cannot be read, or its first line is not a valid token.
pub fn read_tokens(config: &Config) -> anyhow::Result<Vec<NamedToken>> {
    let Some(http) = &config.http else { return Ok(Vec::new()) };
    let manager = http.token_file.as_ref().map(|file| (MANAGER_TOKEN, HttpRole::Operator, file));
    let others = http.tokens.iter().map(|token| (token.name.as_str(), token.role, &token.file));
    let read = |(name, role, file): (&str, HttpRole, &std::path::PathBuf)| {
        let token = BearerToken::read(file).with_context(|| match name {
            MANAGER_TOKEN => MANAGER_TOKEN.to_owned(),
            name => format!("http.token {name}"),
        })?;
        Ok(NamedToken { name: name.to_owned(), role, token })
    };
    manager.into_iter().chain(others).map(read).collect()
}

/// A token. It is never printed or logged.
#[derive(Clone)]
pub struct BearerToken(String);

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken")
    }
}

impl BearerToken {
    /// Reads the token from the first line of a file.
    ///
    /// # Errors
    /// If the file cannot be read, or its first line is not a valid token.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = tailwater_files::read_user_file_text(path, 1 << 20)
            .map_err(|error| ConfigError::of_file(path, format!("the token cannot be read: {error}")))?;
        Self::of(&text).ok_or_else(|| {
            let message = format!(
                "the first line must be a token of at least {CHARACTERS_MIN} letters, digits and signs, without a space; \
                 `openssl rand -hex 32` creates one"
            );
            ConfigError::of_file(path, message)
        })
    }

    /// Returns the token in the first line of a text; `None` if the line is not a token.
    pub fn of(text: &str) -> Option<Self> {
        let token = text.lines().next().unwrap_or_default().trim();
        let is_token = token.len() >= CHARACTERS_MIN && token.chars().all(|c| c.is_ascii_graphic());
        is_token.then(|| Self(token.to_owned()))
    }

    /// Returns the value of the header `Authorization` with this token.
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether a header `Authorization` carries this token. The comparison takes the same time whichever
    /// characters differ.
    pub fn is_in(&self, header: &[u8]) -> bool {
        let Some((scheme, token)) = header.split_at_checked("Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && self.is(token)
    }

    /// Whether a text is this token. The comparison takes the same time whichever characters differ.
    pub fn is(&self, text: &[u8]) -> bool {
        bool::from(text.ct_eq(self.0.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_token_is_compared() {
        let secret = BearerToken::of("0123456789abcdef\n").expect("a valid token");
        assert!(secret.is_in(b"Bearer 0123456789abcdef"));
        assert!(
            secret.is_in(b"bearer 0123456789abcdef"),
            "a header with the scheme in lower case was not accepted"
        );
        assert!(secret.is_in(secret.bearer().as_bytes()));
        for wrong in
            ["Bearer 0123456789abcdee", "Bearer 0123456789abcde", "Bearer ", "", "Basic 0123456789abcdef"]
        {
            assert!(!secret.is_in(wrong.as_bytes()), "the wrong header was accepted: {wrong}");
        }
        assert_eq!(format!("{secret:?}"), "BearerToken");
    }

    #[test]
    fn a_token_that_could_be_guessed_is_refused() {
        for wrong in ["", "short", "0123456789 abcdef", "0123456789abcdé"] {
            assert!(BearerToken::of(wrong).is_none(), "the weak token was accepted: {wrong}");
        }
    }
}
