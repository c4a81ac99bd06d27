//! Simulates the connections of a load and a server with fewer cores than connections, and computes the
//! duration of the load.

use proptest::prelude::*;

use super::*;

/// A table: the number of rows in each of its chunks, and its number of deferred indexes.
#[derive(Debug, Clone)]
struct Table {
    chunks: Vec<u64>,
    indexes: usize,
}

impl Table {
    fn new(chunks: usize, rows: u64, indexes: usize) -> Self {
        Self { chunks: vec![rows; chunks], indexes }
    }

    fn size(&self) -> LoadSize {
        self.chunks.iter().map(|&rows| chunk_size(rows)).sum()
    }

    fn rows_cost(&self) -> f64 {
        self.chunks.iter().map(|&rows| chunk_cost(rows)).sum()
    }

    fn indexes_cost(&self) -> f64 {
        (self.size().rows * self.indexes as u64 * INDEX_ENTRY) as f64
    }
}

fn to_load(number: usize, size: LoadSize, indexes: usize) -> TableToLoad {
    TableToLoad { number, missing: size, whole: size, indexes, one_by_one: false }
}

fn chunk_size(rows: u64) -> LoadSize {
    LoadSize::new(Some(rows), rows * 250)
}

fn chunk_cost(rows: u64) -> f64 {
    chunk_size(rows).cost() as f64
}

/// A strategy that chooses the next chunk to load.
trait Next {
    fn next(&mut self) -> Option<(usize, u64)>;
}

struct ByOrder {
    order: TableOrder,
    chunks: Vec<std::vec::IntoIter<u64>>,
    most_begun: usize,
}

impl ByOrder {
    fn new(connections: usize, tables: &[Table]) -> Self {
        let with_rows = tables.iter().enumerate().filter(|(_, table)| !table.chunks.is_empty());
        let lefts = with_rows.map(|(number, table)| to_load(number, table.size(), table.indexes));
        let chunks = tables.iter().map(|table| table.chunks.clone().into_iter()).collect();
        Self { order: TableOrder::new(connections, lefts), chunks, most_begun: 0 }
    }
}

impl Next for ByOrder {
    fn next(&mut self) -> Option<(usize, u64)> {
        let table = self.order.next()?;
        self.most_begun = self.most_begun.max(self.order.started.len());
        let rows = self.chunks[table].next().unwrap();
        self.order.take(table, chunk_size(rows));
        if self.chunks[table].len() == 0 {
            self.order.end(table);
        }
        Some((table, rows))
    }
}

/// A strategy that takes a chunk from each table in turn, and ignores the cost of the indexes.
struct ByTurns(std::vec::IntoIter<(usize, u64)>);

impl ByTurns {
    fn new(tables: &[Table]) -> Self {
        let most = tables.iter().map(|table| table.chunks.len()).max().unwrap_or(0);
        let round = |turn| {
            let chunk = move |(number, table): (usize, &Table)| Some((number, *table.chunks.get(turn)?));
            tables.iter().enumerate().filter_map(chunk).collect::<Vec<_>>()
        };
        Self((0..most).flat_map(round).collect::<Vec<_>>().into_iter())
    }
}

impl Next for ByTurns {
    fn next(&mut self) -> Option<(usize, u64)> {
        self.0.next()
    }
}

/// Computes the duration of a load. Each connection does one thing at a time, and all connections share the
/// cores.
fn time(connections: usize, cores: usize, tables: &[Table], next: &mut impl Next) -> f64 {
    /// What a connection is doing: the number of the table, whether it loads rows, and the remaining cost.
    type Doing = (usize, bool, f64);
    let mut left: Vec<_> = tables.iter().map(|table| table.chunks.len()).collect();
    let mut doing: Vec<Option<Doing>> = vec![None; connections];
    let mut time = 0.0;
    loop {
        for idle in doing.iter_mut().filter(|doing| doing.is_none()) {
            *idle = next.next().map(|(table, rows)| (table, true, chunk_cost(rows)));
        }
        let busy = doing.iter().flatten().count();
        let Some(least) = doing.iter().flatten().map(|doing| doing.2).min_by(f64::total_cmp) else {
            assert!(left.iter().all(|&left| left == 0), "not all chunks were loaded");
            return time;
        };
        let speed = (cores as f64 / busy as f64).min(1.0);
        time += least / speed;
        for slot in &mut doing {
            let Some((table, rows, cost)) = *slot else { continue };
            *slot = (cost - least > 1e-6).then_some((table, rows, cost - least));
            if slot.is_none() && rows {
                left[table] -= 1;
                let indexes = tables[table].indexes_cost();
                *slot = (left[table] == 0 && indexes > 0.0).then_some((table, false, indexes));
            }
        }
    }
}

/// Returns a lower bound for the duration in any order. Either all cores work all the time, or all of them
/// load the rows of one table and then one core creates its indexes.
fn least(cores: usize, tables: &[Table]) -> f64 {
    let cores = cores as f64;
    let all: f64 = tables.iter().map(|table| table.rows_cost() + table.indexes_cost()).sum();
    let ways = tables.iter().map(|table| table.rows_cost() / cores + table.indexes_cost());
    ways.fold(all / cores, f64::max)
}

fn both(connections: usize, cores: usize, tables: &[Table]) -> (f64, f64) {
    let least = least(cores, tables);
    let ours = time(connections, cores, tables, &mut ByOrder::new(connections, tables));
    let turns = time(connections, cores, tables, &mut ByTurns::new(tables));
    (ours / least, turns / least)
}

