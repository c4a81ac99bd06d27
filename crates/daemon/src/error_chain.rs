//! Formats errors together with their causes.

use std::fmt::{self, Display, Formatter};

/// An error with its causes. Each cause is printed once, because most error texts of this project already
/// contain their cause.
pub struct ErrorChain<'a>(pub &'a anyhow::Error);

impl Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        for cause in self.0.chain().skip(1) {
            let cause = cause.to_string();
            if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;
    use tailwater_tables::BulkError;

    use super::*;

    #[test]
    fn each_cause_is_printed_once() {
        let source = io::Error::other("no route to the store");
        let error = BulkError::File { action: "list", path: "s3://bucket/x".into(), source };
        let error = Err::<(), _>(error).context("the dump").unwrap_err();
        assert_eq!(
            ErrorChain(&error).to_string(),
            "the dump: cannot list s3://bucket/x: no route to the store"
        );
        // The text of the outer error does not contain its cause.
        let error = Err::<(), _>(io::Error::other("why")).context("what").context("where").unwrap_err();
        assert_eq!(ErrorChain(&error).to_string(), "where: what: why");
    }
}
