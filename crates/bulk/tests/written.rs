//! Dump folders written by the tests themselves, row by row and without haste.

use std::path::Path;

use anyhow::{Context, Result};
use tailwater_bulk::fields;
use tailwater_bulk::folder::names::{MANIFEST, chunk_file, object_file, schema_file, table_file};
use tailwater_bulk::folder::{
    ChunkEntry, ColumnEntry, Compression, DumpedFlavour, DumpedServer, FORMAT, Manifest, ObjectEntry,
    SchemaEntry, SnapshotPoint, TableEntry, WrittenChunk,
};
use tailwater_bulk::schema::{Object, Selection, TableName, ddl, inventory, prepare};
use tailwater_bulk::sql::{literal, qualified};
use tailwater_bulk::walk::{ChunkRange, KeyRange};
use tailwater_sandbox::Server;
use tailwater_session::Connection;
use tailwater_wire::Flavour;

/// Dumps what a server has, so many rows to a file.
pub async fn write(
    server: &Server,
    selection: &Selection,
    compression: Compression,
    chunk_rows: usize,
) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let mut connection = Connection::connect(&server.connect_options()).await?;
    prepare(&mut connection).await?;
    let found = inventory(&mut connection, selection).await?;
    let mut manifest = Manifest {
        format: FORMAT,
        tailwater: "0.1.0".into(),
        server: DumpedServer {
            flavour: match server.kind().flavour() {
                Flavour::MySql => DumpedFlavour::MySql,
                Flavour::MariaDb => DumpedFlavour::MariaDb,
            },
            version: server.version().into(),
        },
        started_at: "2026-01-01T00:00:00Z".into(),
        finished_at: Some("2026-01-01T00:00:01Z".into()),
        compression,
        snapshots: vec![SnapshotPoint::default()],
        schemas: Vec::new(),
        tables: Vec::new(),
        objects: Vec::new(),
    };
    for name in &found.schemas {
        let file = schema_file(name);
        let script = ddl(&mut connection, &Object::Schema(name.clone())).await?;
        std::fs::write(folder.path().join(&file), script)?;
        manifest.schemas.push(SchemaEntry { name: name.clone(), file });
    }
    for object in &found.objects {
        let Object::Other { kind, schema, name } = object else { continue };
        let file = object_file(*kind, schema, name);
        std::fs::write(folder.path().join(&file), ddl(&mut connection, object).await?)?;
        let (kind, schema, name) = (*kind, schema.clone(), name.clone());
        manifest.objects.push(ObjectEntry { kind, schema, name, file });
    }
    for table in &found.tables {
        let file = table_file(&table.schema, &table.name);
        let script = ddl(&mut connection, &Object::Table(table.clone())).await?;
        std::fs::write(folder.path().join(&file), script)?;
        let columns = columns(&mut connection, table).await?;
        let chunks = rows(&mut connection, folder.path(), table, &columns, compression, chunk_rows).await?;
        let rows = chunks.iter().filter_map(|chunk| chunk.written).map(|chunk| chunk.rows).sum();
        let (schema, table) = (table.schema.clone(), table.name.clone());
        manifest.tables.push(TableEntry { schema, table, file, columns, rows, chunks, finished: true });
    }
    write_manifest(folder.path(), &manifest)?;
    Ok(folder)
}

pub fn read_manifest(folder: &Path) -> Result<Manifest> {
    Ok(serde_json::from_slice(&std::fs::read(folder.join(MANIFEST))?)?)
}

pub fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<()> {
    Ok(std::fs::write(folder.join(MANIFEST), serde_json::to_vec_pretty(manifest)?)?)
}

async fn columns(connection: &mut Connection, table: &TableName) -> Result<Vec<ColumnEntry>> {
    let sql = format!(
        "SELECT column_name, LOWER(data_type) FROM information_schema.columns WHERE table_schema = {} AND \
         table_name = {} AND COALESCE(generation_expression, '') = '' ORDER BY ordinal_position",
        literal(&table.schema),
        literal(&table.name)
    );
    let found = connection.query(&sql).await?;
    let column = |row: &tailwater_session::Row| {
        let text = |index| row.get_str(index).map(str::to_owned).context("no text");
        Ok(ColumnEntry { name: text(0)?, data_type: text(1)? })
    };
    found.rows.iter().map(column).collect()
}

async fn rows(
    connection: &mut Connection,
    folder: &Path,
    table: &TableName,
    columns: &[ColumnEntry],
    compression: Compression,
    chunk_rows: usize,
) -> Result<Vec<ChunkEntry>> {
    let list: Vec<_> =
        columns.iter().map(|column| fields::selected(&column.name, &column.data_type)).collect();
    let sql = format!("SELECT {} FROM {}", list.join(", "), qualified(&table.schema, &table.name));
    let mut chunks = Vec::new();
    let (mut text, mut count) = (Vec::new(), 0);
    let mut finish = |text: &mut Vec<u8>, count: &mut usize| -> Result<()> {
        let number = u32::try_from(chunks.len())?;
        let file = chunk_file(&table.schema, &table.name, number, compression);
        let bytes = match compression {
            Compression::None => text.clone(),
            Compression::Zstd => zstd::encode_all(&text[..], 1)?,
        };
        std::fs::write(folder.join(&file), &bytes)?;
        let written = WrittenChunk {
            rows: *count as u64,
            bytes: text.len() as u64,
            crc32: crc32fast::hash(text),
            file_bytes: bytes.len() as u64,
            snapshot: 0,
        };
        let range = ChunkRange { partition: None, keys: KeyRange::All };
        chunks.push(ChunkEntry { file, range, written: Some(written) });
        text.clear();
        *count = 0;
        Ok(())
    };
    let mut stream = connection.query_stream(&sql).await?;
    while let Some(row) = stream.next().await? {
        for index in 0..row.len() {
            if index > 0 {
                text.push(b'\t');
            }
            put_field(row.get(index), &mut text);
        }
        text.push(b'\n');
        count += 1;
        if count == chunk_rows {
            finish(&mut text, &mut count)?;
        }
    }
    if count > 0 {
        finish(&mut text, &mut count)?;
    }
    Ok(chunks)
}

fn put_field(value: Option<&[u8]>, text: &mut Vec<u8>) {
    let Some(value) = value else { return text.extend_from_slice(b"\\N") };
    for &byte in value {
        match byte {
            b'\t' => text.extend_from_slice(b"\\t"),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\\' => text.extend_from_slice(b"\\\\"),
            0 => text.extend_from_slice(b"\\0"),
            other => text.push(other),
        }
    }
}
