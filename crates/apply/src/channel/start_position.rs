//! Finds where a run of the channel starts: from the progress on the target, or, for a new channel, from the
//! target's GTIDs.

use tailwater_log::{LogHandle, LogPosition, SourceIdentity, blocking};
use tailwater_session::Connection;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{Gtid, GtidSet};

use super::applied_gtids_from_log::AppliedScan;
use super::channel_options::{ChannelOptions, ChannelStart, GtidMode};
use super::progress_store::{ChannelRecord, ChannelStore, Claim};
use super::target_gtid_queries::{self, TargetGtids};
use crate::applied_transactions::AppliedSet;
use crate::error::ApplyError;
use crate::replication_filter::VersionedFilters;
use crate::scheduler::CommitOrder;

/// Where a run of a channel starts.
pub(super) struct StartPosition {
    pub(super) applied: AppliedSet,
    /// The GTIDs that the target had before the channel was created.
    pub(super) origin: GtidSet,
    /// The GTIDs that the target has now, without transactions that are applied out of order.
    pub(super) gtids: GtidSet,
}

/// Finds where the channel's run starts. If the channel is new on the target, stores this position on the
/// target.
///
/// # Errors
/// [`ApplyError::Start`] if the log does not contain what the target needs; [`ApplyError::ProgressRecord`] if
/// the progress on the target belongs to another log.
pub(super) async fn resolve(
    options: &ChannelOptions,
    log: &LogHandle,
    store: &mut ChannelStore,
    claim: &Claim,
    record: &ChannelRecord,
    flavour: Flavour,
    target: &TargetGtids,
) -> Result<StartPosition, ApplyError> {
    let context = StartContext { options, log, record, source: wait_for_source(log).await?, flavour, target };
    match &record.applied {
        Some(applied) => context.resume(store, applied).await,
        None => context.start(store, claim).await,
    }
}

/// The data that determines where a run starts.
struct StartContext<'a> {
    options: &'a ChannelOptions,
    log: &'a LogHandle,
    record: &'a ChannelRecord,
    source: SourceIdentity,
    /// The flavour of the target.
    flavour: Flavour,
    target: &'a TargetGtids,
}

impl StartContext<'_> {
    /// Returns where a channel with progress on the target resumes. Checks that the progress belongs to this
    /// log.
    async fn resume(
        &self,
        store: &mut ChannelStore,
        applied: &AppliedSet,
    ) -> Result<StartPosition, ApplyError> {
        if let Some(text) = self.record.newest_gtids.iter().find(|text| !is_captured(self.log, text)) {
            let reason = format!(
                "the target has {text}, which this log does not contain. The log is a different one or has lost its \
                 end; seek the channel to the position where it is to resume"
            );
            return Err(self.record_error(reason));
        }
        let origin = self.parse_gtids(&self.record.origin_gtids)?;
        let scan = blocking(|| AppliedScan::run(self.log, applied, &origin))?;
        if let Some(place) = scan.misplaced {
            return Err(self.record_error(misplaced_message(&place)));
        }
        if self.flavour == self.source.flavour && store.channel_with_same_source().await?.is_none() {
            let all = with_unrecorded_gtids(scan.applied, self.record, &self.source);
            let has = self.parse_gtids(&self.target.has)?;
            let before = self.parse_gtids(&self.record.target_gtids)?;
            if let Some(beyond) = target_gtid_queries::unapplied_on_target(self.log, &has, &before, &all) {
                return Err(self.record_error(ahead_of_channel_message(
                    &self.options.name,
                    &beyond,
                    &self.target.has,
                )));
            }
        }
        Ok(StartPosition { applied: applied.clone(), origin, gtids: scan.before })
    }

    /// Returns where a new channel starts, and records that position on the target.
    async fn start(&self, store: &mut ChannelStore, claim: &Claim) -> Result<StartPosition, ApplyError> {
        let (low, origin) = match self.options.start {
            ChannelStart::Oldest => (LogPosition::ZERO, GtidSet::empty(self.source.flavour)),
            // An earlier start of the channel was interrupted after it had stored the target's GTIDs. The
            // channel may have written to the target's binlog since then, so use the stored GTIDs.
            ChannelStart::Target if !self.record.source.is_empty() => {
                let has = self.parse_gtids(&self.record.origin_gtids)?;
                (target_gtid_queries::start_after(self.log, &has)?, has)
            }
            ChannelStart::Target if self.flavour == self.source.flavour => {
                let has = target_gtid_queries::gtids_of_log(self.log, self.target, self.flavour)
                    .map_err(|error| self.record_error(error.to_string()))?;
                (target_gtid_queries::start_after(self.log, &has)?, has)
            }
            ChannelStart::Target => {
                return Err(ApplyError::Start {
                    reason: format!(
                        "the target is {} and the source is {}, so their GTIDs cannot be compared; set start = \
                         \"oldest\" if the target has everything before the log",
                        self.flavour, self.source.flavour
                    ),
                });
            }
        };
        let low = if low == LogPosition::ZERO { oldest(self.log) } else { low };
        let applied = AppliedSet::new(low);
        let text = target_gtid_queries::text(&origin);
        let identity = self.source.server_uuid.clone().unwrap_or_else(|| self.source.server_id.to_string());
        store.save_start(claim, &applied, &identity, &text, &self.target.has).await?;
        let gtids = blocking(|| AppliedScan::run(self.log, &applied, &origin))?.before;
        Ok(StartPosition { applied, origin, gtids })
    }

    fn parse_gtids(&self, text: &str) -> Result<GtidSet, ApplyError> {
        GtidSet::parse(self.source.flavour, text).map_err(|error| {
            self.record_error(format!("the stored GTIDs {text:?} cannot be parsed: {error}"))
        })
    }

    fn record_error(&self, reason: String) -> ApplyError {
        ApplyError::ProgressRecord { channel: self.options.name.clone(), reason }
    }
}

