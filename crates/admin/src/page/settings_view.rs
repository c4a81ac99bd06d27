//! The settings in force, with the origin of each. Pure.

use askama::Template;
use tailwater_config::{SectionInForce, SettingInForce, SettingOrigin};

use super::page_layout::PageFrame;

/// All settings.
#[derive(Debug, Template)]
#[template(path = "page/settings.html")]
pub(super) struct SettingsList {
    pub(super) frame: PageFrame,
    pub(super) sections: Vec<SettingsPanel>,
}

/// A section of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SettingsPanel {
    pub(super) section: String,
    pub(super) settings: Vec<SettingRow>,
}

/// A setting, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SettingRow {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) origin: String,
    /// Whether the configuration sets the value.
    pub(super) is_set: bool,
    pub(super) variable: String,
}

impl SettingsList {
    pub(super) fn new(frame: PageFrame, sections: &[SectionInForce]) -> Self {
        let panel = |section: &SectionInForce| SettingsPanel {
            section: section.section.clone(),
            settings: section.settings.iter().map(row).collect(),
        };
        Self { frame, sections: sections.iter().map(panel).collect() }
    }
}

fn row(setting: &SettingInForce) -> SettingRow {
    let origin = match &setting.origin {
        SettingOrigin::File => "file".to_owned(),
        SettingOrigin::Environment(variable) => format!("environment: {variable}"),
        SettingOrigin::Flag => "--set".to_owned(),
        SettingOrigin::Default => "default".to_owned(),
    };
    SettingRow {
        key: setting.key.clone(),
        value: match (&setting.value, &setting.default) {
            (Some(value), _) => value.to_string(),
            (None, Some(default)) => default.clone(),
            (None, None) => "not set".to_owned(),
        },
        is_set: !matches!(setting.origin, SettingOrigin::Default),
        origin,
        variable: setting.variable.clone(),
    }
}
