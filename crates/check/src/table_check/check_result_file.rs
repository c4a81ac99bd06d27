//! Reads the results of a check from its state file, in bounded memory, for monitoring.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::check_progress_file::StateEntry;
use super::row_difference::TableFinding;
use tailwater_tables::error::{BulkError, file_error};
use tailwater_tables::journal_file::decode_line;

/// The greatest length of a line, in bytes. A line has at most the differences of one chunk.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// What a check has found so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckResult {
    /// Whether the check has compared everything that was selected.
    pub is_finished: bool,
    /// The number of differing rows plus the number of findings about whole tables.
    pub differences: u64,
    /// The number of compared rows.
    pub rows: u64,
}

impl CheckResult {
    /// Reads the state file of a check, which may be running. A line that is not complete yet is ignored.
    ///
    /// # Errors
    /// [`BulkError::File`]; [`BulkError::Damaged`] if the file is not the state of a check.
    pub fn read(path: &Path) -> Result<Self, BulkError> {
        let file = tailwater_files::open_regular(path).map_err(file_error("open", path))?;
        let damaged = |reason: String| BulkError::Damaged { path: path.to_owned(), reason };
        let mut lines = BufReader::new(file);
        let (mut result, mut whole_tables, mut number) = (Self::default(), 0, 0_u64);
        while let Some(line) = next_line(&mut lines).map_err(file_error("read", path))? {
            number += 1;
            let entry = str::from_utf8(&line).ok().and_then(decode_line::<StateEntry>);
            let entry = entry.ok_or_else(|| damaged(format!("line {number} is damaged")))?;
            let entry = entry.map_err(|error| damaged(format!("line {number}: {error}")))?;
            whole_tables = result.add(entry, whole_tables);
        }
        result.differences = result.differences.saturating_add(whole_tables);
        if number == 0 {
            return Err(damaged("the file has no complete line".to_owned()));
        }
        Ok(result)
    }

    /// Adds an entry. Returns the number of findings about whole tables, which was `whole_tables` before.
    fn add(&mut self, entry: StateEntry, whole_tables: u64) -> u64 {
        match entry {
            StateEntry::Begun { .. } => {}
            StateEntry::Planned { .. } => self.is_finished = false,
            StateEntry::Compared { rows, found, .. } => {
                self.rows = self.rows.saturating_add(rows);
                self.differences = self.differences.saturating_add(found.len() as u64);
            }
            // Earlier entries already have the table's differences. This entry only records the end of its
            // comparison.
            StateEntry::TableDone { .. } => {}
            // A check that resumed after its end repeats the findings.
            StateEntry::Finished { findings } => {
                self.is_finished = true;
                let is_new = |finding: &&TableFinding| !matches!(finding, TableFinding::TooMany(_));
                return findings.iter().filter(is_new).count() as u64;
            }
        }
        whole_tables
    }
}

/// Returns the next complete line, without its end.
fn next_line(lines: &mut BufReader<File>) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    lines.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    match line.pop() {
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() as u64 >= LINE_BYTES_MAX - 1 => Err(std::io::ErrorKind::FileTooLarge.into()),
        _ => Ok(None),
    }
}
