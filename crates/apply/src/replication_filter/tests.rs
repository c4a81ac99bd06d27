//! Examples of filters, and properties of patterns and of combined rules.

use proptest::prelude::*;
use tailwater_log::LogPosition;

use super::table_name_pattern::Pattern;
use super::*;

fn filters(json: &str) -> Filters {
    set(json).compile().expect(json)
}

fn set(json: &str) -> FilterSet {
    serde_json::from_str(json).expect(json)
}

/// Returns the target table for rows inserted into a table; `-` if they are excluded.
fn inserted(filters: &Filters, table: &str) -> String {
    let (schema, name) = table.split_once('.').expect("the name must be SCHEMA.TABLE");
    match filters.route(schema, name, Operation::Insert) {
        FilterRoute::Keep => table.to_owned(),
        FilterRoute::Drop => "-".to_owned(),
        FilterRoute::Rename { schema, table } => format!("{schema}.{table}"),
    }
}

#[test]
fn tables_are_written_where_the_rules_say() {
    let cases: &[(&str, &[(&str, &str)])] = &[
        ("{}", &[("a.b", "a.b")]),
        (r#"{"include": ["shop.*"]}"#, &[("shop.orders", "shop.orders"), ("shops.a", "-"), ("a.b", "-")]),
        (r#"{"exclude": ["*.tmp?_*"]}"#, &[("a.tmp1_", "-"), ("a.tmp_1", "a.tmp_1"), ("a.tmp", "a.tmp")]),
        (
            r#"{"include": ["shop.*", "crm.people"], "exclude": ["shop.audit"]}"#,
            &[("shop.audit", "-"), ("crm.people", "crm.people"), ("crm.notes", "-"), ("shop.x", "shop.x")],
        ),
        (
            r#"{"rewrite": [{"from": "shop.orders", "to": "old.sales"}, {"from": "shop.*", "to": "copy.*"}]}"#,
            &[("shop.orders", "old.sales"), ("shop.Orders", "copy.Orders"), ("other.orders", "other.orders")],
        ),
        (
            r#"{"rewrite": [{"from": "a.x", "to": "a.y"}, {"from": "a.y", "to": "a.x"}]}"#,
            &[("a.x", "a.y"), ("a.y", "a.x")],
        ),
        (
            r#"{"ignore_case": true, "include": ["Shop.*"], "rewrite": [{"from": "SHOP.a", "to": "New.A"}]}"#,
            &[("sHOP.A", "New.A"), ("shop.B", "shop.B"), ("x.a", "-")],
        ),
        (r#"{"exclude": ["`a*`.b"]}"#, &[("a*.b", "-"), ("ab.b", "ab.b")]),
        (r#"{"exclude": ["*.*"], "include": []}"#, &[("a.b", "-")]),
    ];
    for (json, tables) in cases {
        let filters = filters(json);
        for (table, expected) in *tables {
            assert_eq!(
                inserted(&filters, table),
                *expected,
                "wrong target for {table} under the filters {json}"
            );
        }
    }
}

#[test]
fn names_in_backquotes_may_contain_any_character() {
    let filters = filters(r#"{"exclude": ["`my.db`.`odd``name`"]}"#);
    assert_eq!(filters.route("my.db", "odd`name", Operation::Insert), FilterRoute::Drop);
    assert_eq!(filters.route("my.db", "oddname", Operation::Insert), FilterRoute::Keep);
}

#[test]
fn a_rule_may_cover_only_some_operations() {
    let filters = filters(r#"{"exclude": [{"tables": "shop.log", "operations": ["delete", "ddl"]}]}"#);
    let kept: Vec<bool> =
        Operation::ALL.iter().map(|operation| filters.table("shop", "log").keeps(*operation)).collect();
    assert_eq!(kept, [true, true, false, false]);
}

#[test]
fn invalid_rules_are_rejected_with_a_reason() {
    let cases = [
        (r#"{"include": ["shop"]}"#, "\"shop\" is not a pattern: expected SCHEMA.TABLE"),
        (r#"{"include": ["a.b.c"]}"#, "more than two parts"),
        (r#"{"include": ["a."]}"#, "one part of the pattern is empty"),
        (r#"{"include": ["a.`b"]}"#, "closing backquote is missing"),
        (r#"{"include": ["a.x`b`"]}"#, "backquote in the middle"),
        (
            r#"{"include": ["a.b"], "exclude": ["a.*"]}"#,
            "\"a.b\" and \"a.*\" conflict: the second excludes everything",
        ),
        (r#"{"rewrite": [{"from": "a.b", "to": "a.b"}]}"#, "the rewrite changes nothing"),
        (r#"{"rewrite": [{"from": "a.b", "to": "c.*"}]}"#, "a rewrite must rename one table"),
        (r#"{"rewrite": [{"from": "a.b*", "to": "c.d*"}]}"#, "a rewrite must rename one table"),
        (
            r#"{"rewrite": [{"from": "a.b", "to": "c.d"}, {"from": "a.b", "to": "e.f"}]}"#,
            "has the same source name",
        ),
        (
            r#"{"rewrite": [{"from": "a.b", "to": "c.d"}, {"from": "e.f", "to": "c.d"}]}"#,
            "has the same target name",
        ),
        (
            r#"{"rewrite": [{"from": "a.*", "to": "c.*"}, {"from": "b.*", "to": "c.*"}]}"#,
            "has the same target name",
        ),
        (
            r#"{"exclude": ["a.*"], "rewrite": [{"from": "a.b", "to": "c.d"}]}"#,
            "exclude all tables of the rewrite",
        ),
        (
            r#"{"include": ["x.*"], "rewrite": [{"from": "a.*", "to": "c.*"}]}"#,
            "include no table of the rewrite",
        ),
    ];
    for (json, expected) in cases {
        let error = set(json).compile().expect_err(json).to_string();
        assert!(error.contains(expected), "wrong reason for the invalid filters {json}: {error}");
    }
}

#[test]
fn unknown_keys_and_operations_are_rejected() {
    for json in [
        r#"{"includes": []}"#,
        r#"{"include": [{"tables": "a.b", "operation": []}]}"#,
        r#"{"include": [{"tables": "a.b", "operations": ["truncate"]}]}"#,
    ] {
        assert!(serde_json::from_str::<FilterSet>(json).is_err(), "this JSON must be rejected: {json}");
    }
}

#[test]
fn two_tables_are_not_written_to_one() {
    let mut router = Router::new(filters(r#"{"rewrite": [{"from": "shop.*", "to": "copy.*"}]}"#));
    router.table("shop", "orders").expect("the first table must be routed");
    router.table("copy", "other").expect("another table must be routed");
    let error = router.table("copy", "orders").expect_err("the second table must conflict");
    let expected = "shop.orders and copy.orders of the source would both be written to copy.orders";
    assert!(error.to_string().contains(expected), "wrong error: {error}");
    // A second lookup reports the conflict again, and earlier decisions are still valid.
    router.table("copy", "orders").expect_err("the conflict must be reported again");
    assert_eq!(
        router.table("shop", "orders").expect("the first table must still be routed").renamed(),
        Some(("copy", "orders"))
    );
}

#[test]
fn statements_are_redirected_excluded_or_rejected() {
    let json = r#"{"exclude": ["shop.tmp"], "rewrite": [{"from": "shop.orders", "to": "shop.sales"},
        {"from": "crm.*", "to": "copy.*"}, {"from": "crm.odd", "to": "odd.odd"}]}"#;
    let filters = filters(json);
    let run_in = |schema: &str| StatementRoute::RunIn { schema: schema.to_owned() };
    let refused = |reason: &str| StatementRoute::Refuse(reason.to_owned());
    type NamedObject = (Option<&'static str>, Option<&'static str>);
    let cases: &[(Option<&str>, &[NamedObject], StatementRoute)] = &[
        (None, &[(Some("shop"), Some("a"))], StatementRoute::Run),
        (Some("crm"), &[(Some("shop"), Some("a"))], StatementRoute::Run),
        (None, &[(Some("shop"), Some("tmp"))], StatementRoute::Drop),
        (Some("shop"), &[(None, Some("tmp"))], StatementRoute::Drop),
        (
            Some("shop"),
            &[(None, Some("tmp")), (None, Some("a"))],
            refused("the statement changes shop.tmp, which is excluded, and shop.a, which is not"),
        ),
        (
            Some("shop"),
            &[(None, Some("orders"))],
            refused("the statement names shop.orders, which is written to shop.sales"),
        ),
        (Some("crm"), &[(None, Some("people"))], run_in("copy")),
        (
            None,
            &[(Some("crm"), Some("people"))],
            refused("the statement names crm.people, which is written to copy.people"),
        ),
        (
            Some("crm"),
            &[(None, Some("people")), (Some("shop"), Some("a"))],
            refused("the statement changes shop.a, and other tables that are written to copy"),
        ),
        (
            Some("crm"),
            &[(None, Some("people")), (None, Some("odd"))],
            refused("the statement's tables are written to more than one database, crm.odd to odd"),
        ),
        (
            None,
            &[(None, Some("people"))],
            refused("the statement names a table without a database, and has no default database"),
        ),
        (None, &[], StatementRoute::Run),
        (Some("shop"), &[], StatementRoute::Run),
        (Some("crm"), &[], run_in("copy")),
        (None, &[(Some("crm"), None)], refused("the statement names crm, which is written to copy")),
        (
            None,
            &[(Some("shop"), None)],
            refused("the statement names shop, which is written to more than one database"),
        ),
        (None, &[(Some("other"), None)], StatementRoute::Run),
    ];
    for (default, named, expected) in cases {
        let tables: Vec<_> =
            named.iter().map(|(schema, table)| StatementTable { schema: *schema, table: *table }).collect();
        assert_eq!(
            filters.statement_route(*default, &tables, Operation::Ddl),
            *expected,
            "wrong decision for a statement on {named:?} with the default database {default:?}"
        );
    }
}

#[test]
fn ddl_of_a_database_is_applied_if_any_of_its_tables_is() {
    let database = |schema| [StatementTable { schema: Some(schema), table: None }];
    let kept = |json: &str, schema| filters(json).statement_route(None, &database(schema), Operation::Ddl);
    assert_eq!(kept(r#"{"exclude": ["shop.*"]}"#, "shop"), StatementRoute::Drop);
    assert_eq!(kept(r#"{"exclude": ["shop.a"]}"#, "shop"), StatementRoute::Run);
    assert_eq!(kept(r#"{"include": ["shop.a"]}"#, "shop"), StatementRoute::Run);
    assert_eq!(kept(r#"{"include": ["shop.a"]}"#, "other"), StatementRoute::Drop);
}

fn at(segment: u64, offset: u64) -> LogPosition {
    LogPosition { segment, offset }
}

#[test]
fn an_edit_takes_effect_at_its_transaction_and_survives_a_restart() {
    let mut versions =
        VersionedFilters::new(FilterSet::default()).expect("an empty filter set must be valid");
    let edit = |json: &str| set(&format!(r#"{{"exclude": ["{json}"]}}"#));
    assert_eq!(versions.edit(at(1, 100), Some("0-1-7".into()), edit("a.*")), Ok(2));
    assert_eq!(versions.edit(at(2, 4), None, edit("b.*")), Ok(3));
    assert_eq!(versions.edit(at(2, 4), None, edit("c.*")), Ok(4));
    let error = versions
        .edit(at(1, 900), None, FilterSet::default())
        .expect_err("an edit at a position before the last edit must be rejected");
    assert_eq!(
        error.to_string(),
        "filter: an edit that takes effect at 1:900 cannot follow an edit at 2:4; the earliest possible position is 2:4"
    );
    assert!(versions.edit(at(3, 4), None, edit("nonsense")).is_err());

    let json = serde_json::to_string(&versions).expect("the filters must be convertible to JSON");
    let mut again: VersionedFilters = serde_json::from_str(&json).expect(&json);
    assert_eq!(again, versions);
    let numbers = |versions: &VersionedFilters| {
        [at(0, 0), at(1, 99), at(1, 100), at(1, 101), at(2, 3), at(2, 4), at(9, 9)]
            .map(|at| versions.at(at).version)
    };
    assert_eq!(numbers(&again), [1, 1, 2, 2, 2, 4, 4]);
    assert_eq!(
        (again.next_change(at(1, 4)), again.next_change(at(1, 100))),
        (Some(at(1, 100)), Some(at(2, 4)))
    );
    assert_eq!((again.next_change(at(2, 4)), again.newest().version), (None, 4));

    again.forget_below(at(1, 100));
    assert_eq!(numbers(&again)[2..], numbers(&versions)[2..]);
    again.forget_below(at(7, 4));
    assert_eq!((again.at(at(7, 4)).version, again.next_change(at(7, 4))), (4, None));
}

#[test]
fn damaged_versions_are_rejected() {
    let one = r#"{"version": 1, "from": "1:4", "filters": {}}"#;
    let two = r#"{"version": 2, "from": "1:9", "filters": {}}"#;
    assert!(serde_json::from_str::<VersionedFilters>(&format!("[{one}, {two}]")).is_ok());
    for json in [
        "[]".to_owned(),
        format!("[{two}, {one}]"),
        format!("[{one}, {one}]"),
        one.replace("1:4", "4"),
        format!("[{}]", one.replace("1:4", "1:-4")),
        format!("[{}]", one.replace("{}", r#"{"include": ["a"]}"#)),
    ] {
        assert!(
            serde_json::from_str::<VersionedFilters>(&json).is_err(),
            "this JSON must be rejected: {json}"
        );
    }
}

/// A simple implementation of patterns with wildcards.
fn naive_glob(glob: &[char], name: &[char]) -> bool {
    match glob.split_first() {
        None => name.is_empty(),
        Some(('*', rest)) => (0..=name.len()).any(|taken| naive_glob(rest, &name[taken..])),
        Some((first, rest)) => name
            .split_first()
            .is_some_and(|(own, after)| (*first == '?' || first == own) && naive_glob(rest, after)),
    }
}

fn any_name() -> impl Strategy<Value = String> {
    "[abä]{1,6}"
}

fn any_pattern() -> impl Strategy<Value = String> {
    prop_oneof![Just("*".to_owned()), any_name(), "[abä*?]{1,6}"]
}

fn any_rules() -> impl Strategy<Value = Vec<Rule>> {
    let operations = prop::sample::subsequence(Operation::ALL.to_vec(), 0..=4);
    let rule = (any_pattern(), any_pattern(), operations)
        .prop_map(|(schema, table, operations)| Rule { tables: format!("{schema}.{table}"), operations });
    prop::collection::vec(rule, 0..4)
}

fn any_rewrites() -> impl Strategy<Value = Vec<Rewrite>> {
    let rewrite =
        ("[ab]{1,2}", prop::option::of("[ab]{1,2}"), "[ab]{1,2}").prop_map(|(schema, table, to)| {
            let table = table.unwrap_or_else(|| "*".to_owned());
            Rewrite { from: format!("{schema}.{table}"), to: format!("{to}.{table}") }
        });
    prop::collection::vec(rewrite, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn patterns_match_like_the_simple_implementation(glob in any_pattern(), name in any_name()) {
        let pattern = Pattern::parse(&format!("{glob}.t"), false).expect("the pattern must be valid");
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        prop_assert_eq!(pattern.matches(&name, "t"), naive_glob(&chars(&glob), &chars(&name)));
    }

    /// Parsing any text gives either an error, or a pattern that matches at least one name.
    #[test]
    fn any_text_is_an_error_or_a_valid_pattern(text in "[ab.*?` ]{0,12}", ignore_case in any::<bool>()) {
        if let Ok(pattern) = Pattern::parse(&text, ignore_case) {
            let _ = pattern.matches("a", "b");
            prop_assert!(text.contains('.'));
        }
    }

    #[test]
    fn combined_rules_decide_as_each_rule_says(
        (include, exclude, rewrite) in (any_rules(), any_rules(), any_rewrites()),
        tables in prop::collection::vec(("[ab]{1,2}", "[ab]{1,2}"), 1..10),
    ) {
        let set = FilterSet { include, exclude, rewrite, ignore_case: false };
        let Ok(filters) = set.compile() else { return Ok(()) };
        let matches = |rules: &[Rule], schema: &str, table: &str, operation| rules.iter().any(|rule| {
            let (own_schema, own_table) = rule.tables.split_once('.').expect("the pattern must have two parts");
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            (rule.operations.is_empty() || rule.operations.contains(&operation))
                && naive_glob(&chars(own_schema), &chars(schema))
                && naive_glob(&chars(own_table), &chars(table))
        });
        for ((schema, table), operation) in tables.iter().flat_map(|table| Operation::ALL.map(|operation| (table, operation))) {
            let kept = (set.include.is_empty() || matches(&set.include, schema, table, operation))
                && !matches(&set.exclude, schema, table, operation);
            let to = |from: String| set.rewrite.iter().find(|rewrite| rewrite.from == from).map(|rewrite| rewrite.to.clone());
            let to = to(format!("{schema}.{table}")).or_else(|| to(format!("{schema}.*"))).map(|to| to.replace('*', table));
            let expected = match to.as_deref().and_then(|to| to.split_once('.')) {
                _ if !kept => FilterRoute::Drop,
                Some((schema, table)) => FilterRoute::Rename { schema: schema.into(), table: table.into() },
                None => FilterRoute::Keep,
            };
            prop_assert_eq!(filters.route(schema, table, operation), expected);
        }
        // Rules that are converted to JSON and back give the same decisions.
        let json = serde_json::to_string(&set).expect("the filters must be convertible to JSON");
        prop_assert_eq!(serde_json::from_str::<FilterSet>(&json).expect("the filters must be readable from their JSON"), set);
    }
}
