//! `[messages]`: which messages the daemon logs, and in which form.

use serde::Deserialize;

/// `[messages]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessagesConfig {
    /// Which messages the daemon logs: a level, also for single parts. The environment variable
    /// `TAILWATER_LOG` takes precedence.
    #[serde(default = "default_level")]
    pub level: String,
    /// The form of the messages, and where they go.
    #[serde(default)]
    pub format: MessageFormat,
}

impl Default for MessagesConfig {
    fn default() -> Self {
        Self { level: default_level(), format: MessageFormat::default() }
    }
}

/// `messages.format`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageFormat {
    /// To the journal if standard error is connected to it; otherwise text on a terminal, else JSON.
    #[default]
    Auto,
    /// Lines of text, to standard error.
    Text,
    /// One JSON object in each line, to standard error.
    Json,
    /// Entries with fields, to the journal of systemd.
    Journal,
}

fn default_level() -> String {
    "info".to_owned()
}
