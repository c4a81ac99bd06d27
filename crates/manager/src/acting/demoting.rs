//! Makes a primary that takes no more writes a replica that reads from the log.

use std::time::{Duration, Instant};

use tailwater_session::Connection;
use tracing::info;

use super::replication::{Position, ReadFrom, executed, failed, pause, read_from};
use super::wanted::Wanted;
use super::{semi_sync, sessions, writing};
use crate::error::ManagerError;

const DOING: &str = "becoming a replica";

/// Makes it a replica of `log`, if it has executed no more than `has`. Sessions in the midst of a transaction are ended: they
/// cannot commit any more, and what they locked would stop the applier.
///
/// # Errors
/// [`ManagerError::Act`] if clients can write to it, if it has more than `has`, or commits wait for ACKs that nobody gives;
/// those of [`read_from`].
pub(super) async fn demote(
    connection: &mut Connection,
    log: &ReadFrom,
    has: &str,
    patience: Duration,
) -> Result<(), ManagerError> {
    let begun = Instant::now();
    if writing::is_writable(connection).await? {
        return Err(failed(connection, DOING, "clients may write to it: make it read-only first".to_owned()));
    }
    loop {
        let holding = sessions::in_transactions(connection).await?;
        let to_end: Vec<_> = holding.iter().filter(|session| !session.waits_for_acks()).collect();
        for session in &to_end {
            info!(server = connection.endpoint(), session = session.id, "ending a transaction that holds on");
            sessions::kill(connection, session.id).await?;
        }
        if to_end.is_empty() || begun.elapsed() >= patience {
            break;
        }
        pause(begun).await;
    }
    let flavour = connection.server().flavour;
    let now = executed(connection).await?;
    let wanted = Wanted::read(flavour, has);
    let more = wanted.as_ref().and_then(|wanted| wanted.lacks(&now));
    if let Some(more) = more {
        let reason = format!("it has executed {more}, which nobody acknowledged; run: tailwater rejoin");
        return Err(failed(connection, DOING, reason));
    }
    semi_sync::unmake_source(connection, semi_sync::Before::default()).await?;
    // What it wrote itself it does not ask for again.
    let log = ReadFrom { position: Position::OwnWritesToo, ..log.clone() };
    read_from(connection, &log, patience.saturating_sub(begun.elapsed())).await
}
