//! Starts servers for the tests of loads, and reads all rows and definitions of a server to compare them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec};
use tailwater_session::{Connection, TextRow};
use tailwater_tables::chunker::table_info::ColumnInfo;
use tailwater_tables::data_file_field_conversion;
use tailwater_tables::schema::{SchemaObject, Selection, ddl, inventory, prepare};
use tailwater_wire::sql_quote::{qualified_name, string_literal};

/// Starts a server that accepts `LOAD DATA LOCAL`.
pub async fn started(kind: ServerKind) -> Result<Server> {
    Ok(Server::start(ServerSpec::new(kind).option("--local-infile=1")).await?)
}

/// Returns the sorted rows of each table, including generated columns, and all definitions.
pub async fn all(server: &Server) -> Result<BTreeMap<String, Vec<Vec<u8>>>> {
    let mut connection = Connection::connect(&server.connect_options()).await?;
    prepare(&mut connection).await?;
    let found = inventory(&mut connection, &Selection::default()).await?;
    let mut all = BTreeMap::new();
    let tables = found.tables.iter().cloned().map(SchemaObject::Table);
    for object in tables.chain(found.objects.iter().cloned()) {
        let script = ddl(&mut connection, &object).await?;
        // The next value of a sequence may be higher on the target, so it is not compared.
        let text = String::from_utf8_lossy(&script);
        let text =
            text.split(" AUTO_INCREMENT=").map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
        all.insert(object.to_string(), vec![text.collect::<String>().into_bytes()]);
    }
    for table in &found.tables {
        let sql = format!(
            "SELECT column_name, LOWER(data_type), LOWER(column_type) FROM information_schema.columns WHERE table_schema = {} AND \
             table_name = {} ORDER BY ordinal_position",
            string_literal(&table.schema),
            string_literal(&table.name)
        );
        let columns = connection.query(&sql).await?;
        let column = |row: &TextRow| {
            Some(data_file_field_conversion::selected(&ColumnInfo {
                name: row.get_str(0)?.to_owned(),
                data_type: row.get_str(1)?.to_owned(),
                column_type: row.get_str(2)?.to_owned(),
                charset: None,
                collation: None,
                nullable: true,
            }))
        };
        let list: Option<Vec<_>> = columns.rows.iter().map(column).collect();
        let list = list.context("a column has no name or type")?.join(", ");
        let sql = format!("SELECT {list} FROM {}", qualified_name(&table.schema, &table.name));
        let rows = connection.query(&sql).await?.rows;
        let mut rows: Vec<_> = rows
            .iter()
            .map(|row| {
                let value = |index| row.get(index).map_or(b"NULL".to_vec(), |value| [b"=", value].concat());
                (0..row.len()).map(value).collect::<Vec<_>>().join(&b'|')
            })
            .collect();
        rows.sort();
        all.insert(format!("rows of {table}"), rows);
    }
    Ok(all)
}

pub fn ensure_equal(
    one: &BTreeMap<String, Vec<Vec<u8>>>,
    other: &BTreeMap<String, Vec<Vec<u8>>>,
) -> Result<()> {
    let names = |all: &BTreeMap<String, Vec<Vec<u8>>>| all.keys().cloned().collect::<Vec<_>>();
    ensure!(
        names(one) == names(other),
        "the tables or objects of the servers differ: {:#?}\n{:#?}",
        names(one),
        names(other)
    );
    let shown = |rows: &[Vec<u8>]| {
        let row = |row: &Vec<u8>| String::from_utf8_lossy(&row[..row.len().min(900)]).into_owned();
        rows.iter().map(row).collect::<Vec<_>>()
    };
    for (name, rows) in one {
        ensure!(
            rows == &other[name],
            "the contents of {name} differ: {:#?}\n{:#?}",
            shown(rows),
            shown(&other[name])
        );
    }
    Ok(())
}
