//! Journals: files of JSON lines, each with its own checksum. An incomplete line of a killed process is cut
//! off at the first line whose checksum does not match.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The end of a line: the checksum of the bytes before it, as the last field of the object.
const CHECKSUM: &str = ",\"crc32\":\"";
const CHECKSUM_BYTES: usize = CHECKSUM.len() + 8 + 2;

/// An entry of any journal as a line, with its checksum and line end. Entries are enums whose variants have
/// fields, so that they are JSON objects.
pub fn encode_line<T: Serialize>(entry: &T) -> String {
    // Serialising these types to a string cannot fail: keys are strings, and there are no foreign
    // implementations.
    let mut line = serde_json::to_string(entry).unwrap_or_default();
    line.pop();
    let crc32 = crc32fast::hash(line.as_bytes());
    line.push_str(&format!("{CHECKSUM}{crc32:08x}\"}}\n"));
    line
}

/// The entry of a line; `None` if its checksum does not match.
pub fn decode_line<T: DeserializeOwned>(line: &str) -> Option<Result<T, serde_json::Error>> {
    let body = line.get(..line.len().checked_sub(CHECKSUM_BYTES)?)?;
    let crc32 = crc32fast::hash(body.as_bytes());
    if line.get(body.len()..)? != format!("{CHECKSUM}{crc32:08x}\"}}") {
        return None;
    }
    Some(serde_json::from_str(&format!("{body}}}")))
}

/// The entries of a journal up to the first line whose checksum does not match, and their size in bytes.
///
/// # Errors
/// The first intact line that cannot be parsed: another version wrote it, and its entry must not be lost.
pub fn parse<T: DeserializeOwned>(journal: &[u8]) -> Result<(Vec<T>, usize), String> {
    let mut entries = Vec::new();
    let mut good_bytes = 0;
    for (number, line) in (1..).zip(journal.split_inclusive(|&byte| byte == b'\n')) {
        let text = line.strip_suffix(b"\n").and_then(|line| str::from_utf8(line).ok());
        let Some(entry) = text.and_then(decode_line) else { break };
        let entry = entry.map_err(|error| format!("line {number} is of another version: {error}"))?;
        good_bytes += line.len();
        entries.push(entry);
    }
    Ok((entries, good_bytes))
}
