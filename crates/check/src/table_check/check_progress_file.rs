//! The progress and the results of a check: in memory, and in a file from which the check can resume. The
//! file is a journal like that of a dump. Each line has its own checksum, so a partial last line, which a
//! killed process may leave, is detected and removed.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tailwater_files::PRIVATE_FILE_MODE;

use super::row_difference::{RowDifference, TableFinding};
use tailwater_tables::chunker::ChunkRange;
use tailwater_tables::error::{BulkError, file_error};
use tailwater_tables::journal_file::{encode_line, parse};
use tailwater_tables::schema::TableName;

/// The version of the file format.
const FORMAT: u32 = 1;

/// How the first line of the file begins.
const BEGINNING: &[u8] = b"{\"begun\":";

/// The greatest size of a file that is accepted as a state, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// An entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum StateEntry {
    /// The check began. This is always the first line.
    Begun { format: u32, source: String, target: String },
    /// The key range of a chunk was determined. This entry precedes all entries of later chunks.
    Planned { schema: String, table: String, number: u32, range: ChunkRange },
    /// A chunk was compared, with these differences.
    Compared { schema: String, table: String, number: u32, rows: u64, found: Vec<RowDifference> },
    /// A table was compared, or the comparison stopped because of too many differences.
    TableDone { schema: String, table: String, too_many: bool },
    /// All selected tables were compared, except those that a server cannot read. The entry has the findings
    /// about whole tables.
    Finished { findings: Vec<TableFinding> },
}

/// The progress of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TableState {
    /// The last chunk that the chunker has cut from the table.
    pub(super) last: Option<(u32, ChunkRange)>,
    /// Chunks that were cut from the table and are not compared yet.
    pub(super) open: BTreeMap<u32, ChunkRange>,
    /// Number of rows in the compared chunks.
    pub(super) rows: u64,
    /// Number of differences.
    pub(super) differences: u64,
    pub(super) done: bool,
    /// Whether the comparison stopped because of too many differences.
    pub(super) too_many: bool,
}

/// The progress and the results of a check.
#[derive(Debug, Default)]
pub(super) struct CheckState {
    file: Option<(PathBuf, File)>,
    pub(super) tables: HashMap<TableName, TableState>,
    pub(super) differences: Vec<RowDifference>,
    /// The findings about whole tables, after everything is compared.
    pub(super) finished: Option<Vec<TableFinding>>,
}

impl CheckState {
    /// Creates a new state, or opens the state in the file to resume the check. Without a file the state is
    /// lost when the process ends.
    ///
    /// # Errors
    /// [`BulkError::StateFileExists`], [`BulkError::StateMismatch`], [`BulkError::Busy`],
    /// [`BulkError::Damaged`], [`BulkError::File`].
    pub(super) fn open(
        path: Option<&Path>,
        resume: bool,
        source: &str,
        target: &str,
    ) -> Result<Self, BulkError> {
        let Some(path) = path else { return Ok(Self::default()) };
        let mut file = tailwater_files::open_or_create_user_file(path, PRIVATE_FILE_MODE)
            .map_err(file_error("open", path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(BulkError::Busy { path: path.to_owned() }),
            Err(error) => {
                return Err(BulkError::File { action: "lock", path: path.to_owned(), source: error.into() });
            }
        }
        let (entries, good_bytes) = read(&mut file, path)?;
        let mut state = Self::default();
        let is_new = entries.is_empty();
        if !is_new && !resume {
            return Err(BulkError::StateFileExists { path: path.to_owned() });
        }
        state.replay(entries, path, Some((source, target)))?;
        file.set_len(good_bytes as u64).map_err(file_error("cut", path))?;
        file.seek(SeekFrom::End(0)).map_err(file_error("read", path))?;
        state.file = Some((path.to_owned(), file));
        if is_new {
            state.write(&[StateEntry::Begun {
                format: FORMAT,
                source: source.into(),
                target: target.into(),
            }])?;
        }
        Ok(state)
    }

    /// Reads the state that a check wrote to a file.
    ///
    /// # Errors
    /// [`BulkError::StateMismatch`] if the check compared other servers; [`BulkError::Damaged`],
    /// [`BulkError::File`].
    pub(super) fn read(path: &Path, source: &str, target: &str) -> Result<Self, BulkError> {
        let mut file = tailwater_files::open_regular(path).map_err(file_error("open", path))?;
        let (entries, good_bytes) = read(&mut file, path)?;
        let mut torn = Vec::new();
        file.seek(SeekFrom::Start(good_bytes as u64)).map_err(file_error("read", path))?;
        file.read_to_end(&mut torn).map_err(file_error("read", path))?;
        if torn.contains(&b'\n') {
            // A file with a damaged line is refused, because the entries after that line would be ignored.
            let reason = format!("line {} is damaged: run the check again with --resume", entries.len() + 1);
            return Err(BulkError::Damaged { path: path.to_owned(), reason });
        }
        let mut state = Self::default();
        state.replay(entries, path, Some((source, target)))?;
        Ok(state)
    }

    /// Returns the tables whose comparison stopped because of too many differences, in order.
    pub(super) fn given_up(&self) -> Vec<TableFinding> {
        let given_up = self.tables.iter().filter(|(_, table)| table.too_many);
        let mut names: Vec<_> = given_up.map(|(name, _)| name.clone()).collect();
        names.sort();
        names.into_iter().map(TableFinding::TooMany).collect()
    }

    /// Records that the key range of a chunk was determined.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub(super) fn planned(
        &mut self,
        table: &TableName,
        number: u32,
        range: &ChunkRange,
    ) -> Result<(), BulkError> {
        self.record(vec![StateEntry::Planned {
            schema: table.schema.clone(),
            table: table.name.clone(),
            number,
            range: range.clone(),
        }])
    }

