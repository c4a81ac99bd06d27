//! Looks ahead when a channel begins: what the target's tables cannot take is said then, rather than at the first row that has it.
//!
//! Only the way by SQL can meet a column that has no place. So where families differ the look goes far; else it goes a short way,
//! and as far only when a table of another shape has come. What lies beyond is found by the first row, as is what cannot be told
//! here: events that are too long, tables that a definition ahead makes anew.

mod look;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tailwater_log::{LogEntry, LogReader};
use tailwater_wire::event::EventType;
use tracing::{debug, info};

use self::look::{Look, Sought, Wanted};
use super::Reader;
use crate::channel::options::UntilCondition;
use crate::error::ApplyError;
use crate::transaction::{MappedTable, Span};

/// A start is delayed by no more than this, but for the target's own answers.
const TIME_MAX: Duration = Duration::from_secs(2);

/// How far ahead is looked where rows go by SQL, in bytes of the log.
const BYTES_MAX: u64 = 256 << 20;

/// How far, before it is known that any do.
const BYTES_MAX_UNTIL_SEEN: u64 = 4 << 20;

/// How far a look may go, and how far it has gone.
struct Bounds {
    begun: Instant,
    bytes: u64,
    bytes_max: u64,
}

impl Bounds {
    fn are_reached(&self) -> bool {
        self.bytes >= self.bytes_max || self.begun.elapsed() >= TIME_MAX
    }
}

impl Reader {
    /// Looks whether the target's tables have a place for each column of what is to be applied. Nothing is changed anywhere.
    ///
    /// # Errors
    /// [`ApplyError::Shape`] for the first that has none; [`ApplyError::Session`]. What is wrong with the log is said by whoever reads
    /// it to apply it.
    pub(super) async fn look_ahead(&mut self) -> Result<(), ApplyError> {
        let start = self.setup.shared.applied().low();
        let Ok(mut log) = self.setup.log.reader_up_to_written(start) else { return Ok(()) };
        let source = self.setup.log.source().map(|source| source.flavour);
        let differ = source.is_some_and(|source| source != self.setup.shared.flavour);
        let bytes_max = if differ { BYTES_MAX } else { BYTES_MAX_UNTIL_SEEN };
        let mut bounds = Bounds { begun: Instant::now(), bytes: 0, bytes_max };
        let filters = self.setup.filters.at(start).filters.compile()?;
        let mut look =
            Look::new(source.unwrap_or(self.setup.shared.flavour), self.decoder.format().clone(), filters);
        let mut next_filters = self.setup.filters.next_change(start);
        let mut start = start;
        while let Ok(Some(entry)) = log.try_next() {
            if bounds.are_reached() || look.is_over() {
                break;
            }
            if !entry.is_transaction() {
                let _ = formats(&mut log, &mut look);
                continue;
            }
            let span = Span { start, end: entry.end() };
            start = span.end;
            if matches!(&self.setup.shared.options.until, Some(UntilCondition::TimeUs(time)) if entry.commit_time_us >= *time)
            {
                break;
            }
            if next_filters.is_some_and(|next| next <= span.start) {
                look.turn_to(self.setup.filters.at(span.start).filters.compile()?);
                next_filters = self.setup.filters.next_change(span.start);
            }
            let is_passed = self.setup.shared.applied().contains(&span);
            if !is_passed && !self.is_of_origin(&entry) && !self.is_skipped(&entry) {
                self.look_at(&mut log, &entry, &mut look, &mut bounds).await?;
            }
            if matches!(&self.setup.shared.options.until, Some(UntilCondition::Gtid(gtid)) if entry.gtid.as_ref() == Some(gtid))
            {
                break;
            }
        }
        let channel = &self.setup.shared.options.name;
        let (bytes, took) = (bounds.bytes, bounds.begun.elapsed());
        match differ && bounds.are_reached() {
            true => info!(channel, bytes, ?took, "looked ahead; columns that come later were not looked at"),
            false => debug!(channel, bytes, ?took, "looked ahead"),
        }
        Ok(())
    }

    async fn look_at(
        &mut self,
        log: &mut LogReader,
        entry: &LogEntry,
        look: &mut Look,
        bounds: &mut Bounds,
    ) -> Result<(), ApplyError> {
        look.begin();
        let (mut event, mut sought) = (Vec::new(), Vec::new());
        while let Ok(Some(header)) = log.next_event() {
            if bounds.are_reached() || look.is_over() {
                return Ok(());
            }
            bounds.bytes += u64::from(header.event_length);
            event.clear();
            match look.wants(&header) {
                Wanted::Nothing => continue,
                Wanted::Whole if log.read_event(&mut event).is_err() => return Ok(()),
                Wanted::Whole => {}
                Wanted::Front(bytes) => match log.read_event_chunk(bytes) {
                    Ok(front) => event.extend_from_slice(front),
                    Err(_) => return Ok(()),
                },
            }
            look.event(&event, &mut sought);
            for sought in sought.drain(..) {
                self.check(entry, sought, bounds).await?;
            }
        }
        // Told to stop, it does.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Whether a table of the target takes what comes.
    async fn check(
        &mut self,
        entry: &LogEntry,
        sought: Sought,
        bounds: &mut Bounds,
    ) -> Result<(), ApplyError> {
        let Sought { schema, table, map, body } = sought;
        let asked = Instant::now();
        // One that is not there may be made, or left out, before its first row comes.
        let found = self.target.find(&schema, &table).await?;
        // How fast the target answers is not how long the log is.
        bounds.begun += asked.elapsed();
        let Some(target) = found else { return Ok(()) };
        let gtid = entry.gtid.as_ref().map_or_else(|| "without GTID".to_owned(), ToString::to_string);
        let error = match MappedTable::new(map, Bytes::from(body), Arc::clone(&target)) {
            Ok(mapped) if mapped.same_shape => return Ok(()),
            Ok(mapped) => {
                bounds.bytes_max = BYTES_MAX;
                match mapped.sql_mapping() {
                    Ok(_) => return Ok(()),
                    Err(misfit) => ApplyError::misfit(&mapped, misfit).of_transaction(&gtid),
                }
            }
            Err(misfits) => ApplyError::misfits(gtid, format!("{schema}.{table}"), &misfits),
        };
        Err(error.found_ahead())
    }
}

/// Takes the format of events from what stands between transactions.
fn formats(log: &mut LogReader, look: &mut Look) -> Result<(), ApplyError> {
    let mut event = Vec::new();
    while let Some(header) = log.next_event()? {
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            log.read_event(&mut event)?;
            look.format_description(&event);
        }
    }
    Ok(())
}
