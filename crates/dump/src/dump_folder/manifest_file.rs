//! Reads and writes the manifest as a file: JSON that ends with a checksum of all bytes before it. A file
//! that was edited or damaged is rejected.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::manifest::{FORMAT, Manifest};

/// The text before the checksum at the end of the file. The checksum is the last field of the JSON object,
/// and covers all bytes before this text.
const CHECKSUM: &str = ",\n  \"crc32\": \"";
const DIGITS: usize = 8;
const END: &str = "\"\n}";

/// Why a file cannot be read as a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DocumentError {
    /// A newer version of Tailwater wrote the file, in this format.
    NewerFormat(u32),
    /// The file is damaged: what is wrong, and where.
    Damaged(String),
}

/// The fields that manifests of all formats have.
#[derive(Deserialize)]
struct FormatHeader {
    format: u32,
    crc32: Option<IgnoredAny>,
}

/// Encodes the manifest as the bytes of its file.
///
/// # Errors
/// If it cannot be serialised as JSON.
pub(super) fn encode(manifest: &Manifest) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_vec_pretty(manifest)?;
    text.truncate(text.strip_suffix(b"\n}").map_or(text.len(), <[u8]>::len));
    let crc32 = crc32fast::hash(&text);
    text.extend_from_slice(format!("{CHECKSUM}{crc32:08x}{END}\n").as_bytes());
    Ok(text)
}

/// Parses the manifest file. Also returns whether the file has a checksum. Files of older versions have none;
/// for these, only the totals are checked.
pub(super) fn decode(text: &[u8]) -> Result<(Manifest, bool), DocumentError> {
    let damaged = |error: serde_json::Error| DocumentError::Damaged(error.to_string());
    // The format is read first, because all other fields may differ in a newer format.
    let front: FormatHeader = serde_json::from_slice(text).map_err(damaged)?;
    if front.format > FORMAT {
        return Err(DocumentError::NewerFormat(front.format));
    }
    let parts = split(text.trim_ascii_end());
    let manifest: Manifest = match parts {
        None if front.crc32.is_some() => {
            let reason =
                "the checksum (crc32) is not at the end of the file: the file was edited or rewritten";
            return Err(DocumentError::Damaged(reason.to_owned()));
        }
        None => serde_json::from_slice(text).map_err(damaged)?,
        Some((body, wanted)) => {
            // The contents are parsed before the checksum is compared: an error in a field contains the
            // position of the damage, and a wrong checksum does not show the position.
            let manifest = serde_json::from_slice(&[body, b"\n}"].concat()).map_err(damaged)?;
            let found = crc32fast::hash(body);
            if wanted != format!("{found:08x}").as_bytes() {
                let wanted = String::from_utf8_lossy(wanted);
                let reason = format!(
                    "the checksum (crc32, the last field) is {found:08x} instead of {wanted}: the file was edited or damaged"
                );
                return Err(DocumentError::Damaged(reason));
            }
            manifest
        }
    };
    manifest.check().map_err(DocumentError::Damaged)?;
    Ok((manifest, parts.is_some()))
}

