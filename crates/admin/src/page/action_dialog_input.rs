//! What a visitor entered in the dialog of an action, and the dialog after a refusal.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use tailwater_daemon::api::daemon_requests::CommandError;

use super::action_dialog::Dialog;

/// What the visitor entered, by the name of the field.
pub(super) type Entered = BTreeMap<String, String>;

/// The dialog again, with what was entered and why it was refused.
pub(super) fn refilled(dialog: Dialog, entered: &Entered, failure: String) -> Dialog {
    Dialog { failure: Some(failure), ..dialog.filled(|name| entered.get(name).cloned()) }
}

/// A refusal of the daemon, with its code.
pub(super) fn failure_text(error: &CommandError) -> String {
    match &error.code {
        Some(code) => format!("{code}: {}", error.message),
        None => error.message.clone(),
    }
}

/// The text of a field; `None` if it is blank.
pub(super) fn text(entered: &Entered, name: &str) -> Option<String> {
    entered.get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// The value of a field; `None` if it is blank.
pub(super) fn parsed<T: FromStr>(entered: &Entered, name: &str, expected: &str) -> Result<Option<T>, String> {
    text(entered, name)
        .map(|value| value.parse().map_err(|_| format!("{name}: {value:?} is not {expected}")))
        .transpose()
}

/// The chosen value of a field; `None` if it is blank.
pub(super) fn chosen<T: DeserializeOwned>(entered: &Entered, name: &str) -> Result<Option<T>, String> {
    let value = text(entered, name);
    let read = value.map(|value| serde_json::from_value(serde_json::Value::String(value)));
    read.transpose().map_err(|error| format!("{name}: {error}"))
}

/// Whether the visitor has repeated the name.
pub(super) fn confirmed(entered: &Entered, name: &str) -> Result<(), String> {
    match text(entered, "confirm") {
        Some(typed) if typed == name => Ok(()),
        _ => Err(format!("Nothing was changed: type {name} to confirm.")),
    }
}