#[test]
fn the_longest_index_creation_does_not_run_alone_at_the_end() {
    let tables = [Table::new(75, 100_000, 4), Table::new(25, 100_000, 1)];
    for tables in [&tables[..], &[tables[1].clone(), tables[0].clone()]] {
        let (ours, turns) = both(4, 2, tables);
        assert!(ours < 1.1, "the load took {ours} times the lower bound");
        assert!(turns > 1.15, "the strategy of taking turns was as fast: {turns} times the lower bound");
    }
}

#[test]
fn tables_with_equal_remaining_times_take_turns() {
    let tables = vec![Table::new(3, 1000, 1); 3];
    let mut order = ByOrder::new(4, &tables);
    let taken: Vec<_> = std::iter::from_fn(|| Some(order.next()?.0)).collect();
    assert_eq!(taken, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    let (ours, turns) = both(4, 2, &vec![Table::new(25, 100_000, 1); 4]);
    assert!(ours <= turns, "the load took {ours} times the lower bound, {turns} with taking turns");
}

#[test]
fn the_assumed_cost_of_a_chunk_is_corrected() {
    let size = LoadSize::new(Some(1600), 0);
    let mut order = TableOrder::new(2, [to_load(7, size, 0)]);
    assert_eq!(order.next(), Some(7));
    let guess = order.take_chunk(7);
    assert_eq!(guess, 100 * ROW);
    order.taken(7, guess, LoadSize::new(Some(900), 0));
    assert_eq!((order.started[0].rows, order.started[0].chunk), (700 * ROW, 900 * ROW));
    // The assumed cost is not more than the remaining cost of the table. Estimates may be wrong.
    let guess = order.take_chunk(7);
    assert_eq!((guess, order.started[0].rows), (700 * ROW, 0));
    order.taken(7, guess, LoadSize::new(Some(5000), 0));
    assert_eq!(order.next(), Some(7));
    order.end(7);
    order.taken(7, 1, size);
    assert_eq!((order.next(), order.take_chunk(7)), (None, 0));
}

#[test]
fn unknown_row_counts_are_estimated_from_bytes() {
    assert_eq!(LoadSize::new(None, 10 * ROW_BYTES), LoadSize { rows: 10, bytes: 10 * ROW_BYTES });
    let absurd = LoadSize::new(Some(u64::MAX), u64::MAX);
    assert_eq!(absurd.cost(), u64::MAX);
    let mut order = TableOrder::new(2, [to_load(0, LoadSize::new(Some(1), 1), 1), to_load(1, absurd, 9)]);
    assert_eq!(order.next(), Some(1));
}

#[test]
fn rows_of_one_connection_and_indexes_count_with_their_full_time() {
    let (large, small) = (LoadSize::new(Some(3000), 0), LoadSize::new(Some(1000), 0));
    let locked = TableToLoad { one_by_one: true, ..to_load(1, small, 0) };
    assert_eq!(TableOrder::new(4, [to_load(0, large, 0), locked]).next(), Some(1));
    assert_eq!(TableOrder::new(4, [to_load(0, large, 0), to_load(1, small, 0)]).next(), Some(0));
    let indexes_alone = TableToLoad { missing: LoadSize::default(), ..to_load(1, large, 4) };
    let mut order = TableOrder::new(4, [to_load(0, large, 0), indexes_alone]);
    assert_eq!(order.next(), Some(1));
    order.end(1);
    assert_eq!(order.next(), Some(0));
}

fn tables() -> impl Strategy<Value = Vec<Table>> {
    let table = (prop::collection::vec(1u64..50_000, 0..40), 0usize..6)
        .prop_map(|(chunks, indexes)| Table { chunks, indexes });
    prop::collection::vec(table, 1..9)
}

proptest! {
    #[test]
    fn every_chunk_is_assigned_and_few_tables_are_started(tables in tables(), connections in 1usize..9, cores in 1usize..9) {
        let mut order = ByOrder::new(connections, &tables);
        // The simulation fails if a chunk is not loaded.
        let ours = time(connections, cores, &tables, &mut order);
        prop_assert!(order.most_begun <= connections);
        // Graham's bound for every order without idle connections: the time for all work, spread over the
        // cores that the connections can use, plus the longest work of one connection.
        let cores = cores.min(connections) as f64;
        let all: f64 = tables.iter().map(|table| table.rows_cost() + table.indexes_cost()).sum();
        let one = |table: &Table| {
            table.chunks.iter().max().map_or(0.0, |&rows| chunk_cost(rows) + table.indexes_cost())
        };
        let longest = tables.iter().map(one).fold(0.0, f64::max);
        prop_assert!(
            ours <= all / cores + longest * 1.001 + 1.0,
            "the load took {ours}, but the bound is {all} on {cores} cores plus {longest}"
        );
    }
}

/// Over many random loads, the order is close to the lower bound, and closer than taking turns.
#[test]
fn the_order_is_close_to_the_lower_bound() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let many = 300;
    let (mut ours, mut turns) = (0.0, 0.0);
    for _ in 0..many {
        let tables = tables().new_tree(&mut runner).unwrap().current();
        if tables.iter().all(|table| table.chunks.is_empty()) {
            continue;
        }
        let (one, other) = both(4, 2, &tables);
        ours += one / f64::from(many);
        turns += other / f64::from(many);
    }
    assert!(
        ours < 1.08 && ours < turns,
        "the load took {ours} times the lower bound on average, {turns} with taking turns"
    );
}
