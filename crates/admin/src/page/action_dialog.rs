//! The form of an action, in a dialog.

use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};

use super::page_error::PageError;

/// An action with its form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "page/dialog.html")]
pub(super) struct Dialog {
    pub(super) title: String,
    /// Where the form is sent.
    pub(super) action: String,
    /// What the action does, one paragraph each.
    pub(super) intro: Vec<String>,
    pub(super) fields: Vec<DialogField>,
    /// The label of the button.
    pub(super) submit: String,
    /// The label of the button that closes the dialog; `Cancel` if empty.
    pub(super) dismiss: &'static str,
    /// Whether the action may interrupt clients or lose data.
    pub(super) is_dangerous: bool,
    /// Why the action was refused.
    pub(super) failure: Option<String>,
}

/// A field of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DialogField {
    pub(super) name: &'static str,
    pub(super) label: String,
    pub(super) hint: String,
    pub(super) value: String,
    pub(super) is_required: bool,
    pub(super) input: DialogInput,
}

/// How a field is entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DialogInput {
    Text,
    Number,
    Lines,
    /// Exactly this text.
    Repeat(String),
    Check,
    /// One of these values, each with its label.
    Choice(Vec<(String, String)>),
}

impl DialogField {
    pub(super) fn new(name: &'static str, label: impl Into<String>, input: DialogInput) -> Self {
        let (label, hint, value) = (label.into(), String::new(), String::new());
        Self { name, label, hint, value, is_required: false, input }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    pub(super) fn value(self, value: impl Into<String>) -> Self {
        Self { value: value.into(), ..self }
    }

    pub(super) fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// A field in which the visitor repeats a name, so that no dangerous action is started by mistake.
    pub(super) fn confirmation(name: &str) -> Self {
        Self::new("confirm", format!("Type {name} to confirm"), DialogInput::Repeat(name.to_owned()))
            .required()
    }

    fn is_choice(&self, value: &str) -> bool {
        self.value == value
    }
}

impl Dialog {
    /// Fills the fields with what the visitor entered.
    pub(super) fn filled(mut self, value_of: impl Fn(&str) -> Option<String>) -> Self {
        for field in &mut self.fields {
            if let Some(value) = value_of(field.name) {
                field.value = value;
            }
        }
        self
    }

    /// The dialog as a response.
    pub(super) fn show(&self) -> Result<Response, PageError> {
        let status = if self.failure.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
        Ok((status, Html(self.render()?)).into_response())
    }
}

/// The response to an action that was done: the page closes the dialog and announces the message.
pub(super) fn done(message: &str) -> Response {
    let detail = serde_json::json!({ "tailwater:done": { "message": message } }).to_string();
    // Header values are ASCII.
    let ascii: String = detail
        .chars()
        .map(|letter| match letter {
            ' '..='~' => letter.to_string(),
            other => other.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        })
        .collect();
    let value = HeaderValue::from_str(&ascii).unwrap_or(HeaderValue::from_static("tailwater:done"));
    (StatusCode::NO_CONTENT, [(HeaderName::from_static("hx-trigger"), value)]).into_response()
}

/// The response to an action whose result has a view of its own.
pub(super) fn go_to(path: &str) -> Response {
    let value = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::NO_CONTENT, [(HeaderName::from_static("hx-redirect"), value)]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_header() {
        let response = done("channel “ü”: stopped\n💧");
        let header = response.headers()["hx-trigger"].to_str().expect("ASCII");
        let parsed: serde_json::Value = serde_json::from_str(header).expect("JSON");
        assert_eq!(parsed["tailwater:done"]["message"], "channel “ü”: stopped\n💧");
    }

    #[test]
    fn text_is_escaped() -> askama::Result<()> {
        let field = DialogField::confirmation("<b>\"x\"");
        let dialog = Dialog { title: "<script>".to_owned(), fields: vec![field], ..Dialog::default() };
        let html = dialog.render()?;
        assert!(!html.contains("<script>") && !html.contains("<b>"), "the dialog has unescaped text: {html}");
        Ok(())
    }
}
