//! Compares the table definitions that the applier reads from a server with the table maps that the server
//! logs.

use anyhow::{Context, Result, ensure};
use tailwater_apply::column_matching::{same_shape, target_columns};
use tailwater_apply::table_definition_cache::Catalogue;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require, shared};
use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{BinlogEvent, EventBody, EventHeader, EventType, FormatDescription};
use tailwater_wire::row_event::TableMap;

use crate::binlog_event_reader::{flush, newest_events};

on_each_server!(
    columns_are_those_that_the_server_logs,
    indexes_and_foreign_keys,
    indexes_on_more_than_values
);

/// Tables with columns that servers hide, compute or store in a special way. Each table accepts a row of
/// default values.
const TABLES: [&str; 6] = [
    "numbers (a TINYINT, b SMALLINT UNSIGNED, c MEDIUMINT, d INT UNSIGNED, e BIGINT, f FLOAT, g DOUBLE, \
     h DECIMAL(12,4), i DECIMAL(65,30) UNSIGNED, j BIT(1), k BIT(17), l FLOAT(7,3), m BOOL, n INT(5) ZEROFILL)",
    "times (a DATE, b TIME, c TIME(3), d DATETIME, e DATETIME(6), f TIMESTAMP NULL, g TIMESTAMP(1) NULL, h YEAR)",
    "strings (a CHAR(5), b CHAR(200) CHARACTER SET utf8mb4, c VARCHAR(10) CHARACTER SET latin1, d VARCHAR(300), \
     e BINARY(5), f VARBINARY(500), g TINYTEXT, h TEXT CHARACTER SET utf16, i MEDIUMTEXT, j LONGTEXT, k TINYBLOB, \
     l BLOB, m MEDIUMBLOB, n LONGBLOB, o CHAR(7) CHARACTER SET ucs2, p VARCHAR(3) CHARACTER SET sjis, q JSON)",
    "`sets ``of` (a ENUM('a','b','it''s, (c)'), b SET('x','y'), c SET('1','2','3','4','5','6','7','8','9'), \
     d GEOMETRY, e POINT, f ENUM('Ä','B') CHARACTER SET latin1)",
    "computed (id INT PRIMARY KEY AUTO_INCREMENT, a INT DEFAULT 3, v INT GENERATED ALWAYS AS (a + 1) VIRTUAL, \
     s INT GENERATED ALWAYS AS (a * 2) STORED, t VARCHAR(20), UNIQUE KEY (s), UNIQUE KEY (v))",
    "`Mixed Case` (`Id` INT PRIMARY KEY AUTO_INCREMENT, `weiß nicht` INT DEFAULT 1)",
];

const MYSQL_TABLES: [&str; 5] = [
    "functional (id INT PRIMARY KEY AUTO_INCREMENT, a INT DEFAULT 1, UNIQUE KEY f ((a + 5)), \
     UNIQUE KEY g (id, (a * 2)), KEY h ((a * 3)))",
    "invisible (id INT PRIMARY KEY AUTO_INCREMENT, a INT INVISIBLE DEFAULT 4, b INT)",
    "`generated key` (a INT, b VARCHAR(7))",
    "`many values` (id INT PRIMARY KEY AUTO_INCREMENT, j JSON, UNIQUE KEY m ((CAST(j->'$.a' AS UNSIGNED ARRAY))))",
    "vectors (id INT PRIMARY KEY AUTO_INCREMENT, v VECTOR(5))",
];

const MARIADB_TABLES: [&str; 6] = [
    "invisible (id INT PRIMARY KEY AUTO_INCREMENT, a INT INVISIBLE DEFAULT 4, b INT)",
    "`long keys` (id INT PRIMARY KEY AUTO_INCREMENT, a TEXT, b BLOB, UNIQUE KEY t (a), n INT, UNIQUE KEY u (b, n))",
    "versioned (id INT PRIMARY KEY AUTO_INCREMENT, a INT) WITH SYSTEM VERSIONING",
    "`versioned aloud` (id INT PRIMARY KEY AUTO_INCREMENT, a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, \
     e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
    "addresses (id INT PRIMARY KEY AUTO_INCREMENT, a INET6, b INET4, c UUID)",
    "compressed (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(100) COMPRESSED, b TEXT COMPRESSED, c BLOB COMPRESSED)",
];

