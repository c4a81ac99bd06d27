//! Tests with documents from a test-only encoder and from a server, and with arbitrary bytes.

use proptest::prelude::*;

use super::*;

/// The input of the test encoder.
#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    String(String),
    Opaque(u8, Vec<u8>),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

/// Encodes a document. All containers are in the large form if `large` is true, otherwise in the small form.
fn encode(tree: &Tree, large: bool) -> Vec<u8> {
    let (tag, body) = encode_value(tree, large);
    let mut out = vec![tag];
    out.extend(body);
    out
}

fn variable(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut length) = (Vec::new(), bytes.len());
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

fn encode_value(tree: &Tree, large: bool) -> (u8, Vec<u8>) {
    match tree {
        Tree::Null => (tag::LITERAL, vec![0]),
        Tree::Bool(value) => (tag::LITERAL, vec![if *value { 1 } else { 2 }]),
        Tree::Int(value) => match (i16::try_from(*value), i32::try_from(*value)) {
            (Ok(value), _) => (tag::INT16, value.to_le_bytes().to_vec()),
            (_, Ok(value)) => (tag::INT32, value.to_le_bytes().to_vec()),
            _ => (tag::INT64, value.to_le_bytes().to_vec()),
        },
        Tree::UInt(value) => match (u16::try_from(*value), u32::try_from(*value)) {
            (Ok(value), _) => (tag::UINT16, value.to_le_bytes().to_vec()),
            (_, Ok(value)) => (tag::UINT32, value.to_le_bytes().to_vec()),
            _ => (tag::UINT64, value.to_le_bytes().to_vec()),
        },
        Tree::Double(value) => (tag::DOUBLE, value.to_le_bytes().to_vec()),
        Tree::String(text) => (tag::STRING, variable(text.as_bytes())),
        Tree::Opaque(kind, bytes) => {
            let mut out = vec![*kind];
            out.extend(variable(bytes));
            (tag::OPAQUE, out)
        }
        Tree::Array(cells) => {
            let cells: Vec<_> = cells.iter().map(|cell| (None, cell)).collect();
            (if large { tag::LARGE_ARRAY } else { tag::SMALL_ARRAY }, encode_members(&cells, large))
        }
        Tree::Object(members) => {
            let mut members: Vec<_> =
                members.iter().map(|(key, value)| (Some(key.as_bytes()), value)).collect();
            members.sort_by(|(one, _), (other, _)| key_order(one.unwrap(), other.unwrap()));
            (if large { tag::LARGE_OBJECT } else { tag::SMALL_OBJECT }, encode_members(&members, large))
        }
    }
}

fn encode_members(members: &[(Option<&[u8]>, &Tree)], large: bool) -> Vec<u8> {
    let number = |value: usize| (value as u32).to_le_bytes()[..if large { 4 } else { 2 }].to_vec();
    let width = number(0).len();
    let key_entries: usize = members.iter().map(|(key, _)| key.map_or(0, |_| width + 2)).sum();
    let head = 2 * width + key_entries + members.len() * (width + 1);
    let (mut keys, mut entries, mut tail) = (Vec::new(), Vec::new(), Vec::new());
    let all_keys: Vec<u8> = members.iter().filter_map(|(key, _)| *key).flatten().copied().collect();
    let mut key_at = head;
    for (key, value) in members {
        if let Some(key) = key {
            keys.extend(number(key_at));
            keys.extend((key.len() as u16).to_le_bytes());
            key_at += key.len();
        }
        let (tag, body) = encode_value(value, large);
        entries.push(tag);
        if is_inlined(tag, large) {
            let mut body = body;
            body.resize(width, 0);
            entries.extend(body);
        } else {
            entries.extend(number(head + all_keys.len() + tail.len()));
            tail.extend(body);
        }
    }
    let size = head + all_keys.len() + tail.len();
    [number(members.len()), number(size), keys, entries, all_keys, tail].concat()
}

fn read(value: JsonValue<'_>) -> Tree {
    match value.decode().unwrap() {
        JsonNode::Null => Tree::Null,
        JsonNode::Bool(value) => Tree::Bool(value),
        JsonNode::Int(value) => Tree::Int(value),
        JsonNode::UInt(value) => Tree::UInt(value),
        JsonNode::Double(value) => Tree::Double(value),
        JsonNode::String(text) => Tree::String(String::from_utf8(text.to_vec()).unwrap()),
        JsonNode::Opaque { field_type, bytes } => Tree::Opaque(field_type, bytes.to_vec()),
        JsonNode::Array(array) => {
            Tree::Array((0..array.len()).map(|index| read(array.get(index).unwrap())).collect())
        }
        JsonNode::Object(object) => Tree::Object(
            (0..object.len())
                .map(|index| {
                    let (key, value) = object.member(index).unwrap();
                    (String::from_utf8(key.to_vec()).unwrap(), read(value))
                })
                .collect(),
        ),
        other => panic!("the test encoder does not create {other:?}"),
    }
}

