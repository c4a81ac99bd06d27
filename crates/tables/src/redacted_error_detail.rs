//! Details that error messages omit, because they may contain values of rows.

use tailwater_session::ServerError;
use tailwater_wire::sql_redaction::private_text;

use crate::error::BulkError;

impl BulkError {
    /// Returns the detail that the error message omits, for an operator who requests it. Never contains
    /// passwords.
    pub fn private_detail(&self) -> Option<String> {
        let of_server = |error: &ServerError| {
            let private = error.private();
            (private != error.to_string()).then_some(private)
        };
        match self {
            Self::Session(error) => error.private_detail(),
            Self::RowsRejected { error, .. } => error.private_detail(),
            Self::DefinitionRejected { error, .. }
            | Self::RepairDenied { error, .. }
            | Self::IndexesRejected { error, .. } => of_server(error),
            Self::RowsAltered { first, .. } => {
                let private = private_text(first.expose());
                (private != first.to_string()).then_some(private)
            }
            _ => None,
        }
    }
}
