//! Has a MySQL server clone another: all its InnoDB data, its accounts, and where it stands in the donor's history.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_session::{
    ConnectOptions, Connection, Endpoint, Purpose, ServerError, SessionError, check_grants,
};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::{BinaryCopyPosition, version_check};
use crate::error::BulkError;
use crate::progress::BulkProgress;
use crate::sql::{literal, literals};

/// The recipient has everything, and nobody starts it again but a person.
const RESTART_FAILED: u16 = 3707;
/// Databases that every server has; `tailwater` holds what belongs to the server's old data.
const SYSTEM_SCHEMAS: [&str; 4] = ["mysql", "sys", "information_schema", "performance_schema"];
/// A server takes part in one copy at a time; of a donor, the recipient repeats the number in its message.
const BUSY: u16 = 3634;
/// So long is waited for a copy to end that was just given up.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// Names in one message.
const NAMED_MAX: usize = 5;
/// How often it is looked how far the recipient is, and whether it is back.
const LOOK: Duration = Duration::from_millis(500);
/// How often the recipient is told to give up, [`LOOK`] apart.
const KILLS_MAX: u32 = 20;

/// Which server is to become a copy of which.
#[derive(Debug, Clone)]
pub struct CloneOptions {
    /// The server that is copied. The recipient logs in to it with this user and password, over TCP.
    pub donor: ConnectOptions,
    /// The server that becomes the copy: all that it has is replaced, its accounts too.
    pub recipient: ConnectOptions,
    /// Where the recipient finds the donor; as `donor` says if absent, or, if that is a socket, at 127.0.0.1.
    pub donor_address: Option<(String, u16)>,
    /// How long to wait for the recipient when it restarts with its new data.
    pub restart_wait_max: Duration,
}

/// What is to be done, and that it can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClonePlan {
    /// The donor's version.
    pub version: String,
    /// Where the recipient will look for the donor.
    pub donor_address: (String, u16),
    /// About how much there is to copy, in bytes.
    pub bytes_estimate: u64,
}

/// What was done.
#[derive(Debug, Clone)]
pub struct CloneReport {
    /// Where the data stands.
    pub point: BinaryCopyPosition,
    /// What was copied, in bytes.
    pub bytes: u64,
    /// How long it took, the recipient's restart included.
    pub elapsed: Duration,
}

/// Connections to both, and the plan.
struct Prepared {
    recipient: Connection,
    plan: ClonePlan,
}

/// Looks whether the one can be cloned into the other, and says what would be done. Nothing is changed.
///
/// # Errors
/// [`BulkError::BinaryUnsupported`] with why not; [`BulkError::Session`], also if a user lacks a right.
pub async fn plan(options: &CloneOptions) -> Result<ClonePlan, BulkError> {
    let Prepared { recipient, plan } = prepare(options).await?;
    recipient.close().await;
    Ok(plan)
}

