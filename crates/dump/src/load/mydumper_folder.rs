//! Reads a folder of mydumper: definitions and INSERT statements, with one or more files for each table.
//!
//! Only the names of the files show to which object they belong: `DB-schema-create.sql`,
//! `DB.TABLE-schema.sql`, `DB.TABLE.00000.sql`, optionally with `.gz` or `.zst`. Names of databases and
//! tables may contain dots, so file names are compared with the names that have definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tailwater_wire::Flavour;

use super::dump_contents::{
    DefinitionScript, DumpContents, FileCompression, LoadChunk, ScriptDialect, TableFiles, file_name,
};
use super::{data_file_reader, ddl_script_runner};
use crate::dump_folder::small_file_reader::document;
use tailwater_files::file_store::FileStore;
use tailwater_tables::error::{BulkError, file_error};
use tailwater_tables::schema::TableName;
use tailwater_tables::snapshot::SnapshotPoint;

/// The file that exists in every complete folder of mydumper.
pub(super) const METADATA: &str = "metadata";

/// The name of the metadata file until the dump is complete.
pub(super) const METADATA_PARTIAL: &str = "metadata.partial";

/// How much of the start of a data file to read. That many bytes include everything before the first row.
const FRONT_BYTES: u64 = 4096;

/// Reads the contents of a folder of mydumper.
///
/// # Errors
/// [`BulkError::File`]; [`BulkError::IncompleteDump`] if the dump is not complete; [`BulkError::ForeignDump`]
/// if it has unsupported contents.
pub fn read(files: Arc<dyn FileStore>) -> Result<DumpContents, BulkError> {
    let place = files.path("");
    let listed: BTreeMap<String, u64> =
        files.list().map_err(file_error("list", &place))?.into_iter().collect();
    if !listed.contains_key(METADATA) {
        return Err(BulkError::IncompleteDump { path: place, tables: 0 });
    }
    let metadata = String::from_utf8_lossy(&document(files.as_ref(), METADATA)?).into_owned();
    if !metadata.contains("Finished dump at") {
        return Err(BulkError::IncompleteDump { path: place, tables: 0 });
    }
    let refused = |reason: String| BulkError::ForeignDump { path: files.path(""), tool: "mydumper", reason };
    let point = point(&metadata);
    let sorted = MydumperFiles::of(listed.keys().map(String::as_str)).map_err(refused)?;
    let definition = |what: String, schema: &str, file: &str, is_program: bool| DefinitionScript {
        what,
        path: files.path(file),
        dialect: ScriptDialect::Mydumper { schema: Some(schema.to_owned()), is_program },
    };
    let database = |(schema, file): (&String, &String)| DefinitionScript {
        what: format!("database {schema}"),
        path: files.path(file),
        dialect: ScriptDialect::Mydumper { schema: None, is_program: false },
    };
    let mut tables = Vec::new();
    for (name, file) in &sorted.tables {
        let chunk = |(number, file): (u32, &String)| LoadChunk {
            number,
            path: files.path(file),
            packing: FileCompression::of(file),
            rows: None,
            bytes: None,
            crc32: None,
            file_bytes: listed.get(file).copied().unwrap_or(0),
        };
        let chunks: Vec<_> = (0..).zip(sorted.rows.get(name).into_iter().flatten()).map(chunk).collect();
        let definition = definition(format!("table {name}"), &name.schema, file, false);
        if let Some(first) = chunks.first()
            && let Some(column) = column_without_time_zone(files.as_ref(), &definition, first)?
        {
            return Err(refused(format!(
                "column {column} of {name} is a TIMESTAMP, and {} does not say in which time zone its values are \
                 (--skip-tz-utc); dump without --skip-tz-utc, or begin each file of the table with SET TIME_ZONE",
                file_name(&first.path)
            )));
        }
        tables.push(TableFiles { name: name.clone(), definition, columns: None, text: None, chunks });
    }
    let views =
        sorted.views.iter().map(|(name, file)| definition(format!("view {name}"), &name.schema, file, false));
    let programs = sorted
        .programs
        .iter()
        .map(|(schema, file)| definition(format!("routines and events of {schema}"), schema, file, true));
    let triggers = sorted
        .triggers
        .iter()
        .map(|(name, file)| definition(format!("triggers of {name}"), &name.schema, file, true));
    Ok(DumpContents {
        id: id(&metadata, &listed),
        flavour: point.gtid_set.as_deref().map(flavour_of),
        schemas: sorted.schemas.iter().map(database).collect(),
        sequences: Vec::new(),
        objects: programs.chain(views).chain(triggers).collect(),
        tables,
        point: Some(point),
        accounts: Vec::new(),
        files: Arc::clone(&files),
    })
}

