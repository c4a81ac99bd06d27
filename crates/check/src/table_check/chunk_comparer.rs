//! Compares chunks over one connection to each server: first by the sum of the hashes of all rows, and row by
//! row if the sums differ.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tailwater_session::{Connection, QueryResult, TextRow};
use tailwater_wire::server_version::ServerFeature;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::chunk_queue::ComparedChunk;
use super::row_difference::{DifferenceKind, RowDifference, RowValues};
use super::row_difference_confirmation::{ROUNDS_MAX, RowTrial, RowVerdict, RowVersion};
use super::table_pair::{PairSide, TablePair};
use super::target_catch_up_wait::SyncWaiter;
use tailwater_tables::chunker::chunk_queries::check_row_count;
use tailwater_tables::chunker::key_range::{KeyLiteral, KeyRange};
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;

/// The greatest number of rows of a chunk that are collected because they seem to differ. Each of them is
/// then compared again.
const CANDIDATES_MAX: usize = 200_000;

/// Values longer than this, in bytes, are compared and shown as digests.
const SHOWN_BYTES_MAX: u32 = 256;

/// Pauses before a row is read again, in milliseconds. The last pause repeats.
const PAUSES_MS: [u64; 6] = [0, 10, 30, 100, 200, 300];

/// The connections to both servers, and the options for comparing chunks over them.
#[derive(Debug)]
pub struct Comparer {
    /// The connection to the source.
    pub source: Connection,
    /// The connection to the target.
    pub target: Connection,
    /// Waits until the target has everything that the source had.
    pub waiting: SyncWaiter,
    /// Receives the number of rows and the reasons for waiting.
    pub progress: Arc<BulkProgress>,
    /// Where the digests of rows are computed.
    pub digests: Digests,
    /// Whether the result contains the values of differing rows.
    pub keeps_values: bool,
}

/// Where the digests of a chunk's rows are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digests {
    /// Each server reduces each row to a 32-bit number, and computes one checksum of the chunk from these
    /// numbers. This requires MariaDB 10.8 or newer on both sides, and a table with a unique key. In all
    /// other cases, the digests are computed as with `Client`.
    Quick {
        /// The same as the seed of `Client`.
        seed: u64,
    },
    /// This process receives all rows and computes the digests. The servers need a third of the work that
    /// `OnServers` needs.
    Client {
        /// A seed that is new for each check, so that a collision does not repeat in the next check.
        seed: u64,
    },
    /// Each server computes the digests, so that only little is transferred.
    OnServers,
}

/// The key of a row.
type RowKey = Vec<KeyLiteral>;

/// The number of rows in a chunk, and the sum of their hashes.
#[derive(Debug, PartialEq, Eq)]
struct RangeSum {
    rows: u64,
    hashes: Option<String>,
}

/// The row counts and hash sums of a chunk on the source and on the target.
struct RangeSums {
    sides: [RangeSum; 2],
    /// How long the slower side needed. This does not include the time for waiting for the target and for
    /// comparing single rows. Smaller chunks would not reduce that time.
    took: Duration,
}

impl Comparer {
    /// Compares a chunk. Stops after `differences_max` differences.
    ///
    /// # Errors
    /// [`BulkError::RowTooLong`], [`BulkError::TargetBehind`], [`BulkError::UnexpectedAnswer`],
    /// [`BulkError::Session`].
    pub(super) async fn chunk(
        &mut self,
        pair: &TablePair,
        range: &KeyRange,
        differences_max: usize,
    ) -> Result<ComparedChunk, BulkError> {
        let RangeSums { sides: [on_source, on_target], took } = match self.server_sums(pair, range).await? {
            Some(sums) => sums,
            None => self.digest_sums(pair, range).await?,
        };
        let mut compared = ComparedChunk { rows: on_source.rows, took, ..ComparedChunk::default() };
        if on_source == on_target {
            return Ok(compared);
        }
        (compared.found, compared.more) = if pair.key.is_none() || *range == KeyRange::Nulls {
            self.counts(pair, range, differences_max).await?
        } else {
            let (candidates, overflow) = self.find_candidates(pair, range).await?;
            let (found, more) = self.decide(pair, candidates, differences_max).await?;
            (found, more || overflow)
        };
        Ok(compared)
    }