/// Clones, and waits until the recipient is back with its new data.
///
/// # Errors
/// [`BulkError::BinaryUnsupported`] before anything is changed; [`BulkError::BinaryFailed`] if the recipient gives up, which
/// may leave it without data; [`BulkError::BinaryInterrupted`] if it was told to stop: then the recipient is told, too;
/// [`BulkError::RecipientDown`] if it has everything and does not come back, or that is not waited for.
pub async fn clone(
    options: &CloneOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
) -> Result<CloneReport, BulkError> {
    let begun = Instant::now();
    let Prepared { mut recipient, plan } = prepare(options).await?;
    let (host, port) = &plan.donor_address;
    progress.expect_bytes(plan.bytes_estimate);
    let valid = format!("SET GLOBAL clone_valid_donor_list = {}", literal(&format!("{host}:{port}")));
    recipient.execute(&valid).await?;
    let id = recipient.server().connection_id;
    let donor = &options.donor;
    // The password stands in no log of the server's, and in no message: errors of CLONE do not repeat it.
    let sql = format!(
        "CLONE INSTANCE FROM {}@{}:{port} IDENTIFIED BY {}",
        literal(&donor.user),
        literal(host),
        literal(donor.password.expose())
    );
    info!(donor = %format!("{host}:{port}"), recipient = recipient.endpoint(), "cloning");
    let mut cloning = std::pin::pin!(execute_when_free(&mut recipient, &sql));
    let cloned = tokio::select! {
        biased;
        cloned = &mut cloning => Some(cloned),
        () = stop.cancelled() => give_up(&options.recipient, id, cloning).await,
        never = watch(&options.recipient, progress) => match never {},
    };
    let cut = || BulkError::BinaryInterrupted {
        left: format!(
            "{} was told to give the copy up, and keeps nothing of it: run the same again",
            options.recipient.endpoint
        ),
    };
    let silent = || BulkError::BinaryInterrupted {
        left: format!(
            "{} was told to give the copy up, and has not answered: performance_schema.clone_status there tells whether \
             it still copies",
            options.recipient.endpoint
        ),
    };
    match cloned.ok_or_else(silent)? {
        // A supervised server restarts at once, and the connection breaks.
        Ok(()) => {}
        Err(SessionError::Server { error, .. }) if error.number != RESTART_FAILED && stop.is_cancelled() => {
            return Err(cut());
        }
        Err(SessionError::Server { error, .. }) if error.number != RESTART_FAILED => {
            return Err(BulkError::BinaryFailed {
                what: "the recipient's CLONE INSTANCE".into(),
                reason: error.to_string(),
                left: "what it had before it began is gone, but for a failure at the very start".into(),
            });
        }
        Err(SessionError::Server { .. }) => {
            info!("the recipient has everything and shuts down: start it again, if nothing else does");
        }
        Err(error) => debug!(%error, "the recipient restarts"),
    }
    let (point, bytes) = tokio::select! {
        back = wait_back(options) => back?,
        () = stop.cancelled() => {
            return Err(BulkError::RecipientDown {
                server: options.recipient.endpoint.to_string(),
                seconds: begun.elapsed().as_secs(),
                reason: "interrupted".into(),
            });
        }
    };
    Ok(CloneReport { point, bytes, elapsed: begun.elapsed() })
}

/// Runs the statement, again if a copy that was given up has not ended yet. The recipient had no databases to lose.
async fn execute_when_free(recipient: &mut Connection, sql: &str) -> Result<(), SessionError> {
    let begun = Instant::now();
    loop {
        match recipient.execute(sql).await {
            Err(SessionError::Server { error, .. }) if is_busy(&error) && begun.elapsed() < BUSY_MAX => {
                debug!(%error, "waits for another copy to end");
                tokio::time::sleep(LOOK).await;
            }
            executed => return executed.map(drop),
        }
    }
}

fn is_busy(error: &ServerError) -> bool {
    error.number == BUSY || error.message.expose().contains(&format!(" {BUSY} "))
}

