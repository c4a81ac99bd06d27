//! Locates the primary key values in row images.

use std::borrow::Cow;

use tailwater_wire::row_event::{BinlogColumn, TableMap};

use crate::target_table::TargetTable;

/// The columns of a primary key.
#[derive(Debug)]
pub(super) struct KeyColumns {
    /// Bitmap of the key columns.
    pub bitmap: Vec<u8>,
    /// Number of key columns.
    pub count: usize,
    /// Index of the last key column.
    last: usize,
}

impl KeyColumns {
    /// Returns the primary key columns of the target's table. `None` if the source's table lacks one of them.
    pub fn of(map: &TableMap, target: &TargetTable) -> Option<Self> {
        let key = target.primary_key().filter(|key| !key.opaque && !key.parts.is_empty())?;
        let mut bitmap = vec![0; map.columns.len().div_ceil(8)];
        for part in &key.parts {
            if part.column >= map.columns.len() {
                return None;
            }
            *bitmap.get_mut(part.column / 8)? |= 1 << (part.column % 8);
        }
        let last = key.parts.iter().map(|part| part.column).max()?;
        Some(Self { count: count(&bitmap), bitmap, last })
    }

    /// Returns whether a row image with the columns `present` contains all primary key columns.
    pub fn are_in(&self, present: &[u8]) -> bool {
        holds(present, &self.bitmap)
    }

    /// Returns whether a row image with the columns `present` contains no primary key column.
    pub fn are_out_of(&self, present: &[u8]) -> bool {
        self.bitmap.iter().zip(present).all(|(key, present)| key & present == 0)
    }

    /// Returns the primary key values in a row image, concatenated in table order. The result is borrowed if
    /// the values are adjacent. `None` if the image lacks a key value or is malformed.
    pub fn find<'a>(
        &self,
        columns: &[BinlogColumn],
        present: &[u8],
        image: &'a [u8],
    ) -> Option<Cow<'a, [u8]>> {
        let mut offset = count(present).div_ceil(8);
        let nulls = image.get(..offset)?;
        let mut null_index = 0;
        let (mut run, mut copied) = (offset..offset, Vec::new());
        for (index, column) in columns.iter().enumerate().take(self.last + 1) {
            let in_key = bit(&self.bitmap, index);
            if !bit(present, index) {
                if in_key {
                    return None;
                }
                continue;
            }
            let null = bit(nulls, null_index);
            null_index += 1;
            if null {
                if in_key {
                    return None;
                }
                continue;
            }
            let rest = image.get(offset..)?;
            let length = column.column_type.encoded_length(rest).ok()?;
            rest.get(..length)?;
            if in_key {
                if run.end != offset {
                    copied.extend_from_slice(image.get(run)?);
                    run = offset..offset;
                }
                run.end = offset + length;
            }
            offset += length;
        }
        let values = image.get(run)?;
        if copied.is_empty() {
            return Some(Cow::Borrowed(values));
        }
        copied.extend_from_slice(values);
        Some(Cow::Owned(copied))
    }
}

/// Returns whether all bits of `part` are set in `whole`.
pub(super) fn holds(whole: &[u8], part: &[u8]) -> bool {
    part.iter().enumerate().all(|(index, byte)| byte & !whole.get(index).copied().unwrap_or(0) == 0)
}

/// Returns whether a bitmap has a bit for each of `columns`.
pub(super) fn is_full(present: &[u8], columns: usize) -> bool {
    (0..columns).all(|index| bit(present, index))
}

fn count(bitmap: &[u8]) -> usize {
    bitmap.iter().map(|byte| byte.count_ones() as usize).sum()
}

pub(super) fn bit(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 != 0)
}
