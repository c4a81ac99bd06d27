//! Applies the rows of a plan to the model of a server.

use tailwater_apply::batch::{PlannedRow, RowGroup};
use tailwater_wire::binlog_event::RowsKind;

use super::server_model::{KEYLESS, SHAPES, Store, read};

/// The number of the table with three columns and two unique indexes.
pub const PLAIN: usize = 0;
/// The number of the table whose key columns are not adjacent.
pub const WIDE_KEY: usize = 1;

impl Store {
    fn find(&self, table: usize, image: &[(usize, Option<i32>)]) -> Result<usize, String> {
        self.tables[table]
            .iter()
            .position(|row| image.iter().all(|(column, value)| row[*column] == *value))
            .ok_or_else(|| format!("table t{table} has no row with the values {image:?}"))
    }

    /// Applies a row as a server does. If the row must be rejected, returns the reason.
    pub fn apply(&mut self, group: &RowGroup<'_>, row: &PlannedRow<'_>) -> Result<(), String> {
        let table =
            SHAPES.iter().enumerate().position(|(index, _)| group.table.target.table == format!("t{index}"));
        let table = table.ok_or("the model has no table with the name of the group's table")?;
        let bytes = row.image.to_bytes();
        let (first, rest) = read(&group.columns_present, &bytes);
        if !rest.is_empty() {
            return Err(format!("{} bytes follow the row image", rest.len()));
        }
        let rows = &mut self.tables[table];
        match group.kind {
            RowsKind::Write => {
                let mut cells = vec![None; SHAPES[table].columns];
                first.iter().for_each(|(column, value)| cells[*column] = *value);
                rows.push(cells);
            }
            RowsKind::Delete => {
                let found = self.find(table, &first)?;
                self.tables[table].remove(found);
            }
            RowsKind::Update | RowsKind::PartialUpdate => {
                let bytes = row.after.to_bytes();
                let (after, rest) = read(&group.columns_present_after, &bytes);
                if !rest.is_empty() {
                    return Err(format!("{} bytes follow the row image", rest.len()));
                }
                let found = self.find(table, &first)?;
                after.iter().for_each(|(column, value)| self.tables[table][found][*column] = *value);
            }
        }
        self.check()
    }

    /// For an update or delete event of a table without a primary key: fails if one of the before images is
    /// not in the table before the event. Servers look up all rows of such an event at once.
    pub fn look_up(&self, group: &RowGroup<'_>) -> Result<(), String> {
        if group.kind == RowsKind::Write || group.table.target.table != format!("t{KEYLESS}") {
            return Ok(());
        }
        let mut rest = self.clone();
        for row in &group.rows {
            let bytes = row.image.to_bytes();
            let found = rest.find(KEYLESS, &read(&group.columns_present, &bytes).0)?;
            rest.tables[KEYLESS].remove(found);
        }
        Ok(())
    }
}
