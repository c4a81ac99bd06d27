//! Decides in which phase a load starts, and refuses to mix the dump with other data.

use std::collections::HashSet;

use tailwater_session::Connection;
use tracing::info;

use super::dump_contents::TableFiles;
use super::load_phases::LoadRun;
use super::load_progress_table::{EarlierLoad, LoadPhase};
use super::{ddl_script_runner, target_compatibility, target_gtid_state};
use tailwater_tables::error::{BulkError, ResumeHint};

/// In which phase a load starts, and how.
pub(super) struct LoadStart {
    pub(super) phase: LoadPhase,
    /// Whether an earlier load did part of the work.
    pub(super) resumed: bool,
    /// Whether tables may have had rows before the load. A resumed load reads this from the record of the
    /// first load.
    pub(super) merge: bool,
}

impl LoadRun<'_> {
    /// Decides in which phase to start. Refuses to mix the dump with other data.
    ///
    /// # Errors
    /// The errors of [`super::load`] that occur before any change.
    pub(super) async fn begin(
        &self,
        connection: &mut Connection,
        gtid_set: Option<&str>,
    ) -> Result<LoadStart, BulkError> {
        let server = connection.endpoint().to_owned();
        if let Some(table) =
            self.contents.tables.iter().find(|table| table.text.is_some()).filter(|_| self.options.inserts)
        {
            return Err(BulkError::InsertsUnsupported { table: table.name.to_string() });
        }
        let has_data_files = |table: &TableFiles| table.columns.is_some() && !table.chunks.is_empty();
        if !self.options.inserts && (self.rows.is_some() || self.contents.tables.iter().any(has_data_files)) {
            let on = connection.query("SELECT @@GLOBAL.local_infile").await?;
            if on.scalar() == Some("0") {
                return Err(BulkError::LocalInfileOff { server });
            }
        }
        self.record.lock(connection).await?;
        let earlier = self.record.earlier(connection).await?;
        let restart = self.rows.is_some_and(|rows| rows.is_restart());
        let is_continued =
            |earlier: &EarlierLoad| self.options.resume || (restart && earlier.phase < LoadPhase::Done);
        if let Some(EarlierLoad { phase, merged }) = earlier.filter(is_continued)
            && self.created_tables_exist(connection, phase).await?
        {
            if let Some(state) = gtid_set.filter(|_| phase < LoadPhase::Done) {
                target_gtid_state::check(connection, state).await?;
            }
            info!(?phase, "resuming an earlier load of this dump");
            return Ok(LoadStart { phase, resumed: true, merge: merged.unwrap_or(self.options.merge) });
        }
        let names = self.contents.tables.iter().map(|table| &table.name);
        let existing = ddl_script_runner::existing_tables(connection, names).await?;
        if let Some(first) = existing.first() {
            if earlier.is_some_and(|earlier| earlier.phase < LoadPhase::Done) {
                return Err(BulkError::InterruptedLoad { server, hint: ResumeHint::Resume });
            }
            if !self.options.merge {
                return Err(BulkError::TablesExist {
                    server,
                    count: existing.len(),
                    first: first.to_string(),
                });
            }
        }
        if let Some(state) = gtid_set {
            target_gtid_state::check(connection, state).await?;
        }
        // With --merge, existing tables keep their definitions, so they are not checked.
        let existing: HashSet<_> = existing.into_iter().collect();
        target_compatibility::check_engines(connection, self.contents, &existing).await?;
        if self.rows.is_none() {
            target_compatibility::check(connection, self.contents, &existing).await?;
        }
        self.record.begin(connection, self.options.merge).await?;
        Ok(LoadStart { phase: LoadPhase::Tables, resumed: false, merge: self.options.merge })
    }

    /// Returns whether the tables that an earlier load created still exist. If none exists, there is nothing
    /// to resume.
    ///
    /// # Errors
    /// [`BulkError::TablesDropped`] if only some of the tables exist.
    async fn created_tables_exist(
        &self,
        connection: &mut Connection,
        phase: LoadPhase,
    ) -> Result<bool, BulkError> {
        let restart = self.rows.is_some_and(|rows| rows.is_restart());
        if phase == LoadPhase::Tables || restart || self.contents.tables.is_empty() {
            return Ok(true);
        }
        let names = self.contents.tables.iter().map(|table| &table.name);
        let existing: HashSet<_> =
            ddl_script_runner::existing_tables(connection, names.clone()).await?.into_iter().collect();
        if existing.is_empty() {
            return Ok(false);
        }
        let mut missing: Vec<_> = names.filter(|name| !existing.contains(*name)).collect();
        if self.rows.is_some() && phase == LoadPhase::Rows {
            // Only the tables that the earlier copy finished must exist. The copy creates the other tables
            // again.
            let finished = self.record.finished_tables(connection).await?;
            missing.retain(|name| finished.contains(*name));
        }
        match missing.first() {
            None => Ok(true),
            Some(first) => Err(BulkError::TablesDropped {
                server: connection.endpoint().to_owned(),
                count: missing.len(),
                first: first.to_string(),
            }),
        }
    }
}
