//! Reads the definition of one target table from `information_schema`.

use rustc_hash::FxHashMap;
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::sql_quote::{hex_literal, qualified_name};

use super::foreign_key_graph::ForeignKeys;
use super::qualified_names::{IndexIds, QualifiedName};
use crate::error::ApplyError;
use crate::target_table::{IndexPart, PeriodBound, TargetColumn, TargetTable, UniqueIndex};

/// The name that servers give a primary key.
const PRIMARY: &str = "PRIMARY";

/// The rows that a server returned for the definition of a table.
#[derive(Debug)]
pub(super) struct SchemaRows {
    schema: String,
    table: String,
    transactional: bool,
    engine: String,
    partitioned: bool,
    columns: Vec<TargetColumn>,
    parts: Vec<IndexPartRow>,
    /// The names of the unique indexes that do not compare by equality (`WITHOUT OVERLAPS`).
    overlapping: Vec<String>,
}

/// One part (column or expression) of a unique index. The parts of one index come one after another, in
/// order.
#[derive(Debug)]
struct IndexPartRow {
    index: String,
    /// The name of the column; `None` if this part of the index is an expression.
    column: Option<String>,
    prefix: Option<u32>,
    is_hash: bool,
}

/// Sets up a session so that it shows all columns that the log contains, and reads whether the server
/// compares table names case-insensitively.
pub(super) async fn prepare(connection: &mut Connection, flavour: Flavour) -> Result<bool, ApplyError> {
    if flavour == Flavour::MySql {
        let shown = "SET SESSION show_gipk_in_create_table_and_information_schema = ON";
        match connection.execute(shown).await {
            Ok(_) => {}
            Err(error) if is_unknown(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let answer = connection.query("SELECT @@lower_case_table_names").await?;
    Ok(answer.scalar() != Some("0"))
}

impl SchemaRows {
    /// Reads the definition of a table. Returns `None` if the server has no base table with this name.
    pub(super) async fn query(
        connection: &mut Connection,
        flavour: Flavour,
        schema: &str,
        table: &str,
    ) -> Result<Option<Self>, ApplyError> {
        let of = format!("WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}", literal(schema), literal(table));
        let found = connection
            .query(&format!(
                "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, (SELECT TRANSACTIONS FROM \
                 information_schema.ENGINES known WHERE known.ENGINE = asked.ENGINE), CREATE_OPTIONS FROM \
                 information_schema.TABLES asked {of}"
            ))
            .await?;
        let Some(row) = found.first() else { return Ok(None) };
        let kind = row.get_str(2).unwrap_or_default();
        if kind.contains("VIEW") {
            return Ok(None);
        }
        let (columns, shows_period) = query_columns(connection, &of).await?;
        let mut rows = Self {
            schema: row.get_str(0).unwrap_or(schema).to_owned(),
            table: row.get_str(1).unwrap_or(table).to_owned(),
            // BLACKHOLE stores nothing, so writing a row twice does no harm.
            transactional: row.get_str(4) != Some("NO") || row.get_str(3) == Some("BLACKHOLE"),
            engine: row.get_str(3).unwrap_or_default().to_ascii_uppercase(),
            partitioned: row
                .get_str(5)
                .is_some_and(|options| options.split(' ').any(|it| it == "partitioned")),
            columns,
            parts: query_index_parts(connection, flavour, &of).await?,
            overlapping: Vec::new(),
        };
        if flavour == Flavour::MariaDb {
            if kind.contains("VERSIONED") && !shows_period {
                rows.columns.extend(
                    [("row_start", PeriodBound::Start), ("row_end", PeriodBound::End)].map(period_column),
                );
            }
            // Only MEMORY tables have hash indexes by default.
            if row.get_str(3) != Some("MEMORY") {
                rows.add_hash_columns();
            }
            if !rows.parts.is_empty() {
                let create = format!("SHOW CREATE TABLE {}", qualified_name(&rows.schema, &rows.table));
                let created = connection.query(&create).await?;
                let text = created.first().and_then(|row| row.get_str(1)).unwrap_or_default();
                rows.overlapping = without_overlaps(text);
            }
        }
        Ok(Some(rows))
    }

    /// Returns the columns without the indexes.
    pub(super) fn into_columns(self) -> Vec<TargetColumn> {
        self.columns
    }

    /// Adds MariaDB's hash columns. For a unique index on values that are too long for an index, MariaDB
    /// indexes a hash of the values. The hash column is visible only in the binlog.
    fn add_hash_columns(&mut self) {
        let hashed = self.parts.chunk_by(|one, other| one.index == other.index);
        let hashed = hashed.filter(|parts| parts.first().is_some_and(|part| part.is_hash)).count();
        for number in 1..=hashed {
            self.columns.push(hidden(&format!("DB_ROW_HASH_{number}"), "bigint unsigned"));
        }
    }
}

/// Returns a column that MariaDB shows only in the binlog.
fn hidden(name: &str, column_type: &str) -> TargetColumn {
    TargetColumn {
        name: name.to_owned(),
        column_type: column_type.to_owned(),
        collation: None,
        nullable: true,
        generated: true,
        stored: false,
        period: None,
        auto_increment: false,
    }
}

/// Returns an implicit period column of a system-versioned table.
fn period_column((name, bound): (&str, PeriodBound)) -> TargetColumn {
    TargetColumn { stored: true, period: Some(bound), ..hidden(name, "timestamp(6)") }
}

/// Reads the columns. The second value states whether the columns include the period columns of a
/// system-versioned table.
async fn query_columns(
    connection: &mut Connection,
    of: &str,
) -> Result<(Vec<TargetColumn>, bool), SessionError> {
    let asked = format!(
        "SELECT COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME, IS_NULLABLE, EXTRA, GENERATION_EXPRESSION \
         FROM information_schema.COLUMNS {of} ORDER BY ORDINAL_POSITION"
    );
    let answer = connection.query(&asked).await?;
    let columns = answer.rows.iter().map(|row| {
        let text = |index| row.get_str(index).unwrap_or_default();
        let extra = text(4).to_ascii_uppercase();
        // MySQL also marks columns whose default is an expression (DEFAULT_GENERATED). Such columns are not
        // generated columns.
        let generated = extra.contains("VIRTUAL GENERATED")
            || extra.contains("STORED GENERATED")
            || extra.contains("PERSISTENT GENERATED");
        TargetColumn {
            name: text(0).to_owned(),
            column_type: lower_case(text(1)),
            collation: row.get_str(2).map(str::to_owned),
            nullable: text(3).eq_ignore_ascii_case("YES"),
            generated,
            stored: generated && !extra.contains("VIRTUAL GENERATED"),
            period: match text(5) {
                "ROW START" => Some(PeriodBound::Start),
                "ROW END" => Some(PeriodBound::End),
                _ => None,
            },
            auto_increment: extra.contains("AUTO_INCREMENT"),
        }
    });
    let columns: Vec<TargetColumn> = columns.collect();
    let shows_period = columns.iter().any(|column| column.period.is_some());
    Ok((columns, shows_period))
}

async fn query_index_parts(
    connection: &mut Connection,
    flavour: Flavour,
    of: &str,
) -> Result<Vec<IndexPartRow>, SessionError> {
    let expression = match flavour {
        Flavour::MySql => "EXPRESSION",
        Flavour::MariaDb => "NULL",
    };
    let ask = |expression: &str| {
        format!(
            "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART, {expression}, INDEX_TYPE FROM information_schema.STATISTICS {of} \
             AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX"
        )
    };
    let answer = match connection.query(&ask(expression)).await {
        // MySQL before 8.0.13 has no expressions in indexes.
        Err(error) if is_unknown(&error) => connection.query(&ask("NULL")).await?,
        answer => answer?,
    };
    let parts = answer.rows.iter().map(|row| IndexPartRow {
        index: row.get_str(0).unwrap_or_default().to_owned(),
        column: row.get_str(1).filter(|_| row.get(3).is_none()).map(str::to_owned),
        prefix: row.get_u64(2).and_then(|prefix| u32::try_from(prefix).ok()),
        is_hash: row.get_str(4) == Some("HASH"),
    });
    Ok(parts.collect())
}

/// Converts a column type to lower case, except quoted text: the members of an ENUM or SET.
fn lower_case(column_type: &str) -> String {
    let parts = column_type.split('\'').enumerate();
    let parts = parts.map(|(number, part)| match number % 2 {
        0 => part.to_ascii_lowercase(),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("'")
}

/// Returns the names of the unique indexes with `WITHOUT OVERLAPS` in the output of `SHOW CREATE TABLE`.
/// Older servers show this clause only there.
fn without_overlaps(create: &str) -> Vec<String> {
    let lines = create.lines().map(str::trim_start).filter(|line| line.contains("WITHOUT OVERLAPS"));
    lines
        .map(|line| match line.strip_prefix("UNIQUE KEY `") {
            // The name ends at the closing backquote. A doubled backquote is part of the name.
            Some(rest) => {
                let mut name = String::new();
                let mut rest = rest.chars().peekable();
                while let Some(letter) = rest.next() {
                    if letter == '`' && rest.next_if_eq(&'`').is_none() {
                        break;
                    }
                    name.push(letter);
                }
                name
            }
            None => PRIMARY.to_owned(),
        })
        .collect()
}

/// Builds a table definition from `rows`. `name` is in the letter case in which the server compares names.
pub(super) fn build(
    rows: SchemaRows,
    flavour: Flavour,
    name: QualifiedName,
    foreign_keys: &ForeignKeys,
    ids: &mut IndexIds,
) -> TargetTable {
    let SchemaRows { schema, table, transactional, engine, partitioned, columns, parts, overlapping } = rows;
    let numbers: FxHashMap<String, usize> =
        columns.iter().enumerate().map(|(number, column)| (column.name.to_lowercase(), number)).collect();
    let mut unique = Vec::new();
    for parts in parts.chunk_by(|one, other| one.index == other.index) {
        let Some(index) = parts.first().map(|part| part.index.clone()) else { continue };
        let of_columns = parts.iter().map(|part| {
            let column = *numbers.get(&part.column.as_ref()?.to_lowercase())?;
            Some(IndexPart { column, prefix: part.prefix })
        });
        let of_columns: Option<Vec<IndexPart>> = of_columns.collect();
        let opaque = of_columns.is_none() || overlapping.contains(&index);
        let spelled = match (&of_columns, opaque) {
            (Some(of_columns), false) => spell(of_columns, &columns),
            // An index on an expression, or with WITHOUT OVERLAPS, is identified by its name. The zero byte
            // at the end distinguishes an index name from a column name.
            _ => format!("{index}\0"),
        };
        unique.push(UniqueIndex {
            id: ids.id(&name, &spelled),
            name: index,
            parts: of_columns.unwrap_or_default(),
            opaque,
        });
    }
    unique.sort_by_key(|index| index.name != PRIMARY);
    TargetTable {
        transactional,
        engine,
        partitioned,
        flavour,
        rows: ids.id(&name, ""),
        has_primary_key: unique.first().is_some_and(|index| index.name == PRIMARY),
        parents: foreign_keys.parents(&name, &numbers, ids),
        children: foreign_keys.children(&name, &numbers, ids),
        cascades: foreign_keys.cascades(&name, ids),
        schema,
        table,
        columns,
        unique,
    }
}

/// Returns the text by which [`IndexIds`] identifies an index: its columns with their prefix lengths. If no
/// column has a prefix length, the text equals that of a foreign key in [`ForeignKeys`] on the same columns.
/// So a foreign key and the unique index that it references share one ID.
fn spell(parts: &[IndexPart], columns: &[TargetColumn]) -> String {
    let spelled: Vec<String> = parts
        .iter()
        .map(|part| {
            let name = columns.get(part.column).map(|column| column.name.to_lowercase()).unwrap_or_default();
            // A space can separate the parts, because names cannot end with a space.
            part.prefix.map_or(name.clone(), |prefix| format!("{name} {prefix} "))
        })
        .collect();
    spelled.join("\0")
}

/// Returns a name as an SQL literal that is correct in every `sql_mode` and needs no escaping.
fn literal(name: &str) -> String {
    match name.is_empty() {
        true => "''".to_owned(),
        false => hex_literal(Some("utf8mb3"), name.as_bytes()),
    }
}

/// Returns whether the server is too old to know a name or the syntax in the query.
fn is_unknown(error: &SessionError) -> bool {
    // Unknown column, syntax error, unknown table, unknown system variable.
    matches!(error, SessionError::Server { error, .. } if [1054, 1064, 1109, 1193].contains(&error.number))
}
