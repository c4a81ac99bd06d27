use std::collections::HashSet;

use tailwater_wire::Flavour;

use super::{AcceptedValues, SETTINGS, UNCHANGED, default_value, names, settings_for};

#[test]
fn no_variable_is_listed_twice() {
    for (flavour, versions) in [
        (Flavour::MySql, &[(5, 7, 44), (8, 0, 40), (9, 7, 0)]),
        (Flavour::MariaDb, &[(10, 4, 0), (10, 11, 18), (11, 8, 9)]),
    ] {
        for version in versions {
            let mut seen = HashSet::new();
            let unchanged = UNCHANGED.iter().flat_map(|(_, names)| names.iter().copied());
            for name in settings_for(flavour, *version).map(|setting| setting.name).chain(unchanged) {
                assert!(seen.insert(name), "{name} is listed twice for {flavour:?} {version:?}");
            }
        }
    }
}

#[test]
fn calendar_versions_get_the_settings_of_the_newest_numbered_version() {
    let names =
        |version| settings_for(Flavour::MySql, version).map(|setting| setting.name).collect::<Vec<_>>();
    assert_eq!(names((26, 7, 0)), names((9, 7, 0)));
    for setting in SETTINGS {
        let privilege = setting.privilege(Flavour::MySql, (26, 7, 0));
        assert_eq!(privilege, "SESSION_VARIABLES_ADMIN", "{}", setting.name);
    }
}

#[test]
fn every_value_that_is_set_is_also_accepted() {
    for setting in SETTINGS {
        for flavour in [Flavour::MySql, Flavour::MariaDb] {
            if let Some(value) = default_value(flavour, setting.name)
                && setting.servers.is_of(flavour)
            {
                assert!(setting.accepted.admits(value), "{} must accept {value}", setting.name);
            }
        }
    }
    assert_eq!(default_value(Flavour::MySql, "tx_isolation"), None);
    assert_eq!(default_value(Flavour::MySql, "server_id"), None);
}

#[test]
fn values_are_compared_in_the_spelling_of_the_servers() {
    assert!(
        AcceptedValues::AtLeast(10).admits("10")
            && AcceptedValues::AtLeast(10).admits("18446744073709551615")
    );
    assert!(!AcceptedValues::AtLeast(10).admits("9") && !AcceptedValues::AtLeast(10).admits(""));
    assert!(
        AcceptedValues::Has("basic").admits("basic,explain")
            && !AcceptedValues::Has("basic").admits("explain")
    );
    assert!(
        AcceptedValues::OneOf(&["a", "b"]).admits("b") && !AcceptedValues::OneOf(&["a", "b"]).admits("c")
    );
}

#[test]
fn an_unknown_variable_is_found_in_an_error_message_of_any_language() {
    assert!(names("Unbekannte Systemvariable 'sql_if_exists'", "sql_if_exists"));
    assert!(names("Unknown system variable 'SQL_IF_EXISTS'. This is a Tailwater", "sql_if_exists"));
    assert!(!names("Unknown system variable 'sql_if_exists'", "sql_if"));
}

#[test]
fn the_documentation_lists_every_setting() {
    let page = include_str!("../../../../docs/reference/session-settings.md");
    for setting in SETTINGS {
        assert!(
            page.contains(&format!("`{}`", setting.name)),
            "docs/reference/session-settings.md does not list the variable {}",
            setting.name
        );
    }
}