    /// Waits until the target has everything that was read on the source.
    pub(crate) async fn catch_up(&mut self) -> Result<(), BulkError> {
        let position = self.waiting.position(&mut self.source).await?;
        self.waiting.wait(&mut self.target, position, &self.progress).await
    }

    fn side(&mut self, side: PairSide) -> &mut Connection {
        match side {
            PairSide::Source => &mut self.source,
            PairSide::Target => &mut self.target,
        }
    }

    /// Returns the sums that both servers compute themselves; `None` if another kind of digest is chosen or a
    /// server cannot compute its sum.
    async fn server_sums(
        &mut self,
        pair: &TablePair,
        range: &KeyRange,
    ) -> Result<Option<RangeSums>, BulkError> {
        let Digests::Quick { seed } = self.digests else { return Ok(None) };
        let sums = [PairSide::Source, PairSide::Target].map(|side| pair.sum(side, range, seed));
        let [Some(on_source), Some(on_target)] = sums else { return Ok(None) };
        if ![&self.source, &self.target].into_iter().all(accepts_crc32_state) {
            return Ok(None);
        }
        let started = Instant::now();
        let Some(on_source) = query_sum(&mut self.source, &on_source).await? else { return Ok(None) };
        let source_took = started.elapsed();
        self.catch_up().await?;
        let started = Instant::now();
        let Some(on_target) = query_sum(&mut self.target, &on_target).await? else { return Ok(None) };
        let took = started.elapsed().max(source_took);
        Ok(Some(RangeSums { sides: [sum_of(pair, &on_source)?, sum_of(pair, &on_target)?], took }))
    }

    /// Returns the sums of the digests of all rows on both sides.
    async fn digest_sums(&mut self, pair: &TablePair, range: &KeyRange) -> Result<RangeSums, BulkError> {
        let started = Instant::now();
        let on_source = self.sum(pair, PairSide::Source, range).await?;
        let source_took = started.elapsed();
        self.catch_up().await?;
        let started = Instant::now();
        let on_target = self.sum(pair, PairSide::Target, range).await?;
        Ok(RangeSums { sides: [on_source, on_target], took: started.elapsed().max(source_took) })
    }

    async fn sum(
        &mut self,
        pair: &TablePair,
        side: PairSide,
        range: &KeyRange,
    ) -> Result<RangeSum, BulkError> {
        match self.digests {
            Digests::Quick { seed } | Digests::Client { seed } => {
                self.sum_on_client(pair, side, range, seed).await
            }
            Digests::OnServers => self.sum_on_server(pair, side, range).await,
        }
    }

    /// Adds up the digests of all rows. They are not combined by XOR, because equal rows would cancel each
    /// other.
    async fn sum_on_client(
        &mut self,
        pair: &TablePair,
        side: PairSide,
        range: &KeyRange,
        seed: u64,
    ) -> Result<RangeSum, BulkError> {
        let connection = self.side(side);
        let statement = pair.values(side, range, connection.server());
        // Only one of the two servers may have sent values of a prepared statement. The sums then differ,
        // although the rows are equal. The later comparison of row hashes shows that they are equal.
        let mut rows = statement.rows(connection).await?;
        let (mut count, mut sum) = (0, 0u128);
        while let Some(batch) = rows.next_batch().await? {
            for row in batch.iter() {
                count += 1;
                sum = sum.wrapping_add(xxh3_128_with_seed(row.bytes(), seed));
            }
        }
        check_row_count(connection, &pair.name, count).await?;
        Ok(RangeSum { rows: count, hashes: Some(format!("{sum:032x}")) })
    }

    async fn sum_on_server(
        &mut self,
        pair: &TablePair,
        side: PairSide,
        range: &KeyRange,
    ) -> Result<RangeSum, BulkError> {
        let connection = self.side(side);
        let answer = connection.query(&pair.aggregate(side, range)).await?;
        let sum = sum_of(pair, &answer)?;
        if answer.warnings > 0 {
            let unhashed = connection.query(&pair.unhashed(side, range)).await?;
            let unhashed = unhashed.first().and_then(|row| row.get_u64(0)).unwrap_or(0);
            if unhashed > 0 {
                return Err(too_long(pair, connection, unhashed));
            }
        }
        Ok(sum)
    }

