//! Where a run begins: from what the target keeps about the channel, or, for a new one, from its GTID position.

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

/// From where a run goes on.
pub(super) struct StartPosition {
    pub(super) applied: AppliedSet,
    /// What the target had before the channel began.
    pub(super) origin: GtidSet,
    /// What it has by now, without what is applied out of order.
    pub(super) gtids: GtidSet,
}

/// Says from where to go on, and notes it on the target if the channel is new there.
///
/// # Errors
/// [`ApplyError::Start`] if the log does not hold what the target needs; [`ApplyError::ProgressRecord`] if what is kept there is
/// about another log.
pub(super) async fn resolve(
    options: &ChannelOptions,
    log: &LogHandle,
    store: &mut ChannelStore,
    claim: &Claim,
    kept: &ChannelRecord,
    flavour: Flavour,
    target: &TargetGtids,
) -> Result<StartPosition, ApplyError> {
    let wrong = |reason: String| ApplyError::ProgressRecord { channel: options.name.clone(), reason };
    let source = captured(log).await?;
    let parse = |text: &str| {
        GtidSet::parse(source.flavour, text).map_err(|error| wrong(format!("GTIDs {text:?}: {error}")))
    };
    if let Some(applied) = kept.applied.clone() {
        for text in &kept.newest_gtids {
            if !is_captured(log, text) {
                return Err(wrong(format!(
                    "the target has {text}, which this log does not: it is another log, or has lost its end; seek the \
                     channel to where it is to go on"
                )));
            }
        }
        let origin = parse(&kept.origin_gtids)?;
        let walked = blocking(|| AppliedScan::of(log, &applied, &origin))?;
        if let Some(place) = walked.misplaced {
            return Err(wrong(misplaced(&place)));
        }
        if flavour == source.flavour && store.channel_with_same_source().await?.is_none() {
            let mut all = walked.applied;
            // What a crash may have left in the target's binlog under its GTID without being applied: a statement that
            // commits by itself, or where an XA transaction was prepared. MariaDB's position does not count its binlog.
            for text in kept.intent_gtids.iter().chain(&kept.newest_gtids) {
                if let Ok(gtid @ Gtid::MySql(_)) = Gtid::parse(source.flavour, text) {
                    // A log holds one family's GTIDs.
                    let _ = all.insert(&gtid);
                }
            }
            // Not kept as applied by an older Tailwater until something else was.
            for text in &kept.skipped {
                // A position of MariaDB is its newest: it must not go back to an older one.
                if let Ok(gtid) = Gtid::parse(source.flavour, text)
                    && !all.contains(&gtid)
                {
                    let _ = all.insert(&gtid);
                }
            }
            let (has, before) = (parse(&target.has)?, parse(&kept.target_gtids)?);
            if let Some(beyond) = target_gtids::unapplied_on_target(log, &has, &before, &all) {
                return Err(wrong(gone_ahead(&options.name, &beyond, &target.has)));
            }
        }
        return Ok(StartPosition { applied, origin, gtids: walked.before });
    }
    let (low, origin) = match options.start {
        ChannelStart::Oldest => (LogPosition::ZERO, GtidSet::empty(source.flavour)),
        // It had begun to begin, and may have written to the target's binlog since.
        ChannelStart::Target if !kept.source.is_empty() => {
            let has = parse(&kept.origin_gtids)?;
            (target_gtids::start_after(log, &has)?, has)
        }
        ChannelStart::Target if flavour == source.flavour => {
            let has =
                target_gtids::gtids_of_log(log, target, flavour).map_err(|error| wrong(error.to_string()))?;
            (target_gtids::start_after(log, &has)?, has)
        }
        ChannelStart::Target => {
            return Err(ApplyError::Start {
                reason: format!(
                    "the target is {flavour} and the source {}, whose GTIDs mean nothing to each other; say \
                     start = \"oldest\" if the target has all that is before the log",
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
    let gtids = blocking(|| AppliedScan::of(log, &applied, &origin))?.before;
    Ok(StartPosition { applied, origin, gtids })
}

/// Whether the log holds a transaction; also if it is not named by a GTID of the log's family.
fn is_captured(log: &LogHandle, gtid: &str) -> bool {
    let logged = log.gtid_set();
    let gtid = log.source().and_then(|source| Gtid::parse(source.flavour, gtid).ok());
    gtid.is_none_or(|gtid| logged.is_some_and(|logged| logged.contains(&gtid)))
}

fn misplaced(place: &LogPosition) -> String {
    format!(
        "the target has all up to {place} of the log, where this log has no transaction's end: it is another log, or a power cut \
         has taken its end, and it went on from another server, or from one that had lost the same. What the target has of it may \
         come again behind that place: find out what it has (`tailwater check`, if the source stands still), and seek the channel \
         to where it is to go on"
    )
}

fn gone_ahead(channel: &str, beyond: &str, has: &str) -> String {
    format!(
        "the target says that it has {beyond}, which the channel has not applied. If native replication has gone on there \
         meanwhile: `tailwater channel seek {channel} '{has}'`. If the target has crashed with \
         innodb_flush_log_at_trx_commit other than 1, its binlog holds more than its tables: copy it anew, or go on with \
         gtid = \"log\" behind a seek to what the tables have"
    )
}

/// The log's source, once something was captured that tells what is before it.
async fn captured(log: &LogHandle) -> Result<SourceIdentity, ApplyError> {
    let mut durable = log.subscribe();
    loop {
        durable.borrow_and_update();
        if let Some(source) = log.source() {
            let first = log.segments().first().map(|segment| segment.number);
            let before = first.map(|first| log.gtids_before(first)).transpose()?.flatten();
            // A log that begins in the middle of a file never tells.
            if before.is_some() || log.last_transaction().is_some() {
                return Ok(source);
            }
        }
        if durable.changed().await.is_err() {
            return Err(ApplyError::Start { reason: "the log is empty, and is closed".to_owned() });
        }
    }
}

/// A MariaDB server may be told to take GTIDs in ascending order only, and in independent order they come in any.
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

/// Where the log's oldest entry stands.
pub(super) fn oldest(log: &LogHandle) -> LogPosition {
    let first = log.segments().first().map_or(1, |segment| segment.number);
    LogPosition { segment: first, offset: target_gtids::FIRST_EVENT_OFFSET }
}

/// The filters of the channel: those that were edited last, or else the configuration's.
///
/// # Errors
/// [`ApplyError::Filter`], [`ApplyError::ProgressRecord`].
pub(super) fn filters(
    options: &ChannelOptions,
    kept: &ChannelRecord,
) -> Result<VersionedFilters, ApplyError> {
    if kept.filters.is_empty() {
        return Ok(VersionedFilters::new(options.filters.clone())?);
    }
    serde_json::from_str(&kept.filters).map_err(|error| ApplyError::ProgressRecord {
        channel: options.name.clone(),
        reason: format!("its filters: {error}"),
    })
}
