//! Makes a MySQL server clone another one with the clone plugin: all InnoDB data, all accounts, and the
//! binlog position and GTID set of the donor.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_session::{
    AccountPurpose, ConnectOptions, Connection, Endpoint, ServerError, SessionError, check_privileges,
};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::{BinaryCopyPosition, version_check};
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_wire::sql_quote::{string_literal, string_literals};

/// Error number of a recipient that has copied all the data but cannot restart, because no supervisor manages
/// it.
const RESTART_FAILED: u16 = 3707;
/// Databases that every server has and that do not count as data. The database `tailwater` is not in the
/// list: it counts as data that the clone would drop.
const SYSTEM_SCHEMAS: [&str; 4] = ["mysql", "sys", "information_schema", "performance_schema"];
/// Error number of a server that already takes part in another clone. If the donor is busy, the recipient
/// reports another error, whose message contains this number.
const BUSY: u16 = 3634;
/// Maximum wait for the end of an earlier clone that was just cancelled.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// Maximum number of names of tables or databases in an error message.
const NAMED_MAX: usize = 5;
/// Interval between two polls that read the recipient's progress, or test whether it has restarted.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How many times to send KILL to the recipient, [`POLL_INTERVAL`] apart.
const KILLS_MAX: u32 = 20;

/// The donor and the recipient of a clone.
#[derive(Debug, Clone)]
pub struct CloneOptions {
    /// The server to copy. The recipient logs in to the donor over TCP, with this user and password.
    pub donor: ConnectOptions,
    /// The server that becomes the copy. The clone replaces all its data, including its accounts.
    pub recipient: ConnectOptions,
    /// The address at which the recipient reaches the donor. Default: the address in `donor`, or 127.0.0.1 if
    /// `donor` is a socket.
    pub donor_address: Option<(String, u16)>,
    /// Maximum wait for the recipient to restart with its new data.
    pub restart_wait_max: Duration,
}

/// What a clone would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClonePlan {
    /// The donor's version.
    pub version: String,
    /// The address at which the recipient reaches the donor.
    pub donor_address: (String, u16),
    /// Estimated size of the donor's data in bytes.
    pub bytes_estimate: u64,
}

/// The result of a clone.
#[derive(Debug, Clone)]
pub struct CloneReport {
    /// The binlog position and GTID set of the copied data.
    pub point: BinaryCopyPosition,
    /// Number of copied bytes.
    pub bytes: u64,
    /// How long the clone took, including the restart of the recipient.
    pub elapsed: Duration,
}

/// A connection to the recipient, and the plan of the clone.
struct PreparedClone {
    recipient: Connection,
    plan: ClonePlan,
}

/// Checks whether the donor can be cloned to the recipient, and returns the plan. Changes nothing on either
/// server.
///
/// # Errors
/// [`BulkError::BinaryUnsupported`] with the reason; [`BulkError::Session`], also if an account lacks a
/// privilege.
pub async fn plan(options: &CloneOptions) -> Result<ClonePlan, BulkError> {
    let PreparedClone { recipient, plan } = prepare(options).await?;
    recipient.close().await;
    Ok(plan)
}

/// Clones the donor, and waits until the recipient has restarted with its new data. If the caller cancels the
/// work, the clone is also cancelled on the recipient.
///
/// # Errors
/// - [`BulkError::BinaryUnsupported`], before any change.
/// - [`BulkError::BinaryFailed`] if the recipient fails, which may leave it without data.
/// - [`BulkError::BinaryInterrupted`] if cancelled.
/// - [`BulkError::RecipientDown`] if the recipient has all the data, but does not restart in time.
pub async fn clone(
    options: &CloneOptions,
    progress: &Arc<BulkProgress>,
    stop: &CancellationToken,
) -> Result<CloneReport, BulkError> {
    let started = Instant::now();
    let PreparedClone { mut recipient, plan } = prepare(options).await?;
    let (host, port) = &plan.donor_address;
    progress.expect_bytes(plan.bytes_estimate);
    let valid = format!("SET GLOBAL clone_valid_donor_list = {}", string_literal(&format!("{host}:{port}")));
    recipient.execute(&valid).await?;
    let id = recipient.server().connection_id;
    let donor = &options.donor;
    // The statement contains the password. The server does not write the password to any log, and error
    // messages of CLONE do not contain it.
    let sql = format!(
        "CLONE INSTANCE FROM {}@{}:{port} IDENTIFIED BY {}",
        string_literal(&donor.user),
        string_literal(host),
        string_literal(donor.password.expose())
    );
    info!(donor = %format!("{host}:{port}"), recipient = recipient.endpoint(), "cloning");
    let mut cloning = std::pin::pin!(execute_when_free(&mut recipient, &sql));
    let cloned = tokio::select! {
        biased;
        cloned = &mut cloning => Some(cloned),
        () = stop.cancelled() => give_up(&options.recipient, id, cloning).await,
        never = watch(&options.recipient, progress) => match never {},
    };
    check_cloned(options, cloned, stop.is_cancelled())?;
    let (point, bytes) = tokio::select! {
        back = wait_for_restart(options) => back?,
        () = stop.cancelled() => {
            return Err(BulkError::RecipientDown {
                server: options.recipient.endpoint.to_string(),
                seconds: started.elapsed().as_secs(),
                reason: "interrupted".into(),
            });
        }
    };
    Ok(CloneReport { point, bytes, elapsed: started.elapsed() })
}