    /// Returns the keys of rows whose hashes differ or that exist on only one side. Also returns whether
    /// there were more such rows than the limit. Both sides return rows in key order, so only rows without
    /// their counterpart are held in memory.
    async fn find_candidates(
        &mut self,
        pair: &TablePair,
        range: &KeyRange,
    ) -> Result<(Vec<RowKey>, bool), BulkError> {
        let Some(key) = &pair.key else { return Ok((Vec::new(), false)) };
        let none = || unexpected(pair, "the query for row hashes returned a row without a valid key");
        let statement = |side| pair.hashes(side, range).ok_or_else(none);
        let (for_source, for_target) = (statement(PairSide::Source)?, statement(PairSide::Target)?);
        let mut on_source = self.source.query_stream(&for_source).await?;
        let mut on_target = self.target.query_stream(&for_target).await?;
        let mut unmatched = Unmatched::default();
        let (mut source_ended, mut target_ended) = (false, false);
        while !(source_ended && target_ended) {
            if !source_ended {
                match on_source.next().await? {
                    Some(row) => {
                        unmatched.put(PairSide::Source, &key_of(&row, &key.source).ok_or_else(none)?, &row)?
                    }
                    None => source_ended = true,
                }
            }
            if !target_ended {
                match on_target.next().await? {
                    Some(row) => {
                        unmatched.put(PairSide::Target, &key_of(&row, &key.target).ok_or_else(none)?, &row)?
                    }
                    None => target_ended = true,
                }
            }
        }
        Ok(unmatched.candidates())
    }

    /// Decides for each row whether it really differs. Stops after `differences_max` differences, and returns
    /// whether it stopped early.
    async fn decide(
        &mut self,
        pair: &TablePair,
        candidates: Vec<RowKey>,
        differences_max: usize,
    ) -> Result<(Vec<RowDifference>, bool), BulkError> {
        let (mut found, mut names) = (Vec::new(), HashSet::new());
        for batch in candidates.chunks(pair.rows_at_once()) {
            if found.len() >= differences_max {
                return Ok((found, true));
            }
            for difference in self.decide_batch(pair, batch).await? {
                // With some collations, two keys with different bytes may be the same row.
                if names.insert(difference.key.clone()) {
                    found.push(difference);
                }
            }
        }
        Ok((found, false))
    }