/// Adds the GTIDs that the channel has written to the target without recording them as applied.
fn with_unrecorded_gtids(mut all: GtidSet, record: &ChannelRecord, source: &SourceIdentity) -> GtidSet {
    // After a crash, the target's binlog may contain GTIDs that are not recorded as applied: the GTID of a
    // statement that commits implicitly, or of a prepared XA transaction. On MariaDB this does not matter,
    // because its position does not depend on its binlog.
    for text in record.intent_gtids.iter().chain(&record.newest_gtids) {
        if let Ok(gtid @ Gtid::MySql(_)) = Gtid::parse(source.flavour, text) {
            // All GTIDs of a log are of one flavour, so inserting cannot fail.
            let _ = all.insert(&gtid);
        }
    }
    // Add the GTIDs of skipped transactions, because an older Tailwater recorded a skipped transaction only
    // with the next commit.
    for text in &record.skipped {
        // A MariaDB position is the newest GTID of each domain. This GTID must not be replaced by an older
        // GTID of the domain.
        if let Ok(gtid) = Gtid::parse(source.flavour, text)
            && !all.contains(&gtid)
        {
            let _ = all.insert(&gtid);
        }
    }
    all
}

/// Returns whether the log contains the transaction `gtid`. Returns true also if this GTID is not of the
/// log's flavour.
fn is_captured(log: &LogHandle, gtid: &str) -> bool {
    let logged = log.gtid_set();
    let gtid = log.source().and_then(|source| Gtid::parse(source.flavour, gtid).ok());
    gtid.is_none_or(|gtid| logged.is_some_and(|logged| logged.contains(&gtid)))
}

fn misplaced_message(place: &LogPosition) -> String {
    format!(
        "the target has applied the log up to {place}, but no transaction of this log ends there. The log is a \
         different one, or a power failure removed its end and the log continues from a server that lacks that end \
         too. Transactions that the target already has may come again after that position: compare the target with the \
         source (`tailwater check`, while the source takes no writes), and seek the channel to the position where it \
         is to resume"
    )
}

fn ahead_of_channel_message(channel: &str, beyond: &str, has: &str) -> String {
    format!(
        "the target has {beyond}, which the channel has not applied. If native replication has applied these transactions: \
         `tailwater channel seek {channel} '{has}'`. If the target crashed with innodb_flush_log_at_trx_commit other than 1, its \
         binlog has more transactions than its tables: copy the source to the target again, or seek to the transactions that \
         the tables have and continue with gtid = \"log\""
    )
}

/// Returns the source of the log. Waits until the relay has captured enough to know the GTIDs before the
/// start of the log.
async fn wait_for_source(log: &LogHandle) -> Result<SourceIdentity, ApplyError> {
    let mut durable = log.subscribe();
    loop {
        durable.borrow_and_update();
        if let Some(source) = log.source() {
            let first = log.segments().first().map(|segment| segment.number);
            let before = first.map(|first| log.gtids_before(first)).transpose()?.flatten();
            // Do not wait if the log already has a transaction: the log then starts in the middle of a binlog
            // file, and the GTIDs before its start never become known.
            if before.is_some() || log.last_transaction().is_some() {
                return Ok(source);
            }
        }
        if durable.changed().await.is_err() {
            return Err(ApplyError::Start { reason: "the log is empty, and is closed".to_owned() });
        }
    }
}

/// Rejects independent commit order on a MariaDB target that accepts GTIDs only in ascending order
/// (`gtid_strict_mode`).
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
            reason: "gtid = \"preserve\" is set with independent commit order, but the target accepts GTIDs only in \
                     ascending order (gtid_strict_mode = ON): set commit_order = \"source\", or gtid_strict_mode = OFF \
                     on the target"
                .to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Returns the position of the log's oldest entry.
pub(super) fn oldest(log: &LogHandle) -> LogPosition {
    let first = log.segments().first().map_or(1, |segment| segment.number);
    LogPosition { segment: first, offset: target_gtid_queries::FIRST_EVENT_OFFSET }
}

/// Returns the channel's filters: the filters that an operator set last, or the filters of the configuration
/// if no operator has set any.
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
        reason: format!("the stored filters are invalid: {error}"),
    })
}
