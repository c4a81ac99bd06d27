//! Enables and disables lossless semi-sync on a source.
//!
//! MySQL keeps the settings over a restart (`SET PERSIST`). MariaDB does not keep them: the settings must be
//! in its option file. A note for the operator then says this.

use tailwater_session::Connection;
use tailwater_topology::server_probe;
use tailwater_topology::server_state::{SEMI_SYNC_TIMEOUT_MS_MIN, SemiSyncSource, WaitPoint};
use tailwater_wire::Flavour;

use super::replication_setup::{failed, run};
use crate::error::ManagerError;

/// How long a commit waits for an ACK before the server falls back to asynchronous replication, in
/// milliseconds. The value is 23 days, which in practice means for ever. It is below 2^31, because deadlines
/// overflow above that in some releases.
pub const ACK_TIMEOUT_MS: u32 = 2_000_000_000;

/// The most ACKs that a commit can wait for.
const ACKS_MAX: u32 = 65_535;

const MAKING: &str = "enabling the wait for ACKs";
const UNMAKING: &str = "disabling the wait for ACKs";

/// Names of the semi-sync variables on this server. MySQL has two equivalent plugins: one with newer and one
/// with older names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SemiSyncNames {
    source: &'static str,
    wait_nobody: &'static str,
    /// Name of the variable for the number of ACKs. `None` on MariaDB, which always waits for one ACK.
    wait_count: Option<&'static str>,
    /// Whether `SET PERSIST` can persist the settings.
    persists: bool,
}

const MYSQL: SemiSyncNames = SemiSyncNames {
    source: "rpl_semi_sync_source",
    wait_nobody: "wait_no_replica",
    wait_count: Some("wait_for_replica_count"),
    persists: true,
};

const MYSQL_OLDER: SemiSyncNames = SemiSyncNames {
    source: "rpl_semi_sync_master",
    wait_nobody: "wait_no_slave",
    wait_count: Some("wait_for_slave_count"),
    persists: true,
};

const MARIADB: SemiSyncNames = SemiSyncNames { wait_count: None, persists: false, ..MYSQL_OLDER };

/// Names of the variable that enables semi-sync on a replica.
const REPLICA_SIDES: [&str; 2] = ["rpl_semi_sync_replica_enabled", "rpl_semi_sync_slave_enabled"];

/// Which sides of semi-sync were enabled, so that this state can be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SemiSyncSides {
    /// Semi-sync was enabled for the server as a source.
    pub source: bool,
    /// Semi-sync was enabled for the server as a replica.
    pub replica: bool,
}

/// A server that is fully configured as a semi-sync source, but where waiting for ACKs is not enabled yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreparedSource {
    spelling: SemiSyncNames,
    acks: u32,
    /// Which sides of semi-sync were enabled before.
    pub before: SemiSyncSides,
}

impl PreparedSource {
    /// Returns the number of ACKs that a commit will wait for.
    pub fn acks(&self) -> u32 {
        self.acks
    }
}

/// Makes every further commit wait for `acks` ACKs without a time-out, before the engine commits
/// (`AFTER_SYNC`). Commits wait even while no acker is connected. Loads the plugin if needed, and disables
/// the replica side. Returns which sides were enabled before, and a note for the operator, if any.
///
/// # Errors
/// [`ManagerError::ActionFailed`] if the server cannot wait for so many ACKs, or does not wait afterwards;
/// [`ManagerError::Session`].
pub async fn make_source(
    connection: &mut Connection,
    acks: u32,
) -> Result<(SemiSyncSides, Option<String>), ManagerError> {
    let prepared = prepare_source(connection, acks).await?;
    enable_waiting(connection, &prepared).await?;
    let note = settle(connection, &prepared).await?;
    Ok((prepared.before, note))
}

/// The first part of [`make_source`], which has no effect on commits: loads the plugin and sets everything
/// except the variable that enables waiting.
///
/// # Errors
/// As [`make_source`].
pub async fn prepare_source(connection: &mut Connection, acks: u32) -> Result<PreparedSource, ManagerError> {
    let before = semi_sync_sides(connection).await?;
    Ok(PreparedSource { spelling: set_up(connection, acks).await?, acks, before })
}

/// The second part of [`make_source`]: makes commits wait until the next restart, with one statement and one
/// check.
///
/// # Errors
/// As [`make_source`].
pub async fn enable_waiting(
    connection: &mut Connection,
    prepared: &PreparedSource,
) -> Result<(), ManagerError> {
    // If semi-sync is already enabled, no statement is executed. On MariaDB a statement would hide whether
    // the value comes from the option file.
    if !prepared.before.source {
        run(connection, &format!("SET GLOBAL {}_enabled = 1", prepared.spelling.source)).await?;
    }
    verify_waiting(connection, prepared.acks).await
}

