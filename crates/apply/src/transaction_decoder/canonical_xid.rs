//! Writes XIDs in one notation, so that an `XA PREPARE` matches its `XA COMMIT` or `XA ROLLBACK`.

use tailwater_wire::binlog_event::Xid;

/// Returns the XID in the syntax of `XA COMMIT`: `X'6f6e65',X'',1`.
pub(super) fn spell(xid: &Xid<'_>) -> Vec<u8> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("X'{}',X'{}',{}", hex(xid.gtrid), hex(xid.bqual), xid.format_id).into_bytes()
}

/// Rewrites the XID in a statement to the notation of [`spell`]. Servers log an XID in hexadecimal, whatever
/// notation the client used.
pub(super) fn respell(text: &[u8]) -> Vec<u8> {
    let mut spelled: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let upper_case = spelled.ends_with(b"ONEPHASE");
    if upper_case {
        spelled.truncate(spelled.len() - "ONEPHASE".len());
    }
    spelled.make_ascii_lowercase();
    for at in 0..spelled.len() {
        if spelled[at] == b'x' && spelled.get(at + 1) == Some(&b'\'') {
            spelled[at] = b'X';
        }
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xids_of_events_and_statements_have_the_same_notation() {
        let xid = Xid { format_id: 5, gtrid: b"two", bqual: b"\xffbranch" };
        let spelled = spell(&xid);
        assert_eq!(spelled, b"X'74776f',X'ff6272616e6368',5");
        assert_eq!(respell(b"X'74776f',X'ff6272616e6368',5"), spelled);
        assert_eq!(respell(b" x'74776F', X'FF6272616E6368', 5 ONE PHASE"), spelled);
        assert_eq!(spell(&Xid { format_id: 1, gtrid: b"", bqual: b"" }), respell(b"X'',X'',1"));
    }
}
