//! For every request, the responses of the HTTP API conform to its OpenAPI document. The external tool
//! Schemathesis generates valid and invalid requests from the document, sends them as an operator, and checks
//! each response.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{ServerKind, require, schemathesis};

use super::http_listener::{Http, daemon, follower, member};
use crate::shell_session::Shell;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
const OPERATOR: &str = "operator-0123456789abcdef";
/// Maximum memory of the daemon, which is a debug build, in MiB.
const RSS_MIB_MAX: u64 = 400;

/// The checks of Schemathesis. The check `positive_data_acceptance` is left out: the daemon refuses a GTID or
/// a server that does not exist, although the document allows every text.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
response_headers_conformance,response_schema_conformance,negative_data_rejection,unsupported_method,\
allow_header_conformance,ignored_auth";

#[tokio::test]
async fn requests_of_all_kinds_are_answered_as_documented() -> Result<()> {
    let (Some(program), Some(_)) = (schemathesis::require(), require(ServerKind::Mariadb1011)) else {
        return Ok(());
    };
    let kind = ServerKind::Mariadb1011;
    let shell = Shell::new()?;
    shell.write("operator.token", &format!("{OPERATOR}\n"))?;
    let token = "[[http.token]]\nname = \"op\"\nrole = \"operator\"\nfile = \"operator.token\"";
    let (mut trial, port) = daemon(&shell, kind, token).await?;
    let target = follower(kind, 2, "target").await?;
    trial.add_channel(&format!(
        "\n[[channel]]\nname = \"reports\"\nsource = \"primary\"\nsocket = \"{}\"\nuser = \"root\"\ntls = \"off\"\n[manager]\n{}",
        target.socket().display(),
        member("db2", &target)
    ))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial.primary.sql("CREATE DATABASE shop; CREATE TABLE shop.t (a INT PRIMARY KEY)").await?;

    let folder = shell.path().join("schemathesis");
    std::fs::create_dir(&folder)?;
    let config = folder.join("schemathesis.toml");
    std::fs::write(&config, "[parameters]\n\"path.name\" = \"reports\"\n\"path.source\" = \"primary\"\n")?;
    let seed: u32 = match std::env::var("TAILWATER_SEED") {
        Ok(text) => text.parse().context("TAILWATER_SEED is not a number")?,
        Err(_) => rand::random(),
    };
    let address = format!("http://127.0.0.1:{}", port.number());
    let mut command = Command::new(program);
    command.current_dir(&folder).arg("--config-file").arg(&config).args([
        "run",
        "--no-color",
        "--continue-on-failure",
    ]);
    command.args([&format!("{address}/api/v1/openapi.json"), "--url", &address]);
    command.args(["--header", &format!("Authorization: Bearer {OPERATOR}"), "--seed", &seed.to_string()]);
    command.args(["--checks", CHECKS, "--phases", "examples,coverage,fuzzing"]);
    command.args(["--max-examples", "8", "--max-time", "30", "--request-timeout", "30"]);
    // Exclude two requests whose responses end only when the client disconnects. Other tests cover them.
    command.args(["--exclude-path", "/api/v1/events", "--exclude-path", "/api/v1/channels/{name}/pause"]);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "TAILWATER_SEED={seed}: {text}\n{}\n{}",
        String::from_utf8_lossy(&output.stderr),
        trial.relay_log_tail()
    );
    ensure!(text.contains("generated"), "schemathesis has sent no requests: {text}");

    // The daemon still answers, and its memory is bounded.
    let http = Http { port: port.number() };
    ensure!(http.ask("GET", "/healthz")?.0 == 200, "the daemon is not healthy: {}", trial.relay_log_tail());
    let pid = trial.relay().context("the daemon is not running")?.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("the process status has no VmHWM")?;
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse()?;
    ensure!(
        peak_kib >> 10 <= RSS_MIB_MAX,
        "TAILWATER_SEED={seed}: the daemon used {} MiB of memory",
        peak_kib >> 10
    );

    // After all these requests, the channel can be started again, and applies transactions. The requests may
    // have made the channel apply a part of the log. So the test empties the target, because the channel
    // begins at the log's oldest entry.
    let toml = "-c tailwater.toml";
    shell.run(&format!("channel stop reports {toml}"))?.exits(0);
    target.sql("SET sql_log_bin = 0; DROP DATABASE IF EXISTS shop").await?;
    for orders in ["channel set reports --workers 4 --gtid log --delay-seconds 0", "channel start reports"] {
        shell.run(&format!("{orders} {toml}"))?.exits(0);
    }
    let started = Instant::now();
    loop {
        let listed = shell.run(&format!("channel list {toml}"))?;
        if listed.text().contains("running") {
            return Ok(());
        }
        ensure!(started.elapsed() < PATIENCE, "the channel does not run: {}", listed.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
