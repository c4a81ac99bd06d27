//! Serializes GTID sets as text.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

#[derive(Serialize, Deserialize)]
struct GtidSetText {
    is_mariadb: bool,
    set: String,
}

/// Serializes a GTID set as text.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(set: &GtidSet, serializer: S) -> Result<S::Ok, S::Error> {
    GtidSetText { is_mariadb: set.flavour() == Flavour::MariaDb, set: set.to_string() }.serialize(serializer)
}

/// Deserializes a GTID set from text.
///
/// # Errors
/// If the text is not a GTID set.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GtidSet, D::Error> {
    let GtidSetText { is_mariadb, set } = GtidSetText::deserialize(deserializer)?;
    let flavour = if is_mariadb { Flavour::MariaDb } else { Flavour::MySql };
    GtidSet::parse(flavour, &set).map_err(D::Error::custom)
}
