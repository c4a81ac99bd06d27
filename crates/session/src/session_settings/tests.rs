use std::collections::HashSet;

use tailwater_wire::Flavour;

use super::{Accepted, SETTINGS, UNCHANGED, names, settings_of, shipped_value};

#[test]
fn no_variable_is_listed_twice() {
    for (flavour, versions) in [
        (Flavour::MySql, &[(5, 7, 44), (8, 0, 40), (9, 7, 0)]),
        (Flavour::MariaDb, &[(10, 4, 0), (10, 11, 18), (11, 8, 9)]),
    ] {
        for version in versions {
            let mut seen = HashSet::new();
            let unchanged = UNCHANGED.iter().flat_map(|(_, names)| names.iter().copied());
            for name in settings_of(flavour, *version).map(|setting| setting.name).chain(unchanged) {
                assert!(seen.insert(name), "{name} twice, {flavour:?} {version:?}");
            }
        }
    }
}

#[test]
fn a_shipped_value_is_one_that_stays() {
    for setting in SETTINGS {
        for flavour in [Flavour::MySql, Flavour::MariaDb] {
            if let Some(value) = shipped_value(flavour, setting.name)
                && setting.servers.is_of(flavour)
            {
                assert!(setting.accepted.admits(value), "{} = {value}", setting.name);
            }
        }
    }
    assert_eq!(shipped_value(Flavour::MySql, "tx_isolation"), None);
    assert_eq!(shipped_value(Flavour::MySql, "server_id"), None);
}

#[test]
fn values_are_compared_as_servers_spell_them() {
    assert!(Accepted::AtLeast(10).admits("10") && Accepted::AtLeast(10).admits("18446744073709551615"));
    assert!(!Accepted::AtLeast(10).admits("9") && !Accepted::AtLeast(10).admits(""));
    assert!(Accepted::Has("basic").admits("basic,explain") && !Accepted::Has("basic").admits("explain"));
    assert!(Accepted::OneOf(&["a", "b"]).admits("b") && !Accepted::OneOf(&["a", "b"]).admits("c"));
}

#[test]
fn an_unknown_variable_is_found_in_a_message_of_any_language() {
    assert!(names("Unbekannte Systemvariable 'sql_if_exists'", "sql_if_exists"));
    assert!(names("Unknown system variable 'SQL_IF_EXISTS'. This is a Tailwater", "sql_if_exists"));
    assert!(!names("Unknown system variable 'sql_if_exists'", "sql_if"));
}

#[test]
fn the_page_lists_every_setting() {
    let page = include_str!("../../../../docs/reference/session-settings.md");
    for setting in SETTINGS {
        assert!(page.contains(&format!("`{}`", setting.name)), "{} in session-settings.md", setting.name);
    }
}
