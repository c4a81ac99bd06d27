//! Tests that chunks cover every row of a model table once, whatever its rows are and whatever the server
//! estimates.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::super::chunk_key::{KeyColumn, KeyKind};
use super::*;

/// The key of a row: one value per column, either NULL (`None`) or a text that the model's collation
/// compares.
type Row = Vec<Option<String>>;

/// How the server in the model compares texts.
#[derive(Debug, Clone, Copy)]
enum Collation {
    Numbers,
    Bytes,
    WithoutCase,
    /// Shorter texts come first, and texts of equal length are compared backwards. No client could guess this
    /// order.
    Odd,
}

impl Collation {
    fn compare(self, one: &str, other: &str) -> Ordering {
        match self {
            Self::Numbers => one.parse::<i128>().unwrap().cmp(&other.parse::<i128>().unwrap()),
            Self::Bytes => one.cmp(other),
            Self::WithoutCase => one.to_lowercase().cmp(&other.to_lowercase()),
            Self::Odd => one.len().cmp(&other.len()).then_with(|| other.cmp(one)),
        }
    }
}

/// The rows of a table, as a server would store and compare them.
#[derive(Debug, Clone)]
struct Model {
    collations: Vec<Collation>,
    /// Each row, with the number of its partition.
    rows: Vec<(usize, Row)>,
}

impl Model {
    fn compare(&self, row: &[Option<String>], key: &[KeyLiteral]) -> Option<Ordering> {
        let mut ordering = Ordering::Equal;
        for ((value, literal), collation) in row.iter().zip(key).zip(&self.collations) {
            ordering = ordering.then(collation.compare(value.as_deref()?, &literal.0));
        }
        Some(ordering)
    }

    fn holds(&self, row: &[Option<String>], range: &KeyRange) -> bool {
        let null = row.iter().any(Option::is_none);
        match range {
            KeyRange::All => true,
            KeyRange::Nulls => null,
            KeyRange::Integers { from, to } => row[0].as_ref().is_some_and(|value| {
                let value = value.parse::<i128>().unwrap();
                from.is_none_or(|from| value >= from) && to.is_none_or(|to| value <= to)
            }),
            KeyRange::Keys { after, to } => {
                !null
                    && after.as_ref().is_none_or(|key| self.compare(row, key) == Some(Ordering::Greater))
                    && to.as_ref().is_none_or(|key| self.compare(row, key) != Some(Ordering::Greater))
            }
        }
    }

    fn of(&self, partition: usize) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |(of, _)| *of == partition).map(|(_, row)| row)
    }

    /// Answers a query of the chunker correctly, except for estimates, which are changed at random.
    fn answer(&self, partition: usize, question: &ChunkQuery, noise: u64) -> ChunkQueryResult {
        match question {
            ChunkQuery::Extent => {
                let values = || self.of(partition).filter_map(|row| row[0].as_ref()?.parse::<i128>().ok());
                ChunkQueryResult::Extent(values().min().zip(values().max()))
            }
            ChunkQuery::Estimate { from, to } => {
                let range = KeyRange::Integers { from: Some(*from), to: Some(*to) };
                let rows = self.of(partition).filter(|row| self.holds(row, &range)).count() as u64;
                ChunkQueryResult::Estimate(if noise.is_multiple_of(3) { noise } else { rows.max(1) })
            }
            ChunkQuery::Boundary { after, rows } => {
                let range = KeyRange::Keys { after: after.clone(), to: None };
                let mut following: Vec<_> = self
                    .of(partition)
                    .filter(|row| self.holds(row, &range))
                    .map(|row| row.iter().flatten().cloned().map(KeyLiteral).collect::<Vec<_>>())
                    .collect();
                following.sort_by(|one, other| {
                    let one: Row = one.iter().map(|value| Some(value.0.clone())).collect();
                    self.compare(&one, other).unwrap()
                });
                ChunkQueryResult::Boundary(following.into_iter().nth(usize::try_from(rows - 1).unwrap()))
            }
        }
    }
}

fn value(collation: Collation) -> BoxedStrategy<String> {
    match collation {
        // Dense values, skewed values, and the extreme values of the type.
        Collation::Numbers => prop_oneof![
            4 => 0i128..60,
            2 => (1i128 << 40)..(1i128 << 40) + 20,
            1 => i64::MIN as i128..=u64::MAX as i128,
            1 => prop::sample::select(vec![i64::MIN as i128, u64::MAX as i128, -1]),
        ]
        .prop_map(|number| number.to_string())
        .boxed(),
        _ => "[a-cA-C]{0,3}".boxed(),
    }
}

