//! Creates the objects of a dump. Databases, sequences and tables come before the rows; views, routines,
//! triggers and events come after them.

use std::collections::HashSet;

use tailwater_session::Connection;

use super::dump_contents::{DefinitionScript, DumpContents, TableFiles};
use super::load_phases::LoadRun;
use super::{ddl_script_runner, deferred_indexes, target_session};
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::index_definitions::DOCUMENT_ID;

impl LoadRun<'_> {
    /// Creates databases, sequences and tables, and drops the indexes that will be created after the rows.
    ///
    /// # Errors
    /// The same as for [`super::load`].
    pub(super) async fn create_tables(
        &self,
        connection: &mut Connection,
        skip_existing: bool,
        merge: bool,
    ) -> Result<(), BulkError> {
        let DumpContents { schemas, sequences, tables, .. } = self.contents;
        for definition in schemas.iter().chain(sequences) {
            self.create(connection, definition, skip_existing).await?;
        }
        let existing: HashSet<_> = match merge {
            true => {
                let names = tables.iter().map(|table| &table.name);
                ddl_script_runner::existing_tables(connection, names).await?.into_iter().collect()
            }
            false => HashSet::new(),
        };
        for TableFiles { name, definition, .. } in tables {
            match existing.contains(name) {
                true => self.rerun_definition(connection, definition).await?,
                false => self.create(connection, definition, skip_existing).await?,
            }
        }
        target_session::set_up(connection, self.options).await?;
        self.drop_deferred_indexes(connection, merge).await
    }

    /// Drops the indexes that will be created after the rows.
    async fn drop_deferred_indexes(&self, connection: &mut Connection, merge: bool) -> Result<(), BulkError> {
        let finished = match self.rows {
            Some(_) => self.record.finished_tables(connection).await?,
            None => HashSet::new(),
        };
        let is_deferrable = |table: &&TableFiles| !merge && !finished.contains(&table.name);
        for table in self.contents.tables.iter().filter(is_deferrable) {
            let wanted = match self.rows {
                None => self.options.defer_indexes.wants_table(table),
                Some(rows) => {
                    self.options.defer_indexes.wants(Some(rows.rows_estimate(&table.name).await), 0)
                }
            };
            let has_document_id = |columns: &Vec<String>| columns.iter().any(|name| name == DOCUMENT_ID);
            // `columns` is `None` if only the data files name the columns.
            if wanted || table.columns.as_ref().is_none_or(has_document_id) {
                deferred_indexes::drop_deferred(connection, &self.record, &table.name, wanted).await?;
            }
        }
        Ok(())
    }

    /// Creates one object.
    ///
    /// # Errors
    /// The same as for [`super::ddl_script_runner::create`].
    pub(super) async fn create(
        &self,
        connection: &mut Connection,
        definition: &DefinitionScript,
        skip_existing: bool,
    ) -> Result<(), BulkError> {
        let files = self.contents.files.as_ref();
        ddl_script_runner::create(connection, files, definition, skip_existing, self.options.events_disabled)
            .await
    }

    /// Runs the definition script of a table that exists already, because the script may have other
    /// statements than CREATE TABLE.
    async fn rerun_definition(
        &self,
        connection: &mut Connection,
        definition: &DefinitionScript,
    ) -> Result<(), BulkError> {
        let files = self.contents.files.as_ref();
        let disabled = self.options.events_disabled;
        ddl_script_runner::run_script_ignoring(
            connection,
            files,
            definition,
            &ddl_script_runner::TABLE_EXISTS_ERRORS,
            disabled,
        )
        .await
    }

    /// Creates views, routines, triggers and events. If an object requires another object that does not exist
    /// yet, the load first creates the remaining objects. Then it tries again.
    ///
    /// # Errors
    /// The same as for [`super::load`].
    pub(super) async fn create_objects(
        &self,
        connection: &mut Connection,
        skip_existing: bool,
    ) -> Result<(), BulkError> {
        let mut waiting: Vec<_> = self.contents.objects.iter().collect();
        while !waiting.is_empty() {
            let mut refused = Vec::new();
            let mut first = None;
            for definition in &waiting {
                match self.create(connection, definition, skip_existing).await {
                    Ok(()) => {}
                    Err(error) if needs_another(&error) => {
                        refused.push(*definition);
                        first.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            match first {
                Some(error) if refused.len() == waiting.len() => return Err(error),
                _ => waiting = refused,
            }
        }
        target_session::set_up(connection, self.options).await
    }
}

/// Returns whether a definition was rejected because of a missing table, view or routine, which may be
/// created later.
fn needs_another(error: &BulkError) -> bool {
    matches!(error, BulkError::DefinitionRejected { error, .. } if matches!(error.number, 1146 | 1356 | 1305))
}
