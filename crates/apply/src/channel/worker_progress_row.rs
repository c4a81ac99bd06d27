//! The progress row of a worker. A row event changes this row. The event is sent together with the row events
//! of the data, so one statement writes the data and the progress.
//!
//! A separate statement would cost the target as much as the rows of a small transaction, and would need one
//! more round trip (ADR 028). The key of the row contains the incarnation of the channel to which the worker
//! belongs. A takeover gives all rows a new incarnation. An earlier worker then finds no row (error 1032) and
//! commits nothing.

use std::borrow::Cow;
use std::sync::Arc;

use tailwater_wire::binlog_event::RowsKind;
use tailwater_wire::byte_cursor::put_lenenc_int;
use tailwater_wire::row_event::TableMap;
use tailwater_wire::{Flavour, WireError};

use crate::batch::{PlannedRow, RowGroup, RowImage};
use crate::error::ApplyError;
use crate::source_to_target_table::MappedTable;
use crate::target_table::{TargetColumn, TargetTable};
use crate::writeset::IndexId;

const SCHEMA: &str = "tailwater";
const TABLE: &str = "apply_progress";

/// The columns as [`super::progress_store`] creates them: name, type, type code in a table map, metadata.
const COLUMNS: [(&str, &str, u8, &[u8]); 6] = [
    ("channel", "varchar(64)", 15, &256u16.to_le_bytes()),
    ("incarnation", "bigint unsigned", 8, &[]),
    ("worker", "int unsigned", 3, &[]),
    ("applied", "longblob", 252, &[4]),
    ("gtid", "varchar(255)", 15, &1020u16.to_le_bytes()),
    ("source_time_us", "bigint unsigned", 8, &[]),
];
/// Bitmap of the primary key columns: the first three.
const KEY: &[u8] = &[0b00_0111];
/// Bitmap of the columns that each update changes: all except the primary key.
const CHANGED: &[u8] = &[0b11_1000];

/// The progress row of one worker.
#[derive(Debug)]
pub(super) struct ProgressRow {
    table: MappedTable,
    /// The image of the key columns, by which the target finds the row.
    key: Vec<u8>,
}

impl ProgressRow {
    /// Returns the row of a worker, with the incarnation of its channel.
    ///
    /// # Errors
    /// No error is expected, because the table's layout is fixed.
    pub(super) fn new(
        flavour: Flavour,
        channel: &str,
        incarnation: u64,
        worker: usize,
    ) -> Result<Self, ApplyError> {
        let mut key = vec![0];
        put_text(&mut key, channel);
        key.extend_from_slice(&incarnation.to_le_bytes());
        // The worker number fits into 32 bits: there are never more workers than connections.
        key.extend_from_slice(&(worker as u32).to_le_bytes());
        let table = table(flavour).map_err(ApplyError::rows)?;
        Ok(Self { table, key })
    }

    /// Returns the image of the columns that change.
    pub(super) fn image(applied: &[u8], gtid: &str, source_time_us: u64) -> Vec<u8> {
        let mut image = Vec::with_capacity(applied.len() + gtid.len() + 16);
        image.push(0);
        image.extend_from_slice(&(applied.len() as u32).to_le_bytes());
        image.extend_from_slice(applied);
        put_text(&mut image, gtid);
        image.extend_from_slice(&source_time_us.to_le_bytes());
        image
    }

    /// Returns the row group that writes `image`. This group has the same flags as the previous group
    /// `before`, so that the server opens the tables of both groups together.
    pub(super) fn group<'a>(&'a self, image: &'a [u8], before: Option<&RowGroup<'_>>) -> RowGroup<'a> {
        RowGroup {
            table: &self.table,
            kind: RowsKind::Update,
            flags: before.map_or(0, |group| group.flags),
            server_id: before.map_or(0, |group| group.server_id),
            timestamp: before.map_or(0, |group| group.timestamp),
            columns_present: Cow::Borrowed(KEY),
            columns_present_after: Cow::Borrowed(CHANGED),
            rows: vec![PlannedRow { image: RowImage::whole(&self.key), after: RowImage::whole(image) }],
        }
    }
}

/// Appends a text of up to 64 KiB, for a column of more than 255 bytes.
fn put_text(image: &mut Vec<u8>, text: &str) {
    image.extend_from_slice(&(text.len() as u16).to_le_bytes());
    image.extend_from_slice(text.as_bytes());
}

fn table(flavour: Flavour) -> Result<MappedTable, WireError> {
    let mut body = vec![0; 6];
    body.extend_from_slice(&TableMap::FLAG_BIT_LENGTHS_EXACT.to_le_bytes());
    for name in [SCHEMA, TABLE] {
        put_lenenc_int(&mut body, name.len() as u64);
        body.extend_from_slice(name.as_bytes());
        body.push(0);
    }
    put_lenenc_int(&mut body, COLUMNS.len() as u64);
    body.extend(COLUMNS.iter().map(|(_, _, code, _)| code));
    let metadata: Vec<u8> = COLUMNS.iter().flat_map(|(_, _, _, metadata)| metadata.iter().copied()).collect();
    put_lenenc_int(&mut body, metadata.len() as u64);
    body.extend_from_slice(&metadata);
    // The NULL bitmap: no column may be NULL.
    body.push(0);
    let map = TableMap::parse(&body, flavour)?;
    let columns = COLUMNS.iter().map(|(name, column_type, _, _)| TargetColumn {
        name: (*name).to_owned(),
        column_type: (*column_type).to_owned(),
        collation: column_type.starts_with("varchar").then(|| "utf8mb4_bin".to_owned()),
        nullable: false,
        generated: false,
        stored: false,
        period: None,
        auto_increment: false,
    });
    let target = TargetTable {
        flavour,
        schema: SCHEMA.to_owned(),
        table: TABLE.to_owned(),
        transactional: true,
        engine: "INNODB".to_owned(),
        partitioned: false,
        columns: columns.collect(),
        // The progress row is in no writeset: only this worker changes it.
        rows: IndexId(0),
        unique: Vec::new(),
        has_primary_key: false,
        parents: Vec::new(),
        children: Vec::new(),
        cascades: Vec::new(),
    };
    MappedTable::new(map, body.into(), Arc::new(target)).map_err(|_| {
        WireError::malformed(
            "the table map of a channel's progress",
            "the table map does not match the columns of the progress table",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_shape_of_the_table() {
        for flavour in [Flavour::MySql, Flavour::MariaDb] {
            let row = ProgressRow::new(flavour, "replica", 7, 3).unwrap();
            assert!(
                row.table.same_shape,
                "the columns of the progress row do not match the target table: {flavour}"
            );
            let image = ProgressRow::image(b"spans", "0-1-2", 9);
            let group = row.group(&image, None);
            let columns = &row.table.map.columns;
            let lengths = |columns: &[tailwater_wire::row_event::BinlogColumn], image: &[u8]| {
                columns
                    .iter()
                    .fold(1, |at, column| at + column.column_type.encoded_length(&image[at..]).unwrap())
            };
            assert_eq!(lengths(&columns[..3], &row.key), row.key.len());
            assert_eq!(lengths(&columns[3..], &image), image.len());
            assert_eq!(group.rows.len(), 1);
        }
    }
}
