//! The target's tables, and the filters that choose the target table of each source table. The decoder looks
//! up tables here.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tailwater_log::{LogEntry, LogPosition};
use tailwater_session::Connection;
use tailwater_wire::binlog_event::RowsKind;
use tracing::warn;

use crate::channel::channel_options::OldTemporalPrecision;
use crate::channel::shared_channel_state::ChannelShared;
use crate::channel::statement_filter::{MARKS_TABLE, OWN_SCHEMA};
use crate::error::ApplyError;
use crate::replication_filter::{FilterError, FilterRoute, Filters, Operation, Router, VersionedFilters};
use crate::table_definition_cache::Catalogue;
use crate::target_table::TargetTable;
use crate::transaction_decoder::{OldTimeDigits, TableLookup};

/// The target's tables that were loaded so far, and the filters in use.
pub(super) struct TargetTables {
    catalogue: Catalogue,
    connection: Connection,
    versions: VersionedFilters,
    router: Router,
    shared: Arc<ChannelShared>,
    /// The position at which the next version of the filters takes effect.
    next_filters: Option<LogPosition>,
    /// Whether the target lacks the table `check_marks`, into which `tailwater check` writes rows on the
    /// source. The channel then does not apply these rows.
    lacks_check_marks: bool,
    /// The fractional digits of temporal columns in the layout from before MySQL 5.6, by database and table
    /// on the source. The digits of a table are kept until a DDL statement names the table.
    sources: FxHashMap<(String, String), OldTimeDigits>,
}

impl TargetTables {
    /// Selects the filters for a transaction whose log span starts at `low`. Does not load any tables yet.
    ///
    /// # Errors
    /// [`ApplyError::Filter`].
    pub(super) fn new(
        connection: Connection,
        versions: VersionedFilters,
        low: LogPosition,
        shared: Arc<ChannelShared>,
    ) -> Result<Self, ApplyError> {
        let router = Router::new(versions.at(low).filters.compile()?);
        let next_filters = versions.next_change(low);
        let catalogue = Catalogue::new(connection.server().flavour);
        Ok(Self {
            catalogue,
            connection,
            versions,
            router,
            shared,
            next_filters,
            lacks_check_marks: false,
            sources: FxHashMap::default(),
        })
    }

    /// Returns the filters in use.
    pub(super) fn filters(&self) -> &Filters {
        self.router.filters()
    }

    /// Selects the filters for a transaction whose log span starts at `position`. Returns true if the filters
    /// have changed.
    ///
    /// # Errors
    /// [`ApplyError::Filter`].
    pub(super) fn select_filters(&mut self, position: LogPosition) -> Result<bool, ApplyError> {
        if self.next_filters.is_some_and(|next| next <= position) {
            self.router = Router::new(self.versions.at(position).filters.compile()?);
            self.next_filters = self.versions.next_change(position);
            return Ok(true);
        }
        Ok(false)
    }

    /// Loads the definition of a target table that the log entry `entry` needs.
    ///
    /// # Errors
    /// [`ApplyError::MissingTable`]; [`ApplyError::Session`].
    pub(super) async fn load(
        &mut self,
        entry: &LogEntry,
        schema: &str,
        table: &str,
    ) -> Result<(), ApplyError> {
        match self.catalogue.load(&mut self.connection, schema, table).await? {
            Some(table) => {
                self.warn_nontransactional(&table);
                Ok(())
            }
            // The table `check_marks` contains only rows of `tailwater check` and no user data. So the
            // channel need not stop if the target lacks this table.
            None if is_check_mark(schema, table) && !self.lacks_check_marks => {
                self.lacks_check_marks = true;
                Ok(())
            }
            None => Err(ApplyError::MissingTable {
                gtid: entry.gtid.as_ref().map_or_else(String::new, ToString::to_string),
                table: format!("{schema}.{table}"),
            }),
        }
    }

    /// Returns the definition of a table of the target; `None` if the target has no such table.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn find(
        &mut self,
        schema: &str,
        table: &str,
    ) -> Result<Option<Arc<TargetTable>>, ApplyError> {
        let found = self.catalogue.load(&mut self.connection, schema, table).await?;
        if let Some(table) = &found {
            self.warn_nontransactional(table);
        }
        Ok(found)
    }

    /// Stores the fractional digits of the temporal columns of a table on the source.
    pub(super) fn keep_source(&mut self, schema: &str, table: &str, digits: OldTimeDigits) {
        self.sources.insert((schema.to_owned(), table.to_owned()), digits);
    }

    /// Returns whether the target gets every DDL statement of the source: no filter applies, now or later.
    pub(super) fn applies_all_definitions(&self) -> bool {
        self.next_filters.is_none() && self.router.filters().is_empty()
    }

    /// Returns whether the fractional digits of any source table are stored.
    pub(super) fn knows_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Removes the stored fractional digits of the tables for which `is_defined` returns true. Returns
    /// whether it removed the digits of any table.
    pub(super) fn forget_sources(&mut self, is_defined: impl Fn(&str, &str) -> bool) -> bool {
        let before = self.sources.len();
        self.sources.retain(|(schema, table), _| !is_defined(schema, table));
        self.sources.len() < before
    }

    /// Warns once for each nontransactional table: its rows and the channel's progress cannot commit in one
    /// transaction.
    fn warn_nontransactional(&self, table: &TargetTable) {
        if table.transactional {
            return;
        }
        let name = format!("{}.{}", table.schema, table.table);
        if self.shared.nontransactional().insert(name.clone()) {
            warn!(
                channel = self.shared.options.name,
                "{name} on the target is not transactional: if the target or the channel is interrupted, rows may be \
                 inserted or changed twice; run ALTER TABLE ... ENGINE=InnoDB on the target"
            );
        }
    }

    /// Removes all table definitions: a DDL statement may have changed any of them.
    pub(super) fn forget(&mut self) {
        self.catalogue.forget_all();
        self.lacks_check_marks = false;
    }
}

impl TableLookup for TargetTables {
    fn route(&mut self, schema: &str, table: &str, kind: RowsKind) -> Result<FilterRoute, FilterError> {
        // The schema `tailwater` contains the state of channels that write to the source. This state is not
        // applied to the target. The rows of `tailwater check` in the table `check_marks` are applied
        // whatever the filters are, unless the target lacks this table.
        if schema.eq_ignore_ascii_case(OWN_SCHEMA) {
            let is_kept = is_check_mark(schema, table) && !self.lacks_check_marks;
            return Ok(if is_kept { FilterRoute::Keep } else { FilterRoute::Drop });
        }
        let operation = match kind {
            RowsKind::Write => Operation::Insert,
            RowsKind::Update | RowsKind::PartialUpdate => Operation::Update,
            RowsKind::Delete => Operation::Delete,
        };
        Ok(self.router.table(schema, table)?.route(operation))
    }

    fn target(&self, schema: &str, table: &str) -> Option<Arc<TargetTable>> {
        self.catalogue.get(schema, table)
    }

    fn old_time_digits(&self, schema: &str, table: &str) -> OldTimeDigits {
        if self.shared.options.old_temporal_precision == OldTemporalPrecision::Target {
            return OldTimeDigits::Target;
        }
        let known = self.sources.get(&(schema.to_owned(), table.to_owned()));
        known.cloned().unwrap_or(OldTimeDigits::Unknown)
    }
}

fn is_check_mark(schema: &str, table: &str) -> bool {
    schema.eq_ignore_ascii_case(OWN_SCHEMA) && table.eq_ignore_ascii_case(MARKS_TABLE)
}
