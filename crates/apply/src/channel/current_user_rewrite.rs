//! Writes the session's account into statements that refer to it without its name: by `CURRENT_USER`, or by
//! omitting the account.
//!
//! A server's replication thread takes the account from the event (`Q_INVOKER`). In the channel's client
//! session, the statement would refer to the channel's account. So the channel writes the account of the
//! source's session into the text.

use tailwater_wire::binlog_event::Invoker;
use tailwater_wire::sql_quote::put_identifier;

use super::sql_tokenizer::{SqlToken, SqlTokenizer};
use crate::transaction_decoder::statement_classifier::wrapped;

/// Why the account cannot be written into a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownInvoker {
    /// The event does not contain the account of its session.
    NotLogged,
    /// The account's name is not ASCII, and the statement is not in UTF-8.
    OtherCharset,
}

/// Returns the account in SQL syntax, with quotes. A role has no host part.
pub(super) fn account_name(invoker: &Invoker<'_>) -> Vec<u8> {
    let mut name = Vec::with_capacity(invoker.user.len() + invoker.host.len() + 5);
    put_identifier(&mut name, invoker.user);
    // An account without a host is a role. An account without a name is the anonymous account.
    if !invoker.host.is_empty() || invoker.user.is_empty() {
        name.push(b'@');
        put_identifier(&mut name, invoker.host);
    }
    name
}

/// Replaces references to the session's account with the account of `invoker`. Returns `None` if the
/// statement has no such references.
///
/// `is_utf8` states whether the statement is in UTF-8, as the account name always is.
///
/// # Errors
/// [`UnknownInvoker`] if the account is needed and cannot be written.
pub(super) fn with_invoker(
    text: &[u8],
    invoker: Option<&Invoker<'_>>,
    is_utf8: bool,
) -> Result<Option<Vec<u8>>, UnknownInvoker> {
    // MariaDB's SET STATEMENT clause stays at the start.
    let (settings, statement) = text.split_at(text.len() - wrapped(text).len());
    let places = places(statement);
    if places.is_empty() {
        return Ok(None);
    }
    insert_account(settings, statement, &places, invoker.ok_or(UnknownInvoker::NotLogged)?, is_utf8).map(Some)
}

/// Adds the account of `invoker` as administrator to MariaDB's `CREATE ROLE`, if the statement names none and
/// the event contains the account. Returns `None` for any other statement.
///
/// # Errors
/// [`UnknownInvoker`], for the same reasons as [`with_invoker`].
pub(super) fn with_creator_as_admin(
    text: &[u8],
    invoker: Option<&Invoker<'_>>,
    is_utf8: bool,
) -> Result<Option<Vec<u8>>, UnknownInvoker> {
    let (settings, statement) = text.split_at(text.len() - wrapped(text).len());
    let mut words = SqlTokenizer::new(statement);
    let is_role =
        words.accept("CREATE") && (!words.accept("OR") || words.accept("REPLACE")) && words.accept("ROLE");
    let Some(invoker) = invoker.filter(|_| is_role) else { return Ok(None) };
    let mut end = words.end;
    while let Some(token) = words.next() {
        match token {
            SqlToken::Word(word) if word.eq_ignore_ascii_case(b"WITH") => return Ok(None),
            SqlToken::Mark(b';') => break,
            _ => end = words.end,
        }
    }
    let place = AccountPlace { start: end, end, before: " WITH ADMIN " };
    insert_account(settings, statement, &[place], invoker, is_utf8).map(Some)
}

fn insert_account(
    settings: &[u8],
    statement: &[u8],
    places: &[AccountPlace],
    invoker: &Invoker<'_>,
    is_utf8: bool,
) -> Result<Vec<u8>, UnknownInvoker> {
    let is_ascii = invoker.user.is_ascii() && invoker.host.is_ascii();
    if !is_utf8 && !is_ascii {
        return Err(UnknownInvoker::OtherCharset);
    }
    let name = account_name(invoker);
    let mut changed = Vec::with_capacity(settings.len() + statement.len() + places.len() * (name.len() + 16));
    changed.extend_from_slice(settings);
    let mut rest = 0;
    for AccountPlace { start, end, before } in places {
        changed.extend_from_slice(statement.get(rest..*start).unwrap_or_default());
        changed.extend_from_slice(before.as_bytes());
        changed.extend_from_slice(&name);
        rest = *end;
    }
    changed.extend_from_slice(statement.get(rest..).unwrap_or_default());
    Ok(changed)
}

/// Where to write an account. It replaces the text from `start` to `end`, which may be empty.
#[derive(Debug, PartialEq, Eq)]
struct AccountPlace {
    start: usize,
    end: usize,
    /// Text to write before the account, such as ` FOR `.
    before: &'static str,
}