/// Checks the result of CLONE INSTANCE. `cloned` is `None` if the recipient did not answer after the
/// cancellation.
fn check_cloned(
    options: &CloneOptions,
    cloned: Option<Result<(), SessionError>>,
    is_cancelled: bool,
) -> Result<(), BulkError> {
    let recipient = &options.recipient.endpoint;
    let Some(cloned) = cloned else {
        let left = format!(
            "the clone was cancelled on {recipient}, which has not answered: performance_schema.clone_status there \
             shows whether it still copies"
        );
        return Err(BulkError::BinaryInterrupted { left });
    };
    match cloned {
        Ok(()) => Ok(()),
        Err(SessionError::Server { error, .. }) if error.number != RESTART_FAILED && is_cancelled => {
            let left = format!(
                "the clone was cancelled on {recipient}, which has discarded the copied data: run the same command again"
            );
            Err(BulkError::BinaryInterrupted { left })
        }
        Err(SessionError::Server { error, .. }) if error.number != RESTART_FAILED => {
            Err(BulkError::BinaryFailed {
                what: "the recipient's CLONE INSTANCE".into(),
                reason: error.to_string(),
                left: "the former data of the recipient is lost, unless the clone failed at the very start"
                    .into(),
            })
        }
        Err(SessionError::Server { .. }) => {
            info!("the recipient has all data and shuts down: start it if no supervisor restarts it");
            Ok(())
        }
        // A server with a supervisor restarts at once, which breaks the connection.
        Err(error) => {
            debug!(%error, "the connection to the recipient broke; the recipient is restarting");
            Ok(())
        }
    }
}

