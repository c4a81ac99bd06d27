//! SQL definitions of columns of all types, with their boundary values.

use tailwater_sandbox::ServerKind;
use tailwater_wire::Flavour;

/// The columns of one table.
pub struct Family {
    pub name: &'static str,
    /// Column definitions, each with its test values, to which NULL is added. A column without values is a
    /// generated column.
    pub columns: Vec<(String, Vec<String>)>,
    /// Further `SET` clauses. The tests run one `UPDATE` of all rows with each clause.
    pub updates: &'static [&'static str],
    /// Further expressions to query for each row, in addition to the column values.
    pub questions: &'static [&'static str],
}

type Columns<'a> = &'a [(&'a str, &'a [&'a str])];

impl Family {
    fn of(name: &'static str, columns: Columns<'_>) -> Self {
        let column = |(definition, values): &(&str, &[&str])| {
            ((*definition).to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
        };
        Self { name, columns: columns.iter().map(column).collect(), updates: &[], questions: &[] }
    }

    /// Returns the columns for `CREATE TABLE`, with the names `c1`, `c2` and so on.
    pub fn definitions(&self) -> String {
        let define = |(index, (definition, _)): (usize, &(String, _))| format!("c{} {definition}", index + 1);
        self.columns.iter().enumerate().map(define).collect::<Vec<_>>().join(", ")
    }

    /// Returns the names of the columns that are written.
    pub fn written(&self) -> Vec<String> {
        let name = |(index, _)| format!("c{}", index + 1);
        self.columns.iter().enumerate().filter(|(_, (_, values))| !values.is_empty()).map(name).collect()
    }

    /// Returns how many rows are needed to contain every value.
    pub fn rows(&self) -> usize {
        self.columns.iter().map(|(_, values)| values.len() + 1).max().unwrap_or(0).max(5)
    }

    /// Returns the values of a row. In successive rows, each nullable column in turn is NULL.
    pub fn values(&self, row: usize) -> Vec<String> {
        let value = |(definition, values): &(String, Vec<String>)| {
            let never_null = definition.contains("NOT NULL");
            let count = values.len() + usize::from(!never_null);
            values.get(row % count).map_or("NULL", String::as_str).to_owned()
        };
        self.columns.iter().filter(|(_, values)| !values.is_empty()).map(value).collect()
    }
}

const INTEGERS: [(&str, i128); 5] =
    [("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64)];

fn integers() -> Family {
    let mut family = Family::of("integers", &[("BOOL", &["TRUE", "FALSE"]), ("INT ZEROFILL", &["0", "42"])]);
    for (name, bits) in INTEGERS {
        let half = 1i128 << (bits - 1);
        let signed = [-half, half - 1, -1, 0, 1].map(|value| value.to_string());
        let unsigned = [0, 2 * half - 1, half, half - 1, 1].map(|value| value.to_string());
        family.columns.push((name.to_owned(), signed.to_vec()));
        family.columns.push((format!("{name} UNSIGNED"), unsigned.to_vec()));
    }
    family
}

fn reals() -> Family {
    let floats: &[&str] =
        &["0", "-1.5", "3.402823466e38", "-3.402823466e38", "1.175494351e-38", "1e-45", "0.1", "16777217"];
    let doubles: &[&str] = &[
        "0",
        "-1.5",
        "1.7976931348623157e308",
        "-1.7976931348623157e308",
        "4.9e-324",
        "0.1",
        "123456789012345680",
    ];
    Family::of(
        "reals",
        &[
            ("FLOAT", floats),
            ("DOUBLE", doubles),
            ("FLOAT(7,3)", &["1234.567", "-9999.999", "0.001"]),
            ("DOUBLE(12,4)", &["12345678.1234", "-99999999.9999"]),
            ("DECIMAL(1,0)", &["0", "9", "-9"]),
            ("DECIMAL(9,9)", &["0.999999999", "-0.000000001", "0"]),
            (
                "DECIMAL(65,30)",
                &[
                    "99999999999999999999999999999999999.999999999999999999999999999999",
                    "-99999999999999999999999999999999999.999999999999999999999999999999",
                    "0.000000000000000000000000000001",
                    "0",
                ],
            ),
            ("DECIMAL(65,0)", &["99999999999999999999999999999999999999999999999999999999999999999", "-1"]),
            ("DECIMAL(14,4) UNSIGNED", &["9999999999.9999", "0.0001", "0"]),
        ],
    )
}

fn bits_and_members() -> Family {
    let mut family = Family::of(
        "members",
        &[
            ("ENUM('a','it''s','B','')", &["'a'", "'it''s'", "'B'", "''", "'no member'"]),
            ("SET('x','y','z')", &["''", "'x'", "'x,z'", "7"]),
            ("ENUM('ä','ö') CHARACTER SET latin1", &["1", "2", "'no member'"]),
        ],
    );
    for bits in [1u32, 7, 8, 9, 24, 33, 63, 64] {
        let most = u64::MAX >> (64 - bits);
        let values = [0, 1, most, most & 0xaaaa_aaaa_aaaa_aaaa].map(|value| value.to_string());
        family.columns.push((format!("BIT({bits})"), values.to_vec()));
    }
    let members = |count: usize| {
        let members: Vec<_> = (1..=count).map(|member| format!("'m{member}'")).collect();
        members.join(",")
    };
    let ordinals = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    family.columns.push((format!("ENUM({})", members(300)), ordinals(&["1", "255", "256", "300"])));
    family.columns.push((format!("SET({})", members(64)), ordinals(&["0", "1", "18446744073709551615"])));
    family.columns.push((format!("SET({})", members(20)), ordinals(&["1048575", "65536"])));
    family
}

fn times(kind: ServerKind) -> Family {
    let dates: &[&str] =
        &["'1000-01-01'", "'9999-12-31'", "'0000-00-00'", "'2024-02-31'", "'2024-00-00'", "'0001-01-01'"];
    let mut family = Family::of("times", &[("YEAR", &["0", "1901", "2155", "2024"]), ("DATE", dates)]);
    for fraction in [0u32, 1, 3, 4, 6] {
        let digits = match fraction {
            0 => String::new(),
            fraction => format!(".{}", &"987654"[..fraction as usize]),
        };
        let values = |texts: &[&str]| texts.iter().map(|text| format!("'{text}'")).collect::<Vec<_>>();
        let with = |text: &str| format!("{text}{digits}");
        let times = [
            "838:59:59".to_owned(),
            "-838:59:59".to_owned(),
            "00:00:00".to_owned(),
            with("-00:00:00"),
            with("-12:34:56"),
            with("12:34:56"),
        ];
        let datetimes = [
            with("9999-12-31 23:59:59"),
            "0000-00-00 00:00:00".to_owned(),
            with("1000-01-01 00:00:00"),
            with("2024-02-29 12:34:56"),
        ];
        let mut timestamps = vec![
            with("1970-01-01 00:00:01"),
            // This value has no fractional digits, because a value with fractional digits would exceed the
            // servers' limit.
            "2038-01-19 03:14:07".to_owned(),
            "0000-00-00 00:00:00".to_owned(),
            with("2024-03-31 02:30:00"),
        ];
        if kind == ServerKind::Mariadb118 {
            timestamps.extend([with("2038-01-19 03:14:08"), with("2106-02-07 06:28:15")]);
        }
        let texts = |texts: &[String]| values(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        family.columns.push((format!("TIME({fraction})"), texts(&times)));
        family.columns.push((format!("DATETIME({fraction})"), texts(&datetimes)));
        family.columns.push((format!("TIMESTAMP({fraction}) NULL"), texts(&timestamps)));
    }
    family
}

/// Texts for each character set. The texts contain letters whose bytes look like quotes and backslashes, and
/// letters outside the Basic Multilingual Plane.
const TEXTS: [(&str, &[&str]); 12] = [
    ("latin1", &["x'E4F6DF'", "x'80FF'"]),
    ("latin2_bin", &["x'B1E6'"]),
    ("koi8r", &["x'F0D2C9'"]),
    ("utf8mb3", &["x'C3A4E282AC'", "x'61CC88'"]),
    ("utf8mb4", &["x'F09F9880'", "x'C39F'", "x'27225C'"]),
    ("utf16", &["x'D83DDE00'", "x'005C0027'"]),
    ("utf16le", &["x'3DD800DE'"]),
    ("utf32", &["x'0001F600'"]),
    ("ucs2", &["x'20AC'", "x'0020'"]),
    ("sjis", &["x'835C8360'", "x'82A0'"]),
    ("gbk", &["x'D55C'", "x'C4E3BAC3'"]),
    ("big5", &["x'A55C'"]),
];

/// Returns text columns in all character sets: CHAR, VARCHAR and TEXT.
fn texts() -> Vec<Family> {
    let of_type = |name, column_type: &str| {
        let mut family = Family::of(name, &[]);
        for (set, letters) in TEXTS {
            let (charset, collate) = match set.split_once('_') {
                Some((charset, _)) => (charset, format!(" COLLATE {set}")),
                None => (set, String::new()),
            };
            let mut values =
                vec!["''".to_owned(), "'a'".to_owned(), "'A  '".to_owned(), "'it''s'".to_owned()];
            values.extend(letters.iter().map(|bytes| format!("_{charset} {bytes}")));
            family.columns.push((format!("{column_type} CHARACTER SET {charset}{collate}"), values));
        }
        family
    };
    vec![of_type("chars", "CHAR(9)"), of_type("varchars", "VARCHAR(70)"), of_type("texts", "TEXT")]
}

fn bytes() -> Family {
    let all = "x'000102090A0D1A22275C606FFEFF'";
    Family::of(
        "bytes",
        &[
            ("BINARY(16)", &["x'00'", "x'2000'", "x'FF00FF000000'", "''", all]),
            ("BINARY(255)", &["x'FF'", "REPEAT(x'20', 255)"]),
            ("VARBINARY(16)", &["x'00'", "x'6100'", "x'6120'", "''", all]),
            ("VARBINARY(3000)", &["REPEAT(x'00', 3000)", "''"]),
            ("TINYBLOB", &["''", "REPEAT(x'00', 255)", all]),
            ("BLOB", &["''", "REPEAT(x'FF', 65535)", all]),
            ("MEDIUMBLOB", &["''", "REPEAT('m', 70000)"]),
            ("LONGBLOB", &["''", "REPEAT('l', 300000)"]),
            ("TINYTEXT", &["''", "REPEAT('t', 255)", "'  '"]),
            ("MEDIUMTEXT", &["''", "REPEAT(_utf8mb4 x'F09F9880', 20000)"]),
            ("LONGTEXT CHARACTER SET latin1", &["''", "REPEAT(_latin1 x'E4', 70000)"]),
            ("VARCHAR(300) CHARACTER SET utf8mb4", &["REPEAT(_utf8mb4 x'F09F9880', 300)", "'x'"]),
            ("CHAR(255) CHARACTER SET utf8mb4", &["REPEAT(_utf8mb4 x'F09F9880', 255)", "'x'"]),
        ],
    )
}

fn shapes() -> Family {
    let point: &[&str] = &["ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(-1.5 20)', 4326)"];
    let polygon = "ST_GeomFromText('POLYGON((0 0,4 0,4 4,0 0))')";
    let collection = "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))')";
    Family::of(
        "shapes",
        &[
            ("GEOMETRY", &[point[0], point[1], polygon, collection]),
            ("POINT", point),
            ("LINESTRING", &["ST_GeomFromText('LINESTRING(0 0,1 1,2 5)')"]),
            ("POLYGON", &[polygon]),
            ("MULTIPOINT", &["ST_GeomFromText('MULTIPOINT(1 1,2 2)')"]),
            ("MULTILINESTRING", &["ST_GeomFromText('MULTILINESTRING((0 0,1 1),(2 2,3 3))')"]),
            ("MULTIPOLYGON", &["ST_GeomFromText('MULTIPOLYGON(((0 0,4 0,4 4,0 0)))')"]),
            ("GEOMETRYCOLLECTION", &[collection]),
        ],
    )
}

/// Returns generated and invisible columns.
fn computed(flavour: Flavour) -> Family {
    let hidden = "INT INVISIBLE";
    let stored = match flavour {
        Flavour::MySql => "VARCHAR(40) GENERATED ALWAYS AS (CONCAT(c1, '!')) STORED",
        Flavour::MariaDb => "VARCHAR(40) GENERATED ALWAYS AS (CONCAT(c1, '!')) PERSISTENT",
    };
    Family::of(
        "computed",
        &[
            ("INT", &["1", "-2147483648", "2147483647"]),
            ("BIGINT GENERATED ALWAYS AS (c1 * 2) VIRTUAL", &[]),
            (stored, &[]),
            (hidden, &["5", "6"]),
            ("VARCHAR(9)", &["'x'", "''"]),
            ("INT GENERATED ALWAYS AS (CHAR_LENGTH(c5)) VIRTUAL", &[]),
            ("INT AS (c4 + 1) VIRTUAL INVISIBLE", &[]),
        ],
    )
}

fn mysql_documents() -> Family {
    let deep = format!("'{}1{}'", "[".repeat(90), "]".repeat(90));
    let mut family = Family::of(
        "documents",
        &[
            (
                "JSON",
                &[
                    "'{}'",
                    "'null'",
                    "'[1, -32768, 65536, 9223372036854775807, 18446744073709551615, 1.0, -0.0, 1e308]'",
                    r#"'"quote \\" back \\\\ nul \\u0000 é 😀"'"#,
                    "JSON_OBJECT('decimal', CAST(-123.450 AS DECIMAL(6,3)), 'd', DATE '2015-01-15', 't', TIME '-01:02:03.000004')",
                    "JSON_OBJECT('dt', TIMESTAMP '2015-01-15 01:02:03.5', 'u', CAST(5 AS UNSIGNED), 'd', 1.5)",
                    &deep,
                    r#"'{"b": 1, "aa": [], "": {"c": [true, null]}}'"#,
                ],
            ),
            (
                "JSON",
                &[
                    "JSON_OBJECT('a', REPEAT('x', 100), 'n', 1)",
                    "'[]'",
                    "JSON_OBJECT('big', REPEAT('y', 70000), 'n', 1)",
                ],
            ),
        ],
    );
    family.updates = &[
        "c2 = JSON_SET(c2, '$.n', 2)",
        "c2 = JSON_REPLACE(c2, '$.a', 'short'), c1 = JSON_SET(c1, '$.new', 1)",
    ];
    family.questions = &[
        "JSON_TYPE(JSON_EXTRACT(c1, '$.d'))",
        "JSON_TYPE(JSON_EXTRACT(c1, '$.decimal'))",
        "JSON_TYPE(JSON_EXTRACT(c1, '$.dt'))",
    ];
    family
}

fn mariadb_own() -> Family {
    let text: &[&str] = &["''", "'short'", "REPEAT('long ', 200)"];
    let blob: &[&str] = &["''", "x'00FF00'", "REPEAT(x'0A', 250)"];
    Family::of(
        "own",
        &[
            ("UUID", &["'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'"]),
            ("INET6", &["'::'", "'::1'", "'fe80::2020'", "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:2020'"]),
            ("INET4", &["'0.0.0.0'", "'32.32.32.32'", "'1.2.3.0'"]),
            ("VARCHAR(1000) COMPRESSED", text),
            ("VARCHAR(1000) COMPRESSED CHARACTER SET latin1", text),
            ("VARBINARY(500) COMPRESSED", blob),
            ("TEXT COMPRESSED CHARACTER SET latin1", text),
            ("BLOB COMPRESSED", blob),
            ("TINYBLOB COMPRESSED", blob),
            ("LONGTEXT COMPRESSED", &["''", "REPEAT('z', 100000)"]),
            ("JSON", &["'{}'", r#"'{"b": 1, "a": "it''s \\u0000"}'"#, "'[1,  2.50, 1e2]'"]),
            ("DECIMAL(65,38)", &["999999999999999999999999999.99999999999999999999999999999999999999", "-1"]),
        ],
    )
}

fn vectors(flavour: Flavour) -> Family {
    match flavour {
        Flavour::MySql => Family::of(
            "vectors",
            &[("VECTOR(3)", &["STRING_TO_VECTOR('[1,2,3.5]')", "STRING_TO_VECTOR('[0,-0.0,1e10]')"])],
        ),
        Flavour::MariaDb => Family::of(
            "vectors",
            &[
                ("VECTOR(3) NOT NULL", &["VEC_FROMTEXT('[1,2,3.5]')", "VEC_FROMTEXT('[0,0,0]')"]),
                ("VECTOR(2)", &["VEC_FROMTEXT('[-1.5,1e10]')"]),
            ],
        ),
    }
}

/// Returns the families of columns for a server. For the newest MariaDB, returns only the families that older
/// versions do not have.
pub fn families(kind: ServerKind) -> Vec<Family> {
    let flavour = kind.flavour();
    if kind == ServerKind::Mariadb118 {
        return vec![times(kind), vectors(flavour), mariadb_own(), computed(flavour)];
    }
    let mut families =
        vec![integers(), reals(), bits_and_members(), times(kind), bytes(), shapes(), computed(flavour)];
    families.extend(texts());
    match flavour {
        Flavour::MySql => families.extend([mysql_documents(), vectors(flavour)]),
        Flavour::MariaDb => families.push(mariadb_own()),
    }
    families
}