fn places(text: &[u8]) -> Vec<AccountPlace> {
    let mut words = SqlTokenizer::new(text);
    let Some(SqlToken::Word(first)) = words.next() else { return Vec::new() };
    match first.to_ascii_uppercase().as_slice() {
        b"GRANT" | b"REVOKE" => own_account_places(words, SqlToken::Word(first)),
        b"SET" => set_places(words),
        b"CREATE" | b"ALTER" | b"DROP" | b"RENAME" => definition_places(words),
        _ => Vec::new(),
    }
}

fn is(token: SqlToken<'_>, known: &[&str]) -> bool {
    matches!(token, SqlToken::Word(word) if known.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes())))
}

/// Returns where accounts must be written in the rest of a statement. `words` returns the tokens of this
/// rest, which contains only accounts. `before` is the token before the rest.
fn own_account_places<'a>(mut words: SqlTokenizer<'a>, mut before: SqlToken<'a>) -> Vec<AccountPlace> {
    let mut places = Vec::new();
    while let Some(token) = words.next() {
        let previous = std::mem::replace(&mut before, token);
        let SqlToken::Word(word) = token else { continue };
        let start = words.end - word.len();
        let is_own = match () {
            () if is(token, &["CURRENT_USER"]) => previous != SqlToken::Mark(b'.'),
            // In other places, CURRENT_ROLE may be a name.
            () if is(token, &["CURRENT_ROLE"]) => {
                previous == SqlToken::Mark(b',')
                    || is(previous, &["TO", "FROM", "FOR", "ADMIN", "ROLE", "EXISTS"])
            }
            // `USER()` as an account, as in `ALTER USER USER()`.
            () if is(token, &["USER"]) => is(previous, &["USER", "EXISTS"]) && words.clone().accept_call(),
            () => false,
        };
        if is_own {
            words.accept_call();
            places.push(AccountPlace { start, end: words.end, before: "" });
        }
    }
    places
}

/// Finds the accounts in `SET PASSWORD [FOR account] = ...` and `SET DEFAULT ROLE role [FOR account]`.
fn set_places(mut words: SqlTokenizer<'_>) -> Vec<AccountPlace> {
    let missing = |at: usize| vec![AccountPlace { start: at, end: at, before: " FOR " }];
    if words.accept("PASSWORD") {
        return match words.accept("FOR") {
            true => own_account_places(words, SqlToken::Word(b"FOR")),
            false => missing(words.end),
        };
    }
    if !(words.accept("DEFAULT") && words.accept("ROLE") && words.next().is_some()) {
        return Vec::new();
    }
    let role_end = words.end;
    while let Some(token) = words.next() {
        if is(token, &["FOR", "TO"]) {
            return own_account_places(words, token);
        }
    }
    missing(role_end)
}

