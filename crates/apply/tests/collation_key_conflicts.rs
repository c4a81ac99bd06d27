//! Checks that keys are coarser than the servers' collations: values that a server treats as equal must have
//! conflicting keys.

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tailwater_apply::row_writeset_keys::{RowKeys, compares_ascii};
use tailwater_apply::source_transaction::Accesses;
use tailwater_apply::target_table::{IndexPart, TargetColumn, TargetTable, UniqueIndex};
use tailwater_apply::writeset::{Access, IndexId};
use tailwater_sandbox::{ServerKind, require, shared};
use tailwater_session::Connection;
use tailwater_wire::binlog_event::{RowsEvent, RowsKind};
use tailwater_wire::row_event::table_map_column::type_code;
use tailwater_wire::row_event::{BinlogColumn, ColumnType, RowChangeIter, TableMap};

on_each_server!(printable_ascii_is_equal_only_in_either_case, equal_values_conflict);

/// Collations that are common or unusual. The test uses those that the server has.
const COLLATIONS: [&str; 24] = [
    "utf8mb4_0900_ai_ci",
    "utf8mb4_0900_as_cs",
    "utf8mb4_0900_bin",
    "utf8mb4_bin",
    "utf8mb4_general_ci",
    "utf8mb4_unicode_ci",
    "utf8mb4_unicode_520_ci",
    "utf8mb4_uca1400_ai_ci",
    "utf8mb4_uca1400_nopad_as_cs",
    "utf8mb4_hu_0900_ai_ci",
    "utf8mb4_hungarian_ci",
    "utf8mb4_lithuanian_ci",
    "utf8mb4_roman_ci",
    "utf8mb4_danish_ci",
    "utf8mb3_general_ci",
    "latin1_swedish_ci",
    "latin1_german2_ci",
    "latin1_bin",
    "utf16_unicode_ci",
    "utf16_bin",
    "ucs2_bin",
    "utf32_general_ci",
    "sjis_japanese_ci",
    "gbk_bin",
];

/// How many more collations are chosen at random, and how many strings are compared in each.
const COLLATIONS_DRAWN: usize = 6;
const STRINGS: usize = 60;

/// Parts of the test strings: letters that are equal to other letters in some language, and characters that
/// some collations ignore.
const PIECES: [&str; 46] = [
    "a", "A", "b", "B", "ä", "Ä", "ae", "æ", "å", "aa", "ß", "ss", "é", "e", "e\u{301}", "i", "I", "ı", "İ",
    "j", "J", "u", "U", "v", "V", "w", "y", "Y", "ccs", "cscs", "ch", "c", " ", "  ", "\t", "\0", "\u{1}",
    "\u{7f}", "\u{ad}", "\u{200b}", "Ａ", "😀", "💥", "-", "1", "¹",
];

async fn collations(connection: &mut Connection) -> Result<Vec<(String, String)>> {
    // Only this `information_schema` table has the full names of MariaDB's Unicode 14 collations.
    let asked = "SELECT * FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY";
    let answer = connection.query(asked).await?;
    let name = answer
        .column("FULL_COLLATION_NAME")
        .or_else(|| answer.column("COLLATION_NAME"))
        .context("the collation list has no collation names")?;
    let charset = answer.column("CHARACTER_SET_NAME").context("the collation list has no character sets")?;
    let rows = answer.rows.iter();
    let mut collations: Vec<(String, String)> = rows
        .filter_map(|row| Some((row.get_str(name)?.to_owned(), row.get_str(charset)?.to_owned())))
        .filter(|(_, charset)| charset != "binary")
        .collect();
    collations.sort();
    Ok(collations)
}

