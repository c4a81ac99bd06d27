//! Converts the changes that a server logged for one database into row changes for another database.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use tailwater_apply::source_transaction::{MappedTable, RowChanges, RowPlace};
use tailwater_apply::target_table::{IndexPart, TargetColumn, TargetTable, UniqueIndex};
use tailwater_apply::writeset::{Access, IndexId, WritesetKey};
use tailwater_sandbox::Server;
use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription, RowsEvent, RowsKind,
};
use tailwater_wire::row_event::{Image, RowChangeIter, TableMap};

/// Returns the tables of a database as targets for rows. Index IDs start at `first_index`.
pub async fn targets(
    connection: &mut Connection,
    schema: &str,
    first_index: u32,
) -> Result<HashMap<String, Arc<TargetTable>>> {
    let flavour = connection.server().flavour;
    let columns = connection
        .query(&format!(
            "SELECT table_name, column_name, column_type, collation_name, is_nullable, extra
             FROM information_schema.columns WHERE table_schema = '{schema}' ORDER BY table_name, ordinal_position"
        ))
        .await?;
    let mut tables: HashMap<String, TargetTable> = HashMap::new();
    for row in &columns.rows {
        let text = |index| row.get_str(index).unwrap_or_default().to_owned();
        let number = first_index + 10 * tables.len() as u32;
        let table = tables.entry(text(0)).or_insert_with(|| TargetTable {
            transactional: true,
            engine: "INNODB".to_owned(),
            partitioned: false,
            flavour,
            schema: schema.to_owned(),
            table: text(0),
            columns: Vec::new(),
            rows: IndexId(number),
            unique: Vec::new(),
            has_primary_key: false,
            parents: Vec::new(),
            children: Vec::new(),
            cascades: Vec::new(),
        });
        let extra = text(5).to_uppercase();
        table.columns.push(TargetColumn {
            name: text(1),
            column_type: text(2).to_lowercase(),
            collation: row.get_str(3).map(str::to_owned),
            nullable: text(4) == "YES",
            generated: extra.contains("GENERATED") && !extra.contains("DEFAULT_GENERATED"),
            stored: extra.contains("STORED"),
            period: None,
            auto_increment: extra.contains("AUTO_INCREMENT"),
        });
    }
    let keys = connection
        .query(&format!(
            "SELECT table_name, index_name, column_name, sub_part FROM information_schema.statistics
             WHERE table_schema = '{schema}' AND non_unique = 0
             ORDER BY table_name, index_name <> 'PRIMARY', index_name, seq_in_index"
        ))
        .await?;
    for row in &keys.rows {
        let text = |index| row.get_str(index).unwrap_or_default();
        let table = tables.get_mut(text(0)).context("the index belongs to an unknown table")?;
        let column = table
            .columns
            .iter()
            .position(|column| column.name == text(2))
            .context("the index belongs to an unknown column")?;
        let part = IndexPart { column, prefix: row.get_u64(3).map(|prefix| prefix as u32) };
        match table.unique.last_mut().filter(|index| index.name == text(1)) {
            Some(index) => index.parts.push(part),
            None => table.unique.push(UniqueIndex {
                id: IndexId(table.rows.0 + 1 + table.unique.len() as u32),
                name: text(1).to_owned(),
                parts: vec![part],
                opaque: false,
            }),
        }
        table.has_primary_key = table.unique[0].name == "PRIMARY";
    }
    Ok(tables.into_iter().map(|(name, table)| (name, Arc::new(table))).collect())
}

/// Returns all row changes of `schema` that the server has logged since the start of a binlog file, for the
/// tables of the same names in `targets`.
pub async fn row_changes(
    server: &Server,
    from: &str,
    schema: &str,
    targets: &HashMap<String, Arc<TargetTable>>,
    same_shape: bool,
) -> Result<Vec<RowChanges>> {
    let mut all = Vec::new();
    for line in server.sql("SHOW BINARY LOGS").await? {
        let name = line.split('\t').next().context("the line of SHOW BINARY LOGS has no file name")?;
        if name < from {
            continue;
        }
        let bytes = std::fs::read(server.data().join(name))?;
        read_file(&bytes, server.kind().flavour(), schema, targets, same_shape, &mut all)?;
    }
    Ok(all)
}

