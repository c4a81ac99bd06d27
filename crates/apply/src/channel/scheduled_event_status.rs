//! Disables scheduled events on the target, as on a replica. Otherwise each event would run on both the
//! source and the target, and the rows of the two would differ.
//!
//! A server's replication thread creates each event with the status `DISABLE ON REPLICA`. A client session
//! cannot do that, so the channel writes the status into the `CREATE EVENT` or `ALTER EVENT` statement. A
//! separate statement after the CREATE EVENT would not be enough: the event could run before this second
//! statement. A crash between the two statements would leave the event enabled.

use std::ops::Range;

use tailwater_session::ServerInfo;
use tailwater_wire::binlog_event::Invoker;
use tailwater_wire::server_version::ServerFeature;

use super::sql_tokenizer::{SqlToken, SqlTokenizer};
use crate::transaction_decoder::statement_classifier::wrapped;

/// Returns the status that disables an event, in the server's spelling. MySQL also accepts the older `SLAVE`,
/// which is deprecated.
pub(super) fn disabled_status(server: &ServerInfo) -> &'static str {
    match server.has(ServerFeature::DisableOnReplica) {
        true => "DISABLE ON REPLICA",
        false => "DISABLE ON SLAVE",
    }
}

/// Replaces the status in a `CREATE EVENT` or `ALTER EVENT`, and adds the definer if the statement names
/// none. Returns `None` for any other statement.
pub(super) fn disabled_event(text: &[u8], status: &str, invoker: Option<&Invoker<'_>>) -> Option<Vec<u8>> {
    // MariaDB's SET STATEMENT clause stays at the start.
    let (settings, text) = text.split_at(text.len() - wrapped(text).len());
    let places = places(text)?;
    let definer = match (places.definer, invoker.filter(|invoker| !invoker.user.is_empty())) {
        (Some(place), Some(invoker)) => Some((place, definer(invoker))),
        _ => None,
    };
    let mut changed = Vec::with_capacity(settings.len() + text.len() + 2 * status.len() + 256);
    changed.extend_from_slice(settings);
    let mut rest = 0;
    let definer = definer.iter().map(|(place, clause)| (*place..*place, clause.as_slice()));
    for (place, clause) in definer.chain([(places.status, status.as_bytes())]) {
        changed.extend_from_slice(text.get(rest..place.start)?);
        // Add a space before and after the new clause if there is none. Spaces may be missing if the new
        // clause does not replace an old clause.
        if changed.last().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            changed.push(b' ');
        }
        changed.extend_from_slice(clause);
        if text.get(place.end).is_some_and(|byte| !byte.is_ascii_whitespace()) {
            changed.push(b' ');
        }
        rest = place.end;
    }
    changed.extend_from_slice(text.get(rest..)?);
    Some(changed)
}

fn definer(invoker: &Invoker<'_>) -> Vec<u8> {
    let mut clause = b"DEFINER=".to_vec();
    for (mark, name) in [(&b""[..], invoker.user), (b"@", invoker.host)] {
        clause.extend_from_slice(mark);
        clause.push(b'`');
        for byte in name {
            clause.push(*byte);
            if *byte == b'`' {
                clause.push(b'`');
            }
        }
        clause.push(b'`');
    }
    clause
}

/// The positions of the clauses in a statement.
struct EventClausePlaces {
    /// Where to insert the definer; `None` if the statement names one.
    definer: Option<usize>,
    /// The range of the status clause; empty, at the place to insert one, if the statement has none.
    status: Range<usize>,
}

fn places(text: &[u8]) -> Option<EventClausePlaces> {
    let mut words = SqlTokenizer::new(text);
    let definer = words.event_name()?;
    Some(EventClausePlaces { definer, status: status_place(words)? })
}

/// Returns the position of the status after the event's name, in `ON SCHEDULE ... ON COMPLETION ... RENAME TO
/// ... STATUS COMMENT ... DO ...`.
fn status_place(mut words: SqlTokenizer<'_>) -> Option<Range<usize>> {
    let mut depth = 0u32;
    loop {
        let mut ahead = words.clone();
        let Some(token) = ahead.next() else { return Some(words.end..words.end) };
        match token {
            SqlToken::Mark(b'(') => depth = depth.saturating_add(1),
            SqlToken::Mark(b')') => depth = depth.saturating_sub(1),
            SqlToken::Mark(b';') => return Some(words.end..words.end),
            SqlToken::Word(word) if depth == 0 => {
                let start = ahead.end - word.len();
                match word.to_ascii_uppercase().as_slice() {
                    b"COMMENT" | b"DO" => return Some(start..start),
                    b"ENABLE" => return Some(start..ahead.end),
                    b"DISABLE" => {
                        let mut on = ahead.clone();
                        if on.accept("ON") && (on.accept("SLAVE") || on.accept("REPLICA")) {
                            return Some(start..on.end);
                        }
                        return Some(start..ahead.end);
                    }
                    // The word after RENAME TO is the new name, even if it is also a keyword.
                    b"RENAME" if ahead.accept("TO") => drop(ahead.object()?),
                    _ => {}
                }
            }
            SqlToken::Mark(_) | SqlToken::Word(_) | SqlToken::Name => {}
        }
        words = ahead;
    }
}

