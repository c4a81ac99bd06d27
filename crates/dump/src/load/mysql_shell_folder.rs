//! Reads a folder that `util.dumpInstance`, `dumpSchemas` or `dumpTables` of MySQL Shell wrote. `@.json`
//! lists the databases. A file for each database lists its tables. A file for each table lists its columns
//! and the format of its rows.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tailwater_wire::Flavour;

use super::ddl_script_runner;
use super::dump_contents::{
    Decoding, DefinitionScript, DumpContents, FileCompression, LoadChunk, ScriptDialect, TableFiles,
    TextFields,
};
use crate::dump_folder::small_file_reader::document;
use tailwater_files::file_store::FileStore;
use tailwater_tables::error::{BulkError, file_error};
use tailwater_tables::schema::TableName;
use tailwater_tables::snapshot::SnapshotPoint;

/// The file that identifies a folder of MySQL Shell.
pub(super) const DUMP: &str = "@.json";

/// The file that MySQL Shell writes last.
const DONE: &str = "@.done.json";

/// Returns whether a file holds the progress of `util.loadDump`. MySQL Shell writes it into the folder while
/// it loads the dump: `load-progress.`, the target's UUID and `.json` (manual of MySQL Shell,
/// `progressFile`). The dump does not name this file. The UUID distinguishes it from the files of a database
/// named `load-progress`.
fn is_load_progress(name: &str) -> bool {
    let uuid = name.strip_prefix("load-progress").and_then(|rest| rest.strip_suffix(".json"));
    uuid.and_then(|uuid| uuid.strip_prefix(['.', '-'])).is_some_and(|uuid| {
        uuid.len() == UUID_LENGTH && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    })
}