async fn prepare(options: &CloneOptions) -> Result<Prepared, BulkError> {
    let mut donor = Connection::connect(&options.donor).await?;
    let patient = ConnectOptions { read_timeout: None, ..options.recipient.clone() };
    let mut recipient = Connection::connect(&patient).await?;
    for connection in [&donor, &recipient] {
        if connection.server().flavour != Flavour::MySql {
            let reason = format!(
                "{} is no MySQL server; MariaDB's way is mariadb-backup, into a folder",
                connection.endpoint()
            );
            return Err(BulkError::BinaryUnsupported { reason });
        }
    }
    check_grants(&mut donor, Purpose::Donate).await?;
    super::not_fed(&mut donor).await?;
    check_grants(&mut recipient, Purpose::Clone).await?;
    let versions =
        [text(&mut donor, "SELECT VERSION()").await?, text(&mut recipient, "SELECT VERSION()").await?];
    version_check::may_clone(&versions[0], &versions[1])
        .map_err(|reason| BulkError::BinaryUnsupported { reason })?;
    let uuid = "SELECT @@server_uuid";
    if text(&mut donor, uuid).await? == text(&mut recipient, uuid).await? {
        let reason =
            "donor and recipient are the same server, or one was copied with its auto.cnf".to_owned();
        return Err(BulkError::BinaryUnsupported { reason });
    }
    has_plugin(&mut donor).await?;
    has_plugin(&mut recipient).await?;
    let system = literals(SYSTEM_SCHEMAS);
    let left_out = names(
        &mut donor,
        &format!(
            "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME, ' (', ENGINE, ')') FROM information_schema.TABLES \
             WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE <> 'InnoDB' AND TABLE_SCHEMA NOT IN ({system}) ORDER BY 1"
        ),
    )
    .await?;
    if let Some(left_out) = left_out {
        let reason = format!("tables of other engines than InnoDB would be empty in the copy: {left_out}");
        return Err(BulkError::BinaryUnsupported { reason });
    }
    let there = names(
        &mut recipient,
        &format!("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN ({system}) ORDER BY 1"),
    )
    .await?;
    if let Some(there) = there {
        let reason = format!(
            "{} is not empty, and cloning drops all that it has: it has the databases {there}; drop them first",
            recipient.endpoint()
        );
        return Err(BulkError::BinaryUnsupported { reason });
    }
    let donor_address = address(options, &mut donor).await?;
    let bytes =
        "SELECT CAST(SUM(DATA_LENGTH + INDEX_LENGTH + DATA_FREE) AS UNSIGNED) FROM information_schema.TABLES";
    let bytes_estimate = text(&mut donor, bytes).await?.parse().unwrap_or(0);
    donor.close().await;
    let [version, _] = versions;
    Ok(Prepared { recipient, plan: ClonePlan { version, donor_address, bytes_estimate } })
}

/// Where the recipient finds the donor.
async fn address(options: &CloneOptions, donor: &mut Connection) -> Result<(String, u16), BulkError> {
    if let Some(address) = &options.donor_address {
        return Ok(address.clone());
    }
    match &options.donor.endpoint {
        Endpoint::Tcp { host, port } => Ok((host.clone(), *port)),
        Endpoint::Unix { .. } => {
            let port = text(donor, "SELECT @@port").await?;
            let reason = || "the donor is reached by a socket and listens at no port".to_owned();
            let port = port.parse().ok().filter(|port| *port > 0);
            Ok(("127.0.0.1".into(), port.ok_or_else(|| BulkError::BinaryUnsupported { reason: reason() })?))
        }
    }
}

async fn has_plugin(connection: &mut Connection) -> Result<(), BulkError> {
    let sql = "SELECT PLUGIN_STATUS FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'clone'";
    if connection.query(sql).await?.scalar() == Some("ACTIVE") {
        return Ok(());
    }
    let reason = format!(
        "{} has no clone plugin; run there: INSTALL PLUGIN clone SONAME 'mysql_clone.so'",
        connection.endpoint()
    );
    Err(BulkError::BinaryUnsupported { reason })
}

async fn text(connection: &mut Connection, sql: &str) -> Result<String, BulkError> {
    Ok(connection.query(sql).await?.scalar().unwrap_or_default().to_owned())
}

/// Some of the names that a statement gives, and how many more there are; `None` if it gives none.
async fn names(connection: &mut Connection, sql: &str) -> Result<Option<String>, BulkError> {
    let answer = connection.query(sql).await?;
    let names: Vec<_> = answer.rows.iter().filter_map(|row| row.get_str(0)).collect();
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    Ok((!names.is_empty()).then_some(shown + &more))
}

/// Has the recipient give up what `clone_plugin` waits for, and gives its answer: until then it keeps locks on the donor. `None` if it
/// does not answer.
async fn give_up<T>(
    recipient: &ConnectOptions,
    id: u32,
    mut cloning: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    for _ in 0..KILLS_MAX {
        // One that has everything by then shuts down, and cannot be told.
        if let Err(error) = kill(recipient, id).await {
            debug!(%error, "cannot be told to give up");
        }
        // It counts for nothing if the statement had not begun yet.
        if let Ok(cloned) = tokio::time::timeout(LOOK, &mut cloning).await {
            return Some(cloned);
        }
    }
    None
}