    /// Decides for some rows, at most as many as one statement reads, whether they really differ.
    ///
    /// # Errors
    /// The errors of [`Comparer::chunk`].
    pub(crate) async fn decide_batch(
        &mut self,
        pair: &TablePair,
        keys: &[RowKey],
    ) -> Result<Vec<RowDifference>, BulkError> {
        let mut open: Vec<_> = keys.iter().map(|key| (key, RowTrial::default())).collect();
        let columns: Arc<[String]> = pair.columns.iter().map(|column| column.name.clone()).collect();
        let mut found = Vec::new();
        for round in 0..ROUNDS_MAX as usize {
            if open.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(PAUSES_MS[round.min(PAUSES_MS.len() - 1)])).await;
            let wanted: Vec<_> = open.iter().map(|(key, _)| key.as_slice()).collect();
            let before = self.rows(pair, PairSide::Source, &wanted).await?;
            self.catch_up().await?;
            let target = self.rows(pair, PairSide::Target, &wanted).await?;
            let after = self.rows(pair, PairSide::Source, &wanted).await?;
            let versions = before.into_iter().zip(target).zip(after);
            let mut left = Vec::new();
            for ((key, mut trial), ((before, target), after)) in open.into_iter().zip(versions) {
                // If the source has the row, the difference is reported with the key as the source stores it.
                let name = before.as_ref().map_or_else(|| key.clone(), |row| row.key.clone());
                let version = |row: Option<FoundRow>| row.map(|row| row.values);
                let verdict = trial.round(version(before), version(target), &version(after), |one, other| {
                    is_same(pair, one, other)
                });
                match verdict {
                    RowVerdict::Equal => {}
                    RowVerdict::Again => left.push((key, trial)),
                    RowVerdict::Undecided => {
                        found.push(difference(pair, name, DifferenceKind::Undecided, None))
                    }
                    RowVerdict::Differs { source, target } => {
                        let what = what(pair, &source, &target);
                        let values = self.keeps_values.then(|| {
                            let (source, target) = (shortened(source), shortened(target));
                            Box::new(RowValues { columns: Arc::clone(&columns), source, target })
                        });
                        found.push(difference(pair, name, what, values));
                    }
                }
            }
            open = left;
        }
        Ok(found)
    }

    /// Returns the rows with these keys, in the order of the keys.
    async fn rows(
        &mut self,
        pair: &TablePair,
        side: PairSide,
        keys: &[&[KeyLiteral]],
    ) -> Result<Vec<Option<FoundRow>>, BulkError> {
        let none = || unexpected(pair, "the query for rows by their keys returned a malformed row");
        let (Some(key), Some(sql)) = (pair.key(side), pair.rows(side, keys, SHOWN_BYTES_MAX)) else {
            return Err(none());
        };
        let mut rows: Vec<_> = keys.iter().map(|_| None).collect();
        let is_exact = pair.key_is_exact();
        let numbers: HashMap<&[KeyLiteral], usize> = keys.iter().copied().zip(0..).collect();
        let first = usize::from(!is_exact);
        for row in &self.side(side).query(&sql).await?.rows {
            let literals =
                key.columns.iter().zip(first..).map(|(column, index)| column.literal(row.get(index)?));
            let own: RowKey = literals.collect::<Option<_>>().ok_or_else(none)?;
            let number = match is_exact {
                true => numbers.get(own.as_slice()).copied(),
                false => row.get_u64(0).and_then(|number| usize::try_from(number).ok()),
            };
            let slot = number.and_then(|number| rows.get_mut(number)).ok_or_else(none)?;
            let values = (first + own.len()..row.len()).map(|index| row.get(index).map(<[u8]>::to_vec));
            *slot = Some(FoundRow { values: values.collect(), key: own });
        }
        Ok(rows)
    }

    /// Compares rows without a unique key by the number of rows with the same hash. A difference counts only
    /// if several consecutive reads find the same number on the source, and the same other number on the
    /// target. Also returns whether there were more differences than the limit.
    async fn counts(
        &mut self,
        pair: &TablePair,
        range: &KeyRange,
        differences_max: usize,
    ) -> Result<(Vec<RowDifference>, bool), BulkError> {
        /// The number of consecutive reads that must show the same numbers for a result.
        const SAME_ROUNDS_MIN: u32 = 3;
        let mut same_rounds: BTreeMap<u64, ([u64; 2], u32)> = BTreeMap::new();
        let mut more = false;
        for round in 0..ROUNDS_MAX as usize {
            tokio::time::sleep(Duration::from_millis(PAUSES_MS[round.min(PAUSES_MS.len() - 1)])).await;
            self.catch_up().await?;
            let (differing, overflow) = self.differing_counts(pair, range, differences_max).await?;
            more = overflow;
            let next = differing.into_iter().map(|(hash, counts)| {
                let before = same_rounds.get(&hash).filter(|(known, _)| *known == counts);
                (hash, (counts, before.map_or(0, |(_, same_rounds)| *same_rounds) + 1))
            });
            same_rounds = next.collect();
            if same_rounds.values().all(|(_, same_rounds)| *same_rounds >= SAME_ROUNDS_MIN) {
                break;
            }
        }
        let found = same_rounds.into_iter().map(|(hash, ([source, target], same_rounds))| {
            let what = if same_rounds >= SAME_ROUNDS_MIN {
                DifferenceKind::Count { hash, source, target }
            } else {
                DifferenceKind::Undecided
            };
            difference(pair, Vec::new(), what, None)
        });
        Ok((found.collect(), more))
    }

    /// Returns the hashes whose numbers of rows differ, and whether there were more such hashes than the
    /// limit.
    async fn differing_counts(
        &mut self,
        pair: &TablePair,
        range: &KeyRange,
        differences_max: usize,
    ) -> Result<(BTreeMap<u64, [u64; 2]>, bool), BulkError> {
        let (for_source, for_target) =
            (pair.hash_counts(PairSide::Source, range), pair.hash_counts(PairSide::Target, range));
        let mut on_source = self.source.query_stream(&for_source).await?;
        let mut on_target = self.target.query_stream(&for_target).await?;
        let count = |row: Option<TextRow>| match row {
            None => Ok(None),
            Some(row) => row
                .get_u64(0)
                .zip(row.get_u64(1))
                .map(Some)
                .ok_or_else(|| unexpected(pair, "the query for row counts returned a malformed row")),
        };
        let (mut one, mut other) = (count(on_source.next().await?)?, count(on_target.next().await?)?);
        let (mut differing, mut more) = (BTreeMap::new(), false);
        while let Some(hash) = [one, other].into_iter().flatten().map(|(hash, _)| hash).min() {
            let of =
                |side: Option<(u64, u64)>| side.filter(|(own, _)| *own == hash).map_or(0, |(_, rows)| rows);
            let counts = [of(one), of(other)];
            if counts[0] != counts[1] {
                match differing.len() < differences_max {
                    true => drop(differing.insert(hash, counts)),
                    false => more = true,
                }
            }
            if counts[0] > 0 {
                one = count(on_source.next().await?)?;
            }
            if counts[1] > 0 {
                other = count(on_target.next().await?)?;
            }
        }
        Ok((differing, more))
    }
}

