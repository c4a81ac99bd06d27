//! The control file: what a log is, in one small document that is replaced whole. Format: docs/reference/log-format.md.

use serde::{Deserialize, Serialize};

use crate::atomic_json_file;
use crate::error::LogError;
use crate::index::SegmentHeader;
use crate::storage::Directory;

pub(crate) const NAME: &str = "control.json";

/// The newest format version, the one written.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// A control file is never longer: nothing in it but a segment's header grows.
const BYTES_MAX: u64 = 80 << 20;

/// What a log is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Control {
    /// Layout of the whole directory.
    pub format_version: u32,
    /// The oldest segment; older files are leftovers of a purge that was cut short.
    pub first_segment: u64,
    /// The header of the newest segment, whose index may not be readable after a crash.
    #[serde(deserialize_with = "Option::deserialize")]
    pub active: Option<SegmentHeader>,
}

impl Control {
    /// Of a log without segments.
    pub(crate) fn new() -> Self {
        Self { format_version: FORMAT_VERSION, first_segment: 1, active: None }
    }

    /// Reads it; `None` if there is none.
    pub(crate) fn read(directory: &dyn Directory) -> Result<Option<Self>, LogError> {
        let Some(document) = atomic_json_file::read(directory, NAME, BYTES_MAX)? else { return Ok(None) };
        let path = directory.path_of(NAME);
        document
            .map_err(Damage::Malformed)
            .and_then(|document| Self::parse(&document))
            .map_err(|damage| match damage {
                Damage::Version(found) => LogError::FormatVersion { path, found, known: FORMAT_VERSION },
                Damage::Malformed(reason) => LogError::corrupt(path, 0, reason),
            })
            .map(Some)
    }

    /// Replaces it durably.
    pub(crate) fn write(&self, directory: &dyn Directory) -> Result<(), LogError> {
        atomic_json_file::replace(directory, NAME, &self.document())
    }

    fn document(&self) -> String {
        // Strings and integers always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn parse(document: &str) -> Result<Self, Damage> {
        #[derive(Deserialize)]
        struct Version {
            format_version: u32,
        }
        let unreadable = |error: serde_json::Error| Damage::Malformed(format!("it cannot be read: {error}"));
        // The version first: a newer layout need not have the other fields.
        let Version { format_version } = serde_json::from_str(document).map_err(unreadable)?;
        if format_version > FORMAT_VERSION {
            return Err(Damage::Version(format_version));
        }
        serde_json::from_str(document).map_err(unreadable)
    }
}

/// What is said of one that was lost.
pub(crate) const LOST: &str = "it is missing, and the directory has segments: they can be read (log cat, log stats, log verify), and \
                               nothing can be appended; put it back from a copy of the directory";

/// A control file is on the disk before the first segment is. Where there are segments and it is not, it was lost: a writer would take
/// what an interrupted purge has left for a part of the log again, and a newer version's layout for this one's.
///
/// # Errors
/// [`LogError::Corrupt`] if there are segments.
pub(crate) fn refuse_lost(directory: &dyn Directory, has_segments: bool) -> Result<(), LogError> {
    if !has_segments {
        return Ok(());
    }
    Err(LogError::corrupt(directory.path_of(NAME), 0, LOST))
}

#[derive(Debug, PartialEq, Eq)]
enum Damage {
    Malformed(String),
    Version(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Control, Damage> {
        atomic_json_file::decode(bytes)
            .map_err(Damage::Malformed)
            .and_then(|document| Control::parse(&document))
    }

    #[test]
    fn it_comes_back_and_damage_is_seen() {
        let control = Control { first_segment: 17, ..Control::new() };
        let bytes = atomic_json_file::encode(&control.document());
        assert_eq!(decode(&bytes), Ok(control));
        for at in 0..bytes.len() - 1 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "length {at}");
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let document = r#"{"format_version":9,"something":"else"}"#;
        assert_eq!(decode(&atomic_json_file::encode(document)), Err(Damage::Version(9)));
    }
}
