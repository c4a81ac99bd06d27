//! Checks that the documentation explains each error code and each safety rule.

use tailwater_manager::ManagerError;
use tailwater_session::SessionError;

#[test]
fn each_error_code_is_documented_once_and_no_other_code_is() {
    let page = include_str!("../../../docs/reference/errors.md");
    let sources = [
        include_str!("../src/error.rs"),
        include_str!("../../topology/src/error.rs"),
        include_str!("../src/safety_refusals.rs"),
    ];
    let lines = sources.iter().flat_map(|source| source.lines());
    let codes: Vec<_> =
        lines.filter_map(|line| line.split_once("=> \"TW-MGR-")?.1.split('"').next()).collect();
    assert!(!codes.is_empty());
    for code in &codes {
        let row = format!("\n| TW-MGR-{code} |");
        assert_eq!(
            page.matches(&row).count(),
            1,
            "docs/reference/errors.md must have one row for TW-MGR-{code}"
        );
    }
    assert_eq!(
        page.matches("\n| TW-MGR-").count(),
        codes.len(),
        "errors.md explains codes that do not exist"
    );
    assert!(ManagerError::from(SessionError::OutOfStep).code().starts_with("TW-SES-"));
}

#[test]
fn each_safety_rule_has_a_section_that_says_what_to_do() {
    let page = include_str!("../../../docs/reference/safety-rules.md");
    let source = include_str!("../src/safety_refusals.rs");
    let codes: Vec<_> =
        source.lines().filter_map(|line| line.split_once("=> \"TW-MGR-")?.1.split('"').next()).collect();
    assert!(!codes.is_empty());
    let sections: Vec<&str> = page.split("\n## TW-MGR-").skip(1).collect();
    for code in &codes {
        let mut found = sections.iter().filter_map(|section| section.strip_prefix(code));
        let text = found
            .next()
            .unwrap_or_else(|| panic!("docs/reference/safety-rules.md has no section TW-MGR-{code}"));
        assert!(text.trim().len() > 100, "the section TW-MGR-{code} is too short: {text}");
        assert!(found.next().is_none(), "TW-MGR-{code} has two sections");
    }
    assert_eq!(sections.len(), codes.len(), "safety-rules.md has sections of codes that do not exist");
}