/// The last part of [`make_source`], which may take as long as an fsync. Persists waiting if the server can,
/// and disables the replica side. Returns a note for the operator, if any.
///
/// # Errors
/// As [`make_source`].
pub async fn settle(
    connection: &mut Connection,
    prepared: &PreparedSource,
) -> Result<Option<String>, ManagerError> {
    let SemiSyncNames { source, persists, .. } = prepared.spelling;
    if persists {
        run(connection, &format!("SET PERSIST {source}_enabled = 1")).await?;
    }
    if prepared.before.replica {
        set_replica_side(connection, false).await?;
    }
    if persists {
        return Ok(None);
    }
    let survives_restart =
        server_probe::semi_sync(connection).await?.0.is_some_and(|source| source.survives_restart);
    Ok((!survives_restart).then(|| {
        "MariaDB keeps the semi-sync settings only until a restart: write them into the option file; otherwise, after a \
         restart, commits do not wait for ACKs"
            .to_owned()
    }))
}

/// Sets everything except the variable that enables waiting. On MySQL every value is persisted, even if the
/// running server already has it.
async fn set_up(connection: &mut Connection, acks: u32) -> Result<SemiSyncNames, ManagerError> {
    let flavour = connection.server().flavour;
    if !(1..=ACKS_MAX).contains(&acks) {
        let reason = format!("a commit cannot wait for {acks} ACKs: the number must be 1 to {ACKS_MAX}");
        return Err(failed(connection, MAKING, reason));
    }
    if flavour == Flavour::MariaDb && acks != 1 {
        let reason = format!("MariaDB waits for one ACK, not for {acks}: set semi_sync_acks = 1");
        return Err(failed(connection, MAKING, reason));
    }
    let found = match spelling(connection).await? {
        Some(spelling) => spelling,
        None => load_plugin(connection).await?,
    };
    let current = server_probe::semi_sync(connection).await?.0;
    let SemiSyncNames { source, wait_nobody, wait_count, persists } = found;
    let scope = if persists { "PERSIST" } else { "GLOBAL" };
    // On MariaDB a value that already matches is not set again. A value that a statement sets does not
    // survive a restart, and would hide that the option file has the same value.
    let current = current.filter(|_| !persists);
    let is_set = |is_set: fn(&SemiSyncSource) -> bool| current.as_ref().is_some_and(is_set);
    let mut settings = Vec::new();
    if !is_set(|source| source.timeout_ms >= SEMI_SYNC_TIMEOUT_MS_MIN) {
        settings.push(format!("{scope} {source}_timeout = {ACK_TIMEOUT_MS}"));
    }
    if !is_set(|source| source.wait_point == WaitPoint::AfterSync) {
        settings.push(format!("{scope} {source}_wait_point = 'AFTER_SYNC'"));
    }
    if !is_set(|source| source.wait_no_replica) {
        settings.push(format!("{scope} {source}_{wait_nobody} = 1"));
    }
    settings.extend(wait_count.map(|name| format!("{scope} {source}_{name} = {acks}")));
    if !settings.is_empty() {
        run(connection, &format!("SET {}", settings.join(", "))).await?;
    }
    Ok(found)
}

/// Verifies that every commit now waits for `acks` ACKs, as the rules of lossless failover require.
///
/// # Errors
/// [`ManagerError::ActionFailed`] with the settings that differ.
pub async fn verify_waiting(connection: &mut Connection, acks: u32) -> Result<(), ManagerError> {
    let Some(source) = server_probe::semi_sync_now(connection).await? else {
        return Err(failed(connection, MAKING, "semi-sync is not loaded".to_owned()));
    };
    let mut wrong = Vec::new();
    let mut hold = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    hold(source.enabled && source.active, "semi-sync is not in force");
    hold(source.wait_point == WaitPoint::AfterSync, "the server does not wait before the engine commits");
    hold(source.wait_no_replica, "the server does not wait while no acker is connected");
    hold(source.timeout_ms >= SEMI_SYNC_TIMEOUT_MS_MIN, "the semi-sync time-out is too short");
    hold(source.acks_needed == acks, "the server waits for a different number of ACKs");
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(failed(connection, MAKING, wrong.join(", "))),
    }
}