    /// Records that a chunk was compared, with its differences.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub(super) fn compared(
        &mut self,
        table: &TableName,
        number: u32,
        rows: u64,
        found: Vec<RowDifference>,
    ) -> Result<(), BulkError> {
        let (schema, name) = (table.schema.clone(), table.name.clone());
        self.record(vec![StateEntry::Compared { schema, table: name, number, rows, found }])
    }

    /// Records that a table is finished.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub(super) fn table_done(&mut self, table: &TableName, too_many: bool) -> Result<(), BulkError> {
        self.record(vec![StateEntry::TableDone {
            schema: table.schema.clone(),
            table: table.name.clone(),
            too_many,
        }])
    }

    /// Whether all of these tables were compared. A table that a server could not read counts as not
    /// compared, because a resumed check tries it again.
    pub(super) fn is_finished(&self, is_wanted: impl Fn(&TableName) -> bool) -> bool {
        let is_unread = |finding: &TableFinding| {
            matches!(finding, TableFinding::Unreadable(..)) && is_wanted(finding.table_name())
        };
        self.finished.as_ref().is_some_and(|findings| !findings.iter().any(is_unread))
    }

    /// Records that the check is complete, with the findings about whole tables.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub(super) fn finished(&mut self, findings: &[TableFinding]) -> Result<(), BulkError> {
        self.record(vec![StateEntry::Finished { findings: findings.to_vec() }])
    }

    fn record(&mut self, entries: Vec<StateEntry>) -> Result<(), BulkError> {
        self.write(&entries)?;
        for entry in entries {
            self.absorb(entry);
        }
        Ok(())
    }

    fn write(&mut self, entries: &[StateEntry]) -> Result<(), BulkError> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let lines: String = entries.iter().map(encode_line).collect();
        file.write_all(lines.as_bytes()).map_err(file_error("write", path))
    }

    fn replay(
        &mut self,
        entries: Vec<StateEntry>,
        path: &Path,
        servers: Option<(&str, &str)>,
    ) -> Result<(), BulkError> {
        let mut entries = entries.into_iter();
        let other = |reason: String| BulkError::StateMismatch { path: path.to_owned(), reason };
        match entries.next() {
            None => return Ok(()),
            Some(StateEntry::Begun { format, .. }) if format > FORMAT => {
                return Err(other(format!("format {format}, but this version reads formats up to {FORMAT}")));
            }
            Some(StateEntry::Begun { source, target, .. }) => {
                if servers.is_some_and(|servers| servers != (source.as_str(), target.as_str())) {
                    return Err(other(format!("the check compared {source} with {target}")));
                }
            }
            Some(_) => return Err(other("the first line of the file is not that of a check state".into())),
        }
        for entry in entries {
            let sound = match &entry {
                StateEntry::Planned { range, .. } => range.keys.is_sound(),
                StateEntry::Compared { found, .. } => found.iter().all(RowDifference::is_sound),
                _ => true,
            };
            if !sound {
                let reason = "the file has a key that is not a literal".to_owned();
                return Err(BulkError::Damaged { path: path.to_owned(), reason });
            }
            self.absorb(entry);
        }
        Ok(())
    }

    fn absorb(&mut self, entry: StateEntry) {
        match entry {
            StateEntry::Begun { .. } => {}
            StateEntry::Planned { schema, table, number, range } => {
                self.finished = None;
                let table = self.tables.entry(TableName::new(schema, table)).or_default();
                table.open.insert(number, range.clone());
                table.last = Some((number, range));
            }
            StateEntry::Compared { schema, table, number, rows, found } => {
                let table = self.tables.entry(TableName::new(schema, table)).or_default();
                table.open.remove(&number);
                table.rows += rows;
                table.differences += found.len() as u64;
                self.differences.extend(found);
            }
            StateEntry::TableDone { schema, table, too_many } => {
                let table = self.tables.entry(TableName::new(schema, table)).or_default();
                table.done = true;
                table.too_many = too_many;
            }
            StateEntry::Finished { findings } => self.finished = Some(findings),
        }
    }
}

