//! Checks of table maps and their rows events.

use super::{binary_json, split_mode};
use crate::binlog_event::{EventType, RowsEvent};
use crate::row_event::{BinlogValue, Image, RowChangeIter, RowCounter, RowLayout, TableMap};
use crate::{Flavour, WireError};

/// The maximum decompressed length of images and values, in bytes.
const INFLATED_BYTES_MAX: usize = 1 << 16;

const ROWS_TYPES: [EventType; 8] = [
    EventType::WRITE_ROWS_V2,
    EventType::UPDATE_ROWS_V2,
    EventType::DELETE_ROWS_V2,
    EventType::PARTIAL_UPDATE_ROWS,
    EventType::WRITE_ROWS_V1,
    EventType::UPDATE_ROWS_V1,
    EventType::MARIADB_WRITE_ROWS_COMPRESSED_V1,
    EventType::MARIADB_UPDATE_ROWS_COMPRESSED_V1,
];

/// Runs the checks. The input is the type of the rows event, the length of the table map, the body of the
/// table map, and the body of the rows event.
pub(super) fn check(data: &[u8]) {
    let Some((mode, data)) = split_mode(data, 16) else { return };
    let flavour = if mode < 8 { Flavour::MySql } else { Flavour::MariaDb };
    let event_type = ROWS_TYPES[usize::from(mode % 8)];
    let Some((length, data)) = data.split_first_chunk() else { return };
    let length = usize::from(u16::from_le_bytes(*length)).min(data.len());
    let (table_map, rows) = data.split_at(length);
    let Ok(table) = TableMap::parse(table_map, flavour) else { return };
    assert!(table.columns.len() <= table_map.len());
    assert_eq!(TableMap::peek_table_id(table_map), Ok(table.table_id));
    let format = super::binlog_events::format(mode >> 3);
    let Ok(event) = RowsEvent::parse(event_type, rows, &format) else { return };
    let Ok(images) = event.images(INFLATED_BYTES_MAX) else { return };
    if let Ok(changes) = RowChangeIter::new(&table, &event, &images) {
        check_changes(changes.clone(), &images);
        check_count(&table, &event, changes, &images);
    }
}

/// Checks that counting the rows of an event in pieces gives the same number as iterating over the rows.
fn check_count(table: &TableMap, event: &RowsEvent<'_>, changes: RowChangeIter<'_>, images: &[u8]) {
    let counter = RowLayout::new(table).and_then(|shape| RowCounter::new(&shape, event));
    let Ok(mut counter) = counter else { return };
    let pieces = images.chunks(1 + images.len() % 7);
    let counted =
        pieces.into_iter().try_for_each(|piece| counter.update(piece)).and_then(|()| counter.finish());
    if let Ok(rows) = counted {
        assert_eq!(changes.collect::<Result<Vec<_>, _>>().map(|changes| changes.len() as u64), Ok(rows));
    }
}

/// Checks that the images are consecutive, and that they cover all bytes if all images were parsed.
fn check_changes(changes: RowChangeIter<'_>, images: &[u8]) {
    let mut covered = 0;
    for (index, change) in changes.enumerate() {
        assert!(index <= images.len(), "the event has more rows than it has bytes");
        let Ok(change) = change else { return };
        assert!(change.before.is_some() || change.after.is_some());
        for image in [change.before, change.after].into_iter().flatten() {
            covered += image.bytes().len();
            check_image(&image, change.before.as_ref());
        }
    }
    assert_eq!(covered, images.len());
}

fn check_image(image: &Image<'_>, before: Option<&Image<'_>>) {
    let columns = &image.table().columns;
    let mut held = 0;
    for cell in image.cells() {
        let cell = cell.expect("the bytes of a parsed image can be parsed again");
        held += 1;
        assert!(image.has(cell.index));
        let Ok(value) = cell.value(columns) else { continue };
        assert_eq!(value.is_null(), cell.raw.is_none());
        if let BinlogValue::JsonDiff(diffs) = value {
            let before = before.and_then(|before| before.cell(cell.index).ok().flatten());
            match before.map(|before| before.value(columns)) {
                Some(Ok(BinlogValue::Json(before))) => drop(diffs.apply(before, INFLATED_BYTES_MAX)),
                _ => diffs.iter().for_each(drop),
            }
        }
        check_value(&value);
    }
    assert_eq!(image.is_full(), held == columns.len());
    assert_eq!(image.is_empty(), held == 0);
}

/// Checks that the printed text and the decompressed form of a value stay within their limits.
fn check_value(value: &BinlogValue<'_>) {
    let mut text = String::new();
    match value {
        BinlogValue::Decimal(decimal) => {
            let text = decimal.to_string();
            let digits = text.bytes().filter(u8::is_ascii_digit).count();
            assert!(digits <= usize::from(decimal.precision()) + 1, "the decimal {text} has too many digits");
            assert_eq!(text.starts_with('-'), decimal.is_negative(), "the text {text} has a wrong sign");
        }
        BinlogValue::Time(time) => time.write(&mut text, 6).expect("writing to a String cannot fail"),
        BinlogValue::DateTime(datetime) => {
            datetime.write(&mut text, 6).expect("writing to a String cannot fail")
        }
        BinlogValue::Timestamp(timestamp) => {
            let _ = timestamp.is_zero();
            timestamp.to_utc().write(&mut text, 6).expect("writing to a String cannot fail");
        }
        BinlogValue::Date(date) => text = date.to_string(),
        BinlogValue::Json(document) => binary_json::check_document(*document),
        BinlogValue::Compressed(bytes) => match bytes.decompress(INFLATED_BYTES_MAX) {
            Ok(value) => assert!(value.len() <= INFLATED_BYTES_MAX.max(bytes.stored().len())),
            Err(error) => assert!(!matches!(error, WireError::Checksum { .. })),
        },
        BinlogValue::FixedBytes { stored, length } => {
            let padded = value.padded().expect("a value of fixed length can be padded");
            assert!(padded.len() == usize::from(*length) && padded.starts_with(stored));
        }
        BinlogValue::Bit { bits, value } => assert!(u32::from(*bits) >= u64::BITS - value.leading_zeros()),
        _ => {}
    }
    assert!(text.len() <= 32, "the text of a temporal value is too long: {text}");
}
