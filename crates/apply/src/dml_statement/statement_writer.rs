//! Writes the SQL statements for a group of rows.

use std::borrow::Cow;

use tailwater_wire::binlog_event::{RowsEvent, RowsKind};
use tailwater_wire::event_printer::PrintError;
use tailwater_wire::row_event::{ColumnType, Image, TableMap};
use tailwater_wire::{Flavour, WireError};

use super::literal_writer::{LiteralRole, put_literal};
use super::row_image_bytes::RowImageBytes;
use super::source_to_target_columns::{ColumnTarget, SqlMapping};
use super::sql_text_with_long_values::SqlText;
use super::system_versioned_table::{GeneratedHistory, SqlPart};
use super::{LAX, LongSqlStatement, STRICT, SqlStatement};
use crate::batch::{PlannedRow, RowGroup};
use crate::binlog_statement::BinlogStatementOptions;
use crate::error::ApplyError;

/// The event flags that show which session settings the source had changed.
const SESSION_FLAGS: u16 = RowsEvent::FLAG_NO_FOREIGN_KEY_CHECKS
    | RowsEvent::FLAG_RELAXED_UNIQUE_CHECKS
    | RowsEvent::FLAG_NO_CHECK_CONSTRAINT_CHECKS;

/// The maximum number of rows that one statement looks up. If a statement looks up more rows, the servers'
/// optimizers choose to read the whole table.
const SOUGHT_ROWS_MAX: u64 = 500;

/// Writes groups of rows as SQL for one session, which has executed [`super::session_statement`].
#[derive(Debug)]
pub struct SqlWriter {
    flavour: Flavour,
    options: BinlogStatementOptions,
    /// The session settings after all statements that were written so far have run.
    flags: u16,
    lax: bool,
    /// Whether some of the statements that were written so far change session settings.
    has_set: bool,
    tolerant: bool,
    generated: GeneratedHistory,
}

/// The parts that all statements of a group have in common.
#[derive(Debug)]
struct StatementForm {
    /// The text of a statement before the first row.
    head: Vec<u8>,
    /// The separator between rows; `None` if each row needs its own statement.
    separator: Option<&'static str>,
    /// The text of a statement after the last row.
    tail: &'static str,
    rows_max: u64,
    /// The key columns that find a row, if there is a key.
    key: Option<Vec<usize>>,
}

impl SqlWriter {
    /// Returns a writer for a session on a target of this flavour.
    pub fn new(flavour: Flavour, options: BinlogStatementOptions) -> Self {
        Self {
            flavour,
            options,
            flags: 0,
            lax: false,
            has_set: false,
            tolerant: false,
            generated: GeneratedHistory::default(),
        }
    }

    /// With `tolerant`, makes the writer replace existing rows and accept missing rows.
    #[must_use]
    pub fn tolerant(self, tolerant: bool) -> Self {
        Self { tolerant, ..self }
    }

    /// Returns whether the writer has written a statement that changes session settings. If not all of its
    /// statements were executed, the session settings are unknown. Then use a new writer and a new session.
    pub fn has_set(&self) -> bool {
        self.has_set
    }

    /// Splits a group into parts, each of which needs its own kind of statement. `mapping` is the mapping of
    /// the group's table.
    ///
    /// # Errors
    /// As [`SqlWriter::statements`].
    pub fn parts<'g, 'a>(
        &mut self,
        group: &'g RowGroup<'a>,
        mapping: &'g SqlMapping,
    ) -> Result<Vec<SqlPart<'g, 'a>>, ApplyError> {
        match &mapping.period {
            None => Ok(vec![SqlPart::Rows { group: Cow::Borrowed(group), mapping, prefix: String::new() }]),
            Some(period) => {
                self.generated.parts(group, mapping, period).map_err(|error| not_exact(mapping, error))
            }
        }
    }

    /// Forgets which history rows the statements that were written so far create. Call this when a
    /// transaction starts, because its history rows do not come from the statements of earlier transactions.
    pub fn forget_history(&mut self) {
        self.generated.clear();
    }

    /// Appends the statements for a group. `mapping` is the mapping of the group's table.
    ///
    /// # Errors
    /// [`ApplyError::NotExact`] for a value that is malformed or has no exact SQL form;
    /// [`ApplyError::TooLarge`] if a row does not fit into a packet of the target.
    pub fn statements(
        &mut self,
        group: &RowGroup<'_>,
        mapping: &SqlMapping,
        out: &mut Vec<SqlStatement>,
    ) -> Result<(), ApplyError> {
        self.set_checks(group.flags & SESSION_FLAGS, out);
        for part in self.parts(group, mapping)? {
            match part {
                SqlPart::Rows { group, mapping, prefix } => {
                    self.part_statements(&group, mapping, &prefix, out)?;
                }
                SqlPart::Statement(text) => out.push(SqlStatement { text, rows: None }),
            }
        }
        Ok(())
    }