fn table() -> impl Strategy<Value = (Model, bool, usize)> {
    let collation = prop::sample::select(vec![
        Collation::Numbers,
        Collation::Bytes,
        Collation::WithoutCase,
        Collation::Odd,
    ]);
    let columns = prop_oneof![
        2 => Just(vec![Collation::Numbers]),
        3 => prop::collection::vec(collation, 1..4),
    ];
    (columns, any::<bool>(), 0usize..4).prop_flat_map(|(collations, nullable, partitions)| {
        let row: Vec<_> = collations
            .iter()
            .map(|&collation| {
                if nullable {
                    prop::option::weighted(0.8, value(collation)).boxed()
                } else {
                    value(collation).prop_map(Some).boxed()
                }
            })
            .collect();
        let rows = prop::collection::vec((0..partitions.max(1), row), 0..80);
        rows.prop_map(move |rows| {
            let mut model = Model { collations: collations.clone(), rows: Vec::new() };
            for (partition, row) in rows {
                let literals: Vec<_> =
                    row.iter().map(|value| KeyLiteral(value.clone().unwrap_or_default())).collect();
                let null = row.iter().any(Option::is_none);
                // A row is a duplicate if its key is equal to another key in the model's collation. A key
                // with NULL is never a duplicate.
                let is_there = !null
                    && model.rows.iter().any(|(_, row)| {
                        !row.iter().any(Option::is_none)
                            && model.compare(row, &literals) == Some(Ordering::Equal)
                    });
                if !is_there {
                    model.rows.push((partition, row));
                }
            }
            (model, nullable, partitions)
        })
    })
}

fn plan(model: &Model, nullable: bool, partitions: usize, rows_estimate: u64) -> ChunkPlan {
    let integer = matches!(model.collations.as_slice(), [Collation::Numbers]);
    let kind = if integer { KeyKind::Integer } else { KeyKind::Bytes };
    let columns = (0..model.collations.len()).map(|index| KeyColumn {
        name: format!("c{index}"),
        kind: kind.clone(),
        nullable,
        descending: false,
    });
    ChunkPlan {
        key: Some(ChunkKey { name: "k".into(), columns: columns.collect() }),
        partitions: (0..partitions).map(|number| format!("p{number}")).collect(),
        rows_estimate,
        limits: ChunkSizeLimits { rows_first: 5, rows_max: 20, cost_max: 300 },
    }
}