/// Splits the file into the bytes before the checksum, and the checksum.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = text.strip_suffix(END.as_bytes())?;
    let (rest, digits) = rest.split_at_checked(rest.len().checked_sub(DIGITS)?)?;
    Some((rest.strip_suffix(CHECKSUM.as_bytes())?, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest of two tables, without a checksum. One chunk is planned but not written.
    const OLDER: &str = r#"{
  "format": 1, "tailwater": "0.1.0", "server": {"flavour": "mysql", "version": "9.7.0"},
  "started_at": "2026-01-01T00:00:00Z", "finished_at": null, "compression": "none",
  "snapshots": [{"gtid_set": null, "binlog_file": "b.1", "binlog_position": 4, "taken_at": ""}],
  "schemas": [{"name": "s", "file": "s.schema.sql"}],
  "tables": [
    {"schema": "s", "table": "a", "file": "s.a.table.sql", "columns": [{"name": "i", "type": "int"}], "rows": 2,
     "chunks": [{"file": "s.a.000000.tsv", "range": {"keys": "all"},
                 "rows": 2, "bytes": 4, "crc32": 7, "file_bytes": 4, "snapshot": 0}], "finished": true},
    {"schema": "s", "table": "b", "file": "s.b.table.sql", "columns": [{"name": "i", "type": "int"}], "rows": 0,
     "chunks": [{"file": "s.b.000000.tsv", "range": {"keys": {"integers": {"from": null, "to": 9}}}}], "finished": false}
  ],
  "objects": []
}"#;

    fn damaged(text: &str) -> String {
        match decode(text.as_bytes()) {
            Err(DocumentError::Damaged(reason)) => reason,
            other => panic!("the manifest is not reported as damaged: {text}: {other:?}"),
        }
    }

    #[test]
    fn a_manifest_of_an_older_version_is_read_and_gets_a_checksum() {
        let (manifest, has_checksum) =
            decode(OLDER.as_bytes()).expect("the totals of the manifest match its entries");
        assert!(!has_checksum);
        assert_eq!((manifest.tables.len(), manifest.tables[1].chunks[0].written), (2, None));
        let text = encode(&manifest).expect("the manifest serialises");
        assert_eq!(decode(&text), Ok((manifest, true)));
        let json: serde_json::Value =
            serde_json::from_slice(&text).expect("the file is JSON that other programs can parse");
        assert_eq!(json["crc32"].as_str().map(str::len), Some(8));
    }

    #[test]
    fn every_changed_bit_is_detected() {
        let text =
            encode(&decode(OLDER.as_bytes()).expect("the file is valid").0).expect("the manifest serialises");
        for at in 0..text.trim_ascii_end().len() {
            for bit in [1, 32] {
                let mut changed = text.clone();
                changed[at] ^= bit;
                assert!(decode(&changed).is_err(), "a change of bit {bit} of byte {at} was not detected");
            }
        }
        for length in 0..text.trim_ascii_end().len() {
            assert!(decode(&text[..length]).is_err(), "a file that was cut to {length} bytes was accepted");
        }
        // JSON with other indentation or another order of fields, as a tool such as `jq .` may write it.
        let compact: serde_json::Value = serde_json::from_slice(&text).expect("the file is JSON");
        assert!(damaged(&compact.to_string()).contains("not at the end of the file"));
    }

    #[test]
    fn an_error_names_the_invalid_field_and_no_chunk_counts_as_unwritten() {
        for (from, to, expected) in [
            (r#""crc32": 7"#, r#""crc3r": 7"#, "crc3r"),
            (r#""rows": 2, "bytes""#, r#""rows": -1, "bytes""#, "-1"),
            (r#""rows": 2, "bytes""#, r#""rows": "abc", "bytes""#, "abc"),
            (r#""rows": 2, "bytes""#, r#""rows": null, "bytes""#, "has no rows"),
            (r#""rows": 2, "bytes""#, r#""bytes""#, "has no rows"),
            (r#""snapshot": 0"#, r#""snapshot": 1"#, "snapshot 1"),
            (
                r#""rows": 2, "bytes": 4, "crc32": 7, "file_bytes": 4, "snapshot": 0"#,
                r#""nulled": []"#,
                "not written",
            ),
            (r#""to": 9"#, r#""too": 9"#, "too"),
            (r#"{"from": null, "to": 9}"#, r#"{"to": 9}"#, "from"),
            (r#""keys": "all""#, r#""partition": "p", "kes": 1, "keys": "all""#, "kes"),
            (
                r#""rows": 2,
"#,
                "\"rows\": 3,\n",
                "the table entry records 3 rows, but the chunks have 2",
            ),
            (r#""rows": 0"#, r#""rows": 0, "extra": 1"#, "extra"),
            (r#""table": "b""#, r#""table": "a""#, "is listed twice"),
            (r#""s.b.000000.tsv""#, r#""s.a.000000.tsv""#, "named twice"),
            (r#""format": 1"#, r#""format": 0"#, "no format 0"),
            (r#""objects": []"#, r#""objects": [], "crc32": "00000000""#, "not at the end of the file"),
            (r#""gtid_set""#, r#""gtid_sett""#, "gtid_sett"),
        ] {
            assert!(OLDER.contains(from), "the manifest does not contain {from}");
            let reason = damaged(&OLDER.replacen(from, to, 1));
            assert!(
                reason.contains(expected),
                "after the change to {to}, the reason is unexpected: {reason}"
            );
        }
        assert_eq!(
            decode(&OLDER.replacen(r#""format": 1"#, r#""format": 2"#, 1).into_bytes()),
            Err(DocumentError::NewerFormat(2))
        );
    }
}
