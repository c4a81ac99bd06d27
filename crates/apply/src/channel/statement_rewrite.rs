//! Changes the text of a statement before it runs on the target. The changed statement then has the effects
//! that the original has in a server's replication thread.

use std::borrow::Cow;
use std::ops::Range;

use tailwater_session::ServerInfo;
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::StatusVars;
use tailwater_wire::event_printer::charset_name;

use super::current_user_rewrite::{UnknownInvoker, with_creator_as_admin, with_invoker};
use super::scheduled_event_status::{disabled_event, disabled_status};
use super::sql_tokenizer::{SqlToken, SqlTokenizer};

/// Returns the position of the words START TRANSACTION. MySQL logs `CREATE TABLE ... SELECT` as `CREATE TABLE
/// ... (...) START TRANSACTION ...`, followed by rows.
pub(super) fn start_transaction_clause(text: &[u8]) -> Option<Range<usize>> {
    let mut words = SqlTokenizer::new(text);
    if !(words.accept("CREATE") && words.accept("TABLE")) {
        return None;
    }
    let mut depth = 0u32;
    loop {
        match words.next()? {
            SqlToken::Mark(b'(') => depth = depth.saturating_add(1),
            // The clause comes directly after the list of columns.
            SqlToken::Mark(b')') if depth == 1 => {
                let start = words.end;
                let found = words.accept("START") && words.accept("TRANSACTION");
                return found.then_some(start..words.end);
            }
            SqlToken::Mark(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
}

/// Returns the text that has the same effect on the target as `text` had on the source.
///
/// The table of a `CREATE TABLE ... SELECT` must exist before its rows can be decoded, so the target creates
/// it at once. The rows are written together with the progress, as for a MariaDB source.
///
/// # Errors
/// [`UnknownInvoker`].
pub(super) fn target_text<'t>(
    text: &'t [u8],
    vars: &StatusVars<'_>,
    server: &ServerInfo,
) -> Result<Cow<'t, [u8]>, UnknownInvoker> {
    let mut text = Cow::Borrowed(text);
    if let Some(place) = start_transaction_clause(&text) {
        text = Cow::Owned([&text[..place.start], &text[place.end..]].concat());
    }
    let client = vars.charset.and_then(|charset| charset_name(u32::from(charset.client)));
    let is_utf8 = client.is_none_or(|name| name.starts_with("utf8mb"));
    let invoker = vars.invoker.as_ref();
    if let Some(changed) = with_invoker(&text, invoker, is_utf8)? {
        text = Cow::Owned(changed);
    }
    if server.flavour == Flavour::MariaDb
        && let Some(changed) = with_creator_as_admin(&text, invoker, is_utf8)?
    {
        text = Cow::Owned(changed);
    }
    if let Some(changed) = disabled_event(&text, disabled_status(server), invoker) {
        text = Cow::Owned(changed);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn create_table_select_becomes_create_table() {
        for (text, expected) in [
            ("CREATE TABLE `k` (\n  `a` int\n) START TRANSACTION", Some("CREATE TABLE `k` (\n  `a` int\n)")),
            (
                "CREATE TABLE IF NOT EXISTS `k` (`a` decimal(9,2) DEFAULT (1)) START TRANSACTION COMMENT='START TRANSACTION'",
                Some(
                    "CREATE TABLE IF NOT EXISTS `k` (`a` decimal(9,2) DEFAULT (1)) COMMENT='START TRANSACTION'",
                ),
            ),
            (
                "CREATE TABLE `k` (`a` int COMMENT ')') START TRANSACTION\n/*!50100 PARTITION BY HASH (`a`) */",
                Some("CREATE TABLE `k` (`a` int COMMENT ')')\n/*!50100 PARTITION BY HASH (`a`) */"),
            ),
            ("CREATE TABLE k (a int) COMMENT='START TRANSACTION'", None),
            ("CREATE TABLE `START TRANSACTION` (a int)", None),
            ("START TRANSACTION", None),
            ("CREATE TABLE k LIKE l", None),
            ("CREATE TABLE k ('", None),
        ] {
            let found = start_transaction_clause(text.as_bytes());
            let found = found.map(|place| [&text[..place.start], &text[place.end..]].concat());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
