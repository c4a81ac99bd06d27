//! Finds the number of fractional digits that columns with the old temporal layout had when their rows were
//! logged. The table definition on the source shows the current number. The log shows whether a later DDL
//! statement may have changed that number.

use std::sync::Arc;
use std::time::Duration;

use tailwater_log::{EntryFlags, LogEntry};
use tailwater_wire::gtid::{Gtid, MariadbPosition};
use tokio::time::Instant;
use tracing::info;

use super::ChannelReader;
use super::ddl_effect_on_fractional_seconds::{DigitEffect, LoggedDefinition};
use super::ddl_scan::{DefinitionScan, definitions_of};
use crate::error::ApplyError;
use crate::source_table_columns::SourceTable;
use crate::transaction_decoder::{DeclaredColumns, OldTimeDigits};

/// How long the source may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long the relay may take to capture the source's binlog up to the position that the source returned
/// together with a table definition.
const CAPTURE_MAX: Duration = Duration::from_secs(10);
/// How often the reader checks whether the relay has captured the source's binlog up to the position that the
/// source returned.
const CAPTURE_POLL: Duration = Duration::from_millis(5);
impl ChannelReader {
    /// Reads the columns of a table from the source. `entry` contains rows of the table.
    ///
    /// # Errors
    /// [`ApplyError::SourceCatalogue`] if the source cannot be read now; [`ApplyError::UnknownDigits`] if the
    /// table may have changed after the rows were logged.
    pub(super) async fn load_source(
        &mut self,
        entry: &LogEntry,
        schema: &str,
        table: &str,
    ) -> Result<(), ApplyError> {
        // Send the transactions that were read earlier: these transactions need not wait for the source's
        // answer.
        self.flush().await;
        let gtid = entry.gtid.as_ref().map_or_else(|| "without GTID".to_owned(), ToString::to_string);
        let name = format!("{schema}.{table}");
        let unavailable =
            |reason: String| ApplyError::SourceCatalogue { gtid: gtid.clone(), table: name.clone(), reason };
        let SourceTable { server_id, columns, position } =
            self.query_source(schema, table).await.map_err(&unavailable)?;
        let mut log = self.setup.log.reader_up_to_written(entry.position)?;
        log.try_next()?;
        let logged_by = log.source().map(|(source, _)| source.server_id);
        if logged_by != Some(server_id) {
            let logged_by = logged_by.map_or_else(String::new, |id| id.to_string());
            return Err(unavailable(format!(
                "the server with server_id {logged_by} logged the rows, and the source is now the server with server_id {server_id}"
            )));
        }
        self.until_captured(&position).await.map_err(&unavailable)?;
        let mut was_rebuilt = false;
        let drop_is_applied = self.target.applies_all_definitions();
        for (gtid_of, definition) in self.definitions_after(entry).await? {
            match definition.effect_on(schema, table) {
                DigitEffect::Unrelated => {}
                DigitEffect::KeepsDigits => was_rebuilt = true,
                // The fractional digits in the target's own definition are enough here. The target's table
                // was created from the same log or copied from the source, and this statement will drop it
                // soon.
                DigitEffect::MayChangeDigits if drop_is_applied && definition.drops(schema, table) => {
                    info!(
                        channel = self.setup.shared.options.name,
                        "rows of {name} get the number of fractional digits that the target's table declares, because transaction {gtid_of} drops the table later"
                    );
                    self.target.keep_source(schema, table, OldTimeDigits::Target);
                    return Ok(());
                }
                DigitEffect::MayChangeDigits => {
                    return Err(ApplyError::UnknownDigits {
                        gtid: gtid.clone(),
                        table: name.clone(),
                        column: "with the temporal layout from before MySQL 5.6".to_owned(),
                        reason: format!(
                            "the later transaction {gtid_of} may have changed its number of fractional digits; if the \
                             target's table still declares the number from before that transaction, \
                             old_temporal_precision = \"target\" applies the rows up to that transaction"
                        ),
                    });
                }
            }
        }
        let Some(columns) = columns else {
            return Err(unavailable(
                "the account in [[source]] sees no such table on the source; GRANT SELECT on the table to that account"
                    .to_owned(),
            ));
        };
        info!(
            channel = self.setup.shared.options.name,
            "the channel has read the number of fractional digits of the temporal columns of {name} from the source"
        );
        self.target.keep_source(
            schema,
            table,
            OldTimeDigits::Source(Arc::new(DeclaredColumns { columns, was_rebuilt })),
        );
        Ok(())
    }

