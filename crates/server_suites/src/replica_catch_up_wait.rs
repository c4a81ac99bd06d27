//! Waits until the native replica and the channel have applied everything, and skips transactions at which
//! one of them stops.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use tailwater_apply::channel::ChannelState;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{Gtid, GtidSet};

use super::test_servers::TestServers;

/// The trial gives up after both followers (the native replica and the channel) have made no progress for
/// this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The trial gives up after this number of transactions at which only one follower (the native replica or the
/// channel) stopped. Further stops show nothing new.
const STOPS_OF_ONE_MAX: usize = 8;

/// Which follower stopped at a transaction: the native replica, the channel, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoppedFollower {
    /// Both followers stopped, which is not a difference between them.
    Both,
    /// Only the native replica.
    Native,
    /// Only the channel.
    Channel,
}

/// A transaction at which one or both followers stopped. It was skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApplyStop {
    /// Which follower stopped.
    pub who: StoppedFollower,
    /// GTID of the transaction.
    pub gtid: String,
    /// Error of the native replica.
    pub native: String,
    /// Error of the channel, with its error code before it.
    pub channel: String,
}

/// What one follower (the native replica or the channel) has applied, and whether it has stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FollowerState {
    has: GtidSet,
    /// The error at which the follower stopped, and the transaction if the error names one.
    stopped: Option<(Option<Gtid>, String)>,
}

/// What to do next while the followers catch up.
#[derive(Debug, PartialEq, Eq)]
enum CatchUpStep {
    Done,
    Wait,
    Skip(StoppedFollower),
}

/// Decides which follower, the native replica or the channel, skips the transaction at which it stopped. This
/// function does no I/O.
fn decide(wanted: &GtidSet, native: &FollowerState, channel: &FollowerState) -> CatchUpStep {
    let (native_done, channel_done) = (wanted.is_subset_of(&native.has), wanted.is_subset_of(&channel.has));
    match (&native.stopped, &channel.stopped) {
        _ if native_done && channel_done => CatchUpStep::Done,
        (Some((Some(at), _)), Some((Some(other), _))) if at == other => {
            CatchUpStep::Skip(StoppedFollower::Both)
        }
        (Some((Some(at), _)), _) if channel_done || channel.has.contains(at) => {
            CatchUpStep::Skip(StoppedFollower::Native)
        }
        (_, Some((Some(at), _))) if native_done || native.has.contains(at) => {
            CatchUpStep::Skip(StoppedFollower::Channel)
        }
        // If the failed statement is long, MariaDB's error does not name the transaction. Both followers have
        // applied the same transactions, so they stopped at the same one.
        (Some((None, _)), Some((Some(_), _))) if native.has == channel.has => {
            CatchUpStep::Skip(StoppedFollower::Both)
        }
        // The followers stopped at different transactions, and neither has applied the transaction at which
        // the other one stopped. This can happen because the channel may apply in another order.
        (Some((Some(_), _)), Some((Some(_), _))) => CatchUpStep::Skip(StoppedFollower::Native),
        _ => CatchUpStep::Wait,
    }
}

/// Why the followers cannot be used any more.
#[derive(Debug, PartialEq, Eq)]
pub enum CatchUpFailure {
    /// One follower stopped too many times. Each stop is reported. Later stops may be consequences of the
    /// first.
    TooManyStops(String),
    /// The native replica is still applying, so the result of the file says nothing about the channel.
    Slow(String),
    /// A failure for another reason than too many stops or a slow native replica. It always counts as a
    /// difference, even after a skipped transaction.
    Broken(String),
}

/// The result of [`catch_up`].
#[derive(Debug, Default)]
pub struct CatchUpReport {
    /// GTID set that the primary has committed.
    pub wanted: String,
    /// Transactions that were skipped.
    pub stops: Vec<ApplyStop>,
    /// Why the native replica and the channel did not reach the same GTID set. The servers must then be
    /// started from scratch.
    pub stuck: Option<CatchUpFailure>,
    /// Time that the native replica needed.
    pub native: Duration,
    /// Time that the channel needed.
    pub channel: Duration,
}