/// Finds the accounts after `CREATE`, `ALTER`, `DROP` or `RENAME`.
fn definition_places(mut words: SqlTokenizer<'_>) -> Vec<AccountPlace> {
    if words.accept("OR") && !words.accept("REPLACE") {
        return Vec::new();
    }
    for kind in ["USER", "ROLE"] {
        if words.accept(kind) {
            return own_account_places(words, SqlToken::Word(kind.as_bytes()));
        }
    }
    // The DEFINER clause comes before the kind of object.
    const KINDS: [&str; 9] =
        ["VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE", "TABLE", "DATABASE", "SCHEMA"];
    while let Some(token) = words.next() {
        if is(token, &KINDS) {
            break;
        }
        if is(token, &["DEFINER"]) && words.accept_mark(b'=') {
            let own = words.accept("CURRENT_USER") || words.accept("CURRENT_ROLE");
            let start = words.end.saturating_sub("CURRENT_USER".len());
            words.accept_call();
            return if own { vec![AccountPlace { start, end: words.end, before: "" }] } else { Vec::new() };
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changed(text: &str) -> String {
        let invoker = Invoker { user: b"a`b", host: b"%" };
        let changed = with_invoker(text.as_bytes(), Some(&invoker), true).unwrap();
        changed.map_or_else(String::new, |changed| String::from_utf8_lossy(&changed).into_owned())
    }

    #[test]
    fn the_account_of_the_session_is_inserted() {
        for (text, expected) in [
            ("GRANT SELECT ON d.t TO CURRENT_USER()", "GRANT SELECT ON d.t TO `a``b`@`%`"),
            (
                "grant r, select (a) on t to x@y, current_user /* ( */ ( ) with grant option",
                "grant r, select (a) on t to x@y, `a``b`@`%` with grant option",
            ),
            ("REVOKE r FROM CURRENT_ROLE", "REVOKE r FROM `a``b`@`%`"),
            ("DROP ROLE CURRENT_ROLE", "DROP ROLE `a``b`@`%`"),
            ("DROP ROLE IF EXISTS x, CURRENT_ROLE()", "DROP ROLE IF EXISTS x, `a``b`@`%`"),
            ("DROP ROLE IF EXISTS current_role", "DROP ROLE IF EXISTS `a``b`@`%`"),
            (
                "SET STATEMENT lock_wait_timeout=5 FOR GRANT USAGE ON *.* TO CURRENT_USER IDENTIFIED BY 'CURRENT_USER'",
                "SET STATEMENT lock_wait_timeout=5 FOR GRANT USAGE ON *.* TO `a``b`@`%` IDENTIFIED BY 'CURRENT_USER'",
            ),
            ("GRANT SELECT ON CURRENT_ROLE TO x", ""),
            ("GRANT SELECT ON d.current_user TO `current_user`", ""),
            ("ALTER USER CURRENT_USER() IDENTIFIED BY 'x'", "ALTER USER `a``b`@`%` IDENTIFIED BY 'x'"),
            (
                "ALTER USER IF EXISTS USER() IDENTIFIED BY 'x'",
                "ALTER USER IF EXISTS `a``b`@`%` IDENTIFIED BY 'x'",
            ),
            ("DROP USER user, current_user", "DROP USER user, `a``b`@`%`"),
            ("RENAME USER CURRENT_USER TO x", "RENAME USER `a``b`@`%` TO x"),
            (
                "CREATE OR REPLACE ROLE r WITH ADMIN CURRENT_USER()",
                "CREATE OR REPLACE ROLE r WITH ADMIN `a``b`@`%`",
            ),
            ("SET PASSWORD = 'x'", "SET PASSWORD FOR `a``b`@`%` = 'x'"),
            ("SET PASSWORD FOR CURRENT_USER() = 'x'", "SET PASSWORD FOR `a``b`@`%` = 'x'"),
            ("SET PASSWORD FOR 'x'@'y' = 'x'", ""),
            ("SET DEFAULT ROLE r", "SET DEFAULT ROLE r FOR `a``b`@`%`"),
            ("SET DEFAULT ROLE r FOR CURRENT_USER", "SET DEFAULT ROLE r FOR `a``b`@`%`"),
            ("SET DEFAULT ROLE `FOR` FOR x", ""),
            ("ALTER DEFINER = CURRENT_USER() EVENT e ENABLE", "ALTER DEFINER = `a``b`@`%` EVENT e ENABLE"),
            (
                "CREATE DEFINER=CURRENT_ROLE PROCEDURE p() SELECT CURRENT_USER()",
                "CREATE DEFINER=`a``b`@`%` PROCEDURE p() SELECT CURRENT_USER()",
            ),
            ("CREATE DEFINER=x@y VIEW v AS SELECT definer=CURRENT_USER()", ""),
            ("CREATE VIEW v AS SELECT definer=CURRENT_USER()", ""),
            ("CREATE TABLE t (a CHAR(99) DEFAULT CURRENT_USER())", ""),
            ("INSERT INTO t VALUES (CURRENT_USER())", ""),
            ("CREATE USER `a", ""),
            ("", ""),
        ] {
            assert_eq!(changed(text), expected, "{text}");
        }
    }

    #[test]
    fn the_creator_of_a_role_becomes_its_administrator() {
        let invoker = Invoker { user: b"a", host: b"%" };
        for (text, expected) in [
            ("CREATE ROLE r, s /* x */", Some("CREATE ROLE r, s WITH ADMIN `a`@`%` /* x */")),
            (
                "create or replace role if not exists r;",
                Some("create or replace role if not exists r WITH ADMIN `a`@`%`;"),
            ),
            ("CREATE ROLE r WITH ADMIN x", None),
            ("CREATE USER r", None),
            ("DROP ROLE r", None),
        ] {
            let changed = with_creator_as_admin(text.as_bytes(), Some(&invoker), true).unwrap();
            let changed = changed.map(|changed| String::from_utf8_lossy(&changed).into_owned());
            assert_eq!(changed.as_deref(), expected, "{text}");
        }
        assert_eq!(with_creator_as_admin(b"CREATE ROLE r", None, true), Ok(None));
    }

    #[test]
    fn an_unknown_account_is_an_error_if_the_statement_needs_it() {
        let text = b"GRANT SELECT ON d.t TO CURRENT_USER()";
        assert_eq!(with_invoker(text, None, true), Err(UnknownInvoker::NotLogged));
        let invoker = Invoker { user: "é".as_bytes(), host: b"%" };
        assert_eq!(with_invoker(text, Some(&invoker), false), Err(UnknownInvoker::OtherCharset));
        assert_eq!(with_invoker(b"GRANT SELECT ON d.t TO x", None, false), Ok(None));
        assert_eq!(account_name(&Invoker { user: b"r", host: b"" }), b"`r`");
        assert_eq!(account_name(&Invoker { user: b"", host: b"h" }), b"``@`h`");
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(
            text in "(GRANT|SET (PASSWORD|DEFAULT ROLE)|CREATE (USER|DEFINER=)?)?[ `'\"./*!#a-zé=@(),;-]{0,30}(CURRENT_USER|FOR)?[ ()]{0,4}",
            bytes: Vec<u8>,
        ) {
            let invoker = Invoker { user: &bytes, host: b"" };
            let _ = with_invoker(text.as_bytes(), Some(&invoker), true);
            let _ = with_invoker(&bytes, Some(&invoker), true);
        }
    }
}
