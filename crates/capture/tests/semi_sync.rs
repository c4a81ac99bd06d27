//! Tests what the capture reports when the source refuses it, and when the source loses its semi-sync
//! settings.

use std::time::Duration;

use anyhow::{Result, ensure};
use tailwater_capture::CaptureState;
use tailwater_capture::semi_sync_monitor::SemiSyncAlarm;
use tailwater_sandbox::ServerKind;
use tailwater_sandbox::replication_setup::{REPLICATION_PASSWORD, REPLICATION_USER};

use crate::capture_test_source::{Running, Source, run};

async fn refusals_recover(kind: ServerKind) -> Result<()> {
    let Some(mut source) = Source::start(kind, &[]).await? else { return Ok(()) };
    source.prepare().await?;
    let options = source.options("log", 91);

    // First the password is wrong, then privileges are missing, then semi-sync is off. The capture reports
    // each fault, and continues without a restart when the fault is corrected.
    let user = format!("{REPLICATION_USER}@'%'");
    source
        .configure(&format!(
            "ALTER USER {user} IDENTIFIED BY 'other'; REVOKE ALL PRIVILEGES, GRANT OPTION FROM {user}"
        ))
        .await?;
    let capture = Running::start(options)?;
    capture.until_waiting("rejected the login of user").await?;
    source.configure(&format!("ALTER USER {user} IDENTIFIED BY '{REPLICATION_PASSWORD}'")).await?;
    capture.until_waiting("GRANT REPLICATION SLAVE,").await?;
    source.configure(&format!("GRANT REPLICATION SLAVE ON *.* TO {user}")).await?;
    let other =
        if kind == ServerKind::Mysql97 { "GRANT REPLICATION CLIENT ON" } else { "GRANT BINLOG MONITOR ON" };
    capture.until_waiting(other).await?;
    source.configure(&format!("GRANT REPLICATION CLIENT ON *.* TO {user}")).await?;
    capture.until_waiting("semi-synchronous replication is not enabled").await?;
    ensure!(capture.status.snapshot().transactions == 0);
    source.server.enable_semi_sync_source().await?;
    capture.until_streaming().await?;
    source.write(20).await?;
    source.check_complete("log").await?;

    // Each wrong semi-sync setting raises an alarm, which ends when the setting is corrected.
    let side = if kind == ServerKind::Mysql97 { "source" } else { "master" };
    let set = |name: &str, value: &str| format!("SET GLOBAL rpl_semi_sync_{side}_{name}={value};");
    capture.until("no alarm", |now| now.alarms.is_empty()).await?;
    let change = |name: &'static str, bad: &'static str, good: &'static str, alarm: SemiSyncAlarm| {
        let (bad, good) = (set(name, bad), set(name, good));
        let (source, capture) = (&source, &capture);
        async move {
            source.server.sql(&bad).await?;
            capture.until(&format!("{alarm}"), |now| now.alarms.contains(&alarm)).await?;
            source.server.sql(&good).await?;
            capture.until("the alarm to end", |now| now.alarms.is_empty()).await?;
            anyhow::Ok(())
        }
    };
    change("timeout", "5000", "2000000000", SemiSyncAlarm::TimeoutShort(Duration::from_secs(5))).await?;
    change("wait_point", "'AFTER_COMMIT'", "'AFTER_SYNC'", SemiSyncAlarm::WaitsAfterCommit).await?;

    source.server.sql(&set("enabled", "0")).await?;
    capture.until("an alarm", |now| now.alarms.contains(&SemiSyncAlarm::Disabled)).await?;
    source.server.sql(&set("enabled", "1")).await?;
    source.write(20).await?;
    capture.until("the alarm to end after semi-sync was enabled", |now| now.alarms.is_empty()).await?;

    unacknowledged_commits_are_counted(&mut source, &capture, &set).await?;
    ensure!(capture.status.snapshot().state == CaptureState::Streaming);
    source.check_complete("log").await?;
    source.check_ledger("log")?;
    capture.stop().await
}

/// The capture reports commits that completed without an ACK. Such commits happen while the capture cannot
/// connect and the source's semi-sync timeout is short.
async fn unacknowledged_commits_are_counted(
    source: &mut Source,
    capture: &Running,
    set: &impl Fn(&str, &str) -> String,
) -> Result<()> {
    let user = format!("{REPLICATION_USER}@'%'");
    source.server.sql(&(set("timeout", "100") + &set("enabled", "1"))).await?;
    capture.until("an alarm for the short time-out", |now| !now.alarms.is_empty()).await?;
    source.configure(&format!("ALTER USER {user} IDENTIFIED BY 'other'")).await?;
    kill_dumps(source).await?;
    capture.until_waiting("rejected the login of user").await?;
    source.write(5).await?;
    source.configure(&format!("ALTER USER {user} IDENTIFIED BY '{REPLICATION_PASSWORD}'")).await?;
    let is_reported = |alarms: &[SemiSyncAlarm]| {
        alarms.iter().any(|alarm| matches!(alarm, SemiSyncAlarm::CommitsWithoutAck(1..)))
    };
    capture.until("an alarm for commits without an ACK", |now| is_reported(&now.alarms)).await?;
    source.server.sql(&set("timeout", "2000000000")).await?;
    source.write(5).await?;
    capture.until("all alarms to end", |now| now.alarms.is_empty()).await?;
    Ok(())
}

/// Kills every connection of the replication account.
async fn kill_dumps(source: &Source) -> Result<()> {
    let query = format!("SELECT id FROM information_schema.processlist WHERE user='{REPLICATION_USER}'");
    for id in source.server.sql(&query).await? {
        // Ignore an error: the connection may have ended in the meantime.
        let _ = source.server.sql(&format!("KILL {id}")).await;
    }
    Ok(())
}

#[test]
fn captures_recover_from_refusals_on_mysql_97() -> Result<()> {
    run(refusals_recover(ServerKind::Mysql97))
}

#[test]
fn captures_recover_from_refusals_on_mariadb_1011() -> Result<()> {
    run(refusals_recover(ServerKind::Mariadb1011))
}

/// The first source writes no binlog. The second source has the address of the log's source, but another
/// flavour.
#[test]
fn a_source_without_binlog_or_of_another_flavour_is_refused() -> Result<()> {
    run(async {
        let without = Source::start(ServerKind::Mariadb1011, &["--skip-log-bin"]).await?;
        let Some(mut source) = Source::start(ServerKind::Mysql97, &[]).await? else { return Ok(()) };
        let Some(without) = without else { return Ok(()) };
        let capture = Running::start(without.options("log", 92))?;
        capture.until_waiting("set log_bin").await?;
        capture.stop().await?;

        source.prepare().await?;
        let mut options = source.options("log", 93);
        options.semi_sync = false;
        let capture = Running::start(options.clone())?;
        source.write(5).await?;
        source.check_complete("log").await?;
        capture.stop().await?;
        options.connect = without.server.replication_options();
        let mut with = without;
        with.server.restart(Some(Vec::new())).await?;
        let error = Running::start(options)?.refusal().await?;
        ensure!(error.code() == "TW-RELAY-0006", "unexpected error: {error}");
        Ok(())
    })
}
