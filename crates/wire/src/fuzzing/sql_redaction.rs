//! Checks of the redaction of arbitrary statements and error texts.

use crate::sql_redaction::{nth_statement, private_statement, private_text, public_statement, public_text};

/// The minimum length of a value for which the check searches the output. A shorter value may occur by chance
/// in the other words of the output.
const MARK_BYTES_MIN: usize = 8;

/// Checks that the public form of a text does not contain a value of the text, and that every form is one
/// printable line.
pub(super) fn check(data: &[u8]) {
    for bytes_max in [0, 40, 400] {
        for shown in [public_statement(data, bytes_max), private_statement(data, bytes_max)] {
            assert!(
                shown.len() <= bytes_max + 4,
                "the text has {} bytes, but the limit is {bytes_max}",
                shown.len()
            );
            assert!(
                !shown.contains(char::is_control),
                "the shown statement has control characters: {shown:?}"
            );
        }
    }
    assert!(nth_statement(data, 3).len() <= data.len());
    let text = String::from_utf8_lossy(data);
    for shown in [public_text(&text), private_text(&text)] {
        assert!(!shown.contains(char::is_control), "the shown text has control characters: {shown:?}");
    }
    if text.len() < MARK_BYTES_MIN || text.contains(char::is_control) {
        return;
    }
    hides(|value| public_text(&format!("Duplicate entry '{value}' for key 'k'")), &text);
    let literal = text.replace('\\', "\\\\").replace('\'', "''");
    hides(|value| public_statement(format!("INSERT INTO t VALUES ('{value}')").as_bytes(), 4096), &literal);
    let user = |value: &str| format!("CREATE USER u IDENTIFIED BY '{value}' COMMENT 'c'");
    hides(|value| private_statement(user(value).as_bytes(), 4096), &literal);
}

/// Checks that the public form of a text with `value` does not contain the value.
fn hides(shown_of: impl Fn(&str) -> String, value: &str) {
    let (shown, of_another) = (shown_of(value), shown_of("another"));
    assert!(
        !shown.contains(value) || of_another.contains(value),
        "the public form shows the value {value:?}: {shown:?}"
    );
}
