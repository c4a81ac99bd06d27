//! A channel queries its source for column metadata that the binlog does not contain.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::AckMode;
use tailwater_sandbox::replication_setup::REPLICATION_USER;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};

use crate::shell_session::{PROGRAM, Shell};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The channel uses the account of the `[[source]]`. It waits until that account is allowed to read the
/// table.
#[tokio::test(flavor = "multi_thread")]
async fn fractional_digits_of_old_temporal_columns_are_queried_from_the_source() -> Result<()> {
    let kind = ServerKind::Mariadb118;
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let target = Server::start(ServerSpec::new(kind).name("target").option("--server-id=2")).await?;
    let mut trial = Trial::start(TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    })
    .await?;
    let socket = target.socket().display();
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"replica\"\nsource = \"primary\"\nsocket = \"{socket}\"\nuser = \"root\"\ntls = \"off\"\n"
    ))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    for (server, format) in [(&trial.primary, "OFF"), (&target, "ON")] {
        let make = format!(
            "SET sql_log_bin=0; SET GLOBAL mysql56_temporal_format={format}; CREATE DATABASE shop; CREATE TABLE shop.t \
             (id INT PRIMARY KEY, a TIME(3), b DATETIME(6), c TIMESTAMP(2)); SET GLOBAL mysql56_temporal_format=ON"
        );
        server.sql(&make).await?;
    }
    let rows = "INSERT INTO shop.t VALUES (1, '-12:34:56.789', '2024-02-29 12:34:56.123456', '2001-02-03 04:05:06.07')";
    trial.primary.sql(rows).await?;
    let started = Instant::now();
    loop {
        let lines = shell.run("channel list -c tailwater.toml --output json")?.exits(0).json()?;
        let fault = &lines.first().context("`channel list` printed no channel")?["fault"];
        if fault["code"] == "TW-APP-0055" {
            let message = fault["message"].as_str().unwrap_or_default();
            ensure!(
                message.contains("shop.t") && message.contains("GRANT SELECT"),
                "the error does not name the table and the missing privilege: {fault}"
            );
            break;
        }
        ensure!(started.elapsed() < PATIENCE, "the channel does not report TW-APP-0055: {lines:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(target.sql("SELECT COUNT(*) FROM shop.t").await? == ["0"]);
    trial.primary.sql(&format!("SET sql_log_bin=0; GRANT SELECT ON shop.* TO {REPLICATION_USER}")).await?;
    let wanted = trial.primary.sql("SELECT * FROM shop.t").await?;
    let started = Instant::now();
    while target.sql("SELECT * FROM shop.t").await? != wanted {
        ensure!(started.elapsed() < PATIENCE, "the row is not applied: {}", trial.relay_log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    trial.stop_relay().await
}
