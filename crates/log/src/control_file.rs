//! The control file: which segments belong to a log, in one small JSON file that is replaced as a whole.
//! Format: docs/reference/log-format.md.

use serde::{Deserialize, Serialize};

use crate::atomic_json_file;
use crate::error::LogError;
use crate::segment_index::SegmentHeader;
use crate::storage::Directory;

pub(crate) const NAME: &str = "control.json";

/// The newest format version. New files are written in this version.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The maximum length of the control file in bytes. Only the segment header in the file can become long.
const BYTES_MAX: u64 = 80 << 20;

/// The content of the control file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControlFile {
    /// The version of the layout of the whole directory.
    pub format_version: u32,
    /// The number of the oldest segment. Files of older segments were left by an interrupted purge.
    pub first_segment: u64,
    /// A copy of the header of the newest segment, because the header in the segment's index may be
    /// unreadable after a crash.
    #[serde(deserialize_with = "Option::deserialize")]
    pub active: Option<SegmentHeader>,
}

impl ControlFile {
    /// Returns the content for a log without segments.
    pub(crate) fn new() -> Self {
        Self { format_version: FORMAT_VERSION, first_segment: 1, active: None }
    }

    /// Reads the file. Returns `None` if it does not exist.
    pub(crate) fn read(directory: &dyn Directory) -> Result<Option<Self>, LogError> {
        let Some(document) = atomic_json_file::read(directory, NAME, BYTES_MAX)? else { return Ok(None) };
        let path = directory.path_of(NAME);
        document
            .map_err(ControlDamage::Malformed)
            .and_then(|document| Self::parse(&document))
            .map_err(|damage| match damage {
                ControlDamage::Version(found) => {
                    LogError::FormatVersion { path, found, known: FORMAT_VERSION }
                }
                ControlDamage::Malformed(reason) => LogError::corrupt(path, 0, reason),
            })
            .map(Some)
    }

    /// Replaces the file durably.
    pub(crate) fn write(&self, directory: &dyn Directory) -> Result<(), LogError> {
        atomic_json_file::replace(directory, NAME, &self.document())
    }

    fn document(&self) -> String {
        // Serializing strings and integers cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn parse(document: &str) -> Result<Self, ControlDamage> {
        #[derive(Deserialize)]
        struct VersionField {
            format_version: u32,
        }
        let unreadable = |error: serde_json::Error| {
            ControlDamage::Malformed(format!("the control file cannot be read: {error}"))
        };
        // Check the version first, because a newer layout may lack the other fields.
        let VersionField { format_version } = serde_json::from_str(document).map_err(unreadable)?;
        if format_version > FORMAT_VERSION {
            return Err(ControlDamage::Version(format_version));
        }
        serde_json::from_str(document).map_err(unreadable)
    }
}

/// The reason that is reported if a directory has segments but no control file.
pub(crate) const MISSING_REASON: &str = "the control file is missing, and the directory has segments: they can be read (log cat, log stats, log verify), but \
                               nothing can be appended; restore it from a copy of the directory";

/// Returns an error if a directory has segments but no control file.
///
/// The control file is on disk before the first segment. If segments exist without a control file, the file
/// was lost. Without it, a writer would treat the files of an interrupted purge as part of the log. The
/// writer would also misread a directory of a newer version.
///
/// # Errors
/// [`LogError::Corrupt`] if there are segments.
pub(crate) fn check_not_missing(directory: &dyn Directory, has_segments: bool) -> Result<(), LogError> {
    if !has_segments {
        return Ok(());
    }
    Err(LogError::corrupt(directory.path_of(NAME), 0, MISSING_REASON))
}

#[derive(Debug, PartialEq, Eq)]
enum ControlDamage {
    Malformed(String),
    Version(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<ControlFile, ControlDamage> {
        atomic_json_file::decode(bytes)
            .map_err(ControlDamage::Malformed)
            .and_then(|document| ControlFile::parse(&document))
    }

    #[test]
    fn control_file_round_trips_and_damage_is_detected() {
        let control = ControlFile { first_segment: 17, ..ControlFile::new() };
        let bytes = atomic_json_file::encode(&control.document());
        assert_eq!(decode(&bytes), Ok(control));
        for at in 0..bytes.len() - 1 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "a changed byte at offset {at} is not detected");
            assert!(decode(&bytes[..at]).is_err(), "truncation to {at} bytes is not detected");
        }
    }

    #[test]
    fn a_newer_version_is_reported() {
        let document = r#"{"format_version":9,"something":"else"}"#;
        assert_eq!(decode(&atomic_json_file::encode(document)), Err(ControlDamage::Version(9)));
    }
}
