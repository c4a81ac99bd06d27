//! Checks that chunks cover a table completely. The check uses only the ranges of the chunks. It does not
//! depend on the code that cut them.

use super::key_range::{ChunkRange, KeyLiteral, KeyRange};

/// The key after which a range begins, or the key at which it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CoverageEnd<'a> {
    /// The range has no limit at this end.
    Open,
    /// An integer key: the last key before this end.
    Integer(i128),
    /// Any other key: the last key before this end.
    Key(&'a [KeyLiteral]),
}

/// Describes the first gap or overlap between chunks, which are given in the order in which they were cut.
/// `partitions` are the partitions of the table. A nullable key needs a chunk for NULL.
pub fn first_gap(ranges: &[&ChunkRange], partitions: &[String], nullable: bool) -> Option<String> {
    if partitions.is_empty() {
        return first_gap_of(&ranges.iter().map(|range| &range.keys).collect::<Vec<_>>(), nullable);
    }
    let mut seen = 0;
    for partition in partitions {
        let of_it = ranges.iter().filter(|range| range.partition.as_ref() == Some(partition));
        let keys: Vec<_> = of_it.map(|range| &range.keys).collect();
        seen += keys.len();
        if let Some(gap) = first_gap_of(&keys, nullable) {
            return Some(format!("partition {partition}: {gap}"));
        }
    }
    (seen != ranges.len()).then(|| "there are chunks of a partition that the table does not have".to_owned())
}

fn first_gap_of(ranges: &[&KeyRange], nullable: bool) -> Option<String> {
    let mut rest = ranges;
    match ranges {
        [KeyRange::All] => return None,
        [] => return Some("no chunk".to_owned()),
        [KeyRange::Nulls, after @ ..] if nullable => rest = after,
        _ if nullable => return Some("there is no chunk for NULL".to_owned()),
        _ => {}
    }
    let mut reached = Some(CoverageEnd::Open);
    for (at, range) in rest.iter().enumerate() {
        let Some((begins, ends)) = ends(range) else {
            return Some(format!("chunk {at} is {range:?}, which allows no other chunk"));
        };
        match &reached {
            Some(reached) if *reached == begins && (at == 0 || begins != CoverageEnd::Open) => {}
            _ => {
                return Some(format!(
                    "chunk {at} begins after {begins:?}, but the chunk before it ends at {reached:?}"
                ));
            }
        }
        reached = (ends != CoverageEnd::Open).then_some(ends);
    }
    match (reached, rest.is_empty()) {
        (None, _) => None,
        (_, true) => Some("there is only the chunk for NULL".to_owned()),
        (Some(reached), false) => Some(format!("there is no chunk after {reached:?}")),
    }
}

/// Returns the key after which a range begins, and the key at which it ends. `None` for a range of all rows
/// or of NULL, which must not occur among other ranges.
fn ends(range: &KeyRange) -> Option<(CoverageEnd<'_>, CoverageEnd<'_>)> {
    fn of_key(key: &Option<Vec<KeyLiteral>>) -> CoverageEnd<'_> {
        key.as_deref().map_or(CoverageEnd::Open, CoverageEnd::Key)
    }
    match range {
        KeyRange::All | KeyRange::Nulls => None,
        KeyRange::Integers { from, to } => Some((
            from.map_or(CoverageEnd::Open, |from| CoverageEnd::Integer(from - 1)),
            to.map_or(CoverageEnd::Open, CoverageEnd::Integer),
        )),
        KeyRange::Keys { after, to } => Some((of_key(after), of_key(to))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers(from: Option<i128>, to: Option<i128>) -> ChunkRange {
        ChunkRange { partition: None, keys: KeyRange::Integers { from, to } }
    }

    fn keys(after: Option<&str>, to: Option<&str>) -> ChunkRange {
        let key = |text: Option<&str>| text.map(|text| vec![KeyLiteral(text.to_owned())]);
        ChunkRange { partition: None, keys: KeyRange::Keys { after: key(after), to: key(to) } }
    }

    fn nulls() -> ChunkRange {
        ChunkRange { partition: None, keys: KeyRange::Nulls }
    }

    fn all() -> ChunkRange {
        ChunkRange { partition: None, keys: KeyRange::All }
    }

    fn gap(ranges: &[ChunkRange], nullable: bool) -> Option<String> {
        first_gap(&ranges.iter().collect::<Vec<_>>(), &[], nullable)
    }

    #[test]
    fn complete_chunks_have_no_gap() {
        assert_eq!(gap(&[all()], false), None);
        assert_eq!(gap(&[integers(None, None)], false), None);
        assert_eq!(
            gap(&[integers(None, Some(9)), integers(Some(10), Some(10)), integers(Some(11), None)], false),
            None
        );
        assert_eq!(gap(&[nulls(), keys(None, Some("'a'")), keys(Some("'a'"), None)], true), None);
    }

    #[test]
    fn gaps_and_overlaps_are_found() {
        for ranges in [
            vec![],
            vec![integers(None, Some(9))],
            vec![integers(Some(1), None)],
            vec![integers(None, Some(9)), integers(Some(11), None)],
            vec![integers(None, Some(9)), integers(Some(9), None)],
            vec![integers(None, None), integers(None, None)],
            vec![integers(None, Some(9)), integers(None, None)],
            vec![keys(None, Some("'a'")), keys(Some("'b'"), None)],
            vec![keys(None, Some("'a'")), integers(None, None)],
            vec![integers(None, Some(9)), all()],
            vec![all(), integers(None, None)],
            vec![nulls(), integers(None, None)],
        ] {
            assert!(gap(&ranges, false).is_some(), "no gap or overlap was found in {ranges:?}");
        }
        assert!(gap(&[integers(None, None)], true).is_some() && gap(&[nulls()], true).is_some());
        assert!(gap(&[nulls(), all()], true).is_some() && gap(&[nulls(), nulls()], true).is_some());
    }

    #[test]
    fn each_partition_needs_full_coverage() {
        let of =
            |partition: &str, range: ChunkRange| ChunkRange { partition: Some(partition.into()), ..range };
        let both = [
            of("p", integers(None, None)),
            of("q", integers(None, Some(4))),
            of("q", integers(Some(5), None)),
        ];
        let partitions = ["p".to_owned(), "q".to_owned()];
        let gap = |ranges: &[ChunkRange]| first_gap(&ranges.iter().collect::<Vec<_>>(), &partitions, false);
        assert_eq!(gap(&both), None);
        assert!(gap(&both[..2]).is_some() && gap(&both[1..]).is_some());
        assert!(gap(&[&both[..], &[of("r", integers(None, None))]].concat()).is_some());
    }
}
