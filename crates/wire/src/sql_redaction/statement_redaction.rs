//! Redacts SQL statements.

use super::shorten;
use super::sql_lexer::{LexedToken, Lexeme, Lexer};
use crate::display_escape::printable;

/// Returns the public form of the start of a statement on one line. It has the names and keywords, `?` for
/// each value, and no comments.
pub fn public_statement(statement: &[u8], bytes_max: usize) -> String {
    render(statement, bytes_max, false)
}

/// Returns the private form of the start of a statement. It has the values, but `<secret>` for passwords,
/// hashes and keys.
pub fn private_statement(statement: &[u8], bytes_max: usize) -> String {
    render(statement, bytes_max, true)
}

fn render(statement: &[u8], bytes_max: usize, with_values: bool) -> String {
    let mut out = String::new();
    let mut secrets = Secrets::default();
    let mut pieces = Lexer::new(statement).peekable();
    let mut after_at = false;
    while let Some(LexedToken { lexeme, spaced }) = pieces.next() {
        if out.len() > bytes_max {
            break;
        }
        if spaced && !out.is_empty() {
            out.push(' ');
        }
        let before_at = pieces.peek().is_some_and(|next| next.lexeme == Lexeme::Mark(b'@') && !next.spaced);
        let is_account = secrets.is_of_accounts && (after_at || before_at);
        let is_secret = secrets.see(lexeme, is_account);
        after_at = lexeme == Lexeme::Mark(b'@');
        match lexeme {
            Lexeme::Uncertain => {
                out.push_str("...");
                return out;
            }
            Lexeme::Text(bytes) if is_account => push(&mut out, bytes),
            _ if is_secret => out.push_str(if with_values { "<secret>" } else { "?" }),
            Lexeme::Text(bytes) | Lexeme::Number(bytes) => match with_values {
                true => push(&mut out, bytes),
                false => out.push('?'),
            },
            Lexeme::Word(bytes) | Lexeme::Identifier(bytes) => push(&mut out, bytes),
            Lexeme::Mark(mark) => push(&mut out, &[mark]),
        }
    }
    shorten(&mut out, bytes_max);
    out
}

fn push(out: &mut String, bytes: &[u8]) {
    out.push_str(&printable(&String::from_utf8_lossy(bytes)));
}

/// The first words of statements in which `'user'@'host'` is an account.
const OF_ACCOUNTS: [&str; 9] =
    ["CREATE", "ALTER", "DROP", "GRANT", "REVOKE", "RENAME", "SET", "CLONE", "SHOW"];

/// Words that may come between a secret and the earlier word, such as PASSWORD, that announces the secret.
const BETWEEN: [&str; 10] = ["BY", "AS", "TO", "FOR", "USING", "WITH", "VIA", "OF", "IS", "OLD"];

/// Parts of words that announce a secret. Examples of such words: `PASSPHRASE`, `MASTER_PASSWORD`,
/// `s3_secret_key`, `user_pwd`, `auth_token`.
const ANNOUNCING: [&str; 9] = [
    "PASS",
    "PWD",
    "SECRET",
    "TOKEN",
    "CREDENTIAL",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "ENCRYPTION_KEY",
    "CHALLENGE_RESPONSE",
];

/// Options of tables and servers whose value may contain a password.
const HOLDING: [&str; 5] = ["CONNECTION", "OPTION_LIST", "WRAPPER", "DSN", "CONNECT_STRING"];

/// Functions whose arguments are secrets.
const FUNCTIONS: [&str; 9] = [
    "ENCRYPT",
    "DES_ENCRYPT",
    "DES_DECRYPT",
    "AES_ENCRYPT",
    "AES_DECRYPT",
    "ENCODE",
    "DECODE",
    "KDF",
    "SHA2",
];