    fn part_statements(
        &mut self,
        group: &RowGroup<'_>,
        mapping: &SqlMapping,
        prefix: &str,
        out: &mut Vec<SqlStatement>,
    ) -> Result<(), ApplyError> {
        let form = StatementForm::of(group, mapping, prefix, self.tolerant);
        let (mut text, mut rows, mut text_lax) = (Vec::new(), 0, false);
        let mut row_text = Vec::new();
        for row in &group.rows {
            let images = RowImageBytes::of(row);
            row_text.clear();
            // Append the first row to the start of the statement, so that a long row is not copied there
            // later.
            let head_bytes = if rows == 0 { form.head.len() } else { 0 };
            if rows == 0 && group.kind != RowsKind::Delete {
                row_text.reserve(head_bytes + text_bytes(row));
            }
            row_text.extend_from_slice(form.head.get(..head_bytes).unwrap_or_default());
            let mut text_of_row = SqlText::after(std::mem::take(&mut row_text));
            let lax = form.put_row(&mut text_of_row, group, mapping, &images)?;
            row_text = text_of_row.bytes;
            // The UPDATE has no column to set, because the target computes all changed columns.
            if row_text.len() == head_bytes {
                continue;
            }
            if rows == 0 {
                text = std::mem::take(&mut row_text);
                (rows, text_lax) = (1, lax);
                continue;
            }
            let length = text.len() + row_text.len() + form.tail.len() + 4;
            let full = rows >= form.rows_max || length > self.options.statement_bytes_max || lax != text_lax;
            if full {
                self.close(&form, std::mem::take(&mut text), rows, text_lax, mapping, out)?;
                rows = 0;
            }
            match form.separator {
                Some(separator) if rows > 0 => text.extend_from_slice(separator.as_bytes()),
                _ => text.extend_from_slice(&form.head),
            }
            text.extend_from_slice(&row_text);
            text_lax = lax;
            rows += 1;
        }
        if rows > 0 {
            self.close(&form, text, rows, text_lax, mapping, out)?;
        }
        Ok(())
    }

    fn close(
        &mut self,
        form: &StatementForm,
        mut text: Vec<u8>,
        rows: u64,
        lax: bool,
        mapping: &SqlMapping,
        out: &mut Vec<SqlStatement>,
    ) -> Result<(), ApplyError> {
        text.extend_from_slice(form.tail.as_bytes());
        self.prepare(text.len(), lax, mapping, out)?;
        out.push(SqlStatement { text, rows: (!self.tolerant).then_some(rows) });
        Ok(())
    }

    /// Returns the statement for one row of a [part](Self::parts), without copying long values; `None` if the
    /// row needs no statement. Appends to `out` the statements that must run before it.
    ///
    /// # Errors
    /// As [`SqlWriter::statements`].
    pub fn long_statement<'v>(
        &mut self,
        group: &'v RowGroup<'_>,
        mapping: &'v SqlMapping,
        prefix: &str,
        images: &'v RowImageBytes<'_>,
        out: &mut Vec<SqlStatement>,
    ) -> Result<Option<LongSqlStatement<'v>>, ApplyError> {
        self.set_checks(group.flags & SESSION_FLAGS, out);
        let form = StatementForm::of(group, mapping, prefix, self.tolerant);
        let mut text = SqlText::keeping();
        text.put(&form.head);
        let lax = form.put_row(&mut text, group, mapping, images)?;
        if text.len() == form.head.len() {
            return Ok(None);
        }
        text.put(form.tail);
        self.prepare(text.len(), lax, mapping, out)?;
        Ok(Some(LongSqlStatement { text, rows: (!self.tolerant).then_some(1) }))
    }

    /// Appends the settings that a statement of this length needs.
    fn prepare(
        &mut self,
        bytes: usize,
        lax: bool,
        mapping: &SqlMapping,
        out: &mut Vec<SqlStatement>,
    ) -> Result<(), ApplyError> {
        // The packet contains one more byte: the command.
        if bytes >= self.options.packet_bytes_max {
            return Err(ApplyError::TooLarge {
                gtid: String::new(),
                table: mapping.quoted.clone(),
                bytes,
                bytes_max: self.options.packet_bytes_max,
            });
        }
        if lax != self.lax {
            (self.lax, self.has_set) = (lax, true);
            let mode = if lax { LAX } else { STRICT };
            out.push(SqlStatement {
                text: format!("SET @@session.sql_mode='{mode}'").into_bytes(),
                rows: None,
            });
        }
        Ok(())
    }

    fn set_checks(&mut self, flags: u16, out: &mut Vec<SqlStatement>) {
        if flags == self.flags {
            return;
        }
        (self.flags, self.has_set) = (flags, true);
        let on = |flag: u16| u8::from(flags & flag == 0);
        let mut text = format!(
            "SET @@session.foreign_key_checks={}, @@session.unique_checks={}",
            on(RowsEvent::FLAG_NO_FOREIGN_KEY_CHECKS),
            on(RowsEvent::FLAG_RELAXED_UNIQUE_CHECKS)
        );
        if self.flavour == Flavour::MariaDb {
            let checks = on(RowsEvent::FLAG_NO_CHECK_CONSTRAINT_CHECKS);
            text.push_str(&format!(", @@session.check_constraint_checks={checks}"));
        }
        out.push(SqlStatement { text: text.into_bytes(), rows: None });
    }
}