async fn columns_are_those_that_the_server_logs(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    // This test needs its own server, because it rotates the binlog and changes logging settings.
    let server = Server::start(ServerSpec::new(kind)).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    let flavour = kind.flavour();
    let more: &[&str] = match flavour {
        Flavour::MySql => &MYSQL_TABLES,
        Flavour::MariaDb => &MARIADB_TABLES,
    };
    connection.execute("CREATE DATABASE columns").await?;
    connection.execute("USE columns").await?;
    flush(&mut connection).await?;
    if flavour == Flavour::MySql {
        connection.execute("SET sql_generate_invisible_primary_key = ON, show_gipk_in_create_table_and_information_schema = OFF").await?;
    }
    for table in TABLES.iter().chain(more) {
        connection.execute(&format!("CREATE TABLE {table}")).await.with_context(|| table.to_string())?;
    }
    let mut catalogue = Catalogue::new(flavour);
    for metadata in ["minimal", "full"] {
        if metadata == "full" {
            // With this setting, table maps also contain names, ENUM members, character sets and signs.
            connection.execute("SET GLOBAL binlog_row_metadata = FULL").await?;
            flush(&mut connection).await?;
        }
        for table in TABLES.iter().chain(more) {
            let name = name_of(table);
            connection.execute(&format!("DELETE FROM {name}")).await?;
            let insert = format!("INSERT INTO {name} () VALUES ()");
            connection.execute(&insert).await.with_context(|| name.to_owned())?;
        }
        if flavour == Flavour::MariaDb && metadata != "full" {
            // Add a column. In table maps, hidden columns come after a column that is added later. For a
            // system-versioned table, ALTER TABLE needs this setting.
            connection.execute("SET system_versioning_alter_history = KEEP").await?;
            for table in ["`long keys`", "versioned"] {
                connection.execute(&format!("ALTER TABLE {table} ADD COLUMN later INT DEFAULT 5")).await?;
                connection.execute(&format!("INSERT INTO {table} () VALUES ()")).await?;
            }
        }
        let maps = newest_maps(&newest_events(&server, &mut connection).await?, "columns")?;
        ensure!(
            maps.len() == TABLES.len() + more.len(),
            "binlog_row_metadata = {metadata}: the log has the table maps of {} tables",
            maps.len()
        );
        let named = maps.iter().flat_map(|map| &map.columns).all(|column| column.name.is_some());
        ensure!(named == (metadata == "full"));
        check_maps(&mut catalogue, &mut connection, &maps).await.context(metadata)?;
    }
    connection.execute("SET GLOBAL binlog_row_metadata = DEFAULT").await?;
    Ok(())
}

/// Returns the quoted name in a table's definition.
fn name_of(table: &str) -> &str {
    match table.starts_with('`') {
        true => &table[..table.rfind("` (").unwrap_or(0) + 1],
        false => table.split(' ').next().unwrap_or_default(),
    }
}