/// Waits until the native replica and the channel have applied everything that the primary has committed.
///
/// # Errors
/// If a server does not answer.
pub async fn catch_up(servers: &mut TestServers) -> anyhow::Result<CatchUpReport> {
    let flavour = servers.trial.primary.kind().flavour();
    let committed = servers.committed().await?;
    let wanted = GtidSet::parse(flavour, &committed)?;
    let mut report = CatchUpReport { wanted: committed, ..CatchUpReport::default() };
    let started = Instant::now();
    let mut moved = started;
    let mut before = None;
    loop {
        let native = native_state(servers, flavour).await?;
        let channel = match channel_state(servers, flavour) {
            Ok(channel) => channel,
            Err(error) => {
                report.stuck =
                    Some(CatchUpFailure::Broken(format!("{error:#}: {}", servers.daemon_log_tail())));
                return Ok(report);
            }
        };
        for (follower, took) in [(&native, &mut report.native), (&channel, &mut report.channel)] {
            if !wanted.is_subset_of(&follower.has) || took.is_zero() {
                *took = started.elapsed();
            }
        }
        match decide(&wanted, &native, &channel) {
            CatchUpStep::Done => return Ok(report),
            CatchUpStep::Wait => {}
            CatchUpStep::Skip(who) => {
                let stop = skip(servers, flavour, who, &native, &channel).await;
                let again = stop.as_ref().is_ok_and(|stop| stopped_there_before(&report.stops, stop));
                match stop {
                    Ok(stop) => add(&mut report.stops, stop),
                    Err(error) => report.stuck = Some(CatchUpFailure::Broken(format!("{error:#}"))),
                }
                if again {
                    report.stuck = Some(CatchUpFailure::Broken(format!(
                        "a follower stopped again at a transaction that was skipped: native replica {native:?}, channel {channel:?}"
                    )));
                }
                let of_one = report.stops.iter().filter(|stop| stop.who != StoppedFollower::Both).count();
                if of_one >= STOPS_OF_ONE_MAX {
                    let text = format!("one follower stopped {of_one} times");
                    report.stuck.get_or_insert(CatchUpFailure::TooManyStops(text));
                }
                if report.stuck.is_some() {
                    return Ok(report);
                }
            }
        }
        let now = (native, channel);
        if before.as_ref() != Some(&now) {
            moved = Instant::now();
        }
        if moved.elapsed() > PATIENCE {
            let text = format!(
                "the followers do not reach the primary's GTIDs {wanted}: native replica {:?}, channel {:?}",
                now.0, now.1
            );
            let is_native_under_way = now.0.stopped.is_none() && !wanted.is_subset_of(&now.0.has);
            report.stuck = Some(if is_native_under_way {
                CatchUpFailure::Slow(text)
            } else {
                CatchUpFailure::Broken(text)
            });
            return Ok(report);
        }
        before = Some(now);
        tokio::time::sleep(Duration::from_millis(if moved.elapsed().as_millis() < 100 { 3 } else { 50 }))
            .await;
    }
}

/// Whether the same follower (the native replica or the channel) has already stopped at this transaction.
fn stopped_there_before(stops: &[ApplyStop], stop: &ApplyStop) -> bool {
    stops
        .iter()
        .any(|past| past.gtid == stop.gtid && (past.who == stop.who || past.who == StoppedFollower::Both))
}

/// Adds a stop to the list. If the other follower has already stopped at the same transaction, the two stops
/// become one stop of both followers.
fn add(stops: &mut Vec<ApplyStop>, stop: ApplyStop) {
    match stops.iter_mut().find(|past| past.gtid == stop.gtid && past.who != stop.who) {
        Some(past) => {
            match past.who {
                StoppedFollower::Native => past.channel = stop.channel,
                StoppedFollower::Channel => past.native = stop.native,
                StoppedFollower::Both => {}
            }
            past.who = StoppedFollower::Both;
        }
        None => stops.push(stop),
    }
}

async fn native_state(servers: &mut TestServers, flavour: Flavour) -> anyhow::Result<FollowerState> {
    let question = match flavour {
        Flavour::MySql => "SELECT @@global.gtid_executed",
        Flavour::MariaDb => "SELECT @@global.gtid_slave_pos",
    };
    let has = servers.on_native.value(question).await.context("cannot query the native replica")?;
    let has = GtidSet::parse(flavour, &has.replace('\n', ""))?;
    let connection = servers.on_native.connection().await?;
    let (show, running) = match flavour {
        Flavour::MySql => ("SHOW REPLICA STATUS", "Replica_SQL_Running"),
        Flavour::MariaDb => ("SHOW SLAVE STATUS", "Slave_SQL_Running"),
    };
    let answer = connection.query(show).await?;
    let text = |name: &str| {
        let column = answer.column(name);
        let value = column.and_then(|column| answer.first()?.get(column));
        String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
    };
    let stopped = (text(running) == "No").then(|| {
        let error = format!("{}: {}", text("Last_SQL_Errno"), text("Last_SQL_Error"));
        let at = match flavour {
            Flavour::MySql => gtid_in(flavour, &error),
            // The last error in the log may belong to an earlier stop. So ignore its transaction if the
            // replica has already applied it.
            Flavour::MariaDb => last_gtid_of_log(&servers.native).filter(|at| !has.contains(at)),
        };
        (at, error)
    });
    Ok(FollowerState { has, stopped })
}