fn any_tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Null),
        any::<bool>().prop_map(Tree::Bool),
        any::<i64>().prop_map(Tree::Int),
        any::<i16>().prop_map(|value| Tree::Int(value.into())),
        any::<u32>().prop_map(|value| Tree::UInt(value.into())),
        any::<u64>().prop_map(Tree::UInt),
        prop::num::f64::NORMAL.prop_map(Tree::Double),
        "\\PC{0,9}".prop_map(Tree::String),
        "[\\x00-\\x7f]{0,200}".prop_map(Tree::String),
        any::<Vec<u8>>().prop_map(|bytes| Tree::Opaque(type_code::BLOB, bytes)),
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Tree::Array),
            proptest::collection::btree_map("[a-c]{0,3}", inner, 0..8).prop_map(|members| {
                let mut members: Vec<_> = members.into_iter().collect();
                members.sort_by(|(one, _), (other, _)| key_order(one.as_bytes(), other.as_bytes()));
                Tree::Object(members)
            }),
        ]
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(JsonBinary::parse(bytes).unwrap().to_text().unwrap()).unwrap()
}

/// Encodes a document of nested arrays with this `depth`.
fn nested(depth: usize) -> Vec<u8> {
    let tree = (0..depth).fold(Tree::Null, |tree, _| Tree::Array(vec![tree]));
    encode(&tree, false)
}

#[test]
fn every_kind_of_value_is_printed_as_by_the_server() {
    let tree = Tree::Object(vec![
        ("b".into(), Tree::Array(vec![Tree::Null, Tree::Bool(true), Tree::Int(-1), Tree::UInt(u64::MAX)])),
        ("aa".into(), Tree::String("\"\\\u{8}\u{c}\n\r\t\u{1}\u{7f}/\u{e9}".into())),
        ("a".into(), Tree::Double(1.0)),
        ("".into(), Tree::Opaque(type_code::BLOB, b"foob".to_vec())),
        ("c".into(), Tree::Opaque(type_code::VAR_STRING, b"text".to_vec())),
    ]);
    let expected = "{\"\": \"base64:type252:Zm9vYg==\", \"a\": 1.0, \"b\": [null, true, -1, 18446744073709551615], \
                    \"c\": \"text\", \"aa\": \"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\u{7f}/\u{e9}\"}";
    assert_eq!(text(&encode(&tree, false)), expected);
    assert_eq!(text(&encode(&tree, true)), expected);
    assert_eq!(text(&[]), "null");
    assert_eq!(text(&encode(&Tree::String("x".into()), false)), "\"x\"");
    let mut unquoted = Vec::new();
    JsonBinary::parse(&encode(&Tree::String("x".into()), false))
        .unwrap()
        .write_text(&mut unquoted, false)
        .unwrap();
    assert_eq!(unquoted, b"x");
}

#[test]
fn opaque_sql_values_are_printed_as_by_the_server() {
    let decimal = [&[5, 2][..], &super::super::decimal_value::encode("-123.45", 5, 2)].concat();
    assert_eq!(text(&encode(&Tree::Opaque(type_code::NEWDECIMAL, decimal), false)), "-123.45");
    let value = DateTime {
        date: Date { year: 2015, month: 1, day: 15 },
        hour: 23,
        minute: 24,
        second: 25,
        micros: 120_000,
    };
    let packed = super::super::temporal_value::encode::datetime_packed(value) << 24 | 120_000;
    let opaque = |kind, packed: u64| encode(&Tree::Opaque(kind, packed.to_le_bytes().to_vec()), false);
    assert_eq!(text(&opaque(type_code::DATETIME, packed)), "\"2015-01-15 23:24:25.120000\"");
    assert_eq!(text(&opaque(type_code::DATE, packed)), "\"2015-01-15\"");
    let hms = 23u64 << 12 | 24 << 6 | 25;
    assert_eq!(text(&opaque(type_code::TIME, hms << 24)), "\"23:24:25.000000\"");
    assert_eq!(text(&opaque(type_code::TIME, (-((hms as i64) << 24)) as u64)), "\"-23:24:25.000000\"");
}