/// Runs the CLONE statement. Repeats the statement while the recipient is still ending a cancelled clone. The
/// repetition loses no data, because the recipient had no databases before.
async fn execute_when_free(recipient: &mut Connection, sql: &str) -> Result<(), SessionError> {
    let started = Instant::now();
    loop {
        match recipient.execute(sql).await {
            Err(SessionError::Server { error, .. }) if is_busy(&error) && started.elapsed() < BUSY_MAX => {
                debug!(%error, "waiting for another clone operation to end");
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            executed => return executed.map(drop),
        }
    }
}

fn is_busy(error: &ServerError) -> bool {
    error.number == BUSY || error.message.expose().contains(&format!(" {BUSY} "))
}

async fn prepare(options: &CloneOptions) -> Result<PreparedClone, BulkError> {
    let mut donor = Connection::connect(&options.donor).await?;
    let patient = ConnectOptions { read_timeout: None, ..options.recipient.clone() };
    let mut recipient = Connection::connect(&patient).await?;
    for connection in [&donor, &recipient] {
        if connection.server().flavour != Flavour::MySql {
            let reason = format!(
                "{} is not a MySQL server; for MariaDB, --binary runs mariadb-backup into a folder",
                connection.endpoint()
            );
            return Err(BulkError::BinaryUnsupported { reason });
        }
    }
    check_privileges(&mut donor, AccountPurpose::CloneDonor).await?;
    super::refuse_channel_target(&mut donor).await?;
    check_privileges(&mut recipient, AccountPurpose::CloneRecipient).await?;
    let versions =
        [text(&mut donor, "SELECT VERSION()").await?, text(&mut recipient, "SELECT VERSION()").await?];
    version_check::may_clone(&versions[0], &versions[1])
        .map_err(|reason| BulkError::BinaryUnsupported { reason })?;
    let uuid = "SELECT @@server_uuid";
    if text(&mut donor, uuid).await? == text(&mut recipient, uuid).await? {
        let reason =
            "donor and recipient are the same server, or one is a file copy of the other with the same auto.cnf".to_owned();
        return Err(BulkError::BinaryUnsupported { reason });
    }
    check_plugin(&mut donor).await?;
    check_plugin(&mut recipient).await?;
    let system = string_literals(SYSTEM_SCHEMAS);
    let left_out = names(
        &mut donor,
        &format!(
            "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME, ' (', ENGINE, ')') FROM information_schema.TABLES \
             WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE <> 'InnoDB' AND TABLE_SCHEMA NOT IN ({system}) ORDER BY 1"
        ),
    )
    .await?;
    if let Some(left_out) = left_out {
        let reason =
            format!("only InnoDB tables are cloned, and these tables would be empty in the copy: {left_out}");
        return Err(BulkError::BinaryUnsupported { reason });
    }
    let databases = names(
        &mut recipient,
        &format!("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN ({system}) ORDER BY 1"),
    )
    .await?;
    if let Some(databases) = databases {
        let reason = format!(
            "{} is not empty, and cloning drops all its data: it has the databases {databases}; drop them first",
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
    Ok(PreparedClone { recipient, plan: ClonePlan { version, donor_address, bytes_estimate } })
}

/// Returns the address at which the recipient reaches the donor.
async fn address(options: &CloneOptions, donor: &mut Connection) -> Result<(String, u16), BulkError> {
    if let Some(address) = &options.donor_address {
        return Ok(address.clone());
    }
    match &options.donor.endpoint {
        Endpoint::Tcp { host, port } => Ok((host.clone(), *port)),
        Endpoint::Unix { .. } => {
            let port = text(donor, "SELECT @@port").await?;
            let reason = || "the donor is reached through a socket and listens on no TCP port".to_owned();
            let port = port.parse().ok().filter(|port| *port > 0);
            Ok(("127.0.0.1".into(), port.ok_or_else(|| BulkError::BinaryUnsupported { reason: reason() })?))
        }
    }
}

async fn check_plugin(connection: &mut Connection) -> Result<(), BulkError> {
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

/// Returns the first names in the result of a query, and how many more there are, as text; `None` if the
/// result is empty.
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

/// Cancels the clone on the recipient. Returns the result of `cloning`, or `None` if the recipient does not
/// answer. The function waits for that result because the recipient keeps locks on the donor until the clone
/// ends.
async fn give_up<T>(
    recipient: &ConnectOptions,
    id: u32,
    mut cloning: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    for _ in 0..KILLS_MAX {
        // A recipient that already has all the data is shutting down, and cannot be cancelled.
        if let Err(error) = kill(recipient, id).await {
            debug!(%error, "the clone cannot be cancelled");
        }
        // The KILL is repeated, because a KILL that arrives before the CLONE statement has started has no
        // effect.
        if let Ok(cloned) = tokio::time::timeout(POLL_INTERVAL, &mut cloning).await {
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

/// Reports the progress of the recipient until the caller drops the future. Ignores failed queries.
async fn watch(recipient: &ConnectOptions, progress: &BulkProgress) -> Infallible {
    let mut connection = None;
    let mut shown = 0;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let mut asked = match connection.take() {
            Some(connection) => connection,
            None => match Connection::connect(recipient).await {
                Ok(connection) => connection,
                Err(error) => {
                    debug!(%error, "cannot read the progress of the clone");
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
            Err(error) => debug!(%error, "cannot read the progress of the clone"),
        }
    }
}

async fn bytes_copied(connection: &mut Connection) -> Result<u64, SessionError> {
    // The recipient keeps the rows of this table over its restart.
    let sql = "SELECT CAST(SUM(DATA) AS UNSIGNED) FROM performance_schema.clone_progress";
    Ok(connection.query(sql).await?.first().and_then(|row| row.get_u64(0)).unwrap_or(0))
}

/// Waits until the recipient serves its new data. Returns the position of the data and the number of copied
/// bytes. The recipient now has the accounts of the donor.
async fn wait_for_restart(options: &CloneOptions) -> Result<(BinaryCopyPosition, u64), BulkError> {
    let started = Instant::now();
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
                    Ok(None) => last = "the clone has not finished".into(),
                    // Either the recipient is shutting down, or the account lacks the privilege to read the
                    // clone status.
                    Err(BulkError::Session(error)) => last = error.to_string(),
                    Err(error) => return Err(error),
                },
                Err(error) => last = error.to_string(),
            }
        }
        if started.elapsed() >= options.restart_wait_max {
            return Err(BulkError::RecipientDown {
                server: options.recipient.endpoint.to_string(),
                seconds: options.restart_wait_max.as_secs(),
                reason: last,
            });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the position of the recipient's data once the clone is complete; `None` while the clone runs.
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
            left: "the former data of the recipient is lost".into(),
        }),
        _ => Ok(None),
    }
}