async fn printable_ascii_is_equal_only_in_either_case(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection.execute("CREATE DATABASE ascii_letters").await?;
    connection.execute("USE ascii_letters").await?;
    connection.execute("SET sql_log_bin = 0").await?;
    let (mut checked, mut wrong) = (0, Vec::new());
    for (collation, charset) in collations(&mut connection).await? {
        if !compares_ascii(&collation) {
            continue;
        }
        let create = format!(
            "CREATE TABLE l (c VARCHAR(3) CHARACTER SET {charset} COLLATE {collation}) ENGINE=MyISAM"
        );
        connection.execute(&create).await.with_context(|| collation.clone())?;
        // Another character follows each letter, because a space at the end may be ignored.
        let letters: Vec<String> = (0x20..0x7fu8).map(|letter| format!("(X'{letter:02x}2b')")).collect();
        connection.execute(&format!("INSERT INTO l VALUES {}", letters.join(","))).await?;
        let equal = "SELECT HEX(a.c), HEX(b.c) FROM l a JOIN l b ON a.c = b.c \
                     WHERE RTRIM(LOWER(CONVERT(a.c USING ascii))) COLLATE ascii_bin \
                     <> RTRIM(LOWER(CONVERT(b.c USING ascii))) COLLATE ascii_bin LIMIT 5";
        let found = connection.query(equal).await.with_context(|| collation.clone())?;
        if !found.rows.is_empty() {
            wrong.push(collation);
        }
        connection.execute("DROP TABLE l").await?;
        checked += 1;
    }
    ensure!(wrong.is_empty(), "different letters are equal in these collations: {wrong:?}");
    ensure!(checked > 30, "only {checked} collations were checked");
    Ok(())
}