#[test]
fn object_members_are_found_by_key() {
    let tree = Tree::Object(vec![
        ("z".into(), Tree::Int(1)),
        ("aa".into(), Tree::Int(2)),
        ("b".into(), Tree::Int(3)),
    ]);
    let bytes = encode(&tree, false);
    let JsonNode::Object(object) = JsonBinary::parse(&bytes).unwrap().root().decode().unwrap() else {
        panic!()
    };
    for (key, expected) in
        [("z", Some(1)), ("aa", Some(2)), ("b", Some(3)), ("a", None), ("", None), ("zzz", None)]
    {
        let found = object.get(key.as_bytes()).unwrap().map(|value| value.decode().unwrap());
        assert_eq!(found, expected.map(JsonNode::Int), "wrong value for the key {key:?}");
    }
}

#[test]
fn nesting_depth_is_limited() {
    assert!(JsonBinary::parse(&nested(DEPTH_MAX)).unwrap().to_text().is_ok());
    assert!(JsonBinary::parse(&nested(DEPTH_MAX + 1)).unwrap().to_text().is_err());
}

#[test]
fn shared_values_do_not_make_the_text_explode() {
    // Each array holds the next array many times. The document has only a few kilobytes, but its text would
    // hold 20^30 numbers.
    let (levels, width) = (30usize, 20usize);
    let size = 4 + 3 * width;
    let mut body = Vec::new();
    for level in 0..levels {
        body.extend((width as u16).to_le_bytes());
        body.extend((((levels - level) * size) as u16).to_le_bytes());
        for _ in 0..width {
            body.push(if level + 1 < levels { tag::SMALL_ARRAY } else { tag::INT16 });
            body.extend((size as u16).to_le_bytes());
        }
    }
    let document = [&[tag::SMALL_ARRAY][..], &body].concat();
    let result = JsonBinary::parse(&document).unwrap().to_text();
    assert!(matches!(result, Err(WireError::Malformed { .. })));
}

fn put_text(out: &mut Vec<u8>, bytes: &[u8]) {
    crate::byte_cursor::put_lenenc_bytes(out, bytes);
}