/// Length of a UUID as servers print it.
const UUID_LENGTH: usize = 36;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShellDump {
    schemas: Vec<String>,
    #[serde(default)]
    basenames: BTreeMap<String, String>,
    default_character_set: Option<String>,
    #[serde(default = "yes")]
    tz_utc: bool,
    gtid_executed: Option<String>,
    #[serde(default)]
    gtid_executed_inconsistent: bool,
    binlog_file: Option<String>,
    binlog_position: Option<u64>,
    #[serde(default)]
    begin: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShellSchema {
    #[serde(default)]
    tables: Vec<String>,
    #[serde(default)]
    views: Vec<String>,
    #[serde(default)]
    basenames: BTreeMap<String, String>,
    #[serde(default = "yes")]
    includes_ddl: bool,
    includes_views_ddl: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShellTable {
    #[serde(default)]
    options: ShellOptions,
    #[serde(default)]
    triggers: Vec<String>,
    #[serde(default = "yes")]
    includes_data: bool,
    #[serde(default = "yes")]
    includes_ddl: bool,
    #[serde(default = "tsv")]
    extension: String,
    #[serde(default)]
    chunking: bool,
    compression: Option<String>,
    /// The base names of the data files of each partition.
    #[serde(default)]
    basenames: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ShellOptions {
    columns: Vec<String>,
    decode_columns: BTreeMap<String, String>,
    default_character_set: Option<String>,
    fields_terminated_by: Option<String>,
    fields_enclosed_by: Option<String>,
    fields_escaped_by: Option<String>,
    lines_terminated_by: Option<String>,
    compression: Option<String>,
}

fn yes() -> bool {
    true
}

fn tsv() -> String {
    "tsv".to_owned()
}

/// Reads the contents of a folder of MySQL Shell.
///
/// # Errors
/// [`BulkError::File`], [`BulkError::Damaged`]; [`BulkError::IncompleteDump`] if the dump is not complete;
/// [`BulkError::ForeignDump`] if its format is not supported.
pub fn read(files: Arc<dyn FileStore>) -> Result<DumpContents, BulkError> {
    let place = files.path("");
    let listed = files.list().map_err(file_error("list", &place))?;
    let listed = listed.into_iter().filter(|(name, _)| !is_load_progress(name)).collect();
    let reader = ShellDumpReader { files: files.as_ref(), listed, read: RefCell::default() };
    if !reader.listed.contains_key(DONE) {
        return Err(BulkError::IncompleteDump { path: place, tables: 0 });
    }
    let dump: ShellDump = reader.json(DUMP)?;
    let mut contents = DumpContents {
        id: reader.id(&dump)?,
        files: Arc::clone(&files),
        flavour: Some(Flavour::MySql),
        schemas: Vec::new(),
        sequences: Vec::new(),
        tables: Vec::new(),
        objects: Vec::new(),
        accounts: Vec::new(),
        point: Some(SnapshotPoint {
            gtid_set: dump
                .gtid_executed
                .clone()
                .filter(|set| !set.is_empty() && !dump.gtid_executed_inconsistent)
                .map(|set| set.replace(['\n', '\r'], "")),
            binlog_file: dump.binlog_file.clone().filter(|file| !file.is_empty()),
            binlog_position: dump.binlog_position,
            taken_at: dump.begin.clone(),
        }),
    };
    let mut triggers = Vec::new();
    for name in &dump.schemas {
        let base = dump.basenames.get(name).unwrap_or(name);
        let schema: ShellSchema = reader.json(&format!("{base}.json"))?;
        if schema.includes_ddl {
            contents.schemas.push(reader.definition(
                format!("database {name}"),
                None,
                &format!("{base}.sql"),
            ));
        }
        let base_of = |name: &String| match schema.basenames.get(name) {
            Some(base) => base.clone(),
            None => format!("{base}@{name}"),
        };
        for table in &schema.tables {
            reader.table(name, table, &base_of(table), &dump, &mut contents, &mut triggers)?;
        }
        if schema.includes_views_ddl.unwrap_or(schema.includes_ddl) {
            for view in &schema.views {
                let file = format!("{}.sql", base_of(view));
                contents.objects.push(reader.definition(format!("view {name}.{view}"), Some(name), &file));
            }
        }
    }
    contents.objects.extend(triggers);
    reader.check_all_read(&contents)?;
    Ok(contents)
}

struct ShellDumpReader<'a> {
    files: &'a dyn FileStore,
    listed: BTreeMap<String, u64>,
    /// The JSON files that were read.
    read: RefCell<BTreeSet<String>>,
}

impl ShellDumpReader<'_> {
    fn json<T: DeserializeOwned>(&self, file: &str) -> Result<T, BulkError> {
        let bytes = document(self.files, file)?;
        self.read.borrow_mut().insert(file.to_owned());
        let damaged = |error: serde_json::Error| BulkError::Damaged {
            path: self.files.path(file),
            reason: error.to_string(),
        };
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// Refuses a dump with more files than its JSON files name. In such a dump a JSON file was edited or
    /// damaged, and tables or rows would be missing after the load.
    fn check_all_read(&self, contents: &DumpContents) -> Result<(), BulkError> {
        let chunks = contents.tables.iter().flat_map(|table| &table.chunks);
        let rows: BTreeSet<_> = chunks.map(|chunk| chunk.path.clone()).collect();
        let read = self.read.borrow();
        let is_left = |file: &&String| match file.as_str() {
            // Files whose names start with `@.` are about the whole dump. Other versions of MySQL Shell may
            // write more such files, so all of them are accepted.
            name if name.starts_with("@.") => false,
            name if name.ends_with(".json") => !read.contains(name),
            name => {
                let name = name.strip_suffix(".zst").or_else(|| name.strip_suffix(".gz")).unwrap_or(name);
                name.ends_with(".tsv") && !rows.contains(&self.files.path(file))
            }
        };
        match self.listed.keys().find(is_left) {
            None => Ok(()),
            Some(file) => Err(BulkError::ForeignDump {
                path: self.files.path(file),
                tool: "MySQL Shell",
                reason:
                    "the file belongs to no table that the JSON files of the dump name; the JSON files were edited or damaged"
                        .into(),
            }),
        }
    }

    fn id(&self, dump: &ShellDump) -> Result<String, BulkError> {
        let mut id = Sha256::new();
        id.update(&dump.begin);
        id.update(document(self.files, DONE)?);
        for (name, bytes) in &self.listed {
            id.update(format!("{name}\0{bytes}\n"));
        }
        Ok(id.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn definition(&self, what: String, schema: Option<&String>, file: &str) -> DefinitionScript {
        DefinitionScript {
            what,
            path: self.files.path(file),
            dialect: ScriptDialect::MysqlShell { schema: schema.cloned() },
        }
    }

    fn table(
        &self,
        schema: &String,
        name: &str,
        base: &str,
        dump: &ShellDump,
        contents: &mut DumpContents,
        triggers: &mut Vec<DefinitionScript>,
    ) -> Result<(), BulkError> {
        let file = format!("{base}.json");
        let table: ShellTable = self.json(&file)?;
        let what = TableName::new(schema, name);
        let refused = |reason: String| BulkError::ForeignDump {
            path: self.files.path(&file),
            tool: "MySQL Shell",
            reason,
        };
        if !table.includes_ddl {
            return Err(refused(format!("the dump has no definition of {what}; dump without dataOnly")));
        }
        check_format(&table.options).map_err(refused)?;
        let decoded = table.options.decodings().map_err(refused)?;
        let packing = table.packing().map_err(refused)?;
        let mut chunks = Vec::new();
        if table.includes_data {
            let one = [base.to_owned()];
            let bases: Vec<_> = match table.basenames.is_empty() {
                true => one.iter().collect(),
                false => table.basenames.values().collect(),
            };
            for base in bases {
                self.chunks(base, &table, packing, &mut chunks).map_err(refused)?;
            }
        }
        let definition = self.definition(format!("table {what}"), Some(schema), &format!("{base}.sql"));
        if !dump.tz_utc && !chunks.is_empty() {
            let script = ddl_script_runner::read(self.files, &definition)?;
            if let Some(column) = ddl_script_runner::timestamp_column(&String::from_utf8_lossy(&script)) {
                return Err(refused(format!(
                    "column {column} of {what} is a TIMESTAMP, and the dump does not record the time zone of its values \
                     (tzUtc: false); dump with tzUtc: true"
                )));
            }
        }
        let character_set = table.character_set(dump).map_err(refused)?;
        if !table.triggers.is_empty() {
            let file = format!("{base}.triggers.sql");
            triggers.push(self.definition(format!("triggers of {what}"), Some(schema), &file));
        }
        contents.tables.push(TableFiles {
            definition,
            name: what,
            columns: Some(table.options.columns.clone()),
            text: Some(TextFields { character_set, decoded }),
            chunks,
        });
        Ok(())
    }

    /// Adds the data files of a table: `BASE.tsv.zst`, or `BASE@0.tsv.zst`, `BASE@1.tsv.zst` and so on. The
    /// name of the last file has two `@`.
    fn chunks(
        &self,
        base: &str,
        table: &ShellTable,
        packing: FileCompression,
        found: &mut Vec<LoadChunk>,
    ) -> Result<(), String> {
        let mut add = |file: String| {
            let Some(&file_bytes) = self.listed.get(&file) else { return false };
            let number = u32::try_from(found.len()).unwrap_or(u32::MAX);
            let path = self.files.path(&file);
            found.push(LoadChunk { number, path, packing, rows: None, bytes: None, crc32: None, file_bytes });
            true
        };
        let extension = &table.extension;
        // Older versions of MySQL Shell wrote an empty table as a single file, even if the table was to be
        // chunked.
        if add(format!("{base}.{extension}")) {
            return Ok(());
        }
        if !table.chunking {
            return Err(format!("{base}.{extension} is missing"));
        }
        for number in 0u32.. {
            if !add(format!("{base}@{number}.{extension}")) {
                return match add(format!("{base}@@{number}.{extension}")) {
                    true => Ok(()),
                    false => Err(format!("{base}@{number}.{extension} is missing")),
                };
            }
        }
        Ok(())
    }
}

impl ShellOptions {
    /// Returns how the fields of columns are decoded.
    ///
    /// # Errors
    /// The column with an unsupported encoding.
    fn decodings(&self) -> Result<BTreeMap<String, Decoding>, String> {
        let decoding = |(column, method): (&String, &String)| match method.as_str() {
            "FROM_BASE64" => Ok((column.clone(), Decoding::Base64)),
            "UNHEX" => Ok((column.clone(), Decoding::Hex)),
            other => Err(format!("column {column} has the unsupported encoding {other}")),
        };
        self.decode_columns.iter().map(decoding).collect()
    }
}

impl ShellTable {
    /// Returns the compression of the data files.
    ///
    /// # Errors
    /// The name of the unsupported compression.
    fn packing(&self) -> Result<FileCompression, String> {
        let compression = self.compression.as_ref().or(self.options.compression.as_ref());
        match compression.map(String::as_str) {
            Some("none") => Ok(FileCompression::None),
            Some("zstd") => Ok(FileCompression::Zstd),
            Some("gzip") => Ok(FileCompression::Gzip),
            None => Ok(FileCompression::of(&self.extension)),
            Some(other) => Err(format!("the rows have the unsupported compression {other}")),
        }
    }

    /// Returns the character set of the data files.
    ///
    /// # Errors
    /// The name that is not a valid character set.
    fn character_set(&self, dump: &ShellDump) -> Result<String, String> {
        let own = self.options.default_character_set.as_ref();
        let name = own.or(dump.default_character_set.as_ref()).map_or("utf8mb4", String::as_str);
        match name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            true => Ok(name.to_owned()),
            false => Err(format!("{name:?} is not a valid name of a character set")),
        }
    }
}

/// Refuses dumps whose fields and lines are not written in MySQL Shell's default dialect, which Tailwater's
/// own data files also use.
fn check_format(options: &ShellOptions) -> Result<(), String> {
    let settings = [
        ("fieldsTerminatedBy", &options.fields_terminated_by, "\t"),
        ("fieldsEnclosedBy", &options.fields_enclosed_by, ""),
        ("fieldsEscapedBy", &options.fields_escaped_by, "\\"),
        ("linesTerminatedBy", &options.lines_terminated_by, "\n"),
    ];
    for (name, value, wanted) in settings {
        if let Some(value) = value.as_ref().filter(|value| *value != wanted) {
            return Err(format!(
                "the option {name} is {value:?}; only dumps in the default dialect are read"
            ));
        }
    }
    Ok(())
}
