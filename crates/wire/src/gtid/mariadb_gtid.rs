//! MariaDB GTIDs, and sets of them: positions (`gtid_slave_pos`), binlog states (`gtid_binlog_state`) and
//! GTID_LIST events.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::check_size;
use super::gtid_text_parser::Scanner;
use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// A MariaDB GTID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MariadbGtid {
    /// The replication domain: a stream with its own sequence numbers.
    pub domain: u32,
    /// The `server_id` of the server that first committed the transaction.
    pub server_id: u32,
    /// The sequence number of the transaction in its domain.
    pub sequence: u64,
}

impl MariadbGtid {
    /// Parses `domain-server-sequence`.
    ///
    /// # Errors
    /// [`WireError::Malformed`] with the offending text and its offset.
    pub fn parse(text: &str) -> Result<Self, WireError> {
        let mut scan = Scanner::new("mariadb GTID", text);
        scan.skip_whitespace();
        let gtid = parse_gtid(&mut scan)?;
        if !scan.is_at_end() {
            return Err(scan.error("the end of the GTID"));
        }
        Ok(gtid)
    }
}

impl FromStr for MariadbGtid {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        Self::parse(text)
    }
}

impl fmt::Display for MariadbGtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain, self.server_id, self.sequence)
    }
}

/// The body of a GTID_LIST event: GTIDs in the order in which the server wrote them, and flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MariadbGtidList {
    /// The GTIDs of the list. At the start of a binlog file, they are the server's binlog state at that
    /// point. In each domain, the GTID that was written last comes after the GTIDs of other servers.
    pub gtids: Vec<MariadbGtid>,
    /// The highest four bits of the count: [`Self::FLAG_UNTIL_REACHED`], [`Self::FLAG_IGNORE_GTIDS`].
    pub flags: u8,
}

impl MariadbGtidList {
    /// The stream has reached the position at which the replica asked to stop. This flag occurs only in a
    /// stream, never in a binlog file.
    pub const FLAG_UNTIL_REACHED: u8 = 1;
    /// The replica must ignore the GTIDs. This flag occurs only in a stream, never in a binlog file.
    pub const FLAG_IGNORE_GTIDS: u8 = 2;

    const GTIDS_MAX: usize = (1 << 28) - 1;

    /// Parses `0-1-100,1-2-5`. White space around GTIDs is allowed. An empty text gives the empty list.
    ///
    /// # Errors
    /// [`WireError::Malformed`] with the offending text and its offset; [`WireError::TooLarge`] beyond
    /// [`GTID_SET_BYTES_MAX`](super::GTID_SET_BYTES_MAX).
    pub fn parse(text: &str) -> Result<Self, WireError> {
        check_size("mariadb GTID list", text.len())?;
        let mut scan = Scanner::new("mariadb GTID list", text);
        let mut gtids = Vec::new();
        scan.skip_whitespace();
        if scan.is_at_end() {
            return Ok(Self::default());
        }
        loop {
            gtids.push(parse_gtid(&mut scan)?);
            if scan.is_at_end() {
                return Ok(Self { gtids, flags: 0 });
            }
            if !scan.accept(b',') {
                return Err(scan.error("',' or the end of the list"));
            }
        }
    }

