//! `[[source]]`: a server whose binlog is captured.

use serde::Deserialize;

use crate::daemon_file_names::own_file;

server_section! {
    /// `[[source]]`
    pub struct SourceConfig {
        /// The name of the source in messages, and of its folder in the log.
        pub name: String,
        /// The `server_id` under which Tailwater registers as a replica; unique among all replicas of the
        /// source.
        pub server_id: u32,
        /// Use semi-sync, and refuse a source that has no semi-sync.
        #[serde(default = "default_true")]
        pub semi_sync: bool,
        /// Where an empty log starts in the source's binlog: `current`, `oldest`, or `FILE:POSITION`.
        #[serde(default)]
        pub start: StartConfig,
        /// Interval of the source's heartbeats, in milliseconds. A stream counts as broken after a silence of
        /// eight intervals, or of 2 s if that is shorter, but never before three intervals.
        #[serde(default = "default_heartbeat_ms")]
        pub heartbeat_ms: u64,
        /// Interval of the checks of the source's semi-sync settings, in milliseconds. The old spelling is
        /// `watch_ms`.
        #[serde(default = "default_semi_sync_check_ms", alias = "watch_ms")]
        pub semi_sync_check_ms: u64,
    }
}

/// `source.start`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StartConfig {
    /// At the start of the binlog file that the source writes now.
    #[default]
    Current,
    /// At the start of the source's oldest binlog file.
    Oldest,
    /// At an offset in a binlog file of the source.
    Position {
        /// The binlog file's name.
        file: String,
        /// The offset of an event in the file, in bytes.
        position: u64,
    },
}

impl<'de> Deserialize<'de> for StartConfig {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || {
            serde::de::Error::custom(format!("start = {text:?}: give `current`, `oldest` or `FILE:POSITION`"))
        };
        match text.as_str() {
            "current" => Ok(Self::Current),
            "oldest" => Ok(Self::Oldest),
            _ => {
                let (file, position) = text.rsplit_once(':').ok_or_else(wrong)?;
                let position = position.parse().ok().filter(|position| *position >= 4).ok_or_else(wrong)?;
                if file.is_empty() {
                    return Err(wrong());
                }
                Ok(Self::Position { file: file.into(), position })
            }
        }
    }
}

impl SourceConfig {
    pub(crate) fn check(&self) -> Result<(), String> {
        let name = &self.name;
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(legal) || name.starts_with('.') {
            return Err(format!(
                "source.name = {name:?}: a name has 1 to 64 characters of a-z, A-Z, 0-9, `_`, `-`, `.`, no leading dot"
            ));
        }
        if let Some(clash) = own_file(name) {
            return Err(format!(
                "source.name = {name:?}: Tailwater itself uses that name for {clash} in the log's folder; choose another name"
            ));
        }
        if self.server_id == 0 {
            return Err(format!("source {name:?}: server_id must not be 0"));
        }
        self.server().check().map_err(|reason| format!("source {name:?}: {reason}"))?;
        if self.heartbeat_ms < 100 || self.semi_sync_check_ms < 100 {
            return Err(format!("source {name:?}: heartbeat_ms and semi_sync_check_ms must be at least 100"));
        }
        Ok(())
    }
}

fn default_true() -> bool {
    true
}

fn default_heartbeat_ms() -> u64 {
    250
}

fn default_semi_sync_check_ms() -> u64 {
    1_000
}
