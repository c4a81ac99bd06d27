//! Scheduled events are disabled on the target, as on a replica, and can be enabled there.

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::ServerKind;
use tailwater_session::Connection;
use tailwater_wire::Flavour;

use crate::channel_test_servers::Rig;
use crate::faults::until;

const EVENTS: &[&str] = &[
    "CREATE DATABASE agenda",
    "USE agenda",
    "CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY)",
    "CREATE EVENT plain ON SCHEDULE EVERY 1 SECOND DO INSERT INTO agenda.t VALUES ()",
    "CREATE DEFINER='root'@'%' EVENT IF NOT EXISTS `do` ON SCHEDULE EVERY 1 SECOND STARTS '2001-01-01 00:00:00' \
     ON COMPLETION PRESERVE ENABLE COMMENT 'do ENABLE' DO BEGIN INSERT INTO agenda.t VALUES (); END",
    "/*!50106 CREATE*/ /*!50117 DEFINER=`root`@`%`*/ /*!50106 EVENT dumped ON SCHEDULE EVERY 1 SECOND ENABLE \
     DO INSERT INTO agenda.t VALUES () */",
    "CREATE EVENT off ON SCHEDULE EVERY 1 SECOND DISABLE DO INSERT INTO agenda.t VALUES ()",
    "CREATE EVENT altered ON SCHEDULE EVERY 1 HOUR DISABLE ON SLAVE DO INSERT INTO agenda.t VALUES ()",
    "ALTER EVENT altered ENABLE",
    "CREATE EVENT moved ON SCHEDULE EVERY 1 HOUR DO SELECT 1",
    "ALTER EVENT moved RENAME TO agenda.enable",
    "ALTER EVENT enable COMMENT 'is short' DO INSERT INTO agenda.t VALUES ()",
    // MySQL does not log the time zone of the session, but stores it with the event.
    "PREPARE statement FROM 'CREATE EVENT prepared ON SCHEDULE EVERY 1 SECOND DO INSERT INTO agenda.t VALUES ()'",
    "EXECUTE statement",
    "CREATE EVENT gone ON SCHEDULE EVERY 1 HOUR DO SELECT 1",
    "DROP EVENT gone",
];

async fn come_disabled(kind: ServerKind) -> Result<()> {
    let options = (&["--event-scheduler=OFF"], &["--event-scheduler=ON"]);
    let Some(rig) = Rig::start(kind, options.0, options.1).await? else { return Ok(()) };
    let channel = rig.channel(rig.options("agenda"));
    let mut source = Connection::connect(&rig.source.connect_options()).await?;
    for statement in EVENTS {
        source.execute(statement).await.context(*statement)?;
    }
    rig.wait_applied(&channel).await?;
    let side = match kind.flavour() {
        Flavour::MySql => "REPLICA_SIDE_DISABLED",
        Flavour::MariaDb => "SLAVESIDE_DISABLED",
    };
    let list =
        "SELECT event_name, status FROM information_schema.events WHERE event_schema='agenda' ORDER BY 1";
    let names = ["altered", "do", "dumped", "enable", "off", "plain", "prepared"];
    let wanted: Vec<String> = names.iter().map(|name| format!("{name}\t{side}")).collect();
    let found = rig.target.sql(list).await?;
    ensure!(found == wanted, "wrong scheduled events: {found:#?}");
    // Apart from their status, the events are the same as on the source.
    let rest = "SELECT event_name, event_definition, interval_value, interval_field, on_completion, event_comment, \
                definer, time_zone FROM information_schema.events WHERE event_schema='agenda' ORDER BY 1";
    let (ours, theirs) = (rig.source.sql(rest).await?, rig.target.sql(rest).await?);
    ensure!(ours == theirs, "the events differ\nsource: {ours:#?}\ntarget: {theirs:#?}");
    let enabled =
        "SELECT COUNT(*) FROM information_schema.events WHERE event_schema='agenda' AND status='ENABLED'";
    ensure!(rig.source.sql(enabled).await? == ["6"], "the events on the source must stay enabled");
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    rig.ensure_equal(&["agenda"]).await?;
    // The target takes over the role of the source.
    channel.shut_down().await;
    rig.target.sql("ALTER EVENT agenda.plain ENABLE").await?;
    until(&rig.target, "SELECT COUNT(*) > 0 FROM agenda.t", "1").await
}

on_each_server!(come_disabled);
