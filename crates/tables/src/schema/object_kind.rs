//! Kinds of schema objects.

use serde::{Deserialize, Serialize};

/// The kind of an object that is not a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// A sequence (MariaDB).
    Sequence,
    /// A view.
    View,
    /// A stored function.
    Function,
    /// A stored procedure.
    Procedure,
    /// A package of routines (MariaDB with `sql_mode=ORACLE`).
    Package,
    /// The body of a package.
    PackageBody,
    /// A trigger.
    Trigger,
    /// A scheduled event.
    Event,
}

impl ObjectKind {
    /// Returns the kind as it is spelled in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::View => "view",
            Self::Function => "function",
            Self::Procedure => "procedure",
            Self::Package => "package",
            Self::PackageBody => "package_body",
            Self::Trigger => "trigger",
            Self::Event => "event",
        }
    }
}
