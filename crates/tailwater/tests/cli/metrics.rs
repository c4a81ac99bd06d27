//! The metrics of captures and channels of a running daemon. `sandbox_cluster` tests the metrics of the
//! manager.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tailwater_sandbox::{Server, ServerKind, require};
use tailwater_wire::Flavour;

use crate::cli::http_listener::{Http, daemon, follower, written_by};
use crate::openmetrics_parser::Scrape;
use crate::shell_session::Shell;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn metrics_reflect_captures_and_channels_mariadb() -> Result<()> {
    metrics_follow_captures_and_channels(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn metrics_reflect_captures_and_channels_mysql() -> Result<()> {
    metrics_follow_captures_and_channels(ServerKind::Mysql97).await
}

async fn metrics_follow_captures_and_channels(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (mut trial, port) = daemon(&shell, kind, "").await?;
    let target = follower(kind, 2, "target").await?;
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"reports\"\nsource = \"primary\"\nsocket = \"{}\"\nuser = \"root\"\ntls = \"off\"\n",
        target.socket().display()
    ))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial.primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a VARCHAR(64) PRIMARY KEY)").await?;
    trial.primary.sql("INSERT INTO shop.t VALUES ('first-value')").await?;

    let address = format!("127.0.0.1:{}", port.number());
    let is = |scrape: &Scrape, series: &str, value: f64| scrape.value(series) == Some(value);
    let applied = r#"tailwater_apply_transactions_total{channel="reports",source="primary"}"#;
    let lag = r#"tailwater_apply_lag_seconds{channel="reports",source="primary"}"#;
    let in_force = r#"tailwater_capture_semi_sync_in_force{source="primary"}"#;
    let running = until(&address, "a channel with lag 0", |scrape| {
        is(scrape, r#"tailwater_apply_state{channel="reports",source="primary",state="running"}"#, 1.0)
            && is(scrape, applied, 3.0)
            && is(scrape, lag, 0.0)
            && is(scrape, in_force, 1.0)
    })?;
    let version = format!("tailwater_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    ensure!(is(&running, &version, 1.0), "the metric of the version is wrong: {}", running.text);
    let captured = r#"tailwater_capture_transactions_total{source="primary"}"#;
    ensure!(is(&running, captured, 3.0), "the number of captured transactions is wrong: {}", running.text);
    for (state, value) in [("streaming", 1.0), ("waiting", 0.0), ("refused", 0.0)] {
        let series = format!("tailwater_capture_state{{source=\"primary\",state=\"{state}\"}}");
        ensure!(is(&running, &series, value), "{series} is wrong: {}", running.text);
    }
    let silence = running.value(r#"tailwater_capture_silence_seconds{source="primary"}"#);
    ensure!(
        silence.is_some_and(|silence| silence < 60.0),
        "the source is reported as silent for a minute or more: {}",
        running.text
    );
    let end = |scrape: &Scrape| {
        let segment = scrape.value(r#"tailwater_log_durable_segment{source="primary"}"#);
        (segment, scrape.value(r#"tailwater_log_durable_offset_bytes{source="primary"}"#))
    };
    ensure!(end(&running) > (Some(1.0), Some(0.0)), "the durable end of the log is wrong: {}", running.text);
    ensure!(running.value(r#"tailwater_capture_acks_total{source="primary"}"#) > Some(0.0));
    for absent in ["tailwater_apply_fault", "tailwater_capture_semi_sync_alarms", "tailwater_manager_leader"]
    {
        ensure!(!running.has(absent), "{absent} must not be present: {}", running.text);
    }

    target.sql("DROP TABLE shop.t").await?;
    trial.primary.sql("INSERT INTO shop.t VALUES ('second-value')").await?;
    let failed = until(&address, "a channel that has failed", |scrape| {
        is(scrape, r#"tailwater_apply_state{channel="reports",source="primary",state="failed"}"#, 1.0)
            && scrape.has("tailwater_apply_fault")
    })?;
    ensure!(failed.value(lag).is_none(), "the lag of a failed channel must not be reported: {}", failed.text);
    ensure!(end(&failed) > end(&running), "the end of the log does not advance: {}", failed.text);
    let written = written_by(&trial.primary).await?;
    let gtid = written.split(':').next().unwrap_or_default();
    for private in ["-value", "INSERT", "shop", "root", gtid] {
        ensure!(
            !failed.text.contains(private),
            "the metrics contain the private text {private}: {}",
            failed.text
        );
    }
    connects_to_no_server(&address, &target).await?;

    let side = if kind.flavour() == Flavour::MySql { "source" } else { "master" };
    trial.primary.sql(&format!("SET GLOBAL rpl_semi_sync_{side}_enabled = 0")).await?;
    until(&address, "semi-sync switched off", |scrape| {
        is(scrape, in_force, 0.0)
            && is(scrape, r#"tailwater_capture_semi_sync_alarms{code="TW-RELAY-0101",source="primary"}"#, 1.0)
    })?;
    let http = Http { port: port.number() };
    for method in ["HEAD", "OPTIONS"] {
        ensure!(http.ask(method, "/metrics")?.0 == 200, "{method} /metrics is not answered with 200");
    }
    ensure!(http.ask("POST", "/metrics")?.0 == 405);
    ensure!(http.ask("GET", "/metrics?source=primary")?.0 == 400);
    trial.kill_relay().await
}

/// A request for `/metrics` opens no connection to a server. A request for `/status` opens one, which shows
/// that the test counts connections correctly.
async fn connects_to_no_server(address: &str, target: &Server) -> Result<()> {
    let connections = async || -> Result<u64> {
        let shown = target.sql("SHOW GLOBAL STATUS LIKE 'Connections'").await?.concat();
        Ok(shown.trim_start_matches(|c: char| !c.is_ascii_digit()).trim().parse()?)
    };
    let first = connections().await?;
    let second = connections().await?;
    let of_one_look = second - first;
    for _ in 0..20 {
        Scrape::of(address)?;
    }
    let third = connections().await?;
    ensure!(
        third - second == of_one_look,
        "the target counted {first}, then {second} connections, and {third} after the requests for /metrics"
    );
    let port = address.rsplit(':').next().unwrap_or_default().parse()?;
    ensure!(Http { port }.ask("GET", "/status")?.0 == 200);
    let fourth = connections().await?;
    ensure!(
        fourth - third > of_one_look,
        "a request for /status opened no connection: {third} before it, {fourth} after it"
    );
    Ok(())
}

/// Requests the metrics until they satisfy the condition.
fn until(address: &str, what: &str, condition: impl Fn(&Scrape) -> bool) -> Result<Scrape> {
    let started = Instant::now();
    loop {
        let scrape = Scrape::of(address);
        match scrape {
            Ok(scrape) if condition(&scrape) => return Ok(scrape),
            scrape => {
                ensure!(started.elapsed() < PATIENCE, "the metrics never showed {what}: {scrape:#?}");
                std::thread::sleep(Duration::from_millis(30));
            }
        }
    }
}