async fn equal_values_conflict(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let seed =
        std::env::var("TAILWATER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("TAILWATER_SEED={seed}");
    let cases = std::env::var("TAILWATER_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1);
    let mut random = StdRng::seed_from_u64(seed);
    let server = shared(kind).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection.execute("CREATE DATABASE equal_text").await?;
    connection.execute("USE equal_text").await?;
    // The test creates hundreds of tables, which need not survive a power cut.
    connection.execute("SET sql_mode = '', sql_log_bin = 0").await?;
    let all = collations(&mut connection).await?;
    let mut drawn: Vec<_> = all.iter().filter(|(name, _)| COLLATIONS.contains(&name.as_str())).collect();
    ensure!(drawn.len() >= 15, "the server has too few of the required collations: {drawn:?}");
    drawn.extend(all.choose_multiple(&mut random, COLLATIONS_DRAWN * cases));
    let (mut equal, mut different) = (0, 0);
    for (collation, charset) in drawn {
        let checked = check_collation(&mut connection, collation, charset, &mut random).await;
        let (pairs, apart) = checked.with_context(|| {
            format!("the keys do not match the collation {collation} (TAILWATER_SEED={seed})")
        })?;
        equal += pairs;
        different += apart;
    }
    ensure!(
        equal > 300 && different > 1000,
        "too few pairs of strings were compared: {equal} are equal, {different} have no conflict"
    );
    Ok(())
}

/// Fills a table with random strings, and compares the server's equality with the keys. Returns the number of
/// equal pairs, and the number of pairs whose keys do not conflict.
async fn check_collation(
    connection: &mut Connection,
    collation: &str,
    charset: &str,
    random: &mut StdRng,
) -> Result<(usize, usize)> {
    connection
        .execute(&format!(
            "CREATE TABLE t (n INT PRIMARY KEY, v VARCHAR(60) CHARACTER SET {charset} COLLATE {collation}) ENGINE=MyISAM"
        ))
        .await?;
    let strings = (0..STRINGS).map(|number| {
        let pieces = random.random_range(0..4);
        let text: String = (0..pieces).filter_map(|_| PIECES.choose(random)).copied().collect();
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        format!("({number}, CONVERT(X'{hex}' USING utf8mb4))")
    });
    let strings: Vec<String> = strings.collect();
    connection.execute(&format!("INSERT INTO t VALUES {}", strings.join(","))).await?;
    let stored = connection.query("SELECT CAST(v AS BINARY) FROM t ORDER BY n").await?;
    let stored: Vec<Vec<u8>> =
        stored.rows.iter().map(|row| row.get(0).unwrap_or_default().to_vec()).collect();
    let mut pairs = (0, 0);
    for (prefix, compared) in [(None, "a.v = b.v"), (Some(2), "LEFT(a.v, 2) = LEFT(b.v, 2)")] {
        let keys = keys(&stored, collation, prefix)?;
        let asked = format!("SELECT a.n, b.n FROM t a JOIN t b ON {compared} WHERE a.n < b.n");
        let equal = connection.query(&asked).await?;
        for row in &equal.rows {
            let pair = [
                row.get_u64(0).context("the query must return a number")?,
                row.get_u64(1).context("the query must return a number")?,
            ];
            let [one, other] = pair.map(|number| number as usize);
            let conflict = keys[one].iter().any(|key| keys[other].iter().any(|other| key.conflicts(*other)));
            ensure!(
                conflict,
                "index prefix {prefix:?}: the server treats {:02x?} and {:02x?} as equal, but their keys do not conflict",
                stored[one],
                stored[other]
            );
        }
        let apart =
            (0..STRINGS).flat_map(|one| (0..one).map(move |other| (one, other))).filter(|(one, other)| {
                !keys[*one].iter().any(|key| keys[*other].iter().any(|other| key.conflicts(*other)))
            });
        pairs = (pairs.0 + equal.rows.len(), pairs.1 + apart.count());
    }
    connection.execute("DROP TABLE t").await?;
    Ok(pairs)
}

/// Returns the keys of inserted rows with one column and a unique index.
fn keys(values: &[Vec<u8>], collation: &str, prefix: Option<u32>) -> Result<Vec<Vec<Access>>> {
    let map = TableMap {
        flavour: tailwater_wire::Flavour::MySql,
        table_id: 1,
        flags: 1,
        schema: "equal_text".to_owned(),
        table: "t".to_owned(),
        columns: vec![BinlogColumn::new(
            ColumnType::VarChar { bytes_max: 240 },
            type_code::VARCHAR,
            240,
            false,
        )],
        metadata: Default::default(),
    };
    let target = TargetTable {
        transactional: true,
        engine: "INNODB".to_owned(),
        partitioned: false,
        flavour: map.flavour,
        schema: map.schema.clone(),
        table: map.table.clone(),
        columns: vec![TargetColumn {
            name: "v".to_owned(),
            column_type: "varchar(60)".to_owned(),
            collation: Some(collation.to_owned()),
            nullable: false,
            generated: false,
            stored: false,
            period: None,
            auto_increment: false,
        }],
        rows: IndexId(0),
        unique: vec![UniqueIndex {
            id: IndexId(1),
            name: "v".to_owned(),
            parts: vec![IndexPart { column: 0, prefix }],
            opaque: false,
        }],
        has_primary_key: false,
        parents: Vec::new(),
        children: Vec::new(),
        cascades: Vec::new(),
    };
    let mut row_keys = RowKeys::new(&map, &target, &[0], true, 1);
    let mut found = Vec::new();
    for value in values {
        let mut images = vec![0, u8::try_from(value.len())?];
        images.extend_from_slice(value);
        let event = RowsEvent {
            kind: RowsKind::Write,
            version: 2,
            table_id: 1,
            flags: 1,
            extra_data: &[],
            column_count: 1,
            columns_present: &[1],
            columns_present_after: &[1],
            rows: &[],
            compressed: false,
        };
        let mut accesses = Accesses::new();
        for row in RowChangeIter::new(&map, &event, &images)? {
            let row = row?;
            row_keys.row(row.before, row.after, event.flags, &mut accesses);
        }
        ensure!(accesses.len() == 1, "the row must have one key access: {accesses:?}");
        found.push(accesses.into_vec());
    }
    Ok(found)
}
