//! Finds storage engines, collations and types that a dump uses and the target lacks, before anything is
//! created.

use std::collections::HashSet;

use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::ddl_script_runner;
use super::dump_contents::{DumpContents, ScriptDialect, TableFiles};
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::{TableName, texts};

/// Column types that only MariaDB has.
const MARIADB_TYPES: [&str; 4] = ["uuid", "inet4", "inet6", "xmltype"];

/// Refuses a dump with tables that the target cannot create unchanged. Tables that exist on the target are
/// not checked, because they are not created.
///
/// # Errors
/// [`BulkError::FlavourMismatch`]; [`BulkError::Session`]; [`BulkError::File`] of a definition.
pub(super) async fn check(
    connection: &mut Connection,
    contents: &DumpContents,
    existing: &HashSet<TableName>,
) -> Result<(), BulkError> {
    let target = connection.server().flavour;
    if contents.flavour == Some(target)
        || contents.tables.iter().any(|table| table.definition.dialect != ScriptDialect::Own)
    {
        return Ok(());
    }
    let has = collations(connection).await?;
    for table in contents.tables.iter().filter(|table| !existing.contains(&table.name)) {
        let script = ddl_script_runner::read(contents.files.as_ref(), &table.definition)?;
        let text = String::from_utf8_lossy(&script);
        for line in text.lines() {
            let Some(problem) = problem(line, target, &has) else { continue };
            let what = match quoted_name(line) {
                Some(column) => format!("column {column} of table {}", table.name),
                None => format!("table {}", table.name),
            };
            return Err(BulkError::FlavourMismatch { what, reason: problem });
        }
    }
    Ok(())
}

/// Refuses a dump with tables whose storage engine the target lacks. The load does not substitute engines, so
/// creating such a table would fail in the middle of the load. Tables that exist on the target may have any
/// engine, because they are not created.
///
/// # Errors
/// [`BulkError::EngineMissing`]; [`BulkError::Session`]; [`BulkError::File`] of a definition.
pub(super) async fn check_engines(
    connection: &mut Connection,
    contents: &DumpContents,
    existing: &HashSet<TableName>,
) -> Result<(), BulkError> {
    let sql = "SELECT LOWER(engine) FROM information_schema.engines WHERE support IN ('YES', 'DEFAULT')";
    let has: HashSet<_> =
        texts(&connection.query(sql).await?)?.into_iter().map(|[engine]: [String; 1]| engine).collect();
    let is_made = |table: &&TableFiles| {
        table.definition.dialect == ScriptDialect::Own && !existing.contains(&table.name)
    };
    for table in contents.tables.iter().filter(is_made) {
        let script = ddl_script_runner::read(contents.files.as_ref(), &table.definition)?;
        let text = String::from_utf8_lossy(&script);
        let is_there = |engine: &&str| has.contains(canonical(&engine.to_ascii_lowercase()));
        if let Some(engine) = engine(&text).filter(|engine| !is_there(engine)) {
            return Err(BulkError::EngineMissing {
                server: connection.endpoint().to_owned(),
                engine: engine.to_owned(),
                table: table.name.to_string(),
                path: table.definition.path.clone(),
            });
        }
    }
    Ok(())
}

/// Returns the name under which a server lists an engine; table definitions may use another name.
fn canonical(engine: &str) -> &str {
    match engine {
        "merge" => "mrg_myisam",
        "heap" => "memory",
        "innobase" => "innodb",
        "ndb" => "ndbcluster",
        engine => engine,
    }
}

/// Returns the engine of a table definition. Servers print it after the columns.
fn engine(definition: &str) -> Option<&str> {
    let line = definition.lines().find_map(|line| line.strip_prefix(") ENGINE="))?;
    let end = line.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    Some(&line[..end.unwrap_or(line.len())]).filter(|engine| !engine.is_empty())
}

/// Returns the names of all collations of the target, with and without the name of their character set.
async fn collations(connection: &mut Connection) -> Result<HashSet<String>, BulkError> {
    let mut found = HashSet::new();
    let columns: &[&str] = match connection.server().flavour {
        Flavour::MySql => &["collation_name"],
        // Since MariaDB 10.10 a collation may belong to several character sets. It then has a full name for
        // each of them.
        Flavour::MariaDb => &["collation_name", "full_collation_name"],
    };
    for column in columns {
        let sql =
            format!("SELECT DISTINCT {column} FROM information_schema.collation_character_set_applicability");
        let rows = connection.query(&sql).await?;
        found.extend(rows.rows.iter().filter_map(|row| row.get_str(0)).map(str::to_ascii_lowercase));
    }
    Ok(found)
}

/// Returns what the target lacks for a line of a table definition; `None` if it lacks nothing.
fn problem(line: &str, target: Flavour, has: &HashSet<String>) -> Option<String> {
    let words = words(line);
    for pair in words.windows(2) {
        if pair[0].eq_ignore_ascii_case("COLLATE") && !has.contains(&pair[1].to_ascii_lowercase()) {
            return Some(format!(
                "the target has no collation {}; alter the column to a collation that both servers have",
                pair[1]
            ));
        }
    }
    if target == Flavour::MySql && line.trim_start().starts_with('`') {
        let data_type = words.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
        if MARIADB_TYPES.contains(&data_type.as_str()) {
            return Some(format!(
                "the target has no type {data_type}; alter the column to BINARY or VARCHAR"
            ));
        }
    }
    None
}

/// Returns the words of a line that are outside quotes.
fn words(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut quote = None;
    let mut started = None;
    for (at, letter) in line.char_indices() {
        let is_word = quote.is_none() && (letter.is_ascii_alphanumeric() || letter == '_');
        match (started, is_word) {
            (None, true) => started = Some(at),
            (Some(from), false) => {
                found.push(&line[from..at]);
                started = None;
            }
            _ => {}
        }
        match quote {
            None if matches!(letter, '`' | '\'' | '"') => quote = Some(letter),
            Some(open) if open == letter => quote = None,
            _ => {}
        }
    }
    found.extend(started.map(|from| &line[from..]));
    found
}

/// Returns the column name at the start of a line.
fn quoted_name(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix('`')?.split('`').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_found_after_the_columns() {
        let of = |last: &str| format!("CREATE TABLE `t` (\n  `a` int COMMENT ') ENGINE=x'\n{last}");
        assert_eq!(engine(&of(") ENGINE=ARCHIVE DEFAULT CHARSET=latin1")), Some("ARCHIVE"));
        assert_eq!(engine(&of(") ENGINE=MRG_MyISAM")), Some("MRG_MyISAM"));
        assert_eq!(engine(&of(")")), None);
    }

    #[test]
    fn missing_collations_and_types_are_named() {
        let has = HashSet::from(["utf8mb4_bin".to_owned()]);
        let problem = |line, target| super::problem(line, target, &has);
        let line = "  `a COLLATE x` varchar(9) COLLATE utf8mb4_0900_ai_ci DEFAULT 'COLLATE y',";
        assert!(problem(line, Flavour::MariaDb).is_some_and(|text| text.contains("utf8mb4_0900_ai_ci")));
        assert_eq!(quoted_name(line), Some("a COLLATE x"));
        assert!(problem("  `a` text COLLATE utf8mb4_bin,", Flavour::MariaDb).is_none());
        assert!(
            problem(") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_uca1400_ai_ci", Flavour::MySql)
                .is_some()
        );
        assert!(problem("  `u` uuid DEFAULT NULL", Flavour::MySql).is_some());
        assert!(problem("  KEY `uuid` (`u`)", Flavour::MySql).is_none());
    }
}
