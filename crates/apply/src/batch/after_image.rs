//! After images cut to what changed.
//!
//! A full image repeats what stays as it is: of a row of a few kilobytes an update often changes a few bytes. What is kept is
//! the run of columns from the first that changed to the last, because that is one slice of the image; only its NULL bits
//! are made anew. The target leaves all other columns as they are, as it does with `binlog_row_image=MINIMAL`.

use tailwater_wire::rows::BinlogColumn;

use super::key_columns::bit;
use super::{NullBits, RowImage};

/// The columns that changed, and those between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Changed<'a> {
    /// Index of the first.
    pub first: u16,
    /// Index of the last.
    pub last: u16,
    /// The image of all of them.
    pub image: RowImage<'a>,
}

/// What changed between two images of all columns; `None` if that is nothing, everything, or more than [`NullBits`] holds.
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
        let behind = offset + of_new.map_or(0, <[u8]>::len);
        if of_old != of_new {
            let (first, _) = *run.get_or_insert_with(|| {
                start = offset;
                (index, index)
            });
            run = Some((first, index));
            end = behind;
        }
        offset = behind;
    }
    let (first, last) = run?;
    if last - first + 1 == columns.len() {
        return None;
    }
    let nulls = NullBits::gather((first..last + 1).map(|index| bit(new_nulls, index)))?;
    let image = RowImage { nulls, values: new.get(start..end)? };
    Some(Changed { first: u16::try_from(first).ok()?, last: u16::try_from(last).ok()?, image })
}

/// The value in front of `rest`, which moves behind it: `Some(None)` for NULL.
fn take<'a>(null: bool, column: &BinlogColumn, rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    if null {
        return Some(None);
    }
    let length = column.column_type.encoded_length(rest).ok()?;
    let (value, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(Some(value))
}

/// The bitmap of a run among `columns` columns.
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
    use crate::batch::tests::model::{WIDE_KEY, image, mapped};

    fn cells() -> impl Strategy<Value = Vec<Option<i32>>> {
        proptest::collection::vec(proptest::option::weighted(0.7, 0..3i32), 4)
    }

    proptest! {
        #[test]
        fn what_is_left_out_did_not_change(old in cells(), new in cells()) {
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
        fn no_bytes_break_it(old: Vec<u8>, new: Vec<u8>) {
            let _ = changed(&mapped(WIDE_KEY).map.columns, &old, &new);
        }
    }
}