    /// Parses the body of a GTID_LIST event, without its checksum.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] beyond [`GTID_SET_BYTES_MAX`](super::GTID_SET_BYTES_MAX);
    /// [`WireError::Truncated`] or [`WireError::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "mariadb GTID list";
        check_size(WHAT, body.len())?;
        let mut cursor = ByteCursor::new(WHAT, body);
        let count_and_flags = cursor.u32()?;
        let count = count_and_flags as usize & Self::GTIDS_MAX;
        // Servers pad an empty list with two bytes, because they reject a body shorter than six bytes. This
        // parser accepts an empty list with and without the padding.
        if count == 0 && matches!(cursor.remaining(), 0 | 2) {
            cursor.rest();
        }
        if cursor.remaining() != count * 16 {
            let reason =
                format!("the list states {count} GTIDs, but has only {} bytes for them", cursor.remaining());
            return Err(WireError::malformed(WHAT, reason));
        }
        let mut gtids = Vec::with_capacity(count);
        for _ in 0..count {
            let (domain, server_id, sequence) = (cursor.u32()?, cursor.u32()?, cursor.u64()?);
            gtids.push(MariadbGtid { domain, server_id, sequence });
        }
        Ok(Self { gtids, flags: (count_and_flags >> 28) as u8 })
    }

    /// Returns the body of the event, without a checksum.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] for more than 2^28-1 GTIDs; [`WireError::Malformed`] for flags that need more
    /// than four bits.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        if self.gtids.len() > Self::GTIDS_MAX {
            let size_max = 16 * Self::GTIDS_MAX as u64;
            return Err(WireError::TooLarge {
                what: "mariadb GTID list",
                size: 16 * self.gtids.len() as u64,
                size_max,
            });
        }
        if self.flags > 0xf {
            return Err(WireError::malformed(
                "mariadb GTID list",
                format!("the flags {:#x} have more than four bits", self.flags),
            ));
        }
        let mut out = Vec::with_capacity(6 + 16 * self.gtids.len());
        out.extend_from_slice(&(self.gtids.len() as u32 | u32::from(self.flags) << 28).to_le_bytes());
        for gtid in &self.gtids {
            out.extend_from_slice(&gtid.domain.to_le_bytes());
            out.extend_from_slice(&gtid.server_id.to_le_bytes());
            out.extend_from_slice(&gtid.sequence.to_le_bytes());
        }
        if self.gtids.is_empty() {
            out.extend_from_slice(&[0, 0]);
        }
        Ok(out)
    }
}

impl FromStr for MariadbGtidList {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        Self::parse(text)
    }
}

impl fmt::Display for MariadbGtidList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.gtids.iter().copied())
    }
}

/// The position of a replica: the last GTID of each domain, as in `gtid_slave_pos` and `slave_connect_state`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MariadbPosition {
    domains: BTreeMap<u32, MariadbGtid>,
}

impl MariadbPosition {
    /// Returns the position before the first transaction of every domain.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a position such as `0-1-100,1-2-5`.
    ///
    /// # Errors
    /// [`WireError::Malformed`] for an invalid list. As in the server, also if a domain occurs twice.
    pub fn parse(text: &str) -> Result<Self, WireError> {
        let mut position = Self::new();
        for gtid in MariadbGtidList::parse(text)?.gtids {
            if let Some(other) = position.domains.insert(gtid.domain, gtid) {
                let reason = format!(
                    "the text has both {other} and {gtid}, but a position has only one GTID per domain"
                );
                return Err(WireError::malformed("mariadb GTID position", reason));
            }
        }
        Ok(position)
    }

    /// Moves the position of the domain to `gtid`, even if the sequence number of `gtid` is lower. The commit
    /// order counts, and not the number.
    pub fn advance(&mut self, gtid: MariadbGtid) {
        self.domains.insert(gtid.domain, gtid);
    }

    /// Returns whether `gtid` is at or before the position of its domain.
    pub fn contains(&self, gtid: &MariadbGtid) -> bool {
        self.last(gtid.domain).is_some_and(|last| gtid.sequence <= last.sequence)
    }

    /// Returns the last GTID of a domain.
    pub fn last(&self, domain: u32) -> Option<MariadbGtid> {
        self.domains.get(&domain).copied()
    }

    /// Returns the last GTID of each domain, in order of domain.
    pub fn iter(&self) -> impl Iterator<Item = MariadbGtid> {
        self.domains.values().copied()
    }

    /// Returns whether no domain has a position.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }
}

impl FromStr for MariadbPosition {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        Self::parse(text)
    }
}

impl fmt::Display for MariadbPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.iter())
    }
}

/// The binlog state of one domain.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DomainState {
    /// The server id of the GTID that was written last in the domain. It is a key of `sequences`.
    last_server_id: u32,
    /// For each server id, the sequence number that this server wrote last in the domain.
    sequences: BTreeMap<u32, u64>,
}

