//! Where a run begins: from what the target keeps about the channel, or, for a new one, from its GTID position.

use tailwater_log::{LogHandle, LogPosition, SourceIdentity};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{Gtid, GtidSet};

use super::gtids;
use super::options::{ChannelOptions, ChannelStart};
use super::store::{Claim, Kept, Store};
use crate::error::ApplyError;
use crate::filter::VersionedFilters;
use crate::progress::Applied;

/// From where a run goes on.
pub(super) struct Begun {
    pub(super) applied: Applied,
    /// What the target had before the channel began.
    pub(super) origin: GtidSet,
}

/// Says from where to go on, and notes it on the target if the channel is new there.
///
/// # Errors
/// [`ApplyError::Start`] if the log does not hold what the target needs; [`ApplyError::Record`] if what is kept there is
/// about another log.
pub(super) async fn begin(
    options: &ChannelOptions,
    log: &LogHandle,
    store: &mut Store,
    claim: &Claim,
    kept: &Kept,
    flavour: Flavour,
    target_has: &str,
) -> Result<Begun, ApplyError> {
    let wrong = |reason: String| ApplyError::Record { channel: options.name.clone(), reason };
    let source = captured(log).await?;
    let parse = |text: &str| {
        GtidSet::parse(source.flavour, text).map_err(|error| wrong(format!("GTIDs {text:?}: {error}")))
    };
    if let Some(applied) = kept.applied.clone() {
        let logged = log.gtid_set();
        for text in &kept.newest {
            let gtid = Gtid::parse(source.flavour, text).ok();
            let known = gtid.is_none_or(|gtid| logged.as_ref().is_some_and(|logged| logged.contains(&gtid)));
            if !known {
                return Err(wrong(format!(
                    "the target has {text}, which this log does not: it is another log, or has lost its end; seek the \
                     channel to where it is to go on"
                )));
            }
        }
        return Ok(Begun { applied, origin: parse(&kept.origin_gtids)? });
    }
    let (low, origin) = match options.start {
        ChannelStart::Oldest => (LogPosition::ZERO, GtidSet::empty(source.flavour)),
        // It had begun to begin, and may have written to the target's binlog since.
        ChannelStart::Target if !kept.source.is_empty() => {
            let has = parse(&kept.origin_gtids)?;
            (gtids::start_behind(log, &has)?, has)
        }
        ChannelStart::Target if flavour == source.flavour => {
            let has = parse(target_has)?;
            known_to_source(log, &has)?;
            (gtids::start_behind(log, &has)?, has)
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
    let applied = Applied::new(low);
    let text = gtids::text(&origin);
    let identity = source.server_uuid.unwrap_or_else(|| source.server_id.to_string());
    store.begin_at(claim, &applied, &identity, &text).await?;
    Ok(Begun { applied, origin })
}

/// MariaDB counts all servers of a domain as one: what was written on the target itself would stand for as many
/// transactions of the source.
fn known_to_source(log: &LogHandle, has: &GtidSet) -> Result<(), ApplyError> {
    let (GtidSet::MariaDb(has), Some(GtidSet::MariaDb(logged))) = (has, log.gtid_set()) else {
        return Ok(());
    };
    let foreign = has.position().iter().find(|gtid| {
        let mut of_domain = logged.iter().filter(|known| known.domain == gtid.domain).peekable();
        of_domain.peek().is_some() && of_domain.all(|known| known.server_id != gtid.server_id)
    });
    match foreign {
        None => Ok(()),
        Some(gtid) => Err(ApplyError::Start {
            reason: format!(
                "the target has {gtid}, of a server that the source knows nothing of: it was written to by others, under \
                 the same gtid_domain_id; if it has the source's data too, say so (RESET MASTER, then SET GLOBAL \
                 gtid_slave_pos), or begin with start = \"oldest\""
            ),
        }),
    }
}

/// The log's source, once something was captured, and it is known what was before that or that this is not known.
async fn captured(log: &LogHandle) -> Result<SourceIdentity, ApplyError> {
    let mut durable = log.subscribe();
    loop {
        durable.borrow_and_update();
        let first = log.segments().first().map(|segment| segment.number);
        if let (Some(source), Some(first)) = (log.source(), first)
            // The source says so between the head of its file and the first transaction.
            && (log.gtids_before(first)?.is_some() || log.last_transaction().is_some())
        {
            return Ok(source);
        }
        if durable.changed().await.is_err() {
            return Err(ApplyError::Start { reason: "the log is empty, and is closed".to_owned() });
        }
    }
}

/// Where the log's oldest entry stands.
fn oldest(log: &LogHandle) -> LogPosition {
    let first = log.segments().first().map_or(1, |segment| segment.number);
    LogPosition { segment: first, offset: gtids::FIRST_EVENT_OFFSET }
}

/// The filters of the channel: those that were edited last, or else the configuration's.
///
/// # Errors
/// [`ApplyError::Filter`], [`ApplyError::Record`].
pub(super) fn filters(options: &ChannelOptions, kept: &Kept) -> Result<VersionedFilters, ApplyError> {
    if kept.filters.is_empty() {
        return Ok(VersionedFilters::new(options.filters.clone())?);
    }
    serde_json::from_str(&kept.filters).map_err(|error| ApplyError::Record {
        channel: options.name.clone(),
        reason: format!("its filters: {error}"),
    })
}

/// Every transaction of the log before `low`.
///
/// # Errors
/// [`ApplyError::Log`].
pub(super) fn gtids_at(log: &LogHandle, low: LogPosition) -> Result<GtidSet, ApplyError> {
    let flavour = log.source().map_or(Flavour::MySql, |source| source.flavour);
    let mut gtids = log.gtids_before(low.segment)?.unwrap_or_else(|| GtidSet::empty(flavour));
    let mut reader = log.reader(LogPosition { offset: gtids::FIRST_EVENT_OFFSET, ..low })?;
    while let Some(entry) = reader.try_next()?.filter(|entry| entry.position < low) {
        if let Some(gtid) = &entry.gtid {
            // A log holds one family's GTIDs.
            let _ = gtids.insert(gtid);
        }
    }
    Ok(gtids)
}
