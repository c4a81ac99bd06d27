//! Journals: files of JSON lines, each with its own checksum. A killed process may leave an incomplete line.
//! A journal is valid up to the first line whose checksum does not match.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The text before the checksum at the end of a line. The checksum is the last field of the JSON object, and
/// covers the bytes before this text.
const CHECKSUM: &str = ",\"crc32\":\"";
const CHECKSUM_BYTES: usize = CHECKSUM.len() + 8 + 2;

/// Returns an entry of any journal as a line, with its checksum and line end. Entries are enums whose
/// variants have fields, so they are JSON objects.
pub fn encode_line<T: Serialize>(entry: &T) -> String {
    // Serialising these types to a string cannot fail: map keys are strings, and no type has a hand-written
    // implementation.
    let mut line = serde_json::to_string(entry).unwrap_or_default();
    line.pop();
    let crc32 = crc32fast::hash(line.as_bytes());
    line.push_str(&format!("{CHECKSUM}{crc32:08x}\"}}\n"));
    line
}

/// Returns the entry of a line; `None` if the checksum of the line does not match.
pub fn decode_line<T: DeserializeOwned>(line: &str) -> Option<Result<T, serde_json::Error>> {
    let body = line.get(..line.len().checked_sub(CHECKSUM_BYTES)?)?;
    let crc32 = crc32fast::hash(body.as_bytes());
    if line.get(body.len()..)? != format!("{CHECKSUM}{crc32:08x}\"}}") {
        return None;
    }
    Some(serde_json::from_str(&format!("{body}}}")))
}

/// Returns the entries of a journal up to the first line whose checksum does not match, and the size in bytes
/// of these lines.
///
/// # Errors
/// The first line whose checksum matches but whose entry cannot be parsed. Another version of
/// Tailwater wrote that line, and its entry must not be ignored.
pub fn parse<T: DeserializeOwned>(journal: &[u8]) -> Result<(Vec<T>, usize), String> {
    let mut entries = Vec::new();
    let mut good_bytes = 0;
    for (number, line) in (1..).zip(journal.split_inclusive(|&byte| byte == b'\n')) {
        let text = line.strip_suffix(b"\n").and_then(|line| str::from_utf8(line).ok());
        let Some(entry) = text.and_then(decode_line) else { break };
        let entry =
            entry.map_err(|error| format!("line {number} was written by another version: {error}"))?;
        good_bytes += line.len();
        entries.push(entry);
    }
    Ok((entries, good_bytes))
}