impl SqlTokenizer<'_> {
    /// Skips everything up to and including the event's name. Returns where to insert a definer, or
    /// `Some(None)` if the statement names one. Returns `None` if the statement does not define an event.
    fn event_name(&mut self) -> Option<Option<usize>> {
        let is_definition = self.accept("CREATE") || self.accept("ALTER");
        is_definition.then_some(())?;
        if self.accept("OR") {
            self.accept("REPLACE").then_some(())?;
        }
        let mut place = Some(self.end);
        if self.accept("DEFINER") {
            self.definer()?;
            place = None;
        }
        self.accept("EVENT").then_some(())?;
        if self.accept("IF") {
            self.accept("NOT");
            self.accept("EXISTS").then_some(())?;
        }
        self.object()?;
        Some(place)
    }

    /// Skips `= CURRENT_USER()` or `= name@host`. The tokenizer returns the host and its `@` as one token.
    fn definer(&mut self) -> Option<()> {
        self.accept_mark(b'=').then_some(())?;
        self.next()?;
        if self.accept_mark(b'(') {
            self.accept_mark(b')').then_some(())?;
        }
        let mut ahead = self.clone();
        if ahead.next() == Some(SqlToken::Name) {
            *self = ahead;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changed(text: &str) -> Option<String> {
        let invoker = Invoker { user: b"a`b", host: b"%" };
        let changed = disabled_event(text.as_bytes(), "OFF", Some(&invoker));
        changed.map(|changed| String::from_utf8_lossy(&changed).into_owned())
    }

    #[test]
    fn the_event_status_is_replaced_and_the_definer_kept() {
        for (text, expected) in [
            (
                "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
                "CREATE DEFINER=`a``b`@`%` EVENT e ON SCHEDULE EVERY 1 DAY OFF DO SELECT 1",
            ),
            (
                "create definer=`do`@`%` event if not exists `d`.`do` on schedule at '2037-01-01' + interval 1 day \
                 on completion preserve enable comment 'do' do begin end",
                "create definer=`do`@`%` event if not exists `d`.`do` on schedule at '2037-01-01' + interval 1 day \
                 on completion preserve OFF comment 'do' do begin end",
            ),
            (
                "CREATE OR REPLACE DEFINER = CURRENT_USER() EVENT e ON SCHEDULE AT (@do) DISABLE ON SLAVE DO SELECT 1",
                "CREATE OR REPLACE DEFINER = CURRENT_USER() EVENT e ON SCHEDULE AT (@do) OFF DO SELECT 1",
            ),
            (
                "CREATE DEFINER=event@localhost EVENT enable ON SCHEDULE EVERY @@global.do DAY COMMENT 'a' DO SET @a=1",
                "CREATE DEFINER=event@localhost EVENT enable ON SCHEDULE EVERY @@global.do DAY OFF COMMENT 'a' DO SET @a=1",
            ),
            (
                "/*!50106 CREATE*/ /*!50117 DEFINER=`root`@`localhost`*/ /*!50106 EVENT `e` ON SCHEDULE EVERY 1 DAY \
                 STARTS '2024-01-01 DO' ON COMPLETION NOT PRESERVE ENABLE DO DELETE FROM t */",
                "/*!50106 CREATE*/ /*!50117 DEFINER=`root`@`localhost`*/ /*!50106 EVENT `e` ON SCHEDULE EVERY 1 DAY \
                 STARTS '2024-01-01 DO' ON COMPLETION NOT PRESERVE OFF DO DELETE FROM t */",
            ),
            (
                "SET STATEMENT lock_wait_timeout=5 FOR ALTER EVENT e ENABLE",
                "SET STATEMENT lock_wait_timeout=5 FOR ALTER DEFINER=`a``b`@`%` EVENT e OFF",
            ),
            ("ALTER EVENT e ENABLE", "ALTER DEFINER=`a``b`@`%` EVENT e OFF"),
            ("ALTER EVENT e DISABLE", "ALTER DEFINER=`a``b`@`%` EVENT e OFF"),
            ("ALTER EVENT e DISABLE ON REPLICA;", "ALTER DEFINER=`a``b`@`%` EVENT e OFF ;"),
            ("ALTER EVENT e RENAME TO enable", "ALTER DEFINER=`a``b`@`%` EVENT e RENAME TO enable OFF"),
            (
                "ALTER EVENT e RENAME TO d.do -- ENABLE",
                "ALTER DEFINER=`a``b`@`%` EVENT e RENAME TO d.do OFF -- ENABLE",
            ),
            (
                "/*!50106 ALTER EVENT e RENAME TO f*/",
                "/*!50106 ALTER DEFINER=`a``b`@`%` EVENT e RENAME TO f OFF */",
            ),
            (
                "ALTER EVENT e /* ENABLE */ DO/**/SELECT 1",
                "ALTER DEFINER=`a``b`@`%` EVENT e /* ENABLE */ OFF DO/**/SELECT 1",
            ),
            (
                "ALTER EVENT e ON SCHEDULE AT IF(1, NOW(), (2))DO SELECT 1",
                "ALTER DEFINER=`a``b`@`%` EVENT e ON SCHEDULE AT IF(1, NOW(), (2)) OFF DO SELECT 1",
            ),
        ] {
            assert_eq!(changed(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_statements_stay_unchanged() {
        for text in [
            "DROP EVENT e",
            "CREATE TABLE event (id INT)",
            "CREATE PROCEDURE p() CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
            "CREATE DEFINER=root@localhost TRIGGER event BEFORE INSERT ON t FOR EACH ROW SET @a=1",
            "ALTER TABLE event DISABLE KEYS",
            "CREATE EVENT 'e",
            "CREATE EVENT",
            "",
        ] {
            assert_eq!(changed(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(
            text in "(CREATE|ALTER)? ?(EVENT|DEFINER=)?[ `'\"./*!#a-zé=@(),;-]{0,30}(DO|ENABLE|DISABLE)?",
            bytes: Vec<u8>,
        ) {
            let invoker = Invoker { user: &bytes, host: b"" };
            disabled_event(text.as_bytes(), "OFF", Some(&invoker));
            disabled_event(&bytes, "OFF", None);
        }
    }
}
