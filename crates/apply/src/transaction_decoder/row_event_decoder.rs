//! Locates and hashes the rows of an event.

use std::sync::Arc;

use bytes::Bytes;
use tailwater_wire::WireError;
use tailwater_wire::binlog_event::{EventHeader, RowsEvent};
use tailwater_wire::row_event::RowChangeIter;

use crate::row_writeset_keys::RowKeys;
use crate::source_to_target_table::MappedTable;
use crate::source_transaction::{Accesses, RowChanges, RowPlace, RowPlaces};
use crate::writeset::Access;

/// The lowest memory limit for the rows of one event, without their images, in bytes. Without this minimum,
/// the limit would be too low for short events.
const ROWS_BYTES_MIN: usize = 1 << 20;

/// Locates the rows of `event` and hashes their keys. The row images are slices of `body`, unless they are
/// compressed.
pub(super) fn find_rows(
    header: &EventHeader,
    body: &Bytes,
    event: &RowsEvent<'_>,
    table: &Arc<MappedTable>,
    keys: &mut RowKeys,
    bytes_max: usize,
) -> Result<RowChanges, WireError> {
    let images = match event.compressed {
        true => Bytes::from(event.images(bytes_max)?.into_owned()),
        false => body.slice_ref(event.rows),
    };
    if u32::try_from(images.len()).is_err() {
        return Err(WireError::TooLarge {
            what: "rows event",
            size: images.len() as u64,
            size_max: u64::from(u32::MAX),
        });
    }
    let mut rows = RowPlaces::new();
    let mut accesses = Accesses::new();
    let mut start = 0;
    for row in RowChangeIter::new(&table.map, event, &images)? {
        let row = row?;
        let length = |image: &Option<_>| {
            image.map_or(0, |image: tailwater_wire::row_event::Image<'_>| image.bytes().len())
        };
        let (before, after) = (length(&row.before), length(&row.after));
        let end = start + before + after;
        if rows.is_empty() && end > 0 {
            // Estimate the number of rows from the length of the first row.
            rows.reserve(images.len() / end);
        }
        // An insert has one image. `middle` is the end of the first image, or of the only image.
        let middle = if row.before.is_some() { start + before } else { end };
        rows.push(RowPlace {
            start: start as u32,
            middle: middle as u32,
            end: end as u32,
            accesses_start: accesses.len() as u32,
        });
        let from = accesses.len();
        keys.row(row.before, row.after, event.flags, &mut accesses);
        if rows.len() == 1 {
            accesses.reserve((accesses.len() - from).saturating_mul(rows.capacity().saturating_sub(1)));
        }
        let size = rows.len() * size_of::<RowPlace>() + accesses.len() * size_of::<Access>();
        // The positions and keys of very short rows need many times more memory than the rows. The limit also
        // bounds the number of keys.
        let size_max = bytes_max.max(ROWS_BYTES_MIN).min(u32::MAX as usize);
        if size > size_max {
            return Err(WireError::TooLarge {
                what: "decoded rows event",
                size: size as u64,
                size_max: size_max as u64,
            });
        }
        start = end;
    }
    Ok(RowChanges {
        table: Arc::clone(table),
        kind: event.kind,
        flags: event.flags,
        timestamp: header.timestamp,
        server_id: header.server_id.0,
        columns_present: body.slice_ref(event.columns_present),
        columns_present_after: body.slice_ref(event.columns_present_after),
        images,
        rows,
        accesses,
    })
}