async fn kill(recipient: &ConnectOptions, id: u32) -> Result<(), BulkError> {
    let mut connection = Connection::connect(recipient).await?;
    connection.execute(&format!("KILL QUERY {id}")).await?;
    connection.close().await;
    Ok(())
}

/// Shows how far the recipient is. Never ends: that it cannot be asked is no matter.
async fn watch(recipient: &ConnectOptions, progress: &BulkProgress) -> Infallible {
    let mut connection = None;
    let mut shown = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let mut asked = match connection.take() {
            Some(connection) => connection,
            None => match Connection::connect(recipient).await {
                Ok(connection) => connection,
                Err(error) => {
                    debug!(%error, "cannot be asked how far it is");
                    continue;
                }
            },
        };
        match bytes_copied(&mut asked).await {
            Ok(bytes) => {
                progress.rows(0, bytes.saturating_sub(shown));
                shown = shown.max(bytes);
                connection = Some(asked);
            }
            Err(error) => debug!(%error, "cannot be asked how far it is"),
        }
    }
}

async fn bytes_copied(connection: &mut Connection) -> Result<u64, SessionError> {
    // It is kept over the restart.
    let sql = "SELECT CAST(SUM(DATA) AS UNSIGNED) FROM performance_schema.clone_progress";
    Ok(connection.query(sql).await?.first().and_then(|row| row.get_u64(0)).unwrap_or(0))
}

/// Waits until the recipient serves its new data, and says where these stand and how many bytes were copied. Its accounts are the donor's now.
async fn wait_back(options: &CloneOptions) -> Result<(BinaryCopyPosition, u64), BulkError> {
    let begun = Instant::now();
    let of_donor = ConnectOptions {
        user: options.donor.user.clone(),
        password: options.donor.password.clone(),
        ..options.recipient.clone()
    };
    loop {
        let mut last = String::new();
        for options in [&options.recipient, &of_donor] {
            match Connection::connect(options).await {
                Ok(mut connection) => match state(&mut connection).await {
                    Ok(Some(point)) => return Ok((point, bytes_copied(&mut connection).await?)),
                    Ok(None) => last = "it has not finished".into(),
                    // It goes down, or this user may not look.
                    Err(BulkError::Session(error)) => last = error.to_string(),
                    Err(error) => return Err(error),
                },
                Err(error) => last = error.to_string(),
            }
        }
        if begun.elapsed() >= options.restart_wait_max {
            return Err(BulkError::RecipientDown {
                server: options.recipient.endpoint.to_string(),
                seconds: options.restart_wait_max.as_secs(),
                reason: last,
            });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Where the recipient's data stand, once it has all of it; `None` while it still works at it.
async fn state(connection: &mut Connection) -> Result<Option<BinaryCopyPosition>, BulkError> {
    let sql = "SELECT STATE, ERROR_NO, ERROR_MESSAGE, BINLOG_FILE, BINLOG_POSITION, GTID_EXECUTED \
               FROM performance_schema.clone_status";
    let answer = connection.query(sql).await?;
    let Some(row) = answer.first() else { return Ok(None) };
    let field = |index| row.get_str(index).filter(|text| !text.is_empty()).map(str::to_owned);
    match row.get_str(0) {
        Some("Completed") => Ok(Some(BinaryCopyPosition {
            gtid_set: field(5).map(|set| set.replace('\n', "")),
            binlog_file: field(3),
            binlog_position: row.get_u64(4),
        })),
        Some("Failed") => Err(BulkError::BinaryFailed {
            what: "the recipient's CLONE INSTANCE".into(),
            reason: format!("{} ({})", field(2).unwrap_or_default(), field(1).unwrap_or_default()),
            left: "its old data are gone".into(),
        }),
        _ => Ok(None),
    }
}