fn read_file(
    bytes: &[u8],
    flavour: Flavour,
    schema: &str,
    targets: &HashMap<String, Arc<TargetTable>>,
    same_shape: bool,
    all: &mut Vec<RowChanges>,
) -> Result<()> {
    let mut format = FormatDescription::assumed(flavour, ChecksumAlgorithm::Crc32);
    let mut maps: HashMap<u64, Arc<MappedTable>> = HashMap::new();
    let mut rest = &bytes[4..];
    while !rest.is_empty() {
        let header = EventHeader::parse(rest)?;
        let (event, behind) = rest.split_at(header.event_length as usize);
        rest = behind;
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            format = FormatDescription::parse(&event[EVENT_HEADER_BYTES..])?;
            continue;
        }
        let body = &event[EVENT_HEADER_BYTES..event.len() - format.trailer_bytes(&header)];
        if header.event_type == EventType::TABLE_MAP {
            let map = TableMap::parse(body, flavour)?;
            maps.remove(&map.table_id);
            if let Some(target) = targets.get(&map.table).filter(|_| map.schema == schema) {
                let (body, target) = (Bytes::copy_from_slice(body), Arc::clone(target));
                let (id, mapped) = (map.table_id, MappedTable::new(map, body, target));
                let mut mapped = mapped.map_err(|mismatches| mismatches[0].clone())?;
                mapped.same_shape = same_shape;
                maps.insert(id, Arc::new(mapped));
            }
        } else if let Ok(rows) = RowsEvent::parse(header.event_type, body, &format)
            && let Some(table) = maps.get(&rows.table_id)
        {
            all.push(changes(Arc::clone(table), &header, &rows)?);
        }
    }
    Ok(())
}

fn changes(table: Arc<MappedTable>, header: &EventHeader, event: &RowsEvent<'_>) -> Result<RowChanges> {
    let images = event.images(1 << 30)?.into_owned();
    let (mut places, mut accesses) = (Vec::new(), Vec::new());
    let mut start = 0;
    for row in RowChangeIter::new(&table.map, event, &images)? {
        let row = row?;
        let length = |image: &Option<Image<'_>>| image.map_or(0, |image| image.bytes().len());
        let (first, second) = match event.kind {
            RowsKind::Write => (length(&row.after), 0),
            _ => (length(&row.before), length(&row.after)),
        };
        let (middle, end) = (start + first, start + first + second);
        places.push(RowPlace {
            start: start as u32,
            middle: middle as u32,
            end: end as u32,
            accesses_start: accesses.len() as u32,
        });
        let target = &table.target;
        accesses.push(Access {
            key: WritesetKey { index: target.rows, hash: 1 },
            shared: target.has_primary_key,
        });
        for image in [row.before, row.after].into_iter().flatten() {
            // If a minimal after image does not contain the key, the key is unchanged.
            let keyed = |part: &IndexPart| image.has(part.column);
            let primary = target.primary_key();
            if row.before.is_some_and(|before| before.bytes() != image.bytes())
                && primary.is_some_and(|key| !key.parts.iter().any(keyed))
                && target.unique.len() == 1
            {
                continue;
            }
            add_keys(&mut accesses, target, &image)?;
        }
        start = end;
    }
    Ok(RowChanges {
        kind: event.kind,
        flags: event.flags,
        timestamp: header.timestamp,
        server_id: header.server_id.0,
        columns_present: Bytes::copy_from_slice(event.columns_present),
        columns_present_after: Bytes::copy_from_slice(event.columns_present_after),
        images: images.into(),
        rows: places.into(),
        accesses: accesses.into(),
        table,
    })
}

/// Adds keys that are coarser than the applier's own keys: the bytes of the primary key, and for other
/// indexes a key that every row shares.
fn add_keys(accesses: &mut Vec<Access>, target: &TargetTable, image: &Image<'_>) -> Result<()> {
    for index in &target.unique {
        let mut hasher = rustc_hash::FxBuildHasher.build_hasher();
        // Values that are equal only in a collation are not supported here.
        let ints = index.parts.iter().all(|part| target.columns[part.column].column_type.starts_with("int"));
        let mut known = index.name == "PRIMARY" && ints;
        for part in &index.parts {
            match image.cell(part.column)? {
                Some(cell) => cell.raw.hash(&mut hasher),
                None => known = false,
            }
        }
        let hash = if known { hasher.finish() | 1 } else { WritesetKey::ANY };
        accesses.push(Access { key: WritesetKey { index: index.id, hash }, shared: false });
    }
    Ok(())
}