impl DomainState {
    fn last_sequence(&self) -> u64 {
        self.sequences.get(&self.last_server_id).copied().unwrap_or(0)
    }

    /// Returns the sequence number up to which the transactions of a server are present.
    ///
    /// If the server has an entry, the sequence number of this entry applies, even if other servers have
    /// higher numbers. A server without an entry wrote its transactions before this state began. For such a
    /// server, the newest sequence number of the domain counts.
    fn covers(&self, server_id: u32) -> u64 {
        self.sequences.get(&server_id).copied().unwrap_or_else(|| self.last_sequence())
    }
}

/// A binlog state as in `gtid_binlog_state`: the last sequence number of each domain and server, and the last
/// GTID of each domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MariadbBinlogState {
    domains: BTreeMap<u32, DomainState>,
}

impl MariadbBinlogState {
    /// Returns the state of an empty binlog.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the GTIDs of `gtid_binlog_state` or of a position. The GTID that is listed last in a domain is
    /// the newest of that domain.
    ///
    /// # Errors
    /// [`WireError::Malformed`] with the offending text and its offset.
    pub fn parse(text: &str) -> Result<Self, WireError> {
        MariadbGtidList::parse(text).map(|list| Self::from_gtids(list.gtids))
    }

    /// Builds the state from GTIDs in the order in which they were written.
    pub fn from_gtids(gtids: impl IntoIterator<Item = MariadbGtid>) -> Self {
        let mut state = Self::new();
        for gtid in gtids {
            state.update(gtid);
        }
        state
    }

    /// Records that `gtid` was written. As MariaDB does, replaces the sequence number of the GTID's server,
    /// even if the new number is lower.
    pub fn update(&mut self, gtid: MariadbGtid) {
        let MariadbGtid { domain, server_id, sequence } = gtid;
        let new = || DomainState { last_server_id: server_id, sequences: BTreeMap::new() };
        let state = self.domains.entry(domain).or_insert_with(new);
        state.last_server_id = server_id;
        state.sequences.insert(server_id, sequence);
    }

    /// Returns whether the binlog holds `gtid`: this is so if `gtid` is not after the last GTID of the same
    /// server in the domain. If that server has no entry, `gtid` is compared with the last GTID of the
    /// domain.
    pub fn contains(&self, gtid: &MariadbGtid) -> bool {
        self.domains.get(&gtid.domain).is_some_and(|state| gtid.sequence <= state.covers(gtid.server_id))
    }

    /// Returns the GTID that was written last in a domain.
    pub fn last(&self, domain: u32) -> Option<MariadbGtid> {
        let state = self.domains.get(&domain)?;
        Some(MariadbGtid { domain, server_id: state.last_server_id, sequence: state.last_sequence() })
    }

    /// Returns the position of a replica that has applied all transactions of this state.
    pub fn position(&self) -> MariadbPosition {
        let domains = self.domains.keys().filter_map(|domain| Some((*domain, self.last(*domain)?)));
        MariadbPosition { domains: domains.collect() }
    }

    /// Returns the last GTID of each domain and server, in order of domain. The newest GTID of a domain comes
    /// after the GTIDs of other servers.
    pub fn iter(&self) -> impl Iterator<Item = MariadbGtid> {
        self.domains.iter().flat_map(|(&domain, state)| {
            let others = state.sequences.iter().filter(|(server_id, _)| **server_id != state.last_server_id);
            let last = (&state.last_server_id, state.sequences.get(&state.last_server_id).unwrap_or(&0));
            let in_order = others.chain(std::iter::once(last));
            in_order.map(move |(&server_id, &sequence)| MariadbGtid { domain, server_id, sequence })
        })
    }

    /// Returns the GTID list that starts the next binlog file after this state.
    pub fn to_list(&self) -> MariadbGtidList {
        MariadbGtidList { gtids: self.iter().collect(), flags: 0 }
    }

