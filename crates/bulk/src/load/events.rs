//! Scheduled events that come disabled, as a replica's do: else each would run on the source and on the target.
//!
//! It is written into the statement that makes the event: one of its own behind it would leave a moment in which it runs.

use tailwater_session::ServerInfo;
use tailwater_wire::Flavour;

/// What stands before an event's status, as servers print its definition.
const BEFORE: [&[u8]; 2] = [b" ON COMPLETION NOT PRESERVE ", b" ON COMPLETION PRESERVE "];

/// The status as the server spells it.
pub(crate) fn status(server: &ServerInfo) -> &'static str {
    match server.flavour {
        Flavour::MySql if server.version >= (8, 4, 0) => "DISABLE ON REPLICA",
        _ => "DISABLE ON SLAVE",
    }
}

/// A server's own `CREATE EVENT` with `status` in place of ENABLE; `None` for anything else, such as one that is disabled.
pub(crate) fn disabled(statement: &[u8], status: &str) -> Option<Vec<u8>> {
    let mut at = 0;
    while at < statement.len() {
        let rest = &statement[at..];
        if let Some(before) = BEFORE.iter().find(|before| rest.starts_with(before)) {
            let from = at + before.len();
            let behind = statement[from..].strip_prefix(b"ENABLE")?;
            return Some([&statement[..from], status.as_bytes(), behind].concat());
        }
        at += match rest[0] {
            quote @ (b'`' | b'\'') => quoted_bytes(rest, quote)?,
            _ => 1,
        };
    }
    None
}

/// How long a quoted text is, with its quotes.
fn quoted_bytes(text: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'\\' if quote == b'\'' => at += 2,
            &byte if byte == quote && text.get(at + 1) == Some(&quote) => at += 2,
            &byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_status_is_changed() {
        let event = |status: &str| {
            format!(
                "CREATE DEFINER=`a`@`%` EVENT `x`` ON COMPLETION PRESERVE ENABLE` ON SCHEDULE EVERY '1''\\'' HOUR ON COMPLETION NOT \
                 PRESERVE {status} COMMENT ' ON COMPLETION PRESERVE ENABLE' DO SELECT 'ENABLE'"
            )
        };
        let changed = disabled(event("ENABLE").as_bytes(), "DISABLE ON SLAVE");
        assert_eq!(changed, Some(event("DISABLE ON SLAVE").into_bytes()));
        assert_eq!(disabled(event("DISABLE").as_bytes(), "DISABLE ON SLAVE"), None);
        for other in ["CREATE VIEW v AS SELECT 1", "", "'", "`a", "'\\"] {
            assert_eq!(disabled(other.as_bytes(), "DISABLE ON SLAVE"), None);
        }
    }
}
