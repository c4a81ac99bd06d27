//! Creates scheduled events disabled, as on a replica. If they were enabled, each event would run on the
//! source and on the target.
//!
//! The status is changed in the CREATE statement itself. With a separate statement afterwards, the event
//! could run before it is disabled.

use tailwater_session::ServerInfo;
use tailwater_wire::server_version::ServerFeature;

/// The text that precedes the status of an event, in the definition that servers print.
const BEFORE: [&[u8]; 2] = [b" ON COMPLETION NOT PRESERVE ", b" ON COMPLETION PRESERVE "];

/// Returns the disabled status as the server spells it.
pub(crate) fn status(server: &ServerInfo) -> &'static str {
    match server.has(ServerFeature::DisableOnReplica) {
        true => "DISABLE ON REPLICA",
        false => "DISABLE ON SLAVE",
    }
}

/// Returns a `CREATE EVENT` statement with `status` in place of ENABLE. Returns `None` for all other
/// statements, and for an event that is already disabled.
pub(crate) fn disabled(statement: &[u8], status: &str) -> Option<Vec<u8>> {
    let mut at = 0;
    while at < statement.len() {
        let rest = &statement[at..];
        if let Some(before) = BEFORE.iter().find(|before| rest.starts_with(before)) {
            let from = at + before.len();
            let rest = statement[from..].strip_prefix(b"ENABLE")?;
            return Some([&statement[..from], status.as_bytes(), rest].concat());
        }
        at += match rest[0] {
            quote @ (b'`' | b'\'') => quoted_bytes(rest, quote)?,
            _ => 1,
        };
    }
    None
}

/// Returns the length of a quoted text, including its quotes.
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
    fn only_the_status_of_the_event_is_changed() {
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