    /// Returns whether no GTID was written.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// Returns the union of two states. The newest GTID of a domain comes from the state that is ahead. If
    /// each state holds GTIDs that the other lacks, or if both states are equal, the GTID with the higher
    /// sequence number is the newest.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        for (domain, theirs) in &other.domains {
            let Some(ours) = union.domains.get_mut(domain) else {
                union.domains.insert(*domain, theirs.clone());
                continue;
            };
            let (our_last, their_last) = (ours.last_sequence(), theirs.last_sequence());
            let we_have_theirs = their_last <= ours.covers(theirs.last_server_id);
            let they_have_ours = our_last <= theirs.covers(ours.last_server_id);
            let theirs_is_newer = match (we_have_theirs, they_have_ours) {
                (true, false) => false,
                (false, true) => true,
                _ => (their_last, theirs.last_server_id) > (our_last, ours.last_server_id),
            };
            if theirs_is_newer {
                ours.last_server_id = theirs.last_server_id;
            }
            for (&server_id, &sequence) in &theirs.sequences {
                let ours = ours.sequences.entry(server_id).or_insert(sequence);
                *ours = sequence.max(*ours);
            }
        }
        union
    }

    /// Returns the GTIDs that are missing from `other`, as ranges of each domain in ascending order.
    pub fn subtract(&self, other: &Self) -> Vec<MariadbRange> {
        let mut ranges = Vec::new();
        for (&domain, state) in &self.domains {
            let theirs = other.domains.get(&domain);
            let mut by_sequence: Vec<(u64, u32)> =
                state.sequences.iter().map(|(id, seq)| (*seq, *id)).collect();
            by_sequence.sort_unstable();
            // Assign each sequence number of a domain to the first server whose last number is at least as
            // high.
            let mut ranged = None;
            for (last, server_id) in by_sequence {
                let covered = theirs.map(|theirs| theirs.covers(server_id));
                if covered.is_some_and(|covered| last <= covered) {
                    continue;
                }
                let first = covered.max(ranged).map_or(1, |before| before.saturating_add(1)).min(last);
                ranges.push(MariadbRange { domain, server_id, first, last });
                ranged = Some(last);
            }
        }
        ranges
    }
}

impl FromStr for MariadbBinlogState {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        Self::parse(text)
    }
}

impl fmt::Display for MariadbBinlogState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.iter())
    }
}

/// A range of sequence numbers of one domain, `first..=last`.
///
/// MariaDB numbers transactions per domain. So some numbers of the range may not exist, or may belong to
/// another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MariadbRange {
    /// The replication domain.
    pub domain: u32,
    /// The id of the server that wrote the transaction with the number `last`.
    pub server_id: u32,
    /// The lowest sequence number that the range may hold.
    pub first: u64,
    /// The highest sequence number of the range. The server `server_id` wrote a transaction with this number.
    pub last: u64,
}

impl fmt::Display for MariadbRange {
    /// Prints `0-1-5` or `0-1-5..9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, server_id, first, last } = self;
        if first == last {
            write!(f, "{domain}-{server_id}-{last}")
        } else {
            write!(f, "{domain}-{server_id}-{first}..{last}")
        }
    }
}

/// Parses `domain-server-sequence` and the white space after it.
fn parse_gtid(scan: &mut Scanner<'_>) -> Result<MariadbGtid, WireError> {
    let domain = scan.number(0, u32::MAX.into(), "a domain in 0..2^32-1")? as u32;
    scan.expect(b'-', "'-' after a domain")?;
    let server_id = scan.number(0, u32::MAX.into(), "a server id in 0..2^32-1")? as u32;
    scan.expect(b'-', "'-' after a server id")?;
    let sequence = scan.number(0, u64::MAX, "a sequence number in 0..2^64-1")?;
    scan.skip_whitespace();
    Ok(MariadbGtid { domain, server_id, sequence })
}

fn write_list(f: &mut fmt::Formatter<'_>, gtids: impl Iterator<Item = MariadbGtid>) -> fmt::Result {
    for (index, gtid) in gtids.enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(f, "{comma}{gtid}")?;
    }
    Ok(())
}