fn channel_state(servers: &TestServers, flavour: Flavour) -> anyhow::Result<FollowerState> {
    let status = servers.channel()?;
    let has = GtidSet::parse(flavour, &status.gtids)?;
    let stopped = (status.state == ChannelState::Failed).then(|| {
        let fault =
            status.fault.map(|fault| format!("{}: {}", fault.code, fault.message)).unwrap_or_default();
        (gtid_in(flavour, &fault), fault)
    });
    Ok(FollowerState { has, stopped })
}

/// Returns the first GTID in a message.
fn gtid_in(flavour: Flavour, message: &str) -> Option<Gtid> {
    message
        .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '_')))
        .map(|word| word.trim_end_matches(':'))
        .filter(|word| word.contains('-'))
        .find_map(|word| Gtid::parse(flavour, word).ok())
}

/// Returns the transaction at which MariaDB's applier stopped. Only the error log contains it.
fn last_gtid_of_log(server: &tailwater_sandbox::Server) -> Option<Gtid> {
    let text = std::fs::read(server.error_log()).ok()?;
    last_gtid_in(&String::from_utf8_lossy(&text[text.len().saturating_sub(256 << 10)..]))
}

/// Returns the transaction of the last applier error in the log. In the message the statement comes before
/// the GTID, and may have many lines.
fn last_gtid_in(log: &str) -> Option<Gtid> {
    let (front, _) = log.rsplit_once(", Internal MariaDB error code: ")?;
    let (_, gtid) = front.rsplit_once(", Gtid ")?;
    gtid_in(Flavour::MariaDb, gtid)
}

async fn skip(
    servers: &mut TestServers,
    flavour: Flavour,
    who: StoppedFollower,
    native: &FollowerState,
    channel: &FollowerState,
) -> anyhow::Result<ApplyStop> {
    let at = |follower: &FollowerState| {
        follower.stopped.as_ref().and_then(|(gtid, _)| gtid.as_ref().map(Gtid::to_string))
    };
    let words = |follower: &FollowerState| {
        follower.stopped.as_ref().map(|(_, words)| words.clone()).unwrap_or_default()
    };
    let gtid = match who {
        StoppedFollower::Native => at(native),
        StoppedFollower::Both => at(native).or_else(|| at(channel)),
        StoppedFollower::Channel => at(channel),
    };
    let gtid = gtid.with_context(|| {
        format!("the error names no GTID: native replica {:?}, channel {:?}", words(native), words(channel))
    })?;
    if who != StoppedFollower::Native {
        servers.skip_on_channel(&gtid).with_context(|| format!("cannot skip {gtid} on the channel"))?;
    }
    if who != StoppedFollower::Channel {
        skip_on_native(servers, flavour, &gtid)
            .await
            .with_context(|| format!("cannot skip {gtid} on the native replica"))?;
    }
    Ok(ApplyStop { who, gtid, native: words(native), channel: words(channel) })
}