impl StatementForm {
    fn of(group: &RowGroup<'_>, mapping: &SqlMapping, prefix: &str, tolerant: bool) -> Self {
        let table = &mapping.quoted;
        let has = |column: &usize| has(&group.columns_present, *column);
        let key = mapping.keys.iter().find(|key| key.iter().all(has)).cloned();
        let (head, separator, tail, rows_max) = match (group.kind, &key) {
            (RowsKind::Write, _) => {
                let given = |(index, place): (usize, &'_ Option<ColumnTarget>)| {
                    place.as_ref().filter(|_| has(&index)).map(|place| place.quoted.clone())
                };
                let columns: Vec<_> = mapping.places.iter().enumerate().filter_map(given).collect();
                let verb = match (tolerant, mapping.writes_period) {
                    (false, _) => "INSERT",
                    (true, false) => "REPLACE",
                    // REPLACE cannot set the period of a row.
                    (true, true) => "INSERT IGNORE",
                };
                let head = format!("{verb} INTO {table} ({}) VALUES ", columns.join(","));
                (head, Some(","), "", u64::MAX)
            }
            (RowsKind::Delete, Some(key)) => match key.as_slice() {
                [column] => {
                    let quoted = mapping.places.get(*column).and_then(Option::as_ref);
                    let quoted = quoted.map_or("", |place| place.quoted.as_str());
                    (format!("DELETE FROM {table} WHERE {quoted} IN ("), Some(","), ")", SOUGHT_ROWS_MAX)
                }
                // MariaDB uses no index for `(a,b) IN ((1,2))`.
                _ => (format!("DELETE FROM {table} WHERE "), Some(" OR "), "", SOUGHT_ROWS_MAX),
            },
            (RowsKind::Delete, None) => (format!("DELETE FROM {table} WHERE "), None, " LIMIT 1", 1),
            (_, Some(_)) => (format!("UPDATE {table} SET "), None, "", 1),
            (_, None) => (format!("UPDATE {table} SET "), None, " LIMIT 1", 1),
        };
        let head = format!("{prefix}{head}").into_bytes();
        Self { head, separator, tail, rows_max, key }
    }