fn read(file: &mut File, path: &Path) -> Result<(Vec<StateEntry>, usize), BulkError> {
    let damaged = |reason: String| BulkError::Damaged { path: path.to_owned(), reason };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(file_error("read", path))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(damaged(format!("the file is larger than {FILE_BYTES_MAX} bytes")));
    }
    let (entries, good_bytes) = parse(&bytes).map_err(damaged)?;
    // A check that was killed during its first write leaves only the start of a line. A file with any other
    // content is not a check state and must not be overwritten.
    let is_torn = bytes.starts_with(BEGINNING) || BEGINNING.starts_with(&bytes);
    if entries.is_empty() && (bytes.contains(&b'\n') || !is_torn) {
        return Err(damaged("the first line of the file is damaged".to_owned()));
    }
    Ok((entries, good_bytes))
}

#[cfg(test)]
mod tests {
    use super::super::check_result_file::CheckResult;
    use super::super::row_difference::DifferenceKind;
    use super::*;
    use tailwater_tables::chunker::KeyRange;
    use tailwater_tables::chunker::key_range::KeyLiteral;

    fn range(from: i128) -> ChunkRange {
        ChunkRange { partition: None, keys: KeyRange::Integers { from: Some(from), to: Some(from + 9) } }
    }

    fn difference(key: &str) -> RowDifference {
        RowDifference {
            schema: "s".into(),
            table: "t".into(),
            key: vec![KeyLiteral(key.into())],
            what: DifferenceKind::Missing,
            values: None,
        }
    }

