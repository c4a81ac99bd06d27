//! Makes a server wait for ACKs as the lossless rules want it, and no longer.
//!
//! MySQL keeps the settings over a restart (`SET PERSIST`). MariaDB cannot: there they have to stand in the option file,
//! and whoever switches them on here is told so.

use tailwater_session::Connection;
use tailwater_wire::Flavour;

use super::replication::{failed, run};
use crate::error::ManagerError;
use crate::lossless::ack_policy::TIMEOUT_MS_MIN;
use crate::observation::{SemiSyncSource, WaitPoint};
use crate::probe;

/// How long a commit waits for an ACK before the server gives up on semi-sync, in milliseconds: 23 days, so never; below
/// 2^31, beyond which deadlines overflow in some releases.
pub const ACK_TIMEOUT_MS: u32 = 2_000_000_000;

/// The most ACKs that a commit can need.
const ACKS_MAX: u32 = 65_535;

const MAKING: &str = "waiting for ACKs from now on";
const UNMAKING: &str = "waiting for ACKs no more";

/// How this server spells semi-sync: MySQL has two plugins that do the same, under the older and the newer words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SemiSyncNames {
    source: &'static str,
    wait_nobody: &'static str,
    /// MariaDB waits for one, and has no name for it.
    wait_count: Option<&'static str>,
    /// Whether a setting can be kept over a restart.
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

/// The names under which a server may have the replica's side.
const REPLICA_SIDES: [&str; 2] = ["rpl_semi_sync_replica_enabled", "rpl_semi_sync_slave_enabled"];

/// How a server's semi-sync stood, so that it can be made so again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SemiSyncSides {
    /// The source's side was on.
    pub source: bool,
    /// The replica's side was on.
    pub replica: bool,
}

/// A server on which all is set but that it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreparedSource {
    spelling: SemiSyncNames,
    acks: u32,
    /// How it stood.
    pub before: SemiSyncSides,
}

impl PreparedSource {
    /// ACKs that a commit will need.
    pub fn acks(&self) -> u32 {
        self.acks
    }
}

/// Has every commit from now on wait for `acks` ACKs without time-out, before its engine commits (`AFTER_SYNC`); also while
/// nobody is there to ACK. Loads the plugin if there is none, and switches the replica's side off. Tells how it stood, and
/// what has to be known, if anything.
///
/// # Errors
/// [`ManagerError::ActionFailed`] if it cannot wait for so many, or does not wait afterwards; those of the conversation.
pub async fn make_source(
    connection: &mut Connection,
    acks: u32,
) -> Result<(SemiSyncSides, Option<String>), ManagerError> {
    let prepared = prepare_source(connection, acks).await?;
    enable_waiting(connection, &prepared).await?;
    let note = settle(connection, &prepared).await?;
    Ok((prepared.before, note))
}

/// Does of [`make_source`] what changes nothing yet: the plugin is loaded, and all is set but that it waits.
///
/// # Errors
/// As [`make_source`].
pub async fn prepare_source(connection: &mut Connection, acks: u32) -> Result<PreparedSource, ManagerError> {
    let before = semi_sync_sides(connection).await?;
    Ok(PreparedSource { spelling: set_up(connection, acks).await?, acks, before })
}

/// Does of [`make_source`] what has it wait, until a restart: not more than one statement, and the look that it does.
///
/// # Errors
/// As [`make_source`].
pub async fn enable_waiting(
    connection: &mut Connection,
    prepared: &PreparedSource,
) -> Result<(), ManagerError> {
    // Where it is on it stays as it is: what MariaDB has from its option file a statement would hide.
    if !prepared.before.source {
        run(connection, &format!("SET GLOBAL {}_enabled = 1", prepared.spelling.source)).await?;
    }
    verify_waiting(connection, prepared.acks).await
}

/// Does the rest of [`make_source`], which may take the time of a sync: it waits after a restart, too, where the server keeps
/// settings, and has no replica's side. Tells what has to be known, if anything.
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
        probe::semi_sync(connection).await?.0.is_some_and(|source| source.survives_restart);
    Ok((!survives_restart).then(|| {
        "semi-sync is set for the running server only, as MariaDB keeps no settings: write it into the option file, or a \
         restart lets commits go without ACKs"
            .to_owned()
    }))
}

