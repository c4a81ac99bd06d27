//! Shortens ("cuts") after images to the changed columns.
//!
//! A full image also contains the unchanged columns, although an update often changes only a few bytes of a
//! row of several kilobytes. The cut image contains the columns from the first to the last changed column,
//! because these are one contiguous slice of the full image. Only the NULL bits must be computed. The target
//! keeps all other columns, as with `binlog_row_image=MINIMAL`.

use tailwater_wire::row_event::BinlogColumn;

use super::batch_plan::{NullBits, RowImage};
use super::primary_key_values::bit;

/// The changed columns of an update, and the columns between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Changed<'a> {
    /// Index of the first changed column.
    pub first: u16,
    /// Index of the last changed column.
    pub last: u16,
    /// The image of the columns from the first to the last.
    pub image: RowImage<'a>,
}

/// Returns the changed columns between two full images. `None` if nothing changed, if every column changed,
/// or if there are more columns than [`NullBits`] holds.
pub(super) fn changed<'a>(columns: &[BinlogColumn], old: &[u8], new: &'a [u8]) -> Option<Changed<'a>> {
    let null_bytes = columns.len().div_ceil(8);
    let (old_nulls, new_nulls) = (old.get(..null_bytes)?, new.get(..null_bytes)?);
    let (mut old_rest, mut new_rest) = (old.get(null_bytes..)?, new.get(null_bytes..)?);
    let mut run: Option<(usize, usize)> = None;
    let (mut start, mut end, mut offset) = (0, 0, null_bytes);
    for (index, column) in columns.iter().enumerate() {
        let value = |nulls: &[u8], rest: &mut &'a [u8]| take(bit(nulls, index), column, rest);
        let of_new = value(new_nulls, &mut new_rest)?;
        let of_old = take(bit(old_nulls, index), column, &mut old_rest)?;
        let value_end = offset + of_new.map_or(0, <[u8]>::len);
        if of_old != of_new {
            let (first, _) = *run.get_or_insert_with(|| {
                start = offset;
                (index, index)
            });
            run = Some((first, index));
            end = value_end;
        }
        offset = value_end;
    }
    let (first, last) = run?;
    if last - first + 1 == columns.len() {
        return None;
    }
    let nulls = NullBits::gather((first..last + 1).map(|index| bit(new_nulls, index)))?;
    let image = RowImage { nulls, values: new.get(start..end)? };
    Some(Changed { first: u16::try_from(first).ok()?, last: u16::try_from(last).ok()?, image })
}

/// Reads the next value from the start of `rest`. `Some(None)` means NULL.
fn take<'a>(null: bool, column: &BinlogColumn, rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    if null {
        return Some(None);
    }
    let length = column.column_type.encoded_length(rest).ok()?;
    let (value, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(Some(value))
}

/// Returns the bitmap in which columns `first` to `last` of `columns` are set.
pub(super) fn bitmap(columns: usize, first: u16, last: u16) -> Vec<u8> {
    let mut bitmap = vec![0; columns.div_ceil(8)];
    for index in usize::from(first)..=usize::from(last) {
        if let Some(byte) = bitmap.get_mut(index / 8) {
            *byte |= 1 << (index % 8);
        }
    }
    bitmap
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::batch::tests::planned_row_changes::WIDE_KEY;
    use crate::batch::tests::server_model::{image, mapped};

    fn cells() -> impl Strategy<Value = Vec<Option<i32>>> {
        proptest::collection::vec(proptest::option::weighted(0.7, 0..3i32), 4)
    }

    proptest! {
        #[test]
        fn columns_outside_the_cut_did_not_change(old in cells(), new in cells()) {
            let table = mapped(WIDE_KEY);
            let all = [0, 1, 2, 3];
            let (old_image, new_image) = (image(&old, &all), image(&new, &all));
            let places: Vec<usize> = all.into_iter().filter(|place| old[*place] != new[*place]).collect();
            let found = changed(&table.map.columns, &old_image, &new_image);
            let (Some(first), Some(last)) = (places.first(), places.last()) else {
                prop_assert_eq!(found, None);
                return Ok(());
            };
            let run: Vec<usize> = (*first..=*last).collect();
            let Some(found) = found else {
                prop_assert_eq!(run, all);
                return Ok(());
            };
            let whole = [found.image.nulls.as_bytes(), found.image.values].concat();
            prop_assert_eq!(whole, image(&new, &run));
            let bits = run.iter().fold(0, |bits, place| bits | 1 << place);
            prop_assert_eq!(bitmap(4, found.first, found.last), [bits]);
        }

        #[test]
        fn arbitrary_images_never_panic(old: Vec<u8>, new: Vec<u8>) {
            let _ = changed(&mapped(WIDE_KEY).map.columns, &old, &new);
        }
    }
}
