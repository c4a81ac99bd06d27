//! Sorts the rows of a group by primary key, so that the target visits each page once and in order.
//!
//! This sort is used only for groups that meet two conditions: changes of different rows never conflict, and
//! equal keys have equal bytes. Both conditions are met if the primary key consists of integers and is the
//! only unique index, the table has no foreign keys, and no row changes its key. Several changes of one row
//! keep their order.

use tailwater_wire::row_event::{ColumnType, TableMap};

use crate::target_table::TargetTable;

/// The sort key of a row within its table.
pub(super) type Rank = u128;

/// How to compute the rank of a row from its primary key.
#[derive(Debug)]
pub(super) struct Ranking {
    /// For each part of the index, in order: its offset in the key values and its length, in bytes.
    parts: Vec<(usize, usize)>,
    /// Length of the key values, in bytes.
    bytes: usize,
}

impl Ranking {
    /// Returns how to sort the rows of a table by primary key; `None` if the rows must keep their order.
    pub fn of(map: &TableMap, target: &TargetTable) -> Option<Self> {
        let key = target.primary_key().filter(|key| !key.opaque && !key.parts.is_empty())?;
        if target.unique.len() > 1 || !target.parents.is_empty() || !target.children.is_empty() {
            return None;
        }
        let mut columns: Vec<usize> = key.parts.iter().map(|part| part.column).collect();
        columns.sort_unstable();
        let mut places = Vec::with_capacity(columns.len());
        let mut bytes = 0;
        for column in columns {
            let length = whole_number_bytes(map.columns.get(column)?.column_type)?;
            places.push((column, bytes, length));
            bytes += length;
        }
        let place = |column| places.iter().find(|(own, ..)| *own == column);
        let parts =
            key.parts.iter().map(|part| place(part.column).map(|(_, start, length)| (*start, *length)));
        (bytes <= size_of::<Rank>()).then_some(Self { parts: parts.collect::<Option<_>>()?, bytes })
    }

    /// Returns the sort key of a row. `values` are the values of its key columns, concatenated in table
    /// order.
    pub fn rank(&self, values: &[u8]) -> Option<Rank> {
        if values.len() != self.bytes {
            return None;
        }
        let mut rank = 0;
        for (start, length) in &self.parts {
            let part = values.get(*start..start + length)?;
            rank = part.iter().rev().fold(rank, |rank, byte| rank << 8 | Rank::from(*byte));
        }
        Some(rank)
    }
}

/// Returns the length of the values of an integer type, in bytes; `None` for other types. For these types,
/// different bytes are different numbers.
fn whole_number_bytes(column_type: ColumnType) -> Option<usize> {
    use ColumnType as Type;
    Some(match column_type {
        Type::Tiny | Type::Year => 1,
        Type::Short => 2,
        Type::Int24 => 3,
        Type::Long => 4,
        Type::LongLong => 8,
        Type::Enum { bytes } | Type::Set { bytes } => usize::from(bytes),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::tests::planned_row_changes::{PLAIN, WIDE_KEY};
    use crate::batch::tests::server_model::{CHILD, KEYLESS, PARENT, mapped};

    #[test]
    fn only_rows_with_simple_keys_have_a_rank() {
        for table in [PLAIN, KEYLESS, CHILD, PARENT] {
            let mapped = mapped(table);
            assert!(
                Ranking::of(&mapped.map, &mapped.target).is_none(),
                "the rows of table t{table} must not be sorted by primary key"
            );
        }
        let mapped = mapped(WIDE_KEY);
        let ranking =
            Ranking::of(&mapped.map, &mapped.target).expect("the rows must be sortable by primary key");
        let rank = |first: i32, second: i32| {
            ranking
                .rank(&[first.to_le_bytes(), second.to_le_bytes()].concat())
                .expect("a key value of eight bytes must have a sort key")
        };
        assert!(rank(1, 300) < rank(1, 301) && rank(1, 301) < rank(2, 0) && rank(255, 0) < rank(256, 0));
        assert_eq!(ranking.rank(&[0; 7]), None);
    }
}