fn partition_number(name: Option<&str>) -> usize {
    name.map_or(0, |name| name[1..].parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn chunks_cover_every_row_once(
        (model, nullable, partitions) in table(), rows_estimate in 0u64..200, seed in prop::collection::vec(any::<u64>(), 1..20),
        resume_every in 1usize..6,
    ) {
        let plan = plan(&model, nullable, partitions, rows_estimate);
        let mut chunker = Chunker::new(plan.clone());
        let mut covered = vec![0; model.rows.len()];
        let mut noise = seed.iter().cycle();
        let (mut chunks, mut steps) = (0, 0);
        loop {
            steps += 1;
            prop_assert!(steps < 40_000, "the chunker does not end");
            let done = chunker.is_done();
            let step = chunker.step();
            prop_assert_eq!(done, step == ChunkStep::Done);
            match step {
                ChunkStep::Ask(partition, question) => {
                    let partition = partition_number(partition.as_deref());
                    chunker.answer(model.answer(partition, &question, *noise.next().unwrap()));
                }
                ChunkStep::Chunk(chunk) => {
                    chunks += 1;
                    let partition = partition_number(chunk.partition.as_deref());
                    let mut rows = 0;
                    for (times, (of, row)) in covered.iter_mut().zip(&model.rows) {
                        if *of == partition && model.holds(row, &chunk.keys) {
                            *times += 1;
                            rows += 1;
                        }
                    }
                    chunker.record_chunk(rows, rows * (1 + noise.next().unwrap() % 100));
                    if chunks % resume_every == 0 && noise.next().unwrap() % 2 == 0 {
                        let width_min = chunker.width_min;
                        chunker = Chunker::resume(plan.clone(), Some(&chunk)).unwrap();
                        chunker.width_min = width_min;
                    }
                }
                ChunkStep::Done => break,
            }
        }
        prop_assert!(
            covered.iter().all(|&times| times == 1),
            "a row is in no chunk or in several: {:?}",
            covered
        );
        prop_assert_eq!(chunker.step(), ChunkStep::Done);
    }

    #[test]
    fn chunks_of_a_composite_key_are_bounded(rows in 1u64..500, rows_max in 1u64..50) {
        let rows_of = (0..rows).map(|row| (0, vec![Some((row / 7).to_string()), Some((row % 7).to_string())]));
        let model = Model { collations: vec![Collation::Numbers; 2], rows: rows_of.collect() };
        let limits = ChunkSizeLimits { rows_first: rows_max, rows_max, cost_max: u64::MAX };
        let mut chunker = Chunker::new(ChunkPlan { limits, ..plan(&model, false, 0, 0) });
        let mut left = rows;
        loop {
            match chunker.step() {
                ChunkStep::Ask(_, question) => chunker.answer(model.answer(0, &question, 1)),
                ChunkStep::Chunk(chunk) => {
                    let held = model.of(0).filter(|row| model.holds(row, &chunk.keys)).count() as u64;
                    prop_assert_eq!(held, left.min(rows_max));
                    chunker.record_chunk(held, held);
                    left -= held;
                }
                ChunkStep::Done => break,
            }
        }
        prop_assert_eq!(left, 0);
    }
}

#[test]
fn dense_keys_need_no_queries_and_sparse_keys_few() {
    let count = |rows_estimate: u64, high: i128, per_key: u128| {
        let model = Model { collations: vec![Collation::Numbers], rows: Vec::new() };
        let limits = ChunkSizeLimits { rows_first: 1000, rows_max: 1000, cost_max: u64::MAX };
        let mut chunker = Chunker::new(ChunkPlan { limits, ..plan(&model, false, 0, rows_estimate) });
        let (mut questions, mut chunks) = (0, 0);
        loop {
            match chunker.step() {
                ChunkStep::Ask(_, ChunkQuery::Extent) => {
                    chunker.answer(ChunkQueryResult::Extent(Some((1, high))))
                }
                ChunkStep::Ask(_, ChunkQuery::Estimate { from, to }) => {
                    questions += 1;
                    let rows = (to.abs_diff(from) + 1) / per_key;
                    chunker.answer(ChunkQueryResult::Estimate(u64::try_from(rows).unwrap().max(1)));
                }
                ChunkStep::Ask(_, question) => panic!("unexpected query for an integer key: {question:?}"),
                ChunkStep::Chunk(_) => {
                    chunks += 1;
                    chunker.record_chunk(1000, 1000);
                }
                ChunkStep::Done => return (questions, chunks),
            }
        }
    };
    assert_eq!(count(1_000_000, 1_000_000, 1), (0, 1000));
    let (questions, chunks) = count(1_000_000, 1_000_000_000_000, 1_000_000);
    assert!((500..=2000).contains(&chunks), "the table was cut into {chunks} chunks, not into about 1000");
    assert!(
        questions < chunks + 50,
        "the chunker sent {questions} queries for {chunks} chunks, which is too many"
    );
}

#[test]
fn a_chunker_does_not_resume_by_another_key() {
    let integers = Model { collations: vec![Collation::Numbers], rows: Vec::new() };
    let texts = Model { collations: vec![Collation::Bytes], rows: Vec::new() };
    let chunk = |partition: Option<&str>, keys| ChunkRange { partition: partition.map(str::to_owned), keys };
    let number = KeyRange::Integers { from: None, to: Some(5) };
    let key = KeyRange::Keys { after: None, to: Some(vec![KeyLiteral("X'61'".into())]) };
    let resume =
        |model: &Model, partitions, last| Chunker::resume(plan(model, false, partitions, 0), Some(&last));
    assert!(resume(&integers, 0, chunk(None, number.clone())).is_ok());
    assert!(resume(&texts, 0, chunk(None, number.clone())).is_err());
    assert!(resume(&integers, 0, chunk(None, key)).is_err());
    assert!(resume(&integers, 0, chunk(None, KeyRange::All)).is_err());
    assert!(resume(&integers, 0, chunk(Some("p0"), number.clone())).is_err());
    assert!(resume(&integers, 2, chunk(Some("p1"), number)).is_ok());
}
