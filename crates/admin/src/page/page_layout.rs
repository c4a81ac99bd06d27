//! What all views share: title, navigation, visitor.

use super::page_user_role::Visitor;

/// A link of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NavigationLink {
    pub(super) path: &'static str,
    pub(super) label: &'static str,
}

/// The views, in the order of the navigation.
pub(super) const NAVIGATION: [NavigationLink; 7] = [
    NavigationLink { path: "/", label: "Overview" },
    NavigationLink { path: "/logs", label: "Logs" },
    NavigationLink { path: "/channels", label: "Channels" },
    NavigationLink { path: "/failovers", label: "Failovers" },
    NavigationLink { path: "/jobs", label: "Jobs" },
    NavigationLink { path: "/binlog-servers", label: "Binlog servers" },
    NavigationLink { path: "/settings", label: "Settings" },
];

/// The frame around a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageFrame {
    pub(super) title: String,
    /// The path of the view in the navigation.
    pub(super) section: &'static str,
    /// The path of this view, from which it is refreshed.
    pub(super) path: String,
    pub(super) visitor: Visitor,
    pub(super) version: &'static str,
    pub(super) navigation: [NavigationLink; 7],
}

impl PageFrame {
    pub(super) fn new(
        title: impl Into<String>,
        section: &'static str,
        path: impl Into<String>,
        visitor: Visitor,
    ) -> Self {
        Self {
            title: title.into(),
            section,
            path: path.into(),
            visitor,
            version: env!("CARGO_PKG_VERSION"),
            navigation: NAVIGATION,
        }
    }

    /// The header that each change carries, as htmx reads it.
    pub(super) fn headers_json(&self) -> String {
        serde_json::json!({ "X-CSRF-Token": self.visitor.csrf_token }).to_string()
    }
}

/// How well an object is, by shape and colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Health {
    /// Nothing is wrong with the object.
    Well,
    /// The health is not known, or the object is not in use on purpose.
    Unknown,
    /// The object works, but something is wrong.
    Degraded,
    /// The object does not do its work.
    Failed,
}

impl Health {
    /// The CSS class.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Unknown => "unknown",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }

    /// The word that screen readers get.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Well => "healthy",
            Self::Unknown => "unknown",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }

    /// A sign with a shape of its own, for people who do not see the colours.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Well => "●",
            Self::Unknown => "○",
            Self::Degraded => "▲",
            Self::Failed => "◆",
        }
    }
}