/// A row that was read.
struct FoundRow {
    key: RowKey,
    values: Vec<Option<Vec<u8>>>,
}

/// Rows that have no counterpart on the other side yet, and the keys of rows that differ.
#[derive(Default)]
struct Unmatched {
    waiting: [HashMap<RowKey, Option<u64>>; 2],
    differing: BTreeSet<Vec<String>>,
    overflow: bool,
}

impl Unmatched {
    fn put(&mut self, side: PairSide, key: &RowKey, row: &TextRow) -> Result<(), BulkError> {
        // A row that is too long for the server to concatenate has no hash. Its columns are compared one by
        // one.
        let hash = row.get_u64(key.len());
        let (own, other) = match side {
            PairSide::Source => (0, 1),
            PairSide::Target => (1, 0),
        };
        match self.waiting[other].remove(key) {
            Some(found) if found.is_some() && found == hash => {}
            Some(_) => drop(self.differing.insert(texts(key))),
            None if self.waiting[own].len() + self.differing.len() < CANDIDATES_MAX => {
                self.waiting[own].insert(key.clone(), hash);
            }
            None => self.overflow = true,
        }
        Ok(())
    }

    fn candidates(self) -> (Vec<RowKey>, bool) {
        let mut keys = self.differing;
        keys.extend(self.waiting.iter().flat_map(|waiting| waiting.keys().map(texts)));
        let key = |texts: Vec<String>| texts.into_iter().map(KeyLiteral).collect();
        (keys.into_iter().map(key).collect(), self.overflow)
    }
}

fn texts(key: &RowKey) -> Vec<String> {
    key.iter().map(|literal| literal.0.clone()).collect()
}

fn key_of(row: &TextRow, key: &tailwater_tables::chunker::ChunkKey) -> Option<RowKey> {
    key.columns.iter().enumerate().map(|(index, column)| column.literal(row.get(index)?)).collect()
}

fn difference(
    pair: &TablePair,
    key: RowKey,
    what: DifferenceKind,
    values: Option<Box<RowValues>>,
) -> RowDifference {
    RowDifference { schema: pair.name.schema.clone(), table: pair.name.name.clone(), key, what, values }
}

/// Shortens the values of a row version for storage. JSON documents are compared in full length, but many of
/// them may be stored.
fn shortened(version: RowVersion) -> RowVersion {
    let short = |value: Vec<u8>| match value.len() > SHOWN_BYTES_MAX as usize {
        // The servers shorten other values to the same form: see `RenderedColumn::shown`.
        true => format!("{} bytes, SHA-256 {:x}", value.len(), Sha256::digest(&value)).into_bytes(),
        false => value,
    };
    Some(version?.into_iter().map(|value| value.map(short)).collect())
}