    /// Appends the text for a row. Returns whether a strict server would reject the row.
    fn put_row<'v>(
        &self,
        text: &mut SqlText<'v>,
        group: &'v RowGroup<'_>,
        mapping: &'v SqlMapping,
        images: &'v RowImageBytes<'_>,
    ) -> Result<bool, ApplyError> {
        self.try_put_row(text, group, mapping, images).map_err(|error| not_exact(mapping, error))
    }

    fn try_put_row<'v>(
        &self,
        text: &mut SqlText<'v>,
        group: &'v RowGroup<'_>,
        mapping: &'v SqlMapping,
        images: &'v RowImageBytes<'_>,
    ) -> Result<bool, PrintError> {
        let map = &mapping.map;
        let image = Image::parse(map, &group.columns_present, false, &images.image)?;
        match group.kind {
            RowsKind::Write => {
                text.put("(");
                let lax = put_columns(text, mapping, &image, None, false)?;
                text.put(")");
                Ok(lax)
            }
            RowsKind::Update | RowsKind::PartialUpdate => {
                let partial = group.kind == RowsKind::PartialUpdate;
                let after = Image::parse(map, &group.columns_present_after, partial, &images.after)?;
                let start = text.len();
                let lax = put_columns(text, mapping, &after, Some(&image), true)?;
                if text.len() > start {
                    text.put(" WHERE ");
                    self.put_condition(text, mapping, &image)?;
                }
                Ok(lax)
            }
            RowsKind::Delete => match self.key.as_deref() {
                Some([column]) => {
                    let cell = image.cell(*column)?.ok_or_else(|| no_key(map))?;
                    let place = mapping.places.get(*column).and_then(Option::as_ref);
                    let place = place.ok_or_else(|| no_key(map))?;
                    put_literal(text, map, place, &cell, None, LiteralRole::Key)?;
                    Ok(false)
                }
                Some(_) => {
                    text.put("(");
                    self.put_condition(text, mapping, &image)?;
                    text.put(")");
                    Ok(false)
                }
                None => {
                    self.put_condition(text, mapping, &image)?;
                    Ok(false)
                }
            },
        }
    }

    /// Appends the condition that finds a row: `a=1 AND b=2` with a key, or `a<=>1 AND b<=>NULL` with all
    /// columns.
    fn put_condition<'v>(
        &self,
        text: &mut SqlText<'v>,
        mapping: &SqlMapping,
        before: &Image<'v>,
    ) -> Result<(), PrintError> {
        let mut first = true;
        for cell in before.cells() {
            let cell = cell?;
            let Some(place) = mapping.places.get(cell.index).and_then(Option::as_ref) else { continue };
            if self.key.as_ref().is_some_and(|key| !key.contains(&cell.index)) {
                continue;
            }
            if !std::mem::take(&mut first) {
                text.put(" AND ");
            }
            let (operator, literal) = match self.key {
                Some(_) => ("=", LiteralRole::Key),
                None => ("<=>", LiteralRole::Compared),
            };
            match mapping.map.columns.get(cell.index).map(|column| column.column_type) {
                // MySQL cannot compare vectors, so the statement compares their bytes.
                Some(ColumnType::Vector { .. }) => {
                    text.put(format!("CAST({} AS BINARY)", place.quoted));
                }
                _ => text.put(&place.quoted),
            }
            text.put(operator);
            put_literal(text, &mapping.map, place, &cell, None, literal)?;
        }
        if first {
            return Err(no_key(&mapping.map).into());
        }
        // If several rows of a versioned table are equal, prefer the row with the same period.
        if let (None, Some(period)) = (&self.key, &mapping.period)
            && let Some(cell) = before.cell(period.start)?
            && let Some(place) = period.history.places.get(period.start).and_then(Option::as_ref)
        {
            text.put(format!(" ORDER BY {}<=>", place.quoted));
            put_literal(text, &mapping.map, place, &cell, None, LiteralRole::Compared)?;
            text.put(" DESC");
        }
        Ok(())
    }
}

/// Appends the columns of an image that can be written, as `1,'x'`, or with `named` as `a=1,b='x'`. Returns
/// whether a strict server would reject one of the values.
fn put_columns<'v>(
    text: &mut SqlText<'v>,
    mapping: &SqlMapping,
    image: &Image<'v>,
    before: Option<&Image<'_>>,
    named: bool,
) -> Result<bool, PrintError> {
    let start = text.len();
    let mut lax = false;
    for cell in image.cells() {
        let cell = cell?;
        let Some(place) = mapping.places.get(cell.index).and_then(Option::as_ref) else { continue };
        if text.len() > start {
            text.put(",");
        }
        if named {
            text.put(&place.quoted);
            text.put("=");
        }
        lax |= put_literal(text, &mapping.map, place, &cell, before, LiteralRole::Assigned)?;
    }
    Ok(lax)
}

fn not_exact(mapping: &SqlMapping, error: PrintError) -> ApplyError {
    ApplyError::NotExact { gtid: String::new(), table: mapping.quoted.clone(), error: Box::new(error) }
}

fn no_key(map: &TableMap) -> WireError {
    WireError::malformed(
        "row image",
        format!(
            "{}.{}: the row image has no column by which the target could find the row",
            map.schema, map.table
        ),
    )
}

/// Returns the estimated length of the text of a row's new values, in bytes: two hexadecimal digits per byte,
/// and the text around them. If this length is not reserved in advance, a text that grows may be in memory
/// twice.
fn text_bytes(row: &PlannedRow<'_>) -> usize {
    let image = if row.after.bytes() == 0 { row.image } else { row.after };
    image.bytes() * 2 + 256
}

fn has(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 != 0)
}
