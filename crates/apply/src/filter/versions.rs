//! Filters over time: each edit has a number and takes effect at a transaction.

use serde::{Deserialize, Serialize};
use tailwater_log::LogPosition;

use super::{FilterError, FilterSet};

/// The filters of a channel, as they were and as they are to be. Kept, as JSON, with its progress: after a restart each
/// transaction meets the filters that it met before, or would have met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<FilterVersion>", into = "Vec<FilterVersion>")]
pub struct VersionedFilters {
    /// By place; the first is from [`LogPosition::ZERO`] or from before all that is still to be applied.
    versions: Vec<FilterVersion>,
}

/// Filters from some transaction on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterVersion {
    /// Counts edits, from 1.
    pub version: u64,
    /// They are for transactions whose span starts here or later.
    #[serde(with = "position_text")]
    pub from: LogPosition,
    /// The first of these, if it was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtid: Option<String>,
    /// The rules.
    pub filters: FilterSet,
}

impl VersionedFilters {
    /// Version 1, for all of the log.
    ///
    /// # Errors
    /// As [`FilterSet::compile`].
    pub fn new(filters: FilterSet) -> Result<Self, FilterError> {
        filters.compile()?;
        let first = FilterVersion { version: 1, from: LogPosition::ZERO, gtid: None, filters };
        Ok(Self { versions: vec![first] })
    }

    /// What counts for a transaction whose span starts at `position`.
    pub fn at(&self, position: LogPosition) -> &FilterVersion {
        let behind = self.versions.partition_point(|version| version.from <= position);
        &self.versions[behind.saturating_sub(1)]
    }

    /// Where the next version behind the one at `position` takes effect.
    pub fn next_change(&self, position: LogPosition) -> Option<LogPosition> {
        let behind = self.versions.partition_point(|version| version.from <= position);
        self.versions.get(behind.max(1)).map(|version| version.from)
    }

    /// The last edit, whether it has taken effect or not.
    pub fn newest(&self) -> &FilterVersion {
        &self.versions[self.versions.len() - 1]
    }

    /// Other rules from the transaction on whose span starts at `from`; returns the version's number. At the same place
    /// as the last edit, it takes that one's place.
    ///
    /// # Errors
    /// As [`FilterSet::compile`]; [`FilterError::Order`] if a later edit was made before.
    pub fn edit(
        &mut self,
        from: LogPosition,
        gtid: Option<String>,
        filters: FilterSet,
    ) -> Result<u64, FilterError> {
        filters.compile()?;
        let last = self.newest();
        if from < last.from {
            return Err(FilterError::Order { from: from.to_string(), last: last.from.to_string() });
        }
        let version = last.version + 1;
        if from == last.from {
            self.versions.pop();
        }
        self.versions.push(FilterVersion { version, from, gtid, filters });
        Ok(version)
    }

    /// Forgets versions that no transaction at or behind `low` meets.
    pub fn forget_below(&mut self, low: LogPosition) {
        let behind = self.versions.partition_point(|version| version.from <= low);
        self.versions.drain(..behind.saturating_sub(1));
    }
}

impl TryFrom<Vec<FilterVersion>> for VersionedFilters {
    type Error = String;

    fn try_from(versions: Vec<FilterVersion>) -> Result<Self, String> {
        if versions.is_empty() {
            return Err("the list of versions is empty".to_owned());
        }
        if !versions.is_sorted_by(|one, next| one.from < next.from && one.version < next.version) {
            return Err("versions are out of order".to_owned());
        }
        for version in &versions {
            version.filters.compile().map_err(|error| format!("version {}: {error}", version.version))?;
        }
        Ok(Self { versions })
    }
}

impl From<VersionedFilters> for Vec<FilterVersion> {
    fn from(filters: VersionedFilters) -> Self {
        filters.versions
    }
}

/// A place in the log as it is shown: `SEGMENT:OFFSET`.
mod position_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};
    use tailwater_log::LogPosition;

    pub fn serialize<S: Serializer>(position: &LogPosition, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(position)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LogPosition, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parts = text.split_once(':');
        let position = parts.and_then(|(segment, offset)| {
            Some(LogPosition { segment: segment.parse().ok()?, offset: offset.parse().ok()? })
        });
        position.ok_or_else(|| D::Error::custom(format!("{text:?} is not a log position (SEGMENT:OFFSET)")))
    }
}