async fn skip_on_native(servers: &mut TestServers, flavour: Flavour, gtid: &str) -> anyhow::Result<()> {
    let statements = match flavour {
        Flavour::MySql => vec![
            "STOP REPLICA".to_owned(),
            format!("SET gtid_next='{gtid}'"),
            "BEGIN".into(),
            "COMMIT".into(),
            "SET gtid_next=AUTOMATIC".into(),
            "START REPLICA".into(),
        ],
        Flavour::MariaDb => {
            let position = servers.on_native.value("SELECT @@global.gtid_slave_pos").await?;
            let domain = gtid.split('-').next().unwrap_or_default();
            let others =
                position.split(',').filter(|of| !of.is_empty() && of.split('-').next() != Some(domain));
            let all: Vec<&str> = others.chain([gtid]).collect();
            vec![
                "STOP SLAVE".into(),
                format!("SET GLOBAL gtid_slave_pos='{}'", all.join(",")),
                "START SLAVE".into(),
            ]
        }
    };
    let connection = servers.on_native.connection().await?;
    for statement in statements {
        connection.execute(&statement).await.with_context(|| statement.clone())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(has: &str, stopped: Option<&str>) -> FollowerState {
        let flavour = Flavour::MariaDb;
        let has = GtidSet::parse(flavour, has).expect("the GTID set is valid");
        FollowerState { has, stopped: stopped.map(|at| (gtid_in(flavour, at), at.to_owned())) }
    }

    #[test]
    fn which_follower_skips_depends_on_the_applied_gtids() {
        let wanted = GtidSet::parse(Flavour::MariaDb, "0-1-9").expect("the GTID set is valid");
        for (native, channel, want) in [
            (("0-1-9", None), ("0-1-9", None), CatchUpStep::Done),
            (("0-1-9", None), ("0-1-5", None), CatchUpStep::Wait),
            (("0-1-9", None), ("0-1-5", Some("0-1-6: no")), CatchUpStep::Skip(StoppedFollower::Channel)),
            (
                ("0-1-7", Some("0-1-8: no")),
                ("0-1-5", Some("0-1-6: no")),
                CatchUpStep::Skip(StoppedFollower::Channel),
            ),
            (("0-1-5", Some("0-1-6: no")), ("0-1-9", None), CatchUpStep::Skip(StoppedFollower::Native)),
            (
                ("0-1-5", Some("0-1-6: no")),
                ("0-1-5", Some("transaction 0-1-6: no")),
                CatchUpStep::Skip(StoppedFollower::Both),
            ),
            (("0-1-5", Some("0-1-6: no")), ("0-1-5", None), CatchUpStep::Wait),
            (("0-1-5", None), ("0-1-5", Some("0-1-6: no")), CatchUpStep::Wait),
            (("0-1-5", Some("no GTID yet")), ("0-1-9", None), CatchUpStep::Wait),
            (
                ("0-1-5", Some("no GTID at all")),
                ("0-1-5", Some("0-1-6: no")),
                CatchUpStep::Skip(StoppedFollower::Both),
            ),
        ] {
            let (native, channel) = (follower(native.0, native.1), follower(channel.0, channel.1));
            assert_eq!(
                decide(&wanted, &native, &channel),
                want,
                "wrong step for native replica {native:?}, channel {channel:?}"
            );
        }
    }

    #[test]
    fn stops_at_the_same_transaction_are_merged() {
        let stop = |who, gtid: &str| ApplyStop {
            who,
            gtid: gtid.to_owned(),
            native: if who == StoppedFollower::Channel { String::new() } else { "native".to_owned() },
            channel: if who == StoppedFollower::Native { String::new() } else { "channel".to_owned() },
        };
        let mut stops = Vec::new();
        add(&mut stops, stop(StoppedFollower::Native, "0-1-6"));
        assert!(stopped_there_before(&stops, &stop(StoppedFollower::Native, "0-1-6")));
        assert!(!stopped_there_before(&stops, &stop(StoppedFollower::Channel, "0-1-6")));
        add(&mut stops, stop(StoppedFollower::Channel, "0-1-6"));
        add(&mut stops, stop(StoppedFollower::Channel, "0-1-7"));
        assert_eq!(stops, [stop(StoppedFollower::Both, "0-1-6"), stop(StoppedFollower::Channel, "0-1-7")]);
        assert!(stopped_there_before(&stops, &stop(StoppedFollower::Channel, "0-1-6")));
    }

    #[test]
    fn the_gtid_of_an_applier_error_is_found_after_the_statement() {
        let log = "[ERROR] Slave SQL: Error 'no' on query. Query: 'one', Gtid 0-1-4, Internal MariaDB error code: 1050\n\
                   [ERROR] Slave SQL: Error 'no' on query. Query: 'CREATE TABLE t (\n  a INT\n)', Gtid 0-1-7, Internal \
                   MariaDB error code: 1911\n[Warning] Slave: no Error_code: 1911\n";
        assert_eq!(last_gtid_in(log).map(|gtid| gtid.to_string()).as_deref(), Some("0-1-7"));
        assert_eq!(last_gtid_in("[Note] Slave SQL thread initialized, GTID position '0-1-7'"), None);
    }

    #[test]
    fn gtids_are_found_in_messages() {
        let found = |flavour, text| gtid_in(flavour, text).map(|gtid| gtid.to_string());
        let mariadb = found(Flavour::MariaDb, "TW-APP-0003: transaction 0-1-23: the target refuses it");
        assert_eq!(mariadb.as_deref(), Some("0-1-23"));
        let text =
            "Worker 1 failed executing transaction '3e11fa47-71ca-11e1-9e33-c80aa9429562:5' at source log";
        let mysql = found(Flavour::MySql, text);
        assert_eq!(mysql.as_deref(), Some("3e11fa47-71ca-11e1-9e33-c80aa9429562:5"));
        assert_eq!(found(Flavour::MariaDb, "nothing 1-2 here"), None);
    }
}
