//! Where a run starts: from the progress on the target, or, for a new channel, from the target's GTIDs.

use tailwater_log::{LogHandle, LogPosition, SourceIdentity, blocking};
use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{Gtid, GtidSet};

use super::applied_scan::AppliedScan;
use super::options::{ChannelOptions, ChannelStart, GtidMode};
use super::store::{ChannelRecord, ChannelStore, Claim};
use super::target_gtids::{self, TargetGtids};
use crate::error::ApplyError;
use crate::filter::VersionedFilters;
use crate::progress::AppliedSet;
use crate::scheduler::CommitOrder;

/// Where a run starts.
pub(super) struct StartPosition {
    pub(super) applied: AppliedSet,
    /// What the target had before the channel was created.
    pub(super) origin: GtidSet,
    /// What it has now, without what is applied out of order.
    pub(super) gtids: GtidSet,
}

/// Finds where to start, and records it on the target if the channel is new there.
///
/// # Errors
/// [`ApplyError::Start`] if the log does not hold what the target needs; [`ApplyError::ProgressRecord`] if
/// the progress there belongs to another log.
pub(super) async fn resolve(
    options: &ChannelOptions,
    log: &LogHandle,
    store: &mut ChannelStore,
    claim: &Claim,
    record: &ChannelRecord,
    flavour: Flavour,
    target: &TargetGtids,
) -> Result<StartPosition, ApplyError> {
    let record_error = |reason: String| ApplyError::ProgressRecord { channel: options.name.clone(), reason };
    let source = wait_for_source(log).await?;
    let parse = |text: &str| {
        GtidSet::parse(source.flavour, text).map_err(|error| record_error(format!("GTIDs {text:?}: {error}")))
    };
    if let Some(applied) = record.applied.clone() {
        for text in &record.newest_gtids {
            if !is_captured(log, text) {
                return Err(record_error(format!(
                    "the target has {text}, which this log does not: it is another log, or has lost its end; seek the \
                     channel to where it is to resume"
                )));
            }
        }
        let origin = parse(&record.origin_gtids)?;
        let walked = blocking(|| AppliedScan::run(log, &applied, &origin))?;
        if let Some(place) = walked.misplaced {
            return Err(record_error(misplaced_message(&place)));
        }
        if flavour == source.flavour && store.channel_with_same_source().await?.is_none() {
            let mut all = walked.applied;
            // A crash may have left GTIDs in the target's binlog that are not recorded as applied: of a
            // statement that commits by itself, or of a prepared XA transaction. MariaDB's position does not
            // count its binlog.
            for text in record.intent_gtids.iter().chain(&record.newest_gtids) {
                if let Ok(gtid @ Gtid::MySql(_)) = Gtid::parse(source.flavour, text) {
                    // A log holds the GTIDs of one flavour.
                    let _ = all.insert(&gtid);
                }
            }
            // An older Tailwater recorded a skipped transaction only with the next commit.
            for text in &record.skipped {
                // A MariaDB position is its newest GTID: it must not move back.
                if let Ok(gtid) = Gtid::parse(source.flavour, text)
                    && !all.contains(&gtid)
                {
                    let _ = all.insert(&gtid);
                }
            }
            let (has, before) = (parse(&target.has)?, parse(&record.target_gtids)?);
            if let Some(beyond) = target_gtids::unapplied_on_target(log, &has, &before, &all) {
                return Err(record_error(ahead_of_channel_message(&options.name, &beyond, &target.has)));
            }
        }
        return Ok(StartPosition { applied, origin, gtids: walked.before });
    }
    let (low, origin) = match options.start {
        ChannelStart::Oldest => (LogPosition::ZERO, GtidSet::empty(source.flavour)),
        // An earlier start was interrupted, and may have written to the target's binlog since.
        ChannelStart::Target if !record.source.is_empty() => {
            let has = parse(&record.origin_gtids)?;
            (target_gtids::start_after(log, &has)?, has)
        }
        ChannelStart::Target if flavour == source.flavour => {
            let has = target_gtids::gtids_of_log(log, target, flavour)
                .map_err(|error| record_error(error.to_string()))?;
            (target_gtids::start_after(log, &has)?, has)
        }
        ChannelStart::Target => {
            return Err(ApplyError::Start {
                reason: format!(
                    "the target is {flavour} and the source {}, whose GTIDs cannot be compared; set \
                     start = \"oldest\" if the target has everything before the log",
                    source.flavour
                ),
            });
        }
    };
    let low = if low == LogPosition::ZERO { oldest(log) } else { low };
    let applied = AppliedSet::new(low);
    let text = target_gtids::text(&origin);
    let identity = source.server_uuid.unwrap_or_else(|| source.server_id.to_string());
    store.save_start(claim, &applied, &identity, &text, &target.has).await?;
    let gtids = blocking(|| AppliedScan::run(log, &applied, &origin))?.before;
    Ok(StartPosition { applied, origin, gtids })
}

