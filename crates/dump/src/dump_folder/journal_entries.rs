//! The journal of a dump, with one line for each event since the manifest was written.

use serde::{Deserialize, Serialize};

use super::dump_file_names::chunk_file;
use super::manifest::{ChunkEntry, Manifest, NulledValues, WrittenChunk};
use tailwater_tables::chunker::ChunkRange;
use tailwater_tables::journal_file::{decode_line, encode_line};
use tailwater_tables::snapshot::SnapshotPoint;

/// An event of a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum JournalEntry {
    /// The dump resumed with a new snapshot, at a later point in time than the snapshots in the manifest.
    Snapshot(SnapshotPoint),
    /// The key range of a chunk was determined. This entry precedes all entries of later chunks of the table.
    /// So the range of an unfinished chunk is known.
    Planned {
        /// The database of the table.
        schema: String,
        /// The name of the table.
        table: String,
        /// The chunk's number, from 0 without gaps.
        number: u32,
        /// The key range of its rows.
        range: ChunkRange,
    },
    /// A chunk was written to its file.
    Finished {
        /// The database of the table.
        schema: String,
        /// The name of the table.
        table: String,
        /// The chunk's number.
        number: u32,
        /// Size and checksum of the file.
        chunk: WrittenChunk,
        /// For each column, the number of values that are NULL in the file because the format cannot
        /// represent them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nulled: Vec<NulledValues>,
    },
    /// All chunks of a table are planned and finished.
    TableFinished {
        /// The database of the table.
        schema: String,
        /// The name of the table.
        table: String,
    },
}

impl JournalEntry {
    /// Returns the entry as a line, including its line end.
    pub fn to_line(&self) -> String {
        encode_line(self)
    }

    /// Parses a line without its line end; `None` if its checksum does not match or it cannot be parsed.
    pub fn from_line(line: &str) -> Option<Self> {
        decode_line(line)?.ok()
    }
}

impl Manifest {
    /// Applies a journal entry to the manifest. Applying an entry a second time changes nothing. An entry is
    /// applied a second time if the process is killed between writing the manifest and emptying the journal.
    ///
    /// # Errors
    /// How the entry contradicts the manifest: the manifest lacks its table, or its chunk is out of order.
    pub fn absorb(&mut self, entry: JournalEntry) -> Result<(), String> {
        let ending = self.ending();
        match entry {
            JournalEntry::Snapshot(point) => {
                if !self.snapshots.contains(&point) {
                    self.snapshots.push(point);
                }
            }
            JournalEntry::Planned { schema, table, number, range } => {
                let entry = self.table_mut(&schema, &table).ok_or_else(|| unknown(&schema, &table))?;
                let index = number as usize;
                match entry.chunks.get(index) {
                    Some(chunk) if chunk.range == range => {}
                    None if entry.chunks.len() == index => {
                        entry.chunks.push(planned(&schema, &table, number, range, ending));
                    }
                    _ => return Err(format!("chunk {number} of {schema}.{table} is planned out of order")),
                }
            }
            JournalEntry::Finished { schema, table, number, chunk, nulled } => {
                let entry = self.table_mut(&schema, &table).ok_or_else(|| unknown(&schema, &table))?;
                let slot = entry.chunks.get_mut(number as usize);
                let slot =
                    slot.ok_or_else(|| format!("chunk {number} of {schema}.{table} was never planned"))?;
                (slot.written, slot.nulled) = (Some(chunk), nulled);
                let rows = entry.chunks.iter().filter_map(|chunk| chunk.written).map(|chunk| chunk.rows);
                entry.rows = rows.fold(0, u64::saturating_add);
            }
            JournalEntry::TableFinished { schema, table } => {
                let entry = self.table_mut(&schema, &table).ok_or_else(|| unknown(&schema, &table))?;
                if entry.chunks.iter().any(|chunk| chunk.written.is_none()) {
                    return Err(format!(
                        "{schema}.{table} is recorded as finished, but one of its chunks is not"
                    ));
                }
                entry.finished = true;
            }
        }
        Ok(())
    }
}

fn unknown(schema: &str, table: &str) -> String {
    format!("the manifest has no table {schema}.{table}")
}

