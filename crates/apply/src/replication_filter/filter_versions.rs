//! Versions of the filters. Each edit makes a new version with a number, which takes effect from a certain
//! transaction on.

use serde::{Deserialize, Serialize};
use tailwater_log::LogPosition;

use super::{FilterError, FilterSet};

/// All versions of a channel's filters. They are stored as JSON with the channel's progress, so that each
/// transaction gets the same filters after a restart as before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<FilterVersion>", into = "Vec<FilterVersion>")]
pub struct VersionedFilters {
    /// The versions, sorted by position. The first version is valid from [`LogPosition::ZERO`], or from a
    /// position before the first transaction that is not applied yet.
    versions: Vec<FilterVersion>,
}

/// A version of the filters, which is valid from one transaction on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterVersion {
    /// Number of the version, from 1.
    pub version: u64,
    /// The version is valid for transactions whose log span starts at or after this position.
    #[serde(with = "position_text")]
    pub from: LogPosition,
    /// GTID of the first transaction for which the version is valid, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtid: Option<String>,
    /// The filter rules of this version.
    pub filters: FilterSet,
}

impl VersionedFilters {
    /// Returns version 1, which is valid for the whole log.
    ///
    /// # Errors
    /// As [`FilterSet::compile`].
    pub fn new(filters: FilterSet) -> Result<Self, FilterError> {
        filters.compile()?;
        let first = FilterVersion { version: 1, from: LogPosition::ZERO, gtid: None, filters };
        Ok(Self { versions: vec![first] })
    }

    /// Returns the version for a transaction whose log span starts at `position`.
    pub fn at(&self, position: LogPosition) -> &FilterVersion {
        let count = self.versions.partition_point(|version| version.from <= position);
        &self.versions[count.saturating_sub(1)]
    }

    /// Returns the position at which the next version replaces the version for `position`.
    pub fn next_change(&self, position: LogPosition) -> Option<LogPosition> {
        let count = self.versions.partition_point(|version| version.from <= position);
        self.versions.get(count.max(1)).map(|version| version.from)
    }

    /// Returns the newest version, even if it has not taken effect yet.
    pub fn newest(&self) -> &FilterVersion {
        &self.versions[self.versions.len() - 1]
    }

    /// Adds a version for transactions whose log span starts at or after `from`, and returns its number. If
    /// the last edit has the same position, the new version replaces it.
    ///
    /// # Errors
    /// As [`FilterSet::compile`]; [`FilterError::Order`] if an existing edit takes effect later.
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

    /// Removes versions that no transaction at or after `low` needs.
    pub fn forget_below(&mut self, low: LogPosition) {
        let count = self.versions.partition_point(|version| version.from <= low);
        self.versions.drain(..count.saturating_sub(1));
    }
}

impl TryFrom<Vec<FilterVersion>> for VersionedFilters {
    type Error = String;

    fn try_from(versions: Vec<FilterVersion>) -> Result<Self, String> {
        if versions.is_empty() {
            return Err("the list of filter versions is empty".to_owned());
        }
        if !versions.is_sorted_by(|one, next| one.from < next.from && one.version < next.version) {
            return Err("the filter versions are out of order".to_owned());
        }
        for version in &versions {
            version
                .filters
                .compile()
                .map_err(|error| format!("filter version {}: {error}", version.version))?;
        }
        Ok(Self { versions })
    }
}

impl From<VersionedFilters> for Vec<FilterVersion> {
    fn from(filters: VersionedFilters) -> Self {
        filters.versions
    }
}

/// Writes a log position as text: `SEGMENT:OFFSET`.
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