/// Whether the log holds a transaction. True if its GTID is not of the log's flavour.
fn is_captured(log: &LogHandle, gtid: &str) -> bool {
    let logged = log.gtid_set();
    let gtid = log.source().and_then(|source| Gtid::parse(source.flavour, gtid).ok());
    gtid.is_none_or(|gtid| logged.is_some_and(|logged| logged.contains(&gtid)))
}

fn misplaced_message(place: &LogPosition) -> String {
    format!(
        "the target has all up to {place} of the log, but no transaction of this log ends there. It is another log, or a power cut has \
         taken its end, and it continued from another server, or from one that had lost the same. What the target has of it may \
         come again after that position: find out what it has (`tailwater check`, while the source takes no writes), and seek the channel \
         to where it is to resume"
    )
}

fn ahead_of_channel_message(channel: &str, beyond: &str, has: &str) -> String {
    format!(
        "the target says that it has {beyond}, which the channel has not applied. If native replication has run there \
         meanwhile: `tailwater channel seek {channel} '{has}'`. If the target has crashed with \
         innodb_flush_log_at_trx_commit other than 1, its binlog holds more than its tables: copy it again, or continue with \
         gtid = \"log\" after a seek to what the tables have"
    )
}

/// The log's source, once enough was captured to know the GTIDs before the log.
async fn wait_for_source(log: &LogHandle) -> Result<SourceIdentity, ApplyError> {
    let mut durable = log.subscribe();
    loop {
        durable.borrow_and_update();
        if let Some(source) = log.source() {
            let first = log.segments().first().map(|segment| segment.number);
            let before = first.map(|first| log.gtids_before(first)).transpose()?.flatten();
            // A log that begins in the middle of a binlog file never knows them.
            if before.is_some() || log.last_transaction().is_some() {
                return Ok(source);
            }
        }
        if durable.changed().await.is_err() {
            return Err(ApplyError::Start { reason: "the log is empty, and is closed".to_owned() });
        }
    }
}

/// Rejects independent order on a MariaDB server that takes GTIDs in ascending order only.
///
/// # Errors
/// [`ApplyError::Start`]; [`ApplyError::Session`].
pub(super) async fn refuse_strict_order(
    options: &ChannelOptions,
    flavour: Flavour,
    connection: &mut Connection,
) -> Result<(), ApplyError> {
    if flavour != Flavour::MariaDb
        || options.gtid != GtidMode::Preserve
        || options.commit_order != CommitOrder::Independent
    {
        return Ok(());
    }
    match connection.query("SELECT @@GLOBAL.gtid_strict_mode").await?.scalar() {
        Some("1") => Err(ApplyError::Start {
            reason: "gtid = \"preserve\" in independent order, and the target takes GTIDs in ascending order only \
                     (gtid_strict_mode = ON): set commit_order = \"source\", or gtid_strict_mode = OFF on the target"
                .to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The position of the log's oldest entry.
pub(super) fn oldest(log: &LogHandle) -> LogPosition {
    let first = log.segments().first().map_or(1, |segment| segment.number);
    LogPosition { segment: first, offset: target_gtids::FIRST_EVENT_OFFSET }
}

/// The channel's filters: those that an operator edited last, or else those of the configuration.
///
/// # Errors
/// [`ApplyError::Filter`], [`ApplyError::ProgressRecord`].
pub(super) fn filters(
    options: &ChannelOptions,
    record: &ChannelRecord,
) -> Result<VersionedFilters, ApplyError> {
    if record.filters.is_empty() {
        return Ok(VersionedFilters::new(options.filters.clone())?);
    }
    serde_json::from_str(&record.filters).map_err(|error| ApplyError::ProgressRecord {
        channel: options.name.clone(),
        reason: format!("its filters: {error}"),
    })
}