/// Returns an identifier of the dump: a digest of its metadata, and of the names and sizes of its files.
fn id(metadata: &str, listed: &BTreeMap<String, u64>) -> String {
    let mut id = Sha256::new();
    id.update(metadata);
    for (name, bytes) in listed {
        id.update(format!("{name}\0{bytes}\n"));
    }
    id.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the first TIMESTAMP column of a table whose first data file does not begin with the time zone of
/// its values.
///
/// # Errors
/// [`BulkError::File`]
fn column_without_time_zone(
    files: &dyn FileStore,
    definition: &DefinitionScript,
    first: &LoadChunk,
) -> Result<Option<String>, BulkError> {
    let script = ddl_script_runner::read(files, definition)?;
    match ddl_script_runner::timestamp_column(&String::from_utf8_lossy(&script)) {
        Some(column) if !sets_time_zone(files, first)? => Ok(Some(column.to_owned())),
        _ => Ok(None),
    }
}

/// Returns whether a data file begins with the time zone of its values.
///
/// # Errors
/// [`BulkError::File`]
fn sets_time_zone(files: &dyn FileStore, chunk: &LoadChunk) -> Result<bool, BulkError> {
    let mut front = Vec::new();
    let opened = data_file_reader::open(files, &file_name(&chunk.path), chunk.packing);
    let read = opened.and_then(|rows| rows.take(FRONT_BYTES).read_to_end(&mut front));
    read.map_err(file_error("read", &chunk.path))?;
    let front = String::from_utf8_lossy(&front).to_ascii_uppercase();
    let before_rows = front.find("INSERT").map_or(front.as_str(), |at| &front[..at]);
    Ok(before_rows.contains("TIME_ZONE"))
}

/// The files of a folder, grouped by kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct MydumperFiles {
    schemas: BTreeMap<String, String>,
    tables: BTreeMap<TableName, String>,
    views: BTreeMap<TableName, String>,
    triggers: BTreeMap<TableName, String>,
    programs: BTreeMap<String, String>,
    rows: BTreeMap<TableName, Vec<String>>,
}

