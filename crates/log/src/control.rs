//! The control file: what a log is, in one small document that is replaced whole. Format: docs/reference/log-format.md.

use serde::{Deserialize, Serialize};

use crate::error::LogError;
use crate::index::SegmentHeader;
use crate::storage::{Directory, OpenMode};

const NAME: &str = "control.json";
const NAME_NEW: &str = "control.json.new";

/// The newest format version, the one written.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// A control file is never longer: nothing in it but a segment's header grows.
const BYTES_MAX: u64 = 80 << 20;

/// What a log is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Control {
    /// Layout of the whole directory.
    pub format_version: u32,
    /// The oldest segment; older files are leftovers of a purge that was cut short.
    pub first_segment: u64,
    /// The header of the newest segment, whose index may not be readable after a crash.
    pub active: Option<SegmentHeader>,
}

impl Control {
    /// Of a log without segments.
    pub(crate) fn new() -> Self {
        Self { format_version: FORMAT_VERSION, first_segment: 1, active: None }
    }

    /// Reads it; `None` if there is none.
    pub(crate) fn read(directory: &dyn Directory) -> Result<Option<Self>, LogError> {
        let path = directory.path_of(NAME);
        let file = match directory.open(NAME, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LogError::io("open", path, error)),
        };
        let length = file.length().map_err(|error| LogError::io("read", &path, error))?;
        if length > BYTES_MAX {
            return Err(LogError::corrupt(path, 0, format!("a control file of {length} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        let filled = file.read_full_at(&mut bytes, 0).map_err(|error| LogError::io("read", &path, error))?;
        Self::decode(&bytes[..filled])
            .map_err(|damage| match damage {
                Damage::Version(found) => LogError::FormatVersion { path, found, known: FORMAT_VERSION },
                Damage::Malformed(reason) => LogError::corrupt(path, 0, reason),
            })
            .map(Some)
    }

    /// Replaces it durably.
    pub(crate) fn write(&self, directory: &dyn Directory) -> Result<(), LogError> {
        let fail = |action, name: &str| {
            let path = directory.path_of(name);
            move |error| LogError::write(action, path, error)
        };
        match directory.remove(NAME_NEW) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(fail("remove", NAME_NEW)(error));
            }
            _ => {}
        }
        let file = directory.open(NAME_NEW, OpenMode::CreateNew).map_err(fail("create", NAME_NEW))?;
        file.write_at(&self.encode(), 0).map_err(fail("write", NAME_NEW))?;
        file.sync().map_err(fail("fdatasync", NAME_NEW))?;
        directory.rename(NAME_NEW, NAME).map_err(fail("replace", NAME))?;
        directory.sync().map_err(fail("sync the directory of", NAME))
    }

    fn encode(&self) -> Vec<u8> {
        // Strings and integers always serialize.
        let document = serde_json::to_string(self).unwrap_or_default();
        format!("{document}\ncrc32 {:08x}\n", crc32fast::hash(document.as_bytes())).into_bytes()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let malformed = |reason: &str| Damage::Malformed(reason.into());
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("it is not text"))?;
        let mut lines = text.lines();
        let (Some(document), Some(crc), None) = (lines.next(), lines.next(), lines.next()) else {
            return Err(malformed("it does not have two lines"));
        };
        if crc != format!("crc32 {:08x}", crc32fast::hash(document.as_bytes())) {
            return Err(malformed("its checksum does not match"));
        }
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

#[derive(Debug, PartialEq, Eq)]
enum Damage {
    Malformed(String),
    Version(u32),
}

/// Whether a file name is that of a control file that was not put in place.
pub(crate) fn is_replacement_name(name: &str) -> bool {
    name == NAME_NEW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_damage_is_seen() {
        let control = Control { first_segment: 17, ..Control::new() };
        let bytes = control.encode();
        assert_eq!(Control::decode(&bytes), Ok(control));
        for at in 0..bytes.len() - 1 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Control::decode(&damaged).is_err(), "byte {at}");
            assert!(Control::decode(&bytes[..at]).is_err(), "length {at}");
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let document = r#"{"format_version":9,"something":"else"}"#;
        let text = format!("{document}\ncrc32 {:08x}\n", crc32fast::hash(document.as_bytes()));
        assert_eq!(Control::decode(text.as_bytes()), Err(Damage::Version(9)));
    }
}