/// Finds the secrets among the lexemes of a statement. If it is uncertain whether a lexeme is a secret, the
/// lexeme counts as a secret.
#[derive(Default)]
struct Secrets {
    /// The number of words of the statement read so far. Counting stops at 255.
    words: u8,
    is_first_create_or_alter: bool,
    is_first_set: bool,
    is_of_accounts: bool,
    /// Whether all values up to the end of the statement are secrets, because they define how an account logs
    /// in.
    all: bool,
    /// Whether the next value is a secret, because a word such as PASSWORD came before it.
    next: bool,
    /// If set, all values are secrets until the number of open parentheses is this number again.
    within: Option<u32>,
    depth: u32,
    /// How much of `IDENTIFIED BY` was read. The lexeme after `BY` is always a secret.
    by: By,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum By {
    #[default]
    No,
    Identified,
    Next,
}

impl Secrets {
    /// Processes a lexeme, and returns whether it is a secret.
    fn see(&mut self, lexeme: Lexeme<'_>, is_account: bool) -> bool {
        match lexeme {
            Lexeme::Word(word) => self.see_word(word),
            Lexeme::Identifier(name) => {
                let is_secret = self.by == By::Next;
                self.by = By::No;
                self.next = announces(name);
                is_secret
            }
            Lexeme::Text(_) if is_account => false,
            Lexeme::Text(text) => {
                let is_secret = self.all || self.next || self.within.is_some() || looks_secret(text);
                self.by = By::No;
                // Adjacent strings are one string, so `next` stays set.
                is_secret
            }
            Lexeme::Number(_) => {
                let is_secret = self.next || self.within.is_some() || self.by == By::Next;
                (self.by, self.next) = (By::No, false);
                is_secret
            }
            Lexeme::Mark(mark) => {
                self.see_mark(mark);
                false
            }
            Lexeme::Uncertain => false,
        }
    }

    fn see_word(&mut self, word: &[u8]) -> bool {
        let is = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
        let is_one_of = |words: &[&str]| words.iter().any(|known| is(known));
        if self.by == By::Next && !is_one_of(&["PASSWORD", "RANDOM"]) {
            (self.by, self.next) = (By::No, true);
            return true;
        }
        self.words = self.words.saturating_add(1);
        match self.words {
            1 => {
                self.is_first_create_or_alter = is_one_of(&["CREATE", "ALTER"]);
                self.is_first_set = is("SET");
                self.is_of_accounts = is_one_of(&OF_ACCOUNTS);
            }
            // `OR REPLACE` may come before `USER`, as in `CREATE OR REPLACE USER`.
            2..=4 => {
                self.all |= self.is_first_create_or_alter && is("USER");
                self.all |= self.is_first_set && self.words == 2 && is("PASSWORD");
            }
            _ => {}
        }
        self.all |= is("IDENTIFIED");
        self.by = match self.by {
            By::Identified if is("BY") => By::Next,
            _ if is("IDENTIFIED") => By::Identified,
            _ => By::No,
        };
        if is_one_of(&FUNCTIONS) {
            self.within = self.within.or(Some(self.depth));
        } else if announces(word) || is_one_of(&HOLDING) {
            self.next = true;
        } else {
            // `_utf8mb4'x'` and `N'x'` are strings.
            let introduces_string = word.starts_with(b"_") || is_one_of(&["N", "X", "B"]);
            self.next &= introduces_string || is_one_of(&BETWEEN);
        }
        false
    }

    fn see_mark(&mut self, mark: u8) {
        match mark {
            b'(' => self.depth = self.depth.saturating_add(1),
            b')' => self.depth = self.depth.saturating_sub(1),
            b';' => *self = Self::default(),
            _ => {}
        }
        if self.within.is_some_and(|outer| self.depth <= outer) {
            self.within = None;
        }
        if !matches!(mark, b'=' | b'(' | b':' | b'@' | b'+' | b'|') {
            self.next = false;
        }
        self.by = By::No;
    }
}

/// Returns whether a secret may follow a word, or a name in backticks, such as `PASSWORD`.
fn announces(word: &[u8]) -> bool {
    let word = word.to_ascii_uppercase();
    let holds = |known: &&str| word.windows(known.len()).any(|part| part == known.as_bytes());
    ANNOUNCING.iter().any(holds)
}

/// Returns whether a string looks like a secret or contains one: a password hash, a URL, or options or a
/// statement with a password.
fn looks_secret(text: &[u8]) -> bool {
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    let is_hash = match inner {
        [b'*', digits @ ..] => digits.len() == 40 && digits.iter().all(u8::is_ascii_hexdigit),
        [b'$', kind, b'$', ..] => kind.is_ascii_alphanumeric(),
        _ => false,
    };
    let url = inner.windows(3).position(|part| part == b"://").and_then(|at| inner.get(at..));
    is_hash
        || url.is_some_and(|url| url.contains(&b'@'))
        || announces(inner)
        || inner.to_ascii_uppercase().windows(10).any(|part| part == b"IDENTIFIED")
}