/// Makes commits wait again on a former primary whose writes were paused, as after [`make_source`]. Does
/// nothing if the server still waits for at least `acks` ACKs. Returns a note for the operator, if any.
///
/// # Errors
/// As [`make_source`]. If `acks` is 0, it is also an error if the server does not wait.
pub async fn restore_waiting(connection: &mut Connection, acks: u32) -> Result<Option<String>, ManagerError> {
    let needed = server_probe::semi_sync_now(connection).await?.map_or(0, |source| source.acks_needed);
    let waits = verify_waiting(connection, needed.max(acks).max(1)).await;
    if waits.is_ok() || acks == 0 {
        return waits.map(|()| None);
    }
    Ok(make_source(connection, acks).await?.1)
}

/// Undoes [`make_source`]: restores the sides that were enabled before, or disables waiting if that is
/// unknown. Changes nothing while commits wait, because they would be reported to clients without an ACK.
///
/// # Errors
/// [`ManagerError::ActionFailed`] if commits wait; [`ManagerError::Session`].
pub async fn disable_source(connection: &mut Connection, before: SemiSyncSides) -> Result<(), ManagerError> {
    let (source, _) = server_probe::semi_sync(connection).await?;
    if let Some(state) = source.filter(|state| state.enabled && !before.source) {
        if state.waiting_sessions > 0 {
            let reason = format!(
                "{} commits wait for ACKs and would be reported to clients without an ACK; end those sessions first",
                state.waiting_sessions
            );
            return Err(failed(connection, UNMAKING, reason));
        }
        if let Some(SemiSyncNames { source, persists, .. }) = spelling(connection).await? {
            let scope = if persists { "PERSIST" } else { "GLOBAL" };
            run(connection, &format!("SET {scope} {source}_enabled = 0")).await?;
        }
    }
    if before.replica {
        set_replica_side(connection, true).await?;
    }
    Ok(())
}

/// Ensures that a replica does not wait for ACKs after a restart: no acker would send them, and its applier
/// would block. MariaDB persists no settings, so there the option file decides.
///
/// # Errors
/// [`ManagerError::Session`].
pub async fn disable_after_restart(connection: &mut Connection) -> Result<(), ManagerError> {
    match spelling(connection).await? {
        Some(SemiSyncNames { source, persists: true, .. }) => {
            run(connection, &format!("SET PERSIST {source}_enabled = 0")).await
        }
        _ => Ok(()),
    }
}

async fn semi_sync_sides(connection: &mut Connection) -> Result<SemiSyncSides, ManagerError> {
    let (source, replica) = server_probe::semi_sync(connection).await?;
    Ok(SemiSyncSides {
        source: source.is_some_and(|source| source.enabled),
        replica: replica.is_some_and(|replica| replica.enabled),
    })
}

/// Returns the names of the semi-sync variables on this server; `None` if the plugin is not loaded.
async fn spelling(connection: &mut Connection) -> Result<Option<SemiSyncNames>, ManagerError> {
    if connection.server().flavour == Flavour::MariaDb {
        return Ok(Some(MARIADB));
    }
    for spelling in [MYSQL, MYSQL_OLDER] {
        if variable(connection, &format!("{}_enabled", spelling.source)).await? {
            return Ok(Some(spelling));
        }
    }
    Ok(None)
}

async fn variable(connection: &mut Connection, name: &str) -> Result<bool, ManagerError> {
    Ok(connection.query(&format!("SHOW GLOBAL VARIABLES LIKE '{name}'")).await?.first().is_some())
}

/// Loads the plugin. INSTALL PLUGIN writes a system table, which `super_read_only` forbids for every account.
/// `super_read_only` is therefore off for this statement only; `read_only` stays on.
async fn load_plugin(connection: &mut Connection) -> Result<SemiSyncNames, ManagerError> {
    const INSTALL: &str = "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'";
    let answer = connection.query("SELECT @@global.super_read_only").await?;
    if answer.scalar() != Some("1") {
        run(connection, INSTALL).await?;
        return Ok(MYSQL);
    }
    run(connection, "SET GLOBAL super_read_only = 0").await?;
    let installed = run(connection, INSTALL).await;
    run(connection, "SET GLOBAL super_read_only = 1").await?;
    installed.map(|()| MYSQL)
}

async fn set_replica_side(connection: &mut Connection, on: bool) -> Result<(), ManagerError> {
    for name in REPLICA_SIDES {
        if variable(connection, name).await? {
            let scope = if connection.server().flavour == Flavour::MySql { "PERSIST" } else { "GLOBAL" };
            run(connection, &format!("SET {scope} {name} = {}", u8::from(on))).await?;
        }
    }
    Ok(())
}