impl MydumperFiles {
    /// Groups file names by kind. The names must be in alphabetical order.
    ///
    /// # Errors
    /// The name of a file that is not supported.
    fn of<'a>(names: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut sorted = Self::default();
        let mut others = Vec::new();
        let mut of_tables = Vec::new();
        for file in names {
            let name = file.strip_suffix(".gz").or_else(|| file.strip_suffix(".zst")).unwrap_or(file);
            let Some(name) = name.strip_suffix(".sql") else {
                others.push(file);
                continue;
            };
            if let Some(schema) = name.strip_suffix("-schema-create") {
                sorted.schemas.insert(schema.to_owned(), file.to_owned());
            } else if let Some(schema) = name.strip_suffix("-schema-post") {
                sorted.programs.insert(schema.to_owned(), file.to_owned());
            } else {
                of_tables.push((name, file));
            }
        }
        if let Some(file) = others.iter().find(|file| file.ends_with(".dat") || file.contains(".dat.")) {
            return Err(format!("{file} has rows for LOAD DATA; dump without --load-data and --csv"));
        }
        let mut rows = Vec::new();
        let mut views = BTreeSet::new();
        for (name, file) in of_tables {
            let endings = ["-schema-view", "-schema-triggers", "-schema"];
            let Some((name, ending)) =
                endings.iter().find_map(|ending| Some((name.strip_suffix(ending)?, *ending)))
            else {
                rows.push((name, file));
                continue;
            };
            let table = sorted
                .table(name)
                .ok_or_else(|| format!("{file} belongs to no database with a definition"))?;
            match ending {
                "-schema-view" => {
                    views.insert(table.clone());
                    sorted.views.insert(table, file.to_owned())
                }
                "-schema-triggers" => sorted.triggers.insert(table, file.to_owned()),
                _ => sorted.tables.insert(table, file.to_owned()),
            };
        }
        // For each view, mydumper also writes a placeholder table. The placeholder is not a table of the
        // dump.
        sorted.tables.retain(|name, _| !views.contains(name));
        for (name, file) in rows {
            let table = sorted
                .table_of_rows(name)
                .ok_or_else(|| format!("{file} belongs to no table with a definition"))?;
            sorted.rows.entry(table).or_default().push(file.to_owned());
        }
        Ok(sorted)
    }

    /// Returns the table for a name `DB.TABLE`. If several databases match, the database with the longest
    /// name is used.
    fn table(&self, name: &str) -> Option<TableName> {
        let within =
            |schema: &String| Some((schema.clone(), name.strip_prefix(schema.as_str())?.strip_prefix('.')?));
        let found = self.schemas.keys().filter_map(within).max_by_key(|(schema, _)| schema.len());
        found.map(|(schema, table)| TableName::new(schema, table))
    }

    /// Returns the table for a name `DB.TABLE` that is followed by numbers.
    fn table_of_rows(&self, name: &str) -> Option<TableName> {
        let mut name = name;
        loop {
            if let Some(table) = self.table(name).filter(|table| self.tables.contains_key(table)) {
                return Some(table);
            }
            let (front, number) = name.rsplit_once('.')?;
            if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            name = front;
        }
    }
}

/// Returns the position of the data from the metadata of old or new versions.
fn point(metadata: &str) -> SnapshotPoint {
    let mut point = SnapshotPoint::default();
    let mut in_gtids = false;
    let mut of_replica = false;
    for line in metadata.lines() {
        let line = line.trim().trim_start_matches("# ");
        if line.starts_with("SHOW SLAVE STATUS") || line.starts_with("[replication") {
            of_replica = true;
        }
        if let Some(at) = line.strip_prefix("Started dump at: ") {
            point.taken_at = at.to_owned();
        }
        if of_replica {
            continue;
        }
        let value = |names: [&str; 2]| {
            names.iter().find_map(|name| {
                let rest = line.strip_prefix(name)?.trim_start();
                Some(rest.strip_prefix([':', '='])?.trim().trim_matches('"').to_owned())
            })
        };
        if let Some(file) = value(["Log", "File"]) {
            point.binlog_file = Some(file).filter(|file| !file.is_empty());
        } else if let Some(position) = value(["Pos", "Position"]) {
            point.binlog_position = position.parse().ok();
        } else if let Some(gtids) = value(["GTID", "Executed_Gtid_Set"]) {
            in_gtids = gtids.ends_with(',');
            point.gtid_set = Some(gtids).filter(|gtids| !gtids.is_empty());
        } else if in_gtids {
            // MySQL prints a GTID set on several lines.
            let gtids = line.trim_matches('"');
            in_gtids = gtids.ends_with(',');
            if let Some(set) = &mut point.gtid_set {
                set.push_str(gtids);
            }
        }
    }
    point
}

fn flavour_of(gtid_set: &str) -> Flavour {
    match gtid_set.contains(':') {
        true => Flavour::MySql,
        false => Flavour::MariaDb,
    }
}

