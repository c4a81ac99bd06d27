//! Finds differences between the contents of a target and of a native replica. This module does no I/O.

use serde::Serialize;

use super::server_contents::ServerContents;

/// The kinds of tables. In [`ServerContents`], the name of a table's definition starts with one of them.
const TABLE_KINDS: [&str; 2] = ["base table", "system versioned"];
/// Maximum number of lines that are shown of each side of a difference.
const LINES_SHOWN_MAX: usize = 4;
/// Maximum number of characters that are shown of a line.
const LINE_CHARS_MAX: usize = 600;

/// An object that differs between a channel's target and a native replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContentDifference {
    /// Name of the object, such as a table or `accounts`; or which follower stopped.
    pub what: String,
    /// Lines that only the native replica has.
    pub native: Vec<String>,
    /// Lines that only the target has.
    pub target: Vec<String>,
    /// Lines that the primary has; `None` if the primary was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<Vec<String>>,
    /// Whether the difference may be a consequence of an earlier stop or difference in the same file.
    pub secondary: bool,
    /// Whether the target agrees with the primary. Then the native replica is the one that differs.
    #[serde(skip)]
    pub native_only: bool,
}

/// Returns all objects that differ between native replica and target.
pub fn differences(
    native: &ServerContents,
    target: &ServerContents,
    primary: Option<&ServerContents>,
) -> Vec<ContentDifference> {
    let names: std::collections::BTreeSet<&String> = native.keys().chain(target.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        let (of_native, of_target) = (native.get(name), target.get(name));
        if of_native == of_target {
            continue;
        }
        let has = |side: Option<&Vec<String>>| match side {
            Some(lines) if lines.is_empty() => vec!["(empty)".to_owned()],
            Some(lines) => lines.clone(),
            None => vec!["(not there)".to_owned()],
        };
        let (of_native, of_target) = (has(of_native), has(of_target));
        found.push(ContentDifference {
            what: name.clone(),
            native: shown(&only_in(&of_native, &of_target)),
            target: shown(&only_in(&of_target, &of_native)),
            primary: primary.map(|primary| shown(&only_in(&has(primary.get(name)), &[]))),
            secondary: false,
            native_only: primary.is_some_and(|primary| primary.get(name) == target.get(name)),
        });
    }
    found
}

/// Returns the quoted names of the tables that native replica and target both have, and whose definitions
/// differ.
pub fn tables_with_other_definitions(native: &ServerContents, target: &ServerContents) -> Vec<String> {
    let differs = |(name, definition): &(&String, &Vec<String>)| {
        target.get(*name).is_some_and(|of_target| of_target != *definition)
    };
    let table = |(name, _): (&String, &Vec<String>)| {
        TABLE_KINDS.iter().find_map(|kind| name.strip_prefix(kind)?.strip_prefix(' ')).map(str::to_owned)
    };
    native.iter().filter(differs).filter_map(table).collect()
}

/// Returns the lines that occur more often in `these` than in `those`. Both are sorted.
fn only_in(these: &[String], those: &[String]) -> Vec<String> {
    let mut rest = those.iter().peekable();
    let mut only = Vec::new();
    for line in these {
        while rest.next_if(|other| *other < line).is_some() {}
        if rest.next_if(|other| *other == line).is_none() {
            only.push(line.clone());
        }
    }
    only
}

fn shown(lines: &[String]) -> Vec<String> {
    let mut shown: Vec<String> =
        lines.iter().take(LINES_SHOWN_MAX).map(|line| line.chars().take(LINE_CHARS_MAX).collect()).collect();
    if lines.len() > LINES_SHOWN_MAX {
        shown.push(format!("... and {} more", lines.len() - LINES_SHOWN_MAX));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(entries: &[(&str, &[&str])]) -> ServerContents {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        entries.iter().map(|(name, values)| ((*name).to_owned(), lines(values))).collect()
    }

    #[test]
    fn equal_native_and_target_give_no_difference() {
        let both = state(&[("rows of t", &["1", "2"])]);
        let primary = state(&[("rows of t", &["1"])]);
        assert_eq!(differences(&both, &both.clone(), Some(&primary)), []);
    }

    #[test]
    fn if_the_target_agrees_with_the_primary_the_native_replica_differs() {
        let (native, target) =
            (state(&[("a", &["1"]), ("b", &["1"])]), state(&[("a", &["2"]), ("b", &["2"])]));
        let found = differences(&native, &target, Some(&state(&[("a", &["2"]), ("b", &["3"])])));
        assert_eq!(found.iter().map(|found| found.native_only).collect::<Vec<_>>(), [true, false]);
        assert!(differences(&native, &target, None).iter().all(|found| !found.native_only));
    }

    #[test]
    fn changed_missing_and_extra_lines_are_found() {
        let native = state(&[("a", &["1", "2", "2"]), ("b", &["x"]), ("c", &[]), ("e", &["same"])]);
        let target = state(&[("a", &["1", "2", "3"]), ("c", &["y"]), ("d", &["z"]), ("e", &["same"])]);
        let found = differences(&native, &target, None);
        let seen: Vec<_> =
            found.iter().map(|d| (d.what.as_str(), d.native.concat(), d.target.concat())).collect();
        let want =
            [("a", "2", "3"), ("b", "x", "(not there)"), ("c", "(empty)", "y"), ("d", "(not there)", "z")];
        assert_eq!(seen, want.map(|(what, native, target)| (what, native.to_owned(), target.to_owned())));
    }

    #[test]
    fn tables_with_other_definitions_are_named() {
        let native = state(&[
            ("base table `d`.`a`", &["x"]),
            ("base table `d`.`b`", &["x"]),
            ("base table `d`.`only native`", &["x"]),
            ("rows of `d`.`c`", &["x"]),
            ("system versioned `d`.`e`", &["x"]),
        ]);
        let target = state(&[
            ("base table `d`.`a`", &["x"]),
            ("base table `d`.`b`", &["y"]),
            ("rows of `d`.`c`", &["y"]),
            ("system versioned `d`.`e`", &["y"]),
        ]);
        assert_eq!(tables_with_other_definitions(&native, &target), ["`d`.`b`", "`d`.`e`"]);
    }

    #[test]
    fn an_extra_duplicate_row_is_found() {
        let native = state(&[("rows", &["1", "1", "1"])]);
        let target = state(&[("rows", &["1", "1"])]);
        assert_eq!(differences(&native, &target, None).len(), 1);
        assert_eq!(differences(&target, &native, None).len(), 1);
    }
}