    #[test]
    fn the_result_counts_every_finding_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let table = TableName::new("s", "t");
        let result = || CheckResult::read(&path).unwrap();
        assert!(CheckResult::read(&path).is_err());
        std::fs::write(&path, "").unwrap();
        assert!(CheckResult::read(&path).is_err());
        let mut state = CheckState::open(Some(&path), false, "a", "b").unwrap();
        assert_eq!(result(), CheckResult::default());
        state.planned(&table, 0, &range(0)).unwrap();
        state.compared(&table, 0, 5, vec![difference("1"), difference("2")]).unwrap();
        state.table_done(&table, true).unwrap();
        assert_eq!(result(), CheckResult { is_finished: false, differences: 2, rows: 5 });
        let unread = TableFinding::Unreadable(TableName::new("s", "u"), "error".into());
        for _ in 0..2 {
            state.finished(&[unread.clone(), TableFinding::TooMany(table.clone())]).unwrap();
            assert_eq!(result(), CheckResult { is_finished: true, differences: 3, rows: 5 });
        }
        drop(state);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], b"{\"compared\":"].concat()).unwrap();
        assert!(
            result().is_finished,
            "the check is finished, although the file ends with an incomplete line"
        );
        std::fs::write(&path, [&whole[..], b"{}\n"].concat()).unwrap();
        assert!(CheckResult::read(&path).is_err());
    }

    #[test]
    fn a_killed_check_resumes_and_counts_no_chunk_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let table = TableName::new("s", "t");
        let mut state = CheckState::open(Some(&path), false, "a", "b").unwrap();
        state.planned(&table, 0, &range(0)).unwrap();
        state.planned(&table, 1, &range(10)).unwrap();
        state.compared(&table, 1, 5, vec![difference("12")]).unwrap();
        drop(state);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], b"{\"compared\":{\"sch"].concat()).unwrap();
        assert!(matches!(
            CheckState::open(Some(&path), false, "a", "b"),
            Err(BulkError::StateFileExists { .. })
        ));
        assert!(matches!(
            CheckState::open(Some(&path), true, "a", "c"),
            Err(BulkError::StateMismatch { .. })
        ));
        let mut state = CheckState::open(Some(&path), true, "a", "b").unwrap();
        assert!(matches!(CheckState::open(Some(&path), true, "a", "b"), Err(BulkError::Busy { .. })));
        let found = &state.tables[&table];
        assert_eq!(found.last, Some((1, range(10))));
        assert_eq!(found.open.keys().collect::<Vec<_>>(), [&0]);
        assert_eq!((found.rows, found.differences, found.done), (5, 1, false));
        assert_eq!(state.differences, [difference("12")]);
        state.compared(&table, 0, 7, vec![difference("3")]).unwrap();
        state.table_done(&table, false).unwrap();
        let read = || CheckState::read(&path, "a", "b").unwrap();
        assert_eq!(read().differences, [difference("12"), difference("3")]);
        assert_eq!((read().finished, read().given_up()), (None, Vec::new()));
        let findings = [TableFinding::OnlySource(TableName::new("s", "u"))];
        state.finished(&findings).unwrap();
        assert_eq!(read().finished.as_deref(), Some(&findings[..]));
        // The check resumes with one more table than before.
        let other = TableName::new("s", "v");
        state.planned(&other, 0, &range(0)).unwrap();
        state.table_done(&other, true).unwrap();
        assert_eq!((read().finished, read().given_up()), (None, vec![TableFinding::TooMany(other)]));
    }

    #[test]
    fn keys_that_are_not_literals_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut state = CheckState::open(Some(&path), false, "a", "b").unwrap();
        let table = TableName::new("s", "t");
        state.planned(&table, 0, &range(0)).unwrap();
        state.compared(&table, 0, 5, vec![difference("1 OR 1")]).unwrap();
        drop(state);
        assert!(matches!(CheckState::open(Some(&path), true, "a", "b"), Err(BulkError::Damaged { .. })));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("\"s\"", "\"x\"", 1)).unwrap();
        let damaged = CheckState::read(&path, "a", "b").unwrap_err();
        assert!(damaged.to_string().contains("line 2"), "the error does not name line 2: {damaged}");
        for other in ["something else\n", "something else"] {
            std::fs::write(&path, other).unwrap();
            for resume in [false, true] {
                let refused = CheckState::open(Some(&path), resume, "a", "b");
                assert!(
                    matches!(refused, Err(BulkError::Damaged { .. })),
                    "a file that is not a check state was accepted: {other}"
                );
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
        // A process that was killed while it wrote the first line leaves no entry.
        std::fs::write(&path, "{\"begun\":{\"for").unwrap();
        CheckState::open(Some(&path), false, "a", "b").unwrap();
        assert!(CheckState::read(&path, "a", "b").unwrap().tables.is_empty());
    }

    #[test]
    fn a_check_with_an_unreadable_table_is_not_finished() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("state"), folder.path().join("link"));
        drop(CheckState::open(Some(&path), false, "a", "b").unwrap());
        // The user may have moved the file and left a symbolic link.
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut state = CheckState::open(Some(&link), true, "a", "b").unwrap();
        let [read, unread] = ["t", "u"].map(|name| TableName::new("s", name));
        for table in [&read, &unread] {
            state.planned(table, 0, &range(0)).unwrap();
        }
        state.compared(&read, 0, 5, Vec::new()).unwrap();
        state.table_done(&read, false).unwrap();
        state.finished(&[TableFinding::Unreadable(unread.clone(), "on the target: error".into())]).unwrap();
        drop(state);
        let state = CheckState::read(&path, "a", "b").unwrap();
        assert!(!state.is_finished(|_| true) && state.is_finished(|table| *table == read));
        assert_eq!(state.finished.as_ref().map(Vec::len), Some(1));
        // The unreadable table is tried again.
        assert!(!state.tables[&unread].done && state.tables[&unread].open.contains_key(&0));
        let mut state = CheckState::open(Some(&path), true, "a", "b").unwrap();
        state.compared(&unread, 0, 5, Vec::new()).unwrap();
        state.table_done(&unread, false).unwrap();
        state.finished(&[]).unwrap();
        assert!(state.is_finished(|_| true));
    }
}