/// Splits a script that has bodies of routines, events or triggers into statements. A statement ends with a
/// semicolon at the end of a line. mydumper writes such a semicolon within a body as `; ` and a line break;
/// this function restores the original text.
pub(crate) fn programs(script: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut statement = Vec::new();
    for line in script.split_inclusive(|&byte| byte == b'\n') {
        if let Some(last) = line.strip_suffix(b";\n").or_else(|| line.strip_suffix(b";")) {
            statement.extend_from_slice(last);
            found.push(std::mem::take(&mut statement).trim_ascii().to_vec());
        } else if let Some(within) = line.strip_suffix(b"; \n") {
            statement.extend_from_slice(within);
            statement.extend_from_slice(b";\n");
        } else {
            statement.extend_from_slice(line);
        }
    }
    found.push(statement.trim_ascii().to_vec());
    found.retain(|statement| !statement.is_empty());
    found
}

impl FileCompression {
    /// Returns the compression that the extension of a file name shows.
    pub(super) fn of(file: &str) -> Self {
        match PathBuf::from(file).extension().and_then(|ending| ending.to_str()) {
            Some("zst") => Self::Zstd,
            Some("gz") => Self::Gzip,
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_identified_by_their_names() {
        let mut names = [
            "a-schema-create.sql",
            "a.b-schema-create.sql.gz",
            "a.b.t-schema.sql",
            "a.b.t.00000.sql.zst",
            "a.b.t.00001.sql.zst",
            "a.t.1-schema.sql",
            "a.t.1.sql",
            "a.v-schema.sql",
            "a.v-schema-view.sql",
            "a.t.1-schema-triggers.sql",
            "a-schema-post.sql",
            "metadata",
        ];
        names.sort_unstable();
        let sorted = MydumperFiles::of(names.into_iter()).expect("the names of all files are supported");
        let (t, one) = (TableName::new("a.b", "t"), TableName::new("a", "t.1"));
        assert_eq!(sorted.tables.keys().collect::<Vec<_>>(), [&one, &t]);
        assert_eq!(sorted.rows[&t], ["a.b.t.00000.sql.zst", "a.b.t.00001.sql.zst"]);
        assert_eq!(sorted.rows[&one], ["a.t.1.sql"]);
        assert_eq!(sorted.views.len() + sorted.triggers.len() + sorted.programs.len(), 3);
        assert!(MydumperFiles::of(["a-schema-create.sql", "a.x.sql"].into_iter()).is_err());
        assert!(MydumperFiles::of(["a-schema-create.sql", "a.x.00000.dat"].into_iter()).is_err());
    }

    #[test]
    fn positions_of_old_and_new_versions_are_read() {
        let old = "Started dump at: 2026-01-01 00:00:00\nSHOW MASTER STATUS:\n\tLog: b.1\n\tPos: 7\n\tGTID:a-b:1-5,\nc-d:1\n\n\
            SHOW SLAVE STATUS:\n\tHost: h\n\tLog: other\n\nFinished dump at: x\n";
        let point = super::point(old);
        assert_eq!((point.binlog_file.as_deref(), point.binlog_position), (Some("b.1"), Some(7)));
        assert_eq!(point.gtid_set.as_deref(), Some("a-b:1-5,c-d:1"));
        let new = "# Started dump at: 2026\n[source]\n# Channel_Name = ''\nFile = \"b.2\"\nPosition = 8\n\
            Executed_Gtid_Set = \"0-1-5\"\n# Finished dump at: x\n";
        let point = super::point(new);
        assert_eq!((point.binlog_file.as_deref(), point.binlog_position), (Some("b.2"), Some(8)));
        assert_eq!(point.gtid_set.as_deref().map(flavour_of), Some(Flavour::MariaDb));
    }

    #[test]
    fn scripts_with_routine_bodies_are_split_into_statements() {
        let script = b"SET character_set_client = utf8mb3;\nCREATE PROCEDURE `p`()\nBEGIN\nSELECT 1; \nEND;\nSET x = 1";
        let found: Vec<_> =
            programs(script).iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        let body = "CREATE PROCEDURE `p`()\nBEGIN\nSELECT 1;\nEND";
        assert_eq!(found, ["SET character_set_client = utf8mb3", body, "SET x = 1"]);
    }
}