fn diff(operations: &[(u8, &str, Option<Tree>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (operation, path, value) in operations {
        out.push(*operation);
        put_text(&mut out, path.as_bytes());
        if let Some(value) = value {
            put_text(&mut out, &encode(value, false));
        }
    }
    out
}

fn applied(before: &Tree, operations: &[(u8, &str, Option<Tree>)]) -> Result<Vec<u8>, WireError> {
    let (before, diffs) = (encode(before, false), diff(operations));
    JsonDiffs::new(&diffs).apply(JsonBinary::parse(&before).unwrap(), 1 << 20)
}

#[test]
fn diffs_are_applied() {
    let before = Tree::Object(vec![
        ("a".into(), Tree::Array(vec![Tree::Int(1), Tree::Int(-2), Tree::Int(100_000)])),
        ("o".into(), Tree::Object(vec![("k".into(), Tree::String("v".into()))])),
    ]);
    let after = applied(
        &before,
        &[
            (0, "$.a[1]", Some(Tree::String("new".into()))),
            (1, "$.a[0]", Some(Tree::Null)),
            (1, "$.a[99]", Some(Tree::Bool(true))),
            (1, "$.o.\"k 2\"", Some(Tree::Double(2.5))),
            (2, "$.o.k", None),
            (1, "$.n", Some(Tree::Array(vec![Tree::Int(-7)]))),
            (0, "$.n[last]", Some(Tree::Int(-8))),
        ],
    )
    .unwrap();
    assert_eq!(text(&after), r#"{"a": [null, 1, "new", 100000, true], "n": [-8], "o": {"k 2": 2.5}}"#);
}

#[test]
fn diffs_that_do_not_fit_are_refused() {
    let before = Tree::Object(vec![("a".into(), Tree::Array(vec![Tree::Int(1)]))]);
    let one = || Some(Tree::Int(1));
    for operations in [
        [(0, "$.b", one())],
        [(0, "$.a[1]", one())],
        [(1, "$.a", one())],
        [(1, "$", one())],
        [(1, "$.b.c", one())],
        [(1, "$.a.x", one())],
        [(2, "$.b", None)],
        [(2, "$.a[1]", None)],
        [(2, "$", None)],
        [(0, "$.*", one())],
    ] {
        assert!(
            applied(&before, &operations).is_err(),
            "operations that do not fit the document were applied: {operations:?}"
        );
    }
    assert!(JsonDiffs::new(&[3, 0]).iter().next().unwrap().is_err());
    let (before, diffs) = (encode(&before, false), diff(&[(0, "$.a", Some(Tree::String("x".repeat(99))))]));
    let result = JsonDiffs::new(&diffs).apply(JsonBinary::parse(&before).unwrap(), 99);
    assert!(matches!(result, Err(WireError::TooLarge { .. })));
}

#[test]
fn an_edit_can_move_a_document_into_the_large_form() {
    let before = Tree::Object(vec![("a".into(), Tree::Array(vec![Tree::Int(1), Tree::Int(70_000)]))]);
    let big = "x".repeat(70_000);
    let after = applied(&before, &[(0, "$.a[0]", Some(Tree::String(big.clone())))]).unwrap();
    assert_eq!(after[0], tag::LARGE_OBJECT);
    assert_eq!(text(&after), format!(r#"{{"a": ["{big}", 70000]}}"#));
}

proptest! {
    #[test]
    fn documents_round_trip(tree in any_tree(), large: bool) {
        let bytes = encode(&tree, large);
        let document = JsonBinary::parse(&bytes).unwrap();
        prop_assert_eq!(read(document.root()), tree);
        prop_assert!(document.to_text().is_ok());
    }

    /// The text of a document is valid JSON, and its content equals the content of the document as far as
    /// JSON can represent it.
    #[test]
    fn the_text_is_json_with_the_same_content(tree in any_tree()) {
        let bytes = encode(&tree, false);
        let parsed: serde_json::Value = serde_json::from_str(&text(&bytes)).unwrap();
        same(&tree, &parsed)?;
    }

    /// If a document is completely expanded and encoded again, its bytes do not change.
    #[test]
    fn encoding_equals_the_servers(tree in any_tree()) {
        let before = encode(&tree, false);
        // If the root has a member, the edit replaces the first member with the same value.
        let (path, value) = match &tree {
            Tree::Array(cells) if !cells.is_empty() => ("$[0]".to_owned(), cells[0].clone()),
            Tree::Object(members) if !members.is_empty() => {
                (format!("$.\"{}\"", members[0].0), members[0].1.clone())
            }
            _ => return Ok(()),
        };
        let after = applied(&tree, &[(0, &path, Some(value))]).unwrap();
        prop_assert_eq!(after, before);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, first in 0u8..16) {
        let bytes = [&[first][..], &bytes].concat();
        if let Ok(document) = JsonBinary::parse(&bytes) {
            let _ = document.to_text();
            for path in ["$.a", "$[0]", "$[last]"] {
                let diffs = diff(&[(0, path, Some(Tree::Null)), (1, path, Some(Tree::Null)), (2, path, None)]);
                let _ = JsonDiffs::new(&diffs).apply(document, 1 << 16);
            }
        }
        let _ = JsonDiffs::new(&bytes).apply(JsonBinary::parse(&[]).unwrap(), 1 << 16);
    }

    /// Reading a damaged document returns an error or another document. It never panics.
    #[test]
    fn damaged_documents_never_panic(tree in any_tree(), at: prop::sample::Index, value: u8) {
        let mut bytes = encode(&tree, false);
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(document) = JsonBinary::parse(&bytes) {
            let _ = document.to_text();
            let diffs = diff(&[(1, "$.a", Some(Tree::Null)), (1, "$.b[1]", Some(Tree::Null))]);
            let _ = JsonDiffs::new(&diffs).apply(document, 1 << 16);
        }
    }
}

fn same(tree: &Tree, parsed: &serde_json::Value) -> Result<(), TestCaseError> {
    match tree {
        Tree::Null => prop_assert!(parsed.is_null()),
        Tree::Bool(value) => prop_assert_eq!(parsed.as_bool(), Some(*value)),
        Tree::Int(value) => prop_assert_eq!(parsed.as_i64(), Some(*value)),
        Tree::UInt(value) => prop_assert_eq!(parsed.as_u64(), Some(*value)),
        Tree::Double(value) => {
            // Compare with a tolerance, because serde_json parses floats with an error of a few units in the
            // last place.
            let parsed = parsed.as_f64().unwrap();
            prop_assert!(parsed.is_sign_negative() == value.is_sign_negative());
            prop_assert!(parsed.to_bits().abs_diff(value.to_bits()) <= 4, "{} {}", parsed, value);
        }
        Tree::String(text) => prop_assert_eq!(parsed.as_str(), Some(&text[..])),
        Tree::Opaque(..) => prop_assert!(parsed.as_str().unwrap().starts_with("base64:type252:")),
        Tree::Array(cells) => {
            let parsed = parsed.as_array().unwrap();
            prop_assert_eq!(parsed.len(), cells.len());
            for (cell, parsed) in cells.iter().zip(parsed) {
                same(cell, parsed)?;
            }
        }
        Tree::Object(members) => {
            for (key, value) in members {
                same(value, &parsed[key])?;
            }
        }
    }
    Ok(())
}
