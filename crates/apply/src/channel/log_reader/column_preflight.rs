//! The preflight: checks the target's tables when a channel starts. A source column that the target's table
//! cannot hold is then reported at the start, and not at its first row.
//!
//! Only rows that are written as SQL can have a column that the target lacks or cannot hold. So if source and
//! target differ in flavour, the preflight scans much of the log. Otherwise it scans a little, and scans more
//! only after it finds a table whose columns differ between source and target. The preflight also skips long
//! events, and tables that a later DDL statement creates. The channel reports such mismatches later, when it
//! applies the first row of the table.

mod table_map_scan;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tailwater_log::{LogEntry, LogReader};
use tailwater_wire::binlog_event::EventType;
use tracing::{debug, info};

use self::table_map_scan::{EventPart, PreflightScan, TableToCheck};
use super::ChannelReader;
use crate::channel::channel_options::UntilCondition;
use crate::error::ApplyError;
use crate::log_position_range::LogSpan;
use crate::source_to_target_table::MappedTable;

/// The maximum duration of the preflight, without the time that the queries to the target take.
const TIME_MAX: Duration = Duration::from_secs(2);

/// How much of the log is scanned if rows are written as SQL, in bytes.
const BYTES_MAX: u64 = 256 << 20;

/// How much of the log is scanned, in bytes, as long as the scan finds no rows that must be written as SQL.
const BYTES_MAX_SAME_SHAPE: u64 = 4 << 20;

/// The limits of the preflight, and how much of each limit is used.
struct PreflightLimits {
    started: Instant,
    bytes: u64,
    bytes_max: u64,
}

impl PreflightLimits {
    fn are_reached(&self) -> bool {
        self.bytes >= self.bytes_max || self.started.elapsed() >= TIME_MAX
    }
}

impl ChannelReader {
    /// Checks that the target's tables can hold each column that the channel will apply. Changes nothing on
    /// the target.
    ///
    /// # Errors
    /// [`ApplyError::IncompatibleColumn`] for the first column that the target's table cannot hold;
    /// [`ApplyError::Session`]. Errors of the log are not returned: the reader reports them when it reads the
    /// log to apply it.
    pub(super) async fn preflight(&mut self) -> Result<(), ApplyError> {
        let start = self.setup.shared.applied().low();
        let Ok(mut log) = self.setup.log.reader_up_to_written(start) else { return Ok(()) };
        let source = self.setup.log.source().map(|source| source.flavour);
        let differ = source.is_some_and(|source| source != self.setup.shared.flavour);
        let bytes_max = if differ { BYTES_MAX } else { BYTES_MAX_SAME_SHAPE };
        let mut limits = PreflightLimits { started: Instant::now(), bytes: 0, bytes_max };
        let filters = self.setup.filters.at(start).filters.compile()?;
        let mut scan = PreflightScan::new(
            source.unwrap_or(self.setup.shared.flavour),
            self.decoder.format().clone(),
            filters,
        );
        let mut next_filters = self.setup.filters.next_change(start);
        let mut start = start;
        while let Ok(Some(entry)) = log.try_next() {
            if limits.are_reached() || scan.is_over() {
                break;
            }
            if !entry.is_transaction() {
                let _ = read_formats(&mut log, &mut scan);
                continue;
            }
            let span = LogSpan { start, end: entry.end() };
            start = span.end;
            if matches!(&self.setup.shared.options.until, Some(UntilCondition::TimeUs(time)) if entry.commit_time_us >= *time)
            {
                break;
            }
            if next_filters.is_some_and(|next| next <= span.start) {
                scan.select_filters(self.setup.filters.at(span.start).filters.compile()?);
                next_filters = self.setup.filters.next_change(span.start);
            }
            let is_passed = self.setup.shared.applied().contains(&span);
            if !is_passed && !self.is_of_origin(&entry) && !self.is_skipped(&entry) {
                self.scan_transaction(&mut log, &entry, &mut scan, &mut limits).await?;
            }
            if matches!(&self.setup.shared.options.until, Some(UntilCondition::Gtid(gtid)) if entry.gtid.as_ref() == Some(gtid))
            {
                break;
            }
        }
        let channel = &self.setup.shared.options.name;
        let (bytes, took) = (limits.bytes, limits.started.elapsed());
        match differ && limits.are_reached() {
            true => info!(
                channel,
                bytes,
                ?took,
                "the preflight scan of the log reached its limit; the columns of later rows are not checked before they are applied"
            ),
            false => debug!(channel, bytes, ?took, "the preflight scan of the log has finished"),
        }
        Ok(())
    }

    async fn scan_transaction(
        &mut self,
        log: &mut LogReader,
        entry: &LogEntry,
        scan: &mut PreflightScan,
        limits: &mut PreflightLimits,
    ) -> Result<(), ApplyError> {
        scan.begin();
        let (mut event, mut found) = (Vec::new(), Vec::new());
        while let Ok(Some(header)) = log.next_event() {
            if limits.are_reached() || scan.is_over() {
                return Ok(());
            }
            limits.bytes += u64::from(header.event_length);
            event.clear();
            match scan.wants(&header) {
                EventPart::Nothing => continue,
                EventPart::Whole if log.read_event(&mut event).is_err() => return Ok(()),
                EventPart::Whole => {}
                EventPart::Prefix(bytes) => match log.read_event_chunk(bytes) {
                    Ok(front) => event.extend_from_slice(front),
                    Err(_) => return Ok(()),
                },
            }
            scan.event(&event, &mut found);
            for found in found.drain(..) {
                self.check(entry, found, limits).await?;
            }
        }
        // Let other tasks run. If the reader was stopped, this task ends here.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Checks that a table of the target can take the rows.
    async fn check(
        &mut self,
        entry: &LogEntry,
        found: TableToCheck,
        limits: &mut PreflightLimits,
    ) -> Result<(), ApplyError> {
        let TableToCheck { schema, table, map, body } = found;
        let asked = Instant::now();
        // A missing table is not an error here: it may still be created, or excluded by a filter, before its
        // first row comes.
        let found = self.target.find(&schema, &table).await?;
        // The time for queries to the target does not count towards the limit.
        limits.started += asked.elapsed();
        let Some(target) = found else { return Ok(()) };
        let gtid = entry.gtid.as_ref().map_or_else(|| "without GTID".to_owned(), ToString::to_string);
        let error = match MappedTable::new(map, Bytes::from(body), Arc::clone(&target)) {
            Ok(mapped) if mapped.same_shape => return Ok(()),
            Ok(mapped) => {
                limits.bytes_max = BYTES_MAX;
                match mapped.sql_mapping() {
                    Ok(_) => return Ok(()),
                    Err(mismatch) => ApplyError::mismatch(&mapped, mismatch).of_transaction(&gtid),
                }
            }
            Err(mismatches) => ApplyError::mismatches(gtid, format!("{schema}.{table}"), &mismatches),
        };
        Err(error.found_by_preflight())
    }
}

/// Reads the event format from a log entry that is not a transaction.
fn read_formats(log: &mut LogReader, scan: &mut PreflightScan) -> Result<(), ApplyError> {
    let mut event = Vec::new();
    while let Some(header) = log.next_event()? {
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            log.read_event(&mut event)?;
            scan.format_description(&event);
        }
    }
    Ok(())
}