/// Checks that each table has the shape of its own table map.
async fn check_maps(catalogue: &mut Catalogue, connection: &mut Connection, maps: &[TableMap]) -> Result<()> {
    let mut wrong = Vec::new();
    for map in maps {
        let target = catalogue.load(connection, &map.schema, &map.table).await?;
        let target = target.with_context(|| format!("the server has no table {}", map.table))?;
        let columns = target_columns(map, &target);
        if !columns.is_ok_and(|columns| same_shape(map, &target, &columns)) {
            wrong.push(format!("{}: {:#?}\n{:#?}", map.table, map.columns, target.columns));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Returns the newest table map of each table of a schema.
fn newest_maps(events: &[bytes::Bytes], schema: &str) -> Result<Vec<TableMap>> {
    let mut format: Option<FormatDescription> = None;
    let mut maps = Vec::new();
    for event in events {
        if EventHeader::parse(event)?.event_type == EventType::FORMAT_DESCRIPTION {
            format = Some(FormatDescription::parse(&event[19..])?);
        }
        let Some(format) = &format else { continue };
        if let EventBody::TableMap(body) = BinlogEvent::parse(event, format)?.body {
            let map = TableMap::parse(body, format.flavour())?;
            if map.schema == schema {
                maps.retain(|older: &TableMap| older.table != map.table);
                maps.push(map);
            }
        }
    }
    Ok(maps)
}

async fn indexes_and_foreign_keys(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection.execute("CREATE DATABASE family").await?;
    connection.execute("USE family").await?;
    for table in [
        "parent (id INT PRIMARY KEY, u VARCHAR(30) NOT NULL, n INT, UNIQUE KEY u (u), UNIQUE KEY half (u(7), n), KEY (n))",
        "child (id INT PRIMARY KEY, p INT, CONSTRAINT c1 FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "guest (id INT PRIMARY KEY, p VARCHAR(30), CONSTRAINT c2 FOREIGN KEY (p) REFERENCES parent (u))",
        "grandchild (id INT PRIMARY KEY, c INT, CONSTRAINT c3 FOREIGN KEY (c) REFERENCES child (id))",
        "lonely (a INT)",
    ] {
        connection.execute(&format!("CREATE TABLE {table}")).await.with_context(|| table.to_owned())?;
    }
    let mut catalogue = Catalogue::new(kind.flavour());
    ensure!(catalogue.load(&mut connection, "family", "nobody").await?.is_none());
    ensure!(catalogue.load(&mut connection, "family", "no' \\b`ody").await?.is_none());
    let mut tables = Vec::new();
    // The child tables are loaded before their parents.
    for name in ["grandchild", "guest", "child", "parent", "lonely"] {
        tables.push(catalogue.load(&mut connection, "family", name).await?.context(name)?);
    }
    let [grandchild, guest, child, parent, lonely] = &tables[..] else {
        anyhow::bail!("the server must return five tables")
    };
    let names = |table: &tailwater_apply::target_table::TargetTable| {
        table.unique.iter().map(|index| index.name.clone()).collect::<Vec<_>>()
    };
    ensure!(
        names(parent) == ["PRIMARY", "half", "u"] && names(lonely).is_empty(),
        "wrong unique indexes: {parent:?}"
    );
    ensure!(parent.has_primary_key && !lonely.has_primary_key);
    let prefixes: Vec<_> = parent.unique[1].parts.iter().map(|part| (part.column, part.prefix)).collect();
    ensure!(prefixes == [(1, Some(7)), (2, None)], "wrong prefix lengths: {prefixes:?}");
    ensure!(child.parents.len() == 1 && child.parents[0].parent_index == parent.unique[0].id);
    ensure!(child.parents[0].child_columns == [1] && child.parents[0].child_rows == child.rows);
    ensure!(guest.parents[0].parent_index == parent.unique[2].id);
    ensure!(grandchild.parents[0].parent_index == child.unique[0].id);
    ensure!(parent.children.len() == 2 && child.children.len() == 1 && lonely.children.is_empty());
    // `guest` has no cascade. A row of `grandchild` must be deleted before a cascade can delete the row of
    // `child` that it references.
    let mut cascades = vec![child.rows, grandchild.rows];
    cascades.sort_unstable();
    ensure!(parent.cascades == cascades, "wrong cascades: {:?}", parent.cascades);
    ensure!(child.cascades.is_empty() && guest.cascades.is_empty());

    // A new foreign key affects the parent table too, although only the child table was altered. Index IDs
    // stay the same.
    let alter =
        "ALTER TABLE lonely ADD CONSTRAINT c4 FOREIGN KEY (a) REFERENCES parent (id) ON UPDATE CASCADE";
    connection.execute(alter).await?;
    catalogue.forget("family", "lonely");
    ensure!(
        catalogue.get("family", "parent").is_none(),
        "the parent table must not come from the cache after the child table was altered"
    );
    let lonely =
        catalogue.load(&mut connection, "family", "lonely").await?.context("the table lonely is missing")?;
    ensure!(lonely.parents.len() == 1);
    let altered =
        catalogue.load(&mut connection, "family", "parent").await?.context("the table parent is missing")?;
    ensure!(altered.children.len() == 3 && altered.cascades.contains(&lonely.rows));
    ensure!(altered.unique == parent.unique && altered.rows == parent.rows);
    catalogue.forget_all();
    let again =
        catalogue.load(&mut connection, "family", "parent").await?.context("the table parent is missing")?;
    ensure!(*again == *altered);
    Ok(())
}

/// Tests unique indexes whose values are not in the row images, or that do not compare by equality.
async fn indexes_on_more_than_values(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    connection.execute("CREATE DATABASE more_than_values").await?;
    connection.execute("USE more_than_values").await?;
    let (tables, opaque): (&[&str], &[&str]) = match kind.flavour() {
        Flavour::MySql => (
            &["t (id INT PRIMARY KEY, a INT, j JSON, UNIQUE KEY f (id, (a * 2)), UNIQUE KEY plain (a), \
               UNIQUE KEY m ((CAST(j->'$.a' AS UNSIGNED ARRAY))))"],
            &["f", "m"],
        ),
        Flavour::MariaDb => (
            &[
                "t (id INT PRIMARY KEY, a INT, b TEXT, s DATE, e DATE, PERIOD FOR p (s, e), UNIQUE KEY plain (a), \
               UNIQUE KEY `o``k` (a, p WITHOUT OVERLAPS), UNIQUE KEY h (b))",
            ],
            &["o`k"],
        ),
    };
    for table in tables {
        connection.execute(&format!("CREATE TABLE {table}")).await.with_context(|| table.to_string())?;
    }
    let mut catalogue = Catalogue::new(kind.flavour());
    let table =
        catalogue.load(&mut connection, "more_than_values", "t").await?.context("the table t is missing")?;
    let names = |opaque: bool| -> Vec<&str> {
        let of_kind = table.unique.iter().filter(|index| index.opaque == opaque);
        of_kind.map(|index| index.name.as_str()).collect()
    };
    ensure!(names(true) == opaque, "wrong unique indexes: {:?}", table.unique);
    ensure!(
        names(false).contains(&"PRIMARY") && names(false).contains(&"plain"),
        "wrong unique indexes: {:?}",
        table.unique
    );
    Ok(())
}