fn planned(schema: &str, table: &str, number: u32, range: ChunkRange, ending: &str) -> ChunkEntry {
    ChunkEntry { file: chunk_file(schema, table, number, ending), range, written: None, nulled: Vec::new() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tailwater_tables::journal_file::parse;

    use super::super::manifest::{DumpCompression, DumpedFlavour, DumpedServer, FORMAT, TableEntry};
    use super::*;
    use tailwater_tables::chunker::KeyRange;
    use tailwater_tables::chunker::key_range::KeyLiteral;

    fn manifest() -> Manifest {
        Manifest {
            format: FORMAT,
            tailwater: "0.1.0".into(),
            server: DumpedServer {
                flavour: DumpedFlavour::MySql,
                version: "9.7.0".into(),
                identity: None,
                server_id: Some(1),
            },
            started_at: "2026-01-01T00:00:00Z".into(),
            finished_at: None,
            compression: DumpCompression::Zstd,
            asked: None,
            rows: Default::default(),
            snapshots: vec![SnapshotPoint::default()],
            schemas: Vec::new(),
            tables: vec![TableEntry {
                schema: "s".into(),
                table: "t".into(),
                file: "s.t.table.sql".into(),
                columns: Vec::new(),
                rows: 0,
                chunks: Vec::new(),
                finished: false,
            }],
            accounts: Vec::new(),
            objects: Vec::new(),
        }
    }

    fn key_range() -> impl Strategy<Value = KeyRange> {
        let end = || prop::option::of(i64::MIN as i128..=u64::MAX as i128);
        let key = || prop::option::of(prop::collection::vec(".{0,9}".prop_map(KeyLiteral), 1..3));
        prop_oneof![
            Just(KeyRange::All),
            Just(KeyRange::Nulls),
            (end(), end()).prop_map(|(from, to)| KeyRange::Integers { from, to }),
            (key(), key()).prop_map(|(after, to)| KeyRange::Keys { after, to }),
        ]
    }

    fn planned_entry(number: u32, keys: KeyRange, partition: Option<String>) -> JournalEntry {
        let range = ChunkRange { partition, keys };
        JournalEntry::Planned { schema: "s".into(), table: "t".into(), number, range }
    }

    fn finished_entry(number: u32, snapshot: usize) -> JournalEntry {
        let chunk = WrittenChunk { rows: 3, bytes: 9, crc32: u32::MAX, file_bytes: 5, snapshot };
        let nulled = vec![NulledValues { column: "c".into(), values: u64::from(number) + 1 }];
        JournalEntry::Finished { schema: "s".into(), table: "t".into(), number, chunk, nulled }
    }

    #[test]
    fn applying_a_journal_entry_again_changes_nothing() {
        let mut manifest = manifest();
        let done = JournalEntry::TableFinished { schema: "s".into(), table: "t".into() };
        assert!(manifest.clone().absorb(finished_entry(0, 0)).is_err());
        let wide = KeyRange::Integers { from: Some(i64::MIN.into()), to: Some(u64::MAX.into()) };
        let entries =
            [planned_entry(0, KeyRange::Nulls, None), planned_entry(1, wide, None), finished_entry(1, 0)];
        for entry in entries.iter().chain(&entries) {
            manifest.absorb(entry.clone()).expect("the entry is in order");
        }
        assert!(manifest.absorb(done.clone()).is_err());
        assert!(manifest.absorb(planned_entry(5, KeyRange::All, None)).is_err());
        manifest.absorb(finished_entry(0, 1)).expect("the chunk was planned");
        manifest.absorb(done).expect("all chunks are finished");
        assert_eq!((manifest.tables[0].rows, manifest.tables[0].chunks.len()), (6, 2));
        assert!(manifest.is_complete());
        assert_eq!(manifest.snapshots_used().len(), 2);
        assert_eq!(manifest.nulled().into_iter().collect::<Vec<_>>(), [(("s", "t", "c"), 3)]);
        let json = serde_json::to_string_pretty(&manifest).expect("the manifest serialises");
        assert_eq!(serde_json::from_str::<Manifest>(&json).expect("the manifest parses"), manifest);
    }

    proptest! {
        #[test]
        fn lines_round_trip_and_an_incomplete_last_line_is_removed(
            ranges in prop::collection::vec((key_range(), prop::option::of(".{0,9}")), 1..8), cut: prop::sample::Index,
        ) {
            let numbered = ranges.into_iter().zip(0..);
            let entries: Vec<_> =
                numbered.map(|((keys, partition), number)| planned_entry(number, keys, partition)).collect();
            let lines: Vec<_> = entries.iter().map(JournalEntry::to_line).collect();
            let whole = lines.concat().into_bytes();
            prop_assert_eq!(parse::<JournalEntry>(&whole), Ok((entries.clone(), whole.len())));
            let cut = cut.index(whole.len());
            let (kept, bytes) = parse::<JournalEntry>(&whole[..cut]).expect("the lines are entries");
            prop_assert_eq!(&kept[..], &entries[..kept.len()]);
            prop_assert!(bytes <= cut && cut - bytes < lines[kept.len()].len());
        }

        #[test]
        fn a_changed_byte_is_detected(keys in key_range(), place: prop::sample::Index, bit in 0u8..8) {
            let mut line = planned_entry(0, keys, None).to_line().into_bytes();
            let place = place.index(line.len());
            line[place] ^= 1 << bit;
            prop_assert_eq!(parse::<JournalEntry>(&line), Ok((Vec::new(), 0)));
        }

        #[test]
        fn an_entry_of_another_version_is_not_removed(number in 0u32..9) {
            let line = encode_line(&serde_json::json!({"planned_otherwise": {"number": number}}));
            let journal = [planned_entry(0, KeyRange::All, None).to_line(), line].concat();
            let refused = parse::<JournalEntry>(journal.as_bytes());
            prop_assert!(refused.is_err_and(|reason| reason.contains("line 2") && reason.contains("planned_otherwise")));
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let _ = parse::<JournalEntry>(&bytes);
        }
    }
}
