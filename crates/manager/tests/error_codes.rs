//! Holds the codes of errors to the page that explains them.

use tailwater_manager::ManagerError;
use tailwater_session::SessionError;

#[test]
fn every_code_is_explained_once_and_no_other() {
    let page = include_str!("../../../docs/reference/errors.md");
    let sources = [include_str!("../src/error.rs"), include_str!("../src/refusal.rs")];
    let lines = sources.iter().flat_map(|source| source.lines());
    let codes: Vec<_> =
        lines.filter_map(|line| line.split_once("=> \"TW-MGR-")?.1.split('"').next()).collect();
    assert!(!codes.is_empty());
    for code in &codes {
        let row = format!("\n| TW-MGR-{code} |");
        assert_eq!(page.matches(&row).count(), 1, "TW-MGR-{code} in docs/reference/errors.md");
    }
    assert_eq!(
        page.matches("\n| TW-MGR-").count(),
        codes.len(),
        "errors.md explains codes that no error has"
    );
    assert!(ManagerError::from(SessionError::OutOfStep).code().starts_with("TW-SES-"));
}