fn what(pair: &TablePair, source: &RowVersion, target: &RowVersion) -> DifferenceKind {
    match (source, target) {
        (Some(source), Some(target)) => {
            let columns = pair.columns.iter().zip(source.iter().zip(target));
            let differ =
                columns.filter(|(column, (one, other))| !is_same_value(column.documents, one, other));
            DifferenceKind::Changed { columns: differ.map(|(column, _)| column.name.clone()).collect() }
        }
        (Some(_), None) => DifferenceKind::Missing,
        (None, _) => DifferenceKind::Extra,
    }
}

fn is_same(pair: &TablePair, one: &RowVersion, other: &RowVersion) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            let mut columns = pair.columns.iter().zip(one.iter().zip(other));
            columns.all(|(column, (one, other))| is_same_value(column.documents, one, other))
        }
        (None, None) => true,
        _ => false,
    }
}

/// JSON values are equal if the documents are equal. One server family sorts and formats the members of a
/// document, and the other family keeps the text.
fn is_same_value(documents: bool, one: &Option<Vec<u8>>, other: &Option<Vec<u8>>) -> bool {
    let document = |value: &Option<Vec<u8>>| -> Option<serde_json::Value> {
        serde_json::from_slice(value.as_deref()?).ok()
    };
    one == other || (documents && document(one).zip(document(other)).is_some_and(|(one, other)| one == other))
}

/// Runs the query for the sum that a server computes; `None` if the server warns. If a server cannot convert
/// a row to a number, it leaves the row out of the sum. If both servers left out the row, a difference in it
/// would be missed.
async fn query_sum(connection: &mut Connection, sql: &str) -> Result<Option<QueryResult>, BulkError> {
    Ok(Some(connection.query(sql).await?).filter(|answer| answer.warnings == 0))
}

/// Whether the server's `CRC32` accepts the CRC of the preceding data as an argument.
fn accepts_crc32_state(connection: &Connection) -> bool {
    let server = connection.server();
    server.has(ServerFeature::ContinuedCrc32)
}

fn sum_of(pair: &TablePair, answer: &QueryResult) -> Result<RangeSum, BulkError> {
    let row = answer.first();
    let rows = row
        .and_then(|row| row.get_u64(0))
        .ok_or_else(|| unexpected(pair, "the query for a chunk's checksum returned no row count"))?;
    Ok(RangeSum { rows, hashes: row.and_then(|row| row.get_str(1)).map(str::to_owned) })
}

fn unexpected(pair: &TablePair, reason: &str) -> BulkError {
    BulkError::UnexpectedAnswer { table: pair.name.to_string(), reason: reason.to_owned() }
}

fn too_long(pair: &TablePair, connection: &Connection, count: u64) -> BulkError {
    BulkError::RowTooLong { table: pair.name.to_string(), server: connection.endpoint().into(), count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_documents_are_equal_whatever_their_text_form() {
        let text = |text: &str| Some(text.as_bytes().to_vec());
        let (one, other) = (text(r#"{"b":1,"a":[1.0,"é"]}"#), text(r#"{"a": [1.0, "\u00e9"], "b": 1}"#));
        assert!(is_same_value(true, &one, &other));
        assert!(!is_same_value(false, &one, &other));
        assert!(!is_same_value(true, &one, &text(r#"{"b":2,"a":[1.0,"é"]}"#)));
        assert!(!is_same_value(true, &None, &text("null")));
        assert!(
            !is_same_value(true, &text("{"), &text("{ ")),
            "a value that is not JSON is compared as text"
        );
    }

    #[test]
    fn long_values_are_replaced_by_their_digests() {
        let long = vec![b'a'; SHOWN_BYTES_MAX as usize + 1];
        let kept = shortened(Some(vec![Some(long), Some(b"short".to_vec()), None])).unwrap();
        let digest = "257 bytes, SHA-256 ";
        assert!(kept[0].as_ref().is_some_and(|value| value.starts_with(digest.as_bytes()) && value.len() == digest.len() + 64));
        assert_eq!(kept[1..], [Some(b"short".to_vec()), None]);
        assert_eq!(shortened(None), None);
    }
}