    async fn query_source(&self, schema: &str, table: &str) -> Result<SourceTable, String> {
        let Some(source) = &self.setup.shared.options.source_catalogue else {
            return Err("the channel has no account on the source".to_owned());
        };
        let source = Arc::clone(source);
        match tokio::time::timeout(ANSWER_MAX, source.table(schema, table)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the source did not answer within {ANSWER_MAX:?}")),
        }
    }

    /// Waits until the log contains everything up to `position`, the binlog position in the source's answer.
    async fn until_captured(&self, position: &MariadbPosition) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let logged = self.setup.log.gtid_set();
            let is_logged =
                |gtid| logged.as_ref().is_some_and(|logged| logged.contains(&Gtid::MariaDb(gtid)));
            if position.iter().all(is_logged) {
                return Ok(());
            }
            if started.elapsed() >= CAPTURE_MAX {
                return Err(format!(
                    "the source has logged transactions up to {position}, and the relay has not captured all of them yet"
                ));
            }
            tokio::time::sleep(CAPTURE_POLL).await;
        }
    }

    /// Returns the DDL statements after `entry`, up to the end of the log, with their GTIDs.
    async fn definitions_after(
        &mut self,
        entry: &LogEntry,
    ) -> Result<Vec<(String, &LoggedDefinition)>, ApplyError> {
        let start = entry.end();
        let known = self.definitions.take().filter(|scan| scan.from <= start && start <= scan.to);
        let scan = self.definitions.insert(known.unwrap_or_else(|| DefinitionScan {
            from: start,
            to: start,
            format: self.decoder.format().clone(),
            found: Vec::new(),
        }));
        let mut log = self.setup.log.reader_up_to_written(scan.to)?;
        while let Some(entry) = log.try_next()? {
            let found = definitions_of(&mut log, &entry, &mut scan.format)?;
            let gtid =
                || entry.gtid.as_ref().map_or_else(|| format!("at {}", entry.position), ToString::to_string);
            scan.found.extend(found.into_iter().map(|definition| (entry.position, gtid(), definition)));
            scan.to = entry.end();
            // Let other tasks run. If the reader was stopped, this task ends here.
            tokio::task::yield_now().await;
        }
        scan.found.retain(|(position, ..)| *position >= start);
        scan.from = start;
        Ok(scan.found.iter().map(|(_, gtid, definition)| (gtid.clone(), definition)).collect())
    }

    /// Removes the cached source columns of the tables that a log entry creates, alters or drops, even if the
    /// channel does not apply the entry.
    pub(super) fn forget_defined(&mut self, entry: &LogEntry) -> Result<(), ApplyError> {
        if !entry.flags.contains(EntryFlags::DDL) || !self.target.knows_sources() {
            return Ok(());
        }
        let mut log = self.setup.log.reader_up_to_written(entry.position)?;
        log.try_next()?;
        let mut format = self.decoder.format().clone();
        let definitions = definitions_of(&mut log, entry, &mut format)?;
        let is_defined = |schema: &str, table: &str| {
            definitions.iter().any(|definition| definition.effect_on(schema, table) != DigitEffect::Unrelated)
        };
        if self.target.forget_sources(is_defined) {
            self.decoder.forget();
        }
        Ok(())
    }
}