/// All but switching it on. On MySQL always, so that it is kept also where somebody set it for the running server alone.
async fn set_up(connection: &mut Connection, acks: u32) -> Result<SemiSyncNames, ManagerError> {
    let flavour = connection.server().flavour;
    if !(1..=ACKS_MAX).contains(&acks) {
        let reason = format!("a commit cannot wait for {acks} ACKs: 1 to {ACKS_MAX}");
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
    let stands = probe::semi_sync(connection).await?.0;
    let SemiSyncNames { source, wait_nobody, wait_count, persists } = found;
    let scope = if persists { "PERSIST" } else { "GLOBAL" };
    // What MariaDB has from its option file stays so: a statement would be forgotten in a restart, and nobody could tell then
    // that the file says the same.
    let stands = stands.filter(|_| !persists);
    let is_set = |is_set: fn(&SemiSyncSource) -> bool| stands.as_ref().is_some_and(is_set);
    let mut settings = Vec::new();
    if !is_set(|source| source.timeout_ms >= TIMEOUT_MS_MIN) {
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

/// Holds that every commit waits for `acks` ACKs now, as the lossless rules want it.
///
/// # Errors
/// [`ManagerError::ActionFailed`] with what is otherwise.
pub async fn verify_waiting(connection: &mut Connection, acks: u32) -> Result<(), ManagerError> {
    let Some(source) = probe::semi_sync_now(connection).await? else {
        return Err(failed(connection, MAKING, "semi-sync is not loaded".to_owned()));
    };
    let mut wrong = Vec::new();
    let mut hold = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    hold(source.enabled && source.active, "semi-sync is not in force");
    hold(source.wait_point == WaitPoint::AfterSync, "it does not wait before the engine commits");
    hold(source.wait_no_replica, "it does not wait while nobody is there to ACK");
    hold(source.timeout_ms >= TIMEOUT_MS_MIN, "its time-out is another");
    hold(source.acks_needed == acks, "it waits for another number of ACKs");
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(failed(connection, MAKING, wrong.join(", "))),
    }
}

/// Has a server that led before its writes were held wait as [`make_source`] does, unless it waits for so many ACKs still, or
/// more. Tells what has to be known, if anything.
///
/// # Errors
/// As [`make_source`]; without a number of ACKs, if it does not wait.
pub async fn restore_waiting(connection: &mut Connection, acks: u32) -> Result<Option<String>, ManagerError> {
    let needed = probe::semi_sync_now(connection).await?.map_or(0, |source| source.acks_needed);
    let waits = verify_waiting(connection, needed.max(acks).max(1)).await;
    if waits.is_ok() || acks == 0 {
        return waits.map(|()| None);
    }
    Ok(make_source(connection, acks).await?.1)
}

/// Undoes [`make_source`]: as it stood before, or without waiting where that is not known. Where commits wait, nothing is
/// done: they would be acknowledged without an ACK.
///
/// # Errors
/// [`ManagerError::ActionFailed`] if commits wait; those of the conversation.
pub async fn disable_source(connection: &mut Connection, before: SemiSyncSides) -> Result<(), ManagerError> {
    let (source, _) = probe::semi_sync(connection).await?;
    if let Some(state) = source.filter(|state| state.enabled && !before.source) {
        if state.waiting_sessions > 0 {
            let reason = format!(
                "{} commits wait for ACKs and would be told to clients without any; end those sessions first",
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

/// Has a replica that waits for no ACKs now wait for none after a restart either: nobody would give them, and its applier would stand
/// still. MariaDB keeps nothing, and has what its option file says.
///
/// # Errors
/// Those of the conversation.
pub async fn disable_after_restart(connection: &mut Connection) -> Result<(), ManagerError> {
    match spelling(connection).await? {
        Some(SemiSyncNames { source, persists: true, .. }) => {
            run(connection, &format!("SET PERSIST {source}_enabled = 0")).await
        }
        _ => Ok(()),
    }
}

async fn semi_sync_sides(connection: &mut Connection) -> Result<SemiSyncSides, ManagerError> {
    let (source, replica) = probe::semi_sync(connection).await?;
    Ok(SemiSyncSides {
        source: source.is_some_and(|source| source.enabled),
        replica: replica.is_some_and(|replica| replica.enabled),
    })
}

/// How it is spelt here; `None` if the plugin is not loaded.
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

/// The plugin is noted in a table of the server, which even those who may do everything cannot write to under
/// `super_read_only`: that is off for the statement, and `read_only` stays on.
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
