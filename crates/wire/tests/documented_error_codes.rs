//! Checks that the documentation describes every error code.

use tailwater_wire::WireError;
use tailwater_wire::event_printer::PrintError;

#[test]
fn every_code_is_documented() {
    let page = include_str!("../../../docs/reference/errors.md");
    let what = "event";
    let errors = [
        WireError::Truncated { what, offset: 19, needed: 1 },
        WireError::malformed(what, "a reason"),
        WireError::unsupported(what, "a detail"),
        WireError::Checksum { stored: 1, computed: 2 },
        WireError::TooLarge { what, size: 2, size_max: 1 },
    ];
    for error in &errors {
        // This match makes the compiler report a new variant. Add new variants to the list above too.
        match error {
            WireError::Truncated { .. }
            | WireError::Malformed { .. }
            | WireError::Unsupported { .. }
            | WireError::Checksum { .. }
            | WireError::TooLarge { .. }
            // This variant has the code of the error that it wraps.
            | WireError::Column { .. } => {}
        }
        let row = format!("| {} | ", error.code());
        assert_eq!(page.matches(&row).count(), 1, "docs/reference/errors.md has no row {row}");
    }
    // The errors in this list have codes of their own. Every other error of a printer has one of the codes
    // above.
    let own = [
        PrintError::Output(std::io::Error::other("full")),
        PrintError::NotExact { what: "a row".to_owned(), reason: "a reason".to_owned() },
    ];
    for error in &own {
        assert_eq!(page.matches(&format!("| {} | ", error.code())).count(), 1);
    }
    let documented = page.matches("| TW-WIRE-").count();
    assert_eq!(
        documented,
        errors.len() + own.len(),
        "docs/reference/errors.md describes codes that no error has"
    );
}
